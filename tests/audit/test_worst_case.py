"""Worst-case audits of real mechanisms: the true kernel passes, those broken on purpose do not."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthdp.audit.mechanisms import canaries as directions
from synthdp.audit.mechanisms.canaries import HALF_NOISE, CurveClaim, Scores
from synthdp.bundle import Audit
from synthdp.data import ColumnDomain, Domain
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.calibration import make_plan
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec import load_spec
from tests.audit.statistical.f_curve import judge
from tests.audit.statistical.worst_case import (
    BatchGame,
    GradientGame,
    MechanismGame,
    TableGame,
    audit_game,
    audit_plan,
    audit_sized,
    games_of,
    power,
    powerful,
    unaudited,
)
from tests.builders import dp_sgd, mostly_trained
from tests.chance import fails_so_often, seeded

from .broken import EveryoneSampled, FixedBatches, HalfNoise

SPECS = Path(__file__).parents[2] / "specs"
DOMAIN = Domain(tuple(ColumnDomain(name, "categorical", tuple("xyz"), False) for name in "abcd"))
TRAINING = dp_sgd(
    rate=0.3, steps=10, expected_batch=30.0, clip=0.5, noise_multiplier=1.5, checkpoint_every=5
)
TABLES = NoisyMarginals(DOMAIN, (("a",), ("b",)), 2.0)
PAIRS = AdaptiveMarginals(DOMAIN, 1.4).choose([("a", "b"), ("c",), ("b", "d")])
MECHANISMS = {"tables": TABLES, "chosen tables": PAIRS, "gradients": TRAINING}


def game_of(name: str, *, rows: int = 1, adjacency: Adjacency = "add_remove") -> MechanismGame:
    mechanism = MECHANISMS[name]
    return (
        GradientGame(mechanism, rows, adjacency)
        if isinstance(mechanism, DpSgd)
        else TableGame.of(mechanism, rows, adjacency)
    )


def audit(
    game: MechanismGame,
    *,
    runs: int,
    fresh: Callable[[], Streams] = Streams.fresh,
    adjacency: Adjacency = "add_remove",
) -> Audit:
    return audit_game(game, delta=1e-5, adjacency=adjacency, runs=runs, fresh=fresh)


@pytest.mark.check
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_scores_of_real_runs_follow_the_accountants_model(name: str, adjacency: Adjacency) -> None:
    game = game_of(name, adjacency=adjacency)
    for world in (0, 1):
        real, model = (
            game.play(world, 1000, Streams.fresh, lambda more: None),
            game.simulate(world, 20_000, noise_factor=1.0),
        )
        spread = model.std() / np.sqrt(1000)
        assert abs(real.mean() - model.mean()) < 6 * spread
        assert 0.85 < real.std() / model.std() < 1.15


@pytest.mark.check
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_half_the_noise_is_found_and_the_noise_is_not(name: str, adjacency: Adjacency) -> None:
    game = game_of(name, adjacency=adjacency)
    # replacing a row moves chosen tables less than a Gaussian of twice the distance
    runs = 4000 if name == "chosen tables" else 2000

    def passes() -> bool:
        true = audit(game, runs=runs, adjacency=adjacency)
        return not true.refuted and true.epsilon_lower <= true.epsilon

    def found() -> bool:
        half = audit(game, runs=runs, fresh=HalfNoise.fresh, adjacency=adjacency)
        return half.refuted and half.power > 0.9

    assert not fails_so_often(passes, 5)
    assert not fails_so_often(found, 6)


@pytest.mark.check
@pytest.mark.parametrize("name", ["tables", "gradients"])
def test_units_of_several_rows(name: str) -> None:
    def passes() -> bool:
        result = audit(game_of(name, rows=3), runs=2000)
        assert result.unit_rows == 3
        return not result.refuted

    assert not fails_so_often(passes, 5)
    assert not fails_so_often(
        lambda: audit(game_of(name, rows=3), runs=2000, fresh=HalfNoise.fresh).refuted, 6
    )


@pytest.mark.check
def test_batches_of_fixed_size_are_found_and_poisson_batches_are_not() -> None:
    def found() -> bool:
        broken = audit(BatchGame(TRAINING), runs=4000, fresh=FixedBatches.fresh)
        assert broken.fault == "batches of fixed size"
        return broken.refuted

    assert not fails_so_often(lambda: not audit(BatchGame(TRAINING), runs=1000).refuted, 5)
    assert not fails_so_often(found, 6)


@pytest.mark.check
@pytest.mark.parametrize("rows", [1, 3])
def test_a_secret_sample_hides_half_of_the_units_and_no_more(rows: int) -> None:
    """With next to no noise an attacker sees those that are in the sample: at rate 1/2, half."""
    settings = dataclasses.replace(
        TRAINING, rate=1.0, steps=1, noise_multiplier=0.15 * rows, sample=0.5
    )
    game, runs = GradientGame(settings, rows, "add_remove"), 1000
    claim = CurveClaim.of([game.event()], delta=1e-5, adjacency="add_remove")

    def played(fresh: Callable[[], Streams]) -> tuple[Scores, Scores]:
        out, inside = (game.play(world, runs, fresh, lambda more: None) for world in (0, 1))
        return out, inside

    out, inside = played(Streams.fresh)  # by coins of units, not of rows
    assert abs((inside > out.max()).sum() - runs / 2) < 6 * np.sqrt(runs / 4)
    assert not fails_so_often(lambda: not judge(*played(Streams.fresh), claim).alarm, 5)
    assert judge(*played(EveryoneSampled.fresh), claim).alarm


@pytest.mark.usefixtures("half_norms")
def test_twice_the_clip_is_found() -> None:
    assert not fails_so_often(lambda: audit(game_of("gradients"), runs=2000).refuted, 6)


def test_noise_before_clipping_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the optimizer is audited, not what the seam of the noise returned."""
    from synthdp.privacy.dpsgd.training import LatticeOptimizer

    add_noise = LatticeOptimizer.add_noise

    def forgetful(self: LatticeOptimizer) -> None:
        exact = [p.summed_grad.to(p.dtype) for p in self.params]
        add_noise(self)
        for p, value in zip(self.params, exact, strict=True):
            p.grad = value

    monkeypatch.setattr(LatticeOptimizer, "add_noise", forgetful)
    assert not fails_so_often(lambda: audit(game_of("gradients"), runs=2000).refuted, 6)


@pytest.mark.check
def test_the_unit_grows_until_the_fault_would_be_seen() -> None:
    faint = TableGame.of(dataclasses.replace(TABLES, sigma=100.0), 1, "add_remove")
    alone = CurveClaim.of([faint.event()], delta=1e-5, adjacency="add_remove")
    with seeded("faint"):
        result = audit(faint, runs=2000)
        assert power(faint, alone, runs=2000, repeats=50) < 0.5
    assert result.unit_rows > 1
    assert result.power > 0.9


def test_each_row_pulls_with_the_clipping_norm_along_its_direction() -> None:
    settings = dataclasses.replace(TRAINING, rate=1.0, steps=3, noise_multiplier=1e-3)
    back = directions.row_of(2, sign=-1)
    rows = [directions.row_of(0), back, back, directions.ORDINARY]
    codes, seen = np.array(rows, dtype=np.uint16)[:, None], list[Scores]()
    loss = directions.DirectionLoss(4, clip=settings.clip)
    directions.train(settings, codes, loss, Streams.fresh(), seen.append)
    assert len(seen) == 3
    # scores are in units of the charged sensitivity
    expected = np.array([1, 0, -2, 0]) * settings.clip / settings.sensitivity
    for sums in seen:
        np.testing.assert_allclose(sums, expected, atol=0.01)


def test_ordinary_rows_without_a_module_pull_nowhere() -> None:
    settings = dataclasses.replace(TRAINING, rate=1.0, steps=1, noise_multiplier=1e-4)
    module = directions.DirectionLoss(2, clip=settings.clip)
    codes, seen = np.full((50, 1), directions.ORDINARY, dtype=np.uint16), list[Scores]()
    directions.train(settings, codes, module, Streams.fresh(), seen.append)
    assert module.pull.bias.grad is not None
    assert abs(float(module.pull.bias.grad)) * settings.expected_batch < 0.01
    assert np.abs(seen).max() < 0.01


def test_likelihood_ratio_of_a_sampled_step() -> None:
    x = np.array([-1.0, 0.3, 2.0])
    q, s = TRAINING.rate, TRAINING.noise_multiplier
    one = np.log(1 - q + q * np.exp((2 * x - 1) / (2 * s**2)))
    likelihood = partial(directions.log_likelihood, settings=TRAINING)
    np.testing.assert_allclose(likelihood(x, rows=1, noise_factor=1.0), one)
    np.testing.assert_allclose(likelihood(-x, rows=1, sign=-1, noise_factor=1.0), one)
    two = np.log(
        (1 - q) ** 2
        + 2 * q * (1 - q) * np.exp((2 * x - 1) / (2 * s**2))
        + q**2 * np.exp((4 * x - 4) / (2 * s**2))
    )
    np.testing.assert_allclose(likelihood(x, rows=2, noise_factor=1.0), two)
    assert not np.allclose(likelihood(x, rows=1), one)  # by default with the noise suspected


def test_too_many_directions_are_refused() -> None:
    with pytest.raises(ValueError, match="directions"):
        directions.DirectionLoss(40_000, clip=1.0)


@pytest.mark.check
def test_audit_of_a_plan_covers_its_mechanisms_and_reports_progress() -> None:
    own = {"measure": TABLES, "graph": {"a": PAIRS.budget}, "train": TRAINING}
    plan = ReleasePlan(5.0, 1e-5, "add_remove", 1, **own)
    ticks: list[tuple[int, int]] = []

    def passes() -> bool:
        ticks.clear()
        results = audit_plan(
            plan, DOMAIN, runs=1000, progress=lambda done, total: ticks.append((done, total))
        )
        assert [(r.mechanism, r.runs) for r in results] == [
            (name, 1000) for name in (TABLES.name, PAIRS.name, TRAINING.name, TRAINING.name)
        ]
        return all(not r.refuted for r in results)

    assert not fails_so_often(passes, 10)  # four audits at once
    assert ticks[-1] == (4000, 4000)
    assert [done for done, _ in ticks] == sorted(done for done, _ in ticks)
    assert unaudited(plan, DOMAIN) == ()


def test_a_mechanism_without_a_game_is_named() -> None:
    class Strange:
        name = "strange"

    own: Any = {"measure": TABLES, "graph": {"odd": Strange()}}
    plan = ReleasePlan(5.0, 1e-5, "add_remove", 1, **own)
    assert unaudited(plan, DOMAIN) == ("strange",)


def adult_games() -> list[MechanismGame]:
    spec = load_spec(SPECS / "adult.yaml")
    domain = Domain.from_spec(spec.columns)
    plan = make_plan(spec, domain)
    return [
        game
        for spend in plan.spends
        for game in games_of(spend.mechanism, domain, rows=1, adjacency="add_remove")
    ]


@pytest.mark.slow
def test_faults_are_found_at_5000_runs_with_the_settings_of_adult(
    figure: Callable[..., None],
) -> None:
    """Real runs of the planned mechanisms, with the fault each game looks for, and as they are."""
    faults = {HALF_NOISE: HalfNoise.fresh, "batches of fixed size": FixedBatches.fresh}
    found = {fault: 0 for fault in faults}
    audits = {fault: 0 for fault in faults}
    alarms = true = below = 0
    for game in adult_games():
        sized = powerful(game, delta=1e-5, adjacency="add_remove", runs=5000)
        for _ in range(5):
            broken = audit_sized(sized, runs=5000, fresh=faults[game.fault])
            found[game.fault] += broken.refuted
            audits[game.fault] += 1
            honest = audit_sized(sized, runs=5000)
            alarms, true = alarms + honest.refuted, true + 1
            below += honest.epsilon_lower <= honest.epsilon
    # 95% are wanted. Of ten audits that find it so often fewer than seven do in one of 970 runs, of
    # five fewer than three in one of 860.
    assert audits[HALF_NOISE] >= 10 and found[HALF_NOISE] >= 0.7 * audits[HALF_NOISE]
    assert found["batches of fixed size"] >= 3
    assert alarms <= 3
    figure("audits: noise/2 detected at 5000 runs", found[HALF_NOISE], audits[HALF_NOISE])
    fixed = "batches of fixed size"
    figure(f"audits: {fixed} detected at 5000 runs", found[fixed], audits[fixed])
    figure("audits of the true kernel without an alarm", true - alarms, true)
    figure("audits whose lower bound is at most the claim", below, true)


@pytest.mark.slow
def test_power_by_simulation_is_above_95_percent_from_epsilon_a_tenth_to_ten(
    figure: Callable[..., None],
) -> None:
    spec = mostly_trained(load_spec(SPECS / "adult.yaml"))
    domain = Domain.from_spec(spec.columns)
    powers = []
    for epsilon in (0.1, 0.5, 1.0, 3.0, 10.0):
        privacy = spec.privacy.model_copy(update={"epsilon": epsilon})
        plan = make_plan(spec.model_copy(update={"privacy": privacy}), domain)
        for spend in plan.spends:
            games = games_of(spend.mechanism, domain, rows=1, adjacency="add_remove")
            if not games:  # the replay covers published scores
                continue
            how: Any = {"delta": 1e-5, "adjacency": "add_remove", "runs": 5000}
            sized, claim, _ = powerful(games[0], **how)
            # All repeats of one call share a pool of simulated runs, which moves them together: of
            # two whole runs of this test one had .88 for one of 20 mechanisms, the other 1.0.
            pools = [power(sized, claim, runs=5000, repeats=400) for _ in range(3)]
            powers.append(float(np.median(pools)))
    assert min(powers) >= 0.93  # 95% less what 400 repeats may miss
    often = "mechanisms and epsilons where noise/2 is detected with 95% at 5000 runs"
    figure(often, sum(p >= 0.95 for p in powers), len(powers))
