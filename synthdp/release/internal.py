"""What the steward gets of a run: the internal report.

This module opens confidential values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from synthdp.bundle.certificate.audit_record import AuditRecord
from synthdp.bundle.certificate.facts import planned_of
from synthdp.bundle.certificate.profile import profile_of
from synthdp.bundle.certificate.scores_text import in_words
from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.validation import ValidationReport
from synthdp.inference.estimands import EstimandResult, clipped_text, estimand_results
from synthdp.inference.figures import Value
from synthdp.ledger.ledger import Ledger
from synthdp.model.fit import Fitted
from synthdp.privacy.plan import ReleasePlan
from synthdp.release.gates import GateVerdict
from synthdp.release.judge import Judgement, opened
from synthdp.release.run_folder import RunFolder
from synthdp.report.graph_view import GraphView
from synthdp.report.internal.content import (
    Budget,
    BudgetStep,
    EstimandBeside,
    GateResult,
    ReportContent,
)
from synthdp.report.internal.page import write_internal_report
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.rules import engine_of


class ReportedRun(Protocol):
    """The public facts of a run that the report shows."""

    @property
    def spec(self) -> ReleaseSpec: ...
    @property
    def domain(self) -> Domain: ...
    @property
    def plan(self) -> ReleasePlan: ...
    @property
    def spent(self) -> ReleasePlan: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def folder(self) -> RunFolder: ...


def internal_report(
    target: Path,
    run: ReportedRun,
    fitted: Fitted,
    judgement: Judgement,
    verdicts: Sequence[GateVerdict],
    *,
    audits: Sequence[AuditRecord],
    seconds: Mapping[str, float],
    begin: Callable[[str], None] = lambda what: None,
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write `internal.html` and `internal.json` into `target`; returns the page.

    `begin` is called with the name of each of the two steps. `absent` names more parts that are
    not in `judgement`, and why.
    """
    begin("budget step by step")
    attack = opened(judgement.attack)
    content = replace(
        _content(run, audits=audits, seconds=seconds),
        gates=tuple(
            GateResult(
                metric=v.gate.metric,
                bound=v.bound,
                value=v.value,
                absent="" if v.value is not None else v.source,
                passed=v.passed,
                outside_guarantee=v.gate.outside_guarantee,
            )
            for v in verdicts
        ),
        tv1_noisy=judgement.tv1_noisy.value,
        evaluation=opened(judgement.evaluation),
        graph=_graph_view(run, fitted.graph.graph, fitted.graph.validation),
        attack=None if attack is None else attack.to_json(),
        misfits={} if judgement.misfits is None else judgement.misfits.for_steward(),
        suggestions=opened(judgement.suggestions),
        absent=judgement.absent_for_steward() | dict(absent),
    )
    if judgement.domain is not None:
        content = replace(content, domain=judgement.domain)
    if (estimands := opened(judgement.estimands)) is not None:
        content = replace(content, estimands=(*estimands_beside(run, fitted, estimands),))
    if judgement.scores is not None:
        content = replace(content, notes=(*content.notes, *map(in_words, judgement.scores.value)))
    begin("internal report")
    return write_internal_report(target, content)


def estimands_beside(
    run: ReportedRun, fitted: Fitted, real: Sequence[EstimandResult]
) -> Iterator[EstimandBeside]:
    """Every released figure of an estimand beside that of all real rows."""
    sums = {name: released.value for name, released in fitted.sums.items()}
    results = estimand_results(run.spec, run.domain, sums)
    for asked, released, exact in zip(run.spec.estimands, results, real, strict=True):
        for figure, true in zip(released.figures, exact.figures, strict=True):
            yield EstimandBeside(
                text=clipped_text(run.spec, asked),
                statistic=released.statistic,
                group=figure.group or "",
                released=_number(figure.estimate),
                interval=None if figure.interval is None else tuple(map(_number, figure.interval)),
                real=_number(true.estimate),
            )


def _number(value: Value | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def refused_report(
    target: Path,
    run: ReportedRun,
    found: ValidationReport,
    *,
    audits: Sequence[AuditRecord],
    seconds: Mapping[str, float],
) -> Path:
    """Write the report of a run whose graph the noisy tables refuted.

    Nothing was trained, so nothing else could be judged.
    """
    gate = GateResult(
        metric="refuted claims of the graph",
        bound="at most 0",
        value=float(len(found.refuted)),
        passed=False,
    )
    content = replace(
        _content(run, audits=audits, seconds=seconds),
        gates=(gate,),
        graph=_graph_view(run, found.apply("flag"), found),
    )
    return write_internal_report(target, content)


def _content(
    run: ReportedRun, *, audits: Sequence[AuditRecord], seconds: Mapping[str, float]
) -> ReportContent:
    """What the report says of every run."""
    profile = profile_of(planned_of(run.plan), run.spec)
    return ReportContent(
        title=run.spec.dataset.title or run.spec.dataset.id,
        run=run.folder.run,
        created=run.folder.created,
        domain=run.domain,
        budget=_budget(run),
        profile=tuple((p["epsilon"], p["delta"]) for p in profile["points"]),
        audits=tuple(a.model_dump() | {"refuted": a.refuted} for a in audits),
        timings=dict(seconds),
        notes=(*_notes(run.spec), *_read_by(run)),
    )


def _notes(spec: ReleaseSpec) -> Iterator[str]:
    for text in spec.constraints:
        yield f"Every synthetic row fulfils the constraint {text}"
    engine = engine_of(spec.dataset.source, spec.compute)
    if engine != "memory" and spec.evaluation.enabled:
        yield (
            f"The real rows lie in engine {engine}. What is judged here is a random sample of at"
            f" most {spec.evaluation.max_rows:,} of them, which by itself is some way from all."
            " Paid figures are beside those of all rows"
        )


def _read_by(run: ReportedRun) -> Iterator[str]:
    """What read the rows, by the ledger: a run that goes on is told of as it began."""
    for entry in run.ledger.run_entries(run.folder.run):
        if "read_by" in entry.body:
            how = ", ".join(f"{name} {value}" for name, value in entry.body["read_by"].items())
            yield f"The rows were read by: {how}"


def _graph_view(run: ReportedRun, graph: CausalGraph, found: ValidationReport | None) -> GraphView:
    edges = tuple((e.cause, e.effect, e.provenance) for e in graph.edges if e.structural)
    return GraphView(
        mode=run.spec.graph.mode,
        svg=graph.to_svg(),
        edges=edges,
        validation=found.to_json() if found else None,
    )


def _budget(run: ReportedRun) -> Budget:
    plan, used, balance = run.plan, run.spent, run.ledger.balance(run.spec.dataset.id)
    needed, found = {s.purpose for s in used.spends}, run.spec.dataset.domain_from
    steps = tuple(
        BudgetStep(
            purpose=s.purpose,
            label=s.purpose if s.purpose in needed else f"{s.purpose} (unused)",
            mechanism=s.mechanism.name,
            epsilon=plan.epsilon_of(s),
            used=s.purpose in needed,
        )
        for s in plan.spends
    )
    return Budget(
        epsilon=plan.epsilon,
        epsilon_planned=plan.epsilon_spent,
        epsilon_spent=used.epsilon_spent,
        delta=plan.delta,
        adjacency=plan.adjacency,
        unit=run.spec.dataset.privacy_unit.meaning,
        steps=steps,
        group_epsilons=plan.group_epsilons,
        cap_epsilon=balance.cap_epsilon,
        dataset_spent=balance.epsilon,
        search=(found.epsilon, found.delta) if found else None,
    )
