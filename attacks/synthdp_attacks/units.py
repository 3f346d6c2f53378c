"""Rows by unit of privacy: the rows of one unit come and go together.

Where a person has several rows, the neighbours of differential privacy differ in all of them, and
they give the person away together. `units` has a whole number for each row: rows of one number are
of one unit. Without it each row is a unit, named by its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from synthdp_attacks.errors import AttackError
from synthdp_attacks.threat import Codes


@dataclass(frozen=True)
class Others:
    """Rows `[rows, columns]` from which whole units are drawn."""

    rows: Codes = field(repr=False)
    units: Codes | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Number of units."""
        return len(self.rows) if self.units is None else len(self._parts)

    def of(self, chosen: Codes) -> Codes:
        """The rows of units, by their places `[units]` in 0 .. count-1."""
        places = chosen
        if self.units is not None:
            empty = np.zeros(0, dtype=np.intp)
            places = np.concatenate([empty, *(self._parts[unit] for unit in chosen)])
        drawn: Codes = self.rows[places]
        return drawn

    @cached_property
    def _parts(self) -> list[Codes]:
        """The positions of each unit's rows."""
        assert self.units is not None
        _, place = np.unique(self.units, return_inverse=True)
        ends = np.cumsum(np.bincount(place))[:-1]
        return list(np.split(np.argsort(place, kind="stable"), ends)) if len(place) else []


def apart(rows: Codes, target: int, units: Codes | None) -> tuple[Codes, Others]:
    """The rows of the unit `target` `[its rows, columns]`, and all others."""
    if units is None:
        return rows[target : target + 1], Others(np.delete(rows, target, axis=0))
    own = units == target
    return rows[own], Others(rows[~own], units[~own])


def checked_units(units: Sequence[int] | Codes | None, rows: Codes) -> Codes | None:
    """`units` as an array.

    Raises:
        AttackError: not one whole number for each row.
    """
    if units is None:
        return None
    numbers = np.asarray(units)
    if numbers.shape != (len(rows),) or not np.issubdtype(numbers.dtype, np.integer):
        raise AttackError(
            f"units: got {numbers.dtype} of shape {numbers.shape}; needs a whole number for each of"
            f" {len(rows)} rows, the same for rows of one unit"
        )
    return numbers
