"""The estimands of a release on its public report: pictures of intervals, and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from synthdp.drawing import charts
from synthdp.model.regression import INTERCEPT
from synthdp.report.parts import Picture, number
from synthdp.report.tables import ReportTable
from synthdp.spec.wording import many

Estimands = Sequence[Mapping[str, Any]]

MAX_PICTURES = 20
MAX_DRAWN = 40  # figures of one estimand
IN_HALVES = "coefficients in halves of their intervals: beyond 1 and -1 they are not zero"

LEVELS = ("mean", "quantile", "count")

Drawn = tuple[str, list[tuple[float, float, float]]]


def estimand_pictures(estimands: Estimands) -> Iterator[Picture]:
    """One picture for each estimand that has figures: points with their intervals."""
    for stated in estimands[:MAX_PICTURES]:
        # Where all terms are zero is mostly far from all rows: it would be far from all else, too.
        drawn = [f for f in stated["figures"] if f.get("group") != INTERCEPT]
        known = [f for f in drawn if f.get("interval")][:MAX_DRAWN]
        refused = sum(1 for f in stated["figures"] if not f.get("interval"))
        if not known:
            continue
        coefficients = stated["statistic"] == "coefficient"
        rows = [_coefficient(f) if coefficients else _figure(stated, f) for f in known]
        sentence = " ".join(f"{_capital(s)}." for s in stated["about"])
        if refused:
            has = "has" if refused == 1 else "have"
            sentence += f" {many(refused, 'group')} {has} no figure: the table below says why."
        alt = f"Estimates with 95% intervals: {stated['text']}"
        label = IN_HALVES if coefficients else stated["statistic"]
        # From 0 on where that means something: a mean's interval would be a dot far away from it.
        origin = None if stated["statistic"] in LEVELS else 0.0
        svg = charts.intervals(rows, label=label, alt=alt, origin=origin)
        yield Picture(stated["text"], Markup(svg), sentence)


def _figure(stated: Mapping[str, Any], figure: Mapping[str, Any]) -> Drawn:
    value, (low, high) = figure["estimate"], figure["interval"]
    told, *ends = (_value(stated, v) for v in (value, low, high))
    name = f"{figure.get('group') or 'all'}: {told}, {' to '.join(ends)}"
    return name, [(value, low, high)]


def _coefficient(figure: Mapping[str, Any]) -> Drawn:
    """Coefficients have different units: each is drawn in halves of its interval."""
    value, (low, high) = figure["estimate"], figure["interval"]
    half = (high - low) / 2 or 1.0
    name = f"{figure['group']}: {value:,.4g}, {low:,.4g} to {high:,.4g}"
    return name, [(value / half, low / half, high / half)]


def estimand_table(estimands: Estimands) -> ReportTable:
    """Every figure with its interval."""
    rows = tuple(
        (
            stated["text"],
            figure.get("group") or "",
            _value(stated, figure["estimate"]) if "estimate" in figure else figure["refused"],
            " to ".join(_value(stated, end) for end in figure.get("interval", ())),
            number(figure.get("rows")),
        )
        for stated in estimands
        for figure in stated["figures"]
    )
    headings = ("estimand", "group", "estimate", "95% interval", "rows")
    return ReportTable("Estimands", headings, rows)


def _value(stated: Mapping[str, Any], value: float) -> str:
    return f"{value:.1%}" if stated["statistic"] == "share" else f"{value:,.4g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
