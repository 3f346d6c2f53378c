"""Counting, the shapes of noisy tables, and plans over the whole range of specs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synthdp.data import Codes, ColumnDomain, Domain, LevelGroups
from synthdp.privacy import DiscreteGaussianDpEvent, RoundedGaussianDpEvent, accounting
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.calibration import (
    _scales,
    adaptive_round,
    expected_fit_rows,
    make_plan,
    make_search_plan,
)
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.events.kinds import event_to_json, of_side, with_holdout
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    NoisyMarginals,
    Sampler,
    sampler_for,
)
from synthdp.privacy.mechanisms.scores import ScoreBudget
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Table
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec, skeleton
from tests.privacy.conftest import Silent, domain_from

MakeDomain = Callable[..., Domain]
TABLES = (("a",), ("b", "a"), ("c",), ("a", "b", "c"), ("a", "b"), ("a", "c"))


def codes_of(domain: Domain, rows: int, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, s, rows) for s in domain.sizes]).astype(np.uint16)


def test_held_out_rows_are_not_counted(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(2)
    whole = table_of(domain, np.array([[0], [1], [1]]))
    table = Table(whole.codes, whole.frame, np.array([False, True, False]), {})
    (noisy,) = NoisyMarginals(domain, (("a",),), 1.0).run(table, Silent.fresh())
    assert noisy.counts.tolist() == [1, 1]


def test_noisy_tables_have_their_shape_and_survive_the_journal(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(3, 2, 4)
    chosen = AdaptiveMarginals(domain, 2.0).choose(TABLES)
    for mechanism in (NoisyMarginals(domain, TABLES, 2.0), chosen):
        tables = mechanism.run(table_of(domain, codes_of(domain, 20)), Streams.fresh())
        for columns, noisy in zip(TABLES, tables, strict=True):
            assert noisy.columns == columns
            assert noisy.counts.shape == tuple(domain[c].levels for c in columns)
            assert np.array_equal(noisy.counts, np.round(noisy.counts))
        for a, b in zip(tables, mechanism.unpack(mechanism.pack(tables)), strict=True):
            assert (a.columns, a.sigma) == (b.columns, b.sigma)
            assert np.array_equal(a.counts, b.counts)


def test_what_was_measured_is_known_where_another_choice_would_be_made(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(3, 3, 3)
    budget = AdaptiveMarginals(domain, 2.0)
    first, other = budget.choose([("a", "b"), ("c",)]), budget.choose([("b", "c")])
    measured = first.run(table_of(domain, codes_of(domain, 20)), Streams.fresh())
    kept = other.unpack(first.pack(measured))
    assert [t.columns for t in kept] == [("a", "b"), ("c",)]
    assert [t.sigma for t in kept] == [t.sigma for t in measured]
    assert all(np.array_equal(a.counts, b.counts) for a, b in zip(kept, measured, strict=True))
    for damaged in ({"000000-9": np.zeros(3)}, {"000000-0": np.zeros(2)}, {"x": np.zeros(3)}):
        with pytest.raises((KeyError, ValueError)):
            other.unpack(damaged)


def test_chosen_tables_are_counted_on_groups_of_levels(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    """Each row in the cell of its groups, and in no other; what was kept says the groups."""
    plain = domain_of(3, 6)
    b = ColumnDomain("b", "integer", tuple("012345"), False, (), (0, 1, 2, 3, 4, 5), 6)
    domain = Domain((plain["a"], b))
    groups = LevelGroups(domain, {"b": (0, 2, 5)})
    budget, codes = AdaptiveMarginals(domain, 2.0), codes_of(domain, 500)
    chosen = budget.choose([("a", "b"), ("a",)], groups)
    assert chosen.event(1) == budget.event(1) and chosen.sigma == budget.choose(TABLES[:2]).sigma
    quiet = replace(chosen, budget=AdaptiveMarginals(domain, 1e-9))
    pair, single = quiet.run(table_of(domain, codes), Streams.fresh())
    expected = np.zeros((3, 3))
    for first, second in codes:
        expected[first, (0, 0, 1, 1, 1, 2)[second]] += 1
    np.testing.assert_array_equal(pair.counts, expected)
    np.testing.assert_array_equal(single.counts, expected.sum(1))
    assert (pair.starts, single.starts) == ({"b": (0, 2, 5)}, {})
    kept, other = budget.choose([("b",)]).unpack(quiet.pack((pair, single)))
    assert (kept.starts, other.starts) == (pair.starts, {})
    np.testing.assert_array_equal(kept.counts, pair.counts)
    packed = quiet.pack((pair, single))
    for damaged in ({"starts-1": np.array([0, 9])}, {"starts-7": np.array([0])}):
        with pytest.raises((KeyError, ValueError)):
            budget.choose([("b",)]).unpack({**packed, **damaged})


@pytest.mark.parametrize("k", [1, 4, 9])
def test_noise_of_chosen_tables_grows_with_the_root_of_their_number(
    k: int, domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(2000)
    chosen = AdaptiveMarginals(domain, 10.0).choose([("a",)] * k)
    assert chosen.sigma == pytest.approx(10 * math.sqrt(k))
    tables = chosen.run(table_of(domain, codes_of(domain, 0)), Streams.fresh())
    measured = np.concatenate([t.counts for t in tables]).std()
    assert 0.85 < measured / chosen.sigma < 1.15
    assert chosen.event(3) == AdaptiveMarginals(domain, 10.0).event(3)


def test_each_table_has_the_noise_of_its_own_scale(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    domain = domain_of(2000, 3000)
    mechanism = NoisyMarginals(domain, (("a",), ("b",), ("a",)), 10.0, (1.0, 0.5, 1.0))
    tables = mechanism.run(table_of(domain, codes_of(domain, 0)), Streams.fresh())
    for noisy, sigma in zip(tables, (10.0, 5.0, 10.0), strict=True):
        assert noisy.sigma == sigma
        assert 0.85 < noisy.counts.std() / sigma < 1.15
    event = event_to_json(mechanism.event(2))
    found = [(p["of"]["sigma"], p["of"]["sensitivity"], p["count"]) for p in event["of"]]
    assert found == [(10.0, 2, 1), (5.0, 2, 1), (10.0, 2, 1)]
    with pytest.raises(ValueError, match="2 scales for 3 tables"):
        NoisyMarginals(domain, (("a",), ("b",), ("a",)), 10.0, (1.0, 0.5))


@pytest.mark.parametrize("sampler", ["discrete", "rounded"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_tables_are_charged_for_all_rows_of_a_unit(
    adjacency: Adjacency, sampler: Sampler, domain_of: MakeDomain
) -> None:
    """k rows in one cell are one row with k times the count; chosen tables and scores too."""
    domain, tables = domain_of(3, 4), (("a",), ("b",))
    mechanisms = [
        NoisyMarginals(domain, tables, 30.0, (1.0, 1.5), sampler),
        ScoreBudget(domain, ("a",), 30.0, sampler),
        AdaptiveMarginals(domain, 30.0).choose(tables),
    ]
    for mechanism in mechanisms:
        event = mechanism.event
        # A unit moves the scores of one side: those of fitted units (both means), or of held-out.
        questions = {False: 1}
        if isinstance(mechanism, ScoreBudget):
            questions = {False: mechanism.questions - 1, True: 1}
        for held_out, count in questions.items():
            costs = [
                accounting.epsilon(
                    [of_side(event(rows), held_out=held_out)], delta=1e-6, adjacency=adjacency
                )
                for rows in (1, 3)
            ]
            less = [
                RoundedGaussianDpEvent(10.0 * scale)
                for scale in {"NoisyMarginals": (1.0, 1.5)}.get(type(mechanism).__name__, (1.0,))
            ]
            exact = accounting.epsilon(less * count, delta=1e-6, adjacency=adjacency)
            assert costs[0] < 0.5 * costs[1] and exact * (1 - 1e-3) <= costs[1] <= 1.12 * exact
        if not isinstance(mechanism, ScoreBudget):
            assert of_side(event(3), held_out=False) == event(3)
            continue
        # Whoever knows the side is told of both: not less than all of them cost, hardly more.
        told = accounting.epsilon([event(3)], delta=1e-6, adjacency=adjacency)
        once = mechanism.noise.event(3)
        alike = SelfComposedDpEvent(once, mechanism.questions)
        together = accounting.epsilon([alike], delta=1e-6, adjacency=adjacency)
        exact = accounting.epsilon(
            [RoundedGaussianDpEvent(10.0)] * mechanism.questions, delta=1e-6, adjacency=adjacency
        )
        assert exact * (1 - 1e-3) <= together <= 1.12 * exact
        assert together * (1 - 1e-3) <= told <= 1.05 * together


@pytest.mark.check
def test_a_plan_gives_units_of_several_rows_the_noise_whose_cost_is_exact(
    domain_of: MakeDomain, table_of: Callable[..., Table]
) -> None:
    """Noise, sampler and event from one object; the Rényi bound asks for more epsilon."""
    domain = domain_of(2000, 3000)
    for rows, kind in ((1, DiscreteGaussianDpEvent), (3, RoundedGaussianDpEvent)):
        start = {"margins": lambda mu: NoisyMarginals(domain, (("a",), ("b",)), 1 / mu, (1.0, 1.5))}
        plan = make_search_plan(start, epsilon=1.0, delta=1e-6, rows_per_unit=rows)
        mechanism = plan.spends[0].mechanism
        assert isinstance(mechanism, NoisyMarginals) and mechanism.sampler == sampler_for(rows)
        asked: list[str] = []
        noisy = mechanism.run(table_of(domain, codes_of(domain, 0)), Hearing.of(asked))
        assert set(asked) == {mechanism.sampler} and mechanism.name.startswith(mechanism.sampler)
        parts = mechanism.event(rows).events
        assert [part.event for part in parts] == [kind(sigma, rows) for sigma in mechanism.sigmas]
        for table, sigma in zip(noisy, mechanism.sigmas, strict=True):
            assert table.sigma == sigma and 0.85 < table.counts.std() / sigma < 1.15
    loose = replace(mechanism, sampler="discrete").event(3)
    assert 1.05 < accounting.epsilon([loose], delta=1e-6, adjacency="add_remove") < 1.12


@dataclass(frozen=True, repr=False)
class Hearing(Streams):
    """Real noise, and which sampler it was asked of."""

    asked: list[str]

    @classmethod
    def of(cls, asked: list[str]) -> Hearing:
        fresh = Streams.fresh()
        return cls(fresh.noise, fresh.sampling, fresh.holdout, fresh.latent, asked)

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        self.asked.append("discrete")
        return super().discrete_gaussian(counts, sigma=sigma)

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        self.asked.append("rounded")
        return super().rounded_gaussian(counts, sigma=sigma)


def test_wider_tables_have_less_noise_at_the_same_price(domain_of: MakeDomain) -> None:
    domain = domain_of(2, 16, 16, 64)
    tables = (("a",), ("b",), ("c",), ("d",))
    scales = _scales(domain, tables)
    assert scales[0] == pytest.approx(2 * scales[1]) and scales[1] == scales[2]
    assert scales[0] == pytest.approx(32 ** (1 / 3) * scales[3])
    assert sum(s**-2 for s in scales) == pytest.approx(4)
    uneven, even = (NoisyMarginals(domain, tables, 20.0, own) for own in (scales, ()))
    costs = [
        accounting.epsilon([m.event(1)], delta=1e-5, adjacency="add_remove") for m in (uneven, even)
    ]
    assert costs[0] == pytest.approx(costs[1], rel=2e-3)
    wrong = [
        sum(domain.cells(t) * sigma for t, sigma in zip(tables, m.sigmas, strict=True))
        for m in (uneven, even)
    ]
    assert wrong[0] < 0.9 * wrong[1]
    assert _scales(domain_of(4, 4), (("a",), ("b",))) == ()


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_tables_of_several_noises_cost_units_of_several_rows_no_more_than_their_least_noise(
    adjacency: Adjacency,
) -> None:
    """And no less than their largest; split in two events, they cost no less than as one."""
    sigmas = (40.0, 55.0)
    events = [DiscreteGaussianDpEvent(s, 3) for s in sigmas]
    both = accounting.epsilon([ComposedDpEvent(tuple(events))], delta=1e-5, adjacency=adjacency)
    apart = accounting.epsilon(events, delta=1e-5, adjacency=adjacency)
    least, most = (
        accounting.epsilon([SelfComposedDpEvent(e, 2)], delta=1e-5, adjacency=adjacency)
        for e in reversed(events)
    )
    assert least < both < most and both < apart * 1.0001


# --- plans ---


@st.composite
def releases(draw: st.DrawFn, *, whole_range: bool) -> tuple[ReleaseSpec, dict[str, float]]:
    """Without `whole_range`, only specs whose plan takes a second."""
    rows = draw(st.sampled_from([20, 1000, 48_842, 10**7] if whole_range else [1000, 48_842]))
    adjacency = draw(st.sampled_from(["add_remove", "replace_one"]))
    every = [None] if adjacency == "replace_one" else [None, 1, 2, 8] if whole_range else [None, 1]
    max_rows = draw(st.sampled_from(every))
    rounds = draw(st.sampled_from([{}, {"validate": 1.0}, {"pairs": 0.3, "rest": 0.7}]))
    graph = draw(st.floats(0.05, 0.4)) if rounds else 0.0
    measure = draw(st.floats(0.05, 0.5))
    unit: dict[str, Any] = {"kind": "row", "meaning": "a visit"}
    if max_rows is not None:
        unit = {"kind": "id", "column": "id", "max_rows": max_rows, "meaning": "a person"}
    spec = build_spec(
        {f"c{i}": {"type": "boolean"} for i in range(draw(st.integers(1, 20)))},
        dataset=skeleton(rows, privacy_unit=unit)["dataset"],
        privacy={
            "epsilon": draw(st.floats(0.05, 10.0 if whole_range else 2.0)),
            "delta": draw(st.sampled_from([0.5, 0.1, 1e-3])) / rows,
            "adjacency": adjacency,
            "shares": {"measure": measure, "graph": graph, "train": 1 - measure - graph},
        },
        synthesizer={
            "steps": draw(st.sampled_from([1, 50, 1000] if whole_range else [100, 1000])),
            "batch": draw(st.sampled_from([1, 16, 1024] if whole_range else [16, 64])),
            "clip": draw(st.floats(0.01, 10)),
        },
        evaluation={"holdout": draw(st.sampled_from([0.0, 0.2]))},
    )
    return spec, rounds


def scales(plan: ReleasePlan) -> list[float]:
    found = []
    for spend in plan.spends:
        m = spend.mechanism
        if isinstance(m, DpSgd):
            assert 0 < m.rate <= 1 and m.expected_batch > 0
            noise = m.noise_multiplier
            found += [noise, noise * m.sensitivity, m.lattice_spacing(1000)]
        else:
            found.append(m.sigma if isinstance(m, NoisyMarginals) else m.noise_multiplier)
    return found


def check_plan(made: tuple[ReleaseSpec, dict[str, float]]) -> None:
    release, rounds = made
    domain = Domain.from_spec(release.columns)
    graph = {name: adaptive_round(domain, part) for name, part in rounds.items()}
    plan = make_plan(release, domain, graph_rounds=graph)
    assert all(s > 0 and math.isfinite(s) for s in scales(plan))
    assert len(plan.spends) == 2 + len(rounds)
    target = release.privacy.epsilon
    assert plan.epsilon_spent <= target
    assert plan.epsilon_spent >= 0.98 * target, "budget is left unused"
    own = {"delta": release.privacy.delta, "adjacency": release.privacy.adjacency}
    assert accounting.epsilon(plan.composed(), **own) <= target


@pytest.mark.check
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(releases(whole_range=False))
def test_plans_meet_their_total_with_some_noise_everywhere(
    made: tuple[ReleaseSpec, dict[str, float]],
) -> None:
    check_plan(made)


@pytest.mark.slow
def test_a_plan_whose_delta_pays_for_everything_at_first() -> None:
    """A delta near 1 / rows and a small epsilon: the search meets plans of epsilon zero."""
    shares = {"measure": 0.05, "graph": 0.0, "train": 0.95}
    privacy = {"epsilon": 0.05, "delta": 0.025, "shares": shares}
    one, synthesizer = {"c": {"type": "boolean"}}, {"steps": 1, "batch": 1}
    check_plan((build_spec(one, rows=20, privacy=privacy, synthesizer=synthesizer), {}))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(releases(whole_range=True))
def test_plans_over_the_whole_range(made: tuple[ReleaseSpec, dict[str, float]]) -> None:
    check_plan(made)


@pytest.fixture(scope="module")
def example() -> tuple[ReleaseSpec, ReleasePlan]:
    columns = {f"c{i}": {"type": "boolean"} for i in range(3)}
    spec = build_spec(columns, synthesizer={"steps": 100, "batch": 50})
    domain = Domain.from_spec(spec.columns)
    graph = {"validate": adaptive_round(domain, 1.0)} if spec.privacy.shares.graph else {}
    return spec, make_plan(spec, domain, graph_rounds=graph)


def test_order_of_spends_is_irrelevant(example: tuple[ReleaseSpec, ReleasePlan]) -> None:
    _, plan = example
    assert plan.holdout == 0.2 and plan.epsilon_told is not None
    for order in itertools.permutations(plan.events):
        secret = with_holdout(order, plan.holdout, plan.adjacency)
        for events, epsilon in ((secret, plan.epsilon_spent), (order, plan.epsilon_told)):
            assert accounting.epsilon(
                events, delta=plan.delta, adjacency=plan.adjacency
            ) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.check
def test_groups_cost_more_the_larger_they_are(example: tuple[ReleaseSpec, ReleasePlan]) -> None:
    groups = list(example[1].group_epsilons.values())
    assert groups == sorted(groups)
    assert groups[0] == example[1].epsilon_spent


def test_profile_passes_through_the_claim(example: tuple[ReleaseSpec, ReleasePlan]) -> None:
    plan = example[1]
    assert dict(plan.profile)[1.0] <= plan.delta
    assert dict(plan.profile)[0.75] > plan.delta


def test_rate_and_batch_are_constants_of_the_spec(example: tuple[ReleaseSpec, ReleasePlan]) -> None:
    release, plan = example
    training = plan.spends[-1].mechanism
    assert isinstance(training, DpSgd)
    assert expected_fit_rows(release) == 800
    assert training.rate == 50 / 800
    assert training.expected_batch == 50


def test_levels_beyond_sixteen_bits_cannot_be_declared() -> None:
    """Codes are uint16: the contract's largest columns must fit."""
    ends = {"type": "integer", "lower": 0, "upper": 10**6, "bins": 1024, "missing": True}
    assert domain_from({"a": ends | {"spikes": list(range(64))}}).sizes[0] <= 1024 + 64 + 1
    words = [f"v{i}" for i in range(4097)]
    most = {"type": "categorical", "categories": words[:-1], "missing": True}
    assert domain_from({"a": most}).sizes[0] == 4097 < 2**16
    with pytest.raises(ValueError, match="at most 4096"):
        domain_from({"a": {"type": "categorical", "categories": words}})
