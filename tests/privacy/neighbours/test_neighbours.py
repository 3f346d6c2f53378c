"""A row is read by itself: a table of v, v, ..., v, u and the same with one w differ by w alone.

What a file, a library's statistics or a query planner says of a whole column (its least and
greatest value, its type, its dictionary) would show here as a change of how every v is read.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from synthdp.errors import DataError
from synthdp.privacy import source
from synthdp.privacy.engines import on_arrow, on_dask, opening
from synthdp.privacy.engines.on_dask import DaskEngine
from synthdp.privacy.engines.opening import Part
from synthdp.privacy.readers import files
from tests.privacy.engines.tables import Here
from tests.privacy.neighbours.stores import CELLS, Way, ways

WAYS = {way.name: way for way in ways()}
TIMES = (1, 2, 9, 51)


@pytest.fixture(autouse=True)
def _stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for SQLite, and none for Dask: its tasks run here."""
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{tmp_path / 't.db'}")
    monkeypatch.setattr(on_dask, "DaskEngine", Here)


class Reads:
    """One way of one type, in a folder of its own; what was read is remembered."""

    def __init__(self, way: Way, kind: str, folder: Path, *, asked: int) -> None:
        self.way, self.kind, self.folder = way, kind, folder
        self.known: dict[tuple[int, ...], np.ndarray] = {}
        whole = self._readable(way.columns, asked)
        self.names = [n for n in way.columns if whole or self._readable([n], asked)]

    def _readable(self, names: Sequence[str], asked: int) -> bool:
        """Whether the type is read as these columns: the same for each of some rows."""
        found = set()
        for place in range(len(CELLS[self.kind]))[-asked:]:
            try:
                self.way.read(self.kind, names, CELLS[self.kind].take([place]), self.folder)
            except DataError as error:
                found.add(str(error))
            else:
                found.add("")
        assert len(found) == 1, (self.way.name, self.kind, names, found)
        return found == {""}

    def of(self, *places: int) -> np.ndarray:
        if places not in self.known:
            cells = CELLS[self.kind].take(list(places))
            self.known[places] = self.way.read(self.kind, self.names, cells, self.folder)
        return self.known[places]

    def check(self, v: int, u: int, w: int, times: int) -> int:
        """The two tables of a pair; gives the pairs that were looked at, one for each column."""
        table = [u, *[v] * times] if v < w else [*[v] * times, u]
        without, more = self.of(*table), self.of(*table, w)
        told = (self.way.name, self.kind, *(CELLS[self.kind][i] for i in (v, u, w)), times)
        assert np.array_equal(without, times * self.of(v) + self.of(u)), told
        assert np.array_equal(more, without + self.of(w)), (*told, (more - without).tolist())
        return len(self.names)


def pairs(kind: str, *, share: float = 1.0) -> Iterator[tuple[int, int, int, int]]:
    """Places of a cell that stands often, one beside it, the row more; how often; a share."""
    rng, cells = np.random.default_rng(len(CELLS[kind])), range(len(CELLS[kind]))
    for v, w, times in itertools.product(cells, cells, TIMES):
        if rng.random() < share:
            yield v, int(rng.integers(len(cells))), w, times


def look(way: Way, kind: str, folder: Path, *, share: float, asked: int = 2) -> int:
    """How many pairs of a way and a type were looked at."""
    reads = Reads(way, kind, folder, asked=asked)
    return sum(reads.check(*pair) for pair in pairs(kind, share=share)) if reads.names else 0


def in_ring(name: str) -> Any:
    """In the first ring where a pair costs next to nothing."""
    return name if name.startswith("texts") else pytest.param(name, marks=pytest.mark.check)


@pytest.mark.parametrize("name", [*map(in_ring, WAYS)])
def test_a_row_more_changes_how_no_other_is_read(name: str, tmp_path: Path) -> None:
    """Some six pairs of each way and type."""
    for kind in WAYS[name].kinds:
        look(WAYS[name], kind, tmp_path, share=1.5 / len(CELLS[kind]) ** 2)


@pytest.mark.check
@pytest.mark.parametrize("name", ["dask, statistics", "dask by id, pages"])
def test_a_row_more_changes_how_a_cluster_reads_no_other(
    name: str, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few pairs: what its tasks read is looked at above, without a cluster."""
    monkeypatch.setattr(on_dask, "DaskEngine", DaskEngine)
    way = replace(WAYS[name], compute={"engine": "dask", "address": cluster.scheduler_address})
    assert look(way, "float64", tmp_path, share=0.7 / len(CELLS["float64"]) ** 2, asked=1)


@pytest.mark.slow
def test_a_row_more_changes_how_no_other_is_read_at_length(tmp_path: Path) -> None:
    looked = 0
    for way in WAYS.values():
        share = 0.02 if "dask" in way.name else 0.08  # it reads as arrow does
        for kind in way.kinds:
            looked += look(way, kind, tmp_path, share=share, asked=len(CELLS[kind]))
    assert looked > 100_000


# --- readers that ask a whole column, on purpose ---


def no_nan_by_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a chunk's least and greatest value differ, no value of it is taken to be none."""
    true = opening.batches

    def read(part: Part, names: Sequence[str], **how: Any) -> Iterator[pa.RecordBatch]:
        group = pq.ParquetFile(part.file).metadata.row_group(part.groups[0])
        told = group.column(0).statistics
        for batch in true(part, names, **how):
            if told is not None and told.has_min_max and told.min != told.max:
                columns = [
                    pc.if_else(pc.is_nan(c), pa.scalar(np.inf, c.type), c)
                    if pa.types.is_floating(c.type)
                    else c  # an id
                    for c in batch.columns
                ]
                batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
            yield batch

    monkeypatch.setattr(on_arrow, "batches", read)


def groups_left_out_by_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group whose greatest value lies below the range is not read, but counted as below."""
    true = opening.batches

    def read(part: Part, names: Sequence[str], **how: Any) -> Iterator[pa.RecordBatch]:
        told = pq.ParquetFile(part.file).metadata.row_group(part.groups[0]).column(0).statistics
        for batch in true(part, names, **how):
            if told is not None and told.has_min_max and told.max < 0:
                low = [pa.array(np.full(len(c), told.min), c.type) for c in batch.columns]
                batch = pa.RecordBatch.from_arrays(low, names=batch.schema.names)
            yield batch

    monkeypatch.setattr(on_arrow, "batches", read)


def type_by_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers become numbers of 64 bits where one is missing, as pandas does."""
    monkeypatch.setattr(files, "frame_of", lambda table: table.to_pandas())


def numbers_where_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of texts is one of numbers where every text is a number, as `read_csv` does."""

    def inferred(table: pa.Table) -> pd.DataFrame:
        frame = table.to_pandas()
        for name in frame:
            with contextlib.suppress(ValueError):
                frame[name] = pd.to_numeric(frame[name])
        return frame

    monkeypatch.setattr(files, "frame_of", inferred)


def type_of_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of a column all have the form that stands last in the list, that of a text."""
    true = source.places_by

    def widest(values: Any, place: Callable[[str], int]) -> Any:
        found = true(values, place)
        return np.full_like(found, found.max())

    monkeypatch.setattr(source, "places_by", widest)


@pytest.mark.check
@pytest.mark.parametrize(
    ("plant", "way", "kind"),
    [
        (no_nan_by_statistics, "arrow, statistics", "float64"),
        (no_nan_by_statistics, "arrow, two files", "float32"),
        (groups_left_out_by_statistics, "arrow, pages", "float64"),
        (type_by_all_rows, "memory, no statistics", "int64"),
        (numbers_where_all_are, "csv", "text"),
        (no_nan_by_statistics, "dask, statistics", "float64"),
        (groups_left_out_by_statistics, "dask, pages", "float64"),
        (no_nan_by_statistics, "dask by id, statistics", "float64"),
        (type_of_all_texts, "texts, plain", "text"),
        (type_of_all_texts, "texts, decimal commas", "int64"),
    ],
)
def test_a_reader_that_asks_the_whole_column_is_seen(
    plant: Callable[[pytest.MonkeyPatch], None],
    way: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        look(WAYS[way], kind, tmp_path, share=0.3)
