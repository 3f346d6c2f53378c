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

The formulas take leading dimensions too, `[..., batch, ...]`: `batched` has the weights of many
models in one layer, `[model, ...]`, and the same norms and sums hold for each of them.

`ClippedLayer` is what DP-SGD needs of a layer, and how the sum of its clipped gradients is taken.
Trusted, because a sum must not depend on one example by more than the clipping norm, however
numbers are rounded: `stable_sum` proves by how much rounding may add to it.

Features of a column's levels are public; `check_features` and `check_kept` hold them to what the
proofs ask.
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
from synthdp.privacy.dpsgd import MAX_STRETCH

# --- clipped layer ---


PIECE = 4096  # examples that are summed at once
Norms = dict[nn.Parameter, Tensor]  # per-example norms of each parameter's gradient, shape [batch]
Sums = dict[nn.Parameter, Tensor]  # gradient of each parameter, summed over weighted examples


class ClippedLayer(nn.Module):
    """What DP-SGD needs of a layer; `seen` holds one batch's (input, output gradient) within a
    step.
    """

    bias: nn.Parameter
    seen: tuple[Tensor, Tensor] | None = None
    weighs_inputs = False  # whether `clipped_sum` gives the inputs their weights, or the gradients
    double_sums = False  # whether sums over examples are of 64 bits

    def take_seen(self) -> tuple[Tensor, Tensor]:
        """What this step kept, forgotten here, so that rows do not outlive their step."""
        if self.seen is None:
            raise RuntimeError(f"{type(self).__name__} took no part in the loss")
        seen, self.seen = self.seen, None
        return seen

    def received(self, g: Tensor) -> Tensor:
        """What `norms` and `clipped_sum` take for g, from the gradient of the layer's output: a
        public linear map of each example's own.
        """
        return g

    @property
    def terms(self) -> int:
        """Most terms whose squares are added up, one into the other, in a norm."""
        raise NotImplementedError

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Per-example gradient norms, shape `[batch]`, of each parameter that is trained."""
        raise NotImplementedError

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Gradient of each parameter, or what `pulled_back` maps to it, summed over examples with
        weights `c` `[batch]`, by `weighted_by`.
        """
        raise NotImplementedError

    def pulled_back(self, sums: Sums) -> Sums:
        """Gradients of the parameters from the sum of all `clipped_sum`: a public linear map of
        norm at most `MAX_STRETCH`.
        """
        return sums


def stable_sum(layer: ClippedLayer, a: Tensor, g: Tensor, c: Tensor, block: int) -> Sums:
    """`layer.clipped_sum` of one chunk in 64 bits, before `pulled_back`; examples that do not count
    have the weight zero.

    On the CPU blocks of `block` slots, `MAX_SINGLE` at most, are summed in 32 bits, and the
    blocks' sums in 64. Layers with `double_sums` are summed in 64 bits, `PIECE` examples at a time,
    and so are all on other devices. What a block's sum is rounded to depends on the block alone,
    since blocks lie at the same places of chunks of the same shape (see `training` for what is
    assumed of kernels).

    What one example more or less does to the rounding [derived here]. A sum of n products, each of
    norm at most w, takes each through n roundings at most, its own included, in whatever order the
    coordinates are added, each in an order of its own. So it is off, coordinate by coordinate, by
    at most n u / (1 - n u) times the sizes of its terms [Higham, "Accuracy and Stability of
    Numerical Algorithms", 2nd ed., Lemma 3.1 and Section 4.2], and by at most (n + 1)^2 u w in L2.
    A term that is zero adds nothing and rounds nothing. One example more or less changes its own
    block, and where it moves another example, that one's new block: two at most
    (`noise.Streams.places`). With and without it, in 32 bits (u = 2^-24), that is four sums: 4
    (MAX_SINGLE + 1)^2 2^-24 w, `BLOCK_SLACK`. All other blocks have the same sums.

    In 64 bits (u = 2^-53) n terms in k pieces are off by at most (PIECE + k + 1) n u w. Twice that
    is below 0.76 times 2^-14 w for up to 2^24
    examples in up to 8192 pieces: chunks have 128 slots or more, so that no table that `source`
    reads needs more.

    `pulled_back` is linear: it takes the sums' difference to that of the parameters' gradients,
    which `norms` bounds, and the 64-bit rounding to at most `MAX_STRETCH` times itself:
    `DOUBLE_SLACK`. The terms of such a layer, rows that are looked up, have norms of at most
    sqrt(parents) |g|, as `norms` states them. What the map itself rounds is a sum of at most q =
    `MAX_LEVELS` rows that
    share a feature: twice q u `MAX_STRETCH` n w, 2^-14 w at most, for which the 16 times 2^-14
    that are charged leave room, since the first bound is 0.76 times 2^-14 w.
    """
    double = layer.double_sums or a.device.type != "cpu"
    precision, most = (
        (torch.float64, PIECE) if double else (torch.float32, block * max(1, PIECE // block))
    )
    totals: Sums = {}
    for first in range(0, len(c), most):
        rows = slice(first, first + most)
        inputs, gradients, weights = a[rows], g[rows], c[rows].to(precision)
        if double and layer.weighs_inputs:
            gradients = gradients.to(precision)
        elif double and a.is_floating_point():
            inputs = inputs.to(precision)
        if not double:
            inputs, gradients, weights = (
                torch.unflatten(values, 0, (-1, block)) for values in (inputs, gradients, weights)
            )
        for p, part in layer.clipped_sum(inputs, gradients, weights).items():
            own = part if double else part.sum(0, dtype=torch.float64)
            totals[p] = totals[p] + own if p in totals else own
    return totals


def weighted_by(values: Tensor, c: Tensor) -> Tensor:
    """`values` `[..., batch, ...]` times the weights `c` `[..., batch]`, in the precision of the
    weights, in the order in which `values` lie.
    """
    weights = c.view(*c.shape, *[1] * (values.ndim - c.ndim))
    if values.dtype == c.dtype:
        return values * weights
    return values.to(c.dtype, copy=True).mul_(
        weights
    )  # half the time of a product of two precisions


# --- layers ---


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


# --- layer features ---


MAX_LEVELS = 1024  # of a column with features
MIN_KEPT = 0.25  # of the norm of an output's gradient, by the features of a node
Features = Sequence[
    Tensor
]  # for each column one vector per level, `[levels, features]`; see `data.domain`


def check_features(features: Features) -> None:
    """Refuse features that the proofs do not hold for.

    A matrix of numbers of at least 0 stretches by at most the root of the largest row sum of its
    product with its transpose.
    """
    for own in features:
        if len(own) > MAX_LEVELS:
            raise BoundaryError(f"features are for at most {MAX_LEVELS} levels")
        if not bool((own >= 0).all()) or not float(own.square().sum(1).max()) <= 1 + 1e-6:
            raise BoundaryError(
                "features of a level must be numbers of at least 0, of norm at most 1"
            )
        if float((own @ own.sum(0)).max()) > MAX_STRETCH**2:
            raise BoundaryError(f"features stretch a gradient by more than {MAX_STRETCH}")


def check_kept(features: Features) -> None:
    """Refuse features that may cancel: they keep at least `MIN_KEPT` of any gradient's norm."""
    for own in features:
        kept = float(torch.linalg.eigvalsh((own @ own.T).double())[0])
        if not kept >= MIN_KEPT**2:
            raise BoundaryError(f"features keep less than {MIN_KEPT:g} of a gradient")


def block_diagonal(features: Features) -> Tensor:
    """All features as one sparse matrix `[rows, features]`."""
    check_features(features)
    places, values, row, column = [], [], 0, 0
    for own in features:
        places.append(own.nonzero().T + torch.tensor([[row], [column]]))
        values.append(own[own != 0])
        row, column = row + own.shape[0], column + own.shape[1]
    return torch.sparse_coo_tensor(
        torch.cat(places, 1), torch.cat(values), (row, column), check_invariants=False
    ).coalesce()


# --- layer sums ---


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
