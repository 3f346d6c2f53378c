"""Populations of known law for `benchmarks.inference`: six causal models, and their specs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.kinds.ranges import level_of
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.rules import LEFT_OUT

Floats = npt.NDArray[np.float64]
Values = dict[str, Floats]
"""Columns of a table: numbers, positions of categories, NaN where missing."""
Columns = Mapping[str, dict[str, Any]]
Draw = Callable[[np.random.Generator, int, float | None], Values]
"""A table of so many rows; the treatment is set for all of them where a number is given."""


def _whole(lower: int, upper: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "lower": lower, "upper": upper, **more}


def _real(lower: float, upper: float, **more: Any) -> dict[str, Any]:
    return {"type": "number", "lower": lower, "upper": upper, "decimals": 1, **more}


def _categories(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "categorical", "categories": [f"c{i}" for i in range(count)], **more}


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _drawn(rng: np.random.Generator, scores: Floats) -> Floats:
    """A category of each row by its scores `[rows, categories]`: Gumbel's trick."""
    best: Floats = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1).astype(np.float64)
    return best


def _lacking(rng: np.random.Generator, values: Floats, share: Floats | float) -> Floats:
    return np.where(rng.random(len(values)) < share, np.nan, values)


def _set(treatment: float | None, drawn: Floats) -> Floats:
    """The treatment as drawn, or as an intervention sets it."""
    return drawn if treatment is None else np.full(len(drawn), treatment)


def _coins(rng: np.random.Generator, chance: Floats | float, n: int) -> Floats:
    return (rng.random(n) < chance).astype(float)


def _clinic(rng: np.random.Generator, n: int, treatment: float | None) -> Values:
    """Skewed counts, an interaction, values that are missing by age, a region of 1%."""
    age = np.clip(np.round(rng.normal(50, 17, n)), 18, 90)
    sex = _coins(rng, 0.5, n)
    region = rng.choice(5, n, p=[0.5, 0.3, 0.16, 0.03, 0.01]).astype(float)
    smoker = _set(treatment, _coins(rng, _sigmoid(0.8 * sex - 0.4), n))
    rate = np.exp(0.3 + 0.012 * (age - 50) + 0.5 * smoker * (1 - sex) + 0.3 * (region == 3))
    visits = np.minimum(rng.poisson(rate * rng.gamma(1.5, 1 / 1.5, n)), 30).astype(float)
    return {
        "age": age,
        "sex": sex,
        "region": region,
        "smoker": _lacking(rng, smoker, 0.05 + 0.002 * (age - 18)),
        "visits": _lacking(rng, visits, 0.1),
    }


def _work(rng: np.random.Generator, n: int, treatment: float | None) -> Values:
    """Real numbers with a long tail and a heap at nothing, and confounding by education."""
    education = rng.choice(6, n, p=[0.05, 0.15, 0.35, 0.25, 0.15, 0.05]).astype(float)
    job = _drawn(rng, -0.25 * np.abs(np.arange(8) - 1.3 * education[:, None]))
    union = _set(treatment, _coins(rng, _sigmoid(-1 + 0.3 * job - 0.2 * education), n))
    hours = np.clip(np.round(rng.normal(38 + education - 3 * union, 9, n)), 0, 80)
    income = np.exp(rng.normal(2.6 + 0.22 * education + 0.1 * union, 0.6, n))
    income = np.where(rng.random(n) < 0.12, 0.0, np.clip(np.round(income, 1), 0, 250))
    return {
        "education": education,
        "job": job,
        "union": union,
        "hours": hours,
        "income": _lacking(rng, income, 0.05 + 0.05 * union),
    }


def _exposure(rng: np.random.Generator, n: int, treatment: float | None) -> Values:
    """A rare exposure, confounded, with an effect that differs by stratum."""
    stratum = rng.choice(4, n, p=[0.6, 0.25, 0.12, 0.03]).astype(float)
    frail = _coins(rng, 0.1 + 0.1 * stratum, n)
    exposed = _set(treatment, _coins(rng, _sigmoid(-4 + 0.8 * frail + 0.4 * stratum), n))
    ill = _coins(rng, _sigmoid(-2 + 1.2 * exposed * (stratum < 2) + frail), n)
    stay = np.minimum(rng.geometric(0.35 - 0.1 * ill, n) - 1, 14).astype(float)
    return {
        "stratum": stratum,
        "frail": frail,
        "exposed": _lacking(rng, exposed, 0.03),
        "ill": _lacking(rng, ill, 0.05 + 0.1 * frail),
        "stay": stay,
    }


def _school(rng: np.random.Generator, n: int, treatment: float | None) -> Values:
    """An outcome of four grades, whose treatment helps some backgrounds and harms others."""
    background = rng.choice(3, n, p=[0.3, 0.45, 0.25]).astype(float)
    language = rng.choice(4, n, p=[0.7, 0.2, 0.08, 0.02]).astype(float)
    programme = _set(treatment, _coins(rng, _sigmoid(0.6 - 0.7 * background), n))
    skill = 0.7 * background - 0.3 * (language > 0) + programme * (0.8 - 0.6 * background)
    grade = np.clip(np.floor(rng.normal(1.4 + skill, 1.0)), 0, 3)
    absent = np.minimum(rng.negative_binomial(1.5, 0.2 + 0.1 * (grade >= 2), n), 60).astype(float)
    return {
        "background": background,
        "language": language,
        "programme": programme,
        "grade": _lacking(rng, grade, 0.25 - 0.08 * background),
        "absent": absent,
    }


def _wards(rng: np.random.Generator, n: int, treatment: float | None) -> Values:
    """Ten wards, the rarest of 0.4%, that choose the drug and bear on the outcome."""
    shares = 1.0 / np.arange(1, 11) ** 2
    ward = rng.choice(10, n, p=shares / shares.sum()).astype(float)
    severe = rng.choice(3, n, p=[0.6, 0.3, 0.1]).astype(float)
    drug = _set(treatment, _coins(rng, _sigmoid(0.15 * ward - 0.8), n))
    risk = _sigmoid(-2 + 0.7 * severe + 0.1 * ward - 0.4 * drug)
    died = _coins(rng, risk, n)
    days = np.round(np.clip(rng.gamma(1.2, 4 + severe + 0.3 * ward - drug), 0, 60), 1)
    return {
        "ward": ward,
        "severe": severe,
        "drug": drug,
        "died": died,
        "days": _lacking(rng, np.where(died == 1, 0.0, days), 0.05),
    }


def _latent(rng: np.random.Generator, n: int, treatment: float | None) -> Values:
    """An unseen cause of dose and relapse: the dose's effect is not identified, therapy's is."""
    unseen, severe = rng.normal(size=n), rng.choice(3, n, p=[0.5, 0.35, 0.15]).astype(float)
    dose = np.clip(np.round(1.5 + 0.8 * unseen + rng.normal(0, 0.7, n)), 0, 3)
    therapy = _set(treatment, _coins(rng, _sigmoid(0.5 * severe - 0.3), n))
    relapse = _coins(rng, _sigmoid(-1 + 0.8 * unseen - 0.2 * dose - 0.6 * therapy + severe), n)
    score = np.clip(np.round(rng.normal(60 - 10 * relapse - 5 * unseen, 12, n)), 0, 100)
    return {
        "severe": severe,
        "dose": dose,
        "therapy": therapy,
        "relapse": relapse,
        "score": _lacking(rng, score, 0.08),
    }


@dataclass(frozen=True)
class CausalModel:
    """How rows are drawn, their columns, and an effect: on `outcome`, adjusted for `adjust`.

    The treatment is a column of two levels, of which the second is the treatment.
    """

    draw: Draw
    columns: Columns
    treatment: str
    outcome: str
    adjust: tuple[str, ...]
    clip: tuple[float, float] | None = None

    @property
    def effect(self) -> dict[str, Any]:
        """The effect as an estimand of a spec."""
        return {
            "kind": "effect",
            "treated": f"{self.treatment} == 'c1'",
            "control": f"{self.treatment} == 'c0'",
            "outcome": self.outcome,
            "adjust": list(self.adjust),
            "clip": self.clip,
        }


MODELS: Mapping[str, CausalModel] = {
    "clinic": CausalModel(
        _clinic,
        {
            "age": _whole(18, 90, bins=73),
            "sex": _categories(2),
            "region": _categories(5),
            "smoker": _categories(2, missing=True),
            "visits": _whole(0, 30, bins=31, missing=True),
        },
        "smoker",
        "visits",
        ("sex",),
        (0, 10),
    ),
    "work": CausalModel(
        _work,
        {
            "education": _categories(6),
            "job": _categories(8),
            "union": _categories(2),
            "hours": _whole(0, 80, bins=81),
            "income": _real(0, 250, bins=24, spikes=[0], missing=True),
        },
        "union",
        "hours",
        ("education",),
        (10, 70),
    ),
    "exposure": CausalModel(
        _exposure,
        {
            "stratum": _categories(4),
            "frail": _categories(2),
            "exposed": _categories(2, missing=True),
            "ill": _categories(2, missing=True),
            "stay": _whole(0, 14, bins=15),
        },
        "exposed",
        "ill",
        ("stratum", "frail"),
    ),
    "school": CausalModel(
        _school,
        {
            "background": _categories(3),
            "language": _categories(4),
            "programme": _categories(2),
            "grade": _categories(4, missing=True) | {"type": "ordinal"},
            "absent": _whole(0, 60, bins=61),
        },
        "programme",
        "grade",
        ("background",),
    ),
    "wards": CausalModel(
        _wards,
        {
            "ward": _categories(10),
            "severe": _categories(3),
            "drug": _categories(2),
            "died": _categories(2),
            "days": _real(0, 60, bins=20, spikes=[0], missing=True),
        },
        "drug",
        "died",
        ("ward",),
    ),
    "latent": CausalModel(
        _latent,
        {
            "severe": _categories(3),
            "dose": _whole(0, 3, bins=4),
            "therapy": _categories(2),
            "relapse": _categories(2),
            "score": _whole(0, 100, bins=20, missing=True),
        },
        "therapy",
        "relapse",
        ("severe",),
    ),
}


def spec_of(model: str, tables: str, *, rows: int, epsilon: float, holdout: float) -> ReleaseSpec:
    """A spec of one model.

    Its `tables` are all pairs, measured at once (`pairs`), the same and the model's effect
    (`effect`), or those that mode predict chooses in two rounds (`predict`).
    """
    columns = {name: dict(column) for name, column in MODELS[model].columns.items()}
    rest: dict[str, Any] = {"graph": {"mode": "none"}}
    privacy: dict[str, Any] = {"epsilon": epsilon, "delta": min(1e-5, 0.1 / rows)}
    shares = {"measure": 0.3, "pairs": 0.65, "train": 0.05}
    if tables == "predict":
        rest = {"graph": {"mode": "predict"}}
        for column in columns.values():
            column.pop("bins", None)  # fine levels, and groups of them for pairs
            column.pop("spikes", None)
    elif tables == "pairs":
        privacy["shares"] = shares
    else:
        kept = {name: (1 - LEFT_OUT.estimands) * part for name, part in shares.items()}
        privacy["shares"] = {**kept, "estimands": LEFT_OUT.estimands}
        rest["estimands"] = [MODELS[model].effect]
    dataset = {
        "id": model,
        "source": {"kind": "csv", "path": "values.csv"},
        "privacy_unit": {"kind": "row", "meaning": "one person"},
        "rows": {"kind": "public", "value": rows},
    }
    stated = {
        "synthdp": 1,
        "dataset": dataset,
        "columns": columns,
        "privacy": privacy,
        "evaluation": {"holdout": holdout},
        **rest,
    }
    return parse_spec(json.dumps(stated), path=model)


def levels(domain: Domain, values: Values) -> npt.NDArray[np.uint16]:
    """Levels `[rows, columns]` of a table of numbers."""
    return np.column_stack([_levels(c, values[c.name]) for c in domain.columns]).astype(np.uint16)


def _levels(column: ColumnDomain, numbers: Floats) -> Floats:
    missing = np.isnan(numbers)
    known = np.where(missing, column.lower, numbers)
    found = level_of(column, known) if column.ranged else known.astype(np.intp)
    return np.where(missing, column.levels - 1, found).astype(np.float64)
