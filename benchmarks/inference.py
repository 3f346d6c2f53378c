"""Coverage of the 95% intervals of `synthdp answer`: tables alone, no training.

    python -m benchmarks.inference [--releases 200] [--models clinic work exposure] [--adult 20]

Three populations of known law, 2,000 and 20,000 rows, epsilon .5, 1 and 3, a fifth of the rows held
out; 20 random questions are asked of each release, of one or two columns, or of three that two
pairs answer. Tables are all pairs,
measured at once, or those that mode predict chooses in two rounds. On Adult, 1,000 questions are
asked of each of twenty releases: of rows drawn with replacement, whose population is Adult itself.

Writes results/inference.csv, a row for each cell; cells that it holds are not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.inference_models import (
    MODELS,
    Values,
    levels,
    random_query,
    spec_of,
    true_figures,
)
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode_column, operand_values
from synthdp.graph.stage import find_graph
from synthdp.inference.answer import answer_tables
from synthdp.inference.figures import Figure
from synthdp.model.fit import all_tables, measure
from synthdp.model.planning import plan_for
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import ReleaseSpec

RESULTS = Path(__file__).parent / "results" / "inference.csv"
ADULT = Path(__file__).parents[1] / "specs"
KEY = ["population", "tables", "rows", "epsilon"]
HOLDOUT = 0.2
POPULATION = 1_000_000
"""Rows from which true answers are computed: their error is a fiftieth of 2,000 rows' variance."""
QUERIES = 20


@dataclass(frozen=True)
class Population:
    """A population with its true answers to some questions."""

    spec: ReleaseSpec
    domain: Domain
    queries: Sequence[Query]
    truths: Sequence[list[tuple[float, float, int]]]

    @classmethod
    def of(cls, spec: ReleaseSpec, values: Values, texts: Sequence[str]) -> Population:
        """With the answers of a large table of `values`."""
        queries = [parse_query(text, spec.columns) for text in texts]
        truths = [true_figures(query, spec, values) for query in queries]
        return cls(spec, Domain.from_spec(spec.columns), queries, truths)


def released(population: Population, plan: ReleasePlan, values: Values) -> tuple[NoisyTable, ...]:
    """The noisy tables of a release of these rows."""
    spec, domain = population.spec, population.domain
    releaser = Rehearsal(levels(domain, values), domain, plan, frame=pd.DataFrame())
    marginals = measure(releaser)
    if spec.graph.mode != "predict":
        return marginals.value
    graph = find_graph(
        releaser, spec.graph, domain, known=marginals, targets=spec.evaluation.targets
    )
    return all_tables(marginals, graph).value


def judged(
    population: Population,
    tables: Sequence[NoisyTable],
    rows: Values,
    fitted: Values,
) -> Iterator[dict[str, Any]]:
    """Each figure of a release beside the truth: of the population, and of the rows."""
    for query, truths in zip(population.queries, population.truths, strict=True):
        found = answer_tables(query, population.spec, population.domain, tables)
        counting = query.statistic == "count"
        seen = true_figures(query, population.spec, rows if counting else fitted)
        for figure, truth, sample in zip(found.figures, truths, seen, strict=False):
            wanted = sample[0] if counting else truth[0]
            if np.isnan(wanted) or truth[1] == 0:  # nobody is asked about, or all rows are alike
                continue
            yield {
                "tier": found.tier,
                "statistic": query.statistic,
                "columns": len(query.columns),
                "exact": figure.bounds is None and query.statistic != "quantile",
                "refused": figure.interval is None,
                "covered": _inside(figure.interval, wanted),
                "covered_rows": _inside(figure.of_rows, sample[0]),
                "width": _width(figure, sample),
            }


def _inside(interval: Any, truth: float) -> float:
    return np.nan if interval is None else float(interval[0] <= truth <= interval[1])


def _width(figure: Figure, sample: tuple[float, float, int]) -> float:
    """The interval's width by that which the rows themselves would give."""
    if figure.interval is None or not sample[1] > 0:
        return np.nan
    low, high = figure.interval
    return float(high - low) / (2 * 1.96 * sample[1])  # type: ignore[operator]


def _summed(figures: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Coverage and refusals of many figures.

    Of tier A there are those that the tables tell exactly, and those that they bound; tier B is
    `spanned`. Coverage is that of the population, and `_rows` that of the counted rows.
    """
    frame = pd.DataFrame(figures)
    model_only, summary = frame["tier"] == "C", dict[str, float]()
    if frame.loc[model_only, "covered"].notna().any():
        raise AssertionError("an interval of tier C")
    frame = frame[~model_only]
    answered, measured = ~frame["refused"], frame["tier"] == "A"
    parts = {
        "exact": frame[answered & measured & frame["exact"]],
        "bounded": frame[answered & measured & ~frame["exact"]],
        "spanned": frame[answered & ~measured],
    }
    for name, part in parts.items():
        summary |= {
            f"{name}_figures": len(part),
            name: part["covered"].mean(),
            f"{name}_rows": part["covered_rows"].mean(),
            f"{name}_width": part["width"].median(),
        }
    for name in ("share", "count", "mean"):
        summary[f"exact_{name}"] = parts["exact"].query("statistic == @name")["covered"].mean()
    return {
        "figures": len(figures),
        "model_only": int(model_only.sum()),
        "refused": frame["refused"].mean(),
        **summary,
    }


def simulated(
    model: str, tables: str, rows: int, epsilon: float, releases: int
) -> dict[str, float]:
    """Figures of many releases of one population."""
    draw = MODELS[model][0]
    rng = np.random.default_rng([rows, len(model), len(tables)])
    spec = spec_of(model, tables, rows=rows, epsilon=epsilon, holdout=HOLDOUT)
    values = draw(rng, POPULATION)
    texts = [random_query(rng, spec, values) for _ in range(QUERIES)]
    population = Population.of(spec, values, texts)
    plan = plan_for(spec, population.domain)
    figures = list[dict[str, Any]]()
    for _ in range(releases):
        sample = draw(rng, rows)
        fitted = _kept(sample, rng.random(rows) >= HOLDOUT)
        known = released(population, plan, fitted)
        figures += judged(population, known, sample, fitted)
    return _summed(figures)


def adult(epsilon: float, releases: int, queries: int) -> dict[str, float]:
    """Figures of releases of rows drawn from Adult with replacement."""
    spec = load_spec(ADULT / "adult.yaml")
    privacy = spec.privacy.model_copy(update={"epsilon": epsilon})
    spec = spec.model_copy(update={"privacy": privacy})
    frame = pd.read_csv(ADULT / "data" / "adult.csv", dtype=str, keep_default_na=False)
    frame = frame.replace({"": None})
    domain = Domain.from_spec(spec.columns)
    values = {
        c.name: operand_values(c, encode_column(c, frame[c.name]).codes, frame[c.name])
        for c in domain.columns
    }
    rng = np.random.default_rng(7)
    texts = [random_query(rng, spec, values) for _ in range(queries)]
    population, rows = Population.of(spec, values, texts), len(frame)
    plan = plan_for(spec, domain)
    figures = list[dict[str, Any]]()
    for _ in range(releases):
        chosen = rng.integers(0, rows, rows)
        sample = {name: column[chosen] for name, column in values.items()}
        fitted = _kept(sample, rng.random(rows) >= spec.evaluation.holdout)
        figures += judged(population, released(population, plan, fitted), sample, fitted)
    return _summed(figures)


def _kept(values: Values, mask: Any) -> Values:
    return {name: column[mask] for name, column in values.items()}


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--models", nargs="*", default=tuple(MODELS), choices=tuple(MODELS))
    parser.add_argument("--tables", nargs="+", default=("pairs", "predict"))
    parser.add_argument("--rows", nargs="+", type=int, default=(2_000, 20_000))
    parser.add_argument("--epsilon", nargs="+", type=float, default=(0.5, 1.0, 3.0))
    parser.add_argument("--adult", type=int, default=20, help="releases of Adult")
    asked = parser.parse_args()
    known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=KEY)
    cells = [
        (m, t, n, e)
        for m in asked.models
        for t in asked.tables
        for n in asked.rows
        for e in asked.epsilon
    ]
    cells += [("adult", "pairs", 48_842, 1.0)] if asked.adult else []
    for cell in cells:
        key = dict(zip(KEY, cell, strict=True))
        if (known[KEY] == pd.Series(key)).all(axis=1).any():
            continue
        start = time.process_time()
        found = (
            adult(1.0, asked.adult, 1_000)
            if cell[0] == "adult"
            else simulated(*cell, releases=asked.releases)
        )
        row = key | found | {"cpu_s": time.process_time() - start}
        known = pd.concat([known, pd.DataFrame([row])], ignore_index=True)
        known.round(4).to_csv(RESULTS, index=False)
        print(known.tail(1).round(3).to_string(header=False, index=False), flush=True)
    print(known.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
