"""A release from spec to bundle: plan -> reserve -> measure -> graph -> train -> sample -> (score)
-> judge -> bundle.

`run` reads like the README; each stage is one call. Nothing is spent before everything that can be
checked without rows has been checked, and the rows fit the spec.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from synthdp.audit.membership import check_cluster
from synthdp.bundle.certificate.audit_record import AuditRecord, audits_for_steward, public_audit
from synthdp.bundle.certificate.facts import planned_of
from synthdp.bundle.folder import check_target
from synthdp.bundle.signing.keys import load_signer
from synthdp.bundle.write import WRITING, BundleContent, write_bundle
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import BudgetError, GateError, OutputError, VerifyError
from synthdp.evaluate.dp_scores import DpScores, dp_scores_of
from synthdp.evaluate.scorecard import score_table
from synthdp.graph.validation import GraphRefuted
from synthdp.ledger.connect import (
    Account,
    budget_told,
    cap_of,
    check_affordable,
    columns_sha256,
    entries_of,
    open_ledger,
    other_ids,
    steward_name,
)
from synthdp.ledger.ledger import Ledger
from synthdp.model.compute import check_alone, check_device
from synthdp.model.constraints import Constraints, ConstraintsUnmet
from synthdp.model.fit import Fitted, fit
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample, try_constraints
from synthdp.model.total import check_total
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import Private, Released
from synthdp.privacy.session import Session
from synthdp.privacy.source import read_private
from synthdp.progress import Reporter, Steps
from synthdp.release import run_folder
from synthdp.release.amend import amended, check_spec
from synthdp.release.gates import GateVerdict, check_gates, check_simulated, simulated_figures
from synthdp.release.internal import internal_report, record, record_refusal, refused_report
from synthdp.release.judge import judge
from synthdp.release.run_folder import RunFolder
from synthdp.spec.load.loader import parse_spec, spec_text
from synthdp.spec.model import ReleaseSpec
from synthdp.tracking.mlflow_run import tracker
from synthdp.verify.at_hand import check_nearby


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

    @property
    def spent(self) -> ReleasePlan:
        """The part of the plan that was charged so far: a search may leave rounds unused, and a
        refuted graph is never trained on.

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
    def internal(self) -> Path:
        """Where the steward's report goes."""
        return self.out / "internal"

    @property
    def spec_sha256(self) -> str:
        """Digest of the spec's text."""
        return hashlib.sha256(self.folder.spec_text.encode()).hexdigest()


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


def release(
    spec_path: Path,
    *,
    out: Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
    text: str | None = None,
    given: Private[pd.DataFrame] | None = None,
) -> ReleaseOutcome:
    """Run the spec at `spec_path` into `out` (default: `releases/<dataset id>` in the working
    folder).

    `text` is the spec's, where no file holds it; `spec_path` then only names the folder that its
    paths start from. `given` holds the rows of a source of kind `dataframe`.

    Raises:
        SynthdpError: any mistake that the user can mend; nothing is spent before the data was found
            to fit.
    """
    check_alone()
    with budget_told() as account:
        reporter = reporter or Reporter()
        return _release(
            account, spec_path, text=text, given=given, out=out, force=force, reporter=reporter
        )


def _release(
    account: Account,
    spec_path: Path,
    *,
    text: str | None,
    given: Private[pd.DataFrame] | None,
    out: Path | None,
    force: bool,
    reporter: Reporter,
) -> ReleaseOutcome:
    with reporter.stage("plan"):
        # Read once: what is run, kept and digested is one text.
        text = spec_text(spec_path) if text is None else text
        loaded = parse_spec(text, path=str(spec_path))
        load_signer(loaded.signing)  # a key that cannot be used is told before anything is spent
        out = out or Path("releases") / loaded.dataset.id
        domain = Domain.from_spec(loaded.columns)
        check_device(loaded)
        check_cluster(loaded)
        plan = plan_for(loaded, domain)
        audit = public_audit(out, plan)
        check_simulated(loaded.gates, audit)
        check_target(out / "bundle", force=force)
        entries = entries_of(loaded, spec_path)
        check_nearby(entries, loaded.dataset.id, out)
        reporter.warn(other_ids(loaded, entries))
        ledger = open_ledger(loaded, spec_path)
        check_affordable(loaded, ledger.balance(loaded.dataset.id))
    folder = run_folder.start(out, spec_path, text, command=run_folder.RELEASE, force=force)
    account.ledger, account.run, account.folder, account.again = (
        ledger,
        folder.run,
        folder.journal,
        _resuming(loaded, out),
    )
    try:
        job = Job(loaded, domain, plan, ledger, folder, out, audit, given)
        return run(job, reporter, force=force)
    finally:
        # Without a reservation nothing was paid, so there is nothing to resume. A ledger that
        # cannot say keeps the folder.
        with suppress(BudgetError, VerifyError):
            if not ledger.run_entries(folder.run):
                folder.remove()
        folder.close()


def _resuming(spec: ReleaseSpec, out: Path) -> str:
    """What continues a run of `spec` in `out`."""
    if spec.dataset.source.kind == "dataframe":
        return f"`synthdp.resume({str(out)!r}, df)` in Python, with the same rows,"
    return f"`synthdp resume {out}`"


def resume(
    out: Path,
    *,
    spec_path: Path | None = None,
    reporter: Reporter | None = None,
    given: Private[pd.DataFrame] | None = None,
) -> ReleaseOutcome:
    """Continue the interrupted run in `out` under the reservation it already holds; from now on by
    the spec at `spec_path`, where one is given.

    `given` holds the rows of a source of kind `dataframe`. They must be those that the run began
    with, in their order; nothing that was kept of the run could tell.

    Raises:
        DataError: the run needs rows that are given, and there are none, or it needs none.
        OutputError: there is no such run, or it is one of `synthdp graph`.
        SpecError: the new spec changes what the run was paid for.
        BudgetError: the ledger does not allow it.
    """
    check_alone()
    with budget_told() as account:
        account.unspent = "nothing more was spent"
        folder = run_folder.reopen(out)
        try:
            return _resume(account, folder, out, spec_path, reporter or Reporter(), given)
        finally:
            folder.close()


def _resume(
    account: Account,
    folder: RunFolder,
    out: Path,
    spec_path: Path | None,
    reporter: Reporter,
    given: Private[pd.DataFrame] | None,
) -> ReleaseOutcome:
    if folder.command != run_folder.RELEASE:  # it reserved the graph's share alone
        hint = (
            f"continue it with {run_folder.how_to_continue(out)}, or choose another folder with"
            " --out"
        )
        raise OutputError(
            f"{out} holds an interrupted `synthdp {folder.command}`, which is no release", hint=hint
        )
    loaded = parse_spec(folder.spec_text, path=str(folder.spec_path))
    ledger = open_ledger(loaded, folder.spec_path, resumed=True)
    account.ledger, account.run, account.folder, account.again = (
        ledger,
        folder.run,
        folder.journal,
        _resuming(loaded, out),
    )
    check_nearby(ledger.entries(), loaded.dataset.id, out)
    if spec_path is None:
        check_spec(folder, ledger)
    else:
        folder = amended(folder, ledger, spec_path, out=out)
        loaded = parse_spec(folder.spec_text, path=str(spec_path))
    domain = Domain.from_spec(loaded.columns)
    plan = plan_for(loaded, domain)
    return run(
        Job(loaded, domain, plan, ledger, folder, out, public_audit(out, plan), given),
        reporter,
        force=True,
    )


def run(job: Job, reporter: Reporter, *, force: bool) -> ReleaseOutcome:
    """The whole release."""
    spec, notes, folder = job.spec, list[str](), job.folder
    paid = bool(job.ledger.run_entries(folder.run))
    with tracker(
        spec,
        folder=folder.spec_path.parent,
        spec_path=folder.spec_path,
        run=folder.run,
        paid=paid,
    ) as log:
        session = open_session(job, reporter)
        try:
            with reporter.stage("measure and train") as progress:
                fitted = fit(
                    session,
                    spec,
                    job.domain,
                    progress=progress,
                    check=lambda tables: notes.extend(check_total(tables, spec)),
                )
                try_constraints(fitted, spec, rng=fresh_generator())
            with reporter.stage("sample") as progress:
                codes = sample(
                    fitted,
                    spec,
                    rng=fresh_generator(),
                    progress=progress,
                    begin=partial(progress, 0, 0),
                )
                codes, scores = disclose(session, job, fitted, codes)
                constraints = Constraints.from_spec(spec, job.domain)
                synthetic = codes.map(lambda c: constraints.decode(c, rng=fresh_generator()))
            judgement = judge(
                session,
                spec,
                job.domain,
                fitted,
                codes,
                synthetic,
                folder=job.folder.shadows,
                reporter=reporter,
                scores=scores,
            )
            verdicts = check_gates(
                spec.gates, judgement.figures_for_steward() | simulated_figures(job.audit)
            )
            with reporter.stage("bundle and report") as progress:
                steps = Steps(len(WRITING) + 3, progress)
                session.settle()
                steps.run("bounds for groups", lambda: job.plan.group_epsilons)
                whole = synthetic.map(constraints.derived.added)
                bundle = (
                    publish(job, fitted, whole, force=force, steps=steps, scores=scores)
                    if all(v.passed for v in verdicts)
                    else None
                )
                report = internal_report(
                    job.internal,
                    job,
                    fitted,
                    judgement,
                    verdicts,
                    audits=audits_for_steward(job.out, job.plan),
                    seconds=reporter.seconds,
                    begin=steps.begin,
                )
        except GraphRefuted as refusal:
            session.settle()
            report = refused_report(
                job.internal,
                job,
                refusal.report,
                audits=audits_for_steward(job.out, job.plan),
                seconds=reporter.seconds,
            )
            job.folder.remove()
            record_refusal(log, job, refusal.report, report=report)
            later = (
                f"; `synthdp track {job.out}` logs it in MLflow, which did not get all of it"
                if log.warnings
                else ""
            )
            raise GateError(
                f"the bundle is withheld: {refusal.message}",
                hint=f"see {report}, and {refusal.hint}{later}",
            ) from None
        except ConstraintsUnmet as unmet:
            amend = (
                f"go on with the trained model, without paying: `synthdp resume {job.out} --spec"
                " NEW`, with other constraints in NEW"
            )
            settled = (
                "its spec is final, since the run has settled; rows are drawn anew by `synthdp"
                f" resume {job.out}`"
            )
            hint = f"{unmet.hint}; {settled if session.settled else amend}"
            raise ConstraintsUnmet(unmet.message, hint=hint) from None
        job.folder.remove()
        with reporter.stage("track"):
            record(log, job, fitted, judgement, verdicts, bundle=bundle, report=report)
    warnings = (
        *notes,
        *log.warnings,
        *(
            [f"what MLflow did not get is kept: `synthdp track {job.out}` logs it later"]
            if log.warnings
            else []
        ),
    )
    return ReleaseOutcome(
        job,
        bundle,
        report,
        verdicts,
        judgement.metrics_for_steward(),
        dict(reporter.seconds),
        warnings,
    )


def open_session(job: Job, reporter: Reporter) -> Session:
    """Read and seal the rows, then reserve the budget (a resumed run keeps its reservation)."""
    spec, streams = job.spec, replace(Streams.fresh(), holdout=job.folder.holdout_coins())
    holdout = spec.evaluation.holdout if spec.evaluation.enabled else 0.0
    with reporter.stage("read"):
        private = read_private(
            spec.dataset,
            job.domain,
            folder=job.folder.spec_path.parent,
            holdout=holdout,
            streams=streams,
            delta=spec.privacy.delta,
            given=job.given,
        )
    digest = job.plan.digest
    reserved = next(
        (e.body for e in job.ledger.run_entries(job.folder.run) if e.kind == "reserve"), None
    )
    if reserved is None:
        _check_unpaid(job)
        privacy = spec.privacy
        body = {
            "by": steward_name(),
            "spec_sha256": job.spec_sha256,
            "unit": spec.dataset.privacy_unit.meaning,
            "adjacency": privacy.adjacency,
        }
        body |= {"plan_sha256": digest, "columns_sha256": columns_sha256(spec)}
        job.ledger.reserve(
            spec.dataset.id,
            job.folder.run,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            cap=cap_of(spec),
            body=body,
        )
    elif reserved.get("plan_sha256") != digest:
        raise BudgetError(
            f"run {job.folder.run} was planned otherwise than this version of synthdp plans it",
            hint="finish it with the version that began it, or start a new release with --force",
        )
    return Session(
        private,
        job.plan,
        job.ledger,
        dataset=spec.dataset.id,
        run=job.folder.run,
        streams=streams,
        journal=job.folder.journal,
    )


def _check_unpaid(job: Job) -> None:
    """A run that the ledger does not know may have released nothing: else the ledger was deleted or
    set back, and would forget what it spent.
    """
    if any(job.folder.journal.iterdir()):
        raise BudgetError(
            f"the ledger does not know run {job.folder.run}, whose values lie in"
            f" {job.folder.journal}: it was deleted or set back",
            hint=(
                "bring it back: in a new ledger, what this run and others have spent would be"
                " forgotten"
            ),
        )


def disclose(
    session: Session, job: Job, fitted: Fitted, codes: Released[Codes]
) -> tuple[Released[Codes], Released[DpScores] | None]:
    """Where the spec says so, the scores that are paid for and published, and the table that they
    are about.
    """
    if not job.spec.evaluation.dp_scores:
        return codes, None
    scored = score_table(session, job.spec, job.domain, codes)
    scores = scored.zip(fitted.tables).map(lambda pair: dp_scores_of(job.spec, job.domain, *pair))
    # A resumed run drew another table than the one that was scored before it was interrupted: what
    # was scored is published.
    same = np.array_equal(codes.value, scored.value.codes)
    return (codes if same else scored.map(lambda s: s.codes)), scores


def publish(
    job: Job,
    fitted: Fitted,
    synthetic: Released[pd.DataFrame],
    *,
    force: bool,
    steps: Steps,
    scores: Released[DpScores] | None = None,
) -> Path:
    """Write the public bundle."""
    content = BundleContent(
        spec=job.spec,
        run=job.folder.run,
        planned=planned_of(job.plan),
        group_epsilons=job.plan.group_epsilons,
        synthetic=synthetic,
        model=fitted.synthesizer,
        tables=fitted.tables,
        graph=fitted.graph.released or fitted.graph.graph,
        validation=fitted.graph.report,
        audit=job.audit,
        scores=scores,
    )
    return write_bundle(
        job.bundle,
        content,
        ledger=job.ledger,
        force=force,
        signer=load_signer(job.spec.signing),
        begin=steps.begin,
    )
