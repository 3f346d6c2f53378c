"""Bins that are suggested from bounds, unit and spikes alone: sensible, and always such that the
spec loads.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.spec.init.questions import MAX_BINS, describe_edges, suggested_edges
from synthdp.spec.model import Integer, Number


@pytest.mark.parametrize(
    ("lower", "upper", "whole", "unit", "spikes", "first", "last", "count"),
    [
        (
            0,
            99,
            True,
            "hours per week",
            [40],
            (0, 5, 10),
            95,
            20,
        ),  # forty hours stand alone, beside bins of five
        (16, 100, True, "years", [], (16, 20, 25), 95, 17),
        (0, 120, True, "years", [0], (1, 5, 10), 115, 24),
        (0, 10, True, "", [0], (1, 2, 3), 9, 9),
        (0, 10, True, "visits", [3], (0, 1, 2), 9, 9),
        (0, 1, False, "", [], (0, 0.05, 0.1), 0.95, 20),
        (30, 200, False, "kg", [], (30, 35, 40), 195, 34),
        (0, 1_000_000, True, "USD", [0], (1, 100, 200), 500_000, 13),
        (0, 3600, True, "minutes", [], (0, 100, 200), 3500, 36),
        (-3.5, 3.5, False, "", [], (-3.5, -3.4, -3.2), 3.4, 36),
    ],
)
def test_suggestions(
    lower: float,
    upper: float,
    whole: bool,
    unit: str,
    spikes: list[float],
    first: tuple[float, ...],
    last: float,
    count: int,
) -> None:
    edges = suggested_edges(lower=lower, upper=upper, whole=whole, unit=unit, spikes=spikes)
    assert (
        edges[:3] == pytest.approx(first)
        and edges[-1] == pytest.approx(last)
        and len(edges) == count
    )


@given(
    st.integers(-(10**9), 10**9),
    st.integers(1, 10**9),
    st.sampled_from(["", "years", "USD", "kg", "%"]),
    st.sets(st.integers(0, 10**9), max_size=4),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_range_gives_edges_that_load(lower: int, span: int, unit: str, away: set[int]) -> None:
    spikes = sorted({lower + a for a in away if a <= span})
    whole = suggested_edges(lower=lower, upper=lower + span, whole=True, unit=unit, spikes=spikes)
    assert len(whole) <= MAX_BINS + 1 and (whole or span == 1)
    if whole:
        Integer(type="integer", lower=lower, upper=lower + span, edges=whole, spikes=tuple(spikes))
    real = suggested_edges(lower=lower / 7, upper=(lower + span) / 7, whole=False, unit=unit)
    Number(type="number", lower=lower / 7, upper=(lower + span) / 7, edges=real)
    assert len(real) <= MAX_BINS + 1 and describe_edges(real, 1.0)
