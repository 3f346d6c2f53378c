"""What people do with a bundle of linked tables: decide, compare, list, look at, and export."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import synthdp
from synthdp.cli.main import app
from synthdp.errors import GateError, OutputError, VerifyError
from tests.release.linked.conftest import problems, run, write_spec

pytestmark = pytest.mark.check


def told(*words: str | Path) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, (words, done.output)
    return done.stdout


@pytest.fixture
def out(ward: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output folder of a release whose ledger is at hand."""
    monkeypatch.chdir(ward.parent)
    return run(ward).bundle.parent


def test_decisions(out: Path) -> None:
    by = ("--by", "A. Reviewer", "--why", "a set for a course")
    assert "agrees with itself" in told("decide", out)
    assert "recorded: yes" in told("decide", out, "--yes", *by)
    decided = synthdp.Bundle(out / "bundle").decision()
    assert decided is not None and decided.answer == "yes"
    assert "withdrawn, by A. Reviewer" in told("decide", out, "--withdraw", *by)
    with pytest.raises(GateError, match="not to be given out"):
        told("export", out / "bundle", "--to", "sqlite:///w.db", "--table", "t")


def test_no_yes_to_a_bundle_that_was_changed(out: Path) -> None:
    bundle = out / "bundle"
    rows = (bundle / "stays.csv").read_text().splitlines()
    (bundle / "stays.csv").write_text("\n".join(rows[:-1]) + "\n")
    assert problems(bundle)
    with pytest.raises(VerifyError, match="must not be published"):
        synthdp.Bundle(bundle).decide("yes", by="A. Reviewer", why="nobody looked")


def test_diff(made: Path, ward: Path) -> None:
    less = run(write_spec(ward.parent, {"privacy": {"epsilon": 1.0}})).bundle
    found = json.loads(told("diff", made, less, "--json"))["findings"]
    verdicts = {f["what"]: f["verdict"] for f in found}
    assert verdicts["epsilon"] == "better" and verdicts["links"] == "same"
    assert verdicts["distance to noisy 2-way tables, rows of steps"] in ("worse", "same")
    keys = next(f["why"] for f in found if f["what"] == "keys of the spec")
    assert keys == "privacy.epsilon"
    same = json.loads(told("diff", made, made, "--json"))["findings"]
    assert {f["verdict"] for f in same} == {"same"}


def test_a_pair_of_columns(made: Path, tmp_path: Path) -> None:
    steps = json.loads(told("show", made, "--pair", "stays[-1].stage", "stays.stage", "--json"))
    assert steps["measured"] and "each with the one before" in steps["about"]
    assert sum(cell["synthetic"] for cell in steps["cells"]) == pytest.approx(1)
    falls = [c for c in steps["cells"] if c["levels"] == ["1", "0"]]
    assert [c["synthetic"] for c in falls] == [0.0]
    picture = tmp_path / "pair.svg"
    told("show", made, "--pair", "patients.sex", "stays[1].stage", "--out", picture)
    assert "<svg" in picture.read_text()
    with pytest.raises(OutputError, match="no pair"):
        synthdp.Bundle(made).pair("stays[-1].stag", "stays.stage")


def test_both_tables_in_a_database(made: Path, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'w.db'}"
    words = ("export", made, "--to", address, "--table", "ward")
    done = json.loads(told(*words, "--json"))
    assert done["table"] == "ward_patients, ward_stays"
    persons, stays = synthdp.Bundle(made).tables().values()
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        held = pd.read_sql("select * from ward_stays order by of_patient, day", connection)
    assert done["rows"] == len(persons) + len(stays) and len(held) == len(stays)
    assert held["cost"].isna().tolist() == stays["cost"].isna().tolist()
    (foreign,) = sa.inspect(engine).get_foreign_keys("ward_stays")
    assert (foreign["constrained_columns"], foreign["referred_table"]) == (
        ["of_patient"],
        "ward_patients",
    )
    assert "replaced the tables" in told(*words, "--replace")


def test_a_bundle_in_python(made: Path, tmp_path: Path) -> None:
    bundle = synthdp.Bundle(made)
    assert bundle.certificate.unit_meaning == "one patient with all stays"
    assert ("stays[-1].stage", "stays.stage") in bundle.graph.edges
    assert "250 persons" in repr(bundle) and "Numbers of visits" in bundle._repr_html_()
    copied = Path(shutil.copytree(made, tmp_path / "bundle"))
    (copied / "stays.csv").write_text("of_patient,day,stage,cost\n")
    with pytest.raises(VerifyError):
        synthdp.Bundle(copied).tables()


def test_an_index(out: Path) -> None:
    more = run(write_spec(out.parent, {"privacy": {"epsilon": 1.0}}), out=out.parent / "more")
    listed = told("index", ".", "--verify")
    assert "2 bundles, verified" in listed and "Courses from visit to visit" in listed
    assert "epsilon 4.999 -> 0.9996: better" in listed
    assert "damaged" not in listed
    page = Path("index.html").read_text()
    assert "Columns of persons" in page and str(more.bundle.name) in page


def test_a_plan_beside_what_came(out: Path) -> None:
    found = json.loads(told("diff", out / "plan.json", out / "bundle", "--json"))["findings"]
    scores = {f["what"]: f for f in found if f["topic"] == "quality"}
    assert {*scores} == {
        "tv_persons_dp",
        "tv_counts_dp",
        "tv_first_dp",
        "tv_last_dp",
        "tv_steps_dp",
    }
    assert scores["tv_persons_dp"]["verdict"] == "same"
