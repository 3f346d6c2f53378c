"""Drafts for `synthdp init`: only the header is read, nothing is guessed, and an answered draft
loads.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from synthdp.bundle import spec_yaml
from synthdp.errors import DataError, SpecError
from synthdp.spec import (
    Codebook,
    CodebookColumn,
    FoundColumn,
    GoBackError,
    Header,
    KeptAnswers,
    Request,
    ask_column,
    draft_spec,
    parse_spec,
    private_draft,
    read_header,
    with_back,
)
from synthdp.spec.model import Boolean, Categorical, Datetime, IdUnit, Integer, Number, Ordinal

CANARY = "canary-7391"


class Script:
    """Answers from a list, and remembers what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str:
        self.asked.append(question)
        return self.answers.pop(0)


@pytest.fixture
def table(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "my table.csv"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    ("header", "delimiter", "names"),
    [
        (b"a,b,c", ",", ("a", "b", "c")),
        (b"\xef\xbb\xbfa;b", ";", ("a", "b")),
        (b'"a,1";"b";c', ";", ("a,1", "b", "c")),
        (b"a\tb, x\tc", "\t", ("a", "b, x", "c")),
        (b'"say ""hi""",b', ",", ('say "hi"', "b")),
        (b"alone", ",", ("alone",)),
        (b'5" pipe;b', ";", ('5" pipe', "b")),
        (b"dose, mg;ward", ";", ("dose, mg", "ward")),  # a tie
        (b"alive 1.5.2020,x", ",", ("alive 1.5.2020", "x")),
        (b'"first name" age "a,b"', " ", ("first name", "age", "a,b")),
        (b"a^b:c,d", ",", ("a^b:c", "d")),
        (b"when 12:30:00^b", "^", ("when 12:30:00", "b")),
        ("größe|b".encode(), "|", ("größe", "b")),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b""])
def test_headers(
    table: Callable[[bytes], Path],
    header: bytes,
    delimiter: str,
    names: tuple[str, ...],
    end: bytes,
) -> None:
    rows = end + b"1,2\xff\xff" if end else b""
    found = read_header(table(header + rows))
    assert (found.kind, found.delimiter, found.names) == ("csv", delimiter, names)
    assert not (found.drop or found.rename or found.types or found.notes)


@pytest.mark.check
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\n1,2\n", "empty"),
        (b"a,--,c\n", r"column\(s\) 2 have a name without a letter"),
        (b"a,b,a\n", r"column\(s\) 1, 3 have a name that comes twice"),
        (b"39,canary-7391,77516\n", r"column\(s\) 1, 3 have a number"),
        (b"canary-7391,1971,39\n", r"column\(s\) 2, 3 have a number"),
        (b"canary-7391,1999,1971,2003\n", r"column\(s\) 2, 3, 4 have a number"),  # in no order
        (b"1971,1972\n", r"column\(s\) 1, 2 have a number"),
        (b"0,1,2\n", r"column\(s\) 1, 2, 3 have a number"),
        (b",1,3,2\n", r"column\(s\) 2, 3, 4 have a number"),
        (b",1\n", r"column\(s\) 2 have a number"),
        (b"canary-7391,12%\n", r"column\(s\) 2 have a number"),
        (b"canary-7391;1.250,50 \xe2\x82\xac;x\n", r"column\(s\) 2 have a number"),
        (b"canary-7391,03/04/2021\n", r"column\(s\) 2 have a number"),
        (b"canary-7391\t2021-04-03 10:15\t3.4.21\n", r"column\(s\) 2, 3 have a number"),
        (b"sep=;\r\ncanary-7391;b\r\n", "tells Excel what parts the fields, and names no column"),
        (b'\xef\xbb\xbf"sep=,"\ncanary-7391,b\n', "tells Excel what parts the fields"),
        (b"# canary-7391, 2020\na,b\n", "is a comment, and names no column"),
        (b"PK\x03\x04canary-7391\n", "it is compressed, as workbooks are"),
        (b"a\x00b\x00\n", "it is no text"),
        (b"a,b, a\n", r"column\(s\) 1, 3 have a name that comes twice"),
        (b",\n", "no column has a name"),
        (b"a, , \n", r"column\(s\) 2, 3 have a name that comes twice"),
        (b",Unnamed: 0\n", "no column has a name"),
        (b'a,"b\nc"\n', "never closed"),
        (b"a,\xff\n", "UTF-8"),
        (b"a" * 1_000_001, "longer"),
    ],
)
def test_lines_that_are_no_header(
    table: Callable[[bytes], Path], data: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_header(table(data))
    assert CANARY not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_header(tmp_path / "none.csv")


def test_a_draft_without_answers_says_what_is_to_fill_in(table: Callable[[bytes], Path]) -> None:
    text = draft_spec(table(f"age,no,a:b\n{CANARY},1,2\n".encode()), ask=None)
    assert CANARY not in text
    assert "never from the rows" in text
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="draft.yaml")
    fields = ["privacy_unit.kind", "privacy_unit.meaning", "rows.kind", "rows.value"]
    assert [p.field for p in caught.value.problems] == [
        *(f"dataset.{f}" for f in fields),
        "columns.age.type",
        "columns.no.type",
        "columns.a:b.type",
        "privacy.epsilon",
        "privacy.delta",
    ]
    assert all("still to be filled in" in p.message for p in caught.value.problems)


def test_an_answered_draft_loads(table: Callable[[bytes], Path]) -> None:
    ask = Script(
        "both", "id", "pid", "3", "one patient", "", "500",
        "NA,,?", "NA, ?, 99",  # texts for missing values
        "integer", "0", "x", "-5", "", "", "", "",  # bounds that do not fit: asked again
        "0", "120", "0", "years", "yes", "age in full years",
        "ordinal", "b, =a", "b,,c", "b, 01, 1.50", "no", "",
        "datetime", "2000-01-01", "2020-01-01", "", "", "",  # no unit
        "boolean", "", "yes", "", "",
        "number", "0", "1e5", "0, 5.5,", "0, 5.5", "", "", "",
        "drop",
        "Answers, made up.", "CC-BY-4.0", "2", "0.5", "",  # the table itself, budget
    )  # fmt: skip
    text = draft_spec(table(b"pid;age;no;when;ok;gain;name\n1;2;3;4;5;6;7\n"), ask=ask)
    assert ask.answers == []
    assert any("lower 0 must be below upper -5" in q for q in ask.asked)
    spec = parse_spec(text, path="draft.yaml")
    assert (spec.dataset.id, spec.dataset.title) == ("my-table", "my table")
    assert spec.dataset.source.missing_values == ("", "NA", "?", "99")  # type: ignore[union-attr]
    assert spec.dataset.source.drop == ("name",)  # type: ignore[union-attr]
    assert (spec.dataset.description, spec.dataset.licence) == ("Answers, made up.", "CC-BY-4.0")
    assert spec.columns["age"].description == "age in full years"
    assert isinstance(spec.dataset.privacy_unit, IdUnit)
    assert list(spec.columns) == ["age", "no", "when", "ok", "gain"]
    age, no, when, ok, gain = spec.columns.values()
    assert isinstance(age, Integer)
    assert (age.lower, age.upper, age.spikes, age.unit, age.missing) == (
        0,
        120,
        (0,),
        "years",
        True,
    )
    assert age.edges is not None and any("between two commas" in q for q in ask.asked)
    assert isinstance(no, Ordinal)
    assert no.categories == ("b", "01", "1.50")
    assert isinstance(when, Datetime) and when.edges is not None and 32 < len(when.edges) <= 256
    assert isinstance(ok, Boolean)
    assert (ok.false, ok.true) == ("false", "yes")
    assert isinstance(gain, Number)
    assert gain.spikes == (0.0, 5.5)
    assert (spec.privacy.epsilon, spec.privacy.delta) == (2, 1e-4)
    assert spec.dataset.rows.kind == "approximate"


def test_letters_with_marks_keep_their_place(tmp_path: Path) -> None:
    (tmp_path / "Messreihe Köln.csv").write_bytes("Größe\n".encode())
    text = draft_spec(tmp_path / "Messreihe Köln.csv", ask=None, path=Path("../Messreihe Köln.csv"))
    assert (
        "id: Messreihe-Koln " in text
        and 'title: "Messreihe Köln"' in text
        and 'path: "../Messreihe Köln.csv"' in text
    )


@pytest.mark.parametrize(("rows", "batch"), [(7, 1), (3000, 300), (8192, 512), (1_000_000, 4096)])
def test_a_known_number_of_rows_says_delta_and_leaves_the_batch_to_the_rule(
    table: Callable[[bytes], Path], rows: int, batch: int
) -> None:
    """Without questions too: a small table gets no batch of all its rows."""
    text = draft_spec(table(b"a\n1\n"), ask=None, rows=rows)
    filled = text.replace('!fill_in "row or id"', "row").replace(
        '!fill_in "total for everything in the run, e.g. 1"', "1"
    )
    filled = filled.replace(
        'type: !fill_in "categorical, ordinal, boolean, integer, number, datetime or text-code"',
        "type: boolean\n    false: n\n    true: y",
    )
    spec = parse_spec(
        filled.replace('!fill_in "what one row, or one id, is, e.g. one person"', "one person"),
        path="draft.yaml",
    )
    assert (
        spec.dataset.rows.value == rows
        and spec.synthesizer.batch == batch
        and spec.privacy.delta <= 0.1 / rows
    )
    asked = Script("row", "one person", "public", "", "boolean", "n", "y", "no", *[""] * 5)
    assert (
        parse_spec(
            draft_spec(table(b"a\n1\n"), ask=asked, rows=rows), path="draft.yaml"
        ).synthesizer.batch
        == batch
    )
    assert not any("How many rows" in question for question in asked.asked)


@pytest.mark.parametrize("rows", ["5", "25", "299", "499", "500", "1000000"])
def test_a_draft_for_any_number_of_rows_loads(table: Callable[[bytes], Path], rows: str) -> None:
    ask = Script("row", "one person", "public", rows, "", "categorical", "x, y", "no", *[""] * 5)
    spec = parse_spec(draft_spec(table(b"a\n1\n"), ask=ask), path="draft.yaml")
    few = int(rows) < 500
    assert spec.dataset.rows.value == int(rows) and spec.attacks.membership.enabled != few
    assert spec.evaluation.holdout == (0 if few else 0.2)


@pytest.mark.parametrize(
    ("typed", "categories"),
    [
        ('"Adult, 1 egg", Chick', ["Adult, 1 egg", "Chick"]),
        ('a, "b ""c""", 5" pipe', ["a", 'b "c"', '5" pipe']),
        ('"open, b', None),
        ('"a"b, c', None),
        ("a,,b", None),
    ],
)
def test_a_category_with_a_comma_stands_in_quotation_marks(
    typed: str, categories: list[str] | None
) -> None:
    told = iter(["categorical", typed, "x, y", "no", ""])
    column = ask_column(lambda *_, **__: next(told), "stage")
    assert column is not None
    assert column["categories"] == (categories or ["x", "y"])


def test_it_gives_up_on_endless_wrong_answers(table: Callable[[bytes], Path]) -> None:
    with pytest.raises(DataError, match="no usable answer"):
        draft_spec(table(b"a\n"), ask=Script(*["maybe"] * 5))


class Interrupted(Script):
    """Ctrl-C where the answers end."""

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str:
        if not self.answers:
            raise KeyboardInterrupt
        return super().__call__(question, allowed=allowed, default=default)


ANSWERS = (
    "row", "one person", "public", "maybe 9", "900", "",  # one that does not fit
    "integer", "5", "0", "", "", "no", "",  # bounds that do not fit together
    "0", "5", "", "", "no", "a",
    "boolean", "n", "y", "no", "", "", "", "", "",
)  # fmt: skip


@pytest.mark.parametrize("at", range(1, len(ANSWERS)))
def test_answers_outlive_an_interruption_wherever_it_comes(
    table: Callable[[bytes], Path], tmp_path: Path, at: int
) -> None:
    csv, file = table(b"a,b\n1,2\n"), tmp_path / "spec.yaml.answers"
    whole = draft_spec(csv, ask=Script(*ANSWERS))
    with pytest.raises(KeyboardInterrupt):
        draft_spec(csv, ask=KeptAnswers(Interrupted(*ANSWERS[:at]), file))
    again = Script(*ANSWERS[at:])
    kept = KeptAnswers(again, file)
    assert draft_spec(csv, ask=kept) == whole and again.answers == []
    assert kept.found >= at - 1
    kept.forget()
    assert not file.exists()


@pytest.mark.parametrize("at", range(1, len(ANSWERS)))
def test_one_may_go_back_wherever_one_is(
    table: Callable[[bytes], Path], tmp_path: Path, at: int
) -> None:
    """`<` asks the question before again, and what was answered till then stays."""
    csv, file = table(b"a,b\n1,2\n"), tmp_path / "spec.yaml.answers"
    whole = draft_spec(csv, ask=Script(*ANSWERS))
    again = ANSWERS[at - 1 :] if ANSWERS[at - 1] != "maybe 9" else ANSWERS[at - 2 :]
    script = Script(*ANSWERS[:at], " < ", *again)
    kept = KeptAnswers(script, file)
    assert with_back(kept, lambda: draft_spec(csv, ask=kept)) == whole and script.answers == []
    asked = [question.split("\n")[-1] for question in script.asked]
    before = at - 1 if ANSWERS[at - 1] != "maybe 9" else at - 2
    assert asked[at + 1] == asked[before]


def test_before_the_first_question_there_is_none(
    table: Callable[[bytes], Path], tmp_path: Path
) -> None:
    script = Script("<", "<", *ANSWERS)
    kept = KeptAnswers(script, tmp_path / "answers")
    with_back(kept, lambda: draft_spec(table(b"a,b\n"), ask=kept))
    assert script.asked[0] == script.asked[1] == script.asked[2] and script.answers == []
    with pytest.raises(GoBackError):
        KeptAnswers(Script("<"), tmp_path / "answers")("a?")


def test_kept_answers_to_other_questions_are_not_given(
    table: Callable[[bytes], Path], tmp_path: Path
) -> None:
    file = tmp_path / "answers"
    with pytest.raises(KeyboardInterrupt):
        draft_spec(table(b"a,b\n"), ask=KeptAnswers(Interrupted(*ANSWERS[:8]), file))
    other = Script("boolean", *[""] * 9)
    text = draft_spec(table(b"c\n"), ask=KeptAnswers(other, file))
    assert other.asked[0].startswith("(1 of 1) c: which type") and "one person" in text
    for spoilt in ("", "[1]", '[["a", 1]]', "{"):
        file.write_text(spoilt)
        assert KeptAnswers(other, file).found == 0


def test_what_a_code_book_states_is_not_asked(table: Callable[[bytes], Path]) -> None:
    book = Codebook(
        (
            CodebookColumn(
                "AGE", "age in years", kind="whole", lower="0", missing=False, unit="years"
            ),
            CodebookColumn(
                "smokes", labels={"0": "no", "1": "yes", "9": "?"}, missing_codes=("9",)
            ),
            CodebookColumn("who", kind="text", identifies=True),
        ),
        missing_values=("NA",),
    )
    csv = table(b"age,smokes,who,more\n")
    ask = Script("row", "one person", "public", "900", "120", "", "no", "drop", *[""] * 4)
    spec = parse_spec(draft_spec(csv, ask=ask, codebook=book), path="draft.yaml")
    assert ask.answers == [] and spec.dataset.source.drop == ("who", "more")  # type: ignore[union-attr]
    assert spec.dataset.source.missing_values == ("", "NA")  # type: ignore[union-attr]
    age, smokes = spec.columns.values()
    assert isinstance(age, Integer) and (age.lower, age.upper, age.missing) == (0, 120, False)
    assert (age.unit, age.description) == ("years", "age in years")
    assert isinstance(smokes, Categorical) and smokes.value_labels == {"0": "no", "1": "yes"}
    assert smokes.missing_codes == ("9",) and smokes.missing
    text = draft_spec(csv, ask=None, codebook=book, rows=900)
    with pytest.raises(SpecError) as caught:
        parse_spec(text, path="draft.yaml")
    places = [p.field for p in caught.value.problems if p.field.startswith("columns")]
    assert places == ["columns.age.upper", "columns.more.type"] and "code book" in text


# --- texts that look like blanks ---

ODD_TEXTS = ["<fill in: x>", "!fill_in x", '!fill_in "row or id"', "<fill in: a, 'b'>"]


def test_a_text_of_the_form_of_a_blank_is_a_category() -> None:
    """Whatever many rows have, a draft of `init --private` loads, and has it as it was."""
    request = Request(
        path=Path("t.csv"), header=Header("csv", ("answer",)), columns=("answer",), dataset="t",
        unit={"kind": "row", "meaning": "one patient"},
        rows={"kind": "approximate", "value": 5000},
        epsilon=1.0, delta=1e-6, cap=(3.0, 1e-4),
    )  # fmt: skip
    entry = {"type": "categorical", "categories": [*ODD_TEXTS, "other"]}
    found = [FoundColumn("answer", entry, "5 categories", 0.0, 0.0)]
    text = private_draft(
        request, found, run="20240101-000000000000", cost=(1.0, 1e-6), missing=[""]
    )
    spec = parse_spec(text, path="draft.yaml")
    column = spec.columns["answer"]
    assert isinstance(column, Categorical) and list(column.categories) == [*ODD_TEXTS, "other"]
    again = parse_spec(spec_yaml(spec), path="spec.yaml")  # as a bundle publishes it
    assert again.columns == spec.columns


def test_what_a_code_book_says_is_no_blank(table: Callable[[bytes], Path]) -> None:
    """Neither for the questions of `init` nor for the loader."""
    known = CodebookColumn("a", "!fill_in x", labels=dict.fromkeys(ODD_TEXTS, ""))
    ask = Script("row", "one person", "approximate", "500", "", "", "1", "")
    text = draft_spec(table(b"a\n1\n"), ask=ask, codebook=Codebook((known,)))
    column = parse_spec(text, path="d.yaml").columns["a"]
    assert isinstance(column, Categorical) and column.description == "!fill_in x"
    assert list(column.categories) == ODD_TEXTS


def test_a_blank_alone_is_to_be_filled_in(table: Callable[[bytes], Path]) -> None:
    """Its place is told, with what belongs there, and no other tag is read."""
    text = draft_spec(table(b"a\n1\n"), ask=None)
    for tag, told in (("!fill_in", "to be filled in: row or id"), ("!!str", "tags (!str)")):
        with pytest.raises(SpecError) as caught:
            parse_spec(text.replace("!fill_in", tag), path="d.yaml")
        assert any(told in problem.message for problem in caught.value.problems)


def test_decimals_behind_commas_are_asked_about_where_semicolons_part_fields(
    table: Callable[[bytes], Path],
) -> None:
    told = draft_spec(table(b"dose;ward\n"), ask=None)
    assert "give `--decimal ,`" in told and 'decimal: ","\n' not in told
    known = draft_spec(table(b"dose;ward\n"), ask=None, decimal=",")
    assert '    decimal: ","\n' in known and "--decimal" not in known
    assert "--decimal" not in draft_spec(table(b"dose,ward\n"), ask=None)
