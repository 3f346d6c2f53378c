"""The membership game on noisy tables alone, by an adversary who knows all other rows.

It is the strongest attack on them, and is played on thousands of releases.

Tables need no training, so that many more releases can be had than models. The two worlds are two
known tables of rows, and what is released of either is a draw from one of two known Gaussians.
Nothing is fitted and no threshold is chosen: the adversary guesses "member" where the likelihood
ratio of the two is above 1, so that every release is a test. [Derived here: let c and d be the
exact counts of the tables without and with the target. Then log N(y; d, s^2) - log N(y; c, s^2),
summed over cells and tables, is

    sum_t <y_t - (c_t + d_t) / 2, d_t - c_t> / s_t^2,

which only asks for cells that differ: one of each table, or two where another row stands in for the
target. A factor common to all s_t does not move its sign, so an impostor who states the noise he
should have added gains nothing by it.]

Where the other rows are not known, `synthdp_attacks.table_score` with shadow models comes close to
it (see `noisy_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from synthdp_attacks.epsilon import Claim
from synthdp_attacks.errors import AttackError
from synthdp_attacks.game import GameOutcome
from synthdp_attacks.noisy_tables import NoisyCounts
from synthdp_attacks.statistics import CONFIDENCE, Counts
from synthdp_attacks.threat import Codes, FloatArray
from synthdp_attacks.verdict import AttackVerdict, judged

NAME = ("tables", "exact_ratio")
MINIMUM_RELEASES = 4

Measurer = Callable[[Codes], Sequence[NoisyCounts]]


def attack_tables(
    measurer: Measurer,
    outside: Codes,
    inside: Codes,
    *,
    releases: int,
    claim: Claim | None = None,
    confidence: float = CONFIDENCE,
) -> AttackVerdict:
    """Ask of `releases` noisy releases of each world which world it came from.

    `measurer` counts rows `[rows, columns]` and adds fresh noise; `outside` and `inside` are the
    rows without and with the target. `confidence`: what the verdict may claim by itself; lower its
    error where other attacks share it. The control tells half of the releases without the target
    from the other half.

    Raises:
        AttackError: too few releases, or no noisy tables.
    """
    if releases < MINIMUM_RELEASES:
        raise AttackError(
            f"releases={releases}; at least {MINIMUM_RELEASES} of each world are needed, and 1000"
            " to say much"
        )
    ratio = two_worlds_ratio(outside, inside)
    scores = np.array(
        [[ratio(measurer(rows)) for rows in (outside, inside)] for _ in range(releases)]
    )
    outcome = GameOutcome(
        np.concatenate([scores[:, 0], scores[:, 1]]), np.repeat([False, True], releases)
    )
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
        if not tables:
            raise AttackError("no noisy tables: give those that were released")
        total = 0.0
        for table in tables:
            key = (table.columns, table.counts.shape)
            if key not in known:
                known[key] = (_counted(outside, table), _counted(inside, table))
            without, with_ = known[key]
            cells = np.flatnonzero(with_ != without)
            change = (with_ - without)[cells]
            total += (
                float(
                    ((np.ravel(table.counts)[cells] - (with_ + without)[cells] / 2) * change).sum()
                )
                / table.sigma**2
            )
        return total

    return ratio


def _counted(rows: Codes, table: NoisyCounts) -> FloatArray:
    """Exact counts of all cells, flat."""
    shape = table.counts.shape
    cells = np.ravel_multi_index(tuple(table.levels(rows).T.astype(np.int64)), shape)
    return np.bincount(cells, minlength=int(np.prod(shape))).astype(np.float64)
