"""The rounds of mode predict: all pairs of columns are counted, or those that a screen chooses.

All pairs share the noise of the first round. Where columns are many and rows are few, that buries
each of them, also that of a column and another which is nearly a function of it. So a part of the
budget tells which pairs look most dependent (`privacy.mechanisms.pair_screen`). These are counted,
with all pairs of targets: what predicts a target may be too weak for a screen. Near-functions are
lost by noise first and missed most, so a third round measures the strongest pairs once more.
Whether there is a screen follows from public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.discovery.measuring import COLUMNS, SCREEN, screen_round, screened
from synthdp.graph.discovery.skeleton import Releaser
from synthdp.graph.knowledge import Pair
from synthdp.graph.margins import pooled
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.pair_screen import MAX_LEVELS, PairScreen
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.privacy.private import Released

ALL, SCREENED, CHOSEN = "all pairs", "screened pairs", "chosen pairs"
STRONGEST = "strongest pairs"
PREDICTED = (ALL, SCREENED, CHOSEN, STRONGEST)
"""Rounds of tables. The first has all pairs, or those of a screen; the third follows a screen."""
PREDICTION_SHARES: Mapping[str, float] = {ALL: 0.35, CHOSEN: 0.65}
"""Shares of the graph budget. On five public tables .15 and .85 gave 3% more TV2, 1 and 0 6%."""
SCREENED_SHARES: Mapping[str, float] = {
    COLUMNS: 0.1,
    SCREEN: 0.15,
    SCREENED: 0.25,
    CHOSEN: 0.3,
    STRONGEST: 0.2,
}
"""Shares where a screen comes first. Columns are counted alone, since few pairs count them."""


@dataclass(frozen=True)
class RoundSettings:
    """Which pairs are counted.

    `max_pairs`: most pairs of the first round without a screen, those of targets first, then those
    of columns side by side; `max_screened`: those that a screen looks at, likewise; `max_cells`: of
    a table.

    `clear`: rows over the noise of a cell, if all pairs shared the budget of the graph, below which
    a screen of `min_columns` or more keeps `kept_per_column` pairs besides those of targets. Of
    more than `max_pairs` pairs it keeps as many where rows are clear.
    """

    max_pairs: int = 2000
    max_screened: int = 500_000
    max_cells: int = 1 << 16
    clear: float = 50.0
    min_columns: int = 40
    kept_per_column: int = 2


SETTINGS = RoundSettings()


def prediction_rounds(
    domain: Domain, rows_over_noise: float, *, counts_only: bool = False
) -> Mapping[str, MechanismFactory]:
    """What mode predict may release, by name: public facts decide.

    `rows_over_noise` are the rows over the noise of a table that has the budget for itself. Of rows
    that are counted elsewhere, and never seen, there is no screen.
    """
    columns, pairs = len(domain), math.comb(len(domain), 2)
    thin = rows_over_noise < SETTINGS.clear * math.sqrt(pairs) and columns >= SETTINGS.min_columns
    if counts_only or not (thin or pairs > SETTINGS.max_pairs):
        return {n: adaptive_round(domain, part) for n, part in PREDICTION_SHARES.items()}
    kept = SETTINGS.kept_per_column * columns if thin else SETTINGS.max_pairs
    rounds = {n: adaptive_round(domain, part) for n, part in SCREENED_SHARES.items()}
    return rounds | {SCREEN: screen_round(domain, kept, SCREENED_SHARES[SCREEN])}


def possible_pairs(
    domain: Domain, targets: Collection[str], *, screened: bool = False
) -> list[Pair]:
    """The pairs that the first round counts, or a screen before it looks at, from public facts."""
    most, levels = SETTINGS.max_pairs, SETTINGS.max_cells
    if screened:
        most, levels = SETTINGS.max_screened, MAX_LEVELS
    names = [column.name for column in domain.columns if column.levels <= levels]
    small = [p for p in combinations(names, 2) if domain.cells(p) <= SETTINGS.max_cells]

    def rank(pair: Pair) -> tuple[bool, int]:
        return set(targets).isdisjoint(pair), domain.index(pair[1]) - domain.index(pair[0])

    return sorted(small, key=rank)[:most]


def planned_pairs(domain: Domain, plan: ReleasePlan, targets: Collection[str]) -> list[Pair]:
    """About the pairs that the first round of `plan` counts: which a screen keeps is not known
    before, and some stand for them.
    """
    screen = plan.in_graph(SCREEN, PairScreen)
    if screen is None:
        return possible_pairs(domain, targets)
    pairs = possible_pairs(domain, targets, screened=True)
    always = [pair for pair in pairs if not set(targets).isdisjoint(pair)]
    others = pairs[len(always) :]
    kept = min(screen.kept, len(others))
    return always + [others[i * len(others) // kept] for i in range(kept)]


def screened_pairs(
    releaser: Releaser,
    groups: LevelGroups,
    targets: Collection[str],
    known: Sequence[NoisyTable],
) -> Released[tuple[Pair, ...]]:
    """The pairs that the first round counts: all of targets, and those that a screen tells.

    `known` are noisy tables, those of each column alone among them.
    """
    alone = [table for table in known if len(table.columns) == 1 and not table.starts]
    margins = [pooled(alone, (name,)) for name in groups.domain.names]
    pairs = possible_pairs(groups.coarse, targets, screened=True)
    always = tuple(pair for pair in pairs if not set(targets).isdisjoint(pair))
    told = screened(releaser, pairs[len(always) :], groups, margins)
    return told.map(lambda chosen: (*always, *chosen))
