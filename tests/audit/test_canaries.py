"""One-run audits of real trainings: the true kernel passes, also among rows; broken ones do not."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from synthdp.audit.mechanisms import canaries
from synthdp.audit.mechanisms.canaries import (
    CurveClaim,
    Guesses,
    SimulatedCanaries,
    audit_canaries,
    choose_guesses,
    judge_canaries,
    right_guesses,
)
from synthdp.data import Domain
from synthdp.privacy.calibration import make_plan
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.noise import Streams
from synthdp.spec import load_spec
from tests.audit.mechanism_examples import SmallModel
from tests.builders import dp_sgd, mostly_trained
from tests.chance import fails_so_often
from tests.privacy.conftest import make_domain

from .broken import HalfNoise

SPECS = Path(__file__).parents[2] / "specs"
SETTINGS = dp_sgd(
    rate=0.05, steps=50, expected_batch=60.0, clip=0.5, noise_multiplier=1.5, checkpoint_every=5
)


def claim_of(settings: DpSgd) -> CurveClaim:
    return CurveClaim.of([settings.event(1)], delta=1e-5, adjacency="add_remove")


@pytest.mark.check
def test_the_true_kernel_passes() -> None:
    def passes() -> bool:
        true = audit_canaries(SETTINGS, canaries=8000)
        assert true.epsilon_lower < true.epsilon_provable
        return not true.refuted and 0 < true.epsilon_lower <= true.epsilon

    assert not fails_so_often(passes, 5)


@pytest.mark.check
def test_half_the_noise_is_found() -> None:
    def found() -> bool:
        half = audit_canaries(SETTINGS, canaries=8000, fresh=HalfNoise.fresh)
        return half.refuted and half.power > 0.9

    assert not fails_so_often(found, 6)


@pytest.mark.check
@pytest.mark.usefixtures("half_norms")
def test_twice_the_clip_is_found() -> None:
    assert not fails_so_often(lambda: audit_canaries(SETTINGS, canaries=8000).refuted, 6)


@pytest.mark.check
def test_canaries_among_rows_that_train_a_model() -> None:
    domain = make_domain(3, 3, 3, 3)
    rows = np.random.default_rng(0).integers(0, 3, (300, 4)).astype(np.uint16)
    module, ticks = SmallModel(domain), list[tuple[int, int]]()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}

    def found() -> bool:
        ticks.clear()
        progress = lambda done, total: ticks.append((done, total))  # noqa: E731
        own = {"rows": rows, "module": module, "progress": progress, "fresh": HalfNoise.fresh}
        return audit_canaries(SETTINGS, canaries=8000, **own).refuted

    assert not fails_so_often(found, 6)
    assert any(not p.equal(before[name]) for name, p in module.named_parameters())
    assert ticks == [(step + 1, SETTINGS.steps) for step in range(SETTINGS.steps)]


def test_rows_without_a_module_have_no_gradient() -> None:
    rows = np.ones((50, 3), dtype=np.uint16)
    coins = np.tile([True, False], 20)
    settings = dataclasses.replace(SETTINGS, rate=1.0, steps=1, noise_multiplier=1e-3)
    scores = canaries._train(settings, coins, rows, None, Streams.fresh(), lambda done, total: None)
    assert scores[coins].min() > 0 > scores[~coins].max()


def test_right_guesses_are_counted_at_both_ends() -> None:
    coins = np.array([False, True, False, True, True])
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert right_guesses(scores, coins, 0) == 0
    assert right_guesses(scores, coins, 2) == 2
    assert right_guesses(scores, coins, 3) == 3
    assert right_guesses(-scores, coins, 3) == 1


def test_either_statement_raises_the_alarm() -> None:
    """All canaries recognised: each bound refutes the claim where the other has no guess."""
    coins, claim = np.arange(1000) % 2 == 0, claim_of(SETTINGS)
    scores = coins.astype(float)
    assert judge_canaries(scores, coins, claim, Guesses(bound=1000, curve=0))[1]
    assert judge_canaries(scores, coins, claim, Guesses(bound=0, curve=1000))[1]
    assert judge_canaries(scores, coins, claim, Guesses(bound=0, curve=0)) == (0.0, False)


@pytest.mark.check
def test_false_alarms_and_bounds_of_simulated_audits(figure: Callable[..., None]) -> None:
    claim, repeats = claim_of(SETTINGS), 200
    honest, faulty = (SimulatedCanaries.of(SETTINGS, noise_factor=factor) for factor in (1.0, 0.5))
    guesses = choose_guesses(claim, 1000, honest=honest, faulty=faulty)
    verdicts = [judge_canaries(*honest.draw(1000), claim, guesses) for _ in range(repeats)]
    below = sum(lower <= claim.epsilon for lower, _ in verdicts)
    quiet = sum(not alarm for _, alarm in verdicts)
    assert min(below, quiet) >= binom.ppf(1e-7, repeats, 0.95)
    figure("canaries: simulated audits of true noise without an alarm", quiet, repeats)
    figure("canaries: simulated audits whose lower bound is at most the claim", below, repeats)


def test_too_few_canaries_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 32"):
        audit_canaries(SETTINGS, canaries=10)


@pytest.mark.slow
def test_real_one_run_audits_with_the_settings_of_adult(figure: Callable[..., None]) -> None:
    spec = mostly_trained(load_spec(SPECS / "adult.yaml"))
    plan = make_plan(spec, Domain.from_spec(spec.columns))
    train = plan.train
    assert train is not None
    honest = [audit_canaries(train, delta=plan.delta) for _ in range(5)]
    half = [audit_canaries(train, delta=plan.delta, fresh=HalfNoise.fresh) for _ in range(5)]
    assert np.mean([r.power for r in half]) >= 0.7  # about .8 of each, which is itself simulated
    below, found = sum(r.epsilon_lower <= r.epsilon for r in honest), sum(r.refuted for r in half)
    assert below == len(honest)
    assert sum(r.refuted for r in honest) <= 1
    assert found >= 2  # at that power fewer in one of 150 runs; of true noise so many in one of 150
    figure("canaries: one-run audits that detect noise/2, 5000 canaries", found, len(half))
    at_most = "canaries: one-run audits of true noise whose lower bound is at most the claim"
    figure(at_most, below, len(honest))
