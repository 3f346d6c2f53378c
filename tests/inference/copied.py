"""A population of known law, releases of all its pairs, and analyses of tables of counts."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import t

from synthdp.data import Domain
from synthdp.inference import Blocks, LeastSquares, Posterior, joined, measured, pooled
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import parse_spec
from synthdp.spec.model import ReleaseSpec
from tests.inference.conftest import stated

NAMES = ("c", "g", "t", "y", "v")
SHAPE = (4, 3, 2, 2, 5)
SIGMA = 20.0
COLUMNS: dict[str, dict[str, Any]] = {
    "c": {"type": "categorical", "categories": ["c0", "c1", "c2", "c3"]},
    "g": {"type": "categorical", "categories": ["g0", "g1", "g2"]},
    "t": {"type": "boolean", "false": "no", "true": "yes"},
    "y": {"type": "boolean", "false": "no", "true": "yes"},
    "v": {"type": "integer", "lower": 0, "upper": 4, "bins": 5},
}

Floats = Any
Analysis = Callable[[Floats], tuple[Floats, Floats]]
"""Estimates and their squared standard errors `[k]`, from weights of cells `[cells]`."""


def exact(blocks: Blocks) -> bool:
    """Whether each level is told apart."""
    return blocks.count == np.prod([len(labels) for labels in blocks.groups.values()])


def population_spec() -> ReleaseSpec:
    """The columns, in a spec whose target is `y`."""
    evaluation = {"holdout": 0.2, "targets": ["y"]}
    content = {**stated(), "columns": COLUMNS, "evaluation": evaluation}
    return parse_spec(json.dumps(content), path="population")


def law(shares: Sequence[float]) -> Floats:
    """The law `[*SHAPE]` in which `c` has these shares. The effect of `t` on `y` differs by `c`,
    which the regressions leave out.
    """
    c, g, t, y, v = np.indices(SHAPE)
    treated = expit(-0.5 + 0.4 * c - 0.3 * g)
    ill = expit(-0.4 + 0.6 * t + 0.3 * c - 0.2 * g + 0.5 * t * (c == 0))
    weight = np.exp(-0.1 * v * (1 + (c > 1) - 0.8 * t - 0.5 * y))
    known = np.asarray(shares)[c] * np.array([0.5, 0.3, 0.2])[g]
    known = known * np.where(t, treated, 1 - treated) * np.where(y, ill, 1 - ill)
    return known * weight / weight.sum(axis=4, keepdims=True)


def released(p: Floats, rows: int, rng: np.random.Generator) -> Posterior:
    """What all pairs of `rows` rows, with noise, say."""
    counts = rng.multinomial(rows, p.ravel()).reshape(SHAPE)
    tables = []
    for pair in combinations(range(5), 2):
        margin = counts.sum(axis=tuple(i for i in range(5) if i not in pair))
        noisy = margin + np.round(rng.normal(0, SIGMA, margin.shape))
        tables.append(NoisyTable(tuple(NAMES[i] for i in pair), noisy, SIGMA))
    domain = Domain.from_spec(population_spec().columns)
    return Posterior(LeastSquares(measured(tables, domain, NAMES, grouped=True)))


C, G, T, Y, V = np.indices(SHAPE).reshape(5, -1).astype(float)


def mean_of(values: Floats, where: Floats) -> Analysis:
    """A mean of those rows."""

    def analysis(w: Floats) -> tuple[Floats, Floats]:
        rows = (w * where).sum()
        mean = (w * where * values).sum() / rows
        return np.array([mean]), np.array([(w * where * (values - mean) ** 2).sum() / rows**2])

    return analysis


def regression(values: Floats, *columns: Floats, logistic: bool) -> Analysis:
    """Main effects by least squares or by logistic regression, with robust standard errors."""
    x = np.column_stack([np.ones_like(C), *columns])

    def analysis(w: Floats) -> tuple[Floats, Floats]:
        beta = np.zeros(x.shape[1])
        for _ in range(25 if logistic else 1):
            fit = expit(x @ beta) if logistic else x @ beta
            slope = fit * (1 - fit) if logistic else np.ones_like(fit)
            inverse = np.linalg.inv((x * (w * slope)[:, None]).T @ x)
            step = inverse @ (x.T @ (w * (values - fit)))
            beta = beta + step
            if np.abs(step).max() < 1e-9:
                break
        left = values - (expit(x @ beta) if logistic else x @ beta)
        errors = inverse @ ((x * (w * left**2)[:, None]).T @ x) @ inverse
        return beta[1:], np.diag(errors)[1:]

    return analysis


ALL = np.ones_like(C)
ANALYSES: dict[str, tuple[str, Analysis]] = {
    "share of y": ("y", mean_of(Y, ALL)),
    "share of c3": ("c", mean_of(C == 3, ALL)),
    "mean of v": ("v", mean_of(V, ALL)),
    "share of c2 and v4": ("cv", mean_of((C == 2) & (V == 4), ALL)),
    "y where t": ("ty", mean_of(Y, T == 1)),
    "y in c3": ("cy", mean_of(Y, C == 3)),
    "v where y": ("vy", mean_of(V, Y == 1)),
    "v in c1": ("cv", mean_of(V, C == 1)),
    "logistic y on t": ("ty", regression(Y, T, logistic=True)),
    "logistic y on t, g": ("gty", regression(Y, T, G == 1, G == 2, logistic=True)),
    "logistic y on t, c": ("cty", regression(Y, T, C == 1, C == 2, C == 3, logistic=True)),
    "linear y on t, c": ("cty", regression(Y, T, C, logistic=False)),
    "linear v on t, c, g, y": (
        "cgtyv",
        regression(V, T, C == 1, C == 2, C == 3, G == 1, G == 2, Y, logistic=False),
    ),
}
"""Each with the columns whose pairs determine it."""


def on_groups(posterior: Posterior) -> Analysis | None:
    """Linear regression of `y` on `t`, and on `c` with levels that stand together taken as one."""
    axes = [NAMES.index(name) for name in "cty"]
    sets = [frozenset(s) for size in (1, 2) for s in combinations(axes, size)]
    if any(s not in posterior.blocks for s in sets):
        return None
    groups = joined([posterior.blocks[s].groups[0] for s in sets if 0 in s], 4)[C.astype(int)]
    dummies = [groups == group for group in range(1, int(groups.max()) + 1)]
    return regression(Y, T, *dummies, logistic=False)


def claimed(posterior: Posterior, columns: str) -> bool:
    """Whether the pairs of some columns, or the one, are told level by level."""
    axes = [NAMES.index(name) for name in columns]
    sets = [frozenset(pair) for pair in combinations(axes, 2)] or [frozenset(axes)]
    return all(s in posterior.blocks and exact(posterior.blocks[s]) for s in sets)


def held(
    shares: Sequence[float], rows: int, releases: int, *, m: int = 20, times: int = 5
) -> Iterator[tuple[str, bool]]:
    """Whether the interval of each claimed analysis of each release holds the population's value.

    Copies have `times` as many rows.
    """
    p = law(shares)
    for release in range(releases):
        rng = np.random.default_rng([release, rows])
        posterior = released(p, rows, rng)
        laws = [drawn for _ in range(3 * m) if (drawn := posterior.drawn(rng)) is not None][:m]
        copies = [rng.multinomial(times * rows, drawn.ravel()) for drawn in laws]
        asked = {name: a for name, (columns, a) in ANALYSES.items() if claimed(posterior, columns)}
        if (grouped := on_groups(posterior)) is not None:
            asked["linear y on t, c in groups"] = grouped
        for name, analysis in asked.items():
            estimates, errors = map(np.array, zip(*map(analysis, copies), strict=True))
            middle, error, freedom = pooled(estimates, errors)
            half = t.ppf(0.975, freedom) * error
            for inside in np.abs(middle - analysis(p.ravel())[0]) <= half:
                yield name, bool(inside)
