"""A whole release whose rows stay in an engine: the same numbers as in memory, told before it is
paid for where the engine is away, and resumed when it was killed.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from synthdp.audit import AttackFolder, Board
from synthdp.audit.plan import AuditJob, audit
from synthdp.data import Domain
from synthdp.errors import DataError, SpecError
from synthdp.ledger import Ledger
from synthdp.privacy.engines import EngineTable, on_dask
from synthdp.privacy.engines.on_arrow import ArrowEngine
from synthdp.privacy.noise import Streams
from synthdp.release import release, resume, run_orientation
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle
from tests.builders import PREDICT_ROWS, predict_spec, predict_table
from tests.privacy.engines.tables import Here
from tests.release.conftest import internal

pytestmark = pytest.mark.check


ESTIMANDS: dict[str, Any] = {
    "privacy": {
        "epsilon": 2.0,
        "delta": 1e-5,
        "shares": {"measure": 0.2, "graph": 0.5, "train": 0, "estimands": 0.3},
    },
    "estimands": [
        {"kind": "question", "ask": "mean(age) where visits > 2 by sex"},
        {"kind": "regression", "outcome": "visits", "terms": ["sex", "age"]},
        {"kind": "question", "ask": "count(age > 41)"},
    ],
}


def write_spec(
    folder: Path, engine: str, sections: dict[str, Any] | None = None, **dataset: Any
) -> Path:
    plain = {
        "evaluation": {"enabled": False},
        "attacks": {"membership": {"enabled": False}},
        "compute": {"threads": 1, "engine": engine},
    }
    own = predict_spec(**plain | (sections or {}))
    own["dataset"] |= {"source": {"kind": "parquet", "path": "t"}, **dataset}
    path = folder / f"{engine}.yaml"
    path.write_text(yaml.safe_dump(own), encoding="utf-8")
    return path


def by_person(folder: Path, engine: str, *, source: Any = None, **sections: Any) -> Path:
    unit = {"kind": "id", "column": "id", "max_rows": 2, "meaning": "one person"}
    source = source or {"kind": "parquet", "path": "ids"}
    return write_spec(folder, engine, sections, privacy_unit=unit, source=source)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame = predict_table().assign(id=lambda f: np.arange(len(f)) % 600)
    frame["grade"] = frame["grade"].replace("", None)
    for name, columns in {"t": [c for c in frame if c != "id"], "ids": list(frame)}.items():
        (tmp_path / name).mkdir()
        table = pa.Table.from_pandas(frame[columns], preserve_index=False)
        for i in range(3):
            pq.write_table(table.slice(500 * i, 500), tmp_path / name / f"{i}.parquet")
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's tasks run in this process."""
    monkeypatch.setattr(on_dask, "DaskEngine", Here)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("discrete_gaussian", "rounded_gaussian"):
        monkeypatch.setattr(Streams, kind, lambda self, counts, *, sigma: counts.copy())


def trained(*edges: str, steps: int, **shares: float) -> dict[str, Any]:
    """Sections that train on a secret sample of 500 rows."""
    return {
        "graph": {"mode": "given", "edges": edges},
        "synthesizer": {"sample": 500, "steps": steps},
        "privacy": {"epsilon": 2.0, "delta": 1e-5, "shares": shares},
    }


def kinds(folder: Path) -> list[str]:
    file = folder / ".synthdp" / "ledger.db"
    return [e.kind for e in Ledger(f"sqlite:///{file}").entries()] if file.exists() else []


def entries(bundle: Path) -> Any:
    return json.loads((bundle / "privacy" / "ledger.json").read_text())["entries"]


def tables(bundle: Path | None) -> Any:
    """Without noise `verify` refuses them, rightly."""
    assert bundle is not None
    return json.loads((bundle / "marginals.json").read_text())["tables"]


def estimands(bundle: Path | None) -> Any:
    assert bundle is not None
    return json.loads((bundle / "estimands.json").read_text())


def test_a_release_is_that_of_memory(folder: Path, no_noise: None, here: None) -> None:
    """Its tables, and the sums of its estimands."""
    found, sums = {}, {}
    for engine in ("memory", "arrow", "dask"):
        path = write_spec(folder, engine, ESTIMANDS)
        outcome = release(path, out=folder / engine, accept_refusals=True)
        found[engine], sums[engine] = tables(outcome.bundle), estimands(outcome.bundle)["sums"]
    assert found["memory"] == found["arrow"] == found["dask"]
    assert sums["memory"] == sums["arrow"] == sums["dask"]
    assert sum(found["memory"][0]["counts"]) == PREDICT_ROWS and set(sums["memory"]) == {*"123"}
    for engine in ("arrow", "dask"):
        held = entries(folder / engine / "bundle")
        (told,) = [e["body"]["read_by"] for e in held if e["kind"] == "reserve"]
        assert told["engine"] == engine and told["pyarrow"] == pa.__version__
        notes = internal(folder / engine)["notes"]
        (note,) = [n for n in notes if n.startswith("The rows were read by")]
        assert f"engine {engine}" in note and f"pyarrow {pa.__version__}" in note


def test_ids_are_bounded(folder: Path, no_noise: None, here: None) -> None:
    path = by_person(folder, "dask", source={"kind": "parquet", "path": "ids/*.parquet"})
    outcome = release(path, out=folder / "out")
    assert sum(tables(outcome.bundle)[0]["counts"]) == 1200
    text = (outcome.bundle / "spec.yaml").read_text()  # type: ignore[operator]
    assert "*" not in text and "engine: auto" in text


def test_what_lies_in_an_engine_is_judged_on_a_sample(folder: Path, here: None) -> None:
    """Of units with ids: scores are counted and paid for, a few rows are looked at, and the figures
    beside those that were paid for are of all rows that stay.
    """
    judged = {
        **{"targets": ["smoker"], "classifiers": ["logistic"], "triples": 4, "holdout": 0.3},
        **{"disclosure": "private", "max_rows": 300},
    }
    sections = ESTIMANDS | {"evaluation": judged}
    path = by_person(folder, "dask", **sections)
    outcome = release(path, out=folder / "out", accept_refusals=True)
    assert outcome.bundle is not None and verify_bundle(outcome.bundle).ok
    report = internal(folder / "out")
    assert 0 < report["evaluation"]["fidelity"]["tv1"] < 0.3 and report["evaluation"]["floor"]
    assert report["evaluation"]["metrics"]["tstr_auc"] > 0.6
    (told,) = [note for note in report["notes"] if "lie in engine dask" in note]
    assert "sample of at most 300" in told
    assert report["evaluation"]["pairs"]["real"] is not None
    (exact,) = [e["real"] for e in report["estimands"] if e["text"] == "count(age > 41)"]
    assert 600 < exact < 1200 and exact == int(exact)
    purposes = [e["body"].get("purpose", "") for e in entries(outcome.bundle)]
    assert sum("score" in purpose for purpose in purposes) == 1


@pytest.mark.parametrize("engine", ["memory", "dask"])
def test_the_target_of_an_attack_is_a_unit_with_all_of_its_rows(
    folder: Path, engine: str, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release and an audit part no rows of one id between the target and the others."""
    boards, true_board = list[Board](), Board.drawn

    def drawn(*given: Any) -> Board:
        boards.append(true_board(*given))
        return boards[-1]

    monkeypatch.setattr(Board, "drawn", drawn)
    attack = {"membership": {"rows": 60, "pairs": 4, "steps": 10}}
    path = by_person(folder, engine, attacks=attack)
    release(path, out=folder / "out")
    record, _ = audit(path, rows="real", out=folder / "audit", pairs=1)
    assert record.membership is not None and record.membership.unit == "one person"
    for board in boards:
        assert board.units is not None and len(board.rows) == 60
        assert np.unique(board.units, return_counts=True)[1].tolist() == [2] * 30
    assert len(boards) == 2


@pytest.mark.parametrize("engine", ["arrow", "dask"])
def test_training_takes_one_secret_sample_from_the_engine(
    folder: Path, engine: str, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample leaves the engine once, under the charge of the training."""
    drawn, true_sample = list[int](), EngineTable.sampled_codes

    def sampled(self: EngineTable, rate: float, randomness: Any) -> Any:
        assert rate == 500 / PREDICT_ROWS and kinds(folder).count("charge") == 2
        codes = true_sample(self, rate, randomness)
        drawn.append(len(codes))
        return codes

    monkeypatch.setattr(EngineTable, "sampled_codes", sampled)
    own = trained("sex -> smoker", "smoker -> visits", steps=10, measure=0.4, train=0.6)
    outcome = release(write_spec(folder, engine, own), out=folder / "out")
    assert outcome.bundle is not None and verify_bundle(outcome.bundle).ok
    assert len(drawn) == 1 and 380 < drawn[0] < 620  # 6.5 deviations of a binomial law
    charged = [e["body"] for e in entries(outcome.bundle) if e["body"].get("purpose") == "train"]
    events = [body["event"] for body in charged]
    assert [(e["event"], e["rate"]) for e in events] == [("secret_sample", 500 / PREDICT_ROWS)]


def test_a_run_that_was_killed_goes_on_without_a_second_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, true_count = list[int](), EngineTable.count

    def count(self: EngineTable, groups: Any, tables: Any) -> Any:
        looks.append(len(tables))
        if len(looks) == 2:
            raise KeyboardInterrupt
        return true_count(self, groups, tables)

    monkeypatch.setattr(EngineTable, "count", count)
    with pytest.raises(KeyboardInterrupt):
        release(write_spec(folder, "arrow"), out=folder / "out")
    outcome = resume(folder / "out")
    assert outcome.bundle is not None and verify_bundle(outcome.bundle).ok
    assert kinds(folder).count("charge") == len(looks) - 1, "one look was broken off"
    assert kinds(folder).count("reserve") == kinds(folder).count("settle") == 1


def away_dask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    path = write_spec(folder, "dask")
    own = yaml.safe_load(path.read_text())
    own["compute"]["address"] = "tcp://user:secret@127.0.0.1:9"
    path.write_text(yaml.safe_dump(own))
    monkeypatch.setattr("synthdp.privacy.engines.on_dask.TIMEOUT_S", 1)
    return path, "no Dask cluster answers at tcp://127.0.0.1:9"


def away_sql(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    monkeypatch.setenv("AWAY_URL", "postgresql+psycopg://user:secret@127.0.0.1:9/db")
    source = {"kind": "sql", "url_env": "AWAY_URL", "query": "select * from t"}
    return write_spec(folder, "sql", source=source), "the database of AWAY_URL does not answer"


def no_files(folder: Path, _: pytest.MonkeyPatch) -> tuple[Path, str]:
    source = {"kind": "parquet", "path": "none/*.parquet"}
    return write_spec(folder, "arrow", source=source), "names no file"


def no_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    with closing(sqlite3.connect(folder / "t.db")) as connection, connection:
        connection.execute("create table t (smoker, sex, age, grade, visits)")
    monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{folder / 't.db'}")
    source = {"kind": "sql", "url_env": "TEST_DB_URL", "query": "select * from missing"}
    return write_spec(folder, "sql", source=source), "the database refuses the query"


def outside(folder: Path, _: pytest.MonkeyPatch) -> tuple[Path, str]:
    frame = pd.read_parquet(folder / "t" / "1.parquet")
    frame.loc[7, "sex"] = "canary-77"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "t" / "1.parquet")
    return write_spec(folder, "arrow"), "outside the declared domain in column 'sex'"


@pytest.mark.parametrize("spoil", [away_dask, away_sql, no_files, no_table, outside])
def test_what_is_wrong_is_told_before_anything_is_spent_and_by_doctor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, synthdp: Any, spoil: Callable[..., Any]
) -> None:
    path, told = spoil(folder, monkeypatch)
    with pytest.raises(DataError, match=told) as caught:
        release(path, out=folder / "out")
    assert "reserve" not in kinds(folder) and caught.value.exit_code == 5
    assert caught.value.__cause__ is None
    for secret in ("secret", "canary"):
        assert secret not in str(caught.value)
    if spoil is not outside:  # it reads no rows
        out = synthdp("doctor", path, "--json").out
        (found,) = [f for f in json.loads(out)["findings"] if f["what"] == "engine"]
        assert found["state"] == "wrong" and told in found["found"] and "secret" not in out


def test_plan_and_doctor_tell_of_the_engine(folder: Path, synthdp: Any) -> None:
    path = write_spec(folder, "arrow")
    text = synthdp("plan", path).out
    assert "engine arrow: rows stay where they are" in text and "fetches the levels" not in text
    found = json.loads(synthdp("doctor", path, "--json").out)["findings"]
    (told,) = [f for f in found if f["what"] == "engine"]
    assert told["state"] == "ok" and "answers" in told["found"]
    assert kinds(folder) == []


@pytest.mark.parametrize("keeps", ["engine", "levels_only"])
def test_orienting_a_pair_asks_no_engine_for_values(folder: Path, keeps: str) -> None:
    """It failed after the charge, and again each time that it was resumed."""
    path = write_spec(folder, "arrow" if keeps == "engine" else "memory")
    own = yaml.safe_load(path.read_text())
    if keeps == "levels_only":
        own["dataset"]["source"]["levels_only"] = True
    path.write_text(yaml.safe_dump(own), encoding="utf-8")
    numbers = [n for n, c in own["columns"].items() if c["type"] in ("integer", "number")]
    pair = (numbers[0], numbers[1])
    with pytest.raises(SpecError, match=f"{keeps}.* values, and `synthdp graph orient` reads"):
        run_orientation(path, pair, out=folder / "o")
    assert kinds(folder) == []


@pytest.mark.parametrize("engine", ["arrow", "sql"])
def test_an_audit_on_real_rows_takes_levels_alone_from_the_engine(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read all values into memory, from wherever the spec had left them. Where nothing is
    attacked no one asks whose the rows are, which a database does not say.
    """
    if engine == "sql":
        with closing(sqlite3.connect(folder / "t.db")) as connection:
            pd.read_parquet(folder / "ids").to_sql("t", connection, index=False)
        monkeypatch.setenv("TEST_DB_URL", f"sqlite:///{folder / 't.db'}")
        source = {"kind": "sql", "url_env": "TEST_DB_URL", "query": "select * from t"}
        path = by_person(folder, engine, source=source)
    else:
        path = write_spec(folder, engine)
    spec, seen = load_spec(path), list[Any]()
    job = AuditJob(spec, Domain.from_spec(spec.columns), None, folder / "o")  # type: ignore[arg-type]
    monkeypatch.setattr("synthdp.audit.plan.with_rows", lambda *given: seen.append(given[2]))
    monkeypatch.setattr("synthdp.privacy.source.read_frame", lambda *_: pytest.fail("into memory"))
    (folder / "coins").mkdir()
    coins = AttackFolder.open(folder / "coins")
    job.on_real(None, coins, folder, None)  # type: ignore[arg-type]
    assert len(seen[0]) == {"arrow": PREDICT_ROWS, "sql": 1200}[engine]


@pytest.mark.parametrize("trains", [True, False])
def test_a_plan_tells_how_often_the_table_is_passed_over(
    folder: Path, trains: bool, monkeypatch: pytest.MonkeyPatch, synthdp: Any
) -> None:
    """As often as the engine is asked, where nothing is judged: estimands are one pass, and so is
    a secret sample.
    """
    asked = list[str]()

    def counted(name: str, true: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: asked.append(name) or true(*arguments)

    for name in ("survey", "count", "add_up", "sample"):
        monkeypatch.setattr(ArrowEngine, name, counted(name, getattr(ArrowEngine, name)))
    own = trained("sex -> smoker", steps=4, measure=0.2, train=0.5, estimands=0.3)
    path = write_spec(folder, "arrow", ESTIMANDS | own if trains else ESTIMANDS)
    told = " ".join(synthdp("plan", path).out.split())
    asked.clear()
    release(path, out=folder / "out", accept_refusals=True)
    assert f"about {len(asked)} times" in told
    assert asked.count("add_up") == 1 and asked.count("sample") == trains


def test_a_plan_has_the_time_of_the_passes_and_warns_of_a_table_drawn_as_long_as_the_real_one(
    folder: Path, synthdp: Any
) -> None:
    rows = {"kind": "approximate", "value": 10**9}
    privacy = {"epsilon": 1.0, "delta": 1e-11, "shares": {"measure": 0.5, "graph": 0.5, "train": 0}}

    def planned(engine: str, **sampling: int) -> tuple[dict[str, Any], list[str]]:
        sections = {"privacy": privacy, "sampling": sampling}
        path = write_spec(folder, engine, sections, rows=rows)
        facts = json.loads(synthdp("plan", path, "--json").out)
        return facts["expected"], [w for w in facts["warnings"] if "sampling.rows" in w]

    seconds = {}
    for engine in ("arrow", "dask"):
        (warned,) = planned(engine)[1]
        assert "1,000,000,000" in warned
        expected, warnings = planned(engine, rows=1000)
        assert not warnings and expected["memory_mb"] < 1000
        seconds[engine] = expected["cpu_seconds"]
    assert seconds["dask"] > 2 * seconds["arrow"] > 100
