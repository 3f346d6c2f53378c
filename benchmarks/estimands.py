"""Coverage of estimands that are paid for: the plan effects of RAND HIE.

    python -m benchmarks.estimands [--releases 200]

The table is the population. Each release draws as many rows from it with replacement, holds a fifth
of them out, and measures the effects with the noise of their share: no training, since estimands
need none. `rmse` is of the estimate to the table's own effect, of visits cut at 30; `noise` is what
the noise alone would make of it. Writes results/estimands.csv, a row for each effect and setting.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.inference.estimands import estimand_results, exact_results
from synthdp.inference.figures import Figure
from synthdp.model.estimands import chosen_contrast, contrast_name, tables_and_sums
from synthdp.model.planning import plan_for
from synthdp.privacy.mechanisms.sums import ContrastBudget, NoisySums, Sums
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import EffectEstimand, ReleaseSpec
from synthdp.spec.model.rules import LEFT_OUT

SPECS = Path(__file__).parents[1] / "specs"
RESULTS = Path(__file__).parent / "results" / "estimands.csv"
HOLDOUT = 0.2
EPSILONS = (0.5, 1.0, 3.0)
CLIP = 30.0
EFFECTS = {
    "free plan, against all others": (("lncoins == 0", None),),
    "both plan effects": (("lncoins == 0", None), ("lncoins == 0", "lncoins > 4")),
}


def asked(base: ReleaseSpec, effects: Any, epsilon: float) -> ReleaseSpec:
    """RAND HIE with these effects as estimands, for `LEFT_OUT.estimands` of the budget."""
    estimands = tuple(
        EffectEstimand(
            kind="effect", treated=t, control=c, outcome="mdvis", adjust=(), clip=(0.0, CLIP)
        )
        for t, c in effects
    )
    kept = {
        n: (1 - LEFT_OUT.estimands) * part for n, part in base.privacy.shares.model_dump().items()
    }
    shares = base.privacy.shares.model_copy(update={**kept, "estimands": LEFT_OUT.estimands})
    privacy = base.privacy.model_copy(update={"epsilon": epsilon, "shares": shares, "cap": None})
    return base.model_copy(update={"estimands": estimands, "privacy": privacy})


def measured(spec: ReleaseSpec, frame: pd.DataFrame, releases: int) -> list[dict[str, Any]]:
    """Error and coverage of each effect."""
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(20)
    codes, _ = encode(domain, frame)
    plan = plan_for(spec, domain)
    whole = Table(codes, frame, np.zeros(len(frame), dtype=bool), {})
    truths = [_number(result.figures[0]) for result in exact_results(spec, domain, whole)]
    found: list[list[Figure]] = [[] for _ in truths]
    for _ in range(releases):
        drawn = rng.integers(0, len(frame), len(frame))
        held_out = rng.random(len(frame)) < HOLDOUT
        table = Table(codes[drawn], frame.iloc[drawn].reset_index(drop=True), held_out, {})
        noisy = paid_sums(plan.estimands, table, Streams.fresh())
        for figures, result in zip(found, estimand_results(spec, domain, noisy), strict=True):
            figures.append(result.figures[0])
    return [
        _row(result.text, truth, figures)
        for result, truth, figures in zip(
            exact_results(spec, domain, whole), truths, found, strict=True
        )
    ]


def paid_sums(planned: Mapping[str, Any], table: Table, streams: Streams) -> dict[str, Sums]:
    """What estimands measure on a table, an effect by strata in two looks."""
    found: dict[str, Sums] = {}
    for name, mechanism in tables_and_sums(planned)[1].items():
        sums, budget = mechanism.run(table, streams), planned.get(contrast_name(name))
        if isinstance(sums, NoisySums) and isinstance(budget, ContrastBudget):
            sums = replace(sums, contrast=chosen_contrast(budget, sums).run(table, streams))
        found[name] = sums
    return found


def _row(text: str, truth: float, figures: list[Figure]) -> dict[str, Any]:
    """One effect over all releases."""
    errors = np.array([_number(f) - truth for f in figures])
    ends = np.array([f.interval for f in figures], dtype=np.float64)
    noise = np.array([f.of_rows for f in figures], dtype=np.float64)
    return {
        "effect": text,
        "truth": round(truth, 4),
        "rmse": round(float(np.sqrt((errors**2).mean())), 4),
        "noise": round(float((noise[:, 1] - noise[:, 0]).mean() / (2 * 1.96)), 4),
        "coverage": round(float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()), 4),
        "width": round(float((ends[:, 1] - ends[:, 0]).mean()), 4),
        "releases": len(figures),
    }


def _number(figure: Figure) -> float:
    if not isinstance(figure.estimate, int | float):
        raise ValueError(f"an effect that has no figure: {figure.refused}")
    return float(figure.estimate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=200)
    arguments = parser.parse_args()
    base = load_spec(SPECS / "rand-hie.yaml")
    unscored = base.evaluation.model_copy(update={"disclosure": "confidential"})
    base = base.model_copy(update={"evaluation": unscored, "gates": ()})
    frame = pd.read_csv(SPECS / "data" / "rand-hie.csv")
    rows = [
        {"asked": name, "epsilon": epsilon, **row}
        for name, effects in EFFECTS.items()
        for epsilon in EPSILONS
        for row in measured(asked(base, effects, epsilon), frame, arguments.releases)
    ]
    table = pd.DataFrame(rows)
    table.to_csv(RESULTS, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
