"""Published bounds that are false: for each, neighbours that break it. Their corrected forms are
searched in tests/privacy/test_ranks.py.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.priv_pc_published import (
    Scales,
    claimed_sensitivity,
    claimed_total,
    published_p_value,
    silent_chance,
)
from synthdp.privacy import STATISTICS, STEPS, SparseVectorDpEvent

Figure = Callable[..., None]
Ints = npt.NDArray[np.int64]
WHOLE = slice(None), slice(None)


def diagonal(rows: int, *, falling: bool, levels: int = 200) -> Ints:
    """A stratum `[levels + 1, levels + 1]` that is all concordant or all discordant, its last level
    free.
    """
    table = np.zeros((levels + 1, levels + 1), dtype=np.int64)
    at = np.arange(levels)
    table[at, at[::-1] if falling else at] = rows // levels
    return table


def test_conditional_kendall_moves_by_more_than_published(figure: Figure) -> None:
    """Wang et al., Theorem 3: 4.5 / n for the weighted mean of tau. A row that goes from one
    stratum to the other moves it by 5.9 / n.
    """
    half = 10_000
    concordant_in_falling = np.stack([diagonal(half, falling=True), diagonal(half, falling=False)])
    discordant_in_rising = concordant_in_falling.copy()
    concordant_in_falling[0, -1, -1] += 1
    discordant_in_rising[1, -1, 0] += 1
    n = int(concordant_in_falling.sum())
    assert n == discordant_in_rising.sum()
    assert np.abs(concordant_in_falling - discordant_in_rising).sum() == 2, "one row replaced"
    taus, scores = [], []
    for table in (concordant_in_falling, discordant_in_rising):
        measured = STATISTICS["kendall"].measure(table, present=WHOLE)
        taus.append(measured.score / measured.weight)
        scores.append(measured.score / STEPS)
    moved = abs(taus[0] - taus[1]) * n
    assert moved > 4.5 * 1.3
    assert abs(scores[0] - scores[1]) <= 13.5, "the corrected bound holds"
    assert abs(scores[0] - scores[1]) >= 13.5 * 0.97
    figure("conditional Kendall, n times the largest move found (published bound 4.5)", moved, 4.5)


def test_one_row_brings_a_dropped_stratum_back(figure: Figure) -> None:
    """n = 50,000: a stratum that is constant but for one row counts with all its weight, and a
    p-value jumps.
    """
    clear = np.array([[5, 1], [0, 6]])
    constant = np.array([[25_000, 0], [25_000 - clear.sum(), 0]])
    nearly = constant - [[0, 0], [1, 0]] + [[0, 0], [0, 1]]
    tables = [np.stack([clear, other]) for other in (constant, nearly)]
    assert {int(t.sum()) for t in tables} == {50_000}
    p_values = [published_p_value(t) for t in tables]
    claimed = claimed_sensitivity(50_000)
    assert p_values[0] < 0.03 < 0.48 < p_values[1]
    assert abs(p_values[0] - p_values[1]) > 40 * claimed
    moved = [STATISTICS["kendall"].measure(t, present=WHOLE) for t in tables]
    assert abs(moved[0].score - moved[1].score) <= 2 * STATISTICS["kendall"].score_moves, (
        "the sound score hardly moves"
    )
    assert abs(moved[0].weight - moved[1].weight) <= STATISTICS["kendall"].weight_moves
    figure(
        "move of a published p-value over its claimed sensitivity, one row of 50,000",
        abs(p_values[0] - p_values[1]) / claimed,
        1,
    )


def test_the_last_sieve_is_published_as_free(figure: Figure) -> None:
    """A run without a hit claims epsilon 0. How likely it is depends on one row, so that no epsilon
    of 0 can hold.
    """
    rows, epsilon = 400, 8.0
    scales = Scales.of(epsilon, rows)
    assert claimed_total(epsilon, 0, 1e-3) == 0.0
    table = np.array([[[100, 100], [99, 101]]])
    neighbour = table - [[[0, 0], [1, 0]]] + [[[0, 0], [0, 1]]]
    probabilities = [
        silent_chance(np.array([published_p_value(t)]), scales) for t in (table, neighbour)
    ]
    loss = abs(math.log(probabilities[0] / probabilities[1]))
    assert loss > 0.1
    # Here each pass is an event of its own, whether or not anything ends it.
    moved = claimed_sensitivity(rows)
    assert (
        SparseVectorDpEvent(scales.threshold / moved * 108, scales.query / moved * 108, 108).epsilon
        > loss
    )
    figure("privacy loss of a sieve that is published as free", loss, 0)


def test_the_published_total_depends_on_the_rows() -> None:
    totals = [claimed_total(1.0, hits, 1e-3) for hits in (0, 5, 50)]
    assert totals[0] == 0 < totals[1] < totals[2]
