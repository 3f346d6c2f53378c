"""The models of `benchmarks.inference`, and the answers that it holds intervals against."""

import numpy as np
import pytest

from benchmarks.inference import Setting, summed
from benchmarks.inference_effects import Effect
from benchmarks.inference_models import MODELS, spec_of
from benchmarks.inference_questions import Question

ROWS = 200_000


@pytest.mark.check
@pytest.mark.parametrize("name", MODELS)
def test_an_effect_is_what_setting_the_treatment_does(name: str) -> None:
    """The truth of the benchmark is a sum over strata; interventions on the model give the same.

    Seeded. Both have errors of some .005 deviations of the outcome.
    """
    model = MODELS[name]
    drawn = [model.draw(np.random.default_rng(5), ROWS, arm) for arm in (1.0, 0.0, None)]
    outcomes = [values[model.outcome] for values in drawn]
    if model.clip:
        outcomes = [np.clip(values, *model.clip) for values in outcomes]
    by_setting = np.nanmean(outcomes[0]) - np.nanmean(outcomes[1])
    truth = Effect.of(name, ROWS, [1.0], drawn[2]).truth
    scale = np.nanstd(outcomes[2])
    assert truth == pytest.approx(by_setting, abs=0.05 * scale)
    treated = drawn[2][model.treatment]
    crude = [np.nanmean(outcomes[2][treated == arm]) for arm in (1.0, 0.0)]
    if name in ("school", "latent"):  # confounded by much
        assert abs(crude[0] - crude[1] - by_setting) > 0.05 * scale


def test_questions_are_answered_by_group() -> None:
    spec = spec_of("clinic", "pairs", rows=2_000, epsilon=1.0, holdout=0.2)
    missing = float("nan")
    values = {
        "age": np.array([20.0, 30, 40, 50]),
        "sex": np.array([0.0, 0, 1, 1]),
        "region": np.zeros(4),
        "smoker": np.array([0.0, 1, 1, missing]),
        "visits": np.array([1.0, 3, 5, missing]),
    }
    share = Question.of("share(smoker == 'c1') by sex", spec, values)
    assert [t.value for t in share.answers(slice(None))] == [0.5, 1.0]
    mean = Question.of("mean(visits) where age >= 30", spec, values)
    assert mean.answers(slice(None))[0].value == 4.0
    count = Question.of("count(visits >= 3)", spec, values)
    assert count.answers(np.array([1, 1, 2, 3]))[0].value == 3.0
    nobody = Question.of("count(visits < 0)", spec, values)
    assert not nobody.answers(slice(None))[0].asked


def test_a_cell_is_judged() -> None:
    """A few releases, seeded but for their noise: nothing here depends on it."""
    rng = np.random.default_rng(1)
    spec = spec_of("latent", "pairs", rows=2_000, epsilon=3.0, holdout=0.2)
    values = MODELS["latent"].draw(rng, 5_000, None)
    assert set(values) == set(spec.columns)
    assert Setting.of(spec).plan.epsilon == 3.0
    part = {"part": "exact", "statistic": "share", "columns": 1, "refused": False}
    told = {**part, "covered": 1.0, "covered_rows": 1.0, "width": 1.5}
    assert summed([told, told | {"covered": 0.0}])["exact"] == 0.5
    with pytest.raises(AssertionError, match="tier C"):
        summed([told | {"part": "model_only"}])
