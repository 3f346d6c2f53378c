"""The screen of wide tables: which of very many open pairs a search measures.

A table of each pair would be buried in noise. So a share of the budget tells which pairs look most
dependent (`privacy.mechanisms.pair_screen`), and the rounds of tables are spent on these. Each
column is counted first: a large table is further from independence by chance than a small one, and
that much is taken off its score. Pairs that are left out were not looked at: they stay undecided,
and are never called absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.discovery.algorithm import Releaser
from synthdp.graph.discovery.measure_plan import MeasurePlan
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.log_density import Floats
from synthdp.graph.margin_smoothing import margin_probabilities
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.pair_screen import PairScreen, noise_for
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released

COLUMNS, SCREEN = "columns", "screen"
SHARES: Mapping[str, float] = {COLUMNS: 0.05, SCREEN: 0.3}
"""Of the search's squared mu."""
KEPT_PER_COLUMN = 3


def screens(plan: MeasurePlan, domain: Domain, open_pairs: int) -> bool:
    """Whether a search screens its open pairs: a public fact."""
    return not plan.joint(domain) and open_pairs > plan.max_pairs


def with_screen(shares: Mapping[str, float]) -> Mapping[str, float]:
    """`shares` of the rounds where a screen comes first, and counts of all columns before it.

    >>> with_screen({"pairs": 0.8, "triples": 0.2})
    {'columns': 0.05, 'screen': 0.3, 'pairs': 0.52, 'triples': 0.13}
    """
    later = {name: part for name, part in shares.items() if name not in SHARES}
    left = (1 - sum(SHARES.values())) / sum(later.values())
    return {**SHARES, **{name: part * left for name, part in later.items()}}


def kept_pairs(domain: Domain) -> int:
    """How many pairs a screen tells.

    >>> from synthdp.data.column_domain import ColumnDomain
    >>> kept_pairs(Domain(tuple(ColumnDomain(n, "boolean", ("0", "1"), False) for n in "abcd")))
    12
    """
    return KEPT_PER_COLUMN * len(domain)


def screen_round(domain: Domain, part: float) -> MechanismFactory:
    """The screen, for its part of the search's squared mu."""
    kept = kept_pairs(domain)
    return lambda mu: PairScreen(domain, kept, noise_for(mu * math.sqrt(part), kept))


def screened(
    releaser: Releaser,
    knowledge: Knowledge,
    groups: LevelGroups,
    margins: Sequence[NoisyTable],
    max_cells: int,
) -> Released[tuple[Pair, ...]]:
    """The pairs to measure, in column order: those of the largest noisy scores.

    `margins` has each column's noisy counts, before any grouping. Pairs whose tables have more than
    `max_cells` are not measured, and so not screened.
    """
    purpose, domain = graph_purpose(SCREEN), groups.coarse
    planned = needed(releaser.plan.in_graph(SCREEN, PairScreen), purpose)
    small = [p for p in knowledge.undecided_pairs() if domain.cells(p) <= max_cells]
    rows = max(1.0, fmean(float(table.counts.sum()) for table in margins))
    laws = {table.columns[0]: _law(table, groups, rows) for table in margins}
    off = scores_by_chance(small, laws, rows)
    told = releaser.release(planned.choose(small, groups, off), purpose=purpose)
    return told.map(lambda pairs: _in_order(pairs, domain))


def _law(table: NoisyTable, groups: LevelGroups, rows: float) -> Floats:
    """Probabilities of a column's groups of levels, without most of their noise."""
    (name,) = table.columns
    column = groups.domain[name]
    law = margin_probabilities(column, table.counts / rows, table.sigma / rows)
    starts = groups.starts.get(name)
    return law if starts is None else np.add.reduceat(law, starts)


def scores_by_chance(
    pairs: Sequence[Pair], laws: Mapping[str, Floats], rows: float
) -> tuple[int, ...]:
    """About what the score of each pair is if its columns are independent.

    `laws` has the probabilities of each column's levels. A cell of probabilities p and q is off by
    a normal of variance n p (1 - p) q (1 - q), n = `rows`, and the score is the sum of what cells
    are off by: sqrt(2 n / pi) sum sqrt(p (1 - p)) sum sqrt(q (1 - q)).

    >>> even = {"a": np.array([0.5, 0.5]), "b": np.full(10, 0.1)}
    >>> scores_by_chance([("a", "b")], even, 20_000)
    (339,)
    """
    spread = {name: float(np.sqrt(law * (1 - law)).sum()) for name, law in laws.items()}
    unit = math.sqrt(2 * rows / math.pi)
    return tuple(round(unit * spread[a] * spread[b]) for a, b in pairs)


def _in_order(pairs: Sequence[tuple[str, ...]], domain: Domain) -> tuple[Pair, ...]:
    places = sorted(tuple(sorted(domain.index(name) for name in pair)) for pair in pairs)
    return tuple((domain.names[a], domain.names[b]) for a, b in places)
