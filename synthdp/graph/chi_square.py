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
without noise it is Pearson's statistic. `Mixture` says its null law.

Where other tables tell the margins A and B of the same rows with less noise, of variances p^2 and
q^2 a level, they stand in for the table's own (`Margins`): D = N - A b' - a B' + n a b' has the
same sampling, and in contrasts, where a and b are what is left of the shares, the noise

    s^2 I (x) I  +  q^2 a a' (x) I  +  p^2 I (x) b b'  +  t^2 a a' (x) b b',

t^2 that of n, by all those tables [derived here: a contrast has no part of a sum, so that no two
terms share noise]. That is s^2 K_a (x) K_b with K_a
= I + (q / s)^2 a a' and K_b alike, and of the last term what lies above the product of both. Its
matrix g g' is at most the diagonal |g_i| sum |g_j| [Cauchy and Schwarz], which is added; by
Anderson's inequality more variance makes the test conservative. So the noise of a margin no longer
grows with the number of cells that it sums.

Sparse coordinates get a variance of at least one count, and all get the second-order term of the
margins' noise; both can only make the test conservative. Effects assume a dependence that is spread
evenly over the coordinates, so that for larger tables they are orders of magnitude rather than
exact. Strata too small for the first-order covariance to hold are left out; if they contain much of
the table, the test never claims independence. All of this is post-processing of released tables.

And the generalised Mantel-Haenszel test, from three noisy tables: X-Y, X-Z and Y-Z.

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
(second order) is bounded and counted as noise. The weights are as above: without noise
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import helmert
from scipy.special import chdtrc, chdtri, ndtr, ndtri

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
POWER = 0.8
"""Probability of detection that defines a detectable effect."""
Verdict = Literal["dependent", "independent", "undecided"]
Query = tuple[str, str, tuple[str, ...]]
"""Are the first two columns independent given the columns of the third?"""


@dataclass(frozen=True)
class Answer:
    """Result of one test: dependent, independent up to a stated effect, or undecided.

    Effects are on Cohen's w scale: 0 is independence, .1 small, .3 medium, .5 large. `effect_upper`
    is an approximate upper confidence bound of the effect. `detectable` is about the smallest
    effect that this test, at its noise, finds with probability .8. Both rest on a normal
    approximation that takes a dependence to be spread over the test's coordinates: one that sits in
    the coordinates of largest weight varies more, and may lie above `effect_upper` more often than
    the test's level says (`shift`), and one among rare levels, which noise hides, often does. Both
    are infinite where the tables give no information.
    """

    verdict: Verdict
    p_value: float
    statistic: float
    effect: float
    effect_upper: float
    detectable: float

    def to_json(self) -> dict[str, float | str | None]:
        """JSON object; infinite bounds become null."""
        fields = asdict(self)
        fields["smallest_detectable_effect"] = fields.pop("detectable")
        return {k: v if k == "verdict" or math.isfinite(v) else None for k, v in fields.items()}


@dataclass(frozen=True)
class Margins:
    """Margins of tables without strata, from other tables of the same rows.

    `rows` `[tests, rows]`, `columns` `[tests, columns]` and `total` `[tests]` are noisy counts, and
    `sigmas` their noise per level, `[tests]` each; it is independent of that of the tables.
    """

    rows: Floats
    columns: Floats
    total: Floats
    sigmas: tuple[Floats, Floats, Floats]


def mixture_of(tables: Floats, sigma: Floats, margins: Margins | None = None) -> Mixture:
    """The statistic and weights of each test of tables of one shape.

    `tables`: noisy counts, `[tests, strata, rows, columns]`; `sigma`: noise per cell, `[tests]`.
    """
    tables, sigma = np.asarray(tables, dtype=np.float64), np.asarray(sigma, dtype=np.float64)
    rows, columns = tables.shape[-2:]
    noise = np.broadcast_to(sigma[:, None], tables.shape[:2])
    total = tables.sum((-2, -1))
    # A stratum counts if its noisy total is 3 standard deviations of its noise, and 5 rows.
    counted = total >= np.maximum(3 * noise * np.sqrt(rows * columns), 5)
    n = np.where(counted, total, 1.0)
    if margins is None:
        of_row, of_column = tables.sum(-1), tables.sum(-2)
        by_row, by_column = _shares(tables, n, noise)
        # Second order: the product of both margins' errors.
        rank_one = n * np.linalg.norm(by_row, axis=-1) * np.linalg.norm(by_column, axis=-1)
        left, lam = _axes(by_row, rows * np.ones_like(n))
        right, mu = _axes(by_column, columns * np.ones_like(n))
        extra = (noise**2 + noise**4 / rank_one**2)[..., None, None]
    else:
        of_row, of_column = margins.rows[:, None], margins.columns[:, None]
        by_row, by_column = normal(of_row), normal(of_column)
        p2, q2, t2 = (np.square(s)[:, None] for s in margins.sigmas)
        s2, total = np.maximum(noise**2, 1e-9), margins.total[:, None]
        counted = total >= np.maximum(3 * np.sqrt(t2), 5)
        n = np.where(counted, total, 1.0)
        left, lam = _axes(by_row, q2 / s2)
        right, mu = _axes(by_column, p2 / s2)
        g = [np.abs((w @ a[..., None])[..., 0]) for w, a in ((left, by_row), (right, by_column))]
        sums = np.maximum(t2 - p2 * q2 / s2, 0.0) * g[0].sum(-1) * g[1].sum(-1)
        extra = sums[..., None, None] * g[0][..., :, None] * g[1][..., None, :]
        extra += (noise**2 + p2 * q2 / n**2)[..., None, None]
    residual = (
        tables
        - by_row[..., :, None] * of_column[..., None, :]
        - of_row[..., :, None] * by_column[..., None, :]
        + total[..., None, None] * by_row[..., :, None] * by_column[..., None, :]
    )
    y = left @ residual @ np.swapaxes(right, -1, -2)
    sampling = n[..., None, None] * lam[..., :, None] * mu[..., None, :]
    variance = np.maximum(sampling + extra, 1.0)
    live = counted[..., None, None] & (sampling > 0)
    min_sampling = np.where(noise[..., None, None] > 0, 0.0, 1.0)
    weight = np.where(live, np.maximum(sampling, min_sampling) / variance, 0.0)
    axes = (1, 2, 3)
    freedom = max((rows - 1) * (columns - 1), 1)
    gain = (weight * n[..., None, None] * sampling / variance).sum(axes) / freedom
    coverage = np.where(counted, total, 0.0).sum(1) / np.maximum(total.sum(1), 1.0)
    statistic = (weight * y**2 / variance).sum(axes)
    most = math.sqrt(min(rows, columns) - 1)  # Cohen's w where each row has one column
    return Mixture(statistic, weight.reshape(len(weight), -1), gain, coverage, most)


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


def _axes(share: Floats, margin: Floats) -> tuple[Floats, Floats]:
    """W with W M W' = 1 and W S W' = diag(l), and l, for shares a `[..., levels]`.

    M is 1 + `margin` a a' in contrasts: by the table's own margins `margin` is their length.
    """
    levels = share.shape[-1]
    basis = helmert(levels).T
    q = share @ basis
    spread = np.einsum("ki,...k,kj->...ij", basis, share, basis) - q[..., :, None] * q[..., None, :]
    metric = np.eye(levels - 1) + margin[..., None, None] * q[..., :, None] * q[..., None, :]
    lower = np.linalg.inv(np.linalg.cholesky(metric))
    lam, u = np.linalg.eigh(lower @ spread @ np.swapaxes(lower, -1, -2))
    return np.swapaxes(u, -1, -2) @ lower @ basis.T, np.maximum(lam, 0.0)


@dataclass(frozen=True)
class Mixture:
    """Statistics that are weighted sums of squares, of many tests, and their weights.

    Every noise-aware test ends in uncorrelated coordinates y_i of variance 1, of which a share f_i
    is sampling and the rest is known noise. Its statistic is sum f_i y_i^2, so that coordinates
    that are mostly noise get little weight. Its null law, a weighted sum of chi-squares, is matched
    in three moments [Buckley and Eagleson, "An approximation to the distribution of quadratic forms
    in normal random variables", Australian Journal of Statistics 30A (1988)]. Far out in the tail,
    where the largest weight dominates and three moments make a rare value too rare, the tail is the
    saddlepoint approximation [Kuonen, "Saddlepoint approximations for distributions of quadratic
    forms in normal variables", Biometrika 86 (1999), section 2].

    `statistic` `[tests]`; `weights` `[tests, coordinates]`; `gain` `[tests]`: what a squared effect
    of 1 adds to the statistic (0: the test is undecided); `coverage` `[tests]`: the share of the
    table in strata that count; `largest`: the largest effect that tables of this shape can have.
    """

    statistic: Floats
    weights: Floats
    gain: Floats
    coverage: Floats
    largest: float = math.inf

    def moment(self, power: int) -> Floats:
        """Sum of a power of the weights, `[tests]`."""
        return np.asarray((self.weights**power).sum(1))


def answers(m: Mixture, *, level: float, margin: float) -> list[Answer]:
    """The answer of each test at its `level`.

    An upper bound of the effect below `margin` counts as evidence for independence. Variances are
    bounds: a statistic that is improbably low (p > .999) says that they were taken too large, and
    bounds an effect as one at its mean does.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second, third = map(m.moment, (1, 2, 3))
        nu = second**3 / third**2
        scale = np.sqrt(second / nu)
        excess = m.statistic - first
        p = np.where(m.gain > 0, chdtrc(nu, np.maximum(nu + excess / scale, 0.0)), 1.0)
        # Equal weights are a chi-square, which three moments match exactly.
        unequal = second**2 < (1 - 1e-9) * first * third
        far = (p < 0.02) & unequal
        p[far] = upper_tail(m.statistic[far], m.weights[far])
        critical = (chdtri(nu, level) - nu) * scale
        effect = np.minimum(np.sqrt(np.maximum(excess, 0.0) / m.gain), m.largest)
        seen = np.where(p > 0.999, np.maximum(excess, 0.0), excess)
        upper = np.sqrt(shift(seen, second, scale, -ndtri(level)) / m.gain)
        detectable = np.sqrt(shift(critical, second, scale, ndtri(POWER)) / m.gain)
    silent = ~(m.gain > 0)
    effect = np.where(silent, 0.0, effect)
    upper, detectable = (
        np.where(silent | (bound > m.largest), np.inf, bound) for bound in (upper, detectable)
    )
    # Independence is claimed only if the strata that count contain most of the table.
    independent = (upper <= margin) & (m.coverage >= 0.8)
    return listed(p <= level, independent, (p, m.statistic, effect, upper, detectable))


def listed(dependent: Mask, independent: Mask, figures: Sequence[Floats]) -> list[Answer]:
    """One answer per test from two masks `[tests]` and the figures of `Answer`, `[tests]` each.

    A test with both masks false is undecided; `dependent` goes before `independent`.
    """
    verdicts: list[Verdict] = np.where(
        dependent, "dependent", np.where(independent, "independent", "undecided")
    ).tolist()
    rows = zip(*figures, strict=True)
    return [Answer(v, *map(float, row)) for v, row in zip(verdicts, rows, strict=True)]


def upper_tail(x: Floats, weights: Floats) -> Floats:
    """P(sum_i w_i chi^2_i > x) by the saddlepoint approximation.

    `x` `[tests]` lies above the mean; the weights `[tests, coordinates]` are >= 0. With K(t) = -1/2
    sum log(1 - 2 t w_i) and K'(t) = x it is 1 - Phi(r + log(v / r) / r), r = sqrt(2 (t x - K)), v =
    t sqrt(K'').
    """
    top = weights.max(1)
    w, x = weights / top[:, None], x / top
    t = _halved(len(x), lambda t: (w / (1 - 2 * t[:, None] * w)).sum(1) < x)
    return _saddlepoint(w, t)[1]


def _halved(tests: int, below: Callable[[Floats], Mask]) -> Floats:
    """Where `below` ends on [0, 1/2], on which K' grows from the mean to infinity, `[tests]`."""
    low, high = np.zeros(tests), np.full(tests, 0.5)
    for _ in range(60):
        t = (low + high) / 2
        still = below(t)
        low, high = np.where(still, t, low), np.where(still, high, t)
    return np.asarray((low + high) / 2)


def weakest_effects(m: Mixture, *, level: float, rng: np.random.Generator) -> Floats:
    """The effect (Cohen's w) that each test at its `level` sees with probability .8, `[tests]`.

    Infinite where a test sees nothing. The effect lies in a random direction of the coordinates: by
    w it shifts coordinate i by w sqrt(n f_i) c_i, where c is uniform on the unit sphere, and n
    follows from `gain`. The statistic is then A + 2 B w + C w^2, with A = sum f_i z_i^2, B = sum
    f_i^(3/2) sqrt(n) c_i z_i, C = n sum f_i^2 c_i^2 and normal z [derived here], so that each of
    200 draws of z and c has a least w at which it passes the critical value. The answer is the .8
    quantile of these, whose power is known to .03 (one sd): `Answer.detectable` is its normal
    approximation, and is too low where few coordinates have most of the weight.
    """
    f, count = m.weights, m.weights.shape[1]
    z, c = rng.standard_normal((2, 200, count))
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    silent = ~(m.gain > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        n = (m.gain * count / m.moment(2))[:, None]
        central, mixed = f @ (z**2).T, np.sqrt(n) * (f**1.5 @ (c * z).T)
        square = n * (f**2 @ (c**2).T)
        # The value that sum f_i chi^2_i exceeds with the probability `level`.
        w = f / f.max(1)[:, None]
        t = _halved(len(w), lambda t: _saddlepoint(w, t)[1] > level)
        critical = f.max(1) * _saddlepoint(w, t)[0]
        lacking = np.maximum(critical[:, None] - central, 0.0)
        least = (np.sqrt(mixed**2 + square * lacking) - mixed) / square
    found = np.quantile(np.where(lacking > 0, least, 0.0), POWER, axis=1)
    return np.where(silent | (found > m.largest), np.inf, found)


def _saddlepoint(w: Floats, t: Floats) -> tuple[Floats, Floats]:
    """x = K'(t) and the probability that sum_i w_i chi^2_i exceeds it (`upper_tail`)."""
    rest = 1 - 2 * t[:, None] * w
    x = (w / rest).sum(1)
    r = np.sqrt(2 * (t * x + np.log(rest).sum(1) / 2))
    v = t * np.sqrt(2 * (w**2 / rest**2).sum(1))
    return x, ndtr(-(r + np.log(v / r) / r))


def shift(excess: Floats, second: Floats, scale: Floats, z: float) -> Floats:
    """Non-centrality x at which the statistic lies z standard deviations above `excess`.

    It solves x - z sqrt(2 second + 4 scale x) = excess. [Derived here, in the normal approximation:
    shifted coordinates add x = sum f_i s_i^2 to the mean and 4 sum f_i^2 s_i^2 to the variance,
    which is 4 scale x for the typical weight `scale` = c3 / c2. It is 4 max(f) x where all of the
    shift sits in the heaviest coordinate, so that a bound from the typical weight is approximate.
    The larger root of the squared equation.]
    """
    half = excess + 2 * scale * z**2
    return np.maximum(half + np.sqrt(np.maximum(half**2 - excess**2 + 2 * second * z**2, 0.0)), 0.0)


def normal(weights: Floats) -> Floats:
    """Weights scaled to sum to 1 over the last axis; negative ones count as 0.

    The result is uniform if no weight is positive.

    >>> normal(np.array([3.0, 1.0, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    positive = np.maximum(weights, 0.0)
    total = positive.sum(-1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1.0), 1.0 / weights.shape[-1])


def kron(left: Floats, right: Floats) -> Floats:
    """Kronecker products of matrices `[tests, i, i]` and `[tests, k, k]`."""
    size = left.shape[1] * right.shape[1]
    return np.asarray(np.einsum("tij,tkl->tikjl", left, right).reshape(len(left), size, size))


def with_eigenvalues(matrices: Floats, change: Callable[[Floats], Floats]) -> Floats:
    """Symmetric matrices `[tests, i, i]` with their eigenvalues changed."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray((vectors * change(values)[:, None, :]) @ np.swapaxes(vectors, 1, 2))


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


def partial_mixture(t: Tables, max_contrasts: int = 144) -> Mixture:
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
    a, b = _strata_shares(left, noise_left), _strata_shares(right, noise_right)
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


def _strata_shares(counts: Floats, noise: Floats) -> Floats:
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
    return np.asarray(raw - q[..., :, None] * q[..., None, :])


def _kron(left: Floats, right: Floats) -> Floats:
    """Sum over strata of Kronecker products."""
    tests, strata, i, k = *left.shape[:3], right.shape[2]
    flat = np.swapaxes(left.reshape(tests, strata, -1), 1, 2) @ right.reshape(tests, strata, -1)
    return flat.reshape(tests, i, i, k, k).transpose(0, 1, 3, 2, 4).reshape(tests, i * k, i * k)
