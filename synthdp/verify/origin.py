"""The check of who made a bundle: its signed statement, and the publisher's key if known.

Without a key the statement is still held against the files and against the key that the certificate
names. That finds damage and mixed-up files. It cannot find a forger, who makes a key of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from synthdp.bundle.folder import SUMS
from synthdp.bundle.metadata.deployment import DEPLOYMENT
from synthdp.bundle.signing.keys import ALGORITHM, SIGNATURE_BYTES, fits, identity, key_of
from synthdp.bundle.signing.statement import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT,
    STATEMENT_TYPE,
    Envelope,
    open_envelope,
)
from synthdp.bundle.write import FILES, sha256
from synthdp.files import parse_json
from synthdp.verify.reader import Check, Reader


def _check_statement(reader: Reader) -> Iterator[str]:
    """The statement is there if the certificate says so, and is about exactly these files.

    The right key signed it.
    """
    signer = reader.certificate.signer if reader.certificate else None
    if not reader.holds(STATEMENT):
        if signer is not None:
            yield f"{STATEMENT}: is missing; the certificate says that {signer} signed this bundle"
        if reader.key is not None:
            yield (
                f"{STATEMENT}: is missing: this bundle is unsigned, and a key was given to check"
                " its signature"
            )
        return
    if reader.certificate is not None and signer is None:
        yield (
            f"{STATEMENT}: does not belong in this bundle; its certificate says that it is unsigned"
        )
    envelope = open_envelope(reader.json(STATEMENT))
    unsigned = list(_signature_problems(reader, envelope, signer))
    yield from (f"{STATEMENT}: {p}" for p in unsigned)
    wrong = list(_content_problems(reader, envelope))
    yield from (f"{STATEMENT}: {p}" for p in wrong)
    reader.origin_checked = reader.key is not None and not unsigned and not wrong


def _signature_problems(reader: Reader, envelope: Envelope, signer: str | None) -> Iterator[str]:
    """The envelope has the supported type and is signed by the right key.

    That is the key that was given, or else the one that the certificate names.
    """
    if envelope.payload_type != PAYLOAD_TYPE:
        yield f"holds {envelope.payload_type[:60]!r}; only {PAYLOAD_TYPE} is supported"
    if reader.key is not None and signer is not None and signer != identity(reader.key):
        yield (
            f"the certificate names the key {signer}, and the key that was given is"
            f" {identity(reader.key)}"
        )
    usable = [s for _, s in envelope.signatures if len(s) == SIGNATURE_BYTES]
    if not usable:
        yield f"has no {ALGORITHM} signature, the only algorithm that is supported"
        return
    key, whose = reader.key, "that was given"
    if key is None and signer is not None:
        key, whose = key_of(signer), "that the certificate names"
    if key is not None and not any(fits(key, s, envelope.signed) for s in usable):
        yield f"its signature is not of the key {whose}, or what was signed was changed"


def _content_problems(reader: Reader, envelope: Envelope) -> Iterator[str]:
    """The statement is an in-toto one, about this certificate and exactly the bundle's files."""
    statement = parse_json(envelope.payload.decode("utf-8"))
    if not isinstance(statement, dict) or statement.get("_type") != STATEMENT_TYPE:
        yield f"is not an in-toto statement of type {STATEMENT_TYPE}"
        return
    if statement.get("predicateType") != PREDICATE_TYPE:
        yield (
            f"its predicate is {str(statement.get('predicateType'))[:60]!r}; only {PREDICATE_TYPE}"
            " is supported"
        )
    elif statement.get("predicate") != reader.json("privacy/certificate.json"):
        yield "its predicate is not this bundle's privacy/certificate.json"
    yield from _subject_problems(reader, statement.get("subject"))


def _subject_problems(reader: Reader, subjects: Any) -> Iterator[str]:
    if not isinstance(subjects, list) or not all(isinstance(s, dict) for s in subjects):
        yield "names no files"
        return
    files = [*FILES, SUMS, *([DEPLOYMENT] if reader.holds(DEPLOYMENT) else [])]
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


ORIGIN_CHECKS: dict[str, tuple[str, Check]] = {"signature": (STATEMENT, _check_statement)}
