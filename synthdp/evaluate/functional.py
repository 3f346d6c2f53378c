"""What looks declarable: columns that real rows show to follow from others, or be bound by them.

Everything here is computed on real rows and is for the steward alone. A suggestion is no proof: it
says what held in the rows looked at. Only what holds in all of them, with enough rows that chance
does not explain it, is suggested; rows that miss a value count neither for it nor against it. What
is looked at is bounded by `Limits`, which are public, so that time and memory are.

What is looked for are orders of two columns, and columns that follow from another. Columns are read
as its expressions read them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml

from synthdp.data.domain import Domain
from synthdp.data.encoding import to_numbers
from synthdp.spec.checks.checks import cross_problems
from synthdp.spec.expressions.expressions import LARGEST, parse
from synthdp.spec.expressions.parsed import quoted
from synthdp.spec.load import yaml_tree
from synthdp.spec.load.wording import SpecMistake
from synthdp.spec.model import Column, Ranged, ReleaseSpec

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Mapping[str, Floats]
"""Columns by name, `[rows]` each: dates in days since 1970, categories by position, NaN missing."""


@dataclass(frozen=True)
class Evidence:
    """What a claim has to rest on.

    `rows`: fewest with all values, and `others` in which a column is not at its commonest one;
    `odds`: a claim is shown where chance alone would give it a probability of about e^-odds;
    `first_rows`: rows that are looked at first; `values`: most of a column of whole numbers that is
    looked at as if it had categories; `turned`: least share of pairs of values of different rows in
    which an order is turned, computed from `shuffled` rows at most; `alike`: least overlap of
    declared ranges, as a share of both together, to compare numbers.
    """

    rows: int = 50
    others: int = 20
    odds: float = 20.0
    first_rows: int = 500
    values: int = 40
    turned: float = 0.05
    shuffled: int = 2000
    alike: float = 0.5


NEEDED = Evidence()


@dataclass(frozen=True)
class Claim:
    """An order of two columns, or that each value of the first goes with one of the second: `pairs`
    says with which.

    `text` is that as a constraint, empty where expressions cannot say it, and `remark` says it in
    words.
    """

    columns: tuple[str, str]
    text: str
    remark: str = ""
    pairs: Mapping[float, float] | None = None


def values_of(domain: Domain, frame: pd.DataFrame) -> dict[str, Floats]:
    """The columns of `domain` that `frame` holds, as expressions read them."""
    values = dict[str, Floats]()
    for column in (c for c in domain.columns if c.name in frame):
        cells = frame[column.name]
        if column.ranged:
            values[column.name] = to_numbers(column, cells) * column.unit
        else:
            labels = pd.Index(column.labels[: column.missing_level], dtype=object)
            places = labels.get_indexer(pd.Index(cells.astype(object)))
            values[column.name] = np.where(places < 0, np.nan, places.astype(np.float64))
    return values


def known_in(values: Values, names: Sequence[str]) -> Mask:
    """Rows that miss none of the columns, `[rows]`."""
    return np.asarray(np.all([~np.isnan(values[name]) for name in names], axis=0))


def varies(values: Floats) -> bool:
    """Whether enough rows are known, and enough of these differ from the commonest value."""
    known = values[~np.isnan(values)]
    if len(known) < NEEDED.rows:
        return False
    _, counts = np.unique(known, return_counts=True)
    return len(known) - int(counts.max()) >= NEEDED.others


def few_values(name: str, column: Column, values: Values) -> bool:
    """Whether a column has categories, or whole numbers of few values."""
    if not column.ranged:
        return True
    if column.operand != "number" or column.continuous:
        return False
    return len(np.unique(values[name][~np.isnan(values[name])])) <= NEEDED.values


def level_claims(
    columns: Mapping[str, Column], values: Values, *, related: Sequence[frozenset[str]]
) -> list[Claim]:
    """Functions among columns of few values that follow from no others, nor are `related`."""
    names = list(columns)
    pairs = {
        (a, b): found
        for a in names
        for b in names
        if a != b
        and not any({a, b} <= group for group in related)
        and (found := function(values[a], values[b])) is not None
    }
    claims = []
    for (a, b), found in pairs.items():
        turned = (b, a) in pairs
        if turned and names.index(b) < names.index(a):
            continue  # said once
        if any(_follows(a, m, b, pairs, names) for m in names):
            continue
        text = _implications(columns, values, a, b, found)
        remark = f"each {quoted(a)} goes with one {quoted(b)}"
        if turned:
            remark += ", and the other way round: one of the two is enough"
        claims.append(Claim((a, b), text, remark, found))
    return claims


def _follows(
    a: str, m: str, b: str, pairs: Mapping[tuple[str, str], object], names: Sequence[str]
) -> bool:
    """Whether `b` is a function of `a` by way of `m`; of mutual functions the first counts."""

    def before(other: str) -> bool:
        return names.index(m) < names.index(other)

    return (
        {(a, m), (m, b)} <= pairs.keys()
        and ((m, a) not in pairs or before(a))
        and ((b, m) not in pairs or before(b))
    )


def function(x: Floats, y: Floats) -> dict[float, float] | None:
    """The value of `y` for each of `x`, if all rows have that one, and not by chance.

    By chance, rows beyond the first of a value of `x` would all agree with it with a probability of
    about e^-(their number times the probability that two values of `y` differ).
    """
    for rows in (slice(NEEDED.first_rows), slice(None)):
        known = ~(np.isnan(x[rows]) | np.isnan(y[rows]))
        a, b = x[rows][known], y[rows][known]
        if not len(a):
            return None
        values, first, place = np.unique(a, return_index=True, return_inverse=True)
        if (b != b[first][place]).any():
            return None
    _, counts = np.unique(b, return_counts=True)
    differ = 1 - float(((counts / len(b)) ** 2).sum())  # the probability that two values do
    if (len(a) - len(values)) * differ < NEEDED.odds:
        return None
    return dict(zip(values.tolist(), b[first].tolist(), strict=True))


def _implications(
    columns: Mapping[str, Column], values: Values, a: str, b: str, found: Mapping[float, float]
) -> str:
    """The function as a constraint; values of few rows are left free."""
    known = known_in(values, (a, b))
    seen, counts = np.unique(values[a][known], return_counts=True)
    often = seen[counts >= NEEDED.others].tolist()
    parts = []
    for value in sorted(set(found.values())):
        those = [_literal(columns[a], v) for v in often if found[v] == value]
        if those:
            then = f"{quoted(b)} == {_literal(columns[b], value)}"
            apart = f"not in ({', '.join(those)})" if len(those) > 1 else f"!= {those[0]}"
            parts.append(f"({quoted(a)} {apart} or {then})")
    return " and ".join(parts) if len(parts) > 1 else ""


def _literal(column: Column, value: float) -> str:
    return repr(column.labels[int(value)]) if column.labels else f"{value:.12g}"


def order_claims(
    columns: Mapping[str, Column], values: Values, *, related: Collection[frozenset[str]]
) -> list[Claim]:
    """Orders that hold in all rows and follow from no others, nor of `related` columns."""
    above: dict[str, set[str]] = {name: set() for name in columns}
    for a, b in itertools.combinations(columns, 2):
        if not comparable(columns[a], columns[b]) or any({a, b} <= group for group in related):
            continue
        upper = _upper(values, a, b)
        if upper is not None:
            above[b if upper == a else a].add(upper)
    return [
        Claim((low, high), f"{quoted(low)} <= {quoted(high)}")
        for low, highs in above.items()
        for high in sorted(highs, key=list(columns).index)
        if not any(high in above[between] for between in highs)
    ]


def comparable(one: Column, other: Column) -> bool:
    """Whether the spec says of both that they are dates, or numbers of one unit or alike ranges."""
    if not (isinstance(one, Ranged) and isinstance(other, Ranged)) or one.operand != other.operand:
        return False
    if one.operand == "number" and one.unit and other.unit:
        return one.unit == other.unit
    low, high = (
        [float(c.number(getattr(c, end))) * (c.step_seconds or 1) for c in (one, other)]
        for end in ("lower", "upper")
    )
    return min(high) - max(low) >= NEEDED.alike * (max(high) - min(low))


def _upper(values: Values, a: str, b: str) -> str | None:
    """Which of two columns is never the smaller, where another order would be plausible."""
    x, y = values[a], values[b]
    for rows in (slice(NEEDED.first_rows), slice(None)):
        less, more = bool((x[rows] < y[rows]).any()), bool((x[rows] > y[rows]).any())
        if less and more:
            return None
    if less == more:  # they are equal, which is a relation of another kind
        return None
    known = known_in(values, (a, b))
    high, low = (x[known], y[known]) if more else (y[known], x[known])
    if len(high) < NEEDED.rows:
        return None
    # The share of all pairs of one value of each column in which the usual order is turned.
    ascending, some = np.sort(high[: NEEDED.shuffled]), low[: NEEDED.shuffled]
    turned = float(np.searchsorted(ascending, some, side="left").mean() / len(ascending))
    # If rows were no more than values put side by side, all of them would have this order with a
    # probability of at most (1 - turned)^rows.
    likely = turned >= NEEDED.turned and -len(high) * np.log1p(-min(turned, 0.99)) >= NEEDED.odds
    return (a if more else b) if likely else None


@dataclass(frozen=True)
class Limits:
    """How much is looked at and shown, at most.

    `rows` of each table, chosen at random; `columns` of numbers and dates, and as many of
    categories: the spec's first ones; claims of one kind that are `checked`, and suggestions of one
    kind that are `shown`; characters of the `text` of a constraint.
    """

    rows: int = 20_000
    columns: int = 60
    checked: int = 100
    shown: int = 20
    text: int = 1000


LIMITS = Limits()


@dataclass(frozen=True)
class Suggestion:
    """One line for the spec, or a remark where the spec cannot say it.

    A `constraint` line is an item of `constraints`; of the kind "words", `line` is empty. It held
    in all of `holds` real rows, those that have every value, of the rows looked at. `broken` is the
    share of synthetic rows that break it, None without any.
    """

    kind: Literal["constraint", "words"]
    columns: tuple[str, ...]
    line: str
    remark: str
    holds: int
    broken: float | None


@dataclass(frozen=True)
class SuggestionReport:
    """All suggestions; `rows` real rows and `columns` columns were looked at, `left_out` not."""

    suggestions: tuple[Suggestion, ...]
    rows: int
    columns: int
    left_out: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def suggest(
    spec: ReleaseSpec,
    domain: Domain,
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    rng: np.random.Generator,
    limits: Limits = LIMITS,
) -> SuggestionReport:
    """What `spec` could declare of its columns, as the real rows look.

    The frames hold cleaned values of the modelled columns. Whatever they hold, nothing is raised.
    """
    kinds = ([c for c in domain.columns if c.ranged == ranged] for ranged in (True, False))
    chosen = [column for columns in kinds for column in columns[: limits.columns]]
    looked = Domain(tuple(c for c in chosen if c.name in real and c.name in synthetic))

    def read(frame: pd.DataFrame) -> Values:
        if len(frame) > limits.rows:
            frame = frame.iloc[np.sort(rng.choice(len(frame), limits.rows, replace=False))]
        return values_of(looked, frame)

    values, drawn = read(real), read(synthetic)
    with np.errstate(all="ignore"):
        found = _Screen(spec, values, drawn, limits).suggestions()
    rows = min(len(real), limits.rows)
    return SuggestionReport(tuple(found), rows, len(looked), len(domain) - len(looked))


@dataclass(frozen=True)
class _Screen:
    """The real and the synthetic values of the columns looked at."""

    spec: ReleaseSpec
    real: Values
    drawn: Values
    limits: Limits

    def suggestions(self) -> list[Suggestion]:
        """All kinds; what is declared already is left out."""
        usable = (n for n, v in self.real.items() if varies(v) and np.nanmax(np.abs(v)) <= LARGEST)
        columns = {n: self.spec.columns[n] for n in usable}
        ranged = {n: c for n, c in columns.items() if c.ranged}
        few = {n: c for n, c in columns.items() if few_values(n, c, self.real)}
        parsed = (parse(text, self.spec.columns)[0] for text in self.spec.constraints)
        declared = [frozenset(e.columns) for e in parsed if e is not None]
        orders = order_claims(ranged, self.real, related=declared)
        levels = level_claims(few, self.real, related=declared)

        kinds = (self._told(orders), self._told(levels))
        return [found for kind in kinds for found in islice(kind, self.limits.shown)]

    def _told(self, claims: Sequence[Claim]) -> Iterator[Suggestion]:
        for claim in claims[: self.limits.checked]:
            line = self._line(claim.text)
            expression = parse(claim.text, self.spec.columns)[0] if line else None
            if expression is None or expression.violated(self.real).any():
                line = ""
            there = known_in(self.drawn, claim.columns)
            if claim.pairs is not None:
                x, y = (self.drawn[n] for n in claim.columns)
                goes_with = np.array([claim.pairs.get(v, np.nan) for v in x.tolist()])
                wrong = ~np.isnan(goes_with) & (goes_with != y)
            elif line and expression is not None:
                wrong = expression.violated(self.drawn)
            else:
                continue
            broken = float(wrong[there].mean()) if there.any() else None
            holds = int(known_in(self.real, claim.columns).sum())
            kind: Literal["constraint", "words"] = "constraint" if line else "words"
            yield Suggestion(kind, claim.columns, line, claim.remark, holds, broken)

    @cached_property
    def _problems(self) -> frozenset[SpecMistake]:
        return frozenset(cross_problems(self.spec))

    def _line(self, text: str) -> str:
        """The text as an item of `constraints` that can be pasted; empty where the spec would
        refuse it.

        It is read as YAML by the loader's reader, and the spec with it goes through all checks that
        a loaded spec goes through.
        """
        dumped: str = yaml.safe_dump(
            [text], default_flow_style=None, width=10**6, allow_unicode=True, sort_keys=False
        )
        line = "- " + dumped.strip()[1:-1]
        tree, mistakes = yaml_tree.read(line + "\n")
        unread = tree is None or mistakes or tree.value() != [text]
        if not text or unread or len(text) > self.limits.text:
            return ""
        constraints = (*self.spec.constraints, text)
        amended = self.spec.model_copy(update={"constraints": constraints})
        return "" if set(cross_problems(amended)) - self._problems else line
