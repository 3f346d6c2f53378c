"""Counts of many tables at once: each is what its rows say, however tables share a joint one."""

from itertools import combinations

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.privacy import table
from synthdp.privacy.table import _joint, count_tables
from tests.privacy.conftest import make_domain


def counted(codes: np.ndarray, columns: tuple[str, ...], own: Domain) -> np.ndarray:
    """Row by row."""
    found = np.zeros([own[c].levels for c in columns], dtype=np.int64)
    np.add.at(found, tuple(codes[:, own.index(c)] for c in columns), 1)
    return found


@pytest.mark.parametrize("rows", [0, 1, 300, 70_000])
@pytest.mark.parametrize("sizes", [[2] * 9, [3, 17, 2, 4, 300, 2, 5], [20] * 5])
def test_tables_of_any_columns_in_any_order(
    sizes: list[int], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of any size and type, and of several chunks."""
    monkeypatch.setattr(table, "CHUNK_ROWS", 64 if rows < 1000 else table.CHUNK_ROWS)
    rng, own = np.random.default_rng(3), make_domain(*sizes)
    codes = np.column_stack([rng.integers(0, size, rows) for size in sizes]).astype(np.uint16)
    tables = [*combinations(own.names, 2), *((name,) for name in own.names)]
    tables += [tuple(rng.permutation(own.names)[:3]) for _ in range(6)]
    tables.sort(key=lambda _: rng.random())
    expected = [counted(codes, columns, own) for columns in tables]
    narrow = codes.astype(np.uint8) if max(sizes) <= 256 else codes
    for given in (codes, iter(np.array_split(codes, 7)), iter(np.array_split(narrow, 5))):
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
    with pytest.raises(ValueError, match="table a, b has 9000000 cells; at most"):
        count_tables(np.zeros((1, 2), dtype=np.uint16), make_domain(3000, 3000), [("a", "b")])


def test_a_column_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="table a, a names a column twice"):
        count_tables(np.zeros((1, 2), dtype=np.uint16), make_domain(3, 3), [("a", "a")])


def test_cells_of_the_widest_levels_do_not_overflow() -> None:
    codes = np.array([[4095, 999], [4095, 999], [0, 999]], dtype=np.uint16)
    (found,) = count_tables(codes, make_domain(4096, 1000), [("a", "b")])
    assert found[4095, 999] == 2 and found[0, 999] == 1 and found.sum() == 3
