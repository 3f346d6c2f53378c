"""Effects of one step: how often their intervals hold the truth, on a simulated clinic.

    python -m benchmarks.visit_effects [--epsilon 1 3 inf] [--runs 200] [--persons 10000]

Each run simulates persons with visits anew (`benchmarks.clinic`), takes the looks of a release, and
reads effects of the drug off their tables: on being admitted at the same visit, and on stage 3 at
the next one. `inf` has a ten-thousandth of the noise of epsilon 100. The truth is known: each
visit's own probabilities under both drugs, averaged in a population of 300,000 persons by the
weights of the figure, on the run's own strata. Writes results/visit_effects.csv, a row for each run
and effect: `one_row` is whether the interval would hold the truth if noise were that of one row of
a person.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml
from scipy.special import expit, softmax

from benchmarks.clinic import clinic
from benchmarks.visits import DATA, Tables
from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.data.visits import VisitFrame, levels_between
from synthdp.inference.visit_effects import estimands_json
from synthdp.model.visits.fit import Looks
from synthdp.model.visits.planning import plan_linked
from synthdp.privacy.linked import LinkedTable, fit_linked
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model.linked import LinkedSpec

RESULTS = Path(__file__).parent / "results" / "visit_effects.csv"
Floats = npt.NDArray[np.float64]
ASKED = [
    {
        "kind": "effect",
        "treatment": "visits.drug",
        "outcome": "visits.admitted",
        "adjust": ["visits.stage", "visits.bp"],
        "level": "1",
    },
    {
        "kind": "effect",
        "treatment": "visits.drug",
        "outcome": "visits[+1].stage",
        "level": "3",
    },
]
SHARES = {"persons": 0.1, "first": 0.1, "steps": 0.4, "ends": 0.1, "estimands": 0.3}


def spec_with(epsilon: float) -> LinkedSpec:
    """The clinic's spec with both effects."""
    stated = yaml.safe_load((DATA / "clinic.yaml").read_text(encoding="utf-8"))
    stated["privacy"] |= {"epsilon": min(epsilon, 100.0), "shares": SHARES}
    return LinkedSpec.model_validate(stated | {"estimands": ASKED})


def sealed(spec: LinkedSpec, frame: VisitFrame, tables: Tables) -> LinkedTable:
    """Both tables as they are counted."""
    read = dict(zip(("persons", "visits"), tables, strict=True))
    texts = {n: t.astype(object).where(t.notna() & (t != ""), None) for n, t in read.items()}
    columns = {name: Domain.from_spec(own) for name, own in spec.columns.items()}
    rng = np.random.default_rng()
    return fit_linked(spec, frame, texts, columns, {}, holdout=0.0, rng=rng)


def noisy(spec: LinkedSpec, frame: VisitFrame, table: LinkedTable, plan: ReleasePlan) -> Any:
    """The tables of levels and of both effects, by purpose."""
    looks = Looks(Rehearsal.of(table, plan), spec, frame)
    looks.estimands()
    return looks.seen.value


@dataclass(frozen=True)
class Population:
    """Many visits: their treatment, what each effect is, and levels of what is adjusted for."""

    drug: npt.NDArray[np.int64]
    effects: Mapping[str, Floats]
    followed: npt.NDArray[np.bool_]
    later: npt.NDArray[np.bool_]
    levels: Mapping[str, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, spec: LinkedSpec, frame: VisitFrame, persons: int) -> Population:
        """A population whose probabilities are known."""
        people, visits = clinic(persons, seed=0)
        whole = visits.merge(people, on="person_id")
        days = whole["date"].to_numpy("datetime64[D]").astype(float)
        born = whole["birth"].to_numpy("datetime64[D]").astype(float)
        same = whole["person_id"].to_numpy()[1:] == whole["person_id"].to_numpy()[:-1]
        later, followed = np.append(False, same), np.append(same, False)
        first = np.maximum.accumulate(np.where(later, 0, np.arange(len(whole))))
        age = (days - born)[first]
        assert frame.age is not None
        domain = Domain.from_spec(spec.columns["visits"])
        smoker = pd.Categorical(whole["smoker"], ["never", "former", "current"]).codes.astype(int)
        stage, bp = whole["stage"].to_numpy(int), whole["bp"].to_numpy(float)
        levels = {
            "visits.stage": stage,
            "visits.bp": levels_between(domain["bp"], bp),
            "persons.smoker": smoker,
            "persons.age": levels_between(frame.age, age),
        }
        need = 0.03 * (bp - 130) + 0.6 * stage - 3.2
        worst = [_worst(stage, age / 365.25, smoker == 2, drug) for drug in (1, 0)]
        effects = {
            "visits.admitted": expit(need - 0.7) - expit(need),
            "visits[+1].stage": worst[0] - worst[1],
        }
        return cls(whole["drug"].to_numpy(int), effects, followed, later, levels)

    def truth(self, outcome: str, table: NoisyTable, groups: LevelGroups) -> float:
        """The effect on an outcome where both arms overlap, in the strata of a table."""
        kept = self.followed if "+1" in outcome else self.later
        cells = np.zeros(kept.sum(), np.int64)
        for name in table.columns[2:]:
            shown = name.replace("[-1]", "")
            own = groups.group_of(name)[self.levels[shown][kept]]
            cells = cells * (int(own.max()) + 1) + own
        drug = self.drug[kept]
        n = [np.bincount(cells, drug == a, minlength=int(cells.max()) + 1) for a in (0, 1)]
        mean = np.bincount(cells, self.effects[outcome][kept], len(n[0])) / np.maximum(sum(n), 1)
        weights = n[0] * n[1] / np.maximum(n[0] + n[1], 1)
        return float(weights @ mean / weights.sum())


def _worst(stage: Any, age: Any, smokes: Any, drug: int) -> Floats:
    """The probability that stage 3 is next."""
    levels = np.arange(4)[None, :]
    worse = (levels > stage[:, None]) * (0.3 * smokes + 0.015 * (age - 58) - 0.8 * drug)[:, None]
    found: Floats = softmax(worse - 1.6 * np.abs(levels - stage[:, None]), axis=1)[:, 3]
    return found


def figures(
    spec: LinkedSpec, frame: VisitFrame, tables: Any, people: Population
) -> list[dict[str, Any]]:
    """The figure where both arms overlap of each effect, beside the truth."""
    found = []
    told = estimands_json(spec, frame, tables)["estimands"]
    as_one = {
        purpose: tuple(replace(t, sigma=t.sigma / (frame.most - 1)) for t in own)
        for purpose, own in tables.items()
    }
    naive = estimands_json(spec, frame, as_one)["estimands"]
    for i, (one, other) in enumerate(zip(told, naive, strict=True)):
        (table,) = tables[f"estimand: {i + 1}"]
        groups = LevelGroups(frame.views["steps"], table.starts)
        truth = people.truth(one["outcome"], table, groups)
        figure, bare = one["contrasts"][-1], other["contrasts"][-1]
        ends = figure.get("interval") or (math.nan, math.nan)
        wrong = bare.get("interval") or (math.nan, math.nan)
        found.append(
            {
                "outcome": one["outcome"],
                "truth": truth,
                "estimate": figure.get("estimate", math.nan),
                "low": ends[0],
                "high": ends[1],
                "covers": float(ends[0] <= truth <= ends[1]),
                "one_row": float(wrong[0] <= truth <= wrong[1]),
                "refused": float("refused" in figure),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0, math.inf])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--persons", type=int, default=10_000)
    args = parser.parse_args()
    specs = {f"{epsilon:g}": spec_with(epsilon) for epsilon in args.epsilon}
    spec = next(iter(specs.values()))
    frame = VisitFrame.from_spec(spec)
    plans = {name: plan_linked(own, frame) for name, own in specs.items()}
    if "inf" in plans:
        plans["inf"] = plans["inf"].map(lambda purpose, look: look.scaled(1e-4))
    people, rows = Population.of(spec, frame, 300_000), list[dict[str, Any]]()
    for run in range(args.runs):
        table = sealed(spec, frame, clinic(args.persons, seed=1000 + run))
        for name, own in specs.items():
            tables = noisy(own, frame, table, plans[name])
            rows += [{"epsilon": name} | told for told in figures(own, frame, tables, people)]
        pd.DataFrame(rows).round(5).to_csv(RESULTS, index=False)
    found = pd.DataFrame(rows)
    found["error"], found["width"] = (
        found["estimate"] - found["truth"],
        found["high"] - found["low"],
    )
    by = found.groupby(["outcome", "epsilon"])
    print(by.agg("mean", numeric_only=True).round(4).to_string())
    print(by["error"].agg(["std", "size"]).round(4).to_string())


if __name__ == "__main__":
    main()
