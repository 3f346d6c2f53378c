"""The cards at the top of the public report, from the certificate's facts and public tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from synthdp.report.graph_view import GraphView
from synthdp.report.measured_vs_synthetic import Column
from synthdp.report.parts import Card, number
from synthdp.report.public.content import PublicContent
from synthdp.report.public.dp_scores import score_cards

NEIGHBOURS = {"add_remove": "one unit more or less", "replace_one": "one unit replaced"}


def public_cards(content: PublicContent, columns: Sequence[Column]) -> Iterator[Card]:
    """All cards, in the order of the page."""
    facts = content.facts
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
    yield _audit_card(facts["audit"])
    if facts["signer"] is not None:
        yield Card("Signature", "signed", facts["signer"])
    else:
        yield Card("Signature", "unsigned", "nothing in the bundle proves who made it")


def _graph_card(graph: GraphView) -> Card:
    """How much of the graph is known to be wrong.

    A refuted claim shapes the table all the same, unless the spec asks to drop it.
    """
    counts = graph.validation["counts"] if graph.validation else {}
    words = [f"mode {graph.mode}"]
    if graph.predictive:
        words.append("arrows say which columns predict which; they are no causes")
    for kind, name in (("arrow", "given arrows"), ("independence", "implied independences")):
        if kind in counts:
            refuted, total = counts[kind]["refuted"], sum(counts[kind].values())
            words.append(f"{refuted} of {total} {name} refuted by noisy tables")
    any_refuted = any(statuses["refuted"] for statuses in counts.values())
    figure, state = f"{len(graph.edges)} arrows", "bad" if any_refuted else "plain"
    return Card(graph.name, figure, "; ".join(words), state)


def _audit_card(audit: Mapping[str, Any] | None) -> Card:
    """Whether an audit is published, and what it means."""
    if audit is None:
        text = (
            "the guarantee rests on its proof and accounting; no attempt to refute it is published"
        )
        return Card("Audit", "none published", text)
    figure = f"{len(audit['audits'])} mechanisms" if audit["audits"] else "made"
    text = (
        f"without real rows, {audit['day']}: nothing speaks against the claim; an audit can refute"
        " a claim and never prove one"
    )
    return Card("Audit", figure, text, "good")
