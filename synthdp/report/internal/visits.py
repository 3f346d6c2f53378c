"""The internal report on persons with visits: figures on real persons, for the steward alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.evaluate.real_visits import RealFigures
from synthdp.evaluate.visits import VisitScore
from synthdp.files import private_folder, write_private
from synthdp.report import verdicts
from synthdp.report.prose import estimated, number, template
from synthdp.report.sections import ReportTable, yes
from synthdp.report.verdicts import Bounds, Verdict, told_apart

HEADINGS: dict[str, tuple[str, Bounds]] = {
    "persons": ("Columns of persons", verdicts.COLUMNS),
    "counts": ("How many visits", verdicts.COLUMNS),
    "visits": ("Columns of visits", verdicts.COLUMNS),
    "first": ("First visits", verdicts.COLUMNS),
    "last": ("Last visits", verdicts.COLUMNS),
    "steps": ("From visit to visit", verdicts.PAIRS),
}
"""Of each distance its heading, and from where on it needs care."""


@dataclass(frozen=True, kw_only=True)
class VisitJudgement:
    """What the page shows: `facts` of the certificate, the public scores, and what was found on
    real persons, or the kind of the error that kept it from being found. `held_out` is the chance
    of a person to be kept out of the release.
    """

    facts: Mapping[str, Any]
    day: str
    scores: Sequence[VisitScore]
    found: RealFigures | None
    absent: str = ""
    held_out: float = 0.0

    @property
    def others(self) -> tuple[str, str]:
        """What real persons' own figures are of, and what their trees learnt on."""
        if self.held_out:
            return "the persons held out from the others", "the persons that were not held out"
        return "one half of the real persons from the other", "the other half of the real persons"


def write_internal_visits(folder: Path, content: VisitJudgement) -> Path:
    """Write `internal.html` and `internal.json` into `folder`, for their owner alone; the page's
    path is returned.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    private_folder(folder)
    found = None if content.found is None else content.found.to_json()
    told = {"run": content.facts["run"], "figures": found, "absent": content.absent}
    write_private(folder / "internal.json", json.dumps(told, indent=1) + "\n")
    page = folder / "internal.html"
    write_private(page, render(content))
    return page


def render(content: VisitJudgement) -> str:
    """The page as HTML text."""
    text: str = template("internal_visits.html.j2").render(
        content=content,
        facts=content.facts,
        title=content.facts["title"] or content.facts["dataset"],
        verdicts=[*cards(content)],
        tables=[] if content.found is None else [distance_table(content, content.found)],
        numbers_file="internal.json",
    )
    return text


def cards(content: VisitJudgement) -> Iterator[Verdict]:
    """The verdicts, in the order of the page."""
    found = content.found
    if found is None:
        return
    for name, (heading, bounds) in HEADINGS.items():
        value, other = found.distances[name]
        state = bounds.state(value)
        state = "good" if state == "fair" and value <= other else state
        text = "mean total variation from the real persons that the release was made of"
        floor = f"{content.others[0]}: {number(other)}"
        yield Verdict(heading, number(value), text, state, floor)
    value, other = found.apart
    card = told_apart(value, value, value, floor=other)
    text = "AUC of trees on sums over a person's visits; 0.5 is guessing"
    yield Verdict("Told from real persons", card.number, text, card.state, card.floor, card.advice)
    for target, both in found.learnt.items():
        text = "AUC on real persons of trees that learnt on synthetic visits what comes next"
        heading = f"Learning {target}"
        if both is None:
            yield Verdict(heading, "not judged", text, "unknown")
            continue
        value, real = both
        lost = (real - value) / max(real - 0.5, 1e-9)
        state = verdicts.LOST.state(lost) if real >= verdicts.LEARNABLE else "unknown"
        floor = f"learnt on {content.others[1]}: {real:.3f}"
        yield Verdict(heading, f"{value:.3f}", text, state, floor)


def distance_table(content: VisitJudgement, found: RealFigures) -> ReportTable:
    """Distances beside what the public scores say of them."""
    public = {s.name: s for s in content.scores}
    rows = []
    for name, (heading, _) in HEADINGS.items():
        value, other = found.distances[name]
        score = public.get(f"tv_{name}_dp")
        told = "" if score is None else estimated(score.value, score.low, score.high)
        held = None if score is None else score.low <= value <= score.high
        rows.append((heading, number(value), number(other), told, yes(held)))
    columns = ("figure", "synthetic", "other real persons", "public score", "holds it")
    return ReportTable("Distances, mean total variation", columns, tuple(rows))
