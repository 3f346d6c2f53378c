"""The public report: one self-contained HTML page of what a bundle contains, for its users.

It is made of plain public values alone: the certificate's facts, the published noisy tables, the
graph, and levels read back from the published table. No field can take anything computed on real
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.evaluate.pair_plot import association, grid
from synthdp.report import measured_vs_synthetic as measured
from synthdp.report.audits import audit_tables
from synthdp.report.graph_view import (
    finding_tables,
    graph_sentence,
    unlinked_sentence,
)
from synthdp.report.guarantee import roc_picture, roc_points
from synthdp.report.measured_vs_synthetic import Column
from synthdp.report.parts import MAX_BYTES, number, svg_image, template
from synthdp.report.public import pictures
from synthdp.report.public.appendix import Numbers, hidden_levels, tables
from synthdp.report.public.cards import public_cards
from synthdp.report.public.content import PublicContent
from synthdp.report.public.dp_scores import learning_sentences
from synthdp.report.public.estimands import estimand_pictures, estimand_table
from synthdp.report.public.uses import public_uses
from synthdp.report.tables import PageLimits, cut

FloatArray = npt.NDArray[np.float64]

# Tried in turn until the page is small enough: a table of hundreds of columns shows its worst parts
# alone.
LIMITS = (
    PageLimits(400, 60, 24),
    PageLimits(200, 20, 12),
    PageLimits(60, 8, 6),
    PageLimits(20, 0, 3),
)
FIRST_ESTIMANDS = 12  # figures that stand before the first picture
MAX_ESTIMANDS = 400  # figures that the page lists
MAX_HEAT = 32  # columns of the association figure
FIRST_OVERLAYS = 3  # columns that are drawn before all else folds


def render_public(content: PublicContent) -> str:
    """The page as HTML text of at most `MAX_BYTES` bytes.

    It may be larger where the graph's picture alone is.
    """
    page, view = template("public.html.j2"), _view(content)
    for limits in LIMITS:
        shown = {
            "overlays": view["overlays"][: limits.overlays],
            "first_overlays": FIRST_OVERLAYS,
            "overlays_left_out": max(0, len(content.domain) - limits.overlays),
            "appendix": [*tables(view["numbers"], limits)],
        }
        html: str = page.render(**view | shown)
        if len(html.encode()) <= MAX_BYTES:
            break
    return html


def _view(content: PublicContent) -> dict[str, Any]:
    """What the largest page shows; figures are drawn once."""
    facts, graph = content.facts, content.graph
    columns = [*measured.columns(content.domain, content.codes, content.tables)]
    pairs = [*measured.measured_pairs(content.domain, content.codes, content.tables)]
    names, strengths = _strengths(content)
    numbers = Numbers(
        domain=content.domain,
        facts=facts,
        graph=graph,
        columns=columns,
        pairs=pairs,
        rates=roc_points(content.profile),
        names=names,
        strengths=strengths,
    )
    return {
        "content": content,
        "facts": facts,
        "title": facts["title"] or facts["dataset"],
        "numbers": numbers,
        "about": content.about,
        "uses": [*public_uses(content, columns)],
        "verdicts": [*public_cards(content, columns)],
        "budget": pictures.budget(facts),
        "effects_image": svg_image(content.effects) if content.effects else None,
        "overlay_sentence": pictures.overlay_sentence(columns),
        "pair_sentence": pictures.pair_sentence(pairs),
        "graph_image": svg_image(graph.svg or ""),
        "graph_name": graph.name,
        "graph_sentence": graph_sentence(graph),
        "unlinked_sentence": unlinked_sentence(graph),
        "graph_findings": finding_tables(graph.validation),
        "roc": roc_picture(content.profile),
        "learning": [*learning_sentences(facts["scores"])],
        "estimands": [*estimand_pictures(content.estimands)],
        "first_estimands": cut(estimand_table(content.estimands), FIRST_ESTIMANDS),
        "estimand_table": cut(estimand_table(content.estimands), MAX_ESTIMANDS),
        "attack": _attack_sentence(facts["audit"]),
        "audit_tables": audit_tables([facts["audit"]]) if facts["audit"] else [],
        "doubtful": hidden_levels(content.domain, columns),
        "number": number,
        "numbers_file": "marginals.json and graph.json",
        **_column_pictures(content, columns, names, strengths),
    }


def _strengths(content: PublicContent) -> tuple[list[str], FloatArray]:
    """At most `MAX_HEAT` columns and their associations in the published rows, rounded."""
    first = [n for n in content.first if n in content.domain.names]
    names = list(dict.fromkeys([*first, *content.domain.names]))[:MAX_HEAT]
    cells, sizes = grid(content.domain, content.codes, content.codes)
    positions = [content.domain.index(n) for n in names]
    strengths = association(cells[:, positions], [sizes[i] for i in positions])
    return names, strengths.round(measured.DIGITS)


def _column_pictures(
    content: PublicContent, columns: Sequence[Column], names: Sequence[str], strengths: FloatArray
) -> dict[str, Any]:
    """Overlays, furthest off first, and the two pictures of pairs of columns, if there are any."""
    worst = sorted(columns, key=lambda c: -c.distance)[: LIMITS[0].overlays]
    shown: dict[str, Any] = {
        "overlays": [pictures.overlay(content.domain, column) for column in worst],
        "association": None,
        "pairplot": None,
    }
    if len(names) > 1:
        shown["association"] = pictures.association(names, strengths, len(content.domain))
        shown["pairplot"] = pictures.pairplot(content, names, strengths)
    return shown


def _attack_sentence(audit: Mapping[str, Any] | None) -> str:
    """What a published attack on a simulated twin found."""
    attack = audit and audit["membership"]
    if not attack:
        return "No attack on a simulated twin of the table is published with this bundle."
    head = (
        f"An attack with shadow models on a simulated twin of the table ({attack['pairs']} pairs of"
        f" models) had advantage {number(attack['advantage'])}"
    )
    return (
        f"{head} ({number(attack['lower'])} to {number(attack['upper'])}); the claim allows"
        f" {number(attack['ceiling'])}. A sanity check, not a proof."
    )
