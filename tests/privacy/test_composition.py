"""Composition by one transform of each part: what the accounting library finds, two at a time."""

import math
from functools import reduce

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from synthdp.privacy import TAIL, composed, discrete_gaussian_pld, epsilon_for
from synthdp.privacy.events.gaussian import gaussian

WIDTH = 1e-3
PARTS = {
    "tables": [(discrete_gaussian_pld(8.0, width=WIDTH), 40)],
    "little noise": [(discrete_gaussian_pld(0.7, width=WIDTH), 3)],
    "training": [(gaussian(0.8, width=WIDTH, rate=0.02), 300)],
    "losses that are large and rare": [(gaussian(0.6, width=WIDTH, rate=1e-4), 200)],
    "a plan": [
        (discrete_gaussian_pld(20.0, width=WIDTH), 14),
        (gaussian(0.9, width=WIDTH, rate=0.05), 60),
        (gaussian(5.0, width=WIDTH), 1),
    ],
    "losses that count as endless": [
        (gaussian(0.03, width=WIDTH, rate=1e-3), 2),
        (gaussian(3.0, width=WIDTH), 1),
    ],
    "a threshold": [
        (gaussian(2.0, width=WIDTH), 2),
        (pld.from_privacy_parameters(
            pld.common.DifferentialPrivacyParameters(0.0, 1e-7),
            value_discretization_interval=WIDTH,
        ), 3),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.check) if "endless" in n else n for n in PARTS],
)
def test_it_is_the_librarys(name: str) -> None:
    parts = PARTS[name]
    theirs = reduce(
        lambda total, part: total.compose(part),
        [part.self_compose(count) if count > 1 else part for part, count in parts],
    )
    ours = composed(parts)
    for epsilon in (0.0, 0.3, 1.0, 2.5, 6.0):
        true = theirs.get_delta_for_epsilon(epsilon)
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(true, rel=1e-8, abs=2e-14)
    for delta in (1e-2, 1e-6, 1e-10):
        found, true = epsilon_for(ours, delta), theirs.get_epsilon_for_delta(delta)
        assert found == pytest.approx(true, rel=1e-4, abs=1e-9) or found == math.inf > true > 400
        assert found == pytest.approx(ours.get_epsilon_for_delta(delta), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize(("noise", "rate"), [(0.5, 0.01), (0.9, 0.3), (7.0, 0.05), (3.0, 1.0)])
def test_a_gaussian_is_the_librarys(noise: float, rate: float) -> None:
    theirs = pld.from_gaussian_mechanism(
        noise, value_discretization_interval=WIDTH, sampling_prob=rate
    )
    ours = gaussian(noise, width=WIDTH, rate=rate)
    for own, other in (
        (ours._pmf_remove, theirs._pmf_remove),
        (ours._pmf_add, theirs._pmf_add),
    ):
        for epsilon in (-0.5, -0.01, 0.0, 0.1, 1.0, 4.0):
            true = other.get_delta_for_epsilon(epsilon)
            assert own.get_delta_for_epsilon(epsilon) == pytest.approx(true, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(("noise", "rate"), [(0.5, 1e-4), (0.3, 1e-6), (1.0, 1e-4)])
def test_rare_large_losses_need_no_wide_window(noise: float, rate: float) -> None:
    """A thousand steps of a small batch of ten million rows took a grid of 1e8 losses."""
    once = gaussian(noise, width=1e-4, rate=rate)
    made = composed([(once, 1000)])
    for own, whole in ((once._pmf_remove, made._pmf_remove), (once._pmf_add, made._pmf_add)):
        assert whole.to_dense_pmf().size < 8 * own.to_dense_pmf().size


def test_what_a_window_leaves_out_counts_as_lost() -> None:
    once = discrete_gaussian_pld(8.0, width=WIDTH)
    assert once._pmf_remove._infinity_mass < TAIL / 100
    assert composed([(once, 40)])._pmf_remove._infinity_mass >= TAIL


def test_nothing_stays_nothing() -> None:
    none = discrete_gaussian_pld(1e-6, width=WIDTH)
    assert epsilon_for(composed([(none, 3), (gaussian(5.0, width=WIDTH), 2)]), 0.5) > 600
