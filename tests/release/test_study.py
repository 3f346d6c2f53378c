"""`synthdp study` end to end: the grid is whole, and what is found stays where it belongs."""

import csv
import json
import math
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from synthdp.audit import WHITE_BOX, Board, plan_at
from synthdp.data import Domain
from synthdp.errors import OutputError
from synthdp.evaluate import PAPER_CLASSIFIERS
from synthdp.model import plan_for
from synthdp.progress import shown_on
from synthdp.release import study as room
from synthdp.release.study import DECLARED, Arm, Line, comparable, study, without_graph
from synthdp.spec import load_spec
from synthdp_attacks import CLASSIFIERS, EXTRACTORS, LIKELIHOODS, MAIN
from tests.release.conftest import MODES, Heard, InterruptedAt, Tiny, merged

pytestmark = pytest.mark.check

SMALL: dict[str, Any] = {
    "attacks": {"membership": {"rows": 40, "pairs": 4, "steps": 2}},
    "evaluation": {"random_targets": 2},
    "synthesizer": {"steps": 4},
}
PAIRS = {(e, c) for e in EXTRACTORS for c in CLASSIFIERS} | {
    (score, ratio) for score, _ in WHITE_BOX for ratio in LIKELIHOODS
}
ARMS = {str(Arm(graph, epsilon)) for epsilon in (1.0, math.inf) for graph in (True, False)}
STEPS = {
    "by the graph at epsilon 1",
    "by the graph without privacy",
    "by privacy with the graph",
    "by privacy without a graph",
}


@contextmanager
def few(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attacks by those that were declared alone, and one learner: what takes long is left out."""
    played = Board.attacked

    def quick(*asked: Any, **attacks: Any) -> Any:
        return played(*asked, **attacks, extractors=("targeted",), classifiers=("random_forest",))

    with patch.context() as inner:
        inner.setattr(Board, "attacked", quick)
        inner.setattr(room, "PAPER_CLASSIFIERS", ("logistic",))
        yield


def modes(folder: Path) -> Counter[int]:
    """Permissions of all files and folders below."""
    return Counter(stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*"))


def test_a_study_of_drawn_rows_has_every_cell_once_and_opens_none(
    tiny: Tiny, synthdp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(**SMALL)
    (tiny.folder / "table.csv").unlink()
    told = synthdp("study", tiny.spec, "--simulated", "--out", tiny.out)
    assert told.code == 0, told.err
    assert not (tiny.folder / ".synthdp").exists()
    assert "public: simulated rows" in told.out and "Sanity, not proof." in told.out
    assert "4 arms of 8 shadow models each, and 4 releases on simulated rows" in told.err
    assert {path.name for path in tiny.out.iterdir()} == {"study.json", "study.csv", "study.svg"}
    with (tiny.out / "study.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    cells = Counter((x["figure"], x["of"], x["extractor"], x["classifier"]) for x in lines)
    assert set(cells.values()) == {1}
    for figure, parts in (("advantage", ARMS), ("advantage taken", STEPS)):
        found = {cell[1:] for cell in cells if cell[0] == figure}
        assert found == {(of, *pair) for of in parts for pair in PAIRS}
    learned = {cell[1:] for cell in cells if cell[0] == "auc"}
    assert learned == {(arm, "random targets", name) for arm in ARMS for name in PAPER_CLASSIFIERS}
    facts = json.loads((tiny.out / "study.json").read_text())
    assert not facts["confidential"] and "never prove" in facts["caveat"]
    assert len(facts["lines"]) == len(lines)
    of = {(x["of"], x["extractor"], x["classifier"]): x for x in lines if "auc" not in x["figure"]}
    taken = of["by privacy with the graph", *DECLARED[1]]
    before, after = (of[f"graph {at}", *DECLARED[1]] for at in ("without privacy", "at epsilon 1"))
    assert float(taken["value"]) == float(before["value"]) - float(after["value"])


def test_an_interrupted_study_of_real_rows_goes_on_and_stays_with_the_steward(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    tiny.write(**SMALL, tracking={"enabled": True})
    call: dict[str, Any] = {"rows": "real", "out": tiny.out, "epsilons": [0.5]}
    with few(monkeypatch):
        stop = InterruptedAt("release, no graph at epsilon 0.5")
        with pytest.raises(KeyboardInterrupt), shown_on(stop):
            study(tiny.spec, **call)
        assert not list(tiny.out.glob("study*"))
        assert stat.S_IMODE((tiny.out / ".audit").stat().st_mode) == 0o700
        heard = Heard()
        with shown_on(heard):
            found, folder = study(tiny.spec, **call)
    attacked = heard.steps["attack, graph at epsilon 1"]
    assert {done for done, _, what in attacked if what == "models"} == {8}  # all were kept
    assert "release, graph at epsilon 0.5" not in heard.steps  # it was kept
    assert "release, no graph at epsilon 0.5" in heard.steps
    assert folder == tiny.out / "internal" and [*tiny.out.iterdir()] == [folder]
    assert modes(tiny.out) == {0o700: 1, 0o600: 3}
    assert json.loads((folder / "study.json").read_text())["confidential"]
    picture = (folder / "study.svg").read_text()
    assert "at epsilon 0.5" in picture and "var(" not in picture
    ElementTree.fromstring(picture)
    assert not (tiny.folder / ".synthdp").exists()  # nothing is charged
    assert {line.of for line in found.of("auc given")} == {
        f"by the graph {at}" for at in ("at epsilon 0.5", "at epsilon 1", "without privacy")
    }
    client = MlflowClient(f"sqlite:///{tiny.folder / 'mlflow.db'}")
    (run,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert run.info.run_name == "tiny - study - eps 1" and "gate" not in run.data.tags
    named = [line.name for line in found.lines]
    assert len(set(named)) == len(named) and set(named) < set(run.data.metrics)
    name = "study/advantage/no graph without privacy/targeted/random_forest"
    (line,) = (line for line in found.lines if line.name == name)
    kept = [run.data.metrics[name + end] for end in ("", " lower", " upper")]
    assert kept == pytest.approx(line.ends, rel=1e-3)


BY = "by the graph at epsilon 1"


def test_a_release_beside_a_study_shows_it_to_the_steward_alone(tiny: Tiny, synthdp: Any) -> None:
    line = Line("advantage taken", BY, *MAIN, 0.125, -0.25, 0.5)
    study = {"dataset": "tiny", "rows": "simulated", "lines": [asdict(line)]}
    tiny.write()
    tiny.out.mkdir()
    (tiny.out / "study.json").write_text(json.dumps(study))
    (tiny.out / "internal").mkdir()
    (tiny.out / "internal" / "study.json").write_text('{"dataset": "tiny"}')
    assert synthdp("release", tiny.spec, "--out", tiny.out).code == 0
    page = (tiny.out / "internal" / "internal.html").read_text()
    assert "Study on simulated rows: with the graph" in page and BY in page and "0.125" in page
    for file in (tiny.out / "bundle").rglob("*.*"):
        assert BY.encode() not in file.read_bytes()


TWINS: dict[str, dict[str, Any]] = {
    **{mode: changes for mode, changes in MODES.items() if mode != "none"},
    "targets": {
        "synthesizer": {"targets": ["smoker"]},
        "privacy": {"shares": {"measure": 0.2, "targets": 0.3, "train": 0.5}},
    },
    "predict": {
        "graph": {"mode": "predict"},
        "privacy": {"shares": {"measure": 0.2, "graph": 0.8, "train": 0}},
    },
    "estimands": {
        "estimands": [{"kind": "effect", "treated": "sex == 'male'", "outcome": "visits"}],
        "privacy": {"shares": {"measure": 0.2, "estimands": 0.3, "train": 0.5}},
        "constraints": ["visits >= 1"],
    },
}


@pytest.mark.parametrize("kind", TWINS)
def test_the_twin_without_a_graph_spends_the_same_budget(tiny: Tiny, kind: str) -> None:
    spec = comparable(load_spec(tiny.write(**TWINS[kind]).spec), "simulated", 3)
    twin, domain = without_graph(spec), Domain.from_spec(spec.columns)
    assert not spec.estimands and not spec.constraints
    assert spec.evaluation.random_targets == 3
    assert twin.graph.mode == "none" and twin.privacy.shares.measure == spec.privacy.shares.measure
    assert twin.synthesizer.latent >= 4 and twin.synthesizer.hidden >= 16
    assert twin.privacy.shares.graph == twin.privacy.shares.targets == 0
    for one in (spec, twin):
        assert 0.98 < plan_for(one, domain).epsilon_spent <= 1


@pytest.mark.parametrize("kind", TWINS)
def test_an_arm_without_privacy_has_none_in_any_of_its_looks(tiny: Tiny, kind: str) -> None:
    spec = comparable(load_spec(tiny.write(**TWINS[kind]).spec), "simulated", 3)
    plan = plan_at(spec, Domain.from_spec(spec.columns), math.inf)
    for spend in plan.spends:
        assert plan.epsilon_of(spend) > 50, spend.purpose
        assert getattr(spend.mechanism, "clip", 1e4) == 1e4  # which no gradient reaches


@pytest.mark.parametrize("kind", ["learn", "predict", "validate", "units"])
def test_studies_of_other_modes_and_units_go_all_the_way(
    tiny: Tiny, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = {"kind": "id", "column": "id", "meaning": "one person", "max_rows": 2}
    changes = TWINS["targets"] | {"dataset": {"privacy_unit": unit}}
    tiny.write(**merged(TWINS.get(kind, changes), SMALL))
    with few(monkeypatch):
        found, _ = study(tiny.spec, rows="simulated", out=tiny.out, targets=2)
    report = found.attacked[Arm(graph=True, epsilon=1.0)]
    assert report.target == ("unit" if kind == "units" else "record")
    assert len(report.per_target) == 2 and report.claim is not None
    assert found.attacked[Arm(graph=True, epsilon=math.inf)].claim is None
    assert {line.of for line in found.of("auc")} == ARMS


def test_a_spec_without_a_graph_has_nothing_to_compare(tiny: Tiny, synthdp: Any) -> None:
    tiny.write(**MODES["none"])
    with pytest.raises(OutputError, match="nothing to compare: the spec has no graph"):
        study(tiny.spec, rows="simulated", out=tiny.out)
    assert not tiny.out.exists()
    told = synthdp("study", tiny.spec, "--epsilons", "1;2")
    assert told.code == 2 and "--epsilons '1;2' is no list of numbers" in told.err
