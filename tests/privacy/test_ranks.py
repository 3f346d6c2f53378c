"""Rank statistics are what they say; no row moves them beyond the charge, some come close."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from synthdp.privacy import (
    STATISTICS,
    STEPS,
    VARIANCE_STEPS,
    MeasuredRanks,
    RankQuery,
    RankTest,
    level,
    level_moves,
    variance_floor,
)

Ints = npt.NDArray[np.int64]
TESTS: tuple[RankTest, ...] = ("kendall", "spearman")
ALL = slice(None)


def measure(
    test: RankTest, table: Ints, present: tuple[slice, slice] = (ALL, ALL)
) -> MeasuredRanks:
    return STATISTICS[test].measure(table, present=present)


def table_of(x: Ints, y: Ints, z: Ints, *sizes: int) -> Ints:
    table = np.zeros(sizes, dtype=np.int64)
    np.add.at(table, (z, x, y), 1)
    return table


def naive(test: RankTest, x: Ints, y: Ints, *, missing: int | None = None) -> float:
    """The score of one stratum by its definition, pair by pair."""
    there = (x != missing) & (y != missing) if missing is not None else np.ones(len(x), dtype=bool)
    s = np.sign(x[:, None] - x[None, :]) * (there[:, None] & there[None, :])
    t = np.sign(y[:, None] - y[None, :]) * (there[:, None] & there[None, :])
    n = len(x)
    if test == "kendall":
        return 9 * (s * t).sum() / 2 / (2 * n + 5)
    return 3 * (s.sum(1) * t.sum(1)).sum() / (n * (n + 1))


@pytest.mark.parametrize("test", TESTS)
def test_scores_are_their_definitions(test: RankTest) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = int(rng.integers(1, 40))
        x, y, z = rng.integers(0, 4, n), rng.integers(0, 3, n), rng.integers(0, 3, n)
        got = measure(test, table_of(x, y, z, 3, 4, 3))
        wanted = [naive(test, x[z == k], y[z == k]) for k in range(3) if (z == k).any()]
        sizes = np.bincount(z)
        weights = np.maximum(sizes - 1, 0)
        if test == "kendall":
            weights = 9 * sizes * (sizes - 1) / (4 * sizes + 10)
        assert got.score == sum(math.floor(round(STEPS * w, 9)) for w in wanted)
        assert got.weight == np.floor(np.round(STEPS * weights, 9)).sum()


def test_scores_are_the_textbooks() -> None:
    """Without ties tau-a and rho are those of any library."""
    rng = np.random.default_rng(1)
    n = 60
    x, y = rng.permutation(n), rng.permutation(n)
    table = table_of(x, y, np.zeros(n, dtype=int), 1, n, n)
    tau, rho = stats.kendalltau(x, y).statistic, stats.spearmanr(x, y).statistic
    assert measure("kendall", table).score / STEPS == pytest.approx(
        9 * tau * n * (n - 1) / 2 / (2 * n + 5), abs=1 / STEPS
    )
    assert measure("spearman", table).score / STEPS == pytest.approx((n - 1) * rho, abs=1 / STEPS)


@pytest.mark.parametrize("test", TESTS)
def test_missing_values_are_tied_with_all(test: RankTest) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    present = (slice(3), slice(3))
    got = measure(test, table_of(x, y, np.zeros(50, dtype=int), 1, 4, 4), present)
    if test == "kendall":
        assert got.score == math.floor(STEPS * naive(test, x, y, missing=3))
    assert got.weight == measure(test, table_of(x, y, np.zeros(50, dtype=int), 1, 4, 4)).weight


@pytest.mark.parametrize("test", TESTS)
def test_huge_counts_do_not_overflow(test: RankTest) -> None:
    n = 2_000_000_000
    got = measure(test, np.array([[[n // 2, 0], [0, n // 2]]]))
    ratio = {"kendall": 9 / 8, "spearman": 3 / 4}[test]
    assert got.score == pytest.approx(STEPS * ratio * n, rel=1e-6)
    assert got.variance == pytest.approx(
        VARIANCE_STEPS * STATISTICS[test].per_row * (3 / 4) ** 2 * n, rel=1e-6
    )


@pytest.mark.parametrize("test", TESTS)
def test_the_variance_is_that_of_shuffled_columns(test: RankTest) -> None:
    rng = np.random.default_rng(3)
    n = 300
    x, y = rng.binomial(1, 0.1, n), rng.choice(4, n, p=[0.6, 0.2, 0.15, 0.05])
    zero = np.zeros(n, dtype=int)
    scores = [
        measure(test, table_of(rng.permutation(x), y, zero, 1, 2, 4)).score / STEPS
        for _ in range(3000)
    ]
    claimed = measure(test, table_of(x, y, zero, 1, 2, 4)).variance / VARIANCE_STEPS
    assert np.var(scores) == pytest.approx(claimed, rel=0.12)
    assert claimed < 0.5 * measure(test, table_of(x, y, zero, 1, 2, 4)).weight / STEPS, (
        "ties must count"
    )


# --- how far one row moves them ---


def moves(
    test: RankTest,
    table: Ints,
    cell: tuple[int, int, int],
    present: tuple[slice, slice] = (ALL, ALL),
) -> tuple[int, int, int]:
    """What one more row in a cell changes."""
    more = table.copy()
    more[cell] += 1
    one, two = measure(test, table, present), measure(test, more, present)
    assert two.weight >= one.weight, "a replaced row would move it by two bounds"
    score, weight = abs(two.score - one.score), abs(two.weight - one.weight)
    return score, weight, abs(two.variance - one.variance)


def small_tables() -> Iterator[Ints]:
    """Every table of up to four rows over 3 x 3 levels, and of up to three over two strata."""
    for rows in range(5):
        for cells in itertools.combinations_with_replacement(range(9), rows):
            yield np.bincount(np.array(cells, dtype=int), minlength=9).reshape(1, 3, 3)
    for rows in range(4):
        for cells in itertools.combinations_with_replacement(range(8), rows):
            yield np.bincount(np.array(cells, dtype=int), minlength=8).reshape(2, 2, 2)


def climb(
    objective: Callable[[Ints], int],
    rng: np.random.Generator,
    *,
    rows: int,
    levels: int,
    steps: int,
) -> int:
    """The largest change that moving rows about finds, a few at a time, from a random table."""
    table = np.bincount(rng.integers(0, levels * levels, rows), minlength=levels * levels)
    best = objective(table.reshape(1, levels, levels))
    for _ in range(steps):
        source, target = rng.choice(np.flatnonzero(table)), rng.integers(0, len(table))
        some = int(rng.integers(1, table[source] + 1))
        changed = table.copy()
        changed[source] -= some
        changed[target] += some
        found = objective(changed.reshape(1, levels, levels))
        if found >= best:
            table, best = changed, found
    return best


@pytest.mark.check
@pytest.mark.parametrize("test", TESTS)
def test_no_row_of_a_small_table_moves_more_than_is_charged(
    test: RankTest, figure: Callable[..., None]
) -> None:
    own, tried = STATISTICS[test], 0
    for table in small_tables():
        for cell in np.ndindex(table.shape):
            for present in ((ALL, ALL), (slice(1), ALL)):
                allowed = own.score_moves, own.weight_moves, own.variance_moves
                moved = moves(test, table, cell, present)
                assert all(by <= most for by, most in zip(moved, allowed, strict=True))
                tried += 1
    figure(f"neighbours of small tables within {test}'s bounds", tried, tried)


@pytest.mark.parametrize("test", TESTS)
def test_adversarial_rows_stay_below_the_charge_and_come_near(
    test: RankTest, figure: Callable[..., None]
) -> None:
    own, rng = STATISTICS[test], np.random.default_rng(4)
    reached = np.zeros(3)
    # The tables of the proofs: all rows discordant, one that is concordant with each; and a new
    # level beside a constant.
    for n in (10, 1000, 100_000):
        falling = np.zeros((1, 101, 101), dtype=np.int64)
        falling[0, np.arange(100), 99 - np.arange(100)] = n // 100 + 1
        constant = np.zeros((1, 3, 40), dtype=np.int64)
        constant[0, 0, :-1] = n // 39 + 1
        for table, cell in ((falling, (0, 100, 100)), (constant, (0, 2, 39))):
            reached = np.maximum(reached, moves(test, table, cell))
    for part in range(3):
        for start in range(4):
            corner = (0, 3, 3) if start % 2 else (0, 1, 2)
            far = partial(lambda c, p, t: moves(test, t, c)[p], corner, part)
            reached[part] = max(reached[part], climb(far, rng, rows=200, levels=4, steps=300))
    allowed = np.array([own.score_moves, own.weight_moves, own.variance_moves])
    assert (reached <= allowed).all()
    assert (reached >= 0.9 * allowed).all()
    name = f"{test}: largest part of the score's bound that a search reached"
    figure(name, float(reached[0]), own.score_moves)


@pytest.mark.parametrize("test", TESTS)
def test_levels_move_no_more_than_is_charged(test: RankTest) -> None:
    rng, farthest = np.random.default_rng(5), 0
    critical = 1.96
    for _ in range(3000):
        table = rng.multinomial(int(rng.integers(0, 300)), rng.dirichlet(np.full(18, 0.3))).reshape(
            2, 3, 3
        )
        ends = float(rng.uniform(0, 50)), float(rng.uniform(0, 400))
        query = RankQuery("a", "b", ("c",), critical, variance_floor(test, critical), *ends)
        more = table.copy()
        more[tuple(rng.integers(0, 2, 1)) + tuple(rng.integers(0, 3, 2))] += 1
        one, two = (level(test, query, measure(test, t)) for t in (table, more))
        farthest = max(farthest, abs(one - two))
    assert 0.5 * level_moves(test) < farthest <= level_moves(test)


def test_a_bound_that_would_move_further_is_refused() -> None:
    query = RankQuery("a", "b", (), 1.96, variance_floor("kendall", 1.96) * 0.99, 0.0, 0.0)
    with pytest.raises(ValueError, match="spare variance"):
        level("kendall", query, MeasuredRanks(0, 0, 0))
