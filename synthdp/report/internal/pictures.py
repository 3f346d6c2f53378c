"""The pictures of the steward's report, each with the sentence that says what to conclude."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.drawing import charts, grids
from synthdp.drawing.svg import short
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.utility import UtilityReport, UtilityRow
from synthdp.report.guarantee import Points, budget_picture, crosses, roc_picture
from synthdp.report.internal import findings
from synthdp.report.internal.content import Budget
from synthdp.report.parts import Picture

MAX_HEAT = 32  # columns of the association figure
METRICS = (("auc", "AUC", 0.5), ("r2", "R²", 0.0))  # with what guessing has


def budget(spent: Budget) -> Picture | None:
    """The bar of the budget; None where the cost of a step is not known."""
    looks = [(step.label, step.epsilon) for step in spent.steps if step.epsilon is not None]
    if not looks or len(looks) < len(spent.steps):
        return None
    return budget_picture(
        looks,
        total=spent.epsilon_planned,
        budget=spent.epsilon,
        delta=spent.delta,
        more=findings.budget_used(spent),
    )


def overlays(domain: Domain, report: FidelityReport, max_columns: int) -> list[Picture]:
    """Frequencies of at most `max_columns` columns on both kinds of rows, furthest off first."""
    worst = sorted(domain.columns, key=lambda c: -report.by_column[c.name])[:max_columns]
    return [_overlay(column, report) for column in worst]


def _overlay(column: ColumnDomain, report: FidelityReport) -> Picture:
    """The frequencies of one column."""
    name = column.name
    real, synthetic = report.shares_real[name], report.shares_synthetic[name]
    level = int(np.abs(real - synthetic).argmax())
    where = (
        f"{short(column.labels[level], 40)}: {real[level]:.1%} real, {synthetic[level]:.1%}"
        " synthetic"
    )
    sentence = f"{report.by_column[name]:.1%} of rows off; most at {where}."
    svg = charts.overlay(
        column.labels,
        real,
        synthetic,
        ordered=column.ordered,
        alt=f"Shares of {name}. {sentence}",
        widths=column.relative_widths,
    )
    return Picture(name, Markup(svg), sentence)


def association(report: FidelityReport) -> Picture:
    """The difference in Cramér's V of pairs, of the columns in which it is largest."""
    sentence, difference = findings.association(report), report.association_difference
    names = list(report.by_column)
    order = np.sort(np.argsort(-np.abs(difference).max(axis=0), kind="stable")[:MAX_HEAT])
    if len(order) < len(names):
        sentence += f" The {len(order)} of {len(names)} columns that changed most are drawn."
    shown = difference[np.ix_(order, order)]
    most = max(0.05, float(np.abs(shown).max(initial=0.0)))
    svg = grids.heat([names[i] for i in order], shown, most=most, alt=sentence)
    title = "Association, synthetic minus real (Cramér's V; orange: lost, blue: invented)"
    return Picture(title, Markup(svg), sentence)


def utilities(report: UtilityReport) -> list[Picture]:
    """Scores after training on real and on synthetic rows, a picture for each metric."""
    shown = []
    for metric, label, guess in METRICS:
        rows = [r for r in report.rows if r.metric == metric]
        drawn = [found for row in rows if (found := _ends(row)) is not None]
        if not drawn:
            continue
        sentence = findings.utility([r for r in rows if _ends(r) is not None])
        svg = charts.intervals(
            drawn,
            label=f"{label} on held-out real rows; {guess:g} is guessing",
            alt=sentence,
            origin=guess,
        )
        shown.append(Picture(f"{label} by target and learner", Markup(svg), sentence))
    return shown


def _ends(row: UtilityRow) -> tuple[str, list[tuple[float, float, float]]] | None:
    """A label, and both scores with their ends; None where one is not known."""
    if row.real is None or row.synthetic is None:
        return None
    low, high = row.synthetic, row.synthetic
    if row.low is not None and row.high is not None:
        low, high = row.real - row.high, row.real - row.low
    name = f"{row.target}: {row.classifier.replace('_', ' ')}"
    return name, [(row.real, row.real, row.real), (row.synthetic, low, high)]


def attack_roc(attack: Mapping[str, Any], profile: Points, *, telling: bool) -> Picture:
    """The bound of the guarantee, with the attack's curve where it is `telling`."""
    points = sorted(_rates(point) for point in attack.get("roc") or ())
    said = findings.attack(attack)
    if len(points) < 2:
        return roc_picture(profile, more=said)
    if not telling:
        more = "The curve of so few models is not drawn: chance alone moves it over the bound."
        return roc_picture(profile, more=f"{more} {said}")
    over = findings.roc(attack, crosses=crosses(points, profile))
    return roc_picture(profile, curve=points, more=f"{over} {said}")


def _rates(point: Any) -> tuple[float, float]:
    """A point of the curve as (FPR, TPR), from a mapping or a sequence."""
    fpr, tpr = (point["fpr"], point["tpr"]) if isinstance(point, dict) else point[:2]
    return float(fpr), float(tpr)
