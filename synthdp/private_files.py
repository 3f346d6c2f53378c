"""Files for their owner alone, whatever the umask: what was computed on rows, the ledger, MLflow's local store, a run in progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def owner_only() -> Iterator[None]:
    """What is made inside, by a library too, has mode 0700 or 0600. The umask is the whole process's: keep the block short."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def private_folder(path: Path) -> Path:
    """The folder `path` for its owner alone, made where it is missing. One that was there is closed to others too."""
    with owner_only():
        path.mkdir(exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Write `text` into a file for its owner alone. One that was there is closed to others before it gets the text."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        os.fchmod(handle, 0o600)
        file.write(text)
