"""Suggestions: what is true of made tables by construction is found, as a line that the spec takes;
what is nearly true is not.
"""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import Domain, decode
from synthdp.evaluate import LIMITS, Limits, Suggestion, SuggestionReport, suggest
from synthdp.model import Constraints
from synthdp.privacy.source import fit_table
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton

pytestmark = pytest.mark.check

ROWS = 600
RNG = np.random.default_rng(8)
A, B, C = (RNG.normal(size=ROWS).round(3) for _ in range(3))
WHOLE = {"type": "integer", "lower": 0, "upper": 1000}
REAL = {"type": "number", "lower": -50, "upper": 50, "decimals": 3}
MANY = RNG.integers(0, 300, (3, ROWS))
FEW = RNG.integers(0, 5, (3, ROWS))
SPLIT = RNG.integers(0, 6, ROWS)


def spec_of(columns: dict[str, Any], **sections: Any) -> ReleaseSpec:
    text = json.dumps({**skeleton(), "columns": columns, **sections}, default=str)
    return parse_spec(text, path="spec.yaml")


def report_of(
    columns: dict[str, Any],
    data: dict[str, Any],
    *,
    synthetic: pd.DataFrame | None = None,
    limits: Limits = LIMITS,
    **sections: Any,
) -> SuggestionReport:
    """Suggestions for a table; the synthetic one has the same columns, each in an order of its
    own, unless one is given.
    """
    spec = spec_of(columns, **sections)
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(0)
    raw = pd.DataFrame(data)
    dataset = spec.dataset.model_copy(
        update={"rows": spec.dataset.rows.model_copy(update={"value": len(raw)})}
    )
    real = fit_table(raw, dataset, domain, holdout=0.0, rng=rng).frame
    if synthetic is None:
        synthetic = pd.DataFrame({c: real[c].sample(frac=1, random_state=1).array for c in real})
        for i, name in enumerate(real):
            synthetic[name] = real[name].sample(frac=1, random_state=i).array
    return suggest(spec, domain, real, synthetic, rng=rng, limits=limits)


def found(columns: dict[str, Any], data: dict[str, Any], **changes: Any) -> list[Suggestion]:
    return list(report_of(columns, data, **changes).suggestions)


def test_a_column_far_above_another_is_no_order_of_interest() -> None:
    """One row in 25 of a high column lies among the low ones: the order is that of their sizes."""
    low = np.tile(MANY[0] // 3, 4)
    high = np.where(np.arange(4 * ROWS) % 25 == 0, low + 1, 500 + np.tile(MANY[1], 4))
    assert found({"low": WHOLE, "high": WHOLE}, {"low": low, "high": high}) == []


def test_what_is_declared_is_not_suggested_again() -> None:
    ends = {"low": WHOLE, "high": WHOLE}
    data = {"low": MANY[0], "high": MANY[0] + MANY[1] // 4}
    assert len(found(ends, data)) == 1
    assert found(ends, data, constraints=["low <= high"]) == []


# --- order ---


def test_an_order_that_always_holds_is_a_constraint() -> None:
    data = {"low": MANY[0], "high": MANY[0] + MANY[1] // 4}
    (one,) = found({"low": WHOLE, "high": WHOLE}, data)
    assert (one.kind, one.line, one.holds) == ("constraint", "- low <= high", ROWS)
    assert one.broken is not None and 0.2 < one.broken < 0.6
    spec = spec_of({"low": WHOLE, "high": WHOLE}, constraints=yaml.safe_load(one.line))
    held = Constraints.from_spec(spec, Domain.from_spec(spec.columns))
    assert not held.violated({n: np.asarray(v, float) for n, v in data.items()}).any()
    turned = data["high"].copy()
    turned[5] = data["low"][5] - 1
    assert found({"low": WHOLE, "high": WHOLE}, data | {"high": turned}) == []


def test_of_three_in_order_two_are_enough() -> None:
    low, (step, more) = MANY[0], MANY[1:] // 4
    data = {"max": low + step + more, "min": low, "mean": low + step}
    told = found({n: WHOLE for n in data} | {"other": WHOLE}, data | {"other": MANY[0][::-1]})
    assert [s.line for s in told if s.kind == "constraint"] == ["- min <= mean", "- mean <= max"]


@pytest.mark.parametrize(
    ("low", "high", "changes"),
    [
        (MANY[0], MANY[1] + 300, {}),  # no values in common: nothing could be turned
        (MANY[0], MANY[0] + MANY[1], {"unit": "days"}),  # not of one unit
        (MANY[0], MANY[0] + MANY[1], {"upper": 100_000}),  # not of one range
        (MANY[0][:45], MANY[0][:45] + MANY[1][:45], {}),  # too few rows
    ],
)
def test_orders_that_say_nothing_are_left_out(low: Any, high: Any, changes: Any) -> None:
    columns = {"low": WHOLE | {"unit": "euros"}, "high": WHOLE | {"unit": "euros"} | changes}
    if "upper" in changes:
        columns = {"low": WHOLE, "high": WHOLE | changes}
    assert found(columns, {"low": low, "high": high}) == []


# --- dates ---

DAYS = np.datetime64("2019-01-01", "s") + (MANY[0] * 3 + FEW[0]).astype("timedelta64[D]")
DATE = {"type": "datetime", "lower": "2018-01-01", "upper": "2023-12-31"}


def test_dates_in_order() -> None:
    end = DAYS + (MANY[1] / 3).astype("timedelta64[D]")
    (one,) = found({"admitted": DATE, "left": DATE}, {"admitted": DAYS, "left": end})
    assert one.line == "- admitted <= left"


# --- levels ---

TOWNS = {"type": "categorical", "categories": ["a", "b", "it's", "d", "e", "f"]}
LANDS = {"type": "categorical", "categories": ["x", "y", "z, w"]}
TOWN = np.asarray(TOWNS["categories"])[SPLIT]
LAND = np.asarray(LANDS["categories"])[SPLIT // 2]


def test_a_category_that_follows_from_another_is_a_constraint() -> None:
    (one,) = found({"town": TOWNS, "land": LANDS}, {"town": TOWN, "land": LAND})
    assert one.columns == ("town", "land") and one.remark == "each town goes with one land"
    spec = spec_of({"town": TOWNS, "land": LANDS}, constraints=yaml.safe_load(one.line))
    held = Constraints.from_spec(spec, Domain.from_spec(spec.columns))
    for shift, broken in ((0, 0), (1, ROWS)):
        values = {"town": SPLIT.astype(float), "land": (SPLIT // 2 + shift) % 3.0}
        assert held.violated(values).sum() == broken


def test_one_row_that_is_otherwise_ends_it() -> None:
    other = LAND.copy()
    other[9] = "x" if LAND[9] != "x" else "y"
    assert found({"town": TOWNS, "land": LANDS}, {"town": TOWN, "land": other}) == []


def test_levels_of_few_rows_are_left_free() -> None:
    rare = np.where(np.arange(ROWS) < 5, "f", np.where(TOWN == "f", "e", TOWN))
    land = np.where(rare == "f", "x", np.where(np.isin(rare, ["a", "b"]), "y", "z, w"))
    (one,) = found({"town": TOWNS, "land": LANDS}, {"town": rare, "land": land})
    assert "'f'" not in yaml.safe_load(one.line)[0]


def test_two_names_for_one_thing_and_what_follows_from_them() -> None:
    columns = {"code": WHOLE, "town": TOWNS, "land": LANDS}
    told = found(columns, {"code": SPLIT, "town": TOWN, "land": LAND})
    assert [s.columns for s in told] == [("code", "town"), ("code", "land")]
    assert "one of the two is enough" in told[0].remark


def test_what_constraints_are_too_short_for_is_said_in_words() -> None:
    categories = [f"a rather long name of a place, number {i:02d}" for i in range(40)]
    code = np.arange(ROWS * 3) % 40
    columns = {
        "place": {"type": "categorical", "categories": categories},
        "zip": {"type": "categorical", "categories": [f"z{i}" for i in range(40)]},
    }
    data = {"place": np.asarray(categories)[code], "zip": [f"z{i}" for i in code]}
    (one,) = found(columns, data)
    assert (one.kind, one.line) == ("words", "") and "each place goes with one zip" in one.remark


# --- limits ---


def test_names_and_texts_that_need_quotes() -> None:
    columns = {"a: b": REAL, "not": REAL}
    (one,) = found(columns, {"a: b": A + B**2, "not": A})
    (text,) = yaml.safe_load(one.line)
    assert text == "`not` <= `a: b`" and spec_of(columns, constraints=[text])


def test_so_many_columns_rows_and_suggestions_and_no_more() -> None:
    columns = {n: REAL for n in "abcy"}
    data = {"a": A, "b": B, "c": C, "y": A + B**2}
    report = report_of(columns, data, limits=Limits(columns=3, rows=200))
    assert (report.suggestions, report.rows, report.columns, report.left_out) == ((), 200, 3, 1)
    (one,) = report_of(columns, data, limits=Limits(columns=4, rows=200)).suggestions
    assert one.holds == 200
    assert not found(columns, data, limits=Limits(shown=0))
    assert not found(columns, data, limits=Limits(checked=0))


ODD: dict[str, Any] = {
    "n": REAL | {"missing": True},
    "m": REAL,
    "wide": {"type": "number", "lower": -1e299, "upper": 1e299, "missing": True},
    "k": WHOLE | {"missing": True},
    "two": {"type": "integer", "lower": 0, "upper": 1},
    "when": DATE | {"missing": True, "resolution": "second"},
    "then": DATE,
    "town": TOWNS | {"missing": True},
    "one": {"type": "categorical", "categories": ["only"]},
    "yes": {"type": "boolean"},
}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from([0, 1, 2, 49, 60, 130]),
    drawn=st.sampled_from([0, 1, 70]),
    names=st.sets(st.sampled_from(sorted(ODD)), min_size=1),
    constant=st.sets(st.sampled_from(sorted(ODD))),
    alike=st.booleans(),
)
def test_no_table_is_too_odd(
    seed: int, rows: int, drawn: int, names: set[str], constant: set[str], alike: bool
) -> None:
    """Few or no rows, one value, nothing but missing values, no numbers, copies of columns."""
    spec = spec_of({n: c for n, c in ODD.items() if n in names})
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(seed)

    def table(count: int) -> pd.DataFrame:
        codes = rng.integers(0, np.asarray(domain.sizes), (count, len(domain))).astype(np.uint16)
        for i, column in enumerate(domain.columns):
            if column.name in constant:  # the last level is the missing one, where there is one
                codes[:, i] = column.levels - 1
            elif alike:
                codes[:, i] = codes[:, 0] % column.levels
        return decode(domain, codes, rng=rng)

    report = suggest(spec, domain, table(rows), table(drawn), rng=rng)
    assert report.rows == rows and report.left_out == 0
    if rows < 50:
        assert report.suggestions == ()


def test_a_table_of_levels_alone_has_nothing_to_look_at() -> None:
    spec = spec_of({"a": REAL})
    empty = pd.DataFrame(index=pd.RangeIndex(70))
    report = suggest(
        spec, Domain.from_spec(spec.columns), empty, empty, rng=np.random.default_rng(0)
    )
    assert (report.columns, report.suggestions) == (0, ())


def test_wide_tables() -> None:
    width = 948
    columns = {f"n{i}": REAL if i % 2 else TOWNS for i in range(width)}
    values = {
        n: np.roll(A if c is REAL else TOWN, 7 * i) for i, (n, c) in enumerate(columns.items())
    }
    report = report_of(columns, values | {"n5": values["n1"] + B**2})
    assert (report.columns, report.left_out) == (120, width - 120)
    assert [s.line for s in report.suggestions] == ["- n1 <= n5"]
