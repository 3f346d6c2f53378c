"""Events of mechanisms that choose: not below the exact law of the choice, nor far above."""

import math
from itertools import product

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from synthdp.privacy import GumbelMaxDpEvent, SparseVectorDpEvent, accounting
from synthdp.privacy.accounting import Adjacency
from tests.privacy.conftest import hockey_stick

EPSILONS = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0)


def first_above(queries: tuple[int, ...], threshold_scale: float, query_scale: float) -> np.ndarray:
    """Chance that query i is the first above, and last that none is."""
    threshold = np.arange(-600, 601)
    weight = stats.dlaplace.pmf(threshold, 1 / threshold_scale)
    below, probabilities = weight, []
    for query in queries:
        above = stats.dlaplace.sf(threshold - query - 1, 1 / query_scale)
        probabilities.append((below * above).sum())
        below = below * (1 - above)
    return np.array([*probabilities, below.sum()])


def worst_ratio(threshold_scale: float, query_scale: float, moved: int) -> float:
    """Largest log ratio over neighbouring answers to up to nine queries."""
    worst = 0.0
    for length in (1, 3, 9):
        for height in (-20, -6, 0, 6):
            for ends in ((moved, -moved), (-moved, moved), (moved, moved)):
                one = first_above((height,) * length, threshold_scale, query_scale)
                other = first_above(
                    (*(height + ends[0] for _ in range(length - 1)), height + ends[1]),
                    threshold_scale,
                    query_scale,
                )
                worst = max(worst, float(np.abs(np.log(one / other)).max()))
    return worst


@pytest.mark.parametrize(
    ("threshold_scale", "query_scale", "moved"), [(4.0, 8.0, 1), (6.0, 6.0, 2), (3.0, 20.0, 3)]
)
def test_sparse_vector_is_not_below_its_exact_law(
    threshold_scale: float, query_scale: float, moved: int
) -> None:
    event = SparseVectorDpEvent(threshold_scale, query_scale, moved)
    assert (
        0.5 * event.epsilon
        <= worst_ratio(threshold_scale, query_scale, moved)
        <= event.epsilon * (1 + 1e-6)
    )


def softmax(scores: tuple[int, ...], scale: float) -> np.ndarray:
    weights = np.exp((np.array(scores) - max(scores)) / scale)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(
    ("rows", "adjacency"), [(1, "add_remove"), (3, "add_remove"), (2, "replace_one")]
)
def test_gumbel_max_is_not_below_its_exact_law(rows: int, adjacency: Adjacency) -> None:
    """Over scores, moves and thresholds; some choice comes near the charge at each of them."""
    scale, moved = 6.0, rows * (2 if adjacency == "replace_one" else 1)
    profile = accounting.delta_profile(
        [GumbelMaxDpEvent(scale, 1, rows)], epsilons=(0.0, 0.05, 0.1, 0.2, 0.3), adjacency=adjacency
    )
    worst = dict.fromkeys(dict(profile), 0.0)
    for scores in [(gap, *[0] * others) for others in (1, 2, 4) for gap in range(-14, 15, 2)]:
        one = softmax(scores, scale)
        for moves in product((-moved, moved), repeat=len(scores)):
            other = softmax(tuple(s + m for s, m in zip(scores, moves, strict=True)), scale)
            worst = {e: max(worst[e], hockey_stick(one, other, e)) for e in worst}
    for epsilon, charged in profile:
        assert 0.9 * charged - 1e-9 <= worst[epsilon] <= charged * (1 + 1e-9) + 1e-12


def adaptive_delta(spread: float, count: int, epsilon: float, *, cuts: int = 40) -> float:
    """What `count` choices leak if each, in the light of those before, takes the worst of `cuts`
    two-point laws: a lower bound.

    D(n, e) = max over t of P[t] D(n - 1, e - t) + P[t - r] D(n - 1, e - t + r), D(0, e) = max(0, 1
    - exp(e)).
    """
    step = spread / cuts
    reach = count * cuts
    e = epsilon + step * np.arange(-reach, reach + 1)
    left = np.maximum(-np.expm1(e), 0.0)
    for _ in range(count):
        best = np.zeros(len(left) - 2 * cuts)
        for j in range(1, cuts):
            high = -math.expm1(j * step - spread) / -math.expm1(-spread)
            own = (
                slice(cuts - j, cuts - j + len(best)),
                slice(2 * cuts - j, 2 * cuts - j + len(best)),
            )
            best = np.maximum(best, high * left[own[0]] + (1 - high) * left[own[1]])
        left = best
    return float(left[len(left) // 2])


@pytest.mark.parametrize(
    ("noise", "count"), [(1.0, 1), (2.0, 2), (6.0, 8), (20.0, 30), (60.0, 200)]
)
def test_choices_in_the_light_of_earlier_ones_are_not_above_the_charge(
    noise: float, count: int
) -> None:
    """And the charge is less than that of as many answers which are only pure."""
    event = dp_accounting.SelfComposedDpEvent(GumbelMaxDpEvent(noise, 1), count)
    for epsilon, charged in accounting.delta_profile(
        [event], epsilons=(0.0, 0.2, 0.5, 1.0), adjacency="add_remove"
    ):
        truth = adaptive_delta(2 / noise, count, epsilon)
        assert truth - 1e-12 <= charged <= 3 * truth + 1e-3
        assert charged <= randomised_response_delta(2 / noise, count, epsilon) + 1e-12
    if count >= 8:
        pure = [
            dp_accounting.SelfComposedDpEvent(SparseVectorDpEvent(noise / 2, math.inf, 1), count)
        ]
        costs = [
            accounting.epsilon(own, delta=1e-5, adjacency="add_remove") for own in ([event], pure)
        ]
        assert costs[0] < 0.8 * costs[1]


def randomised_response_delta(pure: float, count: int, epsilon: float) -> float:
    """Exact: of `count` answers i are truthful, with log likelihood ratio (2 i - count) pure."""
    right = math.exp(pure) / (1 + math.exp(pure))
    i = np.arange(count + 1)
    one, other = stats.binom.pmf(i, count, right), stats.binom.pmf(i, count, 1 - right)
    return hockey_stick(one, other, epsilon)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_composition_is_not_below_its_exact_delta(adjacency: Adjacency) -> None:
    event = SparseVectorDpEvent(150.0, 300.0, 6, rate=0.5)
    pure = event.epsilon * (1 if adjacency == "add_remove" else 2)
    profile = accounting.delta_profile(
        [dp_accounting.SelfComposedDpEvent(event, 30)], epsilons=EPSILONS, adjacency=adjacency
    )
    for epsilon, delta in profile:
        exact = randomised_response_delta(pure, 30, epsilon)
        assert exact - 1e-10 <= delta <= exact * 1.02 + 1e-6


def test_parts_of_one_event_compose() -> None:
    parts = (
        dp_accounting.GaussianDpEvent(4.0),
        GumbelMaxDpEvent(30.0, 1),
        SparseVectorDpEvent(20.0, 40.0, 1),
    )
    together = accounting.epsilon(
        [dp_accounting.ComposedDpEvent(parts)], delta=1e-5, adjacency="add_remove"
    )
    assert together == pytest.approx(
        accounting.epsilon(parts, delta=1e-5, adjacency="add_remove"), rel=1e-9
    )


def sampled_delta(event: SparseVectorDpEvent) -> float:
    """Log ratio of a mixture, with and without the row, of the unsampled ratio."""
    unsampled = SparseVectorDpEvent(
        event.threshold_scale, event.query_scale, event.sensitivity
    ).epsilon
    return math.log(1 - event.rate + event.rate * math.exp(unsampled))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9, 1.0])
def test_sampling_costs_what_the_mixture_costs(rate: float) -> None:
    event = SparseVectorDpEvent(4.0, 8.0, 2, rate=rate)
    assert event.epsilon == pytest.approx(sampled_delta(event), rel=1e-12)
    assert SparseVectorDpEvent(4.0, 8.0, 2, rate=rate, rows=3).epsilon == pytest.approx(
        3 * event.epsilon
    )


def test_what_protects_nobody_has_no_finite_cost() -> None:
    assert (
        accounting.epsilon([GumbelMaxDpEvent(1e-3, 1)], delta=1e-5, adjacency="add_remove")
        == math.inf
    )
