"""The decoder is causally consistent: nothing reaches a column but its parents and z, and samples
say no less and no more.

The networks are published ones (see tests/graph/data/README.md) and graphs drawn at random.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats
from torch import Tensor

from benchmarks.bif import read_bif
from synthdp.data import builtin
from synthdp.graph import CausalGraph, GraphEdge
from synthdp.model import CausalVae, ancestral, arrays
from synthdp.model.ancestral import Architecture, column_samplers, levels_of
from tests.model.conftest import generator, synthesizer_of

DATA = Path(__file__).parents[1] / "graph" / "data"
NETWORKS = ("asia", "cancer", "earthquake", "survey", "sachs", "child", "alarm")


def random_graph(seed: int, nodes: int = 9, arrows: float = 0.35) -> CausalGraph:
    rng = np.random.default_rng(seed)
    order = [f"v{i}" for i in rng.permutation(nodes)]
    pairs = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :] if rng.random() < arrows]
    return CausalGraph(
        tuple(f"v{i}" for i in range(nodes)),
        tuple(GraphEdge(a, b, directed=True, provenance="given") for a, b in pairs),
    )


def graph_named(name: str) -> CausalGraph:
    if name in builtin.TABLES:
        return CausalGraph.from_spec(builtin.graph(name), tuple(builtin.frame(name).columns))
    return random_graph(int(name)) if name.isdigit() else read_bif(DATA / f"{name}.bif").graph()


def network(
    graph: CausalGraph,
    *,
    latent: tuple[tuple[str, ...], ...] = (),
    spread: float = 1.0,
    seed: int = 0,
    direct: bool = False,
) -> CausalVae:
    """Random weights; with no `latent`, z reaches the first column alone and binds nothing."""
    names, rng = graph.nodes, np.random.default_rng([seed, 7])
    place = {name: i for i, name in enumerate(names)}
    parents = tuple(tuple(place[p] for p in graph.parents(name)) for name in names)
    reached = tuple(tuple(place[n] for n in group) for group in latent) or ((0,),)
    vae = CausalVae(
        Architecture(
            tuple(int(s) for s in rng.integers(2, 4, len(names))), parents, reached, 8, direct
        ),
        generator=generator(1),
    )
    with torch.no_grad():
        for i, p in enumerate(vae.parameters()):
            p.normal_(0, spread, generator=generator(100 * seed + i))
        if direct:
            table = vae.get_buffer("direct")
            table.normal_(0, spread, generator=generator(seed))
    return vae


# --- what reaches a column ---


def relaxed_logits(vae: CausalVae, one_hot: Tensor, z: Tensor) -> Tensor:
    """`CausalVae.logits` of one row, differentiable in one-hot inputs `[columns, levels]`."""
    own, lookup = vae.architecture, vae.decode_parents
    assert lookup is not None
    hidden = vae.decode_latent(z).view(len(own.sizes), -1) + lookup.bias
    parts: list[list[Tensor]] = [[] for _ in own.sizes]
    for node, column, offset in zip(
        lookup.owner.tolist(), lookup.own_columns.tolist(), lookup.own_offsets.tolist(), strict=True
    ):
        rows = lookup.weight[offset : offset + own.sizes[column]]
        parts[node].append(one_hot[column, : len(rows)] @ rows)
    hidden = hidden + torch.stack([sum(p, torch.zeros(own.hidden)) for p in parts])
    logits = vae.decode_levels(torch.tanh(hidden).unsqueeze(0))[0]
    if own.direct:
        tables = torch.split(
            vae.get_buffer("direct"), [own.sizes[p] for parents in own.parents for p in parents]
        )
        parents = [(child, p) for child, all_ in enumerate(own.parents) for p in all_]
        for (child, parent), table in zip(parents, tables, strict=True):
            added = torch.zeros_like(logits)
            added[child] = one_hot[parent, : len(table)] @ table
            logits = logits + added
    return logits


def check_jacobian(vae: CausalVae, parents: tuple[tuple[int, ...], ...]) -> None:
    """The Jacobian of i's logits in the input of j is zero exactly where j is no parent."""
    own, rng = vae.architecture, np.random.default_rng(3)
    columns, levels = len(own.sizes), max(own.sizes)
    reached = torch.zeros(columns, columns, dtype=torch.bool)
    for _ in range(4):
        codes = torch.tensor([int(rng.integers(s)) for s in own.sizes])
        z = torch.randn(1, vae.latent, generator=generator(int(rng.integers(1000))))
        one_hot = torch.nn.functional.one_hot(codes, levels).float()
        exact = vae.logits(codes.unsqueeze(0), z)[0]
        relaxed = relaxed_logits(vae, one_hot, z)
        torch.testing.assert_close(
            relaxed[exact.isfinite()], exact[exact.isfinite()], rtol=1e-4, atol=1e-4
        )
        jacobian: Tensor = torch.autograd.functional.jacobian(
            lambda x, z=z: relaxed_logits(vae, x, z), one_hot
        )
        reached |= (jacobian != 0).any(3).any(1)
    expected = torch.zeros(columns, columns, dtype=torch.bool)
    for child, own_parents in enumerate(parents):
        expected[child, list(own_parents)] = True
    assert torch.equal(reached, expected), (reached ^ expected).nonzero().tolist()


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "direct"),
    [(name, False) for name in (*NETWORKS, "synthetic", "1", "2", "3")]
    + [("asia", True), ("child", True), ("1", True)],
)
def test_a_columns_logits_have_no_slope_in_any_column_but_its_parents(
    name: str, direct: bool, figure: Callable[..., None]
) -> None:
    vae = network(graph_named(name), direct=direct)
    check_jacobian(vae, vae.architecture.parents)
    figure("graphs whose decoder has no slope outside of a column's parents", 1, 1)


def test_a_weight_that_connects_another_column_is_seen() -> None:
    vae = network(graph_named("asia"))
    assert vae.decode_parents is not None
    check_jacobian(vae, vae.architecture.parents)
    child = int(vae.decode_parents.owner[0])
    stranger = next(
        c
        for c in range(8)
        if c != child
        and c not in vae.architecture.parents[child]
        and vae.architecture.sizes[c] == 2
    )
    vae.decode_parents.own_columns[0] = stranger
    with pytest.raises(AssertionError):
        check_jacobian(vae, vae.architecture.parents)


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "direct"),
    [("asia", False), ("alarm", False), ("pain1000", False), ("1", False)]
    + [("asia", True), ("alarm", True), ("1", True)],
)
def test_the_samplers_logits_stay_bit_by_bit_when_any_other_column_changes(
    name: str, direct: bool
) -> None:
    vae = network(graph_named(name), direct=direct)
    sizes, rng = vae.architecture.sizes, np.random.default_rng(4)
    codes = np.stack([rng.integers(0, s, 32) for s in sizes]).astype(np.int32)
    z = np.ones((32, vae.latent + 1), np.float32)
    for sampler in column_samplers(vae.architecture, arrays(vae.state_dict())):
        before = sampler.logits(codes, z)
        for other in range(len(sizes)):
            moved = codes.copy()
            moved[other] = (moved[other] + 1) % sizes[other]
            assert np.array_equal(sampler.logits(moved, z), before) is (
                other not in vae.architecture.parents[sampler.column]
            )


# --- what samples say ---


def p_value(
    x: npt.NDArray[np.uint16], y: npt.NDArray[np.uint16], strata: npt.NDArray[np.intp]
) -> float:
    """G-test of x and y within strata, those with too few rows for the chi-square left out."""
    statistic, freedom = 0.0, 0
    for s in np.unique(strata):
        rows = strata == s
        table = np.zeros((int(x.max()) + 1, int(y.max()) + 1))
        np.add.at(table, (x[rows], y[rows]), 1)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        if (
            min(table.shape) > 1
            and (table.sum(1, keepdims=True) * table.sum(0) / table.sum()).min() >= 10
        ):
            statistic += float(
                stats.chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
            )
            freedom += (table.shape[0] - 1) * (table.shape[1] - 1)
    return float(stats.chi2.sf(statistic, freedom)) if freedom else 1.0


def check_independences(
    graph: CausalGraph, codes: npt.NDArray[np.uint16], sizes: tuple[int, ...]
) -> int:
    """Every pair that columns d-separate is independent given them; how many were tested."""
    place = {name: i for i, name in enumerate(graph.nodes)}
    claims = [
        (a, b, graph.separator(a, b))
        for i, a in enumerate(graph.nodes)
        for b in graph.nodes[i + 1 :]
    ]
    tested = [(a, b, given) for a, b, given in claims if given is not None and len(given) <= 4]
    for a, b, given in tested:
        assert graph.d_separated(a, b, given)
        held = [place[n] for n in given]
        strata = (
            np.ravel_multi_index(
                tuple(codes[:, held].T.astype(np.intp)), tuple(sizes[i] for i in held)
            )
            if held
            else np.zeros(len(codes), np.intp)
        )
        assert p_value(codes[:, place[a]], codes[:, place[b]], strata) > 1e-4 / len(tested), (
            a,
            b,
            given,
        )
    return len(tested)


def drawn(vae: CausalVae, graph: CausalGraph, rows: int = 60_000) -> npt.NDArray[np.uint16]:
    return synthesizer_of(vae, graph.nodes).sample(rows, rng=np.random.default_rng(5))


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "direct"),
    [(n, False) for n in ("asia", "survey", "sachs", "synthetic", "1", "2", "3")]
    + [("asia", True), ("sachs", True)],
)
def test_what_the_graph_separates_is_independent_in_samples(
    name: str, direct: bool, figure: Callable[..., None]
) -> None:
    graph = graph_named(name)
    vae = network(graph, spread=0.6, seed=3, direct=direct)
    held = check_independences(graph, drawn(vae, graph), vae.architecture.sizes)
    assert held >= 5
    figure("implied independences that hold in samples", held, held)


def test_a_declared_latent_cause_binds_its_columns_alone() -> None:
    plain = graph_named("asia")
    graph = CausalGraph(plain.nodes, plain.edges, latent=(("asia", "smoke"),))
    vae = network(graph, latent=graph.latent, spread=1.0, seed=5)
    codes = drawn(vae, graph)
    check_independences(graph, codes, vae.architecture.sizes)
    with pytest.raises(AssertionError, match="asia"):
        check_independences(plain, codes, vae.architecture.sizes)


def test_columns_drawn_from_one_sorted_uniform_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each column's conditional shares are right, and independent columns are not so."""
    graph = graph_named("asia")
    vae = network(graph, spread=0.6, seed=3)
    free = drawn(vae, graph)

    def sorted_uniform(logits: npt.NDArray[np.float32], drawn: object) -> npt.NDArray[np.int32]:
        return levels_of(logits, np.linspace(0, 1 - 1e-6, logits.shape[1], dtype=np.float32))

    monkeypatch.setattr(ancestral, "levels_of", sorted_uniform)
    coupled = drawn(vae, graph)
    root = graph.nodes.index("smoke")
    assert (
        abs((coupled[:, root] == 1).mean() - (free[:, root] == 1).mean()) < 0.01
    )  # its own share is as it should be
    with pytest.raises(AssertionError):
        check_independences(graph, coupled, vae.architecture.sizes)
