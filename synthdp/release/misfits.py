"""What does not fit a spec, opened for the steward who asks: `synthdp inspect`, `Spec.inspect`.

This module opens confidential values. They go to the terminal, to a file of the steward's own or to
the caller in Python; no tracker, bundle or ledger gets them.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from synthdp.data.domain import Domain
from synthdp.privacy.inspection import Misfit, misfits_of
from synthdp.privacy.private import Private
from synthdp.spec.addresses import home
from synthdp.spec.model import ReleaseSpec

WARNING = "outside the guarantee; for your eyes; do not publish"


def misfits_for_steward(
    spec: ReleaseSpec,
    spec_path: Path,
    *,
    given: Private[pd.DataFrame] | None = None,
    examples: bool = False,
) -> tuple[Misfit, ...]:
    """The misfits of a spec's rows, with the commonest values among them where `examples` says so.

    Raises:
        DataError: the source cannot be read, or has other columns.
        OutputError: examples were asked for, and rows do not come into memory.
    """
    found = misfits_of(
        spec.dataset,
        Domain.from_spec(spec.columns),
        folder=home(spec_path),
        delta=spec.privacy.delta,
        compute=spec.compute,
        given=given,
        examples=examples,
    )
    return found.for_steward()
