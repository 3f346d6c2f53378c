"""Chi-square test of X and Y given Z on tables whose cells have known Gaussian noise.

Stratum z has counts N (rows are levels of X, columns of Y) plus independent noise of variance s^2.
With n its total and a, b the shares of its rows and columns, the residual from independence is D =
(I - a 1') N (I - b 1')': for shares from the margins the familiar N - n a b'. It does not change to
first order with errors of a and b, and its covariance under independence is

    n S_a (x) S_b  +  s^2 M_a (x) M_b,     S_a = diag(a) - a a',   M_a = (I - a 1')(I - a 1')'

[derived here: counts have covariance n (diag(a) (x) diag(b) - (a b')(a b')'), and (I - a 1') takes
diag(a) to S_a and a to 0].

Diagonalising S against M on each side gives (rows-1)(columns-1) uncorrelated coordinates y_ij of
variance v_ij = n l_i m_j + s^2: sampling plus noise. The statistic is sum w_ij y_ij^2 / v_ij over
coordinates and strata, with w = n l m / v: coordinates that are mostly noise get little weight, and
without noise it is Pearson's statistic. `mixture` has its null law.

Sparse coordinates get a variance of at least one count, and all get the second-order term of the
margins' noise; both can only make the test conservative. Effects assume a dependence that is spread
evenly over the coordinates, so that for larger tables they are orders of magnitude rather than
exact. Strata too small for the first-order covariance to hold are left out; if they contain much of
the table, the test never claims independence. All of this is post-processing of released tables.
"""

from __future__ import annotations

import numpy as np

from synthdp.graph.ci_tests.answer import Answer
from synthdp.graph.ci_tests.mixture import Floats, Mixture, answers, contrasts, normal

STRATUM_SNR = 3.0
"""A stratum counts if its noisy total is so many standard deviations of its noise."""
STRATUM_ROWS = 5.0
"""A stratum counts if its noisy total is so many rows."""


def chi_square(tables: Floats, sigma: Floats, *, level: float, margin: float) -> list[Answer]:
    """Test many tables of one shape.

    `tables`: noisy counts, `[tests, strata, rows, columns]`; `sigma`: noise per cell, `[tests]`;
    `level`: of each test; `margin`: an upper bound of the effect below it counts as evidence for
    independence.
    """
    return answers(mixture_of(tables, sigma), level=level, margin=margin)


def mixture_of(tables: Floats, sigma: Floats) -> Mixture:
    """The statistic and weights of each test; `tables` and `sigma` as for `chi_square`."""
    tables, sigma = np.asarray(tables, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    rows, columns = tables.shape[-2:]
    noise = np.broadcast_to(sigma[:, None], tables.shape[:2])
    total = tables.sum((-2, -1))
    min_total = np.maximum(STRATUM_SNR * noise * np.sqrt(rows * columns), STRATUM_ROWS)
    counted = total >= min_total
    n = np.where(counted, total, 1.0)
    by_row, by_column = _shares(tables, n, noise)
    residual = (
        tables
        - by_row[..., :, None] * tables.sum(-2, keepdims=True)
        - tables.sum(-1, keepdims=True) * by_column[..., None, :]
        + total[..., None, None] * by_row[..., :, None] * by_column[..., None, :]
    )
    left, lam = _axes(by_row)
    right, mu = _axes(by_column)
    y = left @ residual @ np.swapaxes(right, -1, -2)
    sampling = n[..., None, None] * lam[..., :, None] * mu[..., None, :]
    rank_one = n * np.linalg.norm(by_row, axis=-1) * np.linalg.norm(by_column, axis=-1)
    # Second order: the product of both margins' errors.
    extra = noise**4 / rank_one**2
    variance = np.maximum(sampling + (noise**2 + extra)[..., None, None], 1.0)
    live = counted[..., None, None] & (sampling > 0)
    min_sampling = np.where(noise[..., None, None] > 0, 0.0, 1.0)
    weight = np.where(live, np.maximum(sampling, min_sampling) / variance, 0.0)
    axes = (1, 2, 3)
    freedom = max((rows - 1) * (columns - 1), 1)
    gain = (weight * n[..., None, None] * sampling / variance).sum(axes) / freedom
    coverage = np.where(counted, total, 0.0).sum(1) / np.maximum(total.sum(1), 1.0)
    statistic = (weight * y**2 / variance).sum(axes)
    return Mixture(statistic, weight.reshape(len(weight), -1), gain, coverage)


def _shares(tables: Floats, n: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Shares of rows and columns, `[tests, strata, levels]`.

    Each is computed from the other's inverse-variance weighted sum. Without noise these are the
    margins. With much noise they approach the leading singular vectors, whose error is independent
    of the residual, which is not true of plain margins.
    """
    rows, columns = tables.shape[-2:]
    by_row, by_column = normal(tables.sum(-1)), normal(tables.sum(-2))
    for _ in range(2):
        to_rows = by_column / (n[..., None] * by_column / rows + noise[..., None] ** 2 + 1e-12)
        to_columns = by_row / (n[..., None] * by_row / columns + noise[..., None] ** 2 + 1e-12)
        by_row, by_column = (
            normal((tables @ to_rows[..., None])[..., 0]),
            normal((to_columns[..., None, :] @ tables)[..., 0, :]),
        )
    return by_row, by_column


def _axes(share: Floats) -> tuple[Floats, Floats]:
    """W with W M W' = 1 and W S W' = diag(l), and l, for shares `[..., levels]`."""
    levels = share.shape[-1]
    basis = contrasts(levels)
    q = share @ basis
    spread = np.einsum("ki,...k,kj->...ij", basis, share, basis) - q[..., :, None] * q[..., None, :]
    metric = np.eye(levels - 1) + levels * q[..., :, None] * q[..., None, :]
    lower = np.linalg.inv(np.linalg.cholesky(metric))
    lam, u = np.linalg.eigh(lower @ spread @ np.swapaxes(lower, -1, -2))
    return np.swapaxes(u, -1, -2) @ lower @ basis.T, np.maximum(lam, 0.0)
