"""A commented draft spec of two linked tables, from their headers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synthdp.errors import DataError
from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.telling_names import likely_id, remarks
from synthdp.spec.codebook import Codebook
from synthdp.spec.init.draft import (
    BUDGET_TO_FILL,
    OF_ONE_VALUE,
    ROWS_TO_FILL,
    TYPES_OF,
    Header,
    columns_of,
    header_of,
    read_header,
    sketches,
)
from synthdp.spec.init.questions import (
    MISSING,
    ORDERS,
    Ask,
    answer,
    ask_about,
    ask_budget,
    ask_linked,
    ask_rows,
)
from synthdp.spec.model.linked import NOT_COVERED
from synthdp.spec.writing import Blank, slug_of, written


def draft_linked(
    tables: Mapping[str, Path | Mapping[str, Any]],
    *,
    ask: Ask | None,
    rows: int | None = None,
    paths: Mapping[str, Path] | None = None,
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
        name: read_header(own, decimal=decimal) if isinstance(own, Path) else header_of(own)
        for name, own in tables.items()
    }
    names = {name: header.names for name, header in headers.items()}
    dates = {
        name: [n for n, typed in header.types.items() if typed["type"] == "datetime"]
        for name, header in headers.items()
    }
    said = ask_linked(ask, names, dates) if ask else _to_fill(names, dates)
    stated: Mapping[str, Any] = ROWS_TO_FILL
    if ask:
        stated = ask_rows(ask, {"kind": "person"}, known=rows)
    elif rows is not None:
        stated = {"kind": "approximate", "value": rows}
    count = stated["value"] if isinstance(stated["value"], int) else None
    csv = [name for name, header in headers.items() if header.kind == "csv"]
    texts = codebook.missing_values if codebook else ()
    if ask and csv and not codebook:
        texts = answer(ask, MISSING)
    made = []
    for name in (said["persons"], said["visits"]):
        header, key = headers[name], said["key"][name]
        order = said["order"] if name == said["visits"] else None
        columns, dropped = columns_of(header, key, ask, codebook, table=f"{name} ", order=order)
        own = tables[name]
        path = (paths or {}).get(name, own if isinstance(own, Path) else None)
        about = {"name": name, "key": key, "source": header.source(path, dropped)}
        about |= {"missing_values": ["", *texts] if name in csv else None, "columns": columns}
        made.append(about | _said(header, columns, order, asked=ask is not None))
    delta = {} if count is None else {"delta": float(suggested_delta(count))}
    both = [table["name"] for table in made]
    return written(
        "linked",
        id=slug_of(Path("-".join(both))),
        said={"title": " and ".join(both), **(ask_about(ask) if ask else {})},
        tables=made,
        unit={"kind": "person", "meaning": said["meaning"]},
        order=said["order"],
        at_most=said["at_most"],
        rows=stated,
        sketches=sketches(),
        from_codebook=codebook is not None,
        budget=ask_budget(ask, int(stated["value"])) if ask else BUDGET_TO_FILL | delta,
    )


def _said(
    header: Header, columns: dict[str, dict[str, Any]], order: str | None, *, asked: bool
) -> dict[str, Any]:
    """What a draft says of a table beside what is declared; an unknown type of `order` is one of
    those that order.
    """
    if not asked and order in columns and "type" not in header.types.get(order, {}):
        columns[order] = {"type": Blank(" or ".join(ORDERS))}
    left = [n for n, entry in columns.items() if Blank in map(type, entry.values())]
    told = {n: r for n, r in remarks(header.names).items() if n in left and not asked}
    return {
        "notes": header.remarks,
        "types_of": TYPES_OF[header.kind] if header.types else None,
        "told": {n: r.text for n, r in told.items() if r.kind in OF_ONE_VALUE},
    }


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
