"""Least squares against matrices, and covariances against simulation."""

import itertools
from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.inference import LeastSquares, measured
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Categorical, Integer

SIZES = {"a": 3, "b": 2, "c": 4}
DOMAIN = Domain.from_spec(
    {
        name: Categorical(type="categorical", categories=tuple(map(str, range(size))))
        for name, size in SIZES.items()
    }
)
SETS = [("a",), ("b",), ("b", "a"), ("b", "c"), ("a", "c"), ("c", "b", "a"), ("c",)]


def table(columns: tuple[str, ...], sigma: float, rng: Any) -> NoisyTable:
    shape = [SIZES[name] for name in columns]
    return NoisyTable(columns, rng.integers(0, 90, shape).astype(float), sigma)


def matrix(columns: tuple[str, ...], names: tuple[str, ...]) -> Any:
    """A_t: sums of the cells of `names` that make each cell of a table of `columns`."""
    cells = list(itertools.product(*(range(SIZES[n]) for n in names)))
    own = [n for n in columns if n in names]
    rows = list(itertools.product(*(range(SIZES[n]) for n in own)))

    def inside(cell: tuple[int, ...], row: tuple[int, ...]) -> bool:
        return all(cell[names.index(n)] == value for n, value in zip(own, row, strict=True))

    return np.array([[inside(cell, row) for cell in cells] for row in rows], dtype=float)


def stacked(tables: list[NoisyTable], names: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """A, y and the variances of all tables, each summed over what is not asked about."""
    parts = []
    for t in tables:
        rest = tuple(i for i, n in enumerate(t.columns) if n not in names)
        summed = t.counts.sum(axis=rest)
        noise = (t.sigma**2 + 1 / 12) * np.prod([t.counts.shape[i] for i in rest])
        parts.append((matrix(t.columns, names), summed.ravel(), np.full(summed.size, noise)))
    return tuple(np.concatenate(p) for p in zip(*parts, strict=True))


def test_no_table_helps_beyond_its_margins() -> None:
    """The joint fit of all tables, on all columns, says of two columns what their margins say."""
    rng, names = np.random.default_rng(4), ("a", "b", "c")
    tables = [table(s, float(rng.uniform(1, 9)), rng) for s in SETS if len(s) < 3]
    a, y, variances = stacked(tables, names)
    joint = np.linalg.pinv((a.T / variances) @ a)
    c = rng.normal(size=(3, 4))
    wide = np.broadcast_to(c[:, None, :], (3, 2, 4)).ravel()  # of all columns, constant along b
    solver = LeastSquares(measured(tables, DOMAIN, ("a", "c"), grouped=False))
    found = solver.functionals(c[None])
    assert found.values[0] == pytest.approx(wide @ joint @ (a.T / variances) @ y)
    assert found.covariance[0, 0] == pytest.approx(wide @ joint @ wide)
    alone = [t for t in tables if t.columns == ("a", "c")]
    without = LeastSquares(measured(alone, DOMAIN, ("a", "c"), grouped=False))
    assert found.covariance[0, 0] < without.functionals(c[None]).covariance[0, 0]


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c"), ()])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_generalised_least_squares(names: tuple[str, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets = [SETS[i] for i in rng.permutation(len(SETS))[:5]] + [("c", "b", "a")]
    tables = [table(s, float(rng.uniform(1, 9)), rng) for s in sets]
    solver = LeastSquares(measured(tables, DOMAIN, names, grouped=False))
    a, y, variances = stacked(tables, names)
    wanted = np.linalg.inv((a.T / variances) @ a)
    best = wanted @ (a.T / variances) @ y
    assert solver.counts.ravel() == pytest.approx(best, rel=1e-9)
    c = rng.normal(size=(4, a.shape[1]))
    cells = c.reshape(4, *solver.measured.shape)
    found = solver.functionals(cells)
    assert found.values == pytest.approx(c @ best) and solver.missing(cells) == []
    assert found.covariance == pytest.approx(c @ wanted @ c.T)
    values, each = solver.each(cells)
    assert values == pytest.approx(found.values)
    assert each == pytest.approx(np.diag(found.covariance))
    left = y - a @ best
    agreement = solver.agreement()
    assert agreement is not None and agreement.degrees == len(y) - a.shape[1]
    assert agreement.statistic == pytest.approx(float((left**2 / variances).sum()))


def test_agreement_has_the_law_of_chi_square() -> None:
    """The mean of 400 statistics is within 5 standard deviations of their degrees of freedom."""
    rng = np.random.default_rng(4)
    true = rng.integers(5, 60, (3, 2, 4)).astype(float)
    found = []
    for _ in range(400):
        tables = [
            NoisyTable(s, true.sum(tuple(i for i in range(3) if "abc"[i] not in s)) + noise, sd)
            for s, sd in [(("a", "b"), 9.0), (("a",), 4.0), (("b", "c"), 6.0), (("a", "b"), 20.0)]
            for noise in [rng.normal(0, sd, [SIZES[n] for n in s])]
        ]
        solver = LeastSquares(measured(tables, DOMAIN, ("a", "b"), grouped=False))
        agreement = solver.agreement()
        assert agreement is not None and 0 <= agreement.p <= 1
        found.append(agreement.statistic)
    degrees = agreement.degrees
    assert degrees == 6 + 3 + 2
    assert np.mean(found) == pytest.approx(degrees, abs=5 * np.sqrt(2 * degrees / 400))


@pytest.mark.parametrize(
    "sets", [[("a", "b"), ("b", "c")], [("a", "b"), ("b", "c"), ("a", "c")], [("a",), ("b", "c")]]
)
def test_what_is_missing_is_what_no_table_spans(sets: list[tuple[str, ...]]) -> None:
    rng = np.random.default_rng(1)
    names = ("a", "b", "c")
    tables = [table(s, 2.0, rng) for s in sets]
    solver = LeastSquares(measured(tables, DOMAIN, names, grouped=False))
    a, y, variances = stacked(tables, names)
    root = a / np.sqrt(variances)[:, None]
    for trial in range(40):
        c = rng.normal(size=a.shape[1]) if trial % 2 else a.T @ rng.normal(size=len(y))
        spanned = np.allclose(np.linalg.pinv(a) @ a @ c, c, atol=1e-7)
        cells = c.reshape(1, *solver.measured.shape)
        assert (solver.missing(cells) == []) is spanned
        if spanned:
            found = solver.functionals(cells)
            inverse = np.linalg.pinv(root.T @ root)
            assert found.values[0] == pytest.approx(c @ inverse @ (a.T / variances) @ y)
            assert found.covariance[0, 0] == pytest.approx(c @ inverse @ c)


@pytest.mark.check
def test_tables_on_groups_keep_a_true_covariance() -> None:
    """Sums over groups of unequal sizes have unequal noise; the covariance is simulated."""
    ages = Domain.from_spec(
        {
            "age": Integer(type="integer", lower=0, upper=9, bins=10),
            "sex": Categorical(type="categorical", categories=("f", "m")),
        }
    )
    rng = np.random.default_rng(2)
    true = rng.integers(5, 60, (10, 2)).astype(float)
    starts = {"age": (0, 1, 2, 8)}
    grouped = np.add.reduceat(true, starts["age"])
    functional = np.zeros((1, 4, 2))
    functional[0, 2:, 1] = 1.0
    seen, variance = [], 0.0
    for _ in range(4000):
        tables = [
            NoisyTable(("age",), true.sum(1) + rng.normal(0, 3, 10), 3.0),
            NoisyTable(("age", "sex"), grouped + rng.normal(0, 5, (4, 2)), 5.0, starts),
            NoisyTable(("sex",), true.sum(0) + rng.normal(0, 2, 2), 2.0),
        ]
        solver = LeastSquares(measured(tables, ages, ("age", "sex"), grouped=True))
        found = solver.functionals(functional)
        seen.append(found.values[0])
        variance = found.covariance[0, 0]
    wanted = float((functional * grouped).sum())
    assert np.mean(seen) == pytest.approx(wanted, abs=5 * np.sqrt(variance / 4000))
    assert np.var(seen) == pytest.approx(variance, rel=0.12)
    assert variance < 2 * (25 + 1 / 12)  # less than by the pair's table alone
    assert solver.agreement() is None
