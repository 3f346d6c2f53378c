"""Membership inference against the release's pipeline: shadow models trained as the release is.

The adversary's side is the package `synthdp_attacks`, which knows nothing of synthdp. Here it gets
a trainer: the same measuring, training, sampling and raking, at the release's epsilon and delta, on
a sub-sample of the rows. On real rows the result is confidential, on a simulated twin it is public.
Either way it is a sanity check, never a proof.

The target is what the guarantee is of: one unit, with all of its rows where it has several.

A bundle contains the synthetic table, the model and the noisy tables, so three attacks are
declared. The black box sees the synthetic table. The white box uses likelihood ratios (LiRA) of the
model's ELBO. The noise of the tables is public, so the best attack on them is known. It needs no
training, and is made on many more releases than there are models.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from synthdp.audit.folder import TARGETS, AttackFolder, cpu_seconds, table_releases
from synthdp.audit.shadow_models import ShadowTrainer, TableMeasurer, shadow_spec
from synthdp.bundle.audit_record import Advantage, DeclaredAttack, Membership
from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.model.planning import plan_for
from synthdp.privacy.plan import ReleasePlan
from synthdp.progress import Advance
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp_attacks import (
    AttackVerdict,
    Claim,
    Dask,
    Fleet,
    FleetError,
    MembershipReport,
    Public,
    Runner,
    ThreatModel,
    attack_membership,
    attack_tables,
    isolated_targets,
    provable_epsilon,
    shared_confidence,
)
from synthdp_attacks.fleet import RUNNERS
from synthdp_attacks.game import apart
from synthdp_attacks.report import LOW_RATES
from synthdp_attacks.tables import Measurer
from synthdp_attacks.threat import Codes as AnyCodes
from synthdp_attacks.threat import Relation, Trainer

ELBO = ("elbo", "lira_online")
# Declared beforehand, beside the black box, where the attack on the tables has shadow models alone.
WHITE_BOX = (ELBO, ("tables", "lira_online"))


def attack_rows(
    codes: AnyCodes,
    spec: ReleaseSpec,
    domain: Domain,
    graph: CausalGraph,
    *,
    folder: Path,
    progress: Advance,
    units: AnyCodes | None = None,
) -> MembershipReport:
    """Membership inference against the pipeline of `release` on a sub-sample of `codes`.

    `units` has the number of each row's unit, where these have several. The black box, the model's
    ELBO and the noisy tables are declared beforehand; they share the 5% error probability. Coins
    and shadow results are in `folder` (see `AttackFolder`): an attack that was interrupted there
    goes on with the models that it has. `progress` hears of models and noisy tables together: as
    many steps are of the tables as models take in about that time.

    Raises:
        synthdp_attacks.AttackError: the sub-sample is too small for the game.
        OutputError: the workers or the cluster of `compute` cannot go on, or `folder` cannot be
            written.
    """
    shadow = shadow_spec(spec)
    plan = plan_for(shadow, domain, like=spec)
    return attack_shadows(
        ShadowTrainer(shadow, domain, plan, graph, white_box=True),
        TableMeasurer(domain, plan),
        lambda rng: Board.drawn(codes, units, spec, TARGETS, rng),
        also=ELBO,
        seconds=cpu_seconds(shadow, domain, plan),
        unit=spec.dataset.privacy_unit.meaning,
        folder=folder,
        progress=progress,
    )


def attack_shadows(
    trainer: ShadowRelease,
    measurer: Measurer,
    drawn: Callable[[np.random.Generator], Board],
    *,
    also: tuple[str, str],
    seconds: tuple[float, float],
    unit: str,
    folder: Path,
    progress: Advance,
) -> MembershipReport:
    """The three declared attacks on what `trainer` releases and `measurer` measures of the board
    that `drawn` draws: the black box, `also` and the tables. `seconds` are those of models and of
    tables, and `unit` is what one is; the rest is as in `attack_rows`.
    """
    kept = AttackFolder.open(folder)
    rng = kept.coins("game")
    board = drawn(rng)
    models = kept.models_of(trainer.identity, *board.arrays)
    attacks: dict[str, Any] = {"extractors": (), "classifiers": (), "also": (also,), "elsewhere": 1}
    spec = trainer.spec
    pairs = spec.attacks.membership.pairs
    # One process measures the tables, and several train.
    steps = math.ceil(2 * pairs * _workers(spec) * seconds[1] / seconds[0])
    heard = [0]

    def on_models(done: int, total: int, what: str) -> None:
        heard[0] = total
        progress(done, total + steps, what)

    report = board.attacked(trainer, models, rng, on_models, **attacks)
    worlds = two_worlds(board.rows, board.targets[0], spec.privacy.adjacency, board.units)
    releases = table_releases(pairs, tables=len(measurer(worlds[0])))
    on_tables = attack_tables(
        *(measurer, *worlds),
        releases=releases,
        claim=report.claim,
        confidence=shared_confidence(3),
        progress=lambda done, total: progress(
            heard[0] + steps * done // total, heard[0] + steps, "noisy tables"
        ),
    )
    meaning = "" if board.units is None else f" ({unit}, with all rows)"
    return replace(report, others=(*report.others, on_tables), target=f"{report.target}{meaning}")


class ShadowRelease(Trainer, Protocol):
    """A trainer of releases as a spec asks for them."""

    @property
    def spec(self) -> ReleaseSpec | LinkedSpec: ...  # of a shadow release

    @property
    def plan(self) -> ReleasePlan: ...

    @property
    def public(self) -> Public: ...

    @property
    def identity(self) -> str: ...  # the same for the same releases


@dataclass(frozen=True)
class Board:
    """What games are played on: levels `[rows, columns]`, who is asked about, and the number of
    each row's unit, where these have several.
    """

    rows: AnyCodes
    targets: tuple[int, ...]
    units: AnyCodes | None = None

    @classmethod
    def drawn(
        cls,
        codes: AnyCodes,
        units: AnyCodes | None,
        spec: ReleaseSpec,
        targets: int,
        rng: np.random.Generator,
    ) -> Board:
        """A sub-sample of `codes` as large as the spec says, and its most isolated units."""
        if spec.synthesizer.sample is not None:
            units = None  # shadow models draw their samples row by row
        rows, units = sub_sample(codes, units, spec.attacks.membership.rows, rng)
        return cls(rows, isolated_targets(rows, targets, rng, units), units)

    @property
    def arrays(self) -> list[AnyCodes]:
        """All of it, for the name of a game."""
        return [self.rows, np.asarray(self.targets), *([] if self.units is None else [self.units])]

    def attacked(
        self,
        trainer: ShadowRelease,
        models: Path,
        rng: np.random.Generator,
        progress: Callable[[int, int, str], object],
        **attacks: Any,
    ) -> MembershipReport:
        """`attack_membership` of what `trainer` releases, with `attacks`; results of shadow models
        are in the folder `models`. A plan without privacy claims nothing.

        Raises:
            synthdp_attacks.AttackError: the rows are too few for the game.
            OutputError: the workers or the cluster of `compute` cannot go on, or `models` cannot be
                written.
        """
        logging.getLogger("joblib").setLevel(logging.ERROR)
        spec, plan = trainer.spec, trainer.plan
        private = math.isfinite(plan.epsilon)
        try:
            return attack_membership(
                self.rows,
                trainer,
                public=trainer.public,
                targets=self.targets,
                pairs=spec.attacks.membership.pairs,
                rng=rng,
                fleet=Fleet(folder=models, runner=_runner(spec)),
                progress=progress,
                threat=ThreatModel(relation=spec.privacy.adjacency),
                claim=Claim(plan.epsilon, plan.delta, plan.profile) if private else None,
                units=self.units,
                **attacks,
            )
        except FleetError as error:
            raise OutputError(str(error)) from None


def sub_sample(
    codes: AnyCodes, units: AnyCodes | None, most: int, rng: np.random.Generator
) -> tuple[AnyCodes, AnyCodes | None]:
    """At most `most` rows at random, and the numbers of their units: only whole units."""
    if units is None:
        return codes[rng.permutation(len(codes))[:most]], None
    different, place = np.unique(units, return_inverse=True)
    turn = rng.permutation(len(different))[place]  # of each row's unit
    order = np.argsort(turn, kind="stable")
    ends = np.cumsum(np.bincount(turn))
    chosen = order[: ends[ends <= most].max(initial=0)]
    return codes[chosen], units[chosen]


def two_worlds(
    rows: AnyCodes, target: int, relation: Relation, units: AnyCodes | None = None
) -> tuple[AnyCodes, AnyCodes]:
    """Neighbouring tables without and with the row, or the rows of the unit, that is `target`.

    By `replace_one` the first other one stands in for it, and neither table shares its rows.
    """
    own, others = apart(rows, target, units)
    if relation == "add_remove":
        return others.rows, np.concatenate([others.rows, own])
    first = 0 if others.units is None else int(others.units[0])
    _, shared = apart(others.rows, first, others.units)
    return others.rows, np.concatenate([shared.rows, own])


def attack_facts(report: MembershipReport, *, pairs: int, unit: str | None = None) -> Membership:
    """A report as the plain facts of an audit record, as confidential as the rows were.

    `pairs` is the number of pairs that were asked for, and `unit` what a target of several rows is.
    """
    gap = report.main.advantage
    return Membership(
        unit=unit,
        pairs=pairs - report.dropped,
        pairs_dropped=report.dropped,
        advantage=gap.value,
        lower=gap.lower,
        upper=gap.upper,
        baseline=Advantage(**asdict(report.baseline)),
        ceiling=1.0 if report.ceiling is None else report.ceiling,
        epsilon_provable=report.epsilon_provable,
        refuted=report.refutes_claim,
        attacks=declared_facts(report),
        warnings=report.warnings,
    )


def declared_facts(report: MembershipReport) -> tuple[DeclaredAttack, ...]:
    """Each declared attack of a report, the black box first."""
    confidence = shared_confidence(len(report.declared))  # of each one's bound on epsilon alone
    return tuple(_declared(verdict, confidence=confidence) for verdict in report.declared)


def _declared(verdict: AttackVerdict, *, confidence: float) -> DeclaredAttack:
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
        control=Advantage(**asdict(verdict.control)) if verdict.control else None,
        refuted=verdict.refutes_claim,
    )


def check_cluster(spec: ReleaseSpec | LinkedSpec) -> None:
    """Check that the cluster of the shadow models answers; best done before anything is charged.

    Raises:
        OutputError: it does not, or dask is not installed.
    """
    runner = _runner(spec)
    if spec.attacks.membership.enabled and isinstance(runner, Dask):
        try:
            runner.check()
        except FleetError as error:
            raise OutputError(str(error)) from None


def _runner(spec: ReleaseSpec | LinkedSpec) -> Runner:
    """Where shadow models run.

    A Dask cluster runs as many at a time as it has threads, whatever `compute.threads` says.
    """
    return RUNNERS[spec.compute.backend](workers=_workers(spec), address=spec.compute.address)


def _workers(spec: ReleaseSpec | LinkedSpec) -> int:
    return spec.compute.threads or os.cpu_count() or 1
