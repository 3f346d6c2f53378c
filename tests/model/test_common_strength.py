"""One strength for many arrows, from noisy tables of some of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data.domain import ColumnDomain
from synthdp.model.common_strength import LEAST_PAIRS, common_strength, scores
from synthdp.privacy.mechanisms import NoisyTable

CAUSES, EFFECTS, ROWS = 5, 10, 20_000
COLUMNS = tuple(
    ColumnDomain(f"c{i}", "ordinal", ("low", "middle", "high"), False) if i < 2 else ColumnDomain(f"c{i}", "boolean", ("no", "yes"), False)
    for i in range(CAUSES + EFFECTS)
)
ARROWS = {CAUSES + k: [k % CAUSES, (k + 1) % CAUSES] for k in range(EFFECTS)}
PAIRS = [(causes[0], effect) for effect, causes in ARROWS.items()]


def table(strengths: npt.NDArray[np.float64], seed: int = 0) -> npt.NDArray[np.int64]:
    """Rows in which each effect's logit has so much of each of its causes."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((ROWS, len(COLUMNS)), dtype=np.int64)
    for c in range(CAUSES):
        rows[:, c] = rng.choice(COLUMNS[c].levels, ROWS, p=np.arange(COLUMNS[c].levels, 0, -1) / sum(range(COLUMNS[c].levels + 1)))
    for (effect, causes), strength in zip(ARROWS.items(), strengths, strict=True):
        pushed = sum(rows[:, c] / (COLUMNS[c].levels - 1) for c in causes)
        rows[:, effect] = rng.random(ROWS) < 1 / (1 + np.exp(1.5 - strength * pushed))
    return rows


def strength_of(rows: npt.NDArray[np.int64], pairs: list[tuple[int, int]] = PAIRS, sigma: float = 5.0, seed: int = 1) -> float:
    rng = np.random.default_rng(seed)
    margins = [np.bincount(rows[:, c], minlength=column.levels) / len(rows) for c, column in enumerate(COLUMNS)]
    tables = []
    for k, pair in enumerate(pairs):
        first, second = pair if k % 2 else pair[::-1]  # written either way round
        counts = np.zeros((COLUMNS[first].levels, COLUMNS[second].levels))
        np.add.at(counts, (rows[:, first], rows[:, second]), 1)
        tables.append(NoisyTable((f"c{first}", f"c{second}"), counts + rng.normal(0, sigma, counts.shape), sigma))
    tables.append(NoisyTable(("c0",), np.array([1.0, 2.0, 3.0]), sigma))
    return common_strength(tables, COLUMNS, ARROWS, margins, rng=rng)


@pytest.mark.parametrize("true", [-1.5, 1.0, 2.5])
def test_the_strength_of_all_arrows_is_found(true: float) -> None:
    assert abs(strength_of(table(np.full(EFFECTS, true))) - true) < 0.15 * abs(true) + 0.1


def test_it_is_that_of_the_mean_arrow_and_signs_that_differ_pull_it_to_zero() -> None:
    assert 1.0 < strength_of(table(np.tile([1.0, 3.0], EFFECTS // 2))) < 3.0
    assert abs(strength_of(table(np.tile([1.5, -1.5], EFFECTS // 2)))) < 0.75


def test_noise_alone_and_too_few_pairs_say_nothing() -> None:
    strong = table(np.full(EFFECTS, 2.5))
    assert strength_of(strong, PAIRS[: LEAST_PAIRS - 1]) == 0 < strength_of(strong, PAIRS[:LEAST_PAIRS])
    none = table(np.zeros(EFFECTS))
    assert sum(strength_of(none, sigma=300.0, seed=seed) == 0 for seed in range(20)) >= 18


def test_what_is_no_arrow_is_not_asked() -> None:
    strong = table(np.full(EFFECTS, 2.5))
    strangers = [(CAUSES, CAUSES + k) for k in range(1, EFFECTS)]
    assert strength_of(strong, strangers) == 0


def test_scores_follow_the_order_and_a_missing_value_has_none() -> None:
    assert scores(ColumnDomain("a", "ordinal", ("l", "m", "h", "missing"), True)) == pytest.approx([0, 0.5, 1, 0])
    assert scores(COLUMNS[-1]) == pytest.approx([0, 1])
    assert scores(ColumnDomain("a", "categorical", ("l", "m"), False)) is None
