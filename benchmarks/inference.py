"""Coverage of the 95% intervals of `synthdp answer` and of estimands: tables alone, no training.

    python -m benchmarks.inference [--releases 200] [--chosen 50] [--models clinic work ...]
                                   [--rows 2000 20000 100000] [--adult 5] [--jobs 2]

Six causal models of known law, three numbers of rows, epsilon .5, 1 and 3, a fifth of the rows held
out. A population is a million rows of a model, and each release has a sample of them, drawn with
replacement, so that the population's answers are exact. Random questions are asked of each: of one
or two columns, or of three that two pairs answer. Tables are all pairs, measured at once (with an
effect that is paid for), or those that mode predict chooses in two rounds. On Adult, 1,000
questions of one or two columns are asked of each release, and 200 of three.

Noise is drawn as in a rehearsal, but by numpy (rounded Gaussians in place of discrete ones, whose
variance is less by 1/12). Writes results/inference.csv, a row for each cell; cells that it holds
are not run again. Cells of one model and number of rows share their samples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from benchmarks.inference_effects import Effect
from benchmarks.inference_models import MODELS, Values, levels, spec_of
from benchmarks.inference_questions import (
    Question,
    Rows,
    Truth,
    of_three,
    one_or_two,
    random_query,
)
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode_column, operand_values
from synthdp.graph.stage import find_graph
from synthdp.inference.answer import answer_tables
from synthdp.inference.figures import Figure
from synthdp.model.fit import all_tables, measure
from synthdp.model.planning import plan_for
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import Integers, Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.privacy.table import Table
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import ReleaseSpec

RESULTS = Path(__file__).parent / "results" / "inference.csv"
ADULT = Path(__file__).parents[1] / "specs"
KEY = ["population", "tables", "rows", "epsilon"]
HOLDOUT = 0.2
POPULATION = 1_000_000
QUERIES = 20
EPSILONS = (0.5, 1.0, 3.0)


class QuickStreams(Streams):
    """Noise of a simulation: numpy's rounded Gaussians for OpenDP's discrete ones."""

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """Of variance sigma^2 and 1/12."""
        return self.rounded_gaussian(counts, sigma=sigma)


class Simulation(Rehearsal):
    """A rehearsal with quick noise."""

    def admit(self, *asked: Any, **named: Any) -> tuple[Table, Streams]:
        """As a rehearsal does."""
        return super().admit(*asked, **named)[0], QuickStreams.quick()


@dataclass(frozen=True, eq=False)
class Setting:
    """What a cell's releases have in common."""

    spec: ReleaseSpec
    domain: Domain
    plan: ReleasePlan

    @classmethod
    def of(cls, spec: ReleaseSpec) -> Setting:
        """With the plan of the spec."""
        domain = Domain.from_spec(spec.columns)
        return cls(spec, domain, plan_for(spec, domain))

    def tables(self, codes: Codes) -> tuple[NoisyTable, ...]:
        """The noisy tables of a release of these rows."""
        releaser = Simulation(codes, self.domain, self.plan, frame=pd.DataFrame())
        marginals = measure(releaser)
        if self.spec.graph.mode != "predict":
            return marginals.value
        graph = find_graph(
            releaser,
            self.spec.graph,
            self.domain,
            known=marginals,
            targets=self.spec.evaluation.targets,
        )
        return all_tables(marginals, graph).value


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions, with the answers of the population, of a sample, and of its counted rows."""

    questions: Sequence[Question]
    truths: Sequence[list[Truth]]

    @classmethod
    def of(cls, texts: Sequence[str], spec: ReleaseSpec, values: Values) -> Asked:
        """Of a population's `values`."""
        questions = [Question.of(text, spec, values) for text in texts]
        return cls(questions, [question.answers(slice(None)) for question in questions])

    def sampled(self, sample: Rows, fitted: Rows) -> list[list[Truth]]:
        """The answers of a sample: of all of its rows if rows are counted, else of those fitted."""
        return [
            question.answers(sample if question.query.statistic == "count" else fitted)
            for question in self.questions
        ]

    def judged(
        self, setting: Setting, tables: Sequence[NoisyTable], seen: Sequence[list[Truth]]
    ) -> Iterator[dict[str, Any]]:
        """Each figure of a release beside the truth: of the population, and of the rows."""
        for question, truths, rows in zip(self.questions, self.truths, seen, strict=True):
            query = question.query
            found = answer_tables(query, setting.spec, setting.domain, tables)
            for figure, truth, sample in zip(found.figures, truths, rows, strict=False):
                if not truth.asked:
                    continue
                wanted = sample.value if query.statistic == "count" else truth.value
                exact = figure.bounds is None and query.statistic != "quantile"
                yield {
                    "part": _part(found.tier, exact),
                    "statistic": query.statistic,
                    "columns": len(query.columns),
                    "refused": figure.interval is None,
                    "covered": inside(figure.interval, wanted),
                    "covered_rows": inside(figure.of_rows, sample.value),
                    "width": _width(figure, sample),
                }


def _part(tier: str, exact: bool) -> str:
    """Of tier A there are figures that the tables tell exactly, and those that they bound."""
    if tier == "A":
        return "exact" if exact else "bounded"
    return "spanned" if tier == "B" else "model_only"


def inside(interval: Any, truth: float) -> float:
    """Whether an interval holds the truth, NaN where there is none."""
    return np.nan if interval is None else float(interval[0] <= truth <= interval[1])


def _width(figure: Figure, sample: Truth) -> float:
    """The interval's width by that which the rows themselves would give."""
    if figure.interval is None or not sample.deviation > 0:
        return np.nan
    low, high = figure.interval
    return float(high - low) / (2 * 1.96 * sample.deviation)  # type: ignore[operator]


def summed(figures: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Coverage, refusals and widths of many figures, by part.

    Coverage is that of the population, and `_rows` that of the counted rows.
    """
    frame = pd.DataFrame(figures)
    answered = frame[~frame["refused"]]
    if (answered["part"] == "model_only").any():
        raise AssertionError("an interval of tier C")
    told = frame[frame["part"] != "model_only"]
    summary: dict[str, float] = {
        "figures": len(frame),
        "model_only": len(frame) - len(told),
        "refused": told["refused"].mean(),
    }
    for name in ("exact", "bounded", "spanned", "effect"):
        part = answered[answered["part"] == name]
        summary |= {
            f"{name}_figures": len(part),
            name: part["covered"].mean(),
            f"{name}_rows": part["covered_rows"].mean(),
            f"{name}_width": part["width"].median(),
        }
    exact = answered[answered["part"] == "exact"]
    for name in ("share", "count", "mean"):
        summary[f"exact_{name}"] = exact[exact["statistic"] == name]["covered"].mean()
    effects = frame[frame["part"] == "effect"]
    return summary | {"effect_refused": effects["refused"].mean()}


def simulated(
    model: str, rows: int, settings: Sequence[tuple[str, float]], releases: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each cell of one model: its kind of tables, its epsilon, and its figures."""
    rng = np.random.default_rng([rows, *model.encode()])
    values = MODELS[model].draw(rng, POPULATION, None)
    cells = {
        (tables, epsilon): Setting.of(
            spec_of(model, tables, rows=rows, epsilon=epsilon, holdout=HOLDOUT)
        )
        for tables, epsilon in settings
    }
    some = next(iter(cells.values()))
    texts = [random_query(rng, some.spec, values) for _ in range(QUERIES)]
    asked = Asked.of(texts, some.spec, values)
    codes = {key: levels(cell.domain, values) for key, cell in cells.items()}
    effect = Effect.of(model, rows, sorted({e for t, e in cells if t == "pairs"}), values)
    figures: dict[tuple[str, float], list[dict[str, Any]]] = {cell: [] for cell in cells}
    spent = dict.fromkeys(cells, 0.0)
    for release in range(max(releases.values())):
        sample = rng.integers(0, POPULATION, rows)
        fitted = sample[rng.random(rows) >= HOLDOUT]
        seen = asked.sampled(sample, fitted)
        paid = effect.judged(fitted)
        for (tables, epsilon), cell in cells.items():
            if release >= releases[tables]:
                continue
            start = time.process_time()
            noisy = cell.tables(codes[tables, epsilon][fitted])
            figures[tables, epsilon] += asked.judged(cell, noisy, seen)
            figures[tables, epsilon] += paid.get(epsilon, []) if tables == "pairs" else []
            spent[tables, epsilon] += time.process_time() - start
    return [
        dict(zip(KEY, (model, *cell[:1], rows, cell[1]), strict=True))
        | {"releases": releases[cell[0]]}
        | summed(found)
        | {"cpu_s": spent[cell]}
        for cell, found in figures.items()
    ]


def adult(epsilon: float, releases: int, queries: int) -> list[dict[str, Any]]:
    """Figures of releases of rows drawn from Adult with replacement.

    Rows of the result: questions of one or two columns, and of three.
    """
    spec = load_spec(ADULT / "adult.yaml")
    privacy = spec.privacy.model_copy(update={"epsilon": epsilon})
    setting = Setting.of(spec.model_copy(update={"privacy": privacy}))
    frame = pd.read_csv(ADULT / "data" / "adult.csv", dtype=str, keep_default_na=False)
    frame = frame.replace({"": None})
    encoded = {c.name: encode_column(c, frame[c.name]).codes for c in setting.domain.columns}
    values = {
        c.name: operand_values(c, encoded[c.name], frame[c.name]) for c in setting.domain.columns
    }
    codes = np.column_stack(list(encoded.values())).astype(np.uint16)
    rng, rows, start = np.random.default_rng(7), len(frame), time.process_time()
    asked = {
        "pairs": Asked.of([one_or_two(rng, spec, values) for _ in range(queries)], spec, values),
        "three columns": Asked.of(
            [of_three(rng, spec, values) for _ in range(queries // 5)], spec, values
        ),
    }
    found: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in asked}
    for _ in range(releases):
        sample = rng.integers(0, rows, rows)
        fitted = sample[rng.random(rows) >= spec.evaluation.holdout]
        tables = setting.tables(codes[fitted])
        for name, questions in asked.items():
            seen = questions.sampled(sample, fitted)
            found[name].append(list(questions.judged(setting, tables, seen)))
    return [
        dict(zip(KEY, ("adult", name, rows, epsilon), strict=True))
        | {"releases": len(part)}
        | summed([figure for release in part for figure in release])
        | {"cpu_s": time.process_time() - start}
        for name, part in found.items()
    ]


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--chosen", type=int, default=50, help="releases of mode predict")
    parser.add_argument("--models", nargs="*", default=tuple(MODELS), choices=tuple(MODELS))
    parser.add_argument("--tables", nargs="+", default=("pairs", "predict"))
    parser.add_argument("--rows", nargs="+", type=int, default=(2_000, 20_000, 100_000))
    parser.add_argument("--epsilon", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--adult", type=int, default=5, help="releases of Adult")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    known = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=KEY)
    releases = {"pairs": asked.releases, "predict": asked.chosen}
    have = set(known[KEY].itertuples(index=False, name=None))
    jobs = []
    for rows, model in product(sorted(asked.rows), asked.models):
        missing = [
            (t, e)
            for t, e in product(asked.tables, asked.epsilon)
            if (model, t, rows, e) not in have
        ]
        if missing:
            jobs.append(delayed(simulated)(model, rows, missing, releases))
    if asked.adult and "adult" not in set(known["population"]):
        jobs.append(delayed(adult)(1.0, asked.adult, 1_000))
    for found in Parallel(n_jobs=asked.jobs, return_as="generator_unordered")(jobs):
        known = pd.concat([known, pd.DataFrame(found)], ignore_index=True)
        known.round(4).to_csv(RESULTS, index=False)
        print(pd.DataFrame(found).round(3).to_string(header=False, index=False), flush=True)
    print(known.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
