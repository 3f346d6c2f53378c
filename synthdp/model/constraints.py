"""Constraints of the spec, enforced on synthetic rows alone: post-processing, which costs no
privacy.

A constraint speaks about written values, the model about levels. So rows are decoded first, those
that violate one are
dropped, and more are drawn in their place: what is left follows the model's law, conditioned on
every constraint. Real rows are never held to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, decode, decode_column, encode_column, to_numbers
from synthdp.errors import GateError
from synthdp.model.derived import Derived
from synthdp.spec.expressions.expressions import Expression, parse
from synthdp.spec.model import RESOLUTION_SECONDS, ReleaseSpec

MIN_SHARE = 0.01  # drawing again is given up where fewer rows hold
FIRST_DRAW = 20_000  # no share is judged on fewer rows
MAX_REDRAWS = 1 << 20  # rows that are drawn again at once

Mask = npt.NDArray[np.bool_]
Values = Mapping[str, npt.NDArray[np.float64]]


class ConstraintsUnmet(GateError):
    """Too few rows fulfil the constraints. The shares in the message are of synthetic rows."""


@dataclass(frozen=True)
class Constraints:
    """The constraints of a spec over its domain."""

    domain: Domain
    expressions: tuple[Expression, ...]
    derived: Derived = field(default_factory=Derived)

    @classmethod
    def from_spec(cls, spec: ReleaseSpec, domain: Domain) -> Constraints:
        """The constraints of a checked spec."""
        parsed = [parse(text, spec.columns)[0] for text in spec.constraints]
        return cls(
            domain, tuple(e for e in parsed if e is not None), Derived.from_spec(spec.columns)
        )

    @cached_property
    def columns(self) -> tuple[ColumnDomain, ...]:
        """The modelled columns that they read, also through derived ones."""
        read = {name for e in self.expressions for name in e.columns}
        return tuple(c for c in self.domain.columns if c.name in read)

    def violated(self, values: Values) -> Mask:
        """Which constraint each row violates, shape `[constraints, rows]`; `values` of modelled
        columns as `numbers` gives them.
        """
        values = {**values, **self.derived.values(values)}
        with np.errstate(all="ignore"):
            return np.stack([e.violated(values) for e in self.expressions])

    def violated_by(self, codes: Codes, frame: Mapping[str, pd.Series[object]]) -> Mask:
        """Which constraint each row violates, for levels `[rows, columns]` and the values that they
        were decoded to.
        """
        return self.violated(
            {
                c.name: numbers(c, codes[:, self.domain.index(c.name)], frame.get(c.name))
                for c in self.columns
            }
        )

    def violated_in(self, text: pd.DataFrame) -> dict[str, Mask]:
        """Which rows of a published table violate each constraint, for values as text; empty text
        is a missing value.
        """
        if not self.expressions:
            return {}
        frame = {c.name: text[c.name].mask(text[c.name] == "") for c in self.columns}
        found = self.violated(
            {
                c.name: numbers(c, encode_column(c, frame[c.name]).codes, frame[c.name])
                for c in self.columns
            }
        )
        return {e.text: violated for e, violated in zip(self.expressions, found, strict=True)}

    def decode_ranged(self, codes: Codes, rng: np.random.Generator) -> dict[str, pd.Series[object]]:
        """Values of the numbers and dates that they read; categories are read as levels."""
        return {
            c.name: decode_column(c, codes[:, self.domain.index(c.name)], rng=rng)
            for c in self.columns
            if c.ranged
        }

    def draw(self, draw: Callable[[int], Codes], rows: int, *, rng: np.random.Generator) -> Codes:
        """`rows` rows of levels from `draw`, each of which held in one decoding: more are drawn for
        those that do not.

        Raises:
            ConstraintsUnmet: fewer than `MIN_SHARE` of what is drawn holds.
        """
        if not self.expressions:
            return draw(rows)
        kept: list[Codes] = []
        broken, drawn, have = np.zeros(len(self.expressions)), 0, 0
        while have < rows:
            share = max(have / drawn, MIN_SHARE) if drawn else 1.0
            codes = draw(
                int(np.clip(1.05 * (rows - have) / share, FIRST_DRAW, max(FIRST_DRAW, rows)))
            )
            violated = self.violated_by(codes, self.decode_ranged(codes, rng))
            kept.append(codes[~violated.any(0)])
            broken, drawn, have = broken + violated.sum(1), drawn + len(codes), have + len(kept[-1])
            self.check_share(broken, drawn, have)
        return np.concatenate(kept)[:rows]

    def check_share(self, broken: npt.NDArray[np.float64], drawn: int, kept: int) -> None:
        """Whether enough of the rows drawn so far held; `broken` counts the rows that violate each
        constraint.

        Raises:
            ConstraintsUnmet: naming the constraint that most rows violate.
        """
        if drawn >= FIRST_DRAW and kept < MIN_SHARE * drawn:
            worst = int(np.argmax(broken))
            raise ConstraintsUnmet(
                f"constraints: only {kept / drawn:.2g} of {drawn:,} synthetic rows fulfil all of"
                f" them; the hardest, {self.expressions[worst].text!r}, holds for"
                f" {1 - broken[worst] / drawn:.2g}",
                hint=(
                    "rows are drawn until enough fulfil the constraints, down to a share of"
                    f" {MIN_SHARE:g}; loosen that one, or use wider bins"
                ),
            )

    def decode(self, codes: Codes, *, rng: np.random.Generator) -> pd.DataFrame:
        """Values for levels `[rows, columns]` that `draw` gave: a row that violates a constraint is
        drawn again inside its bins.

        Levels of which a share q of decodings holds were kept with chance q and take 1 / q redraws,
        so that all rows together take at most 1 / `MIN_SHARE` each in expectation.

        Raises:
            ConstraintsUnmet: a row's levels hold next to no values that fulfil the constraints.
        """
        frame = decode(self.domain, codes, rng=rng)
        bad = (
            np.flatnonzero(self.violated_by(codes, frame).any(0))
            if self.expressions
            else np.zeros(0, np.intp)
        )
        tries, redrawn = 1, 0
        while len(bad):
            tries = min(2 * tries, max(1, MAX_REDRAWS // len(bad)))
            again = np.repeat(bad, tries)
            redrawn += len(again)
            if redrawn > 4 * MAX_REDRAWS + 10 / MIN_SHARE * len(
                codes
            ):  # ten times what is expected at most
                raise ConstraintsUnmet(
                    "constraints: the values inside the bins of some rows next to never fulfil"
                    " them",
                    hint="use narrower bins",
                )
            drawn = self.decode_ranged(codes[again], rng)
            holds = ~self.violated_by(codes[again], drawn).any(0)
            rows, first = np.unique(
                again[holds], return_index=True
            )  # the first try that held, for each row
            chosen = np.flatnonzero(holds)[first]
            for name, values in drawn.items():
                frame.loc[rows, name] = values.iloc[chosen].array
            bad = np.setdiff1d(bad, rows)
        return frame


def numbers(
    column: ColumnDomain, codes: npt.NDArray[np.integer], values: pd.Series[object] | None
) -> npt.NDArray[np.float64]:
    """A column as constraints read it, shape `[rows]`: categories by position, dates in days since
    1970, NaN where missing.
    """
    if not column.ranged:
        missing = column.levels if column.missing_level is None else column.missing_level
        return np.where(codes == missing, np.nan, codes.astype(np.float64))
    assert values is not None
    steps = to_numbers(column, values)
    return (
        steps * RESOLUTION_SECONDS[column.resolution] / 86_400
        if column.type == "datetime"
        else steps
    )
