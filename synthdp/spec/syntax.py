"""What a YAML parser's complaint means to the person who wrote the file."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Mistake:
    """Something wrong at a place of the text, before any schema is looked at."""

    line: int
    column: int
    loc: Loc
    message: str
    hint: str | None = None


# What the parser says (two dialects: libyaml's and PyYAML's), and what it means.
_SYNTAX = (
    (
        "mapping values are not allowed",
        "a ':' where no key can stand",
        "check the indentation; a text that holds ': ' goes in quotes",
    ),
    (
        "sequence entries are not allowed",
        "a list item '- ' where none can stand",
        "start the list on a line of its own, below the key",
    ),
    (
        "could not find expected ':'",
        "a key without ':' after it",
        "write `key: value`; check the line above too",
    ),
    (
        "end of stream",
        "a quotation mark that is never closed",
        "close it, or write '' for an apostrophe inside '...'",
    ),
    (
        "escape c",
        "an unknown escape after a backslash",
        "inside \"...\" a backslash is written twice; '...' has no escapes",
    ),
    (
        "',' or ']'",
        "a list [...] that is not closed, or a comma is missing",
        "close it with ], and put commas between the items",
    ),
    (
        "',' or '}'",
        "a map {...} that is not closed, or a comma is missing",
        "close it with }, and put commas between the entries",
    ),
    ("tag handle", "a tag (!...) that is not read", "delete the tag; quotes make any value text"),
    ("incompatible YAML", "a %YAML line that is not read", "delete the line"),
    (
        "expected key",
        "something that does not belong here",
        "check quotes, brackets and the indentation on this line and the one above",
    ),
    (
        "block end",
        "something that does not belong here",
        "check quotes, brackets and the indentation on this line and the one above",
    ),
    (
        "'-' indicator",
        "a key among list items",
        "indent it below an item, or end the list by less indentation",
    ),
    (
        "document start",
        "a line that is indented less than the first line",
        "start all top-level keys in the same column",
    ),
    (
        "node content",
        "a bracket, comma or sign that is not a value",
        "put the text in quotes if it is meant so",
    ),
)


def syntax_mistake(error: yaml.MarkedYAMLError, text: str) -> Mistake:
    """The parser's complaint about `text`, in plain words and at the most telling place."""
    problem = error.problem or ""
    mark = error.problem_mark or error.context_mark
    unclosed = "end of stream" in problem or "',' or" in problem
    if unclosed and error.context_mark is not None:
        mark = error.context_mark  # where it was opened says more than the end of the file
    if mark is None:
        return Mistake(1, 1, (), "this is not readable YAML")
    line, column = mark.line + 1, mark.column + 1
    source = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    here = source[mark.column : mark.column + 1]
    if here == "\t" or "tab character" in problem:
        return Mistake(
            line,
            column,
            (),
            "a tab in the indentation",
            "YAML is indented by spaces; tell the editor to insert spaces",
        )
    if "cannot start any token" in problem:
        return Mistake(
            line, column, (), f"a value cannot begin with {here!r}", "put the text in quotes"
        )
    for found, meaning, hint in _SYNTAX:
        if found in problem:
            return Mistake(line, column, (), meaning, hint)
    return Mistake(
        line,
        column,
        (),
        f"this is not YAML: {problem}",
        "check quotes, brackets and the indentation here and on the line above",
    )
