"""Checks of columns: their names, wherever a spec writes one, levels, values and expressions.

And what the names of columns tell, before anybody looks at a row: ids, visits, dates, money, codes.

Names are public, and nothing is certain of them: each remark says what to think of. The one that
decides most is told by `init`, `validate` and `plan`: a table whose unit is a row, and which has
ids or numbers of visits, may have several rows of one person.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from synthdp.spec.expressions.expressions import calculation, parse
from synthdp.spec.expressions.parsed import listed_names
from synthdp.spec.load.wording import Loc, SpecMistake, claims, nearest
from synthdp.spec.model import CONTROL, CsvSource, Edge, ReleaseSpec, derived_of, starts_formula
from synthdp.spec.model.columns import Column, Mapped
from synthdp.spec.model.fields import MOST, alike


def types(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Each column states what its type allows."""
    for name, column in spec.columns.items():
        for field, message, hint in column.mistakes():
            yield SpecMistake(("columns", name, field), message, hint)


def value_maps(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Each text of the source becomes a category, and stands for nothing else."""
    source = spec.dataset.source
    missing = source.missing_values if isinstance(source, CsvSource) else ()
    for name, column in spec.columns.items():
        if not isinstance(column, Mapped):
            continue
        where = ("columns", name)
        own = column.values or spec.maps.get(column.map or "", {})
        if column.map is not None and column.values:
            hint = "delete one of them"
            yield SpecMistake((*where, "map"), "give either values or map, not both", hint)
        elif column.map is not None and column.map not in spec.maps:
            hint = (
                nearest(column.map, spec.maps) or "write it there, as text of the source: category"
            )
            yield SpecMistake((*where, "map"), f"`maps` has no {column.map!r}", hint)
        for text, category in own.items():
            at = (*where, "values", text)
            if category not in column.labels:
                hint = nearest(category, column.labels) or "list it among the column's categories"
                yield SpecMistake(at, f"{category!r} is no category of the column", hint)
            elif text in column.labels:
                message = f"{text!r} is a category itself, and would be published as another"
                yield SpecMistake(at, message, "rename the category, or take it out here")
            elif text in column.missing_codes or text in missing:
                message = f"{text!r} also stands for a missing value"
                yield SpecMistake(at, message, "take it out here, or there")


def names(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The names of columns are plain, and no two of them look alike."""
    for name in spec.columns:
        if starts_formula(name):
            message = "the name starts like a spreadsheet formula"
            hint = "rename the column in the source; begin with a letter"
            yield SpecMistake(("columns", name), message, hint)
        yield from plain_name(("columns", name), name, "rename the column in the source")
    pair = alike(spec.columns)
    if pair is not None:
        message = f"{pair[0]!a} and {pair[1]!a} look the same and are not"
        yield SpecMistake(("columns", pair[1]), message, "rename one of them in the source")


def levels(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """All columns together have at most `MOST.levels` levels."""
    total = sum(column.level_count for column in spec.modelled.values())
    if total > MOST.levels:
        have = f"all columns together have {total:,} levels"
        message = f"{have}; at most {MOST.levels:,} fit into the model"
        yield SpecMistake(("columns",), message, "use fewer bins, or merge rare categories")


def plain_name(where: Loc, name: str, hint: str) -> Iterator[SpecMistake]:
    """A name without control characters, and without spaces around it."""
    if CONTROL.search(name):
        yield SpecMistake(where, "the name holds a control character or a line break", hint)
    elif name != name.strip():
        yield SpecMistake(where, "the name begins or ends with a space", hint)


def derived(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    for name, column in spec.columns.items():
        if (text := derived_of(column)) is None:
            continue
        where, place = ("columns", name), ("columns", name, "derived")
        computed, mistakes = calculation(text, spec.columns)
        yield from (SpecMistake(place, f"character {m.at}: {m.message}", m.hint) for m in mistakes)
        yield from claims(
            *((getattr(column, field), (*where, field),
               f"{field} say how a column is modelled, and {name!r} is computed", f"delete {field}")
              for field in {"bins", "edges", "spikes"} & column.model_fields_set),
        )  # fmt: skip
        if computed is None:
            continue
        absent = [n for n in computed.columns if spec.columns[n].missing]
        why = f"{absent[0]!r} may be missing" if absent else "it divides by what may be 0"
        yield from claims(
            (computed.kind != column.operand, place,
             f"computes a {computed.kind}, and a column of type {column.type} holds"
             f" {column.operand}s",
             f"use type {'datetime' if computed.kind == 'date' else 'number'}"),
            (not column.missing and (absent or computed.divides), place,
             f"{why}, and {name!r} is then missing too", f"set columns.{name}.missing: true"),
        )  # fmt: skip


def even(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Columns are drawn again only where rows were chosen, and are read by no constraint."""
    parsed = (parse(text, spec.columns)[0] for text in spec.constraints)
    read = {name for expression in parsed if expression for name in expression.columns}
    for i, name in enumerate(spec.sampling.even):
        if name in read:
            message = f"a constraint reads column {name!r}, and rows are held to it as a whole"
            yield SpecMistake(("sampling", "even", i), message, f"leave {name!r} out")
    off = next((name for name in ("rake", "balance") if not getattr(spec.sampling, name)), None)
    if spec.sampling.even and off:
        message = f"columns are drawn again after rows were chosen, which {off}: false turns off"
        yield SpecMistake(("sampling", "even"), message, f"delete {off}")


# --- names of columns elsewhere ---

# `*` is every item of a list, or every entry of a map.
COLUMNS = (
    "privacy.heaps.*",
    "privacy.pairs.*.*",
    "synthesizer.targets.*",
    "sampling.even.*",
    "evaluation.targets.*",
    "evaluation.subgroups.*",
    "evaluation.effects.*.outcome",
    "evaluation.effects.*.adjust.*",
    "estimands.*.columns.*",
    "estimands.*.outcome",
    "estimands.*.adjust.*",
)
EXPRESSIONS = (
    "constraints.*",
    "estimands.*.where",
    "evaluation.effects.*.treated",
    "evaluation.effects.*.control",
    "estimands.*.treated",
    "estimands.*.control",
)
ARROWS = ("graph.edges.*", "graph.forbidden.*")
NODES = ("graph.tiers.*.*", "graph.latent.*.*", "graph.undirected.*.*")


def named(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Every column that is named outside the graph is declared."""
    for where, name in _all_found(spec, COLUMNS):
        if name not in spec.columns:
            yield _unknown(where, name, spec.columns, "name a column listed under columns")


def nodes(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Names in the graph are of groups, or of columns in none; in `groups` of any columns."""
    for where, name in _found(spec, "graph.groups.*.*"):
        if name not in spec.columns:
            yield _unknown(where, name, spec.columns, "name a column listed under columns")
    groups, group_of = spec.graph.groups, spec.graph.group_of
    known = dict.fromkeys((*(name for name in spec.columns if name not in group_of), *groups))

    def problems(where: Loc, name: str) -> Iterator[SpecMistake]:
        if name in spec.columns and name not in known:
            group = group_of[name]
            message = f"column {name!r} is in group {group!r} and has no place of its own in the"
            yield SpecMistake(where, f"{message} graph", f"write {group!r} instead")
        elif name not in known:
            yield _unknown(where, name, known, "name a column listed under columns, or a group")

    for where, edge in _all_found(spec, ARROWS):
        for end, name in _ends(where, edge):
            for p in problems(end, name):
                yield replace(p, hint=_as_map(edge, (*spec.columns, *groups)) or p.hint)
    for where, name in _all_found(spec, NODES):
        yield from problems(where, name)


def computed(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """No derived column is named where a column is looked at in the source, or modelled."""
    derived = {name for name, column in spec.columns.items() if derived_of(column) is not None}
    named = [*_all_found(spec, (*COLUMNS, *NODES, "graph.groups.*.*"))] if derived else []
    named += [end for place in _all_found(spec, ARROWS) for end in _ends(*place)] if derived else []
    for where, name in named:
        if name in derived:
            message = (
                f"column {name!r} is computed from others when rows are written: it is not in the"
                " model, and its real values are not read"
            )
            yield SpecMistake(where, message, "name columns that it is computed from")


def expressions(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Every expression can be read."""
    for pattern in EXPRESSIONS:
        for where, text in _found(spec, pattern):
            for m in parse(text, spec.columns, derived=pattern == "constraints.*")[1]:
                yield SpecMistake(where, f"character {m.at}: {m.message}", m.hint)


def _ends(where: Loc, edge: Edge) -> Iterator[tuple[Loc, str]]:
    for side in ("causes", "effects"):
        yield from (((*where, side, i), name) for i, name in enumerate(getattr(edge, side)))


def _as_map(edge: Edge, nodes: Collection[str]) -> str | None:
    """How to write an arrow whose names with commas fell apart; None where none did."""
    for comma in (", ", ","):
        sought = [listed_names(comma.join(names), nodes) for names in (edge.causes, edge.effects)]
        if any("," in name for names in sought for name in names):
            causes, effects = (json.dumps(names, ensure_ascii=False) for names in sought)
            return f"a name with a comma needs a map: {{causes: {causes}, effects: {effects}}}"
    return None


def _unknown(where: Loc, name: str, known: Collection[str], hint: str) -> SpecMistake:
    return SpecMistake(where, f"unknown column {name!r}", nearest(name, known) or hint)


def _all_found(spec: ReleaseSpec, patterns: Collection[str]) -> Iterator[tuple[Loc, Any]]:
    found = (place for pattern in patterns for place in _found(spec, pattern))
    # A map of columns has them as its keys.
    return ((where, where[-1] if isinstance(one, tuple) else one) for where, one in found)


def _found(value: Any, pattern: str) -> Iterator[tuple[Loc, Any]]:
    """The values at the places that a pattern such as `graph.tiers.*.*` names; without None."""
    step, _, rest = pattern.partition(".")
    inside: Any = enumerate(value) if isinstance(value, tuple) else ()
    if isinstance(value, BaseModel):
        inside = [(step, getattr(value, step, None))]
    elif isinstance(value, Mapping):
        inside = value.items()
    for key, inner in inside:
        if inner is not None:
            found = _found(inner, rest) if rest else [((), inner)]
            yield from (((key, *where), one) for where, one in found)


def _all(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ALONE = _all("patient person subject participant respondent customer client proband individual")
_PERSONS = _ALONE | _all(
    "user member student pupil employee worker household family donor resident citizen"
    " child mother voter applicant policyholder subscriber owner patienten personen kunde kunden"
)
_IDS = _all("id ids uid pid uuid guid mrn ssn identifier pseudonym idno")
_NUMBERS = _all("no nr num number key code hash index")
_VISITS = _all("visit admission encounter episode stay session wave round")
_ROWS = _VISITS | _all("row obs observation line")
_BIRTH = _all("birth born dob birthday birthdate")
_DATES = _all("date datetime timestamp day admitted discharged enrolled started ended")
_MONEY = _all(
    "income incomes salary wage wages cost costs price prices paid payment amount revenue fee fare"
    " charge charges eur euro euros usd gbp chf dollar dollars debt loan balance rent budget"
    " spending expenditure turnover profit wealth assets"
)
_CODES = _all(
    "icd zip zipcode postcode postal plz fips naics sic nace cpt atc soc isco ndc loinc snomed drg"
)
_FEW = _all(
    "group grp cat category class level stage grade rating score likert rank children kids"
    " siblings dependents rooms bedrooms cylinders gear"
)
_AFTER = _all("after post followup outcome outcomes endpoint discharged died survived relapse")
_COMPUTED = _all("total sum difference diff delta change ratio")
_SHAPES = (("weight", "wt", "kg"), ("height", "ht", "cm"))


@dataclass(frozen=True)
class Remark:
    """What the name of one column tells; `kind` is for programs, `text` for people."""

    column: str
    kind: str
    text: str


def is_id(name: str) -> bool:
    """Whether a name sounds like that of an id.

    >>> [is_id(name) for name in ("patient_id", "PatientNo", "Kunden-ID", "person", "income", "no")]
    [True, True, True, True, False, False]
    """
    words = _words(name)
    if len(words) < 2:
        return bool(_bare(words) & (_IDS | _ALONE))
    numbered = bool(_PERSONS & {*words}) and {*words} <= _PERSONS | _NUMBERS
    return numbered or words[-1] in _IDS or words[0] in _IDS


def is_visit(name: str) -> bool:
    """Whether a name sounds like the number of one of several visits of somebody.

    >>> [is_visit(name) for name in ("visit_no", "admission_number", "wave", "visits per year")]
    [True, True, True, False]
    """
    words = _words(name)
    return bool(_VISITS & {*words}) and {*words} <= _VISITS | _NUMBERS | _IDS


def likely_id(names: Iterable[str]) -> str | None:
    """The column that most likely has the id of who is protected; None where no name sounds so.

    >>> likely_id(["age", "visit_id", "patient_id"])
    'patient_id'
    """
    found = (name for name in names if is_id(name) and _less_personal(name) < 3)
    return min(found, key=_less_personal, default=None)


def unit_warning(kind: str, dropped: Sequence[str], declared: Sequence[str]) -> str | None:
    """What to think of where the unit is a row, and names say that a person may have several.

    Ids of something else than persons are told only where they are dropped: else their categories
    are declared, as those of a school are.

    >>> unit_warning("row", ["patient_id"], ["age"])[:45]
    'privacy_unit: row protects one row by itself,'
    """
    if kind != "row":
        return None
    telling = [name for name in dropped if is_id(name) or is_visit(name)]
    telling += [n for n in declared if is_visit(n) or (is_id(n) and _less_personal(n) < 2)]
    if not telling:
        return None
    shown = ", ".join(map(repr, telling[:5]))
    one = likely_id(telling)
    how = f"kind: id, column: {one}" if one else "kind: id, and the column with the id"
    return (
        f"privacy_unit: row protects one row by itself, and column{'s' if telling[1:] else ''}"
        f" {shown} sound{'' if telling[1:] else 's'} as if one person could have several, which"
        f" together would have no protection; if so, set {how}, and max_rows"
    )


def remarks(names: Sequence[str]) -> dict[str, Remark]:
    """One remark on each column whose name tells something, the weightiest one.

    >>> found = remarks(["person_id", "height", "weight", "bmi", "zip"])
    >>> {name: remark.kind for name, remark in found.items()}
    {'person_id': 'id', 'bmi': 'follows', 'zip': 'code'}
    """
    made = dict[str, Remark]()
    for remark in _remarks(names):
        made.setdefault(remark.column, remark)
    return {name: made[name] for name in names if name in made}


def unanswered(columns: Mapping[str, Column], adjusted: Collection[str]) -> list[Remark]:
    """The remarks on columns that their declarations leave open.

    An outcome is one where an effect is `adjusted` for it. What several visits tell of the unit is
    `unit_warning`'s to say.

    >>> from synthdp.spec.model import Integer
    >>> age = Integer(type="integer", lower=0, upper=9)
    >>> [r.kind for r in unanswered({"member_id": age, "age_group": age, "age": age}, ())]
    ['id', 'few']
    """
    few, found = ("categorical", "ordinal", "boolean"), list[Remark]()
    answers = {"id": few, "few": few, "code": (*few, "text-code"), "money": (*few, "text-code")}
    for name, remark in remarks(list(columns)).items():
        kind, column = remark.kind, columns[name]
        told = column.type in answers.get(kind, ()) or derived_of(column) is not None
        told |= kind == "money" and "bins" not in column.model_fields_set
        if not told and kind not in ("visit", "dates", "after"):
            found.append(remark)
    text = (
        "measured after the treatment? An effect that is adjusted for what the treatment changes is"
        " not its effect; adjust for what was before"
    )
    after = (name for name in columns if name in adjusted and is_outcome(name))
    return found + [Remark(name, "after", text) for name in after]


def is_outcome(name: str) -> bool:
    """Whether a name sounds like what is measured after a treatment.

    >>> [is_outcome(name) for name in ("pain_after", "PostScore", "outcome", "poster", "age")]
    [True, True, True, False, False]
    """
    return bool(_AFTER & _bare(_words(name)))


def _remarks(names: Sequence[str]) -> Iterator[Remark]:
    words = {name: _bare(_words(name)) for name in names}
    for name in names:
        if is_id(name):
            yield Remark(name, "id", "an id? It is the privacy unit, or dropped; never released")
        elif is_visit(name):
            yield Remark(
                name, "visit", "one of several visits of a person? Then privacy_unit is of kind id"
            )
        elif inputs := _inputs(name, names):
            told = " and ".join(f"`{one}`" for one in inputs)
            text = f"does it follow from {told}? Then `derived` computes it, right in every row,"
            yield Remark(name, "follows", f"{text} free")
        elif _CODES & words[name]:
            text = "codes of a list? categorical, or text-code, which keeps their first characters;"
            yield Remark(name, "code", f"{text} as numbers they would lose zeros in front")
        elif _MONEY & words[name]:
            text = (
                "money, mostly small and seldom huge? Edges in powers of ten, such as"
                " [0, 1, 10, 100, 1000], keep both; a bound far above what is usual costs much"
            )
            yield Remark(name, "money", text)
        elif _FEW & words[name]:
            text = "few values, such as six ages or stages? ordinal, with each of them"
            yield Remark(name, "few", text)
    yield from _dates(names, words)


def _dates(names: Sequence[str], words: dict[str, frozenset[str]]) -> Iterator[Remark]:
    dates = [n for n in names if (_DATES | _BIRTH) & words[n] or _words(n)[-1:] == ["at"]]
    for name in dates:
        if _BIRTH & words[name]:
            text = "a date of birth? An age in years tells enough, and less of anybody"
            yield Remark(name, "birth", text)
        elif len(dates) > 1:
            others = ", ".join(f"`{one}`" for one in dates if one != name)
            text = (
                f"is it always before or after {others}? A constraint says so, free; the time"
                " between is kept where it is a column and one date is `derived`"
            )
            yield Remark(name, "dates", text)


def _inputs(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that one seems to follow from, by its name; none where it does not."""
    words, others = _words(name), [other for other in names if other != name]
    if "bmi" in words:
        found = [next((o for o in others if {*s} & {*_words(o)}), None) for s in _SHAPES]
        return () if None in found else tuple(one for one in found if one is not None)
    by_words = {tuple(_words(other)): other for other in others}
    for i in range(1, len(words)):
        first, second = tuple(words[:i]), tuple(words[i:])
        stem = re.sub(r"\d+$", "", first[-1])
        alike = (*first[:-1], f"{stem}{second[0]}", *second[1:]) if second[0].isdigit() else ()
        if first in by_words and (second in by_words or alike in by_words):
            return by_words[first], by_words.get(second) or by_words[alike]
    rest = [word for word in words if word not in _COMPUTED]
    parts = [other for other in others if {*rest} & {*_words(other)}]
    return tuple(parts[:2]) if _COMPUTED & {*words} and rest and len(parts) > 1 else ()


def _less_personal(name: str) -> int:
    """0 for an id of persons, 1 for a plain id, 2 for one of something else, 3 for a row's."""
    words = {*_words(name)}
    if _PERSONS & words:
        return 0
    return 3 if _ROWS & words else 1 if words <= _IDS else 2


def _bare(words: Iterable[str]) -> frozenset[str]:
    """Words without the number that stands behind them."""
    return frozenset(re.sub(r"(?<=\D)\d+$", "", word) for word in words)


def _words(name: str) -> list[str]:
    """The words of a name, parted by signs or by capitals, in small letters."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.findall(r"[^\W_]+", parted.casefold())
