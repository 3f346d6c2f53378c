"""A commented draft spec from the header of a table, for `synthdp init`.

What the header does not say - types, bounds, categories, the privacy unit - is asked for, or left
as a `Blank` for the loader to refuse place by place. Nothing is ever taken from rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.checks.telling_names import likely_id, remarks
from synthdp.spec.codebook.described import Codebook, entry_of
from synthdp.spec.init.header import Header, read_header
from synthdp.spec.init.questions import (
    Ask,
    ask_about,
    ask_budget,
    ask_column,
    ask_missing,
    ask_rows,
    ask_unit,
)
from synthdp.spec.init.writing import Blank, dataset_lines, evaluation_lines, yaml_map, yaml_value
from synthdp.spec.model import COLUMN_TYPES

__all__ = ["Ask", "draft_spec"]

_OPENING = """\
# Draft of a synthdp spec. Everything in it is public: it describes the table without looking at it.
# Bounds, bins and categories come from a codebook, a questionnaire or common knowledge - never from the rows,
# since a bound that is read off the data gives away the row that it was read from.
# Check it with `synthdp validate`, see the spend with `synthdp plan`, then run `synthdp release`.
synthdp: 1
"""  # noqa: E501
GRAPH = """\

# predict needs no knowledge: it finds which columns depend on each other, and claims no causes. Columns are predicted
# in the order above; tiers say it better, e.g. tiers: [[age, sex], [education], [income]].
# Where causes and effects are known, and interventions are to be sampled, use mode given:
#   edges:
#     - age, sex -> education
#     - education -> income
# mode validate tests such arrows against the data, mode learn searches for them; both cost a share of the budget.
graph:
  mode: predict"""  # noqa: E501

_FROM_CODEBOOK = """\
  # Bounds, codes and labels are the code book's. See that they are those of the question: some programs write the
  # least and the greatest value of the rows there, which gives these rows away."""  # noqa: E501


def _sketches() -> str:
    """What each type is written with, for the head of `columns`.

    Types that are written alike share their lines.
    """
    sketches: dict[tuple[str, ...], list[str]] = {}
    for name, model in COLUMN_TYPES.items():
        sketches.setdefault(model.sketch, []).append(name)
    heads = {f"{', '.join(names)}:": lines for lines, names in sketches.items()}
    heads["all:"] = ("missing: true   where values may be missing; unit, description",)
    width = max(map(len, heads))
    return "\n".join(
        f"#   {head if i == 0 else '':{width}} {line}"
        for head, lines in heads.items()
        for i, line in enumerate(lines)
    )


_COLUMNS = f"""\
# One entry per column of the table. One that must not be released is named in dataset.source.drop; any other that is not listed is refused.
{_sketches()}
columns:"""  # noqa: E501


_FROM_PARQUET = """\
  # Types are the Parquet file's own, where it has any. Numbers that are codes are categorical."""

UNIT_TO_FILL = {
    "kind": Blank("row or id"),
    "meaning": Blank("what one row, or one id, is, e.g. one person"),
}
_ID_TO_FILL = {
    "max_rows": Blank("most rows of one id that are used; noise grows with it: 1, if that will do"),
    "meaning": Blank("what one id is, e.g. one patient"),
}
_ROWS_TO_FILL = {
    "kind": Blank("public or approximate"),
    "value": Blank("the number of rows, as a constant that may be published"),
}
*_OTHERS, _LAST = COLUMN_TYPES
_COLUMN_TO_FILL = {"type": Blank(f"{', '.join(_OTHERS)} or {_LAST}")}
_BUDGET_TO_FILL = {
    "epsilon": Blank("total for everything in the run, e.g. 1"),
    "delta": Blank("well below 1 / rows, e.g. 1e-6 for 50000 rows"),
}


def draft_spec(
    csv: Path,
    *,
    ask: Ask | None,
    rows: int | None = None,
    path: Path | None = None,
    codebook: Codebook | None = None,
    decimal: str | None = None,
) -> str:
    """A draft spec for the table in `csv`, as YAML text.

    Only the header of a CSV file is read, or the schema of Parquet.

    With `ask`, everything needed is asked for and the draft loads; without, it holds blanks
    (`!fill_in "..."`). `rows`: their number, as a constant that may be published, where it is known
    already; what follows from it is then written. `path`: of the file, as the spec shall name it.
    `codebook`: what is known of the columns. `decimal`: what stands before decimals in the file.

    Raises:
        DataError: the file has no usable header, or a question never got an answer that fits.
    """
    header = read_header(csv, decimal=decimal)
    unit = ask_unit(ask, header.names) if ask else _unit(header.names)
    stated = ask_rows(ask, unit, known=rows) if ask else _rows(rows)
    count = stated["value"] if isinstance(stated["value"], int) else None
    columns, dropped = _columns(header, unit.get("column"), ask, codebook)
    source = header.source(path or csv, dropped)
    if header.kind == "csv":
        source["missing_values"] = ["", *(codebook.missing_values if codebook else ())]
        if ask and not codebook and any(entry["missing"] for entry in columns.values()):
            source["missing_values"] = ask_missing(ask)
    about = ask_about(ask) if ask else {}
    budget = ask_budget(ask, int(stated["value"])) if ask else _budget(count)
    section = dataset_lines(path or csv, source, unit, stated, about=about, notes=header.remarks)
    lines = [_OPENING, *section, "", _COLUMNS, *([_FROM_CODEBOOK] if codebook else [])]
    lines += [_FROM_PARQUET] if header.types else []
    told = {} if ask else remarks(header.names)
    for name, entry in columns.items():
        lines += [f"  # {name}: {told[name].text}"] if name in told and _unfinished(entry) else []
        lines += [f"  {yaml_value(name)}:", *yaml_map(entry, 4)]
    lines += ["", "privacy:", *yaml_map(budget, 2), GRAPH, *evaluation_lines(count)]
    return "\n".join(lines) + "\n"


def _columns(
    header: Header, unit: str | None, ask: Ask | None, codebook: Codebook | None
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The entries of columns, and the names of those that are dropped.

    A code book's columns that identify somebody are dropped, whatever their type. The column
    `unit`, which has ids, is neither.
    """
    columns, dropped = dict[str, dict[str, Any]](), list[str]()
    described, told = codebook.of(header.names) if codebook else {}, remarks(header.names)
    for name in header.names:
        known = described.get(name)
        if name == unit:
            continue
        entry: dict[str, Any] | None = entry_of(known) if known else {}
        if known and known.identifies:
            entry = None
        elif ask:
            typed = header.types.get(name)
            entry = ask_column(ask, name, entry, typed=typed, remark=told.get(name))
        if entry is None:
            dropped.append(name)
        else:
            columns[name] = entry or _to_fill(header.types.get(name, {}))
    return columns, dropped


def _to_fill(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a column of which no more than its type is known, if that."""
    if not typed:
        return dict(_COLUMN_TO_FILL)
    fields = COLUMN_TYPES[typed["type"]].model_fields
    needed = [key for key, field in fields.items() if field.is_required() and key not in typed]
    return {**typed, **{key: Blank(fields[key].description or key) for key in needed}}


def _unfinished(entry: Mapping[str, Any]) -> bool:
    """Whether something of a column is left to be filled in."""
    return any(isinstance(value, Blank) for value in entry.values())


def _unit(names: Sequence[str]) -> dict[str, Any]:
    """The privacy unit: of ids, where a name sounds like one."""
    column = likely_id(names)
    return UNIT_TO_FILL if column is None else {"kind": "id", "column": column} | _ID_TO_FILL


def _rows(count: int | None) -> dict[str, Any]:
    return _ROWS_TO_FILL if count is None else {"kind": "approximate", "value": count}


def _budget(rows: int | None) -> dict[str, Any]:
    return (
        _BUDGET_TO_FILL
        if rows is None
        else _BUDGET_TO_FILL | {"delta": float(suggested_delta(rows))}
    )
