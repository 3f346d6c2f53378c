"""Values to levels and back, by the public domain alone.

`encode` never fails on a value: what lies outside the domain is clamped and counted, so that the
caller can refuse or go on as the spec says. `decode` draws a value inside each bin uniformly (whole
numbers: uniformly over the bin's whole numbers that are not spikes), so synthetic values never
repeat a real one by design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.values import Floats, Read, read_values
from synthdp.spec.model import RESOLUTION_SECONDS

if TYPE_CHECKING:  # a plan encodes nothing
    import pandas as pd
    import pyarrow as pa

Codes = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class EncodedColumn:
    """Levels of one column, shape `[rows]`, and how many values did not fit (confidential)."""

    codes: Codes
    wrong_type: int
    outside: int
    unexpected_missing: int
    numbers: Floats | None = (
        None  # of a range: inside its bounds, the lower one where the value is missing or none
    )

    @property
    def misfits(self) -> int:
        """Values that the declared domain does not hold."""
        return self.wrong_type + self.outside + self.unexpected_missing


def encode_column(
    column: ColumnDomain, values: pd.Series[Any] | pa.Array | pa.ChunkedArray
) -> EncodedColumn:
    """Levels of `values`. Misfits become the nearest level of a range, or the first category, and
    are counted.

    Missing values of a column that declares none are misfits too; they get the first level. Each
    row's level depends on its
    own value alone: `read_values` has the proof, and what follows it here computes row by row.
    """
    read = read_values(column, values)
    return _encode_range(column, read) if column.ranged else _encode_category(column, read)


def _encode_category(column: ColumnDomain, read: Read) -> EncodedColumn:
    unknown = np.isnan(read.numbers)
    outside = int(unknown.sum() - read.absent.sum())
    codes = np.where(unknown, 0.0, read.numbers).astype(np.uint16)
    return _finish(column, codes, read.absent, wrong_type=0, outside=outside)


def _encode_range(column: ColumnDomain, read: Read) -> EncodedColumn:
    numbers, absent = read.numbers, read.absent
    wrong = np.isnan(numbers) & ~absent
    if column.type == "integer":
        wrong |= np.isfinite(numbers) & (np.floor(numbers) != numbers)
    clean = np.where(np.isnan(numbers), column.lower, numbers)
    outside = (clean < column.lower) | (clean > column.upper)
    # Adding zero: "-0" is read as 0 among whole numbers and as -0.0 among others, and must be the
    # same in both.
    clean = np.clip(clean, column.lower, column.upper) + 0.0
    codes = level_of(column, clean)
    return _finish(
        column,
        codes,
        absent,
        wrong_type=int(wrong.sum()),
        outside=int((outside & ~wrong).sum()),
        numbers=clean,
    )


def _finish(
    column: ColumnDomain,
    codes: npt.NDArray[np.integer],
    absent: npt.NDArray[np.bool_],
    *,
    wrong_type: int,
    outside: int,
    numbers: Floats | None = None,
) -> EncodedColumn:
    levels: Codes = np.where(absent, column.missing_level or 0, codes).astype(np.uint16)
    unexpected = int(absent.sum()) if column.missing_level is None else 0
    return EncodedColumn(levels, wrong_type, outside, unexpected, numbers)


def to_numbers(column: ColumnDomain, values: pd.Series[Any]) -> Floats:
    """Values on the column's numeric scale, shape `[rows]`; NaN where missing or not a number."""
    return read_values(column, values).numbers


def level_of(column: ColumnDomain, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Level of each in-range number, shape `[rows]`: its spike if it is one, else its bin."""
    codes = np.zeros(len(numbers), dtype=np.intp)
    if column.edges:
        bins = np.searchsorted(np.asarray(column.edges), numbers, side="right") - 1
        codes = np.clip(bins, 0, len(column.edges) - 1) + len(column.spikes)
    for i, spike in enumerate(column.spikes):
        codes = np.where(numbers == spike, i, codes)
    return codes


def decode_column(
    column: ColumnDomain, codes: npt.NDArray[np.integer], *, rng: np.random.Generator
) -> pd.Series[object]:
    """Values for levels: categories as declared, ranges drawn inside their bins, missing as None /
    NaN / NaT.
    """
    import pandas as pd

    if not column.ranged:
        labels = np.asarray(column.labels, dtype=object)
        if column.missing_level is not None:
            labels[column.missing_level] = None
        return pd.Series(labels[codes], dtype="str")
    numbers = _draw(column, codes, rng)
    missing = (
        codes == column.missing_level
        if column.missing_level is not None
        else np.zeros(len(codes), dtype=bool)
    )
    if column.type == "integer":
        whole = pd.Series(numbers.astype(np.int64))
        return whole.astype("Int64").mask(pd.Series(missing)) if column.missing else whole
    if column.type == "number":
        return pd.Series(np.where(missing, np.nan, _rounded(column, codes, numbers)))
    seconds = numbers.astype(np.int64) * RESOLUTION_SECONDS[column.resolution]
    return pd.Series(np.where(missing, np.datetime64("NaT", "s"), seconds.astype("datetime64[s]")))


def _rounded(
    column: ColumnDomain, codes: npt.NDArray[np.integer], numbers: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Numbers with the column's digits, never rounded over a bound; spikes are written as they were
    declared.
    """
    scale = 10.0**column.decimals
    rounded = np.round(numbers, column.decimals)
    rounded = np.where(rounded > column.upper, np.floor(column.upper * scale) / scale, rounded)
    rounded = np.where(rounded < column.lower, np.ceil(column.lower * scale) / scale, rounded)
    written: npt.NDArray[np.float64] = np.where(
        codes < len(column.spikes), numbers, np.clip(rounded, column.lower, column.upper)
    )
    return written


def _draw(
    column: ColumnDomain, codes: npt.NDArray[np.integer], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    spikes = len(column.spikes)
    left = np.asarray(column.spikes + column.edges + ((0.0,) if column.missing else ()))
    width = np.concatenate(
        [np.zeros(spikes), np.diff(column.edges + (column.stop,)), np.zeros(int(column.missing))]
    )
    uniform = rng.random(len(codes))
    if column.type == "number":
        real: npt.NDArray[np.float64] = np.clip(
            left[codes] + uniform * width[codes], column.lower, column.upper
        )
        return real
    drawn: npt.NDArray[np.float64] = left[codes] + np.floor(uniform * width[codes])
    for _ in range(8):  # redraw what fell on a spike inside a bin; a bin of spikes alone keeps them
        again = np.isin(drawn, column.spikes) & (codes >= spikes) & (width[codes] > 1)
        if not again.any():
            break
        drawn[again] = left[codes[again]] + np.floor(
            rng.random(int(again.sum())) * width[codes[again]]
        )
    return drawn


def encode(domain: Domain, frame: pd.DataFrame) -> tuple[Codes, dict[str, EncodedColumn]]:
    """Levels of a whole table, shape `[rows, columns]`, and each column's misfit counts
    (confidential).

    >>> import pandas as pd
    >>> from synthdp.spec.model import Categorical
    >>> sex = Categorical(type="categorical", categories=("female", "male"))
    >>> codes, encoded = encode(
    ...     Domain.from_spec({"sex": sex}), pd.DataFrame({"sex": ["male", "female", "male"]})
    ... )
    >>> codes.ravel().tolist(), encoded["sex"].misfits
    ([1, 0, 1], 0)
    """
    encoded = {c.name: encode_column(c, frame[c.name]) for c in domain.columns}
    codes = (
        np.column_stack([encoded[n].codes for n in domain.names])
        if len(frame)
        else np.zeros((0, len(domain)), np.uint16)
    )
    return codes, encoded


def decode(domain: Domain, codes: Codes, *, rng: np.random.Generator) -> pd.DataFrame:
    """A table of values for levels of shape `[rows, columns]`.

    >>> from synthdp.spec.model import Categorical
    >>> sex = Categorical(type="categorical", categories=("female", "male"))
    >>> codes = np.array([[1], [0]], dtype=np.uint16)
    >>> frame = decode(Domain.from_spec({"sex": sex}), codes, rng=np.random.default_rng(1))
    >>> frame["sex"].tolist()
    ['male', 'female']
    """
    import pandas as pd

    return pd.DataFrame(
        {c.name: decode_column(c, codes[:, i], rng=rng) for i, c in enumerate(domain.columns)}
    )
