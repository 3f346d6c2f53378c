"""Priv-PC as published, with its false claims: for benchmarks and falsifiers only. **Not private.**

Wang, Pang and Song, "Towards practical differentially private causal graph discovery" (2020),
Algorithm 2 in the
form of their code: the p-value of a conditional Kendall test is sieved on a sub-sample and examined
on all rows. It
differs from `graph.algorithm: priv_pc` in what makes its claim false:

- the test leaves out strata of two rows or fewer, and those in which a column is constant, weight
  and all;
- its sensitivity is taken as that of one p-value whose z moves by 6 / sqrt(rows);
- only passes that ended with a hit are charged, so that the claim depends on the rows, and is 0
  without a hit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.stats import norm

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph
from synthdp.graph.contrib.rank_pc import SETTINGS, Links, graph_of
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.privacy.mechanisms.ranks import STEPS, kendall_sums
from synthdp.privacy.table import count_tables

LEVEL, TWEAK = 0.05, 0.02


@dataclass(frozen=True)
class Published:
    """What the published code returns: a graph, and the total epsilon that it claims for it."""

    graph: CausalGraph
    claimed_epsilon: float


def claimed_sensitivity(rows: int) -> float:
    """Of a p-value, by the published code."""
    return float(norm.cdf(6 / math.sqrt(rows)) - 0.5)


def published_p_value(counts: npt.NDArray[np.int64]) -> float:
    """One-sided p-value of |z| from counts `[strata, levels of x, levels of y]`, degenerate strata
    left out; nan if all are.
    """
    n = counts.sum((1, 2))
    constant = (counts.sum(2).max(1) == n) | (counts.sum(1).max(1) == n)
    kept = counts[(n > 2) & ~constant] if len(counts) > 1 else counts
    m = kept.sum((1, 2)).astype(float)
    weight = float((9 * m * (m - 1) / (4 * m + 10)).sum())
    return (
        float(norm.sf(abs(kendall_sums(kept, kept.sum((1, 2)))[0] / STEPS) / math.sqrt(weight)))
        if weight
        else math.nan
    )


def claimed_total(epsilon: float, hits: int, delta: float) -> float:
    """Advanced composition over the hits, sieve and examine apart, as in the published code; each
    half of `epsilon`.
    """
    half = epsilon / 2
    return 2 * (math.sqrt(2 * hits * math.log(2 / delta)) * half + hits * half * math.expm1(half))


@dataclass(frozen=True)
class Scales:
    """Noise of the published code, and the part of the rows that a pass looks at."""

    threshold: float
    query: float
    examine: float
    rate: float

    @classmethod
    def of(cls, epsilon: float, rows: int) -> Scales:
        """For `epsilon` a sieve and examine, half each."""
        half, moved = epsilon / 2, claimed_sensitivity(rows)
        found = minimize(
            lambda x: (np.sqrt(np.abs(x)) / np.log(np.abs(x) * np.expm1(half) + 1)).item(),
            [0.5],
            tol=1e-2,
        ).x[0]
        rate = max(min(1 / abs(float(found)), 1.0), 1 / 20)
        threshold = 2 * moved / math.sqrt(rate) / math.log1p(math.expm1(half) / rate)
        return cls(threshold, 2 * threshold, moved / half, rate)


def priv_pc_published(
    codes: Codes, domain: Domain, *, epsilon: float, delta: float, rng: np.random.Generator
) -> Published:
    """Run it with `epsilon` for each sieve and examine."""
    scales, links, hits = Scales.of(epsilon, len(codes)), Links(Knowledge(domain.names)), 0

    def p_value(rows: Codes, pair: Pair, given: tuple[str, ...]) -> float:
        (table,) = count_tables(rows, domain, [(*given, *pair)])
        return published_p_value(table.reshape(-1, *table.shape[-2:]))

    def fresh() -> tuple[Codes, float]:
        sample = codes[rng.permutation(len(codes))[: int(len(codes) * scales.rate)]]
        return sample, LEVEL - TWEAK + rng.laplace(0, scales.threshold)

    sample, threshold = fresh()
    for order in range(SETTINGS.max_order + 1):
        for pair in list(links.open):
            for given in links.sets(pair, order):
                if not p_value(sample, pair, given) + rng.laplace(0, scales.query) >= threshold:
                    continue
                hits += 1
                sample, threshold = fresh()
                if p_value(codes, pair, given) + rng.laplace(0, scales.examine) >= LEVEL:
                    links.separate(pair, given)
                    break
    return Published(graph_of(links, max_parents=len(domain)), claimed_total(epsilon, hits, delta))


def silent_chance(p_values: npt.NDArray[np.float64], scales: Scales) -> float:
    """Chance that a sieve on all rows says no to each of these p-values: the outcome that is
    published as free.
    """
    threshold = LEVEL - TWEAK + np.linspace(-40, 40, 400_001) * scales.threshold
    density = np.exp(-np.abs(threshold - (LEVEL - TWEAK)) / scales.threshold)
    below = np.ones_like(threshold)
    for p in p_values:
        gap = (threshold - p) / scales.query
        below *= np.where(gap > 0, 1 - np.exp(-np.abs(gap)) / 2, np.exp(-np.abs(gap)) / 2)
    return float((density * below).sum() / density.sum())
