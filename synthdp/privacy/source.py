"""The only reader of rows.

`read_private` opens the source, fits every value to the declared domain (clamping, missing as a state), keeps
at most `max_rows` rows of each unit, flips the holdout coins and seals the result. What it may raise names
columns only: never a value, a row or a count.

Clamping and encoding act on each row alone and the row bound on each unit alone, so neighbouring tables stay
neighbours: adding or replacing one unit changes at most `max_rows` of the rows kept.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data import builtin
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode_column, encode, to_numbers
from synthdp.errors import DataError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY, Private
from synthdp.spec import models as spec

# Tables that ship with synthdp.
BUILTIN = {"synthetic": builtin.frame}


@dataclass(frozen=True, repr=False)
class Table:
    """Rows inside the seal: levels `[rows, columns]`, cleaned values, which rows are held out, misfits by column."""

    codes: Codes
    frame: pd.DataFrame
    held_out: npt.NDArray[np.bool_]
    misfits: dict[str, dict[str, int]]

    def __repr__(self) -> str:
        return "<Table>"  # tracebacks and debuggers print what repr says

    @property
    def fit_codes(self) -> Codes:
        """Levels of the rows that mechanisms see."""
        return self.codes[~self.held_out]


def read_private(dataset: spec.Dataset, domain: Domain, *, folder: Path, holdout: float, streams: Streams) -> Private[Table]:
    """Read, fit and seal a table. `folder` is the spec's; `holdout` the chance of each unit to be held out.

    Raises:
        DataError: the source cannot be read, or holds what the spec does not declare.
    """
    table = fit_table(_read(dataset.source, folder), dataset, domain, holdout=holdout, rng=streams.holdout)
    return Private(table, key=_KERNEL_KEY)


def fit_table(raw: pd.DataFrame, dataset: spec.Dataset, domain: Domain, *, holdout: float, rng: np.random.Generator) -> Table:
    """Fit rows as they were read to the domain. For the kernel: its reader, and the audit of reading on made-up rows.

    Raises:
        DataError: `raw` holds what the spec does not declare.
    """
    unit = dataset.privacy_unit
    id_column = unit.column if isinstance(unit, spec.IdUnit) else None
    _check_columns(raw, domain, id_column)
    if isinstance(unit, spec.IdUnit):
        raw = _bound_rows(raw, unit, rng)
    units = raw[id_column] if id_column else None
    try:
        codes, encoded = encode(domain, raw)
        frame = _clean(domain, raw, codes)
    except Exception as error:
        # As in `_read`: the message of a conversion that fails would quote the value.
        raise DataError(f"values that cannot be read as the declared types ({type(error).__name__})", hint="check the columns' types") from None
    misfits = {
        name: {"wrong type": e.wrong_type, "outside the domain": e.outside, "unexpected missing": e.unexpected_missing} for name, e in encoded.items()
    }
    bad = [name for name, e in encoded.items() if e.misfits]
    if bad and dataset.out_of_domain == "refuse":
        raise DataError(
            f"values outside the declared domain in column{'s' if len(bad) > 1 else ''} {', '.join(map(repr, bad))}",
            hint="correct the domain or the data, or accept clamping with `dataset.out_of_domain: clamp`",
        )
    if dataset.rows.kind == "public" and len(raw) != dataset.rows.value and id_column is None:
        raise DataError(
            f"dataset.rows declares {dataset.rows.value} rows as public knowledge, and the table has another number",
            hint="correct dataset.rows, or declare `kind: approximate`",
        )
    return Table(codes, frame, _coins(len(raw), units, holdout, rng), misfits)


def _read(source: spec.Source, folder: Path) -> pd.DataFrame:
    readers: dict[type, Callable[[Any], pd.DataFrame]] = {
        spec.CsvSource: lambda s: _read_csv(folder / s.path, delimiter=s.delimiter, missing=s.missing_values),
        spec.ParquetSource: lambda s: pd.read_parquet(folder / s.path),
        spec.SqlSource: _read_sql,
        spec.BuiltinSource: lambda s: BUILTIN[s.name](),
    }
    what = getattr(source, "path", None) or getattr(source, "name", None) or source.kind
    try:
        return readers[type(source)](source)
    except FileNotFoundError:
        raise DataError(f"no file {what!r}", hint="dataset.source.path is relative to the spec's folder") from None
    except PermissionError:
        raise DataError(f"no permission to read {what!r}") from None
    except DataError:
        raise
    except Exception as error:
        # The library's message may quote a row: name the kind of error only.
        raise DataError(
            f"cannot read {what!r} as {source.kind} ({type(error).__name__})", hint="check the file's format, encoding and delimiter"
        ) from None


def _read_csv(path: Path, *, delimiter: str, missing: tuple[str, ...]) -> pd.DataFrame:
    header = pd.read_csv(path, sep=delimiter, nrows=1, encoding="utf-8-sig", header=None, dtype=str, keep_default_na=False)
    names = [str(n) for n in header.iloc[0]]
    twice = [str(i) for i, n in enumerate(names, start=1) if names.count(n) > 1]
    if twice:
        # By position: without a header this would be a row.
        raise DataError(f"the header repeats a name, at positions {', '.join(twice)}", hint="give every column a name of its own")
    with warnings.catch_warnings():
        # Rows longer than the header would lose their last fields with no more than a warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(path, sep=delimiter, encoding="utf-8-sig", dtype=str, keep_default_na=False, na_values=list(missing), index_col=False)


def _read_sql(source: spec.SqlSource) -> pd.DataFrame:
    import sqlalchemy

    url = os.environ.get(source.url_env)
    if not url:
        raise DataError(f"the environment variable {source.url_env} is not set", hint="it holds the database URL, with its password")
    with sqlalchemy.create_engine(url).connect() as connection:
        return pd.read_sql_query(sqlalchemy.text(source.query), connection)


def _check_columns(raw: pd.DataFrame, domain: Domain, id_column: str | None) -> None:
    """Every declared column must be there; others are refused, so that none is dropped unseen."""
    wanted = set(domain.names) | ({id_column} if id_column else set())
    found = {str(c) for c in raw.columns}
    problems = []
    if not wanted & found:
        # Then the "header" may well be a row: say nothing of it.
        raise DataError("the table has none of the declared columns", hint="the first line of a CSV names its columns; check it, and the delimiter")
    if wanted - found:
        problems.append(f"missing column{'s' if len(wanted - found) > 1 else ''} {', '.join(map(repr, sorted(wanted - found)))}")
    if found - wanted:
        problems.append(f"undeclared column{'s' if len(found - wanted) > 1 else ''} {', '.join(map(repr, sorted(found - wanted)))}")
    if problems:
        raise DataError(f"the table does not fit the spec: {'; '.join(problems)}", hint="declare every column, or drop it from the source")


def _bound_rows(raw: pd.DataFrame, unit: spec.IdUnit, rng: np.random.Generator) -> pd.DataFrame:
    """At most `max_rows` rows of each id, a uniformly random choice that depends on that id's rows alone."""
    if raw[unit.column].isna().any():
        raise DataError(f"column {unit.column!r} (the privacy unit) has missing ids", hint="every row must belong to a unit")
    shuffled = raw.iloc[rng.permutation(len(raw))]
    rank = shuffled.groupby(unit.column, sort=False).cumcount()
    return shuffled[rank.to_numpy() < unit.max_rows].reset_index(drop=True)


def _coins(rows: int, units: pd.Series[Any] | None, holdout: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """One independent coin per unit: a unit is held out as a whole, whatever the others do."""
    if units is None:
        alone: npt.NDArray[np.bool_] = rng.random(rows) < holdout
        return alone
    ids, _ = pd.factorize(units)
    coins: npt.NDArray[np.bool_] = rng.random(int(ids.max(initial=-1)) + 1) < holdout
    held: npt.NDArray[np.bool_] = coins[ids]
    return held


def _clean(domain: Domain, raw: pd.DataFrame, codes: Codes) -> pd.DataFrame:
    """Values as the domain knows them: clamped numbers, declared categories, missing where declared."""
    columns: dict[str, pd.Series[Any]] = {}
    for i, column in enumerate(domain.columns):
        if column.type not in ("integer", "number"):
            columns[column.name] = decode_column(column, codes[:, i], rng=np.random.Generator(np.random.Philox(key=0)))
            continue
        numbers = np.clip(to_numbers(column, raw[column.name]), column.lower, column.upper)
        if column.missing:
            numbers = np.where(codes[:, i] == column.missing_level, np.nan, numbers)
        series = pd.Series(np.where(np.isnan(numbers) & (not column.missing), column.lower, numbers))
        columns[column.name] = series if column.type == "number" else series.round().astype("Int64" if column.missing else "int64")
    return pd.DataFrame(columns)
