"""Edits of a spec's text: what was asked for changes, and no other line, whatever the style."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import synthdp
from synthdp.errors import SpecError
from synthdp.spec import add_arrow, add_item, arrows, drop, drop_arrow, edit, read, set_value

ROOT = Path(__file__).parents[2]
SPECS = [
    *sorted((ROOT / "specs").glob("*.yaml")),
    *sorted((ROOT / "docs" / "example").glob("*.yaml")),
    ROOT / "tests" / "spec" / "complete_spec.yaml",
    *sorted((ROOT / "tests" / "spec" / "linked").glob("*.yaml")),
]
TEXT = """\
# a spec
columns:              # all of them
  age: {type: integer, lower: 18}   # years
  sex:
    categories:
      - female  # first
      # a remark
      - male
  wt: {values: [1,
                2, 3]}  # three
graph:
  edges:  # by hand
  - age, sex -> wt  # both
"""


def changed(old: str, new: str) -> list[str]:
    lines = (text.splitlines() for text in (old, new))
    return [line for line in unified_diff(*lines, n=0, lineterm="") if line[:2] not in ("--", "++")
            and line[:2] != "@@"]  # fmt: skip


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (
            set_value(TEXT, ("columns", "age", "lower"), 21),
            [
                "-  age: {type: integer, lower: 18}   # years",
                "+  age: {type: integer, lower: 21}   # years",
            ],
        ),
        (
            set_value(TEXT, ("columns", "age", "unit"), "years: whole"),
            [
                "-  age: {type: integer, lower: 18}   # years",
                '+  age: {type: integer, lower: 18, unit: "years: whole"}   # years',
            ],
        ),
        (set_value(TEXT, ("columns", "sex", "missing"), True), ["+    missing: true"]),
        (
            set_value(TEXT, ("columns", "sex", "categories"), ["female", "other", "no"]),
            ["-      - male", "+      - other", "+      - no"],
        ),
        (
            set_value(TEXT, ("columns", "wt", "values"), [1, 3, 4]),
            ["-                2, 3]}  # three", "+                3, 4]}  # three"],
        ),
        (set_value(TEXT, ("columns", "no"), {"a": None}), ["+  no: {a: null}"]),
        (set_value(TEXT, ("privacy", "cap", "epsilon"), 3), ["+privacy: {cap: {epsilon: 3}}"]),
        (drop(TEXT, ("columns", "age")), ["-  age: {type: integer, lower: 18}   # years"]),
        (
            drop(TEXT, ("columns", "sex", "categories", 0)),
            ["-      - female  # first"],
        ),
        (
            drop(TEXT, ("graph", "edges", 0)),
            ["-  - age, sex -> wt  # both", "+    []  # both"],
        ),
        (add_arrow(TEXT, "age", "sex"), ["+  - age -> sex"]),
        (add_arrow(TEXT, "age", "wt"), []),
        (
            add_arrow(TEXT, "a, b", "wt"),
            ['+  - {causes: ["a, b"], effects: [wt]}'],
        ),
        (
            drop_arrow(TEXT, "age", "wt"),
            ["-  - age, sex -> wt  # both", "+  - sex -> wt  # both"],
        ),
    ],
)
def test_what_was_asked_for_changes_and_no_other_line(new: str, lines: list[str]) -> None:
    assert changed(TEXT, new) == lines


def test_an_arrow_after_the_last_one_is_an_arrow_in_the_same_list() -> None:
    """The fault of a first attempt: a second `edges`."""
    text = drop_arrow(drop_arrow(TEXT, "age", "wt"), "sex", "wt")
    assert arrows(text) == [] and "edges:  # by hand\n    []" in text
    assert arrows(add_arrow(text, "age", "wt")) == [(0, ("age",), ("wt",))]
    both = "graph: {edges: ['a, b -> c, d']}\n"
    assert {(c, e) for _, cs, es in arrows(drop_arrow(both, "a", "d")) for c in cs for e in es} == {
        ("a", "c"), ("b", "c"), ("b", "d"),
    }  # fmt: skip


def test_lines_of_windows_and_an_end_without_a_line_break_stay() -> None:
    text = "graph:\r\n  edges:\r\n    - a -> b # one\r\n    - b -> c"
    assert add_item(text, ("graph", "edges"), "x") == text + "\r\n    - x\r\n"
    assert drop(text, ("graph", "edges", 0)) == "graph:\r\n  edges:\r\n    - b -> c"


@pytest.mark.parametrize(
    ("text", "loc", "told"),
    [
        ("a: [1, 2\n", ("a",), "spec:1:4: spec: a list"),
        ("a: 1\na: 2\n", ("a",), "spec:1:4: a: cannot be changed here"),
        ("a: &x 1\nb: *x\n", ("b", "c"), "cannot be changed here without changing more"),
        ("a: 1\n", ("b", 0), "cannot be changed here"),
        ("- a\n", ("b",), "must be a map"),
    ],
)
def test_what_would_change_more_is_refused(text: str, loc: tuple[Any, ...], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        set_value(text, loc, 3)
    with pytest.raises(SpecError, match="got a value that YAML does not have"):
        set_value("a: 1\n", ("a",), object())


def test_a_blank_is_filled_in() -> None:
    text = 'columns:\n  age:\n    lower: !fill_in "the least"\n    upper: !fill_in "the most"\n'
    assert "lower: 0\n" in set_value(text, ("columns", "age", "lower"), 0)


def test_an_edit_that_does_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an editor that drops the comment's neighbour, too."""
    monkeypatch.setattr(edit, "put", lambda text, node, shown, lines: text[:1] + shown)
    with pytest.raises(SpecError, match="nothing was written"):
        set_value(TEXT, ("columns", "age", "lower"), 21)


def test_a_spec_is_edited_from_python(tmp_path: Path) -> None:
    path = ROOT / "docs" / "example" / "clinic.yaml"
    spec = synthdp.Spec.load(path)
    found = spec.edited(("columns", "age", "upper"), 99).edited(("graph", "edges", 0))
    assert found.columns["age"].upper == 99 and len(found.content.graph.edges) == 2
    assert len(changed(spec.text, found.text)) == 3


def places(node: Any, *loc: str | int) -> list[tuple[tuple[str | int, ...], Any]]:
    inside = [*node.entries.items(), *enumerate(node.items)]
    return [((*loc, k), v) for k, v in inside] + [p for k, v in inside for p in places(v, *loc, k)]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: str(path.stem))
def test_random_edits_of_every_spec_touch_few_lines(path: Path) -> None:
    edit_at_random(path, 8 if path.stat().st_size < 30_000 else 2)


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=lambda path: str(path.stem))
def test_a_thousand_random_edits_of_every_spec_touch_few_lines(path: Path) -> None:
    """Three edits each time; fewer of a spec of 2,000 lines, where each takes half a second."""
    edit_at_random(path, 334 if path.stat().st_size < 100_000 else 34)


def edit_at_random(path: Path, times: int) -> None:
    """Content is compared by the editor itself; here, comments and lines: all that is not in the
    difference stands byte for byte.
    """
    text, rng = path.read_text(encoding="utf-8"), np.random.default_rng(7)
    tree, _ = read(text)
    assert tree is not None
    there, refused = places(tree), 0
    for _ in range(times):
        loc, node = there[rng.integers(len(there))]
        lists = [loc for loc, node in there if node.kind == "list"]
        try:
            new = drop(text, loc) if rng.random() < 0.3 else set_value(text, loc, 7)
            more = add_item(text, lists[rng.integers(len(lists))], "new, 1")
            arrow = add_arrow(text, "x", "y z")
        except SpecError:
            refused += 1
            continue
        if node.kind == "scalar":
            assert len(changed(text, new)) <= 3
        assert len(changed(text, more)) <= 3 and len(changed(text, arrow)) <= 3
        assert more.count("#") == arrow.count("#") == text.count("#")
        assert arrows(drop_arrow(arrow, "x", "y z")) == arrows(text)
    assert refused == 0
