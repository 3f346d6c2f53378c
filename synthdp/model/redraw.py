"""Chances of a column's levels given all other columns of a row, by the model: what a target is drawn again with, evenly over rows that are alike.

Drawing one column of a row again from them leaves the model's law as it is (a step of Gibbs sampling). z, which a row does not tell, is
summed out over `POINTS` points of its prior, each weighted by what it says of the row's other columns.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.stats import norm, qmc
from torch import Tensor

from synthdp.data.encoding import Codes
from synthdp.model.ancestral import CHUNK_ROWS, ColumnSampler, column_samplers
from synthdp.model.causal_vae import CausalVae
from synthdp.model.marginals import Probabilities

POINTS = 32  # of z


@torch.no_grad()
def chances_given_others(model: CausalVae, codes: Codes, column: int, *, rng: np.random.Generator) -> Probabilities:
    """Chances `[rows, levels]` of the levels of the column at position `column` in each row of levels `[rows, columns]`."""
    samplers = {s.column: s for s in column_samplers(model)}
    latent = len(samplers[column].latent) - 1
    sobol = qmc.Sobol(latent, seed=int(rng.integers(2**32))).random(POINTS)
    z = torch.from_numpy(np.append(norm.ppf(np.clip(sobol, 1e-6, 1 - 1e-6)), np.ones((POINTS, 1)), 1)).float()
    chunks = torch.from_numpy(codes.T.astype(np.int32)).split(CHUNK_ROWS, 1)
    return torch.cat([_chances(samplers, chunk.contiguous(), column, z) for chunk in chunks]).double().numpy()


def _chances(samplers: Mapping[int, ColumnSampler], codes: Tensor, column: int, z: Tensor) -> Tensor:
    own = samplers[column]
    log_chances = _log_probabilities(own, codes, z)[..., : own.levels]  # [points, rows, levels]
    for other in samplers.values():
        if column in other.parents:
            log_chances += torch.stack([_said(other, _with(codes, column, level), z) for level in range(own.levels)], -1)
        elif other is not own and bool(other.latent[:-1].any()):
            log_chances += _said(other, codes, z).unsqueeze(-1)
    return log_chances.logsumexp(0).softmax(-1)


def _said(sampler: ColumnSampler, codes: Tensor, z: Tensor) -> Tensor:
    """Log probabilities of a column's levels in `codes` at each point of z, `[points, rows]`."""
    level = codes[sampler.column].long().expand(len(z), -1).unsqueeze(-1)
    return _log_probabilities(sampler, codes, z).gather(-1, level).squeeze(-1)


def _log_probabilities(sampler: ColumnSampler, codes: Tensor, z: Tensor) -> Tensor:
    """Log probabilities of all levels of a column at each point of z, `[points, rows, levels]`."""
    hidden = (z @ sampler.latent).unsqueeze(1)
    hidden = hidden.expand(-1, codes.shape[1], -1) if sampler.table is None else hidden + sampler.looked_up(codes)
    return (torch.tanh(hidden) @ sampler.weight + sampler.bias).log_softmax(-1)


def _with(codes: Tensor, column: int, level: int) -> Tensor:
    changed = codes.clone()
    changed[column] = level
    return changed
