"""Pairs of values: a table of one value three times, and the same with one row of another value.

What reads a column as a whole (its type, its unit of time, its format, from the values that it
holds) is found by a pair of
values or not at all: the second must not change what the first is read as. `replay_values` goes
through all pairs of a list of what people, programs and databases write, as each kind of source
gives it, and `fuzzed` makes more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import TypeAdapter

from synthdp.audit.mechanisms.calls import Replayed, ReplayFinding
from synthdp.data.domain import Domain
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.readers.files import encode_batches
from synthdp.privacy.source import fit_table
from synthdp.privacy.table import Table
from synthdp.spec.model import Column, CsvSource, Dataset, DeclaredRows, RowUnit
from tests.audit.reading import NASTY, Reader

FEW = 200  # pairs of a kind, of which none is left out
TIMES = 3  # how often the first value stands in the table
HUGE = 2**53

TEXTS: tuple[str | None, ...] = (
    *NASTY,
    "01",
    "1.0",
    "1.",
    ".5",
    "+1",
    "1e0",
    "1E400",
    "-0.0",
    "0.1",
    "0.30000000000000004",
    "123456789.12345678",
    "1,000",
    "1.000,5",
    "1 000",
    "f",
    "m",
    "true ",
    "9007199254740992",
    "9007199254740995",
    "-9007199254740993",
    "9" * 400,
    "0." + "0" * 400 + "1",
    "infinity",
    "NULL",
    "NaT",
    "<NA>",
    "now",
    "today",
    "2020",
    "2020-05",
    "2020-1-1",
    "20200101T000000",
    "2020-W01-1",
    "2020-001",
    "1650-03-01",
    "1677-09-20",
    "2262-04-12",
    "9999-12-31",
    "0000-01-01",
    "2015-05-05 00:00:00.000000",
    "2015-05-05T00:00:00.123456789012",
    "2020-01-01T24:00:00",
    "2020-01-01T23:59:60",
    "2020-02-30",
    "2020-01-01T10:00:00+00:00",
    "2020-01-01 10:00:00 UTC",
    "2020-01-01T10",
    "2020-01-01T10:30",
    "31.12.2020",
    "12/31/2020",
    "Jan 1 2020",
    "\u00a012",
    "\u200b1",
    "a\x00c",
    '"',
    '"f"',
    "a,b",
    "f\n",
    "x" * 70_000,
    "\U0001f600",
    "e\u0301",
    "=cmd",
    "0b1",
    "1_0.0",
)
"""Fields of a CSV or Parquet file; None is one that was taken for missing."""

OBJECTS: tuple[Any, ...] = (
    *TEXTS,
    True,
    False,
    0,
    1,
    -1,
    7,
    HUGE + 1,
    HUGE + 3,
    -HUGE - 1,
    2**63,
    2**64,
    10**400,
    0.0,
    -0.0,
    1.0,
    1.5,
    0.1,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    float(HUGE),
    Decimal("1"),
    Decimal("1.0"),
    Decimal("1.50"),
    Decimal("0.1"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("1e400"),
    Decimal("9007199254740993"),
    date(1, 1, 1),
    date(2020, 1, 1),
    date(9999, 12, 31),
    datetime(2020, 1, 1),
    datetime(2015, 5, 5, 1, 2, 3, 456789),
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    datetime(9999, 12, 31, 23, 59, 59),
    timedelta(days=1),
    pd.Timestamp("2015-05-05T00:00:00.000000001"),
    pd.NaT,
    pd.NA,
    np.datetime64("2015-05-05T00:00:00.0000001"),
    np.datetime64("NaT"),
    np.int64(1),
    np.float32(0.1),
    np.bool_(True),
    b"f",
    b"\xff",
    memoryview(b"f"),
    ["f"],
    ("f", 1),
    {"f": 1},
    1j,
)
"""What drivers of databases make of values, and what a value of SQLite may be beside any other."""


def _arrow(kind: pa.DataType) -> Callable[[Sequence[Any]], pd.Series[Any]]:
    return lambda values: pd.Series(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values, kind)]))
    )


def _coded(values: Sequence[Any]) -> pd.Series[Any]:
    return pd.Series(
        pd.arrays.ArrowExtensionArray(
            pa.chunked_array([pa.array(values, pa.string()).dictionary_encode()])
        )
    )


NUMBERS = (None, 0, 1, 7, -1, 99, HUGE + 1, HUGE + 3, -HUGE - 1, 2**63 - 1)
REALS = (
    None,
    0.0,
    -0.0,
    1.0,
    1.5,
    0.1,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    float(HUGE),
    5e-324,
)
INSTANTS = (
    None,
    datetime(2020, 1, 1),
    datetime(2015, 5, 5, 1, 2, 3),
    datetime(1969, 12, 31, 23, 59, 59),
    datetime(1700, 1, 1),
)
DATES = (None, date(1, 1, 1), date(2020, 1, 1), date(9999, 12, 31), date(1969, 12, 31))

WAYS: dict[str, tuple[Callable[[Sequence[Any]], pd.Series[Any]], tuple[Any, ...]]] = {
    "texts of a file": (_arrow(pa.string()), TEXTS),
    "texts of a dictionary": (_coded, TEXTS),
    "objects of a database": (lambda values: pd.Series(list(values), dtype=object), OBJECTS),
    "whole numbers": (_arrow(pa.int64()), NUMBERS),
    "real numbers": (_arrow(pa.float64()), REALS),
    "decimals": (
        _arrow(pa.decimal128(20, 2)),
        (None, *map(Decimal, ("0", "1", "1.50", "-1", "9007199254740993"))),
    ),
    "truth values": (_arrow(pa.bool_()), (None, True, False)),
    "dates": (_arrow(pa.date32()), DATES),
    **{f"instants in {unit}": (_arrow(pa.timestamp(unit)), INSTANTS) for unit in ("s", "us", "ns")},
}
"""How a source gives the values of a column, and values of that kind."""


def pair_domain() -> Domain:
    """Columns of all types whose levels tell apart what a bad reader would mix up."""
    texts = (
        "1",
        "1.0",
        "true",
        "f",
        "x",
        "01",
        "1.5",
        "9007199254740993",
        "9007199254740995",
        "2020-01-01",
        "a b",
    )
    columns: dict[str, Any] = {
        "category": {"type": "categorical", "categories": texts, "missing": True},
        "flag": {"type": "boolean", "false": "0", "true": "1"},
        "whole": {"type": "integer", "lower": 0, "upper": 99, "bins": 10, "missing": True},
        "huge": {"type": "integer", "lower": -HUGE, "upper": HUGE, "bins": 16},
        "real": {"type": "number", "lower": -5.0, "upper": 5.0, "bins": 7, "missing": True},
        "day": {
            "type": "datetime",
            "lower": "1600-01-01",
            "upper": "9999-12-31",
            "bins": 40,
            "missing": True,
        },
        "time": {
            "type": "datetime",
            "lower": "1969-01-01",
            "upper": "2030-01-01",
            "bins": 9,
            "resolution": "second",
        },
        "code": {
            "type": "text-code",
            "codes": ("1.5", "true", "f", "01", "9007199254740993", "2020-01-01", "nan", "x"),
            "prefix": 4,
            "missing": True,
        },
        "coded": {
            "type": "integer",
            "lower": 2,
            "upper": 99,
            "missing": True,
            "missing_codes": ("1", "1.5", "x"),
        },
        "kept": {
            "type": "categorical",
            "categories": texts[:3],
            "missing": True,
            "missing_codes": texts[3:6],
        },
    }
    kind = TypeAdapter[Any](Column)
    return Domain.from_spec({name: kind.validate_python(entry) for name, entry in columns.items()})


def fuzzed(values: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    """`count` more texts, each made of the texts among `values`: cut, joined, repeated, or with a
    character changed.
    """
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
    """Read all pairs of values (a way's own, where none are given) and see that neither changes
    what the other is read as.

    `more`: fuzzed texts beside them. `every`: of many pairs each so many-th is read, from a random
    one on.
    """
    domain = pair_domain()
    findings: list[ReplayFinding] = []
    count = 0
    for way in ways:
        make, own = WAYS[way]
        listed = own if values is None else values
        held = [*listed, *(fuzzed(listed, more, rng) if str in map(type, listed) else ())]
        reader = _Reading(domain, make, read)
        alone = [reader.table([v]) for v in held]
        pairs = list(product(range(len(held)), repeat=2))
        if len(pairs) > FEW:
            pairs = pairs[int(rng.integers(every)) :: every]
        count += len(pairs)
        for u, v in pairs:
            for found in reader.problems(held[u], held[v], alone[u], alone[v]):
                findings.append(
                    ReplayFinding(
                        "the reader",
                        f"{way}: {_shown(held[u])} and {_shown(held[v])}",
                        "reading",
                        "the table inside the seal",
                        *found,
                    )
                )
    return Replayed(("the reader",), count, 1.0 if count else 0.0, tuple(findings))


class _Reading:
    """Tables of the same value in all columns, read as rows that are units of their own."""

    def __init__(
        self, domain: Domain, make: Callable[[Sequence[Any]], pd.Series[Any]], read: Reader
    ) -> None:
        source, unit = (
            CsvSource(kind="csv", path="none.csv"),
            RowUnit(kind="row", meaning="a row"),
        )
        rows = DeclaredRows(kind="approximate", value=TIMES)
        self._dataset = Dataset(
            id="pairs", source=source, privacy_unit=unit, rows=rows, out_of_domain="clamp"
        )
        self._domain, self._make, self._read, self._coins = domain, make, read, fresh_generator()

    def table(self, values: Sequence[Any]) -> Table | None:
        """`values` as the rows of every column, read; None where the reader fails."""
        column = self._make(values)
        raw = pd.DataFrame(
            dict.fromkeys(self._domain.names, column), index=column.index, copy=False
        )
        try:
            return self._read(raw, self._dataset, self._domain, holdout=0.0, rng=self._coins)
        except Exception:  # whatever it is, it is a finding
            return None

    def problems(
        self, u: Any, v: Any, first: Table | None, second: Table | None
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with a table of `u` and one `v`, given what each is read as on its own."""
        both = self.table([u] * TIMES + [v])
        if both is None or first is None or second is None:
            yield "the reader fails", "values that do not fit are misfits of their own rows"
            return
        expected = _rows(first) * TIMES + _rows(second)
        changed = sum(row != own for row, own in zip(_rows(both), expected, strict=True))
        if changed:
            yield f"{changed} rows are read otherwise than alone", "each row by itself"
        kinds = {
            (c, k): TIMES * n + second.misfits[c][k]
            for c, found in first.misfits.items()
            for k, n in found.items()
        }
        if kinds != {(c, k): n for c, found in both.misfits.items() for k, n in found.items()}:
            yield "misfits are counted otherwise than alone", "misfits counted row by row"


def _rows(table: Table) -> list[tuple[object, ...]]:
    return list(
        zip(
            map(tuple, table.codes.tolist()),
            *(map(str, table.frame[name].tolist()) for name in table.frame),
            strict=True,
        )
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}... ({len(text)} characters)"


def read_in_batches(raw: pd.DataFrame, dataset: Dataset, domain: Domain, **_: Any) -> Table:
    """As `fit_table`, by the way of tables that are read as levels only; each row is a batch, but
    the first two.
    """
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
