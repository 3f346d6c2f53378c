"""Examples of every mechanism of the kernel, for any domain.

A new mechanism gets one function and one line in `EXAMPLES`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from synthdp.audit.mechanisms.recording import Kept
from synthdp.audit.mechanisms.small_model import SmallModel, stretched
from synthdp.audit.mechanisms.sum_examples import product_sums, stratum_sums
from synthdp.data.basis import MAX_LEVELS, Basis
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training
from synthdp.privacy.mechanisms.anm import SCORES, AdditiveNoiseScores
from synthdp.privacy.mechanisms.conditional_counts import RankQuery, variance_floor
from synthdp.privacy.mechanisms.frequent_texts import FrequentTexts, Reading, TextBudget
from synthdp.privacy.mechanisms.hsic import IndependenceBit
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    ChosenMarginals,
    Columns,
    NoisyMarginals,
)
from synthdp.privacy.mechanisms.mechanism import Mechanism
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.noisy_max import HowMany, Selection, SelectionBudget, Which
from synthdp.privacy.mechanisms.orientations import ChosenOrientations, OrientationBudget
from synthdp.privacy.mechanisms.pair_screen import ChosenScreen, PairScreen
from synthdp.privacy.mechanisms.pair_table import PairTable
from synthdp.privacy.mechanisms.product_sums import ProductSums
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankTest
from synthdp.privacy.mechanisms.scores import ScoreBudget, Scorecard, ScoreCounts
from synthdp.privacy.mechanisms.sparse_vector import (
    SparseVector,
    SparseVectorBudget,
    SparseVectorReply,
)
from synthdp.privacy.mechanisms.stratum_sums import StratumSums

Examples = Callable[[Domain], Sequence[Mechanism[Any]]]

BATCH = 8.0  # expected batch of the examples
STEPS = 3  # of a replayed training: batches with all, none and half of the unit's rows
MAX_CELLS = 10_000  # of tables that a replay chooses: larger ones take long and move no further


def _tables(domain: Domain) -> tuple[Columns, ...]:
    """Each column alone, and all pairs that are small."""
    pairs = [pair for pair in combinations(domain.names, 2) if domain.cells(pair) <= MAX_CELLS]
    return (*((name,) for name in domain.names), *pairs)


def no_ticks(done: int, total: int) -> None:
    """The replay listens in its place."""


def _noisy_marginals(domain: Domain) -> tuple[NoisyMarginals, ...]:
    tables = _tables(domain)
    one_way, scales = tables[: len(domain)], tuple(1.0 + (i % 2) for i in range(len(tables)))
    discrete = (
        NoisyMarginals(domain, one_way, 0.7),
        NoisyMarginals(domain, tables, 3.0, scales),
        NoisyMarginals(domain, tables[:1], 40.0),
    )
    return *discrete, NoisyMarginals(domain, tables, 3.0, scales, sampler="rounded")


def _chosen_marginals(domain: Domain) -> tuple[ChosenMarginals, ...]:
    choices = (_tables(domain), _tables(domain)[-1:], ())
    levels, groups = LevelGroups(domain, {}), _halves(domain)
    return tuple(
        AdaptiveMarginals(domain, noise).choose(tables, counted)
        for noise, counted in ((0.5, levels), (20.0, levels), (3.0, groups))
        for tables in choices
    )


def _screens(domain: Domain) -> tuple[ChosenScreen, ...]:
    """Of all pairs, one, three and none told; on groups of levels, less constants."""
    pairs = tuple(combinations(domain.names, 2))
    budgets = PairScreen(domain, 1, 0.6), PairScreen(domain, 3, 5.0)
    screens = [budget.choose(chosen) for budget in budgets for chosen in (pairs, ())]
    return *screens, budgets[1].choose(pairs, _halves(domain), range(len(pairs)))


def _halves(domain: Domain) -> LevelGroups:
    """Two groups of bins in each range, beside its spikes and the missing level."""
    starts = {}
    for column in domain.columns:
        spikes, bins = len(column.spikes), len(column.edges)
        if bins > 1:
            missing = [spikes + bins] if column.missing else []
            starts[column.name] = (*range(spikes + 1), spikes + bins // 2, *missing)
    return LevelGroups(domain, starts)


def _trainings(domain: Domain) -> tuple[Training, ...]:
    usual = DpSgd(
        rate=0.5,
        steps=STEPS,
        expected_batch=BATCH,
        clip=0.7,
        noise_multiplier=1.1,
        learning_rate=0.01,
        ema=0.9,
        checkpoint_every=2,
    )
    settings = (
        usual,
        replace(usual, rate=1.0, ema=0.0),
        replace(usual, clip=1e-3, noise_multiplier=20.0, steps=5),
        replace(usual, clip=1e3),
        replace(usual, sample=0.5),
    )
    trainings = [Training(chosen, SmallModel(domain), no_ticks, None) for chosen in settings]
    models = [
        SmallModel(domain, scale=1e-3),
        SmallModel(domain, scale=50.0),
        SmallModel(domain, scale=1e20),
        SmallModel(domain, ordered=True),
        SmallModel(domain, scale=50.0, ordered=True),
    ]
    trainings += [Training(usual, model, no_ticks, None) for model in models]
    groups = _one_group_of_bins(domain)
    on_groups = Training(usual, SmallModel(groups.coarse), no_ticks, None, groups=groups)
    return *trainings, on_groups, Training(usual, SmallModel(domain), no_ticks, Kept())


def _one_group_of_bins(domain: Domain) -> LevelGroups:
    """All bins of a column together; spikes and the missing level alone."""
    starts = {
        c.name: (*range(len(c.spikes) + 1), *([c.levels - 1] if c.missing else []))
        for c in domain.columns
        if c.ranged and c.edges
    }
    return LevelGroups(domain, starts)


def _moments(domain: Domain) -> tuple[Mechanism[Any], ...]:
    few = tuple(c.name for c in domain.columns if c.ranged or c.levels <= MAX_LEVELS)
    if not few:
        return ()
    matrices = []
    for basis in (Basis(domain, few), Basis(domain, few[:3], degree=3, interaction=2)):
        matrices.append(MomentMatrix(basis, basis.norm(deviations=2.0), 0.8))
        matrices.append(MomentMatrix(basis, basis.norm(deviations=1e9), 5.0))
    return tuple(matrices)


def _questions(domain: Domain) -> list[RankQuery]:
    """Pairs of the first columns, alone and given a third column, each strictly and leniently.

    A strict query is rarely true, a lenient one mostly.
    """
    spare = max(variance_floor(test, 2.0) for test in STATISTICS)
    queries = []
    for x, y in combinations(domain.names[:4], 2):
        third = [z for z in domain.names if z not in (x, y)][:1]
        given_sets: list[tuple[str, ...]] = [(), *((z,) for z in third)]
        for given in given_sets:
            queries.append(RankQuery(x, y, given, 2.0, spare, 0.0, 5.0))
            queries.append(RankQuery(x, y, given, 2.0, spare, 300.0, 0.0))
    return queries


def _asks_all(
    questions: Sequence[RankQuery],
) -> Generator[RankQuery, SparseVectorReply | None, None]:
    """Ask one query after another; after each that was true, leave one out."""
    remaining = list(questions)
    while remaining:
        reply = yield remaining.pop(0)
        if reply is None:
            return
        if reply.above:
            remaining = remaining[1:]


def _chooses(questions: Sequence[RankQuery]) -> Generator[HowMany | Which, int | None, None]:
    """Ask how many, then which, without those chosen before."""
    many = yield HowMany(tuple((q,) for q in questions))
    remaining = list(questions)
    for _ in range(min(many or 0, len(remaining))):
        which = yield Which(tuple(remaining))
        if which is None:
            return
        del remaining[which]


def _sieves(domain: Domain) -> tuple[SparseVector, ...]:
    settings: list[tuple[RankTest, int, float, float | None]] = [
        ("kendall", 3, 1.0, 2.0),
        ("spearman", 2, 0.5, None),
        ("kendall", 12, 0.3, 0.7),
        ("kendall", 4, 1.0, None),
    ]
    budgets = [
        SparseVectorBudget(domain, test, passes, rate, 100.0, 3.0, 5.0, examine)
        for test, passes, rate, examine in settings
    ]
    return tuple(budget.choose(partial(_asks_all, _questions(domain))) for budget in budgets)


def _selections(domain: Domain) -> tuple[Selection, ...]:
    budgets = (
        SelectionBudget(domain, "kendall", 6, 100.0, 2.0),
        SelectionBudget(domain, "spearman", 1, 100.0, 30.0),
    )
    return tuple(budget.choose(partial(_chooses, _questions(domain))) for budget in budgets)


def _independence_bits(domain: Domain) -> tuple[Mechanism[Any], ...]:
    return tuple(
        IndependenceBit(domain, a, b, noise, permutations=19)
        for (a, b), noise in zip(_ranged_pairs(domain), (0.6, 4.0), strict=False)
    )


def _ranged_pairs(domain: Domain) -> list[tuple[str, str]]:
    """At most two pairs of ranged columns."""
    return list(combinations((c.name for c in domain.columns if c.ranged), 2))[:2]


def _orientations(domain: Domain) -> tuple[ChosenOrientations, ...]:
    pairs = _ranged_pairs(domain)
    if not pairs:
        return ()
    budgets = OrientationBudget(domain, 0.9, SCORES), OrientationBudget(domain, 5.0)
    return tuple(budget.choose(pairs) for budget in budgets)


def _oriented(domain: Domain) -> list[Mechanism[Any]]:
    """The mechanisms that orient single pairs."""
    return [model for chosen in _orientations(domain) for model in chosen.models]


def _additive_noise_scores(domain: Domain) -> tuple[AdditiveNoiseScores, ...]:
    return tuple(m for m in _oriented(domain) if isinstance(m, AdditiveNoiseScores))


def _pair_tables(domain: Domain) -> tuple[PairTable, ...]:
    return tuple(m for m in _oriented(domain) if isinstance(m, PairTable))


def _scores(domain: Domain) -> tuple[ScoreCounts, ...]:
    budgets = (
        ScoreBudget(domain, domain.names[:3], 0.8),
        ScoreBudget(domain, (), 30.0),
        ScoreBudget(domain, domain.names[:2], 2.0, "rounded"),
    )
    return tuple(budget.choose(*_drawn(domain, budget)) for budget in budgets)


def _drawn(domain: Domain, budget: ScoreBudget) -> tuple[Codes, list[Scorecard]]:
    """A random synthetic table that lacks many cells, and random scorecards."""
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, size, 7) for size in domain.sizes]).astype(np.uint16)
    cards = []
    for target in budget.targets:
        shapes = [(size, domain[target].levels) for size in domain.sizes]
        cards.append(Scorecard(target, tuple(rng.integers(-9, 10, shape) for shape in shapes)))
    return codes, cards


def _frequent_texts(domain: Domain) -> tuple[FrequentTexts, ...]:
    """Columns of texts, alone and together; one with a threshold that most texts reach."""
    columns = _of_texts(domain)
    if not columns:
        return ()
    last = dict([columns.popitem()])
    wholes: dict[str, Reading] = dict.fromkeys(last, "whole")
    budgets = TextBudget(0.4, 1e-3, 3), TextBudget(6.0, 1e-9, 3), TextBudget(0.3, 0.2, 3)
    return tuple(b.choose(chosen) for b in budgets for chosen in (last, columns | last, wholes))


def _of_texts(domain: Domain) -> dict[str, Reading]:
    return {c.name: "text" for c in domain.columns if not c.ranged}


EXAMPLES: dict[type, Examples] = {
    AdditiveNoiseScores: _additive_noise_scores,
    ChosenOrientations: _orientations,
    FrequentTexts: _frequent_texts,
    IndependenceBit: _independence_bits,
    PairTable: _pair_tables,
    MomentMatrix: _moments,
    Selection: _selections,
    SparseVector: _sieves,
    NoisyMarginals: _noisy_marginals,
    ChosenMarginals: _chosen_marginals,
    ChosenScreen: _screens,
    ScoreCounts: _scores,
    ProductSums: product_sums,
    StratumSums: stratum_sums,
    Training: _trainings,
}


def runnable(
    planned: Any, domain: Domain, module: Callable[[Domain], PerExampleLoss]
) -> tuple[Mechanism[Any], ...]:
    """Mechanisms that run at once, from a planned one: its choices are made here."""
    match planned:
        case AdaptiveMarginals():
            return planned.choose(_tables(domain)), planned.choose(_tables(domain)[:1])
        case PairScreen():
            return (planned.choose(tuple(combinations(domain.names, 2))),)
        case SparseVectorBudget():
            return (planned.choose(partial(_asks_all, _questions(domain))),)
        case SelectionBudget():
            return (planned.choose(partial(_chooses, _questions(domain))),)
        case ScoreBudget():
            return (planned.choose(*_drawn(domain, planned)),)
        case OrientationBudget():
            pairs = _ranged_pairs(domain)
            return (planned.choose(pairs),) if pairs else ()
        case TextBudget():
            columns = _of_texts(domain)
            return (planned.choose(columns),) if columns else ()
        case DpSgd():
            short = replace(planned, steps=STEPS)
            models = module(domain), stretched(module(domain))
            return tuple(Training(short, model, no_ticks, None) for model in models)
        case _:
            return (planned,)
