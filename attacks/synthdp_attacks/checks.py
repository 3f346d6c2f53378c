"""Checks of an attack's arguments, before anything is trained or counted.

Messages quote arguments, never values of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from synthdp_attacks.errors import AttackError


def whole(name: str, value: object, *, least: int) -> int:
    """A whole number of at least `least`.

    Raises:
        AttackError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise AttackError(f"{name}={value!r}; needs a whole number of at least {least}")
    return int(value)


def columns_asked(name: str, columns: Sequence[SupportsIndex], count: int) -> tuple[int, ...]:
    """Positions of different columns of a table of `count` columns, at least one.

    Raises:
        AttackError: none, one twice, or one that is not there.
    """
    asked = np.asarray(columns)
    if asked.ndim != 1 or not len(asked) or not np.issubdtype(asked.dtype, np.integer):
        raise AttackError(
            f"{name}={columns!r}; needs a list of column positions, at least one, each a whole"
            f" number from 0 to {count - 1}"
        )
    if wrong := [int(c) for c in asked if not 0 <= c < count]:
        raise AttackError(
            f"{name} names column {wrong[0]}; the table has columns 0 to {count - 1}, counted from"
            " 0 and never from the end"
        )
    if len(set(asked.tolist())) < len(asked):
        raise AttackError(
            f"{name}={[int(c) for c in asked]}; a column stands there twice: name each once"
        )
    return tuple(int(c) for c in asked)


def parties_asked(
    parties: tuple[Sequence[int], Sequence[int]], count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The columns of two parties, who share none.

    Raises:
        AttackError: not two, columns that cannot be asked for, or one in common.
    """
    if len(parties) != 2:
        raise AttackError(f"parties={parties!r}; needs two lists of column positions")
    first, second = (
        columns_asked(f"parties[{i}]", party, count) for i, party in enumerate(parties)
    )
    if common := sorted(set(first) & set(second)):
        raise AttackError(
            f"both parties hold column {common[0]}: give each column to one of them, since what"
            " both hold needs no linking"
        )
    return first, second
