"""What copies are handed out as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class CopiedTables(NamedTuple):
    """Copies of a bundle's columns, and what analyses of them are right for.

    >>> import synthdp
    >>> copies = synthdp.Bundle("releases/clinic/bundle").copies(2, columns=["smoker"], rows=50)
    >>> len(copies.tables)
    2
    """

    tables: list[pd.DataFrame]
    spanned: dict[str, Any]
