"""Noise has the scale it claims, lies on its lattice, and never repeats."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from synthdp.privacy import dpsgd, dpsgd_settings, mechanisms, noise, session, source
from synthdp.privacy.dpsgd_settings import DpSgd
from synthdp.privacy.noise import Streams

Ints = npt.NDArray[np.int64]
SIGNIFICANCE = 1e-6  # a true scale fails once in a million runs; 0.7x and 1.3x are refused with near certainty


def discrete_law(support: Ints, sigma: float) -> npt.NDArray[np.float64]:
    weights = np.exp(-(support.astype(float) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def rounded_law(support: Ints, sigma: float) -> npt.NDArray[np.float64]:
    law: npt.NDArray[np.float64] = stats.norm.cdf(support + 0.5, 0, sigma) - stats.norm.cdf(support - 0.5, 0, sigma)
    return law


def fit_p_value(samples: Ints, law: Callable[[Ints, float], npt.NDArray[np.float64]], sigma: float) -> float:
    """Chi-square of whole-number samples against a law, cells of less than 10 expected pooled into the tails."""
    reach = math.ceil(8 * sigma) + 8
    support = np.arange(-reach, reach + 1)
    expected = law(support, sigma) * len(samples)
    observed = np.bincount(np.clip(samples, -reach, reach) + reach, minlength=len(support)).astype(float)
    keep = expected >= 10
    tail = [observed[~keep].sum()], [max(expected[~keep].sum(), 1e-9)]
    observed, expected = np.concatenate([observed[keep], tail[0]]), np.concatenate([expected[keep], tail[1]])
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


SAMPLERS = {
    "discrete": (lambda n, sigma: Streams.fresh().discrete_gaussian(np.zeros(n, dtype=np.int64), sigma=sigma), discrete_law),
    "rounded": (lambda n, sigma: Streams.fresh().rounded_gaussian(np.zeros(n, dtype=np.int64), sigma=sigma), rounded_law),
}


@pytest.mark.parametrize("sigma", [0.7, 3.0, 25.0])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_noise_has_its_scale_and_no_other(kind: str, sigma: float) -> None:
    draw, law = SAMPLERS[kind]
    samples = draw(20_000, sigma)
    assert fit_p_value(samples, law, sigma) > SIGNIFICANCE
    for wrong in (0.7, 1.3):
        assert fit_p_value(samples, law, sigma * wrong) < SIGNIFICANCE
        assert fit_p_value(draw(20_000, sigma * wrong), law, sigma) < SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLERS)
def test_noise_is_told_from_a_tenth_more_or_less(kind: str) -> None:
    draw, law = SAMPLERS[kind]
    samples = draw(300_000, 6.0)
    assert fit_p_value(samples, law, 6.0) > SIGNIFICANCE
    for wrong in (0.9, 1.1):
        assert fit_p_value(samples, law, 6.0 * wrong) < SIGNIFICANCE


@pytest.mark.parametrize("kind", SAMPLERS)
def test_noise_does_not_depend_on_the_counts(kind: str) -> None:
    _, law = SAMPLERS[kind]
    counts = np.tile(np.array([0, 7, 10**9], dtype=np.int64), 7000)
    streams = Streams.fresh()
    noisy = streams.discrete_gaussian(counts, sigma=4.0) if kind == "discrete" else streams.rounded_gaussian(counts, sigma=4.0)
    assert noisy.dtype == np.int64
    for start in range(3):
        assert fit_p_value((noisy - counts)[start::3], law, 4.0) > SIGNIFICANCE


def test_cells_are_independent() -> None:
    pairs = Streams.fresh().discrete_gaussian(np.zeros((20_000, 2), dtype=np.int64), sigma=5.0)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_no_noise_without_a_scale(sigma: float) -> None:
    zero, streams = np.zeros(3, dtype=np.int64), Streams.fresh()
    with pytest.raises(ValueError, match="scale"):
        streams.discrete_gaussian(zero, sigma=sigma)
    with pytest.raises(ValueError, match="scale"):
        streams.rounded_gaussian(zero, sigma=sigma)
    with pytest.raises(ValueError, match="scale"):
        streams.lattice_gaussian(zero.astype(float), sigma=sigma, spacing=1.0)
    with pytest.raises(ValueError, match="scale"):
        streams.lattice_gaussian(zero.astype(float), sigma=1.0, spacing=sigma)


def test_shapes_are_kept_and_empty_tables_stay_empty() -> None:
    streams = Streams.fresh()
    for shape in ((0,), (1,), (2, 0), (3, 4, 5)):
        counts = np.zeros(shape, dtype=np.int64)
        assert streams.discrete_gaussian(counts, sigma=2.0).shape == shape
        assert streams.rounded_gaussian(counts, sigma=2.0).shape == shape
        assert streams.lattice_gaussian(counts.astype(float), sigma=2.0, spacing=0.5).shape == shape


# --- DP-SGD's lattice -----------------------------------------------------------------------------------------


def noisy_gradient(summed: npt.NDArray[np.float64], *, deviation: float, spacing: float) -> npt.NDArray[np.float64]:
    return Streams.fresh().lattice_gaussian(summed, sigma=deviation, spacing=spacing)


@pytest.mark.parametrize("deviation", [0.8, 30.0])
def test_lattice_noise_has_its_scale_and_no_other(deviation: float) -> None:
    noisy = noisy_gradient(np.zeros(20_000), deviation=deviation, spacing=2**-10)
    assert stats.kstest(noisy, "norm", args=(0, deviation)).pvalue > SIGNIFICANCE
    for wrong in (0.7, 1.3):
        assert stats.kstest(noisy, "norm", args=(0, wrong * deviation)).pvalue < SIGNIFICANCE


@pytest.mark.parametrize("spacing", [2**-10, 1.0])
def test_outputs_lie_on_the_lattice_for_both_neighbours(spacing: float) -> None:
    one = np.random.default_rng(0).random(5000) * 3
    for summed in (one, one + 1e-4, one * 1.7):
        steps = noisy_gradient(summed, deviation=2.0, spacing=spacing) / spacing
        assert np.array_equal(steps, np.round(steps))


def test_coarse_lattice_still_has_the_law_of_rounding() -> None:
    noisy = noisy_gradient(np.full(20_000, 0.2), deviation=3.0, spacing=1.0)
    assert fit_p_value(noisy.astype(np.int64), rounded_law, 3.0) > SIGNIFICANCE


def settings(**changes: float) -> DpSgd:
    values = {"rate": 0.1, "steps": 3, "expected_batch": 50.0, "clip": 1.0, "noise_multiplier": 1.0, "learning_rate": 0.01, "ema": 0.9}
    return DpSgd(**{**values, "checkpoint_every": 100, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("noise_multiplier", [1e-3, 1.0, 1e7])
@pytest.mark.parametrize("dimension", [1, 1000, 10**8])
def test_rounding_to_the_lattice_fits_in_the_sensitivity(noise_multiplier: float, dimension: int) -> None:
    """Two sums clip apart stay within the sensitivity after each is rounded, whatever the noise and the size."""
    own = settings(noise_multiplier=noise_multiplier, clip=0.3)
    assert own.lattice_spacing(dimension) > 0
    assert own.clip + own.lattice_spacing(dimension) * math.sqrt(dimension) <= own.sensitivity < 1.01 * own.clip


# --- streams and seeds ----------------------------------------------------------------------------------------


def test_streams_never_repeat() -> None:
    firsts = [s.random() for _ in range(300) for s in (lambda x: (x.noise, x.sampling, x.holdout, x.latent))(Streams.fresh())]
    assert len(set(firsts)) == 1200


def test_streams_show_nothing() -> None:
    assert repr(Streams.fresh()) == "<Streams>"


@pytest.mark.parametrize("module", [noise, mechanisms, session, source, dpsgd, dpsgd_settings], ids=lambda m: m.__name__)
def test_no_function_takes_a_seed(module: types.ModuleType) -> None:
    found = [f for f in vars(module).values() if callable(f) and getattr(f, "__module__", "") == module.__name__]
    found += [m for c in found if inspect.isclass(c) for m in vars(c).values() if inspect.isfunction(m)]
    assert found
    for function in found:
        names = inspect.signature(function).parameters
        assert not [n for n in names if "seed" in n or (n == "key" and module is noise)], function


# --- the sampler ----------------------------------------------------------------------------------------------


def test_batches_follow_the_poisson_law() -> None:
    """Shuffled batches of a fixed size would have no variance, and pairs would come too rarely together."""
    rows, rate, streams = 500, 0.1, Streams.fresh()
    drawn = np.zeros((400, rows), dtype=bool)
    for i in range(400):
        drawn[i, streams.poisson_batch(rows, rate=rate)] = True
    sizes = drawn.sum(1)
    law = rows * rate * (1 - rate)
    assert 0.65 < sizes.var() / law < 1.35
    assert abs(sizes.mean() - rows * rate) < 5 * math.sqrt(law / 400)
    together = (drawn[:, :250] & drawn[:, 250:]).sum()
    chance = 400 * 250 * rate**2
    assert abs(together - chance) < 5 * math.sqrt(chance)
    assert stats.chisquare(drawn.sum(0)).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(("rows", "rate", "size"), [(0, 0.5, 0), (1, 1.0, 1), (7, 1.0, 7), (7, 0.0, 0)])
def test_batches_at_the_edges(rows: int, rate: float, size: int) -> None:
    assert len(Streams.fresh().poisson_batch(rows, rate=rate)) == size


def test_draws_are_independent_of_how_many_rows_follow() -> None:
    """The coin of a row is its own: rows added at the end change no earlier coin."""
    streams = [replace(Streams.fresh(), sampling=np.random.Generator(np.random.Philox(key=5))) for _ in range(2)]
    few, many = (s.poisson_batch(n, rate=0.3) for s, n in zip(streams, (40, 41), strict=True))
    assert np.array_equal(few, many[many < 40])
