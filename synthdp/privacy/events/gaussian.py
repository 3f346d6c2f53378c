"""Gaussian events of dp-accounting: plain, and on batches that rows join by their own coins.

Each class here holds one event of dp-accounting and gives it the methods of `EventKind`.

The library's distributions of a Gaussian, on a sample too, and of a mixture of Gaussians, are made
here with all losses inverted together. The library inverts the loss, and puts it on a grid, by
calls of Python for each point, which takes most of the time of a plan, and of an account with
groups. Here all points are looked at together: for a mixture by the library's own sums and
rounding, so that every number is the same to its last bit, and for a Gaussian by its formulas
(`tests/privacy/test_mixture.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import (
    AdjacencyType,
    GaussianPrivacyLoss,
    MixtureGaussianPrivacyLoss,
)
from scipy.special import log_ndtr, ndtr

from synthdp.privacy.events import (
    UNITS,
    Adapter,
    Adjacency,
    WorkLimits,
    number,
    positive,
    whole,
)

RELATION = {
    "add_remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": dp_accounting.NeighboringRelation.REPLACE_ONE,
}


def unit_sampled_gaussian(
    *, noise_multiplier: float, rate: float, rows: int, steps: int
) -> dp_accounting.DpEvent:
    """`steps` DP-SGD steps in which each of a unit's `rows` rows joins the batch by its own coin.

    With one row this is the Poisson-subsampled Gaussian. With k rows the number of them in a batch
    is Binomial(k, rate) and each moves the sum by at most the clipping norm: a mixture of Gaussians
    with sensitivities 0..k [Choquette-Choo et al., "Privacy Amplification for Matrix Mechanisms",
    arXiv:2310.15526v2, Lemma 4.5: vector-valued sensitivities are dominated by scalars of their
    norms].

    That lemma, derived here again. Let chance p_i move the sum by the vector c_i, in units of the
    noise. Where no row is, the likelihood ratio of the mixture is L = sum_i p_i exp(|c_i| g_i -
    |c_i|^2 / 2) with standard normals g_i, and all hockey-stick divergences, in both directions,
    are means of convex functions of L. Each summand grows with its
    g_i, so L is largest in convex order where all g_i are one g: there the c_i are scalars. Each
    summand has mean p_i and itself grows in convex order with |c_i|, and so does the sum of
    summands that grow with one g.
    """
    step = _batch(noise_multiplier=noise_multiplier, rate=rate, rows=rows)
    return dp_accounting.SelfComposedDpEvent(step, steps)


def _batch(*, noise_multiplier: float, rate: float, rows: int) -> dp_accounting.DpEvent:
    """One step of `unit_sampled_gaussian`."""
    if rows == 1:
        return dp_accounting.PoissonSampledDpEvent(
            rate, dp_accounting.GaussianDpEvent(noise_multiplier)
        )
    probabilities = [
        math.comb(rows, i) * rate**i * (1 - rate) ** (rows - i) for i in range(rows + 1)
    ]
    return MixtureOfGaussiansDpEvent(
        noise_multiplier, tuple(float(i) for i in range(rows + 1)), tuple(probabilities)
    )


class Gaussian(Adapter):
    """Gaussian noise of `noise_multiplier` times the longest move of a unit, in L2.

    Only the length of a move counts, and a longer one dominates (`unit_sampled_gaussian`, with one
    i of chance one). Where a unit is replaced, what is hidden moves by at most twice as much: half
    the noise. `count` Gaussians of one noise are one with that noise over sqrt(count): moves and
    noises side by side are one move, sqrt(count) times as long, under the same noise
    [derived here].
    """

    name = "gaussian"
    noise = "lattice"

    @property
    def squared_mu(self) -> float:
        return float(self.event.noise_multiplier**-2)

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        return gaussian(self.event.noise_multiplier / UNITS[adjacency], width=width)

    def repeated(
        self, count: int, adjacency: Adjacency, width: float
    ) -> pld.PrivacyLossDistribution:
        once = dp_accounting.GaussianDpEvent(self.event.noise_multiplier / math.sqrt(count))
        return Gaussian(once).cost(adjacency, width)

    def widened(self, size: int) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(float(self.event.noise_multiplier) / size)

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """1 / 2 s^2 under noise s."""
        return times * _bounded_noise(self.event.noise_multiplier) ** -2 / 2

    def to_json(self) -> dict[str, Any]:
        return {"event": self.name, "noise_multiplier": self.event.noise_multiplier}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(number(data["noise_multiplier"]))

    def words(self) -> str:
        return (
            f"Gaussian of {self.event.noise_multiplier:.6g} times the most that a unit moves all"
            " numbers together (in L2)"
        )


class PoissonSampled(Adapter):
    """A Gaussian on a batch that a unit of one row joins by its own coin. Nothing else is sampled
    this way: such an event has no cost and no JSON.

    Where a unit is replaced [derived here]: P = (1-q) N(0) + q N(u) and Q = (1-q) N(0) + q N(v),
    |u| and |v| <= 1 in units of the sensitivity, N of the given noise. The worst are u = -1 and v =
    1 in one dimension: the library's `REPLACE_ONE`. For e >= 0 and e^e = 1 + q (e^t - 1), with H_e
    the hockey-stick divergence of order e^e, H_e(P | Q) = q H_t(N(u) | (1-b) N(0) + b N(v)), b =
    e^(e-t) [Balle, Barthe and Gaboardi, "Privacy Amplification by Subsampling",
    arXiv:1807.01647v2, Theorem 2]. Seen from u, that mixture has moves of lengths at most 1 and 2,
    so that moves 1 and 2 along one line dominate it (`unit_sampled_gaussian`). For e < 0: the same
    with P and Q exchanged.
    """

    name = "poisson_sampled"
    noise = "lattice"

    @property
    def _noise(self) -> float | None:
        inner = self.event.event
        is_gaussian = isinstance(inner, dp_accounting.GaussianDpEvent)
        return inner.noise_multiplier if is_gaussian else None

    @property
    def squared_mu(self) -> float:
        """About that of one of many steps (`privacy.calibration._rough_training`)."""
        once = min((self._noise or math.inf) ** -2, 50.0)
        return float(self.event.sampling_probability**2 * math.expm1(once))

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        if self._noise is None:
            return super().cost(adjacency, width)
        rate = self.event.sampling_probability
        if adjacency == "add_remove":
            return gaussian(self._noise, width=width, rate=rate)
        return pld.from_gaussian_mechanism(
            self._noise,
            value_discretization_interval=width,
            sampling_prob=rate,
            neighboring_relation=RELATION[adjacency],
        )

    def widened(self, size: int) -> dp_accounting.DpEvent | None:
        if self._noise is None:
            return None
        rate = self.event.sampling_probability
        return _batch(noise_multiplier=self._noise, rate=rate, rows=size)

    def too_narrow(self, rows: int) -> str | None:
        if rows == 1:
            return None
        return f"training was planned for one row of a unit; it may have {rows}"

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """Kullback-Leibler divergence is convex in the mixture, and below the Renyi divergence of
        order 2, which is log(1 + q^2 (exp(1 / s^2) - 1)) against no unit.
        """
        whole(times, limits.steps)
        rate = positive(self.event.sampling_probability, 1)
        once = _bounded_noise(self._noise) ** -2
        renyi = math.log1p(rate**2 * math.expm1(once)) if once < 500 else math.inf
        return times * min(rate * once / 2, renyi)

    def to_json(self) -> dict[str, Any]:
        if self._noise is None:
            return super().to_json()
        rate = self.event.sampling_probability
        return {"event": self.name, "rate": rate, "of": Gaussian(self.event.event).to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent:
        inner = data["of"]
        if inner["event"] != Gaussian.name:
            raise ValueError(f"a sample for {str(inner)[:60]}")
        return dp_accounting.PoissonSampledDpEvent(number(data["rate"]), Gaussian.from_json(inner))

    def words(self) -> str:
        return (
            f"Gaussian of {self._noise:.6g} times the clipping norm, on a Poisson sample of rate"
            f" {self.event.sampling_probability:.6g}"
        )


class MixtureOfGaussians(Adapter):
    """A Gaussian on a batch that each of a unit's rows joins by its own coin. Proof:
    `unit_sampled_gaussian`.

    No pair is known that dominates a replaced unit of several sampled rows.
    """

    name = "mixture_of_gaussians"
    noise = "lattice"
    wide_grid = True

    def cost(self, adjacency: Adjacency, width: float) -> pld.PrivacyLossDistribution:
        if adjacency != "add_remove":
            return super().cost(adjacency, width)
        noise, moves = self.event.standard_deviation, self.event.sensitivities
        probabilities = self.event.sampling_probs
        if probabilities[-1] == 1:
            # All rows of a unit join: one Gaussian, of whose mixture the library finds no tail at
            # some noises.
            return gaussian(noise / moves[-1], width=width)
        return mixture_of_gaussians(noise, moves, probabilities, width=width)

    def widened(self, size: int) -> dp_accounting.DpEvent:
        """The rate is that at which none of the unit's rows joins: (1 - rate)^rows."""
        none, *more = self.event.sampling_probs
        rate = -math.expm1(math.log(none) / len(more)) if none > 0 else 1.0
        return _batch(
            noise_multiplier=self.event.standard_deviation, rate=rate, rows=len(more) * size
        )

    def too_narrow(self, rows: int) -> str | None:
        planned = max(self.event.sensitivities)
        if planned >= rows:
            return None
        return f"training was planned for {planned:g} rows of a unit; it may have {rows}"

    def expected_loss(self, limits: WorkLimits, times: int) -> float:
        """Kullback-Leibler divergence is convex in the mixture: the mean of move^2 / 2 s^2."""
        whole(times, limits.steps)
        moves, probabilities = list(self.event.sensitivities), list(self.event.sampling_probs)
        if (
            moves != list(range(limits.rows + 1))
            or len(probabilities) != len(moves)
            or min(probabilities) < 0
            or abs(math.fsum(probabilities) - 1) > 1e-9
        ):
            raise ValueError(f"a mixture over other numbers of rows than 0 to {limits.rows}")
        squared = math.fsum(p * move**2 for p, move in zip(probabilities, moves, strict=True))
        return (
            times
            * squared
            * _bounded_noise(self.event.standard_deviation) ** -2
            / 2
            * 0.1  # of its expected loss, as its grid is ten times as wide
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "event": self.name,
            "noise_multiplier": self.event.standard_deviation,
            "sensitivities": list(self.event.sensitivities),
            "chances": list(self.event.sampling_probs),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> dp_accounting.DpEvent:
        moves, probabilities = data["sensitivities"], data["chances"]
        return MixtureOfGaussiansDpEvent(
            number(data["noise_multiplier"]),
            tuple(map(number, moves)),
            tuple(map(number, probabilities)),
        )

    def words(self) -> str:
        return (
            f"Gaussian of {self.event.standard_deviation:.6g} times the clipping norm, for up to"
            f" {max(self.event.sensitivities):g} rows of a unit, each sampled by its own coin"
        )


def _bounded_noise(value: Any) -> float:
    """A noise multiplier of Gaussians, which must not be next to none."""
    if positive(value) < 0.02:  # of Gaussians, in units of what moves: an epsilon of 100 leaves .08
        raise ValueError(f"a noise of {value:g} is next to none")
    return float(value)


# --- mixture ---


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Booleans = npt.NDArray[np.bool_]

FARTHEST = 700.0  # nats that a 64-bit exponential holds


def gaussian(noise: float, *, width: float, rate: float = 1.0) -> pld.PrivacyLossDistribution:
    """What `from_gaussian_mechanism` of the library gives for a unit added or removed, whose row
    joins by a coin of chance `rate`, on a grid of this width.

    >>> theirs = pld.from_gaussian_mechanism(2.0, value_discretization_interval=1e-2)
    >>> ours = gaussian(2.0, width=1e-2)
    >>> abs(ours.get_epsilon_for_delta(1e-6) / theirs.get_epsilon_for_delta(1e-6) - 1) < 1e-9
    True
    """

    def of(adjacency: AdjacencyType) -> pld_pmf.DensePLDPmf:
        return _dots(_Gaussian(noise, sampling_prob=rate, adjacency_type=adjacency), width)

    removed = of(AdjacencyType.REMOVE)
    if rate == 1:
        return pld.PrivacyLossDistribution(removed)
    return pld.PrivacyLossDistribution(removed, of(AdjacencyType.ADD))


def _dots(loss: Any, width: float) -> pld_pmf.DensePLDPmf:
    """The law of `loss` on a grid of this width, from its delta at each of the grid's points.

    By connect-the-dots [Doroshenko et al., "Connect the Dots", arXiv:2207.04380v1, Algorithm 1], in
    the library's order of sums.

    Raises:
        ValueError: delta grows, as nothing but an error of arithmetic lets it.
    """
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / width), math.ceil(bounds.epsilon_upper / width)
    deltas = np.asarray(loss.get_delta_for_epsilon(np.arange(low, high + 1) * width))
    # 1e-12: of a delta from one epsilon to the next, that rounding may make
    if (np.diff(deltas) > 1e-12).any():
        raise ValueError("delta grows with epsilon")
    deltas = np.minimum.accumulate(deltas)
    falls, wide = np.diff(deltas), math.expm1(width)
    probs = np.empty_like(deltas)
    probs[0] = 1 - deltas[0] + (falls[0] / wide if len(falls) else 0.0)
    if len(falls):
        probs[1:-1] = (falls[1:] - falls[:-1] * math.exp(width)) / wide
        probs[-1] = falls[-1] / math.expm1(-width)
    return pld_pmf.DensePLDPmf(width, low, np.maximum(0.0, probs), deltas[-1], True)


class _Normal:
    """The library's normal distribution, without what it checks at every call."""

    _standard_deviation: float

    def noise_cdf(self, x: Any) -> Any:
        return ndtr(x / self._standard_deviation)

    def noise_log_cdf(self, x: Any) -> Any:
        return log_ndtr(x / self._standard_deviation)


class _Gaussian(_Normal, GaussianPrivacyLoss):  # type: ignore[misc]  # the library has no types
    """The library's Gaussian, whose loss is inverted at all points at once."""

    def get_delta_for_epsilon(self, epsilon: Any) -> Any:
        """Delta at each of the epsilons: P(x) - exp(epsilon) Q(x), where the loss is epsilon at x
        [derived here; the loss is monotone].
        """
        at, rate = np.atleast_1d(np.asarray(epsilon, dtype=np.float64)), self.sampling_prob
        removed = self.adjacency_type == AdjacencyType.REMOVE
        raised = np.expm1(np.minimum(at if removed else -at, FARTHEST)) / rate
        seen = raised > -1  # on a sample no loss is as small, or none as large
        unsampled = np.log1p(np.where(seen, raised, 0.0)) if rate < 1 else at if removed else -at
        beyond = -np.expm1(np.minimum(at, FARTHEST)) if removed else np.zeros(len(at))
        if removed:
            x = self._inverse_privacy_loss_without_subsampling_remove(unsampled)
        else:
            x = self._inverse_privacy_loss_without_subsampling_add(-unsampled)
        inside = self.mu_upper_cdf(x) - np.exp(at + self.mu_lower_log_cdf(x))
        deltas = np.clip(np.where(seen, inside, beyond), 0, 1)
        return deltas if np.ndim(epsilon) else float(deltas[0])


def mixture_of_gaussians(
    noise: float, moves: Sequence[float], probabilities: Sequence[float], *, width: float
) -> pld.PrivacyLossDistribution:
    """What `from_mixture_gaussian_mechanism` of the library gives, on a grid of this width.

    >>> mixture = (2.0, (0.0, 1.0), (0.9, 0.1))
    >>> theirs = pld.from_mixture_gaussian_mechanism(*mixture, value_discretization_interval=1e-2)
    >>> ours = mixture_of_gaussians(*mixture, width=1e-2)
    >>> abs(ours.get_epsilon_for_delta(1e-6) - theirs.get_epsilon_for_delta(1e-6)) < 1e-12
    True
    """

    def of(adjacency: AdjacencyType) -> pld_pmf.DensePLDPmf:
        return _dots(_Mixture(noise, moves, probabilities, adjacency_type=adjacency), width)

    return pld.PrivacyLossDistribution(of(AdjacencyType.REMOVE), of(AdjacencyType.ADD))


class _Mixture(_Normal, MixtureGaussianPrivacyLoss):  # type: ignore[misc]
    """The library's mixture, whose loss is inverted at all points at once."""

    def get_delta_for_epsilon(self, epsilon: Floats) -> Floats:
        """Delta at each of the epsilons, which grow: P(x) - exp(epsilon) Q(x), as for one Gaussian;
        where no loss is as small, 1 - exp(epsilon), and none as large, nothing.
        """
        deltas, removed = np.zeros(len(epsilon)), self.adjacency_type == AdjacencyType.REMOVE
        with np.errstate(divide="ignore"):
            end = np.log1p(-self._sampling_prob)
        seen = epsilon > end if removed else epsilon < -end
        if removed:
            deltas[~seen] = -np.expm1(epsilon[~seen])
        x = self.inverse_privacy_losses(epsilon[seen])
        inside = self.mu_upper_cdf(x) - np.exp(epsilon[seen] + self.mu_lower_log_cdf(x))
        deltas[seen] = inside
        falling: Floats = np.maximum.accumulate(np.clip(deltas, 0, 1)[::-1])[::-1]
        return falling

    def _are_above(self, losses: Floats, points: Floats, place: Integers) -> Booleans:
        """Whether `privacy_loss` is above each of `losses` at its place among `points`.

        Sums are compared to within 1e-12, far above the rounding of some terms, and where that is
        not enough, in the library's order.
        """
        moves = np.asarray(self.sensitivities)[:, None]
        constants = np.asarray(self._precompute_privacy_loss_constants)[:, None]
        sign = 1 if self.adjacency_type == AdjacencyType.ADD else -1

        def terms(at: Floats) -> Floats:
            found: Floats = constants + sign * (moves * at / self._variance)
            return found

        listed = terms(points)
        most = listed.max(axis=0)
        roughly = most + np.log(np.exp(listed - most).sum(axis=0))
        apart = -sign * roughly[place] - losses
        near = np.flatnonzero(~(np.abs(apart) > 1e-12 * (1 + np.abs(losses))))
        exactly = -sign * np.logaddexp.reduce(terms(points[place[near]]))
        apart[near] = exactly - losses[near]
        above: Booleans = apart > 0
        return above

    def _inverse_privacy_losses_with_range(
        self, privacy_losses: Floats, bounds: tuple[float, float], precision: float = 1e-6
    ) -> Floats:
        """For each loss the least multiple of `precision` at which the loss is at most as large."""
        low, high = (np.full(len(privacy_losses), bound, dtype=np.float64) for bound in bounds)
        while len(searched := np.flatnonzero(high - low > precision)):
            middles = (low[searched] + high[searched]) / 2
            new = np.append(True, middles[1:] != middles[:-1])  # neighbours are alike at first
            above = self._are_above(privacy_losses[searched], middles[new], np.cumsum(new) - 1)
            low[searched[above]] = middles[above]
            high[searched[~above]] = middles[~above]
        found: Floats = np.floor(high / precision) * precision
        return found
