"""Lists of categories and codes that lie in text files beside the spec: written into its text.

Where a column says `categories: {file: F}` or `codes: {file: F}`, the file's lines take that place
before anything else is done with the spec. What is checked, kept of a run, digested and published
is the text with its lists, so that a file that changes later changes nothing.

Only a steward's own spec is read so. A spec that others wrote, such as a bundle's, must not say
which files of this machine are opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.load.yaml_tree import read

MAX_BYTES = 1_000_000
FIELDS = ("categories", "codes")
INDENTED = 8  # bytes that an entry takes in a published spec beside itself


def with_lists(text: str, *, path: str, folder: Path) -> str:
    """The spec's text with the lines of each file in the place of its name.

    Lines of the text stay at their numbers. Files are relative to `folder`, in UTF-8, one entry a
    line; white space around an entry and empty lines do not count.

    Raises:
        SpecError: a file cannot be read, or the whole is too large; each is told at its place.
    """
    if (
        "file" not in text or read(text)[1]
    ):  # what is wrong in the YAML itself is told by the loader
        return text
    problems, made, end, entries = list[SpecProblem](), "", 0, 0
    for name, field, node, file in _places(text):
        found = _entries(folder / file)
        if isinstance(found, str):
            mark = node.start_mark
            where = f"columns.{name}.{field}"
            message, hint = f"the list in {file!r} cannot be read: {found}", HINT
            problems.append(SpecProblem(path, mark.line + 1, mark.column + 1, where, message, hint))
            continue
        entries += len(found)
        first, last = node.start_mark.index, node.end_mark.index
        made += text[end:first] + _flow(found) + _tail(text[first:last])
        end = last
    made += text[end:]
    if len(made.encode()) + INDENTED * entries > MAX_BYTES:
        message = f"with its lists the spec is larger than {MAX_BYTES:,} bytes"
        hint = "shorten the lists; of text-code columns, to the beginnings that `prefix` keeps"
        problems.append(SpecProblem(path, 1, 1, "spec", message, hint))
    if problems:
        raise SpecError(problems)
    return made


HINT = "a text file in UTF-8 beside the spec, one category or code a line"


def _places(text: str) -> Iterator[tuple[str, str, yaml.Node, str]]:
    """Column, field, node and file of each list that lies in a file."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for name, column in _pairs(_value(root, "columns")):
        for field, node in _pairs(column):
            inside = _pairs(node)
            if field in FIELDS and [key for key, _ in inside] == ["file"]:
                yield name, field, node, str(inside[0][1].value)


def _pairs(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    found = node.value if isinstance(node, yaml.MappingNode) else []
    return [(key.value, value) for key, value in found if isinstance(key, yaml.ScalarNode)]


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    return dict(_pairs(node)).get(name)


def _entries(file: Path) -> list[str] | str:
    """The entries of a file; or what is wrong with it."""
    try:
        if not file.is_file():
            return "there is no such file"
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "the path is not a valid one"
    if len(data) > MAX_BYTES:
        return f"it is larger than {MAX_BYTES:,} bytes"
    try:
        lines = re.split("\r\n|\r|\n", data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return [line.strip() for line in lines if line.strip()] or "it is empty"


def _flow(entries: list[str]) -> str:
    return "[" + ", ".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "]"


def _tail(replaced: str) -> str:
    """As many line breaks as were replaced, and what stands before the next key on its line."""
    lines = replaced.split("\n")
    return "\n" * (len(lines) - 1) + (lines[-1] if len(lines) > 1 else "")
