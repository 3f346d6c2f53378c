"""Which columns of a source are read, and under which names: `drop` and `rename` of the spec.

Both are facts of the spec and of the header. Nothing here sees a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from synthdp.data.domain import Domain
from synthdp.errors import DataError
from synthdp.privacy.readers.checks import check_columns, few, told_alike
from synthdp.spec.model import ChosenColumns, ParquetSource, Source, SqlSource

Choose = Callable[[Sequence[str]], dict[int, str]]
"""From a table's column names: the places that are read, each with its name in the spec."""


def choice(source: Source, domain: Domain, id_column: str | None) -> Choose:
    """What the spec reads of a table; it refuses a table whose columns are not the declared ones.

    Raises:
        DataError: (when called) the names do not fit the spec.
    """

    apart = isinstance(source, ParquetSource | SqlSource)  # names lie apart from the rows

    def choose(names: Sequence[str]) -> dict[int, str]:
        if not isinstance(source, ChosenColumns):
            check_columns(names, domain, id_column, apart=apart)
            return dict(enumerate(names))
        wanted = [*source.drop, *source.rename]
        if lost := [name for name in wanted if name not in set(names)]:
            alike = told_alike(lost, {name: i for i, name in enumerate(names)})
            told = f"dataset.source drops or renames {few(map(repr, lost))}, which the table lacks"
            raise DataError(
                "; ".join([told, *alike]),
                hint="names must be the source's own, letter by letter; take out what it lacks",
            )
        kept = {
            i: source.rename.get(name, name)
            for i, name in enumerate(names)
            if name not in source.drop
        }
        check_columns(list(kept.values()), domain, id_column, places=list(kept), apart=apart)
        return kept

    return choose


def chosen_frame(
    frame: pd.DataFrame, choose: Choose, *, commas: Sequence[str] = ()
) -> pd.DataFrame:
    """The columns of a frame that are read, with their names in the spec.

    Texts of numbers in the columns `commas` have a comma before their decimals; each gets a point.
    """
    kept = choose([str(name) for name in frame.columns])
    chosen = frame.iloc[:, list(kept)].set_axis(list(kept.values()), axis="columns")
    return chosen.assign(**{name: with_point(chosen[name]) for name in commas if name in chosen})


def with_point(texts: pd.Series[str]) -> pd.Series[str]:
    """Each text with points for its commas and commas for its points: 1.5 is then no number."""
    for old, new in ((".", "\0"), (",", "."), ("\0", ",")):
        texts = texts.str.replace(old, new, regex=False)
    return texts
