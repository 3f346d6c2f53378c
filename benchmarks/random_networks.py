"""Random discrete networks: constants of `measured_pc` are chosen on them and on the public seven.

Sizes, degrees, numbers of levels and strengths vary. A few columns drive many, as in real networks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.bif import BayesianNetwork

MAX_NEIGHBOURS, MAX_PARENTS = 8, 4
SIZES, DEGREES, LEVELS, STRENGTHS = (12, 20, 30), (2.0, 2.6, 3.2), (2, 3, 5), (0.9, 1.4, 2.2)


def random_network(seed: int) -> BayesianNetwork:
    """A network of 12 to 30 columns; the same one for the same seed.

    >>> network = random_network(1)
    >>> len(network.levels) in SIZES, max(map(len, network.parents.values())) <= MAX_PARENTS
    (True, True)
    """
    rng = np.random.default_rng([7, seed])
    size, degree = int(rng.choice(SIZES)), float(rng.choice(DEGREES))
    strength = float(rng.choice(STRENGTHS))
    names = [f"x{i}" for i in range(size)]
    counts = rng.integers(2, int(rng.choice(LEVELS)) + 1, size)
    levels = {name: tuple(f"l{j}" for j in range(n)) for name, n in zip(names, counts, strict=True)}
    parents: dict[str, tuple[str, ...]] = {name: () for name in names}
    for a, b in _arrows(rng, size, round(degree * size / 2)):
        parents[names[b]] += (names[a],)
    shapes = {name: tuple(len(levels[p]) for p in parents[name]) for name in names}
    tables = {name: _table(rng, shapes[name], len(levels[name]), strength) for name in names}
    return BayesianNetwork(levels, parents, tables)


def _arrows(rng: np.random.Generator, size: int, wanted: int) -> set[tuple[int, int]]:
    """Arrows from lower to higher columns; some columns get many."""
    weight = rng.pareto(2.0, size) + 0.3
    neighbours, parents = np.zeros(size, int), np.zeros(size, int)
    found: set[tuple[int, int]] = set()
    for _ in range(100 * wanted):
        a, b = sorted(rng.choice(size, 2, replace=False, p=weight / weight.sum()).tolist())
        full = max(neighbours[a], neighbours[b]) >= MAX_NEIGHBOURS or parents[b] >= MAX_PARENTS
        if (a, b) not in found and not full and len(found) < wanted:
            found.add((a, b))
            neighbours[[a, b]] += 1
            parents[b] += 1
    return found


def _table(
    rng: np.random.Generator, shape: tuple[int, ...], levels: int, strength: float
) -> npt.NDArray[np.float64]:
    """Probabilities `[*shape, levels]`: an effect of each parent, a small one of all together."""
    logits = rng.normal(0, 0.6, (*shape, levels))
    if shape:
        logits = rng.normal(0, 0.5, levels) + rng.normal(0, 0.17 * strength, (*shape, levels))
    for axis, size in enumerate(shape):
        effect = rng.normal(0, strength, (size, levels))
        place = [1] * len(shape) + [levels]
        place[axis] = size
        logits = logits + effect.reshape(place)
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    total: npt.NDArray[np.float64] = odds / odds.sum(-1, keepdims=True)
    return total
