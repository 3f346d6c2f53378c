"""How a plan is made: from the spec alone, before any row is read.

Each purpose is first given the noise that would meet its share of epsilon and delta on its own
(Gaussian closed forms, only a starting point); then the noise of all of them is scaled by one
common factor until the PLD composition of *all* events meets the total. What the starting points
miss therefore costs a little balance between purposes, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from scipy.special import log_ndtr, ndtr

from synthdp.data.cells import cells_domain
from synthdp.data.domain import Domain
from synthdp.errors import BudgetError
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.events import UNITS, Adjacency
from synthdp.privacy.mechanisms import PlannedMechanism
from synthdp.privacy.mechanisms.frequent_texts import TextBudget
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals, OnCounts
from synthdp.privacy.mechanisms.scores import ScoreBudget, compared
from synthdp.privacy.mechanisms.sums import ProductSums
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.privacy.table import Columns
from synthdp.spec.model import ReleaseSpec, SynthesizerSettings
from synthdp.spec.model.rules import LEFT_OUT

# times the noise of the rough plan for each row of a unit: near the truth wherever the accountant
# can tell
MAX_FACTOR = 8.0
TARGET_SETTINGS = {"clip": 2.5, "learning_rate": 0.02, "ema": 0.99}
EPSILON_TOLERANCE = 5e-4  # the plan may leave this fraction of epsilon unspent


def make_plan(
    spec: ReleaseSpec,
    domain: Domain,
    *,
    graph_rounds: Mapping[str, MechanismFactory] = MappingProxyType({}),
    estimands: Mapping[str, MechanismFactory] = MappingProxyType({}),
    moments: Callable[[float], ProductSums] | None = None,
) -> ReleasePlan:
    """The calibrated plan of a release; `graph_rounds` and `estimands` name what the graph stage
    may release, and what estimands are made of, each started from its whole share, as `moments`.
    """
    rows_per_unit = spec.dataset.privacy_unit.max_rows
    rough = _rough_plan(spec, domain, graph_rounds, estimands, rows_per_unit)
    if moments is not None:
        rough = replace(rough, moments=moments(share_mu(spec, spec.privacy.shares.moments)))
    return calibrated(rough)


def share_mu(spec: ReleaseSpec, share: float) -> float:
    """The mu of a Gaussian mechanism that would meet this share of the budget on its own."""
    part, privacy = share * (1 - spec.evaluation.dp_share), spec.privacy
    return mu_of(part * privacy.epsilon, part * privacy.delta)


def make_search_plan(
    rounds: Mapping[str, MechanismFactory],
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    rows_per_unit: int = 1,
) -> ReleasePlan:
    """The calibrated plan of a graph search alone, which spends everything."""
    graph = _started(rounds, mu_of(epsilon, delta))
    return calibrated(ReleasePlan(epsilon, delta, adjacency, rows_per_unit, graph=graph))


def make_domain_plan(
    columns: int,
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    rows_per_unit: int = 1,
) -> ReleasePlan:
    """The calibrated plan of a run that drafts a spec for so many columns (`data.cells`).

    Half of its squared mu is for cells, half for texts; half of `delta` is for the threshold of the
    texts. Forms have 1.5 times the noise of sizes: their cells are fewer and fuller.
    """
    domain = cells_domain(columns)
    mu = mu_of(epsilon, delta / 2) / math.sqrt(2)
    tables = [(name,) for name in domain.names]
    scales = _at_cost([1.5 if name.startswith("form") else 1.0 for (name,) in tables])
    forms = NoisyMarginals(domain, tuple(tables), math.sqrt(len(tables)) / mu, scales)
    # A replaced unit pays twice for the threshold (`events.kernel.ThresholdedGaussianDpEvent`).
    threshold = delta / 2 / UNITS[adjacency]
    texts = TextBudget(1 / mu, threshold, rows_per_unit)
    rough = ReleasePlan(epsilon, delta, adjacency, rows_per_unit, forms=forms, texts=texts)
    return calibrated(rough)


def adaptive_round(domain: Domain, part: float) -> MechanismFactory:
    """A round of tables chosen later, for `part` of the share of all rounds."""
    return lambda mu: AdaptiveMarginals(domain, 1 / (mu * math.sqrt(part)))


def expected_fit_rows(spec: ReleaseSpec) -> float:
    """Declared rows that the fit is expected to see: a constant of the spec."""
    return spec.dataset.rows.value * (1 - spec.evaluation.held_out)


def rows_over_noise(spec: ReleaseSpec) -> float:
    """Rows that the fit is expected to see over the noise of a cell, if one table had the whole
    share of the graph; about, a constant of the spec.
    """
    share, privacy = spec.privacy.shares.graph * (1 - spec.evaluation.dp_share), spec.privacy
    mu = mu_of(share * privacy.epsilon, share * privacy.delta) if share else 0.0
    return expected_fit_rows(spec) * mu / spec.dataset.privacy_unit.max_rows


def secret_holdout(held_out: float, adjacency: Adjacency, source: str) -> float:
    """The chance of a unit to be held out on which the accountant counts: `held_out`, or 0.

    It counts on one coin of each unit for all looks [derived here: with another coin for later ones
    more units would be in some look, and their laws are no mixture of two]. A resumed run repeats
    the coins of places in the table, and nothing says that a database gives the rows of a query, or
    who has a DataFrame its rows, in one order twice.
    """
    known = adjacency != "add_remove" or source in ("sql", "dataframe")
    return 0.0 if known else held_out


def sample_rate(spec: ReleaseSpec) -> float:
    """With which probability a unit is in the secret sample that is trained on: 1 for all units."""
    wanted = spec.synthesizer.sample
    return 1.0 if wanted is None else min(1.0, wanted / expected_fit_rows(spec))


def _rough_plan(
    spec: ReleaseSpec,
    domain: Domain,
    rounds: Mapping[str, MechanismFactory],
    estimands: Mapping[str, MechanismFactory],
    rows_per_unit: int,
) -> ReleasePlan:
    """Each purpose with the noise that would meet its share on its own."""
    privacy, shares, scores = spec.privacy, spec.privacy.shares, spec.evaluation.dp_share

    def training(settings: SynthesizerSettings, share: float) -> DpSgd:
        sample, part = sample_rate(spec), share * (1 - scores)
        delta = min(0.5, part * privacy.delta / sample)
        mu = mu_of(_unsampled(part * privacy.epsilon, sample), delta)
        return _rough_training(settings, expected_fit_rows(spec), mu, sample)

    def tables(chosen: Sequence[Columns], share: float) -> NoisyMarginals:
        return NoisyMarginals(domain, tuple(chosen), math.sqrt(len(chosen)) / share_mu(spec, share))

    one_way = [(name,) for name in domain.names]
    measure = replace(tables(one_way, shares.measure), scales=_scales(domain, one_way))
    settings = spec.synthesizer
    return ReleasePlan(
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        rows_per_unit,
        holdout=secret_holdout(
            spec.evaluation.held_out, privacy.adjacency, spec.dataset.source.kind
        ),
        measure=measure,
        pairs=(
            replace(tables(privacy.pairs, shares.pairs), scales=_pair_scales(spec))
            if privacy.pairs
            else None
        ),
        heaps=(
            TextBudget(
                1 / share_mu(spec, shares.heaps),
                LEFT_OUT.told * privacy.delta / UNITS[privacy.adjacency],
                rows_per_unit,
                "numbers",
            )
            if shares.heaps
            else None
        ),
        estimands=_started(estimands, share_mu(spec, shares.estimands)) if estimands else {},
        graph=_started(rounds, share_mu(spec, shares.graph)) if rounds else {},
        targets=(
            training(_target_settings(settings), shares.targets) if settings.targets else None
        ),
        train=training(settings, shares.train) if shares.train else None,
        scores=(
            _rough_scores(spec, domain, mu_of(scores * privacy.epsilon, scores * privacy.delta))
            if scores
            else None
        ),
    )


def _rough_scores(spec: ReleaseSpec, domain: Domain, mu: float) -> ScoreBudget:
    """Scores of targets that are no numbers: of those, right answers can be counted."""
    budget = ScoreBudget(
        domain, tuple(t for t in spec.evaluation.targets if not domain[t].ranged), 1.0
    )
    # Where nobody is told who is held out the larger part pays for both (`HoldoutDpEvent`).
    kind, held_out = spec.dataset.source.kind, spec.evaluation.held_out
    apart = secret_holdout(held_out, spec.privacy.adjacency, kind) > 0
    sides = len(compared(domain)), len(budget.targets)
    return budget.scaled(math.sqrt(max(sides) if apart else sum(sides)) / mu)


def _scales(domain: Domain, tables: Sequence[Columns]) -> tuple[float, ...]:
    """Noise of each table, as multiples that cost what equal noise would: the least for their mean
    total variation.

    A table of L cells is off by about L sigma. The sum of these is least, for a given sum of 1 /
    sigma^2, where sigma goes by L^(-1/3) [derived here, Lagrange]. L counts to the nearest power of
    two, so that few noises differ.
    """
    return _at_cost([2 ** (-round(math.log2(domain.cells(columns))) / 3) for columns in tables])


def _pair_scales(spec: ReleaseSpec) -> tuple[float, ...]:
    """Noise of each pair that the spec has measured, likewise: that of a target's is half as large.

    On Adult that gave AUC .900 for .898, and TV of pairs .0187 for .0182.
    """
    targets = {*spec.synthesizer.targets, *spec.evaluation.targets}
    return _at_cost([1.0 if targets.isdisjoint(pair) else 0.5 for pair in spec.privacy.pairs])


def _at_cost(wanted: Sequence[float]) -> tuple[float, ...]:
    """`wanted` scales times a number: they then cost what equal noise would; () if all are equal.

    >>> _at_cost([1.0, 1.0]), [round(scale, 2) for scale in _at_cost([1.0, 0.5])]
    ((), [1.58, 0.79])
    """
    cost = math.sqrt(math.fsum(w**-2 for w in wanted) / len(wanted))
    return () if len(set(wanted)) == 1 else tuple(w * cost for w in wanted)


def _started(rounds: Mapping[str, MechanismFactory], mu: float) -> Mapping[str, PlannedMechanism]:
    return {name: start(mu) for name, start in rounds.items()}


def _target_settings(settings: SynthesizerSettings) -> SynthesizerSettings:
    """Public rule for the targets' stage: a linear model needs fewer steps, and larger ones."""
    steps = math.ceil(0.3 * settings.steps)  # of the network's
    return settings.model_copy(
        update={"steps": steps, "checkpoint_every": steps, **TARGET_SETTINGS}
    )


def _rough_training(settings: SynthesizerSettings, rows: float, mu: float, sample: float) -> DpSgd:
    """`mu` is that of the steps on a sample of rate `sample`."""
    rows = sample * rows
    rate = min(1.0, settings.batch / rows)
    # Central limit of subsampled Gaussians: mu = rate sqrt(steps (exp(1/noise^2) - 1)) [Bu et al.,
    # "Deep Learning with Gaussian Differential Privacy", arXiv:1911.11607v3, Theorem 5], solved for
    # the noise.
    noise = 1 / math.sqrt(math.log1p((mu / rate) ** 2 / settings.steps))
    return DpSgd(
        rate=rate,
        steps=settings.steps,
        expected_batch=rate * rows,
        clip=settings.clip,
        noise_multiplier=noise,
        learning_rate=settings.learning_rate,
        ema=settings.ema,
        checkpoint_every=settings.checkpoint_every,
        sample=sample,
    )


def _unsampled(epsilon: float, rate: float) -> float:
    """What gives `epsilon` on a secret sample of `rate`: log(1 + (exp(epsilon) - 1) / rate)."""
    if rate == 1:
        return epsilon
    return float(np.logaddexp(0.0, epsilon + math.log(-math.expm1(-epsilon) / rate)))


def mu_of(epsilon: float, delta: float) -> float:
    """Largest mu such that a Gaussian mechanism of sensitivity / sigma = mu is (epsilon, delta)-DP.

    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", arXiv:1805.06530v2,
    Theorem 8.

    Raises:
        ValueError: `delta` is not below 1, so that every mechanism is.
    """
    if delta >= 1:
        raise ValueError(f"delta is {delta}; it must be below 1")

    def excess(mu: float) -> float:
        # exp(epsilon) alone would overflow; its product with the tail is below 1.
        tail = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        return float(ndtr(mu / 2 - epsilon / mu)) - math.exp(tail) - delta

    low, high = 1e-9, 1.0
    while excess(high) < 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return low


def calibrated(rough: ReleasePlan) -> ReleasePlan:
    """`rough` with the least common factor of its noise that meets its total; counts have the noise
    whose cost is known exactly for units of so many rows.
    """
    for_unit = rough.map(
        lambda _, m: m.for_unit(rough.rows_per_unit) if isinstance(m, OnCounts) else m
    )
    return _calibrate(
        lambda factor: for_unit.map(lambda purpose, mechanism: mechanism.scaled(factor))
    )


def _calibrate(plan_at: Callable[[float], ReleasePlan]) -> ReleasePlan:
    """The plan with the least common noise factor that meets epsilon, to `EPSILON_TOLERANCE`; only
    plans that meet it are kept.

    Composing a plan is all that takes time here, so guesses follow the last two of them, between
    the nearest ones found.

    Raises:
        BudgetError: no noise that is tried meets epsilon.
    """
    plan = plan_at(1.0)
    target, most = (
        plan.epsilon,
        MAX_FACTOR * plan.rows_per_unit * (1 if plan.adjacency == "add_remove" else 2),
    )
    best, factor, seen = None, 1.0, [(0.0, math.inf)]  # with no noise anything is lost
    for _ in range(60):
        seen.append((factor, plan.epsilon_spent))
        if plan.epsilon_spent <= target:
            best = plan  # every guess lies below the factors that were enough before
            if plan.epsilon_spent >= target * (1 - EPSILON_TOLERANCE) or factor < 1e-6:
                break
        elif factor >= most:
            break
        factor = min(most, _next_factor(seen, target))
        plan = plan_at(factor)
    if best is None:
        raise BudgetError(
            f"epsilon {target:g} with delta {plan.delta:g} is below what the accountant can"
            " resolve",
            hint="raise privacy.epsilon or privacy.delta",
        )
    return best


def _next_factor(seen: Sequence[tuple[float, float]], target: float) -> float:
    """Where to look after factors with these epsilons: epsilon falls steadily as the factor grows,
    nearly like a power of it.
    """
    (before, loose), (last, tight) = seen[-2:]
    low = max(factor for factor, epsilon in seen if epsilon > target)
    high = min((factor for factor, epsilon in seen if epsilon <= target), default=math.inf)
    # Where delta alone pays for everything, epsilon is zero and has no logarithm; too little noise
    # makes it infinite.
    if 0 < tight < math.inf:
        aim = math.log(target * (1 - EPSILON_TOLERANCE / 4) / tight)
        power = (
            math.log(last / before) / math.log(tight / loose)
            if 0 < loose < math.inf and loose != tight
            else -1.0
        )
        guess = last * math.exp(min(max(power * aim, -1.5), 1.5)) if power < 0 else last
    else:
        guess = last * 1.5 if tight else last / 1.5
    stride = 1.02 ** len(seen)  # where epsilon hardly moves, steps grow
    if low == 0:
        return min(guess, high / stride)
    if high == math.inf:
        return max(guess, low * stride)
    # After ten guesses the search halves, which is sure.
    return guess if low < guess < high and len(seen) < 10 else math.sqrt(low * high)
