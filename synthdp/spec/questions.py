"""The questions of `synthdp init`, each asked again until its answer fits the contract.

Answers survive an interruption: each is written to a file as it is given. The file lies beside the
draft that they are for, and goes when that is written. It holds what was typed, which is about the
table and not of its rows.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from synthdp.errors import DataError
from synthdp.files import write_whole
from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.columns import Remark, is_id, likely_id, unit_warning
from synthdp.spec.load.wording import first_words
from synthdp.spec.load.yaml_tree import plain
from synthdp.spec.model import COLUMN_TYPES, Column, DeclaredRows, Privacy, Question, Real, Whole
from synthdp.spec.writing import Blank

TRIES = 5
DROP = "drop"  # in place of a type: the column stays in the source, and is not read
_T = TypeVar("_T")

UNIT = Question(
    "kind",
    "What is protected: each row (right only if no person has several rows), or everything of one"
    " id?",
    allowed=("row", "id"),
)
ROW = Question("meaning", "What is one row, e.g. one person?", needed=True)
ID = (
    Question("column", "Which column holds the id? It is neither modelled nor released."),
    Question(
        "max_rows",
        "At most how many rows of one id are used? Noise grows with it: 1, unless most ids have"
        " several that are needed",
        Annotated[Whole, Field(ge=1, le=64)],
    ),
    Question("meaning", "What is one id, e.g. one patient?", needed=True),
)
KIND_OF_ROWS = Question(
    "kind",
    "Is the exact number of rows public, or only approximately known?",
    allowed=("public", "approximate"),
    default="approximate",
)
ROWS = Question(
    "value",
    "How many rows does the table have, as a constant that may be published?",
    DeclaredRows.model_fields["value"].rebuild_annotation(),
)
USED_ROWS = (
    "How many rows are used, {} (not all that the table has), as a constant that may be published?"
)
EPSILON = Question(
    "epsilon",
    "Epsilon, the total for everything in the run?",
    Privacy.model_fields["epsilon"].rebuild_annotation(),
    default="1",
)
DELTA = Question("delta", "Delta, well below 1 / rows?")
PERSON = Question(
    "meaning",
    "One person with all rows of both tables is protected. What is that, e.g. one patient with all"
    " stays?",
    needed=True,
)
PERSONS = Question("persons", "Which table has one row for each person?")
KEY = Question(
    "key",
    "which column holds the person's id? It is neither modelled nor released.",
)
ORDER = Question("order", "which column puts a person's rows in order: a date, or a whole number?")
AT_MOST = Question(
    "at_most",
    "of each person the first rows are kept, at most how many? Noise grows with it; choose from"
    " what is known of the process",
    Annotated[Whole, Field(ge=2, le=64)],
)
NUMBER = replace(ROWS, text="How many persons are there, as a constant that may be published?")
ABOUT = (
    Question(
        "description",
        "What is the synthetic table, in a sentence, for its readers (none: empty)?",
        default="",
    ),
    Question(
        "licence", "Licence of the synthetic table, such as CC-BY-4.0 (none: empty)?", default=""
    ),
)
MISSING = Question(
    "missing_values",
    "Which texts stand for a missing value beside an empty field, such as NA, ?, parted by commas"
    " (none: empty)?",
    tuple[str, ...],
    many=True,
    texts=True,
    default="",
)
DECIMAL = Question(
    "decimal", "What stands before the decimals of numbers?", allowed=(".", ","), default="."
)
TYPE = Question("type", "which type?", allowed=(*COLUMN_TYPES, DROP))
ORDERS = ("datetime", "integer")
"""Types of a column that orders visits."""
MAY_MISS = Question("missing", "may values be missing?", allowed=("yes", "no"), default="no")
HOLDS = Question("description", "what does it hold, in a few words (none: empty)?", default="")


class Ask(Protocol):
    """Puts a question; of `allowed` answers, if there are some; `default` is for an empty one."""

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str: ...


def ask_unit(ask: Ask, names: tuple[str, ...]) -> dict[str, Any]:
    likely = likely_id(names)
    kind = answer(ask, replace(UNIT, default=None if likely is None else "id"))
    if kind == "row":
        told = unit_warning("row", names, ())
        note = f"warning: {told} (< goes back).\n" if told else ""
        return {"kind": kind, "meaning": answer(ask, ROW, note)}
    column, *others = ID
    questions = (replace(column, allowed=names, default=likely), *others)
    return {"kind": kind, **{q.field: answer(ask, q) for q in questions}}


def ask_linked(
    ask: Ask, names: Mapping[str, tuple[str, ...]], dates: Mapping[str, Collection[str]]
) -> dict[str, Any]:
    """Of two linked tables, with the names of their columns: what one person is, under `meaning`;
    which table has `persons` and which `visits`, the `key` of each, and the visits' `order` and
    `at_most`. Columns in `dates` of a table are known to be such.
    """
    said: dict[str, Any] = {"meaning": answer(ask, PERSON)}
    first, second = names
    persons = answer(ask, replace(PERSONS, allowed=(first, second), default=first))
    visits = second if persons == first else first
    keys = dict[str, str]()
    for table in (persons, visits):
        same = keys.get(persons) if keys.get(persons) in names[table] else likely_id(names[table])
        question = replace(KEY, allowed=names[table], default=same)
        keys[table] = answer(ask, question, f"{table}: ")
    others = tuple(name for name in names[visits] if name != keys[visits])
    timed = [name for name in others if name in dates[visits]]
    order = replace(ORDER, allowed=others, default=timed[0] if len(timed) == 1 else None)
    said |= {"persons": persons, "visits": visits, "key": keys}
    said["order"] = answer(ask, order, f"{visits}: ")
    return said | {"at_most": answer(ask, AT_MOST, f"{visits}: ")}


def ask_rows(ask: Ask, unit: Mapping[str, Any], *, known: int | None = None) -> dict[str, Any]:
    """The `rows` section, of what the `unit` leaves; a number that is `known` is not asked for."""
    kind, question = answer(ask, KIND_OF_ROWS), ROWS
    if unit["kind"] == "person":
        question = NUMBER
    if unit["kind"] == "id":
        few = "as many as ids" if unit["max_rows"] == 1 else f"at most {unit['max_rows']} of each"
        question = replace(ROWS, text=USED_ROWS.format(few))
    return {"kind": kind, "value": answer(ask, question) if known is None else known}


def ask_budget(ask: Ask, rows: int) -> dict[str, Any]:
    small = Annotated[Real, Field(gt=0, lt=1 / rows)]
    delta = replace(DELTA, answer=small, default=suggested_delta(rows))
    return {q.field: answer(ask, q) for q in (EPSILON, delta)}


def ask_about(ask: Ask) -> dict[str, str]:
    """What the bundle says of the table: a description and a licence, where they are given."""
    answers = {q.field: answer(ask, q) for q in ABOUT}
    return {key: text for key, text in answers.items() if text}


def ask_column(
    ask: Ask,
    name: str,
    known: Mapping[str, Any] | None = None,
    *,
    place: str = "",
    typed: Mapping[str, Any] | None = None,
    remark: Remark | None = None,
    types: tuple[str, ...] = TYPE.allowed,
) -> dict[str, Any] | None:
    """One entry of `columns`, or None for a column that is dropped.

    `known` is what a code book says; only what it leaves to be filled in is asked for. `typed` is
    what the file's own types say, which is offered. `remark` is told with the first question, and
    `place`, which column of how many it is, with each. Only `types` may be answered. A column is
    asked from the start where the answers do not fit together.
    """
    stated = {key: value for key, value in (known or {}).items() if not isinstance(value, Blank)}
    if "type" in stated and stated == known:
        return stated
    kind, typed = stated.get("type"), typed or {}
    if not kind:
        told = f"{name}: {remark.text}\n" if remark else ""
        likely = DROP if is_id(name) and DROP in types else typed.get("type")
        asked = replace(TYPE, allowed=types, default=likely if likely in types else None)
        kind = answer(ask, asked, f"{told}{place}{name}: ")
    if kind == DROP:
        return None
    if kind == typed.get("type"):
        stated = {**typed, **stated}
    note = ""
    for _ in range(TRIES):
        entry = {"type": kind, **_details(ask, f"{note}{place}{name}: ", kind, stated)}
        try:
            TypeAdapter[Any](Column).validate_python(entry)
        except ValidationError as error:
            note = f"{first_words(error)}.\n"
            continue
        return entry
    raise _give_up(name)


def _details(ask: Ask, name: str, kind: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the type's own questions are about, whether values may be missing, and a
    description; what is `stated` is not asked for.
    """
    entry: dict[str, Any] = {}
    for q in COLUMN_TYPES[kind].questions:
        value = stated[q.field] if q.field in stated else answer(ask, q, name)
        if q.field in stated or value not in ("", []):
            entry[q.field] = value
    entry |= {key: value for key, value in stated.items() if key not in ("type", "description")}
    if "missing" not in entry:
        entry["missing"] = answer(ask, MAY_MISS, name) == "yes"
    said = stated.get("description") or answer(ask, HOLDS, name)
    return entry | ({"description": said} if said else {})


def answer(ask: Ask, question: Question, before: str = "") -> Any:
    """The first answer that fits; what stands `before` the question is asked with it."""
    note, text = "", before + question.text
    for _ in range(TRIES):
        given = ask(note + text, allowed=question.allowed, default=question.default).strip()
        value, wrong = _fitted(question, given or question.default or "")
        if wrong is None:
            return value
        note = f"{wrong}.\n"
    raise _give_up(text)


def _fitted(question: Question, answer: str) -> tuple[Any, str | None]:
    """The value of an answer, as it was written, and what is wrong with it."""
    if question.allowed and answer not in question.allowed:
        return None, f"got {answer!r}; allowed: {', '.join(question.allowed)}"
    if question.needed and not answer:
        return None, "an answer is needed"
    if question.answer is None:
        return answer, None
    value: Any = plain(answer)
    if question.many:
        try:  # "a, b", c are two
            parts = next(csv.reader([answer], skipinitialspace=True, strict=True), [])
        except csv.Error:
            return None, "a quotation mark is not closed, or not followed by a comma"
        parts = [part.strip() for part in parts]
        if "" in parts:
            return None, "nothing stands between two commas"
        value = [part if question.texts else plain(part) for part in parts]
    try:
        TypeAdapter[Any](question.answer).validate_python(value)
    except ValidationError as error:
        return None, first_words(error)
    return value, None


def _give_up(question: str) -> DataError:
    message = f"no usable answer after {TRIES} tries: {question}"
    return DataError(message, hint="run init again, or without questions, and fill in the draft")


BACK = "<"  # the answer that goes back to the question before


class GoBackError(Exception):
    """The question before is to be asked again."""


class KeptAnswers:
    """An `Ask` that gives kept answers again as long as the same questions are asked.

    From the first other question on it asks, and what was kept beyond it is forgotten. The answer
    `BACK` raises `GoBackError`; the draft is then begun anew, after `back`.
    """

    def __init__(self, ask: Ask, file: Path) -> None:
        self.ask, self.file = ask, file
        self.left: list[tuple[str, str]] = _kept(file)
        self.found = len(self.left)
        self.given: list[tuple[str, str]] = []

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str:
        asked = question
        # A question that is asked again begins with what was wrong: the answer to it did not fit.
        if self.given and question.endswith(self.given[-1][0]) and question != self.given[-1][0]:
            asked = self.given.pop()[0]
        if self.left and self.left[0][0] == question:
            answer = self.left.pop(0)[1]
        else:
            self.left = []
            answer = self.ask(question, allowed=allowed, default=default)
            if answer.strip() == BACK:
                raise GoBackError
        self.given.append((asked, answer))
        if not self.left:
            write_whole(self.file, json.dumps(self.given, ensure_ascii=False, indent=1))
        return answer

    def back(self) -> None:
        """Give all answers again but the last one."""
        self.left, self.given = self.given[:-1], []

    def forget(self) -> None:
        """Remove the file: the draft is written."""
        self.file.unlink(missing_ok=True)


def with_back(kept: KeptAnswers, make: Callable[[], _T]) -> _T:
    """What `make` makes of answers, begun anew whenever one goes back."""
    while True:
        try:
            return make()
        except GoBackError:
            kept.back()


def _kept(file: Path) -> list[tuple[str, str]]:
    """The answers in a file; none where there is no such file, or another."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        pairs = [(question, answer) for question, answer in found]
    except (OSError, ValueError, TypeError):
        return []
    return pairs if all(isinstance(text, str) for pair in pairs for text in pair) else []
