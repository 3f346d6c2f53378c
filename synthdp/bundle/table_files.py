"""The synthetic table as CSV and as Parquet, and its descriptions: a Frictionless Data Package
(version 2), and Croissant.

Types, bounds and categories come from the spec alone.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pandas as pd
import yaml

from synthdp.bundle.certificate import Certificate
from synthdp.bundle.certificate_text import about_column, template_text, title_of
from synthdp.data.kinds import column_kind
from synthdp.errors import OutputError, VerifyError, disk_errors
from synthdp.files import draft_of
from synthdp.spec.load.wording import up
from synthdp.spec.model import Column, Dataset, ReleaseSpec

PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
SCHEMA_PROFILE = "https://datapackage.org/profiles/2.0/tableschema.json"
CSV_NAME = "synthetic.csv"


def check_header(path: Path, names: Sequence[str]) -> None:
    """Check that an untrusted CSV file has the header `names`, and a first row that is no longer.

    No more is read than such a line can take: a million columns cost memory.

    Raises:
        VerifyError: it does not.
    """
    with path.open("rb") as file:
        line = file.readline(sum(2 * len(name.encode()) + 4 for name in names))
    header = line.decode("utf-8", errors="replace")
    if tuple(next(csv.reader([header]), ())) != tuple(names):
        raise VerifyError(f"{path.name}: its header is not the spec's columns in order")
    # A reader of whole tables makes a column of each field: 100,000 of them take it five seconds.
    with path.open("rb") as file:
        file.readline()
        start = file.read(1 << 16).decode("utf-8", errors="replace")
    if len(next(csv.reader(io.StringIO(start, newline="")), ())) > len(names):
        raise VerifyError(f"{path.name}: a row has more fields than the header")


def write_csv(frame: pd.DataFrame, columns: Mapping[str, Column], path: Path) -> None:
    """Write `frame` in the order of `columns`: UTF-8, LF, header, no index.

    Missing values are empty fields.
    """
    step = group_rows(columns)
    blocks = (frame.iloc[i : i + step] for i in range(0, len(frame), step))
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv_blocks(blocks, columns, file)


def write_csv_blocks(
    blocks: Iterable[pd.DataFrame], columns: Mapping[str, Column], file: IO[str]
) -> None:
    """The same into an open file, block by block, with instants as text."""
    head = ",".join(map(_csv_field, columns)) + "\n"
    for block in blocks:  # nothing is written before there are rows
        written = {n: column_kind(c).written(c, block[n]) for n, c in columns.items()}
        file.write(head + csv_lines(pd.DataFrame(written)))
        head = ""


def csv_lines(frame: pd.DataFrame) -> str:
    """The rows of `frame` as lines of CSV, as pandas writes them in two to four times the time.

    >>> csv_lines(pd.DataFrame({"x": [1.0, None], "y": ["a, b", "c"]}))
    '1.0,"a, b"\\n,c\\n'
    """
    import pyarrow as pa
    from pyarrow import compute

    if frame.empty:
        return ""
    texts = []
    for column in pa.Table.from_pandas(frame, preserve_index=False).columns:
        # Each value that occurs is made a field once.
        seen = column.dictionary_encode().unify_dictionaries().combine_chunks()
        fields = pa.array(map(_csv_field, seen.dictionary.to_pylist()), pa.string())
        texts.append(pa.DictionaryArray.from_arrays(seen.indices, fields).cast(pa.string()))
    empty = "" if len(texts) > 1 else '""'  # an empty line is no row
    nulls = {"null_handling": "replace", "null_replacement": empty}
    lines = compute.binary_join_element_wise(*texts, ",", **nulls)
    lines = compute.binary_join_element_wise(lines, "", "\n")
    return str(compute.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0])


def _csv_field(value: Any) -> str:
    """A value as a field, in quotes where it needs them."""
    text = value if isinstance(value, str) else repr(value)
    quoted = any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if quoted else text


def descriptor(spec: ReleaseSpec, *, run: str, csv: WrittenFile) -> dict[str, Any]:
    """The content of `datapackage.json`."""
    return package_head(spec, run=run) | {"resources": [resource("synthetic", spec.columns, csv)]}


def package_head(spec: ReleaseSpec, *, run: str) -> dict[str, Any]:
    """The content of `datapackage.json` but for its resources."""
    dataset = spec.dataset
    package: dict[str, Any] = {
        "$schema": PROFILE,
        "name": re.sub(r"[^a-z0-9._-]+", "-", f"{dataset.id}-synthetic".lower()),
        "id": run,
        "title": title_of(dataset),
        "description": _described(dataset, _NOTE),
    }
    if dataset.licence:
        package["licenses"] = [_licence(dataset.licence)]
    if dataset.citation:
        package["sources"] = [{"title": dataset.citation}]
    if dataset.contact:
        mail = re.search(r"[^\s<>(),;]+@[^\s<>(),;]+\.[^\s<>(),;]+", dataset.contact)
        named = {"title": dataset.contact} | ({"email": mail.group()} if mail else {})
        package["contributors"] = [{**named, "roles": ["contact"]}]
    return package


def resource(name: str, columns: Mapping[str, Column], csv: WrittenFile) -> dict[str, Any]:
    """A table as a resource of `datapackage.json`."""
    all_missing = all(column.missing for column in columns.values())
    return {
        "name": name,
        "type": "table",
        "path": csv.name,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": csv.bytes,
        "hash": f"sha256:{csv.sha256}",
        # A row may miss all its columns, which Frictionless calls blank and invalid.
        **({"dialect": {"skipBlankRows": True}} if all_missing else {}),
        "schema": {
            "$schema": SCHEMA_PROFILE,
            "fields": [_field(n, c) for n, c in columns.items()],
            "missingValues": [""],
        },
    }


def _described(dataset: Dataset, note: str) -> str:
    return f"{dataset.description.strip()}\n\n{note}" if dataset.description else note


_NOTE = "Synthetic rows under differential privacy; privacy/certificate.md states the guarantee."


def _licence(text: str) -> dict[str, str]:
    if re.match(r"https?://\S+$", text):
        return {"path": text}
    if re.fullmatch(r"[-a-zA-Z0-9._]+", text):
        return {"name": text}
    return {"name": re.sub(r"[^-a-zA-Z0-9._]+", "-", text).strip("-") or "other", "title": text}


def _field(name: str, column: Column) -> dict[str, Any]:
    field = {"name": name, **column_kind(column).frictionless(column)}
    if about := about_column(column):
        field["description"] = about
    if column.unit:
        field["unit"] = column.unit
    constraints: dict[str, Any] = field.setdefault("constraints", {})
    constraints["required"] = not column.missing
    return field


# --- parquet ---
#
# The synthetic table as Parquet: the rows of the CSV, with the types that the spec declares.
# Categories are dictionaries in the spec's order (ordered for ordinals), booleans are booleans,
# days are dates, and what is missing is null. It is made from the CSV itself, so that the two
# cannot differ; `verify` makes it again and compares.


PARQUET_NAME = "synthetic.parquet"
MAX_CELLS, MIN_ROWS, MAX_ROWS = 4_000_000, 1_000, 100_000  # of a row group


def write_parquet(csv: Path, columns: Mapping[str, Column], path: Path) -> None:
    """Write the bundle's CSV as Parquet, group of rows by group of rows."""
    import pyarrow.parquet as pq

    schema = arrow_schema(columns)
    # Bytes beyond which categories would be written as plain text, and lose their order.
    most = 1 << 30
    with pq.ParquetWriter(
        path, schema, compression="zstd", dictionary_pagesize_limit=most
    ) as writer:
        for group in row_groups(csv, columns):
            writer.write_table(group, row_group_size=group_rows(columns))


def group_rows(columns: Mapping[str, Column]) -> int:
    """Rows of every row group but the last."""
    return min(MAX_ROWS, max(MIN_ROWS, MAX_CELLS // len(columns)))


def arrow_schema(columns: Mapping[str, Column]) -> Any:
    """The `pyarrow.Schema` of a table: types, and descriptions and units as field metadata."""
    import pyarrow as pa

    def field(name: str, column: Column) -> Any:
        said = {"description": column.description, "unit": column.unit}
        return pa.field(
            name,
            column_kind(column).arrow_type(column),
            nullable=column.missing,
            metadata={k: v for k, v in said.items() if v} or None,
        )

    return pa.schema([field(name, column) for name, column in columns.items()])


def row_groups(csv: Path, columns: Mapping[str, Column]) -> Iterator[Any]:
    """The rows of a bundle's CSV as `pyarrow.Table`s of `group_rows` rows, the last one shorter.

    Raises:
        VerifyError: the header is not the columns'.
        ValueError: a value is not of its column, or a row has other fields than the header
            (pyarrow's errors are of this kind).
    """
    import pyarrow as pa
    from pyarrow import csv as reader

    size, schema, held = group_rows(columns), arrow_schema(columns), []
    read = reader.ReadOptions(block_size=16 << 20)  # no line is longer
    text = reader.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    check_header(csv, list(columns))
    with reader.open_csv(csv, read_options=read, convert_options=text) as batches:
        for batch in batches:
            arrays = [
                column_kind(column).arrow_array(column, batch.column(name))
                for name, column in columns.items()
            ]
            held.append(pa.Table.from_arrays(arrays, schema=schema))
            while sum(map(len, held)) >= size:
                whole = pa.concat_tables(held)
                yield whole.slice(0, size)
                held = [whole.slice(size)]
    if sum(map(len, held)):
        yield pa.concat_tables(held)


def typed_frame(csv: Path, columns: Mapping[str, Column]) -> Any:
    """A bundle's CSV as a pandas DataFrame of the columns' own types; raises as `row_groups`.

    Categories are categorical (ordered for ordinals). Whole numbers and booleans of columns that
    may be missing are `Int64` and `boolean`; instants are `datetime64`.
    """
    import pyarrow as pa

    table = pa.concat_tables([arrow_schema(columns).empty_table(), *row_groups(csv, columns)])
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    typed = {
        name: table.column(name).to_pandas(
            date_as_object=False, types_mapper=nullable.get if column.missing else None
        )
        for name, column in columns.items()
    }
    return pd.DataFrame(typed)


# --- croissant ---
#
# The synthetic table as a Croissant dataset (MLCommons, version 1.0). Loaders of machine learning
# and dataset search engines read it. It is one small JSON-LD document, a function of spec, run and
# files; the tests check it with `mlcroissant`. Records come from the Parquet file, which has the
# types of the columns.


CROISSANT = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
RECORDS = "rows"


@dataclass(frozen=True)
class WrittenFile:
    """A file of the bundle as Croissant describes it."""

    name: str
    bytes: int
    sha256: str


def croissant(
    spec: ReleaseSpec, certificate: Certificate, *, day: str, csv: WrittenFile, parquet: WrittenFile
) -> dict[str, Any]:
    """The content of `croissant.json`; `day` is that of the release, as an ISO date."""
    content = croissant_head(spec, certificate, day=day)
    content["distribution"] = [
        croissant_file(csv, "text/csv", "the synthetic table; an empty field is a missing value"),
        croissant_file(parquet, "application/x-parquet", "the same rows with their types"),
    ]
    content["recordSet"] = [
        record_set(RECORDS, spec.columns, parquet.name),
        *label_sets(spec.columns),
    ]
    return content


def label_sets(columns: Mapping[str, Column], prefix: str = "") -> Iterator[dict[str, Any]]:
    """What codes of columns stand for, a record set for each that has some."""
    return (_labels(f"{prefix}{n}", column) for n, column in columns.items() if _named(column))


def croissant_head(spec: ReleaseSpec, certificate: Certificate, *, day: str) -> dict[str, Any]:
    """The content of `croissant.json` but for its files and records."""
    dataset, fixed = spec.dataset, yaml.safe_load(template_text("croissant.yaml.j2"))
    content: dict[str, Any] = {
        "@context": fixed["@context"],
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": f"{dataset.id}-synthetic",
        "alternateName": title_of(dataset),
        "description": _described(dataset, _note(certificate)),
        "identifier": certificate.run,
        "version": "1.0.0",
        "datePublished": day,
        "citeAs": citation(spec, certificate, day=day),
        **{name: text or _note(certificate) for name, text in fixed["rai"].items()},
    }
    if dataset.licence:
        content["license"] = dataset.licence
    if spec.publication:
        content["creator"] = [
            {"@type": "sc:Organization", "name": c.name} for c in spec.publication.curators
        ]
    if dataset.contact:
        content["maintainer"] = {"@type": "sc:Organization", "name": dataset.contact}
    return content


def record_set(name: str, columns: Mapping[str, Column], parquet: str) -> dict[str, Any]:
    """A table as a record set of `croissant.json`."""
    fields = [_croissant_field(n, column, name, parquet) for n, column in columns.items()]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": "one record for each synthetic row",
        "field": fields,
    }


def citation(spec: ReleaseSpec, certificate: Certificate, *, day: str) -> str:
    """How to cite the synthetic table, in one line.

    It ends with the citation of the original where the spec states it.
    """
    title, year = spec.dataset.title or spec.dataset.id, f"({day[:4]})"
    who = ", ".join(c.name for c in spec.publication.curators) if spec.publication else None
    c, head = certificate, f"{who} {year}. {title}" if who else f"{title} {year}"
    privacy = f"differentially private, epsilon {up(c.epsilon)} at delta {c.delta:g}"
    text = f"{head} [synthetic data, {privacy}; run {c.run}, {c.program}]."
    if spec.dataset.citation:
        text = f"{text} Made from: {spec.dataset.citation}"
    return " ".join(text.split())


def record_id(column: str, records: str = RECORDS) -> str:
    """Key of a column in the records of a Croissant loader."""
    return f"{records}/{quote(column, safe='')}"


def _note(certificate: Certificate) -> str:
    return (
        f"Synthetic rows under differential privacy: epsilon {up(certificate.epsilon)} at delta"
        f" {certificate.delta:g} for {' '.join(certificate.unit_meaning.split())};"
        " privacy/certificate.md states the guarantee."
    )


def croissant_file(file: WrittenFile, kind: str, about: str) -> dict[str, Any]:
    """A file of the bundle in `croissant.json`."""
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "description": about,
        "contentUrl": file.name,
        "contentSize": f"{file.bytes} B",
        "encodingFormat": kind,
        "sha256": file.sha256,
    }


def _croissant_field(name: str, column: Column, records: str, parquet: str) -> Mapping[str, Any]:
    coded = _labels_id(name if records == RECORDS else f"{records}.{name}")
    said = [
        about_column(column),
        f"unit: {column.unit}" if column.unit else None,
        "may be missing" if column.missing else None,
        f"codes stand for what {coded} says" if _named(column) else None,
    ]
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": record_id(name, records),
        "name": name,
        "dataType": column_kind(column).croissant(column),
    }
    if any(said):
        field["description"] = "; ".join(filter(None, said))
    return field | {"source": {"fileObject": {"@id": parquet}, "extract": {"column": name}}}


def _named(column: Column) -> bool:
    return bool(getattr(column, "value_labels", {}))


def _labels_id(column: str) -> str:
    return f"labels/{quote(column, safe='')}"


def _labels(name: str, column: Column) -> dict[str, Any]:
    """What the codes of a column stand for, as a record set of its own. The column does not refer
    to it by `references`: loaders would join the two, and read its values as other types.
    """
    own, kind = _labels_id(name), column_kind(column)
    types = {"code": kind.croissant(column), "label": "sc:Text"}
    return {
        "@type": "cr:RecordSet",
        "@id": own,
        "name": own,
        "description": f"what the codes of {name} stand for",
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{own}/code"},
        "field": [
            {"@type": "cr:Field", "@id": f"{own}/{part}", "name": part, "dataType": kind_of}
            for part, kind_of in types.items()
        ],
        "data": [
            {f"{own}/code": listed["value"], f"{own}/label": listed["label"]}
            for listed in kind.frictionless(column)["categories"]
        ],
    }


SUFFIXES = (".csv", ".parquet")


def check_file(out: Path) -> None:
    """Whether a sample can be written to `out`.

    Raises:
        OutputError: its name ends in something else than a known format, or its folder does not
            exist.
    """
    if out.suffix not in SUFFIXES:
        raise OutputError(
            f"{out.name}: the format follows from the end of the name, and this is none",
            hint=f"known are {', '.join(SUFFIXES)}",
        )
    if out.is_dir() or not out.parent.is_dir():
        raise OutputError(
            f"{out}: is a folder, or lies in one that does not exist",
            hint="name a file in a folder that exists",
        )


def write_blocks(
    blocks: Iterator[pd.DataFrame], columns: Mapping[str, Column], out: Path | None
) -> None:
    """Write to `out`, or as CSV to stdout.

    The file appears complete or not at all, also after an interruption.

    Raises:
        OutputError: the file cannot be written.
    """
    if out is None:
        write_csv_blocks(blocks, columns, sys.stdout)
        return
    check_file(out)
    hint = "check the folder, its permissions and the space on its disk"
    with disk_errors(f"{out}: cannot be written", hint=hint), draft_of(out) as draft:
        if out.suffix == ".parquet":
            _write_parquet(blocks, draft)
        else:
            with draft.open("w", encoding="utf-8", newline="") as file:
                write_csv_blocks(blocks, columns, file)


def typed_rows(blocks: Iterator[pd.DataFrame], columns: Mapping[str, Column]) -> pd.DataFrame:
    """Drawn rows, typed as the table of a bundle.

    They go by way of a file, so that the types are those of the table to the letter.

    >>> import synthdp
    >>> str(synthdp.Bundle("releases/clinic/bundle").sample(5)["smoker"].dtype)
    'boolean'
    """
    with tempfile.TemporaryDirectory(prefix="synthdp-") as folder:
        file = Path(folder) / "rows.csv"
        write_blocks(blocks, columns, file)
        frame: pd.DataFrame = typed_frame(file, columns)
    return frame


def _write_parquet(blocks: Iterator[pd.DataFrame], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = pa.Table.from_pandas(next(blocks), preserve_index=False)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for block in blocks:
            writer.write_table(pa.Table.from_pandas(block, first.schema, preserve_index=False))
