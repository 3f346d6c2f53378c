"""The start of the network in mode predict: log-linear probabilities that meet the given tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from synthdp.data import ColumnDomain, Domain
from synthdp.graph import CausalGraph, GraphEdge, GraphResult
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.predict import PairTables, SmoothPair
from synthdp.model import CausalVae, LogLinear, Synthesizer, fit_log_linear
from synthdp.model.ancestral import Architecture
from synthdp.model.fit import architecture_for, assemble, build_start
from synthdp.model.row_selection import SETTINGS, pairs_to_follow
from synthdp.privacy.mechanisms.marginals import NoisyMarginals, NoisyTable
from synthdp.privacy.plan import MEASURE, ReleasePlan, needed
from synthdp.privacy.session import Rehearsal
from tests.builders import build_spec
from tests.model.conftest import generator, shares, synthesizer_of

Floats = npt.NDArray[np.float64]
SIZES, NAMES = (3, 4, 2, 5), ("a", "b", "c", "d")
PARENTS = ((), (0,), (0, 1), (0, 1, 2))


def domain_of(sizes: tuple[int, ...] = SIZES) -> Domain:
    return Domain(
        tuple(
            ColumnDomain(n, "categorical", tuple(f"{n}{i}" for i in range(s)), False)
            for n, s in zip(NAMES, sizes, strict=False)
        )
    )


def law(seed: int, parents: tuple[tuple[int, ...], ...] = PARENTS) -> Floats:
    """A Bayesian network whose conditionals are log-linear, as one table over all columns."""
    rng, joint = np.random.default_rng(seed), np.ones(SIZES)
    for column, own in enumerate(parents):
        logits = np.zeros(SIZES) + along(rng.normal(0, 1, SIZES[column]), column)
        for parent in own:
            weights = rng.normal(0, 1, (SIZES[parent], SIZES[column]))
            logits = logits + along(weights, parent, column)
        joint = joint * np.exp(logits) / np.exp(logits).sum(column, keepdims=True)
    return joint


def along(values: Floats, *axes: int) -> Floats:
    """`values` with their axes at the places of the columns `axes`, which ascend."""
    return values.reshape([values.shape[axes.index(k)] if k in axes else 1 for k in range(4)])


def onto(joint: Floats, *columns: int) -> Floats:
    return joint.sum(tuple(k for k in range(4) if k not in columns))


@dataclass(frozen=True)
class Exact(PairTables):
    """Tables without noise."""

    rows: float = 1.0
    margins: Mapping[str, Floats] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], SmoothPair] = field(default_factory=dict)
    sigmas: Mapping[tuple[str, str], float] = field(default_factory=dict)
    joint: Floats = field(default_factory=lambda: np.ones(SIZES))

    def has(self, first: str, second: str) -> bool:
        return True

    def table(self, first: str, second: str) -> Floats:
        i, j = NAMES.index(first), NAMES.index(second)
        table = onto(self.joint, i, j)
        return table if i < j else table.T


def exact(joint: Floats) -> Exact:
    return Exact(margins={n: onto(joint, k) for k, n in enumerate(NAMES)}, joint=joint)


def fitted(
    joint: Floats, parents: tuple[tuple[int, ...], ...] = PARENTS
) -> tuple[Architecture, LogLinear]:
    shape = Architecture(SIZES, parents, ((0,),), 4, direct=True)
    rng = np.random.default_rng(1)
    return shape, fit_log_linear(shape, domain_of(), exact(joint), rows=6000, rng=rng)


def synthesizer(shape: Architecture, start: LogLinear) -> Synthesizer:
    """A network that says what the log-linear model says, and nothing else."""
    vae = CausalVae(shape, generator=generator(0))
    vae.start_from_tables(start.direct, start.biases)
    with torch.no_grad():
        vae.decode_levels.weight.zero_()
    return synthesizer_of(vae, NAMES)


def tables_of(codes: npt.NDArray[np.uint16]) -> Iterator[tuple[int, int, Floats]]:
    for i, j in combinations(range(4), 2):
        counts = np.zeros((SIZES[i], SIZES[j]))
        np.add.at(counts, (codes[:, i], codes[:, j]), 1)
        yield i, j, counts / len(codes)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.check)])
def test_rows_of_the_model_have_the_tables_that_were_given(seed: int) -> None:
    """Total variation below .015, .008 on average (found .010, .006); independent: .09."""
    joint = law(seed)
    codes = synthesizer(*fitted(joint)).sample(100_000, rng=np.random.default_rng(9), threads=1)
    apart = [np.abs(t - onto(joint, i, j)).sum() / 2 for i, j, t in tables_of(codes)]
    assert max(apart) < 0.015 and np.mean(apart) < 0.008
    product = [
        np.abs(np.outer(onto(joint, i), onto(joint, j)) - onto(joint, i, j)).sum() / 2
        for i, j in combinations(range(4), 2)
    ]
    assert np.mean(product) > 0.08


@pytest.mark.check
def test_the_order_of_columns_does_not_matter() -> None:
    """d comes first, and a last, which has all others as parents."""
    joint, parents = law(4), ((1, 2, 3), (3,), (1, 3), ())
    codes = synthesizer(*fitted(joint, parents)).sample(
        100_000, rng=np.random.default_rng(9), threads=1
    )
    assert max(np.abs(t - onto(joint, i, j)).sum() / 2 for i, j, t in tables_of(codes)) < 0.02


def test_a_column_without_parents_has_its_margin() -> None:
    joint = law(2)
    shape, start = fitted(joint, ((), (), (), ()))
    assert start.direct.shape == (0, 5)
    for column in range(4):
        share = start.biases[column].softmax(0).double().numpy()
        np.testing.assert_allclose(share, onto(joint, column), atol=1e-6)
    codes = synthesizer(shape, start).sample(100_000, rng=np.random.default_rng(3), threads=1)
    for i, j, table in tables_of(codes):
        product = np.outer(onto(joint, i), onto(joint, j))
        assert np.abs(table - product).sum() / 2 < 0.015


def test_weights_that_change_nothing_do_not_grow() -> None:
    """A parent's margin in drawn rows is not quite its table's: the ridge holds weights."""
    shape, start = fitted(law(0))
    for column in range(1, 4):
        rows = shape.rows_of(column)
        common = start.direct[rows.start : rows.stop, : SIZES[column]].mean(1)
        assert float(common.abs().max()) < 0.5


@pytest.mark.check
def test_levels_that_a_column_lacks_have_no_weights() -> None:
    shape, start = fitted(law(1))
    for column, size in enumerate(SIZES):
        rows = shape.rows_of(column)
        assert not start.direct[rows.start : rows.stop, size:].any()
        assert len(start.biases[column]) == size


@pytest.mark.check
def test_empty_levels_and_columns_of_one_level_do_no_harm() -> None:
    joint = law(3)
    joint[:, 2] = 0  # a level of b that nobody has
    joint /= joint.sum()
    shape, start = fitted(joint)
    assert bool(start.direct.isfinite().all())
    codes = synthesizer(shape, start).sample(50_000, rng=np.random.default_rng(3), threads=1)
    assert (codes[:, 1] == 2).mean() < 1e-3
    assert max(np.abs(t - onto(joint, i, j)).sum() / 2 for i, j, t in tables_of(codes)) < 0.02


# --- its place in a release ---


def start_of(
    targets: tuple[str, ...],
    arrows: tuple[str, ...],
    *,
    mode: str = "predict",
    pairs: Sequence[tuple[str, ...]] = (),
) -> tuple[Synthesizer, Floats]:
    """The untrained synthesizer of a spec, and the law behind its tables."""
    joint, rows = law(5), 20_000
    spec = build_spec(
        {n: {"type": "categorical", "categories": domain_of()[n].labels} for n in NAMES},
        rows=rows,
        graph={"mode": mode},
        privacy={"epsilon": 1.0, "delta": 1e-6, "pairs": pairs},
        synthesizer={"targets": targets, "batch": 256, "hidden": 8},
        sampling={"rake": False},
    )
    domain = Domain.from_spec(spec.columns)
    codes = np.stack(
        np.unravel_index(np.random.default_rng(0).choice(joint.size, rows, p=joint.ravel()), SIZES),
        1,
    ).astype(np.uint16)
    tables = (*((n,) for n in NAMES), *combinations(NAMES, 2))
    plan = ReleasePlan(1000.0, 1e-5, "add_remove", 1, measure=NoisyMarginals(domain, tables, 0.5))
    releaser = Rehearsal(codes, domain, plan)
    measured = releaser.release(needed(plan.measure, MEASURE), purpose=MEASURE)
    edges = tuple(GraphEdge(a, b, directed=True, provenance="predictive") for a, b in arrows)
    result = GraphResult(CausalGraph(NAMES, edges))
    start = build_start(spec, domain, measured, result)
    assert start.architecture == architecture_for(spec, domain, result.graph)
    with torch.no_grad():
        for _, layer in start.network.decoders():
            layer.weight.zero_()
    heads = None
    if start.regression:
        state = {k: v.detach().clone() for k, v in start.regression.named_parameters()}
        heads = measured.map(lambda _: state)
    return assemble(start, spec, start.untrained(), heads).value, joint


ARROWS = ("ab", "ac", "bc", "ad", "bd", "cd")


@pytest.mark.check
def test_a_release_that_does_not_train_has_the_tables() -> None:
    made, joint = start_of((), ARROWS)
    codes = made.sample(100_000, rng=np.random.default_rng(3), threads=1)
    assert max(np.abs(t - onto(joint, i, j)).sum() / 2 for i, j, t in tables_of(codes)) < 0.03


@pytest.mark.parametrize("target", ["b", *(pytest.param(n, marks=pytest.mark.check) for n in "ad")])
def test_targets_with_a_stage_of_their_own_leave_the_other_columns_tables_as_they_are(
    target: str,
) -> None:
    """The trained network has no parents of the target, the synthesizer all of them."""
    made, joint = start_of((target,), ARROWS)
    assert {k: tuple(v.shape) for k, v in made.weights.items()} == made.architecture.shapes()
    assert made._whole()
    own = made.architecture.rows_of(NAMES.index(target))
    assert not made.weights["direct"][own.start : own.stop].any()
    codes = made.sample(100_000, rng=np.random.default_rng(3), threads=1)
    before = [(i, j, t) for i, j, t in tables_of(codes) if j < NAMES.index(target)]
    for i, j, table in before:
        assert np.abs(table - onto(joint, i, j)).sum() / 2 < 0.03


def test_without_any_arrow_there_are_no_direct_rows() -> None:
    made, joint = start_of((), ())
    assert made.weights["direct"].shape == (0, 5) and made._whole()
    codes = made.sample(50_000, rng=np.random.default_rng(3), threads=1)
    for column in range(4):
        share = shares(codes, column, SIZES[column])
        np.testing.assert_allclose(share, onto(joint, column), atol=0.015)


@pytest.mark.check
def test_a_causal_model_whose_arrows_are_measured_starts_from_them() -> None:
    """And from nothing else that is measured: no slope outside a column's parents."""
    arrows = ("ab", "bc", "bd")
    made, joint = start_of((), arrows, mode="given", pairs=list(combinations(NAMES, 2)))
    assert made.architecture.direct and made.architecture.parents == ((), (0,), (1,), (1,))
    codes = made.sample(200_000, rng=np.random.default_rng(3), threads=1)
    found = {(i, j): t for i, j, t in tables_of(codes)}
    for pair in ((0, 1), (1, 2), (1, 3)):
        assert np.abs(found[pair] - onto(joint, *pair)).sum() / 2 < 0.03
    for level in range(SIZES[1]):  # c and d, given b
        rows = codes[codes[:, 1] == level]
        table = np.histogram2d(
            rows[:, 2], rows[:, 3], (np.arange(SIZES[2] + 1), np.arange(SIZES[3] + 1))
        )[0]
        share = table / table.sum()
        assert np.abs(share - np.outer(share.sum(1), share.sum(0))).sum() / 2 < 0.03
    forced = made.sample(100_000, rng=np.random.default_rng(4), threads=1, do={"b": 0})
    wanted = onto(joint, 1, 2)[0] / onto(joint, 1)[0]
    share = shares(forced, 2, SIZES[2])
    np.testing.assert_allclose(share, wanted, atol=0.03, err_msg="an effect follows")
    share = shares(forced, 0, SIZES[0])
    np.testing.assert_allclose(share, onto(joint, 0), atol=0.02, err_msg="a cause does not")


@pytest.mark.parametrize("pairs", [[], ["ab", "bc"], ["ab", "bc", "ac"]])
def test_other_causal_models_start_from_columns_alone(pairs: list[str]) -> None:
    made, _ = start_of((), ("ab", "bc", "bd"), mode="given", pairs=[tuple(p) for p in pairs])
    assert not made.architecture.direct and "direct" not in made.weights


def test_rows_are_held_to_smoothed_tables_where_the_model_started_from_them() -> None:
    domain, joint = domain_of(), law(0)
    rng = np.random.default_rng(2)
    measured = [
        NoisyTable(names, 5000 * onto(joint, *map(NAMES.index, names)), 20.0)
        for names in (*((n,) for n in NAMES), ("a", "b"))
    ]
    independent = np.outer(onto(joint, 2), onto(joint, 3)) * 5000 + rng.normal(0, 20, (2, 5))
    measured.append(NoisyTable(("c", "d"), independent, 20.0))
    raw = pairs_to_follow(LevelLaw.of_tables(measured, domain), smooth=False)
    smooth = pairs_to_follow(LevelLaw.of_tables(measured, domain), smooth=True)
    assert {m.columns for m in raw} == {(0, 1), (2, 3)}
    assert [(m.columns, m.sigma) for m in smooth] == [((0, 1), SETTINGS.little)]
    assert smooth[0].counts.sum() == pytest.approx(5000, rel=0.05)


@pytest.mark.parametrize("parents", [PARENTS, ((), (0,), (), (1, 2))], ids=["all", "some"])
def test_columns_that_are_missing_together_are_so_in_rows(
    parents: tuple[tuple[int, ...], ...],
) -> None:
    """a, b and d are missing together. Found: no row has only some of them."""
    joint = law(5, parents)
    a, b, d = (along(np.arange(SIZES[k]) == SIZES[k] - 1, k) for k in (0, 1, 3))
    joint = np.where((a == b) & (b == d), joint, 0)
    joint /= joint.sum()
    tables = replace(exact(joint), patterns=(("a", "b", "d"),))
    shape = Architecture(SIZES, parents, ((0,),), 4, direct=True)
    start = fit_log_linear(shape, domain_of(), tables, rows=6000, rng=np.random.default_rng(1))
    codes = synthesizer(shape, start).sample(100_000, rng=np.random.default_rng(9), threads=1)
    missing = codes[:, [0, 1, 3]] == np.array([SIZES[k] - 1 for k in (0, 1, 3)])
    assert (missing.any(1) & ~missing.all(1)).mean() < 1e-4
    assert missing.all(1).mean() == pytest.approx(onto(joint, 0)[-1], abs=0.005)
    near = {(i, j): np.abs(t - onto(joint, i, j)).sum() / 2 for i, j, t in tables_of(codes)}
    assert near[0, 1] < 0.02 and near[1, 3] < 0.02
