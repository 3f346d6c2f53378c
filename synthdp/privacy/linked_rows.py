"""Rows of persons and of visits as levels and dates, each row by itself, whatever file it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import EncodedColumn, encode, read_values
from synthdp.data.visits import (
    SETTINGS,
    CodedVisits,
    Floats,
    Parts,
    Positions,
    VisitFrame,
    first_visits,
)

Cells: TypeAlias = pd.DataFrame | pa.RecordBatch
Levels = npt.NDArray[np.unsignedinteger[Any]]
Encoded = Mapping[str, EncodedColumn]


@dataclass(frozen=True)
class Found:
    """What does not fit in the rows of a table: misfits by column, and rows without an id
    (confidential).
    """

    columns: Encoded
    without_id: int

    @classmethod
    def of(cls, encoded: Encoded, without_id: int) -> Found:
        """Of some rows, without their levels."""
        nothing = np.zeros(0, np.uint16)
        told = {n: replace(own, codes=nothing, numbers=None) for n, own in encoded.items()}
        return cls(told, without_id)

    @classmethod
    def joined(cls, found: Sequence[Found]) -> Found:
        """Of the rows of several."""
        kinds = ("wrong_type", "outside", "unexpected_missing")
        told = {
            name: replace(
                own, **{k: sum(getattr(other.columns[name], k) for other in found) for k in kinds}
            )
            for name, own in found[0].columns.items()
        }
        return cls(told, sum(other.without_id for other in found))


@dataclass(frozen=True, repr=False)
class PersonRows:
    """Rows of persons: the number of each one's key, the levels that are modelled, dates, and
    numbers that are added up `[rows, columns]`, NaN where there is none.
    """

    units: Positions
    codes: Levels
    births: Floats | None
    deaths: Floats | None
    numbers: Floats

    def __repr__(self) -> str:
        return "<PersonRows>"

    @classmethod
    def of(
        cls, frame: VisitFrame, domain: Domain, cells: Cells, units: Positions
    ) -> tuple[PersonRows, Encoded]:
        """The rows of some cells, and what each column came to."""
        codes, encoded = encode(domain, cells)
        numbers = {n: own.numbers for n, own in encoded.items() if own.numbers is not None}
        return cls.of_levels(frame, domain, codes, numbers, units), encoded

    @classmethod
    def of_levels(
        cls,
        frame: VisitFrame,
        domain: Domain,
        codes: Levels,
        numbers: Mapping[str, Floats],
        units: Positions,
    ) -> PersonRows:
        """The rows of levels of all columns, and of numbers of dates, which no row lacks."""

        def dates(column: ColumnDomain | None) -> Floats | None:
            if column is None:
                return None
            missing = codes[:, domain.index(column.name)] == column.missing_level
            return np.where(missing if column.missing else False, np.nan, numbers[column.name])

        modelled = codes[:, [domain.index(c.name) for c in frame.columns.columns]]
        added: Any = [np.zeros((len(codes), 0)), *map(dates, frame.added[0])]
        return cls(units, modelled, dates(frame.birth), dates(frame.death), np.column_stack(added))

    @classmethod
    def joined(cls, found: Sequence[PersonRows]) -> PersonRows:
        """The rows of several."""
        births, deaths = (
            None if getattr(found[0], name) is None else np.concatenate(own)
            for name in ("births", "deaths")
            for own in [[getattr(rows, name) for rows in found]]
        )
        units, codes, numbers = (
            np.concatenate([getattr(rows, name) for rows in found])
            for name in ("units", "codes", "numbers")
        )
        return cls(units, codes, births, deaths, numbers)

    def one_each(self) -> PersonRows:
        """One row for each key, by its number: the first by its own levels, dates and numbers,
        never by its place in the file.
        """
        fields = [dates for dates in (self.deaths, self.births) if dates is not None]
        order = np.lexsort((*self.numbers.T[::-1], *fields, *self.codes.T[::-1], self.units))
        one = order[np.diff(self.units[order], prepend=-1) > 0]
        births, deaths = (
            None if dates is None else dates[one] for dates in (self.births, self.deaths)
        )
        return PersonRows(self.units[one], self.codes[one], births, deaths, self.numbers[one])


@dataclass(frozen=True, repr=False)
class VisitRows:
    """Visits with a date and a person: the person's position, the date inside the study, levels,
    and numbers that are added up, in parts of half a range from its middle.
    """

    owner: Positions
    when: Floats
    codes: Levels
    numbers: Parts

    def __repr__(self) -> str:
        return "<VisitRows>"

    @classmethod
    def of(
        cls, frame: VisitFrame, domain: Domain, cells: Cells, owner: Positions
    ) -> tuple[VisitRows, Encoded]:
        """The rows of some cells that have a date and an owner, which is below 0 where there is
        none; and what each column came to, a missing date not counted.
        """
        codes, encoded = encode(domain, cells)
        when = read_values(frame.order, cells[frame.order.name]).numbers
        kept = (owner >= 0) & ~np.isnan(when)
        inside = np.clip(when[kept], frame.order.lower, frame.until)
        places = [domain.index(c.name) for c in frame.of_visits.columns]
        undated = replace(encoded[frame.order.name], unexpected_missing=0)
        told = {**encoded, frame.order.name: undated}
        added = [np.zeros((int(kept.sum()), 0), np.int32)]
        for c in frame.added[1]:
            numbers, half = encoded[c.name].numbers, (c.upper - c.lower) / 2
            assert numbers is not None
            u = np.clip((numbers[kept] - (c.lower + c.upper) / 2) / half, -1, 1)
            added.append(np.rint(u * SETTINGS.parts).astype(np.int32)[:, None])
        return cls(owner[kept], inside, codes[kept][:, places], np.hstack(added)), told

    @classmethod
    def joined(cls, found: Sequence[VisitRows]) -> VisitRows:
        """The rows of several."""
        return cls(
            *(
                np.concatenate([getattr(rows, name) for rows in found])
                for name in ("owner", "when", "codes", "numbers")
            )
        )

    def first(self, most: int) -> VisitRows:
        """The first `most` of each person, by person and in their order.

        [Derived here: visits have a total order, up to such as are equal in all that is kept. So
        the first of a union are the first of each part's first, in whatever order the parts come:
        it may be cut part by part.]
        """
        kept, _ = first_visits(most, self.owner, self.when, self.codes, self.numbers)
        return VisitRows(self.owner[kept], self.when[kept], self.codes[kept], self.numbers[kept])


def coded(persons: PersonRows, visits: VisitRows) -> CodedVisits:
    """Both, one row for each person."""
    codes: Any = persons.codes
    levels: Any = visits.codes
    dates = persons.births, persons.deaths
    return CodedVisits(
        codes, levels, visits.owner, visits.when, *dates, persons.numbers, visits.numbers
    )
