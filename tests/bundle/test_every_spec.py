"""The bundle of every spec in specs/ is accepted by the programs of others: frictionless,
mlcroissant, and the registry's schema.
"""

import itertools
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from synthdp.bundle import CROISSANT, DEPLOYMENT, PARQUET_NAME, record_id, schema_problems
from synthdp.release import release
from synthdp.spec import load_spec
from synthdp.verify import verify_bundle

pytestmark = pytest.mark.slow

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
SHORT = {
    "evaluation": {"enabled": False},
    "attacks": {"membership": {"enabled": False}},
    "tracking": {"enabled": False},
    "publication": {
        "curators": [{"name": "The project", "type": "Nonprofit"}],
        "intended_use": "a test",
        "region": "Nowhere",
        "sector": "Education",
    },
}


@pytest.mark.filterwarnings("ignore")  # what the libraries of others deprecate
@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_bundle_of_every_spec_is_accepted(path: Path, tmp_path: Path) -> None:
    """Few steps and nothing judged: what a bundle's descriptions say depends on neither."""
    content = yaml.safe_load(path.read_text())
    content |= SHORT
    content["synthesizer"] = content.get("synthesizer", {}) | {"steps": 5}
    content["privacy"] |= {"delta": float(content["privacy"]["delta"])}
    content["dataset"].setdefault("licence", "CC0-1.0")
    content.pop("gates", None)
    if content["dataset"]["source"]["kind"] == "csv":
        content["dataset"]["source"]["path"] = str(
            path.parent / content["dataset"]["source"]["path"]
        )
    spec_path = tmp_path / "spec.yaml"
    spec_path.write_text(yaml.safe_dump(content, sort_keys=False))
    bundle = release(spec_path, out=tmp_path / "out").bundle
    assert bundle is not None and verify_bundle(bundle).ok
    spec = load_spec(bundle / "spec.yaml")

    import frictionless
    import mlcroissant

    report = frictionless.Package(str(bundle / "datapackage.json")).validate()
    assert report.valid, report.flatten(["rowNumber", "fieldName", "note"])[:5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = mlcroissant.Dataset(jsonld=str(bundle / CROISSANT))
        records = list(itertools.islice(described.records("rows"), 20))
    assert not described.metadata.issues.errors and not described.metadata.issues.warnings
    assert [set(r) for r in records] == [{record_id(n) for n in spec.columns}] * 20
    assert pq.read_metadata(bundle / PARQUET_NAME).num_rows == spec.sampling.rows
    assert list(schema_problems(yaml.safe_load((bundle / DEPLOYMENT).read_text()))) == []
