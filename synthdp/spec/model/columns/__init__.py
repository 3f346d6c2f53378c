"""`columns`: what each column may hold. Public knowledge, never fitted to rows.

A column is of one of the types below. A new one is a model in a file of this folder and its name
in `Column`, and a `ColumnKind` for its values (docs/extending.md, "Add a column type").
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from synthdp.spec.model.columns.types import (
    CODEBOOK,
    EPOCH,
    RESOLUTION_SECONDS,
    Boolean,
    Categorical,
    ColumnBase,
    Datetime,
    Integer,
    Number,
    Operand,
    Ordinal,
    Question,
    Ranged,
    TextCode,
)

__all__ = [
    "CODEBOOK",
    "COLUMN_TYPES",
    "EPOCH",
    "RESOLUTION_SECONDS",
    "Boolean",
    "Categorical",
    "Column",
    "ColumnBase",
    "Datetime",
    "Integer",
    "Number",
    "Operand",
    "Ordinal",
    "Question",
    "Ranged",
    "TextCode",
    "category_types",
    "derived_of",
]

Column = Annotated[
    Categorical | Ordinal | Boolean | Integer | Number | Datetime | TextCode,
    Field(discriminator="type"),
]

COLUMN_TYPES: dict[str, type[ColumnBase]] = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in get_args(get_args(Column)[0])
}
"""The model of each type, by the type's name in a spec."""


def derived_of(column: Column) -> str | None:
    """What a column is computed from; None for one that is modelled."""
    return getattr(column, "derived", None)


def category_types() -> str:
    """The types whose values are categories, in words."""
    *others, last = (name for name, model in COLUMN_TYPES.items() if not model.ranged)
    return f"{', '.join(others)} or {last}"
