"""The road of a release: plan, read, reserve, train, sample, judge, publish, record.

`run` reads like the README; each stage is one call. Nothing is spent before everything that can be
checked without rows has been checked, and the rows fit the spec.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pandas as pd

from synthdp.audit.membership import check_cluster
from synthdp.bundle.certificate.audit_record import public_audit
from synthdp.bundle.folder import check_target
from synthdp.bundle.signing.keys import load_signer
from synthdp.data.domain import Domain
from synthdp.errors import BudgetError, OutputError, VerifyError
from synthdp.graph.validation import GraphRefuted
from synthdp.ledger.connect import (
    Account,
    budget_noted,
    check_affordable,
    entries_of,
    open_ledger,
    other_ids,
)
from synthdp.ledger.domain_search import check_domain_from
from synthdp.model.compute import check_alone, check_device
from synthdp.model.constraints import Constraints, ConstraintsUnmet
from synthdp.model.fit import Fitted, fit
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample, try_constraints
from synthdp.model.total import check_total
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Private
from synthdp.privacy.session import Session
from synthdp.progress import Reporter
from synthdp.release import run_folder
from synthdp.release.amend import amended, check_spec
from synthdp.release.gates import check_gates, check_simulated, simulated_figures
from synthdp.release.internal import record
from synthdp.release.job import Job, ReleaseOutcome
from synthdp.release.judge import Judgement, judge
from synthdp.release.open_session import open_session
from synthdp.release.publish import (
    DrawnTable,
    disclose,
    settle_and_publish,
    unmet_with_hint,
    withhold_refuted,
)
from synthdp.release.run_folder import RunFolder
from synthdp.spec.checks.traps import traps
from synthdp.spec.load.loader import parse_spec, spec_text
from synthdp.spec.model import ReleaseSpec
from synthdp.tracking.tracker import Tracker, tracker
from synthdp.verify.at_hand import check_nearby


def release(
    spec_path: Path,
    *,
    out: Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
    text: str | None = None,
    given: Private[pd.DataFrame] | None = None,
) -> ReleaseOutcome:
    """Run the spec at `spec_path` into `out`.

    `out` is `releases/<dataset id>` in the working folder by default.

    `text` is the spec's, where no file holds it; `spec_path` then only names the folder that its
    paths start from. `given` holds the rows of a source of kind `dataframe`.

    Raises:
        SynthdpError: any mistake that the user can mend; nothing is spent before the data was found
            to fit.
    """
    with budget_noted() as account:
        check_alone()
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
        # Read once, here: one that cannot be used is an error before any spend, and where its path
        # is relative, the working folder may be another one when the bundle is signed.
        signer = load_signer(loaded.signing)
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
        check_domain_from(loaded, entries)
        noted = tuple(other_ids(loaded, entries))
        reporter.warn([*noted, *traps(loaded)])
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
        job = Job(loaded, domain, plan, ledger, folder, out, audit, given, signer)
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
    """Continue the interrupted run in `out` under its reservation.

    `spec_path` names another spec to continue by.

    `given` holds the rows of a source of kind `dataframe`. They must be those that the run began
    with, in their order; nothing that was kept of the run could tell.

    Raises:
        DataError: the run needs rows that are given, and there are none, or it needs none.
        OutputError: there is no such run, or it is one of `synthdp graph`.
        SpecError: the new spec changes what the run was paid for.
        BudgetError: the ledger does not allow it.
    """
    with budget_noted("nothing more was spent") as account:
        check_alone()
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
    domain, signer = Domain.from_spec(loaded.columns), load_signer(loaded.signing)
    plan = plan_for(loaded, domain)
    audit = public_audit(out, plan)
    job = Job(loaded, domain, plan, ledger, folder, out, audit, given, signer)
    return run(job, reporter, force=True)


def run(job: Job, reporter: Reporter, *, force: bool) -> ReleaseOutcome:
    """The whole release: read, reserve, train, sample, judge, decide, publish, record."""
    with _tracker_of(job) as log:
        session = open_session(job, reporter)
        try:
            fitted, notes = _train(session, job, reporter)
            drawn = _draw(session, job, fitted, reporter)
            judgement = _judge(session, job, fitted, drawn, reporter)
            figures = judgement.figures_for_steward() | simulated_figures(job.audit)
            verdicts = check_gates(job.spec.gates, figures)
            bundle, report = settle_and_publish(
                session, job, fitted, drawn, judgement, verdicts, force=force, reporter=reporter
            )
        except GraphRefuted as refusal:
            raise withhold_refuted(session, job, refusal, log=log, reporter=reporter) from None
        except ConstraintsUnmet as unmet:
            raise unmet_with_hint(unmet, session, job) from None
        job.folder.remove()
        with reporter.stage("track"):
            record(log, job, fitted, judgement, verdicts, bundle=bundle, report=report)
    return ReleaseOutcome(
        job,
        bundle,
        report,
        verdicts,
        judgement.metrics_for_steward(),
        dict(reporter.seconds),
        (*notes, *_tracking_warnings(log, job)),
    )


def _tracker_of(job: Job) -> Tracker:
    """The run's tracker. Tracking may fail without ending a run that has already paid."""
    folder = job.folder
    paid = bool(job.ledger.run_entries(folder.run))
    return tracker(
        job.spec,
        folder=folder.spec_path.parent,
        spec_path=folder.spec_path,
        run=folder.run,
        paid=paid,
    )


def _train(session: Session, job: Job, reporter: Reporter) -> tuple[Fitted, list[str]]:
    """Measure and train. The notes compare the noisy total with the declared number of rows."""
    notes = list[str]()
    with reporter.stage("measure and train" if job.plan.train else "measure and fit") as progress:
        fitted = fit(
            session,
            job.spec,
            job.domain,
            progress=progress,
            check=lambda tables: notes.extend(check_total(tables, job.spec)),
        )
        try_constraints(fitted, job.spec, rng=fresh_generator())
    return fitted, notes


def _draw(session: Session, job: Job, fitted: Fitted, reporter: Reporter) -> DrawnTable:
    """Sample the table, score it where the spec asks for DP scores, and decode it."""
    with reporter.stage("sample") as progress:
        codes = sample(
            fitted,
            job.spec,
            rng=fresh_generator(),
            progress=progress,
            begin=partial(progress, 0, 0),
        )
        codes, scores = disclose(session, job, fitted, codes)
        constraints = Constraints.from_spec(job.spec, job.domain)
        synthetic = codes.map(lambda c: constraints.decode(c, rng=fresh_generator()))
    return DrawnTable(codes, synthetic, constraints, scores)


def _judge(
    session: Session, job: Job, fitted: Fitted, drawn: DrawnTable, reporter: Reporter
) -> Judgement:
    """Judge the drawn table, for the steward alone."""
    return judge(
        session,
        job.spec,
        job.domain,
        fitted,
        drawn.codes,
        drawn.synthetic,
        folder=job.folder.shadows,
        reporter=reporter,
        scores=drawn.scores,
    )


def _tracking_warnings(log: Tracker, job: Job) -> list[str]:
    """What MLflow did not get, and how to log it later."""
    if not log.warnings:
        return []
    later = f"what MLflow did not get is kept: `synthdp track {job.out}` logs it later"
    return [*log.warnings, later]
