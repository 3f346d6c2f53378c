"""Groups of levels on which a search counts ordered columns of many levels.

A cell of a table of two fine columns is mostly noise. How fine is fine enough follows from the
noise, which is public, and from the columns' own noisy tables, a first round of the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.graph.margin_smoothing import body_of, margin_probabilities
from synthdp.graph.prediction.groups import starts_of
from synthdp.privacy.mechanisms.marginals import NoisyTable

FEW_BINS = 8
"""Up to so many bins stay as they are."""
MIN_GROUPS, MAX_GROUPS = 5, 16
ROWS_PER_NOISE = 0.6
"""Rows over noise of a cell and groups cubed."""


def fine_columns(domain: Domain) -> list[ColumnDomain]:
    """The columns that a search may count on groups: public facts."""
    return [c for c in domain.columns if c.ranged and len(body_of(c)) > FEW_BINS]


def how_many(rows: float, sigma: float) -> int:
    """How many groups share the rows, where a table of pairs has noise `sigma` per cell.

    A test of trends has the noise of its groups, and groups of a column that explains a dependence
    leave some of it: about 1 / groups^2. Both errors are of one size where groups^3 grows with rows
    over noise [derived here: a trend that is seen with noise sigma groups / rows].

    >>> how_many(10_000, 46), how_many(100_000, 46)
    (7, 15)
    """
    wanted = math.cbrt(rows / (ROWS_PER_NOISE * sigma))
    return min(max(math.floor(wanted), MIN_GROUPS), MAX_GROUPS)


def groups_by_noise(domain: Domain, margins: Sequence[NoisyTable], sigma: float) -> LevelGroups:
    """Groups of about equal mass of the columns with noisy `margins`.

    `sigma` is the noise of a cell in the tables that are counted on the groups.
    """
    starts: dict[str, Starts] = {}
    for table in margins:
        (name,) = table.columns
        rows = max(1.0, float(table.counts.sum()))
        column = domain[name]
        margin = margin_probabilities(column, table.counts / rows, table.sigma / rows)
        found = starts_of(column, margin, groups=how_many(rows, sigma))
        if len(found) < column.levels:
            starts[name] = found
    return LevelGroups(domain, starts)
