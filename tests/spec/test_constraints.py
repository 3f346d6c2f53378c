"""Constraints: what can be said, what each part means for every kind of column, and where mistakes
are told.
"""

import ast
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from synthdp.errors import SpecError
from synthdp.spec import parse, parse_spec
from synthdp.spec.model import Categorical, Column, Integer
from tests.builders import skeleton

COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 100},
    "years-married": {"type": "integer", "lower": 0, "upper": 80, "missing": True},
    "marital-status": {
        "type": "categorical",
        "categories": ["Single", "Married", "it's complicated"],
    },
    "partner": {"type": "categorical", "categories": ["Single", "Married", "it's complicated"]},
    "sex": {"type": "categorical", "categories": ["Female", "Male"]},
    "grade": {"type": "ordinal", "categories": ["low", "middle", "high"], "missing": True},
    "smoker": {"type": "boolean"},
    "weight": {"type": "number", "lower": 0, "upper": 200},
    "admitted": {"type": "datetime", "lower": "2020-01-01", "upper": "2024-12-31"},
    "discharged": {
        "type": "datetime",
        "lower": "2020-01-01",
        "upper": "2024-12-31",
        "missing": True,
        "resolution": "second",
    },
    "größe in cm": {"type": "integer", "lower": 0, "upper": 250},
    "missing": {"type": "integer", "lower": 0, "upper": 9},
}
MODELS = {name: TypeAdapter(Column).validate_python(c) for name, c in COLUMNS.items()}
NAN = float("nan")
ROW = {
    "age": 40.0,
    "years-married": 5.0,
    "marital-status": 1.0,
    "partner": 0.0,
    "sex": 1.0,
    "grade": 1.0,
    "smoker": 1.0,
    "weight": 71.5,
    "admitted": 18_262.0,
    "discharged": 18_262.5,
    "größe in cm": 180.0,
    "missing": 3.0,
}  # 18262 is 2020-01-01


def verdict(text: str, **changes: float) -> str:
    """What a row makes of an expression."""
    expression, mistakes = parse(text, MODELS)
    assert expression is not None, mistakes
    row = {name: np.asarray([changes.get(name.replace("-", "_"), v)]) for name, v in ROW.items()}
    with np.errstate(all="ignore"):
        true, false = expression.truth({name: row[name] for name in expression.columns})
        assert bool(expression.violated(row)[0]) is bool(false[0])
    assert not (true & false).any()
    return "true" if true[0] else "false" if false[0] else "unknown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age >= 40", "true"),
        ("age > 40", "false"),
        ("age < 40 or age == 40", "true"),
        ("not age == 40", "false"),
        ("18 <= age < 65", "true"),
        ("18 <= age < 40", "false"),
        ("age != 3", "true"),
        ("`years-married` + 18 <= age", "true"),
        ("age - 2 * `years-married` == 30", "true"),
        ("-age < -39", "true"),
        ("+age > 39", "true"),
        ("age / 8 == 5", "true"),
        ("(age + weight) / 2 <= 55.75", "true"),
        ("2 < weight <= 1e3", "true"),
        ("`marital-status` == 'Married'", "true"),
        ("'Single' == `marital-status`", "false"),
        ('`marital-status` in ("Single", "Married")', "true"),
        ("`marital-status` not in ['Single', \"it's complicated\"]", "true"),
        ("`marital-status` in {'Single'}", "false"),
        ("`marital-status` == partner", "false"),
        ('`marital-status` != "it\'s complicated"', "true"),
        ("age in (39, 40)", "true"),
        ("grade >= 'middle'", "true"),
        ("grade < 'middle'", "false"),
        ("'low' < grade < 'high'", "true"),
        ("smoker", "true"),
        ("not smoker", "false"),
        ("smoker == 'true'", "true"),
        ("not smoker or age >= 18", "true"),
        ("smoker and age < 18", "false"),
        ("admitted == '2020-01-01'", "true"),
        ("discharged > '2020-01-01T11:59:59'", "true"),
        ("discharged >= admitted", "true"),
        ("discharged - admitted <= 0.5", "true"),
        ("admitted + 1 <= discharged", "false"),
        ("1 + admitted > discharged", "true"),
        ("`größe in cm` > 170", "true"),
        ("missing == 3", "true"),
        ("missing is missing", "false"),
        ("age is not missing", "true"),
        ("age\n >=\t40", "true"),
        ("sex == 'Male' or 1 / age > 5 and weight > 0", "true"),
    ],
)
def test_what_expressions_mean(text: str, expected: str) -> None:
    assert verdict(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`years-married` > 3", "unknown"),
        ("not `years-married` > 3", "unknown"),
        ("`years-married` > 3 or age > 0", "true"),
        ("`years-married` > 3 or age > 90", "unknown"),
        ("`years-married` > 3 and age > 90", "false"),
        ("`years-married` > 3 and age > 0", "unknown"),
        ("`years-married` is missing", "true"),
        ("`years-married` + age is missing", "true"),
        ("`years-married` is not missing", "false"),
        ("`years-married` in (1, 2)", "unknown"),
        ("`years-married` != `years-married`", "unknown"),
        ("age / 0 > 3", "unknown"),
    ],
)
def test_a_missing_value_makes_a_comparison_unknown_and_a_constraint_is_not_violated_by_it(
    text: str, expected: str
) -> None:
    assert verdict(text, years_married=NAN) == expected


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("agee >= 18", 1, "unknown column 'agee'"),
        ("marital-status == 'Married'", 1, "unknown column 'marital'"),
        ("age >= 18 and `marital status` == 'x'", 15, "unknown column 'marital status'"),
        ("sex == 'male'", 8, "'male' is no category of 'sex': Female, Male"),
        ("sex < 'Male'", 7, "the categories of 'sex' have no order"),
        ("sex == 1", 8, "cannot compare column 'sex' with a number"),
        ("age == 'old'", 8, "cannot compare column 'age' with the text 'old'"),
        ("sex == partner", 8, "different categories"),
        ("age", 1, "is a value where something true or false is needed"),
        ("1 < 2", 5, "compares two constants"),
        ("not 3", 5, "is a value where"),
        ("age >= 2 * 3", 8, "calculates with constants alone"),
        ("sex + 1 > 2", 1, "cannot calculate with column 'sex' and a number"),
        ("admitted + discharged > 1", 1, "cannot calculate"),
        ("admitted == 'soon'", 13, "'soon' is no date"),
        ("-sex > 1", 1, "a sign cannot stand"),
        ("admitted > '2020-01-01T00:00:00Z'", 12, "is no date"),
        ("age is None", 8, "`is` can only be followed by missing"),
        ("3 is missing", 1, "a constant is never missing"),
        ("age in 3", 8, "`in` needs a list"),
        ("age in ()", 8, "`in` needs a list"),
        ("sex in ('Male', 'X')", 17, "'X' is no category"),
        ("1 < age in (3, 4)", 1, "cannot be part of a chain"),
        ("age = 3", 5, "cannot be read"),
        ("age >= ", 1, "cannot be read"),
        ("", 1, "cannot be read"),
        ("age > 3)", 8, "cannot be read"),
        ("`age > 3", 1, "cannot be read"),
        ("age > 3 & smoker", 7, "& | ~ are not used here"),
        ("(age > 3) & smoker", 1, "& | ~ are not used here"),
        ("~smoker", 1, "& | ~ are not used here"),
        ("smoker == True", 11, "True and False are not used here"),
        ("age > 1e999", 7, "numbers beyond 1e+15 are not exact"),
        ("age ** 2 > 3", 1, "is not allowed"),
        ("age.real > 3", 1, "a dot after a name is not allowed"),
        ("abs(age) > 3", 1, "a call is not allowed"),
        ("age[0] > 3", 1, "square brackets"),
        ("__import__('os').system('x') == 0", 1, "a call is not allowed"),
        ("(lambda: age)() > 1", 1, "a call"),
        ("f'{age}' == 'x'", 1, "an f-string"),
        ("(age := 3) > 1", 2, ":= is not allowed"),
        ("age > 1 if smoker else age", 1, "if ... else"),
        ("[a for a in sex] == 1", 1, "not allowed"),
        ("age > b'x'", 7, "not allowed"),
        ("age > 1j", 7, "not allowed"),
        ("age > ...", 7, "not allowed"),
        ("ƻ0 > 1", 1, "unknown column 'ƻ0'"),
        ("größe > 3", 1, "unknown column 'größe'"),
        ("'ü' == sex and agee > 1", 8, "'ü' is no category"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, at: int, says: str) -> None:
    expression, mistakes = parse(text, MODELS)
    assert expression is None and says in mistakes[0].message and mistakes[0].at == at, mistakes


def test_a_dash_without_backticks_is_explained() -> None:
    mistake, *_ = parse("marital-status == 'Married'", MODELS)[1]
    assert mistake.hint == "write `marital-status`, in backticks"
    assert parse("agee > 3", MODELS)[1][0].hint == "did you mean 'age'?"
    assert parse("age = 3", MODELS)[1][0].hint == "equality is written =="


def test_every_mistake_of_an_expression_is_told_at_once() -> None:
    _, mistakes = parse("agee > 3 and (sex in ('a', 'b') or wait == heigth)", MODELS)
    assert [m.at for m in mistakes] == [1, 23, 28, 36, 44]


def test_an_expression_is_bounded_in_size_and_depth() -> None:
    assert "more than" in parse(" and ".join(["age > 1"] * (200 // 3)), MODELS)[1][0].message
    for text in (
        "(" * 300 + "age" + ")" * 300 + "> 1",
        "not " * 240 + "smoker",
        "-" * 900 + "age > 1",
        "9" * 999 + "> age",
        "age > 1\x00",
    ):
        assert parse(text, MODELS)[0] is None


@pytest.mark.check
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *"()[]{}'\"`+-*/<>=!.,:@\\ \n",
                "age",
                "sex",
                "smoker",
                "and",
                "or",
                "not",
                "in",
                "is",
                "missing",
                "'Male'",
                "1",
                "\x00",
                "é",
            ]
        )
    )
)
def test_no_text_does_anything_but_parse_or_fail(words: list[str]) -> None:
    text = " ".join(words)
    expression, mistakes = parse(text, MODELS)
    assert (expression is None) == bool(mistakes)
    assert all(1 <= m.at <= len(text) + 2 for m in mistakes)
    if expression is not None:
        assert {
            n.id
            for n in ast.walk(ast.parse(text.strip().replace("`", ""), mode="eval"))
            if isinstance(n, ast.Name)
        } <= {*COLUMNS}


# --- in a spec ---

SPEC = {**skeleton(rows=5000), "columns": COLUMNS}


def problems(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        parse_spec(yaml.safe_dump({**SPEC, **changes}, allow_unicode=True), path="s.yaml")
    return [(p.field, p.message) for p in caught.value.problems]


def test_a_spec_takes_constraints() -> None:
    texts = ("age >= 18 or `marital-status` == 'Single'", "discharged >= admitted")
    assert (
        parse_spec(yaml.safe_dump({**SPEC, "constraints": list(texts)}), path="s.yaml").constraints
        == texts
    )
    assert parse_spec(yaml.safe_dump(SPEC), path="s.yaml").constraints == ()


def test_mistakes_stand_at_the_line_of_their_constraint() -> None:
    text = (
        yaml.safe_dump(SPEC)
        + 'constraints:\n  - age >= 18\n  - "agee >= 18"\n  - >-\n    sex == "Female" and\n    sex'
        ' == "mail"\n'
    )
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="s.yaml")
    lines = text.count("\n")
    found = [(p.line - lines, p.column, p.field, p.message) for p in caught.value.problems]
    assert found == [
        (-3, 5, "constraints #2", "character 1: unknown column 'agee'"),
        (-2, 5, "constraints #3", "character 28: 'mail' is no category of 'sex': Female, Male"),
    ]


def test_constraints_are_checked_once_the_fields_are_right() -> None:
    found = problems(constraints=["agee > 1", 3], privacy={"epsilon": -1, "delta": 1e-5})
    assert {field for field, _ in found} == {"constraints #2", "privacy.epsilon"}
    found = problems(constraints=["agee > 1", "age > 1"], privacy={"epsilon": 1, "delta": 1e-2})
    assert ("constraints #1", "character 1: unknown column 'agee'") in found and len(found) > 1
    assert any(
        "listed more than once" in m
        for f, m in problems(constraints=["age > 1", "age > 1"])
        if f.startswith("constraints")
    )
    assert problems(constraints=["x" * 1001])[0][0] == "constraints #1"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("qsmk", "e.g. qsmk == '1'"),
        ("`my col`", "e.g. `my col` == 'b'"),
        ("qsmk == 1", "write '1'"),
        ("qsmk == 7", "text stands in quotes"),
        ("age", "e.g. age >= 18"),
    ],
)
def test_a_hint_writes_the_comparison_that_is_meant(text: str, hint: str) -> None:
    columns = {
        "qsmk": Categorical(type="categorical", categories=("0", "1")),
        "my col": Categorical(type="categorical", categories=("a", "b")),
        "age": Integer(type="integer", lower=0, upper=99),
    }
    assert hint in str(parse(text, columns)[1][0].hint)
