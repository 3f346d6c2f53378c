"""Effects of one step from one table: their figures, and intervals that hold the truth."""

from typing import Any

import numpy as np
import pytest

from benchmarks import visit_effects as simulated
from benchmarks.clinic import clinic
from synthdp.data import Domain, VisitFrame
from synthdp.inference import LeastSquares, Margin, Measured, Rows, Strata, contrast
from synthdp.inference.visit_effects import VisitStrata, overlap
from synthdp.model import plan_linked
from synthdp.spec.model import Categorical

STRATA = 5


def strata_of(counts: Any, sigma: float, *, most: int = 1, apart: bool = True) -> VisitStrata:
    """Counts `[2, 2, strata]` of a treatment, an outcome of two levels and a stratum, as strata."""
    labels = [["0", "1"], ["no", "yes"], [*map(str, range(counts.shape[2]))]]
    columns = {
        name: Categorical(type="categorical", categories=own)
        for name, own in zip("tyz", labels, strict=True)
    }
    margin = Margin(counts, np.full(counts.shape, sigma**2))
    measured = Measured(Domain.from_spec(columns).columns, {frozenset(range(3)): margin})
    numbers = np.tile(np.array([0.0, 1.0]), (3, 1))
    return VisitStrata(LeastSquares(measured), numbers, Rows(per_unit=most), apart)


def counted(t: Any, y: Any, z: Any) -> Any:
    counts = np.zeros((2, 2, STRATA))
    np.add.at(counts, (t, y, z), 1)
    return counts


def test_the_overlap_is_the_ratio_of_its_sums_with_their_noise() -> None:
    """Beside the formula, and what noise does to it in 4,000 draws."""
    rng = np.random.default_rng(4)
    counts = rng.integers(200, 2000, (2, 2, STRATA)).astype(float)

    def ratio(cells: Any) -> Any:
        n, s = cells.sum(-2), cells[..., 1, :]
        of_both = n[..., 0, :] * n[..., 1, :] / n.sum(-2)
        means = s / n
        return (of_both * (means[..., 1, :] - means[..., 0, :])).sum(-1) / of_both.sum(-1)

    figure, _, middle = overlap(strata_of(counts, 9.0), 1, 0)
    assert middle is None and figure.estimate == pytest.approx(ratio(counts), abs=1e-4)
    spread = ratio(counts + rng.normal(0, 9.0, (4000, *counts.shape))).std()
    assert figure.of_rows is not None and figure.interval is not None
    half = (float(figure.of_rows[1]) - float(figure.of_rows[0])) / 2
    assert half == pytest.approx(1.96 * spread, rel=0.06)
    assert figure.interval[0] < figure.of_rows[0] and figure.of_rows[1] < figure.interval[1]


def test_one_row_of_a_person_is_as_in_one_table() -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(300, 900, (2, 2, STRATA)).astype(float)
    one = strata_of(counts, 2.0)
    plain = Strata(one.solver, one.numbers, Rows())
    found, same = contrast(one, 1, 0).figure, contrast(plain, 1, 0).figure
    assert found.estimate == same.estimate
    # The two parts of a row's error are added as deviations, which is no less than as variances.
    assert found.interval and same.interval
    width = float(found.interval[1]) - float(found.interval[0])
    assert 1 <= width / (float(same.interval[1]) - float(same.interval[0])) < 1.3


def _covers(rng: np.random.Generator, *, copies: bool, apart: bool) -> tuple[bool, bool]:
    """Both figures, of 600 persons of whose four visits each has a coin, or the first one's."""
    z = np.repeat(rng.integers(0, STRATA, 600), 4)
    t = rng.integers(0, 2, len(z))
    y = rng.random(len(z)) < 0.3 + 0.05 * z + t * (0.1 - 0.04 * z)
    if copies:
        t, y = np.repeat(t[::4], 4), np.repeat(y[::4], 4)
    strata = strata_of(counted(t, y.astype(int), z), 0.5, most=4, apart=apart)
    truth = 0.1 - 0.04 * 2
    figures = contrast(strata, 1, 0).figure, overlap(strata, 1, 0)[0]
    ends = [f.interval or (1.0, 0.0) for f in figures]
    return tuple(float(low) <= truth <= float(high) for low, high in ends)  # type: ignore[return-value]


@pytest.mark.check
def test_visits_of_one_person_are_no_sample_of_their_own() -> None:
    """Intervals hold the truth where outcomes are apart, and where they are said not to be; rows
    that are copies, and are said to be apart, are found out.
    """
    rng = np.random.default_rng(6)

    def held(**how: bool) -> Any:
        return np.mean([_covers(rng, **how) for _ in range(300)], axis=0)

    assert (held(copies=False, apart=True) >= 0.92).all()
    assert (held(copies=True, apart=False) >= 0.92).all()
    assert (held(copies=True, apart=True) < 0.85).all()


def _runs(runs: int, persons: int, epsilon: float, scale: float = 1.0) -> list[dict[str, Any]]:
    spec = simulated.spec_with(epsilon)
    frame = VisitFrame.from_spec(spec)
    plan = plan_linked(spec, frame).map(lambda purpose, look: look.scaled(scale))
    people, found = simulated.Population.of(spec, frame, 40_000), list[dict[str, Any]]()
    for run in range(runs):
        table = simulated.sealed(spec, frame, clinic(persons, seed=run))
        tables = simulated.noisy(spec, frame, table, plan)
        found += simulated.figures(spec, frame, tables, people)
    return found


@pytest.mark.check
def test_an_effect_that_is_known_is_found() -> None:
    for told in _runs(1, 4000, 10.0, scale=1e-2):
        sd = (told["high"] - told["low"]) / 3.92
        assert abs(told["estimate"] - told["truth"]) < 5 * sd < 0.05


@pytest.mark.slow
def test_intervals_of_released_tables_hold_known_effects() -> None:
    """Of 200 releases of a clinic of 5,000 persons: 95%, give or take what chance does; and not if
    the noise were that of one row of a person.
    """
    told = _runs(200, 5000, 6.0)
    for outcome in ("visits.admitted", "visits[+1].stage"):
        own = [t for t in told if t["outcome"] == outcome]
        assert 0.91 <= np.mean([t["covers"] for t in own]) <= 0.985
        assert np.mean([t["one_row"] for t in own]) < 0.6
