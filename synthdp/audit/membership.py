"""Membership inference against the release's own pipeline: shadow models trained exactly as the
release is.

The adversary's side lives in the package `synthdp_attacks`, which knows nothing of synthdp. Here it
gets a trainer: the same measuring, training, sampling and raking, at the release's epsilon and
delta, on a sub-sample of the rows. On real rows the result is confidential, on a simulated twin it
is public; either way a sanity check, never a proof.

A bundle holds the synthetic set, the model and the noisy tables, so the game is played against all
three: the black box of the synthetic set, a white box of the model's ELBO by likelihood ratios
(LiRA), and the noisy tables, whose noise is public: there the best attack is known, and since it
needs no training it is made on many more releases than there are models.
"""

from __future__ import annotations

import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from synthdp.audit.folder import AttackFolder
from synthdp.audit.shadow_models import fitted_shadows
from synthdp.bundle.certificate.audit_record import Advantage, DeclaredAttack, Membership
from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.stage import GraphResult
from synthdp.model.constraints import ConstraintsUnmet
from synthdp.model.fit import Fitted, measure, train
from synthdp.model.sampling import sample
from synthdp.privacy.event_kinds import event_to_json
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import Plan, make_plan
from synthdp.privacy.private import Confidential
from synthdp.privacy.session import Rehearsal, Session
from synthdp.spec.model import DeclaredRows, ReleaseSpec
from synthdp_attacks import (
    AttackVerdict,
    Claim,
    Dask,
    Fleet,
    FleetError,
    Interval,
    MembershipReport,
    NoisyCounts,
    Progress,
    Public,
    Runner,
    ThreatModel,
    WhiteBox,
    attack_membership,
    attack_tables,
    isolated_targets,
    provable_epsilon,
    shared_confidence,
    table_score,
)
from synthdp_attacks.fleet import RUNNERS
from synthdp_attacks.report import LOW_RATES
from synthdp_attacks.threat import Codes as AnyCodes
from synthdp_attacks.threat import Relation, Score

SIDE_BY_SIDE, LARGE_BATCH = (
    32,
    4096,
    # most shadow models of one stacked training, and examples of all their batches: beyond that
    # caches overflow
)
TARGETS = (
    1  # the most isolated row: the choice of the target matters more than the number of targets
)
ELBO = ("elbo", "lira_online")
WHITE_BOX = (
    ELBO,
    ("tables", "lira_online"),
)  # declared beforehand, beside the black box, where the tables' attacker has shadow models alone
TABLE_RELEASES, MAX_TABLES = (
    25,
    50_000,
)  # releases of each world for a pair of models, and noisy tables in all: some ten CPU seconds
# of z, the attacker's own: as many as leave the bound's own noise far below that of training
ELBO_DRAWS = 256


@dataclass(frozen=True)
class ShadowTrainer:
    """One shadow release: a fresh rehearsal of the pipeline on `rows`, and the synthetic set it
    gives; or many, trained side by side.

    Noise has no seed here either: `seed_sequence` only feeds sampling. With `white_box` the model
    and its noisy tables are shown, too.
    """

    spec: ReleaseSpec
    domain: Domain
    plan: Plan
    graph: CausalGraph
    white_box: bool = False

    @property
    def identity(self) -> str:
        """By all that the models are trained by, and not where."""
        return f"shadow releases {self.white_box} {_game(self.spec, self.plan, self.graph)}"

    def __call__(
        self, rows: AnyCodes, *, seed_sequence: np.random.SeedSequence
    ) -> AnyCodes | WhiteBox:
        """Train on levels `[rows, columns]` and release one synthetic set of the shadow spec's
        size.
        """
        import torch

        torch.set_num_threads(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rehearsal = Rehearsal(np.asarray(rows, dtype=np.uint16), self.domain, self.plan)
            graph = GraphResult(self.graph)
            marginals = measure(rehearsal)
            fitted = Fitted(
                marginals,
                graph,
                train(rehearsal, self.spec, self.domain, marginals, graph, progress=_quiet),
            )
            return self._released(fitted, seed_sequence)

    @property
    def group(self) -> int:
        """Models that are trained side by side: fewer where batches are large, since then calls
        cost little beside the numbers.
        """
        return max(1, min(SIDE_BY_SIDE, LARGE_BATCH // self.spec.synthesizer.batch))

    def many(
        self, rows: Sequence[AnyCodes], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[AnyCodes | WhiteBox]:
        """What calls on each of `rows` give, in much less time."""
        codes = [np.asarray(own, dtype=np.uint16) for own in rows]
        models = fitted_shadows(codes, self.spec, self.domain, self.plan, self.graph)
        for fitted, seed_sequence in zip(models, seed_sequences, strict=True):
            yield self._released(fitted, seed_sequence)

    def _released(
        self, fitted: Fitted, seed_sequence: np.random.SeedSequence
    ) -> AnyCodes | WhiteBox:
        synthetic = self._sampled(fitted, np.random.default_rng(seed_sequence))
        return WhiteBox(synthetic, released_scores(fitted)) if self.white_box else synthetic

    def _sampled(self, fitted: Fitted, rng: np.random.Generator) -> AnyCodes:
        """Its synthetic set. A model of so few rows may fulfil no constraint; it is then not held
        to them, so that no release ends for it.
        """
        try:
            return sample(fitted, self.spec, rng=rng, progress=_quiet).value
        except ConstraintsUnmet:
            return sample(
                fitted,
                self.spec.model_copy(update={"constraints": ()}),
                rng=rng,
                progress=_quiet,
            ).value


def released_scores(fitted: Fitted) -> dict[str, Score]:
    """What anyone who has the bundle can compute of one record `[columns]`: the model's ELBO, and
    how full the noisy cells are that it lies in.

    An ELBO is the mean over the same draws of z for all records and models, so that these differ by
    what was trained alone.
    """
    import torch

    synthesizer = fitted.synthesizer.value
    noisy = _with_positions(fitted.tables.value, synthesizer.columns)

    def elbo(record: AnyCodes) -> float:
        generator = torch.Generator().manual_seed(
            0
        )  # the attacker's own draws, no noise of a mechanism
        return float(
            synthesizer.elbo(
                np.asarray(record, dtype=np.uint16)[None, :], draws=ELBO_DRAWS, generator=generator
            )[0]
        )

    return {"elbo": elbo, "tables": table_score(noisy)}


def _with_positions(tables: Sequence[NoisyTable], columns: Sequence[str]) -> list[NoisyCounts]:
    """Released tables as the adversary's, who knows columns by their positions."""
    place = {name: position for position, name in enumerate(columns)}
    return [
        NoisyCounts(tuple(place[name] for name in t.columns), t.counts, t.sigma) for t in tables
    ]


def attack_release(
    session: Session,
    spec: ReleaseSpec,
    domain: Domain,
    graph: CausalGraph,
    *,
    folder: Path,
    progress: Callable[[int, int], None],
) -> Confidential[MembershipReport]:
    """Membership inference on the real rows, as `attack_rows`."""
    return session.inspect(
        lambda table: attack_rows(
            table.fit_codes, spec, domain, graph, folder=folder, progress=progress
        ),
        reason="membership inference on real rows",
    )


def attack_rows(
    codes: AnyCodes,
    spec: ReleaseSpec,
    domain: Domain,
    graph: CausalGraph,
    *,
    folder: Path,
    progress: Callable[[int, int], None],
) -> MembershipReport:
    """Membership inference against the pipeline of `release` on a sub-sample of `codes`.

    The black box, the model's ELBO and the noisy tables are declared beforehand; they share the 5%
    of error. Coins and shadow results lie in `folder` (see `attack_folder`): an attack that was
    interrupted there goes on with the models that it has.

    Raises:
        synthdp_attacks.AttackError: the sub-sample is too small for the game.
        OutputError: the workers or the cluster of `compute` cannot go on, or `folder` cannot be
            written.
    """
    shadow = shadow_spec(spec)
    plan = make_plan(shadow, domain)
    kept = AttackFolder.open(folder)
    rng = kept.coins("game")
    rows = codes[rng.permutation(len(codes))[: spec.attacks.membership.rows]]
    targets, claim = (
        isolated_targets(rows, TARGETS, rng),
        Claim(plan.epsilon, plan.delta, plan.profile),
    )
    models = kept.models_of(_game(shadow, plan, graph), rows, np.asarray(targets))
    logging.getLogger("joblib").setLevel(logging.ERROR)
    try:
        report = attack_membership(
            rows,
            ShadowTrainer(shadow, domain, plan, graph, white_box=True),
            public=Public(domain.sizes),
            targets=targets,
            pairs=spec.attacks.membership.pairs,
            rng=rng,
            fleet=Fleet(folder=models, runner=_runner(spec), progress=_progress(progress)),
            threat=ThreatModel(relation=spec.privacy.adjacency),
            claim=claim,
            extractors=(),
            classifiers=(),
            also=(ELBO,),
            elsewhere=1,
        )
    except FleetError as error:
        raise OutputError(str(error)) from None
    measurer, worlds = (
        TableMeasurer(domain, plan),
        two_worlds(rows, int(targets[0]), spec.privacy.adjacency),
    )
    releases = table_releases(spec.attacks.membership.pairs, tables=len(measurer(worlds[0])))
    return replace(
        report,
        others=(
            *report.others,
            attack_tables(
                measurer, *worlds, releases=releases, claim=claim, confidence=shared_confidence(3)
            ),
        ),
    )


def _game(shadow: ReleaseSpec, plan: Plan, graph: CausalGraph) -> str:
    """All that shadow models are trained by; not where they run, which may change between an
    interruption and going on.
    """
    spends = [
        (s.purpose, event_to_json(s.mechanism.event(plan.rows_per_unit))) for s in plan.spends
    ]
    return "\n".join(
        [
            shadow.model_dump_json(exclude={"compute", "tracking"}),
            json.dumps(spends, sort_keys=True),
            repr(graph),
        ]
    )


def table_releases(pairs: int, *, tables: int) -> int:
    """Releases of each world in the attack on `tables` noisy tables: many more than models, but for
    wide tables no more than cost little.
    """
    return max(pairs, min(TABLE_RELEASES * pairs, MAX_TABLES // (2 * tables)))


def two_worlds(rows: AnyCodes, target: int, relation: Relation) -> tuple[AnyCodes, AnyCodes]:
    """Neighbouring tables without and with the row at `target`; by `replace_one` the first other
    row, which neither shares, stands in for it.
    """
    rest, record = np.delete(rows, target, axis=0), rows[target : target + 1]
    if relation == "add_remove":
        return rest, np.concatenate([rest, record])
    return rest, np.concatenate([rest[1:], record])


@dataclass(frozen=True)
class TableMeasurer:
    """The noisy tables that a release starts with, measured anew on whatever rows it is given."""

    domain: Domain
    plan: Plan

    def __call__(self, rows: AnyCodes) -> list[NoisyCounts]:
        """Count `rows` `[rows, columns]` and add the planned noise."""
        codes = np.asarray(rows, dtype=np.uint16)
        unread = pd.DataFrame(index=range(len(codes)))  # tables are counted from levels
        return _with_positions(
            measure(Rehearsal(codes, self.domain, self.plan, frame=unread)).value, self.domain.names
        )


def attack_facts(report: MembershipReport, *, pairs: int) -> Membership:
    """A report on so many `pairs` as were asked for, as the plain facts of an audit record: as
    confidential as the rows were.
    """
    gap = report.main.advantage
    return Membership(
        pairs=pairs - report.dropped,
        pairs_dropped=report.dropped,
        advantage=gap.value,
        lower=gap.lower,
        upper=gap.upper,
        baseline=_advantage(report.baseline),
        ceiling=1.0 if report.ceiling is None else report.ceiling,
        epsilon_provable=report.epsilon_provable,
        refuted=report.refutes_claim,
        attacks=declared_facts(report),
        warnings=report.warnings,
    )


def _advantage(gap: Interval) -> Advantage:
    return Advantage(value=gap.value, lower=gap.lower, upper=gap.upper)


def declared_facts(report: MembershipReport) -> tuple[DeclaredAttack, ...]:
    """Each declared attack of a report, the black box first."""
    return tuple(
        _declared(verdict, confidence=shared_confidence(len(report.declared)))
        for verdict in report.declared
    )


def _declared(verdict: AttackVerdict, *, confidence: float) -> DeclaredAttack:
    """`confidence`: of this attack's bound on epsilon, by itself."""
    gap, tpr = verdict.row.advantage, dict(verdict.row.tpr_at)[LOW_RATES[0]]
    return DeclaredAttack(
        attack=verdict.name,
        models=verdict.row.models,
        advantage=gap.value,
        lower=gap.lower,
        upper=gap.upper,
        auc=verdict.row.auc.value,
        auc_upper=verdict.row.auc.upper,
        tpr_upper=tpr.upper if tpr else None,
        epsilon_lower=verdict.epsilon_lower,
        epsilon_provable=provable_epsilon(
            verdict.row.models,
            delta=verdict.claim.delta if verdict.claim else 0.0,
            confidence=confidence,
        ),
        control=_advantage(verdict.control) if verdict.control else None,
        refuted=verdict.refutes_claim,
    )


def shadow_spec(spec: ReleaseSpec) -> ReleaseSpec:
    """The release's spec at the size of a shadow model: same budget, same model, fewer rows and
    steps.
    """
    attack = spec.attacks.membership
    share = spec.privacy.shares
    return spec.model_copy(
        update={
            "dataset": spec.dataset.model_copy(
                update={"rows": DeclaredRows(kind="public", value=attack.rows)}
            ),
            "privacy": spec.privacy.model_copy(
                update={
                    "shares": share.model_copy(
                        update={"measure": share.measure + share.graph, "graph": 0.0}
                    )
                }
            ),
            "graph": spec.graph.model_copy(update={"mode": "given"}),
            "synthesizer": spec.synthesizer.model_copy(
                update={"steps": attack.steps, "batch": max(1, math.ceil(attack.rows / 8))}
            ),
            "sampling": spec.sampling.model_copy(update={"rows": attack.rows}),
            "evaluation": spec.evaluation.model_copy(update={"holdout": 0.0}),
        }
    )


def check_cluster(spec: ReleaseSpec) -> None:
    """Whether the cluster that shadow models run on answers: best asked before anything is charged.

    Raises:
        OutputError: it does not, or dask is not installed.
    """
    runner = _runner(spec)
    if spec.attacks.membership.enabled and isinstance(runner, Dask):
        try:
            runner.check()
        except FleetError as error:
            raise OutputError(str(error)) from None


def _runner(spec: ReleaseSpec) -> Runner:
    """Where shadow models run. A Dask cluster runs as many at a time as it has threads, whatever
    `compute.threads` says.
    """
    workers = spec.compute.threads or os.cpu_count() or 1
    return RUNNERS[spec.compute.backend](workers=workers, address=spec.compute.address)


def _progress(progress: Callable[[int, int], None]) -> Callable[[Progress], None]:
    return lambda state: progress(state.finished, state.total)


def _quiet(done: int, total: int) -> None:
    """No progress inside a worker."""
