"""Copies of persons with visits: what they are of, and that pooled intervals hold the truth.

Every draw follows a seed. The figures stand in docs/inference.md.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from synthdp.data import OUTER, PERSONS, STEPS, CodedVisits, VisitFrame, views_of
from synthdp.errors import OutputError
from synthdp.inference import Copies, VisitQuestions, copies_of_visits, pooled
from tests.inference.conftest import counted
from tests.inference.test_visits import asked_of
from tests.visits import linked_spec

SETS = {
    PERSONS: [("persons.sex",), ("persons.sex", "visits.number")],
    OUTER: [
        ("persons.sex", "visits[1].stage"),
        ("persons.sex", "visits[1].drug"),
        ("visits[1].stage", "visits[1].drug"),
    ],
    STEPS: [
        ("persons.sex", "visits.stage"),
        ("persons.sex", "visits.drug"),
        ("visits.stage", "visits.drug"),
        ("visits[-1].stage", "visits.stage"),
        ("visits[-1].stage", "visits.drug"),
    ],
}
SIGMAS = {PERSONS: 6.0, OUTER: 6.0, STEPS: 18.0}
Analysis = Callable[[Any, Any], tuple[Any, Any]]
"""Estimates and squared errors, from levels `[cells, columns]` and the rows of each cell."""


def made(frame: VisitFrame, persons: int, rng: np.random.Generator) -> CodedVisits:
    """Persons whose visits are alike: a stage that lasts, a drug that follows sex and stage."""
    sex = rng.integers(0, 2, persons)
    many = rng.integers(1, 5, persons)
    owner = np.repeat(np.arange(persons), many)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(many) - many, many)
    lasts = rng.random(len(owner)) < 0.8
    new = np.minimum(
        2, rng.integers(0, 3, len(owner)) + (rng.random(len(owner)) < 0.3 * sex[owner])
    )
    stage = new.copy()
    for k in range(1, 4):
        at = np.flatnonzero((number == k) & lasts)
        stage[at] = stage[at - 1]
    likes = rng.random(persons) < 0.5  # what visits of a person share
    drug = rng.random(len(owner)) < 0.15 + 0.2 * stage + 0.1 * sex[owner] + 0.2 * likes[owner]
    codes = np.column_stack([stage, np.zeros(len(owner)), drug]).astype(np.uint16)
    when = frame.order.lower + 30.0 * number
    births, deaths = np.zeros(persons), np.full(persons, np.nan)
    return CodedVisits(sex[:, None].astype(np.uint16), codes, owner, when, births, deaths)


def released(persons: int, rng: np.random.Generator, *, noise: float = 1.0) -> VisitQuestions:
    spec = linked_spec(persons)
    frame = VisitFrame.from_spec(spec)
    views = views_of(frame, made(frame, persons, rng))
    tables = {
        view: [
            counted(
                frame.views[view], views.codes[view], names, sigma=noise * SIGMAS[view], rng=rng
            )
            for names in sets
        ]
        for view, sets in SETS.items()
    }
    return asked_of(spec, frame, tables)


def mean_of(value: int, level: int | None = None, where: int | None = None) -> Analysis:
    """The mean of a column, or the share of a level, of rows that have level 1 in another."""

    def analysis(codes: Any, rows: Any) -> tuple[Any, Any]:
        weight = rows * (1.0 if where is None else codes[:, where] == 1)
        y = codes[:, value] if level is None else codes[:, value] == level
        mean = weight @ y / weight.sum()
        return np.array([mean]), np.array([weight @ (y - mean) ** 2 / weight.sum() ** 2])

    return analysis


def slopes(codes: Any, rows: Any) -> tuple[Any, Any]:
    """Linear main effects of all other columns on the last one, with robust errors."""
    x = np.column_stack([np.ones(len(codes)), codes[:, :-1]]).astype(float)
    inverse = np.linalg.inv((x * rows[:, None]).T @ x)
    y = codes[:, -1].astype(float)
    beta = inverse @ (x.T @ (rows * y))
    errors = inverse @ ((x * (rows * (y - x @ beta) ** 2)[:, None]).T @ x) @ inverse
    return beta[1:], np.diag(errors)[1:]


ANALYSES: dict[str, tuple[tuple[str, ...], Analysis]] = {
    "persons: visits by sex": (("persons.sex", "visits.number"), mean_of(1, where=0)),
    "first: stage by sex": (("persons.sex", "visits[1].stage"), mean_of(1, 2, where=0)),
    "all: share of stage": (("visits.stage",), mean_of(0, 2)),
    "all: drug by stage": (("visits.stage", "visits.drug"), mean_of(1, where=0)),
    "all: drug on sex, stage": (("persons.sex", "visits.stage", "visits.drug"), slopes),
    "later: drug on the stages": (("visits[-1].stage", "visits.stage", "visits.drug"), slopes),
}


def held(persons: int, releases: int, *, m: int = 20) -> Iterator[tuple[str, bool]]:
    """Whether the interval of each analysis of each release holds the population's value."""
    truth: dict[str, Any] = {}
    exact = released(600_000, np.random.default_rng(0), noise=0.0)
    for release in range(releases):
        rng = np.random.default_rng([release, persons])
        asked = released(persons, rng)
        for name, (columns, analysis) in ANALYSES.items():
            if release == 0:
                truth[name] = analysis(*_true(exact, columns, rng))[0]
            found = copies_of_visits(asked, m, columns=columns, rows=None, rng=rng)
            if not _claimed(found, columns):
                continue
            cells = _cells(found)
            drawn = [analysis(cells, rng.multinomial(found.rows, p.ravel())) for p in found.laws]
            middle, error, freedom = pooled(*map(np.array, zip(*drawn, strict=True)))
            half = t.ppf(0.975, freedom) * error
            for inside in np.abs(middle - truth[name]) <= half:
                yield name, bool(inside)


def _claimed(found: Copies, columns: tuple[str, ...]) -> bool:
    """Whether each level of each pair is told apart, or of the one column; numbers of visits, of
    which none are 0, are not.
    """
    told = {frozenset(s["columns"]) for s in found.spanned["sets"] if not s["together"]}
    pairs = [*map(frozenset, combinations(columns, 2))] or [frozenset(columns)]
    return told.issuperset(pairs) or "visits.number" in columns


def _cells(found: Copies) -> Any:
    return np.indices(found.laws[0].shape).reshape(found.laws[0].ndim, -1).T


def _true(exact: VisitQuestions, columns: tuple[str, ...], rng: np.random.Generator) -> Any:
    """Cells of a law, and its rows, by tables of very many persons without noise."""
    one = copies_of_visits(exact, 2, columns=columns, rows=None, rng=rng)
    frame = exact.stated.frame
    views = views_of(frame, made(frame, 600_000, np.random.default_rng(0)))
    law, cells = one.spanned["law"].split(",")[0], _cells(one)
    parts = {"persons": [(PERSONS, columns)], "visits": [(STEPS, columns)]}[
        law.split(":")[0].split()[0]
    ]
    if "visits[1].stage" in columns:
        parts = [(OUTER, columns)]
    elif law.startswith("visits: "):
        parts.append((OUTER, tuple(c.replace("visits.", "visits[1].") for c in columns)))
    rows = np.zeros(len(cells))
    for view, names in parts:
        domain = frame.views[view]
        own = views.codes[view][:, [domain.index(n) for n in names]]
        shape = one.laws[0].shape
        rows += np.bincount(np.ravel_multi_index(tuple(own.T), shape), minlength=len(cells))
    return cells, rows


@pytest.mark.check
def test_intervals_hold_the_population_seeded() -> None:
    found = list(held(5000, 10, m=10))
    assert {name for name, _ in found} == {*ANALYSES}
    assert sum(inside for _, inside in found) > 0.92 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("persons", [1000, 5000])
def test_intervals_hold_the_population(persons: int) -> None:
    """300 releases. Those of visits may be wider than they must be, and those of persons not."""
    hits, all_of = Counter[str](), Counter[str]()
    for name, inside in held(persons, 300):
        hits[name] += inside
        all_of[name] += 1
    for name, count in all_of.items():
        print(f"{persons} persons, {name}: {hits[name] / count:.3f} of {count}")
    assert hits.total() > 0.94 * all_of.total()
    assert all(hits[name] > 0.92 * count for name, count in all_of.items())
    few = [name for name in all_of if name.startswith(("persons", "first"))]
    assert sum(hits[n] for n in few) < 0.98 * sum(all_of[n] for n in few)


def test_copies_say_what_their_rows_are() -> None:
    """And have the columns as they were named, with values of their own."""
    asked = released(2000, np.random.default_rng(3))

    def copied(*columns: str) -> Copies:
        return copies_of_visits(asked, 2, columns=columns, rows=40, rng=np.random.default_rng(1))

    later = copied("visits[-1].stage", "visits.stage")
    assert later.spanned["law"].startswith("visits after the first")
    assert later.spanned["columns"] == [*later.columns] == ["visits[-1].stage", "visits.stage"]
    assert {len(table) for table in later} == {40}
    assert {*next(iter(later))["visits.stage"]} <= {"0", "1", "2"}
    told = " ".join(later.spanned["about"])
    assert "no key" in told and "3 of one person" in told
    assert copied("visits.stage", "visits.drug").spanned["law"].startswith("visits: each")
    persons = copied("persons.sex", "visits.number")
    assert persons.spanned["law"] == "persons: each counts once"
    assert "of one person" not in " ".join(persons.spanned["about"])
    regressions = {one["target"]: one["linear"] for one in persons.spanned["regressions"]}
    assert regressions["persons.sex"] == ["visits.number"]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (None, "of one analysis"),
        (("visits.stage", "visits.stage"), "each named once"),
        (("visits[1].stage", "visits.stage"), "of one kind of rows"),
        (("visits.stage", "visits.nothing"), "no rows that were counted"),
        (("persons.sex", "visits.bp"), "no table of the bundle"),
    ],
)
def test_columns_that_no_rows_have_are_refused(columns: Any, told: str) -> None:
    asked = released(500, np.random.default_rng(3))
    with pytest.raises(OutputError, match=told):
        copies_of_visits(asked, 2, columns=columns, rows=None, rng=np.random.default_rng(1))


def test_a_copy_allows_for_a_person_with_all_visits_alike() -> None:
    """The laws of visits spread as if each person's counted once, those of persons as rows do."""
    asked, rng = released(4000, np.random.default_rng(5), noise=0.01), np.random.default_rng(2)
    for columns, most in ((("persons.sex",), 1), (("visits.stage",), 4)):
        found = copies_of_visits(asked, 400, columns=columns, rows=10, rng=rng)
        shares = np.array([law[0] for law in found.laws])
        rows, p = found.spanned["counted_rows"], float(shares.mean())
        assert shares.var() == pytest.approx(most * p * (1 - p) / rows, rel=0.3)
