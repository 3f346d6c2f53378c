"""One example more changes no bit of the others' passes, and moves the sum by its charge."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from synthdp.data import Codes, Domain
from synthdp.errors import OutputError
from synthdp.model import CausalVae
from synthdp.model.ancestral import Architecture
from synthdp.privacy.dpsgd import BLOCK_SLACK, MAX_SINGLE, MAX_WEIGHT, DpSgd
from synthdp.privacy.dpsgd.training import Training, _Trainer
from synthdp.privacy.noise import Streams
from synthdp.privacy.table import Table
from tests.builders import dp_sgd
from tests.privacy.conftest import Train

Places = npt.NDArray[np.intp]
Sum = npt.NDArray[np.float64]
RAREST = 1e-7  # chance that a test of laws fails although they hold, by the chi-squared limit


def settings_for(rows: float) -> DpSgd:
    return dp_sgd(
        rate=1.0, steps=1, expected_batch=rows, clip=1.0, noise_multiplier=1.0, checkpoint_every=100
    )


def network(
    hidden: int, latent: int, sizes: tuple[int, ...], *, scale: float, seed: int
) -> CausalVae:
    """Each column from the one before it; weights of size `scale`."""
    columns, generator = len(sizes), torch.Generator().manual_seed(seed)
    parents = tuple(tuple(range(max(0, i - 1), i)) for i in range(columns))
    module = CausalVae(
        Architecture(sizes, parents, (tuple(range(columns)),) * latent, hidden), generator=generator
    )
    with torch.no_grad():
        for p in module.parameters():
            if p.requires_grad:
                p.add_(scale * torch.randn(p.shape, generator=generator)).clamp_(-64, 64)
    return module


def one_more(places: Places, slots: int, rng: np.random.Generator) -> Places:
    """Places of one row more, the last, by the coupling that `Streams.places` states."""
    chunk = len(places) // slots * slots
    free = rng.choice(np.setdiff1d(np.arange(chunk, chunk + slots), places))
    own = free if len(places) < slots else rng.choice(np.append(places, free))
    return np.append(np.where(places == own, free, places), own)


def check_one_more(
    train: Train,
    module: CausalVae,
    rows: int,
    settings: DpSgd,
    *,
    seed: int = 0,
    moves: bool = False,
) -> None:
    """A batch, and one example more: one that counts, and one without a finite loss."""
    rng, sizes = np.random.default_rng(seed), module.architecture.sizes
    codes = np.column_stack([rng.integers(0, size - 1, rows + 1) for size in sizes]).astype(
        np.uint16
    )
    codes[-1, 0] = sizes[0] - 1  # a level that no other example has
    normals = rng.standard_normal((rows + 1, module.latent), dtype=np.float32)
    places = Streams.fresh().places(rows, settings.slots)

    def summed(codes: Codes, normals: Any, places: Places) -> Sum:
        return train(module, codes, settings, normals, places).sums[0]

    more = one_more(places, settings.slots, rng)
    without = summed(codes[:-1], normals[:-1], places)
    alone = summed(codes[-1:], normals[-1:], more[-1:] % settings.slots)
    moved = summed(codes, normals, more) - without
    assert np.linalg.norm(moved) <= settings.sensitivity
    assert np.linalg.norm(moved - alone) <= BLOCK_SLACK
    with torch.no_grad():
        module.encode_columns.weight[sizes[0] - 1] = torch.nan
    others = summed(codes, normals, more) - without
    assert np.linalg.norm(others) <= BLOCK_SLACK if moves else not others.any()


SHAPES = [
    (17, 3, (7,) * 6),
    (33, 5, (5,) * 3),
    (16, 3, (8,) * 6),
    (32, 2, (42, 9, 2)),
    (8, 1, (3,) * 40),
]


@pytest.mark.check
@pytest.mark.parametrize(("rows", "scale"), [(100, 0.3), (100, 3.0), (100, 64.0), (1024, 64.0)])
@pytest.mark.parametrize(("hidden", "latent", "sizes"), SHAPES)
def test_an_example_that_adds_nothing_changes_no_bit(
    hidden: int, latent: int, sizes: tuple[int, ...], scale: float, rows: int, train: Train
) -> None:
    """At odd widths and up to the largest weights; one that counts moves its own alone."""
    check_one_more(
        train, network(hidden, latent, sizes, scale=scale, seed=1), rows, settings_for(rows)
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [4096, 20_000])
@pytest.mark.parametrize("scale", [1.0, 10.0, 64.0])
@pytest.mark.parametrize(("hidden", "latent", "sizes"), SHAPES)
def test_in_large_batches_too(
    hidden: int,
    latent: int,
    sizes: tuple[int, ...],
    scale: float,
    rows: int,
    seed: int,
    train: Train,
) -> None:
    """An example that adds nothing changes no bit of what the others give."""
    check_one_more(
        train,
        network(hidden, latent, sizes, scale=scale, seed=seed),
        rows,
        settings_for(rows),
        seed=seed,
    )


@pytest.mark.parametrize("rows", [127, 128, 300])
@pytest.mark.parametrize("scale", [0.3, 64.0])
def test_in_batches_of_several_chunks_one_other_example_may_move(
    rows: int, scale: float, train: Train
) -> None:
    """Chunks overflow: the example that changes its slot keeps its numbers."""
    check_one_more(
        train,
        network(17, 3, (7,) * 6, scale=scale, seed=1),
        rows,
        settings_for(8.0),
        moves=rows >= 128,
    )


@pytest.mark.check
def test_with_two_threads_too(train: Train) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        check_one_more(
            train, network(17, 3, (7,) * 6, scale=3.0, seed=1), 1024, settings_for(1024.0)
        )
    finally:
        torch.set_num_threads(before)


def test_the_slack_holds_for_any_order_of_additions_in_each_coordinate() -> None:
    """Half of the terms lie in one coordinate and are added first there: the worst order."""
    w, n, u = 1.0, MAX_SINGLE, 2.0**-24
    roundings = np.arange(n, 0, -1)[
        : n // 2
    ]  # of each term that is added early, its product's included
    worst = float(np.hypot(roundings.sum(), roundings.sum()) * u * w)
    assert (n + 1) * (
        n + 2
    ) / 2 * u * w < worst  # more than one order for all coordinates would give
    assert 4 * worst <= BLOCK_SLACK  # two blocks, with and without the example


def test_room_is_public_and_for_nearly_every_batch() -> None:
    for expected in (0.5, 8.0, 100.0, 500.0, 1024.0, 4096.0, 1e6):
        settings = settings_for(expected)
        assert settings.block <= MAX_SINGLE and settings.slots % settings.block == 0
        assert stats.poisson.sf(settings.slots, expected) < 2e-8
        assert (
            settings.slots
            <= max(128, expected + 6 * expected**0.5) * 1.01 + settings.slots / settings.block
        )


# --- laws of the places ---


@pytest.mark.parametrize(("rows", "ways"), [(0, 1), (1, 3), (2, 6), (3, 6), (4, 72), (5, 360)])
def test_each_way_to_place_rows_is_as_likely(rows: int, ways: int) -> None:
    """In chunks of three slots: the first is full before the second has any."""
    streams, draws = Streams.fresh(), 200 * ways
    found = Counter(tuple(streams.places(rows, 3).tolist()) for _ in range(draws))
    full = max(0, rows - 1) // 3 * 3
    assert all(
        sorted(way)[:full] == list(range(full)) and max(way, default=0) < full + 3 for way in found
    )
    assert len(found) == ways
    assert ways == 1 or stats.chisquare(list(found.values())).pvalue > RAREST


@pytest.mark.check
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("last", [0, -1])
def test_one_row_more_has_the_law_of_the_coupling(rows: int, last: int) -> None:
    """Wherever in the table the row is, so that which row came last does not show."""
    streams, rng = Streams.fresh(), np.random.default_rng(5)
    draws = 8_000
    coupled = Counter(
        tuple(np.roll(one_more(streams.places(rows, 3), 3, rng), last + 1).tolist())
        for _ in range(draws)
    )
    drawn = Counter(tuple(streams.places(rows + 1, 3).tolist()) for _ in range(draws))
    assert coupled.keys() == drawn.keys()
    if len(drawn) > 1:
        table = [[counts[way] for way in sorted(drawn)] for counts in (coupled, drawn)]
        assert stats.chi2_contingency(table).pvalue > RAREST


@pytest.mark.parametrize("rows", [0, 5, 127, 128, 129, 1000])
def test_the_coupling_moves_one_other_row_at_most(rows: int) -> None:
    places = Streams.fresh().places(rows, 128)
    more = one_more(places, 128, np.random.default_rng(6))
    assert len(set(more.tolist())) == rows + 1
    assert int((more[:-1] != places).sum()) <= (rows >= 128)


# --- bounded weights ---


def test_noisy_weights_are_bounded_after_each_step(
    domain_of: Callable[..., Domain], table_of: Callable[[Domain, Codes], Table]
) -> None:
    """The slack for 32-bit norms is proved for weights of at most 64."""
    settings = dp_sgd(
        rate=1.0, expected_batch=4.0, clip=1.0, noise_multiplier=1.0, learning_rate=500.0, ema=0.0
    )
    module = network(5, 2, (3, 2), scale=0.3, seed=0)
    weights = Training(settings, module, lambda done, total: None, None).run(
        table_of(domain_of(3, 2), np.zeros((4, 2), dtype=np.uint16)), Streams.fresh()
    )
    assert max(float(w.abs().max()) for w in weights.values()) == MAX_WEIGHT


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_checkpoint_with_weights_that_no_step_leaves_is_refused() -> None:
    settings = dp_sgd(
        rate=1.0, expected_batch=4.0, clip=1.0, noise_multiplier=1.0, learning_rate=0.1, ema=0.0
    )
    trainer = _Trainer(settings, network(5, 2, (3, 2), scale=0.3, seed=0), Streams.fresh())
    trainer.step(np.zeros((4, 2), dtype=np.uint16), 0)
    assert trainer.load(trainer.state(2)) == 2
    with torch.no_grad():
        trainer.params[0][0] = 1.01 * MAX_WEIGHT
    with pytest.raises(OutputError):
        trainer.load(trainer.state(2))
