"""The public report: one self-contained HTML page of what a bundle holds, for people who will use
or judge the data.

It is made of plain public values alone: the certificate's facts, the published noisy tables, the
graph, and levels read back from the published table. There is no field that could take anything
computed on real rows.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.drawing import charts as draw
from synthdp.drawing.mpl_figures import short
from synthdp.evaluate.pair_plot import association, grid, most_connected, pair_plot
from synthdp.report import measured_vs_synthetic as held_against
from synthdp.report.internal import findings
from synthdp.report.internal.appendix import PageLimits
from synthdp.report.internal.audits import audit_tables
from synthdp.report.internal.content import GraphView
from synthdp.report.internal.findings import number
from synthdp.report.internal.graph_findings import finding_tables
from synthdp.report.measured_vs_synthetic import Column, MeasuredPair, NoisyCounts
from synthdp.report.parts import MAX_BYTES, Card, Picture, template
from synthdp.report.public import appendix as public_appendix
from synthdp.report.public.appendix import Numbers
from synthdp.report.public.dp_scores import learning_sentences, score_cards

FloatArray = npt.NDArray[np.float64]

LIMITS = (
    PageLimits(400, 60, 24),
    PageLimits(200, 20, 12),
    PageLimits(60, 8, 6),
    PageLimits(20, 0, 3),
)
MAX_HEAT = 32  # columns of the association figure
NEIGHBOURS = {"add_remove": "one unit more or less", "replace_one": "one unit replaced"}


@dataclass(frozen=True, kw_only=True)
class PublicContent:
    """What the page shows. All of it stands in other files of the bundle.

    `facts` are those of `privacy/certificate.json`; `profile` has points (epsilon, delta); `codes`
    are levels of the first rows of the published table, shape `[rows, columns]`; `rows` is how many
    rows the whole table has; `first` names columns to show before others.
    """

    domain: Domain
    facts: Mapping[str, Any]
    profile: Sequence[tuple[float, float]]
    graph: GraphView
    tables: Sequence[NoisyCounts]
    codes: Codes
    rows: int
    first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def render_public(content: PublicContent) -> str:
    """The page as HTML text of at most `MAX_BYTES` bytes, except where the graph's picture alone
    is larger.
    """
    page, view = template("public.html.j2"), _view(content)
    for limits in LIMITS:
        shown = {
            "overlays": view["overlays"][: limits.overlays],
            "appendix": [*public_appendix.tables(view["numbers"], limits)],
        }
        html: str = page.render(
            **view | shown, overlays_left_out=max(0, len(content.domain) - limits.overlays)
        )
        if len(html.encode()) <= MAX_BYTES:
            break
    return html


def _view(content: PublicContent) -> dict[str, Any]:
    columns = [*held_against.columns(content.domain, content.codes, content.tables)]
    pairs = [*held_against.measured_pairs(content.domain, content.codes, content.tables)]
    cells, sizes = grid(content.domain, content.codes, content.codes)
    most = [content.domain.index(n) for n in _first(content, MAX_HEAT)]
    strengths = association(cells[:, most], [sizes[i] for i in most]).round(held_against.DIGITS)
    names = [content.domain.names[i] for i in most]
    return {
        "content": content,
        "facts": content.facts,
        "title": content.facts["title"] or content.facts["dataset"],
        "numbers": Numbers(
            domain=content.domain,
            facts=content.facts,
            graph=content.graph,
            columns=columns,
            pairs=pairs,
            rates=roc_points(content.profile),
            names=names,
            strengths=strengths,
        ),
        "cards": [*_cards(content, columns)],
        "waterfall": _waterfall(content.facts),
        "overlay_sentence": _overlay_sentence(columns),
        "overlays": [
            _overlay(content.domain, c)
            for c in sorted(columns, key=lambda c: -c.distance)[: LIMITS[0].overlays]
        ],
        "association": (
            _association(names, strengths, len(content.domain)) if len(names) > 1 else None
        ),
        "pair_sentence": _pair_sentence(pairs),
        "graph_image": (
            "data:image/svg+xml;base64,"
            + base64.b64encode((content.graph.svg or "").encode()).decode()
        ),
        "graph_sentence": findings.graph(content.graph),
        "graph_findings": finding_tables(content.graph.validation),
        "roc": _roc(content),
        "learning": [*learning_sentences(content.facts["scores"])],
        "attack": _attack_sentence(content.facts["audit"]),
        "audit_tables": audit_tables([content.facts["audit"]]) if content.facts["audit"] else [],
        "pairplot": _pairplot(content, names, strengths) if len(names) > 1 else None,
        "doubtful": public_appendix.hidden_levels(content.domain, columns),
        "number": number,
        "numbers_file": "marginals.json and graph.json",
    }


def _first(content: PublicContent, most: int) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            [*(n for n in content.first if n in content.domain.names), *content.domain.names]
        )
    )[:most]


# --- figures and what to conclude from them ---


def _cards(content: PublicContent, columns: Sequence[Column]) -> Iterator[Card]:
    facts, audit = content.facts, content.facts["audit"]
    yield Card(
        "Guarantee",
        f"epsilon {number(facts['epsilon'])}",
        f"at delta {facts['delta']:g}, for everything in the bundle together",
        "good",
    )
    yield Card(
        "Protected unit",
        facts["unit_meaning"],
        f"neighbouring tables: {NEIGHBOURS[facts['adjacency']]}",
    )
    yield Card(
        "Synthetic rows",
        f"{content.rows:,}",
        f"{len(content.domain)} columns; no row was copied from the original",
    )
    if columns:
        mean = float(np.mean([c.distance for c in columns]))
        yield Card(
            "Distance to noisy counts",
            f"{mean:.4f}",
            "mean total variation of single columns; 0 is equal, 1 is disjoint",
        )
    yield from score_cards(facts["scores"])
    yield _graph_card(content.graph)
    shown = (
        "none published"
        if audit is None
        else f"{len(audit['audits'])} mechanisms"
        if audit["audits"]
        else "made"
    )
    yield Card("Audit", shown, _audit_words(audit), "plain" if audit is None else "good")
    signed = facts["signer"] is not None
    yield Card(
        "Signature",
        "signed" if signed else "unsigned",
        facts["signer"] or "nothing in the bundle proves who made it",
    )


def _graph_card(graph: GraphView) -> Card:
    """How much of the graph is known to be wrong: what was refuted shapes the table all the same,
    unless the spec has it dropped.
    """
    words = {"arrow": "given arrows", "independence": "implied independences"}
    counts = graph.validation["counts"] if graph.validation else {}
    found = [
        f"{counts[kind]['refuted']} of {sum(counts[kind].values())} {words[kind]} refuted by noisy"
        " tables"
        for kind in words
        if kind in counts
    ]
    refuted = any(statuses["refuted"] for statuses in counts.values())
    return Card(
        "Causal graph",
        f"{len(graph.edges)} arrows",
        "; ".join([f"mode {graph.mode}", *found]),
        "bad" if refuted else "plain",
    )


def _audit_words(audit: Mapping[str, Any] | None) -> str:
    if audit is None:
        return (
            "the guarantee rests on its proof and accounting; no attempt to refute it is published"
        )
    return (
        f"without real rows, {audit['day']}: nothing speaks against the claim; an audit can refute"
        " a claim and never prove one"
    )


def _waterfall(facts: Mapping[str, Any]) -> Picture:
    steps = [
        (p["purpose"] if p["used"] else f"{p['purpose']} (unused)", float(p["epsilon"]))
        for p in facts["purposes"]
    ]
    alone, total, budget = (
        sum(e for _, e in steps),
        float(facts["epsilon"]),
        float(facts["epsilon_allowed"]),
    )
    largest = max(steps, key=lambda step: step[1], default=("nothing", 0.0))
    sentence = (
        f"Everything together guarantees epsilon {number(total)} of the {budget:g} that were"
        f" allowed, at delta {facts['delta']:g}"
    )
    sentence += (
        f"; accounted one by one the {len(steps)} looks at the rows would cost {number(alone)}, the"
        f" largest of them {largest[0]}."
    )
    return Picture(
        "Budget waterfall",
        Markup(draw.waterfall(steps, total=total, budget=budget, alt=sentence)),
        sentence,
    )


def _overlay_sentence(columns: Sequence[Column]) -> str:
    if not columns:
        return (
            "No column was measured by itself, so there are no noisy counts to hold the table"
            " against."
        )
    worst, mean = max(columns, key=lambda c: c.distance), np.mean([c.distance for c in columns])
    noise = np.mean([c.by_noise for c in columns])
    head = (
        f"On average {mean:.2%} of a column's rows would have to move to match the noisy counts;"
        f" noise alone makes {noise:.2%} on average, or less"
    )
    return f"{head}. The furthest off is {worst.name} ({worst.distance:.2%})."


def _overlay(domain: Domain, found: Column) -> Picture:
    column = domain[found.name]
    level = int(np.abs(found.noisy - found.synthetic).argmax())
    where = (
        f"{short(column.labels[level], 40)}: {found.noisy[level]:.1%} noisy,"
        f" {found.synthetic[level]:.1%} synthetic"
    )
    sentence = (
        f"{found.distance:.2%} of rows off the noisy counts (noise alone: {found.by_noise:.2%} on"
        f" average, or less); most at {where}."
    )
    alt = f"Shares of {found.name}. {sentence}"
    return Picture(
        found.name,
        Markup(
            draw.overlay(
                column.labels, found.noisy, found.synthetic, ordered=column.ordered, alt=alt
            )
        ),
        sentence,
    )


def _association(names: Sequence[str], strengths: FloatArray, columns: int) -> Picture:
    upper = np.triu(strengths, 1)
    i, j = divmod(int(upper.argmax()), len(names))
    strong = int((upper >= findings.VISIBLE_ASSOCIATION).sum())
    sentence = (
        f"{strong} of {len(names) * (len(names) - 1) // 2} pairs of columns are associated with a"
        f" strength of {findings.VISIBLE_ASSOCIATION} or more "
    )
    sentence += (
        f"in the synthetic rows, most strongly {names[i]} with {names[j]} ({upper[i, j]:.2f})"
    )
    sentence += (
        f"; the first {len(names)} of {columns} columns are shown." if len(names) < columns else "."
    )
    return Picture(
        "Association in the synthetic rows (Cramér's V)",
        Markup(draw.heat(names, strengths, alt=sentence)),
        sentence,
    )


def _pair_sentence(pairs: Sequence[MeasuredPair]) -> str:
    if not pairs:
        return (
            "No pair of columns was measured by itself: how pairs depend on each other comes from"
            " the model alone."
        )
    beyond = [p for p in pairs if p.distance > 2 * p.by_noise]
    worst = max(pairs, key=lambda p: p.distance - p.by_noise)
    told = (
        f"{worst.names[0]} with {worst.names[1]} ({worst.distance:.1%}, noise alone"
        f" {worst.by_noise:.1%} on average, or less)"
    )
    return (
        f"Of {len(pairs)} pairs that were measured, {len(beyond)} are further off than twice what"
        f" noise alone makes; the clearest is {told}."
    )


def _roc(content: PublicContent) -> Picture:
    points = roc_points(content.profile)
    at = next(t for f, t in points if f >= 0.01)
    sentence = (
        "Any attack that wrongly accuses 1% of outsiders of being in the table finds at most"
        f" {at:.1%} of those who are in it."
    )
    return Picture(
        "What any membership attack can reach",
        Markup(draw.roc_bound(points, alt=sentence)),
        sentence,
    )


def roc_points(profile: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The bound on (FPR, TPR) that the whole profile of (epsilon, delta) gives, on a grid of false
    positive rates.

    Each (epsilon, delta) bounds TPR by both sides of its definition: e^epsilon FPR + delta, and 1 -
    e^-epsilon (1 - delta - FPR). Source: Kairouz, Oh and Viswanath, "The Composition Theorem for
    Differential Privacy" (2015), Theorem 2.1.
    """
    rates = np.geomspace(1e-3, 1.0, 61)
    epsilon, delta = (
        np.asarray([p[k] for p in profile], dtype=np.float64)[:, None] for k in (0, 1)
    )
    above = np.minimum(np.exp(epsilon) * rates + delta, 1 - np.exp(-epsilon) * (1 - delta - rates))
    return [
        (float(f), float(t))
        for f, t in zip(rates, np.clip(above.min(axis=0), 0.0, 1.0), strict=True)
    ]


def _attack_sentence(audit: Mapping[str, Any] | None) -> str:
    found = audit and audit["membership"]
    if not found:
        return (
            "No attack on a simulated twin of the table is published with this bundle (synthdp"
            " audit --simulated makes one)."
        )
    head = (
        f"An attack with shadow models on a simulated twin of the table ({found['pairs']} pairs of"
        f" models) had advantage {number(found['advantage'])}"
    )
    return (
        f"{head} ({number(found['lower'])} to {number(found['upper'])}); the claim allows"
        f" {number(found['ceiling'])}. A sanity check, not a proof."
    )


def _pairplot(content: PublicContent, names: Sequence[str], strengths: FloatArray) -> Picture:
    chosen = most_connected(names, strengths, first=content.first)
    plot = pair_plot(content.domain, content.codes, chosen, like=content.codes)
    lower: list[list[FloatArray | None]] = [
        [plot.tables[i][j] if j <= i else None for j in range(len(chosen))]
        for i in range(len(chosen))
    ]
    sentence = (
        f"Synthetic rows by pairs of {len(chosen)} columns, stronger in colour where there are"
        " more: a shape known from elsewhere should be here too."
    )
    return Picture("Pairs of columns", Markup(draw.pairplot(chosen, lower, alt=sentence)), sentence)
