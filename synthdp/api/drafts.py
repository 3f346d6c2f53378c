"""A spec while it is written: what its text shows, at once and at its places (mistakes, warnings,
telling names), what it says so far, edits of it, and what it would give.

All of it is of the text alone. `forecast` reads the ledger too, and no row.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthdp.api.spec import Spec, check_affordable
from synthdp.api.text import forecast_text
from synthdp.errors import SpecError, SpecProblem, SynthdpError, disk_errors
from synthdp.files import draft_of, sync
from synthdp.spec.addresses import home, ledger_address, sqlite_file
from synthdp.spec.checks.columns import likely_id, unanswered
from synthdp.spec.edit import add_arrow, add_item, arrows, drop, drop_arrow, set_value
from synthdp.spec.load.loader import own_text, spec_text, with_lists
from synthdp.spec.load.wording import Loc, field_of
from synthdp.spec.load.yaml_tree import SPOILED, Node, read
from synthdp.spec.model import COLUMN_TYPES, Graph
from synthdp.spec.writing import yaml_text

if TYPE_CHECKING:
    from synthdp.release.expectations import ColumnProspect

__all__ = [
    "FIELDS",
    "MODES",
    "Apart",
    "Checked",
    "add_arrow",
    "add_item",
    "apart",
    "arrows",
    "at_epsilon",
    "check",
    "check_graph",
    "claims",
    "drop",
    "drop_arrow",
    "figures",
    "forecast",
    "keep",
    "likely_id",
    "said",
    "set_value",
    "spec_text",
]

FIELDS = {name: tuple(model.model_fields) for name, model in COLUMN_TYPES.items()}
"""The fields of a column of each type."""
MODES = str(Graph.model_fields["mode"].description)
"""What each mode of a graph does, parted by semicolons."""


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


def said(text: str) -> Any:
    """What a text says, whatever is wrong with it: plain data, a blank as None; an empty dict where
    it is no YAML.

    >>> said('seed: {a: 1, b: !fill_in "a number"}')
    {'seed': {'a': 1, 'b': None}}
    """

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return None if value is SPOILED else value

    tree, _ = read(text.removeprefix("\ufeff"))
    return plain(tree.value()) if tree is not None and tree.kind == "map" else {}


def keep(text: str, path: Path) -> None:
    """Write a spec's text whole or not at all, with the mode that the file has.

    Raises:
        OutputError: the disk does not take it.
    """
    file = path.resolve()
    with disk_errors(f"cannot write {path}", hint="nothing was written"):
        mark = b"\xef\xbb\xbf"  # of UTF-8, which `spec_text` leaves out
        with draft_of(file) as draft:
            draft.write_bytes(mark * file.read_bytes().startswith(mark) + text.encode())
            shutil.copymode(file, draft)
        sync(file.parent)


@dataclass(frozen=True)
class Apart:
    """Where the rows of a spec lie, which a file of it may be a pattern of; and its ledger."""

    rows: tuple[str, ...]
    ledger: str | None


def apart(content: Mapping[str, Any], path: Path) -> Apart:
    """Of what a spec at `path` says: the places of its rows, and the file of its ledger."""

    def inside(value: Any, *keys: str) -> Any:
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    folder, tables = home(path), inside(content, "dataset", "tables")
    places = [inside(content, "dataset", "source")]
    places += [inside(t, "source") for t in (tables.values() if isinstance(tables, dict) else ())]
    rows = [str(folder / str(p["path"])) for p in places if inside(p, "path") is not None]
    named = inside(content, "privacy", "ledger")
    file = sqlite_file(ledger_address(named if isinstance(named, str) else None, folder))
    return Apart(tuple(rows), None if file is None else str(file))


def forecast(
    found: Checked,
    epsilons: Sequence[float] = (),
    counted: Callable[[ColumnProspect], object] | None = None,
) -> tuple[dict[str, Any], str]:
    """What a release of a text would come to, in plain JSON and as text: `plan`, at other
    `epsilons` too, and `refused`, where it is; nothing of a text with mistakes. `counted` hears of
    each column of one table before all else is known.
    """
    if found.spec is None:
        return {}, ""
    facts, told = dict[str, Any](), ""
    try:
        own = [] if found.spec.linked else [found.spec.content.privacy.epsilon, *epsilons]
        planned, balance = found.spec.planned(own, counted=counted)
        facts, told = {"plan": planned.to_json()}, forecast_text(planned.facts)
        if found.spec.linked is None:
            check_affordable(found.spec, planned, balance)
    except SynthdpError as error:  # such as a cap, or a budget that cannot be planned
        facts, told = facts | {"refused": error.to_json()}, f"{told}\nrefused: {error}".strip()
    return facts, told


def at_epsilon(found: Checked, epsilon: float) -> dict[str, Any]:
    """What a text without mistakes would give at another epsilon, as one of `plan --what-if`."""
    from synthdp.release.what_if import what_if

    assert found.spec is not None
    return what_if(found.spec.text, [epsilon])[0]


def figures(options: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Several such as a table, with a column for each epsilon, in the words of `plan --what-if`."""
    from synthdp.release.what_if import figures_table

    return figures_table(options)


def claims(found: Checked) -> tuple[list[str], str]:
    """Each independence that the arrows of a text without mistakes claim, those of columns with a
    common neighbour first, and the graph's picture.
    """
    from synthdp.data.domain import Domain
    from synthdp.graph.causal import CausalGraph
    from synthdp.graph.validation import implications

    assert found.spec is not None
    spec = found.spec.content
    if not spec.graph.edges:
        return [], ""
    domain = Domain.from_spec(spec.columns)
    graph = CausalGraph.from_spec(spec.graph, domain.names)
    told = implications(graph, domain, max_cells=math.inf)
    return [str(claim) for claim in told if claim.kind != "arrow"], graph.to_svg()


def check_graph(text: str, path: str) -> None:
    """Refuse what is wrong between arrows, tiers and what else a graph says, also where a text has
    mistakes elsewhere, which would hide it.

    Raises:
        SpecError: with every such mistake, in the words of `validate`.
    """
    content = said(text)
    graph = {key: content["graph"].get(key) for key in _OF_GRAPH if content["graph"].get(key)}
    stub = _STUB | {
        "columns": {name: {"type": "boolean"} for name in content["columns"]},
        "graph": {"mode": "given", **graph},
    }
    found = check(yaml_text(stub), Path(path)).mistakes if "edges" in graph else ()
    if wrong := [replace(p, line=1, column=1) for p in found if p.loc[:1] == ("graph",)]:
        raise SpecError(wrong)


_OF_GRAPH = ("edges", "undirected", "forbidden", "tiers", "groups", "latent")
_STUB: dict[str, Any] = {
    "synthdp": 1,
    "dataset": {
        "id": "x",
        "source": {"kind": "csv", "path": "x"},
        "privacy_unit": {"kind": "row", "meaning": "x"},
        "rows": {"kind": "public", "value": 1000},
    },
    "privacy": {"epsilon": 1, "delta": 1e-6},
}
