"""Whatever name a spec takes works in expressions, questions, lists and settings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthdp.data import Domain
from synthdp.errors import OutputError, QueryError, SpecError
from synthdp.inference import EffectQuery, next_time
from synthdp.sample import conditions_of, settings_of
from synthdp.spec import listed_names, parse, parse_query, parse_spec, quoted, setting_of
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec, skeleton

ODD = [
    "p=q", "p", "q", "x, y", "x", "y", "`z`", "z", "a``b", "it's", 'say "so"', "in", "where", "by",
    "class", "ƻ0_", "Gro\u0308ße", "ﬁeld", "2020", "a >= 3", "mean(p)", "-", "p==q", "missing", " ",
]  # fmt: skip
NUMBER = {"type": "integer", "lower": 0, "upper": 9}


def spec_of(names: list[str]) -> ReleaseSpec:
    return build_spec(dict.fromkeys(names, NUMBER))


@pytest.mark.parametrize("name", ODD)
def test_each_name_stands_in_a_question_a_condition_a_list_and_a_setting(name: str) -> None:
    columns = spec_of(ODD).columns
    domain = Domain.from_spec(columns)
    for text in (f"mean({quoted(name)})", f"count() where {quoted(name)} > 3 by {quoted(name)}"):
        assert parse_query(text, columns).columns == (name,), text
    condition, mistakes = parse(f"{quoted(name)} >= 3", columns)
    assert condition is not None and condition.columns == (name,), mistakes
    assert settings_of([], [f"{name}=4"], domain)[1][name].value == 4
    assert settings_of([f"{quoted(name)}=4"], [], domain)[0][name].value == 4
    assert conditions_of([f"{name}=4"], columns, domain)[0] == (f"{name}=4",)
    (found,) = conditions_of([f"{quoted(name)} < 4"], columns, domain)[1]
    assert found.columns == (name,)
    if name.strip():
        assert listed_names(f"{name},2020", ODD) == (name, "2020")
    assert listed_names(f" {quoted(name)} , p", ODD) == (name, "p")


@given(st.lists(st.sampled_from([n for n in ODD if n.strip()]), min_size=1, max_size=5))
def test_a_list_of_names_in_backticks_is_those_names(names: list[str]) -> None:
    assert listed_names(", ".join(map(quoted, names)), ODD) == tuple(names)


def test_the_longest_name_is_meant_where_several_could_be() -> None:
    assert setting_of("p=q=1", ["p", "p=q"]) == ("p=q", "1")
    assert setting_of("`p`=q=1", ["p", "p=q"]) == ("p", "q=1")
    assert setting_of("r=q=1", ["p"]) == ("r", "q=1") and setting_of("p", ["p"]) is None
    assert listed_names("x, y,x", ["x", "y", "x, y"]) == ("x, y", "x")
    assert listed_names("`x`,`y`", ["x", "y", "x, y"]) == ("x", "y")
    assert listed_names("x ,, nobody", ["x"]) == ("x", "", "nobody")


def test_no_message_has_a_stand_in_of_the_parser() -> None:
    columns = spec_of(["a`b", "lambda", "age"]).columns
    with pytest.raises(QueryError, match="inside a name is written twice") as caught:
        parse_query("mean(`a`b`)", columns)
    assert "ƻ" not in str(caught.value)
    assert 'privacy.pairs ["k=v", "a, b"]' in next_time(["k=v", "a, b"], 0)
    for text, told in (
        ("`a`b` > 3", "written twice"),
        ("`a``c` > 3", "unknown column 'a`c'"),
        ("lambda > 3", "a column named lambda is written `lambda`"),
        ("`a``b` `age`", "allowed are"),
    ):
        with pytest.raises(SpecError) as refused:
            conditions_of([text], columns, Domain.from_spec(columns))
        assert told in str(refused.value) and "ƻ" not in str(refused.value), str(refused.value)
    with pytest.raises(QueryError, match=r"write `a``b`, in backticks"):
        parse_query("mean(a`b)", columns)


def test_an_arrow_of_a_name_with_a_comma_is_told_as_a_map() -> None:
    columns = dict.fromkeys(["kin, near", "kin", "dose, total", "ill", "1,2"], NUMBER)
    content = skeleton() | {"columns": columns, "privacy": {"epsilon": 1, "delta": 1e-5}}

    def told(edge: object) -> str:
        with pytest.raises(SpecError) as caught:
            parse_spec(json.dumps(content | {"graph": {"edges": [edge]}}), path="s.yaml")
        return str(caught.value)

    found = told("kin, near, ill -> dose, total")
    assert 'needs a map: {causes: ["kin, near", "ill"], effects: ["dose, total"]}' in found
    assert 'effects: ["1,2"]}' in told("ill -> 1,2")
    assert "a map" not in told("kin, nobody -> ill")
    assert "a map" not in told({"causes": [2019], "effects": None})
    assert "a name with a comma or an arrow needs a map" in told("kin -> near -> ill")
    arrow = {"causes": ["kin, near", "kin"], "effects": ["dose, total"]}
    graph = build_spec(columns, graph={"mode": "given", "edges": [arrow]}).graph
    assert graph.pairs() == (("kin, near", "dose, total"), ("kin", "dose, total"))


def test_names_with_commas_are_listed_in_backticks() -> None:
    spec = spec_of(["dose, total", "ill"])
    with pytest.raises(OutputError) as caught:
        EffectQuery("ill", "dose, total", ('"zq',)).checked(spec)
    assert caught.value.hint == "one of `dose, total`, ill"
