"""The generative half of a release: measure -> graph -> train -> sample, as one path for real runs
and rehearsals.

Whatever looks at rows goes through the releaser; everything between is post-processing of released
values.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.features import level_features
from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import Releaser
from synthdp.graph.stage import GraphResult, find_graph
from synthdp.model.constraints import Constraints
from synthdp.model.network import Architecture, CausalVae, width_groups
from synthdp.model.planning import plan_for as plan_for
from synthdp.model.raking import (
    Probabilities,
    one_way_probabilities,
    rake,
    raking_factors,
    raking_weights,
    smoothed,
)
from synthdp.model.row_selection import balanced, measured_pairs
from synthdp.model.stratified import kd_tree_order, raked_probabilities, stratified_draw
from synthdp.model.synthesizer import Synthesizer
from synthdp.model.target_stage import TargetRegression, into_network, without_targets
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import Training, Weights
from synthdp.privacy.journal import Checkpoints
from synthdp.privacy.mechanisms.marginals import NoisyMarginals, NoisyTable
from synthdp.privacy.plan import Plan, expected_fit_rows
from synthdp.privacy.private import Released
from synthdp.spec.model import ReleaseSpec

Progress = Callable[[int, int], None]
Check = Callable[[Sequence[NoisyTable]], None]


class TrainingReleaser(Releaser, Protocol):
    """A releaser that keeps how far a training came, so that a killed run goes on from there."""

    def checkpoints(self, purpose: str) -> Checkpoints | None: ...


ONE_THREAD_WORK = (
    4_000_000  # hidden values of one batch; below this more threads cost more than they save
)
MIN_CALIBRATION_ROWS, MAX_CALIBRATION_ROWS = 4096, 65_536  # drawn to see the model's own margins
TRIED_ROWS = 4096  # written, of those that are drawn to try the constraints
MAX_FEATURE_CELLS = 1 << 24  # of all columns' features
START_FLOOR_ROWS = (
    5.0  # no level starts training with less than this many rows' worth of probability
)


@dataclass(frozen=True)
class Fitted:
    """Everything that a run released on its way to the synthesizer."""

    marginals: Released[tuple[NoisyTable, ...]]
    graph: GraphResult
    synthesizer: Released[Synthesizer]

    @property
    def tables(self) -> Released[tuple[NoisyTable, ...]]:
        """Every noisy table that was paid for, the one-way tables first."""
        return all_tables(self.marginals, self.graph)


def measure(
    releaser: Releaser, check: Check = lambda tables: None
) -> Released[tuple[NoisyTable, ...]]:
    """The noisy one-way tables of all columns, which `check` may refuse, and the two-way tables of
    the pairs that the spec names.
    """
    planned, pairs = releaser.plan.find("measure"), releaser.plan.find("pairs")
    assert planned is not None and isinstance(planned.mechanism, NoisyMarginals)
    tables = releaser.release(planned.mechanism, purpose="measure")
    check(tables.value)
    if pairs is None:
        return tables
    assert isinstance(pairs.mechanism, NoisyMarginals)
    return tables.zip(releaser.release(pairs.mechanism, purpose="pairs")).map(
        lambda both: (*both[0], *both[1])
    )


def all_tables(
    marginals: Released[tuple[NoisyTable, ...]], graph: GraphResult
) -> Released[tuple[NoisyTable, ...]]:
    """The one-way tables, and those that the graph was found or tested with: measured once, charged
    once, used by all that follows.
    """
    return (
        marginals
        if graph.tables is None
        else marginals.zip(graph.tables).map(lambda pair: (*pair[0], *pair[1]))
    )


def train(
    releaser: TrainingReleaser,
    spec: ReleaseSpec,
    domain: Domain,
    marginals: Released[tuple[NoisyTable, ...]],
    graph: GraphResult,
    *,
    progress: Progress,
) -> Released[Synthesizer]:
    """The causal VAE by DP-SGD, started from the one-way margins of all noisy tables."""
    torch.set_num_threads(spec.compute.threads or threads_for(spec, domain))
    device, draft = spec.compute.device, build_start(spec, domain, marginals, graph)
    heads = None
    if draft.regression:  # short enough to be begun again if killed
        stage = Training(
            training_of(releaser.plan, "targets"),
            draft.regression,
            lambda done, total: None,
            None,
            device,
        )
        heads = releaser.release(stage, purpose="targets")
    training = Training(
        training_of(releaser.plan, "train"),
        draft.network,
        progress,
        releaser.checkpoints("train"),
        device,
    )
    trained = releaser.release(training, purpose="train")
    return assemble(draft, spec, trained, heads)


@dataclass(frozen=True)
class TrainingStart:
    """What a training starts from, all of it public or released: the modules with their starting
    weights, and what the result is held to.
    """

    network: CausalVae
    regression: TargetRegression | None
    architecture: Architecture
    columns: tuple[str, ...]
    margins: list[Probabilities]
    paid: Released[tuple[NoisyTable, ...]]


def build_start(
    spec: ReleaseSpec,
    domain: Domain,
    marginals: Released[tuple[NoisyTable, ...]],
    graph: GraphResult,
) -> TrainingStart:
    """The network, and the targets' regression if there are targets, started from the one-way
    margins of all noisy tables.
    """
    network = causal_vae(spec, domain, graph.graph)
    architecture = architecture_for(spec, domain, graph.graph)
    floor = START_FLOOR_ROWS / expected_fit_rows(spec)
    tables = all_tables(marginals, graph)
    margins = one_way_probabilities(tables.value, domain.names)
    starts = [smoothed(p, floor=floor) for p in margins]
    network.start_from(starts)
    targets = targets_of(spec, domain, architecture)
    regression = target_regression(domain, architecture, targets, starts) if targets else None
    if regression:
        regression.start_from(marginals.value, domain)
    paid = tables if graph.released is None else tables.zip(graph.released).map(lambda w: w[0])
    return TrainingStart(network, regression, architecture, domain.names, margins, paid)


def training_of(plan: Plan, purpose: str) -> DpSgd:
    """The settings of a planned training."""
    planned = plan.find(purpose)
    assert planned is not None and isinstance(planned.mechanism, DpSgd)
    return planned.mechanism


def assemble(
    draft: TrainingStart,
    spec: ReleaseSpec,
    weights: Released[Weights],
    heads: Released[Weights] | None,
) -> Released[Synthesizer]:
    """The synthesizer of trained weights, those of the targets' regression in their place,
    calibrated to the margins if the spec says so.
    """
    network, regression, architecture = draft.network, draft.regression, draft.architecture
    whole = (
        weights.map(network.plain)
        if heads is None or regression is None
        else weights.zip(heads).map(
            lambda w: into_network(architecture, network.plain(w[0]), regression, w[1])
        )
    )

    def calibrated(w: tuple[Weights, tuple[NoisyTable, ...]]) -> Synthesizer:
        synthesizer = Synthesizer(draft.columns, architecture, w[0])
        rows = min(MAX_CALIBRATION_ROWS, max(MIN_CALIBRATION_ROWS, 2 * expected_fit_rows(spec)))
        return (
            synthesizer.calibrated(draft.margins, rows=int(rows), generator=_fresh())
            if spec.sampling.rake
            else synthesizer
        )

    return whole.zip(draft.paid).map(calibrated)


def causal_vae(spec: ReleaseSpec, domain: Domain, graph: CausalGraph) -> CausalVae:
    """The network with fresh starting weights, which knows the order of levels where that does not
    take too much memory.

    Targets, which have a stage of their own, are left out of its loss.
    """
    whole = architecture_for(spec, domain, graph)
    targets = targets_of(spec, domain, whole)
    architecture = without_targets(whole, targets)
    ordered = (
        any(column.ordered for column in domain.columns)
        and len(domain) * 2 * max(domain.sizes) ** 2 <= MAX_FEATURE_CELLS
    )
    features = (
        [torch.from_numpy(level_features(column)).float() for column in domain.columns]
        if ordered
        else None
    )
    groups = width_groups(domain.sizes, [i for i in range(len(domain)) if i not in targets])
    return CausalVae(architecture, generator=_fresh(), features=features, groups=groups)


def targets_of(spec: ReleaseSpec, domain: Domain, architecture: Architecture) -> tuple[int, ...]:
    """Positions of the targets that the graph gives parents; of others the network says as much."""
    positions = sorted(domain.index(name) for name in spec.synthesizer.targets)
    return tuple(t for t in positions if architecture.parents[t])


def target_regression(
    domain: Domain,
    architecture: Architecture,
    targets: Sequence[int],
    margins: Sequence[Probabilities],
) -> TargetRegression:
    """The model of the stage that `targets` have of their own, started from `margins`."""
    parents = {p for t in targets for p in architecture.parents[t]}
    features = {p: torch.from_numpy(level_features(domain.columns[p])).float() for p in parents}
    return TargetRegression(architecture, targets, features, margins)


def _fresh() -> torch.Generator:
    """For what is no noise of a mechanism: starting weights and draws from released content."""
    return torch.Generator().manual_seed(secrets.randbits(63))


def check_device(spec: ReleaseSpec) -> None:
    """Whether the spec's device is there.

    Raises:
        OutputError: it is not.
    """
    if spec.compute.device == "cuda" and not torch.cuda.is_available():
        raise OutputError(
            "compute.device is cuda, and this machine has no CUDA device",
            hint="say compute.device: cpu; it is the same code",
        )


def check_alone() -> None:
    """A release is trained by one process, and each of several would pay for itself.

    Raises:
        OutputError: torchrun started this process together with others.
    """
    if "LOCAL_RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        message = (
            f"torchrun started {os.environ['WORLD_SIZE']} processes, and a release is trained by"
            " one; nothing was spent"
        )
        raise OutputError(
            message,
            hint=(
                "start `synthdp` without torchrun; `compute.threads` says how many threads it takes"
            ),
        )


def threads_for(spec: ReleaseSpec, domain: Domain) -> int:
    """Threads worth having: a step of a small model is shorter than waking a second thread."""
    work = spec.synthesizer.batch * spec.synthesizer.hidden * len(domain)
    return (os.cpu_count() or 1) if work > ONE_THREAD_WORK else 1


def architecture_for(spec: ReleaseSpec, domain: Domain, graph: CausalGraph) -> Architecture:
    """The network's shape: parents from the graph; z reaches every column, or those of each latent
    cause.

    With declared latent causes, each gets `latent` dimensions of its own that reach its columns
    alone.
    """
    parents = tuple(tuple(domain.index(p) for p in graph.parents(name)) for name in domain.names)
    everywhere = (tuple(range(len(domain))),)
    causes = tuple(tuple(domain.index(n) for n in names) for names in graph.latent) or everywhere
    return Architecture(
        domain.sizes,
        parents,
        tuple(c for c in causes for _ in range(spec.synthesizer.latent)),
        spec.synthesizer.hidden,
    )


def sample(
    fitted: Fitted,
    spec: ReleaseSpec,
    *,
    rng: np.random.Generator,
    progress: Progress,
    begin: Callable[[str], None] = lambda what: None,
) -> Released[Codes]:
    """The synthetic table as levels `[rows, columns]`: drawn, held to the constraints, raked to the
    noisy tables' margins if the spec says so.

    `progress` hears of rows that are drawn, `begin` of what follows, by name.
    """
    domain = Domain.from_spec(spec.columns)
    constraints = Constraints.from_spec(spec, domain)
    rows = spec.sampling.rows or spec.dataset.rows.value

    def draw(pair: tuple[Synthesizer, tuple[NoisyTable, ...]]) -> Codes:
        synthesizer, tables = pair
        pool_rows = rows * spec.sampling.oversample if spec.sampling.rake else rows
        pool = constraints.draw(
            lambda n: synthesizer.sample(
                n, rng=rng, threads=spec.compute.threads, progress=progress
            ),
            pool_rows,
            rng=rng,
        )
        if not spec.sampling.rake:
            return pool
        begin("raking")
        targets, columns = (
            one_way_probabilities(tables, synthesizer.columns),
            range(len(synthesizer.columns)),
        )
        if not spec.sampling.balance:
            return rake(pool, targets, columns=columns, rows=rows, rng=rng)
        weights = raking_weights(
            pool, raking_factors(pool, targets, columns=columns), columns=columns
        )
        begin("choosing rows")
        measured = measured_pairs(tables, synthesizer.columns)
        chosen = balanced(
            pool, weights, synthesizer.architecture.sizes, rows=rows, rng=rng, measured=measured
        )
        last = drawn_last(spec, domain, synthesizer.architecture, constraints)
        begin("drawing what comes last")
        first = [i for i in columns if i not in last]
        order = (
            kd_tree_order(chosen[:, first], [domain.columns[i] for i in first])
            if last
            else np.arange(rows)
        )
        for target, probabilities in zip(
            last, synthesizer.probabilities(chosen, last, rng=rng), strict=True
        ):
            raked = raked_probabilities(
                probabilities,
                chosen,
                target,
                targets[target],
                measured,
                synthesizer.architecture.sizes,
            )
            chosen[:, target] = stratified_draw(raked, order, rng=rng)
        return chosen

    return fitted.synthesizer.zip(fitted.tables).map(draw)


def try_constraints(fitted: Fitted, spec: ReleaseSpec, *, rng: np.random.Generator) -> None:
    """Draw some rows and write their values, only to see whether the trained model fulfils the
    constraints, before anything else takes time.

    Raises:
        ConstraintsUnmet: next to none of its rows does.
    """
    constraints = Constraints.from_spec(spec, Domain.from_spec(spec.columns))
    if not constraints.expressions:
        return
    synthesizer = fitted.synthesizer.value
    codes = constraints.draw(
        lambda n: synthesizer.sample(n, rng=rng, threads=spec.compute.threads),
        TRIED_ROWS,
        rng=rng,
    )
    constraints.decode(codes, rng=rng)


def drawn_last(
    spec: ReleaseSpec, domain: Domain, own: Architecture, constraints: Constraints
) -> list[int]:
    """Columns that are drawn again when all else is: those that the spec says, and targets that
    lead to nothing and that no constraint reads.
    """
    causes, read = (
        {p for parents in own.parents for p in parents},
        {c.name for c in constraints.columns},
    )
    targets = [
        t for t in targets_of(spec, domain, own) if t not in causes and domain.names[t] not in read
    ]
    return sorted({*targets, *(domain.index(name) for name in spec.sampling.even)})


def fit(
    releaser: TrainingReleaser,
    spec: ReleaseSpec,
    domain: Domain,
    *,
    progress: Progress,
    check: Check = lambda tables: None,
) -> Fitted:
    """Measure, find the graph, train; `check` may stop it after the first noisy tables."""
    marginals = measure(releaser, check)
    graph = find_graph(releaser, spec.graph, domain)
    synthesizer = train(releaser, spec, domain, marginals, graph, progress=progress)
    return Fitted(marginals, graph, synthesizer)
