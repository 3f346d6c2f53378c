"""A bundle's folder appears whole or not at all, and replaces nothing but a bundle."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from synthdp.errors import OutputError
from synthdp.files import SUMS as SUMS
from synthdp.files import sync


def check_target(folder: Path, *, force: bool) -> None:
    """Whether a bundle can be written to `folder`; call it before anything is spent.

    Raises:
        OutputError: it exists and is not empty (and not `force`), is no bundle, or its parent
            cannot be written.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise OutputError(f"{folder} is not a folder", hint="choose another output folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / SUMS).is_file():
            raise OutputError(
                f"{folder} exists and is not a bundle, so it is never replaced",
                hint="choose another output folder",
            )
        if not force:
            raise OutputError(
                f"{folder} already holds a bundle",
                hint="give --force to replace it, or choose another output folder",
            )
    parent = next(p for p in folder.absolute().parents if p.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise OutputError(
            f"{parent} cannot be written",
            hint="choose an output folder that you can write to, or change its permissions",
        )


@contextmanager
def new_folder(folder: Path, *, force: bool) -> Iterator[Path]:
    """A draft beside `folder`, which it replaces when the block succeeds.

    Otherwise the draft is deleted.
    """
    from safetensors import SafetensorError

    draft = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
        yield draft
        _publish(draft)
        _replace(draft, folder, force=force)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise OutputError(
            f"cannot write the bundle {folder}: {reason}",
            hint="make room or allow writing, then resume the release",
        ) from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _publish(draft: Path) -> None:
    """Make every file readable for all, as a public folder is, and bring all to the disk."""
    for path in [*draft.rglob("*"), draft]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync(path)


def _replace(draft: Path, folder: Path, *, force: bool) -> None:
    """Put the draft in place. An old bundle is set aside first and comes back if that fails."""
    check_target(folder, force=force)  # again: time has passed
    aside = draft.with_name(draft.name.replace(".partial-", ".old-"))
    old = folder.exists()
    if old:
        os.replace(folder, aside)
    try:
        os.replace(draft, folder)
    except OSError:
        if old:
            os.replace(aside, folder)
        raise
    sync(folder.parent)
    # Whatever stands aside now, of this writing or of one that was killed, has been replaced.
    for kind in ("partial", "old"):
        for rubbish in folder.parent.glob(f".{folder.name}.{kind}-*"):
            shutil.rmtree(rubbish, ignore_errors=True)
