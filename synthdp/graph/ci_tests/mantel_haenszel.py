"""Generalised Mantel-Haenszel test of X and Y given Z, from three noisy tables: X-Y, X-Z and Y-Z.

The test of Landis, Heyman and Koch 1978 asks for *average* partial association: it sums each
stratum's residual from independence, R = sum_z (N_z - n_z a_z b_z') (rows are levels of X, columns
of Y; a_z, b_z their shares in stratum z). That sum needs no table of X, Y and Z together, for it is
[derived here]

    R = T - sum_z (A_z b_z' + a_z B_z' - n_z a_z b_z'),

with T the counts of X and Y, A_z and B_z those of X and of Y in stratum z. So tables are one column
smaller, and with them the noise: neither the number of strata nor the product of their sizes
multiplies it. Written this way R does not change to first order with errors of the shares, so that
with noise of variance s0^2, sA^2, sB^2 in T, A, B its covariance under independence is, in
contrasts of rows and columns (q = shares in contrasts, S = diag(a) - a a'),

    sum_z n_z S(a_z) (x) S(b_z)  +  s0^2 I  +  sA^2 sum_z (I + r u^2 q_a q_a') (x) q_b q_b'
        +  the same for B,

with r the number of rows and u the weight of A in n_z, which is estimated from both. The shares are
shrunk to their average where a stratum is small against its noise; the joint effect of their errors
(second order) is bounded and counted as noise. The weights are as in `chi_square`: without noise
and with one stratum the two statistics agree.

The test cannot see dependence whose direction changes from stratum to stratum, so that it cancels
in the sum.

Time grows with the cube of the number of contrasts. So columns of many levels are tested on
`max_contrasts` in all: of each column those in which its levels vary most. Any linear map of R has
the covariance of R under the same map, so that the level holds. What is left out counts as unseen:
effects have it in their denominator, and independence is claimed only if the contrasts that are
kept have most of the variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import helmert

from synthdp.graph.ci_tests.chi_square import Floats, Mixture, normal


@dataclass(frozen=True)
class Tables:
    """Tests of one shape: three noisy tables of counts each.

    `pair` is `[tests, rows, columns]`, `left` `[tests, strata, rows]`, `right`
    `[tests, strata, columns]`, and `sigma` the noise per cell of each, `[tests]`. Their noises must
    be independent of each other.
    """

    pair: Floats
    left: Floats
    right: Floats
    sigma: tuple[Floats, Floats, Floats]


def mixture_of(t: Tables, max_contrasts: int = 144) -> Mixture:
    """The statistic and weights of each test.

    `max_contrasts`: most contrasts of a test, which are products of those of both columns.
    """
    left, right = t.left, t.right
    noise_pair, noise_left, noise_right = (s[:, None] for s in t.sigma)
    rows, columns = t.pair.shape[1:]
    error_left, error_right = rows * noise_left**2, columns * noise_right**2
    error = error_left + error_right
    share = np.where(error > 0, error_right / np.where(error > 0, error, 1.0), 0.5)
    total = share * left.sum(-1) + (1 - share) * right.sum(-1)
    size = np.maximum(total, 0.0)
    a, b = _shares(left, noise_left), _shares(right, noise_right)
    residual = (
        t.pair - _products(left, b) - _products(a, right) + _products(total[..., None] * a, b)
    )
    kept_rows, kept_columns = _how_many(rows - 1, columns - 1, max_contrasts)
    by_row, seen_rows = _contrasts(a, size, kept_rows)
    by_column, seen_columns = _contrasts(b, size, kept_columns)
    r = (np.swapaxes(by_row, -1, -2) @ residual @ by_column).reshape(len(residual), -1)
    sampling = _kron(size[..., None, None] * _spread(a, by_row), _spread(b, by_column))
    both = np.minimum(noise_left, size) * np.minimum(noise_right, size) / np.maximum(size, 1.0)
    plain = noise_pair[:, 0] ** 2 + (both**2).sum(1)
    # The noise of the two margins gives the residual this covariance.
    outer_a, outer_b = (q[..., :, None] * q[..., None, :] for q in (a @ by_row, b @ by_column))
    inner_a = np.eye(kept_rows) + rows * (share**2)[..., None, None] * outer_a
    inner_b = np.eye(kept_columns) + columns * ((1 - share) ** 2)[..., None, None] * outer_b
    by_left = _kron((noise_left**2)[..., None, None] * inner_a, outer_b)
    variance = sampling + (by_left + _kron(outer_a, (noise_right**2)[..., None, None] * inner_b))
    variance += np.maximum(plain, 1e-6)[:, None, None] * np.eye(r.shape[1])
    # Parts f of sampling, and axes W with W variance W' = 1 and W sampling W' = diag(f).
    lower = np.linalg.inv(np.linalg.cholesky(variance))
    part, u = np.linalg.eigh(lower @ sampling @ np.swapaxes(lower, -1, -2))
    part, axes = np.clip(part, 0.0, 1.0), np.swapaxes(u, -1, -2) @ lower
    y = (axes @ r[..., None])[..., 0]
    # A stratum is covered if its noisy size is 3 standard deviations of its noise.
    covered = (size * (size >= 3 * np.sqrt(np.maximum(error_left, error_right)))).sum(1)
    counted, contrasts_in_all = size.sum(1), (rows - 1) * (columns - 1)
    # Where no stratum stands out of the noise, what looks like rows is noise, and so would be any
    # answer: the test is undecided.
    gain = np.where(covered > 0, counted * (part**2).sum(1) / max(contrasts_in_all, 1), 0.0)
    return Mixture(
        (part * y**2).sum(1),
        part,
        gain,
        seen_rows * seen_columns * covered / np.maximum(counted, 1.0),
        math.sqrt(min(rows, columns) - 1),
    )


def _shares(counts: Floats, noise: Floats) -> Floats:
    """Shares within each stratum, shrunk to the average by one deviation of noise."""
    average = normal(counts.sum(1, keepdims=True))
    return normal(np.maximum(counts, 0.0) + (noise[..., None] + 1e-9) * average)


def _how_many(rows: int, columns: int, most: int) -> tuple[int, int]:
    """How many contrasts of rows and of columns are tested, of so many.

    >>> _how_many(9, 9, 144), _how_many(99, 3, 144), _how_many(99, 85, 144)
    ((9, 9), (48, 3), (12, 12))
    """
    if rows * columns <= most:
        return rows, columns
    kept = min(rows, max(math.isqrt(most), most // columns))
    return kept, min(columns, most // kept)


def _contrasts(share: Floats, size: Floats, kept: int) -> tuple[Floats, Floats]:
    """Orthonormal contrasts, and the share of the variance that they hold, `[tests]` or one.

    They are `[levels, kept]`, or `[tests, levels, kept]` where some are left out: then those of the
    largest variance under the average of `share` `[tests, strata, levels]`.
    """
    basis = helmert(share.shape[-1]).T
    if kept >= basis.shape[1]:
        return basis, np.ones(1)
    average = normal((size[..., None] * share).sum(1, keepdims=True))
    variance, axes = np.linalg.eigh(_spread(average, basis)[:, 0])
    return basis @ axes[..., -kept:], variance[:, -kept:].sum(1) / variance.sum(1)


def _products(left: Floats, right: Floats) -> Floats:
    return np.swapaxes(left, 1, 2) @ right


def _spread(share: Floats, basis: Floats) -> Floats:
    """diag(a) - a a' in contrasts."""
    q = share @ basis
    sums = "ki,tsk,kj->tsij" if basis.ndim == 2 else "tki,tsk,tkj->tsij"
    raw = np.einsum(sums, basis, share, basis, optimize=True)
    full: Floats = raw - q[..., :, None] * q[..., None, :]
    return full


def _kron(left: Floats, right: Floats) -> Floats:
    """Sum over strata of Kronecker products."""
    tests, strata, i, k = *left.shape[:3], right.shape[2]
    flat = np.swapaxes(left.reshape(tests, strata, -1), 1, 2) @ right.reshape(tests, strata, -1)
    return flat.reshape(tests, i, i, k, k).transpose(0, 1, 3, 2, 4).reshape(tests, i * k, i * k)
