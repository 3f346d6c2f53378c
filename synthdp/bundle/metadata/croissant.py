"""The synthetic table as a Croissant dataset (MLCommons, version 1.0).

Loaders of machine learning and dataset search engines read it. It is one small JSON-LD document, a
function of spec, run and files; the tests check it with `mlcroissant`. Records come from the
Parquet file, which has the types of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from synthdp.bundle.certificate.facts import Certificate
from synthdp.bundle.metadata.parquet import PARQUET_NAME
from synthdp.bundle.wording import about_column, title_of
from synthdp.data.kinds import column_kind
from synthdp.spec.model import Column, ReleaseSpec
from synthdp.spec.wording import up

CROISSANT = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
RECORDS = "rows"
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{
        term: f"cr:{term}"
        for term in (
            *(
                "citeAs",
                "column",
                "equivalentProperty",
                "extract",
                "field",
                "fileProperty",
                "fileObject",
                "fileSet",
                "format",
                "includes",
            ),
            *(
                "isLiveDataset",
                "jsonPath",
                "key",
                "md5",
                "parentField",
                "path",
                "recordSet",
                "references",
                "regex",
                "repeated",
                "replace",
            ),
            *("samplingRate", "separator", "source", "subField", "transform"),
        )
    },
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
}


@dataclass(frozen=True)
class WrittenFile:
    """A file of the bundle as Croissant describes it."""

    name: str
    bytes: int
    sha256: str


def croissant(
    spec: ReleaseSpec,
    certificate: Certificate,
    *,
    day: str,
    csv: WrittenFile,
    parquet: WrittenFile,
) -> dict[str, Any]:
    """The content of `croissant.json`; `day` is that of the release, as an ISO date."""
    dataset = spec.dataset
    about = _note(certificate)
    if dataset.description:
        about = f"{dataset.description.strip()}\n\n{about}"
    content: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": f"{dataset.id}-synthetic",
        "alternateName": title_of(dataset),
        "description": about,
        "identifier": certificate.run,
        "version": "1.0.0",
        "datePublished": day,
        "citeAs": citation(spec, certificate, day=day),
        **_responsible_use(certificate),
    }
    if dataset.licence:
        content["license"] = dataset.licence
    if spec.publication:
        content["creator"] = [
            {"@type": "sc:Organization", "name": c.name} for c in spec.publication.curators
        ]
    if dataset.contact:
        content["maintainer"] = {"@type": "sc:Organization", "name": dataset.contact}
    content["distribution"] = [
        _file(csv, "text/csv", "the synthetic table; an empty field is a missing value"),
        _file(parquet, "application/x-parquet", "the same rows with their types"),
    ]
    fields = [_field(name, column) for name, column in spec.columns.items()]
    content["recordSet"] = [
        {
            "@type": "cr:RecordSet",
            "@id": RECORDS,
            "name": RECORDS,
            "description": "one record for each synthetic row",
            "field": fields,
        },
        *(_labels(name, column) for name, column in spec.columns.items() if _named(column)),
    ]
    return content


def written(path: Path, sha256: str) -> WrittenFile:
    """Name, size and SHA-256 digest of a written file."""
    return WrittenFile(path.name, path.stat().st_size, sha256)


def citation(spec: ReleaseSpec, certificate: Certificate, *, day: str) -> str:
    """How to cite the synthetic table, in one line.

    It ends with the citation of the original where the spec states it.
    """
    who = ", ".join(c.name for c in spec.publication.curators) if spec.publication else None
    head = f"{who} ({day[:4]}). " if who else ""
    year = "" if who else f" ({day[:4]})"
    privacy = (
        f"differentially private, epsilon {up(certificate.epsilon)} at delta {certificate.delta:g}"
    )
    text = (
        f"{head}{spec.dataset.title or spec.dataset.id}{year} [synthetic data, {privacy}; run"
        f" {certificate.run}, {certificate.program}]."
    )
    if spec.dataset.citation:
        text = f"{text} Made from: {spec.dataset.citation}"
    return " ".join(text.split())


def record_id(column: str) -> str:
    """Key of a column in the records of a Croissant loader."""
    return f"{RECORDS}/{quote(column, safe='')}"


def _note(certificate: Certificate) -> str:
    return (
        f"Synthetic rows under differential privacy: epsilon {up(certificate.epsilon)} at delta"
        f" {certificate.delta:g} for {' '.join(certificate.unit_meaning.split())};"
        " privacy/certificate.md states the guarantee."
    )


def _responsible_use(certificate: Certificate) -> dict[str, str]:
    """The terms of Croissant's vocabulary for responsible AI."""
    return {
        "rai:dataCollection": (
            "Every row was drawn from a model that was fitted with differential privacy; none was"
            " collected."
        ),
        "rai:personalSensitiveInformation": _note(certificate),
        "rai:dataUseCases": (
            "Exploring, writing and testing code, teaching, and a first look at relations that the"
            " released model carries."
        ),
        "rai:dataLimitations": (
            "Not for decisions about a person, for results that must hold for the original, for"
            " small groups, rare values and extremes, for relations that graph.json does not have,"
            " or for duplicate and linkage studies."
        ),
    }


def _file(file: WrittenFile, kind: str, about: str) -> dict[str, Any]:
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


def _field(name: str, column: Column) -> Mapping[str, Any]:
    said = [
        about_column(column),
        f"unit: {column.unit}" if column.unit else None,
        "may be missing" if column.missing else None,
        f"codes stand for what {_labels_id(name)} says" if _named(column) else None,
    ]
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": record_id(name),
        "name": name,
        "dataType": column_kind(column).croissant(column),
    }
    if any(said):
        field["description"] = "; ".join(s for s in said if s)
    return field | {"source": {"fileObject": {"@id": PARQUET_NAME}, "extract": {"column": name}}}


def _named(column: Column) -> bool:
    return bool(column_kind(column).value_labels(column))


def _labels_id(column: str) -> str:
    return f"labels/{quote(column, safe='')}"


def _labels(name: str, column: Column) -> dict[str, Any]:
    """What the codes of a column stand for, as a record set of its own.

    The column does not refer to it by `references`: loaders would join the two, and read its values
    as other types.
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
