"""Whom to attack: at random, the most isolated rows or units, or those that are named.

The choice matters more than the classifier (Meeus, Guepin, Cretu, de Montjoye, 2023, "Achilles'
heels"): an average row hides in its neighbours, an isolated one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from synthdp_attacks.checks import whole
from synthdp_attacks.errors import AttackError
from synthdp_attacks.hamming import hamming
from synthdp_attacks.threat import Codes, FloatArray

NEIGHBOURS = 5


def random_targets(
    rows: Codes, count: int, rng: np.random.Generator, units: Codes | None = None
) -> tuple[int, ...]:
    """Positions of `count` different rows, or numbers of units, uniformly at random."""
    names = _names(rows, count, units)
    return tuple(int(names[i]) for i in rng.choice(len(names), size=count, replace=False))


def isolated_targets(
    rows: Codes, count: int, rng: np.random.Generator, units: Codes | None = None
) -> tuple[int, ...]:
    """Positions of the `count` most isolated rows, most isolated first.

    Ties go to rarer levels, then by `rng`. With `units` they are numbers of units, which are as
    isolated and as rare as their rows are together.
    """
    names = _names(rows, count, units)
    rare, alone = rarity(rows), isolation(rows, units=units)
    if units is not None:
        _, place = np.unique(units, return_inverse=True)
        rare = np.bincount(place, weights=rare).astype(np.float64)
        alone = np.bincount(place, weights=alone).astype(np.float64)
    order = np.lexsort((rng.permutation(len(names)), -rare, -alone))
    return tuple(int(names[i]) for i in order[:count])


def declared_targets(
    rows: Codes, positions: Sequence[int], units: Codes | None = None
) -> tuple[int, ...]:
    """The named positions, or numbers of units, checked.

    Raises:
        AttackError: none, one twice, or one outside the table.
    """
    asked = np.asarray(positions)
    if asked.ndim != 1 or not len(asked) or not np.issubdtype(asked.dtype, np.integer):
        raise AttackError(
            f"targets={positions!r}; needs a list of row positions, at least one, each a whole"
            " number: see isolated_targets"
        )
    there = np.arange(len(rows)) if units is None else units
    if len(set(asked.tolist())) < len(asked) or not np.isin(asked, there).all():
        raise AttackError(
            f"targets={asked.tolist()}; needs different positions within the table, counted from 0"
            " and never from the end"
            + ("" if units is None else "; with `units`, numbers that stand there")
        )
    return tuple(int(p) for p in asked)


SELECTORS: dict[str, Callable[[Codes, int, np.random.Generator], tuple[int, ...]]] = {
    "random": random_targets,
    "isolated": isolated_targets,
}


def isolation(
    rows: Codes, *, neighbours: int = NEIGHBOURS, units: Codes | None = None
) -> FloatArray:
    """Mean Hamming distance of each row to its nearest others, of other units: `[rows]`.

    The distance is the share of columns that differ, in 0 .. 1.
    """
    total, columns = rows.shape
    own = np.arange(total) if units is None else units
    nearest = min(neighbours, total - int(np.unique(own, return_counts=True)[1].max(initial=0)))
    if nearest < 1:
        raise AttackError(f"{total} rows; isolation needs at least 2 of different units")
    result = np.empty(total)
    for part, distance in hamming(rows, rows):
        distance[own[part][:, None] == own] = columns + 1  # not its own neighbour
        result[part] = (
            np.partition(distance, nearest - 1, axis=1)[:, :nearest].mean(axis=1) / columns
        )
    return result


def rarity(rows: Codes) -> FloatArray:
    """Sum over columns of -log(share of rows with the same level), in nats; shape `[rows]`."""
    total = np.zeros(len(rows))
    for column in rows.T:
        counts = np.bincount(column)
        total -= np.log(counts[column] / len(rows))
    return total


def _names(rows: Codes, count: int, units: Codes | None) -> Codes:
    """What targets are named by, of which `count` are asked for."""
    names = np.arange(len(rows)) if units is None else np.unique(units)
    if whole("count", count, least=1) > len(names):
        allowed = "rows" if units is None else "units"
        raise AttackError(
            f"asked for {count} targets; the table allows between 1 and its number of {allowed}"
        )
    return names
