"""What a list of events costs: composition by privacy loss distributions (PLD).

An event (`dp_accounting.DpEvent`) says what was done; this module says what it costs. Composition
uses Google's dp-accounting PLDs with its pessimistic (connect-the-dots) discretisation, so every
epsilon is an upper bound [Doroshenko et al., "Connect the Dots", arXiv:2207.04380v1, Theorem 3.2
and Corollary 3.3].

What one event costs is known by its kind (`privacy.events`): a new kind changes nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import log_ndtr, ndtr

from synthdp.errors import BudgetError
from synthdp.ledger.composition import LARGEST_MU, lost_beside
from synthdp.privacy.events import Adjacency, composed, epsilon_for
from synthdp.privacy.events.kinds import cost_of, kind_of, leaves

# Widths of the loss grid. A wider grid costs tightness, never soundness; the mixture of Gaussians
# inverts its loss numerically at every point of the grid, so it gets a wider one, and all that is
# composed with it.
FINE, COARSE = 1e-4, 1e-3
# A mixture has one component for each row of a group, and its PLD takes seconds beyond this many;
# larger groups get the generic group bound.
MAX_GROUP_ROWS = 20
# The library wants deltas below one, so that mechanisms without protection were given 1 - 1e-9 or
# more. Deltas above this are rounded up to one again, and none above it is asked for: both are
# upper bounds.
LARGEST_DELTA = 1 - 1e-8
# What dp-accounting raises where all mass of a distribution is at infinity, or a loss overflows.
BROKEN = (ArithmeticError, LookupError, ValueError)


def compose(
    events: Iterable[dp_accounting.DpEvent], adjacency: Adjacency
) -> pld.PrivacyLossDistribution:
    """The PLD of all `events` together.

    Pairs of distributions that dominate each mechanism whatever came before dominate, as a product,
    all of them together, also where later ones are chosen in the light of earlier results [Zhu,
    Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function",
    arXiv:2106.08567v3, Theorem 10].

    Raises:
        BudgetError: an event has no sound PLD under this adjacency, or the library gives none.
    """
    if (total := _remembered(tuple(events), adjacency)) is None:
        raise BudgetError("the accountant gives no bound for these events together")
    return total


@lru_cache(maxsize=8)  # compositions, of some megabytes each
def _remembered(
    listed: tuple[dp_accounting.DpEvent, ...], adjacency: Adjacency
) -> pld.PrivacyLossDistribution | None:
    """The same events are asked for again and again: for epsilon, for the profile, for groups of
    one. Nobody changes what is returned. None where the library breaks, as it does on groups with
    almost no protection: that there is no bound is sound, and no error after a charge.
    """
    width = COARSE if _wants_wide_grid(listed) else FINE
    if not listed:
        return pld.identity(value_discretization_interval=width)
    # Their bounds add up over events, too: as those of one (`kinds.All`).
    bounded = [e for e in listed if any(leaf.zcdp(adjacency) is not None for leaf in leaves(e))]
    if len(bounded) > 1:
        others = (event for event in listed if event not in bounded)
        listed = (*others, dp_accounting.ComposedDpEvent(tuple(bounded)))
    try:
        return composed([(cost_of(event, adjacency, width), 1) for event in listed])
    except BROKEN:
        return None


def _wants_wide_grid(events: Sequence[dp_accounting.DpEvent]) -> bool:
    # Squared Gaussian mu up to which the grid is fine: beyond it epsilons are above three, and a
    # fine grid takes seconds for the fifth digit.
    return (
        any(leaf.wide_grid for event in events for leaf in leaves(event))
        or sum(kind_of(event).squared_mu for event in events) > 1.0
    )


def epsilon(
    events: Iterable[dp_accounting.DpEvent], *, delta: float, adjacency: Adjacency
) -> float:
    """Smallest epsilon with (epsilon, delta)-DP for all events together."""
    return _epsilon(tuple(events), delta, adjacency)


@lru_cache(maxsize=4096)
def _epsilon(
    listed: tuple[dp_accounting.DpEvent, ...], delta: float, adjacency: Adjacency
) -> float:
    """Of events that are asked for again, by a plan, its certificate, its checks and its audit."""
    total = _remembered(listed, adjacency)
    try:
        return math.inf if total is None else epsilon_for(total, min(delta, LARGEST_DELTA))
    except BROKEN:
        return math.inf


def delta_profile(
    events: Iterable[dp_accounting.DpEvent], *, epsilons: Sequence[float], adjacency: Adjacency
) -> tuple[tuple[float, float], ...]:
    """(epsilon, delta) pairs: the whole trade-off, from which ceilings on attacks follow."""
    composed = _remembered(tuple(events), adjacency)
    return tuple((e, _delta_at(composed, e)) for e in epsilons)


def _delta_at(composed: pld.PrivacyLossDistribution | None, at: float) -> float:
    """Delta at one epsilon; 1, which bounds everything, where the library gives none."""
    try:
        delta = 1.0 if composed is None else float(composed.get_delta_for_epsilon(at))
    except BROKEN:
        return 1.0
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
    composed = _remembered(tuple(events), adjacency)

    def inflated(e: float) -> float:
        if size * e > 700:
            return math.inf
        factor = math.expm1(size * e) / math.expm1(e) if e > 0 else float(size)
        return _delta_at(composed, e) * factor

    if inflated(0.0) <= delta:
        return 0.0
    # Where delta pays for one unit and not for all, epsilon is 0, which doubling would never leave.
    low, high = 0.0, max(epsilon(events, delta=delta, adjacency=adjacency), 1e-6)
    if math.isinf(high):
        return math.inf
    while inflated(high) > delta:
        low, high = high, 2 * high
        if size * high > 700:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if inflated(middle) > delta else (low, middle)
    return size * high


# --- for the filter of a cap ---


Floats = npt.NDArray[np.float64]


def gaussian_bound(
    events: Iterable[dp_accounting.DpEvent], *, tail: float, adjacency: Adjacency
) -> tuple[float, float]:
    """`mu` and `lost` of all events together, as `ledger.composition` needs them: infinite, and 1,
    where nothing is known.

    `mu` is the least Gaussian mechanism's whose delta is nowhere, from epsilon 0 on, more than
    `tail`, and the mass of endless losses, below that of the composition (`_covered` says how that
    is known between places of the grid [derived here]). `tail` lets it be finite where losses of a
    sample have heavier tails than any Gaussian's.
    """
    total = _remembered(tuple(events), adjacency)
    if total is None:
        return math.inf, 1.0
    laws = [total._pmf_remove] + ([] if total._symmetric else [total._pmf_add])
    beside = tail + max(float(law._infinity_mass) for law in laws)
    profiles = [_profile(law.to_dense_pmf(), beside) for law in laws]

    def covers(mu: float) -> bool:
        return all(_covered(deltas, after, mu) for deltas, after in profiles)

    low, high = 0.0, 0.01
    while not covers(high):
        low, high = high, 2 * high
        if high > LARGEST_MU:
            return math.inf, 1.0
    while high - low > 1e-9 * high and high > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high, lost_beside(high, beside)


def _profile(law: pld_pmf.DensePLDPmf, beside: float) -> tuple[Floats, Floats]:
    """By how much delta is above `beside`, at places of the grid from epsilon 0 on where it is, and
    the places after these.
    """
    mass = np.maximum(np.asarray(law._probs, dtype=np.float64), 0.0)
    first = max(0, -law._lower_loss)  # at a loss of zero, or above
    mass = np.pad(mass[first:], (max(0, law._lower_loss), 1))
    losses = np.arange(len(mass)) * law._discretization
    above, below = (
        np.cumsum(m[::-1])[::-1] - m for m in (mass, mass * np.exp(-np.minimum(losses, 700.0)))
    )
    deltas = law._infinity_mass + above - np.exp(np.minimum(losses, 700.0)) * below - beside
    return deltas[deltas > 0], (losses + law._discretization)[deltas > 0]


def _covered(deltas: Floats, after: Floats, mu: float) -> bool:
    """Whether the Gaussian's delta is nowhere below.

    Both fall. So from one epsilon of the grid to the next, one is at most what it is at the first,
    and the other at least what it is at the second.
    """
    gaussian = ndtr(mu / 2 - after / mu) - np.exp(after + log_ndtr(-mu / 2 - after / mu))
    return bool((deltas <= gaussian).all())
