"""A bundle being read by `verify`: nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from synthdp.bundle.certificate.facts import Certificate
from synthdp.data.encoding import Codes
from synthdp.files import parse_json, read_text
from synthdp.ledger.entries import Entry
from synthdp.spec.model import ReleaseSpec


@dataclass
class Reader:
    """A bundle while it is read: later checks use what earlier ones read.

    `key` is the publisher's, where it is known.
    """

    folder: Path
    parsed: ReleaseSpec | None = None
    entries: list[Entry] = field(default_factory=list)
    certificate: Certificate | None = None
    key: Ed25519PublicKey | None = None
    origin_checked: bool = False
    rows: list[Codes] = field(default_factory=list)

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
    def day(self) -> str:
        """When the run was settled, as an ISO date."""
        return self.entries[-1].at[:10] if self.entries else ""

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
        return read_text(self.folder / name)


Check = Callable[[Reader], Iterator[str]]
