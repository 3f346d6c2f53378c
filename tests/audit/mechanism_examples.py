"""Examples of every mechanism of the kernel, for any domain; new ones get a line in `EXAMPLES`."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

import synthdp.privacy
from synthdp.audit import (
    BATCH,
    Kept,
    asks_all,
    chooses,
    drawn,
    no_ticks,
    of_keys,
    random_weights,
    ranged_pairs,
    rank_questions,
    signed_products,
    small_tables,
)
from synthdp.data import MAX_LEVELS, Basis, ColumnDomain, Domain, LevelGroups, level_features
from synthdp.model import Design
from synthdp.privacy import (
    SCORES,
    AdditiveNoiseScores,
    ChosenInteractions,
    ChosenOnView,
    ChosenOrientations,
    Contrast,
    ContrastBudget,
    FrequentTexts,
    InteractionScreen,
    Mechanism,
    OnView,
    OrientationBudget,
    PairTable,
    RankTest,
    Reading,
    Selection,
    SelectionBudget,
    SparseVector,
    SparseVectorBudget,
    TextBudget,
)
from synthdp.privacy.dpsgd.layers import MaskedLinear, NodeLinear, ParentLookup
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, ChosenMarginals, NoisyMarginals
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.pair_screen import ChosenScreen, PairScreen
from synthdp.privacy.mechanisms.scores import ScoreBudget, ScoreCounts
from synthdp.privacy.mechanisms.sums import NUMBER, Arm, Bounded, Product, ProductSums, StratumSums
from synthdp.spec import Expression, Values
from tests.builders import dp_sgd

MAX_INDICATORS = 4  # of a column whose indicators are multiplied


def stratum_sums(domain: Domain) -> tuple[StratumSums, ...]:
    """Counts, and sums of a number on its range and cut to a quarter of it."""
    last, by = domain.names[-1], tuple(c.name for c in domain.columns if c.levels <= 4)[:2]
    arms = tuple(Arm(((upper_half(domain, last), flag),)) for flag in (True, False))
    low, high = number_ends(domain[last])
    cuts = ((last, (low, (low + 2 * high) / 3)),)
    found = [
        StratumSums(domain, arms, by, None, 0.8),
        StratumSums(domain, (Arm(),), (last,), None, 0.8, cuts),
    ]
    for column in (domain.columns[0], *[c for c in domain.columns if c.ranged][:1]):
        low, high = number_ends(column)
        whole, part = (Bounded(column.name, low, end) for end in (high, (3 * low + high) / 4))
        found += [
            StratumSums(domain, arms, by, whole, 0.8),
            StratumSums(domain, (Arm(),), (), whole, 3.0),
            StratumSums(domain, arms[:1], by[:1], part, 20.0),
        ]
    return tuple(found)


def contrasts(domain: Domain) -> tuple[Contrast, ...]:
    """Contrasts of the strata whose number is whole, or cut, for weights of both signs."""
    budgets = [ContrastBudget(s, s.noise_multiplier) for s in stratum_sums(domain) if s.number]
    return tuple(budget.choose(*random_weights(budget)) for budget in budgets)


def upper_half(domain: Domain, name: str) -> Expression:
    """The condition that a column is in the upper half of its range, or of its categories."""
    middle = sum(number_ends(domain[name])) / 2

    def truth(values: Values) -> tuple[Any, Any]:
        return values[name] > middle, values[name] <= middle

    return Expression(f"{name} > {middle:g}", (name,), truth)


def number_ends(column: ColumnDomain) -> tuple[float, float]:
    """The least and largest number of a column as expressions read it; categories by position."""
    if not column.ranged:
        return 0.0, float(max(1, column.levels - 1))
    scale = 1.0 if column.step_seconds is None else column.step_seconds / 86_400
    return column.lower * scale, column.upper * scale


def product_sums(domain: Domain) -> tuple[ProductSums, ...]:
    """Regressions on a category, a number and their product: whole, clipped, and of some rows."""
    complete = sorted(domain.columns, key=lambda c: (c.missing, -c.levels))
    ranged = [c for c in complete if c.ranged][:1]
    category, *numbers = complete
    found = []
    for outcome, number in ((numbers[:1], numbers[1:2]), (ranged, numbers[:1])):
        for part, where, noise in ((1.0, False, 0.8), (0.25, False, 3.0), (1.0, True, 20.0)):
            if outcome and outcome != [category] and outcome != number:
                arm = Arm(((upper_half(domain, category.name), True),) if where else ())
                design = _design(category, number, outcome[0], part)
                found.append(design.mechanism(domain, arm, noise))
    if ranged:
        found.append(_apart(domain, ranged[0], category))
    return tuple(found)


def _apart(domain: Domain, number: ColumnDomain, category: ColumnDomain) -> ProductSums:
    """A number, its square, and the number by the levels of a column, whatever else rows lack."""
    part = (number.name, NUMBER)
    levels = range(min(MAX_INDICATORS, category.levels)) if number != category else ()
    by_level = [tuple(sorted([part, (category.name, level)])) for level in levels]
    asked = ((part,), (part, part), *by_level)
    return ProductSums(domain, Arm(), (_bounded(number, 1.0),), asked, 0.8, apart=True)


def _design(
    category: ColumnDomain, numbers: list[ColumnDomain], outcome: ColumnDomain, part: float
) -> Design:
    """The levels of a category, at most one number, and their products."""
    levels = range(1, min(MAX_INDICATORS, category.levels - category.missing))
    alone = [(category.name, level) for level in levels]
    scaled = [(number.name, NUMBER) for number in numbers]
    both = [tuple(sorted((a, b))) for a in alone for b in scaled]
    functions: tuple[Product, ...] = ((), *((f,) for f in (*alone, *scaled)), *both)
    names = tuple(map(str, range(len(functions))))
    bounds = tuple(_bounded(number, part) for number in numbers)
    return Design(names, functions, _bounded(outcome, part), bounds)


def _bounded(column: ColumnDomain, part: float) -> Bounded:
    """The column's numbers, or a part of their range."""
    low, high = number_ends(column)
    return Bounded(column.name, low, low + part * (high - low))


Examples = Callable[[Domain], Sequence[Mechanism[Any]]]


def _noisy_marginals(domain: Domain) -> tuple[NoisyMarginals, ...]:
    tables = small_tables(domain)
    one_way, scales = tables[: len(domain)], tuple(1.0 + (i % 2) for i in range(len(tables)))
    discrete = (
        NoisyMarginals(domain, one_way, 0.7),
        NoisyMarginals(domain, tables, 3.0, scales),
        NoisyMarginals(domain, tables[:1], 40.0),
    )
    return *discrete, NoisyMarginals(domain, tables, 3.0, scales, sampler="rounded")


def _chosen_marginals(domain: Domain) -> tuple[ChosenMarginals, ...]:
    choices = (small_tables(domain), small_tables(domain)[-1:], ())
    levels, groups = LevelGroups(domain, {}), _halves(domain)
    return tuple(
        AdaptiveMarginals(domain, noise).choose(tables, counted)
        for noise, counted in ((0.5, levels), (20.0, levels), (3.0, groups))
        for tables in choices
    )


def _on_views(domain: Domain) -> tuple[OnView[Any], ...]:
    rows = (1, NoisyMarginals(domain, small_tables(domain), 3.0)), (2, _noisy_marginals(domain)[-1])
    return tuple(OnView(inner, "steps", most) for most, inner in rows)


def _chosen_on_views(domain: Domain) -> tuple[ChosenOnView, ...]:
    tables, groups = small_tables(domain), _halves(domain)
    weights = [1.0 + i % 3 for i in range(len(tables))]
    budgets = (OnView(AdaptiveMarginals(domain, 1.0), "steps", most) for most in (1, 3))
    return tuple(budget.choose(tables, groups, weights) for budget in budgets)


def _screens(domain: Domain) -> tuple[ChosenScreen, ...]:
    """Of all pairs, one, three and none told; on groups of levels, less constants."""
    pairs = tuple(combinations(domain.names, 2))
    budgets = PairScreen(domain, 1, 0.6), PairScreen(domain, 3, 5.0)
    screens = [budget.choose(chosen) for budget in budgets for chosen in (pairs, ())]
    return *screens, budgets[1].choose(pairs, _halves(domain), range(len(pairs)))


def _interactions(domain: Domain) -> tuple[ChosenInteractions, ...]:
    """One, and up to three told, which end early or never; and nothing to choose from."""
    if len(domain) < 2:
        return ()
    one, three = InteractionScreen(domain, 1, 0.6), InteractionScreen(domain, 3, 5.0)
    chosen = signed_products(domain, three)
    early = signed_products(domain, three, floor=8.0)
    return signed_products(domain, one), chosen, early, replace(chosen, families=())


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
    usual = dp_sgd(steps=3, expected_batch=BATCH)
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
    return tuple(budget.choose(partial(asks_all, rank_questions(domain))) for budget in budgets)


def _selections(domain: Domain) -> tuple[Selection, ...]:
    budgets = (
        SelectionBudget(domain, "kendall", 6, 100.0, 2.0),
        SelectionBudget(domain, "spearman", 1, 100.0, 30.0),
    )
    return tuple(budget.choose(partial(chooses, rank_questions(domain))) for budget in budgets)


def _orientations(domain: Domain) -> tuple[ChosenOrientations, ...]:
    pairs = ranged_pairs(domain)
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
    return tuple(budget.choose(*drawn(domain, budget)) for budget in budgets)


def _frequent_texts(domain: Domain) -> tuple[FrequentTexts, ...]:
    """Columns of texts and of numbers, alone and together; one with a threshold that most keys
    reach.
    """
    columns, readings = of_keys(domain), get_args(Reading)
    texts = [name for name, reading in columns.items() if reading == "text"]
    chosen: list[dict[str, Reading]] = [columns, dict.fromkeys(domain.numbers, "number")]
    chosen += [dict.fromkeys(texts[-1:], reading) for reading in readings if reading != "number"]
    budgets = TextBudget(0.4, 1e-3, 3), TextBudget(6.0, 1e-9, 3), TextBudget(0.3, 0.2, 3)
    return tuple(budget.choose(some) for budget in budgets for some in chosen if some)


EXAMPLES: dict[type, Examples] = {
    AdditiveNoiseScores: _additive_noise_scores,
    ChosenOrientations: _orientations,
    FrequentTexts: _frequent_texts,
    PairTable: _pair_tables,
    MomentMatrix: _moments,
    Selection: _selections,
    SparseVector: _sieves,
    NoisyMarginals: _noisy_marginals,
    ChosenMarginals: _chosen_marginals,
    ChosenInteractions: _interactions,
    ChosenScreen: _screens,
    ChosenOnView: _chosen_on_views,
    OnView: _on_views,
    ScoreCounts: _scores,
    ProductSums: product_sums,
    StratumSums: stratum_sums,
    Contrast: contrasts,
    Training: _trainings,
}


def mechanism_classes() -> set[type]:
    """Every class of the kernel that sees rows and states an event."""
    classes: set[type] = set()
    for module in pkgutil.walk_packages(synthdp.privacy.__path__, "synthdp.privacy."):
        imported = importlib.import_module(module.name)
        classes |= {thing for _, thing in inspect.getmembers(imported, inspect.isclass)}
    return {thing for thing in classes if _is_mechanism(thing)}


def _is_mechanism(thing: type) -> bool:
    """Whether a class of the kernel has the methods of a mechanism and is no protocol."""
    if not thing.__module__.startswith("synthdp.privacy") or getattr(thing, "_is_protocol", False):
        return False
    return all(callable(getattr(thing, method, None)) for method in ("run", "event", "pack"))


def unregistered() -> set[type]:
    """Mechanisms of the kernel that have no example here."""
    return mechanism_classes() - EXAMPLES.keys()


class SmallModel(PerExampleLoss):
    """Every kind of layer that can be clipped; each column depends on the one before and on z."""

    latent = 2

    def __init__(self, domain: Domain, *, scale: float = 1.0, ordered: bool = False) -> None:
        """`scale` multiplies starting weights: large ones clip every example, tiny ones none."""
        super().__init__()
        columns, width = len(domain), 3
        features = None
        if ordered:
            features = [torch.from_numpy(level_features(c)).float() for c in domain.columns]
        parents = [(max(0, i - 1),) for i in range(columns)]
        self.lookup = ParentLookup(parents, domain.sizes, width, features)
        self.latents = MaskedLinear(torch.ones(columns * width, self.latent))
        self.levels = NodeLinear(width, domain.sizes, features)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(scale * torch.randn(p.shape, generator=generator))

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Negative log likelihood of each row, in nats, shape `[batch]`."""
        hidden = self.lookup(codes) + self.latents(noise).view(len(codes), -1, self.lookup.width)
        logits = self.levels(torch.tanh(hidden))
        losses = F.cross_entropy(logits.flatten(0, 1), codes.flatten(), reduction="none")
        return losses.view(len(codes), -1).sum(1)
