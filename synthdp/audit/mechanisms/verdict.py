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
- What held-out units move (`HeldOutDpEvent`): as it is, by such a unit, and nothing by another. Of
  all else a unit that is held out moves nothing.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NoReturn

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from scipy.stats import norm

from synthdp.audit.mechanisms.calls import (
    Call,
    CoinCall,
    Differs,
    Fingerprint,
    KeysCall,
    LatentCall,
    NoiseCall,
    Pair,
    ReplayFinding,
    SampleCall,
)
from synthdp.privacy.events import Adjacency, kernel
from synthdp.privacy.events.kinds import HeldOutDpEvent, SecretSampleDpEvent
from synthdp.privacy.noise import NoiseKind

GAUSSIAN: Sequence[NoiseKind] = ("rounded", "lattice")


Difference = tuple[Differs, str, str, str]  # what differs, where, found, allowed


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
    still: bool = False  # the unit may move nothing: it is on the other side of the holdout
    owed: Counter[tuple[float, int]] = field(default_factory=Counter)  # maxima told, not charged
    problems: list[Difference] = field(default_factory=list)

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
        self.problems.append(("charged", f"draw {self.at + 1}", found, allowed))
        raise _Mismatch

    def spend(self, used: float, allowed: float, unit: str, *, since: int) -> None:
        """Compare a move with its allowance; the draws from `since` on hid it."""
        allowed = 0.0 if self.still else allowed
        self.share = max(self.share, used / allowed if allowed else 0.0)
        if used <= allowed * (1 + 1e-9):  # of the sums of squares here
            return
        where = f"draws {since + 1} to {self.at} together"
        if self.at == since + 1:
            where = f"draw {self.at}"
        found, may_move = f"{used:.6g} {unit}", f"{allowed:.6g} {unit}"
        self.problems.append(("moved", where, found, may_move))


def judge(
    event: dp_accounting.DpEvent,
    first: Sequence[Call],
    second: Sequence[Call],
    *,
    unit_rows: int,
    adjacency: Adjacency,
    held_out: bool = False,
) -> tuple[list[Difference], float]:
    """Compare two recorded runs of one mechanism, call by call, with the event that it charges.

    Returns draws that no charge pays for (`charged`), or that one pays too little for (`moved`),
    and the largest part of an allowance that was used. `unit_rows` is the number of rows of the
    unit by which the tables differ, which may be `held_out`.
    """
    walk = _Walk(
        list(zip(first, second, strict=True)),
        unit_rows,
        factor=2 if adjacency == "replace_one" else 1,
    )
    try:
        for charge, of_held_out, draws in charges_of(event, walk.factor):
            walk.still = of_held_out != held_out
            if isinstance(charge, float):
                _gaussians(walk, charge, draws)
            else:
                _match(walk, charge)
        if walk.left():
            walk.refuse("no further draw: all charges are used")
        if owed := walk.owed.total():
            found = f"{owed} more of the largest scores are told"
            walk.problems.append(("charged", f"draw {walk.at}", found, "a charge for each"))
    except _Mismatch:
        pass
    return walk.problems, walk.share


def _match(walk: _Walk, charge: dp_accounting.DpEvent) -> None:
    match charge:
        case kernel.DiscreteGaussianDpEvent(sigma=sigma, sensitivity=sensitivity):
            pair = walk.noise(["discrete"], sigma)
            if pair is None:
                walk.refuse(f"discrete Gaussian noise of sigma {sigma:g}")
            walk.at += 1
            moved = float(np.abs(_move(pair)).sum())
            walk.spend(moved, walk.factor * sensitivity, "counts", since=walk.at - 1)
        case dp_accounting.PoissonSampledDpEvent(
            sampling_probability=rate, event=dp_accounting.GaussianDpEvent(noise_multiplier=noise)
        ):
            _sampled(walk, (0.0, 1.0), (1 - rate, rate), noise)
        case MixtureOfGaussiansDpEvent(
            standard_deviation=noise, sensitivities=moves, sampling_probs=probabilities
        ) if walk.factor == 1:
            _sampled(walk, moves, probabilities, noise)
        case SecretSampleDpEvent(rate=rate):
            match walk.left():
                case (SampleCall() as first, SampleCall()) if first.rate == rate:
                    walk.at += 1
                case _:
                    walk.refuse(f"a secret sample of rate {rate:g}")
        case kernel.SparseVectorDpEvent():
            _sparse_vector(walk, charge)
        case kernel.ThresholdedGaussianDpEvent():
            _kept_keys(walk, charge)
        case kernel.GumbelMaxDpEvent(scale=scale, sensitivity=sensitivity):
            _noisy_max(walk, scale, sensitivity)
        case _:
            walk.refuse(f"nothing: no rule for the event {type(charge).__name__} here")


def _gaussians(walk: _Walk, allowed: float, draws: float) -> None:
    """All draws up to the next kind of charge, together, at most `draws`; no draw at all is less
    than is charged.
    """
    start, squares = walk.at, 0.0
    while walk.at < start + draws and (pair := walk.noise(GAUSSIAN)):
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


def _sparse_vector(walk: _Walk, charge: kernel.SparseVectorDpEvent) -> None:
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


def _kept_keys(walk: _Walk, charge: kernel.ThresholdedGaussianDpEvent) -> None:
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
        told = -math.expm1(sum(math.log1p(-min(p, 1 - 2**-53)) for p in alone))
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


# --- charges ---


Charge = tuple[dp_accounting.DpEvent | float, bool, float]


def charges_of(event: dp_accounting.DpEvent, units: int) -> Iterator[Charge]:
    """Single charges in the order of their draws, whether held-out units alone move each, and how
    many draws it has at most.

    Gaussians that follow each other come as one number: the move that they allow together, in units
    of their noise.
    """
    squares, side, count = 0.0, False, 0  # of moves that the last Gaussians allow; whose they are
    for leaf, held_out in _leaves(event):
        if squares and held_out != side:  # one draw for each: what follows is another's
            yield math.sqrt(squares), side, count
            squares, count = 0.0, 0
        side, count = held_out, count + 1
        match leaf:
            case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
                squares += (units / noise) ** 2
                continue
            case kernel.GaussianSumsDpEvent():
                squares += leaf.moved("add_remove" if units == 1 else "replace_one") ** 2
                continue
            case kernel.RoundedGaussianDpEvent():
                squares += leaf.noise_multiplier(units) ** -2
                continue
        if squares:
            yield math.sqrt(squares), side, math.inf
            squares = 0.0
        count = 0
        yield leaf, side, 1
    if squares:
        yield math.sqrt(squares), side, math.inf


def _leaves(
    event: dp_accounting.DpEvent, held_out: bool = False
) -> Iterator[tuple[dp_accounting.DpEvent, bool]]:
    """The events of a composition, in order, and whether held-out units alone move them; a secret
    sample, then those on it.
    """
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            for _ in range(count):
                yield from _leaves(inner, held_out)
        case dp_accounting.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _leaves(part, held_out)
        case HeldOutDpEvent(event=inner):
            yield from _leaves(inner, True)
        case SecretSampleDpEvent(event=inner):
            yield event, held_out
            yield from _leaves(inner, held_out)
        case _:
            yield event, held_out


# --- comparison of two recorded runs on neighbours: everything that could distinguish them ---


@dataclass
class RecordedRun:
    """One recorded run.

    `stopped` says that it asked for other randomness than the first run did, and could not go on.
    """

    calls: list[Call]
    latent_calls: list[LatentCall]
    rows: int
    ticks: list[tuple[object, ...]]
    said: list[str]
    value: Fingerprint = field(default_factory=dict)
    packed: Fingerprint = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    error: str | None = None
    stopped: bool = False


def compare(
    mechanism: str,
    pair: Pair,
    event: dp_accounting.DpEvent,
    first: RecordedRun,
    second: RecordedRun,
    *,
    adjacency: Adjacency,
) -> tuple[list[ReplayFinding], float]:
    """Findings of one pair, and the largest part of an allowance that it used."""
    allowed = "no exception: its kind and its text are an output"
    differences: list[Difference] = [
        ("exception", which, run.error, allowed)
        for which, run in (("first table", first), ("second table", second))
        if run.error is not None
    ]
    differences += [*_calls(first, second), *_latents(first, second)]
    share = 0.0
    if not differences:
        differences += _contents(first, second)
        problems, share = judge(
            *(event, first.calls, second.calls),
            unit_rows=pair.unit_rows,
            adjacency=adjacency,
            held_out=pair.held_out,
        )
        differences += problems
    return [ReplayFinding(mechanism, pair.name, *d) for d in differences], share


def _calls(first: RecordedRun, second: RecordedRun) -> Iterator[Difference]:
    """Draws of both runs: kinds, order and number, and every parameter except the hidden values."""
    for which, run in (("first table", first), ("second table", second)):
        yield from _each_alone(which, run)
    for number, (one, two) in enumerate(zip_longest(first.calls, second.calls), start=1):
        where = f"draw {number}"
        if type(one) is not type(two) or _kind(one) != _kind(two):
            yield "calls", where, f"{_kind(one)} and {_kind(two)}", "the same draws for neighbours"
            return
        match one, two:
            case CoinCall() | SampleCall(), CoinCall() | SampleCall() if one.rate != two.rate:
                yield "rate", where, f"{one.rate:.9g} and {two.rate:.9g}", "a public rate"
            case NoiseCall(), NoiseCall():
                yield from _about_noise(where, one, two)
            case KeysCall(), KeysCall():
                public: list[tuple[Differs, object, object]] = [
                    ("sigma", one.sigma, two.sigma),
                    ("threshold", one.threshold, two.threshold),
                ]
                yield from _not_public(where, public)


def _each_alone(which: str, run: RecordedRun) -> Iterator[Difference]:
    """What is wrong with the draws of one run, without the other."""
    for number, call in enumerate(run.calls, start=1):
        where = f"draw {number}, {which}"
        if isinstance(call, CoinCall):
            if call.rows != call.of_rows:
                allowed = f"a coin for each of the {call.of_rows} rows"
                yield "coins", where, f"coins for {call.rows} rows", allowed
        elif isinstance(call, SampleCall):
            if call.units != call.of_units:
                allowed = f"a coin for each of the {call.of_units} units"
                yield "coins", where, f"a secret sample by {call.units} coins", allowed
        elif isinstance(call, KeysCall):
            continue
        elif not np.isfinite(call.rounded).all():
            found = "hidden values that are infinite or not numbers"
            yield "not finite", where, found, "finite values, which noise can hide"
        elif not _on_lattice(call):
            allowed = f"whole multiples of {call.spacing:.6g}"
            yield "lattice", where, "noisy values off the lattice", allowed


def _on_lattice(call: NoiseCall) -> bool:
    """Whether all noisy values are exact multiples of the spacing."""
    if not call.spacing > 0 or not math.isfinite(call.spacing):
        return False
    steps = np.asarray(call.noisy, dtype=np.float64) / call.spacing
    exact = (np.abs(steps) < 2.0**53).all()  # beyond, doubles hold no lattice
    return bool(exact and (np.rint(steps) * call.spacing == call.noisy).all())


def _about_noise(where: str, one: NoiseCall, two: NoiseCall) -> Iterator[Difference]:
    """Parameters of a draw of noise that differ; all of them must be public."""
    pairs: Sequence[tuple[Differs, object, object]] = (
        ("shape", one.exact.shape, two.exact.shape),
        ("shape", one.noisy.shape, two.noisy.shape),
        ("dtype", one.exact.dtype, two.exact.dtype),
        ("sigma", one.sigma, two.sigma),
        ("spacing", one.spacing, two.spacing),
    )
    yield from _not_public(where, pairs)


def _not_public(
    where: str, pairs: Sequence[tuple[Differs, object, object]]
) -> Iterator[Difference]:
    for what, a, b in pairs:
        if a != b:
            yield what, where, f"{a} and {b}", f"a public {what}"


def _latents(first: RecordedRun, second: RecordedRun) -> Iterator[Difference]:
    """Latents protect nothing, but each row must have its own.

    Otherwise one row would affect what others get.
    """
    for which, run in (("first table", first), ("second table", second)):
        for call in run.latent_calls:
            if call.rows != call.needed:
                where = f"batch {call.batch_number}, {which}"
                found = f"latents of {call.rows} rows"
                yield "latents", where, found, f"of the {call.needed} rows in the batch"
    draws = zip(_widths(first), _widths(second), strict=False)
    for number, (one, two) in enumerate(draws):
        if one is not None and two is not None and one != two:
            found = f"{len(one)} and {len(two)} draws"
            yield "latents", f"batch {number}", found, "the same draws for neighbours"


def _widths(run: RecordedRun) -> list[list[int] | None]:
    """Widths of the draws of latents for each batch; None for a batch without rows.

    Number 0 stands for the draws before the first batch.
    """
    sizes = [run.rows] + [call.batch for call in run.calls if isinstance(call, CoinCall)]
    return [
        [c.width for c in run.latent_calls if c.batch_number == n] if size else None
        for n, size in enumerate(sizes)
    ]


def _contents(first: RecordedRun, second: RecordedRun) -> Iterator[Difference]:
    """Everything that leaves a run; given the same noise it must be equal to the last bit."""
    pieces: Sequence[tuple[Differs, Fingerprint, Fingerprint]] = (
        ("output", first.value, second.value),
        ("packed", first.packed, second.packed),
    )
    allowed = "the same, given the same noise"
    for what, before, after in pieces:
        for where in [*before, *(after.keys() - before.keys())]:
            piece, other = before.get(where), after.get(where)
            if piece != other:
                one, two = (part[0] if part else "nothing" for part in (piece, other))
                found = f"{one} and {two}" if one != two else f"{one} of other content"
                yield what, where, found, allowed
    if first.files != second.files:
        names = ", ".join(sorted(first.files.keys() | second.files.keys()))
        yield "files", names, "other content", allowed
    if first.ticks != second.ticks:
        found = f"{len(first.ticks)} and {len(second.ticks)}, or other numbers in them"
        yield "progress", "ticks", found, "the same"
    if first.said != second.said:
        found = str(sorted(set(first.said) ^ set(second.said)))
        yield "said", "printed, logged or warned", found, "the same"


def _kind(call: Call | None) -> str:
    if isinstance(call, NoiseCall):
        return f"{call.kind} noise"
    kinds = {KeysCall: "keys above a threshold", SampleCall: "a secret sample", CoinCall: "a batch"}
    return "no draw" if call is None else kinds[type(call)]
