"""Mode predict: its order, the pairs it pays for twice, and what it spends whatever rows say."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.graph import GraphResult, find_graph, predict, rounds
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import (
    ALL,
    CHOSEN,
    PREDICTION_SHARES,
    PairTables,
    pair_tables,
    possible_pairs,
    prediction_order,
    worth_measuring,
)
from synthdp.privacy.mechanisms.marginals import ChosenMarginals, NoisyMarginals, NoisyTable
from synthdp.privacy.plan import MEASURE, ReleasePlan, needed
from synthdp.privacy.private import Released
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import Graph

Codes = npt.NDArray[np.uint16]
PREDICT = Graph(mode="predict")
ROWS = 4000


def domain_of(names: str, *, levels: int = 3) -> Domain:
    labels = tuple(f"v{i}" for i in range(levels))
    return Domain(tuple(ColumnDomain(n, "categorical", labels, False) for n in names))


def chain(rows: int = ROWS, seed: int = 0) -> Codes:
    """b follows a, c follows b by less; d is alone."""
    rng = np.random.default_rng(seed)
    a, d = rng.integers(0, 3, (2, rows))
    b = np.where(rng.random(rows) < 0.7, a, rng.integers(0, 3, rows))
    c = np.where(rng.random(rows) < 0.5, b, rng.integers(0, 3, rows))
    return np.column_stack([a, b, c, d]).astype(np.uint16)


def noise(codes: Codes) -> Codes:
    """The same margins without any dependence."""
    rng = np.random.default_rng(9)
    return np.column_stack([rng.permutation(column) for column in codes.T])


# --- the order ---


@pytest.mark.parametrize(
    ("tiers", "targets", "order"),
    [
        ((), (), "abcd"),
        ((), ("b",), "acdb"),
        ((("c", "d"), ("b",)), (), "cdba"),
        ((("b", "a"), ("d",)), (), "abdc"),
        ((("a", "b"), ("c", "d")), ("a", "c"), "badc"),
        ((), ("d", "a"), "bcad"),
    ],
)
def test_tiers_come_first_then_the_specs_order_and_targets_last_in_their_tier(
    tiers: tuple[tuple[str, ...], ...], targets: Sequence[str], order: str
) -> None:
    settings = Graph(mode="predict", tiers=tiers)
    assert "".join(prediction_order(settings, list("abcd"), targets)) == order


def test_pairs_of_targets_and_neighbours_are_measured_where_not_all_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    domain = domain_of("abcde")
    assert len(possible_pairs(domain, ())) == 10
    settings = predict.ROUNDS
    monkeypatch.setattr(predict, "ROUNDS", replace(settings, max_pairs=6))
    chosen = possible_pairs(domain, {"e"})
    assert set(chosen[:4]) == {(n, "e") for n in "abcd"}
    assert set(chosen[4:]) < {("a", "b"), ("b", "c"), ("c", "d")}
    monkeypatch.setattr(predict, "ROUNDS", replace(settings, max_cells=8))
    assert possible_pairs(domain, {"e"}) == []


# --- the second round ---


def seen(strength: dict[str, float], *, sigma: float = 30.0, levels: int = 3) -> PairTables:
    """First tables of pairs of columns such as `ab`, each as dependent as said: the share of rows
    in which both are the same, beyond chance.
    """
    rng = np.random.default_rng(4)
    names = sorted(set("".join(strength)))
    tables = [NoisyTable((n,), np.full(levels, ROWS / levels), 1.0) for n in names]
    for pair, share in strength.items():
        truth = ROWS * (share * np.eye(levels) / levels + (1 - share) / levels**2)
        noisy = truth + rng.normal(0, sigma, truth.shape)
        tables.append(NoisyTable((pair[0], pair[1]), noisy, sigma))
    return pair_tables(LevelLaw.of_tables(tables, domain_of("".join(names), levels=levels)))


def test_dependent_pairs_are_measured_again_and_no_other() -> None:
    tables = seen({"ab": 0.6, "bc": 0.4, "ad": 0.0, "bd": 0.0, "cd": 0.0})
    assert tables.dependent == (("a", "b"), ("b", "c"))
    assert set(worth_measuring(tables, 5.0, ())) == {("a", "b"), ("b", "c")}


def test_few_tables_are_measured_where_many_would_each_be_too_noisy() -> None:
    """The noise of k tables grows as sqrt(k): next to no noise measures all again; much noise, the
    few that gain most.
    """
    strength = {f"{n}z": s for n, s in zip("abcdefghij", np.linspace(0.15, 0.7, 10), strict=True)}
    tables = seen(strength)
    count = [len(worth_measuring(tables, multiplier, ())) for multiplier in (0.1, 20.0, 200.0)]
    assert len(tables.dependent) >= 8
    assert count[0] == len(tables.dependent) and count == sorted(count, reverse=True)
    assert 0 < count[2] < count[0]


def test_strong_pairs_and_those_of_targets_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = seen({"ab": 0.6, "cd": 0.2, "ef": 0.2})
    assert len(tables.dependent) == 3
    every = worth_measuring(tables, 200.0, ())
    assert every[0] == ("a", "b")
    assert worth_measuring(tables, 200.0, {"c"}).index(("c", "d")) < len(every)
    monkeypatch.setattr(predict, "SETTINGS", replace(predict.SETTINGS, target_weight=50.0))
    assert worth_measuring(tables, 200.0, {"f"})[0] == ("e", "f")


def test_the_gain_is_that_of_the_pooled_noise() -> None:
    """One pair: the expected error after both measurings, by hand."""
    tables = seen({"ab": 0.5})
    pair = tables.pairs["a", "b"]
    now, later = (pair.expected_error(s / tables.rows) for s in (30.0, 24.0))
    assert 0 < later < now
    assert worth_measuring(tables, 40.0, ()) == [("a", "b")]


def test_of_very_many_pairs_not_every_number_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As good a choice, within the step to the next number."""
    strength = {f"{n}z": s for n, s in zip("abcdefghij", np.linspace(0.15, 0.7, 10), strict=True)}
    whole = worth_measuring(seen(strength), 200.0, ())
    monkeypatch.setattr(predict, "SETTINGS", replace(predict.SETTINGS, tried_counts=5))
    fewer = worth_measuring(seen(strength), 200.0, ())
    assert abs(len(whole) - len(fewer)) <= 2
    shorter, longer = sorted([whole, fewer], key=len)
    assert longer[: len(shorter)] == shorter


def test_nothing_dependent_leaves_nothing_worth_measuring() -> None:
    assert worth_measuring(seen({"ab": 0.0}), 5.0, ()) == []


# --- the whole stage ---


class Recorder(Rehearsal):
    """A rehearsal that keeps what it was asked for."""

    asked: list[tuple[str, ChosenMarginals]]

    def release(self, mechanism: object, *, purpose: str) -> Released[object]:  # type: ignore[override]
        if isinstance(mechanism, ChosenMarginals):
            self.asked = [*getattr(self, "asked", []), (purpose, mechanism)]
        return super().release(mechanism, purpose=purpose)  # type: ignore[arg-type]


def plan_of(domain: Domain, *, mu: float = 0.1) -> ReleasePlan:
    one_way = tuple((name,) for name in domain.names)
    planned = rounds(Graph(mode="predict"), domain, rows=1000.0)
    return ReleasePlan(
        1000.0,
        1e-5,
        "add_remove",
        1,
        measure=NoisyMarginals(domain, one_way, 2.0),
        graph={name: make(mu) for name, make in planned.items()},
    )


def run(
    codes: Codes, domain: Domain, settings: Graph = PREDICT, targets: Sequence[str] = ()
) -> tuple[GraphResult, Recorder]:
    releaser = Recorder(codes, domain, plan_of(domain))
    measured = releaser.release(needed(releaser.plan.measure, MEASURE), purpose=MEASURE)
    known: Released[tuple[NoisyTable, ...]] = measured  # type: ignore[assignment]
    return find_graph(releaser, settings, domain, known=known, targets=targets), releaser


def test_arrows_are_the_dependent_pairs_along_the_order() -> None:
    result, _ = run(chain(), domain_of("abcd"), targets=["a"])
    arrows = {e.pair for e in result.graph.edges}
    assert {("b", "a"), ("b", "c"), ("c", "a")} <= arrows
    assert all(e.directed and e.provenance == "predictive" for e in result.graph.edges)
    tiers, _ = run(chain(), domain_of("abcd"), Graph(mode="predict", tiers=(("c",), ("b",))))
    assert ("c", "b") in {e.pair for e in tiers.graph.edges}


@pytest.mark.parametrize(
    "codes",
    [chain(), noise(chain()), chain(0), chain(1), np.zeros((500, 4), np.uint16)],
    ids=["dependent", "independent", "no row", "one row", "all the same"],
)
def test_both_rounds_spend_what_was_planned_whatever_the_rows_say(codes: Codes) -> None:
    domain = domain_of("abcd")
    _, releaser = run(codes, domain)
    plan = plan_of(domain)
    assert [purpose for purpose, _ in releaser.asked] == [f"graph: {r}" for r in (ALL, CHOSEN)]
    for (_, mechanism), planned in zip(releaser.asked, plan.graph.values(), strict=True):
        assert mechanism.event(1) == planned.event(1)
        assert len(mechanism.tables) == len(set(mechanism.tables)) > 0
        tables, multiplier = mechanism.tables, mechanism.budget.noise_multiplier
        assert mechanism.sigma == pytest.approx(multiplier * len(tables) ** 0.5)
    first, second = (mechanism.tables for _, mechanism in releaser.asked)
    assert set(second) <= set(first) == set(possible_pairs(domain, ()))


def test_the_rounds_share_the_whole_budget() -> None:
    """Noise multipliers s of rounds that compose to mu: the sum of 1 / s^2 is mu^2."""
    assert sum(PREDICTION_SHARES.values()) == pytest.approx(1)
    rounds = plan_of(domain_of("ab"), mu=0.7).graph.values()
    spent = sum(r.noise_multiplier**-2 for r in rounds)  # type: ignore[attr-defined]
    assert spent == pytest.approx(0.7**2)


def test_where_nothing_depends_the_second_round_measures_all_pairs_again() -> None:
    """What is paid for is used: noise of all pairs falls, and a pair may still be found."""
    domain = domain_of("abcd")
    result, releaser = run(np.zeros((500, 4), np.uint16), domain)
    assert set(releaser.asked[1][1].tables) == set(possible_pairs(domain, ()))
    assert result.tables is not None and len(result.tables.value) == 12
    assert result.graph.edges == ()


def test_tables_of_both_rounds_are_pooled() -> None:
    """Noise of a pair that was measured twice, and of one that was measured once."""
    domain = domain_of("abcd")
    result, releaser = run(chain(), domain)
    assert result.tables is not None
    first, second = (mechanism for _, mechanism in releaser.asked)
    found = pair_tables(LevelLaw.of_tables(result.tables.value, domain))
    assert ("a", "b") in second.tables and len(second.tables) < len(first.tables)
    for pair in first.tables:
        sigmas = [m.sigma for m in (first, second) if pair in m.tables]
        assert found.sigmas[pair] == pytest.approx(sum(s**-2 for s in sigmas) ** -0.5)


@pytest.mark.parametrize("names", ["a", ""])
def test_a_table_of_one_column_has_no_pairs_and_spends_nothing(names: str) -> None:
    domain = domain_of(names or "z", levels=1 if not names else 3)
    result, releaser = run(np.zeros((10, 1), np.uint16), domain)
    assert result.graph.edges == () and not hasattr(releaser, "asked")
