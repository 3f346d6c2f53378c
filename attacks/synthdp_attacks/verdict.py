"""The verdict on one membership attack: its statistics, its bound on epsilon, and its control.

It is confidential when the rows were.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from synthdp_attacks.epsilon import (
    Claim,
    allowed_true_positives,
    epsilon_lower_bound,
    profile_excess,
    proven_rates,
)
from synthdp_attacks.game import GameOutcome
from synthdp_attacks.statistics import (
    Counts,
    Interval,
    accuracy,
    advantage,
    auc,
    best_advantage,
    models_needed,
    models_to_tell,
    tpr_at_fpr,
    true_negative_rate,
    true_positive_rate,
)

LOW_RATES = (0.01, 0.001)


@dataclass(frozen=True)
class AttackRow:
    """The statistics of one attack on `models` test models in each world.

    An attack is an extractor with a classifier, or a white-box score with a likelihood ratio.

    `positive_accuracy` and `negative_accuracy` are the base paper's PA and NA: in its tables
    accuracy is their mean, so they are the shares of models recognised in each world (recall and
    specificity). `advantage_best` picks its threshold on the test models and is biased upwards.
    `tpr_at` holds a false-positive rate and the true-positive rate there, or None when the models
    are too few for it.
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
            f"tpr_at_fpr_{rate:g}": (
                asdict(tpr)
                if tpr
                else (
                    f"too few models: needs {models_needed(rate)} without the target, has"
                    f" {self.models}"
                )
            )
            for rate, tpr in self.tpr_at
        }
        return {key: value for key, value in asdict(self).items() if key != "tpr_at"} | rates


def attack_row(extractor: str, classifier: str, outcome: GameOutcome) -> AttackRow:
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
        tpr_at=tuple(
            (rate, tpr_at_fpr(scores, members, false_positive_rate=rate)) for rate in LOW_RATES
        ),
    )


@dataclass(frozen=True, kw_only=True)
class AttackVerdict:
    """An attack that was declared beforehand, so that its figures are no choice of the luckiest.

    All but `row` share the 5% of error with the other declared attacks, so that many say what is
    not so no more often than one does: `confidence` is what this one may claim by itself.
    `advantage`: that of `row` with such an interval. `control`: advantage where neither world had
    the target, which must be at chance; None where too few models could not differ from chance.
    `proven`: what the TPR is at least and the FPR at most, at a threshold fixed beforehand. From
    them follow `epsilon_lower`, a lower bound on epsilon at the claim's delta, and
    `profile_excess`, which above 0 refutes the claim's whole curve.
    """

    row: AttackRow
    confidence: float
    advantage: Interval
    control: Interval | None
    proven: tuple[float, float]
    epsilon_lower: float
    profile_excess: float | None
    claim: Claim | None

    @property
    def name(self) -> str:
        """Extractor or white-box score, and the judge."""
        return f"{self.row.extractor} with {self.row.classifier}"

    @property
    def refutes_claim(self) -> bool:
        """Whether this attack disproves the claim, by the bound on epsilon or by its profile."""
        return bool(self.refutation)

    @property
    def refutation(self) -> str:
        """How this attack disproves the claim, in words; empty where it does not."""
        if self.claim is not None and self.epsilon_lower > self.claim.epsilon:
            return f"epsilon is at least {self.epsilon_lower:.2f} with 95% confidence"
        if self.claim is not None and (self.profile_excess or 0.0) > 0:
            hits, alarms = self.proven
            return (
                "its whole curve of true against false positives is exceeded with 95% confidence:"
                f" at most {alarms:.2%} false positives come with at least {hits:.2%} true ones,"
                f" where it allows at most {allowed_true_positives(self.claim.pairs(), alarms):.2%}"
            )
        return ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, one level deep but for intervals."""
        row = self.row.to_json()
        rates = {key: value for key, value in row.items() if key.startswith("tpr_at")}
        return {
            "attack": self.name,
            "models": self.row.models,
            "advantage": row["advantage"],
            "auc": row["auc"],
            **rates,
            "shared_confidence": self.confidence,
            "shared_advantage": asdict(self.advantage),
            "control_advantage": asdict(self.control) if self.control else "too few models",
            "epsilon_lower": self.epsilon_lower,
            "refutes_claim": self.refutes_claim,
        }


def judged(
    extractor: str,
    classifier: str,
    outcome: GameOutcome,
    counts: Counts,
    control: Counts | None,
    *,
    claim: Claim | None,
    confidence: float,
) -> AttackVerdict:
    """The verdict on one declared attack.

    It rests on the guesses `score > 0`, on those at a threshold fixed beforehand (`counts`), and on
    those of the control.
    """
    delta = claim.delta if claim else 0.0
    enough = control is not None and min(control.positives, control.negatives) >= models_to_tell(
        confidence
    )
    return AttackVerdict(
        row=attack_row(extractor, classifier, outcome),
        confidence=confidence,
        advantage=advantage(Counts.at(outcome.scores, outcome.members), confidence=confidence),
        control=(
            advantage(control, confidence=confidence) if control is not None and enough else None
        ),
        proven=proven_rates(counts, confidence=confidence),
        epsilon_lower=epsilon_lower_bound(counts, delta=delta, confidence=confidence),
        profile_excess=(
            profile_excess(counts, claim.pairs(), confidence=confidence) if claim else None
        ),
        claim=claim,
    )
