"""Numbers of linked tables that are paid for: questions, clipped means, and several steps."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain, VisitFrame
from synthdp.errors import BudgetError, OutputError, QueryError
from synthdp.inference import LeastSquares, Margin, Measured, Rows
from synthdp.inference.visit_effects import VisitStrata, _chain, regime
from synthdp.model import clipped_groups, estimand_looks, plan_linked
from synthdp.spec.model import Categorical, Integer, Number
from tests.inference.wards import EDGES, MOST, Ward, releases, ward_spec

BIG = 400_000
ASKS = [
    "share(visits.stage == '2') by visits.drug",
    "share(visits[last].stage == '2') by persons.sex",
    "share(visits.stage == '2') by visits[later].number",
    "share(visits.bp >= 140)",
    "share(visits.stage == '2') where visits[-1].drug",
]
MEAN = {"kind": "question", "ask": "mean(visits.bp)", "clip": [90, 160]}
STEP = {"kind": "effect", "treatment": "visits.drug", "outcome": "visits[+1].stage", "level": "2"}
CLIPPED = {
    "kind": "effect",
    "treatment": "visits.drug",
    "outcome": "visits[+1].bp",
    "adjust": ["visits.stage", "persons.sex"],
    "clip": [90, 160],
}


def question(ask: str) -> dict[str, Any]:
    return {"kind": "question", "ask": ask}


def shares(ward: Ward) -> dict[str, list[float]]:
    """What the questions ask, of rows as they are."""
    worst, sex = ward.stage == 2, ward.sex[ward.owner]
    same = np.append(False, ward.owner[1:] == ward.owner[:-1])
    last, took = np.append(~same[1:], True), np.append(0, ward.drug[:-1]) == 1
    return {
        ASKS[0]: [worst[ward.drug == d].mean() for d in (0, 1)],
        ASKS[1]: [worst[last & (sex == s)].mean() for s in (0, 1)],
        ASKS[2]: [worst[ward.number == k].mean() for k in range(2, MOST + 1)],
        ASKS[3]: [(ward.bp >= 140).mean()],
        ASKS[4]: [worst[same & took].mean()],
        MEAN["ask"]: [np.clip(ward.bp, 90, 160).mean()],
    }


def told(estimand: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The figures of an estimand, of visits after the first without numbers that none has."""
    figures: list[Mapping[str, Any]] = estimand.get("figures") or estimand["contrasts"]
    return [f for f in figures if f.get("group") not in ("0", "1")]


@pytest.mark.check
def test_a_question_is_measured_by_its_own_rows() -> None:
    """Without noise, and of the very rows: each visit, each person's last, each but the first."""
    spec, rng = ward_spec(3000, [*map(question, ASKS), MEAN], 6.0), np.random.default_rng(2)
    true = shares(Ward.of(3000, rng))
    ((_, found),) = releases(spec, 1, seed=2, scale=1e-3)
    for estimand in found:
        query = estimand["query"]
        estimates = [f["estimate"] for f in told(estimand)]
        assert estimates == pytest.approx(true[query], abs=2.0 if query == MEAN["ask"] else 2e-3)
        assert estimand["law"] and estimand["about"][0] == f"law: {estimand['law']}"
    assert "visits.bp clipped to 90 to 160" in " ".join(found[-1]["about"])


def looks_of(estimand: dict[str, Any], persons: int = 3000) -> list[Any]:
    spec = ward_spec(persons, [estimand], 6.0)
    return [look for _, _, look in estimand_looks(spec, VisitFrame.from_spec(spec))]


def test_all_visits_are_two_looks_with_the_least_noise_together() -> None:
    later, first = looks_of(question(ASKS[0]))
    assert (later.rows, first.rows) == (MOST - 1, 1) and first.name == ", first visits"
    assert first.columns == ("visits[1].stage", "visits[1].drug")
    spec = ward_spec(3000, [question(ASKS[0])], 6.0)
    plan = plan_linked(spec, VisitFrame.from_spec(spec))
    one: Any = plan.linked["estimand: 1"]
    two: Any = plan.linked["estimand: 1, first visits"]
    both = (one.inner.noise_multiplier**2 + two.inner.noise_multiplier**2) ** 0.5
    spec = ward_spec(3000, [question(ASKS[4])], 6.0)
    alone: Any = plan_linked(spec, VisitFrame.from_spec(spec)).linked["estimand: 1"]
    pooled = alone.inner.noise_multiplier
    assert both == pytest.approx(pooled * MOST / (MOST - 1), rel=0.02)


def test_levels_are_parted_where_the_question_parts_them() -> None:
    (look, _) = looks_of(question(ASKS[3]))
    assert look.columns == ("visits.bp",) and look.starts == {"visits.bp": (0, 12, 13)}
    assert looks_of(question("quantile(visits[1].bp, 0.5)"))[0].starts == {}
    low = looks_of({**MEAN, "ask": "mean(visits[1].bp)"})[0].starts["visits[1].bp"]
    assert low == (0, *range(2, 16), 16)


def test_numbers_are_counted_as_finely_as_their_ends_ask() -> None:
    whole = Integer(type="integer", lower=0, upper=99, bins=100, missing=True)
    fine = Domain.from_spec({"x": whole})["x"]
    groups = clipped_groups(fine, (10, 20))
    assert groups == (0, *range(11, 21), 100)  # 0 to 10 count as 10, and 20 to 99 as 20
    assert len(clipped_groups(fine, (0, 99))) == 28
    real = Domain.from_spec({"x": Number(type="number", lower=0.0, upper=10.0, bins=10)})["x"]
    assert clipped_groups(real, (2.5, 5.0)) == (0, 2, 3, 4, 5)


WRONG: dict[str, tuple[type[Exception], str]] = {
    "share(visits.stag == '1')": (QueryError, "unknown column"),
    "count()": (OutputError, "names no column"),
    "share(visits[1].stage == '1') by visits.stage": (OutputError, "one kind of rows"),
    "mean(visits.bp) by visits.gap, persons.age, visits[-1].bp": (BudgetError, "cells"),
}


@pytest.mark.parametrize("ask", WRONG)
def test_what_is_no_question_to_pay_for_is_refused(ask: str) -> None:
    error, words = WRONG[ask]
    with pytest.raises(error, match=words):
        plan_linked(spec := ward_spec(400, [question(ask)], 2.0), VisitFrame.from_spec(spec))


# --- several steps ---


def strata_of(cells: Any, sigma: float) -> VisitStrata:
    """Cells `[treatment, after, before, person]` as strata of level 2."""
    names = dict(zip("tyxp", cells.shape, strict=True))
    columns = {
        n: Categorical(type="categorical", categories=[*map(str, range(k))])
        for n, k in names.items()
    }
    margin = Margin(cells, np.full(cells.shape, sigma**2))
    measured = Measured(Domain.from_spec(columns).columns, {frozenset(range(4)): margin})
    numbers = np.tile(np.array([0.0, 0.0, 1.0]), (3, 1))
    return VisitStrata(LeastSquares(measured), numbers, Rows(per_unit=3), apart=True)


def even_cells() -> Any:
    return np.random.default_rng(4).integers(80, 400, (2, 3, 3, 2)).astype(float)


def test_steps_are_powers_of_one_step() -> None:
    cells = even_cells()
    weights = cells.sum((0, 1)) / cells.sum()
    means = []
    for arm in (1, 0):
        law = cells[arm] / cells[arm].sum(0)
        held = np.einsum("yxp,zyp,wzp,xp->wp", law, law, law, weights)
        means.append(float(held[2].sum()))
    found = regime(strata_of(cells, 1e-3), 1, 0, 3)
    assert found.means == pytest.approx(means, abs=1e-6)
    assert found.figure.estimate == pytest.approx(means[0] - means[1], abs=1e-6)


def test_the_gradient_and_the_bias_of_several_steps() -> None:
    cells, numbers = even_cells(), np.array([0.0, 0.0, 1.0])
    _, gradient = _chain(cells, 1, numbers, 3)
    for at in [(0, 1, 2, 0), (1, 2, 0, 1), (1, 0, 0, 0)]:
        up, down = cells.copy(), cells.copy()
        up[at] += 0.01
        down[at] -= 0.01
        slope = (_chain(up, 1, numbers, 3)[0] - _chain(down, 1, numbers, 3)[0]) / 0.02
        assert gradient[at] == pytest.approx(slope, rel=1e-4)
    rng, small = np.random.default_rng(5), cells / 4
    true = regime(strata_of(small, 1e-3), 1, 0, 3).figure.estimate
    drawn = [
        regime(strata_of(small + rng.normal(0, 7, small.shape), 7.0), 1, 0, 3) for _ in range(400)
    ]
    known = [c for c in drawn if c.figure.estimate is not None]
    assert len(known) > 200
    estimates = np.array([c.figure.estimate for c in known], float)
    half = np.mean([float(c.figure.of_rows[1]) - c.figure.estimate for c in known])
    assert abs(estimates.mean() - float(true or 0)) < 4 * estimates.std() / len(known) ** 0.5
    assert half / 1.96 == pytest.approx(estimates.std(), rel=0.15)


def test_steps_through_strata_with_too_few_rows_are_refused() -> None:
    cells = even_cells()
    cells[1, :, 2, 0] = 3
    found = regime(strata_of(cells, 4.0), 1, 0, 2)
    assert found.figure.refused and "which several steps may all pass" in found.figure.refused
    assert found.left_out == ("x 2, p 0",)


AT_ONCE = [
    "visits[-1].stage, visits.drug, persons.sex -> visits.stage",
    "visits[-1].stage -> visits.drug",
]


@pytest.mark.parametrize(
    ("edges", "adjust"),
    [
        ([*EDGES, "visits[-1].bp -> visits.stage"], None),  # of two states one is not measured
        (AT_ONCE, None),
        ([*EDGES, "visits.number -> visits.stage"], None),  # the law changes
        (EDGES, ["visits.stage"]),  # sex moves the outcome, and the next one
        (EDGES, ["visits.stage", "visits.bp", "persons.sex"]),
    ],
)
def test_what_one_step_does_not_tell_of_several_is_refused(
    edges: list[str], adjust: list[str] | None
) -> None:
    spec = ward_spec(3000, [STEP | {"steps": 2} | ({"adjust": adjust} if adjust else {})], 6.0)
    graph = spec.graph.model_copy(update={"edges": tuple(edges)})
    spec = spec.model_copy(update={"graph": graph})
    with pytest.raises(OutputError, match="several steps are not told by one"):
        plan_linked(spec, VisitFrame.from_spec(spec))


def test_several_steps_are_of_categories() -> None:
    numbers = {"kind": "effect", "treatment": "visits.drug", "outcome": "visits[+1].bp", "steps": 2}
    spec = ward_spec(3000, [numbers], 6.0)
    with pytest.raises(OutputError, match="may be any number"):
        plan_linked(spec, VisitFrame.from_spec(spec))


# --- coverage ---


def regimes(steps: int) -> list[float]:
    """The effect of the drug at so many visits, from visits that another one follows on."""
    ward = Ward.of(BIG, np.random.default_rng(1))
    followed = np.append(ward.owner[1:] == ward.owner[:-1], False)
    start = np.zeros((3, 2))
    np.add.at(start, (ward.stage[followed], ward.sex[ward.owner[followed]]), 1 / followed.sum())
    ends = []
    for drug in (1, 0):
        held = start
        for _ in range(steps):
            moved = np.zeros_like(held)
            for stage, sex in np.ndindex(held.shape):
                up, down = 0.25 + 0.1 * sex - 0.15 * drug, 0.2 + 0.2 * drug
                for to, p in ((min(stage + 1, 2), up), (max(stage - 1, 0), down)):
                    moved[to, sex] += held[stage, sex] * p
                moved[stage, sex] += held[stage, sex] * (1 - up - down)
            held = moved
        ends.append(float(held[2].sum()))
    return [ends[0] - ends[1]]


def next_pressure() -> list[float]:
    """The effect of the drug on the next pressure, clipped, over visits with a next one."""
    ward, rng = Ward.of(BIG, np.random.default_rng(1)), np.random.default_rng(3)
    followed = np.append(ward.owner[1:] == ward.owner[:-1], False)
    stage, sex, means = ward.stage[followed], ward.sex[ward.owner[followed]], []
    for drug in (1, 0):
        u = rng.random(len(stage))
        up, down = 0.25 + 0.1 * sex - 0.15 * drug, 0.2 + 0.2 * drug
        then = np.clip(stage + (u < up) - (u > 1 - down), 0, 2)
        bp = 118 + 9 * then - 8 * drug + rng.normal(0, np.hypot(6, 9), len(stage))
        means.append(np.clip(bp.round(), 90, 160).mean())
    return [float(means[0] - means[1])]


def covered(
    estimands: list[dict[str, Any]],
    truth: list[list[float]],
    *,
    persons: int,
    epsilon: float,
    **how: Any,
) -> dict[tuple[int, int], float]:
    """How often intervals of 200 releases hold the truth, by estimand and figure."""
    held = defaultdict(list)
    for _, found in releases(ward_spec(persons, estimands, epsilon), 200, seed=11, **how):
        for i, (estimand, true) in enumerate(zip(found, truth, strict=True)):
            for j, (figure, value) in enumerate(zip(told(estimand), true, strict=False)):
                ends = figure.get("interval_at_middles") or figure.get("at_middles")
                low, high = ends or figure.get("interval") or (1, 0)
                held[i, j].append(low <= value <= high)
    return {at: float(np.mean(own)) for at, own in held.items()}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_intervals_of_questions_hold_the_truth(epsilon: float) -> None:
    true = shares(Ward.of(BIG, np.random.default_rng(1)))
    asked = [*map(question, ASKS), MEAN]
    truth = [true[e["ask"]] for e in asked]
    held = covered(asked, truth, persons=2500, epsilon=epsilon)
    assert min(held.values()) >= 0.905 and np.mean([*held.values()]) >= 0.94, held
    if epsilon < 1:  # where noise is most of it
        held = covered(asked, truth, persons=2500, epsilon=epsilon, stated=0.3)
        assert held[1, 0] < 0.9 and held[2, 2] < 0.9, held


@pytest.mark.slow
def test_intervals_of_several_steps_and_of_numbers_hold_the_truth() -> None:
    asked = [*(STEP | {"steps": k} for k in (1, 2, 3)), CLIPPED]
    truth = [*(regimes(k) for k in (1, 2, 3)), next_pressure()]
    held = covered(asked, truth, persons=5000, epsilon=4.0)
    assert all(0.91 <= held[i, 0] <= 0.995 for i in range(4)), held
    # Where noise is most of it, that of one row of a person would not do.
    held = covered(asked, truth, persons=8000, epsilon=2.0, stated=1 / (MOST - 1))
    assert all(held[i, 0] < 0.9 for i in range(1, 4)), held


@pytest.mark.slow
def test_counts_are_of_all_persons_where_some_are_held_out() -> None:
    """Of the very tables, whose rows the coins left a part of; shares are of the population."""
    asked = [question("count(visits.stage == '2')"), question(ASKS[1])]
    spec = ward_spec(2000, asked, 4.0)
    told_apart = spec.evaluation.model_copy(update={"holdout": 0.3})
    spec = spec.model_copy(update={"evaluation": told_apart})
    true, held = shares(Ward.of(BIG, np.random.default_rng(1)))[ASKS[1]], defaultdict(list)
    for ward, (counts, of_last) in releases(spec, 200, seed=12):
        low, high = counts["figures"][0]["interval"]
        held["count"].append(low <= (ward.stage == 2).sum() <= high)
        assert "the tables count the 70% that coins left" in " ".join(counts["about"])
        for sex, (figure, share) in enumerate(zip(of_last["figures"], true, strict=True)):
            low, high = figure["interval"]
            held[str(sex)].append(low <= share <= high)
    assert min(map(np.mean, held.values())) >= 0.91, {k: np.mean(v) for k, v in held.items()}
