"""Total variation and association against closed forms, hand-made tables and a slow but obvious
reference.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import ColumnDomain, Domain
from synthdp.evaluate import fidelity as counting
from synthdp.evaluate.fidelity import (
    FidelitySettings,
    choose_triples,
    compare_pairs,
    count_tables,
    fidelity,
    nearest_distribution,
    noisy_tv1,
    sampling_distance,
    total_variation,
)


def domain(*sizes: int) -> Domain:
    return Domain(
        tuple(
            ColumnDomain(f"c{i}", "categorical", tuple(map(str, range(size))), False)
            for i, size in enumerate(sizes)
        )
    )


def codes(*rows: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rows, dtype=np.uint16)


def reference_tv(a: np.ndarray, b: np.ndarray, columns: tuple[int, ...]) -> float:
    def shares(table: np.ndarray) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for row in table:
            key = tuple(int(row[c]) for c in columns)
            found[key] = found.get(key, 0.0) + 1 / len(table)
        return found

    p, q = shares(a), shares(b)
    return sum(abs(p.get(k, 0.0) - q.get(k, 0.0)) for k in {*p, *q}) / 2


def reference_v(table: np.ndarray, i: int, j: int) -> float:
    """Bergsma's corrected V from the table of counts, as its paper writes it."""
    levels = [np.unique(table[:, c], return_inverse=True) for c in (i, j)]
    r, c = (len(values) for values, _ in levels)
    counts = np.zeros((r, c))
    np.add.at(counts, (levels[0][1], levels[1][1]), 1)
    n = counts.sum()
    expected = np.outer(counts.sum(1), counts.sum(0)) / n
    phi2 = max(0.0, ((counts - expected) ** 2 / expected).sum() / n - (r - 1) * (c - 1) / (n - 1))
    room = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    return float(np.sqrt(phi2 / room)) if min(r, c) > 1 else 0.0


def test_hand_table() -> None:
    real = codes((0, 0), (0, 0), (1, 1), (1, 1))
    synthetic = codes((0, 0), (0, 1), (1, 0), (1, 1))
    report = fidelity(real, synthetic, domain(2, 2))
    assert report.by_column == {"c0": 0.0, "c1": 0.0}
    np.testing.assert_array_equal(report.pairs, [[0, 0.5], [0.5, 0]])
    assert (report.tv1, report.tv2, report.tv3) == (0.0, 0.5, None)
    np.testing.assert_allclose(report.shares_real["c0"], [0.5, 0.5])


def test_disjoint_tables_are_at_distance_one() -> None:
    report = fidelity(codes((0, 0, 0)), codes((1, 1, 1), (1, 1, 1)), domain(2, 2, 2))
    assert (report.tv1, report.tv2, report.tv3) == (1.0, 1.0, 1.0)


def test_row_order_and_replication_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(0, 4, size=(300, 3)).astype(np.uint16)
    report = fidelity(table, np.concatenate([table, table])[rng.permutation(600)], domain(4, 4, 4))
    assert max(report.tv1, report.tv2 or 0, report.tv3 or 0) < 1e-12
    permuted = fidelity(table, table[rng.permutation(300)], domain(4, 4, 4))
    np.testing.assert_allclose(permuted.association_difference, 0, atol=1e-12)


@pytest.mark.parametrize(
    "limits", [{"max_cells": 1}, {"max_cells": 21, "max_keys": 5}, {"max_keys": 1}]
)
def test_pairs_in_small_blocks_of_cells_and_rows_agree_with_the_reference(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "SETTINGS", FidelitySettings(**limits))
    rng = np.random.default_rng(8)
    sizes = (3, 1, 5, 2, 4)
    a, b = (
        np.column_stack([rng.integers(0, s, size=n) for s in sizes]).astype(np.uint16)
        for n in (83, 61)
    )
    found = compare_pairs(a, b, sizes)
    for i, j in combinations(range(5), 2):
        assert (
            found.variation[i, j]
            == found.variation[j, i]
            == pytest.approx(reference_tv(a, b, (i, j)))
        )
        for matrix, table in zip(found.association, (a, b), strict=True):
            assert matrix[i, j] == matrix[j, i] == pytest.approx(reference_v(table, i, j))


def test_levels_that_do_not_occur_change_nothing_and_the_tables_stay_as_they_are() -> None:
    rng = np.random.default_rng(9)
    a, b = (
        np.asfortranarray(10 * rng.integers(0, 4, size=(n, 3)).astype(np.uint16) + 7)
        for n in (50, 40)
    )
    before = a.copy(), b.copy()
    wide, narrow = compare_pairs(a, b, (99, 99, 99)), compare_pairs(a // 10, b // 10, (4, 4, 4))
    np.testing.assert_array_equal(wide.variation, narrow.variation)
    np.testing.assert_array_equal(wide.association, narrow.association)
    assert (a == before[0]).all() and (b == before[1]).all()


@pytest.mark.parametrize("dense", [FidelitySettings().dense_cells, 0, 20])
def test_dense_and_sparse_agree_with_the_reference(
    dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "SETTINGS", FidelitySettings(dense_cells=dense))
    rng = np.random.default_rng(2)
    sizes = (3, 5, 2, 4)
    real, synthetic = (
        np.column_stack([rng.integers(0, s, size=n) for s in sizes]).astype(np.uint16)
        for n in (83, 61)
    )
    report = fidelity(real, synthetic, domain(*sizes), triples=4)
    for i, j in combinations(range(4), 2):
        assert (
            report.pairs[i, j]
            == report.pairs[j, i]
            == pytest.approx(reference_tv(real, synthetic, (i, j)))
        )
    for names, value in report.by_triple.items():
        assert value == pytest.approx(
            reference_tv(real, synthetic, tuple(int(n[1]) for n in names))
        )
    assert report.tv1 == pytest.approx(
        np.mean([reference_tv(real, synthetic, (i,)) for i in range(4)])
    )
    np.testing.assert_allclose(
        report.shares_synthetic["c1"], np.bincount(synthetic[:, 1], minlength=5) / 61
    )


def test_dense_and_sparse_tables_compare_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = codes((0, 1), (2, 1)), codes((0, 1), (1, 1))
    dense = count_tables(a, (3, 2), [(0, 1)])[0]
    monkeypatch.setattr(counting, "SETTINGS", FidelitySettings(dense_cells=0))
    sparse = count_tables(b, (3, 2), [(0, 1)])[0]
    assert dense.keys is None and sparse.keys is not None
    assert total_variation(dense, sparse) == total_variation(sparse, dense) == 0.5


def test_large_triples_stay_small() -> None:
    table = np.random.default_rng(4).integers(0, 4096, size=(500, 3)).astype(np.uint16)
    counted = count_tables(table, (4096, 4096, 4096), [(0, 1, 2)])[0]
    assert counted.keys is not None and len(counted.keys) <= 500 and counted.total == 500


def test_the_floor_is_that_of_two_samples_whichever_is_the_larger() -> None:
    law = np.full(10, 0.1)
    both = sampling_distance(law, 1000, 4000), sampling_distance(law, 4000, 1000)
    assert both == pytest.approx((sampling_distance(law, 1600, 1600),) * 2)


def test_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        fidelity(np.zeros((0, 2), np.uint16), codes((0, 0)), domain(2, 2))


def test_triples_are_public_distinct_and_capped() -> None:
    assert choose_triples(14, 64) == choose_triples(14, 64)
    assert len(set(choose_triples(14, 64))) == 64
    assert choose_triples(4, 64) and len(choose_triples(4, 64)) == 4
    assert choose_triples(2, 64) == []
    many = choose_triples(200, 50)
    assert len(set(many)) == 50 and all(i < j < k < 200 for i, j, k in many)


# --- association ---


def test_association_of_copies_is_one_and_of_independent_columns_near_zero() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 4, size=4000), rng.integers(0, 6, size=4000)
    table = np.column_stack([a, a, b]).astype(np.uint16)
    matrix = fidelity(table, table, domain(4, 4, 6)).association_real
    assert matrix[0, 1] == pytest.approx(1.0, abs=1e-9)
    assert matrix[0, 2] < 0.05
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.diag(matrix), 1)


def test_cramers_v_by_hand() -> None:
    # [[30, 10], [10, 30]]: chi² = 80 * .25 = 20, phi² = .25; corrected (.25 - 1/79) / (2 - 1/79 -
    # 1)
    rows = [(0, 0)] * 30 + [(0, 1)] * 10 + [(1, 0)] * 10 + [(1, 1)] * 30
    found = compare_pairs(codes(*rows), codes((0, 0)), (2, 2))
    assert found.association[0][0, 1] == pytest.approx(np.sqrt((0.25 - 1 / 79) / (1 - 1 / 79)))
    assert found.association[1][0, 1] == 0.0  # one row


def test_a_constant_column_has_no_association() -> None:
    table = codes((0, 0), (0, 1), (0, 1))
    assert compare_pairs(table, table[:, ::-1], (2, 2)).association[0][0, 1] == 0.0


# --- against released tables ---


@dataclass(frozen=True)
class Released:
    columns: tuple[str, ...]
    counts: np.ndarray


def test_noisy_tv1_by_hand_and_only_one_way() -> None:
    synthetic = codes((0, 0), (0, 0), (0, 1), (1, 1))
    tables = [
        Released(("c0",), np.array([50, 50])),  # synthetic .75 / .25
        Released(("c1",), np.array([10, 10])),  # synthetic .5 / .5
        Released(("c0", "c1"), np.array([[1, 0], [0, 1]])),
    ]
    assert noisy_tv1(synthetic, tables, domain(2, 2)) == pytest.approx(0.125)
    with pytest.raises(ValueError, match="1-way"):
        noisy_tv1(synthetic, tables[2:], domain(2, 2))


def test_noise_in_empty_cells_takes_no_mass_from_the_others() -> None:
    # Clipping alone would give the first cell 100 / 115.
    np.testing.assert_allclose(
        nearest_distribution(np.array([100, 8, -10, 7, -5])), [1, 0, 0, 0, 0], atol=0.06
    )
    np.testing.assert_allclose(nearest_distribution(np.array([3, 1])), [0.75, 0.25])
    np.testing.assert_allclose(nearest_distribution(np.array([-3, 1, -2, 0])), np.full(4, 0.25))


@given(st.lists(st.integers(-50, 200), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_nearest_distribution_is_one_and_nothing_nearer_is(counts: list[int]) -> None:
    noisy = np.asarray(counts)
    shares = nearest_distribution(noisy)
    assert shares.min() >= 0 and shares.sum() == pytest.approx(1)
    if noisy.sum() > 0:
        aim = noisy / noisy.sum()
        other = np.random.default_rng(0).dirichlet(np.ones(len(noisy)), size=50)
        assert (((other - aim) ** 2).sum(axis=1) >= ((shares - aim) ** 2).sum() - 1e-9).all()
