"""What an event allows two recorded runs to differ by.

The standard is the event, which is what is charged, and never what a mechanism says of its
sensitivity. Every draw of noise must belong to a charge, and every charge must have its draw. For
each charge the hidden values of two neighbours may move, in units of the noise:

- `DiscreteGaussian(sigma, s)`: one draw of that very sigma, moved by at most s counts (L1, the
  event's own words).
- Gaussians of noise m1, m2, ..., and rounded ones on counts, `RoundedGaussian(sigma, s)`, of
  m = sigma / s: all draws up to the next kind of charge. Together the squares of L2 move / sigma
  may sum to 1/m1^2 + 1/m2^2 + ..., since Gaussian mechanisms compose to one [Dong, Roth, Su,
  "Gaussian Differential Privacy", arXiv:1905.02383v3, section 3, composition of Gaussian
  mechanisms, also of adaptively chosen ones].
- A Poisson-sampled Gaussian of noise m: one batch of that very rate, one draw, moved by 1/m for
  each row of the unit in the batch. The mixture of Gaussians for units of several rows is treated
  alike, if its probabilities are those of that rate.
- A secret sample: one draw of that very rate, then what is charged on it, of which a unit outside
  the sample may move nothing.
- A pass of the sparse vector: its batch if it is sampled, a threshold that does not move, and
  queries up to the first that is above, each moved by at most s for each row of the unit in the
  batch.
- Keys above a threshold, `ThresholdedGaussian(m, d, r)`: one draw. Keys that both tables have move
  by r / m of the noise in L2; a key of one table alone is told with probability d at most, whatever
  columns and rows there are.
- A noisy maximum: one, of scores that each move by at most s for each row of the unit. A draw that
  tells the places of several needs as many charges.

The sparse vector and the noisy maximum are charged for searches that may end before their charges
do, and keys for a choice that may be empty. That depends on nothing but what was released.

Where units are replaced, one is taken away and one is put in: twice the move, and sqrt(2) times the
L2 move of counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from scipy.stats import norm

from synthdp.audit.mechanisms.calls import Call, CoinCall, KeysCall, NoiseCall, SampleCall
from synthdp.audit.mechanisms.charges import charges_of
from synthdp.privacy.events.base import Adjacency
from synthdp.privacy.events.kernel import (
    DiscreteGaussianDpEvent,
    GumbelMaxDpEvent,
    SparseVectorDpEvent,
)
from synthdp.privacy.events.kinds import SecretSampleDpEvent
from synthdp.privacy.events.threshold import ThresholdedGaussianDpEvent
from synthdp.privacy.noise import NoiseKind

GAUSSIAN: Sequence[NoiseKind] = ("rounded", "lattice")
ROUNDING = 1 + 1e-9  # of the sums of squares here


@dataclass(frozen=True)
class Problem:
    """A draw that no charge pays for (`charged`), or that one pays too little for (`moved`)."""

    differs: Literal["charged", "moved"]
    where: str
    found: str
    allowed: str


@dataclass(frozen=True)
class ReplayVerdict:
    """What is not paid for, and the largest part of an allowance that was used."""

    problems: tuple[Problem, ...]
    largest_share: float


class _Mismatch(Exception):
    """The next draw is not the charged one; nothing after it can be matched."""


@dataclass
class _Walk:
    """Both runs' calls, pair by pair, and how far they have been matched with the charges."""

    calls: Sequence[tuple[Call, Call]]
    unit_rows: int
    factor: int  # units that differ: two where one is replaced
    at: int = 0
    share: float = 0.0
    owed: Counter[tuple[float, int]] = field(default_factory=Counter)  # maxima told, not charged
    problems: list[Problem] = field(default_factory=list)

    def left(self) -> tuple[Call, Call] | None:
        """The next pair of calls; None at the end."""
        return self.calls[self.at] if self.at < len(self.calls) else None

    def noise(
        self, kinds: Sequence[NoiseKind], sigma: float | None = None
    ) -> tuple[NoiseCall, NoiseCall] | None:
        """The next draw, if it is of one of these kinds and of that very scale."""
        match self.left():
            case (NoiseCall() as first, NoiseCall() as second) if first.kind in kinds:
                return (first, second) if sigma in (None, first.sigma) else None
        return None

    def refuse(self, allowed: str) -> NoReturn:
        """Record that the next draw is not what is `allowed`, and end the walk."""
        pair = self.left()
        found = _described(pair[0]) if pair else "no further draw"
        self.problems.append(Problem("charged", f"draw {self.at + 1}", found, allowed))
        raise _Mismatch

    def spend(self, used: float, allowed: float, unit: str, *, since: int) -> None:
        """Compare a move with its allowance; the draws from `since` on hid it."""
        self.share = max(self.share, used / allowed if allowed else 0.0)
        if used <= allowed * ROUNDING:
            return
        where = f"draws {since + 1} to {self.at} together"
        if self.at == since + 1:
            where = f"draw {self.at}"
        found, may_move = f"{used:.6g} {unit}", f"{allowed:.6g} {unit}"
        self.problems.append(Problem("moved", where, found, may_move))


def judge(
    event: dp_accounting.DpEvent,
    first: Sequence[Call],
    second: Sequence[Call],
    *,
    unit_rows: int,
    adjacency: Adjacency,
) -> ReplayVerdict:
    """Compare two recorded runs of one mechanism, call by call, with the event that it charges.

    `unit_rows` is the number of rows of the unit by which the tables differ.
    """
    walk = _Walk(
        list(zip(first, second, strict=True)),
        unit_rows,
        factor=2 if adjacency == "replace_one" else 1,
    )
    try:
        for charge in charges_of(event, walk.factor):
            if isinstance(charge, float):
                _gaussians(walk, charge)
            else:
                _match(walk, charge)
        if walk.left():
            walk.refuse("no further draw: all charges are used")
        if owed := walk.owed.total():
            found = f"{owed} more of the largest scores are told"
            walk.problems.append(Problem("charged", f"draw {walk.at}", found, "a charge for each"))
    except _Mismatch:
        pass
    return ReplayVerdict(tuple(walk.problems), walk.share)


def _match(walk: _Walk, charge: dp_accounting.DpEvent) -> None:
    """Match the next draws with one charge."""
    match charge:
        case DiscreteGaussianDpEvent(sigma=sigma, sensitivity=sensitivity):
            _discrete(walk, sigma, sensitivity)
        case dp_accounting.PoissonSampledDpEvent(
            sampling_probability=rate, event=dp_accounting.GaussianDpEvent(noise_multiplier=noise)
        ):
            _sampled(walk, (0.0, 1.0), (1 - rate, rate), noise)
        case MixtureOfGaussiansDpEvent(
            standard_deviation=noise, sensitivities=moves, sampling_probs=probabilities
        ) if walk.factor == 1:
            _sampled(walk, moves, probabilities, noise)
        case SecretSampleDpEvent(rate=rate):
            _secret_sample(walk, rate)
        case SparseVectorDpEvent():
            _sparse_vector(walk, charge)
        case ThresholdedGaussianDpEvent():
            _kept_keys(walk, charge)
        case GumbelMaxDpEvent(scale=scale, sensitivity=sensitivity):
            _noisy_max(walk, scale, sensitivity)
        case _:
            walk.refuse(f"nothing: no rule for the event {type(charge).__name__} here")


def _discrete(walk: _Walk, sigma: float, sensitivity: int) -> None:
    """Discrete Gaussian noise of that very sigma."""
    pair = walk.noise(["discrete"], sigma)
    if pair is None:
        walk.refuse(f"discrete Gaussian noise of sigma {sigma:g}")
    walk.at += 1
    moved = float(np.abs(_move(pair)).sum())
    walk.spend(moved, walk.factor * sensitivity, "counts", since=walk.at - 1)


def _gaussians(walk: _Walk, allowed: float) -> None:
    """All draws up to the next kind of charge, together; no draw at all is less than is charged."""
    start, squares = walk.at, 0.0
    while pair := walk.noise(GAUSSIAN):
        squares += _in_noise(pair) ** 2
        walk.at += 1
    walk.spend(math.sqrt(squares), allowed, "of the noise", since=start)


def _sampled(
    walk: _Walk, moves: Sequence[float], probabilities: Sequence[float], noise: float
) -> None:
    """A batch, and noise on one sum over it; `moves[i]` is what i rows of the unit may move."""
    rows = _batch(walk, probabilities)
    pair = walk.noise(GAUSSIAN)
    if pair is None:
        walk.refuse("Gaussian noise on the sum over the batch")
    walk.at += 1
    allowed = sum(moves[min(r, len(moves) - 1)] for r in rows) / noise
    walk.spend(_in_noise(pair), allowed, "of the noise", since=walk.at - 1)


def _secret_sample(walk: _Walk, rate: float) -> None:
    """One sample of that very rate."""
    match walk.left():
        case (SampleCall() as first, SampleCall()) if first.rate == rate:
            walk.at += 1
        case _:
            walk.refuse(f"a secret sample of rate {rate:g}")


def _batch(walk: _Walk, probabilities: Sequence[float]) -> tuple[int, int]:
    """Rows of the unit in the next batch, of either table.

    `probabilities` of 0, 1, .. rows are charged.
    """
    match walk.left():
        case (CoinCall() as first, CoinCall() as second) if _binomial(first.rate, probabilities):
            walk.at += 1
            return first.of_unit, second.of_unit
    mean = sum(i * probability for i, probability in enumerate(probabilities))
    walk.refuse(f"a Poisson batch of rate {mean / (len(probabilities) - 1):g}")


def _binomial(rate: float, probabilities: Sequence[float]) -> bool:
    """Whether `probabilities` are those of 0, 1, .. rows in a batch of that rate.

    Of one row the probability must be the very same number.
    """
    rows = len(probabilities) - 1
    if rows == 1:
        return probabilities[1] == rate
    binomial = [math.comb(rows, i) * rate**i * (1 - rate) ** (rows - i) for i in range(rows + 1)]
    return np.allclose(probabilities, binomial, rtol=1e-9, atol=0)


def _sparse_vector(walk: _Walk, charge: SparseVectorDpEvent) -> None:
    """One pass of the sparse vector: batch, threshold, queries up to the first that is above."""
    if walk.left() is None:
        return
    rows = walk.factor * walk.unit_rows
    if charge.rate < 1:
        rows = sum(_batch(walk, (1 - charge.rate, charge.rate)))
    threshold = walk.noise(["laplace"], charge.threshold_scale)
    if threshold is None or threshold[0].exact.size != 1:
        walk.refuse(f"a threshold with discrete Laplace noise of scale {charge.threshold_scale:g}")
    walk.at += 1
    walk.spend(float(np.abs(_move(threshold)).max()), 0.0, "of the threshold", since=walk.at - 1)
    while query := walk.noise(["laplace"], charge.query_scale):
        if query[0].exact.size != 1:
            walk.refuse("queries one by one")
        walk.at += 1
        moved = float(np.abs(_move(query)).max())
        walk.spend(moved, rows * charge.sensitivity, "steps of a query", since=walk.at - 1)
        if query[0].noisy.item() >= threshold[0].noisy.item():
            return


def _kept_keys(walk: _Walk, charge: ThresholdedGaussianDpEvent) -> None:
    """Counts of the keys that occur, told above a threshold; none, where nothing was chosen."""
    match walk.left():
        case None:
            return
        case (KeysCall() as first, KeysCall() as second):
            walk.at += 1
        case _:
            walk.refuse("counts of keys, told above a threshold")
    one, two = first.counts, second.counts
    common = one.keys() & two.keys()
    moved = math.sqrt(sum((one[key] - two[key]) ** 2 for key in common)) / first.sigma
    allowed = charge.sensitivity * math.sqrt(walk.factor) / charge.sigma
    walk.spend(moved, allowed, "of the noise", since=walk.at - 1)
    for own in (one, two):
        # a + round(N) >= t where N >= t - 1/2 - a
        alone = [
            norm.sf((first.threshold - 0.5 - own[k]) / first.sigma) for k in own.keys() - common
        ]
        told = -math.expm1(sum(math.log1p(-p) for p in alone))
        walk.spend(told, charge.delta, "probability to tell a key of one unit", since=walk.at - 1)


def _noisy_max(walk: _Walk, scale: float, sensitivity: int) -> None:
    """One noisy maximum, or the next of those that one draw told."""
    if walk.owed[scale, sensitivity]:
        walk.owed[scale, sensitivity] -= 1
        return
    if walk.left() is None:
        return
    pair = walk.noise(["maximum"], scale)
    if pair is None:
        walk.refuse(f"a noisy maximum of scale {scale:g}")
    walk.at += 1
    walk.owed[scale, sensitivity] = pair[0].noisy.size - 1
    moved, allowed = float(np.abs(_move(pair)).max()), walk.factor * walk.unit_rows * sensitivity
    walk.spend(moved, allowed, "of a score", since=walk.at - 1)


def _move(pair: tuple[NoiseCall, NoiseCall]) -> npt.NDArray[np.float64]:
    """Difference of the hidden values."""
    moved: npt.NDArray[np.float64] = pair[0].rounded - pair[1].rounded
    return moved


def _in_noise(pair: tuple[NoiseCall, NoiseCall]) -> float:
    """L2 distance of the hidden values, in units of the noise."""
    return float(np.linalg.norm(_move(pair).ravel())) / pair[0].sigma


def _described(call: Call) -> str:
    if isinstance(call, KeysCall):
        return f"counts of keys, told from {call.threshold} on, with noise of scale {call.sigma:g}"
    if isinstance(call, CoinCall):
        return f"a Poisson batch of rate {call.rate:g}"
    if isinstance(call, SampleCall):
        return f"a secret sample of rate {call.rate:g}"
    return f"{call.kind} noise of scale {call.sigma:g} on {call.exact.size} values"
