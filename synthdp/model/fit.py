"""The road of a release from rows to a synthesizer: measure, find the graph, train.

Real runs and rehearsals take the same road. Whatever looks at rows goes through the releaser; all
else is post-processing of released values.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import torch

from synthdp.data.domain import Domain, level_features
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import Releaser
from synthdp.graph.level_groups import LevelLaw, on_groups, with_heaps
from synthdp.graph.margins import Probabilities, smoothed
from synthdp.graph.predict import pair_tables
from synthdp.graph.prior import Prior, PublicRows
from synthdp.graph.stage import GraphResult, find_graph
from synthdp.graph.waves import Tables, with_earlier
from synthdp.model.ancestral import Architecture
from synthdp.model.estimands import chosen_contrast, contrast_name, tables_and_sums
from synthdp.model.interactions import Together, find_interactions, with_arrows
from synthdp.model.log_linear import LogLinear, fit_log_linear, with_acting
from synthdp.model.network import CausalVae
from synthdp.model.synthesizer import Synthesizer, arrays
from synthdp.model.target_stage import TargetRegression, into_network, without_targets
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.dpsgd.training import Training, Weights
from synthdp.privacy.mechanisms import Mechanism
from synthdp.privacy.mechanisms.frequent_texts import NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import ContrastBudget, Sums
from synthdp.privacy.noise import fresh_generator
from synthdp.privacy.plan import (
    HEAPS,
    INTERACTIONS,
    MEASURE,
    MOMENTS,
    PAIRS,
    TARGETS,
    TRAIN,
    estimand_purpose,
    needed,
)
from synthdp.privacy.private import Released
from synthdp.privacy.session import Checkpoints
from synthdp.spec.model import ReleaseSpec

Progress = Callable[[int, int], None]
"""Hears how much is done, and of how much."""
Check = Callable[[Sequence[NoisyTable]], None]
"""May refuse the first noisy tables by an exception."""


@dataclass(frozen=True)
class FitSettings:
    """Tuning of the network's start, its shape and its calibration."""

    calibration_rows: tuple[int, int] = (4096, 65_536)
    """Fewest and most rows that are drawn to estimate the model's margins."""
    floor_rows: float = 5.0
    """A level's starting probability is at least that of so many rows."""
    max_feature_cells: int = 1 << 24
    """Most cells of the feature matrices of all columns."""
    max_padded_share: float = 0.8
    """Two groups of columns must need at most this share of the padded levels of one group."""
    min_saved: int = 64
    """Two groups of columns must save at least so many padded levels."""
    one_thread_work: int = 4_000_000
    """Hidden values of one batch; below this, more threads cost more than they save."""


SETTINGS = FitSettings()


class TrainingReleaser(Releaser, Protocol):
    """A releaser that keeps the state of a training, so that a killed run can continue, and that
    reads rows once for what is released together.
    """

    def checkpoints(self, purpose: str) -> Checkpoints | None: ...
    def release_together(
        self, mechanisms: Mapping[str, Mechanism[Any]]
    ) -> dict[str, Released[Any]]: ...


@dataclass(frozen=True)
class Fitted:
    """Everything that a run released on its way to the synthesizer.

    `sums` are those of the spec's estimands, by name, and of all numbers as `MOMENTS`. Tables of
    estimands are among `marginals`. `heaps` are numbers that many rows have, where they were looked
    for: what comes of `marginals` has their receipt. The model follows the tables as they are
    shrunk to `prior`, if there is one.
    """

    marginals: Released[tuple[NoisyTable, ...]]
    graph: GraphResult
    synthesizer: Released[Synthesizer]
    sums: Mapping[str, Released[Sums]] = field(default_factory=dict)
    heaps: Released[NoisyTexts] | None = None
    prior: Prior | None = None

    def drawn_from(self, domain: Domain) -> Domain:
        """The domain whose columns know the heaps that were told: values are drawn from it."""
        return with_heaps(domain, self.heaps.value if self.heaps else None, self.tables.value)

    @property
    def tables(self) -> Released[tuple[NoisyTable, ...]]:
        """Every noisy table that was paid for, the one-way tables first."""
        return all_tables(self.marginals, self.graph)

    @property
    def known(self) -> Released[tuple[NoisyTable, ...]]:
        """Those, and what earlier waves say of this one: rows follow them."""
        return known_tables(self.marginals, self.graph)


def fit(
    releaser: TrainingReleaser,
    spec: ReleaseSpec,
    domain: Domain,
    *,
    progress: Progress,
    check: Check = lambda tables: None,
    prior: PublicRows | None = None,
    earlier: tuple[Tables, ...] = (),
) -> Fitted:
    """Measure, find the graph, train. `check` may stop the run after the first noisy tables.

    What is measured does not depend on a `prior`. `earlier` are the tables of earlier waves, oldest
    first.
    """
    marginals, heaps = measure(releaser, check), None
    if (budget := releaser.plan.heaps) is not None:
        chosen = budget.choose(dict.fromkeys(spec.privacy.heaps, "number"))
        heaps = releaser.release(chosen, purpose=HEAPS)
        marginals = marginals.zip(heaps).map(lambda both: both[0])
    tables, sums = tables_and_sums(releaser.plan.estimands)
    planned = {estimand_purpose(name): mechanism for name, mechanism in (tables | sums).items()}
    moments = releaser.plan.moments
    asked = releaser.release_together(planned | ({MOMENTS: moments} if moments else {}))
    for name in tables:
        marginals = _joined(marginals, asked[estimand_purpose(name)])
    released = {name: _contrasted(releaser, name, asked[estimand_purpose(name)]) for name in sums}
    released |= {MOMENTS: asked[MOMENTS]} if moments else {}
    targets = spec.evaluation.targets
    graph = find_graph(
        releaser,
        spec.graph,
        domain,
        known=marginals,
        targets=targets,
        prior=prior,
        earlier=earlier,
    )
    law = LevelLaw.by_rows(known_tables(marginals, graph).value, domain, prior)
    graph, acting = with_interactions(releaser, spec, law, marginals, graph)
    synthesizer = train(
        releaser, spec, domain, marginals, graph, progress=progress, acting=acting, prior=law.prior
    )
    followed = law.prior
    if followed and not synthesizer.value.architecture.direct:  # no pair's table is its start
        followed = Prior({names: own for names, own in followed.counts.items() if len(names) == 1})
    return Fitted(marginals, graph, synthesizer, released, heaps, followed)


def _contrasted(releaser: TrainingReleaser, name: str, sums: Released[Any]) -> Released[Any]:
    """The sums of an estimand, with the contrast that is measured in their light, if one is."""
    budget = releaser.plan.estimands.get(contrast_name(name))
    if not isinstance(budget, ContrastBudget):
        return sums
    chosen, purpose = chosen_contrast(budget, sums.value), estimand_purpose(contrast_name(name))
    measured = releaser.release(chosen, purpose=purpose)
    return sums.zip(measured).map(lambda both: replace(both[0], contrast=both[1]))


@dataclass(frozen=True)
class Acting:
    """What acts on targets together, and the model of pairs `before`, which does not have it."""

    together: tuple[Together, ...]
    before: LogLinear


def with_interactions(
    releaser: Releaser,
    spec: ReleaseSpec,
    law: LevelLaw,
    marginals: Released[tuple[NoisyTable, ...]],
    graph: GraphResult,
) -> tuple[GraphResult, Acting | None]:
    """The graph with arrows for what acts on targets together, where the plan has a look for it."""
    if INTERACTIONS not in releaser.plan.graph:
        return graph, None
    tables = known_tables(marginals, graph)
    architecture = architecture_for(spec, law.groups.coarse, graph.graph, tables.value)
    rows, rng = expected_fit_rows(spec), fresh_generator()
    before = fit_log_linear(architecture, law.groups.coarse, pair_tables(law), rows=rows, rng=rng)
    found = find_interactions(releaser, spec, law, before.drawn.astype(np.uint16))
    if not found.value:
        return graph, Acting((), before)
    known = found.map(lambda acting: with_arrows(graph.graph, acting))
    if graph.released is not None:
        known = graph.released.zip(known).map(lambda both: both[1])
    return replace(graph, graph=known.value, released=known), Acting(found.value, before)


def measure(
    releaser: Releaser, check: Check = lambda tables: None
) -> Released[tuple[NoisyTable, ...]]:
    """Noisy one-way tables, which `check` may refuse, then those of the spec's pairs."""
    plan = releaser.plan
    tables = releaser.release(needed(plan.measure, MEASURE), purpose=MEASURE)
    check(tables.value)
    if plan.pairs is None:
        return tables
    return _joined(tables, releaser.release(plan.pairs, purpose=PAIRS))


def all_tables(
    marginals: Released[tuple[NoisyTable, ...]], graph: GraphResult
) -> Released[tuple[NoisyTable, ...]]:
    """The first tables, and those that found or tested the graph: all were paid for."""
    return marginals if graph.tables is None else _joined(marginals, graph.tables)


def known_tables(
    marginals: Released[tuple[NoisyTable, ...]], graph: GraphResult
) -> Released[tuple[NoisyTable, ...]]:
    """All tables that were paid for, and what those of earlier waves say."""
    return all_tables(marginals, graph).map(lambda own: with_earlier(own, graph.earlier))


def _joined(
    first: Released[tuple[NoisyTable, ...]], more: Released[tuple[NoisyTable, ...]]
) -> Released[tuple[NoisyTable, ...]]:
    return first.zip(more).map(lambda both: (*both[0], *both[1]))


def train(
    releaser: TrainingReleaser,
    spec: ReleaseSpec,
    domain: Domain,
    marginals: Released[tuple[NoisyTable, ...]],
    graph: GraphResult,
    *,
    progress: Progress,
    acting: Acting | None = None,
    prior: Prior | None = None,
) -> Released[Synthesizer]:
    """Train the causal VAE by DP-SGD, from the one-way margins of all noisy tables.

    In mode predict it starts from the two-way tables, too, and no share for training means none.
    `acting` was found to act together.
    """
    torch.set_num_threads(spec.compute.threads or threads_for(spec, domain))
    plan, start = releaser.plan, build_start(spec, domain, marginals, graph, acting, prior)
    where, heads = (spec.compute.device, start.groups), None
    if start.regression:  # short enough to begin again after a kill
        budget = needed(plan.targets, TARGETS)
        stage = Training(budget, start.regression, lambda done, total: None, None, *where)
        heads = releaser.release(stage, purpose=TARGETS)
    if plan.train is None and start.architecture.direct:
        return assemble(start, spec, start.untrained(), heads)
    budget, saved = needed(plan.train, TRAIN), releaser.checkpoints(TRAIN)
    training = Training(budget, start.network, progress, saved, *where)
    return assemble(start, spec, releaser.release(training, purpose=TRAIN), heads)


@dataclass(frozen=True)
class TrainingStart:
    """The start of a training, all of it public or released.

    `network` and `regression` have their starting weights. `margins` are the one-way probabilities
    of all columns, `[levels of the network]` each, and `paid` the tables behind them. `groups` are
    the groups of levels that the network has for levels; None where it has all levels. `law` is the
    log-linear model that the network starts from, if any.
    """

    network: CausalVae
    regression: TargetRegression | None
    architecture: Architecture
    columns: tuple[str, ...]
    margins: list[Probabilities]
    paid: Released[tuple[NoisyTable, ...]]
    groups: LevelGroups | None
    law: LogLinear | None = None

    def untrained(self) -> Released[Weights]:
        """The starting weights, which the tables alone made."""
        state = {name: value.detach().clone() for name, value in self.network.named_parameters()}
        return self.paid.map(lambda _: state)


def build_start(
    spec: ReleaseSpec,
    domain: Domain,
    marginals: Released[tuple[NoisyTable, ...]],
    graph: GraphResult,
    acting: Acting | None = None,
    prior: Prior | None = None,
) -> TrainingStart:
    """The network, and the targets' regression if any, started from all noisy one-way margins."""
    tables = known_tables(marginals, graph)
    law = LevelLaw.of_tables(tables.value, domain, prior)
    margins, modelled = law.coarse_margins, law.groups.coarse
    network = causal_vae(spec, modelled, graph.graph, tables.value)
    architecture = architecture_for(spec, modelled, graph.graph, tables.value)
    floor = SETTINGS.floor_rows / expected_fit_rows(spec)
    starts = [smoothed(p, floor=floor) for p in margins]
    network.start_from(starts)
    targets = targets_of(spec, modelled, architecture)
    fitted = acting.before if acting and not acting.together else None
    if architecture.direct:
        if fitted is None:
            fitted = fit_log_linear(
                architecture,
                modelled,
                pair_tables(law),
                rows=expected_fit_rows(spec),
                rng=fresh_generator(),
                together=acting.together if acting else (),
                before=acting.before if acting else None,
            )
        own = architecture.rows_of_all(c for c in range(len(modelled)) if c not in targets)
        network.start_from_tables(fitted.direct[own], fitted.biases)
    regression = target_regression(modelled, architecture, targets, starts) if targets else None
    if regression:
        regression.start_from([on_groups(t, law.groups) for t in marginals.value], modelled)
    paid = tables if graph.released is None else tables.zip(graph.released).map(lambda w: w[0])
    groups = law.groups if law.groups.starts else None
    return TrainingStart(
        network, regression, architecture, modelled.names, margins, paid, groups, fitted
    )


def assemble(
    start: TrainingStart,
    spec: ReleaseSpec,
    weights: Released[Weights],
    heads: Released[Weights] | None,
) -> Released[Synthesizer]:
    """The synthesizer of trained weights.

    The targets' regression takes its place in the network. If the spec says so, the biases are
    calibrated to the released margins.
    """
    network, regression, architecture = start.network, start.regression, start.architecture
    if heads is None or regression is None:
        whole = weights.map(network.plain)
    else:
        whole = weights.zip(heads).map(
            lambda w: into_network(architecture, network.plain(w[0]), regression, w[1])
        )

    law = start.law
    if law is not None and law.acting:
        whole = whole.map(lambda w: with_acting(w, law, start.columns))

    def calibrated(w: tuple[Weights, tuple[NoisyTable, ...]]) -> Synthesizer:
        synthesizer = Synthesizer(start.columns, architecture, arrays(w[0]))
        if not spec.sampling.rake:
            return synthesizer
        fewest, most = SETTINGS.calibration_rows
        rows = min(most, max(fewest, 2 * expected_fit_rows(spec)))
        return synthesizer.calibrated(start.margins, rows=int(rows), rng=fresh_generator())

    return whole.zip(start.paid).map(calibrated)


# --- build ---
#
# The modules that a fit trains, built from the spec, the domain and the graph: nothing private.


def architecture_for(
    spec: ReleaseSpec, domain: Domain, graph: CausalGraph, tables: Sequence[NoisyTable] = ()
) -> Architecture:
    """The network's shape, with the parents of the graph.

    Each declared latent cause gets `latent` dimensions of z, which reach its columns alone. Without
    declared latent causes z reaches every column. Where the pairs of the arrows are measured,
    parents have logits of their own, which start from these tables: by the spec, all of them, or,
    where the graph is learned, some in the released `tables` that found it.
    """
    parents = tuple(tuple(map(domain.index, graph.parents(name))) for name in domain.names)
    everywhere = (tuple(range(len(domain))),)
    causes = tuple(tuple(map(domain.index, names)) for names in graph.latent) or everywhere
    latent_of = tuple(c for c in causes for _ in range(spec.synthesizer.latent))
    arrows = {frozenset((p, name)) for name in graph.nodes for p in graph.parents(name)}
    direct = bool(arrows) and arrows <= set(map(frozenset, spec.privacy.pairs))
    if spec.graph.mode == "learn":
        pairs = (pair for table in tables for pair in combinations(table.columns, 2))
        direct = not arrows.isdisjoint(map(frozenset, pairs))
    direct = direct or spec.graph.mode == "predict"
    hidden = max(spec.synthesizer.hidden, graph.units)
    return Architecture(domain.sizes, parents, latent_of, hidden, direct)


def causal_vae(
    spec: ReleaseSpec, domain: Domain, graph: CausalGraph, tables: Sequence[NoisyTable] = ()
) -> CausalVae:
    """The network with fresh starting weights; its shape is that of `architecture_for`.

    It knows the order of levels where that does not take too much memory. Targets, which have a
    training stage of their own, are left out of its loss.
    """
    whole = architecture_for(spec, domain, graph, tables)
    targets = targets_of(spec, domain, whole)
    ordered = any(column.ordered for column in domain.columns)
    features = None
    if ordered and len(domain) * 2 * max(domain.sizes) ** 2 <= SETTINGS.max_feature_cells:
        features = [torch.from_numpy(level_features(c)).float() for c in domain.columns]
    return CausalVae(
        without_targets(whole, targets),
        generator=torch.Generator().manual_seed(secrets.randbits(63)),
        features=features,
        groups=width_groups(domain.sizes, [i for i in range(len(domain)) if i not in targets]),
    )


def targets_of(spec: ReleaseSpec, domain: Domain, architecture: Architecture) -> tuple[int, ...]:
    """Positions of the spec's targets that have parents; the network says as much of others."""
    positions = sorted(map(domain.index, spec.synthesizer.targets))
    return tuple(t for t in positions if architecture.parents[t])


def target_regression(
    domain: Domain,
    architecture: Architecture,
    targets: Sequence[int],
    margins: Sequence[Probabilities],
) -> TargetRegression:
    """The regression of the columns at positions `targets`, started from `margins`."""
    parents = {p for t in targets for p in architecture.parents[t]}
    features = {p: torch.from_numpy(level_features(domain.columns[p])).float() for p in parents}
    return TargetRegression(architecture, targets, features, margins)


def width_groups(sizes: Sequence[int], columns: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """`columns` in two groups of similar `sizes`, or in one if two save little.

    Each group is padded to its widest column; the groups are those with the fewest padded levels.

    >>> width_groups([2, 100, 3], [0, 1, 2])
    ((0, 2), (1,))
    """
    order = sorted(columns, key=lambda i: sizes[i])
    levels = [sizes[i] for i in order]
    cells = [k * levels[k - 1] + (len(order) - k) * levels[-1] for k in range(1, len(order) + 1)]
    cut = 1 + int(np.argmin(cells))
    one = cells[-1]
    if cells[cut - 1] > min(SETTINGS.max_padded_share * one, one - SETTINGS.min_saved):
        return (tuple(sorted(order)),)
    return tuple(tuple(sorted(part)) for part in (order[:cut], order[cut:]) if part)


# --- compute ---


def check_device(spec: ReleaseSpec) -> None:
    """Refuse a device that this machine does not have."""
    if spec.compute.device == "cuda" and not torch.cuda.is_available():
        raise OutputError(
            "compute.device is cuda, and this machine has no CUDA device",
            hint="say compute.device: cpu; it is the same code",
        )


def check_alone() -> None:
    """Refuse to train beside others that torchrun started: each would pay for itself."""
    if "LOCAL_RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
        raise OutputError(
            f"torchrun started {os.environ['WORLD_SIZE']} processes, and a release is trained by"
            " one; nothing was spent",
            hint=(
                "start `synthdp` without torchrun; `compute.threads` says how many threads it takes"
            ),
        )


def threads_for(spec: ReleaseSpec, domain: Domain) -> int:
    """Number of threads that pay off: a small model's step is shorter than a thread's start."""
    work = spec.synthesizer.batch * spec.synthesizer.hidden * len(domain)
    return (os.cpu_count() or 1) if work > SETTINGS.one_thread_work else 1
