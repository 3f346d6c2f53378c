"""The membership study: cells are what they are called, the page says what the figures say, and the
paper's split is shown for what it is.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import membership
from benchmarks.membership_cells import SURVEY_NODES, TABLES, Cell, cells, setting
from benchmarks.membership_text import effect, effects, findings, page
from synthdp_attacks import WhiteBox

pytestmark = pytest.mark.check


def arrows(graph: str, table: str = "synthetic") -> set[tuple[str, str]]:
    return set(setting(Cell(table, graph, 1.0), rows=60, steps=2).shadow.graph.directed)


def test_graphs_are_what_they_are_called() -> None:
    true, partial, wrong = (arrows(graph) for graph in ("complete", "partial", "wrong"))
    assert not arrows("none") and not arrows("learned")
    node = {name: group for group, members in SURVEY_NODES.items() for name in members}
    assert len(node) == 22 and {(a, b) for a, b in true if node[a] != node[b]} < partial
    assert len(wrong) == len(true) and len(wrong & true) < len(true) / 2


@pytest.mark.slow
def test_pains_partial_graph_is_half_of_its_arrows() -> None:
    half = arrows("partial", "pain1000")
    assert 2 * len(half) in (770, 771) and half < arrows("complete", "pain1000")


@pytest.mark.slow
def test_every_cell_spends_its_epsilon_and_keeps_the_papers_setting() -> None:
    for cell in (Cell("synthetic", "complete", 1.0), Cell("synthetic", "learned", math.inf)):
        own = setting(cell, steps=2)
        assert (
            (0.99 < own.shadow.plan.epsilon_spent <= 1)
            if cell.epsilon == 1
            else math.isinf(own.shadow.plan.epsilon)
        )
        made = own.shadow.spec
        assert len(own.rows) == 1000 and made.synthesizer.batch == 100 and not made.sampling.rake
        assert (own.shadow.plan.find("graph: pairs") is not None) == (cell.graph == "learned")
    assert [c.name for c in cells(["synthetic"])][:2] == [
        "synthetic-none-dp",
        "synthetic-complete-dp",
    ]
    assert {c.graph for c in cells(["pain1000"])} == set(TABLES["pain1000"].graphs)


@pytest.mark.slow
def test_a_learner_learns_from_its_rows_and_shows_all_it_releases() -> None:
    own = setting(Cell("synthetic", "learned", 1.0), rows=60, steps=2)
    released = own.shadow(own.rows, seed_sequence=np.random.SeedSequence(1))
    assert isinstance(released, WhiteBox) and set(released.scores) == {"elbo", "tables"}
    assert all(np.isfinite(score(own.rows[0])) for score in released.scores.values())


def line(graph: str, epsilon: float, advantage: float, **more: Any) -> dict[str, Any]:
    base = {
        "table": "synthetic",
        "graph": graph,
        "epsilon": epsilon,
        "rows": 1000,
        "pairs": 100,
        "steps": 200,
        "models": 50,
    }
    base |= {
        "ceiling": 0.1 if epsilon == 1 else math.nan,
        "split": membership.HONEST,
        "extractor": "elbo",
        "classifier": "lira_online",
    }
    base |= {
        "advantage": advantage,
        "advantage_lower": advantage - 0.2,
        "advantage_upper": advantage + 0.2,
        "pa": 0.5,
        "na": 0.25,
    }
    return (
        base
        | {
            "accuracy": (1 + advantage) / 2,
            "accuracy_lower": advantage / 2 + 0.4,
            "accuracy_upper": advantage / 2 + 0.6,
        }
        | more
    )


STUDY = pd.DataFrame(
    [
        line("none", math.inf, 0.9),
        line("complete", math.inf, 0.5),
        line("none", 1.0, 0.0),
        line("complete", 1.0, 0.1),
        line("none", 1.0, 0.96, split=membership.PAPERS, extractor="naive", classifier="knn"),
    ]
)


def test_the_page_says_what_the_figures_say() -> None:
    told = list(findings(STUDY))
    assert told[0].startswith("At epsilon 1, 0 of 2 intervals of advantage exclude 0")
    assert (
        told[1].startswith("Without privacy, 2 of 2 intervals")
        and "0.90 (0.70 to 1.10), elbo with lira_online, non-causal" in told[1]
    )
    assert (
        "accuracy up to 98%" in told[2]
        and "can exceed 55.0%; 1 of 1 intervals lie wholly above" in told[2]
    )
    assert "too narrow: they take the 20 sets of one model for 20 independent trials" in told[2]
    honest = STUDY[STUDY["split"] == membership.HONEST]
    lira = ("elbo", "lira_online")
    half = math.hypot(0.2, 0.2)
    assert (
        effect(honest, lira, ("none", math.inf), ("none", 1.0))
        == f"0.90 -> 0.00: **less**, by 0.90 ({0.9 - half:.2f} to {0.9 + half:.2f})"
    )
    assert "**less**" in effect(honest, lira, ("none", math.inf), ("complete", math.inf))
    assert "**more**" in effect(honest, lira, ("none", 1.0), ("none", math.inf))
    assert "not told apart" in effect(honest, lira, ("none", 1.0), ("complete", 1.0))
    assert not effect(honest, lira, ("none", 1.0), ("wrong", 1.0)) and "wrong" not in effects(STUDY)
    assert (
        "In bold are 3 of 4 differences, whose interval excludes 0 (chance alone: about 0.2, and"
        " since" in effects(STUDY)
    )
    text = page(STUDY)
    assert "| elbo | lira online | 50.0 | 50.0 | 25.0 | 95.0 | 50.0 | 25.0 |  |  |" in text
    assert (
        "**Not run** are 22 of 26 cells: synthetic-partial-dp, " in text
        and "synthetic-none-plain" not in text
    )
    assert (
        "| naive | knn |  |  |  |  |  |  | 98.0 |  |" in text
        and "50 test models in each world" in text
    )


def test_the_page_says_what_a_graph_takes_from_the_declared_attacks() -> None:
    black = [
        row | {"extractor": "targeted", "classifier": "random_forest"}
        for row in (line("none", 1.0, 0.6), line("complete", 1.0, 0.1))
    ]
    both = pd.concat([STUDY, pd.DataFrame(black)], ignore_index=True)
    (told,) = [
        words for words in findings(both) if "the complete one" in words
    ]  # without privacy one of the two attacks is missing
    assert (
        told.startswith("At epsilon 1, the advantage")
        and "black box 0.60 -> 0.10: **less**" in told
    )
    assert "white box 0.00 -> 0.10: not told apart" in told
    assert not any("the complete one" in words for words in findings(STUDY))


def test_cells_of_an_earlier_call_are_kept(tmp_path: Path) -> None:
    first, again = line("none", 1.0, 0.0), line("none", 1.0, 0.4)
    membership.write([first, line("none", math.inf, 0.9)], tmp_path)
    membership.write([again], tmp_path)
    kept = pd.read_csv(tmp_path / "membership.csv")
    assert (
        sorted(kept["advantage"]) == [0.4, 0.9]
        and (tmp_path / "membership.png").stat().st_size > 5_000
    )
    assert "0.90 -> 0.40" in (tmp_path / "membership.md").read_text()


@pytest.mark.slow
def test_a_quick_run_is_not_run_again_and_shows_the_papers_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [
        "--cells",
        "synthetic-none-dp",
        "--pairs",
        "8",
        "--rows",
        "60",
        "--steps",
        "2",
        "--workers",
        "1",
    ]
    call += ["--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    membership.main(call)
    study = pd.read_csv(tmp_path / "membership.csv")
    papers = study[study["split"] == membership.PAPERS]
    assert (
        len(study) == 5 * 5 + 2 * 2 + 5 * 5 and papers["accuracy"].max() > 0.9
    )  # at epsilon 1, where at most .55 is allowed
    assert "synthetic-none-dp: " in capsys.readouterr().out
    membership.main(call)
    assert capsys.readouterr().out == "" and pd.read_csv(tmp_path / "membership.csv").equals(study)
    with pytest.raises(SystemExit):
        membership.main(["--cells", "synthetic-odd-dp"])
