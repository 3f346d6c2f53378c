"""The steward's report: one self-contained HTML page and the same numbers as JSON. Confidential.

Everything in it was computed on real rows without noise. It is therefore written to a folder of its
own, apart from the bundle. The page needs no network and no script, and its content policy forbids
both.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from synthdp.files import private_folder, write_private
from synthdp.report.internal import sections
from synthdp.report.internal.appendix import analysis_tables, tables
from synthdp.report.internal.cards import attack_card, report_cards, report_uses
from synthdp.report.internal.content import EVALUATION, ReportContent
from synthdp.report.sections import (
    PageLimits,
    Section,
    audit_tables,
    budget_left,
    conclusion,
    graph_section,
    render_page,
    say,
)

LIMITS = (
    PageLimits(5000, 300, 24),
    PageLimits(1000, 60, 24),
    PageLimits(200, 20, 12),
    PageLimits(20, 0, 4),
)


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
    """The page as HTML text; see `render_page`."""
    report, budget, attack = content.evaluation, content.budget, content.attack
    # The page's curve is of all attacks together, whatever was declared.
    whole = attack_card({k: v for k, v in (attack or {}).items() if k != "declared"})
    view = {
        "content": content,
        "uses": [*report_uses(content)],
        "verdicts": [*report_cards(content)],
        "lead": sections.gates(content.gates),
        "budget_left": budget_left(budget.epsilon, budget.dataset_spent, budget.cap_epsilon),
        "numbers_file": "internal.json",
        "absent": say("missing_evaluation", report=report, why=content.absent.get(EVALUATION)),
        "budget": sections.budget(budget),
        "columns": sections.columns(content, most=LIMITS[0].overlays),
        "learning": sections.learning(report),
        "analysis": sections.analysis(report),
        "graph_name": content.graph.name if content.graph else "Causal graph",
        "graph": graph_section(content.graph),
        "attack": sections.attack_section(content, telling=whole.state != "unknown"),
        "audits": Section(conclusion(content.audits), tables=audit_tables(content.audits)),
        "association": sections.association_section(content.fidelity),
        "estimands": sections.estimands(content.estimands),
        "pairs": sections.pairs(report),
        "groups": sections.groups(report),
        "data": sections.data(content),
        "declarable": sections.suggestions(content.suggestions),
        "analysis_tables": [*analysis_tables(report)],
    }
    return render_page("internal.html.j2", view, appendix=partial(tables, content), limits=LIMITS)
