"""A small model whose training the replay repeats in place of a release's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from synthdp.data.domain import Domain
from synthdp.data.features import level_features
from synthdp.privacy.dpsgd.layers import MaskedLinear, NodeLinear, ParentLookup
from synthdp.privacy.dpsgd.training import PerExampleLoss

STRETCH = 10.0  # of starting weights


class SmallModel(PerExampleLoss):
    """A model with every kind of layer that can be clipped.

    Each column depends on the one before it and on two latents.
    """

    latent = 2

    def __init__(self, domain: Domain, *, scale: float = 1.0, ordered: bool = False) -> None:
        """`scale` multiplies starting weights: large ones clip every example, tiny ones none.

        `ordered` gives levels their features, as in a release.
        """
        super().__init__()
        columns, width = len(domain), 3
        features = None
        if ordered:
            features = [torch.from_numpy(level_features(c)).float() for c in domain.columns]
        parents = [(max(0, i - 1),) for i in range(columns)]
        self.lookup = ParentLookup(parents, domain.sizes, width, features)
        self.latents = MaskedLinear(torch.ones(columns * width, self.latent))
        self.levels = NodeLinear(width, domain.sizes, features)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(scale * torch.randn(p.shape, generator=generator))

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Negative log likelihood of each row, in nats, shape `[batch]`."""
        hidden = self.lookup(codes) + self.latents(noise).view(len(codes), -1, self.lookup.width)
        logits = self.levels(torch.tanh(hidden))
        losses = F.cross_entropy(logits.flatten(0, 1), codes.flatten(), reduction="none")
        return losses.view(len(codes), -1).sum(1)


def stretched(module: PerExampleLoss) -> PerExampleLoss:
    """The module with weights so large that losses differ from example to example.

    Where losses hardly differ, a dependence of one example's loss on another would not be seen.
    """
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(STRETCH)
    return module
