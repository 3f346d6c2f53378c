"""The signed statement of a bundle: an in-toto Statement v1 about every file, in a DSSE envelope.

The statement names each file by its SHA-256 and carries the certificate as its predicate, so a
signature under it vouches for the whole folder and for what is claimed about it [in-toto
Attestation Framework, Statement v1; DSSE protocol 1.0.0]. The statement itself is the one file that
it does not name.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synthdp.bundle.signing.keys import Signer

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
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("payloadType"), str)
        or not isinstance(content.get("signatures"), list)
    ):
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
