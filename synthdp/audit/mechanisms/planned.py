"""The replay of a plan: each of its mechanisms, with choices made here, on constructed tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch

from synthdp.audit.mechanisms.calls import Replayed, neighbours
from synthdp.audit.mechanisms.replay import merged, replay
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training
from synthdp.privacy.linked import OnView
from synthdp.privacy.mechanisms import Mechanism
from synthdp.privacy.mechanisms import private_search as private
from synthdp.privacy.mechanisms.anm import OrientationBudget
from synthdp.privacy.mechanisms.frequent_texts import Reading, TextBudget
from synthdp.privacy.mechanisms.interaction_screen import (
    AnySign,
    ChosenInteractions,
    Family,
    InteractionScreen,
    PackedSigns,
    SameLevel,
    Sign,
)
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals
from synthdp.privacy.mechanisms.pair_screen import MAX_LEVELS, PairScreen
from synthdp.privacy.mechanisms.ranks import STATISTICS, RankQuery, variance_floor
from synthdp.privacy.mechanisms.scores import ScoreBudget, Scorecard
from synthdp.privacy.mechanisms.sums import ContrastBudget, Floats
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Columns

BATCH = 8.0  # expected batch of the examples


def replay_plan(
    plan: ReleasePlan,
    domain: Domain,
    *,
    module: Callable[[str, Domain], PerExampleLoss],
    random_pairs: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Replayed:
    """Replay a release's mechanisms, with its settings and domain, on constructed tables.

    `module` makes what is trained, by purpose. A training is cut to a few steps, each charged as in
    the plan, from the module's weights and from stretched ones. Tables that the release would
    choose later are chosen here.
    """
    trainings = [s.mechanism for s in plan.spends if isinstance(s.mechanism, DpSgd)]
    batch = round(max((t.expected_batch for t in trainings), default=BATCH))
    mechanisms: list[Mechanism[Any]] = []
    for spend in plan.spends:
        mechanisms += runnable(spend.mechanism, domain, partial(module, spend.purpose))
    unit_rows, adjacency = plan.rows_per_unit, plan.adjacency
    replays = []
    for number, mechanism in enumerate(mechanisms):
        progress(number, len(mechanisms))
        pairs = neighbours(
            domain, batch=batch, max_rows=unit_rows, adjacency=adjacency, random_pairs=random_pairs
        )
        replays.append(
            replay(mechanism, pairs, domain=domain, rows_per_unit=unit_rows, adjacency=adjacency)
        )
    progress(len(mechanisms), len(mechanisms))
    return merged(replays)


def runnable(
    planned: Any, domain: Domain, module: Callable[[Domain], PerExampleLoss]
) -> tuple[Mechanism[Any], ...]:
    """Mechanisms that run at once, from a planned one: its choices are made here."""
    match planned:
        case AdaptiveMarginals():
            return planned.choose(small_tables(domain)), planned.choose(small_tables(domain)[:1])
        case OnView(inner=AdaptiveMarginals()):
            return (planned.choose(small_tables(domain), LevelGroups(domain, {})),)
        case PairScreen():
            few = [column.name for column in domain.columns if column.levels <= MAX_LEVELS]
            return (planned.choose(tuple(combinations(few, 2))),)
        case InteractionScreen():
            return (signed_products(domain, planned),) if len(domain) > 1 else ()
        case private.SparseVectorBudget():
            return (planned.choose(partial(asks_all, rank_questions(domain))),)
        case private.SelectionBudget():
            return (planned.choose(partial(chooses, rank_questions(domain))),)
        case ScoreBudget():
            return (planned.choose(*drawn(domain, planned)),)
        case ContrastBudget():
            return (planned.choose(*random_weights(planned)),)
        case OrientationBudget():
            pairs = ranged_pairs(domain)
            return (planned.choose(pairs),) if pairs else ()
        case TextBudget():
            columns = of_keys(domain)
            return (planned.choose(columns),) if columns else ()
        case DpSgd():
            short = replace(planned, steps=3)  # batches with all, none and half of a unit's rows
            models = module(domain), stretched(module(domain))
            return tuple(Training(short, model, no_ticks, None) for model in models)
        case _:
            return (planned,)


def stretched(module: PerExampleLoss) -> PerExampleLoss:
    """The module with weights so large that losses differ from example to example.

    Where losses hardly differ, a dependence of one example's loss on another would not be seen.
    """
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(10.0)  # of starting weights
    return module


def small_tables(domain: Domain) -> tuple[Columns, ...]:
    """Each column alone, and all pairs of at most 10,000 cells: larger ones move no further."""
    pairs = [pair for pair in combinations(domain.names, 2) if domain.cells(pair) <= 10_000]
    return (*((name,) for name in domain.names), *pairs)


def no_ticks(done: int, total: int) -> None:
    """The replay listens in its place."""


def rank_questions(domain: Domain) -> list[RankQuery]:
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


def asks_all(
    questions: Sequence[RankQuery],
) -> Generator[RankQuery, private.SparseVectorReply | None, None]:
    """Ask one query after another; after each that was true, leave one out."""
    remaining = list(questions)
    while remaining:
        reply = yield remaining.pop(0)
        if reply is None:
            return
        if reply.above:
            remaining = remaining[1:]


def chooses(
    questions: Sequence[RankQuery],
) -> Generator[private.HowMany | private.Which, int | None, None]:
    """Ask how many, then which, without those chosen before."""
    many = yield private.HowMany(tuple((q,) for q in questions))
    remaining = list(questions)
    for _ in range(min(many or 0, len(remaining))):
        which = yield private.Which(tuple(remaining))
        if which is None:
            return
        del remaining[which]


def ranged_pairs(domain: Domain) -> list[tuple[str, str]]:
    """At most two pairs of ranged columns."""
    return list(combinations((c.name for c in domain.columns if c.ranged), 2))[:2]


def random_weights(budget: ContrastBudget) -> tuple[Floats, Floats, Floats]:
    """Weights of both signs and centres off the middle, for every stratum."""
    rng = np.random.default_rng(0)
    shape = (budget.strata.shape[0], math.prod(budget.strata.shape[1:]))
    return rng.uniform(-1, 1, shape), rng.uniform(-0.5, 0.5, shape), rng.uniform(-0.5, 0.5, shape)


def drawn(domain: Domain, budget: ScoreBudget) -> tuple[Codes, list[Scorecard]]:
    """A random synthetic table that lacks many cells, and random scorecards."""
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, size, 7) for size in domain.sizes]).astype(np.uint16)
    cards = []
    for target in budget.targets:
        shapes = [(size, domain[target].levels) for size in domain.sizes]
        cards.append(Scorecard(target, tuple(rng.integers(-9, 10, shape) for shape in shapes)))
    return codes, cards


def signed_products(
    domain: Domain, budget: InteractionScreen, *, floor: float = 0.0
) -> ChosenInteractions:
    """Products of two and three signs: every other level of a column, or one level of two columns.

    They are held against a random model.
    """
    signs: list[AnySign] = [
        Sign(c.name, tuple(i % 2 == 1 for i in range(c.levels))) for c in domain.columns
    ]
    signs += [SameLevel(*pair) for pair in pairwise(domain.names)]
    families = [Family((0,), 1, len(signs)), Family((0, 1), 1, len(signs))]
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, size, 70) for size in domain.sizes]).astype(np.uint16)
    drawn = PackedSigns.of(rows, domain, signs)
    return budget.choose(signs, families, drawn, rows=5.0, floor=floor)


def of_keys(domain: Domain) -> dict[str, Reading]:
    """Columns whose values may be told, each with how they are read: all but dates."""
    found: dict[str, Reading] = {c.name: "text" for c in domain.columns if not c.ranged}
    return found | dict.fromkeys(domain.numbers, "number")
