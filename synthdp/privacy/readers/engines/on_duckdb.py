"""Counting local Parquet files with DuckDB: levels, tables and the bound of a unit's rows are its
own statements, so that it takes the columns that it needs, on its threads, and sorts on disk.

What it writes there when memory is short lies in a folder of its own, which is deleted after each
statement.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import DataError, install
from synthdp.privacy.mechanisms.adding import Side, Summands
from synthdp.privacy.mechanisms.counting import Columns
from synthdp.privacy.noise import Randomness
from synthdp.privacy.readers.engines.engine import (
    Integers,
    Reading,
    Rows,
    Survey,
    check_names,
    empty_counts,
)
from synthdp.privacy.readers.engines.on_arrow import ArrowEngine
from synthdp.privacy.readers.engines.parts import Parts
from synthdp.privacy.readers.engines.shards import (
    Shard,
    add_shard,
    draw_shard,
    drawn_rows,
    smallest,
)
from synthdp.privacy.readers.engines.statements import DUCKDB, Statement
from synthdp.privacy.readers.engines.steps import Kind, check_id_kind, check_kinds
from synthdp.privacy.readers.files import _is_text
from synthdp.spec.addresses import is_pattern, is_url

MEMORY = "2GB"  # that DuckDB may hold; beyond, it writes to disk
SHARD_ROWS = 2_000_000


@dataclass(frozen=True)
class DuckDbEngine:
    """Local Parquet files, counted by DuckDB on `threads` threads.

    Raises:
        DataError: DuckDB is not installed, the files are not local, or a column has a type of which
            its levels are not proved to be ours.
    """

    reading: Reading
    parts: Parts
    threads: int = 1

    def __post_init__(self) -> None:
        try:
            import duckdb  # noqa: F401
        except ImportError:
            raise DataError(
                "compute.engine duckdb needs the package duckdb, which is not installed",
                hint=install("dist"),
            ) from None
        if any(is_url(file) or is_pattern(file) for file in self._files):
            raise DataError(
                "compute.engine duckdb reads local files whose names hold no * ? or [",
                hint="set compute.engine: arrow or dask, which read them",
            )
        check_names(self.parts.schema.names, engine="duckdb")
        check_kinds(self.reading.domain, self._kinds, engine="duckdb")
        if (unit := self.reading.id_column) is not None:
            check_id_kind(unit, self._kinds[unit], engine="duckdb")

    def survey(self) -> Survey:
        """By one statement."""
        made = Statement(DUCKDB)
        text = made.survey(self._rows(made), self.reading, self._kinds)
        (row,) = self._run(made, text, lambda result: result.fetchall())
        return Survey.of(np.array([int(n or 0) for n in row], dtype=np.int64))

    def count(self, groups: LevelGroups, tables: Sequence[Columns]) -> list[Integers]:
        """By a GROUP BY for every few tables; by Arrow where rows are held out by their places,
        which a GROUP BY does not know.
        """
        if self.reading.id_column is None and self.reading.holdout:
            return ArrowEngine(self.reading, self.parts, self.threads).count(groups, tables)
        counts, most = empty_counts(groups, tables), DUCKDB.sets
        for first in range(0, len(tables), most):
            some = tables[first : first + most]
            reading, own = self.reading.of(groups, some)
            for made in self._statements():
                text = made.counted(self._rows(made), reading, self._kinds, own, some)
                for row in self._run(made, text, lambda result: result.fetchall()):
                    add_cell(counts[first : first + most], row)
        return counts

    def add_up(self, what: Summands, side: Side) -> Integers:
        """By Arrow, batch by batch; of units with ids shard by shard, each of which DuckDB brings
        together as it lies in the files, and which is read, bounded and added up here.

        No arithmetic is DuckDB's, whose numbers are not proved to be ours to the last bit.
        """
        if self.reading.id_column is None:
            return ArrowEngine(self.reading, self.parts, self.threads).add_up(what, side)
        total = np.zeros(what.size, dtype=np.int64)
        for shard in self._shards():
            total += add_shard(self.reading, what, side, [shard])[0]
        return total

    def draw(self, most: int) -> Rows:
        """By Arrow; of units with ids, of those that stay of each shard."""
        if self.reading.id_column is None:
            return ArrowEngine(self.reading, self.parts, self.threads).draw(most)
        drawn = smallest(most, (draw_shard(self.reading, most, [s]) for s in self._shards()))
        return drawn_rows(self.reading, drawn)

    def _shards(self) -> Iterator[Shard]:
        for made in self._statements():
            text = made.dealt(self._rows(made), self.reading, self._kinds)
            with self._connection() as connection:
                asked = connection.sql(text, params=made.values)
                shard = self._shard(pa.RecordBatchReader.from_stream(asked))
            yield shard

    def _shard(self, read: pa.RecordBatchReader) -> Shard:
        wanted = [*self.reading.domain.names, self.reading.id_column]
        nothing = pa.RecordBatch.from_pylist([], read.schema)  # a shard may have no id
        batches = (batch.rename_columns(wanted) for batch in chain([nothing], read))
        return Shard.of(self.reading, batches, values=True)

    def sample(self, rate: float, randomness: Randomness) -> Codes:
        """A Poisson batch of all rows, by Arrow; of units with ids, by hashes under a key that is
        used once.
        """
        if self.reading.id_column is None:
            return ArrowEngine(self.reading, self.parts, self.threads).sample(rate, randomness)
        key, found = secrets.token_hex(16), list[Codes]()
        for made in self._statements():
            text = made.sampled(self._rows(made), self.reading, self._kinds, rate=rate, key=key)
            columns = self._run(made, text, lambda result: result.fetchnumpy())
            own = [np.asarray(c).astype(np.uint16) for c in columns.values()]
            found.append(np.column_stack(own))
        return np.concatenate(found)

    def _statements(self) -> Iterator[Statement]:
        """An empty one; for each shard of ids where there are ids, since a window needs memory for
        the rows that it orders. All rows of an id are in one shard.
        """
        shards = -(-self.parts.rows // SHARD_ROWS) if self.reading.id_column is not None else 1
        for which in range(max(1, shards)):
            yield Statement(DUCKDB, shard=(which, shards))

    @property
    def _files(self) -> list[str]:
        return list(dict.fromkeys(part.file for part in self.parts.parts))

    @cached_property
    def _kinds(self) -> Mapping[str, Any]:
        types = {f.name: f.type for f in self.parts.schema}
        return {name: kind_of(types[own]) for name, own in self.reading.names.items()}

    def _rows(self, made: Statement) -> str:
        made.values["files"] = self._files
        return "read_parquet($files, hive_partitioning = false)"

    def _run(self, made: Statement, text: str, read: Callable[[Any], Any]) -> Any:
        with self._connection() as connection:
            return read(connection.execute(text, made.values))

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        import duckdb

        with tempfile.TemporaryDirectory(prefix="synthdp-duckdb-") as spill:
            Path(spill).chmod(0o700)
            settings: dict[str, Any] = {
                "threads": self.threads,
                "memory_limit": MEMORY,
                "temp_directory": spill,
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
            with duckdb.connect(":memory:", config=settings) as connection:
                yield connection


def add_cell(counts: Sequence[Integers], row: Sequence[Any]) -> None:
    """Add one row of `Statement.counted` to the counts of its table."""
    *cells, rows = row
    at = next(i for i, cell in enumerate(cells) if cell is not None)
    counts[at].reshape(-1)[int(cells[at])] += int(rows)


def kind_of(type_: pa.DataType) -> Kind | str:
    """The kind of cells of a type, or the type's name where DuckDB may read them otherwise."""
    is_ = pa.types
    if is_.is_dictionary(type_):
        type_ = type_.value_type
    if _is_text(type_) and not (is_.is_binary(type_) or is_.is_large_binary(type_)):
        return "text"
    if is_.is_boolean(type_):
        return "truth"
    if is_.is_integer(type_) and type_ != pa.uint64():
        return "whole"
    if is_.is_float32(type_) or is_.is_float64(type_):
        return "real"
    if is_.is_date32(type_):
        return "day"
    if is_.is_timestamp(type_) and type_.tz is None and type_.unit in ("ms", "us"):
        return "instant"
    return str(type_)
