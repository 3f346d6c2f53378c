"""The pictures of the public report, each with the sentence that says what to conclude."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from synthdp.data.domain import Domain
from synthdp.drawing import charts, grids
from synthdp.drawing.svg import short
from synthdp.evaluate.pair_plot import most_connected, pair_plot
from synthdp.report.guarantee import budget_picture
from synthdp.report.measured_vs_synthetic import Column, MeasuredPair
from synthdp.report.parts import VISIBLE_ASSOCIATION, Picture
from synthdp.report.public.content import PublicContent

FloatArray = npt.NDArray[np.float64]


def budget(facts: Mapping[str, Any]) -> Picture:
    """The bar of the budget, from the certificate's facts."""
    looks = [
        (p["purpose"] if p["used"] else f"{p['purpose']} (unused)", float(p["epsilon"]))
        for p in facts["purposes"]
    ]
    return budget_picture(
        looks,
        total=float(facts["epsilon"]),
        budget=float(facts["epsilon_allowed"]),
        delta=float(facts["delta"]),
    )


def overlay_sentence(columns: Sequence[Column]) -> str:
    """Distance of the published columns from their noisy counts."""
    if not columns:
        return (
            "No column was measured by itself, so there are no noisy counts to hold the table"
            " against."
        )
    worst = max(columns, key=lambda c: c.distance)
    mean = np.mean([c.distance for c in columns])
    noise = np.mean([c.by_noise for c in columns])
    head = (
        "The rows were made to fit these counts, so that their distance is no score: on average"
        f" {mean:.2%} of a column's rows would have to move, and noise moved the counts by"
        f" {noise:.2%} on average, or less"
    )
    return f"{head}. The furthest off is {worst.name} ({worst.distance:.2%})."


def overlay(domain: Domain, measured: Column) -> Picture:
    """The noisy and the synthetic frequencies of one column."""
    column = domain[measured.name]
    noisy, synthetic = measured.noisy, measured.synthetic
    level = int(np.abs(noisy - synthetic).argmax())
    where = (
        f"{short(column.labels[level], 40)}: {noisy[level]:.1%} noisy,"
        f" {synthetic[level]:.1%} synthetic"
    )
    sentence = (
        f"{measured.distance:.2%} of rows off the noisy counts (noise alone:"
        f" {measured.by_noise:.2%} on average, or less); most at {where}."
    )
    alt = f"Shares of {measured.name}. {sentence}"
    svg = charts.overlay(
        column.labels,
        noisy,
        synthetic,
        ordered=column.ordered,
        alt=alt,
        widths=column.relative_widths,
    )
    return Picture(measured.name, Markup(svg), sentence)


def association(names: Sequence[str], strengths: FloatArray, columns: int) -> Picture:
    """Associations `[names, names]`; `columns` is the number of columns of the table."""
    upper = np.triu(strengths, 1)
    i, j = divmod(int(upper.argmax()), len(names))
    strong = int((upper >= VISIBLE_ASSOCIATION).sum())
    sentence = (
        f"{strong} of {math.comb(len(names), 2)} pairs of columns are associated with a strength of"
        f" {VISIBLE_ASSOCIATION} or more in the synthetic rows, most strongly {names[i]} with"
        f" {names[j]} ({upper[i, j]:.2f})"
    )
    if len(names) < columns:
        sentence += f"; the first {len(names)} of {columns} columns are shown"
    sentence += "."
    svg = grids.heat(names, strengths, alt=sentence)
    return Picture("Association in the synthetic rows (Cramér's V)", Markup(svg), sentence)


def pair_sentence(pairs: Sequence[MeasuredPair]) -> str:
    """Distance of the measured pairs from their noisy counts."""
    if not pairs:
        return (
            "No pair of columns was measured by itself: how pairs depend on each other comes from"
            " the model alone."
        )
    beyond = [p for p in pairs if p.distance > 2 * p.by_noise]
    worst = max(pairs, key=lambda p: p.distance - p.by_noise)
    return (
        f"Of {len(pairs)} pairs that were measured, {len(beyond)} are further off than twice what"
        f" noise alone makes; the clearest is {worst.names[0]} with {worst.names[1]}"
        f" ({worst.distance:.1%}, noise alone {worst.by_noise:.1%} on average, or less)."
    )


def pairplot(content: PublicContent, names: Sequence[str], strengths: FloatArray) -> Picture:
    """Contingency tables of the most strongly associated columns, in the published rows."""
    chosen = most_connected(names, strengths, first=content.first)
    plot = pair_plot(content.domain, content.codes, chosen, like=content.codes)
    size = range(len(chosen))
    lower: list[list[FloatArray | None]] = [
        [plot.tables[i][j] if j <= i else None for j in size] for i in size
    ]
    sentence = (
        f"Synthetic rows by pairs of {len(chosen)} columns, stronger in colour where there are"
        " more. First and last level stand beside each axis."
    )
    svg = grids.pairplot(chosen, lower, ends=plot.ends, alt=sentence)
    return Picture("Pairs of columns", Markup(svg), sentence)
