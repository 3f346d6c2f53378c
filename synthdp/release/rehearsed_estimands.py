"""Estimands on simulated rows: how often their intervals hold the truth, and how wide they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.inference.estimands import estimand_results, exact_sums
from synthdp.inference.figures import Figure, Rows
from synthdp.model.estimands import estimand_name
from synthdp.privacy.mechanisms.product_sums import NoisyProducts, Sums
from synthdp.privacy.mechanisms.stratum_sums import SQUARE
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Table
from synthdp.spec.model import ReleaseSpec

DRAWS = 100
"""Times that the noise of the sums is drawn."""


def rehearsed_estimands(
    spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, table: Table, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """For each figure of each estimand but tables: its `text`, `group` and `truth`, and of `DRAWS`
    draws of the noise the share `answered`, the `bias` (estimate less truth), the share `covered`
    of intervals of the counted rows that hold the truth, and the median `width` of the intervals of
    the population, all None where nothing was answered.

    Sums of `table` are taken without noise, whatever the plan: for simulated rows only.
    """
    exact, per_unit = exact_sums(spec, domain, table), Rows.of_spec(spec).per_unit
    sigmas = {name: getattr(plan.estimands[name], "sigma", 0.0) for name in exact}
    truths = estimand_results(spec, domain, exact, Rows(per_unit=per_unit))
    drawn = [
        estimand_results(
            spec,
            domain,
            {name: _noisy(sums, sigmas[name], rng) for name, sums in exact.items()},
            Rows(per_unit=per_unit),
        )
        for _ in range(DRAWS)
    ]
    return [
        {"name": estimand_name(i), "text": truth.text, "statistic": truth.statistic}
        | _judged(figure, [results[i].figures[at] for results in drawn])
        for i, truth in enumerate(truths)
        for at, figure in enumerate(truth.figures)
    ]


def _noisy(sums: Sums, sigma: float, rng: np.random.Generator) -> Sums:
    """Exact sums with noise as it will be, but for its rounding."""
    if isinstance(sums, NoisyProducts):
        return NoisyProducts(sums.sums + rng.normal(0, sigma, sums.sums.shape), sigma)
    return replace(
        sums,
        counts=sums.counts + rng.normal(0, sigma, sums.counts.shape),
        sums=sums.sums + rng.normal(0, sigma, sums.sums.shape),
        squares=sums.squares + rng.normal(0, sigma / SQUARE, sums.squares.shape),
        sigma=sigma,
    )


def _judged(truth: Figure, drawn: Sequence[Figure]) -> dict[str, Any]:
    """The figures of all draws against the exact one."""
    told = [f for f in drawn if isinstance(f.estimate, float) and f.interval and f.of_rows]
    found: dict[str, Any] = {"group": truth.group, "truth": truth.estimate}
    found |= {"answered": len(told) / len(drawn)}
    if not told or not isinstance(truth.estimate, float):
        return found | dict.fromkeys(("bias", "covered", "width"))
    estimates = np.array([f.estimate for f in told], dtype=np.float64)
    ends = np.array([f.of_rows for f in told], dtype=np.float64)
    wide = np.array([f.interval for f in told], dtype=np.float64)
    inside = (ends[:, 0] <= truth.estimate) & (truth.estimate <= ends[:, 1])
    return found | {
        "bias": float(estimates.mean() - truth.estimate),
        "covered": float(inside.mean()),
        "width": float(np.median(wide[:, 1] - wide[:, 0])),
    }
