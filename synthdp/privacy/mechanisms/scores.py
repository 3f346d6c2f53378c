"""Headline scores of a synthetic table, counted on real rows with noise: what a publisher who must
state them pays for.

Two kinds of whole number say it all, and both are counts of rows. *Misplaced rows*: how many real
rows would have to move to another cell for the real tables to have the synthetic shares, which is
rows times total variation. *Right and wrong answers*: how many held-out rows a model that learnt on
synthetic rows alone classifies right. Shares follow from them by post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.privacy.events.kinds import HeldOutDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.mechanisms.marginals import CountNoise, Sampler, sampler_for
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Columns, Table, count_tables

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PairSettings:
    """Which pairs are compared: at most `pairs` of at most `cells` each, drawn by a public `seed`:
    the same in every release of one domain. One pass over the rows counts so many `cells_at_once`.
    """

    pairs: int = 1000
    cells: int = 1 << 20
    cells_at_once: int = 1 << 22
    seed: int = 0


PAIRS = PairSettings()


@dataclass(frozen=True, eq=False)
class Scorecard:
    """A classifier as a table of points: the class with the most points, summed over the levels of
    all columns, is the answer.

    `points` has for each column of the domain an array `[levels, classes]` of whole numbers; the
    target's own are alike for all its levels. Whole numbers add up the same in any order, so that
    an answer is a function of its row alone, to the last bit.
    """

    target: str
    points: tuple[IntArray, ...]

    def answers(self, codes: Codes) -> IntArray:
        """The class of each row of levels `[rows, columns]`; the first of those with the most
        points.
        """
        total = np.zeros((len(codes), self.points[0].shape[1]), dtype=np.int64)
        for levels, points in zip(codes.T, self.points, strict=True):
            total += points[levels]
        best: IntArray = total.argmax(axis=1)
        return best


@dataclass(frozen=True, eq=False)
class Scored:
    """A synthetic table `codes` and its noisy counts: rows misplaced on average in one-way and in
    two-way tables, shape `[1 or 2]`, wrong and right answers of each scorecard, shape `[scorecards,
    2]`. All counts have noise of parameter `sigma`.
    """

    codes: Codes
    misplaced: IntArray
    answers: IntArray
    sigma: float


@dataclass(frozen=True)
class ScoreBudget:
    """Scores of a table that is drawn later, at a price fixed when the plan is made.

    The number of counts follows from the domain and from `targets`, and each has Gaussian noise of
    `sigma`, of the kind `sampler`.
    """

    domain: Domain
    targets: tuple[str, ...]
    sigma: float
    sampler: Sampler = "discrete"

    @property
    def questions(self) -> int:
        """How many noisy tables of counts are released."""
        return len(compared(self.domain)) + len(self.targets)

    @property
    def noise(self) -> CountNoise:
        """Of each score, as it is drawn and charged."""
        return CountNoise(self.sampler, self.sigma)

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return (
            f"{self.sampler} Gaussian, sigma {self.sigma:.4g}, on {self.questions} scores of the"
            " synthetic table"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """A Gaussian of sensitivity `rows_per_unit` for each score; answers are those of held-out
        units.
        """
        once, repeated = self.noise.event(rows_per_unit), dp_accounting.SelfComposedDpEvent
        misplaced = repeated(once, len(compared(self.domain)))
        if not self.targets:
            return misplaced
        answers = HeldOutDpEvent(repeated(once, len(self.targets)))
        return dp_accounting.ComposedDpEvent((misplaced, answers))

    def for_unit(self, rows_per_unit: int) -> ScoreBudget:
        """The same with the noise for units of so many rows (`marginals.sampler_for`)."""
        return replace(self, sampler=sampler_for(rows_per_unit))

    def scaled(self, factor: float) -> ScoreBudget:
        """The same scores with `factor` times the noise."""
        return replace(self, sigma=self.sigma * factor)

    def choose(self, synthetic: Codes, scorecards: Sequence[Scorecard]) -> ScoreCounts:
        """The mechanism for a table and scorecards.

        Raises:
            ValueError: the table has no rows, or the scorecards are not those of `targets`.
        """
        if not len(synthetic):
            raise ValueError("scores need at least one synthetic row")
        if tuple(card.target for card in scorecards) != self.targets:
            raise ValueError(
                f"got scorecards for {[card.target for card in scorecards]}; planned:"
                f" {list(self.targets)}"
            )
        for card in scorecards:
            if [p.shape for p in card.points] != [
                (size, self.domain[card.target].levels) for size in self.domain.sizes
            ]:
                raise ValueError(
                    f"the scorecard for {card.target!r} is not over the domain's levels"
                )
        return ScoreCounts(self, synthetic, tuple(scorecards))


@dataclass(frozen=True, eq=False)
class ScoreCounts(Prepaid[ScoreBudget]):
    """Count how far `synthetic` is from the fitted rows, and how often `scorecards` are right on
    the held-out ones; add Gaussian noise.

    Sensitivity of misplaced rows [derived here]. For one table with counts n_c, n in all, and
    synthetic shares s_c, they are U(n) = sum_c max(0, n_c - n s_c) = n TV, half the L1 norm of a
    vector that sums to zero. So U is even and subadditive, and a change of the counts by d, with D
    in all, moves it by at most U(d). For D >= 0, U(d) = sum_c max(0, d_c - D s_c) <= the rows that
    came, and for D <= 0, taken from the other side, U(d) <= the rows that went. Adding, removing or
    replacing a unit of k rows has at most k of either, so it moves U by at most k; one row that
    comes into a cell without synthetic rows does move it by 1. A mean of several tables'
    U moves no further, and neither does its integer part: U' <= U + k has floor(U') <= floor(U) +
    k. The number of rows n appears nowhere but in U, and is not divided by. Shares are those of m
    synthetic rows, so m times U is a whole number and all is exact.

    Answers: a held-out row is wrong or right, by itself, so it is in one of two cells: a table like
    any of `NoisyMarginals`. Hence each score is a mechanism on counts of sensitivity k like theirs.
    A unit that is held out moves no misplaced rows, and another no answers, which the event says;
    `HoldoutDpEvent` has what that is worth. To someone who knows who is held out it may be either,
    and one after the other, sequential composition, pays for all.
    """

    synthetic: Codes
    scorecards: tuple[Scorecard, ...]

    def run(self, table: Table, randomness: Randomness) -> Scored:
        """Count, then add the noise."""
        noise, domain = self.budget.noise, self.budget.domain
        count = partial(table.count, LevelGroups(domain, {}))
        misplaced = [
            mean_misplaced(count, self.synthetic, domain, tables)
            for tables in compared(domain).values()
        ]
        noisy = [noise.on(np.array([count], dtype=np.int64), randomness) for count in misplaced]
        answered = table.add_up(_Answers(domain, self.scorecards), "held out").reshape(-1, 2)
        answers = [noise.on(counts, randomness) for counts in answered]
        return Scored(
            self.synthetic,
            np.concatenate(noisy),
            np.array(answers, dtype=np.int64).reshape(-1, 2),
            noise.sigma,
        )

    def pack(self, value: Scored) -> Arrays:
        """The counts, and the table that they are about: a run that goes on publishes this one, and
        no other.
        """
        return {
            "codes": np.ascontiguousarray(value.codes),
            "misplaced": value.misplaced,
            "answers": value.answers,
        }

    def unpack(self, arrays: Arrays) -> Scored:
        """Counts and table."""
        codes, misplaced, answers = arrays["codes"], arrays["misplaced"], arrays["answers"]
        if (
            codes.shape != self.synthetic.shape
            or codes.dtype != self.synthetic.dtype
            or (codes >= np.array(self.budget.domain.sizes)).any()
        ):
            raise ValueError("not a table of the domain's levels")
        shapes = (len(compared(self.budget.domain)),), (len(self.scorecards), 2)
        if (
            (misplaced.shape, answers.shape) != shapes
            or misplaced.dtype != np.int64
            or answers.dtype != np.int64
        ):
            raise ValueError("not the counts of these scores")
        return Scored(codes, misplaced, answers, self.budget.sigma)


@dataclass(frozen=True, eq=False)
class _Answers:
    """A row adds 1 to the wrong or to the right answers of each card (`table.Summands`)."""

    domain: Domain
    cards: tuple[Scorecard, ...]

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(self.domain.names if self.cards else ())

    @property
    def size(self) -> int:
        return 2 * len(self.cards)

    def block(self, frame: object, codes: Codes) -> IntArray:
        counts = np.zeros((len(self.cards), 2), dtype=np.int64)
        for at, card in enumerate(self.cards):
            right = card.answers(codes) == codes[:, self.domain.index(card.target)]
            counts[at] = len(codes) - right.sum(), right.sum()
        return counts.ravel()


@lru_cache(maxsize=16)
def compared(domain: Domain) -> Mapping[str, tuple[Columns, ...]]:
    """The tables that are compared, by the name of their score: a function of the public domain.

    All columns (`tv1`); all pairs that are not too large, or at most `PAIRS.pairs` of them drawn by
    a public seed (`tv2`), if there are any.
    """
    names = domain.names
    pairs = [pair for pair in _drawn_pairs(names) if domain.cells(pair) <= PAIRS.cells]
    return {"tv1": tuple((name,) for name in names)} | ({"tv2": tuple(pairs)} if pairs else {})


def _drawn_pairs(names: Sequence[str]) -> list[Columns]:
    if math.comb(len(names), 2) <= PAIRS.pairs:
        return list(combinations(names, 2))
    rng, chosen = np.random.default_rng(PAIRS.seed), set[tuple[int, ...]]()
    while len(chosen) < PAIRS.pairs:
        chosen.add(tuple(sorted(rng.choice(len(names), 2, replace=False).tolist())))
    return [tuple(names[i] for i in pair) for pair in sorted(chosen)]


def mean_misplaced(
    count: Callable[[Sequence[Columns]], Sequence[IntArray]],
    synthetic: Codes,
    domain: Domain,
    tables: Sequence[Columns],
) -> int:
    """Real rows that would have to move for a table to have the synthetic shares, the mean over
    `tables`, rounded down. Exact. `count` counts the real rows in tables.
    """
    drawn, total = len(synthetic), 0
    for some in _groups(domain, tables):
        for ours, theirs in zip(count(some), count_tables(synthetic, domain, some), strict=True):
            total += _misplaced(ours, theirs, int(ours.sum()), drawn)
    return total // (drawn * len(tables))


def _misplaced(ours: IntArray, theirs: IntArray, rows: int, drawn: int) -> int:
    """`drawn` times the misplaced rows of one table: both products, and the sum of what is
    positive, are at most `rows` x `drawn`.

    Beyond 64 bits that is counted in Python's whole numbers, which have no end.
    """
    kind = np.int64 if rows * drawn <= np.iinfo(np.int64).max else object
    return int(np.maximum(0, drawn * ours.astype(kind) - rows * theirs.astype(kind)).sum())


def _groups(domain: Domain, tables: Sequence[Columns]) -> Iterator[list[Columns]]:
    """Tables that are counted together."""
    group: list[Columns] = []
    cells = 0
    for columns in tables:
        if group and cells + domain.cells(columns) > PAIRS.cells_at_once:
            yield group
            group, cells = [], 0
        group.append(columns)
        cells += domain.cells(columns)
    yield group
