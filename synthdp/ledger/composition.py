"""What the runs of one dataset cost a person together: the Gaussian filter, and waves of a series.

The filter says when another release fits a cap, by what the noise of all of them costs.
Epsilons of releases add up, whatever they are of (`ledger.ledger`). For noise that is three times
too dear: squared moves over squared noises add up, and epsilon goes about by their root. So the
first reservation of a dataset with a cap fixes which rule holds for all of them. It is this filter
if that first run fits it, and else addition, which alone admits one run that takes a whole cap.
Cap and first run are there before any row is looked at, so the rule is a constant.

What a run reserves is public and fixed before its rows are read: `mu` and `lost`. Let P and Q be
the laws of all that its planned mechanisms, used or not, would release on two neighbouring tables,
either way round. Then there is a part P' of P, with a density against Q, that lacks at most `lost`
of its mass, with

    E_Q[max(0, dP'/dQ - a)] <= g(a) = E[max(0, exp(mu Z - mu^2 / 2) - a)]     for all a >= 0,   (1)

Z standard normal: P' is told from Q no better than a Gaussian mechanism of sensitivity / noise = mu
tells its tables. Noise on counts and sums has exactly its own mu; what has no such bound, such as
keys told above a threshold, is in `lost`. `accounting.gaussian_bound` finds a `mu` for which delta
of the whole plan's composition is nowhere more than some b above g(exp(epsilon)), epsilon >= 0,
either way round; and `lost` = b / (1 - g(1)) then (`lost_beside`).

Why (1) follows. Below a = 1, H_a(P, Q) = a H_(1/a)(Q, P) + 1 - a, and g has the same symmetry: so
H_a(P, Q) <= g(a) + min(a, 1) b for all a >= 0. Take the pair that tells its table with probability
`lost`, and else is the Gaussian's (N1, N0). Its H_a is g(a) + lost (1 - g(a)), and 1 - g(a) >=
min(a, 1) (1 - g(1)), again by symmetry. So it dominates, and (P, Q) is what one channel makes of it
[Blackwell; Dong, Roth and Su, arXiv:1905.02383v3, Theorem 2.10]. Let P' be what the channel makes
of (1 - lost) N1. Q has at least what it makes of (1 - lost) N0, and means of max(0, . - a) only
fall in a channel [Jensen]. QED.

Rule. With a cap (E, D) a run is granted while the sum of all squared `mu` is at most M^2, and the
sum of all `lost` at most T = `FOR_LOST` * D, where M is the largest mu whose Gaussian mechanism is
(E, D - T)-DP. Nothing is to be chosen: neither an order nor a conversion.

Claim. Whatever the steward asks for in the light of earlier results, all that the runs release is
(E, D)-indistinguishable between neighbouring tables.

Proof [derived here; Smith and Thakurta, "Fully Adaptive Composition for Gaussian Differential
Privacy", arXiv:2210.17520; Koskela, Tobaben and Honkela, "Individual Privacy Accounting with
Gaussian Differential Privacy", arXiv:2209.15596v2]. As in `ledger.ledger`, fix the steward's coins,
and take runs one after another, in the order of their reservations. Let K = exp(E) and V(x, s) =
E[max(0, x exp(sqrt(s) Z - s / 2) - K)]. V is 0 at x = 0, never falls as x or s grows, and is convex
in x; and E[V(x exp(mu Z - mu^2 / 2), s)] = V(x, s + mu^2), as independent normals add up.

Induction over the number of requests: with (s, t) left, the transcript's laws P and Q have a part
P' of P that lacks at most t of its mass, with E_Q[max(0, x dP'/dQ - K)] <= V(x, s) for all x >= 0.
Without requests nothing is released, and max(0, x - K) <= V(x, s) by Jensen. Otherwise the first
request is a constant. Refused, it leaves fewer requests. Granted with (mu, lost), its output y has
a part P1' as in (1), with the ratio L1; and what follows y is an interaction with fewer requests
and (s - mu^2, t - lost) left, of whatever y suggested, with a part P'_y and the ratio L_y. Let P'
be P1' followed by P'_y. It has at least (1 - lost) (1 - t + lost) >= 1 - t of the mass. And

    E_Q[max(0, x L1 L_y - K)] <= E_Q1[V(x L1, s - mu^2)] <= V(x, s),

first by the induction at x L1(y) for each y. Then by (1): V(., s') is convex, never falls and is 0
at 0, hence a mixture of max(0, . - a), a >= 0. At the end P(S) <= P'(S) + T <= K Q(S) + V(1, M^2) +
T for every set S, and V(1, M^2) <= D - T is the delta of that Gaussian mechanism at E. QED.

Why T is taken out beforehand: a `lost` and the tail of V are paid under different laws, so that a
rule which trades one for the other in the light of results could spend both. Why Gaussians: a
filter on any other curve, such as the composition itself, need not be one, as what is left after an
output need not be ordered by one number. A Renyi filter, at one order fixed beforehand, is one as
well (Feldman and Zrnic, arXiv:2008.11193), and looser: of a cap of (3, 1e-4) its conversion loses a
tenth of mu, and more orders gain nothing: max(0, x - K) touches a sum of powers of x in one place
only, where one power alone lies below that sum everywhere [derived here].

A reservation without these two numbers, of an earlier program, is counted as what it may be at
worst: it tells its table with probability delta, and answers one bit at epsilon else
(`pure_mu`).

Waves of a series: what a person loses who is in some of them.

A survey is taken each year, and each year's table is released: the waves of one series, which share
a ledger's dataset, its cap, and one statement on who is in several of them. `most` is the number of
waves that a person may be in: any (the same people each time), k (a rotating panel), or 1 (nobody
is in two: what differs between waves is fixed when a person enters). A run looks at the rows of its
own wave alone. A run without a wave, such as a search for the columns' domain, may look at any.

Rule. Let c(w) be what the runs of a wave have taken, and c(0) what runs without one have. Then the
series has taken c(0) + the sum of the `most` largest c(w); each amount by itself: epsilon, delta,
squared mu, lost mass. The cap, by addition or by the Gaussian filter, is held against that.

Claim. Whatever the steward asks for in the light of earlier results, of whichever wave, and
whatever the tables of later waves are, all that the runs of all waves release is (E, D)-
indistinguishable between two series of tables that differ by the rows of one person in at most
`most` waves, added or removed.

Proof [derived here]. Let S be the waves that the person is in. It is fixed with the pair of series,
and does not follow from any output. A run of a wave outside of S sees the same table in both worlds
when its spec is given, so its output, given what came before, has one law: it is (0, 0)-DP for this
pair, with mu = lost = 0. All others are what they are in `ledger.ledger` and the filter. So
for this pair the series is an interaction whose runs cost c for waves in S and without a wave, and
nothing else. What the proofs there need is that on every path what was granted stays within the
cap: sums of epsilon and of delta, or of squared mu and of lost mass. S has at most `most` waves, so
each of these sums over S is at most that of the `most` largest, which the rule has kept within the
cap, for all S at once; whether a run is granted depends on public amounts alone, and is the same in
both worlds. The tables of a later wave may depend on what was released before: their rows, but for
the person's, are then fixed once that is, and the induction is over outputs. QED.

That the largest waves of each amount are taken by themselves makes the bound larger than any one S,
never smaller. Where `most` is 1 this is parallel composition, which holds adaptively since who is
in which wave is not chosen by outputs. It needs that the person's rows come or go: under
`replace_one` someone may be replaced by a person of another wave, which adds rows to a table and
takes some from another, so that waves are refused there. It also needs the statement to be true: a
person in m > `most` waves has the joint bound of ceil(m / most) persons, no more (`synthdp.bundle`
says that nothing checks it). One statement holds for a series: the first run fixes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from synthdp.errors import BudgetError

FOR_LOST = 0.1  # of a cap's delta, for what no Gaussian bounds
LARGEST_MU = 100.0  # beyond which nothing is told from no protection


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of a Gaussian mechanism of sensitivity / noise = `mu`, at `epsilon` [Balle and Wang,
    arXiv:1805.06530v2, Theorem 8]; no less, where numbers overflow.

    >>> round(gaussian_delta(1.0, 0.26805), 7)
    1e-05
    """
    if mu <= 0:
        return 0.0
    upper, lower = (math.erfc((epsilon / mu + s * mu / 2) / math.sqrt(2)) / 2 for s in (-1, 1))
    return max(0.0, upper - math.exp(min(epsilon, 700.0)) * lower)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of that mechanism at `delta`, from above.

    >>> round(gaussian_epsilon(0.26805, 1e-5), 3)
    1.0
    """
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, mu) > delta else (low, middle)
    return high


def lost_beside(mu: float, beside: float) -> float:
    """The mass that a part lacks where delta is up to `beside` above the Gaussian's."""
    return min(1.0, beside / math.erfc(mu / 2 / math.sqrt(2)))


def pure_mu(epsilon: float) -> float:
    """The least mu whose Gaussian mechanism tells no less than one true answer at odds
    exp(`epsilon`) does.

    The curve of errors of that answer is two lines with a corner where both errors are 1 / (1 +
    exp(epsilon)). The Gaussian's is convex, and goes from (0, 1) to (1, 0): it lies below both
    lines where it passes at or below the corner [derived here].

    >>> round(pure_mu(1.0), 4)
    1.232
    """
    return min(-2 * NormalDist().inv_cdf(1 / (1 + math.exp(min(epsilon, 700.0)))), LARGEST_MU)


Cost = tuple[float, float, float, float]
"""Epsilon, delta, mu and lost mass of some runs together; mu of several is their root of squares.
"""


@dataclass(frozen=True)
class Wave:
    """The wave that a run is of, and how many of them one person may be in (None: all)."""

    name: str
    most: int | None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "most": self.most}


def together(costs: Iterable[Cost]) -> Cost:
    """What runs cost that look at the same people."""
    epsilon, delta, mu, lost = zip((0.0,) * 4, *costs, strict=True)
    return math.fsum(epsilon), math.fsum(delta), math.hypot(*mu), math.fsum(lost)


NOTHING = together(())


def of_series(always: Cost, waves: Mapping[str, Cost], most: int | None) -> Cost:
    """What a series has taken: runs without a wave, and the `most` largest waves by each amount."""
    amounts = zip(NOTHING, *waves.values(), strict=True)
    largest = (sorted(amount, reverse=True)[:most] for amount in amounts)
    return together([always, *zip(*largest, strict=True)])


def check_statement(entries: Sequence[Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a run that states otherwise than those before who is in several waves.

    A series may begin with runs that name no wave: those count for everyone.

    Raises:
        BudgetError: it does.
    """
    asked = wanted.get("wave")
    for entry in entries:
        earlier = entry.body.get("wave") if entry.kind == "reserve" else None
        if asked and earlier and asked["most"] != earlier["most"]:
            said = "all waves" if earlier["most"] is None else f"at most {earlier['most']} of them"
            raise BudgetError(
                f"run {entry.run} released wave {earlier['name']} of {entry.dataset} with people"
                f" who may be in {said}, and the spec says otherwise",
                hint="say waves.people as before: what a series has spent is counted by it",
            )
