"""The public report on persons with visits: one page of noisy tables beside the synthetic ones.

It takes plain public values alone, as the page of one table does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from synthdp import drawing
from synthdp.evaluate.visits import Compared, VisitScore
from synthdp.report import verdicts
from synthdp.report.prose import estimated, number, say, svg_image, template
from synthdp.report.public import sections
from synthdp.report.public.content import noise_distance
from synthdp.report.sections import Picture, ReportTable, most_advantage
from synthdp.report.verdicts import Bounds, Verdict
from synthdp.spec.load.wording import many
from synthdp.spec.model import VISIT_SCORES

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pair(Compared):
    """One noisy table beside the synthetic one, as the page shows it."""

    @property
    def name(self) -> str:
        """Its columns."""
        return ", ".join(self.columns)

    @cached_property
    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Shares of all cells, noisy and synthetic; what noise made negative is none."""
        kept = (np.maximum(counts, 0.0) for counts in (self.noisy, self.synthetic))
        one, two = (counts / max(float(counts.sum()), 1e-9) for counts in kept)
        return one, two

    @property
    def distance(self) -> float:
        """Total variation between both."""
        return float(np.abs(self.shares[0] - self.shares[1]).sum() / 2)

    @property
    def by_noise(self) -> float:
        """Upper bound of the expected total variation of the noise alone."""
        return noise_distance(self.noisy, self.sigma)

    def summed(self) -> Pair:
        """The table of the last column alone: noise adds up before anything is cut off."""
        left = tuple(range(self.noisy.ndim - 1))
        return replace(
            self,
            columns=self.columns[-1:],
            labels=self.labels[-1:],
            noisy=self.noisy.sum(left),
            synthetic=self.synthetic.sum(left),
            sigma=self.sigma * math.sqrt(math.prod(self.noisy.shape[:-1])),
        )

    def drawn(self, title: str, what: str) -> Picture:
        """Paired bars of the 16 commonest cells."""
        cells = (drawing.short(" → ".join(names), 30) for names in product(*self.labels))
        one, two = self.shares
        both = zip(cells, one.ravel().tolist(), two.ravel().tolist(), strict=True)
        rows = [row for row in both if max(row[1:]) > 0]
        if len(rows) > 16:
            rows = sorted(rows, key=lambda row: (-row[1], row[0]))[:16]
        told = f"{what} {self.distance:.1%} of the rows would have to move to make both alike."
        return Picture(
            title, Markup(drawing.bars(rows, left=196.0, wide=110.0, alt=f"{title}. {told}")), told
        )


@dataclass(frozen=True, kw_only=True)
class VisitContent:
    """What the page shows. All of it stands in other files of the bundle, or follows from them.

    `facts` are the certificate's, `profile` has points (epsilon, delta), `effects` and `graph` are
    pictures. `expected` has what noise was expected to make of each score before any row was read.
    `compared` has every noisy table with its purpose; `numbers` and `ends` are of persons, `steps`
    from visit to visit, `singles` of one column. `gates` are those that held, in words.
    """

    facts: Mapping[str, Any]
    persons: int
    day: str
    mode: str
    arrows: int
    profile: Sequence[tuple[float, float]]
    effects: str
    graph: str
    scores: Sequence[VisitScore]
    expected: Mapping[str, float]
    gates: Sequence[str]
    numbers: Pair
    ends: Pair
    steps: Sequence[Pair]
    singles: Sequence[Pair]
    every: Sequence[Pair]


def render_visits(content: VisitContent) -> str:
    """The page as HTML text."""
    facts = content.facts
    worst = sorted(content.singles, key=lambda pair: -pair.distance)
    rows = [(p.view, p.name, number(p.distance), number(p.by_noise)) for p in content.every]
    columns = ("rows of", "columns", "total variation, synthetic against noisy", "noise alone")
    most = 24  # columns that are drawn
    text: str = template("visits.html.j2").render(
        content=content,
        facts=facts,
        title=facts["title"] or facts["dataset"],
        uses=[*visit_uses(content)],
        verdicts=[*visit_cards(content)],
        budget=sections.budget(facts),
        effects=svg_image(content.effects),
        numbers=content.numbers.drawn("Visits of a person", "How many visits persons have."),
        ends=content.ends.drawn("How visits end", "What comes after the last visit that is kept."),
        steps=[
            p.drawn(p.columns[-1], "From the visit before to the next.") for p in content.steps[:8]
        ],
        singles=[p.drawn(p.name, f"Rows of {p.view}.") for p in worst[:most]],
        left_out=max(0, len(worst) - most),
        scores=score_table(content),
        tables=ReportTable("Every noisy table", columns, tuple(rows)),
        graph=svg_image(content.graph),
        numbers_file="marginals.json",
    )
    return text


def score_table(content: VisitContent) -> ReportTable:
    """Every score, with what noise was expected to make of it, and what it may have made."""
    rows = (
        {
            "score": WORDS[s.name][0],
            "tables": str(s.tables),
            "distance to the real tables": estimated(s.value, s.low, s.high),
            "another sample": number(s.floor),
            "noise, expected": number(content.expected.get(s.name)),
            "noise, as it came": number(s.noise),
        }
        for s in content.scores
    )
    return ReportTable.of("Scores, and what was expected of their noise", rows)


# --- the first screen: what it is good for, and the verdicts ---

WORDS: dict[str, tuple[str, str, Bounds]] = {
    "tv_persons_dp": ("Columns of persons", "an average column of persons", verdicts.COLUMNS),
    "tv_counts_dp": ("How many visits", "the number of visits", verdicts.COLUMNS),
    "tv_first_dp": ("First visits", "an average column of first visits", verdicts.COLUMNS),
    "tv_last_dp": ("Last visits", "an average column of last visits", verdicts.COLUMNS),
    "tv_steps_dp": ("From visit to visit", "an average column with its own past", verdicts.PAIRS),
}
"""Of each score its heading, what it is about, and from where on it needs care."""
BETTER = "fewer levels or bins, a larger epsilon, or more of privacy.shares for these tables"


def _card(score: VisitScore, bounds: Bounds) -> Verdict:
    """A distance, by the worse end of what the noise may hide."""
    heading, what, _ = WORDS[score.name]
    text = say("bounded", score=score, what=what)
    card = verdicts.distance(heading, score.to_json(), bounds, text, floor=score.floor)
    return replace(card, better=BETTER)


def visit_cards(content: VisitContent) -> Iterator[Verdict]:
    """All verdicts, in the order of the page."""
    facts = content.facts
    advantage = most_advantage(content.profile) if content.profile else None
    yield verdicts.guarantee(facts["epsilon"], facts["delta"], advantage=advantage)
    for score in content.scores:
        yield _card(score, WORDS[score.name][2])
    for heading, pairs in (
        ("Columns whose shape is noise", content.singles),
        ("Steps whose table is noise", content.steps),
    ):
        parts = {p.name: p.by_noise for p in pairs}
        yield verdicts.noisy(heading, say("noisy_shapes"), parts, most=6)
    predicts = content.mode == "predict"
    told = "predict which columns come with which; they are no causes"
    told = told if predicts else "were given by the publisher, and not tested on the data"
    name, state = ("Predictive graph", "plain") if predicts else ("Causal graph", "unknown")
    yield Verdict(name, many(content.arrows, "arrow"), f"its arrows {told}", state)  # type: ignore[arg-type]
    text = "the guarantee rests on its proof; no attempt to refute it is published"
    yield Verdict("Audit", "none published", text, "unknown")


def visit_uses(content: VisitContent) -> Iterator[Verdict]:
    """What the two tables are fit for, the easiest first: by public figures alone."""
    known = {s.name: s for s in content.scores}

    def of(heading: str, names: Sequence[str], bounds: Bounds, advice: str = "") -> Verdict:
        own = [known[name] for name in names if name in known]
        if not own:
            return Verdict(heading, "not measured", "no noisy table tells", "unknown", use=True)
        worst = max(own, key=lambda score: score.high)
        return replace(_card(worst, bounds), heading=heading, advice=advice, use=True)

    columns = ("tv_persons_dp", "tv_first_dp", "tv_last_dp")
    yield of("Teaching and code", VISIT_SCORES[:4], verdicts.ROUGH)
    yield of("Shares of one column", columns, verdicts.COLUMNS)
    yield of("Numbers of visits", ("tv_counts_dp",), verdicts.COLUMNS)
    advice = "what hangs on two visits before, or more, is not in these tables"
    steps = of("Courses from visit to visit", ("tv_steps_dp",), verdicts.PAIRS, advice)
    yield steps
    state = "bad" if steps.state == "bad" else "unknown"
    text = "how models that learn what comes next do on real visits was not measured"
    yield Verdict("Prediction", "not known", text, state, use=True)  # type: ignore[arg-type]
    if content.mode != "given":
        text = "the model claims no causes, and nothing of what would change if one were set"
        yield Verdict("Effects", "no causes", text, "bad", use=True)
    else:
        text = "they follow the given arrows, which nothing here tested; rows have no intervals"
        yield Verdict("Effects", "not tested", text, "unknown", use=True)
