"""Verdicts at the top of both reports: the one place that decides what is good and what is not.

Green (`good`) is only for what was tested and could have failed. What nothing was tested about is
`unknown`, and a mere fact is `plain`. The bounds are reading aids of this project, not laws: a gate
of the spec is what binds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from synthdp.report.prose import estimated, number, say
from synthdp.spec.load.wording import up

State = Literal["good", "fair", "bad", "unknown", "plain"]
WORDS: dict[State, str] = {
    "good": "good",
    "fair": "take care",
    "bad": "problem",
    "unknown": "cannot tell",
    "plain": "",
}
USES: dict[State, str] = WORDS | {"good": "yes", "fair": "with care", "bad": "no"}
_ORDER: tuple[State, ...] = ("bad", "fair", "unknown", "good", "plain")


@dataclass(frozen=True)
class Verdict:
    """One card: what was looked at, its state in one look, the number, and what it means.

    `floor` is what chance or another sample of the same size would give. `advice` is for whoever
    reads the page; `better` is what would improve a next release, where it is not good. `use` says
    that it is about a use, which is answered by yes or no.
    """

    heading: str
    number: str
    text: str
    state: State = "plain"
    floor: str = ""
    advice: str = ""
    better: str = ""
    use: bool = False

    @property
    def word(self) -> str:
        """The state in words, for those who see no colours."""
        return (USES if self.use else WORDS)[self.state]


@dataclass(frozen=True)
class Bounds:
    """From `fair` on a figure needs care, from `bad` on it is a problem. Larger is worse."""

    fair: float
    bad: float

    def state(self, value: float | None) -> State:
        """The state of a figure; None cannot be told."""
        if value is None:
            return "unknown"
        return "bad" if value >= self.bad else "fair" if value >= self.fair else "good"

    def within(self, low: float, high: float) -> State:
        """The state of a figure by its interval: that of the worse end, `high`.

        It cannot be told where the interval reaches from what is good to what is a problem.
        """
        if self.state(low) == "good" and self.state(high) == "bad":
            return "unknown"
        return self.state(high)


EPSILON = Bounds(5, 10)  # from 5 on, the bound on what can be learned says next to nothing
ROUGH = Bounds(0.15, 0.4)  # total variation of columns, for code and teaching
COLUMNS = Bounds(0.05, 0.15)  # total variation
PAIRS = Bounds(0.1, 0.25)
NOISY_SHAPE = 0.15  # of a column's rows that noise alone may move: its shape is then noise
NOISY_COLUMNS = Bounds(1e-9, 0.34)  # part of the columns
APART = Bounds(0.6, 0.75)  # AUC of telling synthetic from real rows
MISSED = Bounds(0.1, 0.25)  # part of 95% intervals that miss the real figure
REFUTED = Bounds(1e-9, 0.1)  # part of the graph's claims
LOST = Bounds(0.1, 0.3)  # part of what is learnt on real rows beyond guessing
LOOSE = Bounds(0.25, 1.0)  # half an estimand's interval, over its estimate
CHANGED = Bounds(0.1, 0.2)  # Cramér's V
GONE = Bounds(0.1, 0.5)  # part of the pairs that go together in the real rows, and not in these
FEW = 10  # figures of which a part says little
LEARNABLE = 0.55  # AUC of learning on real rows, below which there is nothing to learn


def worst(states: Iterable[State]) -> State:
    """The most important of several states."""
    return min(states, key=_ORDER.index, default="unknown")


def guarantee(
    epsilon: float,
    delta: float,
    *,
    advantage: float | None,
    search: tuple[float, float] | None = None,
) -> Verdict:
    """Epsilon is proved and not tested, so that it is never green.

    `advantage` is the most that one who knows all other rows can have by the profile. `search`
    has the epsilon and delta of the search that found the columns, which comes on top.
    """
    state = EPSILON.state(epsilon + (search[0] if search else 0.0))
    text = say("guarantee", epsilon=epsilon, delta=delta, search=search, advantage=advantage)
    figure = f"epsilon {up(epsilon)}"
    if state == "good":
        return Verdict("Guarantee", figure, text)
    return Verdict("Guarantee", figure, text, state, advice=say("large_bound"))


Score = Mapping[str, Any]


def distance(
    heading: str, score: Score, bounds: Bounds, text: str, *, floor: float | None = None
) -> Verdict:
    """A mean total variation from the real rows, beside that of another sample as large.

    A distance that another sample has, too, needs no care: one whose whole interval is below it.
    """
    value, low, high = (score[key] for key in ("value", "low", "high"))
    state = bounds.within(low, high)
    if state == "fair" and floor is not None and high <= floor:
        state = "good"
    beside = "" if floor is None else f"another sample of as many real rows: {floor:.2g}"
    better = "fewer levels, a larger epsilon or a larger share for tables"
    if floor is not None and high <= 2 * floor:
        better = "fewer levels or more rows; a real sample would be little nearer"
    elif bounds.state(low) != bounds.state(high):
        better = "a larger share for scores: most of it is noise"
    return Verdict(
        heading, estimated(value, low, high, floor=floor), text, state, beside, better=better
    )


def noisy(
    heading: str,
    text: str,
    parts: Mapping[str, float],
    *,
    limit: float = NOISY_SHAPE,
    most: int = 24,
) -> Verdict:
    """What noise alone may decide: those of `parts`, by name, that it moves by `limit` or more.

    The worst `most` are named.
    """
    hidden = above(parts, limit)
    text = text if parts else "none was measured by itself: what is not measured is the model's"
    state = NOISY_COLUMNS.state(len(hidden) / len(parts)) if parts else "unknown"
    if hidden:
        more = f", and {len(hidden) - most} more" if len(hidden) > most else ""
        text = f"{text}: {', '.join(hidden[:most])}{more}"
    better = "fewer bins or categories, clip, or a larger epsilon" if hidden else ""
    figure = f"{len(hidden)} of {len(parts)}" if parts else "not measured"
    return Verdict(heading, figure, text, state, better=better)


def above(parts: Mapping[str, float], limit: float = NOISY_SHAPE) -> list[str]:
    """The names of those from `limit` on, the worst first."""
    return sorted((n for n, part in parts.items() if part >= limit), key=lambda n: -parts[n])


def attack(
    value: float, low: float, high: float, *, ceiling: float, trials: str, refuted: bool
) -> Verdict:
    """A membership attack: its advantage with its interval, and what the claim allows.

    It tells something only where it could have found a claim that is wrong: where its interval is
    narrower than the ceiling, and than what lies above it.
    """
    half, shown = (high - low) / 2, f"{number(value)} ({number(low)} to {number(high)})"
    if refuted:
        text = f"advantage {shown} in {trials}, beyond chance; the claim allows {number(ceiling)}"
        advice = "the claim is disproved: do not publish this release"
        return Verdict("Membership attack", number(value), text, "bad", advice=advice)
    if half > min(ceiling, 1 - ceiling):
        text = say("attack_cannot_tell", trials=trials, half=half, ceiling=ceiling)
        better = "more of them: attacks.membership.pairs"
        return Verdict("Membership attack", "cannot tell", text, "unknown", better=better)
    text = f"advantage {shown} in {trials}: not refuted. An attack that fails proves nothing"
    floor = f"the claim allows {number(ceiling)}"
    return Verdict("Membership attack", number(value), text, "good", floor)


def told_apart(auc: float, low: float, high: float, *, floor: float | None) -> Verdict:
    """How well a classifier tells synthetic from real rows; AUC .5 is guessing."""
    state = APART.within(low, high)
    text = f"AUC of a classifier on rows it has not seen ({low:.2f} to {high:.2f}); 0.5 is guessing"
    beside = "" if floor is None else f"real rows from other real rows: {floor:.2f}"
    advice = "relations beyond pairs are off: do not trust models of many columns at once"
    advice = "" if state in ("good", "unknown") else advice
    return Verdict("Told from real rows", f"{auc:.2f}", text, state, beside, advice)


def coverage(kind: str, held: float, figures: int, *, floor: float | None) -> Verdict:
    """The kind of figure whose 95% intervals on synthetic rows miss the real one most often."""
    state = MISSED.state(0.95 - held) if figures >= FEW else "unknown"
    text = say("worst_coverage", kind=kind, figures=figures)
    beside = "" if floor is None else f"intervals of held-out real rows: {floor:.0%}"
    advice = "" if state in ("good", "unknown") else "use estimands, synthdp answer or copies"
    return Verdict("Intervals", f"{held:.0%}", text, state, beside, advice)


def claims(heading: str, refuted: int, decided: int, text: str) -> Verdict:
    """Claims of the graph that do not hold, of those on which there is an answer."""
    state = REFUTED.state(refuted / decided) if decided else "unknown"
    figure = f"{refuted} of {decided} refuted" if decided else "cannot tell"
    better = "" if state in ("good", "unknown") else "the arrows that are missing, or a validation"
    return Verdict(heading, figure, text, state, better=better)
