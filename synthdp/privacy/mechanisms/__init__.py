"""What a mechanism is, and what it is to a plan.

Whatever looks at rows is one frozen object that counts, adds the noise and states its event from
the same fields, so noise and accounting cannot disagree. Fields are public; rows are only ever an
argument of `run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import dp_accounting
import numpy.typing as npt

from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

Arrays = dict[str, npt.NDArray[Any]]
T_co = TypeVar("T_co", covariant=True)


class Mechanism(Protocol[T_co]):
    """What a session can release."""

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        ...

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """What running it once does to a unit of at most `rows_per_unit` rows."""
        ...

    def run(self, table: Table, randomness: Randomness) -> T_co:
        """Look at the rows. Called by the session alone, after the charge."""
        ...

    def pack(self, value: Any) -> Arrays:
        """What `run` returned, as named arrays for the run's journal."""
        ...

    def unpack(self, arrays: Arrays) -> T_co:
        """The value that `pack` was given.

        Raises:
            KeyError, ValueError: `pack` gave no such arrays.
        """
        ...


class PlannedMechanism(Protocol):
    """What a plan knows of a mechanism before it may look at rows."""

    @property
    def name(self) -> str: ...
    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent: ...
    def scaled(self, factor: float) -> PlannedMechanism:
        """The same mechanism with `factor` times the noise."""
        ...


B_co = TypeVar("B_co", bound=PlannedMechanism, covariant=True)


@dataclass(frozen=True, eq=False)
class Prepaid(Generic[B_co]):
    """A mechanism that is chosen late, in the light of earlier releases, at the price of `budget`,
    which the plan fixed before. Abstract.

    What is chosen changes neither the event nor the name, so the planned spend pays for it. It must
    be chosen from public or released facts alone. A budget's method `choose` makes it.
    """

    budget: B_co

    @property
    def name(self) -> str:
        """Name for the ledger: that of the budget."""
        return self.budget.name

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """The event of the budget."""
        return self.budget.event(rows_per_unit)
