"""Mistakes in how a release is to be judged are told with where they stand and what to do."""

import pytest

from synthdp.errors import SpecError
from synthdp.spec import parse_spec

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
    text = """{subgroups: [arm], random_targets: 2, effects: [{treated: "arm == 'a'", control: "arm == 'b'", outcome: age, adjust: [sex]}]}"""  # noqa: E501
    evaluation = parse_spec(SPEC.replace("EVALUATION", text), path="spec.yaml").evaluation
    assert evaluation.subgroups == ("arm",) and evaluation.effects  # 1.adjust == ("sex",)


MISTAKES = r"""
{disclosure: private, disclosure_share: 0} => evaluation.disclosure_share: got 0; scores that are published need a share
{disclosure: private, disclosure_share: 1} => evaluation.disclosure_share: got 1
{disclosure: private, enabled: false} => evaluation.disclosure: private, and evaluation is not enabled
{disclosure_share: 0.1} => evaluation.disclosure_share: got 0.1, and disclosure is confidential
{targets: [sex]}\ngates: [{metric: tv2_dp, at_most: 1}] => gates #1.metric: tv2_dp is never computed: no score is charged
{disclosure: private, targets: [age]}\ngates: [{metric: tstr_accuracy_dp, at_least: 0}] => gates #1.metric: tstr_accuracy_dp needs a target with categories
{disclosure: private}\ngates: [{metric: tv1_dp, at_most: 1, outside_guarantee: true}] => tv1_dp is paid for, so a gate on it is inside the guarantee
{subgroups: [amr]} => evaluation.subgroups #1: unknown column 'amr'
{subgroups: [age]} => groups are categories
{effects: [{treated: "arm ==", outcome: age}]} => evaluation.effects #1.treated: character
{effects: [{treated: "arm == 'a'", control: "arm == 'z'", outcome: age}]} => evaluation.effects #1.control
{effects: [{treated: "arm == 'a' and sex == 'true'", outcome: age}]} => reads arm, sex; a treatment is one column
{effects: [{treated: "arm == 'a'", control: "age > 3", outcome: sex}]} => reads arm, age; a treatment is one column
{effects: [{treated: "arm == 'a'", outcome: ages}]} => evaluation.effects #1.outcome: unknown column 'ages'
{effects: [{treated: "arm == 'a'", outcome: arm}]} => already the treatment or the outcome
{effects: [{treated: "arm == 'a'", outcome: age, adjust: [age]}]} => already the treatment or the outcome
{effects: [{treated: "sex == 'true'", outcome: arm}]} => has 3 categories in no order
"""  # noqa: E501


@pytest.mark.parametrize("case", MISTAKES.strip().splitlines())
def test_mistakes_are_told(case: str) -> None:
    evaluation, expected = case.replace(r"\n", "\n").split(" => ")
    assert expected in told(evaluation)


def test_scores_are_bought_for_a_share_of_the_whole_and_the_rest_is_split() -> None:
    from synthdp.data import Domain
    from synthdp.model import plan_for

    plain, charged = (
        parse_spec(SPEC.replace("EVALUATION", e), path="s.yaml")
        for e in ("{}", "{disclosure: private, targets: [sex, age]}")
    )
    assert (plain.evaluation.dp_share, charged.evaluation.dp_share) == (0.0, 0.05)
    whole, shared = (plan_for(s, Domain.from_spec(s.columns)) for s in (plain, charged))
    assert [s.purpose for s in whole.spends] == ["measure", "moments", "train"] and [
        s.purpose for s in shared.spends
    ] == ["measure", "moments", "train", "scores"]
    assert shared.epsilon_spent <= 1.0 and 0.03 < shared.epsilon_of(shared.spends[3]) < 0.3
    assert shared.epsilon_of(shared.spends[2]) < whole.epsilon_of(whole.spends[2])
    assert shared.spends[3].mechanism.name.endswith(
        "on 3 scores of the synthetic table"
    )  # the age is a number
    assert shared.spends[3].serves == ("published scores",)
