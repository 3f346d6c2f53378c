"""Opening MLflow's stores: quickly, quietly, and for their owner alone where they are files."""

from __future__ import annotations

import logging
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from synthdp.errors import OutputError
from synthdp.files import claim_file, copy_private, missing_folders
from synthdp.spec.addresses import reason, sqlite_address, sqlite_file

T = TypeVar("T")

ANSWER_SECONDS = 10  # that a server may take for one answer; it is asked once
OPEN_SECONDS = 10.0  # for which a file is tried that another release may be making
LOUD = ("mlflow", "alembic", "urllib3", "requests", "botocore", "sqlalchemy")


def opened(uri: str, find: Callable[[Any], T]) -> tuple[Any, T]:
    """A client of the store at `uri`, and what `find` returns for it.

    A SQLite file is tried for some seconds: another release may be creating it.

    Raises:
        OutputError: from `find`.
        Exception: as the client, a database or a network has it.
    """
    client, file, end = client_class(), sqlite_file(uri), time.monotonic() + OPEN_SECONDS
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
            except (
                Exception
            ) as error:  # such as: another release made the same experiment a moment ago
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
    """Create a store that is complete from its first moment.

    MLflow takes seconds to create its tables, and a store with half of them stays broken.
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
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = (
        "true"  # a server's addresses would stand among the JSON
    )
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    # MLflow would try for many minutes. What the steward has set stays.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(ANSWER_SECONDS))
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

    waits = (
        {"connect_timeout": ANSWER_SECONDS}
        if uri.startswith(("postgres", "mysql", "mariadb"))
        else {}
    )
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
