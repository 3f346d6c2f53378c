"""What the steward gets of a run: the internal report and the MLflow record.

This module opens confidential values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from synthdp.bundle.certificate.audit_record import AuditRecord
from synthdp.bundle.certificate.facts import planned_of
from synthdp.bundle.certificate.profile import profile_of
from synthdp.bundle.certificate.scores_text import in_words
from synthdp.bundle.signing.statement import STATEMENT
from synthdp.data.domain import Domain
from synthdp.evaluate.dp_scores import headline
from synthdp.graph.causal import CausalGraph
from synthdp.graph.validation import ValidationReport
from synthdp.inference.estimands import EstimandResult, clipped_text, estimand_results
from synthdp.inference.figures import Value
from synthdp.ledger.ledger import Ledger
from synthdp.model.fit import Fitted
from synthdp.privacy.plan import ReleasePlan
from synthdp.release.gates import GateVerdict
from synthdp.release.judge import Judgement
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
from synthdp.spec.model import MembershipAttack, ReleaseSpec
from synthdp.spec.model.rules import engine_of
from synthdp.tracking.note import AttackOutcome, PublicationVerdict
from synthdp.tracking.tracker import Tracker
from synthdp_attacks import MembershipReport

# What MLflow gets of a bundle: all that describes it, and the model, but no rows.
TRACKED = (
    *("report.html", "DATACARD.md", "README.md", "croissant.json", "datapackage.json"),
    *("privacy", "spec.yaml", "graph.svg", "graph.json", "model.safetensors", "model.json"),
)


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
) -> Path:
    """Write `internal.html` and `internal.json` into `target`; returns the page.

    `begin` is called with the name of each of the two steps.
    """
    begin("budget step by step")
    content = replace(
        _content(run, audits=audits, seconds=seconds),
        gates=tuple(
            GateResult(
                metric=v.gate.metric,
                bound=v.bound,
                value=v.value,
                passed=v.passed,
                outside_guarantee=v.gate.outside_guarantee,
            )
            for v in verdicts
        ),
        tv1_noisy=judgement.tv1_noisy.value,
        evaluation=judgement.evaluation.for_steward() if judgement.evaluation is not None else None,
        graph=_graph_view(run, fitted.graph.graph, fitted.graph.validation),
        attack=judgement.attack.for_steward().to_json() if judgement.attack is not None else None,
        misfits=judgement.misfits.for_steward(),
    )
    if judgement.domain is not None:
        content = replace(content, domain=judgement.domain)
    if judgement.suggestions is not None:
        content = replace(content, suggestions=judgement.suggestions.for_steward())
    if judgement.estimands is not None:
        content = replace(
            content, estimands=(*_estimands(run, fitted, judgement.estimands.for_steward()),)
        )
    if judgement.scores is not None:
        content = replace(content, notes=(*content.notes, *map(in_words, judgement.scores.value)))
    begin("internal report")
    return write_internal_report(target, content)


def _estimands(
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


def _worst(estimands: Iterable[EstimandBeside]) -> dict[str, float]:
    """The largest error of an estimand; 1 is half the width of its 95% interval."""
    errors = list[float]()
    for e in estimands:
        low, high = e.interval or (None, None)
        if low is None or high is None or e.released is None or e.real is None:
            continue
        if high > low:
            errors.append(2 * abs(e.released - e.real) / (high - low))
    return {"estimands_worst": max(errors)} if errors else {}


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
        notes=tuple(_notes(run.spec)),
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


def _graph_view(run: ReportedRun, graph: CausalGraph, found: ValidationReport | None) -> GraphView:
    edges = tuple((e.cause, e.effect, e.provenance) for e in graph.edges if e.structural)
    return GraphView(
        mode=run.spec.graph.mode,
        svg=graph.to_svg(),
        edges=edges,
        validation=found.to_json() if found else None,
    )


def record(
    log: Tracker,
    run: ReportedRun,
    fitted: Fitted,
    judgement: Judgement,
    verdicts: Sequence[GateVerdict],
    *,
    bundle: Path | None,
    report: Path,
) -> None:
    """Log figures, attacks, verdict and files to MLflow.

    Rows and the size of the synthetic table are never logged.
    """
    public = {"tv1_noisy": judgement.tv1_noisy.value} | (
        headline(judgement.scores.value) if judgement.scores else {}
    )
    log.metrics(_spent(run) | public | graph_figures(fitted.graph.graph, fitted.graph.validation))
    if judgement.evaluation is not None:
        evaluation = judgement.evaluation.for_steward()
        real = evaluation.utility.mean_auc_real
        log.metrics(evaluation.metrics() | ({} if real is None else {"trtr_auc": real}))
    if judgement.estimands is not None:
        log.metrics(_worst(_estimands(run, fitted, judgement.estimands.for_steward())))
    if judgement.attack is not None:
        for outcome in _attack_outcomes(
            judgement.attack.for_steward(), run.spec.attacks.membership
        ):
            log.attack(outcome)
    log.artifact(report)
    if bundle is not None:
        for name in TRACKED:
            log.artifact(bundle / name, folder="bundle/privacy" if name == "privacy" else "bundle")
        log.release(bundle)
    log.conclude(
        PublicationVerdict(
            released=bundle is not None,
            signed=bundle is not None and (bundle / STATEMENT).is_file(),
            gates=tuple(f"gate {v}: {'passed' if v.passed else 'failed'}" for v in verdicts),
        )
    )
    log.keep(report.parent.parent)


def record_refusal(
    log: Tracker, run: ReportedRun, found: ValidationReport, *, report: Path
) -> None:
    """What MLflow learns of a run whose graph the tables refuted."""
    log.metrics(_spent(run) | graph_figures(found.apply("flag"), found))
    log.artifact(report)
    log.conclude(
        PublicationVerdict(
            released=False, gates=tuple(f"the graph is refuted: {f.claim}" for f in found.refuted)
        )
    )
    log.keep(report.parent.parent)


def graph_figures(graph: CausalGraph, found: ValidationReport | None) -> dict[str, float]:
    """Counts of arrows and implied independences by status, for MLflow.

    Without a validation: counts of links by provenance.
    """
    if found is None:
        kinds = [e.provenance for e in graph.edges]
        return {f"edges_{kind}": float(kinds.count(kind)) for kind in dict.fromkeys(kinds)}
    names = {"arrow": "edges", "independence": "independences"}
    return {
        f"{names[kind]}_{status}": float(count)
        for kind, counts in found.counts().items()
        for status, count in counts.items()
    }


def _spent(run: ReportedRun) -> dict[str, float]:
    """What the whole plan composes to, which is the guarantee, and what this outcome used of it."""
    return {"epsilon_spent": run.spent.epsilon_spent, "epsilon_planned": run.plan.epsilon_spent}


def _attack_outcomes(
    report: MembershipReport, settings: MembershipAttack
) -> Iterator[AttackOutcome]:
    """Each declared attack; the black box comes last, since its figures become the run's own."""
    for verdict in reversed(report.declared):
        first = verdict.row == report.main
        advantage = verdict.row.advantage
        figures = {
            "advantage": advantage.value,
            "advantage_lower": advantage.lower,
            "advantage_upper": advantage.upper,
            "auc": verdict.row.auc.value,
            "ceiling": report.ceiling,
            "baseline": report.baseline.value if first else None,
            "epsilon_lower": verdict.epsilon_lower,
        }
        params: dict[str, str | int | float] = {
            "pairs": settings.pairs,
            "steps": settings.steps,
            "features": "targeted counting queries" if first else f"white box: {verdict.name}",
            "note": "sanity, not proof",
        }
        name = "membership" if first else f"membership, {verdict.row.extractor}"
        yield AttackOutcome(
            name=name, params=params, metrics={k: v for k, v in figures.items() if v is not None}
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
