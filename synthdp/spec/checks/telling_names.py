"""What the names of columns tell, before anybody looks at a row: ids, visits, dates, money, codes.

Names are public, and nothing is certain of them: each remark says what to think of. The one that
decides most is told by `init`, `validate` and `plan`: a table whose unit is a row, and which has
ids or numbers of visits, may have several rows of one person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


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
