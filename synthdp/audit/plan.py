"""`synthdp audit SPEC`: does the plan of a spec keep its claim?

There are three kinds of evidence, from the sharpest to the bluntest:

- Record and replay of every planned mechanism on constructed neighbouring tables. It finds bugs and
  needs no rows.
- Canaries. A strong adversary tries to tell which of them were among the rows of one training.
- A membership attack on the whole pipeline.

On a simulated twin everything is public, and a release of the same plan publishes it in its
certificate. On real rows it is confidential and goes to the steward's report. No audit spends
budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from synthdp import __version__
from synthdp.audit.folder import AttackFolder, audit_folder
from synthdp.audit.mechanisms.calls import Replayed
from synthdp.audit.mechanisms.canaries import audit_canaries
from synthdp.audit.mechanisms.planned import replay_plan
from synthdp.audit.membership import attack_facts, attack_rows
from synthdp.bundle.audit_record import (
    CONFIDENTIAL_FILE,
    PUBLIC_FILE,
    Audit,
    AuditRecord,
    Replay,
    spends_of,
)
from synthdp.bundle.noisy_values import known_law, read_tables
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.errors import OutputError, VerifyError
from synthdp.files import parse_json, private_folder, read_text, write_private
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.predict import prediction_order
from synthdp.model.fit import architecture_for, causal_vae, target_regression
from synthdp.model.network import CausalVae
from synthdp.model.planning import plan_for
from synthdp.model.synthesizer import MODEL_FILE, Synthesizer, arrays
from synthdp.privacy.dpsgd.training import PerExampleLoss
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import TARGETS, TRAIN, ReleasePlan
from synthdp.privacy.private import Private
from synthdp.privacy.session import inspect
from synthdp.privacy.source import read_private
from synthdp.privacy.table import Table
from synthdp.progress import advance, stage
from synthdp.spec.load.loader import own_text, parse_any
from synthdp.spec.model import IdUnit, LinkedSpec, ReleaseSpec
from synthdp.verify.checks import verify_bundle
from synthdp.verify.rows import noise_of

if TYPE_CHECKING:
    from synthdp.audit.linked import LinkedAuditJob

T = TypeVar("T")
Rows = Literal["none", "simulated", "real"]

PAIRS = 100  # random neighbours beside the corner cases, in the replay
# What to do about a claim that was refuted: of a spec's plan, and of a bundle.
DO_NOT_RELEASE = "do not release; report this as a defect"
DO_NOT_USE = "do not use this bundle; tell its publisher"


@dataclass(frozen=True)
class AuditJob:
    """Everything public about one audit."""

    spec: ReleaseSpec
    domain: Domain
    plan: ReleasePlan
    out: Path

    @property
    def graph(self) -> CausalGraph:
        """The graph of the audited model, which comes from the spec, whatever the mode."""
        return public_graph(self.spec, self.domain)

    def network(self, purpose: str, domain: Domain) -> PerExampleLoss:
        """The model that the release would train for `purpose`, with fresh starting weights.

        A target to which no arrow leads gets other columns as its causes.
        """
        if purpose != TARGETS:
            return causal_vae(self.spec, domain, self.graph)
        architecture = architecture_for(self.spec, domain, self.graph)
        targets = list(map(domain.index, self.spec.synthesizer.targets))
        others = [i for i in range(len(domain)) if i not in targets]
        parents = list(architecture.parents)
        for target in targets:
            parents[target] = parents[target] or tuple(others[: self.spec.graph.max_parents])
        module = target_regression(
            domain,
            replace(architecture, parents=tuple(parents)),
            targets,
            [np.full(size, 1 / size) for size in domain.sizes],
        )
        # Weights that start at zero give all rows the same loss.
        module.linear.reset(torch.Generator().manual_seed(0))
        return module

    def replayed(self, rows: Rows, *, pairs: int) -> AuditRecord:
        """The replay, on constructed tables; `rows` says what the other audits will be made on."""
        with stage("replay the mechanisms"):
            replayed = replay_plan(
                self.plan, self.domain, module=self.network, random_pairs=pairs, progress=advance
            )
        miss = [s.mechanism.name for s in self.plan.spends if s.purpose != TRAIN]
        missed = {"replay_only": tuple(miss) if rows != "none" else ()}
        return record_of(self.plan, rows, replayed).model_copy(update=missed)

    def on_twin(self, record: AuditRecord, kept: AttackFolder, bundle: Path | None) -> AuditRecord:
        """With the audits that need rows, on those of a bundle's model, if there is one."""
        twin = simulated_twin(self.spec, self.domain, bundle=bundle, rng=kept.coins("twin"))
        return with_rows(self, record, twin, kept, twin_units(self.spec, twin))

    def on_real(
        self, record: AuditRecord, kept: AttackFolder, folder: Path, given: Private[Any] | None
    ) -> AuditRecord:
        """With the audits that need rows, on those of the source, whose paths start at `folder`:
        confidential, for the steward.
        """
        attacked = self.spec.attacks.membership.enabled  # else no one asks whose the rows are
        return on_real_rows(
            lambda table: with_rows(
                self, record, table.fit_codes, kept, table.fit_units if attacked else None
            ),
            self.spec,
            spec_folder=folder,
            coins=kept.coins("rows of a unit"),
            given=given,
        )


def _job(spec: ReleaseSpec | LinkedSpec, out: Path) -> AuditJob | LinkedAuditJob:
    if not isinstance(spec, LinkedSpec):
        domain = Domain.from_spec(spec.columns)
        return AuditJob(spec, domain, plan_for(spec, domain), out)
    from synthdp.audit.linked import LinkedAuditJob

    return LinkedAuditJob.of(spec, out)


def audit(
    spec_path: Path,
    *,
    rows: Rows,
    out: Path | None = None,
    pairs: int = PAIRS,
    text: str | None = None,
    given: Private[pd.DataFrame] | None = None,
) -> tuple[AuditRecord, Path]:
    """Audit the plan of the spec at `spec_path`; return the record and the file that holds it.

    An audit that is interrupted while it trains shadow models keeps them, and the same call goes on
    with them. Everything else is done again: it takes less time, and is evidence of the program
    that runs now.

    Args:
        rows: `none` replays only; `simulated` and `real` also plant canaries and attack.
        out: as for a release; the record is left there for the release to find.
        pairs: random neighbours beside the corner cases, in the replay.
        text: the spec's, where no file holds it.
        given: the rows of a source of kind `dataframe`.

    Raises:
        SynthdpError: any mistake that the user can mend.
    """
    with stage("plan"):
        text = own_text(spec_path) if text is None else text
        spec = parse_any(text, path=str(spec_path))
        job = _job(spec, out or Path("releases") / spec.dataset.id)
    with audit_folder(job.out, rows) as folder:
        record = job.replayed(rows, pairs=pairs)
        if rows == "simulated":
            released = job.out / "bundle"
            made = isinstance(job, AuditJob) and (released / MODEL_FILE).exists()
            record = job.on_twin(record, folder, released if made else None)
        if rows == "real":
            record = job.on_real(record, folder, spec_path.resolve().parent, given)
        name = CONFIDENTIAL_FILE if rows == "real" else PUBLIC_FILE
        return record, write_record(record, job.out / name)


def on_real_rows(
    look: Callable[[Table], T],
    spec: ReleaseSpec,
    *,
    spec_folder: Path,
    coins: np.random.Generator,
    holdout: float = 0.0,
    given: Private[pd.DataFrame] | None = None,
) -> T:
    """What `look` says of the rows of the source: confidential, for the steward, and no charge.

    `coins` draw which rows of a unit stay, and which units are held out.
    """
    private = read_private(
        spec.dataset,
        Domain.from_spec(spec.columns),
        folder=spec_folder,
        holdout=holdout,
        streams=replace(Streams.fresh(), holdout=coins),
        delta=spec.privacy.delta,
        given=given,
        compute=spec.compute,
    )
    return at_rows(private, look)


def at_rows(private: Private[Any], look: Callable[[Any], T]) -> T:
    """What `look` says of sealed rows, as `on_real_rows`."""
    return inspect(private, look, reason="audit on real rows").for_steward()


def check_unrefuted(record: AuditRecord, *, hint: str) -> None:
    """Raise `VerifyError` where the audit refuted a claim; `hint` says what to do then."""
    if record.refuted:
        found = f"{len(record.refuted)} findings, the first: " if len(record.refuted) > 1 else ""
        raise VerifyError(f"the claim is refuted: {found}{record.refuted[0]}", hint=hint)


def write_record(record: AuditRecord, path: Path) -> Path:
    """Write `record` to `path` and return `path`; a record on real rows is for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = record.model_dump_json(indent=1) + "\n"
    if record.rows == "real":
        private_folder(path.parent)
        write_private(path, text)
    else:
        path.write_text(text, encoding="utf-8")
    return path


def record_of(plan: ReleasePlan, rows: Rows, replayed: Replayed) -> AuditRecord:
    """The record of a replay; `rows` says what other audits will be made on."""
    return AuditRecord(
        program=f"synthdp {__version__}",
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        rows=rows,
        spends=spends_of(plan),
        replay=Replay(
            mechanisms=len(replayed.mechanisms),
            pairs=replayed.pairs,
            largest_share=replayed.largest_share,
            findings=tuple(map(str, replayed.findings)),
        ),
    )


def with_rows(
    job: AuditJob,
    record: AuditRecord,
    codes: Codes,
    folder: AttackFolder,
    units: npt.NDArray[np.int64] | None,
) -> AuditRecord:
    """`record` with the audits that need rows: canaries in one training run, and membership.

    The membership attack runs if the spec enables it. Where nothing is trained there are no
    canaries. `codes` are levels `[rows, columns]`, `units` the number of each row's unit.
    """

    audits, attack, planned = record.audits, None, job.plan.train
    if planned is not None:
        with stage("plant canaries"):
            result = confirmed(
                lambda: audit_canaries(
                    planned,
                    rows=codes,
                    module=job.network(TRAIN, job.domain),
                    delta=job.plan.delta,
                    progress=advance,
                )
            )
            audits += (result,)
    if job.spec.attacks.membership.enabled:
        with stage("membership attack"):
            report = attack_rows(
                codes,
                job.spec,
                job.domain,
                job.graph,
                folder=folder.path,
                progress=advance,
                units=units,
            )
            unit = None if report.target == "record" else job.spec.dataset.privacy_unit.meaning
            attack = attack_facts(report, pairs=job.spec.attacks.membership.pairs, unit=unit)
    return record.model_copy(update={"audits": audits, "membership": attack})


def confirmed(run: Callable[[], Audit]) -> Audit:
    """The result of `run`, repeated independently after an alarm.

    A claim counts as refuted if every repetition raises its alarm.
    """
    result = run()
    # An audit of a true claim raises the alarm with probability at most 5%, three independent ones
    # in a row with at most .0125%.
    refuted = result.refuted and all(run().refuted for _ in range(2))
    return result.model_copy(update={"refuted": refuted})


# --- `synthdp audit BUNDLE` ---


NEEDS_ROWS = (
    "Not audited here, for want of the source's rows: canaries among them, and the membership of"
    " real rows. Whoever has them runs `synthdp audit SPEC` with the spec that made this bundle;"
    " the result is for the steward alone."
)
FALSE_ALARMS = 1e-3  # of the test on noisy tables; it cannot be repeated on new noise


def audit_bundle(
    folder: Path, *, replay_only: bool, out: Path | None = None, pairs: int = PAIRS
) -> tuple[AuditRecord, Path]:
    """Audit the bundle in `folder`; return the record and the file that holds it.

    The bundle is verified. Its plan is replayed from its spec. Its noisy tables are compared with
    each other, since they all count the same rows. Unless only a replay is asked for, canaries and
    the membership attack run on rows drawn from its model. What needs the real rows stays with the
    steward.

    The file is by default `audits/<dataset id>/audit.json`.

    Args:
        replay_only: leaves out what trains models.
        pairs: as for the audit of a spec.

    Raises:
        VerifyError: it is no bundle, or not what it claims to be.
        OutputError: this version of the program plans other spends than were charged.
    """
    with stage("verify"):
        verify_bundle(folder)
    with stage("plan"):
        spec = parse_any(read_text(folder / "spec.yaml"), path="spec.yaml")
        job = _job(spec, out or Path("audits") / spec.dataset.id)
    with audit_folder(job.out, "bundle") as kept:
        record = job.replayed("none" if replay_only else "simulated", pairs=pairs)
        check_covers(record, folder)
        if isinstance(job, AuditJob):  # of linked tables each counts other rows
            tables = noise_of(read_tables(folder), false_alarms=FALSE_ALARMS)
            record = record.model_copy(update={"tables": tables})
        if not replay_only:
            record = job.on_twin(record, kept, folder)
        return record, write_record(record, job.out / PUBLIC_FILE)


def check_covers(record: AuditRecord, folder: Path) -> None:
    """Check that a record is of what the bundle in `folder` was charged for.

    Raises:
        OutputError: it is of other spends.
    """
    ledger = parse_json(read_text(folder / "privacy" / "ledger.json"))
    charges = [entry["body"] for entry in ledger["entries"] if entry["kind"] == "charge"]
    if not record.covers((charge["purpose"], charge["event"]) for charge in charges):
        hint = f"audit it with the version of synthdp that made it; this is {record.program}"
        raise OutputError(
            f"the spec in {folder} plans other spends here than its ledger charged", hint=hint
        )


# --- the simulated twin of a spec ---


def simulated_twin(
    spec: ReleaseSpec, domain: Domain, *, bundle: Path | None, rng: np.random.Generator
) -> Codes:
    """Levels `[declared rows, columns]` from the model in `bundle`, or from a random network.

    The random network, over the spec's columns and given arrows, is used where `bundle` is None.
    Either is a function of public values, so everything computed on the twin may be published.

    Raises:
        VerifyError: the bundle's model is damaged.
        OutputError: its columns or levels are not those of the spec.
    """
    rows = spec.dataset.rows.value
    if bundle is None:
        return _random_network(spec, domain, rng).sample(rows, rng=rng)
    model, law = Synthesizer.load(bundle), known_law(bundle, spec, domain, margins=False)
    if model.columns != domain.names or model.architecture.sizes != law.groups.coarse.sizes:
        raise OutputError(
            f"the model in {bundle} is of other columns than the spec",
            hint="give the spec that made the bundle, or another --out",
        )
    return law.drawn(model.sample(rows, rng=rng), rng=rng)


def twin_units(spec: ReleaseSpec, twin: Codes) -> npt.NDArray[np.int64] | None:
    """The number of each simulated row's unit: as many rows to each as one may have at most. None
    where a row is a unit.
    """
    unit = spec.dataset.privacy_unit
    return np.arange(len(twin)) // unit.max_rows if isinstance(unit, IdUnit) else None


def public_graph(spec: ReleaseSpec, domain: Domain) -> CausalGraph:
    """A graph that no row had a part in: the spec's arrows, whatever the mode.

    Mode predict finds all of its arrows in rows. Here each column is predicted by the one before.
    """
    if spec.graph.mode != "predict":
        return CausalGraph.from_spec(spec.graph, domain.names)
    order = prediction_order(spec.graph, domain.names, spec.evaluation.targets)
    arrows = (GraphEdge(*pair, directed=True, provenance="predictive") for pair in pairwise(order))
    return CausalGraph(domain.names, tuple(arrows))


def _random_network(spec: ReleaseSpec, domain: Domain, rng: np.random.Generator) -> Synthesizer:
    """The spec's network with independent Gaussian weights."""
    effect = 2.0  # standard deviation that the hidden units add to logits: a strong dependence
    architecture = architecture_for(spec, domain, public_graph(spec, domain))
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    model = CausalVae(architecture, generator=generator)
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = effect / architecture.hidden**0.5 if name == "decode_levels.weight" else 1.0
            values = rng.standard_normal(tuple(p.shape), dtype=np.float32)
            p.copy_(torch.from_numpy(scale * values))
    return Synthesizer(domain.names, architecture, arrays(model.state_dict()))
