"""The fast sampler: the decoder's arithmetic, any number of threads, weights of evidence."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.model import CausalVae, Synthesizer, ancestral, arrays
from synthdp.model.ancestral import (
    SETTINGS,
    column_samplers,
    draw,
    latents,
    levels_of,
    log_softmax,
)
from tests.model.conftest import generator, random_network, synthesizer_of

SIZES, PARENTS = (2, 3, 2, 5, 1), ((2,), (0, 2), (), (0, 1, 2), (3,))
NAMES = ("a", "b", "c", "d", "e")  # c -> a -> b -> d, and e has one level


def model(latent_of: tuple[tuple[int, ...], ...] = ((0, 1, 3),) * 2, **more: bool) -> CausalVae:
    return random_network(SIZES, PARENTS, latent_of, **more)


def synthesizer(vae: CausalVae) -> Synthesizer:
    return synthesizer_of(vae, NAMES)


def table(
    codes: npt.NDArray[np.uint16], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Weighted share of each cell over all columns, flattened."""
    cell = np.ravel_multi_index(tuple(codes.T.astype(np.int64)), SIZES)
    return np.bincount(cell, weights=weights, minlength=int(np.prod(SIZES))) / weights.sum()


@torch.no_grad()
def test_units_without_weights_are_left_out_and_z_with_them() -> None:
    """As tables alone make a model: nothing of z is drawn on, or summed out."""
    vae, rng = model(direct=True), np.random.default_rng(2)
    for _, layer in vae.decoders():
        for part in layer.parameters():
            if part.requires_grad:
                part.zero_()
    z = latents(2, 50, rng)
    codes = np.stack([rng.integers(0, s, 50) for s in SIZES]).astype(np.int32)
    for sampler in column_samplers(vae.architecture, arrays(vae.state_dict())):
        levels, noise = torch.from_numpy(codes.T).long(), torch.from_numpy(z[:, :-1])
        wanted = vae.column_logits(sampler.column, levels, noise)
        assert sampler.table is None and sampler.latent.shape == (3, 0)
        np.testing.assert_allclose(sampler.logits(codes, z), wanted.numpy().T, atol=1e-6)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("parents", [PARENTS, ((),) * 5])
def test_the_samplers_logits_are_the_decoders(
    parents: tuple[tuple[int, ...], ...], direct: bool
) -> None:
    vae = random_network(SIZES, parents, ((0, 1), (1, 2, 3)), spread=1.0, direct=direct)
    with torch.no_grad():
        rng = np.random.default_rng(2)
        z = latents(2, 50, rng)
        codes = np.stack([rng.integers(0, s, 50) for s in SIZES]).astype(np.int32)
        for sampler in column_samplers(vae.architecture, arrays(vae.state_dict())):
            wanted = vae.column_logits(
                sampler.column, torch.from_numpy(codes.T).long(), torch.from_numpy(z[:, :-1])
            )
            got = sampler.logits(codes, z)
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, wanted.numpy().T, rtol=1e-4, atol=1e-5)


def test_rows_do_not_depend_on_the_number_of_threads_and_chunks_differ() -> None:
    made = synthesizer(model())
    one, three = (
        made.sample(4 * SETTINGS.chunk_rows + 7, rng=np.random.default_rng(5), threads=threads)
        for threads in (1, 3)
    )
    np.testing.assert_array_equal(one, three)
    assert not np.array_equal(
        one[: SETTINGS.chunk_rows], one[SETTINGS.chunk_rows : 2 * SETTINGS.chunk_rows]
    )


def test_endless_draws_can_be_left_at_any_time() -> None:
    endless = synthesizer(model()).draws(
        iter(lambda: 100, 0), rng=np.random.default_rng(1), threads=2
    )
    assert [next(endless)[0].shape for _ in range(5)] == [(100, 5)] * 5
    endless.close()


@pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
def test_levels_are_right_whatever_is_added_to_all_logits(shift: float) -> None:
    """Exponentials of +-300 are not finite: sums are taken another way there."""
    logits = np.repeat(np.array([[0.0], [1.0], [-2.0], [0.5]], np.float32), 40_000, 1)
    uniform = np.random.default_rng(3).random(40_000, dtype=np.float32)
    levels = levels_of(logits + np.float32(shift), uniform)
    shares = np.bincount(levels, minlength=4) / 40_000
    assert np.abs(shares - np.exp(log_softmax(logits)[:, 0])).max() < 0.01


def test_the_ends_of_the_uniform_stay_inside_the_levels_and_level_zero_of_no_probability_is_not_drawn() -> (  # noqa: E501
    None
):
    logits = np.repeat(np.array([[-np.inf], [0], [-np.inf], [0], [-np.inf]], np.float32), 4, 1)
    uniform = np.array([0.0, 0.25, 0.75, 1 - 2**-24], np.float32)
    assert levels_of(logits, uniform).tolist() == [1, 1, 3, 3]


def test_weights_of_evidence_give_the_conditional_law_that_rejection_gives() -> None:
    """Given a child and a cause; weights that forgot one factor fail."""
    made, rng = synthesizer(model()), np.random.default_rng(6)
    free = made.sample(600_000, rng=rng)
    kept = free[(free[:, 3] == 2) & (free[:, 0] == 1)]
    chunks = list(made.draws([100_000, 100_000], rng=rng, given={"d": 2, "a": 1}))
    codes, logs = (np.concatenate(part) for part in zip(*chunks, strict=True))
    weights = np.exp(logs.astype(np.float64))
    # the mean weight is the event's probability; without weights it is another law
    assert weights.mean() == pytest.approx(len(kept) / len(free), rel=0.03)
    expected = table(kept, np.ones(len(kept)))
    assert np.abs(table(codes, weights) - expected).sum() / 2 < 0.01
    assert np.abs(table(codes, np.ones(len(codes))) - expected).sum() / 2 > 0.05
    assert (codes[:, 3] == 2).all() and (codes[:, 0] == 1).all()


def test_evidence_under_an_intervention_is_weighed_by_the_changed_mechanisms() -> None:
    """do(b) cuts b from its causes, so b tells nothing about them; d, given, still does."""
    made, rng = synthesizer(model()), np.random.default_rng(7)
    forced = made.sample(400_000, rng=rng, do={"b": 1})
    kept = forced[forced[:, 3] == 0]
    ((codes, logs),) = made.draws([200_000], rng=rng, do={"b": 1}, given={"d": 0})
    found, wanted = table(codes, np.exp(logs.astype(np.float64))), table(kept, np.ones(len(kept)))
    assert np.abs(found - wanted).sum() / 2 < 0.01


def test_a_column_is_set_or_given_but_not_both_and_unknown_evidence_is_refused() -> None:
    made, rng = synthesizer(model()), np.random.default_rng(1)
    with pytest.raises(ValueError, match="column 'a' is set by do"):
        made.draws([1], rng=rng, do={"a": 1}, given={"a": 1})
    with pytest.raises(ValueError, match="given: unknown column 'x'"):
        made.draws([1], rng=rng, given={"x": 1})


def test_a_column_of_one_level_and_a_level_of_certain_evidence_weigh_nothing() -> None:
    vae = model()
    samplers = column_samplers(vae.architecture, arrays(vae.state_dict()))
    _, logs = draw(samplers, 10, do={}, given={4: 0}, rng=np.random.default_rng(1))
    assert Counter(logs.tolist()) == {0.0: 10}


# --- chances of a column given all others of a row, against the whole law ---


CELLS = np.stack(np.unravel_index(np.arange(int(np.prod(SIZES))), SIZES), 1).astype(np.uint16)


@torch.no_grad()
def law(vae: CausalVae) -> npt.NDArray[np.float64]:
    """Probability of every cell, z summed out over many draws."""
    z = torch.randn(20_000, len(vae.architecture.latent_of), generator=generator(2))
    found = []
    for cell in CELLS.astype(np.int64):
        codes = torch.from_numpy(cell).expand(len(z), -1)
        said = [
            vae.column_logits(c, codes, z).log_softmax(1)[:, cell[c]] for c in range(len(SIZES))
        ]
        found.append(float(torch.stack(said).sum(0).exp().mean()))
    return np.array(found).reshape(SIZES)


@pytest.mark.check
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(
    ("points", "off"), [(32, 0.1), pytest.param(4096, 0.01, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "latent_of", [((0, 1, 3),) * 2, ((0,), (3,)), ((0,),)], ids=["all", "each its own", "a alone"]
)
def test_chances_are_those_of_the_whole_law(
    latent_of: tuple[tuple[int, ...], ...],
    points: int,
    off: float,
    direct: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ancestral, "SETTINGS", ancestral.AncestralSettings(points=points))
    vae = model(latent_of, direct=direct)
    joint = law(vae)
    made = synthesizer(vae)
    for column, probabilities in enumerate(
        made.probabilities(CELLS, range(4), rng=np.random.default_rng(3))
    ):
        wanted = np.moveaxis(
            joint / joint.sum(column, keepdims=True), column, -1
        )  # [other columns, levels]
        others = np.delete(CELLS, column, axis=1)
        np.testing.assert_allclose(probabilities, wanted[tuple(others.T)], atol=off)


def test_what_was_drawn_again_counts_for_the_next_column() -> None:
    vae = model(((0, 1, 3),))
    made = synthesizer(vae)
    codes = CELLS.copy()
    each = made.probabilities(codes, [0, 1], rng=np.random.default_rng(4))
    next(each)
    codes[:, 0] = 1
    changed = CELLS.copy()
    changed[:, 0] = 1
    (wanted,) = made.probabilities(changed, [1], rng=np.random.default_rng(4))
    np.testing.assert_allclose(next(each), wanted, atol=0.06)
