"""Measured PC as an algorithm of the graph stage: its rounds of tables as planned spends.

Wide tables are screened. A table of each of very many open pairs would be buried in noise. So a
share of the budget tells which pairs look most dependent (`privacy.mechanisms.pair_screen`), and
the rounds of tables are spent on these. Each column is counted first: a large table is further from
independence by chance than a small one, and that much is taken off its score. Pairs that are left
out were not looked at: they stay undecided, and are never called absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import Algorithm, KnownTables, Releaser
from synthdp.graph.discovery.measured_pc import MeasurePlan, measured_pc
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.level_groups import LevelLaw, fine_columns, groups_by_noise
from synthdp.graph.margins import Floats, pooled
from synthdp.graph.trend import has_order
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.mechanisms.pair_screen import PairScreen, noise_for
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

COLUMNS, SCREEN, PAIRS = "columns", "screen", "pairs"
SHARES: Mapping[str, float] = {COLUMNS: 0.05, SCREEN: 0.3}
"""Of the search's squared mu."""
ORDERED_SHARES: Mapping[str, float] = {COLUMNS: 0.05, PAIRS: 0.95}
"""Shares where every open pair has an ordered column: tables of pairs answer all questions."""
MIXED_SHARES: Mapping[str, float] = {COLUMNS: 0.05, PAIRS: 0.7, "triples": 0.15, "quadruples": 0.1}
"""Shares where some column is counted on groups, and some pairs have no order."""


def with_screen(shares: Mapping[str, float]) -> Mapping[str, float]:
    """`shares` of the rounds where a screen comes first, and counts of all columns before it.

    >>> with_screen({"pairs": 0.8, "triples": 0.2})
    {'columns': 0.05, 'screen': 0.3, 'pairs': 0.52, 'triples': 0.13}
    """
    later = {name: part for name, part in shares.items() if name not in SHARES}
    left = (1 - sum(SHARES.values())) / sum(later.values())
    return {**SHARES, **{name: part * left for name, part in later.items()}}


def screen_round(domain: Domain, kept: int, part: float) -> MechanismFactory:
    """A screen that tells `kept` pairs chosen later, for `part` of the share of all rounds."""
    return lambda mu: PairScreen(domain, kept, noise_for(mu * math.sqrt(part), kept))


def screened(
    releaser: Releaser, pairs: Sequence[Pair], law: LevelLaw
) -> Released[tuple[Pair, ...]]:
    """Those of `pairs` to measure: those of the largest noisy scores, the largest first.

    The tables of the `law` are each column's noisy counts, before any grouping.
    """
    purpose, groups, domain = graph_purpose(SCREEN), law.groups, law.groups.coarse
    planned = needed(releaser.plan.in_graph(SCREEN, PairScreen), purpose)
    rows = max(1.0, float(pooled(law.tables, ()).counts))
    laws = dict(zip(domain.names, law.coarse_margins, strict=True))  # without most of their noise
    off = scores_by_chance(pairs, laws, rows)
    told = releaser.release(planned.choose(pairs, groups, off), purpose=purpose)
    return told.map(lambda best: tuple((a, b) for a, b in best))


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


def measure_round(
    releaser: Releaser,
    name: str,
    tables: Sequence[tuple[str, ...]],
    groups: LevelGroups | None = None,
) -> Released[tuple[NoisyTable, ...]]:
    """Release `tables` as the planned round `name`, counted on `groups` of levels if there are any.

    Raises:
        BudgetError: the plan has no such round.
    """
    purpose = graph_purpose(name)
    planned = needed(releaser.plan.in_graph(name, AdaptiveMarginals), purpose)
    return releaser.release(planned.choose(tables, groups), purpose=purpose)


def _spends(settings: Graph, domain: Domain, _: float) -> Mapping[str, MechanismFactory]:
    plan = _measure_plan(settings)
    knowledge = Knowledge.from_spec(settings, domain.names)
    plan.refuse_too_many(domain, knowledge)
    shares = _shares(plan, settings, domain)
    if not plan.screens(domain, len(knowledge.undecided_pairs)):
        return _rounds(domain, shares)
    shares = with_screen(shares)
    screen = screen_round(domain, plan.kept_per_column * len(domain), shares[SCREEN])
    return {**_rounds(domain, shares), SCREEN: screen}


def spends_without_screen(settings: Graph, domain: Domain) -> Mapping[str, MechanismFactory]:
    """The rounds of a search of rows that are counted elsewhere, and that no screen sees.

    Raises:
        SynthdpError: more pairs are open than may be measured.
    """
    plan = _measure_plan(settings)
    if len(Knowledge.from_spec(settings, domain.names).undecided_pairs) > plan.max_pairs:
        raise SynthdpError(
            "graph: so many pairs of columns are open that a screen chooses some, which looks at"
            " the levels of all rows; engine sql gives counts, and no rows",
            hint="decide more pairs by graph.tiers, graph.forbidden or graph.groups; or export the"
            " rows to Parquet for engine arrow or dask",
        )
    return _rounds(domain, _shares(plan, settings, domain))


def _rounds(domain: Domain, shares: Mapping[str, float]) -> Mapping[str, MechanismFactory]:
    return {name: adaptive_round(domain, part) for name, part in shares.items()}


def _shares(plan: MeasurePlan, settings: Graph, domain: Domain) -> Mapping[str, float]:
    """The rounds with their share of the budget: public facts decide."""
    shares = plan.shares(domain)
    if PAIRS not in shares or not fine_columns(domain):
        return shares
    open_pairs = Knowledge.from_spec(settings, domain.names).undecided_pairs
    plain = any(not any(has_order(domain[name]) for name in pair) for pair in open_pairs)
    return MIXED_SHARES if plain else ORDERED_SHARES


def _search(
    releaser: Releaser, settings: Graph, domain: Domain, known: KnownTables = None
) -> Released[CausalGraph] | CausalGraph:
    paid: list[Released[Any]] = []
    before = [] if known is None else [*known.value]
    plan, knowledge = _measure_plan(settings), Knowledge.from_spec(settings, domain.names)
    groups, open_pairs = LevelGroups(domain, {}), len(knowledge.undecided_pairs)
    wide, chosen = SCREEN in releaser.plan.graph, None
    fine = {column.name for column in fine_columns(domain)}
    if open_pairs and (wide or COLUMNS in _shares(plan, settings, domain)):
        counted = [(name,) for name in domain.names if wide or name in fine]
        counts = measure_round(releaser, COLUMNS, counted)
        paid.append(counts)
        before += counts.value
        planned = needed(releaser.plan.in_graph(PAIRS, AdaptiveMarginals), graph_purpose(PAIRS))
        tables = plan.kept_per_column * len(domain) if wide else open_pairs
        sigma = planned.noise_multiplier * math.sqrt(tables)
        groups = groups_by_noise(domain, [t for t in counts.value if fine & {*t.columns}], sigma)
        plan = replace(plan, joint_cells=0)
    if wide:
        open_to_it = knowledge.undecided_pairs  # tables of more cells are not measured
        small = [pair for pair in open_to_it if groups.coarse.cells(pair) <= plan.max_cells]
        told = screened(releaser, small, LevelLaw(groups, counts.value))
        paid.append(told)
        chosen = sorted(told.value, key=lambda pair: [*map(domain.index, pair)])

    def measure(name: str, wanted: Sequence[tuple[str, ...]]) -> tuple[NoisyTable, ...]:
        told = measure_round(releaser, name, wanted, groups)
        paid.append(told)
        return tuple(replace(table, starts={}) for table in told.value)

    shared = {
        name: np.diff([*starts, domain[name].levels]) > 1 for name, starts in groups.starts.items()
    }
    graph = measured_pc(
        *(measure, plan, groups.coarse, knowledge),
        shared=shared,
        known=[_on_groups(table, groups) for table in before if not table.starts],
        pairs=chosen,
        unseen=settings.unseen_causes,
    )
    if not paid:
        return graph
    if known is not None:
        paid.append(known)
    together: Released[CausalGraph] = paid[0].map(lambda _: graph)
    for more in paid[1:]:
        together = together.zip(more).map(lambda pair: pair[0])
    return together


def _on_groups(table: NoisyTable, groups: LevelGroups) -> NoisyTable:
    """A table of all levels, summed to groups; its noise is that of its noisiest cell."""
    counts, most = table.counts, 1
    for axis, name in enumerate(table.columns):
        counts = groups.sums(name, counts, axis)
        most *= int(np.bincount(groups.group_of(name)).max())
    return NoisyTable(table.columns, counts, table.sigma * math.sqrt(most))


def _measure_plan(settings: Graph) -> MeasurePlan:
    return MeasurePlan(level=settings.level, max_parents=settings.max_parents)


MEASURED_PC = Algorithm(_spends, _search)
