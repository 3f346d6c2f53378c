"""The ablation varies what it says it varies, a cell without privacy has no noise, and what was
measured is not measured again.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import ablation
from benchmarks.ablation_cells import (
    ADULT_GROUPS,
    GRAPHS,
    ROOT,
    Cell,
    adult,
    release_of,
)
from benchmarks.adult_protocol import MODELS, score
from synthdp.audit import plan_at, without_privacy
from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.graph import CausalGraph
from synthdp.model.fit import measure
from synthdp.privacy.session import Rehearsal
from synthdp_attacks import Interval, difference

pytestmark = pytest.mark.check

ROWS = 2000


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.from_spec(adult().columns)


def graph_of(name: str, domain: Domain, *, seed: int = 0) -> CausalGraph:
    return CausalGraph.from_spec(
        release_of(adult(), Cell(graph=name), rows=ROWS, seed=seed).graph, domain.names
    )


def test_graphs_are_what_they_are_called(domain: Domain) -> None:
    arrows = {name: set(graph_of(name, domain).directed) for name in GRAPHS}
    given = arrows["given"]
    assert not arrows["none"]
    assert not arrows["learned"]  # before any row is looked at
    assert arrows["half"] < given
    assert len(arrows["half"]) == math.ceil(len(given) / 2)
    assert len(arrows["wrong"]) == len(given)
    assert len(arrows["wrong"] & given) < len(given) / 2
    for members in ADULT_GROUPS.values():  # inside a group nothing is claimed
        assert {(a, b) for a, b in arrows["groups"] if {a, b} <= set(members)} == {
            (a, b) for i, a in enumerate(members) for b in members[i + 1 :]
        }
    inside = {
        frozenset((a, b)) for members in ADULT_GROUPS.values() for a in members for b in members
    }
    assert {p for p in given if frozenset(p) not in inside} <= arrows["groups"]


def test_wrong_graphs_of_two_runs_differ(domain: Domain) -> None:
    assert graph_of("wrong", domain, seed=0) == graph_of("wrong", domain, seed=0)
    assert set(graph_of("wrong", domain, seed=0).directed) != set(
        graph_of("wrong", domain, seed=1).directed
    )


@pytest.mark.parametrize("graph", ["given", "learned"])
@pytest.mark.parametrize("tables", ["one-way", "pairs"])
def test_every_cell_at_epsilon_one_spends_that(graph: str, tables: str, domain: Domain) -> None:
    plan = plan_at(
        release_of(adult(), Cell(graph=graph, tables=tables), rows=ROWS, seed=0), domain, 1.0
    )
    assert 0.99 < plan.epsilon_spent <= 1
    assert (plan.find("pairs") is None) == (tables == "one-way")
    assert (plan.find("graph: pairs") is None) == (graph != "learned")


def test_pairs_that_no_choice_of_rows_uses_are_refused() -> None:
    with pytest.raises(SpecError, match="wasted"):
        release_of(adult(), Cell(sampling="raked"), rows=ROWS, seed=0)


def test_without_privacy_tables_are_exact_and_no_session_takes_the_plan(domain: Domain) -> None:
    plan = plan_at(release_of(adult(), Cell(epsilon=math.inf), rows=ROWS, seed=0), domain, math.inf)
    codes = np.stack(
        [np.random.default_rng(0).integers(0, size, ROWS) for size in domain.sizes], axis=1
    ).astype(np.uint16)
    for table in measure(Rehearsal(codes, domain, plan)).value:
        exact = np.zeros([domain.sizes[domain.index(c)] for c in table.columns])
        np.add.at(exact, tuple(codes[:, domain.index(c)] for c in table.columns), 1)
        np.testing.assert_array_equal(table.counts, exact)
    assert math.isinf(
        plan.epsilon
    )  # a session compares it with what is reserved, and no reservation is infinite


def test_without_privacy_training_differs_in_noise_and_clip_alone(domain: Domain) -> None:
    plan = plan_at(release_of(adult(), Cell(), rows=ROWS, seed=0), domain, 1.0)
    private, plain = (p.train for p in (plan, without_privacy(plan)))
    assert private is not None and plain is not None
    assert plain.noise < 1e-3 < private.noise
    same = ("rate", "steps", "expected_batch", "learning_rate", "ema")
    assert [getattr(plain, f) for f in same] == [getattr(private, f) for f in same]


def test_difference_of_two_intervals() -> None:
    gap = difference(Interval(0.5, 0.2, 0.9), Interval(0.1, -0.3, 0.4))
    assert gap.value == pytest.approx(0.4)
    assert (gap.lower, gap.upper) == (
        pytest.approx(0.4 - math.hypot(0.3, 0.3)),
        pytest.approx(0.4 + math.hypot(0.4, 0.4)),
    )


def test_summary_has_students_interval_over_runs() -> None:
    rows = [
        {**cell, "mean_auc": auc, "mean_f1": 0.5, "tv1": 0.1, "tv2": 0.2, "tv3": 0.3, "cpu_s": 1.0}
        for cell, auc in _three_runs()
    ]
    summary = ablation.summarised(pd.DataFrame(rows))
    assert summary["runs"].tolist() == [3, 1]
    assert summary["mean_auc"].tolist() == pytest.approx([0.8, 0.7])
    assert summary["mean_auc_pm"][0] == pytest.approx(4.3027 * 0.1 / math.sqrt(3), abs=1e-4)
    assert math.isnan(summary["mean_auc_pm"][1])


def _three_runs() -> Iterator[tuple[dict[str, object], float]]:
    for graph, auc in (("given", 0.7), ("given", 0.8), ("given", 0.9), ("none", 0.7)):
        yield {"graph": graph, "tables": "pairs", "sampling": "balanced", "epsilon": math.inf}, auc


@pytest.mark.slow
def test_quick_run_measures_each_cell_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ablation.main(["--quick", "--runs", "1", "--out", str(tmp_path)])
    quality, attack = (
        pd.read_csv(tmp_path / name) for name in ("ablation.csv", "ablation_attack.csv")
    )
    assert len(quality) == 2
    assert {1.0, math.inf} == set(quality["epsilon"])
    assert len(attack) == 2
    assert attack["advantage"].between(attack["advantage_lower"], attack["advantage_upper"]).all()
    assert attack["ceiling"].where(attack["epsilon"] == 1, 0).max() < 0.2
    assert (tmp_path / "ablation.png").stat().st_size > 10_000
    assert "'mean_auc'" in capsys.readouterr().out  # told as soon as it is measured

    quality.assign(mean_auc=0.123).to_csv(tmp_path / "ablation.csv", index=False)
    ablation.main(["--quick", "--runs", "1", "--out", str(tmp_path)])
    assert pd.read_csv(tmp_path / "ablation.csv")["mean_auc"].tolist() == [0.123] * 2
    assert len(pd.read_csv(tmp_path / "ablation_attack.csv")) == 2
    assert "'mean_auc'" not in capsys.readouterr().out


@pytest.mark.parametrize("others", [0, 1], ids=["one class", "one row of a second class"])
@pytest.mark.parametrize("where", ["synthetic", "test"])
def test_of_one_class_nothing_is_learned_and_its_share_is_right(
    where: str, others: int, domain: Domain
) -> None:
    """What a quick model draws may have one label only; a table to learn from, or to test on, may
    as well.
    """
    rows = pd.read_csv(
        ROOT / "specs" / "data" / "adult.csv", dtype=str, keep_default_na=False, nrows=600
    )
    labels, one = rows["income"], rows.assign(income=["<=50K"] * (600 - others) + [">50K"] * others)
    test, synthetic = (one, rows) if where == "test" else (rows, one)
    found = score(domain, rows, test, synthetic)
    if where == "synthetic":
        share = (labels == "<=50K").mean()
        assert {found[f"{name}_auc"] for name in MODELS} == {0.5} and found["mean_auc"] == 0.5
        assert {found[f"{name}_acc"] for name in MODELS} == {share} and found[
            "mean_acc"
        ] == pytest.approx(share)
        assert found["mean_f1"] == pytest.approx(
            share / (1 + share)
        )  # half of the first class's F1
    else:
        assert found["mean_acc"] > 0.5
        assert math.isnan(found["mean_auc"]) == (others == 0)


def test_gain_of_a_graph_is_told_with_welchs_interval() -> None:
    aucs = [
        ("given", 0.8),
        ("given", 0.9),
        ("given", 1.0),
        ("none", 0.7),
        ("none", 0.8),
        ("none", 0.9),
        ("wrong", 0.5),
    ]
    rows = [
        {
            "graph": g,
            "tables": "pairs",
            "sampling": "balanced",
            "epsilon": 1.0,
            "mean_auc": auc,
            "tv2": 1 - auc,
        }
        for g, auc in aucs
    ]
    told = list(ablation.gains(pd.DataFrame(rows)))
    assert len(told) == 2  # one run of `wrong` has no interval
    half = 2.7764 * math.sqrt(2 * 0.1**2 / 3)  # Student's t at four degrees of freedom
    assert f"+0.1000, 95% interval {0.1 - half:+.4f} to {0.1 + half:+.4f}" in told[0]
    assert told[1].startswith(
        "tv2, graph given less none (tables pairs, sampling balanced, epsilon 1.0): -0.1000"
    )


def test_differences_are_told_between_cells_that_differ_in_the_graph_alone() -> None:
    cells = [("given", 1.0, 0.1), ("none", 1.0, 0.3), ("given", math.inf, 0.9)]
    rows = [
        {
            "graph": g,
            "tables": "pairs",
            "sampling": "balanced",
            "epsilon": e,
            "pairs": 100,
            "advantage": a,
        }
        for g, e, a in cells
    ]
    attack = pd.DataFrame(
        [
            row
            | {"advantage_lower": row["advantage"] - 0.1, "advantage_upper": row["advantage"] + 0.1}
            for row in rows
        ]
    )
    told = list(ablation.differences(attack))
    assert len(told) == 1
    assert "graph given less none" in told[0]
    assert "-0.2000, 95% interval -0.3414 to -0.0586" in told[0]
