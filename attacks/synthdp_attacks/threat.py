"""The threat model, apart from any attack: the adversary's knowledge, and one training.

The adversary always knows the public description of the table (`Public`), the record he asks about,
and how the releaser trains (`Trainer`, which he runs himself as a shadow). A `ThreatModel` says
what he knows of the *other* rows, and by what the two worlds differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Protocol, SupportsIndex, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

Codes = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

Relation = Literal["add_remove", "replace_one"]
Knowledge = Literal["rest", "reference"]
Score = Callable[[Codes], float]


class AttackError(ValueError):
    """An attack cannot be run as asked. Says what was got, what is allowed and what to do next.

    It never has values of rows.
    """


@dataclass(frozen=True)
class WhiteBox:
    """A trainer's result where the model, or its noisy tables, are released with the rows.

    `scores`: by name, what anyone who holds the released model can compute of one record
    `[columns]`, such as its ELBO. A score must grow with how well the model knows the record. The
    game asks only for the target's, inside the task, so that a model never travels; all models of a
    game must have the same names.
    """

    synthetic: Codes = field(repr=False)
    scores: Mapping[str, Score]


class Trainer(Protocol):
    """One independently trained model and one synthetic set drawn from it.

    `rows` holds whole-number codes, shape `[rows, columns]`, and may be read-only; the answer has
    shape `[released rows, columns]`, or is a `WhiteBox` around it. All randomness comes from
    `seed_sequence`, so that a task gives the same answer in whatever process it runs. For worker
    processes it must be a module-level function, a closure or a dataclass; threads inside a
    training are its own business (`torch.set_num_threads(1)`).
    """

    def __call__(self, rows: Codes, *, seed_sequence: np.random.SeedSequence) -> Codes | WhiteBox:
        """Train on `rows` and release one synthetic set, in a white box with the model."""
        ...


@runtime_checkable
class GroupTrainer(Trainer, Protocol):
    """A trainer that can also train several models at once, in less time than one by one.

    Each model has its own rows and randomness, and what it releases has the law that it has alone.
    """

    @property
    def group(self) -> int:
        """Most models that are worth training side by side, at least 1."""
        ...

    def many(
        self, rows: Sequence[Codes], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[Codes | WhiteBox]:
        """Train on each of `rows`; the synthetic set of each, in their order, as it is ready."""
        ...


@dataclass(frozen=True)
class Public:
    """Public knowledge of the table: the number of levels of each column.

    Codes lie in `0 .. size-1`. Rows may be of several kinds, such as of persons and of visits:
    `kinds` has the number of columns of each, in their order. A row then has the last level of
    every column of another kind, and of no column of its own.
    """

    sizes: tuple[int, ...]
    kinds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.sizes or any(
            isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1
            for size in self.sizes
        ):
            raise AttackError(
                f"sizes={self.sizes!r}; needs the number of levels of each column, whole numbers of"
                " at least 1"
            )

    @property
    def columns(self) -> list[Codes]:
        """Positions of the columns of each kind of rows."""
        return np.split(np.arange(len(self.sizes)), np.cumsum(self.kinds)[:-1])

    def of_kind(self, rows: Codes, columns: Codes) -> BoolArray:
        """Which rows are of the kind that has these columns."""
        own = int(columns[0])
        return np.asarray(rows[:, own] < self.sizes[own] - bool(self.kinds))

    def checked(self, codes: Codes, what: str) -> Codes:
        """`codes` as an array of shape `[rows, columns]` inside the domain.

        Raises:
            AttackError: wrong shape, not whole numbers, or a level outside its column.
        """
        table = np.asarray(codes)
        if (
            table.ndim != 2
            or table.shape[1] != len(self.sizes)
            or not np.issubdtype(table.dtype, np.integer)
        ):
            raise AttackError(
                f"{what}: got {table.dtype} of {table.ndim} dimensions {table.shape[1:]}; "
                f"needs whole-number codes [rows, {len(self.sizes)}]: encode the table first"
            )
        outside = np.flatnonzero(((table < 0) | (table >= np.asarray(self.sizes))).any(axis=0))
        if len(outside):
            allowed = f"allowed are 0 .. {self.sizes[outside[0]] - 1} in column {outside[0]}"
            raise AttackError(
                f"{what}: a code lies outside its column; {allowed}: declare every level, or encode"
                " as the others"
            )
        return table


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """What differs between the two worlds, and what the adversary knows of the other rows.

    Where units have several rows, each row below is a unit with all of its rows.

    `relation`: `add_remove` - the world without the target has one row less; `replace_one` - it has
    a fresh row instead. `knowledge`: `rest` - he knows every other row (the adversary of
    differential privacy), and all shadow models share them; `reference` - he has rows of the same
    population, and every model pair draws its other rows afresh. `rows`: how many other rows each
    training gets (None: all; `replace_one` and `reference` need some left over). In both cases the
    two models of a pair share the other rows, so the ceiling of a differentially private trainer
    holds.
    """

    relation: Relation = "add_remove"
    knowledge: Knowledge = "rest"
    rows: int | None = None

    def __post_init__(self) -> None:
        """Refuse unknown words and sizes at once rather than in a worker."""
        for name, got, allowed in (
            ("relation", self.relation, get_args(Relation)),
            ("knowledge", self.knowledge, get_args(Knowledge)),
        ):
            if got not in allowed:
                raise AttackError(f"{name}={got!r}; allowed: {', '.join(allowed)}")
        if self.rows is not None and self.rows < 2:
            raise AttackError(
                f"rows={self.rows}; each training needs at least 2 rows beside the target"
            )

    def size(self, available: int) -> int:
        """Other rows of each training when `available` can be drawn from.

        Raises:
            AttackError: not enough rows for this threat model.
        """
        spare = int(self.relation == "replace_one" or self.knowledge == "reference")
        size = available - int(self.relation == "replace_one") if self.rows is None else self.rows
        if size < 2 or size > available or (self.rows is not None and size + spare > available):
            raise AttackError(
                f"the threat model needs {size} other rows and {spare} to spare; {available} are"
                " there: lower `rows`"
            )
        if self.knowledge == "reference" and self.rows is None:
            raise AttackError(
                "knowledge='reference' draws other rows afresh for each pair: say how many with"
                " `rows`"
            )
        return size


# --- checks of arguments, whose messages never quote values of rows ---


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
            f"{name}={list(map(int, asked))}; a column stands there twice: name each once"
        )
    return tuple(map(int, asked))


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


def hamming(
    queries: Codes, rows: Codes, *, cells: int = 1 << 22
) -> Iterator[tuple[slice, npt.NDArray[np.unsignedinteger[Any]]]]:
    """Hamming distances (number of columns that differ) from each query to each row, by chunks.

    Yields `[chunk, rows]`, of about `cells` of two bytes, and the chunk's place among the queries.
    """
    by_column = np.ascontiguousarray(rows.T)
    step = max(1, cells // max(1, len(rows)))
    for start in range(0, len(queries), step):
        part = slice(start, min(start + step, len(queries)))
        distance = np.zeros((part.stop - part.start, len(rows)), dtype=np.uint16)
        for column, asked in zip(by_column, queries[part].T, strict=True):
            distance += asked[:, None] != column
        yield part, distance


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
