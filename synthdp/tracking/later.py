"""`synthdp track`: what MLflow did not get of a release, logged from its record."""

from __future__ import annotations

from pathlib import Path

from synthdp.spec.addresses import check_uri, home, store_address
from synthdp.spec.load.loader import load_spec
from synthdp.tracking.mlflow_run import MlflowTracker
from synthdp.tracking.record import TrackingRecord


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
