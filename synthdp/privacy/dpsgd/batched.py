"""DP-SGD of many models of one shape side by side: the training of `dpsgd`, with the models as a
leading dimension.

For rehearsals alone, that is shadow models: a small model spends most of a step on calls, which
many models here share. Each model has its own rows, Poisson batches, latents, noise, starting
weights and Adam state, drawn from its own `Randomness` in the order in which `dpsgd` draws; noise
goes through the same seam, with the same scale and lattice. So what an attack sees is distributed
as for models that were trained one by one, up to the rounding of sums, which are of 32 bits here
for any batch; tests hold weights of both on the same draws against each other. Releases do not go
this way: what `dpsgd` proves of rounding is not claimed here.

Batches of one step are padded to the longest, in steps of `PAD`. An example that is not there has
the weight zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd.allocator import keep_freed_memory
from synthdp.privacy.dpsgd.batched_layers import StackedLayer, stack
from synthdp.privacy.dpsgd.optimizer import check_layers, clamp_weights
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss, Weights
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

PAD = 4  # rows by which batches grow
SMALL = 1e-6  # in a clipping coefficient's denominator, as Opacus has it


def train_stacked(
    settings: DpSgd,
    modules: Sequence[PerExampleLoss],
    tables: Sequence[Table],
    randomness: Sequence[Randomness],
) -> list[Weights]:
    """Train `modules` side by side, each on its own table and by its own coins; the averaged
    weights of each.

    Raises:
        BoundaryError: modules of different shapes, or a layer without a proved norm.
    """
    if not len(modules) == len(tables) == len(randomness) > 0:
        raise BoundaryError("each model needs its own module, table and randomness")
    rows = [settings.rows_of(t, draws) for t, draws in zip(tables, randomness, strict=True)]
    trainer = _StackedTrainer(settings, modules, rows, randomness)
    for step in range(settings.steps):
        trainer.step(step)
    return trainer.averaged()


class _StackedTrainer:
    """One run of all models."""

    def __init__(
        self,
        settings: DpSgd,
        modules: Sequence[PerExampleLoss],
        rows: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.uint16]]],
        randomness: Sequence[Randomness],
    ) -> None:
        check_layers(modules[0])
        keep_freed_memory()
        self.settings, self.randomness, self.latent = settings, randomness, modules[0].latent
        self.lengths = [len(own) for own in rows]
        self.begins = np.cumsum([0, *self.lengths])
        self.codes = np.concatenate(rows).astype(np.int64)
        self.names = [n for n, p in modules[0].named_parameters() if p.requires_grad]
        self.loss = stack(modules)
        self.layers = [m for m in self.loss.modules() if isinstance(m, StackedLayer)]
        self.params = [p for p in self.loss.parameters() if p.requires_grad]
        self.sizes = [p[0].numel() for p in self.params]
        clamp_weights(self.params)
        self.optimizer = torch.optim.Adam(self.params, lr=settings.learning_rate, fused=True)
        self.average = [p.detach().clone() for p in self.params]

    def step(self, step: int) -> None:
        """One noisy step of every model; an empty batch is a step of pure noise."""
        batches = [
            draws.poisson_batch(n, rate=self.settings.rate)
            for draws, n in zip(self.randomness, self.lengths, strict=True)
        ]
        sums = (
            self._clipped_sums(batches)
            if any(len(batch) for batch in batches)
            else torch.zeros(len(batches), sum(self.sizes))
        )
        for p, part in zip(self.params, torch.split(self._noisy(sums), self.sizes, 1), strict=True):
            p.grad = part.reshape(p.shape).contiguous()  # the fused optimizer takes no strides
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate_at(step)
        self.optimizer.step()
        clamp_weights(self.params)
        torch._foreach_lerp_(
            self.average,
            [p.detach() for p in self.params],
            1 - self.settings.average_decay_at(step),
        )

    def averaged(self) -> list[Weights]:
        """The averaged weights of each model by name (the last ones where averaging is off)."""
        final = self.average if self.settings.ema > 0 else [p.detach() for p in self.params]
        return [
            {n: p[k].clone() for n, p in zip(self.names, final, strict=True)}
            for k in range(len(self.randomness))
        ]

    def _padded(
        self, batches: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.intp]]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Levels `[model, batch, columns]`, latents `[model, batch, latent]`, and which examples
        are there `[model, batch]`.
        """
        sizes = np.array([len(batch) for batch in batches])
        width = -(-int(sizes.max()) // PAD) * PAD
        there = np.arange(width) < sizes[:, None]
        codes = np.zeros((*there.shape, self.codes.shape[1]), dtype=np.int64)
        codes[there] = self.codes[
            np.concatenate(
                [batch + begin for batch, begin in zip(batches, self.begins, strict=False)]
            )
        ]
        latents = np.zeros((*there.shape, self.latent), dtype=np.float32)
        latents[there] = np.concatenate(
            [
                draws.latents(int(n), self.latent)
                for draws, n in zip(self.randomness, sizes, strict=True)
                if n
            ]
        )
        return torch.from_numpy(codes), torch.from_numpy(latents), torch.from_numpy(there)

    def _clipped_sums(
        self, batches: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.intp]]]
    ) -> Tensor:
        """Sums of clipped per-example gradients, `[model, parameters]`. An example whose loss or
        norm is not finite counts as zero.
        """
        codes, latents, there = self._padded(batches)
        losses = self.loss(codes, latents)
        seen = [layer.take_seen() for layer in self.layers]
        outputs = torch.autograd.grad(losses, [out for _, out in seen], torch.ones_like(losses))
        received = [layer.received(g) for layer, g in zip(self.layers, outputs, strict=True)]
        with torch.no_grad():
            norms = [
                n
                for layer, (a, _), g in zip(self.layers, seen, received, strict=True)
                for n in layer.norms(a, g).values()
            ]
            norm = torch.stack(norms).norm(2, dim=0)
            counts = there & torch.isfinite(losses) & torch.isfinite(norm)
            coefficient = (self.settings.clip / (norm + SMALL)).clamp(max=1.0).where(counts, 0.0)
            bad = None if bool((counts == there).all()) else ~counts
            sums: dict[torch.nn.Parameter, Tensor] = {}
            for layer, (a, _), g in zip(self.layers, seen, received, strict=True):
                sums |= layer.clipped_sum(_without(a, bad), _without(g, bad), coefficient)
        return torch.cat([sums[p].flatten(1) for p in self.params], 1)

    def _noisy(self, sums: Tensor) -> Tensor:
        """What `dpsgd` makes of a sum: on a lattice, noisy, by the expected batch; each model's
        from its own coins.
        """
        settings = self.settings
        spacing = settings.lattice_spacing(sums.shape[1])
        noisy = np.empty(sums.shape, dtype=np.float32)
        for out, draws, own in zip(noisy, self.randomness, sums.numpy(), strict=True):
            out[:] = draws.lattice_gaussian(own, sigma=settings.noise, spacing=spacing)
        return torch.from_numpy(noisy).div_(settings.expected_batch)


def _without(values: Tensor, bad: Tensor | None) -> Tensor:
    """`values` `[model, batch, ...]` with zeros for `bad` examples: not finite times a weight of
    zero would not be zero.
    """
    if bad is None:
        return values
    return values.masked_fill(bad.view(*bad.shape, *[1] * (values.dim() - 2)), 0)
