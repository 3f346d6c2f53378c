"""The table of all kinds of events, and the events that are made of others.

`kind_of` says what is known of any event; `KINDS` lists all that a ledger or a certificate can
name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

import attrs
import dp_accounting
import numpy as np
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from synthdp.errors import BudgetError
from synthdp.privacy.events import (
    Adapter,
    Adjacency,
    EventKind,
    WorkLimits,
    composed,
    positive,
    whole,
)
from synthdp.privacy.events.concentrated import concentrated_pld, mixed_pld, secret_sample_pld
from synthdp.privacy.events.gaussian import Gaussian, MixtureOfGaussians, PoissonSampled
from synthdp.privacy.events.kernel import (
    DiscreteGaussianDpEvent,
    GaussianSumsDpEvent,
    GumbelMaxDpEvent,
    RoundedGaussianDpEvent,
    SparseVectorDpEvent,
    ThresholdedGaussianDpEvent,
)

OF_BATCHES = (PoissonSampled.name, MixtureOfGaussians.name)  # events of one step of a training


class Nothing(Adapter):
    """No look at the rows."""

    name = "nothing"

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return pld.identity(value_discretization_interval=width)

    def widened(self, size: int) -> dp_accounting.DpEvent:
        return self.event

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        return 0.0

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent:
        return dp_accounting.NoOpDpEvent()


class Unknown(Adapter):
    """An event that has no cost here, and no JSON."""

    name = "unknown"


class Repeated(Adapter):
    """The same event, so many times, each in the light of those before."""

    name = "repeated"

    @property
    def parts(self) -> tuple[dp_accounting.DpEvent, ...]:
        return (self.event.event,)

    @property
    def _once(self) -> EventKind:
        return kind_of(self.event.event)

    @property
    def squared_mu(self) -> float:
        return float(self.event.count * self._once.squared_mu)

    @property
    def table_precision(self) -> float:
        return float(self.event.count * self._once.table_precision)

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return self._once.repeated(self.event.count, adjacency, width)

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        once = self._once.widened(size)
        return None if once is None else dp_accounting.SelfComposedDpEvent(once, self.event.count)

    def too_narrow(self, rows: int) -> str | None:
        return self._once.too_narrow(rows)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        count = whole(self.event.count, limits.steps + limits.tables + limits.answers)
        return self._once.expected_loss(limits, times * count)

    def to_json(self) -> dict[str, Any]:
        count = self.event.count
        return {"event": self.name, "count": count, "of": event_to_json(self.event.event)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent:
        return dp_accounting.SelfComposedDpEvent(event_from_json(data["of"]), whole(data["count"]))

    def words(self) -> str:
        return f"{self.event.count} times: {self._once.words()}"


class All(Adapter):
    """Several events, each in the light of those before.

    The same event is composed once for all its repeats, however deep in other events they are.
    Zero-concentrated bounds of all events that have no closer one add up, and one conversion of the
    sum loses less than many.
    """

    name = "all"

    @property
    def parts(self) -> tuple[dp_accounting.DpEvent, ...]:
        return tuple(self.event.events)

    @property
    def squared_mu(self) -> float:
        return sum(kind_of(part).squared_mu for part in self.parts)

    @property
    def table_precision(self) -> float:
        return sum(kind_of(part).table_precision for part in self.parts)

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        bounds: list[float] = []
        each: list[pld.PrivacyLossDistribution] = []
        counts: Counter[dp_accounting.DpEvent] = Counter()
        for event, count in _flat(self.event, 1):
            counts[event] += count
        for event, count in counts.items():
            rho = kind_of(event).zcdp(adjacency)
            if rho is not None:
                bounds.append(count * rho)
            else:
                repeated = dp_accounting.SelfComposedDpEvent(event, count)
                each.append(cost_of(repeated, adjacency, width))
        if bounds:
            each.append(concentrated_pld(math.fsum(bounds), width=width))
        if not each:
            return pld.identity(value_discretization_interval=width)
        return composed([(one, 1) for one in each])

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        each = tuple(dp_accounting.SelfComposedDpEvent(part, count) for part in self.parts)
        return cost_of(dp_accounting.ComposedDpEvent(each), adjacency, width)

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        parts = [kind_of(part).widened(size) for part in self.parts]
        return None if None in parts else dp_accounting.ComposedDpEvent(tuple(parts))

    def too_narrow(self, rows: int) -> str | None:
        found = (kind_of(part).too_narrow(rows) for part in self.parts)
        return next((problem for problem in found if problem), None)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        if len(self.parts) > 200:  # of one purpose, in a stranger's bundle
            raise ValueError(f"{len(self.parts)} events of one purpose")
        return math.fsum(kind_of(part).expected_loss(limits, times) for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, "of": [event_to_json(part) for part in self.parts]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent:
        return dp_accounting.ComposedDpEvent(tuple(map(event_from_json, list(data["of"]))))

    def words(self) -> str:
        repeated = dp_accounting.SelfComposedDpEvent
        drawn = [(p.count, p.event) if isinstance(p, repeated) else (1, p) for p in self.parts]
        tables = [(n, e) for n, e in drawn if isinstance(e, DiscreteGaussianDpEvent)]
        if len(tables) < len(drawn) or len({table.sensitivity for _, table in tables}) != 1:
            return "; and ".join(kind_of(part).words() for part in self.parts)
        listed = ", ".join(f"{n} of sigma {table.sigma:.6g}" for n, table in tables)
        most = tables[0][1].sensitivity
        return f"discrete Gaussian on counts that a unit moves by at most {most}; tables: {listed}"


def _flat(event: dp_accounting.DpEvent, times: int) -> Iterator[tuple[dp_accounting.DpEvent, int]]:
    """The events that `times` times `event` is made of one after the other, and how often each is
    there: none that follows is a composition.
    """
    match event:
        case dp_accounting.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _flat(part, times)
        case dp_accounting.SelfComposedDpEvent(event=once, count=count):
            yield from _flat(once, times * count)
        case _:
            yield event, times


@lru_cache(maxsize=20)  # costs on all rows, of the sizes of groups that a certificate tells
def _inside(event: dp_accounting.DpEvent, width: float) -> pld.PrivacyLossDistribution:
    """Of what runs on a secret sample; each group asks for those of the smaller ones again."""
    return cost_of(event, "add_remove", width)


class Around(EventKind):
    """What is around another event. Abstract; of that event is all but its cost."""

    event: dp_accounting.DpEvent

    @property
    def parts(self) -> tuple[dp_accounting.DpEvent, ...]:
        return (self.event,)

    @property
    def squared_mu(self) -> float:
        """Of what is inside: its distribution is the one that takes time."""
        return kind_of(self.event).squared_mu

    def too_narrow(self, rows: int) -> str | None:
        return kind_of(self.event).too_narrow(rows)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        return kind_of(self.event).expected_loss(limits, times)


@attrs.frozen
class SecretSampleDpEvent(Around, dp_accounting.DpEvent):  # type: ignore[misc]
    """`event` on a secret sample of the units, drawn once for all of it: each unit is in by its own
    coin of chance `rate`, with all its rows.

    `secret_sample_pld` has the proof for a unit added or removed, and for a group of `units`. No
    pair is known here that dominates a replaced unit.
    """

    rate: float
    event: dp_accounting.DpEvent
    units: int = 1

    name = "secret_sample"

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        if adjacency != "add_remove":
            return super().cost(adjacency, width)
        told = [self.event, *(kind_of(self.event).widened(j) for j in range(2, self.units + 1))]
        if self.rate == 1:
            return cost_of(told[-1], adjacency, width)
        # Width of the grid of losses on a secret sample, which makes them smaller: a finer one
        # takes most of the time of a plan, for the fifth digit of epsilon.
        inners = [_inside(event, max(width, 5e-4)) for event in told]
        return secret_sample_pld(inners, self.rate, width=width)

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        """Each of `size` units has a coin of its own."""
        known = kind_of(self.event).widened(self.units * size) is not None
        return SecretSampleDpEvent(self.rate, self.event, self.units * size) if known else None

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """That of what runs on the sample, which is what takes time; the sample makes it no larger.

        A sample that the spec does not ask for, or a smaller one, is none that a release draws.
        """
        # 1e-9: relative, of two rates that are computed differently
        if positive(self.rate, 1) < limits.sample * (1 - 1e-9):
            raise ValueError(f"a sample of {self.rate:g} of the units, smaller than the spec's")
        return super().expected_loss(limits, times)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, "rate": self.rate, "of": event_to_json(self.event)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        inner = data["of"]
        if inner["event"] != Repeated.name or inner["of"]["event"] not in OF_BATCHES:
            raise ValueError(
                f"a secret sample for {str(inner)[:60]}: it is for steps of a training"
            )
        return cls(positive(data["rate"], 1), event_from_json(inner))

    def words(self) -> str:
        return (
            f"on a secret sample that each unit is in with probability {self.rate:.6g}, drawn once:"
            f" {kind_of(self.event).words()}"
        )


@attrs.frozen
class HeldOutDpEvent(Around, dp_accounting.DpEvent):  # type: ignore[misc]
    """`event`, which units that are held out move alone, and which all others leave as it is."""

    event: dp_accounting.DpEvent

    name = "held_out"

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        """Of the event, whoever is held out."""
        return cost_of(self.event, adjacency, width)

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        inner = kind_of(self.event).widened(size)
        return None if inner is None else HeldOutDpEvent(inner)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, "of": event_to_json(self.event)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        if data["of"]["event"] != Repeated.name:
            raise ValueError("held-out units move the counts of scores alone")
        return cls(event_from_json(data["of"]))

    def words(self) -> str:
        return f"of held-out units alone, {kind_of(self.event).words()}"


def of_side(event: dp_accounting.DpEvent, *, held_out: bool) -> dp_accounting.DpEvent:
    """The part of an event that a unit moves which is held out, or which is not."""
    match event:
        case HeldOutDpEvent(event=inner):
            return inner if held_out else dp_accounting.NoOpDpEvent()
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            inner = of_side(inner, held_out=held_out)
            return dp_accounting.SelfComposedDpEvent(inner, count)
        case dp_accounting.ComposedDpEvent(events=parts):
            sides = (of_side(part, held_out=held_out) for part in parts)
            return dp_accounting.ComposedDpEvent(tuple(sides))
        case _:
            return dp_accounting.NoOpDpEvent() if held_out else event


@attrs.frozen
class HoldoutDpEvent(EventKind, dp_accounting.DpEvent):  # type: ignore[misc]
    """All looks of a release at a table each of whose units is held out with chance `rate`, by a
    coin of its own, drawn once for all of them, that nobody is told.

    A unit that is not held out moves the looks at fitted rows (`of_side`), one that is held out
    those at held-out rows. So its coin has two sides, and on each of them the product of what
    dominates each look dominates all of them, in whatever order and in the light of whatever came
    before, whoever else is held out [derived here]. `concentrated.mixed_pld` has the rest. Scores
    look at both: they are on both sides, each with its own part, and never beside them. Of a group
    of `units` j are fitted with the binomial chance: a coin of more sides. A group of more than
    three is charged as one of known coins, on both sides.

    For a replaced unit no pair is known here.
    """

    rate: float
    events: tuple[dp_accounting.DpEvent, ...]
    units: int = 1

    name = "holdout"

    @property
    def parts(self) -> tuple[dp_accounting.DpEvent, ...]:
        return self.events

    @property
    def squared_mu(self) -> float:
        return sum(kind_of(event).squared_mu for event in self.events)

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        if adjacency != "add_remove":
            return super().cost(adjacency, width)
        if self.units > 3:  # of more, each side takes time
            known = tuple(kind_of(event).widened(self.units) for event in self.events)
            return cost_of(dp_accounting.ComposedDpEvent(known), adjacency, width)
        sides = np.arange(self.units + 1)
        inners = [
            _inside(
                dp_accounting.ComposedDpEvent(
                    (*self._side(fitted, False), *self._side(self.units - fitted, True))
                ),
                max(width, 5e-4),  # as of a secret sample
            )
            for fitted in sides.tolist()
        ]
        chances = stats.binom.pmf(sides, self.units, 1 - self.rate)
        return mixed_pld(inners, chances, width=width)

    def _side(self, units: int, held_out: bool) -> tuple[dp_accounting.DpEvent, ...]:
        """What `units` of a group move that are on one side."""
        own = (of_side(event, held_out=held_out) for event in self.events if units)
        return tuple(event if units == 1 else kind_of(event).widened(units) for event in own)

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        """Each of `size` units has a coin of its own."""
        known = all(kind_of(e).widened(self.units * size) is not None for e in self.events)
        return HoldoutDpEvent(self.rate, self.events, self.units * size) if known else None


def with_holdout(
    events: Iterable[dp_accounting.DpEvent], rate: float, adjacency: Adjacency
) -> tuple[dp_accounting.DpEvent, ...]:
    """The events of a release, as they are composed, whose units are each held out with chance
    `rate`: under add/remove as one; else, where nothing is gained, as they are.
    """
    listed = tuple(events)
    claimed = rate > 0 and adjacency == "add_remove" and len(listed) > 0
    return (HoldoutDpEvent(rate, listed),) if claimed else listed


ADAPTERS: Mapping[type, type[Adapter]] = MappingProxyType(
    {
        dp_accounting.NoOpDpEvent: Nothing,
        dp_accounting.GaussianDpEvent: Gaussian,
        dp_accounting.PoissonSampledDpEvent: PoissonSampled,
        MixtureOfGaussiansDpEvent: MixtureOfGaussians,
        dp_accounting.SelfComposedDpEvent: Repeated,
        dp_accounting.ComposedDpEvent: All,
    }
)
_KERNEL_KINDS: tuple[type[EventKind], ...] = (
    DiscreteGaussianDpEvent,
    RoundedGaussianDpEvent,
    ThresholdedGaussianDpEvent,
    GaussianSumsDpEvent,
    SparseVectorDpEvent,
    GumbelMaxDpEvent,
    SecretSampleDpEvent,
    HeldOutDpEvent,
)
KINDS: Mapping[str, type[EventKind]] = MappingProxyType(
    {kind.name: kind for kind in (*_KERNEL_KINDS, *ADAPTERS.values())}
)


def kind_of(event: dp_accounting.DpEvent) -> EventKind:
    """What is known of `event`: events of this kernel know it themselves.

    >>> kind_of(dp_accounting.GaussianDpEvent(2.0)).name
    'gaussian'
    """
    if isinstance(event, EventKind):
        return event
    return ADAPTERS.get(type(event), Unknown)(event)


@lru_cache(maxsize=64)
def cost_of(
    event: dp_accounting.DpEvent, adjacency: Adjacency, width: float
) -> pld.PrivacyLossDistribution:
    """A distribution that dominates `event` (`EventKind.cost`)."""
    return kind_of(event).cost(adjacency, width)


def leaves(event: dp_accounting.DpEvent) -> Iterator[EventKind]:
    """The events inside `event` that are made of no others, each named once for all its repeats."""
    kind = kind_of(event)
    if isinstance(kind, Repeated | All | Around | HoldoutDpEvent):
        for part in kind.parts:
            yield from leaves(part)
    else:
        yield kind


def event_to_json(event: dp_accounting.DpEvent) -> dict[str, Any]:
    """An event as plain JSON, for the ledger and the certificate.

    >>> event_to_json(RoundedGaussianDpEvent(9.0, sensitivity=2))
    {'event': 'rounded_gaussian', 'sigma': 9.0, 'sensitivity': 2}
    """
    return kind_of(event).to_json()


def event_from_json(data: Any) -> dp_accounting.DpEvent:
    """The event that `event_to_json` wrote.

    Raises:
        BudgetError: unknown kind of event.
    """
    try:
        return KINDS[data["event"]].from_json(data)
    except (KeyError, TypeError, ValueError):
        raise BudgetError(f"unknown event {str(data)[:80]!r}") from None
