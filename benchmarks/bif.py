"""Discrete Bayesian networks in the BIF format: structure, tables, and samples.

A table is a list of rows, one for each combination of the parents' values, or one `table`. The
latter has two orders. With a bar before the parents the child's value changes fastest, as network
repositories write it; without a bar, in JavaBayes' dialect, it changes slowest. Where both orders
are probabilities and differ, a table with a bar is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.formats.bif import Family, NetworkText, Row, read_network_text, shown
from synthdp.graph.formats.draft import GraphFileError, mistake

MAX_TABLE_CELLS = 1_000_000
MAX_CELLS = 10_000_000  # of all tables of a file
MAX_PARENTS = 30  # numpy's tables have 32 dimensions at least, and 2^30 cells are too many anyhow


@dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """A discrete network: levels, parents and conditional probabilities of each node.

    `tables[node]` is `[levels of each parent ..., levels]` and sums to 1 over the last axis.
    """

    levels: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, npt.NDArray[np.float64]]

    def graph(self) -> CausalGraph:
        """The network's DAG, all arrows `given`."""
        pairs = [(parent, node) for node in self.levels for parent in self.parents[node]]
        arrows = [GraphEdge(a, b, directed=True, provenance="given") for a, b in pairs]
        return CausalGraph(tuple(self.levels), tuple(arrows))

    def domain(self) -> Domain:
        """The nodes as categorical columns."""
        return Domain(
            tuple(
                ColumnDomain(n, "categorical", labels, False) for n, labels in self.levels.items()
            )
        )

    def sample(self, rows: int, *, rng: np.random.Generator) -> npt.NDArray[np.uint16]:
        """Ancestral sample: levels of every node, `[rows, nodes]`."""
        names = list(self.levels)
        codes = np.zeros((rows, len(names)), dtype=np.uint16)
        for name in self.graph().order():
            table = self.tables[name]
            given = tuple(codes[:, names.index(p)] for p in self.parents[name])
            steps = np.cumsum(table, axis=-1)[given] if given else np.cumsum(table)[None, :]
            codes[:, names.index(name)] = (rng.random(rows)[:, None] > steps[:, :-1]).sum(1)
        return codes


def read_bif(path: Path) -> BayesianNetwork:
    """Read a network.

    Raises:
        GraphFileError: naming the file, the line, and the block that is wrong or missing.
    """
    return parse_bif(path.read_text(encoding="utf-8-sig"), file=path.name)


def parse_bif(text: str, *, file: str) -> BayesianNetwork:
    """A network from BIF text; messages name it `file`.

    Raises:
        GraphFileError: naming the file, the line of the block, and what is allowed.
    """
    network = read_network_text(text, file=file)
    network.graph()  # refuses a cycle
    _check_sizes(network)
    return BayesianNetwork(
        network.levels,
        {name: family.parents for name, family in network.families.items()},
        {name: _Table(network, name).read() for name in network.families},
    )


def _check_sizes(network: NetworkText) -> None:
    """Refuse too large tables before memory is allocated for one of them."""
    cells = 0
    for name, family in network.families.items():
        parents = family.parents
        too_many = len(parents) > MAX_PARENTS
        size = 0 if too_many else math.prod(len(network.levels[n]) for n in (name, *parents))
        if too_many or size > MAX_TABLE_CELLS:
            raise mistake(
                network.file,
                family.place,
                f"probability of {shown([name])}: has {len(parents)} parents, and a table that is"
                " too large to be read",
                hint=f"at most {MAX_PARENTS} parents, and {MAX_TABLE_CELLS:,} probabilities",
            )
        cells += size
    if cells > MAX_CELLS:
        raise mistake(
            network.file,
            None,
            f"all tables together would have {cells:,} probabilities; at most {MAX_CELLS:,} are"
            " read",
            hint="read the graph alone, which needs no tables",
        )


class _Table:
    """The table of one variable, as it is read."""

    def __init__(self, network: NetworkText, name: str) -> None:
        self.file, self.name = network.file, name
        self.family: Family = network.families[name]
        parents = [network.levels[n] for n in self.family.parents]
        self.sizes = (*map(len, parents), len(network.levels[name]))
        self.positions = [{level: i for i, level in enumerate(levels)} for levels in parents]

    def read(self) -> npt.NDArray[np.float64]:
        table = np.full(self.sizes, np.nan)
        # The default comes first: the other rows overwrite it.
        for row in sorted(self.family.rows, key=lambda row: row.keyword != "default"):
            whole = row.keyword == "table"
            values = self.numbers(row.numbers, math.prod(self.sizes) if whole else self.sizes[-1])
            if whole:
                table[...] = self.ordered(values)
            else:
                table[() if row.keyword else self.cell(row)] = values
        if np.isnan(table).any():
            raise self.wrong("some combination of the parents' values has no row")
        if not _sums_to_one(table):
            raise self.wrong("probabilities must be at least 0 and sum to 1 in every row")
        normal: npt.NDArray[np.float64] = table / table.sum(-1, keepdims=True)
        return normal

    def ordered(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """A whole table, whose child's value changes fastest or slowest."""
        fast = values.reshape(self.sizes)
        slow = np.moveaxis(values.reshape(self.sizes[-1], *self.sizes[:-1]), 0, -1)
        if not self.family.bar:
            return slow
        order = "the child's value changes fastest in a table"
        if _sums_to_one(fast):
            if _sums_to_one(slow) and not np.array_equal(fast, slow):
                raise self.wrong(
                    f"sum to 1 in two orders; {order}", hint="write one row for each combination"
                )
            return fast
        if _sums_to_one(slow):
            raise self.wrong(
                f"must sum to 1 in every row; {order}, and here it seems to change slowest",
                hint="turn the table, or write one row for each combination",
            )
        return fast

    def numbers(self, text: str, wanted: int) -> npt.NDArray[np.float64]:
        try:
            values = np.array([float(v) for v in text.replace(",", " ").split()])
        except ValueError:
            raise self.wrong(f"not a list of numbers: {shown([text.strip()])!r}") from None
        if values.size != wanted:
            raise self.wrong(f"{values.size} numbers where {wanted} are expected")
        return values

    def cell(self, row: Row) -> tuple[int, ...]:
        known = len(row.labels) == len(self.positions)
        if not known or any(v not in at for v, at in zip(row.labels, self.positions, strict=True)):
            raise self.wrong(
                f"({shown(row.labels)}) is not a combination of values of"
                f" {shown(self.family.parents)}"
            )
        return tuple(at[v] for v, at in zip(row.labels, self.positions, strict=True))

    def wrong(self, message: str, *, hint: str | None = None) -> GraphFileError:
        where = f"probability of {shown([self.name])}"
        return mistake(self.file, self.family.place, f"{where}: {message}", hint=hint)


def _sums_to_one(table: npt.NDArray[np.float64]) -> bool:
    return bool((table >= 0).all() and np.allclose(table.sum(-1), 1, atol=1e-2))
