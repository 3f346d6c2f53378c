"""Clipping under fire, seen through the seam of the noise: huge weights, NaN, float32 sums."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.model import CausalVae
from synthdp.model.ancestral import Architecture
from tests.builders import dp_sgd
from tests.privacy.conftest import Train

Sums = Callable[..., npt.NDArray[np.float64]]

SIZES = (4, 2, 3, 1)
ONE_STEP = dp_sgd(rate=1.0, steps=1, noise_multiplier=1.0, checkpoint_every=100)
LOW, HIGH = np.zeros((1, 4), dtype=np.uint16), np.array([[3, 1, 2, 0]], dtype=np.uint16)


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
def sums(train: Train) -> Sums:
    """The sums of one step."""
    return lambda module, rows, settings=ONE_STEP, *given: train(
        module, rows, settings, *given
    ).sums[0]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("scale", [1e8, 1e15, 1e20, 3e38])
def test_huge_weights_do_not_pass_clipping(scale: float, direct: bool, sums: Sums) -> None:
    """Losses, norms and gradients overflow; sums stay finite and within the sensitivity."""
    module = model(scale, direct=direct)
    rng = np.random.default_rng(0)
    mixed = np.column_stack([rng.integers(0, s, 20) for s in SIZES]).astype(np.uint16)
    for rows in (LOW[:0], LOW, np.repeat(LOW, 30, axis=0), np.repeat(HIGH, 30, axis=0), mixed):
        for unit in (LOW, HIGH):
            one, two = (sums(module, codes) for codes in (rows, np.concatenate([rows, unit])))
            assert np.isfinite(two).all()
            assert np.linalg.norm(one - two) <= ONE_STEP.sensitivity


def test_an_example_without_a_finite_loss_counts_as_zero_and_changes_no_other(
    sums: Sums,
) -> None:
    module = model()
    # only rows with a = 3 touch this weight; one that is infinite is clamped before the first step
    with torch.no_grad():
        module.encode_columns.weight[3] = np.nan
    good = np.array([[0, 1, 2, 0], [1, 0, 1, 0], [2, 1, 0, 0]], dtype=np.uint16)
    clean = sums(module, good)
    assert np.linalg.norm(clean) > 0.1
    for mixed in (
        np.concatenate([good, HIGH]),
        np.concatenate([HIGH, good]),
        np.concatenate([good[:1], HIGH, HIGH, good[1:]]),
    ):
        spoilt = sums(module, mixed)
        assert np.isfinite(spoilt).all()
        assert np.linalg.norm(clean - spoilt) < 1e-5
    assert not sums(module, HIGH).any()


def test_an_example_without_a_finite_loss_by_its_direct_logits_changes_no_other(
    sums: Sums,
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
    assert not sums(module, HIGH).any()
    assert sums(clean, HIGH).any()
    np.testing.assert_array_equal(sums(module, good), sums(clean, good))
    np.testing.assert_array_equal(sums(module, batch), sums(module, good))


def test_a_bad_example_takes_no_coins_from_the_others(train: Train) -> None:
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
def test_one_row_moves_no_other_rows_rounding(rows: int, expected: int, sums: Sums) -> None:
    """All gradients the same way, the worst case for sums in 32 bits, in large batches too."""
    module, settings = model(), replace(ONE_STEP, expected_batch=float(expected))
    normals = np.full((rows + 1, module.latent), 0.5, dtype=np.float32)
    table = np.repeat(LOW, rows, axis=0)
    without = sums(module, table, settings, normals[1:])
    for extra in (HIGH, LOW):
        alone = sums(module, extra, settings, normals[:1])
        first, last = np.concatenate([extra, table]), np.concatenate([table, extra])
        places = np.roll(np.arange(rows + 1), 1)
        moved = sums(module, first, settings, normals, places) - without
        assert 0.5 * settings.clip < np.linalg.norm(moved) <= settings.sensitivity
        assert np.linalg.norm(moved - alone) < 2e-5 * settings.clip
        moved = sums(module, last, settings, np.roll(normals, -1, axis=0)) - without
        assert np.linalg.norm(moved - alone) < 2e-5 * settings.clip
