"""Linked tables from Python: planned, and released from DataFrames that are sealed like files."""

import json
import warnings
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy

import synthdp
from synthdp.cli.review import examine
from synthdp.data import VisitFrame
from synthdp.errors import DataError, OutputError
from synthdp.privacy import read_linked
from synthdp.privacy.noise import Streams
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.release import planned_linked
from synthdp.spec import own_spec
from synthdp.verify import verify_bundle
from tests.release.linked.conftest import MOST, SPEC, spec_at, write_spec, write_tables
from tests.release.linked.test_release_linked import kinds


@pytest.fixture
def frames(ward: Path) -> dict[str, pd.DataFrame]:
    """Both tables as text, whose files are gone."""
    found = {name: pd.read_csv(ward.parent / f"{name}.csv", dtype=str) for name in TABLES}
    for name in TABLES:
        (ward.parent / f"{name}.csv").unlink()
    return found


TABLES = ("patients", "stays")


def test_a_plan_is_that_of_the_command(ward: Path) -> None:
    plan = synthdp.Spec.load(ward).plan()
    assert plan.to_json() == planned_linked(spec_at(ward), ward)[0]
    assert plan.spends["rows_of_a_person"].tolist()[-1] == MOST - 1
    assert "steps: pairs" in str(plan) and "steps: pairs" in plan._repr_html_()


@pytest.mark.check
def test_a_release_from_dataframes(ward: Path, frames: dict[str, pd.DataFrame]) -> None:
    spec = synthdp.Spec.load(ward)
    assert repr(spec) == (
        "Spec('ward.yaml': dataset 'ward', tables patients (3 columns), stays (3 columns),"
        " epsilon 5, graph given)"
    )
    done = spec.release(frames, out=ward.parent / "out")
    assert verify_bundle(done.bundle.path).ok and done.report is None and done.gates == ()
    assert [*done.bundle.tables()] == [*TABLES]
    assert done.to_json()["tables"] == ["patients.csv", "stays.csv"]
    assert "no attack was made" in str(done) and "<pre>" in done._repr_html_()
    published = (done.bundle.path / "spec.yaml").read_text()
    assert published.count("kind: dataframe") == 2 and "patients.csv" not in published
    entries = json.loads((done.bundle.path / "privacy/ledger.json").read_text())["entries"]
    (reserved,) = [e["body"] for e in entries if e["kind"] == "reserve"]
    assert reserved["read_by"]["source"] == "dataframe"


@pytest.mark.check
def test_one_table_may_come_from_python_and_one_from_its_file(ward: Path) -> None:
    stays = pd.read_csv(ward.parent / "stays.csv", dtype=str)
    (ward.parent / "stays.csv").unlink()
    done = synthdp.Spec.load(ward).release({"stays": stays}, out=ward.parent / "out")
    assert verify_bundle(done.bundle.path).ok


@pytest.mark.check
def test_a_run_that_stopped_asks_for_the_dataframes_again(
    ward: Path, frames: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ward.parent / "out"

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("synthdp.release.linked.drawn_frames", die)
        with pytest.raises(KeyboardInterrupt):
            synthdp.Spec.load(ward).release(frames, out=out)
    for given in (None, frames["stays"], {**frames, "beds": frames["stays"]}):
        with pytest.raises(DataError):
            synthdp.resume(out, given)
    with pytest.raises(OutputError, match="spec is not there yet"):
        synthdp.resume(out, frames, spec=ward)
    done = synthdp.resume(out, frames)
    assert verify_bundle(done.bundle.path).ok


def test_rows_of_another_shape_are_refused_before_anything(
    ward: Path, frames: dict[str, pd.DataFrame]
) -> None:
    spec = synthdp.Spec.load(ward)
    for given in (frames["stays"], {"beds": frames["stays"]}):
        with pytest.raises(DataError, match="linked tables, patients and stays"):
            spec.release(given, out=ward.parent / "out")
    with pytest.raises(DataError, match="pandas DataFrame, and this is a list"):
        spec.release(frames | {"stays": [1, 2]}, out=ward.parent / "out")  # type: ignore[dict-item]
    columns = frames["stays"].rename(columns={"cost": "costs"})
    with pytest.raises(DataError, match="missing column 'cost'"):
        spec.release(frames | {"stays": columns}, out=ward.parent / "out")
    assert not (ward.parent / "out" / ".run").exists() and kinds(ward.parent) == []


def test_dtypes_that_look_inferred_are_warned_of_by_table(
    ward: Path, frames: dict[str, pd.DataFrame]
) -> None:
    spec = synthdp.Spec.load(
        write_spec(
            ward.parent,
            {
                "columns": {
                    "stays": {
                        "day": {"type": "datetime", "lower": "2020-01-01", "upper": "2023-12-31"},
                        "stage": {"type": "integer", "lower": 0, "upper": 2},
                        "cost": {"type": "number", "lower": 0, "upper": 100, "missing": True},
                    }
                }
            },
        )
    )
    odd = frames["stays"].assign(cost=1.0)
    with pytest.warns(UserWarning, match="'stage'"):
        spec.of_dataframe({"stays": odd})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec.of_dataframe({"stays": frames["stays"]})


def test_rows_that_are_given_belong_to_no_file(tmp_path: Path) -> None:
    write_tables(tmp_path)
    spec = spec_at(write_spec(tmp_path))
    given = {"stays": seal_dataframe(pd.read_csv(tmp_path / "stays.csv", dtype=str))}
    with pytest.raises(DataError, match="a DataFrame was given"):
        read_linked(
            spec,
            VisitFrame.from_spec(spec),
            folder=tmp_path,
            holdout=0.0,
            streams=Streams.fresh(),
            given=given,
        )


# --- from many files, by engine arrow ---


@pytest.mark.check
def test_a_release_by_engine_arrow_from_files_of_a_pattern(ward: Path) -> None:
    """It pays for the same looks with the same noise, and says by what its rows were read."""
    folder = ward.parent
    content = {}
    for name in TABLES:
        rows = pd.read_csv(folder / f"{name}.csv", dtype=str)
        (folder / name).mkdir()
        for at in range(3):
            rows[at::3].to_parquet(folder / name / f"{at}.parquet", index=False)
        content[name] = SPEC["dataset"]["tables"][name] | {
            "source": {"kind": "parquet", "path": f"{name}/*.parquet"}
        }
    memory = synthdp.Spec.load(ward).plan().to_json()["spends"]
    path = write_spec(folder, {"dataset": {"tables": content}})
    assert synthdp.Spec.load(path).plan().to_json()["spends"] == memory
    (engine,) = [d for d in examine(own_spec(path), folder) if d.what == "engine"]
    assert engine.state == "ok" and "has the declared columns" in engine.found
    done = synthdp.Spec.load(path).release(out=folder / "out")
    assert verify_bundle(done.bundle.path).ok
    published = (done.bundle.path / "spec.yaml").read_text()
    assert "path: withheld" in published and ".parquet" not in published
    entries = json.loads((done.bundle.path / "privacy/ledger.json").read_text())["entries"]
    (reserved,) = [e["body"] for e in entries if e["kind"] == "reserve"]
    assert reserved["read_by"]["engine"] == "arrow"


# --- from a database, by engine sql ---


@pytest.mark.check
def test_a_release_by_engine_sql_from_two_queries(
    ward: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It pays for the same looks with the same noise; nothing that is kept, logged or published has
    an id, the address or the queries.
    """
    folder, content = ward.parent, {}
    monkeypatch.setenv("WARD_URL", f"sqlite:///{folder / 'secret-name.db'}")
    store = sqlalchemy.create_engine(f"sqlite:///{folder / 'secret-name.db'}")
    for name in TABLES:
        rows = pd.read_csv(folder / f"{name}.csv", dtype=str)
        rows.to_sql(name, store, index=False)
        (folder / f"{name}.csv").unlink()
        source = {"kind": "sql", "url_env": "WARD_URL", "query": f"select * from {name}"}
        content[name] = SPEC["dataset"]["tables"][name] | {"source": source}
    store.dispose()
    memory = synthdp.Spec.load(ward).plan().to_json()["spends"]
    path = write_spec(folder, {"dataset": {"tables": content}, "compute": {"engine": "sql"}})
    assert synthdp.Spec.load(path).plan().to_json()["spends"] == memory
    (engine,) = [d for d in examine(own_spec(path), folder) if d.what == "engine"]
    assert engine.state == "ok" and "has the declared columns" in engine.found
    with caplog.at_level(0):
        done = synthdp.Spec.load(path).release(out=folder / "out")
    assert verify_bundle(done.bundle.path).ok
    published = (done.bundle.path / "spec.yaml").read_text()
    assert "url_env: WITHHELD" in published and "query: withheld" in published
    entries = json.loads((done.bundle.path / "privacy/ledger.json").read_text())["entries"]
    (reserved,) = [e["body"] for e in entries if e["kind"] == "reserve"]
    assert reserved["read_by"]["engine"] == "sql" and reserved["read_by"]["source"] == "sql"
    certificate = json.loads((done.bundle.path / "privacy/certificate.json").read_text())
    assert certificate["source"] == "sql"
    told = [p for p in (folder / "out").rglob("*") if p.is_file() and p.suffix != ".parquet"]
    texts = caplog.text + "".join(p.read_bytes().decode(errors="replace") for p in told)
    assert "id-0" not in texts and "id-1" not in texts
    assert "secret-name" not in "".join(
        p.read_bytes().decode(errors="replace") for p in done.bundle.path.rglob("*") if p.is_file()
    )
