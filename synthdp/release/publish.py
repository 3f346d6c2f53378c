"""The end of what is paid for: the run is settled, and the bundle written or refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from synthdp.bundle.admission import BundleContent
from synthdp.bundle.certificate.audit_record import audits_for_steward
from synthdp.bundle.certificate.facts import planned_of
from synthdp.bundle.write import WRITING, write_bundle
from synthdp.errors import GateError
from synthdp.evaluate.dp_scores import DpScores
from synthdp.graph.validation import GraphRefuted
from synthdp.inference.estimands import estimands_json
from synthdp.model.constraints import ConstraintsUnmet
from synthdp.model.fit import Fitted
from synthdp.privacy.mechanisms.product_sums import Sums
from synthdp.privacy.private import Released
from synthdp.privacy.session import Session
from synthdp.progress import Reporter, Steps
from synthdp.release.drawn import DrawnTable
from synthdp.release.gates import GateVerdict, keep_decision
from synthdp.release.internal import refused_report
from synthdp.release.job import Job
from synthdp.release.tracked import record_refusal
from synthdp.tracking.tracker import Tracker


def settle_and_publish(
    session: Session,
    job: Job,
    fitted: Fitted,
    drawn: DrawnTable,
    verdicts: Sequence[GateVerdict],
    *,
    force: bool,
    reporter: Reporter,
) -> Path | None:
    """Settle the run, then write the bundle if every gate passed; None where one withheld it.

    A run that is resumed after that keeps the bundle that it has published.
    """
    with reporter.stage("bundle") as progress:
        steps = Steps(len(WRITING), progress)
        if job.published:
            session.settle()
            job.folder.note_published()
            return job.bundle
        keep_decision(verdicts, job.folder.decision)
        session.settle()
        if not all(v.passed for v in verdicts):
            return None
        whole = drawn.synthetic.map(drawn.constraints.derived.added)
        bundle = publish(job, fitted, whole, force=force, steps=steps, scores=drawn.scores)
        job.folder.note_published()
        return bundle


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
        estimands=estimands_of(job, fitted),
    )
    return write_bundle(
        job.bundle,
        content,
        ledger=job.ledger,
        force=force,
        signer=job.signer,
        begin=steps.begin,
    )


def estimands_of(job: Job, fitted: Fitted) -> Released[dict[str, Any]] | None:
    """The content of `estimands.json`, if the spec names estimands."""
    if not job.spec.estimands:
        return None
    # Contingency tables are among the noisy tables, which every estimand's receipts then include.
    sums = fitted.tables.map(lambda _: dict[str, Sums]())
    for name, released in fitted.sums.items():
        sums = sums.zip(released).map(partial(_with_sums, name))
    return sums.map(lambda known: estimands_json(job.spec, job.domain, known))


def _with_sums(name: str, known: tuple[dict[str, Sums], Sums]) -> dict[str, Sums]:
    return {**known[0], name: known[1]}


def withhold_refuted(
    session: Session, job: Job, refusal: GraphRefuted, *, log: Tracker, reporter: Reporter
) -> GateError:
    """Settle and report a run whose graph was refuted; returns the error to raise."""
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
    return GateError(
        f"the bundle is withheld: {refusal.message}",
        hint=f"see {report}, and {refusal.hint}{later}",
    )


def unmet_with_hint(unmet: ConstraintsUnmet, session: Session, job: Job) -> ConstraintsUnmet:
    """The error of constraints that too few rows fulfil, with what can still be done about it."""
    amend = (
        f"go on with the same model, without paying: `synthdp resume {job.out} --spec"
        " NEW`, with other constraints in NEW"
    )
    settled = (
        "its spec is final, since the run has settled; rows are drawn anew by `synthdp"
        f" resume {job.out}`"
    )
    hint = f"{unmet.hint}; {settled if session.settled else amend}"
    return ConstraintsUnmet(unmet.message, hint=hint)
