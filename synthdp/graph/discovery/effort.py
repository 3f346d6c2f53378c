"""How hard a search looks for a separating set, by what its tests can see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SHARP = 0.02
"""Effect (Cohen's w) from which on tests count as sharp: half of them see it."""
SHARP_LEVEL = 0.001
"""Level of a dependence that is hardly there, where tests see `SHARP`."""
MAX_CANDIDATES: Mapping[int, int] = {1: 24, 2: 24, 3: 16}


@dataclass(frozen=True)
class Effort:
    """How hard to look for a separator: the level of a dependence that is hardly there, and the
    candidates of tests, by size of the set.

    Where noise hides much, each further test of a true link may separate it, so that few are made.
    Where tests are sharp, a false link stays because its separator was not tried, or because chance
    made that test significant. So what the tests of one size can see, `weakest` (Cohen's w; it
    follows from the noise and the rows), decides on the next: below `SHARP`, the level is
    `SHARP_LEVEL` times (weakest / SHARP)^2, and candidates grow with the square root of SHARP /
    weakest. The level then tends to 0 like 1 / rows, as a consistent search needs: what a link adds
    to a test's statistic grows like the rows, and its critical value only like their logarithm.

    >>> Effort.of(0.05, {1: 24, 2: 8, 3: 5})
    Effort(level=1.0, candidates={1: 24, 2: 8, 3: 5})
    >>> Effort.of(0.005, {1: 24, 2: 8, 3: 5})
    Effort(level=6.25e-05, candidates={1: 24, 2: 24, 3: 15})
    """

    level: float
    candidates: Mapping[int, int]

    @classmethod
    def of(cls, weakest: float, candidates: Mapping[int, int]) -> Effort:
        """The effort where half of the last tests see an effect of `weakest`."""
        if not weakest <= SHARP:
            return cls(1.0, candidates)
        more = 1.5 * math.sqrt(SHARP / max(weakest, SHARP / 100))
        return cls(
            SHARP_LEVEL * (weakest / SHARP) ** 2,
            {n: min(round(more * tried), MAX_CANDIDATES[n]) for n, tried in candidates.items()},
        )
