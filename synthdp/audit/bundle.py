"""`synthdp audit BUNDLE`: everything that its recipient can audit, without a row of the source.

The bundle is verified. Its plan is replayed from its spec. Its noisy tables are compared with each
other, since they all count the same rows. Unless only a replay is asked for, the worst-case audits
run as well, and canaries and the membership attack run on rows drawn from its model. What needs the
real rows stays with the steward.
"""

from __future__ import annotations

from pathlib import Path

from synthdp.audit.folder import AttackFolder, audit_folder
from synthdp.audit.plan import PAIRS, RUNS, AuditJob, with_rows, without_rows, write_record
from synthdp.audit.simulate import simulated_twin, twin_units
from synthdp.bundle.certificate.audit_record import PUBLIC_FILE, AuditRecord
from synthdp.bundle.noisy_tables import read_tables
from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.files import parse_json, read_text
from synthdp.model.planning import plan_for
from synthdp.progress import Reporter
from synthdp.spec.load.loader import load_spec
from synthdp.verify.checks import verify_bundle
from synthdp.verify.noise import noise_of

NEEDS_ROWS = (
    "Not audited here, for want of the source's rows: canaries among them, and the membership of"
    " real rows. Whoever has them runs `synthdp audit SPEC` with the spec that made this bundle;"
    " the result is for the steward alone."
)
FALSE_ALARMS = 1e-3  # of the test on noisy tables; it cannot be repeated on new noise


def audit_bundle(
    folder: Path,
    *,
    replay_only: bool,
    out: Path | None = None,
    runs: int = RUNS,
    pairs: int = PAIRS,
    reporter: Reporter | None = None,
) -> tuple[AuditRecord, Path]:
    """Audit the bundle in `folder`; return the record and the file that holds it.

    The file is by default `audits/<dataset id>/audit.json`.

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
        domain, out = Domain.from_spec(spec.columns), out or Path("audits") / spec.dataset.id
        job = AuditJob(spec, domain, plan_for(spec, domain), out, reporter)
    with audit_folder(job.out, "bundle") as kept:
        record = _without_source(folder, job, kept, replay_only=replay_only, runs=runs, pairs=pairs)
        return record, write_record(record, job.out / PUBLIC_FILE)


def _without_source(
    folder: Path, job: AuditJob, kept: AttackFolder, *, replay_only: bool, runs: int, pairs: int
) -> AuditRecord:
    """All audits that need no row of the source."""
    record = without_rows(job, "none" if replay_only else "simulated", runs=runs, pairs=pairs)
    ledger = parse_json(read_text(folder / "privacy" / "ledger.json"))
    charges = [entry["body"] for entry in ledger["entries"] if entry["kind"] == "charge"]
    if not record.covers((charge["purpose"], charge["event"]) for charge in charges):
        hint = f"audit it with the version of synthdp that made it; this is {record.program}"
        raise OutputError(
            f"the spec in {folder} plans other spends here than its ledger charged", hint=hint
        )
    tables = noise_of(read_tables(folder), false_alarms=FALSE_ALARMS)
    record = record.model_copy(update={"tables": tables})
    if replay_only:
        return record
    twin = simulated_twin(job.spec, job.domain, bundle=folder, rng=kept.coins("twin"))
    return with_rows(job, record, twin, kept, twin_units(job.spec, twin))
