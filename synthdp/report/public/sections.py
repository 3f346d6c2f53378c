"""The verdicts at the top of the public report, from the certificate's facts and public tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from markupsafe import Markup

from synthdp.drawing import charts
from synthdp.model.estimands import INTERCEPT
from synthdp.report import verdicts
from synthdp.report.public.content import PublicContent
from synthdp.report.sections import Column, GraphView, Picture, ReportTable, most_advantage, number
from synthdp.report.verdicts import Bounds, State, Verdict
from synthdp.spec.load.wording import many

Score = Mapping[str, Any]
Estimands = Sequence[Mapping[str, Any]]

NOT_PAID = "scores that are paid for"


def public_cards(content: PublicContent, columns: Sequence[Column]) -> Iterator[Verdict]:
    """All verdicts, in the order of the page."""
    facts = content.facts
    yield verdicts.guarantee(
        facts["epsilon"],
        facts["delta"],
        advantage=most_advantage(content.profile) if content.profile else None,
        search=_search(facts),
    )
    yield from _estimands(content.estimands)
    yield pairs_card(content)
    yield columns_card(content, columns)
    yield verdicts.noisy_columns(c.by_noise for c in columns)
    yield graph_card(content.graph)
    yield _audit_card(facts["audit"])


def _search(facts: Mapping[str, Any]) -> tuple[float, float] | None:
    """Epsilon and delta of the search that found the columns."""
    found = facts.get("domain_from")
    return (found["epsilon"], found["delta"]) if found else None


def score_of(content: PublicContent, name: str) -> Score | None:
    """A score on the real rows, if it was paid for."""
    return next((s for s in content.facts["scores"] if s["name"] == name), None)


def pairs_card(content: PublicContent) -> Verdict:
    """How far pairs of columns are from the real rows, where that was paid for."""
    score, floor = score_of(content, "tv2"), content.floors.get("tv2")
    if score is None:
        text = "how far the table is from the real rows was not paid for, so that it is not known"
        return Verdict("Pairs of columns", "not published", text, "unknown", better=NOT_PAID)
    return _scored("Pairs of columns", score, verdicts.PAIRS, floor)


def columns_card(content: PublicContent, columns: Sequence[Column]) -> Verdict:
    """How far single columns are: a score, or what distance and noise together allow."""
    score, floor = score_of(content, "tv1"), content.floors.get("tv1")
    if score is not None:
        return _scored("Single columns", score, verdicts.COLUMNS, floor)
    bound = columns_bound(columns)
    if bound is None:
        return Verdict("Single columns", "not published", "none was measured alone", "unknown")
    text = (
        "at most about so many rows, on average, would have to move: the distance to the noisy"
        " counts, and what noise may have moved these"
    )
    known = bound < verdicts.COLUMNS.fair
    better = "" if known else NOT_PAID
    figure = f"at most {number(bound)}"
    return Verdict("Single columns", figure, text, "good" if known else "unknown", better=better)


def columns_bound(columns: Sequence[Column]) -> float | None:
    """About the most that the mean distance to the real rows can be, by the triangle inequality."""
    if not columns:
        return None
    return min(1.0, float(np.mean([c.distance + c.by_noise for c in columns])))


def _scored(heading: str, score: Score, bounds: Bounds, floor: float | None) -> Verdict:
    text = (
        "mean total variation from the real rows, counted with noise that was paid for (95%"
        f" interval {number(score['low'])} to {number(score['high'])})"
    )
    state = bounds.within(score["value"], score["low"], score["high"])
    card = verdicts.distance(heading, score["value"], text, state, floor=floor)
    return replace(card, number=shown(score, state))


def shown(score: Score, state: State) -> str:
    """The value of a score, or its interval where noise hides the value or what it means."""
    if score["value"] is None or state == "unknown":
        return f"{number(score['low'])} to {number(score['high'])}"
    return f"{score['value']:.2g}"


def looseness(estimands: Estimands) -> float | None:
    """The median over all figures of half the interval over the estimate; None without figures.

    Effects and coefficients are left out: one near 0 may be known well.
    """
    figures = [
        f
        for stated in estimands
        for f in stated["figures"]
        if f.get("interval") and stated.get("kind") not in ("effect", "regression")
    ]
    if not figures:
        return None
    return float(
        median(
            (f["interval"][1] - f["interval"][0]) / 2 / max(abs(f["estimate"]), 1e-12)
            for f in figures
        )
    )


def _estimands(estimands: Estimands) -> Iterator[Verdict]:
    """How well the questions are answered that the release was made for."""
    figures = [f for stated in estimands for f in stated["figures"]]
    if not figures:
        return
    loose, known = looseness(estimands), sum(1 for f in figures if f.get("interval"))
    text = "figures of declared questions, measured on the real rows, have right 95% intervals"
    state = verdicts.LOOSE.state(loose)
    spread = "" if loose is None else f"half an interval is {loose:.0%} of its estimate (median)"
    better = "" if state == "good" else "a larger share for estimands, or fewer groups"
    yield Verdict("Estimands", f"{known} of {len(figures)}", text, state, spread, better=better)


def graph_card(graph: GraphView) -> Verdict:
    """How much of the graph is known to be wrong.

    A refuted claim shapes the table all the same, unless the spec asks to drop it.
    """
    if graph.validation:
        text = f"{many(len(graph.edges), 'arrow')}; " + "; ".join(
            f"{counts['refuted']} of {sum(counts.values())} {name} refuted by noisy tables"
            for kind, name in (("arrow", "given arrows"), ("independence", "implied independences"))
            if (counts := graph.validation["counts"].get(kind))
        )
        return verdicts.claims(graph.name, *_refuted(graph.validation), text)
    words = {
        "predict": "arrows say which columns predict which; they are no causes",
        "given": "given by the publisher, and not tested on the data",
        "learn": "found in noisy tables, with errors",
    }
    text = words.get(graph.mode, f"mode {graph.mode}")
    state: State = "unknown" if graph.mode in ("given", "learn") else "plain"
    better = "a test of the graph on the rows" if graph.mode == "given" else ""
    return Verdict(graph.name, many(len(graph.edges), "arrow"), text, state, better=better)


def _refuted(validation: Mapping[str, Any]) -> tuple[int, int]:
    """Claims that noisy tables refute, and those on which they give an answer."""
    refuted = sum(counts["refuted"] for counts in validation["counts"].values())
    supported = sum(counts["supported"] for counts in validation["counts"].values())
    return refuted, refuted + supported


def _audit_card(audit: Mapping[str, Any] | None) -> Verdict:
    """Whether an audit is published, and what it means."""
    if audit is None:
        text = "the guarantee rests on its proof; no attempt to refute it is published"
        better = "an audit on simulated rows"
        return Verdict("Audit", "none published", text, "unknown", better=better)
    figure = many(len(audit["audits"]), "mechanism") if audit["audits"] else "made"
    text = (
        f"without real rows, {audit['day']}: nothing speaks against the claim; an audit can refute"
        " a claim and never prove one"
    )
    return Verdict("Audit", figure, text, "good")


# --- uses ---
#
# What the published table is fit for, by use; from public figures alone.


def public_uses(content: PublicContent, columns: Sequence[Column]) -> Iterator[Verdict]:
    """The four uses, the easiest first."""
    yield _code(content, columns)
    yield _tables(content, columns)
    yield _models(content, columns)
    yield _effects(content)


def _code(content: PublicContent, columns: Sequence[Column]) -> Verdict:
    """Types and values are the declared ones; columns must look about as they do."""
    score, bound = score_of(content, "tv1"), columns_bound(columns)
    text = "columns off by so much, on average (0 is equal, 1 is disjoint)"
    if score is not None:
        state = verdicts.ROUGH.within(score["value"], score["low"], score["high"])
        figure = shown(score, state)
    elif bound is None:
        state, figure = "unknown", "not known"
    else:
        state = "good" if bound < verdicts.ROUGH.fair else "unknown"
        figure = f"at most {number(bound)}"
    better = "" if state == "good" else "fewer bins or a larger epsilon"
    return _use("Teaching and code", figure, text, state, content.floors.get("tv1"), better)


def _tables(content: PublicContent, columns: Sequence[Column]) -> Verdict:
    """Declared estimands answer best; else pairs of columns decide."""
    loose = looseness(content.estimands)
    if loose is not None:
        text = "half an interval over its estimate, median of the estimands: use these figures"
        state = verdicts.LOOSE.state(loose)
        return Verdict("Shares and tables", f"{loose:.0%}", text, state, use=True)
    pairs, noise = pairs_card(content), verdicts.noisy_columns(c.by_noise for c in columns)
    text = "pairs of columns off by so much, on average" if pairs.floor else pairs.text
    state, advice = pairs.state, ""
    if state == "unknown" and noise.state == "bad":
        state, text = "bad", f"{text}; noise hides the shape of {noise.number} columns"
    if state == "good":  # shares are near; intervals computed from the rows never are
        state, advice = "fair", "take intervals from synthdp answer, not from the rows"
    return replace(
        pairs, heading="Shares and tables", text=text, state=state, advice=advice, use=True
    )


def _models(content: PublicContent, columns: Sequence[Column]) -> Verdict:
    """Whether what is learnt on these rows beats the constant guess on real ones."""
    scores = [s for s in content.facts["scores"] if s["target"]]
    if not scores:
        text = "how models that learn from these rows do on real ones was not paid for"
        better = NOT_PAID + ", and columns to predict"
        return Verdict("Models", "not published", text, "unknown", better=better, use=True)
    base = {c.name: float(c.noisy.max()) for c in columns}
    states = [_beats(s, base.get(s["target"])) for s in scores]
    score = scores[0]
    guess = base.get(score["target"])
    text = (
        f"of answers on {score['target']} are right on held-out real rows, after learning on these"
        f" (95% interval {score['low']:.1%} to {score['high']:.1%})"
    )
    if score["low"] <= 0 and score["high"] >= 1:
        text = (
            f"nothing can be said of models of {score['target']} on real rows: the interval is the"
            " whole range"
        )
        better = "a larger share for scores, or a larger epsilon"
        return Verdict("Models", "not known", text, "unknown", better=better, use=True)
    state = verdicts.worst(states)
    figure = shown(score, state) if score["value"] is None else f"{score['value']:.1%}"
    verdict = Verdict("Models", figure, text, state, use=True)
    if guess is None:
        return verdict
    better = "" if verdict.state == "good" else "a larger epsilon, or a larger share for targets"
    return replace(verdict, floor=f"always the commonest answer: {guess:.1%}", better=better)


def _beats(score: Score, guess: float | None) -> State:
    """Green only where the whole interval is above the constant guess."""
    if score["value"] is None or guess is None:
        return "unknown"
    if score["low"] > guess:
        return "good"
    if score["high"] <= guess:
        return "bad"
    return "unknown" if score["low"] < guess - 0.1 else "fair"


def _effects(content: PublicContent) -> Verdict:
    """Effects need a causal graph that the data do not refute."""
    name, graph = "Effects", content.graph
    asked = [f for e in content.estimands if e.get("kind") == "effect" for f in e["figures"]]
    known = sum(1 for f in asked if f.get("interval"))
    if known:
        text = "declared effects have intervals; they are right if the right columns were adjusted"
        advice = "for other effects ask synthdp effect"
        return Verdict(name, f"{known} of {len(asked)}", text, "fair", advice=advice, use=True)
    if graph.mode in ("none", "predict"):
        text = "the model claims no causes, and nothing of what would change if one were set"
        better = "a graph that is declared or learned"
        return Verdict(name, "no causes", text, "bad", better=better, use=True)
    return replace(graph_card(graph), heading=name, use=True)


def _use(
    heading: str, figure: str, text: str, state: State, floor: float | None, better: str
) -> Verdict:
    beside = "" if floor is None else f"another sample of as many real rows: {floor:.2g}"
    return Verdict(heading, figure, text, state, beside, better=better, use=True)


# --- dp scores ---
#
# DP scores on the public report: sentences and a table, from the certificate's facts.


Scores = Sequence[Mapping[str, Any]]


def learning_sentences(scores: Scores) -> Iterator[str]:
    """A sentence for each published accuracy."""
    for s in scores:
        if s["target"]:
            yield (
                f"A logistic regression that learnt {s['target']} on the synthetic rows is right on"
                f" {_value(s)} of real rows that were held out (95% interval {number(s['low'])} to"
                f" {number(s['high'])})."
            )


def score_table(scores: Scores) -> ReportTable:
    """All scores with the noisy counts from which they follow."""
    rows = tuple(
        (
            s["name"],
            s["target"] or "",
            _value(s),
            number(s["low"]),
            number(s["high"]),
            ", ".join(map(str, s["counts"])),
            number(s["sigma"]),
        )
        for s in scores
    )
    headings = (
        "score",
        "target",
        "value",
        "from",
        "to",
        "noisy counts",
        "noise (standard deviation)",
    )
    return ReportTable("Scores on real rows, with noise that was paid for", headings, rows)


def _value(score: Mapping[str, Any]) -> str:
    return "hidden by noise" if score["value"] is None else number(score["value"])


# --- estimands ---
#
# The estimands of a release on its public report: pictures of intervals, and a table.


MAX_PICTURES = 20
MAX_DRAWN = 40  # figures of one estimand
IN_HALVES = "coefficients in halves of their intervals: beyond 1 and -1 they are not zero"

LEVELS = ("mean", "quantile", "count")

Drawn = tuple[str, list[tuple[float, float, float]]]


def estimand_pictures(estimands: Estimands) -> Iterator[Picture]:
    """One picture for each estimand that has figures: points with their intervals."""
    for stated in estimands[:MAX_PICTURES]:
        # Where all terms are zero is mostly far from all rows: it would be far from all else, too.
        drawn = [f for f in stated["figures"] if f.get("group") != INTERCEPT]
        known = [f for f in drawn if f.get("interval")][:MAX_DRAWN]
        refused = sum(1 for f in stated["figures"] if not f.get("interval"))
        if not known:
            continue
        coefficients = stated["statistic"] == "coefficient"
        rows = [_coefficient(f) if coefficients else _figure(stated, f) for f in known]
        sentence = " ".join(f"{_capital(s)}." for s in stated["about"])
        if refused:
            has = "has" if refused == 1 else "have"
            sentence += f" {many(refused, 'group')} {has} no figure: the table below says why."
        alt = f"Estimates with 95% intervals: {stated['text']}"
        label = IN_HALVES if coefficients else stated["statistic"]
        # From 0 on where that means something: a mean's interval would be a dot far away from it.
        origin = None if stated["statistic"] in LEVELS else 0.0
        svg = charts.intervals(rows, label=label, alt=alt, origin=origin)
        yield Picture(stated["text"], Markup(svg), sentence)


def _figure(stated: Mapping[str, Any], figure: Mapping[str, Any]) -> Drawn:
    value, (low, high) = figure["estimate"], figure["interval"]
    told, *ends = (_stated_value(stated, v) for v in (value, low, high))
    name = f"{figure.get('group') or 'all'}: {told}, {' to '.join(ends)}"
    return name, [(value, low, high)]


def _coefficient(figure: Mapping[str, Any]) -> Drawn:
    """Coefficients have different units: each is drawn in halves of its interval."""
    value, (low, high) = figure["estimate"], figure["interval"]
    half = (high - low) / 2 or 1.0
    name = f"{figure['group']}: {value:,.4g}, {low:,.4g} to {high:,.4g}"
    return name, [(value / half, low / half, high / half)]


def estimand_table(estimands: Estimands) -> ReportTable:
    """Every figure with its interval."""
    rows = tuple(
        (
            stated["text"],
            figure.get("group") or "",
            _stated_value(stated, figure["estimate"])
            if "estimate" in figure
            else figure["refused"],
            " to ".join(_stated_value(stated, end) for end in figure.get("interval", ())),
            number(figure.get("rows")),
        )
        for stated in estimands
        for figure in stated["figures"]
    )
    headings = ("estimand", "group", "estimate", "95% interval", "rows")
    return ReportTable("Estimands", headings, rows)


def _stated_value(stated: Mapping[str, Any], value: float) -> str:
    return f"{value:.1%}" if stated["statistic"] == "share" else f"{value:,.4g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
