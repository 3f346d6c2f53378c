"""Populations of known law for `benchmarks.inference`, questions about them, and true answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.kinds.bins import level_of
from synthdp.spec.expressions.query import Query
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

Floats = npt.NDArray[np.float64]
Values = dict[str, Floats]
"""Columns of a table: numbers, positions of categories, NaN where missing."""
Columns = Mapping[str, dict[str, Any]]


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


def _clinic(rng: np.random.Generator, n: int) -> Values:
    """Skewed counts, an interaction, values that are missing by age, a region of 1%."""
    age = np.clip(np.round(rng.normal(50, 17, n)), 18, 90)
    sex = (rng.random(n) < 0.5).astype(float)
    region = rng.choice(5, n, p=[0.5, 0.3, 0.16, 0.03, 0.01]).astype(float)
    smoker = (rng.random(n) < _sigmoid(0.2 - 0.02 * (age - 40) + 0.4 * sex)).astype(float)
    rate = np.exp(0.3 + 0.012 * (age - 50) + 0.5 * smoker * (1 - sex) + 0.3 * (region == 3))
    visits = np.minimum(rng.poisson(rate * rng.gamma(1.5, 1 / 1.5, n)), 30).astype(float)
    return {
        "age": age,
        "sex": sex,
        "region": region,
        "smoker": _lacking(rng, smoker, 0.05 + 0.002 * (age - 18)),
        "visits": _lacking(rng, visits, 0.1),
    }


def _work(rng: np.random.Generator, n: int) -> Values:
    """Real numbers with a long tail and a heap at nothing, and confounding by education."""
    education = rng.choice(6, n, p=[0.05, 0.15, 0.35, 0.25, 0.15, 0.05]).astype(float)
    job = _drawn(rng, -0.25 * np.abs(np.arange(8) - 1.3 * education[:, None]))
    union = (rng.random(n) < _sigmoid(-1 + 0.3 * job - 0.2 * education)).astype(float)
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


def _exposure(rng: np.random.Generator, n: int) -> Values:
    """A rare exposure, confounded, with an effect that differs by stratum."""
    stratum = rng.choice(4, n, p=[0.6, 0.25, 0.12, 0.03]).astype(float)
    frail = (rng.random(n) < 0.1 + 0.1 * stratum).astype(float)
    exposed = (rng.random(n) < _sigmoid(-4 + 0.8 * frail + 0.4 * stratum)).astype(float)
    ill = (rng.random(n) < _sigmoid(-2 + 1.2 * exposed * (stratum < 2) + frail)).astype(float)
    stay = np.minimum(rng.geometric(0.35 - 0.1 * ill, n) - 1, 14).astype(float)
    return {
        "stratum": stratum,
        "frail": frail,
        "exposed": _lacking(rng, exposed, 0.03),
        "ill": _lacking(rng, ill, 0.05 + 0.1 * frail),
        "stay": stay,
    }


SPANNED = 0.15
"""Part of the questions that are about three columns."""

MODELS: Mapping[str, tuple[Callable[[np.random.Generator, int], Values], Columns]] = {
    "clinic": (
        _clinic,
        {
            "age": _whole(18, 90, bins=73),
            "sex": _categories(2),
            "region": _categories(5),
            "smoker": _categories(2, missing=True),
            "visits": _whole(0, 30, bins=31, missing=True),
        },
    ),
    "work": (
        _work,
        {
            "education": _categories(6),
            "job": _categories(8),
            "union": _categories(2),
            "hours": _whole(0, 80, bins=81),
            "income": _real(0, 250, bins=24, spikes=[0], missing=True),
        },
    ),
    "exposure": (
        _exposure,
        {
            "stratum": _categories(4),
            "frail": _categories(2),
            "exposed": _categories(2, missing=True),
            "ill": _categories(2, missing=True),
            "stay": _whole(0, 14, bins=15),
        },
    ),
}


def spec_of(model: str, tables: str, *, rows: int, epsilon: float, holdout: float) -> ReleaseSpec:
    """A spec whose `tables` are: `pairs`, all of them at once; `predict`, chosen in two rounds."""
    columns = {name: dict(column) for name, column in MODELS[model][1].items()}
    rest: dict[str, Any] = {"graph": {"mode": "none"}}
    privacy: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-5}
    if tables == "predict":
        rest = {"graph": {"mode": "predict"}}
        for column in columns.values():
            column.pop("bins", None)  # fine levels, and groups of them for pairs
            column.pop("spikes", None)
    else:
        privacy["shares"] = {"measure": 0.3, "pairs": 0.65, "train": 0.05}
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


def random_query(rng: np.random.Generator, spec: ReleaseSpec, values: Values) -> str:
    """A question about one or two columns; conditions cut levels as they please.

    Some are about three columns, of which two pairs are enough for an answer.
    """
    names = list(spec.columns)
    if rng.random() < SPANNED:
        a, b, c = (_condition(rng, spec, values, str(n)) for n in rng.permutation(names)[:3])
        return f"{rng.choice(['share', 'count'])}(({a} and {b}) or (not {a} and {c}))"
    a, b = rng.permutation(names)[:2]
    numeric = [name for name in names if spec.columns[name].operand == "number"]
    kind = rng.choice(["share", "count", "mean", "quantile"], p=[0.4, 0.2, 0.25, 0.15])
    if kind in ("mean", "quantile"):
        a = rng.choice(numeric)
        b = rng.choice([name for name in names if name != a])
    head = {
        "mean": f"mean({_name(a)})",
        "quantile": f"quantile({_name(a)}, {rng.choice([0.1, 0.25, 0.5, 0.75, 0.9])})",
    }.get(kind) or f"{kind}({_condition(rng, spec, values, a)})"
    form = rng.choice(["alone", "where", "by"], p=[0.25, 0.4, 0.35])
    if form == "by" and spec.columns[b].operand == "text":
        return f"{head} by {_name(b)}"
    return head if form == "alone" else f"{head} where {_condition(rng, spec, values, b)}"


def _name(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _condition(rng: np.random.Generator, spec: ReleaseSpec, values: Values, name: str) -> str:
    column = spec.columns[name]
    if column.operand == "text":
        most = min(2, len(column.labels) - 1)  # all categories together are no question
        few = rng.choice(column.labels, int(rng.integers(1, most + 1)), replace=False)
        return f"{_name(name)} in ({', '.join(repr(str(v)) for v in few)},)"
    known = values[name][~np.isnan(values[name])]
    at = float(rng.choice(known[:10_000]))
    return f"{_name(name)} {rng.choice(['>=', '<=', '>', '<'])} {at:g}"


def true_figures(query: Query, spec: ReleaseSpec, values: Values) -> list[tuple[float, float, int]]:
    """The answer for a whole table, its standard deviation as an estimate, and its rows, by group.

    The deviation is that of a share or mean of so many rows; NaN for other statistics.
    """
    rows = len(next(iter(values.values())))
    whole = np.ones(rows, bool)
    true, false = query.condition.truth(values) if query.condition else (whole, ~whole)
    if query.column is not None:
        true, false = ~np.isnan(values[query.column]), ~whole
    inside = query.where.truth(values)[0] if query.where else whole
    if query.by is None:
        groups = [whole]
    else:
        column = spec.columns[query.by]
        groups = [values[query.by] == level for level in range(len(column.labels))]
        groups += [np.isnan(values[query.by])] * column.missing
    return [_figure(query, values, inside & g & true, inside & g & false) for g in groups]


def _figure(
    query: Query, values: Values, one: npt.NDArray[np.bool_], zero: npt.NDArray[np.bool_]
) -> tuple[float, float, int]:
    ones, rows = int(one.sum()), int(one.sum() + zero.sum())
    if query.statistic == "count":
        return float(ones), np.nan, ones
    if rows == 0:
        return np.nan, np.nan, 0
    if query.statistic == "share":
        p = ones / rows
        return p, float(np.sqrt(p * (1 - p) / rows)), rows
    numbers = values[query.column or ""][one]
    if query.statistic == "mean":
        return float(numbers.mean()), float(numbers.std() / np.sqrt(rows)), rows
    return float(np.quantile(numbers, query.p, method="inverted_cdf")), np.nan, rows
