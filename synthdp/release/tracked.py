"""What MLflow gets of a run: figures, attacks, verdict and files; never rows.

This module opens confidential values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from synthdp.bundle.noisy_values import ESTIMANDS
from synthdp.bundle.signing import STATEMENT
from synthdp.evaluate.dp_scores import with_ends
from synthdp.files import parse_json, read_text
from synthdp.graph.causal import CausalGraph
from synthdp.graph.level_groups import groups_of, on_groups
from synthdp.graph.validation import ValidationReport
from synthdp.model.fit import Fitted
from synthdp.release.gates import GateVerdict
from synthdp.release.job import Job
from synthdp.release.judge import Judgement, estimands_beside, opened
from synthdp.report.internal.content import EstimandBeside
from synthdp.report.public.content import measured, measured_pairs
from synthdp.report.verdicts import NOISY_SHAPE
from synthdp.spec.model import MembershipAttack
from synthdp.tracking.mlflow_run import Tracker, tracker
from synthdp.tracking.store import TRACKED, AttackOutcome, PublicationVerdict

if TYPE_CHECKING:
    from synthdp_attacks import MembershipReport


def tracked(job: Job) -> Tracker:
    """What logs a run; it may fail without ending a run that has already paid."""
    return tracker(
        job.written,
        folder=job.folder.spec_path.parent,
        spec_path=job.folder.spec_path,
        run=job.folder.run,
        paid=bool(job.ledger.run_entries(job.folder.run)),
    )


def untracked(log: Tracker, job: Job) -> list[str]:
    """What MLflow did not get, and what then logs it."""
    kept = f"what MLflow did not get is kept: `synthdp track {job.out}` logs it later"
    return [*log.warnings, kept] if log.warnings else []


def record_publication(
    log: Tracker,
    job: Job,
    fitted: Fitted,
    judgement: Judgement,
    verdicts: Sequence[GateVerdict],
    *,
    bundle: Path | None,
) -> None:
    """Log what is public, the bundle and the verdict to MLflow, before anything else is judged."""
    public = {"tv1_noisy": judgement.tv1_noisy.value} | (
        with_ends(judgement.scores.value) if judgement.scores else {}
    )
    public |= _lost_in_noise(job, fitted)
    log.metrics(spent(job) | public | graph_figures(fitted.graph.graph, fitted.graph.validation))
    if bundle is not None and job.spec.estimands:
        asked = parse_json(read_text(bundle / ESTIMANDS))["estimands"]
        told = [e["figures"] for e in asked if e["statistic"] != "table"]  # which tells itself
        answered = sum(any(f.get("interval") for f in figures) for figures in told)
        log.metrics({"estimands_asked": len(told), "estimands_answered": answered})
    record_verdict(log, verdicts, bundle=bundle)


def record_verdict(
    log: Tracker, verdicts: Sequence[GateVerdict], *, bundle: Path | None, model: bool = True
) -> None:
    """Log the files of a bundle that was published, its `model` where MLflow can draw from it, and
    what became of it.
    """
    if bundle is not None:
        for name in TRACKED:
            log.artifact(bundle / name, folder="bundle/privacy" if name == "privacy" else "bundle")
        if model:
            log.release(bundle)
    log.conclude(
        PublicationVerdict(
            released=bundle is not None,
            signed=bundle is not None and (bundle / STATEMENT).is_file(),
            gates=tuple(f"gate {v}: {v.outcome}" for v in verdicts),
        )
    )


def record_judgement(
    log: Tracker, job: Job, fitted: Fitted, judgement: Judgement, *, report: Path
) -> None:
    """Log figures on real rows, attacks and the internal report to MLflow; rows never."""
    if (evaluation := opened(judgement.evaluation)) is not None:
        real = evaluation.utility.mean_auc_real
        log.metrics(evaluation.metrics() | ({} if real is None else {"trtr_auc": real}))
        if (apart := evaluation.told_apart) is not None:
            ends = {"_low": apart.low, "_high": apart.high}
            log.metrics({"told_apart_auc" + end: v for end, v in ({"": apart.auc} | ends).items()})
    if (estimands := opened(judgement.estimands)) is not None:
        log.metrics(_worst(estimands_beside(job, fitted, estimands)))
    if (attack := opened(judgement.attack)) is not None:
        for outcome in _attack_outcomes(attack, job.spec.attacks.membership):
            log.attack(outcome)
    log.artifact(report)
    log.keep(report.parent.parent)


def record_refusal(log: Tracker, job: Job, found: ValidationReport, *, report: Path) -> None:
    """What MLflow learns of a run whose graph the tables refuted."""
    log.metrics(spent(job) | graph_figures(found.apply("flag"), found))
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
        loose = {"edges_of_unknown_direction": float(len(graph.undirected))}
        counts = {f"edges_{kind}": float(kinds.count(kind)) for kind in dict.fromkeys(kinds)}
        return counts | (loose if graph.undirected else {})
    names = {"arrow": "edges", "independence": "independences"}
    return {
        f"{names[kind]}_{status}": float(count)
        for kind, counts in found.counts().items()
        for status, count in counts.items()
    }


def spent(job: Job) -> dict[str, float]:
    """What the whole plan composes to, which is the guarantee, and what this outcome used of it."""
    return {"epsilon_spent": job.spent.epsilon_spent, "epsilon_planned": job.plan.epsilon_spent}


def _lost_in_noise(job: Job, fitted: Fitted) -> dict[str, float]:
    """How many columns, and pairs, of those measured have a table that is noise, as the report
    counts them.
    """
    tables = fitted.tables.value
    groups = groups_of(tables, job.domain)
    shown = [on_groups(table, groups) for table in tables]
    none = np.zeros((1, len(job.domain)), dtype=np.uint16)  # the noise is of the tables alone
    columns = [c.by_noise for c in measured(groups.coarse, none, shown)]
    pairs = [p.by_noise for p in measured_pairs(groups.coarse, none, shown)]
    return {
        name: float(sum(noise >= NOISY_SHAPE for noise in of))
        for name, of in (("columns_noise", columns), ("pairs_noise", pairs))
    }


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
