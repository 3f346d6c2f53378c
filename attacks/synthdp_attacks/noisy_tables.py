"""Scores of a record from released noisy tables.

This is the strongest attack on a release that measures marginals.

A table t of counts is released with Gaussian noise of standard deviation s_t. The record adds 1 to
one cell of each table, so all that it changes are the numbers y_t in its own cells. If the counts
c_t of the *other* rows are known, then without the record y_t ~ N(c_t, s_t^2) and with it N(c_t +
1, s_t^2), independently, and the log-likelihood ratio is

    sum_t [(y_t - c_t)^2 - (y_t - c_t - 1)^2] / (2 s_t^2)  =  sum_t (y_t - c_t - 1/2) / s_t^2.

By Neyman and Pearson no test beats a threshold on it. It is Gaussian itself with a distance of mu =
sqrt(sum_t 1 / s_t^2) standard deviations between the worlds, so the best advantage is 2 Phi(mu / 2)
- 1. Where the other rows are not known, the part that depends on the noisy counts is `sum_t y_t /
s_t^2`, and shadow models show where it lies in each world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from synthdp_attacks.errors import AttackError
from synthdp_attacks.threat import Codes, FloatArray, Score


@dataclass(frozen=True)
class NoisyCounts:
    """A released contingency table with Gaussian noise of scale `sigma` counts.

    `counts` is over the levels of `columns`, one axis for each. Where levels are counted in groups,
    `group_of` has an array for each column: the group of each of its levels.
    """

    columns: tuple[int, ...]
    counts: FloatArray = field(repr=False)
    sigma: float
    group_of: tuple[Codes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no noisy table."""
        if self.counts.ndim != len(self.columns) or len(set(self.columns)) != len(self.columns):
            raise AttackError(
                f"a table of {self.counts.ndim} axes over columns {self.columns}; needs one axis"
                " for each of different columns"
            )
        if not 0 < self.sigma < np.inf:
            raise AttackError(
                f"sigma={self.sigma}; needs the standard deviation of the table's noise in counts,"
                " above 0"
            )

    def levels(self, rows: Codes) -> Codes:
        """Levels, or groups, of the table's columns in rows `[..., all columns]`."""
        own = rows[..., list(self.columns)]
        if not self.group_of:
            return own
        axes = (groups[own[..., i]] for i, groups in enumerate(self.group_of))
        return np.stack([*axes], -1)

    def cell(self, record: Codes) -> float:
        """The noisy count of the record's own cell."""
        return float(self.counts[tuple(self.levels(record))])


def table_score(tables: Sequence[NoisyCounts]) -> Score:
    """Sum of the noisy counts of a record's cells, weighted by inverse variance.

    Its unit is the standard deviation of its noise.

    For `WhiteBox.scores`; membership moves it up by `separation(tables)`.
    """
    _some(tables)
    return lambda record: sum(t.cell(record) / t.sigma**2 for t in tables) / separation(tables)


def table_ratio(tables: Sequence[NoisyCounts], rest: Codes) -> Score:
    """Log-likelihood ratio of a record, in nats; above 0 is a guess of "member".

    All other rows `rest` `[rows, columns]` are known.

    Bayes-optimal for Gaussian noise where the world without the record has one row less
    (`add_remove`).
    """
    _some(tables)

    def ratio(record: Codes) -> float:
        others = [(t.levels(rest) == t.levels(record)).all(axis=1).sum() for t in tables]
        return float(
            sum(
                (t.cell(record) - count - 0.5) / t.sigma**2
                for t, count in zip(tables, others, strict=True)
            )
        )

    return ratio


def separation(tables: Sequence[NoisyCounts]) -> float:
    """mu: the shift of the best score by membership, in standard deviations.

    The tables are mu-GDP (Dong et al., 2022).
    """
    return float(np.sqrt(sum(1 / t.sigma**2 for t in tables)))


def best_table_advantage(tables: Sequence[NoisyCounts]) -> float:
    """The advantage of the best attack on the tables by one who knows all other rows."""
    return float(2 * norm.cdf(separation(tables) / 2) - 1)


def _some(tables: Sequence[NoisyCounts]) -> None:
    if not tables:
        raise AttackError("no noisy tables: give those that were released")
