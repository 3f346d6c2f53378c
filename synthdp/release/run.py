"""The road of a release: plan, read, reserve, train, sample, publish, judge, record.

`release` plans, `resume` finds the plan of a run again, and both go on in `carry_out`, of which
each stage is one call. Nothing is spent before everything that can be checked without rows has been
checked, and the rows fit the spec. Between the last charge and the bundle stands nothing that looks
at rows, unless a gate is on such a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from synthdp.bundle.audit_record import audits_for_steward, public_audit
from synthdp.bundle.content import BundleContent, check_target
from synthdp.bundle.noisy_values import prior_json, tables_of, waves_before
from synthdp.bundle.signing import load_signer
from synthdp.bundle.write import foresee, write_bundle
from synthdp.data.domain import Domain
from synthdp.errors import GateError
from synthdp.evaluate.dp_scores import DpScores
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.validation import GraphRefuted
from synthdp.inference.estimands import estimands_json
from synthdp.ledger.connect import budget_noted, check_affordable, open_ledger
from synthdp.model.constraints import ConstraintsUnmet
from synthdp.model.fit import Fitted, check_alone, check_device, fit
from synthdp.model.planning import check_total, plan_for
from synthdp.model.sampling import try_constraints
from synthdp.privacy.mechanisms.sums import Sums
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.private import Private, Released
from synthdp.privacy.session import Session, damaged
from synthdp.progress import advance, seconds, shown_on, stage, warn
from synthdp.release import afterwards, gates, run_folder
from synthdp.release.afterwards import judge_and_report
from synthdp.release.gates import check_gates, check_simulated
from synthdp.release.job import (
    DrawnTable,
    Job,
    ReleaseOutcome,
    amended,
    check_spec,
    draw,
    how_to,
    withhold,
)
from synthdp.release.judge import Judge, Judgement, refused_report, stopped
from synthdp.release.open_session import dropped_if_unpaid, open_session, reopened
from synthdp.release.plan_view import attack_left_out, plan_facts
from synthdp.release.played import check_answered
from synthdp.release.prior import check_same_prior, public_rows, with_digest
from synthdp.release.tracked import (
    record_judgement,
    record_publication,
    record_refusal,
    tracked,
    untracked,
)
from synthdp.spec.checks.checks import traps
from synthdp.spec.load.loader import own_text, parse_spec
from synthdp.tracking.mlflow_run import Tracker
from synthdp.verify.at_hand import standing


def release(
    spec_path: Path,
    *,
    out: Path | None = None,
    force: bool = False,
    text: str | None = None,
    given: Private[pd.DataFrame] | None = None,
    attack: afterwards.AttackWhen | None = None,
    accept_refusals: bool = False,
) -> ReleaseOutcome:
    """Run the spec at `spec_path` into `out`.

    `out` is `releases/<dataset id>` in the working folder by default.

    `text` is the spec's, where no file holds it; `spec_path` then only names the folder that its
    paths start from. `given` holds the rows of a source of kind `dataframe`. With `attack` "later"
    the declared attack waits for `run_attack`; where nothing is said of it here or in the spec, it
    is left out if it takes longer than the release. With `accept_refusals` estimands are paid for
    that are likely to be refused.

    Raises:
        SynthdpError: any mistake that the user can mend; nothing is spent before the data was found
            to fit.
    """
    with budget_noted(), shown_on():
        check_alone()
        with stage("plan"):
            # Read once: what is run, kept and digested is one text.
            text = own_text(spec_path) if text is None else text
            spec = with_digest(parse_spec(text, path=str(spec_path)), spec_path.parent)
            # Read once, here: one that cannot be used is an error before any spend, and where its
            # path is relative, the working folder may be another one when the bundle is signed.
            signer = load_signer(spec.signing)
            out = out or Path("releases") / spec.dataset.id
            domain = Domain.from_spec(spec.columns)
            prior = public_rows(spec, domain, spec_path.parent)
            check_device(spec)
            if spec.attacks.membership.enabled:
                from synthdp.audit.membership import check_cluster

                check_cluster(spec)
            plan = plan_for(spec, domain)
            audit = public_audit(out, plan)
            check_simulated(spec.gates, audit)
            check_target(out / "bundle", force=force)
            waves = waves_before(spec, spec_path.parent)
            balance, others = standing(spec, spec_path, out)
            warn([*others, *traps(spec), *afterwards.waiting(spec, out, attack or "now")])
            expected = plan_facts(spec, balance, warnings=others, plan=plan)
            attack = attack or ("never" if attack_left_out(spec, expected) else "now")
            if not accept_refusals:
                check_answered(expected["estimands"])
            ledger = open_ledger(spec, spec_path)
            check_affordable(spec, ledger.balance(spec.dataset.id), expected["ledger"])
        folder = run_folder.start(out, spec_path, text, command=run_folder.RELEASE, force=force)
        job = Job(
            spec, domain, plan, ledger, folder, out, audit, given, signer, expected, prior, waves
        )
        with dropped_if_unpaid(job, how_to("resume", spec, out)):
            return carry_out(job, force=force, attack=attack)


def resume(
    out: Path,
    *,
    spec_path: Path | None = None,
    given: Private[pd.DataFrame] | None = None,
    attack: afterwards.AttackWhen = "now",
) -> ReleaseOutcome:
    """Continue the interrupted run in `out` under its reservation.

    `spec_path` names another spec to continue by. With `attack` "never" the declared attack is left
    out.

    `given` holds the rows of a source of kind `dataframe`. They must be those that the run began
    with, in their order; nothing that was kept of the run could tell.

    Raises:
        DataError: the run needs rows that are given, and there are none, or it needs none.
        OutputError: there is no such run, it is one of `synthdp graph`, or its bundle was moved.
        SpecError: the new spec changes what the run was paid for.
        BudgetError: the ledger does not allow it.
    """
    check_alone()
    with reopened(out) as (folder, ledger):
        if spec_path is None:
            check_spec(folder, ledger)
        else:
            folder = amended(folder, ledger, spec_path, out=out)
        read = parse_spec(folder.spec_text, path=str(spec_path or folder.spec_path))
        spec = with_digest(read, folder.spec_path.parent)
        check_same_prior(spec, ledger.run_entries(folder.run))
        domain, signer = Domain.from_spec(spec.columns), load_signer(spec.signing)
        prior = public_rows(spec, domain, folder.spec_path.parent)
        plan = plan_for(spec, domain)
        audit = public_audit(out, plan)
        waves = waves_before(spec, folder.spec_path.parent)
        job = Job(spec, domain, plan, ledger, folder, out, audit, given, signer, None, prior, waves)
        if attack == "never":
            afterwards.check_attacked(job, attack)
        return carry_out(job, force=True, attack=attack)


def run_attack(out: Path, *, given: Private[pd.DataFrame] | None = None) -> ReleaseOutcome:
    """Run the attack that a release into `out` has put off; its report is written anew.

    The rows are read again, and nothing is spent. A release that waits for its attack is published
    then, if its gates hold. `given` is as in `resume`.

    Raises:
        OutputError: no attack waits there.
        SynthdpError: as `resume`.
    """
    afterwards.check_waits(out)
    return resume(out, given=given)


def carry_out(job: Job, *, force: bool, attack: afterwards.AttackWhen = "now") -> ReleaseOutcome:
    """The whole release: read, reserve, train, sample, decide, publish, judge, record."""
    folder, logs = job.folder, job.spec.tracking.enabled
    with tracked(job) as log:
        with stage("compute the guarantee"):
            foresee(job.spec, job.plan, job.audit)
        session = open_session(job)
        try:
            fitted, notes = _train(session, job)
            drawn = draw(session, job, fitted)
            afterwards.check_attacked(job, attack)
            judge = Judge(session, job, fitted, drawn)
            judgement, verdicts = _decide(judge)
            bundle = settle_and_publish(session, job, fitted, drawn, verdicts, force=force)
        except GraphRefuted as refusal:
            raise withhold_refuted(session, job, refusal, log=log) from None
        except ConstraintsUnmet as unmet:
            raise unmet_with_hint(unmet, session, job) from None
        with stage("log the bundle in MLflow") if logs else nullcontext():
            record_publication(log, job, fitted, judgement, verdicts, bundle=bundle)
        judgement, report = judge_and_report(judge, judgement, verdicts, bundle, attack=attack)
        if not afterwards.put_off(job, attack) and not stopped(judgement.attack):
            folder.remove()  # else it has what the attack needs
        with stage("log the report in MLflow") if logs else nullcontext():
            record_judgement(log, job, fitted, judgement, report=report)
    return ReleaseOutcome(
        job,
        bundle,
        report,
        verdicts,
        judgement.metrics_for_steward(),
        seconds(),
        (*notes, *afterwards.put_off(job, attack), *untracked(log, job)),
    )


def _train(session: Session, job: Job) -> tuple[Fitted, list[str]]:
    """Measure and train. The notes compare the noisy total with the declared number of rows."""
    notes = list[str]()
    with stage("measure and train" if job.plan.train else "measure and fit"):
        fitted = fit(
            session,
            job.spec,
            job.domain,
            progress=advance,
            check=lambda tables: notes.extend(check_total(tables, job.spec)),
            prior=job.prior,
            earlier=tables_of(job.waves, job.domain),
        )
        try_constraints(fitted, job.spec, rng=fresh_generator())
    return fitted, notes


def _decide(judge: Judge) -> tuple[Judgement, tuple[gates.GateVerdict, ...]]:
    """What the gates say, and the figures that they need; what was published is decided, and so is
    what a figure withheld: rows that are drawn again are no second try.

    Raises:
        OutputError: a gate on real rows has decided, and this is a copy of the run from before.
    """
    job, settled = judge.job, judge.session.settled
    kept = gates.kept_decision(job.spec.gates, job.folder.decision)
    real = any(gate.outside_guarantee for gate in job.spec.gates)
    if real and settled and kept is None and not job.published:
        raise damaged(job.folder.decision.stem)
    failed = [v for v in kept or () if v.figure.value is not None and not v.passed]
    withheld = any(settled or v.gate.outside_guarantee for v in failed)
    if kept and (job.published or withheld):
        return judge.released(), kept
    judgement = judge.for_gates()
    figures = judgement.figures_for_steward() | gates.simulated_figures(job.audit)
    return judgement, check_gates(job.spec.gates, figures)


# --- the end of what is paid for ---


def settle_and_publish(
    session: Session,
    job: Job,
    fitted: Fitted,
    drawn: DrawnTable,
    verdicts: Sequence[gates.GateVerdict],
    *,
    force: bool,
) -> Path | None:
    """Settle the run, then write the bundle if every gate passed; None where one withheld it.

    A run that is resumed after that keeps the bundle that it has published.
    """
    with stage("bundle"):
        if job.published:
            session.settle()
            job.folder.note_published()
            return job.bundle
        gates.keep_decision(verdicts, job.folder.decision)
        session.settle()
        if failed := [v for v in verdicts if not v.passed]:
            # The ledger is read by others: what it is told must not depend on gates on real rows.
            inside = [f"{v}: {v.outcome}" for v in failed if not v.gate.outside_guarantee]
            if inside:
                withhold(job, by="the gates of its spec", why="; ".join(inside))
            return None
        whole = drawn.synthetic.map(drawn.constraints.derived.added)
        bundle = publish(job, fitted, whole, force=force, scores=drawn.scores)
        job.folder.note_published()
        return bundle


def publish(
    job: Job,
    fitted: Fitted,
    synthetic: Released[pd.DataFrame],
    *,
    force: bool,
    scores: Released[DpScores] | None = None,
) -> Path:
    """Write the public bundle; a prior is told of all tables that the rows follow."""
    prior = fitted.prior
    content = BundleContent(
        spec=job.spec,
        run=job.folder.run,
        planned=job.plan.stated_spends,
        group_epsilons=job.plan.group_epsilons,
        synthetic=synthetic,
        model=fitted.synthesizer,
        tables=fitted.tables,
        graph=fitted.graph.released or fitted.graph.graph,
        validation=fitted.graph.report,
        audit=job.audit,
        scores=scores,
        estimands=estimands_of(job, fitted),
        heaps=fitted.heaps,
        prior=None
        if prior is None
        else fitted.known.map(lambda t: prior_json(LevelLaw.of_tables(t, job.domain, prior))),
        waves=job.waves,
    )
    return write_bundle(job.bundle, content, ledger=job.ledger, force=force, signer=job.signer)


def estimands_of(job: Job, fitted: Fitted) -> Released[dict[str, Any]] | None:
    """The content of `estimands.json`, if the spec pays for sums."""
    if not job.spec.pays_for_sums:
        return None
    # Contingency tables are among the noisy tables, which every estimand's receipts then include.
    sums, spec, domain = fitted.tables.map(lambda _: list[Sums]()), job.spec, job.domain
    for released in fitted.sums.values():
        sums = sums.zip(released).map(lambda both: [*both[0], both[1]])
    names = [*fitted.sums]
    return sums.map(lambda s: estimands_json(spec, domain, dict(zip(names, s, strict=True))))


def withhold_refuted(
    session: Session, job: Job, refusal: GraphRefuted, *, log: Tracker
) -> GateError:
    """Settle and report a run whose graph was refuted; returns the error to raise."""
    session.settle()
    withhold(job, by="the test of its graph", why="noisy tables refuted a claim of the graph")
    report = refused_report(
        job.internal,
        job,
        refusal.report,
        audits=audits_for_steward(job.out, job.plan),
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
