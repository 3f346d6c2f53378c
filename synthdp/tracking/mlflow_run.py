"""Releases in MLflow, for the steward's reviewers: one run per release, one nested run per attack.

MLflow is internal, and still never receives rows, row counts, minima, maxima or digests of content; only what
callers pass here is logged, nothing automatic. It is also never worth a release: once a run is open, a
failure of tracking is kept as a warning and the release goes on.

The only module that imports mlflow, lazily: it costs seconds.
"""

from __future__ import annotations

import getpass
import json
import logging
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from synthdp import __version__
from synthdp.addresses import store_address
from synthdp.errors import GateError, OutputError
from synthdp.spec.models import ReleaseSpec
from synthdp.tracking.note import EXPERIMENT_NOTE, VIEW_TAG, AttackOutcome, Status, Verdict, note, public_params, view_state


class Tracker(Protocol):
    """What a release needs of tracking. A context: entering opens the run, leaving closes it."""

    warnings: list[str]
    url: str | None

    def __enter__(self) -> Tracker: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def params(self, values: Mapping[str, str | int | float]) -> None: ...
    def metrics(self, values: Mapping[str, float]) -> None: ...
    def artifact(self, path: Path, *, folder: str | None = None) -> None: ...
    def attack(self, outcome: AttackOutcome) -> None: ...
    def conclude(self, verdict: Verdict) -> None: ...


class NullTracker:
    """Tracking switched off."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.url: str | None = None

    def __enter__(self) -> NullTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to close."""

    def params(self, values: Mapping[str, str | int | float]) -> None:
        """Nothing."""

    def metrics(self, values: Mapping[str, float]) -> None:
        """Nothing."""

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        """Nothing."""

    def attack(self, outcome: AttackOutcome) -> None:
        """Nothing."""

    def conclude(self, verdict: Verdict) -> None:
        """Nothing."""


def tracker(spec: ReleaseSpec, *, folder: Path, run: str) -> Tracker:
    """The tracker that the spec asks for; `folder` is the spec's, `run` the release's id.

    Raises:
        OutputError: the tracking URI is of a kind that is not supported. Call this before anything is spent.
    """
    if not spec.tracking.enabled:
        return NullTracker()
    uri = store_address(spec.tracking.uri, folder.absolute())
    check_uri(uri)
    return MlflowTracker(spec, uri=uri, folder=folder.absolute(), run=run)


def check_uri(uri: str) -> None:
    """Refuse stores that MLflow no longer supports.

    Raises:
        OutputError: a file store.
    """
    if uri.startswith("file:") or "://" not in uri:
        raise OutputError(
            f"tracking.uri {uri!r} is a file store, which MLflow no longer supports",
            hint="leave tracking.uri out for a SQLite file beside the spec, or give sqlite:///path.db (from the spec's folder), "
            "postgresql://... or http://...",
        )


class MlflowTracker:
    """One release as one MLflow run."""

    def __init__(self, spec: ReleaseSpec, *, uri: str, folder: Path, run: str) -> None:
        self._spec, self._uri, self._folder, self._run = spec, uri, folder, run
        self._client: Any = None
        self._id = self._experiment = ""
        self._facts: dict[str, str] = {}
        self._figures: dict[str, float] = {}
        self._attacks: list[AttackOutcome] = []
        self._verdict: Verdict | None = None
        self.warnings: list[str] = []
        self.url: str | None = None

    def __enter__(self) -> MlflowTracker:
        """Open the run, or go on with it when the release is resumed.

        Raises:
            OutputError: the store cannot be reached; nothing has been spent yet.
        """
        try:
            client = _client_class()
            with _quiet():
                self._client = client(tracking_uri=self._uri)
                self._experiment = self._open_experiment()
                self._id = self._open_run()
        except Exception as error:
            raise OutputError(
                f"cannot open the MLflow store {_without_password(self._uri)}: {type(error).__name__}",
                hint="check tracking.uri and that its server runs, or set tracking.enabled: false",
            ) from None
        if self._uri.startswith("http"):
            self.url = f"{self._uri.rstrip('/')}/#/experiments/{self._experiment}/runs/{self._id}"
        self.params(public_params(self._spec))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the run. Of an error only the kind is logged: its text may speak of rows."""
        status = _status(kind)
        with self._safely("close the run"):
            if kind is not None:
                self._client.set_tag(self._id, "error", kind.__name__)
            self._client.set_tag(self._id, "mlflow.note.content", self._note(status))
            self._client.set_terminated(self._id, status=status)

    def params(self, values: Mapping[str, str | int | float]) -> None:
        """Public settings. One that a resumed run already holds stays as it is."""
        new = {k: str(v)[:500] for k, v in values.items() if k not in self._facts}
        self._facts |= new
        with self._safely("log parameters"):
            from mlflow.entities import Param

            have = self._client.get_run(self._id).data.params
            self._client.log_batch(self._id, params=[Param(k, v) for k, v in new.items() if k not in have])

    def metrics(self, values: Mapping[str, float]) -> None:
        """Figures; those that are not finite are left out."""
        finite = {k: float(v) for k, v in values.items() if math.isfinite(v)}
        self._figures |= finite
        with self._safely("log metrics"):
            self._log_metrics(self._id, finite)

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        """A file, or all files of a folder, under `folder` of the run's artefacts. Never rows."""
        with self._safely(f"store {path.name}"):
            if path.is_dir():
                self._client.log_artifacts(self._id, str(path), folder)
            else:
                self._client.log_artifact(self._id, str(path), folder)

    def attack(self, outcome: AttackOutcome) -> None:
        """A nested run of its own, and its figures on the parent as attack_<metric> (the last attack's)."""
        self._attacks.append(outcome)
        with self._safely(f"log attack {outcome.name}"):
            from mlflow.entities import Param

            child = self._new_run(f"attack: {outcome.name}", {"mlflow.parentRunId": self._id, "attack": outcome.name})
            self._client.log_batch(child, params=[Param(k, str(v)[:500]) for k, v in outcome.params.items()])
            self._log_metrics(child, outcome.metrics)
            self._client.set_terminated(child)
        self.metrics({f"attack_{k}": v for k, v in outcome.metrics.items()})

    def conclude(self, verdict: Verdict) -> None:
        """What became of the release; shown in the runs list and at the head of the description."""
        self._verdict = verdict
        with self._safely("log the verdict"):
            self._client.set_tag(self._id, "gate", "passed" if verdict.released else "withheld")

    # --- inside ---

    def _open_experiment(self) -> str:
        name = self._spec.tracking.experiment
        found = self._client.get_experiment_by_name(name)
        if found is None:
            # A database store would put artefacts into the working directory; a server knows its own place.
            local = None if self._uri.startswith("http") else (self._folder / "mlflow-artifacts").as_uri()
            experiment = str(self._client.create_experiment(name, artifact_location=local))
        else:
            experiment = str(found.experiment_id)
        with self._safely("save the reviewers' view"):
            self._client.set_experiment_tag(experiment, "mlflow.experimentKind", "custom_model_development")
            self._client.set_experiment_tag(experiment, VIEW_TAG, json.dumps(view_state()))
            if found is None or "mlflow.note.content" not in found.tags:  # what reviewers write there stays
                self._client.set_experiment_tag(experiment, "mlflow.note.content", EXPERIMENT_NOTE)
        return experiment

    def _open_run(self) -> str:
        mine = self._client.search_runs([self._experiment], filter_string=f"tags.`synthdp.run` = '{self._run}'", max_results=1)
        if mine:
            self._client.update_run(mine[0].info.run_id, status="RUNNING")
            return str(mine[0].info.run_id)
        tags = {
            "synthdp.run": self._run,
            "synthdp.version": __version__,
            "dataset": self._spec.dataset.id,
            "gate": "open",
            "mlflow.source.name": "synthdp release",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": _user(),
        }
        return self._new_run(f"{self._spec.dataset.id} {self._run}", tags)

    def _new_run(self, name: str, tags: Mapping[str, str]) -> str:
        created = self._client.create_run(self._experiment, start_time=_now(), tags=dict(tags), run_name=name)
        return str(created.info.run_id)

    def _log_metrics(self, run: str, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        at = _now()
        self._client.log_batch(run, metrics=[Metric(k, float(v), at, 0) for k, v in values.items() if math.isfinite(v)])

    def _note(self, status: Status) -> str:
        return note(self._facts, self._figures, self._attacks, self._verdict, status=status)

    @contextmanager
    def _safely(self, what: str) -> Iterator[None]:
        """Keep a failure of tracking as a warning; a Ctrl-C passes through."""
        try:
            with _quiet():
                yield
        except Exception as error:  # any client, network, database or disk error: the release matters more
            self.warnings.append(f"MLflow: could not {what} ({type(error).__name__})")


# --- mlflow itself -------------------------------------------------------------------------------------------


def _client_class() -> Any:
    """MLflow's client, which keeps no global state. Telemetry is switched off before the import: later is too late."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # a server's addresses would stand among the JSON
    with _quiet():
        from mlflow.tracking import MlflowClient

    return MlflowClient


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what MLflow, its migrations and their deprecated calls tell on stderr, then put all back.

    Entered after the import of mlflow, which sets the levels.
    """
    names = ("mlflow", "alembic")
    levels = {n: logging.getLogger(n).level for n in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for n in names:
                logging.getLogger(n).setLevel(logging.ERROR)
            yield
        finally:
            for n, level in levels.items():
                logging.getLogger(n).setLevel(level)


def _status(kind: type[BaseException] | None) -> Status:
    if kind is None or issubclass(kind, GateError):
        return "FINISHED"  # a withheld bundle is a finished release with a verdict
    return "FAILED" if issubclass(kind, Exception) else "KILLED"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user on this machine, as in some containers
        return "unknown"


def _without_password(uri: str) -> str:
    head, at, tail = uri.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at else uri


def _now() -> int:
    return int(time.time() * 1000)
