"""The sampler's distribution: the graph and nothing but it, interventions, raking, files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from synthdp.data import Domain
from synthdp.errors import VerifyError
from synthdp.graph import one_way_probabilities, project_to_simplex, smoothed
from synthdp.model import CausalVae, Synthesizer, arrays, rake, untrained
from synthdp.model.ancestral import Architecture
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Categorical
from tests.model.conftest import generator, synthesizer_of

# a -> b -> d, a -> c -> d, and e alone; b and c share no latent cause.
SIZES, PARENTS = (2, 3, 2, 4, 5), ((), (0,), (0,), (1, 2), ())
NAMES = ("a", "b", "c", "d", "e")
DOMAIN = Domain.from_spec(
    {
        n: Categorical(type="categorical", categories=tuple(f"{n}{i}" for i in range(s)))
        for n, s in zip(NAMES, SIZES, strict=True)
    }
)
EVERYWHERE = (tuple(range(5)),) * 2
NOWHERE = ((4,),) * 2  # z reaches e alone: b, c, d depend through arrows only


def model(
    latent_of: tuple[tuple[int, ...], ...] = EVERYWHERE, *, seed: int = 2, direct: bool = False
) -> CausalVae:
    """Large enough that every arrow matters, small enough that every level is drawn."""
    shape = Architecture(SIZES, PARENTS, latent_of, hidden=12, direct=direct)
    vae = CausalVae(shape, generator=generator(seed))
    with torch.no_grad():
        if direct:
            vae.get_buffer("direct").normal_(0, 0.5, generator=generator(seed))
        for p in vae.parameters():
            p.normal_(0, 0.5, generator=generator(seed + p.numel()))
        assert vae.decode_parents is not None
        vae.decode_parents.weight.mul_(4)  # what parents say outweighs all else
        vae.decode_latent.bias.zero_()
        vae.decode_levels.bias.zero_()
    return vae


def synthesizer(
    latent_of: tuple[tuple[int, ...], ...] = NOWHERE, *, seed: int = 2, direct: bool = False
) -> Synthesizer:
    vae = model(latent_of, seed=seed, direct=direct)
    return synthesizer_of(vae, NAMES)


def mutual_information(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> float:
    """Plug-in estimate less its bias for independence, in nats."""
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1)
    joint /= len(a)
    product = joint.sum(1, keepdims=True) * joint.sum(0)
    seen = joint > 0
    bias = (
        (np.count_nonzero(joint.sum(1)) - 1) * (np.count_nonzero(joint.sum(0)) - 1) / (2 * len(a))
    )
    return float((joint[seen] * np.log(joint[seen] / product[seen])).sum() - bias)


# --- the decoder ---


@pytest.mark.parametrize("direct", [False, True])
def test_a_columns_logits_move_with_its_parents_levels_and_with_no_other(direct: bool) -> None:
    vae = model(direct=direct)
    if direct:  # and the direct logits alone do so, too
        vae.get_parameter("decode_parents.weight").data.zero_()
    z = torch.randn(64, 2, generator=generator(5))
    codes = torch.stack([torch.randint(s, (64,), generator=generator(s)) for s in SIZES], 1)
    with torch.no_grad():
        before = vae.logits(codes, z)
        for moved, size in enumerate(SIZES):
            changed = codes.clone()
            changed[:, moved] = (codes[:, moved] + 1) % size
            difference = (
                (vae.logits(changed, z) - before).nan_to_num().abs().amax(2)
            )  # [batch, column]
            for column in range(5):
                assert bool(
                    (difference[:, column] > 0).all()
                    if moved in PARENTS[column]
                    else (difference[:, column] == 0).all()
                ), (moved, column)


def test_z_reaches_the_columns_that_it_is_declared_to_reach() -> None:
    latent_of = ((0, 1), (2, 3))
    vae = model(latent_of)
    z = torch.zeros(1, 2, requires_grad=True)
    codes = torch.zeros(1, 5, dtype=torch.long)
    for column in range(5):
        (slope,) = torch.autograd.grad(
            vae.logits(codes, z)[0, column, : SIZES[column]].square().sum(), z
        )
        assert [bool(s != 0) for s in slope[0]] == [column in reached for reached in latent_of]


def test_levels_that_a_column_does_not_have_get_no_probability() -> None:
    probabilities = (
        model().logits(torch.zeros(3, 5, dtype=torch.long), torch.zeros(3, 2)).softmax(2).detach()
    )
    for column, size in enumerate(SIZES):
        assert float(probabilities[:, column, size:].abs().sum()) == 0 and bool(
            probabilities[:, column, :size].min() > 0
        )


@pytest.mark.parametrize("direct", [False, True])
def test_one_columns_logits_are_those_of_all_columns(direct: bool) -> None:
    """Sampling reads one column at a time; training all at once."""
    vae = model(direct=direct)
    z = torch.randn(20, 2, generator=generator(6))
    codes = torch.stack([torch.randint(s, (20,), generator=generator(s)) for s in SIZES], 1)
    every = vae.logits(codes, z)
    for column, size in enumerate(SIZES):
        torch.testing.assert_close(
            vae.column_logits(column, codes, z), every[:, column, :size], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("groups", [None, [[0, 2], [1, 3, 4]]])
def test_the_training_loss_is_that_of_the_logits(
    direct: bool, groups: list[list[int]] | None
) -> None:
    """Cross entropy of all columns at the z that the noise makes, and the divergence of q."""
    shape = Architecture(SIZES, PARENTS, EVERYWHERE, hidden=12, direct=direct)
    vae = CausalVae(shape, generator=generator(1), groups=groups)
    with torch.no_grad():
        for p in vae.state_dict().values():
            p.normal_(0, 0.5, generator=generator(p.numel()))
        codes = torch.stack([torch.randint(s, (30,), generator=generator(s)) for s in SIZES], 1)
        noise = torch.randn(30, 2, generator=generator(6))
        mean, log_variance = vae.encode(codes)
        z = mean + noise * (log_variance / 2).exp()
        expected = (log_variance.exp() + mean.square() - 1 - log_variance).sum(1) / 2
        for column in range(5):
            logs = vae.column_logits(column, codes, z).log_softmax(1)
            expected -= logs.gather(1, codes[:, [column]]).squeeze(1)
        torch.testing.assert_close(vae(codes, noise), expected, rtol=1e-4, atol=1e-4)


def test_a_row_that_was_never_trained_starts_at_the_marginals() -> None:
    wanted = [np.full(s, 1 / s) for s in SIZES]
    wanted[3] = np.asarray([0.7, 0.1, 0.15, 0.05])
    vae = CausalVae(Architecture(SIZES, PARENTS, EVERYWHERE, hidden=8), generator=generator(1))
    vae.start_from(wanted)
    drawn = Synthesizer(NAMES, vae.architecture, arrays(vae.state_dict())).sample(
        20_000, rng=np.random.default_rng(1)
    )
    np.testing.assert_allclose(np.bincount(drawn[:, 3]) / 20_000, wanted[3], atol=0.02)


# --- the sample ---


def test_samples_follow_the_models_probabilities() -> None:
    """d given its parents against the softmax: one off, or one uniform for all, fails."""
    made = synthesizer()
    codes = made.sample(60_000, rng=np.random.default_rng(2)).astype(np.int64)
    vae = model(NOWHERE)
    for b in range(3):
        for c in range(2):
            rows = codes[(codes[:, 1] == b) & (codes[:, 2] == c)]
            given_parents = torch.tensor([[0, b, c, 0, 0]])
            expected = (
                vae.column_logits(3, given_parents, torch.zeros(1, 2))
                .softmax(1)[0]
                .detach()
                .double()
                .numpy()
            )
            if len(rows) > 500:
                tolerance = 4.5 * np.sqrt(expected * (1 - expected) / len(rows)) + 1e-3
                assert (
                    np.abs(np.bincount(rows[:, 3], minlength=4) / len(rows) - expected) < tolerance
                ).all()


def test_columns_are_independent_given_what_separates_them() -> None:
    """A monotone coupling (one uniform for all columns) makes b and c dependent given a."""
    codes = synthesizer().sample(40_000, rng=np.random.default_rng(3)).astype(np.int64)
    assert mutual_information(codes[:, 1], codes[:, 2]) > 0.003  # through a
    for a in range(2):
        rows = codes[codes[:, 0] == a]
        assert mutual_information(rows[:, 1], rows[:, 2]) < 0.0015
    for other in range(4):
        assert mutual_information(codes[:, 4], codes[:, other]) < 0.0015
    assert (
        mutual_information(codes[:-1, 1], codes[1:, 1]) < 0.0015
    )  # rows are independent of each other


def test_rows_are_drawn_with_fresh_z() -> None:
    """A shared z makes columns without any arrow dependent."""
    made = synthesizer(EVERYWHERE)
    codes = made.sample(30_000, rng=np.random.default_rng(4)).astype(np.int64)
    assert max(mutual_information(codes[:, 4], codes[:, i]) for i in range(4)) > 0.005


def test_do_cuts_the_causes_of_a_column_and_moves_its_effects_alone() -> None:
    made = synthesizer()
    free = made.sample(40_000, rng=np.random.default_rng(5)).astype(np.int64)
    forced = made.sample(40_000, rng=np.random.default_rng(6), do={"b": 2}).astype(np.int64)
    assert (forced[:, 1] == 2).all()
    for upstream in (0, 2, 4):  # causes, and what is not downstream, stay as they were
        np.testing.assert_allclose(
            np.bincount(forced[:, upstream], minlength=5) / 4e4,
            np.bincount(free[:, upstream], minlength=5) / 4e4,
            atol=0.02,
        )
    # Seeing b = 2 tells about a, and through it about c; forcing it does not.
    seen = free[free[:, 1] == 2]
    shift = abs(seen[:, 0].mean() - free[:, 0].mean())
    assert shift > 0.03 and abs(forced[:, 0].mean() - free[:, 0].mean()) < shift / 2
    for c in range(2):  # downstream follows its own mechanism
        a, b = (
            np.bincount(x[x[:, 2] == c][:, 3], minlength=4) / max(1, (x[:, 2] == c).sum())
            for x in (forced, seen)
        )
        if min((forced[:, 2] == c).sum(), (seen[:, 2] == c).sum()) > 1000:
            np.testing.assert_allclose(a, b, atol=0.06)


@pytest.mark.parametrize(
    ("do", "says"),
    [({"x": 0}, "unknown column 'x'"), ({"a": 2}, "levels 0 to 1, got 2"), ({"a": -1}, "got -1")],
)
def test_do_refuses_unknown_columns_and_levels(do: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        synthesizer().sample(3, rng=np.random.default_rng(1), do=do)


# --- marginals and raking ---


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.2, 0.8], [0.2, 0.8]),
        ([0.5, 1.5], [0.0, 1.0]),
        ([-0.1, 0.5, 0.6], [0.0, 0.45, 0.55]),
        ([1.0, 1.0, 1.0, 1.0], [0.25] * 4),
        ([-5.0], [1.0]),
        ([0.0, 0.0], [0.5, 0.5]),
        ([-3.0, -2.0], [0.0, 1.0]),
    ],
)
def test_projection_onto_the_simplex_in_closed_cases(
    values: list[float], expected: list[float]
) -> None:
    np.testing.assert_allclose(project_to_simplex(np.asarray(values)), expected, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.integers(0, 2**31))
def test_no_point_of_the_simplex_is_nearer_than_the_projection(
    values: list[float], seed: int
) -> None:
    v = np.asarray(values)
    p = project_to_simplex(v)
    assert p.min() >= 0 and abs(p.sum() - 1) < 1e-12
    others = np.random.default_rng(seed).dirichlet(np.full(len(v), 0.3), 50)
    assert (np.square(others - v).sum(1) >= np.square(p - v).sum() - 1e-9).all()


def test_noisy_tables_are_pooled_by_precision_before_they_are_normalised() -> None:
    """A table of many noisy cells says little about the total; the estimate leans on the others."""
    sure = NoisyTable(("a",), np.asarray([600.0, 400.0]), 1.0)
    wild = NoisyTable(("d",), np.asarray([900.0, 300.0, 200.0, 600.0]), 100.0)
    first, second = one_way_probabilities([sure, wild], [DOMAIN["a"], DOMAIN["d"]])
    np.testing.assert_allclose(first, [0.6, 0.4], atol=1e-3)
    np.testing.assert_allclose(
        second, project_to_simplex(np.asarray([0.9, 0.3, 0.2, 0.6])), atol=1e-3
    )
    assert smoothed(np.asarray([1.0, 0.0]), floor=0.1).tolist() == pytest.approx(
        [1 / 1.1, 0.1 / 1.1]
    )


def test_every_table_that_holds_a_column_speaks_on_it_by_its_precision() -> None:
    """The margin of two cells has twice the variance: the pair weighs half as much."""
    own = NoisyTable(("a",), np.asarray([600.0, 400.0]), 2.0)
    pair = NoisyTable(("b", "a"), np.asarray([[300.0, 150.0], [210.0, 340.0]]), 2.0)
    (found,) = one_way_probabilities([own, pair], [DOMAIN["a"]])
    np.testing.assert_allclose(
        found, np.asarray([(2 * 600 + 510) / 3, (2 * 400 + 490) / 3]) / 1000, atol=1e-12
    )
    (alone,) = one_way_probabilities([pair], [DOMAIN["b"]])
    np.testing.assert_allclose(alone, [0.45, 0.55], atol=1e-12)


def test_pooling_tables_lowers_the_error_as_their_precision_says() -> None:
    rng = np.random.default_rng(11)
    truth = np.asarray([5000.0, 3000.0, 2000.0])
    errors = []
    for _ in range(400):
        own = NoisyTable(("a",), truth + rng.normal(0, 60, 3), 60.0)
        pair = NoisyTable(
            ("a", "b"), np.stack([truth / 2] * 2, 1) + rng.normal(0, 30, (3, 2)), 30.0
        )
        errors.append(
            [
                one_way_probabilities(tables, [DOMAIN["a"]])[0] - truth / truth.sum()
                for tables in ([own], [own, pair])
            ]
        )
    alone, both = np.square(errors).sum((0, 2))
    assert both < 0.45 * alone  # 60^2 against 1 / (1 / 60^2 + 1 / (2 * 30^2)): a third


def test_raking_hits_its_targets_and_returns_rows_of_the_pool_only() -> None:
    rng = np.random.default_rng(7)
    pool = np.column_stack(
        [
            rng.choice(2, 20_000, p=[0.7, 0.3]),
            rng.choice(3, 20_000, p=[0.2, 0.5, 0.3]),
            rng.integers(0, 4, 20_000),
        ]
    ).astype(np.uint16)
    pool = pool[(pool[:, 0] == 0) | (pool[:, 2] < 3)]  # the cell (1, *, 3) is impossible
    targets = [np.asarray([0.4, 0.6]), np.asarray([0.5, 0.1, 0.4])]
    raked = rake(pool, targets, columns=[0, 1], rows=5_000, rng=rng)
    assert raked.shape == (5_000, 3)
    for column, target in zip((0, 1), targets, strict=True):
        np.testing.assert_allclose(
            np.bincount(raked[:, column], minlength=len(target)) / 5_000, target, atol=6e-3
        )
    assert not ((raked[:, 0] == 1) & (raked[:, 2] == 3)).any()
    assert mutual_information(pool[:, 0].astype(int), pool[:, 2].astype(int)) > 0.02
    assert (
        mutual_information(raked[:, 0].astype(int), raked[:, 2].astype(int)) > 0.02
    )  # dependence is kept


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 60))
def test_raking_never_fails_and_never_invents_a_row(seed: int, pool_rows: int, rows: int) -> None:
    """Targets that the pool lacks cannot be hit; what comes back is still the pool's."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 3, (pool_rows, 2)).astype(np.uint16)
    raked = rake(
        pool,
        [np.asarray([0.0, 0.5, 0.5]), rng.dirichlet(np.ones(3))],
        columns=[0, 1],
        rows=rows,
        rng=rng,
    )
    assert raked.shape == (rows, 2) and {tuple(r) for r in raked} <= {tuple(r) for r in pool}


# --- files ---


@pytest.mark.parametrize("direct", [False, True])
def test_a_saved_synthesizer_samples_as_before(tmp_path: Path, direct: bool) -> None:
    made = synthesizer(direct=direct)
    assert ("direct" in made.weights) is direct
    made.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
    again = Synthesizer.load(tmp_path)
    assert (again.columns, again.architecture) == (made.columns, made.architecture)
    a, b = (m.sample(200, rng=np.random.default_rng(8)) for m in (made, again))
    np.testing.assert_array_equal(a, b)
    assert untrained(DOMAIN, made.architecture).weights.keys() == made.weights.keys()


def test_a_model_that_was_saved_before_there_were_direct_logits_is_read(tmp_path: Path) -> None:
    """Its `model.json` does not name them, nor does that of a model without them today."""
    made = synthesizer()
    made.save(tmp_path)
    stated = json.loads((tmp_path / "model.json").read_text())["architecture"]
    assert set(stated) == {"sizes", "parents", "latent_of", "hidden"}
    assert not Synthesizer.load(tmp_path).architecture.direct


@pytest.mark.parametrize(
    ("direct", "change"),
    [
        (True, {"direct": 1}),
        (True, {"direct": "true"}),
        (True, {"direct": None}),
        (True, {"direct": False}),
        (False, {"direct": True}),
        (False, {"direct": 0}),
        (True, {"sizes": [2, 3, 2, 4, 6]}),
    ],
)
def test_a_model_that_states_its_direct_logits_wrongly_is_refused(
    direct: bool, change: dict[str, object], tmp_path: Path
) -> None:
    synthesizer(direct=direct).save(tmp_path)
    Synthesizer.load(tmp_path)
    architecture = json.loads((tmp_path / "model.json").read_text())["architecture"]
    _spoil_json(tmp_path, {"architecture": {**architecture, **change}})
    with pytest.raises(VerifyError):
        Synthesizer.load(tmp_path)


@pytest.mark.parametrize("shape", [(0, 5), (12, 4), (11, 5), (13, 5), (60,)])
def test_direct_logits_of_another_shape_or_kind_are_refused(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    made = synthesizer(direct=True)
    right = made.weights["direct"]
    wrong = [np.zeros(shape, np.float32), right.astype(float), np.full_like(right, np.nan)]
    assert right.shape == (9, 5)
    for weight in wrong:
        replace(made, weights={**made.weights, "direct": weight}).save(tmp_path)
        with pytest.raises(VerifyError):
            Synthesizer.load(tmp_path)


class Bomb:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (Path("exploded"),)


def _spoil_json(folder: Path, change: object) -> None:
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(
        json.dumps({**content, **change} if isinstance(change, dict) else change)
    )


def _spoilt(**change: object) -> Callable[[Path], object]:
    return lambda folder: _spoil_json(folder, {"architecture": ARCHITECTURE | change})


def _weights(content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(content(path.read_bytes()))

    return damage


ARCHITECTURE: dict[str, object] = {"sizes": SIZES, "parents": PARENTS, "latent_of": NOWHERE}
ARCHITECTURE |= {"hidden": 12}
DAMAGES: dict[str, Callable[[Path], object]] = {
    "pickle": lambda folder: torch.save({"x": Bomb()}, folder / "model.safetensors"),
    "cut": _weights(lambda content: content[:-40]),
    "empty": _weights(lambda content: b""),
    "shapes": lambda folder: _spoil_json(folder, {"shapes": {}}),
    "parents": _spoilt(parents=[[], [], [], [], []]),
    "cycle": _spoilt(parents=[[1], [0], [0], [1, 2], []]),
    "range": _spoilt(parents=[[], [7], [0], [1, 2], []]),
    "columns": lambda folder: _spoil_json(folder, {"columns": ["a", "b"]}),
    "list": lambda folder: _spoil_json(folder, [1, 2]),
    "sizes": _spoilt(sizes=[10**9, 3, 2, 4, 5]),
    "text": lambda folder: (folder / "model.json").write_text("{"),
    "gone": lambda folder: (folder / "model.safetensors").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_or_malicious_model_is_refused_and_nothing_in_it_runs(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synthesizer().save(tmp_path)
    _spoilt()(tmp_path)
    Synthesizer.load(tmp_path)
    DAMAGES[damage](tmp_path)
    with pytest.raises(VerifyError):
        Synthesizer.load(tmp_path)
    assert not (tmp_path / "exploded").exists()
