"""Discrete Bayesian networks in the BIF format: structure, tables, and samples.

Only the grammar that network repositories write: `variable` blocks with discrete types and
`probability` blocks with `table`, `default` or one row per combination of the parents' values.
Names have no quotes in it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.errors import SynthdpError
from synthdp.graph.causal import CausalGraph, GraphEdge

MAX_TABLE_CELLS = 1_000_000
MAX_CELLS = 10_000_000  # of all tables of a file
MAX_TOLD = 300  # characters of what a message quotes
MAX_PARENTS = 30  # numpy's tables have 32 dimensions at least, and 2^30 cells are too many anyhow

# No quantifier gives back what it took (`++`, `*+`), so that each is one pass over the text,
# whatever stands there.
_BLOCK = re.compile(
    r"variable\s++([^\s{}]++)\s*+\{|probability\s*+\(([^()|]*+)(?:\|([^()]*+))?+\)\s*+\{"
)
_TYPE = re.compile(r"\s*+type\s++discrete\s*+\[\s*+([0-9]{1,6})\s*+\]\s*+\{([^{}]*+)")


@dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """A discrete network: levels and parents of each node, and `tables[node]`, `[parents' levels
    ..., levels]`.
    """

    levels: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, npt.NDArray[np.float64]]

    def graph(self) -> CausalGraph:
        """The network's DAG, all arrows `given`."""
        arrows = tuple(
            GraphEdge(p, c, directed=True, provenance="given")
            for c in self.levels
            for p in self.parents[c]
        )
        return CausalGraph(tuple(self.levels), arrows)

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
    """Read a network. Raises `SynthdpError` naming the file, the line, and the block that is wrong
    or missing.
    """
    return parse_bif(path.read_text(encoding="utf-8"), file=path.name)


def parse_bif(text: str, *, file: str) -> BayesianNetwork:
    """A network from BIF text; `file` is what mistakes call it.

    Raises:
        SynthdpError: naming the file, the line of the block, and what is allowed.
    """

    levels: dict[str, tuple[str, ...]] = {}
    rows: dict[str, _Rows] = {}
    for block in _blocks(text, file):
        if block.given is None:
            if block.name in levels:
                raise SynthdpError(
                    f"{block.place}: variable {block.name}: a second block for this variable",
                    hint="one block for each variable",
                )
            levels[block.name] = _levels(block)
        elif block.name in rows:
            raise SynthdpError(
                f"{block.place}: probability of {block.name}: a second block for this variable",
                hint="one block for each variable",
            )
        else:
            rows[block.name] = _Rows(
                f"{block.place}: probability of {block.name}", _names(block.given), block.body
            )
    if not levels:
        raise SynthdpError(
            f"{file}: no discrete variable found",
            hint="expected BIF: variable NAME { type discrete [ 2 ] { a, b }; }",
        )
    _check_sizes(file, levels, rows)
    missing = [n for n in levels if n not in rows]
    if missing:
        raise SynthdpError(
            f"{file}: no probability block for {_listed(missing)}", hint="every variable needs one"
        )
    if not nx.is_directed_acyclic_graph(
        nx.DiGraph((p, c) for c, own in rows.items() for p in own.given)
    ):
        raise SynthdpError(
            f"{file}: the parents form a cycle", hint="a network is a graph without cycles"
        )
    tables = {name: _table(levels, name, own) for name, own in rows.items()}
    return BayesianNetwork(levels, {name: own.given for name, own in rows.items()}, tables)


@dataclass(frozen=True)
class _Block:
    """A block of the file: where it begins, the variable, its parents as written (None of a
    `variable` block), and what stands in it.
    """

    place: str
    name: str
    given: str | None
    body: str


@dataclass(frozen=True)
class _Rows:
    """What a `probability` block says: where it stands, the parents, and its rows as written."""

    where: str
    given: tuple[str, ...]
    body: str


def _blocks(text: str, file: str) -> Iterator[_Block]:
    """The `variable` and `probability` blocks, in one pass; whatever else stands there is left
    aside.
    """
    line, counted, at = 1, 0, 0
    while (head := _BLOCK.search(text, at)) is not None:
        line, counted = line + text.count("\n", counted, head.start()), head.start()
        place, end = f"{file}:{line}", text.find("}", head.end())
        if end < 0:
            raise SynthdpError(
                f"{place}: a block that is never closed", hint="expected } after its content"
            )
        body = text[head.end() : end]
        if head[1] is None:
            yield _Block(place, head[2].strip(), head[3] or "", body)
        else:
            yield _Block(place, head[1], None, body)
            end = text.find("}", end + 1)  # the values have brackets of their own
            if end < 0:
                raise SynthdpError(
                    f"{place}: a block that is never closed", hint="expected } after its content"
                )
        at = end + 1


def _levels(block: _Block) -> tuple[str, ...]:
    match = _TYPE.fullmatch(block.body)
    if match is None:
        raise SynthdpError(
            f"{block.place}: variable {block.name}: is not discrete",
            hint="expected BIF: variable NAME { type discrete [ 2 ] { a, b }; }",
        )
    found = _names(match[2])
    if len(found) != int(match[1]) or len(set(found)) != len(found):
        raise SynthdpError(
            f"{block.place}: variable {block.name}: {match[1]} different values announced, got"
            f" {_listed(found)}"
        )
    return found


def _check_sizes(
    file: str, levels: Mapping[str, tuple[str, ...]], rows: Mapping[str, _Rows]
) -> None:
    """Whether all names are known and the tables are not too large, before memory is asked for one
    of them.
    """
    cells = 0
    for name, own in rows.items():
        unknown = [n for n in (name, *own.given) if n not in levels]
        if unknown:
            raise SynthdpError(
                f"{own.where}: unknown variable {unknown[0]!r}; known: {_listed(levels)}"
            )
        size = (
            math.prod(len(levels[n]) for n in (name, *own.given))
            if len(own.given) <= MAX_PARENTS
            else math.inf
        )
        if size > MAX_TABLE_CELLS:
            hint = (
                f"at most {MAX_PARENTS} parents, and {MAX_TABLE_CELLS:,} probabilities; give the"
                " graph alone, as DOT or YAML"
            )
            raise SynthdpError(
                f"{own.where}: has {len(own.given)} parents, and a table that is too large to be"
                " read",
                hint=hint,
            )
        cells += int(size)
    if cells > MAX_CELLS:
        hint = "give the graph alone, as DOT or YAML"
        raise SynthdpError(
            f"{file}: all tables together would have {cells:,} probabilities; at most"
            f" {MAX_CELLS:,} are read",
            hint=hint,
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip('"') for part in text.split(",") if part.strip())


def _listed(names: Iterable[str]) -> str:
    """The first of `names`, in a message."""
    told = ", ".join(itertools.islice(names, 20))
    return told if len(told) <= MAX_TOLD else f"{told[:MAX_TOLD]}..."


def _table(levels: Mapping[str, tuple[str, ...]], name: str, own: _Rows) -> npt.NDArray[np.float64]:
    where, sizes = own.where, tuple(len(levels[n]) for n in (*own.given, name))
    table = np.full(sizes, np.nan)
    positions = [{level: i for i, level in enumerate(levels[n])} for n in own.given]
    for labels, keyword, numbers in sorted(_rows(own.body), key=lambda row: row[1] != "default"):
        values = _numbers(where, numbers)
        cell: tuple[int, ...] = (
            () if keyword else _cell(where, positions, own.given, _names(labels))
        )
        wanted = sizes if keyword == "table" else sizes[-1:]
        if values.size != math.prod(wanted):
            raise SynthdpError(
                f"{where}: {values.size} numbers where {math.prod(wanted)} are expected"
            )
        table[cell] = values.reshape(wanted)
    if np.isnan(table).any():
        raise SynthdpError(f"{where}: some combination of the parents' values has no row")
    if (table < 0).any() or not np.allclose(table.sum(-1), 1, atol=1e-2):
        raise SynthdpError(f"{where}: probabilities must be at least 0 and sum to 1 in every row")
    normal: npt.NDArray[np.float64] = table / table.sum(-1, keepdims=True)
    return normal


def _rows(body: str) -> Iterator[tuple[str, str, str]]:
    """Labels or keyword, and numbers, of each row; other statements, such as `property`, are left
    aside.
    """
    for statement in map(str.strip, body.split(";")[:-1]):
        if statement.startswith("("):
            labels, _, numbers = statement[1:].partition(")")
            yield labels, "", numbers
        elif statement.startswith(("table", "default")):
            keyword = "table" if statement.startswith("table") else "default"
            yield "", keyword, statement.removeprefix(keyword)


def _numbers(where: str, text: str) -> npt.NDArray[np.float64]:
    try:
        return np.array([float(v) for v in _names(text)])
    except ValueError as error:
        raise SynthdpError(
            f"{where}: not a list of numbers: {text.strip()[:MAX_TOLD]!r}"
        ) from error


def _cell(
    where: str,
    positions: Sequence[Mapping[str, int]],
    given: tuple[str, ...],
    labels: tuple[str, ...],
) -> tuple[int, ...]:
    if len(labels) != len(given) or any(
        v not in own for own, v in zip(positions, labels, strict=True)
    ):
        raise SynthdpError(
            f"{where}: ({_listed(labels)}) is not a combination of values of {_listed(given)}"
        )
    return tuple(own[v] for own, v in zip(positions, labels, strict=True))
