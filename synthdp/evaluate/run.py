"""Evaluation of a synthetic table against the real one: pure functions, confidential results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.evaluate.effects import CoverageRow, EffectRow, compare_effects, coverage
from synthdp.evaluate.fidelity import (
    FidelityReport,
    PairPlot,
    association,
    fidelity,
    grid,
    most_connected,
    pair_plot,
)
from synthdp.evaluate.independences import IndependenceReport, compare_independences
from synthdp.evaluate.learners import PAPER_CLASSIFIERS, PaperReport, random_targets, summarize
from synthdp.evaluate.subgroups import (
    SubgroupRow,
    TwoSampleRow,
    group_columns,
    subgroups,
    two_sample,
)
from synthdp.evaluate.utility import UtilityReport, trainings, utility
from synthdp.progress import Advance, Steps, unheard

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.graph.causal import CausalGraph
    from synthdp.spec.model import Column, Evaluation

# Steps of `_Analysis`.
GROUPED = TWO_SAMPLE, COVERAGE, SUBGROUPS = "two-sample test", "coverage of intervals", "subgroups"
CAUSAL = EFFECTS, INDEPENDENCES = "effects", "independences"
PAIR_PLOTS = "pair plots"
ANALYSES = len(GROUPED) + len(CAUSAL) + 1
PAIR_ROWS = 5000  # from which the most connected columns are estimated


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """Everything computed on real rows.

    `floor` compares held-out with training rows, which is what perfect sampling would reach, and
    `equal` as many synthetic ones, since chance alone moves small samples further. `fidelity` is
    None where a table has no rows, `floor` and `equal` where no rows were held out, `paper` where
    the spec does not ask for random targets, `independences` without a graph. `pairs` are pair
    plots of the same columns of real and of synthetic rows.
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
    equal: FidelityReport | None = None

    def metrics(self) -> dict[str, float]:
        """The figures that gates and tracking know, where they are available.

        They are tv1, tv2, tv3, tstr_auc and tstr_ratio.
        """
        figures: dict[str, float | None] = {}
        if self.fidelity:
            near = self.fidelity
            figures |= {"tv1": near.tv1, "tv2": near.tv2, "tv3": near.tv3}
        figures["tstr_auc"] = self.utility.mean_auc_synthetic
        figures["tstr_ratio"] = self.utility.tstr_ratio
        return {name: value for name, value in figures.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        pairs = None
        if self.pairs:
            real, synthetic = self.pairs
            pairs = {"real": real.to_json(), "synthetic": synthetic.to_json()}
        return {
            "metrics": self.metrics(),
            "fidelity": self.fidelity.to_json() if self.fidelity else None,
            "floor": _distances(self.floor),
            "equal": _distances(self.equal),
            "utility": self.utility.to_json(),
            "paper": self.paper.to_json() if self.paper else None,
            "two_sample": [row.to_json() for row in self.two_sample],
            "coverage": [row.to_json() for row in self.coverage],
            "subgroups": [row.to_json() for row in self.subgroups],
            "effects": [row.to_json() for row in self.effects],
            "independences": self.independences.to_json() if self.independences else None,
            "pairs": pairs,
            "seconds": dict(self.seconds),
        }


def _distances(near: FidelityReport | None) -> dict[str, Any] | None:
    """The distances of a report as plain values."""
    if near is None:
        return None
    return {
        "tv1": near.tv1,
        "tv2": near.tv2,
        "tv3": near.tv3,
        "by_column": dict(near.by_column),
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
    """Fidelity, utility (TSTR and TRTR), and the analyses of an analyst.

    The frames hold values. `codes` are the levels of the three frames in the same order, shape
    `[rows, columns]` each; they are encoded here where the caller has none. Independences need the
    `graph`, and effects also the spec's `columns`. `progress` is called at each step with its name.
    """
    started = time.perf_counter()
    frames = (real_train, real_test, synthetic)
    train, test, drawn = codes or tuple(encode(domain, frame)[0] for frame in frames)
    names = [
        *trainings(domain, settings.targets, settings.classifiers),
        *trainings(domain, random_targets(domain, settings.random_targets), PAPER_CLASSIFIERS),
    ]
    steps = Steps(2 + len(names) + ANALYSES, progress)
    steps.begin("fidelity")
    near = _fidelity(train, drawn, domain, settings)
    steps.begin("fidelity of held-out rows")
    size = min(len(test), len(drawn))
    floor = _fidelity(train, _some(test, size, rng), domain, settings)
    equal = _fidelity(train, _some(drawn, size, rng), domain, settings)
    compared = time.perf_counter()
    useful, paper = _learning(real_train, real_test, synthetic, domain, settings, rng, steps)
    learnt = time.perf_counter()
    tables = (real_train, train), (real_test, test), (synthetic, drawn)
    analysed = _Analysis(domain, settings, tables, steps).report(
        EvaluationReport(near, floor, useful, {}, paper, equal=equal), rng, graph, columns
    )
    seconds = {
        "fidelity": compared - started,
        "utility": learnt - compared,
        "analysis": time.perf_counter() - learnt,
    }
    return replace(analysed, seconds=seconds)


def _fidelity(
    first: Codes, second: Codes, domain: Domain, settings: Evaluation
) -> FidelityReport | None:
    """Fidelity of two tables of levels `[rows, columns]`; None where a table has no rows."""
    if not len(first) or not len(second):
        return None
    return fidelity(first, second, domain, triples=settings.triples)


def _some(codes: Codes, size: int, rng: np.random.Generator) -> Codes:
    """`size` of the rows of levels `[rows, columns]`, at random."""
    return codes if len(codes) == size else codes[rng.permutation(len(codes))[:size]]


def _learning(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    domain: Domain,
    settings: Evaluation,
    rng: np.random.Generator,
    steps: Steps,
) -> tuple[UtilityReport, PaperReport | None]:
    """Learners on the spec's targets, and on random targets where the spec asks for them."""

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
    if not drawn:
        return useful, None
    return useful, summarize(drawn, judged(drawn, PAPER_CLASSIFIERS))


@dataclass(frozen=True, eq=False)
class _Analysis:
    """The analyses of an analyst, on training, held-out and synthetic rows.

    Each table is values and levels.
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
        """`so_far` with all analyses; unchanged where a table has no rows to analyse.

        Their names are told all the same: leaving them out would reveal that there are none.
        """
        real, held_out, synthetic = self.tables
        domain, begin = self.domain, self.steps.begin
        if not len(real[1]) or not len(synthetic[1]):
            causal = CAUSAL if columns is not None else (INDEPENDENCES,)
            for name in (*GROUPED, *(causal if graph is not None else ()), PAIR_PLOTS):
                begin(name)
            return so_far
        begin(TWO_SAMPLE)
        separated = two_sample(real[0], held_out[0], synthetic[0], domain=domain, rng=rng)
        begin(COVERAGE)
        covered = coverage(real, held_out, synthetic, domain=domain)
        begin(SUBGROUPS)
        groups = subgroups(
            real,
            held_out,
            synthetic,
            domain=domain,
            columns=group_columns(domain, self.settings.subgroups),
            target=next((t for t in self.settings.targets if not domain[t].ranged), None),
            rng=rng,
        )
        report = replace(so_far, two_sample=separated, coverage=covered, subgroups=groups)
        if graph is not None:
            report = self._causal(report, rng, graph, columns)
        begin(PAIR_PLOTS)
        return replace(report, pairs=self._pairs())

    def _causal(
        self,
        so_far: EvaluationReport,
        rng: np.random.Generator,
        graph: CausalGraph,
        columns: Mapping[str, Column] | None,
    ) -> EvaluationReport:
        """`so_far` with effects, where the spec's `columns` are given, and independences."""
        real, _, synthetic = self.tables
        effects: tuple[EffectRow, ...] = ()
        if columns is not None:
            self.steps.begin(EFFECTS)
            effects = compare_effects(
                real,
                synthetic,
                self.settings.effects,
                columns=columns,
                domain=self.domain,
                graph=graph,
            )
        self.steps.begin(INDEPENDENCES)
        implied = compare_independences(
            real[1], synthetic[1], domain=self.domain, graph=graph, rng=rng
        )
        return replace(so_far, effects=effects, independences=implied)

    def _pairs(self) -> tuple[PairPlot, PairPlot] | None:
        """Pair plots of the same few columns of both tables.

        The synthetic rows alone decide which columns these are, and how their levels are merged.
        """
        drawn, names = self.tables[2][1], self.domain.names
        if len(names) < 2:
            return None
        strengths = association(*grid(self.domain, drawn[:PAIR_ROWS], drawn))
        chosen = most_connected(names, strengths, first=self.settings.targets)
        real = pair_plot(self.domain, self.tables[0][1], chosen, like=drawn)
        return real, pair_plot(self.domain, drawn, chosen, like=drawn)
