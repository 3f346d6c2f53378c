"""What DP-SGD needs of a layer, and how the sum of its clipped gradients is taken.

Trusted, because a sum must not depend on one example by more than the clipping norm, however
numbers are rounded: `stable_sum` proves by how much rounding may add to it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
    since blocks lie at the same places of chunks of the same shape (see `dpsgd` for what is assumed
    of kernels).

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
