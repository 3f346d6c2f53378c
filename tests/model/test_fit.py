"""With next to no noise the pipeline learns what its graph allows, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from synthdp.data import Domain
from synthdp.graph import CausalGraph
from synthdp.model import Constraints, plan_for
from synthdp.model.fit import Fitted, architecture_for, causal_vae, fit, threads_for
from synthdp.model.sampling import drawn_last, sample
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.session import Rehearsal
from synthdp.spec import check
from synthdp.spec.model import Graph, ReleaseSpec
from tests.builders import build_spec, dp_sgd
from tests.model.conftest import quiet

ROWS = 3000


TWO = {"type": "categorical", "categories": ["n", "y"]}
COLUMNS = {"a": TWO, "b": TWO, "c": TWO, "d": {"type": "ordinal", "categories": ["l", "m", "h"]}}
SMALL = {"steps": 150, "batch": 256, "hidden": 16, "latent": 2, "learning_rate": 0.02, "ema": 0.9}


def release(graph: Graph, **sections: Any) -> ReleaseSpec:
    known = {"evaluation": {"enabled": False}, "attacks": {"membership": {"enabled": False}}}
    own = {"synthesizer": SMALL | sections.pop("synthesizer", {})} | known | sections
    return check(build_spec(COLUMNS, rows=ROWS, graph=graph, **own))


def table() -> npt.NDArray[np.uint16]:
    """b copies a in 95% of the rows; d is high where c is yes; the two pairs are independent."""
    rng = np.random.default_rng(3)
    a, c = rng.integers(0, 2, ROWS), (rng.random(ROWS) < 0.3).astype(np.int64)
    b = np.where(rng.random(ROWS) < 0.95, a, 1 - a)
    d = np.where(c == 1, 2, rng.choice(3, ROWS, p=[0.6, 0.3, 0.1]))
    return np.column_stack([a, b, c, d]).astype(np.uint16)


def nearly_noiseless(domain: Domain) -> ReleasePlan:
    """A plan that no accountant has seen; only a rehearsal takes it."""
    training = dp_sgd(
        **{"rate": 256 / ROWS, "steps": 150, "expected_batch": 256, "clip": 1.0},
        **{"noise_multiplier": 0.01, "learning_rate": 0.02, "checkpoint_every": 1000},
    )
    margins = NoisyMarginals(domain, tuple((name,) for name in domain.names), 0.5)
    return ReleasePlan(1000.0, 1e-5, "add_remove", 1, measure=margins, train=training)


def run(wanted: ReleaseSpec, **mechanisms: Any) -> tuple[Fitted, npt.NDArray[np.uint16], Rehearsal]:
    """What is fitted to the table, rows of it, and the rehearsal."""
    domain = Domain.from_spec(wanted.columns)
    plan = replace(nearly_noiseless(domain), **mechanisms)
    rehearsal = Rehearsal(table(), domain, plan)
    result = fit(rehearsal, wanted, domain, progress=quiet)
    rows = sample(result, wanted, rng=np.random.default_rng(4), progress=quiet).value
    return result, rows, rehearsal


def agreement(codes: npt.NDArray[np.uint16]) -> float:
    """Share of rows in which b is a; .5 would be no dependence."""
    return float((codes[:, 0] == codes[:, 1]).mean())


APART = (("c", "d"),)  # z is for c and d alone, so a and b can only depend through an arrow


@pytest.mark.check
def test_an_arrow_lets_a_dependence_be_learned() -> None:
    result, codes, _ = run(release(Graph(mode="given", edges=("a -> b",), latent=APART)))
    assert codes.shape == (ROWS, 4) and result.graph.graph.parents("b") == ("a",)
    assert agreement(codes) > 0.88
    assert abs(agreement(codes[:, [0, 2]]) - (0.5 * 0.7 + 0.5 * 0.3)) < 0.05  # a and c stay apart


@pytest.mark.check
def test_without_the_arrow_it_cannot_be_learned() -> None:
    _, codes, _ = run(release(Graph(mode="given", edges=("c -> d",), latent=APART)))
    assert abs(agreement(codes) - 0.5) < 0.05
    high_where_yes, high_where_no = (
        float((codes[codes[:, 2] == v, 3] == 2).mean()) for v in (1, 0)
    )
    assert high_where_yes > 0.85 and high_where_no < 0.25  # the arrow that is there was learned


@pytest.mark.check
def test_raked_marginals_are_the_tables_whatever_was_learned() -> None:
    _, codes, _ = run(release(Graph(mode="none")))
    for column in range(4):
        true, drawn = (np.bincount(x[:, column], minlength=3) / ROWS for x in (table(), codes))
        np.testing.assert_allclose(drawn, true, atol=0.02)


@pytest.mark.parametrize(("batch", "many"), [(64, False), (100_000, True)])
def test_small_steps_use_one_thread(
    batch: int, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    wanted = release(Graph(mode="none"))
    synthesizer = wanted.synthesizer.model_copy(update={"batch": batch})
    wanted = wanted.model_copy(update={"synthesizer": synthesizer})
    assert threads_for(wanted, Domain.from_spec(wanted.columns)) == (8 if many else 1)


@pytest.mark.check
def test_a_pair_that_is_measured_is_right_in_the_sample_though_the_model_cannot_know_it() -> None:
    """Without an arrow the model holds a and b apart; their measured table brings them together."""
    privacy = {"epsilon": 1.0, "delta": 1e-5, "pairs": [["b", "a"]]}
    privacy |= {"shares": {"measure": 0.2, "pairs": 0.2, "train": 0.6}}
    graph = Graph(mode="given", edges=("c -> d",), latent=APART)
    wanted = release(graph, privacy=privacy)
    domain = Domain.from_spec(wanted.columns)
    assert [s.purpose for s in plan_for(wanted, domain).spends] == ["measure", "pairs", "train"]
    result, codes, _ = run(wanted, pairs=NoisyMarginals(domain, (("b", "a"),), 0.5))
    assert [t.columns for t in result.tables.value] == [("a",), ("b",), ("c",), ("d",), ("b", "a")]
    assert agreement(codes) > 0.9


@pytest.mark.check
@pytest.mark.parametrize("arrows", [("a -> b", "c -> d"), ("c -> d",)])
def test_a_target_is_learned_from_its_causes_in_a_stage_of_its_own(arrows: tuple[str, ...]) -> None:
    """Without an arrow to it the network learns it as any other; its stage is left out."""
    shares = {"measure": 0.2, "targets": 0.3, "train": 0.5}
    wanted = release(
        Graph(mode="given", edges=("a -> b", "c -> d")),
        privacy={"epsilon": 1.0, "delta": 1e-5, "shares": shares},
        synthesizer={"targets": ["b"], "hidden": 8},
    )
    wanted = wanted.model_copy(update={"graph": Graph(mode="given", edges=arrows)})
    domain, both = Domain.from_spec(wanted.columns), len(arrows) == 2
    assert [s.purpose for s in plan_for(wanted, domain).spends] == ["measure", "targets", "train"]
    network = causal_vae(wanted, domain, CausalGraph.from_spec(wanted.graph, domain.names))
    decoded = sorted(i for group in network.groups for i in group)
    assert decoded == [i for i in range(4) if not both or i != domain.index("b")]
    stage = replace(nearly_noiseless(domain).train, clip=2.5, learning_rate=0.02)
    result, codes, rehearsal = run(wanted, targets=stage)
    assert rehearsal._used == {"measure", "train"} | ({"targets"} if both else set())
    assert agreement(codes) > 0.88 or not both
    latent = result.synthesizer.value.weights["decode_latent.weight"].reshape(4, 8, -1)
    assert bool((latent[domain.index("b")] == 0).all()) is both


@pytest.mark.parametrize(
    ("arrows", "constraints", "drawn"),
    [
        (("a -> b",), (), [1]),
        (("a -> b", "b -> c"), (), []),
        (("a -> b",), ("b != 'y' or a == 'y'",), []),
        (("c -> d",), (), []),
    ],
)
def test_targets_that_lead_to_nothing_and_that_no_constraint_reads_are_drawn_last(
    arrows: tuple[str, ...], constraints: tuple[str, ...], drawn: list[int]
) -> None:
    wanted = release(Graph(mode="given", edges=arrows)).model_copy(
        update={"constraints": constraints}
    )
    targets = wanted.synthesizer.model_copy(update={"targets": ("b",)})
    wanted = wanted.model_copy(update={"synthesizer": targets})
    domain = Domain.from_spec(wanted.columns)
    graph = CausalGraph.from_spec(wanted.graph, domain.names)
    architecture = architecture_for(wanted, domain, graph)
    constrained = Constraints.from_spec(wanted, domain)
    assert drawn_last(wanted, domain, architecture, constrained) == drawn
    evenly = wanted.sampling.model_copy(update={"even": ("d",)})
    evenly = wanted.model_copy(update={"sampling": evenly})
    assert drawn_last(evenly, domain, architecture, constrained) == [*drawn, 3]


def test_an_unseen_cause_of_a_group_reaches_its_columns() -> None:
    graph = Graph(mode="given", groups={"g": ("a", "b")}, edges=("c -> d",), latent=(("g", "c"),))
    wanted = release(graph)
    domain = Domain.from_spec(wanted.columns)
    network = causal_vae(wanted, domain, CausalGraph.from_spec(graph, domain.names))
    reached = {i for own in network.architecture.latent_of for i in own}
    assert {domain.names[i] for i in reached} == {"a", "b", "c"}
