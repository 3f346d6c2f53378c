"""`synthdp init --private`: a draft spec from rows, under differential privacy, at a price.

A run reads a CSV file whose columns have no types, reserves a budget of its own in the dataset's
ledger, and looks twice. Noisy counts of public cells (`data.cells`) give types and bounds. Then, of
the columns where these show such, it finds texts and whole numbers that many rows have
(`privacy.mechanisms.frequent_texts`). What was found goes into the draft and into `found.json` in
the run's folder. The later release of the draft reserves from the same cap. An interrupted run goes
on when its command is given again: it neither pays nor looks twice.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.bundle.write import as_json
from synthdp.data.cells import cells_domain
from synthdp.errors import BudgetError, OutputError
from synthdp.files import write_whole
from synthdp.ledger.connect import budget_noted
from synthdp.ledger.domain_search import search_cost
from synthdp.privacy.calibration import make_domain_plan
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import FORMS, TEXTS, ReleasePlan, needed
from synthdp.privacy.session import Session
from synthdp.progress import Reporter
from synthdp.release.found_columns import columns_to_read, found_columns
from synthdp.release.job import Job
from synthdp.release.noisy_shape import Reader, surely
from synthdp.release.open_session import open_session
from synthdp.release.own_budget import UNSPENT, dropped_if_unpaid, own_job
from synthdp.spec.init.private_draft import FoundColumn, Request, private_draft, request_spec
from synthdp.spec.load.loader import parse_spec
from synthdp.spec.model import ReleaseSpec

FEW_ROWS, SMALL_EPSILON = 10_000, 0.5  # below these little is found
LOST = 0.1  # a share of rows worth a warning


@dataclass(frozen=True)
class PrivateInit:
    """What a run found. All of it is released: it may be printed."""

    job: Job
    columns: tuple[FoundColumn, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The columns and their cost."""
        privacy = self.job.spec.privacy
        return {
            "dataset": self.job.spec.dataset.id,
            "run": self.job.folder.run,
            "epsilon": privacy.epsilon,
            "epsilon_planned": self.job.plan.epsilon_spent,
            "delta": privacy.delta,
            "columns": [column.to_json() for column in self.columns],
            "warnings": list(self.warnings),
        }


def init_plan(spec: ReleaseSpec) -> ReleasePlan:
    """The plan of such a run; `spec` is that of `request_spec`."""
    privacy = spec.privacy
    return make_domain_plan(
        len(spec.columns),
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        rows_per_unit=spec.dataset.privacy_unit.max_rows,
    )


@budget_noted(UNSPENT)
def private_init(
    request: Request, csv: Path, out: Path, *, force: bool = False, reporter: Reporter | None = None
) -> PrivateInit:
    """Find the columns of `csv` and write the draft to `out`, or go on with the interrupted run.

    `force` replaces a draft that is there, and drops an interrupted run of another request, which
    stays paid.

    Raises:
        SpecError: an option is not allowed.
        OutputError: a file is there already, or cannot be written.
        BudgetError: the cap does not allow it, or noise would hide every column.
        DataError: the file cannot be read.
    """
    reporter = reporter or Reporter()
    with reporter.stage("plan"):
        text = request_spec(request)
        spec = parse_spec(text, path="options of `synthdp init --private`")
        plan = init_plan(spec)
        _check_noise(spec, plan)
        reporter.warn(option_warnings(request))
        job = _job(text, spec, plan, csv, out, force=force)
    with dropped_if_unpaid(job):
        reader, columns = _look(open_session(job, reporter, texts=True), spec, job.plan, reporter)
        lost = _losses(columns)
        reporter.warn(lost)
        found = PrivateInit(job, columns, (*option_warnings(request), *lost))
        cost = search_cost(job.ledger.entries(), spec.dataset.id)
        draft = private_draft(
            request, columns, run=job.folder.run, cost=cost, missing=reader.missing_words
        )
        _write(job.out / "found.json", as_json(found.to_json()))
        _write(out, draft)
        job.folder.remove()
        return found


def _check_noise(spec: ReleaseSpec, plan: ReleasePlan) -> None:
    """Whether a column whose values are all of one form would be told from noise."""
    rows, noise = spec.dataset.rows.value, needed(plan.forms, FORMS).sigmas[0]
    least = surely(len(spec.columns)) * noise
    if rows > least:
        return
    raise BudgetError(
        f"noise would hide every column: what {rows:,} rows have in common is told from noise of"
        f" {noise:,.0f} rows only above {least:,.0f}",
        hint=(
            "raise --epsilon, lower the rows of one id in --unit, leave columns out of the file, or"
            " write the columns from a codebook, which costs nothing: `synthdp init` without"
            " --private"
        ),
    )


def _job(
    text: str, spec: ReleaseSpec, plan: ReleasePlan, csv: Path, out: Path, *, force: bool
) -> Job:
    """A new run, or the interrupted one of the same request, which `force` does not drop."""

    def job(*, force: bool) -> Job:
        return own_job(
            out,
            text,
            spec,
            cells_domain(len(spec.columns)),
            plan,
            Path("releases") / spec.dataset.id / "init",
            command=shlex.join(["init", str(csv), "--private", "--out", str(out)]),
            what="search for columns",
            force=force,
            finds_domain=True,
        )

    try:
        return job(force=False)
    except OutputError:
        if not force:
            raise
    return job(force=True)


def _look(
    session: Session, spec: ReleaseSpec, plan: ReleasePlan, reporter: Reporter
) -> tuple[Reader, tuple[FoundColumn, ...]]:
    rows = spec.dataset.rows
    with reporter.stage("types and bounds"):
        tables = session.release(needed(plan.forms, FORMS), purpose=FORMS).value
        reader = _reader(spec, tables, rows.value if rows.kind == "public" else None)
    with reporter.stage("categories"):
        columns, texts = columns_to_read(reader), None
        if columns:
            budget = needed(plan.texts, TEXTS)
            texts = session.release(budget.choose(columns), purpose=TEXTS).value
        session.settle()
    return reader, found_columns(reader, texts)


def _reader(spec: ReleaseSpec, tables: tuple[NoisyTable, ...], rows: int | None) -> Reader:
    commas = getattr(spec.dataset.source, "decimal", ".") == ","
    return Reader(tuple(spec.columns), tables[::2], tables[1::2], rows, commas)


def _losses(columns: tuple[FoundColumn, ...]) -> list[str]:
    lost = [c for c in columns if c.lost > LOST]
    listed = ", ".join(f"{c.name!r} ({100 * c.lost:.0f}%)" for c in lost)
    much = (
        f"more than {100 * LOST:.0f}% of rows are expected to be lost in {listed}: declare these"
        " columns from a codebook, or take them out of the source"
    )
    return [much] if lost else []


def option_warnings(request: Request) -> list[str]:
    """What can be said before anything is spent."""
    rows, warnings = int(request.rows["value"]), []
    if request.epsilon < SMALL_EPSILON:
        warnings.append(
            f"epsilon {request.epsilon:g} is below {SMALL_EPSILON:g}: few categories will be found,"
            " and bounds will be cut"
        )
    if rows < FEW_ROWS:
        warnings.append(
            f"{rows:,} rows are fewer than {FEW_ROWS:,}: few categories will be found, and bounds"
            " will be cut; a codebook costs nothing"
        )
    if request.left[0] < 1e-2 or request.left[1] <= 0:
        warnings.append("the cap leaves nothing for a release of the draft")
    return warnings


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}",
            hint="make room or allow writing, and give the command again: it is paid for",
        ) from None
