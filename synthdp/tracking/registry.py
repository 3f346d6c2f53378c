"""The dataset and the released model in MLflow, by its client alone, which keeps no global state.

The dataset is what the spec declares: names and types of columns. Its digest is MLflow's own, of
name and schema. The model is the part of a bundle that rows are drawn from, and code that draws
them (`tracking.drawn_rows`): no pickle, and nothing that the bundle does not publish. synthdp's own
code lies beside it and is what draws: to name synthdp as a requirement would have a package index
give it, and whoever has that name there would run code wherever models are served.

`mlflow` is imported lazily: it costs seconds.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from synthdp.data.kinds import column_kind
from synthdp.files import SUMS, parse_json, read_text
from synthdp.sample.sampler import READ
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import Column, ReleaseSpec, derived_of
from synthdp.spec.wording import up
from synthdp.tracking.store import put

ALIAS = "released"
CODE = Path(__file__).with_name("drawn_rows.py")
ARCHIVE = "synthdp.zip"  # as `drawn_rows` reads it
PACKAGES = ("synthdp", "synthdp_attacks")  # that rows are drawn by
SETTLED = "settled"  # when the release was settled, of a version
TYPES = {
    "int64": "long",
    "double": "double",
    "bool": "boolean",
    "date32[day]": "datetime",
    "timestamp[ms]": "datetime",
}  # MLflow's, of Arrow's; all others are texts


def registered_name(dataset: str) -> str:
    """The name under which releases of a dataset are registered.

    >>> registered_name("clinic")
    'clinic-synthetic'
    """
    return f"{dataset}-synthetic"


def declared(columns: Mapping[str, Column]) -> list[tuple[str, str, bool]]:
    """The columns that a source has: name, MLflow's type, and whether every row has a value."""
    return [
        (name, _type(column), not column.missing)
        for name, column in columns.items()
        if derived_of(column) is None
    ]


def log_dataset(
    client: Any, run: str, dataset: str, columns: Sequence[tuple[str, str, bool]]
) -> None:
    """Log the original table as the run's input: its name and its `declared` columns."""
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import DatasetInput, InputTag

    if not columns:
        return  # a record of an earlier version has none
    source = CodeDatasetSource(tags={"mlflow.source.name": "synthdp release"})
    table = MetaDataset(source, name=dataset, schema=_schema(columns))
    tags = [InputTag("mlflow.data.context", "original rows, not logged")]
    client.log_inputs(run, [DatasetInput(table._to_mlflow_entity(), tags)])


def register(client: Any, experiment: str, run: str, bundle: Path, *, release: str) -> None:
    """Log the model of a released bundle, and register it under `ALIAS`; once for each run.

    The alias stays where the release that has it was settled later.

    Args:
        client: MLflow's client of the store.
        experiment: MLflow's id of the experiment.
        run: MLflow's id of the run.
        bundle: the folder of a bundle whose gates passed.
        release: the run that the bundle must be of.

    Raises:
        ValueError: the bundle is of another run.
    """
    spec, tags = load_spec(bundle / "spec.yaml"), _tags(bundle)
    if tags["synthdp.run"] != release:
        raise ValueError("the bundle is of another run")
    name = registered_name(spec.dataset.id)
    known = client.search_model_versions(f"name = '{name}' and run_id = '{run}'")
    if known:
        version = known[0].version
    else:
        model = _log_model(client, experiment, run, bundle, spec, tags)
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name, description=_description(spec.dataset.id, name))
        # By its place: `models:/ID` would be looked up in MLflow's global store, not in this one.
        version = client.create_model_version(
            name, model.artifact_location, run, tags=tags, model_id=model.model_id
        ).version
    aliases = client.get_registered_model(name).aliases
    newest = client.get_model_version(name, aliases[ALIAS]).tags if ALIAS in aliases else {}
    if newest.get(SETTLED, "") <= tags[SETTLED]:
        client.set_registered_model_alias(name, ALIAS, version)


def _log_model(
    client: Any, experiment: str, run: str, bundle: Path, spec: ReleaseSpec, tags: dict[str, str]
) -> Any:
    """The logged model of the run; returns MLflow's record of it."""
    from mlflow.entities import LoggedModelOutput

    model = client.create_logged_model(
        experiment,
        name=registered_name(spec.dataset.id),
        source_run_id=run,
        model_type="synthetic rows",
        tags=tags,
    )
    with tempfile.TemporaryDirectory(prefix="synthdp-") as folder:
        saved = _saved(bundle, Path(folder), spec.columns)
        send = partial(client.log_model_artifacts, model.model_id, str(saved))
        put(saved, model.artifact_location, None, send)
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(model.model_id, 0)])
    return model


def _tags(bundle: Path) -> dict[str, str]:
    """What a version says of its release; `SETTLED` puts the releases of a ledger in order."""
    facts = parse_json(read_text(bundle / "privacy" / "certificate.json"))
    last = parse_json(read_text(bundle / "privacy" / "ledger.json"))["entries"][-1]
    return {
        "epsilon": up(facts["epsilon"]),
        "delta": f"{facts['delta']:g}",
        "signed": "no" if facts["signer"] is None else "yes",
        "synthdp.run": str(facts["run"]),
        SETTLED: f"{last['at']}, entry {last['seq']:06d}",
    }


def _saved(bundle: Path, folder: Path, columns: Mapping[str, Column]) -> Path:
    """The model as a folder that MLflow can load."""
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    part, model = folder / "part", folder / "model"
    part.mkdir()
    for name in (*READ, SUMS):
        shutil.copyfile(bundle / name, part / name)
    outputs = [(name, _type(column), not column.missing) for name, column in columns.items()]
    settings = Array(DataType.string)
    asked = Schema(
        [
            ColSpec("long", "rows"),
            ColSpec(settings, "given", required=False),
            ColSpec(settings, "do", required=False),
        ]
    )
    save_model(
        model,
        python_model=str(CODE),
        artifacts={"bundle": str(part)},
        signature=ModelSignature(inputs=asked, outputs=_schema(outputs)),
        code_paths=[str(_packed(folder))],
        pip_requirements=_requirements(),
    )
    return model


def _packed(folder: Path) -> Path:
    """The code that rows are drawn by, as one file: a server would take each by itself."""
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            spec = find_spec(package)
            assert spec is not None and spec.origin is not None  # synthdp imports both
            root = Path(spec.origin).parent
            for file in sorted(root.rglob("*.py")):
                archive.write(file, file.relative_to(root.parent))
    return folder / ARCHIVE


def _requirements() -> list[str]:
    """What synthdp needs to draw rows, in the versions that are installed here."""
    needed = (Requirement(line) for line in metadata.requires("synthdp") or ())
    names = [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [f"{name}=={metadata.version(name)}" for name in (*names, "mlflow")]


def _schema(columns: Sequence[tuple[str, str, bool]]) -> Any:
    from mlflow.types.schema import ColSpec, Schema

    return Schema([ColSpec(kind, name, required=whole) for name, kind, whole in columns])


def _type(column: Column) -> str:
    """The type of a column in MLflow's words."""
    return TYPES.get(str(column_kind(column).arrow_type(column)), "string")


def _description(dataset: str, name: str) -> str:
    return (
        f"Draws synthetic rows of {dataset}, which costs no privacy. Every version is a release"
        " that passed its gates; its tags state epsilon and delta.\n\n"
        f'    model = mlflow.pyfunc.load_model("models:/{name}@{ALIAS}")\n'
        '    model.predict(pd.DataFrame([{"rows": 100, "given": ["COLUMN=VALUE"], "do": []}]))\n'
    )
