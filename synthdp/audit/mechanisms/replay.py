"""Replay: run a mechanism on a table and, with the same noise, on a neighbour.

Everything in which the runs differ must be paid for by the mechanism's event. The replay is
deterministic where attacks are statistical: it sees a leak on a pair of tables whatever the leak's
size. It cannot see a leak on pairs that were not tried, and not whether the noise has its
distribution (that is tested with `noise`).

A `Recorder` answers all calls for randomness. On the first table it answers with real noise and
records the exact values that the noise hides. On the neighbour it answers with the noisy values of
the first run. Given the same noisy values, everything that follows is post-processing and must be
equal to the last bit.

Coins, places and latents are coupled by row. A shared row has the same in both runs, and the unit's
rows take free places. `UNIT_IN_BATCH` sets how many of the unit's rows are in a batch: that
probability belongs to the accounting. The replay tests how far they move a sum when they are in the
batch, and that nothing moves when they are not. So it is with a secret sample: a pair is replayed
with the unit in it, and without (`Coupling.joins`).
"""

from __future__ import annotations

import copy
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.audit.mechanisms.calls import (
    Array,
    Call,
    CoinCall,
    KeysCall,
    LatentCall,
    NoiseCall,
    Pair,
    Replayed,
    ReplayFinding,
    SampleCall,
    Side,
    fingerprint,
)
from synthdp.audit.mechanisms.verdict import RecordedRun, compare
from synthdp.data.domain import Domain
from synthdp.privacy.events import Adjacency
from synthdp.privacy.linked import as_view
from synthdp.privacy.mechanisms import Arrays, Mechanism
from synthdp.privacy.noise import DRAWS, Floats, Integers, Key, NoiseKind, Randomness, Streams


def replay(
    mechanism: Mechanism[Any],
    pairs: Iterable[Pair],
    *,
    domain: Domain,
    rows_per_unit: int = 1,
    adjacency: Adjacency = "add_remove",
    streams: Callable[[], Randomness] = Streams.fresh,
) -> Replayed:
    """Replay `mechanism` on `pairs` of tables of `domain`, and compare with its event.

    The event is for units of `rows_per_unit` rows. The mechanism is copied for each run. If it has
    fields `progress` and `checkpoints`, as trainings have, the ticks and the checkpoints are
    compared too. One that draws a secret sample runs twice, with the unit in it and without.

    Raises:
        ValueError: a pair has a unit of more rows.
    """
    event = mechanism.event(rows_per_unit)
    findings: list[ReplayFinding] = []
    count, share = 0, 0.0
    for pair in pairs:
        if pair.unit_rows > rows_per_unit:
            raise ValueError(
                f"{pair.name}: a unit of {pair.unit_rows} rows; the event is for {rows_per_unit}"
            )
        count += 1
        for joins in (True, False):
            before, after = pair.sides(domain)
            shared, units = len(pair.shared), len(pair.before) + len(pair.after)
            coupling = Coupling(streams(), shared, shared + units, joins=joins)
            first = _run(mechanism, before, coupling, None)
            second = _run(mechanism, after, coupling, first.calls)
            found, used = compare(mechanism.name, pair, event, first, second, adjacency=adjacency)
            findings += found
            share = max(share, used)
            if not any(isinstance(call, SampleCall) for call in first.calls):
                break
    return Replayed((mechanism.name,), count, share, tuple(findings))


def merged(replays: Iterable[Replayed]) -> Replayed:
    every = list(replays)
    return Replayed(
        tuple(name for r in every for name in r.mechanisms),
        sum(r.pairs for r in every),
        max((r.largest_share for r in every), default=0.0),
        tuple(f for r in every for f in r.findings),
    )


def _run(
    mechanism: Mechanism[Any], side: Side, coupling: Coupling, first: Sequence[Call] | None
) -> RecordedRun:
    recorder = Recorder(side, coupling, first)
    ticks: list[tuple[object, ...]] = []
    said: list[str] = []
    kept = Kept() if getattr(mechanism, "checkpoints", None) is not None else None
    with _overheard(said):
        copied = _redirected(copy.deepcopy(mechanism), kept, lambda *tick: ticks.append(tick))
        run = RecordedRun(
            recorder.calls, recorder.latent_calls, rows=len(side.identity), ticks=ticks, said=said
        )
        try:
            view = getattr(copied, "view", None)
            table = side.table if view is None else as_view(side.table, view)
            value = copied.run(table, recorder)
            run.value, run.packed = fingerprint(value), fingerprint(copied.pack(value))
        except Diverged:
            run.stopped = True
        except Exception as error:
            run.error = f"{type(error).__name__}: {error}"
        if kept:
            run.files = kept.files
    return run


def _redirected(mechanism: Any, kept: Kept | None, tick: Callable[..., None]) -> Any:
    """The mechanism with `tick` as its progress and `kept` as its checkpoints, if it has them."""
    names = {f.name for f in fields(mechanism)} if is_dataclass(mechanism) else set()
    changes: dict[str, Any] = {"progress": tick} if "progress" in names else {}
    if kept:
        changes["checkpoints"] = kept
    return replace(mechanism, **changes) if changes else mechanism


class _Ear:
    """Standard output or error that records what this thread prints.

    Other threads, such as a progress bar's, print as before.
    """

    def __init__(self, said: list[str], through: Any) -> None:
        self._said, self._through, self._thread = said, through, threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return int(self._through.write(text))
        self._said.append(f"printed: {text}")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._through, name)


class _Listener(logging.Handler):
    """A log handler that records what this thread logs."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said, self._thread = said, threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._said.append(f"log: {record.getMessage()}")


@contextmanager
def _overheard(said: list[str]) -> Iterator[None]:
    """Record in `said` what is printed, logged and warned of."""
    listener = _Listener(said)
    logging.getLogger().addHandler(listener)
    try:
        out = redirect_stdout(_Ear(said, sys.stdout))
        error = redirect_stderr(_Ear(said, sys.stderr))
        with warnings.catch_warnings(record=True) as warned, out, error:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", ResourceWarning)  # of others' files, when collected
            yield
    finally:
        logging.getLogger().removeHandler(listener)
    said += [f"warning: {w.message}" for w in warned]


UNIT_IN_BATCH = (1.0, 0.0, 0.5)  # share of the unit's rows, rounded up, in one batch after another


class Diverged(BaseException):
    """A run cannot go on: it asks for what the recorded run did not ask for.

    It derives from BaseException, so that no `except Exception` swallows it.
    """


@dataclass
class Coupling:
    """The coins, places and latents of both runs of a pair, drawn from real streams.

    There is one of each for each batch and row.
    """

    streams: Randomness
    shared_rows: int
    all_rows: int  # of both tables together
    joins: bool = True  # whether the unit by which they differ is in the secret sample
    sample: npt.NDArray[np.bool_] | None = None  # which shared rows are, drawn once
    coins: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    pools: dict[tuple[int, ...], npt.NDArray[np.float32]] = field(default_factory=dict)
    shared_places: dict[tuple[int, int], npt.NDArray[np.intp]] = field(default_factory=dict)

    def in_sample(self, rate: float, identity: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Which of the rows `identity` are in the secret sample, shape `[rows]`.

        At least half of the shared rows are, so that there are others that a unit might move.
        """
        if self.sample is None:
            joined = self.streams.secret_sample(self.shared_rows, rate=max(rate, 0.5))
            self.sample = np.isin(np.arange(self.shared_rows), joined)
        return np.append(self.sample, self.joins)[np.minimum(identity, self.shared_rows)]

    def in_batch(
        self, number: int, rate: float, identity: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.bool_]:
        """Which of the rows `identity` are in batch `number`, shape `[rows]`."""
        if number == len(self.coins):
            batch = self.streams.poisson_batch(self.shared_rows, rate=rate)
            self.coins.append(np.isin(np.arange(self.shared_rows), batch))
        of_unit = identity >= self.shared_rows
        drawn = np.zeros(len(identity), dtype=bool)
        drawn[~of_unit] = self.coins[number][identity[~of_unit]]
        share = UNIT_IN_BATCH[number % len(UNIT_IN_BATCH)]
        drawn[of_unit] = np.arange(of_unit.sum()) < np.ceil(of_unit.sum() * share)
        return drawn

    def places(self, key: tuple[int, int], identity: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Places of the rows `identity` of a batch; `key` is its number and the chunk's slots."""
        shared = identity < self.shared_rows
        if key not in self.shared_places:
            self.shared_places[key] = self.streams.places(int(shared.sum()), key[1])
        taken = self.shared_places[key]
        free = np.setdiff1d(np.arange(len(identity)), taken)
        places = np.empty(len(identity), dtype=np.intp)
        places[shared] = taken
        places[~shared] = free[: int((~shared).sum())]
        return places

    def latents(
        self, key: tuple[int, ...], width: int, identity: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.float32]:
        """Latents of the rows `identity`, `[rows, width]`; `key` names the draw."""
        if key not in self.pools:
            self.pools[key] = self.streams.latents(self.all_rows, width)
        return self.pools[key][identity]


class Recorder:
    """All randomness of a run; every call is recorded.

    Noise is fresh, or for the run on the neighbour that of the calls of the `first` run.
    """

    def __init__(self, side: Side, coupling: Coupling, first: Sequence[Call] | None) -> None:
        self.calls: list[Call] = []
        self.latent_calls: list[LatentCall] = []
        self._identity, self._coupling, self._first = side.identity, coupling, first
        self._batches, self._in_batch = 0, side.identity
        units = side.table.fit_units
        first_rows = slice(None) if units is None else np.unique(units, return_index=True)[1]
        self._units = side.identity[first_rows]  # of one row of each unit, in their numbers' order

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return self._noise("discrete", counts, sigma, 1.0)

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        return self._noise("rounded", counts, sigma, 1.0)

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        return self._noise("lattice", values, sigma, spacing)

    def discrete_laplace(self, counts: Integers, *, scale: float) -> Integers:
        return self._noise("laplace", counts, scale, 1.0)

    def noisy_max(self, scores: Integers, *, scale: float) -> int:
        return int(self._noise("maximum", scores, scale, 1.0))

    def noisy_top(self, scores: Integers, *, scale: float, count: int) -> Integers:
        fresh = partial(self._coupling.streams.noisy_top, scale=scale, count=count)
        return self._noise("maximum", scores, scale, 1.0, shape=(count,), fresh=fresh)

    def _noise(
        self,
        kind: NoiseKind,
        exact: Array,
        sigma: float,
        spacing: float,
        *,
        shape: tuple[int, ...] | None = None,
        fresh: Callable[[Array], Array] | None = None,
    ) -> Array:
        """The noisy values of one call, which is recorded; of places that are told, their `shape`.

        Raises:
            Diverged: the first run drew something else there, or told another number.
        """
        exact, told = exact.copy(), self._recorded()
        if self._first is None:
            draw = fresh or (
                lambda hidden: DRAWS[kind](self._coupling.streams, hidden, sigma, spacing)
            )
            noisy = np.asarray(draw(exact))
        elif (
            isinstance(told, NoiseCall)
            and (told.kind, told.exact.shape) == (kind, exact.shape)
            and shape in (None, told.noisy.shape)
        ):
            # Of discrete Laplace noise only comparisons are charged (the sparse vector). The
            # neighbour's run gets all of it moved by this much. That changes no comparison, and
            # shows a noisy value that gets out.
            noisy = told.noisy + 1_000_003 if kind == "laplace" else told.noisy
        else:
            nothing = np.zeros_like(exact) if shape is None else np.zeros(shape, dtype=np.int64)
            self.calls.append(NoiseCall(kind, exact, sigma, spacing, nothing))
            raise Diverged
        self.calls.append(NoiseCall(kind, exact, sigma, spacing, noisy))
        return noisy.copy()

    def _recorded(self) -> Call | None:
        """The call of the first run that stands where the next one will."""
        calls = self._first or ()
        return calls[len(self.calls)] if len(self.calls) < len(calls) else None

    def kept_counts(
        self, counts: Mapping[Key, int], *, sigma: float, threshold: int
    ) -> dict[Key, int]:
        hidden, told, kept = dict(counts), self._recorded(), dict[Key, int]()
        if self._first is None:
            streams = self._coupling.streams
            kept = streams.kept_counts(hidden, sigma=sigma, threshold=threshold)
        elif isinstance(told, KeysCall):
            kept = dict(told.kept)
        self.calls.append(KeysCall(hidden, sigma, threshold, kept))
        if self._first is not None and not isinstance(told, KeysCall):
            raise Diverged
        return dict(kept)

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        if rows != len(self._identity):
            self.calls.append(CoinCall(rows, rate, 0, 0, len(self._identity)))
            raise Diverged
        drawn = self._coupling.in_batch(self._batches, rate, self._identity)
        self._batches, self._in_batch = self._batches + 1, self._identity[drawn]
        of_unit = int((self._in_batch >= self._coupling.shared_rows).sum())
        self.calls.append(CoinCall(rows, rate, len(self._in_batch), of_unit, len(self._identity)))
        return np.flatnonzero(drawn)

    def secret_sample(self, units: int, *, rate: float) -> npt.NDArray[np.intp]:
        # Batches are of the sample from then on.
        self.calls.append(SampleCall(units, rate, len(self._units)))
        if units != len(self._units):
            raise Diverged
        self._identity = self._identity[self._coupling.in_sample(rate, self._identity)]
        return np.flatnonzero(self._coupling.in_sample(rate, self._units))

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        if rows != len(self._in_batch):
            raise Diverged
        return self._coupling.places((self._batches, slots), self._in_batch)

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        needed = len(self._in_batch)
        self.latent_calls.append(LatentCall(self._batches, rows, needed, width))
        if rows != needed:
            raise Diverged
        draws_of_batch = sum(c.batch_number == self._batches for c in self.latent_calls)
        key = self._batches, draws_of_batch, width
        return self._coupling.latents(key, width, self._in_batch)


class Kept:
    """Checkpoints that are recorded for the comparison."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def last(self) -> None:
        return None  # a replay begins at the start

    def keep(self, step: int, arrays: Arrays) -> None:
        from safetensors.numpy import save

        self.files[f"after {step} steps"] = save(arrays)
