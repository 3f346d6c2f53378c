"""Noise and private coins. No seed exists: every key comes from the operating system, and no key of
noise is stored.

(A run keeps half of the key of its holdout coins in its private folder until it ends, and the other
in the ledger, so that a resumed run holds out the same rows; a membership attack that of its game.)

`Randomness` is all that a mechanism may draw, and the only way to draw it; `Streams` is the one
implementation that releases use. Because every noisy value passes through this one seam, the audit
can record what a mechanism wanted to hide and hand it the same noisy values again
(`audit.mechanisms.replay`).

Four independent Philox streams per run, each keyed with 128 fresh bits: Gaussian `noise`, Poisson
`sampling` of batches and of secret samples, the `holdout` coins, and the `latent` coins inside a
model, which protect nothing. Noise on planned tables of units of one row, and on the choices of a
search, is OpenDP's: an exact integer sampler [Canonne, Kamath, Steinke, "The Discrete Gaussian for
Differential Privacy", arXiv:2004.00010v4, Algorithm 3] that draws from the operating system itself
and never rounds a real number. The order of very many noisy scores has a sampler of its own
(`largest`).
"""

from __future__ import annotations

import decimal
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Key = tuple[str, str]  # of a count: a column and a text
NoiseKind = Literal["discrete", "rounded", "lattice", "laplace", "maximum"]
"""Discrete Gaussian, rounded Gaussian, Gaussian on a lattice, discrete Laplace, Gumbel noise of
which only the place of the largest is told.
"""


Doubles = npt.NDArray[np.float64]


def fresh_generator() -> np.random.Generator:
    """A generator keyed with 128 bits from the operating system."""
    return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))


class Randomness(Protocol):
    """What a mechanism may draw. Each noise method takes the exact values and returns the noisy
    ones.
    """

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """`counts` plus independent discrete Gaussian noise of parameter `sigma`, same shape, whole
        numbers.
        """
        ...

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """`counts` plus independent Gaussian noise of standard deviation `sigma` rounded to whole
        numbers, same shape.
        """
        ...

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        """`values` rounded to multiples of `spacing`, plus Gaussian noise rounded likewise, same
        shape.
        """
        ...

    def discrete_laplace(self, counts: Integers, *, scale: float) -> Integers:
        """`counts` plus independent discrete Laplace noise, P[j] ~ exp(-|j| / scale), same shape,
        whole numbers.
        """
        ...

    def noisy_max(self, scores: Integers, *, scale: float) -> int:
        """Position of the largest of `scores` `[candidates]` after independent Gumbel noise of
        `scale`.
        """
        ...

    def noisy_top(self, scores: Integers, *, scale: float, count: int) -> Integers:
        """Positions `[count]` of the largest of `scores` `[candidates]` after independent Gumbel
        noise of `scale`, the largest first.
        """
        ...

    def kept_counts(
        self, counts: Mapping[Key, int], *, sigma: float, threshold: int
    ) -> dict[Key, int]:
        """`counts` plus rounded Gaussian noise, of those keys alone whose noisy count is at least
        `threshold`, in the order of the keys. Nothing tells which other keys there were.
        """
        ...

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        """Positions of the rows in one Poisson batch: an independent coin of chance `rate` for
        each.
        """
        ...

    def secret_sample(self, units: int, *, rate: float) -> npt.NDArray[np.intp]:
        """Positions of the units in the secret sample of a whole training, by an independent coin
        of chance `rate` for each.
        """
        ...

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        """A place for each of `rows`, all different, in chunks of `slots` places: all chunks full
        but the last, whose places are any.
        """
        ...

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        """Standard normals `[rows, width]` inside a model: no privacy noise, but each row's own."""
        ...


DRAWS: Mapping[NoiseKind, Callable[[Randomness, Any, float, float], Any]] = MappingProxyType(
    {
        "discrete": lambda drawn, exact, scale, _: drawn.discrete_gaussian(exact, sigma=scale),
        "rounded": lambda drawn, exact, scale, _: drawn.rounded_gaussian(exact, sigma=scale),
        "lattice": lambda drawn, exact, scale, spacing: drawn.lattice_gaussian(
            exact, sigma=scale, spacing=spacing
        ),
        "laplace": lambda drawn, exact, scale, _: drawn.discrete_laplace(exact, scale=scale),
        "maximum": lambda drawn, exact, scale, _: drawn.noisy_max(exact, scale=scale),
    }
)
"""How each kind of noise is drawn: from whom, on which exact values, its scale, and the spacing of
the lattice, which the other kinds have no use for.
"""


@dataclass(frozen=True)
class Streams:
    """The private randomness of one run; much noise at once is made on so many `threads`, a `block`
    of values at a time.
    """

    noise: np.random.Generator
    sampling: np.random.Generator
    holdout: np.random.Generator
    latent: np.random.Generator
    threads: int = field(default=1, kw_only=True)
    block: int = field(default=1 << 18, kw_only=True)

    @classmethod
    def fresh(cls) -> Streams:
        """Four streams that share nothing."""
        return cls(fresh_generator(), fresh_generator(), fresh_generator(), fresh_generator())

    @classmethod
    def quick(cls) -> Streams:
        """Streams for rehearsals, whose noise hides nothing: of the same laws, by a generator that
        takes two thirds of the time.
        """
        keys = (secrets.randbits(128) for _ in range(4))
        noise, sampling, holdout, latent = (np.random.Generator(np.random.SFC64(k)) for k in keys)
        return cls(noise, sampling, holdout, latent)

    def discrete_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """By OpenDP, which draws from the operating system."""
        noisy = _gaussian_measurement(_checked(sigma))(counts.ravel().tolist())
        return np.asarray(noisy, dtype=np.int64).reshape(counts.shape)

    def rounded_gaussian(self, counts: Integers, *, sigma: float) -> Integers:
        """From the noise stream."""
        noisy: Integers = counts + np.rint(
            _checked(sigma) * self.noise.standard_normal(counts.shape)
        ).astype(np.int64)
        return noisy

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        """From the noise stream; `sigma` is the standard deviation in the units of `values`. On
        several threads each block of many values has a stream of its own, keyed with 128 fresh bits
        like any other: whatever their keys, normals of one stream say nothing of another's, and
        each value still gets one.

        With g = `spacing`, round(v) + round(N) = round(round(v) + N) for a multiple round(v) of g:
        post-processing of the Gaussian mechanism on round(v), so that no low bit of the result says
        where v was [derived here].
        """
        noisy = values.astype(np.float64, order="C").reshape(-1)

        def add(part: Doubles, stream: np.random.Generator) -> None:
            noise = stream.standard_normal(len(part)) * (_checked(sigma) / _checked(spacing))
            # in place: these arrays are as long as the model, and memory is most of what they take
            part /= spacing
            np.rint(part, out=part)
            part += np.rint(noise, out=noise)
            part += 0.0  # a zero with a sign would say on which side of it v was
            part *= spacing

        parts = [noisy[start : start + self.block] for start in range(0, len(noisy), self.block)]
        if self.threads == 1 or len(parts) < 2:
            add(noisy, self.noise)
        else:  # NumPy lets other threads run while it draws
            with ThreadPoolExecutor(self.threads) as pool:
                list(pool.map(add, parts, [fresh_generator() for _ in parts]))
        return noisy.reshape(values.shape)

    def discrete_laplace(self, counts: Integers, *, scale: float) -> Integers:
        """By OpenDP, which draws from the operating system."""
        noisy = _laplace_measurement(_checked(scale))(counts.ravel().tolist())
        return np.asarray(noisy, dtype=np.int64).reshape(counts.shape)

    def noisy_max(self, scores: Integers, *, scale: float) -> int:
        """By OpenDP, which compares the noisy scores exactly, digit by digit."""
        return int(_max_measurement(_checked(scale))(scores.tolist()))

    def noisy_top(self, scores: Integers, *, scale: float, count: int) -> Integers:
        """From the noise stream, with as many bits as the order takes (`largest`)."""
        return largest(scores, scale=_checked(scale), count=count, generator=self.noise)

    def kept_counts(
        self, counts: Mapping[Key, int], *, sigma: float, threshold: int
    ) -> dict[Key, int]:
        """From the noise stream, one draw for each key."""
        keys = sorted(counts)
        exact = np.array([counts[key] for key in keys], dtype=np.int64)
        noisy = self.rounded_gaussian(exact, sigma=sigma).tolist()
        return {key: count for key, count in zip(keys, noisy, strict=True) if count >= threshold}

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        """From the sampling stream, by the gaps between the rows drawn: `rows * rate` draws do for
        `rows` coins.

        Of independent coins of chance q the next success is j rows further with chance (1 - q)^(j -
        1) q, whatever came before. So gaps drawn by this law, one after the other until they pass
        the last row, give every batch the chance that one coin for each row gives it; and rows
        added at the end change nothing before them. Frequent rows get
        their coins. A gap is at least one: the generator's inversion gives none with chance 2^-53.
        """
        if rate >= 0.3:  # from this rate on each row gets its own coin: gaps would save nothing
            return np.flatnonzero(self.sampling.random(rows) < rate)
        if rate <= 0:
            return np.zeros(0, dtype=np.intp)
        expected = rows * rate
        drawn: list[Integers] = []
        last = -1
        while last < rows:
            gaps = self.sampling.geometric(rate, size=int(expected + 6 * expected**0.5) + 8)
            drawn.append(last + np.cumsum(np.clip(gaps, 1, rows + 1)))
            last = int(drawn[-1][-1])
        places = np.concatenate(drawn).astype(np.intp)
        return places[: np.searchsorted(places, rows)]

    def secret_sample(self, units: int, *, rate: float) -> npt.NDArray[np.intp]:
        """From the sampling stream, by the law of a batch."""
        return self.poisson_batch(units, rate=rate)

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        """From the sampling stream; each way to place the rows is as likely as any other.

        So a row more or less need not move the others [derived here]. Where `rows` are below
        `slots`: given a place for each, put one row more at any free place, each as likely. That is
        how one row more is placed, and the others stay where they were. Where there are more: take
        a free place of the last chunk (of a new one, if all are full) and any place of all, each as
        likely; one row more goes to the second, and the row that was there, if any, to the first.
        One other row moves, at most.
        """
        full = max(0, -(-rows // slots) - 1) * slots
        last = full + self.sampling.permutation(slots)[: rows - full]
        return self.sampling.permutation(np.concatenate([np.arange(full), last])) if full else last

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        """From the latent stream."""
        return self.latent.standard_normal((rows, width), dtype=np.float32)

    def __repr__(self) -> str:
        return "<Streams>"


def _checked(scale: float) -> float:
    if not (scale > 0 and np.isfinite(scale)):
        raise ValueError(f"a noise scale must be positive and finite, got {scale}")
    return scale


@cache
def _gaussian_measurement(sigma: float) -> Any:
    dp = load_sampler()
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=sigma)


@cache
def _laplace_measurement(scale: float) -> Any:
    dp = load_sampler()
    return dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale
    )


@cache
def _max_measurement(scale: float) -> Any:
    dp = load_sampler()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    return dp.m.make_noisy_max(
        *space, dp.zero_concentrated_divergence(), scale=scale
    )  # the measure by which OpenDP draws Gumbel noise


def load_sampler() -> Any:
    """OpenDP, which draws the noise; where it is missing, an `ImportError` before any charge."""
    import opendp.prelude as dp  # 1.7 s of CPU: only when noise is really drawn

    dp.enable_features("contrib")
    return dp


# --- gumbel order ---


WORD = 64
"""Bits that are drawn at a time."""
ROUNDING = 2.0**-48
"""Of doubles: relative errors of a few units in the last place, with room to spare."""


def largest(
    scores: Integers, *, scale: float, count: int, generator: np.random.Generator
) -> Integers:
    """Positions of the `count` largest of `scores` `[candidates]` plus Gumbel noise of `scale`, the
    largest first; of all of them, if there are no more.

    >>> scores = np.array([0, 1_000_000, 2_000_000])
    >>> largest(scores, scale=1.0, count=2, generator=np.random.default_rng()).tolist()
    [2, 1]

    The largest of many scores after Gumbel noise, in the order that exact arithmetic gives.

    Each score has a uniform number v of endlessly many random bits, and the noise -ln(-ln(1 - v)).
    The first bits do, where the intervals in which noisy scores then lie do not touch. Where they
    touch, more bits are drawn. So no rounding decides what is told, and the law is that of real
    numbers [derived here; Knuth and Yao 1976, "The complexity of nonuniform random number
    generation", have the idea].

    OpenDP has the same law, by rejection: a score that stands out costs it a pass over all others,
    and of 450,775 pairs with 900 strong ones 200 seconds. This takes a tenth of one.
    """
    bits = _drawn(len(scores), generator)
    noisy, error = _in_doubles(scores / scale, bits)
    order = np.argsort(-noisy, kind="stable")
    low, high = noisy - error, noisy + error
    if _apart(low[order], high[order], count):
        return order[:count]
    least = np.sort(low)[::-1][min(count, len(low)) - 1]
    return _refined(scores, scale, bits, np.flatnonzero(high >= least), count, generator)


def _drawn(count: int, generator: np.random.Generator) -> npt.NDArray[np.uint64]:
    return generator.integers(0, (1 << WORD) - 1, count, dtype=np.uint64, endpoint=True)


def _in_doubles(heights: Doubles, bits: npt.NDArray[np.uint64]) -> tuple[Doubles, Doubles]:
    """Noisy heights, and what they may be off by: by bits that were not drawn, and by rounding.

    The noise g has derivative -1 / (v' e) in v, with e = -ln(1 - v) and v' = 1 - v. Half a word's
    last place more or less changes v e by less than a factor of 3, but for the first word and the
    last ones.
    """
    v = np.minimum((bits.astype(np.float64) + 0.5) * 2.0**-WORD, 1 - 2.0**-53)
    e = -np.log1p(-v)
    g = -np.log(e)
    error = 3 * (2.0**-WORD + v * ROUNDING) / ((1 - v) * e)
    error += ROUNDING * (1 + np.abs(g) + np.abs(heights))
    error[(bits == 0) | (v >= 1 - max(2.0**-52, 2.0**-WORD))] = np.inf
    return heights + g, error


def _apart(low: Any, high: Any, count: int) -> bool:
    """Whether each of the first `count` intervals lies above all that come after it."""
    after = np.maximum.accumulate(high[::-1])[::-1][1 : count + 1]
    return bool((low[: len(after)] > after).all())


def _refined(
    scores: Integers,
    scale: float,
    bits: npt.NDArray[np.uint64],
    among: npt.NDArray[np.intp],
    count: int,
    generator: np.random.Generator,
) -> Integers:
    """As `largest`, of the positions `among`, with more bits until the intervals lie apart."""
    drawn, known = [int(bits[i]) for i in among], WORD
    while True:
        more = _drawn(len(among), generator).tolist()
        drawn, known = [(b << WORD) + m for b, m in zip(drawn, more, strict=True)], known + WORD
        low, high = _in_decimals([int(scores[i]) for i in among], scale, drawn, known)
        order = np.array(sorted(range(len(among)), key=high.__getitem__, reverse=True))
        if _apart(np.array(low)[order], np.array(high)[order], count):
            found: Integers = among[order][:count]
            return found


def _in_decimals(
    scores: Sequence[int], scale: float, bits: Sequence[int], known: int
) -> tuple[list[Decimal], list[Decimal]]:
    """Ends of the intervals of noisy scores over `scale`, of which `known` bits are drawn.

    With 30 + b digits, v >= 2^-b and so ln(1 - v) are off by less than a share of 10^-(29 + b / 2).
    """
    with decimal.localcontext(prec=30 + known):
        unit, last = Decimal(2) ** -known, (1 << known) - 1
        room, infinite = Decimal(10) ** -(20 + known // 2), Decimal("Infinity")
        low, high = [], []
        for score, word in zip(scores, bits, strict=True):
            height = Decimal(score) / Decimal(scale)
            few = -infinite if word == last else height - (-(1 - (word + 1) * unit).ln()).ln()
            many = infinite if word == 0 else height - (-(1 - word * unit).ln()).ln()
            low.append(few - room)
            high.append(many + room)
    return low, high
