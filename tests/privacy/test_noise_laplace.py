"""Discrete Laplace noise has the law and the scale that it claims."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from synthdp.privacy.noise import Streams

Ints = npt.NDArray[np.int64]
SIGNIFICANCE = 1e-7


def p_value(samples: Ints, scale: float) -> float:
    """Chi-square of the samples against the discrete Laplace law; cells of less than 10 expected
    are pooled.
    """
    reach = math.ceil(20 * scale) + 20
    expected = stats.dlaplace.pmf(np.arange(-reach, reach + 1), 1 / scale) * len(samples)
    observed = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=2 * reach + 1).astype(
        float
    )
    keep = expected >= 10
    rest = max(len(samples) - expected[keep].sum(), 1e-9)
    return float(
        stats.chisquare(
            [*observed[keep], observed[~keep].sum()], [*expected[keep], rest], sum_check=False
        ).pvalue
    )


def draw(count: int, scale: float) -> Ints:
    return Streams.fresh().discrete_laplace(np.zeros(count, dtype=np.int64), scale=scale)


@pytest.mark.check
@pytest.mark.parametrize("scale", [0.4, 3.0, 40.0])
def test_noise_has_its_scale_and_no_other(scale: float) -> None:
    samples = draw(20_000, scale)
    assert p_value(samples, scale) > SIGNIFICANCE
    for wrong in (0.7, 1.3):
        assert p_value(samples, scale * wrong) < SIGNIFICANCE
        assert p_value(draw(20_000, scale * wrong), scale) < SIGNIFICANCE


def test_noise_is_added_and_does_not_depend_on_the_counts() -> None:
    counts = np.tile(np.array([0, 7, 10**9], dtype=np.int64), 7000)
    noisy = Streams.fresh().discrete_laplace(counts, scale=4.0)
    assert noisy.dtype == np.int64
    for start in range(3):
        assert p_value((noisy - counts)[start::3], 4.0) > SIGNIFICANCE


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_no_noise_without_a_scale(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        Streams.fresh().discrete_laplace(np.zeros(3, dtype=np.int64), scale=scale)


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0), (3, 4)])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    assert (
        Streams.fresh().discrete_laplace(np.zeros(shape, dtype=np.int64), scale=2.0).shape == shape
    )
