"""A bundle being read by `verify`: nothing in it is trusted.

JSON is read strictly, so that it cannot be read in two ways: no duplicate keys, no NaN or infinity.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from synthdp.bundle.certificate import Certificate
from synthdp.privacy.ledger import Entry
from synthdp.spec.models import ReleaseSpec

MAX_TEXT = 256 << 20  # bytes of the largest JSON file that is read


@dataclass
class Reader:
    """A bundle being read: what earlier checks found is there for later ones. `key` is the publisher's, where it is known."""

    folder: Path
    parsed: ReleaseSpec | None = None
    entries: list[Entry] = field(default_factory=list)
    certificate: Certificate | None = None
    key: Ed25519PublicKey | None = None
    origin_checked: bool = False

    @property
    def spec(self) -> ReleaseSpec:
        """The spec.

        Raises:
            ValueError: it could not be read.
        """
        if self.parsed is None:
            raise ValueError("the spec could not be read")
        return self.parsed

    @property
    def run(self) -> str:
        """The run's id, as its ledger entries say."""
        return self.entries[0].run if self.entries else ""

    @property
    def charges(self) -> list[Entry]:
        """The run's charges."""
        return [e for e in self.entries if e.kind == "charge"]

    def holds(self, name: str) -> bool:
        """Whether the bundle has the file `name`."""
        return (self.folder / name).is_file()

    def json(self, name: str) -> Any:
        """Content of a JSON file of the bundle."""
        return parse_json(self.text(name))

    def text(self, name: str) -> str:
        """Content of a text file of the bundle."""
        path = self.folder / name
        if path.stat().st_size > MAX_TEXT:
            raise ValueError(f"larger than {MAX_TEXT >> 20} MiB")
        return path.read_bytes().decode("utf-8")


Check = Callable[[Reader], Iterator[str]]


def parse_json(text: str) -> Any:
    """Content of strict JSON.

    Raises:
        ValueError: it is not JSON, repeats a key, or holds NaN or infinity.
    """
    return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key is given twice")
    return content


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number of JSON")
