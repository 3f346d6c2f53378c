"""The pictures of the steward's report, each with the sentence that says what to conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.drawing import mpl_attack
from synthdp.drawing import mpl_figures as figures
from synthdp.drawing.svg import short
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.utility import UtilityReport, UtilityRow
from synthdp.report.internal import findings
from synthdp.report.internal.content import Budget
from synthdp.report.parts import Picture


def waterfall(budget: Budget) -> Picture | None:
    """What each step adds to epsilon; None where it is not known of every step."""
    steps = [(step.label, step.epsilon) for step in budget.steps if step.epsilon is not None]
    if not steps or len(steps) < len(budget.steps):
        return None
    sentence = findings.budget(budget)
    svg = figures.budget_waterfall(steps, budget=budget.epsilon, name="waterfall", alt=sentence)
    return Picture("Budget waterfall", Markup(svg), sentence)


def overlays(domain: Domain, report: FidelityReport, max_columns: int) -> list[Picture]:
    """Frequencies of at most `max_columns` columns on both kinds of rows, furthest off first."""
    worst = sorted(domain.columns, key=lambda c: -report.by_column[c.name])[:max_columns]
    return [_overlay(i, column, report) for i, column in enumerate(worst)]


def _overlay(place: int, column: ColumnDomain, report: FidelityReport) -> Picture:
    """The frequencies of one column; `place` makes the picture's name unique on the page."""
    name = column.name
    real, synthetic = report.shares_real[name], report.shares_synthetic[name]
    level = int(np.abs(real - synthetic).argmax())
    where = (
        f"{short(column.labels[level], 40)}: {real[level]:.1%} real, {synthetic[level]:.1%}"
        " synthetic"
    )
    sentence = f"{report.by_column[name]:.1%} of rows off; most at {where}."
    svg = figures.overlay(
        column.labels,
        real,
        synthetic,
        ordered=column.ordered,
        name=f"overlay{place}",
        alt=f"Shares of {name}. {sentence}",
        widths=column.relative_widths,
    )
    return Picture(name, Markup(svg), sentence)


def association(report: FidelityReport) -> Picture:
    """The difference in Cramér's V of every pair of columns."""
    sentence = findings.association(report)
    svg = figures.association_difference(
        list(report.by_column), report.association_difference, name="association", alt=sentence
    )
    return Picture("Association, synthetic minus real", Markup(svg), sentence)


def utilities(report: UtilityReport) -> list[Picture]:
    """Scores after training on real and on synthetic rows, a picture for each metric."""
    shown = []
    for metric, label in (("auc", "AUC"), ("r2", "R²")):
        rows = [
            r
            for r in report.rows
            if r.metric == metric and r.real is not None and r.synthetic is not None
        ]
        if not rows:
            continue
        sentence, name = findings.utility(rows), f"utility-{metric}"
        svg = figures.utility_dots(_dots(rows), label=label, name=name, alt=sentence)
        shown.append(Picture(f"{label} by target and learner", Markup(svg), sentence))
    return shown


def _dots(rows: Sequence[UtilityRow]) -> list[tuple[str, float, float, float | None, float | None]]:
    """A label, both scores and the interval of the difference, for each row."""
    return [
        (
            f"{r.target}: {r.classifier.replace('_', ' ')}",
            r.real or 0.0,
            r.synthetic or 0.0,
            r.low,
            r.high,
        )
        for r in rows
    ]


def attack_roc(attack: Mapping[str, Any]) -> Picture | None:
    """The attack's curve with the bound of the claim; None where there are too few points."""
    points = [_rates(point) for point in attack.get("roc") or ()]
    if len(points) < 2:
        return None
    claim = attack.get("claim") or {}
    epsilon, delta = claim.get("epsilon"), claim.get("delta")
    crosses = epsilon is not None and mpl_attack.crosses_bound(
        points, epsilon=epsilon, delta=delta or 0.0
    )
    sentence = f"{findings.roc(attack, crosses=crosses)} {findings.attack(attack)}"
    svg = mpl_attack.attack_roc(
        points,
        epsilon=epsilon,
        delta=delta,
        name="roc",
        alt=f"ROC curve of the membership attack. {sentence}",
    )
    return Picture("Attack ROC", Markup(svg), sentence)


def _rates(point: Any) -> tuple[float, float]:
    """A point of the curve as (FPR, TPR), from a mapping or a sequence."""
    fpr, tpr = (point["fpr"], point["tpr"]) if isinstance(point, dict) else point[:2]
    return float(fpr), float(tpr)
