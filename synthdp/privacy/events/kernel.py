"""Events of this kernel: noise on counts, the sparse vector, the noisy maximum, keys that are told
where their noisy counts reach a threshold, and Gaussian noise on sums.

An event states public scales and sensitivities for units of so many rows, for adding or removing
one unit; what it costs follows from them. All scales are those of noise on whole numbers. Replacing
a unit removes one and adds one: twice what is pure, and for counts and sums what is said there.
"""

from __future__ import annotations

import math
from typing import Any, Self

import attrs
import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters

from synthdp.privacy.events import (
    MAX_MOVED,
    MAX_ROWS,
    UNITS,
    Adjacency,
    EventKind,
    WorkLimits,
    composed,
    discrete_gaussian_pld,
    number,
    positive,
    whole,
)
from synthdp.privacy.events.concentrated import (
    LARGEST_PURE_EPSILON,
    bounded_range_pld,
    concentrated_pld,
    discrete_gaussian_rho,
    pure_pld,
)
from synthdp.privacy.events.gaussian import Gaussian, gaussian


class KernelEvent(EventKind, dp_accounting.DpEvent):  # type: ignore[misc]
    """Written field by field; says what it costs made once, or any number of times. Abstract."""

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return self.repeated(1, adjacency, width)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        fields = {f.name: f.type for f in attrs.fields(cls)}  # types by name: "int" or "float"
        return cls(
            **{k: whole(data[k]) if t == "int" else number(data[k]) for k, t in fields.items()}
        )


@attrs.frozen
class DiscreteGaussianDpEvent(KernelEvent):
    """Discrete Gaussian noise of parameter `sigma` on an integer table that one unit fills with <=
    `sensitivity` counts.

    A unit of one row changes one cell by one under add/remove: a scalar mechanism, whose PLD is
    exact. Under replace-one two cells change by one each: two scalar mechanisms [derived here;
    where both rows share a cell nothing changes]. A unit of k > 1 rows (a group of k units of one)
    may spread its counts over cells in many ways, each of squared L2 distance at most k^2, or 2 k^2
    where k rows leave and k come (`RoundedGaussianDpEvent`). No one of these ways is known to
    dominate the others, but all share one zero-concentrated bound, and `concentrated` makes a PLD
    of it that dominates each of them. Such bounds of many tables add up, and one conversion of the
    sum loses less than many.
    """

    sigma: float
    sensitivity: int = 1

    name = "discrete_gaussian"
    noise = "discrete"

    @property
    def squared_mu(self) -> float:
        return (self.sensitivity / self.sigma) ** 2

    @property
    def table_precision(self) -> float:
        return float(self.sigma) ** -2

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        rho = self.zcdp(adjacency)
        if rho is not None:
            return concentrated_pld(count * rho, width=width)
        once = discrete_gaussian_pld(self.sigma, width=width)
        return composed([(once, count * UNITS[adjacency])])

    def zcdp(self, adjacency: Adjacency) -> float | None:
        """Of units of several rows alone: the cost of one row is known exactly."""
        if self.sensitivity == 1:
            return None
        return discrete_gaussian_rho(
            sigma=self.sigma, squared_distance=UNITS[adjacency] * self.sensitivity**2
        )

    def widened(self, size: int) -> DiscreteGaussianDpEvent:
        return attrs.evolve(self, sensitivity=self.sensitivity * size)

    def too_narrow(self, rows: int) -> str | None:
        return too_few(self.sensitivity, rows)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """At most that of the Gaussian: moved by d under noise s, d^2 / 2 s^2
        (`concentrated.discrete_gaussian_rho`).
        """
        whole(times, limits.tables)
        moved = whole(self.sensitivity, MAX_ROWS)
        # 2e5: of discrete noise, whose distribution is composed count by count
        return times * (moved / positive(self.sigma, 2e5)) ** 2 / 2

    def words(self) -> str:
        return (
            f"discrete Gaussian of sigma {self.sigma:.6g} on counts that a unit moves by at most"
            f" {self.sensitivity}"
        )


@attrs.frozen
class RoundedGaussianDpEvent(KernelEvent):
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

    name = "rounded_gaussian"
    noise = "rounded"

    def noise_multiplier(self, units: int) -> float:
        """Noise over the longest move where one unit comes or goes (1), or one goes and another
        comes (2).
        """
        return self.sigma / (self.sensitivity * math.sqrt(units))

    @property
    def squared_mu(self) -> float:
        return self.noise_multiplier(1) ** -2

    @property
    def table_precision(self) -> float:
        return float(self.sigma) ** -2

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return gaussian(self.noise_multiplier(UNITS[adjacency]), width=width)

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        return attrs.evolve(self, sigma=self.sigma / math.sqrt(count)).cost(adjacency, width)

    def widened(self, size: int) -> RoundedGaussianDpEvent:
        return attrs.evolve(self, sensitivity=self.sensitivity * size)

    def too_narrow(self, rows: int) -> str | None:
        return too_few(self.sensitivity, rows)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """Moved by d under noise s: d^2 / 2 s^2."""
        return times * (whole(self.sensitivity, MAX_ROWS) / positive(self.sigma)) ** 2 / 2

    def words(self) -> str:
        return (
            f"rounded Gaussian of sigma {self.sigma:.6g} on counts that a unit moves by at most"
            f" {self.sensitivity}"
        )


@attrs.frozen
class SparseVectorDpEvent(KernelEvent):
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

    A unit that is replaced costs twice that: P <= e^epsilon R <= e^(2 epsilon) Q through the table
    R without either [derived here].
    """

    threshold_scale: float
    query_scale: float
    sensitivity: int
    rate: float = 1.0
    rows: int = 1

    name = "sparse_vector"
    noise = "laplace"

    @property
    def epsilon(self) -> float:
        """For one unit added or removed."""
        unsampled = self.sensitivity * (1 / self.threshold_scale + 2 / self.query_scale)
        if self.rate == 1 or unsampled > 500:
            return self.rows * unsampled
        return self.rows * math.log1p(self.rate * math.expm1(unsampled))

    @property
    def squared_mu(self) -> float:
        return min(self.epsilon, LARGEST_PURE_EPSILON) ** 2

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        return pure_pld(UNITS[adjacency] * self.epsilon, count, width=width)

    def widened(self, size: int) -> SparseVectorDpEvent:
        return attrs.evolve(self, rows=self.rows * size)

    def too_narrow(self, rows: int) -> str | None:
        return too_few(self.rows, rows, what="a search")

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """Pure epsilon: at most that, without sampling."""
        positive(self.rate, 1)
        whole(times, limits.answers)
        moved = whole(self.rows, MAX_ROWS) * whole(self.sensitivity, MAX_MOVED)
        return times * moved * (1 / positive(self.threshold_scale) + 2 / positive(self.query_scale))

    def words(self) -> str:
        sample = f", on a Poisson sample of rate {self.rate:.6g}" if self.rate < 1 else ""
        return (
            "sparse vector up to its first query above: discrete Laplace of scales"
            f" {self.threshold_scale:.6g} (threshold) and {self.query_scale:.6g} (query) on whole"
            f" numbers that a unit moves by at most {self.sensitivity * self.rows}{sample}"
        )


@attrs.frozen
class GumbelMaxDpEvent(KernelEvent):
    """The index of the largest of some scores after independent Gumbel noise of `scale`.

    That is the exponential mechanism: index i has a chance that goes by exp(score_i / scale)
    [Gumbel's trick]. Adding or removing a unit of `rows` rows moves every score by at most m =
    `rows` * `sensitivity`, so the logarithm of i's chance by (its own move - the same for all i) /
    scale. Own moves lie in [-m, m], so the logarithms of the ratios lie in some interval of length
    `epsilon` = 2 m / scale, wherever it begins: *bounded range* [Durfee and Rogers, "Practical
    Differentially Private Top-k Selection with Pay-what-you-get Composition", arXiv:1905.04273;
    derived here]. `concentrated.bounded_range_pld` says what that costs: less than what is only
    pure with that epsilon. Where a unit is replaced, scores move by at most twice as much, so the
    range is twice as long.
    """

    scale: float
    sensitivity: int
    rows: int = 1

    name = "gumbel_max"
    noise = "maximum"

    @property
    def epsilon(self) -> float:
        """Pure, and length of the range, for one unit added or removed."""
        return 2 * self.rows * self.sensitivity / self.scale

    @property
    def squared_mu(self) -> float:
        return min(self.epsilon, LARGEST_PURE_EPSILON) ** 2 / 4

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        return bounded_range_pld(UNITS[adjacency] * self.epsilon, count, width=width)

    def widened(self, size: int) -> GumbelMaxDpEvent:
        return attrs.evolve(self, rows=self.rows * size)

    def too_narrow(self, rows: int) -> str | None:
        return too_few(self.rows, rows, what="a search")

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """At most the range, and at most an eighth of its square
        (`concentrated.bounded_range_pld`).
        """
        whole(times, limits.answers)
        moved = whole(self.rows, MAX_ROWS) * whole(self.sensitivity, MAX_MOVED)
        spread = 2 * moved / positive(self.scale)
        return times * min(spread, spread**2 / 8)

    def words(self) -> str:
        return (
            f"the largest of scores with Gumbel noise of scale {self.scale:.6g}, whole numbers"
            f" that a unit moves by at most {self.sensitivity * self.rows}"
        )


def too_few(planned: int, rows: int, *, what: str = "a table") -> str | None:
    if planned >= rows:
        return None
    return f"{what} was planned for {planned} rows of a unit; it may have {rows}"


# --- threshold ---


@attrs.frozen
class ThresholdedGaussianDpEvent(KernelEvent):
    """Rounded Gaussian noise of standard deviation `sigma` on the counts of all keys that occur, of
    which those are told whose noisy count reaches a threshold; one unit fills them with <=
    `sensitivity` counts.

    `delta` bounds the probability that any key is told of those that one unit alone has
    (`mechanisms.frequent_texts` has the proof, and computes the threshold that meets it). The event
    costs what the Gaussian does, and with probability `delta` all is lost: twice that where a unit
    is replaced, as each of both may have keys alone [derived here].
    """

    sigma: float
    delta: float
    sensitivity: int = 1

    name = "thresholded_gaussian"

    @property
    def gaussian(self) -> RoundedGaussianDpEvent:
        """The noise on keys that both tables have."""
        return RoundedGaussianDpEvent(self.sigma, self.sensitivity)

    @property
    def squared_mu(self) -> float:
        return self.gaussian.squared_mu

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        lost = pld.from_privacy_parameters(
            DifferentialPrivacyParameters(0.0, self.delta), value_discretization_interval=width
        )
        noisy = self.gaussian.repeated(count, adjacency, width)
        return composed([(noisy, 1), (lost, count * UNITS[adjacency])])

    def widened(self, size: int) -> ThresholdedGaussianDpEvent | None:
        """For a unit of `size` times r = `sensitivity` rows, at the same threshold.

        With c columns, noise s = `sigma` sqrt(c) and z = Q^-1(`delta` / c) the threshold t is such
        that t - 1/2 >= r + s z, and r q(1) <= `delta` / c (`mechanisms.frequent_texts`, with its q
        and Q). Let h = (size - 1) r / s. Where h <= z, t - 1/2 >= size r, and the keys that the
        larger unit has alone are told with probability c max(q(size r), size r q(1)) at most, which
        is max(c Q(z - h), size `delta`) at most. c Q(z - h) is largest for c = 1 where z >= h + 2
        there: with m = density / Q at z, m > z, whose slope is below 1, its logarithm changes with
        log c by 1 - m(z - h) (1 / m + h / 2) <= 1 - (m - h) (1 / m + h / 2) = (h / 2)(2 / m + h -
        m) < 0; and as c grows, z grows and h falls. [derived here]
        """
        from scipy.stats import norm

        low, moved = float(norm.isf(self.delta)), (size - 1) * self.sensitivity / self.sigma
        if low < moved + 2:
            return None
        told = max(float(norm.sf(low - moved)), size * self.delta)
        return attrs.evolve(self, delta=told, sensitivity=self.sensitivity * size)

    def too_narrow(self, rows: int) -> str | None:
        return too_few(self.sensitivity, rows)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """Of the Gaussian: the other part bounds no loss, and takes no work."""
        positive(self.delta, 1)
        return self.gaussian.expected_loss(limits, times)

    def words(self) -> str:
        return (
            f"{self.gaussian.words()}, told where they reach a threshold that counts of one unit"
            f" alone reach with probability {self.delta:.3g} at most"
        )


# --- sums ---


@attrs.frozen
class GaussianSumsDpEvent(KernelEvent):
    """Gaussian noise of `noise_multiplier` times the longest move of a unit that comes or goes, in
    L2; one that is replaced moves the sums by at most `replaced` times that, from 1 to 2.

    Only the length of a move counts (`gaussian.Gaussian`). A unit of k rows that is replaced by one
    of k is k times one row or none replaced by one or none, and moves the sums by at most the k
    moves together: the same `replaced` holds for units of any number of rows, and for groups of
    units [derived here].
    """

    noise_multiplier: float
    replaced: float

    name = "gaussian_sums"
    noise = "lattice"

    def moved(self, adjacency: Adjacency) -> float:
        """The longest move, in units of the noise."""
        return (self.replaced if adjacency == "replace_one" else 1.0) / self.noise_multiplier

    @property
    def squared_mu(self) -> float:
        return float(self.noise_multiplier**-2)

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        together = 1 / (self.moved(adjacency) * math.sqrt(count))
        return Gaussian(dp_accounting.GaussianDpEvent(together)).cost("add_remove", width)

    def widened(self, size: int) -> GaussianSumsDpEvent:
        return attrs.evolve(self, noise_multiplier=self.noise_multiplier / size)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """1 / 2 s^2 under noise s."""
        if not 1 <= number(self.replaced) <= 2:
            raise ValueError(f"a replaced unit that moves {self.replaced:g} times as much")
        once = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        return Gaussian(once).expected_loss(limits, times)

    def words(self) -> str:
        return (
            f"Gaussian of {self.noise_multiplier:.6g} times the most that a unit moves all numbers"
            f" together (in L2), and one that is replaced {self.replaced:.6g} times as much"
        )
