"""Balanced samples: nearer to the pool's tables than independent draws, of its rows."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.model import row_selection as balance
from synthdp.model.row_selection import MeasuredPair, balanced, blended, measured_pairs
from synthdp.privacy.mechanisms.marginals import NoisyTable

SIZES, POOL, ROWS = (6, 5, 4, 8), 24_000, 3000


def limited(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    settings = replace(balance.SETTINGS, **limits)  # type: ignore[arg-type]
    monkeypatch.setattr(balance, "SETTINGS", settings)


@cache
def pool() -> npt.NDArray[np.uint16]:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 6, POOL)
    b = (a + rng.integers(0, 3, POOL)) % 5
    c = np.minimum(a, rng.integers(0, 4, POOL)) % 4
    return np.column_stack([a, b, c, rng.integers(0, 8, POOL)]).astype(np.uint16)


@cache
def plain() -> npt.NDArray[np.uint16]:
    """Rows that follow the pool alone."""
    return balanced(pool(), np.ones(POOL), SIZES, rows=ROWS, rng=np.random.default_rng(10))


def two_way_error(codes: npt.NDArray[np.uint16], weights: npt.NDArray[np.float64]) -> float:
    """Mean total variation of the two-way tables of `codes` from those of the weighted pool."""
    errors = []
    for i, j in itertools.combinations(range(4), 2):
        cells = SIZES[i] * SIZES[j]
        of = [
            np.bincount(t[:, i].astype(int) * SIZES[j] + t[:, j], weights=w, minlength=cells)
            for t, w in ((codes, None), (pool(), weights))
        ]
        errors.append(float(np.abs(of[0] / of[0].sum() - of[1] / of[1].sum()).sum()) / 2)
    return float(np.mean(errors))


@pytest.mark.parametrize("weighted", [False, True])
def test_tables_are_nearer_than_those_of_independent_draws(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    weights = np.where(pool()[:, 0] == 1, 3.0, 1.0) if weighted else np.ones(POOL)
    independent = pool()[rng.choice(POOL, ROWS, p=weights / weights.sum())]
    chosen = balanced(pool(), weights, SIZES, rows=ROWS, rng=rng)
    assert chosen.shape == (ROWS, 4) and chosen.dtype == np.uint16
    assert two_way_error(chosen, weights) < 0.35 * two_way_error(independent, weights)


def test_only_rows_of_the_pool_are_returned() -> None:
    drawn = pool()[:500]
    chosen = balanced(drawn, np.ones(500), SIZES, rows=200, rng=np.random.default_rng(3))
    assert {tuple(row) for row in chosen} <= {tuple(row) for row in drawn}


def test_tables_that_are_not_held_are_not_spoiled() -> None:
    """Three-way tables are no further away than those of independent draws."""
    independent = pool()[np.random.default_rng(4).choice(POOL, ROWS)]

    def cells(codes: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
        return np.bincount(
            codes[:, 0].astype(int) * 20 + codes[:, 1] * 4 + codes[:, 2], minlength=120
        ) / len(codes)

    assert (
        np.abs(cells(plain()) - cells(pool())).sum()
        < np.abs(cells(independent) - cells(pool())).sum()
    )


def test_two_samples_differ_and_one_column_needs_no_pairs() -> None:
    one = pool()[:, :1]
    assert balanced(
        one, np.ones(POOL), SIZES[:1], rows=100, rng=np.random.default_rng(5)
    ).shape == (100, 1)
    first, second = (
        balanced(pool(), np.ones(POOL), SIZES, rows=100, rng=np.random.default_rng(s))
        for s in (6, 7)
    )
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(("limit", "most"), [("max_pairs", 2), ("max_cells", 60)])
def test_of_many_columns_a_part_of_the_pairs_is_held(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, **{limit: most})
    chosen = balanced(pool(), np.ones(POOL), SIZES, rows=ROWS, rng=np.random.default_rng(8))
    everything = two_way_error(chosen, np.ones(POOL))
    monkeypatch.undo()
    assert two_way_error(plain(), np.ones(POOL)) < everything


def test_a_round_looks_at_no_more_cells_than_memory_is_meant_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps grow while they help: in wide tables to gigabytes, without a limit."""
    looked, sums = list[int](), balance._Cells.sums
    monkeypatch.setattr(
        balance._Cells,
        "sums",
        lambda self, v, rows: (looked.append(len(rows)), sums(self, v, rows))[1],
    )
    limited(monkeypatch, faster=4.0)

    def chosen(most: int) -> npt.NDArray[np.uint16]:
        looked.clear()
        limited(monkeypatch, max_looked_up=most * 6)  # there are six pairs of columns
        return balanced(pool(), np.ones(POOL), SIZES, rows=ROWS, rng=np.random.default_rng(5))

    free = two_way_error(chosen(ROWS), np.ones(POOL))
    assert max(looked) > 700
    held = two_way_error(chosen(600), np.ones(POOL))
    assert max(looked) <= 600 and held < 1.3 * free


def test_measured_pairs_are_held_whatever_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, max_cells=0)
    drawn, table = pool(), MeasuredPair((3, 0), np.full((8, 6), ROWS / 48), 1.0)
    chosen = balanced(
        drawn, np.ones(POOL), SIZES, rows=ROWS, rng=np.random.default_rng(13), measured=[table]
    )
    assert np.abs(table_of(chosen, 3, 0) - ROWS / 48).mean() < 3
    assert balanced(
        drawn, np.ones(POOL), SIZES, rows=ROWS, rng=np.random.default_rng(14)
    ).shape == (ROWS, 4)


def table_of(codes: npt.NDArray[np.uint16], i: int, j: int) -> npt.NDArray[np.float64]:
    return (
        np.bincount(codes[:, i].astype(int) * SIZES[j] + codes[:, j], minlength=SIZES[i] * SIZES[j])
        .reshape(SIZES[i], SIZES[j])
        .astype(float)
    )


@pytest.mark.parametrize(("i", "j"), [(1, 3), (3, 1)])
def test_a_measured_table_is_followed_where_the_pool_is_wrong(i: int, j: int) -> None:
    """Columns 1 and 3 are independent in the pool; what was measured says otherwise."""
    truth = table_of(pool(), i, j) * ROWS / POOL
    truth[0] *= np.linspace(0.5, 1.5, SIZES[j])
    truth[1] *= np.linspace(1.5, 0.5, SIZES[j])
    truth *= ROWS / truth.sum()
    noisy = MeasuredPair((i, j), truth + np.random.default_rng(9).normal(0, 2, truth.shape), 2.0)
    chosen = balanced(
        pool(), np.ones(POOL), SIZES, rows=ROWS, rng=np.random.default_rng(10), measured=[noisy]
    )
    assert (
        np.abs(table_of(chosen, i, j) - truth).sum()
        < 0.5 * np.abs(table_of(plain(), i, j) - truth).sum()
    )


def noisy(columns: str, counts: npt.NDArray[np.float64], sigma: float) -> NoisyTable:
    return NoisyTable(tuple(columns), counts, sigma)


def test_every_table_of_two_columns_or_more_speaks_of_its_pairs_by_its_precision() -> None:
    rng = np.random.default_rng(15)
    truth = rng.integers(50, 500, (3, 4, 5)).astype(float)  # columns a, b, c
    tables = [
        noisy("cab", truth.transpose(2, 0, 1) + rng.normal(0, 1, (5, 3, 4)), 1.0),
        noisy("ba", truth.sum(2).T + rng.normal(0, 2, (4, 3)), 2.0),
        noisy("a", truth.sum((1, 2)), 1.0),
    ]
    found = {m.columns: m for m in measured_pairs(tables, "abc")}
    assert set(found) == {(0, 1), (0, 2), (1, 2)}
    assert found[0, 1].sigma == pytest.approx((1 / 5 + 1 / 4) ** -0.5) and found[
        0, 2
    ].sigma == pytest.approx(2.0)
    from_three, from_two = tables[0].counts.sum(0), tables[1].counts.T
    np.testing.assert_allclose(
        found[0, 1].counts, (from_three / 5 + from_two / 4) / (1 / 5 + 1 / 4)
    )
    np.testing.assert_allclose(found[1, 2].counts, tables[0].counts.sum(1).T)
    for pair, axis in (((0, 1), 2), ((0, 2), 1), ((1, 2), 0)):
        assert np.abs(found[pair].counts - truth.sum(axis)).max() < 5 * found[pair].sigma


def test_of_many_measured_pairs_the_most_precise_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [
        noisy("ab", np.ones((3, 4)), 3.0),
        noisy("cb", np.ones((5, 4)), 1.0),
        noisy("ca", np.ones((5, 3)), 2.0),
    ]
    limited(monkeypatch, max_cells=40)
    assert [m.columns for m in measured_pairs(tables, "abc")] == [(1, 2), (0, 2)]
    limited(monkeypatch, max_pairs=1)
    assert [m.columns for m in measured_pairs(tables, "abc")] == [(1, 2)]
    assert measured_pairs([noisy("a", np.ones(3), 1.0)], "abc") == []


def test_blend_is_nearer_the_truth_than_model_and_measurement() -> None:
    rng = np.random.default_rng(11)
    truth = rng.dirichlet(np.full(200, 2.0)).reshape(10, 20) * 10_000
    errors: dict[str, list[float]] = {"model": [], "noisy": [], "both": []}
    for _ in range(30):
        model = np.maximum(truth + np.sqrt(4 * truth) * rng.standard_normal(truth.shape), 0)
        model *= 10_000 / model.sum()
        noisy = truth + rng.normal(0, 14, truth.shape)
        mixed = blended(model, MeasuredPair((0, 1), noisy, 14.0))
        assert mixed.min() >= 0 and mixed.sum() == pytest.approx(10_000)
        for name, table in (("model", model), ("noisy", noisy), ("both", mixed)):
            errors[name].append(float(np.abs(table - truth).sum()))
    means = {name: np.mean(values) for name, values in errors.items()}
    assert means["both"] < 0.85 * min(means["model"], means["noisy"])


def test_a_table_that_its_noise_drowns_says_nothing() -> None:
    """Its counts may sum to less than nothing, and its cells all lie below zero."""
    model, rng = np.full((2, 2), 5.0), np.random.default_rng(16)
    found = [
        blended(model, MeasuredPair((0, 1), model + rng.normal(0, 100, (2, 2)), 100.0))
        for _ in range(400)
    ]
    assert all(counts.min() >= 0 and counts.sum() == pytest.approx(20) for counts in found)
    assert sum(np.array_equal(counts, model) for counts in found) >= 395
    only_where_the_model_has_nothing = MeasuredPair(
        (0, 1), np.array([[-40.0, 900.0], [-40.0, 0.0]]), 1.0
    )
    assert blended(
        np.array([[10.0, 0.0], [10.0, 0.0]]), only_where_the_model_has_nothing
    ).sum() == pytest.approx(20)


def test_rows_keep_their_margins_where_a_measured_pair_has_others() -> None:
    """A pair whose noise moved a whole row of its table moves no margin of the chosen rows."""
    rng = np.random.default_rng(19)
    pool = rng.integers(0, (3, 4), (30_000, 2)).astype(np.uint16)
    counts = np.full((3, 4), 500.0) + np.array([[400.0], [-200.0], [-200.0]])
    table = MeasuredPair((0, 1), counts, 100.0)
    chosen = balanced(pool, np.ones(30_000), (3, 4), rows=6000, rng=rng, measured=[table])
    shares = np.bincount(chosen[:, 0], minlength=3) / 6000
    np.testing.assert_allclose(shares, np.bincount(pool[:, 0]) / 30_000, atol=0.005)


def test_a_model_that_noise_explains_is_left_alone() -> None:
    truth = np.full((4, 5), 500.0)
    noisy = truth + np.random.default_rng(12).normal(0, 300, truth.shape) * 0.5
    np.testing.assert_allclose(blended(truth, MeasuredPair((0, 1), noisy, 300.0)), truth)
