"""The noisy number of rows, which tables that are paid for hold for free, against the declared one:
is this the declared table?

Every table counts all rows, so the sum of its cells is their number plus noise of a known
deviation. What a total is compared
with is public: the declared number, or half and twice that, which is what `approximate` allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from synthdp.errors import WrongTableError
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import expected_fit_rows
from synthdp.spec.model import IdUnit, ReleaseSpec

# a declared number that is rounded to one digit is within this of the true one, with room to spare
FACTOR = 2.0
# A total of normal noise is further off on the side that counts in 3.2e-5 of all releases whose
# table is at the limit; in fewer of others.
DEVIATIONS = 4.0


@dataclass(frozen=True)
class Total:
    """An estimate of the number of rows that the tables counted, and its standard deviation."""

    rows: float
    deviation: float


def noisy_total(tables: Sequence[NoisyTable]) -> Total:
    """The mean of all tables' sums with weights by their variance, which has the least variance of
    all means: their noise is independent.
    """
    weights = [1 / (table.counts.size * table.sigma**2) for table in tables]
    rows = sum(
        w * float(table.counts.sum()) for w, table in zip(weights, tables, strict=True)
    ) / sum(weights)
    return Total(rows, 1 / math.sqrt(sum(weights)))


def check_total(tables: Sequence[NoisyTable], spec: ReleaseSpec) -> list[str]:
    """What to tell of a total that is not the declared one, but may be what was meant.

    Where ids are the unit, what is left of a table when `max_rows` of each are kept may be a small
    part of it, so that no total is too low.

    Raises:
        WrongTableError: the total is more than `DEVIATIONS` beyond what `approximate` allows.
    """
    total, expected = noisy_total(tables), expected_fit_rows(spec)
    low = 0.0 if isinstance(spec.dataset.privacy_unit, IdUnit) else expected / FACTOR
    high = expected * FACTOR
    declared = spec.dataset.rows.value
    fitted = f", {expected:,.0f} of them to fit" if expected < declared else ""
    found = (
        f"dataset.rows declares {declared:,} rows{fitted}, and the noisy counts say"
        f" {total.rows:,.0f}, give or take {2 * total.deviation:,.0f}"
    )
    if total.rows < low - _slack(total, spec, low) or total.rows > high + _slack(total, spec, high):
        raise WrongTableError(
            f"this is not the declared table: {found}",
            hint=(
                "nothing was trained. Correct the source, or dataset.rows, and release anew"
                " (--force drops this run): that pays again. `synthdp resume` would stop here again"
            ),
        )
    off = abs(total.rows - expected) > _slack(total, spec, expected)
    return [f"{found}; noise, batch and steps were chosen for the declared number"] if off else []


def _slack(total: Total, spec: ReleaseSpec, rows: float) -> float:
    """How far a total may be off where `rows` are expected: noise, and the coins of the holdout,
    which all rows of a unit share.
    """
    unit = spec.dataset.privacy_unit
    together = unit.max_rows if isinstance(unit, IdUnit) else 1
    held_out = spec.evaluation.holdout if spec.evaluation.enabled else 0.0
    return DEVIATIONS * math.hypot(total.deviation, math.sqrt(rows * held_out * together))
