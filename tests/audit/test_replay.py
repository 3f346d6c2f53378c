"""Replay of what is right: no alarm on any mechanism, and a replay that would have seen one."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch

from synthdp.audit import (
    BATCH,
    Call,
    CoinCall,
    NoiseCall,
    Pair,
    judge,
    neighbours,
    no_ticks,
    replay,
    replay_plan,
    runnable,
)
from synthdp.data import ColumnDomain, Domain, level_features
from synthdp.model import CausalVae, TargetRegression
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import target_regression
from synthdp.privacy import ChosenOrientations, DiscreteGaussianDpEvent, OrientationBudget, Prepaid
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training
from synthdp.privacy.events.gaussian import unit_sampled_gaussian
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, ChosenMarginals, NoisyMarginals
from synthdp.privacy.plan import ReleasePlan
from tests.audit.mechanism_examples import EXAMPLES, mechanism_classes, unregistered
from tests.builders import dp_sgd
from tests.privacy.conftest import numeric_domain

PAIRS_REQUIRED, CONFIGURATIONS_REQUIRED = 1000, 50
# of the pairs that each configuration is replayed on; its neighbours in the list take the others
STRIDE = 4
SETTINGS = dp_sgd(expected_batch=BATCH)

Configuration = tuple[Any, Domain, int, Adjacency]  # with the rows of a unit


def narrow() -> Domain:
    return Domain(
        (
            ColumnDomain("x", "categorical", ("p", "q"), False),
            ColumnDomain("y", "ordinal", ("1", "2", "3", "missing"), True),
        )
    )


def numbers() -> Domain:
    """Numbers, for mechanisms of pairs whose noise grows with their number: more than one."""
    return numeric_domain("u", "v", "w", missing=True)


def vae(domain: Domain) -> CausalVae:
    """The product's own model, each column with the one before it as its parent."""
    parents = tuple((i - 1,) if i else () for i in range(len(domain)))
    features = [torch.from_numpy(level_features(column)).float() for column in domain.columns]
    architecture = Architecture(domain.sizes, parents, (tuple(range(len(domain))), (0,)), 4)
    return CausalVae(architecture, generator=torch.Generator().manual_seed(0), features=features)


def regression(domain: Domain) -> TargetRegression:
    """The targets' stage of a release, for the last column."""
    last = len(domain) - 1
    parents = ((),) * last + (tuple(range(last)),)
    architecture = Architecture(domain.sizes, parents, ((0,),), max(domain.sizes))
    margins = [np.full(size, 1 / size) for size in domain.sizes]
    module = target_regression(domain, architecture, [last], margins)
    with torch.no_grad():
        module.linear.weight.normal_(generator=torch.Generator().manual_seed(0))
    return module


def accounted(mechanism: Any, rows: int, adjacency: Adjacency) -> bool:
    """Units of several rows, or in a secret sample, have no accounting in DP-SGD if replaced."""
    if adjacency == "add_remove" or not isinstance(mechanism, Training):
        return True
    return rows == 1 and not mechanism.settings.sampled


def configurations(domain: Domain) -> Iterator[Configuration]:
    for own in (domain, narrow(), numbers()):
        examples = [m for kind in EXAMPLES.values() for m in kind(own)]
        # Clips that some rows meet and others do not: where all are clipped alike, what one says of
        # another's length is not seen.
        trained = ((vae(own), SETTINGS), (regression(own), replace(SETTINGS, clip=2.5)))
        trainings = [Training(s, module, no_ticks, None) for module, s in trained]
        adjacencies: tuple[Adjacency, ...] = ("add_remove", "replace_one")
        for mechanism in [*examples, *trainings]:
            for adjacency, rows in product(adjacencies, (1, 3)):
                if accounted(mechanism, rows, adjacency):
                    yield mechanism, own, rows, adjacency


def pairs_of(configuration: Configuration, **more: int) -> Iterator[Pair]:
    _, domain, rows, adjacency = configuration
    return neighbours(domain, batch=round(BATCH), max_rows=rows, adjacency=adjacency, **more)


def run(configuration: Configuration, pairs: Any) -> Any:
    mechanism, domain, rows, adjacency = configuration
    return replay(mechanism, pairs, domain=domain, rows_per_unit=rows, adjacency=adjacency)


@pytest.mark.check
def test_every_mechanism_of_the_kernel_is_registered_and_moves_in_a_replay(
    domain: Domain, figure: Callable[..., None]
) -> None:
    """A registration without an example, or an example that nothing moves, would pass anything."""
    assert unregistered() == set()
    assert EXAMPLES.keys() == mechanism_classes()
    moved: set[type] = set()
    for configuration in configurations(domain):
        kind, some = type(configuration[0]), islice(pairs_of(configuration), 1, None, 8)
        if kind not in moved and run(configuration, some).largest_share > 0.05:
            moved.add(kind)
    assert moved == mechanism_classes()
    figure("mechanisms replayed", len(moved), len(mechanism_classes()))


def test_pairs_that_are_chosen_together_move_no_further_than_is_charged() -> None:
    """With one pair at a time, noise that does not grow with their number would pass."""
    own = numbers()
    plan = ReleasePlan(1.0, 1e-5, "add_remove", 1, graph={"orient": OrientationBudget(own, 2.0)})
    replayed = replay_plan(plan, own, module=lambda purpose, domain: vae(domain))
    assert replayed.findings == () and replayed.largest_share > 0.99
    examples = EXAMPLES[ChosenOrientations](own)
    assert [len(chosen.models) for chosen in examples] == [2, 2]
    for configuration in (
        (examples[1], own, 1, "add_remove"),
        (examples[1], own, 3, "replace_one"),
    ):
        found = run(configuration, islice(pairs_of(configuration), 0, None, 9))
        assert found.findings == () and found.largest_share > 0.6


def test_a_mechanism_without_an_example_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EXAMPLES, NoisyMarginals)
    assert unregistered() == {NoisyMarginals}


def test_an_audit_of_a_plan_chooses_for_every_budget(domain: Domain) -> None:
    """A budget alone cannot run: the audit would end there."""
    every = [m for kind in EXAMPLES.values() for own in (domain, numbers()) for m in kind(own)]
    budgets = {type(m): m.budget for m in every if isinstance(m, Prepaid)}
    assert budgets.keys() == {kind for kind in mechanism_classes() if issubclass(kind, Prepaid)}
    for kind, budget in budgets.items():
        found = runnable(budget, getattr(budget, "domain", domain), vae)
        assert {type(m) for m in found} == {kind}


@pytest.mark.check
def test_what_is_right_raises_no_alarm_on_some_pairs(domain: Domain) -> None:
    """Every configuration, on a few pairs of its own."""
    for number, configuration in enumerate(configurations(domain)):
        done = run(configuration, islice(pairs_of(configuration), number % 80, None, 80))
        assert done.pairs and done.findings == ()


@pytest.mark.parametrize("kind", [NoisyMarginals, ChosenMarginals, Training])
def test_some_pair_comes_close_to_the_allowance(kind: type, domain: Domain) -> None:
    """A replay in which nothing moved would pass anything."""
    configuration = EXAMPLES[kind](domain)[0], domain, 1, "add_remove"
    assert run(configuration, islice(pairs_of(configuration), 12)).largest_share > 0.99


@pytest.mark.slow
def test_what_is_right_raises_no_alarm(domain: Domain, figure: Callable[..., None]) -> None:
    quiet, every, pairs = 0, 0, 0
    for number, configuration in enumerate(configurations(domain)):
        some = islice(pairs_of(configuration, random_pairs=10), number % STRIDE, None, STRIDE)
        done = run(configuration, some)
        every, quiet, pairs = every + 1, quiet + (not done.findings), pairs + done.pairs
    assert quiet == every and every >= CONFIGURATIONS_REQUIRED and pairs >= PAIRS_REQUIRED
    figure("correct configurations without an alarm", quiet, every)
    figure("neighbour pairs replayed", pairs, PAIRS_REQUIRED)


def test_what_another_thread_prints_is_not_the_mechanisms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the live line of a progress bar."""
    done, small = threading.Event(), narrow()

    def chatter() -> None:
        while not done.wait(0.002):
            print("50%", file=sys.stderr)

    thread = threading.Thread(target=chatter)
    thread.start()
    some = islice(neighbours(small, batch=8), 30)
    found = replay(NoisyMarginals(small, (("x",),), 2.0), some, domain=small)
    done.set()
    thread.join()
    assert not found.findings and "50%" in capsys.readouterr().err


# --- a plan ---


def plan(domain: Domain, adjacency: Adjacency = "add_remove", rows: int = 1) -> ReleasePlan:
    tables = tuple((name,) for name in domain.names)
    measure, pairs = NoisyMarginals(domain, tables, 2.0), AdaptiveMarginals(domain, 3.0)
    train = replace(SETTINGS, steps=1000)
    own = {"measure": measure, "graph": {"pairs": pairs}, "train": train}
    return ReleasePlan(1.0, 1e-5, adjacency, rows, **own)


@pytest.mark.check
@pytest.mark.parametrize(
    ("adjacency", "rows"),
    [
        ("add_remove", 2),
        *(pytest.param(a, 1, marks=pytest.mark.slow) for a in ("add_remove", "replace_one")),
    ],
)
def test_a_plan_is_replayed_with_its_own_settings(
    domain: Domain, adjacency: Adjacency, rows: int
) -> None:
    small, ticks = narrow(), list[tuple[int, int]]()
    done = replay_plan(
        plan(small, adjacency, rows),
        small,
        module=lambda purpose, domain: vae(domain),
        progress=lambda *tick: ticks.append(tick),
    )
    assert not done.findings and 0.99 < done.largest_share <= 1 + 1e-9
    assert done.pairs > 100 and ticks[-1] == (len(done.mechanisms), len(done.mechanisms))
    assert any("sigma 2," in name for name in done.mechanisms) and any(
        name.startswith("DP-SGD") for name in done.mechanisms
    )


class Leaky(PerExampleLoss):
    """Losses standardised in their batch: not a function of the example alone."""

    def __init__(self, model: CausalVae) -> None:
        super().__init__()
        self.model, self.latent = model, model.latent

    def forward(self, codes: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        losses: torch.Tensor = self.model(codes, noise)
        return losses * (losses - losses.mean()).detach()


@pytest.mark.check
def test_a_plan_with_a_leaky_module_does_not_pass() -> None:
    small = narrow()
    done = replay_plan(plan(small), small, module=lambda purpose, domain: Leaky(vae(domain)))
    assert done.findings
    assert {f.differs for f in done.findings} == {"moved"} and all(
        f.mechanism.startswith("DP-SGD") for f in done.findings
    )


# --- the verdict ---


def noise(kind: Any, values: Any, sigma: float) -> NoiseCall:
    exact = np.asarray(values, dtype=np.float64)
    return NoiseCall(kind, exact, sigma, 2.0**-10 if kind == "lattice" else 1.0, exact)


def verdict(
    event: Any, pairs: list[tuple[Call, Call]], adjacency: Adjacency = "add_remove"
) -> tuple[list[str], float]:
    first, second = zip(*pairs, strict=True) if pairs else ((), ())
    found = judge(event, first, second, unit_rows=1, adjacency=adjacency)
    return [differs for differs, *_ in found[0]], found[1]


def test_gaussians_in_a_row_are_judged_together() -> None:
    """Two Gaussians of noise 2 allow L2 moves of sqrt(1/2) of the noise, however shared."""
    event = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(2.0)] * 2)
    one = (noise("rounded", [0, 0], 10.0), noise("rounded", [3, 4], 10.0))
    assert verdict(event, [one, one]) == ([], pytest.approx(1.0))
    assert verdict(event, [one, one, one])[0] == ["moved"]
    assert verdict(event, [one, one, one], "replace_one")[0] == []
    assert verdict(event, []) == ([], 0.0)


def test_discrete_noise_must_be_of_the_very_sigma_and_sensitivity() -> None:
    event = dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(3.0, 2), 2)
    right = (noise("discrete", [0, 0], 3.0), noise("discrete", [1, 1], 3.0))
    assert verdict(event, [right, right]) == ([], 1.0)
    assert verdict(event, [right])[0] == ["charged"]
    assert verdict(event, [right, right, right])[0] == ["charged"]
    rounded = noise("rounded", [0, 0], 3.0), noise("rounded", [1, 1], 3.0)
    other = noise("discrete", [0], np.nextafter(3, 4)), noise("discrete", [0], 3.0)
    assert verdict(event, [right, rounded])[0] == ["charged"] == verdict(event, [right, other])[0]
    # Three counts in cells of their own are further than two, though their L2 norm is not.
    spread = (noise("discrete", [0, 0, 0], 3.0), noise("discrete", [1, 1, 1], 3.0))
    assert verdict(event, [right, spread])[0] == ["moved"]
    assert verdict(event, [right, spread], "replace_one")[0] == []


@pytest.mark.parametrize("rows", [1, 3])
def test_a_sampled_step_may_move_by_what_is_in_the_batch(rows: int) -> None:
    event = unit_sampled_gaussian(noise_multiplier=2.0, rate=0.25, rows=rows, steps=1)

    def step(of_unit: int, moved: float, rate: float = 0.25) -> list[tuple[Call, Call]]:
        coins = (CoinCall(10, rate, 4, 0, 10), CoinCall(11, rate, 5, of_unit, 11))
        return [coins, (noise("lattice", [0.0], 1.0), noise("lattice", [moved], 1.0))]

    assert verdict(event, step(rows, rows * 0.5)) == ([], 1.0)
    assert verdict(event, step(rows, rows * 0.5 + 0.01))[0] == ["moved"]
    assert verdict(event, step(0, 0.0))[0] == []
    assert verdict(event, step(0, 0.001))[0] == ["moved"]
    assert verdict(event, step(1, 0.5, rate=0.2500001))[0] == ["charged"]
    assert verdict(event, step(1, 0.5)[:1])[0] == ["charged"]
    assert verdict(event, step(1, 0.5) * 2)[0] == ["charged"]


def test_an_unknown_event_pays_for_nothing() -> None:
    assert verdict(dp_accounting.NonPrivateDpEvent(), [])[0] == ["charged"]


# --- the plug-in ---

THIRD_PARTY = """
from dataclasses import dataclass
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.domain import level_features
from synthdp.privacy.mechanisms.marginals import NoisyMarginals

DOMAIN = Domain((ColumnDomain("x", "categorical", ("p", "q", "r"), False),))

@dataclass(frozen=True)
class Wrong(NoisyMarginals):
    def run(self, table, randomness):
        return NoisyMarginals(self.domain, self.tables, self.sigma / 2).run(table, randomness)

def test_right(replay):
    assert replay(NoisyMarginals(DOMAIN, (("x",),), 2.0), domain=DOMAIN).largest_share == 1

def test_wrong(replay):
    replay(Wrong(DOMAIN, (("x",),), 2.0), domain=DOMAIN)

def test_nothing(replay):
    replay(NoisyMarginals(DOMAIN, (("x",),), 2.0), domain=DOMAIN, pairs=[])
"""


@pytest.mark.check
def test_the_fixture_works_in_a_project_of_third_parties(tmp_path: Path) -> None:
    (tmp_path / "test_third_party.py").write_text(THIRD_PARTY)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        **{"capture_output": True, "text": True, "timeout": 120, "check": False, "cwd": tmp_path},
    )
    assert "1 passed" in done.stdout and "2 failed" in done.stdout, done.stdout
    assert "discrete Gaussian, sigma 2, on 1 table: charged" in done.stdout
    assert "no pair of neighbours" in done.stdout
