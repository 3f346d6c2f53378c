"""The risk that a release adds for its training rows.

It compares the success on them with the success on control rows.

Giomi, Boenisch, Wehmeyer, Tasnadi (2023), "A unified framework for quantifying privacy risk in
synthetic data" (Anonymeter), whose risk is R = (r_attack - r_control) / (1 - r_control). What an
attacker learns of control rows is what the release teaches about the *population*; only what he
learns beyond that of its own rows is charged to it.

Intervals. Rates have exact ones (Clopper, Pearson, 1934) where the paper takes Wilson's. For the
risk, let a and c be the rates of *failure* on own and on control rows, so that R = 1 - a / c. With
limits [a_l, a_u] and [c_l, c_u], the difference a - t c has the lower limit (a - t c) - sqrt((a -
a_l)^2 + t^2 (c_u - c)^2) (recovery of variances, as for the advantage in
`synthdp_attacks.statistics`). The lower limit t of a / c is where this crosses 0, a quadratic
equation:

    t^2 c_u (2c - c_u) - 2 a c t + a_l (2a - a_l) = 0,

and likewise for the upper one with a_u and c_l. The paper propagates errors to first order and cuts
off at 0 and 1, which hides a control that is *more* successful; we do neither.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf, sqrt
from typing import Any

from synthdp_attacks.statistics import CONFIDENCE, Counts, Interval, advantage, clopper_pearson
from synthdp_attacks.threat import BoolArray

ENOUGH_GUESSES = 100


@dataclass(frozen=True)
class Trials:
    """Right guesses of all guesses."""

    right: int
    guesses: int

    @classmethod
    def of(cls, right: BoolArray) -> Trials:
        """Count an array of outcomes."""
        return cls(int(right.sum()), len(right))


@dataclass(frozen=True, kw_only=True)
class Risk:
    """One question asked of a release. Rates are shares of right guesses, 0-1.

    `attack`: on rows the trainer had. `control`: the same attack on rows it had not. `naive`:
    guesses that need no record of the release, on rows the trainer had; an attack that beats it by
    no more than chance (`beats_naive`) shows no risk, and no safety either. `risk`: 1 if the
    release gives all of its rows away, 0 if none, below 0 where the control did better. All are
    None where there was nothing to guess, the risk also where every control guess was right.
    """

    question: str
    guesses: int
    attack: Interval | None
    control: Interval | None
    naive: Interval | None
    risk: Interval | None
    beats_naive: bool
    warnings: tuple[str, ...]

    @property
    def shown(self) -> bool:
        """Whether the release reveals more of its training rows than of others.

        The confidence is 95% (97.5% one-sided).
        """
        return self.risk is not None and self.risk.lower > 0

    def to_json(self) -> dict[str, Any]:
        """Plain values for a report or a run's record."""
        return {**asdict(self), "shown": self.shown, "warnings": list(self.warnings)}


def risk_of(
    question: str, *, attack: Trials, control: Trials, naive: Trials, confidence: float = CONFIDENCE
) -> Risk:
    """The risk with its intervals, and what must be known before believing it."""
    if not min(attack.guesses, control.guesses, naive.guesses):
        return Risk(
            question=question,
            guesses=0,
            attack=None,
            control=None,
            naive=None,
            risk=None,
            beats_naive=False,
            warnings=("nothing to guess",),
        )
    rates = [
        clopper_pearson(t.right, t.guesses, confidence=confidence) for t in (attack, control, naive)
    ]
    warnings = []
    if (fewest := min(attack.guesses, control.guesses)) < ENOUGH_GUESSES:
        warnings.append(
            f"{fewest} guesses are few: about {ENOUGH_GUESSES} are needed for a stable result"
        )
    beats_naive = (
        advantage(
            Counts(attack.right, attack.guesses, naive.right, naive.guesses), confidence=confidence
        ).lower
        > 0
    )
    if not beats_naive:
        warnings.append(
            "the attack does not beat the naive guess: a low risk may only mean a weak attack"
        )
    if control.right == control.guesses:
        warnings.append("every guess on control rows was right: no risk can be told from that")
    return Risk(
        question=question,
        guesses=attack.guesses,
        attack=rates[0],
        control=rates[1],
        naive=rates[2],
        risk=excess(attack, control, confidence=confidence),
        beats_naive=beats_naive,
        warnings=tuple(warnings),
    )


def excess(attack: Trials, control: Trials, *, confidence: float = CONFIDENCE) -> Interval | None:
    """(r_attack - r_control) / (1 - r_control) with its interval.

    None where the control never fails.
    """
    a = clopper_pearson(attack.guesses - attack.right, attack.guesses, confidence=confidence)
    c = clopper_pearson(control.guesses - control.right, control.guesses, confidence=confidence)
    if c.value == 0:
        return None
    return Interval(
        1 - a.value / c.value,
        1 - _root(a.value, a.upper, c.value, c.lower, sign=1),
        1 - _root(a.value, a.lower, c.value, c.upper, sign=-1),
    )


def _root(a: float, a_limit: float, c: float, c_limit: float, *, sign: int) -> float:
    """The greater (`sign` 1) or smaller (-1) root t of t^2 c_limit (2c - c_limit) - 2 a c t +
    a_limit (2a - a_limit) = 0.
    """
    square, constant = c_limit * (2 * c - c_limit), a_limit * (2 * a - a_limit)
    half = a * c + sign * sqrt(max(0.0, (a * c) ** 2 - square * constant))
    if sign > 0:
        return half / square if square > 0 else inf
    other = a * c + sqrt(
        max(0.0, (a * c) ** 2 - square * constant)
    )  # the smaller root without cancellation
    return constant / other if other > 0 else 0.0
