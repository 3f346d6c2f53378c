"""The noisy maximum has the law of Gumbel noise of the scale that it claims: that of the
exponential mechanism.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from synthdp.privacy.noise import Streams

SIGNIFICANCE = 1e-7
SCORES = np.array([0, 3, 5, 5], dtype=np.int64)


def law(scores: np.ndarray, scale: float) -> np.ndarray:
    """The exponential mechanism: another description of the same choice."""
    weights: np.ndarray = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def chosen(count: int, scale: float) -> np.ndarray:
    streams = Streams.fresh()
    return np.bincount(
        [streams.noisy_max(SCORES, scale=scale) for _ in range(count)], minlength=len(SCORES)
    )


def p_value(counts: np.ndarray, scale: float) -> float:
    return float(stats.chisquare(counts, law(SCORES, scale) * counts.sum()).pvalue)


@pytest.mark.check
def test_choice_has_its_scale_and_no_other() -> None:
    """The law of Gumbel noise, whose bounded range is what is charged."""
    scale = 3.0
    counts = chosen(8000, scale)
    assert p_value(counts, scale) > SIGNIFICANCE
    for wrong in (0.7, 1.3):
        assert p_value(counts, scale * wrong) < SIGNIFICANCE
        assert p_value(chosen(8000, scale * wrong), scale) < SIGNIFICANCE


def test_exponential_noise_of_that_scale_is_refused() -> None:
    """Of permute and flip: its range is not bounded, and it costs more."""
    rng = np.random.default_rng(0)
    exponential = np.bincount(
        (SCORES + rng.exponential(3.0, (8000, len(SCORES)))).argmax(1), minlength=len(SCORES)
    )
    assert p_value(exponential, 3.0) < SIGNIFICANCE


def test_the_best_wins_where_noise_is_small() -> None:
    assert (
        Streams.fresh().noisy_max(np.array([-(10**12), 4, 900, 10**12], dtype=np.int64), scale=2.0)
        == 3
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_no_choice_without_a_scale(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        Streams.fresh().noisy_max(SCORES, scale=scale)
