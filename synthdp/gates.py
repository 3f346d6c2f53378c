"""Gates: bounds that must hold or the bundle is withheld.

A gate on a public or released figure is post-processing. A gate on a figure computed on real rows makes the
decision to publish depend on rows; the spec has to accept that by name, and the certificate says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from synthdp.spec import models as spec


@dataclass(frozen=True)
class Verdict:
    """One gate and the figure it was held against; a figure that is not available fails its gate."""

    gate: spec.Gate
    value: float | None

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"at most {self.gate.at_most:g}" if self.gate.at_most is not None else f"at least {self.gate.at_least:g}"

    @property
    def passed(self) -> bool:
        """Whether the bound holds."""
        if self.value is None:
            return False
        return self.value <= self.gate.at_most if self.gate.at_most is not None else self.value >= (self.gate.at_least or 0.0)

    def __str__(self) -> str:
        got = "not available" if self.value is None else f"{self.value:.4g}"
        return f"{self.gate.metric}: needs {self.bound}, got {got}"


def check_gates(gates: Sequence[spec.Gate], metrics: Mapping[str, float]) -> tuple[Verdict, ...]:
    """Every gate with its figure from `metrics`."""
    return tuple(Verdict(gate, metrics.get(gate.metric)) for gate in gates)
