"""Opening MLflow's stores: quickly, quietly, and for their owner alone where they are files.

And what reviewers read in MLflow: parameters, the verdict in Markdown, the view's columns.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from synthdp import __version__
from synthdp.bundle.certificate_text import template
from synthdp.bundle.descriptions import published_sha256
from synthdp.data.kinds import column_kind
from synthdp.errors import OutputError
from synthdp.files import (
    SUMS,
    claim_file,
    copy_private,
    missing_folders,
    parse_json,
    read_text,
)
from synthdp.spec.addresses import reason, sqlite_address, sqlite_file
from synthdp.spec.load.loader import load_spec
from synthdp.spec.load.wording import up
from synthdp.spec.model import Column, LinkedSpec, ReleaseSpec, derived_of

T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """Seconds that a server may take for one `answer`, for which it is asked once; and for which a
    file is tried to be `opened` that another release may be making.
    """

    answer: int = 10
    opened: float = 10.0


PATIENCE = Patience()
LOUD = ("mlflow", "alembic", "urllib3", "requests", "botocore", "sqlalchemy")


def opened(uri: str, find: Callable[[Any], T]) -> tuple[Any, T]:
    """A client of the store at `uri`, and what `find` returns for it.

    A SQLite file is tried for some seconds: another release may be creating it.

    Raises:
        OutputError: from `find`.
        Exception: as the client, a database or a network has it.
    """
    client, file, end = client_class(), sqlite_file(uri), time.monotonic() + PATIENCE.opened
    with quiet():
        check_database(uri)
        while True:
            try:
                if file is not None:
                    _make(file, client)
                found = client(tracking_uri=uri)
                return found, find(found)
            except OutputError:
                raise  # ours: to try again changes nothing
            except Exception as error:  # such as: another release made the experiment just now
                if file is None or time.monotonic() > end or "no database" in reason(error):
                    raise
                time.sleep(0.2)


def live(experiment: Any, name: str) -> Any:
    """An experiment that runs can be made in; MLflow keeps deleted ones under their names.

    Raises:
        OutputError: it was deleted.
    """
    if experiment is not None and experiment.lifecycle_stage == "deleted":
        raise OutputError(
            f"experiment {name!r} of the MLflow store was deleted, and no run can be made in it",
            hint=(
                "restore it, with its earlier runs (`mlflow experiments restore --experiment-id"
                f" {experiment.experiment_id}`), or name another in tracking.experiment"
            ),
        )
    return experiment


def mend(uri: str, why: str) -> str:
    """What to do about a store that cannot be opened, by the reason that `reason` gives."""
    if sqlite_file(uri) is None:
        return "check tracking.uri and that its server runs"
    return _MENDS.get(why, "name another file in tracking.uri: this one may hold earlier runs")


_MENDS = {
    "the file is no database": "move the file away, or name another in tracking.uri",
    "another process holds it": "wait until that is done",
    "the file may not be written": "allow writing it, or name another in tracking.uri",
    "its disk is full": "make room",
    "its folder is missing, full or may not be written": "see to the folder",
    "its tables are those of another version of MLflow": (
        "run `mlflow db upgrade` with the MLflow of this environment, after a copy of the file;"
        " or name another in tracking.uri"
    ),
}


def _make(file: Path, client: Any) -> None:
    """Create a store that is complete from its first moment. MLflow takes seconds to create its
    tables, and a store with half of them stays broken.
    """
    if file.exists():
        return
    missing_folders(file.parent)
    partial = file.with_name(f"{file.name}.partial-{secrets.token_hex(4)}")
    claim_file(partial)
    try:
        client(tracking_uri=sqlite_address(partial)).search_experiments(max_results=1)
        try:
            os.link(partial, file)
        except FileExistsError:
            return  # another release was faster
        except OSError:  # a disk without links
            partial.rename(file)
    finally:
        for rest in file.parent.glob(f"{partial.name}*"):
            rest.unlink()


def local_folder(location: str) -> Path | None:
    """The folder of artefacts at `location`, if it is one of this machine."""
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    return Path(location) if location.startswith("/") else None


def put(source: Path, location: str, folder: str | None, send: Callable[[], object]) -> None:
    """Put a file, or all files of a folder, under `folder` of the artefacts at `location`.

    `send` has MLflow do it, where that is no folder of this machine. In one, MLflow would make
    folders as the umask has it, and give each file the mode of its source.
    """
    if (place := local_folder(location)) is None:
        send()
        return
    root = source if source.is_dir() else source.parent
    for file in filter(Path.is_file, source.rglob("*") if source.is_dir() else [source]):
        copy_private(file, place / (folder or "") / file.relative_to(root))


def client_class() -> Any:
    """MLflow's client class, which keeps no global state.

    Telemetry is switched off before the import: later is too late.
    """
    os.environ |= {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # they would stand among the JSON
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    # MLflow would try for many minutes. What the steward has set stays.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE.answer))
    with quiet():
        from mlflow.tracking import MlflowClient

    return MlflowClient


def check_database(uri: str) -> None:
    """Ask a database server, where `uri` is one, once: MLflow would ask ten times, for 100 seconds.

    Raises:
        Exception: as its driver has it.
    """
    if uri.startswith(("http:", "https:")) or sqlite_file(uri) is not None:
        return
    import sqlalchemy as sa

    known = uri.startswith(("postgres", "mysql", "mariadb"))
    waits = {"connect_timeout": PATIENCE.answer} if known else {}
    engine = sa.create_engine(uri, poolclass=sa.pool.NullPool, connect_args=waits)
    with engine.connect():
        engine.dispose()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence MLflow, its network and its migrations on stderr, where addresses would appear.

    Enter this after the import of mlflow, which sets the log levels.
    """
    levels = {n: logging.getLogger(n).level for n in LOUD}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for n in LOUD:
                logging.getLogger(n).setLevel(logging.CRITICAL)
            yield
        finally:
            for n, level in levels.items():
                logging.getLogger(n).setLevel(level)


# --- the dataset and the released model, by MLflow's client alone, which keeps no global state ---
#
# The dataset is what the spec declares: names and types of columns. Its digest is MLflow's own, of
# name and schema. The model is the part of a bundle that rows are drawn from, and code that draws
# them (`tracking.drawn_rows`): no pickle, and nothing that the bundle does not publish. synthdp's
# own code lies beside it and is what draws: to name synthdp as a requirement would have a package
# index give it, and whoever has that name there would run code wherever models are served.


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
            named = {"dataset": spec.dataset.id, "name": name, "alias": ALIAS}
            about = template("registered_model.md.j2").render(named)
            client.create_registered_model(name, description=about)
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
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types.schema import Array, ColSpec, DataType, Schema

    from synthdp.sample.sampler import READ

    part, model = folder / "part", folder / "model"
    part.mkdir()
    for name in (*READ, SUMS):
        shutil.copyfile(bundle / name, part / name)
    outputs = [(name, _type(column), not column.missing) for name, column in columns.items()]
    lists = (ColSpec(Array(DataType.string), name, required=False) for name in ("given", "do"))
    asked = Schema([ColSpec("long", "rows"), *lists])
    needed = (Requirement(line) for line in metadata.requires("synthdp") or ())
    names = [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    save_model(
        model,
        python_model=str(CODE),
        artifacts={"bundle": str(part)},
        signature=ModelSignature(inputs=asked, outputs=_schema(outputs)),
        code_paths=[str(_packed(folder))],
        pip_requirements=[f"{name}=={metadata.version(name)}" for name in (*names, "mlflow")],
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


def _schema(columns: Sequence[tuple[str, str, bool]]) -> Any:
    from mlflow.types.schema import ColSpec, Schema

    return Schema([ColSpec(kind, name, required=whole) for name, kind, whole in columns])


def _type(column: Column) -> str:
    return TYPES.get(str(column_kind(column).arrow_type(column)), "string")


# What MLflow gets of a bundle: all that describes it, and the model, but no rows.
TRACKED = (
    *("report.html", "DATACARD.md", "README.md", "croissant.json", "datapackage.json"),
    *("privacy", "spec.yaml", "graph.svg", "graph.json", "model.safetensors", "model.json"),
)
GRAPH_FIGURES = ("edges_", "independences_")
_PUBLISHED = ("_dp", "_noisy", "_noise", "_answered", "_asked")  # of figures in the bundle, too
_ENDS = re.compile("_(dp|auc)_(low|high)$")
ML_PAGES = "workflowType=machine_learning"  # without it MLflow shows its menus for language models
STUDY = (
    "A study of rehearsals, outside the guarantee: nothing was published or charged. Where the"
    " parameter `rows` is real, its figures are **confidential**."
)
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
VIEW = "synthdp"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
VIEW_COLUMNS = (
    "tags.`gate`",
    "metrics.`epsilon_planned`",
    "metrics.`tstr_ratio`",
    "metrics.`tv2`",
    "metrics.`estimands_worst`",
    "metrics.`attack_advantage_upper`",
    "metrics.`attack_ceiling`",
    "tags.`signed`",
)  # MLflow orders them: metrics by name, then tags


@dataclass(frozen=True, kw_only=True)
class AttackOutcome:
    """What one attack reports.

    `metrics` are such as advantage, advantage_lower, advantage_upper, auc, ceiling.
    """

    name: str
    params: Mapping[str, str | int | float]
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class PublicationVerdict:
    """Whether the bundle was written and signed, and what each gate said, in words."""

    released: bool
    gates: tuple[str, ...] = ()
    signed: bool = False


def public_params(spec: ReleaseSpec | LinkedSpec) -> dict[str, str | int | float]:
    """Parameters of a release: all from the spec, none from rows, and no number of rows."""
    unit, privacy = spec.dataset.privacy_unit, spec.privacy
    values: dict[str, str | int | float] = {
        "dataset": spec.dataset.id,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "adjacency": privacy.adjacency,
        "unit": f"{unit.kind}: {unit.meaning}",
        "graph": spec.graph.mode,
        "synthdp_version": __version__,
    }
    if isinstance(spec, LinkedSpec):
        return values | {
            "columns": sum(len(own) for own in spec.columns.values()),
            "spec_sha256": published_sha256(spec),
            "tables": f"{spec.dataset.persons_name}, {spec.dataset.visits_name}",
            "at_most": spec.dataset.visits.at_most,
        }
    values |= {"columns": len(spec.columns), "spec_sha256": published_sha256(spec)}
    return values | {
        f"synthesizer.{k}": ", ".join(v) if isinstance(v, tuple) else v
        for k, v in spec.synthesizer.model_dump().items()
        if v not in (None, ())
    }


def note(
    facts: Mapping[str, str],
    figures: Mapping[str, float],
    attacks: Sequence[AttackOutcome],
    verdict: PublicationVerdict | None,
    *,
    status: Status,
) -> str:
    """The run's description in Markdown: the verdict first, then budget, quality and attacks."""
    ended = {
        "KILLED": "Interrupted: resumable, the reservation stays",
        "FAILED": "Failed before the verdict",
    }
    headline = ended.get(status, "No verdict")
    if verdict is not None:
        withheld = "Withheld: a gate failed; the budget is spent"
        headline = "Released: no gate withheld the bundle" if verdict.released else withheld
    low, high = (figures.get(f"attack_advantage_{end}") for end in ("lower", "upper"))
    others = ("attack_", "epsilon", "delta", *GRAPH_FIGURES)
    quality = [k for k in figures if not k.startswith(others) and not _ENDS.search(k)]
    return template("mlflow_note.md.j2").render(
        headline=headline,
        up=up,
        allowed=f"{float(facts.get('epsilon', 'nan')):g}",
        planned=figures.get("epsilon_planned"),
        spent=figures.get("epsilon_spent"),
        interval=None if low is None or high is None else (low, high),
        ceiling=figures.get("attack_ceiling"),
        facts=facts,
        figures=figures,
        attacks=attacks,
        verdict=verdict,
        graph={k: v for k, v in figures.items() if k.startswith(GRAPH_FIGURES)},
        published=[k for k in quality if k.endswith(_PUBLISHED)],
        internal=[k for k in quality if not k.endswith(_PUBLISHED)],
    )


def run_name(dataset: str, epsilon: str, verdict: PublicationVerdict | None, status: Status) -> str:
    """A run's name, which is always in sight: its verdict, and the epsilon that was allowed.

    >>> run_name("clinic", "1.0", PublicationVerdict(released=True), "FINISHED")
    'clinic - released - eps 1'
    """
    words = {"RUNNING": "running", "KILLED": "interrupted", "FAILED": "failed"}
    word = words.get(status, "no verdict")
    if verdict is not None:
        word = "released" if verdict.released else "withheld"
    return f"{dataset} - {word} - eps {float(epsilon):g}"


def view_path(experiment: str) -> str:
    """Path of the experiment's saved view, after the address of MLflow's server."""
    return f"/#/experiments/{experiment}/runs?{ML_PAGES}&viewStateShareKey={VIEW}"


def run_path(experiment: str, run: str) -> str:
    """Path of a run's page, likewise."""
    return f"/#/experiments/{experiment}/runs/{run}?{ML_PAGES}"
