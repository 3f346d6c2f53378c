"""Events of this kernel: noise on counts, the sparse vector, and the noisy maximum.

An event states public scales and sensitivities for units of so many rows, for adding or removing
one unit; what it costs follows from them (`privacy.accounting`). All scales are those of noise on
whole numbers. Replacing a unit removes
one and adds one: twice what is pure, and for counts what is said there.
"""

from __future__ import annotations

import math

import attrs
import dp_accounting


@attrs.frozen
class DiscreteGaussianDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """Discrete Gaussian noise of parameter `sigma` on an integer table that one unit fills with <=
    `sensitivity` counts.

    A unit of one row changes one cell by one under add/remove: a scalar mechanism, whose PLD is
    exact. Under replace-one two cells change by one each: two scalar mechanisms [derived here;
    where both rows share a cell nothing changes]. A unit of k > 1 rows (a group of k units of one)
    may spread its counts over cells in many ways, each of squared L2 distance at most k^2, or 2 k^2
    where k rows leave and k come (`RoundedGaussianDpEvent`). No one of these ways is known to
    dominate the others, but all share one zero-concentrated bound, and `concentrated` makes a PLD
    of it that dominates each of them.
    """

    sigma: float
    sensitivity: int = 1


@attrs.frozen
class RoundedGaussianDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """Gaussian noise of standard deviation `sigma`, rounded to whole numbers, on a table that one
    unit fills with <= `sensitivity` counts.

    Counts are whole numbers, so count + round(N) = round(count + N): post-processing of the
    Gaussian mechanism, whose cost goes by the L2 length of the move alone and is exact. For counts
    a, b >= 0 of a unit, over all cells, that add up to
    at most k: |a|^2 <= (sum a)^2 = k^2, reached where all k rows share a cell; and where a leaves
    and b comes |a - b|^2 <= |a|^2 + |b|^2 <= 2 k^2, as their product is nowhere below 0: sqrt(2) k,
    not 2 k [derived here].

    m tables of noise sigma sqrt(m) each are one such event of `sigma`: moves of m tables side by
    side are sqrt(m) times as long at most, under either relation.
    """

    sigma: float
    sensitivity: int = 1

    def noise_multiplier(self, units: int) -> float:
        """Noise over the longest move where one unit comes or goes (1), or one goes and another
        comes (2).
        """
        return self.sigma / (self.sensitivity * math.sqrt(units))


@attrs.frozen
class SparseVectorDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """One pass of the sparse vector over any number of queries, up to and including the first that
    is above.

    The threshold has discrete Laplace noise of scale `threshold_scale`, each query of scale
    `query_scale`; a row moves a query by at most `sensitivity`. The pass sees a Poisson sample:
    each row by its own coin of chance `rate`.

    Without sampling the pass is s (1 / threshold_scale + 2 / query_scale)-DP, s = `sensitivity`
    [Lyu, Su and Li, "Understanding the Sparse Vector Technique for Differential Privacy",
    arXiv:1603.01699v4, Theorem 2 with c = 1 and queries that need not move the same way]. The proof
    shifts the threshold by s and the last query by 2 s; all are whole numbers here, and a shift of
    discrete Laplace noise of scale b by j changes a probability by at most exp(j / b), as for real
    noise.

    With sampling, p-DP becomes log(1 + rate (exp(p) - 1))-DP for one row added or removed [Balle,
    Barthe and Gaboardi, "Privacy Amplification by Subsampling", arXiv:1807.01647v2, Theorem 8].
    `rows` rows are as many single steps, each of which costs that.
    """

    threshold_scale: float
    query_scale: float
    sensitivity: int
    rate: float = 1.0
    rows: int = 1

    @property
    def epsilon(self) -> float:
        """For one unit added or removed."""
        unsampled = self.sensitivity * (1 / self.threshold_scale + 2 / self.query_scale)
        if self.rate == 1 or unsampled > 500:
            return self.rows * unsampled
        return self.rows * math.log1p(self.rate * math.expm1(unsampled))


@attrs.frozen
class GumbelMaxDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """The index of the largest of some scores after independent Gumbel noise of `scale`.

    That is the exponential mechanism: index i has a chance that goes by exp(score_i / scale)
    [Gumbel's trick]. Adding or removing a unit of `rows` rows moves every score by at most m =
    `rows` * `sensitivity`, so the logarithm of i's chance by (its own move - the same for all i) /
    scale. Own moves lie in [-m, m], so the logarithms of the ratios lie in some interval of length
    `epsilon` = 2 m / scale, wherever it begins: *bounded range* [Durfee and Rogers, "Practical
    Differentially Private Top-k Selection with Pay-what-you-get Composition", arXiv:1905.04273;
    derived here]. `concentrated.bounded_range_pld` says what that costs: less than what is only
    pure with that epsilon.
    """

    scale: float
    sensitivity: int
    rows: int = 1

    @property
    def epsilon(self) -> float:
        """Pure, and length of the range, for one unit added or removed."""
        return 2 * self.rows * self.sensitivity / self.scale
