"""Arrays on the run's private disk: whole or not there, and on the disk before anything builds on them."""

from __future__ import annotations

import os
from pathlib import Path

from synthdp.errors import OutputError
from synthdp.privacy.mechanisms import Arrays
from synthdp.untrusted import check_plain


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write `arrays` to `path`, atomically and durably.

    A value that was used and then forgotten in a power cut would be released a second time under one charge,
    so the file's bytes and its name reach the disk before this returns.

    Raises:
        OutputError: the disk does not take it.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    partial = path.with_suffix(".partial")
    try:
        save_file(arrays, partial)
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or "the disk is full or does not write"
        raise OutputError(f"cannot write {path}: {why}", hint="make room or allow writing, then `synthdp resume` the release") from None


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote.

    Raises:
        OutputError: something else has changed the file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        check_plain(path)
        arrays: Arrays = load_file(path)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        raise damaged(path) from None
    return arrays


def damaged(path: Path) -> OutputError:
    """The error for a file of the run that holds something else than was written.

    Such a file is never passed over and made again: its values were released, and somebody may have seen them, so
    that a second look at the rows would go unpaid.
    """
    return OutputError(
        f"{path.name} of the interrupted run is damaged, or of another run",
        hint="bring the run's folder back from a backup, or start a new release with --force; the budget of this run stays spent",
    )


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
