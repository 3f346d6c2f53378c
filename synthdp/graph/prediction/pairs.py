"""What all released tables say of single columns and of pairs of columns, smoothed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from synthdp.data.domain import Domain
from synthdp.graph.knowledge import Pair
from synthdp.graph.margins import Probabilities, one_way_probabilities, pooled
from synthdp.graph.missing_patterns import missing_as_one, missing_patterns
from synthdp.graph.prediction.groups import groups_of, on_groups
from synthdp.graph.prediction.smoothing import (
    SmoothPair,
    axis,
    fitted_to_margins,
    smoothed_pair,
)
from synthdp.privacy.mechanisms.marginals import NoisyTable

CERTAIN = 100.0
"""Evidence of a pair that is missing together, in nats: it is dependent, whatever else is."""


@dataclass(frozen=True)
class PairTables:
    """Margins and two-way tables after smoothing, by the names of their columns.

    All are over the levels of the coarse domain of the tables' groups. `margins` are probabilities
    `[levels]`; `pairs` has one entry for each pair that some table contains, in the order of the
    domain; `sigmas` is the noise of each pair's table, `rows` the noisy number of rows, and
    `patterns` has the columns that are missing together.
    """

    rows: float
    margins: Mapping[str, Probabilities]
    pairs: Mapping[Pair, SmoothPair]
    sigmas: Mapping[Pair, float]
    patterns: tuple[tuple[str, ...], ...] = ()

    @property
    def dependent(self) -> tuple[Pair, ...]:
        """Pairs whose tables show a dependence, in the order of the domain."""
        return tuple(pair for pair, table in self.pairs.items() if table.dependent)

    def has(self, first: str, second: str) -> bool:
        """Whether the table of two columns was measured."""
        return (first, second) in self.pairs or (second, first) in self.pairs

    def table(self, first: str, second: str) -> Probabilities:
        """The table of two columns `[levels, levels]`, with their margins."""
        turned = (first, second) not in self.pairs
        a, b = (second, first) if turned else (first, second)
        fitted = fitted_to_margins(self.pairs[a, b].probabilities, self.margins[a], self.margins[b])
        return fitted.T if turned else fitted


def pair_tables(tables: Sequence[NoisyTable], domain: Domain) -> PairTables:
    """All `tables` together, each margin from every table that contains it, then smoothed."""
    rows = max(1.0, float(pooled(tables, ()).counts))
    groups = groups_of(tables, domain)
    one_way = one_way_probabilities(tables, domain.columns)
    margins = {c.name: groups.sums(c.name, p) for c, p in zip(domain.columns, one_way, strict=True)}
    axes = {c.name: axis(c, margins[c.name], rows) for c in groups.coarse.columns}
    pairs: dict[Pair, SmoothPair] = {}
    sigmas: dict[Pair, float] = {}
    for pair, holding in _tables_by_pair(tables, domain).items():
        containing = [replace(on_groups(table, groups), starts={}) for table in holding]
        noisy = pooled(containing, pair)
        first, second = (axes[name] for name in pair)
        pairs[pair] = smoothed_pair(first, second, noisy.counts / rows, noisy.sigma / rows)
        sigmas[pair] = noisy.sigma
    patterns = missing_patterns(tables, domain.columns)
    for pair in (pair for pattern in patterns for pair in combinations(pattern, 2)):
        found = pairs[pair]
        as_one = missing_as_one(found.probabilities, float(margins[pair[0]][-1]))
        pairs[pair] = replace(found, probabilities=as_one, evidence=max(found.evidence, CERTAIN))
    return PairTables(rows, margins, pairs, sigmas, patterns)


def _tables_by_pair(tables: Iterable[NoisyTable], domain: Domain) -> dict[Pair, list[NoisyTable]]:
    """The tables that hold each pair of columns, pairs in the order of the domain."""
    found: dict[Pair, list[NoisyTable]] = {}
    for table in tables:
        for pair in combinations(sorted(table.columns, key=domain.index), 2):
            found.setdefault(pair, []).append(table)
    ordered = sorted(found, key=lambda pair: (domain.index(pair[0]), domain.index(pair[1])))
    return {pair: found[pair] for pair in ordered}
