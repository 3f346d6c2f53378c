"""Ancestral sampling of the causal VAE: columns in causal order, each given its parents and z.

The arithmetic is that of `CausalVae.column_logits`, arranged for speed: one pass over a chunk of
rows that stays in the cache. A column's parents are one look-up, its part of z and its biases are
one product, and a level is found in unnormalised cumulative sums. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx
import torch
from torch import Tensor
from torch.nn import functional as F

from synthdp.model.network import DIRECT, Architecture, CausalVae

CHUNK_ROWS = 4096
"""Rows that are drawn at once."""
FEW = 4
"""Largest number of levels for which a product by columns is faster than a wider one."""
VECTOR = 16
"""Matrix products run at full speed on widths that are multiples of this.

On others they run at half of it or less.
"""
SAFE_SUM = 1e30
"""Sums of exponentials between this and its inverse have neither overflowed nor lost digits."""


@dataclass(frozen=True)
class ColumnSampler:
    """One column's decoder.

    `parents` and where each begins (`offsets`) in `table` `[levels of all parents, hidden]` and, if
    there is one, in `direct` `[levels of all parents, width]`; `latent` `[latent + 1, hidden]`,
    whose last row is the bias; `weight` `[hidden, width]` and `bias` `[width]`, where levels from
    `levels` on do not exist and have -inf.
    """

    column: int
    levels: int
    parents: tuple[int, ...]
    offsets: tuple[int, ...]
    table: Tensor | None
    latent: Tensor
    weight: Tensor
    bias: Tensor
    direct: Tensor | None = None

    def logits(self, codes: Tensor, z: Tensor) -> Tensor:
        """Logits `[rows, width]`.

        `codes` is `[columns, rows]`, and `z` `[rows, latent + 1]` with ones last.
        """
        if self.table is None:
            hidden = z @ self.latent
        else:
            hidden = self.looked_up(codes).addmm_(z, self.latent)
        logits = torch.addmm(self.bias, hidden.tanh_(), self.weight)
        return logits if self.direct is None else logits.add_(self.summed(self.direct, codes))

    def looked_up(self, codes: Tensor) -> Tensor:
        """The parents' part of the inputs of the hidden units, `[rows, hidden]`.

        `codes` is `[columns, rows]`. The column must have parents.
        """
        assert self.table is not None
        return self.summed(self.table, codes)

    def summed(self, table: Tensor, codes: Tensor) -> Tensor:
        """Sum of the rows of `table` at the parents' levels, `[rows, width of the table]`."""
        rows = torch.empty(codes.shape[1], len(self.parents), dtype=torch.int32)
        for slot, (parent, offset) in enumerate(zip(self.parents, self.offsets, strict=True)):
            torch.add(codes[parent], offset, out=rows[:, slot])
        return F.embedding_bag(rows, table, mode="sum")


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


@torch.no_grad()
def column_samplers(model: CausalVae) -> list[ColumnSampler]:
    """The decoder of `model`, column by column in causal order."""
    return [_column_sampler(model, column) for column in causal_order(model.architecture)]


def _column_sampler(model: CausalVae, column: int) -> ColumnSampler:
    shape, lookup = model.architecture, model.decode_parents
    rows = slice(column * shape.hidden, (column + 1) * shape.hidden)
    latent = (model.decode_latent.weight * model.decode_latent.mask)[rows].T
    bias, parents, places = (
        model.decode_latent.bias[rows],
        shape.parents[column],
        shape.rows_of(column),
    )
    table, direct = None, None
    if lookup is not None:
        bias = bias + lookup.bias[column]
        table = lookup.weight[places.start : places.stop].contiguous() if parents else None
    extended = torch.cat([latent, bias.unsqueeze(0)]).contiguous()
    size = shape.sizes[column]
    weight = model.decode_levels.weight[column, :, :size]
    level_bias = model.decode_levels.bias[column, :size]
    if size > FEW:
        weight = F.pad(weight, (0, -size % VECTOR)).contiguous()
        level_bias = F.pad(level_bias, (0, -size % VECTOR), value=-torch.inf)
    else:
        weight = weight.T.contiguous().T
    if shape.direct and parents:
        direct = model.get_buffer(DIRECT)[places.start : places.stop, :size]
        direct = F.pad(direct, (0, weight.shape[1] - size)).contiguous()
    offsets = tuple(shape.offsets_of(column))
    return ColumnSampler(
        column, size, parents, offsets, table, extended, weight, level_bias, direct
    )


@torch.no_grad()
def draw(
    samplers: list[ColumnSampler],
    rows: int,
    *,
    do: Mapping[int, int],
    given: Mapping[int, int],
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Levels `[columns, rows]` and the log of each row's weight `[rows]`.

    Columns in `do` are set, whatever their parents. Those in `given` are set too, and the weight of
    a row is the probability of these levels given the row's parents and z. Rows so weighted follow
    the law that is intervened on by `do` and then conditioned on `given` (likelihood weighting;
    Koller and Friedman, "Probabilistic Graphical Models", 2009, Section 12.2).
    """
    latent = len(samplers[0].latent) - 1
    z = torch.ones(rows, latent + 1)
    z[:, :latent] = torch.randn(rows, latent, generator=generator)
    codes = torch.zeros(len(samplers), rows, dtype=torch.int32)
    log_weight = torch.zeros(rows)
    for sampler in samplers:
        column = sampler.column
        if column in do:
            codes[column] = do[column]
        elif column in given:
            codes[column] = given[column]
            log_weight += sampler.logits(codes, z).log_softmax(1)[:, given[column]]
        else:
            uniform = torch.rand(rows, 1, generator=generator)
            drawn = levels_of(sampler.logits(codes, z), uniform)
            codes[column] = drawn.clamp_(max=sampler.levels - 1)
    return codes, log_weight


def levels_of(logits: Tensor, uniform: Tensor) -> Tensor:
    """A level of each row of `logits` `[rows, levels]` by inverse cumulative sums, `[rows]`."""
    sums = logits.exp().cumsum_(1)
    low, high = torch.aminmax(sums[:, -1])
    if not 1 / SAFE_SUM < float(low) <= float(high) < SAFE_SUM:
        sums = logits.softmax(1).cumsum_(1)
    points = uniform.mul_(sums[:, -1:])
    return torch.searchsorted(sums, points, right=True, out_int32=True).squeeze(1)
