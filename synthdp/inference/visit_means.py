"""Means over visits by the sums of each person's: their intervals narrow with persons and epsilon.

With S_i the sum of u = (number - middle) / half over the visits of person i, and C_i how many they
are, both as parts of the most visits, a mean over visits is the ratio of sum S_i and sum C_i. Its
sampling variance goes by persons, whatever the visits of one have in common: with R the ratio it is
the sum of (S_i - R C_i)^2, made of the sums of S_i^2, S_i C_i and C_i^2 [derived here; the ratio
estimator of Cochran, "Sampling Techniques", 1977, 6.3 and 9A.1, of clusters of unequal size]. How
many visits there are is told by the table of their numbers, unless some lack the column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.visits import VisitFrame
from synthdp.inference.figures import Figure, Quadratic, Rows, Z, certain, ratio_interval, too_few
from synthdp.inference.least_squares import LeastSquares, measured
from synthdp.inference.moments import Summed
from synthdp.model.visits.planning import person_sums
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import NUMBER, NoisyProducts
from synthdp.spec.expressions.query import Query


def visits_mean(
    query: Query,
    frame: VisitFrame,
    moments: NoisyProducts,
    persons: tuple[Domain, Sequence[NoisyTable]],
    holdout: float,
) -> tuple[Summed, ...] | None:
    """The figure of a mean over all visits; None where the sums do not tell it. `persons` are the
    tables of persons, and their domain.
    """
    own = next((c for c in frame.added[1] if frame.now(c.name) == query.column), None)
    if own is None or query.statistic != "mean" or query.by or query.where or query.weight:
        return None
    s, c = frame.now(own.name), frame.many(own.name if own.missing else "number")
    products = person_sums(frame).products
    sums = dict(zip(products, moments.sums.tolist(), strict=True))

    def of(*names: str) -> float:
        return float(sums[tuple((name, NUMBER) for name in sorted(names))])

    total, squares, both, sigma = of(s), of(s, s), of(s, c), moments.sigma
    if own.missing:
        count, counts, noise = of(c), of(c, c), (sigma**2, sigma**2)
    else:
        domain, tables = persons
        known = measured(tables, domain, (frame.now("number"),), grouped=False)
        part = np.arange(frame.most + 1) / frame.most
        found = LeastSquares(known).functionals(np.stack([part, part**2]))
        count, counts = found.values.tolist()
        noise = float(found.covariance[0, 0]), float(found.covariance[1, 1])
    rows, most = Rows(holdout), frame.most
    about, variance = max(0.0, count * most) / (1 - holdout), noise[0] * most**2
    if not certain(count * most, variance):
        return ((too_few(None, count * most, variance, rows), math.inf),)
    r, of_noise = total / count, Quadratic(sigma**2, 0.0, noise[0])
    # A deviation of the noise is added: it may have taken as much of the spread away.
    spread = max(squares - 2 * r * both + r**2 * counts, 0.0)
    spread += math.sqrt(sigma**2 * (1 + 4 * r**2) + r**4 * noise[1])
    population = ratio_interval(total, count, of_noise.plus(Quadratic(spread, 0.0, 0.0)))
    of_rows = ratio_interval(total, count, of_noise)
    low, high = np.clip((-1.0, 1.0) if population is None else population, -1, 1).tolist()
    inner = None if of_rows is None else tuple(np.clip(of_rows, -1, 1).tolist())
    estimate = r if -1 < r < 1 else None
    half = (own.upper - own.lower) / 2
    figure = Figure(None, about, estimate, (low, high), inner).in_unit(half, own.lower + half)
    return ((figure, 2 * Z * half * math.sqrt(sigma**2 + r**2 * noise[0]) / count),)
