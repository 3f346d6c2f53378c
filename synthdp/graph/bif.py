"""Discrete Bayesian networks in the BIF format: structure, tables, and samples.

Only the grammar that network repositories write: `variable` blocks with discrete types and `probability`
blocks with `table`, `default` or one row per combination of the parents' values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge

_VARIABLE = re.compile(r"variable\s+(\S+)\s*\{\s*type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{([^}]*)\}\s*;[^}]*\}")
_PROBABILITY = re.compile(r"probability\s*\(\s*([^)|]+?)\s*(?:\|\s*([^)]*?)\s*)?\)\s*\{([^}]*)\}")
_ROW = re.compile(r"(?:\(([^)]*)\)|(table|default))\s*([^;]*);")


@dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """A discrete network: levels and parents of each node, and `tables[node]`, `[parents' levels ..., levels]`."""

    levels: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, npt.NDArray[np.float64]]

    def graph(self) -> CausalGraph:
        """The network's DAG, all arrows `given`."""
        arrows = tuple(GraphEdge(p, c, directed=True, provenance="given") for c in self.levels for p in self.parents[c])
        return CausalGraph(tuple(self.levels), arrows)

    def domain(self) -> Domain:
        """The nodes as categorical columns."""
        return Domain(tuple(ColumnDomain(n, "categorical", labels, False) for n, labels in self.levels.items()))

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
    """Read a network. Raises `SynthdpError` naming the block that is wrong or missing."""
    text = path.read_text(encoding="utf-8")
    levels = {name: _names(labels) for name, _, labels in _VARIABLE.findall(text)}
    if not levels:
        raise SynthdpError(f"{path.name}: no discrete variable found", hint="expected BIF: variable NAME { type discrete [ 2 ] { a, b }; }")
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, npt.NDArray[np.float64]] = {}
    for name, given, body in _PROBABILITY.findall(text):
        parents[name] = _names(given)
        unknown = [n for n in (name, *parents[name]) if n not in levels]
        if unknown:
            raise SynthdpError(f"{path.name}: probability of {name}: unknown variable {unknown[0]!r}; known: {', '.join(levels)}")
        tables[name] = _table(f"{path.name}: probability of {name}", levels, name, parents[name], body)
    missing = [n for n in levels if n not in tables]
    if missing:
        raise SynthdpError(f"{path.name}: no probability block for {', '.join(missing)}")
    if not nx.is_directed_acyclic_graph(nx.DiGraph((p, c) for c in parents for p in parents[c])):
        raise SynthdpError(f"{path.name}: the parents form a cycle")
    return BayesianNetwork(levels, parents, tables)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip('"') for part in text.split(",") if part.strip())


def _table(where: str, levels: Mapping[str, tuple[str, ...]], name: str, given: tuple[str, ...], body: str) -> npt.NDArray[np.float64]:
    sizes = tuple(len(levels[n]) for n in (*given, name))
    table = np.full(sizes, np.nan)
    for labels, keyword, numbers in sorted(_ROW.findall(body), key=lambda row: row[1] != "default"):
        values = _numbers(where, numbers)
        cell: tuple[int, ...] = () if keyword else _cell(where, levels, given, _names(labels))
        wanted = sizes if keyword == "table" else sizes[-1:]
        if values.size != np.prod(wanted):
            raise SynthdpError(f"{where}: {values.size} numbers where {int(np.prod(wanted))} are expected")
        table[cell] = values.reshape(wanted)
    if np.isnan(table).any():
        raise SynthdpError(f"{where}: some combination of the parents' values has no row")
    if (table < 0).any() or not np.allclose(table.sum(-1), 1, atol=1e-2):
        raise SynthdpError(f"{where}: probabilities must be at least 0 and sum to 1 in every row")
    normal: npt.NDArray[np.float64] = table / table.sum(-1, keepdims=True)
    return normal


def _numbers(where: str, text: str) -> npt.NDArray[np.float64]:
    try:
        return np.array([float(v) for v in _names(text)])
    except ValueError as error:
        raise SynthdpError(f"{where}: not a list of numbers: {text.strip()!r}") from error


def _cell(where: str, levels: Mapping[str, tuple[str, ...]], given: tuple[str, ...], labels: tuple[str, ...]) -> tuple[int, ...]:
    if len(labels) != len(given) or any(v not in levels[n] for n, v in zip(given, labels, strict=True)):
        raise SynthdpError(f"{where}: ({', '.join(labels)}) is not a combination of values of {', '.join(given)}")
    return tuple(levels[n].index(v) for n, v in zip(given, labels, strict=True))
