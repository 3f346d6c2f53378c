"""Differentially private stochastic gradient descent, by Opacus, with everything public taken from
the spec.

Guarantee. A step draws each row with probability `rate`, clips each row's gradient to norm `clip`
(Opacus ghost-clipping hooks and optimizer; norms from `layers`) and adds Gaussian noise of standard
deviation `noise_multiplier * sensitivity` to the sum. A unit of k rows moves the sum by at most
(rows drawn of k) * sensitivity: `unit_sampled_gaussian`. Rate, steps and expected batch
are constants; the number of rows enters nowhere.

Noise on a lattice [derived here]. The clipped sum S is rounded to a public lattice gZ^d, and the
noise is a real Gaussian N rounded to the same lattice. As round(s) is a lattice point, round(s) +
round(N) = round(round(s) + N): post-processing of the Gaussian mechanism on round(s), so no output
says through its low bits where S was. Rounding moves a sum by at most g/2 per coordinate, hence
sensitivity <= clip + g sqrt(d). `DpSgd.sensitivity` also holds what arithmetic adds: to norms
(`layers`) and to sums (`layers.stable_sum`), both proved.

What one example does to the numbers of the others [derived here]. Examples go through the model in
chunks of one public shape, `DpSgd.slots` of them; each is in a slot that coins choose
(`Randomness.places`), and empty slots hold a public row. Two runs on tables that differ in one row
are coupled: others are drawn or not drawn alike and have the same normals; and the same slots, but
for one of them at most, which moves only where a batch fills more than one chunk. Coins do not
depend on rows, and whichever row is the one that only one table has, the others' have the law that
they have without it, so that the coupling has the laws of both runs. Then:

- the others' slots hold the same examples, in tensors of the same shapes, strides and alignment
  (each chunk's are new);
- by the assumption below, their losses, gradients, norms and clipping coefficients are the same to
  the last bit;
- the sum differs by the clipped gradient of the one example, and by what it does to the rounding of
  sums.

Assumed of kernels: *at one shape, with one number of threads, what comes out for a slot is one
function of what is in it and of the weights*; other slots have no say. So it is for kernels whose
order of operations is fixed by the shape, in memory that is aligned to 64 bytes, as MKL's and
ATen's are. Tests measure it, bit by bit, at odd widths and up to the largest weights (on CPUs, and
of GPUs on an H100 alone). Not assumed:
that a slot's place does not matter. It does, in the last digits, where widths are no multiples of a
vector's; so batches with room in one chunk move nobody. A chunk has room for 6 standard deviations
above the expected batch, and overflows with chance below 2e-8 a step where the table has the rows
that the rate was made for, and more often where it has more. Then one other example may move to
another slot; it counts for what was charged if its numbers stay the same there, or change by less
than the slack leaves: that is measured, and not proved. Besides, it is assumed that the 64-bit
generator's normals are normal.

After each step weights are clamped to +-`MAX_WEIGHT`, which is post-processing. Training does not
get there (weights of a few units); it keeps every number of a pass far below where 32 bits
overflow, and inputs small enough for what `layers` says of underflow.

What a step of DP-SGD takes of Opacus' optimizer, and what holds the weights.

Memory that is freed and taken again stays with the process.

A training step frees and takes blocks of some megabytes dozens of times. The C library gives such
blocks back to the system each time, and the system hands them out anew page by page; on small
models that takes a quarter of a step.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import BoundaryError, OutputError
from synthdp.privacy.dpsgd import MAX_TERMS, MAX_WEIGHT, DpSgd
from synthdp.privacy.dpsgd.layers import (
    CLIPPED_LAYERS,
    ClippedLayer,
    Norms,
    Sums,
    stable_sum,
    without,
)
from synthdp.privacy.mechanisms import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

if TYPE_CHECKING:
    from synthdp.privacy.session import Checkpoints


# --- optimizer ---


def clamp_weights(params: Sequence[nn.Parameter]) -> None:
    """Hold noisy weights to +-`MAX_WEIGHT`: post-processing."""
    with torch.no_grad():
        for p in params:
            p.clamp_(-MAX_WEIGHT, MAX_WEIGHT)


def check_tensors(tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> None:
    """Raise `ValueError` unless there are exactly these tensors, and every number is one."""
    if {name: t.shape for name, t in tensors.items()} != dict(shapes) or not all(
        bool(t.isfinite().all()) for t in tensors.values()
    ):
        raise ValueError("not the tensors of this training")


class LatticeOptimizer(DPOptimizerFastGradientClipping):  # type: ignore[misc]
    """Opacus' optimizer with the noise of this module: on a public lattice, from the run's own
    stream.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        randomness: Randomness,
        deviation: float,
        spacing: float,
        **settings: float,
    ) -> None:
        super().__init__(optimizer, loss_reduction="mean", **settings)
        self.randomness, self.deviation, self.spacing = randomness, deviation, spacing

    def add_noise(self) -> None:
        """Make the sums of all parameters, as one vector, noisy; see the module's proof."""
        exact = torch.cat([p.summed_grad.flatten() for p in self.params])
        noisy = torch.from_numpy(
            self.randomness.lattice_gaussian(
                exact.cpu().numpy(), sigma=self.deviation, spacing=self.spacing
            )
        ).to(self.params[0])
        for p, part in zip(
            self.params, torch.split(noisy, [p.numel() for p in self.params]), strict=True
        ):
            p.grad = part.view_as(p)


def check_layers(module: nn.Module) -> None:
    """Whether every trained parameter sits in a layer whose per-example norm is proved.

    Raises:
        BoundaryError: one does not.
    """
    for name, layer in module.named_modules():
        if (
            any(p.requires_grad for p in layer.parameters(recurse=False))
            and type(layer) not in CLIPPED_LAYERS
        ):
            raise BoundaryError(
                f"layer {name} ({type(layer).__name__}) has no proved per-example norm"
            )


def no_gradient_sampler(*_: object) -> NoReturn:
    raise BoundaryError(
        "per-example gradients are never built: norms come from the layers themselves"
    )


# --- training ---


Weights = dict[str, Tensor]
Progress = Callable[[int, int], None]  # steps done, steps in all
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's state of a parameter


def _norms(layer: ClippedLayer, inputs: list[Tensor], gradient: Tensor) -> Norms:
    """Opacus' norm sampler: also keeps what `clipped_sum` needs, until the step is done."""
    received = layer.received(gradient)
    layer.seen = (inputs[0], received)
    if layer.terms <= MAX_TERMS:
        return layer.norms(inputs[0], received)
    a = inputs[0].double() if inputs[0].is_floating_point() else inputs[0]
    return {p: norm.float() for p, norm in layer.norms(a, received.double()).items()}


register_norm_sampler(CLIPPED_LAYERS)(_norms)
register_grad_sampler(CLIPPED_LAYERS)(no_gradient_sampler)


class PerExampleLoss(nn.Module):
    """What DP-SGD trains: `forward(codes [batch, columns], noise [batch, latent]) -> loss of each
    example [batch]`.

    All with leading dimensions where its layers are stacked: `[model, batch, ...]` (see `stacked`).

    The loss of an example must depend on that example and its own standard normals alone; its
    parameters must sit in layers of `privacy.dpsgd.layers`. Gradients of an example's loss at the
    output of a layer whose bias is not trained must be bounded (those of a cross-entropy are, by
    sqrt(2)): without the bias, inputs so small that their squares vanish would hide them.
    """

    latent: int  # standard normals that an example's loss takes


@dataclass(frozen=True)
class Training:
    """One DP-SGD run as a mechanism: settings, the module to train, where it keeps how far it came,
    on which device, and the groups that levels are read as, each whatever other rows hold.
    """

    settings: DpSgd
    module: PerExampleLoss
    progress: Progress
    checkpoints: Checkpoints | None
    device: str = "cpu"
    groups: LevelGroups | None = None

    @property
    def name(self) -> str:
        """Name of the settings."""
        return self.settings.name

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """Event of the settings."""
        return self.settings.event(rows_per_unit)

    def run(self, table: Table, randomness: Randomness) -> Weights:
        """Train and return the averaged weights.

        Checkpoints hold noisy weights only, which are released content (none on a secret sample);
        steps after the last one of a killed run were used by nobody, and are done again under the
        same charge.
        """
        rows = self.settings.rows_of(table, randomness)
        codes = self.groups.of(rows) if self.groups else rows
        trainer = _Trainer(self.settings, self.module.to(self.device), randomness, self.device)
        checkpoints = None if self.settings.sampled else self.checkpoints
        kept = checkpoints.last() if checkpoints else None
        first = trainer.load(kept) if kept is not None else 0
        with warnings.catch_warnings():
            # Levels are no real inputs, so no gradient flows into the lookups; the hooks fire all
            # the same.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            for step in range(first, self.settings.steps):
                trainer.step(codes, step)
                done = step + 1
                due = done % self.settings.checkpoint_every == 0 and done < self.settings.steps
                if checkpoints and due:
                    checkpoints.keep(done, trainer.state(done))
                self.progress(done, self.settings.steps)
        return trainer.averaged()

    def pack(self, value: Weights) -> Arrays:
        """Weights as arrays."""
        return {name: tensor.numpy() for name, tensor in value.items()}

    def unpack(self, arrays: Arrays) -> Weights:
        """Weights from arrays."""
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        check_tensors(
            weights, {n: p.shape for n, p in self.module.named_parameters() if p.requires_grad}
        )
        return weights


class Clipping:
    """Opacus wiring of a module: the sums of its clipped per-example gradients."""

    def __init__(self, settings: DpSgd, module: PerExampleLoss, device: str = "cpu") -> None:
        check_layers(module)
        keep_freed_memory()
        module.train()
        self.settings, self.device = settings, device
        self.latent = module.latent
        self.wrapped = GradSampleModuleFastGradientClipping(
            module, loss_reduction="sum", strict=False, max_grad_norm=settings.clip
        )
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.layers = [m for m in module.modules() if isinstance(m, ClippedLayer)]
        self.biases = [layer.bias for layer in self.layers if layer.bias.requires_grad]

    def clipped_sums(self, batch: Tensor, latents: Tensor, places: Tensor) -> Sums:
        """64-bit sums of clipped gradients of the examples `batch` `[batch, columns]` with
        `latents` `[batch, latent]`; nothing for no example.

        Each example goes to its own of `places` `[batch]`, which lie in chunks of `DpSgd.slots`.
        """
        slots, totals = self.settings.slots, dict[nn.Parameter, Tensor]()
        for chunk in range(int(places.max()) // slots + 1 if len(places) else 0):
            here = places // slots == chunk
            own = places[here] - chunk * slots
            codes, noise = (
                batch.new_zeros(slots, batch.shape[1]),
                latents.new_zeros(slots, latents.shape[1]),
            )
            there = torch.zeros(slots, dtype=torch.bool, device=batch.device)
            codes[own], noise[own], there[own] = batch[here], latents[here], True
            for p, part in self._sums_of_chunk(codes, noise, there).items():
                totals[p] = totals[p] + part if p in totals else part
        sums: Sums = {}
        for layer in self.layers if totals else ():
            sums |= layer.pulled_back({p: totals[p] for p in layer.parameters() if p in totals})
        return sums

    def _sums_of_chunk(self, codes: Tensor, noise: Tensor, there: Tensor) -> Sums:
        """Sums of clipped gradients over the slots that are `there` `[slots]`, before
        `pulled_back`.

        An example whose loss or norm is not finite counts as zero, after one pass over the whole
        chunk: running the rest again would draw new coins for them, and so let one example decide
        what becomes of others. What does not count has the
        weight zero, and adds exactly zero: numbers that are not finite are zeros first.
        """
        losses = self.wrapped(codes, noise)
        # Gradients of biases alone: the pass reaches every layer's output, and no weight gradient
        # is built.
        torch.autograd.grad(losses.sum(), self.biases)
        coefficient = self.wrapped.get_clipping_coef()  # makes the norms, too
        finite = torch.isfinite(losses.detach()) & torch.isfinite(
            self.wrapped.per_sample_gradient_norms
        )
        coefficient = coefficient.where(there & finite, 0.0)
        spoilt = None if bool(finite.all()) else ~finite
        sums: Sums = {}
        for layer in self.layers:
            a, g = (without(values, spoilt) for values in layer.take_seen())
            sums |= stable_sum(layer, a, g, coefficient, self.settings.block)
        return sums


class _Trainer(Clipping):
    """One run: batches, noise, steps and checkpoints."""

    def __init__(
        self, settings: DpSgd, module: PerExampleLoss, randomness: Randomness, device: str = "cpu"
    ) -> None:
        super().__init__(settings, module, device)
        self.randomness = randomness
        self.names = [n for n, p in module.named_parameters() if p.requires_grad]
        clamp_weights(self.params)
        dimension = sum(p.numel() for p in self.params)
        self.optimizer = LatticeOptimizer(
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
        clamp_weights(self.params)
        torch._foreach_lerp_(
            self.average,
            [p.detach() for p in self.params],
            1 - self.settings.average_decay_at(step),
        )

    def _clipped_gradient(self, batch: Tensor) -> None:
        """Put the sum of clipped per-example gradients into `p.grad`; each example of the batch has
        normals of its own.
        """
        self.optimizer.zero_grad()
        sums: Sums = {}
        if len(batch):
            latents = torch.from_numpy(self.randomness.latents(len(batch), self.latent)).to(
                self.device
            )
            places = torch.from_numpy(self.randomness.places(len(batch), self.settings.slots)).to(
                self.device
            )
            sums = self.clipped_sums(batch, latents, places)
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
            OutputError: it is none of this training. It is not passed over: its steps may have been
                seen.
        """
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        shapes = {
            f"{kind}/{n}": p.shape
            for n, p in zip(self.names, self.params, strict=True)
            for kind in ("weight", "average", *MOMENTS)
        }
        try:
            check_tensors(
                tensors,
                {**shapes, **{f"step/{n}": torch.Size() for n in self.names}, "step": torch.Size()},
            )
            done = int(tensors["step"])
            if done % self.settings.checkpoint_every or not 0 < done < self.settings.steps:
                raise ValueError("a step at which no checkpoint is written")
            if any(float(tensors[f"weight/{n}"].abs().max()) > MAX_WEIGHT for n in self.names):
                raise ValueError("weights that no step leaves")
        except ValueError:
            raise OutputError(
                "the checkpoint of the interrupted run is damaged, or of another training",
                hint="start a new release with --force; the budget of this run stays spent",
            ) from None
        with torch.no_grad():
            for n, p, a in zip(self.names, self.params, self.average, strict=True):
                p.copy_(tensors[f"weight/{n}"])
                a.copy_(tensors[f"average/{n}"])
                self.optimizer.original_optimizer.state[p] = {
                    "step": tensors[f"step/{n}"],
                    **{k: tensors[f"{k}/{n}"].to(self.device) for k in MOMENTS},
                }
        return done


# --- allocator ---


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep freed blocks. Where the C library is not glibc, nothing changes."""
    if not sys.platform.startswith("linux"):
        return
    try:
        setting = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    trim_threshold, mmap_threshold = -1, -3  # of glibc's malloc.h
    setting(mmap_threshold, 32 << 20)  # bytes: larger blocks go back when freed
    setting(trim_threshold, 256 << 20)  # and what is free above that much
