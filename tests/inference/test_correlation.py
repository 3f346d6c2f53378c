"""Correlations of noisy tables: those of the rows without noise, covered where there is some."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.inference import Figure, answer_tables
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec import parse_query
from synthdp.spec.model import ReleaseSpec
from tests.inference.conftest import counted, drawn_levels, spec_with

TEXT = "correlation(age, visits)"


def _asked(spec: ReleaseSpec, domain: Domain, text: str, *tables: NoisyTable) -> Any:
    return answer_tables(parse_query(text, spec.columns), spec, domain, tables)


def _single(domain: Domain) -> Domain:
    """The same with an age of eight single numbers."""
    age = replace(domain["age"], edges=tuple(range(8)), stop=8, upper=7)
    return Domain((age, *domain.columns[1:]))


def test_without_noise_it_is_that_of_the_rows(spec: ReleaseSpec, domain: Domain) -> None:
    codes, rng = drawn_levels(domain, 2000, 3), np.random.default_rng(1)
    fine = _single(domain)
    table = counted(fine, codes, ("age", "sex", "visits"), sigma=0, rng=rng)
    age, sex, visits = codes[:, 0], codes[:, 1], codes[:, 3]
    for text, kept in (
        (TEXT, visits < 5),
        (f"{TEXT} where sex == 'male'", (visits < 5) & (sex == 1)),
    ):
        (figure,) = _asked(spec, fine, text, table).figures
        r = np.corrcoef(age[kept], visits[kept])[0, 1]
        assert figure.estimate == pytest.approx(r, abs=1e-5) and figure.bounds is None
        assert figure.rows == kept.sum() and figure.at_middles is None
        assert figure.of_rows == pytest.approx((r, r), abs=5e-3)
        x, y = ((v[kept] - v[kept].mean()) / v[kept].std() for v in (age, visits))
        half = 1.96 * np.std(x * y - r * (x**2 + y**2) / 2) / np.sqrt(kept.sum())
        assert figure.interval == pytest.approx((r - half, r + half), abs=0.1 * half)
    other = _asked(spec, fine, "correlation(visits, age)", table).figures[0]
    assert other.estimate == pytest.approx(_asked(spec, fine, TEXT, table).estimate)


def test_numbers_inside_levels_are_allowed_for(spec: ReleaseSpec, domain: Domain) -> None:
    """Whatever numbers the rows have inside their level, the correlation is in the bounds."""
    codes, rng = drawn_levels(domain, 3000, 4), np.random.default_rng(2)
    table = counted(domain, codes, ("age", "visits"), sigma=0, rng=rng)
    answer = _asked(spec, domain, TEXT, table)
    (figure,) = answer.figures
    assert any("numbers of age may lie anywhere" in said for said in answer.about)
    known = codes[:, 3] < 5
    level, visits = codes[known, 0].astype(float), codes[known, 3].astype(float)
    low, high = figure.bounds
    towards = np.where(visits > visits.mean(), 9, 0)
    found = [
        np.corrcoef(10 * level + inside, visits)[0, 1]
        for inside in (towards, 9 - towards, rng.integers(0, 10, len(level)), 9 * (level % 2))
    ]
    assert low <= min(found) < max(found) <= high
    assert max(found) - min(found) > 0.3 * (high - low)  # the bounds are not far off
    assert figure.interval[0] <= low and high <= figure.interval[1]
    assert low < figure.at_middles[0] < figure.estimate < figure.at_middles[1] < high


def test_both_columns_are_allowed_for(spec: ReleaseSpec, domain: Domain) -> None:
    """Numbers of two columns may move inside their levels, and together."""
    codes, rng = drawn_levels(domain, 3000, 4), np.random.default_rng(2)
    table = counted(domain, codes, ("age", "weight kg"), sigma=0, rng=rng)
    low, high = _asked(spec, domain, "correlation(age, `weight kg`)", table).figures[0].bounds
    first, second = (codes[:, domain.index(name)].astype(float) for name in ("age", "weight kg"))
    weights = np.where(second > 0, 30 + 20 * (second - 1), 30)  # the first level is one number
    found = []
    for sign in (1, -1):
        age, weight = 10 * first, weights.copy()
        for _ in range(20):  # each to the end of its level that the other asks for
            age = 10 * first + 9 * (sign * (weight - weight.mean()) > 0)
            weight = weights + 20 * (second > 0) * (sign * (age - age.mean()) > 0)
        found.append(np.corrcoef(age, weight)[0, 1])
    assert low <= found[1] < found[0] <= high
    assert found[0] - found[1] > 0.5 * (high - low)


def test_rows_of_one_unit_widen_it_by_sampling_alone(domain: Domain) -> None:
    codes, rng = drawn_levels(domain, 2000, 3), np.random.default_rng(1)
    fine = _single(domain)
    table = counted(fine, codes, ("age", "visits"), sigma=0, rng=rng)
    unit = {"kind": "id", "column": "person", "max_rows": 4, "meaning": "one person"}
    one, four = (
        _asked(own, fine, TEXT, table).figures[0].interval
        for own in (spec_with(), spec_with(privacy_unit=unit))
    )
    assert four[1] - four[0] == pytest.approx(2 * (one[1] - one[0]), rel=0.02)


def test_noise_moves_it_neither_way(spec: ReleaseSpec, domain: Domain) -> None:
    """What noise in the means adds to second moments is taken off. Each noise is tried with its
    opposite, in whose mean what is linear is gone.
    """
    near = np.exp(-np.abs(np.arange(8)[:, None] / 7 - np.arange(5) / 4) / 0.4)
    exact = np.column_stack([np.round(2000 * near / near.sum()), np.zeros(8)])
    rng, sigma = np.random.default_rng(0), 25.0

    def estimate(noise: Any, sigma: float) -> float:
        table = NoisyTable(("age", "visits"), exact + noise, sigma)
        return float(_asked(spec, _single(domain), TEXT, table).figures[0].estimate)

    pairs = [
        estimate(noise, sigma) + estimate(-noise, sigma)
        for noise in rng.normal(0, sigma, (200, *exact.shape))
    ]
    assert np.mean(pairs) / 2 == pytest.approx(estimate(0, 1e-3), abs=0.004)


def test_it_is_refused_where_nothing_tells_it(spec: ReleaseSpec, domain: Domain) -> None:
    codes, rng = drawn_levels(domain, 1000, 4), np.random.default_rng(2)
    apart = [counted(domain, codes, (name,), sigma=1, rng=rng) for name in ("age", "visits")]
    answer = _asked(spec, domain, TEXT, *apart)
    assert answer.tier == "C" and answer.unmeasured == (("age", "visits"),)
    noisy = counted(domain, codes, ("age", "visits"), sigma=60, rng=rng)
    assert "too few rows" in str(_asked(spec, domain, TEXT, noisy))
    whole = counted(domain, codes, ("age", "visits"), sigma=1, rng=rng)
    assert "cuts levels" in str(_asked(spec, domain, f"{TEXT} where age > 33", whole))
    alike = NoisyTable(("age", "visits"), np.eye(8, 6) * 0 + [0, 400, 0, 0, 0, 0], 40.0)
    assert "the noise hides how visits varies" in str(_asked(spec, domain, TEXT, alike))


LAWS = {"close": (0.9, 1.0), "loose": (0.3, 1.0), "skewed": (0.6, 0.15)}


@pytest.mark.slow
@pytest.mark.parametrize("law", sorted(LAWS))
@pytest.mark.parametrize(("rows", "sigma"), [(2000, 0.5), (2000, 5.0), (20000, 15.0)])
def test_coverage_of_the_population(law: str, rows: int, sigma: float, figure: Any) -> None:
    spec = spec_with()
    domain = _single(Domain.from_spec(spec.columns))
    link, thin = LAWS[law]
    age = np.exp(-np.arange(8) * (1 - thin))
    near = np.exp(-np.abs(np.arange(8)[:, None] / 7 - np.arange(5) / 4) / (1.02 - link) / 2)
    p = age[:, None] * near / near.sum(axis=1, keepdims=True)
    p = np.column_stack([0.9 * p / p.sum(), 0.1 * age / age.sum()])
    x, y = np.arange(8)[:, None], np.arange(5)
    q = p[:, :5] / p[:, :5].sum()
    mx, my = (q * x).sum(), (q * y).sum()
    truth = (q * (x - mx) * (y - my)).sum() / np.sqrt(
        (q * (x - mx) ** 2).sum() * (q * (y - my) ** 2).sum()
    )
    rng, found = np.random.default_rng([rows, sorted(LAWS).index(law)]), list[Figure]()
    for _ in range(600):
        counts = rng.multinomial(rows, p.ravel()).reshape(p.shape)
        noisy = counts + np.round(rng.normal(0, sigma, counts.shape))
        found.append(
            _asked(spec, domain, TEXT, NoisyTable(("age", "visits"), noisy, sigma)).figures[0]
        )
    told = [f for f in found if f.interval is not None]
    covered = np.mean([f.interval[0] <= truth <= f.interval[1] for f in told])
    figure(f"coverage of a correlation: {law}, {rows} rows, sigma {sigma:g}", covered, 0.95)
    assert len(told) > 150 and 0.91 <= covered <= 0.985
