"""Figures of noisy sums by stratum: right without noise, and covered with it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synthdp.inference import Functionals, Rows, Z, count_figure, estimands, ratio_figure
from synthdp.inference.estimands import effect_figure, stratum_figures
from synthdp.privacy.mechanisms.sums import SQUARE, Bounded, NoisySums
from synthdp.spec import parse_query
from synthdp.spec.model import Boolean, Column, Integer

COLUMNS: dict[str, Column] = {
    "visits": Integer(type="integer", lower=0, upper=99),
    "old": Boolean.model_validate({"type": "boolean"}),
    "sick": Boolean.model_validate({"type": "boolean"}),
}
NUMBER = Bounded("visits", 0.0, 30.0)
STRATA = 4


def drawn(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stratum, treatment and outcome of each row: sicker people are treated, and have more."""
    stratum = rng.choice(STRATA, rows, p=[0.4, 0.3, 0.2, 0.1])
    treated = rng.random(rows) < 0.3 + 0.15 * stratum
    mean = 2.0 + 1.5 * stratum + treated * (1.0 + 0.5 * stratum)
    return stratum, treated, np.minimum(rng.gamma(1.2, mean / 1.2), 30.0)


def truth() -> float:
    """The effect in the population, before numbers are cut at 30, by many drawn rows."""
    stratum, _, _ = drawn(400_000, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    arms = [
        np.minimum(rng.gamma(1.2, m / 1.2), 30.0).mean()
        for m in (2.0 + 1.5 * stratum + 1.0 + 0.5 * stratum, 2.0 + 1.5 * stratum)
    ]
    return float(arms[0] - arms[1])


def sums_of(
    stratum: np.ndarray, treated: np.ndarray, y: np.ndarray, sigma: float, rng: np.random.Generator
) -> NoisySums:
    u, cell = (y - 15) / 15, (1 - treated.astype(int)) * STRATA + stratum
    exact = [
        np.bincount(cell, weights=w, minlength=2 * STRATA).reshape(2, STRATA)
        for w in (np.ones(len(y)), u, u**2)
    ]
    scales = (sigma, sigma, sigma / SQUARE)
    noisy = [
        e + rng.normal(0, s, e.shape) if sigma else e for e, s in zip(exact, scales, strict=True)
    ]
    return NoisySums(noisy[0], noisy[1], noisy[2], max(sigma, 1e-9))


def test_without_noise_the_effect_is_the_g_formula_of_the_rows() -> None:
    stratum, treated, y = drawn(5000, np.random.default_rng(2))
    found = effect_figure(
        sums_of(stratum, treated, y, 0.0, np.random.default_rng(0)), NUMBER, Rows()
    )
    expected = sum(
        (stratum == z).mean()
        * (y[(stratum == z) & treated].mean() - y[(stratum == z) & ~treated].mean())
        for z in range(STRATA)
    )
    assert found.estimate == pytest.approx(expected)
    assert found.rows == 5000
    assert found.of_rows == pytest.approx((expected, expected), abs=1e-6)


def test_thin_strata_are_refused_with_their_number() -> None:
    stratum, treated, y = drawn(300, np.random.default_rng(3))
    found = effect_figure(
        sums_of(stratum, treated, y, 20.0, np.random.default_rng(0)), NUMBER, Rows()
    )
    assert found.interval is None and found.estimate is None
    assert "of 8 strata have fewer than 80 rows" in (found.refused or "")


def test_shares_means_and_counts_of_sums() -> None:
    counts = NoisySums(np.array([[300.0, 50.0], [700.0, 150.0]]), *[np.zeros((0, 2))] * 2, 1.0)
    query = parse_query("share(sick) by old", COLUMNS)
    shares = stratum_figures(query, counts, None, Rows(), ["no", "yes"])
    assert [f.estimate for f in shares] == pytest.approx([0.3, 0.25])
    assert [f.group for f in shares] == ["no", "yes"]
    count = NoisySums(np.array([80.0]), np.zeros(0), np.zeros(0), 2.0)
    (found,) = stratum_figures(
        parse_query("count(sick)", COLUMNS), count, None, Rows(holdout=0.2), [None]
    )
    assert found.estimate == pytest.approx(100)
    mean = NoisySums(np.array([100.0]), np.array([-50.0]), np.array([40.0]), 1e-9)
    (found,) = stratum_figures(parse_query("mean(visits)", COLUMNS), mean, NUMBER, Rows(), [None])
    assert found.estimate == pytest.approx(7.5)
    sd = 15 * np.sqrt(0.4 - 0.25)
    assert found.interval == pytest.approx((7.5 - Z * sd / 10, 7.5 + Z * sd / 10), rel=0.05)


def coverage(releases: int, rows: int, sigma: float, seed: int) -> float:
    rng, target, inside = np.random.default_rng(seed), truth(), 0
    for _ in range(releases):
        stratum, treated, y = drawn(rows, rng)
        found = effect_figure(sums_of(stratum, treated, y, sigma, rng), NUMBER, Rows())
        assert isinstance(found.interval, tuple)
        low, high = (float(end) for end in found.interval)
        inside += low <= target <= high
    return inside / releases


def test_intervals_of_effects_hold_the_truth() -> None:
    assert 0.91 <= coverage(300, 6000, 15.0, seed=4) <= 0.98


@pytest.mark.check
def test_an_interval_without_the_noise_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is sharp: with half of the noise's deviation it fails."""
    honest = estimands.effect_figure

    def narrower(sums: NoisySums, number: Bounded, rows: Rows) -> object:
        return honest(NoisySums(sums.counts, sums.sums, sums.squares, sums.sigma / 2), number, rows)

    monkeypatch.setitem(globals(), "effect_figure", narrower)
    assert coverage(300, 30_000, 60.0, seed=4) < 0.85


def against(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of strata in which treatment helps as much as it harms in others, and little spread."""
    stratum = rng.choice(STRATA, rows, p=[0.4, 0.3, 0.2, 0.1])
    treated = rng.random(rows) < np.array([0.2, 0.5, 0.6, 0.4])[stratum]
    effect = np.array([9.0, -9.0, -3.0, 12.0])[stratum]
    return stratum, treated, np.clip(15 + treated * effect + rng.normal(0, 0.5, rows), 0.0, 30.0)


@pytest.mark.parametrize("law", [drawn, against])
def test_an_interval_is_that_of_the_influence_of_rows_and_of_noise(law: Any) -> None:
    """Whichever strata and arms the effect differs between: rows move the weights of strata too.
    Derivatives are taken by adding a little to each sum, and looking.
    """
    stratum, treated, y = law(6000, np.random.default_rng(7))
    exact = sums_of(stratum, treated, y, 0.0, np.random.default_rng(0))
    n, total = exact.counts.reshape(2, -1), exact.sums.reshape(2, -1)

    def effect(n: np.ndarray, total: np.ndarray) -> float:
        means = total / n
        return float(n.sum(0) / n.sum() @ (means[0] - means[1]))

    def by(which: int) -> np.ndarray:
        slopes, step = np.zeros((2, STRATA)), 1e-4
        for cell in np.ndindex(2, STRATA):
            parts = [n.copy(), total.copy()]
            parts[which][cell] += step
            slopes[cell] = (effect(*parts) - effect(n, total)) / step
        return slopes

    by_count, by_sum = by(0), by(1)
    arm, u = 1 - treated.astype(int), (y - 15) / 15
    sampling = float(((by_count[arm, stratum] + u * by_sum[arm, stratum]) ** 2).sum())
    unit = float((by_count**2 + by_sum**2).sum())
    for sigma, wanted in ((1e-9, sampling), (0.5, sampling + 0.25 * unit)):
        found = effect_figure(replace(exact, sigma=sigma), NUMBER, Rows())
        low, high = (float(end) for end in found.interval or ())
        assert (high - low) / 2 / 15 == pytest.approx(Z * np.sqrt(wanted), rel=1e-3)
    low, high = (float(end) for end in found.of_rows or ())
    assert (high - low) / 2 / 15 == pytest.approx(Z * 0.5 * np.sqrt(unit), rel=1e-3)


def test_many_strata_of_few_treated_rows_are_covered_too() -> None:
    """Each mean is biased by its noisy denominator, and in 500 strata the biases would add up."""
    rng, strata_, sigma, p, inside = np.random.default_rng(6), 500, 10.0, 0.05, 0
    for _ in range(60):
        n = np.array([[80.0], [800.0]]) + np.zeros((2, strata_))
        events = rng.binomial(n.astype(int), p)
        exact = (n, 2.0 * events - n, n)
        scales = (sigma, sigma, sigma / SQUARE)
        noisy = [e + rng.normal(0, s, e.shape) for e, s in zip(exact, scales, strict=True)]
        noisy[0] = np.maximum(noisy[0], 4.01 * sigma)
        found = effect_figure(NoisySums(*noisy, sigma), Bounded("sick", 0.0, 1.0), Rows())
        assert found.interval is not None
        inside += float(found.interval[0]) <= 0.0 <= float(found.interval[1])
    assert inside >= 52  # of 60; without the correction about 37


def test_rows_of_one_person_widen_the_interval_by_sampling_alone() -> None:
    stratum, treated, y = drawn(5000, np.random.default_rng(5))
    sums = sums_of(stratum, treated, y, 10.0, np.random.default_rng(0))
    one, four = (effect_figure(sums, NUMBER, Rows(per_unit=k)) for k in (1, 4))
    assert one.of_rows == four.of_rows and one.interval and four.interval
    noise, single, several = (
        (float(ends[1]) - float(ends[0])) ** 2
        for ends in (one.of_rows or (0, 0), one.interval, four.interval)
    )
    assert several - noise == pytest.approx(4 * (single - noise))


def test_an_interval_that_is_the_whole_range_is_told_as_none() -> None:
    """Thirty rows at both ends of the range, which may all be one person's."""
    query, sums = parse_query("mean(visits)", COLUMNS), (np.array([[v]]) for v in (30.0, 0.0, 30.0))
    (figure,) = stratum_figures(query, NoisySums(*sums, 0.5), NUMBER, Rows(per_unit=40), [None])
    assert figure.estimate is None and figure.interval is None
    assert figure.refused == "nothing can be said: the interval is the whole range"


def test_an_estimate_lies_in_its_interval_where_noise_turns_the_bounds_round() -> None:
    """A wide level with a negative count makes the lowest mean larger than the highest."""
    covariance = np.diag([30.0, 30, 1, 900, 30, 1]) ** 2
    values = np.array([440.0, 400, 600, -100, 400, 200])
    found = ratio_figure("mean", Functionals(values, covariance), (0.0, 25.0), Rows(), None)
    assert isinstance(found.estimate, float) and found.interval is not None
    low, high = found.interval
    assert low <= found.estimate <= high
    assert found.bounds == pytest.approx((0.0, 1.1), abs=0.26)
    counted = count_figure(Functionals(values, covariance), Rows(), None)
    assert counted.interval is not None
    assert counted.interval[0] <= float(counted.estimate or 0) <= counted.interval[1]
