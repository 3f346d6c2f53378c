"""`synthdp graph`: what it shows, writes and compares, and what learning or validating alone
reserves, spends and leaves behind.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from synthdp.errors import SpecError
from synthdp.graph import read_graph
from synthdp.privacy import accounting
from synthdp.privacy.events.kinds import event_from_json
from synthdp.privacy.session import Session
from synthdp.release import RunFolder
from synthdp.release import graph_only as graph_run
from synthdp.spec import load_spec
from tests.builders import skeleton
from tests.release.conftest import Tiny, dying

pytestmark = pytest.mark.check

DATA = Path(__file__).parents[1] / "graph" / "data"
STRONG = {
    "epsilon": 20.0,
    "shares": {"measure": 0.2, "graph": 0.5, "train": 0.3},
    "cap": {"epsilon": 40.0},
}


@pytest.fixture
def graph_out(tiny: Tiny) -> Path:
    return Path(tiny.folder) / "graph-out"


# --- show and diff ---


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
    near_words = (DATA / "asia.bif", "--around", "xray")
    near = synthdp("graph", "show", *near_words)
    assert near.code == 0 and "2 columns, 1 arrow" in near.out and "either -> xray" in near.out
    wider = synthdp("graph", "show", DATA / "asia.bif", "--around", "xray", "--depth", "2")
    assert "either -> dysp" in wider.out and "smoke -> bronc" not in wider.out
    wrong = synthdp("graph", "show", DATA / "asia.bif", "--around", "xrai")
    assert wrong.code != 0 and "no column 'xrai'" in wrong.err and "xray" in wrong.err
    picture = ElementTree.fromstring(synthdp("graph", "show", *near_words, "--format", "svg").out)
    assert [t for t in picture.iter("{http://www.w3.org/2000/svg}text") if t.text == "either"]


@pytest.mark.parametrize("form", ["yaml", "dot", "dagitty", "json"])
def test_convert_to_a_file_and_back(tmp_path: Path, synthdp: Any, form: str) -> None:
    out = tmp_path / f"asia.{form}"
    done = synthdp("graph", "show", DATA / "asia.bif", "--format", form, "--out", out)
    assert done.code == 0 and done.out == "" and "wrote" in done.err
    assert set(read_graph(out).directed) == set(read_graph(DATA / "asia.bif").directed)
    assert synthdp("graph", "show", DATA / "asia.bif", "--format", form).out == out.read_text()


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


@pytest.fixture
def graph(synthdp: Any, graph_out: Path) -> Callable[..., Any]:
    """`graph(command, argument, ...)` into the folder of graphs."""
    return lambda *words: synthdp("graph", *words, "--out", graph_out)


def test_learn_spends_the_graphs_share_and_its_yaml_can_be_pasted(
    tiny: Tiny, modes: Mapping[str, Any], graph: Callable[..., Any], graph_out: Path
) -> None:
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    done = graph("learn", tiny.spec)
    assert done.code == 0 and "10 reserved (the graph's share)" in done.out
    entries = tiny.ledger.entries()
    charges = [e for e in entries if e.kind == "charge"]
    assert tiny.kinds() == ["cap", "reserve", *["charge"] * len(charges), "settle"] and charges
    reserved = next(e.body for e in entries if e.kind == "reserve")
    events = [event_from_json(e.body["event"]) for e in charges]
    spent = accounting.epsilon(events, delta=reserved["delta"], adjacency="add_remove")
    assert (reserved["epsilon"], reserved["delta"]) == (10.0, 5e-6) and 9 < spent <= 10
    written = json.loads((graph_out / "graph.json").read_text())
    assert written["privacy"]["epsilon_spent"] == pytest.approx(spent)
    assert written["privacy"]["ledger_entries"] == [e.hash for e in charges]
    assert not (graph_out / ".run").exists()
    ElementTree.parse(graph_out / "graph.svg")
    section = yaml.safe_load((graph_out / "graph.yaml").read_text())["graph"]
    spec = load_spec(tiny.write(graph=section).spec)
    assert set(spec.graph.pairs()) == set(read_graph(graph_out / "graph.json").directed) != set()


def test_a_refuted_graph_exits_4_where_the_spec_says_fail(
    tiny: Tiny, graph: Callable[..., Any], graph_out: Path
) -> None:
    """And every claim is told with what it could have seen."""
    asked = {"mode": "validate", "edges": ["grade -> visits"], "on_refuted": "fail"}
    tiny.write(graph=asked, privacy=STRONG)
    done = graph("validate", tiny.spec)
    assert done.code == 4 and tiny.kinds()[-1] == "settle"
    assert "refuted by noisy data: sex independent of smoker" in done.err
    assert "is spent, and another run pays again" in done.err
    told = json.loads((graph_out / "graph.json").read_text())["validation"]
    assert told["counts"]["independence"]["refuted"] >= 1
    assert all(f["smallest_detectable_effect"] is not None for f in told["findings"])


def test_orient_spends_the_graphs_share_on_one_pair(
    tiny: Tiny, modes: Mapping[str, Any], graph: Callable[..., Any], graph_out: Path
) -> None:
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    assert graph("orient", tiny.spec, "sex", "weight").code != 0 and tiny.kinds() == []
    done = graph("orient", tiny.spec, "visits", "weight", "--json")
    told = json.loads(done.out)
    assert done.code == 0 and {told["cause"], told["effect"]} == {"visits", "weight"}
    assert 0.5 <= told["probability"] <= 1 and 9 < told["epsilon_spent"] <= 10
    assert tiny.kinds() == ["cap", "reserve", "charge", "settle"]
    assert not (graph_out / ".run").exists()


@pytest.mark.parametrize("mode", ["learn", "validate"])
def test_a_run_of_the_graph_alone_asks_for_no_other_share(
    tiny: Tiny, modes: Mapping[str, Any], graph: Callable[..., Any], mode: str
) -> None:
    shares = {"measure": 0, "graph": 1, "train": 0}
    tiny.write(graph=modes[mode]["graph"], privacy={"epsilon": 2.0, "shares": shares})
    done = graph(mode, tiny.spec, "--json")
    assert done.code == 0 and json.loads(done.out)["privacy"]["epsilon_planned"] > 1.9
    with pytest.raises(SpecError, match="the model cannot be trained without a share"):
        load_spec(tiny.spec)  # a release does
    none = {"measure": 0.2, "graph": 0, "train": 0.8}
    tiny.write(graph=modes[mode]["graph"], privacy={"shares": none})
    assert "looks at the data and needs a share" in graph(mode, tiny.spec).err


def test_another_mode_is_refused_and_nothing_is_spent(tiny: Tiny, synthdp: Any) -> None:
    done = synthdp("graph", "learn", tiny.write().spec)
    assert done.code == 2 and tiny.kinds() == []
    assert "graph.mode: got given; `synthdp graph learn` needs learn" in done.err


def test_an_exhausted_cap_is_refused_before_anything_is_read(
    tiny: Tiny, modes: Mapping[str, Any], graph: Callable[..., Any], graph_out: Path
) -> None:
    shares = {"measure": 0.1, "graph": 0.8, "train": 0.1}
    privacy = {"epsilon": 2.0, "shares": shares, "cap": {"epsilon": 2.0}}
    tiny.write(graph=modes["validate"]["graph"], privacy=privacy)
    assert graph("validate", tiny.spec).code == 0
    before = tiny.kinds()
    done = graph("validate", tiny.spec)
    assert done.code == 3 and "needs 1.6, which makes" in done.err
    assert tiny.kinds() == before and not (graph_out / ".run").exists()


# --- runs that were interrupted ---


def test_an_interrupted_run_goes_on_as_what_it_was_and_under_its_reservation(
    tiny: Tiny,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph: Callable[..., Any],
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a release it would spend more than it reserved."""
    section = modes["validate"]["graph"]
    tiny.write(graph=section, privacy=STRONG)
    with monkeypatch.context() as patch:
        patch.setattr(graph_run, "_write", dying())
        assert graph("validate", tiny.spec).code == 130
    before = tiny.kinds()
    as_before = f"`synthdp graph validate`, given as before with --out {graph_out}"
    resumed = synthdp("resume", graph_out)
    assert "holds an interrupted `synthdp graph validate`" in resumed.err
    released = synthdp("release", tiny.spec, "--out", graph_out)
    assert "synthdp resume" not in released.err
    tiny.write(graph=section, privacy=STRONG | {"epsilon": 19.0})
    other = graph("validate", tiny.spec)
    for refused, says in ((resumed, as_before), (released, as_before), (other, "of another spec")):
        assert refused.code == 2 and says in refused.err
    assert tiny.kinds() == before and (graph_out / ".run").exists()
    tiny.write(graph=section, privacy=STRONG)
    assert graph("validate", tiny.spec).code == 0 and tiny.kinds() == before
    assert (graph_out / "graph.json").is_file() and not (graph_out / ".run").exists()


def test_a_graph_run_that_reserved_nothing_yet_is_no_release_either(
    tiny: Tiny,
    modes: Mapping[str, Any],
    synthdp: Any,
    graph: Callable[..., Any],
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed while it read the rows, it reserved nothing; as a release it would reserve five times
    its share.
    """
    tiny.write(graph=modes["validate"]["graph"], privacy=STRONG)
    with monkeypatch.context() as patch:
        patch.setattr(graph_run, "open_session", dying())
        patch.setattr(RunFolder, "remove", lambda self: None)  # a kill -9 leaves the folder
        assert graph("validate", tiny.spec).code == 130
    done = synthdp("resume", graph_out)
    assert done.code == 2 and "which is no release" in done.err and tiny.kinds() == []


def test_a_run_is_held_to_what_the_ledger_reserved(
    tiny: Tiny,
    modes: Mapping[str, Any],
    graph: Callable[..., Any],
    graph_out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupted `orient x y` is not continued by `orient a b`; nor where its state was edited
    to say so: the new spec has the same plan, and so has the other pair, and the digest tells.
    """
    tiny.write(graph=modes["learn"]["graph"], privacy=STRONG)
    orient, turned = (
        ("orient", tiny.spec, *p) for p in (("visits", "weight"), ("weight", "visits"))
    )
    with monkeypatch.context() as patch:
        patch.setattr(Session, "settle", dying())
        assert graph(*orient).code == 130
    before, asked = tiny.kinds(), tiny.spec.read_text()
    other = graph("orient", tiny.spec, "weight", "joined")
    assert other.code == 2
    assert "holds an interrupted `synthdp graph orient visits weight --score table`" in other.err
    state = graph_out / ".run" / "state.json"
    was = state.read_text()
    for changes, command in (
        ({"spec_text": asked + "# changed\n"}, orient),
        ({"command": "graph orient weight visits --score table"}, turned),
    ):
        state.write_text(json.dumps(json.loads(was) | changes))
        tiny.spec.write_text(changes.get("spec_text", asked))
        done = graph(*command)
        assert done.code == 2 and "the ledger holds another command or spec of run" in done.err
        assert "its budget stays spent, and nothing more was spent" in done.err
        assert "this command spent nothing" in done.err and tiny.kinds() == before
        state.write_text(was)
        tiny.spec.write_text(asked)
    assert graph(*orient).code == 0 and tiny.kinds() == [*before, "settle"]


def test_a_folder_with_an_interrupted_release_is_left_alone(
    interrupted: Tiny, modes: Mapping[str, Any], synthdp: Any
) -> None:
    before = interrupted.kinds()
    interrupted.write(**modes["validate"])
    done = synthdp("graph", "validate", interrupted.spec, "--out", interrupted.out)
    assert done.code == 2 and "holds an interrupted `synthdp release`" in done.err
    assert "synthdp resume" in done.err and interrupted.kinds() == before
