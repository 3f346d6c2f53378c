"""Every mechanism of the kernel, with examples of it for a domain, so that none escapes the replay.

A new mechanism gets one function and one line in `EXAMPLES`; `unregistered` names those that have
none.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import synthdp.privacy
from synthdp.audit.mechanisms.findings import Replayed
from synthdp.audit.mechanisms.neighbours import neighbours
from synthdp.audit.mechanisms.recording import Kept
from synthdp.audit.mechanisms.replay import merged, replay
from synthdp.data.basis import MAX_LEVELS, Basis
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.features import level_features
from synthdp.privacy.dpsgd.layers import MaskedLinear, NodeLinear, ParentLookup
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training
from synthdp.privacy.mechanisms.anm import (
    SCORES,
    AdditiveNoiseScores,
    ChosenOrientations,
    OrientationBudget,
)
from synthdp.privacy.mechanisms.conditional_counts import RankQuery, variance_floor
from synthdp.privacy.mechanisms.hsic import IndependenceBit
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    ChosenMarginals,
    Columns,
    Mechanism,
    NoisyMarginals,
)
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.noisy_max import HowMany, Selection, SelectionBudget, Which
from synthdp.privacy.mechanisms.pair_table import PairTable
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankTest
from synthdp.privacy.mechanisms.scores import ScoreBudget, Scorecard, ScoreCounts
from synthdp.privacy.mechanisms.sparse_vector import (
    SparseVector,
    SparseVectorBudget,
    SparseVectorReply,
)
from synthdp.privacy.plan import Plan

Examples = Callable[[Domain], Sequence[Mechanism[Any]]]

BATCH = 8.0  # expected batch of the examples
STEPS = 3  # of a replayed training: a batch with all, none and half of the unit's rows
STRETCH = 10.0  # of starting weights
MAX_CELLS = 10_000  # of tables that a replay chooses: larger ones take long and move no further


class SmallModel(PerExampleLoss):
    """A model that uses every kind of layer that can be clipped: each column from the one before it
    and two latents.
    """

    latent = 2

    def __init__(self, domain: Domain, *, scale: float = 1.0, ordered: bool = False) -> None:
        """`scale` of the starting weights: large ones clip every example, tiny ones none.
        `ordered`: levels have their features, as in a release.
        """
        super().__init__()
        columns, width = len(domain), 3
        features = (
            [torch.from_numpy(level_features(c)).float() for c in domain.columns]
            if ordered
            else None
        )
        self.lookup = ParentLookup(
            [(max(0, i - 1),) for i in range(columns)], domain.sizes, width, features
        )
        self.latents = MaskedLinear(torch.ones(columns * width, self.latent))
        self.levels = NodeLinear(width, domain.sizes, features)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(scale * torch.randn(p.shape, generator=generator))

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Surprise at each row, in nats, shape `[batch]`."""
        hidden = self.lookup(codes) + self.latents(noise).view(len(codes), -1, self.lookup.width)
        logits = self.levels(torch.tanh(hidden))
        return (
            F.cross_entropy(logits.flatten(0, 1), codes.flatten(), reduction="none")
            .view(len(codes), -1)
            .sum(1)
        )


def _tables(domain: Domain) -> tuple[Columns, ...]:
    """Each column alone, and all pairs that are small."""
    pairs = [pair for pair in combinations(domain.names, 2) if domain.cells(pair) <= MAX_CELLS]
    return (*((name,) for name in domain.names), *pairs)


def _no_ticks(done: int, total: int) -> None:
    """The replay puts an ear of its own here."""


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
    return tuple(
        AdaptiveMarginals(domain, noise).choose(tables)
        for noise in (0.5, 20.0)
        for tables in choices
    )


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
    )
    trainings = (Training(own, SmallModel(domain), _no_ticks, None) for own in settings)
    large = (
        Training(usual, SmallModel(domain, scale=scale), _no_ticks, None)
        for scale in (1e-3, 50.0, 1e20)
    )
    ordered = (
        Training(usual, SmallModel(domain, scale=scale, ordered=True), _no_ticks, None)
        for scale in (1.0, 50.0)
    )
    return *trainings, *large, *ordered, Training(usual, SmallModel(domain), _no_ticks, Kept())


def _moments(domain: Domain) -> tuple[Mechanism[Any], ...]:
    few = tuple(c.name for c in domain.columns if c.ranged or c.levels <= MAX_LEVELS)
    bases = [Basis(domain, few), Basis(domain, few[:3], degree=3, interaction=2)] if few else []
    return tuple(
        MomentMatrix(basis, basis.norm(deviations=d), noise)
        for basis in bases
        for d, noise in ((2.0, 0.8), (1e9, 5.0))
    )


def _questions(domain: Domain) -> list[RankQuery]:
    """Pairs of the first columns, alone and given a third, each once strictly and once so that it
    is easily true.
    """
    asked: list[tuple[str, str, tuple[str, ...]]] = []
    for x, y in combinations(domain.names[:4], 2):
        asked += [
            (x, y, given) for given in ((), *[(z,) for z in domain.names if z not in (x, y)][:1])
        ]
    spare = max(variance_floor(test, 2.0) for test in STATISTICS)
    return [
        RankQuery(*query, 2.0, spare, slack, least_weight)
        for query in asked
        for slack, least_weight in ((0.0, 5.0), (300.0, 0.0))
    ]


def _asks_all(
    questions: Sequence[RankQuery],
) -> Generator[RankQuery, SparseVectorReply | None, None]:
    """Ask one after another, leaving one out after each that was true."""
    remaining = list(questions)
    while remaining:
        reply = yield remaining.pop(0)
        if reply is None:
            return
        if reply.above:
            remaining = remaining[1:]


def _chooses(questions: Sequence[RankQuery]) -> Generator[HowMany | Which, int | None, None]:
    """How many of all, then which, without those chosen already."""
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
    return tuple(budget.search(partial(_asks_all, _questions(domain))) for budget in budgets)


def _selections(domain: Domain) -> tuple[Selection, ...]:
    budgets = (
        SelectionBudget(domain, "kendall", 6, 100.0, 2.0),
        SelectionBudget(domain, "spearman", 1, 100.0, 30.0),
    )
    return tuple(budget.search(partial(_chooses, _questions(domain))) for budget in budgets)


def _independence_bits(domain: Domain) -> tuple[Mechanism[Any], ...]:
    pairs = combinations((c.name for c in domain.columns if c.ranged), 2)
    return tuple(
        IndependenceBit(domain, a, b, noise, permutations=19)
        for (a, b), noise in zip(pairs, (0.6, 4.0), strict=False)
    )


def _orientations(domain: Domain) -> tuple[ChosenOrientations, ...]:
    pairs = list(combinations((c.name for c in domain.columns if c.ranged), 2))[:2]
    return (
        (
            OrientationBudget(domain, 0.9, SCORES).choose(pairs),
            OrientationBudget(domain, 5.0).choose(pairs),
        )
        if pairs
        else ()
    )


def _additive_noise_scores(domain: Domain) -> tuple[AdditiveNoiseScores, ...]:
    return tuple(
        model
        for chosen in _orientations(domain)
        for model in chosen.models
        if isinstance(model, AdditiveNoiseScores)
    )


def _pair_tables(domain: Domain) -> tuple[PairTable, ...]:
    return tuple(
        model
        for chosen in _orientations(domain)
        for model in chosen.models
        if isinstance(model, PairTable)
    )


def _scores(domain: Domain) -> tuple[ScoreCounts, ...]:
    budgets = (
        ScoreBudget(domain, domain.names[:3], 0.8),
        ScoreBudget(domain, (), 30.0),
        ScoreBudget(domain, domain.names[:2], 2.0, "rounded"),
    )
    return tuple(budget.choose(*_drawn(domain, budget)) for budget in budgets)


def _drawn(domain: Domain, budget: ScoreBudget) -> tuple[Codes, list[Scorecard]]:
    """A synthetic table that lacks many cells, and scorecards, both made up."""
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, size, 7) for size in domain.sizes]).astype(np.uint16)
    cards = [
        Scorecard(t, tuple(rng.integers(-9, 10, (size, domain[t].levels)) for size in domain.sizes))
        for t in budget.targets
    ]
    return codes, cards


EXAMPLES: dict[type, Examples] = {
    AdditiveNoiseScores: _additive_noise_scores,
    ChosenOrientations: _orientations,
    IndependenceBit: _independence_bits,
    PairTable: _pair_tables,
    MomentMatrix: _moments,
    Selection: _selections,
    SparseVector: _sieves,
    NoisyMarginals: _noisy_marginals,
    ChosenMarginals: _chosen_marginals,
    ScoreCounts: _scores,
    Training: _trainings,
}


def mechanism_classes() -> set[type]:
    """Every class of the kernel that sees rows and states an event."""
    found = set()
    for module in pkgutil.walk_packages(synthdp.privacy.__path__, "synthdp.privacy."):
        if module.name.startswith("synthdp.audit.mechanisms"):
            continue
        for _, thing in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            own = thing.__module__.startswith("synthdp.privacy") and not getattr(
                thing, "_is_protocol", False
            )
            if own and all(
                callable(getattr(thing, method, None)) for method in ("run", "event", "pack")
            ):
                found.add(thing)
    return found


def unregistered() -> set[type]:
    """Mechanisms of the kernel that have no example here."""
    return mechanism_classes() - EXAMPLES.keys()


def _stretched(module: PerExampleLoss) -> PerExampleLoss:
    """With weights so large that losses differ from example to example; where they hardly do, what
    one says of another is not seen.
    """
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(STRETCH)
    return module


def replay_plan(
    plan: Plan,
    domain: Domain,
    *,
    module: Callable[[str, Domain], PerExampleLoss] = lambda purpose, domain: SmallModel(domain),
    random_pairs: int = 0,
    progress: Callable[[int, int], None] = _no_ticks,
) -> Replayed:
    """Replay a release's own mechanisms, with its settings and domain, on made-up tables of that
    domain.

    `module` makes what is trained, by purpose. A training is cut to a few steps, each charged as in
    the plan, from the module's weights and from stretched ones; tables that the release would
    choose later are chosen here.
    """
    batches = [
        spend.mechanism.expected_batch
        for spend in plan.spends
        if isinstance(spend.mechanism, DpSgd)
    ]
    batch = round(max(batches, default=BATCH))
    mechanisms = [
        own
        for spend in plan.spends
        for own in _runnable(spend.mechanism, domain, partial(module, spend.purpose))
    ]
    replays = []
    for number, mechanism in enumerate(mechanisms):
        progress(number, len(mechanisms))
        pairs = neighbours(
            domain,
            batch=batch,
            max_rows=plan.rows_per_unit,
            adjacency=plan.adjacency,
            random_pairs=random_pairs,
        )
        replays.append(
            replay(
                mechanism,
                pairs,
                domain=domain,
                rows_per_unit=plan.rows_per_unit,
                adjacency=plan.adjacency,
            )
        )
    progress(len(mechanisms), len(mechanisms))
    return merged(replays)


def _runnable(
    planned: Any, domain: Domain, module: Callable[[Domain], PerExampleLoss]
) -> tuple[Mechanism[Any], ...]:
    match planned:
        case AdaptiveMarginals():
            return planned.choose(_tables(domain)), planned.choose(_tables(domain)[:1])
        case SparseVectorBudget():
            return (planned.search(partial(_asks_all, _questions(domain))),)
        case SelectionBudget():
            return (planned.search(partial(_chooses, _questions(domain))),)
        case ScoreBudget():
            return (planned.choose(*_drawn(domain, planned)),)
        case OrientationBudget():
            pairs = list(combinations((c.name for c in domain.columns if c.ranged), 2))[:2]
            return (planned.choose(pairs),) if pairs else ()
        case DpSgd():
            short = replace(planned, steps=STEPS)
            return tuple(
                Training(short, own, _no_ticks, None)
                for own in (module(domain), _stretched(module(domain)))
            )
        case _:
            return (planned,)
