"""Numbers that are the product or the quotient of two others."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from synthdp.evaluate.functional.claims import DerivedClaim
from synthdp.evaluate.functional.linear import COARSE, EXACT
from synthdp.evaluate.functional.values import Floats, Values, rounding, written_rounding
from synthdp.spec.expressions.names import quoted
from synthdp.spec.model import Column

FIRST_ROWS = 64
"""Rows on which all pairs are tried; what fits them is tried on all rows."""
MORE_ROWS = 500
"""Rows instead of these where few rows have all numbers."""
MAX_FACTORS = 40
"""Most columns that are tried as factors."""


def product_claims(
    columns: Mapping[str, Column], values: Values, *, related: Collection[frozenset[str]]
) -> list[DerivedClaim]:
    """Products and quotients among numbers that vary; sets in `related` are passed over.

    What fits on few rows is a claim, so that it has to be checked on all.
    """
    names = [n for n, column in columns.items() if column.operand == "number"][:MAX_FACTORS]
    if len(names) < 3:
        return []
    known = np.flatnonzero(~np.isnan(np.stack([values[n] for n in names])).any(0))
    # Columns that are seldom known together are tried on what they have.
    rows = known[:FIRST_ROWS] if len(known) >= FIRST_ROWS else slice(MORE_ROWS)
    tried = _Tried(
        np.stack([values[n][rows] for n in names]),
        np.array([rounding(columns[n]) for n in names]),
        np.array([written_rounding(columns[n]) for n in names]),
        np.array([np.nanstd(values[n]) for n in names]),
    )
    both = list(itertools.combinations(range(len(names)), 2))
    turned = [(b, a) for a, b in both]
    ways: dict[frozenset[str], list[tuple[float, str, str]]] = {}
    # A quotient is missing where it divides by 0, so a product is taken that is nearly as exact.
    for sign, pairs, cost in (("*", both, 1), ("/", both + turned, 2)):
        for a, b in pairs:
            for k, coarse in tried.equal(a, b, sign):
                group = frozenset((names[a], names[b], names[k]))
                if k not in (a, b) and group not in related:
                    text = f"{quoted(names[a])} {sign} {quoted(names[b])}"
                    ways.setdefault(group, []).append((coarse * cost, names[k], text))
    return [
        DerivedClaim(
            tuple(n for n in columns if n in group),
            tuple((name, text) for _, name, text in sorted(found, key=operator.itemgetter(0))),
        )
        for group, found in ways.items()
    ]


@dataclass(frozen=True, eq=False)
class _Tried:
    """Numbers `[columns, rows]`; of each column its rounding, as input and result, and spread."""

    table: Floats
    slack: Floats
    own: Floats
    spread: Floats

    def equal(self, a: int, b: int, sign: str) -> list[tuple[int, float]]:
        """Columns that a product or quotient equals wherever they are known.

        With each, what rounding may hide as a share of the column's spread: 0 where it agrees
        exactly.
        """
        table, slack = self.table, self.slack
        if sign == "*":
            value = table[a] * table[b]
            moved = slack[b] * np.abs(table[a]) + slack[a] * np.abs(table[b])
        else:
            value = table[a] / table[b]
            moved = (slack[a] + slack[b] * np.abs(value)) / np.abs(table[b])
        usable = np.isfinite(value)
        if usable.sum() < FIRST_ROWS / 2:
            return []
        apart = np.abs(table - value)[:, usable]
        near = self.own[:, None] + (moved + EXACT * np.abs(value))[usable]
        unknown = np.isnan(apart)
        agree = ((apart <= near) | unknown).all(1) & ((~unknown).sum(1) >= FIRST_ROWS / 4)
        largest = np.where(unknown, 0.0, apart).max(1)
        exact = largest <= EXACT * np.abs(value[usable]).max()
        coarse = np.where(exact, 0.0, np.median(near, axis=1) / self.spread)
        return [(k, float(coarse[k])) for k in np.flatnonzero(agree & (coarse <= COARSE)).tolist()]
