"""Tables that were made to do harm, or are damaged: read as what they are or refused, and no error
holds a cell of them.
"""

import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.data import Domain
from synthdp.errors import DataError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.spec import draft_spec
from synthdp.spec.model import (
    Categorical,
    CsvSource,
    Dataset,
    DeclaredRows,
    Integer,
    ParquetSource,
    RowUnit,
    Source,
    SqlSource,
)

pytestmark = pytest.mark.check

CANARY = "zq-canary-9182"
DOMAIN = Domain.from_spec(
    {
        "sex": Categorical(type="categorical", categories=("f", "m", CANARY[:2])),
        "age": Integer(type="integer", lower=0, upper=99, bins=10, missing=True),
    }
)
GOOD = "sex,age\nf,3\nm,99\n"
BOMB_ROWS = 1_000_000_000


def read(folder: Path, source: Source, *, handling: str = "refuse", unit: Any = None) -> Table:
    dataset = Dataset(
        id="d",
        source=source,
        privacy_unit=unit or RowUnit(kind="row", meaning="one visit"),
        rows=DeclaredRows(kind="approximate", value=100),
        out_of_domain=handling,
    )  # type: ignore[arg-type]
    return read_private(
        dataset, DOMAIN, folder=folder, holdout=0.0, streams=Streams.fresh()
    ).unseal(key=_KERNEL_KEY)


def csv(path: str = "t.csv", **options: Any) -> CsvSource:
    return CsvSource(kind="csv", path=path, **options)


# --- CSV ---

NOISE = np.random.default_rng(1).bytes(1000)
BAD_CSV: dict[str, bytes | Callable[[], bytes]] = {
    "empty": b"",
    "only line ends": b"\n\n\n",
    "only a byte order mark": b"\xef\xbb\xbf",
    "UTF-16": f"{GOOD}{CANARY},1\n".encode("utf-16"),
    "UTF-32": f"{GOOD}{CANARY},1\n".encode("utf-32"),
    "Latin-1 among UTF-8": GOOD.encode() + f"{CANARY}é,1\n".encode("latin-1"),
    "overlong UTF-8": GOOD.encode() + b"\xc0\xaf,1\n",
    "half a character": GOOD.encode() + b"\xed\xa0\x80,1\n",
    "nul in a cell": f"{GOOD}f\0{CANARY},1\n".encode(),
    "nul in the header": f"sex\0,age\n{CANARY},1\n".encode(),
    "two byte order marks": b"\xef\xbb\xbf\xef\xbb\xbf" + GOOD.encode(),
    "no header": f"{CANARY},1\nf,2\n".encode(),
    "no header, and a cell that is a column's name": f"sex,{CANARY}\nf,2\n".encode(),
    "header run into the first row": f"sex,age,{CANARY},3\nm,4\n".encode(),
    "header twice the same": f"sex,sex,age\n{CANARY},f,1\n".encode(),
    "header of blanks": f" , \n{CANARY},1\n".encode(),
    "a column too few": f"sex\n{CANARY}\n".encode(),
    "short row": f"{GOOD}{CANARY}\n".encode(),
    "long row": f"{GOOD}{CANARY},1,2\n".encode(),
    "quote that is never closed": f'{GOOD}f,"{CANARY}\nm,1\n'.encode(),
    "quote that is never closed, at the end": f'{GOOD}f,"1\nm,{CANARY}'.encode(),
    "quote in the header that is never closed": f'sex,"age\nf,{CANARY}\n'.encode(),
    "formula": f"{GOOD}=cmd|' /C {CANARY}'!A0,1\n".encode(),
    "underscore in a number": f"{GOOD}f,1_0\n".encode(),
    "Arabic digits": f"{GOOD}f,\u0661\n".encode(),
    "full-width digits": f"{GOOD}f,\uff11\n".encode(),
    "number beyond every float": f"{GOOD}f,{'9' * 4000}\n".encode(),
    "exponent beyond every float": f"{GOOD}f,1e999999\n".encode(),
    "hexadecimal": f"{GOOD}f,0x10\n".encode(),
    "category turned around": f"{GOOD}\u202ef,1\n".encode(),
    "category in another alphabet": f"{GOOD}\u043c,1\n".encode(),
    "gzip": b"\x1f\x8b\x08\x00" + NOISE[:100],
    "zip": b"PK\x03\x04" + NOISE[:100],
    "pickle of a frame": b"\x80\x04\x95" + NOISE[:20] + CANARY.encode(),
    "Parquet": b"PAR1" + NOISE[:100] + b"PAR1",
    "SQLite": b"SQLite format 3\0" + NOISE,
    "a million columns": lambda: ",".join(f"c{i}" for i in range(1_000_000)).encode() + b"\n1\n",
    "a hundred thousand columns": lambda: (
        b"sex,age," + ",".join(f"c{i}" for i in range(100_000)).encode() + b"\n1\n"
    ),
    "a line of 100 MB": lambda: GOOD.encode() + CANARY.encode() + b"x" * 100_000_000 + b",1\n",
    "a header of 100 MB": lambda: b"sex" * 33_000_000,
    "a cell of 10 MB": lambda: GOOD.encode() + CANARY.encode() + b"x" * 10_000_000 + b",1\n",
    "ten million quotes": lambda: GOOD.encode() + b'"' * 10_000_000,
    "ten million commas": lambda: GOOD.encode() + b"," * 10_000_000,
    "twenty million empty lines and no header": lambda: b"\r" * 20_000_000,
    "far more rows than declared": lambda: GOOD.encode() + b"f,1\n" * 1_100_000,
}


def write(folder: Path, name: str) -> None:
    data = BAD_CSV[name]
    (folder / "t.csv").write_bytes(data if isinstance(data, bytes) else data())


@pytest.mark.parametrize("name", BAD_CSV)
def test_a_bad_csv_is_refused_without_a_word_of_it(
    act: Callable[..., Any], figure: Callable[..., None], tmp_path: Path, name: str
) -> None:
    write(tmp_path, name)
    ended = act(lambda: read(tmp_path, csv()), megabytes=1200, seconds=60)
    assert (ended.error, ended.code) == ("DataError", 5), (
        ended.error,
        ended.chain[:2000],
        ended.printed[:2000],
    )
    assert (
        CANARY not in ended.chain + ended.printed
        and "Memory" not in ended.chain
        and len(ended.chain) < 20_000
    )
    figure("bad inputs refused with the declared error", 1, 1)


GOOD_CSV: dict[str, tuple[bytes, list[int]]] = {
    "CR alone": (GOOD.replace("\n", "\r").encode(), [0, 1]),
    "CR LF": (GOOD.replace("\n", "\r\n").encode(), [0, 1]),
    "mixed line ends": (b"sex,age\r\nf,3\nm,99\r", [0, 1]),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), [0, 1]),
    "no last line end": (GOOD.strip().encode(), [0, 1]),
    "empty lines": (b"sex,age\n\nf,3\n\n\nm,99\n\n", [0, 1]),
    "quoted cells": (b'"sex","age"\n"f","3"\n"m","99"\n', [0, 1]),
    "columns the other way round": (b"age,sex\n3,f\n99,m\n", [0, 1]),
}


@pytest.mark.parametrize("name", GOOD_CSV)
def test_odd_but_sound_csv_is_read(tmp_path: Path, name: str) -> None:
    data, sexes = GOOD_CSV[name]
    (tmp_path / "t.csv").write_bytes(data)
    assert read(tmp_path, csv()).codes[:, 0].tolist() == sexes


def test_a_single_column_keeps_its_missing_values(tmp_path: Path) -> None:
    """An empty line is a row where there is one column; leaving it out would drop units unseen."""
    (tmp_path / "t.csv").write_bytes(b"person\n\nx\n")
    single = Domain.from_spec(
        {"person": Categorical(type="categorical", categories=("x",), missing=True)}
    )
    dataset = Dataset(
        id="d",
        source=csv(),
        privacy_unit=RowUnit(kind="row", meaning="one"),
        rows=DeclaredRows(kind="approximate", value=9),
    )
    table = read_private(
        dataset, single, folder=tmp_path, holdout=0.0, streams=Streams.fresh()
    ).unseal(key=_KERNEL_KEY)
    assert table.codes[:, 0].tolist() == [1, 0]


@pytest.mark.parametrize(
    "name",
    [
        "underscore in a number",
        "Arabic digits",
        "number beyond every float",
        "nul in a cell",
        "formula",
        "a cell of 10 MB",
    ],
)
def test_where_clamping_is_allowed_a_bad_cell_is_one_misfit(tmp_path: Path, name: str) -> None:
    write(tmp_path, name)
    table = read(tmp_path, csv(), handling="clamp")
    assert sum(sum(kinds.values()) for kinds in table.misfits.values()) == 1
    assert len(table.codes) == 3 and CANARY not in table.frame.to_csv()


# --- Parquet ---


def parquet(path: Path, table: pa.Table, **options: Any) -> None:
    pq.write_table(table, path, **options)


def nulls_bomb(path: Path) -> None:
    """A billion nulls in a few kilobytes."""
    schema = pa.schema([("sex", pa.string()), ("age", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        block = pa.table(
            {"sex": pa.nulls(10_000_000, pa.string()), "age": pa.nulls(10_000_000, pa.int64())}
        )
        for _ in range(2):
            writer.write_table(block)


def claims_rows(path: Path) -> None:
    """A footer that says a billion where there are two."""
    parquet(path, pa.table({"sex": ["f", "m"], "age": [1, 2]}))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\x16\x04", b"\x16\x80\xa8\xd6\xb9\x07"))


def long_text(path: Path) -> None:
    parquet(path, pa.table({"sex": [CANARY + "x" * 50_000_000], "age": [1]}), compression="zstd")


def repeated_text(path: Path) -> None:
    """A dictionary of one megabyte that a hundred thousand rows refer to."""
    codes = pa.array(np.zeros(100_000, np.int32))
    text = pa.DictionaryArray.from_arrays(codes, [CANARY + "x" * 1_000_000])
    parquet(
        path,
        pa.table(
            {
                "sex": text.cast(pa.dictionary(pa.int32(), pa.string())),
                "age": np.zeros(100_000, np.int64),
            }
        ),
        dictionary_pagesize_limit=1 << 30,
    )


def pickled_metadata(path: Path) -> None:
    """Fields that older readers unpickle."""
    evil = b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94."  # noqa: E501
    meta = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": evil}
    schema = pa.schema(
        [pa.field("sex", pa.string(), metadata=meta), pa.field("age", pa.int64())],
        metadata={b"pandas": evil},
    )
    parquet(path, pa.table({"sex": ["f"], "age": [1]}, schema=schema))


def truncated(path: Path) -> None:
    parquet(path, pa.table({"sex": [CANARY] * 100, "age": [1] * 100}))
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path: Path) -> None:
    parquet(path, pa.table({"sex": [CANARY] * 100, "age": [1] * 100}), compression="none")
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)


def footer_of_two_gigabytes(path: Path) -> None:
    path.write_bytes(b"PAR1" + b"x" * 100 + struct.pack("<I", 2**31 - 1) + b"PAR1")


def nested(path: Path) -> None:
    parquet(path, pa.table({"sex": [[CANARY]], "age": [{"a": 1}]}))


def binary(path: Path) -> None:
    parquet(path, pa.table({"sex": [CANARY.encode(), b"\xff"], "age": [1, 2]}))


def strange_types(path: Path) -> None:
    parquet(
        path,
        pa.table(
            {
                "sex": pa.array([1, 2], pa.duration("s")),
                "age": pa.array([[1.5], [2.5]], pa.list_(pa.float64())),
            }
        ),
    )


def duplicate_columns(path: Path) -> None:
    parquet(
        path,
        pa.Table.from_arrays(
            [pa.array([CANARY]), pa.array(["f"]), pa.array([1])], names=["sex", "sex", "age"]
        ),
    )


def undeclared(path: Path) -> None:
    parquet(path, pa.table({"sex": ["f"], "age": [1], "other": [CANARY]}))


def pickle_posing(path: Path) -> None:
    path.write_bytes(b"\x80\x04\x95" + CANARY.encode() * 10)


def folder_with_pipe(path: Path) -> None:
    path.mkdir()
    parquet(path / "a.parquet", pa.table({"sex": ["f"], "age": [1]}))
    os.mkfifo(path / "b.parquet")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


BAD_PARQUET = (
    nulls_bomb,
    claims_rows,
    long_text,
    repeated_text,
    truncated,
    flipped,
    footer_of_two_gigabytes,
    nested,
    binary,
    strange_types,
    duplicate_columns,
    undeclared,
    pickle_posing,
    folder_with_pipe,
    pipe,
    empty,
)


@pytest.mark.parametrize("make", BAD_PARQUET, ids=lambda f: f.__name__)
def test_a_bad_parquet_is_refused_without_a_word_of_it(
    act: Callable[..., Any], figure: Callable[..., None], tmp_path: Path, make: Any
) -> None:
    make(tmp_path / "t.parquet")
    ended = act(
        lambda: read(tmp_path, ParquetSource(kind="parquet", path="t.parquet")),
        megabytes=2000,
        seconds=60,
    )
    assert (ended.error, ended.code) == ("DataError", 5), (ended.error, ended.chain[:2000])
    assert CANARY not in ended.chain + ended.printed and "Memory" not in ended.chain
    figure("bad inputs refused with the declared error", 1, 1)


def test_metadata_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled_metadata(tmp_path / "t.parquet")
    called: list[str] = []
    monkeypatch.setattr(os, "system", lambda command: called.append(command))
    try:
        table = read(tmp_path, ParquetSource(kind="parquet", path="t.parquet"))
    except DataError:
        pass
    else:
        assert table.codes[:, 0].tolist() == [0]
    assert called == []


def test_text_columns_of_parquet_are_read_as_they_are(tmp_path: Path) -> None:
    pd.DataFrame({"sex": ["f", "m"], "age": ["3", None]}).to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path, ParquetSource(kind="parquet", path="t.parquet")).codes[0].tolist() == [
        0,
        0,
    ]


# --- SQL ---

BAD_SQL = {
    "blob": f"select x'{CANARY.encode().hex()}' as sex, 1 as age",
    "a value of the wrong type": f"select 'f' as sex, '{CANARY}' as age",
    "an integer beyond 64 bits": "select 'f' as sex, 9223372036854775807 + 1.0 as age",
    "no rows at all": "select 'f' as sex",
    "names twice": f"select 'f' as sex, '{CANARY}' as sex, 1 as age",
    "no query": "drop table if exists t",
    "two queries": f"select 'f' as sex, 1 as age; select '{CANARY}'",
    "an error that quotes a value": f"select json_extract('{CANARY}', '$') as sex, 1 as age",
    "something unfinished": f"select '{CANARY}",
}


@pytest.mark.parametrize("name", BAD_SQL)
def test_a_bad_query_is_refused_without_a_word_of_its_rows(
    act: Callable[..., Any],
    figure: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("create table t (a text)")
    connection.close()
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 's.db'}")
    ended = act(
        lambda: read(tmp_path, SqlSource(kind="sql", url_env="TEST_DB_URL", query=BAD_SQL[name]))
    )
    assert (ended.error, ended.code) == ("DataError", 5), (ended.error, ended.chain[:2000])
    assert CANARY not in ended.chain + ended.printed
    figure("bad inputs refused with the declared error", 1, 1)


# --- paths ---


@pytest.mark.parametrize(
    "path",
    [
        "file:///{secret}",
        "file:{secret}",
        "~/secret.csv",
        "~root/secret.csv",
        "http://127.0.0.1:9/t.csv",
        "s3://b/t.csv",
        "zip://a::t.csv",
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_path_is_never_an_address_or_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    """Also where the loader's own refusal was passed by: a relative folder once let `file:`
    through.
    """
    secret = tmp_path / "secret.csv"
    secret.write_text(GOOD)
    pd.read_csv(secret).to_parquet(tmp_path / "secret.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = (
        path.format(secret=secret)
        if kind == "csv"
        else path.format(secret=secret).replace(".csv", ".parquet")
    )
    source = csv(text) if kind == "csv" else ParquetSource(kind="parquet", path=text)
    for folder in (Path(), tmp_path):
        with pytest.raises(DataError):
            read(folder, source)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.zip", "t.csv.bz2", "t.csv.xz", "t.tar"])
def test_no_archive_is_unpacked(tmp_path: Path, name: str) -> None:
    pd.DataFrame({"sex": ["f"], "age": [1]}).to_csv(tmp_path / name, index=False)
    with pytest.raises(DataError):
        read(tmp_path, csv(name))


@pytest.mark.parametrize("kind", ["pipe", "endless device", "folder", "socket"])
@pytest.mark.parametrize("reader", ["source", "draft"])
def test_what_is_no_plain_file_is_not_opened(
    act: Callable[..., Any], tmp_path: Path, kind: str, reader: str
) -> None:
    path = tmp_path / "t.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mknod(path, 0o140644)
    ended = act(
        lambda: read(tmp_path, csv()) if reader == "source" else draft_spec(path, ask=None),
        seconds=5,
    )
    assert ended.error == "DataError", (ended.error, ended.chain)


def test_a_steward_may_name_any_file_that_they_may_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "t.csv").write_text(GOOD)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "link.csv").symlink_to(tmp_path / "data" / "t.csv")
    for path in ("../data/t.csv", str(tmp_path / "data" / "t.csv"), "link.csv"):
        assert len(read(tmp_path / "specs", csv(path)).codes) == 2
