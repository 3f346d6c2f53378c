"""The plan of a release: every spend, calibrated so that all of them together meet (epsilon,
delta).

Made from the spec alone; no row is read. Each purpose is first given the noise that would meet its
share of epsilon and delta on its own (Gaussian closed forms, only a starting point); then the noise
of all of them is scaled by one common factor until the PLD composition of *all* events meets the
total. What the starting points miss therefore costs a little balance between purposes, never
privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import dp_accounting

from synthdp.data.domain import Domain
from synthdp.errors import BudgetError
from synthdp.privacy import accounting
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.event_base import Adjacency
from synthdp.privacy.event_kinds import event_to_json
from synthdp.privacy.mechanisms.count_noise import sampler_for
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, Columns, NoisyMarginals
from synthdp.privacy.mechanisms.scores import ScoreBudget
from synthdp.spec.model import IdUnit, ReleaseSpec, SynthesizerSettings


class PlannedMechanism(Protocol):
    """What a plan knows of a mechanism before it may look at rows."""

    @property
    def name(self) -> str: ...
    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent: ...
    def scaled(self, factor: float) -> PlannedMechanism:
        """The same mechanism with `factor` times the noise."""
        ...


MechanismFactory = Callable[[float], PlannedMechanism]
"""A mechanism about as costly as one Gaussian mechanism of sensitivity / noise = mu. Only a
starting point: see above.
"""


# times the noise of the rough plan for each row of a unit: near the truth wherever the accountant
# can tell
MAX_FACTOR = 8.0
GROUP_SIZES = (1, 2, 3, 5, 10)
PROFILE_EPSILONS = (
    0.0,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    10.0,
    15.0,
    20.0,
)
MIN_FACTOR = 1e-6
MAX_GUESSES = 10  # before the search halves, which is sure
TARGET_STEPS = 0.3  # of the network's
TARGET_SETTINGS = {"clip": 2.5, "learning_rate": 0.02, "ema": 0.99}
EPSILON_TOLERANCE = 2e-3  # the plan may leave this fraction of epsilon unspent


@dataclass(frozen=True)
class PlannedPurpose:
    """One planned mechanism and what it is for."""

    purpose: str
    mechanism: PlannedMechanism


@dataclass(frozen=True)
class Plan:
    """Every spend of one run; what is not in here cannot be released."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    rows_per_unit: int
    spends: tuple[PlannedPurpose, ...]

    def find(self, purpose: str) -> PlannedPurpose | None:
        """The spend with this purpose."""
        return next((s for s in self.spends if s.purpose == purpose), None)

    def only(self, purposes: Collection[str]) -> Plan:
        """The part of this plan that some purposes make up, with the noise it has: what a run spent
        that left others unused.
        """
        kept = tuple(s for s in self.spends if s.purpose in purposes)
        return self if len(kept) == len(self.spends) else replace(self, spends=kept)

    @property
    def events(self) -> list[dp_accounting.DpEvent]:
        """Events of all spends, per unit."""
        return [s.mechanism.event(self.rows_per_unit) for s in self.spends]

    @cached_property
    def epsilon_spent(self) -> float:
        """Epsilon of all spends together at the plan's delta; never above `epsilon`."""
        return accounting.epsilon(self.events, delta=self.delta, adjacency=self.adjacency)

    def epsilon_of(self, spend: PlannedPurpose) -> float:
        """Epsilon of one spend alone at the plan's delta (the parts sum to more than the whole)."""
        return accounting.epsilon(
            [spend.mechanism.event(self.rows_per_unit)], delta=self.delta, adjacency=self.adjacency
        )

    @cached_property
    def profile(self) -> tuple[tuple[float, float], ...]:
        """The composed (epsilon, delta) trade-off."""
        return accounting.delta_profile(
            self.events, epsilons=PROFILE_EPSILONS, adjacency=self.adjacency
        )

    @cached_property
    def group_epsilons(self) -> dict[int, float]:
        """Epsilon at the plan's delta for groups of k units; infinite where no useful bound is
        known.

        Under add/remove a group of k units is one unit with k times the rows, so the events are
        recomputed for it; under replace-one, and for very large groups, the generic group bound is
        used.
        """
        return {k: self._group_epsilon(k) for k in GROUP_SIZES}

    def _group_epsilon(self, size: int) -> float:
        rows = size * self.rows_per_unit
        if self.adjacency == "replace_one" or rows > accounting.MAX_GROUP_ROWS:
            return accounting.group_epsilon(
                self.events, size=size, delta=self.delta, adjacency=self.adjacency
            )
        return accounting.epsilon(
            [s.mechanism.event(rows) for s in self.spends], delta=self.delta, adjacency="add_remove"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for `plan --json`, the certificate and tracking."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_spent": self.epsilon_spent,
            "adjacency": self.adjacency,
            "rows_per_unit": self.rows_per_unit,
            "spends": [
                {
                    "purpose": s.purpose,
                    "mechanism": s.mechanism.name,
                    "epsilon_alone": self.epsilon_of(s),
                    "event": event_to_json(s.mechanism.event(self.rows_per_unit)),
                }
                for s in self.spends
            ],
        }


def make_plan(
    spec: ReleaseSpec,
    domain: Domain,
    *,
    graph_rounds: Mapping[str, MechanismFactory] = MappingProxyType({}),
) -> Plan:
    """The calibrated plan of a release; `graph_rounds` names what the graph stage may release, each
    started from its whole share.
    """
    privacy = spec.privacy
    unit = spec.dataset.privacy_unit
    rows_per_unit = unit.max_rows if isinstance(unit, IdUnit) else 1
    rough = _rough_spends(spec, domain, graph_rounds)
    return _calibrated(
        Plan(privacy.epsilon, privacy.delta, privacy.adjacency, rows_per_unit, ()), rough
    )


def make_search_plan(
    rounds: Mapping[str, MechanismFactory],
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    rows_per_unit: int = 1,
) -> Plan:
    """The calibrated plan of a graph search alone, which spends everything."""
    rough = _graph_spends(rounds, _gaussian_mu(epsilon, delta))
    return _calibrated(Plan(epsilon, delta, adjacency, rows_per_unit, ()), rough)


def adaptive_round(domain: Domain, part: float) -> MechanismFactory:
    """A round of tables chosen later, for `part` of the share of all rounds."""
    return lambda mu: AdaptiveMarginals(domain, 1 / (mu * math.sqrt(part)))


def expected_fit_rows(spec: ReleaseSpec) -> float:
    """Declared rows that the fit is expected to see: a constant of the spec."""
    held_out = spec.evaluation.holdout if spec.evaluation.enabled else 0.0
    return spec.dataset.rows.value * (1 - held_out)


def _rough_spends(
    spec: ReleaseSpec, domain: Domain, rounds: Mapping[str, MechanismFactory]
) -> list[PlannedPurpose]:
    privacy, shares = spec.privacy, spec.privacy.shares

    scores = spec.evaluation.dp_share

    def gaussian_mu(share: float, *, of: float = 1 - scores) -> float:
        return _gaussian_mu(share * of * privacy.epsilon, share * of * privacy.delta)

    one_way = tuple((name,) for name in domain.names)
    sigma = math.sqrt(len(one_way)) / gaussian_mu(shares.measure)
    spends = [
        PlannedPurpose("measure", NoisyMarginals(domain, one_way, sigma, _scales(domain, one_way)))
    ]
    if privacy.pairs:
        spends.append(
            PlannedPurpose(
                "pairs",
                NoisyMarginals(
                    domain, privacy.pairs, math.sqrt(len(privacy.pairs)) / gaussian_mu(shares.pairs)
                ),
            )
        )
    if rounds:
        spends += _graph_spends(rounds, gaussian_mu(shares.graph))
    if spec.synthesizer.targets:
        spends.append(
            PlannedPurpose(
                "targets",
                _rough_training(
                    _target_settings(spec.synthesizer),
                    expected_fit_rows(spec),
                    gaussian_mu(shares.targets),
                ),
            )
        )
    spends.append(
        PlannedPurpose(
            "train",
            _rough_training(spec.synthesizer, expected_fit_rows(spec), gaussian_mu(shares.train)),
        )
    )
    if scores:
        spends.append(
            PlannedPurpose("scores", _rough_scores(spec, domain, gaussian_mu(scores, of=1)))
        )
    return spends


def _rough_scores(spec: ReleaseSpec, domain: Domain, mu: float) -> ScoreBudget:
    """Scores of targets that are no numbers: of those, right answers can be counted."""
    budget = ScoreBudget(
        domain, tuple(t for t in spec.evaluation.targets if not domain[t].ranged), 1.0
    )
    return budget.scaled(math.sqrt(budget.questions) / mu)


def _scales(domain: Domain, tables: Sequence[Columns]) -> tuple[float, ...]:
    """Noise of each table, as multiples that cost what equal noise would: the least for their mean
    total variation.

    A table of L cells is off by about L sigma. The sum of these is least, for a given sum of 1 /
    sigma^2, where sigma goes by L^(-1/3) [derived here, Lagrange]. L counts to the nearest power of
    two, so that few noises differ.
    """
    wanted = [2 ** (-round(math.log2(domain.cells(columns))) / 3) for columns in tables]
    cost = math.sqrt(math.fsum(w**-2 for w in wanted) / len(wanted))
    return () if len(set(wanted)) == 1 else tuple(w * cost for w in wanted)


def _graph_spends(rounds: Mapping[str, MechanismFactory], mu: float) -> list[PlannedPurpose]:
    return [PlannedPurpose(f"graph: {name}", start(mu)) for name, start in rounds.items()]


def _target_settings(settings: SynthesizerSettings) -> SynthesizerSettings:
    """Public rule for the targets' stage: a linear model needs fewer steps, and larger ones."""
    steps = math.ceil(TARGET_STEPS * settings.steps)
    return settings.model_copy(
        update={"steps": steps, "checkpoint_every": steps, **TARGET_SETTINGS}
    )


def _rough_training(settings: SynthesizerSettings, rows: float, mu: float) -> DpSgd:
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
    )


def _gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu such that a Gaussian mechanism of sensitivity / sigma = mu is (epsilon, delta)-DP.

    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", arXiv:1805.06530v2,
    Theorem 8.
    """

    def normal_cdf(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    def excess(mu: float) -> float:
        return (
            normal_cdf(mu / 2 - epsilon / mu)
            - math.exp(epsilon) * normal_cdf(-mu / 2 - epsilon / mu)
            - delta
        )

    low, high = 1e-9, 1.0
    while excess(high) < 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return low


def _calibrated(plan: Plan, rough: Sequence[PlannedPurpose]) -> Plan:
    """`plan` with these spends, at the least common factor of their noise that meets its total."""
    for_unit = [PlannedPurpose(s.purpose, _of_unit(s.mechanism, plan.rows_per_unit)) for s in rough]
    return _calibrate(
        lambda factor: replace(
            plan,
            spends=tuple(PlannedPurpose(s.purpose, s.mechanism.scaled(factor)) for s in for_unit),
        )
    )


def _of_unit(mechanism: PlannedMechanism, rows_per_unit: int) -> PlannedMechanism:
    """The same mechanism; counts with the noise whose cost is known exactly for units of so many
    rows.
    """
    return (
        replace(mechanism, sampler=sampler_for(rows_per_unit))
        if isinstance(mechanism, NoisyMarginals | ScoreBudget)
        else mechanism
    )


def _calibrate(plan_at: Callable[[float], Plan]) -> Plan:
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
            if plan.epsilon_spent >= target * (1 - EPSILON_TOLERANCE) or factor < MIN_FACTOR:
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
    return guess if low < guess < high and len(seen) < MAX_GUESSES else math.sqrt(low * high)
