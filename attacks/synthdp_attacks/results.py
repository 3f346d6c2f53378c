"""The result files of a fleet: one for each task, atomic, of one computation."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from synthdp_attacks.errors import FleetError

Arrays = Mapping[str, npt.NDArray[Any]]


class UnreadableResult(FleetError):
    """A result file that no fleet could have finished writing."""


@dataclass(frozen=True)
class Results:
    """The results of the computation `fingerprint` in `folder`.

    >>> Results(Path("attack"), "a name of the game").path(7).name
    'model-000007.npz'
    """

    folder: Path
    fingerprint: str = field(repr=False)

    def path(self, index: int) -> Path:
        """The result of a task."""
        return self.folder / f"model-{index:06d}.npz"

    def mark(self, index: int) -> Path:
        """The file that says that a task has begun and not ended."""
        return self.folder / f"model-{index:06d}.started"

    def missing(self, indices: Iterable[int]) -> tuple[int, ...]:
        """Those of the tasks that have no result."""
        present = set(os.listdir(self.folder))
        return tuple(i for i in indices if self.path(i).name not in present)

    def begun(self, indices: Iterable[int]) -> tuple[int, ...]:
        """Those of the tasks that have begun and not ended."""
        return tuple(i for i in self.missing(indices) if self.mark(i).exists())

    def prepare(self, count: int) -> int:
        """Make the folder, for its owner alone, and clear what a killed run left.

        All results must be of this computation. Returns the number of unreadable results that were
        removed.

        Raises:
            FleetError: results of another computation, beside which nothing is removed.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in (*self.folder.glob("*.tmp"), *self.folder.glob("*.started")):
            leftover.unlink(missing_ok=True)
        broken = []
        for index in sorted(set(range(count)) - set(self.missing(range(count)))):
            try:
                self.read(index)
            except UnreadableResult:
                broken.append(index)
        for index in broken:
            self.path(index).unlink(missing_ok=True)
        return len(broken)

    def write(self, index: int, arrays: Arrays) -> None:
        """Write a result under its final name in one step: readers see all of it or nothing.

        Raises:
            ValueError: an array of objects.
        """
        named = {**arrays, "fingerprint": np.array(self.fingerprint)}
        temporary = self.path(index).with_suffix(f".{uuid4().hex}.tmp")  # no other machine's
        with temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **named)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.path(index))
        self.mark(index).unlink(missing_ok=True)

    def read(self, index: int) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a finished task; objects are never unpickled.

        Raises:
            UnreadableResult: the file is damaged.
            FleetError: it is another computation's.
        """
        path = self.path(index)
        try:
            # numpy takes what is no archive for a pickle, and advises to load it "unsafely".
            if not zipfile.is_zipfile(path):
                raise zipfile.BadZipFile
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
            raise UnreadableResult(
                f"the result file {path} cannot be read: run again, and its model is trained anew"
            ) from None
        if str(arrays.pop("fingerprint", "")) != self.fingerprint:
            raise FleetError(
                f"{self.folder} holds results of another run (other rows, target, threat model,"
                " seed or trainer - its code or settings): choose an empty folder; a trainer that"
                " only looks different can be named, see `identity` of `Fleet`"
            )
        return arrays
