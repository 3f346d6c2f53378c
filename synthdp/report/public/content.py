"""Content of the public report: plain values that other files of the bundle publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from synthdp import drawing
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import OutputError
from synthdp.evaluate.effects import NORMAL_95
from synthdp.evaluate.fidelity import nearest_distribution
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.report.prose import say
from synthdp.report.sections import GraphView, room
from synthdp.report.verdicts import NOISY_SHAPE
from synthdp.spec.load.wording import nearest


@dataclass(frozen=True, kw_only=True)
class About:
    """What the publisher says of the table, in its own words; None is not stated.

    `day` is that of the release, as an ISO date. `budget` is what its dataset had left.
    """

    description: str | None = None
    licence: str | None = None
    day: str | None = None
    budget: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublicContent:
    """What the page shows. All of it stands in other files of the bundle.

    `facts` are those of `privacy/certificate.json`. `profile` has points (epsilon, delta).
    `effects` is the picture `privacy/effects.svg`. `codes` are levels of the first rows of the
    published table, shape `[rows, columns]`. `rows` is the number of rows of the whole table.
    `estimands` are those of `estimands.json`, `prior` the tables of `prior.json`. `floors` has
    about the distance of another sample of as many real rows, for `tv1` and `tv2`, and `means` what
    noise may do to means (`mean_noise`). `gates` are those that held, in words. `first` names
    columns to show before others.
    """

    domain: Domain
    facts: Mapping[str, Any]
    profile: Sequence[tuple[float, float]]
    graph: GraphView
    tables: Sequence[NoisyTable]
    codes: Codes
    rows: int
    about: About = field(default_factory=About)
    effects: str | None = None
    estimands: Sequence[Mapping[str, Any]] = ()
    prior: Sequence[Mapping[str, Any]] = ()
    floors: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --- published rows compared with published noisy counts ---


FloatArray = npt.NDArray[np.float64]

# Of ranked figures: machines that differ in the last bit must rank alike, so that `verify` draws
# the same page.
DIGITS = 9


@dataclass(frozen=True)
class Column:
    """One column: noisy and synthetic relative frequencies `[levels]`, and its noisy counts.

    `sigma` is the standard deviation of the noise in each count.
    """

    name: str
    noisy: FloatArray
    synthetic: FloatArray
    counts: FloatArray
    sigma: float

    @property
    def distance(self) -> float:
        """Total variation of the synthetic from the noisy frequencies."""
        return round(float(0.5 * np.abs(self.noisy - self.synthetic).sum()), DIGITS)

    @property
    def by_noise(self) -> float:
        """Upper bound of the expected total variation of the noise alone."""
        return noise_distance(self.counts, self.sigma)


def noise_distance(counts: FloatArray, sigma: float) -> float:
    """Upper bound, at most 1, of the expected total variation that noise alone makes in a table.

    `counts` are the table's noisy counts, `sigma` the standard deviation of their noise. The mean
    absolute value of a Gaussian is sigma sqrt(2 / pi). Projecting the counts to the nearest
    distribution only shrinks it.

    >>> round(noise_distance(np.full(10, 100.0), 5.0), 4)
    0.0199
    """
    total = max(float(counts.sum()), 1.0)
    return round(min(1.0, 0.5 * counts.size * sigma * float(np.sqrt(2 / np.pi)) / total), DIGITS)


def mean_noise(domain: Domain, codes: Codes, tables: Sequence[NoisyTable]) -> dict[str, float]:
    """How far noise alone may move the mean of each number that was measured by itself.

    It is half of a 95% interval, as a part of how far the mean of the rows (`codes`, levels `[rows,
    columns]`) is from the nearer end of the column's range. That is small where few rows are far
    out: noise in the many empty levels of a long tail then makes the mean.

    A sum of counts times their levels' middles, less the mean, has variance sigma^2 times the sum
    of squares of these differences [derived here, for a known number of rows].
    """
    found = dict[str, float]()
    for table in tables:
        name = table.columns[0]
        column = domain[name]
        if len(table.columns) > 1 or table.starts or not column.ranged:
            continue
        shares = np.bincount(codes[:, domain.index(name)], minlength=column.levels)
        counts, shares = (c[: len(column.centres)].astype(float) for c in (table.counts, shares))
        mean = float(shares @ column.centres) / max(1.0, float(shares.sum()))
        moved = table.sigma * float(np.linalg.norm(column.centres - mean)) / max(1.0, counts.sum())
        found[name] = round(NORMAL_95 * moved / room(column, mean), DIGITS)
    return found


def measured(domain: Domain, codes: Codes, tables: Sequence[NoisyTable]) -> Iterator[Column]:
    """Every column that was measured by itself, in the table's order.

    `codes` are levels `[rows, columns]`.
    """
    single = {t.columns[0]: t for t in tables if len(t.columns) == 1}
    for i, column in enumerate(domain.columns):
        if (table := single.get(column.name)) is not None:
            counts = np.asarray(table.counts, dtype=np.float64)
            shares = np.bincount(codes[:, i], minlength=column.levels) / len(codes)
            yield Column(column.name, nearest_distribution(counts), shares, counts, table.sigma)


@dataclass(frozen=True)
class MeasuredPair:
    """A pair of columns that a published table contains, with its noisy counts `[levels, levels]`.

    `sigma` is the noise in each of these. `distance` is the total variation of the synthetic rows
    from the table; `by_noise` bounds the expected total variation of the noise alone.
    """

    names: tuple[str, str]
    distance: float
    by_noise: float
    counts: FloatArray | None = field(default=None, compare=False, repr=False)
    sigma: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether neither noise nor the model moves so many rows that its table is no table."""
        return max(self.by_noise, self.distance) < NOISY_SHAPE


def measured_pairs(
    domain: Domain, codes: Codes, tables: Sequence[NoisyTable], *, most: int = 400
) -> Iterator[MeasuredPair]:
    """Each pair once, from the smallest table that contains it; the first `most` of the tables."""
    smallest: dict[tuple[str, str], NoisyTable] = {}
    for table in tables:
        for first, second in combinations(table.columns, 2):
            pair = (second, first) if (second, first) in smallest else (first, second)
            if pair not in smallest or smallest[pair].counts.size > table.counts.size:
                smallest[pair] = table
    for pair, table in [*smallest.items()][:most]:
        others = tuple(k for k, name in enumerate(table.columns) if name not in pair)
        counts = np.asarray(table.counts, dtype=np.float64).sum(axis=others)
        if table.columns.index(pair[0]) > table.columns.index(pair[1]):
            counts = counts.T
        # Each count is a sum of so many noisy cells.
        sigma = table.sigma * float(np.sqrt(table.counts.size / counts.size))
        i, j = (domain.index(n) for n in pair)
        keys = codes[:, i].astype(np.int64) * counts.shape[1] + codes[:, j]
        shares = np.bincount(keys, minlength=counts.size) / len(keys)
        distance = float(0.5 * np.abs(nearest_distribution(counts) - shares).sum())
        by_noise = noise_distance(counts, sigma)
        yield MeasuredPair(pair, round(distance, DIGITS), by_noise, counts, sigma)


class Counted(Protocol):
    """Columns, noisy tables of them, and levels of synthetic rows."""

    @property
    def domain(self) -> Domain: ...

    @property
    def tables(self) -> Sequence[NoisyTable]: ...

    @property
    def codes(self) -> Codes: ...


@dataclass(frozen=True)
class PairOfColumns:
    """Two columns: shares `[levels, levels]` in the rows, and in a noisy table that has both.

    `margin` is half of the 95% interval that noise alone gives each of `noisy`.
    """

    columns: tuple[ColumnDomain, ColumnDomain]
    synthetic: FloatArray
    noisy: FloatArray | None
    margin: float | None
    about: str

    @classmethod
    def of(cls, content: Counted, first: str, second: str) -> PairOfColumns:
        """That pair of a page's content.

        Raises:
            OutputError: there are no such two columns.
        """
        domain, names = content.domain, (first, second)
        unknown = [name for name in names if name not in domain.names]
        if unknown or first == second:
            near = nearest(unknown[0], domain.names) if unknown else "name two columns"
            message = f"there is no pair of {first!r} and {second!r}"
            raise OutputError(message, hint=near or f"allowed: {', '.join(domain.names)}")
        i, j = (domain.index(name) for name in names)
        both = (domain[first], domain[second])
        rows = np.zeros([column.levels for column in both])
        np.add.at(rows, (content.codes[:, i], content.codes[:, j]), 1)
        rows /= len(content.codes)
        tables = [t for t in content.tables if {*names} <= {*t.columns}]
        pairs = measured_pairs(domain, content.codes, tables)
        pair = next((p for p in pairs if {*p.names} == {*names}), None)
        if pair is None or pair.counts is None:
            return cls(both, rows, None, None, say("pair_unmeasured"))
        counts = pair.counts if pair.names == names else pair.counts.T
        total = max(1.0, float(counts.sum()))
        margin, about = NORMAL_95 * pair.sigma / total, say("pair_measured", pair=pair)
        return cls(both, rows, counts / total, margin, about)

    def __str__(self) -> str:
        told = self.to_json()
        cells = sorted(told["cells"], key=lambda c: -abs(c["synthetic"] - c.get("noisy", 0.0)))
        lines = [f"{' with '.join(told['columns'])}: {self.about}"]
        for cell in cells[:12]:
            noisy = f", noisy {cell['noisy']:.2%} (+-{self.margin:.2%})" if self.margin else ""
            lines.append(f"  {', '.join(cell['levels'])}: synthetic {cell['synthetic']:.2%}{noisy}")
        return "\n".join([*lines, *([f"  and {len(cells) - 12} more"] if cells[12:] else [])])

    def to_json(self) -> dict[str, Any]:
        """JSON object, with every cell."""
        first, second = self.columns
        cells = [
            {"levels": [a, b], "synthetic": float(self.synthetic[i, j])}
            | ({} if self.noisy is None else {"noisy": float(self.noisy[i, j])})
            for i, a in enumerate(first.labels)
            for j, b in enumerate(second.labels)
        ]
        told = {"columns": [first.name, second.name], "measured": self.noisy is not None}
        return told | {"about": self.about, "margin": self.margin, "cells": cells}

    def to_svg(self) -> str:
        """The tables below each other, as a file of its own."""
        levels, shown = {c.name: c.labels for c in self.columns}, dict[str, str]()
        draw = partial(drawing.crosstab, levels)
        if self.noisy is not None and self.margin is not None:
            heading = f"Noisy table: each cell +-{self.margin:.2%} of the rows; ring: noise"
            shown[heading] = draw(self.noisy, colour=drawing.FIRST, hidden=self.margin, alt=heading)
        heading = "Synthetic rows" if shown else "Synthetic rows: by the model, not measured"
        shown[heading] = draw(self.synthetic, colour=drawing.SECOND, hidden=-1.0, alt=heading)
        return drawing.sheet(shown, name="pair", title=" with ".join(levels))
