"""The attack on noisy tables by one who knows all other rows: the exact ratio, what theory says it
reaches, and claims true and false.
"""

from collections.abc import Callable, Sequence
from math import exp

import numpy as np
import pytest
from scipy.stats import binom, norm

from synthdp_attacks import (
    AttackError,
    Claim,
    Codes,
    NoisyCounts,
    attack_tables,
    best_table_advantage,
    shared_confidence,
    table_ratio,
    two_worlds_ratio,
)

INSIDE = np.random.default_rng(0).integers(3, size=(40, 3))
OUTSIDE, REPLACED = INSIDE[1:], np.concatenate([INSIDE[1:], 2 - INSIDE[:1]])
COLUMNS = ((0,), (1,), (0, 2))


def counted(rows: Codes, columns: tuple[int, ...]) -> np.ndarray:
    return np.histogramdd(rows[:, columns], bins=[np.arange(4)] * len(columns))[0]


def measurer(
    sigma: float, *, said: float | None = None, scales: Sequence[float] = (1, 2, 3)
) -> Callable[[Codes], list[NoisyCounts]]:
    """Three tables, each with noise of its own scale; exact counts are kept, since only the noise
    is fresh. `said`: the sigma that they state.
    """
    rng, known = np.random.default_rng(1), {}

    def measure(rows: Codes) -> list[NoisyCounts]:
        exact = known.setdefault(rows.tobytes(), [counted(rows, columns) for columns in COLUMNS])
        noisy = [
            c + rng.normal(scale=sigma * scale, size=c.shape)
            for c, scale in zip(exact, scales, strict=True)
        ]
        return [
            NoisyCounts(k, c, (said or sigma) * s)
            for k, c, s in zip(COLUMNS, noisy, scales, strict=True)
        ]

    return measure


def exact_claim(sigma: float) -> Claim:
    """The whole profile of these tables (Balle and Wang, 2018, Theorem 8 in v3)."""
    mu = np.sqrt(sum((sigma * scale) ** -2 for scale in (1, 2, 3)))

    def delta(epsilon: float) -> float:
        return float(
            norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        )

    return Claim(1.0, delta(1.0), tuple((float(e), delta(e)) for e in np.linspace(0, 3, 31)))


@pytest.mark.parametrize("outside", [OUTSIDE, REPLACED], ids=["add_remove", "replace_one"])
def test_the_ratio_is_that_of_the_two_laws_of_all_cells(outside: Codes) -> None:
    tables = measurer(2.0)(INSIDE)
    expected = sum(
        (
            norm.logpdf(t.counts, counted(INSIDE, t.columns), t.sigma)
            - norm.logpdf(t.counts, counted(outside, t.columns), t.sigma)
        ).sum()
        for t in tables
    )
    assert two_worlds_ratio(outside, INSIDE)(tables) == pytest.approx(expected)


@pytest.mark.check
def test_it_reaches_what_theory_allows_whatever_noise_the_release_states() -> None:
    """mu = 1.17: the best advantage is .44. By Neyman and Pearson no attack does better."""
    best = best_table_advantage(measurer(1.0)(INSIDE))
    for said in (None, 10.0):
        verdict = attack_tables(measurer(1.0, said=said), OUTSIDE, INSIDE, releases=1500)
        assert verdict.row.advantage.contains(best)
        assert verdict.row.advantage.lower > 0.3
        assert verdict.name == "tables with exact_ratio"
        assert verdict.control is not None
        assert verdict.control.contains(0)
        assert verdict.row.models == 1500
        assert verdict.profile_excess is None and not verdict.refutes_claim


def test_a_tenth_of_the_noise_is_refuted_and_worlds_that_are_alike_are_not_told_apart() -> None:
    claim = exact_claim(10.0)
    assert attack_tables(
        measurer(1.0, said=10.0), OUTSIDE, INSIDE, releases=300, claim=claim
    ).refutes_claim
    same = attack_tables(measurer(1.0), INSIDE, INSIDE, releases=50, claim=claim)
    assert same.row.advantage.value == 0 and same.row.auc.value == 0.5 and not same.refutes_claim


def test_a_control_of_three_releases_a_side_says_nothing() -> None:
    few, enough = (
        attack_tables(measurer(1.0), OUTSIDE, INSIDE, releases=releases) for releases in (7, 8)
    )
    assert few.control is None and enough.control is not None


def test_what_cannot_be_attacked_is_refused() -> None:
    with pytest.raises(AttackError, match=r"releases=3; at least 4"):
        attack_tables(measurer(1.0), OUTSIDE, INSIDE, releases=3)
    with pytest.raises(AttackError, match="no noisy tables"):
        attack_tables(lambda rows: [], OUTSIDE, INSIDE, releases=4)


@pytest.mark.slow
def test_false_alarms_and_power_of_the_exact_ratio(figure: Callable[..., None]) -> None:
    """Against the tightest true claim, the tables' own whole profile, at the confidence of one
    attack of three.
    """
    games, releases, sigma = 300, 100, 3.0
    claim, refuted = exact_claim(sigma), {}
    for factor in (1.0, 0.3):
        measure = measurer(sigma * factor, said=sigma)
        verdicts = [
            attack_tables(
                measure,
                OUTSIDE,
                INSIDE,
                releases=releases,
                claim=claim,
                confidence=shared_confidence(3),
            )
            for _ in range(games)
        ]
        refuted[factor] = sum(verdict.refutes_claim for verdict in verdicts)
    figure("exact ratio of noisy tables: true claims not refuted", games - refuted[1.0], games)
    figure("exact ratio of noisy tables: three tenths of the noise, refuted", refuted[0.3], games)
    assert refuted[1.0] <= binom.ppf(0.999, games, 0.05 / 3) and refuted[0.3] > 0.9 * games


def test_a_row_of_another_kind_is_in_no_cell() -> None:
    """Its level, or the group of it, is beyond the table's: it moves nothing."""
    plain = NoisyCounts((0,), np.array([4.0, 2.0]), 1.0)
    grouped = NoisyCounts((0,), np.array([4.0, 2.0]), 1.0, (np.array([0, 1, 1, 2]),))
    inside = np.array([[1], [0]])
    assert (plain.cell(np.array([1])), plain.cell(np.array([2]))) == (2, 0)
    assert (grouped.cell(np.array([2])), grouped.cell(np.array([3]))) == (2, 0)
    for table, other in ((plain, 2), (grouped, 3)):
        with_others = np.concatenate([inside, np.full((5, 1), other)])
        alike = two_worlds_ratio(inside[:1], inside)([table])
        assert two_worlds_ratio(inside[:1], with_others)([table]) == alike
        assert table_ratio([table], inside)(np.array([other])) == 0
