"""Ways in which a column of values comes to the kernel: who wrote it, how, and who reads it."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from synthdp.data import Domain, LevelGroups, cells_domain
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.privacy.source import read_private, read_texts
from synthdp.spec.model import Compute, Dataset
from tests.builders import skeleton
from tests.privacy.conftest import domain_from

TEXTUAL = ["1", "a", "0.5", "true", "2020-02-01", "1.00", str(2**53 + 1)]
VALUES = {"1.0": "plus", "7": "plus", "-9": "minus", "0.5": "1", "é": "1", "06:00:00": "1"}
COLUMNS: Mapping[str, dict[str, Any]] = {
    "number": {"type": "number", "lower": -1.5, "upper": 2.5, "spikes": [0], "bins": 7}
    | {"missing": True, "missing_codes": ["-9"]},
    "plain": {"type": "number", "lower": 0, "upper": 10, "bins": 4},
    "integer": {"type": "integer", "lower": -3, "upper": 20, "bins": 5, "missing": True},
    "category": {"type": "categorical", "categories": TEXTUAL}
    | {"missing": True, "missing_codes": ["-9", "0"]},
    "truth": {"type": "categorical", "categories": ["true", "b"]},
    "flag": {"type": "boolean"},
    "flag of texts": {"type": "boolean", "false": "0.5", "true": "1", "missing": True},
    "mapped": {"type": "categorical", "categories": ["plus", "minus", "1"], "values": VALUES}
    | {"missing": True, "missing_codes": ["a", "false"]},
    "day": {"type": "datetime", "lower": "2020-01-01", "upper": "2021-01-01", "bins": 4}
    | {"missing": True, "missing_codes": ["0001-01-01"]},
    "code": {"type": "text-code", "codes": ["E11.9", "I10", "1.0"], "prefix": 3, "missing": True},
}
"""A column of each kind, with and without missing values."""

HUGE = [2**53 + 1, 2**63 - 1, -(2**63)]
NUMBERS = [0.0, -0.0, 1.0, 0.5, 7.0, -9.0, 1e9, np.inf, -np.inf, np.nan, 5e-324, None]
OTHER_NAN = np.array([0xFFF8000000000007], dtype=np.uint64).view(np.float64)
INSTANTS = [0, -1, 1_580_515_200, -62_135_596_800, 253_402_300_800, 9_223_372_036, None]
TEXTS = [
    *("1", "1.0", " 1", "01", "a", "A", "", "NaN", "inf", "-0.0", "true", "True", "0", "-9"),
    *("2020-02-01", "02/01/2020", "2020-02-30", "é", "e\u0301", "1e5", "1_0", "null", "I10.1"),
    *("x" * 500, "\u0661", "0x10", None),
]


def _instants(unit: str) -> pa.Array:
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    far = (
        [2**63 - 1, -(2**62)] if unit != "s" else [2**50]
    )  # Parquet holds seconds by the thousandth
    cells = [*(None if s is None else s * scale for s in INSTANTS), *far]
    fit = [c for c in cells if c is None or -(2**63) <= c < 2**63]
    return pa.array(fit, pa.int64()).cast(pa.timestamp(unit))


CELLS: Mapping[str, pa.Array] = {
    "float64": pa.concat_arrays([pa.array(NUMBERS, pa.float64()), pa.array(OTHER_NAN)]),
    "float32": pa.array(NUMBERS, pa.float32()),
    "float16": pa.array(np.array([0.0, -0.0, 1, 0.5, 7, -9, np.inf, np.nan], np.float16)),
    "int64": pa.array([0, 1, -3, 7, -9, *HUGE, None], pa.int64()),
    "int8": pa.array([0, 1, -9, 127, -128, None], pa.int8()),
    "uint64": pa.array([0, 1, 7, 2**64 - 1, None], pa.uint64()),
    "bool": pa.array([True, False, None]),
    "text": pa.array(TEXTS, pa.string()),
    "long text": pa.array(TEXTS, pa.large_string()),
    "time s": pa.array([0, 21_600, 86_399, None], pa.int32()).cast(pa.time32("s")),
    "time us": pa.array([0, 21_600_000_000, 1, None], pa.int64()).cast(pa.time64("us")),
    "null": pa.array([None, None], pa.null()),
    "day": pa.array([0, 18_293, -719_162, 2_932_897, 2**31 - 1, -(2**31), None], pa.int32()).cast(
        pa.date32()
    ),
    "near day": pa.array([0, 18_293, -719_162, 2_932_896, None], pa.int32()).cast(pa.date32()),
    "near instant": pa.array([0, -1, 1_580_515_200, -62_135_596_800, None], pa.int64()).cast(
        pa.timestamp("s")
    ),
    "instant s": _instants("s"),
    "instant ms": _instants("ms"),
    "instant us": _instants("us"),
    "instant ns": _instants("ns"),
    "decimal": pa.array(
        [Decimal(t) for t in ("0.00", "1.00", "-9.00", "0.50", "99999999.99")] + [None],
        pa.decimal128(10, 2),
    ),
    "wide decimal": pa.array([Decimal("1"), Decimal(10) ** 60, None], pa.decimal256(70, 4)),
}
"""By type: cells that are read with care, each in one place."""


Written = tuple[dict[str, Any], Any]


@cache
def domain_of(names: tuple[str, ...]) -> Domain:
    return domain_from({name: COLUMNS[name] for name in names})


@dataclass(frozen=True)
class Way:
    """A way to store cells of the types `kinds`, and to read them.

    `write` takes the type, the columns' names and the cells, and gives `dataset.source` and a frame
    where rows are given from Python.
    """

    name: str
    write: Callable[[str, Sequence[str], pa.Array, Path], Written]
    kinds: tuple[str, ...] = tuple(CELLS)
    compute: Mapping[str, Any] = field(default_factory=dict)
    unit: Mapping[str, Any] = field(default_factory=lambda: skeleton()["dataset"]["privacy_unit"])
    columns: tuple[str, ...] = tuple(COLUMNS)

    def dataset(self, source: dict[str, Any]) -> Dataset:
        known = skeleton()["dataset"] | {"rows": {"kind": "approximate", "value": 1000}}
        known |= {"source": source, "privacy_unit": dict(self.unit), "out_of_domain": "clamp"}
        return Dataset.model_validate(known)

    def read(self, kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> np.ndarray:
        """Rows of each level of each column, then what does not fit."""
        source, frame = self.write(kind, names, cells, folder)
        domain = domain_of(tuple(names))
        table = read_private(
            self.dataset(source),
            domain,
            folder=folder,
            holdout=0.0,
            streams=Streams.fresh(),
            given=None if frame is None else seal_dataframe(frame),
            compute=Compute.model_validate({"threads": 1, **self.compute}),
        ).unseal(key=_KERNEL_KEY)
        counts = table.count(LevelGroups(domain, {}), [(name,) for name in names])
        misfits = [np.array(list(table.misfits[name].values())) for name in names]
        return np.concatenate([*counts, *misfits])


class Untyped(Way):
    """Texts without a type yet, as `init --private` reads them."""

    def read(self, kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> np.ndarray:
        """Rows of each form and of each size of each column."""
        source, _ = self.write(kind, names, cells, folder)
        table = read_texts(
            self.dataset(source), names, folder=folder, streams=Streams.fresh(), delta=0.0
        ).unseal(key=_KERNEL_KEY)
        groups = LevelGroups(domain := cells_domain(len(names)), {})
        return np.concatenate(table.count(groups, [(name,) for name in domain.names]))


# --- Parquet ---

PARQUET = {"kind": "parquet", "path": "t.parquet"}
WRITERS: Mapping[str, dict[str, Any]] = {
    "statistics": {"row_group_size": 50, "use_dictionary": False},
    "groups of one": {"row_group_size": 1},
    "pages": {"row_group_size": 3, "data_page_size": 1, "write_batch_size": 1}
    | {"write_page_index": True, "data_page_version": "2.0"},
    "no statistics": {"row_group_size": 7, "write_statistics": False},
}


def parquet(writer: str, source: Mapping[str, Any], *, ids: str = "") -> Callable[..., Written]:
    """With a column `ids`, if any, of which each row has another one."""

    def write(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
        table = pa.table({name: cells for name in names})
        if ids:
            table = table.append_column(ids, pa.array([f"u{i}" for i in range(len(cells))]))
        pq.write_table(table, folder / "t.parquet", **WRITERS[writer])
        return {**PARQUET, **source}, None

    return write


def dictionary(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
    """Dictionaries with entries that no row uses."""
    known = CELLS[kind].drop_null().unique()
    found = {v: i for i, v in reversed(list(enumerate(known.to_pylist())))}
    places = pa.array([found.get(v) for v in cells.to_pylist()], pa.int32())
    column = pa.DictionaryArray.from_arrays(places, known)
    pq.write_table(pa.table({name: column for name in names}), folder / "t.parquet")
    return dict(PARQUET), None


def two_files(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
    """The first row in a file of its own."""
    (folder / "t").mkdir(exist_ok=True)
    table = pa.table({name: cells for name in names})
    for i, part in enumerate((table.slice(0, 1), table.slice(1))):
        pq.write_table(part, folder / "t" / f"{i}.parquet")
    return {**PARQUET, "path": "t"}, None


FAST = {"float64": "float64", "float32": "float32", "int64": "Int64", "int8": "Int8"}
FAST |= {"bool": "boolean", "text": "object", "instant us": "datetime64[us]"}
"""The pandas dtype that stands for a type."""


def pandas_column(cells: pa.Array, dtype: str) -> pd.Series[Any]:
    if dtype == "object":
        return pd.Series(cells.to_pylist(), dtype=object)
    if dtype.startswith(("float", "datetime")):
        return pd.Series(cells.to_numpy(zero_copy_only=False).astype(dtype))
    return pd.Series(pd.array(cells.to_pylist(), dtype=dtype))  # type: ignore[call-overload]


def fastparquet(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
    """By another writer, which puts NaN into no statistics either, in row groups of four."""
    import fastparquet as other

    frame = pd.DataFrame({name: pandas_column(cells, FAST[kind]) for name in names})
    other.write(
        str(folder / "t.parquet"),
        frame,
        row_group_offsets=list(range(0, len(frame), 4)),
        stats=True,
        has_nulls=True,
        object_encoding="utf8",
    )
    return dict(PARQUET), None


# --- CSV, DataFrames, SQLite ---


def csv_with_commas(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
    """Numbers with a comma before their decimals."""
    texts = ["" if v is None else str(v).replace(".", ",") for v in cells.to_pylist()]
    lines = [";".join(names), *(";".join([f'"{t}"'] * len(names)) for t in texts)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"kind": "csv", "path": "t.csv", "delimiter": ";", "decimal": ","}, None


def csv_file(quoting: int) -> Callable[..., Written]:
    def write(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
        with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, quoting=quoting)
            rows.writerow(names)
            rows.writerows([["" if v is None else v] * len(names) for v in cells.to_pylist()])
        return {"kind": "csv", "path": "t.csv"}, None

    return write


FRAMES: Mapping[str, str] = {
    **FAST,
    "uint64": "UInt64",
    "instant s": "datetime64[s]",
    "instant ms": "datetime64[ms]",
    "instant ns": "datetime64[ns]",
}


def frame(make: Callable[[str, pa.Array], pd.Series[Any]]) -> Callable[..., Any]:
    def write(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
        return {"kind": "dataframe"}, pd.DataFrame({name: make(kind, cells) for name in names})

    return write


def categories(kind: str, cells: pa.Array) -> pd.Series[Any]:
    """Of a categorical dtype that has all cells of the type, whichever rows there are."""
    known = pd.Index(list(dict.fromkeys(CELLS[kind].drop_null().to_pylist())), dtype=object)
    return pd.Series(pd.Categorical(cells.to_pylist(), categories=known))


def sparse(kind: str, cells: pa.Array) -> pd.Series[Any]:
    """Of a sparse dtype; texts that stand often are not stored either."""
    if kind == "text":
        dtype = pd.SparseDtype(object, "1")
        return pd.Series(pd.arrays.SparseArray(np.array(cells.to_pylist(), object), dtype=dtype))
    dense = cells.to_numpy(zero_copy_only=False).astype(kind)
    return pd.Series(pd.arrays.SparseArray(dense, dtype=pd.SparseDtype(kind, 0)))


def sqlite(declared: str, *, analysed: bool) -> Callable[..., Written]:
    def write(kind: str, names: Sequence[str], cells: pa.Array, folder: Path) -> Written:
        (folder / "t.db").unlink(missing_ok=True)
        with closing(sqlite3.connect(folder / "t.db")) as connection, connection:
            listed = ", ".join(f'"{name}" {declared}' for name in names)
            connection.execute(f"create table t ({listed})")
            marks = ", ".join("?" * len(names))
            rows = [[v] * len(names) for v in cells.to_pylist()]
            connection.executemany(f"insert into t values ({marks})", rows)
            if analysed:
                connection.execute(f'create index i on t ("{names[0]}")')
                connection.execute("analyze")
        return {"kind": "sql", "url_env": "TEST_DB_URL", "query": "select * from t"}, None

    return write


IN_SQLITE = ("float64", "int64", "text", "bool")
IN_TEXTS = ("text", "float64", "int64", "bool", "near day", "near instant", "decimal", "time us")
AS_PYTHON = tuple(k for k in FAST if k != "instant us")
AS_PYTHON += ("uint64", "near day", "near instant", "decimal", "time us")


def ways() -> Iterator[Way]:
    """All ways that need no server."""
    for engine in ("memory", "arrow", "dask"):
        compute = {"engine": engine}
        for writer in WRITERS:
            yield Way(f"{engine}, {writer}", parquet(writer, {}), compute=compute)
        yield Way(f"{engine}, unused entries", dictionary, ("text", "long text"), compute)
        yield Way(f"{engine}, fastparquet", fastparquet, tuple(FAST), compute)
        yield Way(f"{engine}, two files", two_files, compute=compute)
    unit = {"kind": "id", "column": "unit", "max_rows": 2, "meaning": "one row"}
    for writer in WRITERS:
        write = parquet(writer, {}, ids="unit")
        yield Way(f"dask by id, {writer}", write, compute={"engine": "dask"}, unit=unit)
    yield Way("levels alone", parquet("pages", {"levels_only": True}))
    yield Way("csv", csv_file(csv.QUOTE_MINIMAL), ("text", "float64", "int64", "bool", "near day"))
    yield Way("csv, quoted", csv_file(csv.QUOTE_ALL), ("text", "float64"))
    yield Way("csv, decimal commas", csv_with_commas, ("text", "float64", "int64", "decimal"))
    yield Way("frame of sparse dtypes", frame(sparse), ("text", "float64", "float32"))
    yield Way("frame", frame(lambda k, c: pandas_column(c, FRAMES[k])), tuple(FRAMES))
    yield Way("frame of objects", frame(lambda _, c: pandas_column(c, "object")), AS_PYTHON)
    yield Way("frame of categories", frame(categories), ("text", "int64", "bool"))
    arrow = frame(lambda _, c: pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([c]))))
    yield Way("frame of Arrow", arrow)
    for engine in ("memory", "sql"):
        for declared, analysed in (("", False), ("NUMERIC", True), ("TEXT", True), ("REAL", True)):
            name = f"sqlite {declared or 'untyped'}, {engine}"
            write = sqlite(declared, analysed=analysed)
            yield Way(name, write, IN_SQLITE, {"engine": engine})
    for name, write in (
        ("plain", csv_file(csv.QUOTE_MINIMAL)),
        ("quoted", csv_file(csv.QUOTE_ALL)),
        ("decimal commas", csv_with_commas),
    ):
        yield Untyped(f"texts, {name}", write, IN_TEXTS, columns=("number", "day"))
