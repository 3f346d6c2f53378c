"""Values to levels and back, by the public domain alone.

`encode` never fails on a value: what lies outside the domain is clamped and counted, so that the
caller can refuse or go on as the spec says. `decode` draws a value inside each bin uniformly (whole
numbers: uniformly over the bin's whole numbers that are not spikes), so synthetic values never
repeat a real one by design.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.kinds import column_kind
from synthdp.data.kinds.kind import Codes, EncodedColumn, Floats, missing_in
from synthdp.data.values import read_values

if TYPE_CHECKING:  # a plan encodes nothing
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "Codes",
    "EncodedColumn",
    "cleaned",
    "decode",
    "decode_column",
    "encode",
    "encode_column",
    "operand_values",
    "to_numbers",
]


def encode_column(
    column: ColumnDomain, values: pd.Series[Any] | pa.Array | pa.ChunkedArray
) -> EncodedColumn:
    """The levels of `values`.

    A misfit becomes the nearest level of a range, or the first category. Misfits are counted.

    Missing values of a column that declares none are misfits too; they get the first level. Each
    row's level depends on its own value alone: `read_values` has the proof, and what follows it
    here computes row by row.
    """
    return column_kind(column).encode(column, read_values(column, values))


def to_numbers(column: ColumnDomain, values: pd.Series[Any]) -> Floats:
    """Values on the column's numeric scale, shape `[rows]`; NaN where missing or not a number."""
    return read_values(column, values).numbers


def operand_values(
    column: ColumnDomain, codes: npt.NDArray[np.integer], values: pd.Series[Any] | None
) -> npt.NDArray[np.float64]:
    """A column as expressions read it, `[rows]`: its levels, and its values if it is a range.

    Categories are positions, dates days since 1970, and missing values NaN.
    """
    if not column.ranged:
        missing = column.levels if column.missing_level is None else column.missing_level
        return np.where(codes == missing, np.nan, codes.astype(np.float64))
    assert values is not None
    steps = to_numbers(column, values)
    return steps if column.step_seconds is None else steps * column.step_seconds / 86_400


def decode_column(
    column: ColumnDomain, codes: npt.NDArray[np.integer], *, rng: np.random.Generator
) -> pd.Series[Any]:
    """Values for levels: categories as declared, ranges drawn inside their bins.

    A missing value is None, NaN or NaT.
    """
    return column_kind(column).decode(column, codes, rng)


def encode(domain: Domain, frame: pd.DataFrame) -> tuple[Codes, dict[str, EncodedColumn]]:
    """Levels of a whole table, `[rows, columns]`, and each column's misfit counts (confidential).

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


def cleaned(columns: Iterable[ColumnDomain], encoded: Mapping[str, EncodedColumn]) -> pd.DataFrame:
    """Values as the domain knows them: clamped numbers, declared categories, missing where
    declared.

    A row's values are those of its own cells: `ColumnKind.values` converts row by row.
    """
    import pandas as pd

    found: dict[str, pd.Series[Any]] = {}
    for column in columns:
        own = encoded[column.name]
        numbers = own.codes if own.numbers is None else own.numbers
        found[column.name] = column_kind(column).values(
            column, numbers, missing_in(column, own.codes)
        )
    rows = max((len(own.codes) for own in encoded.values()), default=0)
    return pd.DataFrame(found, index=pd.RangeIndex(rows))


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
