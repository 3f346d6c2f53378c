"""The layers of many models of one shape as one: what `layers` does, with the models as a leading
dimension.

A layer here holds the weights of K models, `[model, ...]`, and takes inputs `[model, batch, ...]`.
Norms and most sums are the methods of `layers` themselves, called with a dimension more, so that
what is proved there holds for each model. Only what a batched product cannot do, the lookups, is
written again. No number of one model ever meets a number of another.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd.clipped_layer import ClippedLayer, Norms, Sums
from synthdp.privacy.dpsgd.layers import MaskedLinear, NodeLinear, ParentLookup

# products and losses run at full speed on widths that are multiples of this, and at a third of it
# on a width of 4
VECTOR = 16
SHORT_KEYS = 1 << 16  # keys below this are sorted by counting, in a fraction of the time


class StackedLayer(nn.Module):
    """K layers of one kind and shape; `whole` is one of that kind that has all weights."""

    seen: tuple[Tensor, Tensor] | None = None

    def __init__(self, own: Sequence[ClippedLayer]) -> None:
        """`own`: the layer of each model. Their buffers, which are public structure, are taken from
        the first.
        """
        super().__init__()
        self.models = len(own)
        self.whole = copy.deepcopy(own[0])
        for name, first in own[0].named_parameters():
            weights = torch.stack([layer.get_parameter(name).detach() for layer in own])
            self.whole.register_parameter(
                name, nn.Parameter(weights, requires_grad=first.requires_grad)
            )

    def forward(self, a: Tensor) -> Tensor:
        """As the layer's own, with a dimension more; keeps what `gradients` needs until the step is
        done.
        """
        out = self.output(a)
        if torch.is_grad_enabled():
            out = (
                out if a.requires_grad else out.requires_grad_()
            )  # gradients are wanted at outputs, never at weights
            self.seen = (a.detach(), out)
        return out

    def output(self, a: Tensor) -> Tensor:
        """The layer's output, `[model, batch, ...]`."""
        raise NotImplementedError

    def take_seen(self) -> tuple[Tensor, Tensor]:
        """This step's input and output, forgotten here."""
        if self.seen is None:
            raise RuntimeError(f"{type(self).__name__} took no part in the loss")
        seen, self.seen = self.seen, None
        return seen

    def received(self, g: Tensor) -> Tensor:
        """As the layer's own."""
        return self.whole.received(g)

    def norms(self, a: Tensor, g: Tensor) -> Norms:
        """As the layer's own, `[model, batch]`."""
        return self.whole.norms(a, g)

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """Gradients of the parameters `[model, ...]`, summed over a model's own examples with
        weights `c` `[model, batch]`.
        """
        return self.whole.clipped_sum(a, g, c)


class StackedLinear(StackedLayer):
    """`MaskedLinear` of many models."""

    whole: MaskedLinear

    def output(self, a: Tensor) -> Tensor:
        """Shape `[model, batch, out]`."""
        weight, bias = self.whole.weight.detach(), self.whole.bias.detach()
        return torch.baddbmm(bias.unsqueeze(1), _widened(a), _widened(weight * self.whole.mask).mT)


class StackedNodes(StackedLayer):
    """`NodeLinear` of many models."""

    whole: NodeLinear

    def output(self, a: Tensor) -> Tensor:
        """Logits, shape `[model, batch, node, levels]`, with as many more levels that do not exist
        as make their number a multiple of `VECTOR`.
        """
        table, bias = (
            _widened(self.whole.table().detach()),
            _widened(self.whole.bias.detach() + self.whole.padding, value=-torch.inf),
        )
        inputs = a.transpose(1, 2)
        logits = torch.baddbmm(
            bias.flatten(0, 1).unsqueeze(1), inputs.flatten(0, 1), table.flatten(0, 1)
        )
        return logits.view(*inputs.shape[:3], -1).transpose(1, 2)

    def received(self, g: Tensor) -> Tensor:
        """As the layer's own, of the levels that exist."""
        return self.whole.received(g[..., : self.whole.padding.shape[1]])


class StackedLookup(StackedLayer):
    """`ParentLookup` of many models: one table of rows, in which those of a model follow those of
    the model before it.
    """

    whole: ParentLookup

    def output(self, a: Tensor) -> Tensor:
        """Sums of rows, shape `[model, batch, node, width]`."""
        own, bags = self.whole, a.shape[0] * a.shape[1]
        begin = (torch.arange(bags).unsqueeze(1) * len(own.owner) + own.first).flatten()
        summed = F.embedding_bag(self._rows(a).flatten(), self._table(), begin, mode="sum")
        return summed.view(*a.shape[:2], own.nodes, own.width).add_(own.bias.detach().unsqueeze(1))

    def clipped_sum(self, a: Tensor, g: Tensor, c: Tensor) -> Sums:
        """A row's gradient is the sum of what the (example, node) that looked it up received:
        lookups the other way round.
        """
        own, weighted = self.whole, g * c[..., None, None]
        keys = self._rows(a).flatten()
        senders = (
            torch.arange(a.shape[0] * a.shape[1]).unsqueeze(1) * own.nodes + own.owner
        ).flatten()
        count = torch.bincount(keys, minlength=self.models * own.rows)
        summed = F.embedding_bag(
            senders[_order(keys, len(count))],
            weighted.flatten(0, 2),
            count.cumsum(0) - count,
            mode="sum",
        )
        rows = summed.view(self.models, own.rows, own.width)
        return {
            own.weight: rows if own.basis is None else _mapped(own.basis.t(), rows),
            own.bias: weighted.sum(1),
        }

    def _rows(self, codes: Tensor) -> Tensor:
        """Rows of the table that each example looks up, `[model, batch, slots]`."""
        shift = torch.arange(self.models).view(-1, 1, 1) * self.whole.rows
        return codes[..., self.whole.own_columns] + self.whole.own_offsets + shift

    def _table(self) -> Tensor:
        weight = self.whole.weight.detach()
        return (weight if self.whole.basis is None else _mapped(self.whole.basis, weight)).flatten(
            0, 1
        )


TWINS: dict[type[ClippedLayer], type[StackedLayer]] = {
    ParentLookup: StackedLookup,
    NodeLinear: StackedNodes,
    MaskedLinear: StackedLinear,
}


def stack(modules: Sequence[nn.Module]) -> nn.Module:
    """One module that computes what `modules`, alike but for their numbers, compute each for
    itself.

    Buffers outside of layers that are not the same in all modules get the leading dimension; they
    must broadcast.

    Raises:
        BoundaryError: modules of different shapes.
    """
    first = modules[0]
    whole = copy.deepcopy(first)
    shapes = [{n: t.shape for n, t in (*m.named_parameters(), *m.named_buffers())} for m in modules]
    if any(own != shapes[0] for own in shapes):
        raise BoundaryError("only models of one shape are trained side by side")
    for name, layer in first.named_children():
        own = [m.get_submodule(name) for m in modules]
        if not isinstance(layer, ClippedLayer) or type(layer) not in TWINS:
            raise BoundaryError(f"layer {name} ({type(layer).__name__}) cannot be stacked")
        whole.register_module(
            name, TWINS[type(layer)]([m for m in own if isinstance(m, ClippedLayer)])
        )
    for name, buffer in first.named_buffers(recurse=False):
        values = [m.get_buffer(name) for m in modules]
        if not all(torch.equal(buffer, value) for value in values):
            whole.register_buffer(name, torch.stack(values), persistent=False)
    return whole


def _widened(values: Tensor, value: float = 0.0) -> Tensor:
    """`values` with a last dimension that is a multiple of `VECTOR`."""
    return F.pad(values, (0, -values.shape[-1] % VECTOR), value=value)


def _order(keys: Tensor, bound: int) -> Tensor:
    """Positions of `keys`, which lie below `bound`, in ascending order."""
    values = keys.numpy()
    return torch.from_numpy(
        np.argsort(values.astype(np.uint16) if bound <= SHORT_KEYS else values, kind="stable")
    )


def _mapped(basis: Tensor, values: Tensor) -> Tensor:
    """The sparse `basis` `[m, n]` times each model's `values` `[model, n, width]`, in one
    product.
    """
    models, _, width = values.shape
    product: Tensor = torch.sparse.mm(basis, values.transpose(0, 1).flatten(1))
    return product.view(-1, models, width).transpose(0, 1).contiguous()
