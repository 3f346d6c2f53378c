"""`synthdp audit BUNDLE`: all that can be audited of a release by whoever holds it, without a single row of its source.

Verified; its plan replayed from its own spec; its noisy tables held against each other, since they all count the same rows; and, unless only
a replay is asked for, the worst-case audits, and canaries and the membership attack on rows drawn from its model. What needs the real rows
stays with the steward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from synthdp.attack_folder import AttackFolder, audit_folder
from synthdp.audit import PAIRS, RUNS, AuditJob, with_rows, without_rows, write_record
from synthdp.bundle.audit_record import PUBLIC_FILE, AuditRecord, TableNoise
from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.model.pipeline import plan_for
from synthdp.privacy.mechanisms import NoisyTable
from synthdp.reporter import Reporter
from synthdp.spec.load import load_spec
from synthdp.twin import simulated_twin
from synthdp.untrusted import parse_json, read_text
from synthdp.verify import verify_bundle

NEEDS_ROWS = (
    "Not audited here, for want of the source's rows: canaries among them, and the membership of real rows. Whoever has them runs "
    "`synthdp audit SPEC` with the spec that made this bundle; the result is for the steward alone."
)
FALSE_ALARMS = 1e-3  # of the test on noisy tables, which cannot be repeated: the tables are as they are
MOST_CELLS = 4000  # of all tables that are compared

Floats = npt.NDArray[np.float64]


def audit_bundle(
    folder: Path, *, replay_only: bool, out: Path | None = None, runs: int = RUNS, pairs: int = PAIRS, reporter: Reporter | None = None
) -> tuple[AuditRecord, Path]:
    """Audit the bundle in `folder`; returns what was found and the file that holds it, by default `audits/<dataset id>/audit.json`.

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
        release = load_spec(folder / "spec.yaml")
        domain = Domain.from_spec(release.columns)
        job = AuditJob(release, domain, plan_for(release, domain), out or Path("audits") / release.dataset.id, reporter)
    with audit_folder(job.out, "bundle") as kept:
        record = _without_source(folder, job, kept, replay_only=replay_only, runs=runs, pairs=pairs)
        return record, write_record(record, job.out / PUBLIC_FILE)


def _without_source(folder: Path, job: AuditJob, kept: AttackFolder, *, replay_only: bool, runs: int, pairs: int) -> AuditRecord:
    """All that needs no row of the source."""
    record = without_rows(job, "none" if replay_only else "simulated", runs=runs, pairs=pairs)
    charges = [e["body"] for e in parse_json(read_text(folder / "privacy" / "ledger.json"))["entries"] if e["kind"] == "charge"]
    if not record.covers((charge["purpose"], charge["event"]) for charge in charges):
        hint = f"audit it with the version of synthdp that made it; this is {record.program}"
        raise OutputError(f"the spec in {folder} plans other spends here than its ledger charged", hint=hint)
    record = record.model_copy(update={"tables": noise_of(published_tables(folder))})
    if not replay_only:
        record = with_rows(job, record, simulated_twin(job.release, job.domain, bundle=folder, rng=kept.coins("twin")), kept)
    return record


def published_tables(folder: Path) -> tuple[NoisyTable, ...]:
    """The noisy tables of a verified bundle."""
    stated = parse_json(read_text(folder / "marginals.json"))["tables"]
    return tuple(NoisyTable(tuple(t["columns"]), np.asarray(t["counts"], dtype=np.float64).reshape(t["shape"]), float(t["sigma"])) for t in stated)


def noise_of(tables: Sequence[NoisyTable]) -> TableNoise | None:
    """Whether tables that count the same rows differ by as much as their noise says; None where nothing can be compared.

    Totals of one-way tables, and each margin of a table over several columns less the one-way table of that column, are noise alone: whatever
    the counts are, they cancel. [Derived here: these contrasts are A e for independent noise e of known variances, so y' (A D A')^+ y is
    chi-square with rank(A) degrees; sums of discrete Gaussians are taken for normal.] Tables beyond `MOST_CELLS` in all are left out.
    """
    single = {t.columns[0]: t for t in tables if len(t.columns) == 1}
    used, cells = list(single.values()), sum(t.counts.size for t in single.values())
    for table in (t for t in tables if len(t.columns) > 1 and set(t.columns) <= set(single)):
        cells += table.counts.size
        used += [table] if cells <= MOST_CELLS else []
    starts = dict(zip(map(id, used), np.cumsum([0, *(t.counts.size for t in used)]), strict=False))
    size = sum(t.counts.size for t in used)
    contrasts = [*_totals(list(single.values()), starts, size), *(c for t in used if len(t.columns) > 1 for c in _margins(t, single, starts, size))]
    if not contrasts:
        return None
    design = np.stack(contrasts)
    seen, variances = (np.concatenate([np.ravel(own) for own in part]) for part in ([t.counts for t in used], [_variance(t) for t in used]))
    values, vectors = np.linalg.eigh((design * variances) @ design.T)
    kept = values > values[-1] * 1e-9
    square, degrees = float((((vectors.T @ (design @ seen))[kept]) ** 2 / values[kept]).sum()), int(kept.sum())
    p_less, p_more = chi2.cdf(square, degrees), chi2.sf(square, degrees)
    return TableNoise(
        tables=len(used),
        comparisons=degrees,
        share=square / degrees,
        too_little=bool(p_less < FALSE_ALARMS / 2),
        too_much=bool(p_more < FALSE_ALARMS / 2),
    )


def _variance(table: NoisyTable) -> Floats:
    return np.full(table.counts.shape, table.sigma**2)


def _totals(single: Sequence[NoisyTable], starts: Mapping[int, int], size: int) -> Iterator[Floats]:
    """The total of each one-way table less that of the first."""
    for table in single[1:]:
        row = np.zeros(size)
        row[starts[id(table)] :][: table.counts.size] = 1
        row[starts[id(single[0])] :][: single[0].counts.size] = -1
        yield row


def _margins(table: NoisyTable, single: Mapping[str, NoisyTable], starts: Mapping[int, int], size: int) -> Iterator[Floats]:
    """Each level of each margin less its one-way count."""
    for axis, name in enumerate(table.columns):
        level_of = np.ravel(np.indices(table.counts.shape)[axis])
        for level in range(table.counts.shape[axis]):
            row = np.zeros(size)
            row[starts[id(table)] :][: table.counts.size] = level_of == level
            row[starts[id(single[name])] + level] = -1
            yield row
