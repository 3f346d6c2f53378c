"""Clipping under fire, seen through the seam of the noise: huge weights, NaN, float32 sums."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.model.architecture import Architecture
from synthdp.model.network import CausalVae
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import Training
from synthdp.privacy.noise import Floats, Streams
from synthdp.privacy.table import Table
from tests.builders import dp_sgd

MakeTable = Callable[[Domain, Codes], Table]
Sums = list[npt.NDArray[np.float64]]

SIZES = (4, 2, 3, 1)
ONE_STEP = dp_sgd(rate=1.0, steps=1, noise_multiplier=1.0, checkpoint_every=100)
LOW, HIGH = np.zeros((1, 4), dtype=np.uint16), np.array([[3, 1, 2, 0]], dtype=np.uint16)


@dataclass(frozen=True)
class Noiseless(Streams):
    """Every row in every batch, in order; given normals; the rounded sums without noise."""

    normals: npt.NDArray[np.float32] | None = None
    spots: npt.NDArray[np.intp] | None = None
    sums: Sums = field(default_factory=list)
    forward_passes: list[int] = field(default_factory=list)

    def poisson_batch(self, rows: int, *, rate: float) -> npt.NDArray[np.intp]:
        return np.arange(rows)

    def places(self, rows: int, slots: int) -> npt.NDArray[np.intp]:
        return np.arange(rows) if self.spots is None else self.spots

    def latents(self, rows: int, width: int) -> npt.NDArray[np.float32]:
        self.forward_passes.append(rows)
        return (
            np.full((rows, width), 0.5, dtype=np.float32) if self.normals is None else self.normals
        )

    def lattice_gaussian(self, values: Floats, *, sigma: float, spacing: float) -> Floats:
        self.sums.append(np.rint(values.astype(np.float64) / spacing) * spacing)
        return self.sums[-1]


def model(scale: float = 1.0, *, direct: bool = False) -> CausalVae:
    module = CausalVae(
        Architecture(SIZES, ((), (0,), (0, 1), (2,)), ((0, 1, 2, 3), (1, 2)), 6, direct),
        generator=torch.Generator().manual_seed(0),
    )
    with torch.no_grad():
        if direct:
            logits = module.get_buffer("direct")
            logits.copy_(
                scale * torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
            )
        for p in module.parameters():
            p.add_(scale * torch.randn(p.shape, generator=torch.Generator().manual_seed(4)))
    return module


@pytest.fixture
def train(domain_of: Callable[..., Domain], table_of: MakeTable) -> Callable[..., Noiseless]:
    """DP-SGD on `rows` from the weights of `module`, which stays as it is."""

    def run(
        module: CausalVae,
        rows: Codes,
        settings: DpSgd = ONE_STEP,
        normals: npt.NDArray[np.float32] | None = None,
        spots: npt.NDArray[np.intp] | None = None,
    ) -> Noiseless:
        drawn = Noiseless(**vars(Streams.fresh()), normals=normals, spots=spots)
        Training(settings, copy.deepcopy(module), lambda done, total: None, None).run(
            table_of(domain_of(*SIZES), rows), drawn
        )
        return drawn

    return run


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("scale", [1e8, 1e15, 1e20, 3e38])
def test_huge_weights_do_not_pass_clipping(
    scale: float, direct: bool, train: Callable[..., Noiseless]
) -> None:
    """Losses, norms and gradients overflow; sums stay finite and within the sensitivity."""
    module = model(scale, direct=direct)
    rng = np.random.default_rng(0)
    mixed = np.column_stack([rng.integers(0, s, 20) for s in SIZES]).astype(np.uint16)
    for rows in (LOW[:0], LOW, np.repeat(LOW, 30, axis=0), np.repeat(HIGH, 30, axis=0), mixed):
        for unit in (LOW, HIGH):
            one, two = (
                train(module, codes).sums[0] for codes in (rows, np.concatenate([rows, unit]))
            )
            assert np.isfinite(two).all()
            assert np.linalg.norm(one - two) <= ONE_STEP.sensitivity


def test_an_example_without_a_finite_loss_counts_as_zero_and_changes_no_other(
    train: Callable[..., Noiseless],
) -> None:
    module = model()
    # only rows with a = 3 touch this weight; one that is infinite is clamped before the first step
    with torch.no_grad():
        module.encode_columns.weight[3] = np.nan
    good = np.array([[0, 1, 2, 0], [1, 0, 1, 0], [2, 1, 0, 0]], dtype=np.uint16)
    clean = train(module, good).sums[0]
    assert np.linalg.norm(clean) > 0.1
    for mixed in (
        np.concatenate([good, HIGH]),
        np.concatenate([HIGH, good]),
        np.concatenate([good[:1], HIGH, HIGH, good[1:]]),
    ):
        spoilt = train(module, mixed).sums[0]
        assert np.isfinite(spoilt).all()
        assert np.linalg.norm(clean - spoilt) < 1e-5
    assert not train(module, HIGH).sums[0].any()


def test_an_example_without_a_finite_loss_by_its_direct_logits_changes_no_other(
    train: Callable[..., Noiseless],
) -> None:
    """Direct logits that only an example with a = 3 reads: it adds and moves exactly 0."""
    module, clean = model(direct=True), model(direct=True)
    rows = module.architecture.rows_of(1)
    with torch.no_grad():
        module.get_buffer("direct")[rows.start + 3] = np.nan
        rows = module.architecture.rows_of(2)
        module.get_buffer("direct")[rows.start + 3] = np.inf
    good = np.array([[0, 1, 2, 0], [1, 0, 1, 0], [2, 1, 0, 0]], dtype=np.uint16)
    batch = np.concatenate([good, HIGH])
    assert not train(module, HIGH).sums[0].any()
    assert train(clean, HIGH).sums[0].any()
    np.testing.assert_array_equal(train(module, good).sums[0], train(clean, good).sums[0])
    np.testing.assert_array_equal(train(module, batch).sums[0], train(module, good).sums[0])


def test_a_bad_example_takes_no_coins_from_the_others(train: Callable[..., Noiseless]) -> None:
    """One forward pass per step: a second one would give the others new coins."""
    module = model()
    with torch.no_grad():
        module.encode_columns.weight[3] = np.nan
    rows = np.array([[0, 1, 2, 0], [3, 0, 1, 0], [2, 1, 0, 0]], dtype=np.uint16)
    assert train(module, rows, replace(ONE_STEP, steps=4)).forward_passes == [3] * 4


@pytest.mark.check
@pytest.mark.parametrize(
    ("rows", "expected"),
    [(64, 64), (1024, 1024), (2048, 1024), (8192, 8192), (65536, 8192), (16384, 200)],
)
def test_one_row_moves_no_other_rows_rounding(
    rows: int, expected: int, train: Callable[..., Noiseless]
) -> None:
    """All gradients the same way, the worst case for sums in 32 bits, in large batches too."""
    module, settings = model(), replace(ONE_STEP, expected_batch=float(expected))
    normals = np.full((rows + 1, module.latent), 0.5, dtype=np.float32)
    table = np.repeat(LOW, rows, axis=0)
    without = train(module, table, settings, normals[1:]).sums[0]
    for extra in (HIGH, LOW):
        alone = train(module, extra, settings, normals[:1]).sums[0]
        moved = (
            train(
                module,
                np.concatenate([extra, table]),
                settings,
                normals,
                np.roll(np.arange(rows + 1), 1),
            ).sums[0]
            - without
        )
        assert 0.5 * settings.clip < np.linalg.norm(moved) <= settings.sensitivity
        assert np.linalg.norm(moved - alone) < 2e-5 * settings.clip
        moved = (
            train(
                module, np.concatenate([table, extra]), settings, np.roll(normals, -1, axis=0)
            ).sums[0]
            - without
        )
        assert np.linalg.norm(moved - alone) < 2e-5 * settings.clip
