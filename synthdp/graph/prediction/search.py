"""Mode predict: arrows that predict, and that claim nothing about causes.

Every pair of columns is measured once, at low precision. Pairs that show a dependence are then
measured again, as many as make the expected error of all tables least, and for each column that is
often missing the pair that is likeliest missing together. The arrows are all pairs
that show a dependence in the end, from the earlier column to the later one. The order is that of
the tiers, then that of the spec, with targets last in their tier: a target is predicted, and
predicts nothing that could come before it.

Both rounds count tables that are chosen from public or released facts
(`privacy.mechanisms.marginals.AdaptiveMarginals`); all else is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.algorithm import Releaser
from synthdp.graph.discovery.measuring import measure_round
from synthdp.graph.edge import GraphEdge
from synthdp.graph.knowledge import Pair
from synthdp.graph.margins import one_way_probabilities
from synthdp.graph.missing_patterns import likely_partners
from synthdp.graph.prediction.groups import equal_groups
from synthdp.graph.prediction.pairs import PairTables, pair_tables
from synthdp.graph.tables import cells
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

ALL, CHOSEN = "all pairs", "chosen pairs"
"""The two rounds."""
PREDICTION_SHARES: Mapping[str, float] = {ALL: 0.35, CHOSEN: 0.65}
"""Shares of the graph budget. On five public tables .15 and .85 gave 3% more TV2, 1 and 0 6%."""
TARGET_WEIGHT = 2.0
"""How much more the error of a pair counts that holds a target."""
MAX_PAIRS = 2000
"""Most pairs of the first round: those of targets first, then those of columns side by side."""
MAX_CELLS = 1 << 16
"""Most cells of a table."""
TRIED_COUNTS = 100
"""Most numbers of tables that are tried for the second round, each a share above the last."""


def prediction_rounds(domain: Domain) -> Mapping[str, MechanismFactory]:
    """What mode predict may release, and how each part is planned."""
    return {name: adaptive_round(domain, part) for name, part in PREDICTION_SHARES.items()}


def predict(
    releaser: Releaser,
    settings: Graph,
    domain: Domain,
    known: Released[tuple[NoisyTable, ...]],
    targets: Collection[str],
) -> Released[CausalGraph]:
    """Measure pairs, and draw an arrow for each pair that shows a dependence.

    `known` are noisy tables that were paid for before, all one-way tables among them. Where the
    tables alone make the model, pairs are counted on groups of levels: training would see levels.
    """
    groups = LevelGroups(domain, {})
    if releaser.plan.train is None:
        groups = equal_groups(domain, one_way_probabilities(known.value, domain.columns))
    pairs = possible_pairs(groups.coarse, targets)
    everything = known
    if pairs:
        first = measure_round(releaser, ALL, pairs, groups)
        everything = known.zip(first).map(lambda both: (*both[0], *both[1]))
        planned = needed(releaser.plan.in_graph(CHOSEN, AdaptiveMarginals), graph_purpose(CHOSEN))
        seen = pair_tables(everything.value, domain)
        again = worth_measuring(seen, planned.noise_multiplier, targets)
        partners = likely_partners(everything.value, domain.columns)
        again += [pair for pair in partners if pair not in again]
        second = measure_round(releaser, CHOSEN, again or pairs, groups)
        everything = everything.zip(second).map(lambda both: (*both[0], *both[1]))
    order = prediction_order(settings, domain.names, targets)
    return everything.map(lambda tables: _graph(tables, domain, order))


def possible_pairs(domain: Domain, targets: Collection[str]) -> list[Pair]:
    """The pairs of the first round, from public facts alone."""
    names = domain.names
    small = [p for p in combinations(names, 2) if cells(domain, p) <= MAX_CELLS]

    def rank(pair: Pair) -> tuple[bool, int]:
        return targets_in(pair, targets) == 0, domain.index(pair[1]) - domain.index(pair[0])

    return sorted(small, key=rank)[:MAX_PAIRS]


def targets_in(pair: Pair, targets: Collection[str]) -> int:
    """How many of the pair are targets."""
    return sum(name in targets for name in pair)


def worth_measuring(
    seen: PairTables, noise_multiplier: float, targets: Collection[str]
) -> list[Pair]:
    """The pairs that the second round measures: those that leave the least expected error.

    k tables share the round's budget, so each gets noise `noise_multiplier` sqrt(k) per cell, which
    is pooled with the noise of the first round. For each k the k pairs with the largest expected
    gain are taken; the best k wins. Of many k only `TRIED_COUNTS` are tried. Pairs with a target
    are measured again whatever the first round says: what it does not show may still predict.
    """
    sure = [p for p in seen.pairs if targets_in(p, targets) and not seen.pairs[p].dependent]
    best, chosen = 0.0, list[Pair]()
    now = {p: seen.pairs[p].expected_error(seen.sigmas[p] / seen.rows) for p in seen.dependent}
    counts = np.geomspace(1, len(now), TRIED_COUNTS).round() if now else ()
    for count in map(int, np.unique(counts)):
        sigma = noise_multiplier * math.sqrt(count + len(sure))
        gains = {
            p: (error - seen.pairs[p].expected_error(_both(sigma, seen.sigmas[p]) / seen.rows))
            * (TARGET_WEIGHT if targets_in(p, targets) else 1.0)
            for p, error in now.items()
        }
        largest = sorted(gains, key=lambda p: -gains[p])[:count]
        gain = math.fsum(gains[p] for p in largest)
        if gain > best:
            best, chosen = gain, largest
    return chosen + sure


def _both(first: float, second: float) -> float:
    """Noise of the pooled mean of two measurings."""
    return 1 / math.hypot(1 / first, 1 / second)


def prediction_order(
    settings: Graph, names: Sequence[str], targets: Collection[str]
) -> tuple[str, ...]:
    """All columns in an order in which each is predicted from earlier ones.

    >>> settings = Graph(mode="predict", tiers=(("age",), ("income", "hours")))
    >>> prediction_order(settings, ["income", "hours", "age"], {"income"})
    ('age', 'hours', 'income')
    """
    tier = {name: i for i, members in enumerate(settings.tiers) for name in members}
    last = len(settings.tiers)
    return tuple(sorted(names, key=lambda n: (tier.get(n, last), n in targets, names.index(n))))


def _graph(tables: Sequence[NoisyTable], domain: Domain, order: Sequence[str]) -> CausalGraph:
    """An arrow for each dependent pair, along the order."""
    place = {name: i for i, name in enumerate(order)}
    arrows = [sorted(pair, key=place.__getitem__) for pair in pair_tables(tables, domain).dependent]
    edges = (GraphEdge(a, b, directed=True, provenance="predictive") for a, b in arrows)
    return CausalGraph(domain.names, tuple(edges))
