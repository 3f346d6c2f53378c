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
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from synthdp.bundle import signing
from synthdp.bundle.content import REPORT, is_linked, sha256
from synthdp.bundle.descriptions import DATACARD, DEPLOYMENT
from synthdp.bundle.noisy_values import ESTIMANDS, INNOVATIONS, WAVES
from synthdp.bundle.table_files import CROISSANT, CSV_NAME, PARQUET_NAME
from synthdp.bundle.write import BY_SPEC, OPTIONAL
from synthdp.errors import SynthdpError, VerifyError, one_thread
from synthdp.files import MAX_TEXT, SUMS, parse_json
from synthdp.report.prose import say
from synthdp.verify import content, privacy, rewritten, rows
from synthdp.verify.reader import VERIFY, Check, Reader, wrong

# --- origin ---
#
# Without a key the statement is still held against the files and against the key that the
# certificate names. That finds damage and mixed-up files. It cannot find a forger, who makes a key
# of their own.


def _check_statement(reader: Reader) -> Iterator[str]:
    """The statement is there if the certificate says so, and is about exactly these files. The
    right key signed it.
    """
    signer = reader.certificate.signer if reader.certificate else None
    if not reader.holds(signing.STATEMENT):
        signed = f"the certificate says that {signer} signed this bundle"
        unsigned = "this bundle is unsigned, and a key was given to check its signature"
        yield from wrong(
            (signer is not None, f"{signing.STATEMENT}: is missing; {signed}"),
            (reader.key is not None, f"{signing.STATEMENT}: is missing: {unsigned}"),
        )
        return
    if reader.certificate is not None and signer is None:
        yield (
            f"{signing.STATEMENT}: does not belong in this bundle; its certificate says that it is"
            " unsigned"
        )
    envelope = signing.open_envelope(reader.json(signing.STATEMENT))
    found = list(_signature_problems(reader, envelope, signer))
    yield from (f"{signing.STATEMENT}: {p}" for p in found)
    content = list(_content_problems(reader, envelope))
    yield from (f"{signing.STATEMENT}: {p}" for p in content)
    reader.origin_checked = reader.key is not None and not found and not content


def _signature_problems(
    reader: Reader, envelope: signing.Envelope, signer: str | None
) -> Iterator[str]:
    """The envelope has the supported type and is signed by the right key. That is the key that was
    given, or else the one that the certificate names.
    """
    if envelope.payload_type != signing.PAYLOAD_TYPE:
        yield f"holds {envelope.payload_type[:60]!r}; only {signing.PAYLOAD_TYPE} is supported"
    if reader.key is not None and signer is not None and signer != signing.identity(reader.key):
        yield (
            f"the certificate names the key {signer}, and the key that was given is"
            f" {signing.identity(reader.key)}"
        )
    usable = [s for _, s in envelope.signatures if len(s) == signing.SIGNATURE_BYTES]
    if not usable:
        yield f"has no {signing.ALGORITHM} signature, the only algorithm that is supported"
        return
    key, whose = reader.key, "that was given"
    if key is None and signer is not None:
        key, whose = signing.key_of(signer), "that the certificate names"
    if key is not None and not any(signing.fits(key, s, envelope.signed) for s in usable):
        yield f"its signature is not of the key {whose}, or what was signed was changed"


def _content_problems(reader: Reader, envelope: signing.Envelope) -> Iterator[str]:
    """The statement is an in-toto one, about this certificate and exactly the bundle's files."""
    statement = parse_json(envelope.payload.decode("utf-8"))
    if not isinstance(statement, dict) or statement.get("_type") != signing.STATEMENT_TYPE:
        yield f"is not an in-toto statement of type {signing.STATEMENT_TYPE}"
        return
    if statement.get("predicateType") != signing.PREDICATE_TYPE:
        yield (
            f"its predicate is {str(statement.get('predicateType'))[:60]!r}; only"
            f" {signing.PREDICATE_TYPE} is supported"
        )
    elif statement.get("predicate") != reader.json("privacy/certificate.json"):
        yield "its predicate is not this bundle's privacy/certificate.json"
    yield from _subject_problems(reader, statement.get("subject"))


def _subject_problems(reader: Reader, subjects: Any) -> Iterator[str]:
    if not isinstance(subjects, list) or not all(isinstance(s, dict) for s in subjects):
        yield "names no files"
        return
    files = [*reader.files, SUMS, *filter(reader.holds, BY_SPEC)]
    names = [s.get("name") for s in subjects]
    yield from (f"{n} is not among its subjects" for n in files if n not in names)
    for name, subject in zip(names, subjects, strict=True):
        digest = subject.get("digest")
        if name not in files:
            yield f"its subject {str(name)[:60]!r} is not a file of this bundle"
        elif names.count(name) > 1:
            yield f"its subject {name} is listed twice"
        elif not isinstance(digest, dict) or not isinstance(digest.get("sha256"), str):
            yield f"its subject {name} has no sha256, the only digest that is supported"
        elif digest["sha256"] != sha256(reader.folder / name):
            yield f"its subject {name} has another digest than the file"


# --- checks ---


# Bytes: what would take hours to hash is no bundle. The table's own bound follows from the spec.
MAX_BYTES = {"model.safetensors": 8 << 30}
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
        return not self.problems

    @property
    def established(self) -> str:
        """In words, what was established, and whose word the rest rests on.

        No check can see that the program ran as stated.
        """
        return say("established", signer=self.signer, checked=self.origin_checked)


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
    publisher = None if key is None else signing.load_public_key(key)
    report = inspect_bundle(folder, key=publisher, progress=progress)
    if report.problems:
        count, listed = len(report.problems), list(report.problems[: VERIFY.problems])
        listed += [f"and {count - VERIFY.problems} more"] if count > VERIFY.problems else []
        head = f"{folder}: {count} problem{'s' if count != 1 else ''}"
        hint = "do not use this bundle; get it again from its publisher"
        raise VerifyError(head, hint=hint, problems=listed)
    return report


def inspect_bundle(
    folder: Path, *, key: Ed25519PublicKey | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Check a bundle; problems are in the report, none is raised.

    With a `key`, only what it signed is accepted.
    """
    reader, checks, problems, done = Reader(folder, key=key), CHECKS, list[str](), list[str]()
    if is_linked(folder):
        from synthdp.verify.linked import LinkedReader, linked_checks  # as heavy as it is rare

        reader, checks = LinkedReader(folder, key=key), linked_checks(CHECKS)
    with one_thread():  # products are small; a second core would spin beside them
        for name, (file, check) in checks.items():
            done.append(name)
            problems += _problems(file, check, reader)
            if progress is not None:
                progress(len(done), len(checks))
            if problems and (name == "folder" or (name == "spec" and reader.parsed is None)):
                break  # nothing below can be read safely, or judged
    found = VerifyReport(folder, tuple(done), tuple(problems), origin_checked=reader.origin_checked)
    if (stated := reader.certificate) is None:
        return found
    return replace(found, epsilon=stated.epsilon, delta=stated.delta, signer=stated.signer)


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
    # Whatever the libraries below raise on bytes that were made to break them.
    except Exception as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        found.append(f"{file}: is not what it should be ({what})")
    return [p if len(p) <= VERIFY.words else f"{p[: VERIFY.words]}..." for p in found]


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
                large = relative.endswith((".csv", ".parquet")) and relative in reader.files
                most = 64 << 30 if large else MAX_BYTES.get(relative, MAX_TEXT)
                if path.lstat().st_size > most:
                    yield f"{relative!r}: is larger than any bundle's"
    expected = {*reader.files, SUMS}
    yield from (
        f"{n!r}: does not belong in a bundle" for n in sorted(found - expected - {*OPTIONAL})
    )
    yield from (f"{n}: is missing" for n in sorted(expected - found))


def _check_sums(reader: Reader) -> Iterator[str]:
    """`SHA256SUMS` names every file once and nothing else, and every hash fits."""
    sums: dict[str, str] = {}
    listed = (*reader.files, *filter(reader.holds, BY_SPEC))
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
    "spec": ("spec.yaml", privacy.check_spec),
    "ledger": ("privacy/ledger.json", privacy.check_ledger),
    "certificate": ("privacy/certificate.json", privacy.check_certificate),
    "certificate text": rewritten.by_others("privacy/certificate.md"),
    "readme": rewritten.by_others("README.md"),
    "page for people": rewritten.by_others("PEOPLE.md"),
    "script for R": rewritten.by_others("synthdp.R"),
    "data card": rewritten.by_others(DATACARD),
    "public report": rewritten.by_others(REPORT),
    "causal diagram": rewritten.by_others("privacy/effects.svg"),
    "profile": ("privacy/profile.json", rewritten.check_profile),
    "registry record": (DEPLOYMENT, rewritten.check_deployment),
    "table": (CSV_NAME, content.check_csv),
    "graph": ("graph.json", rewritten.check_graph),
    "noisy counts": ("marginals.json", content.check_marginals),
    "waves": (WAVES, rewritten.check_waves),
    "innovations": rewritten.by_others(INNOVATIONS),
    "model": ("model.safetensors", content.check_model),
    "noise": ("marginals.json", rows.check_noise),
    "estimands": (ESTIMANDS, rewritten.check_estimands),
    "rows of the model": (CSV_NAME, rows.check_rows),
    "parquet": (PARQUET_NAME, rewritten.check_parquet),
    "description": rewritten.by_others("datapackage.json"),
    "croissant": rewritten.by_others(CROISSANT),
    "signature": (signing.STATEMENT, _check_statement),
}
"""By name: the file that a check is of, and the check. Later ones use what earlier ones read."""
