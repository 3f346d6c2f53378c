"""What one run proves: m random coins are inserted into the data, and r of them are guessed.

v of the guesses are right. Both bounds need fair and independent coins, one unit of data for each,
and r fixed before looking at the output.

For (epsilon, delta): Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run",
arXiv:2305.08846v1, Theorem 5.2 in the form of Corollary 5.4 (guesses in, out or abstain, at most r
of them). With f(v) = P[Binomial(r, e^eps / (1 + e^eps)) >= v],

    P[at least v right] <= f(v) + 2 m delta max_{1 <= i <= v} (f(v - i) - f(v)) / i,

and the lower bound is the largest epsilon that this refutes (Lemma 4.7 there).

For a whole trade-off curve: Mahloujifar, Melis, Chaudhuri, "Auditing f-Differential Privacy in One
Run", arXiv:2410.22235v1, Section 3 (the bound for an adversary with a limited number of guesses,
and the algorithm that follows from it). Derived again here: let C be the number of right guesses,
p_j = P[C = j], and let g = 1 - f be the curve seen from above: for every event E and the worlds of
one coin, P(E) <= g(P'(E)), g increasing and concave. Fix coin i and the others' values u. "Guess i
says b, and the number of other right guesses lies in T - 1" is an event of the output. Its
probability when coin i is b is at most g of its probability when coin i is 1 - b, where guess i is
wrong and C lies in T - 1. Averaging over b, u and i, with Jensen's inequality for the concave g,

    sum_{j in T} j p_j / m  <=  g( sum_{j in T} (r - j + 1) p_{j-1} / m ).            (1)

`curve_p_value` takes T = {i, i+1, ...}: given P[C >= v] = p, (1) forces mass below v, at i = v-1,
v-2, ...; where all that mass exceeds 1, p was impossible. The largest possible p is the p-value.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from synthdp.audit.mechanisms.f_curve import CurveClaim

BISECTIONS = 30


def epsilon_p_value(
    *, canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """Greatest probability of `right` or more right guesses under (epsilon, delta)-DP.

    `guesses` of the `canaries` coins are guessed.
    """
    _check(canaries, guesses, right)
    # f(v - i) for i = 0 .. v
    tail = binom.sf(right - np.arange(right + 1) - 1, guesses, expit(epsilon))
    slope = np.max((tail[1:] - tail[0]) / np.arange(1, right + 1), initial=0.0)
    return float(min(1.0, tail[0] + 2 * canaries * delta * slope))


def epsilon_lower_bound(
    *, canaries: int, guesses: int, right: int, delta: float, significance: float
) -> float:
    """Largest epsilon refuted at `significance`; 0 where none is.

    For 2 canaries delta <= 1, so that the p-value grows with epsilon.
    """

    def refuted(epsilon: float) -> bool:
        p_value = epsilon_p_value(
            canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta
        )
        return p_value < significance

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def curve_p_value(claim: CurveClaim, *, canaries: int, guesses: int, right: int) -> float:
    """Greatest probability of `right` or more right guesses under the claimed curve.

    `guesses` of the `canaries` coins are guessed.
    """
    _check(canaries, guesses, right)
    low, high = 0.0, 1.0
    if curve_allows(claim, 1.0, canaries=canaries, guesses=guesses, right=right):
        return 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if curve_allows(claim, middle, canaries=canaries, guesses=guesses, right=right):
            low = middle
        else:
            high = middle
    return high


def curve_allows(
    claim: CurveClaim, probability: float, *, canaries: int, guesses: int, right: int
) -> bool:
    """Whether P[C >= right] = `probability` leaves a total mass of at most 1; see (1)."""
    profile = np.array(claim.profile)
    delta, grown = profile[:, 1], np.exp(np.minimum(profile[:, 0], 700.0))
    # Sums of (1): `hit` over j >= i of j p_j / m, `miss` of (r - j) p_j / m. The mass is least
    # where the whole tail is at `right`.
    hit, miss = probability * right / canaries, probability * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        # Inverse of g by the lines x -> e^eps x + delta. Its other lines bind where hit is near 1,
        # too late to matter. Leaving them out could only weaken the bound, and the tests' linear
        # programme, which has them, gives the same bound.
        least = float(np.max((hit - delta) / grown))
        if least <= miss:
            break  # no more mass is forced here, nor further down, where `hit` does not change
        hit, miss = hit + (least - miss) * i / (guesses - i), least
        if (hit + miss) * canaries > guesses:
            break  # the mass exceeds 1
    return (hit + miss) * canaries <= guesses


def _check(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"{right} right of {guesses} guesses of {canaries} canaries; needs right <= guesses <="
            " canaries"
        )
