"""What an event allows two recorded runs to differ by.

The yardstick is the event, which is what is charged, and never what a mechanism says of its own sensitivity.
Every draw of noise must belong to a charge and every charge must find its draw. For each charge the hidden
values of two neighbours may move, in units of the noise:

- `DiscreteGaussian(sigma, s)`: one draw of that very sigma, moved by at most s counts (L1, the event's own words).
- Gaussians of noise m1, m2, ...: all draws up to the next kind of charge; together the squares of L2 move / sigma
  may sum to 1/m1^2 + 1/m2^2 + ..., since Gaussian mechanisms compose to one [Dong, Roth, Su, "Gaussian Differential
  Privacy", arXiv:1905.02383v3, Corollary 3.3, also for adaptively chosen ones].
- A Poisson-sampled Gaussian of noise m: one batch of that very rate, one draw, moved by 1/m for each row of the unit
  in the batch; so too the mixture of Gaussians for units of several rows, if its chances are those of that rate.

Where units are replaced, one is taken away and one is put in: twice the move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import dp_accounting
import numpy as np
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

from synthdp.privacy.accounting import Adjacency, DiscreteGaussianDpEvent
from synthdp.privacy.audit.recording import Call, CoinCall, NoiseCall

ROUNDING = 1 + 1e-9  # of the sums of squares here


@dataclass(frozen=True)
class Problem:
    """A draw that no charge pays for (`charged`), or that one pays too little for (`moved`)."""

    differs: Literal["charged", "moved"]
    where: str
    found: str
    allowed: str


@dataclass(frozen=True)
class Verdict:
    """What is not paid for, and the largest part of an allowance that was used."""

    problems: tuple[Problem, ...]
    largest_share: float


class _Mismatch(Exception):
    """The next draw is not the one that is charged; nothing after it can be matched."""


@dataclass
class _Walk:
    """Both runs' calls, side by side, and how far the charges have been matched with them."""

    calls: Sequence[tuple[Call, Call]]
    factor: int  # units that differ: two where one is replaced
    at: int = 0
    share: float = 0.0
    problems: list[Problem] = field(default_factory=list)

    def left(self) -> tuple[Call, Call] | None:
        return self.calls[self.at] if self.at < len(self.calls) else None

    def refuse(self, allowed: str) -> NoReturn:
        pair = self.left()
        self.problems.append(Problem("charged", f"draw {self.at + 1}", _described(pair[0]) if pair else "no further draw", allowed))
        raise _Mismatch

    def spend(self, used: float, allowed: float, where: str, unit: str) -> None:
        self.share = max(self.share, used / allowed if allowed else 0.0)
        if not used <= allowed * ROUNDING:
            self.problems.append(Problem("moved", where, f"{used:.6g} {unit}", f"{allowed:.6g} {unit}"))


def judge(event: dp_accounting.DpEvent, first: Sequence[Call], second: Sequence[Call], *, adjacency: Adjacency) -> Verdict:
    """Hold two recorded runs of one mechanism, call by call alike, against the event that it charges."""
    walk = _Walk(list(zip(first, second, strict=True)), factor=2 if adjacency == "replace_one" else 1)
    try:
        for charge in _charges(event):
            _match(walk, charge)
        if walk.left():
            walk.refuse("no further draw: all charges are used")
    except _Mismatch:
        pass
    return Verdict(tuple(walk.problems), walk.share)


def _charges(event: dp_accounting.DpEvent) -> Iterator[dp_accounting.DpEvent]:
    """Single charges in the order of their draws; Gaussians that follow each other as one."""
    waiting = 0.0
    for leaf in _leaves(event):
        if isinstance(leaf, dp_accounting.GaussianDpEvent):
            waiting += 1 / leaf.noise_multiplier**2
            continue
        if waiting:
            yield dp_accounting.GaussianDpEvent(waiting**-0.5)
            waiting = 0.0
        yield leaf
    if waiting:
        yield dp_accounting.GaussianDpEvent(waiting**-0.5)


def _leaves(event: dp_accounting.DpEvent) -> Iterator[dp_accounting.DpEvent]:
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            for _ in range(count):
                yield from _leaves(inner)
        case dp_accounting.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _leaves(part)
        case _:
            yield event


def _match(walk: _Walk, charge: dp_accounting.DpEvent) -> None:
    match charge:
        case DiscreteGaussianDpEvent(sigma=sigma, sensitivity=sensitivity):
            _discrete(walk, sigma, sensitivity)
        case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
            _gaussians(walk, noise)
        case dp_accounting.PoissonSampledDpEvent(sampling_probability=rate, event=dp_accounting.GaussianDpEvent(noise_multiplier=noise)):
            _sampled(walk, (0.0, 1.0), (1 - rate, rate), noise)
        case MixtureOfGaussiansDpEvent(standard_deviation=noise, sensitivities=moves, sampling_probs=chances) if walk.factor == 1:
            _sampled(walk, moves, chances, noise)
        case _:
            walk.refuse(f"nothing: no rule for the event {type(charge).__name__} here")


def _discrete(walk: _Walk, sigma: float, sensitivity: int) -> None:
    pair = walk.left()
    if not (pair and isinstance(pair[0], NoiseCall) and isinstance(pair[1], NoiseCall) and pair[0].kind == "discrete" and pair[0].sigma == sigma):
        walk.refuse(f"discrete noise of sigma {sigma:g}")
    moved = float(np.abs(pair[0].rounded - pair[1].rounded).sum())
    walk.at += 1
    walk.spend(moved, walk.factor * sensitivity, f"draw {walk.at}", "counts")


def _gaussians(walk: _Walk, noise: float) -> None:
    """All draws up to the next kind of charge, together. No draw at all is less than what is charged."""
    start, squares = walk.at, 0.0
    while (pair := walk.left()) and isinstance(pair[0], NoiseCall) and isinstance(pair[1], NoiseCall) and pair[0].kind != "discrete":
        squares += _moved(pair[0], pair[1]) ** 2
        walk.at += 1
    walk.spend(math.sqrt(squares), walk.factor / noise, f"draws {start + 1} to {walk.at} together", "of the noise")


def _sampled(walk: _Walk, moves: Sequence[float], chances: Sequence[float], noise: float) -> None:
    """A batch, and noise on one sum over it. `moves[i]` is what i rows of the unit in the batch may move."""
    pair = walk.left()
    rate = sum(i * c for i, c in enumerate(chances)) / (len(chances) - 1)  # mean of a binomial
    if not (pair and isinstance(pair[0], CoinCall) and isinstance(pair[1], CoinCall) and _binomial(pair[0].rate, chances)):
        walk.refuse(f"a Poisson batch of rate {rate:g}")
    rows = [min(call.of_unit, len(moves)) for call in (pair[0], pair[1])]
    walk.at += 1
    pair = walk.left()
    if not (pair and isinstance(pair[0], NoiseCall) and isinstance(pair[1], NoiseCall) and pair[0].kind != "discrete"):
        walk.refuse("Gaussian noise on the sum over the batch")
    walk.at += 1
    walk.spend(_moved(pair[0], pair[1]), sum(moves[r] for r in rows) / noise, f"draw {walk.at}", "of the noise")


def _binomial(rate: float, chances: Sequence[float]) -> bool:
    """Whether `chances` are those of so many rows in a batch of that rate; one row's rate must be the very same."""
    rows = len(chances) - 1
    if rows == 1:
        return chances[1] == rate
    return np.allclose(chances, [math.comb(rows, i) * rate**i * (1 - rate) ** (rows - i) for i in range(rows + 1)], rtol=1e-9, atol=0)


def _moved(first: NoiseCall, second: NoiseCall) -> float:
    """How far the hidden values are from each other in L2, in units of the noise."""
    return float(np.linalg.norm((first.rounded - second.rounded).ravel())) / first.sigma


def _described(call: Call) -> str:
    if isinstance(call, CoinCall):
        return f"a Poisson batch of rate {call.rate:g}"
    return f"{call.kind} noise of sigma {call.sigma:g} on {call.exact.size} values"
