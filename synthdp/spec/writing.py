"""How a draft spec is written: sections, and values as YAML on one line."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from synthdp.spec.load.yaml_tree import TO_FILL, plain

FEW_ROWS = 500
_UNIT = """\
  # row protects one row: right only when no person has several rows.
  # id protects everything of one id (column: ..., max_rows: ...); the id column is then not listed under columns.
  privacy_unit:"""  # noqa: E501
_EVALUATION = """\

# How far columns and pairs of columns are from the real rows, counted with noise that a twentieth of the budget pays for.
# Targets are what the table will be used for: these columns are predicted last and best, and a score says how well.
evaluation:
  disclosure: private
  # targets: [income]

# The bundle is withheld where single columns are further off than this on average (0 is equal, 1 is disjoint); the budget
# is spent all the same. `synthdp plan` says what to expect.
gates:
  - {metric: tv1_dp, at_most: 0.15}"""  # noqa: E501
_FEW = f"""\

# Fewer than {FEW_ROWS} rows. Of so few, a fifth held out would judge next to nothing (an AUC within .11 at best), and is
# missed in the fit; and the models of the membership attack would all learn from nearly the same rows. Both are off.
# Where classifiers shall predict columns all the same: evaluation: {{holdout: 0.2, targets: [income]}}
evaluation: {{holdout: 0}}
attacks:
  membership: {{enabled: false}}"""  # noqa: E501
_ABOUT = {
    "description": "what the synthetic table is, in a sentence or two; the bundle shows it",
    "licence": "of the synthetic table, e.g. CC-BY-4.0",
    "contact": "whom its users may ask, with an address that is published",
}


class Blank(str):
    """A place that is left to be filled in, and what belongs there.

    It is written with the tag `TO_FILL`, which no text of a table or a code book has, whatever its
    characters; the loader of specs refuses it by its tag.
    """


def slug_of(csv: Path) -> str:
    """A dataset id from the name of a file."""
    letters = unicodedata.normalize("NFKD", csv.stem)
    plain_letters = "".join(c for c in letters if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain_letters).strip("-._")[:64] or "table"


def dataset_lines(
    csv: Path,
    source: Mapping[str, Any],
    unit: Mapping[str, Any],
    rows: Mapping[str, Any],
    *,
    name: str | None = None,
    about: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> list[str]:
    """The `dataset` section of a file.

    `name` is its id, by default from the file's. `about` has its title, description and licence.
    `notes` are on the source.
    """
    said = {"title": csv.stem, **(about or {})}
    open_ends = [f"  # {key}: {hint}" for key, hint in _ABOUT.items() if key not in said]
    missing = []
    if "missing_values" in source:  # Parquet has a mark for what is missing, and no texts
        note = "all texts that stand for a missing value, such as NA or ?, but in quotes"
        missing = [f"    missing_values: {yaml_value(source['missing_values'])}  # {note}"]
    return [
        "dataset:",
        f"  id: {yaml_value(name or slug_of(csv))}  # key of the ledger: all releases of this"
        " table share it",
        *yaml_map(said, 2),
        *open_ends,
        "  source:",
        *(f"    # {note}" for note in notes),
        *yaml_map({k: v for k, v in source.items() if k != "missing_values"}, 4),
        *missing,
        _UNIT,
        *yaml_map(unit, 4),
        "  rows:  # a declared constant, never counted; approximate if the exact number is not"
        f" public{'; of the rows that max_rows leaves' if unit['kind'] == 'id' else ''}",
        *yaml_map(rows, 4),
    ]


def evaluation_lines(rows: int | None) -> list[str]:
    """The `evaluation` and `gates` sections; for a table of few rows no holdout and no attack.

    Of fewer than `FEW_ROWS` rows a fifth is at most a hundred. On 50 rows of each of two classes an
    AUC of .5 has the 95% interval .5 +- .11 [Hanley and McNeil 1982: variance (n + 1) / (3 n^2) for
    n / 2 rows of each], so that test rows judge next to nothing, and noise weighs a quarter more on
    the rows that are left. The shadow models of the membership attack draw 300 rows by default:
    most of such a table, so that they are hardly independent, and their interval is too narrow.
    """
    return [_FEW if rows is not None and rows < FEW_ROWS else _EVALUATION]


def yaml_map(entries: Mapping[str, Any], indent: int) -> list[str]:
    """A line for each key."""
    return [f"{' ' * indent}{key}: {yaml_value(value)}" for key, value in entries.items()]


def yaml_value(value: object) -> str:
    """A value on one line; text goes in quotes unless it is plainly text."""
    if isinstance(value, list):
        return f"[{', '.join(yaml_value(v) for v in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{yaml_value(key)}: {yaml_value(entry)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if isinstance(value, Blank):
        return f"{TO_FILL} {json.dumps(value)}"
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_. -]*(?<! )", value) and plain(value) == value:
        return value
    # YAML reads what cannot be printed by its code, inside double quotes.
    letters = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in letters)
