"""Evaluation of a synthetic table against the real one: pure functions, confidential results.

Fidelity and accuracy within small groups, where noise and smoothing act most.

A mean over all rows does not show them. A group is one category of a column that the spec names; by
default of the few columns with the fewest categories.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, encode
from synthdp.evaluate import fidelity as tables
from synthdp.evaluate import utility as learnt
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
from synthdp.evaluate.utility import SIDES, Features, UtilityReport, trainings, utility
from synthdp.graph.causal import CausalGraph
from synthdp.progress import Advance, Steps, unheard
from synthdp.spec.model import Column, Evaluation

if TYPE_CHECKING:
    import pandas as pd

Right = tuple[npt.NDArray[np.bool_], ...]


@dataclass(frozen=True)
class SubgroupRow:
    """One group; figures are None where there are too few rows.

    `tv1` is the mean total variation of the other columns within the group, `floor` that of
    held-out real rows. `accuracy_*` are on held-out rows of the group, for the spec's first target,
    after training on all real and on all synthetic rows.
    """

    column: str
    level: str
    share_real: float
    share_synthetic: float
    tv1: float | None
    floor: float | None
    accuracy_real: float | None
    accuracy_synthetic: float | None


def group_columns(domain: Domain, named: Sequence[str]) -> tuple[str, ...]:
    """The columns whose categories are groups: those `named`, or three with the fewest, 2 to 8."""
    if named:
        return tuple(named)
    small = [c for c in domain.columns if not c.ranged and 2 <= c.levels <= 8]
    return tuple(c.name for c in sorted(small, key=lambda c: c.levels)[:3])


def by_group(
    real: tuple[pd.DataFrame, Codes],
    held_out: tuple[pd.DataFrame, Codes],
    synthetic: tuple[pd.DataFrame, Codes],
    *,
    domain: Domain,
    columns: Sequence[str],
    target: str | None,
    rng: np.random.Generator,
) -> tuple[SubgroupRow, ...]:
    """Every group, smallest real share first; each table is values and levels `[rows, columns]`.

    `target` is a column of categories, or None.
    """
    if not len(real[1]) or not len(synthetic[1]):
        return ()
    right = None
    if target and len(held_out[0]):
        right = _predicted_right(real[0], held_out[0], synthetic[0], domain, target, rng)
    rows: list[SubgroupRow] = []
    for name in columns:
        at = domain.index(name)
        for level, label in enumerate(domain[name].labels):
            one, two = (codes[codes[:, at] == level] for codes in (real[1], synthetic[1]))
            inside = held_out[1][:, at] == level
            shares = len(one) / len(real[1]), len(two) / len(synthetic[1])
            distances = (_tv1(one, other, domain, at) for other in (two, held_out[1][inside]))
            accuracies: list[float | None] = [None, None]
            if right is not None and inside.sum() >= 20:  # else too few to estimate an accuracy
                accuracies = [float(side[inside].mean()) for side in right]
            rows.append(SubgroupRow(name, label, *shares, *distances, *accuracies))
    return tuple(sorted(rows, key=lambda row: row.share_real))


def _tv1(a: Codes, b: Codes, domain: Domain, without: int) -> float | None:
    """Mean total variation of all other columns; None where a side has no rows."""
    others = [i for i in range(len(domain)) if i != without]
    if not len(a) or not len(b) or not others:
        return None
    distances = []
    for i in others:
        shares_a = np.bincount(a[:, i], minlength=domain.sizes[i]) / len(a)
        shares_b = np.bincount(b[:, i], minlength=domain.sizes[i]) / len(b)
        distances.append(0.5 * np.abs(shares_a - shares_b).sum())
    return float(np.mean(distances))


def _predicted_right(
    real: pd.DataFrame,
    held_out: pd.DataFrame,
    synthetic: pd.DataFrame,
    domain: Domain,
    target: str,
    rng: np.random.Generator,
) -> Right | None:
    """Which held-out rows are predicted right, shape `[held-out rows]` for each side.

    The first side is trained on real rows, the second on synthetic rows. None where there is no
    other column to predict from.
    """
    from synthdp.evaluate.learners import CLASSIFIERS, class_scores

    names = [n for n in domain.names if n != target]
    if not names:
        return None
    settings: dict[str, Any] = {
        "classes": domain[target].levels,
        "mask": learnt.category_mask(domain, names),
    }
    seed = int(rng.integers(2**31))
    test = learnt.join([*learnt.build_features(domain, held_out, names).values()])
    truth = learnt.target_levels(domain[target], held_out[target])
    right = []
    for frame in (real, synthetic):
        chosen = frame.iloc[rng.permutation(len(frame))[:10_000]]
        train = learnt.join([*learnt.build_features(domain, chosen, names).values()])
        labels = learnt.target_levels(domain[target], chosen[target])
        learner = CLASSIFIERS["logistic"]
        trained = class_scores(learner, train, labels, test, seed=seed, **settings)
        right.append(trained.output.argmax(axis=1) == truth)
    return tuple(right)


# --- classifier two-sample test ---


@dataclass(frozen=True)
class TwoSampleRow:
    """AUC of one classifier on rows it was not trained on, with its 95% interval.

    `compared` names the two kinds of rows.
    """

    compared: str
    classifier: str
    auc: float
    low: float
    high: float


def two_sample(
    real_train: pd.DataFrame,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    domain: Domain,
    rng: np.random.Generator,
    min_rows: int = 40,
    max_rows: int = 5000,
) -> tuple[TwoSampleRow, ...]:
    """Can a classifier separate held-out real rows from synthetic ones, and from training rows?

    AUC .5 is guessing; the second test is the best that a table can reach. Source: D. Lopez-Paz and
    M. Oquab, "Revisiting Classifier Two-Sample Tests", ICLR 2017. At most `max_rows` rows of each
    table are used; the result is empty where one has fewer than `min_rows`. Both tests use equally
    many rows of each kind, so that they can be compared with each other.
    """
    size = min(max_rows, *map(len, (real_train, real_test, synthetic)))
    if size < min_rows:
        return ()
    held_out, drawn, trained_on = (
        learnt.join([*learnt.build_features(domain, chosen, domain.names).values()])
        for frame in (real_test, synthetic, real_train)
        for chosen in (frame.iloc[rng.permutation(len(frame))[:size]],)
    )
    mask, rows = learnt.category_mask(domain, domain.names), []
    for name, other in (("synthetic from real", drawn), ("real from real", trained_on)):
        for learner in ("logistic", "boosted_trees"):
            scores, truth = _separated(
                learner, held_out, other, mask, seed=int(rng.integers(2**31))
            )
            weights = learnt.resample_weights(len(truth), 200, rng=rng)
            resampled = learnt.auc(scores, truth == 1, weights)
            low, high = np.nanquantile(resampled[1:], (0.025, 0.975))
            rows.append(TwoSampleRow(name, learner, float(resampled[0]), float(low), float(high)))
    return tuple(rows)


def _separated(
    name: str, real: Features, other: Features, mask: npt.NDArray[np.bool_], *, seed: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Train on half of the rows of each kind; scores and labels of the other half."""
    from synthdp.evaluate.learners import CLASSIFIERS, class_scores

    half, learner = len(real) // 2, CLASSIFIERS[name]
    both = Features(np.vstack([real.wide, other.wide]), np.vstack([real.narrow, other.narrow]))
    label = np.repeat([0, 1], [len(real), len(other)])  # 0 is real
    trains = np.concatenate([np.arange(len(own)) < half for own in (real, other)])
    train, test = (both.take(np.flatnonzero(rows)) for rows in (trains, ~trains))
    settings: dict[str, Any] = {"classes": 2, "mask": mask, "seed": seed}
    trained = class_scores(learner, train, label[trains], test, **settings)
    return trained.output[:, 1], label[~trains]


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

    @property
    def told_apart(self) -> TwoSampleRow | None:
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
    separated = two_sample(real[0], held_out[0], synthetic[0], domain=domain, rng=rng)
    begin(ANALYSES[1])
    covered = coverage(real, held_out, synthetic, domain=domain)
    begin(ANALYSES[2])
    small = by_group(
        *(real, held_out, synthetic),
        domain=domain,
        columns=group_columns(domain, settings.subgroups),
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
    if len(domain) < 2:
        return report
    drawn = synthetic[1]  # synthetic rows alone decide which columns are shown
    strengths = tables.association(*tables.grid(domain, drawn[:5000], drawn))
    chosen = tables.most_connected(domain.names, strengths, first=settings.targets)
    first, second = (tables.pair_plot(domain, c, chosen, like=drawn) for c in (real[1], drawn))
    return replace(report, pairs=(first, second))
