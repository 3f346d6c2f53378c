"""The levels by which the columns of two bundles can be compared: equal ones, or common bins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.level_groups import Starts


@dataclass(frozen=True)
class CommonLevels:
    """Columns of two domains by what their levels have in common.

    `alike` have the same levels, `merged` are ranges that are compared on the bins that begin in
    both, `apart` are columns of both whose levels have too little in common. `starts` has the first
    level of each common bin of the merged columns, of both domains.
    """

    alike: tuple[str, ...]
    merged: tuple[str, ...]
    apart: tuple[str, ...]
    starts: dict[str, tuple[Starts, Starts]]


def common_levels(a: Domain, b: Domain) -> CommonLevels:
    """What two domains have in common.

    >>> from synthdp.spec.model import Integer
    >>> whole = {"type": "integer", "lower": 0, "upper": 99}
    >>> ages = [Integer(**whole, edges=edges) for edges in ((0, 20, 40, 60), (0, 40, 50, 60))]
    >>> common_levels(*(Domain.from_spec({"age": age}) for age in ages)).starts
    {'age': ((0, 2, 3), (0, 1, 3))}
    """
    both = [name for name in a.names if name in b.names]
    alike = tuple(name for name in both if a[name] == b[name])
    starts = {
        name: found for name in both if name not in alike and (found := _starts(a[name], b[name]))
    }
    rest = tuple(name for name in both if name not in alike and name not in starts)
    return CommonLevels(alike, tuple(starts), rest, starts)


def _starts(one: ColumnDomain, other: ColumnDomain) -> tuple[Starts, Starts] | None:
    """First levels of the common groups of two ranges; None where they have no two bins alike."""
    shared = set(one.edges) & set(other.edges)
    if not one.ranged or _without_bins(one) != _without_bins(other) or len(shared) < 2:
        return None
    return _begins(one, shared), _begins(other, shared)


def _without_bins(column: ColumnDomain) -> ColumnDomain:
    return replace(column, edges=(), labels=(), grouped=False)


def _begins(column: ColumnDomain, shared: set[float]) -> Starts:
    spikes = len(column.spikes)
    bins = [spikes + i for i, edge in enumerate(column.edges) if edge in shared]
    missing = [] if column.missing_level is None else [column.missing_level]
    return (*range(spikes), *bins, *missing)
