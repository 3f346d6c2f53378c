"""Sums of products: equal to pandas, no row beyond the sensitivity, noise of the stated scale."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.stats import kstest

from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.model.estimands import Design
from synthdp.privacy.mechanisms.sums import GRID, NUMBER, Arm, Bounded, NoisyProducts, ProductSums
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.table import Table, added
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.model import Categorical, Column, Integer

COLUMNS: dict[str, Column] = {
    "visits": Integer(type="integer", lower=0, upper=99, bins=5, missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=4),
    "plan": Categorical(type="categorical", categories=("a", "b", "c"), missing=True),
}
DOMAIN = Domain.from_spec(COLUMNS)
AGE, B, C = ("age", NUMBER), ("plan", 1), ("plan", 2)
DESIGN = Design(
    ("(intercept)", "age", "plan=b", "plan=c", "age:plan=b", "age:plan=c"),
    ((), (AGE,), (B,), (C,), (AGE, B), (AGE, C)),
    Bounded("visits", 0.0, 30.0),
    (Bounded("age", 0.0, 99.0),),
)


class Silent(Streams):
    """Fresh streams whose noise is zero: what a mechanism would say without it."""

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return counts


def mechanism(noise: float = 1.0, where: str | None = None) -> ProductSums:
    arm = Arm()
    if where is not None:
        condition, mistakes = parse(where, COLUMNS)
        assert condition is not None, mistakes
        arm = Arm(((condition, True),))
    return DESIGN.mechanism(DOMAIN, arm, noise)


def frame_of(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    visits = pd.array(rng.integers(0, 100, rows), dtype="Int64")
    visits[rng.random(rows) < 0.1] = pd.NA
    plans = rng.choice(["a", "b", "c"], rows).astype(object)
    plans[rng.random(rows) < 0.2] = None
    return pd.DataFrame({"visits": visits, "age": rng.integers(0, 100, rows), "plan": plans})


def table_of(frame: pd.DataFrame, held_out: npt.NDArray[np.bool_] | None = None) -> Table:
    codes, _ = encode(DOMAIN, frame)
    return Table(codes, frame, np.zeros(len(frame), bool) if held_out is None else held_out, {})


def test_moments_equal_those_of_pandas_on_complete_rows() -> None:
    """Visits are cut at 30; rows that lack a column, held-out ones and others are in no sum."""
    frame = frame_of(3000, 0)
    held_out = np.random.default_rng(1).random(len(frame)) < 0.3
    found = mechanism(where="age > 37").run(table_of(frame, held_out), Silent.fresh())
    kept = frame[~held_out & (frame["age"] > 37)].dropna()
    u, age = ((kept[n].astype(float).clip(0, e) - e / 2) / (e / 2) for n, e in
              (("visits", 30.0), ("age", 99.0)))  # fmt: skip
    b, c = (kept["plan"] == level for level in ("b", "c"))
    design = np.column_stack([np.ones(len(kept)), age, b, c, age * b, age * c, u])
    expected = design.T @ design
    assert DESIGN.moments(found.sums) == pytest.approx(expected, abs=len(kept) / GRID)
    assert found.sums[0] == len(kept)


def test_raw_terms_are_made_of_scaled_ones() -> None:
    age, plan = np.array([10.0, 70.0]), np.array([1, 2])
    scaled, b, c = (age - 49.5) / 49.5, plan == 1, plan == 2
    ones = np.ones(2)
    made = DESIGN.raw @ np.stack([ones, scaled, b, c, scaled * b, scaled * c])
    assert made == pytest.approx(np.stack([ones, age, b, c, age * b, age * c]))


def test_each_different_sum_is_there_once() -> None:
    """The square of an indicator is the indicator, and two levels of one column are zero."""
    products = mechanism().products
    assert (B,) in products and (B, B) not in products and (B, C) not in products
    assert DESIGN.places[2, 3] == -1 and DESIGN.places[2, 2] == DESIGN.places[0, 2]
    assert (DESIGN.places == DESIGN.places.T).all()


def moves(measured: ProductSums, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """How far each row by itself moves all sums in L2."""
    table = table_of(frame)
    exact = [
        added(measured, table.frame, table.codes, np.array([i])) / GRID for i in range(len(frame))
    ]
    return np.array([np.sqrt((sums**2).sum()) for sums in exact])


def test_no_row_moves_the_sums_further_than_the_sensitivity_and_some_reach_it() -> None:
    """All rows at the ends, in each level, and others."""
    ends = pd.DataFrame(
        combinations([0, 15, 30, 99, None], [0, 33, 99], ["a", "b", "c", None]),
        columns=["visits", "age", "plan"],
    )
    measured = mechanism()
    for frame in (ends.astype({"visits": "Int64"}), frame_of(300, 4)):
        assert moves(measured, frame).max() <= measured.sensitivity * (1 + 1e-12)
    assert moves(measured, ends.astype({"visits": "Int64"})).max() == pytest.approx(
        measured.sensitivity, rel=1e-4
    )


def test_no_replaced_row_moves_the_sums_further_than_is_charged_and_some_come_near() -> None:
    """All pairs of rows at the ends and in the middle, and rows that lack a column."""
    ends = pd.DataFrame(
        combinations([0, 15, 30, None], [0, 49, 50, 99], ["a", "b", "c", None]),
        columns=["visits", "age", "plan"],
    ).astype({"visits": "Int64"})
    table = table_of(ends)
    cases = {
        "regression": (mechanism(), 0.75),
        "a number": (replace(mechanism(), products=((AGE,),)), 0.999),
        "levels": (replace(mechanism(), products=((B,), (C,))), 0.999),
        "one level": (replace(mechanism(), products=((B,),)), 0.999),
        "a square": (replace(mechanism(), products=((AGE, AGE),)), 0.999),
    }
    for name, (measured, near) in cases.items():
        one = [
            added(measured, table.frame, table.codes, np.array([i])) / GRID
            for i in range(len(ends))
        ]
        moved = max(np.linalg.norm(a - b) for a in one for b in one)
        allowed = measured.sigma * measured.event(1).moved("replace_one")
        assert near * allowed <= moved <= allowed * (1 + 1e-12), name
    assert 1 < mechanism().replaced < 1.9
    assert mechanism().event(3).moved("replace_one") == pytest.approx(3 * mechanism().replaced)


def test_the_search_would_notice_numbers_that_are_not_cut() -> None:
    class Uncut(ProductSums):
        def _number(self, bounds: Bounded, frame: pd.DataFrame, codes: object) -> object:
            values = frame[bounds.column].astype(float).fillna(0).to_numpy()
            return (values - bounds.middle) / bounds.half

    right = mechanism()
    wrong = Uncut(DOMAIN, right.arm, right.numbers, right.products, 1.0)
    assert moves(wrong, frame_of(300, 5)).max() > 2 * right.sensitivity


def test_sums_do_not_depend_on_the_order_of_rows() -> None:
    frame = frame_of(70_000, 3)
    whole, turned, one, rest = (
        table_of(f).add_up(mechanism()) for f in (frame, frame[::-1], frame[:1], frame[1:])
    )
    assert np.array_equal(whole, turned) and np.array_equal(whole - rest, one)


@pytest.mark.parametrize(("claimed", "accepted"), [(1.0, True), (0.7, False), (1.3, False)])
def test_noise_has_the_stated_scale(claimed: float, accepted: bool) -> None:
    measured, table = mechanism(1.7), table_of(frame_of(30, 6))
    exact = measured.run(table, Silent.fresh()).sums
    noise = [measured.run(table, Streams.fresh()).sums - exact for _ in range(200)]
    p = kstest(np.concatenate(noise) / (claimed * measured.sigma), "norm").pvalue
    assert bool(p > 1e-7) is accepted


def test_the_journal_loses_nothing_and_refuses_other_sums() -> None:
    measured = mechanism(1.7)
    value = measured.run(table_of(frame_of(50, 7)), Streams.fresh())
    back = measured.unpack(measured.pack(value))
    assert np.array_equal(back.sums, value.sums) and back.sigma == value.sigma == measured.sigma
    with pytest.raises(ValueError, match="not the sums"):
        replace(measured, products=measured.products[:3]).unpack(measured.pack(value))


@pytest.mark.parametrize(
    ("products", "problem"),
    [
        (((B,), (B,)), "twice"),
        (((B, AGE),), "not in order"),
        (tuple((("age", level),) for level in range(2001)), "at most 2000"),
    ],
)
def test_products_that_would_break_the_proof_are_refused(products: tuple, problem: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=problem):
        ProductSums(DOMAIN, Arm(), DESIGN.numbers, products, 1.0)


def test_numbers_without_room_are_refused_and_what_is_no_number_moves_nothing() -> None:
    narrow = Bounded("age", 0.0, 5e-324)
    with pytest.raises(ValueError, match="bounds do not differ"):
        replace(mechanism(), numbers=(narrow,))
    frame = pd.DataFrame({"visits": [0.0], "age": [0.0]})
    found = mechanism()._number(narrow, frame, np.zeros((1, 3), np.uint16))
    assert np.isfinite(found).all() and abs(found).max() <= 1


def test_without_noise_all_rows_count() -> None:
    frame = frame_of(100, 8)
    found = mechanism().without_noise(table_of(frame, np.ones(100, dtype=bool)))
    assert isinstance(found, NoisyProducts) and found.sums[0] == len(frame.dropna())
