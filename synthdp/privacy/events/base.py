"""What the project knows of a kind of event, all in one place.

An event (`dp_accounting.DpEvent`) says what was done. Its kind says what that costs, how it is
written, and what it would be for a unit of more rows. A new kind of event is one class with these
methods: in `privacy.events` where dp-accounting lacks it, in `privacy.events.gaussian` or
`privacy.events.kinds` where the event is one of dp-accounting's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as pld

from synthdp.errors import BudgetError
from synthdp.privacy.events.composition import composed
from synthdp.privacy.noise import NoiseKind

Adjacency = Literal["add_remove", "replace_one"]
UNITS: dict[Adjacency, int] = {"add_remove": 1, "replace_one": 2}  # that differ
# The most that an event of a stranger's bundle may state (`EventKind.expected_loss`): rows of a
# unit, as in the spec, and what one row moves an answer by.
MAX_ROWS, MAX_MOVED = 64, 10_000_000


class WorkLimits(Protocol):
    """What a stranger's events may repeat at most: the steps of a training, tables, answers of a
    search, and rows of a unit; and the smallest rate of a secret sample, 1 for none.
    """

    @property
    def rows(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def tables(self) -> int: ...
    @property
    def answers(self) -> int: ...
    @property
    def sample(self) -> float: ...


class EventKind:
    """One event, with all that is known of its kind. Abstract; the defaults are those of an event
    that is single, no noise on a table, and of no fixed number of rows.

    `name` is the kind's word in ledgers and certificates: it never changes its meaning.
    """

    name: ClassVar[str]
    noise: ClassVar[NoiseKind | None] = None  # that it states
    wide_grid: ClassVar[bool] = False  # its losses are inverted numerically, at every point

    @property
    def squared_mu(self) -> float:
        """About the squared mu of a Gaussian mechanism as costly; 0 where a fine grid is quick."""
        return 0.0

    @property
    def table_precision(self) -> float:
        """Sum of 1 / sigma^2 over the tables of counts that the event may have paid for."""
        return 0.0

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        """Dominates the event for a unit that is added or removed, or for one that is replaced; on
        a grid of losses of this `width`.

        Raises:
            BudgetError: no sound distribution is known under this adjacency.
        """
        raise BudgetError(
            f"no sound accounting for {_class_of(self)} under adjacency {adjacency}",
            hint="use adjacency add_remove",
        )

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        """Dominates `count` times the event: in closed form where there is one, so that nothing is
        rounded `count` times.
        """
        return composed([(self.cost(adjacency, width), count)])

    def zcdp(self, adjacency: Adjacency) -> float | None:
        """The zero-concentrated bound, of kinds whose cost is known by it alone: such bounds are
        added up before they are turned into a distribution. None for others.
        """
        return None

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        """What the event does to a unit with `size` times the rows; None if that does not follow
        from it.
        """
        return None

    def too_narrow(self, rows: int) -> str | None:
        """Why the event does not cover a unit of so many rows; None if nothing says that it does
        not.
        """
        return None

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """An upper bound on the expected privacy loss of the event, made `times` times, in nats,
        under add/remove. It bounds the work of a composition, not privacy.

        Raises:
            ValueError: a number is beyond what any release states.
        """
        raise ValueError(f"nothing bounds the loss of {_class_of(self)}")

    def to_json(self) -> dict[str, Any]:
        """The event as plain JSON, for the ledger and the certificate."""
        raise BudgetError(f"no JSON form for {_class_of(self)}")

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent | Self:
        """The event that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: `data` is no such event.
        """
        raise ValueError(f"no event of kind {cls.name} can be read")

    def words(self) -> str:
        """The event with its scale of noise, as a certificate says it."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Adapter(EventKind):
    """What is known of one of dp-accounting's own events. Abstract."""

    event: dp_accounting.DpEvent


def _class_of(kind: EventKind) -> str:
    return type(getattr(kind, "event", kind)).__name__


def whole(value: Any, most: float = math.inf) -> int:
    """`value`, which must be a whole number from 1 to `most`."""
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{str(value)[:20]} is not a whole number from 1 to {most}")
    return value


def positive(value: Any, most: float = math.inf) -> float:
    """`value`, which must be a finite number above 0 and at most `most`."""
    if not 0 < number(value) <= most or not math.isfinite(value):
        raise ValueError(f"{str(value)[:20]} is not a number above 0, at most {most:g}")
    return float(value)


def number(value: Any) -> float:
    """`value`, which must be a number."""
    if type(value) not in (int, float):
        raise ValueError(f"{str(value)[:20]} is not a number")
    return float(value)
