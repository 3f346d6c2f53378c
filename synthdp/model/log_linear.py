"""The model that noisy two-way tables ask for: the start of the network in mode predict, and of
causal models whose arrows were all measured.

Each column's probabilities given its parents are log-linear: p(x | parents) is proportional to
exp(b(x) + sum over parents q of t_q(level of q, x)). Among all conditional laws whose two-way
tables with the parents are given ones, the law of maximum entropy has this form, and its weights
maximise a concave likelihood in which only the given tables occur [Berger, Della Pietra and Della
Pietra, "A Maximum Entropy Approach to Natural Language Processing" (1996), Section 3]. The law of
the parents themselves is that of rows drawn from the columns before. A ridge stands for what is
left of the tables' noise: parents may disagree.

All of it is post-processing of released tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from synthdp.data.domain import Domain
from synthdp.graph.margins import Probabilities
from synthdp.graph.prediction.pairs import PairTables
from synthdp.graph.prediction.smoothing import fitted_to_margins
from synthdp.model.ancestral import causal_order
from synthdp.model.architecture import Architecture

RIDGE = 2e-4
"""Weight of half the squared weights, against a mean log likelihood in nats. On five public tables
1e-4 and 1e-3 gave the same tables; 1e-5 does not converge in `ITERATIONS`."""
ITERATIONS = 60
"""Most steps of L-BFGS for a column."""
FITTED_ROWS, MAX_DRAWN_ROWS = 12_000, 60_000
"""Most rows whose parents make up the likelihood, and most that are drawn."""
MIN_DRAWN_ROWS = 8192
"""Fewest rows that are drawn, however few the table has."""
CERTAIN_LOGIT = 30.0
"""Logit of what is certain, above what calibration moves a bias by."""
MIN_PROBABILITY = 1e-6
"""Smallest starting probability of a level."""

Levels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LogLinear:
    """Logits of all columns.

    `direct` `[levels of all parents of all columns, levels]` is in the order of
    `Architecture.rows_of`; `biases` are `[levels]` each.
    """

    direct: Tensor
    biases: list[Tensor]


def fit_log_linear(
    architecture: Architecture,
    domain: Domain,
    tables: PairTables,
    *,
    rows: float,
    rng: np.random.Generator,
) -> LogLinear:
    """The log-linear model of all columns, one after the other in causal order.

    A parent without a table has no weights: nothing is known of it. `rows` is the declared number
    of rows.
    """
    drawn = int(min(max(MIN_DRAWN_ROWS, 2 * rows), MAX_DRAWN_ROWS))
    levels = np.zeros((drawn, len(domain)), np.int64)
    direct = torch.zeros(architecture.shapes()["direct"])
    biases = [torch.empty(0)] * len(domain)
    for column in causal_order(architecture):
        parents = _measured_parents(tables, domain, architecture, column)
        some, margin = levels[:FITTED_ROWS], tables.margins[domain.names[column]]
        leader = _leader(tables, domain, parents, column)
        absent = None if leader is None else some[:, leader] == domain.sizes[leader] - 1
        if absent is not None:
            known = margin[:-1] / max(float(margin[:-1].sum()), MIN_PROBABILITY)
            margin = np.append(known * (1 - absent.mean()), absent.mean())
        start = np.log(np.maximum(margin, MIN_PROBABILITY))
        bias, weights = torch.from_numpy(start).float(), None
        ends = list(accumulate(domain.sizes[p] for p in parents))
        slots = levels[:, parents] + np.array([0, *ends[:-1]][: len(parents)], np.int64)
        if parents:
            pairs = ((parent, column) for parent in parents)
            wanted = [_wanted(tables, domain, pair, some, margin, absent) for pair in pairs]
            weights, bias = _fitted(
                torch.from_numpy(slots[:FITTED_ROWS]),
                torch.from_numpy(np.concatenate(wanted)).float(),
                bias,
                _certain(domain, column, parents, leader),
            )
            direct[_rows_of(architecture, column, parents), : len(bias)] = weights
        biases[column] = bias
        logits = bias.expand(drawn, -1)
        if weights is not None:
            logits = bias + F.embedding_bag(torch.from_numpy(slots), weights, mode="sum")
        levels[:, column] = _drawn(logits.softmax(1).double().numpy(), rng)
    return LogLinear(direct, biases)


def _wanted(
    tables: PairTables,
    domain: Domain,
    pair: tuple[int, int],
    levels: Levels,
    margin: Probabilities,
    absent: npt.NDArray[np.bool_] | None,
) -> Probabilities:
    """The table of a parent and its child (positions), with the parent's margin as it was drawn.

    With another margin no weights meet the table, and the likelihood asks for large ones that are
    common to all levels of the child, which change nothing. `levels` is `[rows, columns]`, `margin`
    that of the child, and `absent` the rows where the child is missing for certain.
    """
    parent, child = (domain.names[column] for column in pair)
    table = tables.table(parent, child)

    def drawn(rows: Levels) -> Probabilities:
        counts = np.bincount(rows[:, pair[0]], minlength=domain.sizes[pair[0]])
        return np.asarray(counts / len(levels))

    if absent is None:
        return fitted_to_margins(table, drawn(levels), margin)
    known = fitted_to_margins(table[:, :-1], drawn(levels[~absent]), margin[:-1])
    return np.column_stack([known, drawn(levels[absent])])


def _measured_parents(
    tables: PairTables, domain: Domain, architecture: Architecture, column: int
) -> list[int]:
    """The parents of a column whose table with it is known, in the order of the architecture."""
    names = domain.names
    return [p for p in architecture.parents[column] if tables.has(names[p], names[column])]


def _rows_of(architecture: Architecture, column: int, parents: Sequence[int]) -> list[int]:
    """The rows of `direct` that hold some parents of a column, one after the other."""
    begin, every = architecture.rows_of(column).start, architecture.parents[column]
    offsets = dict(zip(every, architecture.offsets_of(column), strict=True))
    return [begin + offsets[p] + level for p in parents for level in range(architecture.sizes[p])]


def _leader(tables: PairTables, domain: Domain, parents: Sequence[int], column: int) -> int | None:
    """The first parent that is missing whenever the column is; None where there is none."""
    pattern = next((p for p in tables.patterns if domain.names[column] in p), ())
    return next((parent for parent in parents if domain.names[parent] in pattern), None)


def _certain(domain: Domain, column: int, parents: Sequence[int], leader: int | None) -> Tensor:
    """Weights `[levels of all parents, levels]` that no fit changes: missing if the leader is."""
    weights = torch.zeros(sum(domain.sizes[p] for p in parents), domain.sizes[column])
    if leader is not None:
        first = sum(domain.sizes[p] for p in parents[: parents.index(leader)])
        last = first + domain.sizes[leader] - 1
        weights[first:last, -1], weights[last, -1] = -CERTAIN_LOGIT, CERTAIN_LOGIT
    return weights


def _fitted(slots: Tensor, wanted: Tensor, bias: Tensor, certain: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and biases `[levels]` that meet `wanted`; weights are of its shape.

    A level that `certain` has weights for has no others: no other parent speaks of it.
    `wanted` `[levels of all parents, levels]` has the table of each parent, one after the other,
    and `slots` `[rows, parents]` the rows of the weights that each drawn row adds up.
    """
    share = bias.softmax(0)
    weights = torch.zeros(wanted.shape, requires_grad=True)  # contiguous, as `wanted` need not be
    free, fitted = bias.clone().requires_grad_(), (certain == 0).all(0)
    optimizer = torch.optim.LBFGS(
        [weights, free], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
    )

    def surprise() -> Tensor:
        optimizer.zero_grad()
        own, base = weights * fitted, free * fitted
        logits = base + F.embedding_bag(slots, own + certain, mode="sum")
        met = (own * wanted).sum() + (base * share).sum()
        loss = logits.logsumexp(1).mean() - met + RIDGE / 2 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(surprise)  # type: ignore[no-untyped-call]
    return weights.detach() * fitted + certain, free.detach() * fitted


def _drawn(probabilities: npt.NDArray[np.float64], rng: np.random.Generator) -> Levels:
    """A level of each row of `probabilities` `[rows, levels]`.

    The random numbers are stratified over all rows: every level has its share of them.
    """
    rows = len(probabilities)
    points = (rng.permutation(rows) + rng.random(rows)) / rows
    sums = np.cumsum(probabilities[:, :-1], 1) / probabilities.sum(1, keepdims=True)
    levels: Levels = (sums < points[:, None]).sum(1)
    return levels
