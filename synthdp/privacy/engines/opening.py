"""The table of a spec in the engine that its spec names: opened, surveyed, and held against what is
declared, before anything is spent.

A table in many Parquet files is parts that can be read by themselves: a file and some of its row
groups. Files lie in a folder, match a pattern, or lie at an address that fsspec knows. Names of
folders are no columns, as in `readers.files`. A part is small enough to be read in seconds, and is
read in batches, so that memory does not grow with it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

import synthdp
from synthdp.data.domain import Domain
from synthdp.errors import DataError, install
from synthdp.privacy.engines import Engine, EngineTable, Reading
from synthdp.privacy.readers.checks import (
    check_declared_rows,
    check_file,
    check_misfits,
    check_without_ids,
    id_column_of,
)
from synthdp.privacy.readers.files import RATIO, UNPACKED, _check_alike, _open, choice
from synthdp.spec.addresses import is_pattern, is_url
from synthdp.spec.model import Compute, CsvSource, Dataset, IdUnit, ParquetSource, Source, SqlSource
from synthdp.spec.model.rules import engine_of


def open_table(
    dataset: Dataset,
    compute: Compute,
    domain: Domain,
    *,
    folder: Path,
    keys: tuple[str, str],
    holdout: float,
    delta: float,
) -> EngineTable:
    """The table, whose rows stay where they are. One of `keys` chooses the rows of ids of many
    rows, and the other the units that are held out, each with chance `holdout`.

    Raises:
        DataError: the engine does not answer or lacks a package, or the table is not the declared
            one. Unlike in memory, what does not fit is looked for in all rows, also of those that
            a unit has beyond its `max_rows`.
    """
    engine = _engine(dataset, compute, reading_of(dataset, domain, keys, holdout), folder, delta)
    found = engine.survey()
    check_file(found.rows, dataset, delta)
    check_without_ids(found.without_id, dataset.privacy_unit)
    misfits = check_misfits(found.by_column(domain), domain, dataset)
    check_declared_rows(found.rows, dataset)
    return EngineTable(engine, misfits)


def reach(dataset: Dataset, compute: Compute, domain: Domain, *, folder: Path) -> None:
    """See that the engine answers and that the table has the declared columns. No row is read.

    Raises:
        DataError: it does not, or it has not.
    """
    from synthdp.privacy.engines.on_dask import DaskEngine

    source, reading = dataset.source, reading_of(dataset, domain)
    if isinstance(source, ParquetSource) and engine_of(source, compute) == "arrow":
        parts_of(source, dataset, reading, folder, 0.0)  # of linked tables rows have ids
        return
    engine = _engine(dataset, compute, reading, folder, 0.0)
    if isinstance(engine, DaskEngine):
        engine.check()


LIBRARIES = {
    "memory": ("numpy", "pandas", "pyarrow"),
    "arrow": ("numpy", "pandas", "pyarrow", "fsspec"),
    "dask": ("numpy", "pandas", "pyarrow", "fsspec", "distributed"),
    "sql": ("numpy", "pandas", "SQLAlchemy", "psycopg"),
}
"""Packages that have a part in how a value is read; not all need be installed."""


def read_by(source: Source, compute: Compute) -> dict[str, str]:
    """What reads a source: its kind, the engine, and versions of synthdp and of libraries.

    A reservation keeps it, so that releases of a faulty reader can be found.
    """
    engine = engine_of(source, compute)
    found = {"source": source.kind, "engine": engine, "synthdp": synthdp.__version__}
    names = (*LIBRARIES[engine], *(LIBRARIES["sql"] if source.kind == "sql" else ()))
    for name in dict.fromkeys(names):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def reading_of(
    dataset: Dataset, domain: Domain, keys: tuple[str, str] = ("", ""), holdout: float = 0.0
) -> Reading:
    """With the spec's own names of columns."""
    unit, id_column = dataset.privacy_unit, id_column_of(dataset)
    most = unit.max_rows if isinstance(unit, IdUnit) else 1
    names = {name: name for name in (*domain.names, *([id_column] if id_column else []))}
    return Reading(domain, names, id_column, most, keys[0], holdout, keys[1])


def parts_of(
    source: ParquetSource, dataset: Dataset, reading: Reading, folder: Path, delta: float
) -> tuple[Reading, Parts]:
    """The parts of a Parquet table, and what is read of its rows under the files' own names. No row
    is read.

    Raises:
        DataError: it has other columns, or too many rows.
    """
    parts = find_parts(source.path, folder)
    kept = choice(source, reading.domain, reading.id_column)(parts.schema.names)
    check_file(parts.rows, dataset, delta)
    names = {n: parts.schema.names[at] for at, n in kept.items() if n in reading.names}
    return replace(reading, names=names), parts.stamped() if reading.holdout else parts


def _engine(
    dataset: Dataset, compute: Compute, reading: Reading, folder: Path, delta: float
) -> Engine:
    source = dataset.source
    choose = choice(source, reading.domain, reading.id_column)
    if isinstance(source, SqlSource):
        from synthdp.privacy.engines.on_sql import SqlEngine

        return SqlEngine(source, reading, choose, folder)
    if not isinstance(source, ParquetSource):
        raise DataError(
            f"compute.engine {compute.engine} does not read {source.kind}",
            hint="leave compute.engine out, or export the table to Parquet",
        )
    reading, parts = parts_of(source, dataset, reading, folder, delta)
    threads = compute.threads or os.cpu_count() or 1
    if engine_of(source, compute) == "dask":
        from synthdp.privacy.engines.on_dask import DaskEngine

        return DaskEngine(reading, parts, dataset.rows.value, threads, compute.address)
    from synthdp.privacy.engines.on_arrow import ArrowEngine

    return ArrowEngine(reading, parts, threads)


# --- parts of Parquet files ---


PART_ROWS = 1 << 20
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "https": "aiohttp", "http": "aiohttp"}


@dataclass(frozen=True)
class Part:
    """Some row groups of a file, which is shown to nobody: an address may hold a password.

    `first` is the place of its first row in the table.
    """

    file: str = field(repr=False)
    groups: tuple[int, ...]
    rows: int
    first: int = 0


@dataclass(frozen=True)
class Parts:
    """All parts of a table, in the order of its files, with the columns that the files have.

    Where units have coins by their place, `stamps` are those of the local files as they were found.
    """

    parts: tuple[Part, ...]
    schema: pa.Schema
    stamps: tuple[str, ...] = field(default=(), repr=False)

    @property
    def rows(self) -> int:
        """By the files' own word."""
        return sum(part.rows for part in self.parts)

    def stamped(self) -> Parts:
        """The same parts, with the stamps of their files."""
        files = dict.fromkeys(part.file for part in self.parts if not is_url(part.file))
        return replace(self, stamps=tuple(map(stamp, files)))

    def check_same(self) -> None:
        """Check that no file was written since it was stamped, if any was.

        Raises:
            DataError: one was, so that rows that were read since may be under other coins.
        """
        if self.stamps and self.stamped().stamps != self.stamps:
            told = "a file of the table was written anew while the run reads it, and another coin"
            hint = "bring it back with its time, as `cp -p` keeps it; then resume"
            raise DataError(f"{told} would say who is held out", hint=hint)


def find_parts(path: str, folder: Path) -> Parts:
    """The parts of the table at `path`, relative to `folder`. Only the files' ends are read.

    Raises:
        DataError: there is no file, or files differ; other errors are the libraries', and may quote
            an address.
    """
    import pyarrow.parquet as pq

    parts, schemas = list[Part](), list[pa.Schema]()
    files = _at_address(path) if is_url(path) else _local(path, folder)
    if not files:
        raise DataError(
            "dataset.source.path names no file",
            hint="it is relative to the spec's folder; a pattern such as data/*.parquet must match",
        )
    for file in files:
        with open_file(file) as stream:
            size = stream.seek(0, 2)
            found = pq.ParquetFile(stream)
            schemas.append(found.schema_arrow)
            parts += _cut(file, found.metadata, size)
    _check_alike(schemas)
    firsts = accumulate((part.rows for part in parts), initial=0)
    placed = (replace(part, first=first) for part, first in zip(parts, firsts, strict=False))
    return Parts(tuple(placed), schemas[0])


def _cut(file: str, metadata: Any, size: int) -> Iterator[Part]:
    """Parts of neighbouring row groups, of about `PART_ROWS` rows, none of no rows."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if sum(g.total_byte_size for g in groups) > UNPACKED + RATIO * size:
        raise DataError(
            f"the file unpacks to more than {RATIO} times its size",
            hint="this is no table that was written in good faith",
        )
    own, rows = list[int](), 0
    for i, group in enumerate(groups):
        if group.num_rows == 0:  # it would give no batch
            continue
        if own and rows + group.num_rows > PART_ROWS:
            yield Part(file, tuple(own), rows)
            own, rows = [], 0
        own.append(i)
        rows += group.num_rows
    if rows:
        yield Part(file, tuple(own), rows)


def open_file(file: str) -> BinaryIO:
    """A file to read from: a plain local one, or one at an address."""
    if not is_url(file):
        return _open(Path(file))
    fsspec = _fsspec(file)
    stream: BinaryIO = fsspec.open(file, "rb").open()
    return stream


def stamp(file: str, folder: Path = Path("/")) -> str:
    """What names the content of a file without a look into it: where it really lies, from `folder`,
    its size, and when it was last written, to the nanosecond; of one at an address, what that says.

    Raises:
        OSError: there is no such file.
    """
    if is_url(file):
        files, inside = _fsspec(file).core.url_to_fs(file)
        return repr(sorted(files.info(inside).items()))
    found = os.stat(file)
    place = os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    return repr((place, found.st_size, found.st_mtime_ns))


def stamps_of(source: Source, folder: Path) -> list[str]:
    """The `stamp` of each file of a source; of one that has no files, none.

    Raises:
        DataError, OSError: as `find_parts`.
    """
    files = [str(folder / source.path)] if isinstance(source, CsvSource) else []
    if isinstance(source, ParquetSource):
        path = source.path
        files = _at_address(path) if is_url(path) else _local(path, folder)
    return [stamp(file, folder) for file in files]


def _local(path: str, folder: Path) -> list[str]:
    whole = folder / path
    if is_pattern(path) and not whole.exists():
        pattern = path if Path(path).is_absolute() else f"{glob.escape(str(folder))}/{path}"
        return sorted(f for f in glob.glob(pattern, recursive=True) if not Path(f).is_dir())
    if whole.is_dir():
        return [str(f) for f in sorted(whole.rglob("*")) if not f.is_dir()]
    _open(whole).close()
    return [str(whole)]


def _at_address(url: str) -> list[str]:
    """The files at an address: itself, what a pattern matches, or what lies below a folder."""
    fsspec = _fsspec(url)
    files, inside = fsspec.core.url_to_fs(url)
    if "*" in inside:
        found = files.glob(inside)
    elif url.endswith("/") or (not url.startswith("http") and files.isdir(inside)):
        found = [name for name in files.find(inside) if name.endswith(".parquet")]
    else:
        return [url]
    return sorted(files.unstrip_protocol(name) for name in found)


def _fsspec(url: str) -> Any:
    scheme = url.partition("://")[0]
    try:
        import fsspec
        import fsspec.core

        fsspec.get_filesystem_class(scheme)
    except ImportError:
        needed = PACKAGES.get(scheme, scheme)
    else:
        return fsspec
    raise DataError(
        f"addresses of {scheme}:// need the packages fsspec and {needed}, which are not installed",
        hint=f"{install('dist')}; then pip install {needed}",
    )


def batches(
    part: Part, names: Sequence[str], *, as_levels: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """The columns `names` of a part, by at most `rows` rows.

    Those of `as_levels` are read as dictionaries: a text that is repeated is then looked at once.
    """
    import pyarrow.parquet as pq

    with open_file(part.file) as stream:
        found = pq.ParquetFile(stream, read_dictionary=list(as_levels), pre_buffer=False)
        for batch in found.iter_batches(
            rows, row_groups=list(part.groups), columns=list(names), use_threads=False
        ):
            yield batch.select(list(names))
