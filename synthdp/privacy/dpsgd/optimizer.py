"""What a step of DP-SGD takes of Opacus' optimizer, and what holds the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import torch
from opacus.optimizers import DPOptimizerFastGradientClipping
from torch import Tensor, nn

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd.layers import CLIPPED_LAYERS
from synthdp.privacy.dpsgd.settings import MAX_WEIGHT
from synthdp.privacy.noise import Randomness


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
