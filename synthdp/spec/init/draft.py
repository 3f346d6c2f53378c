"""A commented draft spec from the header of a CSV file, for `synthdp init`.

What the header does not say - types, bounds, categories, the privacy unit - is asked for, or left
as `<fill in: ...>` for the loader to refuse place by place. Nothing is ever taken from rows.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

from synthdp.spec.checks.budget import suggested_delta
from synthdp.spec.init.header import read_header
from synthdp.spec.init.questions import (
    Ask,
    ask_budget,
    ask_column,
    ask_missing,
    ask_rows,
    ask_unit,
)
from synthdp.spec.load.yaml_tree import plain
from synthdp.spec.model import COLUMN_TYPES, MembershipAttack

__all__ = ["Ask", "draft_spec"]

_OPENING = """\
# Draft of a synthdp spec. Everything in it is public: it describes the table without looking at it.
# Bounds, bins and categories come from a codebook, a questionnaire or common knowledge - never from the rows,
# since a bound that is read off the data gives away the row that it was read from.
# Check it with `synthdp validate`, see the spend with `synthdp plan`, then run `synthdp release`.
synthdp: 1
"""  # noqa: E501
_UNIT = """\
  # row protects one row: right only when no person has several rows.
  # id protects everything of one id (column: ..., max_rows: ...); the id column is then not listed under columns.
  privacy_unit:"""  # noqa: E501
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

EVALUATION = """\

# How far columns and pairs of columns are from the real rows, counted with noise that a twentieth of the budget pays for.
# Targets are what the table will be used for: these columns are predicted last and best, and a score says how well.
evaluation:
  disclosure: private
  # targets: [income]

# The bundle is withheld where single columns are further off than this on average (0 is equal, 1 is disjoint); the budget
# is spent all the same. `synthdp plan` says what to expect.
gates:
  - {metric: tv1_dp, at_most: 0.15}"""  # noqa: E501


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
# One entry per column of the table. One that must not be released is taken out of the file: a column that is not listed is refused.
{_sketches()}
columns:"""  # noqa: E501


def _fill(what: str) -> str:
    return f"<fill in: {what}>"


UNIT_TO_FILL = {
    "kind": _fill("row or id"),
    "meaning": _fill("what one row, or one id, is, e.g. one person"),
}
_ROWS_TO_FILL = {
    "kind": _fill("public or approximate"),
    "value": _fill("the number of rows, as a constant that may be published"),
}
*_OTHERS, _LAST = COLUMN_TYPES
_COLUMN_TO_FILL = {"type": _fill(f"{', '.join(_OTHERS)} or {_LAST}")}
_BUDGET_TO_FILL = {
    "epsilon": _fill("total for everything in the run, e.g. 1"),
    "delta": _fill("well below 1 / rows, e.g. 1e-6 for 50000 rows"),
}


def draft_spec(
    csv: Path, *, ask: Ask | None, rows: int | None = None, path: Path | None = None
) -> str:
    """A draft spec for the table in `csv`, as YAML text. Only the header line of the file is read.

    With `ask`, everything needed is asked for and the draft loads; without, it holds `<fill in:
    ...>` places. `rows`: their number, as a constant that may be published, where it is known
    already; what follows from it is then written. `path`: of the file, as the spec shall name it.

    Raises:
        DataError: the file has no usable header, or a question never got an answer that fits.
    """
    delimiter, names = read_header(csv)
    unit = ask_unit(ask, names) if ask else UNIT_TO_FILL
    released = [name for name in names if name != unit.get("column")]
    stated = ask_rows(ask, known=rows) if ask else _rows(rows)
    count = stated["value"] if isinstance(stated["value"], int) else None
    columns = {name: ask_column(ask, name) if ask else _COLUMN_TO_FILL for name in released}
    absent = (
        ask_missing(ask) if ask and any(entry["missing"] for entry in columns.values()) else [""]
    )
    budget = ask_budget(ask, int(stated["value"])) if ask else _budget(count)
    lines = [_OPENING, *dataset_lines(path or csv, delimiter, absent, unit, stated), "", _COLUMNS]
    for name, entry in columns.items():
        lines += [f"  {yaml_value(name)}:", *yaml_map(entry, 4)]
    lines += ["", "privacy:", *yaml_map(budget, 2), GRAPH, *small_table(count), EVALUATION]
    return "\n".join(lines) + "\n"


def _rows(count: int | None) -> dict[str, Any]:
    return _ROWS_TO_FILL if count is None else {"kind": "approximate", "value": count}


def _budget(rows: int | None) -> dict[str, Any]:
    return (
        _BUDGET_TO_FILL
        if rows is None
        else _BUDGET_TO_FILL | {"delta": float(suggested_delta(rows))}
    )


def slug_of(csv: Path) -> str:
    """A dataset id from the name of a file."""
    plain_letters = "".join(
        c for c in unicodedata.normalize("NFKD", csv.stem) if not unicodedata.combining(c)
    )
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain_letters).strip("-._")[:64] or "table"


def dataset_lines(
    csv: Path,
    delimiter: str,
    absent: list[Any],
    unit: dict[str, Any],
    rows: dict[str, Any],
    *,
    name: str | None = None,
) -> list[str]:
    """The `dataset` section; `name` is its id, by default from the file's."""
    return [
        "dataset:",
        f"  id: {yaml_value(name or slug_of(csv))}  # key of the ledger: all releases of this"
        " table share it",
        f"  title: {yaml_value(csv.stem)}",
        "  # description: what the synthetic table is",
        "  # contact: whom its users may ask, with an address that is published",
        "  source:",
        *yaml_map({"kind": "csv", "path": csv.as_posix(), "delimiter": delimiter}, 4),
        (
            f"    missing_values: {yaml_value(absent)}  # all texts that stand for a missing"
            " value, such as NA or ?, but in quotes"
        ),
        _UNIT,
        *yaml_map(unit, 4),
        (
            "  rows:  # a declared constant, never counted; approximate if the exact number is not"
            " public"
        ),
        *yaml_map(rows, 4),
    ]


def small_table(rows: int | None) -> list[str]:
    """An attack whose default is too large for a small table."""
    if rows is None or rows >= MembershipAttack.model_fields["rows"].default:
        return []
    setting = f"{{rows: {rows}}}" if rows >= 20 else "{enabled: false}"
    return ["", "attacks:", f"  membership: {setting}  # a small table"]


def yaml_map(entries: dict[str, Any], indent: int) -> list[str]:
    """A line for each key."""
    return [f"{' ' * indent}{key}: {yaml_value(value)}" for key, value in entries.items()]


def yaml_value(value: object) -> str:
    """A value on one line; text goes in quotes unless it is plainly text."""
    if isinstance(value, list):
        return f"[{', '.join(yaml_value(v) for v in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_. -]*(?<! )", value) and plain(value) == value:
        return value
    return "".join(_escaped(c) for c in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    """A character inside double quotes as YAML reads it: one that cannot be printed by its code."""
    return character if character.isprintable() else f"\\U{ord(character):08X}"
