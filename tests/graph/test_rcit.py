"""RCIT on noisy moments: its level where columns are independent, its power, and what it says where
the noise hides everything.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.numeric import fork as fork_of_five
from benchmarks.numeric import plan_of_test, released_moments
from synthdp.data import Basis, ColumnDomain, Domain
from synthdp.graph import MomentTests, residuals
from synthdp.graph.chi_square import Answer
from synthdp.privacy.mechanisms.moments import MomentMatrix, NoisyMoments

Floats = npt.NDArray[np.float64]
Table = Callable[[int, np.random.Generator], Floats]

NAMES = ("x", "y", "z")


def moments(
    values: Floats,
    *,
    sigma: float,
    rng: np.random.Generator,
    degree: int = 1,
    names: tuple[str, ...] = NAMES,
) -> NoisyMoments:
    """The moments of scaled columns with simulated noise; sigma in rows."""
    domain = Domain(
        tuple(
            ColumnDomain(n, "number", ("a",), False, edges=(-1.0,), stop=1.0, lower=-1.0, upper=1.0)
            for n in names
        )
    )
    basis = Basis(domain, names, degree=degree, interaction=degree)
    functions = basis._of({n: values[:, i] for i, n in enumerate(names)})
    noise = np.triu(rng.normal(0, sigma, (functions.shape[1],) * 2))
    return NoisyMoments(basis, functions.T @ functions + noise + np.triu(noise, 1).T, sigma)


def fork(strength: float, rows: int, rng: np.random.Generator) -> Floats:
    """x <- z -> y, and x -> y of the given strength; all within [-1, 1]."""
    z = rng.uniform(-1, 1, rows)
    x = 0.6 * z + rng.uniform(-0.4, 0.4, rows)
    y = (0.6 * z + rng.uniform(-0.4, 0.4, rows) + strength * x) / (1 + strength)
    return np.column_stack([x, y, z])


def parabola(strength: float, rows: int, rng: np.random.Generator) -> Floats:
    """y depends on x through its square alone."""
    x = rng.uniform(-1, 1, rows)
    return np.column_stack(
        [
            x,
            strength * (x**2 - 0.5) + (1 - strength) * rng.uniform(-1, 1, rows),
            rng.uniform(-1, 1, rows),
        ]
    )


def asked(
    values: Floats,
    given: tuple[str, ...],
    *,
    sigma: float,
    rng: np.random.Generator,
    degree: int = 1,
    level: float = 0.05,
) -> Answer:
    return MomentTests(moments(values, sigma=sigma, rng=rng, degree=degree)).answer(
        [("x", "y", given)], level=level, margin=0.1
    )[0]


@pytest.mark.check
@pytest.mark.parametrize("sigma", [0.0, 30.0, 200.0])
@pytest.mark.parametrize(("degree", "given"), [(1, ()), (1, ("z",)), (2, ("z",)), (3, ())])
def test_independent_columns_are_called_dependent_at_no_more_than_the_level(
    sigma: float, degree: int, given: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(round(sigma) + 10 * degree)
    runs = 300
    false = 0
    for _ in range(runs):
        values = fork(0.0, 1000, rng)
        if not given:
            values[:, 0] = rng.uniform(-1, 1, 1000)
        false += asked(values, given, sigma=sigma, rng=rng, degree=degree).verdict == "dependent"
    assert (
        false / runs <= 0.07 + 2 * math.sqrt(0.05 * 0.95 / runs) - 0.02
    )  # 0.05 plus three deviations


@pytest.mark.check
def test_the_level_is_used_where_nothing_is_tolerated() -> None:
    """Marginal tests have no tolerance, and a test that never rejects would have no power
    either.
    """
    rng = np.random.default_rng(3)
    rejected = [
        asked(rng.uniform(-1, 1, (500, 3)), (), sigma=s, rng=rng).p_value <= 0.05
        for s in (0.0, 20.0)
        for _ in range(600)
    ]
    assert 0.03 <= np.mean(rejected) <= 0.07


@pytest.mark.parametrize(
    ("make", "strength", "degree", "given"),
    [
        (fork, 0.5, 1, ("z",)),
        (fork, 0.0, 1, ()),
        (parabola, 0.6, 2, ("z",)),
        (parabola, 0.6, 2, ()),
    ],
)
def test_dependence_is_found_at_moderate_noise(
    make: Callable[..., Floats], strength: float, degree: int, given: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(4)
    found = [
        asked(make(strength, 4000, rng), given, sigma=15.0, rng=rng, degree=degree).verdict
        for _ in range(50)
    ]
    assert found.count("dependent") >= 45


def test_a_parabola_is_invisible_to_a_linear_basis() -> None:
    rng = np.random.default_rng(5)
    assert all(
        asked(parabola(0.6, 4000, rng), (), sigma=15.0, rng=rng).verdict != "dependent"
        for _ in range(5)
    )


def test_independence_is_claimed_only_with_evidence_for_it() -> None:
    rng = np.random.default_rng(6)
    values = fork(0.0, 20_000, rng)
    assert asked(values, ("z",), sigma=5.0, rng=rng).verdict == "independent"
    too_little = asked(values, ("z",), sigma=4000.0, rng=rng)
    assert too_little.verdict == "undecided"
    assert too_little.detectable > 1  # larger than any correlation: nothing could have been found


def test_the_upper_bound_covers_the_true_correlation() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        x, noise = rng.uniform(-1, 1, (2, 1000))
        values = np.column_stack([x, 0.3 * x + 0.7 * noise, rng.uniform(-1, 1, 1000)])
        covered += asked(values, (), sigma=20.0, rng=rng).effect_upper >= 0.3 / math.hypot(0.3, 0.7)
    assert covered >= 182  # 95% of 200, less three deviations


def test_what_is_called_detectable_is_found_in_four_of_five_runs() -> None:
    rng = np.random.default_rng(8)
    sigma, rows = 20.0, 2000
    detectable = np.median(
        [
            asked(rng.uniform(-1, 1, (rows, 3)), (), sigma=sigma, rng=rng).detectable
            for _ in range(20)
        ]
    )
    slope = detectable / math.sqrt(1 - detectable**2)
    found = 0
    for _ in range(300):
        x, noise = rng.uniform(-0.5, 0.5, (2, rows))
        values = 2 * np.column_stack(
            [x, (slope * x + noise) / (1 + slope), rng.uniform(-0.5, 0.5, rows)]
        )
        found += asked(values, (), sigma=sigma, rng=rng).verdict == "dependent"
    assert 0.65 <= found / 300 <= 0.92


def test_answers_do_not_depend_on_the_batch() -> None:
    rng = np.random.default_rng(9)
    tests = MomentTests(moments(fork(0.4, 2000, rng), sigma=10.0, rng=rng, degree=2))
    queries = [("x", "y", ()), ("x", "y", ("z",)), ("z", "y", ("x",)), ("z", "x", ())]
    together = tests.answer(queries, level=0.05, margin=0.1)
    assert together == [tests.answer([query], level=0.05, margin=0.1)[0] for query in queries]


def test_the_noise_covariance_is_that_of_simulated_noise() -> None:
    """The formula of the module against 3,000 draws, in the regime where first order holds."""
    rng = np.random.default_rng(10)
    values = fork(0.3, 5000, rng)
    exact = moments(values, sigma=0.0, rng=rng)
    at = {"x": np.array([[1]]), "y": np.array([[2]]), "given": np.array([[0, 3]])}
    plain = residuals(exact.sums, 0.0, **at)
    predicted = residuals(exact.sums, 20.0, **at).variance[0, 0, 0] - plain.variance[0, 0, 0]
    drawn = []
    for _ in range(3000):
        noise = np.triu(rng.normal(0, 20.0, exact.sums.shape))
        drawn.append(
            residuals(exact.sums + noise + np.triu(noise, 1).T, 20.0, **at).covariance[0, 0]
        )
    assert np.var(drawn) == pytest.approx(predicted, rel=0.1)


def test_a_matrix_with_a_declared_norm_serves_every_query() -> None:
    rng = np.random.default_rng(11)
    found = moments(rng.uniform(-1, 1, (300, 3)), sigma=1.0, rng=rng, degree=3)
    assert MomentMatrix(found.basis, found.basis.norm(deviations=2.0), 1.0).sensitivity > 1
    answers = MomentTests(found).answer(
        [("x", "y", ("z",)), ("y", "z", ("x",))], level=0.05, margin=0.1
    )
    assert all(
        np.isfinite([a.p_value, a.statistic, a.effect, a.effect_upper, a.detectable]).all()
        for a in answers
    )


@pytest.mark.slow
def test_type_one_error_on_the_published_simulation(figure: Callable[..., None]) -> None:
    """The cells of the PCD paper's simulation with the most data, by the road of a release: 100
    runs each.
    """
    plans = {
        (rows, epsilon): plan_of_test(rows, epsilon)
        for rows, epsilon in ((2000, 2.0), (8000, 1.0), (8000, 8.0))
    }
    given = ("z1", "z2", "z3", "z4", "z5")
    kept, found = 0, 0
    for (rows, epsilon), plan in plans.items():
        rng = np.random.default_rng([rows, round(epsilon)])
        for _ in range(100):
            tests = MomentTests(released_moments(fork_of_five(rows, rng), plan))
            one, two = tests.answer(
                [("x", "y", given), ("x", "y", given[:-1])], level=0.05, margin=0.1
            )
            kept, found = kept + (one.verdict != "dependent"), found + (two.verdict == "dependent")
    assert kept >= 279  # 93 of 100
    assert found >= 285
    figure("independent pairs kept in the published simulation", kept, 300)
    figure("dependent pairs found in the published simulation", found, 300)
