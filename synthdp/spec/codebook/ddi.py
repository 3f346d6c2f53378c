"""DDI-Codebook (1.x to 2.5) in XML, as archives of surveys publish it.

A file is a stranger's: it is parsed by defusedxml, which refuses entities and declarations of
types. Statistics that it may hold of the rows (`sumStat`, `catStat`) are not looked at. [Source:
DDI-Codebook 2.5, ddialliance.org/Specification/DDI-Codebook/2.5.]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from synthdp.errors import DataError, OutputError, install
from synthdp.spec.codebook.described import Codebook, Described, Kind, content

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def read(path: Path) -> Codebook:
    """The variables of a DDI-Codebook file.

    Raises:
        DataError: it is no XML, has entities, or describes no variable.
        OutputError: defusedxml is not installed.
    """
    root = _parsed(path)
    columns = tuple(_column(var) for var in _all(root, "var") if var.get("name"))
    if not columns:
        message = f"{path.name}: describes no variable"
        raise DataError(message, hint="DDI-Codebook has them as `var` elements in `dataDscr`")
    return Codebook(columns, _text(_all(root, "titl")))


def _parsed(path: Path) -> Element:
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import ParseError, fromstring
    except ImportError:
        raise OutputError("code books in XML need defusedxml", hint=install("codebook")) from None
    try:
        root: Element = fromstring(content(path), forbid_dtd=True)
        return root
    except ParseError as error:
        line, column = error.position
        message = f"{path.name}:{line}:{column + 1}: this is not XML"
        raise DataError(message, hint="a code book in XML is of DDI-Codebook") from None
    except (DefusedXmlException, ValueError):
        message = f"{path.name}: declares types or entities, which are not read"
        raise DataError(message, hint="take the DOCTYPE out of the file") from None


def _column(var: Element) -> Described:
    form = next(_children(var, "varFormat"), None)
    decimals = var.get("dcml") or (form.get("dcml") if form is not None else None)
    bounds = next((r for v in _children(var, "valrng") for r in _children(v, "range")), None)
    labels, missing = dict[str, str](), dict[str, None]()
    for category in _children(var, "catgry"):
        code = _text(_children(category, "catValu"))
        if code:
            labels[code] = _text(_children(category, "labl"))
            if category.get("missing", "").upper() in ("Y", "YES", "TRUE"):
                missing[code] = None
    for item in (i for r in _children(var, "invalrng") for i in r):
        ends = [item.get(key, "") for key in ("VALUE", "min", "max")]
        missing |= dict.fromkeys(_between(*ends, known=labels))
    continuous = var.get("intrvl") == "contin" or var.get("nature") in ("interval", "ratio")
    return Described(
        var.get("name", ""),
        description=_text(_children(var, "labl")) or _text(_all(var, "qstnLit")),
        unit=var.get("measUnit") or "",
        kind=_kind(form, decimals),
        lower=None if bounds is None else bounds.get("min"),
        upper=None if bounds is None else bounds.get("max"),
        decimals=int(decimals) if decimals and decimals.isdecimal() else None,
        labels={code: "" for code in missing} if continuous else labels,
        ordered=var.get("nature") == "ordinal",
        missing_codes=tuple(missing),
    )


def _kind(form: Element | None, decimals: str | None) -> Kind | None:
    if form is None:
        return None
    if form.get("category") in ("date", "time"):
        return "date" if form.get("category") == "date" else None
    if form.get("type") != "numeric":
        return "text"
    return "whole" if decimals in (None, "0") else "number"


def _between(value: str, low: str, high: str, *, known: dict[str, str]) -> Iterator[str]:
    """A missing value by itself, or all of a range: whole numbers, or the codes that are known."""
    if value:
        yield value
        return
    with suppress(ValueError):
        first, last = float(low), float(high)
        if first.is_integer() and 0 <= last - first <= 50:
            yield from map(str, range(int(first), int(last) + 1))


def _children(element: Element, name: str) -> Iterator[Element]:
    """Those of this name, in whatever namespace: versions differ in that alone."""
    return (child for child in element if _name(child) == name)


def _all(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element.iter() if _name(child) == name)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _text(elements: Iterator[Element]) -> str:
    first = next(elements, None)
    return "" if first is None else " ".join("".join(first.itertext()).split())
