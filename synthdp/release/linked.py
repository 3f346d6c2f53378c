"""The road of a release of persons with visits: plan, read, reserve, measure, draw, publish.

It is that of one table (`release.run`) without what is not there yet for linked tables: estimands.
Nothing looks at rows between the last charge and the bundle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from synthdp.bundle.content import check_target
from synthdp.bundle.linked import LinkedBundle, as_one, persons_of, table_files
from synthdp.bundle.linked_files import LinkedContent, foresee_linked, write_linked
from synthdp.bundle.signing import load_signer
from synthdp.data.domain import Domain
from synthdp.data.visits import VisitFrame
from synthdp.errors import GateError
from synthdp.evaluate.visits import with_ends
from synthdp.files import missing_folders
from synthdp.inference.visit_effects import estimands_json
from synthdp.ledger.connect import budget_noted, check_affordable, open_ledger
from synthdp.model.planning import check_total
from synthdp.model.visits.fit import fit
from synthdp.model.visits.planning import END_NUMBERS, plan_linked
from synthdp.privacy.linked import read_linked
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.plan import MOMENTS, ReleasePlan
from synthdp.privacy.private import Confidential, Private
from synthdp.privacy.session import Session
from synthdp.progress import advance, seconds, shown_on, stage, warn
from synthdp.release import run_folder
from synthdp.release.afterwards import AttackWhen, judging_noted, put_off
from synthdp.release.gates import Figure, GateVerdict, check_gates
from synthdp.release.job import Job, check_spec, how_to, withhold
from synthdp.release.judge import NotJudged, attack_report, guarded, stopped
from synthdp.release.linked_plan import check_hopeless, linked_facts
from synthdp.release.open_session import dropped_if_unpaid, open_session, reopened
from synthdp.release.tracked import record_verdict, spent, tracked, untracked
from synthdp.report.prose import say_of_plan
from synthdp.sample.linked import drawn_frames
from synthdp.spec.checks.linked import linked_traps
from synthdp.spec.model import LinkedSpec
from synthdp.tracking.mlflow_run import Tracker
from synthdp.verify.at_hand import standing

if TYPE_CHECKING:
    from synthdp_attacks import MembershipReport


@dataclass(frozen=True, kw_only=True)
class LinkedJob(Job):
    """A run of a spec of linked tables; `spec` is what parts for one table ask of it, and `frames`
    has the rows that are given from Python, by table.
    """

    linked: LinkedSpec
    frame: VisitFrame
    frames: Mapping[str, Private[pd.DataFrame]] | None = None

    @classmethod
    def of(cls, spec: LinkedSpec, plan: ReleasePlan, **run: Any) -> LinkedJob:
        """A run of a spec by its plan; `run` has the other fields."""
        one, frame = as_one(spec), VisitFrame.from_spec(spec)
        run |= {"domain": Domain.from_spec(one.columns), "frame": frame, "linked": spec}
        return cls(spec=one, plan=plan, **run)

    @property
    def written(self) -> LinkedSpec:
        """The spec as it is written."""
        return self.linked

    def sealed(self, streams: Streams) -> Private[Any]:
        """Read and seal both tables; a person is held out of all looks, or of none."""
        folder = self.folder.spec_path.parent
        return read_linked(
            self.linked,
            self.frame,
            folder=folder,
            holdout=self.linked.evaluation.held_out,
            streams=streams,
            given=self.frames,
        )


@dataclass(frozen=True)
class LinkedOutcome:
    """What a run came to."""

    job: LinkedJob
    bundle: Path
    report: Path | None
    figures: Mapping[str, float] = field(repr=False)
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]
    attack: tuple[Path, str] | None = field(default=None, repr=False)
    """Where the report of the attack is, and its conclusion: for the steward."""

    def to_json(self) -> dict[str, Any]:
        """As JSON, without any confidential figure."""
        plan = self.job.plan
        return {
            "run": self.job.folder.run,
            "bundle": str(self.bundle),
            "report": None if self.report is None else str(self.report),
            "tables": [csv for csv, _ in table_files(self.job.linked).values()],
            "epsilon": plan.epsilon,
            "epsilon_planned": plan.epsilon_spent,
            "delta": plan.delta,
            "seconds": dict(self.seconds),
            "warnings": list(self.warnings),
            "attack": None if self.attack is None else str(self.attack[0]),
        }

    def __str__(self) -> str:
        return say_of_plan("outcome_linked", outcome=self, plan=self.job.plan)


def release_linked(
    spec: LinkedSpec,
    spec_path: Path,
    text: str,
    *,
    out: Path | None = None,
    force: bool = False,
    attack: AttackWhen = "now",
    given: Mapping[str, Private[pd.DataFrame]] | None = None,
) -> LinkedOutcome:
    """Run a spec, whose text is `text`, into `out`, as `run.release` does.

    `given` holds the rows of tables whose source is of kind `dataframe`, by their names.

    Raises:
        SynthdpError: any mistake that the user can mend; nothing is spent before the data was found
            to fit.
    """
    with budget_noted(), shown_on():
        with stage("plan"):
            frame, one = VisitFrame.from_spec(spec), as_one(spec)
            signer = load_signer(spec.signing)
            out = out or Path("releases") / spec.dataset.id
            if spec.attacks.membership.enabled:
                from synthdp.audit.membership import check_cluster

                check_cluster(spec)
            plan = plan_linked(spec, frame)
            check_target(out / "bundle", force=force)
            balance, others = standing(one, spec_path, out)
            expected = linked_facts(spec, balance, plan=plan) | {"warnings": others}
            check_hopeless(expected["estimands"])
            warn([*expected["warnings"], *linked_traps(spec)])
            ledger = open_ledger(one, spec_path)
            check_affordable(one, ledger.balance(spec.dataset.id), expected["ledger"])
        folder = run_folder.start(out, spec_path, text, command=run_folder.RELEASE, force=force)
        run = {"ledger": ledger, "folder": folder, "out": out, "frames": given}
        job = LinkedJob.of(spec, plan, signer=signer, expected=expected, **run)
        with dropped_if_unpaid(job, how_to("resume", one, out)):
            return carry_out(job, force=force, attack=attack)


def resume_linked(
    spec: LinkedSpec,
    out: Path,
    *,
    attack: AttackWhen = "now",
    given: Mapping[str, Private[pd.DataFrame]] | None = None,
) -> LinkedOutcome:
    """Continue the interrupted run of `spec` in `out` under its reservation, as `run.resume`."""
    with reopened(out, as_one(spec)) as (folder, ledger):
        check_spec(folder, ledger)
        signer, plan = load_signer(spec.signing), plan_linked(spec, VisitFrame.from_spec(spec))
        run = {"ledger": ledger, "folder": folder, "out": out, "frames": given}
        return carry_out(LinkedJob.of(spec, plan, signer=signer, **run), force=True, attack=attack)


def carry_out(job: LinkedJob, *, force: bool, attack: AttackWhen = "now") -> LinkedOutcome:
    """The whole release. A value that was released is read in the journal again; the draw that
    follows is free, and a bundle that is there is kept.

    Raises:
        GateError: a gate withheld the bundle, and the ledger says so.
    """
    folder, spec = job.folder, job.linked
    with tracked(job) as log:
        with stage("compute the guarantee"):
            foresee_linked(spec, job.plan)
        session = open_session(job, seal=job.sealed)
        with stage("measure and fit"):
            fitted = fit(session, spec, job.frame, rng=fresh_generator())
            notes = check_total(fitted.tables.value[END_NUMBERS], job.spec)
            asked, moments = job.plan.moments, None
            if asked is not None:
                moments = session.release(asked, purpose=MOMENTS)
        with stage("sample"):
            persons, rng = persons_of(spec), fresh_generator()
            frames = fitted.model.map(lambda m: drawn_frames(spec, m, persons, rng=rng))
            paid = fitted.tables.map(lambda t: estimands_json(spec, job.frame, t))
        with stage("bundle"):
            session.settle()
            if not job.published:
                content = LinkedContent(
                    spec=spec,
                    run=folder.run,
                    plan=job.plan,
                    synthetic=frames,
                    fitted=fitted,
                    estimands=paid if spec.estimands else None,
                    moments=moments,
                )
                _publish(job, content, log, force=force)
            folder.note_published()
        if spec.tracking.enabled:
            with stage("log the bundle in MLflow"):
                _record(log, job, LinkedBundle.stated(job.bundle))
        report, figures = _judge(session, job, log)
    later = put_off(job, attack)
    found = attacked(session, job) if attack == "now" and spec.attacks.membership.enabled else None
    if not later and not stopped(found):
        folder.remove()  # else it has what the attack needs
    attack_told = None if found is None else attack_report(job.internal, found)
    warnings = (*notes, *later, *untracked(log, job))
    return LinkedOutcome(job, job.bundle, report, figures, seconds(), warnings, attack=attack_told)


def _judge(
    session: Session, job: LinkedJob, log: Tracker
) -> tuple[Path | None, Mapping[str, float]]:
    """Judge both tables on real persons, where the spec asks for it: the report, and figures for
    the steward. The bundle is there, and nothing of it depends on them.
    """
    if not job.linked.evaluation.enabled:
        return None, {}
    from synthdp.release.judge import judge_visits

    with stage("judge"):
        report, figures = judge_visits(session, LinkedBundle.stated(job.bundle), job.internal)
    if job.linked.tracking.enabled:
        log.metrics(figures)
        log.artifact(report)
        log.keep(job.out)
    return report, figures


def _publish(job: LinkedJob, content: LinkedContent, log: Tracker, *, force: bool) -> None:
    """Write the bundle, unless a gate on its figures withholds it.

    Raises:
        GateError: one does.
    """

    def check(bundle: LinkedBundle) -> None:
        failed = [str(v) for v in _verdicts(bundle) if not v.passed]
        if failed:
            why = "; ".join(failed)
            withhold(job, by="the gates of its spec", why=why)
            _record(log, job, bundle, released=False)
            hint = "its budget is spent; `synthdp plan` says what noise will make of each score"
            raise GateError(f"the bundle is withheld: {why}", hint=hint)

    try:
        write_linked(
            job.bundle, content, ledger=job.ledger, force=force, signer=job.signer, check=check
        )
    except GateError:
        job.folder.remove()
        raise


def _verdicts(bundle: LinkedBundle) -> tuple[GateVerdict, ...]:
    """The gates, held against the upper ends of the scores' intervals."""
    figures = {s.name: Figure(s.high, ends=(s.low, s.high)) for s in bundle.scores}
    return check_gates(bundle.linked.gates, figures)


def _record(log: Tracker, job: LinkedJob, bundle: LinkedBundle, *, released: bool = True) -> None:
    """Log what is public to MLflow, and what became of it; of a bundle that was withheld no file.

    No model is registered: what draws two tables is no model of MLflow's.
    """
    if not job.linked.tracking.enabled:
        return
    kinds = Counter(edge.provenance for edge in bundle.graph.edges)
    arrows = {f"edges_{kind}": float(count) for kind, count in kinds.items()}
    log.metrics(spent(job) | with_ends(bundle.scores) | arrows)
    record_verdict(log, _verdicts(bundle), bundle=bundle.folder if released else None, model=False)
    missing_folders(job.internal)
    log.keep(job.out)


def attacked(session: Session, job: LinkedJob) -> Confidential[MembershipReport | NotJudged]:
    """The declared attack on the persons that were read, for the steward."""
    from synthdp.audit.linked import attack_persons

    attack = partial(attack_persons, spec=job.linked, folder=job.folder.shadows, progress=advance)
    with stage("attack"), judging_noted(job, job.bundle):
        return session.inspect(
            lambda table: guarded(attack, table), reason="membership inference on real persons"
        )
