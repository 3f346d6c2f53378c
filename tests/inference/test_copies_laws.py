"""Copies: blocks of levels, and the laws that are drawn for their sums."""

from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.inference import (
    Blocks,
    LeastSquares,
    Measured,
    Posterior,
    drawn_levels,
    find_blocks,
    fitted,
    measured,
    needed_blocks,
)
from tests.inference.conftest import counted
from tests.inference.conftest import drawn_levels as sample_levels
from tests.inference.copied import SHAPE, exact, law

EVEN = (0.4, 0.3, 0.2, 0.1)


def known(
    domain: Domain, *sets: tuple[str, ...], sigma: float = 10.0, rows: int = 4000
) -> Measured:
    codes, rng = sample_levels(domain, rows, 12), np.random.default_rng(2)
    tables = [counted(domain, codes, names, sigma=sigma, rng=rng) for names in sets]
    names = tuple(dict.fromkeys(name for one in sets for name in one))
    return measured(tables, domain, names, grouped=True)


# --- levels are put together until each block is well above zero ---


def two_columns(counts: Any, sigma: float, domain: Domain) -> dict[Any, Blocks]:
    """Blocks of `smoker` (three levels) and `visits` (six, ordered)."""
    from synthdp.privacy.mechanisms.marginals import NoisyTable

    names = ("smoker", "visits")
    table = NoisyTable(names, np.asarray(counts, float), sigma)
    solver = LeastSquares(measured([table], domain, names, grouped=True))
    sets = [axes for axes in solver.eigenvalues if axes]
    return find_blocks(solver.measured, solver.counts, sets, per_unit=1)


def test_clear_cells_are_told_apart(domain: Domain) -> None:
    found = two_columns(np.full((3, 6), 100), 5.0, domain)
    assert {tuple(sorted(axes)) for axes in found} == {(0,), (1,), (0, 1)}
    assert all(exact(blocks) for blocks in found.values())
    assert found[frozenset({0, 1})].labels.tolist() == np.arange(18).reshape(3, 6).tolist()


def test_a_rare_level_joins_its_lighter_neighbour(domain: Domain) -> None:
    counts = np.full((3, 6), 100)
    counts[:, 4] = 3
    counts[:, 5] = 200
    pair = two_columns(counts, 5.0, domain)[frozenset({0, 1})]
    assert pair.groups[1].tolist() == [0, 1, 2, 3, 3, 4] and pair.groups[0].tolist() == [0, 1, 2]
    assert pair.count == 15 and not exact(pair)


def test_groups_of_a_pair_are_no_finer_than_those_of_its_columns(domain: Domain) -> None:
    counts = np.full((3, 6), 400)
    counts[1, :] = 1
    found = two_columns(counts, 5.0, domain)
    assert found[frozenset({0})].sizes == {0: 2}
    pair = found[frozenset({0, 1})]
    assert pair.tells(found[frozenset({0})])


def test_noise_alone_tells_nothing(domain: Domain) -> None:
    found = two_columns(np.full((3, 6), 10), 200.0, domain)
    assert found == {}


def test_blocks_that_others_tell_are_not_needed() -> None:
    fine = Blocks({0: np.arange(3), 1: np.arange(2)}, 2)
    coarse = Blocks({0: np.array([0, 0, 1]), 1: np.arange(2)}, 2)
    single = Blocks({0: np.arange(3)}, 2)
    assert fine.tells(single) and fine.tells(coarse)
    assert not coarse.tells(single) and not single.tells(fine)
    assert needed_blocks([single, fine]) == [fine] and needed_blocks([single, coarse]) == [
        coarse,
        single,
    ]


def test_sums_of_blocks_are_those_of_a_loop() -> None:
    cells = np.random.default_rng(1).random((3, 4, 2))
    blocks = Blocks({0: np.array([0, 0, 1]), 2: np.array([0, 1])}, 3)
    by_hand = [
        cells[:2, :, 0].sum(),
        cells[:2, :, 1].sum(),
        cells[2, :, 0].sum(),
        cells[2, :, 1].sum(),
    ]
    assert blocks.sums_of(cells) == pytest.approx(by_hand)


# --- laws ---


def test_fitting_meets_the_sums_and_adds_no_interaction() -> None:
    p = np.random.default_rng(3).dirichlet(np.ones(24)).reshape(2, 3, 4)
    pairs = [
        Blocks({i: np.arange(p.shape[i]), j: np.arange(p.shape[j])}, 3) for i, j in ((0, 1), (1, 2))
    ]
    found = fitted(np.ones(p.shape), pairs, [b.sums_of(p) for b in pairs], within=1e-10)
    assert found is not None
    middle = p.sum((0, 2))
    expected = p.sum(2)[:, :, None] * p.sum(0)[None] / middle[None, :, None]  # 0 and 2 given 1
    assert found == pytest.approx(expected, abs=1e-9)


def test_sums_that_no_law_has_are_refused() -> None:
    agree, differ = np.array([0.5, 0, 0, 0.5]), np.array([0, 0.5, 0.5, 0])
    pairs = [Blocks({i: np.arange(2), j: np.arange(2)}, 3) for i, j in ((0, 1), (1, 2), (0, 2))]
    assert fitted(np.ones((2, 2, 2)), pairs, [agree, agree, differ], within=1e-3) is None


@pytest.mark.parametrize("sigma", [1.0, 60.0])
def test_drawn_laws_have_the_noise_and_the_sampling(domain: Domain, sigma: float) -> None:
    """A share of a table of two and three levels, whose deviation is known."""
    posterior = Posterior(LeastSquares(known(domain, ("sex", "smoker"), sigma=sigma)))
    rng, n = np.random.default_rng(5), posterior.rows
    drawn = [found for _ in range(2000) if (found := posterior.drawn(rng)) is not None]
    assert len(drawn) == 2000 and all(found.min() >= 0 for found in drawn[:50])
    shares = [found[0].sum() for found in drawn]
    p = float(posterior.solver.counts[0].sum()) / n
    noise = 3 * sigma**2 * ((1 - p) ** 2 + p**2) / n**2
    assert np.std(shares) == pytest.approx(np.sqrt(noise + p * (1 - p) / n), rel=0.05)
    assert np.mean(shares) == pytest.approx(p, abs=4 * np.std(shares) / np.sqrt(2000))


def test_several_rows_of_a_unit_widen_the_sampling(domain: Domain) -> None:
    solver = LeastSquares(known(domain, ("sex",), sigma=0.1))
    spreads = []
    for per_unit in (1, 4):
        posterior, rng = Posterior(solver, per_unit), np.random.default_rng(6)
        laws = [posterior.drawn(rng) for _ in range(400)]
        spreads.append(np.std([drawn[0] for drawn in laws if drawn is not None]))
    assert spreads[1] / spreads[0] == pytest.approx(2, rel=0.1)


def test_rows_follow_the_law() -> None:
    p = law(EVEN)
    codes = drawn_levels(p, 50_000, np.random.default_rng(7))
    counts = np.zeros(SHAPE)
    np.add.at(counts, tuple(codes.T.astype(int)), 1)
    statistic = float(((counts - 50_000 * p) ** 2 / (50_000 * p)).sum())
    assert 130 < statistic < 370  # chi-square on 239: five deviations
