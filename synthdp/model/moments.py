"""Sums of every number, which a release measures beside its tables: their means have intervals that
narrow with rows and epsilon.

A table tells of a number no more than its level. Each number of a row, taken to [-1, 1] by its
declared bounds, is added up over all rows, with its square, and over the rows of each level of the
columns for which noise leaves something of the means. All of it is one look.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from synthdp.data.domain import Domain
from synthdp.privacy.calibration import expected_fit_rows, share_mu
from synthdp.privacy.mechanisms.sums import (
    MAX_PRODUCTS,
    NUMBER,
    Arm,
    Bounded,
    Product,
    ProductSums,
)
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.evaluation import number_bounds
from synthdp.spec.model.rules import summed_numbers

MOST = 0.1
"""Half ranges by which noise may move the mean of an average group, at 95%: wider, the levels of a
number tell as much."""


def moments_round(spec: ReleaseSpec, domain: Domain) -> Callable[[float], ProductSums] | None:
    """How the moments are measured, if the spec has them measured."""
    if not spec.privacy.shares.moments:
        return None
    return lambda mu: moment_sums(spec, domain, noise=1 / mu)


def moment_sums(spec: ReleaseSpec, domain: Domain, *, noise: float = 1.0) -> ProductSums:
    """The sums; `noise` is in multiples of what one row can move."""
    columns = {name: number_bounds(spec.columns[name]) for name in summed_numbers(spec)}
    numbers = tuple(Bounded(name, *ends) for name, ends in columns.items())
    alone: list[Product] = [((n, NUMBER),) * k for n in columns for k in (1, 2)]
    by_level: list[Product] = [
        tuple(sorted([(n, NUMBER), (name, level)]))
        for name in _groups(spec, domain, len(numbers))
        for n in columns
        for level in range(domain[name].levels)
    ]
    return ProductSums(domain, Arm(), numbers, (*alone, *by_level), noise, apart=True)


def _groups(spec: ReleaseSpec, domain: Domain, numbers: int) -> list[str]:
    """The columns by whose levels numbers are added up: targets first, then those of few levels.

    Each makes the noise of all others larger: none is taken that would hide the mean of an average
    group of any.
    """
    unit = spec.dataset.privacy_unit.max_rows / share_mu(spec, spec.privacy.shares.moments)
    rows, products = expected_fit_rows(spec), 2 * numbers
    targets = {*spec.synthesizer.targets, *spec.evaluation.targets}
    chosen, most = list[str](), 1
    for column in sorted(domain.columns, key=lambda c: (c.name not in targets, c.levels)):
        noise = unit * math.sqrt((3 + len(chosen)) * numbers)
        levels = max(most, column.levels)
        within = 2 * noise * levels <= MOST * rows and products + numbers * column.levels <= (
            MAX_PRODUCTS
        )
        if not column.ranged and within:
            chosen.append(column.name)
            most, products = levels, products + numbers * column.levels
    return chosen
