"""What a holdout's secret coin gains: by integration of the joint law of all outputs, with scores
on both sides of it; and what is told where it is counted otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, stats

from synthdp.data import ColumnDomain, Domain
from synthdp.errors import BudgetError
from synthdp.privacy import DiscreteGaussianDpEvent, accounting, composed
from synthdp.privacy.calibration import mu_of
from synthdp.privacy.events import kinds
from synthdp.privacy.events.kinds import (
    HeldOutDpEvent,
    HoldoutDpEvent,
    SecretSampleDpEvent,
    event_from_json,
    event_to_json,
    kind_of,
    of_side,
    with_holdout,
)
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.plan import ReleasePlan, bound_of
from tests.privacy.test_secret_sample import EPSILONS, Floats, hockey_sticks, stated

Event = dp_accounting.DpEvent
RATE, DELTA = 0.2, 1e-5


def gaussian(noise: float) -> Event:
    return dp_accounting.GaussianDpEvent(noise)


def looks(fit: float, misplaced: float = 0.0, answers: float = 0.0) -> list[Event]:
    """A look at fitted rows of noise `fit`, and scores of both sides; of no noise: none."""
    own: list[Event] = [gaussian(fit)]
    if answers:
        own.append(
            dp_accounting.ComposedDpEvent((gaussian(misplaced), HeldOutDpEvent(gaussian(answers))))
        )
    return own


def on_a_grid(fit: float, answers: float, units: int, rate: float) -> tuple[Floats, Floats]:
    """The joint law of all outputs without and with `units`, cell by cell: what fitted units move
    is one Gaussian of noise 1 moved by `fit`, and `answers` are another.
    """

    def cells(move: float) -> Floats:
        edges = np.linspace(-7, 7 + units * max(fit, answers), 1201)
        return np.diff(stats.norm.cdf(edges, move))

    chances = stats.binom.pmf(np.arange(units + 1), units, 1 - rate)
    sides = (
        chance * np.outer(cells(j * fit), cells((units - j) * answers))
        for j, chance in enumerate(chances)
    )
    return np.outer(cells(0), cells(0)).ravel(), sum(sides, np.zeros((1200, 1200))).ravel()


def too_little(events: Sequence[Event], without: Floats, with_unit: Floats) -> set[str]:
    """The directions in which what is stated of `events` is below the true law."""
    removed, added = stated_of(events)
    pairs = {"removed": (with_unit, without, removed), "added": (without, with_unit, added)}
    return {
        name
        for name, (one, other, says) in pairs.items()
        if not np.all(hockey_sticks(one, other) - 1e-6 <= says)
    }


def stated_of(events: Sequence[Event]) -> tuple[Floats, Floats]:
    cost = accounting.compose(events, "add_remove")
    parts = cost._pmf_remove, cost._pmf_add
    removed, added = (np.array([p.get_delta_for_epsilon(e) for e in EPSILONS]) for p in parts)
    return removed, added


def epsilon(events: Sequence[Event]) -> float:
    return accounting.epsilon(events, delta=DELTA, adjacency="add_remove")


# --- what it is worth ---


def exact_epsilon(mu: float, rate: float) -> float:
    """Of one Gaussian look at fitted rows: the larger of both directions, by integration."""

    def delta(
        at: float, first: Callable[[Floats], Floats], second: Callable[[Floats], Floats]
    ) -> float:
        x = np.linspace(-12, 12 + mu, 400_001)
        return float(np.trapezoid(np.maximum(first(x) - math.exp(at) * second(x), 0), x))

    def without(x: Floats) -> Floats:
        return np.asarray(stats.norm.pdf(x))

    def with_unit(x: Floats) -> Floats:
        return np.asarray(rate * stats.norm.pdf(x) + (1 - rate) * stats.norm.pdf(x, mu))

    both = (with_unit, without), (without, with_unit)
    return float(optimize.brentq(lambda e: max(delta(e, *pair) for pair in both) - DELTA, 0.0, 9.0))


@pytest.mark.parametrize(("whole", "least", "most"), [(1.0, 0.845, 0.86), (0.3, 0.23, 0.25)])
def test_a_fifth_held_out_is_worth_an_eighth_of_epsilon(
    whole: float, least: float, most: float
) -> None:
    mu = mu_of(whole, DELTA)
    found = epsilon(with_holdout(looks(1 / mu), RATE, "add_remove"))
    assert least < found <= most and epsilon(looks(1 / mu)) == pytest.approx(whole, rel=1e-3)
    assert exact_epsilon(mu, RATE) <= found <= exact_epsilon(mu, RATE) * 1.001
    # the falsifiers: a coin that is not counted in, and one that is counted twice
    assert epsilon(looks(1 / mu)) > most
    twice = with_holdout(with_holdout(looks(1 / mu), RATE, "add_remove"), RATE, "add_remove")
    assert epsilon(list(twice)) < exact_epsilon(mu, RATE) * 0.95


def test_a_holdout_without_scores_is_a_secret_sample_of_all_looks() -> None:
    inner = dp_accounting.ComposedDpEvent((gaussian(2.0), gaussian(3.0)))
    one = stated(HoldoutDpEvent(RATE, inner.events))
    other = stated(SecretSampleDpEvent(1 - RATE, inner))
    for mine, theirs in zip(one, other, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-9)


# --- scores on both sides ---

CASES = [(0.5, 0.7, 0.3), (1.5, 1.5, 0.5), (3.0, 0.4, 0.2), (0.3, 2.5, 0.2), (3.0, 3.0, 0.5)]


@pytest.mark.parametrize(("fit", "answers", "rate"), CASES)
def test_both_sides_cost_no_less_than_their_joint_law(
    fit: float, answers: float, rate: float
) -> None:
    law = on_a_grid(fit, answers, 1, rate)
    # What is fitted is two Gaussians, one of them of the scores.
    events = with_holdout(
        looks(math.sqrt(2) / fit, math.sqrt(2) / fit, 1 / answers), rate, "add_remove"
    )
    assert too_little(events, *law) == set()
    # Nor is it above what a comparison of both sides at one order says.
    at_one = [
        (1 - rate) * gaussian_delta(e, fit) + rate * gaussian_delta(e, answers) for e in EPSILONS
    ]
    for says in stated_of(events):
        assert np.all(says <= np.array(at_one) * 1.01 + 3e-6)


def gaussian_delta(at: float, mu: float) -> float:
    upper, lower = stats.norm.cdf(mu / 2 - at / mu), stats.norm.cdf(-mu / 2 - at / mu)
    return float(upper - math.exp(at) * lower)


def test_sides_that_are_counted_otherwise_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each had a coin of its own; as if held-out units were nowhere; as if all were one."""
    fit, answers, rate = 3.0, 3.0, 0.5
    law = on_a_grid(fit, answers, 1, rate)
    apart = [
        SecretSampleDpEvent(1 - rate, gaussian(1 / fit)),
        SecretSampleDpEvent(rate, gaussian(1 / answers)),
    ]
    assert too_little(apart, *law) == {"removed", "added"}
    nowhere = with_holdout(looks(1 / fit), rate, "add_remove")
    assert too_little(nowhere, *law) == {"removed", "added"}

    def averaged(
        inners: Sequence[pld.PrivacyLossDistribution],
        chances: Sequence[float],
        *,
        width: float,
    ) -> pld.PrivacyLossDistribution:
        return composed([(inners[-1], 1)])  # the fitted side alone

    monkeypatch.setattr(kinds, "mixed_pld", averaged)
    weak = with_holdout(looks(3.0, 3.0, 1 / 4.0), 0.51, "add_remove")
    assert too_little(weak, *on_a_grid(math.sqrt(2) / 3, 4.0, 1, 0.51)) == {"removed", "added"}


@pytest.mark.parametrize(("fit", "answers", "rate"), [(0.8, 0.6, 0.3), (1.5, 0.2, 0.2)])
def test_a_group_of_units_has_a_coin_for_each(fit: float, answers: float, rate: float) -> None:
    (one,) = with_holdout(looks(1 / fit, 1e9, 1 / answers), rate, "add_remove")
    two = kind_of(one).widened(2)
    assert two is not None and two.units == 2
    law = on_a_grid(fit, answers, 2, rate)
    assert too_little([two], *law) == set()
    assert "removed" in too_little([one], *law)


def test_the_larger_of_both_sides_pays_for_scores_and_no_more() -> None:
    """Beside fitted looks, answers of the size of the misplaced rows cost nearly nothing more."""
    alone = epsilon(with_holdout([gaussian(4.0), gaussian(9.0)], RATE, "add_remove"))
    both = epsilon(with_holdout(looks(4.0, 9.0, 9.0), RATE, "add_remove"))
    assert alone <= both < alone * 1.1
    assert both < epsilon([gaussian(4.0), gaussian(9.0), gaussian(9.0)])


# --- where it is claimed ---


def test_of_replaced_units_nothing_is_claimed() -> None:
    events = looks(4.0, 9.0, 9.0)
    assert with_holdout(events, RATE, "replace_one") == tuple(events)
    assert with_holdout(events, 0.0, "add_remove") == tuple(events)
    with pytest.raises(BudgetError, match="replace_one"):
        kind_of(HoldoutDpEvent(RATE, tuple(events))).cost("replace_one", 1e-3)


def test_parts_of_an_event_are_on_one_side_or_the_other() -> None:
    event = looks(4.0, 9.0, 3.0)[1]
    fitted, held = (of_side(event, held_out=out) for out in (False, True))
    nothing = dp_accounting.NoOpDpEvent()
    assert fitted == dp_accounting.ComposedDpEvent((gaussian(9.0), nothing))
    assert held == dp_accounting.ComposedDpEvent((nothing, gaussian(3.0)))
    repeated = dp_accounting.SelfComposedDpEvent(HeldOutDpEvent(gaussian(3.0)), 2)
    assert of_side(repeated, held_out=True).event == gaussian(3.0)
    assert epsilon([event]) == pytest.approx(epsilon([gaussian(9.0), gaussian(3.0)]), rel=1e-3)


def test_its_json_is_of_scores_alone() -> None:
    inner = dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(3.0, 1), 2)
    event = HeldOutDpEvent(inner)
    assert event_from_json(event_to_json(event)) == event
    assert kind_of(event).words().startswith("of held-out units alone, 2 times: ")
    assert kind_of(event).widened(2).event.event.sensitivity == 2
    for other in (gaussian(3.0), event):
        with pytest.raises(BudgetError, match="unknown event"):
            event_from_json({"event": "held_out", "of": event_to_json(other)})


def plan(holdout: float) -> ReleasePlan:
    domain = Domain((ColumnDomain("x", "categorical", ("p", "q", "r"), False),))
    measure = NoisyMarginals(domain, (("x",),), 3.5)
    return ReleasePlan(9.0, DELTA, "add_remove", 1, measure=measure, holdout=holdout)


def test_a_plan_counts_the_coin_in_everything_that_it_says() -> None:
    one, none = plan(RATE), plan(0.0)
    assert one.epsilon_spent < none.epsilon_spent * 0.9
    assert one.epsilon_of(one.spends[0]) == pytest.approx(one.epsilon_spent)
    assert one.group_epsilons[1] == pytest.approx(one.epsilon_spent)
    assert all(one.group_epsilons[k] < none.group_epsilons[k] for k in (1, 2, 3))
    assert one.group_epsilons[5] == pytest.approx(none.group_epsilons[5])  # takes too long to count
    both = zip(one.profile, none.profile, strict=True)
    assert all(d < other for (_, d), (_, other) in both if other > 1e-9)
    assert one.events == none.events and one.digest == none.digest


def test_the_gaussian_of_the_filter_covers_it_and_is_smaller_than_without_the_coin() -> None:
    events = looks(4.0, 9.0, 9.0)
    covered = with_holdout(events, RATE, "add_remove")
    mu, lost = bound_of(covered, delta=DELTA, adjacency="add_remove")
    assert mu < 0.97 * bound_of(events, delta=DELTA, adjacency="add_remove")[0]
    assert lost < 1e-6
    for says in stated_of(covered):
        curve = [gaussian_delta(e, mu) + lost * (1 - gaussian_delta(0.0, mu)) for e in EPSILONS]
        assert np.all(says <= np.array(curve) + 1e-12)
