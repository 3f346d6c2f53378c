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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from synthdp_attacks.game import GameOutcome
from synthdp_attacks.report import AttackVerdict, judged
from synthdp_attacks.statistics import CONFIDENCE, Claim, Counts
from synthdp_attacks.threat import AttackError, BoolArray, Codes, FloatArray, Score


@dataclass(frozen=True)
class NoisyCounts:
    """A released contingency table with Gaussian noise of scale `sigma` counts.

    `counts` is over the levels of `columns`, one axis for each. Where levels are counted in groups,
    `group_of` has an array for each column: the group of each of its levels. Rows with a level or
    group beyond those of `counts` are in no cell, such as rows of another kind (`Public.kinds`).
    """

    columns: tuple[int, ...]
    counts: FloatArray = field(repr=False)
    sigma: float
    group_of: tuple[Codes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
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

    def there(self, levels: Codes) -> BoolArray:
        """Whether rows of such levels of the table's columns are in one of its cells."""
        return np.asarray((levels < np.array(self.counts.shape)).all(-1))

    def cell(self, record: Codes) -> float:
        """The noisy count of the record's own cell; 0 where it is in none."""
        levels = self.levels(record)
        return float(self.counts[tuple(levels)]) if self.there(levels) else 0.0


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
        total = 0.0
        for t in tables:
            if not t.there(t.levels(record)):
                continue
            others = (t.levels(rest) == t.levels(record)).all(axis=1).sum()
            total += (t.cell(record) - others - 0.5) / t.sigma**2
        return float(total)

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


# --- the game on noisy tables alone, by an adversary who knows all other rows ---
#
# Tables need no training, so that many more releases can be had than models. The two worlds are
# two known tables of rows, and what is released of either is a draw from one of two known
# Gaussians. Nothing is fitted and no threshold is chosen: the adversary guesses "member" where the
# likelihood ratio of the two is above 1, so that every release is a test. [Derived here: let c and
# d be the exact counts of the tables without and with the target. Then log N(y; d, s^2) - log N(y;
# c, s^2), summed over cells and tables, is
#
#     sum_t <y_t - (c_t + d_t) / 2, d_t - c_t> / s_t^2,
#
# which only asks for cells that differ: one of each table, or two where another row stands in for
# the target. A factor common to all s_t does not move its sign, so an impostor who states the
# noise he should have added gains nothing by it.]
#
# Where the other rows are not known, `table_score` with shadow models comes close to it.


NAME = ("tables", "exact_ratio")

Measurer = Callable[[Codes], Sequence[NoisyCounts]]


def attack_tables(
    measurer: Measurer,
    outside: Codes,
    inside: Codes,
    *,
    releases: int,
    claim: Claim | None = None,
    confidence: float = CONFIDENCE,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> AttackVerdict:
    """Ask of `releases` noisy releases of each world which world it came from.

    `measurer` counts rows `[rows, columns]` and adds fresh noise; `outside` and `inside` are the
    rows without and with the target. `confidence`: what the verdict may claim by itself; lower its
    error where other attacks share it. The control tells half of the releases without the target
    from the other half. `progress` hears how many of the releases of each world have been asked.

    Raises:
        AttackError: too few releases, or no noisy tables.
    """
    if releases < (least := 4):
        raise AttackError(
            f"releases={releases}; at least {least} of each world are needed, and 1000 to say much"
        )
    ratio = two_worlds_ratio(outside, inside)
    scores = np.empty((releases, 2))
    for done, own in enumerate(scores):
        progress(done, releases)
        own[:] = [ratio(measurer(rows)) for rows in (outside, inside)]
    outcome = GameOutcome(scores.T.ravel(), np.repeat([False, True], releases))
    counts = Counts.at(outcome.scores, outcome.members)
    control = Counts.at(scores[:, 0], np.arange(releases) % 2 == 0)
    return judged(*NAME, outcome, counts, control, claim=claim, confidence=confidence)


def two_worlds_ratio(outside: Codes, inside: Codes) -> Callable[[Sequence[NoisyCounts]], float]:
    """Log-likelihood ratio of noisy tables between the rows `inside` and `outside`, in nats.

    Above 0 they are likelier of `inside`. Both are known. A table that is measured again is on the
    same groups of levels.
    """
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[FloatArray, FloatArray]] = {}

    def ratio(tables: Sequence[NoisyCounts]) -> float:
        _some(tables)
        total = 0.0
        for table in tables:
            key = (table.columns, table.counts.shape)
            if key not in known:
                known[key] = (counted(outside, table), counted(inside, table))
            without, with_ = known[key]
            cells = np.flatnonzero(with_ != without)
            above = np.ravel(table.counts)[cells] - (with_ + without)[cells] / 2
            total += float((above * (with_ - without)[cells]).sum()) / table.sigma**2
        return total

    return ratio


def counted(rows: Codes, table: NoisyCounts) -> FloatArray:
    """Exact counts of all cells, flat."""
    shape, levels = table.counts.shape, table.levels(rows)
    own = levels[table.there(levels)].T.astype(np.int64)
    cells = np.ravel_multi_index(tuple(own), shape)
    return np.bincount(cells, minlength=int(np.prod(shape))).astype(np.float64)
