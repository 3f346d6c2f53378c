"""Gates: bounds that must hold or the bundle is withheld.

A gate on a public or released figure is post-processing. A gate on a figure computed on real rows
makes the decision to publish depend on rows; the spec has to accept that by name, and the
certificate says so. What the audit on the simulated twin found is public: its gates are decided
before anything is spent, and nothing is withheld because of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from synthdp.bundle.audit_record import AuditRecord, DeclaredAttack
from synthdp.errors import GateError, OutputError
from synthdp.files import parse_json, read_text, write_whole
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
    """

    value: float | None
    source: str = ""


@dataclass(frozen=True)
class GateVerdict:
    """One gate and its figure; a figure that is not available fails its gate."""

    gate: Gate
    value: float | None
    source: str = ""

    @property
    def bound(self) -> str:
        """The bound in words."""
        least, most = self.gate.at_least, self.gate.at_most
        return f"at least {least:g}" if most is None else f"at most {most:g}"

    @property
    def margin(self) -> float | None:
        """How far the figure is on the right side of the bound; below 0 it is on the wrong one."""
        least, most = self.gate.at_least or 0.0, self.gate.at_most
        if self.value is None:
            return None
        return self.value - least if most is None else most - self.value

    @property
    def passed(self) -> bool:
        """Whether the bound holds."""
        return self.margin is not None and self.margin >= 0

    def __str__(self) -> str:
        if self.value is None or self.margin is None:
            return f"{self.gate.metric}: needs {self.bound}, {self.source or 'got not available'}"
        source = f" by {self.source}" if self.source else ""
        missed = "" if self.passed else f", beyond the bound by {-self.margin:.2g}"
        return f"{self.gate.metric}: needs {self.bound}, got {self.value:.4g}{source}{missed}"


def check_gates(gates: Sequence[Gate], figures: Mapping[str, Figure]) -> tuple[GateVerdict, ...]:
    """Every gate with its figure."""
    named = ((gate, figures.get(gate.metric, Figure(None))) for gate in gates)
    return tuple(GateVerdict(gate, figure.value, figure.source) for gate, figure in named)


def keep_decision(verdicts: Sequence[GateVerdict], path: Path) -> None:
    """Keep the figures that decided, before a bundle is published: nothing decides that again.

    Raises:
        OutputError: the disk does not take them.
    """
    try:
        write_whole(path, json.dumps([[v.value, v.source] for v in verdicts]))
    except OSError as error:
        raise OutputError(
            f"cannot write to {path.parent}: {error.strerror}",
            hint="make room or allow writing, and resume: nothing is paid again",
        ) from None


def kept_decision(gates: Sequence[Gate], path: Path) -> tuple[GateVerdict, ...] | None:
    """The verdicts of a run that has published; None where an earlier version kept none."""
    try:
        kept = parse_json(read_text(path))
        return tuple(GateVerdict(g, v, s) for g, (v, s) in zip(gates, kept, strict=True))
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
