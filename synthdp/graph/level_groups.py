"""Groups of levels on which pairs of columns are counted: post-processing of one-way tables.

A group holds about as many rows as any other, so that cells of a pair are neither empty nor crowded
where both columns are spread out. A heavy level is a group of its own. Groups of mode predict begin
at round numbers. A search counts ordered columns of many levels so: a cell of a table of two fine
columns is mostly noise. How fine is fine enough follows from the noise, which is public, and from
the columns' own noisy tables, a first round of the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.kinds.ranges import level_of
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.graph import margins as smoothing
from synthdp.graph.margins import Probabilities, body_of
from synthdp.graph.prior import Prior, PublicRows
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable


@dataclass(frozen=True)
class GroupSettings:
    """Tuning of groups.

    `near`: how much a share of rows may be off by the rounding of another machine.

    `max_groups`: about so many share the rows in bins: on five public tables 24 gave 3% more TV of
    pairs; on three of them 12 as much. `few_bins`: up to so many bins stay as they are: with 16,
    Adult on the bins of its spec has 10% more.

    Of a search: `few_coarse_bins` stay as they are; `min_groups`; `rows_per_noise`: rows over noise
    of a cell and groups cubed.
    """

    near: float = 1e-9
    max_groups: int = 16
    few_bins: int = 32
    few_coarse_bins: int = 8
    min_groups: int = 5
    rows_per_noise: float = 0.6


SETTINGS = GroupSettings()


def equal_groups(domain: Domain, margins: Sequence[Probabilities]) -> LevelGroups:
    """Groups of about equal mass by the probabilities `margins`, `[levels]` of each column, that
    begin at round numbers.
    """
    fine = [
        (column, margin)
        for column, margin in zip(domain.columns, margins, strict=True)
        if column.ranged and len(body_of(column)) > SETTINGS.few_bins
    ]
    return LevelGroups(domain, {c.name: _rounder(c, p, starts_of(c, p)) for c, p in fine})


def _rounder(column: ColumnDomain, margin: Probabilities, starts: Starts) -> Starts:
    """The `starts`, each moved to the roundest one that takes at most half the rows of either group
    beside it: people give round numbers, and what they mean changes there. One level stays alone.
    """
    before, found = np.append(0.0, np.cumsum(margin)), [*starts, column.levels]
    for place in range(1, len(starts)):
        low, own, high = found[place - 1 : place + 2]
        if own - low > 1 and high - own > 1 and column.step_seconds is None:
            apart = np.abs(before - before[own])
            near = apart <= min(apart[low], apart[high]) / 2
            found[place] = max(
                (level for level in range(low + 1, high) if near[level]),
                key=lambda n: (_roundness(column.edges[n - len(column.spikes)]), -apart[n]),
            )
    return tuple(found[:-1])


def _roundness(number: float) -> float:
    """How large a step of 1, 2 or 5 times a power of ten is that `number` is a multiple of.

    >>> [_roundness(x) for x in (0.5, 3, 14, 25, 60000, 0)]
    [-1, 0, 1, 2, 13, inf]
    """
    if number == 0:
        return math.inf
    _, digits, exponent = Decimal(str(round(number, 9))).normalize().as_tuple()
    return 3 * int(exponent) + (2 if digits[-1] == 5 else 1 - digits[-1] % 2)


def starts_of(
    column: ColumnDomain,
    margin: Probabilities,
    *,
    groups: int = SETTINGS.max_groups,
    stated: Starts | None = None,
) -> Starts:
    """The first level of each group of a column with the probabilities `margin` `[levels]`.

    About so many `groups` share the rows in bins.

    A level that alone has a group's share is a group, and ends the one before it. The other groups
    share what such levels leave. Where a share is as near to what decides as machines differ, it is
    as `stated`, if that is given.

    >>> spread = ColumnDomain("x", "integer", tuple("abcd"), False, edges=(0, 1, 2, 3), stop=4)
    >>> starts_of(spread, np.array([0.49, 0.02, 0.01, 0.48]))
    (0, 1, 2, 3)
    >>> near = np.array([0.3, 0.4, 0.3, 0.0])
    >>> starts_of(spread, near, groups=2), starts_of(spread, near, groups=2, stated=(0, 1, 2))
    ((0, 2), (0, 1, 2))
    """
    body = body_of(column)
    mass = margin[body] / max(float(margin[body].sum()), 1e-300)
    heavy, known = mass >= 1 / groups, {*(stated or ())}
    if stated is not None:
        near = np.abs(mass - 1 / groups) <= SETTINGS.near
        own = np.array([{level, level + 1} <= {*known, column.levels} for level in body.tolist()])
        heavy = np.where(near, own, heavy)
    most = float(mass[~heavy].sum()) / max(1, groups - int(heavy.sum()))
    starts, begins = list[int](), True
    filled = 0.0
    for level, share, alone in zip(body.tolist(), mass.tolist(), heavy.tolist(), strict=True):
        # Half of what a level brings may lie beyond the group's share.
        over = filled + share / 2 - most
        ends = level in known if stated is not None and abs(over) <= SETTINGS.near else over > 0
        if begins or alone or ends:
            starts.append(level)
            filled = 0.0
        filled += share
        begins = alone
    missing = [column.levels - 1] if column.missing else []
    return (*range(len(column.spikes)), *starts, *missing)


def groups_of(tables: Sequence[NoisyTable], domain: Domain) -> LevelGroups:
    """The groups of levels that some of the `tables` are counted on, of the columns of a domain:
    others that a table has are summed over.

    Raises:
        ValueError: two tables group a column in two ways, or these are no groups of levels.
    """
    starts = dict[str, Starts]()
    for table in tables:
        for name, begins in table.starts.items():
            if name in domain.names and starts.setdefault(name, begins) != begins:
                raise ValueError(f"two groupings of the levels of column {name!r}")
    return LevelGroups(domain, starts)


@dataclass(frozen=True, eq=False)
class LevelLaw:
    """What noisy `tables` say of levels, with a `prior` if there is one: their groups, and the law
    of each column.
    """

    groups: LevelGroups
    tables: Sequence[NoisyTable]
    prior: Prior | None = None

    @classmethod
    def of_tables(
        cls, tables: Sequence[NoisyTable], domain: Domain, prior: Prior | None = None
    ) -> LevelLaw:
        """The law by the released `tables`; errors as of `groups_of`. A release asks many times for
        that of the same tables, and gets the same object, whose margins are smoothed once.
        """
        return _law_of(tuple(tables), domain, prior)

    @classmethod
    def by_rows(
        cls, tables: Sequence[NoisyTable], domain: Domain, rows: PublicRows | None
    ) -> LevelLaw:
        """The same, where public `rows` are the prior, if there are any."""
        prior = rows.prior(tables, groups_of(tables, domain)) if rows else None
        return cls.of_tables(tables, domain, prior)

    @cached_property
    def margins(self) -> list[Probabilities]:
        """Probabilities of the levels of each column; every column must have a table."""
        return smoothing.one_way_probabilities(self.tables, self.groups.domain.columns, self.prior)

    @cached_property
    def coarse_margins(self) -> list[Probabilities]:
        names = self.groups.domain.names
        return [self.groups.sums(name, p) for name, p in zip(names, self.margins, strict=True)]

    def drawn(self, codes: Codes, *, rng: np.random.Generator) -> Codes:
        """Levels inside groups `[rows, columns]`: a column's law inside a group is its margin's."""
        return self.groups.drawn(codes, self.margins, rng=rng) if self.groups.starts else codes


@lru_cache(maxsize=4)
def _law_of(tables: tuple[NoisyTable, ...], domain: Domain, prior: Prior | None = None) -> LevelLaw:
    return LevelLaw(groups_of(tables, domain), tables, prior)


def on_groups(table: NoisyTable, groups: LevelGroups) -> NoisyTable:
    """The table summed over groups; its `sigma` is the root mean square of its cells' noise."""
    counts, cells = table.counts, 1.0
    for axis, name in enumerate(table.columns):
        if name in groups.starts and name not in table.starts:
            before = counts.shape[axis]
            counts = groups.sums(name, counts, axis)
            cells *= before / counts.shape[axis]
    starts = {name: groups.starts[name] for name in table.columns if name in groups.starts}
    return NoisyTable(table.columns, counts, table.sigma * cells**0.5, starts)


def fine_columns(domain: Domain) -> list[ColumnDomain]:
    """The columns that a search may count on groups: public facts."""
    return [c for c in domain.columns if c.ranged and len(body_of(c)) > SETTINGS.few_coarse_bins]


def how_many(rows: float, sigma: float) -> int:
    """How many groups share the rows, where a table of pairs has noise `sigma` per cell.

    A test of trends has the noise of its groups, and groups of a column that explains a dependence
    leave some of it: about 1 / groups^2. Both errors are of one size where groups^3 grows with rows
    over noise [derived here: a trend that is seen with noise sigma groups / rows].

    >>> how_many(10_000, 46), how_many(100_000, 46)
    (7, 15)
    """
    wanted = math.floor(math.cbrt(rows / (SETTINGS.rows_per_noise * sigma)))
    return min(max(wanted, SETTINGS.min_groups), SETTINGS.max_groups)


def groups_by_noise(domain: Domain, margins: Sequence[NoisyTable], sigma: float) -> LevelGroups:
    """Groups of about equal mass by noisy `margins`; `sigma` is the noise of a cell of groups."""
    starts: dict[str, Starts] = {}
    for table in margins:
        (name,) = table.columns
        rows = max(1.0, float(table.counts.sum()))
        column = domain[name]
        margin = smoothing.margin_probabilities(column, table.counts / rows, table.sigma / rows)
        found = starts_of(column, margin, groups=how_many(rows, sigma))
        if len(found) < column.levels:
            starts[name] = found
    return LevelGroups(domain, starts)


# --- heaps: numbers that many rows have, as parts of the levels that hold them ---
#
# A bin's values are drawn evenly, and what is common among them is lost: round sums, a fee, the end
# of a scale. A private look tells such numbers with noisy counts
# (`privacy.mechanisms.frequent_texts`). All else here is post-processing of what it told.


def with_heaps(domain: Domain, told: NoisyTexts | None, tables: Sequence[NoisyTable]) -> Domain:
    """The domain whose columns know the heaps that were told, by noisy one-way `tables`."""
    if told is None:
        return domain
    columns = (
        _heaped(column, told.counts[column.name], smoothing.pooled(tables, (column.name,)))
        if told.counts.get(column.name)
        else column
        for column in domain.columns
    )
    return replace(domain, columns=tuple(columns))


def _heaped(column: ColumnDomain, counts: Mapping[str, int], levels: NoisyTable) -> ColumnDomain:
    """The column with its heaps. A level has at least the rows of its heaps.

    A heap's part of its level is its noisy count over the level's: both have noise, and the level's
    is drawn by a margin that is smoother, so that a heap has about the rows that were counted.
    """
    numbers = np.clip([*map(float, counts)], column.lower, column.upper)
    rows, level = np.array([*counts.values()], dtype=float), level_of(column, numbers)
    inside = level >= len(column.spikes)
    heaped = np.bincount(level[inside], rows[inside], minlength=column.levels)
    shares = rows / np.maximum(heaped, levels.counts)[level].clip(min=1.0)
    found = zip(level.tolist(), numbers.tolist(), shares.tolist(), strict=True)
    return replace(column, heaps=tuple(h for h, kept in zip(found, inside, strict=True) if kept))
