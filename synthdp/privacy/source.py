"""The only reader of rows.

`read_private` opens the source, fits every value to the declared domain (clamping, missing as a
state), keeps at most `max_rows` rows of each unit, flips the holdout coins and seals the result.
What it may raise names columns only: never a value, a row or a count.

Reading, clamping and encoding act on each value alone (proof: `synthdp.data.encoding`; a row of a
CSV file is a line: proof: `readers.files`), and the row bound on each unit alone. So neighbouring
tables stay neighbours: adding one unit adds at most `max_rows` of the rows kept, and replacing one
also takes as many away [derived here; `_bound_rows` and `_coins` have the part that concerns
chance].
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data import builtin
from synthdp.data.cells import cells_domain, form_of, pointed, size_of
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, EncodedColumn, cleaned, encode, places_by, unit_numbers
from synthdp.errors import DataError, by_kind, instead
from synthdp.privacy.engines.opening import open_table, reach
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY, Private, withholding
from synthdp.privacy.readers.checks import (
    check_columns,
    check_declared_rows,
    check_file,
    check_misfits,
    check_size,
    check_some,
    check_without_ids,
    id_column_of,
)
from synthdp.privacy.readers.files import (
    BATCH_ROWS,
    choice,
    chosen_frame,
    encode_batches,
    open_dataframe,
    parquet_batches,
    read_csv_file,
    read_parquet_files,
)
from synthdp.privacy.readers.query import read_query
from synthdp.privacy.table import Table
from synthdp.spec.addresses import shown_path
from synthdp.spec.model import (
    BuiltinSource,
    Compute,
    CsvSource,
    DataFrameSource,
    Dataset,
    IdUnit,
    ParquetSource,
    PrivacyUnit,
    Source,
    SqlSource,
)
from synthdp.spec.model.rules import engine_of

T = TypeVar("T")
Integers = npt.NDArray[np.int64]


@withholding
def read_private(
    dataset: Dataset,
    domain: Domain,
    *,
    folder: Path,
    holdout: float,
    streams: Streams,
    delta: float = 0.0,
    given: Private[pd.DataFrame] | None = None,
    compute: Compute | None = None,
) -> Private[Table]:
    """Read, fit and seal a table. `folder` is the spec's; `holdout` the chance of each unit to be
    held out.

    `delta` is the release's: a table of 1 / delta rows or more is refused (0: none is). `given`
    holds the rows of a source of kind `dataframe`, and belongs to no other. `compute` says in which
    engine the rows stay, if not in memory.

    Raises:
        DataError: the source cannot be read, or holds what the spec does not declare.
    """
    source = dataset.source
    check_given(source, given)
    settings = compute or Compute()
    table: Table
    if engine_of(source, settings) != "memory":
        keys = streams.holdout.bytes(16).hex(), streams.holdout.bytes(16).hex()
        table = guarded(
            source,
            lambda: open_table(
                dataset, settings, domain, folder=folder, keys=keys, holdout=holdout, delta=delta
            ),
        )
    elif isinstance(source, ParquetSource) and source.levels_only:
        parquet = source
        table = guarded(
            source,
            lambda: _levels_only(
                parquet, dataset, domain, folder, holdout=holdout, rng=streams.holdout, delta=delta
            ),
        )
    else:
        raw = read_frame(dataset, domain, folder, delta, given)
        check_some(len(raw))
        table = fit_table(raw, dataset, domain, holdout=holdout, rng=streams.holdout, delta=delta)
    return Private(table, key=_KERNEL_KEY)


def is_the_source(source: Source, public: Path, *, folder: Path) -> bool:
    """Whether a file that is said to be `public` is the private file of a source, or a copy of it.
    That is all that is told of either.

    Raises:
        OSError: one of them cannot be read.
    """
    path = folder / source.path if isinstance(source, CsvSource | ParquetSource) else None
    if path is None or not path.is_file():
        return False
    same_size = path.stat().st_size == public.stat().st_size
    return path.samefile(public) or (same_size and filecmp.cmp(path, public, shallow=False))


def reach_engine(dataset: Dataset, compute: Compute, domain: Domain, *, folder: Path) -> None:
    """See that the engine of a spec answers, before anything depends on it. No row is read.

    Raises:
        DataError: it does not, or the table has other columns.
    """
    guarded(dataset.source, lambda: reach(dataset, compute, domain, folder=folder))


@withholding
def read_texts(
    dataset: Dataset, names: Sequence[str], *, folder: Path, streams: Streams, delta: float
) -> Private[Table]:
    """Read and seal a CSV file whose columns `names` have no type yet.

    A row's levels are the forms and sizes of its texts (`data.cells`), each of one text alone, and
    its values the texts themselves; none is missing, and none is held out.

    Raises:
        DataError: the file cannot be read, or has other columns.
    """
    domain, id_column = cells_domain(len(names)), id_column_of(dataset)
    source = dataset.source
    if not isinstance(source, CsvSource):
        raise DataError(f"columns without types are read from CSV files, not from {source.kind}")

    def choose(found: Sequence[str]) -> dict[int, str]:
        read = {i: source.rename.get(name, name) for i, name in enumerate(found)}
        kept = {i: name for i, name in read.items() if found[i] not in source.drop}
        if sorted(kept.values()) != sorted([*names, *([id_column] if id_column else [])]):
            raise DataError("the header has changed since it was read", hint="begin again")
        return kept

    raw = guarded(
        source,
        lambda: chosen_frame(
            read_csv_file(
                folder / source.path, delimiter=source.delimiter, missing=(), check=choose
            ),
            choose,
        ),
    )
    check_file(len(raw), dataset, delta)
    kept, _ = _bound_rows(raw, dataset.privacy_unit, streams.holdout)
    check_declared_rows(len(kept), dataset)
    codes = np.zeros((len(kept), len(domain)), dtype=np.uint16)
    written: Callable[[str], str] = pointed if source.decimal == "," else str
    for i, name in enumerate(names):
        codes[:, 2 * i] = places_by(kept[name], lambda text: form_of(written(text)))
        codes[:, 2 * i + 1] = places_by(kept[name], lambda text: size_of(written(text)))
    held_out = np.zeros(len(kept), dtype=bool)
    return Private(Table(codes, kept[list(names)], held_out, {}), key=_KERNEL_KEY)


def fit_table(
    raw: pd.DataFrame,
    dataset: Dataset,
    domain: Domain,
    *,
    holdout: float,
    rng: np.random.Generator,
    delta: float = 0.0,
) -> Table:
    """Fit rows as they were read to the domain. For the kernel: its reader, and the audit of
    reading on made-up rows.

    Raises:
        DataError: `raw` holds what the spec does not declare.
    """
    id_column = id_column_of(dataset)
    check_columns([str(c) for c in raw.columns], domain, id_column)
    check_size(len(raw), dataset, delta)

    def fitted() -> tuple[Codes, dict[str, EncodedColumn], pd.DataFrame, Integers | None]:
        kept, units = _bound_rows(raw, dataset.privacy_unit, rng)
        codes, encoded = encode(domain, kept)
        return codes, encoded, cleaned(domain.columns, encoded), units

    message = "values that cannot be read as the declared types"
    codes, encoded, frame, units = by_kind(fitted, message, "check the columns' types")
    misfits = check_misfits(encoded, domain, dataset)
    check_declared_rows(len(codes), dataset)
    return Table(codes, frame, _coins(len(codes), units, holdout, rng), misfits, units)


def _levels_only(
    source: ParquetSource,
    dataset: Dataset,
    domain: Domain,
    folder: Path,
    *,
    holdout: float,
    rng: np.random.Generator,
    delta: float,
) -> Table:
    """A Parquet table as levels alone, read batch by batch."""
    if isinstance(dataset.privacy_unit, IdUnit):
        raise DataError(
            "a table read as levels only has a row as its unit",
            hint="leave out source.levels_only, or declare privacy_unit: row",
        )
    rows, batches = parquet_batches(
        folder / source.path,
        choose=choice(source, domain, None),
        check_rows=lambda rows: check_file(rows, dataset, delta),
        batch_rows=BATCH_ROWS,
    )
    named = (
        batch.rename_columns([source.rename.get(name, name) for name in batch.schema.names])
        for batch in batches
    )
    codes, encoded = encode_batches(domain, named, rows=rows)
    misfits = check_misfits(encoded, domain, dataset)
    check_declared_rows(rows, dataset)
    return Table(
        codes, pd.DataFrame(index=pd.RangeIndex(rows)), _coins(rows, None, holdout, rng), misfits
    )


def check_given(source: Source, given: Private[pd.DataFrame] | None) -> None:
    """Raise `DataError` where rows are given that the source does not ask for."""
    if given is not None and not isinstance(source, DataFrameSource):
        raise DataError(
            f"a DataFrame was given, and dataset.source is of kind {source.kind}",
            hint="give none, or declare `source: {kind: dataframe}`",
        )


def read_frame(
    dataset: Dataset,
    domain: Domain,
    folder: Path,
    delta: float,
    given: Private[pd.DataFrame] | None,
) -> pd.DataFrame:
    """Cells as they are read, with the ids of units. For the kernel alone: these are rows."""
    source = dataset.source
    choose = choice(source, domain, id_column_of(dataset))

    def check_rows(rows: int) -> None:
        check_size(rows, dataset, delta)

    readers: dict[type, Callable[[Any], pd.DataFrame]] = {
        CsvSource: lambda s: chosen_frame(
            read_csv_file(
                folder / s.path,
                delimiter=s.delimiter,
                missing=s.missing_values,
                check=choose,
                utf8=dataset.out_of_domain == "refuse",
            ),
            choose,
            commas=domain.numbers if s.decimal == "," else (),
        ),
        ParquetSource: lambda s: read_parquet_files(
            folder / s.path, choose=choose, check_rows=check_rows
        ).rename(columns=s.rename),
        SqlSource: lambda s: read_query(s, folder=folder, check=choose, check_rows=check_rows),
        BuiltinSource: lambda s: builtin.frame(s.name),
        DataFrameSource: lambda s: chosen_frame(
            open_dataframe(given, check=choose, check_rows=check_rows), choose
        ),
    }
    return guarded(source, lambda: readers[type(source)](source))


def guarded(source: Source, read: Callable[[], T]) -> T:
    """What `read` gives; its errors without anything that might quote a row."""
    what = shown_path(getattr(source, "path", None) or getattr(source, "name", None) or source.kind)

    def told(error: Exception) -> DataError:
        if isinstance(error, FileNotFoundError):
            return DataError(
                f"no file {what!r}", hint="dataset.source.path is relative to the spec's folder"
            )
        if isinstance(error, PermissionError):
            return DataError(f"no permission to read {what!r}")
        return DataError(
            f"cannot read {what!r} as {source.kind} ({type(error).__name__})",
            hint="check that the file is what dataset.source says",
        )

    return instead(read, told)


def _bound_rows(
    raw: pd.DataFrame, unit: PrivacyUnit, rng: np.random.Generator
) -> tuple[pd.DataFrame, Integers | None]:
    """At most `max_rows` rows of each id, a uniformly random choice that depends on that id's rows
    alone, and their units' numbers.

    Rows belong to one unit where `id_text` of their ids is the same: a rule of each id by itself,
    which joins and never parts. [Derived here: a uniformly random order of all rows gives the rows
    of each id a uniformly random order, independently for different ids. So with one id more, the
    rows kept of all others have the law that they had without it.]
    """
    if not isinstance(unit, IdUnit):
        return raw, None
    units = unit_numbers(raw[unit.column])
    check_without_ids(int((units < 0).sum()), unit)
    order = rng.permutation(len(raw))
    rank = pd.Series(units[order]).groupby(units[order], sort=False).cumcount().to_numpy()
    kept = order[rank < unit.max_rows]
    return raw.iloc[kept].reset_index(drop=True), units[kept]


def _coins(
    rows: int, units: Integers | None, holdout: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """One independent coin per unit: a unit is held out as a whole, whatever the others do."""
    if units is None:
        alone: npt.NDArray[np.bool_] = rng.random(rows) < holdout
        return alone
    _, ids = np.unique(units, return_inverse=True)
    coins: npt.NDArray[np.bool_] = rng.random(int(ids.max(initial=-1)) + 1) < holdout
    held: npt.NDArray[np.bool_] = coins[ids]
    return held
