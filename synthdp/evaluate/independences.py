"""Implied independences: does a table keep the conditional independences of the graph?

A column is independent of every column that is neither its effect nor its cause, given its causes
(the local Markov property: S. L. Lauritzen et al., "Independence properties of directed Markov
fields", Networks 20 (1990)).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph

Levels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Dependence:
    """Cohen's w of two columns, and the 95% quantile of w under independence."""

    w: float
    by_chance: float

    @property
    def visible(self) -> bool:
        """Whether w shows more than a small effect, .1, beyond sampling variation.

        J. Cohen, "Statistical Power Analysis", 2nd ed. (1988), section 7.2.
        """
        return self.w**2 > 0.1**2 + self.by_chance**2


@dataclass(frozen=True)
class IndependenceRow:
    """One implied independence, and the dependence that each table shows."""

    x: str
    y: str
    given: tuple[str, ...]
    real: Dependence
    synthetic: Dependence


@dataclass(frozen=True)
class IndependenceReport:
    """The tested claims, at most one for each of `pairs` pairs of columns without an arrow."""

    rows: tuple[IndependenceRow, ...]
    pairs: int

    def kept(self, side: str) -> int:
        """Number of claims that hold on a side, "real" or "synthetic": no dependence is visible."""
        return sum(not getattr(row, side).visible for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        kept = {"kept_real": self.kept("real"), "kept_synthetic": self.kept("synthetic")}
        return kept | {"rows": list(map(asdict, self.rows)), "pairs": self.pairs}


def compare_independences(
    real: Codes,
    synthetic: Codes,
    *,
    domain: Domain,
    graph: CausalGraph,
    rng: np.random.Generator,
) -> IndependenceReport | None:
    """Test `claims` of the graph on both tables, `[rows, columns]` each.

    At most 10,000 rows of each are used, drawn at random since a real table may be sorted. The
    result is None without arrows, rows or claims.
    """
    if not graph.edges or not len(real) or not len(synthetic):
        return None
    tables = [table[rng.permutation(len(table))[:10_000]] for table in (real, synthetic)]
    rows = []
    for x, y, given in claims(graph):
        i, j, *strata = map(domain.index, (x, y, *given))
        on_real, on_synthetic = (
            conditional_dependence(table[:, i], table[:, j], table[:, strata]) for table in tables
        )
        rows.append(IndependenceRow(x, y, given, on_real, on_synthetic))
    if not rows:
        return None
    linked = len(set(map(frozenset, graph.dag.edges)))
    return IndependenceReport(tuple(rows), math.comb(len(graph.nodes), 2) - linked)


def claims(graph: CausalGraph, most: int = 64) -> list[tuple[str, str, tuple[str, ...]]]:
    """At most so many independence claims (x, y, given) of the graph, drawn by a public seed: the
    same are tested in every release of one graph.

    Pairs in one group or with a latent common cause make no claim.
    """
    order = graph.order()
    without_claim = set(map(frozenset, graph.dag.edges))
    for names in (*graph.groups.values(), *graph.latent):
        without_claim |= set(map(frozenset, combinations(names, 2)))
    separators: dict[tuple[str, str], tuple[str, ...]] = {}
    for i, j in _candidate_pairs(len(order)):
        x, y = order[i], order[j]
        if frozenset((x, y)) in without_claim or (x, y) in separators:
            continue
        given = graph.parents(y) if not graph.latent else _separator(graph, x, y)
        if given is None:
            continue
        separators[x, y] = given
        if len(separators) == most:
            break
    return [(x, y, given) for (x, y), given in separators.items()]


def _candidate_pairs(size: int) -> list[list[int]]:
    """Pairs of positions i < j below `size` in random order: all, or 4,000 draws."""
    rng, tries = np.random.default_rng(0), 4000
    if math.comb(size, 2) <= tries:
        pairs = rng.permutation(np.column_stack(np.triu_indices(size, 1)))
    else:
        draws = [rng.integers(0, size, tries), rng.integers(0, size, tries)]
        pairs = np.sort(np.column_stack(draws), axis=1)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    listed: list[list[int]] = pairs.tolist()
    return listed


def _separator(graph: CausalGraph, x: str, y: str) -> tuple[str, ...] | None:
    """The parents of y or x that d-separate them where causes are latent; None if neither do."""
    for given in (graph.parents(y), graph.parents(x)):
        if not {x, y} & set(given) and graph.d_separated(x, y, given):
            return given
    return None


def conditional_dependence(x: Levels, y: Levels, given: Levels) -> Dependence:
    """Dependence of `x` and `y`, both `[rows]`, within the strata of `given` `[rows, columns]`.

    The statistic is the sum over strata of Pearson's chi-square, less its expectation

        n (r - 1) (c - 1) / (n - 1)

    with the margins held fixed (B. S. Everitt, "The Analysis of Contingency Tables", 2nd ed.
    (1992), section 2.4). The correction keeps strata of few rows from looking like dependence.

    >>> x = np.repeat([0, 1], 100)
    >>> conditional_dependence(x, x, np.zeros((200, 0), dtype=int)).visible
    True
    """
    strata = np.zeros(len(given), dtype=np.int64)  # each row's combination of levels, by number
    for column in given.T.astype(np.int64):
        keys = strata * (int(column.max()) + 1) + column
        strata = np.unique(keys, return_inverse=True)[1].astype(np.int64)
    x_levels, y_levels = int(x.max()) + 1, int(y.max()) + 1
    row_key = strata * x_levels + x  # a stratum and a level of x
    column_key = strata * y_levels + y
    rows, row_totals = np.unique(row_key, return_counts=True)
    columns, column_totals = np.unique(column_key, return_counts=True)
    cells, counts = np.unique(row_key * y_levels + y, return_counts=True)
    row_of_cell = cells // y_levels
    stratum_of_cell = row_of_cell // x_levels
    column_of_cell = stratum_of_cell * y_levels + cells % y_levels
    margins = (
        row_totals[np.searchsorted(rows, row_of_cell)]
        * column_totals[np.searchsorted(columns, column_of_cell)]
    )
    n = np.bincount(strata).astype(np.float64)
    squares = counts.astype(np.float64) ** 2 / margins
    chi_square = n * (np.bincount(stratum_of_cell, weights=squares, minlength=len(n)) - 1)
    r = np.bincount(rows // x_levels, minlength=len(n))
    c = np.bincount(columns // y_levels, minlength=len(n))
    mean = np.divide(n * (r - 1) * (c - 1), n - 1, out=np.zeros_like(n), where=n > 1)
    total = len(strata)
    w2 = max(0.0, float((chi_square - mean).sum()) / total)
    # The variance of a chi-square is twice its mean; here it is about that. 1.645 is the 95%
    # quantile of a standard Gaussian.
    w2_by_chance = 1.645 * float(np.sqrt(2 * mean.sum())) / total
    return Dependence(float(np.sqrt(w2)), float(np.sqrt(w2_by_chance)))
