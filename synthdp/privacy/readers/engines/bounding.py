"""At most `max_rows` rows of each id, chosen by a keyed hash: the same rows in every engine.

A row is what mechanisms see of it: its levels l, and where they add up numbers, those of its
ranges, x. The rows of one id u with the same levels are numbered j = 1, 2, ..., by x where numbers
are added up, and else in any order. A row's place is sha256(key | j | l | u), and the `max_rows`
rows of u with the smallest places stay.

Neighbours stay neighbours [derived here]. The pairs (l, j) of u are a function of the multiset of
u's own rows: if m of them have the levels l, they are (l, 1), ..., (l, m), whichever row has which
number. So the places of u, and the multiset of levels that stays, are functions of u's rows and of
the key. With numbers the same is true of the triples (l, j, x), since x orders the rows of one l up
to such as are equal. Equal rows cannot be told apart by what mechanisms see, so that it does not
matter which of them stays; no tie is broken by another id, by the order of rows, or by which
partition is read first. A unit more or less therefore adds or takes its own at most `max_rows`
rows, and no other row comes or goes. This holds for each key. Rows that are counted and rows that
are added up have the same levels, since their pairs (l, j) are the same. That the key is secret
serves fairness: places look uniform, and independent for different (l, j, u), so that a uniformly
random choice of u's rows stays, common levels as often as they occur.

A unit is held out by a coin: of an id a hash under another key, of a row a random number of its
place in the files (`on_arrow.coins_of`). Neighbours stay neighbours [derived here]: an id has the
coin that it had, and coins of places are independent and of one law whatever the rows are, so that
rows that move to other places can be given the coins that they had. For each outcome of the coins
a unit more is one more row of some side, or up to `max_rows`; a mixture of such pairs is no easier
to tell apart than the worst of them.

Both keys have 128 bits of the run's stream of holdout coins, so that a resumed run keeps and holds
out the same rows. They are in the run's private folder until the run ends, and in what an engine
logs of its statements. No bound rests on their being secret. The coins of a secret sample have
another key, whose secret the accountant counts on: it is drawn for one statement
(`statements.Statement.sampled`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.data.encoding import Codes

Ids = npt.NDArray[np.object_]
COIN_BITS = 60  # of a unit's coin: a rate is rounded to multiples of 2^-60


def place(key: str, number: int, levels: Iterable[int], unit: str) -> str:
    """The place of the row (`levels`, `number`) of `unit`: 64 hexadecimal digits."""
    text = f"{key}|{number}|{','.join(map(str, levels))}|{unit}"
    return hashlib.sha256(text.encode()).hexdigest()


def kept_rows(
    ids: Ids,
    codes: Codes,
    *,
    max_rows: int,
    key: str,
    numbers: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.bool_]:
    """Which rows stay, `[rows]`; `ids` are texts (`one_value.id_text`), `codes` all levels, and
    `numbers` those of all ranges `[rows, ranges]`, where they are added up.

    All rows of an id must be there.
    """
    unit = pd.factorize(ids)[0]
    crowded = np.bincount(unit, minlength=1) > max_rows
    kept: npt.NDArray[np.bool_] = ~crowded[unit]
    rows = np.flatnonzero(~kept)
    if len(rows):
        if numbers is not None and numbers.shape[1]:
            rows = rows[np.lexsort(numbers[rows].T)]
        own = np.ascontiguousarray(codes[rows], dtype=np.uint16)
        alike = np.unique(own, axis=0, return_inverse=True)[1].ravel()
        number = pd.Series(rows).groupby([unit[rows], alike]).cumcount().to_numpy() + 1
        places = [
            place(key, n, levels, name)
            for n, levels, name in zip(number.tolist(), own.tolist(), ids[rows], strict=True)
        ]
        order = np.lexsort((np.array(places), unit[rows]))
        rank = pd.Series(rows).groupby(unit[rows][order]).cumcount().to_numpy()
        kept[rows[order[rank < max_rows]]] = True
    return kept


def coin(key: str, unit: str) -> str:
    """The first digits of a unit's place among all: below `limit` with chance `rate`."""
    return hashlib.sha256(f"{key}|{unit}".encode()).hexdigest()[: COIN_BITS // 4]


def chosen_units(key: str, rate: float, ids: Ids) -> npt.NDArray[np.bool_]:
    """The rows of the units whose coin is below `rate`, `[rows]`."""
    whose, units = pd.factorize(ids)
    below = limit(rate)
    tossed = np.array([coin(key, unit) < below for unit in units], dtype=bool)
    drawn: npt.NDArray[np.bool_] = tossed[whose]
    return drawn


def limit(rate: float) -> str:
    """What a coin of chance `rate` lies below; beyond all coins for a rate of 1."""
    return "g" if rate >= 1 else f"{int(rate * 2**COIN_BITS):0{COIN_BITS // 4}x}"
