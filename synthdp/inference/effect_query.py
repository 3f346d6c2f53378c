"""What an effect is asked of: two columns, the levels compared, and what to adjust for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.errors import OutputError
from synthdp.inference.cells import Floats, value_bounds
from synthdp.spec.expressions.names import quoted
from synthdp.spec.model import ReleaseSpec, derived_of
from synthdp.spec.wording import nearest

MAX_LEVELS = 32
"""Most levels of a treatment."""


@dataclass(frozen=True)
class EffectQuery:
    """The effect of `treatment` on the mean of `outcome`, or on the share of a `level` of it.

    None of `adjust` leaves the choice to the graph; None of `reference` is the first level.
    """

    treatment: str
    outcome: str
    adjust: tuple[str, ...] | None = None
    reference: str | None = None
    level: str | None = None

    @property
    def text(self) -> str:
        """The question in words."""
        asked = f"mean({self.outcome})" if self.level is None else f"{self.outcome} {self.level}"
        return f"effect of {self.treatment} on {asked}"

    def checked(self, spec: ReleaseSpec) -> EffectQuery:
        """The same with the level of its outcome: a boolean's is true.

        Raises:
            OutputError: a name or a level is unknown, or the outcome has no mean.
        """
        named = (self.treatment, self.outcome, *(self.adjust or ()))
        known = [name for name, c in spec.columns.items() if derived_of(c) is None]
        for name in named:
            if name not in known:
                raise OutputError(
                    f"{name!r} is no column that was counted",
                    hint=nearest(name, known) or f"one of {', '.join(map(quoted, known))}",
                )
        if len(set(named)) < len(named):
            raise OutputError(
                "treatment, outcome and columns to adjust for are not all different",
                hint="name each column once",
            )
        column = spec.columns[self.outcome]
        if column.operand == "number" and self.level is None:
            return self
        if column.operand in ("number", "date"):
            raise OutputError(
                f"column {self.outcome!r} has no share of a level: it holds {column.operand}s",
                hint="leave the level out" if column.operand == "number" else "ask of another one",
            )
        level = column.labels[1] if column.truth and self.level is None else self.level
        if level not in column.labels:
            lacks = "" if level is None else f", and no level {level!r}"
            raise OutputError(
                f"column {self.outcome!r} has no mean{lacks}: say of which level the share is"
                " asked",
                hint=nearest(level or "", column.labels)
                or f"--level, one of {', '.join(column.labels)}",
            )
        return replace(self, level=level)

    def numbers(self, column: ColumnDomain) -> Floats:
        """The least, the middle and the largest number of each level of the outcome, `[3, levels]`.

        Of a share they are 0 and 1. The missing level has NaN.
        """
        if self.level is None:
            low, high = value_bounds(column)
            return np.stack([low, (low + high) / 2, high])
        one = np.array([float(label == self.level) for label in column.labels])
        if column.missing_level is not None:
            one[column.missing_level] = np.nan
        return np.tile(one, (3, 1))

    def levels(self, column: ColumnDomain) -> tuple[list[int], int]:
        """The levels of the treatment that are compared, and the one that they are compared with.

        Raises:
            OutputError: there are too many, or the reference is none of them.
        """
        levels = [i for i in range(column.levels) if i != column.missing_level]
        labels = [column.labels[i] for i in levels]
        if len(levels) > MAX_LEVELS:
            raise OutputError(
                f"column {column.name!r} has {len(levels)} levels, and a treatment may have"
                f" {MAX_LEVELS}",
                hint="declare fewer bins, and release again",
            )
        if self.reference is not None and self.reference not in labels:
            raise OutputError(
                f"column {column.name!r} has no level {self.reference!r}",
                hint=nearest(self.reference, labels) or f"--reference, one of {', '.join(labels)}",
            )
        reference = 0 if self.reference is None else labels.index(self.reference)
        return [i for i in levels if i != reference], reference
