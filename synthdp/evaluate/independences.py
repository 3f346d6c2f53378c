"""Does a table keep the independences that the graph implies? Dependence of pairs of columns given
what should separate them.

A column is independent of every column that is neither its effect nor its cause, given its causes
(the local Markov
property: S. L. Lauritzen et al., "Independence properties of directed Markov fields", Networks 20
(1990)).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph

SEED = 0  # public: the same claims are looked at in every release of one graph
MAX_CLAIMS, MAX_TRIES, MAX_ROWS = 64, 4000, 10_000
ONE_SIDED = 1.645  # standard deviations that 95% of a Gaussian stay below
# Cohen's w of a small effect: J. Cohen, "Statistical Power Analysis", 2nd ed. (1988), section 7.2
VISIBLE = 0.1

IntArray = npt.NDArray[np.int64]
Levels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Dependence:
    """Cohen's w, and what w chance alone stays below in 95 of 100 tables where there is no
    dependence.
    """

    w: float
    by_chance: float

    @property
    def visible(self) -> bool:
        """Whether more than a small effect is seen, beyond chance."""
        return self.w**2 > VISIBLE**2 + self.by_chance**2


@dataclass(frozen=True)
class IndependenceRow:
    """One implied independence, and what dependence there is all the same."""

    x: str
    y: str
    given: tuple[str, ...]
    real: Dependence
    synthetic: Dependence


@dataclass(frozen=True)
class IndependenceReport:
    """The claims that were looked at, and of how many the graph makes at most (`pairs`: all that
    are not linked).
    """

    rows: tuple[IndependenceRow, ...]
    pairs: int

    def kept(self, side: str) -> int:
        """How many claims hold on a side: no dependence is visible."""
        return sum(not getattr(row, side).visible for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "kept_real": self.kept("real"),
            "kept_synthetic": self.kept("synthetic"),
            "rows": [asdict(row) for row in self.rows],
            "pairs": self.pairs,
        }


def compare_independences(
    real: Codes, synthetic: Codes, *, domain: Domain, graph: CausalGraph, rng: np.random.Generator
) -> IndependenceReport | None:
    """At most `MAX_CLAIMS` claims of the graph on at most `MAX_ROWS` random rows of both tables,
    `[rows, columns]`; None without graph or rows.

    Random ones, since a real table may be sorted.
    """
    if not graph.edges or not len(real) or not len(synthetic):
        return None
    rows, tables = (
        [],
        [table[rng.permutation(len(table))[:MAX_ROWS]] for table in (real, synthetic)],
    )
    for x, y, given in claims(graph):
        at = [domain.index(n) for n in (x, y, *given)]
        w = [
            conditional_dependence(table[:, at[0]], table[:, at[1]], table[:, at[2:]])
            for table in tables
        ]
        rows.append(IndependenceRow(x, y, given, w[0], w[1]))
    linked = len({frozenset(e) for e in graph.dag.edges})
    return (
        IndependenceReport(tuple(rows), len(graph.nodes) * (len(graph.nodes) - 1) // 2 - linked)
        if rows
        else None
    )


def claims(graph: CausalGraph) -> list[tuple[str, str, tuple[str, ...]]]:
    """Claims (x, y, given) that the graph makes, drawn by a public seed; pairs in one group or with
    an unseen common cause claim nothing.
    """
    order, rng = graph.order(), np.random.default_rng(SEED)
    silent = {
        frozenset(pair)
        for names in (*graph.groups.values(), *graph.latent)
        for pair in combinations(names, 2)
    }
    silent |= {frozenset(e) for e in graph.dag.edges}
    size = len(order)
    if size * (size - 1) // 2 <= MAX_TRIES:
        tried = rng.permutation(np.column_stack(np.triu_indices(size, 1)))
    else:
        tried = np.sort(
            np.column_stack([rng.integers(0, size, MAX_TRIES), rng.integers(0, size, MAX_TRIES)]),
            axis=1,
        )
        tried = tried[tried[:, 0] < tried[:, 1]]
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for i, j in tried.tolist():
        x, y = order[i], order[j]
        if frozenset((x, y)) in silent or (x, y) in found:
            continue
        given = graph.parents(y) if not graph.latent else _separator(graph, x, y)
        if given is None:
            continue
        found[x, y] = given
        if len(found) == MAX_CLAIMS:
            break
    return [(x, y, given) for (x, y), given in found.items()]


def _separator(graph: CausalGraph, x: str, y: str) -> tuple[str, ...] | None:
    """The causes of one that separate both, where causes may be unseen; None if neither's do."""
    return next(
        (
            given
            for given in (graph.parents(y), graph.parents(x))
            if not {x, y} & set(given) and graph.d_separated(x, y, given)
        ),
        None,
    )


def conditional_dependence(x: Levels, y: Levels, given: Levels) -> Dependence:
    """Dependence of two columns within the strata of others, shapes `[rows]`, `[rows]`, `[rows,
    columns]`.

    The sum over strata of Pearson's chi-square, less its expectation n (r - 1) (c - 1) / (n - 1)
    with the margins held fixed (B. S. Everitt, "The Analysis of Contingency Tables", 2nd ed.
    (1992), section 2.4), so that strata of few rows do not look like dependence.
    """
    strata, levels = _strata(given), int(y.max()) + 1
    row_key = strata * (int(x.max()) + 1) + x  # a stratum and a level of x
    column_key = strata * levels + y
    (rows, in_row), (columns, in_column) = (
        np.unique(key, return_counts=True) for key in (row_key, column_key)
    )
    cells, seen = np.unique(row_key * levels + y, return_counts=True)
    of_cell = cells // levels // (int(x.max()) + 1)
    expected = (
        in_row[np.searchsorted(rows, cells // levels)]
        * in_column[np.searchsorted(columns, of_cell * levels + cells % levels)]
    )
    n = np.bincount(strata).astype(np.float64)
    chi_square = n * (
        np.bincount(of_cell, weights=seen.astype(np.float64) ** 2 / expected, minlength=len(n)) - 1
    )
    r, c = (
        np.bincount(rows // (int(x.max()) + 1), minlength=len(n)),
        np.bincount(columns // levels, minlength=len(n)),
    )
    mean = np.divide(n * (r - 1) * (c - 1), n - 1, out=np.zeros_like(n), where=n > 1)
    total = len(strata)
    # About the variance of a chi-square, which is twice its mean.
    chance = ONE_SIDED * float(np.sqrt(2 * mean.sum())) / total
    return Dependence(
        float(np.sqrt(max(0.0, (chi_square - mean).sum() / total))), float(np.sqrt(chance))
    )


def _strata(columns: Levels) -> IntArray:
    """Which combination of levels each row has, numbered from 0, shape `[rows]`."""
    strata = np.zeros(len(columns), dtype=np.int64)
    for column in columns.T.astype(np.int64):
        strata = np.unique(strata * (int(column.max()) + 1) + column, return_inverse=True)[
            1
        ].astype(np.int64)
    return strata
