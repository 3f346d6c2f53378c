"""Releases in MLflow, for the steward's reviewers: one run per release, one nested run per attack.

What MLflow gets. As parameters, tags and text: settings from the spec. As a dataset: the names and
types of its columns. As metrics, of four digits: what was released, and figures of the internal
report on how near, how useful and how well attacked the table is (`gates.METRICS` and the like). As
files: the internal report, and the bundle's but for its rows. As a registered model: that of a
bundle whose gates passed (`tracking.registry`).
Never rows, and no count of real rows as a value of its own: no number of rows, of misfits or of
what was clamped, no minimum or maximum, no digest of content. Only what callers pass here is
logged, nothing automatic.

Tracking is never worth a release: once a run has paid, a failure of tracking is kept as a warning,
the release goes on, and `synthdp track OUT` logs later what is recorded (`tracking.record`).

`tracking.store` and `tracking.registry` import mlflow too, all of them lazily: it costs seconds.
"""

from __future__ import annotations

import getpass
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from synthdp import __version__
from synthdp.errors import GateError, OutputError
from synthdp.files import missing_folders, parse_json, read_text, write_private
from synthdp.spec.addresses import (
    check_uri,
    home,
    reason,
    shown_address,
    store_address,
    unreachable,
)
from synthdp.spec.load.loader import load_spec
from synthdp.spec.load.wording import up
from synthdp.spec.model import ReleaseSpec
from synthdp.tracking.note import (
    EXPERIMENT_NOTE,
    VIEW_TAG,
    AttackOutcome,
    PublicationVerdict,
    Status,
    note,
    public_params,
    run_name,
    view_state,
)
from synthdp.tracking.store import (
    declared,
    live,
    local_folder,
    log_dataset,
    mend,
    opened,
    put,
    quiet,
    register,
)


class MlflowTracker:
    """One release as one MLflow run."""

    def __init__(
        self,
        record: TrackingRecord,
        params: Mapping[str, str],
        *,
        uri: str,
        folder: Path,
        required: bool = True,
    ) -> None:
        """A tracker of one release into the store at `uri`.

        `folder` is the spec's; the artefacts lie there, unless a server keeps them. A store
        that is not `required` may stay closed.
        """
        self._record, self._params = record, params
        self._uri, self._folder, self._required = uri, folder, required
        self._client: Any = None  # none: the store does not answer
        self._id = self._experiment = ""
        self.warnings: list[str] = []

    def __enter__(self) -> MlflowTracker:
        """Open the run, or go on with it when the release is resumed.

        Raises:
            OutputError: the store cannot be reached, and nothing has been spent yet.
        """
        try:
            self._client, (self._experiment, self._id) = opened(self._uri, self._find)
        except Exception as error:  # whatever the client, a database or a network has to say of it
            if self._required:
                why, shown = reason(error), shown_address(self._uri)
                said = error.message if isinstance(error, OutputError) else why
                do = error.hint if isinstance(error, OutputError) else mend(self._uri, why)
                raise OutputError(
                    f"cannot open the MLflow store {shown}: {said}",
                    hint=f"{do}; or set tracking.enabled: false; nothing was spent",
                ) from None
            self._lose(error)
        self.params(self._params)
        self._log(
            "log the dataset",
            lambda: log_dataset(self._client, self._id, self._record.dataset, self._record.columns),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the run. Of an error only the kind is logged: its text may speak of rows."""
        status = _status(kind)

        def close() -> None:
            if kind is not None:
                self._client.set_tag(self._id, "error", kind.__name__)
            self._client.set_tag(self._id, "mlflow.note.content", self._note(status))
            self._client.update_run(self._id, name=self._name(status))
            self._client.set_terminated(self._id, status=status)

        self._log("close the run", close)

    def params(self, values: Mapping[str, str | int | float]) -> None:
        """Public settings. One that a resumed run already holds stays as it is."""
        new = {k: str(v)[:500] for k, v in values.items() if k not in self._record.params}
        self._record.params |= new

        def log() -> None:
            from mlflow.entities import Param

            have = self._client.get_run(self._id).data.params
            self._client.log_batch(
                self._id, params=[Param(k, v) for k, v in new.items() if k not in have]
            )

        self._log("log parameters", log)

    def metrics(self, values: Mapping[str, float]) -> None:
        """Figures; those that are not finite are left out."""
        finite = {k: float(v) for k, v in values.items() if math.isfinite(v)}
        self._record.metrics |= finite
        self._log("log metrics", lambda: self._log_metrics(self._id, finite))

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        """A file, or all files of a folder, under `folder` of the run's artefacts. Never rows."""
        self._record.files.append((str(path), folder))

        def log() -> None:
            send = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
            location = self._client.get_run(self._id).info.artifact_uri
            put(path, location, folder, partial(send, self._id, str(path), folder))

        self._log(f"store {path.name}", log)

    def attack(self, outcome: AttackOutcome) -> None:
        """Log an attack as a nested run, and its figures on the parent as attack_<metric>.

        The parent keeps the figures of the last attack.
        """
        self._record.attacks.append(outcome)

        def log() -> None:
            from mlflow.entities import Param

            if self._search({"mlflow.parentRunId": self._id, "attack": outcome.name}):
                return  # by a release that was tracked in part
            child = self._new_run(
                f"attack: {outcome.name}", {"mlflow.parentRunId": self._id, "attack": outcome.name}
            )
            self._client.log_batch(
                child, params=[Param(k, str(v)[:500]) for k, v in outcome.params.items()]
            )
            self._log_metrics(child, outcome.metrics)
            self._client.set_terminated(child)

        self._log(f"log attack {outcome.name}", log)
        self.metrics({f"attack_{k}": v for k, v in outcome.metrics.items()})

    def release(self, bundle: Path) -> None:
        """Log and register the model of a bundle that was published; never that of another."""
        self._record.bundle = str(bundle)
        self._log(
            "register the model",
            lambda: register(
                self._client, self._experiment, self._id, bundle, release=self._record.run
            ),
        )

    def conclude(self, verdict: PublicationVerdict) -> None:
        """What became of the release; shown in the runs list and at the head of the description."""
        self._record.verdict = verdict

        def log() -> None:
            gate, signed = "passed" if verdict.released else "withheld", verdict.signed
            self._client.set_tag(self._id, "gate", gate)
            self._client.set_tag(self._id, "signed", "yes" if signed else "no")

        self._log("log the verdict", log)

    def keep(self, out: Path) -> None:
        """Write everything that was to be logged into the release's folder, for `log_later`."""
        try:
            self._record.keep(out)
        except OSError as error:
            self.warnings.append(
                f"MLflow: cannot write what it is to be told later ({error.strerror})"
            )

    # --- inside ---

    def _find(self, client: Any) -> tuple[str, str]:
        """Experiment and run, made where they are missing."""
        self._client = client
        self._experiment = self._open_experiment()
        return self._experiment, self._open_run()

    def _open_experiment(self) -> str:
        name = self._record.experiment
        found = live(self._client.get_experiment_by_name(name), name)
        if found is None:
            # A database store would put artefacts into the working directory; a server knows its
            # own place.
            local = (
                None
                if self._uri.startswith("http")
                else (self._folder / "mlflow-artifacts").as_uri()
            )
            experiment = str(self._client.create_experiment(name, artifact_location=local))
        else:
            experiment, local = str(found.experiment_id), found.artifact_location
        if local is not None and (place := local_folder(local)) is not None:
            missing_folders(place)

        def save() -> None:
            self._client.set_experiment_tag(
                experiment, "mlflow.experimentKind", "custom_model_development"
            )
            self._client.set_experiment_tag(experiment, VIEW_TAG, json.dumps(view_state()))
            # What reviewers wrote there stays.
            if found is None or "mlflow.note.content" not in found.tags:
                self._client.set_experiment_tag(experiment, "mlflow.note.content", EXPERIMENT_NOTE)

        self._log("save the reviewers' view", save)
        return experiment

    def _open_run(self) -> str:
        mine = self._search({"synthdp.run": self._record.run})
        if mine:
            run = str(mine[0].info.run_id)
            self._client.update_run(run, status="RUNNING", name=self._name("RUNNING"))
            return run
        tags = {
            "synthdp.run": self._record.run,
            "synthdp.version": __version__,
            "dataset": self._record.dataset,
            "gate": "open",
            "mlflow.source.name": "synthdp release",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": _user(),
        }
        return self._new_run(self._name("RUNNING"), tags)

    def _search(self, tags: Mapping[str, str]) -> list[Any]:
        wanted = " and ".join(f"tags.`{k}` = '{v}'" for k, v in tags.items())
        return list(
            self._client.search_runs([self._experiment], filter_string=wanted, max_results=1)
        )

    def _new_run(self, name: str, tags: Mapping[str, str]) -> str:
        created = self._client.create_run(
            self._experiment, start_time=_now(), tags=dict(tags), run_name=name
        )
        return str(created.info.run_id)

    def _log_metrics(self, run: str, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        at = _now()
        self._client.log_batch(
            run,
            metrics=[
                Metric(k, _four_digits(k, v), at, 0) for k, v in values.items() if math.isfinite(v)
            ],
        )

    def _name(self, status: Status) -> str:
        record = self._record
        return run_name(record.dataset, self._params["epsilon"], record.verdict, status)

    def _note(self, status: Status) -> str:
        record = self._record
        return note(record.params, record.metrics, record.attacks, record.verdict, status=status)

    def _log(self, what: str, log: Callable[[], object]) -> None:
        """Call `log`, unless the store is lost; a failure becomes a warning.

        A Ctrl-C passes through.
        """
        if self._client is None:
            return
        try:
            with quiet():
                log()
        # Any client, network, database or disk error: the release matters more.
        except Exception as error:
            if unreachable(error):
                self._lose(error)
            else:
                self.warnings.append(f"MLflow: could not {what} ({type(error).__name__})")

    def _lose(self, error: Exception) -> None:
        """Ask it nothing more: each question would take its time to fail."""
        self._client = None
        why = error.message if isinstance(error, OutputError) else reason(error)
        self.warnings.append(f"MLflow: {shown_address(self._uri)} does not answer: {why}")


def _status(kind: type[BaseException] | None) -> Status:
    if kind is None or issubclass(kind, GateError):
        return "FINISHED"  # a withheld bundle is a finished release with a verdict
    return "FAILED" if issubclass(kind, Exception) else "KILLED"


def _four_digits(name: str, value: float) -> float:
    """A figure as reviewers read it; an epsilon is rounded up, so that it stays a bound."""
    if name.startswith("epsilon") and value > 0:
        return float(up(value, digits=max(0, 3 - math.floor(math.log10(value)))))
    return float(f"{value:.4g}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user on this machine, as in some containers
        return "unknown"


def _now() -> int:
    return int(time.time() * 1000)


# --- tracker ---
#
# What a release needs of tracking, and the tracker that its spec asks for.


class Tracker(Protocol):
    """What a release needs of tracking. A context: entering opens the run, leaving closes it."""

    warnings: list[str]

    def __enter__(self) -> Tracker: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def params(self, values: Mapping[str, str | int | float]) -> None: ...
    def metrics(self, values: Mapping[str, float]) -> None: ...
    def artifact(self, path: Path, *, folder: str | None = None) -> None: ...
    def attack(self, outcome: AttackOutcome) -> None: ...
    def release(self, bundle: Path) -> None: ...
    def conclude(self, verdict: PublicationVerdict) -> None: ...
    def keep(self, out: Path) -> None: ...


class NullTracker:
    """Tracking switched off."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def __enter__(self) -> NullTracker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to close."""

    def params(self, values: Mapping[str, str | int | float]) -> None:
        """Nothing."""

    def metrics(self, values: Mapping[str, float]) -> None:
        """Nothing."""

    def artifact(self, path: Path, *, folder: str | None = None) -> None:
        """Nothing."""

    def attack(self, outcome: AttackOutcome) -> None:
        """Nothing."""

    def release(self, bundle: Path) -> None:
        """Nothing."""

    def conclude(self, verdict: PublicationVerdict) -> None:
        """Nothing."""

    def keep(self, out: Path) -> None:
        """Nothing."""


def tracker(
    spec: ReleaseSpec,
    *,
    folder: Path,
    run: str,
    spec_path: Path | None = None,
    paid: bool = False,
) -> Tracker:
    """The tracker that the spec asks for.

    `folder` is the spec's, `run` the release's id; `paid` says that it has a reservation.

    Raises:
        OutputError: the tracking URI is of a kind that is not supported. Call this before anything
            is spent.
    """
    if not spec.tracking.enabled:
        return NullTracker()
    folder = folder.absolute()
    uri = store_address(spec.tracking.uri, folder)
    check_uri(uri)
    record = TrackingRecord(
        run=run,
        dataset=spec.dataset.id,
        experiment=spec.tracking.experiment,
        spec=str(spec_path or folder / "spec.yaml"),
        columns=declared(spec.columns),
    )
    return MlflowTracker(
        record,
        {k: str(v)[:500] for k, v in public_params(spec).items()},
        uri=uri,
        folder=folder,
        required=not paid,
    )


# --- record ---
#
# The record of one release for MLflow, as a file in the steward's folder.
#
# What MLflow did not get can be logged from it later.


FILE = Path("internal") / "tracking.json"  # in the release's output folder


@dataclass(kw_only=True)
class TrackingRecord:
    """What MLflow gets of one release.

    `spec` is the path of the spec, which names the store. The store's address is written nowhere:
    it may hold a password. `columns` are those that the spec declares (`store.declared`), and
    `bundle` is the folder of a released one.
    """

    run: str
    dataset: str
    experiment: str
    spec: str
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    attacks: list[AttackOutcome] = field(default_factory=list)
    files: list[tuple[str, str | None]] = field(default_factory=list)
    columns: list[tuple[str, str, bool]] = field(default_factory=list)
    bundle: str | None = None
    verdict: PublicationVerdict | None = None

    def keep(self, out: Path) -> None:
        """Write it into the output folder `out`, for the steward alone.

        Paths of files are relative to `out`.
        """

        def inside(path: str) -> str:
            return str(Path(path).absolute().relative_to(out.absolute()))

        files = [(inside(file), folder) for file, folder in self.files]
        bundle = None if self.bundle is None else inside(self.bundle)
        write_private(
            out / FILE,
            _ADAPTER.dump_json(
                _ADAPTER.validate_python(asdict(self) | {"files": files, "bundle": bundle}),
                indent=1,
            ).decode()
            + "\n",
        )

    @classmethod
    def kept(cls, out: Path) -> TrackingRecord:
        """Read the record in the output folder `out`.

        Raises:
            OutputError: there is none, or it was damaged.
        """
        try:
            return _ADAPTER.validate_python(parse_json(read_text(out / FILE)))
        except (FileNotFoundError, NotADirectoryError):
            raise OutputError(
                f"{out} holds nothing to log: there is no {FILE}",
                hint="give the output folder of a release with tracking",
            ) from None
        except (OSError, ValueError, ValidationError):
            raise OutputError(
                f"{out / FILE} is damaged",
                hint="the bundle and the report beside it are whole without it",
            ) from None


_ADAPTER = TypeAdapter(TrackingRecord)


# --- later ---
#
# `synthdp track`: what MLflow did not get of a release, logged from its record.


def log_later(out: Path, *, store: str | None = None) -> list[str]:
    """Log the release in `out`, of which MLflow did not get everything; returns the warnings.

    The store is `store`, or the one that the release's spec names by now.

    Raises:
        OutputError: there is nothing to log, or the store cannot be reached.
    """
    record = TrackingRecord.kept(out)
    spec_path = Path(record.spec)
    uri = store or store_address(load_spec(spec_path, lists=True).tracking.uri, home(spec_path))
    check_uri(uri)
    again = TrackingRecord(
        run=record.run,
        dataset=record.dataset,
        experiment=record.experiment,
        spec=record.spec,
        columns=record.columns,
    )
    with MlflowTracker(again, record.params, uri=uri, folder=home(spec_path)) as log:
        for attack in record.attacks:
            log.attack(attack)
        log.metrics(record.metrics)
        for file, folder in record.files:
            log.artifact(out / file, folder=folder)
        if record.bundle is not None:
            log.release(out / record.bundle)
        if record.verdict is not None:
            log.conclude(record.verdict)
    return log.warnings
