"""Replay: run a mechanism on a table and, with the same noise, on a neighbour.

Everything in which the runs differ must be paid for by the mechanism's event. The replay is
deterministic where attacks are statistical: it sees a leak on a pair of tables whatever the leak's
size. It cannot see a leak on pairs that were not tried, and not whether the noise has its
distribution (that is tested with `noise`).
"""

from __future__ import annotations

import copy
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import fields, is_dataclass, replace
from typing import Any

from synthdp.audit.mechanisms.calls import SampleCall
from synthdp.audit.mechanisms.comparison import RecordedRun, compare
from synthdp.audit.mechanisms.findings import Replayed, ReplayFinding
from synthdp.audit.mechanisms.fingerprint import fingerprint
from synthdp.audit.mechanisms.neighbours import Pair, Side
from synthdp.audit.mechanisms.recording import (
    Answers,
    Coupling,
    Diverged,
    Kept,
    RealNoise,
    RecordedNoise,
    Recorder,
)
from synthdp.data.domain import Domain
from synthdp.privacy.events.base import Adjacency
from synthdp.privacy.mechanisms.mechanism import Mechanism
from synthdp.privacy.noise import Randomness, Streams


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
    sees_held_out = getattr(mechanism, "sees_held_out", False)
    findings: list[ReplayFinding] = []
    count, share = 0, 0.0
    for pair in pairs:
        if pair.unit_rows > rows_per_unit:
            raise ValueError(
                f"{pair.name}: a unit of {pair.unit_rows} rows; the event is for {rows_per_unit}"
            )
        count += 1
        for joins in (True, False):
            first, second = _both(mechanism, pair, domain, streams(), joins=joins)
            found, used = compare(
                mechanism.name,
                pair,
                event,
                first,
                second,
                adjacency=adjacency,
                sees_held_out=sees_held_out,
            )
            findings += found
            share = max(share, used)
            if not any(isinstance(call, SampleCall) for call in first.calls):
                break
    return Replayed((mechanism.name,), count, share, tuple(findings))


def merged(replays: Iterable[Replayed]) -> Replayed:
    """Several replays as one."""
    every = list(replays)
    return Replayed(
        tuple(name for r in every for name in r.mechanisms),
        sum(r.pairs for r in every),
        max((r.largest_share for r in every), default=0.0),
        tuple(f for r in every for f in r.findings),
    )


def _both(
    mechanism: Mechanism[Any], pair: Pair, domain: Domain, streams: Randomness, *, joins: bool
) -> tuple[RecordedRun, RecordedRun]:
    """Both runs of a pair."""
    before, after = pair.sides(domain)
    shared = len(pair.shared)
    coupling = Coupling(streams, shared, shared + len(pair.before) + len(pair.after), joins=joins)
    first = _run(mechanism, before, coupling, RealNoise(streams))
    return first, _run(mechanism, after, coupling, RecordedNoise(first.calls))


def _run(
    mechanism: Mechanism[Any], side: Side, coupling: Coupling, answers: Answers
) -> RecordedRun:
    """One recorded run of the mechanism."""
    recorder = Recorder(side, coupling, answers)
    ticks: list[tuple[object, ...]] = []
    said: list[str] = []
    kept = Kept() if getattr(mechanism, "checkpoints", None) is not None else None
    with _overheard(said):
        copied = _redirected(copy.deepcopy(mechanism), kept, lambda *tick: ticks.append(tick))
        run = RecordedRun(
            recorder.calls, recorder.latent_calls, rows=len(side.identity), ticks=ticks, said=said
        )
        try:
            value = copied.run(side.table, recorder)
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
            yield
    finally:
        logging.getLogger().removeHandler(listener)
    said += [f"warning: {w.message}" for w in warned]
