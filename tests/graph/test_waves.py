"""What noisy tables of earlier waves say of a later one: `synthdp.graph.waves`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.graph import pooled, waves
from synthdp.graph.waves import STEPS, StepSettings, Tables, breaks, series_of, with_earlier
from synthdp.privacy.mechanisms.marginals import NoisyTable

Floats = npt.NDArray[np.float64]
ROWS = 1e5
CELLS = 40
SIGMA = 200.0


def table(
    shares: Floats, rng: np.random.Generator, columns: tuple[str, ...] = ("a",)
) -> NoisyTable:
    return NoisyTable(columns, ROWS * shares + rng.normal(0, SIGMA, shares.shape), SIGMA)


def drifting(
    rng: np.random.Generator, count: int, drift: float, *, cells: int = CELLS
) -> tuple[list[Floats], list[Tables]]:
    """Shares of each wave, and its noisy table; steps have `drift` times the noise's variance."""
    shares, laws = np.full(cells, 1 / cells), []
    for _ in range(count):
        step = rng.normal(0, drift**0.5 * SIGMA / ROWS, cells)
        shares = shares + step - step.mean()
        laws.append(shares)
    return laws, [(table(law, rng),) for law in laws]


def error(drift: float, count: int, runs: int = 40, *, cells: int = CELLS) -> float:
    """Mean squared error in the last wave, over that of its own table."""
    rng, found = np.random.default_rng(0), []
    for _ in range(runs):
        laws, tables = drifting(rng, count, drift, cells=cells)
        known = pooled(with_earlier(tables[-1], tuple(tables[:-1])), ("a",))
        found.append(((known.counts / known.counts.sum() - laws[-1]) ** 2).mean())
    return float(np.mean(found)) / (SIGMA / ROWS) ** 2


def kalman(drift: float, count: int) -> float:
    """Variance after so many waves over the noise's, if the drift is known."""
    variance = 1.0
    for _ in range(count - 1):
        variance = 1 / (1 + 1 / (variance + drift))
    return variance


@pytest.mark.check
@pytest.mark.parametrize("count", [3, 12])
@pytest.mark.parametrize("drift", [0.0, 0.03, 0.3, 3.0])
def test_the_filter_is_nearly_as_good_as_if_drift_were_known(drift: float, count: int) -> None:
    assert kalman(drift, count) * 0.9 < error(drift, count) < 1.25 * kalman(drift, count) + 0.03


@pytest.mark.parametrize("cells", [2, 4])
def test_few_cells_trust_two_waves_less_and_never_harm(cells: int) -> None:
    assert error(0.0, 2, 200, cells=cells) < 0.9
    assert error(3.0, 2, 200, cells=cells) < 1.1


def test_a_break_takes_the_weight_from_what_was_before_it_and_is_told() -> None:
    rng = np.random.default_rng(1)
    laws, tables = drifting(rng, 6, 0.0)
    broken = laws[-1].copy()
    broken[:10], broken[10:20] = broken[:10] * 1.5, broken[10:20] * 0.5
    last = (table(broken, rng),)
    assert [*breaks((*tables[:-1], last))] == [(("a",), ())]
    assert not breaks(tuple(tables))
    known = pooled(with_earlier(last, tuple(tables[:-1])), ("a",))
    own = ((last[0].counts / ROWS - broken) ** 2).mean()
    assert ((known.counts / ROWS - broken) ** 2).mean() < 1.1 * own


def test_a_break_that_is_not_seen_would_do_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "STEPS", StepSettings(rare=0.0, drifts=(0.0, 1e-6)))
    rng = np.random.default_rng(1)
    _, tables = drifting(rng, 6, 0.0)
    other = (table(np.roll(np.linspace(0, 2, CELLS) / CELLS, 3), rng),)
    known = pooled(with_earlier(other, tuple(tables[:-1])), ("a",))
    assert ((known.counts - other[0].counts) ** 2).mean() > 9 * SIGMA**2


def test_without_a_break_few_steps_are_taken_for_one() -> None:
    rng, steps = np.random.default_rng(2), []
    for _ in range(60):
        _, tables = drifting(rng, 8, 0.1)
        steps += [c for series in series_of(tuple(tables)).values() for c in series.chances]
    assert np.mean(np.array(steps) < STEPS.rare) < 0.01 and 0.3 < np.mean(steps) < 0.7


def test_the_smoother_knows_more_of_the_first_wave_than_the_first_wave() -> None:
    rng, own, smooth = np.random.default_rng(3), [], []
    for _ in range(30):
        laws, tables = drifting(rng, 8, 0.05)
        (series,) = series_of(tuple(tables)).values()
        own.append(((series.seen[0].shares - laws[0]) ** 2).mean())
        smooth.append(((series.smoothed()[0] - laws[0]) ** 2).mean())
        assert np.allclose(series.smoothed()[-1], series.after[-1][0])
    assert np.mean(smooth) < 0.5 * np.mean(own)


def test_carried_pairs_have_the_margins_of_their_columns_and_only_known_groups() -> None:
    rng = np.random.default_rng(4)
    law = rng.dirichlet(np.ones(12)).reshape(3, 4)
    starts = {"b": (0, 2)}

    def wave(groups: dict[str, tuple[int, ...]]) -> Tables:
        pair = law if not groups else np.add.reduceat(law, groups["b"], axis=1)
        tables = [table(law.sum(1), rng), table(law.sum(0), rng, ("b",))]
        joint = table(pair, rng, ("a", "b"))
        return (*tables, NoisyTable(joint.columns, joint.counts, SIGMA, groups))

    earlier, own = (wave(starts), wave(starts)), wave(starts)
    found = with_earlier(own, earlier)
    (carried,) = [t for t in found[3:] if len(t.columns) == 2]
    assert carried.starts == starts and carried.counts.shape == (3, 2)
    known = [t for t in found if len(t.columns) == 1]
    margin = pooled([*known, *own], ("a",)).counts
    assert np.allclose(
        carried.counts.sum(1) / carried.counts.sum(), margin / margin.sum(), atol=0.01
    )
    assert not [t for t in with_earlier(wave({}), earlier)[3:] if t.starts]


def test_a_table_that_this_wave_did_not_count_goes_on_with_its_drift() -> None:
    rng = np.random.default_rng(5)
    _, tables = drifting(rng, 5, 0.3)
    other = (table(np.full(3, 1 / 3), rng, ("b",)),)
    (carried,) = with_earlier(other, tuple(tables))[1:]
    (before,) = series_of(tuple(tables)).values()
    rows = waves.rows_of(other)
    assert np.allclose(carried.counts, rows * before.after[-1][0])
    assert carried.sigma**2 > rows**2 * float(before.after[-1][1].mean())
    assert with_earlier(other, ()) is other
