"""The public report: one self-contained HTML page of what a bundle contains, for its users.

It is made of plain public values alone: the certificate's facts, the published noisy tables, the
graph, and levels read back from the published table. No field can take anything computed on real
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, starmap
from statistics import fmean, median
from typing import Any

import numpy as np

from synthdp.model.estimands import INTERCEPT
from synthdp.report import verdicts
from synthdp.report.prose import estimated, number, say
from synthdp.report.public import sections
from synthdp.report.public.content import Column, MeasuredPair, PublicContent
from synthdp.report.public.sections import Measured
from synthdp.report.sections import (
    GraphView,
    Look,
    PageLimits,
    ReportTable,
    audit_tables,
    graph_section,
    link_tables,
    looks_table,
    most_advantage,
    render_page,
    roc_points,
)
from synthdp.report.verdicts import Score, State, Verdict
from synthdp.spec.load.wording import many

LIMITS = tuple(starmap(PageLimits, ((400, 60, 24), (200, 20, 12), (60, 8, 6), (20, 0, 3))))


def render_public(content: PublicContent) -> str:
    """The page as HTML text; see `render_page`."""
    facts, found = content.facts, Measured.of(content)
    view = {
        "content": content,
        "protects": say(
            "protects", unit=facts["unit_meaning"], adjacency=facts["adjacency"], **_reach(content)
        ),
        "facts": facts,
        "title": facts["title"] or facts["dataset"],
        "about": content.about,
        "uses": [*public_uses(content, found)],
        "verdicts": [*public_cards(content, found)],
        "first_figures": sections.first_figures(content.estimands, most=3),
        "noise_alone": say(
            "noise_alone",
            columns=verdicts.above({c.name: c.by_noise for c in found.columns}),
            of=len(content.domain),
            pairs=sum(p.by_noise >= verdicts.NOISY_SHAPE for p in found.pairs),
            measured=len(found.pairs),
        ),
        "numbers_file": "marginals.json and graph.json",
        "estimands": sections.estimands(content.estimands),
        "budget": sections.budget(facts),
        "columns": sections.columns(content.domain, found.columns, most=LIMITS[0].overlays),
        "graph": graph_section(content.graph),
        "attack": sections.attack(content),
        "pairs": sections.pairs(content, found),
        "learning": sections.learning(facts["scores"]),
        "forecasts": sections.expected(content),
        "audit_tables": audit_tables([facts["audit"]] if facts["audit"] else []),
        "doubtful": sections.hidden_levels(content.domain, found.columns),
    }
    appendix = partial(_appendix, content, found)
    return render_page("public.html.j2", view, appendix=appendix, limits=LIMITS)


# --- the appendix: every number as a table of text ---


def _appendix(content: PublicContent, found: Measured, limits: PageLimits) -> Iterator[ReportTable]:
    yield from _guarantee(content)
    yield from link_tables(content.graph, limits.pairs)
    distances = ("total variation", "noise alone, on average at most")
    rows = [(c.name, f"{c.distance:.4f}", f"{c.by_noise:.4f}") for c in found.columns]
    caption = "Total variation by column, synthetic against noisy counts"
    yield ReportTable(caption, ("column", *distances), tuple(rows))
    pairs = [(*p.names, f"{p.distance:.4f}", f"{p.by_noise:.4f}") for p in found.pairs]
    table = ReportTable("Pairs that were measured", ("column", "column", *distances), tuple(pairs))
    yield table.cut(limits.pairs)
    yield _associations(found).cut(limits.pairs)
    taken = (
        {"table": ", ".join(t["columns"]), "of the prior": f"{t['used']:.0%}"}
        for t in content.prior
    )
    if content.prior:
        yield ReportTable.of("How much of the prior each table took", taken).cut(limits.pairs)
    for column in found.columns if limits.levels else ():
        labels = content.domain[column.name].labels
        levels = zip(labels, column.noisy.tolist(), column.synthetic.tolist(), strict=True)
        records = (
            {"level": label, "noisy": f"{a:.3%}", "synthetic": f"{b:.3%}"} for label, a, b in levels
        )
        yield ReportTable.of(f"Shares of {column.name}", records).cut(limits.levels)


def _associations(found: Measured) -> ReportTable:
    names, strengths = found.names, found.strengths
    ranked = sorted(
        combinations(range(len(names)), 2),
        key=lambda pair: (-round(float(strengths[pair]), 6), pair),
    )
    rows = tuple((names[i], names[j], f"{strengths[i, j]:.3f}") for i, j in ranked)
    headings = ("column", "column", "Cramér's V")
    return ReportTable("Association of pairs in the synthetic rows", headings, rows)


def _guarantee(content: PublicContent) -> Iterator[ReportTable]:
    facts = content.facts
    yield looks_table([Look(**p) for p in facts["purposes"]], delta=facts["delta"])
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


# --- the verdicts at the top, from the certificate's facts and public tables ---


NOT_PAID = "scores that are paid for"
CAUSAL = ("effect", "regression")  # kinds of estimands


def public_cards(content: PublicContent, found: Measured) -> Iterator[Verdict]:
    """All verdicts, in the order of the page."""
    facts = content.facts
    yield verdicts.guarantee(facts["epsilon"], facts["delta"], **_reach(content))
    yield from _estimands(content)
    yield _pairs_card(content)
    yield _columns_card(content, found.columns)
    yield _noisy_columns(found)
    yield _noisy_pairs(content, found)
    if content.means:
        heading, text = "Means that noise makes", say("noisy_means")
        yield verdicts.noisy(heading, text, content.means, limit=verdicts.LOOSE.fair, most=6)
    yield _graph_card(content.graph)
    yield _audit_card(facts["audit"])


def _reach(content: PublicContent) -> dict[str, Any]:
    """The advantage that the profile allows, and what the search for the columns had."""
    search = content.facts.get("domain_from")
    return {
        "advantage": most_advantage(content.profile) if content.profile else None,
        "search": (search["epsilon"], search["delta"]) if search else None,
    }


def _noisy_columns(found: Measured) -> Verdict:
    parts = {c.name: c.by_noise for c in found.columns}
    return verdicts.noisy("Columns whose shape is noise", say("noisy_shapes"), parts)


def _noisy_pairs(content: PublicContent, found: Measured) -> Verdict:
    """Pairs by the noise of their tables. Rows may be nearer, which a score of all pairs shows."""
    parts = {" with ".join(p.names): p.by_noise for p in found.pairs}
    card = verdicts.noisy("Pairs whose table is noise", say("noisy_shapes"), parts, most=6)
    if card.state == "bad" and _pairs_card(content).state in ("good", "fair"):
        return replace(card, state="fair", text=say("rows_nearer", text=card.text))
    return card


def _score(content: PublicContent, name: str) -> Score | None:
    """A score on the real rows, if it was paid for."""
    return next((s for s in content.facts["scores"] if s["name"] == name), None)


def _pairs_card(content: PublicContent) -> Verdict:
    if (score := _score(content, "tv2")) is None:
        text = "how far the table is from the real rows was not paid for, so that it is not known"
        return Verdict("Pairs of columns", "not published", text, "unknown", better=NOT_PAID)
    text, floor = say("scored", score=score, what="pair of columns"), content.floors.get("tv2")
    return verdicts.distance("Pairs of columns", score, verdicts.PAIRS, text, floor=floor)


def _columns_card(content: PublicContent, columns: Sequence[Column]) -> Verdict:
    """How far single columns are: a score, or what distance and noise together allow."""
    if (score := _score(content, "tv1")) is not None:
        text, floor = say("scored", score=score, what="column"), content.floors.get("tv1")
        return verdicts.distance("Single columns", score, verdicts.COLUMNS, text, floor=floor)
    bound = _columns_bound(columns)
    if bound is None:
        return Verdict("Single columns", "not published", "none was measured alone", "unknown")
    text, figure = say("columns_bound"), f"at most {number(bound)}"
    if bound < verdicts.COLUMNS.fair:
        return Verdict("Single columns", figure, text, "good")
    return Verdict("Single columns", figure, text, "unknown", better=NOT_PAID)


def _columns_bound(columns: Sequence[Column]) -> float | None:
    """About the most that the mean distance to the real rows can be, by the triangle inequality."""
    if not columns:
        return None
    return min(1.0, float(np.mean([c.distance + c.by_noise for c in columns])))


def _figures(content: PublicContent) -> list[tuple[str, Mapping[str, Any]]]:
    """Every figure that was asked for, with the kind of its estimand."""
    return [
        (str(stated.get("kind")), figure)
        for stated in content.estimands
        for figure in stated["figures"]
        if figure.get("group") != INTERCEPT
    ]


def _estimands(content: PublicContent) -> Iterator[Verdict]:
    """Questions by how many have a figure, and by how wide the intervals are. The width says little
    of effects and coefficients: one near 0 may be known well.
    """
    figures = _figures(content)
    every = [bool(figure.get("interval")) for _, figure in figures]
    halves = [
        (f["interval"][1] - f["interval"][0]) / 2 / max(abs(f["estimate"]), 1e-12)
        for (kind, f), known in zip(figures, every, strict=True)
        if known and kind not in CAUSAL
    ]
    if every:
        text, unknown = say("questions"), [*_unanswered(content)]
        if unknown:
            text = f"{text}; no figure of {'; '.join(unknown[:6])}"
            text += f"; and of {len(unknown) - 6} more" if len(unknown) > 6 else ""
        half = "half an interval is {:.0%} of its estimate (median)"
        spread = half.format(median(halves)) if halves else ""
        loose: State = verdicts.LOOSE.state(float(median(halves))) if halves else "plain"
        refused: State = "plain" if all(every) else "fair" if any(every) else "bad"
        yield Verdict(
            "Questions answered",
            f"{sum(every)} of {len(every)}",
            text,
            verdicts.worst((loose, refused)),
            spread,
            better="a larger share for estimands, or fewer groups",
        )


def _unanswered(content: PublicContent) -> Iterator[str]:
    """The questions that have no figure, or none of some groups."""
    for stated in content.estimands:
        told = [bool(f.get("interval")) for f in stated["figures"] if f.get("group") != INTERCEPT]
        if not all(told):
            some = f" ({many(told.count(False), 'group')} of {len(told)})" if any(told) else ""
            yield f"{stated['text']}{some}"


def _graph_card(graph: GraphView) -> Verdict:
    """How much of the graph is known to be wrong. A refuted claim shapes the table all the same,
    unless the spec asks to drop it.
    """
    arrows = many(len(graph.edges), "arrow")
    if graph.undirected:
        arrows += f", {many(len(graph.undirected), 'link')} of unknown direction"
    if graph.validation:
        counts = graph.validation["counts"]
        told = [
            f"{known['refuted']} of {sum(known.values())} {name} refuted by noisy tables"
            for kind, name in (("arrow", "given arrows"), ("independence", "implied independences"))
            if (known := counts.get(kind))
        ]
        refuted = sum(known["refuted"] for known in counts.values())
        decided = refuted + sum(known["supported"] for known in counts.values())
        return verdicts.claims(graph.name, refuted, decided, f"{arrows}; {'; '.join(told)}")
    words = {
        "predict": "arrows say which columns predict which; they are no causes",
        "given": "given by the publisher, and not tested on the data",
        "learn": "found in noisy tables, with errors",
    }
    text = words.get(graph.mode, f"mode {graph.mode}")
    state: State = "unknown" if graph.mode in ("given", "learn") else "plain"
    better = "a test of the graph on the rows" if graph.mode == "given" else ""
    return Verdict(graph.name, arrows, text, state, better=better)


def _audit_card(audit: Mapping[str, Any] | None) -> Verdict:
    if audit is None:
        text = "the guarantee rests on its proof; no attempt to refute it is published"
        better = "an audit on simulated rows"
        return Verdict("Audit", "none published", text, "unknown", better=better)
    figure = many(len(audit["audits"]), "mechanism") if audit["audits"] else "made"
    return Verdict("Audit", figure, say("audited", day=audit["day"]), "good")


# --- what the published table is fit for, by use; from public figures alone ---


def public_uses(content: PublicContent, found: Measured) -> Iterator[Verdict]:
    """The uses, the easiest first."""
    yield replace(_code(content, found), use=True)
    yield replace(_tables(content, found), use=True)
    yield replace(_means(content, found.pairs), use=True)
    yield replace(_models(content, found.columns), use=True)
    yield Verdict("Coefficients", "by copies alone", say("coefficients"), use=True)
    yield replace(_effects(content), use=True)


def _code(content: PublicContent, found: Measured) -> Verdict:
    """Types and values are the declared ones; columns must look about as they do."""
    heading, text = "Teaching and code", say("off_by")
    if (score := _score(content, "tv1")) is not None:
        floor = content.floors.get("tv1")
        card = verdicts.distance(heading, score, verdicts.ROUGH, text, floor=floor)
        if card.state == "good" and _noisy_columns(found).state == "bad":
            return replace(card, state="fair", advice="for code: the shapes of columns are noise")
        return card
    bound = _columns_bound(found.columns)
    figure, state = "not known", verdicts.ROUGH.state(None)
    if bound is not None:
        state = "good" if bound < verdicts.ROUGH.fair else "unknown"
        figure = f"at most {number(bound)}"
    return Verdict(heading, figure, text, state, better="fewer bins or a larger epsilon")


def _tables(content: PublicContent, found: Measured) -> Verdict:
    """Pairs of columns decide, and columns of which there are too many that are noise."""
    pairs, noise = _pairs_card(content), _noisy_columns(found)
    advice = "take shares and intervals from synthdp answer, not from the rows"
    if any(figure.get("interval") for _, figure in _figures(content)):
        advice = f"use the questions' figures, and for others {advice}"
    card = replace(pairs, heading="Shares and tables", advice=advice)
    if noise.state == "bad":
        text = f"of the columns have a shape that is noise; {pairs.text}"
        return replace(card, number=noise.number, text=text, state="bad")
    measured = _noisy_pairs(content, found)
    card = replace(card, text=say("pairs_told", text=card.text, noise=measured))
    # Shares may be near; intervals computed from the rows never are.
    return replace(card, state="fair") if pairs.state == "good" else card


def _means(content: PublicContent, pairs: Sequence[MeasuredPair]) -> Verdict:
    """Up to how many levels a group may have, by the noise of its table with each number."""
    heading, domain = "Means by group", content.domain
    hidden = verdicts.above(content.means, verdicts.LOOSE.fair)
    found = list[tuple[int, bool, str]]()
    for pair in pairs:
        group, number_ = sorted(pair.names, key=lambda name: domain[name].ranged)
        if domain[number_].ranged and not domain[group].ranged and number_ not in hidden:
            levels = domain[group].levels
            found.append((levels, pair.sound, f"{number_} by {group} ({levels} levels)"))
    most = max((n for n, _, _ in found if all(s for m, s, _ in found if m <= n)), default=0)
    bad = [told for _, sound, told in sorted(found, reverse=True) if not sound]
    text = say("means_by_group", measured=len(found), bad=bad, hidden=hidden)
    if not found:
        figure = "no mean" if hidden else "not measured"
        return Verdict(heading, figure, text, "bad" if hidden else "unknown")
    state: State = "fair" if most else "bad"
    figure = f"up to {most} levels" if most else "no group"
    better = "fewer bins of numbers and levels of groups, or estimands" if bad or hidden else ""
    return Verdict(heading, figure, text, state, advice=say("ask_means"), better=better)


def _models(content: PublicContent, columns: Sequence[Column]) -> Verdict:
    """Whether what is learnt on these rows beats the constant guess on real ones, by the worst of
    several targets.
    """
    scores = [s for s in content.facts["scores"] if s["target"]]
    if not scores:
        text = "how models that learn from these rows do on real ones was not paid for"
        better = f"{NOT_PAID}, and columns to predict"
        return Verdict("Prediction", "not published", text, "unknown", better=better)
    base = {c.name: float(c.noisy.max()) for c in columns}
    states = [_beats(s, base.get(s["target"])) for s in scores]
    state = verdicts.worst(states)
    score = min(
        (s for s, its in zip(scores, states, strict=True) if its == state),
        key=lambda s: s["low"] - base.get(s["target"], 0.0),
    )
    rest = [s["value"] for s in scores if s is not score and s["value"] is not None]
    told = {"score": score, "of": len(scores), "rest": fmean(rest) if rest else None}
    if score["low"] <= 0 and score["high"] >= 1:
        text = say("model_unknown", **told)
        better = "a larger share for scores, or a larger epsilon"
        return Verdict("Prediction", "not known", text, "unknown", better=better)
    text = say("model_score", **told)
    figure = estimated(score["value"], score["low"], score["high"])
    if (guess := base.get(score["target"])) is None:
        return Verdict("Prediction", figure, text, state)
    floor = f"always the commonest answer: {guess:.1%}"
    better = "a larger epsilon, or a larger share for targets"
    return Verdict("Prediction", figure, text, state, floor, better=better)


def _beats(score: Score, guess: float | None) -> State:
    """Green only where the whole interval is above the constant guess."""
    low, high = score["low"], score["high"]
    if score["value"] is None or guess is None or (low <= 0 and high >= 1):
        return "unknown"
    if low > guess:
        return "good"
    if high <= guess:
        return "bad"
    return "unknown" if low < guess - 0.1 else "fair"


def _effects(content: PublicContent) -> Verdict:
    """Effects need a causal graph that the data do not refute, or a figure that was asked for."""
    for kind in CAUSAL:
        known = [bool(figure.get("interval")) for k, figure in _figures(content) if k == kind]
        if any(known):
            text, advice = say(f"asked_{kind}"), "for other effects ask synthdp effect"
            return Verdict("Effects", f"{sum(known)} of {len(known)}", text, "fair", advice=advice)
    if content.graph.mode in ("none", "predict"):
        text = "the model claims no causes, and nothing of what would change if one were set"
        better = "a graph that is declared or learned"
        return Verdict("Effects", "no causes", text, "bad", better=better)
    return replace(_graph_card(content.graph), heading="Effects")
