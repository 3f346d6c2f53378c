"""Smoothed margins and two-way tables against the tables that the noise was added to."""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import ColumnDomain, Domain
from synthdp.graph import (
    body_of,
    margin_probabilities,
    one_way_probabilities,
    pooled,
    project_to_simplex,
    smoothed_margin,
)
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import (
    Axis,
    SmoothPair,
    axis,
    fitted_to_margins,
    pair_tables,
    smoothed_pair,
)
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
ROWS = 10_000.0


def categorical(levels: int, name: str = "c") -> ColumnDomain:
    return ColumnDomain(name, "categorical", tuple(f"v{i}" for i in range(levels)), False)


def numeric(bins: int, name: str = "n", *, spikes: int = 0, missing: bool = False) -> ColumnDomain:
    labels = tuple(f"v{i}" for i in range(spikes + bins + missing))
    return ColumnDomain(
        name,
        "integer",
        labels,
        missing,
        spikes=tuple(map(float, range(spikes))),
        edges=tuple(map(float, range(spikes, spikes + bins))),
        stop=float(spikes + bins),
    )


def distance(p: Floats, q: Floats) -> float:
    """Total variation."""
    return float(np.abs(p - q).sum() / 2)


def positive(shares: Floats) -> Floats:
    """What a table says without smoothing."""
    return project_to_simplex(shares.ravel()).reshape(shares.shape)


# --- two-way tables ---


def band(rng: np.random.Generator) -> Floats:
    """Both columns rise together, smoothly."""
    x = (np.arange(20) + 0.5) / 20
    p = np.exp(-((x - x[:, None]) ** 2) / (2 * 0.35**2))
    return p / p.sum()


def rough_band(rng: np.random.Generator) -> Floats:
    """The same with heaps: each cell has a factor of its own."""
    p = band(rng) * np.exp(rng.normal(0, 0.5, (20, 20)))
    return p / p.sum()


def classes(rng: np.random.Generator) -> Floats:
    """No order at all."""
    product = np.outer(rng.dirichlet(np.full(6, 4.0)), rng.dirichlet(np.full(8, 4.0)))
    p = product * np.exp(rng.normal(0, 1, (6, 8)))
    return p / p.sum()


KINDS: dict[str, tuple[Callable[[np.random.Generator], Floats], ColumnDomain, ColumnDomain]] = {
    "smooth": (band, numeric(20, "a"), numeric(20, "b")),
    "rough": (rough_band, numeric(20, "a"), numeric(20, "b")),
    "categorical": (classes, categorical(6, "a"), categorical(8, "b")),
}


@cache
def smoothed(
    kind: str, sigma: float, seed: int, *, told: float = 1.0
) -> tuple[Floats, Floats, SmoothPair]:
    """Truth, noisy shares and smoothed table; `sigma` is in rows, `told` what it is multiplied by
    where the smoothing hears of it.
    """
    make, first, second = KINDS[kind]
    rng = np.random.default_rng(seed)
    truth = make(rng)
    noisy = truth + rng.normal(0, sigma / ROWS, truth.shape)
    a, b = axis(first, truth.sum(1), ROWS), axis(second, truth.sum(0), ROWS)
    return truth, noisy, smoothed_pair(a, b, noisy, told * sigma / ROWS)


@pytest.mark.parametrize(
    ("kind", "sigma", "factor"),
    [
        ("smooth", 10.0, 0.2),
        ("smooth", 50.0, 0.3),
        ("rough", 10.0, 0.95),
        ("rough", 50.0, 0.7),
        ("categorical", 50.0, 0.9),
        ("categorical", 150.0, 0.9),
    ],
)
def test_a_smoothed_table_is_nearer_the_truth(kind: str, sigma: float, factor: float) -> None:
    """By these factors against the nearest table without negative cells. Measured: .17, .29, .92,
    .65, .85, .83. Smooth tables gain a factor of 3 to 6, rough ones nearly nothing at low noise.
    """
    errors = [
        (distance(pair.probabilities, truth), distance(positive(noisy), truth))
        for truth, noisy, pair in (smoothed(kind, sigma, seed) for seed in range(25))
    ]
    ours, raw = np.mean(errors, axis=0)
    assert ours < factor * raw


@pytest.mark.parametrize("kind", ["smooth", "categorical"])
@pytest.mark.parametrize("sigma", [10.0, 50.0])
def test_the_expected_error_is_the_error(kind: str, sigma: float) -> None:
    """Within a quarter, over 25 tables. That of a rough table is too low where noise hides that it
    is rough (half of the error at sigma 50): the table is then taken for a smooth one.
    """
    found = [smoothed(kind, sigma, seed) for seed in range(25)]
    error = np.mean([distance(pair.probabilities, truth) for truth, _, pair in found])
    expected = np.mean([pair.expected_error(sigma / ROWS) for _, _, pair in found])
    assert 0.75 < expected / error < 1.25


def test_a_second_measuring_leaves_the_error_that_was_expected() -> None:
    """`expected_error` is asked about a noise that the table does not have yet."""
    said, errors = [], []
    for seed in range(25):
        truth, _, pair = smoothed("categorical", 50.0, seed)
        said.append(pair.expected_error(20.0 / ROWS))
        errors.append(distance(smoothed("categorical", 20.0, seed)[2].probabilities, truth))
    assert 0.75 < np.mean(said) / np.mean(errors) < 1.25


@pytest.mark.parametrize("told", [0.5, 2.0])
def test_another_noise_than_the_true_one_smooths_worse(told: float) -> None:
    """Half and double the noise, that is a quarter and four times its variance."""
    right, wrong = (
        np.mean(
            [
                distance(pair.probabilities, truth)
                for truth, _, pair in (
                    smoothed("categorical", 150.0, seed, told=factor) for seed in range(25)
                )
            ]
        )
        for factor in (1.0, told)
    )
    assert wrong > 1.1 * right


@pytest.mark.parametrize(
    ("first", "second", "alarms"),
    [
        (categorical(2), categorical(2), 0.05),
        (categorical(5), categorical(6), 0.09),
        (numeric(20), categorical(4), 0.13),
        (numeric(20), numeric(20), 0.23),
    ],
)
def test_independent_columns_stay_independent(
    first: ColumnDomain, second: ColumnDomain, alarms: float
) -> None:
    """The rate of false alarms of `min_evidence`. Over 1500 tables it is .025, .057, .087 and .166;
    here over 300, with 4 standard deviations of leeway. A table that is taken for dependent by
    mistake is still nearer the truth than without smoothing.
    """
    rng = np.random.default_rng(1)
    dependent = 0
    a, b = (axis(c, rng.dirichlet(np.full(c.levels, 3.0)), ROWS) for c in (first, second))
    product, worst = np.outer(a.margin, b.margin), []
    for _ in range(300):
        noisy = product + rng.normal(0, 0.004, product.shape)
        pair = smoothed_pair(a, b, noisy, 0.004)
        dependent += pair.dependent
        if pair.dependent:
            worst.append((distance(pair.probabilities, product), distance(noisy, product)))
        else:
            np.testing.assert_allclose(pair.probabilities, product, atol=1e-15)
            assert pair.expected_error(0.004) == 0
    assert 0 < dependent < alarms * 300
    ours, raw = np.mean(worst, axis=0)
    assert ours < raw


def test_a_levels_share_of_the_signal_does_not_depend_on_how_its_column_is_turned() -> None:
    truth, noisy, pair = smoothed("categorical", 50.0, 3)
    _, first, second = KINDS["categorical"]
    a, b = axis(first, truth.sum(1), ROWS), axis(second, truth.sum(0), ROWS)
    turned = smoothed_pair(b, a, noisy.T, 50.0 / ROWS)
    np.testing.assert_allclose(turned.probabilities.T, pair.probabilities, atol=1e-10)
    assert turned.evidence == pytest.approx(pair.evidence)


def test_spikes_and_missing_values_say_nothing_of_bins_and_hear_nothing_of_them() -> None:
    """g has no covariance, before it is centred, between a spike or the missing level and a bin."""
    column = numeric(6, spikes=2, missing=True)
    np.testing.assert_array_equal(body_of(column), np.arange(2, 8))
    from synthdp.graph.predict import _kernels

    *kernels, rough, smooth = _kernels(column)
    assert len(kernels) == 3 and len(_kernels(categorical(9))) == 1
    assert len(_kernels(numeric(6, spikes=1, missing=True))) == 3
    for joined in (rough, smooth):  # two spikes may also go on where bins begin; no missing does
        assert (joined[:-1, :-1] > 0).all() and not joined[-1, :-1].any()
    bins = np.isin(np.arange(9), body_of(column))
    for kernel in kernels:
        outside = kernel - np.diag(np.diag(kernel))
        assert not outside[~bins].any() and not outside[:, ~bins].any()
    assert all((kernel[np.ix_(bins, bins)] > 0).all() for kernel in kernels[1:])


@pytest.mark.parametrize("seed", range(4))
def test_a_fitted_table_has_its_margins(seed: int) -> None:
    """Also if the table or a margin has zeros; an empty row that should have mass gets the other
    margin's shape.
    """
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(20, 0.3)).reshape(4, 5)
    table[1] = 0
    rows, columns = rng.dirichlet(np.full(4, 2.0)), rng.dirichlet(np.full(5, 2.0))
    columns[2] = 0
    columns /= columns.sum()
    fitted = fitted_to_margins(table, rows, columns)
    np.testing.assert_allclose(fitted.sum(1), rows, atol=5e-3)
    np.testing.assert_allclose(fitted.sum(0), columns, atol=1e-12)
    assert fitted.min() >= 0
    ratio = fitted_to_margins(np.array([[0.4, 0.1], [0.1, 0.4]]), *np.full((2, 2), 0.5))
    np.testing.assert_allclose(ratio, [[0.4, 0.1], [0.1, 0.4]], atol=1e-6)


EXTREME: dict[str, tuple[ColumnDomain, ColumnDomain]] = {
    "one level": (categorical(1, "a"), numeric(9, "b")),
    "one level twice": (categorical(1, "a"), categorical(1, "b")),
    "two levels": (categorical(2, "a"), categorical(2, "b")),
    "300 levels": (numeric(299, "a", missing=True), categorical(3, "b")),
    "one bin": (numeric(1, "a", spikes=2, missing=True), numeric(7, "b", spikes=1)),
}


@pytest.mark.parametrize("rows", [0, 1, 1000])
@pytest.mark.parametrize("sigma", [1e-6, 5.0, 1e6])
@pytest.mark.parametrize("columns", EXTREME)
def test_whatever_comes_in_probabilities_come_out(columns: str, sigma: float, rows: int) -> None:
    """No row, or one, or next to no noise, or nothing but noise, whose total may be negative."""
    first, second = EXTREME[columns]
    domain = Domain((first, second))
    rng = np.random.default_rng([rows, len(columns)])
    counts = np.zeros(domain.sizes)
    cells = [rng.integers(0, s, rows) for s in domain.sizes]
    np.add.at(counts, tuple(cells), 1)
    if rows == 0:
        counts -= 2 * sigma  # certainly a negative total
    tables = [
        NoisyTable(("a",), counts.sum(1) + rng.normal(0, sigma, domain.sizes[0]), sigma),
        NoisyTable(("b",), counts.sum(0) + rng.normal(0, sigma, domain.sizes[1]), sigma),
        NoisyTable(("a", "b"), counts + rng.normal(0, sigma, domain.sizes), sigma),
    ]
    found = pair_tables(LevelLaw.of_tables(tables, domain))
    pair = found.pairs["a", "b"]
    every = [*found.margins.values(), pair.probabilities, found.table("a", "b")]
    for probabilities in every:
        assert np.isfinite(probabilities).all() and probabilities.min() >= 0
        assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_array_equal(found.table("b", "a"), found.table("a", "b").T)
    assert 0 <= pair.expected_error(sigma / found.rows) < np.inf
    if 1 in domain.sizes:
        assert not pair.dependent


def test_tables_of_one_pair_are_pooled_and_larger_tables_speak_on_their_pairs() -> None:
    """Two measurings of a pair, one of them turned, and one table of three columns."""
    rng = np.random.default_rng(5)
    domain = Domain((categorical(2, "a"), categorical(3, "b"), categorical(2, "c")))
    truth = 1000 * rng.dirichlet(np.full(12, 2.0)).reshape(2, 3, 2)
    tables = [
        NoisyTable(("a", "b"), truth.sum(2) + 1.0, 4.0),
        NoisyTable(("b", "a"), truth.sum(2).T - 1.0, 4.0),
        NoisyTable(("c", "b", "a"), truth.transpose(2, 1, 0), 4.0),
    ]
    found = pair_tables(LevelLaw.of_tables(tables, domain))
    assert list(found.pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    # Precisions 1 / 16, 1 / 16 and, over the two levels of c, 1 / 32.
    assert found.sigmas["a", "b"] == pytest.approx((2 / 16 + 1 / 32) ** -0.5)
    np.testing.assert_allclose(pooled(tables, ("a", "b")).counts, truth.sum(2))


# --- one-way margins ---


def margin(shape: str, bins: int) -> Floats:
    x = (np.arange(bins) + 0.5) / bins
    values = {
        "uniform": np.ones(bins),
        "two peaks": np.exp(-((x - 0.25) ** 2) / 0.005) + 0.7 * np.exp(-((x - 0.75) ** 2) / 0.003),
        "heaps": np.exp(-((x - 0.4) ** 2) / 0.1) * np.where(np.arange(bins) % 5 == 0, 6, 1),
        "one spike": np.where(np.arange(bins) == bins // 3, 0.6, 0.4 / (bins - 1)),
    }[shape]
    return values / values.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "noise", "factor"),
    [
        ("uniform", 0.2, 0.35),
        ("uniform", 1.0, 0.25),
        ("two peaks", 0.2, 0.9),
        ("two peaks", 1.0, 0.75),
        ("heaps", 0.2, 1.01),
        ("heaps", 1.0, 1.02),
        ("one spike", 0.2, 1.02),
        ("one spike", 1.0, 1.08),
    ],
)
def test_smoothing_a_margin_does_not_harm_it(shape: str, noise: float, factor: float) -> None:
    """60 bins, each with noise of `noise` times a bin's mean share. Measured: .27, .16, .85, .66,
    .99, .99, 1.00, 1.04.

    One margin in one bin is what smoothing makes worse, and more so at higher noise: by 1.2 at 2,
    and 1.4 at 5. So are 7 bins with two peaks, by 1.4 at 1. The projection onto the simplex alone
    is nearly as good as can be where most of the mass lies in few bins.
    """
    truth, sigma = margin(shape, 60), noise / 60
    errors = []
    for seed in range(30):
        noisy = truth + np.random.default_rng(seed).normal(0, sigma, 60)
        ours = margin_probabilities(numeric(60), noisy, sigma)
        errors.append((distance(ours, truth), distance(project_to_simplex(noisy), truth)))
    smooth, raw = np.mean(errors, axis=0)
    assert smooth < factor * raw


def test_only_ordered_bins_are_smoothed() -> None:
    shares = np.random.default_rng(2).normal(0.05, 0.05, 20)
    np.testing.assert_array_equal(smoothed_margin(categorical(20), shares, 0.05), shares)
    np.testing.assert_array_equal(smoothed_margin(numeric(6), shares[:6], 0.05), shares[:6])
    column = numeric(17, spikes=2, missing=True)
    found = smoothed_margin(column, shares, 0.05)
    np.testing.assert_array_equal(found[[0, 1, -1]], shares[[0, 1, -1]])
    assert np.std(np.diff(found[2:-1])) < 0.5 * np.std(np.diff(shares[2:-1]))
    swapped = shares[[1, 0, *range(2, 20)]]
    np.testing.assert_allclose(smoothed_margin(column, swapped, 0.05)[2:], found[2:])


def test_margins_are_of_all_tables_smoothed_and_projected() -> None:
    rng = np.random.default_rng(3)
    column, truth = numeric(30, "a"), 1000 * margin("two peaks", 30)
    own = NoisyTable(("a",), truth + rng.normal(0, 30, 30), 30.0)
    (found,) = one_way_probabilities([own], [column])
    total = own.counts.sum()
    expected = margin_probabilities(column, own.counts / total, 30 / total)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_level_that_nobody_has_still_has_a_margin_in_tables() -> None:
    found: Axis = axis(categorical(3), np.array([1.0, 0.0, 0.0]), 100.0)
    np.testing.assert_allclose(found.margin, np.array([1, 0.02, 0.02]) / 1.04)
