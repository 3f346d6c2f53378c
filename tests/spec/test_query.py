"""The grammar of questions: what is understood, and what each mistake is told, to the letter."""

import pytest

from synthdp.errors import QueryError
from synthdp.spec import parse_query
from synthdp.spec.model import Categorical, ReleaseSpec
from tests.inference.conftest import spec_with

FORM = (
    "the form is share(CONDITION), count(CONDITION), mean(COLUMN), sum(COLUMN), median(COLUMN),"
    " quantile(COLUMN, P) or correlation(COLUMN, COLUMN), then perhaps `where CONDITION`,"
    " `weighted by COLUMN` (of a share or a mean), `by COLUMN, COLUMN`"
)


@pytest.fixture
def spec() -> ReleaseSpec:
    return spec_with()


@pytest.mark.parametrize(
    ("text", "statistic", "columns", "by"),
    [
        ("mean(visits) where age >= 65 by sex", "mean", ("age", "sex", "visits"), ("sex",)),
        ("share(smoker)", "share", ("smoker",), ()),
        (" count ( ) ", "count", (), ()),
        ("count(not smoker) by sex", "count", ("sex", "smoker"), ("sex",)),
        ("share(sex == 'female') by age where smoker", "share", ("age", "sex", "smoker"), ("age",)),
        ("quantile(`weight kg`, 0.9) where visits is missing", "quantile",
         ("visits", "weight kg"), ()),
        ("share(sex in ('female', 'male'))", "share", ("sex",), ()),
        ("quantile(seen, .5) where seen >= '2024-02-01'", "quantile", ("seen",), ()),
        ("share(18 <= age < 65 and `weight kg` > 70)", "share", ("age", "weight kg"), ()),
        ("sum(visits) by smoker, sex where age < 30", "sum", ("age", "sex", "smoker", "visits"),
         ("smoker", "sex")),
        ("correlation(`weight kg`, age) by sex", "correlation", ("age", "sex", "weight kg"),
         ("sex",)),
    ],
)  # fmt: skip
def test_what_is_understood(
    spec: ReleaseSpec, text: str, statistic: str, columns: tuple[str, ...], by: tuple[str, ...]
) -> None:
    query = parse_query(text, spec.columns)
    assert (query.statistic, query.columns, query.by) == (statistic, columns, by)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("share(age>=65)  where sex=='female' by smoker", True),
        ("share(age >= 66) where sex == 'female' by smoker", False),
        ("share(age >= 65) where sex == 'female'", False),
        ("share(age >= 65) where sex == 'fe male' by smoker", False),
    ],
)
def test_the_same_question_is_known_by_its_meaning(other: str, same: bool) -> None:
    sexes = {"type": "categorical", "categories": ["female", "fe male"]}
    columns = dict(spec_with().columns) | {"sex": Categorical.model_validate(sexes)}
    first = parse_query("share(age >= 65) where sex == 'female' by smoker", columns)
    assert first.asks_like(parse_query(other, columns)) is same


def test_constants_are_seen_with_their_sign_and_dates_as_days(spec: ReleaseSpec) -> None:
    query = parse_query("share(age > -3) where seen < '1970-01-11'", spec.columns)
    assert {-3.0, 10.0} <= set(query.constants)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("visits by sex", f"character 1: cannot be read as a question\n    hint: {FORM}"),
        ("meann(visits)",
         "character 1: cannot be read as a question\n    hint: did you mean 'mean'?"),
        ("mean(visit)", "character 6: unknown column 'visit'\n    hint: did you mean 'visits'?"),
        ("mean(visits", "character 5: this parenthesis is never closed"),
        ("mean(visits) sex", f"character 14: cannot be read from here\n    hint: {FORM}"),
        ("mean(visits) by sex by age",
         f"character 14: cannot be read from here\n    hint: {FORM}"),
        ("mean(weight kg)", "character 6: the name of one column is needed here\n"
         "    hint: write `weight kg`, in backticks"),
        ("mean(age) by sex, smokr", "character 19: unknown column 'smokr'\n"
         "    hint: did you mean 'smoker'?"),
        ("mean(age) by sex, ", "character 19: the name of one column is needed here\n"
         "    hint: e.g. age, or `age at visit`"),
        ("mean(age) by sex, sex", "character 18: 'sex' is named twice\n"
         "    hint: name each column once"),
        ("mean(age, visits)", "character 6: the name of one column is needed here\n"
         "    hint: only one column can stand here; ask about the other's values with `where`"),
        ("correlation(age)", "character 13: a correlation needs two columns\n"
         "    hint: e.g. correlation(age, visits)"),
        ("correlation(age, age)", "character 17: 'age' is named twice\n"
         "    hint: name two columns"),
        ("correlation(age, sex)", "character 17: column 'sex' has no correlation: it holds no"
         " numbers\n    hint: ask for a share, e.g. share(sex == 'female')"),
        ("sum(seen)", "character 5: column 'seen' has no sum: it holds no numbers\n"
         "    hint: ask for quantile(seen, 0.5)"),
        ("mean(visits) by", "character 16: the name of one column is needed here\n"
         "    hint: e.g. age, or `age at visit`"),
        ("mean(sex)", "character 6: column 'sex' has no mean: it holds no numbers\n"
         "    hint: ask for a share, e.g. share(sex == 'female')"),
        ("mean(smoker)", "character 6: column 'smoker' has no mean: it holds no numbers\n"
         "    hint: ask for a share, e.g. share(smoker)"),
        ("mean(seen)", "character 6: column 'seen' has no mean: it holds no numbers\n"
         "    hint: ask for quantile(seen, 0.5)"),
        ("quantile(age, 2)", "character 14: a quantile needs a probability\n"
         "    hint: e.g. quantile(age, 0.5)"),
        ("share()", "character 7: a condition is missing here\n    hint: e.g. age >= 65"),
        ("share(age > 3) where", "character 21: a condition is missing here\n"
         "    hint: e.g. age >= 65"),
        ("share(age + visits > 3)",
         "character 7: tables are not asked about calculations, or about two columns compared\n"
         "    hint: compare a column with a constant, e.g. age >= 65"),
        ("share(smoker) where age > visits",
         "character 27: tables are not asked about calculations, or about two columns compared\n"
         "    hint: compare a column with a constant, e.g. age >= 65"),
        ("share(sex == 'other')",
         "character 14: 'other' is no category of 'sex': female, male"),
        ("share(age = 3)", "character 11: cannot be read: invalid syntax\n"
         "    hint: equality is written =="),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(spec: ReleaseSpec, text: str, told: str) -> None:
    with pytest.raises(QueryError) as wrong:
        parse_query(text, spec.columns)
    assert wrong.value.message == f"this question cannot be answered: {text!r}\n  {told}"
    assert wrong.value.exit_code == 2


def test_all_mistakes_are_told_at_once(spec: ReleaseSpec) -> None:
    with pytest.raises(QueryError) as wrong:
        parse_query("mean(visit) where smokr by sexx", spec.columns)
    problems = wrong.value.to_json()["problems"]
    assert [p["column"] for p in problems] == [6, 19, 28]
    assert [p["hint"] for p in problems] == [
        f"did you mean {name!r}?" for name in ("visits", "smoker", "sex")
    ]
