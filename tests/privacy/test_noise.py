"""Noise has the scale it claims, lies on its lattice, and never repeats."""

import inspect
import math
import secrets
import types
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from synthdp.privacy import dpsgd as dpsgd_settings
from synthdp.privacy import noise, session, source
from synthdp.privacy.dpsgd import training
from synthdp.privacy.mechanisms import marginals
from synthdp.privacy.noise import Streams
from tests.builders import dp_sgd
from tests.privacy.conftest import (
    SIGNIFICANCE,
    discrete_law,
    fit_p_value,
    order_law,
    order_p_value,
    rounded_law,
)

Ints = npt.NDArray[np.int64]


def laplace_law(support: Ints, scale: float) -> npt.NDArray[np.float64]:
    law: npt.NDArray[np.float64] = stats.dlaplace.pmf(support, 1 / scale)
    return law


LAWS = {"Discrete": discrete_law, "Laplace": laplace_law}


def added(kind: str, counts: Ints, sigma: float) -> Ints:
    """Counts with fresh noise of a kind."""
    streams = Streams.fresh()
    if kind == "Laplace":
        return streams.discrete_laplace(counts, scale=sigma)
    draw = streams.discrete_gaussian if kind == "Discrete" else streams.rounded_gaussian
    return draw(counts, sigma=sigma)


@dataclass(frozen=True)
class Noise:
    """Noise of a kind; on a lattice it told in steps, if fine a Gaussian like any other."""

    kind: str
    sigma: float
    spacing: float = 1.0

    def __str__(self) -> str:
        spacing = f", spacing={self.spacing}" if self.kind == "Lattice" else ""
        return f"{self.kind}(sigma={self.sigma}{spacing})"

    def draw(self, count: int, factor: float = 1.0) -> Ints:
        """Noise of `factor` times this scale, on zeros, or on values that round to zero."""
        if self.kind != "Lattice":
            return added(self.kind, np.zeros(count, dtype=np.int64), self.sigma * factor)
        noisy = noisy_gradient(
            np.full(count, self.spacing / 5), deviation=self.sigma * factor, spacing=self.spacing
        )
        steps = np.rint(noisy / self.spacing)
        assert np.array_equal(steps * self.spacing, noisy), "off the lattice"
        return steps.astype(np.int64)

    def p_value(self, samples: Ints, factor: float = 1.0) -> float:
        """Of `samples` under `factor` times this scale."""
        scale = self.sigma * factor / self.spacing
        if scale > 2000:
            return float(stats.kstest(samples, "norm", args=(0, scale)).pvalue)
        return fit_p_value(samples, LAWS.get(self.kind, rounded_law), scale)


def verdicts(noise_of: Noise, count: int, wrong: Sequence[float]) -> tuple[bool, list[bool]]:
    """Whether the true scale is accepted, and each wrong one rejected: by law and by draw."""
    samples = noise_of.draw(count)
    rejected = [noise_of.p_value(samples, factor) < SIGNIFICANCE for factor in wrong]
    rejected += [noise_of.p_value(noise_of.draw(count, factor)) < SIGNIFICANCE for factor in wrong]
    return noise_of.p_value(samples) > SIGNIFICANCE, rejected


QUICK = [
    *(Noise(kind, sigma) for kind in ("Discrete", "Rounded") for sigma in (0.7, 3.0, 25.0)),
    *(Noise("Laplace", scale) for scale in (0.4, 3.0, 40.0)),
    *(
        Noise("Lattice", sigma, spacing)
        for sigma, spacing in ((3.0, 1.0), (0.8, 2**-4), (0.8, 2**-20), (30.0, 2**-10))
    ),
]
MILLION = [
    *(Noise("Discrete", sigma) for sigma in (0.8, 6.0, 40.0)),
    *(Noise("Rounded", sigma) for sigma in (0.4, 0.8, 6.0, 40.0, 300.0)),
    *(
        Noise("Lattice", sigma, spacing)
        for sigma in (0.05, 1.3, 40.0)
        for spacing in (sigma, sigma / 20, 2**-20, 2**-30)
    ),
]


@pytest.mark.check
@pytest.mark.parametrize("noise_of", QUICK, ids=str)
def test_noise_has_its_scale_and_no_other(noise_of: Noise) -> None:
    accepted, rejected = verdicts(noise_of, 20_000, (0.7, 1.3))
    assert accepted
    assert all(rejected), rejected


@pytest.mark.slow
def test_a_million_samples_tell_a_scale_from_a_tenth_more_or_less(
    figure: Callable[..., None],
) -> None:
    found = {str(noise_of): verdicts(noise_of, 1_000_000, (0.9, 1.1)) for noise_of in MILLION}
    accepted = [name for name, (true, _) in found.items() if true]
    rejected = [verdict for _, wrong in found.values() for verdict in wrong]
    assert len(accepted) == len(MILLION), set(found) - set(accepted)
    assert all(rejected), found
    figure("noise fits: true scale accepted", len(accepted), len(found))
    figure("noise fits: 0.9x and 1.1x rejected", sum(rejected), len(rejected))


@pytest.mark.parametrize("kind", ["discrete", "rounded", "laplace"])
def test_noise_does_not_depend_on_the_counts(kind: str) -> None:
    counts = np.tile(np.array([0, 7, 10**9], dtype=np.int64), 7000)
    noisy = added(kind.title(), counts, 4.0)
    assert noisy.dtype == np.int64
    for start in range(3):
        drawn = (noisy - counts)[start::3]
        assert fit_p_value(drawn, LAWS.get(kind.title(), rounded_law), 4.0) > SIGNIFICANCE


def independent(cells: npt.NDArray[Any]) -> bool:
    """Whether noise `[draws, 2]` shows no correlation, of its values or of its sizes."""
    bound = 6 / math.sqrt(len(cells))
    return all(abs(np.corrcoef(of.T)[0, 1]) < bound for of in (cells, np.abs(cells)))


@pytest.mark.parametrize("kind", ["discrete", "rounded", "lattice"])
def test_cells_are_independent(kind: str) -> None:
    zeros, streams = np.zeros((20_000, 2), dtype=np.int64), Streams.fresh()
    spacing = {"spacing": 0.01} if kind == "lattice" else {}
    noisy = getattr(streams, f"{kind}_gaussian")(zeros, sigma=5.0, **spacing)
    assert independent(noisy)
    assert independent(np.stack([noisy[:-1, 0], noisy[1:, 0]], axis=1)), "one draw after the other"


def test_shared_noise_is_not_taken_for_independent() -> None:
    one, sign = (
        Streams.fresh().rounded_gaussian(np.zeros(20_000, dtype=np.int64), sigma=s)
        for s in (5.0, 1.0)
    )
    assert not independent(np.stack([one, one], axis=1))
    assert not independent(np.stack([one, np.where(sign > 0, one, -one)], axis=1)), (
        "the same size with a sign of its own"
    )


KINDS: dict[str, Callable[[Ints, float], npt.NDArray[Any]]] = {
    **{kind: partial(added, kind) for kind in ("Discrete", "Rounded", "Laplace")},
    "lattice": lambda x, s: noisy_gradient(x.astype(float), deviation=s, spacing=0.5),
    "spacing": lambda x, s: noisy_gradient(x.astype(float), deviation=2.0, spacing=s),
    "maximum": lambda x, s: np.full(1, Streams.fresh().noisy_max(x, scale=s)),
}


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_no_noise_without_a_scale(kind: str, sigma: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        KINDS[kind](np.zeros(3, dtype=np.int64), sigma)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "maximum"])
def test_shapes_are_kept_and_empty_tables_stay_empty(kind: str) -> None:
    for shape in ((0,), (1,), (2, 0), (3, 4, 5)):
        assert KINDS[kind](np.zeros(shape, dtype=np.int64), 2.0).shape == shape


# --- the noisy maximum ---


SCORES = np.array([0, 3, 5, 5], dtype=np.int64)


def chosen(count: int, scale: float) -> Counter[tuple[int, ...]]:
    streams = Streams.fresh()
    return Counter((streams.noisy_max(SCORES, scale=scale),) for _ in range(count))


@pytest.mark.check
def test_choice_has_its_scale_and_no_other() -> None:
    """The law of Gumbel noise, whose bounded range is what is charged."""
    counts = chosen(8000, 3.0)
    assert order_p_value(counts, order_law(SCORES, 3.0, 1)) > SIGNIFICANCE
    for wrong in (2.1, 3.9):
        assert order_p_value(counts, order_law(SCORES, wrong, 1)) < SIGNIFICANCE
        assert order_p_value(chosen(8000, wrong), order_law(SCORES, 3.0, 1)) < SIGNIFICANCE


def test_exponential_noise_of_that_scale_is_refused() -> None:
    """Of permute and flip: its range is not bounded, and it costs more."""
    drawn = np.random.default_rng(0).exponential(3.0, (8000, len(SCORES)))
    chosen = Counter((place,) for place in (SCORES + drawn).argmax(1).tolist())
    assert order_p_value(chosen, order_law(SCORES, 3.0, 1)) < SIGNIFICANCE


def test_the_best_wins_where_noise_is_small() -> None:
    far = np.array([-(10**12), 4, 900, 10**12], dtype=np.int64)
    assert Streams.fresh().noisy_max(far, scale=2.0) == 3


# --- DP-SGD's lattice ---


def noisy_gradient(
    summed: npt.NDArray[np.float64], *, deviation: float, spacing: float
) -> npt.NDArray[np.float64]:
    return Streams.fresh().lattice_gaussian(summed, sigma=deviation, spacing=spacing)


@pytest.mark.parametrize("spacing", [2**-10, 1.0])
def test_outputs_lie_on_the_lattice_for_both_neighbours(spacing: float) -> None:
    one = np.random.default_rng(0).random(5000) * 3
    for summed in (one, one + 1e-4, one * 1.7):
        steps = noisy_gradient(summed, deviation=2.0, spacing=spacing) / spacing
        assert np.array_equal(steps, np.round(steps))


def in_blocks() -> npt.NDArray[np.float64]:
    """Lattice noise `[values, blocks]` of two blocks, on two threads."""
    streams = replace(Streams.fresh(), threads=2, block=20_000)
    return streams.lattice_gaussian(np.full((2, 20_000), 0.05), sigma=3.0, spacing=0.25).T


def test_blocks_of_noise_on_threads_are_independent_and_of_the_same_law() -> None:
    drawn = in_blocks()
    steps = (drawn / 0.25).astype(np.int64)
    assert np.array_equal(steps * 0.25, drawn) and independent(drawn)
    for block in steps.T:
        assert fit_p_value(block, rounded_law, 12.0) > SIGNIFICANCE
        assert all(fit_p_value(block, rounded_law, 12.0 * f) < SIGNIFICANCE for f in (0.7, 1.3))


def test_blocks_of_one_stream_are_not_taken_for_independent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams, key = replace(Streams.fresh(), threads=2, block=20_000), secrets.randbits(128)
    same = lambda: np.random.Generator(np.random.Philox(key=key))  # noqa: E731
    monkeypatch.setattr(noise, "fresh_generator", same)
    zeros = np.zeros((2, 20_000))
    assert not independent(streams.lattice_gaussian(zeros, sigma=3.0, spacing=0.25).T)


def test_a_zero_does_not_say_on_which_side_of_it_the_sum_was() -> None:
    """Noise of next to nothing rounds to zeros of both signs, as sums below zero do."""
    sums = np.tile([-0.0, -1e-9, 0.0, 1e-9], 100)
    noisy = Streams.fresh().lattice_gaussian(sums, sigma=1e-6, spacing=1.0)
    assert not noisy.any() and not np.signbit(noisy).any()


@pytest.mark.parametrize("noise_multiplier", [1e-3, 1.0, 1e7])
@pytest.mark.parametrize("dimension", [1, 1000, 10**8])
def test_rounding_to_the_lattice_fits_in_the_sensitivity(
    noise_multiplier: float, dimension: int
) -> None:
    """Two sums clip apart stay within the sensitivity after each is rounded."""
    own = dp_sgd(noise_multiplier=noise_multiplier, clip=0.3)
    assert own.lattice_spacing(dimension) > 0
    assert (
        own.clip + own.lattice_spacing(dimension) * math.sqrt(dimension)
        <= own.sensitivity
        < 1.01 * own.clip
    )


# --- streams and seeds ---


def test_nothing_here_follows_a_seed() -> None:
    """Noise is OpenDP's and keys are the operating system's: no stand-in of `tests/chance.py`."""
    assert Streams.discrete_gaussian.__name__ == "discrete_gaussian"
    assert isinstance(getattr(secrets.randbits, "__self__", None), secrets.SystemRandom)


def test_streams_never_repeat() -> None:
    firsts = [
        s.random()
        for _ in range(300)
        for s in (lambda x: (x.noise, x.sampling, x.holdout, x.latent))(Streams.fresh())
    ]
    assert len(set(firsts)) == 1200


def test_streams_show_nothing() -> None:
    assert repr(Streams.fresh()) == "<Streams>"


@pytest.mark.parametrize(
    "module",
    [noise, marginals, session, source, training, dpsgd_settings],
    ids=lambda m: m.__name__,
)
def test_no_function_takes_a_seed(module: types.ModuleType) -> None:
    found = [
        f
        for f in vars(module).values()
        if callable(f) and getattr(f, "__module__", "") == module.__name__
    ]
    found += [
        m for c in found if inspect.isclass(c) for m in vars(c).values() if inspect.isfunction(m)
    ]
    assert found
    for function in found:
        names = inspect.signature(function).parameters
        assert not [n for n in names if "seed" in n or (n == "key" and module is noise)], function


# --- the sampler ---


ROWS, RATE, DRAWS = 500, 0.1, 400
Drawn = npt.NDArray[np.bool_]  # [draws, rows]


def departures(drawn: Drawn) -> set[str]:
    """In what batches depart from coins of chance `RATE`; by chance less than 1e-6 each."""
    sizes, law = drawn.sum(1), ROWS * RATE * (1 - RATE)

    def rare(together: int, pairs: int) -> bool:
        return abs(together - pairs * RATE**2) > 6 * math.sqrt(
            pairs * RATE**2
        )  # pairs share rows, so that their number varies a little more

    half = ROWS // 2
    signs = {
        "size": abs(sizes.mean() - ROWS * RATE) > 6 * math.sqrt(law / DRAWS),
        "variance": not 0.6 < sizes.var() / law < 1.45,
        "pairs": rare(int((drawn[:, :half] & drawn[:, half:]).sum()), DRAWS * half),
        "neighbours": rare(int((drawn[:, :-1] & drawn[:, 1:]).sum()), DRAWS * (ROWS - 1)),
        "next batch": rare(int((drawn[:-1] & drawn[1:]).sum()), (DRAWS - 1) * ROWS),
        "rows": stats.chisquare(drawn.sum(0)).pvalue < SIGNIFICANCE,
    }
    return {name for name, found in signs.items() if found}


def test_batches_follow_the_poisson_law() -> None:
    streams, drawn = Streams.fresh(), np.zeros((DRAWS, ROWS), dtype=bool)
    for i in range(DRAWS):
        drawn[i, streams.poisson_batch(ROWS, rate=RATE)] = True
    assert departures(drawn) == set()


def ranks(rng: np.random.Generator, draws: int) -> npt.NDArray[np.intp]:
    return rng.permuted(np.tile(np.arange(ROWS), (draws, 1)), axis=1)


def epochs(rng: np.random.Generator, edges: npt.NDArray[Any]) -> Drawn:
    """Each epoch deals out all rows, in batches that end at `edges`."""
    dealt = [
        (shuffled >= low) & (shuffled < high)
        for shuffled in ranks(rng, DRAWS)
        for low, high in pairwise([0, *edges, ROWS])
    ]
    return np.array(dealt[:DRAWS])


def coins(rng: np.random.Generator, rows: int = ROWS, rate: float = RATE) -> Drawn:
    return rng.random((DRAWS, rows)) < rate


BATCH = int(ROWS * RATE)
WRONG_SAMPLERS: dict[str, tuple[Callable[[np.random.Generator], Drawn], set[str]]] = {
    "a fixed size": (lambda rng: ranks(rng, DRAWS) < BATCH, {"variance"}),
    "shuffled epochs": (
        lambda rng: epochs(rng, np.arange(BATCH, ROWS, BATCH)),
        {"variance", "next batch"},
    ),
    "shuffled epochs of random sizes": (
        lambda rng: epochs(rng, np.sort(rng.choice(np.arange(1, ROWS), 9, replace=False))),
        {"next batch"},
    ),
    "one coin for two rows far apart": (
        lambda rng: np.tile(coins(rng, ROWS // 2), 2),
        {"pairs", "variance"},
    ),
    "one coin for two neighbours": (
        lambda rng: np.repeat(coins(rng, ROWS // 2), 2, axis=1),
        {"neighbours", "variance"},
    ),
    "the same coins twice": (
        lambda rng: np.repeat(coins(rng)[: DRAWS // 2], 2, axis=0),
        {"next batch"},
    ),
    "a higher rate": (lambda rng: coins(rng, rate=1.1 * RATE), {"size"}),
    "some rows more often": (
        lambda rng: rng.random((DRAWS, ROWS)) < RATE * np.linspace(0.5, 1.5, ROWS),
        {"rows"},
    ),
}


@pytest.mark.parametrize("wrong", WRONG_SAMPLERS)
def test_batches_by_any_other_law_are_told_apart(wrong: str) -> None:
    """Batches of a fixed size have no variance; shuffled ones draw no row twice running."""
    draw, seen = WRONG_SAMPLERS[wrong]
    assert departures(draw(np.random.default_rng(7))) >= seen


@pytest.mark.parametrize("rate", [0.01, 0.2, 1 / 3, 0.5, 0.9])
def test_every_set_of_rows_has_the_chance_that_one_coin_for_each_row_gives_it(rate: float) -> None:
    """All 2^6 batches of six rows, which are not those of seven tenths of the rate."""
    streams, bits = Streams.fresh(), 1 << np.arange(6)
    drawn = np.bincount(
        [int(bits[streams.poisson_batch(6, rate=rate)].sum()) for _ in range(20_000)], minlength=64
    )
    held = np.asarray([bin(batch).count("1") for batch in range(64)])

    def fits(chance: float) -> bool:
        expected = 20_000 * chance**held * (1 - chance) ** (6 - held)
        common = expected >= 5
        pooled = [np.append(counts[common], counts[~common].sum()) for counts in (drawn, expected)]
        return bool(stats.chisquare(*(p[pooled[1] > 0] for p in pooled)).pvalue > SIGNIFICANCE)

    assert fits(rate) and not fits(0.7 * rate)


def test_a_batch_of_a_large_table_takes_no_coin_for_each_of_its_rows() -> None:
    """Its gaps alone are drawn, and positions reach the end of the table."""
    streams, rows = Streams.fresh(), 10**9
    batches = [streams.poisson_batch(rows, rate=1e-6) for _ in range(40)]
    sizes = np.asarray([len(b) for b in batches])
    assert abs(sizes.mean() - 1000) < 5 * math.sqrt(1000 / 40) and 0.4 < sizes.var() / 1000 < 2
    assert all((np.diff(b) > 0).all() and b[0] >= 0 and b[-1] < rows for b in batches)
    assert stats.kstest(np.concatenate(batches) / rows, "uniform").pvalue > SIGNIFICANCE


@pytest.mark.parametrize(
    ("rows", "rate", "size"), [(0, 0.5, 0), (1, 1.0, 1), (7, 1.0, 7), (7, 0.0, 0), (3, 1e-300, 0)]
)
def test_batches_at_the_edges(rows: int, rate: float, size: int) -> None:
    assert len(Streams.fresh().poisson_batch(rows, rate=rate)) == size


def test_draws_are_independent_of_how_many_rows_follow() -> None:
    """The coin of a row is its own: rows added at the end change no earlier coin."""
    streams = [
        replace(Streams.fresh(), sampling=np.random.Generator(np.random.Philox(key=5)))
        for _ in range(2)
    ]
    few, many = (s.poisson_batch(n, rate=0.3) for s, n in zip(streams, (40, 41), strict=True))
    assert np.array_equal(few, many[many < 40])


def test_a_gap_of_none_draws_no_row_twice_and_none_before_the_first() -> None:
    """NumPy's inversion can give a gap of 0 (once in 2^53): no row twice, none before."""

    class Gaps:
        def geometric(self, rate: float, size: int) -> npt.NDArray[np.int64]:
            return np.array([0, 3, 0, 9])

    batch = replace(Streams.fresh(), sampling=Gaps()).poisson_batch(6, rate=0.1)  # type: ignore[arg-type]
    assert batch.tolist() == [0, 3, 4]
