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
from synthdp.spec.model import Dataset

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


def paid(change: Callable[[pd.Series[float]], pd.Series[float]]) -> Reader:
    """The numbers that were read are changed."""
    return after(lambda t: replace(t, frame=t.frame.assign(pay=change(t.frame["pay"]))))


def format_of_the_first_date(raw: pd.DataFrame) -> pd.DataFrame:
    """As a reader that guesses: what is not written like the first value is missing."""
    first = next((v for v in raw["day"] if isinstance(v, str)), "")
    return raw.assign(day=raw["day"].where(raw["day"].str.len() == len(first), None))


def columns_without_numbers(raw: pd.DataFrame) -> pd.DataFrame:
    """As a reader that infers types: one value that is no number makes texts of all."""
    texts = pd.to_numeric(raw["pay"], errors="coerce").isna().sum() > raw["pay"].isna().sum()
    return raw.assign(pay="text") if texts else raw


def levels_by_frequency(table: Table) -> Table:
    codes = table.codes.copy()
    order = np.argsort(-np.bincount(codes[:, 0], minlength=2), kind="stable")
    codes[:, 0] = np.argsort(order)[codes[:, 0]]
    return replace(table, codes=codes)


def without_bound(raw: pd.DataFrame, dataset: Dataset, domain: Any, **how: Any) -> Table:
    """Every row of a unit is kept."""
    unit = dataset.privacy_unit.model_copy(update={"max_rows": 10_000})
    return fit_table(raw, dataset.model_copy(update={"privacy_unit": unit}), domain, **how)


def misfits_in_all(table: Table) -> Table:
    """As a report that counts the rows of a column with any misfit at all."""
    rows, every = len(table.codes), table.misfits.items()
    found = {name: {k: rows * (n > 0) for k, n in kinds.items()} for name, kinds in every}
    return replace(table, misfits=found)


READERS: dict[str, Reader] = {
    "missing values filled with the mean": paid(
        lambda pay: pay.fillna(pay.mean() if pay.notna().any() else 0.0)
    ),
    "values scaled to the data": paid(lambda p: (p - p.min()) / (1 + p.max() - p.min())),
    "outliers cut at quantiles": paid(lambda p: p.clip(p.quantile(0.1), p.quantile(0.9))),
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


def cells_of(column: pd.Series[Any]) -> list[Any]:
    """As Python objects."""
    plain = column.dtype == object
    return [None if not plain and pd.isna(v) else v for v in column.tolist()]


def columnwise(change: Callable[[list[Any]], Any], *names: str) -> Reader:
    """`change` of each of these columns' cells is read."""

    def own(name: str, cells: list[Any]) -> pd.Series[Any]:
        found = change(cells) if name in names else cells
        return pd.Series(found, dtype=object) if isinstance(found, list) else pd.Series(found)

    return before(lambda raw: pd.DataFrame({name: own(name, cells_of(raw[name])) for name in raw}))


def dates_by_pandas(cells: list[Any]) -> Any:
    """One unit of time for all: what reading was before."""
    texts = pd.Series(cells, dtype=object)
    read = pd.to_datetime(texts, errors="coerce", format="ISO8601", utc=True)
    return read.dt.tz_localize(None)


def through_floats(cells: list[Any]) -> list[Any]:
    """One missing value makes floating point of the others, as in a column of NumPy."""
    whole = all(v is None or (type(v) is int and abs(v) < 2**63) for v in cells)
    return [v if v is None or not (whole and None in cells) else float(v) for v in cells]


def text_if_all_are(cells: list[Any]) -> list[Any]:
    """As `infer_dtype` chooses between two ways to make texts of values."""
    plain = pd.api.types.infer_dtype(cells, skipna=True) == "string"
    return [v if plain or v is None else f"{v}".strip() for v in cells]


def equal_keys(cells: list[Any]) -> list[Any]:
    """A dictionary of values seen: 1, 1.0 and True are one key, whose first stands for all."""
    seen: dict[Any, Any] = {}
    return [seen.setdefault(v, v) if isinstance(v, bool | int | float) else v for v in cells]


def format_guessed(cells: list[Any]) -> Any:
    """The format that the first date is written in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        texts = pd.Series([v if isinstance(v, str) else None for v in cells], dtype="str")
        return pd.to_datetime(texts, errors="coerce", utc=True).dt.tz_localize(None)


def decimal_comma_guessed(cells: list[Any]) -> list[Any]:
    """A comma is the decimal point where every number with a comma has no point."""
    texts = [v for v in cells if isinstance(v, str)]
    guessed = any("," in v for v in texts) and not any("." in v for v in texts)
    return [v.replace(",", ".") if guessed and isinstance(v, str) else v for v in cells]


def stripped_if_needed(cells: list[Any]) -> list[Any]:
    """White space is cut everywhere once a value has any."""
    marked = any(v != v.strip("\"' ") for v in cells if isinstance(v, str))
    return [
        v.strip("\"' ").removeprefix("0") if marked and isinstance(v, str) else v for v in cells
    ]


def arrow_infers(cells: list[Any]) -> Any:
    """Arrow's type for the values, or text where it finds none."""
    try:
        found = pa.chunked_array([pa.array(cells, from_pandas=True)])
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return [None if v is None else str(v) for v in cells]
    return pd.arrays.ArrowExtensionArray(found)


def in_utf8(cells: list[Any]) -> Any:
    """Arrow's texts, which half a surrogate pair is none of: what reading was before."""
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(cells, pa.string())]))


def numbers_by_pandas(cells: list[Any]) -> Any:
    return pd.to_numeric(pd.Series(cells, dtype="str"), errors="coerce", downcast="float")


FILE, DICTIONARY, DATABASE = "texts of a file", "texts of a dictionary", "objects of a database"
ODD = "2015-05-05T00:00:00.0000001"
# name -> what is done to columns, a way of `WAYS` by which values come, values that show it
WHOLE_COLUMNS: dict[str, tuple[Reader, str, tuple[Any, ...]]] = {
    name: (columnwise(change, *columns), way, values)
    for name, change, columns, way, values in (
        ("dates by pandas, of texts", dates_by_pandas, ["day"], FILE, ("9999-12-31", ODD)),
        ("dates by pandas, coded", dates_by_pandas, ["day"], DICTIONARY, ("1650-03-01", ODD)),
        ("as narrow as they fit", numbers_by_pandas, ["real"], FILE, ("0.1", "-1e308")),
        ("types inferred by pandas", pd.Series, ["category"], "whole numbers")
        + ((None, HUGE + 1, HUGE + 3),),
        ("through floating point", through_floats, ["category"], DATABASE, (None, HUGE + 1)),
        ("texts by infer_dtype", text_if_all_are, ["category", "flag"], DATABASE, ("1 ", 1.5)),
        ("equal keys", equal_keys, ["category", "flag"], DATABASE, (True, 1, 1.0)),
        ("the format guessed", format_guessed, ["day"], FILE)
        + (("2020-01-01", "2015-05-05 10:00:00"),),
        ("a decimal comma guessed", decimal_comma_guessed, ["real"], FILE, ("1,5", "1.")),
        ("cut where any value needs it", stripped_if_needed, ["category"], FILE, ("01", '"')),
        ("all texts in UTF-8 or none", in_utf8, ["category"], "texts of pandas", ("1", "\ud800")),
        ("types inferred by Arrow", arrow_infers, ["category", "real"], DATABASE, (1.0, "x")),
    )
}
