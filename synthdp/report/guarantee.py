"""The guarantee on both reports: where the budget goes, and what attacks on one unit can reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from synthdp.drawing import guarantee as draw
from synthdp.privacy.calibration import mu_of
from synthdp.report.parts import Picture, number

Points = Sequence[tuple[float, float]]

BUDGET_TITLE = "Budget: what each look at the rows took"
ROC_TITLE = "What an attack on one unit can reach"


def shares(alone: Sequence[float], *, delta: float) -> list[float]:
    """The part of each look in the cost of all, from its epsilon `alone` at `delta`; they add to 1.

    Epsilons do not add up, and what one adds to others depends on the order. Here each look counts
    by mu squared of the Gaussian mechanism that costs as much alone, since these add up under
    composition, in any order: J. Dong, A. Roth and W. J. Su, "Gaussian Differential Privacy",
    arXiv:1905.02383v3, Corollary 3.3. For looks that are no Gaussian mechanism it is a convention.

    >>> [round(share, 2) for share in shares([0.5, 0.5, 0.0], delta=1e-5)]
    [0.5, 0.5, 0.0]
    """
    squares = [mu_of(epsilon, delta) ** 2 if epsilon > 0 else 0.0 for epsilon in alone]
    total = math.fsum(squares) or 1.0
    return [square / total for square in squares]


def budget_left(took: float, spent: float, cap: float | None) -> str:
    """What is left of a table's budget, where a release took `took` of the `spent` epsilon.

    >>> budget_left(1, 2, 3)
    'epsilon 1 of 3 is left: this release took 1, all so far took 2'
    >>> budget_left(1, 1, None)
    'no cap: this release took epsilon 1, all so far took 1, and more may be taken'
    """
    if cap is None:
        return (
            f"no cap: this release took epsilon {took:.4g}, all so far took {spent:.4g}, and more"
            " may be taken"
        )
    left = max(cap - spent, 0.0)
    return (
        f"epsilon {left:.4g} of {cap:.4g} is left: this release took {took:.4g}, all so far took"
        f" {spent:.4g}"
    )


def budget_picture(
    looks: Sequence[tuple[str, float]], *, total: float, budget: float, delta: float, more: str = ""
) -> Picture:
    """The bar of the budget. `looks` are (name, epsilon alone); all together cost `total`.

    `more` ends the sentence.
    """
    parts = shares([epsilon for _, epsilon in looks], delta=delta)
    sentence = (
        f"Everything together guarantees epsilon {number(total)} of the {budget:g} that"
        f" {'were' if budget != 1 else 'was'} allowed, at delta {delta:g}."
    )
    if looks:
        (name, _), part = max(zip(looks, parts, strict=True), key=lambda both: both[1])
        of_budget = part * total / max(budget, total)
        sentence += f" The largest part, {of_budget:.0%} of the budget, is {name}."
    if more:
        sentence += f" {more}"
    sentence += (
        " A part is what a look alone would cost, as the squared mu of a Gaussian mechanism: these"
        " add up in any order, and epsilons do not."
    )
    named = [(name, round(p * total, 6)) for (name, _), p in zip(looks, parts, strict=True)]
    svg = draw.budget_bar(named, budget=budget, alt=f"Parts of the budget. {sentence}")
    return Picture(BUDGET_TITLE, Markup(svg), sentence)


def roc_points(profile: Points) -> list[tuple[float, float]]:
    """The bound on (FPR, TPR) that the whole profile of (epsilon, delta) gives.

    It is evaluated on a grid of false-positive rates. Each (epsilon, delta) bounds TPR by both
    sides of its definition, e^epsilon FPR + delta and 1 - e^-epsilon (1 - delta - FPR). Source:
    Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), Theorem
    2.1.
    """
    rates = np.geomspace(1e-3, 1.0, 61)
    bound = roc_bound(profile, rates)
    return list(zip(rates.tolist(), bound, strict=True))


def roc_bound(profile: Points, rates: Sequence[float] | np.ndarray) -> list[float]:
    """The most that the true-positive rate can be at each false-positive rate."""
    epsilon = np.asarray([point[0] for point in profile], dtype=np.float64)[:, None]
    delta = np.asarray([point[1] for point in profile], dtype=np.float64)[:, None]
    at = np.asarray(rates, dtype=np.float64)
    above = np.minimum(np.exp(epsilon) * at + delta, 1 - np.exp(-epsilon) * (1 - delta - at))
    bounds: list[float] = np.clip(above.min(axis=0), 0.0, 1.0).tolist()
    return bounds


def roc_picture(profile: Points, *, curve: Points = (), more: str = "") -> Picture:
    """The bound of the guarantee, with the curve of an attack where there is one."""
    points = roc_points(profile)
    at_one_percent = next(tpr for fpr, tpr in points if fpr >= 0.01)
    sentence = (
        "Whoever knows all other rows, and wrongly accuses 1% of outsiders of being in the table,"
        f" finds at most {at_one_percent:.1%} of those who are in it, by whatever attack."
    )
    if more:
        sentence += f" {more}"
    svg = draw.roc(points, curve=curve, alt=sentence)
    return Picture(ROC_TITLE, Markup(svg), sentence)


def crosses(curve: Points, profile: Points) -> bool:
    """Whether any point (FPR, TPR) of a curve lies above what the profile allows."""
    bounds = roc_bound(profile, [fpr for fpr, _ in curve])
    return any(tpr > bound + 1e-12 for (_, tpr), bound in zip(curve, bounds, strict=True))


def most_advantage(profile: Points) -> float:
    """The most that TPR - FPR can be of one who knows all other rows, from the profile.

    (epsilon, delta) bounds it by 1 - 2 (1 - delta) / (1 + e^epsilon): Kairouz, Oh and Viswanath
    (2015), Theorem 2.1, where the two sides of the region meet.

    >>> round(most_advantage([(0.0, 0.1), (1.0, 1e-5)]), 3)
    0.1
    """
    return min(1 - 2 * (1 - delta) / (1 + math.exp(epsilon)) for epsilon, delta in profile)
