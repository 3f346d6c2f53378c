"""Noisy marginals: counts of public tables plus Gaussian noise on whole numbers.

`CountNoise`, of any mechanism that counts, is drawn and charged from the same two fields, so that
sampler and event cannot disagree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.privacy.events.kernel import DiscreteGaussianDpEvent, RoundedGaussianDpEvent
from synthdp.privacy.mechanisms import Arrays, PlannedMechanism, Prepaid
from synthdp.privacy.noise import DRAWS, Integers, Randomness
from synthdp.privacy.table import Columns, Table
from synthdp.spec.load.wording import many

# --- count noise ---


Sampler = Literal["discrete", "rounded"]  # of `NoiseKind`: Gaussian noise on whole numbers
EVENTS: Mapping[Sampler, Callable[[float, int], dp_accounting.DpEvent]] = MappingProxyType(
    {"discrete": DiscreteGaussianDpEvent, "rounded": RoundedGaussianDpEvent}
)


def sampler_for(rows_per_unit: int) -> Sampler:
    """The sampler whose cost is known exactly for units of so many rows, which is public.

    discrete  One row. The sampler is exact, with no assumption about real numbers, and so is its
    cost.
    rounded   Several rows. The discrete Gaussian's cost is only bounded there
    (`events.kernel.DiscreteGaussianDpEvent`), and its bound
              takes 5 to 10% more epsilon than the rounded Gaussian's exact cost at the same noise.
    """
    return "discrete" if rows_per_unit == 1 else "rounded"


@runtime_checkable
class OnCounts(Protocol):
    """A planned mechanism whose kind of noise follows from the unit."""

    def for_unit(self, rows_per_unit: int) -> PlannedMechanism:
        """The same mechanism with the noise that `sampler_for` names."""
        ...


@dataclass(frozen=True)
class CountNoise:
    """Gaussian noise of `sigma` on every cell of one table of counts: of the kind `sampler`, whole
    numbers either way.
    """

    sampler: Sampler
    sigma: float

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """What one table does to a unit of at most `rows_per_unit` rows, which are as many
        counts.
        """
        return EVENTS[self.sampler](self.sigma, rows_per_unit)

    def on(self, counts: Integers, randomness: Randomness) -> Integers:
        """`counts` with the noise."""
        noisy: Integers = DRAWS[self.sampler](randomness, counts, self.sigma, 1.0)
        return noisy


# --- marginals ---


STARTS = "starts-"
"""Of the key of a column's groups in the journal, before the column's position."""
WEIGHTS = "weights"
"""The key of the tables' weights in the journal."""


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A released table: true counts plus noise of standard deviation `sigma` per cell; may be
    negative.

    `counts` has one axis per column, of that column's levels, or of the groups of its levels that
    begin at its `starts`.
    """

    columns: Columns
    counts: npt.NDArray[np.float64]
    sigma: float
    starts: Mapping[str, Starts] = field(default_factory=dict)

    def has(self, columns: Iterable[str]) -> bool:
        """Whether it has every level of all these columns."""
        return set(columns) <= set(self.columns) - self.starts.keys()


@dataclass(frozen=True)
class NoisyMarginals:
    """Count each table of `tables` and add Gaussian noise of the kind `sampler` to every cell, of
    `sigma` times the table's own of `scales`.

    Without `scales` all tables have the same noise. Sensitivity [derived here]: a row lies in
    exactly one cell of a table. Adding or removing a unit of k rows changes the counts of one table
    by k in L1 and at most k in L2, reached when all its rows share a cell; replacing it does that
    twice, by sqrt(2) k at most in L2 (`events.kernel.RoundedGaussianDpEvent`). `m` tables are `m`
    such mechanisms run one after the other. A plan takes the sampler that `marginals.sampler_for`
    names.
    """

    domain: Domain
    tables: tuple[Columns, ...]
    sigma: float
    scales: tuple[float, ...] = ()
    sampler: Sampler = "discrete"

    def __post_init__(self) -> None:
        if self.scales and len(self.scales) != len(self.tables):
            raise ValueError(
                f"{len(self.scales)} scales for {len(self.tables)} tables: give one for each, or"
                " none"
            )

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Noise of each table's cells."""
        return tuple(
            self.sigma * scale for scale in self.scales or itertools.repeat(1.0, len(self.tables))
        )

    @property
    def noises(self) -> tuple[CountNoise, ...]:
        """Noise of each table, as it is drawn and charged."""
        return tuple(CountNoise(self.sampler, sigma) for sigma in self.sigmas)

    @property
    def name(self) -> str:
        least, most = min(self.sigmas), max(self.sigmas)
        return (
            f"{self.sampler} Gaussian, sigma"
            f" {least:.4g}{f' to {most:.4g}' if most > least else ''}, on"
            f" {many(len(self.tables), 'table')}"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """Gaussians of sensitivity `rows_per_unit`, in the order of `tables`, one for each."""
        runs = [(noise, len(list(same))) for noise, same in itertools.groupby(self.noises)]
        parts = tuple(
            dp_accounting.SelfComposedDpEvent(noise.event(rows_per_unit), count)
            for noise, count in runs
        )
        return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)

    def for_unit(self, rows_per_unit: int) -> NoisyMarginals:
        """The same with the noise for units of so many rows (`marginals.sampler_for`)."""
        return replace(self, sampler=sampler_for(rows_per_unit))

    def scaled(self, factor: float) -> NoisyMarginals:
        """The same tables with `factor` times the noise."""
        return replace(self, sigma=self.sigma * factor)

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        """Count all tables in one pass, then add the noise."""
        counted = table.count(LevelGroups(self.domain, {}), self.tables)
        return _noisy(
            self.tables,
            [
                noise.on(counts, randomness)
                for noise, counts in zip(self.noises, counted, strict=True)
            ],
            self.sigmas,
        )

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """Counts in the order of `tables`."""
        return _pack(value)

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """Tables from their counts."""
        return _unpack(arrays, self.domain, self.tables, self.sigmas)


@dataclass(frozen=True)
class AdaptiveMarginals:
    """Noisy tables that are chosen later, in the light of earlier releases, at a price fixed when
    the plan is made.

    k tables get Gaussian noise of standard deviation `noise_multiplier * sqrt(k)` per cell, rounded
    to whole
    numbers. Sensitivity [derived here]: one row moves one cell of each table by one, so the k
    tables together by sqrt(k) in L2; a unit of r rows by at most r sqrt(k), and a replaced one by
    sqrt(2) r sqrt(k). Whatever k is chosen, this is a Gaussian mechanism of noise `noise_multiplier
    / r`, and its rounding is post-processing (`events.kernel.RoundedGaussianDpEvent`). Discrete
    Gaussians of that noise have one zero-concentrated bound for all k, r^2 over 2
    `noise_multiplier`^2, but no one exact distribution, hence the other sampler.
    """

    domain: Domain
    noise_multiplier: float

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on tables chosen from"
            " earlier releases"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism on counts."""
        return RoundedGaussianDpEvent(self.noise_multiplier, rows_per_unit)

    def scaled(self, factor: float) -> AdaptiveMarginals:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def choose(
        self,
        tables: Sequence[Columns],
        groups: LevelGroups | None = None,
        weights: Sequence[float] = (),
    ) -> ChosenMarginals:
        """The mechanism for `tables`, counted on groups of levels if there are any; noise is in
        inverse proportion to `weights`, the same for all tables without them.
        """
        return ChosenMarginals(self, tuple(tables), groups.starts if groups else {}, tuple(weights))


@dataclass(frozen=True)
class ChosenMarginals(Prepaid[AdaptiveMarginals]):
    """`AdaptiveMarginals` with its tables chosen, and the groups of levels they are counted on.

    `starts` has the groups of each column that has any. They are chosen like the tables, from
    public or released facts. A row's level lies in exactly one group, so a row still moves one cell
    of each table by one: the sensitivity is the same.

    With `weights` w, chosen likewise, table j has noise `noise_multiplier` |w| / w_j, |w| the root
    of the sum of squares. Counts over their noise move by sqrt(sum of 1 / noise_j^2) = 1 /
    `noise_multiplier` in L2 for a row [derived here]: the same Gaussian mechanism, scaled back.
    """

    tables: tuple[Columns, ...]
    starts: Mapping[str, Starts] = field(default_factory=dict)
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.weights and (len(self.weights) != len(self.tables) or min(self.weights) <= 0):
            raise ValueError("give each table a positive weight, or none")

    @property
    def sigma(self) -> float:
        """Noise of each cell, where all tables have the same."""
        return self.budget.noise_multiplier * math.sqrt(len(self.tables))

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Noise of each table's cells."""
        whole = math.hypot(*self.weights)
        each = (self.budget.noise_multiplier * whole / weight for weight in self.weights)
        return tuple(each) or (self.sigma,) * len(self.tables)

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        """Count all tables in one pass, then add the noise."""
        counted = table.count(LevelGroups(self.budget.domain, self.starts), self.tables)
        return _noisy(
            self.tables,
            [
                randomness.rounded_gaussian(counts, sigma=sigma)
                for counts, sigma in zip(counted, self.sigmas, strict=True)
            ],
            self.sigmas,
            self.starts,
        )

    def pack(self, value: tuple[NoisyTable, ...]) -> Arrays:
        """Counts in the order of `tables`, under the positions of their columns, and the groups.

        A run that goes on elsewhere may choose otherwise by a rounding error; what was measured
        is then still known.
        """
        index = self.budget.domain.index
        starts = {name: s for t in value for name, s in t.starts.items()}
        return {
            "-".join([f"{i:06d}", *(str(index(c)) for c in t.columns)]): t.counts
            for i, t in enumerate(value)
        } | {
            **{f"{STARTS}{index(name)}": np.array(s) for name, s in starts.items()},
            **({WEIGHTS: np.array(self.weights)} if self.weights else {}),
        }

    def unpack(self, arrays: Arrays) -> tuple[NoisyTable, ...]:
        """The tables that were measured, from their counts and groups."""
        names = dict(enumerate(self.budget.domain.names))
        weights = tuple(map(float, arrays.get(WEIGHTS, ())))
        keys = sorted(k for k in arrays if k != WEIGHTS and not k.startswith(STARTS))
        starts = {
            names[int(key.removeprefix(STARTS))]: tuple(map(int, arrays[key]))
            for key in arrays.keys() - {*keys, WEIGHTS}
        }
        measured = tuple(tuple(names[int(at)] for at in key.split("-")[1:]) for key in keys)
        counts = {f"{i:06d}": arrays[key] for i, key in enumerate(keys)}
        groups = LevelGroups(self.budget.domain, starts)
        sigmas = self.budget.choose(measured, groups, weights).sigmas
        return _unpack(counts, groups.coarse, measured, sigmas, starts)


def _noisy(
    tables: Sequence[Columns],
    counts: Sequence[npt.NDArray[Any]],
    sigmas: Sequence[float],
    starts: Mapping[str, Starts] | None = None,
) -> tuple[NoisyTable, ...]:
    groups = starts or {}
    return tuple(
        NoisyTable(
            c, n.astype(np.float64), sigma, {name: groups[name] for name in c if name in groups}
        )
        for c, n, sigma in zip(tables, counts, sigmas, strict=True)
    )


def _pack(tables: tuple[NoisyTable, ...]) -> Arrays:
    return {f"{i:06d}": t.counts for i, t in enumerate(tables)}


def _unpack(
    arrays: Arrays,
    domain: Domain,
    tables: tuple[Columns, ...],
    sigmas: Sequence[float],
    starts: Mapping[str, Starts] | None = None,
) -> tuple[NoisyTable, ...]:
    if len(arrays) != len(tables):
        raise ValueError("another number of tables")
    for i, columns in enumerate(tables):
        counts = arrays[f"{i:06d}"]
        if (
            counts.shape != tuple(domain[c].levels for c in columns)
            or counts.dtype != np.float64
            or not np.isfinite(counts).all()
        ):
            raise ValueError(f"not the counts of table {', '.join(columns)}")
    return _noisy(tables, [arrays[f"{i:06d}"] for i in range(len(tables))], sigmas, starts)
