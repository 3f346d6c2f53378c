"""Check a bundle offline: no ledger, no network, no rows, and nothing in it is trusted.

A bundle may come from anyone. Files are opened only after the folder was found to hold exactly the
expected plain files; JSON is read strictly; a model is only ever read as safetensors. Every problem
is listed at once.
What cannot be checked here: that the steward ran the program as the bundle says.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from synthdp.bundle.folder import SUMS
from synthdp.bundle.metadata.datapackage import CSV_NAME
from synthdp.bundle.metadata.parquet import PARQUET_NAME
from synthdp.bundle.signing.keys import load_public_key
from synthdp.bundle.write import BY_SPEC, FILES, OPTIONAL, sha256
from synthdp.errors import SynthdpError, VerifyError
from synthdp.files import MAX_TEXT
from synthdp.verify.content import CONTENT_CHECKS
from synthdp.verify.disclosure import DISCLOSURE_CHECKS
from synthdp.verify.estimands import ESTIMAND_CHECKS
from synthdp.verify.forms import FORM_CHECKS
from synthdp.verify.noise import NOISE_CHECKS
from synthdp.verify.origin import ORIGIN_CHECKS
from synthdp.verify.privacy import PRIVACY_CHECKS
from synthdp.verify.reader import Check, Reader
from synthdp.verify.rows import ROWS_CHECKS

MAX_LISTED, MAX_WORDS = 100, 20_000  # problems, and characters of one
# Bytes: what would take hours to hash is no bundle. The table's own bound follows from the spec.
MAX_BYTES = {CSV_NAME: 64 << 30, PARQUET_NAME: 64 << 30, "model.safetensors": 8 << 30}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class VerifyReport:
    """The checks that were made, and every problem found.

    The other fields are those that the bundle states, where they could be read.

    `signer` is the key that the bundle names, None for an unsigned one; `origin_checked` says that
    it is the key that `verify` was given.
    """

    folder: Path
    checks: tuple[str, ...]
    problems: tuple[str, ...]
    epsilon: float | None = None
    delta: float | None = None
    signer: str | None = None
    origin_checked: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def established(self) -> str:
        """In words, what was established, and whose word the rest rests on.

        No check can see that the program ran as stated.
        """
        if self.signer is None:
            whose, vouched = "unsigned", "nobody"
        elif self.origin_checked:
            whose, vouched = f"signed by {self.signer}, the key that was given", "its owner"
        else:
            whose = (
                f"signed by {self.signer}, and whose key that is was not checked: give the"
                " publisher's with --key"
            )
            vouched = "whoever holds it"
        return (
            f"agrees with itself; {whose}; that the program ran as stated is vouched for by"
            f" {vouched}"
        )


def verify_bundle(
    folder: Path, *, key: Path | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Check a bundle and return a report.

    `key` is the file of the publisher's public key. `progress` gets the number of checks done and
    of all.

    Raises:
        VerifyError: with every problem found, or `key` is no public key.

    >>> verify_bundle(Path("releases/clinic/bundle")).signer is None
    True
    """
    if (folder / "bundle").is_dir() and not (folder / SUMS).exists():
        raise VerifyError(
            f"{folder} is the output folder of a release, not a bundle",
            hint=f"did you mean {folder / 'bundle'}?",
        )
    report = inspect_bundle(
        folder, key=None if key is None else load_public_key(key), progress=progress
    )
    if report.problems:
        count = len(report.problems)
        listed = [
            *report.problems[:MAX_LISTED],
            *([f"and {count - MAX_LISTED} more"] if count > MAX_LISTED else []),
        ]
        head, hint = (
            f"{folder}: {count} problem{'s' if count != 1 else ''}",
            "do not use this bundle; get it again from its publisher",
        )
        raise VerifyError(head, hint=hint, problems=listed)
    return report


def inspect_bundle(
    folder: Path, *, key: Ed25519PublicKey | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Check a bundle; problems are in the report, none is raised.

    With a `key`, only what it signed is accepted.
    """
    reader, problems, done = Reader(folder, key=key), [], []
    for name, (file, check) in CHECKS.items():
        done.append(name)
        problems += _problems(file, check, reader)
        if progress is not None:
            progress(len(done), len(CHECKS))
        if name in ("folder", "spec") and problems and (name == "folder" or reader.parsed is None):
            break  # nothing below can be read safely, or judged
    report = VerifyReport(
        folder, tuple(done), tuple(problems), origin_checked=reader.origin_checked
    )
    stated = reader.certificate
    return (
        report
        if stated is None
        else replace(report, epsilon=stated.epsilon, delta=stated.delta, signer=stated.signer)
    )


def _problems(file: str, check: Check, reader: Reader) -> list[str]:
    """What `check` finds; content that breaks it is a problem of `file`, never a crash."""
    found: list[str] = []
    try:
        found.extend(check(reader))
    except ValidationError as error:
        found.extend(
            f"{file}: {'.'.join(map(str, e['loc'])) or 'content'}: {e['msg']}"
            for e in error.errors()
        )
    except SynthdpError as error:
        found.append(f"{file}: {error.message}")
    except (
        Exception
    ) as error:  # whatever the libraries below raise on bytes that were made to break them
        found.append(
            f"{file}: is not what it should be ({type(error).__name__}: {str(error)[:200]})"
        )
    return [
        problem if len(problem) <= MAX_WORDS else f"{problem[:MAX_WORDS]}..." for problem in found
    ]


# --- the folder ---


def _check_folder(reader: Reader) -> Iterator[str]:
    """Exactly the expected plain files; no links, devices or strangers."""
    if reader.folder.is_symlink() or not reader.folder.is_dir():
        yield f"{reader.folder}: is not a folder"
        return
    found = set()
    for root, folders, files in os.walk(reader.folder, followlinks=False):
        for name in [*folders, *files]:
            path = Path(root) / name
            relative = path.relative_to(reader.folder).as_posix()
            mode = path.lstat().st_mode
            if name in folders and stat.S_ISDIR(mode):
                if relative != "privacy":
                    yield f"{relative!r}: a folder that does not belong in a bundle"
            elif not stat.S_ISREG(mode):
                yield f"{relative!r}: is a link or a device, not a plain file"
            else:
                found.add(relative)
                if path.lstat().st_size > MAX_BYTES.get(relative, MAX_TEXT):
                    yield f"{relative!r}: is larger than any bundle's"
    expected = {*FILES, SUMS}
    yield from (
        f"{n!r}: does not belong in a bundle" for n in sorted(found - expected - {*OPTIONAL})
    )
    yield from (f"{n}: is missing" for n in sorted(expected - found))


def _check_sums(reader: Reader) -> Iterator[str]:
    """`SHA256SUMS` names every file once and nothing else, and every hash fits."""
    sums: dict[str, str] = {}
    listed = (*FILES, *filter(reader.holds, BY_SPEC))
    for number, line in enumerate(reader.text(SUMS).splitlines(), start=1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if match is None:
            yield f"{SUMS}: line {number} is not '<sha256>  <file>'"
        elif match[2] in sums:
            yield f"{SUMS}: {match[2]!r} is listed twice"
        elif match[2] not in listed:
            yield f"{SUMS}: {match[2]!r} is not a file of a bundle"
        else:
            sums[match[2]] = match[1]
    for name in listed:
        if name not in sums:
            yield f"{SUMS}: {name} is not listed"
        elif sha256(reader.folder / name) != sums[name]:
            yield f"{name}: was changed; its hash is not the one in {SUMS}"


CHECKS: dict[str, tuple[str, Check]] = {
    "folder": (".", _check_folder),
    "checksums": (SUMS, _check_sums),
    **PRIVACY_CHECKS,
    **DISCLOSURE_CHECKS,
    **CONTENT_CHECKS,
    **NOISE_CHECKS,
    **ESTIMAND_CHECKS,
    **ROWS_CHECKS,
    **FORM_CHECKS,
    **ORIGIN_CHECKS,
}
