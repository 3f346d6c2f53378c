"""The questions of `synthdp init`, each asked again until its answer fits the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from synthdp.errors import DataError
from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.telling_names import Remark, is_id, is_money, likely_id, unit_warning
from synthdp.spec.init.draft_edges import describe_edges, suggested_edges
from synthdp.spec.init.writing import Blank
from synthdp.spec.load.yaml_tree import Scalar, plain
from synthdp.spec.model import COLUMN_TYPES, Column, DeclaredRows, Privacy, Real, Whole
from synthdp.spec.model.columns import Question
from synthdp.spec.wording import first_words

TRIES = 5
DROP = "drop"  # in place of a type: the column stays in the source, and is not read
_T = TypeVar("_T")


class Ask(Protocol):
    """Puts a question to the user.

    `allowed` lists the answers if there are only some; `default` is the answer for an empty one.
    """

    def __call__(
        self, question: str, *, allowed: tuple[str, ...] = (), default: str | None = None
    ) -> str: ...


class _RefusedError(ValueError):
    """An answer that does not fit; the message says why."""


def ask_unit(ask: Ask, names: tuple[str, ...]) -> dict[str, Any]:
    """The `privacy_unit` section."""
    question = (
        "What is protected: each row (right only if no person has several rows), or everything of"
        " one id?"
    )
    likely = likely_id(names)
    kind = _choice(ask, question, ("row", "id"), None if likely is None else "id")
    if kind == "row":
        told = unit_warning("row", names, ())
        note = f"warning: {told} (< goes back).\n" if told else ""
        return {
            "kind": "row",
            "meaning": _until_fit(ask, f"{note}What is one row, e.g. one person?", _text),
        }
    column = _choice(
        ask, "Which column holds the id? It is neither modelled nor released.", names, likely
    )
    most = _until_fit(
        ask,
        "At most how many rows of one id are used? Noise grows with it: 1, unless most ids have"
        " several that are needed.",
        _fits(Annotated[Whole, Field(ge=1, le=64)]),
    )
    return {
        "kind": "id",
        "column": column,
        "max_rows": most,
        "meaning": _until_fit(ask, "What is one id, e.g. one patient?", _text),
    }


def ask_rows(ask: Ask, unit: Mapping[str, Any], *, known: int | None = None) -> dict[str, Any]:
    """The `rows` section, of what the `unit` leaves; a number that is `known` is not asked for."""
    kind = _choice(
        ask,
        "Is the exact number of rows public, or only approximately known?",
        ("public", "approximate"),
        "approximate",
    )
    if known is not None:
        return {"kind": kind, "value": known}
    question = "How many rows does the table have, as a constant that may be published?"
    if unit["kind"] == "id":
        few = "as many as ids" if unit["max_rows"] == 1 else f"at most {unit['max_rows']} of each"
        question = (
            f"How many rows are used, {few} (not all that the table has), as a constant that may be"
            " published?"
        )
    return {
        "kind": kind,
        "value": _until_fit(
            ask, question, _fits(DeclaredRows.model_fields["value"].rebuild_annotation())
        ),
    }


def ask_budget(ask: Ask, rows: int) -> dict[str, Any]:
    """Epsilon and delta for a table of `rows` rows."""
    fields = Privacy.model_fields
    epsilon = _until_fit(
        ask,
        "Epsilon, the total for everything in the run?",
        _fits(fields["epsilon"].rebuild_annotation()),
        default="1",
    )
    small = _fits(Annotated[Real, Field(gt=0, lt=1 / rows)])
    return {
        "epsilon": epsilon,
        "delta": _until_fit(
            ask, "Delta, well below 1 / rows?", small, default=suggested_delta(rows)
        ),
    }


def ask_about(ask: Ask) -> dict[str, str]:
    """What the bundle says of the table: a description and a licence, where they are given."""
    questions = {
        "description": "What is the synthetic table, in a sentence, for its readers (none: empty)?",
        "licence": "Licence of the synthetic table, such as CC-BY-4.0 (none: empty)?",
    }
    answers = {key: ask(text, default="").strip() for key, text in questions.items()}
    return {key: answer for key, answer in answers.items() if answer}


def ask_column(
    ask: Ask,
    name: str,
    known: Mapping[str, Any] | None = None,
    *,
    typed: Mapping[str, Any] | None = None,
    remark: Remark | None = None,
) -> dict[str, Any] | None:
    """One entry of `columns`, or None for a column that is dropped.

    `known` is what a code book says; only what it leaves to be filled in is asked for. `typed` is
    what the file's own types say, which is offered. `remark` is told with the first question. A
    column is asked from the start where the answers do not fit together.
    """
    stated = {key: value for key, value in (known or {}).items() if not isinstance(value, Blank)}
    if stated and stated == known:
        return stated
    kind, typed = stated.get("type"), typed or {}
    if not kind:
        told = f"{name}: {remark.text}\n" if remark else ""
        likely = DROP if is_id(name) else typed.get("type")
        kind = _choice(ask, f"{told}{name}: which type?", (*COLUMN_TYPES, DROP), likely)
    if kind == DROP:
        return None
    if kind == typed.get("type"):
        stated = {**typed, **stated}
    note = ""
    for _ in range(TRIES):
        entry = {"type": kind, **_details(ask, f"{note}{name}", kind, stated)}
        try:
            TypeAdapter[Any](Column).validate_python(entry)
        except ValidationError as error:
            note = f"{first_words(error)}.\n"
            continue
        return entry
    raise _give_up(name)


def ask_missing(ask: Ask) -> list[Scalar]:
    """The `missing_values` of a source; an empty field is always one."""
    question = (
        "Which texts stand for a missing value beside an empty field, such as NA, ?, parted by"
        " commas (none: empty)?"
    )
    return ["", *_until_fit(ask, question, _list(tuple[str, ...], texts=True), default="")]


def ask_decimal(ask: Ask) -> str:
    """The `decimal` of a source."""
    return _choice(ask, "What stands before the decimals of numbers?", (".", ","), ".")


def _details(ask: Ask, name: str, kind: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the type's own questions are about, whether values may be missing, and a
    description; what is `stated` is not asked for.
    """
    entry: dict[str, Any] = {}
    for question in COLUMN_TYPES[kind].questions:
        if question.field in stated:
            entry[question.field] = stated[question.field]
            continue
        answer = _answer(ask, name, question, {"type": kind, **entry})
        if answer not in ("", []):
            entry[question.field] = answer
    entry |= {key: value for key, value in stated.items() if key not in ("type", "description")}
    if "unit" in entry:  # it is asked before the bins that it suggests, and written after them
        entry["unit"] = entry.pop("unit")
    if "missing" not in entry:
        may = _choice(ask, f"{name}: may values be missing?", ("yes", "no"), "no")
        entry["missing"] = may == "yes"
    about = f"{name}: what does it hold, in a few words (none: empty)?"
    said = stated.get("description") or ask(about, default="").strip()
    return entry | ({"description": said} if said else {})


def _answer(ask: Ask, name: str, question: Question, said: dict[str, Any]) -> Any:
    """The value of one field; `said` is what is known of the column already."""
    text = f"{name}: {question.text}"
    if question.field == "edges":
        return _edges(ask, name, question, said)
    if question.answer is None:
        return ask(text, default=question.default).strip()
    fit: Callable[[str], Any] = (
        _list(question.answer, texts=question.texts) if question.many else _fits(question.answer)
    )
    return _until_fit(ask, text, fit, default=question.default)


def _edges(ask: Ask, name: str, question: Question, said: dict[str, Any]) -> list[Scalar]:
    """Left ends of bins: the suggested ones, none, or those that the user gives.

    Bounds, unit and spikes suggest them. None leaves them to the engine (`spec.model.rules`).
    """
    lower, upper = float(said["lower"]), float(said["upper"])
    if not lower < upper:
        return []  # which is told when the column is checked
    suggested = suggested_edges(
        lower=lower,
        upper=upper,
        whole=not COLUMN_TYPES[said["type"]].continuous,
        unit=said.get("unit", ""),
        spikes=[float(s) for s in said.get("spikes", ())],
        money=is_money(name),
    )
    if not suggested:
        return []
    own = _list(question.answer, texts=question.texts)

    def fit(answer: str) -> list[Scalar]:
        edges: list[Scalar] = (
            [*suggested] if answer == "yes" else [] if answer == "no" else own(answer)
        )
        _validate(Column, {**said, **({"edges": edges} if edges else {})})
        return edges

    return _until_fit(
        ask,
        f"{name}: {describe_edges(suggested, upper)}; {question.text}",
        fit,
        default=question.default,
    )


def _until_fit(
    ask: Ask,
    question: str,
    fit: Callable[[str], _T],
    *,
    default: str | None = None,
    allowed: tuple[str, ...] = (),
) -> _T:
    note = ""
    for _ in range(TRIES):
        answer = ask(note + question, allowed=allowed, default=default).strip()
        try:
            return fit(answer if answer or default is None else default)
        except _RefusedError as error:
            note = f"{error}.\n"
    raise _give_up(question)


def _choice(ask: Ask, question: str, allowed: tuple[str, ...], default: str | None) -> str:
    def fit(answer: str) -> str:
        if answer not in allowed:
            raise _RefusedError(f"got {answer!r}; allowed: {', '.join(allowed)}")
        return answer

    return _until_fit(ask, question, fit, default=default, allowed=allowed)


def _give_up(question: str) -> DataError:
    return DataError(
        f"no usable answer after {TRIES} tries: {question}",
        hint="run init again, or without questions, and fill in the draft",
    )


def _text(answer: str) -> str:
    if not answer:
        raise _RefusedError("an answer is needed")
    return answer


def _fits(kind: Any) -> Callable[[str], Scalar]:
    """A check of an answer by the contract's own type; the answer stays as it was written."""

    def fit(answer: str) -> Scalar:
        value = plain(answer)
        _validate(kind, value)
        return value

    return fit


def _list(kind: Any, *, texts: bool) -> Callable[[str], list[Scalar]]:
    def fit(answer: str) -> list[Scalar]:
        parts = [part.strip() for part in answer.split(",")] if answer else []
        if "" in parts:
            raise _RefusedError("nothing stands between two commas")
        values = [part if texts else plain(part) for part in parts]
        _validate(kind, values)
        return values

    return fit


def _validate(kind: Any, value: object) -> None:
    try:
        TypeAdapter[Any](kind).validate_python(value)
    except ValidationError as error:
        raise _RefusedError(first_words(error)) from None
