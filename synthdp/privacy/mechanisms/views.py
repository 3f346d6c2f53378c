"""Mechanisms on one view of two linked tables (`data.visits`, `privacy.linked`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import dp_accounting

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.linked import view_of
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    ChosenMarginals,
    NoisyMarginals,
    NoisyTable,
)
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Columns, Table

M = TypeVar("M", NoisyMarginals, AdaptiveMarginals)


@dataclass(frozen=True)
class OnView(Generic[M]):
    """`inner` on the rows of a view, of which a person has at most `rows`.

    Sensitivity [derived here]: `data.visits` makes a view of each person's rows alone, so that one
    person more adds at most `rows` rows to it, and changes no other: one to the views of persons,
    of first and last visits and of second visits, one less than the most visits to that of steps.
    `inner` is then a mechanism on a table whose units have at most `rows` rows, and its event is
    that of a unit of `rows` rows for each of `rows_per_unit` persons. The bound is reached by a
    person whose visits all lie in one cell. Which visits were cut depends on the same person alone.
    """

    inner: M
    view: str
    rows: int

    @property
    def domain(self) -> Domain:
        """The columns of the view."""
        return self.inner.domain

    @property
    def name(self) -> str:
        of = f", at most {self.rows} rows of a person" if self.rows > 1 else ""
        return f"{self.inner.name}, of {self.view}{of}"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """That of `inner` for units of `rows` rows."""
        return self.inner.event(rows_per_unit * self.rows)

    def for_unit(self, rows_per_unit: int) -> OnView[M]:
        """The same with the noise for units of so many persons."""
        if not isinstance(self.inner, NoisyMarginals):
            return self
        return replace(self, inner=self.inner.for_unit(rows_per_unit * self.rows))

    def scaled(self, factor: float) -> OnView[M]:
        return replace(self, inner=self.inner.scaled(factor))

    def choose(
        self, tables: Sequence[Columns], groups: LevelGroups, weights: Sequence[float] = ()
    ) -> ChosenOnView:
        """The mechanism for tables that are chosen from public or released facts."""
        assert isinstance(self.inner, AdaptiveMarginals)
        return ChosenOnView(self, self.inner.choose(tables, groups, weights))

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        """Run `inner` on the view's rows."""
        return self._noisy.run(view_of(table, self.view), randomness)

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """As of `inner`."""
        return self._noisy.pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """As of `inner`."""
        return self._noisy.unpack(arrays)

    @property
    def _noisy(self) -> NoisyMarginals:
        assert isinstance(self.inner, NoisyMarginals)
        return self.inner


@dataclass(frozen=True, eq=False)
class ChosenOnView(Prepaid[OnView[AdaptiveMarginals]]):
    """`OnView` of `AdaptiveMarginals` with its tables chosen, at the price of `budget`."""

    chosen: ChosenMarginals

    @property
    def view(self) -> str:
        """The view whose rows are counted."""
        return self.budget.view

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        """Count the tables on the view's rows, and add the noise."""
        return self.chosen.run(view_of(table, self.view), randomness)

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """As of tables that are chosen."""
        return self.chosen.pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """As of tables that are chosen."""
        return self.chosen.unpack(arrays)
