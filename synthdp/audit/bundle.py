"""`synthdp audit BUNDLE`: all that can be audited of a release by whoever holds it, without a
single row of its source.

Verified; its plan replayed from its own spec; its noisy tables held against each other, since they
all count the same rows; and, unless only a replay is asked for, the worst-case audits, and canaries
and the membership attack on rows drawn from its model. What needs the real rows stays with the
steward.
"""

from __future__ import annotations

from pathlib import Path

from synthdp.audit.folder import AttackFolder, audit_folder
from synthdp.audit.plan import PAIRS, RUNS, AuditJob, with_rows, without_rows, write_record
from synthdp.audit.simulate import simulated_twin
from synthdp.bundle.certificate.audit_record import PUBLIC_FILE, AuditRecord
from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.files import parse_json, read_text
from synthdp.model.planning import plan_for
from synthdp.progress import Reporter
from synthdp.spec.load.loader import load_spec
from synthdp.verify.checks import verify_bundle
from synthdp.verify.noise import noise_of, published_tables

NEEDS_ROWS = (
    "Not audited here, for want of the source's rows: canaries among them, and the membership of"
    " real rows. Whoever has them runs `synthdp audit SPEC` with the spec that made this bundle;"
    " the result is for the steward alone."
)
FALSE_ALARMS = (
    1e-3  # of the test on noisy tables, which cannot be repeated: the tables are as they are
)


def audit_bundle(
    folder: Path,
    *,
    replay_only: bool,
    out: Path | None = None,
    runs: int = RUNS,
    pairs: int = PAIRS,
    reporter: Reporter | None = None,
) -> tuple[AuditRecord, Path]:
    """Audit the bundle in `folder`; returns what was found and the file that holds it, by default
    `audits/<dataset id>/audit.json`.

    Args:
        replay_only: leaves out what takes many runs or trainings.
        runs, pairs: as for the audit of a spec.

    Raises:
        VerifyError: it is no bundle, or not what it claims to be.
        OutputError: this version of the program plans other spends than were charged.
    """
    reporter = reporter or Reporter()
    with reporter.stage("verify"):
        verify_bundle(folder)
    with reporter.stage("plan"):
        spec = load_spec(folder / "spec.yaml")
        domain = Domain.from_spec(spec.columns)
        job = AuditJob(
            spec,
            domain,
            plan_for(spec, domain),
            out or Path("audits") / spec.dataset.id,
            reporter,
        )
    with audit_folder(job.out, "bundle") as kept:
        record = _without_source(folder, job, kept, replay_only=replay_only, runs=runs, pairs=pairs)
        return record, write_record(record, job.out / PUBLIC_FILE)


def _without_source(
    folder: Path, job: AuditJob, kept: AttackFolder, *, replay_only: bool, runs: int, pairs: int
) -> AuditRecord:
    """All that needs no row of the source."""
    record = without_rows(job, "none" if replay_only else "simulated", runs=runs, pairs=pairs)
    charges = [
        e["body"]
        for e in parse_json(read_text(folder / "privacy" / "ledger.json"))["entries"]
        if e["kind"] == "charge"
    ]
    if not record.covers((charge["purpose"], charge["event"]) for charge in charges):
        hint = f"audit it with the version of synthdp that made it; this is {record.program}"
        raise OutputError(
            f"the spec in {folder} plans other spends here than its ledger charged", hint=hint
        )
    record = record.model_copy(
        update={"tables": noise_of(published_tables(folder), false_alarms=FALSE_ALARMS)}
    )
    if not replay_only:
        record = with_rows(
            job,
            record,
            simulated_twin(job.spec, job.domain, bundle=folder, rng=kept.coins("twin")),
            kept,
        )
    return record
