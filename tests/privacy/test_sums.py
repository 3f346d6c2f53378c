"""Moments, sums by stratum and of products: equal to pandas, their sensitivity and noise."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.stats import kstest

from synthdp.data import Basis, Domain
from synthdp.model import Design
from synthdp.privacy import Contrast, ContrastBudget
from synthdp.privacy import table as adding
from synthdp.privacy.mechanisms import moments, sums
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.sums import (
    GRID,
    NUMBER,
    SQUARE,
    Arm,
    Bounded,
    NoisyProducts,
    ProductSums,
    StratumSums,
)
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table, added
from synthdp.spec import parse
from tests.builders import build_spec
from tests.privacy.conftest import SIGNIFICANCE, Floats, Silent, encoded_table, numeric_domain

COLUMNS: Any = build_spec(
    {
        "visits": {"type": "integer", "lower": 0, "upper": 99, "bins": 5, "missing": True},
        "age": {"type": "integer", "lower": 0, "upper": 99, "bins": 4},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
        "plan": {"type": "categorical", "categories": ["a", "b", "c"], "missing": True},
    }
).columns
DOMAIN = Domain.from_spec(COLUMNS)
CLIPPED = Bounded("visits", 0.0, 30.0)
AGE, B, C = ("age", NUMBER), ("plan", 1), ("plan", 2)
DESIGN = Design(
    ("(intercept)", "age", "plan=b", "plan=c", "age:plan=b", "age:plan=c"),
    ((), (AGE,), (B,), (C,), (AGE, B), (AGE, C)),
    CLIPPED,
    (Bounded("age", 0.0, 99.0),),
)


def arms(text: str) -> tuple[Arm, Arm]:
    asked, mistakes = parse(text, COLUMNS)
    assert asked is not None, mistakes
    return Arm(((asked, True),)), Arm(((asked, False),))


def strata(noise: float = 1.0, by: str = "sex", number: Bounded | None = CLIPPED) -> StratumSums:
    return StratumSums(DOMAIN, arms("age > 37"), (by,), number, noise)


def contrast(noise: float = 1.0, by: str = "sex") -> Contrast:
    """Weights of both signs and centres off the middle, for each stratum of both arms."""
    own, rng = strata(by=by), np.random.default_rng(4)
    shape = (2, math.prod(own.shape[1:]))
    weights, *centres = (rng.uniform(-end, end, shape) for end in (1.0, 0.6, 0.8))
    return ContrastBudget(own, noise).choose(weights, *centres)


def products(noise: float = 1.0, arm: Arm | None = None) -> ProductSums:
    return DESIGN.mechanism(DOMAIN, arm or Arm(), noise)


def apart(noise: float = 1.0) -> ProductSums:
    """Visits and age, their squares, and both by the levels of plan, one of which is its lack."""
    visits = ("visits", NUMBER)
    asked = [((n, NUMBER),) * k for n in ("visits", "age") for k in (1, 2)]
    asked += [tuple(sorted([n, ("plan", level)])) for n in (visits, AGE) for level in range(4)]
    numbers = (CLIPPED, Bounded("age", 0.0, 99.0))
    return ProductSums(DOMAIN, Arm(), numbers, tuple(asked), noise, apart=True)


def matrix(
    count: int = 3, *, degree: int = 2, deviations: float = 2.0, noise: float = 1.0
) -> MomentMatrix:
    domain = numeric_domain(*(f"x{i}" for i in range(count)))
    basis = Basis(domain, domain.names, degree=degree, interaction=degree)
    return MomentMatrix(basis, basis.norm(deviations=deviations), noise)


def frame_of(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    visits = pd.array(rng.integers(0, 100, rows), dtype="Int64")
    visits[rng.random(rows) < 0.1] = pd.NA
    plans = rng.choice(["a", "b", "c"], rows).astype(object)
    plans[rng.random(rows) < 0.2] = None
    age, sex = rng.integers(0, 100, rows), rng.choice(["f", "m"], rows)
    return pd.DataFrame({"visits": visits, "age": age, "sex": sex, "plan": plans})


def table_of(frame: pd.DataFrame, held_out: npt.NDArray[np.bool_] | None = None) -> Table:
    return encoded_table(DOMAIN, frame, held_out)


def numbers(mechanism: MomentMatrix, values: Any, held_out: Any = None) -> Table:
    return encoded_table(mechanism.basis.domain, values, held_out)


def uniform(rows: int, seed: int) -> Table:
    return numbers(matrix(), np.random.default_rng(seed).uniform(-1, 1, (rows, 3)))


@dataclass(frozen=True)
class Case:
    """A kind of sums: by noise, rows by number and seed, and what it tells, with noise `sigma`."""

    make: Callable[[float], Any]
    table: Callable[[int, int], Table]
    told: Callable[[Any], Floats]


def of_strata(value: Any) -> Floats:
    return np.concatenate(
        [value.counts.ravel(), value.sums.ravel(), value.squares.ravel() * SQUARE]
    )


CASES = {
    "moments": Case(
        lambda noise: matrix(noise=noise), uniform, lambda v: v.sums[np.triu_indices(len(v.sums))]
    ),
    "strata": Case(strata, lambda rows, seed: table_of(frame_of(rows, seed)), of_strata),
    "contrast": Case(contrast, lambda rows, seed: table_of(frame_of(rows, seed)), lambda v: v.sums),
    "products": Case(products, lambda rows, seed: table_of(frame_of(rows, seed)), lambda v: v.sums),
    "apart": Case(apart, lambda rows, seed: table_of(frame_of(rows, seed)), lambda v: v.sums),
}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def test_ranges_of_a_column_need_not_be_its_bins() -> None:
    """By the value itself; what is missing lies by itself, what is below all ends in the first."""
    frame = frame_of(2000, 3)
    cuts = (("age", (0.0, 18.0, 37.0)), ("visits", (10.0, 33.0)))
    mechanism = replace(strata(number=None), by=("age", "sex", "visits"), cuts=cuts)
    assert mechanism.shape == (2, 3, 2, 3)
    found = mechanism.without_noise(table_of(frame)).counts
    ages = pd.cut(frame["age"], [-1, 17, 36, 99], labels=False)
    visits = pd.cut(frame["visits"].astype(float), [-1, 32, 99], labels=False).fillna(2).astype(int)
    for at in np.ndindex(3, 2, 3):
        rows = (ages == at[0]) & (frame["sex"] == "fm"[at[1]]) & (visits == at[2])
        old = frame["age"] > 37
        assert found[:, *at].tolist() == [(rows & old).sum(), (rows & ~old).sum()]


@every
def test_sums_do_not_depend_on_the_order_of_rows(case: Case) -> None:
    """Exact arithmetic: the order of rows and blocks leaves no trace in the low bits."""
    whole, mechanism = case.table(40_000, 3), case.make(1.0)

    def part(rows: slice) -> Any:
        own = Table(whole.codes[rows], whole.frame[rows], whole.held_out[rows], {})
        return own.add_up(mechanism)

    every, turned = part(slice(None)), part(slice(None, None, -1))
    assert np.array_equal(every, turned)
    assert np.array_equal(every - part(slice(1, None)), part(slice(1)))


@every
@pytest.mark.parametrize(("claimed", "accepted"), [(1.0, True), (0.7, False), (1.3, False)])
def test_noise_has_the_stated_scale(case: Case, claimed: float, accepted: bool) -> None:
    mechanism, table = case.make(1.7), case.table(30, 6)
    exact = case.told(mechanism.run(table, Silent.fresh()))
    draws = max(200, 3000 // len(exact))
    drawn = [case.told(mechanism.run(table, Streams.fresh())) - exact for _ in range(draws)]
    p = kstest(np.concatenate(drawn) / (claimed * mechanism.sigma), "norm").pvalue
    assert bool(p > SIGNIFICANCE) is accepted


@every
def test_the_journal_gives_back_what_was_released(case: Case) -> None:
    mechanism = case.make(1.7)
    value = mechanism.run(case.table(50, 7), Streams.fresh())
    back = mechanism.unpack(mechanism.pack(value))
    assert np.array_equal(case.told(back), case.told(value))
    assert back.sigma == value.sigma == mechanism.sigma


def test_the_journal_of_other_sums_is_refused() -> None:
    table, of_products = table_of(frame_of(50, 7)), products()
    packed = strata().pack(strata().run(table, Streams.fresh()))
    with pytest.raises(ValueError, match="strata"):
        strata(by="plan").unpack(packed)
    with pytest.raises(ValueError, match="contrast"):
        contrast().unpack({"sums": np.zeros(4)})
    packed = of_products.pack(of_products.run(table, Streams.fresh()))
    with pytest.raises(ValueError, match="not the sums"):
        replace(of_products, products=of_products.products[:3]).unpack(packed)


@pytest.mark.parametrize(
    ("wrong", "name", "make"),
    [(sums.StratumSums, "numbers", strata), (sums.ProductSums, "_number", products)],
)
def test_the_search_would_notice_numbers_that_are_not_cut(
    wrong: Any, name: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clip of 0 to 30 that a row of 99 escapes moves more than is charged."""

    def uncut(self: Any, *given: Any) -> Any:
        frame = given[-2]
        column = given[0].column if len(given) == 3 else "visits"
        own = frame[column].astype(float)
        return ((own.fillna(0) if len(given) == 3 else own).to_numpy() - 15) / 15

    monkeypatch.setattr(wrong, name, uncut)
    assert moves(make(), frame_of(400, 5)).max() > 2 * make().sensitivity


def moves(mechanism: Any, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """How far each row by itself moves all sums in L2."""
    return np.array([np.linalg.norm(one) for one in single(mechanism, frame)])


def single(mechanism: Any, frame: pd.DataFrame) -> list[Any]:
    """What each row by itself adds."""
    table = table_of(frame)
    rows = map(np.array, [[i] for i in range(len(frame))])
    return [added(mechanism, table.frame, table.codes, row) / GRID for row in rows]


def ends(*values: list[Any]) -> pd.DataFrame:
    """Rows of all these visits, ages, sexes and plans."""
    rows = pd.DataFrame(list(itertools.product(*values)), columns=list(COLUMNS))
    return rows.astype({"visits": "Int64"})


# --- by stratum ---


def test_sums_by_stratum_equal_those_of_pandas_on_values_inside_bins() -> None:
    """`age > 37` cuts a bin, and 30 clips one; missing visits and held-out rows are in no sum."""
    frame = frame_of(3000, 0)
    held_out = np.random.default_rng(1).random(len(frame)) < 0.3
    found = strata().run(table_of(frame, held_out), Silent.fresh())
    kept = frame[~held_out & frame["visits"].notna().to_numpy()]
    u = (kept["visits"].astype(float).clip(0, 30) - 15) / 15
    for i, arm in enumerate((kept["age"] > 37, kept["age"] <= 37)):
        for j, sex in enumerate(("f", "m")):
            own = u[arm & (kept["sex"] == sex)]
            assert found.counts[i, j] == len(own)
            assert found.sums[i, j] == pytest.approx(own.sum(), abs=len(own) / GRID)
            near = len(own) / (SQUARE * GRID)
            assert found.squares[i, j] == pytest.approx((own**2).sum(), abs=near)


def test_a_row_is_in_the_first_arm_that_is_surely_true_and_in_none_where_that_is_unknown() -> None:
    frame = frame_of(500, 2)
    mechanism = StratumSums(DOMAIN, (*arms("plan == 'a'"), Arm()), (), None, 1.0)
    found = mechanism.run(table_of(frame), Silent.fresh())
    known = frame["plan"].notna()
    wanted = [(frame["plan"] == "a").sum(), (known & (frame["plan"] != "a")).sum(), (~known).sum()]
    assert found.counts.tolist() == wanted and found.sums.shape == (0,)


@pytest.mark.parametrize("number", [None, CLIPPED, Bounded("visits", 0.0, 99.0)])
def test_no_row_moves_sums_by_stratum_further_than_the_sensitivity_and_some_reach_it(
    number: Bounded | None,
) -> None:
    mechanism = strata(by="plan", number=number)
    moved = moves(mechanism, frame_of(400, 4))
    assert moved.max() <= mechanism.sensitivity * (1 + 1e-12)
    assert moved.max() == pytest.approx(mechanism.sensitivity, rel=1e-4)


@pytest.mark.parametrize("number", [None, CLIPPED])
def test_no_replaced_unit_moves_sums_by_stratum_further_than_is_charged_and_some_reach_it(
    number: Bounded | None,
) -> None:
    """All pairs of units of one row and of two, among rows at the ends of the bounds."""
    mechanism = strata(number=number)
    one = single(mechanism, ends([0, 15, 30, None], [0, 99], ["f", "m"], ["a"]))
    for rows in (1, 2):
        units = [sum(unit) for unit in itertools.combinations_with_replacement(one, rows)]
        moved = max(np.linalg.norm(a - b) for a, b in itertools.combinations(units, 2))
        allowed = mechanism.sigma * mechanism.event(rows).moved("replace_one")
        assert allowed == pytest.approx(math.sqrt(2) * rows * mechanism.sensitivity)
        assert moved == pytest.approx(allowed, rel=1e-4) and moved <= allowed * (1 + 1e-12)


def test_too_many_strata_are_refused() -> None:
    with pytest.raises(ValueError, match="strata"):
        StratumSums(DOMAIN, (Arm(),) * 500, ("plan", "sex"), None, 1.0)


# --- a contrast of strata ---


def test_a_contrast_equals_that_of_pandas_on_values_inside_bins() -> None:
    """Rows that lack visits, or are held out, add nothing; sums are parts of the most of a row."""
    frame, chosen = frame_of(3000, 0), contrast()
    held_out = np.random.default_rng(1).random(len(frame)) < 0.3
    found = chosen.run(table_of(frame, held_out), Silent.fresh())
    kept = frame[~held_out & frame["visits"].notna().to_numpy()]
    u = ((kept["visits"].astype(float).clip(0, 30) - 15) / 15).to_numpy()
    arm, sex = (kept["age"] <= 37).astype(int), (kept["sex"] == "m").astype(int)
    a, m, b = (part[arm, sex] for part in (chosen.weights, chosen.centres, chosen.about))
    wanted = [(a * (u - m)).sum(), ((a * (u - b)) ** 2).sum(), (a**2).sum()]
    own = found.sums * chosen.most / [1, SQUARE, SQUARE]
    assert own == pytest.approx(wanted, abs=len(kept) / (SQUARE * GRID))
    largest = (np.abs(chosen.weights) * (1 + np.abs(chosen.centres))).max()
    assert chosen.most[0] == pytest.approx(largest) and chosen.size == 3


def test_a_row_in_no_stratum_adds_nothing_to_a_contrast() -> None:
    """Its place is -1, which would be the last one's."""
    frame = frame_of(300, 1)
    own = StratumSums(DOMAIN, (*arms("age > 37")[:1], *arms("age > 200")[:1]), ("sex",), CLIPPED, 1)
    part = np.full((2, math.prod(own.shape[1:])), 0.5)
    chosen = ContrastBudget(own, 1.0).choose(part, 0 * part, 0 * part)
    held_out = np.zeros(len(frame), bool)
    inside = frame[(frame["age"] > 37) & frame["visits"].notna()]
    found = chosen.run(table_of(frame, held_out), Silent.fresh())
    assert found.sums[2] * GRID == pytest.approx(len(inside) * np.rint(SQUARE * GRID), rel=1e-9)


def reached() -> Contrast:
    """One stratum has the most of all three sums, at either end of its number."""
    weights = np.array([[0.7, -0.2], [-0.7, 0.3]])
    centres = np.array([[0.4, 0.1], [0.4, 0.0]])
    return ContrastBudget(strata(), 1.0).choose(weights, centres, centres)


@pytest.mark.parametrize("chosen", [contrast(), contrast(by="plan"), reached()])
def test_no_row_moves_a_contrast_further_than_the_sensitivity_and_some_reach_it(
    chosen: Contrast,
) -> None:
    rows = ends([0, 15, 30, 99, None], [0, 99], ["f", "m"], ["a", "b", "c"])
    moved = moves(chosen, pd.concat([rows, frame_of(400, 4)], ignore_index=True))
    assert moved.max() <= chosen.budget.sensitivity * (1 + 1e-12)
    assert moved.max() > 0.8 * chosen.budget.sensitivity
    best = moves(reached(), rows).max()
    assert best == pytest.approx(chosen.budget.sensitivity, rel=1e-4)


def test_no_replaced_unit_moves_a_contrast_further_than_is_charged_and_some_come_near() -> None:
    """From one arm at one end of the number to the other arm there: 2 of the first sum."""
    one = single(reached(), ends([0, 15, 30, None], [0, 99], ["f", "m"], ["a"]))
    for rows in (1, 2):
        units = [sum(unit) for unit in itertools.combinations_with_replacement(one, rows)]
        moved = max(np.linalg.norm(a - b) for a, b in itertools.combinations(units, 2))
        allowed = reached().sigma * reached().event(rows).moved("replace_one")
        assert allowed == pytest.approx(2 * rows * reached().budget.sensitivity)
        assert 0.9 * allowed < moved <= allowed * (1 + 1e-12)


def test_a_contrast_of_other_strata_or_of_no_weight_is_refused() -> None:
    budget, some = ContrastBudget(strata(), 1.0), np.ones((2, 2))
    beyond = (some * 1e-162, some), (some * 1e-200, some), (some * 1e200, some)
    for weights, centres in ((some[:1], some), (some, some * np.nan), (0 * some, some), *beyond):
        with pytest.raises(ValueError, match="weights"):
            budget.choose(weights, centres, some)
    with pytest.raises(ValueError, match="number"):
        ContrastBudget(strata(number=None), 1.0)


# --- of products ---


def test_products_equal_those_of_pandas_on_complete_rows() -> None:
    """Visits are cut at 30; rows that lack a column, held-out ones and others are in no sum."""
    frame = frame_of(3000, 0)
    held_out = np.random.default_rng(1).random(len(frame)) < 0.3
    measured = products(arm=arms("age > 37")[0])
    found = measured.run(table_of(frame, held_out), Silent.fresh())
    kept = frame[~held_out & (frame["age"] > 37)].dropna()
    scaled = (("visits", 30.0), ("age", 99.0))
    u, age = ((kept[n].astype(float).clip(0, e) - e / 2) / (e / 2) for n, e in scaled)
    b, c = (kept["plan"] == level for level in ("b", "c"))
    design = np.column_stack([np.ones(len(kept)), age, b, c, age * b, age * c, u])
    expected = design.T @ design
    assert DESIGN.moments(found.sums) == pytest.approx(expected, abs=len(kept) / GRID)
    assert found.sums[0] == len(kept)


def test_products_that_stand_apart_equal_those_of_pandas_on_rows_that_have_the_number() -> None:
    """A row without visits counts for age, one without a plan at that level."""
    frame = frame_of(3000, 0)
    held_out = np.random.default_rng(1).random(len(frame)) < 0.3
    measured = apart()
    found = dict(
        zip(
            measured.products,
            measured.run(table_of(frame, held_out), Silent.fresh()).sums,
            strict=True,
        )
    )
    kept = frame[~held_out]
    plans = kept["plan"].fillna("none")
    for name, end in (("visits", 30.0), ("age", 99.0)):
        part = (name, NUMBER)
        u = ((kept[name].astype(float).clip(0, end) - end / 2) / (end / 2)).fillna(0.0)
        near = len(kept) / GRID
        assert found[(part,)] == pytest.approx(u.sum(), abs=near)
        assert found[part, part] == pytest.approx((u**2).sum(), abs=near)
        for level, plan in enumerate(("a", "b", "c", "none")):
            at = tuple(sorted([part, ("plan", level)]))
            assert found[at] == pytest.approx(u[plans == plan].sum(), abs=near)


def test_no_row_moves_what_stands_apart_further_than_is_charged_and_some_come_near() -> None:
    """Rows at all ends, with and without each column: coming, going and replaced."""
    measured = apart()
    one = single(measured, ends([0, 15, 30, 99, None], [0, 49, 99], ["f"], ["a", "b", "c", None]))
    assert measured.sensitivity == math.sqrt(6)
    far = max(map(np.linalg.norm, one))
    assert far <= measured.sensitivity * (1 + 1e-12)
    assert far == pytest.approx(measured.sensitivity, rel=1e-4)
    moved = max(np.linalg.norm(a - b) for a in one for b in one)
    allowed = measured.sigma * measured.event(1).moved("replace_one")
    assert 0.9 * allowed <= moved <= allowed * (1 + 1e-12)


def test_raw_terms_are_made_of_scaled_ones() -> None:
    age, plan, ones = np.array([10.0, 70.0]), np.array([1, 2]), np.ones(2)
    scaled, b, c = (age - 49.5) / 49.5, plan == 1, plan == 2
    made = DESIGN.raw @ np.stack([ones, scaled, b, c, scaled * b, scaled * c])
    assert made == pytest.approx(np.stack([ones, age, b, c, age * b, age * c]))


def test_each_different_sum_is_there_once() -> None:
    """The square of an indicator is the indicator, and two levels of one column are zero."""
    asked = products().products
    assert (B,) in asked and (B, B) not in asked and (B, C) not in asked
    assert DESIGN.places[2, 3] == -1 and DESIGN.places[2, 2] == DESIGN.places[0, 2]
    assert (DESIGN.places == DESIGN.places.T).all()


def test_no_row_moves_products_further_than_the_sensitivity_and_some_reach_it() -> None:
    """All rows at the ends, in each level, and others."""
    measured = products()
    far = moves(measured, ends([0, 15, 30, 99, None], [0, 33, 99], ["f"], ["a", "b", "c", None]))
    assert max(far.max(), moves(measured, frame_of(300, 4)).max()) <= measured.sensitivity * (
        1 + 1e-12
    )
    assert far.max() == pytest.approx(measured.sensitivity, rel=1e-4)


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        (None, 0.75),
        (((AGE,),), 0.999),
        (((B,), (C,)), 0.999),
        (((B,),), 0.999),
        (((AGE, AGE),), 0.999),
    ],
    ids=["regression", "a number", "levels", "one level", "a square"],
)
def test_no_replaced_row_moves_products_further_than_is_charged_and_some_come_near(
    asked: Any, near: float
) -> None:
    """All pairs of rows at the ends and in the middle, and rows that lack a column."""
    measured = replace(products(), products=asked) if asked else products()
    one = single(measured, ends([0, 15, 30, None], [0, 49, 50, 99], ["f"], ["a", "b", "c", None]))
    moved = max(np.linalg.norm(a - b) for a in one for b in one)
    allowed = measured.sigma * measured.event(1).moved("replace_one")
    assert near * allowed <= moved <= allowed * (1 + 1e-12)
    assert asked or 1 < measured.replaced < 1.9
    assert measured.event(3).moved("replace_one") == pytest.approx(3 * measured.replaced)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (((B,), (B,)), "twice"),
        (((B, AGE),), "not in order"),
        (tuple((("age", level),) for level in range(2001)), "at most 2000"),
    ],
)
def test_products_that_would_break_the_proof_are_refused(asked: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ProductSums(DOMAIN, Arm(), DESIGN.numbers, asked, 1.0)


def test_numbers_without_room_are_refused_and_what_is_no_number_moves_nothing() -> None:
    narrow = Bounded("age", 0.0, 5e-324)
    with pytest.raises(ValueError, match="bounds do not differ"):
        replace(products(), numbers=(narrow,))
    frame = pd.DataFrame({"visits": [0.0], "age": [0.0]})
    found = products()._number(narrow, frame, np.zeros((1, 4), np.uint16))
    assert np.isfinite(found).all() and abs(found).max() <= 1


def test_without_noise_all_rows_count() -> None:
    frame = frame_of(100, 8)
    complete = frame.drop(columns="sex").dropna()
    found = products().without_noise(table_of(frame, np.ones(100, dtype=bool)))
    assert isinstance(found, NoisyProducts) and found.sums[0] == len(complete)


# --- moments ---


def test_moments_equal_a_loop_over_the_rows_that_are_not_held_out() -> None:
    mechanism, rng = matrix(), np.random.default_rng(0)
    values, held_out = rng.uniform(-1, 1, (500, 3)), rng.random(500) < 0.3
    table = numbers(mechanism, values, held_out)
    released = mechanism.run(table, Silent.fresh())
    expected = np.zeros_like(released.sums)
    for row in mechanism.bounded(mechanism.basis.matrix(table.frame, table.codes))[~held_out]:
        expected += np.outer(row, row) * moments.GRID**2
    assert np.array_equal(released.sums, expected)
    near = (~held_out).sum()  # rows beyond the norm count for less
    assert released.sums[0, 0] == pytest.approx(near, rel=0.1)


def functions_of(mechanism: MomentMatrix, rows: Floats) -> Floats:
    """What each row adds: the products of its functions."""
    table = numbers(mechanism, rows)
    own = mechanism.bounded(mechanism.basis.matrix(table.frame, table.codes)) * moments.GRID
    upper = np.triu_indices(own.shape[1])
    return np.asarray(own[:, upper[0]] * own[:, upper[1]])


@pytest.mark.parametrize(
    ("count", "degree", "deviations"),
    [(1, 1, 2.0), (4, 1, 2.0), (4, 1, 1e9), (8, 1, 1e9), (3, 2, 2.0), (3, 3, 1e9)],
)
def test_no_row_moves_the_sums_further_than_the_sensitivity_and_some_come_near(
    count: int, degree: int, deviations: float
) -> None:
    mechanism = matrix(count, degree=degree, deviations=deviations)
    rng = np.random.default_rng(count)
    rows = rng.uniform(-1, 1, (4000, count))
    rows[:1000] = rng.choice([-1.0, 1.0], (1000, count))  # corners
    for _ in range(20):  # climb: keep the worst half, and move it a little
        moved = np.linalg.norm(functions_of(mechanism, rows), axis=1)
        assert moved.max() <= mechanism.sensitivity
        worst = rows[np.argsort(moved)[-2000:]]
        rows = np.concatenate([worst, np.clip(worst + rng.normal(0, 0.2, worst.shape), -1, 1)])
    furthest = np.linalg.norm(functions_of(mechanism, rows), axis=1).max()
    assert furthest >= mechanism.sensitivity / 2


@pytest.mark.parametrize(("count", "degree", "deviations"), [(1, 1, 2.0), (4, 1, 1e9), (3, 2, 2.0)])
def test_no_replaced_unit_moves_moments_further_than_is_charged_and_some_come_near(
    count: int, degree: int, deviations: float
) -> None:
    """Pairs of units of one row, and of three, at corners and inside."""
    mechanism = matrix(count, degree=degree, deviations=deviations)
    rng = np.random.default_rng(count)
    rows = np.concatenate([rng.choice([-1.0, 1.0], (60, count)), rng.uniform(-1, 1, (60, count))])
    one = functions_of(mechanism, rows)
    for size in (1, 3):
        units = one[rng.integers(0, len(one), (400, size))].sum(1) if size > 1 else one
        units = np.concatenate([units, size * one])
        squares = (units**2).sum(1)
        moved = np.sqrt((squares[:, None] + squares - 2 * units @ units.T).max())
        allowed = mechanism.sigma * mechanism.event(size).moved("replace_one")
        assert mechanism.sensitivity * size <= allowed / 1.4 and moved <= allowed
        assert moved >= 0.4 * allowed


def test_a_search_would_notice_a_sensitivity_that_forgets_the_diagonal() -> None:
    """Half the Frobenius norm, which leaves the diagonal out, is exceeded."""
    mechanism = matrix(8, degree=1, deviations=1e9)
    far = np.linalg.norm(functions_of(mechanism, np.ones((1, 8))))
    assert far > mechanism.norm**2 / np.sqrt(2)


def test_noisy_moments_lie_on_the_lattice_are_symmetric_and_noise_alone_where_nobody_is() -> None:
    mechanism = matrix()
    told = mechanism.run(numbers(mechanism, np.full((7, 3), 0.3)), Streams.fresh()).sums
    steps = told / moments.GRID**2
    assert np.array_equal(told, told.T) and np.array_equal(steps, np.rint(steps))
    assert not mechanism.run(numbers(mechanism, np.zeros((0, 3))), Silent.fresh()).sums.any()


def test_other_scales_and_more_noise_are_charged_as_planned() -> None:
    mechanism = matrix(noise=2.0)
    assert mechanism.with_scales(()).event(3) == mechanism.event(3)
    assert mechanism.scaled(2.5).event(1).noise_multiplier == 5.0
    assert mechanism.event(4).noise_multiplier == 0.5
    assert mechanism.scaled(2.5).sigma == pytest.approx(2.5 * mechanism.sigma)


def test_sums_beyond_what_floating_point_holds_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row moves them by its products, near 2^52 as sums over billions of rows are."""
    monkeypatch.setattr(moments, "GRID", 2.0**-26)
    monkeypatch.setattr(adding, "CHUNK_OF_NUMBERS", 1)
    mechanism = matrix(2)
    values = np.random.default_rng(6).uniform(-1, 1, (60, 2))
    longer, shorter = (numbers(mechanism, values[:rows]) for rows in (60, 59))
    one, other = (t.add_up(mechanism) for t in (longer, shorter))
    row = mechanism.bounded(mechanism.basis.matrix(longer.frame, longer.codes))[-1].astype(np.int64)
    own = np.outer(row, row)[np.triu_indices(len(row))]
    assert one[0] > 2**53 and np.array_equal(one - other, own)
