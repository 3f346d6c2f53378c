"""The verdicts at the top of the public report, from the certificate's facts and public tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from synthdp.report import verdicts
from synthdp.report.graph_view import GraphView
from synthdp.report.guarantee import most_advantage
from synthdp.report.measured_vs_synthetic import Column
from synthdp.report.parts import number
from synthdp.report.public.content import PublicContent
from synthdp.report.verdicts import Bounds, State, Verdict
from synthdp.spec.wording import many

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
