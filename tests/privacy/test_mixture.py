"""The distribution of a mixture of Gaussians is the library's, to the last bit."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType

from synthdp.privacy.events import gaussian
from synthdp.privacy.events.gaussian import mixture_of_gaussians


def binomial(rows: int, rate: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Moves 0 to `rows`, and their probabilities."""
    joined = range(rows + 1)
    return tuple(joined), tuple(
        math.comb(rows, k) * rate**k * (1 - rate) ** (rows - k) for k in joined
    )


@pytest.mark.parametrize("width", [1e-2, pytest.param(1e-3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("noise", "rows", "rate"), [(0.7, 2, 0.05), (2.0, 5, 0.01), (30.0, 20, 0.3), (4.0, 3, 0.9)]
)
def test_every_number_is_the_librarys(noise: float, rows: int, rate: float, width: float) -> None:
    moves, probabilities = binomial(rows, rate)
    theirs = pld.from_mixture_gaussian_mechanism(
        noise, moves, probabilities, value_discretization_interval=width
    )
    ours = mixture_of_gaussians(noise, moves, probabilities, width=width)
    for ours_of, theirs_of in (
        (ours._pmf_remove, theirs._pmf_remove),
        (ours._pmf_add, theirs._pmf_add),
    ):
        own, other = ours_of.to_dense_pmf(), theirs_of.to_dense_pmf()
        assert own._infinity_mass == other._infinity_mass
        assert own._lower_loss == other._lower_loss
        np.testing.assert_array_equal(own._probs, other._probs)
    assert ours.self_compose(30).get_epsilon_for_delta(1e-6) == (
        theirs.self_compose(30).get_epsilon_for_delta(1e-6)
    )


@pytest.mark.parametrize("adjacency", [AdjacencyType.ADD, AdjacencyType.REMOVE])
@pytest.mark.parametrize(("noise", "width"), [(3.0, 1e-3), (40.0, 1e-2), (1e5, 1e-2)])
def test_a_loss_is_put_on_the_grid_as_the_library_puts_it(
    noise: float, width: float, adjacency: AdjacencyType
) -> None:
    """On many points, on some, and on hardly any."""
    loss = gaussian._Gaussian(noise, sampling_prob=0.2, adjacency_type=adjacency)
    theirs = pld._create_pld_pmf_from_monotone_privacy_loss(
        loss, value_discretization_interval=width, use_connect_dots=True
    ).to_dense_pmf()
    ours = gaussian._dots(loss, width)
    assert (ours._lower_loss, ours._infinity_mass) == (theirs._lower_loss, theirs._infinity_mass)
    np.testing.assert_array_equal(ours._probs, theirs._probs)


def test_a_delta_that_grows_is_no_delta() -> None:
    class Grows(gaussian._Gaussian):
        def get_delta_for_epsilon(self, epsilon: Any) -> Any:
            return np.linspace(0.1, 0.2, len(epsilon))

    with pytest.raises(ValueError, match="grows"):
        gaussian._dots(Grows(3.0, sampling_prob=1.0, adjacency_type=AdjacencyType.ADD), 1e-2)


@pytest.mark.parametrize("x", [-math.inf, -40.0, -1e-300, 0.3, 9.0, math.inf])
def test_a_normal_law_is_the_librarys(x: float) -> None:
    loss = gaussian._Gaussian(0.7, sampling_prob=1.0, adjacency_type=AdjacencyType.ADD)
    law = loss._gaussian_random_variable
    assert (loss.noise_cdf(x), loss.noise_log_cdf(x)) == (law.cdf(x), law.logcdf(x))


def test_moves_without_zero_are_inverted_alike() -> None:
    setting = (1.5, (1.0, 2.5), (0.6, 0.4))
    theirs = pld.from_mixture_gaussian_mechanism(*setting, value_discretization_interval=1e-2)
    ours = mixture_of_gaussians(*setting, width=1e-2)
    for delta in (1e-12, 1e-6, 0.1):
        assert ours.get_epsilon_for_delta(delta) == theirs.get_epsilon_for_delta(delta)
