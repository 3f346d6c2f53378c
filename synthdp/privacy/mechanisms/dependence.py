"""Dependence scores of two columns, each times the number of rows, with what an added row changes.

Scores of Kusner et al., "Private Causal Inference" (arXiv:1512.05469, as published at AISTATS
2016), section 3.3, in a form whose sensitivity needs no number of rows: the paper's bounds are for
replaced rows and a public number of them. All sensitivities below are for one added or removed row;
each is approached (tests/privacy/test_dependence.py searches).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau, rankdata

from synthdp.data.basis import Basis, KernelGrid, Scale, scatter
from synthdp.data.domain import Domain
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
