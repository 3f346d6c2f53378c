"""The plan of a release: every spend, fixed before any row is read.

What is not in the plan cannot be released. `privacy.calibration` makes it from the spec.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import dp_accounting
from pydantic import SerializerFunctionWrapHandler, model_serializer

from synthdp.errors import BudgetError
from synthdp.ledger.entries import Bound
from synthdp.privacy import accounting
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.events import Adjacency
from synthdp.privacy.events.kinds import event_to_json, kind_of, with_holdout
from synthdp.privacy.mechanisms import PlannedMechanism
from synthdp.privacy.mechanisms.frequent_texts import TextBudget
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.mechanisms.scores import ScoreBudget
from synthdp.privacy.mechanisms.sums import ProductSums
from synthdp.spec.model import Model

if TYPE_CHECKING:  # it opens engines
    from synthdp.privacy.linked import OnView

# Purposes, as ledgers and certificates name them; those of the graph, and of estimands, have a name
# of their own each.
MEASURE, PAIRS, TARGETS, TRAIN, SCORES = "measure", "pairs", "targets", "train", "scores"
MOMENTS, HEAPS = "moments", "heaps"
# Of a run that drafts a spec (`synthdp init --private`), and of no release.
FORMS, TEXTS = "forms", "texts"
GRAPH, ESTIMAND = "graph: ", "estimand: "
INTERACTIONS = "interactions"  # what the graph stage looks for beyond pairs, in mode predict
# Noisy tables serve everything that can use them, at one price.
TABLE_USES = ("start of the model", "raking", "published counts")
PAIR_USES = ("balance", *TABLE_USES)
SERVES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        MEASURE: TABLE_USES,
        PAIRS: PAIR_USES,
        MOMENTS: ("answers",),
        HEAPS: ("values inside levels",),
        TARGETS: ("model",),
        TRAIN: ("model",),
        SCORES: ("published scores",),
        FORMS: ("types and bounds of a draft",),
        TEXTS: ("categories of a draft",),
    }
)
GROUP_SIZES = (1, 2, 3, 5, 10)
USELESS = 50.0  # epsilon of a group, beyond which composing for larger ones takes seconds
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


MechanismFactory = Callable[[float], PlannedMechanism]
"""A mechanism about as costly as one Gaussian mechanism of sensitivity / noise = mu. Only a
starting point (`privacy.calibration`).
"""
M = TypeVar("M")


class Spend(Model):
    """One look at the rows as ledger, certificate and audit state it: what it is for, the name of
    its mechanism, and its privacy event as plain JSON.

    What it costs alone, its part in the cost of all, and whether a run used it are computed where
    they are shown. An audit's record leaves the name out.
    """

    purpose: str
    mechanism: str | None = None
    event: dict[str, Any]

    @model_serializer(mode="wrap")
    def _without_none(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


@dataclass(frozen=True)
class PlannedPurpose:
    """One planned mechanism and what it is for."""

    purpose: str
    mechanism: PlannedMechanism

    @property
    def serves(self) -> tuple[str, ...]:
        """What the released value is used for."""
        of_tables = isinstance(self.mechanism, NoisyMarginals | AdaptiveMarginals)
        first = "answers" if self.purpose.startswith(ESTIMAND) else "graph"
        return SERVES.get(self.purpose, (first, *(PAIR_USES if of_tables else ())))


@dataclass(frozen=True)
class ReleasePlan:
    """Every spend of one run, in fields that are named like their purposes; None is not planned.
    `holdout` is the chance of each unit to be held out by a coin on whose secrecy all that is said
    of epsilon counts, 0 where it does not (`calibration.secret_holdout`).

    `measure`: one-way tables of all columns. `pairs`: two-way tables that the spec names.
    `moments`: sums of all numbers. `heaps`: numbers that many rows have.
    `estimands`: what each of the spec's estimands is made of, by name. `graph`: what the graph
    stage may release, by name. `targets`: training of the targets' heads. `train`:
    training of the network. `scores`: published scores. `forms` and `texts`: how the values of
    unknown columns are written and where they lie, and texts that many rows have, for a draft.
    `linked`: looks at persons with visits (`privacy.linked.OnView`), by purpose.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    rows_per_unit: int
    measure: NoisyMarginals | None = None
    pairs: NoisyMarginals | None = None
    moments: ProductSums | None = None
    heaps: TextBudget | None = None
    estimands: Mapping[str, PlannedMechanism] = field(default_factory=dict, hash=False)
    graph: Mapping[str, PlannedMechanism] = field(default_factory=dict, hash=False)
    targets: DpSgd | None = None
    train: DpSgd | None = None
    scores: ScoreBudget | None = None
    forms: NoisyMarginals | None = None
    texts: TextBudget | None = None
    linked: Mapping[str, OnView[Any]] = field(default_factory=dict, hash=False)
    holdout: float = 0.0

    @cached_property
    def spends(self) -> tuple[PlannedPurpose, ...]:
        """Every planned mechanism with its purpose, in the order in which they are composed."""
        listed: list[tuple[str, PlannedMechanism | None]] = [
            (MEASURE, self.measure),
            (PAIRS, self.pairs),
            (MOMENTS, self.moments),
            (HEAPS, self.heaps),
            *((estimand_purpose(name), mechanism) for name, mechanism in self.estimands.items()),
            *((graph_purpose(name), mechanism) for name, mechanism in self.graph.items()),
            (TARGETS, self.targets),
            (TRAIN, self.train),
            (SCORES, self.scores),
            (FORMS, self.forms),
            (TEXTS, self.texts),
            *self.linked.items(),
        ]
        return tuple(
            PlannedPurpose(p, mechanism) for p, mechanism in listed if mechanism is not None
        )

    def find(self, purpose: str) -> PlannedPurpose | None:
        """The spend with this purpose."""
        return next((s for s in self.spends if s.purpose == purpose), None)

    def in_graph(self, name: str, kind: type[M]) -> M | None:
        """What the graph stage may release under `name`; None if nothing of this kind is
        planned.
        """
        mechanism = self.graph.get(name)
        return mechanism if isinstance(mechanism, kind) else None

    def map(
        self, change: Callable[[str, PlannedMechanism], PlannedMechanism | None]
    ) -> ReleasePlan:
        """The plan with each mechanism changed, or left out, by `change(purpose, mechanism)`."""
        changed: dict[str, Any] = {}
        groups = (("estimands", estimand_purpose), ("graph", graph_purpose), ("linked", str))
        for group, purpose_of in groups:
            parts = {n: change(purpose_of(n), m) for n, m in getattr(self, group).items()}
            changed[group] = {n: m for n, m in parts.items() if m is not None}
        for purpose in SERVES:
            mechanism = getattr(self, purpose)
            changed[purpose] = None if mechanism is None else change(purpose, mechanism)
        return replace(self, **changed)

    def only(self, purposes: Collection[str]) -> ReleasePlan:
        """The part of this plan that some purposes make up, with the noise it has: what a run spent
        that left others unused.
        """
        if all(s.purpose in purposes for s in self.spends):
            return self
        return self.map(lambda purpose, mechanism: mechanism if purpose in purposes else None)

    @property
    def events(self) -> list[dp_accounting.DpEvent]:
        """Events of all spends, per unit that is known not to be held out, or to be."""
        return [s.mechanism.event(self.rows_per_unit) for s in self.spends]

    def composed(self, *spends: PlannedPurpose) -> tuple[dp_accounting.DpEvent, ...]:
        """Events of some spends, or of all, of a unit that nobody knows to be held out or not."""
        events = (s.mechanism.event(self.rows_per_unit) for s in spends or self.spends)
        return with_holdout(events, self.holdout, self.adjacency)

    @cached_property
    def epsilon_spent(self) -> float:
        """Epsilon of all spends together at the plan's delta; never above `epsilon`."""
        return accounting.epsilon(self.composed(), delta=self.delta, adjacency=self.adjacency)

    @cached_property
    def epsilon_told(self) -> float | None:
        """The same to someone who knows who is held out; None where nothing counts on a coin."""
        if self.composed() == tuple(self.events):
            return None
        return accounting.epsilon(self.events, delta=self.delta, adjacency=self.adjacency)

    @cached_property
    def bound(self) -> Bound:
        """What the Gaussian filter of the ledger needs to know of all spends, used or not."""
        return bound_of(self.composed(), delta=self.delta, adjacency=self.adjacency)

    def epsilon_of(self, spend: PlannedPurpose) -> float:
        """Epsilon of one spend alone at the plan's delta (the parts sum to more than the whole)."""
        return accounting.epsilon(self.composed(spend), delta=self.delta, adjacency=self.adjacency)

    @cached_property
    def profile(self) -> tuple[tuple[float, float], ...]:
        """The composed (epsilon, delta) trade-off."""
        return accounting.delta_profile(
            self.composed(), epsilons=PROFILE_EPSILONS, adjacency=self.adjacency
        )

    @cached_property
    def group_epsilons(self) -> dict[int, float]:
        """Epsilon at the plan's delta for groups of k units; infinite where no useful bound is
        known, and for those larger than a group whose bound is above `USELESS`.

        Under add/remove a group of k units is one unit with k times the rows, so the events are
        widened to it (`EventKind.widened`); under replace-one, for very large groups, and for
        events that cannot be widened, the generic group bound is used.
        """
        found = dict[int, float]()
        for k in GROUP_SIZES:
            hopeless = max(found.values(), default=0.0) > USELESS
            found[k] = math.inf if hopeless else self._group_epsilon(k)
        return found

    def _group_epsilon(self, size: int) -> float:
        rows, events = size * self.rows_per_unit, self.composed()
        widened = [kind_of(event).widened(size) for event in events]
        if self.adjacency == "replace_one" or rows > accounting.MAX_GROUP_ROWS or None in widened:
            return accounting.group_epsilon(
                events, size=size, delta=self.delta, adjacency=self.adjacency
            )
        return accounting.epsilon(widened, delta=self.delta, adjacency="add_remove")

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
                    "purpose": stated.purpose,
                    "mechanism": stated.mechanism,
                    "epsilon_alone": self.epsilon_of(spend),
                    "event": stated.event,
                }
                for spend, stated in zip(self.spends, self.stated_spends, strict=True)
            ],
        }

    @property
    def stated_spends(self) -> tuple[Spend, ...]:
        """The spends as a certificate lists them."""
        return tuple(
            Spend(
                purpose=s.purpose,
                mechanism=s.mechanism.name,
                event=event_to_json(s.mechanism.event(self.rows_per_unit)),
            )
            for s in self.spends
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the plan, which the ledger's reservation holds (`spends_digest`)."""
        return spends_digest(self.stated_spends)


def graph_purpose(name: str) -> str:
    """The purpose of what the graph stage plans under `name`.

    >>> graph_purpose("orient")
    'graph: orient'
    """
    return f"{GRAPH}{name}"


def estimand_purpose(name: str) -> str:
    """The purpose of what is planned for the estimand `name`.

    >>> estimand_purpose("1")
    'estimand: 1'
    """
    return f"{ESTIMAND}{name}"


def needed(mechanism: M | None, purpose: str) -> M:
    """A mechanism that a plan must have.

    Raises:
        BudgetError: it is not planned.
    """
    if mechanism is None:
        raise BudgetError(f"{purpose!r} is not in the plan")
    return mechanism


def bound_of(
    events: Sequence[dp_accounting.DpEvent], *, delta: float, adjacency: Adjacency
) -> Bound:
    """`mu` and `lost` of planned events; a thousandth of the run's `delta` is for tails."""
    return accounting.gaussian_bound(events, tail=1e-3 * delta, adjacency=adjacency)


def spends_digest(spends: Iterable[Spend]) -> str:
    """SHA-256 of planned spends.

    A reservation holds it, so that no bundle can leave out a spend that its run did not use.
    """
    stated = [spend.model_dump(mode="json") for spend in spends]
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()
