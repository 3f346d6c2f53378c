"""Gates: bounds that must hold or the bundle is withheld.

A gate on a public or released figure is post-processing. A gate on a figure computed on real rows
makes the decision to publish depend on rows; the spec has to accept that by name, and the
certificate says so. What the audit on the simulated twin found is public: its gates are decided
before anything is spent, and nothing is withheld because of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from synthdp.bundle.audit_record import AuditRecord, DeclaredAttack
from synthdp.errors import GateError, OutputError
from synthdp.files import parse_json, read_text, write_whole
from synthdp.report.prose import estimated
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
    try:
        write_whole(path, json.dumps([astuple(v.figure) for v in verdicts]))
    except OSError as error:
        raise OutputError(
            f"cannot write to {path.parent}: {error.strerror}",
            hint="make room or allow writing, and resume: nothing is paid again",
        ) from None


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
    """The figures of `spec.ATTACK_FIGURES`, each of the declared attack with the largest value.

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
