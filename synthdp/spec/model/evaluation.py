"""`evaluation`, `attacks`, `gates` and `estimands`.

The first two are for the steward only, but for headline scores that are paid for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

from annotated_types import Unit
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from synthdp.spec.model.columns import Column, Integer, Number
from synthdp.spec.model.fields import (
    MOST,
    Flag,
    Model,
    Name,
    Names,
    Real,
    Whole,
    key,
    renamed,
    unique,
    wrong,
)

DISCLOSURE_SHARE = 0.05  # of the budget, where a spec that has DP scores does not say
ClassifierName = Literal[
    "logistic", "boosted_trees", "random_forest", "knn", "linear_svc", "kernel_svc"
]


Disclosure = Annotated[Literal["confidential", "private"], renamed({"charged": "private"})]


class Effect(Model):
    """An average effect, from real and from synthetic rows."""

    treated: Annotated[str, Field(min_length=1, max_length=1000)] = key(
        "expression over one column: who is compared", "lncoins == 0"
    )
    control: Annotated[str, Field(min_length=1, max_length=1000)] | None = key(
        "expression over the same column; default: all other rows",
        "lncoins > 4",
        default=None,
    )
    outcome: Name = key(
        "column whose mean is compared; categories count by their position", "mdvis"
    )
    adjust: Names | None = key(
        "columns held fixed; default: the treatment's causes in the graph", ["disea"], default=None
    )


class Evaluation(Model):
    """Judging on real rows, for the steward only, but for scores that are paid for."""

    enabled: Flag = key("whether to judge at all", False, default=True)
    holdout: Annotated[Real, Field(ge=0, lt=0.9), Unit("probability")] = key(
        "chance of a unit to be kept out of the fit", 0.1, default=0.2
    )
    disclosure: Disclosure = key(
        "whether headline scores are paid for and published",
        "private",
        default="confidential",
    )
    disclosure_share: Annotated[Real, Field(ge=0, lt=1), Unit("part of the budget")] | None = key(
        "disclosure private: what the scores cost; privacy.shares split the rest. Default:"
        f" {DISCLOSURE_SHARE:g}",
        0.1,
        default=None,
    )
    targets: Names = key("columns that classifiers predict", ["income"], default=())
    classifiers: Annotated[
        tuple[ClassifierName, ...], Field(min_length=1), AfterValidator(unique)
    ] = key(
        "what predicts them",
        ["logistic", "knn"],
        default=("logistic", "boosted_trees", "random_forest"),
    )
    max_rows: Annotated[Whole, Field(ge=100), Unit("rows")] = key(
        "most rows that are judged",
        5000,
        default=20_000,
    )
    triples: Annotated[Whole, Field(ge=0, le=10_000), Unit("tables")] = key(
        "random 3-way tables compared", 16, default=64
    )
    random_targets: Annotated[Whole, Field(ge=0, le=1000), Unit("columns")] = key(
        "columns, drawn by a public seed, that five learners predict",
        20,
        default=0,
    )
    subgroups: Names = key(
        "columns whose categories are judged as groups; default: three",
        ["sex"],
        default=(),
    )
    effects: Annotated[tuple[Effect, ...], Field(max_length=20)] = key(
        "average effects that are compared",
        [{"treated": "lncoins == 0", "outcome": "mdvis"}],
        default=(),
    )

    @property
    def held_out(self) -> float:
        """The chance of each unit to be kept out of the fit: none is where nothing is judged."""
        return self.holdout if self.enabled else 0.0

    @property
    def dp_scores(self) -> bool:
        """Whether headline scores are paid for and published."""
        return self.enabled and self.disclosure == "private"

    @property
    def dp_share(self) -> float:
        """The part of the whole budget that the scores get."""
        if not self.dp_scores:
            return 0.0
        return DISCLOSURE_SHARE if self.disclosure_share is None else self.disclosure_share


class MembershipAttack(Model):
    """Shadow-model membership inference on a sub-sample."""

    enabled: Flag = key("whether to attack at all", False, default=True)
    rows: Annotated[Whole, Field(ge=20, le=100_000), Unit("rows")] = key(
        "rows of each shadow model; of linked tables persons", 200, default=300
    )
    pairs: Annotated[Whole, Field(ge=4, le=10_000), Unit("pairs of models")] = key(
        "model pairs (with / without the target)", 24, default=40
    )
    steps: Annotated[Whole, Field(ge=1), Unit("steps")] = key(
        "DP-SGD steps of each shadow model", 60, default=100
    )


class Attacks(Model):
    """For the steward only: a sanity check, no proof."""

    membership: MembershipAttack = key(
        "membership inference with shadow models",
        {"rows": 200, "pairs": 24, "steps": 60},
        default=MembershipAttack(),
    )


ATTACK_FIGURES = ("advantage_upper", "auc_upper", "tpr_upper", "epsilon_lower")
"""Of the declared attack that does best: upper limits of the advantage, of the AUC and of the
true-positive rate at 1% false positives, and what was proved of epsilon. As `attack_...` on real
rows, as `simulated_...` in the public audit on the simulated twin.
"""

DP_METRICS = ("tv1_dp", "tv2_dp", "tstr_accuracy_dp")
"""Published scores of `evaluation.disclosure: private`; the last is the mean over the targets that
are no numbers.
"""
RENAMED_METRICS = {f"{name.removesuffix('_dp')}_charged": name for name in DP_METRICS}
PublicMetric = Literal[
    "tv1_noisy", "tv1_dp", "tv2_dp", "tstr_accuracy_dp", "simulated_advantage_upper",
    "simulated_auc_upper", "simulated_tpr_upper", "simulated_epsilon_lower",
]  # fmt: skip
ConfidentialMetric = Literal[
    "tv1", "tv2", "tv3", "tstr_auc", "tstr_ratio", "attack_advantage_upper", "attack_auc_upper",
    "attack_tpr_upper", "attack_epsilon_lower",
]  # fmt: skip
PUBLIC_METRICS: tuple[str, ...] = get_args(PublicMetric)
CONFIDENTIAL_METRICS: tuple[str, ...] = get_args(ConfidentialMetric)
ATTACK_METRICS = tuple(f"attack_{name}" for name in ATTACK_FIGURES)


class Gate(Model):
    """A bound that must hold or the bundle is withheld. One on a figure of real rows makes
    publishing itself depend on them: it needs `outside_guarantee: true`. `simulated_...` figures
    are of `synthdp audit SPEC --simulated`, before anything is spent. `..._upper` are upper ends of
    95% intervals.
    """

    metric: Annotated[Literal[PublicMetric, ConfidentialMetric], renamed(RENAMED_METRICS)] = key(
        "the bounded figure; all but tv1_noisy, ..._dp and simulated_... are of real rows,"
        " without noise",
        "tv1_noisy",
    )
    at_most: Real | None = key("the most that it may be", 0.05, default=None)
    at_least: Real | None = key("the least that it may be, instead of at_most", 0.8, default=None)
    outside_guarantee: Flag = key(
        "accept that publishing depends on real rows, which no epsilon covers",
        True,
        default=False,
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Gate:
        if (self.at_most is None) == (self.at_least is None):
            raise wrong(("", "give exactly one of at_most, at_least"))
        if self.attacked and self.at_most is None:
            raise wrong(("at_least", f"{self.metric} is better the lower it is; give at_most"))
        if self.metric in CONFIDENTIAL_METRICS and not self.outside_guarantee:
            message = (
                f"{self.metric} is computed on real rows, so a gate on it is outside the guarantee;"
                " say outside_guarantee: true to accept that, or use one of"
            )
            raise wrong(("metric", f"{message} {', '.join(PUBLIC_METRICS)}"))
        why = "is paid for, so a gate on it is inside the guarantee" if self.on_dp_score else ""
        if self.simulated:
            why = "is computed on simulated rows alone, so a gate on it is inside"
        if why and self.outside_guarantee:
            raise wrong(("outside_guarantee", f"{self.metric} {why}; delete this line"))
        return self

    @property
    def bound(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}"

    def margin(self, value: float) -> float:
        """How far a figure is on the right side of the bound; below 0 it is on the wrong one."""
        if self.at_most is None:
            return value - (self.at_least or 0.0)
        return self.at_most - value

    def outcome(self, value: float | None, ends: Sequence[float] = ()) -> str:
        """What became of it, in words; no figure fails it.

        Noise decided where the figure's 95% interval, from and to `ends`, has the bound inside.

        >>> Gate(metric="tv1_dp", at_most=0.1).outcome(0.02, (0.0, 0.12))
        'passed; noise decided'
        """
        if value is None:
            return "failed"
        passed = self.margin(value) >= 0
        by_noise = any((self.margin(end) >= 0) != passed for end in ends)
        return f"{'passed' if passed else 'failed'}{'; noise decided' if by_noise else ''}"

    @property
    def on_dp_score(self) -> bool:
        """Whether the figure is a published score, so that the gate is inside the guarantee."""
        return self.metric in DP_METRICS

    @property
    def simulated(self) -> bool:
        """Whether the figure is one of the public audit's."""
        return self.metric.startswith("simulated_")

    @property
    def attacked(self) -> str | None:
        """The figure of an attack that the gate is about, wherever it was measured."""
        figure = self.metric.removeprefix("simulated_").removeprefix("attack_")
        return figure if figure in ATTACK_FIGURES else None


Adjusted = Annotated[
    Annotated[Names, Tag("tuple")] | Annotated[dict[Name, tuple[Real, ...]], Tag("dict")],
    Discriminator(lambda given: "dict" if isinstance(given, dict) else "tuple"),
]
"""Columns, or columns with left edges; each tag is the name of its own type."""

Clip = Annotated[tuple[Real, ...], Field(min_length=2, max_length=2), Unit("that of the column")]
"""Where a number ends for the sums: what lies beyond counts as the nearer end."""


class PaidEstimand(Model):
    """What the spec itself asks of each kind of estimand."""

    @property
    def table(self) -> tuple[str, ...]:
        """The columns whose levels are counted; none where values of rows are added up."""
        return ()

    @property
    def question(self) -> str | None:
        """The same as a question of `synthdp answer`, where it is one."""
        return None

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that make its strata, as far as they are named."""
        return tuple(getattr(self, "adjust", None) or ())

    @property
    def edges(self) -> Mapping[str, tuple[float, ...]]:
        """Left ends of the ranges that make strata of some of these, in place of their levels."""
        return {}


class AskedEstimand(PaidEstimand):
    """A question of `synthdp answer`. A quantile is read off the column's levels: declare bins as
    narrow as its answer shall be.
    """

    kind: Literal["question"] = key("a question", "question")
    ask: Annotated[str, Field(min_length=1, max_length=1000)] = key(
        "share(CONDITION), count(CONDITION), mean(COLUMN), median(COLUMN) or quantile(COLUMN,"
        " P), perhaps `where CONDITION`, `by COLUMN, COLUMN`",
        "mean(mdvis) where hlthp == '1' by idp",
    )
    clip: Clip | None = key(
        "where a mean's numbers end; default: the column's bounds", [0, 30], default=None
    )

    @property
    def question(self) -> str:
        return self.ask


class TableEstimand(PaidEstimand):
    """A contingency table, which joins the noisy tables of the bundle."""

    kind: Literal["table"] = key("a contingency table", "table")
    columns: Annotated[Names, Field(min_length=2, max_length=6)] = key(
        "its columns, of at most 100,000 cells together", ["hlthp", "idp", "hlthg"]
    )

    @property
    def table(self) -> tuple[str, ...]:
        return self.columns


class EffectEstimand(PaidEstimand, Effect):
    """The average effect of a treatment, by strata of the adjusted columns."""

    kind: Literal["effect"] = key("an average effect", "effect")
    adjust: Annotated[Adjusted, Unit("that of the column")] | None = key(  # type: ignore[assignment]
        "columns held fixed; or a map of columns to left edges of ranges ([]: its levels);"
        " default: the treatment's causes in the graph",
        ["disea"],
        default=None,
    )
    clip: Clip | None = key(
        "where the outcome's numbers end; default: the column's bounds", [0, 30], default=None
    )

    @property
    def edges(self) -> Mapping[str, tuple[float, ...]]:
        return {n: e for n, e in self.adjust.items() if e} if isinstance(self.adjust, dict) else {}


class RegressionEstimand(PaidEstimand):
    """A linear regression by least squares, of rows that lack none of the columns. A category has a
    coefficient for each level but its first.
    """

    kind: Literal["regression"] = key("a linear regression", "regression")
    outcome: Name = key("column that is explained; categories count by their position", "mdvis")
    terms: Annotated[Names, Field(min_length=1, max_length=20)] = key(
        "columns, and products of two that are terms, too, e.g. age:sex; at most"
        f" {MOST.coefficients} coefficients",
        ["lpi", "hlthp", "lpi:hlthp"],
    )
    where: Annotated[str, Field(min_length=1, max_length=1000)] | None = key(
        "condition on the rows", "idp == '1'", default=None
    )
    clips: dict[Name, Clip] = key(
        "where numbers of a column end; default: the column's bounds",
        {"mdvis": [0, 30]},
        default={},
    )


Estimand = Annotated[
    AskedEstimand | TableEstimand | EffectEstimand | RegressionEstimand, Field(discriminator="kind")
]
"""One number, or one table of numbers, that is paid for."""


def term_columns(term: str, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """The columns of a term: one, or the two of a product.

    >>> age = Integer(type="integer", lower=0, upper=99)
    >>> term_columns("age:sex", {"age": age}), term_columns("a:b", {"a:b": age})
    (('age', 'sex'), ('a:b',))
    """
    return (term,) if term in columns else tuple(term.split(":"))


def number_bounds(column: Column) -> tuple[float, float]:
    """The least and the largest number of a column; categories count by their position.

    >>> number_bounds(Integer(type="integer", lower=0, upper=99))
    (0.0, 99.0)
    """
    if isinstance(column, Integer | Number):
        return float(column.lower), float(column.upper)
    return 0.0, float(max(len(column.labels) - 1, 1))
