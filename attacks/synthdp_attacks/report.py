"""The report of a membership attack: frozen values, JSON and one plain sentence.

It is confidential when the rows were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from synthdp_attacks.epsilon import Claim, power_warnings
from synthdp_attacks.statistics import Interval, models_to_tell
from synthdp_attacks.verdict import AttackRow, AttackVerdict

CAVEAT = "This is a sanity check, not a proof of privacy: another attack may do better."


@dataclass(frozen=True, kw_only=True)
class MembershipReport:
    """The verdict, its context, the `others` declared beforehand, and the table of all attacks.

    `per_target`: advantage on each target. `baseline`: advantage of the same classifier on column
    histograms, which never ask about the target. `epsilon_provable`: the most that so many models
    could have proven. `roc`: points (FPR, TPR) of the verdict's attack. `remarks`: what else must
    be known before the numbers are believed. `dropped`: pairs of models whose training always
    killed its worker. `target`: the word for what was asked about.
    """

    verdict: AttackVerdict
    per_target: tuple[Interval, ...]
    table: tuple[AttackRow, ...]
    baseline: Interval
    epsilon_provable: float
    roc: tuple[tuple[float, float], ...]
    remarks: tuple[str, ...] = ()
    others: tuple[AttackVerdict, ...] = ()
    dropped: int = 0
    target: str = "record"

    @property
    def declared(self) -> tuple[AttackVerdict, ...]:
        """All attacks that were declared beforehand, that of the verdict first."""
        return (self.verdict, *self.others)

    @property
    def main(self) -> AttackRow:
        """All statistics of the verdict's attack."""
        return self.verdict.row

    @property
    def control(self) -> Interval | None:
        """The verdict's control."""
        return self.verdict.control

    @property
    def epsilon_lower(self) -> float:
        """The verdict's lower bound on epsilon."""
        return self.verdict.epsilon_lower

    @property
    def claim(self) -> Claim | None:
        """What the release claims."""
        return self.verdict.claim

    @property
    def ceiling(self) -> float | None:
        """Greatest advantage that the claim allows any attack."""
        return self.claim.ceiling_advantage() if self.claim else None

    @property
    def refutes_claim(self) -> bool:
        """Whether one of the declared attacks disproves the claim, with 95% confidence in all."""
        return any(verdict.refutes_claim for verdict in self.declared)

    @property
    def conclusion(self) -> str:
        """One plain sentence on the verdict, or on an attack that says more, and the caveat.

        All attacks together are wrong with probability at most 5%.
        """
        telling = [v for v in self.declared if v.refutes_claim] or [
            v for v in self.declared if v.advantage.lower > 0
        ]
        verdict = telling[0] if telling else self.verdict
        gap, models, sure = (
            verdict.advantage,
            verdict.row.models,
            f"{100 * verdict.confidence:.3g}%",
        )
        numbers = (
            f"advantage {gap.value:.3f}, {sure} interval {gap.lower:.3f} to {gap.upper:.3f}, on"
            f" {models} test models in each world"
        )
        ceiling = (
            f"; the claim allows at most {self.ceiling:.3f}" if self.ceiling is not None else ""
        )
        who = f"The attack {verdict.name}" if self.others else "The attack"
        if verdict.refutes_claim:
            finding = f"{who} refutes the claim: {verdict.refutation}"
        elif gap.lower > 0:
            finding = (
                f"{who} tells releases made with the target {self.target} from releases made"
                " without it"
            )
        elif self.others:
            attacks = ", ".join(v.name for v in self.declared)
            finding = (
                f"None of {len(self.declared)} attacks ({attacks}) told releases made with the"
                f" target {self.target} from releases made without it"
            )
        else:
            finding = (
                f"The attack did not tell releases made with the target {self.target} from"
                " releases made without it"
            )
        return f"{finding} ({numbers}{ceiling}). {CAVEAT}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything a reader must know before believing the numbers."""
        main = self.verdict
        return (
            *power_warnings(
                main.row.models, self.claim, main.advantage, confidence=main.confidence
            ),
            *self._controls(),
            *self.remarks,
        )

    def _controls(self) -> Iterator[str]:
        for verdict in self.declared:
            if verdict.control is None:
                least = models_to_tell(verdict.confidence)
                yield (
                    f"too few models for a control of {verdict.name}: fewer than {least} test"
                    f" models in each world cannot differ from chance (on one target {least} take"
                    f" {8 * least - 4} pairs, or {2 * least - 1} control pairs)"
                )
            elif not verdict.control.contains(0):
                yield (
                    f"the control of {verdict.name} is not at chance: chance does this to one of"
                    " all declared attacks in 1 of 20 runs; if it does it again, the measuring is"
                    " broken"
                )

    def to_json(self) -> dict[str, Any]:
        """Plain values, without infinities, for a report or a run's record."""
        return {
            "conclusion": self.conclusion,
            "confidential": (
                "computed on the rows given to the attack; publish only if those were public or"
                " simulated"
            ),
            "main": self.main.to_json(),
            "per_target_advantage": [asdict(gap) for gap in self.per_target],
            "baseline_advantage": asdict(self.baseline),
            "control_advantage": asdict(self.control) if self.control else "too few models",
            "epsilon_lower": self.epsilon_lower,
            "epsilon_provable": self.epsilon_provable,
            "claim": (
                {
                    "epsilon": self.claim.epsilon,
                    "delta": self.claim.delta,
                    "ceiling_advantage": self.ceiling,
                }
                if self.claim
                else None
            ),
            "profile_excess": self.verdict.profile_excess,
            "refutes_claim": self.refutes_claim,
            "declared": [verdict.to_json() for verdict in self.declared],
            "roc": [list(point) for point in self.roc],
            "warnings": list(self.warnings),
            "table": [row.to_json() for row in self.table],
        }
