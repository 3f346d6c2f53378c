"""Checks between sections, on specs that are built in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp.errors import SpecError
from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.checks import check, cross_problems
from synthdp.spec.load.loader import load_spec, parse_spec
from synthdp.spec.model import Categorical, Graph, Integer, ReleaseSpec, Sampling
from tests.builders import skeleton

COMPLETE = load_spec(Path(__file__).with_name("complete_spec.yaml"))


def _with(section: str, **changes: Any) -> ReleaseSpec:
    part = getattr(COMPLETE, section)
    return COMPLETE.model_copy(
        update={section: type(part).model_validate(part.model_dump() | changes)}
    )


def _columns(**columns: Any) -> ReleaseSpec:
    return COMPLETE.model_copy(update={"columns": dict(COMPLETE.columns) | columns})


def _paired(
    sampling: dict[str, Any] | None = None, columns: dict[str, Any] | None = None
) -> ReleaseSpec:
    """With a measured pair that is paid for."""
    spec = _with("privacy", shares=PAID, pairs=(("age", "income"),))
    chosen = Sampling.model_validate(sampling or {})
    return spec.model_copy(
        update={"sampling": chosen, "columns": dict(spec.columns) | (columns or {})}
    )


def _targeted(*names: str, graph: dict[str, Any] | None = None, **synthesizer: Any) -> ReleaseSpec:
    """With targets that are paid for."""
    spec = _with("privacy", shares=TARGETED)
    network = type(spec.synthesizer).model_validate(
        spec.synthesizer.model_dump() | {"targets": names} | synthesizer
    )
    return spec.model_copy(
        update={"synthesizer": network} | ({"graph": Graph(**graph)} if graph else {})
    )


def _graph(**fields: Any) -> ReleaseSpec:
    return COMPLETE.model_copy(update={"graph": Graph(**fields)})


def _crowd() -> ReleaseSpec:
    named = {name: _wide(2) for names in CROWD.values() for name in names}
    return _columns(**named).model_copy(update={"graph": Graph(edges=(CROWD,))})  # type: ignore[arg-type]


def _wide(levels: int) -> Categorical:
    return Categorical(type="categorical", categories=tuple(f"c{i}" for i in range(levels)))


PAID = {"measure": 0.2, "pairs": 0.2, "graph": 0, "train": 0.6}
TARGETED = {"measure": 0.2, "targets": 0.2, "graph": 0, "train": 0.6}
EDGES = ("age, sex -> education", "education -> income")
MISSING = Categorical(type="categorical", categories=("a", "missing"), missing=True)
LEVELS_ONLY = {"kind": "parquet", "path": "t.parquet", "levels_only": True}
CROWD = {"causes": [f"a{i}" for i in range(400)], "effects": [f"b{i}" for i in range(400)]}
CASES: dict[str, tuple[Callable[[], ReleaseSpec], tuple[Any, ...], str]] = {
    "delta": (lambda: _with("privacy", delta=1 / 48842), ("privacy", "delta"), "below 1 / rows"),
    "cap": (
        lambda: _with("privacy", cap={"epsilon": 1, "delta": 1e-6}),
        ("privacy", "delta"),
        "above the cap",
    ),
    "train": (
        lambda: _with("privacy", shares={"measure": 1, "graph": 0, "train": 0}),
        ("privacy", "shares", "train"),
        "got 0",
    ),
    "pairs unpaid": (
        lambda: _with("privacy", pairs=(("age", "income"),)),
        ("privacy", "shares", "pairs"),
        "needs a share",
    ),
    "pairs unnamed": (
        lambda: _with("privacy", shares=PAID),
        ("privacy", "shares", "pairs"),
        "names no pair",
    ),
    "pair unknown": (
        lambda: _with("privacy", shares=PAID, pairs=(("age", "incme"),)),
        ("privacy", "pairs", 0, 1),
        "unknown column",
    ),
    "pair twice": (
        lambda: _with("privacy", shares=PAID, pairs=(("age", "sex"), ("sex", "age"))),
        ("privacy", "pairs", 1),
        "named twice",
    ),
    "pairs unused": (
        lambda: _paired(sampling={"balance": False}),
        ("privacy", "pairs"),
        "turns off",
    ),
    "pairs not raked": (
        lambda: _paired(sampling={"rake": False}),
        ("privacy", "pairs"),
        "turns off",
    ),
    "pair of many cells": (
        lambda: _paired(columns={"age": _wide(600), "income": _wide(600)}),
        ("privacy", "pairs", 0),
        "360,000 cells",
    ),
    "even unknown": (
        lambda: _with("sampling", even=("incme",)),
        ("sampling", "even", 0),
        "unknown column",
    ),
    "even unbalanced": (
        lambda: _with("sampling", even=("income",), balance=False),
        ("sampling", "even"),
        "balance: false turns off",
    ),
    "even not raked": (
        lambda: _with("sampling", even=("income",), rake=False),
        ("sampling", "even"),
        "rake: false turns off",
    ),
    "even and held": (
        lambda: _with("sampling", even=("age",)).model_copy(update={"constraints": ("age >= 18",)}),
        ("sampling", "even", 0),
        "a constraint reads column 'age'",
    ),
    "targets unpaid": (
        lambda: _with("synthesizer", targets=("income",)),
        ("privacy", "shares", "targets"),
        "needs a share",
    ),
    "targets unnamed": (
        lambda: _with("privacy", shares=TARGETED),
        ("privacy", "shares", "targets"),
        "names no column",
    ),
    "target unknown": (lambda: _targeted("incme"), ("synthesizer", "targets", 0), "unknown column"),
    "target of many levels": (
        lambda: _targeted("income", hidden=1),
        ("synthesizer", "targets", 0),
        "at most as many as synthesizer.hidden",
    ),
    "target without causes": (
        lambda: _targeted("age"),
        ("synthesizer", "targets", 0),
        "no arrow leads to 'age'",
    ),
    "target without a graph": (
        lambda: _targeted("income", graph={"mode": "none"}),
        ("synthesizer", "targets", 0),
        "graph mode is none",
    ),
    "target first of its group": (
        lambda: _targeted(
            "income", graph={"edges": ("grp -> age",), "groups": {"grp": ("income", "sex")}}
        ),
        ("synthesizer", "targets", 0),
        "no arrow",
    ),
    "target with an unseen cause": (
        lambda: _targeted("income", graph={"edges": EDGES, "latent": (("income", "age"),)}),
        ("synthesizer", "targets", 0),
        "shares an unseen cause",
    ),
    "validate": (
        lambda: _with("graph", mode="validate"),
        ("privacy", "shares", "graph"),
        "mode validate looks at the data",
    ),
    "learn": (
        lambda: _graph(mode="learn"),
        ("privacy", "shares", "graph"),
        "mode learn looks at the data",
    ),
    "given empty": (lambda: _graph(mode="given"), ("graph", "edges"), "at least one arrow"),
    "batch": (
        lambda: _with("synthesizer", batch=50_000),
        ("synthesizer", "batch"),
        "more than the declared",
    ),
    "holdout": (lambda: _with("evaluation", holdout=0), ("evaluation", "holdout"), "test rows"),
    "levels": (
        lambda: _columns(**{f"w{i}": _wide(4096) for i in range(16)}),
        ("columns",),
        "levels",
    ),
    "bounds": (
        lambda: _columns(id=Integer(type="integer", lower=0, upper=2**60)),
        ("columns", "id", "upper"),
        "2^53",
    ),
    "missing": (lambda: _columns(m=MISSING), ("columns", "m", "categories", 1), "missing"),
    "line break": (lambda: _columns(**{"a\nb": _wide(2)}), ("columns", "a\nb"), "line break"),
    "space": (lambda: _columns(**{" a": _wide(2)}), ("columns", " a"), "space"),
    "formula": (lambda: _columns(**{"+a": _wide(2)}), ("columns", "+a"), "formula"),
    "group as column": (
        lambda: _graph(edges=EDGES, groups={"gain": ("gain", "joined")}),
        ("graph", "groups", "gain"),
        "named like a column",
    ),
    "group unknown": (
        lambda: _graph(edges=EDGES, groups={"g": ("gain", "joind")}),
        ("graph", "groups", "g", 1),
        "unknown column",
    ),
    "group name": (
        lambda: _graph(edges=EDGES, groups={"g ": ("gain", "joined")}),
        ("graph", "groups", "g "),
        "space",
    ),
    "latent": (
        lambda: _graph(edges=EDGES, latent=(("age", "wealth"),)),
        ("graph", "latent", 0, 1),
        "unknown column",
    ),
    "twice": (
        lambda: _graph(edges=(*EDGES, "age -> education")),
        ("graph", "edges", 2),
        "written twice",
    ),
    "crowd": (lambda: _crowd(), ("graph", "edges"), "160,000 arrows"),
    "path": (
        lambda: _with("dataset", source={"kind": "csv", "path": "a\0b"}),
        ("dataset", "source", "path"),
        "control characters",
    ),
    "empty path": (
        lambda: _with("dataset", source={"kind": "parquet", "path": ""}),
        ("dataset", "source", "path"),
        "empty",
    ),
    "delimiter": (
        lambda: _with("dataset", source={"kind": "csv", "path": "a", "delimiter": '"'}),
        ("dataset", "source", "delimiter"),
        "cannot part",
    ),
    "missing line break": (
        lambda: _with(
            "dataset", source={"kind": "csv", "path": "a", "missing_values": ("", "a\nb")}
        ),
        ("dataset", "source", "missing_values", 1),
        "one line",
    ),
    "levels only": (
        lambda: _with("dataset", source=LEVELS_ONLY),
        ("evaluation", "enabled"),
        "judging reads them",
    ),
    "uri": (lambda: _with("tracking", uri="http://x\n"), ("tracking", "uri"), "control characters"),
}


def test_the_complete_spec_has_no_problem() -> None:
    assert check(COMPLETE) is COMPLETE


@pytest.mark.parametrize("case", CASES)
def test_each_check_finds_its_mistake_and_no_other(case: str) -> None:
    build, loc, words = CASES[case]
    problems = cross_problems(build())
    assert [p.loc for p in problems] == [loc]
    assert words in problems[0].message


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
    spec = COMPLETE.model_copy(
        update={
            "columns": columns,
            "graph": graph,
            "evaluation": COMPLETE.evaluation.model_copy(update={"targets": ()}),
        }
    )
    assert cross_problems(spec) == []


def test_check_raises_every_problem_at_once() -> None:
    spec = _with("privacy", delta=0.01).model_copy(update={"graph": Graph(mode="given")})
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
