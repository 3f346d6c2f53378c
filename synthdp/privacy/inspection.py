"""What does not fit a spec, for the steward alone: counts by column and kind, and a few values.

Outside the guarantee: everything here is `Confidential`, so that no bundle takes it. Nothing is
charged, written to the ledger or released, and no run is begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from synthdp.data.domain import Domain
from synthdp.data.encoding import read_values
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.kind import Mask
from synthdp.errors import OutputError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY, Confidential, Private, withholding
from synthdp.privacy.readers.checks import check_some
from synthdp.privacy.session import inspect
from synthdp.privacy.source import guarded, read_frame, read_private
from synthdp.privacy.table import Table
from synthdp.spec.model import Compute, Dataset
from synthdp.spec.model.rules import engine_of

REASON = "misfits of the rows"


@dataclass(frozen=True)
class Misfit:
    """Rows of a column that do not fit it in one way, and the commonest values among them."""

    column: str
    kind: str
    rows: int
    examples: tuple[tuple[str, int], ...] = ()


@withholding
def misfits_of(
    dataset: Dataset,
    domain: Domain,
    *,
    folder: Path,
    delta: float,
    compute: Compute,
    given: Private[pd.DataFrame] | None = None,
    examples: bool = False,
) -> Confidential[tuple[Misfit, ...]]:
    """What does not fit in all rows, also in those that a unit has beyond its `max_rows`.

    The arguments are those of `source.read_private`. With `examples` a misfit has its commonest
    values, at most five, as text with their rows.

    Raises:
        DataError: the source cannot be read, or has other columns.
        OutputError: examples were asked for, and rows do not come into memory.
    """
    engine = engine_of(dataset.source, compute)
    if engine == "memory" and not getattr(dataset.source, "levels_only", False):
        raw = read_frame(dataset, domain, folder, delta, given)
        check_some(len(raw))
        found = guarded(dataset.source, lambda: tuple(_in_memory(domain, raw, examples)))
        return Confidential(found, REASON, key=_KERNEL_KEY)
    if examples:
        raise OutputError(
            "examples are shown of rows that are read into memory, and these are not",
            hint="leave them out: the counts need none; or set compute.engine: memory",
        )
    private = read_private(
        dataset.model_copy(update={"out_of_domain": "clamp"}),
        domain,
        folder=folder,
        holdout=0.0,
        streams=Streams.fresh(),
        delta=delta,
        given=given,
        compute=compute,
    )
    return inspect(private, lambda table: tuple(_of_survey(domain, table)), reason=REASON)


def _in_memory(domain: Domain, raw: pd.DataFrame, examples: bool) -> Iterator[Misfit]:
    for column in domain.columns:
        values = raw[column.name]
        read = read_values(column, values)
        masks = column_kind(column).misfits(column, read)
        for kind, mask in masks.items():
            if mask.any():
                shown = _examples(values, mask) if examples else ()
                yield Misfit(column.name, kind, int(mask.sum()), shown)
        if not column.missing and read.absent.any():
            yield Misfit(column.name, "missing", int(read.absent.sum()))


def _examples(values: pd.Series[Any], mask: Mask) -> tuple[tuple[str, int], ...]:
    try:
        cells = values[mask].tolist()
    except (ValueError, OverflowError):  # Python has no value for one, such as a day after 9999
        return ()
    # 100: characters of an example
    texts = Counter((repr(v) if isinstance(v, str) else str(v))[:100] for v in cells)
    return tuple(texts.most_common(5))


def _of_survey(domain: Domain, table: Table) -> Iterator[Misfit]:
    """By what an engine or a pass over batches counts, which knows no fractions from texts."""
    for column in domain.columns:
        own = table.misfits[column.name]
        kinds = {
            "wrong type": "type or fraction" if column.type == "integer" else "type",
            "outside the domain": "bound" if column.ranged else "category",
            "unexpected missing": "missing",
        }
        for counted, kind in kinds.items():
            if own[counted]:
                yield Misfit(column.name, kind, own[counted])
