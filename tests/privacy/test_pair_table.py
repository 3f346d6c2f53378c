"""The two-way table of a pair: a row's cell, how far it moves the table, its noise."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import kstest

from synthdp.data import ColumnDomain, Domain
from synthdp.privacy import (
    CELLS,
    SCORES,
    AdditiveNoiseScores,
    OrientationBudget,
    PairTable,
    count_cells,
)
from synthdp.privacy.noise import Streams
from tests.privacy.conftest import encoded_table, numeric_domain

DOMAIN = numeric_domain("x", "y", missing=True)
table_of = partial(encoded_table, DOMAIN)


def test_one_row_moves_one_count_by_one_whatever_the_others_are() -> None:
    rng = np.random.default_rng(0)
    for rows in (0, 1, 30):
        x, y = rng.uniform(-1, 1, (2, rows))
        for new in ((-1.0, 1.0), (0.0, 0.0), (2.0, -7.0)):
            moved = count_cells(np.append(x, new[0]), np.append(y, new[1])) - count_cells(x, y)
            assert np.abs(moved).sum() == moved.max() == 1


def test_numbers_beyond_the_range_count_at_its_ends_and_missing_ones_nowhere() -> None:
    counts = (
        PairTable(DOMAIN, "x", "y", 1e-3)
        .run(table_of(np.array([[-9.0, 9.0], [np.nan, 0.0], [0.99, -0.99]])), Streams.fresh())
        .counts
    )
    assert counts[0, CELLS - 1] == counts[CELLS - 1, 0] == 1
    assert np.abs(counts).sum() == 2


def test_noise_has_the_stated_deviation_and_no_other() -> None:
    model = PairTable(DOMAIN, "x", "y", 20.0)
    counts = np.concatenate(
        [model.run(table_of(np.zeros((0, 2))), Streams.fresh()).counts.ravel() for _ in range(20)]
    )
    drawn = counts + np.random.default_rng(2).uniform(
        -0.5, 0.5, len(counts)
    )  # whole numbers are no continuous law
    assert kstest(drawn, "norm", args=(0, 20.0)).pvalue > 1e-7
    for wrong in (0.7, 1.3):
        assert kstest(drawn * wrong, "norm", args=(0, 20.0)).pvalue < 1e-12


def test_a_table_is_released_alone_and_of_numbers_only() -> None:
    [chosen] = OrientationBudget(DOMAIN, 2.0).choose([("x", "y")]).models
    assert chosen == PairTable(DOMAIN, "x", "y", 2.0)
    assert isinstance(
        OrientationBudget(DOMAIN, 2.0, SCORES).choose([("x", "y")]).models[0], AdditiveNoiseScores
    )
    with pytest.raises(ValueError, match="released alone"):
        OrientationBudget(DOMAIN, 2.0, ("table", "hsic")).choose([("x", "y")])
    with pytest.raises(ValueError, match="two columns of numbers"):
        PairTable(
            Domain((*DOMAIN.columns, ColumnDomain("c", "categorical", ("u", "v"), False))),
            "x",
            "c",
            1.0,
        )


def test_the_journal_gives_the_tables_back() -> None:
    chosen = OrientationBudget(DOMAIN, 1.0).choose([("x", "y"), ("y", "x")])
    released = chosen.run(
        table_of(np.random.default_rng(1).uniform(-1, 1, (50, 2))), Streams.fresh()
    )
    again = chosen.unpack(chosen.pack(released))
    assert [one.sigma for one in again] == [one.sigma for one in released] == [2**0.5] * 2
    assert all(
        np.array_equal(first.counts, second.counts)
        for first, second in zip(released, again, strict=True)
    )  # type: ignore[union-attr]
    with pytest.raises(KeyError):
        chosen.unpack({})
    for wrong in (
        np.zeros((2, 2)),
        np.full((CELLS, CELLS), np.nan),
        np.zeros((CELLS, CELLS), dtype=np.float32),
    ):
        with pytest.raises(ValueError, match="not the counts"):
            chosen.unpack({"000000.counts": wrong, "000001.counts": wrong})
