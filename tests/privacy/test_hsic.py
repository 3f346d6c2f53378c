"""HSIC on a grid: features are the kernel, and its sensitivity by search."""

import numpy as np
import pytest

from synthdp.data import KernelGrid, scatter

KERNEL = KernelGrid(bandwidth=0.2)


def test_features_are_the_kernel() -> None:
    grid = np.linspace(-1, 1, 257)
    features = KERNEL(grid)
    assert features @ features.T == pytest.approx(
        np.exp(-((grid[:, None] - grid) ** 2) / (2 * 0.2**2)), abs=1e-7
    )
    assert KERNEL.diameter == pytest.approx(np.sqrt(2 - 2 * np.exp(-4 / (2 * 0.2**2))), abs=1e-6)
    assert np.array_equal(KERNEL(np.array([np.nan])), np.zeros((1, features.shape[1])))


def test_scatter_is_rows_times_the_root_of_hsic() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.choice(np.linspace(-1, 1, 257), (2, 40))
    k, l = (np.exp(-((v[:, None] - v) ** 2) / (2 * 0.2**2)) for v in (x, y))  # noqa: E741
    centring = np.eye(40) - 1 / 40
    hsic = np.trace(k @ centring @ l @ centring) / 40**2
    assert scatter(KERNEL(x), KERNEL(y)) == pytest.approx(40 * np.sqrt(hsic), rel=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 40])
def test_no_added_row_moves_the_statistic_further_than_stated(rows: int) -> None:
    """Random and climbing search over tables at the ends of the range; the statistic reaches its
    bound but for n / (n + 1).
    """
    rng = np.random.default_rng(rows)
    bound, furthest = KERNEL.diameter**2, 0.0
    best = np.full((2, rows + 1), -1.0)
    best[:, -1] = 1.0
    for step in range(600):
        values = np.where(
            rng.random(best.shape) < (0.2 if step else 0.0),
            rng.choice([-1.0, 0.0, 1.0], best.shape),
            best,
        )
        first, second = KERNEL(values[0]), KERNEL(values[1])
        moved = abs(scatter(first, second) - scatter(first[:-1], second[:-1]))
        assert moved <= bound
        if moved > furthest or rng.random() < 0.05:
            best = values
        furthest = max(furthest, moved)
    assert furthest >= 0.99 * bound * rows / (rows + 1)
