"""The graph stage alone, with a reservation and charges of its own.

`synthdp graph learn`, `synthdp graph validate` and `synthdp graph orient` run it.

A run reserves and spends the graph's share of the spec's budget, epsilon and delta times
`privacy.shares.graph`, and nothing else; no model is trained, no row held out. A release of the
same spec pays for its graph again: what was learned here is free to use in it, as arrows of a spec
in mode given. An interrupted run goes on when its command is given again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthdp.data.domain import Domain
from synthdp.errors import SpecError, SpecProblem, SynthdpError, disk_errors
from synthdp.graph.causal import CausalGraph
from synthdp.graph.formats import WRITERS
from synthdp.graph.knowledge import Pair
from synthdp.graph.stage import GraphResult, find_graph, rounds
from synthdp.graph.validation import GraphRefuted, ValidationReport
from synthdp.ledger.connect import budget_noted
from synthdp.privacy.calibration import expected_fit_rows, make_search_plan
from synthdp.privacy.mechanisms.anm import Score
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.progress import stage
from synthdp.release.job import Job
from synthdp.release.open_session import PAID_FOR, UNSPENT, dropped_if_unpaid, open_session, own_job
from synthdp.spec.load.loader import own_text, parse_spec
from synthdp.spec.load.wording import stated
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.rules import counts_only, engine_of

if TYPE_CHECKING:
    from synthdp.graph.contrib.anm_direction import Orientation

Mode = Literal["learn", "validate"]


@dataclass(frozen=True)
class GraphOutcome:
    """What a run found. `refused`: the spec says that a refuted graph fails, and it is refuted."""

    job: Job
    graph: CausalGraph
    validation: ValidationReport | None
    refused: GraphRefuted | None

    def to_json(self) -> dict[str, Any]:
        """The graph, its validation and its cost; all of it is public once the run is paid for.

        `epsilon_planned` is the guarantee, of the whole plan; `epsilon_spent` describes this
        outcome and bounds nothing.
        """
        spec, ledger = self.job.spec, self.job.ledger
        charges = [e for e in ledger.run_entries(self.job.folder.run) if e.kind == "charge"]
        cost = {
            "run": self.job.folder.run,
            "dataset": spec.dataset.id,
            "mode": spec.graph.mode,
            "epsilon_allowed": spec.privacy.epsilon,
            "epsilon_planned": self.job.plan.epsilon_spent,
            "epsilon_spent": self.job.spent.epsilon_spent if charges else 0.0,
            "delta": spec.privacy.delta,
            "adjacency": spec.privacy.adjacency,
            "unit": spec.dataset.privacy_unit.meaning,
            "ledger_entries": [e.hash for e in charges],
        }
        found = {"validation": self.validation.to_json()} if self.validation else {}
        return self.graph.to_json() | found | {"privacy": cost}


def share_of(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec as a graph run reads it: its budget is the graph's share.

    No row is held out for judging.
    """
    privacy, part = spec.privacy, spec.privacy.shares.graph
    return spec.model_copy(
        update={
            "privacy": privacy.model_copy(
                update={"epsilon": privacy.epsilon * part, "delta": privacy.delta * part}
            ),
            "evaluation": spec.evaluation.model_copy(update={"enabled": False}),
        }
    )


def graph_plan(spec: ReleaseSpec, domain: Domain) -> ReleasePlan:
    """The plan of a graph run; `release` as `share_of` made it."""
    rows, unseen = expected_fit_rows(spec), counts_only(spec)
    return _search_plan(spec, rounds(spec.graph, domain, rows=rows, counts_only=unseen))


def _search_plan(spec: ReleaseSpec, spends: Mapping[str, MechanismFactory]) -> ReleasePlan:
    privacy = spec.privacy
    return make_search_plan(
        spends,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=privacy.adjacency,
        rows_per_unit=spec.dataset.privacy_unit.max_rows,
    )


@budget_noted(UNSPENT)
def run_graph(
    spec_path: Path, *, mode: Mode, out: Path | None = None, force: bool = False
) -> GraphOutcome:
    """Learn or validate the spec's graph into `out`, or continue the interrupted run there.

    `out` is `releases/<dataset id>/graph` by default.

    Raises:
        SpecError: the spec has mistakes, or another graph mode.
        OutputError: `out` holds another run, or cannot be written.
        BudgetError, DataError: as in a release.
    """
    job = _job(spec_path, mode, graph_plan, out, "graph", command=f"graph {mode}", force=force)
    with dropped_if_unpaid(job):
        session = open_session(job)
        refused: GraphRefuted | None = None
        with stage("measure the graph"):
            try:
                result = find_graph(session, job.spec.graph, job.domain)
            except GraphRefuted as refusal:
                refused, result = refusal, GraphResult(refusal.report.apply("flag"))
        session.settle()
        found = refused.report if refused else result.validation
        outcome = GraphOutcome(job, result.graph, found, refused)
        _write(job.out, outcome)
        job.folder.remove()
        return outcome


@budget_noted(UNSPENT)
def run_orientation(
    spec_path: Path,
    pair: Pair,
    *,
    score: Score = "table",
    out: Path | None = None,
    force: bool = False,
) -> tuple[Job, Orientation]:
    """Say which of two numeric columns is the cause; spends the graph's share of the budget.

    The spec may have any graph mode that has a share.

    Raises:
        SpecError: the spec has mistakes, or no share for the graph.
        SynthdpError: a column is not numeric.
    """
    from synthdp.graph.contrib import anm_direction

    def plan_of(spec: ReleaseSpec, domain: Domain) -> ReleasePlan:
        unknown = [name for name in pair if name not in domain.names]
        if unknown:
            raise SynthdpError(f"unknown column {unknown[0]!r}; columns: {', '.join(domain.names)}")
        _check_values(spec, spec_path)
        spends = anm_direction.orientation_spends(domain, pair, scores=(score,))
        return _search_plan(spec, spends)

    command = shlex.join(["graph", "orient", *pair, "--score", score])
    job = _job(spec_path, None, plan_of, out, "orient", command=command, force=force)
    with dropped_if_unpaid(job):
        session = open_session(job)
        with stage("measure the direction"):
            found = anm_direction.orient(session, [pair]).value[0][0]
        session.settle()
        job.folder.remove()
        return job, found


def _job(
    spec_path: Path,
    mode: Mode | None,
    plan_of: Callable[[ReleaseSpec, Domain], ReleasePlan],
    out: Path | None,
    name: str,
    *,
    command: str,
    force: bool,
) -> Job:
    """A new run of `command`, or the interrupted one; `name` is its folder's beside releases."""
    with stage("plan"):
        text = own_text(spec_path)
        spec = share_of(_checked(text, spec_path, mode))
        domain = Domain.from_spec(spec.columns)
        return own_job(
            spec_path,
            text,
            spec,
            domain,
            plan_of(spec, domain),
            out or Path("releases") / spec.dataset.id / name,
            command=command,
            what="graph run",
            force=force,
        )


def _checked(text: str, path: Path, mode: Mode | None) -> ReleaseSpec:
    loaded = parse_spec(text, path=str(path), graph_alone=True)
    if mode is None and loaded.privacy.shares.graph == 0:
        hint = "use mode validate or learn, and give privacy.shares.graph a part of the budget"
        wrote = stated(loaded, "privacy", "shares", "graph")
        message = f"{wrote}; `synthdp graph orient` spends the graph's share"
        raise SpecError([SpecProblem(str(path), 1, 1, "privacy.shares.graph", message, hint)])
    if mode is not None and loaded.graph.mode != mode:
        hint = f"say graph.mode: {mode}, and give privacy.shares.graph a part of the budget"
        message = f"got {loaded.graph.mode}; `synthdp graph {mode}` needs {mode}"
        raise SpecError([SpecProblem(str(path), 1, 1, "graph.mode", message, hint)])
    return loaded


def _check_values(spec: ReleaseSpec, path: Path) -> None:
    """Refuse a source that keeps levels alone, or none here: orienting reads values.

    Raises:
        SpecError: it is such a source; nothing was spent.
    """
    source = spec.dataset.source
    engine = engine_of(source, spec.compute)
    if engine != "memory":
        where, message = "compute.engine", f"engine {engine} gives no values"
        hint = "set it to memory, for this command alone"
    elif getattr(source, "levels_only", False):
        where, message = "dataset.source.levels_only", "levels_only keeps no values"
        hint = "leave it out, for this command alone"
    else:
        return
    message += ", and `synthdp graph orient` reads them"
    raise SpecError([SpecProblem(str(path), 1, 1, where, message, hint)])


def _write(out: Path, outcome: GraphOutcome) -> None:
    from synthdp.bundle.write import as_json

    title = outcome.job.spec.dataset.title or outcome.job.spec.dataset.id
    files: Mapping[str, str] = {
        "graph.json": as_json(outcome.to_json()),
        "graph.svg": outcome.graph.to_svg(title=f"Causal graph of {title}"),
        "graph.yaml": WRITERS["yaml"](outcome.graph),
    }
    with disk_errors(f"cannot write to {out}", hint=PAID_FOR):
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
