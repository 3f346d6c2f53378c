"""The grammar of questions, e.g. "mean(visits) where age >= 65 by sex".

    share(CONDITION) | count(CONDITION) | count() | mean(COLUMN) | sum(COLUMN)
    | quantile(COLUMN, P) | median(COLUMN) | correlation(COLUMN, COLUMN)
    [where CONDITION] [weighted by COLUMN] [by COLUMN, COLUMN ...]

The median is the quantile of 0.5. Shares and means may be weighted. A condition is one of the
spec's constraints that compares columns with constants. The tables of a bundle know levels; what
they say of such a condition can be read off exactly, or is known not to be.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NoReturn

from synthdp.errors import QueryError
from synthdp.spec.expressions.expressions import calculated, constants_of, parse
from synthdp.spec.expressions.parsed import (
    IN_BACKTICKS,
    Expression,
    ExpressionMistake,
    SourceText,
    quoted,
    unquoted,
)
from synthdp.spec.load.wording import got, nearest
from synthdp.spec.model import Column, derived_of

Statistic = Literal["share", "count", "mean", "sum", "quantile", "correlation"]
STATISTICS: Mapping[str, Statistic] = {
    "share": "share", "count": "count", "mean": "mean", "sum": "sum", "quantile": "quantile",
    "median": "quantile", "correlation": "correlation",
}  # fmt: skip
FORM = (
    "share(CONDITION), count(CONDITION), mean(COLUMN), sum(COLUMN), median(COLUMN), quantile("
    "COLUMN, P) or correlation(COLUMN, COLUMN), then perhaps `where CONDITION`, `weighted"
    " by COLUMN` (of a share or a mean), `by COLUMN, COLUMN`"
)
CHANGE = re.compile(r"\s*change\s+in\s+(.+)\s+since\s+(\S+)\s*", re.DOTALL)
"""A question, and the wave since which its change is asked for."""
_QUOTED = re.compile(rf"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|{IN_BACKTICKS}")
_HEAD = re.compile(r"\s*(\w+)\s*\(")
_NAME = re.compile(rf"\s*(?:{IN_BACKTICKS}|([^\W\d]\w*))\s*\Z")


@dataclass(frozen=True)
class Query:
    """A question that was read: what is asked, of which rows, and by which groups.

    `condition` is of a share or a count (None counts all rows), `column` of the other statistics,
    `other` the second column of a correlation, and `weight` how often a row counts. `columns` are
    all that the question reads, in the spec's order. `constants` are the numbers that its
    conditions compare with, dates in days since 1970. `clip` is where the numbers of a mean end, if
    they are cut.
    """

    text: str
    statistic: Statistic
    columns: tuple[str, ...]
    condition: Expression | None = None
    column: str | None = None
    other: str | None = None
    p: float = 0.5
    where: Expression | None = None
    by: tuple[str, ...] = ()
    constants: tuple[float, ...] = ()
    weight: str | None = None
    clip: tuple[float, ...] | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns whose own values are asked about."""
        return tuple(name for name in (self.column, self.other, self.weight) if name)

    def asks_like(self, other: Query) -> bool:
        """Whether both ask the same, in the same words but for the blanks between them."""

        def said(query: Query) -> tuple[object, ...]:
            texts = (query.condition, query.where)
            trees = [e and ast.dump(SourceText(e.text).parsed()) for e in texts]
            return (query.statistic, query.numbers, query.p, query.by, *trees)

        return said(self) == said(other)


def counted(query: Query) -> tuple[str, ...]:
    """The columns in whose levels rows are counted for a question: those of a quantile, too."""
    quantile = query.numbers if query.statistic == "quantile" else ()
    return tuple(dict.fromkeys((*query.by, *quantile)))


@dataclass(frozen=True)
class _Part:
    """A piece of the text, and the character that it begins at, counted from 0."""

    text: str
    start: int


def _masked(text: str) -> str:
    """The text with `_` for what stands in quotes or backticks."""
    return _QUOTED.sub(lambda m: "_" * len(m[0]), text)


def _pieces(part: _Part) -> list[_Part]:
    """What stands between the commas of a piece of the text."""
    ends = [*(m.start() for m in re.finditer(",", _masked(part.text))), len(part.text)]
    starts = [0, *(end + 1 for end in ends)]
    pairs = zip(starts, ends, strict=False)
    return [_Part(part.text[a:b], part.start + a) for a, b in pairs]


def parse_query(text: str, columns: Mapping[str, Column]) -> Query:
    """The question that `text` asks of a table with these columns.

    Raises:
        QueryError: with every mistake, at its character.

    >>> from synthdp.spec.model import Boolean, Integer
    >>> age = Integer(type="integer", lower=0, upper=99, unit="years")
    >>> smoker = Boolean(type="boolean", **{"false": "no", "true": "yes"})
    >>> asked = parse_query("mean(age) where not smoker", {"age": age, "smoker": smoker})
    >>> asked.statistic, asked.column, asked.columns
    ('mean', 'age', ('age', 'smoker'))
    """
    return _Reader(text, columns).query()


class _Reader:
    """Reads one question; mistakes are collected, so that all of them are told at once."""

    def __init__(self, text: str, columns: Mapping[str, Column]) -> None:
        self.text, self.columns = text, columns
        self.mistakes: list[ExpressionMistake] = []
        self.constants: list[float] = []
        self.median = False

    def query(self) -> Query:
        statistic, inside, clauses = self._parts()
        condition, column, other, p = None, None, None, 0.5
        if statistic == "correlation":
            column, other = self._two_columns(inside)
        elif statistic not in ("share", "count"):
            column, p = self._column_and_p(statistic, inside)
        elif inside.text.strip() or statistic == "share":
            condition = self._condition(inside)
        chosen = self._condition(clauses["where"]) if "where" in clauses else None
        groups = self._groups(clauses["by"]) if "by" in clauses else ()
        weight = self._weight(statistic, clauses["weighted"]) if "weighted" in clauses else None
        if self.mistakes:
            raise QueryError(self.text, sorted(self.mistakes, key=lambda m: m.at))
        read = {
            column,
            other,
            weight,
            *groups,
            *(n for e in (condition, chosen) if e for n in e.columns),
        }
        used = tuple(name for name in self.columns if name in read)
        asked = (condition, column, other, p, chosen, groups)
        return Query(self.text, statistic, used, *asked, tuple(self.constants), weight)

    def _parts(self) -> tuple[Statistic, _Part, dict[str, _Part]]:
        """The statistic, what stands in its parentheses, and what follows each other word."""
        masked = _masked(self.text)
        head = _HEAD.match(masked)
        if head is None or head[1] not in STATISTICS:
            known = nearest(head[1], STATISTICS) if head else None
            self._stop(1, "cannot be read as a question", known or f"the form is {FORM}")
        self.median = head[1] == "median"
        depth, end = 1, head.end()
        while end < len(masked) and depth:
            depth += {"(": 1, ")": -1}.get(masked[end], 0)
            end += 1
        if depth:
            self._stop(head.end(), "this parenthesis is never closed")
        inside = _Part(self.text[head.end() : end - 1], head.end())
        words = list(re.finditer(r"\b(?:(where|by)|(weighted)\s+by)\b", masked[end:]))
        begins = [end + m.end() for m in words]
        stops = [*(end + m.start() for m in words[1:]), len(self.text)]
        between = masked[end : end + words[0].start()] if words else masked[end:]
        if between.strip() or len({m[1] or m[2] for m in words}) < len(words):
            at = end + len(masked[end:]) - len(masked[end:].lstrip())
            self._stop(at + 1, "cannot be read from here", f"the form is {FORM}")
        parts = zip(words, begins, stops, strict=False)
        found = {m[1] or m[2]: _Part(self.text[a:b], a) for m, a, b in parts}
        return STATISTICS[head[1]], inside, found

    def _condition(self, part: _Part) -> Expression | None:
        if not part.text.strip():
            self._miss(part.start + 1, "a condition is missing here", "e.g. age >= 65")
            return None
        expression, mistakes = parse(part.text, self.columns, derived=False)
        for mistake in mistakes:
            self._miss(part.start + mistake.at, mistake.message, mistake.hint)
        if expression is not None:
            source = SourceText(part.text)
            tree = source.parsed()
            for node in calculated(tree):
                message = "tables are not asked about calculations, or about two columns compared"
                hint = "compare a column with a constant, e.g. age >= 65"
                self._miss(part.start + source.place(node), message, hint)
            self.constants += constants_of(tree)
        return expression

    def _column_and_p(self, statistic: Statistic, inside: _Part) -> tuple[str | None, float]:
        """The column of a mean, a sum or a quantile, and the quantile's probability."""
        p, comma = 0.5, _masked(inside.text).rfind(",")
        named = inside
        if statistic == "quantile" and not self.median:
            number = inside.text[comma + 1 :].strip() if comma >= 0 else ""
            with suppress(ValueError):
                p = float(number)
            if comma < 0 or not re.fullmatch(r"0?\.\d+", number) or not 0 < p < 1:
                at = inside.start + (comma + 2 if comma >= 0 else len(inside.text) + 1)
                self._miss(at, "a quantile needs a probability", "e.g. quantile(age, 0.5)")
            named = _Part(inside.text[:comma] if comma >= 0 else inside.text, inside.start)
        name = self._name(named)
        if name is not None:
            self._check_kind(statistic, name, named)
        return name, p

    def _two_columns(self, inside: _Part) -> tuple[str | None, str | None]:
        parts = _pieces(inside)
        if len(parts) != 2:
            self._miss(
                inside.start + 1, "a correlation needs two columns", "e.g. correlation(age, visits)"
            )
            return None, None
        one, two = map(self._name, parts)
        for name, part in zip((one, two), parts, strict=True):
            if name is not None:
                self._check_kind("correlation", name, part)
        if one is not None and one == two:
            self._miss(parts[1].start + 1, f"{one!r} is named twice", "name two columns")
        return one, two

    def _groups(self, by: _Part) -> tuple[str, ...]:
        found = list[str]()
        for part in _pieces(by):
            name = self._name(part)
            if name is not None and name in found:
                self._miss(part.start + 1, f"{name!r} is named twice", "name each column once")
            elif name is not None:
                found.append(name)
        return tuple(found)

    def _weight(self, statistic: Statistic, part: _Part) -> str | None:
        name = self._name(part)
        if statistic not in ("share", "mean"):
            self._miss(part.start + 1, f"a {statistic} has no weights", "a share or a mean has")
        elif name is not None:
            self._check_kind("mean", name, part)
            lower = getattr(self.columns[name], "lower", 0)
            if isinstance(lower, int | float) and lower < 0:
                self._miss(
                    part.start + 1, f"{name!r} goes down to {lower:g}", "no weight is below 0"
                )
        return name

    def _check_kind(self, statistic: Statistic, name: str, part: _Part) -> None:
        column = self.columns[name]
        needed = ("number", "date") if statistic == "quantile" else ("number",)
        if column.operand not in needed:
            hint = f"ask for quantile({quoted(name)}, 0.5)"
            if column.operand == "text":
                first = got(next(iter(column.labels), ""))
                condition = quoted(name) if column.truth else f"{quoted(name)} == {first}"
                hint = f"ask for a share, e.g. share({condition})"
            message = f"column {name!r} has no {statistic}: it holds no numbers"
            self._miss(part.start + 1, message, hint)

    def _name(self, part: _Part) -> str | None:
        """The name of a column, plain or in backticks; None if it is none."""
        at = part.start + len(part.text) - len(part.text.lstrip()) + 1
        match = _NAME.match(part.text)
        if match is None:
            self._miss(at, "the name of one column is needed here", self._how_named(part.text))
            return None
        name = unquoted(match[1]) if match[1] is not None else match[2]
        if name not in self.columns:
            shown = ", ".join(list(self.columns)[:20])
            hint = nearest(name, self.columns) or f"columns are {shown}"
            self._miss(at, f"unknown column {got(name)}", hint)
            return None
        if derived_of(self.columns[name]) is not None:
            self._miss(at, f"column {name!r} is computed from others, and was not counted")
            return None
        return name

    def _how_named(self, text: str) -> str:
        """How to name one column in the place of `text`, which is no name."""
        if text.strip() in self.columns:
            return f"write {quoted(text.strip())}, in backticks"
        if "," in text:
            return "only one column can stand here; ask about the other's values with `where`"
        if "`" in text:
            return "a backtick inside a name is written twice: `a``b`"
        return "e.g. age, or `age at visit`"

    def _miss(self, at: int, message: str, hint: str | None = None) -> None:
        self.mistakes.append(ExpressionMistake(at, message, hint))

    def _stop(self, at: int, message: str, hint: str | None = None) -> NoReturn:
        raise QueryError(self.text, [ExpressionMistake(at, message, hint)])
