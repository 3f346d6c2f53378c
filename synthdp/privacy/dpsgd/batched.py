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

A layer here holds the weights of K models, `[model, ...]`, and takes inputs `[model, batch, ...]`.
Norms and most sums are the methods of `layers` themselves, called with a dimension more, so that
what is proved there holds for each model. Only what a batched product cannot do, the lookups, is
written again. No number of one model ever meets a number of another.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from synthdp.data.encoding import Codes
from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.layers import (
    ClippedLayer,
    MaskedLinear,
    NodeLinear,
    Norms,
    ParentLookup,
    Sums,
)
from synthdp.privacy.dpsgd.training import (
    PerExampleLoss,
    Progress,
    Training,
    Weights,
    check_layers,
    clamp_weights,
    keep_freed_memory,
)
from synthdp.privacy.noise import Randomness
from synthdp.privacy.private import _KERNEL_KEY, Released
from synthdp.privacy.session import REHEARSAL, Rehearsal
from synthdp.privacy.table import Table

Places = npt.NDArray[np.intp]

PAD = 4  # rows by which batches grow


def train_stacked(
    settings: DpSgd,
    modules: Sequence[PerExampleLoss],
    tables: Sequence[Table],
    randomness: Sequence[Randomness],
    *,
    progress: Progress = lambda done, total: None,
) -> list[Weights]:
    """Train `modules` side by side, each on its own table and by its own coins; the averaged
    weights of each. `progress` hears of the steps.

    Raises:
        BoundaryError: modules of different shapes, or a layer without a proved norm.
    """
    if not len(modules) == len(tables) == len(randomness) > 0:
        raise BoundaryError("each model needs its own module, table and randomness")
    rows = [settings.rows_of(t, draws) for t, draws in zip(tables, randomness, strict=True)]
    trainer = _StackedTrainer(settings, modules, rows, randomness)
    for step in range(settings.steps):
        trainer.step(step)
        progress(step + 1, settings.steps)
    return trainer.averaged()


class _StackedTrainer:
    """One run of all models."""

    def __init__(
        self,
        settings: DpSgd,
        modules: Sequence[PerExampleLoss],
        rows: Sequence[Codes],
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
        each = zip(self.randomness, self.lengths, strict=True)
        batches = [draws.poisson_batch(n, rate=self.settings.rate) for draws, n in each]
        if any(len(batch) for batch in batches):
            sums = self._clipped_sums(batches)
        else:
            sums = torch.zeros(len(batches), sum(self.sizes))
        for p, part in zip(self.params, torch.split(self._noisy(sums), self.sizes, 1), strict=True):
            p.grad = part.reshape(p.shape).contiguous()  # the fused optimizer takes no strides
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate_at(step)
        self.optimizer.step()
        clamp_weights(self.params)
        weight = 1 - self.settings.average_decay_at(step)
        torch._foreach_lerp_(self.average, [p.detach() for p in self.params], weight)

    def averaged(self) -> list[Weights]:
        """The averaged weights of each model by name (the last ones where averaging is off)."""
        final = self.average if self.settings.ema > 0 else [p.detach() for p in self.params]
        return [
            {n: p[k].clone() for n, p in zip(self.names, final, strict=True)}
            for k in range(len(self.randomness))
        ]

    def _padded(self, batches: Sequence[Places]) -> tuple[Tensor, Tensor, Tensor]:
        """Levels `[model, batch, columns]`, latents `[model, batch, latent]`, and which examples
        are there `[model, batch]`.
        """
        sizes = np.array([len(batch) for batch in batches])
        width = -(-int(sizes.max()) // PAD) * PAD
        there = np.arange(width) < sizes[:, None]
        codes = np.zeros((*there.shape, self.codes.shape[1]), dtype=np.int64)
        rows = [batch + begin for batch, begin in zip(batches, self.begins, strict=False)]
        codes[there] = self.codes[np.concatenate(rows)]
        latents = np.zeros((*there.shape, self.latent), dtype=np.float32)
        each = zip(self.randomness, sizes, strict=True)
        drawn = [draws.latents(int(n), self.latent) for draws, n in each if n]
        latents[there] = np.concatenate(drawn)
        return torch.from_numpy(codes), torch.from_numpy(latents), torch.from_numpy(there)

    def _clipped_sums(self, batches: Sequence[Places]) -> Tensor:
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
            # 1e-6: in a clipping coefficient's denominator, as Opacus has it
            coefficient = (self.settings.clip / (norm + 1e-6)).clamp(max=1.0).where(counts, 0.0)
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


# --- layers ---


# Products and losses run at full speed on widths that are multiples of this, and at a third of it
# on a width of 4.
VECTOR = 16


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
            # Gradients are wanted at outputs, never at weights.
            out = out if a.requires_grad else out.requires_grad_()
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
        return self.whole.received(g)

    def norms(self, a: Tensor, g: Tensor) -> Norms:
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
        weight, bias = self.whole.weight.detach(), self.whole.bias.detach()
        return torch.baddbmm(bias.unsqueeze(1), _widened(a), _widened(weight * self.whole.mask).mT)


class StackedNodes(StackedLayer):
    """`NodeLinear` of many models."""

    whole: NodeLinear

    def output(self, a: Tensor) -> Tensor:
        """Logits, shape `[model, batch, node, levels]`, with as many more levels that do not exist
        as make their number a multiple of `VECTOR`.
        """
        table = _widened(self.whole.table().detach()).flatten(0, 1)
        bias = _widened(self.whole.bias.detach() + self.whole.padding, value=-torch.inf)
        inputs = a.transpose(1, 2)
        logits = torch.baddbmm(bias.flatten(0, 1).unsqueeze(1), inputs.flatten(0, 1), table)
        return logits.view(*inputs.shape[:3], -1).transpose(1, 2)

    def received(self, g: Tensor) -> Tensor:
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
        keys, examples = self._rows(a).flatten(), torch.arange(a.shape[0] * a.shape[1])
        senders = (examples.unsqueeze(1) * own.nodes + own.owner).flatten()
        count = torch.bincount(keys, minlength=self.models * own.rows)
        # 1 << 16: keys below this are sorted by counting, in a fraction of the time
        short = keys.numpy().astype(np.uint16) if len(count) <= (1 << 16) else keys.numpy()
        ordered = senders[torch.from_numpy(np.argsort(short, kind="stable"))]
        begin = count.cumsum(0) - count
        summed = F.embedding_bag(ordered, weighted.flatten(0, 2), begin, mode="sum")
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
        weight, basis = self.whole.weight.detach(), self.whole.basis
        return (weight if basis is None else _mapped(basis, weight)).flatten(0, 1)


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
    first, whole = modules[0], copy.deepcopy(modules[0])
    shapes = [{n: t.shape for n, t in (*m.named_parameters(), *m.named_buffers())} for m in modules]
    if any(own != shapes[0] for own in shapes):
        raise BoundaryError("only models of one shape are trained side by side")
    for name, layer in first.named_children():
        own = [m.get_submodule(name) for m in modules]
        if not isinstance(layer, ClippedLayer) or type(layer) not in TWINS:
            raise BoundaryError(f"layer {name} ({type(layer).__name__}) cannot be stacked")
        stacked = TWINS[type(layer)]([m for m in own if isinstance(m, ClippedLayer)])
        whole.register_module(name, stacked)
    for name, buffer in first.named_buffers(recurse=False):
        values = [m.get_buffer(name) for m in modules]
        if not all(torch.equal(buffer, value) for value in values):
            whole.register_buffer(name, torch.stack(values), persistent=False)
    return whole


def _widened(values: Tensor, value: float = 0.0) -> Tensor:
    """`values` with a last dimension that is a multiple of `VECTOR`."""
    return F.pad(values, (0, -values.shape[-1] % VECTOR), value=value)


def _mapped(basis: Tensor, values: Tensor) -> Tensor:
    """The sparse `basis` `[m, n]` times each model's `values` `[model, n, width]`, in one
    product.
    """
    models, _, width = values.shape
    product: Tensor = torch.sparse.mm(basis, values.transpose(0, 1).flatten(1))
    return product.view(-1, models, width).transpose(0, 1).contiguous()


def train_side_by_side(
    rehearsals: Sequence[Rehearsal], trainings: Sequence[Training], *, purpose: str
) -> list[Released[Weights]]:
    """What `rehearsal.release(training, purpose=purpose)` gives for each of them, for a fraction of
    the time, on the CPU. Each is checked against its own plan.

    Raises:
        BudgetError: a training is not what its rehearsal's plan says.
        BoundaryError: the trainings have different settings, or modules of different shapes.
    """
    settings = trainings[0].settings
    if any(training.settings != settings for training in trainings):
        raise BoundaryError("only trainings of one setting go side by side")
    admitted = [
        r.admit(t, purpose=purpose, key=_KERNEL_KEY)
        for r, t in zip(rehearsals, trainings, strict=True)
    ]
    trained = train_stacked(
        settings,
        [t.module for t in trainings],
        [table for table, _ in admitted],
        [streams for _, streams in admitted],
        progress=trainings[0].progress,
    )
    return [Released(weights, frozenset({REHEARSAL}), key=_KERNEL_KEY) for weights in trained]
