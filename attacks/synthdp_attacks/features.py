"""What the adversary reads off a synthetic set: a vector of numbers for the classifier.

Naive, Histogram, Correlation and Ensemble follow Stadler et al. (2022) and the causally constrained
synthesis paper, section 5.3; they describe the table as a whole and are nearly blind to one record.
Targeted counting queries (Houssiau et al., 2022, "TAPAS") ask how many synthetic rows agree with
the target on sets of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np

from synthdp_attacks.threat import BoolArray, Codes, FloatArray, Public

Extractor = Callable[[Codes], FloatArray]
Factory = Callable[[Public, Codes, np.random.Generator], Extractor]

QUERIES = 256
_CHUNK = 4096


def naive(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Mean, median, variance, levels present, most and least frequent level: 6 x columns."""

    def extract(synthetic: Codes) -> FloatArray:
        counts = _counts(synthetic, public)
        modes = [(np.count_nonzero(c), np.argmax(c), np.argmin(c)) for c in counts]
        moments = np.stack(
            [synthetic.mean(axis=0), np.median(synthetic, axis=0), synthetic.var(axis=0)]
        )
        return np.concatenate([moments.ravel(), np.asarray(modes, dtype=np.float64).ravel()])

    return extract


def histogram(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Share of rows at each level of each column: as many as there are levels."""

    def extract(synthetic: Codes) -> FloatArray:
        return np.concatenate(_counts(synthetic, public)) / len(synthetic)

    return extract


def correlation(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """For each pair of columns: Pearson's correlation of the codes, and Cramer's V.

    Cramer's V needs no order of the levels.
    """
    first, second = np.triu_indices(len(public.sizes), 1)

    def extract(synthetic: Codes) -> FloatArray:
        codes = synthetic.astype(np.float64)
        centred = codes - codes.mean(axis=0)
        scale = np.sqrt((centred**2).sum(axis=0))
        scaled = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 0)
        return np.concatenate(
            [(scaled.T @ scaled)[first, second], _cramer_v(synthetic, public.sizes)[first, second]]
        )

    return extract


def ensemble(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Naive, Histogram and Correlation together."""
    parts = [make(public, target, rng) for make in (naive, histogram, correlation)]

    def extract(synthetic: Codes) -> FloatArray:
        return np.concatenate([part(synthetic) for part in parts])

    return extract


def targeted(public: Public, target: Codes, rng: np.random.Generator) -> Extractor:
    """Number of rows that agree with the target on each of up to `QUERIES` sets of columns.

    The empty set comes first. Of a target of several rows it is the sum over them.
    """
    masks = column_subsets(len(public.sizes), QUERIES, rng)
    needed = masks.sum(axis=1)

    def extract(synthetic: Codes) -> FloatArray:
        total = np.zeros(len(masks))
        for start in range(0, len(synthetic), _CHUNK):
            for row in np.atleast_2d(target):
                agree = (synthetic[start : start + _CHUNK] == row).astype(np.float32)
                total += (agree @ masks.T.astype(np.float32) == needed).sum(axis=0)
        return total

    return extract


EXTRACTORS: dict[str, Factory] = {
    "naive": naive,
    "histogram": histogram,
    "correlation": correlation,
    "ensemble": ensemble,
    "targeted": targeted,
}


def column_subsets(columns: int, count: int, rng: np.random.Generator) -> BoolArray:
    """Distinct sets of columns as masks `[sets, columns]`.

    They are the empty set, singles, all columns, and random ones.

    Random sets spread evenly over the sizes. All sets are taken when there are no more than
    `count`.
    """
    sizes = range(columns + 1)
    if 2**columns <= count:
        chosen = {s for size in sizes for s in combinations(range(columns), size)}
    else:
        chosen = {(), tuple(range(columns)), *((c,) for c in range(columns))}
        room = {size: comb(columns, size) for size in range(2, columns)}
        while len(chosen) < count and room:
            size = int(rng.choice(list(room)))
            subset = tuple(sorted(int(c) for c in rng.choice(columns, size=size, replace=False)))
            room[size] -= subset not in chosen
            chosen.add(subset)
            if room[size] == 0:
                del room[size]
    masks = np.zeros((len(chosen), columns), dtype=bool)
    for row, subset in zip(masks, sorted(chosen, key=lambda s: (len(s), s)), strict=True):
        row[list(subset)] = True
    return masks


def feature_matrix(extract: Extractor, sets: Sequence[Codes]) -> FloatArray:
    """Features of each synthetic set, shape `[sets, features]`."""
    return np.stack([extract(synthetic) for synthetic in sets])


def _counts(synthetic: Codes, public: Public) -> list[FloatArray]:
    return [
        np.bincount(column, minlength=size).astype(np.float64)
        for column, size in zip(synthetic.T, public.sizes, strict=True)
    ]


def _cramer_v(synthetic: Codes, sizes: Sequence[int]) -> FloatArray:
    """Cramer's V of every two columns, in 0 .. 1: `[columns, columns]`.

    It is 0 where one of them is constant.

    All tables of pairs are blocks of one product of indicators, and chi-square is summed over
    blocks.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shown = np.zeros(
        (len(synthetic), int(np.sum(sizes))), dtype=np.float32
    )  # whole counts up to 2^24 are exact
    shown[np.arange(len(synthetic))[:, None], synthetic + starts] = 1
    joint = (shown.T @ shown).astype(np.float64)
    margins = joint.diagonal()
    expected = np.outer(margins, margins) / len(synthetic)
    share = np.divide(
        (joint - expected) ** 2, expected, out=np.zeros_like(joint), where=expected > 0
    )
    square = np.add.reduceat(np.add.reduceat(share, starts, axis=0), starts, axis=1)
    present = np.add.reduceat((margins > 0).astype(np.int64), starts)
    degrees = np.minimum.outer(present, present) - 1
    v: FloatArray = np.sqrt(
        np.divide(square, len(synthetic) * degrees, out=np.zeros_like(square), where=degrees > 0)
    )
    return v
