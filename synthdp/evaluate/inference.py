"""Do confidence intervals that are computed on synthetic rows, as if they were real, hold the real
table's figures?

They ignore the noise and the model's error, so fewer do than say so. Beside them stand the
intervals of held-out real rows, which
ignore nothing: about what their level promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.features import clamped_numbers

if TYPE_CHECKING:
    import pandas as pd

QUANTILE = 1.959964  # of a 95% interval
MIN_COUNT = (
    10  # of a level or a group, in both tables: below it the Gaussian interval is no interval
)
MAX_LEVELS = 12  # of a column, the commonest
MAX_FIGURES = 600  # of each kind

KINDS = ("shares of levels", "means of columns", "means within groups")

Figures = Mapping[
    tuple[str, ...], tuple[float, float]
]  # what is estimated -> estimate and standard error


@dataclass(frozen=True)
class CoverageRow:
    """One kind of figure: how many there are, and in how many the 95% interval holds the real
    training rows' figure.
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
    """Coverage by kind of figure; the tables are values and levels `[rows, columns]`. Kinds without
    figures are left out.
    """
    rows = []
    found = [[*_figures(*table, domain)] for table in (real, held_out, synthetic)]
    for kind, true, fresh, drawn in zip(KINDS, *found, strict=True):
        common = [key for key in true if key in drawn][:MAX_FIGURES]
        if common:
            known = [key for key in common if key in fresh]
            rows.append(
                CoverageRow(
                    kind,
                    len(common),
                    _covered(true, drawn, common),
                    _covered(true, fresh, known) if known else None,
                )
            )
    return tuple(rows)


def _covered(true: Figures, stated: Figures, keys: list[tuple[str, ...]]) -> float:
    """Share of figures whose interval in `stated` holds the estimate in `true`."""
    return float(
        np.mean([abs(stated[key][0] - true[key][0]) <= QUANTILE * stated[key][1] for key in keys])
    )


def _figures(frame: pd.DataFrame, codes: Codes, domain: Domain) -> Iterator[Figures]:
    """Estimates and standard errors of each of `KINDS`."""
    numbers = {c.name: clamped_numbers(c, frame[c.name]) for c in domain.columns if c.ranged}
    yield {
        (c.name, c.labels[k]): share
        for i, c in enumerate(domain.columns)
        for k, share in _shares(codes[:, i], c.levels)
    }
    means = ((name, _mean(values)) for name, values in numbers.items())
    yield {(name,): mean for name, mean in means if mean is not None}
    groups = {
        (c.name, c.labels[k]): codes[:, i] == k
        for i, c in enumerate(domain.columns)
        if not c.ranged
        for k in range(min(c.levels, MAX_LEVELS))
    }
    # Wide tables have many such pairs; the first are enough to see how intervals do.
    pairs = [(group, name) for group in groups for name in numbers][: 2 * MAX_FIGURES]
    within = (((*group, name), _mean(numbers[name][groups[group]])) for group, name in pairs)
    yield {key: mean for key, mean in within if mean is not None}


def _shares(
    levels: npt.NDArray[np.integer[Any]], size: int
) -> Iterator[tuple[int, tuple[float, float]]]:
    counts, n = np.bincount(levels, minlength=size), len(levels)
    for k in np.argsort(-counts, kind="stable")[:MAX_LEVELS].tolist():
        if min(counts[k], n - counts[k]) >= MIN_COUNT:
            share = float(counts[k] / n)
            yield k, (share, float(np.sqrt(share * (1 - share) / n)))


def _mean(values: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    known = values[~np.isnan(values)]
    if len(known) < MIN_COUNT:
        return None
    return float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known)))
