"""The ROC curve of a membership attack, and the bound that (epsilon, delta) puts on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synthdp.drawing.mpl_canvas import (
    BOUND,
    LINE,
    MUTED,
    SYNTHETIC,
    FloatArray,
    as_svg,
    drawing,
    new_axes,
)


def attack_roc(
    points: Sequence[tuple[float, float]],
    *,
    epsilon: float | None,
    delta: float | None,
    name: str,
    alt: str,
) -> str:
    """ROC of a membership attack, points (FPR, TPR), on log axes.

    It shows guessing, and what (epsilon, delta) allows.
    """
    curve = np.asarray(sorted(points), dtype=np.float64)
    positive = curve[curve > 0]
    low = max(1e-3, min(0.05, float(positive.min()) / 1.5 if len(positive) else 0.05))
    grid = np.geomspace(low, 1.0, 300)
    with drawing():
        figure, axes = new_axes(5.2, 4.4)
        axes.plot(grid, grid, color=MUTED, linewidth=1, linestyle=(0, (2, 3)), label="guessing")
        if epsilon is not None:
            allowed = roc_bound(grid, epsilon=epsilon, delta=delta or 0.0)
            axes.plot(
                grid,
                allowed,
                color=BOUND,
                linewidth=1.8,
                linestyle="--",
                label="most that the claim allows",
            )
            axes.fill_between(grid, allowed, 1.0, color=BOUND, alpha=0.10, linewidth=0)
        axes.step(
            np.maximum(curve[:, 0], low),
            np.maximum(curve[:, 1], low),
            where="post",
            color=SYNTHETIC,
            linewidth=2,
            label="attack",
        )
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(low, 1),
            ylim=(low, 1.05),
            xlabel="false positive rate",
            ylabel="true positive rate",
        )
        for axis in (axes.xaxis, axes.yaxis):
            _decades(axis, low)
        axes.grid(color=LINE, linewidth=0.5)
        axes.legend(loc="lower right")
        return as_svg(figure, name, alt)


def _decades(axis: Any, low: float) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    # Plain decimals; the usual 10^-2 would be typeset mathematics.
    ticks = [t for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if t >= low]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def roc_bound(false_positive_rate: FloatArray, *, epsilon: float, delta: float) -> FloatArray:
    """Largest TPR at each FPR under (epsilon, delta)-DP, by both sides of its definition.

    [derived here; see also Kairouz, Oh and Viswanath, "The Composition Theorem for Differential
    Privacy" (2015), Theorem 2.1.]

    The guess "in" gives TPR <= e^epsilon FPR + delta, the guess "out" 1 - FPR <= e^epsilon (1 -
    TPR) + delta.
    """
    upper = np.exp(epsilon) * false_positive_rate + delta
    other = 1 - np.exp(-epsilon) * (1 - delta - false_positive_rate)
    bound: FloatArray = np.clip(np.minimum(upper, other), 0.0, 1.0)
    return bound


def crosses_bound(points: Sequence[tuple[float, float]], *, epsilon: float, delta: float) -> bool:
    """Whether any point (FPR, TPR) lies above what (epsilon, delta) allows."""
    curve = np.asarray(points, dtype=np.float64)
    return bool((curve[:, 1] > roc_bound(curve[:, 0], epsilon=epsilon, delta=delta) + 1e-12).any())
