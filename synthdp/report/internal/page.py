"""The steward's report: one self-contained HTML page and the same numbers as JSON. Confidential.

Everything in it was computed on real rows without noise. It is therefore written to a folder of its
own, apart from the bundle. The page needs no network and no script, and its content policy forbids
both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthdp.files import private_folder, write_private
from synthdp.report.internal import appendix
from synthdp.report.internal import sections as findings
from synthdp.report.internal.appendix import (
    ATTACK_CAPTIONS,
    analysis_view,
    attack_tables,
    misfit_table,
    tables,
)
from synthdp.report.internal.content import ATTACK, EVALUATION, ReportContent
from synthdp.report.internal.sections import (
    attack_card,
    estimand_view,
    report_cards,
    report_uses,
    suggestion_view,
)
from synthdp.report.sections import (
    MAX_BYTES,
    GraphView,
    PageLimits,
    audit_tables,
    budget_left,
    conclusion,
    finding_tables,
    graph_sentence,
    number,
    roc_picture,
    svg_image,
    template,
)

# Tried in turn until the page is small enough: a table of hundreds of columns shows its worst parts
# alone.
LIMITS = (
    PageLimits(5000, 300, 24),
    PageLimits(1000, 60, 24),
    PageLimits(200, 20, 12),
    PageLimits(20, 0, 4),
)
FIRST_OVERLAYS = 3  # columns that are drawn before all else folds


def write_internal_report(folder: Path, content: ReportContent) -> Path:
    """Write `internal.html` and `internal.json` into `folder`, for their owner alone.

    `folder` is made if missing. The page's path is returned.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    private_folder(folder)
    page = folder / "internal.html"
    write_private(page, render(content))
    write_private(folder / "internal.json", _numbers(content))
    return page


def _numbers(content: ReportContent) -> str:
    """The content as JSON, a section on each line.

    Indenting the matrices of a wide table would take longer than everything else here.
    """
    sections = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in content.to_json().items()
    )
    return "{\n" + ",\n".join(sections) + "\n}\n"


def render(content: ReportContent) -> str:
    """The page as HTML text of at most `MAX_BYTES` bytes.

    It may be larger where the graph's picture alone is.
    """
    page, view = template("internal.html.j2"), _view(content)
    for limits in LIMITS:
        overlays = view["overlays"][: limits.overlays]
        shown = {
            "overlays": overlays,
            "first_overlays": FIRST_OVERLAYS,
            "overlays_left_out": len(content.domain) - len(overlays),
            "appendix": tables(content, limits),
        }
        html: str = page.render(**view | shown)
        if len(html.encode()) <= MAX_BYTES:
            break
    return html


def _view(content: ReportContent) -> dict[str, Any]:
    """What the largest page shows; figures are drawn once."""
    return {
        "content": content,
        "uses": [*report_uses(content)],
        "verdicts": [*report_cards(content)],
        "verdict": findings.verdict(content.gates),
        "budget": appendix.budget(content.budget),
        "budget_sentence": findings.budget(content.budget),
        "budget_left": budget_left(
            content.budget.epsilon, content.budget.dataset_spent, content.budget.cap_epsilon
        ),
        "audit_sentence": conclusion(content.audits),
        "audit_tables": audit_tables(content.audits),
        "misfit_table": misfit_table(content),
        "misfit_sentence": findings.misfits(content.misfits),
        "number": number,
        "numbers_file": "internal.json",
        **_evaluation_view(content),
        **_graph_view(content.graph),
        **_attack_view(content),
        **analysis_view(content.evaluation),
        **suggestion_view(content.suggestions),
        **estimand_view(content.estimands),
    }


def _evaluation_view(content: ReportContent) -> dict[str, Any]:
    """Fidelity and utility; empty where they were not evaluated."""
    report = content.evaluation
    view: dict[str, Any] = {
        "absent": findings.missing_evaluation(report, content.absent.get(EVALUATION)),
        "overlay_sentence": "",
        "overlays": [],
        "association": None,
        "utilities": [],
        "utility_notes": (),
    }
    if report is not None:
        view["utilities"] = appendix.utilities(report.utility)
        view["utility_notes"] = report.utility.notes
    if report is not None and report.fidelity is not None:
        view["overlay_sentence"] = findings.fidelity(report.fidelity, report.floor, report.equal)
        view["overlays"] = appendix.overlays(content.domain, report.fidelity, LIMITS[0].overlays)
        view["association"] = appendix.association(report.fidelity)
    return view


def _graph_view(graph: GraphView | None) -> dict[str, Any]:
    """The graph's picture, sentence and tables; empty where there is none."""
    if graph is None:
        return {
            "graph_image": None,
            "graph_name": "Causal graph",
            "graph_sentence": "",
            "graph_findings": [],
        }
    return {
        "graph_image": None if graph.svg is None else svg_image(graph.svg),
        "graph_name": graph.name,
        "graph_sentence": graph_sentence(graph),
        "graph_findings": finding_tables(graph.validation),
    }


def _attack_view(content: ReportContent) -> dict[str, Any]:
    """The bound on attacks, with the curve of the one that was run, and its tables."""
    attack, budget = content.attack, content.budget
    profile = content.profile or ((budget.epsilon_planned, budget.delta),)
    if not attack:
        why = content.absent.get(ATTACK)
        told = "No attack was run." if why is None else f"The attack has no figures: {why}."
        return {"roc": roc_picture(profile), "attack_tables": [], "no_attack": told}
    main = attack_card({k: v for k, v in attack.items() if k != "declared"})
    return {
        "roc": appendix.attack_roc(attack, profile, telling=main.state != "unknown"),
        "attack_tables": [t for t in attack_tables(attack) if t.caption in ATTACK_CAPTIONS],
    }
