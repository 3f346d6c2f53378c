"""Tokens of the languages DOT and DAGitty, each with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from synthdp.graph.formats.draft import CONTROL, GraphFileError, mistake

_TOKEN = re.compile(
    r"""
    (?P<skip>  \s+ | //[^\n]* | /\*.*?\*/ | ^\#[^\n]* )
  | (?P<text>  "(?:\\.|[^"\\])*" )
  | (?P<mark>  @->|<-@|<->|->|<-|--@|@-@|@--|-- | [{}\[\]=;,:+] )
  | (?P<word>  -?[\w.]+ )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_ESCAPE = re.compile(r"\\(\\|\"|\n)")
_UNWRITABLE = re.compile(r"(?<!\\)(\\\\)*\\(\"|$)")


@dataclass(frozen=True)
class Token:
    """A word, a mark such as `->`, or a quoted text without its quotes."""

    text: str
    kind: str
    line: int

    def marks(self, *texts: str) -> bool:
        """Whether this is one of these marks."""
        return self.kind == "mark" and self.text in texts

    def says(self, *words: str) -> bool:
        """Whether this is one of these keywords: not quoted, in any case."""
        return self.kind == "word" and self.text.lower() in words


def tokens(text: str, *, file: str) -> list[Token]:
    """All tokens, and an `end`.

    Raises:
        GraphFileError: something that is no token.
    """
    result: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unexpected(text[at], file, line)
        kind, content = str(match.lastgroup), match[0]
        if kind == "text":
            content = _unquoted(content)
        if kind != "skip":
            result.append(Token(content, kind, line))
        line += match[0].count("\n")
        at = match.end()
    return [*result, Token("the end of the file", "end", line)]


def _unexpected(character: str, file: str, line: int) -> GraphFileError:
    what = f"unexpected {character!r}"
    if character == '"':
        what = "a quotation mark that is never closed"
    hint = 'names with other characters than letters, digits, _ and . go in quotes: "a name"'
    return mistake(file, line, what, hint=hint)


def _unquoted(text: str) -> str:
    """The content of a quoted text.

    Only a quotation mark is escaped; two backslashes stay two, as in Graphviz.
    """
    return _ESCAPE.sub(lambda m: {"\\": "\\\\", '"': '"', "\n": ""}[m[1]], text[1:-1])


def quoted(name: str, *, language: str) -> str:
    """A name as a quoted text that both Graphviz and DAGitty read back.

    Raises:
        GraphFileError: the languages have no way to write it.
    """
    if CONTROL.search(name) or _UNWRITABLE.search(name):
        raise GraphFileError(
            f"{language} cannot write the name {name!r}: no control characters, and no backslash at"
            " its end or before a quotation mark",
            hint="rename the column, or choose the format yaml or json",
        )
    return '"' + name.replace('"', '\\"') + '"'
