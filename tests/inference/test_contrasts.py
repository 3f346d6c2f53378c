"""The effect where both arms overlap, by one sum: right without noise, and covered with it."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synthdp.inference import MeasuredContrast, Rows, Z, contrast_figure
from synthdp.inference.estimands import effect_figure
from synthdp.model import ContrastDesign, contrast_of_sums
from synthdp.privacy import Contrast
from synthdp.privacy.mechanisms.sums import SQUARE, Bounded, NoisyContrast, NoisySums
from tests.inference.test_strata import NUMBER, STRATA, drawn, sums_of

U = Bounded("visits", -1.0, 1.0)
DESIGNS = ("unequal arms", "signs differ", "far from the middle", "many strata", "thin and uneven")


def measured(exact: NoisySums, noise: float, rng: np.random.Generator) -> NoisySums:
    """Both looks at rows with these sums, under noise of so many times what one row can move."""
    sigma, own = noise * math.sqrt(2 + SQUARE**2), noise * math.sqrt(1 + 2 * SQUARE**2)
    scales = {"counts": sigma, "sums": sigma, "squares": sigma / SQUARE}
    noisy: dict[str, Any] = {
        n: getattr(exact, n) + rng.normal(0, s, exact.counts.shape) for n, s in scales.items()
    }
    first = NoisySums(**noisy, sigma=sigma)
    design = ContrastDesign.of(first, own)
    budget: Any = None
    chosen = Contrast(budget, design.weights, *design.centres)
    told = contrast_of_sums(chosen, exact) + rng.normal(0, own, 3)
    return replace(first, contrast=NoisyContrast(told, own))


def overlapping(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Rates of the strata of both arms, their mean of u, and the deviation of u."""
    size, effect = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.4, -0.4, 0.3, -0.5])
    often, mean, sd = np.array([0.15, 0.25, 0.2, 0.3]), np.zeros(4), 0.3
    if name == "signs differ":
        often, mean, sd = np.array([0.5, 0.1, 0.3, 0.15]), mean, 0.2
    elif name == "far from the middle":
        often, mean, sd, effect = np.array([0.16, 0.3, 0.5, 0.2]), mean + 0.7, 0.15, 0.3 * effect
    elif name == "many strata":
        size, often = rng.dirichlet(np.full(60, 2.0)), rng.uniform(0.05, 0.5, 60)
        effect, mean = rng.normal(0.1, 0.2, 60), rng.normal(-0.3, 0.1, 60)
    elif name == "thin and uneven":  # what acts on both would be the whole effect
        size, x = rng.dirichlet(np.full(40, 0.7)), rng.normal(size=40)
        often, effect, mean = 0.05 + 0.5 / (1 + np.exp(-1.5 * x)), np.zeros(40), 0.3 * np.tanh(x)
    return np.stack([size * often, size * (1 - often)]), np.stack([mean + effect, mean]), sd


def releases(
    name: str, rows: int, noise: float, count: int, seed: int
) -> Iterator[tuple[NoisySums, float]]:
    """What each of some releases measures, and the truth."""
    rng = np.random.default_rng(seed)
    rates, mean, sd = overlapping(name, rng)
    z = np.linspace(-4, 4, 4001)
    law = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    cut = np.clip(mean[..., None] + sd * z, -1, 1) @ law  # of numbers that are cut at their ends
    weights = rates[0] * rates[1] / rates.sum(0)
    truth = float(weights @ (cut[0] - cut[1]) / weights.sum())
    for _ in range(count):
        n = rng.multinomial(rows, rates.ravel())
        cell = np.repeat(np.arange(n.size), n)
        u = np.clip(rng.normal(mean.ravel()[cell], sd), -1, 1)
        exact = [np.bincount(cell, w, n.size).reshape(mean.shape) for w in (u**0, u, u**2)]
        yield measured(NoisySums(*exact, 0.0), noise, rng), truth


def covered(*given: Any) -> tuple[float, float]:
    """Shares of `releases` that are answered, and of the intervals of these that hold the truth."""
    told, inside, count = 0, 0, 0
    for sums, truth in releases(*given):
        found, count = contrast_figure(sums, U, Rows()), count + 1
        if found.interval is not None:
            low, high = (float(end) for end in found.interval)
            told, inside = told + 1, inside + (low <= truth <= high)
    return told / count, inside / max(1, told)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("name", DESIGNS)
def test_the_effect_where_arms_overlap_is_told_and_covered(name: str, noise: float) -> None:
    """Also where strata are too thin for an average over all rows."""
    for rows in (20_000,) if name in DESIGNS[3:] or noise > 3 else (3000, 20_000):
        told, inside = covered(name, rows, noise, 800, 8)
        assert told >= 0.95 and 0.915 <= inside <= 0.985, (rows, told, inside)


FAULTS = {
    "half of the noise": ("unequal arms", 1600, 8.0, "noise"),
    "no sampling": ("signs differ", 3000, 0.5, "spread"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_overlap_is_covered_and_not_with_a_fault(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *given, what = FAULTS[fault]
    told, inside = covered(*given, 100, 3)
    assert told >= 0.95 and inside >= 0.88
    honest = MeasuredContrast.of

    def wrong(sums: NoisySums) -> MeasuredContrast | None:
        found = honest(sums)
        assert found is not None
        if what == "spread":
            return replace(found, spread=0.0)
        own = found.noise
        return replace(found, noise=replace(own, nn=own.nn / 4, dd=own.dd / 4))

    monkeypatch.setattr(MeasuredContrast, "of", staticmethod(wrong))
    assert covered(*given, 100, 3)[1] <= inside - 0.07


ALIKE = np.full((2, 12), 60.0), np.full(12, 0.2)
CONFOUNDED = (
    np.stack([np.linspace(6, 60, 12), np.linspace(70, 40, 12)]),
    np.linspace(-0.4, 0.4, 12),
)


@pytest.mark.parametrize(("n", "mean", "noise"), [(*ALIKE, 4.0), (*CONFOUNDED, 4.0)])
def test_the_noise_of_the_sum_is_what_is_stated(
    n: np.ndarray, mean: np.ndarray, noise: float
) -> None:
    """Of many draws for rows without an effect: no bias that matters, and the stated variance; what
    noisy shares leave beside the effect would be a bias.
    """
    rng, rests, stated, left = np.random.default_rng(1), [], [], []
    exact = NoisySums(n, n * mean, n * (mean**2 + 0.1), 0.0)
    overlap = float((n[0] * n[1] / n.sum(0)).sum())
    for _ in range(1500):
        sums = measured(exact, noise, rng)
        found = MeasuredContrast.of(sums)
        assert found is not None and sums.contrast is not None
        rests.append(found.rest + found.guess * overlap)
        stated.append(found.noise.nn)
        left.append(ContrastDesign.of(sums, sums.contrast.sigma).beside)
    error, sd = np.std(rests) / math.sqrt(len(rests)), float(np.std(rests))
    assert abs(np.mean(rests)) <= 4 * error
    assert 0.8 <= np.mean(stated) / sd**2 <= 1.25
    if mean[0] < 0:
        assert np.mean(rests) + np.mean(left) > 5 * error


def exactly(exact: NoisySums) -> NoisySums:
    return measured(exact, 1e-9, np.random.default_rng(0))


def test_without_noise_the_overlap_is_a_regression_on_strata() -> None:
    """Least squares of the outcome on treatment and strata weigh them alike; robust errors."""
    stratum, treated, y = drawn(5000, np.random.default_rng(2))
    exact = sums_of(stratum, treated, y, 0.0, np.random.default_rng(0))
    found = contrast_figure(exactly(exact), NUMBER, Rows())
    x = np.column_stack([treated, *(stratum == z for z in range(STRATA))]).astype(float)
    gram = np.linalg.inv(x.T @ x)
    beta = gram @ x.T @ y
    meat = x.T @ (x * ((y - x @ beta) ** 2)[:, None])
    assert found.estimate == pytest.approx(beta[0])
    low, high = (float(end) for end in found.interval or ())
    assert (high - low) / 2 == pytest.approx(Z * np.sqrt((gram @ meat @ gram)[0, 0]), rel=0.01)
    strata = [treated[stratum == z] for z in range(STRATA)]
    weights = np.array([len(t) * t.mean() * (1 - t.mean()) for t in strata])
    assert found.rows == pytest.approx(4 * weights.sum())
    of_all = contrast_figure(exactly(exact), NUMBER, Rows(holdout=0.2)).rows
    assert of_all == pytest.approx(found.rows / 0.8)
    few = NoisySums(*(part / 100 for part in (exact.counts, exact.sums, exact.squares)), 0.1)
    assert "rows in an average stratum" in (
        contrast_figure(exactly(few), NUMBER, Rows()).refused or ""
    )


def test_small_strata_pay_for_the_mean_that_is_taken_off() -> None:
    """Twenty rows a stratum, and a thousand times as many of the same: n / (n - 1) is left."""
    parts = np.full((2, 2), 10.0), np.array([[2.0, -1.0], [1.0, 3.0]]), np.full((2, 2), 5.0)
    widths = []
    for k in (1, 1000):
        found = contrast_figure(exactly(NoisySums(*(k * p for p in parts), 0.0)), NUMBER, Rows())
        low, high = (float(end) for end in found.interval or ())
        widths.append(high - low)
    wanted = 20 / 19 * 19_999 / 20_000
    assert widths[0] ** 2 / (1000 * widths[1] ** 2) == pytest.approx(wanted, rel=1e-6)


def test_rows_of_one_person_widen_the_overlap_by_sampling_alone() -> None:
    stratum, treated, y = drawn(5000, np.random.default_rng(5))
    exact = sums_of(stratum, treated, y, 0.0, np.random.default_rng(0))
    sums = measured(exact, 3.0, np.random.default_rng(0))
    found = MeasuredContrast.of(sums)
    one, four = (contrast_figure(sums, NUMBER, Rows(per_unit=k)) for k in (1, 4))
    assert found is not None and one.of_rows == four.of_rows and one.interval and four.interval
    noise, single, several = (
        (float(ends[1]) - float(ends[0])) ** 2
        for ends in (one.of_rows or (0, 0), one.interval, four.interval)
    )
    assert several - noise == pytest.approx(4 * (single - noise), rel=0.02)


def test_the_effect_over_all_rows_is_narrower_by_it_and_covered() -> None:
    """The same sums by stratum, with and without the contrast."""
    inside, widths, count = 0, list[float](), 120
    rng = np.random.default_rng(7)
    exact = sums_of(*drawn(400_000, np.random.default_rng(0)), 0.0, rng)
    truth = float(effect_figure(exact, NUMBER, Rows()).estimate or 0)
    for _ in range(count):
        own = sums_of(*drawn(5000, rng), 0.0, rng)
        sums = measured(own, 8.0, rng)
        told, alone = (
            effect_figure(s, NUMBER, Rows()) for s in (sums, replace(sums, contrast=None))
        )
        (low, high), (first, last) = told.interval or (0, 0), alone.interval or (0, 0)
        widths.append((float(high) - float(low)) / (float(last) - float(first)))
        inside += float(low) <= truth <= float(high)
    assert np.median(widths) < 0.8 and inside >= 0.88 * count
    same = (effect_figure(s, NUMBER, Rows()).interval for s in (exactly(exact), exact))
    assert next(same) == pytest.approx(next(same))
