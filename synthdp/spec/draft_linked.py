"""A commented draft spec of two linked tables, from their headers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from synthdp.errors import DataError
from synthdp.spec import draft, questions
from synthdp.spec.checks.columns import likely_id
from synthdp.spec.codebook import Codebook
from synthdp.spec.model.linked import NOT_COVERED
from synthdp.spec.questions import Ask
from synthdp.spec.writing import Blank, slug_of, written


def draft_linked(
    tables: Mapping[str, Path | Mapping[str, Any]],
    *,
    ask: Ask | None,
    rows: int | None = None,
    paths: Mapping[str, Path] = MappingProxyType({}),
    codebook: Codebook | None = None,
    decimal: str | None = None,
) -> str:
    """A draft spec for two tables by name, persons first, as `draft.draft_spec` of one.

    `rows` is the number of persons. `paths` are those of files, as the spec shall name them.

    Raises:
        DataError: these are not two tables, one has no usable header, or a question never got an
            answer that fits.
    """
    if len(tables) != 2:
        hint = "give two files: that with a row for each person first"
        raise DataError(f"got {len(tables)} tables; {NOT_COVERED}", hint=hint)
    headers = {
        name: draft.read_header(own, decimal=decimal)
        if isinstance(own, Path)
        else draft.header_of(own)
        for name, own in tables.items()
    }
    names = {name: header.names for name, header in headers.items()}
    dates = {
        name: [n for n, typed in header.types.items() if typed["type"] == "datetime"]
        for name, header in headers.items()
    }
    said = questions.ask_linked(ask, names, dates) if ask else _to_fill(names, dates)
    unit = {"kind": "person", "meaning": said["meaning"]}
    stated = draft.rows_of(ask, unit, rows)
    csv = [name for name, header in headers.items() if header.kind == "csv"]
    texts = codebook.missing_values if codebook else ()
    if ask and csv and not codebook:
        texts = questions.answer(ask, questions.MISSING)
    made = []
    for name in (said["persons"], said["visits"]):
        header, key = headers[name], said["key"][name]
        order = said["order"] if name == said["visits"] else ""
        columns, dropped = draft.columns_of(
            header, key, ask, codebook, table=f"{name} ", order=order
        )
        if not ask and columns.get(order, {}).keys() == {"type"}:
            columns[order] = {"type": Blank(" or ".join(questions.ORDERS))}
        about = {"name": name, "key": key, "source": header.source(paths.get(name), dropped)}
        about |= {"missing_values": ["", *texts] if name in csv else None, "columns": columns}
        about |= {"told": {} if ask else header.told(columns, draft.OF_ONE_VALUE)}
        made.append(about | {"notes": header.remarks, "types_of": header.types_of})
    both = [table["name"] for table in made]
    return written(
        "linked",
        id=slug_of(Path("-".join(both))),
        said={"title": " and ".join(both), **(questions.ask_about(ask) if ask else {})},
        tables=made,
        unit=unit,
        order=said["order"],
        at_most=said["at_most"],
        rows=stated,
        sketches=draft.sketches(),
        from_codebook=codebook is not None,
        budget=draft.budget_of(ask, stated),
    )


def _to_fill(
    names: Mapping[str, tuple[str, ...]], dates: Mapping[str, list[str]]
) -> dict[str, Any]:
    """What `ask_linked` asks, as far as names and types tell it."""
    (persons, own), (visits, others) = names.items()
    blank = Blank("the column with the person's id; it is never released")
    same = likely_id(name for name in own if name in others)
    keys = {table: same or likely_id(found) or blank for table, found in names.items()}
    timed = [name for name in dates[visits] if name != keys[visits]]
    many = "most rows of one person that are kept, the first ones; noise grows with it, e.g. 12"
    return {
        "meaning": Blank("what one person with all rows is, e.g. one patient with all stays"),
        "persons": persons,
        "visits": visits,
        "key": keys,
        "order": timed[0]
        if len(timed) == 1
        else Blank("the column that puts a person's rows in order: a date, or a whole number"),
        "at_most": Blank(many),
    }


def table_names(files: list[Path]) -> dict[str, Path]:
    """Names for tables in files, that arrows can write without quotes: those of the files, where
    they differ.
    """
    names = [re.sub(r"[^A-Za-z0-9_]+", "_", slug_of(file)).strip("_") or "table" for file in files]
    if len({name.casefold() for name in names}) < len(names):
        names = ["persons", "visits", *(f"table{at}" for at in range(3, len(files) + 1))]
    return dict(zip(names, files, strict=True))
