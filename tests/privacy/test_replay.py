"""Record and replay: run a mechanism on a table, replay its noisy outputs on a neighbour, and compare what the noise hid.

Before the noise, values may differ by the declared sensitivity; shapes, noise scales, numbers of draws and
steps may not differ at all. Every mechanism of the kernel is registered here.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
import pytest
import torch

import synthdp.privacy
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.model.causal_vae import Architecture, CausalVae
from synthdp.privacy import mechanisms
from synthdp.privacy.accounting import DiscreteGaussianDpEvent
from synthdp.privacy.dpsgd import Training, _LatticeOptimizer
from synthdp.privacy.dpsgd_settings import DpSgd
from synthdp.privacy.mechanisms import AdaptiveMarginals, ChosenMarginals, NoisyMarginals
from synthdp.privacy.noise import Streams
from synthdp.privacy.source import Table

MakeTable = Callable[[Domain, Codes], Table]
pytestmark = pytest.mark.usefixtures("no_coins")
Values = npt.NDArray[np.float64]


@dataclass
class Record:
    """What one run did: for each noisy output its pre-noise values and its noise scale, and facts that must not vary."""

    values: list[Values] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    facts: list[object] = field(default_factory=list)


# --- neighbours ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A table and rows of one unit that its neighbour has more."""

    name: str
    rows: Codes
    unit: Codes


def neighbours(sizes: tuple[int, ...], batch: int, max_rows: int) -> Iterator[Pair]:
    rng, columns = np.random.default_rng(0), len(sizes)
    low, high = np.zeros((1, columns), dtype=np.uint16), np.array([[s - 1 for s in sizes]], dtype=np.uint16)

    def random(n: int) -> Codes:
        return np.column_stack([rng.integers(0, s, n) for s in sizes]).astype(np.uint16)

    yield Pair("empty table, first row", low[:0], high)
    yield Pair("one row, a second like it", low, low)
    yield Pair("one row, the opposite", low, high)
    yield Pair("all equal and the opposite", np.repeat(low, 30, axis=0), high)
    yield Pair("all at the top and the bottom", np.repeat(high, 30, axis=0), low)
    yield Pair("all equal and one more", np.repeat(low, 30, axis=0), low)
    rare = random(40)
    rare[:, 0] = 0
    for have in range(4):  # k -> k + 1 of a rare category
        rare[:have, 0] = sizes[0] - 1
        yield Pair(f"rare category, {have} to {have + 1}", rare.copy(), high)
    for n in (batch - 1, batch, 2 * batch - 1, 2 * batch, 3 * batch):
        yield Pair(f"{n} to {n + 1} rows", random(n), random(1))
    yield Pair("unit of many equal rows", random(20), np.repeat(high, max_rows, axis=0))
    yield Pair("unit of many different rows", random(20), random(max_rows))


SIZES, BATCH, MAX_ROWS = (4, 2, 3, 1), 8, 5
PAIRS = list(neighbours(SIZES, BATCH, MAX_ROWS))
TABLES = (("a",), ("b",), ("a", "c"), ("d",), ("c", "b", "a"))


# --- how each mechanism is run with its noise frozen -----------------------------------------------------------


def replay_counts(mechanism: Any, table: Table, monkeypatch: pytest.MonkeyPatch, seen: Record | None) -> Record:
    """Noise is zero, so what the mechanism returns is what it would have hidden."""
    record = Record()

    def frozen(counts: npt.NDArray[np.int64], *, sigma: float, rng: object = None) -> npt.NDArray[np.int64]:
        record.scales.append(sigma)
        record.facts.append((counts.shape, counts.dtype))
        return counts

    monkeypatch.setattr(mechanisms, "discrete_gaussian", frozen)
    monkeypatch.setattr(mechanisms, "rounded_gaussian", frozen)
    for noisy in mechanism.run(table, Streams.fresh()):
        record.values.append(noisy.counts.ravel())
        record.facts.append((noisy.columns, noisy.sigma, noisy.counts.shape))
    return record


class FixedCoins(DpSgd):
    """Settings whose Poisson coins belong to a row's place, so that neighbours share them; the last rows are always in."""

    forced = 0

    def draw_batch(self, rows: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
        shared = np.random.default_rng(3).random(1000)[: rows - self.forced] < 0.6
        return np.flatnonzero(np.concatenate([shared, np.ones(self.forced, dtype=bool)]))


def replay_training(mechanism: Training, table: Table, monkeypatch: pytest.MonkeyPatch, seen: Record | None) -> Record:
    """The noisy gradients of the first run are handed to the second, so both walk through the same weights."""
    record, steps = Record(), iter(range(10**6))

    def frozen(self: _LatticeOptimizer) -> None:
        i = next(steps)
        rounded = [torch.round(p.summed_grad.double() / self.spacing) * self.spacing for p in self.params]
        record.values.append(torch.cat([r.flatten() for r in rounded]).numpy())
        record.scales.append(self.noise_multiplier * self.max_grad_norm)
        record.facts += [self.spacing, self.expected_batch_size, [tuple(p.shape) for p in self.params], self.param_groups[0]["lr"]]
        released = record.values[i] if seen is None else seen.values[i]
        start = 0
        for p in self.params:
            p.grad = torch.from_numpy(released[start : start + p.numel()]).view_as(p).to(p.dtype)
            start += p.numel()

    monkeypatch.setattr(_LatticeOptimizer, "add_noise", frozen)
    module = CausalVae(mechanism.module.architecture, generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    module.load_state_dict(mechanism.module.state_dict())
    again = Training(mechanism.settings, module, mechanism.progress, None)
    weights = again.run(table, Streams.fresh())
    record.facts.append([(n, w.shape, w.dtype) for n, w in weights.items()])
    return record


def training(domain: Domain, scale: float = 1.0) -> Training:
    architecture = Architecture(domain.sizes, ((), (0,), (0, 1), (2,)), ((0, 1, 2, 3), (1, 2)), 6)
    module = CausalVae(architecture, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for p in module.parameters():
            p.add_(scale * torch.randn(p.shape, generator=torch.Generator().manual_seed(4)))
    settings = FixedCoins(0.5, 4, float(BATCH), 0.7, 1.1, 0.01, 0.9, 100)
    return Training(settings, module, lambda done, total: None, None)


@dataclass(frozen=True)
class Registered:
    """How to build a mechanism, how to replay it, and the sensitivity of each of its outputs to a unit of `rows` rows."""

    build: Callable[[Domain], Any]
    replay: Callable[[Any, Table, pytest.MonkeyPatch, Record | None], Record]
    sensitivity: Callable[[Any, int], float]


def marginal_sensitivity(mechanism: Any, rows: int) -> float:
    return float(rows)


MECHANISMS: dict[type, Registered] = {
    NoisyMarginals: Registered(lambda d: NoisyMarginals(d, TABLES, 3.0), replay_counts, marginal_sensitivity),
    ChosenMarginals: Registered(lambda d: AdaptiveMarginals(d, 2.0).choose(TABLES), replay_counts, marginal_sensitivity),
    Training: Registered(training, replay_training, lambda m, rows: rows * m.settings.sensitivity),
}


def test_every_mechanism_of_the_kernel_is_registered() -> None:
    found = set()
    for module in pkgutil.iter_modules(synthdp.privacy.__path__):
        for _, thing in inspect.getmembers(importlib.import_module(f"synthdp.privacy.{module.name}"), inspect.isclass):
            if thing.__module__.startswith("synthdp.privacy") and callable(getattr(thing, "run", None)) and callable(getattr(thing, "event", None)):
                found.add(thing)
    assert found - {mechanisms.Mechanism} == set(MECHANISMS)


def compare(mechanism: Any, registered: Registered, pair: Pair, domain: Domain, table_of: MakeTable, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Distances of the pre-noise values of the two neighbours; anything else that differs fails."""
    if isinstance(mechanism, Training):
        monkeypatch.setattr(FixedCoins, "forced", 0)
    first = registered.replay(mechanism, table_of(domain, pair.rows), monkeypatch, None)
    if isinstance(mechanism, Training):
        monkeypatch.setattr(FixedCoins, "forced", len(pair.unit))
    second = registered.replay(mechanism, table_of(domain, np.concatenate([pair.rows, pair.unit])), monkeypatch, first)
    assert first.facts == second.facts
    assert first.scales == second.scales and all(s > 0 for s in first.scales)
    assert [v.shape for v in first.values] == [v.shape for v in second.values]
    return [float(np.linalg.norm(a - b)) for a, b in zip(first.values, second.values, strict=True)]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
@pytest.mark.parametrize("kind", MECHANISMS, ids=lambda k: k.__name__)
def test_neighbours_stay_within_the_sensitivity(
    kind: type, pair: Pair, domain_of: Callable[..., Domain], table_of: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain, registered = domain_of(*SIZES), MECHANISMS[kind]
    mechanism = registered.build(domain)
    moved = compare(mechanism, registered, pair, domain, table_of, monkeypatch)
    bound = registered.sensitivity(mechanism, len(pair.unit))
    assert max(moved) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("kind", MECHANISMS, ids=lambda k: k.__name__)
def test_some_neighbour_comes_close_to_the_sensitivity(
    kind: type, domain_of: Callable[..., Domain], table_of: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that always saw zero would pass anything."""
    domain, registered = domain_of(*SIZES), MECHANISMS[kind]
    mechanism = registered.build(domain)
    shares = [max(compare(mechanism, registered, p, domain, table_of, monkeypatch)) / registered.sensitivity(mechanism, len(p.unit)) for p in PAIRS]
    assert max(shares) > 0.95


def test_events_hold_the_sensitivity_and_scale_of_the_replay(domain_of: Callable[..., Domain]) -> None:
    """What is charged follows from what the replay compares: one event per output, of noise = scale / sensitivity."""
    domain = domain_of(*SIZES)
    assert NoisyMarginals(domain, TABLES, 3.0).event(4) == dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(3.0, 4), len(TABLES))
    chosen = AdaptiveMarginals(domain, 2.0).choose(TABLES)
    # k tables, each moved by `rows` under noise sigma: together rows * sqrt(k) under sigma.
    assert chosen.event(4).noise_multiplier == pytest.approx(chosen.sigma / (4 * len(TABLES) ** 0.5))
    own = training(domain)
    event = own.event(1)
    assert event.count == own.settings.steps
    assert event.event.sampling_probability == own.settings.rate
    assert event.event.event.noise_multiplier == own.settings.noise_multiplier


# --- clipping under fire ----------------------------------------------------------------------------------------


def one_step(mechanism: Training, codes: Codes, domain: Domain, table_of: MakeTable, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setattr(FixedCoins, "forced", len(codes))
    return replay_training(mechanism, table_of(domain, codes), monkeypatch, None)


@pytest.mark.parametrize("scale", [1e8, 1e15, 1e20, 3e38])
def test_huge_weights_do_not_pass_clipping(
    scale: float, domain_of: Callable[..., Domain], table_of: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses, norms and gradients overflow or are not numbers; the sums stay finite and within the sensitivity."""
    domain = domain_of(*SIZES)
    mechanism = training(domain, scale)
    for pair in PAIRS:
        moved = compare(mechanism, MECHANISMS[Training], pair, domain, table_of, monkeypatch)
        assert max(moved) <= MECHANISMS[Training].sensitivity(mechanism, len(pair.unit))


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_an_example_without_a_finite_loss_counts_as_zero_and_changes_no_other(
    poison: float, domain_of: Callable[..., Domain], table_of: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = domain_of(*SIZES)
    mechanism = training(domain)
    with torch.no_grad():  # only rows with a = 3 touch this weight
        mechanism.module.encode_columns.weight[3] = poison  # type: ignore[union-attr, index]
    good = np.array([[0, 1, 2, 0], [1, 0, 1, 0], [2, 1, 0, 0]], dtype=np.uint16)
    bad = np.array([[3, 1, 2, 0]], dtype=np.uint16)
    for mixed in (np.concatenate([good, bad]), np.concatenate([bad, good]), np.concatenate([good[:1], bad, bad, good[1:]])):
        clean, spoilt = (one_step(mechanism, rows, domain, table_of, monkeypatch).values[0] for rows in (good, mixed))
        assert np.isfinite(spoilt).all()
        assert np.linalg.norm(clean - spoilt) < 1e-5
    assert not one_step(mechanism, bad, domain, table_of, monkeypatch).values[0].any()


def test_a_bad_example_takes_no_coins_from_the_others(domain_of: Callable[..., Domain], table_of: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """One forward pass per step, whatever is in the batch: a second one would give the others new coins."""
    domain = domain_of(*SIZES)
    mechanism = training(domain)
    with torch.no_grad():
        mechanism.module.encode_columns.weight[3] = np.nan  # type: ignore[union-attr, index]
    passes: list[int] = []
    forward = CausalVae.forward
    monkeypatch.setattr(CausalVae, "forward", lambda self, codes, generator: (passes.append(len(codes)), forward(self, codes, generator))[1])
    rows = np.array([[0, 1, 2, 0], [3, 0, 1, 0], [2, 1, 0, 0]], dtype=np.uint16)
    one_step(mechanism, rows, domain, table_of, monkeypatch)
    assert passes == [3] * mechanism.settings.steps


@pytest.mark.parametrize("rows", [64, 1024, 8192])
def test_float_sums_stay_within_the_slack(rows: int, domain_of: Callable[..., Domain], table_of: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """All gradients the same way: the worst case for float32 sums found."""
    domain = domain_of(*SIZES)
    mechanism = training(domain)
    settings = FixedCoins(1.0, 1, float(rows), 0.7, 1.0, 0.01, 0.9, 100)
    mechanism = Training(settings, mechanism.module, mechanism.progress, None)
    for extra in (np.array([[3, 1, 2, 0]], dtype=np.uint16), np.zeros((1, 4), dtype=np.uint16)):
        table = np.repeat(np.zeros((1, 4), dtype=np.uint16), rows, axis=0)
        one, two = (one_step(mechanism, t, domain, table_of, monkeypatch).values[0] for t in (table, np.concatenate([extra, table])))
        assert 0.5 * settings.clip < np.linalg.norm(one - two) <= settings.sensitivity
