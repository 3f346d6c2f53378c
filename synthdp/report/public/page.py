"""The public report: one self-contained HTML page of what a bundle contains, for its users.

It is made of plain public values alone: the certificate's facts, the published noisy tables, the
graph, and levels read back from the published table. No field can take anything computed on real
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from synthdp.report.public import sections
from synthdp.report.public.cards import public_cards, public_uses
from synthdp.report.public.content import PublicContent
from synthdp.report.public.sections import Measured
from synthdp.report.sections import (
    PageLimits,
    ReportTable,
    arrow_table,
    audit_tables,
    graph_section,
    number,
    render_page,
    roc_points,
    shares,
    yes,
)

LIMITS = (
    PageLimits(400, 60, 24),
    PageLimits(200, 20, 12),
    PageLimits(60, 8, 6),
    PageLimits(20, 0, 3),
)


def render_public(content: PublicContent) -> str:
    """The page as HTML text; see `render_page`."""
    facts, found = content.facts, Measured.of(content)
    view = {
        "content": content,
        "facts": facts,
        "title": facts["title"] or facts["dataset"],
        "about": content.about,
        "uses": [*public_uses(content, found.columns)],
        "verdicts": [*public_cards(content, found.columns)],
        "numbers_file": "marginals.json and graph.json",
        "estimands": sections.estimands(content.estimands),
        "budget": sections.budget(facts),
        "columns": sections.columns(content.domain, found.columns, most=LIMITS[0].overlays),
        "graph": graph_section(content.graph),
        "attack": sections.attack(content),
        "pairs": sections.pairs(content, found),
        "learning": sections.learning(facts["scores"]),
        "audit_tables": audit_tables([facts["audit"]] if facts["audit"] else []),
        "doubtful": sections.hidden_levels(content.domain, found.columns),
    }
    appendix = partial(_tables, content, found)
    return render_page("public.html.j2", view, appendix=appendix, limits=LIMITS)


# --- the appendix: every number as a table of text ---


def _tables(content: PublicContent, found: Measured, limits: PageLimits) -> Iterator[ReportTable]:
    """All tables of the appendix, in the order of the report; `limits` cuts long ones."""
    yield from _guarantee(content)
    yield arrow_table(content.graph, limits.pairs)
    distances = ("total variation", "noise alone, on average at most")
    rows = [(c.name, f"{c.distance:.4f}", f"{c.by_noise:.4f}") for c in found.columns]
    caption = "Total variation by column, synthetic against noisy counts"
    yield ReportTable(caption, ("column", *distances), tuple(rows))
    pairs = [(*p.names, f"{p.distance:.4f}", f"{p.by_noise:.4f}") for p in found.pairs]
    table = ReportTable("Pairs that were measured", ("column", "column", *distances), tuple(pairs))
    yield table.cut(limits.pairs)
    yield _associations(found).cut(limits.pairs)
    for column in found.columns if limits.levels else ():
        labels = content.domain[column.name].labels
        levels = zip(labels, column.noisy.tolist(), column.synthetic.tolist(), strict=True)
        records = (
            {"level": label, "noisy": f"{a:.3%}", "synthetic": f"{b:.3%}"} for label, a, b in levels
        )
        yield ReportTable.of(f"Shares of {column.name}", records).cut(limits.levels)


def _associations(found: Measured) -> ReportTable:
    """Every pair of the drawn columns, the most strongly associated first."""
    names, strengths = found.names, found.strengths
    ranked = sorted(
        combinations(range(len(names)), 2),
        key=lambda pair: (-round(float(strengths[pair]), 6), pair),
    )
    rows = tuple((names[i], names[j], f"{strengths[i, j]:.3f}") for i, j in ranked)
    headings = ("column", "column", "Cramér's V")
    return ReportTable("Association of pairs in the synthetic rows", headings, rows)


def _guarantee(content: PublicContent) -> Iterator[ReportTable]:
    """Planned spends, groups, DP scores, and the bound on membership attacks."""
    facts = content.facts
    parts = shares([p["epsilon"] for p in facts["purposes"]], delta=facts["delta"])
    spends = (
        {
            "purpose": p["purpose"],
            "part of the cost": f"{part:.1%}",
            "epsilon alone": number(p["epsilon"]),
            "used": yes(p["used"]),
        }
        for p, part in zip(facts["purposes"], parts, strict=True)
    )
    yield ReportTable.of("Looks at the rows", spends)
    groups = (
        {
            "units together": str(g["size"]),
            "epsilon, joint": number(g["joint_epsilon"]),
            "epsilon, total": number(g["total_epsilon"]),
            "delta, total": f"{g['total_delta']:g}",
        }
        for g in facts["groups"]
    )
    yield ReportTable.of("Guarantee for groups", groups)
    if facts["scores"]:
        yield sections.score_table(facts["scores"])
    rates = (
        {"false positive rate": f"{fpr:.3g}", "true positive rate at most": f"{tpr:.3g}"}
        for fpr, tpr in roc_points(content.profile)[::6]
    )
    yield ReportTable.of("Bound on attacks by one who knows all other rows", rates)
