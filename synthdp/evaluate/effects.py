"""What the graph implies, on real and on synthetic rows: effects and independences.

Average treatment effects are by back-door adjustment. They show whether an analyst of the synthetic
rows would find the real effect. The estimate is the augmented inverse-probability one: J. M.
Robins, A. Rotnitzky and L. P. Zhao, "Estimation of regression coefficients when some regressors are
not always observed", JASA 89 (1994), as in eq. (11) of M. J. Funk et al., "Doubly robust estimation
of causal effects", AJE 173 (2011). It is consistent where the outcome is linear in the adjusted
columns within each arm, or the probability of treatment is logistic in them. Its interval treats
the rows as a sample. On synthetic rows it ignores noise and model error; `covers` shows how much
that matters.

Implied independences: does a table keep the conditional independences of the graph? A column is
independent of every column that is neither its effect nor its cause, given its causes (the local
Markov property: S. L. Lauritzen et al., "Independence properties of directed Markov fields",
Networks 20 (1990)).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, operand_values
from synthdp.evaluate.utility import build_features, clamped_numbers, join
from synthdp.graph.causal import CausalGraph, adjustment
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.model import Column, Effect

if TYPE_CHECKING:
    import pandas as pd


FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

NORMAL_95 = 1.959964  # standard deviations to each side that hold 95% of a Gaussian


@dataclass(frozen=True)
class EffectSettings:
    """Of what estimates are made.

    `min_rows`: of each arm of an effect; `min_count`: of a level or a group, below which the
    Gaussian approximation of its interval fails; `max_levels`: of a column, the commonest;
    `max_figures`: estimates of each kind of `coverage`.
    """

    min_rows: int = 20
    min_count: int = 10
    max_levels: int = 12
    max_figures: int = 600


SETTINGS = EffectSettings()


@dataclass(frozen=True)
class Estimate:
    """An average effect in the outcome's unit, with its standard error and 95% interval.

    >>> Estimate(2.0, 0.5).covers(1.5)
    True
    """

    value: float
    error: float

    @property
    def low(self) -> float:
        return self.value - NORMAL_95 * self.error

    @property
    def high(self) -> float:
        return self.value + NORMAL_95 * self.error

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high, "error": self.error}


@dataclass(frozen=True)
class EffectRow:
    """One effect on real and on synthetic rows, None where an arm has too few rows.

    `adjusted` are the columns of the adjustment set; `note` qualifies them.
    """

    name: str
    outcome: str
    adjusted: tuple[str, ...]
    real: Estimate | None
    synthetic: Estimate | None
    note: str = ""

    @property
    def covered(self) -> bool | None:
        """Whether the interval on synthetic rows contains the estimate on real rows."""
        if self.real is None or self.synthetic is None:
            return None
        return self.synthetic.covers(self.real.value)

    def to_json(self) -> dict[str, Any]:
        sides = {
            "real": self.real.to_json() if self.real else None,
            "synthetic": self.synthetic.to_json() if self.synthetic else None,
        }
        return asdict(self) | sides | {"covered": self.covered}


def compare_effects(
    real: tuple[pd.DataFrame, Codes],
    synthetic: tuple[pd.DataFrame, Codes],
    effects: Sequence[Effect],
    *,
    columns: Mapping[str, Column],
    domain: Domain,
    graph: CausalGraph,
) -> tuple[EffectRow, ...]:
    """Each effect of the spec on both tables.

    A table is given as values and as levels `[rows, columns]`. `columns` are the spec's.
    """
    rows = []
    for effect in effects:
        adjusted, note = adjustment(effect, columns, graph)
        on_real, on_synthetic = (
            estimate(frame, codes, effect, adjusted, columns=columns, domain=domain)
            for frame, codes in (real, synthetic)
        )
        name = effect_name(effect)
        rows.append(EffectRow(name, effect.outcome, adjusted, on_real, on_synthetic, note))
    return tuple(rows)


def effect_name(effect: Effect) -> str:
    return f"{effect.treated} against {effect.control or 'all other rows'}"


def estimate(
    frame: pd.DataFrame,
    codes: Codes,
    effect: Effect,
    adjusted: Sequence[str],
    *,
    columns: Mapping[str, Column],
    domain: Domain,
) -> Estimate | None:
    """The effect on one table, given as values and levels `[rows, columns]`.

    It is None where an arm has fewer than `EffectSettings.min_rows` rows.

    Raises:
        ValueError: the treatment's or the control's expression cannot be parsed.
    """
    treated = _holds(effect.treated, frame, codes, columns, domain)
    control = ~treated
    if effect.control is not None:
        control &= _holds(effect.control, frame, codes, columns, domain)
    y = outcome_values(domain[effect.outcome], frame, codes[:, domain.index(effect.outcome)])
    used = (treated | control) & ~np.isnan(y)
    if min((treated & used).sum(), (control & used).sum()) < SETTINGS.min_rows:
        return None
    x = np.zeros((int(used.sum()), 0))
    if adjusted:
        features = build_features(domain, frame[used], adjusted)
        x = join([*features.values()]).wide.astype(np.float64)
    return average_effect(y[used], treated[used], x)


def _holds(
    text: str, frame: pd.DataFrame, codes: Codes, columns: Mapping[str, Column], domain: Domain
) -> Mask:
    """Rows for which the expression is surely true, shape `[rows]`."""
    parsed, _ = parse(text, columns)
    if parsed is None:
        raise ValueError(f"{text!r} cannot be read; check the spec first")
    values = {
        n: operand_values(domain[n], codes[:, domain.index(n)], frame[n]) for n in parsed.columns
    }
    with np.errstate(all="ignore"):
        surely_true = np.asarray(parsed.truth(values)[0], dtype=bool)
    return np.broadcast_to(surely_true, (len(frame),)).copy()


def outcome_values(
    column: ColumnDomain, frame: pd.DataFrame, levels: npt.NDArray[np.integer]
) -> FloatArray:
    """The outcome as numbers, `[rows]`, a category by its position; NaN where missing."""
    if column.ranged:
        return clamped_numbers(column, frame[column.name])
    values = levels.astype(np.float64)
    if column.missing:
        values[levels == column.missing_level] = np.nan
    return values


def average_effect(y: FloatArray, treated: Mask, x: FloatArray) -> Estimate:
    """The effect of `treated` on `y`, both `[rows]`, adjusted for `x` `[rows, features]` if any."""
    design = np.column_stack([np.ones(len(y)), x])
    mean_treated = _linear(design[treated], y[treated], design)
    mean_control = _linear(design[~treated], y[~treated], design)
    propensity = _propensity(x, treated)
    effects = (
        mean_treated
        - mean_control
        + treated * (y - mean_treated) / propensity
        - ~treated * (y - mean_control) / (1 - propensity)
    )
    return Estimate(float(effects.mean()), float(effects.std(ddof=1) / np.sqrt(len(y))))


def _linear(x: FloatArray, y: FloatArray, at: FloatArray) -> FloatArray:
    """Least squares of least norm on one arm, predicted at the rows `at`, shape `[rows]`."""
    coefficients, *_ = np.linalg.lstsq(x, y, rcond=1e-8)
    return at @ coefficients


def _propensity(x: FloatArray, treated: Mask) -> FloatArray:
    """Probability of treatment of each row, shape `[rows]`."""
    if not x.shape[1]:
        return np.full(len(x), treated.mean())
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        # A fit that stops early still serves: the outcome's model carries the estimate.
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=100.0, max_iter=200).fit(x, treated)
    probability: FloatArray = model.predict_proba(x)[:, 1]
    return np.clip(probability, 0.01, 0.99)  # beyond a weight of 100 single rows would decide


# --- coverage ---


KINDS = ("shares of levels", "means of columns", "means within groups")

Name = tuple[str, ...]  # of what is estimated: a column, its level, a column within a group
Figures = Mapping[Name, tuple[float, float]]  # estimate and standard error


@dataclass(frozen=True)
class CoverageRow:
    """Coverage of one kind of estimate: do intervals hold the real table's figures?

    Intervals on synthetic rows ignore the noise and the model's error, so their coverage is below
    their level. Those of held-out rows ignore nothing: their coverage is about their level.
    `figures` is the number of estimates. `synthetic` and `held_out` are the shares of them whose
    95% interval, on those rows, contains the estimate on real training rows.
    """

    kind: str
    figures: int
    synthetic: float
    held_out: float | None


def coverage(
    real: tuple[pd.DataFrame, Codes],
    held_out: tuple[pd.DataFrame, Codes],
    synthetic: tuple[pd.DataFrame, Codes],
    *,
    domain: Domain,
) -> tuple[CoverageRow, ...]:
    """Coverage by kind of estimate, if any; tables are values and levels `[rows, columns]`."""
    rows = []
    figures = [_figures(*table, domain) for table in (real, held_out, synthetic)]
    for kind, true, fresh, drawn in zip(KINDS, *figures, strict=True):
        common = [key for key in true if key in drawn][: SETTINGS.max_figures]
        if not common:
            continue
        on_synthetic = _covered(true, drawn, common)
        known = [key for key in common if key in fresh]
        on_held_out = _covered(true, fresh, known) if known else None
        rows.append(CoverageRow(kind, len(common), on_synthetic, on_held_out))
    return tuple(rows)


def _covered(true: Figures, stated: Figures, keys: list[Name]) -> float:
    """Share of `keys` whose interval in `stated` contains the estimate in `true`."""
    off = [abs(stated[key][0] - true[key][0]) <= NORMAL_95 * stated[key][1] for key in keys]
    return float(np.mean(off))


def _figures(frame: pd.DataFrame, codes: Codes, domain: Domain) -> tuple[Figures, ...]:
    """Estimates and standard errors of each of `KINDS`."""
    numbers = {c.name: clamped_numbers(c, frame[c.name]) for c in domain.columns if c.ranged}
    shares: dict[Name, tuple[float, float]] = {}
    groups: dict[Name, Mask] = {}
    for i, column in enumerate(domain.columns):
        counts, n = np.bincount(codes[:, i], minlength=column.levels), len(codes)
        for level in np.argsort(-counts, kind="stable")[: SETTINGS.max_levels].tolist():
            if min(counts[level], n - counts[level]) >= SETTINGS.min_count:
                share = float(counts[level] / n)
                error = float(np.sqrt(share * (1 - share) / n))
                shares[column.name, column.labels[level]] = share, error
        if not column.ranged:
            for level in range(min(column.levels, SETTINGS.max_levels)):
                groups[column.name, column.labels[level]] = codes[:, i] == level
    means = {(name,): _mean(values) for name, values in numbers.items()}
    # Wide tables have many such pairs; the first are enough to estimate the coverage.
    pairs = [*product(groups, numbers)][: 2 * SETTINGS.max_figures]
    within = {(*group, name): _mean(numbers[name][groups[group]]) for group, name in pairs}
    known = ({k: v for k, v in found.items() if v is not None} for found in (means, within))
    return shares, *known


def _mean(values: FloatArray) -> tuple[float, float] | None:
    """Mean and standard error; None where too few values are present."""
    known = values[~np.isnan(values)]
    if len(known) < SETTINGS.min_count:
        return None
    return float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known)))


Levels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Dependence:
    """Cohen's w of two columns, and the 95% quantile of w under independence."""

    w: float
    by_chance: float

    @property
    def visible(self) -> bool:
        """Whether w shows more than a small effect, .1, beyond sampling variation.

        J. Cohen, "Statistical Power Analysis", 2nd ed. (1988), section 7.2.
        """
        return self.w**2 > 0.1**2 + self.by_chance**2


@dataclass(frozen=True)
class IndependenceRow:
    """One implied independence, and the dependence that each table shows."""

    x: str
    y: str
    given: tuple[str, ...]
    real: Dependence
    synthetic: Dependence


@dataclass(frozen=True)
class IndependenceReport:
    """The tested claims, at most one for each of `pairs` pairs of columns without an arrow."""

    rows: tuple[IndependenceRow, ...]
    pairs: int

    def kept(self, side: str) -> int:
        """Number of claims that hold on a side, "real" or "synthetic": no dependence is visible."""
        return sum(not getattr(row, side).visible for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        kept = {"kept_real": self.kept("real"), "kept_synthetic": self.kept("synthetic")}
        return kept | {"rows": list(map(asdict, self.rows)), "pairs": self.pairs}


def compare_independences(
    real: Codes,
    synthetic: Codes,
    *,
    domain: Domain,
    graph: CausalGraph,
    rng: np.random.Generator,
) -> IndependenceReport | None:
    """Test `claims` of the graph on both tables, `[rows, columns]` each.

    At most 10,000 rows of each are used, drawn at random since a real table may be sorted. The
    result is None without arrows, rows or claims.
    """
    if not graph.edges or not len(real) or not len(synthetic):
        return None
    tables = [table[rng.permutation(len(table))[:10_000]] for table in (real, synthetic)]
    rows = []
    for x, y, given in claims(graph):
        i, j, *strata = map(domain.index, (x, y, *given))
        on_real, on_synthetic = (
            conditional_dependence(table[:, i], table[:, j], table[:, strata]) for table in tables
        )
        rows.append(IndependenceRow(x, y, given, on_real, on_synthetic))
    if not rows:
        return None
    linked = len(set(map(frozenset, graph.dag.edges)))
    return IndependenceReport(tuple(rows), math.comb(len(graph.nodes), 2) - linked)


def claims(graph: CausalGraph, most: int = 64) -> list[tuple[str, str, tuple[str, ...]]]:
    """At most so many independence claims (x, y, given) of the graph, drawn by a public seed: the
    same are tested in every release of one graph.

    Pairs in one group or with a latent common cause make no claim.
    """
    order = graph.order()
    without_claim = set(map(frozenset, graph.dag.edges))
    for names in (*graph.groups.values(), *graph.latent):
        without_claim |= set(map(frozenset, combinations(names, 2)))
    separators: dict[tuple[str, str], tuple[str, ...]] = {}
    for i, j in _candidate_pairs(len(order)):
        x, y = order[i], order[j]
        if frozenset((x, y)) in without_claim or (x, y) in separators:
            continue
        given: tuple[str, ...] | None = graph.parents(y)
        if graph.latent:  # the parents of y or x that d-separate them
            sets = (s for s in (graph.parents(y), graph.parents(x)) if not {x, y} & {*s})
            given = next((s for s in sets if graph.d_separated(x, y, s)), None)
        if given is None:
            continue
        separators[x, y] = given
        if len(separators) == most:
            break
    return [(x, y, given) for (x, y), given in separators.items()]


def _candidate_pairs(size: int) -> list[list[int]]:
    """Pairs of positions i < j below `size` in random order: all, or 4,000 draws."""
    rng, tries = np.random.default_rng(0), 4000
    if math.comb(size, 2) <= tries:
        pairs = rng.permutation(np.column_stack(np.triu_indices(size, 1)))
    else:
        draws = [rng.integers(0, size, tries), rng.integers(0, size, tries)]
        pairs = np.sort(np.column_stack(draws), axis=1)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    listed: list[list[int]] = pairs.tolist()
    return listed


def conditional_dependence(x: Levels, y: Levels, given: Levels) -> Dependence:
    """Dependence of `x` and `y`, both `[rows]`, within the strata of `given` `[rows, columns]`.

    The statistic is the sum over strata of Pearson's chi-square, less its expectation

        n (r - 1) (c - 1) / (n - 1)

    with the margins held fixed (B. S. Everitt, "The Analysis of Contingency Tables", 2nd ed.
    (1992), section 2.4). The correction keeps strata of few rows from looking like dependence.

    >>> x = np.repeat([0, 1], 100)
    >>> conditional_dependence(x, x, np.zeros((200, 0), dtype=int)).visible
    True
    """
    strata = np.zeros(len(given), dtype=np.int64)  # each row's combination of levels, by number
    for column in given.T.astype(np.int64):
        keys = strata * (int(column.max()) + 1) + column
        strata = np.unique(keys, return_inverse=True)[1].astype(np.int64)
    x_levels, y_levels = int(x.max()) + 1, int(y.max()) + 1
    row_key = strata * x_levels + x  # a stratum and a level of x
    column_key = strata * y_levels + y
    rows, row_totals = np.unique(row_key, return_counts=True)
    columns, column_totals = np.unique(column_key, return_counts=True)
    cells, counts = np.unique(row_key * y_levels + y, return_counts=True)
    row_of_cell = cells // y_levels
    stratum_of_cell = row_of_cell // x_levels
    column_of_cell = stratum_of_cell * y_levels + cells % y_levels
    margins = (
        row_totals[np.searchsorted(rows, row_of_cell)]
        * column_totals[np.searchsorted(columns, column_of_cell)]
    )
    n = np.bincount(strata).astype(np.float64)
    squares = counts.astype(np.float64) ** 2 / margins
    chi_square = n * (np.bincount(stratum_of_cell, weights=squares, minlength=len(n)) - 1)
    r = np.bincount(rows // x_levels, minlength=len(n))
    c = np.bincount(columns // y_levels, minlength=len(n))
    mean = np.divide(n * (r - 1) * (c - 1), n - 1, out=np.zeros_like(n), where=n > 1)
    total = len(strata)
    w2 = max(0.0, float((chi_square - mean).sum()) / total)
    # The variance of a chi-square is twice its mean; here it is about that. 1.645 is the 95%
    # quantile of a standard Gaussian.
    w2_by_chance = 1.645 * float(np.sqrt(2 * mean.sum())) / total
    return Dependence(float(np.sqrt(w2)), float(np.sqrt(w2_by_chance)))
