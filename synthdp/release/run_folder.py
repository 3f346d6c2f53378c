"""The private folder of an interrupted or running run: what it needs to go on without paying.

It holds the run's name, its command, the spec as it was, half of the key of the held-out draws and
the journal of released values. It disappears when the run ends, all at once: a run that still had
its name and no longer its journal would look at the rows again for values that are already public.

A process that works in it holds its lock. Where locks are not shared between machines, the ledger's
lease takes their place (`ledger.ledger`). A run writes below a folder that has its own name, so
that it finds nothing to write to once another run has taken OUT.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.errors import BudgetError, OutputError, disk_errors
from synthdp.files import lock_file, parse_json, read_text, write_whole

FOLDER, PLAN = ".run", "plan.json"
STATE, LOCK, PUBLISHED, MARK = "state.json", "lock", "published", "files-"
RUN, HOLDOUT = r"[0-9]{8}-[0-9a-f]{12}", r"[0-9a-f]{32}"
GONE = ".run.gone-"  # what is being removed; anything of this name is rubbish
RELEASE = "release"
# handles of the locks of this process, and the files that they keep
_HELD: dict[int, tuple[int, int] | None] = {}


@dataclass(frozen=True)
class RunFolder:
    """`out/.run` of one run; readable by its owner alone."""

    path: Path
    run: str
    command: str  # as it is given again to go on; `RELEASE` goes on with `synthdp resume`
    spec_path: Path
    spec_text: str
    created: str
    holdout_key: str = field(repr=False)
    lock: int = field(repr=False, compare=False)

    def holdout_coins(self, other: str) -> np.random.Generator:
        """The generator that draws held-out rows and the kept rows of a unit; a resume repeats it.

        Fresh coins would let rows that the model has seen come back as test rows, and one coin is
        what the accountant counts on. Its key is stored in two halves, each of them as good as
        none: this folder's, which goes when the run ends, and the `other`, the ledger's
        (`ledger.coins_of`). Noise never has a stored key.
        """
        key = int(self.holdout_key, 16) ^ int(other or "0", 16)
        return np.random.Generator(np.random.Philox(key=key))

    def mark(self, what: Any) -> str:
        """A digest of `what` under this folder's half of the key: without it, it tells nothing."""
        return hmac.digest(bytes.fromhex(self.holdout_key), repr(what).encode(), "sha256").hex()

    def has(self, mark: str) -> bool:
        """Whether the run kept this mark; of two that begin it at once, each keeps its own."""
        return (self.path / f"{MARK}{mark}").exists()

    def keep(self, mark: str) -> None:
        """Keep a mark of the run's files, durably, before any of them is read.

        Raises:
            OutputError: its folder cannot be written.
        """
        hint = "make room or allow writing; nothing was read or paid"
        with disk_errors(f"cannot write to {self.path}", hint=hint):
            write_whole(self.path / f"{MARK}{mark}", "")

    @property
    def asked_sha256(self) -> str:
        """Digest of the command and the text of its spec: what was asked for."""
        asked = json.dumps([self.command, self.spec_text])
        return hashlib.sha256(asked.encode()).hexdigest()

    @property
    def journal(self) -> Path:
        """Released values, and noisy weights during training."""
        return self.path / self.run

    @property
    def shadows(self) -> Path:
        """Coins and shadow models of the attack while it runs (`audit.folder`)."""
        return self.journal / "shadows"

    @property
    def decision(self) -> Path:
        """What the gates said before the bundle was written (`gates.kept_decision`)."""
        return self.journal / "decision.json"

    @property
    def has_published(self) -> bool:
        """Whether a bundle of this run was written, wherever it is by now."""
        return (self.journal / PUBLISHED).exists()

    def note_published(self) -> None:
        """Note that the bundle is there, so that the run never writes another.

        Raises:
            OutputError: its folder cannot be written.
        """
        hint = "make room or allow writing; the bundle is there, and nothing is paid again"
        with disk_errors(f"cannot write to {self.journal}", hint=hint):
            write_whole(self.journal / PUBLISHED, "")

    def keep_plan(self, facts: Mapping[str, Any]) -> None:
        """Keep what `synthdp plan` says in `PLAN`, beside what comes of it; a draft is in `.run`.

        Raises:
            OutputError: it cannot be written.
        """
        path = self.path.parent / PLAN
        with disk_errors(f"cannot write {path}", hint="choose another folder with --out"):
            write_whole(self.path / PLAN, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
            (self.path / PLAN).replace(path)

    def close(self) -> None:
        """Let others have the folder; a process that ends does so by itself."""
        _release(self.lock)

    def remove(self) -> None:
        """Remove the folder of a finished run.

        A folder that cannot be moved stays as it was, and resuming publishes the same values.
        """
        with suppress(OSError, OutputError):
            if _state(self.path).get("run") == self.run:  # else another run has taken OUT
                _discard(self.path)


def start(out: Path, spec_path: Path, spec_text: str, *, command: str, force: bool) -> RunFolder:
    """A new run of `command` in `out`.

    Raises:
        OutputError: an interrupted run lies there (and not `force`), or `out` cannot be written.
        BudgetError: another process is at work there.
    """
    path = out / FOLDER
    # Resolved, so that a run resumed elsewhere has the same data, ledger and store.
    spec_path = spec_path.resolve()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    run = f"{created[:10].replace('-', '')}-{secrets.token_hex(6)}"
    hint = "choose another folder with --out"
    with disk_errors(f"cannot write to {out}", hint=hint), ExitStack() as failing:
        if path.exists():
            lock = _hold(path)
            failing.callback(_release, lock)
            # The state is written last, and before anything is reserved: without it nothing was
            # paid.
            if (path / STATE).exists() and not force:
                raise OutputError(
                    f"{out} holds an interrupted run; what it reserved stays spent",
                    hint=(
                        f"continue it with {how_to_continue(out)}, or give --force to drop it and"
                        " pay for a new one"
                    ),
                )
            _discard(path)
            _release(lock)
        _sweep(out)
        out.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        lock = _hold(path)
        failing.callback(_release, lock)
        (path / run).mkdir(mode=0o700)
        state = {"run": run, "command": command, "spec_path": str(spec_path)}
        state |= {"spec_text": spec_text, "created": created}
        state |= {"holdout_key": (holdout := secrets.token_hex(16))}
        write_whole(path / STATE, json.dumps(state))
        failing.pop_all()
    return RunFolder(path, run, command, spec_path, spec_text, created, holdout, lock)


def reopen(out: Path) -> RunFolder:
    """The interrupted run in `out`, whatever its command.

    Raises:
        OutputError: there is none, or its state was damaged.
        BudgetError: another process is at work on it.
    """
    path = out / FOLDER
    _sweep(out)
    _state(path)
    hint = "change its permissions, or those of its disk"
    with disk_errors(f"cannot write to {out}", hint=hint), ExitStack() as failing:
        lock = _hold(path)
        failing.callback(_release, lock)
        state = _state(path)  # as it is now that nobody else can change it
        names = ("run", "spec_path", "spec_text", "created", "holdout_key")
        run, spec_path, spec_text, created, holdout = (str(state.get(name, "")) for name in names)
        known = state.keys() >= {*names} and re.fullmatch(RUN, run)
        if not known or not re.fullmatch(HOLDOUT, holdout) or "\0" in spec_path:
            raise _damaged(path)
        (path / run).mkdir(mode=0o700, exist_ok=True)
        failing.pop_all()
    # An earlier version wrote no command: then it is a release.
    command = str(state.get("command", RELEASE))
    return RunFolder(path, run, command, Path(spec_path), spec_text, created, holdout, lock)


def how_to_continue(out: Path) -> str:
    """The command that continues the interrupted run in `out`."""
    with suppress(OutputError):
        command = str(_state(out / FOLDER).get("command", RELEASE))
        if command != RELEASE:
            where = "" if command.startswith("init ") else f" with --out {out}"
            return f"`synthdp {command}`, given as before{where}"
    return f"`synthdp resume {out}`"


def kept_spec(out: Path) -> tuple[Path, str]:
    """The path and the text of the spec of the interrupted run in `out`.

    Raises:
        OutputError: there is none, or its state was damaged.
    """
    state = _state(out / FOLDER)
    return Path(str(state.get("spec_path", ""))), str(state.get("spec_text", ""))


def _state(path: Path) -> dict[str, object]:
    try:
        state = parse_json(read_text(path / STATE))
        if not isinstance(state, dict):
            raise ValueError("not written by `start`")
    except (FileNotFoundError, NotADirectoryError):
        raise OutputError(
            f"{path.parent} holds no interrupted run", hint="start one with `synthdp release SPEC`"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise _damaged(path) from None
    return state


def _damaged(path: Path) -> OutputError:
    hint = (
        "bring the folder back as it was last written, or start a new release with --force; the"
        " budget of this run stays spent"
    )
    return OutputError(f"{path / STATE} is damaged, so that the run cannot go on", hint=hint)


def _hold(path: Path) -> int:
    """Lock a run's folder before anything in it is moved or written; returns the handle.

    The lock goes with its process, however that ends. It is tested that what was locked still has
    its name, since the one who held it before may have moved it away. Where the disk has no locks,
    the ledger's lease takes their place, and `_HELD` within a process.

    Raises:
        BudgetError: another run is at work in it.
    """
    if _place(path / LOCK) in _HELD.values():
        raise _taken(path, "this process")
    handle = lock_file(path / LOCK)
    if handle is None:
        holder = "a process"
        with suppress(OSError, ValueError):
            holder = f"process {int(read_text(path / LOCK))}"
        raise _taken(path, holder)
    if _place(path / LOCK) != _place(handle):
        os.close(handle)
        raise _taken(path, "a process")
    _HELD[handle] = _place(handle)
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    return handle


def _release(handle: int) -> None:
    if _HELD.pop(handle, None) is not None:
        os.close(handle)


def _place(file: Path | int) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _taken(path: Path, holder: str) -> BudgetError:
    return BudgetError(
        f"another release is running in {path.parent} ({holder})", hint="wait for it, or end it"
    )


def respecified(folder: RunFolder, spec_text: str) -> RunFolder:
    """The same run, from now on by another spec, however often it is interrupted.

    Raises:
        OutputError: its folder cannot be written.
    """
    hint = "make room or allow writing; nothing is paid again"
    with disk_errors(f"cannot write to {folder.path}", hint=hint):
        write_whole(folder.path / STATE, json.dumps(_state(folder.path) | {"spec_text": spec_text}))
    return replace(folder, spec_text=spec_text)


def _discard(path: Path) -> None:
    """Remove a run's folder: in one step for whoever looks for it, then bit by bit."""
    gone = path.with_name(f"{GONE}{secrets.token_hex(4)}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def _sweep(out: Path) -> None:
    for rubbish in out.glob(f"{GONE}*"):
        shutil.rmtree(rubbish, ignore_errors=True)
