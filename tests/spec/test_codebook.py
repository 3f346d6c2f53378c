"""Code books: what each format states comes into the draft, nothing else, and no row is read."""

import csv
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthdp.errors import DataError, OutputError, SynthdpError
from synthdp.spec import (
    FORMATS,
    Blank,
    Codebook,
    CodebookColumn,
    draft_spec,
    entry_of,
    read_codebook,
)

CANARY = "CANARY-7"


def entries(book: Codebook) -> dict[str, dict[str, Any]]:
    return {column.name: entry_of(column) for column in book.columns}


# --- Table Schema ---

SCHEMA = {
    "fields": [
        {
            "name": "smokes",
            "title": "Smoking",
            "description": "Do you smoke?",
            "type": "integer",
            "categories": [{"value": 0, "label": "no"}, {"value": 1, "label": "yes"}, {"value": 9}],
            "missingValues": ["9"],
        },
        {
            "name": "age",
            "type": "integer",
            "unit": "years",
            "constraints": {"minimum": 0, "maximum": 120, "required": True},
        },
        {
            "name": "level",
            "type": "string",
            "categories": ["low", "high"],
            "categoriesOrdered": True,
        },
        {"name": "sure", "type": "boolean", "trueValues": ["y"], "falseValues": ["n"]},
        {"name": "born", "type": "date", "constraints": {"minimum": "1900-01-01"}},
        {"name": "note", "type": "string"},
    ],
    "missingValues": ["", {"value": "-99", "label": "not asked"}],
}


@pytest.mark.parametrize("form", ["schema", "package"])
def test_a_table_schema(tmp_path: Path, form: str) -> None:
    package = {
        "title": "Survey",
        "resources": [{"name": "x", "schema": SCHEMA}, {"name": "readme"}],
    }
    path = tmp_path / "book.json"
    path.write_text(json.dumps(SCHEMA if form == "schema" else package))
    book = read_codebook(path)
    assert book.missing_values == ("-99",) and book.title == ("Survey" if form == "package" else "")
    found = entries(book)
    assert found["smokes"] == {
        "type": "categorical",
        "categories": [0, 1],
        "value_labels": {0: "no", 1: "yes"},
        "missing": True,
        "missing_codes": [9],
        "description": "Smoking: Do you smoke?",
    }
    assert found["age"] == {
        "type": "integer", "lower": 0, "upper": 120, "missing": False, "unit": "years",
    }  # fmt: skip
    assert found["level"] == {"type": "ordinal", "categories": ["low", "high"], "missing": True}
    assert found["sure"] == {"type": "boolean", "false": "n", "true": "y", "missing": True}
    assert found["born"]["lower"] == "1900-01-01" and isinstance(found["born"]["upper"], Blank)
    assert "dataset.source.drop" in found["note"]["type"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", r"book.json:1:2: this is not JSON"),
        ("[]", "holds no table schemas"),
        ('{"fields": 3}', "holds no table schemas"),
        (json.dumps({"resources": [{"schema": SCHEMA}] * 2}), "holds 2 table schemas"),
    ],
)
def test_json_that_is_no_schema(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(DataError, match=told):
        read_codebook(tmp_path / "book.json")


# --- DDI ---

DDI = """<?xml version="1.0" encoding="UTF-8"?>
<codeBook xmlns="ddi:codebook:2_5" version="2.5">
 <stdyDscr><citation><titlStmt><titl>Health  survey</titl></titlStmt></citation></stdyDscr>
 <dataDscr>
  <var name="V1" intrvl="discrete" nature="ordinal">
   <labl>Self-rated health</labl>
   <invalrng><item VALUE="9"/></invalrng>
   <sumStat type="max">9</sumStat>
   <catgry><catValu>1</catValu><labl>good</labl><catStat type="freq">712</catStat></catgry>
   <catgry><catValu>2</catValu><labl>poor</labl></catgry>
   <catgry missing="Y"><catValu>8</catValu><labl>refused</labl></catgry>
   <catgry><catValu>9</catValu><labl>no answer</labl></catgry>
   <varFormat type="numeric"/>
  </var>
  <var name="AGE" intrvl="contin" dcml="0">
   <qstn><qstnLit>How old are you?</qstnLit></qstn>
   <valrng><range UNITS="REAL" min="18" max="99"/></valrng>
   <invalrng><range min="998" max="999"/></invalrng>
   <sumStat type="min">19</sumStat>
   <varFormat type="numeric"/>
  </var>
  <var name="W" intrvl="contin" dcml="3"><varFormat type="numeric"/></var>
  <var name="TXT" intrvl="discrete"><varFormat type="character"/></var>
 </dataDscr>
</codeBook>
"""


def test_ddi(tmp_path: Path) -> None:
    pytest.importorskip("defusedxml", reason="the extra [codebook] is not installed")
    path = tmp_path / "book.xml"
    path.write_text(DDI)
    book = read_codebook(path)
    found = entries(book)
    assert book.title == "Health survey"
    assert found["V1"] == {
        "type": "ordinal",
        "categories": [1, 2],
        "value_labels": {1: "good", 2: "poor"},
        "missing": True,
        "missing_codes": [8, 9],
        "description": "Self-rated health",
    }
    age = found["AGE"]
    assert (age["type"], age["lower"], age["upper"]) == ("integer", 18, 99)  # not the statistic 19
    assert age["missing_codes"] == [998, 999] and age["description"] == "How old are you?"
    assert found["W"]["type"] == "number" and found["W"]["decimals"] == 3
    assert isinstance(found["TXT"]["type"], Blank) and "712" not in str(found)


BOMB = """<?xml version="1.0"?>
<!DOCTYPE codeBook [<!ENTITY a "%s"><!ENTITY x SYSTEM "file:///etc/hostname">]>
<codeBook><dataDscr><var name="V"><labl>%s</labl></var></dataDscr></codeBook>
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<codeBook>", r"book.xml:1:11: this is not XML"),
        ("<codeBook/>", "describes no variable"),
        (BOMB % ("lol" * 99, "&a;" * 99), "declares types or entities"),
        (BOMB % ("", "&x;"), "declares types or entities"),
        ("<!DOCTYPE codeBook SYSTEM 'http://127.0.0.1:9/x.dtd'><codeBook/>", "declares types"),
    ],
)
def test_xml_that_is_not_read(tmp_path: Path, text: str, told: str) -> None:
    pytest.importorskip("defusedxml", reason="the extra [codebook] is not installed")
    (tmp_path / "book.xml").write_text(text)
    with pytest.raises(DataError, match=told):
        read_codebook(tmp_path / "book.xml")


# --- REDCap ---

REDCAP = """\
"Variable / Field Name","Form Name","Section Header","Field Type","Field Label","Choices, Calculations, OR Slider Labels","Field Note","Text Validation Type OR Show Slider Number","Text Validation Min","Text Validation Max",Identifier?,"Branching Logic (Show field only if...)","Required Field?"
record,f,,text,Record,,,,,,,,y
name,f,,text,Your name,,,,,,y,,
sex,f,,radio,"<b>Sex</b>
at birth","1, female | 2, male | 3, other, or none",,,,,,,y
age,f,,text,Age,,,integer,18,110,,,y
weight,f,,text,Weight,,,number_1dp,30,300,,[age]>1,y
seen,f,,text,Seen on,,,date_dmy,2020-01-01,today,,,
pain,f,,slider,Pain,none | worst,,,,,,,
ill,f,,checkbox,Illness,"a, asthma | -9, other",,,,,,,
ok,f,,yesno,OK?,,,,,,,,
intro,f,,descriptive,Welcome,,,,,,,,
"""  # noqa: E501


def test_redcap(tmp_path: Path) -> None:
    path = tmp_path / "book.csv"
    path.write_text("\ufeff" + REDCAP)
    book = read_codebook(path)
    found = entries(book)
    assert [c.name for c in book.columns if c.identifies] == ["name"] and "intro" not in found
    assert found["sex"] == {
        "type": "categorical",
        "categories": [1, 2, 3],
        "value_labels": {1: "female", 2: "male", 3: "other, or none"},
        "missing": False,
        "description": "Sex at birth",
    }
    assert found["age"]["lower"] == 18 and found["age"]["type"] == "integer"
    assert found["weight"]["decimals"] == 1 and found["weight"]["missing"] is True
    assert found["seen"]["lower"] == "2020-01-01" and isinstance(found["seen"]["upper"], Blank)
    assert (found["pain"]["lower"], found["pain"]["upper"]) == (0, 100)
    assert found["ill___a"]["value_labels"] == {0: "not checked", 1: "checked"}
    assert found["ill____9"]["description"] == "Illness (other)"
    assert found["ok"]["categories"] == [0, 1]
    (tmp_path / "t.csv").write_text(f"record,NAME,sex\n{CANARY},1,2\n")
    draft = draft_spec(tmp_path / "t.csv", ask=None, codebook=book)
    assert "drop: [NAME]" in draft and CANARY not in draft


def test_csv_that_is_no_dictionary(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="lacks the column 'Variable / Field Name'"):
        read_codebook(tmp_path / "book.csv")


# --- SPSS and Stata ---


@pytest.fixture
def pyreadstat() -> Any:
    return pytest.importorskip("pyreadstat", reason="the extra [codebook] is not installed")


ROWS = pd.DataFrame({"sex": [1.0, 2.0], "age": [20.0, 99.0], "w": [0.5, 1.5], "t": [CANARY] * 2})
LABELS = {"sex": {1: "female", 2: "male", 9: "no answer"}, "age": {0: "under one"}}


def spss(pyreadstat: Any, path: Path) -> None:
    pyreadstat.write_sav(
        ROWS,
        str(path),
        file_label="Survey",
        column_labels={"sex": "Sex", "age": "Age in years"},
        variable_value_labels=LABELS,
        missing_ranges={"sex": [9], "age": [{"lo": 97, "hi": 99}]},
        variable_measure={"sex": "nominal", "age": "scale"},
        variable_format={"sex": "F1.0", "age": "F3.0", "w": "F8.2"},
    )


def test_spss_and_no_row_is_read(pyreadstat: Any, tmp_path: Path) -> None:
    """The rows are cut off the file: a reader that looks at them fails, and this one does not."""
    path = tmp_path / "book.sav"
    spss(pyreadstat, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(CANARY.encode()) - 24])
    with pytest.raises(pyreadstat.ReadstatError):
        pyreadstat.read_sav(str(path))
    book = read_codebook(path)
    found = entries(book)
    assert book.title == "Survey" and CANARY not in str(book)
    assert found["sex"] == {
        "type": "categorical",
        "categories": [1, 2],
        "value_labels": {1: "female", 2: "male"},
        "missing": True,
        "missing_codes": [9],
        "description": "Sex",
    }
    age = found["age"]
    assert age["type"] == "integer" and age["missing_codes"] == [97, 98, 99]
    assert isinstance(age["lower"], Blank) and isinstance(age["upper"], Blank)
    assert (found["w"]["type"], found["w"]["decimals"]) == ("number", 2)


def test_the_library_is_told_to_read_no_row(
    pyreadstat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for name in ("read_sav", "read_dta", "read_por"):
        real = getattr(pyreadstat, name)

        def spied(path: str, *, real: Any = real, **options: Any) -> Any:
            asked.append(options["metadataonly"])
            frame, found = real(path, **options)
            assert len(frame) == 0
            return frame, found

        monkeypatch.setattr(pyreadstat, name, spied)
    spss(pyreadstat, tmp_path / "a.sav")
    pyreadstat.write_dta(ROWS, str(tmp_path / "b.dta"))
    pyreadstat.write_por(ROWS, str(tmp_path / "c.por"))
    books = [read_codebook(tmp_path / name) for name in ("a.sav", "b.dta", "c.por")]
    assert asked == [True] * 3
    assert [len(book.columns) for book in books] == [4] * 3


def test_stata(pyreadstat: Any, tmp_path: Path) -> None:
    day = pd.Timestamp("2020-01-01").date()
    numbers = pd.Series([1, 2, 3], dtype="int32")
    frame = pd.DataFrame({"smokes": [1, 2, "a"], "n": numbers, "d": day})
    pyreadstat.write_dta(
        frame,
        str(tmp_path / "b.dta"),
        column_labels={"smokes": "Smoking"},
        variable_value_labels={"smokes": {1: "yes", 2: "no", "a": "refused"}},
        missing_user_values={"smokes": ["a"]},
    )
    found = entries(read_codebook(tmp_path / "b.dta"))
    assert found["smokes"]["categories"] == [1, 2] and found["smokes"]["missing_codes"] == [".a"]
    assert found["n"]["type"] == "integer" and found["d"]["type"] == "datetime"


def test_a_file_that_is_none(pyreadstat: Any, tmp_path: Path) -> None:
    (tmp_path / "b.sav").write_bytes(b"$FL2" + CANARY.encode() * 99)
    with pytest.raises(DataError, match="the dictionary cannot be read") as caught:
        read_codebook(tmp_path / "b.sav")
    assert CANARY not in str(caught.value) and caught.value.__context__ is None


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (("pyreadstat", "b.sav"), ("defusedxml", "b.xml")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        (tmp_path / name).write_text("<a/>")
        with pytest.raises(OutputError, match=rf"need {module}") as caught:
            read_codebook(tmp_path / name)
        assert "'.[codebook]'" in str(caught.value)


# --- all of them ---

DIGITS = "9" * 5000  # more than Python makes a number of
NUMBERS = [DIGITS, "-" + DIGITS, "1e400", "NaN", "Infinity", "9" * 400, "-0.0", "\u0663", "0x1F"]
TEXTS = st.sampled_from([*NUMBERS, "", "a", "1", "01", ".a", "1, x | 2, y", "\u2028", "1e308"])
SCHEMA_VALUES = st.recursive(
    st.sampled_from(["null", "true", "0", '"a"', '"\\ud800"', "{}", "[[]]", *NUMBERS[:7]])
    | TEXTS.map(json.dumps),
    lambda inner: st.lists(inner, max_size=3).map(lambda found: f"[{', '.join(found)}]"),
    max_leaves=6,
)
SCHEMA_KEYS = [
    "name", "type", "title", "unit", "categories", "categoriesOrdered", "missingValues",
    "falseValues", "trueValues",
]  # fmt: skip
RULES = ["minimum", "maximum", "enum", "required"]


def _entry(draw: st.DrawFn, keys: list[str]) -> str:
    own = draw(st.lists(st.sampled_from(keys), unique=True))
    return ", ".join(f"{json.dumps(key)}: {draw(SCHEMA_VALUES)}" for key in own)


@st.composite
def odd_schemas(draw: st.DrawFn) -> bytes:
    """A Table Schema with values that are none."""
    kind = draw(st.sampled_from(["integer", "number", "boolean", "string", "date", "datetime"]))
    own, rules = _entry(draw, SCHEMA_KEYS), _entry(draw, RULES)
    field = f'"type": "{kind}", "name": "a", "constraints": {{{rules}}}'
    return f'{{"fields": [{{{own}{", " if own else ""}{field}}}]}}'.encode()


@st.composite
def odd_ddi(draw: st.DrawFn) -> bytes:
    """A DDI code book with attributes and texts that are none."""

    def said(*names: str) -> str:
        own = draw(st.lists(st.sampled_from(names), unique=True))
        return " ".join(f"{name}={quoteattr(draw(TEXTS))}" for name in own)

    inner = [
        f'<varFormat type="numeric" {said("dcml", "category")}/>',
        f"<valrng><range {said('min', 'max')}/></valrng>",
        f"<invalrng><range {said('min', 'max')}/><item {said('VALUE')}/></invalrng>",
        f"<catgry {said('missing')}><catValu>{draw(TEXTS)}</catValu></catgry>",
    ]
    chosen = "".join(draw(st.lists(st.sampled_from(inner), unique=True)))
    var = f'<var name="a" {said("dcml", "intrvl", "nature", "measUnit")}>{chosen}</var>'
    return f"<codeBook>{var}</codeBook>".encode()


@st.composite
def odd_dictionaries(draw: st.DrawFn) -> bytes:
    """A REDCap data dictionary with cells that are none."""
    forms = ["radio", "dropdown", "checkbox", "slider", "calc", "text", "yesno"]
    checks = ["number", "integer", f"number_{draw(TEXTS)}dp", "date_ymd", "datetime_ymd"]
    cells = [
        "a", draw(st.sampled_from(forms)), draw(TEXTS), draw(TEXTS),
        draw(st.sampled_from(checks)), draw(TEXTS), draw(TEXTS),
    ]  # fmt: skip
    file = io.StringIO()
    csv.writer(file).writerows([REDCAP_HEAD, cells])
    return file.getvalue().encode()


REDCAP_HEAD = [
    *("Variable / Field Name", "Field Type", "Field Label"),
    "Choices, Calculations, OR Slider Labels",
    "Text Validation Type OR Show Slider Number",
    *("Text Validation Min", "Text Validation Max"),
]
BEGINNINGS = [b"", b"$FL2", b"$FL3@(#) SPSS", b"<stata_dta><header>", b"r\x01\x01\x00", b"A" * 500]
ODD_FILES = {".json": odd_schemas(), ".xml": odd_ddi(), ".csv": odd_dictionaries()} | {
    end: st.builds(bytes.__add__, st.sampled_from(BEGINNINGS), st.binary(max_size=300))
    for end in (".sav", ".zsav", ".por", ".dta")
}


@pytest.mark.check
@pytest.mark.parametrize("end", FORMATS)
@given(data=st.data())
def test_a_strangers_file_is_a_code_book_or_is_refused(
    end: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Odd values in their places, and any bytes at all: a draft, or an error with words of ours."""
    file = tmp_path_factory.getbasetemp() / f"odd{end}"
    file.write_bytes(data.draw(ODD_FILES[end] | st.binary(max_size=300), label="file"))
    table = file.with_name("odd-table.csv")
    table.write_text("a\n1\n")
    with suppress(SynthdpError):
        assert draft_spec(table, ask=None, codebook=read_codebook(file)).startswith("#")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b.json", f'{{"fields": [{{"name": "a", "constraints": {{"minimum": {DIGITS}}}}}]}}'),
        ("b.xml", f'<c><var name="a" dcml="{DIGITS}"><varFormat type="numeric"/></var></c>'),
        ("b.json", '{"schema":' * 100_000),
    ],
)
def test_a_number_that_python_does_not_read_is_told(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=rf"{name}: holds a value that cannot be read") as caught:
        read_codebook(tmp_path / name)
    assert len(str(caught.value)) < 300 and caught.value.__context__ is None


def test_bounds_of_many_digits_are_left_to_be_filled_in() -> None:
    for text in NUMBERS:
        for kind in ("whole", "number"):
            entry = entry_of(CodebookColumn("a", kind=kind, lower=text, upper=text))
            assert isinstance(entry["lower"], Blank | int | float)


def test_an_unknown_format_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must end in one of .json, .xml, .csv"):
        read_codebook(tmp_path / "book.pdf")
    for end in (".json", ".csv"):
        with pytest.raises(DataError, match="cannot be read"):
            read_codebook(tmp_path / f"none{end}")
    assert set(FORMATS) == {".json", ".xml", ".csv", ".sav", ".zsav", ".por", ".dta"}


def test_names_are_matched_without_capitals_where_one_is_meant() -> None:
    book = Codebook((CodebookColumn("AGE"), CodebookColumn("sex"), CodebookColumn("Sex")))
    assert {k: v.name for k, v in book.of(["age", "sex", "SEX", "x"]).items()} == {
        "age": "AGE",
        "sex": "sex",
    }
