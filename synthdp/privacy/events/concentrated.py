"""Privacy loss distributions that dominate every mechanism of a given zero-concentrated bound, of a
given bounded range, or of a given pure epsilon.

For groups of units a table's discrete Gaussians have no known exact distribution that covers every
way to spread the rows over cells; all spreads share one zero-concentrated bound, and this module
turns it into something that composes. Noisy maxima by Gumbel noise have bounded range, which is
worth more than their pure epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from scipy import stats
from scipy.special import gammaln

from synthdp.privacy.events import LARGEST_EPSILON, NO_PROTECTION, composed, nothing, on_grid

Floats = npt.NDArray[np.float64]

ORDERS = 1 + np.geomspace(
    1e-3, 1e4, 200
)  # any order above 1 gives a sound bound; so many lose nothing visible
LARGEST_PURE_EPSILON = 600.0  # the same for what is pure, whose losses are few
JUDGED_AT = 1e-6  # the delta at which two sound bounds are compared


def discrete_gaussian_rho(*, sigma: float, squared_distance: float) -> float:
    """zCDP parameter of independent discrete Gaussians of parameter `sigma` moved by whole numbers,
    `squared_distance` in all.

    Rényi divergence of N_Z(m, s^2) and N_Z(n, s^2) at order a [Canonne, Kamath, Steinke, "The
    Discrete Gaussian for Differential Privacy", arXiv:2004.00010v4, Section 2.1; derived here]:
    completing the square,

        sum_x P(x)^a Q(x)^(1-a) = exp(a (a-1) (m-n)^2 / 2s^2) * sum_x exp(-(x-c)^2 / 2s^2) / sum_x
        exp(-x^2 / 2s^2)

    with c = a m + (1-a) n. By Poisson's summation formula the sum over x is a Fourier series in c
    with positive coefficients, so it is largest at c = 0 and the last factor is at most 1. Hence
    the divergence is at most a (m-n)^2 / 2s^2; divergences of independent cells add up to a *
    squared_distance / 2s^2.
    """
    return squared_distance / (2 * sigma**2)


def concentrated_pld(rho: float, *, width: float) -> pld.PrivacyLossDistribution:
    """Dominates, in both directions, every pair whose Rényi divergences of all orders a > 1 are at
    most a * rho both ways.

    delta(e) <= inf over a of exp((a-1)(a rho - e)) (1 - 1/a)^(a-1) / a [Canonne, Kamath, Steinke,
    as above, Proposition 12; derived here]: delta(e) = E[max(0, 1 - exp(e - L))] for the loss L,
    and for each a the integrand is at most exp((a-1)(L - e)) times the largest u^(a-1) (1-u) over u
    in (0, 1), which is taken at u = (a-1)/a. Below e = 0 also delta(-e) = 1 - exp(-e) + exp(-e)
    delta'(e), delta' being the other direction's. The true delta is convex in exp(e), so it lies
    below the largest convex function under these bounds at the
    points of a grid, and below its chords between them: connect-the-dots [Doroshenko et al.,
    "Connect the Dots", arXiv:2207.04380v1, Algorithm 1] makes a distribution of exactly that
    function. What dominates one by one dominates in composition [Zhu, Dong, Wang, "Optimal
    Accounting of Differential Privacy via Characteristic Function", arXiv:2106.08567v3, Theorem
    10].
    """
    # 40.0 nats: epsilons beyond which delta is below e^-40
    steps = _grid(min(rho + 2 * math.sqrt(rho * 40.0), LARGEST_EPSILON), width)
    epsilons, last = steps * width, len(steps) // 2
    a = ORDERS[:, None]
    logs: Floats = (a - 1) * (a * rho - epsilons) - np.log(a) + (a - 1) * np.log1p(-1 / a)
    deltas: Floats = np.exp(np.minimum(logs.min(0), 0.0))  # the least bound over the orders
    below = slice(0, last)
    mirrored = -np.expm1(epsilons[below]) + np.exp(epsilons[below]) * deltas[:last:-1]
    deltas[below] = np.minimum(deltas[below], mirrored)
    hull = convex_minorant(np.exp(epsilons), deltas)
    if hull[-1] > NO_PROTECTION:
        return nothing(width)
    return pld.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(width, steps, np.minimum.accumulate(hull))
    )


def bounded_range_pld(spread: float, count: int, *, width: float) -> pld.PrivacyLossDistribution:
    """Dominates `count` choices, each made in the light of those before, whose loss lies in an
    interval of length `spread`.

    The intervals may begin anywhere, from choice to choice and table to table. Two bounds hold, and
    the one that is lower
    at `JUDGED_AT` is taken: a rule on public numbers. With r = `spread`, and L the loss log(P / Q)
    of one choice:

    one by one    Of all laws of L on [t - r, t] with E_Q[exp(L)] = 1, the two-point law on the ends
    has the largest E_Q[f(exp(L))]
                  for every convex f (a chord lies above), so each delta(e) = E_Q[max(0, exp(L) -
                  exp(e))]. It has Q[L = t] = (1 - exp(t - r)) / (exp(t) (1 - exp(-r))), hence
                  delta(e) = (1 - exp(t - r)) (1 - exp(e - t)) / (1 - exp(-r)), which is largest at
                  t = (e + r) / 2: delta(e) = (1 - exp((e - r) / 2))^2 / (1 - exp(-r)) for abs(e) <=
                  r. The same holds for Q against P, whose losses -L lie in such an interval too. As
                  a largest of functions that are convex in exp(e) it is one, and the curve of one
                  pair of laws; `count` of these dominate `count` choices [Zhu, Dong and Wang, as
                  above, Theorem 10].
    as zCDP       f(a) = log E_Q[exp(a L)] has f(0) = f(1) = 0, and f''(a) is the variance of L
    under a law on that interval, at most
                  r^2 / 4. So f(a) - a (a - 1) r^2 / 8 is concave, zero at 0 and 1, and not above 0
                  beyond: the Rényi divergence of order a, f(a) / (a - 1), is at most a r^2 / 8.
                  Such bounds add up over choices [Cesar and Rogers, "Bounding, Concentrating, and
                  Truncating", arXiv:2004.07223; derived here].

    The first is exact for one choice [Dong, Durfee and Rogers, "Optimal Differential Privacy
    Composition for Exponential Mechanisms", arXiv:1909.13830] and about 8% of epsilon above the
    second for hundreds.
    """
    if spread > LARGEST_EPSILON:
        return nothing(width)
    as_zcdp = concentrated_pld(count * spread**2 / 8, width=width)
    if count > 1000:  # choices: of more, that bound is the looser one, and takes minutes
        return as_zcdp
    steps = _grid(spread, width)
    inside = np.clip(steps * width, -spread, spread)
    deltas = np.expm1((inside - spread) / 2) ** 2 / -math.expm1(-spread)
    deltas[0] = -math.expm1(
        steps[0] * width
    )  # at or below -spread, where delta is that of any pair without overlap left
    each = pld.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots(width, steps, deltas)
    )
    return min(
        as_zcdp,
        composed([(each, count)]),
        key=lambda bound: float(bound.get_epsilon_for_delta(JUDGED_AT)),
    )


def pure_pld(epsilon: float, count: int, *, width: float) -> pld.PrivacyLossDistribution:
    """Dominates `count` mechanisms, each pure epsilon-DP, also where later ones are chosen in the
    light of earlier results, as long as their epsilons are not.

    Randomised response dominates each of them [Kairouz, Oh and Viswanath, "The Composition Theorem
    for Differential Privacy", arXiv:1311.0776v4, Theorem 3.2]. Of `count` answers, each true with
    odds exp(`epsilon`), the number of true ones is binomial, and i of them lose (2 i - count)
    epsilon. Losses that no epsilon reaches count as endless, and gains beyond them as no larger.
    """
    if epsilon > LARGEST_PURE_EPSILON:
        none = DifferentialPrivacyParameters(
            LARGEST_PURE_EPSILON, 1 - 1e-12
        )  # the library wants a delta below one
        return pld.from_privacy_parameters(none, value_discretization_interval=width)
    i = np.arange(count + 1)
    loss = np.maximum((2 * i - count) * epsilon, -LARGEST_PURE_EPSILON)
    upper = (
        gammaln(count + 1)
        - gammaln(i + 1)
        - gammaln(count - i + 1)
        + i * epsilon
        - count * np.logaddexp(0, epsilon)
    )
    lower = {k: float(v) for k, v in enumerate(upper - loss) if loss[k] <= LARGEST_PURE_EPSILON}
    return pld.from_two_probability_mass_functions(
        lower, dict(enumerate(upper.tolist())), value_discretization_interval=width
    )


def _grid(reach: float, width: float) -> npt.NDArray[np.int64]:
    """Multiples of `width` from below -reach to above reach, evenly spaced about zero, at most
    about 4,000 of them: a coarser grid costs tightness, never soundness.
    """
    stride = math.ceil(2 * reach / width / 4000)
    last = math.ceil(reach / width / stride)
    return stride * np.arange(-last, last + 1)


def convex_minorant(x: Floats, y: Floats) -> Floats:
    """The largest convex function below the points (x, y), at x; x must increase."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) >= 2 and _above_chord(x, y, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(i)
    hull: Floats = np.interp(x, x[kept], y[kept])
    return hull


def _above_chord(x: Floats, y: Floats, left: int, middle: int, right: int) -> bool:
    return bool(
        (y[middle] - y[left]) * (x[right] - x[left]) >= (y[right] - y[left]) * (x[middle] - x[left])
    )


# --- amplification ---


FARTHEST = 300.0  # nats; larger losses count as endless


def secret_sample_pld(
    inners: Sequence[pld.PrivacyLossDistribution], rate: float, *, width: float
) -> pld.PrivacyLossDistribution:
    """Dominates, for a group of units added or removed, what `inners` dominate, on a secret sample
    that each unit joins by its own coin of chance `rate`. `inners` are for one unit, two units, and
    so on up to the whole group.

    `width` is that of the grid of losses that is returned; `inners` may have others.

    >>> from dp_accounting.pld import privacy_loss_distribution as pld
    >>> whole = pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-3)
    >>> sampled = secret_sample_pld([whole], 0.1, width=1e-3)
    >>> round(whole.get_epsilon_for_delta(1e-5), 2), round(sampled.get_epsilon_for_delta(1e-6), 2)
    (4.38, 2.18)

    What a mechanism costs when it runs on a secret sample of the units.

    Setting. Each unit is in the sample by its own coin of chance q, as a whole. A mechanism M runs
    on the sample; it may be a composition of any number of steps on this one sample. Nothing else
    tells who is in the sample, nor how many are.

    Theorem [Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic
    Function", arXiv:2106.08567v3, Theorem 11; derived here again]. Let (A, B) dominate M for a unit
    that is removed: H_a(M(S + u), M(S)) <= H_a(A, B) for all tables S, units u and orders a >= 0,
    with the hockey-stick divergence H_a(A, B) = E_B[max(0, A/B - a)]. Let (B', A') dominate M for a
    unit that is added. Then

        removed   ((1 - q) B + q A, B)
        added     (B', (1 - q) B' + q A')

    dominate M on the sample. Proof. Let S be the sample of the other units. Its law is the same on
    both tables and does not depend on u's coin, so that the outputs have the laws E_S[(1-q) M(S) +
    q M(S + u)] and E_S[M(S)]. H is jointly convex, so it is at most its mean over S, and for one S:

    - removed: with the ratio x = M(S + u) / M(S), (1-q) + q x - a = q (x - t), t = (a - 1 + q) / q.
      So H_a is q H_t(M(S + u), M(S)), or 1 - a where t is negative. For the pair above it is the
      same function of the curve of (A, B), and this function grows with the curve.
    - added: b - a ((1-q) b + q c) = (1 - a (1-q)) (b - t c), t = a q / (1 - a (1-q)), where a (1-q)
      is below 1; elsewhere it is never positive. The same follows.

    M's steps, each in the light of those before, are dominated by the product of what dominates
    each of them [there, Theorem 10], one direction at a time. (A, B) may be that product. Here it
    always is: a distribution of losses on a grid, which is itself that of a pair. Other mechanisms,
    which look at all rows or at samples of their own, have other coins, and all compose as any
    mechanisms do.

    A group of g units, each with a coin of its own, has j of them in the sample with the binomial
    chance p_j, which is a coin of g + 1 sides: `mixed_pld`. With g = 1 that is the theorem.
    """
    chances = stats.binom.pmf(np.arange(len(inners) + 1), len(inners), rate)
    nobody = pld.identity(value_discretization_interval=width)
    return mixed_pld([nobody, *inners], chances, width=width)


def mixed_pld(
    inners: Sequence[pld.PrivacyLossDistribution], chances: Sequence[float], *, width: float
) -> pld.PrivacyLossDistribution:
    """Dominates all that is done to a unit, or a group, whose secret coin, drawn once, has side j
    with chance p_j of `chances`, where `inners[j]` dominates all that is done on side j: many steps
    may be, each in the light of those before.

    Proof [derived here]. Let S be the sides of all others' coins. Its law is the same on both
    tables, and does not depend on the unit's coin. Given S, let M be the law of all outputs without
    the unit, and M_j that with it on side j. Let beta_j(t) be the most that any event can have
    under M_j whose probability under M is t: concave, from (A, B) of `inners[j]`. An event of
    probability t without the unit has with it at most beta(t) = sum_j p_j beta_j(t): for one S by
    definition, and over S by concavity. So H_a is at most the maximum of beta(t) - a t, which is
    that of the pair with the curve beta. In the other direction the least probability with the unit
    is a convex function of that without it, and is added up alike. QED.

    That is at most sum_j p_j H_a(A_j, B_j), which compares all sides at one order, and would gain
    nothing of epsilon. To compose the sides, as if each had a coin of its own, is another law, and
    no bound of this one.

    On a grid each curve is a chain of lines: B's mass dt at a loss l has the slope exp(l). So the
    sum has, between two neighbouring ends of lines,

        removed   the loss log(sum_j p_j exp(l_j)),      of mass dt exp(loss)
        added     the loss -log(sum_j p_j exp(-l_j)),    of mass dt

    and nothing is integrated here. Where A' is nothing, exp(-l) is 0.
    """
    removed = [inner._pmf_remove.to_dense_pmf() for inner in inners]
    added = [inner._pmf_add.to_dense_pmf() for inner in inners]
    return pld.PrivacyLossDistribution(
        _removed(removed, chances, width), _added(added, chances, width)
    )


def _removed(
    inners: Sequence[pld_pmf.DensePLDPmf], chances: Sequence[float], width: float
) -> pld_pmf.PLDPmf:
    """B's mass is counted from the largest loss down, and no further than to one."""
    lines, endless = [], 0.0
    for inner, chance in zip(inners, chances, strict=True):
        losses, mass = _falling(inner)
        far = losses > FARTHEST
        endless += chance * (inner._infinity_mass + float(mass[far].sum()))
        losses, mass = losses[~far], mass[~far]
        ends = np.minimum(np.cumsum(mass * np.exp(np.minimum(-losses, FARTHEST))), 1.0)
        lines.append((ends, np.append(chance * np.exp(losses), 0.0)))
    ends, slopes = _added_up(lines)
    mass = np.diff(ends, prepend=0.0) * slopes
    endless += max(0.0, 1 - endless - float(mass.sum()))
    some = slopes > 0  # else both laws have lost it
    return on_grid(np.log(slopes[some]), mass[some], min(endless, 1.0), width)


def _added(
    inners: Sequence[pld_pmf.DensePLDPmf], chances: Sequence[float], width: float
) -> pld_pmf.PLDPmf:
    lines = []
    for inner, chance in zip(inners, chances, strict=True):
        losses, mass = _falling(inner)
        ends = np.minimum(np.cumsum(np.append(inner._infinity_mass, mass)), 1.0)
        slopes = chance * np.exp(np.minimum(-losses, FARTHEST))
        lines.append((ends, np.concatenate([[0.0], slopes, slopes[-1:]])))
    ends, slopes = _added_up(lines)
    mass, some = np.diff(ends, prepend=0.0), slopes > 0
    endless = float(mass[~some].sum())  # where no side has anything
    return on_grid(-np.log(slopes[some]), mass[some], min(endless, 1.0), width)


def _added_up(lines: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Ends of lines of the sum of chains from 0 to 1, and its slope before each end. A chain has
    the ends of its own lines, their slopes, and one more slope up to 1.
    """
    ends = np.unique(np.concatenate([*(own for own, _ in lines), [1.0]]))
    return ends, np.sum([slopes[np.searchsorted(own, ends)] for own, slopes in lines], axis=0)


def _falling(inner: pld_pmf.DensePLDPmf) -> tuple[Floats, Floats]:
    """Losses from the largest down, and their probabilities; what a Fourier transform left below
    zero counts as zero.
    """
    losses = (inner._lower_loss + np.arange(inner.size)) * inner._discretization
    return losses[::-1], np.maximum(np.asarray(inner._probs, dtype=np.float64), 0.0)[::-1]
