"""The private folder of an attack in progress: what an interrupted one needs so that the models it
has trained still count.

Holds a key of the game's coins (which rows take part, which one is the target, who is trained with
it), the name of the game, and the models' results. They are as confidential as the rows, and
whoever started the attack removes them with it. The coins are of a game: the noise of shadow models
has no key here or anywhere.

Whatever does not fit - another spec, other rows, another version, a damaged file - is thrown away
and trained anew: models can be had again, and a release whose budget is spent must not end here.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from synthdp import __version__
from synthdp.errors import OutputError
from synthdp.files import lock_file, read_text, write_whole

KEY, GAME, MODELS = "key", "game", "models"
AUDITS = ".audit"  # in an audit's output folder


@dataclass(frozen=True)
class AttackFolder:
    """An attack's folder, and the key of its coins."""

    path: Path
    key: str = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> AttackFolder:
        """The attack that was interrupted in `path`, or a new one with a fresh key.

        Raises:
            OutputError: `path` cannot be written.
        """
        with _writing(path):
            path.mkdir(
                exist_ok=True, mode=0o700
            )  # in a folder that is there: a run's may have been taken by another run
            key = _kept(path / KEY, r"[0-9a-f]{32}")
            if key is None:
                key = secrets.token_hex(16)
                write_whole(path / KEY, key)
        return cls(path, key)

    def coins(self, purpose: str) -> np.random.Generator:
        """Coins for `purpose`, the same ones after an interruption; never for noise."""
        return np.random.Generator(
            np.random.Philox(np.random.SeedSequence([int(self.key, 16), *purpose.encode()]))
        )

    def models_of(self, game: str, *arrays: np.ndarray) -> Path:
        """The folder for results of `game`, in words, on `arrays`: with those that it has finished,
        without those of any other.

        Raises:
            OutputError: what lies there cannot be removed.
        """
        # NumPy may draw otherwise from the same key in another version, and synthdp may train
        # otherwise.
        name = hashlib.blake2b(
            repr((self.key, __version__, np.__version__, game, [a.shape for a in arrays])).encode(),
            digest_size=16,
        )
        for array in arrays:
            name.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
        models = self.path / MODELS
        with _writing(self.path):
            if _kept(self.path / GAME, r"[0-9a-f]{32}") != name.hexdigest():
                if models.exists():
                    shutil.rmtree(models)
                write_whole(self.path / GAME, name.hexdigest())
            for file in models.rglob("*.npz"):
                if not zipfile.is_zipfile(
                    file
                ):  # cut short: the directory of the archive stands at its end
                    file.unlink()
        return models

    def remove(self) -> None:
        """The attack is over."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def audit_folder(out: Path, rows: str) -> Iterator[AttackFolder]:
    """The folder of the audit on `rows` into `out`, for this process alone: kept where the audit is
    interrupted with models trained, else removed.

    It lies in `out`, not among the machine's temporary files, so that workers on other machines
    find it where they find `out`.

    Raises:
        OutputError: `out` cannot be written, or another process is at this audit.
    """
    with _writing(out / AUDITS):
        (out / AUDITS).mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = AttackFolder.open(out / AUDITS / rows)
    with _writing(folder.path):
        lock = lock_file(folder.path / "lock")
    if lock is None:
        raise OutputError(
            f"another process is auditing into {out}",
            hint="wait for it to end, or choose another folder with --out",
        )
    over = False
    try:
        yield folder
        over = True
    finally:
        if over or not any(folder.path.rglob("*.npz")):
            folder.remove()
            with suppress(OSError):  # an audit on other rows may be there
                folder.path.parent.rmdir()
        os.close(lock)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write to {path}: {error.strerror}",
            hint="mend that, and give the same command again",
        ) from None


def _kept(path: Path, form: str) -> str | None:
    """The text in `path`, if it is there and of this form."""
    try:
        text = read_text(path)
    except (OSError, ValueError):
        return None
    return text if re.fullmatch(form, text) else None
