"""`synthdp audit`: does what a spec plans keep what it claims?

Three kinds of evidence, from the sharpest to the bluntest: record and replay of every planned
mechanism on neighbouring made-up tables (finds bugs, needs no rows); statistical audits, in which a
strong adversary tries to tell two neighbours apart from many runs of a mechanism, or from one
training run with canaries; and a membership attack on the whole pipeline.

On a simulated twin everything is public, and a release of the same plan publishes it in its
certificate. On real rows it is confidential and goes to the steward's report. Nothing here spends
budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from synthdp import __version__
from synthdp.audit.folder import AttackFolder, audit_folder
from synthdp.audit.mechanisms.canaries import audit_canaries
from synthdp.audit.mechanisms.f_curve import AuditResult
from synthdp.audit.mechanisms.registry import replay_plan
from synthdp.audit.mechanisms.worst_case import audit_plan, unaudited
from synthdp.audit.membership import attack_facts, attack_rows
from synthdp.audit.simulate import released_model, simulated_twin
from synthdp.bundle.certificate.audit_record import (
    CONFIDENTIAL_FILE,
    PUBLIC_FILE,
    Audit,
    AuditRecord,
    Replay,
    spends_of,
)
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.files import private_folder, write_private
from synthdp.graph.causal import CausalGraph
from synthdp.model.build import architecture_for, causal_vae, target_regression
from synthdp.model.planning import plan_for
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import PerExampleLoss
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import Plan
from synthdp.privacy.session import inspect
from synthdp.privacy.source import read_private
from synthdp.progress import Advance, Reporter
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import ReleaseSpec

Rows = Literal["none", "simulated", "real"]

RUNS = 5000  # of each mechanism in the statistical audits
PAIRS = 100  # random neighbours beside the corner cases, in the replay
# An audit of a true claim raises the alarm in up to 5% of its runs. After three alarms in a row it
# is .0125%.
CONFIRMATIONS = 2


@dataclass(frozen=True)
class AuditJob:
    """Everything public about one audit."""

    spec: ReleaseSpec
    domain: Domain
    plan: Plan
    out: Path
    reporter: Reporter

    @property
    def graph(self) -> CausalGraph:
        """The graph of the audited model: the spec's arrows, whatever the mode."""
        return CausalGraph.from_spec(self.spec.graph, self.domain.names)

    def network(self, purpose: str, domain: Domain) -> PerExampleLoss:
        """What the release would train for `purpose`, with fresh starting weights; a target that
        nothing leads to yet gets causes.
        """
        if purpose != "targets":
            return causal_vae(self.spec, domain, self.graph)
        architecture, targets = (
            architecture_for(self.spec, domain, self.graph),
            [domain.index(n) for n in self.spec.synthesizer.targets],
        )
        others = tuple(i for i in range(len(domain)) if i not in targets)[
            : self.spec.graph.max_parents
        ]
        caused = tuple(
            own or (others if i in targets else ()) for i, own in enumerate(architecture.parents)
        )
        module = target_regression(
            domain,
            replace(architecture, parents=caused),
            targets,
            [np.full(size, 1 / size) for size in domain.sizes],
        )
        module.linear.reset(
            torch.Generator().manual_seed(0)
        )  # what starts at zero gives all rows the same loss
        return module


def audit(
    spec_path: Path,
    *,
    rows: Rows,
    out: Path | None = None,
    runs: int = RUNS,
    pairs: int = PAIRS,
    reporter: Reporter | None = None,
) -> tuple[AuditRecord, Path]:
    """Audit the plan of the spec at `spec_path`; returns what was found and the file that holds it.

    An audit that was interrupted while shadow models were trained keeps these, and the same call
    goes on with them. All else is done
    again: it takes less time, and is evidence of the program that runs now.

    Args:
        rows: `none` replays only; `simulated` and `real` also run the statistical audits and the
            attack.
        out: as for a release; the record is left there for the release to find.
        runs: of each mechanism, in the statistical audits.
        pairs: random neighbours beside the corner cases, in the replay.
        reporter: shows the stages.

    Raises:
        SynthdpError: any mistake that the user can mend.
    """
    reporter = reporter or Reporter()
    with reporter.stage("plan"):
        spec = load_spec(spec_path)
        domain = Domain.from_spec(spec.columns)
        job = AuditJob(
            spec,
            domain,
            plan_for(spec, domain),
            out or Path("releases") / spec.dataset.id,
            reporter,
        )
    with audit_folder(job.out, rows) as folder:
        record = without_rows(job, rows, runs=runs, pairs=pairs)
        if rows == "simulated":
            twin = simulated_twin(
                spec, domain, bundle=released_model(job.out), rng=folder.coins("twin")
            )
            record = with_rows(job, record, twin, folder)
        if rows == "real":
            streams = replace(Streams.fresh(), holdout=folder.coins("rows of a unit"))
            private = read_private(
                spec.dataset,
                domain,
                folder=spec_path.resolve().parent,
                holdout=0.0,
                streams=streams,
                delta=spec.privacy.delta,
            )
            record = inspect(
                private,
                lambda table: with_rows(job, record, table.fit_codes, folder),
                reason="audit on real rows",
            ).for_steward()
        return record, write_record(
            record, job.out / (CONFIDENTIAL_FILE if rows == "real" else PUBLIC_FILE)
        )


def write_record(record: AuditRecord, path: Path) -> Path:
    """Write `record` to `path`, which is returned; one on real rows for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = record.model_dump_json(indent=1) + "\n"
    if record.rows == "real":
        private_folder(path.parent)
        write_private(path, text)
    else:
        path.write_text(text, encoding="utf-8")
    return path


def without_rows(job: AuditJob, rows: Rows, *, runs: int, pairs: int) -> AuditRecord:
    """The replay and, unless `rows` is `none`, the worst-case audits: both on made-up tables."""
    with job.reporter.stage("replay") as progress:
        replayed = replay_plan(
            job.plan, job.domain, module=job.network, random_pairs=pairs, progress=progress
        )
    audits: Sequence[Audit] = ()
    if rows != "none":
        with job.reporter.stage("worst case") as progress:
            audits = confirmed(
                lambda: audit_plan(job.plan, job.domain, runs=runs, progress=progress)
            )
    return AuditRecord(
        program=f"synthdp {__version__}",
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        rows=rows,
        spends=spends_of(job.plan),
        replay=Replay(
            mechanisms=len(replayed.mechanisms),
            pairs=replayed.pairs,
            largest_share=replayed.largest_share,
            findings=tuple(map(str, replayed.findings)),
        ),
        audits=tuple(audits),
        replay_only=unaudited(job.plan, job.domain) if rows != "none" else (),
    )


def with_rows(
    job: AuditJob, record: AuditRecord, codes: Codes, folder: AttackFolder
) -> AuditRecord:
    """`record` and what needs rows: canaries in one training run, and the membership attack if the
    spec has it on.
    """
    planned = job.plan.find("train")
    assert planned is not None and isinstance(planned.mechanism, DpSgd)
    training = planned.mechanism

    def canaries(progress: Advance) -> Sequence[AuditResult]:
        return (
            audit_canaries(
                training,
                rows=codes,
                module=job.network("train", job.domain),
                delta=job.plan.delta,
                progress=progress,
            ),
        )

    with job.reporter.stage("canaries") as progress:
        audits = (*record.audits, *confirmed(lambda: canaries(progress)))
    attack = None
    if job.spec.attacks.membership.enabled:
        with job.reporter.stage("membership attack") as progress:
            report = attack_rows(
                codes, job.spec, job.domain, job.graph, folder=folder.path, progress=progress
            )
            attack = attack_facts(report, pairs=job.spec.attacks.membership.pairs)
    return record.model_copy(update={"audits": audits, "membership": attack})


def confirmed(run: Callable[[], Sequence[AuditResult]]) -> Sequence[Audit]:
    """The results of `run`; a claim counts as refuted if every repetition, all of them independent,
    raises its alarm.
    """
    results = list(run())
    refuted = [r.alarm for r in results]
    for _ in range(CONFIRMATIONS):
        if any(refuted):
            refuted = [alarm and again.alarm for alarm, again in zip(refuted, run(), strict=True)]
    return [_facts(result, refuted=alarm) for result, alarm in zip(results, refuted, strict=True)]


def _facts(result: AuditResult, *, refuted: bool) -> Audit:
    return Audit(
        mechanism=result.mechanism,
        method=result.method,
        unit_rows=result.unit_rows,
        runs=result.runs,
        epsilon=result.epsilon_claimed if math.isfinite(result.epsilon_claimed) else None,
        delta=result.delta,
        epsilon_lower=result.epsilon_lower,
        epsilon_provable=result.epsilon_provable,
        fault=result.fault,
        power=result.detects_fault,
        refuted=refuted,
    )
