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
class Verdict:
    """An attack that was declared beforehand, so that its figures are no choice of the luckiest; fields as in `MembershipReport`."""

    row: AttackRow
    control: Interval | None
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
        return self.claim is not None and (self.epsilon_lower > self.claim.epsilon or (self.profile_excess or 0.0) > 0)

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
            "control_advantage": asdict(self.control) if self.control else "too few models",
            "epsilon_lower": self.epsilon_lower,
            "refutes_claim": self.refutes_claim,
        }


@dataclass(frozen=True, kw_only=True)
class MembershipReport:
    """The verdict (`main`), what it must be read beside, the `others` that were declared beforehand, and the table of all other attacks.

    `per_target`: advantage on each target. `baseline`: advantage of the same classifier on column histograms,
    which never ask about the target. `control`: advantage where neither world had the target; must be at chance (None: too
    few models). `epsilon_lower`: lower bound on epsilon at the claim's delta; `epsilon_provable`: the most
    that so many models could have proven. `profile_excess`: above 0 refutes the claim. All three share the 5% of error with those of `others`,
    so that many attacks refute a true claim no more often than one does. `roc`: points (FPR, TPR) of `main`.
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
    others: tuple[Verdict, ...] = ()

    @property
    def declared(self) -> tuple[Verdict, ...]:
        """All attacks that were declared beforehand, `main` first."""
        main = Verdict(row=self.main, control=self.control, epsilon_lower=self.epsilon_lower, profile_excess=self.profile_excess, claim=self.claim)
        return (main, *self.others)

    @property
    def ceiling(self) -> float | None:
        """Greatest advantage that the claim allows any attack."""
        return self.claim.ceiling_advantage() if self.claim else None

    @property
    def refutes_claim(self) -> bool:
        """Whether one of the declared attacks disproves the claim, with 95% confidence in all of them together."""
        return any(verdict.refutes_claim for verdict in self.declared)

    @property
    def conclusion(self) -> str:
        """One plain sentence on `main`, or on an attack that says more, and the caveat."""
        telling = [v for v in self.declared if v.refutes_claim] or [v for v in self.declared if v.row.advantage.lower > 0]
        verdict = telling[0] if telling else self.declared[0]
        gap, models = verdict.row.advantage, verdict.row.models
        numbers = f"advantage {gap.value:.3f}, 95% interval {gap.lower:.3f} to {gap.upper:.3f}, on {models} test models in each world"
        ceiling = f"; the claim allows at most {self.ceiling:.3f}" if self.ceiling is not None else ""
        who = f"The attack {verdict.name}" if self.others else "The attack"
        if verdict.refutes_claim:
            finding = f"{who} refutes the claim: epsilon is at least {verdict.epsilon_lower:.2f} with 95% confidence"
        elif gap.lower > 0:
            finding = f"{who} tells releases made with the target record from releases made without it"
        elif self.others:
            attacks = ", ".join(v.name for v in self.declared)
            finding = f"None of {len(self.declared)} attacks ({attacks}) told releases made with the target record from releases made without it"
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
            "declared": [verdict.to_json() for verdict in self.declared],
            "roc": [list(point) for point in self.roc],
            "warnings": list(self.warnings),
            "table": [row.to_json() for row in self.table],
        }
