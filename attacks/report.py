"""What a membership attack found: frozen values, JSON and one plain sentence. Confidential when the rows were."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from attacks.epsilon import Claim
from attacks.game import Outcome
from attacks.statistics import (
    Counts,
    Interval,
    accuracy,
    advantage,
    auc,
    best_advantage,
    models_needed,
    tpr_at_fpr,
    true_negative_rate,
    true_positive_rate,
)

CAVEAT = "This is a sanity check, not a proof of privacy: another attack may do better."
LOW_RATES = (0.01, 0.001)


@dataclass(frozen=True)
class AttackRow:
    """One extractor with one classifier, or one white-box score with one likelihood ratio, judged on `models` test models in each world.

    `positive_accuracy` and `negative_accuracy` are the base paper's PA and NA: in its tables accuracy is their
    mean, so they are the shares of models recognised in each world (recall and specificity). `advantage_best`
    picks its threshold on the test models and is biased upwards. `tpr_at` holds a false-positive rate and the
    true-positive rate there, or None when the models are too few for it.
    """

    extractor: str
    classifier: str
    models: int
    accuracy: Interval
    positive_accuracy: Interval
    negative_accuracy: Interval
    precision: float | None
    advantage: Interval
    advantage_best: float
    auc: Interval
    tpr_at: tuple[tuple[float, Interval | None], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; a rate that the models are too few for says so."""
        rates = {
            f"tpr_at_fpr_{rate:g}": asdict(tpr) if tpr else f"too few models: needs {models_needed(rate)} without the target, has {self.models}"
            for rate, tpr in self.tpr_at
        }
        return {key: value for key, value in asdict(self).items() if key != "tpr_at"} | rates


def attack_row(extractor: str, classifier: str, outcome: Outcome) -> AttackRow:
    """All statistics of one attack."""
    scores, members = outcome.scores, outcome.members
    counts = Counts.at(scores, members)
    return AttackRow(
        extractor=extractor,
        classifier=classifier,
        models=min(counts.positives, counts.negatives),
        accuracy=accuracy(counts),
        positive_accuracy=true_positive_rate(counts),
        negative_accuracy=true_negative_rate(counts),
        precision=counts.precision,
        advantage=advantage(counts),
        advantage_best=best_advantage(scores, members),
        auc=auc(scores, members),
        tpr_at=tuple((rate, tpr_at_fpr(scores, members, false_positive_rate=rate)) for rate in LOW_RATES),
    )


@dataclass(frozen=True, kw_only=True)
class MembershipReport:
    """The verdict (`main`), what it must be read beside, and the table of all other attacks.

    `per_target`: advantage on each target. `baseline`: advantage of the same classifier on column histograms,
    which never ask about the target. `control`: advantage where neither world had the target; must be at chance (None: too
    few models). `epsilon_lower`: 95% lower bound on epsilon at the claim's delta; `epsilon_provable`: the most
    that so many models could have proven. `profile_excess`: above 0 refutes the claim. `roc`: points
    (FPR, TPR) of `main`.
    """

    main: AttackRow
    per_target: tuple[Interval, ...]
    table: tuple[AttackRow, ...]
    baseline: Interval
    control: Interval | None
    epsilon_lower: float
    epsilon_provable: float
    profile_excess: float | None
    claim: Claim | None
    roc: tuple[tuple[float, float], ...]
    warnings: tuple[str, ...]

    @property
    def ceiling(self) -> float | None:
        """Greatest advantage that the claim allows any attack."""
        return self.claim.ceiling_advantage() if self.claim else None

    @property
    def refutes_claim(self) -> bool:
        """Whether the claim is disproved with 95% confidence, by the bound on epsilon or by its profile."""
        return self.claim is not None and (self.epsilon_lower > self.claim.epsilon or (self.profile_excess or 0.0) > 0)

    @property
    def conclusion(self) -> str:
        """One plain sentence and the caveat."""
        gap, models = self.main.advantage, self.main.models
        numbers = f"advantage {gap.value:.3f}, 95% interval {gap.lower:.3f} to {gap.upper:.3f}, on {models} test models in each world"
        ceiling = f"; the claim allows at most {self.ceiling:.3f}" if self.ceiling is not None else ""
        if self.refutes_claim:
            finding = f"The attack refutes the claim: epsilon is at least {self.epsilon_lower:.2f} with 95% confidence"
        elif gap.lower > 0:
            finding = "The attack tells releases made with the target record from releases made without it"
        else:
            finding = "The attack did not tell releases made with the target record from releases made without it"
        return f"{finding} ({numbers}{ceiling}). {CAVEAT}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, without infinities, for a report or a run's record."""
        return {
            "conclusion": self.conclusion,
            "confidential": "computed on the rows given to the attack; publish only if those were public or simulated",
            "main": self.main.to_json(),
            "per_target_advantage": [asdict(gap) for gap in self.per_target],
            "baseline_advantage": asdict(self.baseline),
            "control_advantage": asdict(self.control) if self.control else "too few models",
            "epsilon_lower": self.epsilon_lower,
            "epsilon_provable": self.epsilon_provable,
            "claim": {"epsilon": self.claim.epsilon, "delta": self.claim.delta, "ceiling_advantage": self.ceiling} if self.claim else None,
            "profile_excess": self.profile_excess,
            "refutes_claim": self.refutes_claim,
            "roc": [list(point) for point in self.roc],
            "warnings": list(self.warnings),
            "table": [row.to_json() for row in self.table],
        }
