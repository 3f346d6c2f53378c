"""The only reader of rows.

`read_private` opens the source, fits every value to the declared domain (clamping, missing as a
state), keeps at most `max_rows` rows of each unit, flips the holdout coins and seals the result.
What it may raise names
columns only: never a value, a row or a count.

Reading, clamping and encoding act on each value alone (proof: `synthdp.data.values`; a row of a CSV
file is a line: proof: `table_files`), and the row bound on each unit alone. So neighbouring tables
stay neighbours: adding one unit adds at most `max_rows` of the rows kept, and replacing one also
takes as many away [derived here; `_bound_rows` and `_coins` have the part that concerns chance].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data import builtin
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes, EncodedColumn, encode
from synthdp.data.kinds import COLUMN_KINDS, column_kind
from synthdp.data.kinds.kind import missing_in
from synthdp.data.values import unit_numbers
from synthdp.errors import DataError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY, Private
from synthdp.privacy.readers.dataframe import open_dataframe
from synthdp.privacy.readers.files import parquet_batches, read_csv_file, read_parquet_files
from synthdp.privacy.readers.query import read_query
from synthdp.privacy.readers.streaming import BATCH_ROWS, encode_batches
from synthdp.privacy.table import Table
from synthdp.spec.addresses import shown_path
from synthdp.spec.model import (
    BuiltinSource,
    CsvSource,
    DataFrameSource,
    Dataset,
    IdUnit,
    ParquetSource,
    PrivacyUnit,
    Source,
    SqlSource,
)

T = TypeVar("T")
Integers = npt.NDArray[np.int64]


def read_private(
    dataset: Dataset,
    domain: Domain,
    *,
    folder: Path,
    holdout: float,
    streams: Streams,
    delta: float = 0.0,
    given: Private[pd.DataFrame] | None = None,
) -> Private[Table]:
    """Read, fit and seal a table. `folder` is the spec's; `holdout` the chance of each unit to be
    held out.

    `delta` is the release's: a table of 1 / delta rows or more is refused (0: none is). `given`
    holds the rows of a source of kind `dataframe`, and belongs to no other.

    Raises:
        DataError: the source cannot be read, or holds what the spec does not declare.
    """
    source = dataset.source
    if given is not None and not isinstance(source, DataFrameSource):
        raise DataError(
            f"a DataFrame was given, and dataset.source is of kind {source.kind}",
            hint="give none, or declare `source: {kind: dataframe}`",
        )
    if isinstance(source, ParquetSource) and source.levels_only:
        path = folder / source.path
        table = _guarded(
            source,
            lambda: _levels_only(
                dataset, domain, path, holdout=holdout, rng=streams.holdout, delta=delta
            ),
        )
    else:
        raw = _read(dataset, domain, folder, delta, given)
        _check_some(len(raw))
        table = fit_table(raw, dataset, domain, holdout=holdout, rng=streams.holdout, delta=delta)
    return Private(table, key=_KERNEL_KEY)


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
    id_column = _id_column(dataset)
    _check_columns([str(c) for c in raw.columns], domain, id_column)
    _check_size(len(raw), dataset, delta)
    failed: DataError | None = None
    try:
        kept, units = _bound_rows(raw, dataset.privacy_unit, rng)
        codes, encoded = encode(domain, kept)
        frame = _clean(domain, codes, encoded)
    except DataError as error:
        failed = error
    except Exception as error:
        # As in `_guarded`: the message of a conversion that fails would quote the value.
        failed = DataError(
            f"values that cannot be read as the declared types ({type(error).__name__})",
            hint="check the columns' types",
        )
    if failed:
        raise failed
    misfits = _check_misfits(encoded, domain, dataset)
    _check_declared_rows(len(codes), dataset)
    return Table(codes, frame, _coins(len(codes), units, holdout, rng), misfits)


def _levels_only(
    dataset: Dataset,
    domain: Domain,
    path: Path,
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
        path,
        check=lambda names: _check_columns(names, domain, None),
        check_rows=lambda rows: _check_file(rows, dataset, delta),
        batch_rows=BATCH_ROWS,
    )
    codes, encoded = encode_batches(domain, batches, rows=rows)
    misfits = _check_misfits(encoded, domain, dataset)
    _check_declared_rows(rows, dataset)
    return Table(
        codes, pd.DataFrame(index=pd.RangeIndex(rows)), _coins(rows, None, holdout, rng), misfits
    )


def _check_misfits(
    encoded: Mapping[str, EncodedColumn], domain: Domain, dataset: Dataset
) -> dict[str, dict[str, int]]:
    misfits = {
        name: {
            "wrong type": e.wrong_type,
            "outside the domain": e.outside,
            "unexpected missing": e.unexpected_missing,
        }
        for name, e in encoded.items()
    }
    bad = [name for name, e in encoded.items() if e.misfits]
    if bad and dataset.out_of_domain == "refuse":
        raise DataError(
            f"values outside the declared domain in column{'s' if len(bad) > 1 else ''}"
            f" {', '.join(map(repr, bad))}",
            hint=(
                f"{_written_as(dataset.source, [domain[name] for name in bad])}; correct the domain"
                " or the data, or accept clamping with `dataset.out_of_domain: clamp`"
            ),
        )
    return misfits


def _written_as(source: Source, columns: Sequence[ColumnDomain]) -> str:
    """What values of these columns must look like: the same whatever was found in them, so that it
    tells nothing of the rows.
    """
    text_alone = isinstance(source, CsvSource)
    types = {c.type for c in columns}
    kinds = [kind for kind in COLUMN_KINDS.values() if kind.type in types]
    told = list(dict.fromkeys(k.read_as + (k.read_as_csv if text_alone else "") for k in kinds))
    if isinstance(source, CsvSource):
        missing = (
            ", ".join(json.dumps(text, ensure_ascii=False) for text in source.missing_values)
            or "nothing"
        )
        told.append(f"{missing} is read as missing (dataset.source.missing_values)")
    return ", ".join(told)


def _check_declared_rows(rows: int, dataset: Dataset) -> None:
    if dataset.rows.kind == "public" and rows != dataset.rows.value and _id_column(dataset) is None:
        raise DataError(
            f"dataset.rows declares {dataset.rows.value} rows as public knowledge, and the table"
            " has another number",
            hint="correct dataset.rows, or declare `kind: approximate`",
        )


def most_rows(dataset: Dataset) -> int:
    """The most rows that are read, whatever delta is: a constant of the spec."""
    return 16 * dataset.rows.value + 1_000_000


def _read(
    dataset: Dataset,
    domain: Domain,
    folder: Path,
    delta: float,
    given: Private[pd.DataFrame] | None,
) -> pd.DataFrame:
    source = dataset.source

    def check(names: Sequence[str]) -> None:
        _check_columns(names, domain, _id_column(dataset))

    def check_rows(rows: int) -> None:
        _check_size(rows, dataset, delta)

    readers: dict[type, Callable[[Any], pd.DataFrame]] = {
        CsvSource: lambda s: read_csv_file(
            folder / s.path, delimiter=s.delimiter, missing=s.missing_values, check=check
        ),
        ParquetSource: lambda s: read_parquet_files(
            folder / s.path, check=check, check_rows=check_rows
        ),
        SqlSource: lambda s: read_query(s, check=check, check_rows=check_rows),
        BuiltinSource: lambda s: builtin.frame(s.name),
        DataFrameSource: lambda s: open_dataframe(given, check=check, check_rows=check_rows),
    }
    return _guarded(source, lambda: readers[type(source)](source))


def _guarded(source: Source, read: Callable[[], T]) -> T:
    """What `read` gives; its errors without anything that might quote a row."""
    what = shown_path(getattr(source, "path", None) or getattr(source, "name", None) or source.kind)
    problem: DataError
    try:
        return read()
    except FileNotFoundError:
        problem = DataError(
            f"no file {what!r}", hint="dataset.source.path is relative to the spec's folder"
        )
    except PermissionError:
        problem = DataError(f"no permission to read {what!r}")
    except DataError as error:
        problem = error
    except Exception as error:
        # The library's message may quote a row: name the kind of error only.
        problem = DataError(
            f"cannot read {what!r} as {source.kind} ({type(error).__name__})",
            hint="check that the file is what dataset.source says",
        )
    raise problem  # out here, so that the library's error does not hang on it as its context


def _id_column(dataset: Dataset) -> str | None:
    return dataset.privacy_unit.column if isinstance(dataset.privacy_unit, IdUnit) else None


def _check_columns(names: Sequence[str], domain: Domain, id_column: str | None) -> None:
    """Every declared column must be there; others are refused, so that none is dropped unseen."""
    wanted = set(domain.names) | ({id_column} if id_column else set())
    if len(set(names)) < len(names):
        raise DataError(
            "two columns of the table have the same name",
            hint="give every column a name of its own",
        )
    found, problems, hints = set(names), [], []
    if not wanted & found:
        raise DataError(
            "the table has none of the declared columns",
            hint="the first line of a CSV names its columns; check it, and the delimiter",
        )
    if wanted - found:
        problems.append(
            f"missing column{'s' if len(wanted - found) > 1 else ''}"
            f" {_few(map(repr, sorted(wanted - found)))}"
        )
        hints.append(
            "names must be the source's own, letter by letter; take what it lacks out of the spec"
        )
    strange = [
        str(i)
        for i, name in enumerate(names, start=1)
        if name not in wanted and name not in domain.derived
    ]
    if strange:
        # By position: what stands for a name may be a value, where the header is missing or runs
        # into the first row.
        problems.append(
            f"undeclared column{'s' if len(strange) > 1 else ''} in place {_few(strange)}"
        )
        hints.append("declare every column of the source, or drop it there")
    if problems:
        raise DataError(
            f"the table does not fit the spec: {'; '.join(problems)}", hint="; ".join(hints)
        )


def _few(texts: Iterable[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def _check_file(rows: int, dataset: Dataset, delta: float) -> None:
    _check_some(rows)
    _check_size(rows, dataset, delta)


def _check_some(rows: int) -> None:
    if rows == 0:
        raise DataError(
            "the table has no rows",
            hint=(
                "see that dataset.source names the right table, and that its export was finished;"
                " nothing was spent"
            ),
        )


def _check_size(rows: int, dataset: Dataset, delta: float) -> None:
    """A few bytes of a file can unpack to more rows than any memory holds; and delta must be below
    1 / rows, of the true rows too.
    """
    if rows > most_rows(dataset):
        raise DataError(
            "the table has far more rows than dataset.rows declares",
            hint="correct dataset.rows, or the source",
        )
    if rows * delta >= 1:
        raise DataError(
            f"the table has 1 / delta = {1 / delta:,.0f} rows or more, and a delta this large"
            " allows one whole row to be published",
            hint=(
                "correct dataset.rows or the source, or lower privacy.delta, better to a tenth of 1"
                " / rows or less; a new release has spent nothing"
            ),
        )


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
    if (units < 0).any():
        raise DataError(
            f"column {unit.column!r} (the privacy unit) has missing ids",
            hint=(
                "every row must belong to a unit; ids are compared as text without white space"
                " around it, whole numbers as numbers (01 is 1.0)"
            ),
        )
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


def _clean(domain: Domain, codes: Codes, encoded: Mapping[str, EncodedColumn]) -> pd.DataFrame:
    """Values as the domain knows them: clamped numbers, declared categories, missing where
    declared.
    """
    columns: dict[str, pd.Series[Any]] = {}
    for i, column in enumerate(domain.columns):
        numbers = encoded[column.name].numbers
        columns[column.name] = column_kind(column).values(
            column, codes[:, i] if numbers is None else numbers, missing_in(column, codes[:, i])
        )
    return pd.DataFrame(columns)
