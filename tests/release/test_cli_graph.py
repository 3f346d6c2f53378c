"""`synthdp graph`: what it shows, writes and compares, and what learning or validating alone
reserves, spends and leaves behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from synthdp.graph.formats import read_graph
from synthdp.privacy import accounting
from synthdp.privacy.events.kinds import event_from_json
from synthdp.privacy.session import Session
from synthdp.release import graph_only as graph_run
from synthdp.release.run_folder import RunFolder
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import Graph
from tests.builders import skeleton

pytestmark = pytest.mark.check

DATA = Path(__file__).parents[1] / "graph" / "data"
STRONG = {
    "epsilon": 20.0,
    "shares": {"measure": 0.2, "graph": 0.5, "train": 0.3},
    "cap": {"epsilon": 40.0},
}


@pytest.fixture
def graph_out(tiny: Any) -> Path:
    return Path(tiny.folder) / "graph-out"


# --- show and diff ---


def test_show_a_spec_a_bundle_and_a_file(released: Any, synthdp: Any) -> None:
    for source in (released.spec, released.bundle, released.bundle / "graph.json"):
        done = synthdp("graph", "show", source)
        assert done.code == 0
        assert "6 columns, 4 arrows" in done.out
        assert "sex -> smoker" in done.out
        assert "given" in done.out
    assert "8 columns, 8 arrows" in synthdp("graph", "show", DATA / "asia.bif").out


def test_show_and_diff_a_spec_whose_categories_lie_in_a_file(tmp_path: Path, synthdp: Any) -> None:
    listed = {"type": "categorical", "categories": {"file": "regions.txt"}}
    age = {"type": "integer", "lower": 0, "upper": 99}
    graph = {"mode": "given", "edges": ["region -> age"]}
    content = skeleton() | {"columns": {"region": listed, "age": age}, "graph": graph}
    content["privacy"] = {"epsilon": 1, "delta": 1e-5}
    spec = tmp_path / "regions.yaml"
    spec.write_text(json.dumps(content))
    (tmp_path / "regions.txt").write_text("north\nsouth\n")
    assert "region -> age" in synthdp("graph", "show", spec).out
    assert synthdp("graph", "diff", spec, spec).code == 0


def test_show_what_is_around_a_column(synthdp: Any) -> None:
    near = synthdp("graph", "show", DATA / "asia.bif", "--around", "xray")
    assert near.code == 0 and "2 columns, 1 arrow" in near.out and "either -> xray" in near.out
    wider = synthdp("graph", "show", DATA / "asia.bif", "--around", "xray", "--depth", "2")
    assert "either -> dysp" in wider.out and "smoke -> bronc" not in wider.out
    wrong = synthdp("graph", "show", DATA / "asia.bif", "--around", "xrai")
    assert wrong.code != 0 and "no column 'xrai'" in wrong.err and "xray" in wrong.err


@pytest.mark.parametrize("form", ["yaml", "dot", "dagitty", "json"])
def test_convert_to_a_file_and_back(tmp_path: Path, synthdp: Any, form: str) -> None:
    out = tmp_path / f"asia.{form}"
    done = synthdp("graph", "show", DATA / "asia.bif", "--format", form, "--out", out)
    assert done.code == 0 and done.out == "" and "wrote" in done.err
    assert set(read_graph(out).directed) == set(read_graph(DATA / "asia.bif").directed)
    assert synthdp("graph", "show", DATA / "asia.bif", "--format", form).out == out.read_text()


def test_a_picture(released: Any, synthdp: Any) -> None:
    root = ElementTree.fromstring(synthdp("graph", "show", released.bundle, "--format", "svg").out)
    assert [t for t in root.iter("{http://www.w3.org/2000/svg}text") if t.text == "smoker"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.dot", "digraph {\n a -> }"),
        ("x.yaml", "graph:\n  edges: [a -> b, b -> a]"),
        ("x.txt", ""),
        ("x.json", "["),
    ],
)
def test_files_that_are_no_graphs_exit_2_with_their_line(
    tmp_path: Path, synthdp: Any, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    done = synthdp("graph", "show", tmp_path / name)
    assert done.code == 2
    assert name in done.err
    assert "hint" in done.err
    assert done.out == ""
    assert "internal" not in done.err


def test_diff(tmp_path: Path, synthdp: Any) -> None:
    text = synthdp("graph", "show", DATA / "asia.bif", "--format", "dot").out
    other, svg = tmp_path / "other.dot", tmp_path / "both.svg"
    other.write_text(
        text.replace('"asia" -> "tub"', '"tub" -> "asia"').replace(
            '"smoke" -> "lung"', '"asia" -> "lung"'
        )
    )
    done = synthdp("graph", "diff", DATA / "asia.bif", other, "--svg", svg)
    assert done.code == 0 and "6 links in common, 1 added, 1 removed, 1 turned" in done.out
    assert "asia -> tub  is now  tub -> asia" in done.out
    assert "structural Hamming distance 3, F1 of arcs 0.750" in done.out
    words = {t.text for t in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"in both", "added", "removed", "turned, as it is now"} <= words
    told = json.loads(synthdp("graph", "diff", DATA / "asia.bif", other, "--json").out)
    assert (told["hamming_distance"], told["common"], told["same"]) == (3, 6, False)
    assert json.loads(synthdp("graph", "diff", other, other, "--json").out)["same"] is True


def test_diff_of_graphs_that_cannot_stand_together_still_draws(
    tmp_path: Path, synthdp: Any
) -> None:
    one, other = tmp_path / "a.dot", tmp_path / "b.dot"
    one.write_text("digraph { a -> b -> c }")
    other.write_text("digraph { c -> a x }")
    done = synthdp("graph", "diff", one, other, "--svg", tmp_path / "c.svg")
    assert done.code == 0 and "only in after: x" in done.out
    ElementTree.parse(tmp_path / "c.svg")


def test_show_starts_at_once_and_imports_nothing_that_reads_rows() -> None:
    probe = (
        "import sys; sys.argv = ['synthdp', 'graph', 'show', sys.argv[1]]\nfrom synthdp.cli.main"
        " import main\nmain()\n"
    )
    probe += (
        "print([m for m in ('torch', 'opacus', 'mlflow', 'sklearn', 'sqlalchemy') if m in"
        " sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(DATA / "asia.bif")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stderr.strip() == "[]"


# --- learn and validate ---


def test_learn_spends_the_graphs_share_and_its_yaml_can_be_pasted(
    tiny: Any, modes: Mapping[str, Any], synthdp: Any, graph_out: Path
) -> None:
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    done = synthdp("graph", "learn", tiny.spec, "--out", graph_out)
    assert done.code == 0
    assert "10 reserved (the graph's share)" in done.out
    assert "sex -> smoker" in done.out
    assert tiny.kinds()[:2] == ["cap", "reserve"]
    assert tiny.kinds()[-1] == "settle"
    assert "charge" in tiny.kinds()
    entries = tiny.ledger.entries()
    reserved = next(e.body for e in entries if e.kind == "reserve")
    events = [event_from_json(e.body["event"]) for e in entries if e.kind == "charge"]
    spent = accounting.epsilon(events, delta=reserved["delta"], adjacency="add_remove")
    assert (reserved["epsilon"], reserved["delta"]) == (10.0, 5e-6) and 9 < spent <= 10
    written = json.loads((graph_out / "graph.json").read_text())
    assert written["privacy"]["epsilon_spent"] == pytest.approx(spent)
    assert not (graph_out / ".run").exists()
    assert written["privacy"]["ledger_entries"] == [e.hash for e in entries if e.kind == "charge"]
    ElementTree.parse(graph_out / "graph.svg")
    section = yaml.safe_load((graph_out / "graph.yaml").read_text())["graph"]
    assert Graph.model_validate(section).pairs()
    tiny.write(graph=section)
    assert set(load_spec(tiny.spec).graph.pairs()) == set(
        read_graph(graph_out / "graph.json").directed
    )


def test_validate_prints_every_claim_with_what_it_could_have_seen(
    tiny: Any, synthdp: Any, graph_out: Path
) -> None:
    tiny.write(
        graph={"mode": "validate", "edges": ["sex -> smoker", "grade -> visits"]}, privacy=STRONG
    )
    done = synthdp("graph", "validate", tiny.spec, "--out", graph_out, "--json")
    told = json.loads(done.out)
    assert done.code == 0 and told["folder"] == str(graph_out) and told["refused"] is False
    found = {(f["x"], f["y"]): f for f in told["validation"]["findings"]}
    assert found["sex", "smoker"]["status"] == "supported"
    assert found["sex", "smoker"]["smallest_detectable_effect"] is not None
    assert json.loads((graph_out / "graph.json").read_text())["validation"] == told["validation"]
    text = synthdp("graph", "validate", tiny.spec, "--out", graph_out).out
    assert "supported   sex -> smoker" in text and "smallest detectable 0." in text


def test_a_refuted_graph_exits_4_where_the_spec_says_fail(
    tiny: Any, synthdp: Any, graph_out: Path
) -> None:
    tiny.write(
        graph={"mode": "validate", "edges": ["grade -> visits"], "on_refuted": "fail"},
        privacy=STRONG,
    )
    done = synthdp("graph", "validate", tiny.spec, "--out", graph_out)
    assert done.code == 4
    assert "refuted by the noisy tables: sex independent of smoker" in done.err
    assert "is spent, and another run pays again" in done.err
    assert tiny.kinds()[-1] == "settle"
    found = json.loads((graph_out / "graph.json").read_text())["validation"]
    assert found["counts"]["independence"]["refuted"] >= 1


def test_another_mode_is_refused_and_nothing_is_spent(tiny: Any, synthdp: Any) -> None:
    done = synthdp("graph", "learn", tiny.write().spec)
    assert done.code == 2
    assert "graph.mode: got given; `synthdp graph learn` needs learn" in done.err
    assert tiny.kinds() == []


def test_an_exhausted_cap_is_refused_before_anything_is_read(
    tiny: Any, modes: Mapping[str, Any], synthdp: Any, graph_out: Path
) -> None:
    privacy = {
        "epsilon": 2.0,
        "shares": {"measure": 0.1, "graph": 0.8, "train": 0.1},
        "cap": {"epsilon": 2.0},
    }
    tiny.write(graph=modes["validate"]["graph"], privacy=privacy)
    assert synthdp("graph", "validate", tiny.spec, "--out", graph_out).code == 0
    before = tiny.kinds()
    done = synthdp("graph", "validate", tiny.spec, "--out", graph_out)
    assert done.code == 3
    assert "needs 1.6, 0.4 left" in done.err
    assert tiny.kinds() == before
    assert not (graph_out / ".run").exists()


def test_an_interrupted_run_goes_on_under_its_reservation(
    tiny: Any,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny.write(graph=modes["validate"]["graph"], privacy=STRONG)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(graph_run, "_write", killed)
        assert synthdp("graph", "validate", tiny.spec, "--out", graph_out).code == 130
    assert (graph_out / ".run").exists()
    other = synthdp(
        "graph",
        "validate",
        tiny.write(graph=modes["validate"]["graph"], privacy=STRONG | {"epsilon": 19.0}).spec,
        "--out",
        graph_out,
    )
    assert other.code == 2 and "of another spec" in other.err
    tiny.write(graph=modes["validate"]["graph"], privacy=STRONG)
    before = tiny.kinds()
    done = synthdp("graph", "validate", tiny.spec, "--out", graph_out)
    assert done.code == 0
    assert tiny.kinds() == before
    assert (graph_out / "graph.json").is_file()
    assert not (graph_out / ".run").exists()


def test_orient_spends_the_graphs_share_on_one_pair(
    tiny: Any, modes: Mapping[str, Any], synthdp: Any, graph_out: Path
) -> None:
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    assert synthdp("graph", "orient", tiny.spec, "sex", "weight", "--out", graph_out).code != 0
    assert tiny.kinds() == []
    done = synthdp("graph", "orient", tiny.spec, "visits", "weight", "--out", graph_out, "--json")
    told = json.loads(done.out)
    assert done.code == 0
    assert {told["cause"], told["effect"]} == {"visits", "weight"}
    assert 0.5 <= told["probability"] <= 1
    assert tiny.kinds() == ["cap", "reserve", "charge", "settle"]
    assert 9 < told["epsilon_spent"] <= 10
    assert not (graph_out / ".run").exists()


def test_resume_refuses_a_graph_run(
    tiny: Any,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a release it would spend more than it reserved."""
    tiny.write(graph=modes["validate"]["graph"], privacy=STRONG)
    with monkeypatch.context() as patch:
        patch.setattr(graph_run, "_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        assert synthdp("graph", "validate", tiny.spec, "--out", graph_out).code == 130
    before = tiny.kinds()
    done = synthdp("resume", graph_out)
    assert done.code == 2
    assert "holds an interrupted `synthdp graph validate`" in done.err
    assert tiny.kinds() == before
    assert f"`synthdp graph validate`, given as before with --out {graph_out}" in done.err
    hint = synthdp("release", tiny.spec, "--out", graph_out)
    assert hint.code == 2
    assert "`synthdp graph validate`, given as before" in hint.err
    assert "synthdp resume" not in hint.err


def test_a_graph_run_that_reserved_nothing_yet_is_no_release_either(
    tiny: Any,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed while it read the rows, it reserved nothing; as a release it would reserve five times
    its share.
    """
    tiny.write(graph=modes["validate"]["graph"], privacy=STRONG)
    with monkeypatch.context() as patch:
        patch.setattr(
            graph_run, "open_session", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt())
        )
        patch.setattr(RunFolder, "remove", lambda self: None)  # a kill -9 leaves the folder
        assert synthdp("graph", "validate", tiny.spec, "--out", graph_out).code == 130
    done = synthdp("resume", graph_out)
    assert done.code == 2 and "which is no release" in done.err and tiny.kinds() == []


def test_one_graph_command_does_not_answer_for_another(
    tiny: Any,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupted `orient x y` is not continued by `orient a b`."""
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "settle", lambda self: (_ for _ in ()).throw(KeyboardInterrupt()))
        assert (
            synthdp("graph", "orient", tiny.spec, "visits", "weight", "--out", graph_out).code
            == 130
        )
    before = tiny.kinds()
    other = synthdp("graph", "orient", tiny.spec, "weight", "joined", "--out", graph_out)
    assert other.code == 2
    assert "holds an interrupted `synthdp graph orient visits weight --score table`" in other.err
    assert tiny.kinds() == before
    assert synthdp("graph", "orient", tiny.spec, "visits", "weight", "--out", graph_out).code == 0


def edited(out: Path, **changes: str) -> None:
    """Change the state of the interrupted run in `out` by hand."""
    state = out / ".run" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | changes))


def test_a_run_whose_state_was_edited_is_held_to_what_the_ledger_reserved(
    tiny: Any,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new spec has the same plan, and so has the other pair: only the digest tells."""
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    orient = ("graph", "orient", tiny.spec, "visits", "weight", "--out", graph_out)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "settle", lambda self: (_ for _ in ()).throw(KeyboardInterrupt()))
        assert synthdp(*orient).code == 130
    before, asked = tiny.kinds(), tiny.spec.read_text()
    turned = (*orient[:3], "weight", "visits", *orient[5:])
    for changes, command in (
        ({"spec_text": asked + "# changed\n"}, orient),
        ({"command": "graph orient weight visits --score table"}, turned),
    ):
        was = (graph_out / ".run" / "state.json").read_text()
        edited(graph_out, **changes)
        tiny.spec.write_text(changes.get("spec_text", asked))
        done = synthdp(*command)
        assert done.code == 2 and "the ledger holds another command or spec of run" in done.err
        assert "its budget stays spent, and nothing more was spent" in done.err
        assert "this command spent nothing" in done.err and tiny.kinds() == before
        (graph_out / ".run" / "state.json").write_text(was)
        tiny.spec.write_text(asked)
    assert synthdp(*orient).code == 0 and tiny.kinds() == [*before, "settle"]


def test_a_folder_with_an_interrupted_release_is_left_alone(
    tiny: Any, modes: Mapping[str, Any], synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(**modes["validate"])
    with monkeypatch.context() as patch:
        patch.setattr(
            "synthdp.release.job.sample",
            lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt()),
        )
        assert synthdp("release", tiny.spec, "--out", tiny.out).code == 130
    before = tiny.kinds()
    done = synthdp("graph", "validate", tiny.spec, "--out", tiny.out)
    assert done.code == 2
    assert "holds an interrupted `synthdp release`" in done.err
    assert "synthdp resume" in done.err
    assert tiny.kinds() == before
