"""Conditional probabilities of a column's levels given all other columns of a row, by the model.

A target is drawn again from them, stratified over similar rows. A draw of one column of a row from
them leaves the model's law as it is (a step of Gibbs sampling). z, which a row does not contain, is
summed out over `POINTS` points of its prior, each weighted by the likelihood of the row's other
columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import logsumexp, ndtri, softmax

from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities
from synthdp.model.ancestral import CHUNK_ROWS, ColumnSampler, Floats, Levels, log_softmax

POINTS = 32
"""Points of z."""


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
    z = _points(latent, rng) if others or children else np.eye(latent + 1, dtype=np.float32)[-1:]
    chunks = (codes[start : start + CHUNK_ROWS] for start in range(0, len(codes), CHUNK_ROWS))
    parts = [
        _probabilities(sampler, children, others, chunk.T.astype(np.int32), z) for chunk in chunks
    ]
    return np.concatenate(parts, 1).T.astype(np.float64)


def _depends_on_z(sampler: ColumnSampler) -> bool:
    return bool(sampler.latent[:-1].any())


def _points(latent: int, rng: np.random.Generator) -> Floats:
    """Points that cover the law of z evenly, `[points, latent + 1]`; the last entry is one."""
    from scipy.stats import qmc  # half a second of imports, which drawing rows does not need

    uniform = qmc.Sobol(latent, seed=int(rng.integers(2**32))).random(POINTS)
    normal = ndtri(np.clip(uniform, 1e-6, 1 - 1e-6))
    points: Floats = np.append(normal, np.ones((POINTS, 1)), 1).astype(np.float32)
    return points


def _probabilities(
    sampler: ColumnSampler,
    children: Sequence[ColumnSampler],
    others: Sequence[ColumnSampler],
    codes: Levels,
    z: Floats,
) -> Floats:
    """Probabilities `[levels, rows]` of a column's levels given `codes` `[columns, rows]`."""
    logs = _log_probabilities(sampler, codes, z)  # [points, levels, rows]
    for child in children:
        for level in range(sampler.levels):
            logs[:, level] += _log_likelihood(child, _with(codes, sampler.column, level), z)
    for other in others:
        logs += _log_likelihood(other, codes, z)[:, None]
    found: Floats = softmax(logsumexp(logs, axis=0), axis=0)
    return found


def _log_likelihood(sampler: ColumnSampler, codes: Levels, z: Floats) -> Floats:
    """Log probabilities of a column's levels in `codes` at each point of z, `[points, rows]`."""
    logs = _log_probabilities(sampler, codes, z)
    chosen: Floats = np.take_along_axis(logs, codes[None, None, sampler.column], 1)[:, 0]
    return chosen


def _log_probabilities(sampler: ColumnSampler, codes: Levels, z: Floats) -> Floats:
    """Log probabilities of all levels of a column at each point of z, `[points, levels, rows]`."""
    hidden = (z @ sampler.latent)[:, None]  # [points, 1, hidden]
    if sampler.table is not None:
        hidden = hidden + sampler.summed(sampler.table, codes)
    logits = sampler.weight @ np.tanh(hidden).mT + sampler.bias
    if sampler.direct is not None:
        logits = logits + sampler.summed(sampler.direct, codes).T
    whole = np.broadcast_to(logits, (len(z), sampler.levels, codes.shape[1]))
    return log_softmax(whole)


def _with(codes: Levels, column: int, level: int) -> Levels:
    changed = codes.copy()
    changed[column] = level
    return changed
