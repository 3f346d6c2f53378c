"""Dependence scores equal their textbook forms; their sensitivities by exhaustive search."""

from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import spearmanr

from synthdp.data import KernelGrid
from synthdp.privacy import (
    KENDALL_SENSITIVITY,
    SPEARMAN_SENSITIVITY,
    hsic,
    kendall,
    spearman,
    spread_table,
)

Floats = npt.NDArray[np.float64]
Score = Callable[[Floats, Floats], float]


def concordant_less_discordant(a: Floats, b: Floats) -> int:
    return int(
        sum(np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i in range(len(a)) for j in range(i))
    )


@pytest.mark.parametrize("ties", [False, True])
def test_scores_equal_their_definitions(ties: bool) -> None:
    rng = np.random.default_rng(0)
    for m in (2, 3, 10, 60):
        a, b = (rng.integers(4, size=(2, m)) if ties else rng.normal(size=(2, m))).astype(float)
        assert kendall(a, b) == pytest.approx(2 * concordant_less_discordant(a, b) / (m - 1))
        if not ties:
            assert spearman(a, b) == pytest.approx(m * spearmanr(a, b).statistic)


@pytest.mark.check
@pytest.mark.parametrize(
    ("score", "bound"), [(spearman, SPEARMAN_SENSITIVITY), (kendall, KENDALL_SENSITIVITY)]
)
def test_no_added_row_moves_a_score_beyond_its_sensitivity_exhaustively(
    score: Score, bound: float
) -> None:
    """Every permutation of up to four rows, every place of a fifth, ties included."""
    for m in range(5):
        for order in permutations(range(m)):
            a, b = np.arange(m, dtype=float), np.array(order, dtype=float)
            places = np.arange(-0.5, m + 0.5, 0.5)
            before = score(a, b)
            moved = [
                abs(score(np.append(a, p), np.append(b, q)) - before)
                for p, q in product(places, places)
            ]
            assert max(moved) <= bound


@pytest.mark.parametrize(
    ("score", "bound"), [(spearman, SPEARMAN_SENSITIVITY), (kendall, KENDALL_SENSITIVITY)]
)
@pytest.mark.parametrize("m", [20, 300])
def test_the_sensitivity_is_nearly_reached(score: Score, bound: float, m: int) -> None:
    """A rising line and a new row that is highest in one column and lowest in the other."""
    line = np.arange(m, dtype=float)
    moved = abs(score(np.append(line, m), np.append(line, -1.0)) - score(line, line))
    assert 0.8 * bound <= moved <= bound


@pytest.mark.parametrize("score", [spearman, kendall])
def test_random_tables_with_ties_stay_below(score: Score) -> None:
    rng = np.random.default_rng(1)
    bound = SPEARMAN_SENSITIVITY if score is spearman else KENDALL_SENSITIVITY
    for _ in range(500):
        m, levels = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        rows = rng.integers(levels, size=(2, m + 1)).astype(float)
        assert abs(score(*rows) - score(*rows[:, :-1])) <= bound


def test_hsic_and_tables_move_as_stated() -> None:
    kernel = KernelGrid(0.1)
    constant = np.full(30, -1.0)
    moved = hsic(np.append(constant, 1.0), np.append(constant, 1.0), kernel) - hsic(
        constant, constant, kernel
    )
    assert 0.9 * kernel.diameter**2 <= moved <= kernel.diameter**2
    assert np.abs(spread_table(np.array([0.1, 5.0])) - spread_table(np.array([0.1]))).sum() == 1


def test_scores_of_few_or_equal_rows_are_zero() -> None:
    for rows in ([], [1.0], [2.0, 2.0, 2.0]):
        assert (
            spearman(np.array(rows), np.array(rows)) == kendall(np.array(rows), np.array(rows)) == 0
        )
    assert hsic(np.zeros(0), np.zeros(0), KernelGrid()) == 0


def test_each_step_of_the_proof_for_hsic_holds_and_comes_near() -> None:
    """One of m rows replaced moves T by 4 (m - 1) / m, |T| <= m / 2: HSIC by 4 / (m - 1)."""
    assert "4 / (m - 1)" in (hsic.__doc__ or "") and "[derived here" in (hsic.__doc__ or "")
    kernel, rng, largest, furthest = KernelGrid(0.2), np.random.default_rng(5), 0.0, 0.0
    for trial in range(400):
        m = int(rng.integers(2, 30))
        a, b = kernel(rng.choice([-1.0, 0.0, 1.0], (2, m), p=rng.dirichlet(np.ones(3))))
        changed_a, changed_b = a.copy(), (b if trial % 2 else a).copy()
        b = changed_b.copy()
        changed_a[0], changed_b[0] = kernel(rng.choice([-1.0, 0.0, 1.0], 2))
        before, after = (
            (u - u.mean(0)).T @ (v - v.mean(0)) for u, v in ((a, b), (changed_a, changed_b))
        )
        moved, norms = (
            float(np.linalg.norm(before - after)),
            [float(np.linalg.norm(t)) for t in (before, after)],
        )
        assert moved <= 4 * (m - 1) / m + 1e-6 and max(norms) <= m / 2 + 1e-6
        assert abs(norms[0] ** 2 - norms[1] ** 2) / (m - 1) ** 2 <= 4 / (m - 1) + 1e-6
        largest, furthest = (
            max(largest, max(norms) / (m / 2)),
            max(furthest, moved / (4 * (m - 1) / m)),
        )
    assert largest > 0.98 and furthest > 0.4
