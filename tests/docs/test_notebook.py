"""The notebook runs from its first cell to its last, and holds no output of anybody's machine."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import synthdp
from synthdp.privacy import plan
from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "python.ipynb"


def cells() -> list[dict[str, Any]]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return list(content["cells"])


def shown(source: str, name: str, scope: dict[str, Any]) -> Any:
    """Run a cell, and give what a notebook would show: the value of its last expression."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), scope)


@pytest.mark.check
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Python began elsewhere, where a ledger would stay
    monkeypatch.setitem(synthdp.Spec.from_dict.__func__.__kwdefaults__, "folder", tmp_path)  # type: ignore[attr-defined]
    monkeypatch.setattr(plan, "GROUP_SIZES", (1, 2))  # bounds for larger groups take seconds
    scope: dict[str, Any] = {"__name__": "notebook"}
    pages = []
    for cell in cells():
        if cell["cell_type"] == "code":
            value = shown("".join(cell["source"]), cell["id"], scope)
            if hasattr(value, "_repr_html_"):
                pages.append(value._repr_html_())
    assert len(pages) == 4  # plan, release, bundle, the head of its table
    assert "Plan for patients" in pages[0] and "Guarantee" in pages[2]


def test_the_notebook_holds_no_outputs() -> None:
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in cells()}) == len(cells())
