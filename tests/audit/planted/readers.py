"""The reading step with one thing wrong in each: name -> a reader of raw rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from synthdp.privacy.source import fit_table
from synthdp.privacy.table import Table
from synthdp.spec.model import Dataset, IdUnit

Reader = Callable[..., Table]

HUGE = 2**53


def before(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Reader:
    """`change` of the raw rows is read."""
    return lambda raw, dataset, domain, **how: fit_table(
        change(raw.copy()).reset_index(drop=True), dataset, domain, **how
    )


def after(change: Callable[[Table], Table]) -> Reader:
    """What is read is changed."""
    return lambda *args, **how: change(fit_table(*args, **how))


def filled_with_the_mean(table: Table) -> Table:
    pay = table.frame["pay"]
    return replace(
        table, frame=table.frame.assign(pay=pay.fillna(pay.mean() if pay.notna().any() else 0.0))
    )


def scaled_to_the_data(table: Table) -> Table:
    pay = table.frame["pay"]
    return replace(
        table, frame=table.frame.assign(pay=(pay - pay.min()) / (1 + pay.max() - pay.min()))
    )


def outliers_cut(table: Table) -> Table:
    pay = table.frame["pay"]
    return replace(
        table, frame=table.frame.assign(pay=pay.clip(pay.quantile(0.1), pay.quantile(0.9)))
    )


def format_of_the_first_date(raw: pd.DataFrame) -> pd.DataFrame:
    """As a reader that guesses: what is not written like the first value is missing."""
    first = next((v for v in raw["day"] if isinstance(v, str)), "")
    raw["day"] = raw["day"].where(raw["day"].str.len() == len(first), None)
    return raw


def columns_without_numbers(raw: pd.DataFrame) -> pd.DataFrame:
    """As a reader that infers types: one value that is no number makes texts of all."""
    if pd.to_numeric(raw["pay"], errors="coerce").isna().sum() > raw["pay"].isna().sum():
        raw["pay"] = "text"
    return raw


def levels_by_frequency(table: Table) -> Table:
    codes = table.codes.copy()
    order = np.argsort(-np.bincount(codes[:, 0], minlength=2), kind="stable")
    codes[:, 0] = np.argsort(order)[codes[:, 0]]
    return replace(table, codes=codes)


def without_bound(raw: pd.DataFrame, dataset: Dataset, domain: Any, **how: Any) -> Table:
    """Every row of a unit is kept."""
    unit = dataset.privacy_unit
    if isinstance(unit, IdUnit):
        dataset = dataset.model_copy(
            update={"privacy_unit": unit.model_copy(update={"max_rows": 10_000})}
        )
    return fit_table(raw, dataset, domain, **how)


def misfits_in_all(table: Table) -> Table:
    """As a report that counts the rows of a column with any misfit at all."""
    return replace(
        table,
        misfits={
            name: {kind: len(table.codes) * (n > 0) for kind, n in kinds.items()}
            for name, kinds in table.misfits.items()
        },
    )


READERS: dict[str, Reader] = {
    "missing values filled with the mean": after(filled_with_the_mean),
    "values scaled to the data": after(scaled_to_the_data),
    "outliers cut at quantiles": after(outliers_cut),
    "levels in the order of their frequency": after(levels_by_frequency),
    "misfits counted for the whole column": after(misfits_in_all),
    "rows that are twins dropped": before(
        lambda raw: raw.drop_duplicates(subset=["sex", "pay", "day"], keep=False)
    ),
    "missing values filled from the row before": before(lambda raw: raw.ffill()),
    "the format of the first date for all": before(format_of_the_first_date),
    "the type of a column from its values": before(columns_without_numbers),
    "a table with a bad row dropped whole": before(
        lambda raw: raw[:0] if (raw["sex"] == "x").any() else raw
    ),
    "all rows of a unit kept": without_bound,
}


# --- what reads a column as a whole: each is found by a pair of values, of one kind of source ---


def objects(raw: pd.DataFrame) -> pd.DataFrame:
    """The cells as Python objects."""
    held = {
        name: [None if raw[name].dtype != object and pd.isna(v) else v for v in raw[name].tolist()]
        for name in raw
    }
    return pd.DataFrame(
        {name: pd.Series(values, index=raw.index, dtype=object) for name, values in held.items()}
    )


def columnwise(change: Callable[[list[Any]], Any], *names: str) -> Reader:
    """`change` of each of these columns' cells is read."""

    def changed(raw: pd.DataFrame) -> pd.DataFrame:
        cells = objects(raw)
        return pd.DataFrame(
            {
                n: pd.Series(change(cells[n].tolist()), index=raw.index) if n in names else cells[n]
                for n in raw
            }
        )

    return before(changed)


def dates_by_pandas(cells: list[Any]) -> Any:
    """One unit of time for all: what reading was before."""
    read = pd.to_datetime(
        pd.Series(cells, dtype=object), errors="coerce", format="ISO8601", utc=True
    )
    return read.dt.tz_localize(None)


def numbers_by_pandas(cells: list[Any]) -> Any:
    return pd.to_numeric(pd.Series(cells, dtype="str"), errors="coerce", downcast="float")


def inferred(cells: list[Any]) -> Any:
    """A type from the values: whole numbers beside a missing one become floating point."""
    return pd.Series(cells)


def through_floats(cells: list[Any]) -> Any:
    """One missing value makes floating point of the others, as in a column of NumPy."""
    whole = all(v is None or (type(v) is int and abs(v) < 2**63) for v in cells) and any(
        v is None for v in cells
    )
    return pd.Series([None if v is None else float(v) if whole else v for v in cells], dtype=object)


def text_if_all_are(cells: list[Any]) -> Any:
    """As `infer_dtype` chooses between two ways to make texts of values."""
    plain = pd.api.types.infer_dtype(cells, skipna=True) == "string"
    return pd.Series([v if plain or v is None else f"{v}".strip() for v in cells], dtype=object)


def equal_keys(cells: list[Any]) -> Any:
    """A dictionary of values seen: 1, 1.0 and True are one key, whose first stands for all."""
    seen: dict[Any, Any] = {}
    return pd.Series(
        [seen.setdefault(v, v) if isinstance(v, bool | int | float) else v for v in cells],
        dtype=object,
    )


def format_guessed(cells: list[Any]) -> Any:
    """The format that the first date is written in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = pd.Series([v if isinstance(v, str) else None for v in cells], dtype="str")
        return pd.to_datetime(texts, errors="coerce", utc=True).dt.tz_localize(None)


def decimal_comma_guessed(cells: list[Any]) -> Any:
    """A comma is the decimal point where every number with a comma has no point."""
    commas = [v for v in cells if isinstance(v, str) and "," in v]
    guessed = bool(commas) and not any(isinstance(v, str) and "." in v for v in cells)
    return pd.Series(
        [v.replace(",", ".") if guessed and isinstance(v, str) else v for v in cells], dtype=object
    )


def stripped_if_needed(cells: list[Any]) -> Any:
    """White space is cut everywhere once a value has any."""
    texts = [v for v in cells if isinstance(v, str)]
    marked = any(v != v.strip("\"' ") for v in texts)
    return pd.Series(
        [v.strip("\"' ").removeprefix("0") if marked and isinstance(v, str) else v for v in cells],
        dtype=object,
    )


def arrow_infers(cells: list[Any]) -> Any:
    """Arrow's type for the values, or text where it finds none."""
    try:
        return pd.Series(
            pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(cells, from_pandas=True)]))
        )
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,
        ValueError,
    ):
        return pd.Series([None if v is None else str(v) for v in cells], dtype=object)


# name -> the reader, a way of `WAYS` by which values come, and values of which a pair shows it
WHOLE_COLUMNS: dict[str, tuple[Reader, str, tuple[Any, ...]]] = {
    "dates by pandas, of texts": (
        columnwise(dates_by_pandas, "day"),
        "texts of a file",
        ("9999-12-31", "2015-05-05T00:00:00.0000001"),
    ),
    "dates by pandas, of a dictionary": (
        columnwise(dates_by_pandas, "day"),
        "texts of a dictionary",
        ("1650-03-01", "2015-05-05T00:00:00.0000001"),
    ),
    "numbers by pandas, as narrow as they fit": (
        columnwise(numbers_by_pandas, "real"),
        "texts of a file",
        ("0.1", "-1e308"),
    ),
    "types inferred by pandas": (
        columnwise(inferred, "category"),
        "whole numbers",
        (None, HUGE + 1, HUGE + 3),
    ),
    "whole numbers through floating point": (
        columnwise(through_floats, "category"),
        "objects of a database",
        (None, HUGE + 1),
    ),
    "texts chosen by infer_dtype": (
        columnwise(text_if_all_are, "category", "flag"),
        "objects of a database",
        ("1 ", 1.5),
    ),
    "equal keys of a dictionary": (
        columnwise(equal_keys, "category", "flag"),
        "objects of a database",
        (True, 1, 1.0),
    ),
    "the format guessed from the first date": (
        columnwise(format_guessed, "day"),
        "texts of a file",
        ("2020-01-01", "2015-05-05 10:00:00"),
    ),
    "a decimal comma guessed": (
        columnwise(decimal_comma_guessed, "real"),
        "texts of a file",
        ("1,5", "1."),
    ),
    "cut where any value needs it": (
        columnwise(stripped_if_needed, "category"),
        "texts of a file",
        ("01", '"'),
    ),
    "types inferred by Arrow": (
        columnwise(arrow_infers, "category", "real"),
        "objects of a database",
        (1.0, "x"),
    ),
}
