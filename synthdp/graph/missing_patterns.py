"""Columns that are missing together, found in released tables: free post-processing.

Questions of one page, or behind one filter, are all answered or all missing. Noise hides that: a
table of two such columns has rows where only one is missing, and a model follows it. So for each
pair of columns two hypotheses are compared: that they are missing together, or that they are not,
and then as often together as chance has it or more often, up to always. What is compared is the
cell in which both are missing, and the shares missing of each [Kass and Raftery, "Bayes Factors"
(1995), Section 2]. A pattern is a group of columns whose pairs, all in all, are likelier together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.knowledge import Pair
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]


class Estimate(NamedTuple):
    """A noisy count of rows and its standard deviation."""

    mean: float
    deviation: float


class Compared(NamedTuple):
    """How much likelier a pair is missing together than not, in nats, and the z-score of the rows
    that both lack above independence.
    """

    gain: float
    above_chance: float


def missing_groups(
    tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain]
) -> tuple[tuple[str, ...], ...]:
    """Groups of columns whose missing levels, the last ones, come together, in column order."""
    seen, likely = _likely_pairs(tables, columns)
    groups, merged = [{name} for name in seen], True
    while merged:
        merged = False
        for pair in sorted(likely, key=lambda pair: -likely[pair].gain):
            first, second = (next(g for g in groups if name in g) for name in pair)
            if first is not second and missing_together(first, second, likely):
                groups = [g for g in groups if g is not first and g is not second]
                groups, merged = [*groups, first | second], True
                break
    found = [tuple(n for n in seen if n in group) for group in groups if len(group) > 1]
    return tuple(sorted(found, key=lambda group: seen.index(group[0])))


def likely_partners(tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain]) -> list[Pair]:
    """For each column that is visibly missing, the pair that is likeliest missing together."""
    seen, likely = _likely_pairs(tables, columns)
    best = [
        max((p for p in likely if name in p), key=lambda p: likely[p].gain, default=None)
        for name in seen
    ]
    return sorted({pair for pair in best if pair is not None})


def _likely_pairs(
    tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain]
) -> tuple[list[str], dict[Pair, Compared]]:
    """Columns missing in more rows than 3 deviations of noise, and their counted pairs."""
    holding = _by_columns(tables, {c.name for c in columns if c.missing})
    names = [c.name for c in columns if frozenset({c.name}) in holding]
    single = {name: _missing(holding, name) for name in names}
    totals = [(float(t.counts.sum()), t.sigma**2 * t.counts.size) for t in tables]
    seen = [name for name in names if single[name].mean > 3 * single[name].deviation]
    measured = [pair for pair in combinations(seen, 2) if frozenset(pair) in holding]
    rows = max(1.0, _pooled(totals).mean) if measured else 1.0
    likely = {
        (a, b): _compared(single[a], single[b], _missing(holding, a, b), rows) for a, b in measured
    }
    return seen, likely


def with_common_shares(
    margins: Sequence[Floats], tables: Sequence[NoisyTable], columns: Sequence[ColumnDomain]
) -> list[Floats]:
    """The `margins` `[levels]` of `columns`, with one share missing for all of a pattern."""
    out = {column.name: margin for column, margin in zip(columns, margins, strict=True)}
    for pattern in missing_groups(tables, columns):
        holding = _by_columns(tables, pattern)
        precision = [_missing(holding, name).deviation ** -2 for name in pattern]
        common = float(np.average([out[name][-1] for name in pattern], weights=precision))
        for name in pattern:
            known = out[name][:-1] / max(float(out[name][:-1].sum()), 1e-12)
            out[name] = np.append(known * (1 - common), common)
    return list(out.values())


def missing_as_one(table: Floats, share: float) -> Floats:
    """The `table` `[levels, levels]` of two columns that are missing together, in `share` of rows.

    >>> missing_as_one(np.full((2, 2), 0.25), 0.4).tolist()
    [[0.6, 0.0], [0.0, 0.4]]
    """
    out = np.zeros_like(table)
    known = table[:-1, :-1]
    out[:-1, :-1] = known * (1 - share) / max(float(known.sum()), 1e-12)
    out[-1, -1] = share
    return out


def _by_columns(
    tables: Sequence[NoisyTable], names: Collection[str]
) -> dict[frozenset[str], list[NoisyTable]]:
    """The tables that hold each of `names` and each two of them."""
    found = dict[frozenset[str], list[NoisyTable]]()
    for table in tables:
        held = [name for name in table.columns if name in names]
        for some in chain(combinations(held, 1), combinations(held, 2)):
            found.setdefault(frozenset(some), []).append(table)
    return found


def _missing(holding: Mapping[frozenset[str], Sequence[NoisyTable]], *names: str) -> Estimate:
    """Rows where all `names` are missing, by every table that has them."""
    found = []
    for table in holding[frozenset(names)]:
        cells = table.counts[tuple(-1 if n in names else slice(None) for n in table.columns)]
        found.append((float(cells.sum()), table.sigma**2 * cells.size))
    return _pooled(found)


def _pooled(found: Sequence[tuple[float, float]]) -> Estimate:
    """The mean of least variance of counts, each with its variance."""
    precision = [1 / variance for _, variance in found]
    mean = float(np.average([count for count, _ in found], weights=precision))
    return Estimate(mean, math.fsum(precision) ** -0.5)


def _compared(first: Estimate, second: Estimate, both: Estimate, rows: float) -> Compared:
    """Two columns as missing together, and as not.

    Together, the counts of both columns and of the cell have one mean. Else the columns' differ by
    anything up to the larger, and the cell's is that of independence, or anything from it up to the
    smaller, with equal probability.
    """
    chance = first.mean * second.mean / rows
    common = _pooled([(e.mean, e.deviation**2) for e in (first, second)])
    together = _density(both.mean - common.mean, math.hypot(both.deviation, common.deviation))
    together *= _density(first.mean - second.mean, math.hypot(first.deviation, second.deviation))
    larger, room = max(first.mean, second.mean), max(common.mean - chance, 1e-9)
    z = [(both.mean - end) / both.deviation for end in (chance, common.mean)]
    partly = float(ndtr(z[0]) - ndtr(z[1])) / room
    otherwise = (_density(both.mean - chance, both.deviation) + partly) / 2 / (2 * larger)
    return Compared(math.log(max(together, 1e-300)) - math.log(max(otherwise, 1e-300)), z[0])


def _density(distance: float, deviation: float) -> float:
    return math.exp(-((distance / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))


def missing_together(
    first: Collection[str], second: Collection[str], likely: Mapping[Pair, Compared]
) -> bool:
    """Whether all of `first` and all of `second` are missing together.

    All their pairs must have been counted, be likelier together, and be missing together more often
    than chance has it by 2 standard deviations. The sum of z-scores over the root of their number
    is one [Stouffer et al., "The American Soldier" (1949)].
    """
    pairs = [p if p in likely else p[::-1] for p in product(first, second)]
    if not all(pair in likely for pair in pairs):
        return False
    gain = math.fsum(likely[pair].gain for pair in pairs)
    above = math.fsum(likely[pair].above_chance for pair in pairs) / math.sqrt(len(pairs))
    return gain > 0 and above > 2
