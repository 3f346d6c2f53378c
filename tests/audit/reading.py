"""Raw neighbours: tables as a CSV reader gives them, taken through the kernel's own reading step.

Mechanisms are replayed on levels; this looks at what makes levels of text. Adding one unit to a raw
table, whatever it wrote into its fields, must leave all other rows as they were, add at most
`max_rows` rows, and count as misfits only what is its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from synthdp.audit.mechanisms.calls import Replayed, ReplayFinding
from synthdp.data.domain import Domain
from synthdp.data.encoding import decode
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.source import fit_table
from synthdp.privacy.table import Table
from synthdp.spec.model import Dataset, DeclaredRows, IdUnit

# What people and programs write into fields; None is a field that the reader took for missing.
NASTY = (
    None,
    "",
    " ",
    "0",
    "-0",
    "0.0",
    "1",
    "1.5",
    "-1",
    "1e308",
    "-1e308",
    "1e400",
    "-1e400",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "null",
    "None",
    "x",
    "é",
    "true",
    "TRUE",
    "2020-01-01",
    "2020-01-01T10:00:00",
    "2020-01-01T00:00:00Z",
    "2020-05-05T00:00:00+02:00",
    "99999-01-01",
    "0001-01-01",
    "01/02/2020",
    "1577836800",
    "20200101",
    "9007199254740993",
    "18446744073709551616",
    "0x10",
    "1_000",
    "1,5",
    " 2 ",
    "\u0661",
    "a\x00b",
    "=1+1",
    "9999-12-31",
    "2015-05-05T00:00:00.0000001",
)

OTHERS = 12  # rows that both tables share, each of a unit of its own

Rows = list[dict[str, Any]]
Reader = Callable[..., Table]


@dataclass(frozen=True, eq=False)
class RawPair:
    """Raw rows that two tables share, each with its unit; the rows that one more unit adds; and
    where it stands.
    """

    name: str
    shared: pd.DataFrame
    unit: pd.DataFrame
    place: int

    @property
    def second(self) -> pd.DataFrame:
        """The table with the unit."""
        return pd.concat(
            [self.shared[: self.place], self.unit, self.shared[self.place :]], ignore_index=True
        )


def raw_neighbours(dataset: Dataset, domain: Domain) -> Iterator[RawPair]:
    """Nasty values in all columns of a row and in one; declared ones, also among nasty ones; units
    of more rows than allowed.
    """
    good = _declared(domain, OTHERS)
    nasty = [dict.fromkeys(domain.names, value) for value in NASTY]
    for number, row in enumerate(nasty):
        place = (0, OTHERS // 2, OTHERS)[number % 3]
        yield _pair(f"{NASTY[number]!r} everywhere", dataset, domain, good, [row], place)
    for name in domain.names:
        for value in (None, "x", "1e308"):
            yield _pair(
                f"{value!r} in {name}", dataset, domain, good, [{**good[0], name: value}], OTHERS
            )
    for number, row in enumerate(good):
        yield _pair(
            f"declared values, row {number} once more", dataset, domain, good, [row], number
        )
    yield _pair("a good row among nasty ones", dataset, domain, nasty, good[:1], len(nasty) // 2)
    yield _pair("a nasty row among nasty ones", dataset, domain, nasty, nasty[:1], len(nasty))
    yield _pair("an empty table and a row", dataset, domain, [], good[:1], 0)
    if isinstance(dataset.privacy_unit, IdUnit):
        most = dataset.privacy_unit.max_rows
        for rows in (most, most + 1, 3 * most):
            yield _pair(f"a unit of {rows} rows", dataset, domain, good, _declared(domain, rows), 1)
            yield _pair(
                f"a unit of {rows} nasty rows", dataset, domain, good, (nasty * rows)[:rows], 1
            )


def _declared(domain: Domain, rows: int) -> Rows:
    """Rows of declared values: each column goes round its levels."""
    codes = np.column_stack([np.arange(rows) % c.levels for c in domain.columns]).astype(np.uint16)
    values = decode(domain, codes, rng=np.random.Generator(np.random.Philox(key=0)))
    return [
        {name: None if pd.isna(v) else str(v) for name, v in row.items()}
        for row in values.to_dict(orient="records")
    ]


def _pair(
    name: str, dataset: Dataset, domain: Domain, shared: Rows, unit: Rows, place: int
) -> RawPair:
    columns = list(domain.names)
    frames = [pd.DataFrame(rows, columns=columns, dtype="str") for rows in (shared, unit)]
    if isinstance(dataset.privacy_unit, IdUnit):
        frames[0][dataset.privacy_unit.column] = [f"other {i}" for i in range(len(shared))]
        frames[1][dataset.privacy_unit.column] = "the unit"
    return RawPair(name, frames[0], frames[1], place)


def replay_reading(
    dataset: Dataset,
    domain: Domain,
    *,
    pairs: Iterable[RawPair] | None = None,
    read: Reader = fit_table,
) -> Replayed:
    """Read raw pairs (all by default) and see whether neighbours stayed neighbours.

    `dataset` is the spec's; none of its rows is read.
    """
    clamping = dataset.model_copy(
        update={
            "out_of_domain": "clamp",
            "rows": DeclaredRows(kind="approximate", value=OTHERS),
        }
    )
    unit = dataset.privacy_unit
    most = unit.max_rows if isinstance(unit, IdUnit) else 1

    def table(raw: pd.DataFrame) -> Table:
        return read(raw, clamping, domain, holdout=0.0, rng=fresh_generator())

    findings, count, share = [], 0, 0.0
    for pair in raw_neighbours(dataset, domain) if pairs is None else pairs:
        without, alone, both = (table(raw) for raw in (pair.shared, pair.unit, pair.second))
        added = _rows(both) - _rows(without)
        count, share = count + 1, max(share, added.total() / most)
        for found, allowed in _problems(without, alone, both, most, whole=len(pair.unit) <= most):
            findings.append(
                ReplayFinding(
                    "the reader", pair.name, "reading", "the table inside the seal", found, allowed
                )
            )
    return Replayed(("the reader",), count, share, tuple(findings))


def _problems(
    without: Table, alone: Table, both: Table, most: int, *, whole: bool
) -> Iterator[tuple[str, str]]:
    lost, added = _rows(without) - _rows(both), _rows(both) - _rows(without)
    if lost:
        yield f"{lost.total()} rows of others are gone or changed", "all others as they were"
    if added.total() > most:
        yield f"{added.total()} rows more", f"at most {most}"
    if whole and added != _rows(alone):
        yield "the unit's rows become something else among others", "what they become on their own"
    own = _misfits(both) - _misfits(without)
    if (
        _misfits(without) - _misfits(both)
        or max(own.values(), default=0) > most
        or (whole and own != _misfits(alone))
    ):
        yield "misfits of other rows are counted otherwise", "misfits counted row by row"


def _rows(table: Table) -> Counter[tuple[object, ...]]:
    """How often each row is there, as levels and as values: in what order does not matter where a
    unit's rows are drawn.
    """
    values = (
        table.frame.astype(object)
        .where(table.frame.notna(), None)
        .itertuples(index=False, name=None)
    )
    return Counter(
        (*levels, *map(str, row)) for levels, row in zip(table.codes.tolist(), values, strict=True)
    )


def _misfits(table: Table) -> Counter[tuple[str, str]]:
    return Counter(
        {
            (column, kind): count
            for column, kinds in table.misfits.items()
            for kind, count in kinds.items()
        }
    )
