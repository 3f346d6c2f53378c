"""Mistakes in estimands are told with where they stand and what to do, before anything is spent."""

import pytest

from synthdp.data import Domain
from synthdp.errors import BudgetError, SpecError
from synthdp.model import plan_for
from synthdp.spec import parse_spec, traps
from synthdp.spec.model import ReleaseSpec

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
  age: {type: integer, lower: 0, upper: 99, bins: 100}
  pay: {type: number, lower: 0, upper: 1000, bins: 200}
  many: {type: categorical, categories: [MANY]}
  seen: {type: datetime, lower: 2020-01-01, upper: 2020-12-31, bins: 12}
privacy: {epsilon: 1.0, delta: 1e-6SHARES}
graph: GRAPH
estimands: ESTIMANDS
"""
GIVEN = '{mode: given, edges: ["sex -> arm", "arm, sex -> pay"]}'


def read(estimands: str, *, shares: str = "", graph: str = "{mode: none}") -> ReleaseSpec:
    text = SPEC.replace("MANY", ", ".join(f"m{i}" for i in range(29)))
    text = text.replace("ESTIMANDS", estimands).replace("SHARES", shares).replace("GRAPH", graph)
    return parse_spec(text, path="spec.yaml")


def told(estimands: str, **parts: str) -> str:
    with pytest.raises(SpecError) as caught:
        read(estimands, **parts)
    return "\n".join(f"{p.field}: {p.message}" for p in caught.value.problems)


def test_shares_that_are_left_out_leave_a_part_for_estimands() -> None:
    shares = read('[{kind: question, ask: "mean(pay) by arm"}]').privacy.shares
    assert shares.estimands == pytest.approx(0.15)
    assert shares.moments == pytest.approx(0.1)
    assert (shares.measure, shares.train) == (pytest.approx(0.15), pytest.approx(0.6))


@pytest.mark.parametrize(
    ("adjust", "mistake"),
    [
        (
            "{age: [1, 40]}",
            "estimands #1.adjust.age: edges of 'age' must rise, from 0, to below 99",
        ),
        ("{age: [0, 40, 40]}", "estimands #1.adjust.age: edges of 'age' must rise"),
        ("{age: [0, 400]}", "estimands #1.adjust.age: edges of 'age' must rise"),
        ("{sex: [0]}", "estimands #1.adjust.sex: 'sex' is no number"),
        ("{seen: [0, 1]}", "estimands #1.adjust.seen: 'seen' is no number"),
        ("{agee: [0, 40]}", "estimands #1.adjust.agee: unknown column 'agee'"),
        ("{age: 40}", "estimands #1.adjust.age: expected a list, got 40"),
        ("{age: [0, old]}", "estimands #1.adjust.age #2: expected a number, got 'old'"),
        ("40", "estimands #1.adjust: expected a list, got 40"),
        ("[sex, agee]", "estimands #1.adjust #2: unknown column 'agee'"),
        ("{many: [], pay: [0, 9], age: []}", "many, pay, age make 5,800 strata"),
    ],
)
def test_ranges_to_adjust_for_are_declared_in_order(adjust: str, mistake: str) -> None:
    asked = f"[{{kind: effect, treated: \"arm == 'a'\", outcome: pay, adjust: {adjust}}}]"
    asked = asked.replace("outcome: pay", "outcome: sex") if "pay" in adjust else asked
    assert mistake in told(asked)


def test_ranges_are_counted_and_not_bins() -> None:
    """Ages have 100 bins, which with 200 of pay would be too many strata."""
    asked = "{kind: effect, treated: \"arm == 'a'\", outcome: pay, adjust: {age: [0, 40], sex: []}}"
    spec = read(f"[{asked}]")
    names = [s.mechanism.name for s in plan_for(spec, Domain.from_spec(spec.columns)).spends]
    assert any("sums of pay in 8 strata" in name for name in names)


def test_every_estimand_has_a_planned_mechanism_that_the_total_pays_for() -> None:
    spec = read(
        """[{kind: question, ask: "share(age > 33) where sex by arm"},
            {kind: table, columns: [arm, sex]},
            {kind: effect, treated: "arm == 'a'", outcome: pay, clip: [0, 500]},
            {kind: regression, outcome: pay, terms: [age, sex, "age:sex"]}]""",
        graph=GIVEN,
    )
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    names = {s.purpose: s.mechanism.name for s in plan.spends if s.purpose.startswith("estimand")}
    assert list(names) == [f"estimand: {i}" for i in ("1", "2", "3", "3, contrast", "4")]
    assert "counts in 6 strata" in names["estimand: 1"]
    assert "1 table" in names["estimand: 2"]
    assert "sums of pay in 4 strata" in names["estimand: 3"]  # adjusted for sex, arm's cause
    assert "3 sums over 4 strata together" in names["estimand: 3, contrast"]
    # 1, age, sex, pay; age^2, pay^2, age pay, age sex, sex pay; age^2 sex, age sex pay
    assert "on 11 sums of products of" in names["estimand: 4"]
    assert plan.epsilon_spent <= 1.0


def test_histograms_under_their_noise_are_refused_before_anything_is_read() -> None:
    shares = ", shares: {measure: 0.2, train: 0.75, estimands: 0.05}"
    spec = read('[{kind: question, ask: "median(pay) by arm"}]', shares=shares)
    with pytest.raises(BudgetError, match="in 3 strata are 1,333 each, under noise of") as caught:
        plan_for(spec, Domain.from_spec(spec.columns))
    assert "name fewer bins of the quantile" in str(caught.value.hint)


def test_a_regression_under_its_noise_is_refused_before_anything_is_read() -> None:
    spec = read("[{kind: regression, outcome: pay, terms: [many]}]")
    with pytest.raises(BudgetError, match="even if 4,000 rows were spread evenly") as caught:
        plan_for(spec, Domain.from_spec(spec.columns))
    assert "nothing was read or spent" in str(caught.value)
    assert "name fewer terms" in str(caught.value.hint)


def test_strata_under_their_noise_are_refused_before_anything_is_read() -> None:
    spec = read('[{kind: question, ask: "mean(pay) by age"}]')
    with pytest.raises(BudgetError, match="in 100 strata are 40 each, under noise of") as caught:
        plan_for(spec, Domain.from_spec(spec.columns))
    assert "nothing was read or spent" in str(caught.value)
    assert "combinations of levels, or raise privacy.shares.estimands" in str(caught.value.hint)


MISTAKES = """
[{kind: question, ask: "mean(pya)"}] => estimands #1.ask: character 6: unknown column 'pya'
[{kind: question, ask: "median(pay) where sex by arm"}] =>
[{kind: question, ask: "quantile(seen, 0.5)"}] => estimands #1.ask: 'seen' holds dates, whose quantiles are not paid for
[{kind: question, ask: "median(age) by age"}] => estimands #1.ask: by its own column a quantile says nothing
[{kind: question, ask: "median(pay) by age"}] => estimands #1.ask: age, pay make 20,000 strata
[{kind: question, ask: "median(pay)", clip: [0, 10]}] => estimands #1.clip: a quantile has no numbers to clip
[{kind: question, ask: "share(sex)", clip: [0, 1]}] => estimands #1.clip: a share has no numbers to clip
[{kind: question, ask: "mean(pay)", clip: [0, 2000]}] => estimands #1.clip: 0 to 2000 is not inside pay's 0 to 1000
[{kind: question, ask: "mean(pay)", clip: [5, 5]}] => estimands #1.clip: got 5 as the upper end, which is not above 5
[{kind: table, columns: [pay, age, seen]}] => estimands #1.columns: a table of 240,000
[{kind: table, columns: [pay, agee]}] => estimands #1.columns #2: unknown column 'agee'
[{kind: question, ask: "mean(age) by pay"}] =>
[{kind: effect, treated: "sex", outcome: seen, adjust: []}] => estimands #1.outcome: 'seen' holds dates
[{kind: effect, treated: "sex", outcome: arm, adjust: []}] => estimands #1.outcome: 'arm' has 3 categories in no order
[{kind: effect, treated: "sex", outcome: pay}] => estimands #1: graph mode none declares no causes to adjust for
[{kind: effect, treated: "sxe", outcome: pay, adjust: []}] => estimands #1.treated: character 1: unknown column 'sxe'
[{kind: effect, treated: "sex", outcome: pay, adjust: [pay]}] => estimands #1.adjust: 'pay' is already the treatment or the outcome
[{kind: effect, treated: "sex", outcome: pay, adjust: [age, seen]}] => estimands #1.adjust: age, seen make 1,200 strata
[{kind: regression, outcome: pay, terms: [age, arm, "age:arm"]}] =>
[{kind: regression, outcome: sex, terms: [age], where: "pay > 3"}] =>
[{kind: regression, outcome: pay, terms: [agee, "age:amr"]}] => estimands #1.terms #1: unknown column 'agee'
[{kind: regression, outcome: pay, terms: [age, "age:amr"]}] => estimands #1.terms #2: unknown column 'amr'
[{kind: regression, outcome: pay, terms: [age, "age:arm"]}] => estimands #1.terms #2: 'arm' is not a term by itself
[{kind: regression, outcome: pay, terms: [age, "age:age"]}] => estimands #1.terms #2: a product is of two different columns
[{kind: regression, outcome: pay, terms: [age, arm, sex, "age:arm:sex"]}] => estimands #1.terms #4: a product is of two different columns
[{kind: regression, outcome: pay, terms: [age, arm, "age:arm", "arm:age"]}] => estimands #1.terms #4: this product is there already
[{kind: regression, outcome: pay, terms: [age, pay]}] => estimands #1.outcome: 'pay' is a term
[{kind: regression, outcome: arm, terms: [age]}] => estimands #1.outcome: 'arm' has 3 categories in no order
[{kind: regression, outcome: pay, terms: [seen]}] => estimands #1.terms #1: 'seen' holds dates, which are no terms
[{kind: regression, outcome: seen, terms: [age]}] => estimands #1.outcome: 'seen' holds dates
[{kind: regression, outcome: pay, terms: [age], where: "agee > 3"}] => estimands #1.where: character 1: unknown column 'agee'
[{kind: regression, outcome: pay, terms: [age], clips: {pay: [0, 2000]}}] => estimands #1.clips.pay: 0 to 2000 is not inside pay's 0 to 1000
[{kind: regression, outcome: pay, terms: [arm, 'arm=b']}] => unknown column 'arm=b'
[{kind: regression, outcome: pay, terms: [age], clips: {pay: [0, 5.0e-324]}}] => too near to each other
[{kind: regression, outcome: pay, terms: [age], clips: {arm: [0, 1]}}] => estimands #1.clips.arm: 'arm' is no number of this regression
[{kind: regression, outcome: pay, terms: [many, sex, age]}] => estimands #1.terms: 31 coefficients; at most 30 are measured
"""  # noqa: E501


@pytest.mark.parametrize("case", MISTAKES.strip().splitlines())
def test_mistakes(case: str) -> None:
    estimands, _, expected = case.partition(" =>")
    if expected:
        assert expected.strip() in told(estimands)
    else:
        assert read(estimands).estimands


def test_declared_causes_are_strata_too_and_an_outcome_is_none_of_them() -> None:
    graph = '{mode: given, edges: ["age, pay -> arm", "arm -> sex"]}'
    effect = """[{kind: effect, treated: "arm == 'a'", outcome: sex}]"""
    assert "estimands #1: age, pay make 20,000 strata" in told(effect, graph=graph)
    effect = """[{kind: effect, treated: "arm == 'a'", outcome: pay}]"""
    assert "that is no effect" in told(effect, graph=graph)
    effect = """[{kind: effect, treated: sex, control: sex, outcome: pay, adjust: []}]"""
    assert "estimands #1.control: is the treatment" in told(effect)


def test_a_mistake_in_an_estimand_is_told_alone() -> None:
    shares = ", shares: {measure: 0.2, train: 0.7, estimands: 0.1}"
    found = told("[{kind: question, ask: 7}]", shares=shares)
    assert "estimands #1.ask" in found and "there are no estimands" not in found


def test_an_unseen_common_cause_is_refused() -> None:
    graph = '{mode: given, edges: ["sex -> arm", "arm, sex -> pay"], latent: [[arm, pay]]}'
    found = told("""[{kind: effect, treated: "arm == 'a'", outcome: pay}]""", graph=graph)
    assert (
        "estimands #1: not identified: graph.latent says that arm and pay have an unseen" in found
    )


@pytest.mark.parametrize(
    ("estimands", "shares", "expected"),
    [
        (
            '[{kind: question, ask: "mean(pay)"}]',
            "{measure: 0.2, train: 0.8}",
            "privacy.shares.estimands: not written, and so 0; estimands need a share",
        ),
        (
            "[]",
            "{measure: 0.2, train: 0.7, estimands: 0.1}",
            "privacy.shares.estimands: got 0.1, and there are no estimands",
        ),
    ],
)
def test_a_share_and_estimands_need_each_other(estimands: str, shares: str, expected: str) -> None:
    assert expected in told(estimands, shares=f", shares: {shares}")


def test_a_paid_question_about_values_that_no_row_has_is_warned_of() -> None:
    spec = read("""[{kind: question, ask: "share(sex) where age > 120"},
        {kind: question, ask: "count(seen < '1999-05-01')"}, {kind: table, columns: [arm, sex]},
        {kind: question, ask: "share(age > 33)"}]""")
    found = [warning.partition(";")[0] for warning in traps(spec) if "estimands" in warning]
    assert found == [
        "estimands #1: 120 lies outside the bounds of 'age', so that no row has it",
        "estimands #2: 1999-05-01 lies outside the bounds of 'seen', so that no row has it",
    ]
