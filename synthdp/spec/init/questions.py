"""The questions of `synthdp init`, each asked again until its answer fits the contract."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from synthdp.errors import DataError
from synthdp.files import write_whole
from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.telling_names import Remark, is_id, is_money, likely_id, unit_warning
from synthdp.spec.load.wording import first_words
from synthdp.spec.load.yaml_tree import Scalar, plain
from synthdp.spec.model import COLUMN_TYPES, Column, DeclaredRows, Privacy, Real, Whole
from synthdp.spec.model.columns import Question
from synthdp.spec.writing import Blank

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


# --- kept answers ---
#
# Answers to `synthdp init` that survive an interruption: each is written to a file as it is given.
#
# The file lies beside the draft that they are for, and goes when that is written. It holds what
# was typed, which is about the table and not of its rows.


BACK = "<"
"""The answer that goes back to the question before."""


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


# --- draft edges ---
#
# Bins for a range, suggested from its declared bounds, unit and spikes.
#
# The rules are public. No row is looked at.
#
# A bin should be as wide as people care about, and no wider: five years of age, five hours a week.
# Values that are very common by themselves, such as forty hours, are spikes with a level of their
# own, so that a bin around them stays smooth.


MAX_BINS, MAX_SINGLE = 40, 40
# Widths that people use, by unit; a range that they would cut into more than MAX_BINS bins gets
# wider ones.
WIDTHS: tuple[tuple[str, float], ...] = (
    (r"years?|yrs?|age", 5),
    (r"hours?|hrs?|h|hours?[ /]+(per[ /])?(week|w)|h/w(eek)?", 5),
    (r"minutes?|min", 5),
    (r"percent|%|per cent", 5),
    (r"kg|kilograms?|pounds?|lbs?", 5),
    (r"cm|centimet(er|re)s?|inch(es)?", 5),
    (r"mmhg|bpm", 10),
    (r"°?c|celsius|°?f|fahrenheit", 1),
)
MONEY = r"(us)?\$|usd|eur|euros?|€|gbp|£|dollars?|pounds sterling|yen|¥|chf|francs?"
WIDE = 1000  # times the smallest step: money over such a range is cut at 1, 2, 5, 10, 20, ...


def suggested_edges(
    *,
    lower: float,
    upper: float,
    whole: bool,
    unit: str = "",
    spikes: Sequence[float] = (),
    money: bool = False,
) -> tuple[float, ...]:
    """Left ends of bins from `lower` to `upper`, ascending.

    The first one is `lower`, or the next whole number where `lower` is a spike.

    `whole`: the values are whole numbers. `money`: they are amounts of it, whatever `unit` is.
    Needs `lower < upper`. Nothing where spikes leave nothing to be binned.
    """
    first = lower + 1 if whole and lower in spikes else lower
    if first == upper and upper in spikes:
        return ()
    inner = (
        _decades(lower, upper)
        if _is_wide(lower, upper) and (money or re.fullmatch(MONEY, unit.strip().lower()))
        else _multiples(lower, upper, _width(lower, upper, whole=whole, unit=unit))
    )
    edges = [first, *(e for e in inner if first < e < upper)]
    single = whole and all(b - a == 1 for a, b in pairwise(edges))
    # Where every value is a bin, the bin of a spike would hold nothing but it: the bin before
    # reaches over it.
    kept = [e for e in edges if e == first or not (single and e in spikes)]
    return tuple(int(e) if float(e).is_integer() else e for e in kept)


def describe_edges(edges: Sequence[float], upper: float) -> str:
    """Edges in a few words: how many bins, and where they begin."""
    shown = [f"{e:.12g}" for e in edges]
    some = shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]]
    return (
        f"{len(edges)} bin{'s' if len(edges) != 1 else ''} from {', '.join(some)} (to {upper:.12g})"
    )


def _width(lower: float, upper: float, *, whole: bool, unit: str) -> Fraction:
    """The unit's width, or else 1, 2 or 5 times a power of ten.

    It gives as many bins as `MAX_BINS` allows.
    """
    if whole and upper - lower < MAX_SINGLE:
        return Fraction(1)
    width = next(
        (Fraction(w) for pattern, w in WIDTHS if re.fullmatch(pattern, unit.strip().lower())), None
    )
    span = Fraction(upper) - Fraction(lower)
    if width is not None and 4 * width <= span <= MAX_BINS * width:
        return width
    power = Fraction(10) ** math.floor(math.log10(span / MAX_BINS))
    nice = next(power * m for m in (1, 2, 5, 10, 20) if span <= MAX_BINS * power * m)
    return max(nice, Fraction(1)) if whole else nice


def _multiples(lower: float, upper: float, width: Fraction) -> list[float]:
    first = math.floor(Fraction(lower) / width) + 1
    return [float(k * width) for k in range(first, math.ceil(Fraction(upper) / width))]


def _is_wide(lower: float, upper: float) -> bool:
    return lower >= 0 and upper >= WIDE * max(lower, 1)


def _decades(lower: float, upper: float) -> list[float]:
    """1, 2, 5, 10, ... from a ten-thousandth of `upper` on.

    Below that, differences of money mean little.
    """
    last = math.floor(math.log10(upper))
    steps = [float(m) * 10**k for k in range(max(last - 4, 0), last + 1) for m in (1, 2, 5)]
    return [s for s in steps if lower < s < upper]
