"""Differentially private stochastic gradient descent, by Opacus, with everything public taken from the spec.

Guarantee. A step draws each row with probability `rate`, clips each row's gradient to norm `clip` (Opacus
ghost-clipping hooks and optimizer; norms from `layers`) and adds Gaussian noise of standard deviation `noise_multiplier * sensitivity` to the sum.
A unit of k rows moves the sum by at most (rows drawn of k) * sensitivity: `accounting.unit_sampled_gaussian`.
Rate, steps and expected batch are constants; the number of rows enters nowhere.

Noise on a lattice [derived here]. The clipped sum S is rounded to a public lattice gZ^d, and the noise is a
real Gaussian N rounded to the same lattice. As round(s) is a lattice point, round(s) + round(N) =
round(round(s) + N): post-processing of the Gaussian mechanism on round(s), so no output says through its low
bits where S was. Rounding moves a sum by at most g/2 per coordinate, hence sensitivity <= clip + g sqrt(d).
`DpSgd.sensitivity` also holds what arithmetic adds. For sums that is proved, for batches of up to 2^24 rows: examples
are summed in groups, to which each goes by its own coins, so that one more changes the rounding of one small group
(`clipped_layer.stable_sum`). What remains assumed, and measured by tests: that the slack for 32-bit norms is enough, and that the
numbers that the passes give an example do not depend on which others are in its batch. Besides, that the 64-bit generator's
normals are normal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import dp_accounting
import numpy as np
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.grad_sample.utils import register_grad_sampler, register_norm_sampler
from opacus.optimizers import DPOptimizerFastGradientClipping
from torch import Tensor, nn

from synthdp.data.encoding import Codes
from synthdp.errors import BoundaryError, OutputError
from synthdp.privacy.allocator import keep_freed_memory
from synthdp.privacy.clipped_layer import ClippedLayer, Norms, Sums, stable_sum
from synthdp.privacy.dpsgd_settings import DpSgd
from synthdp.privacy.layers import CLIPPED_LAYERS
from synthdp.privacy.mechanisms import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.processes import Helpers
from synthdp.privacy.table import Table

if TYPE_CHECKING:  # a rehearsal keeps nothing, and needs no ledger
    from synthdp.privacy.journal import Checkpoints

Weights = dict[str, Tensor]
Progress = Callable[[int, int], None]  # steps done, steps in all

MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's state of a parameter


def _no_gradient_sampler(*_: object) -> NoReturn:
    raise BoundaryError("per-example gradients are never built: norms come from the layers themselves")


def _norms(layer: ClippedLayer, inputs: list[Tensor], gradient: Tensor) -> Norms:
    """Opacus' norm sampler: also keeps what `clipped_sum` needs, until the step is done."""
    received = layer.received(gradient)
    layer.seen = (inputs[0], received)
    return layer.norms(inputs[0], received)


register_norm_sampler(CLIPPED_LAYERS)(_norms)
register_grad_sampler(CLIPPED_LAYERS)(_no_gradient_sampler)


class PerExampleLoss(nn.Module):
    """What DP-SGD trains: `forward(codes [batch, columns], noise [batch, latent]) -> loss of each example [batch]`.

    All with leading dimensions where its layers are stacked: `[model, batch, ...]` (see `stacked`).

    The loss of an example must depend on that example and its own standard normals alone; its parameters must
    sit in layers of `privacy.layers`. Gradients of an example's loss at the output of a layer whose bias is not trained must be
    bounded (those of a cross-entropy are, by sqrt(2)): without the bias, inputs so small that their squares vanish would hide them.
    """

    latent: int  # standard normals that an example's loss takes

    def described(self) -> Arrays:
        """What another process needs to build the same module: its public shape and its starting weights.

        Raises:
            BoundaryError: it is trained by one process.
        """
        raise BoundaryError(f"{type(self).__name__} is trained by one process")


@dataclass(frozen=True)
class Training:
    """One DP-SGD run as a mechanism: settings, the module to train, where it keeps how far it came, on which device, and with whose help."""

    settings: DpSgd
    module: PerExampleLoss
    progress: Progress
    checkpoints: Checkpoints | None
    device: str = "cpu"
    helpers: Helpers | None = None

    @property
    def name(self) -> str:
        """Name of the settings."""
        return self.settings.name

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """Event of the settings."""
        return self.settings.event(rows_per_unit)

    def run(self, table: Table, randomness: Randomness) -> Weights:
        """Train and return the averaged weights.

        Checkpoints hold noisy weights only, which are released content; steps after the last checkpoint of a
        killed run were used by nobody and are done again under the same charge.
        """
        codes = table.fit_codes
        trainer = self._trainer(randomness)
        kept = self.checkpoints.last() if self.checkpoints else None
        first = trainer.load(kept) if kept is not None else 0
        with warnings.catch_warnings():
            # Levels are no real inputs, so no gradient flows into the lookups; the hooks fire all the same.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            for step in range(first, self.settings.steps):
                trainer.step(codes, step)
                done = step + 1
                if self.checkpoints and done % self.settings.checkpoint_every == 0 and done < self.settings.steps:
                    self.checkpoints.keep(done, trainer.state(done))
                self.progress(done, self.settings.steps)
        return trainer.averaged()

    def _trainer(self, randomness: Randomness) -> _Trainer:
        module = self.module.to(self.device)
        if self.helpers is None:
            return _Trainer(self.settings, module, randomness, self.device)
        return _SharedTrainer(self.settings, module, randomness, self.device, helpers=self.helpers)

    def pack(self, value: Weights) -> Arrays:
        """Weights as arrays."""
        return {name: tensor.numpy() for name, tensor in value.items()}

    def unpack(self, arrays: Arrays) -> Weights:
        """Weights from arrays."""
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        _check_tensors(weights, {n: p.shape for n, p in self.module.named_parameters() if p.requires_grad})
        return weights


class Clipping:
    """Opacus wiring of a module: the sums of its clipped per-example gradients."""

    def __init__(self, settings: DpSgd, module: PerExampleLoss, device: str = "cpu") -> None:
        check_layers(module)
        keep_freed_memory()
        module.train()
        self.settings, self.device = settings, device
        self.latent = module.latent
        self.wrapped = GradSampleModuleFastGradientClipping(module, loss_reduction="sum", strict=False, max_grad_norm=settings.clip)
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.layers = [m for m in module.modules() if isinstance(m, ClippedLayer)]
        self.biases = [layer.bias for layer in self.layers if layer.bias.requires_grad]

    def clipped_sums(self, batch: Tensor, latents: Tensor) -> Sums:
        """64-bit sums of clipped gradients of the examples `batch` `[batch, columns]` with `latents` `[batch, latent]`; nothing for no example.

        An example whose loss or norm is not finite counts as zero. It is left out of the sums after one pass
        over the whole batch: running the rest again would draw new coins for them, and so let one example decide
        what becomes of others.
        """
        if not len(batch):
            return {}
        group, order = self._groups(latents).sort(stable=True)
        losses = self.wrapped(batch[order], latents[order])
        # Gradients of biases alone: the pass reaches every layer's output, and no weight gradient is built.
        torch.autograd.grad(losses.sum(), self.biases)
        coefficient = self.wrapped.get_clipping_coef()
        finite = torch.isfinite(losses.detach()) & torch.isfinite(self.wrapped.per_sample_gradient_norms)
        keep = slice(None) if bool(finite.all()) else finite  # a mask copies the batch
        sizes = torch.bincount(group[keep]).tolist()
        sums: Sums = {}
        for layer in self.layers:
            sums |= stable_sum(layer, *layer.take_seen(keep), coefficient[keep], sizes)
        return sums

    def _groups(self, latents: Tensor) -> Tensor:
        """The group of each example, for `clipped_layer.stable_sum`: a function of its own normals, so that no other example has a say."""
        count = self.settings.groups if self.device == "cpu" and self.latent else 1
        share = torch.special.ndtr(latents[:, 0]) if count > 1 else latents.new_zeros(len(latents))
        return (share * count).long().clamp(max=count - 1)


class _Trainer(Clipping):
    """One run: batches, noise, steps and checkpoints."""

    def __init__(self, settings: DpSgd, module: PerExampleLoss, randomness: Randomness, device: str = "cpu") -> None:
        super().__init__(settings, module, device)
        self.randomness = randomness
        self.names = [n for n, p in module.named_parameters() if p.requires_grad]
        dimension = sum(p.numel() for p in self.params)
        self.optimizer = _LatticeOptimizer(
            torch.optim.Adam(self.params, lr=settings.learning_rate),
            noise_multiplier=settings.noise / settings.clip,
            max_grad_norm=settings.clip,
            expected_batch_size=settings.expected_batch,
            randomness=randomness,
            deviation=settings.noise,
            spacing=settings.lattice_spacing(dimension),
        )
        self.average = [p.detach().clone() for p in self.params]

    def step(self, codes: Codes, step: int) -> None:
        """One noisy step; an empty batch is a step of pure noise."""
        batch = codes[self.randomness.poisson_batch(len(codes), rate=self.settings.rate)]
        self._clipped_gradient(torch.from_numpy(batch.astype(np.int64)).to(self.device))
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate_at(step)
        self.optimizer.step()
        torch._foreach_lerp_(self.average, [p.detach() for p in self.params], 1 - self.settings.average_decay_at(step))

    def _clipped_gradient(self, batch: Tensor) -> None:
        """Put the sum of clipped per-example gradients into `p.grad`; each example of the batch has normals of its own."""
        self.optimizer.zero_grad()
        sums: Sums = {}
        if len(batch):
            sums = self.clipped_sums(batch, torch.from_numpy(self.randomness.latents(len(batch), self.latent)).to(self.device))
        for p in self.params:
            total = sums.get(p, torch.zeros_like(p, dtype=torch.float64))
            p.grad = total.to(p.dtype)
            # Opacus adds `p.grad` to this: nothing of a 64-bit sum is lost before the lattice.
            p.summed_grad = total - p.grad  # type: ignore[attr-defined]

    def averaged(self) -> Weights:
        """The averaged weights by name (the last ones where averaging is off)."""
        final = self.average if self.settings.ema > 0 else self.params
        return {n: p.detach().cpu().clone() for n, p in zip(self.names, final, strict=True)}

    def state(self, done: int) -> Arrays:
        """Weights, averages, Adam's state and the step, all after noise."""
        state = self.optimizer.original_optimizer.state
        tensors = {"step": torch.tensor(done)}
        for n, p, a in zip(self.names, self.params, self.average, strict=True):
            own = {"weight": p.detach(), "average": a, **state[p]}
            tensors |= {f"{kind}/{n}": t.cpu().contiguous() for kind, t in own.items()}
        return {name: t.numpy() for name, t in tensors.items()}

    def load(self, arrays: Arrays) -> int:
        """Continue from a `state`; returns the steps already done.

        Raises:
            OutputError: it is none of this training. It is not passed over: its steps may have been seen.
        """
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        shapes = {f"{kind}/{n}": p.shape for n, p in zip(self.names, self.params, strict=True) for kind in ("weight", "average", *MOMENTS)}
        try:
            _check_tensors(tensors, {**shapes, **{f"step/{n}": torch.Size() for n in self.names}, "step": torch.Size()})
            done = int(tensors["step"])
            if done % self.settings.checkpoint_every or not 0 < done < self.settings.steps:
                raise ValueError("a step at which no checkpoint is written")
        except ValueError:
            hint = "start a new release with --force; the budget of this run stays spent"
            raise OutputError("the checkpoint of the interrupted run is damaged, or of another training", hint=hint) from None
        with torch.no_grad():
            for n, p, a in zip(self.names, self.params, self.average, strict=True):
                p.copy_(tensors[f"weight/{n}"])
                a.copy_(tensors[f"average/{n}"])
                self.optimizer.original_optimizer.state[p] = {
                    "step": tensors[f"step/{n}"],
                    **{k: tensors[f"{k}/{n}"].to(self.device) for k in MOMENTS},
                }
        return done


class _SharedTrainer(_Trainer):
    """A run whose gradients are summed by several processes (see `processes`). Batches, coins, noise and steps stay with this one."""

    def __init__(self, settings: DpSgd, module: PerExampleLoss, randomness: Randomness, device: str = "cpu", *, helpers: Helpers) -> None:
        super().__init__(settings, module, randomness, device)
        self.helpers = helpers
        helpers.begin(settings, module.described(), device=device)

    def clipped_sums(self, batch: Tensor, latents: Tensor) -> Sums:
        """As one process gives them, up to the order in which groups are added."""
        own = self.helpers.deal(self.params, batch, latents)
        return self.helpers.total(self.params, super().clipped_sums(batch[own], latents[own]))


def _check_tensors(tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> None:
    """Raise `ValueError` unless there are exactly these tensors, and every number is one."""
    if {name: t.shape for name, t in tensors.items()} != dict(shapes) or not all(bool(t.isfinite().all()) for t in tensors.values()):
        raise ValueError("not the tensors of this training")


class _LatticeOptimizer(DPOptimizerFastGradientClipping):  # type: ignore[misc]
    """Opacus' optimizer with the noise of this module: on a public lattice, from the run's own stream."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, randomness: Randomness, deviation: float, spacing: float, **settings: float) -> None:
        super().__init__(optimizer, loss_reduction="mean", **settings)
        self.randomness, self.deviation, self.spacing = randomness, deviation, spacing

    def add_noise(self) -> None:
        """Make the sums of all parameters, as one vector, noisy; see the module's proof."""
        exact = torch.cat([p.summed_grad.flatten() for p in self.params])
        noisy = torch.from_numpy(self.randomness.lattice_gaussian(exact.cpu().numpy(), sigma=self.deviation, spacing=self.spacing)).to(self.params[0])
        for p, part in zip(self.params, torch.split(noisy, [p.numel() for p in self.params]), strict=True):
            p.grad = part.view_as(p)


def check_layers(module: nn.Module) -> None:
    """Whether every trained parameter sits in a layer whose per-example norm is proved.

    Raises:
        BoundaryError: one does not.
    """
    for name, layer in module.named_modules():
        if any(p.requires_grad for p in layer.parameters(recurse=False)) and type(layer) not in CLIPPED_LAYERS:
            raise BoundaryError(f"layer {name} ({type(layer).__name__}) has no proved per-example norm")
