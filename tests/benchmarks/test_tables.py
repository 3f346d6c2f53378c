"""The public tables of the benchmarks fit their descriptions, and what is measured on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.tables import MORE, TABLES, newcomer_spec
from benchmarks.tables_protocol import PublicTable, information
from synthdp.data import Domain, encode_column
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec

pytestmark = pytest.mark.check


@pytest.mark.parametrize("name", [*TABLES, *MORE])
def test_every_row_fits_the_description(name: str) -> None:
    table = PublicTable(name)
    spec = dict[str, ReleaseSpec]()
    for bins in ("init", "grid"):
        text = newcomer_spec(table, rows=1000, epsilon=1.0, mode="predict", bins=bins)
        spec[bins] = parse_spec(text, path=name)
    rows = pd.concat(table.split).replace("", None)
    domain = Domain.from_spec(spec["grid"].columns)
    misfits = {c.name: encode_column(c, rows[c.name]).misfits for c in domain.columns}
    assert misfits == dict.fromkeys(table.columns, 0)


def test_bounds_of_money_alone_grow() -> None:
    narrow, wide = (
        parse_spec(
            newcomer_spec(
                PublicTable("credit"), rows=900, epsilon=1.0, mode="predict", bins="init", bounds=n
            ),
            path="credit",
        ).columns
        for n in (1, 10)
    )
    assert (wide["BILL_AMT1"].lower, wide["BILL_AMT1"].upper) == (-10_000_000, 20_000_000)
    assert wide["AGE"] == narrow["AGE"]


def test_information_of_two_columns() -> None:
    assert information(np.eye(4) / 4) == pytest.approx(np.log(4))
    assert information(np.outer([0.2, 0.8], [0.5, 0.5])) == pytest.approx(0)


def test_rows_that_say_nothing_keep_nothing() -> None:
    table = PublicTable("poker")
    train, _ = table.split
    levels = table.levels(train)
    assert np.isnan(table._kept(levels, levels))
    twice = PublicTable("dropout")
    levels = twice.levels(twice.split[0])
    assert twice._kept(levels, levels) == 1
    shuffled = np.random.default_rng(0).permuted(levels, axis=0)
    assert twice._kept(levels, shuffled) < 0.2
