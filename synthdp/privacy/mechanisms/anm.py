"""Scores of an additive noise model in both directions, released together (private ANM, Kusner et
al. 2016).

Each row goes to a training or a test half by a coin of its own. The training half gives noisy
tables of x with the sums of y, and of y with the sums of x, from which both regressions follow; the
test half gives noisy dependence scores of each cause and the residual of its effect.

Where this departs from the paper. Its regressions are kernel ridge regressions without noise, whose
every change moves all residuals: with the corrected bound (4/(n lambda))(1 + 1/sqrt(2 lambda)), of
which a search reaches .55 to .69 (tests/graph/test_published_numeric_bounds.py), that costs HSIC
more than it holds at any lambda that still fits, and leaves ranks and IQR without a bound at all.
Regressions that are released need no training-set privacy of the scores, for any score. And its IQR
by propose-test-release may refuse; noisy tables do not. Noise is Gaussian, so that it composes with
the rest of a release.

The default score, "table", is none of the paper's: it releases a two-way table of the pair instead,
which at 2000 rows and epsilon 1 tells .85 of the directions of simulated pairs, where HSIC tells
.58 (benchmarks/orientation.py).

One noisy two-way table of a pair of numeric columns: all that an additive noise model in both
directions is read from.

The paper's scores are released one by one, and each moves by several units with one row, on half of
the rows. A table of counts moves by one, on all of them, and both regressions, the residuals and
their dependence are post-processing of it (`graph.contrib.anm_direction`).

Which way pairs of columns point: additive noise models of pairs that are chosen late.

A pair is measured by a two-way table (`PairTable`), the default, or by dependence scores
(`AdditiveNoiseScores`).

Dependence scores of two columns, each times the number of rows, with what an added row changes.

Scores of Kusner et al., "Private Causal Inference" (arXiv:1512.05469, as published at AISTATS
2016), section 3.3, in a form whose sensitivity needs no number of rows: the paper's bounds are for
replaced rows and a public number of them. All sensitivities below are for one added or removed row;
each is approached (tests/privacy/test_dependence.py searches).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau, rankdata

from synthdp.data.basis import Basis, KernelGrid, Scale, scatter
from synthdp.data.domain import Domain
from synthdp.privacy.events.kernel import RoundedGaussianDpEvent
from synthdp.privacy.mechanisms import Arrays, Prepaid
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.float64]

SPEARMAN_SENSITIVITY = 5.0
KENDALL_SENSITIVITY = 3.0


def spearman(a: Floats, b: Floats) -> float:
    """m rho = 12 N / (m^2 - 1), with N the sum of products of centred mid-ranks; 0 below two rows.

    Sensitivity 5 [derived here]: with p and q of the m rows below the new one in a and in b, N
    moves by at most q(m - q)/2 + p(m - p)/2 + |p - m/2| |q - m/2| + m/4 <= m^2/4 + m/4, so 12 N /
    (m(m + 2)) by less than 3; and since |N| <= m(m^2 - 1)/12, the change of the denominator makes
    at most (2m + 1)/(m + 2) < 2. That is without ties; with them N is a quarter of the Q of
    `privacy.mechanisms.ranks`, where both bounds are proved. From one row to two: |N| <= 1/2, so 2.
    """
    m = len(a)
    if m < 2:
        return 0.0
    centre = (m + 1) / 2
    products = (rankdata(a) - centre) @ (rankdata(b) - centre)
    return float(12 * products / (m**2 - 1))


def kendall(a: Floats, b: Floats) -> float:
    """m tau-a = 2 (concordant - discordant) / (m - 1), ties counting nothing; 0 below two rows.

    Sensitivity 3 [derived here]: a new row adds at most m pairs, which makes 2 m / m = 2; and the
    larger denominator takes 2 |C - D| / (m (m - 1)) <= 1 from the others, for |C - D| <= m (m - 1)
    / 2. From one row to two: 2.
    """
    m = len(a)
    if m < 2:
        return 0.0
    return 2 * _concordant_less_discordant(a, b) / (m - 1)


def _concordant_less_discordant(a: Floats, b: Floats) -> int:
    """From the tie-corrected tau of scipy, which is this over sqrt of the pairs without ties in
    each column.
    """
    untied = [
        len(v) * (len(v) - 1) // 2
        - sum(c * (c - 1) // 2 for c in np.unique(v, return_counts=True)[1].tolist())
        for v in (a, b)
    ]
    if 0 in untied:
        return 0
    return round(float(kendalltau(a, b).statistic) * math.sqrt(untied[0]) * math.sqrt(untied[1]))


def hsic(a: Floats, b: Floats, kernel: KernelGrid) -> float:
    """m sqrt(HSIC), of sensitivity `KernelGrid.diameter` squared: proved by `data.basis.scatter`.
    Values in [-1, 1].

    With the paper's neighbours, one of m rows replaced, its square over (m - 1)^2 (HSIC itself)
    moves by at most 4 / (m - 1), where the paper has (12 m - 11) / (m - 1)^2 [derived here; no
    mechanism rests on it]. Let T be the sum that `scatter` takes the norm of, kernels k and l
    between 0 and 1 with k(x, x) = 1. Both tables add one row to the same m - 1, so T moves by (m -
    1) / m times the difference of two products of norm <= 2, as diameters are at most sqrt(2): by
    at most 4 (m - 1) / m. And |T| <= m / 2: with means E over pairs of rows and k_c the centred
    kernel, |T|^2 = m^2 E k_c l_c <= m^2 sqrt(E k_c^2 E l_c^2), and with u(x) = E k(x, X), E k_c^2 =
    E k^2 - 2 E u^2 + (E u)^2 <= E k - (E k)^2 <= 1/4. So |T|^2 moves by at most 4 (m - 1) / m * 2
    (m / 2) = 4 (m - 1).
    """
    return scatter(kernel(a), kernel(b))


def spread_table(values: Floats, bins: int = 128) -> Counts:
    """Counts of values in equal bins of [-1, 1], `[bins]`: one row moves one count by one."""
    counts = np.histogram(np.clip(values, -1, 1), bins, (-1, 1))[0]
    return counts.astype(np.float64)


def scaled_columns(
    table: Table, domain: Domain, names: tuple[str, ...], scales: tuple[tuple[str, Scale], ...] = ()
) -> list[Floats]:
    """Numbers of the rows that mechanisms see, on [-1, 1], one array per column; NaN where
    missing.
    """
    basis = Basis(domain, names, scales=scales)
    fit = ~table.held_out
    return list(basis.scaled(table.frame[fit], table.codes[fit]).values())


Published = Literal["spearman", "kendall", "hsic", "iqr"]
SCORES: tuple[Published, ...] = get_args(Published)

GRID = 2.0**-20
TABLE_GRID = 2.0**-10


@dataclass(frozen=True)
class RegressionSettings:
    """How effects are regressed on causes: by the means of so many `bins` of the cause.

    A bend of one unit weighs as much as `smoothness` rows, and `smoothness_of_noise` more for each
    unit of noise. `drift` stands for the inverse of a spread of residuals: with 1, on simulated
    pairs, the probabilities told are below the share that is right, at epsilon .5 and above.
    """

    bins: int = 32
    smoothness: float = 3.0
    smoothness_of_noise: float = 4.0
    drift: float = 1.0


REGRESSION = RegressionSettings()
KERNEL = KernelGrid(0.1)  # narrow: dependence shows more, and the sensitivity is the same


@dataclass(frozen=True, eq=False)
class NoisyScores:
    """Released scores, each times the number of test rows, cause x first: `[2]`; for IQR tables of
    x, r_y, y, r_x `[4, bins]`.

    `sigma`: noise of each entry. Smaller scores mean less dependence. `drift`: about how much
    dependence the noise in either regression may have left in its residual, `[2]` on the scale of
    the scores times rows.
    """

    scores: dict[Published, Floats]
    sigma: dict[Published, float]
    drift: Floats


@dataclass(frozen=True)
class AdditiveNoiseScores:
    """Regress both ways on one half, score the residuals on the other.

    Privacy [derived here]: a row is in one half, whatever the others are. In the training half it
    moves one count and one sum of each table by at most one, together at most 2 in L2. In the test
    half the regressions are fixed, and it moves every entry of a score by at most that score's
    sensitivity; standardised by it, m scores move by at most sqrt(m) together. Both draws have
    noise of `noise_multiplier` times those bounds, so either way one row moves one draw by 1 /
    `noise_multiplier`; j rows of a unit in one half and k - j in the other move both by sqrt(j^2 +
    (k - j)^2) <= k together.
    """

    domain: Domain
    x: str
    y: str
    noise_multiplier: float
    scores: tuple[Published, ...] = ("hsic",)
    kernel: KernelGrid = KERNEL
    scales: tuple[tuple[str, Scale], ...] = ()

    def __post_init__(self) -> None:
        if not (self.domain[self.x].ranged and self.domain[self.y].ranged):
            raise ValueError(
                f"an additive noise model needs two columns of numbers or instants, got {self.x!r}"
                f" and {self.y!r}"
            )
        if (
            not self.scores
            or set(self.scores) - set(SCORES)
            or len(set(self.scores)) < len(self.scores)
        ):
            raise ValueError(
                f"scores must be some of {', '.join(SCORES)}, each once, got {self.scores}"
            )

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on an additive noise"
            f" model of one pair ({', '.join(self.scores)})"
        )

    @property
    def table_sigma(self) -> float:
        """Noise of each entry of the training tables.

        One row moves them by 2 at most: its two counts, and its two values of at most one.
        """
        return self.noise_multiplier * 2.0

    def unit(self, score: Published) -> float:
        """How far one row moves all entries of a score, in L2.

        [Derived here: two entries, each by at most the score's sensitivity, which its function
        proves; absolute values move no further than what they are of. For IQR one count of each of
        four tables, by one.]
        """
        return {
            "spearman": math.sqrt(2) * SPEARMAN_SENSITIVITY,
            "kendall": math.sqrt(2) * KENDALL_SENSITIVITY,
            "hsic": math.sqrt(2) * self.kernel.diameter**2,
            "iqr": 2.0,
        }[score]

    @property
    def sigma(self) -> float:
        """Noise of each standardised entry.

        [Derived here: rounding to `GRID` moves each entry by at most GRID more, and there are at
        most 6 and 4 times the bins of `spread_table` of them: together less than 1e-4 / 4.]
        """
        return self.noise_multiplier * (math.sqrt(len(self.scores)) + 1e-4)

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier / rows_per_unit)

    def scaled(self, factor: float) -> AdditiveNoiseScores:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def run(self, table: Table, randomness: Randomness) -> NoisyScores:
        """Split, regress, score."""
        fit = ~table.held_out
        training, test = fit.copy(), fit.copy()
        training[fit] = randomness.latents(int(fit.sum()), 1)[:, 0] > 0
        test &= ~training
        basis = Basis(self.domain, (self.x, self.y), scales=self.scales)
        (x, y), (test_x, test_y) = (
            _known(basis, table, half, self.x, self.y) for half in (training, test)
        )
        tables = _rows_and_sums(x, y), _rows_and_sums(y, x)
        noisy_tables = (
            randomness.rounded_gaussian(np.stack(tables), sigma=self.table_sigma / TABLE_GRID)
            * TABLE_GRID
        )
        forward, backward = (regression(*both, noise=self.table_sigma) for both in noisy_tables)
        x, y = test_x, test_y
        residuals = residual(forward, x, y), residual(backward, y, x)
        exact = np.concatenate(
            [
                self._score(score, (x, y), residuals).ravel() / self.unit(score)
                for score in self.scores
            ]
        )
        noisy = np.asarray(
            randomness.rounded_gaussian(
                np.rint(exact / GRID).astype(np.int64), sigma=self.sigma / GRID
            )
            * GRID,
            dtype=np.float64,
        )
        return self._unpacked(
            noisy, np.array([drift(rows, noise=self.table_sigma) for rows, _ in noisy_tables])
        )

    def _score(
        self, score: Published, causes: tuple[Floats, Floats], residuals: tuple[Floats, Floats]
    ) -> Floats:
        pairs = list(zip(causes, residuals, strict=True))
        match score:
            case "spearman":
                return np.array([abs(spearman(a, r)) for a, r in pairs])
            case "kendall":
                return np.array([abs(kendall(a, r)) for a, r in pairs])
            case "hsic":
                return np.array([hsic(a, r, self.kernel) for a, r in pairs])
            case "iqr":
                return np.stack([spread_table(values) for pair in pairs for values in pair])

    def _unpacked(self, noisy: Floats, drifts: Floats) -> NoisyScores:
        sizes = [
            self._score(score, (np.zeros(0),) * 2, (np.zeros(0),) * 2).shape
            for score in self.scores
        ]
        ends = np.cumsum([math.prod(size) for size in sizes])[:-1]
        parts = [
            part.reshape(size) for part, size in zip(np.split(noisy, ends), sizes, strict=True)
        ]
        return NoisyScores(
            {
                score: part * self.unit(score)
                for score, part in zip(self.scores, parts, strict=True)
            },
            {score: self.sigma * self.unit(score) for score in self.scores},
            drifts,
        )

    def pack(self, value: NoisyScores) -> Arrays:
        """Scores by name, and the drifts."""
        return {str(name): array for name, array in value.scores.items()} | {"drift": value.drift}

    def unpack(self, arrays: Arrays) -> NoisyScores:
        """Scores by name."""
        return NoisyScores(
            {s: arrays[s] for s in self.scores},
            {s: self.sigma * self.unit(s) for s in self.scores},
            arrays["drift"],
        )


def _known(
    basis: Basis, table: Table, half: npt.NDArray[np.bool_], x: str, y: str
) -> tuple[Floats, Floats]:
    """Both columns' scaled numbers of the rows of one half in which neither is missing."""
    both = basis.scaled(table.frame[half], table.codes[half])
    known = ~np.isnan(both[x]) & ~np.isnan(both[y])
    return both[x][known], both[y][known]


def _rows_and_sums(causes: Floats, effects: Floats) -> npt.NDArray[np.int64]:
    """Rows, and sums of effects, by bin of the cause, `[2, bins]` in units of `TABLE_GRID`: whole
    numbers, so sums are exact.
    """
    size = REGRESSION.bins
    bins = np.minimum(((causes + 1) / 2 * size).astype(np.intp), size - 1)
    whole = np.rint(effects / TABLE_GRID)
    tables = [
        np.bincount(bins, minlength=size) / TABLE_GRID,
        np.bincount(bins, weights=whole, minlength=size),
    ]
    return np.stack(tables).astype(np.int64)


def regression(rows: Floats, sums: Floats, *, noise: float) -> Floats:
    """Mean effect at the middle of each bin of the cause, `[bins]`, from noisy tables: weighted
    least squares with a penalty on second differences (Whittaker 1923), the heavier the noisier the
    tables are.
    """
    fitted = np.linalg.solve(_weighted(rows, noise), sums)
    return np.asarray(np.clip(fitted, -1.0, 1.0), dtype=np.float64)


def drift(rows: Floats, *, noise: float) -> float:
    """Dependence that the noise of a regression leaves in its residual, times rows.

    An error e(x) of the fitted mean, half of it in the residual, moves rows * sqrt(HSIC) by about
    rows * |e| / 2 over the residual's own spread [derived here, first order]; that spread is not
    released and `drift` stands for its inverse. Endless where the tables are mostly noise.
    """
    inverse = np.linalg.inv(_weighted(rows, noise))
    weights = np.where(
        rows > 2 * noise, rows, 0.0
    )  # few rows are in the others, and what is known of them is noise
    errors = np.minimum(
        2 * noise**2 * (inverse**2).sum(1), 1.0
    )  # of sums, and of rows times a mean of at most one
    total = weights.sum()
    if total < rows.sum() / 2 or total <= 0:
        return math.inf  # most rows are in bins of which nothing is known
    return float(REGRESSION.drift * total / 2 * np.sqrt(weights @ errors / total))


def _weighted(rows: Floats, noise: float) -> Floats:
    """The normal equations' matrix, `[bins, bins]`."""
    bends = np.diff(np.eye(REGRESSION.bins), 2, axis=0)
    penalty = REGRESSION.smoothness + REGRESSION.smoothness_of_noise * noise
    return np.asarray(
        np.diag(np.maximum(rows, 0.0)) + penalty * bends.T @ bends + 1e-3 * np.eye(REGRESSION.bins),
        dtype=np.float64,
    )


def residual(fitted: Floats, causes: Floats, effects: Floats) -> Floats:
    """Half of what the regression leaves, so that it lies in [-1, 1], `[rows]`."""
    middles = (np.arange(REGRESSION.bins) + 0.5) / REGRESSION.bins * 2 - 1
    return np.asarray((effects - np.interp(causes, middles, fitted)) / 2, dtype=np.float64)


# --- pair table ---


Integers = npt.NDArray[np.int64]

CELLS = 16
"""Along each column's declared range: on simulated pairs finer grids lose more to noise than
coarser ones lose to width.
"""


@dataclass(frozen=True, eq=False)
class NoisyPair:
    """Released counts `[CELLS, CELLS]` of x by y, with noise of deviation `sigma` in each; may be
    negative.
    """

    counts: Floats
    sigma: float


@dataclass(frozen=True)
class PairTable:
    """Count the rows in a public grid of equal cells of both ranges, and add rounded Gaussian
    noise.

    Sensitivity [derived here]: a row lies in one cell, or in none if either number is missing,
    whatever the other rows are. Adding or removing it moves one count by one, so 1 in L2; k rows of
    a unit at most k, reached in one cell. Counts are whole numbers, so that rounding the noise is
    post-processing (`events.kernel.RoundedGaussianDpEvent`).

    Raises:
        ValueError: a column is no number or instant.
    """

    domain: Domain
    x: str
    y: str
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not (self.domain[self.x].ranged and self.domain[self.y].ranged):
            raise ValueError(
                f"an additive noise model needs two columns of numbers or instants, got {self.x!r}"
                f" and {self.y!r}"
            )

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on a two-way table of"
            f" {CELLS} x {CELLS} cells"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism on counts."""
        return RoundedGaussianDpEvent(self.noise_multiplier, rows_per_unit)

    def run(self, table: Table, randomness: Randomness) -> NoisyPair:
        """Count, then the noise."""
        x, y = scaled_columns(table, self.domain, (self.x, self.y))
        known = ~np.isnan(x) & ~np.isnan(y)
        counts = count_cells(x[known], y[known])
        return NoisyPair(
            np.asarray(
                randomness.rounded_gaussian(counts, sigma=self.noise_multiplier), dtype=np.float64
            ),
            self.noise_multiplier,
        )

    def pack(self, value: NoisyPair) -> Arrays:
        """The table."""
        return {"counts": value.counts}

    def unpack(self, arrays: Arrays) -> NoisyPair:
        """The table."""
        counts = arrays["counts"]
        if (
            counts.shape != (CELLS, CELLS)
            or counts.dtype != np.float64
            or not np.isfinite(counts).all()
        ):
            raise ValueError("not the counts of a pair")
        return NoisyPair(counts, self.noise_multiplier)


def count_cells(x: Floats, y: Floats) -> Integers:
    """Rows by cell, `[CELLS, CELLS]`; numbers on [-1, 1], those beyond count in the outermost
    cells.
    """
    rows, columns = (np.clip(((v + 1) / 2 * CELLS).astype(np.intp), 0, CELLS - 1) for v in (x, y))
    return np.bincount(rows * CELLS + columns, minlength=CELLS**2).reshape(CELLS, CELLS)


# --- orientations ---


Score = Literal["table"] | Published


@dataclass(frozen=True)
class OrientationBudget:
    """Additive noise models of pairs that are chosen later, in the light of earlier releases, at a
    price fixed when the plan is made.

    k pairs get `noise_multiplier * sqrt(k)` each: k Gaussian mechanisms that compose to the planned
    one whatever k is, for k / (`noise_multiplier` sqrt(k))^2 is the planned squared mu [Dong, Roth
    and Su, "Gaussian Differential Privacy", arXiv:1905.02383v3, Corollary 3.3]. k depends on
    earlier releases alone.
    """

    domain: Domain
    noise_multiplier: float
    scores: tuple[Score, ...] = ("table",)

    @property
    def name(self) -> str:
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on additive noise"
            " models of pairs chosen from earlier releases"
        )

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism; on counts, where each pair has a two-way table."""
        if self.scores == ("table",):
            return RoundedGaussianDpEvent(self.noise_multiplier, rows_per_unit)
        return dp_accounting.GaussianDpEvent(self.noise_multiplier / rows_per_unit)

    def scaled(self, factor: float) -> OrientationBudget:
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def choose(self, pairs: Sequence[tuple[str, str]]) -> ChosenOrientations:
        """The mechanism for `pairs`."""
        noise = self.noise_multiplier * math.sqrt(len(pairs))
        published = tuple(score for score in self.scores if score != "table")
        if self.scores != ("table",) and published != self.scores:
            raise ValueError(f"a two-way table is released alone, got scores {self.scores}")
        models = (
            (
                AdditiveNoiseScores(self.domain, a, b, noise, published)
                if published
                else PairTable(self.domain, a, b, noise)
            )
            for a, b in pairs
        )
        return ChosenOrientations(self, tuple(models))


@dataclass(frozen=True)
class ChosenOrientations(Prepaid[OrientationBudget]):
    """`OrientationBudget` with its pairs chosen."""

    models: tuple[AdditiveNoiseScores | PairTable, ...]

    def run(self, table: Table, randomness: Randomness) -> tuple[NoisyScores | NoisyPair, ...]:
        """One model after the other, each with its own split if it has one."""
        return tuple(model.run(table, randomness) for model in self.models)

    def pack(self, value: tuple[NoisyScores | NoisyPair, ...]) -> Arrays:
        """Arrays by pair and name."""
        packed = [model.pack(one) for model, one in zip(self.models, value, strict=True)]  # type: ignore[arg-type]
        return {
            f"{i:06d}.{name}": array for i, one in enumerate(packed) for name, array in one.items()
        }

    def unpack(self, arrays: Arrays) -> tuple[NoisyScores | NoisyPair, ...]:
        """Arrays by pair and name."""
        own = [
            {n[7:]: a for n, a in arrays.items() if n[:7] == f"{i:06d}."}
            for i in range(len(self.models))
        ]
        return tuple(model.unpack(one) for model, one in zip(self.models, own, strict=True))
