"""Comparison of two recorded runs on neighbours: everything that could distinguish them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import dp_accounting
import numpy as np

from synthdp.audit.mechanisms.calls import (
    Call,
    CoinCall,
    KeysCall,
    LatentCall,
    NoiseCall,
    SampleCall,
)
from synthdp.audit.mechanisms.findings import Differs, ReplayFinding
from synthdp.audit.mechanisms.fingerprint import Fingerprint
from synthdp.audit.mechanisms.neighbours import Pair
from synthdp.audit.mechanisms.verdict import judge
from synthdp.privacy.events.base import Adjacency

MAX_STEPS = 2.0**53  # beyond this many spacings from zero, doubles hold no lattice

Difference = tuple[Differs, str, str, str]  # what differs, where, found, allowed


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
    sees_held_out: bool = False,
) -> tuple[list[ReplayFinding], float]:
    """Findings of one pair, and the largest part of an allowance that it used.

    A held-out unit may move nothing, unless a mechanism `sees_held_out`.
    """
    differences = [*_errors(first, second), *_calls(first, second), *_latents(first, second)]
    share = 0.0
    if not differences:
        differences += _contents(first, second)
        verdict = judge(
            event, first.calls, second.calls, unit_rows=pair.unit_rows, adjacency=adjacency
        )
        differences += [(p.differs, p.where, p.found, p.allowed) for p in verdict.problems]
        share = verdict.largest_share
        if pair.held_out and share and not sees_held_out:
            found = f"{share:.3g} of the allowance"
            differences.append(("moved", "a unit that is held out", found, "nothing"))
    return [ReplayFinding(mechanism, pair.name, *d) for d in differences], share


def _errors(first: RecordedRun, second: RecordedRun) -> Iterator[Difference]:
    """An exception on either table; its kind and its text are an output."""
    for which, run in (("first table", first), ("second table", second)):
        if run.error is not None:
            yield "exception", which, run.error, "no exception: its kind and its text are an output"


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
    exact = (np.abs(steps) < MAX_STEPS).all()
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
                yield what, where, _piece_difference(piece, other), allowed
    if first.files != second.files:
        names = ", ".join(sorted(first.files.keys() | second.files.keys()))
        yield "files", names, "other content", allowed
    if first.ticks != second.ticks:
        found = f"{len(first.ticks)} and {len(second.ticks)}, or other numbers in them"
        yield "progress", "ticks", found, "the same"
    if first.said != second.said:
        found = str(sorted(set(first.said) ^ set(second.said)))
        yield "said", "printed, logged or warned", found, "the same"


def _piece_difference(one: tuple[str, bytes] | None, two: tuple[str, bytes] | None) -> str:
    """How two pieces of a fingerprint differ: in their kinds, or else in their content."""
    first, second = (piece[0] if piece else "nothing" for piece in (one, two))
    return f"{first} and {second}" if first != second else f"{first} of other content"


def _kind(call: Call | None) -> str:
    if call is None:
        return "no draw"
    if isinstance(call, KeysCall):
        return "keys above a threshold"
    if isinstance(call, SampleCall):
        return "a secret sample"
    return "a batch" if isinstance(call, CoinCall) else f"{call.kind} noise"
