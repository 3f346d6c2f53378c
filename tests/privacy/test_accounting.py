"""What events cost, against Opacus' PRV accountant, direct integration, and simulation."""

import itertools
import json
import math
from collections.abc import Iterator, Sequence

import dp_accounting
import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from synthdp.errors import BudgetError
from synthdp.privacy import (
    DiscreteGaussianDpEvent,
    GumbelMaxDpEvent,
    RoundedGaussianDpEvent,
    SparseVectorDpEvent,
    accounting,
    composed,
    discrete_gaussian_pld,
)
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.events.gaussian import unit_sampled_gaussian
from synthdp.privacy.events.kinds import event_from_json, event_to_json, kind_of, with_holdout
from tests.privacy.conftest import Floats, gaussian_delta, hockey_stick


def cost(
    *events: dp_accounting.DpEvent, delta: float = 1e-5, adjacency: Adjacency = "add_remove"
) -> float:
    return accounting.epsilon(events, delta=delta, adjacency=adjacency)


def profile(
    event: dp_accounting.DpEvent, epsilons: Sequence[float], adjacency: Adjacency = "add_remove"
) -> tuple[tuple[float, float], ...]:
    return accounting.delta_profile([event], epsilons=epsilons, adjacency=adjacency)


gaussian = dp_accounting.GaussianDpEvent


def sgd(rate: float, noise: float, steps: int, rows: int = 1) -> dp_accounting.DpEvent:
    return unit_sampled_gaussian(noise_multiplier=noise, rate=rate, rows=rows, steps=steps)


# --- DP-SGD ---


@pytest.mark.check
@pytest.mark.parametrize(
    "noise", [30.0, 486.5379890610883]
)  # at the second the accounting library finds no tail of the mixture
def test_units_whose_rows_all_join_every_batch_move_by_all_of_them(noise: float) -> None:
    mine = cost(sgd(1.0, noise, 50, rows=8))
    assert mine == pytest.approx(cost(gaussian(noise / 8 / math.sqrt(50))), rel=1e-3)
    assert mine >= cost(sgd(0.999, noise, 50, rows=8))


@pytest.mark.check
@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.01, pytest.param(0.3, marks=pytest.mark.slow), 1.0])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_one_step_is_not_below_direct_integration(
    noise: float, rate: float, adjacency: Adjacency
) -> None:
    """Hockey-stick divergences of both densities on a fine grid: what one step truly leaks."""
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 400_001)
    width = x[1] - x[0]
    without = stats.norm.pdf(x, 0, noise) * width
    with_row = (1 - rate) * without + rate * stats.norm.pdf(x, 1, noise) * width
    opposite = (1 - rate) * without + rate * stats.norm.pdf(x, -1, noise) * width
    other = without if adjacency == "add_remove" else opposite
    for epsilon, delta in profile(sgd(rate, noise, 1), (0.05, 0.3, 1.0, 2.0), adjacency):
        truth = max(hockey_stick(with_row, other, epsilon), hockey_stick(other, with_row, epsilon))
        assert truth - 1e-9 <= delta <= truth * 1.01 + 1e-7


@pytest.mark.parametrize(("noise", "steps"), [(2.0, 1), (10.0, 100), (40.0, 1000)])
def test_composed_gaussians_are_not_below_the_closed_form(noise: float, steps: int) -> None:
    """`steps` Gaussians are one of noise / sqrt(steps) [Dong, Roth, Su 2019, Corollary 3.3]."""
    mu = math.sqrt(steps) / noise
    for epsilon, delta in profile(sgd(1.0, noise, steps), (0.1, 0.5, 1.0, 3.0)):
        truth = gaussian_delta(mu, epsilon)
        assert truth - 1e-12 <= delta <= truth * 1.02 + 1e-8


@pytest.mark.check
@pytest.mark.parametrize("rows", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 5))])
@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    [(0.01, 1.0, 1000, 1e-5), (0.02, 1.5, 2000, 1e-6), (0.026, 1.3, 1000, 1e-5)],
)
def test_sampled_composition_is_not_below_a_simulation(
    rate: float, noise: float, steps: int, delta: float, rows: int
) -> None:
    """Sharing nothing with PLDs: losses of samples of the real mechanism, a coin for each row."""
    event = sgd(rate, noise, steps, rows)
    rng, runs, epsilon = np.random.default_rng(1), 20_000, cost(event, delta=delta)
    total, drawn = np.zeros(runs), np.arange(rows + 1)
    probabilities = stats.binom.pmf(drawn, rows, rate)
    for _ in range(steps):
        x = rng.standard_normal(runs) * noise + rng.binomial(rows, rate, runs)
        total += np.log(
            probabilities @ np.exp(drawn[:, None] * (2 * x - drawn[:, None]) / (2 * noise**2))
        )
    wide = epsilon / 2
    losses = np.maximum(1 - np.exp(wide - total), 0)
    claimed = profile(event, (wide,))[0][1]
    error = losses.std() / math.sqrt(runs)
    assert losses.mean() - 5 * error <= claimed
    assert claimed <= losses.mean() + 5 * error + 0.02 * claimed, (
        "the bound is loose, or the simulation has no power"
    )


# --- discrete Gaussian ---


def discrete_pmf(sigma: float, reach: int) -> tuple[npt.NDArray[np.int64], Floats]:
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support**2) / (2 * sigma**2))
    return support, weights / weights.sum()


def spread_delta(sigma: float, spread: Sequence[int], epsilons: Sequence[float]) -> list[float]:
    """Exact delta of cells shifted by `spread`: the loss is linear in the sum of shift * x."""
    reach = math.ceil(12 * sigma) + 12
    law = np.ones(1)
    for shift in spread:
        _, pmf = discrete_pmf(sigma, reach)
        cell = np.zeros(2 * reach * shift + 1)
        cell[::shift] = pmf
        law = np.convolve(law, cell)
    half = len(law) // 2
    dot = np.arange(-half, half + 1) + sum(
        s * s for s in spread
    )  # sum of shift_i * x_i under the shifted law
    loss = (2 * dot - sum(s * s for s in spread)) / (2 * sigma**2)
    return [float((law * np.maximum(1 - np.exp(e - loss), 0)).sum()) for e in epsilons]


def partitions(k: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    if k == 0:
        yield ()
    for first in range(min(k, most or k), 0, -1):
        yield from ((first, *rest) for rest in partitions(k - first, first))


EPSILONS = (0.0, 0.01, 0.1, 0.3, 0.7, 1.0, 2.0, 4.0)


@pytest.mark.check
@pytest.mark.parametrize("sigma", [0.4, 0.8, 1.0, 2.5, 7.0, 20.0])
@pytest.mark.parametrize("k", range(1, 7))
def test_no_spread_of_counts_is_above_the_charge(sigma: float, k: int) -> None:
    """`DiscreteGaussianDpEvent` charges k counts, however they and fewer are spread over cells."""
    charged = [delta for _, delta in profile(DiscreteGaussianDpEvent(sigma, k), EPSILONS)]
    for spread in itertools.chain.from_iterable(partitions(j) for j in range(1, k + 1)):
        for mine, worst in zip(spread_delta(sigma, spread, EPSILONS), charged, strict=True):
            assert mine <= worst * (1 + 1e-9) + 1e-10, (spread, sigma)


@pytest.mark.parametrize("sigma", [1.0, 2.5, 20.0])
@pytest.mark.parametrize("k", [2, 3])
def test_no_spread_of_a_replaced_unit_is_above_the_charge(sigma: float, k: int) -> None:
    """k rows leave and k come, however either are spread; the worst comes near what is charged."""
    charged = dict(profile(DiscreteGaussianDpEvent(sigma, k), EPSILONS, "replace_one"))
    for gone, come in itertools.product(list(partitions(k)), repeat=2):
        spread = spread_delta(sigma, (*gone, *come), EPSILONS)
        for epsilon, truth in zip(EPSILONS, spread, strict=True):
            assert truth <= charged[epsilon] * (1 + 1e-9) + 1e-10, (gone, come)
    assert charged[0.0] <= 1.6 * spread_delta(sigma, (k, k), (0.0,))[0] + 1e-3


@pytest.mark.parametrize(
    ("adjacency", "factor"), [("add_remove", 1.0), ("replace_one", math.sqrt(2))]
)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_rounded_gaussian_on_counts_is_charged_for_its_longest_move(
    k: int, adjacency: Adjacency, factor: float
) -> None:
    """Against the closed form for 12 tables of noise 30, and the exact law of a single one."""
    event = dp_accounting.SelfComposedDpEvent(RoundedGaussianDpEvent(30.0, k), 12)
    for epsilon, delta in profile(event, EPSILONS, adjacency):
        truth = gaussian_delta(factor * k * math.sqrt(12) / 30, epsilon)
        assert truth - 1e-12 <= delta <= truth * 1.02 + 1e-8
    cells = np.arange(-60, 61 + k)
    one, other = (
        stats.norm.cdf(cells + 0.5, m, 4.0) - stats.norm.cdf(cells - 0.5, m, 4.0) for m in (0, k)
    )
    if adjacency == "replace_one":  # k counts leave one cell and enter another
        one, other = np.outer(one, other).ravel(), np.outer(other, one).ravel()
    for epsilon, delta in profile(RoundedGaussianDpEvent(4.0, k), EPSILONS, adjacency):
        assert 0.9 * delta - 1e-6 <= hockey_stick(one, other, epsilon) <= delta + 1e-12


def exact_delta(sigma: float, moves: int, epsilon: float) -> float:
    """Delta of `moves` cells that move by one, over the law of their sum, to 12 deviations."""
    reach = math.ceil(12 * sigma * math.sqrt(moves))

    def both(one: Floats, other: Floats) -> Floats:
        law = np.convolve(one, other)
        out = max(0, len(law) // 2 - reach)
        return law[out : len(law) - out]

    total, left, law = np.ones(1), moves, discrete_pmf(sigma, math.ceil(12 * sigma) + 1)[1]
    while left:
        total, left = both(total, law) if left % 2 else total, left // 2
        law = both(law, law) if left else law
    loss = (np.arange(len(total)) - len(total) // 2 + moves / 2) / sigma**2
    above = loss > epsilon
    return float(-(total[above] * np.expm1(epsilon - loss[above])).sum())


@pytest.mark.parametrize(
    ("sigma", "tables", "adjacency"),
    [
        *((sigma, 1, "add_remove") for sigma in (0.4, 1.0, 6.0)),
        *((sigma, 1, "replace_one") for sigma in (0.8, 6.0)),
        (1.1, 2, "replace_one"),
        (2.5, 9, "add_remove"),
        (9.0, 14, "replace_one"),
        (12.0, 40, "add_remove"),
        (40.0, 14, "add_remove"),
        pytest.param(60.0, 105, "add_remove", marks=pytest.mark.check),
        pytest.param(40.0, 100, "replace_one", marks=pytest.mark.check),
    ],
)
def test_tables_together_cost_their_exact_delta_and_hardly_more(
    sigma: float, tables: int, adjacency: Adjacency
) -> None:
    """Losses that are rounded up to the grid would take half a step of epsilon for each table."""
    event = dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma), tables)
    moves = tables * (1 if adjacency == "add_remove" else 2)
    for epsilon, delta in profile(event, EPSILONS, adjacency):
        exact = exact_delta(sigma, moves, epsilon)
        assert exact - 1e-13 <= delta <= exact * 1.001 + 1e-12, epsilon


@pytest.mark.parametrize("sigma", [0.3, 2.0, 55.0])
def test_one_discrete_gaussian_is_the_librarys(sigma: float) -> None:
    theirs = pld.from_discrete_gaussian_mechanism(
        sigma, value_discretization_interval=1e-4, use_connect_dots=True
    )
    ours = discrete_gaussian_pld(sigma, width=1e-4)
    for delta in (0.05, 1e-3, 1e-6):
        epsilon = theirs.get_epsilon_for_delta(delta)
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(epsilon, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("sigma", [1e-6, 0.02, 0.04])
def test_next_to_no_noise_is_no_protection(sigma: float) -> None:
    """Losses that are too large to be told count as endless."""
    event = dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma), 3)
    assert cost(event, adjacency="replace_one") > 500


# --- units of several rows, groups, adjacencies ---

EVENTS = [
    sgd(0.02, 1.2, 100),
    gaussian(5.0),
    dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(20.0), 8),
]


@pytest.mark.check
@pytest.mark.parametrize("event", EVENTS, ids=["sgd", "gaussian", "discrete"])
def test_replace_one_costs_at_least_add_remove(event: dp_accounting.DpEvent) -> None:
    assert cost(event, adjacency="replace_one") > cost(event)


@pytest.mark.check
@pytest.mark.parametrize("rows", [2, 5])
def test_unit_of_rows_is_not_below_direct_integration(rows: int) -> None:
    noise, rate = 1.5, 0.2
    x = np.linspace(-20, 30, 400_001)
    width = x[1] - x[0]
    without = stats.norm.pdf(x, 0, noise) * width
    with_unit = sum(
        stats.binom.pmf(i, rows, rate) * stats.norm.pdf(x, i, noise) * width
        for i in range(rows + 1)
    )
    for epsilon, delta in profile(sgd(rate, noise, 1, rows), (0.1, 0.5, 1.5)):
        sides = (with_unit, without), (without, with_unit)
        truth = max(hockey_stick(*pair, epsilon) for pair in sides)
        assert truth - 1e-9 <= delta <= truth * 1.05 + 1e-6


def test_several_rows_cannot_be_replaced() -> None:
    with pytest.raises(BudgetError, match="replace_one"):
        cost(sgd(0.1, 1.0, 5, rows=2), adjacency="replace_one")


def test_sampling_of_anything_else_is_refused() -> None:
    with pytest.raises(BudgetError, match="no sound accounting"):
        cost(dp_accounting.PoissonSampledDpEvent(0.1, DiscreteGaussianDpEvent(1.0)))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_group_epsilon_grows_and_matches_the_definition(adjacency: Adjacency) -> None:
    groups = [
        accounting.group_epsilon(EVENTS, size=k, delta=1e-5, adjacency=adjacency)
        for k in (1, 2, 3, 5)
    ]
    assert groups == sorted(groups)
    assert groups[0] == cost(*EVENTS, adjacency=adjacency)
    for k, bound in zip((2, 3, 5), groups[1:], strict=True):
        e = bound / k
        delta = accounting.delta_profile(EVENTS, epsilons=(e,), adjacency=adjacency)[0][1]
        assert sum(math.exp(i * e) * delta for i in range(k)) <= 1e-5 * (1 + 1e-6)


def test_group_bound_holds_for_a_gaussian() -> None:
    """k units move a Gaussian by k: no more than the bound from one unit's profile."""
    one = [gaussian(4.0)]
    bound = accounting.group_epsilon(one, size=3, delta=1e-6, adjacency="add_remove")
    assert cost(gaussian(4.0 / 3), delta=1e-6) <= bound


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_group_epsilon_ends_where_delta_pays_for_one_unit_and_not_for_all(
    adjacency: Adjacency,
) -> None:
    """Epsilon of one unit is 0 here; doubling it never ended."""
    event = gaussian(8e4 if adjacency == "replace_one" else 4e4)
    assert cost(event, adjacency=adjacency) == 0
    bound = accounting.group_epsilon([event], size=10, delta=1e-5, adjacency=adjacency)
    wide = gaussian(event.noise_multiplier / 10)
    assert 0 < cost(wide, adjacency=adjacency) <= bound < 1e-2
    assert accounting.group_epsilon([event], size=10, delta=0.5, adjacency=adjacency) == 0


def test_no_protection_is_a_delta_of_one() -> None:
    """The library wants deltas below one: what is reported must not profit from that."""
    for event in (GumbelMaxDpEvent(1e-3, 1, 1), DiscreteGaussianDpEvent(1e-3, 2)):
        assert profile(event, (0.0, 10.0)) == ((0.0, 1.0), (10.0, 1.0))
        assert math.isinf(cost(event, delta=1 - 1e-13))


def test_order_of_events_is_irrelevant() -> None:
    assert len({round(cost(*order), 6) for order in itertools.permutations(EVENTS)}) == 1


def test_profile_falls_and_is_never_above_one() -> None:
    every = dp_accounting.ComposedDpEvent(tuple(EVENTS))
    deltas = [d for _, d in profile(every, (0, 0.5, 1, 2, 5, 20))]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[-1] >= 0 and deltas[0] <= 1


# --- JSON ---

finite, counts, rows, rates = (
    *(st.floats(0.01, 1e6), st.integers(1, 640), st.integers(1, 64), st.floats(1e-6, 1.0)),
)
steps = {"steps": st.integers(1, 10**6), "rows": st.integers(1, 8)}
plain = st.one_of(
    st.just(dp_accounting.NoOpDpEvent()),
    st.builds(gaussian, finite),
    st.builds(DiscreteGaussianDpEvent, finite, counts),
    st.builds(RoundedGaussianDpEvent, finite, counts),
    st.builds(SparseVectorDpEvent, finite, finite, counts, rates, rows),
    st.builds(GumbelMaxDpEvent, finite, counts, rows),
    st.builds(unit_sampled_gaussian, noise_multiplier=finite, rate=rates, **steps),
)


@settings(max_examples=60)
@given(
    st.one_of(
        plain,
        st.builds(dp_accounting.SelfComposedDpEvent, plain, st.integers(1, 500)),
        st.builds(dp_accounting.ComposedDpEvent, st.tuples(plain, plain)),
    )
)
def test_events_survive_json(event: dp_accounting.DpEvent) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"event": "laplace"},
        {"event": "repeated", "count": "3", "of": {}},
        {"event": "repeated", "count": 2},
    ],
)
def test_unknown_json_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(BudgetError, match="unknown event"):
        event_from_json(data)


def test_unknown_event_has_no_json() -> None:
    with pytest.raises(BudgetError, match="no JSON form"):
        event_to_json(dp_accounting.LaplaceDpEvent(1.0))


# --- of units of several rows ---

SPREAD = [(6.0, 3), (8.0, 3), (8.0, 3)]  # sigmas of tables, and rows of a unit


def at_odds(epsilons: Sequence[float]) -> list[float]:
    """Delta at each, of a unit that adds all of its rows to one cell of each table: by all values
    of their noise, of those that have a chance.
    """
    loss, mass = np.zeros(1), np.ones(1)
    for sigma, rows in SPREAD:
        x = np.arange(-math.ceil(9 * sigma), math.ceil(9 * sigma) + 1)
        chance = np.exp(-((x / sigma) ** 2) / 2)
        loss = np.add.outer(loss, (rows**2 + 2 * rows * x) / (2 * sigma**2)).ravel()
        mass = np.outer(mass, chance / chance.sum()).ravel()
    return [float(mass @ np.maximum(0, -np.expm1(e - loss))) for e in epsilons]


def in_one(epsilons: Sequence[float]) -> list[float]:
    """What the sum of their bounds says: the least over orders of [CKS20, Proposition 12]."""
    rho = sum(rows**2 / (2 * sigma**2) for sigma, rows in SPREAD)
    a = np.exp(np.linspace(1e-3, 6, 20_000))
    logs = [(a - 1) * (a * rho - e) + a * np.log1p(-1 / a) - np.log(a - 1) for e in epsilons]
    return [float(np.exp(log.min())) for log in logs]


def test_bounds_add_up_however_deep_their_events_lie() -> None:
    first, second = (DiscreteGaussianDpEvent(*own) for own in SPREAD[:2])
    all_of, twice = dp_accounting.ComposedDpEvent, dp_accounting.SelfComposedDpEvent
    flat = [first, twice(second, 2)]
    nested = [all_of((all_of((first,)), twice(twice(all_of((second,)), 1), 2)))]
    epsilons = (0.5, 1.5, 2.5, 3.5)
    exact, least = at_odds(epsilons), in_one(epsilons)
    for events in (flat, nested, [first, second, second], [all_of(tuple(flat))]):
        found = [
            d
            for _, d in accounting.delta_profile(events, epsilons=epsilons, adjacency="add_remove")
        ]
        assert found == pytest.approx(least, rel=5e-3)
        assert all(one <= told for one, told in zip(exact, found, strict=True))
    apart = composed([(kind_of(e).cost("add_remove", 1e-3), 1) for e in (first, second, second)])
    assert apart.get_delta_for_epsilon(2.5) > 1.3 * least[2]  # each turned by itself
    (held,), (less,) = (with_holdout(own, 0.2, "add_remove") for own in (nested, [*flat, first]))
    assert cost(held) < cost(less)  # one table more, beside the coin too
