"""DP-SGD with one thing wrong in each: name -> (how to build it for a domain, what the replay must
say).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np
import torch
from torch import Tensor

from synthdp.audit.mechanisms.replay import Kept
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import Training, _Trainer
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table
from tests.audit.mechanism_examples import SmallModel
from tests.builders import dp_sgd

SETTINGS = dp_sgd()


@dataclass(frozen=True)
class Planted(Training):
    """A training with holes where bugs go: its trainer, its rows, its settings in the light of
    them, and when it stops.
    """

    trainer: type[_Trainer] = _Trainer
    seen: Callable[[DpSgd, Codes], DpSgd] = lambda settings, codes: settings
    stops: Callable[[_Trainer, Codes], bool] = lambda trainer, codes: False
    tick: Callable[[int, Codes], int] = lambda done, codes: done
    rows: Callable[[DpSgd, Table, Randomness], Codes] = DpSgd.rows_of

    def run(self, table: Table, randomness: Randomness) -> Any:
        codes = self.rows(self.settings, table, randomness)
        settings = self.seen(self.settings, codes)
        trainer = self.trainer(settings, self.module, randomness)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            for step in range(settings.steps):
                if self.stops(trainer, codes):
                    break
                trainer.step(codes, step)
                if self.checkpoints and step == 0:
                    self.checkpoints.keep(1, trainer.state(1))
                self.progress(self.tick(step + 1, codes), settings.steps)
        return trainer.averaged()


def training(
    trainer: type[_Trainer] = _Trainer,
    *,
    module: Callable[[Domain], Any] = SmallModel,
    checkpoints: Kept | None = None,
    settings: DpSgd = SETTINGS,
    **holes: Any,
) -> Callable[[Domain], Planted]:
    return lambda domain: Planted(
        settings, module(domain), lambda done, total: None, checkpoints, trainer=trainer, **holes
    )


# --- noise ---


def less_noise(factor: float) -> type[_Trainer]:
    class Less(_Trainer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.optimizer.deviation *= factor

    return Less


class Tampered(_Trainer):
    """`tamper` changes the clipped sums before the noise."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        super()._clipped_gradient(batch)
        self.tamper(batch)

    def tamper(self, batch: Tensor) -> None: ...


class SpacingOfGradients(Tampered):
    def tamper(self, batch: Tensor) -> None:
        self.optimizer.spacing = 1e-6 * (1 + float(self.params[0].grad.abs().max()))


class NoiseOfGradients(Tampered):
    def tamper(self, batch: Tensor) -> None:
        self.optimizer.deviation = self.settings.noise * (1 + float(self.params[0].grad.norm()))


class FirstLayerBare(_Trainer):
    """The first layer's gradient gets no noise."""

    def step(self, codes: Codes, step: int) -> None:
        noisy = self.optimizer.add_noise

        def add_noise() -> None:
            noisy()
            self.params[0].grad = self.params[0].summed_grad.view_as(self.params[0]).float()

        self.optimizer.add_noise = add_noise  # type: ignore[method-assign]
        super().step(codes, step)


# --- clipping ---


class OtherCoefficient(_Trainer):
    """`coefficient` of each example, given the right ones."""

    def coefficient(self, right: Tensor) -> Tensor: ...

    def _clipped_gradient(self, batch: Tensor) -> None:
        right = type(self.wrapped).get_clipping_coef
        self.wrapped.get_clipping_coef = lambda: self.coefficient(right(self.wrapped))
        super()._clipped_gradient(batch)


class Unclipped(OtherCoefficient):
    def coefficient(self, right: Tensor) -> Tensor:
        return torch.ones_like(right)


class NormWithoutBias(OtherCoefficient):
    def coefficient(self, right: Tensor) -> Tensor:
        weights = [
            p._norm_sample
            for n, p in zip(self.names, self.params, strict=True)
            if not n.endswith("bias")
        ]
        return (self.settings.clip / torch.stack(weights).norm(dim=0)).clamp(max=1.0)


class LayersApart(_Trainer):
    """Each layer clipped to the whole norm."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        self.optimizer.zero_grad()
        sums: dict[Any, Tensor] = {}
        if len(batch):
            losses = self.wrapped(
                batch, torch.from_numpy(self.randomness.latents(len(batch), self.latent))
            )
            torch.autograd.grad(losses.sum(), self.biases)
            for layer in self.layers:
                a, g = layer.take_seen()
                norm = torch.stack(list(layer.norms(a, g).values())).norm(dim=0)
                sums |= layer.clipped_sum(a, g, (self.settings.clip / norm).clamp(max=1.0))
        for p in self.params:
            p.grad = sums.get(p, torch.zeros_like(p))


class SumClipped(Unclipped):
    """The sum is clipped instead of its parts."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        super()._clipped_gradient(batch)
        whole = torch.cat([p.grad.flatten() for p in self.params]).norm()
        for p in self.params:
            p.grad = p.grad * min(1.0, self.settings.clip / max(float(whole), 1e-9))


class NotFinitePasses(_Trainer):
    """No example is left out, whatever its norm."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        self.optimizer.zero_grad()
        sums: dict[Any, Tensor] = {}
        if len(batch):
            losses = self.wrapped(
                batch, torch.from_numpy(self.randomness.latents(len(batch), self.latent))
            )
            torch.autograd.grad(losses.sum(), self.biases)
            coefficient = self.wrapped.get_clipping_coef()
            for layer in self.layers:
                sums |= layer.clipped_sum(*layer.take_seen(), coefficient)
        for p in self.params:
            p.grad = sums.get(p, torch.zeros_like(p))


def steep(domain: Domain) -> SmallModel:
    """Gradients of rows have very different norms."""
    return SmallModel(domain, scale=50.0)


def poisoned(domain: Domain) -> SmallModel:
    """Rows at the last level of the first column have no finite loss."""
    module = SmallModel(domain)
    with torch.no_grad():
        module.lookup.weight[domain.sizes[0] - 1] = torch.nan
    return module


class BatchMixes(SmallModel):
    """Losses are standardised in their batch, so that an example's depends on the others."""

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        losses = super().forward(codes, noise)
        return losses * (losses - losses.mean()).detach()


class SumOfLastStep(Tampered):
    """Momentum before the noise."""

    last: Any = None

    def tamper(self, batch: Tensor) -> None:
        now = [p.grad.clone() for p in self.params]
        for p, before in zip(self.params, self.last or now, strict=True):
            p.grad = p.grad + before
        self.last = now


class WeighedByTable(OtherCoefficient):
    """Rows weigh by how rare they are in the whole table."""

    def coefficient(self, right: Tensor) -> Tensor:
        return right * self.share

    def step(self, codes: Codes, step: int) -> None:
        self.share = float((codes[:, 0] == 0).mean()) if len(codes) else 0.0
        super().step(codes, step)


class SameGradientTwice(Tampered):
    def tamper(self, batch: Tensor) -> None:
        for p in self.params:
            p.grad = 2 * p.grad


# --- batches and coins ---


class OtherBatches(_Trainer):
    """Batches drawn by `draw(randomness, rows, rate, step)`."""

    def draw(self, rows: int, step: int) -> Any: ...

    def step(self, codes: Codes, step: int) -> None:
        batch, trainer = self.draw(len(codes), step), self

        class Drawn:
            def poisson_batch(self, rows: int, *, rate: float) -> Any:
                return batch

            def __getattr__(self, name: str) -> Any:
                return getattr(trainer.own, name)

        self.own = self.randomness
        self.randomness = Drawn()  # type: ignore[assignment]
        try:
            super().step(codes, step)
        finally:
            self.randomness = self.own


class Shuffled(OtherBatches):
    """The first eight of a permutation, charged as if they were Poisson batches."""

    def draw(self, rows: int, step: int) -> Any:
        return np.random.default_rng(step).permutation(rows)[:8]


class WholeTable(OtherBatches):
    def draw(self, rows: int, step: int) -> Any:
        return np.arange(rows)


class OneCoinForTwo(OtherBatches):
    def draw(self, rows: int, step: int) -> Any:
        pairs = self.randomness.poisson_batch((rows + 1) // 2, rate=self.settings.rate)
        both = np.concatenate([2 * pairs, 2 * pairs + 1])
        return np.sort(both[both < rows])


class FirstBatchAgain(OtherBatches):
    batch: Any = None

    def draw(self, rows: int, step: int) -> Any:
        if self.batch is None:
            self.batch = self.randomness.poisson_batch(rows, rate=self.settings.rate)
        return self.batch


class CutToSize(_Trainer):
    """A batch that grew too large loses its last rows."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        latents = self.randomness.latents
        kept = batch[:6]

        class Cut:
            def latents(self, rows: int, width: int) -> Any:
                return latents(len(batch), width)[:6]

            def places(self, rows: int, slots: int) -> Any:
                return np.arange(rows)

        own, self.randomness = self.randomness, Cut()  # type: ignore[assignment]
        super()._clipped_gradient(kept)
        self.randomness = own


class TwoRates(OtherBatches):
    """Rows are drawn at a higher rate than charged."""

    def draw(self, rows: int, step: int) -> Any:
        return self.randomness.poisson_batch(rows, rate=self.settings.rate * 1.5)


# --- secret samples ---

SAMPLED = replace(SETTINGS, sample=0.5)


def coin_for_each_row(settings: DpSgd, table: Table, randomness: Randomness) -> Codes:
    codes = table.fit_codes
    return codes[randomness.secret_sample(len(codes), rate=settings.sample)]


def rare_rows_too(settings: DpSgd, table: Table, randomness: Randomness) -> Codes:
    """Rows of the last level of the first column are always in the sample."""
    codes = table.fit_codes
    rare = codes[codes[:, 0] == codes[:, 0].max(initial=0)]
    return np.concatenate([settings.rows_of(table, randomness), rare])


class SampleOfEachStep(_Trainer):
    """Each step draws a sample of its own, charged as one for all steps."""

    def step(self, codes: Codes, step: int) -> None:
        if step:
            codes = codes[self.randomness.secret_sample(len(codes), rate=0.5)]
        super().step(codes, step)


# --- latents ---


class SharedLatents(_Trainer):
    """One draw for all examples."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        own = self.randomness

        class Shared:
            def latents(self, rows: int, width: int) -> Any:
                return np.repeat(own.latents(1, width), rows, axis=0)

            def places(self, rows: int, slots: int) -> Any:
                return own.places(rows, slots)

        self.randomness = Shared()  # type: ignore[assignment]
        super()._clipped_gradient(batch)
        self.randomness = own


class SecondPass(_Trainer):
    """Where an example is not finite, the others go through the model once more with new
    latents.
    """

    def _clipped_gradient(self, batch: Tensor) -> None:
        if len(batch):
            with torch.no_grad():
                losses = self.wrapped._module(
                    batch, torch.from_numpy(self.randomness.latents(len(batch), self.latent))
                )
            if not losses.isfinite().all():
                self.randomness.latents(len(batch), self.latent)
        super()._clipped_gradient(batch)


# --- after the noise ---


class RateOfRows(_Trainer):
    """The learning rate falls with the number of rows."""

    def step(self, codes: Codes, step: int) -> None:
        self.settings = replace(self.settings, learning_rate=0.1 / (1 + len(codes)))
        super().step(codes, step)


class MeanOfBatch(_Trainer):
    """Divides by the size of the batch instead of the expected one."""

    def _clipped_gradient(self, batch: Tensor) -> None:
        super()._clipped_gradient(batch)
        self.optimizer.expected_batch_size = max(1, len(batch))


class DecayOfRows(_Trainer):
    """Weight decay by the number of rows."""

    def step(self, codes: Codes, step: int) -> None:
        self.optimizer.param_groups[0]["weight_decay"] = 1 / (1 + len(codes))
        super().step(codes, step)


class CheckpointOfSums(Tampered):
    """The checkpoint holds the sums before the noise."""

    def tamper(self, batch: Tensor) -> None:
        self.sums = [p.grad.clone() for p in self.params]

    def state(self, done: int) -> Arrays:
        return {str(i): s.numpy() for i, s in enumerate(self.sums)}


def with_event(event: Callable[[DpSgd, int], Any], **changes: Any) -> Callable[[Domain], Any]:
    @dataclass(frozen=True)
    class Other(Training):
        def event(self, rows_per_unit: int) -> Any:
            return event(self.settings, rows_per_unit)

    return lambda domain: Other(
        replace(SETTINGS, **changes), SmallModel(domain), lambda done, total: None, None
    )


def gaussian_of_all(settings: DpSgd, rows: int) -> Any:
    """Steps on whole batches, as if every one were a Gaussian on all rows with the noise of its
    own.
    """
    return dp_accounting.SelfComposedDpEvent(
        dp_accounting.GaussianDpEvent(settings.noise_multiplier / rows), settings.steps
    )


Bug = tuple[Callable[[Domain], Any], str]

BUGS: dict[str, Bug] = {
    "half the noise": (training(less_noise(0.5)), "moved"),
    "99% of the noise": (training(less_noise(0.99)), "moved"),
    "no clipping": (training(Unclipped), "moved"),
    "norm without bias": (training(NormWithoutBias), "moved"),
    "layers clipped apart": (training(LayersApart), "moved"),
    "clipping after the sum": (training(SumClipped, module=steep), "moved"),
    "not finite passes clipping": (training(NotFinitePasses, module=poisoned), "not finite"),
    "examples mixed in a batch": (training(module=BatchMixes), "moved"),
    "momentum before the noise": (training(SumOfLastStep), "moved"),
    "weights of the whole table": (training(WeighedByTable), "moved"),
    "gradients counted twice": (training(SameGradientTwice), "moved"),
    "spacing of the gradients": (training(SpacingOfGradients), "spacing"),
    "noise of the gradients": (training(NoiseOfGradients), "sigma"),
    "a layer without noise": (training(FirstLayerBare), "output"),
    "n in the learning rate": (training(RateOfRows), "output"),
    "mean over the actual batch": (training(MeanOfBatch), "output"),
    "n in the weight decay": (training(DecayOfRows), "output"),
    "n in the normaliser": (
        training(seen=lambda s, codes: replace(s, expected_batch=s.rate * (1 + len(codes)))),
        "output",
    ),
    "n in the number of steps": (
        training(seen=lambda s, codes: replace(s, steps=1 + len(codes) // 8)),
        "calls",
    ),
    "n in the rate": (
        training(seen=lambda s, codes: replace(s, rate=min(1.0, 8 / (1 + len(codes))))),
        "rate",
    ),
    "early stopping": (
        training(stops=lambda trainer, codes: len(codes) > 0 and codes[:, 0].mean() > 1.2),
        "calls",
    ),
    "fixed-size shuffled batches": (training(Shuffled), "charged"),
    "the whole table, charged as sampled": (training(WholeTable), "charged"),
    "one coin for two rows": (training(OneCoinForTwo), "coins"),
    "the first batch again": (training(FirstBatchAgain), "charged"),
    "batches cut to size": (training(CutToSize), "moved"),
    "a higher rate than charged": (training(TwoRates), "charged"),
    "one latent for all": (training(SharedLatents), "latents"),
    "a second pass with new latents": (training(SecondPass, module=poisoned), "latents"),
    "ticks by the rows": (training(tick=lambda done, codes: done + len(codes)), "progress"),
    "sums in the checkpoint": (training(CheckpointOfSums, checkpoints=Kept()), "files"),
    "fewer steps charged": (
        with_event(lambda s, rows: replace(s, steps=s.steps - 1).event(rows)),
        "charged",
    ),
    "a lower rate charged": (
        with_event(lambda s, rows: replace(s, rate=s.rate / 2).event(rows)),
        "charged",
    ),
    "more noise charged": (
        with_event(lambda s, rows: replace(s, noise_multiplier=2 * s.noise_multiplier).event(rows)),
        "moved",
    ),
    "charged as if not sampled": (with_event(gaussian_of_all), "charged"),
    "a secret sample by a coin for each row": (
        training(settings=SAMPLED, rows=coin_for_each_row),
        "coins",
    ),
    "a secret sample and all rare rows": (training(settings=SAMPLED, rows=rare_rows_too), "coins"),
    "all rows, charged as a secret sample": (
        training(settings=SAMPLED, rows=lambda settings, table, randomness: table.fit_codes),
        "charged",
    ),
    "a secret sample of each step": (training(SampleOfEachStep, settings=SAMPLED), "charged"),
    "a larger secret sample than charged": (
        with_event(lambda s, rows: replace(s, sample=0.25).event(rows), sample=0.5),
        "charged",
    ),
    "a secret sample that is charged to nobody": (
        with_event(lambda s, rows: replace(s, sample=1.0).event(rows), sample=0.5),
        "charged",
    ),
    "size of a secret sample in the learning rate": (
        training(RateOfRows, settings=SAMPLED),
        "output",
    ),
    "size of a secret sample in the ticks": (
        training(settings=SAMPLED, tick=lambda done, codes: done + len(codes)),
        "progress",
    ),
    "event that forgets the unit's rows": (with_event(lambda s, rows: s.event(1)), "moved"),
}
