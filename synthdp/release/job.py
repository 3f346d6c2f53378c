"""One run of `synthdp`: what is public about it, and its outcome."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from synthdp.bundle.certificate.audit_record import AuditRecord
from synthdp.bundle.signing.keys import Signer
from synthdp.data.domain import Domain
from synthdp.errors import GateError, OutputError, VerifyError
from synthdp.ledger.ledger import Ledger
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import Private
from synthdp.release.gates import GateVerdict
from synthdp.release.run_folder import RunFolder
from synthdp.spec.model import ReleaseSpec
from synthdp.verify.at_hand import published_entries


@dataclass(frozen=True)
class Job:
    """Everything public about one run."""

    spec: ReleaseSpec
    domain: Domain
    plan: ReleasePlan
    ledger: Ledger
    folder: RunFolder
    out: Path
    audit: AuditRecord | None = None
    given: Private[pd.DataFrame] | None = None
    signer: Signer | None = None

    @property
    def spent(self) -> ReleasePlan:
        """The part of the plan that was charged so far.

        A search may leave rounds unused, and a refuted graph is never trained on.

        It describes one outcome. What is guaranteed is the whole plan
        (`bundle.certificate.facts.guaranteed_epsilon`).
        """
        return self.plan.only(
            {
                e.body["purpose"]
                for e in self.ledger.run_entries(self.folder.run)
                if e.kind == "charge"
            }
        )

    @property
    def bundle(self) -> Path:
        """Where the public bundle goes."""
        return self.out / "bundle"

    @property
    def published(self) -> bool:
        """Whether the bundle that is there is this run's own: then nothing is published again."""
        return _is_of(self.bundle, self.folder.run)

    @property
    def internal(self) -> Path:
        """Where the steward's report goes."""
        return self.out / "internal"

    @property
    def spec_sha256(self) -> str:
        """Digest of the spec's text."""
        return hashlib.sha256(self.folder.spec_text.encode()).hexdigest()


def check_not_moved(folder: RunFolder, out: Path) -> None:
    """Check that a bundle which the run in `folder` has published is still in `out`.

    Rows that are drawn again are others, and a run publishes one table.

    Raises:
        OutputError: it is gone, or cannot be read.
    """
    bundle = out / "bundle"
    if folder.has_published and not _is_of(bundle, folder.run):
        raise OutputError(
            f"the bundle that run {folder.run} has published is no longer in {bundle}, and the run"
            " publishes no other; nothing more was spent",
            hint=(
                "bring it back as it was and give the command again; to draw other rows of its"
                " model, use `synthdp sample BUNDLE`"
            ),
        )


def _is_of(bundle: Path, run: str) -> bool:
    with suppress(VerifyError):
        return published_entries(bundle)[0].run == run
    return False


@dataclass(frozen=True)
class ReleaseOutcome:
    """What a run came to. `bundle` is None where a gate withheld it."""

    job: Job
    bundle: Path | None
    report: Path
    verdicts: tuple[GateVerdict, ...]
    metrics: dict[str, float]
    seconds: dict[str, float]
    warnings: tuple[str, ...]

    @property
    def failed(self) -> tuple[GateVerdict, ...]:
        """Gates that did not hold."""
        return tuple(v for v in self.verdicts if not v.passed)

    def check_passed(self) -> None:
        """Raise `GateError` where a gate withheld the bundle; the budget is spent all the same."""
        if self.failed:
            privacy = self.job.spec.privacy
            raise GateError(
                "the bundle is withheld: " + "; ".join(map(str, self.failed)),
                hint=f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} is spent, and another"
                f" release pays again; see {self.report}",
            )
