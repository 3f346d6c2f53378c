"""Heaps that a look told, as parts of their levels; and heaps that a margin alone shows."""

import numpy as np
import pytest

from synthdp.data import Domain, decode
from synthdp.graph import margin_probabilities
from synthdp.graph.level_groups import with_heaps
from synthdp.privacy import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Integer, Number

PAY = Integer(type="integer", lower=0, upper=1000, spikes=(0,), edges=(1, 100, 500), missing=True)
FEE = Number(type="number", lower=0.0, upper=1.0, decimals=2, edges=(0.0, 0.5))
DOMAIN = Domain.from_spec({"pay": PAY, "fee": FEE})
TABLES = (
    NoisyTable(("pay",), np.array([40.0, 100.0, 200.0, -3.0, 10.0]), 5.0),
    NoisyTable(("fee",), np.array([50.0, 250.0]), 5.0),
)


def told(**counts: dict[str, int]) -> NoisyTexts:
    return NoisyTexts(counts, sigma=5.0, threshold=20)


def test_a_heap_is_the_part_of_its_level_that_was_counted() -> None:
    found = with_heaps(
        DOMAIN, told(pay={"0.0": 40, "120.0": 50, "300.0": 100, "500.0": 25}, fee={}), TABLES
    )
    assert found["pay"].heaps == ((2, 120.0, 0.25), (2, 300.0, 0.5), (3, 500.0, 1.0))
    assert found["fee"] == DOMAIN["fee"]
    assert with_heaps(DOMAIN, None, TABLES) is DOMAIN


def test_heaps_of_more_rows_than_their_level_share_it() -> None:
    found = with_heaps(DOMAIN, told(pay={"120.0": 150, "300.0": 100}, fee={}), TABLES)
    assert [heap[2] for heap in found["pay"].heaps] == pytest.approx([0.6, 0.4])


def test_values_are_on_heaps_as_often_as_was_counted_and_else_anywhere_in_the_bin() -> None:
    """Chance to fail: below 1e-8 (each share within six deviations)."""
    rows, rng = 100_000, np.random.default_rng(5)
    found = with_heaps(
        DOMAIN, told(pay={"120.0": 50, "300.0": 100}, fee={"0.75": 25, "1.0": 100}), TABLES
    )
    for pay, fee, shares in ((2, 1, {120: 0.25, 300: 0.5}), (1, 0, {})):
        frame = decode(found, np.tile(np.array([[pay, fee]], np.uint16), (rows, 1)), rng=rng)
        for number, share in shares.items():
            assert (frame["pay"] == number).mean() == pytest.approx(share + 0.25 / 400, abs=0.01)
        fees = {0.75: 0.1, 1.0: 0.4} if fee else {}
        for number, share in fees.items():
            assert (frame["fee"] == number).mean() == pytest.approx(share + 0.5 / 51, abs=0.01)
        low, high = ((1, 99), (100, 499))[pay - 1]
        assert frame["pay"].between(low, high).all() and frame["pay"].nunique() == high - low + 1
    missing = decode(found, np.array([[4, 0]] * 50, np.uint16), rng=rng)
    assert missing["pay"].isna().all()


@pytest.mark.parametrize("at", [0, 40, 199])
@pytest.mark.parametrize("rows", [60, 3000])
def test_a_bin_that_stands_out_leaves_the_margin_beside_it_as_it_is(at: int, rows: int) -> None:
    """An end that many rows share, or one bin with most of them, was smoothed into others."""
    bins = np.arange(200)
    column = Domain.from_spec(
        {"x": Number(type="number", lower=0.0, upper=200.0, edges=tuple(map(float, bins)))}
    )["x"]
    counts = 3000 * np.exp(-((bins - 100) ** 2) / 3200) / np.exp(-((bins - 100) ** 2) / 3200).sum()
    counts[at] += rows
    off, errors = 5.0 / counts.sum(), list[float]()
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(0, off, 200)
        found = margin_probabilities(column, counts / counts.sum() + noise, off)
        assert found[at] == pytest.approx(counts[at] / counts.sum(), abs=6 * off)
        errors.append(float(np.abs(found - counts / counts.sum()).sum() / 2))
    assert np.mean(errors) < 0.04 * 3000 / counts.sum()
