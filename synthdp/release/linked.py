"""The road of a release of persons with visits: plan, read, reserve, measure, draw, publish.

It is that of one table (`release.run`) without what is not there yet for linked tables: gates,
estimands, an internal report, attacks and tracking. Nothing looks at rows after the last charge.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.bundle.content import check_target
from synthdp.bundle.linked import as_one, linked_yaml, persons_of, public_linked, table_files
from synthdp.bundle.linked_texts import linked_files
from synthdp.bundle.signing import load_signer
from synthdp.bundle.write_linked import LinkedContent, foresee_linked, write_linked
from synthdp.data.domain import Domain
from synthdp.data.visits import VisitFrame
from synthdp.files import text_sha256
from synthdp.inference.visit_effects import check_queries, effects_json
from synthdp.ledger.connect import (
    balance_of,
    budget_noted,
    cap_of,
    check_affordable,
    check_domain_from,
    entries_of,
    open_ledger,
    other_ids,
)
from synthdp.ledger.entries import Balance
from synthdp.model.planning import check_total
from synthdp.model.visits.fit import fit
from synthdp.model.visits.planning import END_NUMBERS, arrows_of, plan_linked
from synthdp.privacy.linked import read_linked
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.views import OnView
from synthdp.privacy.noise import Streams, fresh_generator
from synthdp.privacy.plan import ESTIMAND, ReleasePlan
from synthdp.privacy.private import Private
from synthdp.progress import seconds, shown_on, stage, warn
from synthdp.release import run_folder
from synthdp.release.job import Job, check_not_moved, check_spec
from synthdp.release.open_session import dropped_if_unpaid, open_session
from synthdp.report.prose import say_of_plan
from synthdp.report.sections import shares
from synthdp.sample.linked import drawn_frames
from synthdp.spec.checks.linked import linked_traps
from synthdp.spec.model import LinkedSpec
from synthdp.verify.at_hand import check_nearby


@dataclass(frozen=True, kw_only=True)
class LinkedJob(Job):
    """A run of a spec of linked tables; `spec` is what parts for one table ask of it."""

    linked: LinkedSpec
    frame: VisitFrame

    @property
    def published_sha256(self) -> str:
        """Digest of the `spec.yaml` that its bundle has."""
        return text_sha256(linked_yaml(public_linked(self.linked)))

    def sealed(self, streams: Streams) -> Private[Any]:
        """Read and seal both tables. No person is held out: nothing is judged on real ones."""
        folder = self.folder.spec_path.parent
        return read_linked(self.linked, self.frame, folder=folder, holdout=0.0, streams=streams)


@dataclass(frozen=True)
class LinkedOutcome:
    """What a run came to."""

    job: LinkedJob
    bundle: Path
    seconds: Mapping[str, float]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON, without any figure of real rows."""
        plan = self.job.plan
        return {
            "run": self.job.folder.run,
            "bundle": str(self.bundle),
            "tables": [csv for csv, _ in table_files(self.job.linked).values()],
            "epsilon": plan.epsilon,
            "epsilon_planned": plan.epsilon_spent,
            "delta": plan.delta,
            "seconds": dict(self.seconds),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        return say_of_plan("outcome_linked", outcome=self, plan=self.job.plan)


def release_linked(
    spec: LinkedSpec, spec_path: Path, text: str, *, out: Path | None = None, force: bool = False
) -> LinkedOutcome:
    """Run a spec, whose text is `text`, into `out`, as `run.release` does.

    Raises:
        SynthdpError: any mistake that the user can mend; nothing is spent before the data was found
            to fit.
    """
    with budget_noted(), shown_on():
        with stage("plan"):
            frame, one = VisitFrame.from_spec(spec), as_one(spec)
            signer = load_signer(spec.signing)
            out = out or Path("releases") / spec.dataset.id
            plan = plan_linked(spec, frame)
            check_target(out / "bundle", force=force)
            entries = entries_of(one, spec_path)
            check_nearby(entries, spec.dataset.id, out)
            check_domain_from(one, entries)
            balance = balance_of(one, spec_path)
            expected = linked_facts(spec, balance, plan=plan) | {
                "warnings": other_ids(one, entries)
            }
            warn([*expected["warnings"], *linked_traps(spec)])
            ledger = open_ledger(one, spec_path)
            check_affordable(one, ledger.balance(spec.dataset.id))
        folder = run_folder.start(out, spec_path, text, command=run_folder.RELEASE, force=force)
        job = LinkedJob(
            spec=one,
            domain=Domain.from_spec(one.columns),
            plan=plan,
            ledger=ledger,
            folder=folder,
            out=out,
            signer=signer,
            expected=expected,
            linked=spec,
            frame=frame,
        )
        with dropped_if_unpaid(job, f"`synthdp resume {out}`"):
            return carry_out(job, force=force)


def resume_linked(spec: LinkedSpec, out: Path) -> LinkedOutcome:
    """Continue the interrupted run of `spec` in `out` under its reservation, as `run.resume`."""
    with (
        budget_noted("nothing more was spent") as account,
        shown_on(),
        closing(run_folder.reopen(out)) as folder,
    ):
        check_not_moved(folder, out)
        one, frame = as_one(spec), VisitFrame.from_spec(spec)
        ledger = open_ledger(one, folder.spec_path, resumed=True)
        account.ledger, account.run = ledger, folder.run
        account.folder, account.again = folder.journal, f"`synthdp resume {out}`"
        check_nearby(ledger.entries(), spec.dataset.id, out)
        check_spec(folder, ledger)
        job = LinkedJob(
            spec=one,
            domain=Domain.from_spec(one.columns),
            plan=plan_linked(spec, frame),
            ledger=ledger,
            folder=folder,
            out=out,
            signer=load_signer(spec.signing),
            linked=spec,
            frame=frame,
        )
        return carry_out(job, force=True)


def carry_out(job: LinkedJob, *, force: bool) -> LinkedOutcome:
    """The whole release. A value that was released is read in the journal again; the draw that
    follows is free, and a bundle that is there is kept.
    """
    with stage("compute the guarantee"):
        foresee_linked(job.linked, job.plan)
    session = open_session(job, seal=job.sealed, published=job.published_sha256)
    spec = job.linked
    with stage("measure and fit"):
        fitted = fit(session, spec, job.frame, rng=fresh_generator())
        notes = check_total(fitted.tables.value[END_NUMBERS], job.spec)
    with stage("sample"):
        persons, rng = persons_of(spec), fresh_generator()
        frames = fitted.model.map(lambda m: drawn_frames(spec, m, persons, rng=rng))
        paid = fitted.tables.map(lambda t: effects_json(spec, job.frame, t))
    with stage("bundle"):
        session.settle()
        if not job.published:
            content = LinkedContent(
                spec=spec,
                run=job.folder.run,
                plan=job.plan,
                synthetic=frames,
                fitted=fitted,
                estimands=paid if spec.estimands else None,
            )
            write_linked(job.bundle, content, ledger=job.ledger, force=force, signer=job.signer)
        job.folder.note_published()
    job.folder.remove()
    return LinkedOutcome(job, job.bundle, seconds(), tuple(notes))


# --- the plan, as `synthdp plan` shows it ---


def planned_linked(spec: LinkedSpec, spec_path: Path) -> tuple[dict[str, Any], Balance]:
    """`linked_facts`, whether or not the ledger allows the release, and what the ledger says."""
    one, out = as_one(spec), Path("releases") / spec.dataset.id
    entries, balance = entries_of(one, spec_path), balance_of(one, spec_path)
    check_nearby(entries, spec.dataset.id, out)
    check_domain_from(one, entries)
    facts = linked_facts(spec, balance)
    return facts | {"warnings": [*other_ids(one, entries), *facts["warnings"]]}, balance


def linked_facts(
    spec: LinkedSpec, balance: Balance, *, plan: ReleasePlan | None = None
) -> dict[str, Any]:
    """Every look with its share of epsilon, its noise in persons, and the most rows of a person
    that it counts; what the ledger has; which files there will be.

    Raises:
        BudgetError: the accountant cannot resolve the spec's budget.
    """
    frame = VisitFrame.from_spec(spec)
    plan = plan_linked(spec, frame) if plan is None else plan
    check_queries(spec, frame)
    facts, known = plan.to_json(), spec.graph.mode != "predict"
    pairs = arrows_of(spec, frame).tables(frame)
    parts = shares([s["epsilon_alone"] for s in facts["spends"]], delta=plan.delta)
    spends = []
    for told, part, planned in zip(facts["spends"], parts, plan.spends, strict=True):
        look = planned.mechanism
        assert isinstance(look, OnView)
        if isinstance(look.inner, NoisyMarginals):
            tables, noise = len(look.inner.tables), min(look.inner.sigmas)
        else:  # mode predict chooses later: noise of one table alone
            tables = len(pairs.get(planned.purpose, ())) if known else 0
            tables = 1 if planned.purpose.startswith(ESTIMAND) else tables
            noise = look.inner.noise_multiplier * max(1, tables) ** 0.5
        spends.append(
            told
            | {"share": part, "view": look.view, "rows_of_a_person": look.rows}
            | {"tables": tables or None, "noise": noise}
        )
    cap = (
        balance.cap_epsilon
        if balance.cap_epsilon is not None
        else (cap_of(as_one(spec)) or [None])[0]
    )
    spent = {"spent_before": balance.epsilon, "spent_after": balance.epsilon + spec.privacy.epsilon}
    files = [*linked_files(spec), "SHA256SUMS"]
    return facts | {
        "dataset": spec.dataset.id,
        "spends": spends,
        "at_most": spec.dataset.visits.at_most,
        "persons": persons_of(spec),
        "ledger": spent | {"cap": cap},
        "files": files,
        "warnings": linked_traps(spec),
    }
