"""Gates: bounds that must hold or the bundle is withheld.

A gate on a public or released figure is post-processing. A gate on a figure computed on real rows
makes the decision to publish depend on rows; the spec has to accept that by name, and the
certificate says so. What the audit on the simulated twin found is public: its gates are decided
before anything is spent, and nothing is withheld because of rows.

Red lines are reasons not to publish a bundle whose gates held. Of some the program can tell, and of
the others only people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

from synthdp.bundle.audit_record import AuditRecord, DeclaredAttack, audits_in
from synthdp.errors import GateError, OutputError, VerifyError, disk_errors
from synthdp.files import parse_json, read_text, write_whole
from synthdp.ledger.connect import other_ids, searches
from synthdp.ledger.entries import Entry
from synthdp.report.prose import estimated
from synthdp.report.verdicts import EPSILON
from synthdp.spec.load.wording import many, up
from synthdp.spec.model import Gate

ATTACK_FIELDS = {
    "advantage_upper": "upper",
    "auc_upper": "auc_upper",
    "tpr_upper": "tpr_upper",
    "epsilon_lower": "epsilon_lower",
}


@dataclass(frozen=True)
class Figure:
    """A figure that a gate may name.

    `source` says where it comes from, if its name alone does not; of None, why there is no figure.
    `ends` are those of its 95% interval, where noise that was paid for is in it.
    """

    value: float | None
    source: str = ""
    ends: Sequence[float] = ()


@dataclass(frozen=True)
class GateVerdict:
    """One gate and its figure; a figure that is not available fails its gate."""

    gate: Gate
    figure: Figure

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        return self.gate.outcome(self.figure.value, self.figure.ends)

    @property
    def passed(self) -> bool:
        """Whether the bound holds."""
        return self.figure.value is not None and self.gate.margin(self.figure.value) >= 0

    def __str__(self) -> str:
        gate, found = self.gate, self.figure
        if found.value is None:
            return f"{gate.metric}: needs {gate.bound}, {found.source or 'got not available'}"
        got = estimated(found.value, *found.ends) if found.ends else f"{found.value:.4g}"
        source = f" by {found.source}" if found.source else ""
        missed = "" if self.passed else f", beyond the bound by {-gate.margin(found.value):.2g}"
        return f"{gate.metric}: needs {gate.bound}, got {got}{source}{missed}"


def check_gates(gates: Sequence[Gate], figures: Mapping[str, Figure]) -> tuple[GateVerdict, ...]:
    """Every gate with its figure."""
    return tuple(GateVerdict(gate, figures.get(gate.metric, Figure(None))) for gate in gates)


def keep_decision(verdicts: Sequence[GateVerdict], path: Path) -> None:
    """Keep the figures that decided, before a bundle is published: nothing decides that again.

    Raises:
        OutputError: the disk does not take them.
    """
    hint = "make room or allow writing, and resume: nothing is paid again"
    with disk_errors(f"cannot write to {path.parent}", hint=hint):
        write_whole(path, json.dumps([astuple(v.figure) for v in verdicts]))


def kept_decision(gates: Sequence[Gate], path: Path) -> tuple[GateVerdict, ...] | None:
    """The verdicts of a run that has published; None where an earlier version kept none."""
    try:
        kept = parse_json(read_text(path))
        return tuple(GateVerdict(g, Figure(*f)) for g, f in zip(gates, kept, strict=True))
    except (OSError, ValueError, TypeError):
        return None


def check_simulated(gates: Sequence[Gate], audit: AuditRecord | None) -> None:
    """Gates on the public audit, which can be decided before anything is spent.

    Raises:
        OutputError: there is no such audit of this plan yet.
        GateError: one does not hold.
    """
    asked = [gate for gate in gates if gate.simulated]
    figures = simulated_figures(audit)
    if asked and not figures:
        raise OutputError(
            f"the gate on {asked[0].metric} needs an audit of this plan with the membership attack"
            " on its simulated twin, and there is none",
            hint=(
                "run `synthdp audit SPEC --simulated` first, with the same --out; it spends nothing"
            ),
        )
    if failed := [verdict for verdict in check_gates(asked, figures) if not verdict.passed]:
        hint = "nothing was spent; lower epsilon or change the model, and audit again"
        raise GateError("there will be no bundle: " + "; ".join(map(str, failed)), hint=hint)


def simulated_figures(audit: AuditRecord | None) -> dict[str, Figure]:
    """The figures of the public audit's membership attack.

    There are none where the attack was not run on simulated rows.
    """
    if audit is None or audit.rows != "simulated" or audit.membership is None:
        return {}
    return attack_figures(audit.membership.attacks, prefix="simulated")


def attack_figures(attacks: Sequence[DeclaredAttack], *, prefix: str) -> dict[str, Figure]:
    """The figures of `spec.model.evaluation.ATTACK_FIGURES`, each of the declared attack with the
    largest value.

    A figure that so few models cannot show is left out.
    """
    found = {}
    for name, field in ATTACK_FIELDS.items():
        values = [(float(getattr(a, field)), a) for a in attacks if getattr(a, field) is not None]
        if values:
            value, best = max(values, key=lambda pair: pair[0])
            found[f"{prefix}_{name}"] = Figure(
                value, f"{best.attack} on {best.models} test models in each world"
            )
    return found


# --- red lines ---

Tick = Literal["ok", "ask", "crossed"]


@dataclass(frozen=True)
class RedLine:
    """A reason not to publish a bundle; of one in state `ask` only a person can tell.

    >>> print(RedLine("audits", "ok", "2 beside it, and none refutes the claim"))
    [x] audits: 2 beside it, and none refutes the claim
    """

    what: str
    state: Tick
    found: str

    def __str__(self) -> str:
        return f"[{dict(ok='x', ask=' ', crossed='!')[self.state]}] {self.what}: {self.found}"


def red_lines(bundle: Path, ledger: Sequence[Entry]) -> tuple[RedLine, ...]:
    """The red lines of a bundle, as far as it, its output folder and its ledger tell.

    Raises:
        VerifyError, OutputError: an audit beside it, or the bundle as a whole, cannot be read.
    """
    from synthdp.verify.checks import inspect_bundle  # with all that it takes to read a bundle
    from synthdp.verify.diff import open_stated

    if problems := inspect_bundle(bundle).problems:
        found = f"{many(len(problems), 'problem')}, the first: {problems[0]}"
        return (RedLine("verify", "crossed", found),)
    opened = open_stated(bundle)
    spec, stated = opened.spec, opened.certificate
    planned = [(spend.purpose, spend.event) for spend in stated.planned]
    audits = [audit for audit in audits_in(bundle.parent) if audit.covers(planned)]
    refuted = "; ".join(said for audit in audits for said in audit.refuted)
    made = f"{len(audits)} beside it, and none refutes the claim"
    epsilon = stated.epsilon + (stated.domain_from.epsilon if stated.domain_from else 0.0)
    why = f"below {EPSILON.fair:g}" if epsilon < EPSILON.fair else ""
    if not why and spec.publication and spec.publication.justification:
        why = "and publication.justification says why"
    ended = {e.run for e in ledger if (e.dataset, e.kind) == (spec.dataset.id, "settle")}
    waves = {e.run: e.body["wave"]["name"] for e in ledger if e.body.get("wave")}
    own = spec.waves and spec.waves.name
    ended -= {run for run, name in waves.items() if name != own}  # of other tables
    runs = len(ended - {*searches(ledger, spec.dataset.id)})
    chosen = f"one of {runs} runs: chosen by how its figures look?"
    other = "; ".join(other_ids(spec, ledger))
    lines: list[tuple[str, Tick, str]] = [
        ("verify", "ok", "agrees with itself"),
        ("audits", "crossed", refuted)
        if refuted
        else ("audits", "ok", made)
        if audits
        else ("audits", "ask", "none lies beside it; is one needed (`synthdp audit`)?"),
        ("epsilon", "ok" if why else "ask", f"{up(epsilon)}, {why or 'and nobody wrote down why'}"),
        ("unit", "ask", f"{stated.unit_meaning}; may a person have several?"),
        ("declarations", "ask", "was a bound, a category or an arrow read off the rows?"),
        ("same table", "ask", other or "is it released under another id, or in another ledger?"),
        ("selection", "ask", chosen)
        if runs > 1
        else ("selection", "ok", "the only run of its dataset that has ended"),
    ]
    return tuple(RedLine(*line) for line in lines)


def check_red_lines(lines: Sequence[RedLine]) -> None:
    """Refuse a yes to a bundle that crosses a red line.

    Raises:
        VerifyError: naming each.
    """
    if crossed := [f"{line.what}: {line.found}" for line in lines if line.state == "crossed"]:
        raise VerifyError(
            "this bundle must not be published, and no yes was recorded",
            hint="see the red lines of docs/guides/gates.md; a --no can be recorded",
            problems=crossed,
        )
