"""Conditional independence of numeric columns from one noisy moment matrix.

Strobl et al., "Approximate kernel-based conditional independence tests" (arXiv:1702.03877v2) test
whether residuals of functions of X and of Y, regressed on functions of Z, are uncorrelated (RCIT).
The test needs only second moments of the functions, so a released noisy moment matrix answers every
query as post-processing.

With a = (I, -beta_x) the combination of functions that leaves the residual of X, b that of Y, and M
the moments per row, the residual covariance is R = a' M b. Its error has two parts, both known up
to plug-in estimates:

    sampling   S_x (x) S_y / n, with S the residual variances
    noise      for symmetric E with independent N(0, s^2) on and above the diagonal,
               cov(a_i'E b_j, a_k'E b_l) = s^2 [(a_i.a_k)(b_j.b_l) + (a_i.b_l)(b_j.a_k)
               - sum_m a_im b_jm a_km b_lm]

to which the second-order term of the noise of the regression is added [derived here]. With V the
sum and S = S_x (x) S_y the statistic is r' V^-1 S V^-1 r: coordinates that are mostly noise get
little weight, and without noise it is n times the squared canonical correlations. Its law, a
weighted sum of chi-squares, is matched in three moments.

A basis that does not contain the true regression leaves dependent residuals where there is
independence. The null is therefore an interval: residual correlation up to `tolerance`, in the
direction that shows most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, norm

from synthdp.graph.ci_tests.answer import Answer, Query
from synthdp.graph.ci_tests.mixture import Floats, listed
from synthdp.privacy.mechanisms.moments import NoisyMoments

Positions = npt.NDArray[np.intp]

TOLERANCE = 0.05
"""Residual correlation that each given column may leave where there is independence.

The regression is of low degree, so that it may not remove all of the dependence.
"""
MAX_TOLERANCE = 0.15
"""Largest such correlation, however many columns are given."""
MANY = 4
"""Number of given columns from which powers of the tested columns are left out."""
POWER = 0.8
"""Probability of detection that defines a detectable effect."""
MIN_RESIDUAL = 0.01
"""Share of a function's variance that is never explained: what is left may be noise alone."""
BATCH = 512
"""Queries that are answered at once."""
RIDGE = 1.0
"""Ridge of the regressions, in multiples of the noise's spectral norm."""


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
        answered: dict[int, Answer] = {}
        for (given, *_), members in by_shape.items():
            tolerance = min(given * TOLERANCE, MAX_TOLERANCE)
            for start in range(0, len(members), BATCH):
                batch = members[start : start + BATCH]
                left = self._residuals([positions[i] for i in batch], conditional=given > 0)
                results = answers(left, level=level, margin=margin, tolerance=tolerance)
                answered.update(zip(batch, results, strict=True))
        return [answered[i] for i in range(len(queries))]

    def _residuals(
        self, batch: Sequence[tuple[list[int], list[int], list[int]]], *, conditional: bool
    ) -> Residuals:
        x, y, z = (np.array(part) for part in zip(*batch, strict=True))
        # Residuals of a function of degree d vary with the given columns, the more the higher d.
        # Fourth moments, which would say how much, are not released. The degree as factor keeps the
        # level for d <= 3.
        inflation = float(self.moments.basis.degree) if conditional else 1.0
        sums, sigma = self.moments.sums, self.moments.sigma
        return residuals(sums, sigma, x=x, y=y, given=z, inflation=inflation)

    def _positions(self, query: Query) -> tuple[list[int], list[int], list[int]]:
        """Functions of x alone, of y alone, and of the given columns, the constant included."""
        a, b, given = query
        functions = self._functions(frozenset(given))
        return self._of_column(a, given), self._of_column(b, given), functions

    def _of_column(self, name: str, given: tuple[str, ...]) -> list[int]:
        """Functions of one column.

        A power of it is correlated with powers of the given columns of a higher degree than the
        basis has. So given many columns only functions of degree one are tested.
        """
        functions = self._functions(frozenset({name}))[1:]
        if len(given) < MANY or not self.moments.basis.domain[name].ranged:
            return functions
        terms = self.moments.basis.terms
        return [i for i in functions if terms[i].factors[0][1] <= 1]

    def _functions(self, columns: frozenset[str]) -> list[int]:
        """Positions of the functions that look at no other columns, the constant first."""
        if columns not in self._within:
            terms = enumerate(self.moments.basis.terms)
            self._within[columns] = [i for i, term in terms if term.columns <= columns]
        return self._within[columns]


@dataclass(frozen=True)
class Residuals:
    """Residuals of many queries of one shape.

    `covariance` `[queries, k]` holds residual covariances, `variance` their covariance V and
    `scale` the scale S, both `[queries, k, k]`.
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
    """Regress functions `x` and `y` on `given`, all `[queries, functions]` of matrix positions.

    `moments`: noisy sums of products `[terms, terms]`, the constant first; `sigma`: noise of each
    entry; `inflation`: factor of the sampling variance.
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
    """Inverse of the regressors' moments `[queries, g, g]`; mostly noisy directions get a ridge."""
    values, vectors = np.linalg.eigh(given)
    spectral = RIDGE * noise * np.sqrt(given.shape[1])
    raised = np.maximum(values, 0.0) + np.where(values < spectral, spectral, 0.0) + 1e-12
    inverse: Floats = vectors / raised[:, None, :] @ np.swapaxes(vectors, 1, 2)
    return inverse


def _noise(a: Floats, b: Floats, inverse: Floats, noise: float) -> Floats:
    """Covariance of a'Eb from the matrix's noise, to second order, `[queries, k, l, k, l]`."""
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


def _positive(matrix: Floats, lower: Floats) -> Floats:
    """The matrix with its eigenvalues raised to at least `lower` `[queries]`."""
    values, vectors = np.linalg.eigh(matrix)
    raised = np.maximum(values, np.maximum(lower, 1e-9)[:, None])
    positive: Floats = (vectors * raised[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return positive


def answers(left: Residuals, *, level: float, margin: float, tolerance: float) -> list[Answer]:
    """Verdict of each query; see the module for the null."""
    root = _root(left.scale)
    inner = root @ np.linalg.solve(left.variance, root)
    lam = np.maximum(np.linalg.eigvalsh(inner), 0.0)
    whitened = np.linalg.solve(left.variance, left.covariance[..., None])
    statistic = np.einsum("qi,qij,qj->q", whitened[..., 0], left.scale, whitened[..., 0])
    first, top = lam.sum(1), lam[:, -1]
    critical, p = _null(lam, tolerance, statistic, level)
    gain = (lam**3).sum(1) / lam.sum(1)
    second = 2 * (lam**2).sum(1)
    effect = np.sqrt(np.maximum(statistic - first, 0.0) / gain)
    upper = np.sqrt(_shift(statistic - first, second, top, norm.isf(level)) / gain)
    detectable = np.sqrt(_shift(critical - first, second, top, norm.isf(1 - POWER)) / gain)
    return listed(p <= level, upper <= margin, (p, statistic, effect, upper, detectable))


def _root(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    roots = np.sqrt(np.maximum(values, 0.0))
    rooted: Floats = (vectors * roots[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return rooted


def _null(lam: Floats, tolerance: float, statistic: Floats, level: float) -> tuple[Floats, Floats]:
    """Critical value and p-value of sum lam (g_i + shift_i)^2.

    The shift has size `tolerance` and the top direction. Moments are matched as in Liu, Tang and
    Zhang, "A new chi-square approximation to the distribution of non-negative definite quadratic
    forms in non-central normal variables" (2009), with a central chi-square.
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
    """Non-centrality x at which the statistic lies z standard deviations above `excess`.

    It solves x - z sqrt(second + 4 scale x) = excess, as `mixture._shift` does, with the largest
    weight as `scale`, which no variance exceeds [derived here, in the normal approximation].
    """
    half = excess + 2 * scale * z**2
    return np.maximum(half + np.sqrt(np.maximum(half**2 - excess**2 + second * z**2, 0.0)), 0.0)
