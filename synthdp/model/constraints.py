"""Constraints of the spec, enforced on synthetic rows alone. All of it is post-processing.

A constraint is about written values, the model about levels. So rows are decoded first, those that
violate a constraint are dropped, and more are drawn in their place: the rest follows the model's
law, conditioned on every constraint. Real rows need not fulfil them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data import encoding
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, operand_values, to_numbers
from synthdp.data.kinds import column_kind
from synthdp.errors import GateError
from synthdp.spec.expressions.expressions import calculation, parse
from synthdp.spec.expressions.parsed import Calculation, Expression
from synthdp.spec.model import Column, ReleaseSpec, derived_of

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Values = Mapping[str, Floats]
"""Values of columns by name, `[rows]` each."""


@dataclass(frozen=True)
class DrawSettings:
    """How rows that fulfil the constraints are drawn.

    `min_share`: of rows that fulfil them, below which drawing stops; `first_draw`: fewest rows on
    which that share is judged; `max_redraws`: most rows that are drawn again at once.
    """

    min_share: float = 0.01
    first_draw: int = 20_000
    max_redraws: int = 1 << 20


SETTINGS = DrawSettings()


@dataclass(frozen=True)
class Derived:
    """The derived columns of a spec, and the order of all columns; none by default.

    They are computed from the other columns of a synthetic row when it is written. A result is
    rounded to the column's digits or steps; one beyond the column's bounds is written as the bound.
    It is missing where it cannot be computed.
    """

    written: Domain = field(default_factory=lambda: Domain(()))
    calculations: tuple[tuple[str, Calculation], ...] = ()

    @classmethod
    def from_spec(cls, columns: Mapping[str, Column]) -> Derived:
        """The derived columns of a checked spec's `columns`."""
        calculations = []
        for name, column in columns.items():
            text = derived_of(column)
            parsed = None if text is None else calculation(text, columns)[0]
            if parsed is not None:
                calculations.append((name, parsed))
        return cls(Domain.written(columns), tuple(calculations))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.calculations)

    def values(self, values: Values) -> dict[str, Floats]:
        """Derived columns of inputs among `values`: dates in days since 1970, NaN if missing."""
        results = {}
        for name, computed in self.calculations:
            if values.keys() >= set(computed.columns):
                column = self.written[name]
                results[name] = _rounded(column, _exact(column, computed, values)) * column.unit
        return results

    def added(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows with their derived columns, all columns in the spec's order."""
        if not self.calculations:
            return frame
        values = dict(frame.items())
        for name, computed in self.calculations:
            column = self.written[name]
            steps = _rounded(column, _exact(column, computed, self._inputs(computed, frame)))
            typed = column_kind(column).values(column, steps, np.isnan(steps))
            values[name] = typed.set_axis(frame.index)
        return pd.DataFrame({name: values[name] for name in self.written.names})

    def wrong_in(self, text: pd.DataFrame) -> dict[str, Mask]:
        """Rows of a published table, as text, in which a derived column is not its computation."""
        frame = text.mask(text == "") if self.calculations else text
        wrong = dict[str, Mask]()
        for name, computed in self.calculations:
            column = self.written[name]
            exact = _exact(column, computed, self._inputs(computed, frame))
            stated = to_numbers(column, frame[name])
            allowed = 0.5 * 10.0**-column.decimals + 1e-9 * np.maximum(1.0, np.abs(exact))
            near = np.abs(exact - stated) <= allowed
            wrong[name] = ~(near | (np.isnan(exact) & np.isnan(stated)))
        return wrong

    def _inputs(self, computed: Calculation, frame: pd.DataFrame) -> dict[str, Floats]:
        return {
            n: to_numbers(self.written[n], frame[n]) * self.written[n].unit
            for n in computed.columns
        }


def _exact(column: ColumnDomain, computed: Calculation, values: Values) -> Floats:
    """The result within the column's bounds, in its steps; NaN where it cannot be computed."""
    with np.errstate(all="ignore"):
        steps = computed.value(values) / column.unit
    return np.clip(np.where(np.isfinite(steps), steps, np.nan), column.lower, column.upper)


def _rounded(column: ColumnDomain, exact: Floats) -> Floats:
    return np.clip(np.round(exact, column.decimals), column.lower, column.upper) + 0.0  # no -0.0


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
        parsed = (parse(text, spec.columns)[0] for text in spec.constraints)
        expressions = tuple(e for e in parsed if e is not None)
        return cls(domain, expressions, Derived.from_spec(spec.columns))

    @cached_property
    def columns(self) -> tuple[ColumnDomain, ...]:
        """The modelled columns that the constraints read, also through derived ones."""
        read = {name for e in self.expressions for name in e.columns}
        return tuple(c for c in self.domain.columns if c.name in read)

    def violated(self, values: Values) -> Mask:
        """Which constraints each row violates, by `values` of columns: `[constraints, rows]`."""
        values = {**values, **self.derived.values(values)}
        with np.errstate(all="ignore"):
            return np.stack([e.violated(values) for e in self.expressions])

    def violated_by(self, codes: Codes, frame: Mapping[str, pd.Series[object]]) -> Mask:
        """As `violated`, by levels `[rows, columns]` and the `frame` of their decoded values."""
        return self.violated(self._read(codes, frame))

    def fulfilled_by(self, codes: Codes, frame: Mapping[str, pd.Series[object]]) -> Mask:
        """Which rows fulfil all of them surely, `[rows]`: what is missing fulfils nothing."""
        values = self._read(codes, frame)
        values = {**values, **self.derived.values(values)}
        with np.errstate(all="ignore"):
            held: Mask = np.logical_and.reduce([e.truth(values)[0] for e in self.expressions])
        return held

    def _read(self, codes: Codes, frame: Mapping[str, pd.Series[object]]) -> dict[str, Floats]:
        return {
            c.name: operand_values(c, codes[:, self.domain.index(c.name)], frame.get(c.name))
            for c in self.columns
        }

    def violated_in(self, text: pd.DataFrame) -> dict[str, Mask]:
        """Which rows of a published table, as text, violate each constraint, by its text."""
        if not self.expressions:
            return {}
        values = {}
        for column in self.columns:
            written = text[column.name].mask(text[column.name] == "")
            codes = encoding.encode_column(column, written).codes
            values[column.name] = operand_values(column, codes, written)
        texts = (expression.text for expression in self.expressions)
        return dict(zip(texts, self.violated(values), strict=True))

    def decode_ranged(self, codes: Codes, rng: np.random.Generator) -> dict[str, pd.Series[object]]:
        """Values of the numbers and dates that the constraints read; categories stay as levels."""
        return {
            c.name: encoding.decode_column(c, codes[:, self.domain.index(c.name)], rng=rng)
            for c in self.columns
            if c.ranged
        }

    def draw(self, draw: Callable[[int], Codes], rows: int, *, rng: np.random.Generator) -> Codes:
        """`rows` rows of levels from `draw`, each of which fulfilled the constraints once decoded.

        More rows are drawn in place of those that do not.

        Raises:
            ConstraintsUnmet: too few of the drawn rows fulfil them.
        """
        if not self.expressions:
            return draw(rows)
        kept, settings = list[Codes](), SETTINGS
        broken, drawn, have = np.zeros(len(self.expressions)), 0, 0
        while have < rows:
            share = max(have / drawn, settings.min_share) if drawn else 1.0
            least = settings.first_draw
            codes = draw(int(np.clip(1.05 * (rows - have) / share, least, max(least, rows))))
            violated = self.violated_by(codes, self.decode_ranged(codes, rng))
            kept.append(codes[~violated.any(0)])
            broken += violated.sum(1)
            drawn += len(codes)
            have += len(kept[-1])
            self.check_share(broken, drawn, have)
        return np.concatenate(kept)[:rows]

    def check_share(self, broken: Floats, drawn: int, kept: int) -> None:
        """Check that enough of the rows drawn so far fulfil the constraints.

        `broken` counts the rows that violate each constraint.

        Raises:
            ConstraintsUnmet: too few do; the message names the constraint that most rows violate.
        """
        if drawn >= SETTINGS.first_draw and kept < SETTINGS.min_share * drawn:
            worst = int(np.argmax(broken))
            raise ConstraintsUnmet(
                f"constraints: only {kept / drawn:.2g} of {drawn:,} synthetic rows fulfil all of"
                f" them; the hardest, {self.expressions[worst].text!r}, holds for"
                f" {1 - broken[worst] / drawn:.2g}",
                hint=(
                    "rows are drawn until enough fulfil the constraints, down to a share of"
                    f" {SETTINGS.min_share:g}; loosen that one, or use wider bins"
                ),
            )

    def decode(self, codes: Codes, *, rng: np.random.Generator) -> pd.DataFrame:
        """Values for levels `[rows, columns]` from `draw`, all of which fulfil the constraints.

        A row that violates one is drawn again inside its bins. Levels of which a share q of
        decodings fulfils the constraints were kept with probability q and take 1 / q redraws, so
        that all rows together take at most 1 / `min_share` each in expectation.

        Raises:
            ConstraintsUnmet: almost no values inside the bins of a row fulfil the constraints.
        """
        frame = encoding.decode(self.domain, codes, rng=rng)
        if not self.expressions:
            return frame
        bad = np.flatnonzero(self.violated_by(codes, frame).any(0))
        tries, redrawn, at_once = 1, 0, SETTINGS.max_redraws
        # Ten times the expected most.
        max_redrawn = 4 * at_once + 10 / SETTINGS.min_share * len(codes)
        while len(bad):
            tries = min(2 * tries, max(1, at_once // len(bad)))
            again = np.repeat(bad, tries)
            redrawn += len(again)
            if redrawn > max_redrawn:
                inside = "the values inside the bins of some rows next to never fulfil them"
                raise ConstraintsUnmet(f"constraints: {inside}", hint="use narrower bins")
            drawn = self.decode_ranged(codes[again], rng)
            holds = ~self.violated_by(codes[again], drawn).any(0)
            # For each row, the first try that fulfils the constraints.
            rows, first = np.unique(again[holds], return_index=True)
            chosen = np.flatnonzero(holds)[first]
            for name, values in drawn.items():
                frame.loc[rows, name] = values.iloc[chosen].array
            bad = np.setdiff1d(bad, rows)
        return frame
