"""Scores of visits: their intervals hold, whether or not the synthetic rows follow the noise."""

import numpy as np
import pytest

from synthdp.data import PERSONS, VisitFrame
from synthdp.evaluate import Compared, noise_of, pooled_rows, visit_scores
from tests.release.linked.conftest import SPEC

ROWS, CELLS = 2000, 12


@pytest.fixture(scope="module")
def frame() -> VisitFrame:
    import yaml

    from synthdp.spec import linked_in

    spec = linked_in(yaml.safe_dump(SPEC), path="ward.yaml")
    assert spec is not None
    return VisitFrame.from_spec(spec)


def tables(
    rng: np.random.Generator, sigma: float, *, follows: bool, shift: float
) -> tuple[list[Compared], float]:
    """Three tables of persons with noise, and synthetic ones that are `shift` off or follow the
    noise; and the true mean distance.
    """
    made, true = [], []
    for k in range(3):
        p = rng.dirichlet(np.ones(CELLS))
        counts = rng.multinomial(ROWS, p).astype(float)
        noisy = counts + np.rint(rng.normal(0, sigma, CELLS))
        drawn = np.maximum(noisy, 0) if follows else counts.copy()
        move = min(shift * ROWS, drawn[0])
        drawn[0], drawn[1] = drawn[0] - move, drawn[1] + move
        labels = (tuple(map(str, range(CELLS))),)
        made.append(Compared(PERSONS, (f"patients.c{k}",), labels, noisy, drawn, sigma))
        true.append(np.abs(counts / ROWS - drawn / drawn.sum()).sum() / 2)
    return made, float(np.mean(true))


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("sigma", [2.0, 30.0, 300.0])
def test_intervals_hold(frame: VisitFrame, sigma: float, follows: bool) -> None:
    rng, held = np.random.default_rng(3), 0
    for _ in range(200):
        made, true = tables(rng, sigma, follows=follows, shift=0.05)
        (score,) = visit_scores(frame, made)
        held += score.low <= true <= score.high
    assert held >= 190  # of 200; the bound is 190 on average at worst


def test_rows_that_follow_the_noise_are_not_called_near(frame: VisitFrame) -> None:
    made, true = tables(np.random.default_rng(4), 20.0, follows=True, shift=0.0)
    (score,) = visit_scores(frame, made)
    assert score.value is not None and score.value < 0.5 * true < true <= score.high
    alone, more = noise_of([(CELLS, 20.0)] * 3, ROWS)
    assert score.high >= alone + more - 0.02


def test_the_end_of_the_interval_is_what_noise_makes_and_little_more(frame: VisitFrame) -> None:
    """Many cells: a bound that left out a part of the noise, or had it twice, would show."""
    rng, rows, cells, sigma = np.random.default_rng(6), 200_000, 400, 30.0
    made, true = [], []
    for k in range(10):
        counts = rng.multinomial(rows, rng.dirichlet(np.full(cells, 50.0))).astype(float)
        noisy = counts + np.rint(rng.normal(0, sigma, cells))
        labels = (tuple(map(str, range(cells))),)
        made.append(Compared(PERSONS, (f"patients.c{k}",), labels, noisy, noisy, sigma))
        true.append(np.abs(counts / rows - noisy / noisy.sum()).sum() / 2)
    (score,) = visit_scores(frame, made)
    assert np.mean(true) <= score.high <= 1.15 * np.mean(true)
    assert score.noise == pytest.approx(np.mean(true), rel=0.05)


def test_rows_that_noise_hides_have_no_value(frame: VisitFrame) -> None:
    made, _ = tables(np.random.default_rng(5), 3000.0, follows=False, shift=0.0)
    (score,) = visit_scores(frame, made)
    assert score.value is None and (score.low, score.high) == (0.0, 1.0)


def test_numbers_of_rows_are_pooled_by_precision() -> None:
    cells = (("a", "b"),)
    sharp = Compared(PERSONS, ("x",), cells, np.array([40.0, 60.0]), np.zeros(2), 1.0)
    loose = Compared(PERSONS, ("y",), cells, np.array([0.0, 400.0]), np.zeros(2), 10.0)
    rows, variance = pooled_rows([sharp, loose])
    assert rows == pytest.approx((100 + 400 / 100) / 1.01)
    assert variance == pytest.approx(2 / 1.01)
