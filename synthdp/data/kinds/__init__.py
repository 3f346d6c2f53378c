"""The column types, one `ColumnKind` each.

A new type is a file of this folder, a line here, and its model in `synthdp.spec.model.columns`
(docs/extending.md, "Add a column type").
"""

from __future__ import annotations

from typing import Any

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.kinds.categories import BooleanKind, CategoricalKind, OrdinalKind, TextCodeKind
from synthdp.data.kinds.kind import ColumnKind
from synthdp.data.kinds.ranges import DatetimeKind, IntegerKind, NumberKind
from synthdp.spec.model import Column

__all__ = ["COLUMN_KINDS", "ColumnKind", "column_kind"]

COLUMN_KINDS: dict[str, ColumnKind[Any]] = {
    kind.type: kind
    for kind in (
        CategoricalKind(),
        OrdinalKind(),
        BooleanKind(),
        IntegerKind(),
        NumberKind(),
        DatetimeKind(),
        TextCodeKind(),
    )
}
"""The kind of each type, by the type's name in a spec."""


def column_kind(column: Column | ColumnDomain) -> ColumnKind[Any]:
    """The kind of a column of a spec, or of a domain."""
    return COLUMN_KINDS[column.type]
