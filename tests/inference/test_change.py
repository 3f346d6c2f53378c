"""The change of a figure since an earlier wave: `synthdp.inference.answer`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.inference import Answer, Figure, answer_tables, change_of, difference, labelled
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import parse_query
from tests.builders import build_spec

SPEC = build_spec(
    {
        "smoker": {"type": "boolean"},
        "age": {"type": "integer", "lower": 0, "upper": 99, "bins": 10},
    },
    rows=2000,
    evaluation={"enabled": False},
)
DOMAIN = Domain.from_spec(SPEC.columns)
LAWS = (0.3, 0.42)
"""Share of smokers in the first and in the second wave."""


def wave(
    rng: np.random.Generator, smokers: float, *, sigma: float = 30.0
) -> tuple[NoisyTable, ...]:
    """The noisy table of a sample of 2,000 people."""
    law = np.outer([1 - smokers, smokers], np.full(10, 0.1))
    counts = rng.multinomial(2000, law.ravel()).reshape(law.shape)
    return (NoisyTable(("smoker", "age"), counts + rng.normal(0, sigma, law.shape), sigma),)


def asked(question: str, tables: tuple[NoisyTable, ...]) -> Answer:
    found = answer_tables(parse_query(question, SPEC.columns), SPEC, DOMAIN, tables)
    return labelled(found, SPEC, DOMAIN)


def changes(question: str, runs: int) -> list[Figure]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(runs):
        then, now = (asked(question, wave(rng, smokers)) for smokers in LAWS)
        found.append(change_of(now, then, "", "before").figures[0])
    return found


def covered(figures: list[Figure], truth: float) -> float:
    held = [f.interval is not None and float(f.interval[0]) <= truth <= float(f.interval[1])
            for f in figures]  # fmt: skip
    return float(np.mean(held))


@pytest.mark.check
def test_changes_between_waves_are_covered(figure: Callable[..., None]) -> None:
    """Two questions, 500 pairs of waves each, with sampling and noise."""
    truth = LAWS[1] - LAWS[0]
    shares = changes("share(smoker)", 500)
    held = covered(shares, truth)
    assert 0.93 <= held <= 0.97
    errors = [float(f.estimate or 0) - truth for f in shares]
    assert abs(np.mean(errors)) < 4 * np.std(errors) / len(errors) ** 0.5
    count = covered(changes("count(smoker)", 500), 2000 * truth)
    figure("changes between two waves inside their intervals", round(500 * held), 500)
    assert count > 0.93  # a count's interval is of the rows, which differ from the law here


@pytest.mark.check
@pytest.mark.parametrize("fault", ["one interval", "the sum"])
def test_a_fault_in_the_interval_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*sides: float) -> float:
        return max(sides) * 0.7 if fault == "one interval" else sum(sides)

    monkeypatch.setattr(math, "hypot", wrong)
    held = covered(changes("share(smoker)", 500), LAWS[1] - LAWS[0])
    assert not 0.93 <= held <= 0.97


def test_a_change_goes_from_the_earlier_wave_to_the_later_and_adds_variances() -> None:
    now = Figure(None, 100.0, 0.5, (0.44, 0.58))
    then = Figure(None, 90.0, 0.2, (0.12, 0.26))
    found = difference(now, then)
    assert found.estimate == pytest.approx(0.3) and found.rows == 100
    assert found.interval == pytest.approx((0.3 - 0.0848528, 0.3 + 0.1131371))


@pytest.mark.parametrize(
    "then",
    [
        Figure(None, refused="too few rows"),
        Figure(None, 9.0, "2024-01-01", ("2023-01-01", "2025-01-01")),
        Figure(None, 9.0, None, (0.0, 1.0)),
    ],
)
def test_what_has_no_number_has_no_change(then: Figure) -> None:
    found = difference(Figure(None, 100.0, 0.5, (0.4, 0.6)), then)
    assert found.interval is None and found.refused == (
        then.refused or "one of the waves has no number with an interval"
    )


def test_groups_must_be_the_same() -> None:
    rng = np.random.default_rng(0)
    then, now = (asked("share(age > 50) by smoker", wave(rng, smokers)) for smokers in LAWS)
    assert len(change_of(now, then, "", "before").figures) == 2
    with pytest.raises(Exception, match="the levels of smoker were others in wave before"):
        change_of(now, replace(then, groups=(("a",), ("b",))), "", "before")
