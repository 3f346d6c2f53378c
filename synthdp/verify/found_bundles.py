"""Bundles found below a folder, any of which may come from anyone.

Without `verify` only what they state is read: spec, certificate, profile, graph and ledger entries,
which must fit the bundle's sums.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from synthdp.errors import SynthdpError, VerifyError
from synthdp.files import SUMS, check_sums, read_text
from synthdp.ledger.entries import Entry
from synthdp.spec.wording import up
from synthdp.verify.at_hand import LEDGER, published_entries
from synthdp.verify.checks import inspect_bundle
from synthdp.verify.diff import Opened, open_stated

CERTIFICATE = "privacy/certificate.json"
STATED = ("spec.yaml", CERTIFICATE, "privacy/profile.json", LEDGER, "graph.json")
MAX_REASONS, MAX_WORDS = 5, 300  # of a damaged bundle
NOT_RELEASES = ("mlflow-artifacts", "mlartifacts")  # what MLflow keeps of bundles


@dataclass(frozen=True)
class Found:
    """A bundle that can be read, and whether it was `verified`, with a key that was given."""

    opened: Opened
    entries: tuple[Entry, ...]
    sums: str
    epsilon: str
    verified: bool
    key_checked: bool

    @property
    def run(self) -> str:
        """The run that made it."""
        return self.entries[-1].run

    @property
    def order(self) -> tuple[str, int, str]:
        """Oldest first."""
        last = self.entries[-1]
        return last.at, last.seq, str(self.opened.folder)


def bundles_below(folder: Path) -> Iterator[Path]:
    """Folders that hold a bundle's sums or certificate, in order; none is looked for inside them.

    Links, hidden folders and MLflow's own are not followed.
    """
    for root, folders, files in os.walk(folder, followlinks=False):
        if SUMS in files or os.path.lexists(os.path.join(root, CERTIFICATE)):
            folders.clear()
            yield Path(root)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in NOT_RELEASES
        )


def read_bundle(place: Path, *, verify: bool, key: Ed25519PublicKey | None) -> Found:
    """What a bundle states, once its sums hold, or with `verify` everything that `verify` checks.

    Raises:
        Exception: whatever its content makes libraries raise.
    """
    key_checked = False
    if verify:
        report = inspect_bundle(place, key=key)
        if report.problems:
            raise VerifyError("does not hold what it claims", hint="", problems=report.problems)
        key_checked = report.origin_checked
    else:
        check_sums(place, STATED)
    entries, opened = tuple(published_entries(place)), open_stated(place)
    if not all(isinstance(text, str) for e in entries for text in (e.run, e.at)):
        raise ValueError("its ledger entries name no run, or no day")
    epsilon = f"{up(opened.certificate.epsilon)} at delta {opened.certificate.delta:g}"
    return Found(opened, entries, read_text(place / SUMS), epsilon, verify, key_checked)


def reasons_of(error: Exception) -> tuple[str, ...]:
    """Why a bundle cannot be used, in a few texts of bounded length."""
    if isinstance(error, SynthdpError):
        return _cut([problem["message"] for problem in error.to_json()["problems"]])
    return _cut([f"is not what it should be ({type(error).__name__}: {error})"])


def _cut(reasons: Sequence[str]) -> tuple[str, ...]:
    left = len(reasons) - MAX_REASONS
    more = [f"and {left} more"] if left > 0 else []
    return tuple(r[:MAX_WORDS] for r in [*reasons[:MAX_REASONS], *more])
