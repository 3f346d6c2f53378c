"""What looks declarable: columns that real rows show to follow from others, or be bound by them.

Everything here is computed on real rows and is for the steward alone. A suggestion is no proof: it
says what held in the rows looked at. Only what holds in all of them, with enough rows that chance
does not explain it, is suggested; rows that miss a value count neither for it nor against it. What
is looked at is bounded by `Limits`, which are public, so that time and memory are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml

from synthdp.data.domain import Domain
from synthdp.evaluate.functional import levels as relations
from synthdp.evaluate.functional.levels import LevelsClaim, Mask, OrderClaim, Values, known_in
from synthdp.spec.checks.checks import cross_problems
from synthdp.spec.expressions.expressions import LARGEST, parse
from synthdp.spec.load import yaml_tree
from synthdp.spec.load.wording import SpecMistake
from synthdp.spec.model import ReleaseSpec


@dataclass(frozen=True)
class Limits:
    """How much is looked at and shown, at most.

    `rows` of each table, chosen at random; `columns` of numbers and dates, and as many of
    categories: the spec's first ones; `dates` whose parts are compared with others; claims of one
    kind that are `checked`, and suggestions of one kind that are `shown`; characters of the `text`
    of a constraint.
    """

    rows: int = 20_000
    columns: int = 60
    dates: int = 5
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
        return relations.values_of(looked, frame)

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
        usable = (
            n
            for n, v in self.real.items()
            if relations.varies(v) and np.nanmax(np.abs(v)) <= LARGEST
        )
        columns = {n: self.spec.columns[n] for n in usable}
        ranged = {n: c for n, c in columns.items() if c.ranged}
        few = {n: c for n, c in columns.items() if relations.few_values(n, c, self.real)}
        parsed = (parse(text, self.spec.columns)[0] for text in self.spec.constraints)
        declared = [frozenset(e.columns) for e in parsed if e is not None]
        orders = relations.order_claims(ranged, self.real, related=declared)
        levels = relations.level_claims(few, self.real, related=declared)
        levels += relations.cut_claims(list(ranged), few, self.real, related=declared)
        dates = [n for n, c in ranged.items() if c.operand == "date"][: self.limits.dates]
        calendar = relations.calendar_claims(dates, few, self.real)
        levels += [claim for claim in calendar if frozenset(claim.columns) not in declared]
        kinds: tuple[Iterable[Suggestion], ...] = (self._ordered(orders), self._levels(levels))
        return [found for kind in kinds for found in islice(kind, self.limits.shown)]

    def _ordered(self, claims: Sequence[OrderClaim]) -> Iterator[Suggestion]:
        for claim in claims[: self.limits.checked]:
            line, expression = self._line(claim.text), parse(claim.text, self.spec.columns)[0]
            if not line or expression is None or expression.violated(self.real).any():
                continue
            broken = _share(expression.violated(self.drawn), known_in(self.drawn, claim.columns))
            holds = int(known_in(self.real, claim.columns).sum())
            yield Suggestion("constraint", claim.columns, line, "", holds, broken)

    def _levels(self, claims: Sequence[LevelsClaim]) -> Iterator[Suggestion]:
        for claim in claims[: self.limits.checked]:
            x, y = (self.drawn[n] for n in claim.columns)
            if claim.part == relations.CUT:
                x = relations.starts_of(x, claim.pairs)
            elif claim.part:
                x = relations.parts_of(x, claim.part)
            goes_with = np.array([claim.pairs.get(v, np.nan) for v in x.tolist()])
            there = ~np.isnan(x) & ~np.isnan(y)
            broken = _share(~np.isnan(goes_with) & (goes_with != y), there)
            line = self._line(claim.text)
            expression = parse(claim.text, self.spec.columns)[0] if line else None
            if expression is None or expression.violated(self.real).any():
                line = ""
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


def _share(rows: Mask, among: Mask) -> float | None:
    """Share of `rows` among others; None where there are no others."""
    return float(rows[among].mean()) if among.any() else None
