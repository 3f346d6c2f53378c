"""Coverage: do 95% intervals computed on synthetic rows contain the real table's estimates?

Such intervals treat synthetic rows as real ones. They ignore the noise and the model's error, so
their coverage is below their level. Intervals of held-out real rows stand beside them: they ignore
nothing, and their coverage is about their level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.features import clamped_numbers

if TYPE_CHECKING:
    import pandas as pd

NORMAL_95 = 1.959964  # standard deviations to each side that hold 95% of a Gaussian
MIN_COUNT = 10  # of a level or a group; below it the Gaussian approximation of its interval fails
MAX_LEVELS = 12  # of a column, the commonest
MAX_FIGURES = 600  # of each kind

KINDS = ("shares of levels", "means of columns", "means within groups")

Name = tuple[str, ...]  # of what is estimated: a column, its level, a column within a group
Figures = Mapping[Name, tuple[float, float]]  # estimate and standard error


@dataclass(frozen=True)
class CoverageRow:
    """Coverage of one kind of estimate.

    `figures` is the number of estimates. `synthetic` and `held_out` are the shares of them whose
    95% interval, on those rows, contains the estimate on real training rows.
    """

    kind: str
    figures: int
    synthetic: float
    held_out: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def coverage(
    real: tuple[pd.DataFrame, Codes],
    held_out: tuple[pd.DataFrame, Codes],
    synthetic: tuple[pd.DataFrame, Codes],
    *,
    domain: Domain,
) -> tuple[CoverageRow, ...]:
    """Coverage by kind of estimate; each table is values and levels `[rows, columns]`.

    Kinds without estimates are left out.
    """
    rows = []
    figures = [_figures(*table, domain) for table in (real, held_out, synthetic)]
    for kind, true, fresh, drawn in zip(KINDS, *figures, strict=True):
        common = [key for key in true if key in drawn][:MAX_FIGURES]
        if not common:
            continue
        on_synthetic = _covered(true, drawn, common)
        known = [key for key in common if key in fresh]
        on_held_out = _covered(true, fresh, known) if known else None
        rows.append(CoverageRow(kind, len(common), on_synthetic, on_held_out))
    return tuple(rows)


def _covered(true: Figures, stated: Figures, keys: list[Name]) -> float:
    """Share of `keys` whose interval in `stated` contains the estimate in `true`."""
    covered = []
    for key in keys:
        estimate, error = stated[key]
        covered.append(abs(estimate - true[key][0]) <= NORMAL_95 * error)
    return float(np.mean(covered))


def _figures(frame: pd.DataFrame, codes: Codes, domain: Domain) -> tuple[Figures, ...]:
    """Estimates and standard errors of each of `KINDS`."""
    numbers = {c.name: clamped_numbers(c, frame[c.name]) for c in domain.columns if c.ranged}
    shares: dict[Name, tuple[float, float]] = {}
    groups: dict[Name, npt.NDArray[np.bool_]] = {}
    for i, column in enumerate(domain.columns):
        for level, share in _shares(codes[:, i], column.levels):
            shares[column.name, column.labels[level]] = share
        if not column.ranged:
            for level in range(min(column.levels, MAX_LEVELS)):
                groups[column.name, column.labels[level]] = codes[:, i] == level
    means: dict[Name, tuple[float, float] | None] = {
        (name,): _mean(values) for name, values in numbers.items()
    }
    # Wide tables have many such pairs; the first are enough to estimate the coverage.
    pairs = [*product(groups, numbers)][: 2 * MAX_FIGURES]
    within = {(*group, name): _mean(numbers[name][groups[group]]) for group, name in pairs}
    return shares, _known(means), _known(within)


def _known(estimates: Mapping[Name, tuple[float, float] | None]) -> Figures:
    """The estimates that are not None."""
    return {key: estimate for key, estimate in estimates.items() if estimate is not None}


def _shares(
    levels: npt.NDArray[np.integer[Any]], size: int
) -> Iterator[tuple[int, tuple[float, float]]]:
    """The commonest levels with their relative frequency and its standard error."""
    counts, n = np.bincount(levels, minlength=size), len(levels)
    for k in np.argsort(-counts, kind="stable")[:MAX_LEVELS].tolist():
        if min(counts[k], n - counts[k]) >= MIN_COUNT:
            share = float(counts[k] / n)
            yield k, (share, float(np.sqrt(share * (1 - share) / n)))


def _mean(values: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """Mean and standard error; None where fewer than `MIN_COUNT` values are present."""
    known = values[~np.isnan(values)]
    if len(known) < MIN_COUNT:
        return None
    return float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known)))
