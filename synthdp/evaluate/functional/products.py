"""Numbers that are the product or the quotient of two others."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import numpy as np

from synthdp.evaluate.functional.claims import DerivedClaim, named
from synthdp.evaluate.functional.linear import COARSE, EXACT
from synthdp.evaluate.functional.values import Floats, Values, rounding, written_rounding
from synthdp.spec.model import Column

FIRST_ROWS = 64
"""Rows on which all pairs are tried; what fits them is tried on all rows."""
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
    rows = known[:FIRST_ROWS] if len(known) >= FIRST_ROWS else np.arange(len(values[names[0]]))
    table = np.stack([values[n][rows] for n in names])  # `[columns, rows]`
    slack = np.array([rounding(columns[n]) for n in names])
    own = np.array([written_rounding(columns[n]) for n in names])
    claims, seen = list[DerivedClaim](), set(related)
    for i, j in itertools.combinations(range(len(names)), 2):
        for a, b, sign in ((i, j, "*"), (i, j, "/"), (j, i, "/")):
            for k in _equal(table, slack, own, a, b, sign):
                group = frozenset((names[a], names[b], names[k]))
                if k not in (a, b) and group not in seen:
                    seen.add(group)
                    text = f"{named(names[a])} {sign} {named(names[b])}"
                    ordered = tuple(n for n in columns if n in group)
                    claims.append(DerivedClaim(ordered, ((names[k], text),)))
    return claims


def _equal(table: Floats, slack: Floats, own: Floats, a: int, b: int, sign: str) -> list[int]:
    """Columns that the product or quotient of two equals in all rows in which they are known."""
    with np.errstate(all="ignore"):
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
        near = own[:, None] + (moved + EXACT * np.abs(value))[usable]
        agree = ((apart <= near) | np.isnan(apart)).all(1)
        exact = np.nanmax(apart, axis=1, initial=0.0) <= EXACT * np.abs(value[usable]).max()
        fine = np.median(near, axis=1) <= COARSE * np.nanstd(table, axis=1)
    return np.flatnonzero(agree & (exact | fine)).tolist()
