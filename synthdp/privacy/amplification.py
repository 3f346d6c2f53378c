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

A group of g units, each with a coin of its own, is a mean over how many of it are in the sample: j
of them with the binomial chance p_j. Let beta_j(t) be the most that any event can have with j units
more whose probability without them is t: concave, from (A, B) of a group of j. An event of
probability t without the group has with it at most beta(t) = sum_j p_j beta_j(t), where beta_0(t) =
t: for one S by definition, and over S by concavity. So H_a is at most the maximum of beta(t) - a t,
which is that of the pair with the curve beta. In the other direction the least probability with the
group is a convex function of that without it, and is added up alike [derived here]. With g = 1 both
are the theorem.

On a grid each curve is a chain of lines: B's mass dt at a loss l has the slope exp(l). So the sum
has, between two neighbouring ends of lines,

    removed   the loss log(sum_j p_j exp(l_j)),      of mass dt exp(loss)
    added     the loss -log(sum_j p_j exp(-l_j)),    of mass dt

with l_0 = 0, and nothing is integrated here. Where A' is nothing, exp(-l) is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from synthdp.privacy.loss_grid import on_grid

Floats = npt.NDArray[np.float64]

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
    """
    none, *chances = stats.binom.pmf(np.arange(len(inners) + 1), len(inners), rate)
    removed = [inner._pmf_remove.to_dense_pmf() for inner in inners]
    added = [inner._pmf_add.to_dense_pmf() for inner in inners]
    return pld.PrivacyLossDistribution(
        _removed(removed, none, chances, width), _added(added, none, chances, width)
    )


def _removed(
    inners: Sequence[pld_pmf.DensePLDPmf], none: float, chances: Sequence[float], width: float
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
    losses = np.log(none + slopes)
    mass = np.diff(ends, prepend=0.0) * (none + slopes)
    endless += max(0.0, 1 - endless - float(mass.sum()))
    return on_grid(losses, mass, min(endless, 1.0), width)


def _added(
    inners: Sequence[pld_pmf.DensePLDPmf], none: float, chances: Sequence[float], width: float
) -> pld_pmf.PLDPmf:
    lines = []
    for inner, chance in zip(inners, chances, strict=True):
        losses, mass = _falling(inner)
        ends = np.minimum(np.cumsum(np.append(inner._infinity_mass, mass)), 1.0)
        slopes = chance * np.exp(np.minimum(-losses, FARTHEST))
        lines.append((ends, np.concatenate([[0.0], slopes, slopes[-1:]])))
    ends, slopes = _added_up(lines)
    return on_grid(-np.log(none + slopes), np.diff(ends, prepend=0.0), 0.0, width)


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
