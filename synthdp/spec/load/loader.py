"""YAML to `ReleaseSpec`, or `LinkedSpec`, or to every mistake at once, each with line and column.

Mistakes are told in two passes: all of the YAML itself (`yaml_tree`) and of the fields (`model`,
put into words by `wording`), or, where there are none, all of what does not fit between sections
(`checks`). `rules` fill in what the model needs and the file leaves out.

Lists of categories and codes may lie in text files beside the spec: where a column says
`categories: {file: F}` or `codes: {file: F}`, the file's lines take that place before anything else
is done with the spec. What is checked, kept of a run, digested and published is the text with its
lists, so that a file that changes later changes nothing. Only a steward's own spec is read so: one
that others wrote, such as a bundle's, must not say which files of this machine are opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.addresses import home
from synthdp.spec.checks.checks import cross_problems
from synthdp.spec.edit import as_plain, put, set_at
from synthdp.spec.load.wording import Mistake, SpecMistake, field_of, findings, unreadable
from synthdp.spec.load.yaml_tree import LIMITS, Node, read
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp.spec.model.rules import fill_defaults, fill_linked

TABLES = ("dataset", "tables")
FIELDS = ("categories", "codes")
FOR_ONE = "this is of one table, and the spec of this release or bundle has linked ones"
FOR_LINKED = (
    "of these are so far: validate, plan, release, resume, verify, sample, decide, budget, diff,"
    " index, show, export, track, ui and doctor"
)
HINT = "a text file in UTF-8 beside the spec, one category or code a line"


def load_spec(path: Path, *, lists: bool = False) -> ReleaseSpec:
    """Read and check a spec file; with `lists`, a steward's own, whose lists may lie in files.

    Raises:
        SpecError: the file cannot be read, or has mistakes; every one of them is listed.

    >>> load_spec(Path("clinic.yaml")).dataset.id
    'clinic'
    """
    text = own_text(path) if lists else spec_text(path)
    return parse_spec(text, path=str(path))


def parse_spec(text: str, *, path: str, graph_alone: bool = False) -> ReleaseSpec:
    """Check a spec given as text; `path` is what mistakes call the file. A run of its graph alone
    asks for no other share of the budget.

    Raises:
        SpecError: with every mistake in the text.

    >>> text = Path("clinic.yaml").read_text(encoding="utf-8")
    >>> parse_spec(text, path="clinic.yaml").privacy.epsilon
    1.0
    >>> parse_spec(text.replace("epsilon: 1,", "epsilon: -1,"), path="clinic.yaml")
    Traceback (most recent call last):
    synthdp.errors.SpecError: 1 mistake in the spec
      clinic.yaml:12:20: privacy.epsilon: got -1; it must be at least 0.01
    """
    tree, spec = _parsed(text, path, graph_alone=graph_alone)
    if isinstance(spec, ReleaseSpec):
        return spec
    place = tree.place(TABLES)
    raise SpecError([SpecProblem(path, *place, ".".join(TABLES), FOR_ONE, FOR_LINKED)])


def parse_any(text: str, *, path: str) -> ReleaseSpec | LinkedSpec:
    """As `parse_spec`, and of linked tables too: where `dataset` has `tables`.

    Raises:
        SpecError: with every mistake in the text.
    """
    return _parsed(text, path)[1]


def own_spec(path: Path) -> ReleaseSpec | LinkedSpec:
    """A steward's own spec, of one table or of linked ones; raises as `load_spec`."""
    return parse_any(own_text(path), path=str(path))


def linked_in(text: str, *, path: str) -> LinkedSpec | None:
    """The spec of a text that is one of linked tables; None of any other text.

    Raises:
        SpecError: with every mistake in it.
    """
    if "tables" not in text:
        return None
    tree, _ = read(text.removeprefix("\ufeff"))
    if tree is None or tree.kind != "map" or len(list(tree.along(TABLES))) <= len(TABLES):
        return None
    found = parse_any(text, path=path)
    return found if isinstance(found, LinkedSpec) else None


def _parsed(
    text: str, path: str, *, graph_alone: bool = False
) -> tuple[Node, ReleaseSpec | LinkedSpec]:
    tree, mistakes = read(text.removeprefix("\ufeff"))
    model: Any
    fill: Any
    check: Any
    problems = [_problem(path, tree, m, (m.line, m.column)) for m in mistakes]
    if tree is None or tree.kind != "map":
        raise SpecError(_listed(problems or [_no_map(path, tree)]))
    model, fill, check = ReleaseSpec, fill_defaults, cross_problems
    if len(list(tree.along(TABLES))) > len(TABLES):
        from synthdp.spec.checks.linked import linked_problems

        model, fill, check = LinkedSpec, fill_linked, linked_problems
    try:
        spec: ReleaseSpec | LinkedSpec = fill(model.model_validate(tree.value()))
    except ValidationError as error:
        problems += _field_problems(path, tree, findings(error, model))
        raise SpecError(_listed(problems)) from None
    found: list[SpecMistake] = [] if problems else check(spec)
    if graph_alone:
        own = ("privacy", "shares", "graph")
        found = [m for m in found if m.loc[:2] != own[:2] or m.loc == own]
    if problems := problems or [_problem(path, tree, m, tree.place(m.loc)) for m in found]:
        raise SpecError(_listed(problems))
    return tree, spec


def with_epsilon(text: str, epsilon: float) -> ReleaseSpec:
    """The spec of a `text` without mistakes at another `epsilon`.

    What the text leaves out is filled in for that epsilon; what may not go with it, such as a gate,
    is not checked.
    """
    tree, _ = read(text.removeprefix("\ufeff"))
    content: Any = None if tree is None else tree.value()
    privacy = {**content["privacy"], "epsilon": epsilon}
    return fill_defaults(ReleaseSpec.model_validate({**content, "privacy": privacy}))


def own_text(path: Path) -> str:
    """The text of a steward's own spec, with the lists that it names in the place of their files.

    Raises:
        SpecError: a file cannot be read.
    """
    return with_lists(spec_text(path), path=str(path), folder=home(path))


def spec_text(path: Path) -> str:
    """The text of a spec file, as `parse_spec` takes it.

    Raises:
        SpecError: the file cannot be read.
    """

    def refuse(message: str, hint: str, line: int = 1, column: int = 1) -> SpecError:
        return SpecError([SpecProblem(str(path), line, column, "spec", message, hint)])

    try:
        if path.is_dir():
            raise refuse("this is a folder", "name the spec file in it")
        if not path.is_file():
            hint = "check the path, or write a draft with `synthdp init DATA.csv`"
            raise refuse("there is no such file", hint)
        with path.open("rb") as file:
            data = file.read(LIMITS.bytes + 1)
    except (OSError, ValueError) as error:
        message = f"the file cannot be read: {unreadable(error)}"
        raise refuse(message, "check the path and its permissions") from None
    if len(data) > LIMITS.bytes:
        message = f"the file is larger than {LIMITS.bytes:,} bytes"
        raise refuse(message, "a spec is small; is this the data?")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        hint = "save it as UTF-8 in the editor"
        raise refuse("the file is not UTF-8 text", hint, line, column) from None


def _no_map(path: str, tree: Node | None) -> SpecProblem:
    empty = tree is None or (tree.kind == "scalar" and tree.scalar is None)
    found = "the spec is empty" if empty else "the spec must be a map of `key: value` lines"
    place = (1, 1) if tree is None or empty else (tree.line, tree.column)
    hint = f"it has the keys {', '.join(ReleaseSpec.model_fields)}"
    return SpecProblem(path, *place, "spec", found, hint)


def _field_problems(path: str, tree: Node, found: list[SpecMistake]) -> Iterator[SpecProblem]:
    """Mistakes in fields, but for those in what has been reported already."""
    for finding in found:
        loc, place = finding.loc, tree.place(finding.loc)
        if finding.kind == "unknown":
            if len(holders := list(tree.along(loc[:-1]))) == len(loc):
                holder = holders[-1]
                place = holder.keys.get(str(loc[-1]), (holder.line, holder.column))
        elif any(node.reported for node in list(tree.along(loc))[1:]):
            continue
        yield _problem(path, tree, finding, place)


def _problem(
    path: str, tree: Node | None, mistake: Mistake | SpecMistake, place: tuple[int, int]
) -> SpecProblem:
    """At a path such as `graph.edges #2`, counted from 1, which ends at the text in the file."""
    nodes: list[Node] = [] if tree is None else list(tree.along(mistake.loc))
    text = next((i for i, node in enumerate(nodes) if node.kind == "scalar"), len(mistake.loc))
    loc = mistake.loc[:text]
    field = field_of(loc) or "spec"
    return SpecProblem(path, *place, field, mistake.message, mistake.hint, loc=loc)


def _listed(problems: list[SpecProblem]) -> list[SpecProblem]:
    """The first hundred, and one more line that says how many follow."""
    problems = sorted(dict.fromkeys(problems), key=lambda p: (p.line, p.column, p.field))
    if len(problems) <= LIMITS.listed:
        return problems
    rest = f"and {len(problems) - LIMITS.listed} more mistakes from here on"
    last = replace(problems[LIMITS.listed], message=rest, hint="correct those above first")
    return [*problems[: LIMITS.listed], last]


def replaced(text: str, changes: Mapping[str, Any], *, path: str) -> str:
    """A spec's `text`, without mistakes, with other values of some of its keys.

    A key is named by its path, such as `sampling.rows`; its own name will do where it is that of a
    section, or one section alone has it. All else stands at its line, comments too.

    Raises:
        SpecError: several sections have the key, or YAML does not have the value.

    >>> replaced("privacy:\\n  epsilon: 1  # all\\n", {"epsilon": 2, "seed.a": 3}, path="x.yaml")
    'privacy:\\n  epsilon: 2  # all\\nseed: {a: 3}\\n'
    """
    sections = ReleaseSpec.model_fields
    for name, value in changes.items():
        homes = [
            s for s, f in sections.items() if name in getattr(f.annotation, "model_fields", ())
        ]
        if name not in sections and len(homes) > 1:
            told, hint = f"is a key of {' and '.join(homes)}", f"{homes[0]}.{name}"
            hint = f'say which: replace(**{{"{hint}": ...}})'
            raise SpecError([SpecProblem(path, 1, 1, name, told, hint)])
        loc = (name,) if name in sections else (*homes[:1], *name.split("."))
        text = set_at(text, loc, as_plain(value, (name,), path), lines=True)
    return text


def with_lists(text: str, *, path: str, folder: Path) -> str:
    """The spec's text with the lines of each file in the place of its name.

    Lines of the text stay at their numbers. Files are relative to `folder`, in UTF-8, one entry a
    line; white space around an entry and empty lines do not count.

    Raises:
        SpecError: a file cannot be read, or the whole is too large; each is told at its place.
    """
    if "file" not in text or read(text)[1]:  # what is wrong in the YAML is told by `parse_spec`
        return text
    problems, made, entries = list[SpecProblem](), text, 0
    for name, field, node, file in reversed(list(_places(text))):
        found = _entries(folder / file)
        if isinstance(found, str):
            mark = node.start_mark
            where = f"columns.{name}.{field}"
            message, hint = f"the list in {file!r} cannot be read: {found}", HINT
            problems.append(SpecProblem(path, mark.line + 1, mark.column + 1, where, message, hint))
            continue
        entries += len(found)
        made = put(made, node, json.dumps(found, ensure_ascii=False), lines=True)
    # An entry takes eight bytes more in a published spec.
    if len(made.encode()) + 8 * entries > LIMITS.bytes:
        message = f"with its lists the spec is larger than {LIMITS.bytes:,} bytes"
        hint = "shorten the lists; of text-code columns, to the beginnings that `prefix` keeps"
        problems.append(SpecProblem(path, 1, 1, "spec", message, hint))
    if problems:
        raise SpecError(problems[::-1])
    return made


def _places(text: str) -> Iterator[tuple[str, str, yaml.Node, str]]:
    """Column, field, node and file of each list that lies in a file."""
    root = dict(_pairs(yaml.compose(text, Loader=yaml.SafeLoader)))
    columns = _pairs(root.get("columns"))
    if "tables" in dict(_pairs(root.get("dataset"))):
        columns = [(f"{t}.{name}", c) for t, inside in columns for name, c in _pairs(inside)]
    for name, column in columns:
        for field, node in _pairs(column):
            inside = _pairs(node)
            if field in FIELDS and [key for key, _ in inside] == ["file"]:
                yield name, field, node, str(inside[0][1].value)


def _pairs(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    found = node.value if isinstance(node, yaml.MappingNode) else []
    return [(key.value, value) for key, value in found if isinstance(key, yaml.ScalarNode)]


def _entries(file: Path) -> list[str] | str:
    """The entries of a file; or what is wrong with it."""
    try:
        if not file.is_file():
            return "there is no such file"
        with file.open("rb") as opened:
            data = opened.read(LIMITS.bytes + 1)
    except (OSError, ValueError) as error:
        return unreadable(error)
    if len(data) > LIMITS.bytes:
        return f"it is larger than {LIMITS.bytes:,} bytes"
    try:
        lines = re.split("\r\n|\r|\n", data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return [line.strip() for line in lines if line.strip()] or "it is empty"
