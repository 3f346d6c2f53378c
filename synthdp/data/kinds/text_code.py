"""The kind of columns of codes: a category for each prefix that the codes have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.kinds.categories import CategoryKind, positions
from synthdp.data.kinds.kind import some
from synthdp.data.one_value import Meaning, category_text
from synthdp.spec.model.columns.text_code import TextCode

if TYPE_CHECKING:
    import pandas as pd


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

    def malformed(
        self, domain: ColumnDomain, text: pd.Series[str], values: pd.Series[Any]
    ) -> pd.Series[bool]:
        """Whole codes: a release holds their prefixes alone."""
        return (text != "") & ~text.isin([*positions(domain)])

    def in_words(self, column: TextCode, *, most: int) -> str:
        """The prefixes, and what they are."""
        characters = (
            "first character" if column.prefix == 1 else f"first {column.prefix} characters"
        )
        return f"{some(column.labels, ', ', most)} (the {characters} of a code)"
