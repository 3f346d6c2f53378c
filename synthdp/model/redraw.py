"""Chances of a column's levels given all other columns of a row, by the model: what a target is
drawn again with, evenly over rows that are alike.

Drawing one column of a row again from them leaves the model's law as it is (a step of Gibbs
sampling). z, which a row does not tell, is summed out over `POINTS` points of its prior, each
weighted by what it says of the row's other columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.stats import norm, qmc
from torch import Tensor

from synthdp.data.encoding import Codes
from synthdp.model.ancestral import CHUNK_ROWS, ColumnSampler
from synthdp.model.raking import Probabilities

POINTS = 32  # of z


@torch.no_grad()
def chances_given_others(
    samplers: Mapping[int, ColumnSampler], codes: Codes, column: int, *, rng: np.random.Generator
) -> Probabilities:
    """Chances `[rows, levels]` of the levels of the column at position `column` in each row of
    levels `[rows, columns]`.

    `samplers` are those of all columns, by position.
    """
    own = samplers[column]
    children = [s for s in samplers.values() if column in s.parents]
    # Where z leads neither to the column nor to what it causes, others say nothing of it by z.
    tellers = (
        [s for s in samplers.values() if s is not own and s not in children and _of_z(s)]
        if any(map(_of_z, [own, *children]))
        else []
    )
    z = (
        _points(len(own.latent) - 1, rng)
        if tellers or children
        else torch.eye(len(own.latent))[-1:]
    )
    parts = [
        _chances(
            own,
            children,
            tellers,
            torch.from_numpy(codes[start : start + CHUNK_ROWS].T.astype(np.int32)),
            z,
        )
        for start in range(0, len(codes), CHUNK_ROWS)
    ]
    return torch.cat(parts).double().numpy()


def _of_z(sampler: ColumnSampler) -> bool:
    return bool(sampler.latent[:-1].any())


def _points(latent: int, rng: np.random.Generator) -> Tensor:
    """Points that cover the law of z evenly, with ones last as samplers take them, `[points, latent
    + 1]`.
    """
    uniform = qmc.Sobol(latent, seed=int(rng.integers(2**32))).random(POINTS)
    return torch.from_numpy(
        np.append(norm.ppf(np.clip(uniform, 1e-6, 1 - 1e-6)), np.ones((POINTS, 1)), 1)
    ).float()


def _chances(
    own: ColumnSampler,
    children: Sequence[ColumnSampler],
    tellers: Sequence[ColumnSampler],
    codes: Tensor,
    z: Tensor,
) -> Tensor:
    log_chances = _log_probabilities(own, codes, z)[..., : own.levels]  # [points, rows, levels]
    for child in children:
        log_chances = log_chances + torch.stack(
            [_said(child, _with(codes, own.column, level), z) for level in range(own.levels)], -1
        )
    for teller in tellers:
        log_chances = log_chances + _said(teller, codes, z).unsqueeze(-1)
    return log_chances.logsumexp(0).softmax(-1)


def _said(sampler: ColumnSampler, codes: Tensor, z: Tensor) -> Tensor:
    """Log probabilities of a column's levels in `codes` at each point of z, `[points, rows]`."""
    level = codes[sampler.column].long().expand(len(z), -1).unsqueeze(-1)
    return _log_probabilities(sampler, codes, z).gather(-1, level).squeeze(-1)


def _log_probabilities(sampler: ColumnSampler, codes: Tensor, z: Tensor) -> Tensor:
    """Log probabilities of all levels of a column at each point of z, `[points, rows, levels]`."""
    hidden = (z @ sampler.latent).unsqueeze(1)
    hidden = (
        hidden.expand(-1, codes.shape[1], -1)
        if sampler.table is None
        else hidden + sampler.looked_up(codes)
    )
    return (torch.tanh(hidden) @ sampler.weight + sampler.bias).log_softmax(-1)


def _with(codes: Tensor, column: int, level: int) -> Tensor:
    changed = codes.clone()
    changed[column] = level
    return changed
