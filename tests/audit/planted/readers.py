"""The reading step with one thing wrong in each: name -> a reader of raw rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from synthdp.privacy.source import fit_table
from synthdp.privacy.table import Table
from synthdp.spec import models as spec

Reader = Callable[..., Table]


def before(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Reader:
    """`change` of the raw rows is read."""
    return lambda raw, dataset, domain, **how: fit_table(change(raw.copy()).reset_index(drop=True), dataset, domain, **how)


def after(change: Callable[[Table], Table]) -> Reader:
    """What is read is changed."""
    return lambda *args, **how: change(fit_table(*args, **how))


def filled_with_the_mean(table: Table) -> Table:
    pay = table.frame["pay"]
    return replace(table, frame=table.frame.assign(pay=pay.fillna(pay.mean() if pay.notna().any() else 0.0)))


def scaled_to_the_data(table: Table) -> Table:
    pay = table.frame["pay"]
    return replace(table, frame=table.frame.assign(pay=(pay - pay.min()) / (1 + pay.max() - pay.min())))


def outliers_cut(table: Table) -> Table:
    pay = table.frame["pay"]
    return replace(table, frame=table.frame.assign(pay=pay.clip(pay.quantile(0.1), pay.quantile(0.9))))


def format_of_the_first_date(raw: pd.DataFrame) -> pd.DataFrame:
    """As a reader that guesses: what is not written like the first value is missing."""
    first = next((v for v in raw["day"] if isinstance(v, str)), "")
    raw["day"] = raw["day"].where(raw["day"].str.len() == len(first), None)
    return raw


def columns_without_numbers(raw: pd.DataFrame) -> pd.DataFrame:
    """As a reader that infers types: one value that is no number makes a text of the whole column."""
    if pd.to_numeric(raw["pay"], errors="coerce").isna().sum() > raw["pay"].isna().sum():
        raw["pay"] = "text"
    return raw


def levels_by_frequency(table: Table) -> Table:
    codes = table.codes.copy()
    order = np.argsort(-np.bincount(codes[:, 0], minlength=2), kind="stable")
    codes[:, 0] = np.argsort(order)[codes[:, 0]]
    return replace(table, codes=codes)


def without_bound(raw: pd.DataFrame, dataset: spec.Dataset, domain: Any, **how: Any) -> Table:
    """Every row of a unit is kept."""
    unit = dataset.privacy_unit
    if isinstance(unit, spec.IdUnit):
        dataset = dataset.model_copy(update={"privacy_unit": unit.model_copy(update={"max_rows": 10_000})})
    return fit_table(raw, dataset, domain, **how)


def misfits_in_all(table: Table) -> Table:
    """As a report that counts the rows of a column with any misfit at all."""
    return replace(table, misfits={name: {kind: len(table.codes) * (n > 0) for kind, n in kinds.items()} for name, kinds in table.misfits.items()})


READERS: dict[str, Reader] = {
    "missing values filled with the mean": after(filled_with_the_mean),
    "values scaled to the data": after(scaled_to_the_data),
    "outliers cut at quantiles": after(outliers_cut),
    "levels in the order of their frequency": after(levels_by_frequency),
    "misfits counted for the whole column": after(misfits_in_all),
    "rows that are twins dropped": before(lambda raw: raw.drop_duplicates(subset=["sex", "pay", "day"], keep=False)),
    "missing values filled from the row before": before(lambda raw: raw.ffill()),
    "the format of the first date for all": before(format_of_the_first_date),
    "the type of a column from its values": before(columns_without_numbers),
    "a table with a bad row dropped whole": before(lambda raw: raw[:0] if (raw["sex"] == "x").any() else raw),
    "all rows of a unit kept": without_bound,
}
