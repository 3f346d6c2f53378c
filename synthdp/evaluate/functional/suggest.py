"""What looks declarable: columns that real rows show to be functions of others, or bound by them.

Everything here is computed on real rows and is for the steward alone. A suggestion is no proof: it
says what held in the rows looked at. Only what holds in all of them, with enough rows that chance
does not explain it, is suggested; rows that miss a value count neither for it nor against it.

What is looked at is bounded by the constants below, which are public, so that time and memory are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml
from pydantic import ValidationError

from synthdp.data.domain import Domain
from synthdp.evaluate.functional.claims import (
    DAY,
    DerivedClaim,
    Floats,
    LevelsClaim,
    Mask,
    OrderClaim,
    Values,
    known_in,
    rounding,
    values_of,
    varies,
    written_rounding,
)
from synthdp.evaluate.functional.levels import (
    CUT,
    calendar_claims,
    cut_claims,
    few_values,
    level_claims,
    order_claims,
    parts_of,
    starts_of,
)
from synthdp.evaluate.functional.linear import COARSE, EXACT, linear_claims, product_claims
from synthdp.spec.checks.checks import cross_problems
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.operands import LARGEST, calculation
from synthdp.spec.expressions.parsed import Calculation, quoted
from synthdp.spec.load.yaml_tree import read
from synthdp.spec.model import Column, ReleaseSpec

MAX_ROWS = 20_000
"""Most rows of each table, chosen at random."""
MAX_COLUMNS = 60
"""Most columns of numbers and dates, and most of categories: the first ones of the spec."""
MAX_DATES = 5
"""Most date columns whose parts are compared with others."""
MAX_CHECKED = 100
"""Most claims of one kind that are checked."""
MAX_SHOWN = 20
"""Most suggestions of one kind."""

Kind = Literal["derived", "constraint", "words"]


@dataclass(frozen=True)
class Suggestion:
    """One line for the spec, or a remark where the spec cannot say it.

    A `derived` line is a column's entry, a `constraint` line an item of `constraints`; of the kind
    "words", `line` is empty. It held in all of `holds` real rows, those that have every value, of
    the rows looked at. `broken` is the share of synthetic rows that break it, None without any;
    `off` by how much on average, in the column's unit, for columns that are computed.
    """

    kind: Kind
    columns: tuple[str, ...]
    line: str
    remark: str
    holds: int
    broken: float | None
    off: float | None = None


@dataclass(frozen=True)
class SuggestionReport:
    """All suggestions; `rows` real rows and `columns` columns were looked at, `left_out` not."""

    suggestions: tuple[Suggestion, ...]
    rows: int
    columns: int
    left_out: int

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def suggest(
    spec: ReleaseSpec,
    domain: Domain,
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    rng: np.random.Generator,
) -> SuggestionReport:
    """What `spec` could declare of its columns, as the real rows look.

    The frames hold cleaned values of the modelled columns. Whatever they hold, nothing is raised.
    """
    chosen = [c for ranged in (True, False) for c in _first(domain, ranged)]
    looked = Domain(tuple(c for c in chosen if c.name in real and c.name in synthetic))
    values = values_of(looked, _some(real, rng))
    drawn = values_of(looked, _some(synthetic, rng))
    rows = min(len(real), MAX_ROWS)
    with np.errstate(all="ignore"):
        found = _Screen(spec, values, drawn, rows).suggestions()
    return SuggestionReport(tuple(found), rows, len(looked), len(domain) - len(looked))


def _first(domain: Domain, ranged: bool) -> Iterator[Any]:
    return islice((c for c in domain.columns if c.ranged == ranged), MAX_COLUMNS)


def _some(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """At most `MAX_ROWS` rows of a table."""
    if len(frame) <= MAX_ROWS:
        return frame
    return frame.iloc[np.sort(rng.choice(len(frame), MAX_ROWS, replace=False))]


@dataclass(frozen=True)
class _Screen:
    """The real and the synthetic values of the columns looked at."""

    spec: ReleaseSpec
    real: Values
    drawn: Values
    rows: int

    def suggestions(self) -> list[Suggestion]:
        """All kinds; what is declared already is left out."""
        columns = {n: self.spec.columns[n] for n, v in self.real.items() if _usable(v)}
        ranged = {n: c for n, c in columns.items() if c.ranged}
        linear = linear_claims(ranged, self.real)
        groups = [frozenset(claim.columns) for claim in linear]
        linear += product_claims(ranged, self.real, related=groups)
        writer = Writer(self.spec)
        derived = self._kept(self._derived(writer, linear))
        told = [frozenset(s.columns) for s in derived] + self._declared()
        few = {n: c for n, c in columns.items() if few_values(n, c, self.real)}
        orders = order_claims(ranged, self.real, related=told)
        levels = level_claims(few, self.real, related=told)
        levels += cut_claims(list(ranged), few, self.real, related=told)
        dates = [n for n, c in ranged.items() if c.operand == "date"][:MAX_DATES]
        levels += [
            c for c in calendar_claims(dates, few, self.real) if frozenset(c.columns) not in told
        ]
        return [
            *derived,
            *self._kept(self._ordered(writer, orders)),
            *self._kept(self._levels(writer, levels)),
        ]

    @staticmethod
    def _kept(found: Iterable[Suggestion]) -> list[Suggestion]:
        return list(islice(found, MAX_SHOWN))

    def _declared(self) -> list[frozenset[str]]:
        """Columns that a constraint of the spec reads together."""
        parsed = (parse(text, self.spec.columns)[0] for text in self.spec.constraints)
        return [frozenset(e.columns) for e in parsed if e is not None]

    def _derived(self, writer: Writer, claims: list[DerivedClaim]) -> Iterator[Suggestion]:
        """The first way that holds and that the spec can declare, or why it can declare none."""
        for claim in claims[:MAX_CHECKED]:
            ways = [(n, text, c) for n, text in claim.ways if (c := self._computed(n, text))]
            entries = ((way, writer.derived(*way[:2])) for way in ways)
            found = next(((way, entry) for way, entry in entries if entry.line), None)
            if found is not None:
                (_, _, counts), entry = found
                others = "each of these columns can be the one that is computed"
                remark = others if len(ways) > 1 else ""
                yield Suggestion("derived", claim.columns, entry.line, remark, *counts)
            elif ways:
                name, text, counts = ways[0]
                remark = (
                    f"{quoted(name)} is {text}; as a derived column the spec would be refused:"
                    f" {writer.derived(name, text).refusal}"
                )
                yield Suggestion("words", claim.columns, "", remark, *counts)

    def _computed(self, name: str, text: str) -> tuple[int, float | None, float | None] | None:
        """Real rows for which the text gives the column; how many synthetic ones it does not, and
        by how much. None where it does not hold.
        """
        columns = self.spec.columns
        computed, _ = calculation(text, columns)
        if computed is None:
            return None
        apart, slack = apart_of(self.real, name, computed, columns)
        known = ~np.isnan(apart)
        enough = all(varies(self.real[n][known]) for n in (name, *computed.columns))
        if not enough or not agree(self.real[name][known], apart[known], slack[known]):
            return None
        apart, slack = apart_of(self.drawn, name, computed, columns)
        there = ~np.isnan(apart)
        if not there.any():
            return int(known.sum()), None, None
        broken = float((apart > slack)[there].mean())
        return int(known.sum()), broken, float(apart[there].mean())

    def _ordered(self, writer: Writer, claims: list[OrderClaim]) -> Iterator[Suggestion]:
        for claim in claims[:MAX_CHECKED]:
            accepted = writer.constraint(claim.text)
            expression = parse(claim.text, self.spec.columns)[0]
            known = known_in(self.real, claim.columns, self.rows)
            if expression is None or expression.violated(self.real).any() or not accepted.line:
                continue
            there = known_in(self.drawn, claim.columns, len(self.drawn[claim.columns[0]]))
            broken = _share(expression.violated(self.drawn), there)
            yield Suggestion(
                "constraint", claim.columns, accepted.line, "", int(known.sum()), broken
            )

    def _levels(self, writer: Writer, claims: list[LevelsClaim]) -> Iterator[Suggestion]:
        for claim in claims[:MAX_CHECKED]:
            known = known_in(self.real, claim.columns, self.rows)
            x, y = self._sides(claim, self.drawn)
            there = ~np.isnan(x) & ~np.isnan(y)
            goes_with = np.array([claim.pairs.get(v, np.nan) for v in x.tolist()])
            broken = _share(~np.isnan(goes_with) & (goes_with != y), there)
            accepted = writer.constraint(claim.text)
            expression = parse(claim.text, self.spec.columns)[0] if accepted.line else None
            line = accepted.line
            if expression is None or expression.violated(self.real).any():
                line = ""
            kind: Kind = "constraint" if line else "words"
            yield Suggestion(kind, claim.columns, line, claim.remark, int(known.sum()), broken)

    @staticmethod
    def _sides(claim: LevelsClaim, values: Values) -> tuple[Floats, Floats]:
        first, second = (values[n] for n in claim.columns)
        if claim.part == CUT:
            return starts_of(first, claim.pairs), second
        return (parts_of(first, claim.part) if claim.part else first), second


def _usable(values: Floats) -> bool:
    """Whether a column varies, and holds no number that expressions could not."""
    return varies(values) and float(np.nanmax(np.abs(values))) <= LARGEST


def _share(rows: Mask, among: Mask) -> float | None:
    """Share of `rows` among others; None where there are no others."""
    return float(rows[among].mean()) if among.any() else None


# --- writing ---
#
# Suggestions as lines of a spec, as its own parser and checks accept them.
#
# Nothing is suggested that the spec would refuse: each line is read as YAML by the loader's
# reader, as a column by its model, and as an expression by its parser, and the spec with it goes
# through all checks that a loaded spec goes through.


HOW_MODELLED = ("bins", "edges", "spikes")
"""Fields that say how a column is modelled, which one that is computed is not."""


@dataclass(frozen=True)
class Accepted:
    """A line that can be pasted, or the reason why the spec would refuse it."""

    line: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Writer:
    """Writes lines for one spec."""

    spec: ReleaseSpec

    @cached_property
    def _before(self) -> frozenset[CrossProblem]:
        return frozenset(cross_problems(self.spec))

    def derived(self, name: str, text: str) -> Accepted:
        """The entry of a column that is computed by `text`."""
        columns = self.spec.columns
        computed, mistakes = calculation(text, columns)
        if computed is None:
            return Accepted(refusal=mistakes[0].message)
        column = columns[name]
        fields = column.model_dump(mode="json", exclude_unset=True, exclude=set(HOW_MODELLED))
        if computed.divides or any(columns[n].missing for n in computed.columns):
            fields["missing"] = True
        line = _dumped({name: {**fields, "derived": text}})
        found = _read(line)
        try:
            entry = type(column).model_validate(found[name])
        except (ValidationError, KeyError, TypeError):
            return Accepted(refusal="its entry cannot be written on one line")
        return self._checked(line, columns={**columns, name: entry})

    def constraint(self, text: str) -> Accepted:
        """An item of `constraints`."""
        line = _dumped([text])
        if not text or _read(line) != [text] or len(text) > 1000:
            return Accepted(refusal="expressions cannot say it")
        return self._checked(line, constraints=(*self.spec.constraints, text))

    def _checked(self, line: str, **changes: Any) -> Accepted:
        amended = self.spec.model_copy(update=changes)
        problems = [p for p in cross_problems(amended) if p not in self._before]
        return Accepted(refusal=problems[0].message) if problems else Accepted(line)


def _dumped(data: Mapping[str, Any] | list[str]) -> str:
    """One line of YAML."""
    text: str = yaml.safe_dump(
        data, default_flow_style=None, width=10**6, allow_unicode=True, sort_keys=False
    )
    return text.strip() if isinstance(data, Mapping) else "- " + text.strip()[1:-1]


def _read(line: str) -> Any:
    """What the loader's reader makes of a line; None where it finds a mistake."""
    tree, mistakes = read(line + "\n")
    return None if tree is None or mistakes else tree.value()


# --- checking ---
#
# Whether a column is what is computed from others, up to rounding.


INSIDE = 0.75
"""Of what rounding explains, the most by which half of the rows may be apart; 0.5 is expected."""


def apart_of(
    values: Values, name: str, computed: Calculation, columns: Mapping[str, Column]
) -> tuple[Floats, Floats]:
    """Distance of a column from what is computed, and what rounding explains of it, `[rows]`.

    The distance is NaN where a value is missing. Rounding of the inputs is followed through the
    calculation, one input at a time.
    """
    column: Any = columns[name]
    unit = 1.0 if column.step_seconds is None else column.step_seconds / DAY
    exact = np.asarray(computed.value(values), dtype=np.float64)
    slack = written_rounding(column) + EXACT * np.abs(exact)
    for other in computed.columns:
        step = rounding(columns[other])
        if step:
            moved = computed.value({**values, other: values[other] + step})
            slack = slack + np.abs(moved - exact)
    inside = np.clip(exact, column.number(column.lower) * unit, column.number(column.upper) * unit)
    apart = np.abs(np.where(np.isfinite(inside), inside, np.nan) - values[name])
    return apart, np.where(np.isfinite(slack), slack, 0.0)


def agree(values: Floats, apart: Floats, slack: Floats) -> bool:
    """Whether values are what is computed: exactly, or up to rounding that hides little.

    What is rounded to the values lies anywhere within the rounding, and mostly well inside; where
    it lies at the ends, something else than rounding parts them.
    """
    if (apart <= EXACT * 10 * np.abs(values).max()).all():
        return True
    return bool(
        (apart <= slack).all()
        and np.median(slack) <= COARSE * values.std()
        and np.median(apart / slack) <= INSIDE
    )
