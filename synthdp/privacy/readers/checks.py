"""What a table must be for the spec that declares it; messages name columns, never values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import EncodedColumn
from synthdp.data.kinds import COLUMN_KINDS
from synthdp.errors import DataError
from synthdp.spec.load.wording import look_alike
from synthdp.spec.model import CsvSource, Dataset, IdUnit, PrivacyUnit, Source


def check_misfits(
    encoded: Mapping[str, EncodedColumn], domain: Domain, dataset: Dataset
) -> dict[str, dict[str, int]]:
    """Counts of misfits by column and kind, for the steward alone.

    Raises:
        DataError: there are some, and `dataset.out_of_domain` refuses them.
    """
    misfits = {
        name: {
            "wrong type": e.wrong_type,
            "outside the domain": e.outside,
            "unexpected missing": e.unexpected_missing,
        }
        for name, e in encoded.items()
    }
    bad = [name for name, e in encoded.items() if e.misfits]
    if bad and dataset.out_of_domain == "refuse":
        raise DataError(
            f"values outside the declared domain in column{'s' if len(bad) > 1 else ''}"
            f" {', '.join(map(repr, bad))}",
            hint=(
                f"{_written_as(dataset.source, [domain[name] for name in bad])}; `synthdp inspect"
                " SPEC` counts them for your eyes; correct the domain or the data, or accept"
                " clamping with `dataset.out_of_domain: clamp`"
            ),
        )
    return misfits


def _written_as(source: Source, columns: Sequence[ColumnDomain]) -> str:
    """What values of these columns must look like: the same whatever was found in them, so that it
    tells nothing of the rows.
    """
    text_alone = isinstance(source, CsvSource)
    types = {c.type for c in columns}
    kinds = [kind for kind in COLUMN_KINDS.values() if kind.type in types]
    told = list(dict.fromkeys(k.read_as + (k.read_as_csv if text_alone else "") for k in kinds))
    if isinstance(source, CsvSource):
        if source.decimal == "," and types & {"integer", "number"}:
            told.append("decimals stand behind a comma, as in 1200,5 (dataset.source.decimal)")
        missing = (
            ", ".join(json.dumps(text, ensure_ascii=False) for text in source.missing_values)
            or "nothing"
        )
        told.append(f"{missing} is read as missing (dataset.source.missing_values)")
    return ", ".join(told)


def check_without_ids(rows: int, unit: PrivacyUnit) -> None:
    """Raise `DataError` where some rows have no id, and ids are the unit."""
    if rows and isinstance(unit, IdUnit):
        raise DataError(
            f"column {unit.column!r} (the privacy unit) has missing ids",
            hint=(
                "every row must belong to a unit; ids are compared as text without white space"
                " around it, whole numbers as numbers (01 is 1.0)"
            ),
        )


def check_declared_rows(rows: int, dataset: Dataset) -> None:
    """Raise `DataError` where the number of rows is declared as public, and is another one."""
    if (
        dataset.rows.kind == "public"
        and rows != dataset.rows.value
        and id_column_of(dataset) is None
    ):
        raise DataError(
            f"dataset.rows declares {dataset.rows.value} rows as public knowledge, and the table"
            " has another number",
            hint="correct dataset.rows, or declare `kind: approximate`",
        )


def most_rows(dataset: Dataset) -> int:
    """The most rows that are read, whatever delta is: a constant of the spec."""
    return 16 * dataset.rows.value + 1_000_000


def id_column_of(dataset: Dataset) -> str | None:
    """The column that holds the unit's id, if the unit has one."""
    return dataset.privacy_unit.column if isinstance(dataset.privacy_unit, IdUnit) else None


def check_columns(
    names: Sequence[str],
    domain: Domain,
    id_column: str | None,
    *,
    places: Sequence[int] | None = None,
    apart: bool = False,
) -> None:
    """Every declared column must be there; others are refused, so that none is dropped unseen.

    `places` are those of the names in the source, from 0, where it has others too. `apart` says
    that the names lie apart from the rows, as in Parquet or a database: then they are no values,
    and a message may name them.

    >>> from synthdp.spec.model import Boolean
    >>> domain = Domain.from_spec({"ill": Boolean(type="boolean")})
    >>> check_columns(["ill", "name"], domain, None, apart=True)
    Traceback (most recent call last):
    synthdp.errors.DataError: the table does not fit the spec: undeclared column 'name'
      hint: declare every column of the source, or drop it in dataset.source.drop
    """
    wanted = set(domain.names) | ({id_column} if id_column else set())
    if len(set(names)) < len(names):
        raise DataError(
            "two columns of the table have the same name",
            hint="give every column a name of its own",
        )
    found, problems, hints = set(names), [], []
    numbered = dict(zip(names, places or range(len(names)), strict=True))
    alike = told_alike(wanted - found, {n: i for n, i in numbered.items() if n not in wanted})
    if not wanted & found and not alike:
        raise DataError(
            "the table has none of the declared columns",
            hint="the first line of a CSV names its columns; check it, and the delimiter",
        )
    if wanted - found:
        problems.append(
            f"missing column{'s' if len(wanted - found) > 1 else ''}"
            f" {few(map(repr, sorted(wanted - found)))}"
        )
        hints.append(
            "names must be the source's own, letter by letter; take what it lacks out of the spec"
        )
    strange = {
        i + 1: name
        for name, i in numbered.items()
        if name not in wanted and name not in domain.derived
    }
    if strange:
        # Else by position: what stands for a name may be a value, where the header is missing or
        # runs into the first row.
        which = few(map(repr, strange.values())) if apart else f"in place {few(map(str, strange))}"
        problems.append(f"undeclared column{'s' if len(strange) > 1 else ''} {which}")
        hints.append(
            "declare every column of the source, or drop it in dataset.source.drop"
            + ("" if apart else "; the first line of the file, or `df.columns`, has their names")
        )
    if problems:
        raise DataError(
            f"the table does not fit the spec: {'; '.join([*problems, *alike])}",
            hint="; ".join(hints),
        )


def told_alike(declared: Iterable[str], places: Mapping[str, int]) -> list[str]:
    """Names of the table, by place from 0, that differ unseen from one that is declared.

    >>> told_alike(["age"], {"sex": 0, "Age ": 1})
    ["the name in place 2 is 'age' but for spaces, case and signs that are hardly seen"]
    """
    return [
        f"the name in place {place + 1} is {name!r} but for {how}"
        for name in sorted(declared)
        for found, place in places.items()
        if (how := look_alike(found, name))
    ][:20]


def few(texts: Iterable[str]) -> str:
    """The first twenty, and how many more there are."""
    listed = list(texts)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def check_file(rows: int, dataset: Dataset, delta: float) -> None:
    """Raise `DataError` unless a file of so many rows may be read."""
    check_some(rows)
    check_size(rows, dataset, delta)


def check_some(rows: int) -> None:
    """Raise `DataError` for an empty table."""
    if rows == 0:
        raise DataError(
            "the table has no rows",
            hint="see that dataset.source names the right table, and that its export was finished",
        )


def check_size(rows: int, dataset: Dataset, delta: float) -> None:
    """A few bytes of a file can unpack to more rows than any memory holds; and delta must be below
    1 / rows, of the true rows too.
    """
    if rows > most_rows(dataset):
        raise DataError(
            "the table has far more rows than dataset.rows declares",
            hint="correct dataset.rows, or the source",
        )
    if rows * delta >= 1:
        raise DataError(
            f"the table has 1 / delta = {1 / delta:,.0f} rows or more, and a delta this large"
            " allows one whole row to be published",
            hint=(
                "correct dataset.rows or the source, or lower privacy.delta, better to a tenth of 1"
                " / rows or less"
            ),
        )
