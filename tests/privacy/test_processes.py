"""Several processes, one run of DP-SGD: the sums, the noise, the batches and the errors are those of one process."""

from __future__ import annotations

import copy
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from synthdp.data.encoding import Codes
from synthdp.errors import BudgetError
from synthdp.model.causal_vae import Architecture, CausalVae
from synthdp.privacy import processes
from synthdp.privacy.clipped_layer import Sums
from synthdp.privacy.dpsgd import _SharedTrainer, _Trainer
from synthdp.privacy.dpsgd_settings import DpSgd
from synthdp.privacy.helping import help_training
from synthdp.privacy.noise import Floats, Streams
from synthdp.privacy.processes import Helpers, LostProcess, Work, joined, share_of

Help = Callable[[Work], None]

SIZES = (64, 2, 3, 1)
PARENTS = ((), (0,), (0, 1), (2,))
SETTINGS = DpSgd(rate=1.0, steps=4, expected_batch=320.0, clip=0.7, noise_multiplier=1.0, learning_rate=0.01, ema=0.9, checkpoint_every=100)
SIGNIFICANCE = 1e-7


@pytest.fixture(autouse=True)
def own_signal() -> Iterator[None]:
    """A process that has lost another takes no notice of SIGTERM any more."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def model(features: bool = False) -> CausalVae:
    own = [torch.eye(size) * 0.6 + 0.4 / size for size in SIZES] if features else None
    groups = [[1, 2, 3], [0]] if features else None
    architecture = Architecture(SIZES, PARENTS, ((0, 1, 2, 3), (1, 2)), 6)
    module = CausalVae(architecture, generator=torch.Generator().manual_seed(0), features=own, groups=groups)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(4)))
    return module


def table(rows: int) -> Codes:
    rng = np.random.default_rng(1)
    return np.column_stack([rng.integers(0, size, rows) for size in SIZES]).astype(np.uint16)


def helped(work: Work) -> None:
    """What a helper does."""
    help_training(work, CausalVae.from_description)


def group(count: int) -> dict[str, str]:
    """What torchrun tells all processes of a group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


@contextmanager
def group_of(count: int, help_with: Help = helped, *, codes: Sequence[int] = (0, 0)) -> Iterator[Helpers]:
    """The other processes of a group of `count`, forked from this one, which each `help_with` the work and end with `codes`."""
    told = group(count)
    children = [_forked(told, rank, help_with) for rank in range(1, count)]
    try:
        with as_rank(told, 0), joined() as helpers:
            assert isinstance(helpers, Helpers)
            yield helpers
    finally:
        ended = [_ended(child) for child in children]
    assert ended == list(codes[: len(children)])


@contextmanager
def as_rank(told: dict[str, str], rank: int) -> Iterator[None]:
    """This process as one of the group."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (told | {"RANK": str(rank), "LOCAL_RANK": str(rank)}).items():
            patch.setenv(name, value)
        yield


def _ended(child: int) -> int | None:
    """A child's exit code, within seconds; None where it has to be killed."""
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _forked(told: dict[str, str], rank: int, act: Callable[[Any], None]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of threads: the child needs none of them
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        with as_rank(told, rank), joined() as group:
            act(group)
        code = 0
    except LostProcess:
        code = 2
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Given(Streams):
    """Every row in every batch, given normals for z, and the rounded sums themselves instead of noisy ones."""

    normals: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.float32))
    sums: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, rows: int) -> Given:
        return cls(**vars(Streams.fresh()), normals=np.random.default_rng(2).standard_normal((rows, 2), dtype=np.float32))

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        return self.normals[:rows]

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        self.sums.append(np.rint(values.astype(np.float64) / spacing) * spacing)
        return self.sums[-1]


def trained(module: CausalVae, codes: Codes, coins: Given, settings: DpSgd = SETTINGS, helpers: Helpers | None = None) -> dict[str, torch.Tensor]:
    """The weights after all steps; the sums are in `coins`."""
    own = copy.deepcopy(module)
    trainer = _Trainer(settings, own, coins) if helpers is None else _SharedTrainer(settings, own, coins, helpers=helpers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for step in range(settings.steps):
            trainer.step(codes, step)
    return trainer.averaged()


def furthest(helpers: Helpers, rows: int, module: CausalVae, settings: DpSgd = SETTINGS) -> float:
    """How far sums of several processes are from those of one, at most, in clipping norms; and weights."""
    one, several = Given.of(rows), Given.of(rows)
    alone = trained(module, table(rows), one, settings)
    together = trained(module, table(rows), several, settings, helpers)
    assert len(several.sums) == settings.steps and (rows == 0 or np.linalg.norm(one.sums[0]) > 0.05 * rows**0.5)
    assert set(alone) == set(together)
    off = [np.linalg.norm(a - b) / settings.clip for a, b in zip(one.sums, several.sums, strict=True)]
    return float(max(*off, *(float((alone[n] - together[n]).nan_to_num().abs().max()) for n in alone)))


@pytest.mark.parametrize("count", [2, 3])
def test_sums_and_weights_are_those_of_one_process(count: int) -> None:
    spoilt = model()
    with torch.no_grad():  # rows with a = 3 have no finite loss and count as zero
        spoilt.encode_columns.weight[3] = torch.nan
    with group_of(count) as helpers:
        for rows in (300, 1, 0):
            assert furthest(helpers, rows, model()) < 2e-4
        assert furthest(helpers, 300, model(features=True)) < 2e-4
        assert furthest(helpers, 300, spoilt) < 2e-4
        assert furthest(helpers, 200, model(), replace(SETTINGS, expected_batch=64.0)) < 2e-4


def _giving(change: Callable[[torch.Tensor], torch.Tensor]) -> Help:
    """A helper whose sums are not what they should be."""

    def help_with(work: Work) -> None:
        def flattened(params: list[torch.nn.Parameter], sums: Sums) -> torch.Tensor:
            return change(true(params, sums))

        true, processes.flattened = processes.flattened, flattened  # type: ignore[assignment]
        helped(work)

    return help_with


def noise_of(helpers: Helpers, runs: int) -> npt.NDArray[np.float64]:
    """What `runs` first steps of several processes add to the sum that one process makes, in units of the planned noise."""
    module, codes, exact = model(), table(200), Given.of(200)
    trained(module, codes, exact, replace(SETTINGS, steps=1))
    drawn = []
    for _ in range(runs):
        coins = Streams.fresh()
        trainer = _SharedTrainer(SETTINGS, copy.deepcopy(module), Noisy(**vars(coins), normals=exact.normals), helpers=helpers)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            trainer.step(codes, 0)
        noisy = torch.cat([p.grad.flatten() for p in trainer.params if p.grad is not None]).double().numpy() * SETTINGS.expected_batch
        drawn.append((noisy - exact.sums[0]) / SETTINGS.noise)
    return np.concatenate(drawn)


class Noisy(Given):
    """`Given` with the noise of a release."""

    lattice_gaussian = Streams.lattice_gaussian


def accepted(noise: npt.NDArray[np.float64], factor: float = 1.0) -> bool:
    """Whether noise is Gaussian of `factor` times the planned standard deviation."""
    return float(stats.kstest(noise, "norm", args=(0, factor)).pvalue) > SIGNIFICANCE


def test_noise_on_the_gradient_is_that_of_one_process() -> None:
    with group_of(2) as helpers:
        noise = noise_of(helpers, 6)
    assert len(noise) > 4000
    assert accepted(noise)
    assert not any(accepted(noise, factor) for factor in (0.7, 1.3, 2**0.5))


def test_noise_by_a_helper_too_would_be_seen() -> None:
    with group_of(2, _giving(lambda sums: sums + SETTINGS.noise * torch.randn(len(sums), generator=torch.Generator().manual_seed(1)))) as helpers:
        noise = noise_of(helpers, 1)
    assert not accepted(noise)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_sums_scaled_by_a_helper_would_be_seen(factor: float) -> None:
    with group_of(2, _giving(lambda sums: factor * sums)) as helpers:
        assert furthest(helpers, 300, model()) > 1


def test_the_same_rows_for_all_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(self: Helpers, params: list[torch.nn.Parameter], batch: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(processes, "share_of", lambda latents, count: torch.ones(len(latents), dtype=torch.long))
            true(self, params, batch, latents)
        return torch.ones(len(batch), dtype=torch.bool)

    true = Helpers.deal
    monkeypatch.setattr(Helpers, "deal", both)
    with group_of(2) as helpers:
        assert furthest(helpers, 300, model()) > 1


def test_one_row_moves_the_sum_by_no_more_than_the_sensitivity() -> None:
    module, codes, settings = model(), table(301), replace(SETTINGS, steps=1)
    with group_of(2) as helpers:
        for left_out in (0, 150, 300):
            whole, without = Given.of(301), Given.of(301)
            keep = np.arange(301) != left_out
            trained(module, codes, whole, settings, helpers)
            trained(module, codes[keep], replace(without, normals=without.normals[keep]), settings, helpers)
            assert 0.3 * settings.clip < np.linalg.norm(whole.sums[0] - without.sums[0]) <= settings.sensitivity


def batches(draws: int, folder: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How often each of 64 rows was in a step of the first process, and in one of its helper: two arrays `[draws, rows]`."""

    def tally(work: Work) -> None:
        seen = []
        true = Work.step

        def step(self: Work, *arguments: object) -> object:
            batch, latents = true(self, *arguments)  # type: ignore[arg-type]
            seen.append(np.bincount(batch[:, 0].numpy(), minlength=64))
            return batch, latents

        Work.step = step  # type: ignore[assignment,method-assign]
        helped(work)
        np.save(folder / "helper.npy", np.array(seen))

    codes = np.column_stack([np.arange(64), *(np.zeros(64, dtype=np.int64) for _ in SIZES[1:])]).astype(np.uint16)
    first: list[npt.NDArray[np.int64]] = []
    with group_of(2, tally) as helpers, pytest.MonkeyPatch.context() as patch:
        true = Helpers.deal

        def deal(self: Helpers, params: list[torch.nn.Parameter], batch: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
            own = true(self, params, batch, latents)
            first.append(np.bincount(batch[own][:, 0].numpy(), minlength=64))
            return own

        patch.setattr(Helpers, "deal", deal)
        settings = replace(SETTINGS, rate=0.25, steps=draws, expected_batch=16.0)
        trained(model(), codes, Streams.fresh(), settings, helpers)  # type: ignore[arg-type]
    return np.array(first), np.load(folder / "helper.npy")


@pytest.mark.slow
def test_batches_of_all_processes_are_one_poisson_sample(tmp_path: Path) -> None:
    """Each row in each step by its own coin, at one process or another; rows are independent of each other, also across processes."""
    first, helper = batches(1200, tmp_path)
    together = first + helper
    assert together.max() == 1  # never at both
    assert 0.2 < np.var(together.sum(1)) / (64 * 0.25 * 0.75) - 0.7 < 0.4  # 1 in truth; 3 if both had the same rows
    for counts, chance in ((first, 0.125), (helper, 0.125), (together, 0.25)):
        spread = (counts.sum(0) - 1200 * chance) ** 2 / (1200 * chance * (1 - chance))
        assert stats.chi2.sf(spread.sum(), 64) > SIGNIFICANCE
    pairs = first.astype(float).T @ helper / 1200  # of row i at the first and row j at the helper
    other = pairs[~np.eye(64, dtype=bool)]
    assert abs(other.mean() - 0.125**2) < 5 * (0.125**2 / (1200 * 64)) ** 0.5
    assert not pairs.diagonal().any()


def test_who_gets_an_example_is_its_own_coin() -> None:
    latents = torch.randn(4000, 2, generator=torch.Generator().manual_seed(1))
    share = share_of(latents, 3)
    assert (share.bincount() > 1200).all() and share.unique().tolist() == [0, 1, 2]
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(2))[:999]
    assert torch.equal(share_of(latents[order], 3), share[order])
    assert share_of(torch.tensor([[-40.0], [40.0]]), 5).tolist() == [0, 4]


def test_a_module_is_rebuilt_from_its_description() -> None:
    for features in (False, True):
        module = model(features)
        again = CausalVae.from_description(module.described())
        codes, normals = torch.from_numpy(table(50).astype(np.int64)), torch.randn(50, 2, generator=torch.Generator().manual_seed(3))
        assert torch.equal(module(codes, normals), again(codes, normals))
        assert [(n, p.requires_grad) for n, p in module.named_parameters()] == [(n, p.requires_grad) for n, p in again.named_parameters()]


def test_a_helper_that_dies_ends_the_training() -> None:
    def die(work: Work) -> None:
        work.training(work.order())
        os._exit(9)

    with pytest.raises(LostProcess, match="has ended") as told, group_of(2, die, codes=[9]) as helpers:
        trained(model(), table(100), Given.of(100), helpers=helpers)
    assert "synthdp resume" in str(told.value)


def test_a_first_process_that_dies_ends_its_helpers() -> None:
    told = group(2)
    first = _forked(told, 0, lambda helpers: os._exit(9))

    def help_it() -> None:
        with as_rank(told, 1), joined() as work:
            assert isinstance(work, Work)
            helped(work)

    with pytest.raises(LostProcess, match="has ended"):
        help_it()
    assert _ended(first) == 9


def test_a_mistake_of_the_user_ends_helpers_without_a_word() -> None:
    def refused() -> None:
        with group_of(3):
            raise BudgetError("the cap is reached")

    with pytest.raises(BudgetError, match="cap"):
        refused()
