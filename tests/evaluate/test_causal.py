"""Effects recover what the simulation holds, with intervals that cover as they say; implied
independences are told from dependence.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from synthdp.data import Domain, encode
from synthdp.evaluate import (
    Dependence,
    average_effect,
    claims,
    compare_effects,
    compare_independences,
    conditional_dependence,
)
from synthdp.graph import CausalGraph, adjustment
from synthdp.spec.model import Categorical, Column, Effect, Graph, Integer

EFFECT = 1.5


def confounded(
    rows: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Outcome, treatment and a confounder of both; the treatment adds `EFFECT`, and a plain
    difference of means shows far more.
    """
    x = rng.normal(size=rows)
    treated = rng.random(rows) < 1 / (1 + np.exp(-1.5 * x))
    return EFFECT * treated + 2 * x + rng.normal(size=rows), treated, x[:, None]


class TestAverageEffect:
    def test_without_columns_it_is_the_difference_of_means(self) -> None:
        y, treated, _ = confounded(500, np.random.default_rng(0))
        found = average_effect(y, treated, np.zeros((500, 0)))
        assert found.value == pytest.approx(y[treated].mean() - y[~treated].mean())
        welch = np.sqrt(y[treated].var() / treated.sum() + y[~treated].var() / (~treated).sum())
        assert found.error == pytest.approx(welch, rel=0.01) and found.value > EFFECT + 1

    def test_adjusted_intervals_cover_the_truth_and_are_no_wider_than_they_need(self) -> None:
        rng = np.random.default_rng(1)
        found = [average_effect(*confounded(800, rng)) for _ in range(150)]
        assert 0.9 <= np.mean([e.covers(EFFECT) for e in found]) <= 0.99
        spread = np.std([e.value for e in found])
        assert np.mean([e.error for e in found]) == pytest.approx(spread, rel=0.2)

    def test_it_is_right_where_only_the_chance_of_treatment_is(self) -> None:
        rng = np.random.default_rng(2)
        y, treated, x = confounded(60_000, rng)
        y = y + x[:, 0] ** 2 * (
            1 + treated
        )  # not linear; the squares' mean is 1, so that the effect is 1 more
        found = average_effect(y, treated, x)
        assert found.value == pytest.approx(EFFECT + 1, abs=0.15)


COLUMNS: dict[str, Column] = {
    "sick": Categorical(type="categorical", categories=("no", "yes")),
    "plan": Categorical(type="categorical", categories=("a", "b", "c")),
    "bonus": Categorical(type="categorical", categories=("none", "some")),
    "visits": Integer(type="integer", lower=0, upper=40, missing=True),
}


def world(rows: int, *, effect: float = 3.0, seed: int = 0) -> tuple[pd.DataFrame, Domain]:
    """The sick choose plan a and visit more; plan a itself adds `effect` visits to plan b, and plan
    c nothing.
    """
    rng = np.random.default_rng(seed)
    sick = rng.random(rows) < 0.4
    plan = np.where(
        rng.random(rows) < np.where(sick, 0.7, 0.2), "a", np.where(rng.random(rows) < 0.5, "b", "c")
    )
    visits = rng.poisson(4 + 8 * sick + effect * (plan == "a")).astype(float)
    visits[rng.random(rows) < 0.05] = np.nan
    frame = pd.DataFrame(
        {"sick": np.where(sick, "yes", "no"), "plan": plan, "bonus": "none", "visits": visits}
    )
    frame["bonus"] = np.where(rng.random(rows) < 0.5, "none", "some")
    return frame, Domain.from_spec(COLUMNS)


GRAPH = CausalGraph.from_spec(
    Graph(edges=("sick -> arm", "arm, sick -> visits"), groups={"arm": ("plan", "bonus")}),  # type: ignore[arg-type]
    tuple(COLUMNS),
)


def effect(**fields: object) -> Effect:
    return Effect.model_validate({"treated": "plan == 'a'", "outcome": "visits", **fields})


class TestEffects:
    def test_real_and_synthetic_are_adjusted_along_the_graph(self) -> None:
        (real, domain), (synthetic, _) = world(4000), world(4000, effect=0.0, seed=1)
        tables = [(frame, encode(domain, frame)[0]) for frame in (real, synthetic)]
        wanted = (effect(), effect(control="plan == 'b'"), effect(adjust=()))
        rows = compare_effects(*tables, wanted, columns=COLUMNS, domain=domain, graph=GRAPH)
        assert [r.adjusted for r in rows] == [("sick",), ("sick",), ()]
        for row in rows[:2]:
            assert row.real and row.synthetic
            assert row.real.covers(3.0) and row.synthetic.covers(0.0) and row.covered is False
        assert rows[2].real and rows[2].real.low > 5  # not adjusted: the sick are in it

    def test_an_arm_of_few_rows_has_no_estimate(self) -> None:
        frame, domain = world(200)
        table = frame[(frame["plan"] != "a") | (np.arange(200) < 20)], None
        codes = encode(domain, table[0])[0]
        (row,) = compare_effects(
            (table[0], codes),
            (table[0], codes),
            (effect(),),
            columns=COLUMNS,
            domain=domain,
            graph=GRAPH,
        )
        assert row.real is None and row.covered is None

    def test_the_treatments_group_is_not_adjusted_for(self) -> None:
        assert adjustment(effect(), COLUMNS, GRAPH) == (("sick",), "")
        assert adjustment(effect(treated="bonus == 'some'"), COLUMNS, GRAPH) == (("sick",), "")

    def test_an_outcome_that_causes_the_treatment_is_told(self) -> None:
        backwards = CausalGraph.from_spec(Graph(edges=("visits -> plan",)), tuple(COLUMNS))  # type: ignore[arg-type]
        assert "no effect" in adjustment(effect(), COLUMNS, backwards)[1]
        hidden = CausalGraph.from_spec(
            Graph(edges=("sick -> plan",), latent=(("plan", "visits"),)), tuple(COLUMNS)
        )  # type: ignore[arg-type]
        assert "unseen common cause" in adjustment(effect(), COLUMNS, hidden)[1]


class TestIndependences:
    def test_chance_is_no_visible_dependence(self) -> None:
        """.1^2 + .1^2 is .1414^2."""
        assert Dependence(0.15, 0.1).visible and not Dependence(0.13, 0.1).visible

    def test_none_is_seen_where_there_is_none_whatever_the_strata(self) -> None:
        rng = np.random.default_rng(3)
        found = []
        for _ in range(60):
            given = rng.integers(0, [3, 40, 30], size=(2000, 3))  # most strata hold one row
            x, y = (
                given[:, 0] + rng.integers(0, 2, 2000),
                2 * given[:, 0] + rng.integers(0, 3, 2000),
            )
            found.append(conditional_dependence(x, y, given))
        assert not any(d.visible for d in found)
        assert np.mean([d.w**2 > d.by_chance**2 for d in found]) < 0.15
        alone = conditional_dependence(x, y, given[:, :0])  # not separated: the common cause shows
        assert alone.visible

    def test_dependence_has_its_size(self) -> None:
        rng = np.random.default_rng(4)
        x = rng.integers(0, 2, 20_000)
        y = np.where(rng.random(20_000) < 0.3, 1 - x, x)  # phi = .4
        given = rng.integers(0, 3, (20_000, 1))
        assert conditional_dependence(x, y, given).w == pytest.approx(0.4, abs=0.02)

    def test_claims_are_those_of_the_graph(self) -> None:
        names = ("a", "b", "c", "d")
        graph = CausalGraph.from_spec(
            Graph(edges=("a -> b", "b -> c"), latent=(("a", "d"),)), names
        )  # type: ignore[arg-type]
        found = {frozenset((x, y)): given for x, y, given in claims(graph)}
        # The unseen cause of a and d reaches b and c through a: given nothing, d would not be
        # independent of them.
        assert found == {frozenset("ac"): ("b",), frozenset("bd"): ("a",), frozenset("cd"): ("b",)}

    def test_a_broken_chain_is_found(self) -> None:
        rng = np.random.default_rng(5)
        columns: dict[str, Column] = {
            n: Categorical(type="categorical", categories=("0", "1")) for n in "abc"
        }
        domain = Domain.from_spec(columns)
        graph = CausalGraph.from_spec(Graph(edges=("a -> b", "b -> c")), tuple("abc"))  # type: ignore[arg-type]

        def chain(rows: int = 3000, *, broken: bool) -> npt.NDArray[np.uint16]:
            a = rng.integers(0, 2, rows)
            b = np.where(rng.random(rows) < 0.2, 1 - a, a)
            c = np.where(rng.random(rows) < 0.2, 1 - b, a if broken else b)
            return np.column_stack([a, b, c]).astype(np.uint16)

        report = compare_independences(
            chain(broken=False),
            chain(broken=True),
            domain=domain,
            graph=graph,
            rng=np.random.default_rng(0),
        )
        assert report is not None
        assert (
            report.kept("real"),
            report.kept("synthetic"),
            report.pairs,
        ) == (1, 0, 1)
        nothing = CausalGraph(tuple("abc"))
        assert (
            compare_independences(
                chain(broken=False), chain(broken=False), domain=domain, graph=nothing, rng=rng
            )
            is None
        )
        table = np.concatenate(
            [chain(10_000, broken=False), chain(30_000, broken=True)]
        )  # sorted: its first rows tell nothing
        report = compare_independences(table, table, domain=domain, graph=graph, rng=rng)
        assert report is not None and (report.kept("real"), report.kept("synthetic")) == (0, 0)
