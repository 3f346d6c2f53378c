"""The prior of a spec: public rows that are read before anything is spent (`graph.prior` says what
is done with them).

They are public, so that what is wrong with them may be told. What is refused is the private file
itself: its rows would be published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synthdp.bundle.content import is_linked, sha256
from synthdp.bundle.descriptions import published_sha256
from synthdp.bundle.table_files import CSV_NAME
from synthdp.data.domain import Domain
from synthdp.data.encoding import encode
from synthdp.errors import BudgetError, DataError
from synthdp.files import SUMS, check_sums
from synthdp.graph.prior import PublicRows
from synthdp.ledger.entries import Entry
from synthdp.privacy.source import is_the_source
from synthdp.spec.model import PriorSource, ReleaseSpec


def with_digest(spec: ReleaseSpec, folder: Path) -> ReleaseSpec:
    """The spec with the digest of its prior, if it has one; `folder` is the spec's.

    Raises:
        DataError: the prior is not there, is another than the spec says, or is the private file.
        VerifyError: a file of its bundle was changed.
    """
    prior = spec.prior
    if prior is None:
        return spec
    path = _path(prior, folder)
    csv = path / CSV_NAME if prior.bundle else path
    try:
        digest = sha256(path / SUMS if prior.bundle else path)
        private = is_the_source(spec.dataset.source, csv, folder=folder)
    except OSError as error:
        raise _wrong(prior, f"cannot be read ({type(error).__name__})") from None
    if private:
        raise _wrong(prior, "is the private file of dataset.source: its rows would be published")
    if digest != (prior.sha256 or digest):
        raise _wrong(prior, f"has the SHA-256 {digest}, and the spec says {prior.sha256}")
    if prior.bundle:
        if is_linked(path):
            raise _wrong(prior, "is a bundle of linked tables; a prior is of one table")
        check_sums(path, ["spec.yaml", CSV_NAME])
    return spec.model_copy(update={"prior": prior.model_copy(update={"sha256": digest})})


def public_rows(spec: ReleaseSpec, domain: Domain, folder: Path) -> PublicRows | None:
    """The rows of the spec's prior as levels of the `domain`.

    Raises:
        DataError: they cannot be read, or a value is outside of the domain.
    """
    prior = spec.prior
    if prior is None:
        return None
    path = _path(prior, folder)
    try:
        csv = path / CSV_NAME if prior.bundle else path
        frame: pd.DataFrame = pd.read_csv(csv, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise _wrong(prior, f"cannot be read as CSV ({type(error).__name__})") from None
    known = replace(domain, columns=tuple(c for c in domain.columns if c.name in frame))
    if not len(frame) or not len(known):
        raise _wrong(prior, "has no row, or no column of the spec")
    frame = frame.replace("", np.nan)
    codes, encoded = encode(known, frame)
    misfits: dict[str, Any] = {name: own.misfits for name, own in encoded.items() if own.misfits}
    if misfits:
        told = ", ".join(f"{name!r} ({count} rows)" for name, count in misfits.items())
        raise _wrong(prior, f"has values that the spec's columns do not: {told}")
    return PublicRows(known.names, codes)


def check_same_prior(spec: ReleaseSpec, entries: Sequence[Entry]) -> None:
    """Refuse to go on with another prior than that of the run with these ledger `entries`.

    Raises:
        BudgetError: the file was changed, and the spec had no digest that tells.
    """
    published = {e.body["published_sha256"] for e in entries if "published_sha256" in e.body}
    if spec.prior is not None and published and published_sha256(spec) not in published:
        raise BudgetError(
            f"the prior {spec.prior.name} is another file than when run {entries[0].run} began",
            hint="bring it back as it was; the run goes on with what it was planned with",
        )


def _path(prior: PriorSource, folder: Path) -> Path:
    return folder / (prior.source or prior.bundle or "")


def _wrong(prior: PriorSource, why: str) -> DataError:
    return DataError(
        f"prior: {prior.name} {why}",
        hint="a prior is a public CSV file, or a bundle, with the columns and values of the spec",
    )
