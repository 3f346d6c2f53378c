"""`drop` and `rename` of a source: the same table in every kind of source, and nothing unseen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthdp.bundle import public_spec
from synthdp.errors import DataError, SpecError
from synthdp.privacy.table import Table
from synthdp.spec import parse_spec
from tests.privacy.conftest import STORES, by_id, domain_from, reader_in

DOMAIN = domain_from(
    {
        "age": {"type": "integer", "lower": 0, "upper": 99},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
    }
)
CANARY = "zq-canary-6617"
CHOSEN: dict[str, Any] = {"drop": ["name", "a.b"], "rename": {"Q1": "age", "Q2.": "sex"}}
TEXTS = [f"{CANARY} 1", f"{CANARY} 2"]
COLUMNS = {"name": TEXTS, "Q1": [3, 40], "a.b": [[1], [2]], "a": [1, 1], "Q2.": ["m", "f"]}
SOURCES = [kind for kind in STORES if kind != "sql"]  # a query chooses its columns itself


@pytest.fixture
def table(tmp_path: Path, stored: Callable[..., dict[str, Any]]) -> Callable[..., Table]:
    def read(kind: str, columns: dict[str, list[Any]], unit: Any = None, **chosen: Any) -> Table:
        rows = stored(kind, columns, **chosen)
        rows.setdefault("source", {"kind": "dataframe", **chosen})
        return reader_in(tmp_path)(**rows, domain=DOMAIN, unit=unit)

    return read


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_dropped_is_not_read_and_what_is_renamed_is_the_column(
    table: Callable[..., Table], kind: str
) -> None:
    plain = table(kind, {"age": [3, 40], "sex": ["m", "f"]})
    found = table(kind, COLUMNS, drop=[*CHOSEN["drop"], "a"], rename=CHOSEN["rename"])
    assert found.codes.tolist() == plain.codes.tolist()
    assert found.frame.equals(plain.frame) and CANARY not in found.frame.to_csv()


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (CHOSEN, r"undeclared column (in place 4|'a')\n"),
        ({"drop": ["name", "a.b", "a"]}, "none of the declared"),
        ({"drop": ["nmae"]}, "drops or renames 'nmae', which the table lacks"),
        ({"rename": {"Q9": "age"}}, "drops or renames 'Q9', which the table lacks"),
    ],
)
def test_names_that_do_not_fit_are_refused_before_a_row_is_read(
    table: Callable[..., Table], kind: str, chosen: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError, match=told) as caught:
        table(kind, COLUMNS, **chosen)
    assert CANARY not in str(caught.value)


def test_swapped_names_and_an_id_that_is_renamed(table: Callable[..., Table]) -> None:
    rows = {"sex": [3, 40], "age": ["m", "f"], "who": ["x", "x"]}
    rename = {"sex": "age", "age": "sex", "who": "person"}
    found = table("csv", rows, unit=by_id(1), rename=rename)
    assert list(found.frame.columns) == ["age", "sex"] and len(found.frame) == 1


def test_csv_lines_of_dropped_columns_still_count(table: Callable[..., Table]) -> None:
    """A line break in a field that is dropped would make one row of two."""
    rows = {"age": [3, 40], "sex": ["m", "f"], "note": ["a\nb", "c"]}
    with pytest.raises(DataError, match="line break"):
        table("csv", rows, drop=["note"])


TEXT = """\
synthdp: 1
dataset:
  id: d
  source:
    kind: csv
    path: t.csv
{}
  privacy_unit: {{kind: row, meaning: one person}}
  rows: {{kind: public, value: 1000}}
columns:
  age: {{type: integer, lower: 0, upper: 99}}
  sex: {{type: categorical, categories: [f, m]}}
privacy: {{epsilon: 1, delta: 1e-5}}
"""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("    drop: [age]", "s.yaml:7:12: dataset.source.drop #1: column 'age' is declared"),
        ("    drop: [x]\n    rename: {x: age}", "s.yaml:7:12: .*'x' is renamed too"),
        ("    rename: {x: aeg}", "s.yaml:7:17: .*unknown column 'aeg'\n.*did you mean 'age'"),
        ("    rename: {x: age, y: age}", "two columns of the source become 'age'"),
    ],
)
def test_mistakes_are_told_with_their_line(source: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        parse_spec(TEXT.format(source), path="s.yaml")


def test_names_of_the_source_are_not_published() -> None:
    spec = parse_spec(TEXT.format('    drop: ["", name]\n    rename: {Q1: age}'), path="s.yaml")
    assert spec.dataset.source.drop == ("", "name")  # type: ignore[union-attr]
    public = public_spec(spec).dataset.source
    assert (public.drop, public.rename) == ((), {})  # type: ignore[union-attr]
