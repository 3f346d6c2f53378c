"""Estimands of surveys of 1,600 rows and 29 columns, with ten confounders and a planted effect.

    python -m benchmarks.estimands_surveys [--models 40] [--releases 5] [--jobs 2]

Causal models of `surveys_model.py`, of seeds from 300 on, in which the same ten columns act on the
treatment and on the outcome. Each release draws a survey anew and pays for one estimand with 30% of
epsilon: a regression on treatment and confounders, an effect in eight strata, a mean of two groups.
The truth is the same figure of 200,000 other rows. An estimand is accepted where `release` would
pay for it, by plays on stand-in rows; with `declared`, the spec says the shares of categories, to a
twentieth.

`coverage` has its error, over models; `width` is the median half width over that of a survey
without noise; `brier` of the probability of a refusal, over models; `forecast` the share of models
whose played half width is within 20% of the median one. Writes results/estimands_surveys.csv.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from benchmarks.estimands import paid_sums
from benchmarks.surveys_model import ROWS, Survey
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.errors import BudgetError
from synthdp.inference.estimands import estimand_results, exact_sums
from synthdp.inference.figures import Figure, Rows
from synthdp.inference.sums import OVERLAP
from synthdp.model.planning import plan_for
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from synthdp.release.played import played_estimands
from synthdp.spec.model import ReleaseSpec

RESULTS = Path(__file__).parent / "results" / "estimands_surveys.csv"
EPSILONS = (1.0, 3.0, 10.0, 30.0)
FIRST_SEED, POPULATION_ROWS = 300, 200_000
CONFOUNDERS = [
    *("sex", "married", "smoker", "children", "visits"),
    *("commute", "age", "region", "school", "health"),
]
CLIP = [25, 115]
ASKED: dict[str, dict[str, Any]] = {
    "regression on ten": {
        "kind": "regression",
        "outcome": "outcome",
        "terms": ["treated", *CONFOUNDERS],
        "clips": {"outcome": CLIP, "children": [0, 12], "visits": [0, 12], "age": CLIP},
    },
    "eight strata": {
        "kind": "effect",
        "treated": "treated == 'yes'",
        "outcome": "outcome",
        "adjust": {"sex": [], "age": [0, 70], "children": [0, 3]},
        "clip": CLIP,
    },
    "mean of two groups": {"kind": "question", "ask": "mean(outcome) by treated", "clip": CLIP},
}
TOLD = {"regression on ten": "treated=yes", "eight strata": OVERLAP, "mean of two groups": "yes"}
"""The group of the figure that is judged."""


@dataclass(frozen=True)
class Confounded(Survey):
    """A survey in which the same ten columns act on treatment and outcome."""

    @property
    def names(self) -> list[str]:
        others = [n for n in Survey(self.seed).names if n not in ("treated", "outcome")]
        return [*others, "treated", "outcome"]

    @property
    def causes(self) -> dict[str, list[str]]:
        found = dict(Survey(self.seed).causes)
        found |= {n: [c for c in found[n] if c != "treated"] for n in self.names[:-2]}
        return found | {"treated": CONFOUNDERS, "outcome": [*CONFOUNDERS, "treated"]}


def spec_of(survey: Survey, asked: str, epsilon: float, declared: bool) -> ReleaseSpec:
    """The survey's spec with one estimand."""
    columns = {n: dict(c) for n, c in survey.columns.items()}
    if declared:
        for name, column in columns.items():
            if column["type"] == "categorical":
                shares = survey.drawn(20_000, 5)[name].value_counts(normalize=True)
                near = {k: max(round(float(v) * 20) / 20, 0.02) for k, v in shares.items()}
                column["known_shares"] = dict(list(near.items())[1:])
    return ReleaseSpec.model_validate(
        {
            "synthdp": 1,
            "dataset": {
                "id": "survey",
                "source": {"kind": "csv", "path": "survey.csv"},
                "privacy_unit": {"kind": "row", "meaning": "one person"},
                "rows": {"kind": "public", "value": ROWS},
            },
            "columns": columns,
            "privacy": {
                "epsilon": epsilon,
                "delta": 1e-5,
                "shares": {"measure": 0.1, "graph": 0.6, "train": 0, "estimands": 0.3},
            },
            "graph": {"mode": "predict"},
            "evaluation": {"holdout": 0.0, "disclosure": "confidential"},
            "estimands": [ASKED[asked]],
        }
    )


def measured(seed: int, asked: str, epsilon: float, declared: bool, releases: int) -> list[Any]:
    """Of each release of one model: what was forecast, and what came."""
    survey = Confounded(seed)
    spec = spec_of(survey, asked, epsilon, declared)
    row = {"asked": asked, "epsilon": epsilon, "declared": declared, "seed": seed}
    domain = Domain.from_spec(spec.columns)
    try:
        plan = plan_for(spec, domain)
    except BudgetError:  # refused however the rows are spread
        return [row | {"accepted": False}]
    (played,) = played_estimands(spec, domain, plan)
    (forecast,) = (f for f in played["figures"] if f["group"] == TOLD[asked])
    row |= {"accepted": not played["likely_refused"], "p": forecast["refused"]}
    row["played"] = forecast["half_width"]

    def figure(sums: Any) -> Figure:
        (result,) = estimand_results(spec, domain, {"1": sums}, Rows())
        return next(f for f in result.figures if f.group == TOLD[asked])

    def table(frame: pd.DataFrame) -> Table:
        return Table(encode(domain, frame)[0], frame, np.zeros(len(frame), dtype=bool), {})

    truth = figure(exact_sums(spec, domain, table(survey.drawn(POPULATION_ROWS, 3)))["1"]).estimate
    found = []
    for stream in range(10, 10 + releases):
        own = table(survey.drawn(ROWS, stream))
        told = figure(paid_sums(plan.estimands, own, Streams.fresh())["1"])
        sure = figure(exact_sums(spec, domain, own)["1"])
        found.append(row | {"truth": truth, "told": told.interval, "sure": sure.interval})
    return found


def summary(found: pd.DataFrame) -> pd.Series[Any]:
    """The figures of one kind of estimand at one epsilon."""
    bought = found[found["accepted"]]
    told = bought[bought["told"].notna()] if "told" in bought else bought
    if told.empty:
        return pd.Series({"models": found["seed"].nunique(), "accepted": found["accepted"].mean()})
    ends = np.array([*told["told"]], dtype=float)
    sure = np.array([s or (np.nan, np.nan) for s in told["sure"]], dtype=float)
    half = (ends[:, 1] - ends[:, 0]) / 2
    covered = (ends[:, 0] <= told["truth"]) & (told["truth"] <= ends[:, 1])
    by_model = covered.groupby(told["seed"]).mean()
    refused = found["told"].isna().groupby(found["seed"]).mean()
    played = found.groupby("seed")[["p", "played"]].first().dropna(subset="p")
    score = refused * (1 - played["p"]) ** 2 + (1 - refused) * played["p"] ** 2
    ratio = (
        played["played"].astype(float) / pd.Series(half, told.index).groupby(told["seed"]).median()
    )
    return pd.Series(
        {
            "models": found["seed"].nunique(),
            "accepted": found.groupby("seed")["accepted"].first().mean(),
            "releases": len(bought),
            "answered": len(told) / len(bought),
            "coverage": covered.mean(),
            "error": by_model.std() / np.sqrt(len(by_model)),
            "half width": np.median(half),
            "width": np.nanmedian(half / ((sure[:, 1] - sure[:, 0]) / 2)),
            "brier": score.mean(),
            "forecast": (np.abs(ratio.dropna() - 1) <= 0.2).mean(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.models)
    cells = product(seeds, ASKED, EPSILONS, (False, True))
    runs = Parallel(arguments.jobs)(delayed(measured)(*c, arguments.releases) for c in cells)
    found = pd.DataFrame([row for run in runs for row in run])
    told = found.groupby(["asked", "epsilon", "declared"]).apply(summary, include_groups=False)
    told = told.unstack() if isinstance(told, pd.Series) else told
    told.round(3).to_csv(arguments.out)
    print(told.round(3).to_string())


if __name__ == "__main__":
    main()
