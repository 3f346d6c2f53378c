"""Examples of the mechanisms that add up what estimands are made of, for any domain."""

from __future__ import annotations

from typing import Any

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.model.regression import Design
from synthdp.privacy.mechanisms.product_sums import NUMBER, Product, ProductSums
from synthdp.privacy.mechanisms.stratum_sums import Arm, Bounded, StratumSums
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.truth import Values

MAX_LEVELS = 4  # of a column whose indicators are multiplied


def stratum_sums(domain: Domain) -> tuple[StratumSums, ...]:
    """Counts, and sums of a number on its range and cut to a quarter of it."""
    last, by = domain.names[-1], tuple(c.name for c in domain.columns if c.levels <= 4)[:2]
    arms = tuple(Arm(((upper_half(domain, last), flag),)) for flag in (True, False))
    counts = StratumSums(domain, arms, by, None, 0.8)
    found = [counts]
    for column in (domain.columns[0], *[c for c in domain.columns if c.ranged][:1]):
        low, high = number_ends(column)
        whole, part = (Bounded(column.name, low, end) for end in (high, (3 * low + high) / 4))
        found += [
            StratumSums(domain, arms, by, whole, 0.8),
            StratumSums(domain, (Arm(),), (), whole, 3.0),
            StratumSums(domain, arms[:1], by[:1], part, 20.0),
        ]
    return tuple(found)


def upper_half(domain: Domain, name: str) -> Expression:
    """The condition that a column is in the upper half of its range, or of its categories."""
    middle = sum(number_ends(domain[name])) / 2

    def truth(values: Values) -> tuple[Any, Any]:
        return values[name] > middle, values[name] <= middle

    return Expression(f"{name} > {middle:g}", (name,), truth)


def number_ends(column: ColumnDomain) -> tuple[float, float]:
    """The least and largest number of a column as expressions read it; categories by position."""
    if not column.ranged:
        return 0.0, float(max(1, column.levels - 1))
    scale = 1.0 if column.step_seconds is None else column.step_seconds / 86_400
    return column.lower * scale, column.upper * scale


def product_sums(domain: Domain) -> tuple[ProductSums, ...]:
    """Regressions on a category, a number and their product: whole, clipped, and of some rows."""
    complete = sorted(domain.columns, key=lambda c: (c.missing, -c.levels))
    ranged = [c for c in complete if c.ranged][:1]
    category, *numbers = complete
    found = []
    for outcome, number in ((numbers[:1], numbers[1:2]), (ranged, numbers[:1])):
        for part, where, noise in ((1.0, False, 0.8), (0.25, False, 3.0), (1.0, True, 20.0)):
            if outcome and outcome != [category] and outcome != number:
                arm = Arm(((upper_half(domain, category.name), True),) if where else ())
                design = _design(category, number, outcome[0], part)
                found.append(design.mechanism(domain, arm, noise))
    return tuple(found)


def _design(
    category: ColumnDomain, numbers: list[ColumnDomain], outcome: ColumnDomain, part: float
) -> Design:
    """The levels of a category, at most one number, and their products."""
    levels = range(1, min(MAX_LEVELS, category.levels - category.missing))
    alone = [(category.name, level) for level in levels]
    scaled = [(number.name, NUMBER) for number in numbers]
    both = [tuple(sorted((a, b))) for a in alone for b in scaled]
    functions: tuple[Product, ...] = ((), *((f,) for f in (*alone, *scaled)), *both)
    names = tuple(map(str, range(len(functions))))
    bounds = tuple(_bounded(number, part) for number in numbers)
    return Design(names, functions, _bounded(outcome, part), bounds)


def _bounded(column: ColumnDomain, part: float) -> Bounded:
    """The column's numbers, or a part of their range."""
    low, high = number_ends(column)
    return Bounded(column.name, low, low + part * (high - low))
