"""Discrete Bayesian networks in the BIF format: structure, tables, and samples.

It reads the grammar that network repositories write: `variable` blocks with discrete types, and
`probability` blocks with `table`, `default` or one row per combination of the parents' values.
Names contain no quotation marks.
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
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import GraphEdge

MAX_TABLE_CELLS = 1_000_000
MAX_CELLS = 10_000_000  # of all tables of a file
MAX_QUOTED = 300  # characters of a quotation in a message
MAX_PARENTS = 30  # numpy's tables have 32 dimensions at least, and 2^30 cells are too many anyhow

# Possessive quantifiers (`++`, `*+`) do not backtrack: each match is one pass over any text.
_BLOCK = re.compile(
    r"variable\s++([^\s{}]++)\s*+\{|probability\s*+\(([^()|]*+)(?:\|([^()]*+))?+\)\s*+\{"
)
_TYPE = re.compile(r"\s*+type\s++discrete\s*+\[\s*+([0-9]{1,6})\s*+\]\s*+\{([^{}]*+)")


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
        SynthdpError: naming the file, the line, and the block that is wrong or missing.
    """
    return parse_bif(path.read_text(encoding="utf-8"), file=path.name)


def parse_bif(text: str, *, file: str) -> BayesianNetwork:
    """A network from BIF text; messages name it `file`.

    Raises:
        SynthdpError: naming the file, the line of the block, and what is allowed.
    """
    levels: dict[str, tuple[str, ...]] = {}
    rows: dict[str, _Rows] = {}
    for block in _blocks(text, file):
        if block.given is None:
            if block.name in levels:
                raise SynthdpError(
                    f"{block.place}: variable {block.shown}: a second block for this variable",
                    hint="one block for each variable",
                )
            levels[block.name] = _levels(block)
        elif block.name in rows:
            raise SynthdpError(
                f"{block.place}: probability of {block.shown}: a second block for this variable",
                hint="one block for each variable",
            )
        else:
            rows[block.name] = _Rows(
                f"{block.place}: probability of {block.shown}",
                _names(block.given),
                block.body,
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
    parents = {name: block.given for name, block in rows.items()}
    arrows = [(parent, name) for name, given in parents.items() for parent in given]
    if not nx.is_directed_acyclic_graph(nx.DiGraph(arrows)):
        raise SynthdpError(
            f"{file}: the parents form a cycle", hint="a network is a graph without cycles"
        )
    tables = {name: _table(levels, name, block) for name, block in rows.items()}
    return BayesianNetwork(levels, parents, tables)


@dataclass(frozen=True)
class _Block:
    """A block of the file: its place, its variable, and its content as written.

    `given` are the parents as written; it is None for a `variable` block.
    """

    place: str
    name: str
    given: str | None
    body: str

    @property
    def shown(self) -> str:
        """The variable's name in a message."""
        return _listed([self.name])


@dataclass(frozen=True)
class _Rows:
    """A `probability` block: its place, the parents, and its rows as written."""

    where: str
    given: tuple[str, ...]
    body: str


def _blocks(text: str, file: str) -> Iterator[_Block]:
    """The `variable` and `probability` blocks, in one pass; all other text is ignored."""
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
            f"{block.place}: variable {block.shown}: is not discrete",
            hint="expected BIF: variable NAME { type discrete [ 2 ] { a, b }; }",
        )
    labels = _names(match[2])
    if len(labels) != int(match[1]) or len(set(labels)) != len(labels):
        raise SynthdpError(
            f"{block.place}: variable {block.shown}: {match[1]} different values announced, got"
            f" {_listed(labels)}"
        )
    return labels


def _check_sizes(
    file: str, levels: Mapping[str, tuple[str, ...]], rows: Mapping[str, _Rows]
) -> None:
    """Refuse unknown names and too large tables, before memory is allocated for one of them."""
    cells = 0
    for name, block in rows.items():
        family = (name, *block.given)
        unknown = [n for n in family if n not in levels]
        if unknown:
            raise SynthdpError(
                f"{block.where}: unknown variable {_listed(unknown[:1])!r}; known:"
                f" {_listed(levels)}"
            )
        too_many = len(block.given) > MAX_PARENTS
        size = 0 if too_many else math.prod(len(levels[n]) for n in family)
        if too_many or size > MAX_TABLE_CELLS:
            hint = (
                f"at most {MAX_PARENTS} parents, and {MAX_TABLE_CELLS:,} probabilities; give the"
                " graph alone, as DOT or YAML"
            )
            raise SynthdpError(
                f"{block.where}: has {len(block.given)} parents, and a table that is too large to"
                " be read",
                hint=hint,
            )
        cells += size
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
    text = ", ".join(itertools.islice(names, 20))
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def _table(
    levels: Mapping[str, tuple[str, ...]], name: str, block: _Rows
) -> npt.NDArray[np.float64]:
    where, given = block.where, block.given
    sizes = tuple(len(levels[n]) for n in (*given, name))
    table = np.full(sizes, np.nan)
    positions = [{level: i for i, level in enumerate(levels[n])} for n in given]
    # The default comes first: the other rows overwrite it.
    for labels, keyword, numbers in sorted(_rows(block.body), key=lambda row: row[1] != "default"):
        values = _numbers(where, numbers)
        cell: tuple[int, ...] = ()
        if not keyword:
            cell = _cell(where, positions, given, _names(labels))
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
    """Labels or keyword, and numbers, of each row.

    Other statements, such as `property`, are ignored.
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
            f"{where}: not a list of numbers: {text.strip()[:MAX_QUOTED]!r}"
        ) from error


def _cell(
    where: str,
    positions: Sequence[Mapping[str, int]],
    given: tuple[str, ...],
    labels: tuple[str, ...],
) -> tuple[int, ...]:
    try:
        return tuple(levels[v] for levels, v in zip(positions, labels, strict=True))
    except (KeyError, ValueError):
        raise SynthdpError(
            f"{where}: ({_listed(labels)}) is not a combination of values of {_listed(given)}"
        ) from None
