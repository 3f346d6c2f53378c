"""Tokens of the languages in which graphs are written, and mistakes at their place in the file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from synthdp.errors import SynthdpError

COMMENTS = r"//[^\n]*+ | /\*.*?\*/"
QUOTES = 'a name with other characters than letters, digits, _ and . goes in quotes: "a name"'
Place = tuple[int, int]
"""Line and column, from 1."""


class GraphFileError(SynthdpError):
    """A graph file cannot be read, or a graph cannot be written in a format."""

    exit_code = 2


def mistake(
    file: str, place: Place | None, message: str, *, hint: str | None = None
) -> GraphFileError:
    """A mistake at a place of a file: `file:line:column: what`, with a hint on what is allowed.

    The middle of a long text is cut out: it may quote a name as long as the file.
    """

    def short(text: str) -> str:
        return text if len(text) <= 2000 else f"{text[:1000]} ... {text[-1000:]}"

    where = ":".join([file, *map(str, place or ())])
    return GraphFileError(f"{where}: {short(message)}", hint=short(hint) if hint else None)


class Language:
    """How tokens of a language look: regular expressions in which spaces do not count.

    `unquote` gives the content of a quoted text. Two words that touch are a mistake unless
    `touching`: somebody meant them to be one name.
    """

    def __init__(
        self,
        *,
        skip: str,
        text: str,
        mark: str,
        word: str,
        unquote: Callable[[str], str],
        html: bool = False,
        touching: bool = False,
    ) -> None:
        parts = {"skip": rf"\s++ | {skip}", "text": text, "mark": mark, "word": word}
        pattern = " | ".join(f"(?P<{kind}> {part} )" for kind, part in parts.items())
        self.pattern = re.compile(pattern, re.VERBOSE | re.DOTALL | re.MULTILINE)
        self.unquote, self.html, self.touching = unquote, html, touching


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a mark such as `->`, or a quoted text without its quotes.

    `start` and `end` are its place in the text; `kind` is word, mark, text, html or end.
    """

    text: str
    kind: str
    start: int
    end: int
    place: Place

    def marks(self, *texts: str) -> bool:
        """Whether this is one of these marks."""
        return self.kind == "mark" and self.text in texts

    def says(self, *words: str) -> bool:
        """Whether this is one of these keywords: not quoted, in any case."""
        return self.kind == "word" and self.text.lower() in words

    @property
    def names(self) -> bool:
        """Whether this may be a name."""
        return self.kind in ("word", "text")


class Cursor:
    """Goes through a text token by token; readers derive from it and say what may stand where.

    `max_tokens`: of a file; as many arrows as a spec may have, with a picture's attributes.
    `max_nested`: subgraphs or lists in each other.
    """

    language: Language
    hint: str
    max_tokens = 2_500_000
    max_nested = 50

    def __init__(self, text: str, *, file: str) -> None:
        self.text, self.file = text, file
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._count = 0
        self._ahead: Token | None = None
        self.last: Token | None = None
        self.token = Token("", "begin", -1, -1, (1, 1))
        self.token = self._read(0)

    def take(self) -> Token:
        """The token, which is left behind."""
        token = self.token
        if token.kind != "end":
            self.last, self.token, self._ahead = token, self.ahead(), None
        return token

    def ahead(self) -> Token:
        if self._ahead is None:
            self._ahead = self._read(self.token.end)
        return self._ahead

    def raw(self, mark: str, *, within: str) -> str:
        """Leave behind the text up to `mark`, and the mark; nothing of `within` may come first."""
        start, found = self.token.start, self.text.find(mark, self.token.start)
        if found < 0 or any(self.text.find(c, start, found) >= 0 for c in within):
            raise self.wrong(f"no {mark!r} after this", hint=f"{mark!r} ends it")
        self.token, self._ahead = self._read(found + 1), None
        return self.text[start:found]

    def take_mark(self, *marks: str) -> bool:
        """Whether one of these marks stood here."""
        return bool(self.token.marks(*marks) and self.take())

    def expect(self, mark: str) -> None:
        """Take this mark; anything else is refused."""
        if not self.take_mark(mark):
            raise self.wanted(f"{mark!r}")

    def name(self, what: str = "a name", *, hint: str | None = None) -> Token:
        """Take a word or a quoted text; anything else is refused."""
        if not self.token.names:
            raise self.wanted(what, hint=hint)
        return self.take()

    def wanted(self, what: str, *, hint: str | None = None) -> GraphFileError:
        """A mistake: `what` must stand here."""
        return self.wrong(f"got {self.token.text!r} where {what} must stand", hint=hint)

    def wrong(
        self, message: str, *, hint: str | None = None, at: Token | None = None
    ) -> GraphFileError:
        """A mistake at a token, this one if none is given."""
        return mistake(self.file, (at or self.token).place, message, hint=hint or self.hint)

    def _read(self, at: int) -> Token:
        while at < len(self.text):
            match = self.language.pattern.match(self.text, at)
            kind, end = (str(match.lastgroup), match.end()) if match else ("", at)
            if not match and self.language.html and self.text[at] == "<":
                kind, end = "html", self._html_end(at)
            if not kind:
                raise self._unexpected(at)
            if kind != "skip":
                content = self.text[at:end]
                if kind == "text":
                    content = self.language.unquote(content)
                token = Token(content, kind, at, end, self._place(at))
                self._refuse_touching(token)
                self._count += 1
                if self._count > self.max_tokens:
                    hint = f"at most {self.max_tokens:,} words and signs"
                    raise self.wrong("a file that is too long", hint=hint, at=token)
                return token
            at = end
        return Token("the end of the file", "end", at, at, self._place(at))

    def _place(self, at: int) -> Place:
        line = bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1

    def _refuse_touching(self, token: Token) -> None:
        before = self.token
        if self.language.touching or before.end != token.start:
            return
        if before.kind == "text" and self.last and self.last.marks("="):
            return  # DAGitty's own files have  bb="0,0,1,1"A [exposure]
        if before.names and token.kind in ("word", "text", "html"):
            message = f"{before.text!r} and {token.text!r} stand side by side, with nothing between"
            raise self.wrong(message, hint=QUOTES, at=token)

    def _html_end(self, at: int) -> int:
        depth = 0
        for match in re.compile("[<>]").finditer(self.text, at):
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.end()
        raise self._unexpected(at)

    def _unexpected(self, at: int) -> GraphFileError:
        what = f"unexpected {self.text[at]!r}"
        if self.text[at] == '"':
            what = "a quotation mark that is never closed"
        return mistake(self.file, self._place(at), what, hint=QUOTES)
