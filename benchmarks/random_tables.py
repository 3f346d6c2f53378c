"""Random numeric tables with a known graph: constants of the search on ordered columns are chosen
on them.

Columns are numbers, most on 32 bins of equal width, some of few whole values and some yes or no.
Sizes, degrees, strengths, shapes of effects and skews vary, and declared ranges are wider than the
values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain

BINS, MAX_NEIGHBOURS, MAX_PARENTS = 32, 6, 4
SIZES, DEGREES, STRENGTHS = (8, 12, 16), (1.6, 2.2, 2.8), (0.5, 0.8, 1.2)
SHAPES = ("straight", "straight", "tanh", "bent")
KINDS = ("number", "number", "number", "skewed", "heavy", "few", "yes")
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class RandomTable:
    """`codes` `[rows, columns]` on `domain`, `links` of the graph, and `values` of the columns."""

    domain: Domain
    codes: Codes
    links: frozenset[frozenset[str]]
    values: Floats


def random_table(seed: int, rows: int) -> RandomTable:
    """A table; the same one for the same seed and rows.

    >>> table = random_table(1, 100)
    >>> table.codes.shape == (100, len(table.domain)), len(table.domain) in SIZES
    (True, True)
    """
    rng = np.random.default_rng([11, seed])
    size, degree = int(rng.choice(SIZES)), float(rng.choice(DEGREES))
    strength = float(rng.choice(STRENGTHS))
    names = [f"x{i}" for i in range(size)]
    arrows = _arrows(rng, size, round(degree * size / 2))
    drawn = np.random.default_rng([11, seed, rows])
    signal = np.zeros((rows, size))
    columns, codes = [], np.zeros((rows, size), np.uint16)
    for place, name in enumerate(names):
        effect = np.zeros(rows)
        for cause, effected in sorted(arrows):
            if effected == place:
                weight = strength * rng.uniform(0.6, 1.4) * rng.choice([-1, 1])
                effect += weight * _shaped(str(rng.choice(SHAPES)), signal[:, cause])
        latent = effect + drawn.normal(size=rows)
        kind, stretch = str(rng.choice(KINDS)), float(rng.uniform(1.0, 2.0))
        signal[:, place], column, codes[:, place] = _seen(name, kind, latent, stretch)
        columns.append(column)
    links = frozenset(frozenset((names[a], names[b])) for a, b in arrows)
    return RandomTable(Domain(tuple(columns)), codes, links, signal)


def _arrows(rng: np.random.Generator, size: int, wanted: int) -> set[tuple[int, int]]:
    neighbours, parents = np.zeros(size, int), np.zeros(size, int)
    found: set[tuple[int, int]] = set()
    for _ in range(100 * wanted):
        a, b = sorted(rng.choice(size, 2, replace=False).tolist())
        full = max(neighbours[a], neighbours[b]) >= MAX_NEIGHBOURS or parents[b] >= MAX_PARENTS
        if (a, b) not in found and not full and len(found) < wanted:
            found.add((a, b))
            neighbours[[a, b]] += 1
            parents[b] += 1
    return found


def _shaped(shape: str, cause: Floats) -> Floats:
    if shape == "tanh":
        return 1.6 * np.tanh(cause)
    return (cause**2 - 1) / 1.4 if shape == "bent" else cause


def _seen(
    name: str, kind: str, latent: Floats, stretch: float
) -> tuple[Floats, ColumnDomain, Codes]:
    """Standardised values that effects see, the column, and its levels."""
    z = (latent - latent.mean()) / latent.std()
    if kind == "yes":
        level = (z > 0.3).astype(np.uint16)
        column = ColumnDomain(name, "categorical", ("no", "yes"), False)
        return (level - level.mean()) / level.std(), column, level
    value = {"skewed": np.exp(0.8 * z), "heavy": np.sinh(z), "few": np.floor(2 * z)}.get(kind, z)
    low, high = float(value.min()), float(value.max())
    middle, half = (low + high) / 2, stretch * (high - low) / 2 + 1e-9
    edges = np.linspace(middle - half, middle + half, BINS + 1)
    level = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, BINS - 1)
    column = ColumnDomain(
        name,
        "number",
        tuple(map(str, range(BINS))),
        False,
        edges=tuple(edges[:-1].tolist()),
        stop=float(edges[-1]),
        lower=float(edges[0]),
        upper=float(edges[-1]),
    )
    shown = np.floor(2 * z) / 2 if kind == "few" else z
    return (shown - shown.mean()) / shown.std(), column, level.astype(np.uint16)
