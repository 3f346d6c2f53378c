"""One strength for many arrows, from noisy tables of some of them."""

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.model import LogLinearSettings, common_strength, scores
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import target_regression
from synthdp.privacy.mechanisms.marginals import NoisyTable

CAUSES, EFFECTS, ROWS = 5, 10, 20_000
COLUMNS = tuple(
    ColumnDomain(f"c{i}", "ordinal", ("low", "middle", "high"), False)
    if i < 2
    else ColumnDomain(f"c{i}", "boolean", ("no", "yes"), False)
    for i in range(CAUSES + EFFECTS)
)
ARROWS = {CAUSES + k: [k % CAUSES, (k + 1) % CAUSES] for k in range(EFFECTS)}
PAIRS = [(causes[0], effect) for effect, causes in ARROWS.items()]


def table(strengths: npt.NDArray[np.float64], seed: int = 0) -> npt.NDArray[np.int64]:
    """Rows in which each effect's logit has so much of each of its causes."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((ROWS, len(COLUMNS)), dtype=np.int64)
    for c in range(CAUSES):
        rows[:, c] = rng.choice(
            COLUMNS[c].levels,
            ROWS,
            p=np.arange(COLUMNS[c].levels, 0, -1) / sum(range(COLUMNS[c].levels + 1)),
        )
    for (effect, causes), strength in zip(ARROWS.items(), strengths, strict=True):
        pushed = sum(rows[:, c] / (COLUMNS[c].levels - 1) for c in causes)
        rows[:, effect] = rng.random(ROWS) < 1 / (1 + np.exp(1.5 - strength * pushed))
    return rows


def margins_of(rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.float64]]:
    return [
        np.bincount(rows[:, c], minlength=column.levels) / len(rows)
        for c, column in enumerate(COLUMNS)
    ]


def measured(
    rows: npt.NDArray[np.int64],
    pairs: list[tuple[int, int]],
    sigma: float,
    rng: np.random.Generator,
) -> list[NoisyTable]:
    tables = []
    for k, pair in enumerate(pairs):
        first, second = pair if k % 2 else pair[::-1]  # written either way round
        counts = np.zeros((COLUMNS[first].levels, COLUMNS[second].levels))
        np.add.at(counts, (rows[:, first], rows[:, second]), 1)
        tables.append(
            NoisyTable(
                (f"c{first}", f"c{second}"), counts + rng.normal(0, sigma, counts.shape), sigma
            )
        )
    return [*tables, NoisyTable(("c0",), np.array([1.0, 2.0, 3.0]), sigma)]


def strength_of(
    rows: npt.NDArray[np.int64],
    pairs: list[tuple[int, int]] = PAIRS,
    sigma: float = 5.0,
    seed: int = 1,
) -> float:
    rng = np.random.default_rng(seed)
    return common_strength(
        measured(rows, pairs, sigma, rng), COLUMNS, ARROWS, margins_of(rows), rng=rng
    )


@pytest.mark.parametrize("true", [-1.5, 1.0, 2.5])
def test_the_strength_of_all_arrows_is_found(true: float) -> None:
    assert abs(strength_of(table(np.full(EFFECTS, true))) - true) < 0.15 * abs(true) + 0.1


def test_it_is_that_of_the_mean_arrow_and_signs_that_differ_pull_it_to_zero() -> None:
    assert 1.0 < strength_of(table(np.tile([1.0, 3.0], EFFECTS // 2))) < 3.0
    assert abs(strength_of(table(np.tile([1.5, -1.5], EFFECTS // 2)))) < 0.75


def test_noise_alone_and_too_few_pairs_say_nothing() -> None:
    strong = table(np.full(EFFECTS, 2.5))
    assert (
        strength_of(strong, PAIRS[: LogLinearSettings().min_pairs - 1])
        == 0
        < strength_of(strong, PAIRS[: LogLinearSettings().min_pairs])
    )
    none = table(np.zeros(EFFECTS))
    assert sum(strength_of(none, sigma=300.0, seed=seed) == 0 for seed in range(20)) >= 18


def test_what_is_no_arrow_is_not_asked() -> None:
    strong = table(np.full(EFFECTS, 2.5))
    strangers = [(CAUSES, CAUSES + k) for k in range(1, EFFECTS)]
    assert strength_of(strong, strangers) == 0


def test_scores_follow_the_order_and_a_missing_value_has_none() -> None:
    assert scores(ColumnDomain("a", "ordinal", ("l", "m", "h", "missing"), True)) == pytest.approx(
        [0, 0.5, 1, 0]
    )
    assert scores(COLUMNS[-1]) == pytest.approx([0, 1])
    assert scores(ColumnDomain("a", "categorical", ("l", "m"), False)) is None


@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[: LogLinearSettings().min_pairs - 1]])
def test_arrows_that_nobody_measured_start_from_it(pairs: list[tuple[int, int]]) -> None:
    """And with too few pairs only those start anywhere that were measured."""
    rows, domain = table(np.full(EFFECTS, 2.5)), Domain(COLUMNS)
    parents = tuple(tuple(ARROWS.get(c, ())) for c in range(len(COLUMNS)))
    architecture = Architecture(domain.sizes, parents, (tuple(range(len(COLUMNS))),), hidden=4)
    regression = target_regression(domain, architecture, list(ARROWS), margins_of(rows))
    regression.start_from(measured(rows, pairs, 5.0, np.random.default_rng(1)), domain)
    logits, _ = regression.tables(dict(regression.named_parameters()))
    odds = {
        (t, p): float((own[-1, 1] - own[-1, 0]) - (own[0, 1] - own[0, 0]))
        for (t, p), own in logits.items()
    }
    unmeasured = [odds[t, causes[1]] for t, causes in ARROWS.items()]
    if len(pairs) < LogLinearSettings().min_pairs:
        assert unmeasured == [0] * EFFECTS and odds[CAUSES, 0] > 1
    else:
        assert all(2.0 < value < 3.0 for value in unmeasured) and np.ptp(list(odds.values())) < 1e-4
