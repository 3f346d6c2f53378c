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


def frame(*, rows: int = 1000) -> pd.DataFrame:
    """The table, `rows` rows in the order of `STRUCTURE`; the same rows at every call."""
    seeds = np.random.SeedSequence(20261121).spawn(len(STRUCTURE))
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


Score = Callable[[Parents], Floats | float]


def _flag(parents: str, score: Score) -> Structure:
    """True with probability logistic(score)."""
    return Structure(tuple(parents.split()), lambda p, rng, n: _chance(score(p), rng, n))


def _chance(score: Floats | float, rng: np.random.Generator, n: int) -> Values:
    happened: Values = rng.random(n) < 1 / (1 + np.exp(-np.asarray(score)))
    return happened


def _ordered(parents: str, labels: Sequence[str], cuts: Sequence[float], score: Score) -> Structure:
    """An ordered logit: `labels` by how many of `cuts` the score with logistic noise has passed."""

    def draw(p: Parents, rng: np.random.Generator, n: int) -> Values:
        passed = np.searchsorted(np.asarray(cuts), score(p) + rng.logistic(size=n))
        return np.asarray(labels, dtype=object)[passed]

    return Structure(tuple(parents.split()), draw)


def _normal(
    parents: str,
    mean: Score,
    spread: float,
    *,
    to: tuple[float, float],
    decimals: int = 0,
    then: Callable[[Values, Parents, np.random.Generator], Values] = lambda values, p, rng: values,
) -> Structure:
    """Normal values cut to the range `to`, and what is made of them."""

    def draw(p: Parents, rng: np.random.Generator, n: int) -> Values:
        drawn = np.clip(mean(p) + spread * rng.standard_normal(n), *to).round(decimals)
        return then(drawn, p, rng)

    return Structure(tuple(parents.split()), draw)


def _rank(values: Values, labels: Sequence[str]) -> Floats:
    return np.asarray(list(map(labels.index, values)), dtype=np.float64)


def _measured(levels: Values, p: Parents, rng: np.random.Generator) -> Values:
    """Levels of which some are missing: the uninsured are seldom measured."""
    unmeasured = np.where(p["insured"], 0.1, 0.55)
    return np.where(rng.random(len(levels)) < unmeasured, np.nan, levels)


def _since_2015(days: Values, p: Parents, rng: np.random.Generator) -> Values:
    whole = days.astype(np.int64).astype("timedelta64[D]")
    instants: Values = np.datetime64("2015-01-01", "s") + whole
    return instants


def _visits(p: Parents, rng: np.random.Generator, n: int) -> Values:
    none = _chance(np.where(p["insured"], -1.5, 1.2), rng, n)
    some = np.minimum(1 + rng.poisson(1.5 + 5 * p["diabetes"], n), 40)
    return np.where(none, 0, some).astype(np.int64)


STRUCTURE: Mapping[str, Structure] = {  # causes before effects
    "region": Structure(
        (),
        lambda p, rng, n: rng.choice(np.asarray(REGIONS, object), n, p=[0.4, 0.25, 0.2, 0.15]),
    ),
    "urban": _flag("region", lambda p: np.where(p["region"] == "north", 1.5, -0.7)),
    "age": Structure(
        (), lambda p, rng, n: (18 + np.floor(73 * rng.beta(1.6, 2.2, n))).astype(np.int64)
    ),
    "sex": Structure(
        (), lambda p, rng, n: np.where(rng.random(n) < 0.52, "female", "male").astype(object)
    ),
    "education": _ordered(
        "urban age", EDUCATION, (-1.0, 1.0, 2.5), lambda p: 1.6 * p["urban"] - (p["age"] - 45) / 20
    ),
    "employed": _flag(
        "age education",
        lambda p: np.where(p["age"] < 65, 1.2, -3.0) + 0.4 * _rank(p["education"], EDUCATION),
    ),
    "income": _normal(
        "education employed",
        lambda p: 14 + 13 * _rank(p["education"], EDUCATION) + 22 * p["employed"],
        7, to=(0, 120), decimals=2,
    ),
    "insured": _flag("income", lambda p: (p["income"] - 32) / 9),
    "smoker": _flag(
        "sex education",
        lambda p: 0.3 + 0.8 * (p["sex"] == "male") - 1.1 * _rank(p["education"], EDUCATION),
    ),
    "exercise": _ordered("age", EXERCISE, (0.0, 2.2), lambda p: 1.4 - (p["age"] - 45) / 14),
    "diet": _ordered("income", DIET, (-1.0, 1.2), lambda p: (p["income"] - 40) / 11),
    "stress": _ordered(
        "employed income", STRESS, (0.0, 1.8),
        lambda p: 1.5 * p["employed"] - (p["income"] - 40) / 25,
    ),
    "sleep": _normal(
        "stress", lambda p: 8 - 0.9 * _rank(p["stress"], STRESS), 0.7, to=(3, 11), decimals=1
    ),
    "bmi": _normal(
        "exercise diet",
        lambda p: 33 - 2.6 * _rank(p["exercise"], EXERCISE) - 2.4 * _rank(p["diet"], DIET),
        2.5, to=(15, 50), decimals=1,
    ),
    "pressure": _normal(
        "bmi age", lambda p: 112 + 2.2 * (p["bmi"] - 27) + 0.5 * (p["age"] - 45), 8, to=(80, 200),
        then=lambda values, p, rng: values.astype(np.int64),
    ),
    "cholesterol": _normal(
        "diet insured", lambda p: 5.6 - 0.9 * _rank(p["diet"], DIET), 0.6, to=(2, 10), decimals=2,
        then=_measured,
    ),
    "diabetes": _flag("bmi", lambda p: -2.2 + (p["bmi"] - 27) / 2.2),
    "visits": Structure(("insured", "diabetes"), _visits),
    "medication": _ordered(
        "diabetes pressure", MEDICATION, (0.5, 3.5),
        lambda p: 3 * p["diabetes"] + (p["pressure"] - 125) / 8,
    ),
    "cost": Structure(
        ("visits",),
        lambda p, rng, n: np.minimum(
            p["visits"] * 90 * np.exp(0.3 * rng.standard_normal(n)), 6000
        ).round(2),
    ),
    "enrolled": _normal(  # older people joined earlier
        "age", lambda p: 2100 - 25 * (p["age"] - 45), 500, to=(0, 3652), then=_since_2015
    ),
    "outcome": _ordered(
        "smoker diabetes", OUTCOMES, (0.0, 1.8),
        lambda p: 1.8 * p["smoker"] + 2.4 * p["diabetes"] - 0.2,
    ),
}  # fmt: skip
