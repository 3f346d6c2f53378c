"""The steward's report: one self-contained HTML page and the same numbers as JSON. Confidential.

Everything in it was computed on real rows without noise. It is therefore written to a folder of its
own, apart from the bundle. The page needs no network and no script, and its content policy forbids
both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, starmap
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from synthdp.data.domain import ColumnDomain
from synthdp.evaluate.effects import KINDS
from synthdp.evaluate.fidelity import FidelityReport
from synthdp.evaluate.run import EvaluationReport
from synthdp.evaluate.visits import RealFigures, VisitScore
from synthdp.files import private_folder, write_private
from synthdp.report import verdicts
from synthdp.report.internal import sections
from synthdp.report.internal.content import ATTACK, EVALUATION, ReportContent
from synthdp.report.internal.sections import analysis_tables, misfit_table, tables
from synthdp.report.prose import estimated, number, say, template
from synthdp.report.sections import (
    PageLimits,
    ReportTable,
    Section,
    audit_tables,
    budget_left,
    conclusion,
    graph_section,
    most_advantage,
    render_page,
    room,
    yes,
)
from synthdp.report.verdicts import FEW, MISSED, Bounds, State, Verdict, told_apart
from synthdp.spec.load.wording import many

LIMITS = tuple(starmap(PageLimits, ((5000, 300, 24), (1000, 60, 24), (200, 20, 12), (20, 0, 4))))


def write_internal_report(folder: Path, content: ReportContent) -> Path:
    """Write `internal.html` and `internal.json` into `folder`, for their owner alone.

    `folder` is made if missing. The page's path is returned.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    private_folder(folder)
    page = folder / "internal.html"
    write_private(page, render(content))
    # A section on each line: to indent the matrices of a wide table takes longer than all else.
    parts = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in content.to_json().items()
    )
    write_private(folder / "internal.json", "{\n" + ",\n".join(parts) + "\n}\n")
    return page


def render(content: ReportContent) -> str:
    """The page as HTML text; see `render_page`."""
    report, budget, attack = content.evaluation, content.budget, content.attack
    misfits = content.misfits
    # The page's curve is of all attacks together, whatever was declared.
    whole = attack_card({k: v for k, v in (attack or {}).items() if k != "declared"})
    view = {
        "content": content,
        "protects": say(
            "protects", unit=budget.unit, adjacency=budget.adjacency, **_reach(content)
        ),
        "uses": [*report_uses(content)],
        "verdicts": [*report_cards(content)],
        "lead": sections.gates(content.gates),
        "lost": content.fidelity and verdicts.above(content.fidelity.by_column),
        "budget_left": budget_left(
            budget.epsilon, budget.dataset_spent, budget.cap_epsilon, budget.filtered
        ),
        "numbers_file": "internal.json",
        "absent": say("missing_evaluation", report=report, why=content.absent.get(EVALUATION)),
        "budget": sections.budget(budget),
        "columns": sections.columns(content, most=LIMITS[0].overlays),
        "learning": sections.learning(report),
        "analysis": sections.analysis(report),
        "forecasts": sections.expected(content),
        "graph_name": content.graph.name if content.graph else "Causal graph",
        "graph": graph_section(content.graph),
        "attack": sections.attack_section(content, telling=whole.state != "unknown"),
        "audits": Section(conclusion(content.audits), tables=audit_tables(content.audits)),
        "association": sections.association_section(content.fidelity),
        "estimands": sections.estimands(content.estimands),
        "pairs": sections.pairs(report),
        "groups": sections.groups(report),
        "data": Section(sections.misfits(misfits), tables=[misfit_table(misfits)]),
        "declarable": sections.suggestions(content.suggestions),
        "analysis_tables": [*analysis_tables(report)],
    }
    return render_page("internal.html.j2", view, appendix=partial(tables, content), limits=LIMITS)


# --- the verdicts at the top: gates, attack, and what may be wrong ---


def report_cards(content: ReportContent) -> Iterator[Verdict]:
    """All verdicts, in the order of the page."""
    yield _gates(content)
    yield _guarantee(content)
    yield attack_card(content.attack, why=content.absent.get(ATTACK, "not run"))
    if content.evaluation is not None:
        yield from _apart(content.evaluation)
        yield from _intervals(content.evaluation)
        yield from _claims(content.evaluation)
    if content.fidelity is not None:
        yield from _shapes(content.fidelity)
        off = {c.name: _off(c, content.fidelity) for c in content.domain.columns if c.ranged}
        if off:
            heading, text = "Means that are wrong", say("wrong_means")
            yield verdicts.noisy(heading, text, off, limit=verdicts.LOOSE.fair, most=6)
    known = [e for e in content.estimands if e.covered is not None]
    if known:
        inside = sum(bool(e.covered) for e in known)
        missed = 1 - inside / len(known) - 0.05
        state = MISSED.state(missed) if len(known) >= FEW else "unknown"
        text = "released intervals hold the figure of all real rows; 95% of them should"
        yield Verdict("Estimands", f"{inside} of {len(known)}", text, state)
    values = sum(sum(kinds.values()) for kinds in content.misfits.values())
    text, figure = sections.misfits(content.misfits), f"{values:,} values" if values else "none"
    yield Verdict("Data problems", figure, text, "bad" if values else "good")


def _gates(content: ReportContent) -> Verdict:
    """How many gates passed; green only where one was on more than what the rows were fitted to."""
    text, better = sections.gates(content.gates), ""
    state: State = "good"
    figure = f"{sum(gate.passed for gate in content.gates)} of {len(content.gates)} passed"
    if not content.gates:
        figure, state = "none set", "unknown"
        better = "a gate on a published score: tv2_dp, with evaluation: {disclosure: private}"
    elif content.withheld:
        state = "bad"
    elif all(gate.metric == "tv1_noisy" for gate in content.gates):
        text += " It compares the rows with the counts that they were made to fit."
        state, better = "unknown", "a gate on tv2_dp can fail"
    elif any("noise decided" in gate.outcome for gate in content.gates):
        text, state = f"{text} Noise decided: see the table.", "fair"
        better = "a larger evaluation.disclosure_share, or a bound further off"
    return Verdict("Gates", figure, text, state, better=better)


def _reach(content: ReportContent) -> dict[str, Any]:
    known = most_advantage(content.profile) if content.profile else None
    return {"advantage": known, "search": content.budget.search}


def _guarantee(content: ReportContent) -> Verdict:
    budget = content.budget
    card = verdicts.guarantee(budget.epsilon_planned, budget.delta, **_reach(content))
    if budget.epsilon_planned <= budget.epsilon:
        return card
    return Verdict(card.heading, card.number, f"over the budget of {budget.epsilon:g}", "bad")


def attack_card(attack: Mapping[str, Any] | None, *, why: str = "not run") -> Verdict:
    """The declared attack that tells most; one that refutes the claim comes first.

    `why` stands where there is none.
    """
    if not attack:
        text = "sanity, not proof: the guarantee rests on its proof"
        return Verdict("Membership attack", why, text, "unknown")
    found = []
    for row in attack.get("declared") or (attack.get("main") or attack,):
        gap = row.get("shared_advantage", row.get("advantage"))
        if isinstance(gap, Mapping):
            value, low, high = (float(gap[end]) for end in ("value", "lower", "upper"))
            found.append((not row.get("refutes_claim", False), high - low, value, low, high, row))
    if not found:
        text = sections.attack_finding(attack)
        return Verdict("Membership attack", "cannot tell", text, "unknown")
    _, _, value, low, high, row = min(found, key=lambda each: each[:2])
    ceiling = (attack.get("claim") or {}).get("ceiling_advantage", attack.get("ceiling"))
    return verdicts.attack(
        value,
        low,
        high,
        ceiling=1.0 if ceiling is None else float(ceiling),
        trials=f"{row.get('models', 'few')} tests in each world"
        f" ({row.get('attack', 'shadow models')})",
        refuted=bool(attack.get("refutes_claim", False)),
    )


def _apart(report: EvaluationReport) -> Iterator[Verdict]:
    same = [r.auc for r in report.two_sample if r.compared == "real from real"]
    if (best := report.told_apart) is not None:
        yield verdicts.told_apart(best.auc, best.low, best.high, floor=max(same, default=None))


def _intervals(report: EvaluationReport, kinds: Sequence[str] = KINDS) -> Iterator[Verdict]:
    """The kind of figure that intervals on synthetic rows miss most often."""
    every = [r for r in report.coverage if r.kind in kinds]
    known = [r for r in every if r.figures >= FEW] or every
    if known:
        row = min(known, key=lambda r: r.synthetic)
        yield verdicts.coverage(row.kind, row.synthetic, row.figures, floor=row.held_out)


def _claims(report: EvaluationReport) -> Iterator[Verdict]:
    implied = report.independences
    if implied is not None and implied.rows:
        text = say("untrue_claims", kept=implied.kept("synthetic"))
        wrong = len(implied.rows) - implied.kept("real")
        yield verdicts.claims("Graph", wrong, len(implied.rows), text)


def _off(column: ColumnDomain, near: FidelityReport) -> float:
    """How far the mean of the rows is from the real one, over that one's distance from the end."""
    real, drawn = (
        float(np.average(column.centres, weights=shares)) if shares.any() else column.lower
        for table in (near.shares_real, near.shares_synthetic)
        for shares in [np.asarray(table[column.name])[: len(column.centres)]]
    )
    return abs(drawn - real) / room(column, real)


def _gone(near: FidelityReport, pairs: Iterable[tuple[str, str]]) -> tuple[int, int]:
    """How many of `pairs` lost half their association or more, and of how many: those that the real
    rows show.
    """
    place = {name: i for i, name in enumerate(near.by_column)}
    ends = np.array([(place[a], place[b]) for a, b in pairs], dtype=int).reshape(-1, 2).T
    real, drawn = (t[tuple(ends)] for t in (near.association_real, near.association_synthetic))
    shown = real >= verdicts.CHANGED.fair
    return int((shown & (drawn < real / 2)).sum()), int(shown.sum())


def _shapes(near: FidelityReport) -> Iterator[Verdict]:
    if len(near.by_column) > 1:
        largest = float(np.abs(np.triu(near.association_difference, 1)).max())
        state, text = verdicts.CHANGED.state(largest), sections.association_text(near)
        yield Verdict("Largest change of a pair", number(largest), text, state)
    lost = verdicts.above(near.by_column)
    state = verdicts.NOISY_COLUMNS.state(len(lost) / len(near.by_column))
    text = f"{verdicts.NOISY_SHAPE:.0%} or more of their rows would have to move"
    if lost:
        text += f": {', '.join(lost[:4])}{', ...' if len(lost) > 4 else ''}"
    better = "fewer bins or categories, or a larger epsilon"
    figure = f"{len(lost)} of {len(near.by_column)}"
    yield Verdict("Columns whose shape is lost", figure, text, state, better=better)


# --- what the table is fit for, by use, from figures on real rows ---


def report_uses(content: ReportContent) -> Iterator[Verdict]:
    """The uses, the easiest first; none without an evaluation."""
    report, near = content.evaluation, content.fidelity
    if report is None or near is None:
        return
    text = "columns off by so much, on average (total variation: 0 is equal, 1 is disjoint)"
    state = verdicts.ROUGH.state(near.tv1)
    lost = verdicts.above(near.by_column)
    if lost and state == "good":
        state, text = "fair", f"{text}; the shape of {', '.join(lost[:4])} is lost"
    better, beside = "fewer bins, or a larger epsilon", _equal(report, "tv1")
    yield _use("Teaching and code", number(near.tv1), text, state, beside, better)
    text, state = "pairs of columns off by so much, on average", verdicts.PAIRS.state(near.tv2)
    for card in _intervals(report, KINDS[:1]):
        if state == "good" and card.state != "good":
            state = "fair"  # shares are near, and what an analyst says of their error is not
        text += f"; {card.number} of 95% intervals of shares of levels hold the real figure"
    gone, shown = _gone(near, combinations(near.by_column, 2))
    if shown:
        state = verdicts.worst((state, verdicts.GONE.state(gone / shown)))
        text += f"; {gone} of {many(shown, 'pair')} that go together do so no longer"
    better, beside = "estimands for the figures that matter", _equal(report, "tv2")
    yield _use("Shares and tables", number(near.tv2), text, state, beside, better)
    yield _models(report)
    yield Verdict("Coefficients", "by copies alone", say("coefficients"), use=True)
    yield _effects(content, report)


def _use(heading: str, figure: str, text: str, state: State, floor: str, better: str) -> Verdict:
    return Verdict(heading, figure, text, state, floor, better=better, use=True)


def _models(report: EvaluationReport) -> Verdict:
    real, synthetic = report.utility.mean_auc_real, report.utility.mean_auc_synthetic
    if real is None or synthetic is None:
        text, better = "no classifier could be judged", "columns to predict: evaluation.targets"
        return _use("Prediction", "not judged", text, "unknown", "", better)
    state: State = "unknown"
    text = "mean AUC on held-out real rows, learnt on synthetic ones"
    if real > verdicts.LEARNABLE:
        rows = [r for r in report.utility.rows if r.metric == "auc" and r.low is not None]
        lost = 1 - (synthetic - 0.5) / (real - 0.5)
        ends = [
            fmean(getattr(r, end) for r in rows) / (real - 0.5) for end in ("low", "high") if rows
        ]
        state = verdicts.LOST.within(*(ends or (lost, lost)))
        text += f"; {max(lost, 0):.0%} of what real rows teach beyond guessing is lost"
    beside = f"learnt on real rows: {real:.3g}"
    better = "a larger epsilon, or a larger share for targets"
    return _use("Prediction", number(synthetic), text, state, beside, better)


def _effects(content: ReportContent, report: EvaluationReport) -> Verdict:
    """Effects need a causal graph that the real rows do not refute, or figures of their own."""
    asked = [e for e in content.estimands if e.statistic in ("effect", "coefficient")]
    known = sum(e.interval is not None for e in asked)
    of_effects = all(e.statistic == "effect" for e in asked)
    figures = f"{known} of {len(asked)}", say("asked_effect" if of_effects else "asked_regression")
    if content.graph is None or content.graph.mode in ("none", "predict"):
        if known:
            return _use("Effects", *figures, "fair", "", "a graph that is validated")
        text = "the model claims no causes, and nothing of what would change if one were set"
        return _use("Effects", "no causes", text, "bad", "", "graph.mode: given or validate")
    cards = [*_claims(report)]
    states, told = [card.state for card in cards], [card.text for card in cards]
    if content.fidelity is not None:
        gone, shown = _gone(content.fidelity, [edge[:2] for edge in content.graph.edges])
        if shown:
            states.append(verdicts.GONE.state(gone / shown))
            told.append(f"{gone} of {many(shown, 'arrow')} that the rows show are lost")
    if known:  # these are right where the rows' own are not
        state = verdicts.worst(["fair", *states])
        text = "; ".join((figures[1], *told))
        return _use("Effects", figures[0], text, state, "", "a graph that is validated")
    compared = [e for e in report.effects if e.covered is not None]
    if compared:
        held = sum(bool(e.covered) for e in compared)
        missed = 1 - held / len(compared)
        enough = len(compared) >= FEW or missed > 0
        states.append(MISSED.state(missed) if enough else "unknown")
        told.append(f"{held} of {len(compared)} declared effects hold the real estimate")
    text = "; ".join(told) or "no claim of the graph could be tested, and no effect is declared"
    figure = cards[0].number if cards else "not tested"
    better = "estimands of kind effect, and a graph that is validated"
    return _use("Effects", figure, text, verdicts.worst(states), "", better)


def _equal(report: EvaluationReport, name: str) -> str:
    """Held-out real rows beside as many synthetic ones."""
    drawn, real = getattr(report.equal, name, None), getattr(report.floor, name, None)
    if drawn is None or real is None:
        return ""
    return f"in samples of equal size: synthetic {drawn:.2g}, held-out real {real:.2g}"


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
    write_private(page, render_visits(content))
    return page


def render_visits(content: VisitJudgement) -> str:
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
