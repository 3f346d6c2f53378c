"""Biases that give a trained decoder the released margins. All of it is post-processing.

Noise in the decoder's weights moves the margins of its columns, and more so for later columns in
causal order. Given the columns before it, drawn by what is already calibrated, a column's margin
depends on its biases alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from synthdp.graph.margins import Probabilities
from synthdp.model.ancestral import FEW, column_samplers, levels_of
from synthdp.model.network import CausalVae

ROUNDS = 10
"""Rounds of proportional fitting of a column."""
MAX_SHIFT = 20.0
"""Largest change of a bias, up or down."""


@torch.no_grad()
def calibrated_bias(
    model: CausalVae, targets: Sequence[Probabilities], *, rows: int, generator: torch.Generator
) -> Tensor:
    """`decode_levels.bias` of `model`, `[columns, levels]`, that gives the margins `targets`.

    Column i has the margin `targets[i]` in `rows` drawn rows. Columns come in causal order; each
    round multiplies the odds of a level by its wanted over its present probability, which is
    iterative proportional fitting of one margin.
    """
    bias = model.decode_levels.bias.detach().clone()
    latent = model.latent
    z = torch.ones(rows, latent + 1)
    z[:, :latent] = torch.randn(rows, latent, generator=generator)
    codes = torch.zeros(len(targets), rows, dtype=torch.int32)
    for sampler in column_samplers(model):
        logits = sampler.logits(codes, z)
        if sampler.levels <= FEW:  # such a row is too short for vector instructions
            probabilities = logits.T.contiguous().softmax(0)
        else:
            probabilities = logits.softmax(1)[:, : sampler.levels].T.contiguous()
        wanted = torch.from_numpy(targets[sampler.column]).float()
        factor = torch.ones(sampler.levels)
        for _ in range(ROUNDS):
            present = factor * (probabilities @ (factor @ probabilities).reciprocal_()) / rows
            factor *= wanted / present.clamp(min=1e-12)
        shift = factor.log().clamp(-MAX_SHIFT, MAX_SHIFT)
        bias[sampler.column, : sampler.levels] += shift
        logits[:, : sampler.levels] += shift
        drawn = levels_of(logits, torch.rand(rows, 1, generator=generator))
        codes[sampler.column] = drawn.clamp_(max=sampler.levels - 1)
    return bias
