"""What a mechanism costs when it runs on a secret sample of the units.

Setting. Each unit is in the sample by its own coin of chance q, as a whole. A mechanism M runs on
the sample; it may be a composition of any number of steps on this one sample. Nothing else tells
who is in the sample, nor how many are.

Theorem [Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic
Function", arXiv:2106.08567v3, Theorem 11; derived here again]. Let (A, B) dominate M for a unit
that is removed: H_a(M(S + u), M(S)) <= H_a(A, B) for all tables S, units u and orders a >= 0, with
the hockey-stick divergence H_a(A, B) = E_B[max(0, A/B - a)]. Let (B', A') dominate M for a unit
that is added. Then

    removed   ((1 - q) B + q A, B)
    added     (B', (1 - q) B' + q A')

dominate M on the sample. Proof. Let S be the sample of the other units. Its law is the same on both
tables and does not depend on u's coin, so that the outputs have the laws E_S[(1-q) M(S) + q M(S +
u)] and E_S[M(S)]. H is jointly convex, so it is at most its mean over S, and for one S:

- removed: with the ratio x = M(S + u) / M(S), (1-q) + q x - a = q (x - t), t = (a - 1 + q) / q. So
  H_a is q H_t(M(S + u), M(S)), or 1 - a where t is negative. For the pair above it is the same
  function of the curve of (A, B), and this function grows with the curve.
- added: b - a ((1-q) b + q c) = (1 - a (1-q)) (b - t c), t = a q / (1 - a (1-q)), where a (1-q) is
  below 1; elsewhere it is never positive. The same follows.

M's steps, each in the light of those before, are dominated by the product of what dominates each of
them [there, Theorem 10], one direction at a time. (A, B) may be that product. Here it always is: a
distribution of losses on a grid, which is itself that of a pair. Other mechanisms, which look at
all rows or at samples of their own, have other coins, and all compose as any mechanisms do.

The pair's losses are those of (A, B), each moved by a function of its own value, so that nothing is
integrated here:

    removed   l -> log(1 - q + q exp(l)),      of mass q A + (1 - q) B
    added     l -> -log(1 - q + q exp(-l)),    of mass B'

Where A' is nothing, the loss of an added unit was endless; it becomes -log(1 - q).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from synthdp.privacy.loss_grid import on_grid

Floats = npt.NDArray[np.float64]

FARTHEST = 700.0  # nats that a 64-bit exponential holds


def secret_sample_pld(
    inner: pld.PrivacyLossDistribution, rate: float, *, width: float
) -> pld.PrivacyLossDistribution:
    """Dominates, for a unit added or removed, what `inner` dominates, on a secret sample that each
    unit joins by its own coin of chance `rate`.

    `width` is that of the grid of losses that is returned; `inner` may have another.

    >>> from dp_accounting.pld import privacy_loss_distribution as pld
    >>> whole = pld.from_gaussian_mechanism(1.0, value_discretization_interval=1e-3)
    >>> sampled = secret_sample_pld(whole, 0.1, width=1e-3)
    >>> round(whole.get_epsilon_for_delta(1e-5), 2), round(sampled.get_epsilon_for_delta(1e-6), 2)
    (4.38, 2.18)
    """
    return pld.PrivacyLossDistribution(
        _removed(inner._pmf_remove.to_dense_pmf(), rate, width),
        _added(inner._pmf_add.to_dense_pmf(), rate, width),
    )


def _removed(inner: pld_pmf.DensePLDPmf, rate: float, width: float) -> pld_pmf.PLDPmf:
    """Of the pair ((1 - q) B + q A, B), given that of (A, B).

    B's mass at a loss l is exp(-l) times A's, and what is left of it lies where A is nothing. Noise
    of the arithmetic, times exp(-l), could make it more than one in all. It is counted from the
    largest loss down, and no further than to one: what is left out would lie at the lowest losses.
    """
    losses, mass = _losses_and_mass(inner)
    of_b = mass * np.exp(np.minimum(-losses, FARTHEST))
    counted = np.minimum(np.cumsum(of_b[::-1]), 1.0)
    of_b = np.diff(counted, prepend=0.0)[::-1]
    moved = np.log1p(rate * np.expm1(np.minimum(losses, FARTHEST)))
    return on_grid(
        np.append(moved, np.log1p(-rate)),
        np.append(rate * mass + (1 - rate) * of_b, (1 - rate) * (1 - counted[-1])),
        rate * inner._infinity_mass,
        width,
    )


def _added(inner: pld_pmf.DensePLDPmf, rate: float, width: float) -> pld_pmf.PLDPmf:
    """Of the pair (B, (1 - q) B + q A), given that of (B, A)."""
    losses, mass = _losses_and_mass(inner)
    moved = -np.log1p(rate * np.expm1(np.minimum(-losses, FARTHEST)))
    endless = -np.log1p(-rate)
    return on_grid(np.append(moved, endless), np.append(mass, inner._infinity_mass), 0.0, width)


def _losses_and_mass(inner: pld_pmf.DensePLDPmf) -> tuple[Floats, Floats]:
    """Losses and their probabilities; what a Fourier transform left below zero counts as zero."""
    losses = (inner._lower_loss + np.arange(inner.size)) * inner._discretization
    return losses, np.maximum(np.asarray(inner._probs, dtype=np.float64), 0.0)
