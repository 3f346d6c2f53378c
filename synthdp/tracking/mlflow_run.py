"""Releases in MLflow, for the steward's reviewers: one run per release, one nested run per attack.

What MLflow gets. As parameters, tags and text: settings from the spec. As a dataset: the names and
types of its columns. As metrics, of four digits: what was released, and figures of the internal
report on how near, how useful and how well attacked the table is (the metrics that gates know, and
the like). As files: the internal report, and the bundle's but for its rows. As a registered model:
that of a bundle whose gates passed (`store.register`). Never rows, and no count of real rows as a
value of its own: no number of rows, of misfits or of what was clamped, no minimum or maximum, no
digest of content. Only what callers pass here is logged, nothing automatic.

Tracking is never worth a release: once a run has paid, a failure of tracking is kept as a warning,
the release goes on, and `synthdp track OUT` logs later what is recorded (`log_later`).

`tracking.store` imports mlflow too, both of them lazily: it costs seconds.
"""

from __future__ import annotations

import getpass
import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal

from pydantic import TypeAdapter

from synthdp import __version__
from synthdp.bundle.certificate_text import template
from synthdp.errors import GateError, OutputError, SynthdpError
from synthdp.files import missing_folders, parse_json, read_text, write_private
from synthdp.spec.addresses import (
    check_uri,
    home,
    ledger_address,
    reason,
    shown_address,
    store_address,
    unreachable,
)
from synthdp.spec.load.loader import own_spec
from synthdp.spec.load.wording import up
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp.tracking.store import (
    STUDY,
    VIEW,
    VIEW_COLUMNS,
    VIEW_TAG,
    AttackOutcome,
    PublicationVerdict,
    Status,
    declared,
    live,
    local_folder,
    log_dataset,
    mend,
    note,
    opened,
    public_params,
    put,
    quiet,
    register,
    run_name,
)

FILE = Path("internal") / "tracking.json"  # in the release's output folder


def tracker(
    spec: ReleaseSpec | LinkedSpec,
    *,
    folder: Path,
    run: str,
    spec_path: Path | None = None,
    paid: bool = False,
    kind: Literal["release", "study"] = "release",
) -> Tracker:
    """The tracker that the spec asks for.

    `folder` is the spec's, `run` the release's id; `paid` says that it has a reservation. A study
    has no verdict.

    Raises:
        OutputError: the tracking URI is of a kind that is not supported. Call this before anything
            is spent.
    """
    if not spec.tracking.enabled:
        return Tracker()
    folder = folder.absolute()
    uri = store_address(spec.tracking.uri, folder)
    check_uri(uri)
    record = TrackingRecord(
        run=run,
        dataset=spec.dataset.id,
        experiment=spec.tracking.experiment,
        spec=str(spec_path or folder / "spec.yaml"),
        columns=_declared(spec),
        kind=kind,
    )
    params = {k: str(v)[:500] for k, v in public_params(spec).items()}
    return Tracker(record, params, uri=uri, folder=folder, required=not paid)


def _declared(spec: ReleaseSpec | LinkedSpec) -> list[tuple[str, str, bool]]:
    if not isinstance(spec, LinkedSpec):
        return declared(spec.columns)
    own = ((f"{table}.{name}", c) for table, cs in spec.columns.items() for name, c in cs.items())
    return declared(dict(own))


def log_later(out: Path, *, store: str | None = None) -> list[str]:
    """Log the release in `out`, of which MLflow did not get everything; returns the warnings.

    The store is `store`, or the one that the release's spec names by now.

    Raises:
        OutputError: there is nothing to log, or the store cannot be reached.
    """
    record = TrackingRecord.kept(out)
    spec_path = Path(record.spec)
    uri = store or store_address(own_spec(spec_path).tracking.uri, home(spec_path))
    check_uri(uri)
    again = replace(record, params={}, metrics={}, attacks=[], files=[], bundle=None, verdict=None)
    with Tracker(again, record.params, uri=uri, folder=home(spec_path)) as log:
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


def ledger_of(out: Path) -> str | None:
    """The address of the ledger that the spec of the release in `out` names, or has beside it.

    None where no record names a spec that can be read.
    """
    with suppress(SynthdpError):
        spec = Path(TrackingRecord.kept(out).spec)
        if spec.is_absolute() and spec.is_file():
            return ledger_address(own_spec(spec).privacy.ledger, home(spec))
    return None


def log_tags(out: Path, run: str, tags: Mapping[str, str]) -> list[str]:
    """Tag the run of the release in `out`, where it was tracked; returns the warnings."""
    from synthdp.tracking.server import existing

    again = "give the same command again, which records nothing twice"

    try:
        if not (out / FILE).exists() or (record := TrackingRecord.kept(out)).run != run:
            return []
        spec = Path(record.spec)
        uri = existing(store_address(own_spec(spec).tracking.uri, home(spec)))

        def tag(client: Any) -> bool:
            experiment = client.get_experiment_by_name(record.experiment)
            ids = [] if experiment is None else [experiment.experiment_id]
            named = f"tags.`synthdp.run` = '{run}'"
            runs = client.search_runs(ids, filter_string=named, max_results=1) if ids else []
            for name, text in tags.items() if runs else ():
                client.set_tag(runs[0].info.run_id, name, text)
            return bool(runs)

        if opened(uri, tag)[1]:
            return []
        return [f"MLflow has no run {run}: `synthdp track {out}` logs it; then {again}"]
    except Exception as error:  # whatever the client, a database or a network has to say of it
        why = error.message if isinstance(error, SynthdpError) else reason(error)
        return [f"MLflow was not told ({why}); {again}"]


@dataclass(kw_only=True)
class TrackingRecord:
    """What MLflow gets of one release, from which what it did not get can be logged later.

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
    kind: Literal["release", "study"] = "release"

    def keep(self, out: Path) -> None:
        """Write it into the output folder `out`, for the steward alone; paths relative to `out`."""

        def inside(path: str) -> str:
            return str(Path(path).absolute().relative_to(out.absolute()))

        plain = asdict(self) | {
            "files": [(inside(file), folder) for file, folder in self.files],
            "bundle": None if self.bundle is None else inside(self.bundle),
        }
        kept = _ADAPTER.dump_json(_ADAPTER.validate_python(plain), indent=1)
        write_private(out / FILE, f"{kept.decode()}\n")

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
        except (OSError, ValueError):  # pydantic's own error is a ValueError
            raise OutputError(
                f"{out / FILE} is damaged",
                hint="the bundle and the report beside it are whole without it",
            ) from None


_ADAPTER = TypeAdapter(TrackingRecord)


class Tracker:
    """One release as one MLflow run. A context: entering opens the run, leaving closes it."""

    def __init__(
        self,
        record: TrackingRecord | None = None,
        params: Mapping[str, str] = MappingProxyType({}),
        *,
        uri: str = "",
        folder: Path = Path(),
        required: bool = True,
    ) -> None:
        """A tracker of one release into the store at `uri`; without one it logs nothing.

        `folder` is the spec's; the artefacts lie there, unless a server keeps them. A store
        that is not `required` may stay closed.
        """
        self._record = record or TrackingRecord(run="", dataset="", experiment="", spec="")
        self._params = params
        self._uri, self._folder, self._required = uri, folder, required
        self._client: Any = None  # none: tracking is off, or the store does not answer
        self._id = self._experiment = ""
        self.warnings: list[str] = []

    def __enter__(self) -> Tracker:
        """Open the run, or go on with it when the release is resumed.

        Raises:
            OutputError: the store cannot be reached, and nothing has been spent yet.
        """
        if not self._uri:
            return self
        try:
            self._client, _ = opened(self._uri, self._begin)
        except Exception as error:  # whatever the client, a database or a network has to say of it
            if self._required:
                said, do = reason(error), mend(self._uri, reason(error))
                if isinstance(error, OutputError):
                    said, do = error.message, error.hint or ""
                raise OutputError(
                    f"cannot open the MLflow store {shown_address(self._uri)}: {said}",
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
        record = self._record
        status: Status = "FINISHED"  # a withheld bundle is a finished release with a verdict
        if kind is not None and not issubclass(kind, GateError):
            status = "FAILED" if issubclass(kind, Exception) else "KILLED"

        def close() -> None:
            if kind is not None:
                self._client.set_tag(self._id, "error", kind.__name__)
            facts = (record.params, record.metrics, record.attacks, record.verdict)
            told = note(*facts, status=status) if record.kind == "release" else STUDY
            self._client.set_tag(self._id, "mlflow.note.content", told)
            self._client.update_run(self._id, name=self._name(status))
            self._client.set_terminated(self._id, status=status)

        self._log("close the run", close)

    def params(self, values: Mapping[str, str | int | float]) -> None:
        """Public settings. One that a resumed run already holds stays as it is."""
        new = {k: str(v)[:500] for k, v in values.items() if k not in self._record.params}
        self._record.params |= new

        def log() -> None:
            have = self._client.get_run(self._id).data.params
            self._log_batch(self._id, params={k: v for k, v in new.items() if k not in have})

        self._log("log parameters", log)

    def metrics(self, values: Mapping[str, float]) -> None:
        """Figures; those that are not finite are left out."""
        finite = {k: float(v) for k, v in values.items() if math.isfinite(v)}
        self._record.metrics |= finite
        self._log("log metrics", lambda: self._log_batch(self._id, metrics=finite))

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
            tags = {"mlflow.parentRunId": self._id, "attack": outcome.name}
            if self._search(tags):
                return  # by a release that was tracked in part
            child = self._new_run(f"attack: {outcome.name}", tags)
            params = {k: str(v)[:500] for k, v in outcome.params.items()}
            self._log_batch(child, params=params, metrics=outcome.metrics)
            self._client.set_terminated(child)

        self._log(f"log attack {outcome.name}", log)
        self.metrics({f"attack_{k}": v for k, v in outcome.metrics.items()})

    def release(self, bundle: Path) -> None:
        """Log and register the model of a bundle that was published; never that of another."""
        self._record.bundle, run = str(bundle), self._record.run
        self._log(
            "register the model",
            lambda: register(self._client, self._experiment, self._id, bundle, release=run),
        )

    def conclude(self, verdict: PublicationVerdict) -> None:
        """What became of the release; shown in the runs list and at the head of the description."""
        self._record.verdict = verdict

        def log() -> None:
            gate = "passed" if verdict.released else "withheld"
            if any(told.endswith("noise decided") for told in verdict.gates):
                gate += "; noise decided"
            self._client.set_tag(self._id, "gate", gate)
            self._client.set_tag(self._id, "signed", "yes" if verdict.signed else "no")

        self._log("log the verdict", log)

    def keep(self, out: Path) -> None:
        """Write everything that was to be logged into the release's folder, for `log_later`."""
        try:
            if self._uri:
                self._record.keep(out)
        except OSError as error:
            what = f"cannot write what it is to be told later ({error.strerror})"
            self.warnings.append(f"MLflow: {what}")

    # --- inside ---

    def _begin(self, client: Any) -> None:
        """Find experiment and run, or make what is missing."""
        self._client, record = client, self._record
        self._experiment = self._open_experiment()
        mine = self._search({"synthdp.run": record.run})
        if mine:
            self._id = str(mine[0].info.run_id)
            self._client.update_run(self._id, status="RUNNING", name=self._name("RUNNING"))
            return
        try:
            user = getpass.getuser()
        except (KeyError, OSError, ImportError):  # no such user here, as in some containers
            user = "unknown"
        tags = {
            "synthdp.run": record.run,
            "synthdp.version": __version__,
            "dataset": record.dataset,
            **({"gate": "open"} if record.kind == "release" else {}),
            "mlflow.source.name": f"synthdp {record.kind}",
            "mlflow.source.type": "LOCAL",
            "mlflow.user": user,
        }
        self._id = self._new_run(self._name("RUNNING"), tags)

    def _open_experiment(self) -> str:
        name, client = self._record.experiment, self._client
        found = live(client.get_experiment_by_name(name), name)
        if found is not None:
            experiment, local = str(found.experiment_id), found.artifact_location
        else:
            # A database store would put artefacts into the working directory; a server knows its
            # own place.
            place = None if self._uri.startswith("http") else self._folder / "mlflow-artifacts"
            local = place.as_uri() if place else None
            experiment = str(client.create_experiment(name, artifact_location=local))
        if local is not None and (place := local_folder(local)) is not None:
            missing_folders(place)

        def save() -> None:
            state = json.dumps({"selectedColumns": VIEW_COLUMNS})  # the rest as MLflow has it
            tags = {"mlflow.experimentKind": "custom_model_development", VIEW_TAG: state}
            # What reviewers wrote there stays.
            if found is None or "mlflow.note.content" not in found.tags:
                tags["mlflow.note.content"] = template("experiment.md.j2").render(view=VIEW)
            for tag, value in tags.items():
                client.set_experiment_tag(experiment, tag, value)

        self._log("save the reviewers' view", save)
        return experiment

    def _search(self, tags: Mapping[str, str]) -> list[Any]:
        wanted = " and ".join(f"tags.`{k}` = '{v}'" for k, v in tags.items())
        return [*self._client.search_runs([self._experiment], filter_string=wanted, max_results=1)]

    def _new_run(self, name: str, tags: Mapping[str, str]) -> str:
        run = self._client.create_run(
            self._experiment, start_time=int(time.time() * 1000), tags=dict(tags), run_name=name
        )
        return str(run.info.run_id)

    def _log_batch(
        self,
        run: str,
        *,
        params: Mapping[str, str] = MappingProxyType({}),
        metrics: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        from mlflow.entities import Metric, Param

        at = int(time.time() * 1000)
        self._client.log_batch(
            run,
            params=[Param(k, v) for k, v in params.items()],
            metrics=[
                Metric(k, _four_digits(k, v), at, 0) for k, v in metrics.items() if math.isfinite(v)
            ],
        )

    def _name(self, status: Status) -> str:
        record = self._record
        named = run_name(record.dataset, self._params["epsilon"], record.verdict, status)
        return named if record.kind == "release" else named.replace("no verdict", record.kind)

    def _log(self, what: str, log: Callable[[], object]) -> None:
        """Call `log`, unless the store is lost; a failure becomes a warning. A Ctrl-C passes
        through.
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


def _four_digits(name: str, value: float) -> float:
    """A figure as reviewers read it; an epsilon is rounded up, so that it stays a bound."""
    if name.startswith("epsilon") and value > 0:
        return float(up(value, digits=max(0, 3 - math.floor(math.log10(value)))))
    return float(f"{value:.4g}")
