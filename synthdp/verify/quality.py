"""Distances of two synthetic tables to what was measured.

They are public figures, from the noisy tables of the bundles alone.

Tables that both bundles measured on the same data are first pooled by inverse variance: neither is
then held to a reference that is the other's alone. No row of the original is needed, and nothing is
spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.bundle.metadata.datapackage import CSV_NAME
from synthdp.bundle.noisy_tables import read_tables
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.evaluate.fidelity import nearest_distribution
from synthdp.verify.common_levels import common_levels

FloatArray = npt.NDArray[np.float64]


class Cells(NamedTuple):
    """The cells of a table: its columns, and the groups of levels of those that have any."""

    columns: tuple[str, ...]
    starts: tuple[tuple[str, Starts], ...] = ()


CHUNK_ROWS = 100_000
DRAWS = 64  # of the reference's noise
CLEAR = 2.0  # standard deviations of the reference's noise beyond which a difference is called one


@dataclass(frozen=True)
class PooledTable:
    """A noisy table, its counts `[cells]` in C order, and the parameter of its noise, in counts."""

    counts: FloatArray
    sigma: float

    def pooled(self, other: PooledTable) -> PooledTable:
        """Both, averaged by inverse variance."""
        mine, theirs = self.sigma**-2, other.sigma**-2
        return PooledTable(
            (mine * self.counts + theirs * other.counts) / (mine + theirs), (mine + theirs) ** -0.5
        )


@dataclass(frozen=True)
class Distance:
    """Mean total variation of two synthetic tables to the same noisy tables, in [0, 1].

    Each noisy table is over `ways` columns.

    `noise` is the standard deviation of their difference when the tables are measured again
    (`_noise_of`).
    """

    ways: int
    tables: int
    a: float
    b: float
    noise: float

    @property
    def verdict(self) -> str:
        """What the second is, compared with the first."""
        if abs(self.b - self.a) <= CLEAR * self.noise:
            return "same"
        return "better" if self.b < self.a else "worse"


def measured_tables(bundle: Path) -> dict[Cells, PooledTable]:
    """The noisy tables of a verified bundle; several of the same columns are pooled."""
    found: dict[Cells, PooledTable] = {}
    for table in read_tables(bundle):
        cells = Cells(table.columns, tuple(sorted(table.starts.items())))
        new = PooledTable(table.counts.ravel(), table.sigma)
        found[cells] = found[cells].pooled(new) if cells in found else new
    return found


def references(
    a: Mapping[Cells, PooledTable], b: Mapping[Cells, PooledTable]
) -> dict[Cells, PooledTable]:
    """The tables of both bundles, pooled where both have them."""
    return {
        c: a[c].pooled(b[c]) if c in a and c in b else (a if c in a else b)[c]
        for c in sorted({*a, *b})
    }


def distances(a: Path, b: Path, domain: Domain, other: Domain | None = None) -> Iterator[Distance]:
    """Distances of both bundles' tables to what either measured, by number of columns.

    The bundles have the `domain` both, or the first has it and the second the `other`: then only
    tables of columns that have the same levels are looked at.
    """
    other = domain if other is None else other
    alike = set(common_levels(domain, other).alike)
    measured = [
        {cells: table for cells, table in measured_tables(bundle).items() if alike >= {*cells[0]}}
        for bundle in (a, b)
    ]
    against = references(*measured)
    shares = [synthetic_shares(*own, tuple(against)) for own in ((a, domain), (b, other))]
    for ways in sorted({len(c.columns) for c in against}):
        chosen = [c for c in against if len(c.columns) == ways]
        true = {c: nearest_distribution(against[c].counts) for c in chosen}
        means = [float(np.mean([np.abs(s[c] - true[c]).sum() / 2 for c in chosen])) for s in shares]
        yield Distance(
            ways,
            len(chosen),
            means[0],
            means[1],
            _noise_of(shares, {c: against[c] for c in chosen}),
        )


def _noise_of(
    shares: Sequence[Mapping[Cells, FloatArray]], against: Mapping[Cells, PooledTable]
) -> float:
    """Standard deviation of the difference of two mean distances.

    Noise is added to the reference again and again (a parametric bootstrap).

    The seed is fixed, so that a comparison can be repeated; nothing here hides anything.
    """
    rng, moved = np.random.default_rng(0), np.zeros(DRAWS)
    for columns, table in against.items():
        for i in range(DRAWS):
            again = nearest_distribution(
                table.counts + rng.normal(0, table.sigma, len(table.counts))
            )
            moved[i] += (
                np.abs(shares[1][columns] - again).sum() - np.abs(shares[0][columns] - again).sum()
            ) / 2
    return float(np.std(moved, ddof=1)) / len(against)


def apart(a: Path, b: Path, domain: Domain, other: Domain | None = None) -> float:
    """Mean total variation between the one-way tables of the two synthetic tables, in [0, 1].

    Where the second bundle has the `other` domain, ranges with other bins are compared on the bins
    that both have, and columns with less in common are left out.
    """
    other = domain if other is None else other
    common, sides = common_levels(domain, other), []
    for side, (bundle, own) in enumerate(((a, domain), (b, other))):
        cells = [Cells((name,)) for name in common.alike]
        cells += [Cells((name,), ((name, common.starts[name][side]),)) for name in common.merged]
        found = synthetic_shares(bundle, own, cells)
        sides.append([found[c] for c in cells])
    return float(np.mean([np.abs(x - y).sum() / 2 for x, y in zip(*sides, strict=True)]))


def synthetic_shares(
    bundle: Path, domain: Domain, tables: Sequence[Cells]
) -> dict[Cells, FloatArray]:
    """Shares of the cells of each table in a verified bundle's synthetic rows.

    Each has shape `[cells]` in C order.
    """
    groups = {c: LevelGroups(domain, dict(c.starts)) for c in tables}
    counts = {c: np.zeros(groups[c].coarse.cells(c.columns), np.int64) for c in tables}
    options: dict[str, Any] = {
        "dtype": str,
        "keep_default_na": False,
        "na_values": [""],
        "encoding": "utf-8",
    }
    with pd.read_csv(bundle / CSV_NAME, chunksize=CHUNK_ROWS, **options) as chunks:
        for chunk in chunks:
            codes, _ = encode(domain, chunk)
            for table in tables:
                own = groups[table]
                levels = [own.group_of(n)[codes[:, domain.index(n)]] for n in table.columns]
                sizes = [own.coarse[n].levels for n in table.columns]
                cells = np.ravel_multi_index(tuple(levels), tuple(sizes))
                counts[table] += np.bincount(cells, minlength=len(counts[table]))
    return {c: n / n.sum() for c, n in counts.items()}
