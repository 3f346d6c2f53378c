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
Parents = Mapping[str, Values]
Draw = Callable[[Parents, np.random.Generator, int], Values]

EDUCATION = ("primary", "secondary", "bachelor", "master")
EXERCISE = ("none", "some", "regular")
DIET = ("poor", "fair", "good")
STRESS = ("low", "medium", "high")
MEDICATION = ("none", "one", "several")
OUTCOMES = ("better", "same", "worse")
REGIONS = ("north", "east", "south", "west")


@dataclass(frozen=True)
class Structure:
    """An equation: `draw` makes a column of its parents, its noise and the number of rows."""

    parents: tuple[str, ...]
    draw: Draw


def frame(*, rows: int = ROWS) -> pd.DataFrame:
    """The table, `rows` rows in the order of `STRUCTURE`; the same rows at every call."""
    seeds = np.random.SeedSequence(SEED).spawn(len(STRUCTURE))
    values: dict[str, Values] = {}
    for (name, equation), seed in zip(STRUCTURE.items(), seeds, strict=True):
        parents = {p: values[p] for p in equation.parents}
        values[name] = equation.draw(parents, np.random.default_rng(seed), rows)
    return pd.DataFrame(values)


def graph() -> Graph:
    """The parents of each column, as its equation has them."""
    known = ((name, e.parents) for name, e in STRUCTURE.items() if e.parents)
    edges = tuple(Edge(causes=parents, effects=(name,)) for name, parents in known)
    return Graph(mode="given", edges=edges)


def _chance(score: Floats | float, rng: np.random.Generator, n: int) -> Values:
    """True with probability logistic(score)."""
    happened: Values = rng.random(n) < 1 / (1 + np.exp(-np.asarray(score)))
    return happened


def _ordered(
    score: Floats, cuts: Sequence[float], labels: Sequence[str], rng: np.random.Generator, n: int
) -> Values:
    """An ordered logit: `labels` by how many of `cuts` the score with logistic noise has passed."""
    passed = np.searchsorted(np.asarray(cuts), score + rng.logistic(size=n))
    return np.asarray(labels, dtype=object)[passed]


def _rank(values: Values, labels: Sequence[str]) -> Floats:
    return np.asarray([labels.index(v) for v in values], dtype=np.float64)


def _normal(
    mean: Floats | float,
    spread: float,
    rng: np.random.Generator,
    n: int,
    *,
    to: tuple[float, float],
    decimals: int = 0,
) -> Floats:
    """Normal values cut to the range `to`."""
    return np.clip(mean + spread * rng.standard_normal(n), *to).round(decimals)


def _cholesterol(p: Parents, rng: np.random.Generator, n: int) -> Values:
    level = _normal(5.6 - 0.9 * _rank(p["diet"], DIET), 0.6, rng, n, to=(2, 10), decimals=2)
    unmeasured = np.where(p["insured"], 0.1, 0.55)  # the uninsured are seldom measured
    return np.where(rng.random(n) < unmeasured, np.nan, level)


def _visits(p: Parents, rng: np.random.Generator, n: int) -> Values:
    none = _chance(np.where(p["insured"], -1.5, 1.2), rng, n)
    some = np.minimum(1 + rng.poisson(1.5 + 5 * p["diabetes"], n), 40)
    return np.where(none, 0, some).astype(np.int64)


def _enrolled(p: Parents, rng: np.random.Generator, n: int) -> Values:
    """Days from 2015 to 2024; older people joined earlier."""
    days = _normal(2100 - 25 * (p["age"] - 45), 500, rng, n, to=(0, 3652)).astype(np.int64)
    instants: Values = np.datetime64("2015-01-01", "s") + days.astype("timedelta64[D]")
    return instants


STRUCTURE: Mapping[str, Structure] = {  # causes before effects
    "region": Structure(
        (),
        lambda p, rng, n: rng.choice(
            np.asarray(REGIONS, dtype=object), n, p=[0.4, 0.25, 0.2, 0.15]
        ),
    ),
    "urban": Structure(
        ("region",),
        lambda p, rng, n: _chance(np.where(p["region"] == "north", 1.5, -0.7), rng, n),
    ),
    "age": Structure(
        (), lambda p, rng, n: (18 + np.floor(73 * rng.beta(1.6, 2.2, n))).astype(np.int64)
    ),
    "sex": Structure(
        (), lambda p, rng, n: np.where(rng.random(n) < 0.52, "female", "male").astype(object)
    ),
    "education": Structure(
        ("urban", "age"),
        lambda p, rng, n: _ordered(
            1.6 * p["urban"] - (p["age"] - 45) / 20, (-1.0, 1.0, 2.5), EDUCATION, rng, n
        ),
    ),
    "employed": Structure(
        ("age", "education"),
        lambda p, rng, n: _chance(
            np.where(p["age"] < 65, 1.2, -3.0) + 0.4 * _rank(p["education"], EDUCATION), rng, n
        ),
    ),
    "income": Structure(
        ("education", "employed"),
        lambda p, rng, n: _normal(
            14 + 13 * _rank(p["education"], EDUCATION) + 22 * p["employed"],
            7,
            rng,
            n,
            to=(0, 120),
            decimals=2,
        ),
    ),
    "insured": Structure(("income",), lambda p, rng, n: _chance((p["income"] - 32) / 9, rng, n)),
    "smoker": Structure(
        ("sex", "education"),
        lambda p, rng, n: _chance(
            0.3 + 0.8 * (p["sex"] == "male") - 1.1 * _rank(p["education"], EDUCATION), rng, n
        ),
    ),
    "exercise": Structure(
        ("age",),
        lambda p, rng, n: _ordered(1.4 - (p["age"] - 45) / 14, (0.0, 2.2), EXERCISE, rng, n),
    ),
    "diet": Structure(
        ("income",), lambda p, rng, n: _ordered((p["income"] - 40) / 11, (-1.0, 1.2), DIET, rng, n)
    ),
    "stress": Structure(
        ("employed", "income"),
        lambda p, rng, n: _ordered(
            1.5 * p["employed"] - (p["income"] - 40) / 25, (0.0, 1.8), STRESS, rng, n
        ),
    ),
    "sleep": Structure(
        ("stress",),
        lambda p, rng, n: _normal(
            8 - 0.9 * _rank(p["stress"], STRESS), 0.7, rng, n, to=(3, 11), decimals=1
        ),
    ),
    "bmi": Structure(
        ("exercise", "diet"),
        lambda p, rng, n: _normal(
            33 - 2.6 * _rank(p["exercise"], EXERCISE) - 2.4 * _rank(p["diet"], DIET),
            2.5,
            rng,
            n,
            to=(15, 50),
            decimals=1,
        ),
    ),
    "pressure": Structure(
        ("bmi", "age"),
        lambda p, rng, n: _normal(
            112 + 2.2 * (p["bmi"] - 27) + 0.5 * (p["age"] - 45), 8, rng, n, to=(80, 200)
        ).astype(np.int64),
    ),
    "cholesterol": Structure(("diet", "insured"), _cholesterol),
    "diabetes": Structure(
        ("bmi",), lambda p, rng, n: _chance(-2.2 + (p["bmi"] - 27) / 2.2, rng, n)
    ),
    "visits": Structure(("insured", "diabetes"), _visits),
    "medication": Structure(
        ("diabetes", "pressure"),
        lambda p, rng, n: _ordered(
            3 * p["diabetes"] + (p["pressure"] - 125) / 8, (0.5, 3.5), MEDICATION, rng, n
        ),
    ),
    "cost": Structure(
        ("visits",),
        lambda p, rng, n: np.minimum(
            p["visits"] * 90 * np.exp(0.3 * rng.standard_normal(n)), 6000
        ).round(2),
    ),
    "enrolled": Structure(("age",), _enrolled),
    "outcome": Structure(
        ("smoker", "diabetes"),
        lambda p, rng, n: _ordered(
            1.8 * p["smoker"] + 2.4 * p["diabetes"] - 0.2, (0.0, 1.8), OUTCOMES, rng, n
        ),
    ),
}

EDGES: tuple[tuple[str, str], ...] = tuple(
    (parent, name) for name, equation in STRUCTURE.items() for parent in equation.parents
)
