"""Figures of the steward's report, as inline SVG that follows the page's colours, light or dark.

Matplotlib draws with stand-in colours that become CSS variables; text stays text. No pyplot, no
global state
but a temporary rc context. Names and categories are data: they are never parsed as mathematics or
markup.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = npt.NDArray[np.float64]

# Stand-ins that no colour map gives, and what each becomes in the page.
TEXT, MUTED, LINE, REAL, SYNTHETIC, BOUND = (
    "#010101",
    "#010102",
    "#010103",
    "#010104",
    "#010105",
    "#010106",
)
_CSS = {
    TEXT: "currentColor",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    REAL: "var(--real)",
    SYNTHETIC: "var(--synthetic)",
    BOUND: "var(--bound)",
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}

MAX_CATEGORIES = 16
MAX_TICKS = 60


def short(text: str, most: int = 26) -> str:
    """A name for an axis: control characters shown as such, cut to `most` characters."""
    clean = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c
        for c in text
    )
    return clean if len(clean) <= most else clean[: most - 1] + "…"


@contextmanager
def _drawing() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Fonts here only measure; the reader's browser has the glyphs that ours may lack.
        warnings.simplefilter("ignore")
        yield


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure: Figure, name: str, alt: str) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda tag: _tag(tag.group(), name), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(alt, quote=True)}"', 1)


def _tag(tag: str, name: str) -> str:
    """One tag made fit for a page of many figures: its own ids, the page's colours, no
    namespaces.
    """
    tag = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag)
    tag = re.sub(r'\sid="([^"]*)"', rf' id="{name}-\1"', tag)
    tag = re.sub(r"url\(#", f"url(#{name}-", tag)
    tag = re.sub(r'href="#', f'href="#{name}-', tag)
    tag = tag.replace("'DejaVu Sans'", "system-ui, sans-serif")
    for stand_in, css in _CSS.items():
        tag = tag.replace(stand_in, css)
    return tag


def overlay(
    labels: Sequence[str],
    real: FloatArray,
    synthetic: FloatArray,
    *,
    ordered: bool,
    name: str,
    alt: str,
) -> str:
    """Shares of one column's levels, real beside synthetic, shape `[levels]` each.

    Bars for a few categories (the largest real shares first), steps for an ordered or long list of
    levels.
    """
    with _drawing():
        if ordered and len(labels) > 6:
            figure = _steps(labels, real, synthetic)
        else:
            figure = _bars(labels, real, synthetic, ordered)
        return _svg(figure, name, alt)


def _bars(labels: Sequence[str], real: FloatArray, synthetic: FloatArray, ordered: bool) -> Figure:
    order = np.arange(len(labels)) if ordered else np.argsort(-real, kind="stable")
    shown, rest = order[:MAX_CATEGORIES], order[MAX_CATEGORIES:]
    names = [short(labels[i], 22) for i in shown]
    a, b = real[shown], synthetic[shown]
    if len(rest):
        names.append(f"{len(rest)} others")
        a, b = np.append(a, real[rest].sum()), np.append(b, synthetic[rest].sum())
    figure, axes = _axes(3.9, 0.75 + 0.26 * len(names))
    y = np.arange(len(names))
    axes.barh(y - 0.19, a, height=0.36, color=REAL, label="real")
    axes.barh(y + 0.19, b, height=0.36, color=SYNTHETIC, label="synthetic")
    axes.set_yticks(y, names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("share of rows")
    _percent(axes.xaxis)
    return figure


def _steps(labels: Sequence[str], real: FloatArray, synthetic: FloatArray) -> Figure:
    figure, axes = _axes(3.9, 2.3)
    edges = np.arange(len(labels) + 1) - 0.5
    axes.stairs(real, edges, fill=True, color=REAL, alpha=0.55, label="real")
    axes.stairs(synthetic, edges, color=SYNTHETIC, linewidth=1.8, label="synthetic")
    ends = [0, len(labels) - 1]
    middle = (len(labels) - 1) // 2
    ticks = sorted({*ends, middle}) if max(len(labels[i]) for i in (*ends, middle)) <= 11 else ends
    axes.set_xticks(ticks, [short(labels[i], 20) for i in ticks])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    axes.set_ylabel("share of rows")
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
    """Heat map of synthetic minus real association, shape `[columns, columns]`; orange is lost,
    purple is invented.
    """
    size = len(columns)
    shown = size <= MAX_TICKS
    with _drawing():
        side = min(9.0, 2.4 + 0.32 * size) if shown else 7.0
        figure, axes = _axes(side + 1.0, side)
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
        return _svg(figure, name, alt)


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
    """One line per (name, real, synthetic, low, high): the score of learning on real and on
    synthetic rows.

    `low` and `high` bound the difference real - synthetic; the whisker shows where the synthetic
    score would lie for each, the real score held fixed.
    """
    with _drawing():
        figure, axes = _axes(7.6, 0.9 + 0.32 * len(rows))
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
        return _svg(figure, name, alt)


def attack_roc(
    points: Sequence[tuple[float, float]],
    *,
    epsilon: float | None,
    delta: float | None,
    name: str,
    alt: str,
) -> str:
    """ROC of a membership attack, points (FPR, TPR), on log axes, with chance and what (epsilon,
    delta) allows.
    """
    curve = np.asarray(sorted(points), dtype=np.float64)
    positive = curve[curve > 0]
    low = max(1e-3, min(0.05, float(positive.min()) / 1.5 if len(positive) else 0.05))
    grid = np.geomspace(low, 1.0, 300)
    with _drawing():
        figure, axes = _axes(5.2, 4.4)
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
        return _svg(figure, name, alt)


def _decades(axis: Any, low: float) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    # Plain decimals; the usual 10^-2 would be typeset mathematics.
    ticks = [t for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if t >= low]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def roc_bound(false_positive_rate: FloatArray, *, epsilon: float, delta: float) -> FloatArray:
    """Largest TPR at each FPR under (epsilon, delta)-DP, by both sides of its definition [derived
    here; see also Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy"
    (2015), Theorem 2.1].

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


def budget_waterfall(
    steps: Sequence[tuple[str, float]], *, budget: float, name: str, alt: str
) -> str:
    """Floating bars: how far each (label, epsilon) carries the composed epsilon, up to `budget`."""
    ends = np.cumsum([0.0, *(epsilon for _, epsilon in steps)])
    rest = max(0.0, budget - float(ends[-1]))
    with _drawing():
        names = [short(label, 34) for label, _ in steps] + ["not planned"]
        figure, axes = _axes(7.6, 0.8 + 0.34 * len(names))
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
        return _svg(figure, name, alt)


def _beside(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5
    )
