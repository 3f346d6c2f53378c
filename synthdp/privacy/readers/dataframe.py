"""A table given from Python: a pandas DataFrame that stands in for a file.

The frame is sealed where it enters (`seal_dataframe`) and is opened by the kernel's reader alone.
Its cells then take the same way as those of a file: one value at a time (`synthdp.data.values`).

The table is the frame as it was given, its dtypes included. A neighbouring table is a frame of the
same dtypes with the rows of one unit more or less. So no dtype may follow from the rows: where
pandas infers one, as `read_csv` does, a single odd value makes a column of numbers a column of
text. Declare the dtypes, or read every column as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from synthdp.errors import DataError
from synthdp.privacy.private import _KERNEL_KEY, Private

HINT = (
    "give the rows from Python: `synthdp.Spec.load(SPEC).release(df, out=OUT)`, or"
    " `synthdp.resume(OUT, df)` for an interrupted run"
)


def seal_dataframe(frame: object) -> Private[pd.DataFrame]:
    """Seal a DataFrame. What its owner changes in it afterwards is not seen.

    Raises:
        DataError: `frame` is no DataFrame.
    """
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"rows are given as a pandas DataFrame, and this is a {type(frame).__name__}",
            hint="make one of it, with a column for each column of the spec",
        )
    return Private(frame.copy(deep=False), key=_KERNEL_KEY)


def open_dataframe(
    sealed: Private[pd.DataFrame] | None,
    *,
    check: Callable[[Sequence[str]], object],
    check_rows: Callable[[int], None],
) -> pd.DataFrame:
    """The rows of a sealed DataFrame, without its index. `check` sees the columns' names first.

    Raises:
        DataError: no rows were given, `check` or `check_rows` refuse them, or a column holds times
            with a zone.
    """
    if sealed is None:
        raise DataError("dataset.source is a DataFrame, and no rows were given", hint=HINT)
    frame = sealed.unseal(key=_KERNEL_KEY)
    names = [str(name) for name in frame.columns]
    check(names)
    check_rows(len(frame))
    zoned = [
        name
        for name, dtype in zip(names, frame.dtypes, strict=True)
        if isinstance(dtype, pd.DatetimeTZDtype)
    ]
    if zoned:
        raise DataError(
            f"column {zoned[0]!r} of the DataFrame holds times with a zone, which are not read",
            hint="make them local times without a zone, as `dt.tz_localize(None)` does",
        )
    return frame.set_axis(names, axis="columns").reset_index(drop=True)
