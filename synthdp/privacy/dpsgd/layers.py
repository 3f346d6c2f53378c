"""Layers that give exact per-example gradient norms and clipped gradient sums without per-example
gradients.

Trusted, because clipping is only as right as the norm. Both follow from a layer's input `a` and the
gradient `g` of its output, kept from one backward pass: `norms` proves each formula in its
docstring, and `clipped_sum` is the gradient with example b weighted by its clipping coefficient
c_b. Keeping (a, g) to weight them later saves the second backward pass [Bu et al., "Differentially
Private Optimization on Large Model at Small Cost", arXiv:2210.00038v2, Section 3 (book-keeping)].
Tests compare both with what autograd computes example by example. `dpsgd` registers the norms with
Opacus.

Rounding of norms [derived here]. A norm is the root of a sum of squares, so of terms of at least 0.
Whatever the order in which n of them are added, with n roundings each, the sum is off by at most n
u / (1 - n u) of itself, and the root by half of that. `terms` is such an n in each layer, up to the
few roundings of each term's own and of the root, of adding parameters together, and of the
coefficient: fewer than 100, together. In 32 bits (u = 2^-24) up to `MAX_TERMS` terms are thus off
by at most (2^15 + 100) 2^-25 < .99e-3: `NORM_SLACK`. A layer with more terms has norms of 64 bits.
Squares below 2^-126 may be lost: of T of them with inputs of norm at most A, sqrt(T) A 2^-63.
Weights below `MAX_WEIGHT` keep A below 2^33 (z of 256 hidden units, 1,000 columns and 64
dimensions), so that this is below 1e-6 for T up to 2^20: what Opacus adds to a norm before it
divides by it makes it good. (The widest layers that a spec allows, 4,096 units and 256 dimensions,
are beyond that; there it is estimated, below 2e-4 of the clipping norm.) A norm that overflows
leaves its example out.

The formulas take leading dimensions too, `[..., batch, ...]`: `stacked_layers` has the weights of
many models in one layer, `[model, ...]`, and the same norms and sums hold for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from synthdp.privacy.dpsgd.clipped_layer import ClippedLayer, Norms, Sums, weighted_by
from synthdp.privacy.dpsgd.layer_features import (
    Features,
    block_diagonal,
    check_features,
    check_kept,
)
from synthdp.privacy.dpsgd.layer_sums import (
    node_by_node,
    nodes_first,
    one_hot_sums,
    one_hot_sums_anywhere,
    squares_of,
)


class ParentLookup(ClippedLayer):
    """For each node the sum of one row per parent level: `[batch, columns]` -> `[batch, node,
    width]`.

    The same as a linear layer on the parents' levels as vectors, without the zeros. With `features`
    a level is the vector of its column's features, of norm at most 1, and without them a one-hot
    vector. Each (node, parent) has weights of its own [this makes `norms` exact]; the rows that are
    looked up are the features times these.
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
    double_sums = True  # features stretch a sum, and its rounding

    def __init__(
        self,
        parents: Sequence[Sequence[int]],
        sizes: Sequence[int],
        width: int,
        features: Features | None = None,
    ) -> None:
        """`parents[n]` are column positions; `sizes[c]` the levels of column c, `features[c]`
        `[levels, features]` theirs.

        Raises:
            BoundaryError: features are longer than 1, or stretch by more than `MAX_STRETCH`.
        """
        super().__init__()
        self.nodes, self.width = len(parents), width
        self.rows = sum(sizes[p] for own in parents for p in own)
        self.register_buffer(
            "basis",
            block_diagonal([features[p] for own in parents for p in own]) if features else None,
            persistent=False,
        )
        most = max(len(own) for own in parents)
        if most == 0:
            raise ValueError("no node has a parent: leave the layer out")
        self.weight = nn.Parameter(
            torch.zeros(self.rows if self.basis is None else self.basis.shape[1], width)
        )
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
        self.register_buffer(
            "own_columns", columns[offsets.ge(0)], persistent=False
        )  # of all nodes' parents, node by node
        self.register_buffer("own_offsets", offsets[offsets.ge(0)], persistent=False)
        count = offsets.ge(0).sum(1)
        self.register_buffer("parent_count", count.float(), persistent=False)
        self.register_buffer("first", count.cumsum(0) - count, persistent=False)
        self.register_buffer(
            "owner", torch.repeat_interleave(torch.arange(self.nodes), count), persistent=False
        )

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
        flat = codes.index_select(1, self.own_columns) + self.own_offsets
        begin = (starts // self.nodes) * flat.shape[1] + self.first[starts % self.nodes]
        summed = F.embedding_bag(flat.flatten(), self.table(), begin, mode="sum")
        return summed.view(len(codes), self.nodes, self.width) + self.bias

    def of_node(self, node: int, codes: Tensor) -> Tensor:
        """The sums of one node alone, shape `[batch, width]`."""
        used, table = self.used[node], self.table()
        total = self.bias[node].expand(len(codes), self.width)
        for column, offset in zip(
            self.columns[node][used].tolist(), self.offsets[node][used].tolist(), strict=True
        ):
            total = total + table[codes[:, column] + offset]
        return total

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Weights of (node, parent) have gradient f g_node', where |f| <= 1 are the features of the
        parent's level (one, if one-hot); so the squares sum to at most parents(node) |g_node|^2.
        The bias has g.
        """
        squared = squares_of(g)
        return {
            self.weight: (squared @ self.parent_count.to(squared.dtype)).sqrt(),
            self.bias: squared.sum(-1).sqrt(),
        }

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Of the rows that are looked up: one-hot rows, transposed, times weighted output
        gradients, a sparse product.
        """
        weighted = weighted_by(g, c)
        rows, flat = a.index_select(1, self.own_columns) + self.own_offsets, weighted.flatten(0, 1)
        summed = one_hot_sums if a.device.type == "cpu" else one_hot_sums_anywhere
        return {self.weight: summed(rows, self.owner, flat, self.rows), self.bias: weighted.sum(0)}

    def pulled_back(self, sums: Sums) -> Sums:
        """A row of the table is its features times the weights, so the weights' gradient is the
        features, transposed, times the rows'.
        """
        if self.basis is None or self.weight not in sums:
            return sums
        return {
            **sums,
            self.weight: torch.sparse.mm(
                self.basis.to(sums[self.weight].dtype).t(), sums[self.weight]
            ),
        }

    @property
    def terms(self) -> int:
        """Those of a node, and the nodes."""
        return self.width + self.nodes


class NodeLinear(ClippedLayer):
    """A linear layer of its own per node: `[batch, node, width]` -> `[batch, node, levels]` (padded
    to the widest).

    With `features` the logit of a level is the sum of the logits of its features, and weights are
    per feature and biases are not trained.
    """

    basis: Tensor | None
    padding: Tensor
    weighs_inputs = True

    def __init__(self, width: int, sizes: Sequence[int], features: Features | None = None) -> None:
        """`sizes[n]` the levels of node n, `features[n]` `[levels of node n, features]`. Levels
        that a node lacks have the logit -inf.

        Raises:
            BoundaryError: as for `ParentLookup`, or features that may cancel: those of every node
                must keep at least `MIN_KEPT` of a gradient's norm, so that what rounding does to
                the mapped gradient stays far below its norm.
        """
        super().__init__()
        nodes, levels, basis = len(sizes), max(sizes), None
        absent = torch.arange(levels) >= torch.tensor(sizes).unsqueeze(1)
        self.register_buffer(
            "padding", torch.zeros(nodes, levels).masked_fill(absent, -torch.inf), persistent=False
        )
        if features:
            check_features(features)
            check_kept(features)
            basis = torch.zeros(nodes, max(f.shape[1] for f in features), levels)
            for n, own in enumerate(features):
                basis[n, : own.shape[1], : own.shape[0]] = own.T
        self.register_buffer("basis", basis, persistent=False)
        self.weight = nn.Parameter(
            torch.zeros(nodes, width, levels if basis is None else basis.shape[1])
        )
        self.bias = nn.Parameter(torch.zeros(nodes, levels), requires_grad=basis is None)

    def table(self) -> Tensor:
        """Weights of the levels, `[node, width, levels]`."""
        return self.weight if self.basis is None else node_by_node(self.weight, self.basis, -3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, shape `[batch, node, levels]`."""
        return torch.baddbmm(
            (self.bias + self.padding).unsqueeze(1), x.transpose(0, 1), self.table()
        ).transpose(0, 1)

    def received(self, g: Tensor) -> Tensor:
        """Gradients of the features' logits `[batch, node, features]` from those of the levels'
        `[batch, node, levels]`.
        """
        return g if self.basis is None else node_by_node(g, self.basis.mT, -2)

    @property
    def terms(self) -> int:
        """Inputs and levels of a node, and the nodes."""
        return self.weight.shape[-2] + self.bias.shape[-1] + self.bias.shape[-2]

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Node n's weight has gradient a_n g_n', of squared norm |a_n|^2 |g_n|^2, for g as
        `received`; nodes share no parameter. A bias has g.
        """
        squared = squares_of(g)
        biases = {self.bias: squared.sum(-1).sqrt()} if self.bias.requires_grad else {}
        return {self.weight: (squares_of(a) * squared).sum(-1).sqrt(), **biases}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Per node, weighted inputs, transposed, times gradients."""
        weighted = weighted_by(a, c)
        biases = (
            {self.bias: torch.einsum("...bnl,...b->...nl", g, c)} if self.bias.requires_grad else {}
        )
        products = torch.bmm(nodes_first(g).mT, nodes_first(weighted)).mT
        return {
            self.weight: torch.unflatten(products, 0, (-1, *g.shape[:-3])).movedim(0, -3),
            **biases,
        }


class MaskedLinear(ClippedLayer):
    """A linear layer whose weight exists only where `mask` `[out, in]` is one: `[batch, in]` ->
    `[batch, out]`.
    """

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask.float(), persistent=False)
        changes = (mask[1:] != mask[:-1]).any(1).nonzero().flatten() + 1
        self.alike = math.gcd(
            len(mask), *changes.tolist()
        )  # outputs, one after the other, that have the same inputs
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

    @property
    def terms(self) -> int:
        """Outputs and inputs."""
        return sum(self.mask.shape)

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Weight (j, i) has gradient mask_ji g_j a_i; its square summed is sum_i a_i^2 sum_j
        mask_ji g_j^2.
        """
        squared = squares_of(
            torch.unflatten(g, -1, (-1, self.alike))
        )  # of outputs with the same mask, together
        return {
            self.weight: (
                ((self.mask[:: self.alike].to(g.dtype).mT @ squared.mT).mT * a.square())
                .sum(-1)
                .sqrt()
            ),
            self.bias: squared.sum(-1).sqrt(),
        }

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Weighted output gradients, transposed, times inputs, where the mask allows."""
        weighted = weighted_by(g, c)
        return {self.weight: (a.mT @ weighted).mT * self.mask, self.bias: weighted.sum(-2)}


CLIPPED_LAYERS = (ParentLookup, NodeLinear, MaskedLinear)
