"""Conditions that no row of the domain fulfils are refused before anything is drawn."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.sample import allowed, check_possible, conditions_of, settings_of
from synthdp.spec import parse
from tests.builders import build_spec

SPEC = build_spec(
    {
        "beds": {"type": "integer", "lower": 3, "upper": 9, "missing": True},
        "ward": {"type": "ordinal", "categories": ["a", "b", "c"]},
        "rate": {"type": "number", "lower": 0, "upper": 2, "decimals": 1, "spikes": [0.25]},
        "open": {"type": "datetime", "lower": "2020-01-01", "upper": "2020-12-31"},
        "twice": {"type": "number", "lower": 0, "upper": 4, "derived": "rate + rate"},
    }
)
DOMAIN = Domain.from_spec(SPEC.columns)


def check(*texts: str, do: tuple[str, ...] = ()) -> None:
    plain, conditions = conditions_of(texts, SPEC.columns, DOMAIN)
    fixed, observed = settings_of(do, plain, DOMAIN)
    check_possible(conditions, {**fixed, **observed}, DOMAIN)


@pytest.mark.parametrize(
    ("texts", "do", "told"),
    [
        (["beds > 9"], [], "beds > 9: no row .*\n.*beds holds 3 to 9, and missing"),
        (["beds > 7 and beds < 5"], [], "no row of the declared domain"),
        (["beds > 4", "beds < 5"], [], "beds > 4 and beds < 5: no row"),  # no number between
        (["beds == 4.5"], [], "no row"),
        (["not (beds <= 9 or beds is missing)"], [], "no row"),
        (["rate > 0.25 and rate < 0.3"], [], "no row"),  # between two decimals
        (["rate == 0.55"], [], "no row"),
        (["open > '2021-06-01'"], [], "2020-01-01T00:00:00 to 2020-12-31"),
        (["open > '2020-03-01' and open < '2020-03-01T12:00:00'"], [], "no row"),
        (["ward == 'a' and ward == 'b'"], [], "ward holds a, b, c"),
        (["ward > 'c'"], [], "no row"),
        (["beds=4", "beds > 5"], [], "beds holds 4"),
        (["ward != 'b'"], ["ward=b"], "ward holds b"),
        (["beds > 3"], ["beds=missing"], "beds holds missing"),
        (["beds > 4 and rate < 1", "rate >= 1"], [], "no row"),
    ],
)
def test_what_the_domain_decides_is_refused(texts: list[str], do: list[str], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        check(*texts, do=tuple(do))


@pytest.mark.parametrize(
    "texts",
    [
        ["beds >= 9"],
        ["beds > 7 or beds < 5"],
        ["beds is missing"],
        ["rate == 0.25"],
        ["rate > 0.2 and rate < 0.3"],  # the spike
        ["open == '2020-12-31'"],
        ["ward >= 'c'", "ward != 'a'"],
        ["beds > rate"],
        ["beds > rate and beds < rate"],  # compares columns: left to the rows
        ["twice > 100"],
        ["beds=4", "beds < 5"],
    ],
)
def test_what_may_be_is_left_to_the_rows(texts: list[str]) -> None:
    check(*texts)


BEDS, WARD = np.array([*range(3, 10), np.nan]), np.array([0.0, 1.0, 2.0])
RATE = np.array([0.25, *np.round(np.arange(21) / 10, 1)])
COMPARED = st.one_of(
    st.tuples(st.just("beds"), st.sampled_from([2, 3, 4, 4.5, 8, 9, 10]).map(str)),
    st.tuples(st.just("rate"), st.sampled_from([-0.1, 0, 0.2, 0.25, 0.27, 1.95, 2]).map(str)),
    st.tuples(st.just("ward"), st.sampled_from(["'a'", "'b'", "'c'"])),
)
ATOMS = st.tuples(COMPARED, st.sampled_from(["<", "<=", "==", "!=", ">", ">="])).map(
    lambda drawn: f"{drawn[0][0]} {drawn[1]} {drawn[0][1]}"
)
TEXTS = st.recursive(
    ATOMS | st.just("beds is missing"),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' and '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' or '.join(parts)})"),
        inner.map(lambda part: f"(not {part})"),
    ),
    max_leaves=6,
)


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_the_decision_is_that_of_all_rows(text: str) -> None:
    """Every value of the domain is tried here, and few of them there."""
    condition, _ = parse(text, SPEC.columns)
    assert condition is not None
    grid = np.meshgrid(BEDS, WARD, RATE, indexing="ij")
    rows: dict[str, Any] = dict(zip(("beds", "ward", "rate"), map(np.ravel, grid), strict=True))
    fulfilled = bool(np.any(condition.truth(rows)[0]))
    try:
        check(text)
        assert fulfilled
    except SpecError:
        assert not fulfilled


def test_bounds_are_told_in_all_their_digits() -> None:
    columns = build_spec({"pay": {"type": "integer", "lower": 0, "upper": 1_234_567}}).columns
    assert allowed(Domain.from_spec(columns)["pay"]) == "0 to 1234567"
