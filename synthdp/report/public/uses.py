"""What the published table is fit for, by use; from public figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from synthdp.report import verdicts
from synthdp.report.measured_vs_synthetic import Column
from synthdp.report.parts import number
from synthdp.report.public.cards import (
    NOT_PAID,
    Score,
    columns_bound,
    graph_card,
    looseness,
    pairs_card,
    score_of,
    shown,
)
from synthdp.report.public.content import PublicContent
from synthdp.report.verdicts import State, Verdict


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
