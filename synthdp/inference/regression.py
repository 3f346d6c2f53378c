"""Coefficients of a linear regression, from noisy sums of products.

[`docs/inference.md` has the derivations.]
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.inference.figures import Figure, Rows
from synthdp.inference.intervals import FEWEST, Interval, Quadratic, ratio_interval
from synthdp.inference.words import counted, listed
from synthdp.model.regression import Design, weak
from synthdp.privacy.mechanisms.product_sums import NoisyProducts
from synthdp.spec.model import RegressionEstimand, ReleaseSpec

Floats = npt.NDArray[np.float64]

SPREAD = (
    "the sampling is right where the outcome spreads about the line by the same everywhere; where"
    " it spreads more in a rare group, the interval of that group's coefficient is too narrow"
)
TWO_VALUED = (
    "of two categories the spread is taken to be the largest possible, so that the interval is"
    " wider than it need be where one of them is rare"
)


def regression_figures(design: Design, noisy: NoisyProducts, rows: Rows) -> tuple[Figure, ...]:
    """One figure for each coefficient; all are refused where noise leaves no sure inverse."""
    moments, size = design.moments(noisy.sums), len(design.names)
    gram, count = moments[:-1, :-1], float(moments[0, 0])
    about = max(0.0, count) / (1 - rows.holdout)
    if count < FEWEST + size or weak(gram, noisy.sigma):
        why = "too few rows, or terms that hardly differ from each other, for this noise"
        return tuple(Figure(name, about, refused=why) for name in design.names)
    theta = _solved(gram, moments[:-1, -1])
    residual = np.append(-theta, 1.0)
    squares = max(float(residual @ moments @ residual), 0.0) / (count - size)
    if design.two_valued:
        squares = 1.0  # the most that a number in [-1, 1] varies, whatever the terms say
    found = []
    rows_of_raw = zip(design.functions, design.names, np.linalg.inv(design.raw.T), strict=True)
    for function, name, c in rows_of_raw:
        ends = [
            _interval(design, noisy.sigma, gram, theta, c, spread)
            for spread in (rows.per_unit * squares, 0.0)
        ]
        shift = design.outcome.middle if function == () else 0.0
        found.append(_figure(name, about, float(c @ theta), ends, design.outcome.half, shift))
    return tuple(found)


def _figure(
    name: str,
    about: float,
    estimate: float,
    intervals: list[Interval | None],
    half: float,
    shift: float,
) -> Figure:
    """A coefficient in the outcome's own unit, with both its intervals."""
    both, of_rows = intervals
    if both is None or of_rows is None:
        return Figure(name, about, refused="the noise leaves no interval")

    def unscaled(ends: Interval) -> Interval:
        return half * ends[0] + shift, half * ends[1] + shift

    return Figure(name, about, half * estimate + shift, unscaled(both), unscaled(of_rows))


def _interval(
    design: Design, sigma: float, gram: Floats, theta: Floats, c: Floats, spread: float
) -> Interval | None:
    """The interval of c' theta: all t with (w' (s - S theta_t))^2 <= z^2 variance(t).

    theta_t solves the equations but for the direction w, under c' theta_t = t. `spread` is the
    variance of a row's residual, in the scaled outcome's unit.
    """
    direction = _solved(gram, c)
    d = 1.0 / float(c @ direction)
    w, t = d * direction, float(c @ theta)
    of_start = _by_product(design, w, np.append(t * w - theta, 1.0))
    of_t = _by_product(design, w, np.append(w, 0.0))
    nn, nd, dd = (sigma**2 * float(a @ b) for a, b in (
        (of_start, of_start), (of_start, of_t), (of_t, of_t)
    ))  # fmt: skip
    return ratio_interval(d * t, d, Quadratic(nn + spread * d, nd, dd))


def _solved(gram: Floats, right: Floats) -> Floats:
    return np.linalg.solve(gram, right).astype(np.float64)


def _by_product(design: Design, w: Floats, beta: Floats) -> Floats:
    """How often each product is in w' M beta, M the moments: `[products]`."""
    places = design.places[:-1]
    there, pairs = places >= 0, np.outer(w, beta)
    summed = np.bincount(places[there], weights=pairs[there], minlength=len(design.products))
    return summed.astype(np.float64)


def about_regression(
    spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand, design: Design
) -> Iterator[str]:
    """What the coefficients are of, in sentences."""
    bounds = (*design.numbers, design.outcome)
    columns = dict.fromkeys(n for f in design.functions for n, _ in f)
    yield "measured: sums of products that this release paid for; least squares"
    for name in columns:
        if not domain[name].ranged:
            yield f"{name}: its levels are compared with {domain[name].labels[0]}"
    lacking = [n for n in (*columns, estimand.outcome) if spec.columns[n].missing]
    if lacking:
        yield f"rows that lack {listed(lacking)} are left out"
    yield (
        "the interval is of the population that the rows are a sample of: it has the sampling and"
        f" the noise; {TWO_VALUED if design.two_valued else SPREAD}"
    )
    yield from counted(spec, [n for n in columns if not domain[n].ranged])
    for number in bounds:
        yield (
            f"{number.column} of {number.lower:g} to {number.upper:g}: what lies beyond counts as"
            " the nearer end"
        )
