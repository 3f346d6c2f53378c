"""Noisy tables shrunk to public ones: a right prior helps, a wrong one switches itself off."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import Domain, LevelGroups
from synthdp.graph import PublicRows, margin_probabilities, margin_with_prior, shrunk_to
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import Axis, pair_tables, prior_used, smoothed_counts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Categorical, Integer

LEVELS, ROWS = tuple("abcdef"), 20_000
NAMES = ("x", "y", "z")
DOMAIN = Domain.from_spec(
    {name: Categorical(type="categorical", categories=LEVELS) for name in NAMES}
)
BINNED = Integer(type="integer", lower=0, upper=59, bins=60)
Codes = npt.NDArray[np.uint16]


def rows_of(seed: int, *, rows: int = ROWS, follow: float = 0.6, lead: float = 0.1) -> Codes:
    """x is `a` more often by `lead`; y is x with a probability `follow`; z is on its own."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(rows) < lead, 0, rng.integers(0, 6, rows))
    y = np.where(rng.random(rows) < follow, x, rng.integers(0, 6, rows))
    return np.column_stack([x, y, rng.integers(0, 6, rows)]).astype(np.uint16)


def counted(codes: Codes, columns: tuple[int, ...]) -> npt.NDArray[np.float64]:
    table = np.zeros([6] * len(columns))
    np.add.at(table, tuple(codes[:, c] for c in columns), 1)
    return table


def noisy(sigma: float, seed: int, truth: Codes) -> tuple[NoisyTable, ...]:
    """One-way and two-way tables with white noise."""
    rng, places = np.random.default_rng(seed), range(3)
    sets = [(c,) for c in places] + [*combinations(places, 2)]
    return tuple(
        NoisyTable(
            tuple(NAMES[c] for c in columns),
            counted(truth, columns) + rng.normal(0, sigma, [6] * len(columns)),
            sigma,
        )
        for columns in sets
    )


def error(tables: tuple[NoisyTable, ...], truth: Codes, prior: PublicRows | None) -> float:
    """Mean total variation of the pairs that the model would follow."""
    pairs = pair_tables(LevelLaw.by_rows(tables, DOMAIN, prior))
    return float(
        np.mean(
            [
                np.abs(pairs.table(NAMES[a], NAMES[b]) - counted(truth, (a, b)) / ROWS).sum() / 2
                for a, b in combinations(range(3), 2)
            ]
        )
    )


def errors(sigma: float, public: Codes, *, runs: int = 12) -> tuple[float, float]:
    """The mean error without and with a prior, of the same tables."""
    truth = rows_of(1)
    prior = PublicRows(NAMES, public)
    found = [
        [error(noisy(sigma, seed, truth), truth, p) for p in (None, prior)] for seed in range(runs)
    ]
    alone, both = np.mean(found, axis=0)
    return float(alone), float(both)


def test_the_square_is_that_by_moments_and_never_less_than_chance() -> None:
    prior = np.full(4, 0.25)
    off = shrunk_to(prior, np.array([0.45, 0.25, 0.25, 0.05]), 0.1, 1e9)
    square = 2 * 0.2**2 - 4 * 0.1**2
    kept = square / 4 / (square / 4 + 0.01)
    np.testing.assert_allclose(off.shares, prior + kept * np.array([0.2, 0, 0, -0.2]))
    assert off.used == pytest.approx(1 - kept) and off.sigma == pytest.approx(0.1 * kept**0.5)
    chance = shrunk_to(prior, prior, 0.1, 100)
    assert chance.used == pytest.approx(0.01 / (0.75 / 100 / 4 + 0.01)) and chance.used < 1


def test_the_moments_are_those_of_the_law_that_is_supposed() -> None:
    """Over many tables of the very law, the mean of what was shrunk is least by this factor."""
    rng, prior, sigma, square = np.random.default_rng(3), np.array([0.7, 0.2, 0.1, 0.0]), 0.03, 0.02
    weights = (prior + 0.25) / 2
    assert weights.sum() == pytest.approx(1)
    lost = np.zeros(3)
    for _ in range(4000):
        truth = prior + rng.normal(0, np.sqrt(square * weights))
        seen = truth + rng.normal(0, sigma, 4)
        kept = square * weights / (square * weights + sigma**2)
        for i, shares in enumerate(
            (shrunk_to(prior, seen, sigma, 1e9).shares, prior + kept * (seen - prior), seen)
        ):
            lost[i] += np.square(shares - truth).sum()
    assert lost[1] < lost[0] < 0.97 * lost[2]
    assert lost[0] < 1.15 * lost[1]  # the square is not known, and costs little


def test_a_prior_that_is_visibly_wrong_switches_itself_off() -> None:
    prior, seen = np.array([0.97, 0.01, 0.01, 0.01]), np.array([0.01, 0.01, 0.01, 0.97])
    found = shrunk_to(prior, seen, 0.002, 1e9)
    np.testing.assert_allclose(found.shares, seen, atol=1e-4)
    assert found.used < 1e-3


def test_a_cell_that_the_prior_lacks_is_not_stuck_at_zero() -> None:
    prior, seen = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.4, 0.25, 0.15, 0.2])
    found = shrunk_to(prior, seen, 0.01, 1e9)
    assert found.shares[3] > 0.17
    with_prior = pair_tables(
        LevelLaw.by_rows(
            noisy(20.0, 5, truth := rows_of(1)),
            DOMAIN,
            PublicRows(NAMES, truth[truth[:, 0] != 3]),
        )
    ).table("x", "y")
    true = counted(truth, (0, 1)) / ROWS
    assert np.abs(with_prior[3] - true[3]).sum() < 0.1 * true[3].sum()


@pytest.mark.check
def test_a_right_prior_helps_where_noise_is_large() -> None:
    alone, both = errors(250.0, rows_of(2, rows=2000))
    assert both < 0.7 * alone


@pytest.mark.check
def test_a_prior_of_other_people_helps_by_its_odds() -> None:
    """Its margins are wrong by far; what y has to do with x is the same."""
    alone, both = errors(250.0, rows_of(2, rows=2000, lead=0.5))
    assert both < 0.85 * alone


@pytest.mark.check
@pytest.mark.parametrize("sigma", [20.0, 80.0, 250.0])
def test_a_wrong_prior_does_no_harm(sigma: float) -> None:
    """y follows another level of x, and z follows x."""
    public = rows_of(2, rows=2000, follow=0.9)
    public[:, 1] = (public[:, 1] + 2) % 6
    public[:, 2] = public[:, 0]
    alone, both = errors(sigma, public)
    assert both < 1.05 * alone


def heaped(slope: float, shift: int = 0) -> npt.NDArray[np.float64]:
    """Shares of 60 bins: a hump that leans by a slope, and heaps at every tenth bin."""
    at = np.arange(60)
    shares = np.exp(slope * at / 60 - np.square((at - 30) / 20)) * np.where(at % 10 == shift, 8, 1)
    return np.asarray(shares / shares.sum())


@pytest.mark.parametrize(("sigma", "most"), [(0.003, 0.75), (0.01, 0.5), (0.02, 0.4)])
def test_heaps_of_other_people_are_found_where_the_hump_is(sigma: float, most: float) -> None:
    """Without its tilt the prior is off by as much as the noise, or is switched off."""
    column, truth = Domain.from_spec({"x": BINNED}).columns[0], heaped(1.5)
    errors, rng = [], np.random.default_rng(0)
    for _ in range(10):
        seen = truth + rng.normal(0, sigma, 60)
        alone = margin_probabilities(column, seen, sigma)
        near, used = margin_with_prior(column, seen, sigma, 2000 * heaped(-1.5))
        wrong, unused = margin_with_prior(column, seen, sigma, 2000 * heaped(-1.5, shift=5))
        errors.append([np.abs(found - truth).sum() / 2 for found in (alone, near, wrong)])
        assert used > unused
    alone, near, wrong = np.mean(errors, axis=0)
    assert near < most * alone and wrong < 1.01 * alone


def leaning(slope: float, *, rough: float = 1.0, shift: int = 0) -> npt.NDArray[np.float64]:
    """Shares `[12, 12]` of cells that are as rough as chance has them, times a smooth slope."""
    at, cells = np.arange(12) / 11 - 0.5, np.random.default_rng(9).normal(0, rough, (12, 12))
    shares = np.exp(np.roll(cells, shift) + slope * np.outer(at, at))
    return np.asarray(shares / shares.sum())


@pytest.mark.parametrize(
    ("truth", "public", "most"),
    [
        # .73 where the prior's table may not lean
        pytest.param(leaning(4), leaning(-1), 0.68, id="other people"),
        # .89 where the prior's own chance is left in it
        pytest.param(leaning(4, rough=0), leaning(4, rough=0), 0.72, id="few public rows"),
        pytest.param(leaning(4), leaning(-1, shift=3), 1.01, id="wrong"),
    ],
)
def test_a_pair_is_smoothed_around_that_of_other_people(
    truth: npt.NDArray[np.float64], public: npt.NDArray[np.float64], most: float
) -> None:
    numbers = Integer(type="integer", lower=0, upper=11, bins=12)
    domain, sigma, errors = Domain.from_spec({"x": numbers, "y": numbers}), 150.0, []
    drawn = np.random.default_rng(100).choice(144, 3000, p=public.ravel())
    prior = PublicRows(("x", "y"), np.column_stack([drawn // 12, drawn % 12]).astype(np.uint16))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sums = {("x",): truth.sum(1), ("y",): truth.sum(0), ("x", "y"): truth}
        tables = [
            NoisyTable(names, ROWS * shares + rng.normal(0, sigma, shares.shape), sigma)
            for names, shares in sums.items()
        ]
        laws = (pair_tables(LevelLaw.by_rows(tables, domain, own)) for own in (None, prior))
        errors.append([np.abs(law.table("x", "y") - truth).sum() / 2 for law in laws])
    alone, both = np.mean(errors, axis=0)
    assert both < most * alone


def test_public_counts_lose_their_chance() -> None:
    """Of 300 rows in 144 cells; what is rough in 300,000 rows is kept."""
    numbers = Integer(type="integer", lower=0, upper=11, bins=12)
    columns = Domain.from_spec({"x": numbers, "y": numbers}).columns
    for rows, rough, most in ((300, 0.0, 0.4), (300_000, 1.0, 1.0)):
        law = leaning(4, rough=rough)
        counted = np.random.default_rng(4).multinomial(rows, law.ravel()).reshape(12, 12) / rows
        first, second = (Axis(c, counted.sum(1 - i)) for i, c in enumerate(columns))
        smooth = smoothed_counts(first, second, counted, rows).probabilities
        assert np.abs(smooth - law).sum() < most * np.abs(counted - law).sum()


def test_what_is_used_is_told_by_table() -> None:
    truth = rows_of(1)
    right = LevelLaw.by_rows(noisy(250.0, 0, truth), DOMAIN, PublicRows(NAMES, rows_of(2)))
    used = prior_used(right)
    assert {*used} == {(n,) for n in NAMES} | {*combinations(NAMES, 2)}
    assert all(0 <= part <= 1 for part in used.values()) and used["x", "y"] > 0.3
    wrong = rows_of(2)
    wrong[:, 1] = (wrong[:, 0] + 2) % 6
    law = LevelLaw.by_rows(noisy(20.0, 0, truth), DOMAIN, PublicRows(NAMES, wrong))
    assert prior_used(law)["x", "y"] < 0.01
    assert prior_used(LevelLaw.of_tables(noisy(20.0, 0, truth), DOMAIN)) == {}


def test_a_prior_may_lack_columns_and_is_counted_on_groups() -> None:
    """Levels of a number are its bins, of which pairs are counted on groups."""
    number = Integer(type="integer", lower=0, upper=5, bins=6)
    other = Categorical(type="categorical", categories=LEVELS)
    domain = Domain.from_spec({"x": number, "y": other, "z": other})
    truth, groups = rows_of(1), LevelGroups(domain, {"x": (0, 2, 4)})
    prior = PublicRows(("x", "y"), truth[:, :2]).prior(noisy(20.0, 0, truth), groups)
    assert {*prior.counts} == {("x",), ("y",), ("x", "y")}
    own = counted(truth, (0, 1))
    np.testing.assert_array_equal(prior.counts["x", "y"], np.add.reduceat(own, (0, 2, 4), axis=0))
    np.testing.assert_array_equal(prior.counts["x",], own.sum(1))
