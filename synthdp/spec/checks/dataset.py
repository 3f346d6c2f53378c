"""Checks of the dataset: its rows, its privacy unit and its source; and of the two addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from synthdp.spec.addresses import is_url
from synthdp.spec.checks.problem import CrossProblem, stated
from synthdp.spec.model import (
    ADDRESS,
    CONTROL,
    ChosenColumns,
    CsvSource,
    IdUnit,
    ParquetSource,
    ReleaseSpec,
    Source,
    rules,
)
from synthdp.spec.wording import nearest


def batch(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A batch of the fit has no more rows than the table."""
    rows = spec.dataset.rows.value
    if spec.synthesizer.batch > rows:
        message = f"got {spec.synthesizer.batch}, more than the declared {rows} rows"
        yield CrossProblem(
            ("synthesizer", "batch"),
            message,
            f"leave it out, or set it to a part of the rows, e.g. {rules.batch(rows)}",
        )


def sample(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A secret sample has room for a batch, and is accounted for under add_remove."""
    wanted, batch = spec.synthesizer.sample, spec.synthesizer.batch
    if wanted is None:
        return
    if wanted < batch:
        yield CrossProblem(
            ("synthesizer", "sample"),
            f"got {wanted}, less than the {batch} rows of an expected batch",
            f"leave it out, or ask for many batches, e.g. {100 * batch}",
        )
    if spec.privacy.adjacency == "replace_one":
        yield CrossProblem(
            ("synthesizer", "sample"),
            "no sound accounting for a secret sample under adjacency replace_one",
            "leave it out, or use adjacency add_remove",
        )


def attack_rows(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The membership attack asks for no more rows than the table has."""
    attack, rows = spec.attacks.membership, spec.dataset.rows.value
    if attack.enabled and attack.rows > rows:
        hint = "set attacks.membership.rows lower, or enabled: false"
        yield CrossProblem(
            ("attacks", "membership", "rows"),
            f"{stated(spec, 'attacks', 'membership', 'rows')}, more than the declared {rows} rows",
            hint,
        )


def unit(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A privacy unit of several rows needs the adjacency add_remove."""
    unit = spec.dataset.privacy_unit
    if isinstance(unit, IdUnit) and unit.max_rows > 1 and spec.privacy.adjacency == "replace_one":
        message = f"replace_one cannot be used where one unit has up to {unit.max_rows} rows"
        yield CrossProblem(("privacy", "adjacency"), message, "use add_remove")


def unit_column(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The id of a privacy unit is never a column of the table."""
    unit = spec.dataset.privacy_unit
    if isinstance(unit, IdUnit) and unit.column in spec.columns:
        message = (
            f"column {unit.column!r} is also listed under columns; an id is never modelled or"
            " released"
        )
        yield CrossProblem(
            ("dataset", "privacy_unit", "column"), message, f"delete {unit.column!r} from columns"
        )


def source(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The source is a local file, and its delimiter can separate fields."""
    path = getattr(spec.dataset.source, "path", None)
    where = ("dataset", "source")
    if path is not None and (not path or CONTROL.search(path)):
        yield CrossProblem(
            (*where, "path"),
            "a path cannot be empty or hold control characters",
            "give the file's path, relative to this spec's folder",
        )
    elif path is not None and ADDRESS.match(path) and not _read_from(spec.dataset.source):
        yield CrossProblem(
            (*where, "path"),
            "an address or a home folder is not read, only a local file",
            "copy the file here and give its path; Parquet is read from s3://, gs:// and https://,"
            " too, with passwords and keys in the environment",
        )
    delimiter = getattr(spec.dataset.source, "delimiter", ",")
    if delimiter in '"\r\n':
        yield CrossProblem(
            (*where, "delimiter"),
            f"{delimiter!r} cannot part the fields of a CSV file",
            'use ",", ";", "|" or "\\t"',
        )


def _read_from(source: Source) -> bool:
    """Whether the path is an address that is read: one that holds no password."""
    path = getattr(source, "path", "")
    return isinstance(source, ParquetSource) and is_url(path) and not re.search("[@?#]", path)


def chosen(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """What is dropped or renamed in the source is no other column of it, and no column is two."""
    source = spec.dataset.source
    if not isinstance(source, ChosenColumns):
        return
    where, unit = ("dataset", "source"), spec.dataset.privacy_unit
    known = {*spec.modelled, *([unit.column] if isinstance(unit, IdUnit) else [])}
    made = list(source.rename.values())
    for i, name in enumerate(source.drop):
        if name in source.rename:
            message, hint = f"{name!r} is renamed too", "keep one of the two"
        elif name in known and name not in made:
            message = f"column {name!r} is declared, and would not be read"
            hint = "take it out of drop, or delete it under columns"
        else:
            continue
        yield CrossProblem((*where, "drop", i), message, hint)
    for old, new in source.rename.items():
        if new not in known:
            hint = nearest(new, known) or "rename to a column that is declared, or drop it"
            yield CrossProblem((*where, "rename", old), f"unknown column {new!r}", hint)
        elif made.count(new) > 1:
            message = f"two columns of the source become {new!r}"
            yield CrossProblem((*where, "rename", old), message, "drop one of them")


def missing_texts(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A text stands for a category or for a missing value, never for both."""
    source = spec.dataset.source
    missing = source.missing_values if isinstance(source, CsvSource) else ()
    for i, text in enumerate(missing):
        if "\n" in text or "\r" in text:
            yield CrossProblem(
                ("dataset", "source", "missing_values", i),
                "a line break cannot stand for a missing value: a row of a CSV file is one line",
                "delete it",
            )
    for name, column in spec.columns.items():
        for where, text in column.texts():
            if text in missing:
                hint = (
                    "delete the category and set missing: true, or take the text out of"
                    " missing_values"
                )
                yield CrossProblem(
                    ("columns", name, *where),
                    f"category {text!r} also stands for a missing value"
                    " (dataset.source.missing_values)",
                    hint,
                )
            elif text == "missing" and column.missing:
                hint = (
                    "rename the category, or list 'missing' in dataset.source.missing_values and"
                    " delete it here"
                )
                yield CrossProblem(
                    ("columns", name, *where),
                    "category 'missing' cannot be told from the state of missing values",
                    hint,
                )


def levels_only(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A table that is read as levels keeps no values, and every row of it is a unit.

    Rows are read in batches, so that the rows of another unit may lie in many of them.
    """
    if not getattr(spec.dataset.source, "levels_only", False):
        return
    message = "levels_only keeps no values"
    if spec.evaluation.enabled:
        yield CrossProblem(
            ("evaluation", "enabled"),
            f"{message}, and judging reads them",
            "set evaluation.enabled: false, or leave out levels_only",
        )
    if spec.graph.mode == "learn" and spec.graph.algorithm == "rcit_pc":
        yield CrossProblem(
            ("graph", "algorithm"),
            f"{message}, and rcit_pc reads them",
            "use measured_pc, or leave out levels_only",
        )
    if isinstance(spec.dataset.privacy_unit, IdUnit):
        hint = "leave out levels_only, or let every row be a unit"
        yield CrossProblem(
            ("dataset", "privacy_unit"),
            "levels_only reads rows in batches, and the rows of a unit may lie in many",
            hint,
        )


def addresses(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The addresses of the ledger and of the tracking server are not empty."""
    for where, text in (
        (("privacy", "ledger"), spec.privacy.ledger),
        (("tracking", "uri"), spec.tracking.uri),
    ):
        if text is not None and (not text or CONTROL.search(text)):
            yield CrossProblem(
                where,
                "an address cannot be empty or hold control characters",
                "leave the key out for the default beside the spec",
            )
