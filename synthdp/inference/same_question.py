"""Whether two questions ask the same, so that one that was paid for answers the other."""

from __future__ import annotations

import math

import numpy as np

from synthdp.data.domain import Domain
from synthdp.inference.cells import MAX_POINTS, level_points
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.query import Query


def ask_the_same(one: Query, other: Query, domain: Domain) -> bool:
    """Whether two questions have one answer, whatever rows of `domain` there are.

    Their conditions may be written differently: of whole numbers, `age >= 50` is `age > 49`.
    Conditions that read too many columns to try all of their values must have the same words.
    """
    if one.asks_like(other):
        return True
    asked = [(q.statistic, q.column, q.p, q.by) for q in (one, other)]
    constants = [*one.constants, *other.constants]
    return asked[0] == asked[1] and all(
        _alike(a, b, domain, constants)
        for a, b in ((one.condition, other.condition), (one.where, other.where))
    )


def _alike(
    one: Expression | None, other: Expression | None, domain: Domain, constants: list[float]
) -> bool:
    """Whether two conditions are true of the same values, and false of the same.

    Both change nowhere but at a constant, so that they are tried there, beside it, and at the ends
    of levels.
    """
    if one is None or other is None:
        return one is other
    names = sorted({*one.columns, *other.columns})
    grids = [level_points(domain[name], constants)[0] for name in names]
    if math.prod(map(len, grids)) > MAX_POINTS:
        return False
    values = dict(zip(names, np.meshgrid(*grids, indexing="ij", sparse=True), strict=True))
    with np.errstate(invalid="ignore"):
        truths = [np.broadcast_arrays(*values.values(), *e.truth(values)) for e in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(truths[0][-2:], truths[1][-2:], strict=True))
