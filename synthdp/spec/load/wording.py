"""What a YAML parser and pydantic find wrong in a spec, in a steward's words.

Pydantic says where (`loc`) and which rule; this module says which key that is in the YAML
(discriminator tags are taken out of `loc`), what was got, what is allowed and, for names, which one
was probably meant.
"""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from unicodedata import category, normalize

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from synthdp.spec.addresses import UNSHOWN, looks_like_address

Loc = tuple[str | int, ...]


def field_of(loc: Loc) -> str:
    """A path for people, such as `graph.edges #2`, counted from 1.

    >>> field_of(("graph", "edges", 1))
    'graph.edges #2'
    """
    names = (s if s.isprintable() and len(s) <= 60 else repr(s[:60]) for s in map(str, loc))
    told = (
        f" #{s + 1}" if isinstance(s, int) else f".{n}" for s, n in zip(loc, names, strict=True)
    )
    return "".join(told).removeprefix(".")


@dataclass(frozen=True)
class Mistake:
    """Something wrong at a place of the text, before any schema is looked at."""

    line: int
    column: int
    loc: Loc
    message: str
    hint: str | None = None


# What the parser says (two dialects: libyaml's and PyYAML's), what it means, and a hint.
_SYNTAX = """\
mapping values are not allowed | a ':' where no key can stand | check the indentation; a text that holds ': ' goes in quotes
sequence entries are not allowed | a list item '- ' where none can stand | start the list on a line of its own, below the key
could not find expected ':' | a key without ':' after it | write `key: value`; check the line above too
end of stream | a quotation mark that is never closed | close it, or write '' for an apostrophe inside '...'
escape c | an unknown escape after a backslash | inside "..." a backslash is written twice; '...' has no escapes
',' or ']' | a list [...] that is not closed, or a comma is missing | close it with ], and put commas between the items
',' or '}' | a map {...} that is not closed, or a comma is missing | close it with }, and put commas between the entries
tag handle | a tag (!...) that is not read | delete the tag; quotes make any value text
incompatible YAML | a %YAML line that is not read | delete the line
expected key | something that does not belong here | check quotes, brackets and the indentation on this line and the one above
block end | something that does not belong here | check quotes, brackets and the indentation on this line and the one above
'-' indicator | a key among list items | indent it below an item, or end the list by less indentation
document start | a line that is indented less than the first line | start all top-level keys in the same column
node content | a bracket, comma or sign that is not a value | put the text in quotes if it is meant so
"""  # noqa: E501


def syntax_mistake(error: yaml.MarkedYAMLError, text: str) -> Mistake:
    """The parser's complaint about `text`, in plain words and at the most telling place."""
    problem = error.problem or ""
    mark = error.problem_mark or error.context_mark
    unclosed = "end of stream" in problem or "',' or" in problem
    if unclosed and error.context_mark is not None:
        mark = error.context_mark  # where it was opened says more than the end of the file
    if mark is None:
        return Mistake(1, 1, (), "this is not readable YAML")
    line, column = mark.line + 1, mark.column + 1
    source = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    here = source[mark.column : mark.column + 1]
    if here == "\t" or "tab character" in problem:
        hint = "YAML is indented by spaces; tell the editor to insert spaces"
        return Mistake(line, column, (), "a tab in the indentation", hint)
    if "cannot start any token" in problem:
        message = f"a value cannot begin with {here!r}"
        return Mistake(line, column, (), message, "put the text in quotes")
    for row in _SYNTAX.splitlines():
        found, meaning, hint = row.split(" | ")
        if found in problem:
            return Mistake(line, column, (), meaning, hint)
    hint = "check quotes, brackets and the indentation here and on the line above"
    return Mistake(line, column, (), f"this is not YAML: {problem}", hint)


@dataclass(frozen=True)
class SpecMistake:
    """One mistake at `loc`, a path of keys and list positions from the root of the spec."""

    loc: Loc
    message: str
    hint: str | None = None
    kind: Literal["value", "missing", "unknown"] = "value"


def claims(*rows: tuple[object, str | Loc, str, str | None]) -> Iterator[SpecMistake]:
    """The mistakes of those claims that hold: (whether it is one, where, what it is, a hint)."""
    return (
        SpecMistake(tuple(where.split(".")) if isinstance(where, str) else where, message, hint)
        for holds, where, message, hint in rows
        if holds
    )


def stated(spec: BaseModel, *path: str) -> str:
    """How a message on a number begins: what was got, or that nothing was written there.

    >>> from synthdp.spec.model import Attacks
    >>> stated(Attacks(), "membership", "rows")
    'not written, and so 300'
    """
    section, written = spec, True
    for key in path[:-1]:
        written &= key in section.model_fields_set
        section = getattr(section, key)
    value = getattr(section, path[-1])
    wrote = written and path[-1] in section.model_fields_set
    return f"got {value:g}" if wrote else f"not written, and so {value:g}"


def findings(error: ValidationError, root: type[BaseModel]) -> list[SpecMistake]:
    """Every mistake in `error`, which came from validating `root`."""
    details = error.errors(include_url=False)[:500]
    found = [f for detail in details for f in _finding(detail, root)]
    # A key that is unknown because it is misspelt explains the one that is missing.
    meant = {
        (*f.loc[:-1], f.hint.split("'")[1])
        for f in found
        if f.kind == "unknown" and f.hint and f.hint.startswith("did you mean")
    }
    return [f for f in found if f.kind != "missing" or f.loc not in meant]


def first_words(error: ValidationError) -> str:
    """The first mistake in `error`, for a value that was asked for."""
    detail = error.errors(include_url=False)[0]
    context = detail.get("ctx", {})
    if detail["type"] == "wrong":
        return str(context["text"])
    return _value(detail["type"], context, detail["input"], detail["msg"])[0]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A "did you mean" for a misspelt name, if one of the known names is near.

    Letters, and not their case or how accents are put together, say how near two names are.

    >>> nearest("male", ["Female", "Male"]), nearest("bmj", ["id", "BMI"]), nearest("x", ["age"])
    ("did you mean 'Male'?", "did you mean 'BMI'?", None)
    """
    folded: dict[str, list[str]] = {}
    for one in known:
        folded.setdefault(seen_as(one), []).append(one)
    near = difflib.get_close_matches(seen_as(name), folded, n=1, cutoff=0.6)
    meant = difflib.get_close_matches(name, folded[near[0]], n=1, cutoff=0) if near else None
    return f"did you mean {meant[0]!r}?" if meant else None


def seen_as(name: str) -> str:
    """A name as a hurried reader sees it: without case, unseen characters and spaces around it.

    >>> seen_as(" Gro\u0308\u00dfe\u200b") == seen_as("GR\u00d6SSE")
    True
    """
    letters = "".join(c for c in normalize("NFKC", name) if category(c) != "Cf")
    return normalize("NFKC", " ".join(letters.casefold().split()))


def look_alike(one: str, other: str) -> str | None:
    """In what two different names differ that look the same; None where they do not look so.

    >>> look_alike("Gro\u0308\u00dfe", "Gr\u00f6\u00dfe"), look_alike("age ", "age")
    ('how accents are put together', 'spaces')
    >>> look_alike("Age", "age"), look_alike("page", "age")
    ('upper and lower case', None)
    """
    if one == other or seen_as(one) != seen_as(other):
        return None
    same = (how for how, plain in _UNSEEN.items() if plain(one) == plain(other))
    return next(same, "spaces, case and signs that are hardly seen")


_UNSEEN: dict[str, Callable[[str], str]] = {
    "spaces": lambda name: " ".join(name.split()),
    "upper and lower case": str.casefold,
    "how accents are put together": lambda name: normalize("NFC", name),
    "signs that are not seen": lambda name: "".join(c for c in name if category(c) != "Cf"),
}


def same_but_for_case(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that differ in upper and lower case alone.

    >>> same_but_for_case(["Age", "sex", "AGE"]), same_but_for_case(["age", "sex"])
    (('Age', 'AGE'), None)
    """
    seen: dict[str, str] = {}
    for name in names:
        if (first := seen.setdefault(name.casefold(), name)) != name:
            return first, name
    return None


def many(count: int, noun: str, plural: str | None = None) -> str:
    """A number of things.

    >>> many(1, "arrow"), many(3_000, "arrow"), many(0, "category", "categories")
    ('1 arrow', '3,000 arrows', '0 categories')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def up(value: float, *, digits: int = 4) -> str:
    """A bound, rounded up so that it stays one."""
    scaled = value * 10**digits
    rounded = math.ceil(scaled - 1e-6) / 10**digits  # 0.3 must not become 0.3001 by its binary tail
    return f"{rounded:.{digits}f}".rstrip("0").rstrip(".")


def unreadable(error: Exception) -> str:
    return getattr(error, "strerror", None) or "the path is not a valid one"


def got(value: object) -> str:
    """A value as the steward wrote it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if looks_like_address(value):
            return UNSHOWN
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, int | float):
        return str(value)[:60]
    if isinstance(value, list | tuple):
        return "a list"
    return "a map" if isinstance(value, dict) else "something else"


def _finding(detail: ErrorDetails, root: type[BaseModel]) -> Iterator[SpecMistake]:
    loc, model, kind = _resolve(detail["loc"], root)
    rule, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if rule == "wrong":
        for name, message in context["problems"]:
            yield SpecMistake((*loc, name) if name else loc, message)
    elif rule == "missing":
        field = model.model_fields.get(str(loc[-1])) if model else None
        yield SpecMistake(
            loc, "missing; it is required", field.description if field else None, "missing"
        )
    elif rule == "extra_forbidden":
        keys = list(model.model_fields) if model else []
        hint = nearest(str(loc[-1]), keys) or f"keys that can stand here: {', '.join(keys)}"
        yield SpecMistake(loc, "unknown key", hint, "unknown")
    elif rule == "too_short" and len(value) >= context["min_length"]:
        return  # entries that are wrong themselves were taken out, and each is told
    elif rule.startswith("union_tag"):
        yield _tag(loc, rule, context, kind)
    else:
        yield SpecMistake(loc, *_value(rule, context, value, detail["msg"]))


def _tag(loc: Loc, rule: str, context: dict[str, Any], union: Any) -> SpecMistake:
    key = context["discriminator"].strip("'")
    members = (_bare(member).model_fields[key] for member in get_args(union))
    allowed = [str(tag) for member in members for tag in get_args(member.annotation)]
    listed = ", ".join(allowed)
    if rule == "union_tag_not_found":
        return SpecMistake((*loc, key), "missing; it is required", f"one of: {listed}", "missing")
    tag = str(context["tag"])
    meant = nearest(_MEANT.get(seen_as(tag), tag), allowed)
    return SpecMistake((*loc, key), f"got {got(tag)}; allowed: {listed}", meant)


_MEANT = {
    **dict.fromkeys(("decimal", "float", "double", "real", "numeric", "continuous"), "number"),
    **dict.fromkeys(("whole number", "count", "int64"), "integer"),
    **dict.fromkeys(("yes/no", "bool", "logical", "binary", "flag"), "boolean"),
    **dict.fromkeys(("ordered", "ordered categorical", "likert", "rank"), "ordinal"),
    **dict.fromkeys(("nominal", "factor", "enum", "string", "choice"), "categorical"),
    **dict.fromkeys(("timestamp", "time"), "datetime"),
}
"""What codebooks and other programs call a type of column here."""


def _value(
    rule: str, context: dict[str, Any], value: object, default: str
) -> tuple[str, str | None]:
    if rule == "value_error":
        return str(context["error"]), None
    if rule == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
        return f"got {got(value)}; allowed: {', '.join(allowed)}", nearest(str(value), allowed)
    if rule in _WANTED:
        wanted, hint = _WANTED[rule]
        return f"expected {wanted}, got {got(value)}", hint
    for key, words in _BOUNDS:
        if key in context and rule.startswith(("greater_than", "less_than")):
            return f"got {got(value)}; it must be {words} {context[key]:g}", None
    if rule in ("too_short", "too_long", "string_too_short", "string_too_long"):
        things = "characters" if rule.startswith("string") else "entries"
        length = len(value) if isinstance(value, Sized) else context.get("actual_length", "?")
        end = "most" if "max_length" in context else "least"
        bound = context.get("max_length", context.get("min_length"))
        return f"got {length} {things}; there must be at {end} {bound}", None
    if rule == "string_pattern_mismatch":
        words = _PATTERNS.get(context["pattern"], f"it must match {context['pattern']}")
        # What stands in place of a variable's name may be a URL with its password: never repeat it.
        return (words if context["pattern"] == _VARIABLE else f"got {got(value)}; {words}"), None
    if rule.startswith("datetime"):
        return (
            f"expected a date such as 2024-12-31, or 2024-12-31T23:59:59; got {got(value)}",
            "look for a day or an hour that does not exist",
        )
    return f"{default[:1].lower()}{default[1:]}; got {got(value)}", None


_NUMBER_HINT = "write plain digits: no quotes, no separators, no unit"
_TEXT_HINT = "put it in quotes if it is meant as text"
_LIST_HINT = "write [a, b], or one '- item' per line"
_MAP_HINT = "write `key: value` lines, indented below the key"
_WANTED: dict[str, tuple[str, str | None]] = {
    "int_type": ("a whole number", _NUMBER_HINT),
    "float_type": ("a number", _NUMBER_HINT),
    "finite_number": ("a finite number", None),
    "bool_type": ("true or false", "yes, no, on and off are text here"),
    "string_type": ("text", _TEXT_HINT),
    "string_unicode": ("text", _TEXT_HINT),
    "tuple_type": ("a list", _LIST_HINT),
    "dict_type": ("a map of names to values", _MAP_HINT),
    "model_type": ("a map of keys to values", _MAP_HINT),
    "model_attributes_type": ("a map of keys to values", _MAP_HINT),
}
_BOUNDS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))
_VARIABLE = "^[A-Z_][A-Z0-9_]*$"
_PATTERNS = {
    "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$": (
        "use letters, digits, dots, hyphens and underscores, beginning with a letter or digit, at"
        " most 64"
    ),
    _VARIABLE: (
        "give the name of an environment variable: capital letters, digits and underscores, e.g."
        " SOURCE_URL"
    ),
}


def _resolve(loc: Loc, root: type[BaseModel]) -> tuple[Loc, type[BaseModel] | None, Any]:
    """`loc` without pydantic's segments, the model of its last segment, and the type there."""
    kind: Any = root
    shown: list[str | int] = []
    holder: type[BaseModel] | None = root
    for segment in loc:
        kind = _bare(kind)
        member = _member(kind, segment)
        if member is not None:
            kind = holder = member
            continue
        if segment == "[key]" and get_origin(kind) is not dict:
            break
        shown.append(segment)
        holder = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
        kind = _inside(kind, segment)
    return tuple(shown), holder, _bare(kind)


def _bare(kind: Any) -> Any:
    """A type without Annotated and without "or None"."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    members = (
        [m for m in get_args(kind) if m is not type(None)]
        if get_origin(kind) in (Union, types.UnionType)
        else []
    )
    return _bare(members[0]) if len(members) == 1 else kind


def _member(kind: Any, tag: str | int) -> type[BaseModel] | None:
    """The member of a tagged union that `tag` names."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    for member in map(_bare, get_args(kind)):
        if origin := get_origin(member):
            if origin.__name__ == tag:
                return cast(type[BaseModel], member)
        elif issubclass(member, BaseModel) and (
            member.__name__ == tag
            or any(
                tag in get_args(f.annotation)
                for f in member.model_fields.values()
                if get_origin(f.annotation) is Literal
            )
        ):
            return cast(type[BaseModel], member)
    return None


def _inside(kind: Any, segment: str | int) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(segment))
        return field.annotation if field else None
    arguments = get_args(kind)
    return arguments[-1] if get_origin(kind) is dict else arguments[0] if arguments else None
