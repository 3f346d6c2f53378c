"""The road of a release: plan, read, reserve, train, sample, publish, judge, record.

`run` reads like the README; each stage is one call. Nothing is spent before everything that can be
checked without rows has been checked, and the rows fit the spec. Between the last charge and the
bundle stands nothing that looks at rows, unless a gate is on such a figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pandas as pd

from synthdp.audit.membership import check_cluster
from synthdp.bundle.certificate.audit_record import audits_for_steward, public_audit
from synthdp.bundle.certificate.facts import planned_of
from synthdp.bundle.folder import check_target
from synthdp.bundle.signing.keys import load_signer
from synthdp.bundle.write import foresee
from synthdp.data.domain import Domain
from synthdp.errors import BUDGET, BudgetError, OutputError, SynthdpError, VerifyError
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
from synthdp.model.constraints import ConstraintsUnmet
from synthdp.model.fit import Fitted, fit
from synthdp.model.planning import plan_for
from synthdp.model.sampling import try_constraints
from synthdp.model.total import check_total
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Private
from synthdp.privacy.session import Session
from synthdp.progress import Reporter, Steps
from synthdp.release import run_folder
from synthdp.release.amend import amended, check_spec
from synthdp.release.drawn import DrawnTable, draw
from synthdp.release.gates import GateVerdict, check_gates, check_simulated, simulated_figures
from synthdp.release.internal import internal_report
from synthdp.release.job import Job, ReleaseOutcome
from synthdp.release.judge import Judge, Judgement, NotJudged
from synthdp.release.open_session import open_session
from synthdp.release.publish import settle_and_publish, unmet_with_hint, withhold_refuted
from synthdp.release.run_folder import RunFolder
from synthdp.release.tracked import record_judgement, record_publication
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
    """The whole release: read, reserve, train, sample, decide, publish, judge, record."""
    with _tracker_of(job) as log:
        with reporter.stage("bounds for groups"):
            foresee(
                job.spec,
                planned_of(job.plan),
                group_epsilons=job.plan.group_epsilons,
                audit=job.audit,
            )
        session = open_session(job, reporter)
        try:
            fitted, notes = _train(session, job, reporter)
            drawn = _draw(session, job, fitted, reporter)
            judge = Judge(session, job, fitted, drawn, reporter)
            judgement = judge.for_gates()
            figures = judgement.figures_for_steward() | simulated_figures(job.audit)
            verdicts = check_gates(job.spec.gates, figures)
            bundle = settle_and_publish(
                session, job, fitted, drawn, verdicts, force=force, reporter=reporter
            )
        except GraphRefuted as refusal:
            raise withhold_refuted(session, job, refusal, log=log, reporter=reporter) from None
        except ConstraintsUnmet as unmet:
            raise unmet_with_hint(unmet, session, job) from None
        with reporter.stage("track"):
            record_publication(log, job, fitted, judgement, verdicts, bundle=bundle)
        with _bundle_noted(job, bundle):
            judgement = judge.rest(judgement)
            report = _report(job, fitted, judgement, verdicts, reporter)
        job.folder.remove()
        with reporter.stage("track"):
            record_judgement(log, job, fitted, judgement, report=report)
    return ReleaseOutcome(
        job,
        bundle,
        report,
        verdicts,
        judgement.metrics_for_steward(),
        dict(reporter.seconds),
        (*notes, *_tracking_warnings(log, job)),
    )


@contextmanager
def _bundle_noted(job: Job, bundle: Path | None) -> Iterator[None]:
    """Note on whatever ends the judging that the bundle stands, and how to do what is left."""
    try:
        yield
    except BaseException as error:
        if bundle is not None:
            privacy = job.spec.privacy
            error.add_note(
                f"{BUDGET}epsilon {privacy.epsilon:g} at delta {privacy.delta:g} stays spent by run"
                f" {job.folder.run}, and its bundle is whole: {bundle};"
                f" {_resuming(job.spec, job.out)} judges it, and pays nothing again"
            )
        raise


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
    with reporter.stage("sample") as progress:
        return draw(session, job, fitted, progress)


def _report(
    job: Job,
    fitted: Fitted,
    judgement: Judgement,
    verdicts: Sequence[GateVerdict],
    reporter: Reporter,
) -> Path:
    """Write the internal report; without the figures on real rows where they break it."""
    with reporter.stage("report") as progress:
        write = partial(
            internal_report,
            job.internal,
            job,
            fitted,
            verdicts=verdicts,
            audits=audits_for_steward(job.out, job.plan),
            seconds=reporter.seconds,
            begin=Steps(2, progress).begin,
        )
        try:
            return write(judgement)
        except (OSError, SynthdpError):
            raise
        except Exception as error:  # a table or a picture of what rows make odd
            why = {"figures on real rows": str(NotJudged(type(error).__name__))}
            return write(judgement.released, absent=why)


def _tracking_warnings(log: Tracker, job: Job) -> list[str]:
    """What MLflow did not get, and how to log it later."""
    if not log.warnings:
        return []
    later = f"what MLflow did not get is kept: `synthdp track {job.out}` logs it later"
    return [*log.warnings, later]
