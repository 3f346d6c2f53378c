"""Conditional probabilities of a column's levels given all other columns of a row, by the model.

A target is drawn again from them, stratified over similar rows. A draw of one column of a row from
them leaves the model's law as it is (a step of Gibbs sampling). z, which a row does not contain, is
summed out over `POINTS` points of its prior, each weighted by the likelihood of the row's other
columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.stats import norm, qmc
from torch import Tensor

from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities
from synthdp.model.ancestral import CHUNK_ROWS, ColumnSampler

POINTS = 32
"""Points of z."""


@torch.no_grad()
def probabilities_given_others(
    samplers: Mapping[int, ColumnSampler], codes: Codes, column: int, *, rng: np.random.Generator
) -> Probabilities:
    """Probabilities `[rows, levels]` of the levels of the column at position `column`.

    They are conditional on the other columns of each row of levels `[rows, columns]`. `samplers`
    are those of all columns, by position.
    """
    sampler = samplers[column]
    children = [s for s in samplers.values() if column in s.parents]
    family = [sampler, *children]
    # If z reaches neither the column nor its children, no other column is evidence through z.
    others: list[ColumnSampler] = []
    if any(map(_depends_on_z, family)):
        others = [s for s in samplers.values() if s not in family and _depends_on_z(s)]
    latent = len(sampler.latent) - 1
    z = _points(latent, rng) if others or children else torch.eye(latent + 1)[-1:]
    chunks = (codes[start : start + CHUNK_ROWS] for start in range(0, len(codes), CHUNK_ROWS))
    parts = [
        _probabilities(sampler, children, others, torch.from_numpy(chunk.T.astype(np.int32)), z)
        for chunk in chunks
    ]
    return torch.cat(parts).double().numpy()


def _depends_on_z(sampler: ColumnSampler) -> bool:
    return bool(sampler.latent[:-1].any())


def _points(latent: int, rng: np.random.Generator) -> Tensor:
    """Points that cover the law of z evenly, `[points, latent + 1]`; the last entry is one."""
    uniform = qmc.Sobol(latent, seed=int(rng.integers(2**32))).random(POINTS)
    normal = norm.ppf(np.clip(uniform, 1e-6, 1 - 1e-6))
    return torch.from_numpy(np.append(normal, np.ones((POINTS, 1)), 1)).float()


def _probabilities(
    sampler: ColumnSampler,
    children: Sequence[ColumnSampler],
    others: Sequence[ColumnSampler],
    codes: Tensor,
    z: Tensor,
) -> Tensor:
    """Probabilities `[rows, levels]` of a column's levels given `codes` `[columns, rows]`."""
    logs = _log_probabilities(sampler, codes, z)[..., : sampler.levels]  # [points, rows, levels]
    for child in children:
        by_level = [
            _log_likelihood(child, _with(codes, sampler.column, level), z)
            for level in range(sampler.levels)
        ]
        logs = logs + torch.stack(by_level, -1)
    for other in others:
        logs = logs + _log_likelihood(other, codes, z).unsqueeze(-1)
    return logs.logsumexp(0).softmax(-1)


def _log_likelihood(sampler: ColumnSampler, codes: Tensor, z: Tensor) -> Tensor:
    """Log probabilities of a column's levels in `codes` at each point of z, `[points, rows]`."""
    level = codes[sampler.column].long().expand(len(z), -1).unsqueeze(-1)
    return _log_probabilities(sampler, codes, z).gather(-1, level).squeeze(-1)


def _log_probabilities(sampler: ColumnSampler, codes: Tensor, z: Tensor) -> Tensor:
    """Log probabilities of all levels of a column at each point of z, `[points, rows, levels]`."""
    hidden = (z @ sampler.latent).unsqueeze(1)
    if sampler.table is None:
        hidden = hidden.expand(-1, codes.shape[1], -1)
    else:
        hidden = hidden + sampler.looked_up(codes)
    logits = torch.tanh(hidden) @ sampler.weight + sampler.bias
    if sampler.direct is not None:
        logits = logits + sampler.summed(sampler.direct, codes)
    return logits.log_softmax(-1)


def _with(codes: Tensor, column: int, level: int) -> Tensor:
    changed = codes.clone()
    changed[column] = level
    return changed
