"""Layers that give exact per-example gradient norms and clipped gradient sums without per-example gradients.

Trusted, because clipping is only as right as the norm. Both follow from a layer's input `a` and the gradient
`g` of its output, kept from one backward pass: `norms` proves each formula in its docstring, and `clipped_sum`
is the gradient with example b weighted by its clipping coefficient c_b. Keeping (a, g) to weight them later
saves the second backward pass [Bu et al., "Differentially Private Optimization on Large Model at Small Cost",
arXiv:2210.00038v2, Section 3 (book-keeping)]. Tests compare both with what autograd computes example by
example. `dpsgd` registers the norms with Opacus.

The formulas take leading dimensions too, `[..., batch, ...]`: `stacked_layers` has the weights of many models in one layer,
`[model, ...]`, and the same norms and sums hold for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd_settings import MOST_SINGLE, MOST_STRETCH

MOST_LEVELS = 1024  # of a column with features
LEAST_KEPT = 0.25  # of the norm of an output's gradient, by the features of a node
CHUNK = 4096  # examples that are converted to 64 bits at once
Norms = dict[nn.Parameter, Tensor]  # per-example norms of each parameter's gradient, shape [batch]
Sums = dict[nn.Parameter, Tensor]  # gradient of each parameter, summed over weighted examples
Features = Sequence[Tensor]  # for each column one vector per level, `[levels, features]`; see `data.features`


class ClippedLayer(nn.Module):
    """What DP-SGD needs of a layer; `seen` holds one batch's (input, output gradient) within a step."""

    bias: nn.Parameter
    seen: tuple[Tensor, Tensor] | None = None
    weighs_inputs = False  # whether `clipped_sum` gives the inputs their weights, or the gradients

    def take_seen(self, keep: Tensor | slice) -> tuple[Tensor, Tensor]:
        """What this step kept of the examples `keep` (a mask `[batch]`, or all as a slice).

        Forgotten here, so that rows do not outlive their step.
        """
        if self.seen is None:
            raise RuntimeError(f"{type(self).__name__} took no part in the loss")
        inputs, gradient = self.seen
        self.seen = None
        return inputs[keep], gradient[keep]

    def received(self, g: Tensor) -> Tensor:
        """What `norms` and `clipped_sum` take for g, from the gradient of the layer's output: a public linear map of each example's own."""
        return g

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Per-example gradient norms, shape `[batch]`, of each parameter that is trained."""
        raise NotImplementedError

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Gradient of each parameter, or what `pulled_back` maps to it, summed over examples with weights `c` `[batch]`, by `_weighted`."""
        raise NotImplementedError

    def pulled_back(self, sums: Sums) -> Sums:
        """Gradients of the parameters from the sum of all `clipped_sum`: a public linear map of norm at most `MOST_STRETCH`."""
        return sums

    @property
    def stretches(self) -> bool:
        """Whether `pulled_back` may stretch what it maps, rounding errors too."""
        return False


class ParentLookup(ClippedLayer):
    """For each node the sum of one row per parent level: `[batch, columns]` -> `[batch, node, width]`.

    The same as a linear layer on the parents' levels as vectors, without the zeros. With `features` a level is the vector
    of its column's features, of norm at most 1, and without them a one-hot vector. Each (node, parent) has weights of
    its own [this makes `norms` exact]; the rows that are looked up are the features times these.
    """

    columns: Tensor
    offsets: Tensor
    used: Tensor
    own_columns: Tensor
    own_offsets: Tensor
    parent_count: Tensor
    first: Tensor
    owner: Tensor
    basis: Tensor | None

    def __init__(self, parents: Sequence[Sequence[int]], sizes: Sequence[int], width: int, features: Features | None = None) -> None:
        """`parents[n]` are column positions; `sizes[c]` the levels of column c, `features[c]` `[levels, features]` theirs.

        Raises:
            BoundaryError: features are longer than 1, or stretch by more than `MOST_STRETCH`.
        """
        super().__init__()
        self.nodes, self.width = len(parents), width
        self.rows = sum(sizes[p] for own in parents for p in own)
        self.register_buffer("basis", _block_diagonal([features[p] for own in parents for p in own]) if features else None, persistent=False)
        most = max(len(own) for own in parents)
        if most == 0:
            raise ValueError("no node has a parent: leave the layer out")
        self.weight = nn.Parameter(torch.zeros(self.rows if self.basis is None else self.basis.shape[1], width))
        self.bias = nn.Parameter(torch.zeros(self.nodes, width))
        columns = torch.zeros(self.nodes, most, dtype=torch.long)
        offsets = torch.full((self.nodes, most), -1, dtype=torch.long)
        first = 0
        for n, own in enumerate(parents):
            for slot, p in enumerate(own):
                columns[n, slot], offsets[n, slot] = p, first
                first += sizes[p]
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("offsets", offsets, persistent=False)
        self.register_buffer("used", offsets.ge(0), persistent=False)
        self.register_buffer("own_columns", columns[offsets.ge(0)], persistent=False)  # of all nodes' parents, node by node
        self.register_buffer("own_offsets", offsets[offsets.ge(0)], persistent=False)
        count = offsets.ge(0).sum(1)
        self.register_buffer("parent_count", count.float(), persistent=False)
        self.register_buffer("first", count.cumsum(0) - count, persistent=False)
        self.register_buffer("owner", torch.repeat_interleave(torch.arange(self.nodes), count), persistent=False)

    def reset(self, generator: torch.Generator) -> None:
        """Uniform start, scaled by the number of parents of a node."""
        fan_in = max(1.0, float(self.parent_count.max()))
        with torch.no_grad():
            self.weight.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator=generator)

    def table(self) -> Tensor:
        """The rows that are looked up, `[rows, width]`."""
        if self.basis is None:
            return self.weight
        rows: Tensor = torch.sparse.mm(self.basis, self.weight)
        return rows

    def forward(self, codes: Tensor) -> Tensor:
        """Sums of rows, shape `[batch, node, width]`."""
        starts = torch.arange(len(codes) * self.nodes, device=codes.device)
        flat = codes[:, self.own_columns] + self.own_offsets
        begin = (starts // self.nodes) * flat.shape[1] + self.first[starts % self.nodes]
        summed = F.embedding_bag(flat.flatten(), self.table(), begin, mode="sum")
        return summed.view(len(codes), self.nodes, self.width) + self.bias

    def of_node(self, node: int, codes: Tensor) -> Tensor:
        """The sums of one node alone, shape `[batch, width]`."""
        used, table = self.used[node], self.table()
        total = self.bias[node].expand(len(codes), self.width)
        for column, offset in zip(self.columns[node][used].tolist(), self.offsets[node][used].tolist(), strict=True):
            total = total + table[codes[:, column] + offset]
        return total

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Weights of (node, parent) have gradient f g_node', where |f| <= 1 are the features of the parent's level (one, if one-hot);
        so the squares sum to at most parents(node) |g_node|^2. The bias has g.
        """
        squared = _squared(g)
        return {self.weight: (squared @ self.parent_count).sqrt(), self.bias: squared.sum(-1).sqrt()}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Of the rows that are looked up: one-hot rows, transposed, times weighted output gradients, a sparse product."""
        weighted = _weighted(g, c)
        rows, flat = a[:, self.own_columns] + self.own_offsets, weighted.flatten(0, 1)
        summed = _one_hot_sums if a.device.type == "cpu" else _one_hot_sums_anywhere
        return {self.weight: summed(rows, self.owner, flat, self.rows), self.bias: weighted.sum(0)}

    def pulled_back(self, sums: Sums) -> Sums:
        """A row of the table is its features times the weights, so the weights' gradient is the features, transposed, times the rows'."""
        if self.basis is None or self.weight not in sums:
            return sums
        return {**sums, self.weight: torch.sparse.mm(self.basis.to(sums[self.weight].dtype).t(), sums[self.weight])}

    @property
    def stretches(self) -> bool:
        """Where there are features: many levels share them."""
        return self.basis is not None


class NodeLinear(ClippedLayer):
    """A linear layer of its own per node: `[batch, node, width]` -> `[batch, node, levels]` (padded to the widest).

    With `features` the logit of a level is the sum of the logits of its features, and weights are per feature and biases are not trained.
    """

    basis: Tensor | None
    padding: Tensor
    weighs_inputs = True

    def __init__(self, width: int, sizes: Sequence[int], features: Features | None = None) -> None:
        """`sizes[n]` the levels of node n, `features[n]` `[levels of node n, features]`. Levels that a node lacks have the logit -inf.

        Raises:
            BoundaryError: as for `ParentLookup`, or features that may cancel: those of every node must keep at least
                `LEAST_KEPT` of a gradient's norm, so that what rounding does to the mapped gradient stays far below its norm.
        """
        super().__init__()
        nodes, levels, basis = len(sizes), max(sizes), None
        absent = torch.arange(levels) >= torch.tensor(sizes).unsqueeze(1)
        self.register_buffer("padding", torch.zeros(nodes, levels).masked_fill(absent, -torch.inf), persistent=False)
        if features:
            _check_features(features)
            _check_kept(features)
            basis = torch.zeros(nodes, max(f.shape[1] for f in features), levels)
            for n, own in enumerate(features):
                basis[n, : own.shape[1], : own.shape[0]] = own.T
        self.register_buffer("basis", basis, persistent=False)
        self.weight = nn.Parameter(torch.zeros(nodes, width, levels if basis is None else basis.shape[1]))
        self.bias = nn.Parameter(torch.zeros(nodes, levels), requires_grad=basis is None)

    def table(self) -> Tensor:
        """Weights of the levels, `[node, width, levels]`."""
        return self.weight if self.basis is None else _node_by_node(self.weight, self.basis, -3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, shape `[batch, node, levels]`."""
        return torch.baddbmm((self.bias + self.padding).unsqueeze(1), x.transpose(0, 1), self.table()).transpose(0, 1)

    def received(self, g: Tensor) -> Tensor:
        """Gradients of the features' logits `[batch, node, features]` from those of the levels' `[batch, node, levels]`."""
        return g if self.basis is None else _node_by_node(g, self.basis.mT, -2)

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Node n's weight has gradient a_n g_n', of squared norm |a_n|^2 |g_n|^2, for g as `received`; nodes share no parameter. A bias has g."""
        squared = _squared(g)
        biases = {self.bias: squared.sum(-1).sqrt()} if self.bias.requires_grad else {}
        return {self.weight: (_squared(a) * squared).sum(-1).sqrt(), **biases}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Per node, weighted inputs, transposed, times gradients."""
        weighted = _weighted(a, c)
        biases = {self.bias: torch.einsum("...bnl,...b->...nl", g, c)} if self.bias.requires_grad else {}
        return {self.weight: (g.movedim(-3, -1) @ weighted.transpose(-3, -2)).mT, **biases}


class MaskedLinear(ClippedLayer):
    """A linear layer whose weight exists only where `mask` `[out, in]` is one: `[batch, in]` -> `[batch, out]`."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask.float(), persistent=False)
        self.weight = nn.Parameter(torch.zeros_like(self.mask))
        self.bias = nn.Parameter(torch.zeros(mask.shape[0]))

    def reset(self, generator: torch.Generator) -> None:
        """Uniform start, scaled by the inputs that an output has."""
        fan_in = max(1.0, float(self.mask.sum(1).max()))
        with torch.no_grad():
            self.weight.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Shape `[batch, out]`."""
        return F.linear(x, self.weight * self.mask, self.bias)

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Weight (j, i) has gradient mask_ji g_j a_i; its square summed is sum_i a_i^2 sum_j mask_ji g_j^2."""
        squared = g.square()
        return {self.weight: ((self.mask.mT @ squared.mT).mT * a.square()).sum(-1).sqrt(), self.bias: squared.sum(-1).sqrt()}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Weighted output gradients, transposed, times inputs, where the mask allows."""
        weighted = _weighted(g, c)
        return {self.weight: (a.mT @ weighted).mT * self.mask, self.bias: weighted.sum(-2)}


def _check_features(features: Features) -> None:
    """Refuse features that the proofs do not hold for.

    A matrix of numbers of at least 0 stretches by at most the root of the largest row sum of its product with its transpose.
    """
    for own in features:
        if len(own) > MOST_LEVELS:
            raise BoundaryError(f"features are for at most {MOST_LEVELS} levels")
        if not bool((own >= 0).all()) or not float(own.square().sum(1).max()) <= 1 + 1e-6:
            raise BoundaryError("features of a level must be numbers of at least 0, of norm at most 1")
        if float((own @ own.sum(0)).max()) > MOST_STRETCH**2:
            raise BoundaryError(f"features stretch a gradient by more than {MOST_STRETCH}")


def _check_kept(features: Features) -> None:
    for own in features:
        kept = float(torch.linalg.eigvalsh((own @ own.T).double())[0])
        if not kept >= LEAST_KEPT**2:
            raise BoundaryError(f"features keep less than {LEAST_KEPT:g} of a gradient")


def _block_diagonal(features: Features) -> Tensor:
    """All features as one sparse matrix `[rows, features]`."""
    _check_features(features)
    places, values, row, column = [], [], 0, 0
    for own in features:
        places.append(own.nonzero().T + torch.tensor([[row], [column]]))
        values.append(own[own != 0])
        row, column = row + own.shape[0], column + own.shape[1]
    return torch.sparse_coo_tensor(torch.cat(places, 1), torch.cat(values), (row, column), check_invariants=False).coalesce()


def _one_hot_sums(rows: Tensor, owner: Tensor, values: Tensor, count: int) -> Tensor:
    """For each of `count` rows of a table the sum of the `values` `[batch * nodes, width]` of those that looked it up, `[count, width]`.

    `rows` `[batch, lookups]` are looked up, by the nodes `owner` `[lookups]`, which are in order.
    """
    batch, nodes = len(rows), len(values) // max(1, len(rows))
    ends = np.append(0, np.tile(np.bincount(owner.numpy(), minlength=nodes), batch).cumsum())
    one_hot = sparse.csc_array((np.ones(rows.numel(), values.numpy().dtype), rows.flatten().numpy(), ends), shape=(count, batch * nodes))
    return torch.from_numpy(one_hot @ values.numpy())


def _one_hot_sums_anywhere(rows: Tensor, owner: Tensor, values: Tensor, count: int) -> Tensor:
    """`_one_hot_sums` on any device, by torch, whose product takes three times as long on a CPU."""
    nodes = len(values) // max(1, len(rows))
    node = torch.arange(len(rows), device=rows.device).unsqueeze(1) * nodes + owner
    ones, places = torch.ones(rows.numel(), dtype=values.dtype, device=rows.device), torch.stack([rows.flatten(), node.flatten()])
    one_hot = torch.sparse_coo_tensor(places, ones, (count, len(values)), check_invariants=False)
    sums: Tensor = torch.sparse.mm(one_hot, values)
    return sums


def _node_by_node(values: Tensor, basis: Tensor, dimension: int) -> Tensor:
    """The product of each node's `values`, nodes along `dimension`, with its `basis` `[node, from, to]`: one product for a node, whatever leads."""
    nodes = values.movedim(dimension, 0)
    return torch.bmm(nodes.flatten(1, -2), basis).view(*nodes.shape[:-1], basis.shape[-1]).movedim(0, dimension)


def _squared(values: Tensor) -> Tensor:
    """Squared norms along the last dimension; faster than a sum of squares, which would be written down."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms.square()


def _copy(values: Tensor, precision: torch.dtype) -> Tensor:
    return values.to(precision, copy=True, memory_format=torch.contiguous_format)


def _weighted(values: Tensor, c: Tensor) -> Tensor:
    """`values` `[..., batch, ...]` times the weights `c` `[..., batch]`, in the precision of the weights; in new memory, however `values` lie."""
    weights = c.view(*c.shape, *[1] * (values.ndim - c.ndim))
    if values.dtype == c.dtype:
        return torch.mul(values, weights, out=torch.empty_like(values, memory_format=torch.contiguous_format))
    return _copy(values, c.dtype).mul_(weights)  # half the time of a product of two precisions


def stable_sum(layer: ClippedLayer, a: Tensor, g: Tensor, c: Tensor, sizes: Sequence[int]) -> Sums:
    """`layer.clipped_sum` in 64 bits, of groups of examples that lie one after the other; `sizes` of them are in each.

    On the CPU groups of at most `MOST_SINGLE` are summed in 32 bits; all others in 64, `CHUNK` examples at a time, and the whole batch
    as one group in a layer that stretches. A group's sum depends on the group alone: it is taken from copies (what is
    weighted is one), so that not even its place in memory differs.

    What one example more or less in one group does to the rounding [derived here]. A sum of n terms of norm at most w
    takes n - 1 additions, in whatever order; each is off, coordinate by coordinate, by at most u times the sizes of
    the terms that it holds, and together they hold at most n (n + 1) / 2 terms, so that with n rounded products
    the sum is off by at most (n + 1)(n + 2) / 2 u w in L2, up to a factor 1 + n u. (Weighting an example rounds it once more: n u w, and the
    bound below has that much room.) In 32 bits (u = 2^-24) both sums of
    the group, with and without the example, thus add at most (MOST_SINGLE + 2)^2 2^-24 w: `GROUP_SLACK`. In 64 bits
    (u = 2^-53) n terms in chunks are off by at most (CHUNK + n / CHUNK + 3) n u w, and the sum of k groups by another
    k n u w: twice all of it is below 2^-14 w for batches of up to 2^24 examples in up to 4096 groups. All
    other groups have the same sums with and without the example. On other devices all examples are one group.

    `pulled_back` is linear: it takes the sums' difference to that of the parameters' gradients, which `norms` bounds, and the
    64-bit rounding to at most `MOST_STRETCH` times itself: `DOUBLE_SLACK`. The terms of such a layer, rows that are looked up, have
    norms of at most sqrt(parents) |g|, as `norms` states them. What the map itself rounds is a sum of at most q = `MOST_LEVELS` rows that
    share a feature: twice q u `MOST_STRETCH` n w, 2^-14 w at most, for which the 16 times 2^-14 that are charged leave room, since
    the first bound is 0.75 times 2^-14 w.
    """
    totals: Sums = {}
    begin = 0
    for size in [sum(sizes)] if layer.stretches else sizes:
        precision = torch.float32 if size <= MOST_SINGLE and a.device.type == "cpu" and not layer.stretches else torch.float64
        for first in range(begin, begin + size, CHUNK):
            rows = slice(first, min(first + CHUNK, begin + size))
            inputs, gradients = a[rows], g[rows]
            if layer.weighs_inputs:
                gradients = _copy(gradients, precision)
            elif a.is_floating_point():
                inputs = _copy(inputs, precision)
            for p, part in layer.clipped_sum(inputs, gradients, c[rows].to(precision)).items():
                if p in totals:
                    totals[p] += part
                else:
                    totals[p] = part.double()
        begin += size
    return layer.pulled_back(totals)


CLIPPED_LAYERS = (ParentLookup, NodeLinear, MaskedLinear)
