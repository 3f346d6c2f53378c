"""Headline scores that may be published: paid for like any look at the rows, and told with
intervals that include the noise.

Public are the mean total variation of one-way and of two-way tables against the fitted rows, and
how often a model that learnt on synthetic rows alone is right on held-out real rows. What a model
would reach that learnt on *real* rows is not: training it privately would cost far more than
counting its answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synthdp.data.domain import Domain
from synthdp.privacy.mechanisms.scores import Scored, compared
from synthdp.spec.model import IdUnit, Model, ReleaseSpec

LEVEL, Z = 0.95, 1.959964


class ReleasedTable(Protocol):
    """A released table: its columns, noisy counts, and the parameter of their noise."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def counts(self) -> npt.NDArray[np.float64]: ...
    @property
    def sigma(self) -> float: ...


class ChargedScore(Model):
    """One published score. `counts` are what was released: misplaced rows, or wrong and right
    answers, with noise of parameter `sigma`.

    `value` and the 95% interval from `low` to `high` follow from them and from released tables;
    there is no value where the noise hides whether there are any rows. `tables` says over how many
    tables a distance is averaged.
    """

    name: Literal["tv1", "tv2", "tstr_accuracy"]
    target: str | None = None
    tables: int | None = None
    counts: tuple[int, ...] = Field(min_length=1, max_length=2)
    sigma: float = Field(gt=0)
    value: float | None
    low: float
    high: float


DpScores = tuple[ChargedScore, ...]


def dp_scores_of(
    spec: ReleaseSpec, domain: Domain, scored: Scored, tables: Sequence[ReleasedTable]
) -> DpScores:
    """Scores and intervals from noisy counts and the released one-way `tables`; a function of
    released values.
    """
    unit = spec.dataset.privacy_unit
    together = unit.max_rows if isinstance(unit, IdUnit) else 1
    targets = [t for t in spec.evaluation.targets if not domain[t].ranged]
    rows = counted_rows(tables)
    found = []
    for (name, of), misplaced in zip(
        compared(domain).items(), scored.misplaced.tolist(), strict=True
    ):
        value, low, high = distance(misplaced, *rows, sigma=scored.sigma)
        found.append(
            ChargedScore.model_validate(
                _facts(name, (misplaced,), scored.sigma, value, low, high) | {"tables": len(of)}
            )
        )
    for target, answers in zip(targets, scored.answers.tolist(), strict=True):
        value, low, high = accuracy(*answers, sigma=scored.sigma, together=together)
        found.append(
            ChargedScore.model_validate(
                _facts("tstr_accuracy", tuple(answers), scored.sigma, value, low, high)
                | {"target": target}
            )
        )
    return tuple(found)


def _facts(
    name: str, counts: tuple[int, ...], sigma: float, value: float | None, low: float, high: float
) -> dict[str, object]:
    return {
        "name": name,
        "counts": counts,
        "sigma": sigma,
        "value": value,
        "low": low,
        "high": high,
    }


def headline(scores: DpScores) -> dict[str, float]:
    """The figures that gates and tracking know: tv1_dp, tv2_dp, and the mean accuracy
    over targets, those that have a value.
    """
    found = {f"{s.name}_dp": s.value for s in scores if s.target is None and s.value is not None}
    accuracies = [s.value for s in scores if s.target is not None]
    known = [a for a in accuracies if a is not None]
    return found | (
        {"tstr_accuracy_dp": math.fsum(known) / len(known)}
        if known and len(known) == len(accuracies)
        else {}
    )


def counted_rows(tables: Sequence[ReleasedTable]) -> tuple[float, float]:
    """About how many rows were fitted, and the variance of that: released one-way tables say it,
    each by its sum.

    A sum over L cells has variance at most L sigma^2 (that of a discrete Gaussian is at most
    sigma^2: Canonne, Kamath and Steinke, arXiv:2004.00010v4, Corollary 9); of each column the first
    table counts, and sums are weighted by their precision.
    """
    single = {table.columns[0]: table for table in reversed(tables) if len(table.columns) == 1}
    weights = [1 / (t.counts.size * t.sigma**2) for t in single.values()]
    sums = [w * float(t.counts.sum()) for w, t in zip(weights, single.values(), strict=True)]
    return math.fsum(sums) / math.fsum(weights), 1 / math.fsum(weights)


def distance(
    misplaced: int, rows: float, variance: float, *, sigma: float
) -> tuple[float | None, float, float]:
    """Total variation and its interval: misplaced rows over `rows`, both noisy.

    The interval [derived here, as Fieller's] holds each t for which misplaced - t rows, of mean 0
    at the true t and variance sigma^2 + t^2 `variance`, is within 1.96 standard deviations. Rows
    were rounded down: the upper end counts one more.
    """
    square = rows**2 - Z**2 * variance
    if rows <= 0 or square <= 0:
        return None, 0.0, 1.0
    low = _roots(square, -2 * misplaced * rows, misplaced**2 - (Z * sigma) ** 2)[0]
    high = _roots(square, -2 * (misplaced + 1) * rows, (misplaced + 1) ** 2 - (Z * sigma) ** 2)[1]
    return _share((misplaced + 0.5) / rows), _share(low), _share(high)


def accuracy(
    wrong: int, right: int, *, sigma: float, together: int
) -> tuple[float | None, float, float]:
    """Share of right answers, and an interval for what it is on rows like these: noise and the
    choice of test rows both count.

    [Derived here: Wilson's interval with noise.] With n = wrong + right, right - a n has mean 0 at
    the true share a, and variance at most sigma^2 (a^2 + (1 - a)^2) + `together` a (1 - a) n: noise
    on both counts, and rows that come in units of at most `together`, whose answers may be all
    alike. The interval holds each a for which it is within 1.96 standard deviations.
    """
    rows = wrong + right
    noise, chance = (Z * sigma) ** 2, Z**2 * together * rows
    square = rows**2 - 2 * noise + chance
    # Where the noise alone may make all the rows there seem to be, every share is possible.
    if rows <= 0 or rows**2 <= 2 * noise:
        return None, 0.0, 1.0
    low, high = _roots(square, -(2 * right * rows - 2 * noise + chance), right**2 - noise)
    return _share(right / rows), _share(low), _share(high)


def _roots(a: float, b: float, c: float) -> tuple[float, float]:
    """Where a x^2 + b x + c, with a > 0, is 0; where it is nowhere, its lowest point twice."""
    middle, half = -b / (2 * a), math.sqrt(max(0.0, b * b - 4 * a * c)) / (2 * a)
    return middle - half, middle + half


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
