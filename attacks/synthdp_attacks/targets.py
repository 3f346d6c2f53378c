"""Whom to attack: at random, the most isolated rows, or rows that are named.

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


def random_targets(rows: Codes, count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Positions of `count` different rows, uniformly at random."""
    _check(rows, count)
    return tuple(int(i) for i in rng.choice(len(rows), size=count, replace=False))


def isolated_targets(rows: Codes, count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Positions of the `count` most isolated rows, most isolated first.

    Ties go to rarer levels, then by `rng`.
    """
    _check(rows, count)
    order = np.lexsort((rng.permutation(len(rows)), -rarity(rows), -isolation(rows)))
    return tuple(int(i) for i in order[:count])


def declared_targets(rows: Codes, positions: Sequence[int]) -> tuple[int, ...]:
    """The named positions, checked.

    Raises:
        AttackError: none, one twice, or one outside the table.
    """
    asked = np.asarray(positions)
    if asked.ndim != 1 or not len(asked) or not np.issubdtype(asked.dtype, np.integer):
        raise AttackError(
            f"targets={positions!r}; needs a list of row positions, at least one, each a whole"
            " number: see isolated_targets"
        )
    if len(set(asked.tolist())) < len(asked) or asked.min() < 0 or asked.max() >= len(rows):
        raise AttackError(
            f"targets={asked.tolist()}; needs different positions within the table, counted from 0"
            " and never from the end"
        )
    return tuple(int(p) for p in asked)


SELECTORS: dict[str, Callable[[Codes, int, np.random.Generator], tuple[int, ...]]] = {
    "random": random_targets,
    "isolated": isolated_targets,
}


def isolation(rows: Codes, *, neighbours: int = NEIGHBOURS) -> FloatArray:
    """Mean Hamming distance of each row to its nearest others: `[rows]`.

    The distance is the share of columns that differ, in 0 .. 1.
    """
    total, columns = rows.shape
    nearest = min(neighbours, total - 1)
    if nearest < 1:
        raise AttackError(f"{total} rows; isolation needs at least 2")
    result = np.empty(total)
    for part, distance in hamming(rows, rows):
        distance[np.arange(len(distance)), np.arange(part.start, part.stop)] = (
            columns + 1
        )  # not its own neighbour
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


def _check(rows: Codes, count: int) -> None:
    if whole("count", count, least=1) > len(rows):
        raise AttackError(
            f"asked for {count} targets; the table allows between 1 and its number of rows"
        )
