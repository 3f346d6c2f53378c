"""Published scores on the public report: cards, sentences and a table, from the certificate's
facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthdp.report.internal.appendix import ReportTable
from synthdp.report.internal.findings import number
from synthdp.report.parts import Card

Scores = Sequence[Mapping[str, Any]]

HEADINGS = {"tv1": "Distance to real rows, columns", "tv2": "Distance to real rows, pairs"}


def score_cards(scores: Scores) -> Iterator[Card]:
    """One card for each score."""
    for s in scores:
        interval = f"95% interval {number(s['low'])} to {number(s['high'])}, noise included"
        told = (
            "right answers of a model that learnt on synthetic rows"
            if s["target"]
            else f"mean total variation of {s['tables']} tables"
        )
        yield Card(
            HEADINGS.get(s["name"], f"Learning {s['target']}"), _value(s), f"{told}; {interval}"
        )


def learning_sentences(scores: Scores) -> Iterator[str]:
    """What each accuracy says; nothing where none is published."""
    for s in scores:
        if s["target"]:
            yield (
                f"A logistic regression that learnt {s['target']} on the synthetic rows is right on"
                f" {_value(s)} of real rows that were held out (95% interval {number(s['low'])} to"
                f" {number(s['high'])})."
            )


def score_table(scores: Scores) -> ReportTable:
    """All scores with the noisy counts that they follow from."""
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
