"""Readers of rows, looked at from outside: no row changes what another is read as.

`replay_reading` adds one unit to a raw table, whatever it wrote into its fields: all other rows
must stay as they were, at most `max_rows` rows more come, and misfits are its own. `replay_values`
goes through pairs of what people, programs and databases write, as each kind of source gives it: a
table of one value three times, and the same with one row of another. What reads a column as a whole
(its type, its unit of time, its format) is found by such a pair or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from synthdp.audit import Replayed, ReplayFinding
from synthdp.data import Domain, decode
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.readers.files import encode_batches
from synthdp.privacy.source import fit_table
from synthdp.privacy.table import Table
from synthdp.spec.model import Dataset, DeclaredRows, IdUnit
from tests.builders import build_spec, skeleton

Rows = list[dict[str, Any]]
Reader = Callable[..., Table]
OTHERS = 12  # rows that both tables share, each of a unit of its own
FEW = 200  # pairs of a kind, of which none is left out
TIMES = 3  # how often the first value stands in the table
HUGE = 2**53

NASTY: tuple[str | None, ...] = (
    *(None, "", " ", "0", "-0", "0.0", "1", "1.5", "-1", "1e308", "-1e308", "1e400", "-1e400"),
    *("nan", "NaN", "inf", "-inf", "null", "None", "x", "é", "true", "TRUE", "2020-01-01"),
    *("2020-01-01T10:00:00", "2020-01-01T00:00:00Z", "2020-05-05T00:00:00+02:00", "99999-01-01"),
    *("0001-01-01", "01/02/2020", "1577836800", "20200101", "9007199254740993", "0x10", "1_000"),
    *("18446744073709551616", "1,5", " 2 ", "\u0661", "a\x00b", "=1+1", "9999-12-31"),
    "2015-05-05T00:00:00.0000001",
)
"""What people and programs write into fields; None is a field that was taken for missing."""
TEXTS: tuple[str | None, ...] = (
    *NASTY,
    *("01", "1.0", "1.", ".5", "+1", "1e0", "1E400", "-0.0", "0.1", "0.30000000000000004"),
    *("123456789.12345678", "1,000", "1.000,5", "1 000", "f", "m", "true ", "9007199254740992"),
    *("9007199254740995", "-9007199254740993", "9" * 400, "0." + "0" * 400 + "1", "infinity"),
    *("NULL", "NaT", "<NA>", "now", "today", "2020", "2020-05", "2020-1-1", "20200101T000000"),
    *("2020-W01-1", "2020-001", "1650-03-01", "1677-09-20", "2262-04-12", "9999-12-31"),
    *("0000-01-01", "2015-05-05 00:00:00.000000", "2015-05-05T00:00:00.123456789012"),
    *("2020-01-01T24:00:00", "2020-01-01T23:59:60", "2020-02-30", "2020-01-01T10:00:00+00:00"),
    *("2020-01-01 10:00:00 UTC", "2020-01-01T10", "2020-01-01T10:30", "31.12.2020", "12/31/2020"),
    *("Jan 1 2020", "\u00a012", "\u200b1", "a\x00c", '"', '"f"', "a,b", "f\n", "x" * 70_000),
    *("\U0001f600", "e\u0301", "=cmd", "0b1", "1_0.0"),
)
"""Fields of a CSV or Parquet file."""


class Untold:
    """A value whose type gives it no text."""

    def __str__(self) -> str:
        raise TypeError("what a row holds")

    __repr__ = object.__repr__


OBJECTS: tuple[Any, ...] = (
    *TEXTS,
    *(True, False, 0, 1, -1, 7, HUGE + 1, HUGE + 3, -HUGE - 1, 2**63, 2**64, 10**400),
    *(0.0, -0.0, 1.0, 1.5, 0.1, 1e308, float("nan"), float("inf"), -float("inf"), float(HUGE)),
    *map(Decimal, ("1", "1.0", "1.50", "0.1", "NaN", "sNaN", "1e400", "9007199254740993")),
    *(date(1, 1, 1), date(2020, 1, 1), date(9999, 12, 31), datetime(2020, 1, 1)),
    *(datetime(2015, 5, 5, 1, 2, 3, 456789), datetime(2020, 1, 1, tzinfo=UTC)),
    datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    *(datetime(9999, 12, 31, 23, 59, 59), timedelta(days=1), pd.NaT, pd.NA),
    *(pd.Timestamp("2015-05-05T00:00:00.000000001"), np.datetime64("2015-05-05T00:00:00.0000001")),
    *(np.datetime64("NaT"), np.int64(1), np.float32(0.1), np.bool_(True), b"f", b"\xff"),
    *(memoryview(b"f"), ["f"], ("f", 1), {"f": 1}, 1j),
    *("\ud800", np.datetime64(5, "as"), Untold()),
)
"""What drivers of databases make of values, and what a value of SQLite may be beside any other."""


def _arrow(kind: pa.DataType) -> Callable[[Sequence[Any]], pd.Series[Any]]:
    return lambda values: pd.Series(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values, kind)]))
    )


def _coded(values: Sequence[Any]) -> pd.Series[Any]:
    cells = pa.array(values, pa.string()).dictionary_encode()
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([cells])))


NUMBERS = (None, 0, 1, 7, -1, 99, HUGE + 1, HUGE + 3, -HUGE - 1, 2**63 - 1)
REALS = (None, 0.0, -0.0, 1.0, 1.5, 0.1, 1e308, *map(float, ("nan", "inf", "-inf", HUGE)), 5e-324)
EARLY = (datetime(1969, 12, 31, 23, 59, 59), datetime(1700, 1, 1))
INSTANTS = (None, datetime(2020, 1, 1), datetime(2015, 5, 5, 1, 2, 3), *EARLY)
DATES = (None, date(1, 1, 1), date(2020, 1, 1), date(9999, 12, 31), date(1969, 12, 31))
DECIMALS = (None, *map(Decimal, ("0", "1", "1.50", "-1", "9007199254740993")))

WAYS: dict[str, tuple[Callable[[Sequence[Any]], pd.Series[Any]], tuple[Any, ...]]] = {
    "texts of a file": (_arrow(pa.string()), TEXTS),
    "texts of a dictionary": (_coded, TEXTS),
    "texts of pandas": (
        lambda values: pd.Series(values, dtype="string[python]"),
        (*TEXTS, "\ud800", "a\udcff"),
    ),
    "objects of a database": (lambda values: pd.Series(list(values), dtype=object), OBJECTS),
    "whole numbers": (_arrow(pa.int64()), NUMBERS),
    "real numbers": (_arrow(pa.float64()), REALS),
    "decimals": (_arrow(pa.decimal128(20, 2)), DECIMALS),
    "truth values": (_arrow(pa.bool_()), (None, True, False)),
    "dates": (_arrow(pa.date32()), DATES),
    **{f"instants in {unit}": (_arrow(pa.timestamp(unit)), INSTANTS) for unit in ("s", "us", "ns")},
}
"""How a source gives the values of a column, and values of that kind."""


def pair_domain() -> Domain:
    """Columns of all types whose levels tell apart what a bad reader would mix up."""
    texts = [*("1", "1.0", "true", "f", "x", "01", "1.5", "9007199254740993", "9007199254740995")]
    texts += ["2020-01-01", "a b"]
    codes = ["1.5", "true", "f", "01", "9007199254740993", "2020-01-01", "nan", "x"]
    day, time = {"lower": "1600-01-01", "upper": "9999-12-31"}, {"lower": "1969-01-01"}
    time |= {"upper": "2030-01-01", "resolution": "second"}
    whole, words, some = {"type": "integer"}, {"type": "categorical"}, {"missing": True}
    columns: dict[str, Any] = {
        "category": {**words, "categories": texts, **some},
        "flag": {"type": "boolean", "false": "0", "true": "1"},
        "whole": {**whole, "lower": 0, "upper": 99, "bins": 10, **some},
        "huge": {**whole, "lower": -HUGE, "upper": HUGE, "bins": 16},
        "real": {"type": "number", "lower": -5.0, "upper": 5.0, "bins": 7, **some},
        "day": {"type": "datetime", **day, "bins": 40, **some},
        "time": {"type": "datetime", **time, "bins": 9},
        "code": {"type": "text-code", "codes": codes, "prefix": 4, **some},
        "coded": {**whole, "lower": 2, "upper": 99, **some, "missing_codes": ["1", "1.5", "x"]},
        "kept": {**words, "categories": texts[:3], **some, "missing_codes": texts[3:6]},
    }  # fmt: skip
    return Domain.from_spec(build_spec(columns).columns)


def fuzzed(values: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """`count` more texts, made of those among `values`: cut, joined, repeated, changed."""
    texts = [v for v in values if isinstance(v, str) and 0 < len(v) < 50]
    letters = "0123456789-+.:,eET Z_/ \x00\"'\u0661"

    def one() -> str:
        text, other = (texts[int(rng.integers(len(texts)))] for _ in range(2))
        place, letter = int(rng.integers(len(text) + 1)), letters[int(rng.integers(len(letters)))]
        changes = (
            text[:place] + letter + text[place:],
            text[:place] + letter + text[place + 1 :],
            text[:place],
            text + other,
            text[:place] * 3,
            other + text,
        )
        return changes[int(rng.integers(len(changes)))]

    return [one() for _ in range(count)]


def replay_values(
    *,
    ways: Sequence[str] = tuple(WAYS),
    values: Sequence[Any] | None = None,
    more: int = 0,
    every: int = 1,
    rng: np.random.Generator,
    read: Reader = fit_table,
) -> Replayed:
    """Read pairs of values (a way's own by default): neither changes what the other is read as.

    `more`: fuzzed texts beside them. `every`: of many pairs each so many-th, from a random one on.
    """
    domain, count = pair_domain(), 0
    findings: list[ReplayFinding] = []
    for way in ways:
        make, own = WAYS[way]
        listed = own if values is None else values
        held = [*listed, *(fuzzed(listed, more, rng) if str in map(type, listed) else ())]
        alone = [_read_as(read, domain, make([v])) for v in held]
        pairs = list(product(range(len(held)), repeat=2))
        if len(pairs) > FEW:
            pairs = pairs[int(rng.integers(every)) :: every]
        count += len(pairs)
        for u, v in pairs:
            both = _read_as(read, domain, make([held[u]] * TIMES + [held[v]]))
            named = f"{way}: {_shown(held[u])} and {_shown(held[v])}"
            findings += [_finding(named, *told) for told in _apart(alone[u], alone[v], both)]
    return Replayed(("the reader",), count, 1.0 if count else 0.0, tuple(findings))


PAIRS = Dataset.model_validate(
    skeleton()["dataset"]
    | {"rows": {"kind": "approximate", "value": TIMES}, "out_of_domain": "clamp"}
    | {"source": {"kind": "csv", "path": "none.csv"}}
)
ReadAs = tuple[list[tuple[object, ...]], Counter[tuple[str, str]]]


def _read_as(read: Reader, domain: Domain, column: pd.Series[Any]) -> ReadAs | None:
    """Rows with the same value in every column, and their misfits; None where the reader fails."""
    raw = pd.DataFrame(dict.fromkeys(domain.names, column), index=column.index, copy=False)
    try:
        table = read(raw, PAIRS, domain, holdout=0.0, rng=fresh_generator())
    except Exception:  # whatever it is, it is a finding
        return None
    values = (map(str, table.frame[name].tolist()) for name in table.frame)
    return list(zip(map(tuple, table.codes.tolist()), *values, strict=True)), _misfits(table)


def _apart(
    first: ReadAs | None, second: ReadAs | None, both: ReadAs | None
) -> Iterator[tuple[str, str]]:
    """What is wrong with a table of one value several times and one other, given each alone."""
    if both is None or first is None or second is None:
        yield "the reader fails", "values that do not fit are misfits of their own rows"
        return
    expected = first[0] * TIMES + second[0]
    if changed := sum(row != own for row, own in zip(both[0], expected, strict=True)):
        yield f"{changed} rows are read otherwise than alone", "each row by itself"
    if both[1] != Counter({k: TIMES * n for k, n in first[1].items()}) + second[1]:
        yield "misfits are counted otherwise than alone", "misfits counted row by row"


def _finding(pair: str, found: str, allowed: str) -> ReplayFinding:
    told = "the reader", pair, "reading", "the table inside the seal"
    return ReplayFinding(*told, found, allowed)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}... ({len(text)} characters)"


def read_in_batches(raw: pd.DataFrame, dataset: Dataset, domain: Domain, **_: Any) -> Table:
    """As `fit_table`, read as levels only; each row is a batch, but the first two."""
    table = pa.table({name: raw[name].array.__arrow_array__() for name in raw})
    head, rest = (
        table[:2].combine_chunks().to_batches(),
        table[2:].combine_chunks().to_batches(max_chunksize=1),
    )
    codes, encoded = encode_batches(domain, iter([*head, *rest]), rows=len(raw))
    misfits = {
        n: {"wrong type": e.wrong_type, "outside": e.outside, "missing": e.unexpected_missing}
        for n, e in encoded.items()
    }
    return Table(
        codes, pd.DataFrame(index=pd.RangeIndex(len(raw))), np.zeros(len(raw), bool), misfits
    )


# --- one unit more ---


@dataclass(frozen=True, eq=False)
class RawPair:
    """Raw rows that two tables share, each of a unit; the rows of one unit more; its place."""

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
    """Nasty values in a row and in a column; declared ones, also among them; too large units."""
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
    """Read raw pairs (all by default) and see whether neighbours stayed neighbours."""
    few = DeclaredRows(kind="approximate", value=OTHERS)
    clamping = dataset.model_copy(update={"out_of_domain": "clamp", "rows": few})
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
            findings.append(_finding(pair.name, found, allowed))
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
    """How often each row is there, as levels and values, in whatever order."""
    values = (
        table.frame.astype(object)
        .where(table.frame.notna(), None)
        .itertuples(index=False, name=None)
    )
    return Counter(
        (*levels, *map(str, row)) for levels, row in zip(table.codes.tolist(), values, strict=True)
    )


def _misfits(table: Table) -> Counter[tuple[str, str]]:
    every = table.misfits.items()
    return Counter({(column, kind): n for column, kinds in every for kind, n in kinds.items() if n})
