"""Checks between sections, on specs that are built in Python."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from synthdp.errors import SpecError
from synthdp.spec import check, cross_problems, load_spec, parse_spec, suggested_delta
from synthdp.spec.model import Categorical, Column, Graph, ReleaseSpec
from tests.builders import skeleton

COMPLETE = load_spec(Path(__file__).with_name("complete_spec.yaml"))
COLUMN = TypeAdapter[Any](Column).validate_python


PAID = "shares: {measure: 0.2, pairs: 0.2, graph: 0, train: 0.6}"
TARGETED = "shares: {measure: 0.2, targets: 0.2, graph: 0, train: 0.6}"
CASES = rf"""
privacy: {{cap: {{epsilon: 1, delta: 1.0e-6}}}} => privacy.delta: above the cap
privacy: {{pairs: [[age, income]]}} => privacy.shares.pairs: needs a share
privacy: {{{PAID}}} => privacy.shares.pairs: names no pair
privacy: {{{PAID}, pairs: [[age, sex], [sex, age]]}} => privacy.pairs.1: named twice
privacy: {{{PAID}, pairs: [[age, sex]]}}; sampling: {{balance: false}} => privacy.pairs: turns off
privacy: {{{PAID}, pairs: [[age, sex]]}}; sampling: {{rake: false}} => privacy.pairs: turns off
privacy: {{{PAID}, pairs: [[u, v]]}}; columns: {{u: 600, v: 600}} => privacy.pairs.0: 360,000 cells
sampling: {{even: [income], balance: false}} => sampling.even: balance: false turns off
sampling: {{even: [income], rake: false}} => sampling.even: rake: false turns off
sampling: {{even: [age]}}; constraints: [age >= 18] => sampling.even.0: a constraint reads column 'age'
synthesizer: {{targets: [income]}} => privacy.shares.targets: needs a share
privacy: {{{TARGETED}}} => privacy.shares.targets: names no column
privacy: {{{TARGETED}}}; synthesizer: {{targets: [income], hidden: 1}} => synthesizer.targets.0: at most as many as synthesizer.hidden
privacy: {{{TARGETED}}}; synthesizer: {{targets: [age]}} => synthesizer.targets.0: no arrow leads to 'age'
privacy: {{{TARGETED}}}; synthesizer: {{targets: [income]}}; graph: {{mode: none, edges: [], tiers: []}} => synthesizer.targets.0: graph mode is none
privacy: {{{TARGETED}}}; synthesizer: {{targets: [income]}}; graph: {{tiers: [], edges: [grp -> age], groups: {{grp: [income, sex]}}}} => synthesizer.targets.0: no arrow
privacy: {{{TARGETED}}}; synthesizer: {{targets: [income]}}; graph: {{latent: [[income, age]]}} => synthesizer.targets.0: shares an unseen cause
graph: {{mode: validate}} => privacy.shares.graph: mode validate looks at the data
evaluation: {{holdout: 0}} => evaluation.holdout: test rows
columns: {{{", ".join(f"w{i}: 4096" for i in range(16))}}} => columns: levels
columns: {{id: {{type: integer, lower: 0, upper: 2000000000000000000}}}} => columns.id.upper: 2^53
columns: {{m: {{type: categorical, categories: [a, missing], missing: true}}}} => columns.m.categories.1: missing
columns: {{"a\nb": 2}} => columns.a\nb: line break
columns: {{" a": 2}} => columns. a: space
columns: {{"+a": 2}} => columns.+a: formula
graph: {{groups: {{gain: [gain, joined]}}}} => graph.groups.gain: named like a column
graph: {{groups: {{g: [gain, joind]}}}} => graph.groups.g.1: unknown column
graph: {{groups: {{"g ": [gain, joined]}}}} => graph.groups.g : space
graph: {{edges: ["age, sex -> education", education -> income, age -> education]}} => graph.edges.2: written twice
dataset: {{source: {{kind: csv, path: "a\0b"}}}} => dataset.source.path: control characters
dataset: {{source: {{kind: parquet, path: ""}}}} => dataset.source.path: empty
dataset: {{source: {{kind: csv, path: a, delimiter: '"'}}}} => dataset.source.delimiter: cannot part
dataset: {{source: {{kind: csv, path: a, missing_values: ["", "a\nb"]}}}} => dataset.source.missing_values.1: one line
dataset: {{source: {{kind: parquet, path: t.parquet, levels_only: true}}}} => evaluation.enabled: judging reads them
tracking: {{uri: "http://x\n"}} => tracking.uri: control characters
"""  # noqa: E501


def _with(changes: str) -> ReleaseSpec:
    """The complete spec with other fields; a column that is a number has so many categories."""
    parts: dict[str, Any] = {}
    for section, fields in yaml.safe_load(changes.replace("; ", "\n")).items():
        own = getattr(COMPLETE, section)
        if section == "columns":
            wide = {n: _wide(c) if isinstance(c, int) else COLUMN(c) for n, c in fields.items()}
            parts[section] = dict(own) | wide
        else:
            merged = own.model_dump() | fields if isinstance(fields, dict) else tuple(fields)
            parts[section] = (
                type(own).model_validate(merged) if isinstance(fields, dict) else merged
            )
    return COMPLETE.model_copy(update=parts)


def _wide(levels: int) -> Categorical:
    return Categorical(type="categorical", categories=tuple(f"c{i}" for i in range(levels)))


def _graph(**fields: Any) -> ReleaseSpec:
    return COMPLETE.model_copy(update={"graph": Graph(**fields)})


def test_the_complete_spec_has_no_problem() -> None:
    assert check(COMPLETE) is COMPLETE


@pytest.mark.parametrize("case", CASES.strip("\n").splitlines())
def test_each_check_finds_its_mistake_and_no_other(case: str) -> None:
    changes, expected = case.split(" => ")
    loc, words = expected.split(": ", 1)
    (problem,) = cross_problems(_with(changes))
    assert ".".join(map(str, problem.loc)).replace("\n", r"\n") == loc
    assert words in problem.message


def test_too_many_arrows_are_told_and_not_gone_through() -> None:
    crowd = {"causes": [f"a{i}" for i in range(400)], "effects": [f"b{i}" for i in range(400)]}
    columns = dict(COMPLETE.columns) | {n: _wide(2) for names in crowd.values() for n in names}
    spec = _graph(edges=(crowd,)).model_copy(update={"columns": columns})
    (problem,) = cross_problems(spec)
    assert problem.loc == ("graph", "edges") and "160,000 arrows" in problem.message


def test_a_group_stands_for_its_columns() -> None:
    spec = _graph(
        edges=("person -> education", "education -> income"),
        groups={"person": ("age", "sex")},
        tiers=(("person",), ("income",)),
        latent=(("person", "gain"),),
    )
    assert cross_problems(spec) == []


def test_each_of_several_cycles_is_named_once() -> None:
    spec = _graph(
        edges=(
            "income -> age",
            "age -> education",
            "education -> income",
            "gain -> sex",
            "sex -> gain",
            "income -> gain",
        )
    )
    assert [(p.loc, p.message) for p in cross_problems(spec)] == [
        (("graph", "edges", 2), "the graph has a cycle: age -> education -> income -> age"),
        (("graph", "edges", 4), "the graph has a cycle: sex -> gain -> sex"),
    ]


@pytest.mark.check
def test_a_long_chain_is_checked_quickly_and_has_no_cycle() -> None:
    names = [f"n{i}" for i in range(3000)]
    columns = {name: _wide(2) for name in names}
    graph = Graph(edges=[f"{a} -> {b}" for a, b in zip(names[1:], names[:-1], strict=True)])  # type: ignore[arg-type]
    shares = COMPLETE.privacy.shares.model_copy(update={"moments": 0.0})
    spec = COMPLETE.model_copy(
        update={
            "columns": columns,
            "graph": graph,
            "privacy": COMPLETE.privacy.model_copy(update={"shares": shares}),
            "evaluation": COMPLETE.evaluation.model_copy(update={"targets": ()}),
        }
    )
    assert cross_problems(spec) == []


def test_check_raises_every_problem_at_once() -> None:
    spec = _with("privacy: {delta: 0.01}; graph: {edges: []}")
    with pytest.raises(SpecError) as caught:
        check(spec)
    assert [p.field for p in caught.value.problems] == ["graph.edges", "privacy.delta"]


@pytest.mark.parametrize("rows", [1, 9, 10, 999, 48_842, 10**6, 2 * 10**9])
def test_the_suggested_delta_is_well_below_one_row(rows: int) -> None:
    assert 0.001 < float(suggested_delta(rows)) * rows <= 0.1


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ("{measure: 0.4, train: 0.6, graph: 0}", "privacy.shares.graph: got 0; graph mode"),
        ("{measure: 0.4, train: 0.6}", "privacy.shares.graph: not written, and so 0; graph mode"),
        ("{measure: 0.2, graph: 0.8}", "got 1.8 (measure 0.2 + graph 0.8 + train 0.8); train not"
         " written, and so by default: write e.g. train: 0"),
        ("{measure: 0.4, graph: 0.5, train: 0}", "shares must sum to 1, got 0.9 (measure 0.4 +"
         " graph 0.5 + train 0)\n"),
    ],
)  # fmt: skip
def test_what_was_not_written_is_not_told_as_got(shares: str, told: str) -> None:
    text = yaml.safe_dump(
        skeleton() | {"columns": {"age": {"type": "boolean"}}, "graph": {"mode": "learn"}}
    ).replace("privacy:\n  ", f"privacy:\n  shares: {shares}\n  ")
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="s.yaml")
    assert told in f"{caught.value}\n"
