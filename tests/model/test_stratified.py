"""Targets drawn evenly over rows that are alike: chances stay, neighbours even out."""

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import ColumnDomain
from synthdp.model import kd_tree_order, raked_probabilities, stratified_draw, stratified_uniforms
from synthdp.model.row_selection import MeasuredPair

COLUMNS = (
    ColumnDomain("a", "ordinal", tuple("01234567"), False),
    ColumnDomain("b", "categorical", ("p", "q", "r"), False),
    ColumnDomain("c", "categorical", ("u", "v"), False),
)


def rows(count: int, seed: int = 0) -> npt.NDArray[np.uint16]:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, c.levels, count) for c in COLUMNS]).astype(np.uint16)


def probabilities(count: int, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.ones(3), count)


def spread_of_stretches(
    levels: npt.NDArray[np.uint16], expected: npt.NDArray[np.float64], length: int
) -> float:
    """Root mean square of how far counts of levels are off, over all runs of `length` rows."""
    off = np.cumsum(np.eye(3)[levels] - expected, 0)
    return float(np.sqrt(np.square(off[length:] - off[:-length]).mean()))


def test_each_row_has_its_own_chances() -> None:
    rng, wanted = np.random.default_rng(1), probabilities(40)
    order = rng.permutation(40)
    drawn = np.stack([stratified_draw(wanted, order, rng=rng) for _ in range(4000)])
    shares = np.stack([(drawn == level).mean(0) for level in range(3)], 1)
    assert np.abs(shares - wanted).max() < 5 * 0.5 / 4000**0.5


def test_neighbours_have_as_many_of_a_level_as_their_chances_add_up_to() -> None:
    rng, wanted = np.random.default_rng(2), np.tile(probabilities(1), (5000, 1))
    order = rng.permutation(5000)
    drawn = stratified_draw(wanted, order, rng=rng)[order]
    coins = (rng.random((5000, 1)) > np.cumsum(wanted, 1)[:, :-1]).sum(1).astype(np.uint16)
    assert 2 * spread_of_stretches(drawn, wanted, 55) < spread_of_stretches(coins, wanted, 55)


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100, 1025])
def test_each_block_has_one_number_in_each_part_of_the_unit_interval(count: int) -> None:
    numbers = stratified_uniforms(count, rng=np.random.default_rng(count))
    assert numbers.shape == (count,)
    assert ((numbers >= 0) & (numbers < 1)).all()
    for length in (2, 4, 16, 64, 256):
        whole = count // length * length
        parts = np.sort((numbers[:whole] * length).astype(int).reshape(-1, length))
        assert np.array_equal(parts, np.tile(np.arange(length), (len(parts), 1)))


def test_one_target_says_nothing_of_another_that_has_the_same_causes() -> None:
    """Numbers that are shared, or shifted, would make two targets depend on each other."""
    rng, order = np.random.default_rng(4), np.random.default_rng(5).permutation(20_000)
    even = np.tile([[0.5, 0.5]], (20_000, 1))
    first, second = (stratified_draw(even, order, rng=rng) for _ in range(2))
    joint = np.bincount(2 * first + second, minlength=4) / 20_000
    assert np.abs(joint - 0.25).max() < 5 * (3 / 16 / 20_000) ** 0.5


def test_chances_need_not_add_up_to_one() -> None:
    wanted, order = probabilities(500), np.arange(500)
    first, second = (
        stratified_draw(k * wanted, order, rng=np.random.default_rng(3)) for k in (1.0, 7.0)
    )
    assert np.array_equal(first, second)


def test_the_order_holds_every_row_once_and_keeps_those_together_that_are_alike() -> None:
    table = rows(3000)
    order = kd_tree_order(table, COLUMNS)
    assert np.array_equal(np.sort(order), np.arange(3000))
    apart = np.mean([(table[order[:-1], c] != table[order[1:], c]).mean() for c in range(3)])
    by_chance = np.mean([(table[:-1, c] != table[1:, c]).mean() for c in range(3)])
    assert apart < 0.2 < 0.6 < by_chance


@pytest.mark.parametrize("table", [np.zeros((300, 3), np.uint16), rows(1), rows(3)])
def test_few_rows_and_rows_all_alike_have_an_order(table: npt.NDArray[np.uint16]) -> None:
    assert np.array_equal(np.sort(kd_tree_order(table, COLUMNS)), np.arange(len(table)))


@pytest.mark.parametrize("columns", [(0, 2), (2, 0)])
def test_chances_follow_the_margin_and_what_was_measured(columns: tuple[int, int]) -> None:
    """c is 0 or 1 at half of all rows; measured, it is 1 where a is 7, else rarer."""
    table = rows(4000)
    counts = np.full((8, 2), 400.0) + np.array([1, -1]) * 50
    counts[7] = [0, 500]
    share = counts / counts.sum(1, keepdims=True)
    expected = share[table[:, 0]].mean(0)
    measured = MeasuredPair(columns, counts if columns[0] == 0 else counts.T, 0.5)
    raked = raked_probabilities(
        np.full((4000, 2), 0.5),
        table,
        2,
        expected,
        [measured, MeasuredPair((0, 1), np.ones((8, 3)), 1.0)],
        (8, 3, 2),
    )
    np.testing.assert_allclose(raked.sum(1), 1)
    np.testing.assert_allclose(raked.mean(0), expected, atol=1e-3)
    got = np.stack([raked[table[:, 0] == level].mean(0) for level in range(8)])
    np.testing.assert_allclose(got, share, atol=0.01)


def test_without_tables_only_the_margin_is_met() -> None:
    wanted = probabilities(2000)
    raked = raked_probabilities(wanted, rows(2000), 2, np.array([0.6, 0.3, 0.1]), [], (8, 3, 3))
    np.testing.assert_allclose(raked.mean(0), [0.6, 0.3, 0.1], atol=1e-4)
    odds = (raked[:, 0] / raked[:, 1]) / (wanted[:, 0] / wanted[:, 1])
    np.testing.assert_allclose(odds, odds[0])  # all rows alike


def test_a_rare_cause_that_decides_a_target_is_believed_over_the_model() -> None:
    """The model gives 190 rare rows of 40,000 another level; the table hardly ever."""
    cause = np.zeros((40_000, 2), np.uint16)
    cause[:190, 0] = 1
    probabilities = np.where(cause[:, :1] == 1, [[0.25, 0.75]], [[0.8, 0.2]])
    margin = probabilities.mean(0)
    table = np.array([[0.8 * 39_810, 0.2 * 39_810], [-8.0, 200.0]])
    left = raked_probabilities(
        probabilities, cause, 1, margin, [MeasuredPair((0, 1), table, 20.0)], (2, 2)
    )[:190, 0].mean()
    assert left < 0.15
    hardly = MeasuredPair((0, 1), table, 200.0)  # noise that hides the rare level
    assert (
        raked_probabilities(probabilities, cause, 1, margin, [hardly], (2, 2))[:190, 0].mean() > 0.2
    )
