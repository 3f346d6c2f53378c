"""Which pairs of columns look dependent: the largest of many scores, by one draw of noise.

A table of all pairs is worth its noise only where there are few. With m pairs, noise on each score
grows with the square root of m. Here only the positions of the k largest noisy scores are told, and
noise grows with the square root of k: of 950 columns and 2850 pairs told, 13 times less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups, Starts
from synthdp.privacy.events.kernel import GumbelMaxDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.noise import Integers, Randomness
from synthdp.privacy.table import Columns, Table

MOVES = 4
"""What a row moves a score by at most (`PairScreen`)."""
MAX_LEVELS = 2048
"""Of a column, or of columns that are counted against others in one product of matrices."""


@dataclass(frozen=True)
class CountingSettings:
    """How pairs are counted: `block_rows` at once; from `many_rows` on the sums of a score do not
    fit 64 bits any more.
    """

    block_rows: int = 4096
    many_rows: int = 1 << 31


COUNTING = CountingSettings()
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairScreen:
    """The `kept` pairs of columns with the largest scores after independent Gumbel noise of scale
    4 `noise`, best first. Pairs are chosen later, at a price fixed when the plan is made.

    Score: floor of || T - r c^T / n ||_1, T the pair's table with margins r and c, n its rows; 0
    where there are none.

    Sensitivity [derived here]: n is part of the function. With p = r / n and q = c / n, a row
    more, in cell (a, b), changes T - r c^T / n by exactly n / (n + 1) (e_a - p) (e_b - q)^T, of L1
    norm n / (n + 1) 2 (1 - p_a) 2 (1 - q_b) < 4; the first row by 0. So k rows move the norm by
    less than 4 k, and its floor by 4 k at most. Scores are computed in whole numbers, as || n T - r
    c^T ||_1 // n: nothing is rounded before. A replaced unit moves them by twice that. What is
    taken off a score, so that large tables do not win by chance alone, is a constant that no row of
    this look changes: it moves no score.

    Choices: the k largest after one draw of Gumbel noise are, in order, k noisy maxima, each among
    those that are left [Durfee and Rogers, "Practical Differentially Private Top-k Selection with
    Pay-what-you-get Composition", arXiv:1905.04273; derived here: exp(-(score + noise) / scale) is
    an exponential time of rate exp(score / scale), the largest comes first, and the other times go
    on as if they began then]. That is k events `events.kernel.GumbelMaxDpEvent`, however many pairs
    there are.

    >>> from synthdp.spec.model import Boolean
    >>> domain = Domain.from_spec({name: Boolean(type="boolean") for name in "abc"})
    >>> PairScreen(domain, kept=1, noise=30.0).name
    'the 1 largest of the associations of pairs, Gumbel noise 30'
    """

    domain: Domain
    kept: int
    noise: float

    @property
    def name(self) -> str:
        return (
            f"the {self.kept} largest of the associations of pairs, Gumbel noise {self.noise:.4g}"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """As many noisy maxima as pairs are told."""
        return dp_accounting.SelfComposedDpEvent(
            GumbelMaxDpEvent(self.noise * MOVES, MOVES, rows_per_unit), self.kept
        )

    def scaled(self, factor: float) -> PairScreen:
        return replace(self, noise=self.noise * factor)

    def choose(
        self,
        pairs: Sequence[Columns],
        groups: LevelGroups | None = None,
        by_chance: Sequence[int] | None = None,
    ) -> ChosenScreen:
        """The mechanism for `pairs`, which are counted on groups of levels if there are any.

        `by_chance` is what each pair's score is expected to be without any dependence, and is taken
        off; nothing by default.

        Raises:
            ValueError: a column has more than `MAX_LEVELS` levels, or groups of them; or
                `by_chance` has another length.
        """
        off = (0,) * len(pairs) if by_chance is None else tuple(by_chance)
        return ChosenScreen(self, tuple(pairs), off, groups.starts if groups else {})


@dataclass(frozen=True)
class ChosenScreen(Prepaid[PairScreen]):
    """`PairScreen` with its pairs chosen, and the groups of levels they are counted on.

    `by_chance` is taken off each pair's score. `starts` has the groups of each column that has any.
    Both come from public or released facts. A row's level lies in exactly one group: the
    sensitivity is the same.
    """

    pairs: tuple[Columns, ...]
    by_chance: tuple[int, ...]
    starts: Mapping[str, Starts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.by_chance) != len(self.pairs):
            raise ValueError("one constant is taken off the score of each pair")
        coarse = LevelGroups(self.budget.domain, self.starts).coarse
        for name in {name for pair in self.pairs for name in pair}:
            if coarse[name].levels > MAX_LEVELS:
                raise ValueError(
                    f"column {name!r} has {coarse[name].levels} levels; at most {MAX_LEVELS} can be"
                    " screened"
                )

    def run(self, table: Table, randomness: Randomness) -> tuple[Columns, ...]:
        """Score all pairs, then tell the best."""
        kept = min(self.budget.kept, len(self.pairs))
        if not kept:
            return ()
        groups = LevelGroups(self.budget.domain, self.starts)
        scores = association_scores(table.fit_codes, groups, self.pairs)
        scores -= np.array(self.by_chance, dtype=np.int64)
        scale = self.budget.noise * MOVES
        chosen = randomness.noisy_top(scores, scale=scale, count=kept)
        return tuple(self.pairs[i] for i in chosen.tolist())

    def pack(self, value: tuple[Columns, ...]) -> Arrays:
        """The positions of the columns of each pair, `[pairs, 2]`."""
        index = self.budget.domain.index
        told = [[index(name) for name in pair] for pair in value]
        return {"pairs": np.array(told, dtype=np.int64).reshape(-1, 2)}

    def unpack(self, arrays: Arrays) -> tuple[Columns, ...]:
        """The pairs that were told."""
        told, names = arrays["pairs"], self.budget.domain.names
        if told.ndim != 2 or told.shape[1] != 2 or len(told) > self.budget.kept:
            raise ValueError("not the pairs of a screen")
        if told.dtype != np.int64 or not ((told >= 0) & (told < len(names))).all():
            raise ValueError("not columns of the domain")
        return tuple((names[a], names[b]) for a, b in told.tolist())


def association_scores(codes: Codes, groups: LevelGroups, pairs: Sequence[Columns]) -> Integers:
    """The score of each pair (`PairScreen`), `[pairs]`, without noise: inside the kernel only.

    `codes` are levels `[rows, columns]`. All tables of two strips of columns are one product of
    matrices of zeros and ones. Its sums over a block are whole and below 2^24, so that single
    precision is exact; blocks add up in double precision, exact to 2^53.
    """
    domain = groups.coarse
    used = sorted({domain.index(name) for pair in pairs for name in pair})
    strips = list(_strips(used, domain.sizes))
    place = {column: (s, i) for s, strip in enumerate(strips) for i, column in enumerate(strip)}
    at = [tuple(sorted(place[domain.index(name)] for name in pair)) for pair in pairs]
    wanted: dict[tuple[int, int], list[int]] = {}
    for number, ((s, _), (t, _)) in enumerate(at):
        wanted.setdefault((s, t), []).append(number)
    scores = np.zeros(len(pairs), dtype=np.int64)
    for (s, t), numbers in wanted.items():
        distances = _distances(codes, groups, strips[s], strips[t])
        inside = np.array([(at[n][0][1], at[n][1][1]) for n in numbers])
        scores[numbers] = distances[inside[:, 0], inside[:, 1]]
    return scores


def _strips(columns: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """`columns` cut where their levels together would be more than `MAX_LEVELS`."""
    strip: list[int] = []
    levels = 0
    for column in columns:
        if strip and levels + sizes[column] > MAX_LEVELS:
            yield strip
            strip, levels = [], 0
        strip.append(column)
        levels += sizes[column]
    if strip:
        yield strip


def _distances(
    codes: Codes, groups: LevelGroups, first: Sequence[int], second: Sequence[int]
) -> Integers:
    """Scores of all columns `first` against all of `second`, `[first, second]`."""
    sizes = groups.coarse.sizes
    starts = [np.cumsum([0, *(sizes[i] for i in strip)]) for strip in (first, second)]
    counts = np.zeros((starts[0][-1], starts[1][-1]))
    margins = [np.zeros(start[-1]) for start in starts]
    for begin in range(0, len(codes), COUNTING.block_rows):
        block = codes[begin : begin + COUNTING.block_rows]
        levels = groups.of(block) if groups.starts else block
        one = _ones(levels, first, starts[0])
        other = one if first == second else _ones(levels, second, starts[1])
        counts += one.T @ other
        margins[0] += one.sum(0)
        margins[1] += other.sum(0)
    return distances(len(codes), counts, margins[0], margins[1], starts[0][:-1], starts[1][:-1])


def _ones(levels: Codes, columns: Sequence[int], starts: Integers) -> npt.NDArray[np.float32]:
    """A one for the level of each column, `[rows, levels of all columns]`; zeros elsewhere."""
    ones = np.zeros((len(levels), starts[-1]), dtype=np.float32)
    at = levels[:, columns].astype(np.intp) + starts[:-1]
    np.put_along_axis(ones, at, np.float32(1), axis=1)
    return ones


def distances(
    rows: int,
    counts: Floats,
    first: Floats,
    second: Floats,
    first_starts: Integers,
    second_starts: Integers,
) -> Integers:
    """|| n T - r c^T ||_1 // n of each table T inside `counts`, whose rows and columns begin at the
    `starts`; n = `rows`, and r and c are its parts of the margins `first` and `second`.

    In Python's whole numbers where 64 bits are too few: a sum is at most 2 n^2.
    """
    if not rows:
        return np.zeros((len(first_starts), len(second_starts)), dtype=np.int64)
    kind: Any = np.int64 if rows < COUNTING.many_rows else object
    whole = [values.astype(np.int64).astype(kind) for values in (counts, first, second)]
    apart = np.abs(rows * whole[0] - np.multiply.outer(whole[1], whole[2]))
    sums = np.add.reduceat(np.add.reduceat(apart, first_starts, axis=0), second_starts, axis=1)
    scores: Integers = (sums // rows).astype(np.int64)
    return scores


def noise_for(mu: float, kept: int) -> float:
    """`PairScreen.noise` about as costly as one Gaussian mechanism of sensitivity / noise = mu.

    A noisy maximum of range r costs about as much as a Gaussian of mu = r / 2; here r = 2 / noise.

    >>> noise_for(0.5, 400)
    40.0
    """
    return math.sqrt(kept) / mu
