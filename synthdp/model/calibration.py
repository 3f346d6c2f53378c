"""Biases that make a trained decoder's own margins the released ones. All of it is post-processing.

Noise in what the decoder learned moves the margins of its columns, and more so down the graph.
Given the columns before it, drawn by what is already calibrated, a column's margin depends on its
biases alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from synthdp.model.ancestral import FEW, column_samplers, levels_of
from synthdp.model.network import CausalVae
from synthdp.model.raking import Probabilities

ROUNDS = 10
MAX_SHIFT = 20.0  # of a bias, either way


@torch.no_grad()
def calibrated_bias(
    model: CausalVae, targets: Sequence[Probabilities], *, rows: int, generator: torch.Generator
) -> Tensor:
    """`decode_levels.bias` of `model`, shape `[columns, levels]`, with which column i has the
    margin `targets[i]` in `rows` drawn rows.

    Columns in causal order; each round multiplies the odds of a level by its wanted over its
    present probability, which is iterative proportional fitting of one margin.
    """
    bias = model.decode_levels.bias.detach().clone()
    latent = model.latent
    z = torch.ones(rows, latent + 1)
    z[:, :latent] = torch.randn(rows, latent, generator=generator)
    codes = torch.zeros(len(targets), rows, dtype=torch.int32)
    for sampler in column_samplers(model):
        logits = sampler.logits(codes, z)
        # A row of few levels is too short for vectors: there, level by level.
        probabilities = (
            logits.T.contiguous().softmax(0)
            if sampler.levels <= FEW
            else logits.softmax(1)[:, : sampler.levels].T.contiguous()
        )
        wanted = torch.from_numpy(targets[sampler.column]).float()
        factor = torch.ones(sampler.levels)
        for _ in range(ROUNDS):
            present = factor * (probabilities @ (factor @ probabilities).reciprocal_()) / rows
            factor *= wanted / present.clamp(min=1e-12)
        shift = factor.log().clamp(-MAX_SHIFT, MAX_SHIFT)
        bias[sampler.column, : sampler.levels] += shift
        logits[:, : sampler.levels] += shift
        codes[sampler.column] = levels_of(logits, torch.rand(rows, 1, generator=generator)).clamp_(
            max=sampler.levels - 1
        )
    return bias
