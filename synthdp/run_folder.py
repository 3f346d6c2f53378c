"""The private folder of a run in progress: what a killed run needs to go on without paying again.

Holds the run's name, the spec as it was, the key of the holdout coins and the journal of released values. It
disappears when the run ends, all at once: a run that still had its name and no longer its journal would look
at the rows again for values that are already public.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from synthdp.errors import OutputError
from synthdp.untrusted import parse_json, read_text

FOLDER = ".run"
STATE = "state.json"
RUN, HOLDOUT = r"[0-9]{8}-[0-9a-f]{12}", r"[0-9a-f]{32}"
GONE = ".run.gone-"  # what is being removed; anything of this name is rubbish


@dataclass(frozen=True)
class RunFolder:
    """`out/.run` of one run; readable by its owner alone."""

    path: Path
    run: str
    spec_path: Path
    spec_text: str
    created: str
    holdout_key: str

    def holdout_coins(self) -> np.random.Generator:
        """The run's coins for rows that are held out, or left out of a unit's: the same ones after a resume.

        Fresh coins would let rows that the model has seen come back as test rows. Noise never has a stored key.
        """
        return np.random.Generator(np.random.Philox(key=int(self.holdout_key, 16)))

    @property
    def journal(self) -> Path:
        """Released values."""
        return self.path / "journal"

    @property
    def checkpoint(self) -> Path:
        """Noisy weights during training."""
        return self.path / "train.checkpoint.safetensors"

    @property
    def shadows(self) -> Path:
        """Coins and shadow models of the attack while it runs (see `attack_folder`)."""
        return self.path / "shadows"

    def remove(self) -> None:
        """The run is over. Where its folder cannot be moved it stays as it was, and resuming publishes the same values."""
        with suppress(OSError):
            _discard(self.path)


def start(out: Path, spec_path: Path, spec_text: str, *, force: bool) -> RunFolder:
    """A new run in `out`.

    Raises:
        OutputError: an interrupted run lies there (and not `force`), or `out` cannot be written.
    """
    path, spec_path = out / FOLDER, spec_path.resolve()  # data, ledger and store are those of a run that is resumed elsewhere too
    # The state is written last, and before anything is reserved: without it nothing was paid.
    if (path / STATE).exists() and not force:
        raise OutputError(
            f"{out} holds an interrupted run that has already been paid for",
            hint=f"continue it with `synthdp resume {out}`, or give --force to drop it and pay for a new one",
        )
    created = datetime.now(UTC).isoformat(timespec="seconds")
    run = f"{created[:10].replace('-', '')}-{secrets.token_hex(6)}"
    try:
        _discard(path)
        _sweep(out)
        out.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        (path / "journal").mkdir()
        holdout = secrets.token_hex(16)
        state = {"run": run, "spec_path": str(spec_path), "spec_text": spec_text, "created": created, "holdout_key": holdout}
        partial = path / "state.partial"
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(state))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path / STATE)
    except OSError as error:
        raise OutputError(f"cannot write to {out}: {error.strerror}", hint="choose another folder with --out") from None
    return RunFolder(path, run, spec_path, spec_text, created, holdout)


def reopen(out: Path) -> RunFolder:
    """The interrupted run in `out`.

    Raises:
        OutputError: there is none, or its state was damaged.
    """
    path = out / FOLDER
    _sweep(out)
    try:
        state = parse_json(read_text(path / STATE))
        run, spec_path, spec_text, created, holdout = (str(state[key]) for key in ("run", "spec_path", "spec_text", "created", "holdout_key"))
        if not re.fullmatch(RUN, run) or not re.fullmatch(HOLDOUT, holdout) or "\0" in spec_path:
            raise ValueError("not written by `start`")
    except (FileNotFoundError, NotADirectoryError):
        raise OutputError(f"{out} holds no interrupted run", hint="start one with `synthdp release SPEC`") from None
    except (OSError, ValueError, KeyError, TypeError):
        hint = "bring the folder back from a backup, or start a new release with --force; the budget of this run stays spent"
        raise OutputError(f"{path / STATE} is damaged, so that the run cannot go on", hint=hint) from None
    return RunFolder(path, run, Path(spec_path), spec_text, created, holdout)


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
