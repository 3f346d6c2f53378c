"""From columns of a CSV file to integer codes and back.

Levels are declared, never learned from rows.

Levels that are read off the private table give away what is in it, and leave no code for what
another table holds. Declare them from the questionnaire, the code book or the law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp_attacks.threat import AttackError, Codes, Public


@dataclass(frozen=True)
class Bins:
    """Numbers in bins with increasing `edges`.

    Each bin contains its lower edge, the last one both. With `missing`, one more code, the last,
    stands for no value.
    """

    edges: Sequence[float]
    missing: bool = False

    def __post_init__(self) -> None:
        edges = list(self.edges)
        if (
            len(edges) < 2
            or not all(isinstance(e, (int, float)) and math.isfinite(e) for e in edges)
            or any(a >= b for a, b in pairwise(edges))
        ):
            raise AttackError(
                f"edges={edges}; needs at least two finite numbers, each above the one before, such"
                " as (0, 18, 65, 120)"
            )

    @property
    def size(self) -> int:
        """Codes of the column."""
        return len(self.edges) - 1 + self.missing


Column = Sequence[str | None] | Bins
"""Categories as they stand in the file, None for no value; or bins of a number."""


def public_of(columns: Mapping[str, Column]) -> Public:
    """What anyone may know of a table of these columns.

    Raises:
        AttackError: no columns, or a declaration that is none.
    """
    if not columns:
        raise AttackError(
            "no columns are declared: give {name: categories or Bins(edges)} for each column that"
            " the attack shall see"
        )
    sizes = (
        column.size if isinstance(column, Bins) else len(_texts(name, column))
        for name, column in columns.items()
    )
    return Public(tuple(sizes))


def encode(frame: pd.DataFrame, columns: Mapping[str, Column]) -> Codes:
    """Codes `[rows, columns]` of a frame, in the order of `columns`.

    Other columns of the frame are ignored.

    Categories are compared as text: read files with `dtype=str`. Errors name the column and the
    place of the first row that does not fit (counted from 0, the header aside), never its value,
    which may be private.

    Raises:
        AttackError: a column that is not there, or a value that is not declared.
    """
    public_of(columns)
    if absent := [name for name in columns if name not in frame]:
        raise AttackError(
            f"column {absent[0]!r} is not in the table, which has"
            f" {', '.join(map(repr, frame.columns))}: correct the name"
        )
    codes = [
        _binned(name, frame[name], c) if isinstance(c, Bins) else _listed(name, frame[name], c)
        for name, c in columns.items()
    ]
    return np.stack(codes, axis=1)


def decode(codes: Codes, columns: Mapping[str, Column]) -> pd.DataFrame:
    """A frame of declared categories and of bin centres, from codes `[rows, columns]`.

    A synthesizer of tables is trained on it.

    Raises:
        AttackError: codes outside the declared levels.
    """
    table = public_of(columns).checked(codes, "codes")
    frame = {}
    for (name, column), own in zip(columns.items(), table.T, strict=True):
        if isinstance(column, Bins):
            middles = [(a + b) / 2 for a, b in pairwise(column.edges)] + [math.nan] * column.missing
            frame[name] = pd.Series(np.array(middles)[own])
        else:
            frame[name] = pd.Series(np.array(_texts(name, column), dtype=object)[own], dtype=object)
    return pd.DataFrame(frame)


def _texts(name: str, column: Sequence[str | None]) -> list[str | None]:
    """Categories as text; None stays."""
    if isinstance(column, str) or not isinstance(column, (list, tuple)) or not column:
        raise AttackError(
            f"column {name!r} is declared by {column!r}; needs a list of its categories, or"
            " Bins(edges) for a number"
        )
    texts = [None if level is None else str(level) for level in column]
    if twice := [level for i, level in enumerate(texts) if level in texts[:i]]:
        raise AttackError(
            f"column {name!r} declares category {twice[0]!r} twice: declare each once"
        )
    return texts


def _listed(name: str, values: Any, column: Sequence[str | None]) -> npt.NDArray[np.int64]:
    """Places of values in the list of categories."""
    texts = _texts(name, column)
    place = {level: code for code, level in enumerate(texts)}
    absent = pd.isna(values).to_numpy()
    given = [None if gone else str(value) for value, gone in zip(values, absent, strict=True)]
    codes = np.array([place.get(level, -1) for level in given], dtype=np.int64)
    _all_declared(
        name, codes, absent, f"one of the declared categories {texts}", "declare None as a category"
    )
    return codes


def _binned(name: str, values: Any, column: Bins) -> npt.NDArray[np.int64]:
    edges = np.asarray(column.edges, dtype=np.float64)
    absent = pd.isna(values).to_numpy()
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    within = (numbers >= edges[0]) & (numbers <= edges[-1])
    codes = np.where(
        within, np.minimum(np.searchsorted(edges, numbers, side="right") - 1, len(edges) - 2), -1
    )
    if column.missing:
        codes[absent] = len(edges) - 1
    _all_declared(
        name, codes, absent, f"a number from {edges[0]:g} to {edges[-1]:g}", "say missing=True"
    )
    return codes.astype(np.int64)


def _all_declared(
    name: str,
    codes: npt.NDArray[Any],
    absent: npt.NDArray[np.bool_],
    allowed: str,
    for_missing: str,
) -> None:
    """Refuse a column with a value that has no code (-1)."""
    wrong = np.flatnonzero(codes < 0)
    if not len(wrong):
        return
    where = f"column {name!r}: row {wrong[0]} (look at frame[{name!r}].iloc[{wrong[0]}])"
    if absent[wrong[0]]:
        raise AttackError(
            f"{where} has no value; allowed is {allowed}: {for_missing}, or leave such rows out"
        )
    raise AttackError(
        f"{where} holds none of what is declared; allowed is {allowed}: declare its value if it is"
        " public, or mend the row"
    )
