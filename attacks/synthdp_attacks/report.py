"""The report of a membership attack: frozen values, JSON and one plain sentence.

It is confidential when the rows were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from synthdp_attacks import statistics as stats
from synthdp_attacks.game import GameOutcome
from synthdp_attacks.statistics import Claim, Counts, Interval
from synthdp_attacks.threat import BoolArray, FloatArray

LOW_RATES = (0.01, 0.001)
CAVEAT = "This is a sanity check, not a proof of privacy: another attack may do better."
CONFIDENTIAL = (
    "computed on the rows given to the attack; publish only if those were public or simulated"
)
# A false-positive rate and the true-positive rate there; None where models or rows are too few.
LowRates = tuple[tuple[float, Interval | None], ...]


def low_rates(scores: FloatArray, members: BoolArray) -> LowRates:
    """The true-positive rate at each of `LOW_RATES`."""
    return tuple((r, stats.tpr_at_fpr(scores, members, false_positive_rate=r)) for r in LOW_RATES)


def row_json(row: Any, few: str) -> dict[str, Any]:
    """The plain values of a row of statistics; `few` says what a rate has too little of."""
    values = asdict(row)
    rates = {
        f"tpr_at_fpr_{rate:g}": tpr or few.format(needed=stats.models_needed(rate))
        for rate, tpr in values.pop("tpr_at")
    }
    return values | rates


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
    tpr_at: LowRates

    def to_json(self) -> dict[str, Any]:
        """Plain values; a rate that the models are too few for says so."""
        few = f"too few models: needs {{needed}} without the target, has {self.models}"
        return row_json(self, few)


def attack_row(extractor: str, classifier: str, outcome: GameOutcome) -> AttackRow:
    scores, members = outcome.scores, outcome.members
    counts = Counts.at(scores, members)
    return AttackRow(
        extractor=extractor,
        classifier=classifier,
        models=min(counts.positives, counts.negatives),
        accuracy=stats.accuracy(counts),
        positive_accuracy=stats.true_positive_rate(counts),
        negative_accuracy=stats.true_negative_rate(counts),
        precision=counts.precision,
        advantage=stats.advantage(counts),
        advantage_best=stats.best_advantage(scores, members),
        auc=stats.auc(scores, members),
        tpr_at=low_rates(scores, members),
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
            most = stats.allowed_true_positives(self.claim.pairs(), alarms)
            return (
                "its whole curve of true against false positives is exceeded with 95% confidence:"
                f" at most {alarms:.2%} false positives come with at least {hits:.2%} true ones,"
                f" where it allows at most {most:.2%}"
            )
        return ""

    def to_json(self) -> dict[str, Any]:
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
    least, row = stats.models_to_tell(confidence), attack_row(extractor, classifier, outcome)
    enough = control and min(control.positives, control.negatives) >= least
    guesses = Counts.at(outcome.scores, outcome.members)
    return AttackVerdict(
        row=row,
        confidence=confidence,
        advantage=stats.advantage(guesses, confidence=confidence),
        control=stats.advantage(control, confidence=confidence) if control and enough else None,
        proven=stats.proven_rates(counts, confidence=confidence),
        epsilon_lower=stats.epsilon_lower_bound(
            counts, delta=claim.delta if claim else 0.0, confidence=confidence
        ),
        profile_excess=stats.profile_excess(counts, claim.pairs(), confidence=confidence)
        if claim
        else None,
        claim=claim,
    )


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
        return self.verdict.row

    @property
    def control(self) -> Interval | None:
        return self.verdict.control

    @property
    def epsilon_lower(self) -> float:
        return self.verdict.epsilon_lower

    @property
    def claim(self) -> Claim | None:
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
        gap, sure = verdict.advantage, f"{100 * verdict.confidence:.3g}%"
        numbers = (
            f"advantage {gap.value:.3f}, {sure} interval {gap.lower:.3f} to {gap.upper:.3f}, on"
            f" {verdict.row.models} test models in each world"
        )
        if self.ceiling is not None:
            numbers += f"; the claim allows at most {self.ceiling:.3f}"
        worlds = f"releases made with the target {self.target} from releases made without it"
        who = f"The attack {verdict.name}" if self.others else "The attack"
        if verdict.refutes_claim:
            finding = f"{who} refutes the claim: {verdict.refutation}"
        elif gap.lower > 0:
            finding = f"{who} tells {worlds}"
        elif self.others:
            attacks = ", ".join(v.name for v in self.declared)
            finding = f"None of {len(self.declared)} attacks ({attacks}) told {worlds}"
        else:
            finding = f"The attack did not tell {worlds}"
        return f"{finding} ({numbers}). {CAVEAT}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything a reader must know before believing the numbers."""
        main = self.verdict
        return (
            *stats.power_warnings(
                main.row.models, self.claim, main.advantage, confidence=main.confidence
            ),
            *self._controls(),
            *self.remarks,
        )

    def _controls(self) -> Iterator[str]:
        for verdict in self.declared:
            if verdict.control is None:
                least = stats.models_to_tell(verdict.confidence)
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
        return {
            "conclusion": self.conclusion,
            "confidential": CONFIDENTIAL,
            "main": self.main.to_json(),
            "per_target_advantage": list(map(asdict, self.per_target)),
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
            "roc": list(map(list, self.roc)),
            "warnings": list(self.warnings),
            "table": [row.to_json() for row in self.table],
        }
