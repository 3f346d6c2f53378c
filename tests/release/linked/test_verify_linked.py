"""Every way to spoil a bundle of persons with visits is found, and named, with mended sums too."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from synthdp.bundle import LINKED_DERIVED
from synthdp.files import SUMS
from synthdp.model import STEP_PAIRS, load_visits, save_visits
from synthdp.privacy.plan import ReleasePlan
from synthdp.release import linked
from synthdp.verify import LinkedReader
from tests.bundle.test_light import without_release
from tests.release.linked.conftest import problems, run

Spoil = Callable[[pd.DataFrame], Any]
CERTIFICATE, LEDGER, MARGINALS = (
    "privacy/certificate.json",
    "privacy/ledger.json",
    "marginals.json",
)


def edited(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def spoiled(bundle: Path, name: str, change: Spoil) -> str:
    """What is found once a table was changed, with its Parquet."""
    path = bundle / f"{name}.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    changed = change(frame)
    (frame if changed is None else changed).to_csv(path, index=False, lineterminator="\n")
    return problems(bundle)


def put(column: str, row: int, value: str) -> Spoil:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[row, column] = value

    return change


def with_two(frame: pd.DataFrame) -> int:
    """The row of the first second visit of a person."""
    return int(np.flatnonzero(frame["of_patient"].duplicated())[0])


def same_day(frame: pd.DataFrame) -> None:
    row = with_two(frame)
    frame.loc[row, "day"] = frame.loc[row - 1, "day"]


def falling(frame: pd.DataFrame) -> None:
    row = with_two(frame)
    frame.loc[[row - 1, row], "stage"] = ["2", "1"]


def one_more(frame: pd.DataFrame) -> pd.DataFrame:
    """A fifth visit of the first person who has four, a day after the fourth."""
    most = frame["of_patient"].value_counts().loc[lambda n: n == 4].index[0]
    last = frame[frame["of_patient"] == most].iloc[-1:].copy()
    last["day"] = (pd.to_datetime(last["day"]) + pd.Timedelta("1D")).dt.strftime("%Y-%m-%d")
    at = last.index[0] + 1
    return pd.concat([frame[:at], last, frame[at:]])


TABLES: dict[str, tuple[str, Spoil, str]] = {
    "another header": ("stays", lambda f: f.rename(columns={"day": "when"}), "header"),
    "a column more": ("patients", lambda f: f.assign(more="1"), "header"),
    "outside the domain": ("stays", put("stage", 3, "7"), "'stage': 1 values are not in"),
    "outside the bounds": ("stays", put("cost", 3, "100.5"), "'cost': 1 values are not in"),
    "no date": ("stays", put("day", 3, ""), "'day': 1 values are not in"),
    "a key twice": ("patients", put("patient", 1, "1"), "keys are not 1 to 250"),
    "a key that is none": ("patients", put("patient", 1, "x"), "'patient': 1 values"),
    "a person less": ("patients", lambda f: f[:-1], "keys are not 1 to 250"),
    "persons in another order": ("patients", lambda f: f[::-1], "keys are not 1 to 250"),
    "a visit of nobody": ("stays", put("of_patient", 0, "251"), "'of_patient': 1 values"),
    "no visit of a person": ("stays", lambda f: f[f["of_patient"] != "9"], "has no visit"),
    "visits of others between": ("stays", lambda f: f[::-1], "not in the order of persons"),
    "two on a day": ("stays", same_day, "visits of a person are not in order"),
    "one too many": ("stays", one_more, "more than 4 visits"),
    "born after a visit": ("patients", put("born", 0, "1999-12-31"), ""),
    "dead before a visit": ("patients", put("died", 0, "2020-01-01"), "after the person's death"),
    "a level that falls": ("stays", falling, "'stage' is not nondecreasing"),
}


@pytest.mark.check
@pytest.mark.parametrize("how", [how for how in TABLES if TABLES[how][2]])
def test_a_spoiled_table_is_found(bundle: Path, how: str) -> None:
    name, change, told = TABLES[how]
    if how == "dead before a visit":
        stays = pd.read_csv(bundle / "stays.csv", dtype=str)
        first = stays[stays["day"] > "2020-01-01"]["of_patient"].astype(int).min()
        change = put("died", int(first) - 1, "2020-01-01")
    found = spoiled(bundle, name, change)
    assert told in found and f"{name}.csv" in found
    assert f"{name}.parquet" in found or told == "header"


@pytest.mark.check
def test_a_visit_before_birth_is_found(bundle: Path) -> None:
    """A spec by which births can be after visits; all else of it does not fit, and is told too."""
    text = (bundle / "spec.yaml").read_text()
    (bundle / "spec.yaml").write_text(text.replace("1999-12-31", "2022-12-31"))
    found = spoiled(bundle, "patients", lambda f: f.assign(born="2022-12-31"))
    assert "before the person's birth" in found


def test_damage_is_seen_without_mended_sums(bundle: Path) -> None:
    with (bundle / "stays.csv").open("a") as file:
        file.write("250,2023-12-31,0,\n")
    assert "stays.csv: was changed" in problems(bundle, mended=False)


@pytest.mark.check
def test_each_file_is_checked(made: Path, bundle: Path) -> None:
    """Every file of a bundle, spoiled or gone: `verify` names it."""
    for path in sorted(p for p in made.rglob("*") if p.is_file()):
        name = path.relative_to(made).as_posix()
        own = bundle / name
        own.write_bytes(path.read_bytes() + b"\n ")
        assert name in problems(bundle, mended=False), name
        if name != SUMS:
            own.unlink()
            assert f"{name}: is missing" in problems(bundle, mended=False), name
        own.write_bytes(path.read_bytes())
    assert problems(bundle, mended=False) == ""


@pytest.mark.check
@pytest.mark.parametrize("name", LINKED_DERIVED)
def test_a_derived_file_is_written_again(bundle: Path, name: str) -> None:
    path = bundle / name
    if not path.exists():
        path.write_text("a: 1\n")
        assert f"{name}: does not belong" in problems(bundle)
        return
    path.write_text(path.read_text().replace("a", "b", 1))
    assert f"{name}: " in problems(bundle)


def _of_steps(content: Any) -> dict[str, Any]:
    return next(t for t in content["tables"] if t["purpose"] == "steps: pairs")


PLANS: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "noise that is stated too small": (
        MARGINALS,
        lambda c: _of_steps(c).update(sigma=1.0),
        "steps: pairs: table stays[-1].gap, stays.gap: states other noise",
    ),
    "noise of a level": (
        MARGINALS,
        lambda c: c["tables"][0].update(sigma=0.5),
        "states other noise",
    ),
    "steps as if each had one row": (
        MARGINALS,
        lambda c: _of_steps(c).update(rows_of_a_person=1),
        "of other rows than it looks at",
    ),
    "another law": (MARGINALS, lambda c: c["tables"][0].update(law="steps"), "of other rows"),
    "a table that is gone": (MARGINALS, lambda c: c["tables"].pop(), "not those of the spec"),
    "a look that is gone": (
        MARGINALS,
        lambda c: c.update(tables=[t for t in c["tables"] if t["purpose"] != "steps: pairs"]),
        "not those of the spec",
    ),
    "a count that is not whole": (
        MARGINALS,
        lambda c: c["tables"][0]["counts"].__setitem__(0, 0.5),
        "a count is not whole",
    ),
    "counts of no shape": (
        MARGINALS,
        lambda c: c["tables"][0]["counts"].pop(),
        "marginals.json: is not what it should be",
    ),
    "fewer visits than were read": (
        CERTIFICATE,
        lambda c: c.update(at_most=2),
        "at_most does not follow",
    ),
    "rows of a person": (
        CERTIFICATE,
        lambda c: c["sensitivities"][-1].__setitem__(1, 1),
        "sensitivities does not follow",
    ),
    "a smaller epsilon": (CERTIFICATE, lambda c: c.update(epsilon=1.0), "epsilon"),
    "another unit": (CERTIFICATE, lambda c: c.update(unit="row"), "unit"),
    "a receipt that is gone": (
        CERTIFICATE,
        lambda c: c.update(released=[f for f in c["released"] if f["file"] != "stays.csv"]),
        "stays.csv has no receipt",
    ),
    "a group that is promised too much": (
        CERTIFICATE,
        lambda c: c["groups"][1].update(joint_epsilon=5.0),
        "groups of 2",
    ),
    "a charge that is gone": (LEDGER, lambda c: c["entries"].pop(2), "counts 7 charges"),
    "parents that nobody gave": (
        "model.json",
        lambda c: c["parents"].update({"stays.cost": ["stays[-1].cost", "stays[-1].stage"]}),
        "has parents that the spec does not give it",
    ),
    "other groups": ("model.json", lambda c: c.update(starts={"cost": [0, 2]}), "read the model"),
}


@pytest.mark.check
@pytest.mark.parametrize("how", PLANS)
def test_a_spoiled_claim_is_found(bundle: Path, how: str) -> None:
    name, change, told = PLANS[how]
    edited(bundle / name, change)
    assert told in problems(bundle)


@pytest.mark.check
def test_a_run_that_forgot_that_a_person_has_steps_is_found(
    ward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of one row on tables of steps: all that it writes agrees, but for the spec."""
    true = linked.plan_linked

    def forgetful(*arguments: Any) -> ReleasePlan:
        def one_row(purpose: str, look: Any) -> Any:
            inner = look.inner.scaled(1 / look.rows)
            return replace(look, inner=inner, rows=1) if purpose == STEP_PAIRS else look

        return true(*arguments).map(one_row)

    with monkeypatch.context() as patch:
        patch.setattr(linked, "plan_linked", forgetful)
        bundle = run(ward).bundle
    found = problems(bundle, mended=False)
    assert "sensitivities does not follow from the spec" in found
    assert "steps: pairs: is planned with another event than" in found


@pytest.mark.check
def test_a_spec_of_other_visits_is_found(bundle: Path) -> None:
    """With fewer visits the same noise would be dearer: plan, ledger and tables do not fit it."""
    text = (bundle / "spec.yaml").read_text()
    (bundle / "spec.yaml").write_text(text.replace("at_most: 4", "at_most: 6"))
    found = problems(bundle)
    assert "spec.yaml: is not the spec that the ledger names" in found
    assert "steps: pairs: is planned with another event than" in found


@pytest.mark.check
def test_a_model_of_other_shapes_is_found(bundle: Path) -> None:
    reader = LinkedReader(bundle)
    model = load_visits(bundle, reader.frame)
    model.numbers[:] = np.nan
    save_visits(model, bundle)
    assert "do not make one model" in problems(bundle)
    (bundle / "model.safetensors").write_bytes(b"\x80\x04pickle")
    assert "model.safetensors: cannot read the model" in problems(bundle)


@pytest.mark.check
def test_a_reader_needs_no_more_than_the_core(made: Path, tmp_path: Path) -> None:
    """The packages that only releases need are blocked."""
    out = tmp_path / "more"
    lines = [["verify", str(made)], ["sample", str(made), "--rows", "5", "--out", str(out)]]
    codes, done = without_release(*lines, folder=tmp_path)
    assert codes == [0, 0], done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["patients.csv", "stays.csv"]


@pytest.mark.check
@pytest.mark.parametrize("text", ["", "dataset: {tables: [", "a: " + "[" * 5000, "\0", "[tables]"])
def test_a_spec_that_is_none_is_no_crash(bundle: Path, text: str) -> None:
    (bundle / "spec.yaml").write_text(text)
    assert problems(bundle, mended=False)
