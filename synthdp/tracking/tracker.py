"""What a release needs of tracking, and the tracker that its spec asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

from synthdp.spec.addresses import check_uri, store_address
from synthdp.spec.model import ReleaseSpec
from synthdp.tracking.mlflow_run import MlflowTracker
from synthdp.tracking.note import AttackOutcome, PublicationVerdict, public_params
from synthdp.tracking.record import TrackingRecord
from synthdp.tracking.registry import declared


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
