"""What is adjusted for in the graph over time: by two slices, as by all visits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp.data import VisitFrame
from synthdp.errors import OutputError
from synthdp.model import (
    CASES,
    EffectRows,
    Window,
    apart,
    checked_adjustment,
    effect_rows,
    unrolled,
    visit_adjustment,
    windows,
)
from synthdp.spec import ONE_STEP, LinkedSpec
from tests.model.test_visits import fitted
from tests.visits import linked_spec, made_up

SPEC = LinkedSpec.model_validate(
    yaml.safe_load(
        (Path(__file__).parents[2] / "benchmarks" / "data" / "visits" / "clinic.yaml").read_text()
    )
)
FRAME = VisitFrame.from_spec(SPEC)
CHOSEN = {
    ("visits.drug", "visits.admitted"): ("visits.stage", "visits.bp", "visits[-1].admitted"),
    ("visits.drug", "visits[+1].stage"): ("persons.smoker", "persons.age", "visits.stage"),
    ("visits.drug", "visits[+1].bp"): (
        *("persons.smoker", "persons.age"),
        *("visits.stage", "visits.bp"),
    ),
    ("visits[1].drug", "visits[1].admitted"): ("visits[1].stage", "visits[1].bp"),
    ("persons.smoker", "visits[1].stage"): ("persons.age",),
    ("persons.sex", "persons.smoker"): (),
}


@pytest.mark.parametrize(("asked", "adjusted"), CHOSEN.items())
def test_the_graph_says_what_to_adjust_for(
    asked: tuple[str, str], adjusted: tuple[str, ...]
) -> None:
    rows = effect_rows(FRAME, *asked)
    assert visit_adjustment(SPEC, FRAME, rows) == adjusted
    for left_out in adjusted:  # none can be left out
        fewer = {rows.at[n] for n in adjusted if n != left_out}
        assert not all(w.valid(fewer) for w in windows(SPEC, FRAME, rows))


@pytest.mark.parametrize("asked", [a for a in CHOSEN if a[0] == "visits.drug"])
def test_what_two_slices_allow_all_visits_allow(asked: tuple[str, str]) -> None:
    """In the graph from the first visit on, with its own laws, at the second and later visits."""
    rows = effect_rows(FRAME, *asked)
    adjusted = visit_adjustment(SPEC, FRAME, rows)
    t, y = rows.slices
    assert t is not None and y is not None
    for by in range(4):
        dag = unrolled(SPEC, FRAME, y + by, first=True, own_past=True)
        ends = [("stays", s) for s in range(y + by)]
        gone = frozenset(e for e in ends if e[1] < t + by)
        places = {n: (c, s if s is None else s + by) for n, (c, s) in rows.at.items()}
        whole = Window(
            dag,
            places[rows.treatment],
            places[rows.outcome],
            gone,
            frozenset(ends) - gone,
        )
        assert whole.valid({places[n] for n in adjusted}), (asked, by)


def test_undeclared_pasts_count_unless_somebody_says_otherwise() -> None:
    rows = effect_rows(FRAME, "visits.drug", "visits.admitted")
    given = ("visits.stage", "visits.bp")
    assert checked_adjustment(SPEC, FRAME, rows, given) == given
    assert not apart(SPEC, FRAME, rows, given, own_past=True)
    assert apart(SPEC, FRAME, rows, given, own_past=False)
    with pytest.raises(OutputError, match="does not give the effect"):
        checked_adjustment(SPEC, FRAME, rows, ("visits.stage",))
    with pytest.raises(OutputError, match="no column to adjust for"):
        checked_adjustment(SPEC, FRAME, rows, ("visits[+1].bp",))


def test_who_is_lost_before_the_outcome_may_not_depend_on_it() -> None:
    """Whoever is admitted may not come back, and is admitted again: nothing here tells apart."""
    with pytest.raises(OutputError, match="who is lost before the outcome"):
        visit_adjustment(SPEC, FRAME, effect_rows(FRAME, "visits.drug", "visits[+1].admitted"))
    with pytest.raises(OutputError, match="who is lost before the outcome"):
        visit_adjustment(SPEC, FRAME, effect_rows(FRAME, "persons.smoker", "visits.stage"))


@pytest.mark.parametrize(
    ("treatment", "outcome", "told"),
    [
        ("visits.drug", "visits[4].bp", "not one of a single step forward"),
        ("visits.drug", "visits[-1].bp", "not one of a single step forward"),
        ("visits[1].drug", "visits[3].bp", "not one of a single step forward"),
        ("visits.drug", "persons.sex", "not one of a single step forward"),
        ("visits.drug", "visits.date", "no effect of or on visits.date"),
        ("visits.drug", "visits.drug", "are one column"),
        ("drug", "visits.bp", "names no column of a table"),
    ],
)
def test_several_steps_are_refused(treatment: str, outcome: str, told: str) -> None:
    with pytest.raises(OutputError, match=told):
        effect_rows(FRAME, treatment, outcome)


def test_what_a_spec_allows_is_what_is_read() -> None:
    assert {*CASES} == ONE_STEP


def test_without_arrows_there_is_no_effect() -> None:
    with pytest.raises(OutputError, match="no arrows lead there"):
        visit_adjustment(SPEC, FRAME, effect_rows(FRAME, "visits.admitted", "visits.drug"))
    predicted = SPEC.model_copy(
        update={"graph": SPEC.graph.model_copy(update={"mode": "predict", "edges": ()})}
    )
    rows: EffectRows = effect_rows(FRAME, "visits.drug", "visits.bp")
    with pytest.raises(OutputError, match="are no causes"):
        visit_adjustment(predicted, FRAME, rows)
    assert checked_adjustment(predicted, FRAME, rows, ["visits.stage"]) == ("visits.stage",)
    assert not apart(predicted, FRAME, rows, ["visits.stage"], own_past=True)
    assert apart(predicted, FRAME, replace(rows, most=1), ["visits.stage"], own_past=True)


@pytest.mark.check
@pytest.mark.parametrize("mode", ["given", "predict"])
def test_an_effect_has_a_table_of_its_own_on_groups_of_levels(tmp_path: Path, mode: str) -> None:
    """With many rows and hardly any noise its counts are those of the rows, in both modes."""
    asked = {"kind": "effect", "treatment": "visits.drug", "outcome": "visits[+1].stage"}
    asked |= {"level": "2", "adjust": ["persons.sex", "visits.stage", "visits.bp"]}
    more: dict[str, Any] = {"estimands": [asked]} | (
        {} if mode == "given" else {"graph": {"mode": mode}}
    )
    shares = {"steps": 0.4, "estimands": 0.1}
    privacy = {"privacy": {"epsilon": 4.0, "delta": 1e-4, "shares": shares}}
    _, found = fitted(tmp_path, linked_spec(**more, **privacy), made_up(600))
    (table,) = found.tables.value["estimand: 1"]
    assert table.columns[:3] == ("visits[-1].drug", "visits.stage", "persons.sex")
    assert 4 <= table.counts.shape[4] <= 8 and [*table.starts] == ["visits[-1].bp"]
    _, visits = made_up(600)
    many = visits.groupby("id").size().clip(upper=4)
    assert table.counts.sum() == (many - 1).sum()
