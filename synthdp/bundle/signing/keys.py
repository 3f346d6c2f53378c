"""Keys that sign bundles: ed25519.

Private keys are PKCS #8 PEM, public ones SubjectPublicKeyInfo PEM.

A private key never leaves this module: `Signer` signs and says who it is. Where the key lies is
told by an environment variable, so that no spec, bundle or log ever names the place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from synthdp.errors import OutputError, VerifyError
from synthdp.spec.model import Signing

PRIVATE_NAME, PUBLIC_NAME = "signing-key.pem", "signing-key.pub.pem"
ALGORITHM = "ed25519"
SIGNATURE_BYTES = 64
MAX_KEY_FILE = 64 << 10  # bytes


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_new(private, secret, mode=0o600)
        _write_new(public, shown, mode=0o644)
    except OSError as error:
        raise OutputError(
            f"cannot write keys to {folder}: {error.strerror}", hint="choose another folder"
        ) from None
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
        secret = (
            "; it holds a private key, which nobody should be given"
            if b"PRIVATE KEY" in content
            else ""
        )
        raise VerifyError(f"{path} is no public key in PEM{secret}", hint=hint) from None
    if not isinstance(key, Ed25519PublicKey):
        raise VerifyError(
            f"{path} is not an {ALGORITHM} key, the only algorithm that is supported", hint=hint
        )
    return key


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_KEY_FILE)
