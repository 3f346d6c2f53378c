"""The table of a spec in the engine that its spec names: opened, surveyed, and held against what is
declared, before anything is spent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import synthdp
from synthdp.data.domain import Domain
from synthdp.errors import DataError
from synthdp.privacy.engines import Engine, EngineTable, Reading
from synthdp.privacy.engines.parts import Parts, find_parts
from synthdp.privacy.readers.checks import (
    check_declared_rows,
    check_file,
    check_misfits,
    check_without_ids,
    id_column_of,
)
from synthdp.privacy.readers.files import choice
from synthdp.spec.model import Compute, Dataset, IdUnit, ParquetSource, Source, SqlSource
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
