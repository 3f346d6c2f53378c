"""Conditional independence of numeric columns from one noisy moment matrix: regression, then
residual covariance.

Strobl et al., "Approximate kernel-based conditional independence tests" (arXiv:1702.03877v2) test
whether residuals of functions of X and of Y, regressed on functions of Z, are uncorrelated (RCIT).
Everything that takes is second moments of the functions, so a released noisy moment matrix answers
every query as post-processing.

With a = (I, -beta_x) the combination of functions that leaves the residual of X, b that of Y, and M
the moments per row, the residual covariance is R = a' M b. Its error has two parts, both known up
to plug-in estimates:

    sampling   S_x (x) S_y / n, with S the residual variances
    noise      for symmetric E with independent N(0, s^2) on and above the diagonal,
               cov(a_i'E b_j, a_k'E b_l) = s^2 [(a_i.a_k)(b_j.b_l) + (a_i.b_l)(b_j.a_k) - sum_m a_im
               b_jm a_km b_lm]

to which comes what is of second order in the noise of the regression [derived here]. With V the sum
and S = S_x (x) S_y the statistic is r' V^-1 S V^-1 r: coordinates that are mostly noise count for
little, and without noise it is n times the squared canonical correlations. Its law, a weighted sum
of chi-squares, is matched in three moments.

A basis that does not hold the true regression leaves dependent residuals where there is
independence. The null
is therefore an interval: residual correlation up to `tolerance`, in the direction that shows most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, norm

from synthdp.graph.ci_tests.answer import Answer, Query, Verdict
from synthdp.privacy.mechanisms.moments import NoisyMoments

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

TOLERANCE, MAX_TOLERANCE = 0.05, 0.15
"""Residual correlation that each given column may leave where there is independence, its regression
being of low degree.
"""
MANY = 4
"""Given columns from which powers of the tested ones are left out."""
POWER = 0.8
"""Chance of finding an effect that is called detectable."""
MIN_RESIDUAL = 0.01
"""Share of a function's variance that is never explained: what is left of it may be noise alone."""
BATCH = 512
"""Queries that are answered at once."""
RIDGE = 1.0
"""Multiple of the noise's spectral norm by which regressions are held back."""


class MomentTests:
    """Answers queries from one noisy moment matrix."""

    def __init__(self, moments: NoisyMoments) -> None:
        self.moments = moments
        self._within: dict[frozenset[str], list[int]] = {}

    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        """One answer for each query, batched by shape."""
        by_shape: dict[tuple[int, ...], list[int]] = {}
        positions = [self._positions(query) for query in queries]
        for i, (query, parts) in enumerate(zip(queries, positions, strict=True)):
            by_shape.setdefault((len(query[2]), *map(len, parts)), []).append(i)
        found: dict[int, Answer] = {}
        for (given, *_), members in by_shape.items():
            for start in range(0, len(members), BATCH):
                batch = members[start : start + BATCH]
                x, y, z = (np.array([positions[i][part] for i in batch]) for part in range(3))
                # Residuals of a function of degree d vary with the given columns, the more the
                # higher d; fourth moments, which would say how much, are not released. Degree as
                # the factor keeps the level for d <= 3.
                inflation = float(self.moments.basis.degree) if given else 1.0
                left = residuals(
                    self.moments.sums, self.moments.sigma, x=x, y=y, given=z, inflation=inflation
                )
                found.update(
                    zip(
                        batch,
                        answers(
                            left,
                            level=level,
                            margin=margin,
                            tolerance=min(given * TOLERANCE, MAX_TOLERANCE),
                        ),
                        strict=True,
                    )
                )
        return [found[i] for i in range(len(queries))]

    def _positions(self, query: Query) -> tuple[list[int], list[int], list[int]]:
        """Functions of x alone, of y alone, and of any of the given columns, the constant
        included.
        """
        a, b, given = query
        return self._own(a, given), self._own(b, given), self._functions(frozenset(given))

    def _own(self, name: str, given: tuple[str, ...]) -> list[int]:
        """Functions of one column. A power of it is a power of the given columns too, of higher
        degree than the basis holds, so that given many of them only functions of degree one are
        asked about.
        """
        own, terms = self._functions(frozenset({name}))[1:], self.moments.basis.terms
        if len(given) < MANY or not self.moments.basis.domain[name].ranged:
            return own
        return [i for i in own if terms[i].factors[0][1] <= 1]

    def _functions(self, columns: frozenset[str]) -> list[int]:
        """Positions of the functions that look at no other columns, the constant first."""
        if columns not in self._within:
            self._within[columns] = [
                i for i, term in enumerate(self.moments.basis.terms) if term.columns <= columns
            ]
        return self._within[columns]


@dataclass(frozen=True)
class Residuals:
    """Of many queries of one shape: residual covariances `[queries, k]`, their covariance V and the
    scale S `[queries, k, k]`.
    """

    covariance: Floats
    variance: Floats
    scale: Floats


def residuals(
    moments: Floats,
    sigma: float,
    *,
    x: Positions,
    y: Positions,
    given: Positions,
    inflation: float = 1.0,
) -> Residuals:
    """Regress functions `x` and `y` on `given`, all `[queries, functions]` of positions in the
    matrix.

    `moments`: noisy sums of products `[terms, terms]`, the constant first; `sigma`: noise of each
    entry; `inflation`: of the sampling variance.
    """
    rows = max(float(moments[0, 0]), 1.0)
    k, both = x.shape[1], x.shape[1] + y.shape[1]
    index = np.concatenate([x, y, given], axis=1)
    block = moments[index[:, :, None], index[:, None, :]] / rows
    inverse = _inverse(block[:, both:, both:], sigma / rows)
    beta = inverse @ block[:, both:, :both]
    left = np.concatenate(
        [np.broadcast_to(np.eye(both), (len(x), both, both)), -np.swapaxes(beta, 1, 2)], axis=2
    )
    covariance = left @ block @ np.swapaxes(left, 1, 2)
    before = np.diagonal(block, axis1=1, axis2=2)
    s_x = _positive(covariance[:, :k, :k], MIN_RESIDUAL * before[:, :k].min(1))
    s_y = _positive(covariance[:, k:, k:], MIN_RESIDUAL * before[:, k:both].min(1))
    size = (len(x), k * y.shape[1], k * y.shape[1])
    scale = np.einsum("qik,qjl->qijkl", s_x, s_y).reshape(size)
    noise = _noise(left[:, :k], left[:, k:], inverse, sigma / rows).reshape(size)
    return Residuals(
        covariance[:, :k, k:].reshape(size[:2]), scale * (inflation / rows) + noise, scale
    )


def _inverse(given: Floats, noise: float) -> Floats:
    """Inverse of the regressors' moments `[queries, g, g]`; directions that are mostly noise are
    held back.
    """
    values, vectors = np.linalg.eigh(given)
    spectral = RIDGE * noise * np.sqrt(given.shape[1])
    held = np.maximum(values, 0.0) + np.where(values < spectral, spectral, 0.0) + 1e-12
    inverse: Floats = vectors / held[:, None, :] @ np.swapaxes(vectors, 1, 2)
    return inverse


def _noise(a: Floats, b: Floats, inverse: Floats, noise: float) -> Floats:
    """Covariance of a'Eb from the matrix's noise, first and second order, `[queries, k, l, k,
    l]`.
    """
    along = np.einsum("qim,qkm,qjp,qlp->qijkl", a, a, b, b)
    first = (
        along
        + np.einsum("qim,qlm,qjp,qkp->qijkl", a, b, b, a)
        - np.einsum("qim,qjm,qkm,qlm->qijkl", a, b, a, b)
    )
    # Errors of both regressions multiply: E_x G^-1 E_y, of variance |a|^2 |b|^2 tr(G^-2) noise^4.
    second = along * (inverse**2).sum((1, 2))[:, None, None, None, None]
    covariance: Floats = first * noise**2 + second * noise**4
    return covariance


def _positive(matrix: Floats, least: Floats) -> Floats:
    """The matrix with eigenvalues of at least `least` `[queries]`."""
    values, vectors = np.linalg.eigh(matrix)
    lifted: Floats = (
        vectors * np.maximum(values, np.maximum(least, 1e-9)[:, None])[:, None, :]
    ) @ np.swapaxes(vectors, 1, 2)
    return lifted


def answers(found: Residuals, *, level: float, margin: float, tolerance: float) -> list[Answer]:
    """Verdict of each query; see the module for the null."""
    root = _root(found.scale)
    inner = root @ np.linalg.solve(found.variance, root)
    lam = np.maximum(np.linalg.eigvalsh(inner), 0.0)
    whitened = np.linalg.solve(found.variance, found.covariance[..., None])
    statistic = np.einsum("qi,qij,qj->q", whitened[..., 0], found.scale, whitened[..., 0])
    first, top = lam.sum(1), lam[:, -1]
    critical, p = _null(lam, tolerance, statistic, level)
    gain = (lam**3).sum(1) / lam.sum(1)
    second = 2 * (lam**2).sum(1)
    effect = np.sqrt(np.maximum(statistic - first, 0.0) / gain)
    upper = np.sqrt(_shift(statistic - first, second, top, norm.isf(level)) / gain)
    detectable = np.sqrt(_shift(critical - first, second, top, norm.isf(1 - POWER)) / gain)
    verdicts: list[Verdict] = [
        "dependent" if d else "independent" if i else "undecided"
        for d, i in zip(p <= level, upper <= margin, strict=True)
    ]
    columns: Sequence[Floats] = (p, statistic, effect, upper, detectable)
    return [
        Answer(v, *map(float, row))
        for v, row in zip(verdicts, zip(*columns, strict=True), strict=True)
    ]


def _root(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    rooted: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ np.swapaxes(
        vectors, 1, 2
    )
    return rooted


def _null(lam: Floats, tolerance: float, statistic: Floats, level: float) -> tuple[Floats, Floats]:
    """Critical value and p-value of sum lam (g_i + shift_i)^2, the shift of size tolerance in the
    top direction.

    Moments matched as in Liu, Tang and Zhang, "A new chi-square approximation to the distribution
    of non-negative definite quadratic forms in non-central normal variables" (2009), with a central
    chi-square.
    """
    top = lam[:, -1]
    shift = top * tolerance**2
    c1 = lam.sum(1) + top * shift
    c2 = 2 * (lam**2).sum(1) + 4 * top**2 * shift
    c3 = 8 * (lam**3).sum(1) + 24 * top**3 * shift
    nu = 8 * c2**3 / c3**2
    scale = np.sqrt(c2 / (2 * nu))
    return c1 + (chi2.isf(level, nu) - nu) * scale, chi2.sf(nu + (statistic - c1) / scale, nu)


def _shift(excess: Floats, second: Floats, scale: Floats, z: float) -> Floats:
    """Non-centrality x at which the statistic lies z deviations above `excess`: x - z sqrt(second +
    4 scale x) = excess.

    As `mixture._shift`, with the largest weight as `scale`, which no variance exceeds [derived
    here, in the normal approximation].
    """
    half = excess + 2 * scale * z**2
    return np.maximum(half + np.sqrt(np.maximum(half**2 - excess**2 + second * z**2, 0.0)), 0.0)
