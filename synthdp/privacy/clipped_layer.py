"""What DP-SGD needs of a layer, and how the sum of its clipped gradients is taken.

Trusted, because a sum must not depend on one example by more than the clipping norm, however numbers are rounded:
`stable_sum` proves by how much rounding may add to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from synthdp.privacy.dpsgd_settings import MOST_SINGLE

CHUNK = 4096  # examples that are converted to 64 bits at once
Norms = dict[nn.Parameter, Tensor]  # per-example norms of each parameter's gradient, shape [batch]
Sums = dict[nn.Parameter, Tensor]  # gradient of each parameter, summed over weighted examples


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
        """Gradient of each parameter, or what `pulled_back` maps to it, summed over examples with weights `c` `[batch]`, by `weighted_by`."""
        raise NotImplementedError

    def pulled_back(self, sums: Sums) -> Sums:
        """Gradients of the parameters from the sum of all `clipped_sum`: a public linear map of norm at most `MOST_STRETCH`."""
        return sums

    @property
    def stretches(self) -> bool:
        """Whether `pulled_back` may stretch what it maps, rounding errors too."""
        return False


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


def _copy(values: Tensor, precision: torch.dtype) -> Tensor:
    return values.to(precision, copy=True, memory_format=torch.contiguous_format)


def weighted_by(values: Tensor, c: Tensor) -> Tensor:
    """`values` `[..., batch, ...]` times the weights `c` `[..., batch]`, in the precision of the weights; in new memory, however `values` lie."""
    weights = c.view(*c.shape, *[1] * (values.ndim - c.ndim))
    if values.dtype == c.dtype:
        return torch.mul(values, weights, out=torch.empty_like(values, memory_format=torch.contiguous_format))
    return _copy(values, c.dtype).mul_(weights)  # half the time of a product of two precisions
