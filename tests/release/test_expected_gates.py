"""What a plan says of gates on published scores: the noise that it warns of is the scores' own."""

from typing import Any

import numpy as np
import pytest

from synthdp.data import Domain
from synthdp.evaluate.dp_scores import accuracy, distance
from synthdp.model import plan_for
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.plan import ReleasePlan
from synthdp.release import gate_warnings, score_noise
from synthdp.spec.model import ReleaseSpec
from tests.builders import build_spec

pytestmark = pytest.mark.check

COLUMNS: dict[str, Any] = {
    "old": {"type": "boolean"},
    "sick": {"type": "boolean"},
    "town": {"type": "categorical", "categories": ["a", "b", "c"]},
}


def planned(gate: dict[str, Any], rows: int = 20_000) -> tuple[ReleaseSpec, ReleasePlan]:
    judged = {"disclosure": "private", "targets": ["sick"], "holdout": 0.2}
    spec = build_spec(COLUMNS, rows=rows, evaluation=judged, gates=[gate], graph={"mode": "none"})
    return spec, plan_for(spec, Domain.from_spec(spec.columns))


def told(gate: dict[str, Any], tv1: float = 0.001, rows: int = 20_000) -> list[str]:
    return list(gate_warnings(*planned(gate, rows), tv1))


@pytest.mark.parametrize(
    ("metric", "bound"),
    [("tv1_dp", "at_most"), ("tv2_dp", "at_most"), ("tstr_accuracy_dp", "at_least")],
)
def test_the_noise_is_that_of_the_released_scores(metric: str, bound: str) -> None:
    """Of 4,000 draws a deviation is known to 1.1%; 6% off is 5.4 of its deviations: 1 in 10^7."""
    spec, plan = planned({"metric": metric, bound: 0.7})
    expected = score_noise(spec, plan, spec.gates[0])
    assert plan.scores is not None
    fitted, sigma = expected_fit_rows(spec), plan.scores.sigma
    held_out, rng = spec.dataset.rows.value - fitted, np.random.default_rng(1)
    drawn = []
    for first, second in np.rint(rng.normal(0, sigma, (4000, 2))).astype(int):
        if bound == "at_most":
            score = distance(round(0.7 * fitted) + int(first), fitted, 0.0, sigma=sigma)
        else:
            wrong, right = round(0.3 * held_out) + int(first), round(0.7 * held_out) + int(second)
            score = accuracy(wrong, right, sigma=sigma, together=1)
        assert score[0] is not None
        drawn.append(score[0])
    assert np.std(drawn) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(
    ("metric", "bound", "best", "towards"),
    [
        ("tv1_dp", "at_most", 0.001, 1),
        ("tv2_dp", "at_most", 0.0, 1),
        ("tstr_accuracy_dp", "at_least", 1.0, -1),
    ],
)
def test_a_gate_is_warned_of_where_noise_takes_half_of_its_room(
    metric: str, bound: str, best: float, towards: int
) -> None:
    def gate(room: float) -> dict[str, Any]:
        return {"metric": metric, bound: best + towards * room}

    spec, plan = planned(gate(0.01))
    noise = score_noise(spec, plan, spec.gates[0])
    assert told(gate(4.5 * noise)) == []
    (warning,) = told(gate(3.5 * noise))
    assert f"the gate on {metric}" in warning and "may fall by chance" in warning
    assert float(warning.split("by about ")[1].split()[0]) == pytest.approx(2 * noise, rel=0.1)


def test_a_gate_that_fails_for_certain_is_told_once() -> None:
    (warning,) = told({"metric": "tv1_dp", "at_most": 0.01}, tv1=0.2)
    assert "is likely to withhold" in warning


def test_gates_on_scores_without_noise_are_left_alone() -> None:
    assert told({"metric": "tv1_noisy", "at_most": 1e-6}) == []
