"""Published claims on numeric data that are false or loose, each by the tables that show it, and
the corrected bounds under search.

Neighbours here are as in the papers: one row replaced, the number of rows public. PCD: Zhang et
al., "Differentially Private Nonlinear Causal Discovery from Numerical Data" (AAAI 2023). ANM:
Kusner et al., "Private Causal Inference" (AISTATS 2016).
"""

import math
from itertools import pairwise, permutations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import rankdata

from benchmarks.pcd_published import pcd_deletes, published_sensitivity, ridge_residuals
from synthdp.data import KernelGrid, scatter

Floats = npt.NDArray[np.float64]


# --- PCD, Algorithm 1 ---


def _chance_of_deletion(flipped: int, *, rows: int = 200, runs: int = 1000) -> float:
    """P[delete] at epsilon 1 for x = +-1 and y = x with some labels flipped, over the algorithm's
    Laplace noise.
    """
    x = np.tile([-1.0, 1.0], rows // 2)
    y = np.concatenate([-x[:flipped], x[flipped:]])
    orders = [
        np.random.default_rng(0).permutation(rows),
        *(np.random.default_rng(i).permutation(rows) for i in range(1, 100)),
    ]
    width = 0.5
    # The centred Gaussian kernel of a two-valued column is ((1 - k) / 2) times the products of its
    # centred signs.
    factor = ((1 - math.exp(-4 / (2 * width**2))) / 2) ** 2 / (rows - 1) ** 2
    score, *shuffled = (
        factor * ((x - x.mean()) @ (v - v.mean())) ** 2
        for v in (y, *(y[order] for order in orders))
    )
    bound = published_sensitivity(rows, 1.0, (width, width), given=False)
    rng = np.random.default_rng(1)
    return float(
        np.mean(
            [
                pcd_deletes(score, np.array(shuffled), bound, alpha=0.05, epsilon=1.0, rng=rng)
                for _ in range(runs)
            ]
        )
    )


def test_pcd_deletes_with_probability_zero_on_one_table_and_not_on_its_neighbour() -> None:
    """Algorithm 1 answers without noise where "the decision cannot flip". Its permutations are
    fixed here, and only one label
    differs: probability exactly 0 against more than a third is (epsilon, delta)-DP for no delta
    below a third, whatever epsilon.
    """
    probabilities = [_chance_of_deletion(flipped) for flipped in range(20, 40)]
    jumps = [
        (before, after)
        for before, after in pairwise(probabilities)
        if before == 0.0 and after > 1 / 3
    ]
    assert jumps
    assert sorted(probabilities) == pytest.approx(
        probabilities, abs=0.1
    )  # and it is one jump, not a scatter


def test_pcd_theorem_2_is_false_for_the_changed_row() -> None:
    """ "For all i" the residual is said to move by 8 / (m lambda^1.5); that of the replaced row
    moves by nearly 2, whatever m.
    """
    for rows in (50, 400):
        rng = np.random.default_rng(rows)
        given, target = rng.uniform(-1, 1, (rows, 1)), rng.uniform(-1, 1, rows)
        target[0] = -1.0
        changed = target.copy()
        changed[0] = 1.0
        moved = abs(ridge_residuals(changed, given)[0] - ridge_residuals(target, given)[0])
        assert moved > 1.8
    assert moved > 8 / rows


def test_rcit_score_bound_is_false_at_the_inflection_of_the_kernel() -> None:
    """Theorem 3, equation 3 is O(1/m^2): it takes the change of a Gaussian kernel at distance zero,
    where its slope is zero. Residuals a bandwidth apart that move by the theorem's own 8 / (m
    lambda^1.5) change the score by O(1/m).
    """
    rows, width = 4000, 1.0
    claimed = published_sensitivity(rows, 1.0, (width, width), given=True)
    sign = np.repeat([-0.5, 0.5], rows // 2)
    moved = sign * (1 + 8 / rows)

    def hsic(values: Floats) -> float:
        # Two values: the centred kernel is ((1 - k) / 2)^2 on products of signs.
        k = math.exp(-((values[-1] - values[0]) ** 2) / (2 * width**2))
        return ((1 - k) / 2) ** 2 * rows**2 / (rows - 1) ** 2

    assert abs(hsic(moved) - hsic(sign)) > 3 * claimed
    # Corrected: sqrt(HSIC_V) moves by at most eta_u / width_u + eta_v / width_v + 4 / m [derived
    # here].
    assert abs(math.sqrt(hsic(moved)) - math.sqrt(hsic(sign))) <= 2 * (4 / rows) / width + 4 / rows


# --- ANM ---


def _rho(a: Floats, b: Floats) -> float:
    m = len(a)
    centre = (m + 1) / 2
    return float(12 * (rankdata(a) - centre) @ (rankdata(b) - centre) / (m * (m**2 - 1)))


@pytest.mark.check
@pytest.mark.parametrize("m", [2, 3, 4])
def test_spearman_moves_by_exactly_six_over_m_plus_one(m: int) -> None:
    """Theorem 1 says 30 / m. Exhaustive over all orders and replacements, ties included: 6 / (m +
    1), and it is hit.
    """
    furthest = 0.0
    for order in permutations(range(m)):
        a, b = np.arange(m, dtype=float), np.array(order, dtype=float)
        before = _rho(a, b)
        for k in range(m):
            for p in np.arange(-0.5, m, 0.5):
                for q in np.arange(-0.5, m, 0.5):
                    changed_a, changed_b = a.copy(), b.copy()
                    changed_a[k], changed_b[k] = p, q
                    furthest = max(furthest, abs(_rho(changed_a, changed_b) - before))
    assert furthest == pytest.approx(6 / (m + 1))


def test_hsic_moves_by_at_most_four_over_m_less_one() -> None:
    """The paper's (12 m - 11) / (m - 1)^2 is three times that. Random tables of far values, one row
    replaced.
    """
    kernel = KernelGrid(0.2)
    rng = np.random.default_rng(2)
    furthest = 0.0
    for m in (4, 10, 30):
        far = np.array([-1.0, 1.0])
        for _ in range(600):
            a, b = rng.choice(far, m), rng.choice(far, m)
            if rng.random() < 0.5:
                b = a.copy()
            changed_a, changed_b = a.copy(), b.copy()
            changed_a[0], changed_b[0] = rng.choice(far, 2)
            scores = [
                (scatter(kernel(u), kernel(v)) / (m - 1)) ** 2
                for u, v in ((a, b), (changed_a, changed_b))
            ]
            furthest = max(furthest, abs(scores[0] - scores[1]) * (m - 1))
            roots = [scatter(kernel(u), kernel(v)) / m for u, v in ((a, b), (changed_a, changed_b))]
            assert abs(roots[0] - roots[1]) <= 4 * (m - 1) / m**2
    assert furthest <= 4 * (1 + 1e-6)


@pytest.mark.check
@pytest.mark.parametrize("penalty", [0.05, 0.3, 1.0])
def test_a_climbing_search_gets_within_a_factor_of_two_of_the_corrected_ridge_bound(
    penalty: float,
) -> None:
    """Theorem 5's 8 / (n lambda^1.5), corrected to (4 / (n lambda))(1 + 1 / sqrt(2 lambda)) for any
    kernel of at most one.

    Proof: the objective is lambda-convex, so lambda |w - w'| is at most the difference of the two
    rows' gradients at w', (2 / n)(|f - y| + |f' - y'|) <= (4 / n)(1 + |w'|); and lambda |w'|^2 = (2
    / n) sum (y - f) f <= 1/2. The search is over n - 1 equal rows and one that is replaced,
    features in a disc (the linear kernel on two numbers), at a row that feels the change most. It
    gets to .55, .62 and .69 of the bound, the most of (1 + F cos t) sin t / (1 + F) with F = 1 /
    sqrt(2 lambda): both rows at an angle t of w, one on either side.
    """
    n = 20_000
    bound = 4 / (n * penalty) * (1 + 1 / math.sqrt(2 * penalty))
    rng = np.random.default_rng(3)
    best, furthest = rng.uniform(-1, 1, 9), 0.0
    for step in range(6000):
        trial = best + rng.normal(0, 0.3 * 0.999**step, 9) * (rng.random(9) < 0.5)
        moved = _ridge_moves(n, penalty, *np.split(trial, [2, 4, 6]))
        assert moved <= bound
        if moved >= furthest:
            furthest, best = moved, trial
    size, angles = 1 / math.sqrt(2 * penalty), np.linspace(0, math.pi / 2, 1000)
    reachable = float(((1 + size * np.cos(angles)) * np.sin(angles)).max()) / (1 + size)
    assert furthest >= bound / 2
    assert furthest == pytest.approx(reachable * bound, rel=0.01)


def _ridge_moves(
    n: int, penalty: float, others: Floats, before: Floats, after: Floats, targets: Floats
) -> float:
    """|w - w'|: features `[2]` of n - 1 equal rows, and of one row before and after; their three
    targets.
    """
    u, old, new = (v / max(1.0, float(np.linalg.norm(v))) for v in (others, before, after))
    y = np.clip(targets, -1, 1)
    weights = [
        np.linalg.solve(
            penalty * np.eye(2) + 2 / n * ((n - 1) * np.outer(u, u) + np.outer(v, v)),
            2 / n * ((n - 1) * y[0] * u + target * v),
        )
        for v, target in ((old, y[1]), (new, y[2]))
    ]
    return float(np.linalg.norm(weights[1] - weights[0]))
