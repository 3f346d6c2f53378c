"""Texts of the source that become categories, and lists of categories that lie in files."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from synthdp import Spec
from synthdp.bundle import public_spec, spec_yaml
from synthdp.data import Domain
from synthdp.errors import SpecError
from synthdp.graph import read_graph
from synthdp.spec import load_spec, own_text, parse_spec
from synthdp.spec.model import Categorical
from tests.builders import skeleton

STATUS = {"type": "categorical", "categories": ["positive", "negative"], "missing": True}
SIGNS = {"+": "positive", "++": "positive", "-": "negative", "=": "negative"}


def spec_of(columns: dict[str, Any], **more: Any) -> str:
    content = skeleton(source={"kind": "csv", "path": "t.csv"}) | {"columns": columns} | more
    content["privacy"] = {"epsilon": 1.0, "delta": 0.00001}
    content = json.loads(json.dumps(content))  # nothing is shared, so that YAML has no anchors
    return yaml.safe_dump(content, sort_keys=False).replace("1.0e-05", "0.00001")


def mistakes(columns: dict[str, Any], **more: Any) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(spec_of(columns, **more), path="s.yaml")
    return str(caught.value)


def test_texts_of_the_source_become_categories() -> None:
    er = STATUS | {"values": SIGNS, "missing_codes": ["=?", "@"]}
    spec = parse_spec(spec_of({"er": er}), path="s.yaml")
    column = Domain.from_spec(spec.columns)["er"]
    assert dict(column.sources) == SIGNS and column.missing_codes == ("=?", "@")
    assert parse_spec(spec_yaml(public_spec(spec)), path="p").columns == spec.columns


def test_a_named_map_serves_several_columns() -> None:
    text = spec_of(
        {"er": STATUS | {"map": "signs"}, "pr": STATUS | {"map": "signs"}}, maps={"signs": SIGNS}
    )
    spec = parse_spec(text, path="s.yaml")
    assert [c.values for c in spec.columns.values()] == [SIGNS, SIGNS]  # type: ignore[union-attr]
    assert spec.maps == {} and "maps" not in spec_yaml(spec)
    assert parse_spec(spec_yaml(spec), path="p").columns == spec.columns


@pytest.mark.parametrize(
    ("column", "more", "told"),
    [
        ({"values": {"+": "pos"}}, {}, "'pos' is no category of the column"),
        ({"values": {"negative": "positive"}}, {}, "'negative' is a category itself"),
        ({"values": {"?": "positive"}, "missing_codes": ["?"]}, {}, "stands for a missing value"),
        ({"values": {"": "positive"}}, {}, "'' also stands for a missing value"),
        ({"map": "sign"}, {"maps": {"signs": SIGNS}}, "did you mean 'signs'?"),
        ({"map": "signs"}, {}, "`maps` has no 'signs'"),
        ({"map": "signs", "values": SIGNS}, {"maps": {"signs": SIGNS}}, "not both"),
        ({"map": "signs"}, {"maps": {"signs": {"+": "pos"}}}, "'pos' is no category"),
        ({"values": {"a": "=x"}}, {}, "starts like a spreadsheet formula"),
        ({"values": {"a\0": "positive"}}, {}, "null character"),
    ],
)
def test_mistakes_of_maps_are_told(column: Any, more: Any, told: str) -> None:
    assert told in mistakes({"er": STATUS | column}, **more)


def test_a_mistake_elsewhere_is_no_mistake_of_a_map() -> None:
    found = mistakes(
        {"er": STATUS | {"map": "signs"}}, maps={"signs": SIGNS}, sampling={"rows": "many"}
    )
    assert "1 mistake" in found and "maps" not in found


def test_signs_as_categories_are_refused_with_the_way_out_and_nothing_else() -> None:
    found = mistakes({"er": {"type": "categorical", "categories": ["+", "-"]}})
    assert "2 mistakes" in found and "at least 1" not in found
    assert 'map the source\'s to that with `values: {"+": ...}`' in found


# --- lists in files ---

BLOCK = """
columns:
  code:
    type: text-code
    codes:
      file: lists/icd.txt
    # the first three characters
    prefix: 3
  sex: {type: categorical, categories: {file:
      sex.txt}, missing: yes}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "icd.txt").write_bytes(b"\xef\xbb\xbfE11.9\r\n\r\n E11.65\r\nI10 \r\n")
    (tmp_path / "sex.txt").write_text('a, "b"\nd\u00e9\u20ac\U0001f600\n#1: x\n', encoding="utf-8")
    head = spec_of({}).replace("columns: {}\n", BLOCK)
    (tmp_path / "s.yaml").write_text(head.replace("missing: yes", "missing: true"))
    return tmp_path


def test_lists_are_read_from_files_and_are_part_of_the_text(folder: Path) -> None:
    spec = Spec.load(folder / "s.yaml")
    code, sex = (spec.content.columns[name] for name in ("code", "sex"))
    assert code.codes == ("E11.9", "E11.65", "I10")  # type: ignore[union-attr]
    assert isinstance(sex, Categorical) and sex.missing
    assert sex.categories == ('a, "b"', "d\u00e9\u20ac\U0001f600", "#1: x")
    assert spec.text == own_text(folder / "s.yaml") and "icd.txt" not in spec.text
    (folder / "lists" / "icd.txt").write_text("other\n")
    assert parse_spec(spec.text, path="s.yaml").columns == spec.content.columns
    assert "E11.65" in spec_yaml(public_spec(spec.content))


def test_lines_of_a_spec_with_lists_keep_their_numbers(folder: Path) -> None:
    text = (folder / "s.yaml").read_text()
    (folder / "s.yaml").write_text(text.replace("prefix: 3", "prefix: 30"))
    with pytest.raises(SpecError) as caught:
        load_spec(folder / "s.yaml", lists=True)
    line = next(i for i, own in enumerate(text.splitlines(), 1) if "prefix: 3" in own)
    assert f"s.yaml:{line}:" in str(caught.value)


def test_a_spec_of_others_opens_no_file(folder: Path) -> None:
    for read in (load_spec, read_graph):
        with pytest.raises(SpecError, match="expected a list, got a map"):
            read(folder / "s.yaml")


def test_a_stewards_own_spec_has_its_graph_beside_its_lists(folder: Path) -> None:
    text = (folder / "s.yaml").read_text()
    graph = "graph: {mode: given, edges: [sex -> code]}"
    (folder / "s.yaml").write_text(f"{text}\n{graph}\n")
    assert read_graph(folder / "s.yaml", lists=True).directed == (("sex", "code"),)
    (folder / "sex.txt").unlink()
    with pytest.raises(SpecError, match=r"'sex\.txt' cannot be read: there is no such file"):
        read_graph(folder / "s.yaml", lists=True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "there is no such file"),
        (b"", "it is empty"),
        (b"\xff\xfea", "it is not UTF-8 text"),
        (b"x\n" * 600_000, "it is larger than 1,000,000 bytes"),
        (b"".join(b"%d\n" % i for i in range(90_000)), "with its lists the spec is larger"),
    ],
)
def test_a_list_that_cannot_be_read_is_told(folder: Path, content: Any, told: str) -> None:
    (folder / "sex.txt").unlink()
    if content is not None:
        (folder / "sex.txt").write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_spec(folder / "s.yaml", lists=True)
    assert told in str(caught.value)
    assert "columns.sex.categories" in str(caught.value) or "larger" in told


def test_a_list_in_a_file_from_python(folder: Path) -> None:
    columns = {"sex": {"type": "categorical", "categories": {"file": "sex.txt"}}}
    spec = Spec.from_dict(skeleton() | {"columns": columns}, folder=folder)
    assert spec.content.columns["sex"].labels[2] == "#1: x"
