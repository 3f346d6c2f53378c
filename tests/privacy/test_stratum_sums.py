"""Sums by stratum: equal to pandas, no row beyond the sensitivity, noise of the stated scale."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy.stats import kstest

from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.privacy.mechanisms.sums import GRID, SQUARE, Arm, Bounded, NoisySums, StratumSums
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.table import Table, added
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.model import Categorical, Column, Integer

COLUMNS: dict[str, Column] = {
    "visits": Integer(type="integer", lower=0, upper=99, bins=5, missing=True),
    "age": Integer(type="integer", lower=0, upper=99, bins=4),
    "sex": Categorical(type="categorical", categories=("f", "m")),
    "plan": Categorical(type="categorical", categories=("a", "b", "c"), missing=True),
}
DOMAIN = Domain.from_spec(COLUMNS)
CLIPPED = Bounded("visits", 0.0, 30.0)


class Silent(Streams):
    """Fresh streams whose noise is zero: what a mechanism would say without it."""

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return counts


def condition(text: str) -> Expression:
    found, mistakes = parse(text, COLUMNS)
    assert found is not None, mistakes
    return found


def arms(text: str) -> tuple[Arm, Arm]:
    asked = condition(text)
    return Arm(((asked, True),)), Arm(((asked, False),))


def frame_of(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    visits = pd.array(rng.integers(0, 100, rows), dtype="Int64")
    visits[rng.random(rows) < 0.1] = pd.NA
    plans = rng.choice(["a", "b", "c"], rows).astype(object)
    plans[rng.random(rows) < 0.2] = None
    return pd.DataFrame(
        {
            "visits": visits,
            "age": rng.integers(0, 100, rows),
            "sex": rng.choice(["f", "m"], rows),
            "plan": plans,
        }
    )


def table_of(frame: pd.DataFrame, held_out: npt.NDArray[np.bool_] | None = None) -> Table:
    codes, _ = encode(DOMAIN, frame)
    return Table(codes, frame, np.zeros(len(frame), bool) if held_out is None else held_out, {})


def silent(mechanism: StratumSums, table: Table) -> NoisySums:
    return mechanism.run(table, Silent.fresh())


def test_sums_equal_those_of_pandas_on_values_inside_bins() -> None:
    """`age > 37` cuts a bin, and 30 clips one; missing visits and held-out rows are in no sum."""
    frame = frame_of(3000, 0)
    held_out = np.random.default_rng(1).random(len(frame)) < 0.3
    mechanism = StratumSums(DOMAIN, arms("age > 37"), ("sex",), CLIPPED, 1.0)
    found = silent(mechanism, table_of(frame, held_out))
    kept = frame[~held_out & frame["visits"].notna().to_numpy()]
    u = (kept["visits"].astype(float).clip(0, 30) - 15) / 15
    for i, arm in enumerate((kept["age"] > 37, kept["age"] <= 37)):
        for j, sex in enumerate(("f", "m")):
            chosen = u[arm & (kept["sex"] == sex)]
            assert found.counts[i, j] == len(chosen)
            assert found.sums[i, j] == pytest.approx(chosen.sum(), abs=len(chosen) / GRID)
            assert found.squares[i, j] == pytest.approx(
                (chosen**2).sum(), abs=len(chosen) / (SQUARE * GRID)
            )


def test_a_row_is_in_the_first_arm_that_is_surely_true_and_in_none_where_that_is_unknown() -> None:
    frame = frame_of(500, 2)
    mechanism = StratumSums(DOMAIN, (*arms("plan == 'a'"), Arm()), (), None, 1.0)
    found = silent(mechanism, table_of(frame))
    known = frame["plan"].notna()
    wanted = [(frame["plan"] == "a").sum(), (known & (frame["plan"] != "a")).sum(), (~known).sum()]
    assert found.counts.tolist() == wanted and found.sums.shape == (0,)


def test_sums_do_not_depend_on_the_order_of_rows() -> None:
    frame = frame_of(70_000, 3)
    mechanism = StratumSums(DOMAIN, arms("sex == 'f'"), (), CLIPPED, 1.0)
    whole, turned, one, rest = (
        table_of(f).add_up(mechanism) for f in (frame, frame[::-1], frame[:1], frame[1:])
    )
    assert np.array_equal(whole, turned) and np.array_equal(whole - rest, one)


def moves(mechanism: StratumSums, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """How far each row by itself moves all sums, in rows and in L2."""
    table = table_of(frame)
    exact = [
        added(mechanism, table.frame, table.codes, np.array([i])) / GRID for i in range(len(frame))
    ]
    return np.array([np.sqrt((sums**2).sum()) for sums in exact])


@pytest.mark.parametrize("number", [None, CLIPPED, Bounded("visits", 0.0, 99.0)])
def test_no_row_moves_the_sums_further_than_the_sensitivity_and_some_reach_it(
    number: Bounded | None,
) -> None:
    mechanism = StratumSums(DOMAIN, arms("age > 37"), ("plan",), number, 1.0)
    moved = moves(mechanism, frame_of(400, 4))
    assert moved.max() <= mechanism.sensitivity * (1 + 1e-12)
    assert moved.max() == pytest.approx(mechanism.sensitivity, rel=1e-4)


@pytest.mark.parametrize("number", [None, CLIPPED])
def test_no_replaced_unit_moves_the_sums_further_than_is_charged_and_some_reach_it(
    number: Bounded | None,
) -> None:
    """All pairs of units of one row and of two, among rows at the ends of the bounds."""
    mechanism = StratumSums(DOMAIN, arms("age > 37"), ("sex",), number, 1.0)
    ends = pd.DataFrame(
        list(itertools.product([0, 15, 30, None], [0, 99], ["f", "m"], ["a"])),
        columns=["visits", "age", "sex", "plan"],
    ).astype({"visits": "Int64"})
    table = table_of(ends)
    one = [added(mechanism, table.frame, table.codes, np.array([i])) / GRID for i in range(16)]
    for rows in (1, 2):
        units = [sum(unit) for unit in itertools.combinations_with_replacement(one, rows)]
        moved = max(np.linalg.norm(a - b) for a, b in itertools.combinations(units, 2))
        event = mechanism.event(rows)
        allowed = mechanism.sigma * event.moved("replace_one")
        assert allowed == pytest.approx(math.sqrt(2) * rows * mechanism.sensitivity)
        assert moved == pytest.approx(allowed, rel=1e-4) and moved <= allowed * (1 + 1e-12)


def test_the_search_would_notice_numbers_that_are_not_cut() -> None:
    """A clip of 0 to 30 that a row of 99 escapes moves more than is charged."""

    class Uncut(StratumSums):
        def numbers(self, frame: pd.DataFrame, codes: object) -> npt.NDArray[np.float64]:
            return (frame["visits"].astype(float).to_numpy() - 15) / 15

    mechanism = Uncut(DOMAIN, (Arm(),), (), CLIPPED, 1.0)
    assert moves(mechanism, frame_of(400, 5)).max() > 2 * mechanism.sensitivity


@pytest.mark.parametrize(("claimed", "accepted"), [(1.0, True), (0.7, False), (1.3, False)])
def test_noise_has_the_stated_scale(claimed: float, accepted: bool) -> None:
    mechanism = StratumSums(DOMAIN, arms("age > 37"), ("plan",), CLIPPED, 1.7)
    table = table_of(frame_of(30, 6))
    exact = silent(mechanism, table)
    scales = {"counts": 1.0, "sums": 1.0, "squares": 1 / SQUARE}
    noise = []
    for _ in range(200):
        noisy = mechanism.run(table, Streams.fresh())
        for name, scale in scales.items():
            away = getattr(noisy, name) - getattr(exact, name)
            noise.append((away / (scale * mechanism.sigma)).ravel())
    p = kstest(np.concatenate(noise) / claimed, "norm").pvalue
    assert bool(p > 1e-7) is accepted


def test_the_journal_loses_nothing_and_refuses_other_strata() -> None:
    mechanism = StratumSums(DOMAIN, arms("age > 37"), ("sex",), CLIPPED, 1.7)
    value = mechanism.run(table_of(frame_of(50, 7)), Streams.fresh())
    back = mechanism.unpack(mechanism.pack(value))
    for name in ("counts", "sums", "squares"):
        assert np.array_equal(getattr(back, name), getattr(value, name))
    assert back.sigma == value.sigma == mechanism.sigma
    with pytest.raises(ValueError, match="strata"):
        replace(mechanism, by=("plan",)).unpack(mechanism.pack(value))


def test_too_many_strata_are_refused() -> None:
    with pytest.raises(ValueError, match="strata"):
        StratumSums(DOMAIN, (Arm(),) * 500, ("plan", "sex"), None, 1.0)
