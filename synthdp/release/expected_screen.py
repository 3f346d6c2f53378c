"""What a screen of pairs is expected to keep: before anything is spent, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import erf

from synthdp.graph.knowledge import Pair
from synthdp.graph.log_density import Floats
from synthdp.privacy.mechanisms.pair_screen import MOVES, PairScreen

EFFECTS = np.geomspace(0.002, 1, 100)
"""Effects (Cohen's w) that are tried."""
POWER = 0.8


def weakest_kept(
    pairs: Sequence[Pair], laws: Mapping[str, Floats], rows: float, screen: PairScreen, of: int
) -> Floats:
    """The weakest effect (Cohen's w) of each pair that is kept with probability .8, `[pairs]`.

    Infinite where there is none. `of` pairs are screened, and nearly all of them have no link:
    their k-th largest score is then about scale ln(of / k), by the tail of Gumbel noise.

    >>> from synthdp.data.column_domain import ColumnDomain
    >>> from synthdp.data.domain import Domain
    >>> yes_or_no = [ColumnDomain(name, "boolean", ("0", "1"), False) for name in "ab"]
    >>> screen = PairScreen(Domain(tuple(yes_or_no)), kept=700, noise=70.0)
    >>> even = {"a": np.array([0.5, 0.5]), "b": np.array([0.5, 0.5])}
    >>> weakest_kept([("a", "b")], even, 20_000, screen, 28_000).round(2).tolist()
    [0.05]
    """
    kept = min(screen.kept, of)
    needed = MOVES * screen.noise * (math.log(of / kept) - math.log(-math.log(1 - POWER)))
    found = np.full(len(pairs), math.inf)
    for i, (a, b) in enumerate(pairs):
        enough = _scores(laws[a], laws[b], rows) >= needed
        if enough.any():
            found[i] = EFFECTS[enough.argmax()]
    return found


def _scores(first: Floats, second: Floats, rows: float) -> Floats:
    """What a trend of each of `EFFECTS` adds to the score that chance alone gives, `[effects]`.

    A cell is off by the trend and by a normal error: its mean distance is that of a folded normal.
    """
    trend = np.outer(first * _scaled(first), second * _scaled(second))
    apart = rows * EFFECTS[:, None, None] * np.abs(trend)
    sigma = np.sqrt(rows * np.outer(first * (1 - first), second * (1 - second))) + 1e-9
    ratio = apart / sigma
    folded = sigma * math.sqrt(2 / math.pi) * (np.exp(-(ratio**2) / 2) - 1)
    added = folded + apart * erf(ratio / math.sqrt(2))
    return np.array(added.sum((1, 2)), dtype=np.float64)


def _scaled(law: Floats) -> Floats:
    """Levels in their order, of mean 0 and variance 1; zeros where there is one level."""
    places = np.arange(len(law)) - float(np.arange(len(law)) @ law)
    spread = math.sqrt(float(places**2 @ law))
    return np.array(places / (spread or 1.0), dtype=np.float64)
