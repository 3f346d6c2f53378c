"""One run of `synthdp`: what is public about it, its outcome, how its spec may be amended, and its
synthetic table, drawn and scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from synthdp.bundle.audit_record import AuditRecord, public_audit
from synthdp.bundle.descriptions import published_sha256
from synthdp.bundle.noisy_values import PublishedWave
from synthdp.bundle.signing import Signer, load_signer
from synthdp.bundle.table_files import CSV_NAME
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, cleaned, encode
from synthdp.errors import BudgetError, GateError, OutputError, VerifyError
from synthdp.evaluate.dp_scores import DpScores, dp_scores_of, score_table
from synthdp.files import text_sha256
from synthdp.graph.prior import PublicRows
from synthdp.ledger.connect import steward_name
from synthdp.ledger.ledger import Ledger
from synthdp.model.constraints import Constraints
from synthdp.model.fit import Fitted
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import SCORES, ReleasePlan
from synthdp.privacy.private import Private, Released
from synthdp.privacy.session import Session
from synthdp.progress import stage
from synthdp.release import run_folder
from synthdp.release.gates import GateVerdict, check_simulated
from synthdp.release.prior import with_digest
from synthdp.release.run_folder import RunFolder
from synthdp.report.prose import estimated, say_of_plan
from synthdp.spec.amendment import amendment
from synthdp.spec.load.loader import own_text, parse_spec
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp.verify.at_hand import published_entries

PUBLIC_QUALITY = {
    "tv1_noisy": "single columns {} from the noisy counts (total variation)",
    "tv1_dp": "{} from the real ones, measured under privacy",
    "tv2_dp": "pairs of columns {} from the real ones, measured under privacy",
    "tstr_accuracy_dp": "models are right on a share of {} of real rows, measured under privacy",
}


@dataclass(frozen=True)
class Job:
    """Everything public about one run; `expected` is what `synthdp plan` says, where it begins, and
    `waves` are those before.
    """

    spec: ReleaseSpec
    domain: Domain
    plan: ReleasePlan
    ledger: Ledger
    folder: RunFolder
    out: Path
    audit: AuditRecord | None = None
    given: Private[pd.DataFrame] | None = None
    signer: Signer | None = None
    expected: Mapping[str, Any] | None = None
    prior: PublicRows | None = None
    waves: tuple[PublishedWave, ...] = ()

    @property
    def spent(self) -> ReleasePlan:
        """The part of the plan that was charged so far.

        A search may leave rounds unused, and a refuted graph is never trained on. It describes one
        outcome. What is guaranteed is the whole plan (`bundle.certificate.guaranteed_epsilon`).
        """
        entries = self.ledger.run_entries(self.folder.run)
        return self.plan.only({e.body["purpose"] for e in entries if e.kind == "charge"})

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
        return text_sha256(self.folder.spec_text)

    @property
    def written(self) -> ReleaseSpec | LinkedSpec:
        """The spec as it is written."""
        return self.spec


def how_to(do: Literal["resume", "attack"], spec: ReleaseSpec, out: Path) -> str:
    """What continues a run of `spec` in `out`, or runs the attack that it has put off."""
    if spec.dataset.source.kind == "dataframe":
        return f"`synthdp.{do}({str(out)!r}, df)` in Python, with the same rows,"
    return f"`synthdp {do} {out}`"


def withhold(job: Job, *, by: str, why: str) -> None:
    """Write into the ledger that there will be no bundle of a settled run."""
    job.ledger.decide(
        job.spec.dataset.id, job.folder.run, bundle_sha256="", answer="no", by=by, why=why[:2000]
    )


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
    verdicts: tuple[GateVerdict, ...] = field(repr=False)
    metrics: dict[str, float] = field(repr=False)
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
            alone = "on real rows; its figure is in the internal report alone"  # logs are kept
            told = (
                f"{v.gate.metric}: needs {v.gate.bound} {alone}"
                if v.gate.outside_guarantee
                else str(v)
                for v in self.failed
            )
            raise GateError(
                "the bundle is withheld: " + "; ".join(told),
                hint=f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} is spent, and another"
                f" release pays again; see {self.report}",
            )

    def to_json(self) -> dict[str, Any]:
        """As JSON, without any confidential figure."""
        plan = self.job.plan
        return {
            "run": self.job.folder.run,
            "bundle": None if self.bundle is None else str(self.bundle),
            "internal_report": str(self.report),
            "epsilon": plan.epsilon,
            "epsilon_planned": plan.epsilon_spent,
            "epsilon_spent": self.job.spent.epsilon_spent,
            "delta": plan.delta,
            "quality": {
                name: self.metrics[name]
                for figure in PUBLIC_QUALITY
                for name in (figure, f"{figure}_low", f"{figure}_high")
                if name in self.metrics
            },
            "gates": [
                {"metric": v.gate.metric, "bound": v.gate.bound, "passed": v.passed}
                for v in self.verdicts
            ],
            "seconds": self.seconds,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        quality = quality_of(self.metrics)
        return say_of_plan("outcome", outcome=self, plan=self.job.plan, quality=quality)


def quality_of(metrics: Mapping[str, float]) -> str:
    """How good a table is, by those figures of a run that are public or were paid for."""
    told = []
    for name, text in PUBLIC_QUALITY.items():
        ends = [metrics[f"{name}_{end}"] for end in ("low", "high") if f"{name}_{end}" in metrics]
        if name in metrics:
            value = metrics[name]
            told.append(text.format(estimated(value, *ends) if ends else f"{value:.2g}"))
    paid = any(name.endswith("_dp_low") for name in metrics)
    return say_of_plan("quality", told=told, pairs="tv2_dp" in metrics, intervals=paid)


# --- a run that goes on by another spec ---


def amended(folder: RunFolder, ledger: Ledger, spec_path: Path, *, out: Path) -> RunFolder:
    """The run in `folder`, which continues by the spec at `spec_path`, without paying.

    Only what is done with released values may differ (`spec.amendment`). The amendment is written
    to the ledger first, durably, and then to the run's folder: a run that is killed in between says
    so when it is resumed (`check_spec`). Paths in the new spec are still relative to the folder of
    the run's first one.

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
        if changed or _spec_of(ledger, folder) != text_sha256(text):
            body = {
                "by": steward_name(),
                "spec_sha256": text_sha256(text),
                "changed": list(changed),
            }
            published = with_digest(new, folder.spec_path.parent)
            body |= {"published_sha256": published_sha256(published)}
            ledger.amend(new.dataset.id, folder.run, body=body, after=entries[-1].hash)
    return run_folder.respecified(folder, text)


def check_spec(folder: RunFolder, ledger: Ledger) -> None:
    """Check that the run's folder holds the spec that the ledger names last.

    Raises:
        OutputError: it does not.
    """
    if _spec_of(ledger, folder) not in (None, text_sha256(folder.spec_text)):
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
    entries = (e for e in ledger.run_entries(folder.run) if e.kind in ("reserve", "amend"))
    return next((e.body.get("spec_sha256") for e in reversed([*entries])), None)


# --- the synthetic table ---


@dataclass(frozen=True)
class DrawnTable:
    """The synthetic table as levels and as values, and its DP scores where the spec asks for them.

    `codes` is `[rows, columns]`; `synthetic` has the same rows, without the derived columns.
    """

    codes: Released[Codes]
    synthetic: Released[pd.DataFrame]
    constraints: Constraints
    scores: Released[DpScores] | None


def draw(session: Session, job: Job, fitted: Fitted) -> DrawnTable:
    """Sample the table, pay for its scores where the spec asks for them, and decode it.

    A run that has published its table is only to be judged: its table is read in the bundle.
    """
    constraints = Constraints.from_spec(job.spec, fitted.drawn_from(job.domain))

    def decoded() -> Released[pd.DataFrame]:
        return codes.map(lambda c: constraints.decode(c, rng=fresh_generator()))

    with stage("sample") as progress:
        read = fitted.tables.map(lambda _: _read(job)) if job.published else None
        if read is None:
            begin, rng = partial(progress, 0, 0), fresh_generator()
            codes = sample(fitted, job.spec, rng=rng, progress=progress, begin=begin)
        else:
            codes = read.map(lambda frame: encode(job.domain, frame)[0])
        if not job.spec.evaluation.dp_scores:
            return DrawnTable(codes, decoded() if read is None else read, constraints, None)
    with stage("score under privacy"):
        codes, scores = pay_for_scores(session, job, fitted, codes)
    with stage("write values"):  # what was scored
        return DrawnTable(codes, decoded() if read is None else read, constraints, scores)


def pay_for_scores(
    session: Session, job: Job, fitted: Fitted, codes: Released[Codes]
) -> tuple[Released[Codes], Released[DpScores]]:
    """Look at the real rows for the DP scores of a table, which the budget pays for.

    Returns the table that the scores describe, and the scores. A resumed run drew another table
    than the one that was scored before it was interrupted: what was scored is published.
    """
    scored = score_table(session, job.spec, job.domain, codes)
    scores = scored.zip(fitted.tables).map(lambda pair: dp_scores_of(job.spec, job.domain, *pair))
    same = np.array_equal(codes.value, scored.value.codes)
    return (codes if same else scored.map(lambda s: s.codes)), scores


def _read(job: Job) -> pd.DataFrame:
    """The values of the published table, as `Constraints.decode` gave them."""
    domain = job.domain
    text = pd.read_csv(job.bundle / CSV_NAME, dtype=str, keep_default_na=False)
    text = text[list(domain.names)]
    return cleaned(domain.columns, encode(domain, text.mask(text == ""))[1])
