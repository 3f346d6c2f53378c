"""How far synthetic persons with visits are from the real ones: scores from noisy tables alone.

No look at rows is taken for them, so that they cost nothing. A score is the mean total variation of
some tables, and its interval says what the noise of these tables may hide.

Let x be a table's true counts of n rows, y = x + e the noisy ones, and s the synthetic shares. By
the triangle inequality |TV(x/n, s) - D| <= N, with D = |y/n - s| / 2 and N = |e| / 2n (sums of
absolute values), *whatever s is*: it was fitted to y, so that no law of y given s may be used, and
a small D alone says nothing. For Gaussian e of standard deviation sigma in each of L cells, the
mean of N over T tables has mean sqrt(2/pi) sum(L sigma) / 2nT, and is Lipschitz in the noise with
constant sqrt(sum(L sigma^2)) / 2nT, so that it exceeds its mean by sqrt(2 ln 25) times that with
probability at most 1/25 (Gaussian concentration: Boucheron, Lugosi and Massart, 2013, Theorem 5.6).
The noise is rounded or discrete Gaussian, whose variance is no larger by more than rounding. n is
estimated from the tables' sums; the interval has 99% of that error on top. Together: 95%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.visits import OUTER, PERSONS, STEPS, VisitFrame
from synthdp.evaluate.fidelity import sampling_distance
from synthdp.spec.model import VISIT_SCORES

FloatArray = npt.NDArray[np.float64]
BEYOND = math.sqrt(2 * math.log(25))  # Lipschitz constants that the noise exceeds in 4% of cases


@dataclass(frozen=True, eq=False)
class Compared:
    """One noisy table, of noise `sigma` in each count, and the synthetic one: counts of the rows of
    a view in each cell.
    """

    view: str
    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    noisy: FloatArray
    synthetic: FloatArray
    sigma: float

    @property
    def total(self) -> tuple[float, float]:
        """The number of its rows, and the variance of that: a sum over L cells has at most
        L sigma^2."""
        return float(self.noisy.sum()), self.noisy.size * self.sigma**2


@dataclass(frozen=True)
class VisitScore:
    """A mean total variation of `tables` tables with its 95% interval.

    `value` is None, and the interval all that there is, where noise hides whether there are any
    rows. `noise` is what noise alone makes on average, and `floor` about the distance of another
    sample of as many real rows.
    """

    name: str
    tables: int
    value: float | None
    low: float
    high: float
    noise: float
    floor: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def visit_scores(frame: VisitFrame, tables: Sequence[Compared]) -> tuple[VisitScore, ...]:
    """The scores of a bundle, in the order of `VISIT_SCORES`; one without a table is left out."""
    groups: dict[str, list[Compared]] = {name: [] for name in VISIT_SCORES}
    for table in tables:
        if (name := score_of(frame, table.view, table.columns)) is not None:
            groups[name].append(table)
    rows = {view: pooled_rows(t for t in tables if t.view == view) for view in frame.views}
    return tuple(_score(name, own, *rows[own[0].view]) for name, own in groups.items() if own)


def score_of(frame: VisitFrame, view: str, columns: tuple[str, ...]) -> str | None:
    """The score that a table counts for, if any: single columns, or a column and its own past."""
    first, last = frame.first(""), frame.last("")
    if view == STEPS:
        own = [(frame.before(n), frame.now(n)) for n in ("gap", *frame.of_visits.names)]
        return "tv_steps_dp" if columns in own else None
    if len(columns) > 1:
        return None
    if view == PERSONS:
        return "tv_counts_dp" if columns == (frame.now("number"),) else "tv_persons_dp"
    if view == OUTER and columns[0].startswith((first, last)):
        return "tv_first_dp" if columns[0].startswith(first) else "tv_last_dp"
    return None


def pooled_rows(tables: Iterable[Compared]) -> tuple[float, float]:
    """How many rows the tables of a view count, and the variance of that: the mean of their sums by
    precision.
    """
    known = [t.total for t in tables]
    weights = [1 / variance for _, variance in known]
    if not weights:
        return 0.0, math.inf
    whole = math.fsum(weights)
    return math.fsum(w * n for w, (n, _) in zip(weights, known, strict=True)) / whole, 1 / whole


def _score(name: str, tables: Sequence[Compared], rows: float, variance: float) -> VisitScore:
    count, sigmas = len(tables), [(t.noisy.size, t.sigma) for t in tables]
    off = 2.576 * math.sqrt(variance)  # by which the number of rows is wrong in 1%
    if rows <= off:
        return VisitScore(name, count, None, 0.0, 1.0, 1.0, 0.0)
    shares = [t.synthetic / max(1.0, float(t.synthetic.sum())) for t in tables]
    apart = [
        float(np.abs(t.noisy / rows - s).sum()) / 2 for t, s in zip(tables, shares, strict=True)
    ]
    mass = [float(np.abs(t.noisy).sum()) / rows for t in tables]
    noise, more = noise_of(sigmas, rows)
    half = noise + more + off / rows * math.fsum(mass) / count / 2
    value = math.fsum(apart) / count
    floors = (
        sampling_distance(s[s > 0], max(1, round(float(t.synthetic.sum()))), round(rows))
        for t, s in zip(tables, shares, strict=True)
    )
    return VisitScore(
        name,
        count,
        *(
            round(min(1.0, max(0.0, x)), 9)  # machines that differ in the last bit write alike
            for x in (value, value - half, value + half, noise, math.fsum(floors) / count)
        ),
    )


def noise_of(sigmas: Sequence[tuple[int, float]], rows: float) -> tuple[float, float]:
    """What noise makes of a mean distance of tables of so many cells and such noise: its mean, and
    what it exceeds that by in 4% of cases.
    """
    part = 1 / (2 * rows * len(sigmas))
    mean = math.sqrt(2 / math.pi) * math.fsum(cells * sigma for cells, sigma in sigmas)
    return part * mean, part * BEYOND * math.sqrt(math.fsum(c * s**2 for c, s in sigmas))


def with_ends(scores: Iterable[VisitScore]) -> dict[str, float]:
    """Scores by name, and the ends of their intervals as `..._low` and `..._high`."""
    return {
        f"{s.name}{end}": value
        for s in scores
        if s.value is not None
        for end, value in (("", s.value), ("_low", s.low), ("_high", s.high))
    }
