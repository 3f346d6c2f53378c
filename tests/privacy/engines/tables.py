"""Columns of every kind of cell, values that are hard to read alike, and engines over a folder."""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from synthdp.data import Domain, LevelGroups, encode_column
from synthdp.privacy.engines import Reading, on_dask
from synthdp.privacy.engines.on_dask import DaskEngine
from synthdp.privacy.table import count_tables
from synthdp.spec.model import Column, Integer
from tests.builders import build_spec

ROW = "row"  # a column that tells rows apart, so that counts show the level of each
ROWS = 24
WORDS = ("a", "B", "b", "é", "7", "01", "true", 'x"y', "it's", "a:b", "%s", "ﬀ", "𝒳")
MANY = tuple(f"c{i}" for i in range(40))


NUMBER = {"type": "number", "lower": -1.5, "upper": 2.5, "spikes": [0, 2.5], "bins": 7}
NUMBER |= {"missing": True}
WHOLE = {"type": "integer", "lower": -3, "upper": 20, "spikes": [-3, 4], "bins": 5, "missing": True}
DAY = {"type": "datetime", "lower": "2020-02-01", "upper": "2021-03-01", "bins": 4}
DAY |= {"missing": True}
EARLY = {"missing_codes": ["1999-09-09"]}
HOUR = {"type": "datetime", "lower": "2020-02-01T06:00:00", "upper": "2020-02-03", "bins": 3}
HOUR |= {"resolution": "hour"}
MAPPED = {"a": "7", "+": "B", "é": "b", "a:b": "b"}
DIGITS = {"1": "low", "0": "20", "-0": "20"}
DECIMALS = ["1", "0.5", "1.00", "-3", "1E+2", "9007199254740993"]
SHORT = ["1", "0.5", "0.10000000149011612", "0.1"]


def words(*categories: str, absent: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A column of categories, and of texts that stand for a missing one."""
    codes = {"missing": True, "missing_codes": list(absent)} if absent else {}
    return {"type": "categorical", "categories": list(categories), **codes, **more}


def coded(column: dict[str, Any], *absent: str) -> dict[str, Any]:
    return column | {"missing_codes": list(absent)}


ENTRIES: dict[str, tuple[dict[str, Any], pa.DataType]] = {
    "word": (words(*WORDS), pa.string()),
    "many": (words(*MANY, absent=("a", "c99"), type="ordinal"), pa.large_string()),
    "mapped": (words("B", "b", "7", absent=("-", "01"), values=MAPPED), pa.string()),
    "mapped digits": (words("low", "20", type="ordinal", values=DIGITS), pa.int64()),
    "mapped truth": (words("x", "true", values={"false": "true"}), pa.bool_()),
    "flag of other texts": ({"type": "boolean", "false": "no", "true": "false"}, pa.bool_()),
    "decimal codes": (
        words(*DECIMALS, absent=("99", "-0.25"), values={"7": "0.5"}),
        pa.decimal128(20, 2),
    ),
    "code": (
        {"type": "text-code", "codes": ["E11.9", "E11.65", "I10", "é1"], "prefix": 3}
        | {"missing": True, "missing_codes": ["I10x"]},
        pa.string(),
    ),
    "flag": ({"type": "boolean"}, pa.bool_()),
    "truth as number": (WHOLE, pa.bool_()),
    "digits": (
        words("1", "-3", "01", "0", "9007199254740993", "+1", "1.0", absent=("20",)),
        pa.int64(),
    ),
    "small": (words("1", "200", "-3", "0"), pa.uint8()),
    "points": (
        words("1", "0.5", "inf", "0", "-0.0", "nan", "1e+22", absent=("2.5", "-3")),
        pa.float64(),
    ),
    "short points": (words(*SHORT), pa.float32()),
    "whole": (coded(WHOLE, "-9", "9007199254740992"), pa.int64()),
    "whole of points": (coded(WHOLE, "-9"), pa.float64()),
    "real": (coded(NUMBER, "99", "0.1"), pa.float64()),
    "short real": (NUMBER, pa.float32()),
    "real of whole": (NUMBER, pa.int32()),
    "edged": (
        {"type": "integer", "lower": 0, "upper": 9, "spikes": [0], "edges": [1, 4]},
        pa.float64(),
    ),
    "day": (DAY | EARLY, pa.date32()),
    "day of instants": (DAY | EARLY, pa.timestamp("us")),
    "hour": (HOUR, pa.timestamp("ms")),
    "hour of days": (HOUR, pa.date32()),
}
SPEC: dict[str, Column] = dict(build_spec({n: entry for n, (entry, _) in ENTRIES.items()}).columns)
COLUMNS = {name: (SPEC[name], kind) for name, (_, kind) in ENTRIES.items()}
DOMAIN = Domain.from_spec(
    {ROW: Integer(type="integer", lower=0, upper=ROWS - 1, bins=ROWS), **SPEC}
)
NUMBERS = [
    *(0.0, -0.0, 0.5, 1.0, -1.5, 2.5, 2.0, 4.0, -3.0, 20.0, 21.0, 0.1, 99.0, -9.0, 1e22, 3.5),
    *(1e308, math.inf, -math.inf, math.nan, 5e-324, 9007199254740992.0, 0.10000000149011612),
]
EDGES = [e for c in DOMAIN.columns if c.ranged and c.step_seconds is None for e in c.edges]


def cells(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, the awkward ones first."""
    if pa.types.is_boolean(kind):
        return st.none() | st.booleans()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        strange = (
            *("", " a", "a ", "A", "I10x", "I10", "é1", "é1x", "E11.42", "c99", "missing", "İ"),
            "e\u0301",
        )
        return (
            st.none()
            | st.sampled_from([*WORDS, *MANY, *strange])
            | st.text(st.characters(codec="utf-8"), max_size=4)
        )
    if pa.types.is_floating(kind):
        near = [x for e in [*EDGES, *NUMBERS] for x in (e, np.nextafter(e, -9), np.nextafter(e, 9))]
        narrow = [float(np.float32(x)) for x in near if not abs(x) > 1e38 or math.isinf(x)]
        width = 32 if kind == pa.float32() else 64
        return (
            st.none()
            | st.sampled_from(narrow if width == 32 else list(map(float, near)))
            | (st.floats(width=width))
        )
    if pa.types.is_integer(kind):
        low, high = (0, 255) if kind == pa.uint8() else (-(2**31), 2**31 - 1)
        if kind == pa.int64():
            low, high = -(2**63), 2**63 - 1
        near = [*range(-10, 30), 200, 9007199254740992, 9007199254740993, low, high]
        return (
            st.none()
            | st.sampled_from([n for n in near if low <= n <= high])
            | st.integers(low, high)
        )
    if pa.types.is_decimal(kind):
        near = ["1", "0.5", "-3", "100", "7", "99", "-0.25", "0", "0.01", "9007199254740993"]
        return st.none() | st.sampled_from([*map(Decimal, near)]) | st.decimals(-99, 999, places=2)
    first, last = dt.datetime(2020, 1, 30), dt.datetime(2021, 3, 3)
    instants = st.datetimes(first, last) | st.datetimes() | st.just(dt.datetime(1999, 9, 9, 23))
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        instants = instants.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
    if pa.types.is_date(kind):
        return st.none() | instants.map(dt.datetime.date)
    return st.none() | instants


def rows() -> st.SearchStrategy[dict[str, list[Any]]]:
    """A value for each column in each of `ROWS` rows."""
    return st.fixed_dictionaries(
        {
            name: st.lists(cells(kind), min_size=ROWS, max_size=ROWS)
            for name, (_, kind) in COLUMNS.items()
        }
    )


def arrow(values: Mapping[str, list[Any]]) -> pa.Table:
    """The same as Arrow cells, with `ROW`."""
    return pa.table(
        {ROW: pa.array(range(ROWS), pa.int64())}
        | {name: pa.array(values[name], kind) for name, (_, kind) in COLUMNS.items()}
    )


def write(table: pa.Table, folder: Path, *, files: int = 1, rows_of_group: int = 7) -> None:
    """The table in as many files of small row groups."""
    each = -(-table.num_rows // files)
    for i in range(files):
        pq.write_table(
            table.slice(i * each, each), folder / f"{i:02d}.parquet", row_group_size=rows_of_group
        )


def reading_of(domain: Domain, id_column: str | None = None, max_rows: int = 1) -> Reading:
    """Columns under their own names, and a fixed key."""
    wanted = [*domain.names, *([id_column] if id_column else [])]
    return Reading(domain, {name: name for name in wanted}, id_column, max_rows, "0f" * 16)


class Here(DaskEngine):
    """Dask's tasks, one after the other in this process."""

    def check(self) -> None:
        """There is no cluster to ask."""

    def _each(self, job: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        return map(job, tasks)

    def _each_shard(self, job: Callable[..., Any], *, values: bool = False) -> Iterator[Any]:
        shards = max(1, -(-self.rows // on_dask.SHARD_ROWS))
        hands = [on_dask._dealt(self.reading, shards, values, part) for part in self.parts.parts]
        return (job([hand[i] for hand in hands]) for i in range(shards))


def levels_of(domain: Domain, table: pa.Table) -> np.ndarray:
    """Levels `[rows, columns]` by the function that reads tables."""
    return np.column_stack([encode_column(c, table.column(c.name)).codes for c in domain.columns])


def expected(domain: Domain, table: pa.Table, tables: list[tuple[str, ...]]) -> list[np.ndarray]:
    """Counts in memory."""
    return count_tables(levels_of(domain, table), domain, tables)


def misfits_of(domain: Domain, table: pa.Table) -> list[list[int]]:
    """What does not fit, by the function that reads tables."""
    found = [encode_column(c, table.column(c.name)) for c in domain.columns]
    return [[f.wrong_type, f.outside, f.unexpected_missing] for f in found]


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    """Whether all counts are equal."""
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


ALL = LevelGroups(DOMAIN, {})
BY_ROW = [(ROW, name) for name in SPEC]
