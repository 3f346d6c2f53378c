"""Mechanisms on one view of two linked tables (`data.visits`, `privacy.linked`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import dp_accounting

from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError
from synthdp.privacy.linked import LinkedTable
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    ChosenMarginals,
    NoisyMarginals,
    OnCounts,
)
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Columns, Table

M = TypeVar("M", NoisyMarginals, AdaptiveMarginals)


@dataclass(frozen=True)
class OnView(Generic[M]):
    """`inner` on the rows of a view, of which a person has at most `rows`.

    Sensitivity [derived here]: `data.visits` makes a view of each person's rows alone, so that one
    person more adds at most `rows` rows to it, one of the views of persons and of first and last
    visits, and one less than the most visits of that of steps. `inner` is then a mechanism on a
    table whose units have at most `rows` rows, and its event is that of a unit of `rows` rows for
    each of `rows_per_unit` persons. The bound is reached by a person whose visits all lie in one
    cell. What the visits that were cut would have added depends on the same person alone.
    """

    inner: M
    view: str
    rows: int

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        of = f", at most {self.rows} rows of a person" if self.rows > 1 else ""
        return f"{self.inner.name} of {self.view}{of}"

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """That of `inner` for units of `rows` rows."""
        return self.inner.event(rows_per_unit * self.rows)

    def for_unit(self, rows_per_unit: int) -> OnView[M]:
        """The same with the noise for units of so many persons."""
        inner: Any = self.inner
        if isinstance(inner, OnCounts):
            inner = inner.for_unit(rows_per_unit * self.rows)
        return replace(self, inner=inner)

    def scaled(self, factor: float) -> OnView[M]:
        """The same with `factor` times the noise."""
        inner: Any = self.inner.scaled(factor)
        return replace(self, inner=inner)

    def choose(
        self, tables: Sequence[Columns], groups: LevelGroups, weights: Sequence[float]
    ) -> ChosenOnView:
        """The mechanism for tables chosen from public or released facts."""
        assert isinstance(self.inner, AdaptiveMarginals)
        return ChosenOnView(self, self.inner.choose(tables, groups, weights))

    def run(self, table: Table, randomness: Randomness) -> Any:
        """Run it on the view's rows."""
        assert isinstance(self.inner, NoisyMarginals)
        return self.inner.run(_view(table, self.view), randomness)

    def pack(self, value: Any) -> Arrays:
        """As of `inner`."""
        assert isinstance(self.inner, NoisyMarginals)
        return self.inner.pack(value)

    def unpack(self, arrays: Arrays) -> Any:
        """As of `inner`."""
        assert isinstance(self.inner, NoisyMarginals)
        return self.inner.unpack(arrays)


@dataclass(frozen=True, eq=False)
class ChosenOnView:
    """`OnView` of `AdaptiveMarginals` with its tables chosen, at the price of `budget`."""

    budget: OnView[AdaptiveMarginals]
    chosen: ChosenMarginals

    @property
    def name(self) -> str:
        """That of the budget."""
        return self.budget.name

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """That of the budget."""
        return self.budget.event(rows_per_unit)

    def run(self, table: Table, randomness: Randomness) -> Any:
        """Count the tables on the view's rows, and add the noise."""
        return self.chosen.run(_view(table, self.budget.view), randomness)

    def pack(self, value: Any) -> Arrays:
        """As of tables that are chosen."""
        return self.chosen.pack(value)

    def unpack(self, arrays: Arrays) -> Any:
        """As of tables that are chosen."""
        return self.chosen.unpack(arrays)


def _view(table: Table, view: str) -> Table:
    if not isinstance(table, LinkedTable):
        raise BoundaryError("a mechanism on a view needs two linked tables")
    return table.views[view]
