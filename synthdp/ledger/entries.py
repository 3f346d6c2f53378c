"""Ledger entries and the hash chain that ties them together.

Each entry's hash covers its content and the hash of the entry before it. So a row that was edited,
put in, moved, or taken out of the middle is seen, and named, by anyone who recomputes the chain.
Rows cut off at the end leave a shorter chain that is sound in itself. They are seen by comparing
the ledger with a bundle that was published from it (`missing`), since a bundle carries its run's
entries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from synthdp.errors import VerifyError

GENESIS = "0" * 64
# Which process has a run, and which values it uses: a bundle leaves these entries out.
INTERNAL = frozenset({"lease", "kept"})


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    seq: int
    dataset: str
    run: str
    kind: str
    body: dict[str, Any]
    at: str
    previous: str
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, from which `entry_hash` can be recomputed."""
        return {
            k: getattr(self, k)
            for k in ("seq", "dataset", "run", "kind", "body", "at", "previous", "hash")
        }


def entry_hash(
    *, seq: int, dataset: str, run: str, kind: str, body: dict[str, Any], at: str, previous: str
) -> str:
    """SHA-256 of the canonical JSON of an entry; `previous` chains it to the one before."""
    content = {
        "seq": seq,
        "dataset": dataset,
        "run": run,
        "kind": kind,
        "body": body,
        "at": at,
        "previous": previous,
    }
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def verify_entries(entries: Sequence[Entry]) -> None:
    """Recompute the chain of consecutive `entries` that begin at the ledger's first.

    The order is that of `seq`; times are shown and never compared, because clocks are set back.

    Raises:
        VerifyError: names the first row that does not fit.
    """
    previous = GENESIS
    for position, entry in enumerate(entries, start=1):
        content = {k: v for k, v in entry.to_json().items() if k != "hash"}
        if (
            entry.seq != position
            or entry.previous != previous
            or entry_hash(**content) != entry.hash
        ):
            raise VerifyError(
                f"the ledger was tampered with: row {entry.seq} (run {entry.run}, {entry.kind})"
                " does not fit the chain"
            )
        previous = entry.hash


def missing(published: Sequence[Entry], ledger: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries of a published bundle that `ledger` does not hold as they were published.

    The chain says nothing of rows cut off at its end, nor of a ledger that was written anew as a
    whole; a bundle's entries do, because their hashes rest on every row before them.
    """
    kept = {e.seq: e for e in ledger}
    return tuple(e for e in published if kept.get(e.seq) != e)


def parse_row(fields: dict[str, Any]) -> Entry:
    """An entry from its database row, whose body is JSON text.

    Raises:
        VerifyError: no program of ours wrote this row; names it.
    """
    try:
        body = json.loads(fields["body"])
    except (TypeError, ValueError):
        body = None
    if not isinstance(body, dict) or not all(
        isinstance(fields[k], str) for k in ("dataset", "run", "kind", "at", "previous", "hash")
    ):
        raise VerifyError(f"the ledger was tampered with: row {fields['seq']} cannot be read")
    return Entry(**{**fields, "body": body})
