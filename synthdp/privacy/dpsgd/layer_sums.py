"""Sums and products that the layers' gradients are made of."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def one_hot_sums(rows: Tensor, owner: Tensor, values: Tensor, count: int) -> Tensor:
    """For each of `count` rows of a table the sum of the `values` `[batch * nodes, width]` of those
    that looked it up, `[count, width]`.

    `rows` `[batch, lookups]` are looked up, by the nodes `owner` `[lookups]`, which are in order.
    """
    batch, nodes = len(rows), len(values) // max(1, len(rows))
    ends = np.append(0, np.tile(np.bincount(owner.numpy(), minlength=nodes), batch).cumsum())
    one_hot = sparse.csc_array(
        (np.ones(rows.numel(), values.numpy().dtype), rows.flatten().numpy(), ends),
        shape=(count, batch * nodes),
    )
    return torch.from_numpy(one_hot @ values.numpy())


def one_hot_sums_anywhere(rows: Tensor, owner: Tensor, values: Tensor, count: int) -> Tensor:
    """`one_hot_sums` on any device, by torch, whose product takes three times as long on a CPU."""
    nodes = len(values) // max(1, len(rows))
    node = torch.arange(len(rows), device=rows.device).unsqueeze(1) * nodes + owner
    ones, places = (
        torch.ones(rows.numel(), dtype=values.dtype, device=rows.device),
        torch.stack([rows.flatten(), node.flatten()]),
    )
    one_hot = torch.sparse_coo_tensor(places, ones, (count, len(values)), check_invariants=False)
    sums: Tensor = torch.sparse.mm(one_hot, values)
    return sums


def node_by_node(values: Tensor, basis: Tensor, dimension: int) -> Tensor:
    """The product of each node's `values`, nodes along `dimension`, with its `basis` `[node, from,
    to]`: one product for a node, whatever leads.
    """
    nodes = values.movedim(dimension, 0)
    return (
        torch.bmm(nodes.flatten(1, -2), basis)
        .view(*nodes.shape[:-1], basis.shape[-1])
        .movedim(0, dimension)
    )


def nodes_first(values: Tensor) -> Tensor:
    """`[..., batch, node, width]` as `[node * ..., batch, width]`, which is how it lies in
    memory.
    """
    return values.movedim(-2, 0).flatten(0, -3)


def squares_of(values: Tensor) -> Tensor:
    """Squared norms along the last dimension; faster than a sum of squares, which would be written
    down.
    """
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms.square()


def without(values: Tensor, spoilt: Tensor | None) -> Tensor:
    """`values` `[slots, ...]` with zeros for what is `spoilt` `[slots]`: not finite times a weight
    of zero would not be zero.

    They lie in memory as before, so that the sums of other blocks go the same way.
    """
    if spoilt is None:
        return values
    kept = torch.empty_like(values).copy_(values)
    return kept.masked_fill_(spoilt.view(-1, *[1] * (values.ndim - 1)), 0)
