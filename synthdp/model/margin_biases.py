"""Biases that give a trained decoder the released margins. All of it is post-processing.

Noise in the decoder's weights moves the margins of its columns, and more so for later columns in
causal order. Given the columns before it, drawn by what is already calibrated, a column's margin
depends on its biases alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthdp.graph.margins import Probabilities
from synthdp.model.ancestral import (
    Floats,
    Weights,
    column_samplers,
    latents,
    levels_of,
    log_softmax,
)
from synthdp.model.architecture import DECODE_LEVELS, Architecture

ROUNDS = 10
"""Rounds of proportional fitting of a column."""
MAX_SHIFT = 20.0
"""Largest change of a bias, up or down."""


def calibrated_bias(
    architecture: Architecture,
    weights: Weights,
    targets: Sequence[Probabilities],
    *,
    rows: int,
    rng: np.random.Generator,
) -> Floats:
    """`decode_levels.bias`, `[columns, levels]`, that gives the margins `targets`.

    Column i has the margin `targets[i]` in `rows` drawn rows. Columns come in causal order; each
    round multiplies the odds of a level by its wanted over its present probability, which is
    iterative proportional fitting of one margin.
    """
    bias = weights[f"{DECODE_LEVELS}.bias"].copy()
    z = latents(len(architecture.latent_of), rows, rng)
    codes = np.zeros((len(targets), rows), np.int32)
    for sampler in column_samplers(architecture, weights):
        logits = sampler.logits(codes, z)
        shift = _shift(np.exp(log_softmax(logits)), targets[sampler.column])
        bias[sampler.column, : sampler.levels] += shift
        logits += shift[:, None]
        codes[sampler.column] = levels_of(logits, rng.random(rows, dtype=np.float32))
    return bias


def _shift(probabilities: Floats, wanted: Probabilities) -> Floats:
    """What to add to the biases of a column, from its `probabilities` `[levels, rows]`."""
    factor, target = np.ones(len(probabilities), np.float32), wanted.astype(np.float32)
    for _ in range(ROUNDS):
        present = factor * (probabilities @ (1 / (factor @ probabilities)))
        present /= probabilities.shape[1]
        factor *= target / np.maximum(present, np.float32(1e-12))
    with np.errstate(divide="ignore"):
        shift: Floats = np.log(factor).clip(-MAX_SHIFT, MAX_SHIFT)
    return shift
