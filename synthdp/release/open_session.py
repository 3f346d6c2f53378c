"""The beginning of every run: seal the rows, reserve the budget, open the session.

This order is part of the guarantee. A reservation is durable before a session exists, and only a
session can look at the sealed rows.
"""

from __future__ import annotations

from dataclasses import replace

from synthdp.bundle.metadata.readme import published_sha256
from synthdp.errors import BudgetError
from synthdp.ledger.connect import cap_of, columns_sha256, steward_name
from synthdp.ledger.domain_search import searched_unit
from synthdp.privacy.noise import Streams
from synthdp.privacy.private import Private
from synthdp.privacy.readers.engines.opening import read_by
from synthdp.privacy.session import Session
from synthdp.privacy.source import read_private, read_texts
from synthdp.privacy.table import Table
from synthdp.progress import Reporter
from synthdp.release.job import Job
from synthdp.release.run_folder import RELEASE


def open_session(job: Job, reporter: Reporter, *, texts: bool = False) -> Session:
    """Read and seal the rows, then reserve the budget (a resumed run keeps its reservation).

    With `texts` the columns have no types yet: the rows are read as texts.
    """
    spec, streams = job.spec, replace(Streams.fresh(), holdout=job.folder.holdout_coins())
    with reporter.stage("read"):
        private = (_read_texts if texts else _read)(job, streams)
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
            "read_by": read_by(spec.dataset.source, spec.compute),
        }
        body |= {"plan_sha256": digest, "columns_sha256": columns_sha256(spec)}
        body |= {"published_sha256": published_sha256(spec)}
        if job.folder.command != RELEASE:
            body |= {"asked_sha256": job.folder.asked_sha256}
        body |= searched_unit(spec.dataset.privacy_unit) if texts else {}
        job.ledger.reserve(
            spec.dataset.id,
            job.folder.run,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            cap=cap_of(spec),
            body=body,
        )
    elif reserved.get("plan_sha256") != digest or "published_sha256" not in reserved:
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


def _read(job: Job, streams: Streams) -> Private[Table]:
    spec = job.spec
    return read_private(
        spec.dataset,
        job.domain,
        folder=job.folder.spec_path.parent,
        holdout=spec.evaluation.held_out,
        streams=streams,
        delta=spec.privacy.delta,
        given=job.given,
        compute=spec.compute,
    )


def _read_texts(job: Job, streams: Streams) -> Private[Table]:
    return read_texts(
        job.spec.dataset,
        tuple(job.spec.columns),
        folder=job.folder.spec_path.parent,
        streams=streams,
        delta=job.spec.privacy.delta,
    )


def _check_unpaid(job: Job) -> None:
    """Refuse a run that has released values and that the ledger does not know.

    Such a ledger was deleted or set back, and would forget what the run spent.
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
