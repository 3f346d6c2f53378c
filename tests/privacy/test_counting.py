"""Counts of many tables at once: each is what its rows say, however tables share a joint one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.privacy.table import _joint, count_tables


def domain(sizes: list[int]) -> Domain:
    return Domain(
        tuple(
            ColumnDomain(f"c{i}", "categorical", tuple(map(str, range(size))), False)
            for i, size in enumerate(sizes)
        )
    )


def counted(codes: np.ndarray, columns: tuple[str, ...], own: Domain) -> np.ndarray:
    """Row by row."""
    table = np.zeros([own[c].levels for c in columns], dtype=np.int64)
    np.add.at(table, tuple(codes[:, own.index(c)] for c in columns), 1)
    return table


@pytest.mark.parametrize("rows", [0, 1, 300, 70_000])
@pytest.mark.parametrize("sizes", [[2] * 9, [3, 17, 2, 4, 300, 2, 5], [20] * 5])
def test_tables_of_any_columns_in_any_order(sizes: list[int], rows: int) -> None:
    rng, own = np.random.default_rng(3), domain(sizes)
    codes = np.column_stack([rng.integers(0, size, rows) for size in sizes]).astype(np.uint16)
    tables = [*combinations(own.names, 2), *((name,) for name in own.names)]
    tables += [tuple(rng.permutation(own.names)[:3]) for _ in range(6)]
    tables.sort(key=lambda table: rng.random())
    expected = [counted(codes, table, own) for table in tables]
    for given in (codes, iter(np.array_split(codes, 7))):
        for told, right in zip(count_tables(given, own, tables), expected, strict=True):
            assert told.dtype == np.int64 and np.array_equal(told, right)


def test_few_levels_share_a_table_and_few_rows_or_many_levels_do_not() -> None:
    pairs = list(combinations(range(16), 2))
    assert len(set(_joint(pairs, [2] * 16, rows=70_000))) == 3  # within a run, or between the two
    assert _joint(pairs, [2] * 16, rows=10) == pairs
    assert _joint(pairs, [17] * 16, rows=70_000) == pairs
    wide = list(combinations(range(200), 2))
    assert _joint(wide, [16] * 200, rows=70_000) == wide, "joint tables would take gigabytes"


def test_a_table_that_is_alone_in_its_runs_is_counted_by_itself() -> None:
    assert _joint([(9, 0), (3,)], [16] * 16, rows=70_000) == [(0, 9), (3,)]


def test_a_table_of_too_many_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="table c0, c1 has 9000000 cells"):
        count_tables(np.zeros((1, 2), dtype=np.uint16), domain([3000, 3000]), [("c0", "c1")])


def test_a_column_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="table c0, c0 names a column twice"):
        count_tables(np.zeros((1, 2), dtype=np.uint16), domain([3, 3]), [("c0", "c0")])
