"""Evaluation of a synthetic table against the real one: pure functions, confidential results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.evaluate import fidelity as tables
from synthdp.evaluate import subgroups as groups
from synthdp.evaluate.effects import (
    CoverageRow,
    EffectRow,
    IndependenceReport,
    compare_effects,
    compare_independences,
    coverage,
)
from synthdp.evaluate.fidelity import FidelityReport, PairPlot, fidelity
from synthdp.evaluate.learners import PAPER_CLASSIFIERS, PaperReport, random_targets, summarize
from synthdp.evaluate.utility import SIDES, UtilityReport, trainings, utility
from synthdp.progress import Advance, Steps, unheard

if TYPE_CHECKING:
    import pandas as pd

    from synthdp.graph.causal import CausalGraph
    from synthdp.spec.model import Column, Evaluation

ANALYSES = ("two-sample test", "coverage of intervals", "subgroups")
CAUSAL = ("effects", "independences")
PAIR_PLOTS = "pair plots"

Rows = tuple["pd.DataFrame", Codes]
"""A table as values and as levels `[rows, columns]`."""


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
    two_sample: tuple[groups.TwoSampleRow, ...] = ()
    coverage: tuple[CoverageRow, ...] = ()
    subgroups: tuple[groups.SubgroupRow, ...] = ()
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

    @property
    def told_apart(self) -> groups.TwoSampleRow | None:
        """The classifier that tells synthetic rows from real ones best."""
        rows = (r for r in self.two_sample if r.compared == "synthetic from real")
        return max(rows, key=lambda r: r.auc, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics(),
            "fidelity": self.fidelity.to_json() if self.fidelity else None,
            "floor": self.floor.distances() if self.floor else None,
            "equal": self.equal.distances() if self.equal else None,
            "utility": self.utility.to_json(),
            "paper": self.paper.to_json() if self.paper else None,
            "two_sample": list(map(asdict, self.two_sample)),
            "coverage": list(map(asdict, self.coverage)),
            "subgroups": list(map(asdict, self.subgroups)),
            "effects": [row.to_json() for row in self.effects],
            "independences": self.independences.to_json() if self.independences else None,
            "pairs": dict(zip(SIDES, (p.to_json() for p in self.pairs), strict=True))
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
    steps = Steps(2 + len(names) + len((*ANALYSES, *CAUSAL, PAIR_PLOTS)), progress)
    steps.begin("fidelity")
    near = _fidelity(train, drawn, domain, settings)
    steps.begin("fidelity of held-out rows")
    size = min(len(test), len(drawn))
    floor = _fidelity(train, _some(test, size, rng), domain, settings)
    equal = _fidelity(train, _some(drawn, size, rng), domain, settings)
    compared = time.perf_counter()
    judge = partial(
        utility, *frames, domain=domain, max_rows=settings.max_rows, rng=rng, begin=steps.begin
    )
    useful = judge(targets=settings.targets, classifiers=settings.classifiers)
    chosen, paper = random_targets(domain, settings.random_targets), None
    if chosen:
        paper = summarize(chosen, judge(targets=chosen, classifiers=PAPER_CLASSIFIERS))
    learnt = time.perf_counter()
    report = EvaluationReport(near, floor, useful, {}, paper, equal=equal)
    if len(train) and len(drawn):
        rows = (real_train, train), (real_test, test), (synthetic, drawn)
        report = _analysed(report, rows, domain, settings, rng, graph, columns, steps.begin)
    else:  # told all the same: leaving names out would reveal that there are no rows
        causal = () if graph is None else CAUSAL if columns is not None else CAUSAL[1:]
        for name in (*ANALYSES, *causal, PAIR_PLOTS):
            steps.begin(name)
    seconds = {
        "fidelity": compared - started,
        "utility": learnt - compared,
        "analysis": time.perf_counter() - learnt,
    }
    return replace(report, seconds=seconds)


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


def _analysed(
    so_far: EvaluationReport,
    rows: tuple[Rows, Rows, Rows],
    domain: Domain,
    settings: Evaluation,
    rng: np.random.Generator,
    graph: CausalGraph | None,
    columns: Mapping[str, Column] | None,
    begin: Callable[[str], None],
) -> EvaluationReport:
    """`so_far` with an analyst's results; independences need the graph, effects `columns`, too."""
    real, held_out, synthetic = rows
    begin(ANALYSES[0])
    separated = groups.two_sample(real[0], held_out[0], synthetic[0], domain=domain, rng=rng)
    begin(ANALYSES[1])
    covered = coverage(real, held_out, synthetic, domain=domain)
    begin(ANALYSES[2])
    small = groups.subgroups(
        *(real, held_out, synthetic),
        domain=domain,
        columns=groups.group_columns(domain, settings.subgroups),
        target=next((t for t in settings.targets if not domain[t].ranged), None),
        rng=rng,
    )
    report = replace(so_far, two_sample=separated, coverage=covered, subgroups=small)
    if graph is not None and columns is not None:
        begin(CAUSAL[0])
        effects = compare_effects(
            real, synthetic, settings.effects, columns=columns, domain=domain, graph=graph
        )
        report = replace(report, effects=effects)
    if graph is not None:
        begin(CAUSAL[1])
        implied = compare_independences(real[1], synthetic[1], domain=domain, graph=graph, rng=rng)
        report = replace(report, independences=implied)
    begin(PAIR_PLOTS)
    return replace(report, pairs=_pairs(real[1], synthetic[1], domain, settings.targets))


def _pairs(
    real: Codes, drawn: Codes, domain: Domain, targets: Sequence[str]
) -> tuple[PairPlot, PairPlot] | None:
    """Pair plots of the same few columns of both tables, which synthetic rows alone decide."""
    if len(domain) < 2:
        return None
    strengths = tables.association(*tables.grid(domain, drawn[:5000], drawn))
    chosen = tables.most_connected(domain.names, strengths, first=targets)
    first, second = (tables.pair_plot(domain, codes, chosen, like=drawn) for codes in (real, drawn))
    return first, second
