"""Training on a secret sample: its cost by integration, who is in it, and who knows."""

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from synthdp.audit import Kept
from synthdp.data import ColumnDomain, Domain
from synthdp.errors import BudgetError
from synthdp.privacy import ThresholdedGaussianDpEvent, accounting, secret_sample_pld
from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.events.gaussian import unit_sampled_gaussian
from synthdp.privacy.events.kinds import (
    SecretSampleDpEvent,
    event_from_json,
    event_to_json,
    kind_of,
)
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Table
from tests.audit.mechanism_examples import SmallModel
from tests.builders import dp_sgd
from tests.privacy.test_noise import DRAWS, RATE, ROWS, departures

Floats = npt.NDArray[np.float64]
EPSILONS = (0.0, 0.02, 0.1, 0.3, 0.7, 1.0, 2.0, 4.0)
SETTINGS = dp_sgd(steps=6, sample=0.5)


def hockey_sticks(first: Floats, second: Floats) -> Floats:
    """sum of max(0, first - exp(e) second) for each of `EPSILONS`, of masses of the same cells."""
    return np.array([np.maximum(first - math.exp(e) * second, 0).sum() for e in EPSILONS])


def mixed(rate: float, without: Floats, with_unit: Floats) -> Floats:
    return (1 - rate) * without + rate * with_unit


def stated(event: dp_accounting.DpEvent) -> tuple[Floats, Floats]:
    """Delta at `EPSILONS` for a unit that is removed, and for one that is added."""
    cost = accounting.compose([event], "add_remove")
    parts = cost._pmf_remove, cost._pmf_add
    removed, added = (np.array([p.get_delta_for_epsilon(e) for e in EPSILONS]) for p in parts)
    return removed, added


@dataclass(frozen=True)
class Inner:
    """What runs on the sample: its event, and masses of its outputs without and with the unit."""

    event: dp_accounting.DpEvent
    without: Floats
    with_unit: Floats


def gaussian(noise: float) -> Inner:
    edges = np.linspace(-10 * noise, 10 * noise + 1, 200_001)
    without, with_unit = (np.diff(stats.norm.cdf(edges, m, noise)) for m in (0, 1))
    return Inner(dp_accounting.GaussianDpEvent(noise), without, with_unit)


def thresholded(noise: float, delta: float) -> Inner:
    """All is told, with probability `delta`, whichever of both tables it is."""
    inner, nothing = gaussian(noise), np.zeros(1)
    without, with_unit = ((1 - delta) * law for law in (inner.without, inner.with_unit))
    told = np.array([delta])
    return Inner(
        ThresholdedGaussianDpEvent(noise, delta),
        np.concatenate([without, told, nothing]),
        np.concatenate([with_unit, nothing, told]),
    )


def two_steps(noise: float, rate: float, rows: int = 1) -> Inner:
    """Two steps of DP-SGD: the joint law of both noisy sums, cell by cell."""
    edges = np.linspace(-7 * noise, 7 * noise + rows, 1201)
    cells = [np.diff(stats.norm.cdf(edges, j, noise)) for j in range(rows + 1)]
    joined = stats.binom.pmf(np.arange(rows + 1), rows, rate)
    step = sum((p * c for p, c in zip(joined, cells, strict=True)), np.zeros(len(edges) - 1))
    event = unit_sampled_gaussian(noise_multiplier=noise, rate=rate, rows=rows, steps=2)
    return Inner(event, np.outer(cells[0], cells[0]).ravel(), np.outer(step, step).ravel())


INNERS = {
    "gaussian .4": lambda: gaussian(0.4),
    "gaussian 2": lambda: gaussian(2.0),
    "two steps": lambda: two_steps(0.8, 0.3),
    "two steps, three rows": lambda: two_steps(1.0, 0.4, rows=3),
}


def faults(event: dp_accounting.DpEvent, rate: float, inner: Inner) -> set[str]:
    """Where the cost of `event` is below that of `inner` on a sample, or beyond the grid's."""
    sampled = mixed(rate, inner.without, inner.with_unit)
    pairs = {"removed": (sampled, inner.without), "added": (inner.without, sampled)}
    found = set()
    for (direction, pair), says in zip(pairs.items(), stated(event), strict=True):
        true = hockey_sticks(*pair)
        if not np.all(true - 1e-9 <= says):
            found.add(f"{direction}: too little")
        if not np.all(says <= 1.01 * true + 3e-6):
            found.add(f"{direction}: loose")
    return found


@pytest.mark.check
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", INNERS)
def test_cost_is_that_of_the_mixture_in_both_directions(name: str, rate: float) -> None:
    inner = INNERS[name]()
    assert faults(SecretSampleDpEvent(rate, inner.event), rate, inner) == set()


@pytest.mark.check
@pytest.mark.parametrize("name", INNERS)
def test_a_wrong_cost_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller rate, a larger one, none, and directions that are exchanged."""
    inner, too_little = INNERS[name](), "removed: too little"
    assert too_little in faults(SecretSampleDpEvent(0.29, inner.event), 0.3, inner)
    assert "removed: loose" in faults(SecretSampleDpEvent(0.32, inner.event), 0.3, inner)
    assert faults(inner.event, 0.3, inner) == {"removed: loose", "added: loose"}
    right = accounting.compose([SecretSampleDpEvent(0.3, inner.event)], "add_remove")
    swapped = pld.PrivacyLossDistribution(right._pmf_add, right._pmf_remove)
    monkeypatch.setattr(accounting, "compose", lambda events, adjacency: swapped)
    assert too_little in faults(inner.event, 0.3, inner)


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_what_may_be_lost_on_a_sample_is_counted_in_both_directions(rate: float) -> None:
    """An inner event with a delta of its own, which no release has inside a sample."""
    inner = thresholded(2.0, 0.01)
    assert faults(SecretSampleDpEvent(rate, inner.event), rate, inner) == set()
    lost = replace(inner, event=gaussian(2.0).event)  # the falsifier: without the delta
    assert faults(SecretSampleDpEvent(rate, lost.event), rate, inner) == {
        "removed: too little",
        "added: too little",
    }


@pytest.mark.check
@pytest.mark.parametrize("steps", [1, 40])
def test_cost_grows_with_the_rate_up_to_that_of_all_units(steps: int) -> None:
    inner = unit_sampled_gaussian(noise_multiplier=1.0, rate=0.05, rows=1, steps=steps)
    deltas = [np.maximum(*stated(SecretSampleDpEvent(q, inner))) for q in (0.01, 0.2, 0.8, 1.0)]
    assert all((one < other + 1e-12).all() for one, other in pairwise(deltas))
    assert np.array_equal(deltas[-1], np.maximum(*stated(inner)))


@pytest.mark.check
@pytest.mark.parametrize("rate", [0.003, 0.1, 0.6])
def test_it_is_the_generic_bound_of_a_sample_and_not_more(rate: float) -> None:
    """(e, d) becomes (log(1 + q (exp(e) - 1)), q d) [arXiv:1807.01647v2, Theorem 8]."""
    inner = unit_sampled_gaussian(noise_multiplier=0.9, rate=0.1, rows=1, steps=30)
    cost = accounting.compose([SecretSampleDpEvent(rate, inner)], "add_remove")
    whole = accounting.compose([inner], "add_remove")
    for delta in (1e-3, 1e-5, 1e-8):
        generic = math.log1p(rate * math.expm1(whole.get_epsilon_for_delta(delta)))
        assert cost.get_epsilon_for_delta(rate * delta) == pytest.approx(generic, rel=1e-3)


@pytest.mark.check
@pytest.mark.parametrize("noise", [0.06, 0.3, 1e3])
@pytest.mark.parametrize("rate", [1e-9, 1e-3, 1 - 1e-12])
def test_extreme_noises_and_rates_are_finite_and_bound_the_closed_form(
    noise: float, rate: float
) -> None:
    """Of a removed unit: q d(log(1 + (exp(e) - 1) / q)), d the curve of the Gaussian."""
    whole = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-3)
    cost = secret_sample_pld([whole], rate, width=1e-3)
    for pmf in (cost._pmf_remove, cost._pmf_add):
        assert pmf._probs.sum() + pmf._infinity_mass == pytest.approx(1, abs=1e-5)
    for epsilon in (0.0, 0.01, 1.0, 5.0):
        order = math.log1p(math.expm1(epsilon) / rate)
        above = stats.norm.cdf(0.5 / noise - order * noise)
        below = math.exp(order + stats.norm.logcdf(-0.5 / noise - order * noise))
        true = rate * (above - below)
        says = cost._pmf_remove.get_delta_for_epsilon(epsilon)
        assert true - 1e-12 <= says <= 1.02 * true + 1e-5


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_an_added_unit_costs_what_the_curve_of_the_whole_training_says(rate: float) -> None:
    """d(a) = (1 - a (1 - q)) d'(a q / (1 - a (1 - q))), and nothing from a = 1 / (1 - q) on."""
    inner = unit_sampled_gaussian(noise_multiplier=0.9, rate=0.1, rows=1, steps=30)
    _, added = stated(SecretSampleDpEvent(rate, inner))
    whole = accounting.compose([inner], "add_remove")._pmf_add
    for epsilon, says in zip(EPSILONS, added, strict=True):
        left = 1 - math.exp(epsilon) * (1 - rate)
        if left <= 0:
            assert says < 1e-12
            continue
        order = math.log(math.exp(epsilon) * rate / left)
        assert says == pytest.approx(left * whole.get_delta_for_epsilon(order), rel=3e-3, abs=1e-9)


def group_of(size: int, rate: float, noise: float) -> Inner:
    """A Gaussian sum of a group of which each unit is in by its own coin, on a sample of 1."""
    edges = np.linspace(-9 * noise, 9 * noise + size, 200_001)
    cells = [np.diff(stats.norm.cdf(edges, j, noise)) for j in range(size + 1)]
    chances = stats.binom.pmf(np.arange(size + 1), size, rate)
    group = sum((p * c for p, c in zip(chances, cells, strict=True)), np.zeros(len(edges) - 1))
    event = kind_of(SecretSampleDpEvent(rate, dp_accounting.GaussianDpEvent(noise))).widened(size)
    assert event is not None
    return Inner(event, cells[0], group)


@pytest.mark.parametrize(("size", "rate", "noise"), [(2, 0.3, 0.9), (2, 0.1, 1.5), (6, 0.02, 2.0)])
def test_a_group_of_units_has_a_coin_for_each(size: int, rate: float, noise: float) -> None:
    """By integration over how many of them are in the sample: not below, nor above."""
    inner = group_of(size, rate, noise)
    assert faults(inner.event, 1.0, inner) == set()
    # One coin for all of them would be too little, and one that is up where any is, too much.
    together = dp_accounting.GaussianDpEvent(noise / size)
    assert "removed: too little" in faults(SecretSampleDpEvent(rate, together), 1.0, inner)
    any_of_them = SecretSampleDpEvent(1 - (1 - rate) ** size, together)
    assert "removed: loose" in faults(any_of_them, 1.0, inner)


def test_a_group_costs_no_less_than_two_steps_may_tell() -> None:
    """Both steps see the same units of the group, by a grid of both noisy sums."""
    rate, noise, step = 0.4, 1.0, 0.3
    edges = np.linspace(-6 * noise, 6 * noise + 2, 801)
    cells = [np.diff(stats.norm.cdf(edges, m, noise)) for m in range(3)]

    def steps(units: int) -> Floats:
        chances = stats.binom.pmf(np.arange(units + 1), units, step)
        once = sum((p * c for p, c in zip(chances, cells, strict=False)), np.zeros(800))
        return np.outer(once, once).ravel()

    chances = stats.binom.pmf(np.arange(3), 2, rate)
    group = sum((p * steps(j) for j, p in enumerate(chances)), np.zeros(800**2))
    inner = unit_sampled_gaussian(noise_multiplier=noise, rate=step, rows=1, steps=2)
    event = kind_of(SecretSampleDpEvent(rate, inner)).widened(2)
    assert event is not None
    assert not {"removed: too little", "added: too little"} & faults(
        event, 1.0, Inner(event, steps(0), group)
    )


def test_a_plan_bounds_groups_as_verify_does() -> None:
    """A group of two units with a row each is not a unit of two rows: it has two coins."""
    plan = ReleasePlan(9.0, 1e-5, "add_remove", 1, train=replace(SETTINGS, rate=1.0, steps=1))
    (event,) = plan.events
    widened, one_coin = kind_of(event).widened(2), plan.train.event(2)
    assert (widened.rate, widened.units) == (0.5, 2) and one_coin.rate == 0.5
    group, one = (
        accounting.epsilon([e], delta=1e-5, adjacency="add_remove") for e in (widened, one_coin)
    )
    assert plan._group_epsilon(2) == group < one - 0.1


def test_a_replaced_unit_is_refused() -> None:
    with pytest.raises(BudgetError, match="replace_one") as refused:
        accounting.epsilon([SETTINGS.event(1)], delta=1e-5, adjacency="replace_one")
    assert refused.value.hint == "use adjacency add_remove"


def test_its_words_and_its_json_are_those_of_a_training_on_a_sample() -> None:
    for rows in (1, 4):
        event = SETTINGS.event(rows)
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event
    assert (
        kind_of(SETTINGS.event(1))
        .words()
        .startswith(
            "on a secret sample that each unit is in with probability 0.5, drawn once: 6 times:"
        )
    )
    assert event_to_json(SETTINGS.event(1))["event"] == "secret_sample"
    assert "narrow" not in str(kind_of(SETTINGS.event(4)).too_narrow(4))
    assert kind_of(SETTINGS.event(1)).too_narrow(2) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 0},
        {"rate": 1.5},
        {"rate": "0.5"},
        {"rate": True},
        {"of": {"event": "gaussian", "noise_multiplier": 1.0}},
        {"of": event_to_json(SETTINGS.event(1))},
        {"of": {"event": "repeated", "count": 2, "of": event_to_json(SETTINGS.event(1))}},
        {"of": None},
    ],
    ids=str,
)
def test_events_that_no_release_makes_are_not_read(change: dict[str, Any]) -> None:
    with pytest.raises(BudgetError, match="unknown event"):
        event_from_json(event_to_json(SETTINGS.event(1)) | change)


@dataclass(frozen=True)
class Limits:
    rows: int = 1
    steps: int = 10
    tables: int = 10
    answers: int = 10
    sample: float = 0.5


def test_a_stranger_states_no_smaller_sample_than_the_spec_and_its_work_is_bounded() -> None:
    kind = kind_of(SETTINGS.event(1))
    inner = kind_of(replace(SETTINGS, sample=1.0).event(1))
    assert kind.expected_loss(Limits(), 1) == inner.expected_loss(Limits(), 1)
    for limits in (Limits(sample=0.6), Limits(sample=1.0)):
        with pytest.raises(ValueError, match="smaller than the spec's"):
            kind.expected_loss(limits, 1)
    with pytest.raises(ValueError, match="whole number from 1"):
        kind.expected_loss(Limits(steps=5, tables=0, answers=0), 1)


# --- who is in it ---


def table(units: npt.NDArray[np.int64] | None, rows: int, held_out: int = 0) -> Table:
    """Row i has the level i."""
    out = np.arange(rows) < held_out
    return Table(np.arange(rows, dtype=np.uint16)[:, None], pd.DataFrame(), out, {}, units)


@pytest.mark.usefixtures("seeded")
def test_units_join_by_coins_of_their_own_and_of_that_rate() -> None:
    def drawn(rate: float, units: npt.NDArray[np.int64] | None) -> npt.NDArray[np.bool_]:
        samples, whole = np.zeros((DRAWS, ROWS), dtype=bool), table(units, ROWS)
        streams = Streams.fresh()
        for sample in samples:
            sample[whole.sampled_codes(rate, streams)[:, 0]] = True
        return samples

    for units in (None, np.random.default_rng(0).permutation(ROWS)):
        assert departures(drawn(RATE, units)) == set()
        assert "size" in departures(drawn(0.7 * RATE, units))
        assert "size" in departures(drawn(1.3 * RATE, units))
    assert departures(drawn(RATE, np.arange(ROWS) // 2)) >= {"neighbours", "variance"}


def test_a_unit_is_in_with_all_its_rows_or_out() -> None:
    units = np.array([7, 3, 3, 9, 7, 3, 4, 4])
    seen = set()
    for _ in range(300):
        joined = table(units, 8, held_out=1).sampled_codes(0.5, Streams.fresh())[:, 0]
        own = [set(np.flatnonzero(units == u)) - {0} for u in (3, 4, 7, 9)]
        assert set(joined) == set().union(*(rows for rows in own if rows & set(joined)))
        assert (np.diff(joined.astype(int)) > 0).all() and 0 not in joined
        seen.add(tuple(joined))
    assert len(seen) == 2**4


@pytest.mark.parametrize("rate", [1.0, 1e-300])
def test_all_or_none(rate: float) -> None:
    for units in (None, np.array([5, 5, 2])):
        joined = table(units, 3).sampled_codes(rate, Streams.fresh())
        assert len(joined) == (3 if rate == 1 else 0) and joined.shape[1] == 1


# --- nothing else of a run knows it ---


DOMAIN = Domain((ColumnDomain("x", "categorical", ("p", "q", "r"), False),))


@dataclass
class Counted:
    """The streams of a run, with how often each was asked."""

    own: Streams
    samples: int = 0
    batches: int = 0

    def secret_sample(self, units: int, *, rate: float) -> npt.NDArray[np.intp]:
        self.samples += 1
        return self.own.secret_sample(units, rate=rate)

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        self.batches += 1
        self.rows = rows
        return self.own.poisson_batch(rows, rate=rate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class Begun(Kept):
    """Checkpoints of a run that was killed: whoever asks for the last one fails."""

    def last(self) -> None:
        raise AssertionError("a training on a secret sample asked for a checkpoint")


@pytest.mark.parametrize("sample", [1.0, 0.5])
def test_a_training_draws_one_sample_and_keeps_no_checkpoint_of_it(sample: float) -> None:
    kept, ticks, randomness = (
        Kept() if sample == 1 else Begun(),
        list[Any](),
        Counted(Streams.fresh()),
    )
    settings = replace(SETTINGS, sample=sample)
    training = Training(
        settings,
        SmallModel(DOMAIN),
        lambda *tick: ticks.append(tick),
        kept,  # type: ignore[arg-type]
    )
    rows = Table(np.zeros((400, 1), dtype=np.uint16), pd.DataFrame(), np.zeros(400, bool), {})
    training.run(rows, randomness)  # type: ignore[arg-type]
    assert ticks == [(done + 1, 6) for done in range(6)]
    if sample == 1:
        assert (randomness.samples, randomness.rows, len(kept.files)) == (0, 400, 2)
    else:
        assert (randomness.samples, len(kept.files)) == (1, 0) and 100 < randomness.rows < 300
    assert randomness.batches == 6
