"""Answers of persons with visits: what rows a question is of, and how wide intervals are."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import LinkedBundle
from synthdp.data import OUTER, PERSONS, STEPS, VisitFrame, views_of
from synthdp.errors import OutputError, QueryError
from synthdp.inference import VisitQuestions
from synthdp.privacy import read_linked
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from tests.inference.conftest import counted
from tests.visits import linked_spec, made_up

SETS = {
    PERSONS: [("persons.sex",), ("visits.number",), ("visits.number", "visits.end")],
    OUTER: [
        ("visits[1].stage",),
        ("visits[last].stage",),
        ("visits[1].bp",),
        ("persons.sex", "visits[1].stage"),
        ("visits[1].stage", "visits[1].drug"),
    ],
    STEPS: [
        ("visits[-1].stage", "visits.stage"),
        ("persons.sex", "visits.stage"),
        ("visits.stage", "visits.drug"),
        ("visits[-1].stage", "visits.gap"),
    ],
}
ROWS = 3000


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Persons, and the first four visits of each in order."""
    persons, visits = made_up(ROWS, seed=3)
    visits = visits.sort_values(["id", "date"], kind="stable")
    visits["number"] = visits.groupby("id").cumcount()
    return persons, visits[visits["number"] < 4].astype({"bp": int, "stage": int})


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> VisitQuestions:
    """Questions of tables with hardly any noise."""
    folder, spec = tmp_path_factory.mktemp("linked"), linked_spec(ROWS)
    for name, table in zip(("persons", "visits"), made_up(ROWS, seed=3), strict=True):
        table.to_csv(folder / f"{name}.csv", index=False)
    frame = VisitFrame.from_spec(spec)
    read = read_linked(spec, frame, folder=folder, holdout=0.0, streams=Streams.fresh())
    views = read.unseal(key=_KERNEL_KEY).views
    rng = np.random.default_rng(0)
    tables = {
        view: [
            counted(frame.views[view], views[view].codes, names, sigma=0.0, rng=rng)
            for names in sets
        ]
        for view, sets in SETS.items()
    }
    return asked_of(spec, frame, tables)


def asked_of(spec: Any, frame: VisitFrame, tables: dict[str, list[NoisyTable]]) -> VisitQuestions:
    """Questions of tables that no bundle has."""
    from synthdp.bundle import as_one

    questions, certificate = VisitQuestions(Path("bundle")), None
    bundle = LinkedBundle(Path("bundle"), as_one(spec), certificate, "2026-01-01", spec)  # type: ignore[arg-type]
    bundle.__dict__["frame"] = frame
    questions.__dict__["stated"] = bundle
    questions.__dict__["by_purpose"] = {v: (v, tuple(own)) for v, own in tables.items()}
    return questions


def share(table: pd.DataFrame, condition: Any) -> float:
    return float(condition(table).mean())


def test_each_place_is_of_its_own_rows(
    asked: VisitQuestions, people: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    persons, visits = people
    first, last = visits.groupby("id").head(1), visits.groupby("id").tail(1)
    later = visits[visits["number"] > 0]
    stage = visits.groupby("id")["stage"].shift()
    true = {
        "share(persons.sex == 'F')": (persons["sex"] == "F").mean(),
        "mean(visits.number)": len(visits) / len(persons),
        "share(visits.number >= 2)": (visits.groupby("id").size() >= 2).mean(),
        "share(visits[1].stage == '2')": (first["stage"] == 2).mean(),
        "share(visits[last].stage == '2')": (last["stage"] == 2).mean(),
        "share(visits.stage == '2')": (visits["stage"] == 2).mean(),
        "share(visits[later].stage == '2')": (later["stage"] == 2).mean(),
        "share(visits.drug) where visits.stage == '1'": (
            (visits.loc[visits["stage"] == 1, "drug"] == "true").mean()
        ),
        "share(visits.stage == '2') where visits[-1].stage == '1'": (
            (visits.loc[stage == 1, "stage"] == 2).mean()
        ),
        "share(visits.stage == '2') where persons.sex == 'M'": (
            visits.merge(persons[persons["sex"] == "M"], on="id")["stage"] == 2
        ).mean(),
    }
    for text, value in true.items():
        found = asked.answer(text)
        assert found.estimate == pytest.approx(value, abs=1e-6), text
        assert found.law and found.about[0] == f"law: {found.law}", text
        assert found.interval and found.interval[0] < value < found.interval[1]
    counts = asked.answer("count() by visits.stage")
    true_counts = visits["stage"].value_counts().sort_index()
    assert [f.estimate for f in counts.figures] == pytest.approx([*true_counts])


def test_visits_of_one_person_go_together(asked: VisitQuestions) -> None:
    """Of n persons with one row each, and of as many rows of which one person has four."""
    alone = asked.answer("share(visits[1].stage == '2')")
    pooled = asked.answer("share(visits.stage == '2')")
    assert alone.law != pooled.law and "4 of a person" in (pooled.law or "")
    for found, most in ((alone, 1), (pooled, 4)):
        figure = found.figures[0]
        low, high = figure.interval or (0.0, 0.0)
        p, n = float(figure.estimate or 0), float(figure.rows or 0)
        sd = (float(high) - float(low)) / 2 / 1.96
        assert sd == pytest.approx(np.sqrt(most * p * (1 - p) / n), rel=0.02)


@pytest.mark.parametrize(
    ("text", "told", "hint"),
    [
        ("share(visits.bp > 120)", "no noisy tables tell it", "visits.stage with visits.drug"),
        ("mean(visits[1].bp) by persons.sex", "no noisy tables", "persons.sex with visits[1].st"),
        ("share(visits[1].stage == '1') by visits.stage", "of one kind of rows", "visits[last]"),
        ("share(visits[+1].stage == '1')", "of one kind of rows", "visits[-1]"),
    ],
)
def test_what_no_table_holds_is_refused(
    asked: VisitQuestions, text: str, told: str, hint: str
) -> None:
    with pytest.raises(OutputError) as caught:
        asked.answer(text)
    assert told in caught.value.message and hint in (caught.value.hint or "")


def test_mistakes_are_those_of_a_question(asked: VisitQuestions) -> None:
    with pytest.raises(QueryError, match=r"columns are persons\.sex"):
        asked.answer("share(sex == 'F')")
    with pytest.raises(QueryError, match=r"unknown column 'visits\.stag'"):
        asked.answer("share(visits.stag == '1')")
    with pytest.raises(QueryError, match=r"persons\.sex"):
        asked.answer("mean(persons.sex)")
    assert asked.answer("share( `persons`.`sex` == 'F' )").tier == "A"


@pytest.mark.slow
def test_intervals_hold_the_truth_whatever_the_visits_share() -> None:
    """Of persons whose visits are all alike, and of visits that are drawn one by one."""
    spec = linked_spec(600)
    frame, rng = VisitFrame.from_spec(spec), np.random.default_rng(8)
    for alike in (True, False):
        held = []
        for _ in range(400):
            many = rng.integers(1, 5, 600)
            owner = np.repeat(np.arange(600), many)
            own = rng.integers(0, 3, 600 if alike else len(owner))
            stage = own[owner] if alike else own
            held.append(_covers(spec, frame, owner, stage, rng))
        assert np.mean(held) >= 0.92 if alike else np.mean(held) >= 0.95


def _covers(spec: Any, frame: VisitFrame, owner: Any, stage: Any, rng: Any) -> bool:
    from synthdp.data import CodedVisits

    persons, visits = 600, len(owner)
    codes = np.column_stack([stage, np.zeros(visits), np.zeros(visits)]).astype(np.uint16)
    sex = rng.integers(0, 2, (persons, 1)).astype(np.uint16)
    days = frame.order.lower + np.arange(visits) % 600
    births, deaths = np.zeros(persons), np.full(persons, np.nan)
    views = views_of(frame, CodedVisits(sex, codes, owner, days, births, deaths))
    tables = {
        OUTER: [
            counted(frame.views[OUTER], views.codes[OUTER], ("visits[1].stage",), sigma=4, rng=rng)
        ],
        STEPS: [
            counted(frame.views[STEPS], views.codes[STEPS], ("visits.stage",), sigma=12, rng=rng)
        ],
    }
    found = asked_of(spec, frame, tables).answer("share(visits.stage == '2')")
    low, high = found.interval or (1, 0)
    return float(low) <= 1 / 3 <= float(high)
