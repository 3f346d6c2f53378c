"""The model that noisy two-way tables ask for: the start of the network in mode predict, and of
causal models whose arrows were all measured.

Each column's probabilities given its parents are log-linear: p(x | parents) is proportional to
exp(b(x) + sum over parents q of t_q(level of q, x)). Among all conditional laws whose two-way
tables with the parents are given ones, the law of maximum entropy has this form, and its weights
maximise a concave likelihood in which only the given tables occur [Berger, Della Pietra and Della
Pietra, "A Maximum Entropy Approach to Natural Language Processing" (1996), Section 3]. The law of
the parents themselves is that of rows drawn from the columns before. A ridge stands for what is
left of the tables' noise: parents may disagree.

Columns that act on a target together (`interactions.Together`) add u w s(x) to its logits: u is the
product of their signs, s(x) the target's, and w a weight like any other, whose given mean is that
of u s(x).

All of it is post-processing of released tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import softmax

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.graph.margins import Floats, Probabilities
from synthdp.graph.predict import PairTables, fitted_to_margins
from synthdp.model.ancestral import DECODE_LEVELS, Architecture, causal_order
from synthdp.model.interactions import Together
from synthdp.privacy.mechanisms.marginals import NoisyTable

if TYPE_CHECKING:
    from torch import Tensor

Levels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LogLinearSettings:
    """How the log-linear model of a column is fitted."""

    ridge: float = 2e-4
    """Weight of half the squared weights, against a mean log likelihood in nats. On five public
    tables 1e-4 and 1e-3 gave the same tables; 1e-5 does not converge in `iterations`."""
    iterations: int = 60
    """Most steps of L-BFGS for a column."""
    fitted_rows: int = 12_000
    """Most rows whose parents make up the likelihood."""
    min_drawn: int = 8192
    """Fewest rows that are drawn, however few the table has."""
    max_drawn: int = 60_000
    """Most rows that are drawn."""
    certain: float = 30.0
    """Logit of what is certain, above what calibration moves a bias by."""
    min_probability: float = 1e-6
    """Smallest starting probability of a level."""
    min_pairs: int = 8
    """Fewest measured arrows of a common strength; fewer say little of the others."""
    simulated_rows: int = 4096
    """Rows that are simulated for the common strength."""


SETTINGS = LogLinearSettings()


@dataclass(frozen=True)
class LogLinear:
    """Logits of all columns.

    `direct` `[levels of all parents of all columns, levels]` is in the order of
    `Architecture.rows_of`; `biases` are `[levels]` each. `drawn` are rows of the model `[rows,
    columns]`, and `acting` what acts together with its weight.
    """

    architecture: Architecture
    direct: Tensor
    biases: list[Tensor]
    drawn: Levels
    acting: tuple[tuple[Together, float], ...] = ()


def fit_log_linear(
    architecture: Architecture,
    domain: Domain,
    tables: PairTables,
    *,
    rows: float,
    rng: np.random.Generator,
    together: Sequence[Together] = (),
    before: LogLinear | None = None,
) -> LogLinear:
    """The log-linear model of all columns, one after the other in causal order.

    A parent without a table has no weights: nothing is known of it. `rows` is the declared number
    of rows. What was fitted `before`, without `together`, stays as it is, but for the targets and
    for what comes after them.
    """
    drawn = int(min(max(SETTINGS.min_drawn, 2 * rows), SETTINGS.max_drawn))
    levels = np.zeros((drawn, len(domain)), np.int64)
    import torch  # readers of bundles do without it

    direct = torch.zeros(architecture.shapes()["direct"])
    biases = [torch.empty(0)] * len(domain)
    least, names = SETTINGS.min_probability, domain.names
    acting, again = list[tuple[Together, float]](), set[int]()
    for column in causal_order(architecture):
        every = architecture.parents[column]
        own = [one for one in together if one.target == names[column]]
        if before is not None and not own and again.isdisjoint(every):
            rows_of = list(before.architecture.rows_of(column))
            direct[list(architecture.rows_of(column))] = before.direct[rows_of]
            biases[column], levels[:, column] = before.biases[column], before.drawn[:, column]
            continue
        again.add(column)
        parents = [p for p in every if tables.has(names[p], names[column])]
        some, margin = levels[: SETTINGS.fitted_rows], tables.margins[names[column]]
        # The first parent that is missing whenever the column is.
        pattern = next((p for p in tables.patterns if names[column] in p), ())
        leader = next((parent for parent in parents if names[parent] in pattern), None)
        absent = None if leader is None else some[:, leader] == domain.sizes[leader] - 1
        if absent is not None:
            known = margin[:-1] / max(float(margin[:-1].sum()), least)
            margin = np.append(known * (1 - absent.mean()), absent.mean())
        start = np.log(np.maximum(margin, least))
        logits: Floats = np.broadcast_to(start, (drawn, len(start)))
        if parents or own:
            begin = architecture.rows_of(column).start
            offsets = dict(zip(every, architecture.offsets_of(column), strict=True))
            wanted = [_wanted(tables, domain, (p, column), some, margin, absent) for p in parents]
            filled = filled_levels(levels[:, parents], [domain.sizes[p] for p in parents])
            units = _Units.of(own, levels, domain, column)
            weights, acts = fitted_weights(
                filled[: SETTINGS.fitted_rows],
                np.concatenate([np.zeros((0, len(start))), *wanted]),
                start,
                _certain(domain, column, parents, leader),
                units.of_rows(SETTINGS.fitted_rows),
            )
            places = (range(offsets[p], offsets[p] + domain.sizes[p]) for p in parents)
            at = [begin + row for part in places for row in part]
            direct[at, : len(start)] = torch.from_numpy(weights[:-1]).float()
            start, logits = weights[-1], filled @ weights + units.logits(acts)
            acting += zip(own, acts.tolist(), strict=True)
        biases[column] = torch.from_numpy(start).float()
        levels[:, column] = drawn_levels(softmax(logits, axis=1), rng)
    return LogLinear(architecture, direct, biases, levels, tuple(acting))


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


def filled_levels(levels: Levels, sizes: Sequence[int]) -> csr_array:
    """Ones `[rows, levels of all parents + 1]` at the level of each parent, and in the last column;
    `levels` is `[rows, parents]`.
    """
    ends = list(accumulate(sizes, initial=0))
    slots = np.column_stack([levels + ends[:-1], np.full(len(levels), ends[-1])])
    begins = np.arange(0, slots.size + 1, slots.shape[1])
    return csr_array((np.ones(slots.size), slots.ravel(), begins), (len(slots), ends[-1] + 1))


def _certain(domain: Domain, column: int, parents: Sequence[int], leader: int | None) -> Floats:
    """Weights `[levels of all parents + 1, levels]` that no fit changes: missing if the leader
    is.
    """
    weights = np.zeros((sum(domain.sizes[p] for p in parents) + 1, domain.sizes[column]))
    if leader is not None:
        first = sum(domain.sizes[p] for p in parents[: parents.index(leader)])
        last = first + domain.sizes[leader] - 1
        weights[first:last, -1], weights[last, -1] = -SETTINGS.certain, SETTINGS.certain
    return weights


@dataclass(frozen=True)
class _Units:
    """What acts on a column together: `values` `[rows, units]`, `along` `[units, levels of the
    column]`, and the `means` of their products `[units]`.
    """

    values: Floats
    along: Floats
    means: Floats

    @classmethod
    def of(
        cls, together: Sequence[Together], levels: Levels, domain: Domain, column: int
    ) -> _Units:
        """Those of rows of levels `[rows, columns]`."""
        values = np.empty((len(levels), len(together)))
        for place, one in enumerate(together):
            values[:, place] = one.unit(levels, domain)
        along = np.reshape([one.along for one in together], (len(together), domain.sizes[column]))
        return cls(values, along, np.array([one.mean for one in together]))

    def of_rows(self, rows: int) -> _Units:
        """Those of the first rows."""
        return _Units(self.values[:rows], self.along, self.means)

    def logits(self, weights: Floats) -> Floats | float:
        """What they add to the logits of each row `[rows, levels]`."""
        return (self.values * weights) @ self.along if len(weights) else 0.0


def fitted_weights(
    filled: csr_array,
    wanted: Floats,
    bias: Floats,
    certain: Floats,
    more: _Units | None = None,
    *,
    ridge: float = SETTINGS.ridge,
) -> tuple[Floats, Floats]:
    """Weights `[levels of all parents + 1, levels]` that meet `wanted`, which has the table of each
    parent, one after the other, and those of `more`. The last row, of biases, starts at `bias`.

    A level that `certain` has weights for has no others: no other parent speaks of it. `filled` has
    the levels of the parents in each drawn row.
    """
    units = more or _Units(np.zeros((0, 0)), np.zeros((0, len(bias))), np.zeros(0))
    met, across = np.vstack([wanted, softmax(bias)]), filled.T.tocsr()
    free = (certain == 0).all(0)

    def surprise(flat: Floats) -> tuple[float, Floats]:
        weights, acts = flat[: met.size].reshape(met.shape), flat[met.size :]
        logits = filled @ (weights * free + certain) + units.logits(acts)
        odds = np.ascontiguousarray(logits.T)  # sums over few levels are slow row by row
        most = odds.max(0)
        np.exp(odds - most, out=odds)
        sums = odds.sum(0)
        loss = float((np.log(sums) + most).mean() - (weights * met * free).sum())
        shares = (odds / (sums * len(sums))).T
        gradient = (across @ shares - met) * free
        gradient[:-1] += ridge * weights[:-1]
        loss += ridge / 2 * float(np.square(weights[:-1]).sum())
        if not len(acts):
            return loss, gradient.ravel()
        loss += ridge / 2 * float(acts @ acts) - float(acts @ units.means)
        slope = (shares @ units.along.T * units.values).sum(0) - units.means + ridge * acts
        return loss, np.concatenate([gradient.ravel(), slope])

    options = {"maxiter": SETTINGS.iterations}
    begin = np.vstack([np.zeros(wanted.shape), bias]).ravel()
    begin = np.concatenate([begin, np.zeros(len(units.means))])
    found = minimize(surprise, begin, jac=True, method="L-BFGS-B", options=options)
    weights: Floats = found.x[: met.size].reshape(met.shape) * free + certain
    return weights, found.x[met.size :]


def with_acting(
    weights: Mapping[str, Tensor], fitted: LogLinear, columns: Sequence[str]
) -> dict[str, Tensor]:
    """The network's `weights` with hidden units for what acts together; `columns` are their names.

    Of k columns with b signs of -1 the product is (-1)^b. Unit j is tanh(32 (b - j + 1/2)), which
    is -1 or 1 in single precision, so that (-1)^b = 1 + sum over j of (-1)^j (unit j + 1), exactly.
    That two levels are the same are two such steps. Other units of these targets have no weights.
    """
    import torch

    slope = 32.0  # of units that are steps: tanh of half of it is 1 in single precision
    shape, out = fitted.architecture, {name: values.clone() for name, values in weights.items()}
    used = dict[int, int]()
    for one, weight in fitted.acting:
        target, causes = columns.index(one.target), [columns.index(n) for n in one.columns]
        own = slice(target * shape.hidden, (target + 1) * shape.hidden)
        if target not in used:
            for name in ("decode_latent.weight", "decode_latent.bias"):
                out[name][own] = 0
            out["decode_parents.weight"][list(shape.rows_of(target))] = 0
            out["decode_parents.bias"][target] = 0
        along = torch.from_numpy(weight * one.along).float()
        offsets = dict(zip(shape.parents[target], shape.offsets_of(target), strict=True))
        if one.signs:
            inputs = [(1 - sign) / 2 for sign in one.signs]
            steps = [((-1.0) ** j, 0.5 - j) for j in range(1, len(causes) + 1)]
        else:  # 1 - 2 (a = b), of levels a and b: steps at a - b = -1/2 and 1/2
            levels = np.arange(shape.sizes[causes[0]], dtype=np.float64)
            inputs = [levels, -levels]
            steps = [(-1.0, 0.5), (1.0, -0.5)]
        for factor, place in steps:
            unit = used[target] = used.get(target, -1) + 1
            for column, values in zip(causes, inputs, strict=True):
                start = shape.rows_of(target).start + offsets[column]
                steep = torch.from_numpy(slope * values).float()
                out["decode_parents.weight"][start : start + len(values), unit] = steep
            out["decode_parents.bias"][target, unit] = slope * place
            out[f"{DECODE_LEVELS}.weight"][target, unit, : len(along)] = factor * along
        constant = 1 + sum(factor for factor, _ in steps)
        out[f"{DECODE_LEVELS}.bias"][target, : len(along)] += constant * along
    return out


def drawn_levels(probabilities: npt.NDArray[np.float64], rng: np.random.Generator) -> Levels:
    """A level of each row of `probabilities` `[rows, levels]`, by stratified random numbers."""
    rows = len(probabilities)
    points = (rng.permutation(rows) + rng.random(rows)) / rows
    sums = np.cumsum(probabilities[:, :-1], 1) / probabilities.sum(1, keepdims=True)
    levels: Levels = (sums < points[:, None]).sum(1)
    return levels


# --- common strength ---
#
# Where a table has many columns and few rows, noise hides every single arrow of its graph, but not
# all of them together. Here an effect's logit grows with the sum of its causes' scores, at a
# strength that is the same for every arrow between boolean or ordered columns (complete pooling;
# Gelman and Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models" (2007),
# chapter 12). The estimate is the strength at which simulated rows have the measured covariances,
# summed over pairs: the method of simulated moments [McFadden, "A Method of Simulated Moments for
# Estimation of Discrete Response Models Without Numerical Integration" (1989)]. Signs that differ
# pull it towards zero, which assumes nothing. All of it is post-processing of noisy tables.


Scores = npt.NDArray[np.float64]
"""A score per level, `[levels]`."""
Arrows = Mapping[int, Sequence[int]]
"""Positions of the scored causes of each effect, effects in causal order."""


def scores(column: ColumnDomain) -> Scores | None:
    """A level's score by its order, 0 to 1, `[levels]`, missing 0; None for categories."""
    body = column.levels - column.missing
    if body < 2 or not (column.ordered or column.truth):
        return None
    return np.concatenate([np.linspace(0, 1, body), np.zeros(int(column.missing))])


def common_strength(
    tables: Sequence[NoisyTable],
    columns: Sequence[ColumnDomain],
    arrows: Arrows,
    margins: Sequence[Probabilities],
    *,
    rng: np.random.Generator,
) -> float:
    """The strength of all `arrows`, in logits.

    It is 0 where too few of them were measured, or where the summed covariance is
    below 2.5 deviations of its noise; at most 8 in size, found by ten halvings. `margins[c]`
    `[levels]` are the probabilities of column c, without a zero. `rng` only draws the simulated
    rows.
    """
    all_scores = {c: scores(column) for c, column in enumerate(columns)}
    centred = {c: s - margins[c] @ s for c, s in all_scores.items() if s is not None}
    position = {column.name: c for c, column in enumerate(columns)}
    covariance, variance = 0.0, 0.0
    pairs: list[tuple[int, int]] = []
    for table in tables:
        if len(table.columns) != 2:
            continue
        first, second = (position[name] for name in table.columns)
        if second not in arrows.get(first, ()) and first not in arrows.get(second, ()):
            continue
        weight = np.outer(centred[first], centred[second])
        total = max(1.0, float(table.counts.sum()))
        covariance += float((table.counts * weight).sum()) / total
        variance += (table.sigma / total) ** 2 * float((weight**2).sum())
        pairs.append((first, second))
    if len(pairs) < SETTINGS.min_pairs or abs(covariance) <= 2.5 * math.sqrt(variance):
        return 0.0
    seed = int(rng.integers(2**63))

    def simulated(strength: float) -> float:
        drawn = _simulated(strength, centred, arrows, margins, np.random.default_rng(seed))
        return math.fsum(float(np.mean(drawn[a] * drawn[b])) for a, b in pairs)

    low, high = -8.0, 8.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if simulated(middle) < covariance else (low, middle)
    return (low + high) / 2


def _simulated(
    strength: float,
    centred: Mapping[int, Scores],
    arrows: Arrows,
    margins: Sequence[Probabilities],
    rng: np.random.Generator,
) -> dict[int, npt.NDArray[np.float64]]:
    """Centred scores `[rows]` by column, each by its margin and the sum of its causes' scores."""
    rows = SETTINGS.simulated_rows
    roots = [c for c in centred if c not in arrows]
    drawn: dict[int, npt.NDArray[np.float64]] = {}
    for column in [*roots, *arrows]:
        causes = arrows.get(column, ())
        push = sum((drawn[c] for c in causes), np.zeros(rows))
        odds = np.exp(strength * push[:, None] * centred[column]) * margins[column]
        for _ in range(4 if causes else 0):
            odds /= odds.sum(1, keepdims=True)
            odds *= margins[column] / np.maximum(odds.mean(0), 1e-12)
        sums = np.cumsum(odds, 1)
        level = (sums < rng.random((rows, 1)) * sums[:, -1:]).sum(1)
        drawn[column] = centred[column][level]
    return drawn
