"""Three risks of data protection law for one release: singling out, linkability, inference.

The same limit as for all attacks on one release (`synthdp_attacks.one_release`): rows of one
training run give no bound on epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf, sqrt
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from synthdp_attacks.one_release import checked_tables
from synthdp_attacks.report import CAVEAT, CONFIDENTIAL
from synthdp_attacks.statistics import CONFIDENCE, Counts, Interval, advantage, clopper_pearson
from synthdp_attacks.threat import (
    AttackError,
    BoolArray,
    Codes,
    Public,
    columns_asked,
    hamming,
    parties_asked,
    whole,
)

# --- risk ---
#
# Giomi, Boenisch, Wehmeyer, Tasnadi (2023), "A unified framework for quantifying privacy risk in
# synthetic data" (Anonymeter), whose risk is R = (r_attack - r_control) / (1 - r_control). What an
# attacker learns of control rows is what the release teaches about the *population*; only what he
# learns beyond that of its own rows is charged to it.
#
# Intervals. Rates have exact ones (Clopper, Pearson, 1934) where the paper takes Wilson's. For the
# risk, let a and c be the rates of *failure* on own and on control rows, so that R = 1 - a / c.
# With limits [a_l, a_u] and [c_l, c_u], the difference a - t c has the lower limit (a - t c) -
# sqrt((a - a_l)^2 + t^2 (c_u - c)^2) (recovery of variances, as for the advantage in
# `synthdp_attacks.statistics`). The lower limit t of a / c is where this crosses 0, a quadratic
# equation:
#
#     t^2 c_u (2c - c_u) - 2 a c t + a_l (2a - a_l) = 0,
#
# and likewise for the upper one with a_u and c_l. The paper propagates errors to first order and
# cuts off at 0 and 1, which hides a control that is *more* successful; we do neither.


@dataclass(frozen=True)
class Trials:
    right: int
    guesses: int

    @classmethod
    def of(cls, right: BoolArray) -> Trials:
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
    guesses: int = 0
    attack: Interval | None = None
    control: Interval | None = None
    naive: Interval | None = None
    risk: Interval | None = None
    beats_naive: bool = False
    warnings: tuple[str, ...] = ("nothing to guess",)

    @property
    def shown(self) -> bool:
        """Whether the release reveals more of its training rows than of others.

        The confidence is 95% (97.5% one-sided).
        """
        return self.risk is not None and self.risk.lower > 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shown": self.shown, "warnings": list(self.warnings)}


def risk_of(
    question: str, attack: Trials, control: Trials, naive: Trials, *, confidence: float = CONFIDENCE
) -> Risk:
    """The risk with its intervals, and what must be known before believing it."""
    if not min(attack.guesses, control.guesses, naive.guesses):
        return Risk(question=question)
    rates = [
        clopper_pearson(t.right, t.guesses, confidence=confidence) for t in (attack, control, naive)
    ]
    warnings = []
    if (fewest := min(attack.guesses, control.guesses)) < (enough := 100):
        warnings.append(f"{fewest} guesses are few: about {enough} are needed for a stable result")
    counts = Counts(attack.right, attack.guesses, naive.right, naive.guesses)
    beats_naive = advantage(counts, confidence=confidence).lower > 0
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
    greater = a * c + sqrt(max(0.0, (a * c) ** 2 - square * constant))
    if sign > 0:
        return greater / square if square > 0 else inf
    return constant / greater if greater > 0 else 0.0  # without cancellation


@dataclass(frozen=True)
class AnonymityReport:
    """All risks that were asked for, each with a 95% interval.

    Of 40 harmless risks one is shown by chance.
    """

    risks: tuple[Risk, ...]

    @property
    def shown(self) -> tuple[Risk, ...]:
        """Risks whose interval lies above 0, the greatest lower limit first."""
        shown = (r for r in self.risks if r.shown)
        return tuple(sorted(shown, key=lambda r: -(r.risk.lower if r.risk else 0)))

    @property
    def conclusion(self) -> str:
        """What was shown, how many attacks were too weak to show anything, and the caveat."""
        if not self.shown:
            weak = sum(not risk.beats_naive for risk in self.risks)
            return (
                f"None of {len(self.risks)} attacks was seen to learn more about the rows behind"
                f" the release than about control rows; {weak} of them beat no naive guess, and so"
                f" say nothing. {CAVEAT}"
            )
        worst = self.shown[0]
        assert worst.risk is not None
        risk = worst.risk
        return (
            f"{len(self.shown)} of {len(self.risks)} attacks learned more about the rows behind the"
            f" release than about control rows, the worst by {worst.question} (risk"
            f" {risk.value:.3f}, 95% interval {risk.lower:.3f} to {risk.upper:.3f}). {CAVEAT}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "conclusion": self.conclusion,
            "confidential": CONFIDENTIAL,
            "risks": [risk.to_json() for risk in self.risks],
        }


def attack_anonymity(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    public: Public,
    secrets: Sequence[int],
    rng: np.random.Generator,
    parties: tuple[Sequence[int], Sequence[int]] | None = None,
    guesses: int = 500,
) -> AnonymityReport:
    """Ask the three questions of one release. Tables are codes `[rows, columns]` inside `public`.

    `members`: rows the trainer had; `control`: rows of the same population that it had not.
    `secrets`: columns to infer, each from all others. `parties`: the columns of the two who want to
    link (None: an even split by chance). At most `guesses` each.

    Raises:
        AttackError: a table outside the domain or too small, or columns that cannot be asked for.
    """
    tables = checked_tables(public, synthetic=synthetic, members=members, control=control)
    columns = len(public.sizes)
    if columns < 2:
        raise AttackError("a table of one column has nothing to link or infer from")
    secrets = columns_asked("secrets", secrets, columns) if len(secrets) else ()
    shuffled = list(map(int, rng.permutation(columns)))
    parties = (shuffled[::2], shuffled[1::2]) if parties is None else parties
    risks = [
        singling_out(*tables, public=public, rng=rng, width=1, guesses=guesses),
        singling_out(*tables, public=public, rng=rng, guesses=guesses),
        linkability(*tables, parties=parties, rng=rng, guesses=guesses),
    ]
    risks += [
        inference(*tables, public=public, secret=c, rng=rng, guesser=how, guesses=guesses)
        for c in secrets
        for how in GUESSERS
    ]
    return AnonymityReport(tuple(risks))


# --- singling out: a predicate of one synthetic row is true of exactly one original row ---
#
# Giomi et al. (2023), the singling-out attack, for codes: univariate predicates are levels that
# one synthetic row alone has, multivariate ones are levels that one synthetic row alone has
# together. A predicate that happens to be true of one row is likelier or less likely so in a table
# of another size, so that both tables are cut to the size of the smaller. Intervals take the
# guesses for independent of each other. Those of one table are not quite; measured, they raise no
# more false alarms than promised.


Predicate = tuple[tuple[int, ...], tuple[int, ...]]
"""Columns, and the level that each must have."""


def singling_out(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    public: Public,
    rng: np.random.Generator,
    width: int | None = None,
    guesses: int = 500,
) -> Risk:
    """Number of predicates that single out one of `members`, and one of `control`.

    Each predicate singles out a synthetic row.

    `width`: columns of a predicate (1: univariate); None draws it afresh for each, from 2 to all.
    The naive guess takes the same columns with levels drawn evenly from the public ones.
    """
    columns = len(public.sizes)
    if width is not None and not 1 <= width <= columns:
        raise AttackError(f"width={width}; a predicate has 1 to {columns} columns")
    if columns < 2 and width is None:
        raise AttackError("one column has no multivariate predicates: ask with width=1")
    guesses = whole("guesses", guesses, least=1)
    size = min(len(members), len(control))
    own, other = (table[rng.permutation(len(table))[:size]] for table in (members, control))
    if width == 1:
        found, by = _levels_of_one(synthetic, guesses, rng), "one column"
    else:
        found = _combinations_of_one(synthetic, width, guesses, rng)
        by = "several columns" if width is None else f"{width} columns"
    blind: list[Predicate] = [
        (where, tuple(int(rng.integers(public.sizes[c])) for c in where)) for where, _ in found
    ]
    trials = (_singled(found, own), _singled(found, other), _singled(blind, own))
    return risk_of(f"singling out by {by}", *trials)


def _levels_of_one(synthetic: Codes, guesses: int, rng: np.random.Generator) -> list[Predicate]:
    """Levels that exactly one synthetic row has, at most `guesses` of them."""
    found: list[Predicate] = []
    for column, codes in enumerate(synthetic.T):
        levels, counts = np.unique(codes, return_counts=True)
        found += [((column,), (int(level),)) for level in levels[counts == 1]]
    return [found[i] for i in rng.permutation(len(found))[:guesses]]


def _combinations_of_one(
    synthetic: Codes, width: int | None, guesses: int, rng: np.random.Generator
) -> list[Predicate]:
    """Combinations of levels that exactly one synthetic row has.

    There is at most one for each row, so that no two guesses aim at the same row.
    """
    found: list[Predicate] = []
    columns = synthetic.shape[1]
    for row in synthetic[rng.permutation(len(synthetic))]:
        for _ in range(10):  # sets of columns, until one singles the row out
            size = width or int(rng.integers(2, columns + 1))
            where = np.sort(rng.choice(columns, size=size, replace=False))
            if (synthetic[:, where] == row[where]).all(axis=1).sum() == 1:
                found.append((tuple(map(int, where)), tuple(map(int, row[where]))))
                break
        if len(found) == guesses:
            break
    return found


def _singled(predicates: list[Predicate], table: Codes) -> Trials:
    """How many predicates are true of exactly one row."""
    right = [
        (table[:, list(where)] == levels).all(axis=1).sum() == 1 for where, levels in predicates
    ]
    return Trials.of(np.array(right, dtype=bool))


# --- linkability: the release tells which records of two parties are of the same person ---
#
# Giomi et al. (2023), the linkability attack: both look for the synthetic rows closest to a record
# in the columns they hold. If the same synthetic row is among both, the record's two halves are
# linked. Codes often leave many rows at the same distance; each party breaks such ties by chance
# of its own, for a common rule (the first row, say) would link by accident.


def linkability(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    parties: tuple[Sequence[int], Sequence[int]],
    rng: np.random.Generator,
    neighbours: int = 1,
    guesses: int = 500,
) -> Risk:
    """Number of records of `members`, and of `control`, that the release links.

    A link goes through one of the `neighbours` closest synthetic rows.

    `parties`: the columns that each holds. The naive guess draws its synthetic rows at random.
    """
    first, second = map(list, parties_asked(parties, synthetic.shape[1]))
    guesses = whole("guesses", guesses, least=1)
    if not 1 <= neighbours <= len(synthetic):
        raise AttackError(
            f"neighbours={neighbours}; allowed are 1 to the number of synthetic rows,"
            f" {len(synthetic)}"
        )

    def meet(first: Codes, second: Codes) -> Trials:  # how many records have a row in both lists
        return Trials.of((first[:, :, None] == second[:, None, :]).any(axis=(1, 2)))

    def linked(targets: Codes) -> Trials:
        chosen = targets[rng.permutation(len(targets))[:guesses]]
        sides = []
        for held in (first, second):
            parts = [
                np.argpartition(d + rng.random(d.shape), neighbours - 1, axis=1)[:, :neighbours]
                for _, d in hamming(chosen[:, held], synthetic[:, held])
            ]
            sides.append(np.concatenate(parts))
        return meet(*sides)

    attack, others = linked(members), linked(control)
    shape = (attack.guesses, len(synthetic))
    blind = [
        np.argpartition(rng.random(shape), neighbours - 1, axis=1)[:, :neighbours] for _ in range(2)
    ]
    question = f"linking {len(first)} columns with {len(second)}"
    return risk_of(question, attack, others, meet(*blind))


# --- inference: guess one column of a record from the others and the release ---
#
# Giomi et al. (2023), the inference attack. A release that teaches how columns hang together in
# the population makes such guesses right for everybody; that is what it is for, and shows in the
# control. What counts is how much better they are for its own rows.


Guess = Callable[[Codes, Codes, Codes, int], Codes]


def closest_rows(known: Codes, secret: Codes, asked: Codes, seed: int) -> Codes:
    """The most frequent level among the closest synthetic rows.

    All rows at the least distance count.
    """
    levels = np.eye(int(secret.max()) + 1, dtype=np.float32)[secret]
    votes = [
        (d == d.min(axis=1, keepdims=True)).astype(np.float32) @ levels
        for _, d in hamming(asked, known)
    ]
    return np.asarray(np.concatenate(votes).argmax(axis=1))


def forest(known: Codes, secret: Codes, asked: Codes, seed: int) -> Codes:
    """The prediction of a random forest that was fitted to the synthetic rows.

    Its trees are fully grown, so that they remember copies.
    """
    forest = RandomForestClassifier(n_estimators=100, random_state=seed, n_jobs=1)
    return np.asarray(forest.fit(known, secret).predict(asked))


GUESSERS: dict[str, Guess] = {"closest": closest_rows, "forest": forest}


def inference(
    synthetic: Codes,
    members: Codes,
    control: Codes,
    *,
    public: Public,
    secret: int,
    rng: np.random.Generator,
    known: Sequence[int] | None = None,
    guesser: str = "closest",
    guesses: int = 500,
) -> Risk:
    """How often column `secret` is guessed right for `members`, and for `control`.

    The guesses use the columns `known` (None: all others).

    The naive guess is the release's most frequent level, which needs no knowledge of the record.
    """
    columns = len(public.sizes)
    (secret,) = columns_asked("secret", [secret], columns)
    known = [c for c in range(columns) if c != secret] if known is None else known
    held = list(columns_asked("known", known, columns))
    if secret in held:
        raise AttackError(
            f"secret={secret} is one of the columns known={held}: leave it out there, or guess"
            " another"
        )
    guesses = whole("guesses", guesses, least=1)
    if guesser not in GUESSERS:
        raise AttackError(f"unknown guesser {guesser}; known: {', '.join(GUESSERS)}")
    seed = int(rng.integers(2**31))
    own, other = (table[rng.permutation(len(table))[:guesses]] for table in (members, control))

    def right(targets: Codes) -> Trials:
        guess = GUESSERS[guesser]
        guessed = guess(synthetic[:, held], synthetic[:, secret], targets[:, held], seed)
        return Trials.of(guessed == targets[:, secret])

    blind = Trials.of(own[:, secret] == np.bincount(synthetic[:, secret]).argmax())
    question = f"inferring column {secret} by {guesser}"
    return risk_of(question, right(own), right(other), blind)
