"""Noisy tables with one thing wrong in each: name -> (how to build it for a domain, what the replay
must say).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd

from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import DiscreteGaussianDpEvent
from synthdp.privacy.mechanisms.marginals import (
    AdaptiveMarginals,
    ChosenMarginals,
    NoisyMarginals,
    NoisyTable,
)
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Integers, Randomness
from synthdp.privacy.table import Table, count_tables


@dataclass(frozen=True)
class Planted(NoisyMarginals):
    """Noisy marginals with a hole where a bug goes: what is counted, and what becomes of it."""

    counts: Callable[[Table, Domain, tuple[Any, ...]], list[Integers]] = (
        lambda table, domain, tables: count_tables(table.fit_codes, domain, tables)
    )
    add_noise: Callable[[list[Integers], Table, Randomness, float], list[Any]] = (
        lambda counts, table, randomness, sigma: [
            randomness.discrete_gaussian(c, sigma=sigma) for c in counts
        ]
    )
    charged: Callable[[float, int, int], Any] = lambda sigma, rows, tables: (
        dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma, rows), tables)
    )

    def event(self, rows_per_unit: int) -> Any:
        return self.charged(self.sigma, rows_per_unit, len(self.tables))

    def run(self, table: Table, randomness: Randomness) -> Any:
        noisy = self.add_noise(
            self.counts(table, self.domain, self.tables), table, randomness, self.sigma
        )
        return tuple(
            NoisyTable(
                self.tables[min(i, len(self.tables) - 1)], np.asarray(n, dtype=float), self.sigma
            )
            for i, n in enumerate(noisy)
        )


def with_counts(change: Callable[..., list[Integers]]) -> Callable[[Domain], Planted]:
    """`change(counts, table, domain)` is what gets noise."""
    return lambda domain: Planted(
        domain,
        one_way(domain),
        2.0,
        counts=lambda t, d, names: change(count_tables(t.fit_codes, d, names), t, d),
    )


def with_noise(add: Callable[..., list[Any]]) -> Callable[[Domain], Planted]:
    """`add(counts, table, randomness, sigma)` gives what is returned."""
    return lambda domain: Planted(domain, one_way(domain), 2.0, add_noise=add)


def with_event(charged: Callable[[float, int, int], Any]) -> Callable[[Domain], Planted]:
    return lambda domain: Planted(domain, one_way(domain), 2.0, charged=charged)


def one_way(domain: Domain) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in domain.names)


# --- scales ---


def scaled(factor: Callable[[list[Integers], Table], float]) -> Callable[[Domain], Planted]:
    return with_noise(
        lambda counts, table, r, sigma: [
            r.discrete_gaussian(c, sigma=sigma * factor(counts, table)) for c in counts
        ]
    )


def rounded_with(factor: float) -> Callable[[Domain], Any]:
    @dataclass(frozen=True)
    class Less(ChosenMarginals):
        @property
        def sigma(self) -> float:
            return super().sigma * factor

    return lambda domain: Less(AdaptiveMarginals(domain, 1.5), one_way(domain))


# --- what is counted ---


def of_values(histogram: Callable[[pd.Series[float]], Integers]) -> Callable[[Domain], Planted]:
    """A histogram of the values of the numeric column instead of its levels."""
    return with_counts(
        lambda counts, table, domain: [*counts[:-1], histogram(table.frame["n"].dropna())]
    )


def edges_from_data(values: pd.Series[float]) -> Integers:
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    return np.histogram(values, bins=4, range=(low, high if high > low else low + 1))[0].astype(
        np.int64
    )


def bins_from_data(values: pd.Series[float]) -> Integers:
    edges = np.unique(np.quantile(values, [0, 0.5, 1])) if len(values) else np.zeros(0)
    counts = np.histogram(values, bins=edges)[0] if len(edges) > 1 else np.array([len(values)])
    return np.pad(counts, (0, 2 - len(counts))).astype(np.int64)


def without_missing(counts: list[Integers], table: Table, domain: Domain) -> list[Integers]:
    """Missing values dropped, the others blown up to the number of rows."""
    whole = [c.copy() for c in counts]
    for c, column in zip(whole, domain.columns, strict=True):
        if column.missing and c[:-1].sum():
            c[:-1] = np.rint(c[:-1] * (c.sum() / c[:-1].sum()))
            c[-1] = 0
    return whole


def imputed_by_mode(counts: list[Integers], table: Table, domain: Domain) -> list[Integers]:
    filled = [c.copy() for c in counts]
    for c, column in zip(filled, domain.columns, strict=True):
        if column.missing:
            c[np.argmax(c[:-1])] += c[-1]
            c[-1] = 0
    return filled


def first_category_twice(counts: list[Integers], table: Table, domain: Domain) -> list[Integers]:
    return [np.where(np.arange(len(c)) == 0, 2 * c, c) for c in counts]


def gaps(counts: list[Integers], table: Table, domain: Domain) -> list[Integers]:
    """Sorted, then differences of neighbours."""
    return [np.abs(np.diff(np.sort(c), prepend=0, append=0)) for c in counts]


def with_held_out(counts: list[Integers], table: Table, domain: Domain) -> list[Integers]:
    return count_tables(table.codes, domain, one_way(domain))


# --- what is returned ---


def honest(counts: list[Integers], r: Randomness, sigma: float) -> list[Any]:
    return [r.discrete_gaussian(c, sigma=sigma) for c in counts]


def only_occupied_cells(
    counts: list[Integers], table: Table, r: Randomness, sigma: float
) -> list[Any]:
    noisy = [c.copy() for c in counts]
    for c in noisy:
        c[c > 0] = r.discrete_gaussian(c[c > 0], sigma=sigma)
    return noisy


def by_own_generator(
    counts: list[Integers], table: Table, r: Randomness, sigma: float
) -> list[Any]:
    return [c + np.rint(np.random.default_rng(0).normal(0, sigma, c.shape)) for c in counts]


def noise_of_the_first_again(
    counts: list[Integers], table: Table, r: Randomness, sigma: float
) -> list[Any]:
    noise = r.discrete_gaussian(np.zeros(8, dtype=np.int64), sigma=sigma)
    return [c + noise[: len(c)] for c in counts]


def until_it_fits(counts: list[Integers], table: Table, r: Randomness, sigma: float) -> list[Any]:
    """Draws again where the noise came out large."""
    noisy = honest(counts, r, sigma)
    for i, c in enumerate(counts):
        while np.abs(noisy[i] - c).max() > sigma:
            noisy[i] = r.discrete_gaussian(c, sigma=sigma)
    return noisy


def stops_when_small(
    counts: list[Integers], table: Table, r: Randomness, sigma: float
) -> list[Any]:
    return honest(counts[: 1 + min(len(counts) - 1, int(counts[0].sum()) // 4)], r, sigma)


def chosen_by_data(counts: list[Integers], table: Table, r: Randomness, sigma: float) -> list[Any]:
    """The tables in the order of their largest cell."""
    order = sorted(range(len(counts)), key=lambda i: int(counts[i].max()))
    return honest([counts[i] for i in order], r, sigma)


def says(speak: Callable[[int], Any]) -> Callable[[Domain], Planted]:
    def add(counts: list[Integers], table: Table, r: Randomness, sigma: float) -> list[Any]:
        speak(len(table.fit_codes))
        return honest(counts, r, sigma)

    return with_noise(add)


def raises_on_rare(counts: list[Integers], table: Table, r: Randomness, sigma: float) -> list[Any]:
    if counts[0][-1] == 1:
        raise ValueError("a category with one row")
    return honest(counts, r, sigma)


def fails_inside(counts: list[Integers], table: Table, r: Randomness, sigma: float) -> list[Any]:
    """Swallows its own error and gives up on a table."""
    try:
        if not counts[1].all():
            raise ZeroDivisionError
        return honest(counts, r, sigma)
    except Exception:
        return honest(counts[:1], r, sigma)


def after(change: Callable[[Any, Integers], Any]) -> Callable[[Domain], Planted]:
    """`change(noisy, exact)` of each table is returned."""
    return with_noise(
        lambda counts, table, r, sigma: [
            change(n, c) for n, c in zip(honest(counts, r, sigma), counts, strict=True)
        ]
    )


@dataclass(frozen=True)
class Packs(NoisyMarginals):
    """Keeps what it saw, and writes it to the journal."""

    extra: Callable[[Table], Arrays] = lambda table: {}

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyTable, ...]:
        object.__setattr__(self, "kept", self.extra(table))
        return super().run(table, randomness)

    def pack(self, value: Any) -> Arrays:
        return super().pack(value) | self.kept  # type: ignore[attr-defined, no-any-return]


def packing(extra: Callable[[Table], Arrays]) -> Callable[[Domain], Packs]:
    return lambda domain: Packs(domain, one_way(domain), 2.0, extra=extra)


def adaptive(add: Callable[..., Any]) -> Callable[[Domain], Any]:
    """Chosen tables whose noise is added by `add(counts, randomness, sigma)`."""

    @dataclass(frozen=True)
    class Other(ChosenMarginals):
        def run(self, table: Table, randomness: Randomness) -> Any:
            counts = count_tables(table.fit_codes, self.budget.domain, self.tables)
            return tuple(
                NoisyTable(t, add(c, randomness, self.sigma), self.sigma)
                for t, c in zip(self.tables, counts, strict=True)
            )

    return lambda domain: Other(AdaptiveMarginals(domain, 1.5), one_way(domain))


def one_more_table(domain: Domain) -> NoisyMarginals:
    @dataclass(frozen=True)
    class More(NoisyMarginals):
        def run(self, table: Table, randomness: Randomness) -> Any:
            return NoisyMarginals(self.domain, (*self.tables, self.tables[0]), self.sigma).run(
                table, randomness
            )

    return More(domain, one_way(domain), 2.0)


def repeated(event: Any, count: int) -> Any:
    return dp_accounting.SelfComposedDpEvent(event, count)


Bug = tuple[Callable[[Domain], Any], str]

BUGS: dict[str, Bug] = {
    "half the noise": (scaled(lambda counts, table: 0.5), "charged"),
    "99% of the noise": (scaled(lambda counts, table: 0.99), "charged"),
    "half the noise on chosen tables": (rounded_with(0.5), "moved"),
    "99% of the noise on chosen tables": (rounded_with(0.99), "moved"),
    "noise by the square root of n": (
        scaled(lambda counts, table: 1 + 1 / (1 + len(table.fit_codes)) ** 0.5),
        "sigma",
    ),
    "noise by the range of a column": (
        scaled(lambda counts, table: 1 + int(table.fit_codes.max(initial=0))),
        "sigma",
    ),
    "noise by the largest count": (
        scaled(lambda counts, table: 1 + max(int(c.max()) for c in counts)),
        "sigma",
    ),
    "event of another sigma": (
        with_event(
            lambda sigma, rows, tables: repeated(DiscreteGaussianDpEvent(2 * sigma, rows), tables)
        ),
        "charged",
    ),
    "event of one table less": (
        with_event(
            lambda sigma, rows, tables: repeated(DiscreteGaussianDpEvent(sigma, rows), tables - 1)
        ),
        "charged",
    ),
    "event of a Gaussian": (
        with_event(
            lambda sigma, rows, tables: dp_accounting.GaussianDpEvent(sigma / (rows * tables))
        ),
        "charged",
    ),
    "event that forgets the unit's rows": (
        with_event(lambda sigma, rows, tables: repeated(DiscreteGaussianDpEvent(sigma, 1), tables)),
        "moved",
    ),
    "event of nothing": (
        with_event(lambda sigma, rows, tables: dp_accounting.NoOpDpEvent()),
        "charged",
    ),
    "one table more than charged": (one_more_table, "charged"),
    "bounds from the data": (of_values(edges_from_data), "moved"),
    "bins at quantiles of the data": (of_values(bins_from_data), "moved"),
    "categories from the data": (
        of_values(lambda values: values.value_counts(sort=False).to_numpy(dtype=np.int64)),
        "shape",
    ),
    "empty categories dropped": (
        with_counts(lambda counts, table, domain: [c[c > 0] for c in counts]),
        "shape",
    ),
    "thresholding before noise": (
        with_counts(lambda counts, table, domain: [np.where(c < 5, 0, c) for c in counts]),
        "moved",
    ),
    "rounding to fives before noise": (
        with_counts(
            lambda counts, table, domain: [5 * np.rint(c / 5).astype(np.int64) for c in counts]
        ),
        "moved",
    ),
    "rounding to a part of n before noise": (
        with_counts(
            lambda counts, table, domain: [
                c // max(1, len(table.fit_codes) // 8) * max(1, len(table.fit_codes) // 8)
                for c in counts
            ]
        ),
        "moved",
    ),
    "counts clipped at a quarter of n": (
        with_counts(lambda counts, table, domain: [np.minimum(c, c.sum() // 4) for c in counts]),
        "moved",
    ),
    "counts in thousandths of n": (
        with_counts(
            lambda counts, table, domain: [1000 * c // max(1, int(c.sum())) for c in counts]
        ),
        "moved",
    ),
    "missing values dropped and the rest blown up": (with_counts(without_missing), "moved"),
    "missing values filled with the commonest": (with_counts(imputed_by_mode), "moved"),
    "a row counted twice": (with_counts(first_category_twice), "moved"),
    "a join that multiplies rows": (
        with_counts(lambda counts, table, domain: [c * c for c in counts]),
        "moved",
    ),
    "sorted and differenced": (with_counts(gaps), "moved"),
    "rows that are held out": (with_counts(with_held_out), "moved"),
    "a dtype by the data": (
        with_counts(
            lambda counts, table, domain: [
                c.astype(np.int32 if c.max() < 5 else np.int64) for c in counts
            ]
        ),
        "dtype",
    ),
    "no noise where the count is zero": (
        after(lambda noisy, exact: np.where(exact == 0, 0, noisy)),
        "output",
    ),
    "noise on occupied cells only": (with_noise(only_occupied_cells), "shape"),
    "cut at the number of rows": (
        after(lambda noisy, exact: np.minimum(noisy, exact.sum())),
        "output",
    ),
    "shares of the exact number of rows": (
        after(lambda noisy, exact: noisy / max(1, exact.sum())),
        "output",
    ),
    "cells above the largest used one cut off": (
        after(lambda noisy, exact: noisy[: 1 + int(np.flatnonzero(exact).max(initial=0))]),
        "output",
    ),
    "standardised by mean and deviation of the data": (
        after(lambda noisy, exact: (noisy - exact.mean()) / (1 + exact.std())),
        "output",
    ),
    "exact counts beside the noisy ones": (
        after(lambda noisy, exact: np.stack([noisy, exact])),
        "output",
    ),
    "no noise at all": (with_noise(lambda counts, table, r, sigma: counts), "charged"),
    "noise of a generator of its own": (with_noise(by_own_generator), "charged"),
    "noise drawn once and used again": (with_noise(noise_of_the_first_again), "output"),
    "noise drawn again until it is small": (with_noise(until_it_fits), "charged"),
    "stops when the table is small": (with_noise(stops_when_small), "calls"),
    "tables in an order of the data": (with_noise(chosen_by_data), "shape"),
    "prints the number of rows": (says(lambda rows: print("rows:", rows)), "said"),
    "logs the number of rows": (
        says(lambda rows: logging.getLogger("planted").warning("rows: %d", rows)),
        "said",
    ),
    "warns of the number of rows": (
        says(lambda rows: warnings.warn(f"rows: {rows}", stacklevel=1)),
        "said",
    ),
    "an exception on a rare value": (with_noise(raises_on_rare), "exception"),
    "an error swallowed": (with_noise(fails_inside), "calls"),
    "exact counts in the journal": (
        packing(lambda table: {"exact": table.fit_codes.sum(0)}),
        "packed",
    ),
    "the journal's size by the data": (
        packing(lambda table: {"padding": np.zeros(len(table.fit_codes))}),
        "packed",
    ),
    "misfits in the journal": (
        packing(
            lambda table: {
                "misfits": np.array([k["outside the domain"] for k in table.misfits.values()])
            }
        ),
        "packed",
    ),
    "halves of counts": (
        adaptive(lambda c, r, sigma: r.rounded_gaussian(c / 2, sigma=sigma)),
        "lattice",
    ),
    "infinite counts": (
        adaptive(lambda c, r, sigma: r.lattice_gaussian(np.log(c), sigma=sigma, spacing=1.0)),
        "not finite",
    ),
    "a spacing of the data": (
        adaptive(
            lambda c, r, sigma: r.lattice_gaussian(
                c.astype(float), sigma=sigma, spacing=1 / (1 + c.max())
            )
        ),
        "spacing",
    ),
    "a spacing too fine for doubles": (
        adaptive(
            lambda c, r, sigma: r.lattice_gaussian(c.astype(float), sigma=sigma, spacing=1e-18)
        ),
        "lattice",
    ),
    "a spacing wider than the noise": (
        adaptive(
            lambda c, r, sigma: r.lattice_gaussian(c.astype(float), sigma=sigma, spacing=8 * sigma)
        ),
        "moved",
    ),
}
