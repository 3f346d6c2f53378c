"""Linear regressions from noisy sums of products: coefficients with intervals, and their words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from synthdp.data.domain import Domain
from synthdp.inference.figures import Figure, Floats, Interval, Quadratic, Rows, ratio_interval
from synthdp.inference.least_squares import SETTINGS
from synthdp.inference.words import POPULATION, clamped, counted, listed
from synthdp.model.estimands import SETTINGS as ESTIMANDS
from synthdp.model.estimands import Design
from synthdp.privacy.mechanisms.sums import NUMBER, NoisyProducts, Part
from synthdp.spec.model import RegressionEstimand, ReleaseSpec

SPREAD = (
    "the sampling is right where the outcome spreads about the line by the same everywhere; where"
    " it spreads more in a rare group, the interval of that group's coefficient is too narrow"
)
TWO_VALUED = (
    "of two categories the spread is the most that their shares allow in each group: the interval"
    " is right if the line is, and may be wider than it need be"
)


def regression_figures(design: Design, noisy: NoisyProducts, rows: Rows) -> tuple[Figure, ...]:
    """One figure for each coefficient; those are refused whose own direction noise leaves unsure.

    Estimates are those of the steadied moment matrix; whether one is sure is asked of the noisy
    one, in which noise alone would leave nothing. The spread about the line is that about the line
    of the directions that noise leaves sure, which is no less.
    """
    moments, size = design.moments(noisy.sums), len(design.names)
    gram, count = moments[:-1, :-1], float(moments[0, 0])
    about = max(0.0, count) / (1 - rows.holdout)
    why = "too few rows, or a term that hardly differs from others, for this noise"
    if count < SETTINGS.fewest + size:
        return tuple(Figure(name, about, refused=why) for name in design.names)
    values, axes = np.linalg.eigh(gram)
    seen = values > max(ESTIMANDS.least * noisy.sigma * math.sqrt(size), 1e-12 * float(values[-1]))
    line = axes[:, seen] @ (axes[:, seen].T @ moments[:-1, -1] / values[seen])
    residual = np.append(-line, 1.0)
    squares = max(float(residual @ moments @ residual), 0.0) / (count - size)
    groups = shares_of(design, moments, noisy.sigma) if design.two_valued else None
    steady = design.steadied(gram, noisy.sigma)
    theta = np.linalg.pinv(steady, hermitian=True) @ moments[:-1, -1]
    found = []
    each = zip(design.functions, design.names, design.directions(steady), strict=True)
    for function, name, (c, w, d) in each:
        both = of_rows = None
        if d and design.sure(w, float(w @ gram @ w), noisy.sigma):
            sampling = squares * d if groups is None else min(d, two_valued(design, groups, w))
            both, of_rows = (
                _interval(design, noisy.sigma, w, d, theta, float(c @ theta), variance)
                for variance in (rows.per_unit * sampling, 0.0)
            )
        if both is None or of_rows is None:
            found.append(Figure(name, about, refused=why))
            continue
        shift = design.outcome.middle if function == () else 0.0
        scaled = Figure(name, about, float(c @ theta), both, of_rows)
        found.append(scaled.in_unit(design.outcome.half, shift))
    return tuple(found)


@dataclass(frozen=True)
class Group:
    """Rows with one level of a category (all rows: None), and the most that their outcome, of two
    values, spreads about its mean: the sum of its variances.
    """

    level: Part | None
    spread: float


def shares_of(design: Design, moments: Floats, sigma: float) -> list[list[Group]]:
    """All rows as one group, and for each category the groups of its levels.

    n rows whose outcome in {-1, 1} has the sum s have variances of n (1 - m^2) at most in sum, with
    m = s / n, whatever each row's probability is (Jensen). Of noisy n and s the least extreme
    within `caution` deviations is taken.
    """

    def group(level: Part | None, n: float, s: float, sd: float) -> Group:
        most = max(n + SETTINGS.caution * sd, 0.0)
        least = max(abs(s) - SETTINGS.caution * sd, 0.0)
        return Group(level, most - least**2 / most if 0 < least < most else most)

    n, s = float(moments[0, 0]), float(moments[0, -1])
    found = [[group(None, n, s, sigma)]]
    alone = {f[0]: i for i, f in enumerate(design.functions) if len(f) == 1 and f[0][1] != NUMBER}
    for name in dict.fromkeys(name for name, _ in alone):
        places = {part: i for part, i in alone.items() if part[0] == name}
        rows, sums = moments[[*places.values()], 0], moments[[*places.values()], -1]
        wide = sigma * math.sqrt(1 + len(places))  # of the first level, which is what others leave
        first = group((name, 0), n - float(rows.sum()), s - float(sums.sum()), wide)
        others = zip(places, rows.tolist(), sums.tolist(), strict=True)
        found.append([first, *(group(part, k, t, sigma) for part, k, t in others)])
    return found


def two_valued(design: Design, groupings: list[list[Group]], w: Floats) -> float:
    """A bound of the sum of (w' x)^2 times the variance of an outcome of two values.

    In a group it is at most the square of the largest |w' x| there times the group's spread.
    """
    return min(
        sum(reach(design, w, group.level) ** 2 * group.spread for group in groups)
        for groups in groupings
    )


def reach(design: Design, w: Floats, given: Part | None) -> float:
    """A bound of |w' x| over rows (of one level): of a term's functions a row has one at most."""
    low, high = 0.0, 0.0
    terms: dict[frozenset[str], list[tuple[float, float]]] = {}
    for function, weight in zip(design.functions, w.tolist(), strict=True):
        levels = {part for part in function if part[1] != NUMBER}
        if given and any(name == given[0] for name, _ in levels) and given not in levels:
            continue
        if len(levels) < len(function):
            ends = (-abs(weight), abs(weight))
        elif levels <= {given}:  # each of these rows has it
            low, high = low + weight, high + weight
            continue
        else:
            ends = (weight, weight)
        terms.setdefault(frozenset(name for name, _ in function), []).append(ends)
    for ways in terms.values():
        low += min(0.0, *(least for least, _ in ways))
        high += max(0.0, *(most for _, most in ways))
    return max(abs(low), abs(high))


def _interval(
    design: Design,
    sigma: float,
    w: Floats,
    d: float,
    theta: Floats,
    t: float,
    sampling: float,
) -> Interval | None:
    """The interval of c' theta: all t with (w' (s - S theta_t))^2 <= z^2 variance(t).

    theta_t solves the equations but for the direction w, under c' theta_t = t. `sampling` is the
    part of the variance that is the sample's.
    """
    of_start = design.by_product(w, np.append(t * w - theta, 1.0))
    of_t = design.by_product(w, np.append(w, 0.0))
    nn, nd, dd = (sigma**2 * float(a @ b) for a, b in (
        (of_start, of_start), (of_start, of_t), (of_t, of_t)
    ))  # fmt: skip
    return ratio_interval(d * t, d, Quadratic(nn + sampling, nd, dd))


def about_regression(
    spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand, design: Design
) -> Iterator[str]:
    """What the coefficients are of, in sentences."""
    columns = dict.fromkeys(n for f in design.functions for n, _ in f)
    yield "measured: sums of products that this release paid for; least squares"
    for name in columns:
        if not domain[name].ranged:
            yield f"{name}: its levels are compared with {domain[name].labels[0]}"
    lacking = [n for n in (*columns, estimand.outcome) if spec.columns[n].missing]
    if lacking:
        yield f"rows that lack {listed(lacking)} are left out"
    yield f"{POPULATION}; {TWO_VALUED if design.two_valued else SPREAD}"
    yield from counted(spec, [n for n in columns if not domain[n].ranged])
    yield from map(clamped, (*design.numbers, design.outcome))
