"""What the screens find: expressions that hold in all rows looked at, not yet checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DerivedClaim:
    """One relation of `columns`: each of `ways` is (column, how it is computed from the others).

    The first way that the spec can declare is suggested.
    """

    columns: tuple[str, ...]
    ways: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OrderClaim:
    """A constraint on `columns` that needs no more than its text."""

    columns: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class LevelsClaim:
    """Each value of the first of `columns` (or its `part`) goes with one of the second.

    The part is one of a date, or the range of a number, which is named by its least value. `pairs`
    says with which. `text` is that as a constraint, empty where expressions cannot say it,
    and `remark` says it in words.
    """

    columns: tuple[str, str]
    part: str
    pairs: Mapping[float, float]
    text: str
    remark: str
