"""Norms and clipped sums of the layers against autograd, example by example."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from synthdp.errors import BoundaryError
from synthdp.model import CausalVae
from synthdp.model.ancestral import Architecture
from synthdp.privacy.dpsgd import MAX_STRETCH
from synthdp.privacy.dpsgd import layers as clipped_layer
from synthdp.privacy.dpsgd.layers import (
    ClippedLayer,
    MaskedLinear,
    NodeLinear,
    ParentLookup,
    one_hot_sums,
    one_hot_sums_anywhere,
    stable_sum,
)
from synthdp.privacy.dpsgd.training import _Trainer
from synthdp.privacy.noise import Streams
from tests.builders import dp_sgd

TOLERANCE = 2e-4
ONE = dp_sgd(steps=5, clip=1.0, noise_multiplier=1.0, checkpoint_every=100)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shake(module: nn.Module, seed: int) -> None:
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator(seed)))


def unit_features(seed: int, sizes: Sequence[int]) -> list[Tensor]:
    """Features of norm 1: one for each level alone, and some that levels share."""
    made = []
    for i, size in enumerate(sizes):
        shared = torch.rand(size, 1 + (seed + 3 * i) % 5, generator=generator(seed + i))
        own = torch.cat([torch.eye(size), shared], 1)
        made.append(own / own.norm(dim=1, keepdim=True))
    return made


def layers() -> Iterator[tuple[str, ClippedLayer, Tensor]]:
    codes = torch.tensor([[0, 2, 1], [1, 0, 1], [0, 2, 1], [1, 1, 0]])
    sizes = (2, 3, 2)
    yield "lookup", ParentLookup([(), (0,), (0, 1, 2)], sizes, 5), codes
    yield "lookup of everything", ParentLookup([range(3)], sizes, 4), codes
    yield "lookup of one column twice", ParentLookup([(1, 1), (1,)], sizes, 4), codes
    yield "lookup of one level", ParentLookup([(0,)], (1,), 2), torch.zeros(4, 1, dtype=torch.long)
    yield (
        "lookup of features",
        ParentLookup([(), (0,), (0, 1, 2)], sizes, 5, unit_features(4, sizes)),
        codes,
    )
    yield (
        "node of features",
        NodeLinear(5, (4, 2, 3), unit_features(5, (4, 2, 3))),
        torch.randn(4, 3, 5, generator=generator(1)),
    )
    yield "node", NodeLinear(5, (4, 4, 4)), torch.randn(4, 3, 5, generator=generator(1))
    yield "one node", NodeLinear(1, (1,)), torch.randn(4, 1, 1, generator=generator(1))
    mask = (torch.rand(6, 5, generator=generator(2)) < 0.4).float()
    yield "masked", MaskedLinear(mask), torch.randn(4, 5, generator=generator(3))
    yield "masked away", MaskedLinear(torch.zeros(3, 2)), torch.randn(4, 2, generator=generator(3))


each_layer = pytest.mark.parametrize(
    ("layer", "a"), [pytest.param(layer, a, id=name) for name, layer, a in layers()]
)


@each_layer
def test_layer_equals_autograd(layer: ClippedLayer, a: Tensor) -> None:
    shake(layer, 5)
    g = torch.randn(layer(a).shape, generator=generator(6))
    c = torch.tensor([0.5, 0.0, 2.0, 1.0])
    received = layer.received(g)
    norms, sums = layer.norms(a, received), layer.pulled_back(layer.clipped_sum(a, received, c))
    trained = [p for p in layer.parameters() if p.requires_grad]
    expected = {p: torch.zeros_like(p) for p in trained}
    for b in range(len(a)):
        grads = torch.autograd.grad(layer(a[b : b + 1]), trained, g[b : b + 1])
        for p, grad in zip(trained, grads, strict=True):
            assert norms[p][b].item() == pytest.approx(grad.norm().item(), rel=TOLERANCE, abs=1e-6)
            expected[p] += c[b] * grad
    for p in trained:
        torch.testing.assert_close(sums[p], expected[p], rtol=TOLERANCE, atol=1e-5)


@each_layer
def test_layer_sums_of_nobody_are_zero(layer: ClippedLayer, a: Tensor) -> None:
    g = layer.received(torch.zeros(layer(a).shape))
    sums = layer.pulled_back(layer.clipped_sum(a[:0], g[:0], torch.zeros(0)))
    assert all(
        sums[p].shape == p.shape and not sums[p].any()
        for p in layer.parameters()
        if p.requires_grad
    )


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [0, 1, 50])
def test_looked_up_rows_have_the_sums_of_those_that_looked(
    batch: int, precision: torch.dtype
) -> None:
    """On a CPU and elsewhere; the second of four nodes looks nothing up, nor the last."""
    draws, owner = torch.Generator().manual_seed(1), torch.tensor([0, 0, 2])
    rows = torch.randint(0, 7, (batch, 3), generator=draws)
    values = torch.randn(batch * 4, 5, generator=draws, dtype=precision)
    expected = torch.zeros(7, 5, dtype=precision)
    for b in range(batch):
        for place, node in enumerate(owner.tolist()):
            expected[rows[b, place]] += values[b * 4 + node]
    for summed in (one_hot_sums, one_hot_sums_anywhere):
        found = summed(rows, owner, values, 7)
        assert found.dtype == precision
        torch.testing.assert_close(found, expected)


@each_layer
def test_stable_sums_hold_each_block_apart(
    layer: ClippedLayer, a: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal to one sum of all and, to 64 bits, to sums of the blocks, in any pieces."""
    shake(layer, 5)
    a = a.repeat(60, *[1] * (a.dim() - 1))
    g = layer.received(torch.randn(layer(a).shape, generator=generator(6)))
    c = torch.rand(len(a), generator=generator(7))
    for block, piece in ((80, 4096), (24, 4096), (24, 100), (24, 10), (240, 4096)):
        monkeypatch.setattr(clipped_layer, "PIECE", piece)
        whole = stable_sum(layer, a, g, c, block)
        for p, expected in layer.clipped_sum(a, g, c).items():
            torch.testing.assert_close(whole[p].float(), expected, rtol=TOLERANCE, atol=1e-4)
            apart = torch.zeros_like(whole[p])
            for number in range(len(a) // block):
                own = c.where(torch.arange(len(a)) // block == number, 0.0)
                apart += stable_sum(layer, a, g, own, block)[p]
            assert whole[p].dtype == torch.float64
            torch.testing.assert_close(whole[p], apart, rtol=0, atol=1e-11)


@each_layer
def test_examples_that_do_not_count_add_exactly_nothing(layer: ClippedLayer, a: Tensor) -> None:
    """Other numbers in their slots change no bit of the sum, at the weight zero."""
    shake(layer, 5)
    a = a.repeat(24, *[1] * (a.dim() - 1))
    g = layer.received(torch.randn(layer(a).shape, generator=generator(6)))
    c = torch.rand(len(a), generator=generator(7))
    c[::3] = 0
    before = stable_sum(layer, a, g, c, 48)
    g[::3] *= -1e20
    if a.is_floating_point():
        a[::3] = 1e10
    after = stable_sum(layer, a, g, c, 48)
    assert all(torch.equal(before[p], after[p]) for p in before)


def random_architecture(seed: int) -> Architecture:
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 6))
    sizes = tuple(int(s) for s in rng.integers(1, 5, columns))
    share = (0.0, 0.5, 1.0)[seed % 3]  # no edge, some, all
    parents = tuple(tuple(p for p in range(i) if rng.random() < share) for i in range(columns))
    latent = tuple(
        tuple(int(i) for i in np.flatnonzero(rng.random(columns) < 0.6)) or (0,)
        for _ in range(int(rng.integers(1, 4)))
    )
    hidden, direct = int(rng.integers(1, 7)), seed % 4 == 1  # with and without features, groups
    return Architecture(sizes, parents, latent, hidden, direct)


def network_of(architecture: Architecture, seed: int) -> CausalVae:
    """Random weights; every second seed has features, every third decodes in two groups."""
    columns = len(architecture.sizes)
    groups = [range(0, columns, 2), range(1, columns, 2)] if columns > 1 and seed % 3 == 2 else None
    module = CausalVae(
        architecture,
        generator=generator(seed),
        features=unit_features(seed, architecture.sizes) if seed % 2 else None,
        groups=groups,
    )
    shake(module, seed)
    if architecture.direct:
        direct = module.get_buffer("direct")
        direct.copy_(torch.randn(direct.shape, generator=generator(seed)))
    return module


def trainer_of(
    architecture: Architecture, latents: Streams, *, seed: int = 0, clip: float = 1.0
) -> _Trainer:
    module = network_of(architecture, seed)
    return _Trainer(replace(ONE, clip=clip), module, latents)


def gradient(trainer: _Trainer, batch: Tensor) -> Tensor:
    trainer._clipped_gradient(batch)
    return torch.cat([p.grad.detach().flatten() for p in trainer.params if p.grad is not None])


def true_gradient(plain: CausalVae, example: Tensor) -> Tensor:
    """By plain autograd, through a copy of the module that no hook has seen."""
    loss = plain(example.unsqueeze(0), torch.full((1, plain.latent), 0.5)).sum()
    trained = [p for p in plain.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, trained, allow_unused=True)
    pairs = zip(trained, found, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])


@pytest.mark.check
@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("seed", range(12))  # each kind that a seed says
@pytest.mark.parametrize("clip", [1e-2, 1.0, 1e3])
def test_clipped_sum_of_the_causal_vae_equals_autograd(
    seed: int, clip: float, even_latents: Streams
) -> None:
    architecture = random_architecture(seed)
    trainer = trainer_of(architecture, even_latents, seed=seed, clip=clip)
    rng = np.random.default_rng(seed)
    batch = torch.from_numpy(np.column_stack([rng.integers(0, s, 6) for s in architecture.sizes]))
    plain = network_of(architecture, seed)
    expected = torch.zeros(sum(p.numel() for p in trainer.params))
    for example in batch:
        own = true_gradient(plain, example)
        expected += own * min(1.0, clip / (own.norm().item() + 1e-6))
    torch.testing.assert_close(gradient(trainer, batch), expected, rtol=1e-3, atol=1e-4 * clip)


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("seed", range(6))
def test_gradient_of_an_example_does_not_depend_on_its_batch(
    seed: int, even_latents: Streams
) -> None:
    architecture = random_architecture(seed)
    trainer = trainer_of(architecture, even_latents, seed=seed)
    rng = np.random.default_rng(seed)
    batch = torch.from_numpy(np.column_stack([rng.integers(0, s, 40) for s in architecture.sizes]))
    whole = gradient(trainer, batch)
    parts = sum(gradient(trainer, batch[i : i + 1]) for i in range(40))
    torch.testing.assert_close(whole, parts, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (torch.tensor([[0.9, 0.9]]), "norm at most 1"),
        (torch.tensor([[-0.5]]), "at least 0"),
        (torch.ones(17**2, 1), "stretch a gradient by more than 16"),
    ],
)
def test_features_without_a_proof_are_refused(features: Tensor, words: str) -> None:
    with pytest.raises(BoundaryError, match=words):
        ParentLookup([(0,)], (len(features),), 2, [features])
    with pytest.raises(BoundaryError, match=words):
        NodeLinear(2, (len(features),), [features])


def test_features_of_an_output_that_may_cancel_are_refused() -> None:
    """A gradient of (1, 0, -1) would be seen as zero, and its rounding not clipped."""
    with pytest.raises(BoundaryError, match=r"keep less than 0\.25"):
        NodeLinear(2, (3,), [torch.ones(3, 1)])


def test_features_as_long_as_allowed_stretch_by_no_more_than_is_charged() -> None:
    layer = ParentLookup([(0,)], (16**2,), 1, [torch.ones(16**2, 1)])
    sums = torch.randn(16**2, 1, generator=generator(1), dtype=torch.float64)
    pulled = layer.pulled_back({layer.weight: sums})[layer.weight]
    assert pulled.norm() <= MAX_STRETCH * sums.norm()
    ones = torch.ones(16**2, 1, dtype=torch.float64)
    even = layer.pulled_back({layer.weight: ones})[layer.weight]
    assert float(even.norm()) == pytest.approx(MAX_STRETCH * 16)


def test_plain_weights_compute_the_same() -> None:
    architecture = random_architecture(5)
    module = network_of(architecture, 5)
    plain = CausalVae(architecture, generator=generator(0))
    trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
    plain.load_state_dict(module.plain(trained))
    rng = np.random.default_rng(5)
    codes = torch.from_numpy(np.column_stack([rng.integers(0, s, 20) for s in architecture.sizes]))
    noise = torch.randn(20, module.latent, generator=generator(1))
    torch.testing.assert_close(plain(codes, noise), module(codes, noise), rtol=1e-4, atol=1e-4)


class Doubled(MaskedLinear):
    """A subclass of a proved layer."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), Doubled(torch.ones(2, 2))])
def test_layers_without_a_proof_are_refused(layer: Any) -> None:
    told = "no proved per-example norm"
    with pytest.raises(BoundaryError, match=rf"{type(layer).__name__}.* has {told}"):
        _Trainer(ONE, nn.Sequential(layer), Streams.fresh())  # type: ignore[arg-type]
