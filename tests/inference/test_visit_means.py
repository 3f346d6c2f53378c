"""Means over visits by each person's sums: those of the rows without noise, and covered with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import OUTER, PERSONS, SETTINGS, STEPS, CodedVisits, VisitFrame, views_of
from synthdp.errors import OutputError
from synthdp.inference import Figure, Z, visits_mean
from synthdp.model import END_NUMBERS, person_sums, plan_linked, rows_by_name
from synthdp.privacy import LinkedTable, in_views
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import NUMBER, NoisyProducts
from synthdp.privacy.plan import MOMENTS, ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.spec import parse_query
from synthdp.spec.model import LinkedSpec
from tests.inference.conftest import counted
from tests.inference.test_visits import asked_of
from tests.inference.wards import EDGES, Ward
from tests.visits import linked_dict

SHARES = {"persons": 0.2, "first": 0.2, "steps": 0.4, "ends": 0.1, "moments": 0.1}
ASK = "mean(visits.bp)"
Drawn = tuple[npt.NDArray[np.float64], LinkedTable]


@cache
def spec_of(persons: int, epsilon: float = 4.0, *, missing: bool = False) -> LinkedSpec:
    stated: dict[str, Any] = linked_dict(persons)
    stated["columns"]["visits"]["bp"]["missing"] = missing
    stated["columns"]["persons"]["pay"] = {"type": "number", "lower": 0, "upper": 9, "bins": 3}
    stated["privacy"] = {"epsilon": epsilon, "delta": 1e-4, "shares": SHARES}
    return LinkedSpec.model_validate(stated | {"graph": {"mode": "given", "edges": EDGES}})


@cache
def plan_of(persons: int, epsilon: float, missing: bool) -> ReleasePlan:
    spec = spec_of(persons, epsilon, missing=missing)
    return plan_linked(spec, VisitFrame.from_spec(spec))


def drawn(spec: LinkedSpec, rng: np.random.Generator) -> Drawn:
    """Pressures of visits, NaN where there is none, and the table of persons whose own pay is a
    third of their number.
    """
    frame = VisitFrame.from_spec(spec)
    ward, bp = Ward.of(spec.dataset.persons.rows.value, rng), frame.of_visits["bp"]
    gone = (rng.random(len(ward.bp)) < 0.1 + 0.2 * ward.drug) & bp.missing
    parts = np.rint((ward.bp - 140) / 60 * SETTINGS.parts).astype(np.int32)[:, None]
    level = np.where(gone, bp.levels - 1, 0)
    codes = np.column_stack([ward.stage, level, ward.drug]).astype(np.uint16)
    persons = len(ward.sex)
    pay = np.minimum(np.arange(persons) % 28 / 3, 9.0)
    people = np.column_stack([ward.sex, (pay // 3).clip(0, 2)]).astype(np.uint16)
    born = np.full(persons, frame.order.lower - 20_000)
    when = frame.order.lower + 20.0 * ward.number
    nobody = np.full(persons, np.nan)
    read = CodedVisits(people, codes, ward.owner, when, born, nobody, pay[:, None], parts)
    table = in_views(views_of(frame, read), np.zeros(persons, bool), {})
    return np.where(gone, np.nan, ward.bp), table


def released(
    spec: LinkedSpec, plan: ReleasePlan, table: LinkedTable
) -> tuple[NoisyProducts, tuple[NoisyTable, ...]]:
    rehearsal, moments = Rehearsal.of(table, plan), plan.moments
    assert moments is not None
    sums = rehearsal.release(moments, purpose=MOMENTS).value
    numbers: Any = plan.linked[END_NUMBERS]
    return sums, rehearsal.release(numbers, purpose=END_NUMBERS).value


def figure_of(
    spec: LinkedSpec, sums: NoisyProducts, tables: tuple[NoisyTable, ...]
) -> tuple[Figure, float]:
    frame = VisitFrame.from_spec(spec)
    rows = rows_by_name(spec, frame)
    query = parse_query(f"mean(`{ASK[5:-1]}`)", rows["all visits"].columns)
    domain = rows[PERSONS].domain(frame)
    found = visits_mean(query, frame, sums, (domain, tables), 0.0)
    assert found is not None
    return found[0]


def figures(
    persons: int, runs: int, *, epsilon: float = 4.0, missing: bool = False, stated: float = 1.0
) -> Iterator[tuple[npt.NDArray[np.float64], Figure]]:
    """The pressures of new persons each time, and what a release tells of their mean; `stated` is
    the part of the sums' noise that is told.
    """
    spec, plan = spec_of(persons, epsilon, missing=missing), plan_of(persons, epsilon, missing)
    rng = np.random.default_rng(persons)
    for _ in range(runs):
        bp, table = drawn(spec, rng)
        sums, tables = released(spec, plan, table)
        yield bp, figure_of(spec, replace(sums, sigma=sums.sigma * stated), tables)[0]


@pytest.mark.parametrize("missing", [False, True])
def test_without_noise_it_is_the_mean_and_the_deviation_goes_by_persons(missing: bool) -> None:
    spec, rng = spec_of(2000, missing=missing), np.random.default_rng(1)
    plan = plan_of(2000, 4.0, missing).map(lambda _, look: look.scaled(1e-6))
    bp, table = drawn(spec, rng)
    found, _ = figure_of(spec, *released(spec, plan, table))
    assert found.estimate == pytest.approx(np.nanmean(bp), abs=1e-3)
    frame = table.frame
    many = "visits.bp, how many" if missing else "visits.number, how many"
    s, c = frame["visits.bp"], frame[many]
    by_person = np.sqrt(((s - s.sum() / c.sum() * c) ** 2).sum()) / c.sum() * 60
    assert found.interval is not None and found.of_rows is not None
    low, high = map(float, found.interval)
    assert (high - low) / 2 == pytest.approx(Z * by_person, rel=0.01)
    by_visit = np.nanstd(bp) / np.sqrt((~np.isnan(bp)).sum())
    assert by_person > 1.2 * by_visit  # a person's visits are alike
    assert np.diff(found.of_rows) < 0.1 * np.diff(found.interval)


def test_persons_and_visits_count_once_each() -> None:
    """The sums are of the row that each person has."""
    spec = spec_of(300, missing=True)
    frame, (bp, table) = VisitFrame.from_spec(spec), drawn(spec, np.random.default_rng(2))
    mechanism = person_sums(frame)
    exact = dict(zip(mechanism.products, mechanism.without_noise(table).sums, strict=True))
    s, c = ("visits.bp", NUMBER), ("visits.bp, how many", NUMBER)
    assert exact[(c,)] * frame.most == pytest.approx((~np.isnan(bp)).sum(), abs=0.01)
    assert exact[(s,)] * frame.most * 60 == pytest.approx(np.nansum(bp - 140), abs=0.5)
    pay = 4.5 + 4.5 * exact[(("persons.pay", NUMBER),)] / 300
    assert pay == pytest.approx(table.frame["persons.pay"].mean(), abs=1e-3)
    middle = frame.sums["persons.age"].upper / 2
    assert exact[(("persons.age", NUMBER),)] == pytest.approx(
        300 * (20_020 - middle) / middle, abs=0.01
    )
    kinds = 2 * 2 + 5
    assert mechanism.sensitivity == pytest.approx(kinds**0.5)


@pytest.mark.check
def test_intervals_cover_and_narrow_with_persons(figure: Callable[..., None]) -> None:
    widths = {}
    for persons in (500, 2000):
        truth = np.concatenate([bp for bp, _ in figures(20_000, 5)]).mean()
        told = [f for _, f in figures(persons, 200)]
        ends = np.array([f.interval for f in told], dtype=float)
        covered = int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())
        assert covered >= 182  # 1e-3 below .95
        widths[persons] = np.diff(ends).mean()
        figure(f"means over visits by sums of {persons} persons are covered", covered, 200)
    assert widths[2000] < 0.5 * widths[500]


def test_less_noise_than_there_is_does_not_cover() -> None:
    told = [(bp.mean(), f.of_rows) for bp, f in figures(500, 150, epsilon=1.0, stated=0.5)]
    assert sum(ends[0] <= mean <= ends[1] for mean, ends in told if ends) < 125


def test_a_bundle_answers_by_sums_where_they_tell_more() -> None:
    """Of 24 levels of 5 each: sums tell less of a number than its width, and of persons' pay."""
    spec, rng = spec_of(4000), np.random.default_rng(3)
    frame, plan = VisitFrame.from_spec(spec), plan_of(4000, 4.0, False)
    bp, table = drawn(spec, rng)
    sums, numbers = released(spec, plan, table)
    sets = {OUTER: [("visits[1].bp",)], STEPS: [("visits.bp",)], PERSONS: [("persons.pay",)]}
    tables = {
        view: [
            counted(frame.views[view], table.views[view].codes, n, sigma=5.0, rng=rng) for n in own
        ]
        for view, own in sets.items()
    }
    tables[PERSONS] += numbers
    asked = asked_of(spec, frame, tables)
    asked.stated.__dict__["moments"] = None
    before = asked.answer("mean(persons.pay)").figures[0]
    asked.stated.__dict__["moments"] = sums
    for ask, true in ((ASK, bp.mean()), ("mean(persons.pay)", table.frame["persons.pay"].mean())):
        found = asked.answer(ask)
        told = found.figures[0]
        assert told.by_levels is not None and told.of_rows is not None
        assert told.of_rows[0] <= true <= told.of_rows[1]
        assert "measured: sums of the numbers" in " ".join(found.about)
        assert not any("may be alike" in said for said in found.about)
    assert before.by_levels is None and before.interval == told.by_levels
    for ask in ("mean(visits[1].bp)", f"{ASK} by visits.drug", f"{ASK} where visits.drug"):
        with contextlib.suppress(OutputError):  # no table tells it
            assert asked.answer(ask).figures[0].by_levels is None
