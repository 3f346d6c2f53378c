"""Frictionless and mlcroissant read what is written for any spec: far dates, odd names and texts,
rows that miss everything.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from synthdp.bundle import (
    CSV_NAME,
    PARQUET_NAME,
    croissant,
    descriptor,
    record_id,
    write_csv,
    write_parquet,
    written,
)
from synthdp.bundle.certificate import Certificate
from synthdp.data import Domain, column_kind, decode
from synthdp.errors import SpecError
from synthdp.spec import parse_spec
from synthdp.spec.model import Datetime, ReleaseSpec
from synthdp.verify import chunks, misfits_of
from tests.builders import skeleton

ROWS = 12
NONE = np.zeros(2, dtype=bool)
NAMES = (
    *("null", "1", "1.5", "true", "@id", "a,b", 'a"b', "it's", "a;b", "a|b", "Größe", "日本", "😀"),
    *("a/b", "../x", "%41", "a%2Fb", "x?y#z", "{x}", "$ref", "a:b", "rows", "row", "id", "name"),
    *("*", "~", "#", "&a", "!t", "[0]", "a  b", "`c`", "N/A", "NaN", "x" * 128, "\\", "\\n", "<b>"),
)
TEXTS = (
    *("a", "A", "no", "null", "NaN", "NA", "true", "1", "01", "1.0", "-1", "1e5", "2020-01-01"),
    *(
        "a,b",
        'say "x"',
        "it's",
        "a;b",
        "é",
        "😀",
        "<b>",
        "\\",
        "#c",
        "?",
        "x" * 300,
        "a  b",
        "None",
    ),
    *(" a", "a ", "'", '"', "''", "\\N", "inf"),
)
DAYS = ("0001-01-01", "0099-12-31", "0999-01-01", "1582-10-15", "1970-01-01", "9999-12-31")


def some_column(rng: np.random.Generator) -> dict[str, Any]:
    """A column of any type."""
    kind = rng.choice(
        ["categorical", "ordinal", "codes", "boolean", "integer", "number", "datetime", "text-code"]
    )
    missing = {"missing": bool(rng.random() < 0.6)}
    texts = [str(t) for t in rng.choice(TEXTS, int(rng.integers(2, 6)), replace=False)]
    if kind == "boolean":
        return {"type": "boolean", "false": texts[0], "true": texts[1]} | missing
    if kind == "codes":
        codes = rng.choice([0, 1, -1, 7, 2**53 + 1, -(10**17)], 3, replace=False)
        own = {str(c): f"label {c}" for c in codes[: rng.integers(0, 4)]}
        categories = [str(c) for c in codes]
        return {"type": "categorical", "categories": categories, "value_labels": own} | missing
    if kind == "integer":
        low, high = sorted(
            int(n) for n in rng.choice([-(2**53), -5, 0, 3, 2**53], 2, replace=False)
        )
        return {"type": "integer", "lower": low, "upper": high, "bins": 3} | missing
    if kind == "number":
        low, high = sorted(
            rng.choice([-1e22, -1e-7, 0.0, 1e-9, 0.5, 1e22], 2, replace=False).tolist()
        )
        return {"type": "number", "lower": low, "upper": high, "decimals": 12, "bins": 3} | missing
    if kind == "datetime":
        low, high = sorted(str(d) for d in rng.choice(DAYS, 2, replace=False))
        resolution = str(rng.choice(["day", "hour", "minute", "second"]))
        own = {"lower": low, "upper": high, "bins": 3, "resolution": resolution}
        return {"type": "datetime", "spikes": [low] * int(rng.integers(2))} | own | missing
    if kind == "text-code":
        return {"type": "text-code", "codes": texts, "prefix": 1} | missing
    return {"type": str(kind), "categories": texts} | missing


def some_spec(seed: int) -> ReleaseSpec:
    """A valid spec: what the loader refuses is drawn again."""
    rng = np.random.default_rng(seed)
    while True:
        names = rng.choice(NAMES, int(rng.integers(1, 6)), replace=False)
        columns = {str(name): some_column(rng) for name in names}
        if rng.random() < 0.3:
            columns = {name: own | {"missing": True} for name, own in columns.items()}
        content = skeleton(source={"kind": "dataframe"}, licence="CC0-1.0") | {"columns": columns}
        content["privacy"] = {"epsilon": 1, "delta": 1e-5}
        try:
            return parse_spec(yaml.safe_dump(content, allow_unicode=True), path="s.yaml")
        except SpecError:
            continue


def write(spec: ReleaseSpec, folder: Path, certificate: Certificate) -> None:
    """The files that others read. The first row misses all that may be missing."""
    domain, rng = Domain.from_spec(spec.columns), np.random.default_rng(1)
    codes = np.column_stack([rng.integers(0, size, ROWS) for size in domain.sizes]).astype(
        np.uint16
    )
    codes[0] = [c.missing_level if c.missing else 0 for c in domain.columns]
    csv, parquet = folder / CSV_NAME, folder / PARQUET_NAME
    write_csv(decode(domain, codes, rng=rng), spec.columns, csv)
    write_parquet(csv, spec.columns, parquet)
    package = descriptor(spec, run="run-1", csv=written(csv))
    files = {"csv": written(csv), "parquet": written(parquet)}
    described = croissant(spec, certificate, day="2026-01-01", **files)
    (folder / "datapackage.json").write_text(json.dumps(package))
    (folder / "croissant.json").write_text(json.dumps(described))


def problems(spec: ReleaseSpec, folder: Path) -> list[Any]:
    """What the two programs have against the files, and what they read otherwise."""
    import frictionless

    report = frictionless.Package(str(folder / "datapackage.json")).validate()
    found = [] if report.valid else report.flatten(["rowNumber", "fieldName", "note"])[:5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))
        records = list(described.records("rows"))
    issues = described.metadata.issues
    found += [*issues.errors, *issues.warnings]
    if [set(r) for r in records] != [{record_id(name) for name in spec.columns}] * ROWS:
        found.append(("records", len(records)))
    if sum(map(len, chunks(folder / CSV_NAME))) != ROWS:
        found.append("verify reads another number of rows")
    if pq.read_metadata(folder / PARQUET_NAME).num_rows != ROWS:
        found.append("another number of rows in Parquet")
    return found


@pytest.fixture(scope="session")
def certificate(made: Path) -> Certificate:
    return Certificate.model_validate_json((made / "privacy" / "certificate.json").read_text())


def look(seeds: range, folder: Path, certificate: Certificate) -> dict[int, list[Any]]:
    found = {}
    for seed in seeds:
        own = folder / str(seed)
        own.mkdir()
        write(spec := some_spec(seed), own, certificate)
        if wrong := problems(spec, own):
            found[seed] = [*spec.columns.items(), *wrong]
    return found


@pytest.mark.check
@pytest.mark.filterwarnings("ignore")  # what the libraries of others deprecate
def test_other_programs_accept_the_files_of_a_dozen_specs(
    tmp_path: Path, certificate: Certificate
) -> None:
    assert look(range(12), tmp_path, certificate) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_other_programs_accept_the_files_of_many_specs(
    tmp_path: Path, certificate: Certificate
) -> None:
    assert look(range(12, 312), tmp_path, certificate) == {}


@pytest.mark.parametrize("resolution", ["day", "second"])
def test_bounds_of_early_years_are_written_as_their_values_are(resolution: str) -> None:
    column = Datetime.model_validate(
        {"type": "datetime", "lower": "0001-01-01", "upper": "0999-12-31", "resolution": resolution}
    )
    kind = column_kind(column)
    domain = Domain.from_spec({"c": column})["c"]
    ends = kind.written(column, kind.values(domain, np.array([domain.lower, domain.upper]), NONE))
    bounds = kind.frictionless(column)["constraints"]
    assert [bounds["minimum"], bounds["maximum"]] == ends.tolist()
    assert kind.in_words(column, most=3).startswith(f"{ends[0]} to {ends[1]}, ")


def test_a_row_that_misses_everything_is_a_row_for_every_reader(
    tmp_path: Path, certificate: Certificate
) -> None:
    for names in (["a"], ["a", "b"]):
        columns = {name: {"type": "boolean", "missing": True} for name in names}
        folder = tmp_path / str(len(names))
        folder.mkdir()
        content = skeleton(licence="CC0-1.0") | {"columns": columns}
        spec = ReleaseSpec.model_validate(content)
        write(spec, folder, certificate)
        assert (folder / CSV_NAME).read_text().splitlines()[1] in ('""', ",")
        assert problems(spec, folder) == []
        assert len(pd.read_csv(folder / CSV_NAME)) == ROWS


def test_a_published_table_holds_no_text_of_the_source() -> None:
    """`verify` would read it as the category that it stands for, and frictionless refuses it."""
    column = {"type": "categorical", "categories": ["plus", "minus"], "missing": True}
    column |= {"values": {"+": "plus"}, "missing_codes": ["?"]}
    spec = ReleaseSpec.model_validate(skeleton() | {"columns": {"rh": column}})
    domain = Domain.from_spec(spec.columns)["rh"]
    wrong = [misfits_of(domain, pd.Series([text]))[0] for text in ("plus", "", "+", "?", "minus")]
    assert wrong == [0, 0, 1, 1, 0]
