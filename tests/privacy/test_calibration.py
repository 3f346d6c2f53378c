"""The search for the plan's noise factor, on made-up laws: below the total, by few plans."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from synthdp.errors import BudgetError
from synthdp.privacy.calibration import (
    EPSILON_TOLERANCE,
    MAX_FACTOR,
    _calibrate,
    mu_of,
)


@dataclass(frozen=True)
class Made:
    """A plan with what the search looks at."""

    factor: float
    epsilon_spent: float
    epsilon: float = 1.0
    delta: float = 1e-5
    rows_per_unit: int = 1
    adjacency: str = "add_remove"


def searched(law: Callable[[float], float], **fields: Any) -> tuple[Made, int]:
    """The plan that is found where epsilon follows `law`, and how many were composed."""
    asked: list[float] = []

    def plan_at(factor: float) -> Any:
        asked.append(factor)
        return Made(factor, law(factor), **fields)

    found: Any = _calibrate(plan_at)
    return found, len(asked)


@pytest.mark.parametrize("start", [0.02, 0.3, 0.9, 0.9985, 1.0, 1.1, 3.0, 4.0])
@pytest.mark.parametrize("power", [0.7, 1.0, 1.3, 2.5])
def test_a_power_takes_few_plans(start: float, power: float) -> None:
    most = 4 if 0.2 < start < 2 else 9
    found, plans = searched(lambda factor: start * factor**-power)
    assert 1 - EPSILON_TOLERANCE <= found.epsilon_spent <= 1 and plans <= most


@pytest.mark.parametrize(
    "law",
    [
        lambda f: math.inf if f < 1.7 else 4 / f**1.2,  # too little noise has no epsilon at all
        lambda f: max(0.0, 2 - f),  # delta pays for everything from two on
        lambda f: 0.0 if f > 0.3 else 0.5 / f,
        lambda f: 3 * math.exp(-f),
        lambda f: (
            1.2 / f if f < 1.1 else 0.9 / f
        ),  # a wider grid from there: nothing lies within the tolerance
        lambda f: 1 + 1e-9 if f < 2 else 1.0,
    ],
)
def test_other_laws_stay_below_the_total(law: Callable[[float], float]) -> None:
    found, plans = searched(law)
    assert found.epsilon_spent <= 1 and plans <= 62
    nearer = law(found.factor * 0.98)
    assert nearer > 1 or found.epsilon_spent >= 1 - EPSILON_TOLERANCE or found.factor < 1e-5, (
        "less noise would do"
    )


def test_a_plan_that_always_fits_ends_with_next_to_no_noise() -> None:
    found, _ = searched(lambda factor: 1e-3)
    assert found.factor < 1e-5 and found.epsilon_spent == 1e-3


@pytest.mark.parametrize(
    ("rows", "adjacency", "most"),
    [(1, "add_remove", 1), (1, "replace_one", 2), (5, "add_remove", 5)],
)
def test_what_cannot_be_met_is_refused_and_the_last_that_can_is_found(
    rows: int, adjacency: str, most: int
) -> None:
    edge = MAX_FACTOR * most
    assert (
        searched(
            lambda f: math.inf if f < edge * 0.9 else 0.9985,
            rows_per_unit=rows,
            adjacency=adjacency,
        )[0].factor
        <= edge
    )
    with pytest.raises(BudgetError, match="below what the accountant can resolve"):
        searched(lambda f: math.inf if f <= edge else 0.5, rows_per_unit=rows, adjacency=adjacency)
    asked: list[float] = []
    with pytest.raises(BudgetError):
        searched(lambda f: asked.append(f) or 1.5, rows_per_unit=rows, adjacency=adjacency)  # type: ignore[func-returns-value]
    assert asked[-1] == edge and len(asked) == len(set(asked)) < 20


def test_a_start_is_found_where_the_exponential_of_epsilon_overflows() -> None:
    """mu^2 / 2 + 3.1 mu is about epsilon, at delta 1e-3."""
    mu = mu_of(1000.0, 1e-3)
    assert mu**2 / 2 + 3.1 * mu == pytest.approx(1000, rel=0.01)


def test_no_noise_is_the_least_for_a_delta_of_one() -> None:
    with pytest.raises(ValueError, match=r"delta is 2\.5"):
        mu_of(1.0, 2.5)
