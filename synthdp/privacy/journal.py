"""A run's released values on its private disk. A file counts when the ledger holds its digest, and
not otherwise.

Each value is written to a file that is named by purpose and digest, brought to the disk, and
entered in the ledger as `kept`; only then is it used. A file whose digest the ledger does not hold
was used by nobody and is passed over. A purpose whose kept file is missing or another is refused:
its value was used, and may have been seen, so that a second look at the rows would go unpaid
(`ledger.ledger.Lease` has the proof).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

from synthdp.errors import OutputError, disk_errors
from synthdp.files import check_plain, write_whole
from synthdp.ledger.ledger import Lease
from synthdp.privacy.mechanisms import Arrays


class Checkpoints(Protocol):
    """Where a mechanism of many steps keeps how far it came; what it gives must be noisy
    already.
    """

    def last(self) -> Arrays | None:
        """What was kept last."""
        ...

    def keep(self, step: int, arrays: Arrays) -> None:
        """Keep `arrays` after `step` steps; returns when nothing can undo it."""
        ...


class Journal:
    """The released values of the run that `lease` holds."""

    def __init__(self, folder: Path, lease: Lease) -> None:
        self._folder, self._lease = folder, lease

    def read(self, purpose: str) -> Arrays | None:
        """The value that was kept; None where none was.

        Raises:
            OutputError: it was kept, and its file is missing or another.
        """
        kept = self._lease.kept(purpose)
        return (
            None
            if kept is None or kept["step"] is not None
            else self._held(purpose, kept["sha256"])
        )

    def write(self, purpose: str, arrays: Arrays, *, step: int | None = None) -> None:
        """Keep a value, or what a mechanism came to after `step` steps.

        Raises:
            OutputError: the disk does not take it.
            BudgetError: another process has taken the run over: the value must not be used.
        """
        from safetensors.numpy import save

        content = save(arrays)
        digest = hashlib.sha256(content).hexdigest()
        path, earlier = self._path(purpose, digest), self._lease.kept(purpose)
        _write(path, content)
        self._lease.keep(purpose=purpose, step=step, sha256=digest)
        if (
            earlier is not None and earlier["sha256"] != digest
        ):  # that one alone: others may be of a process that took the run since
            self._path(purpose, earlier["sha256"]).unlink(missing_ok=True)

    def checkpoints(self, purpose: str) -> Checkpoints:
        """How far the mechanism of `purpose` came."""
        return _JournalCheckpoints(self, purpose)

    def last_checkpoint(self, purpose: str) -> Arrays | None:
        """What was kept last on the way to a value that is not there yet.

        Raises:
            OutputError: as `read`.
        """
        kept = self._lease.kept(purpose)
        return None if kept is None or kept["step"] is None else self._held(purpose, kept["sha256"])

    def damaged(self, purpose: str) -> OutputError:
        """The error for a file that holds something else than `purpose` releases."""
        return OutputError(
            f"{_file_name(purpose)} of the interrupted run is missing, damaged, or not the one that"
            " was used",
            hint=(
                "bring the run's folder back as it was last written (an older copy is refused), or"
                " start a new release with --force; the budget of this run stays spent"
            ),
        )

    def _held(self, purpose: str, digest: str) -> Arrays:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = self._path(purpose, digest)
        try:
            check_plain(path)
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError("another file")
            arrays: Arrays = load(content)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            raise self.damaged(purpose) from None
        return arrays

    def _path(self, purpose: str, digest: str) -> Path:
        return self._folder / f"{_file_name(purpose)}.{digest[:16]}.safetensors"


class _JournalCheckpoints:
    def __init__(self, journal: Journal, purpose: str) -> None:
        self._journal, self._purpose = journal, purpose

    def last(self) -> Arrays | None:
        return self._journal.last_checkpoint(self._purpose)

    def keep(self, step: int, arrays: Arrays) -> None:
        self._journal.write(self._purpose, arrays, step=step)


def _write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; its bytes and its name are on the disk when this returns.

    Raises:
        OutputError: the disk does not take it.
    """
    hint = "make room or allow writing, then `synthdp resume` the release"
    with disk_errors(f"cannot write {path}", hint=hint):
        write_whole(path, content)


def _file_name(purpose: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in purpose)
