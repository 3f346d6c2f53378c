"""Ancestral sampling of the causal VAE: columns in causal order, each given its parents and z.

The arithmetic is that of `CausalVae.column_logits`, on the released weights alone, so that whoever
has a bundle can draw from it without PyTorch. It is arranged for speed: one pass over a chunk of
rows that stays in the cache, with the rows of each level side by side in memory. A column's parents
are look-ups, its part of z and its biases are one product, and a level is found in unnormalised
cumulative sums. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np
import numpy.typing as npt

from synthdp.model.architecture import DECODE_LEVELS, DIRECT, Architecture

CHUNK_ROWS = 4096
"""Rows that are drawn at once."""
SAFE_SUM = 1e30
"""Sums of exponentials between this and its inverse have neither overflowed nor lost digits."""

Floats = npt.NDArray[np.float32]
Levels = npt.NDArray[np.int32]
"""Levels by column, `[columns, rows]`."""
Weights = Mapping[str, Floats]
"""The network's weights by name; `Architecture.shapes` has their shapes."""


@dataclass(frozen=True)
class ColumnSampler:
    """One column's decoder.

    `parents` and where each begins (`offsets`) in `table` `[levels of all parents, hidden]` and, if
    there is one, in `direct` `[levels of all parents, levels]`; `latent` `[latent + 1, hidden]`,
    whose last row is the bias; `weight` `[levels, hidden]` and `bias` `[levels, 1]`.
    """

    column: int
    parents: tuple[int, ...]
    offsets: tuple[int, ...]
    table: Floats | None
    latent: Floats
    weight: Floats
    bias: Floats
    direct: Floats | None = None

    @property
    def levels(self) -> int:
        """Number of levels of the column."""
        return len(self.weight)

    def logits(self, codes: Levels, z: Floats) -> Floats:
        """Logits `[levels, rows]`; `z` is `[rows, latent + 1]` with ones last."""
        hidden = z @ self.latent
        if self.table is not None:
            hidden += self.summed(self.table, codes)
        logits: Floats = self.weight @ np.tanh(hidden, out=hidden).T
        logits += self.bias
        if self.direct is not None:
            logits += self.summed(self.direct, codes).T
        return logits

    def summed(self, table: Floats, codes: Levels) -> Floats:
        """Sum of the rows of `table` at the parents' levels, `[rows, width of the table]`."""
        places = (codes[p] + offset for p, offset in zip(self.parents, self.offsets, strict=True))
        out: Floats = table.take(next(places), axis=0)
        for place in places:
            out += table.take(place, axis=0)
        return out


def causal_order(architecture: Architecture) -> list[int]:
    """Columns with parents before children.

    >>> causal_order(Architecture((2, 2, 2), parents=((1,), (2,), ()), latent_of=(), hidden=1))
    [2, 1, 0]

    Raises:
        networkx.NetworkXUnfeasible: the parents form a cycle.
    """
    graph = nx.DiGraph([(p, i) for i, parents in enumerate(architecture.parents) for p in parents])
    graph.add_nodes_from(range(len(architecture.sizes)))
    return list(nx.topological_sort(graph))


def column_samplers(architecture: Architecture, weights: Weights) -> list[ColumnSampler]:
    """The decoder with these weights, column by column in causal order."""
    return [_column_sampler(architecture, weights, c) for c in causal_order(architecture)]


def _column_sampler(shape: Architecture, weights: Weights, column: int) -> ColumnSampler:
    hidden = slice(column * shape.hidden, (column + 1) * shape.hidden)
    reached = np.array([column in columns for columns in shape.latent_of])
    latent = weights["decode_latent.weight"][hidden].T * reached[:, None].astype(np.float32)
    bias = weights["decode_latent.bias"][hidden]
    places, size, parents = shape.rows_of(column), shape.sizes[column], shape.parents[column]
    rows, table, direct = slice(places.start, places.stop), None, None
    if any(shape.parents):
        bias = bias + weights["decode_parents.bias"][column]
    if parents:
        table = weights["decode_parents.weight"][rows]
    if parents and shape.direct:
        direct = np.ascontiguousarray(weights[DIRECT][rows, :size])
    return ColumnSampler(
        column,
        parents,
        tuple(shape.offsets_of(column)),
        table,
        np.concatenate([latent, bias[None]]),
        np.ascontiguousarray(weights[f"{DECODE_LEVELS}.weight"][column, :, :size].T),
        weights[f"{DECODE_LEVELS}.bias"][column, :size, None],
        direct,
    )


def draw(
    samplers: list[ColumnSampler],
    rows: int,
    *,
    do: Mapping[int, int],
    given: Mapping[int, int],
    rng: np.random.Generator,
) -> tuple[Levels, Floats]:
    """Levels `[columns, rows]` and the log of each row's weight `[rows]`.

    Columns in `do` are set, whatever their parents. Those in `given` are set too, and the weight of
    a row is the probability of these levels given the row's parents and z. Rows so weighted follow
    the law that is intervened on by `do` and then conditioned on `given` (likelihood weighting;
    Koller and Friedman, "Probabilistic Graphical Models", 2009, Section 12.2).
    """
    z = latents(len(samplers[0].latent) - 1, rows, rng)
    codes, log_weight = np.zeros((len(samplers), rows), np.int32), np.zeros(rows, np.float32)
    for sampler in samplers:
        column = sampler.column
        if column in do:
            codes[column] = do[column]
        elif column in given:
            codes[column] = given[column]
            log_weight += log_softmax(sampler.logits(codes, z))[given[column]]
        else:
            codes[column] = levels_of(sampler.logits(codes, z), rng.random(rows, dtype=np.float32))
    return codes, log_weight


def latents(latent: int, rows: int, rng: np.random.Generator) -> Floats:
    """Draws of z, `[rows, latent + 1]`; the last entry is one."""
    z = np.ones((rows, latent + 1), np.float32)
    z[:, :latent] = rng.standard_normal((rows, latent), dtype=np.float32)
    return z


def levels_of(logits: Floats, uniform: Floats) -> Levels:
    """A level of each column of `logits` `[levels, rows]` by inverse cumulative sums, `[rows]`."""
    with np.errstate(over="ignore"):
        sums = _summed(np.exp(logits))
    if not 1 / SAFE_SUM < sums[-1].min() <= sums[-1].max() < SAFE_SUM:
        sums = _summed(np.exp(log_softmax(logits)))
    levels: Levels = (sums <= uniform * sums[-1]).sum(0, dtype=np.int32)
    return np.minimum(levels, len(logits) - 1)


def _summed(parts: Floats) -> Floats:
    """Cumulative sums over the first axis, in place."""
    for before, after in pairwise(parts):
        after += before
    return parts


def log_softmax(logits: Floats) -> Floats:
    """Log probabilities, over the last axis but one."""
    shifted = logits - logits.max(-2, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(-2, keepdims=True))
    return logs
