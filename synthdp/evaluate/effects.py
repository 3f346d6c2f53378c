"""Average treatment effects by back-door adjustment along the graph: would an analyst of the
synthetic rows find the real effect?

The estimate is the augmented inverse-probability one: J. M. Robins, A. Rotnitzky and L. P. Zhao,
"Estimation of regression coefficients when some regressors are not always observed", JASA 89
(1994), as in eq. (11) of M. J. Funk et al., "Doubly robust estimation of causal effects", AJE 173
(2011). It is right where the outcome is linear in the adjusted columns within each arm, or the
chance of treatment is logistic in them. Its interval is that of the rows as they are: on synthetic
rows it ignores noise and model error, which is what `covers` is there to show.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.features import build_features, clamped_numbers, join
from synthdp.graph.causal import CausalGraph
from synthdp.model.constraints import numbers
from synthdp.spec.expressions.expressions import parse

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.spec.model import Column, Effect

FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

QUANTILE = 1.959964  # of a 95% interval
MIN_ROWS = 20  # of each arm
MIN_CHANCE = 0.01  # of treatment, and of none: weights beyond 100 would be of single rows


@dataclass(frozen=True)
class Estimate:
    """An average effect in the outcome's unit, with its standard error and 95% interval."""

    value: float
    error: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - QUANTILE * self.error

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + QUANTILE * self.error

    def covers(self, value: float) -> bool:
        """Whether the interval holds `value`."""
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return {"value": self.value, "low": self.low, "high": self.high, "error": self.error}


@dataclass(frozen=True)
class EffectRow:
    """One effect on real and on synthetic rows, None where an arm has too few rows. `adjusted`: the
    columns held fixed; `note` qualifies them.
    """

    name: str
    outcome: str
    adjusted: tuple[str, ...]
    real: Estimate | None
    synthetic: Estimate | None
    note: str = ""

    @property
    def covered(self) -> bool | None:
        """Whether the interval on synthetic rows holds the estimate on real rows."""
        return self.synthetic.covers(self.real.value) if self.real and self.synthetic else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        sides = {
            side: e.to_json() if e else None
            for side, e in (("real", self.real), ("synthetic", self.synthetic))
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
    """Each effect of the spec on both tables, given as values and as levels `[rows, columns]`;
    `columns` are the spec's.
    """
    rows = []
    for effect in effects:
        adjusted, note = adjustment(effect, columns, graph)
        estimates = [
            estimate(frame, codes, effect, adjusted, columns=columns, domain=domain)
            for frame, codes in (real, synthetic)
        ]
        rows.append(
            EffectRow(
                effect_name(effect), effect.outcome, adjusted, estimates[0], estimates[1], note
            )
        )
    return tuple(rows)


def effect_name(effect: Effect) -> str:
    """The contrast in words."""
    return f"{effect.treated} against {effect.control or 'all other rows'}"


def adjustment(
    effect: Effect, columns: Mapping[str, Column], graph: CausalGraph
) -> tuple[tuple[str, ...], str]:
    """The columns to hold fixed, and what qualifies them: the spec's choice, or else the
    treatment's causes in the graph.

    A treatment's direct causes block every back-door path (J. Pearl, "Causality", 2nd ed. 2009,
    theorem 3.2.2), where none is unseen. Columns of the treatment's own group are no causes of it:
    they are one node with it.
    """
    if effect.adjust is not None:
        return effect.adjust, "adjusted as the spec says"
    parsed, _ = parse(effect.treated, columns)
    treatment = parsed.columns if parsed else ()
    own = {
        n for members in graph.groups.values() if set(members) & set(treatment) for n in members
    } | set(treatment)
    causes = {p for t in own if t in graph.nodes for p in graph.parents(t)} - own
    if effect.outcome in causes:
        return (), "the graph holds the outcome for a cause of the treatment: this is no effect"
    hidden = any(set(names) & own and effect.outcome in names for names in graph.latent)
    return tuple(
        n for n in graph.nodes if n in causes
    ), "the graph has an unseen common cause of treatment and outcome" if hidden else ""


def estimate(
    frame: pd.DataFrame,
    codes: Codes,
    effect: Effect,
    adjusted: Sequence[str],
    *,
    columns: Mapping[str, Column],
    domain: Domain,
) -> Estimate | None:
    """The effect on one table; None where an arm has too few rows."""
    treated = _holds(effect.treated, frame, codes, columns, domain)
    others = (
        ~treated
        if effect.control is None
        else _holds(effect.control, frame, codes, columns, domain) & ~treated
    )
    y = outcome_values(domain[effect.outcome], frame, codes[:, domain.index(effect.outcome)])
    used = (treated | others) & ~np.isnan(y)
    if min((treated & used).sum(), (others & used).sum()) < MIN_ROWS:
        return None
    kept = frame[used]
    x = (
        join([*build_features(domain, kept, adjusted).values()]).wide.astype(np.float64)
        if adjusted
        else np.zeros((len(kept), 0))
    )
    return average_effect(y[used], treated[used], x)


def _holds(
    text: str, frame: pd.DataFrame, codes: Codes, columns: Mapping[str, Column], domain: Domain
) -> Mask:
    """Rows for which the expression is surely true, shape `[rows]`."""
    parsed, _ = parse(text, columns)
    if parsed is None:
        raise ValueError(f"{text!r} cannot be read; check the spec first")
    values = {n: numbers(domain[n], codes[:, domain.index(n)], frame[n]) for n in parsed.columns}
    with np.errstate(all="ignore"):
        return np.broadcast_to(
            np.asarray(parsed.truth(values)[0], dtype=bool), (len(frame),)
        ).copy()


def outcome_values(
    column: ColumnDomain, frame: pd.DataFrame, levels: npt.NDArray[np.integer]
) -> FloatArray:
    """The outcome as numbers, shape `[rows]`; of two categories or more their position; NaN where
    missing.
    """
    if column.ranged:
        return clamped_numbers(column, frame[column.name])
    return np.where(
        levels == (column.missing_level if column.missing else -1),
        np.nan,
        levels.astype(np.float64),
    )


def average_effect(y: FloatArray, treated: Mask, x: FloatArray) -> Estimate:
    """The effect of `treated` on `y`, adjusted for `x`, shape `[rows, features]`; without features,
    the difference of means.
    """
    design = np.column_stack([np.ones(len(y)), x])
    means = [_linear(design[arm], y[arm], design) for arm in (treated, ~treated)]
    chance = _chance(x, treated)
    found = (
        means[0]
        - means[1]
        + treated * (y - means[0]) / chance
        - ~treated * (y - means[1]) / (1 - chance)
    )
    return Estimate(float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(y))))


def _linear(x: FloatArray, y: FloatArray, at: FloatArray) -> FloatArray:
    """Least squares of one arm, predicted for all rows; the least norm where columns repeat each
    other.
    """
    coefficients, *_ = np.linalg.lstsq(x, y, rcond=1e-8)
    predicted: FloatArray = at @ coefficients
    return predicted


def _chance(x: FloatArray, treated: Mask) -> FloatArray:
    """Chance of treatment of each row, shape `[rows]`."""
    if not x.shape[1]:
        return np.full(len(x), treated.mean())
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a fit that stops early still serves: the outcome's model carries the estimate
        model = LogisticRegression(C=100.0, max_iter=200).fit(x, treated)
    chance: FloatArray = np.clip(model.predict_proba(x)[:, 1], MIN_CHANCE, 1 - MIN_CHANCE)
    return chance
