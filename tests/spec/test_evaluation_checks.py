"""Mistakes in how a release is to be judged are told with where they stand and what to do."""

from __future__ import annotations

import pytest

from synthdp.errors import SpecError
from synthdp.spec.load import parse_spec

SPEC = """
synthdp: 1
dataset:
  id: t
  source: {kind: csv, path: t.csv}
  privacy_unit: {kind: row, meaning: one person}
  rows: {kind: public, value: 5000}
columns:
  arm: {type: categorical, categories: [a, b, c]}
  sex: {type: boolean}
  age: {type: integer, lower: 0, upper: 99}
privacy: {epsilon: 1.0, delta: 1e-6}
evaluation: EVALUATION
"""


def told(evaluation: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(SPEC.replace("EVALUATION", evaluation), path="spec.yaml")
    return "\n".join(f"{p.field}: {p.message}" for p in caught.value.problems)


def test_what_is_right_is_read() -> None:
    text = """{subgroups: [arm], random_targets: 2, effects: [{treated: "arm == 'a'", control: "arm == 'b'", outcome: age, adjust: [sex]}]}"""
    evaluation = parse_spec(SPEC.replace("EVALUATION", text), path="spec.yaml").evaluation
    assert evaluation.subgroups == ("arm",) and evaluation.effects  # 1.adjust == ("sex",)


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [
        ("{subgroups: [amr]}", "evaluation.subgroups #1: unknown column 'amr'"),
        ("{subgroups: [age]}", "groups are categories"),
        ("""{effects: [{treated: "arm ==", outcome: age}]}""", "evaluation.effects #1.treated: character"),
        ("""{effects: [{treated: "arm == 'a'", control: "arm == 'z'", outcome: age}]}""", "evaluation.effects #1.control"),
        ("""{effects: [{treated: "arm == 'a' and sex == 'true'", outcome: age}]}""", "reads arm, sex; a treatment is one column"),
        ("""{effects: [{treated: "arm == 'a'", control: "age > 3", outcome: sex}]}""", "reads arm, age; a treatment is one column"),
        ("""{effects: [{treated: "arm == 'a'", outcome: ages}]}""", "evaluation.effects #1.outcome: unknown column 'ages'"),
        ("""{effects: [{treated: "arm == 'a'", outcome: arm}]}""", "already the treatment or the outcome"),
        ("""{effects: [{treated: "arm == 'a'", outcome: age, adjust: [age]}]}""", "already the treatment or the outcome"),
        ("""{effects: [{treated: "sex == 'true'", outcome: arm}]}""", "has 3 categories in no order"),
    ],
)
def test_mistakes_are_told(evaluation: str, expected: str) -> None:
    assert expected in told(evaluation)
