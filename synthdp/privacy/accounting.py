"""What a list of events costs: composition by privacy loss distributions (PLD).

An event (`dp_accounting.DpEvent`) says what was done; this module says what it costs. Composition
uses Google's dp-accounting PLDs with its pessimistic (connect-the-dots) discretisation, so every
epsilon is an upper bound [Doroshenko et al., "Connect the Dots", arXiv:2207.04380v1, Theorem 3.2
and Corollary 3.3].

Events that dp-accounting lacks are those of `privacy.events`. The sparse vector is pure epsilon-DP:
randomised response dominates all such [Kairouz, Oh and Viswanath, "The Composition Theorem for
Differential Privacy", arXiv:1311.0776v4, Theorem 3.2], also where later mechanisms are chosen in
the light of earlier results, as long as their events are not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Literal

import attrs
import dp_accounting
import numpy as np
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from scipy.special import gammaln

from synthdp.errors import BudgetError
from synthdp.privacy.concentrated import bounded_range_pld, concentrated_pld, discrete_gaussian_rho
from synthdp.privacy.events import DiscreteGaussianDpEvent as DiscreteGaussianDpEvent
from synthdp.privacy.events import GumbelMaxDpEvent, SparseVectorDpEvent
from synthdp.privacy.events import RoundedGaussianDpEvent as RoundedGaussianDpEvent

Adjacency = Literal["add_remove", "replace_one"]
# Widths of the loss grid. A wider grid costs tightness, never soundness; the mixture of Gaussians
# inverts its loss numerically at every point of the grid, so it gets a wider one, and all that is
# composed with it.
FINE, COARSE = 1e-4, 1e-3
# A mixture has one component for each row of a group, and its PLD takes seconds beyond this many;
# larger groups get the generic group bound.
MAX_GROUP_ROWS = 20
LARGEST_EPSILON, SMALLEST_EPSILON = 600.0, 1e-6
# The library wants deltas below one, so that mechanisms without protection were given 1 - 1e-9 or
# more. Deltas above this are rounded up to one again, and none above it is asked for: both are
# upper bounds.
LARGEST_DELTA = 1 - 1e-8
REMEMBERED = 8  # compositions, of some megabytes each
# Squared Gaussian mu up to which the grid is fine: beyond it epsilons are above twenty, and a fine
# grid takes minutes.
MAX_FINE = 25.0
UNITS: dict[Adjacency, int] = {"add_remove": 1, "replace_one": 2}  # that differ
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
    if rows == 1:
        step = dp_accounting.PoissonSampledDpEvent(
            rate, dp_accounting.GaussianDpEvent(noise_multiplier)
        )
    else:
        probabilities = [
            math.comb(rows, i) * rate**i * (1 - rate) ** (rows - i) for i in range(rows + 1)
        ]
        step = MixtureOfGaussiansDpEvent(
            noise_multiplier, tuple(float(i) for i in range(rows + 1)), tuple(probabilities)
        )
    return dp_accounting.SelfComposedDpEvent(step, steps)


def compose(
    events: Iterable[dp_accounting.DpEvent], adjacency: Adjacency
) -> pld.PrivacyLossDistribution:
    """The PLD of all `events` together.

    Pairs of distributions that dominate each mechanism whatever came before dominate, as a product,
    all of them together, also where later ones are chosen in the light of earlier results [Zhu,
    Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function",
    arXiv:2106.08567v3, Theorem 10].

    Raises:
        BudgetError: an event has no sound PLD under this adjacency.
    """
    return _remembered(tuple(events), adjacency)


@lru_cache(maxsize=REMEMBERED)
def _remembered(
    listed: tuple[dp_accounting.DpEvent, ...], adjacency: Adjacency
) -> pld.PrivacyLossDistribution:
    """The same events are asked for again and again: for epsilon, for the profile, for groups of
    one. Nobody changes what is returned.
    """
    width = (
        COARSE
        if any(_has_mixture(e) for e in listed) or sum(map(_squared_loss, listed)) > MAX_FINE
        else FINE
    )
    total = pld.identity(value_discretization_interval=width)
    for event in listed:
        total = total.compose(_pld(event, adjacency, width))
    return total


def _squared_loss(event: dp_accounting.DpEvent) -> float:
    """About the squared mu of a Gaussian mechanism as costly; 0 for events that are sampled or on
    tables.
    """
    match event:
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            return float(count * _squared_loss(inner))
        case dp_accounting.ComposedDpEvent(events=parts):
            return sum(map(_squared_loss, parts))
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            return float(noise**-2)
        case RoundedGaussianDpEvent():
            return event.noise_multiplier(1) ** -2
        case SparseVectorDpEvent():
            return min(event.epsilon, LARGEST_EPSILON) ** 2
        case GumbelMaxDpEvent():
            return min(event.epsilon, LARGEST_EPSILON) ** 2 / 4
    return 0.0


def _has_mixture(event: dp_accounting.DpEvent) -> bool:
    inner = [event.event] if hasattr(event, "event") else getattr(event, "events", [])
    return isinstance(event, MixtureOfGaussiansDpEvent) or any(_has_mixture(e) for e in inner)


@lru_cache(maxsize=64)
def _pld(
    event: dp_accounting.DpEvent, adjacency: Adjacency, width: float
) -> pld.PrivacyLossDistribution:
    """A PLD that dominates one event, for a unit that is added or removed, or for one that is
    replaced.

    Events state what adding or removing a unit does. Replacing it is removing one and adding
    another [derived here]:

    pure epsilon    P <= e^epsilon R <= e^(2 epsilon) Q through the table R without either: twice
    epsilon.
    Gaussian        what is hidden moves by at most twice as much in L2: half the noise. Only the
    length of a move
                    counts, and a longer one dominates (`unit_sampled_gaussian`, with one i of
                    chance one).
    sampled         P = (1-q) N(0) + q N(u) and Q = (1-q) N(0) + q N(v), |u| and |v| <= 1 in units
    of the sensitivity,
                    N of the given noise. The worst are u = -1 and v = 1 in one dimension: the
                    library's `REPLACE_ONE`. For e >= 0 and e^e = 1 + q (e^t - 1), with H_e the
                    hockey-stick divergence of order e^e, H_e(P | Q) = q H_t(N(u) | (1-b) N(0) + b
                    N(v)), b = e^(e-t) [Balle, Barthe and Gaboardi, "Privacy Amplification by
                    Subsampling", arXiv:1807.01647v2, Theorem 2]. Seen from u, that mixture has
                    moves of lengths at most 1 and 2, so that moves 1 and 2 along one line dominate
                    it (`unit_sampled_gaussian`). For e < 0: the same with P and Q exchanged.

    bounded range   scores move by at most twice as much, so the range is twice as long.

    For counts see `privacy.events`; no pair is known for a replaced unit of several sampled rows.
    """
    match event:
        case dp_accounting.NoOpDpEvent():
            return pld.identity(value_discretization_interval=width)
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            if isinstance(inner, DiscreteGaussianDpEvent) and inner.sensitivity > 1:
                return _spread_counts({inner: count}, adjacency, width)
            return _repeated(inner, count, adjacency, width)
        case dp_accounting.ComposedDpEvent(events=parts):
            return _composed(parts, adjacency, width)
        case SparseVectorDpEvent() | GumbelMaxDpEvent():
            return _repeated(event, 1, adjacency, width)
        case RoundedGaussianDpEvent():
            return pld.from_gaussian_mechanism(
                event.noise_multiplier(UNITS[adjacency]), value_discretization_interval=width
            )
        case DiscreteGaussianDpEvent(sensitivity=sensitivity) if sensitivity > 1:
            return _spread_counts({event: 1}, adjacency, width)
        case DiscreteGaussianDpEvent(sigma=sigma):
            once = pld.from_discrete_gaussian_mechanism(
                sigma, sensitivity=1, value_discretization_interval=width
            )
            return once if adjacency == "add_remove" else once.self_compose(2)
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            return pld.from_gaussian_mechanism(
                noise / UNITS[adjacency], value_discretization_interval=width
            )
        case dp_accounting.PoissonSampledDpEvent(
            sampling_probability=rate, event=dp_accounting.GaussianDpEvent(noise_multiplier=noise)
        ):
            return pld.from_gaussian_mechanism(
                noise,
                value_discretization_interval=width,
                sampling_prob=rate,
                neighboring_relation=RELATION[adjacency],
            )
        case MixtureOfGaussiansDpEvent(
            standard_deviation=noise, sensitivities=moves, sampling_probs=probabilities
        ) if adjacency == "add_remove":
            if (
                probabilities[-1] == 1
                # all rows of a unit join: one Gaussian, of whose mixture the library finds no tail
                # at some noises
            ):
                return pld.from_gaussian_mechanism(
                    noise / moves[-1], value_discretization_interval=width
                )
            return pld.from_mixture_gaussian_mechanism(
                noise, moves, probabilities, value_discretization_interval=width
            )
    raise BudgetError(
        f"no sound accounting for {type(event).__name__} under adjacency {adjacency}",
        hint="use adjacency add_remove",
    )


def _repeated(
    event: dp_accounting.DpEvent, count: int, adjacency: Adjacency, width: float
) -> pld.PrivacyLossDistribution:
    """`count` times the same event; in closed form where there is one, so that nothing is rounded
    `count` times.

    `count` Gaussians of one noise are one with that noise over sqrt(count) [derived here: moves and
    noises side by side are one move, sqrt(count) times as long, under the same noise]; pure ones
    are `_randomised_responses`, and those of bounded range `bounded_range_pld`.
    """
    match event:
        case dp_accounting.ComposedDpEvent(events=parts):
            each = tuple(dp_accounting.SelfComposedDpEvent(part, count) for part in parts)
            return _pld(dp_accounting.ComposedDpEvent(each), adjacency, width)
        case SparseVectorDpEvent():
            return _randomised_responses(UNITS[adjacency] * event.epsilon, count, width)
        case GumbelMaxDpEvent():
            return bounded_range_pld(UNITS[adjacency] * event.epsilon, count, width=width)
        case RoundedGaussianDpEvent(sigma=sigma, sensitivity=sensitivity):
            return _pld(
                RoundedGaussianDpEvent(sigma / math.sqrt(count), sensitivity), adjacency, width
            )
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            return _pld(dp_accounting.GaussianDpEvent(noise / math.sqrt(count)), adjacency, width)
    return _pld(event, adjacency, width).self_compose(count)


def _randomised_responses(pure: float, count: int, width: float) -> pld.PrivacyLossDistribution:
    """`count` answers, each true with odds exp(`pure`): the number of true ones is binomial, and i
    of them lose (2 i - count) pure.

    Losses that no epsilon reaches count as endless, and gains beyond them as no larger.
    """
    if pure > LARGEST_EPSILON:
        none = DifferentialPrivacyParameters(
            LARGEST_EPSILON, 1 - 1e-12
        )  # the library wants a delta below one
        return pld.from_privacy_parameters(none, value_discretization_interval=width)
    i = np.arange(count + 1)
    loss = np.maximum((2 * i - count) * pure, -LARGEST_EPSILON)
    upper = (
        gammaln(count + 1)
        - gammaln(i + 1)
        - gammaln(count - i + 1)
        + i * pure
        - count * np.logaddexp(0, pure)
    )
    lower = {k: float(v) for k, v in enumerate(upper - loss) if loss[k] <= LARGEST_EPSILON}
    return pld.from_two_probability_mass_functions(
        lower, dict(enumerate(upper.tolist())), value_discretization_interval=width
    )


def _composed(
    parts: Sequence[dp_accounting.DpEvent], adjacency: Adjacency, width: float
) -> pld.PrivacyLossDistribution:
    """All `parts`; the same event is composed once for all its repeats, and tables of units of
    several rows in one go.
    """
    counts: Counter[dp_accounting.DpEvent] = Counter()
    for part in parts:
        inner, count = (
            (part.event, part.count)
            if isinstance(part, dp_accounting.SelfComposedDpEvent)
            else (part, 1)
        )
        counts[inner] += count
    spread = {
        e: n
        for e, n in counts.items()
        if isinstance(e, DiscreteGaussianDpEvent) and e.sensitivity > 1
    }
    each = [
        _pld(dp_accounting.SelfComposedDpEvent(e, n), adjacency, width)
        for e, n in counts.items()
        if e not in spread
    ]
    together = [_spread_counts(spread, adjacency, width)] if spread else []
    return reduce(
        lambda total, one: total.compose(one),
        [*each, *together],
        pld.identity(value_discretization_interval=width),
    )


def _spread_counts(
    tables: Mapping[DiscreteGaussianDpEvent, int], adjacency: Adjacency, width: float
) -> pld.PrivacyLossDistribution:
    """So many tables of each event, in each of which a unit of several rows has put its counts into
    whatever cells.

    Squared distances are those that `DiscreteGaussianDpEvent` proves. Their Rényi bounds add up,
    and one conversion of the sum loses less than many; the rest is proved by
    `discrete_gaussian_rho` and `concentrated_pld`.
    """
    rho = math.fsum(
        n
        * discrete_gaussian_rho(sigma=e.sigma, squared_distance=UNITS[adjacency] * e.sensitivity**2)
        for e, n in tables.items()
    )
    return concentrated_pld(rho, width=width)


def epsilon(
    events: Iterable[dp_accounting.DpEvent], *, delta: float, adjacency: Adjacency
) -> float:
    """Smallest epsilon with (epsilon, delta)-DP for all events together."""
    return float(compose(events, adjacency).get_epsilon_for_delta(min(delta, LARGEST_DELTA)))


def delta_profile(
    events: Iterable[dp_accounting.DpEvent], *, epsilons: Sequence[float], adjacency: Adjacency
) -> tuple[tuple[float, float], ...]:
    """(epsilon, delta) pairs: the whole trade-off, from which ceilings on attacks follow."""
    composed = compose(events, adjacency)
    return tuple((e, _delta_at(composed, e)) for e in epsilons)


def _delta_at(composed: pld.PrivacyLossDistribution, at: float) -> float:
    delta = float(composed.get_delta_for_epsilon(at))
    return delta if delta <= LARGEST_DELTA else 1.0


def group_epsilon(
    events: Sequence[dp_accounting.DpEvent], *, size: int, delta: float, adjacency: Adjacency
) -> float:
    """Epsilon at `delta` for any group of `size` units, by group privacy on the composed profile.

    A chain of `size` neighbours gives (k e, d (exp(k e) - 1)/(exp(e) - 1)) from (e, d) [Vadhan,
    "The Complexity of Differential Privacy" (2017), Lemma 2.2, summed exactly: the i-th step adds
    d, which the i - 1 steps before it have made exp((i - 1) e) times as large]; the smallest e
    whose inflated delta stays below `delta` is found by bisection on the profile of the
    composition.
    """
    if size == 1:
        return epsilon(events, delta=delta, adjacency=adjacency)
    composed = compose(events, adjacency)

    def inflated(e: float) -> float:
        if size * e > 700:
            return math.inf
        factor = math.expm1(size * e) / math.expm1(e) if e > 0 else float(size)
        return _delta_at(composed, e) * factor

    if inflated(0.0) <= delta:
        return 0.0
    # Where delta pays for one unit and not for all, epsilon is 0, which doubling would never leave.
    low, high = 0.0, max(epsilon(events, delta=delta, adjacency=adjacency), SMALLEST_EPSILON)
    while inflated(high) > delta:
        low, high = high, 2 * high
        if size * high > 700:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if inflated(middle) > delta else (low, middle)
    return size * high


def event_to_json(event: dp_accounting.DpEvent) -> dict[str, Any]:
    """An event as plain JSON, for the ledger and the certificate."""
    match event:
        case dp_accounting.NoOpDpEvent():
            return {"event": "nothing"}
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            return {"event": "repeated", "count": count, "of": event_to_json(inner)}
        case dp_accounting.ComposedDpEvent(events=parts):
            return {"event": "all", "of": [event_to_json(part) for part in parts]}
        case SparseVectorDpEvent():
            return {"event": "sparse_vector", **attrs.asdict(event)}
        case GumbelMaxDpEvent():
            return {"event": "gumbel_max", **attrs.asdict(event)}
        case DiscreteGaussianDpEvent():
            return {"event": "discrete_gaussian", **attrs.asdict(event)}
        case RoundedGaussianDpEvent():
            return {"event": "rounded_gaussian", **attrs.asdict(event)}
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            return {"event": "gaussian", "noise_multiplier": noise}
        case dp_accounting.PoissonSampledDpEvent(sampling_probability=rate, event=inner):
            return {"event": "poisson_sampled", "rate": rate, "of": event_to_json(inner)}
        case MixtureOfGaussiansDpEvent(
            standard_deviation=noise, sensitivities=moves, sampling_probs=probabilities
        ):
            return {
                "event": "mixture_of_gaussians",
                "noise_multiplier": noise,
                "sensitivities": list(moves),
                "chances": list(probabilities),
            }
    raise BudgetError(f"no JSON form for {type(event).__name__}")


def event_from_json(data: dict[str, Any]) -> dp_accounting.DpEvent:
    """The event that `event_to_json` wrote.

    Raises:
        BudgetError: unknown kind of event.
    """
    match data:
        case {"event": "nothing"}:
            return dp_accounting.NoOpDpEvent()
        case {"event": "repeated", "count": int(count), "of": dict(inner)}:
            return dp_accounting.SelfComposedDpEvent(event_from_json(inner), count)
        case {"event": "all", "of": list(parts)}:
            return dp_accounting.ComposedDpEvent(tuple(event_from_json(part) for part in parts))
        case {
            "event": "sparse_vector",
            "threshold_scale": threshold,
            "query_scale": query,
            "sensitivity": int(sensitivity),
            "rate": rate,
            "rows": int(rows),
        }:
            return SparseVectorDpEvent(
                float(threshold), float(query), sensitivity, float(rate), rows
            )
        case {
            "event": "gumbel_max",
            "scale": scale,
            "sensitivity": int(sensitivity),
            "rows": int(rows),
        }:
            return GumbelMaxDpEvent(float(scale), sensitivity, rows)
        case {"event": "discrete_gaussian", "sigma": sigma, "sensitivity": int(sensitivity)}:
            return DiscreteGaussianDpEvent(float(sigma), sensitivity)
        case {"event": "rounded_gaussian", "sigma": sigma, "sensitivity": int(sensitivity)}:
            return RoundedGaussianDpEvent(float(sigma), sensitivity)
        case {"event": "gaussian", "noise_multiplier": noise}:
            return dp_accounting.GaussianDpEvent(float(noise))
        case {"event": "poisson_sampled", "rate": rate, "of": dict(inner)}:
            return dp_accounting.PoissonSampledDpEvent(float(rate), event_from_json(inner))
        case {
            "event": "mixture_of_gaussians",
            "noise_multiplier": noise,
            "sensitivities": list(moves),
            "chances": list(probabilities),
        }:
            return MixtureOfGaussiansDpEvent(float(noise), tuple(moves), tuple(probabilities))
    raise BudgetError(f"unknown event {str(data)[:80]!r}")
