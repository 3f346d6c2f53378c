"""The beginning of every run: seal the rows, reserve the budget, open the session.

This order is part of the guarantee. A reservation is durable before a session exists, and only a
session can look at the sealed rows.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthdp.bundle.descriptions import published_sha256
from synthdp.data.domain import Domain
from synthdp.errors import BudgetError, DataError, OutputError, SynthdpError, VerifyError
from synthdp.ledger import connect
from synthdp.ledger.connect import open_ledger, steward_name
from synthdp.ledger.ledger import Ledger, coins_of
from synthdp.privacy.engines.opening import read_by, stamps_of
from synthdp.privacy.noise import Streams, load_sampler
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.private import Private
from synthdp.privacy.session import Session
from synthdp.privacy.source import guarded, read_private, read_texts
from synthdp.privacy.table import Table
from synthdp.progress import shown_on, stage
from synthdp.release import run_folder
from synthdp.release.job import Job, check_not_moved, how_to
from synthdp.release.plan_view import forecast
from synthdp.release.run_folder import FOLDER, RELEASE, STATE, RunFolder
from synthdp.spec.addresses import shown_path
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec
from synthdp.verify.at_hand import check_nearby


def open_session(
    job: Job,
    *,
    texts: bool = False,
    seal: Callable[[Streams], Private[Any]] | None = None,
) -> Session:
    """Read and seal the rows, then reserve the budget (a resumed run keeps its reservation).

    With `texts` the columns have no types yet: the rows are read as texts. Linked ones
    are read by `seal`.
    """
    spec, threads = job.spec, job.spec.compute.threads or os.cpu_count() or 1
    coins = _coins(job)
    streams = replace(Streams.fresh(), threads=threads, holdout=job.folder.holdout_coins(coins))
    with stage("read"):
        private = _sealed(job, streams, texts=texts) if seal is None else seal(streams)
    _check_same(job, coins, "was written while it was read")
    digest = job.plan.digest
    entries = job.ledger.run_entries(job.folder.run)
    reserved = next((e.body for e in entries if e.kind == "reserve"), None)
    if reserved is None:
        load_sampler()
        _check_unpaid(job)
        body = {
            "by": steward_name(),
            "spec_sha256": job.spec_sha256,
            "unit": spec.dataset.privacy_unit.meaning,
            "adjacency": spec.privacy.adjacency,
            "read_by": read_by(spec.dataset.source, spec.compute),
        }
        body |= {"plan_sha256": digest, "columns_sha256": connect.columns_sha256(spec)}
        body |= {"published_sha256": published_sha256(job.written)}
        if job.folder.command != RELEASE:
            body |= {"asked_sha256": job.folder.asked_sha256}
        body |= connect.searched_unit(spec.dataset.privacy_unit) if texts else {}
        if job.expected is not None:
            job.folder.keep_plan(job.expected)
            if "quality" in job.expected:  # nothing is forecast of linked tables
                body["expected"] = forecast(job.expected)
        job.ledger.reserve(
            spec.dataset.id,
            job.folder.run,
            epsilon=spec.privacy.epsilon,
            delta=spec.privacy.delta,
            cap=connect.cap_of(spec),
            body=body,
            bound=job.plan.bound,
            wave=connect.wave_of(spec),
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
        coins=coins,
    )


def _coins(job: Job) -> str:
    """The ledger's half of the key of who is held out, as at the run's first look. The first one
    keeps the mark of the files that it is for, before anything is read.

    Raises:
        BudgetError: the plan counts on another holdout than the spec's.
        DataError: the run began with other files. Nothing was read.
    """
    if job.plan.holdout not in (0.0, job.spec.evaluation.held_out):
        raise BudgetError("the plan counts on another holdout than that of the spec")
    coins = coins_of(job.ledger.run_entries(job.folder.run))
    if coins is None:
        coins = secrets.token_hex(16)
        if mark := _mark(job, coins):
            job.folder.keep(mark)
        return coins
    _check_same(job, coins, f"is not as it was when run {job.folder.run} began")
    return coins


def _mark(job: Job, coins: str) -> str:
    """What tells whether the files of the source are as they were at these coins, where epsilon
    counts on the coins of places in them; empty elsewhere. Of linked tables it is for persons, who
    have coins.
    """
    if not job.plan.holdout:
        return ""
    source, folder = job.spec.dataset.source, job.folder.spec_path.parent
    return job.folder.mark([coins, *guarded(source, lambda: stamps_of(source, folder))])


def _check_same(job: Job, coins: str, otherwise: str) -> None:
    if (mark := _mark(job, coins)) and not job.folder.has(mark):
        path = getattr(job.spec.dataset.source, "path", job.spec.dataset.source.kind)
        raise DataError(
            f"{shown_path(path)!r} {otherwise}: rows in other places have another coin for who is"
            " held out, where epsilon counts on one",
            hint="bring it back with the time of its last change, as `cp -p` keeps it, and give the"
            " command again; or start a new release with --force, which pays anew",
        )


def _sealed(job: Job, streams: Streams, *, texts: bool) -> Private[Table]:
    spec, folder = job.spec, job.folder.spec_path.parent
    if texts:
        return read_texts(
            spec.dataset,
            tuple(spec.columns),
            folder=folder,
            streams=streams,
            delta=spec.privacy.delta,
        )
    return read_private(
        spec.dataset,
        job.domain,
        folder=folder,
        holdout=spec.evaluation.held_out,
        streams=streams,
        delta=spec.privacy.delta,
        given=job.given,
        compute=spec.compute,
    )


def _check_unpaid(job: Job) -> None:
    """Refuse a run that has released values and that the ledger does not know. Such a ledger was
    deleted or set back, and would forget what the run spent.
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


@contextmanager
def reopened(out: Path, linked: ReleaseSpec | None = None) -> Iterator[tuple[RunFolder, Ledger]]:
    """The interrupted release in `out` and its ledger, as `run.resume` says. `linked` is what parts
    for one table ask of a spec of linked ones.
    """
    with (
        connect.budget_noted("nothing more was spent") as account,
        shown_on(),
        closing(run_folder.reopen(out)) as folder,
    ):
        if folder.command != RELEASE:  # it reserved the graph's share alone
            raise OutputError(
                f"{out} holds an interrupted `synthdp {folder.command}`, which is no release",
                hint=f"continue it with {run_folder.how_to_continue(out)}, or choose another"
                " folder with --out",
            )
        check_not_moved(folder, out)
        spec = linked or parse_spec(folder.spec_text, path=str(folder.spec_path))
        ledger = open_ledger(spec, folder.spec_path, resumed=True)
        account.ledger, account.run = ledger, folder.run
        account.folder, account.again = folder.journal, how_to("resume", spec, out)
        check_nearby(ledger.entries(), spec.dataset.id, out)
        yield folder, ledger


# --- runs that reserve and spend a budget of their own: of the graph alone, or to draft a spec ---


UNSPENT = "this command spent nothing"
"""Of an error before the run is known: an earlier, interrupted one may have spent."""


PAID_FOR = "make room or allow writing, and give the command again: it is paid for"


def own_job(
    spec_path: Path,
    text: str,
    spec: ReleaseSpec,
    domain: Domain,
    plan: ReleasePlan,
    out: Path,
    *,
    command: str,
    what: str,
    force: bool,
    finds_domain: bool = False,
) -> Job:
    """A new run in `out`, or the interrupted one of the same spec and command. `what` it is, in
    words. One that `finds_domain` need not say what earlier searches cost.

    What the run reserved its budget for is read in the ledger: its folder can be edited by hand.

    Raises:
        OutputError: `out` holds another run, or cannot be written.
        BudgetError: the ledger does not allow it.
    """
    interrupted = _interrupted(out, text, command, what, force=force)
    try:
        ledger = open_ledger(
            spec,
            interrupted.spec_path if interrupted else spec_path,
            resumed=interrupted is not None,
        )
        if interrupted is not None:
            _check_reserved(interrupted, ledger, out)
        check_nearby(ledger.entries(), spec.dataset.id, out)
        if not finds_domain:
            connect.check_domain_from(spec, ledger.entries())
    except SynthdpError:
        if interrupted is not None:
            interrupted.close()
        raise
    if interrupted is None:
        ledger.check(
            spec.dataset.id,
            epsilon=spec.privacy.epsilon,
            delta=spec.privacy.delta,
            cap=connect.cap_of(spec),
            bound=plan.bound,
            wave=connect.wave_of(spec),
        )
    return Job(
        spec,
        domain,
        plan,
        ledger,
        interrupted or run_folder.start(out, spec_path, text, command=command, force=force),
        out,
    )


@contextmanager
def dropped_if_unpaid(job: Job, again: str = "the same command") -> Iterator[None]:
    """Remove the folder of a run that reserved nothing; an error says what was spent, and that
    `again` goes on with the run.

    Without a reservation nothing was paid, so there is nothing to continue.
    """
    with connect.budget_noted() as account:
        account.ledger, account.run = job.ledger, job.folder.run
        account.folder, account.again = job.folder.journal, again
        try:
            yield
        finally:
            # A ledger that cannot say keeps the folder.
            with suppress(BudgetError, VerifyError):
                if not job.ledger.run_entries(job.folder.run):
                    job.folder.remove()
            job.folder.close()


def _interrupted(out: Path, text: str, command: str, what: str, *, force: bool) -> RunFolder | None:
    if force or not (out / FOLDER / STATE).exists():
        return None
    interrupted = run_folder.reopen(out)
    if interrupted.command == command and interrupted.spec_text == text:
        return interrupted
    interrupted.close()
    if interrupted.command != command:
        raise OutputError(
            f"{out} holds an interrupted `synthdp {interrupted.command}`",
            hint=f"continue it with {run_folder.how_to_continue(out)}, or choose another folder"
            " with --out",
        )
    raise OutputError(
        f"{out} holds an interrupted {what} of another spec",
        hint="bring that spec back to go on, or give --force to drop the run and pay again",
    )


def _check_reserved(interrupted: RunFolder, ledger: Ledger, out: Path) -> None:
    """Whether the ledger's reservation of this run is for what its folder says was asked.

    Raises:
        OutputError: it is for another command or spec, or was made before it held a digest.
    """
    entries = ledger.run_entries(interrupted.run)
    reserved = next((e.body for e in entries if e.kind == "reserve"), None)
    if reserved is None or reserved.get("asked_sha256") == interrupted.asked_sha256:
        return
    state = out / FOLDER / STATE
    raise OutputError(
        f"the ledger holds another command or spec of run {interrupted.run} than {state} says; its"
        " budget stays spent, and nothing more was spent",
        hint=(
            f"bring {state} back as it was written (a run of an earlier version ends with that"
            " version), or give --force to drop the run and pay again"
        ),
    )
