"""DP scores on the public report: sentences and a table, from the certificate's facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthdp.report.parts import number
from synthdp.report.tables import ReportTable

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
