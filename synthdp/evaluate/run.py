"""Judging a synthetic table against the real one: pure functions of both, for the steward alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.evaluate.effects import EffectRow, compare_effects
from synthdp.evaluate.fidelity import FidelityReport, fidelity, noisy_tv1
from synthdp.evaluate.independences import IndependenceReport, compare_independences
from synthdp.evaluate.inference import CoverageRow, coverage
from synthdp.evaluate.pair_plot import PairPlot, association, grid, most_connected, pair_plot
from synthdp.evaluate.random_targets import CLASSIFIERS, PaperReport, random_targets, summarize
from synthdp.evaluate.subgroups import SubgroupRow, group_columns, subgroups
from synthdp.evaluate.two_sample import TwoSampleRow, two_sample
from synthdp.evaluate.utility import UtilityReport, UtilityRow, trainings, utility
from synthdp.progress import Advance, Steps, unheard

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.graph.causal import CausalGraph
    from synthdp.spec.model import Column, Evaluation

ANALYSES = 6  # steps of an analyst
PAIR_ROWS = 5000  # that say which columns are the most connected

__all__ = [
    "EvaluationReport",
    "FidelityReport",
    "UtilityReport",
    "UtilityRow",
    "evaluate",
    "fidelity",
    "noisy_tv1",
    "utility",
]


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """Everything computed on real rows. `floor` compares held-out with training rows: what perfect
    sampling would reach.

    `fidelity` is None where a table has no rows, `floor` where nothing was held out, `paper` where
    the spec does not ask for the long
    protocol, `independences` without a graph. `pairs`: pair plots of the same columns of real and
    of synthetic rows.
    """

    fidelity: FidelityReport | None
    floor: FidelityReport | None
    utility: UtilityReport
    seconds: Mapping[str, float]
    paper: PaperReport | None = None
    two_sample: tuple[TwoSampleRow, ...] = ()
    coverage: tuple[CoverageRow, ...] = ()
    subgroups: tuple[SubgroupRow, ...] = ()
    effects: tuple[EffectRow, ...] = ()
    independences: IndependenceReport | None = None
    pairs: tuple[PairPlot, PairPlot] | None = None

    def metrics(self) -> dict[str, float]:
        """The figures that gates and tracking know: tv1, tv2, tv3, tstr_auc, tstr_ratio, those that
        are available.
        """
        found: dict[str, float | None] = {
            "tv1": self.fidelity.tv1 if self.fidelity else None,
            "tv2": self.fidelity.tv2 if self.fidelity else None,
            "tv3": self.fidelity.tv3 if self.fidelity else None,
            "tstr_auc": self.utility.mean_auc_synthetic,
            "tstr_ratio": self.utility.tstr_ratio,
        }
        return {name: value for name, value in found.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "metrics": self.metrics(),
            "fidelity": self.fidelity.to_json() if self.fidelity else None,
            "floor": {
                "tv1": self.floor.tv1,
                "tv2": self.floor.tv2,
                "tv3": self.floor.tv3,
                "by_column": dict(self.floor.by_column),
            }
            if self.floor
            else None,
            "utility": self.utility.to_json(),
            "paper": self.paper.to_json() if self.paper else None,
            "two_sample": [row.to_json() for row in self.two_sample],
            "coverage": [row.to_json() for row in self.coverage],
            "subgroups": [row.to_json() for row in self.subgroups],
            "effects": [row.to_json() for row in self.effects],
            "independences": self.independences.to_json() if self.independences else None,
            "pairs": dict(
                zip(("real", "synthetic"), (plot.to_json() for plot in self.pairs), strict=True)
            )
            if self.pairs
            else None,
            "seconds": dict(self.seconds),
        }


def evaluate(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    domain: Domain,
    settings: Evaluation,
    rng: np.random.Generator,
    codes: tuple[Codes, Codes, Codes] | None = None,
    graph: CausalGraph | None = None,
    columns: Mapping[str, Column] | None = None,
    progress: Advance = unheard,
) -> EvaluationReport:
    """Fidelity against the training rows, TSTR and TRTR on the held-out rows, and what an analyst
    would find.

    The frames hold values; `codes` are the levels of the three frames in the same order, shape
    `[rows, columns]` each, and are encoded here where the caller has none. Causal utility needs the
    `graph`, and effects the spec's `columns`. `progress` hears of each step by name.
    """
    started = time.perf_counter()
    levels = codes or tuple(
        encode(domain, frame)[0] for frame in (real_train, real_test, synthetic)
    )
    train, test, drawn = levels
    drawn_targets = random_targets(domain, settings.random_targets)
    learning = [
        *trainings(domain, settings.targets, settings.classifiers),
        *trainings(domain, drawn_targets, CLASSIFIERS),
    ]
    steps = Steps(2 + len(learning) + ANALYSES, progress)
    steps.begin("fidelity")
    near = (
        fidelity(train, drawn, domain, triples=settings.triples)
        if len(train) and len(drawn)
        else None
    )
    steps.begin("fidelity of held-out rows")
    floor = (
        fidelity(train, test, domain, triples=settings.triples)
        if len(train) and len(test)
        else None
    )
    compared = time.perf_counter()
    useful, paper = _learning(real_train, real_test, synthetic, domain, settings, rng, steps)
    learnt = time.perf_counter()
    tables = (real_train, train), (real_test, test), (synthetic, drawn)
    analysed = _Analysis(domain, settings, tables, steps).report(
        EvaluationReport(near, floor, useful, {}, paper), rng, graph, columns
    )
    seconds = {
        "fidelity": compared - started,
        "utility": learnt - compared,
        "analysis": time.perf_counter() - learnt,
    }
    return replace(analysed, seconds=seconds)


def _learning(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    domain: Domain,
    settings: Evaluation,
    rng: np.random.Generator,
    steps: Steps,
) -> tuple[UtilityReport, PaperReport | None]:
    """Learners on the spec's targets, and the long protocol where it is asked for."""

    def judged(targets: Sequence[str], classifiers: Sequence[str]) -> UtilityReport:
        return utility(
            real_train,
            real_test,
            synthetic,
            domain=domain,
            targets=targets,
            classifiers=classifiers,
            max_rows=settings.max_rows,
            rng=rng,
            begin=steps.begin,
        )

    useful = judged(settings.targets, settings.classifiers)
    drawn = random_targets(domain, settings.random_targets)
    return useful, summarize(drawn, judged(drawn, CLASSIFIERS)) if drawn else None


@dataclass(frozen=True, eq=False)
class _Analysis:
    """What an analyst does with a table, on training, held-out and synthetic rows: values and
    levels of each.
    """

    domain: Domain
    settings: Evaluation
    tables: tuple[
        tuple[pd.DataFrame, Codes], tuple[pd.DataFrame, Codes], tuple[pd.DataFrame, Codes]
    ]
    steps: Steps

    def report(
        self,
        so_far: EvaluationReport,
        rng: np.random.Generator,
        graph: CausalGraph | None,
        columns: Mapping[str, Column] | None,
    ) -> EvaluationReport:
        """`so_far` with everything else; nothing where a table has no rows to analyse."""
        real, held_out, synthetic = self.tables
        if not len(real[1]) or not len(synthetic[1]):
            return so_far
        run = self.steps.run
        groups = group_columns(self.domain, self.settings.subgroups)
        target = next((t for t in self.settings.targets if not self.domain[t].ranged), None)
        return replace(
            so_far,
            two_sample=run(
                "two-sample test",
                lambda: two_sample(real[0], held_out[0], synthetic[0], domain=self.domain, rng=rng),
            ),
            coverage=run(
                "coverage of intervals",
                lambda: coverage(real, held_out, synthetic, domain=self.domain),
            ),
            subgroups=run(
                "subgroups",
                lambda: subgroups(
                    real,
                    held_out,
                    synthetic,
                    domain=self.domain,
                    columns=groups,
                    target=target,
                    rng=rng,
                ),
            ),
            effects=run(
                "effects",
                lambda: compare_effects(
                    real,
                    synthetic,
                    self.settings.effects,
                    columns=columns,
                    domain=self.domain,
                    graph=graph,
                ),
            )
            if graph is not None and columns is not None
            else (),
            independences=run(
                "independences",
                lambda: compare_independences(
                    real[1], synthetic[1], domain=self.domain, graph=graph, rng=rng
                ),
            )
            if graph is not None
            else None,
            pairs=run("pair plots", self._pairs),
        )

    def _pairs(self) -> tuple[PairPlot, PairPlot] | None:
        """The same few columns of both tables; which they are, and how they are cut, synthetic rows
        say alone.
        """
        drawn, names = self.tables[2][1], self.domain.names
        if len(names) < 2:
            return None
        chosen = most_connected(
            names,
            association(*grid(self.domain, drawn[:PAIR_ROWS], drawn)),
            first=self.settings.targets,
        )
        real, synthetic = (
            pair_plot(self.domain, table, chosen, like=drawn)
            for table in (self.tables[0][1], drawn)
        )
        return real, synthetic
