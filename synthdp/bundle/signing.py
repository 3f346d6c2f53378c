"""Keys that sign bundles: ed25519.

Private keys are PKCS #8 PEM, public ones SubjectPublicKeyInfo PEM.

A private key never leaves this module: `Signer` signs and says who it is. Where the key lies is
told by an environment variable, so that no spec, bundle or log ever names the place.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from synthdp.errors import OutputError, VerifyError, disk_errors
from synthdp.spec.model import Signing

PRIVATE_NAME, PUBLIC_NAME = "signing-key.pem", "signing-key.pub.pem"
ALGORITHM = "ed25519"
SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Signer:
    """A private key that can be used and not seen."""

    _key: Ed25519PrivateKey = field(repr=False)

    @property
    def identity(self) -> str:
        """The public key in one word; see `identity`."""
        return identity(self._key.public_key())

    def sign(self, message: bytes) -> bytes:
        """The ed25519 signature of `message`, 64 bytes [RFC 8032, section 5.1.6]."""
        return self._key.sign(message)


def identity(key: Ed25519PublicKey) -> str:
    """A public key in one word: `ed25519:` and its 32 bytes in hex."""
    return f"{ALGORITHM}:{key.public_bytes_raw().hex()}"


def key_of(identity: str) -> Ed25519PublicKey:
    """The public key behind an `identity`.

    Raises:
        ValueError: it is not one, or of another algorithm.
    """
    algorithm, _, digits = identity.partition(":")
    if algorithm != ALGORITHM:
        raise ValueError(f"the algorithm {algorithm[:20]!r} is not supported, only {ALGORITHM} is")
    raw = bytes.fromhex(digits)
    if len(raw) != 32 or digits != raw.hex():
        raise ValueError(f"an {ALGORITHM} key has 64 lower-case hex digits")
    return Ed25519PublicKey.from_public_bytes(raw)


def fits(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    """Whether `signature` is the one of `message` under `key`."""
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def make_keys(folder: Path) -> tuple[Path, Path]:
    """A new key pair in `folder`, the private key readable by its owner alone; returns both paths.

    Raises:
        OutputError: a key already lies there (keys are never replaced), or the folder cannot be
            written.
    """
    private, public = folder / PRIVATE_NAME, folder / PUBLIC_NAME
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise OutputError(
                f"{path} exists, and keys are never replaced",
                hint="choose another folder, or move the old key away yourself",
            )
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    shown = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with disk_errors(f"cannot write keys to {folder}", hint="choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        _write_new(private, secret, mode=0o600)
        _write_new(public, shown, mode=0o644)
    return private, public


def _write_new(path: Path, content: bytes, *, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # whatever the umask
        file.write(content)
        os.fsync(handle)


def load_signer(settings: Signing, *, environment: Mapping[str, str] = os.environ) -> Signer | None:
    """The signer that the environment names; None without one, unless the spec requires it.

    Raises:
        OutputError: a key is required and none is named, or the one that is named cannot be used.
    """
    path = environment.get(settings.key_env)
    make = "make one with `synthdp keygen FOLDER`"
    if not path:
        if settings.required:
            raise OutputError(
                f"signing.required is true, and the environment variable {settings.key_env} names"
                " no key",
                hint=f"set it to the path of the private key; {make}",
            )
        return None
    try:
        key = serialization.load_pem_private_key(_read(Path(path)), password=None)
    except OSError as error:
        raise OutputError(
            f"cannot read the key that {settings.key_env} names: {error.strerror}", hint=make
        ) from None
    except TypeError:
        raise OutputError(
            f"the key that {settings.key_env} names is encrypted; synthdp asks for no passphrase",
            hint=make,
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise OutputError(
            f"what {settings.key_env} names is no private key in PEM (PKCS #8)", hint=make
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise OutputError(
            f"the key that {settings.key_env} names is not {ALGORITHM}, the only algorithm that is"
            " supported",
            hint=make,
        )
    return Signer(key)


def load_public_key(path: Path) -> Ed25519PublicKey:
    """A public key from PEM.

    Raises:
        VerifyError: it cannot be read, or is no ed25519 public key.
    """
    hint = (
        f"give the publisher's public key ({PUBLIC_NAME}), which you got by another way than the"
        " bundle"
    )
    try:
        content = _read(path)
        key = serialization.load_pem_public_key(content)
    except OSError as error:
        raise VerifyError(f"cannot read the key {path}: {error.strerror}", hint=hint) from None
    except (ValueError, UnsupportedAlgorithm):
        holds = "; it holds a private key, which nobody should be given"
        secret = holds if b"PRIVATE KEY" in content else ""
        raise VerifyError(f"{path} is no public key in PEM{secret}", hint=hint) from None
    if not isinstance(key, Ed25519PublicKey):
        raise VerifyError(
            f"{path} is not an {ALGORITHM} key, the only algorithm that is supported", hint=hint
        )
    return key


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(64 << 10)


# --- statement: an in-toto Statement v1 about every file, in a DSSE envelope ---
#
# The statement names each file by its SHA-256 and carries the certificate as its predicate, so a
# signature under it vouches for the whole folder and for what is claimed about it [in-toto
# Attestation Framework, Statement v1; DSSE protocol 1.0.0]. The statement itself is the one file
# that it does not name.


STATEMENT = "privacy/statement.intoto.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
# the predicate is the content of privacy/certificate.json
PREDICATE_TYPE = "urn:x-synthdp:privacy-certificate:v1"


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope, decoded: what it holds, of which type, and (key hint, signature) pairs."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def signed(self) -> bytes:
        """The bytes under the signatures."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: type and payload, each after its length.

    The lengths keep the two apart.
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def make_statement(digests: Mapping[str, str], certificate: Mapping[str, Any]) -> dict[str, Any]:
    """The statement about files (name -> SHA-256 in hex) with their certificate."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(certificate),
    }


def sign(statement: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    """The envelope of a statement, as JSON."""
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    signature = signer.sign(pae(PAYLOAD_TYPE, payload))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": signer.identity, "sig": base64.b64encode(signature).decode()}],
    }


def open_envelope(content: Any) -> Envelope:
    """Decode an envelope; nothing is checked against a key.

    Unknown fields are ignored, as DSSE asks.

    Raises:
        ValueError: it is not an envelope.
    """
    known = {"payloadType": str, "signatures": list}
    plain = content if isinstance(content, dict) else {}
    if not all(isinstance(plain.get(name), kind) for name, kind in known.items()):
        raise ValueError("is not a DSSE envelope")
    if not content["signatures"]:
        raise ValueError("is an envelope without a signature")
    signatures = tuple(
        (str(s.get("keyid", "")), _decode(s.get("sig"), "a signature"))
        for s in content["signatures"]
        if isinstance(s, dict)
    )
    return Envelope(
        content["payloadType"], _decode(content.get("payload"), "the payload"), signatures
    )


def _decode(text: Any, what: str) -> bytes:
    """Standard or URL-safe base64: verifiers must take either."""
    if not isinstance(text, str):
        raise ValueError(f"{what} of the envelope is missing")
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        raise ValueError(f"{what} of the envelope is not base64") from None
