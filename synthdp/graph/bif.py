"""Discrete Bayesian networks in the BIF format: structure, tables, and samples; read and written.

Only the grammar that network repositories write: `variable` blocks with discrete types and `probability`
blocks with `table`, `default` or one row per combination of the parents' values. Names have no quotes in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge

MAX_CELLS = 1_000_000
WORD = re.compile(r"[^\s{}()\[\],;|\"]+")

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
    """Read a network. Raises `SynthdpError` naming the file, the line, and the block that is wrong or missing."""
    return parse_bif(path.read_text(encoding="utf-8"), file=path.name)


def parse_bif(text: str, *, file: str) -> BayesianNetwork:
    """A network from BIF text; `file` is what mistakes call it.

    Raises:
        SynthdpError: naming the file, the line of the block, and what is allowed.
    """

    def place(match: re.Match[str]) -> str:
        return f"{file}:{text.count(chr(10), 0, match.start()) + 1}"

    levels = {m[1]: _levels(place(m), m) for m in _VARIABLE.finditer(text)}
    if not levels:
        raise SynthdpError(f"{file}: no discrete variable found", hint="expected BIF: variable NAME { type discrete [ 2 ] { a, b }; }")
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, npt.NDArray[np.float64]] = {}
    for m in _PROBABILITY.finditer(text):
        name, given = m[1], _names(m[2] or "")
        unknown = [n for n in (name, *given) if n not in levels]
        if unknown or name in tables:
            what = f"unknown variable {unknown[0]!r}; known: {', '.join(levels)}" if unknown else "a second block for this variable"
            raise SynthdpError(f"{place(m)}: probability of {name}: {what}")
        parents[name] = given
        tables[name] = _table(f"{place(m)}: probability of {name}", levels, name, given, m[3])
    missing = [n for n in levels if n not in tables]
    if missing:
        raise SynthdpError(f"{file}: no probability block for {', '.join(missing)}", hint="every variable needs one")
    if not nx.is_directed_acyclic_graph(nx.DiGraph((p, c) for c in parents for p in parents[c])):
        raise SynthdpError(f"{file}: the parents form a cycle", hint="a network is a graph without cycles")
    return BayesianNetwork(levels, parents, tables)


def write_bif(network: BayesianNetwork) -> str:
    """A network as BIF text, which `parse_bif` reads back.

    Raises:
        SynthdpError: a name or a level that BIF, which has no quotes, cannot hold.
    """
    for name in (*network.levels, *(v for values in network.levels.values() for v in values)):
        if not WORD.fullmatch(name):
            raise SynthdpError(f"BIF cannot write {name!r}: no spaces, commas, semicolons, bars, quotes or brackets", hint="choose another format")
    lines = ["network unknown {", "}"]
    for name, values in network.levels.items():
        lines += [f"variable {name} {{", f"  type discrete [ {len(values)} ] {{ {', '.join(values)} }};", "}"]
    for name, given in network.parents.items():
        table = network.tables[name]
        lines.append(f"probability ( {name}{' | ' + ', '.join(given) if given else ''} ) {{")
        for cell in product(*(range(len(network.levels[p])) for p in given)):
            labels = ", ".join(network.levels[p][i] for p, i in zip(given, cell, strict=True))
            lines.append(f"  {f'({labels})' if given else 'table'} {', '.join(repr(float(v)) for v in table[cell])};")
        lines.append("}")
    return "\n".join([*lines, ""])


def uniform_network(graph: CausalGraph, domain: Domain) -> BayesianNetwork:
    """A network with the graph's structure (its extension where links have no direction) and uniform tables.

    For programs that take a graph as BIF only. Levels that BIF cannot hold are called s0, s1, ...

    Raises:
        SynthdpError: a table would have more than a million cells.
    """
    levels = {n: _bif_levels(domain[n].labels) for n in graph.nodes}
    parents = {n: graph.parents(n) for n in graph.nodes}
    shapes = {n: tuple(len(levels[m]) for m in (*parents[n], n)) for n in graph.nodes}
    large = [n for n, shape in shapes.items() if math.prod(shape) > MAX_CELLS]
    if large:
        raise SynthdpError(f"BIF lists every probability: the table of {large[0]} would have more than {MAX_CELLS:,}", hint="choose another format")
    return BayesianNetwork(levels, parents, {n: np.full(shape, 1 / shape[-1]) for n, shape in shapes.items()})


def _bif_levels(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(labels) if all(WORD.fullmatch(v) for v in labels) else tuple(f"s{i}" for i in range(len(labels)))


def _levels(place: str, match: re.Match[str]) -> tuple[str, ...]:
    found = _names(match[3])
    if len(found) != int(match[2]) or len(set(found)) != len(found):
        raise SynthdpError(f"{place}: variable {match[1]}: {match[2]} different values announced, got {', '.join(found)}")
    return found


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
