"""The steward's report: one self-contained HTML page and the same numbers as JSON.

Everything in it was computed on real rows without noise, so it lives in a folder of its own, apart
from the bundle. The page needs no network and no script, and says so to the browser by its content
policy.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp.drawing import mpl_figures as figures
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.utility import UtilityRow
from synthdp.files import private_folder, write_private
from synthdp.report.internal import findings
from synthdp.report.internal.analysis import analysis_view
from synthdp.report.internal.appendix import (
    ATTACK_CAPTIONS,
    PageLimits,
    attack_tables,
    misfit_table,
    tables,
)
from synthdp.report.internal.audits import audit_tables, conclusion
from synthdp.report.internal.content import Budget, BudgetStep, GateResult, GraphView, ReportContent
from synthdp.report.internal.findings import interval, number
from synthdp.report.internal.graph_findings import finding_tables
from synthdp.report.parts import MAX_BYTES, Card, Picture, template

__all__ = [
    "Budget",
    "BudgetStep",
    "GateResult",
    "GraphView",
    "ReportContent",
    "write_internal_report",
]

NEIGHBOURS = {
    "add_remove": "neighbouring tables: one unit more or less",
    "replace_one": "neighbouring tables: one unit replaced",
}
# Tried in turn until the page is small enough: a table of hundreds of columns shows its worst parts
# alone.
LIMITS = (
    PageLimits(5000, 300, 24),
    PageLimits(1000, 60, 24),
    PageLimits(200, 20, 12),
    PageLimits(20, 0, 4),
)


def write_internal_report(folder: Path, content: ReportContent) -> Path:
    """Write `internal.html` and `internal.json` into `folder` (made if missing), for their owner
    alone, and return the page's path.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    private_folder(folder)
    page = folder / "internal.html"
    write_private(page, render(content))
    write_private(folder / "internal.json", _numbers(content))
    return page


def _numbers(content: ReportContent) -> str:
    """The content as JSON, a section on each line: indenting the matrices of a wide table would
    take longer than all else here.
    """
    sections = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in content.to_json().items()
    )
    return "{\n" + ",\n".join(sections) + "\n}\n"


def render(content: ReportContent) -> str:
    """The page as HTML text of at most `MAX_BYTES` bytes, except where the graph's picture alone
    is larger.
    """
    page, view = template("internal.html.j2"), _view(content)
    for limits in LIMITS:
        overlays = view["overlays"][: limits.overlays]
        shown = {
            "overlays": overlays,
            "overlays_left_out": len(content.domain) - len(overlays),
            "appendix": tables(content, limits),
        }
        html: str = page.render(**view | shown)
        if len(html.encode()) <= MAX_BYTES:
            break
    return html


def _view(content: ReportContent) -> dict[str, Any]:
    """What the page shows at most; figures are drawn once."""
    evaluation = content.evaluation
    near = evaluation.fidelity if evaluation else None
    return {
        "content": content,
        "cards": _cards(content),
        "verdict": findings.verdict(content.gates),
        "absent": findings.missing_evaluation(evaluation),
        "waterfall": _waterfall(content.budget),
        "budget_sentence": findings.budget(content.budget),
        "overlay_sentence": (
            findings.fidelity(near, evaluation.floor if evaluation else None) if near else ""
        ),
        "overlays": _overlays(content, near, LIMITS[0].overlays) if near else [],
        "association": _association(near) if near else None,
        "graph_image": _graph_image(content.graph),
        "graph_sentence": findings.graph(content.graph) if content.graph else "",
        "graph_findings": finding_tables(content.graph.validation if content.graph else None),
        "audit_sentence": conclusion(content.audits),
        "audit_tables": audit_tables(content.audits),
        "utilities": _utilities(content),
        "utility_notes": evaluation.utility.notes if evaluation else (),
        "roc": _roc(content),
        "attack_sentence": findings.attack(content.attack) if content.attack else "",
        "attack_tables": (
            [t for t in attack_tables(content.attack) if t.caption in ATTACK_CAPTIONS]
            if content.attack
            else []
        ),
        "misfit_table": misfit_table(content),
        "misfit_sentence": findings.misfits(content.misfits),
        **analysis_view(evaluation),
        "number": number,
        "numbers_file": "internal.json",
    }


def _cards(content: ReportContent) -> list[Card]:
    budget, metrics = content.budget, content.evaluation.metrics() if content.evaluation else {}
    passed = sum(gate.passed for gate in content.gates)
    gate_state = "plain" if not content.gates else "bad" if content.withheld else "good"
    bad_values = sum(sum(kinds.values()) for kinds in content.misfits.values())
    over = budget.epsilon_planned > budget.epsilon
    return [
        Card(
            "Gates",
            f"{passed} of {len(content.gates)} passed" if content.gates else "none set",
            findings.verdict(content.gates),
            gate_state,
        ),
        Card(
            "Epsilon",
            f"{number(budget.epsilon_planned)} of {number(budget.epsilon)}",
            findings.plan_words(budget),
            "bad" if over else "good",
        ),
        Card("Protected unit", budget.unit, NEIGHBOURS.get(budget.adjacency, budget.adjacency)),
        _learning_card(content, metrics),
        _distance_card(content, metrics),
        _attack_card(content),
        Card(
            "Data problems",
            f"{bad_values:,} values" if bad_values else "none",
            findings.misfits(content.misfits),
            "bad" if bad_values else "good",
        ),
    ]


def _learning_card(content: ReportContent, metrics: dict[str, float]) -> Card:
    if "tstr_auc" not in metrics or content.evaluation is None:
        return Card("Learning", "not available", "no classifier could be judged")
    real = content.evaluation.utility.mean_auc_real
    return Card(
        "Learning (mean AUC)",
        f"{metrics['tstr_auc']:.3f}",
        f"learnt on synthetic rows; {number(real)} learnt on real ones, ratio"
        f" {metrics.get('tstr_ratio', 0):.3f}",
    )


def _distance_card(content: ReportContent, metrics: dict[str, float]) -> Card:
    noisy = f"against the released noisy marginals {number(content.tv1_noisy)}"
    if "tv1" not in metrics:
        return Card("Distance (total variation)", "not available", noisy)
    rest = ", ".join(f"{k}-way {metrics[f'tv{k}']:.3f}" for k in (2, 3) if f"tv{k}" in metrics)
    return Card(
        "Distance (total variation)",
        f"{metrics['tv1']:.4f}",
        f"1-way{'; ' + rest if rest else ''}; {noisy}",
    )


def _attack_card(content: ReportContent) -> Card:
    if not content.attack:
        return Card("Membership attack", "not run", "sanity, not proof")
    main = content.attack.get("main") or content.attack
    ceiling = (content.attack.get("claim") or {}).get(
        "ceiling_advantage", content.attack.get("ceiling")
    )
    refuted = bool(content.attack.get("refutes_claim", False))
    advantage = main.get("advantage")
    figure = interval(advantage.get("value") if isinstance(advantage, dict) else advantage)
    models = f"{main.get('models', 'unknown number of')} test models in each world"
    text = (
        f"advantage {interval(advantage)}; the claim allows at most {interval(ceiling)}; {models}."
        " Sanity, not proof."
    )
    return Card("Membership attack", figure, text, "bad" if refuted else "plain")


def _waterfall(budget: Budget) -> Picture | None:
    steps = [(step.label, step.epsilon) for step in budget.steps if step.epsilon is not None]
    if not steps or len(steps) < len(budget.steps):
        return None
    sentence = findings.budget(budget)
    return Picture(
        "Budget waterfall",
        Markup(
            figures.budget_waterfall(steps, budget=budget.epsilon, name="waterfall", alt=sentence)
        ),
        sentence,
    )


def _overlays(content: ReportContent, report: FidelityReport, most: int) -> list[Picture]:
    worst = sorted(content.domain.columns, key=lambda c: -report.by_column[c.name])[:most]
    return [_overlay(i, content, report, column.name) for i, column in enumerate(worst)]


def _overlay(place: int, content: ReportContent, report: FidelityReport, name: str) -> Picture:
    column, real, synthetic = (
        content.domain[name],
        report.shares_real[name],
        report.shares_synthetic[name],
    )
    level = int(np.abs(real - synthetic).argmax())
    where = (
        f"{figures.short(column.labels[level], 40)}: {real[level]:.1%} real, {synthetic[level]:.1%}"
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
    )
    return Picture(name, Markup(svg), sentence)


def _association(report: FidelityReport) -> Picture:
    sentence = findings.association(report)
    svg = figures.association_difference(
        list(report.by_column), report.association_difference, name="association", alt=sentence
    )
    return Picture("Association, synthetic minus real", Markup(svg), sentence)


def _utilities(content: ReportContent) -> list[Picture]:
    if content.evaluation is None:
        return []
    report = content.evaluation.utility
    shown = {"auc": "AUC", "r2": "R²"}
    found = []
    for metric, label in shown.items():
        rows = [
            r
            for r in report.rows
            if r.metric == metric and r.real is not None and r.synthetic is not None
        ]
        if rows:
            sentence = findings.utility(rows)
            svg = figures.utility_dots(
                _dots(rows), label=label, name=f"utility-{metric}", alt=sentence
            )
            found.append(Picture(f"{label} by target and learner", Markup(svg), sentence))
    return found


def _dots(rows: Sequence[UtilityRow]) -> list[tuple[str, float, float, float | None, float | None]]:
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


def _roc(content: ReportContent) -> Picture | None:
    attack = content.attack or {}
    points = [
        (float(p["fpr"]), float(p["tpr"])) if isinstance(p, dict) else (float(p[0]), float(p[1]))
        for p in attack.get("roc") or ()
    ]
    if len(points) < 2:
        return None
    claim = attack.get("claim") or {}
    epsilon, delta = claim.get("epsilon"), claim.get("delta")
    crosses = epsilon is not None and figures.crosses_bound(
        points, epsilon=epsilon, delta=delta or 0.0
    )
    sentence = f"{findings.roc(attack, crosses=crosses)} {findings.attack(attack)}"
    svg = figures.attack_roc(
        points,
        epsilon=epsilon,
        delta=delta,
        name="roc",
        alt=f"ROC curve of the membership attack. {sentence}",
    )
    return Picture("Attack ROC", Markup(svg), sentence)


def _graph_image(graph: GraphView | None) -> str | None:
    """The picture as a data address: inside an image no script of it could run."""
    if graph is None or graph.svg is None:
        return None
    return "data:image/svg+xml;base64," + base64.b64encode(graph.svg.encode()).decode()
