"""The built-in table "synthetic": 22 columns of a structural causal model with a known graph.

Nobody is in it: a health survey that never took place, in the shape (22 columns, 1000 rows) of the
synthetic data set in "Causally Constrained Data Synthesis for Private Data Release",
arXiv:2105.13144, Table 1. The seed is fixed and public, so everybody has the same table.

The graph is true by construction: a mechanism gets its parents' values and noise of its own, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.spec.model import Edge, Graph

ROWS = 1000
SEED = 20261121

Values = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Draw = Callable[[Mapping[str, Values], np.random.Generator, int], Values]

EDUCATION = ("primary", "secondary", "bachelor", "master")
EXERCISE = ("none", "some", "regular")
DIET = ("poor", "fair", "good")
STRESS = ("low", "medium", "high")


@dataclass(frozen=True)
class Structure:
    """One structural equation of the model.

    `draw` computes the column from its parents, its noise and the number of rows.
    """

    parents: tuple[str, ...]
    draw: Draw


def frame(*, rows: int = ROWS) -> pd.DataFrame:
    """The table, `rows` rows in the order of `STRUCTURE`; the same rows at every call."""
    seeds = np.random.SeedSequence(SEED).spawn(len(STRUCTURE))
    values: dict[str, Values] = {}
    for (name, equation), seed in zip(STRUCTURE.items(), seeds, strict=True):
        values[name] = equation.draw(
            {p: values[p] for p in equation.parents}, np.random.default_rng(seed), rows
        )
    return pd.DataFrame(values)


def graph() -> Graph:
    """The parents of each column, as its equation has them."""
    return Graph(
        mode="given",
        edges=tuple(
            Edge(causes=equation.parents, effects=(name,))
            for name, equation in STRUCTURE.items()
            if equation.parents
        ),
    )


# --- noise and helpers ---


def _chance(score: Floats | float, rng: np.random.Generator, rows: int) -> Values:
    """True with probability logistic(score)."""
    happened: Values = rng.random(rows) < 1 / (1 + np.exp(-np.asarray(score)))
    return happened


def _ordered(
    score: Floats | float,
    cuts: Sequence[float],
    labels: Sequence[str],
    rng: np.random.Generator,
    rows: int,
) -> Values:
    """An ordered logit: `labels` by how many of `cuts` the score with logistic noise has passed."""
    return np.asarray(labels, dtype=object)[
        np.searchsorted(np.asarray(cuts), score + rng.logistic(size=rows))
    ]


def _rank(values: Values, labels: Sequence[str]) -> Floats:
    """Position of each label."""
    return np.asarray([labels.index(v) for v in values], dtype=np.float64)


def _normal(
    mean: Floats | float,
    deviation: float,
    low: float,
    high: float,
    decimals: int,
    rng: np.random.Generator,
    rows: int,
) -> Floats:
    """Normal values cut to [low, high]."""
    drawn: Floats = np.clip(mean + deviation * rng.standard_normal(rows), low, high).round(decimals)
    return drawn


# --- the equations, causes before effects ---


def _region(_: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return rng.choice(
        np.asarray(["north", "east", "south", "west"], dtype=object), n, p=[0.4, 0.25, 0.2, 0.15]
    )


def _urban(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _chance(np.where(p["region"] == "north", 1.5, -0.7), rng, n)


def _age(_: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return (18 + np.floor(73 * rng.beta(1.6, 2.2, n))).astype(np.int64)


def _sex(_: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return np.where(rng.random(n) < 0.52, "female", "male").astype(object)


def _education(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _ordered(1.6 * p["urban"] - (p["age"] - 45) / 20, (-1.0, 1.0, 2.5), EDUCATION, rng, n)


def _employed(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _chance(
        np.where(p["age"] < 65, 1.2, -3.0) + 0.4 * _rank(p["education"], EDUCATION), rng, n
    )


def _income(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _normal(
        14 + 13 * _rank(p["education"], EDUCATION) + 22 * p["employed"], 7, 0, 120, 2, rng, n
    )


def _insured(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _chance((p["income"] - 32) / 9, rng, n)


def _smoker(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _chance(
        0.3 + 0.8 * (p["sex"] == "male") - 1.1 * _rank(p["education"], EDUCATION), rng, n
    )


def _exercise(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _ordered(1.4 - (p["age"] - 45) / 14, (0.0, 2.2), EXERCISE, rng, n)


def _diet(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _ordered((p["income"] - 40) / 11, (-1.0, 1.2), DIET, rng, n)


def _stress(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _ordered(1.5 * p["employed"] - (p["income"] - 40) / 25, (0.0, 1.8), STRESS, rng, n)


def _sleep(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _normal(8 - 0.9 * _rank(p["stress"], STRESS), 0.7, 3, 11, 1, rng, n)


def _bmi(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _normal(
        33 - 2.6 * _rank(p["exercise"], EXERCISE) - 2.4 * _rank(p["diet"], DIET),
        2.5,
        15,
        50,
        1,
        rng,
        n,
    )


def _pressure(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _normal(
        112 + 2.2 * (p["bmi"] - 27) + 0.5 * (p["age"] - 45), 8, 80, 200, 0, rng, n
    ).astype(np.int64)


def _cholesterol(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    level = _normal(5.6 - 0.9 * _rank(p["diet"], DIET), 0.6, 2, 10, 2, rng, n)
    return np.where(
        rng.random(n) < np.where(p["insured"], 0.1, 0.55), np.nan, level
    )  # the uninsured are seldom measured


def _diabetes(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _chance(-2.2 + (p["bmi"] - 27) / 2.2, rng, n)


def _visits(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    none = _chance(np.where(p["insured"], -1.5, 1.2), rng, n)
    return np.where(none, 0, np.minimum(1 + rng.poisson(1.5 + 5 * p["diabetes"], n), 40)).astype(
        np.int64
    )


def _medication(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _ordered(
        3 * p["diabetes"] + (p["pressure"] - 125) / 8,
        (0.5, 3.5),
        ("none", "one", "several"),
        rng,
        n,
    )


def _cost(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    spent = p["visits"] * 90 * np.exp(0.3 * rng.standard_normal(n))
    cost: Values = np.minimum(spent, 6000).round(2)
    return cost


def _enrolled(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    """Days from 2015 to 2024; older people joined earlier."""
    days = _normal(2100 - 25 * (p["age"] - 45), 500, 0, 3652, 0, rng, n).astype(np.int64)
    instants: Values = np.datetime64("2015-01-01", "s") + days.astype("timedelta64[D]")
    return instants


def _outcome(p: Mapping[str, Values], rng: np.random.Generator, n: int) -> Values:
    return _ordered(
        1.8 * p["smoker"] + 2.4 * p["diabetes"] - 0.2,
        (0.0, 1.8),
        ("better", "same", "worse"),
        rng,
        n,
    )


STRUCTURE: Mapping[str, Structure] = {
    "region": Structure((), _region),
    "urban": Structure(("region",), _urban),
    "age": Structure((), _age),
    "sex": Structure((), _sex),
    "education": Structure(("urban", "age"), _education),
    "employed": Structure(("age", "education"), _employed),
    "income": Structure(("education", "employed"), _income),
    "insured": Structure(("income",), _insured),
    "smoker": Structure(("sex", "education"), _smoker),
    "exercise": Structure(("age",), _exercise),
    "diet": Structure(("income",), _diet),
    "stress": Structure(("employed", "income"), _stress),
    "sleep": Structure(("stress",), _sleep),
    "bmi": Structure(("exercise", "diet"), _bmi),
    "pressure": Structure(("bmi", "age"), _pressure),
    "cholesterol": Structure(("diet", "insured"), _cholesterol),
    "diabetes": Structure(("bmi",), _diabetes),
    "visits": Structure(("insured", "diabetes"), _visits),
    "medication": Structure(("diabetes", "pressure"), _medication),
    "cost": Structure(("visits",), _cost),
    "enrolled": Structure(("age",), _enrolled),
    "outcome": Structure(("smoker", "diabetes"), _outcome),
}

EDGES: tuple[tuple[str, str], ...] = tuple(
    (parent, name) for name, equation in STRUCTURE.items() for parent in equation.parents
)
