"""Queries of a source of kind `sql`: what does not make one row of each stored row is refused, or
warned of where it may be right.
"""

import sys

import pytest

from synthdp.errors import SpecError
from synthdp.release.plan_view import spec_warnings
from synthdp.spec import parse_spec

SPEC = """\
synthdp: 1
dataset:
  id: people
  source:
    kind: sql
    url_env: PEOPLE_URL
    query: {query}
  privacy_unit: {{kind: row, meaning: one person}}
  rows: {{kind: approximate, value: 5000}}
columns: {{a: {{type: integer, lower: 0, upper: 9}}, b: {{type: boolean}}}}
privacy: {{epsilon: 1, delta: 1e-6}}
"""


def spec_of(query: str) -> str:
    return SPEC.format(query="'" + query.replace("'", "''") + "'")


REFUSED = {
    "select a, b from t for update skip locked": "a lock of rows",
    "select a, count(*) b from t group by a": "GROUP BY and an aggregate",
    "select a, b from t group by a, b having b > 1": "GROUP BY and HAVING",
    "select sum(a) a, max(b) b from t": "an aggregate",
    "select array_agg(a) filter (where b) a, b from t": "an aggregate",
    "select mode() within group (order by a) a, b from t": "an aggregate",
    "select distinct a, b from t": "DISTINCT",
    "select distinct on (a) a, b from t": "DISTINCT",
    "select a, b from t limit 100": "LIMIT",
    "(select a, b from t) limit 100": "LIMIT",
    "with u as (select a, b from t) select a, b from u limit 9": "LIMIT",
    "select top 100 a, b from t": "LIMIT",
    "select a, b from t offset 5": "OFFSET",
    "select a, b from t order by a offset 5 rows fetch next 10 rows only": "OFFSET",
    "select a, b from t fetch first 10 rows only": "FETCH",
    "select a, b from t where rownum <= 10": "ROWNUM",
    "select a, row_number() over (order by b) b from t": "a window function",
    "select a - avg(a) over () a, b from t": "a window function",
    "select a, b from t qualify rank() over (order by a) = 1": "QUALIFY",
    "select a, b from t union select a, b from u": "UNION",
    "select a, b from t except select a, b from u": "EXCEPT",
    "select a, b from t intersect all select a, b from u": "INTERSECT",
    "select a, b from t union all select a, b from u limit 5": "LIMIT",
    "select a, b from t union all (select distinct a, b from u)": "DISTINCT",
    "select a, b from t tablesample bernoulli (10)": "TABLESAMPLE",
    "select a, b from t order by random()": "random values",
    "select a, b from t where newid() > b": "random values",
    "select `a`, b from t limit 3": "LIMIT",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_makes_one_row_of_several_is_refused_at_its_line(query: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(spec_of(query), path="s.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (7, "dataset.source.query")
    assert REFUSED[query] in problem.message
    assert problem.hint is not None and "make it a view in the database" in problem.hint


PASSED = [
    "select a, date_part('year', age(b)) b from t where julianday(c) > 3",
    "select a, b from t",
    "select * from t;",
    "SELECT coalesce(a, 0) AS a, case when b > 3 then 1 else 0 end b FROM s.t WHERE a > 3 -- x",
    "select greatest(a, 3) a, max(a, b) b from t",  # SQLite's, of one row
    "with u as (select a, b from t where a > 1) select a, b from u",
    "select a, b from (select a, b from t) x order by a",
    "select a::text a, b from t where note <> '10\\:30'",
    "select [a], [b] from [dbo].[t]",
    'select "limit" a, "group" b from "order"',
]


@pytest.mark.parametrize("query", PASSED)
def test_what_makes_a_row_of_each_row_passes(query: str) -> None:
    assert spec_warnings(parse_spec(spec_of(query), path="s.yaml")) == []


WARNED = {
    "select a, u.b from t join u on t.id = u.id": "a join",
    "select a, b from t, u": "a join",
    "select a, b from (select a, max(b) b from t group by a) x": "GROUP BY in a subquery",
    "with u as (select distinct a, b from t) select a, b from u": "DISTINCT in a subquery",
    "with recursive u as (select a, b from t) select a, b from u": "WITH RECURSIVE",
    "select a, b from t where a > (select avg(a) from t)": "an aggregate in a subquery",
    "select a, b from t where a in (select a from u)": "a subquery that chooses or looks up",
    "select a, b from t where exists (select 1 from u)": "a subquery that chooses or looks up",
    "select a, (select b from u where u.a = t.a) b from t": "a subquery that chooses or looks up",
    "select a, b from t union all select a, b from u": "UNION ALL",
    "select a, generate_series(1, b) b from t": "several rows of one",
    "select a, unnest(b) b from t": "several rows of one",
    "select a, regexp_split_to_table(b, ',') b from t": "several rows of one",
    "select a, json_array_elements_text(b) b from t": "several rows of one",
    "select a, (jsonb_each_text(b)).key b from t": "several rows of one",
    "select a, regexp_matches(b, 'x', 'g') b from t": "several rows of one",
    "select a, first_drug(b) b from t": "the function first_drug, which is not known here",
    "call everyone()": "was not checked",
    "select a from from where": "was not checked",
    "select a, b from t; select a, b from u": "was not checked",
}


@pytest.mark.parametrize("query", WARNED)
def test_what_may_be_right_is_warned_of(query: str) -> None:
    (told,) = spec_warnings(parse_spec(spec_of(query), path="s.yaml"))
    assert told.startswith("dataset.source.query") and WARNED[query] in told


def test_without_a_parser_validate_works_and_says_that_nobody_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    for query in ("select a, b from t", "select distinct a, b from t"):
        (told,) = spec_warnings(parse_spec(spec_of(query), path="s.yaml"))
        assert "was not checked (sqlglot is not installed" in told and "'.[dist]'" in told
        assert "one row of each stored row" in told


def test_other_sources_have_no_query() -> None:
    text = spec_of("x").replace("kind: sql", "kind: csv").replace("url_env: PEOPLE_URL", "path: t")
    assert spec_warnings(parse_spec(text.replace("    query: 'x'\n", ""), path="s.yaml")) == []
