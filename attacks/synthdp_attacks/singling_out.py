"""Singling out: a predicate of one synthetic row is true of exactly one original row.

Giomi et al. (2023), the singling-out attack, for codes: univariate predicates are levels that one
synthetic row alone has, multivariate ones are levels that one synthetic row alone has together. A
predicate that happens to be true of one row is likelier or less likely so in a table of another
size, so that both tables are cut to the size of the smaller. Intervals take the guesses for
independent of each other. Those of one table are not quite; measured, they raise no more false
alarms than promised.
"""

from __future__ import annotations

import numpy as np

from synthdp_attacks.checks import whole
from synthdp_attacks.errors import AttackError
from synthdp_attacks.risk import Risk, Trials, risk_of
from synthdp_attacks.threat import BoolArray, Codes, Public

TRIES = 10  # sets of columns for each synthetic row, until one singles it out
Predicate = tuple[tuple[int, ...], tuple[int, ...]]
"""Columns, and the level that each must have."""


def singling_out(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    public: Public,
    rng: np.random.Generator,
    width: int | None = None,
    guesses: int = 500,
) -> Risk:
    """Number of predicates that single out one of `members`, and one of `control`.

    Each predicate singles out a synthetic row.

    `width`: columns of a predicate (1: univariate); None draws it afresh for each, from 2 to all.
    The naive guess takes the same columns with levels drawn evenly from the public ones.
    """
    columns = len(public.sizes)
    if width is not None and not 1 <= width <= columns:
        raise AttackError(f"width={width}; a predicate has 1 to {columns} columns")
    if columns < 2 and width is None:
        raise AttackError("one column has no multivariate predicates: ask with width=1")
    guesses = whole("guesses", guesses, least=1)
    size = min(len(members), len(control))
    own, other = (table[rng.permutation(len(table))[:size]] for table in (members, control))
    found = (
        _levels_of_one(synthetic, guesses, rng)
        if width == 1
        else _combinations_of_one(synthetic, width, guesses, rng)
    )
    blind: list[Predicate] = [
        (where, tuple(int(rng.integers(public.sizes[c])) for c in where)) for where, _ in found
    ]
    name = (
        "singling out by"
        f" {'one column' if width == 1 else 'several columns' if width is None else f'{width} columns'}"  # noqa: E501
    )
    return risk_of(
        name,
        attack=_singled(found, own),
        control=_singled(found, other),
        naive=_singled(blind, own),
    )


def _levels_of_one(synthetic: Codes, guesses: int, rng: np.random.Generator) -> list[Predicate]:
    """Levels that exactly one synthetic row has, at most `guesses` of them."""
    found: list[Predicate] = []
    for column, codes in enumerate(synthetic.T):
        levels, counts = np.unique(codes, return_counts=True)
        found += [((column,), (int(level),)) for level in levels[counts == 1]]
    return [found[i] for i in rng.permutation(len(found))[:guesses]]


def _combinations_of_one(
    synthetic: Codes, width: int | None, guesses: int, rng: np.random.Generator
) -> list[Predicate]:
    """Combinations of levels that exactly one synthetic row has.

    There is at most one for each row, so that no two guesses aim at the same row.
    """
    found: list[Predicate] = []
    columns = synthetic.shape[1]
    for row in synthetic[rng.permutation(len(synthetic))]:
        for _ in range(TRIES):
            size = width or int(rng.integers(2, columns + 1))
            where = np.sort(rng.choice(columns, size=size, replace=False))
            if _selected(synthetic, where, row[where]).sum() == 1:
                found.append((tuple(map(int, where)), tuple(map(int, row[where]))))
                break
        if len(found) == guesses:
            break
    return found


def _singled(predicates: list[Predicate], table: Codes) -> Trials:
    """How many predicates are true of exactly one row."""
    return Trials.of(
        np.array(
            [
                _selected(table, np.array(where), np.array(levels)).sum() == 1
                for where, levels in predicates
            ],
            dtype=bool,
        )
    )


def _selected(table: Codes, where: Codes, levels: Codes) -> BoolArray:
    return np.asarray((table[:, where] == levels).all(axis=1))
