"""The public report: one self-contained HTML page of what a bundle contains, for its users.

It is made of plain public values alone: the certificate's facts, the published noisy tables, the
graph, and levels read back from the published table. No field can take anything computed on real
rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from synthdp.data.domain import Domain
from synthdp.drawing import charts
from synthdp.drawing.svg import short
from synthdp.evaluate.fidelity import association, grid, most_connected, pair_plot
from synthdp.report import sections
from synthdp.report.public.content import PublicContent
from synthdp.report.public.sections import (
    estimand_pictures,
    estimand_table,
    learning_sentences,
    public_cards,
    public_uses,
    score_table,
)
from synthdp.report.sections import (
    MAX_BYTES,
    VISIBLE_ASSOCIATION,
    Column,
    GraphView,
    MeasuredPair,
    PageLimits,
    Picture,
    ReportTable,
    arrow_table,
    audit_tables,
    budget_picture,
    cut,
    finding_tables,
    graph_sentence,
    number,
    roc_picture,
    roc_points,
    shares,
    svg_image,
    template,
    unlinked_sentence,
)

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
    columns = [*sections.columns(content.domain, content.codes, content.tables)]
    pairs = [*sections.measured_pairs(content.domain, content.codes, content.tables)]
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
        "budget": budget(facts),
        "effects_image": svg_image(content.effects) if content.effects else None,
        "overlay_sentence": overlay_sentence(columns),
        "pair_sentence": pair_sentence(pairs),
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
    return names, strengths.round(sections.DIGITS)


def _column_pictures(
    content: PublicContent, columns: Sequence[Column], names: Sequence[str], strengths: FloatArray
) -> dict[str, Any]:
    """Overlays, furthest off first, and the two pictures of pairs of columns, if there are any."""
    worst = sorted(columns, key=lambda c: -c.distance)[: LIMITS[0].overlays]
    shown: dict[str, Any] = {
        "overlays": [overlay(content.domain, column) for column in worst],
        "association": None,
        "pairplot": None,
    }
    if len(names) > 1:
        shown["association"] = association_picture(names, strengths, len(content.domain))
        shown["pairplot"] = pairplot(content, names, strengths)
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


# --- appendix ---
#
# Every number of the public report as a table of text.


DOUBTFUL = 3.0  # standard deviations of the noise: a smaller count may well be a true 0
MAX_DOUBTFUL = 60


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """All that the tables show.

    `rates` are (FPR, TPR) of the best possible attack. `strengths` are associations of `names`,
    shape `[names, names]`.
    """

    domain: Domain
    facts: Mapping[str, Any]
    graph: GraphView
    columns: Sequence[Column]
    pairs: Sequence[MeasuredPair]
    rates: Sequence[tuple[float, float]]
    names: Sequence[str]
    strengths: FloatArray


def tables(numbers: Numbers, limits: PageLimits) -> Iterator[ReportTable]:
    """All tables of the appendix, in the order of the report; `limits` cuts long ones."""
    yield from _guarantee(numbers)
    yield arrow_table(numbers.graph, limits.pairs)
    yield ReportTable(
        "Total variation by column, synthetic against noisy counts",
        ("column", "total variation", "noise alone, on average at most"),
        tuple((c.name, f"{c.distance:.4f}", f"{c.by_noise:.4f}") for c in numbers.columns),
    )
    pairs = ReportTable(
        "Pairs that were measured",
        ("column", "column", "total variation", "noise alone, on average at most"),
        tuple((*p.names, f"{p.distance:.4f}", f"{p.by_noise:.4f}") for p in numbers.pairs),
    )
    yield cut(pairs, limits.pairs)
    yield cut(_associations(numbers), limits.pairs)
    if not limits.levels:
        return
    for column in numbers.columns:
        labels = numbers.domain[column.name].labels
        levels = zip(labels, column.noisy.tolist(), column.synthetic.tolist(), strict=True)
        shares = tuple((label, f"{a:.3%}", f"{b:.3%}") for label, a, b in levels)
        headings = ("level", "noisy", "synthetic")
        yield cut(ReportTable(f"Shares of {column.name}", headings, shares), limits.levels)


def _associations(numbers: Numbers) -> ReportTable:
    """Every pair of `names`, the most strongly associated first."""
    names, strengths = numbers.names, numbers.strengths
    ranked = sorted(
        combinations(range(len(names)), 2),
        key=lambda pair: (-round(float(strengths[pair]), 6), pair),
    )
    rows = tuple((names[i], names[j], f"{strengths[i, j]:.3f}") for i, j in ranked)
    headings = ("column", "column", "Cramér's V")
    return ReportTable("Association of pairs in the synthetic rows", headings, rows)


def _guarantee(numbers: Numbers) -> Iterator[ReportTable]:
    """Planned spends, groups, DP scores, and the bound on membership attacks."""
    facts = numbers.facts
    parts = shares([p["epsilon"] for p in facts["purposes"]], delta=facts["delta"])
    spends = tuple(
        (p["purpose"], f"{part:.1%}", number(p["epsilon"]), "yes" if p["used"] else "no")
        for p, part in zip(facts["purposes"], parts, strict=True)
    )
    yield ReportTable(
        "Looks at the rows", ("purpose", "part of the cost", "epsilon alone", "used"), spends
    )
    groups = tuple(
        (
            str(g["size"]),
            number(g["joint_epsilon"]),
            number(g["total_epsilon"]),
            f"{g['total_delta']:g}",
        )
        for g in facts["groups"]
    )
    yield ReportTable(
        "Guarantee for groups",
        ("units together", "epsilon, joint", "epsilon, total", "delta, total"),
        groups,
    )
    rates = tuple((f"{f:.3g}", f"{t:.3g}") for f, t in numbers.rates[::6])
    if facts["scores"]:
        yield score_table(facts["scores"])
    yield ReportTable(
        "Bound on attacks by one who knows all other rows",
        ("false positive rate", "true positive rate at most"),
        rates,
    )


def hidden_levels(domain: Domain, columns: Sequence[Column]) -> ReportTable:
    """Levels whose noisy count is too small to show that they occur at all."""
    rows = []
    for column in columns:
        labels, noise = domain[column.name].labels, number(column.sigma)
        for k in np.flatnonzero(column.counts.ravel() < DOUBTFUL * column.sigma).tolist():
            count, share = number(float(column.counts[k])), f"{column.synthetic[k]:.3%}"
            rows.append((column.name, short(labels[k], 40), count, noise, share))
    headings = (
        "column",
        "level",
        "noisy count",
        "noise (standard deviation)",
        "share of synthetic rows",
    )
    return cut(ReportTable("Levels that the noise hides", headings, tuple(rows)), MAX_DOUBTFUL)


# --- pictures ---
#
# The pictures of the public report, each with the sentence that says what to conclude.


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


def association_picture(names: Sequence[str], strengths: FloatArray, columns: int) -> Picture:
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
    svg = charts.heat(names, strengths, alt=sentence)
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
    svg = charts.pairplot(chosen, lower, ends=plot.ends, alt=sentence)
    return Picture("Pairs of columns", Markup(svg), sentence)
