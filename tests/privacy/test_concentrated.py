"""The distribution made of a Rényi bound dominates what has that bound, and is not much looser."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from synthdp.privacy import (
    JUDGED_AT,
    bounded_range_pld,
    concentrated_pld,
    convex_minorant,
    discrete_gaussian_rho,
)
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals
from tests.privacy.conftest import gaussian_delta

WIDTH = 1e-3
EPSILONS = np.array([-3.0, -1.0, -0.1, 0.0, 0.05, 0.3, 1.0, 2.5, 5.0])


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 3.0])
def test_dominates_the_gaussian_of_the_same_bound(mu: float) -> None:
    """The Gaussian meets the Rényi bound at every order: nothing smaller would do for it."""
    bound = concentrated_pld(mu**2 / 2, width=WIDTH)
    for epsilon in EPSILONS:
        told = bound.get_delta_for_epsilon(float(epsilon))
        assert told >= gaussian_delta(mu, float(epsilon)) - 1e-12


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 3.0])
def test_is_not_much_looser(mu: float) -> None:
    bound = concentrated_pld(mu**2 / 2, width=WIDTH)
    exact = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=WIDTH)
    assert 1.0 <= bound.get_epsilon_for_delta(1e-5) / exact.get_epsilon_for_delta(1e-5) < 1.15


def test_composition_of_bounds_dominates_composition_of_mechanisms() -> None:
    bound, exact = (
        concentrated_pld(0.02, width=WIDTH),
        pld.from_gaussian_mechanism(5.0, value_discretization_interval=WIDTH),
    )
    both = bound.compose(pld.from_gaussian_mechanism(1.0, value_discretization_interval=WIDTH))
    true = exact.compose(pld.from_gaussian_mechanism(1.0, value_discretization_interval=WIDTH))
    assert (
        true.get_epsilon_for_delta(1e-5)
        <= both.get_epsilon_for_delta(1e-5)
        <= 1.05 * true.get_epsilon_for_delta(1e-5)
    )


@pytest.mark.parametrize("sigma", [0.4, 1.0, 5.0])
@pytest.mark.parametrize("shift", [1, 2, 7])
@pytest.mark.parametrize("order", [1.01, 2.0, 7.5])
def test_renyi_bound_of_the_discrete_gaussian(sigma: float, shift: int, order: float) -> None:
    """Below the bound, and on it where the order puts the shift on whole numbers."""
    x = np.arange(-400, 401).astype(float)
    norm = np.log(np.exp(-(x**2) / (2 * sigma**2)).sum())
    p, q = (-((x - m) ** 2) / (2 * sigma**2) - norm for m in (shift, 0))
    divergence = np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1)
    bound = order * discrete_gaussian_rho(sigma=sigma, squared_distance=shift**2)
    assert divergence <= bound * (1 + 1e-9)
    if float(order * shift).is_integer():
        assert divergence == pytest.approx(bound)


def test_convex_minorant() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    found = convex_minorant(x, np.array([4.0, 3.5, 1.0, 0.8, 0.0]))
    assert found.tolist() == [4.0, 2.5, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("rows", [1, 3])
def test_discrete_gaussians_on_any_number_of_chosen_tables_share_one_bound(rows: int) -> None:
    """k tables of noise m sqrt(k), moved by r each: rho is r^2 / (2 m^2) whatever k is."""
    shared = [
        discrete_gaussian_rho(sigma=7.0 * math.sqrt(k), squared_distance=k * rows**2)
        for k in (1, 2, 9, 400)
    ]
    assert shared == pytest.approx([rows**2 / (2 * 7.0**2)] * 4)
    said = " ".join((AdaptiveMarginals.__doc__ or "").split())
    assert "one zero-concentrated bound for all k" in said and "no one exact distribution" in said


@pytest.mark.parametrize("spread", [0.01, 0.3, 2.0, 9.0])
def test_one_choice_of_bounded_range_has_its_closed_form(spread: float) -> None:
    """On both sides of zero and beyond both ends."""
    bound = bounded_range_pld(spread, 1, width=WIDTH)
    for share in (-1.5, -1.0, -0.6, 0.0, 0.35, 0.8, 1.0, 1.3):
        epsilon = share * spread
        inside = (1 - math.exp((epsilon - spread) / 2)) ** 2 / (1 - math.exp(-spread))
        exact = 0.0 if share >= 1 else 1 - math.exp(epsilon) if share <= -1 else inside
        assert exact - 1e-12 <= bound.get_delta_for_epsilon(epsilon) <= exact + 1e-3 * spread


@pytest.mark.parametrize(("spread", "count"), [(1.0, 1), (0.5, 10), (0.1, 300)])
def test_the_better_of_two_bounds_of_a_range_is_taken(spread: float, count: int) -> None:
    taken = bounded_range_pld(spread, count, width=WIDTH).get_epsilon_for_delta(JUDGED_AT)
    one_by_one = (
        bounded_range_pld(spread, 1, width=WIDTH)
        .self_compose(count)
        .get_epsilon_for_delta(JUDGED_AT)
    )
    as_zcdp = concentrated_pld(count * spread**2 / 8, width=WIDTH).get_epsilon_for_delta(JUDGED_AT)
    assert taken == pytest.approx(min(one_by_one, as_zcdp), rel=1e-6) and (
        as_zcdp < one_by_one
    ) == (count == 300)


def test_a_range_beyond_all_bounds_protects_nothing() -> None:
    assert bounded_range_pld(1e3, 2, width=WIDTH).get_delta_for_epsilon(10.0) > 1 - 1e-8
