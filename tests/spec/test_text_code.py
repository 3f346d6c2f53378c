"""Columns of codes in a spec: levels are prefixes, and what cannot be read or told apart is
refused.
"""

from pathlib import Path

import pytest
import yaml

from synthdp.errors import SpecError
from synthdp.spec import TextCode, draft_spec, parse, parse_spec
from synthdp.spec.model import COLUMN_TYPES, ReleaseSpec

ICD = {"type": "text-code", "codes": ["I10", "E11.9", "E11.65", "E10.1", "I10.0"], "prefix": 3}


def spec_with(entry: dict[str, object], **sections: object) -> ReleaseSpec:
    whole = {
        "synthdp": 1,
        "dataset": {
            "id": "clinic",
            "source": {"kind": "csv", "path": "t.csv", "missing_values": ["", "NA"]},
            "privacy_unit": {"kind": "row", "meaning": "a visit"},
            "rows": {"kind": "approximate", "value": 1000},
        },
        "columns": {"diagnosis": entry, "sex": {"type": "categorical", "categories": ["f", "m"]}},
        "privacy": {"epsilon": 1, "delta": 1e-5},
        **sections,
    }
    return parse_spec(yaml.safe_dump(whole), path="spec.yaml")


def test_levels_are_the_prefixes_in_the_order_of_the_codes() -> None:
    column = spec_with({**ICD, "missing": True}).columns["diagnosis"]
    assert column.labels == ("I10", "E11", "E10") and column.level_count == 4
    assert COLUMN_TYPES[column.type] is TextCode


def test_codes_that_yaml_takes_for_numbers_stay_as_they_are_written() -> None:
    spec = parse_spec(
        "synthdp: 1\n"
        "dataset: {id: a, source: {kind: csv, path: t.csv}, rows: {kind: approximate, value: 999},"
        " privacy_unit: {kind: row, meaning: a visit}}\n"
        "columns: {code: {type: text-code, codes: [250.10, 250.1, 1E2, 007.0], prefix: 6}}\n"
        "privacy: {epsilon: 1, delta: 1e-5}\n",
        path="spec.yaml",
    )
    assert spec.columns["code"].labels == ("250.10", "250.1", "1E2", "007.0")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"prefix": 7}, "diagnosis.prefix: got 7, and no code has more than 6"),
        ({"prefix": 0}, "diagnosis.prefix"),
        ({"codes": []}, "diagnosis.codes"),
        ({"codes": ["I10", "I10"]}, "listed more than once: I10"),
        ({"codes": ["e\u0301x", "\u00e9x"], "prefix": 2}, "look the same and are not"),
        ({"codes": ["-5.3", "a"], "prefix": 1}, "level '-' starts like a spreadsheet formula"),
        ({"codes": ["=1"]}, "starts like a spreadsheet formula"),
        ({"codes": ["NA", "I10"], "prefix": 2}, "category 'NA' also stands for a missing value"),
        ({"codes": ["NA.1", "I10"], "prefix": 2}, "category 'NA' also stands for a missing value"),
        ({"codes": ["missing.1"], "prefix": 7, "missing": True}, "category 'missing' cannot be"),
        ({"codes": [f"{i:04}" for i in range(5000)], "prefix": 4}, "5,000 different prefixes"),
        ({"categories": ["I10"]}, "categories"),
    ],
)
def test_what_cannot_be_read_or_told_apart_is_refused(entry: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_with({**ICD, **entry})
    assert told in str(caught.value)


@pytest.mark.check
def test_many_codes_of_few_levels_are_allowed() -> None:
    codes = [f"{letter}{i:02}.{k}" for letter in "ABCD" for i in range(100) for k in range(20)]
    assert spec_with({**ICD, "codes": codes}).columns["diagnosis"].level_count == 400


def test_expressions_compare_the_prefix() -> None:
    columns = spec_with(ICD, constraints=["diagnosis in ('E11', 'E10') or sex == 'f'"]).columns
    for text, told in (
        ("diagnosis == 'E11.9'", "is no category of 'diagnosis': I10, E11, E10"),
        ("diagnosis > 'E10'", "the categories of 'diagnosis' have no order"),
        ("diagnosis", "is a value where something true or false is needed"),
    ):
        assert told in parse(text, columns)[1][0].message
    found, mistakes = parse("diagnosis != 'E11'", columns)
    assert found is not None and not mistakes


def test_the_other_sections_see_categories() -> None:
    judged = spec_with(
        ICD,
        evaluation={"targets": ["diagnosis"], "subgroups": ["diagnosis"]},
        graph={"mode": "given", "edges": ["sex -> diagnosis"]},
        synthesizer={"targets": ["diagnosis"]},
        privacy={
            "epsilon": 1,
            "delta": 1e-5,
            "shares": {"measure": 0.2, "pairs": 0.2, "targets": 0.1, "train": 0.5},
            "pairs": [["diagnosis", "sex"]],
        },
    )
    assert judged.evaluation.subgroups == ("diagnosis",)
    with pytest.raises(SpecError, match="3 categories in no order, of which there is no mean"):
        spec_with(ICD, evaluation={"effects": [{"treated": "sex == 'f'", "outcome": "diagnosis"}]})


def test_init_asks_for_codes_and_prefix(tmp_path: Path) -> None:
    table = tmp_path / "clinic.csv"
    table.write_text("diagnosis\nE11.9\n")
    answers = iter(
        ["row", "a visit", "approximate", "1000", ""]
        + ["text-code", "E11.9, I10", "9", "no", ""]  # a prefix longer than every code: asked again
        + ["E11.9, I10", "3", "yes", "", "", "", "1", ""]
    )
    asked: list[str] = []

    def ask(question: str, *, allowed: tuple[str, ...] = (), default: str | None = None) -> str:
        asked.append(question)
        return next(answers)

    draft = draft_spec(table, ask=ask)
    column = parse_spec(draft, path="draft.yaml").columns["diagnosis"]
    assert column == TextCode(type="text-code", codes=("E11.9", "I10"), prefix=3, missing=True)
    assert any("no code has more than 5" in question for question in asked)
    assert next(answers, None) is None
    assert "#   text-code:                 codes: [E11.9, I10]" in draft


def test_the_draft_names_the_type(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    assert "datetime or text-code" in draft_spec(tmp_path / "t.csv", ask=None)
