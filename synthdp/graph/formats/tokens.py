"""Tokens of the languages in which graphs are written, one at a time, each with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from synthdp.graph.formats.mistakes import GraphFileError, Place, mistake

COMMENTS = r"//[^\n]*+ | /\*.*?\*/"
MAX_TOKENS = 2_500_000  # of a file; as many arrows as a spec may have, with a picture's attributes
QUOTES = 'a name with other characters than letters, digits, _ and . goes in quotes: "a name"'
_ESCAPE = re.compile(r"\\(\\|\"|\n)")
_BRACKETS = re.compile("[<>]")


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


def _unquoted(text: str) -> str:
    """The content of a quoted text.

    Only a quotation mark is escaped; two backslashes stay two, as in Graphviz.
    """
    return _ESCAPE.sub(lambda m: {"\\": "\\\\", '"': '"', "\n": ""}[m[1]], text[1:-1])


DOT = Language(
    skip=rf"{COMMENTS} | ^\#[^\n]*+",
    text=r'"(?:\\.|[^"\\])*+"',
    mark=r"@->|<-@|<->|->|<-|--@|@-@|@--|--|[{}\[\]=;,:+]",
    # A minus belongs to a number alone; what follows a number's digits is one name with them.
    word=r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?![\w.]) | [\w.]++",
    unquote=_unquoted,
    html=True,
)


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
    """Goes through a text token by token; readers derive from it and say what may stand where."""

    hint: str

    def __init__(self, text: str, *, file: str, language: Language) -> None:
        self.text, self.file, self.language = text, file, language
        self._line, self._begins = 1, 0  # of the line where the next token is looked for
        self._count = 0
        self.last: Token | None = None
        self.token = self._read(0)
        self._ahead: Token | None = None

    def take(self) -> Token:
        """The token, which is left behind."""
        token = self.token
        if token.kind != "end":
            self.last, self.token, self._ahead = token, self.ahead(), None
        return token

    def ahead(self) -> Token:
        """The token after this one."""
        if self._ahead is None:
            self._ahead = self._read(self.token.end)
        return self._ahead

    def raw(self, mark: str, *, within: str) -> str:
        """The text from here to `mark`, as it stands, which is left behind with the mark.

        Raises:
            GraphFileError: a character of `within` comes first.
        """
        start, found = self.token.start, self.text.find(mark, self.token.start)
        if found < 0 or any(self.text.find(c, start, found) >= 0 for c in within):
            raise self.wrong(f"no {mark!r} after this", hint=f"{mark!r} ends it")
        self._pass(start, found + 1, back=self.token.place)
        self.token, self._ahead = self._read(found + 1), None
        return self.text[start:found]

    def take_mark(self, *marks: str) -> bool:
        """Whether one of these marks stood here."""
        return bool(self.token.marks(*marks) and self.take())

    def expect(self, mark: str) -> None:
        """Take this mark.

        Raises:
            GraphFileError: something else stands here.
        """
        if not self.take_mark(mark):
            raise self.wrong(f"got {self.token.text!r} where {mark!r} must stand")

    def name(self) -> Token:
        """Take a word or a quoted text.

        Raises:
            GraphFileError: something else stands here.
        """
        if not self.token.names:
            raise self.wrong(f"got {self.token.text!r} where a name must stand")
        return self.take()

    def wrong(
        self, message: str, *, hint: str | None = None, at: Token | None = None
    ) -> GraphFileError:
        """A mistake at a token, this one if none is given."""
        return mistake(self.file, (at or self.token).place, message, hint=hint or self.hint)

    def _pass(self, start: int, end: int, *, back: Place | None = None) -> None:
        if back:
            self._line, self._begins = back[0], start - back[1] + 1
        lines = self.text.count("\n", start, end)
        if lines:
            self._line += lines
            self._begins = self.text.rindex("\n", start, end) + 1

    def _read(self, at: int) -> Token:
        while at < len(self.text):
            place = (self._line, at - self._begins + 1)
            match = self.language.pattern.match(self.text, at)
            kind, end = (str(match.lastgroup), match.end()) if match else ("", at)
            if not match and self.language.html and self.text[at] == "<":
                kind, end = "html", self._html_end(at, place)
            if not kind:
                raise self._unexpected(at, place)
            self._pass(at, end)
            if kind != "skip":
                content = self.text[at:end]
                if kind == "text":
                    content = self.language.unquote(content)
                token = Token(content, kind, at, end, place)
                self._refuse_touching(token)
                self._count += 1
                if self._count > MAX_TOKENS:
                    hint = f"at most {MAX_TOKENS:,} words and signs"
                    raise mistake(self.file, place, "a file that is too long", hint=hint)
                return token
            at = end
        place = (self._line, at - self._begins + 1)
        return Token("the end of the file", "end", at, at, place)

    def _refuse_touching(self, token: Token) -> None:
        before = getattr(self, "token", None)
        if before is None or self.language.touching or before.end != token.start:
            return
        if before.kind == "text" and self.last and self.last.marks("="):
            return  # DAGitty's own files have  bb="0,0,1,1"A [exposure]
        if before.names and token.kind in ("word", "text", "html"):
            raise self.wrong(
                f"{before.text!r} and {token.text!r} stand side by side, with nothing between",
                hint=QUOTES,
                at=token,
            )

    def _html_end(self, at: int, place: Place) -> int:
        depth = 0
        for match in _BRACKETS.finditer(self.text, at):
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.end()
        raise self._unexpected(at, place)

    def _unexpected(self, at: int, place: Place) -> GraphFileError:
        character = self.text[at]
        what = f"unexpected {character!r}"
        if character == '"':
            what = "a quotation mark that is never closed"
        return mistake(self.file, place, what, hint=QUOTES)
