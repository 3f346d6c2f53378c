"""Events of mechanisms that choose: never below what the exact law of the choice gives away, and not far above."""

from __future__ import annotations

import math
from itertools import permutations, product

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from synthdp.privacy import accounting
from synthdp.privacy.events import NoisyMaxDpEvent, SparseVectorDpEvent

EPSILONS = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0)


def first_above(queries: tuple[int, ...], threshold_scale: float, query_scale: float) -> np.ndarray:
    """Chance that query i is the first above, and last that none is: summed over the noise of the threshold."""
    threshold = np.arange(-600, 601)
    weight = stats.dlaplace.pmf(threshold, 1 / threshold_scale)
    below, chances = weight, []
    for query in queries:
        above = stats.dlaplace.sf(threshold - query - 1, 1 / query_scale)
        chances.append((below * above).sum())
        below = below * (1 - above)
    return np.array([*chances, below.sum()])


def worst_ratio(threshold_scale: float, query_scale: float, moved: int) -> float:
    """Largest log ratio over neighbouring answers to up to nine queries, all moves at their ends."""
    worst = 0.0
    for length in (1, 3, 9):
        for height in (-20, -6, 0, 6):
            for ends in ((moved, -moved), (-moved, moved), (moved, moved)):
                one = first_above((height,) * length, threshold_scale, query_scale)
                other = first_above((*(height + ends[0] for _ in range(length - 1)), height + ends[1]), threshold_scale, query_scale)
                worst = max(worst, float(np.abs(np.log(one / other)).max()))
    return worst


@pytest.mark.parametrize(("threshold_scale", "query_scale", "moved"), [(4.0, 8.0, 1), (6.0, 6.0, 2), (3.0, 20.0, 3)])
def test_sparse_vector_is_not_below_its_exact_law(threshold_scale: float, query_scale: float, moved: int) -> None:
    event = SparseVectorDpEvent(threshold_scale, query_scale, moved)
    assert 0.5 * event.epsilon <= worst_ratio(threshold_scale, query_scale, moved) <= event.epsilon * (1 + 1e-6)


def permute_and_flip(scores: tuple[int, ...], scale: float) -> np.ndarray:
    heads = np.exp((np.array(scores) - max(scores)) / scale)
    chances = np.zeros(len(scores))
    for order in permutations(range(len(scores))):
        left = 1.0
        for i in order:
            chances[i] += left * heads[i]
            left *= 1 - heads[i]
    return chances / math.factorial(len(scores))


def test_noisy_max_is_not_below_its_exact_law() -> None:
    scale, event = 4.0, NoisyMaxDpEvent(4.0, 1)
    worst = 0.0
    for scores in product((-20, -2, 0, 1), repeat=4):
        one = permute_and_flip(scores, scale)
        for moves in product((-1, 1), repeat=4):
            other = permute_and_flip(tuple(s + m for s, m in zip(scores, moves, strict=True)), scale)
            worst = max(worst, float(np.abs(np.log(one / other)).max()))
    assert 0.8 * event.epsilon <= worst <= event.epsilon * (1 + 1e-9)


def randomised_response_delta(pure: float, count: int, epsilon: float) -> float:
    """Exact: of `count` answers i are truthful, with log likelihood ratio (2 i - count) pure."""
    right = math.exp(pure) / (1 + math.exp(pure))
    i = np.arange(count + 1)
    one, other = stats.binom.pmf(i, count, right), stats.binom.pmf(i, count, 1 - right)
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("event", [SparseVectorDpEvent(150.0, 300.0, 6, rate=0.5), NoisyMaxDpEvent(40.0, 1, rows=2)], ids=["sparse", "max"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_composition_is_not_below_its_exact_delta(event: SparseVectorDpEvent | NoisyMaxDpEvent, adjacency: accounting.Adjacency) -> None:
    pure = event.epsilon * (1 if adjacency == "add_remove" else 2)
    profile = accounting.delta_profile([dp_accounting.SelfComposedDpEvent(event, 30)], epsilons=EPSILONS, adjacency=adjacency)
    for epsilon, delta in profile:
        exact = randomised_response_delta(pure, 30, epsilon)
        assert exact - 1e-10 <= delta <= exact * 1.02 + 1e-6


def test_parts_of_one_event_compose() -> None:
    parts = (dp_accounting.GaussianDpEvent(4.0), NoisyMaxDpEvent(30.0, 1), SparseVectorDpEvent(20.0, 40.0, 1))
    together = accounting.epsilon([dp_accounting.ComposedDpEvent(parts)], delta=1e-5, adjacency="add_remove")
    assert together == pytest.approx(accounting.epsilon(parts, delta=1e-5, adjacency="add_remove"), rel=1e-9)


def sampled_delta(event: SparseVectorDpEvent) -> float:
    """Log ratio of a sampled pass whose worst outcome has the unsampled ratio: a mixture of with and without the row."""
    unsampled = SparseVectorDpEvent(event.threshold_scale, event.query_scale, event.sensitivity).epsilon
    return math.log(1 - event.rate + event.rate * math.exp(unsampled))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9, 1.0])
def test_sampling_costs_what_the_mixture_costs(rate: float) -> None:
    event = SparseVectorDpEvent(4.0, 8.0, 2, rate=rate)
    assert event.epsilon == pytest.approx(sampled_delta(event), rel=1e-12)
    assert SparseVectorDpEvent(4.0, 8.0, 2, rate=rate, rows=3).epsilon == pytest.approx(3 * event.epsilon)


def test_what_protects_nobody_has_no_finite_cost() -> None:
    assert accounting.epsilon([NoisyMaxDpEvent(1e-3, 1)], delta=1e-5, adjacency="add_remove") == math.inf
