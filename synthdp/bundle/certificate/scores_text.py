"""Published scores in words: a sentence each, and the certificate's section on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synthdp.bundle.wording import plain
from synthdp.evaluate.dp_scores import LEVEL, ChargedScore
from synthdp.privacy.plan import SCORES

if TYPE_CHECKING:
    from synthdp.bundle.certificate.facts import Certificate

WAYS = {"tv1": "one-way", "tv2": "two-way"}


def in_words(score: ChargedScore) -> str:
    """A score with its interval, as a sentence."""
    value = "hidden by the noise" if score.value is None else f"{score.value:.4f}"
    return f"{what(score)}: {value} ({LEVEL:.0%} interval {score.low:.4f} to {score.high:.4f})."


def what(score: ChargedScore) -> str:
    """What a score is of."""
    if score.target is None:
        return (
            f"Mean total variation of {score.tables} {WAYS[score.name]} tables, synthetic against"
            " real rows (0 is equal, 1 is disjoint)"
        )
    return (
        f"Share of held-out real rows whose {plain(score.target)} a logistic regression that learnt"
        " on synthetic rows tells right"
    )


def scores_markdown(c: Certificate) -> str:
    """The section of the certificate on scores: basis, cost, and the decisions that used them."""
    cost = next((p.epsilon for p in c.purposes if p.purpose == SCORES), None)
    rows = [
        f"| {what(s)} | {_value(s)} | {s.low:.4f} to {s.high:.4f} |"
        f" {', '.join(f'{n:,}' for n in s.counts)} | {s.sigma:.6g} |"
        for s in c.scores
    ]
    return "\n".join(
        [
            (
                "## Scores on real rows\n\nCounted on the original with Gaussian noise on whole"
                " counts, planned and charged like every look (purpose"
                f" `scores`{'' if cost is None else f', epsilon {cost:.4f} alone'}), so that they"
                " are inside the guarantee.\n"
            ),
            (
                f"| score | value | {LEVEL:.0%} interval | noisy counts | sigma"
                " |\n|---|---|---|---|---|"
            ),
            *rows,
            (
                "\nCounts are of misplaced rows (that would have to move for the real tables to"
                " have the synthetic shares), or of wrong and right answers. The number of rows"
                " that distances are divided by is estimated from the noisy tables in"
                " `marginals.json`. Intervals include the noise; those of shares of right answers"
                " also the choice of the held-out rows. They hold one by one, not all together."
                " What a model reaches that learnt on real rows was not released: it would cost far"
                " more."
            ),
            *_decided(c),
        ]
    )


def _value(score: ChargedScore) -> str:
    return "hidden by the noise" if score.value is None else f"{score.value:.4f}"


def _decided(c: Certificate) -> list[str]:
    for_gates = [
        f"`{g.metric}`"
        f" {f'at most {g.at_most:g}' if g.at_most is not None else f'at least {g.at_least:g}'}"
        for g in c.charged_gates
    ]
    if not for_gates:
        return []
    return [
        f"\nThe decision to publish also rested on {' and '.join(for_gates)}: on released scores"
        " alone, so that it is inside the guarantee."
    ]
