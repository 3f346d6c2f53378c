"""A commented draft spec from the header of a CSV file, for `synthdp init`.

What the header does not say - types, bounds, categories, the privacy unit - is asked for, or left
as a `Blank` for the loader to refuse place by place. Nothing is ever taken from rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.codebook.described import Codebook, entry_of
from synthdp.spec.init.header import read_header
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


UNIT_TO_FILL = {
    "kind": Blank("row or id"),
    "meaning": Blank("what one row, or one id, is, e.g. one person"),
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
) -> str:
    """A draft spec for the table in `csv`, as YAML text. Only the header line of the file is read.

    With `ask`, everything needed is asked for and the draft loads; without, it holds blanks
    (`!fill_in "..."`). `rows`: their number, as a constant that may be published, where it is known
    already; what follows from it is then written. `path`: of the file, as the spec shall name it.
    `codebook`: what is known of the columns.

    Raises:
        DataError: the file has no usable header, or a question never got an answer that fits.
    """
    delimiter, names = read_header(csv)
    unit = ask_unit(ask, names) if ask else UNIT_TO_FILL
    stated = ask_rows(ask, known=rows) if ask else _rows(rows)
    count = stated["value"] if isinstance(stated["value"], int) else None
    released = [name for name in names if name != unit.get("column")]
    columns, dropped = _columns(released, ask, codebook)
    source: dict[str, Any] = {"kind": "csv", "path": (path or csv).as_posix()}
    source |= {"delimiter": delimiter} | ({"drop": dropped} if dropped else {})
    absent: list[Any] = ["", *(codebook.missing_values if codebook else ())]
    if ask and not codebook and any(entry["missing"] for entry in columns.values()):
        absent = ask_missing(ask)
    about = ask_about(ask) if ask else {}
    budget = ask_budget(ask, int(stated["value"])) if ask else _budget(count)
    source["missing_values"] = absent
    lines = [_OPENING, *dataset_lines(path or csv, source, unit, stated, about=about)]
    lines += ["", _COLUMNS, *([_FROM_CODEBOOK] if codebook else [])]
    for name, entry in columns.items():
        lines += [f"  {yaml_value(name)}:", *yaml_map(entry, 4)]
    lines += ["", "privacy:", *yaml_map(budget, 2), GRAPH, *evaluation_lines(count)]
    return "\n".join(lines) + "\n"


def _columns(
    names: list[str], ask: Ask | None, codebook: Codebook | None
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The entries of columns, and the names of those that are dropped.

    A code book's columns that identify somebody are dropped, whatever their type.
    """
    columns, dropped = dict[str, dict[str, Any]](), list[str]()
    described = codebook.of(names) if codebook else {}
    for name in names:
        known = described.get(name)
        entry: dict[str, Any] | None = entry_of(known) if known else {}
        if known and known.identifies:
            entry = None
        elif ask:
            entry = ask_column(ask, name, entry)
        if entry is None:
            dropped.append(name)
        else:
            columns[name] = entry or _COLUMN_TO_FILL
    return columns, dropped


def _rows(count: int | None) -> dict[str, Any]:
    return _ROWS_TO_FILL if count is None else {"kind": "approximate", "value": count}


def _budget(rows: int | None) -> dict[str, Any]:
    return (
        _BUDGET_TO_FILL
        if rows is None
        else _BUDGET_TO_FILL | {"delta": float(suggested_delta(rows))}
    )
