"""Constraints that no row, or no row together with others, can fulfil: what is refused, what is
not, and that it costs little.
"""

from typing import Any

import pytest

from synthdp.spec import cross_problems
from synthdp.spec.model import ReleaseSpec
from tests.builders import skeleton

COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 99, "bins": 4},
    "visits": {
        "type": "integer",
        "lower": 0,
        "upper": 1000,
        "edges": [0, 1, 5, 900],
        "spikes": [7],
    },
    "civil-status": {"type": "categorical", "categories": ["single", "married"]},
    "grade": {"type": "ordinal", "categories": ["low", "high"], "missing": True},
    "smoker": {"type": "boolean"},
    "low": {"type": "number", "lower": 0, "upper": 10, "decimals": 1},
    "high": {"type": "number", "lower": 0, "upper": 10, "decimals": 1},
    "admitted": {"type": "datetime", "lower": "2020-01-01", "upper": "2020-12-31"},
    "left": {
        "type": "datetime",
        "lower": "2020-01-01",
        "upper": "2020-12-31",
        "missing": True,
        "resolution": "hour",
    },
    **{name: {"type": "integer", "lower": 0, "upper": 4} for name in ("few", "fewer")},
    **{f"n{i}": {"type": "number", "lower": 0, "upper": 1} for i in range(10)},
}
ORDER = [f"n{i} < n{i + 1}" for i in range(9)]


def refused(*texts: str) -> list[tuple[int, str]]:
    """Numbers of the constraints that are refused, counted from 1, and with which others."""
    spec = ReleaseSpec.model_validate({"columns": COLUMNS, "constraints": texts, **skeleton()})
    found = [p for p in cross_problems(spec) if p.loc[0] == "constraints"]
    return [(int(p.loc[1]) + 1, p.message.partition("together with ")[2]) for p in found]


@pytest.mark.parametrize(
    "text",
    [
        "low == high + 11",
        "age > 99",
        "age < 0",
        "visits == 0.5",
        "visits > 1000",
        "low > 10",
        "smoker and not smoker",
        "low * 100 == 0.5",
        "grade is not missing and grade < 'low'",
        "admitted > '2020-12-31'",
        "left is not missing and left < '2020-01-01'",
        "age is missing",
        "`civil-status` is missing",
        "left is not missing and left - admitted > 366",
    ],
)
def test_what_no_row_fulfils_is_refused(text: str) -> None:
    assert refused("age >= 0", text) == [(2, "")]


@pytest.mark.parametrize(
    "text",
    [
        "age > 98",
        "age == 0",
        "visits == 7",
        "visits > 990",
        "low == 10",
        "low < 0.1",
        "smoker",
        "not smoker",
        "grade is missing",
        "grade == 'high'",
        "`civil-status` == 'single'",
        "admitted == '2020-12-31'",
        "left is missing",
        "left > '2020-12-30T12:00:00'",
        "left < '2020-01-01'",  # a missing value violates nothing
    ],
)
def test_what_some_rows_fulfil_is_not(text: str) -> None:
    assert refused("age >= 0", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "low == high",
        "low == high - n1",
        "high - low == 1",
        "low + high == age",
        "age == visits - 5",
        "smoker or low == high",
        "not (low != high)",
        "low in (1, high)",
        "not low not in (1, high)",
        "age < low == high",
        "smoker and not (age > 3 or low != high)",
        "age == visits or age > 120",
        "admitted == left",
        "left - admitted == 3",
    ],
)
def test_equations_between_numbers_are_refused(text: str) -> None:
    """They passed, and then failed after training, with the budget spent: a model's rows fulfil
    them by chance alone.
    """
    assert refused("age >= 0", text) == [(2, "")]


@pytest.mark.parametrize(
    "text",
    [
        "few == fewer",
        "few + fewer == 4",
        "low != high",
        "not low == high",
        "low == 5 or age > 3",
        "low not in (1, high)",
        "`civil-status` == 'single'",
        "grade == 'low'",
        "visits in (7, 8)",
        "low - high < 0.5",
        "few == 2",
        "smoker == 'true'",
    ],
)
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert refused("age >= 0", text) == []


def test_contradictions_name_all_that_take_part_and_no_other() -> None:
    pair = ("age >= 18", "smoker", "age < 10")
    assert refused(*pair) == [(3, "#1 'age >= 18'")]
    three = ("low < 9", "smoker or age < 50", "not smoker or age < 50", "visits > 3", "age > 60")
    assert refused(*three) == [(5, "#2 'smoker or age < 50' and #3 'not smoker or age < 50'")]
    assert [i for i, _ in refused(*pair, *three[1:], "high < 0")] == [8, 3, 7]


def test_what_is_only_rare_together_is_not_refused() -> None:
    """An order of ten numbers holds for one row in ten factorial, and the model may well have
    learnt it.
    """
    assert refused(*ORDER) == []
    assert refused("age >= 18", *ORDER, "age < 10") == [
        (11, "#1 'age >= 18'")
    ]  # and hides no true contradiction
