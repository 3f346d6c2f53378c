"""Continue a run by another spec, without paying.

Only what is done with released values may differ (`spec.amendment`).

The amendment is written to the ledger first, durably, and then to the run's folder. A run that is
killed in between says so when it is resumed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from synthdp.bundle.certificate.audit_record import public_audit
from synthdp.bundle.metadata.readme import published_sha256
from synthdp.bundle.signing.keys import load_signer
from synthdp.data.domain import Domain
from synthdp.errors import BudgetError, OutputError
from synthdp.ledger.connect import steward_name
from synthdp.ledger.ledger import Ledger
from synthdp.model.planning import plan_for
from synthdp.privacy.plan import SCORES
from synthdp.release import run_folder
from synthdp.release.gates import check_simulated
from synthdp.release.run_folder import RunFolder
from synthdp.spec.amendment import amendment
from synthdp.spec.load.loader import own_text, parse_spec


def amended(folder: RunFolder, ledger: Ledger, spec_path: Path, *, out: Path) -> RunFolder:
    """The run in `folder`, which continues by the spec at `spec_path`.

    Paths in the new spec are still relative to the folder of the run's first one.

    Raises:
        SpecError: the spec has mistakes, or changes what the run was paid for; every such field is
            named, with both values.
        BudgetError: it would change the plan, or the run is over.
        OutputError, GateError: its gates or its key cannot be used.
    """
    text = own_text(spec_path)
    old = parse_spec(folder.spec_text, path=str(folder.spec_path))
    new = parse_spec(text, path=str(spec_path))
    entries = ledger.run_entries(folder.run)
    scored = any(e.kind == "charge" and e.body["purpose"] == SCORES for e in entries)
    changed = amendment(old, new, text, path=str(spec_path), scored=scored)
    load_signer(new.signing)
    plan = plan_for(new, Domain.from_spec(new.columns))
    check_simulated(new.gates, public_audit(out, plan))
    if any(e.kind == "reserve" for e in entries):
        if {plan.digest} != {e.body.get("plan_sha256") for e in entries if e.kind == "reserve"}:
            raise BudgetError(
                f"{spec_path} would change what run {folder.run} has planned",
                hint="resume it without --spec, or start a new release",
            )
        if changed or _spec_of(ledger, folder) != _digest(text):
            body = {"by": steward_name(), "spec_sha256": _digest(text), "changed": list(changed)}
            body |= {"published_sha256": published_sha256(new)}
            ledger.amend(new.dataset.id, folder.run, body=body, after=entries[-1].hash)
    return run_folder.respecified(folder, text)


def check_spec(folder: RunFolder, ledger: Ledger) -> None:
    """Check that the run's folder holds the spec that the ledger names last.

    Raises:
        OutputError: it does not.
    """
    if _spec_of(ledger, folder) not in (None, _digest(folder.spec_text)):
        raise OutputError(
            f"the ledger holds another spec of run {folder.run} than its folder: it was stopped"
            " while its spec was changed, or its folder is damaged",
            hint=(
                f"give the changed spec again: `synthdp resume {folder.path.parent} --spec NEW`;"
                " nothing is paid again"
            ),
        )


def _spec_of(ledger: Ledger, folder: RunFolder) -> str | None:
    """Digest of the spec that the ledger names last; None where nothing was reserved."""
    digests = [
        e.body.get("spec_sha256")
        for e in ledger.run_entries(folder.run)
        if e.kind in ("reserve", "amend")
    ]
    return digests[-1] if digests else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
