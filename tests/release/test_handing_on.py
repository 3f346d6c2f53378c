"""What each stage of a release is handed: which rows, which relation, which table, and what of all
that goes to MLflow.

Everything around the seam is a stand-in, so that only the handing on is tested.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.audit import membership
from synthdp.data import Domain, LevelGroups, encode
from synthdp.evaluate.dp_scores import DpScores
from synthdp.graph import CausalGraph
from synthdp.privacy.private import _KERNEL_KEY, Confidential, Receipt, Released
from synthdp.privacy.table import Table
from synthdp.progress import unheard
from synthdp.release import (
    TRACKED,
    Judgement,
    graph_figures,
    open_session,
    record_judgement,
    record_publication,
)
from synthdp.release import job as drawing
from synthdp.release import judge as judging
from synthdp.release import run as release_module
from synthdp.spec import load_spec
from synthdp.spec.model import ReleaseSpec
from synthdp_attacks import ThreatModel
from tests.release.conftest import table as frame_of

pytestmark = pytest.mark.check


class Stop(Exception):
    """The seam was reached."""


@pytest.fixture
def loaded(tiny: Any) -> ReleaseSpec:
    return load_spec(tiny.write().spec)


@pytest.fixture
def rows(loaded: ReleaseSpec) -> Table:
    """Forty rows, of which the first ten are held out."""
    frame = frame_of().replace("", np.nan)[:40]
    return Table(encode(Domain.from_spec(loaded.columns), frame)[0], frame, np.arange(40) < 10, {})


def released(value: Any, *receipts: str) -> Released[Any]:
    return Released(
        value, frozenset(Receipt("r", one) for one in receipts or ("a",)), key=_KERNEL_KEY
    )


# --- rows ---


def test_fitted_rows_teach_and_held_out_rows_judge(
    loaded: ReleaseSpec, rows: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: dict[str, Any] = {}
    monkeypatch.setattr(
        judging,
        "evaluate",
        lambda train, test, synthetic, **more: heard.update(
            more, train=train, test=test, synthetic=synthetic
        ),
    )
    drawn, synthetic = rows.codes[:3], rows.frame[:3]
    graph = CausalGraph.from_spec(loaded.graph, tuple(loaded.columns))
    judging._evaluate(
        rows,
        loaded,
        LevelGroups(Domain.from_spec(loaded.columns), {}),
        drawn,
        synthetic,
        graph,
    )
    pd.testing.assert_frame_equal(heard["train"], rows.frame[10:].reset_index(drop=True))
    pd.testing.assert_frame_equal(heard["test"], rows.frame[:10].reset_index(drop=True))
    for found, wanted in zip(
        heard["codes"], (rows.codes[10:], rows.codes[:10], drawn), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    assert heard["synthetic"] is synthetic
    assert heard["settings"] == loaded.evaluation
    assert heard["graph"] is graph


def test_the_attack_is_on_the_rows_that_were_fitted(
    loaded: ReleaseSpec, rows: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out rows were trained on by nobody: as members they would make every attack look
    weak.
    """
    seen: list[Any] = []
    monkeypatch.setattr(membership, "attack_rows", lambda codes, *_, **__: seen.append(codes))
    session = SimpleNamespace(
        inspect=lambda fn, *, reason: Confidential(fn(rows), reason, key=_KERNEL_KEY)
    )
    job = SimpleNamespace(spec=loaded, domain=None, folder=SimpleNamespace(shadows=tmp_path))
    fitted = SimpleNamespace(graph=SimpleNamespace(graph=None))
    judge = judging.Judge(session, job, fitted, None)  # type: ignore[arg-type]
    judge.attacked(Judgement(released(0.25)))
    np.testing.assert_array_equal(seen[0], rows.codes[10:])


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_games_are_played_on_neighbours_of_the_specs_relation(
    adjacency: str, tiny: Any, rows: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = load_spec(
        tiny.write(
            privacy={"adjacency": adjacency},
            attacks={"membership": {"enabled": True, "rows": 20, "pairs": 4}},
        ).spec
    )
    relations: list[str] = []
    sizes: list[tuple[int, int]] = []
    made = SimpleNamespace(epsilon=1.0, delta=1e-5, profile=(), spends=(), rows_per_unit=1)
    monkeypatch.setattr(membership, "cpu_seconds", lambda *_: (1.0, 1.0))
    monkeypatch.setattr(membership, "plan_for", lambda *_, **__: made)
    monkeypatch.setattr(membership, "TableMeasurer", lambda domain, plan: lambda worlds: [None])

    def models(*_: object, threat: ThreatModel, **__: object) -> SimpleNamespace:
        relations.append(threat.relation)
        return SimpleNamespace(others=(), claim=None)

    def tables(measurer: object, outside: Any, inside: Any, **_: object) -> None:
        sizes.append((len(outside), len(inside)))
        raise Stop

    monkeypatch.setattr(membership, "attack_membership", models)
    monkeypatch.setattr(membership, "attack_tables", tables)
    domain, graph = (
        Domain.from_spec(own.columns),
        CausalGraph.from_spec(own.graph, tuple(own.columns)),
    )
    with pytest.raises(Stop):
        membership.attack_rows(
            rows.fit_codes, own, domain, graph, folder=tmp_path, progress=unheard
        )
    assert relations == [adjacency] and sizes == [(19, 20 if adjacency == "add_remove" else 19)]


# --- the table that is published ---


@pytest.mark.parametrize("same", [True, False])
def test_the_table_that_was_scored_is_the_one_to_publish(
    same: bool, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run draws another table than the one that was scored before it was interrupted."""
    own = load_spec(tiny.write(evaluation={"disclosure": "private", "disclosure_share": 0.5}).spec)
    drawn = np.arange(6, dtype=np.uint16).reshape(3, 2)
    scored = SimpleNamespace(codes=drawn.copy() if same else drawn[::-1])
    scores: DpScores = ()
    monkeypatch.setattr(drawing, "score_table", lambda *_: released(scored, "drawn", "scores"))
    monkeypatch.setattr(drawing, "dp_scores_of", lambda *_: scores)
    job, fitted = (
        SimpleNamespace(spec=own, domain=None),
        SimpleNamespace(tables=released((), "tables")),
    )
    codes, paid = drawing.pay_for_scores(None, job, fitted, released(drawn, "drawn"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(codes.value, scored.codes)
    assert {r.entry for r in paid.receipts} == {"drawn", "scores", "tables"}
    assert {r.entry for r in codes.receipts} == ({"drawn"} if same else {"drawn", "scores"})


# --- what MLflow gets ---


class Heard:
    """A tracker that writes down what it is handed."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.names: list[str] = []
        self.files: list[tuple[str, str | None]] = []
        self.released: list[bool] = []
        self.registered: list[Path] = []

    def metrics(self, values: dict[str, float]) -> None:
        self.figures |= values

    def attack(self, outcome: Any) -> None:
        self.names.append(outcome.name)

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        self.files.append((path.name, folder))

    def release(self, bundle: Path) -> None:
        self.registered.append(bundle)

    def conclude(self, verdict: Any) -> None:
        self.released.append(verdict.released)

    def keep(self, out: Path) -> None:
        self.kept = out


def verdict(extractor: str) -> Any:
    gap = SimpleNamespace(value=0.1, lower=0.0, upper=0.2)
    return SimpleNamespace(
        row=SimpleNamespace(extractor=extractor, advantage=gap, auc=gap),
        name=f"{extractor} with x",
        epsilon_lower=0.0,
    )


@pytest.mark.parametrize("bundle", [Path("bundle"), None])
def test_mlflow_hears_what_was_planned_and_spent_and_of_the_black_box_last(
    bundle: Path | None, loaded: ReleaseSpec
) -> None:
    """A tracker keeps the last attack's figures as the run's own; and a withheld bundle has no file
    there.
    """
    declared = tuple(map(verdict, ("targeted", "elbo", "tables")))
    report = SimpleNamespace(
        declared=declared, main=declared[0].row, ceiling=None, baseline=SimpleNamespace(value=0.0)
    )
    run = SimpleNamespace(
        spec=loaded,
        spent=SimpleNamespace(epsilon_spent=0.4),
        plan=SimpleNamespace(epsilon_spent=0.9),
        domain=Domain.from_spec(loaded.columns),
    )
    graph = CausalGraph.from_spec(loaded.graph, tuple(loaded.columns))
    fitted = SimpleNamespace(
        graph=SimpleNamespace(graph=graph, validation=None), tables=SimpleNamespace(value=())
    )
    attack = Confidential(report, "x", key=_KERNEL_KEY)
    misfits = Confidential({"sex": {"outside": 17}}, "x", key=_KERNEL_KEY)
    judgement = Judgement(released(0.25), attack=attack, misfits=misfits)  # type: ignore[arg-type]
    log = Heard()
    record_publication(log, run, fitted, judgement, (), bundle=bundle)  # type: ignore[arg-type]
    record_judgement(log, run, fitted, judgement, report=Path("internal.html"))  # type: ignore[arg-type]
    assert log.figures == {
        "epsilon_spent": 0.4,
        "epsilon_planned": 0.9,
        "tv1_noisy": 0.25,
        "columns_noise": 0.0,
        "pairs_noise": 0.0,
        **graph_figures(graph, None),
    }
    assert log.names == ["membership, tables", "membership, elbo", "membership"]
    assert log.files[-1] == ("internal.html", None) and log.released == [bundle is not None]
    assert log.registered == ([] if bundle is None else [bundle])
    assert [name for name, _ in log.files[:-1]] == (list(TRACKED) if bundle else [])


# --- the steward's own ---


def test_nobody_is_named_who_has_not_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle publishes the ledger's entries, and so who answers for them."""
    monkeypatch.setenv("USER", "alice")
    monkeypatch.delenv("SYNTHDP_STEWARD", raising=False)
    assert open_session.steward_name() == "not stated"
    monkeypatch.setenv("SYNTHDP_STEWARD", "Registry of Somewhere")
    assert open_session.steward_name() == "Registry of Somewhere"


# --- a run that goes on ---


def test_a_resumed_run_has_the_audit_of_a_new_one_and_no_new_ledger(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit, opened = SimpleNamespace(rows="none", membership=None), list[bool]()

    def open_ledger(*_: object, resumed: bool = False) -> Any:
        opened.append(resumed)
        return SimpleNamespace(
            balance=lambda dataset: None, run_entries=lambda run: [], entries=lambda: []
        )

    monkeypatch.setattr(release_module, "public_audit", lambda out, plan: audit)
    monkeypatch.setattr(release_module, "open_ledger", open_ledger)
    monkeypatch.setattr("synthdp.release.open_session.open_ledger", open_ledger)
    monkeypatch.setattr(release_module, "check_affordable", lambda *_: None)
    monkeypatch.setattr(release_module, "carry_out", lambda job, **_: job)
    made: Any = tiny.write().release()
    held = SimpleNamespace(
        spec_path=tiny.spec,
        spec_text=tiny.spec.read_text(),
        command="release",
        run="r",
        path=tiny.out,
        journal=tiny.out,
        has_published=False,
        close=lambda: None,
    )
    monkeypatch.setattr(release_module.run_folder, "reopen", lambda out: held)
    again: Any = release_module.resume(tiny.out)
    assert made.audit is again.audit is audit and opened == [False, True]
    assert (made.plan, made.out, made.domain) == (
        again.plan,
        again.out,
        again.domain,
    )
    assert again.folder is held
