"""Layers that give exact per-example gradient norms and clipped gradient sums without per-example gradients.

Trusted, because clipping is only as right as the norm. Both follow from a layer's input `a` and the gradient
`g` of its output, kept from one backward pass: `norms` proves each formula in its docstring, and `clipped_sum`
is the gradient with example b weighted by its clipping coefficient c_b. Keeping (a, g) to weight them later
saves the second backward pass [Bu et al., "Differentially Private Optimization on Large Model at Small Cost",
arXiv:2210.00038v2, Section 3 (book-keeping)]. Tests compare both with what autograd computes example by
example. `dpsgd` registers the norms with Opacus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Norms = dict[nn.Parameter, Tensor]  # per-example norms of each parameter's gradient, shape [batch]
Sums = dict[nn.Parameter, Tensor]  # gradient of each parameter, summed over weighted examples


class ClippedLayer(nn.Module):
    """What DP-SGD needs of a layer; `seen` holds one batch's (input, output gradient) within a step."""

    bias: nn.Parameter
    seen: tuple[Tensor, Tensor] | None = None

    def take_seen(self, keep: Tensor | slice) -> tuple[Tensor, Tensor]:
        """What this step kept of the examples `keep` (a mask `[batch]`, or all as a slice).

        Forgotten here, so that rows do not outlive their step.
        """
        if self.seen is None:
            raise RuntimeError(f"{type(self).__name__} took no part in the loss")
        inputs, gradient = self.seen
        self.seen = None
        return inputs[keep], gradient[keep]

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Per-example gradient norms, shape `[batch]`, of each parameter."""
        raise NotImplementedError

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Gradient of each parameter, summed over examples with weights `c` `[batch]`."""
        raise NotImplementedError


class ParentLookup(ClippedLayer):
    """For each node the sum of one learned row per parent level: `[batch, columns]` -> `[batch, node, width]`.

    The same as a linear layer on the parents' one-hot levels, without the zeros. Each (node, parent, level)
    has a row of its own, so the rows that one example touches are distinct [this makes `norms` exact].
    """

    columns: Tensor
    offsets: Tensor
    used: Tensor
    parent_count: Tensor
    first: Tensor
    owner: Tensor

    def __init__(self, parents: Sequence[Sequence[int]], sizes: Sequence[int], width: int) -> None:
        """`parents[n]` are column positions; `sizes[c]` the levels of column c."""
        super().__init__()
        self.nodes, self.width = len(parents), width
        rows = sum(sizes[p] for own in parents for p in own)
        most = max(len(own) for own in parents)
        if most == 0:
            raise ValueError("no node has a parent: leave the layer out")
        self.weight = nn.Parameter(torch.zeros(rows, width))
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
        count = offsets.ge(0).sum(1)
        self.register_buffer("parent_count", count.float(), persistent=False)
        self.register_buffer("first", count.cumsum(0) - count, persistent=False)
        self.register_buffer("owner", torch.repeat_interleave(torch.arange(self.nodes), count), persistent=False)

    def reset(self, generator: torch.Generator) -> None:
        """Uniform start, scaled by the number of parents of a node."""
        fan_in = max(1.0, float(self.parent_count.max()))
        with torch.no_grad():
            self.weight.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator=generator)

    def forward(self, codes: Tensor) -> Tensor:
        """Sums of rows, shape `[batch, node, width]`."""
        bags = codes[:, self.columns] + self.offsets
        starts = torch.arange(len(codes) * self.nodes, device=codes.device)
        flat = bags[:, self.used]  # [batch, parents of all nodes], node by node
        begin = (starts // self.nodes) * flat.shape[1] + self.first[starts % self.nodes]
        summed = F.embedding_bag(flat.flatten(), self.weight, begin, mode="sum")
        return summed.view(len(codes), self.nodes, self.width) + self.bias

    def of_node(self, node: int, codes: Tensor) -> Tensor:
        """The sums of one node alone, shape `[batch, width]`."""
        used = self.used[node]
        total = self.bias[node].expand(len(codes), self.width)
        for column, offset in zip(self.columns[node][used].tolist(), self.offsets[node][used].tolist(), strict=True):
            total = total + self.weight[codes[:, column] + offset]
        return total

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """An example touches parents(node) distinct rows of a node, each with gradient g_node; the bias has g."""
        squared = g.square().sum(2)
        return {self.weight: (squared @ self.parent_count).sqrt(), self.bias: squared.sum(1).sqrt()}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """One-hot rows, transposed, times weighted output gradients: a sparse product."""
        weighted = g * c.view(-1, 1, 1)
        rows = (a[:, self.columns] + self.offsets)[:, self.used]
        node = torch.arange(len(a), device=a.device).unsqueeze(1) * self.nodes + self.owner
        ones = torch.ones(rows.numel(), device=a.device)
        one_hot = torch.sparse_coo_tensor(
            torch.stack([rows.flatten(), node.flatten()]), ones, (len(self.weight), len(a) * self.nodes), check_invariants=False
        )
        return {self.weight: torch.sparse.mm(one_hot, weighted.flatten(0, 1)), self.bias: weighted.sum(0)}


class NodeLinear(ClippedLayer):
    """A linear layer of its own per node: `[batch, node, width]` -> `[batch, node, levels]` (padded to the widest)."""

    def __init__(self, nodes: int, width: int, levels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(nodes, width, levels))
        self.bias = nn.Parameter(torch.zeros(nodes, levels))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, shape `[batch, node, levels]`."""
        return torch.baddbmm(self.bias.unsqueeze(1), x.transpose(0, 1), self.weight).transpose(0, 1)

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """Node n's weight has gradient a_n g_n', of squared norm |a_n|^2 |g_n|^2; nodes share no parameter."""
        squared = g.square().sum(2)
        return {self.weight: (a.square().sum(2) * squared).sum(1).sqrt(), self.bias: squared.sum(1).sqrt()}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Per node, inputs transposed times weighted output gradients."""
        weighted = g * c.view(-1, 1, 1)
        return {self.weight: torch.bmm(a.permute(1, 2, 0), weighted.transpose(0, 1)), self.bias: weighted.sum(0)}


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
        return {self.weight: ((squared @ self.mask) * a.square()).sum(1).sqrt(), self.bias: squared.sum(1).sqrt()}

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Weighted output gradients, transposed, times inputs, where the mask allows."""
        weighted = g * c.unsqueeze(1)
        return {self.weight: (weighted.T @ a) * self.mask, self.bias: weighted.sum(0)}


CLIPPED_LAYERS = (ParentLookup, NodeLinear, MaskedLinear)
