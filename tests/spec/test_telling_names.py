"""What names of columns tell: the unit above all, in `init`, `validate` and `plan` alike."""

from pathlib import Path

import pytest

from synthdp.errors import SpecError
from synthdp.ledger import Balance
from synthdp.release.plan_view import plan_facts, spec_warnings
from synthdp.spec import draft_spec, likely_id, parse_spec, remarks, unit_warning
from tests.builders import build_spec
from tests.spec.test_draft import Script


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["member no", "MEMBER", "premium"], {"member no": "id"}),
        (["subjectId", "wave", "mood"], {"subjectId": "id", "wave": "visit"}),
        (["wt71", "wt82", "wt82_71"], {"wt82_71": "follows"}),
        (["speed", "mass", "speed.mass"], {"speed.mass": "follows"}),
        (["HEIGHT_CM", "Weight", "BMI"], {"BMI": "follows"}),
        (["pain_before", "pain_after", "pain_change"], {"pain_change": "follows"}),
        (["dob", "sex"], {"dob": "birth"}),
        (["enrolled", "Date of death"], {"enrolled": "dates", "Date of death": "dates"}),
        (["sampled at"], {}),  # one date alone has no order
        (["age_group", "n_children"], dict.fromkeys(["age_group", "n_children"], "few")),
        (["monthlySalary", "fare"], dict.fromkeys(["monthlySalary", "fare"], "money")),
        (["icd3", "ZIP", "home-postcode"], dict.fromkeys(["icd3", "ZIP", "home-postcode"], "code")),
        (["age", "sex", "identity", "covid", "valid", "number", "update", "student", "visits"], {}),
    ],
)  # fmt: skip
def test_what_each_name_tells(names: list[str], kinds: dict[str, str]) -> None:
    assert {name: remark.kind for name, remark in remarks(names).items()} == kinds


def test_the_id_of_a_person_goes_before_that_of_a_thing() -> None:
    assert likely_id(["ward_id", "visit_id", "id", "client_id"]) == "client_id"
    assert likely_id(["ward_id", "visit_id", "id"]) == "id"
    assert likely_id(["visit_id", "row id", "age"]) is None


AGE = {"type": "integer", "lower": 0, "upper": 99}
ROW = {"kind": "row", "meaning": "one stay"}
BY_ID = {"kind": "id", "column": "pupil_id", "max_rows": 2, "meaning": "one pupil"}


@pytest.mark.parametrize(
    ("drop", "columns", "unit", "told"),
    [
        (["pupil_id"], ["age"], ROW, "'pupil_id' sounds as if"),
        (["school_id"], ["age"], ROW, "'school_id' sounds as if"),
        ([], ["age", "wave"], ROW, "'wave' sounds as if"),
        (["pupil_id"], ["age", "visit_no"], ROW, "'pupil_id', 'visit_no' sound as if"),
        ([], ["age", "school_id"], ROW, None),  # its categories are declared
        (["name"], ["age"], ROW, None),
        ([], ["age", "visit_no"], BY_ID, None),
    ],
)
def test_a_row_unit_beside_ids_is_warned_of_in_one_voice(
    drop: list[str], columns: list[str], unit: dict[str, object], told: str | None
) -> None:
    source = {"kind": "csv", "path": "stays.csv", "drop": drop}
    spec = build_spec(
        dict.fromkeys(columns, AGE),
        dataset={
            "id": "d",
            "source": source,
            "privacy_unit": unit,
            "rows": {"kind": "approximate", "value": 1000},
        },
    )
    validated = [w for w in spec_warnings(spec) if "privacy_unit" in w]
    planned = [
        w
        for w in plan_facts(spec, Balance("d", 0, 0, None, None))["warnings"]
        if "privacy_unit" in w
    ]
    assert validated == planned
    assert [told in w for w in validated if told] == [True] * (told is not None)
    assert validated == [w for w in [unit_warning(str(unit["kind"]), drop, columns)] if w]


HEADER = b"stay_no,PatientNr,age,height,weight,bmi,cost_eur,icd10\n"


def test_a_draft_has_the_id_as_its_unit_and_a_word_on_telling_names(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_bytes(HEADER)
    text = draft_spec(tmp_path / "stays.csv", ask=None)
    assert "    column: PatientNr\n    max_rows: !fill_in" in text
    assert text.index("max_rows: !fill_in") < text.index("  rows:")
    assert "of the rows that max_rows leaves" in text and "\n  PatientNr:" not in text
    for name, told in (
        ("bmi", "does it follow from `weight` and `height`?"),
        ("cost_eur", "powers of ten"),
        ("icd10", "text-code"),
        ("stay_no", "one of several visits"),
    ):
        at = text.index(f"  # {name}: ")
        assert told in text[at : text.index("\n", at)]
        assert text[text.index("\n", at) + 1 :].startswith(f"  {name}:\n")
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="d.yaml")
    fields = [p.field for p in caught.value.problems]
    assert fields[:2] == ["dataset.privacy_unit.max_rows", "dataset.privacy_unit.meaning"]


def test_the_dialogue_offers_the_id_and_asks_for_rows_after_what_is_used(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_bytes(b"PatientNr,cost_eur,ward_id\n")
    answers = ("", "", "1", "one patient", "", "9000", "")
    cost = ("integer", "0", "1000000", "", "", "yes", "no", "")
    script = Script(*answers, *cost, "drop", *[""] * 4)
    defaults = dict[str, str | None]()

    def ask(question: str, *, allowed: tuple[str, ...] = (), default: str | None = None) -> str:
        defaults[question] = default
        return script(question) or default or ""

    spec = parse_spec(draft_spec(tmp_path / "stays.csv", ask=ask), path="d.yaml")
    assert spec.dataset.privacy_unit.model_dump() == {
        "kind": "id",
        "column": "PatientNr",
        "max_rows": 1,
        "meaning": "one patient",
    }
    asked = list(defaults)
    assert defaults[asked[0]] == "id" and defaults[asked[1]] == "PatientNr"
    assert "rows of one id" in asked[2] and "as many as ids" in asked[5]
    type_of = {q.split("\n")[-1]: q for q in asked if "which type" in q}
    assert "powers of ten" in type_of["(1 of 2) cost_eur: which type?"]
    assert defaults[type_of["(2 of 2) ward_id: which type?"]] == "drop"
    assert any("from 0, 10, 20, 50" in question or "0, 100" in question for question in asked)


def test_a_row_unit_that_is_chosen_beside_an_id_is_warned_of_at_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"donor_id,age\n")
    script = Script("row", "one gift", "", "500", "", "drop", "boolean", "n", "y", "no", *[""] * 5)
    draft_spec(tmp_path / "t.csv", ask=script)
    assert "'donor_id' sounds as if" in script.asked[1] and "goes back" in script.asked[1]
