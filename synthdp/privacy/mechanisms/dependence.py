"""Dependence scores of two columns, each times the number of rows, with what an added row changes.

Scores of Kusner et al., "Private Causal Inference" (arXiv:1512.05469, as published at AISTATS
2016), section 3.3, in a form whose sensitivity needs no number of rows: the paper's bounds are for
replaced rows and a public number of them. All sensitivities below are for one added or removed row;
each is approached (tests/privacy/test_dependence.py searches).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau, rankdata

from synthdp.data.basis import Basis, KernelGrid, Scale, scatter
from synthdp.data.domain import Domain
from synthdp.privacy.mechanisms.mechanism import Arrays
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.float64]

SPEARMAN_SENSITIVITY = 5.0
KENDALL_SENSITIVITY = 3.0
SPREAD_BINS = 128


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


def spread_table(values: Floats) -> Counts:
    """Counts of values in equal bins of [-1, 1], `[SPREAD_BINS]`: one row moves one count by
    one.
    """
    counts = np.histogram(np.clip(values, -1, 1), SPREAD_BINS, (-1, 1))[0]
    return counts.astype(np.float64)


# --- hsic ---


GRID = 2.0**-20
INSERTED = math.sqrt(
    1.5
)  # times both diameters: how far a row that is inserted moves a shuffled statistic
KERNEL = KernelGrid()


@dataclass(frozen=True)
class IndependenceBit:
    """Whether the noisy statistic exceeds the upper quantile of those of shuffled pairings.

    There are `permutations` of them, each with its own noise.

    The statistic is `scatter`, rows times sqrt(HSIC). A pairing is shuffled along a random cycle
    through all rows, by a key of each row's own: adding a row inserts it between two others. With
    d_x, d_y the kernels' diameters, that moves the shuffled statistic by at most sqrt(3/2) d_x d_y
    (`INSERTED`), and the statistic itself by at most d_x d_y (`data.basis.scatter`). Given the keys
    and the noise on the shuffled statistics, statistic minus quantile thus moves by at most (1 +
    sqrt(3/2)) d_x d_y, and the bit is post-processing of it plus noise of `noise_multiplier` times
    that [derived here; two units of `GRID` are added for rounding]. A unit of k rows is k such
    steps.

    The insertion [derived here]: row (a, b) comes between a_i and b_j. With means m, l of the n
    rows and c = n / (n + 1), the centred shuffled sum changes by D_c = c (a - m)(x)(b - l) + (a_i -
    a)(x)(b - b_j), and D_c = c D_1 + (1 - c) (a_i - a)(x)(b - b_j), so it is enough to bound D_1.
    Let X, W, Z be the squared sides of the triangle a, a_i, m, over d_x^2, in the order a_i - a, m
    - a, a_i - m, and P, Q, R those of the triangle of b_j, b, l, over d_y^2, in the order b - b_j,
      l - b, b_j - l. All are at most 1, as means lie in the convex hull. Writing inner products by
      sides, |D_1|^2 / (d_x d_y)^2 is (X (P - Q + R) + W (Q - P + R) + Z (P + Q - R)) / 2. At most
      one bracket is negative, as two of them add up to twice a square. If none is, this is at most
      (P + Q + R) / 2 <= 3/2; if one is, the other two add up to at most 2: at most 1. A search over
      tables finds no more than d_x d_y for both statistics together.

    Level: approximate. With columns independent, each shuffled statistic has the law of the
    statistic, and noise of the same law; but random cycles are no group, so that the statistics are
    not exchangeable (seen from one cycle another is no cycle, and has about one fixed row).
    Measured without noise at level 5%, with standard errors of half a percent: 32% of 3 independent
    rows are rejected, 9% of 5, and 5% of 8, 12, 20 and 50. Use it for tens of rows or more. Privacy
    does not rest on it.

    Independence of two numeric columns as one released bit: a permutation test with noise on its
    statistics.

    After Kim and Schrab, "Differentially private permutation tests" (arXiv:2310.19043v2, section
    4), with Gaussian noise, and re-derived for rows that are added or removed, so that no number of
    rows is public.
    """

    domain: Domain
    x: str
    y: str
    noise_multiplier: float
    level: float = 0.05
    permutations: int = 199
    kernel: KernelGrid = KERNEL
    scales: tuple[tuple[str, Scale], ...] = ()

    def __post_init__(self) -> None:
        if not (self.domain[self.x].ranged and self.domain[self.y].ranged):
            raise ValueError(
                f"HSIC needs two columns of numbers or instants, got {self.x!r} and {self.y!r}"
            )
        if not 1 / (self.permutations + 1) <= self.level < 1:
            raise ValueError(
                f"level {self.level:g} needs at least {math.ceil(1 / self.level) - 1} permutations,"
                f" got {self.permutations}"
            )

    @property
    def name(self) -> str:
        """Name for the ledger and the certificate."""
        return (
            f"rounded Gaussian, noise multiplier {self.noise_multiplier:.4g}, on a permutation test"
            " of one pair (HSIC)"
        )

    @property
    def sensitivity(self) -> float:
        """Of statistic minus quantile to one row."""
        return (1 + INSERTED) * self.kernel.diameter**2 + 2 * GRID

    @property
    def sigma(self) -> float:
        """Noise of each statistic."""
        return self.noise_multiplier * self.sensitivity

    def event(self, rows_per_unit: int) -> dp_accounting.DpEvent:
        """One Gaussian mechanism."""
        return dp_accounting.GaussianDpEvent(self.noise_multiplier / rows_per_unit)

    def scaled(self, factor: float) -> IndependenceBit:
        """The same with `factor` times the noise."""
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def run(self, table: Table, randomness: Randomness) -> bool:
        """Whether independence is rejected at the level."""
        first, second = (
            self.kernel(numbers)
            for numbers in scaled_columns(table, self.domain, (self.x, self.y), self.scales)
        )
        shuffled = np.array(
            [shuffled_scatter(first, second, randomness) for _ in range(self.permutations)]
        )
        noise = (
            randomness.rounded_gaussian(
                np.zeros(self.permutations, dtype=np.int64), sigma=self.sigma / GRID
            )
            * GRID
        )
        rank = math.ceil((1 - self.level) * (self.permutations + 1))
        quantile = np.sort(shuffled + noise)[rank - 1]
        margin = np.array([round((scatter(first, second) - quantile) / GRID)], dtype=np.int64)
        return bool(randomness.rounded_gaussian(margin, sigma=self.sigma / GRID)[0] > 0)

    def pack(self, value: bool) -> Arrays:
        """The bit."""
        return {"dependent": np.array([value])}

    def unpack(self, arrays: Arrays) -> bool:
        """The bit."""
        return bool(arrays["dependent"][0])


def scaled_columns(
    table: Table, domain: Domain, names: tuple[str, ...], scales: tuple[tuple[str, Scale], ...] = ()
) -> list[Floats]:
    """Numbers of the rows that mechanisms see, on [-1, 1], one array per column; NaN where
    missing.
    """
    basis = Basis(domain, names, scales=scales)
    fit = ~table.held_out
    return list(basis.scaled(table.frame[fit], table.codes[fit]).values())


def shuffled_scatter(first: Floats, second: Floats, randomness: Randomness) -> float:
    """`scatter` with each row's first paired with the second of the next row, around a random
    cycle.
    """
    order = np.argsort(randomness.latents(len(first), 1)[:, 0], kind="stable")
    return scatter(first[order], np.roll(second[order], -1, axis=0))
