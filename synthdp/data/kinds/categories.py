"""Kinds of columns whose values are categories: a level each, compared letter by letter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from synthdp.data.column_domain import MISSING_LABEL, ColumnDomain, Meaning, category_text
from synthdp.data.kinds.kind import (
    ColumnKind,
    EncodedColumn,
    Flags,
    Levels,
    Mask,
    Numbers,
    Read,
    Series,
    Texts,
    finish,
    missing_in,
    some,
)
from synthdp.spec.model import Boolean, Categorical, ColumnBase, Ordinal, TextCode

if TYPE_CHECKING:
    import pyarrow as pa


_C = TypeVar("_C", bound=ColumnBase)
_WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")


class CategoryKind(ColumnKind[_C]):
    """Levels are the labels of the declaration, in its order; missing last."""

    read_as: ClassVar[str] = "categories are compared letter by letter"
    read_as_csv: ClassVar[str] = " (1.0 is not 1)"

    def levels(self, name: str, column: _C) -> ColumnDomain:
        tail = (MISSING_LABEL,) if column.missing else ()
        return ColumnDomain(name, self.type, column.labels + tail, column.missing)

    def meaning(self, domain: ColumnDomain) -> Meaning:
        """The position of the label that is the value's text, or that the text is mapped to."""
        labels, text = positions(domain), self.text_of(domain)
        known = labels | {source: labels[label] for source, label in domain.sources}
        return lambda value: known.get(text(value), math.nan)

    def misfits(self, domain: ColumnDomain, read: Read) -> dict[str, Mask]:
        return {"category": np.isnan(read.numbers) & ~read.absent}

    def encode(self, domain: ColumnDomain, read: Read) -> EncodedColumn:
        """Positions as levels; what is no category is the first one."""
        outside = int(self.misfits(domain, read)["category"].sum())
        codes = np.where(np.isnan(read.numbers), 0.0, read.numbers).astype(np.uint16)
        return finish(domain, codes, read.absent, wrong_type=0, outside=outside)

    def decode(self, domain: ColumnDomain, codes: Levels, rng: np.random.Generator) -> Series:
        return self.values(domain, codes, missing_in(domain, codes))

    def values(self, domain: ColumnDomain, numbers: Numbers, missing: Mask) -> Series:
        import pandas as pd

        labels = np.asarray(domain.labels, dtype=object)
        chosen = labels[numbers.astype(np.intp)]
        chosen[missing] = None
        return pd.Series(chosen, dtype="str")

    def scalar(self, domain: ColumnDomain, number: float) -> str:
        return domain.labels[int(number)]

    def malformed(self, domain: ColumnDomain, text: Texts, values: Series) -> Flags:
        """Texts of the source, which are published as another or as nothing."""
        return text.isin([*dict(domain.sources), *domain.missing_codes])

    def frictionless(self, column: _C) -> dict[str, Any]:
        """A string, or a whole number where all codes are, with its categories and their labels."""
        codes = {text: int(text) if whole_codes(column) else text for text in column.labels}
        names = getattr(column, "value_labels", {})
        listed = [{"value": c, "label": names.get(text, text)} for text, c in codes.items()]
        return {
            "type": "integer" if whole_codes(column) else "string",
            "categories": listed if names else list(codes.values()),
            "categoriesOrdered": column.ordered,
            "constraints": {"enum": list(codes.values())},
        }

    def croissant(self, column: _C) -> str:
        return "sc:Integer" if whole_codes(column) else "sc:Text"

    def arrow_type(self, column: _C) -> pa.DataType:
        import pyarrow as pa

        if whole_codes(column):
            return pa.int64()
        return pa.dictionary(pa.int32(), pa.string(), ordered=column.ordered)

    def arrow_array(self, column: _C, texts: pa.Array) -> pa.Array:
        import pyarrow as pa

        labels = pa.array(column.labels, pa.string())
        if whole_codes(column):
            return labels.take(places(texts, labels)).cast(pa.int64())
        return pa.DictionaryArray.from_arrays(places(texts, labels), labels, ordered=column.ordered)

    def in_words(self, column: _C, *, most: int) -> str:
        names = getattr(column, "value_labels", {})
        shown = [f"{text} = {names[text]}" if text in names else text for text in column.labels]
        return some(shown, " < " if column.ordered else ", ", most)


class CategoricalKind(CategoryKind[Categorical]):
    """Texts without an order."""

    type: ClassVar[str] = "categorical"


class OrdinalKind(CategoryKind[Ordinal]):
    """Texts from lowest to highest."""

    type: ClassVar[str] = "ordinal"


class BooleanKind(CategoryKind[Boolean]):
    """Two texts, which other formats have a type for."""

    type: ClassVar[str] = "boolean"

    def text_of(self, domain: ColumnDomain) -> Callable[[Any], str | None]:
        """A typed truth value has the text of its side, whichever the spec gives it."""
        false, true = domain.labels[:2]

        def text(value: Any) -> str | None:
            if isinstance(value, bool | np.bool_):
                return true if value else false
            return category_text(value)

        return text

    def frictionless(self, column: Boolean) -> dict[str, Any]:
        return {"type": "boolean", "trueValues": [column.true], "falseValues": [column.false]}

    def croissant(self, column: Boolean) -> str:
        return "sc:Boolean"

    def arrow_type(self, column: Boolean) -> pa.DataType:
        import pyarrow as pa

        return pa.bool_()

    def arrow_array(self, column: Boolean, texts: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        return pc.equal(places(texts, pa.array(column.labels)), 1)

    def in_words(self, column: Boolean, *, most: int) -> str:
        return f"{column.false} (false), {column.true} (true)"


def whole_codes(column: ColumnBase) -> bool:
    """Whether every category is a whole number as it is plainly written: no 01, +1 or -0."""
    return all(map(_WHOLE.fullmatch, column.labels))


def positions(domain: ColumnDomain) -> dict[str | None, float]:
    """The position of each label but that of missing values."""
    labels = domain.labels[: domain.levels - domain.missing]
    return {label: float(i) for i, label in enumerate(labels)}


def places(texts: pa.Array, labels: pa.Array) -> pa.Array:
    """The position of each text among `labels`; null stays.

    Raises:
        ValueError: a text is none of them.
    """
    import pyarrow.compute as pc

    positions = pc.index_in(texts, value_set=labels)
    if positions.null_count != texts.null_count:
        raise ValueError("a value is none of its column's categories")
    return positions


class TextCodeKind(CategoryKind[TextCode]):
    """Codes of which the first characters are read, and nothing after them."""

    type: ClassVar[str] = "text-code"
    read_as: ClassVar[str] = "codes are compared letter by letter, by their first characters"
    read_as_csv: ClassVar[str] = ""

    def meaning(self, domain: ColumnDomain) -> Meaning:
        """The position of the label that the value's text begins with.

        The text is compared up to the length of the longest label, which is the declared prefix.
        """
        known = positions(domain)
        prefix = max(len(label) for label in known if label is not None)

        def number(value: Any) -> float:
            text = category_text(value)
            return math.nan if text is None else known.get(text[:prefix], math.nan)

        return number

    def malformed(self, domain: ColumnDomain, text: Texts, values: Series) -> Flags:
        """Whole codes: a release holds their prefixes alone."""
        return (text != "") & ~text.isin([*positions(domain)])

    def in_words(self, column: TextCode, *, most: int) -> str:
        characters = (
            "first character" if column.prefix == 1 else f"first {column.prefix} characters"
        )
        return f"{some(column.labels, ', ', most)} (the {characters} of a code)"
