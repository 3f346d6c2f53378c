"""Single losses on a grid: distributions of privacy loss that are known atom by atom."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters

Floats = npt.NDArray[np.float64]

REACH = 12.0  # standard deviations of noise beyond which a mass of e^-72 is counted as lost
# A delta beyond which nothing is claimed; the library wants one below 1, and `accounting` reports
# 1.
NO_PROTECTION = 1 - 1e-9
LARGEST_EPSILON = 50.0  # what lies beyond is counted as lost altogether
LARGEST_LOSS = 600.0  # nats: larger losses count as endless, and gains beyond as no larger


def on_grid(losses: Floats, mass: Floats, endless: float, width: float) -> pld_pmf.DensePLDPmf:
    """Each mass at a loss, shared between the nearest multiples of `width` below and above.

    The shares keep both masses, that of the first law and that of the second, exp(-l) times the
    first: exp(-l) is spread about its mean, and every order's divergence, a mean of a convex
    function of it, grows. This is connect-the-dots for single losses [Doroshenko et al., "Connect
    the Dots", arXiv:2207.04380v1, Algorithm 1], without differences of nearly equal numbers.
    """
    below = np.floor(losses / width).astype(np.int64)
    above = np.clip(np.expm1(below * width - losses) / np.expm1(-width), 0.0, 1.0)
    lowest = int(below.min())
    size = int(below.max()) - lowest + 2
    places = below - lowest
    probs = np.bincount(places, mass * (1 - above), minlength=size)
    probs += np.bincount(places + 1, mass * above, minlength=size)
    return pld_pmf.DensePLDPmf(width, lowest, probs, endless, True)


def discrete_gaussian_pld(sigma: float, *, width: float) -> pld.PrivacyLossDistribution:
    """Of one whole number that moves by one, under discrete Gaussian noise of parameter `sigma`.

    The noise is x with a probability that goes by exp(-x^2 / 2 sigma^2), and the loss is then (1 -
    2 x) / 2 sigma^2: single losses, each of known mass. Both directions have the same law, as x and
    1 - x exchange them. Noise reaches m with a probability of at most 2 exp(-m^2 / 2 sigma^2),
    which is counted as lost: E[exp(t x)] is at most exp(t^2 sigma^2 / 2), by the same completed
    square and the same sum as in `concentrated.discrete_gaussian_rho` [derived here].

    >>> round(discrete_gaussian_pld(1.0, width=1e-3).get_epsilon_for_delta(1e-5), 1)
    4.4
    """
    reach = math.ceil(REACH * sigma) + 1
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    mass = np.exp(-((x / sigma) ** 2) / 2)
    losses, mass = (0.5 - x) / sigma**2, mass / mass.sum()
    lost = losses > LARGEST_LOSS
    endless = float(mass[lost].sum()) + 2 * math.exp(-((reach / sigma) ** 2) / 2)
    if endless > NO_PROTECTION:
        return nothing(width)
    kept = np.maximum(losses[~lost], -LARGEST_LOSS)
    dense = on_grid(kept, mass[~lost], endless, width)
    return pld.PrivacyLossDistribution(dense)


def nothing(width: float) -> pld.PrivacyLossDistribution:
    """Of no protection."""
    return pld.from_privacy_parameters(
        DifferentialPrivacyParameters(LARGEST_EPSILON, NO_PROTECTION),
        value_discretization_interval=width,
    )
