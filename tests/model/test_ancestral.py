"""The fast sampler: the decoder's arithmetic, any number of threads, weights of evidence."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.model.ancestral import (
    CHUNK_ROWS,
    column_samplers,
    draw,
    latents,
    levels_of,
    log_softmax,
)
from synthdp.model.architecture import Architecture
from synthdp.model.network import CausalVae
from synthdp.model.synthesizer import Synthesizer, arrays

SIZES, PARENTS = (2, 3, 2, 5, 1), ((2,), (0, 2), (), (0, 1, 2), (3,))
NAMES = ("a", "b", "c", "d", "e")  # c -> a -> b -> d, and e has one level


def model(latent_of: tuple[tuple[int, ...], ...] = ((0, 1, 3),) * 2) -> CausalVae:
    vae = CausalVae(
        Architecture(SIZES, PARENTS, latent_of, hidden=8),
        generator=torch.Generator().manual_seed(1),
    )
    with torch.no_grad():
        for i, p in enumerate(vae.parameters()):
            p.normal_(0, 0.7, generator=torch.Generator().manual_seed(i))
    return vae


def synthesizer(vae: CausalVae) -> Synthesizer:
    return Synthesizer(NAMES, vae.architecture, arrays(vae.state_dict()))


def table(
    codes: npt.NDArray[np.uint16], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Weighted share of each cell over all columns, flattened."""
    cell = np.ravel_multi_index(tuple(codes.T.astype(np.int64)), SIZES)
    return np.bincount(cell, weights=weights, minlength=int(np.prod(SIZES))) / weights.sum()


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("parents", [PARENTS, ((),) * 5])
def test_the_samplers_logits_are_the_decoders(
    parents: tuple[tuple[int, ...], ...], direct: bool
) -> None:
    vae = CausalVae(
        Architecture(SIZES, parents, ((0, 1), (1, 2, 3)), hidden=8, direct=direct),
        generator=torch.Generator().manual_seed(1),
    )
    with torch.no_grad():
        for p in vae.state_dict().values():
            p.normal_(0, 1, generator=torch.Generator().manual_seed(p.numel()))
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
        made.sample(4 * CHUNK_ROWS + 7, rng=np.random.default_rng(5), threads=threads)
        for threads in (1, 3)
    )
    np.testing.assert_array_equal(one, three)
    assert not np.array_equal(one[:CHUNK_ROWS], one[CHUNK_ROWS : 2 * CHUNK_ROWS])


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
    codes, weights = (
        np.concatenate([c for c, _ in chunks]),
        np.exp(np.concatenate([w for _, w in chunks]).astype(np.float64)),
    )
    assert weights.mean() == pytest.approx(
        len(kept) / len(free), rel=0.03
    )  # the mean weight is the event's probability
    expected = table(kept, np.ones(len(kept)))
    assert np.abs(table(codes, weights) - expected).sum() / 2 < 0.01
    assert (
        np.abs(table(codes, np.ones(len(codes))) - expected).sum() / 2 > 0.05
    )  # without weights it is another law
    assert (codes[:, 3] == 2).all() and (codes[:, 0] == 1).all()


def test_evidence_under_an_intervention_is_weighed_by_the_changed_mechanisms() -> None:
    """do(b) cuts b from its causes, so b tells nothing about them; d, given, still does."""
    made, rng = synthesizer(model()), np.random.default_rng(7)
    forced = made.sample(400_000, rng=rng, do={"b": 1})
    kept = forced[forced[:, 3] == 0]
    ((codes, logs),) = made.draws([200_000], rng=rng, do={"b": 1}, given={"d": 0})
    assert (
        np.abs(
            table(codes, np.exp(logs.astype(np.float64))) - table(kept, np.ones(len(kept)))
        ).sum()
        / 2
        < 0.01
    )


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
