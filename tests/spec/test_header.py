"""Headers as other programs write them, and Parquet's schema: `init` takes what `release` takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthdp.data import Domain
from synthdp.errors import DataError, SpecError
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import _KERNEL_KEY
from synthdp.privacy.source import read_private
from synthdp.spec import draft_spec, parse_spec, read_header
from synthdp.spec.model import ReleaseSpec
from tests.spec.test_draft import Script

CANARY = "zq-canary-4410"
ROW = ("row", "one plot", "approximate", "900")
TAIL = ("", "", "", "", "")  # of a complete dialogue: missing values or none, about, budget


def read(spec: ReleaseSpec, folder: Path) -> list[list[str]]:
    """The cells that a release would read."""
    table = read_private(
        spec.dataset,
        Domain.from_spec(spec.columns),
        folder=folder,
        holdout=0.0,
        streams=Streams.fresh(),
    ).unseal(key=_KERNEL_KEY)
    return [list(map(str, row)) for row in table.frame.itertuples(index=False)]


@pytest.mark.parametrize(
    ("data", "drop"),
    [
        (b'"";"soil"\n"1";"clay"\n"2";"sand"\n', [""]),  # R's write.csv2
        (b"soil\t\nclay\t\nsand\t\n", [""]),  # a tab at the end of lines
        (b"Unnamed: 0|soil\n0|clay\n1|sand\n", ["Unnamed: 0"]),  # pandas, read and written again
        (b'"rownames","soil"\n"1","clay"\n"2","sand"\n', ["rownames"]),
        (b" ^soil\n1^clay\n2^sand\n", [" "]),
        (b",soil,,\n1,clay,,\n2,sand,x,y\n", [""]),  # a sheet whose columns were cleared
    ],
)
def test_columns_of_row_numbers_are_dropped_with_a_word(
    tmp_path: Path, data: bytes, drop: list[str]
) -> None:
    (tmp_path / "plots.csv").write_bytes(data)
    text = draft_spec(tmp_path / "plots.csv", ask=None)
    assert "numbers of rows" in text and "it is dropped" in text and "clay" not in text
    script = Script(*ROW, "", "categorical", "clay, sand", "no", "", *TAIL[:4])
    asked = draft_spec(tmp_path / "plots.csv", ask=script, path=Path("plots.csv"))
    assert script.answers == []
    spec = parse_spec(asked, path="d.yaml")
    assert list(spec.dataset.source.drop) == drop  # type: ignore[union-attr]
    assert read(spec, tmp_path) == [["clay"], ["sand"]]


def test_columns_of_days_have_dates_for_names(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("place,1/22/20,1/23/20,1/24/20\nBern,1,2,3\n")
    header = read_header(tmp_path / "cases.csv")
    assert header.names == ("place", "1/22/20", "1/23/20", "1/24/20")
    assert any("should the first line be a row" in note for note in header.notes)


@pytest.mark.parametrize(("line", "told"), [("Table 1: plots", '":"'), ("soil yield", '" "')])
def test_an_unusual_delimiter_is_told(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "plots.csv").write_text(f"{line}\n")
    assert f"    # {told} parts fields: no comma" in draft_spec(tmp_path / "plots.csv", ask=None)


def test_names_that_a_spec_does_not_take_are_renamed(tmp_path: Path) -> None:
    """As `rename` of the source allows; spaces around, formulas, unseen signs, whole questions."""
    long = "How much wheat did you sow in the year before last? " * 4
    frame = pd.DataFrame({" soil": ["clay"], "=yield": ["low"], "pH\u200b": ["acid"], long: ["no"]})
    frame.to_csv(tmp_path / "plots.csv", index=False)
    answers = [a for x in ("clay", "low", "acid", "no") for a in ("categorical", x, "no", "")]
    text = draft_spec(
        tmp_path / "plots.csv", ask=Script(*ROW, "", *answers, *TAIL[:4]), path=Path("plots.csv")
    )
    spec = parse_spec(text, path="d.yaml")
    assert list(spec.columns) == ["soil", "yield", "pH", long[:128].strip()]
    assert "4 names with spaces around" in text
    assert read(spec, tmp_path) == [["clay", "low", "acid", "no"]]


def test_columns_without_names_of_their_own_are_numbered(tmp_path: Path) -> None:
    pd.DataFrame([[4, 5, 6], [7, 8, 9]]).to_csv(tmp_path / "m.csv")
    header = read_header(tmp_path / "m.csv")
    assert (header.names, header.drop) == (("0", "1", "2"), ("",))
    (tmp_path / "r.csv").write_text('"","1","2"\n"a",5,6\n')
    assert read_header(tmp_path / "r.csv").names == ("1", "2")
    (tmp_path / "years.csv").write_text('"","1940","1945"\n"a",5,6\n')
    assert read_header(tmp_path / "years.csv").names == ("1940", "1945")


@pytest.mark.parametrize("years", ["1990;2000;2010", "2022;2021;2020", "2019"])
def test_years_are_names_beside_others(tmp_path: Path, years: str) -> None:
    (tmp_path / "wide.csv").write_text(f"region;{years}\n{CANARY};1;2;3\n")
    header = read_header(tmp_path / "wide.csv")
    assert header.names == ("region", *years.split(";"))
    assert "years" in header.notes[0] and not any(y in header.notes[0] for y in years.split(";"))
    draft = draft_spec(tmp_path / "wide.csv", ask=None)
    assert '  "2019":' in draft or "2019" not in years
    with pytest.raises(SpecError) as caught:
        parse_spec(draft, path="d.yaml")
    assert {p.field for p in caught.value.problems} >= {f"columns.{y}.type" for y in header.names}


TABLE = pa.table(
    {
        "plot_id": pa.array([1, 2], pa.int64()),
        "soil": pa.array([CANARY, CANARY]).dictionary_encode(),
        "note": pa.array([CANARY, CANARY]),
        "dry": pa.array([True, False]),
        "rain": pa.array([1.5, 2.5], pa.float32()),
        "price": pa.array([None, None], pa.decimal128(9, 2)),
        "sown": pa.array([0, 1], pa.date32()),
        "seen": pa.array([0, 1], pa.timestamp("us")),
        "2020": pa.array([3, 4], pa.uint8()),
        "__index_level_0__": pa.array([7, 8]),
    }
)


def parquet(folder: Path, kind: str) -> Path:
    path = folder / "plots"
    if kind == "folder":
        (path / "part=1").mkdir(parents=True)
        pq.write_table(TABLE, path / "part=1" / "a.parquet")
    else:
        pq.write_table(TABLE, path)  # whatever its name, it is known by its first bytes
    return path


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_parquet_has_names_and_types_apart_from_its_rows(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_row(*_: Any, **__: Any) -> None:
        raise AssertionError("a row was read")

    path = parquet(tmp_path, kind)
    for name in ("read", "read_row_group", "iter_batches"):
        monkeypatch.setattr(pq.ParquetFile, name, no_row)
    monkeypatch.setattr(pq, "read_table", no_row)
    text = draft_spec(path, ask=None)
    assert "kind: parquet" in text and "delimiter:" not in text and "missing_values" not in text
    assert 'drop: ["__index_level_0__"]' in text or "drop: [__index_level_0__]" in text
    assert CANARY not in text and "column: plot_id" in text
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="d.yaml")
    left = [p.field for p in caught.value.problems if p.field.startswith("columns")]
    assert left == [
        "columns.soil.categories",
        "columns.note.type",
        *(f"columns.{n}.{end}" for n in ("rain", "price", "sown") for end in ("lower", "upper")),
        *(f"columns.{n}.{end}" for n in ("seen", "2020") for end in ("lower", "upper")),
    ]
    assert "decimals: 2" in text and "resolution: second" in text and "type: boolean" in text


def test_parquet_types_are_offered_in_the_dialogue(tmp_path: Path) -> None:
    pq.write_table(TABLE.select(["dry", "2020"]), tmp_path / "t.parquet")
    offered = dict[str, str | None]()
    answers = iter([*ROW, "", "", "", "no", "", "", "0", "9", "", "", "", "no", "", *TAIL[:4]])

    def ask(question: str, *, allowed: tuple[str, ...] = (), default: str | None = None) -> str:
        offered[question] = default
        return next(answers)

    text = draft_spec(tmp_path / "t.parquet", ask=ask, path=Path("t.parquet"))
    assert [t for q, t in offered.items() if "which type?" in q] == ["boolean", "integer"]
    assert {"(1 of 2) dry: which type?", "(2 of 2) 2020: which type?"} < {*offered}
    assert not any("stand for a missing value" in question for question in offered)
    assert read(parse_spec(text, path="d.yaml"), tmp_path) == [["true", "3"], ["false", "4"]]


@pytest.mark.parametrize("data", [b"PAR1 and no more", b"PK\x03\x04\xff\xfe", b"\xff\xfea\0,\0"])
def test_other_files_are_refused_with_what_helps(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(DataError, match=r"(as Parquet|save the table as CSV)") as caught:
        read_header(tmp_path / "t")
    assert "no more" not in str(caught.value)


def test_a_folder_without_parquet_is_no_table(tmp_path: Path) -> None:
    read_it: Callable[[], object] = lambda: read_header(tmp_path)  # noqa: E731
    with pytest.raises(DataError, match="not a plain file"):
        read_it()
