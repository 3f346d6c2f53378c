"""Effects from noisy counts: exact without noise, their gradient, their coverage, and faults."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.inference import Contrast, LeastSquares, Rows, Strata, contrast, effect_query, measured
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Boolean, Categorical, Integer

Floats = Any
NAMES = ("t", "y", "z")


def domain_of(strata: int, top: int = 1) -> Domain:
    """T is boolean, Y counts to `top`, Z has so many strata."""
    return Domain.from_spec(
        {
            "t": Boolean(type="boolean", **{"false": "no", "true": "yes"}),
            "y": Integer(type="integer", lower=0, upper=top, bins=top + 1),
            "z": Categorical(type="categorical", categories=tuple(f"z{i}" for i in range(strata))),
        }
    )


def known(table: Floats, sigma: float, rows: Rows | None = None, *more: NoisyTable) -> Strata:
    """What a noisy table `[2, levels of y, strata]` tells, and perhaps others."""
    domain = domain_of(table.shape[2], table.shape[1] - 1)
    tables = [NoisyTable(NAMES, table, sigma), *more]
    solver = LeastSquares(measured(tables, domain, NAMES, grouped=False))
    return Strata(solver, np.tile(np.arange(table.shape[1], dtype=float), (3, 1)), rows or Rows())


def population(strata: int, top: int = 1, seed: int = 0) -> tuple[Floats, float]:
    """A law `[2, top + 1, strata]` in which Z confounds, and the true effect."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(strata, 20.0))
    treated = np.linspace(0.3, 0.6, strata)
    chance = rng.uniform(0.1, 0.3, (2, strata)) + 0.3 * treated
    chance[1] += 0.1
    y = np.stack([comb(top, k) * chance**k * (1 - chance) ** (top - k) for k in range(top + 1)], 1)
    law = weights * np.stack([1 - treated, treated])[:, None, :] * y
    return law, float((weights * (chance[1] - chance[0])).sum() * top)


def standardised(table: Floats) -> list[float]:
    """The mean of each arm by the g-formula of exact counts, written anew."""
    y = np.arange(table.shape[1])[:, None]
    means = [(y * table[t]).sum(axis=0) / table[t].sum(axis=0) for t in (0, 1)]
    weights = table.sum(axis=(0, 1)) / table.sum()
    return [float((weights * mean).sum()) for mean in means]


def simple(table: Floats) -> float:
    """Their difference."""
    none, treated = standardised(table)
    return treated - none


def log_ratio(table: Floats) -> float:
    none, treated = standardised(table)
    return float(np.log(treated / none))


def drawn(law: Floats, n: int, sigma: float, rng: np.random.Generator) -> Floats:
    table = rng.multinomial(n, law.ravel()).reshape(law.shape).astype(float)
    return table + np.round(rng.normal(0, sigma, law.shape))


def test_without_noise_it_is_the_g_formula_of_the_rows() -> None:
    law, truth = population(4, 3, seed=1)
    rng = np.random.default_rng(2)
    table = drawn(law, 20_000, 0.0, rng)
    found = contrast(known(table, 1e-3), 1, 0)
    assert found.figure.estimate == pytest.approx(simple(table), abs=1e-6)
    assert found.figure.bounds is None and found.middle is None and not found.left_out
    assert found.means is not None
    assert found.means[0] - found.means[1] == pytest.approx(found.figure.estimate, abs=1e-9)
    naive = simple(table.sum(axis=2, keepdims=True))
    assert abs(naive - truth) > 2 * abs(simple(table) - truth)  # Z confounds
    turned = contrast(known(table, 1e-3), 0, 1)
    assert turned.figure.estimate == pytest.approx(-found.figure.estimate, abs=1e-9)


def test_the_interval_without_noise_is_that_of_the_influence_of_rows() -> None:
    law, _ = population(3, 2, seed=3)
    table = drawn(law, 5_000, 0.0, np.random.default_rng(4))
    found = contrast(known(table, 1e-3), 1, 0)
    influence = _influence(table)
    sd = np.sqrt((table * influence**2).sum()) / table.sum()
    low, high = (float(end) for end in found.figure.interval or ())
    assert (high - low) / (2 * effect_query.Z) == pytest.approx(sd, rel=1e-3)
    four = contrast(known(table, 1e-3, Rows(per_unit=4)), 1, 0).figure.interval or (0.0, 0.0)
    assert float(four[1]) - float(four[0]) == pytest.approx(2 * (high - low), rel=1e-3)


def _influence(table: Floats, of: Callable[[Floats], float] = simple) -> Floats:
    """The influence of a row of each cell, by adding it and looking."""
    n, before = table.sum(), of(table)
    found = np.zeros(table.shape)
    for cell in np.ndindex(table.shape):
        more = table.copy()
        more[cell] += 1e-4
        found[cell] = (of(more) - before) / 1e-4 * n
    return found


def test_rows_without_an_outcome_still_weigh() -> None:
    law, _ = population(3, 2, seed=5)
    table = drawn(law, 9_000, 0.0, np.random.default_rng(6))
    strata = known(table, 1e-3)
    numbers = strata.numbers.copy()
    numbers[:, 2] = np.nan
    found = contrast(replace(strata, numbers=numbers), 1, 0)
    means = [table[t, 1] / table[t, :2].sum(axis=0) for t in (0, 1)]
    weights = table.sum(axis=(0, 1)) / table.sum()
    assert found.figure.estimate == pytest.approx((weights * (means[1] - means[0])).sum())


def test_levels_that_do_not_tell_become_bounds() -> None:
    law, _ = population(3, 2, seed=7)
    table = drawn(law, 9_000, 0.0, np.random.default_rng(8))
    strata = known(table, 1e-3)
    wide = replace(strata, numbers=strata.numbers + np.array([[-0.25], [0.0], [0.25]]))
    exact, found = contrast(strata, 1, 0), contrast(wide, 1, 0)
    assert found.figure.estimate == pytest.approx(exact.figure.estimate)
    middle = float(exact.figure.estimate or 0)
    assert found.figure.bounds == pytest.approx((middle - 0.5, middle + 0.5))
    assert found.middle == pytest.approx(exact.figure.interval)
    low, high = found.figure.interval or (0.0, 0.0)
    assert float(low) < middle - 0.5 and float(high) > middle + 0.5


# --- strata with next to no rows ---


def with_rare(share: float, rng: np.random.Generator) -> tuple[Floats, float]:
    """A fourth stratum, of a part of the rows, in which nobody is treated and T would harm."""
    law, effect = population(3, seed=9)
    rare = np.array([[0.9, 0.1], [0.0, 0.0]]) * share
    whole = np.concatenate([law * (1 - share), rare[:, :, None]], axis=2)
    return drawn(whole, 20_000, 5.0, rng), effect * (1 - share) + share * 0.9


def test_a_small_stratum_without_an_arm_is_allowed_for() -> None:
    table, truth = with_rare(0.01, np.random.default_rng(10))
    found = contrast(known(table, 5.0), 1, 0)
    assert found.left_out == ("z z3",) and 0.01 < found.left_share < 0.02
    low, high = found.figure.interval or (0.0, 0.0)
    first, last = found.figure.bounds or (0.0, 0.0)
    assert float(low) < float(first) < truth < float(last) < float(high)
    assert float(last) - float(first) == pytest.approx(2 * found.left_share)


def test_a_large_stratum_without_an_arm_is_refused() -> None:
    table, _ = with_rare(0.1, np.random.default_rng(11))
    found = contrast(known(table, 5.0), 1, 0)
    assert found.figure.estimate is None and found.figure.interval is None
    assert found.left_out == ("z z3",) and "too few rows" in (found.figure.refused or "")


# --- unseen causes ---


def test_an_e_value_is_what_a_cause_must_have() -> None:
    """By the formula; and a cause at that strength does explain the whole ratio away."""
    table = np.array([[800.0, 200.0], [600.0, 400.0]])[:, :, None]
    found = contrast(known(table, 1e-3), 1, 0)
    assert found.e_values is not None
    assert found.e_values[0] == pytest.approx(2 + np.sqrt(2))
    assert 1 < found.e_values[1] < found.e_values[0]
    e = found.e_values[0]
    # U is certain among the treated, of probability 1/e among others, and multiplies the risk by e.
    risks = [e * 0.1, 0.1 * (e / e + 1 - 1 / e)]
    assert risks[0] / risks[1] == pytest.approx(2.0)
    same = contrast(known(table[::-1] * 0 + table[:1], 1e-3), 1, 0)
    assert same.e_values == pytest.approx((1.0, 1.0))
    mean = known(np.repeat(table, 2, axis=1), 1e-3)
    assert contrast(mean, 1, 0).e_values is None


def test_the_e_value_of_the_interval_is_of_the_end_that_rows_and_noise_leave() -> None:
    """Without noise, of 1,000 rows an arm and shares .2 and .4, the ratio's logarithm has the
    variance .8 / 200 + .6 / 400; of strata that differ, that of the influence of rows.
    """

    def e_value(log_ratio: float) -> float:
        ratio = float(np.exp(log_ratio))
        return ratio + float(np.sqrt(ratio * (ratio - 1)))

    plain = np.array([[800.0, 200.0], [600.0, 400.0]])[:, :, None]
    end = np.log(2) - effect_query.Z * np.sqrt(0.8 / 200 + 0.6 / 400)
    found = contrast(known(plain, 1e-3), 1, 0).e_values or (0.0, 0.0)
    assert found[1] == pytest.approx(e_value(end), rel=1e-4)
    assert found[1] == pytest.approx(2.85, abs=0.01)
    law = np.array(
        [[[900.0, 300.0], [100.0, 700.0]], [[300.0, 60.0], [200.0, 740.0]]]
    )  # of which z decides most
    variance = float((law * _influence(law, log_ratio) ** 2).sum()) / law.sum() ** 2
    end = abs(log_ratio(law)) - effect_query.Z * np.sqrt(variance)
    found = contrast(known(law, 1e-3), 1, 0).e_values or (0.0, 0.0)
    assert found[1] == pytest.approx(e_value(end), rel=1e-4) and found[1] > 1.05


# --- coverage ---


def releases(
    count: int, seed: int, *, n: int = 20_000, sigma: float = 20.0, strata: int = 6, top: int = 1
) -> Iterator[tuple[Contrast, float]]:
    """Noisy tables of samples of one population."""
    law, truth = population(strata, top, seed=12)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield contrast(known(drawn(law, n, sigma, rng), sigma), 1, 0), truth


def covered(found: Contrast, truth: float, *, rows_only: bool = False) -> bool:
    ends = found.figure.of_rows if rows_only else found.figure.interval
    assert ends is not None
    return float(ends[0]) <= truth <= float(ends[1])


def coverage(*args: Any, rows_only: bool = False, **more: Any) -> float:
    return float(np.mean([covered(*r, rows_only=rows_only) for r in releases(*args, **more)]))


def test_the_interval_holds_the_truth() -> None:
    assert 0.92 <= coverage(200, 13) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize(("n", "sigma", "strata", "top"), [
    (20_000, 20.0, 6, 1), (20_000, 20.0, 6, 4), (2_000, 5.0, 3, 1), (20_000, 5.0, 40, 1),
])  # fmt: skip
def test_the_interval_holds_the_truth_in_many_releases(
    n: int, sigma: float, strata: int, top: int
) -> None:
    """Of 2,000 seeded releases; at .95, other seeds would leave this band with 1e-4 at most."""
    assert 0.93 <= coverage(2000, 14, n=n, sigma=sigma, strata=strata, top=top) <= 0.97


def test_without_the_sampling_it_would_not() -> None:
    assert coverage(200, 13, rows_only=True) < 0.9


def test_without_the_noise_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Strata.noise
    monkeypatch.setattr(Strata, "noise", lambda self, f: noise(self, f) * 1e-6)
    assert coverage(200, 13) < 0.9


def test_without_the_adjustment_it_would_not() -> None:
    law, truth = population(6, seed=12)
    rng = np.random.default_rng(15)
    tables = (drawn(law, 20_000, 20.0, rng) for _ in range(100))
    hits = [covered(contrast(known(t.sum(2, keepdims=True), 49.0), 1, 0), truth) for t in tables]
    assert np.mean(hits) < 0.7


@pytest.mark.parametrize(("deviations", "left_out"), [(4.6, ("z z1",)), (5.4, ())])
def test_an_arm_below_five_deviations_of_its_noise_is_left_out(
    deviations: float, left_out: tuple[str, ...]
) -> None:
    rows = deviations * 10 * np.sqrt(2)  # of two cells
    counts = np.full((2, 2, 2), 5000.0)
    counts[:, :, 1], counts[1, :, 1] = 200, rows / 2
    assert contrast(known(counts, 10.0), 1, 0).left_out == left_out


@pytest.mark.check
def test_the_bias_of_noisy_ratios_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rare outcome, few treated rows: each treated stratum is at some ten deviations."""
    chance, arms = np.array([0.06, 0.1]), np.array([0.85, 0.15])
    law = np.stack([arms * (1 - chance), arms * chance], axis=1)[:, :, None] * np.full(20, 1 / 20)

    def mean_error() -> tuple[float, float]:
        rng = np.random.default_rng(5)
        made = (contrast(known(drawn(law, 22_000, 11.0, rng), 11.0), 1, 0) for _ in range(300))
        errors = np.array([float(f.figure.estimate or np.nan) - 0.04 for f in made])
        return float(errors.mean()), float(errors.std() / np.sqrt(300))

    mean, sd = mean_error()
    assert abs(mean) < 3 * sd, (mean, sd)
    made = effect_query._mean
    monkeypatch.setattr(
        effect_query, "_mean", lambda s, arm, *a: made(s, replace(arm, noise=arm.noise * 0), *a)
    )
    biased, sd = mean_error()
    assert biased < -3 * sd, (biased, sd)


def test_more_tables_make_it_narrower() -> None:
    law, _ = population(6, seed=12)
    rng = np.random.default_rng(17)
    exact = rng.multinomial(20_000, law.ravel()).reshape(law.shape).astype(float)
    noisy = exact + np.round(rng.normal(0, 20, exact.shape))
    pair = NoisyTable(("t", "z"), exact.sum(1) + np.round(rng.normal(0, 20, (2, 6))), 20.0)
    alone, both = (contrast(known(noisy, 20.0, None, *m), 1, 0) for m in ([], [pair]))
    widths = [float(f.figure.of_rows[1]) - float(f.figure.of_rows[0]) for f in (alone, both)]
    assert widths[1] < widths[0]
