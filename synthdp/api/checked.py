"""All that a spec's text shows, at once and at its places: mistakes, warnings, telling names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.api.spec import Spec
from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks.columns import unanswered
from synthdp.spec.load.loader import own_text, with_lists
from synthdp.spec.load.wording import Loc, field_of
from synthdp.spec.load.yaml_tree import Node, read


@dataclass(frozen=True)
class Checked:
    """What a text shows; made by `Spec.check`.

    Attributes:
        spec: None where there are mistakes.
        mistakes: what keeps it from being a spec, each with line, column and path (`loc`).
        warnings: what is valid and will disappoint.
        remarks: what names of columns tell, and their declarations leave open.

    >>> import synthdp
    >>> print(synthdp.Spec.check("synthdp: 1\\nseed: [1", path="a.yaml"))
    a.yaml:2:7: mistake: spec: a list [...] that is not closed, or a comma is missing
        hint: close it with ], and put commas between the items
    """

    spec: Spec | None
    mistakes: tuple[SpecProblem, ...]
    warnings: tuple[SpecProblem, ...] = ()
    remarks: tuple[SpecProblem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object of `synthdp watch --json`."""
        found: dict[str, Any] = {"valid": self.spec is not None}
        for name in ("mistakes", "warnings", "remarks"):
            found[name] = [p.to_json() | {"loc": list(p.loc)} for p in getattr(self, name)]
        return found

    @property
    def told(self) -> list[tuple[str, SpecProblem]]:
        """All of it, each with its kind: mistake, warning or remark."""
        kinds = (("mistake", self.mistakes), ("warning", self.warnings), ("remark", self.remarks))
        return [(kind, problem) for kind, problems in kinds for problem in problems]

    def __str__(self) -> str:
        return "\n".join(
            f"{p.path}:{p.line}:{p.column}: {kind}: {p.field}: {p.message}"
            + (f"\n    hint: {p.hint}" if p.hint else "")
            for kind, p in self.told
        )


def check(text: str | None, path: Path) -> Checked:
    """What a text shows as that of the file at `path`, or what the file itself shows."""
    shown = str(path)
    try:
        text = own_text(path) if text is None else text.removeprefix("\ufeff")
        made = with_lists(text, path=shown, folder=path.resolve().parent)
        spec = Spec(made, path=shown)
    except SpecError as error:
        return Checked(None, tuple(error.problems))
    tree, _ = read(made)
    assert tree is not None
    warned = [_placed(warning, tree, shown) for warning in _warnings(spec)]
    warned.sort(key=lambda problem: (problem.line, problem.column))
    return Checked(spec, (), tuple(warned), tuple(_remarks(spec, tree, shown)))


def _warnings(spec: Spec) -> Sequence[str]:
    from synthdp.release.plan_view import spec_warnings
    from synthdp.spec.checks.linked import linked_traps

    return spec_warnings(spec.content) if spec.linked is None else linked_traps(spec.linked)


def _remarks(spec: Spec, tree: Node, path: str) -> Iterator[SpecProblem]:
    tables = {("columns",): spec.columns} if spec.linked is None else {
        ("columns", name): columns for name, columns in spec.linked.columns.items()
    }  # fmt: skip
    estimands = () if spec.linked is not None else spec.content.estimands
    adjusted = {name for estimand in estimands for name in estimand.by}
    for above, columns in tables.items():
        for remark in unanswered(columns, adjusted):
            loc = (*above, remark.column)
            key = list(tree.along(above))[-1].keys.get(remark.column, tree.place(loc))
            yield SpecProblem(path, *key, ".".join(loc), remark.text, loc=loc)


def _placed(warning: str, tree: Node, path: str) -> SpecProblem:
    """A warning at the deepest place that it begins with, as `columns.age.bins: ...` does."""
    where, _, message = warning.partition(": ")
    named = re.sub("^column '(.*)'$", r"columns.\1", where)
    named = re.sub("^privacy_unit$", "dataset.privacy_unit", named)
    places = [loc for loc in _places(tree) if named.startswith(field_of(loc))]
    if not places:
        return SpecProblem(path, 1, 1, "spec", warning)
    loc = max(places, key=lambda loc: len(field_of(loc)))
    return SpecProblem(path, *tree.place(loc), where, message, loc=loc)


def _places(node: Node, loc: Loc = ()) -> Iterator[Loc]:
    inner: list[tuple[str | int, Node]] = [*node.entries.items(), *enumerate(node.items)]
    for key, inside in inner:
        yield (*loc, key)
        yield from _places(inside, (*loc, key))
