"""The index of proofs names every mechanism, proof and citation of the kernel, and no other."""

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from tests.audit.mechanism_examples import mechanism_classes
from tests.docs.pages import ROOT, prose

PAGE = ROOT / "docs" / "privacy-model.md"
KERNEL = (ROOT / "synthdp" / "privacy", ROOT / "synthdp" / "ledger")
PROOF = re.compile(r"derived here|arXiv|Theorem|Lemma|Proposition|Algorithms? [0-9]")
PAPER = re.compile(r"arXiv:\d{4}\.\d{5}(?:v\d+)?")


@dataclass(frozen=True)
class Row:
    """A line of the index."""

    what: str
    proofs: tuple[str, ...]
    papers: frozenset[str]
    tests: tuple[str, ...]


def rows() -> list[Row]:
    text = prose(PAGE).partition("## Proofs")[2].partition("## What tries")[0]
    cells = [
        [c.strip() for c in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    return [
        Row(
            what,
            tuple(re.findall(r"`([^`]+)`", proof)),
            frozenset(PAPER.findall(source)),
            tuple(re.findall(r"`([^`]+)`", test)),
        )
        for what, proof, source, test in cells
        if proof != "proof"
    ]


def proofs(*folders: Path) -> dict[str, frozenset[str]]:
    """Every docstring below `folders` that proves or cites, with the papers that it cites."""
    return {
        name: papers
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        for stem in [file.parent.name if file.stem == "__init__" else file.stem]
        for name, papers in _proofs(ast.parse(file.read_text(encoding="utf-8")), stem)
    }


def _proofs(
    node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str
) -> Iterator[tuple[str, frozenset[str]]]:
    text = ast.get_docstring(node) or ""
    if PROOF.search(text):
        yield name, frozenset(PAPER.findall(text))
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef):
            yield from _proofs(inner, f"{name}.{inner.name}")


def test_every_proof_is_listed_and_every_listed_proof_is_there() -> None:
    listed = [name for row in rows() for name in row.proofs]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(proofs(*KERNEL))


@pytest.mark.check
def test_each_line_cites_what_its_docstrings_cite() -> None:
    cited = proofs(*KERNEL)
    for row in rows():
        assert row.papers == frozenset().union(*(cited[name] for name in row.proofs)), row.what


def test_every_mechanism_has_a_line() -> None:
    named = {word for row in rows() for word in re.findall(r"`(\w+)`", row.what)}
    assert named == {kind.__name__ for kind in mechanism_classes()}


def test_each_line_names_a_test_that_is_there() -> None:
    for row in rows():
        assert row.tests, row.what
        for test in row.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists() and f"def {name}" in (ROOT / path).read_text(
                encoding="utf-8"
            ), test


def test_a_proof_that_is_not_listed_is_found(tmp_path: Path) -> None:
    code = (
        'class A:\n    """Moves by 1 [derived here]."""\n    def f(self):\n        """As in'
        ' arXiv:1234.56789v2, Lemma 1."""\n'
    )
    (tmp_path / "new.py").write_text(code)
    assert proofs(tmp_path) == {"new.A": frozenset(), "new.A.f": frozenset({"arXiv:1234.56789v2"})}


def _table(first: str) -> dict[str, dict[str, str]]:
    """A table of the guide to epsilon that has a line `first`: by line, then by the head of the
    column.
    """
    text = (ROOT / "docs" / "guides" / "epsilon.md").read_text(encoding="utf-8")
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    at = next(i for i, cells in enumerate(lines) if cells[0] == first)
    heads = next(cells for cells in reversed(lines[:at]) if cells[0] == "epsilon")
    return {
        cells[0]: dict(zip(heads, cells, strict=True))
        for cells in lines[at:]
        if len(cells) == len(heads)
    }


def test_the_stewards_table_of_epsilons() -> None:
    """The most accurate guess under (epsilon, delta) of whether a unit is in the table: (e^epsilon
    + delta) / (1 + e^epsilon).
    """
    told = _table("right at most")["right at most"]
    for head, value in list(told.items())[1:]:
        odds = math.exp(float(head))
        assert value == f"{(odds + 1e-5) / (1 + odds):.1%}", head
    assert len(told) > 5


def test_the_stewards_figures_of_adult_are_those_of_the_benchmark() -> None:
    table = pd.read_csv(ROOT / "benchmarks" / "results" / "adult.csv")
    told = _table("AUC")
    for line, name in (("AUC", "mean_auc"), ("TV 2-way", "tv2")):
        means = table[table["variant"] == "given"].groupby("epsilon")[name].mean()
        assert [float(told[line][f"{epsilon:g}"]) for epsilon in (0.1, 1, 10)] == pytest.approx(
            list(means), abs=6e-4
        )
        assert set(means.index) == {0.1, 1, 10}
        assert float(told[line]["real rows"]) == pytest.approx(
            table.loc[table["variant"] == "real rows", name].mean(), abs=6e-4
        )


def test_the_stewards_figures_of_graphs_are_those_of_the_ablation() -> None:
    table = pd.read_csv(ROOT / "benchmarks" / "results" / "ablation.csv")
    cells = (
        table[
            (table["epsilon"] == 1)
            & (table["tables"] == "pairs")
            & (table["sampling"] == "balanced")
        ]
        .groupby("graph")["mean_auc"]
        .mean()
    )
    text = " ".join((ROOT / "docs" / "guides" / "graphs.md").read_text(encoding="utf-8").split())
    told = re.search(
        r"expert's graph gives AUC (\S+), half of its arrows (\S+), a wrong graph (\S+), and none"
        r" (\S+) \(",
        text,
    )
    assert told is not None
    assert [float(t) for t in told.groups()] == pytest.approx(
        [cells[name] for name in ("given", "half", "wrong", "none")], abs=6e-4
    )
