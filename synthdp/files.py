"""Reading files that someone else may have made or damaged, and writing files whole.

Read are plain files alone, of bounded size, and JSON that has one meaning. Without the bounds a
pipe would be waited for, a device read without end, and a few megabytes of brackets would fill the
memory.

A file that is written appears whole or not at all, for its owner alone where its content is
confidential.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from synthdp.errors import VerifyError

SUMS = "SHA256SUMS"  # of a bundle
MAX_TEXT = 16 << 20  # bytes; Python's objects take up to fifty times as many


def read_text(path: Path) -> str:
    """Content of a UTF-8 text file.

    Raises:
        OSError: it is not there, or cannot be read.
        ValueError: it is a link, a pipe or a device, too large, or not UTF-8.
    """
    check_plain(path)
    with path.open("rb") as file:
        content = file.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise ValueError(f"larger than {MAX_TEXT >> 20} MiB")
    return content.decode("utf-8")


def check_plain(path: Path) -> None:
    """Raise `ValueError` for anything but a plain file, so that opening neither waits nor acts."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError("is a link or a device, not a plain file")


def check_sums(bundle: Path, names: Sequence[str]) -> None:
    """Check that these files of a bundle are the plain files that its sums list.

    This finds damage; a forger writes sums that fit.

    Raises:
        VerifyError: naming the file that is not.
    """
    hint = f"see `synthdp verify {bundle}`"
    try:
        lines = (line.partition("  ") for line in read_text(bundle / SUMS).splitlines())
        listed = {name: digest for digest, _, name in lines}
    except (OSError, ValueError) as error:
        raise VerifyError(
            f"cannot read {SUMS} in {bundle}: {type(error).__name__}", hint=hint
        ) from None
    for name in names:
        try:
            check_plain(bundle / name)
            with (bundle / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            raise VerifyError(
                f"cannot read {name} in {bundle}: {type(error).__name__}", hint=hint
            ) from None
        if listed.get(name) != found:
            raise VerifyError(
                f"{name} in {bundle} was changed: its hash is not the one in {SUMS}", hint=hint
            )


def text_sha256(text: str) -> str:
    """Hex digest of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def parse_json(text: str) -> Any:
    """Content of strict JSON.

    Raises:
        ValueError: it is not JSON, is nested too deeply, repeats a key, or holds a number that is
            none.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key is given twice")
    return content


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > 400:  # of a number
        raise ValueError("a number is too large")
    return int(digits)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A draft beside `path`. It takes its place when the block ends well, and vanishes otherwise.

    Its bytes are on the disk before it takes its place, its name perhaps later. A process
    that is killed inside leaves the draft, and `path` as it was.

    Raises:
        OSError: the disk does not take it.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield draft
        sync(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Write all of `content` to `path`, or leave what was there before.

    Bytes and name are on the disk when this returns.

    Raises:
        OSError: the disk does not take it.
    """
    with draft_of(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk. Windows does the latter itself."""
    if path.is_dir() and os.name == "nt":
        return
    # Windows brings bytes to the disk through handles that may write alone.
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(path: Path) -> int | None:
    """Lock `path`, and create it where it is missing; returns the handle that keeps the lock.

    The lock lasts until the handle is closed or the process ends.

    A disk without locks keeps nothing: something else must guard what lies there.

    Raises:
        OSError: `path` cannot be opened.
    """
    from filelock import lock_descriptor  # 30 ms that commands without a lock need not wait

    handle, free = os.open(path, os.O_RDWR | os.O_CREAT, 0o600), True
    with suppress(OSError):
        free = lock_descriptor(handle, blocking=False)
    if not free:
        os.close(handle)
        return None
    return handle


def private_folder(path: Path) -> Path:
    """The folder `path` for its owner alone, created where it is missing.

    A folder that was there is closed to others too.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    return path


def missing_folders(path: Path) -> None:
    """Create `path` and what is missing above it, each for its owner alone.

    The umask, which all threads of a process share, is left alone.
    """
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def claim_file(path: Path) -> None:
    """Create an empty file for its owner alone where there is none, before a library opens it.

    Where that cannot be done, the library says why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def copy_private(source: Path, target: Path) -> None:
    """Copy a file to `target`, whole or not at all, for its owner alone, as are the folders that
    are missing above it.

    Raises:
        OSError: it cannot be read, or the disk does not take it.
    """
    missing_folders(target.parent)
    with draft_of(target) as draft:
        claim_file(draft)
        shutil.copyfile(source, draft)


def write_private(path: Path, text: str) -> None:
    """Write `text` into a file for its owner alone.

    A file that was there is closed to others before it gets the text.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        os.fchmod(handle, 0o600)
        file.write(text)
