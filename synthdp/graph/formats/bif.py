"""The text of a BIF file: its variables, their parents, and the rows of their tables as written.

It reads the grammar that network repositories write (bnlearn, pgmpy) and the dialect of JavaBayes:
names and values in quotes, values parted by spaces, parents without a bar, `property` lines.
Comments are skipped, intervals such as `(0.5, 1]` are values, and what is not understood is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats.draft import (
    COMMENTS,
    Cursor,
    GraphDraft,
    Language,
    Place,
    Token,
    mistake,
)

QUOTED = 'a name with spaces, brackets or commas goes in quotes: "Age (years)"'
_LETTER = r"[^\s{}()\[\],;|\"/]|/(?![/*])"
BIF = Language(
    skip=COMMENTS,
    text=r'"[^"]*+"',
    mark=r"[{}()\[\],;|]",
    # A name may have parentheses without spaces: Age_(years). A keyword's own are none.
    word=rf"probability(?=\s*+\() | (?:{_LETTER})(?:{_LETTER}|\((?:{_LETTER})*+\))*+",
    unquote=lambda text: text[1:-1],
)
_COMMENT = re.compile(COMMENTS, re.VERBOSE | re.DOTALL)


@dataclass(frozen=True)
class Row:
    """A line of a table: its keyword or the parents' values, and its numbers as written."""

    keyword: str
    labels: tuple[str, ...]
    numbers: str


@dataclass(frozen=True)
class Family:
    """A `probability` block. Without a bar before the parents it is of JavaBayes' dialect."""

    place: Place
    parents: tuple[str, ...]
    bar: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class NetworkText:
    """A file's variables with their values, and each one's family."""

    file: str
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    families: dict[str, Family] = field(default_factory=dict)

    def graph(self) -> CausalGraph:
        """The graph, which needs no tables; parents that form a cycle are refused."""
        draft = GraphDraft(self.file)
        for name in self.levels:
            draft.add(name, {})
        for name in self.levels:
            family = self.families[name]
            for parent in family.parents:
                draft.join((parent, name), {}, mark="->", place=family.place)
        return draft.graph()


def read_bif(text: str, *, file: str) -> CausalGraph:
    """The graph of a Bayesian network in BIF; errors are those of `read_network_text`."""
    return read_network_text(text, file=file).graph()


def read_network_text(text: str, *, file: str) -> NetworkText:
    """A BIF file's content.

    Raises:
        GraphFileError: with file, line, column and what is allowed.
    """
    network = _Reader(text, file=file).network()
    if not network.levels:
        hint = "expected BIF: variable NAME { type discrete [ 2 ] { a, b }; }"
        raise mistake(file, None, "no discrete variable found", hint=hint)
    for name, family in network.families.items():
        listed = (name, *family.parents)
        unknown = next((n for n in listed if n not in network.levels), None)
        if unknown is not None:
            message = f"unknown variable {unknown!r}; known: {shown(network.levels)}"
            raise mistake(file, family.place, f"probability of {shown([name])}: {message}")
        if len(set(listed)) < len(listed):
            message = f"probability of {shown([name])}: a variable is named twice"
            raise mistake(file, family.place, message, hint="one child, and each parent once")
    missing = [n for n in network.levels if n not in network.families]
    if missing:
        message = f"no probability block for {shown(missing)}"
        raise mistake(file, None, message, hint="every variable needs one")
    return network


def shown(names: Iterable[str]) -> str:
    """The first of some names, in a message."""
    text = ", ".join(islice(names, 20))
    return text if len(text) <= 300 else f"{text[:300]}..."


class _Reader(Cursor):
    language = BIF
    hint = "expected BIF: network, variable and probability blocks"

    def network(self) -> NetworkText:
        found = NetworkText(self.file)
        while self.token.kind != "end":
            if self.take_mark(";"):
                continue
            block = self.token
            if not block.says("network", "variable", "probability"):
                raise self.wanted("a block")
            self.take()
            if block.says("network"):
                while not self.token.marks("{"):
                    self.name()
                self.block(lambda: self.other("property"))
            elif block.says("variable"):
                name = self.once(found.levels, "variable")
                if not self.token.marks("{"):
                    raise self.wanted("'{'", hint=QUOTED)
                found.levels[name] = self.levels(name)
            else:
                self.probability(found, block.place)
        return found

    def once(self, seen: Container[str], what: str) -> str:
        """Take a name that has no such block yet."""
        token = self.name()
        if token.text in seen:
            message = f"{what} {shown([token.text])}: a second block for this variable"
            raise self.wrong(message, hint="one block for each variable", at=token)
        return token.text

    def block(self, statement: Callable[[], None]) -> None:
        """`{ ... }` of statements, each of which `statement` takes."""
        begin = self.token
        self.expect("{")
        while not self.take_mark("}"):
            if self.token.kind == "end":
                hint = "expected } after its content"
                raise self.wrong("a block that is never closed", hint=hint, at=begin)
            if not self.take_mark(";"):
                statement()

    def other(self, *allowed: str) -> None:
        """Pass over a statement that says nothing of the network, up to its semicolon."""
        if not self.token.says("property"):
            raise self.wanted(f"one of {', '.join(allowed)}")
        while not self.token.marks(";"):
            if self.token.kind == "end":
                raise self.wrong("a property without a semicolon behind it")
            self.take()

    def levels(self, name: str) -> tuple[str, ...]:
        found: list[tuple[str, ...]] = []
        hint = "expected  type discrete [ 2 ] { a, b };"

        def statement() -> None:
            if not self.token.says("type"):
                self.other("type", "property")
                return
            self.take()
            if not self.token.says("discrete"):
                raise self.wrong(f"variable {shown([name])}: is not discrete", hint=hint)
            found.append(self.values_of_type(name))

        at = self.token
        self.block(statement)
        if len(found) != 1:
            raise self.wrong(f"variable {shown([name])}: {len(found)} types", hint=hint, at=at)
        return found[0]

    def values_of_type(self, name: str) -> tuple[str, ...]:
        self.take()
        self.expect("[")
        count = self.name()
        self.expect("]")
        self.expect("{")
        labels = self.listed("}")
        number = count.text[:7]
        if not number.isdecimal() or len(set(labels)) != len(labels) or len(labels) != int(number):
            got = f"{number} different values announced, got {shown(labels)}"
            raise self.wrong(f"variable {shown([name])}: {got}", at=count)
        return labels

    def probability(self, found: NetworkText, place: Place) -> None:
        self.expect("(")
        name = self.once(found.families, "probability of")
        bar = self.take_mark("|")
        parents = []
        while not self.take_mark(")"):
            if not self.take_mark(","):
                parents.append(self.name("a parent's name", hint=QUOTED).text)
        rows: list[Row] = []
        self.block(lambda: rows.extend(self.row()))
        found.families[name] = Family(place, tuple(parents), bar or not parents, tuple(rows))

    def row(self) -> Iterator[Row]:
        keyword, labels = "", tuple[str, ...]()
        if self.token.says("table", "default"):
            keyword = self.take().text.lower()
        elif self.take_mark("("):
            labels = self.listed(")")
        else:
            self.other("table", "default", "( values )", "property")
            return
        yield Row(keyword, labels, _COMMENT.sub(" ", self.raw(";", within="{}")))

    def listed(self, closing: str) -> tuple[str, ...]:
        """Values up to `closing`, parted by commas, or else spaces; `(0.5, 1]` is one value."""
        parts: list[list[Token]] = [[]]
        commas, inside = False, 0
        while inside or not self.token.marks(closing):
            if self.token.kind == "end" or self.token.marks("{", "}", ";", "|"):
                raise self.wanted(f"{closing!r}")
            token = self.take()
            inside += token.marks("(", "[") - token.marks(")", "]")
            if token.marks(",") and not inside:
                commas = True
                parts.append([])
            else:
                parts[-1].append(token)
        self.take()
        if not commas:  # each token, or interval, is a value
            tokens, parts = parts[0], []
            for token in tokens:
                if not inside:
                    parts.append([])
                parts[-1].append(token)
                inside += token.marks("(", "[") - token.marks(")", "]")
        return tuple(
            p[0].text if len(p) == 1 else " ".join(self.text[p[0].start : p[-1].end].split())
            for p in parts
            if p
        )
