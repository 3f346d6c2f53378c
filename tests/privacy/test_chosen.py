"""`drop` and `rename` of a source: the same table in every kind of source, and nothing unseen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from synthdp.bundle.descriptions import public_spec
from synthdp.data.domain import Domain
from synthdp.errors import DataError, SpecError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.readers.files import seal_dataframe
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import Dataset
from tests.builders import build_spec, skeleton

SPEC = build_spec(
    {
        "age": {"type": "integer", "lower": 0, "upper": 99},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
    }
)
CANARY = "zq-canary-6617"
CHOSEN = {"drop": ["name", "a.b"], "rename": {"Q1": "age", "Q2.": "sex"}}
UNIT = {"kind": "id", "column": "pid", "max_rows": 1, "meaning": "one person"}


def frame() -> pd.DataFrame:
    texts = [f"{CANARY} 1", f"{CANARY} 2"]
    return pd.DataFrame(
        {"name": texts, "Q1": [3, 40], "a.b": [[1], [2]], "a": 1, "Q2.": ["m", "f"]}
    )


def saved(folder: Path, kind: str, columns: pd.DataFrame) -> dict[str, Any]:
    if kind == "csv":
        columns.to_csv(folder / "t.csv", index=False)
    elif kind.startswith("parquet"):
        columns.to_parquet(folder / "t.parquet")
    return {
        "csv": {"kind": "csv", "path": "t.csv"},
        "parquet": {"kind": "parquet", "path": "t.parquet"},
        "parquet in batches": {"kind": "parquet", "path": "t.parquet", "levels_only": True},
        "dataframe": {"kind": "dataframe"},
    }[kind]


def table_of(folder: Path, kind: str, columns: pd.DataFrame, **chosen: Any) -> Table:
    own = skeleton(2, source=saved(folder, kind, columns) | chosen)["dataset"]
    given = seal_dataframe(columns) if kind == "dataframe" else None
    return read_private(
        Dataset.model_validate(own),
        Domain.from_spec(SPEC.columns),
        folder=folder,
        holdout=0.0,
        streams=Streams.fresh(),
        given=given,
    ).unseal(key=_KERNEL_KEY)


SOURCES = ["csv", "parquet", "parquet in batches", "dataframe"]


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_dropped_is_not_read_and_what_is_renamed_is_the_column(
    tmp_path: Path, kind: str
) -> None:
    plain = table_of(tmp_path, kind, pd.DataFrame({"age": [3, 40], "sex": ["m", "f"]}))
    drop = [*CHOSEN["drop"], "a"]
    table = table_of(tmp_path, kind, frame(), drop=drop, rename=CHOSEN["rename"])
    assert table.codes.tolist() == plain.codes.tolist()
    assert table.frame.equals(plain.frame) and CANARY not in table.frame.to_csv()


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
    tmp_path: Path, kind: str, chosen: dict[str, Any], told: str
) -> None:
    with pytest.raises(DataError, match=told) as caught:
        table_of(tmp_path, kind, frame(), **chosen)
    assert CANARY not in str(caught.value)


def test_swapped_names_and_an_id_that_is_renamed(tmp_path: Path) -> None:
    rows = pd.DataFrame({"sex": [3, 40], "age": ["m", "f"], "person": ["x", "x"]})
    rows.to_csv(tmp_path / "t.csv", index=False)
    rename = {"sex": "age", "age": "sex", "person": "pid"}
    source = {"kind": "csv", "path": "t.csv", "rename": rename}
    table = read_private(
        Dataset.model_validate(skeleton(2, source=source, privacy_unit=UNIT)["dataset"]),
        Domain.from_spec(SPEC.columns),
        folder=tmp_path,
        holdout=0.0,
        streams=Streams.fresh(),
    ).unseal(key=_KERNEL_KEY)
    assert list(table.frame.columns) == ["age", "sex"] and len(table.frame) == 1


def text(source: str) -> str:
    return f"""\
synthdp: 1
dataset:
  id: d
  source:
    kind: csv
    path: t.csv
{source}
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
        parse_spec(text(source), path="s.yaml")


def test_names_of_the_source_are_not_published() -> None:
    spec = parse_spec(text('    drop: ["", name]\n    rename: {Q1: age}'), path="s.yaml")
    assert spec.dataset.source.drop == ("", "name")  # type: ignore[union-attr]
    public = public_spec(spec).dataset.source
    assert (public.drop, public.rename) == ((), {})  # type: ignore[union-attr]


def test_csv_lines_of_dropped_columns_still_count(tmp_path: Path) -> None:
    """A line break in a field that is dropped would make one row of two."""
    (tmp_path / "t.csv").write_text('age,sex,note\n3,m,"a\nb"\n40,f,c\n')
    source = {"kind": "csv", "path": "t.csv", "drop": ["note"]}
    read: Callable[[], object] = lambda: read_private(  # noqa: E731
        Dataset.model_validate(skeleton(2, source=source)["dataset"]),
        Domain.from_spec(SPEC.columns),
        folder=tmp_path,
        holdout=0.0,
        streams=Streams.fresh(),
    )
    with pytest.raises(DataError, match="line break"):
        read()
