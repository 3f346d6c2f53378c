"""Average treatment effects by back-door adjustment, on real and on synthetic rows.

They show whether an analyst of the synthetic rows would find the real effect. The estimate is the
augmented inverse-probability one: J. M. Robins, A. Rotnitzky and L. P. Zhao, "Estimation of
regression coefficients when some regressors are not always observed", JASA 89 (1994), as in eq.
(11) of M. J. Funk et al., "Doubly robust estimation of causal effects", AJE 173 (2011). It is
consistent where the outcome is linear in the adjusted columns within each arm, or the probability
of treatment is logistic in them. Its interval treats the rows as a sample. On synthetic rows it
ignores noise and model error; `covers` shows how much that matters.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, operand_values
from synthdp.evaluate.utility import build_features, clamped_numbers, join
from synthdp.graph.causal import CausalGraph, adjustment
from synthdp.spec.expressions.expressions import parse

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.spec.model import Column, Effect


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
    """The contrast in words."""
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
