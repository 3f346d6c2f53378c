"""Figures of the steward's report by Matplotlib: levels, associations, utility and budget."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from synthdp.drawing.mpl_canvas import (
    BOUND,
    LINE,
    REAL,
    SYNTHETIC,
    FloatArray,
    as_svg,
    drawing,
    new_axes,
)
from synthdp.drawing.svg import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CATEGORIES = 16
MAX_TICKS = 60


def overlay(
    labels: Sequence[str],
    real: FloatArray,
    synthetic: FloatArray,
    *,
    ordered: bool,
    name: str,
    alt: str,
    widths: FloatArray | None = None,
) -> str:
    """Shares of one column's levels, real beside synthetic, shape `[levels]` each.

    Bars for a few categories (the largest real shares first), steps for an ordered or long list of
    levels. With `widths` `[levels]` a step is as wide as its level, and its area is its share.
    """
    with drawing():
        if ordered and len(labels) > 6:
            figure = _steps(labels, real, synthetic, widths)
        else:
            figure = _bars(labels, real, synthetic, ordered)
        return as_svg(figure, name, alt)


def _bars(labels: Sequence[str], real: FloatArray, synthetic: FloatArray, ordered: bool) -> Figure:
    order = np.arange(len(labels)) if ordered else np.argsort(-real, kind="stable")
    shown, rest = order[:MAX_CATEGORIES], order[MAX_CATEGORIES:]
    names = [short(labels[i], 22) for i in shown]
    a, b = real[shown], synthetic[shown]
    if len(rest):
        names.append(f"{len(rest)} others")
        a, b = np.append(a, real[rest].sum()), np.append(b, synthetic[rest].sum())
    figure, axes = new_axes(3.9, 0.75 + 0.26 * len(names))
    y = np.arange(len(names))
    axes.barh(y - 0.19, a, height=0.36, color=REAL, label="real")
    axes.barh(y + 0.19, b, height=0.36, color=SYNTHETIC, label="synthetic")
    axes.set_yticks(y, names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("share of rows")
    _percent(axes.xaxis)
    return figure


def _steps(
    labels: Sequence[str], real: FloatArray, synthetic: FloatArray, widths: FloatArray | None
) -> Figure:
    figure, axes = new_axes(3.9, 2.3)
    scale = np.ones(len(labels)) if widths is None else widths
    edges = np.append(0, np.cumsum(scale)) - 0.5
    axes.stairs(real / scale, edges, fill=True, color=REAL, alpha=0.55, label="real")
    axes.stairs(synthetic / scale, edges, color=SYNTHETIC, linewidth=1.8, label="synthetic")
    ends = [0, len(labels) - 1]
    middle = (len(labels) - 1) // 2
    few = widths is None and max(len(labels[i]) for i in (*ends, middle)) <= 11
    ticks = sorted({*ends, middle}) if few else ends
    places = (edges[:-1] + edges[1:]) / 2
    axes.set_xticks(places[ticks], [short(labels[i], 20) for i in ticks])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    axes.set_ylabel("share of rows" if widths is None else "share by width")
    axes.set_ylim(bottom=0)
    _percent(axes.yaxis)
    return figure


def _percent(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(PercentFormatter(1.0, decimals=None))


def association_difference(
    columns: Sequence[str], difference: FloatArray, *, name: str, alt: str
) -> str:
    """Heat map of synthetic minus real association, shape `[columns, columns]`.

    Orange is lost, purple is invented.
    """
    size = len(columns)
    shown = size <= MAX_TICKS
    with drawing():
        side = min(9.0, 2.4 + 0.32 * size) if shown else 7.0
        figure, axes = new_axes(side + 1.0, side)
        limit = max(0.05, float(np.abs(difference).max(initial=0.0)))
        image = axes.imshow(difference, cmap="PuOr", vmin=-limit, vmax=limit, interpolation="none")
        if shown:
            ticks, names = np.arange(size), [short(c, 18) for c in columns]
            axes.set_xticks(ticks, names, rotation=45, ha="right", rotation_mode="anchor")
            axes.set_yticks(ticks, names)
        else:
            axes.set_xticks([])
            axes.set_yticks([])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if size <= 20:
            _cell_values(axes, difference, limit)
        bar = figure.colorbar(image, ax=axes, shrink=0.7, label="synthetic - real (Cramér's V)")
        bar.outline.set_visible(False)
        return as_svg(figure, name, alt)


def _cell_values(axes: Axes, difference: FloatArray, limit: float) -> None:
    for i, j in zip(*np.nonzero(np.abs(difference) >= 0.05), strict=True):
        value = difference[i, j]
        # Text on a cell keeps its own colour in both modes, as the cell does.
        axes.text(
            j,
            i,
            f"{value:+.2f}",
            ha="center",
            va="center",
            fontsize=6.5,
            color="white" if abs(value) > 0.6 * limit else "black",
        )


def utility_dots(
    rows: Sequence[tuple[str, float, float, float | None, float | None]],
    *,
    label: str,
    name: str,
    alt: str,
) -> str:
    """The score of learning on real and on synthetic rows, one line for each name.

    Rows are (name, real, synthetic, low, high).

    `low` and `high` bound the difference real - synthetic; the whisker shows where the synthetic
    score would lie for each, the real score held fixed.
    """
    with drawing():
        figure, axes = new_axes(7.6, 0.9 + 0.32 * len(rows))
        for y, (_, real, synthetic, low, high) in enumerate(rows):
            axes.plot([synthetic, real], [y, y], color=LINE, linewidth=1.2, zorder=1)
            if low is not None and high is not None:
                axes.plot(
                    [real - high, real - low],
                    [y, y],
                    color=SYNTHETIC,
                    linewidth=4,
                    alpha=0.35,
                    solid_capstyle="butt",
                    zorder=2,
                )
        y_all = np.arange(len(rows))
        axes.scatter(
            [r[1] for r in rows],
            y_all,
            s=48,
            facecolors="none",
            edgecolors=REAL,
            linewidths=1.8,
            label="learnt on real rows",
            zorder=3,
        )
        axes.scatter(
            [r[2] for r in rows],
            y_all,
            s=34,
            color=SYNTHETIC,
            label="learnt on synthetic rows (bar: 95% interval of the gap)",
            zorder=4,
        )
        axes.set_yticks(y_all, [short(r[0], 40) for r in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="x", color=LINE, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"{label} on held-out real rows")
        figure.legend(loc="outside upper left", ncols=2)
        return as_svg(figure, name, alt)


def budget_waterfall(
    steps: Sequence[tuple[str, float]], *, budget: float, name: str, alt: str
) -> str:
    """Floating bars: how far each (label, epsilon) carries the composed epsilon, up to `budget`."""
    ends = np.cumsum([0.0, *(epsilon for _, epsilon in steps)])
    rest = max(0.0, budget - float(ends[-1]))
    with drawing():
        names = [short(label, 34) for label, _ in steps] + ["not planned"]
        figure, axes = new_axes(7.6, 0.8 + 0.34 * len(names))
        for y, (start, end) in enumerate(pairwise(ends)):
            axes.barh(y, end - start, left=start, height=0.62, color=SYNTHETIC)
            _beside(axes, end, y, f"{end - start:.3g}")
            axes.plot([end, end], [y, y + 1], color=LINE, linewidth=1)
        axes.barh(len(steps), rest, left=float(ends[-1]), height=0.62, color=LINE)
        _beside(axes, float(ends[-1]) + rest, len(steps), f"{rest:.3g}")
        axes.axvline(budget, color=BOUND, linewidth=1.8, linestyle="--")
        axes.set_yticks(np.arange(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.1 * max(budget, float(ends[-1])))
        axes.set_xlabel("epsilon, composed (dashed: the budget)")
        return as_svg(figure, name, alt)


def _beside(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5
    )
