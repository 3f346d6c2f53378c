"""What a plan says of the noise of estimands is what the mechanisms then add."""

from __future__ import annotations

import numpy as np
import pytest

from synthdp.api.text import estimand_line
from synthdp.data.domain import Domain
from synthdp.inference.estimands import effect_figure, quantile_figures, stratum_figures
from synthdp.inference.figures import Rows
from synthdp.inference.regression import regression_figures
from synthdp.model.estimands import design_of
from synthdp.model.planning import plan_for
from synthdp.privacy.mechanisms.sums import (
    SQUARE,
    NoisyProducts,
    NoisySums,
    ProductSums,
    StratumSums,
)
from synthdp.release.expectations import expected_estimands
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec

COLUMNS = {
    "visits": {"type": "integer", "lower": 0, "upper": 30, "bins": 6},
    "old": {"type": "boolean"},
    "sick": {"type": "boolean"},
}
ASKED = [
    {"kind": "question", "ask": "mean(visits) by old"},
    {"kind": "question", "ask": "share(sick)"},
    {"kind": "question", "ask": "count(sick)"},
    {"kind": "effect", "treated": "sick", "outcome": "visits", "adjust": ["old"]},
    {"kind": "question", "ask": "quantile(visits, 0.4) by old"},
    {"kind": "regression", "outcome": "visits", "terms": ["old", "sick"]},
    {"kind": "table", "columns": ["old", "sick"]},
]


@pytest.fixture
def spec() -> ReleaseSpec:
    shares = {"measure": 0.2, "train": 0.5, "estimands": 0.3}
    return build_spec(
        COLUMNS,
        rows=20_000,
        estimands=ASKED,
        privacy={"epsilon": 1.0, "delta": 1e-6, "shares": shares},
        evaluation={"holdout": 0.0},
    )


def noisy(mechanism: StratumSums, rng: np.random.Generator) -> NoisySums:
    """20,000 rows spread evenly, all numbers at the lower end of the clip."""
    counts = np.full(mechanism.shape, 20_000 / np.prod(mechanism.shape))
    parts = [counts] if mechanism.number is None else [counts, -counts, counts]
    scales = (1.0, 1.0, 1 / SQUARE)
    drawn = [
        p + rng.normal(0, s * mechanism.sigma, p.shape) for p, s in zip(parts, scales, strict=False)
    ]
    empty = np.zeros((0, *mechanism.shape[1:]))
    return NoisySums(drawn[0], *(drawn[1:] or [empty, empty]), mechanism.sigma)


def test_the_forecast_is_the_noise_of_the_figures(spec: ReleaseSpec) -> None:
    plan, rng = plan_for(spec, Domain.from_spec(spec.columns)), np.random.default_rng(0)
    told = {e["name"]: e for e in expected_estimands(spec, plan)}
    for name, mechanism in plan.estimands.items():
        if not isinstance(mechanism, StratumSums):
            continue
        estimates = []
        for _ in range(400):
            sums = noisy(mechanism, rng)
            if told[name]["statistic"] == "effect":
                assert mechanism.number is not None
                figures = (effect_figure(sums, mechanism.number, Rows()),)
            else:
                query = parse_query(ASKED[int(name) - 1]["ask"], spec.columns)
                groups = [None] * int(np.prod(mechanism.shape[1:]))
                if query.statistic == "quantile":
                    column = mechanism.domain["visits"]
                    histograms = sums.counts.reshape(2, -1)
                    groups = [None, None]
                    figures = quantile_figures(
                        histograms, sums.sigma, query.p, column, Rows(), groups
                    )
                else:
                    figures = stratum_figures(query, sums, mechanism.number, Rows(), groups)
            estimates.append([float(f.estimate) for f in figures if f.estimate is not None])
        spread = float(np.std(estimates, axis=0).mean())
        # A share of a half has 1 / sqrt(2) of what is told for shares near an end; a mean at an end
        # is cut there, which halves its spread.
        least = {"share": 0.6, "mean": 0.4}.get(told[name]["statistic"], 0.9)
        assert least < spread / told[name]["noise"] < 1.1, told[name]


def test_the_forecast_of_coefficients_is_their_noise(spec: ReleaseSpec) -> None:
    """Where rows are as they are taken to be: evenly spread, with an outcome at an end."""
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(1)
    plan = plan_for(spec, domain)
    (told,) = (e for e in expected_estimands(spec, plan) if e["statistic"] == "coefficient")
    mechanism = plan.estimands[told["name"]]
    assert isinstance(mechanism, ProductSums)
    design = design_of(spec, domain, spec.estimands[int(told["name"]) - 1])  # type: ignore[arg-type]
    sums = 20_000 * design.expected(domain, 1 / 3)
    estimates = []
    for _ in range(400):
        noisy = NoisyProducts(sums + rng.normal(0, mechanism.sigma, len(sums)), mechanism.sigma)
        found = regression_figures(design, noisy, Rows())
        estimates.append([float(f.estimate) for f in found if f.estimate is not None])
    spread = np.std(estimates, axis=0)
    assert spread == pytest.approx(list(told["terms"].values()), rel=0.15)
    assert told["noise"] == max(told["terms"].values())


def test_the_line_of_the_plan(spec: ReleaseSpec) -> None:
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    lines = [estimand_line(e) for e in expected_estimands(spec, plan)]
    assert lines[0].startswith("estimand 1, mean(visits) by old: noise of about 0.")
    assert lines[5].startswith("estimand 6, visits ~ old + sick: noise of about 0.")
    assert "in old=true, " in lines[5]
    assert "%" in lines[1] and "rows (standard" in lines[2] and "in each cell" in lines[6]


def test_plans_say_where_numbers_are_clipped() -> None:
    asked = [
        {"kind": "question", "ask": "mean(visits) by old", "clip": [0, 12]},
        {"kind": "effect", "treated": "sick", "outcome": "visits", "adjust": [], "clip": [1, 9]},
        {"kind": "regression", "outcome": "visits", "terms": ["old"], "clips": {"visits": [2, 8]}},
        {"kind": "question", "ask": "mean(visits)", "clip": [0, 30]},
    ]
    shares = {"measure": 0.2, "train": 0.5, "estimands": 0.3}
    spec = build_spec(
        COLUMNS,
        rows=20_000,
        estimands=asked,
        privacy={"epsilon": 1.0, "delta": 1e-6, "shares": shares},
    )
    plan = plan_for(spec, Domain.from_spec(spec.columns))
    lines = [estimand_line(e) for e in expected_estimands(spec, plan)]
    for line, clip in zip(lines, ["0 to 12", "1 to 9", "2 to 8"], strict=False):
        assert f"(visits clipped to {clip}, of 0 to 30): noise of about" in line
    assert lines[3].startswith("estimand 4, mean(visits): noise"), "bounds are no clip"
