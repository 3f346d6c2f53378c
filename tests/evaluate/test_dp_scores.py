"""Published scores as figures: what a scorecard learns, and that intervals hold the truth as often
as they say.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from synthdp.data import Codes, ColumnDomain, Domain
from synthdp.evaluate.dp_scores import (
    ChargedScore,
    accuracy,
    counted_rows,
    distance,
    dp_scores_of,
    fit_scorecard,
    headline,
    with_ends,
)
from synthdp.evaluate.fidelity import fidelity
from synthdp.privacy.mechanisms.marginals import NoisyMarginals, NoisyTable
from synthdp.privacy.mechanisms.scores import ScoreBudget
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from synthdp.spec import parse_spec

SPEC = """
synthdp: 1
dataset: {id: t, source: {kind: csv, path: t.csv}, privacy_unit: {kind: row, meaning: one person}, rows: {kind: approximate, value: 5000}}
columns:
  a: {type: categorical, categories: [p, q, r]}
  b: {type: ordinal, categories: [x, y, z]}
  c: {type: boolean}
privacy: {epsilon: 1.0, delta: 1e-6}
evaluation: {disclosure: private, targets: [c]}
"""  # noqa: E501
DRAWS = 3000


def domain_of(*sizes: int) -> Domain:
    return Domain(
        tuple(
            ColumnDomain("abcd"[i], "categorical", tuple(f"v{k}" for k in range(n)), False)
            for i, n in enumerate(sizes)
        )
    )


def rows_of(count: int, seed: int, *, flip: float = 0.2) -> Codes:
    """c is mostly whether a is not its first level."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, count), rng.integers(0, 3, count)
    return np.column_stack([a, b, (a > 0) ^ (rng.random(count) < flip)]).astype(np.uint16)


# --- scorecards ---


@pytest.mark.parametrize("target", ["c", "a"])
def test_a_scorecard_learns_what_there_is_to_learn(target: str) -> None:
    domain, at = domain_of(3, 3, 2), {"c": 2, "a": 0}[target]
    card = fit_scorecard(
        rows_of(2000, 0), domain, target, max_rows=1500, rng=np.random.default_rng(0)
    )
    test = rows_of(4000, 1)
    right = float((card.answers(test) == test[:, at]).mean())
    assert right == pytest.approx({"c": 0.8, "a": 0.5}[target], abs=0.06)
    assert len({p.tobytes() for p in card.points[at]}) == 1, "it must not see the target"


def test_a_class_that_no_row_has_is_never_said() -> None:
    domain = domain_of(3, 3, 4)
    card = fit_scorecard(rows_of(500, 0), domain, "c", max_rows=500, rng=np.random.default_rng(0))
    assert set(card.answers(rows_of(2000, 1))) == {0, 1}


def test_with_nothing_to_learn_the_commonest_class_is_said() -> None:
    alone = fit_scorecard(
        np.array([[2], [2], [0]], dtype=np.uint16),
        domain_of(3),
        "a",
        max_rows=9,
        rng=np.random.default_rng(0),
    )
    assert alone.answers(np.array([[0], [1]], dtype=np.uint16)).tolist() == [2, 2]
    same = fit_scorecard(
        np.ones((9, 3), dtype=np.uint16),
        domain_of(3, 3, 2),
        "c",
        max_rows=9,
        rng=np.random.default_rng(0),
    )
    assert same.answers(rows_of(20, 0)).tolist() == [1] * 20


# --- intervals ---


def covered(intervals: list[tuple[float | None, float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for _, low, high in intervals]))


@pytest.mark.parametrize(("rows", "deviation", "sigma"), [(40_000, 60.0, 130.0), (300, 20.0, 10.0)])
def test_distances_hold_the_truth_and_would_not_with_less_noise(
    rows: int, deviation: float, sigma: float
) -> None:
    rng, truth = np.random.default_rng(0), 0.2503
    misplaced = np.floor(truth * rows) + np.rint(sigma * rng.standard_normal(DRAWS))
    seen = rows + deviation * rng.standard_normal(DRAWS)
    for claimed, least, most in ((sigma, 0.94, 0.975), (0.7 * sigma, 0.0, 0.93)):
        part = 1.0 if claimed == sigma else 0.49
        shown = covered(
            [
                distance(int(u), n, part * deviation**2, sigma=claimed)
                for u, n in zip(misplaced, seen, strict=True)
            ],
            truth,
        )
        assert least < shown < most, (claimed, shown)


@pytest.mark.parametrize(
    ("rows", "sigma", "truth"), [(8000, 100.0, 0.85), (8000, 1.0, 0.85), (150, 8.0, 0.97)]
)
def test_accuracies_hold_the_truth_and_would_not_with_less_noise(
    rows: int, sigma: float, truth: float
) -> None:
    """Both what the noise does and what the choice of test rows does."""
    rng = np.random.default_rng(0)
    right = rng.binomial(rows, truth, DRAWS)
    noisy = [np.rint(x + sigma * rng.standard_normal(DRAWS)) for x in (rows - right, right)]
    shown = covered(
        [accuracy(int(w), int(r), sigma=sigma, together=1) for w, r in zip(*noisy, strict=True)],
        truth,
    )
    assert 0.935 < shown < 0.975
    if sigma > 1:
        assert (
            covered(
                [
                    accuracy(int(w), int(r), sigma=0.6 * sigma, together=1)
                    for w, r in zip(*noisy, strict=True)
                ],
                truth,
            )
            < 0.93
        )
    value, low, high = accuracy(1000, 3000, sigma=1.0, together=1)
    wider = accuracy(1000, 3000, sigma=1.0, together=4)
    assert value == wider[0] == 0.75
    assert wider[2] - wider[1] == pytest.approx(2 * (high - low), rel=0.05)


def test_the_stewards_guide_tells_how_well_a_distance_is_known() -> None:
    value, low, high = distance(900, 39_000, 100.0**2, sigma=66.0)
    assert value is not None
    assert (value - low, high - value) == pytest.approx((0.0033, 0.0033), abs=5e-5)


def test_where_noise_hides_the_rows_nothing_is_said() -> None:
    assert accuracy(3, 5, sigma=20.0, together=1) == (None, 0.0, 1.0)
    assert accuracy(-30, 5, sigma=1.0, together=1) == (None, 0.0, 1.0)
    assert distance(4, 10.0, 400.0, sigma=3.0) == (None, 0.0, 1.0)
    assert distance(4, -10.0, 1.0, sigma=3.0) == (None, 0.0, 1.0)
    value, low, high = distance(-4, 100.0, 1.0, sigma=3.0)
    assert (value, low) == (0.0, 0.0) and 0 < high < 0.1


def test_rows_are_counted_by_one_table_of_each_column() -> None:
    tables = [
        NoisyTable(("a",), np.array([60.0, 44.0]), 2.0),
        NoisyTable(("a", "b"), np.full((2, 2), 900.0), 1.0),
    ]
    tables += [
        NoisyTable(("b",), np.array([30.0, 30.0, 36.0]), 4.0),
        NoisyTable(("a",), np.array([900.0, 0.0]), 1.0),
    ]
    weights = 1 / 8, 1 / 48
    assert counted_rows(tables) == pytest.approx(
        ((104 * weights[0] + 96 * weights[1]) / sum(weights), 1 / sum(weights))
    )


def test_headlines_are_what_gates_may_name() -> None:
    def score(name: str, value: float | None, target: str | None = None) -> ChargedScore:
        return ChargedScore.model_validate(
            {
                "name": name,
                "target": target,
                "counts": (1,),
                "sigma": 1.0,
                "value": value,
                "low": 0.0,
                "high": 1.0,
            }
        )

    both = score("tstr_accuracy", 0.5, "a"), score("tstr_accuracy", 0.9, "b")
    assert headline((score("tv1", 0.1), score("tv2", None), *both)) == {
        "tv1_dp": (0.1, 0.0, 1.0),
        "tstr_accuracy_dp": pytest.approx((0.7, 0.0, 1.0)),
    }
    assert with_ends((score("tv1", 0.1),)) == {
        "tv1_dp": 0.1,
        "tv1_dp_low": 0.0,
        "tv1_dp_high": 1.0,
    }
    assert headline((*both, score("tstr_accuracy", None, "c"))) == {}


@pytest.mark.slow
def test_intervals_of_the_whole_path_hold_the_truth(figure: Callable[..., None]) -> None:
    """Noisy tables and scores of one table, many times: distances against the exact ones, accuracy
    against that of a far larger table.

    Of 9,000 tables .953 to .955 were held by each; 1,500 leave the bounds with chance below 1e-7.
    """
    spec = parse_spec(SPEC, path="spec.yaml")
    domain, synthetic, codes, repeats = (
        Domain.from_spec(spec.columns),
        rows_of(3000, 0, flip=0.3),
        rows_of(5000, 1),
        1500,
    )
    card = fit_scorecard(synthetic, domain, "c", max_rows=3000, rng=np.random.default_rng(0))
    many = rows_of(400_000, 2)
    accurate = float((card.answers(many) == many[:, 2]).mean())
    marginals = NoisyMarginals(domain, (("a",), ("b",), ("c",)), 15.0)
    mechanism, rng, hits = (
        ScoreBudget(domain, ("c",), 20.0).choose(synthetic, [card]),
        np.random.default_rng(3),
        np.zeros(3),
    )
    for repeat in range(repeats):
        own = codes if repeat % 2 else rows_of(5000, 1000 + repeat)
        table = Table(own, pd.DataFrame(index=range(5000)), rng.random(5000) < 0.2, {})
        exact = fidelity(table.fit_codes, synthetic, domain, triples=0)
        found = dp_scores_of(
            spec,
            domain,
            mechanism.run(table, Streams.fresh()),
            marginals.run(table, Streams.fresh()),
        )
        truth = (exact.tv1, exact.tv2, accurate)
        hits += [s.low <= t <= s.high for s, t in zip(found, truth, strict=True) if t is not None]
    assert (hits / repeats > 0.92).all() and (hits / repeats < 0.985).all(), hits / repeats
    figure("intervals of published scores that hold the truth", hits.sum(), 3 * repeats)
