"""What acts on a target together and shows in no pair: signed sums, the largest by noisy choices.

The parity of three columns says nothing of any of them, nor of a pair. It shows in the sum over
rows of the product of their signs, if each column's levels are split in two. That two columns have
the same level is such a sign, too. There are very many
such sums, and each moves by one with a row. So a few are told, one by one: the place of the one
that is furthest from what released tables explain, and the sum itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import dp_accounting
import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.events.kernel import GaussianSumsDpEvent, GumbelMaxDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.noise import Integers, Randomness
from synthdp.privacy.table import Table

MAX_FACTORS = 5
"""Signs in a product: of a target, and of four columns."""
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sign:
    """A column whose levels are split in two: -1 where `minus` `[levels]` says so, else 1."""

    column: str
    minus: tuple[bool, ...]

    def bits(self, codes: Codes, domain: Domain) -> npt.NDArray[np.bool_]:
        """Where rows of levels `[rows, columns]` have -1, `[rows]`."""
        return np.array(self.minus)[codes[:, domain.index(self.column)]]


@dataclass(frozen=True)
class SameLevel:
    """Two columns of as many levels: -1 where a row has the same level of both, else 1."""

    first: str
    second: str

    def bits(self, codes: Codes, domain: Domain) -> npt.NDArray[np.bool_]:
        """Where rows of levels `[rows, columns]` have -1, `[rows]`."""
        same: npt.NDArray[np.bool_] = (
            codes[:, domain.index(self.first)] == codes[:, domain.index(self.second)]
        )
        return same


AnySign = Sign | SameLevel


@dataclass(frozen=True)
class Family:
    """Products that share all factors but the last: those of `shared` and of one from `first` up
    to `stop`, all by their places among signs.
    """

    shared: tuple[int, ...]
    first: int
    stop: int

    @property
    def size(self) -> int:
        """Products."""
        return self.stop - self.first


@dataclass(frozen=True, eq=False)
class PackedSigns:
    """The signs of `rows` rows, a bit each: `words` `[signs, words]` has ones where it is -1."""

    words: Words
    rows: int

    @classmethod
    def of(cls, codes: Codes, domain: Domain, signs: Sequence[AnySign]) -> PackedSigns:
        """The signs of levels `[rows, columns]`."""
        words = np.zeros((len(signs), -(-len(codes) // 64)), dtype=np.uint64)
        packed = words.view(np.uint8)
        for row, sign in zip(packed, signs, strict=True):
            bits = np.packbits(sign.bits(codes, domain))
            row[: len(bits)] = bits
        return cls(words, len(codes))

    def product(self, factors: Sequence[int]) -> Words:
        """The bits of a product of signs, `[words]`."""
        product: Words = np.bitwise_xor.reduce(self.words[list(factors)], axis=0)
        return product

    def sums(
        self, families: Sequence[Family], times: Words | None = None, *, skipped: int = 0
    ) -> Integers:
        """Sums over rows of each product of `families`, times one of bits `times`, exact; the
        first `skipped` factors are left out.
        """
        found = [np.zeros(0, np.int64)]
        for family in families:
            bits = self.product(family.shared[skipped:])
            if times is not None:
                bits ^= times
            minus = np.bitwise_count(self.words[family.first : family.stop] ^ bits)
            found.append(self.rows - 2 * minus.sum(1, dtype=np.int64))
        return np.concatenate(found)


@dataclass(frozen=True)
class ToldSum:
    """A product of signs, its target's first, and its noisy sum.

    `apart` is how far that is from what was expected when it was chosen.
    """

    factors: tuple[AnySign, ...]
    noisy: int
    apart: int


@dataclass(frozen=True)
class InteractionScreen:
    """`kept` times: which of many signed sums is furthest from what is expected, by Gumbel noise of
    scale `noise`, then that sum plus rounded Gaussian noise of standard deviation `noise`. What is
    summed is chosen later, at a price fixed when the plan is made.

    Sums: a product of signs is 1 or -1 for each row, by the row's own levels, and splits of levels
    come from the spec or from released tables. A sum is over the rows.

    Sensitivity [derived here]: a row more moves each sum by exactly 1, whatever the product, and so
    a unit of k rows by at most k. A score is the distance of a sum from a whole number that no row
    of this choice changes: |s + d - e| differs from |s - e| by |d| at most. Such a number is a
    function of public and released values alone: that of the next choice, of the noisy sums told
    before. So each choice is a noisy maximum (`events.kernel.GumbelMaxDpEvent`), however many sums
    there are [Durfee and Rogers, "Practical Differentially Private Top-k Selection with
    Pay-what-you-get Composition", arXiv:1905.04273], and each sum told a Gaussian mechanism on a
    whole number, of which rounding is post-processing. A unit that is replaced moves a score and a
    sum by twice as much, reached where the signs of all rows that come and go differ. What is
    chosen next, and whether anything is, follows from what was told: adaptive composition.

    >>> from synthdp.spec.model import Boolean
    >>> domain = Domain.from_spec({name: Boolean(type="boolean") for name in "abc"})
    >>> InteractionScreen(domain, kept=8, noise=30.0).name
    'up to 8 of the largest signed sums, one by one, Gumbel and rounded Gaussian noise 30'
    """

    domain: Domain
    kept: int
    noise: float

    @property
    def name(self) -> str:
        return (
            f"up to {self.kept} of the largest signed sums, one by one, Gumbel and rounded Gaussian"
            f" noise {self.noise:.4g}"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """A noisy maximum and a noisy sum, so many times."""
        chosen = GumbelMaxDpEvent(self.noise, 1, rows_per_unit)
        told = GaussianSumsDpEvent(self.noise / rows_per_unit, 2.0)
        both = dp_accounting.ComposedDpEvent((chosen, told))
        return dp_accounting.SelfComposedDpEvent(both, self.kept)

    def scaled(self, factor: float) -> InteractionScreen:
        return replace(self, noise=self.noise * factor)

    def choose(
        self,
        signs: Sequence[AnySign],
        families: Sequence[Family],
        drawn: PackedSigns,
        *,
        rows: float,
        floor: float,
    ) -> ChosenInteractions:
        """The mechanism for products of `signs`.

        `drawn` has the signs of rows of a public or released model, which says what is expected of
        `rows` rows. The choices end after a sum that is less than `floor` from that.

        Raises:
            ValueError: a sign is not one of a column's levels, or a family not one of these signs.
        """
        return ChosenInteractions(self, tuple(signs), tuple(families), drawn, rows, floor)


@dataclass(frozen=True, eq=False)
class ChosenInteractions(Prepaid[InteractionScreen]):
    """`InteractionScreen` with its signs and products chosen, from public or released facts.

    What a told sum is apart from its expectation also moves what is expected of the other sums, by
    how alike the products are in `drawn`: what one interaction explains is not told again. The
    first factor of a product is its target's.
    """

    signs: tuple[AnySign, ...]
    families: tuple[Family, ...]
    drawn: PackedSigns
    rows: float
    floor: float

    def __post_init__(self) -> None:
        domain = self.budget.domain
        for sign in self.signs:
            if isinstance(sign, Sign) and len(sign.minus) != domain[sign.column].levels:
                raise ValueError("a sign for each level of its column")
        for family in self.families:
            members = (*family.shared, family.first, family.stop - 1)
            if not 0 <= min(members) <= max(members) < len(self.signs) or family.size < 1:
                raise ValueError("not a family of these signs")
            if not 1 <= len(family.shared) < MAX_FACTORS:
                raise ValueError(f"products are of 2 to {MAX_FACTORS} signs")

    def run(self, table: Table, randomness: Randomness) -> tuple[ToldSum, ...]:
        """Add up all products, then choose and tell one sum after the other."""
        told = list[ToldSum]()
        if not self.families:
            return ()
        exact = PackedSigns.of(table.fit_codes, self.budget.domain, self.signs).sums(self.families)
        share = self.drawn.sums(self.families) / max(1, self.drawn.rows)
        expected, noise = np.rint(self.rows * share).astype(np.int64), self.budget.noise
        for _ in range(self.budget.kept):
            scores = np.abs(exact - expected)
            (best,) = randomness.noisy_top(scores, scale=noise, count=1).tolist()
            (noisy,) = randomness.rounded_gaussian(exact[[best]], sigma=noise).tolist()
            apart = noisy - int(expected[best])
            places = self.places(best)
            told.append(ToldSum(tuple(self.signs[i] for i in places), noisy, apart))
            if abs(apart) < self.floor:
                break
            expected = expected + np.rint(apart * self._alike(places)).astype(np.int64)
        return tuple(told)

    def places(self, place: int) -> tuple[int, ...]:
        """Where the signs are of the product at a `place` among all."""
        for family in self.families:
            if place < family.size:
                return (*family.shared, family.first + place)
            place -= family.size
        raise ValueError("no such product")

    def _alike(self, one: Sequence[int]) -> Floats:
        """What each product gains where that of the signs at `one` gains 1, and the target's margin
        stays.

        Without its target a product p of `one` and a product q go with each other by cov(p, q) /
        var(p) in the rows `drawn`, which counts as none within chance.
        """
        drawn, rows = self.drawn, max(1, self.drawn.rows)
        target, *rest = one
        mean = 1 - 2 * int(np.bitwise_count(drawn.product(rest)).sum()) / rows
        targets = [
            1 - 2 * int(np.bitwise_count(drawn.product((target, f.shared[0]))).sum()) / rows
            for f in self.families
        ]
        both = drawn.sums(self.families, drawn.product(one)) / rows
        means = drawn.sums(self.families, skipped=1) / rows
        covariance = both - mean * means * np.repeat(targets, [f.size for f in self.families])
        chance = 4.0 / math.sqrt(rows)  # within four deviations a covariance counts as none
        gained = covariance / max(1 - mean**2, chance)
        return np.where(np.abs(covariance) > chance, gained, 0.0)

    def pack(self, value: tuple[ToldSum, ...]) -> Arrays:
        """The columns of each sign, by place `[told, MAX_FACTORS, 2]`, filled up with -1, and where
        it is -1 `[told, MAX_FACTORS, levels]`; sums, and what they are apart.

        What was told is then known by itself: signs may be chosen anew, on other rows.
        """
        index, most = self.budget.domain.index, max(self.budget.domain.sizes, default=0)
        columns = np.full((len(value), MAX_FACTORS, 2), -1, dtype=np.int64)
        minus = np.zeros((len(value), MAX_FACTORS, most), dtype=np.uint8)
        for row, one in enumerate(value):
            for i, sign in enumerate(one.factors):
                if isinstance(sign, Sign):
                    columns[row, i, 0] = index(sign.column)
                    minus[row, i, : len(sign.minus)] = sign.minus
                else:
                    columns[row, i] = index(sign.first), index(sign.second)
        pairs = [(one.noisy, one.apart) for one in value]
        sums = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return {"columns": columns, "minus": minus, "sums": sums}

    def unpack(self, arrays: Arrays) -> tuple[ToldSum, ...]:
        """The sums that were told."""
        domain, told = self.budget.domain, len(arrays["sums"])
        shapes = {
            "columns": (told, MAX_FACTORS, 2),
            "minus": (told, MAX_FACTORS, max(domain.sizes, default=0)),
            "sums": (told, 2),
        }
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise ValueError("not the sums of a screen")
        columns, minus, sums = (arrays[name] for name in shapes)
        whole = columns.dtype == sums.dtype == np.int64 and minus.dtype == np.uint8
        if (
            not whole
            or told > self.budget.kept
            or ((columns < -1) | (columns >= len(domain.names))).any()
        ):
            raise ValueError("not the sums of this screen")

        def sign(columns: Integers, minus: npt.NDArray[np.uint8]) -> AnySign:
            first, second = (domain.columns[i] for i in columns)
            if columns[1] < 0:
                return Sign(first.name, tuple((minus[: first.levels] == 1).tolist()))
            return SameLevel(first.name, second.name)

        return tuple(
            ToldSum(tuple(sign(c, m) for c, m in zip(*both, strict=True) if c[0] >= 0), *own)
            for *both, own in zip(columns, minus, sums.tolist(), strict=True)
        )


def noise_for(mu: float, kept: int) -> float:
    """`InteractionScreen.noise` about as costly as one Gaussian mechanism of sensitivity / noise =
    mu.

    A noisy maximum of range r costs about as much as a Gaussian of mu = r / 2; here r = 2 / noise,
    so that a choice and its sum cost 2 / noise^2 in squares of mu.

    >>> noise_for(0.5, 8)
    8.0
    """
    return math.sqrt(2 * kept) / mu
