"""Shadow models: releases of the same plan on other rows, one at a time or trained together.

The shadow models share what is public: plan, graph, architecture and features. Each model has rows,
noise, starting weights and draws of its own. In modes predict and learn each finds its own arrows,
by the whole road of a release: in predict the tables behind the arrows make the model, and a study
of the pipeline (`release.study`) lets models learn, where an attack takes the release's graph.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.measuring import COLUMNS, measure_round
from synthdp.graph.level_groups import equal_groups, groups_of
from synthdp.graph.predict import possible_pairs
from synthdp.graph.stage import GraphResult
from synthdp.model.constraints import ConstraintsUnmet
from synthdp.model.fit import Fitted, assemble, build_start, fit, measure, train
from synthdp.model.planning import plan_for
from synthdp.model.sampling import sample
from synthdp.privacy.calibration import sample_rate
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.batched import train_side_by_side
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training, Weights
from synthdp.privacy.events.kinds import event_to_json
from synthdp.privacy.mechanisms import PlannedMechanism
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.plan import TARGETS, TRAIN, ReleasePlan, needed
from synthdp.privacy.private import Released
from synthdp.privacy.session import Rehearsal
from synthdp.progress import unheard
from synthdp.spec.model import DeclaredRows, ReleaseSpec
from synthdp_attacks import NoisyCounts, Public, WhiteBox, table_score, tell_share
from synthdp_attacks.threat import Codes as AnyCodes
from synthdp_attacks.threat import Score

OWN_GRAPH = ("predict", "learn")  # modes in which a shadow model finds its own arrows
SIDE_BY_SIDE = 32  # most shadow models that train together


@dataclass(frozen=True)
class ShadowTrainer:
    """Shadow releases: a fresh rehearsal of the pipeline, and the synthetic table it gives.

    Noise has no seed here either: `seed_sequence` feeds only the sampling. With `white_box` the
    model and its noisy tables are shown, too.
    """

    spec: ReleaseSpec
    domain: Domain
    plan: ReleasePlan
    graph: CausalGraph
    white_box: bool = False

    @property
    def public(self) -> Public:
        return Public(self.domain.sizes)

    @property
    def identity(self) -> str:
        return f"shadow releases {self.white_box} {game_text(self.spec, self.plan, self.graph)}"

    def __call__(
        self, rows: AnyCodes, *, seed_sequence: np.random.SeedSequence
    ) -> AnyCodes | WhiteBox:
        """Train on levels `[rows, columns]` and sample one synthetic table.

        It has the shadow spec's size.
        """
        torch.set_num_threads(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rehearsal = Rehearsal(np.asarray(rows, dtype=np.uint16), self.domain, self.plan)
            fitted = _fitted(rehearsal, self.spec, self.domain, self.graph)
            return self._released(fitted, seed_sequence)

    @property
    def group(self) -> int:
        """Number of models that are trained together: fewer where batches are large.

        The overhead of a call is then small beside the arithmetic.
        """
        # 4096: most examples of all their batches; beyond it caches overflow
        return max(1, min(SIDE_BY_SIDE, 4096 // self.spec.synthesizer.batch))

    def many(
        self, rows: Sequence[AnyCodes], *, seed_sequences: Sequence[np.random.SeedSequence]
    ) -> Iterator[AnyCodes | WhiteBox]:
        """What calls on each of `rows` give, in much less time."""
        codes = [np.asarray(levels, dtype=np.uint16) for levels in rows]
        models = fitted_shadows(codes, self.spec, self.domain, self.plan, self.graph)
        for fitted, seed_sequence in zip(models, seed_sequences, strict=True):
            yield self._released(fitted, seed_sequence)

    def _released(
        self, fitted: Fitted, seed_sequence: np.random.SeedSequence
    ) -> AnyCodes | WhiteBox:
        """The synthetic table; with `white_box` also the scores that the bundle allows."""
        synthetic = drawn_rows(fitted, self.spec, np.random.default_rng(seed_sequence))
        if not self.white_box:
            return synthetic
        return WhiteBox(synthetic, released_scores(fitted, self.domain))


def drawn_rows(fitted: Fitted, spec: ReleaseSpec, rng: np.random.Generator) -> Codes:
    """A synthetic table of a model that nobody publishes.

    A model of few rows may meet no constraint. It is then sampled without constraints, so that no
    release fails for it.
    """
    try:
        return sample(fitted, spec, rng=rng, progress=unheard).value
    except ConstraintsUnmet:
        unconstrained = spec.model_copy(update={"constraints": ()})
        return sample(fitted, unconstrained, rng=rng, progress=unheard).value


def released_scores(fitted: Fitted, domain: Domain) -> dict[str, Score]:
    """What everyone who has the bundle can compute of one record `[columns]`.

    These are the model's ELBO, and how full the noisy cells of the record are. An ELBO is the mean
    over the same draws of z for all records and models, so that only what was trained makes a
    difference.
    """
    synthesizer, tables = fitted.synthesizer.value, fitted.tables.value
    noisy, groups = with_positions(tables, domain), groups_of(tables, domain)

    def elbo(record: AnyCodes) -> float:
        row = groups.of(np.asarray(record, dtype=np.uint16)[None, :])
        generator = torch.Generator().manual_seed(0)  # of the attacker, no noise of a mechanism
        # Of z, by the attacker: so many that their sampling error is far below the noise of
        # training.
        return float(synthesizer.elbo(row, draws=256, generator=generator)[0])

    return {"elbo": elbo, "tables": table_score(noisy)}


def with_positions(tables: Sequence[NoisyTable], domain: Domain) -> list[NoisyCounts]:
    """Released tables with column positions, as the adversary names columns."""
    out = []
    for table in tables:
        groups, columns = LevelGroups(domain, table.starts), table.columns
        group_of = tuple(map(groups.group_of, columns)) if table.starts else ()
        places = tuple(map(domain.index, columns))
        out.append(NoisyCounts(places, table.counts, table.sigma, group_of))
    return out


@dataclass(frozen=True)
class TableMeasurer:
    """The noisy tables with which a release starts, measured anew on any rows.

    In mode predict these are its rounds of columns and pairs, too. Each of pairs measures all of
    them here: whichever a round chooses, together they cost the same and tell an attacker as much.
    What a screen tells is no table, and is not attacked.
    """

    domain: Domain
    plan: ReleasePlan

    def __call__(self, rows: AnyCodes) -> list[NoisyCounts]:
        """Count `rows` `[rows, columns]` and add the planned noise."""
        codes = np.asarray(rows, dtype=np.uint16)
        unread = pd.DataFrame(index=range(len(codes)))  # tables are counted from levels
        rehearsal = Rehearsal(codes, self.domain, self.plan, frame=unread)
        tables, groups = measure(rehearsal).value, self._groups
        pairs = possible_pairs(groups.coarse, ())
        for name, planned in self.plan.graph.items() if pairs else ():
            if name == COLUMNS:
                tables += measure_round(rehearsal, name, [(n,) for n in self.domain.names]).value
            elif isinstance(planned, AdaptiveMarginals):
                tables += measure_round(rehearsal, name, pairs, groups).value
        return with_positions(tables, self.domain)

    @cached_property
    def _groups(self) -> LevelGroups:
        """Groups of levels of equal width: whichever they are, a row moves one cell of a table."""
        if self.plan.train is not None:
            return LevelGroups(self.domain, {})
        even = [np.full(size, 1 / size) for size in self.domain.sizes]
        return equal_groups(self.domain, even)


def shadow_spec(spec: ReleaseSpec, *, finding: Sequence[str] = ("predict",)) -> ReleaseSpec:
    """The release's spec at the size of a shadow model.

    It has the same budget and model, and fewer rows and steps. Its graph is given and free, except
    in the modes `finding`, in which each model finds its own. It has no estimands, moments and
    heaps, which so few rows would not fill: what they cost goes to the tables.
    """
    attack, privacy = spec.attacks.membership, spec.privacy.for_tables()
    shares = privacy.shares
    rows = DeclaredRows(kind="public", value=attack.rows)
    trained = sample_rate(spec) * attack.rows  # in a secret sample as small as the release's
    batch = max(1, math.ceil(trained / 8))
    graph = spec.graph
    if graph.mode not in finding:
        paid = {"measure": shares.measure + shares.graph, "graph": 0.0}
        shares, graph = shares.model_copy(update=paid), graph.model_copy(update={"mode": "given"})
    return spec.model_copy(
        update={
            "dataset": spec.dataset.model_copy(update={"rows": rows}),
            "privacy": privacy.model_copy(update={"shares": shares}),
            "graph": graph,
            "estimands": (),
            "synthesizer": spec.synthesizer.model_copy(
                update={
                    "steps": attack.steps,
                    "batch": batch,
                    "sample": None if spec.synthesizer.sample is None else max(1, round(trained)),
                }
            ),
            "sampling": spec.sampling.model_copy(update={"rows": attack.rows}),
            "evaluation": spec.evaluation.model_copy(update={"holdout": 0.0}),
        }
    )


def plan_at(
    spec: ReleaseSpec, domain: Domain, epsilon: float, *, like: ReleaseSpec | None = None
) -> ReleasePlan:
    """The calibrated plan at `epsilon`, or one without privacy where that is infinite; with the
    rounds of the release `like`, if it stands for one.
    """
    if math.isinf(epsilon):
        return without_privacy(plan_for(spec, domain, like=like))
    privacy = spec.privacy.model_copy(update={"epsilon": epsilon})
    return plan_for(spec.model_copy(update={"privacy": privacy}), domain, like=like)


def without_privacy(plan: ReleasePlan) -> ReleasePlan:
    """The same mechanisms with next to no noise, and a bound that no example's gradient reaches.

    Its epsilon is infinite, so that no run can have reserved it: a rehearsal alone takes it.
    """

    def quiet(purpose: str, planned: PlannedMechanism) -> PlannedMechanism:
        mechanism = planned.scaled(1e-9)
        return replace(mechanism, clip=1e4) if isinstance(mechanism, DpSgd) else mechanism

    return replace(plan.map(quiet), epsilon=math.inf)


def game_text(shadow: ReleaseSpec, plan: ReleasePlan, graph: CausalGraph) -> str:
    """Everything that determines the shadow models, as text.

    Where they run is left out: it may change between an interruption and the next call.
    """
    trained_by = shadow.model_dump_json(exclude={"compute", "tracking"})
    spends = [
        (s.purpose, event_to_json(s.mechanism.event(plan.rows_per_unit))) for s in plan.spends
    ]
    return "\n".join([trained_by, json.dumps(spends, sort_keys=True), repr(graph)])


def fitted_shadows(
    rows: Sequence[Codes], spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, graph: CausalGraph
) -> Iterator[Fitted]:
    """Everything that a shadow release on each of `rows` would publish, except its sample."""
    torch.set_num_threads(1)
    if spec.graph.mode in OWN_GRAPH:
        yield from (_fitted(Rehearsal(codes, domain, plan), spec, domain, graph) for codes in rows)
        return
    given = GraphResult(graph)
    rehearsals = [Rehearsal(codes, domain, plan) for codes in rows]
    marginals = []
    for i, rehearsal in enumerate(rehearsals):  # a third of the work, as training and drawing are
        tell_share(i / len(rehearsals) / 3)
        marginals.append(measure(rehearsal))
    drafts = [build_start(spec, domain, tables, given) for tables in marginals]
    regressions = [draft.regression for draft in drafts if draft.regression is not None]
    heads: Sequence[Released[Weights] | None] = [None] * len(drafts)
    if regressions:
        heads = _together(rehearsals, regressions, plan.targets, TARGETS)
    weights = _together(rehearsals, [draft.network for draft in drafts], plan.train, TRAIN)
    tell_share(2 / 3)
    for draft, tables, trained, head in zip(drafts, marginals, weights, heads, strict=True):
        yield Fitted(tables, given, assemble(draft, spec, trained, head))


def _fitted(rehearsal: Rehearsal, spec: ReleaseSpec, domain: Domain, graph: CausalGraph) -> Fitted:
    """One shadow release: with `graph`, or with the arrows that its own tables show."""
    if spec.graph.mode in OWN_GRAPH:
        return fit(rehearsal, spec, domain, progress=unheard)
    given, marginals = GraphResult(graph), measure(rehearsal)
    trained = train(rehearsal, spec, domain, marginals, given, progress=unheard)
    return Fitted(marginals, given, trained)


def _together(
    rehearsals: Sequence[Rehearsal],
    modules: Sequence[PerExampleLoss],
    planned: DpSgd | None,
    purpose: str,
) -> list[Released[Weights]]:
    """All `modules`, trained by their planned spend `purpose`."""
    settings = needed(planned, purpose)
    trainings = [
        Training(settings, module, lambda done, steps: tell_share((1 + done / steps) / 3), None)
        for module in modules
    ]
    return train_side_by_side(rehearsals, trainings, purpose=purpose)
