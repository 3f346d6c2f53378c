"""A release of persons with visits: what is written, what is paid, and where it stops."""

import json
import pkgutil
import warnings
from pathlib import Path
from typing import Any

import frictionless
import mlcroissant
import pandas as pd
import pytest

import synthdp
from synthdp.errors import BudgetError, OutputError, SynthdpError
from synthdp.ledger import INTERNAL, Ledger
from synthdp.release import planned_linked, resume_linked
from synthdp.sample import generator, sample_linked
from synthdp.verify import verify_bundle
from tests.release.conftest import dying
from tests.release.linked.conftest import MOST, run, spec_at, write_spec, write_tables

LOOKS = 7


def kinds(folder: Path) -> list[str]:
    ledger = Ledger(f"sqlite:///{folder / '.synthdp' / 'ledger.db'}")
    return [entry.kind for entry in ledger.entries() if entry.kind not in INTERNAL]


def test_a_release_is_whole(made: Path) -> None:
    report = verify_bundle(made)
    assert report.ok and report.epsilon is not None and 4.9 < report.epsilon <= 5
    tables = synthdp.Bundle(made).tables()
    assert [*tables] == ["patients", "stays"]
    patients, stays = tables.values()
    assert patients["patient"].tolist() == [*range(1, 251)]
    assert [*stays.columns] == ["of_patient", "day", "stage", "cost"]
    assert stays["stage"].dtype.kind == "i" and stays["day"].dtype.kind == "M"
    assert stays.groupby("of_patient").size().max() <= MOST
    both = stays.merge(patients, left_on="of_patient", right_on="patient")
    assert (both["born"] <= both["day"]).all() and not (both["died"] < both["day"]).any()
    facts = json.loads((made / "privacy/certificate.json").read_text())
    assert facts["unit"] == "person" and facts["unit_rows"] == 1 and facts["at_most"] == MOST
    assert dict(facts["sensitivities"])["steps: pairs"] == MOST - 1
    assert {most for p, most in facts["sensitivities"] if p != "steps: pairs"} == {1}
    assert [g["size"] for g in facts["groups"]] == [1, 2, 3, 5, 10]


def test_nothing_of_the_original_is_in_a_bundle(made: Path, tmp_path: Path) -> None:
    words = [path.read_bytes() for path in made.rglob("*") if path.is_file()]
    assert not any(b"id-0" in word or b"id-8" in word or b"/tmp" in word for word in words)
    said = (made / "privacy/certificate.md").read_text()
    assert f"one patient with all stays, the first {MOST} of them" in said
    assert "Families and households" in said and "| steps: pairs | 3 |" in said


@pytest.mark.check
def test_descriptions_are_valid(made: Path) -> None:
    package = json.loads((made / "datapackage.json").read_text())
    patients, stays = package["resources"]
    assert patients["schema"]["primaryKey"] == ["patient"]
    (key,) = stays["schema"]["foreignKeys"]
    assert key == {
        "fields": ["of_patient"],
        "reference": {"resource": "patients", "fields": ["patient"]},
    }
    croissant = json.loads((made / "croissant.json").read_text())
    assert [r["@id"] for r in croissant["recordSet"]] == ["patients", "stays"]
    assert croissant["recordSet"][1]["field"][0]["references"]["field"]["@id"] == "patients/patient"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = mlcroissant.Dataset(jsonld=str(made / "croissant.json"))
        records = list(described.records("stays"))
    assert not described.metadata.issues.errors
    keys = pd.read_csv(made / "stays.csv")["of_patient"]
    assert [r["stays/of_patient"] for r in records] == keys.tolist()
    assert frictionless.Package(str(made / "datapackage.json")).validate().valid


def test_the_graph_has_templates(made: Path) -> None:
    graph = json.loads((made / "graph.json").read_text())
    arrows = {(e["from"], e["to"]): e["provenance"] for e in graph["edges"]}
    assert arrows["stays[-1].stage", "stays.stage"] == "given"
    assert arrows["stays[-1].cost", "stays.cost"] == "predictive"
    lagged = [t for t in graph["templates"] if t.get("lag")]
    assert lagged == [{"from": "stays[-1].stage", "to": "stays.stage", "lag": 1, "in_model": True}]


def test_a_sample_is_free_and_repeats(made: Path) -> None:
    one, two = (sample_linked(made, 20, rng=generator(3))[0] for _ in range(2))
    assert [*one] == ["patients", "stays"] and len(one["patients"]) == 20
    for name, frame in one.items():
        pd.testing.assert_frame_equal(frame, two[name])


def test_a_plan_reads_no_row(ward: Path) -> None:
    for name in ("patients.csv", "stays.csv"):
        (ward.parent / name).unlink()
    facts, balance = planned_linked(spec_at(ward), ward)
    looks = {s["purpose"]: s for s in facts["spends"]}
    assert looks["steps: pairs"]["rows_of_a_person"] == MOST - 1
    assert looks["steps: pairs"]["tables"] == 5 and balance.epsilon == 0
    assert len(facts["files"]) == 23 and facts["ledger"]["cap"] == 8
    assert not (ward.parent / ".synthdp").exists()


@pytest.mark.check
def test_a_second_release_is_over_the_cap(ward: Path) -> None:
    write_spec(ward.parent, {"privacy": {"cap": {"epsilon": 5.5, "delta": 1e-4}}})
    bundle = run(ward).bundle
    assert kinds(ward.parent) == ["cap", "reserve", *["charge"] * LOOKS, "settle"]
    before = [*kinds(ward.parent)]
    with pytest.raises(BudgetError, match="cap"):
        run(ward, out=ward.parent / "again")
    assert kinds(ward.parent) == before and not (ward.parent / "again" / ".run").exists()
    with pytest.raises(OutputError, match="already holds a bundle"):
        run(ward)
    assert verify_bundle(bundle).ok


@pytest.mark.check
def test_a_table_that_does_not_fit_spends_nothing(ward: Path) -> None:
    stays = pd.read_csv(ward.parent / "stays.csv", dtype=str)
    stays["stage"] = "9"
    stays.to_csv(ward.parent / "stays.csv", index=False)
    with pytest.raises(SynthdpError, match="stage") as caught:
        run(ward)
    assert kinds(ward.parent) == [] and "id-" not in str(caught.value)
    assert not (ward.parent / "out" / ".run").exists()


@pytest.mark.check
def test_another_number_of_persons_is_told_before_the_bundle(ward: Path) -> None:
    write_tables(ward.parent, persons=40)
    with pytest.raises(SynthdpError, match="not the declared table"):
        run(ward)
    assert not (ward.parent / "out" / "bundle").exists()


@pytest.mark.check
def test_mode_predict_chooses_arrows_that_verify_finds_again(ward: Path) -> None:
    bundle = run(write_spec(ward.parent, {"graph": {"mode": "predict", "edges": []}})).bundle
    assert verify_bundle(bundle).ok
    graph = json.loads((bundle / "graph.json").read_text())
    arrows = {(e["from"], e["to"]): e["provenance"] for e in graph["edges"]}
    assert {*arrows.values()} == {"predictive"} and graph["templates"] == []
    assert ("stays[-1].stage", "stays.stage") in arrows
    assert "no causes" in (bundle / "DATACARD.md").read_text()


# --- runs that stop ---


@pytest.mark.check
def test_a_run_that_stops_again_and_again_pays_for_each_look_once(
    ward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each charge whose look is not kept; fitted; settled; and with its bundle."""
    out, looks, stop = ward.parent / "out", list[str](), [0]
    for kind in ("OnView", "ChosenOnView"):
        view = pkgutil.resolve_name(f"synthdp.privacy.linked.{kind}")

        def heard(self: Any, *rows: Any, true: Any = view.run) -> Any:
            looks.append(self.name)
            return true(self, *rows)

        def stopped(self: Any, value: Any, true: Any = view.pack) -> Any:
            return die() if charges() == stop[0] else true(self, value)

        monkeypatch.setattr(view, "run", heard)
        monkeypatch.setattr(view, "pack", stopped)
    die = dying()

    def charges() -> int:
        return kinds(ward.parent).count("charge")

    def looked() -> int:
        """Times at which the run looks while it goes on to where it stops."""
        looks.clear()
        with pytest.raises(KeyboardInterrupt):
            resume_linked(spec_at(ward), out) if out.exists() else run(ward)
        return len(looks)

    for stop[0] in range(1, LOOKS + 1):
        assert looked() == min(stop[0], 2) and charges() == stop[0]  # what was not kept, again
    stop[0] = LOOKS + 1
    for where, again in (
        ("linked.drawn_frames", 1),
        ("linked.write_linked", 0),
        ("run_folder.RunFolder.note_published", 0),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"synthdp.release.{where}", die)
            assert looked() == again and charges() == LOOKS
    before = (out / "bundle" / "stays.csv").read_bytes()
    looks.clear()
    outcome = resume_linked(spec_at(ward), out)
    assert looks == [] and kinds(ward.parent) == ["cap", "reserve", *["charge"] * LOOKS, "settle"]
    assert verify_bundle(outcome.bundle).ok and not (out / ".run").exists()
    assert before == (outcome.bundle / "stays.csv").read_bytes()
