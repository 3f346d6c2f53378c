"""What the rest of the program asks of a column type: one `ColumnKind`.

It alone knows how values of the type are read, encoded, written, and described in other formats.

What the spec itself asks of a type (its fields, its part in expressions, the questions of
`synthdp init`) stands at its model in `synthdp.spec.model.columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from synthdp.data.column_domain import ColumnDomain, Meaning, category_text
from synthdp.spec.model import ColumnBase

if TYPE_CHECKING:  # a plan reads nothing
    import pandas as pd
    import pyarrow as pa

Codes = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Levels = npt.NDArray[np.integer]
Numbers = npt.NDArray[Any]
Series: TypeAlias = "pd.Series[Any]"
Texts: TypeAlias = "pd.Series[str]"
Flags: TypeAlias = "pd.Series[bool]"

_C = TypeVar("_C", bound=ColumnBase)


@dataclass(frozen=True)
class Read:
    """Values as read, row by row: a number or NaN, and whether the value is missing."""

    numbers: Floats
    absent: Mask


@dataclass(frozen=True)
class EncodedColumn:
    """Levels of one column, shape `[rows]`, and how many values did not fit (confidential)."""

    codes: Codes
    wrong_type: int
    outside: int
    unexpected_missing: int
    numbers: Floats | None = None
    """Of a range: inside its bounds, the lower one where the value is missing or none."""

    @property
    def misfits(self) -> int:
        """Values that the declared domain does not hold."""
        return self.wrong_type + self.outside + self.unexpected_missing


class ColumnKind(ABC, Generic[_C]):
    """One column type: its levels, values, and descriptions. It has no state.

    `column` is an entry of the spec, `domain` the same column as levels. Numbers are on the
    column's scale: the position of a category, a number itself, whole steps since 1970 of an
    instant.
    """

    type: ClassVar[str]
    """The type's name in a spec."""
    read_as: ClassVar[str]
    """How values must be written in the source, in words."""
    read_as_csv: ClassVar[str] = ""
    """What is added to that where the source is text alone."""

    # --- levels ---

    @abstractmethod
    def levels(self, name: str, column: _C) -> ColumnDomain:
        """The column as levels."""

    # --- reading ---

    @abstractmethod
    def meaning(self, domain: ColumnDomain) -> Meaning:
        """A function of one value, made from the declaration alone: its number, or NaN.

        The number is equal for -0.0 and 0.0 (`synthdp.data.encoding` has the proof that uses
        this).
        """

    def text_of(self, domain: ColumnDomain) -> Callable[[Any], str | None]:
        """A function of one value: its text, as compared with categories and missing codes."""
        return category_text

    def typed(self, domain: ColumnDomain, cells: pa.Array) -> Read | None:
        """The numbers of `meaning`, computed by an operation that the array's type names, or None.

        It is None where this type has no such operation. It must not look for a type, unit or
        format in the cells.
        """
        return None

    @abstractmethod
    def misfits(self, domain: ColumnDomain, read: Read) -> dict[str, Mask]:
        """Which values that are not missing do not fit, by kind; none is of two kinds."""

    @abstractmethod
    def encode(self, domain: ColumnDomain, read: Read) -> EncodedColumn:
        """Levels of what was read, row by row; misfits are clamped and counted."""

    # --- writing ---

    @abstractmethod
    def decode(self, domain: ColumnDomain, codes: Levels, rng: np.random.Generator) -> Series:
        """Values for levels of shape `[rows]`, drawn inside bins; missing as None, NaN or NaT."""

    @abstractmethod
    def values(self, domain: ColumnDomain, numbers: Numbers, missing: Mask) -> Series:
        """Numbers of shape `[rows]` as values of the type; None, NaN, NA or NaT where `missing`."""

    @abstractmethod
    def scalar(self, domain: ColumnDomain, number: float) -> Any:
        """One number as a value of the type."""

    def written(self, column: _C, values: Series) -> Series:
        """Values as the published CSV file has them."""
        return values

    # --- reading what was published ---

    def parsed(self, domain: ColumnDomain, text: Texts) -> Series:
        """Fields of a published CSV file as values; an empty one is missing."""
        return text.mask(text == "")

    def malformed(self, domain: ColumnDomain, text: Texts, values: Series) -> Flags:
        """Fields, `values` once parsed, that no writer of ours writes although they can be read."""
        return text.isna()

    # --- descriptions ---

    @abstractmethod
    def frictionless(self, column: _C) -> dict[str, Any]:
        """Type, categories and bounds as a field of a Frictionless table schema (version 2)."""

    @abstractmethod
    def croissant(self, column: _C) -> str:
        """The `dataType` of a Croissant field."""

    @abstractmethod
    def arrow_type(self, column: _C) -> pa.DataType:
        """The type of the column in Parquet."""

    @abstractmethod
    def arrow_array(self, column: _C, texts: pa.Array) -> pa.Array:
        """Fields of the published CSV file, null where missing, as cells of `arrow_type`.

        Raises:
            ValueError: a field is no value of the column (pyarrow's errors are of this kind).
        """

    @abstractmethod
    def in_words(self, column: _C, *, most: int) -> str:
        """What the column may hold, in words; at most `most` categories are named."""


def finish(
    domain: ColumnDomain,
    codes: Levels,
    absent: Mask,
    *,
    wrong_type: int,
    outside: int,
    numbers: Floats | None = None,
) -> EncodedColumn:
    """Encoded levels, with the missing level, or else a misfit, where a value is `absent`."""
    levels: Codes = np.where(absent, domain.missing_level or 0, codes).astype(np.uint16)
    unexpected = int(absent.sum()) if domain.missing_level is None else 0
    return EncodedColumn(levels, wrong_type, outside, unexpected, numbers)


def missing_in(domain: ColumnDomain, codes: Levels) -> Mask:
    """Where levels are the missing one, same shape."""
    return np.asarray(codes == (-1 if domain.missing_level is None else domain.missing_level))


def some(values: Sequence[str], between: str, most: int) -> str:
    """The first `most` of `values`, and how many more there are."""
    more = len(values) - most
    return between.join(values[:most]) + (f" and {more} more" if more > 0 else "")
