"""Columns that are missing together are found under noise, kept together, and others are not."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.graph import (
    Compared,
    likely_partners,
    missing_as_one,
    missing_groups,
    missing_together,
    one_way_probabilities,
)
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import pair_tables
from synthdp.privacy.mechanisms.marginals import NoisyTable

ROWS, SIGMA = 1600, 40.0
"""Noise as in surveys of 1,600 rows and 29 columns at epsilon 1."""
NAMES = ("a", "b", "c", "d", "e")
COLUMNS = [ColumnDomain(name, "categorical", ("x", "y", ""), True) for name in NAMES]
Levels = npt.NDArray[np.int64]


def rows_of(rng: np.random.Generator, *, together: bool) -> Levels:
    """a, b and c are missing together or each by itself; d is missing as often; e hardly ever."""
    rows = rng.integers(2, size=(ROWS, len(NAMES)))
    absent = rng.random(ROWS) < 0.3
    for i in range(3):
        rows[absent if together else rng.random(ROWS) < 0.3, i] = 2
    rows[rng.random(ROWS) < 0.3, 3] = 2
    return rows


def tables_of(rows: Levels, rng: np.random.Generator, *, sigma: float = SIGMA) -> list[NoisyTable]:
    """All columns alone, and all pairs."""
    tables = []
    for size in (1, 2):
        for places in combinations(range(len(NAMES)), size):
            cell = np.ravel_multi_index(tuple(rows[:, i] for i in places), (3,) * size)
            counts = np.bincount(cell, minlength=3**size).reshape((3,) * size)
            noisy = counts + rng.normal(0, sigma, counts.shape)
            tables.append(NoisyTable(tuple(NAMES[i] for i in places), noisy, sigma))
    return tables


def found(
    *, together: bool, runs: int = 50, sigma: float = SIGMA
) -> list[tuple[tuple[str, ...], ...]]:
    patterns = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        tables = tables_of(rows_of(rng, together=together), rng, sigma=sigma)
        patterns.append(missing_groups(tables, COLUMNS))
    return patterns


def test_what_is_missing_together_is_found() -> None:
    assert np.mean([p == (("a", "b", "c"),) for p in found(together=True)]) > 0.9


def test_what_is_not_missing_together_is_not() -> None:
    assert np.mean([p == () for p in found(together=False)]) > 0.9


def test_half_together_is_not_together() -> None:
    """b is missing where a is, and as often by itself."""
    found_ones = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rows = rows_of(rng, together=False)
        rows[:, 1] = np.where(rows[:, 1] == 2, 0, rows[:, 1])
        half = rng.random(ROWS) < 0.5
        rows[(rows[:, 0] == 2) & half, 1] = 2
        rows[(rows[:, 0] != 2) & (rng.random(ROWS) < 0.2), 1] = 2
        found_ones += bool(missing_groups(tables_of(rows, rng, sigma=20.0), COLUMNS))
    assert found_ones <= 3


def test_many_pairs_tell_together_what_none_of_them_does() -> None:
    """Four independent z-scores of 1.2 have a sum of deviation 2: together they are 2.4."""
    likely = {(a, b): Compared(0.1, 1.2) for a in "ab" for b in "cd"}
    assert not missing_together("a", "c", likely) and not missing_together("a", "cd", likely)
    assert missing_together("ab", "cd", likely)
    likely["b", "d"] = Compared(0.1, 0.3)  # 3.9 / 2
    assert not missing_together("ab", "cd", likely)


def test_a_pattern_has_one_share_and_no_mixed_cell() -> None:
    rng = np.random.default_rng(7)
    rows = rows_of(rng, together=True)
    tables = tables_of(rows, rng)
    margins = one_way_probabilities(tables, COLUMNS)
    assert margins[0][-1] == margins[1][-1] == margins[2][-1] != margins[3][-1]
    assert margins[0][-1] == pytest.approx((rows[:, 0] == 2).mean(), abs=0.03)
    assert all(m.sum() == pytest.approx(1.0) for m in margins)
    pairs = pair_tables(LevelLaw.of_tables(tables, Domain(tuple(COLUMNS))))
    assert pairs.patterns == (("a", "b", "c"),)
    for pair in (("a", "b"), ("a", "c"), ("b", "c")):
        assert pairs.pairs[pair].dependent
        table = pairs.table(*pair)
        assert table[-1, :-1].sum() < 1e-6 and table[:-1, -1].sum() < 1e-6


def test_each_missing_column_has_its_likeliest_partner() -> None:
    rng = np.random.default_rng(3)
    partners = likely_partners(tables_of(rows_of(rng, together=True), rng), COLUMNS)
    assert {name for pair in partners for name in pair} >= {"a", "b", "c", "d"}
    assert not any("e" in pair for pair in partners)


def test_no_table_and_no_missing_value_have_no_pattern() -> None:
    complete = [ColumnDomain(name, "categorical", ("x", "y", "z"), False) for name in NAMES]
    rng = np.random.default_rng(1)
    tables = tables_of(rows_of(rng, together=True), rng)
    assert missing_groups(tables, complete) == ()
    assert missing_groups([], COLUMNS) == () and likely_partners([], COLUMNS) == []


def test_as_one_keeps_what_is_known() -> None:
    table = np.array([[0.1, 0.2, 0.05], [0.3, 0.1, 0.05], [0.05, 0.05, 0.1]])
    one = missing_as_one(table, 0.3)
    assert one.sum() == pytest.approx(1.0) and one[-1, -1] == 0.3
    np.testing.assert_allclose(one[:2, :2], table[:2, :2])
