"""The modules that a fit trains, built from the spec, the domain and the graph: nothing private."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from synthdp.data.domain import Domain
from synthdp.data.features import level_features
from synthdp.graph.causal import CausalGraph
from synthdp.graph.margins import Probabilities
from synthdp.model.architecture import Architecture
from synthdp.model.network import CausalVae
from synthdp.model.target_stage import TargetRegression, without_targets
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import ReleaseSpec

MAX_FEATURE_CELLS = 1 << 24
"""Most cells of the feature matrices of all columns."""
MAX_PADDED_SHARE = 0.8
"""Two groups of columns must need at most this share of the padded levels of one group."""
MIN_SAVED = 64
"""Two groups of columns must save at least so many padded levels."""


def architecture_for(
    spec: ReleaseSpec, domain: Domain, graph: CausalGraph, tables: Sequence[NoisyTable] = ()
) -> Architecture:
    """The network's shape, with the parents of the graph.

    Each declared latent cause gets `latent` dimensions of z, which reach its columns alone. Without
    declared latent causes z reaches every column. Where the pairs of the arrows are measured,
    parents have logits of their own, which start from these tables: by the spec, or, where the
    graph is learned, in the released `tables`.
    """
    parents = tuple(tuple(domain.index(p) for p in graph.parents(name)) for name in domain.names)
    everywhere = (tuple(range(len(domain))),)
    causes = tuple(tuple(domain.index(n) for n in names) for names in graph.latent) or everywhere
    latent_of = tuple(c for c in causes for _ in range(spec.synthesizer.latent))
    direct = spec.graph.mode == "predict" or _arrows_measured(spec, graph, tables)
    return Architecture(domain.sizes, parents, latent_of, spec.synthesizer.hidden, direct)


def _arrows_measured(spec: ReleaseSpec, graph: CausalGraph, tables: Sequence[NoisyTable]) -> bool:
    """Whether the spec has the pair of every arrow measured, and there are arrows.

    A learned graph was found by `tables`. There some arrows are enough: those that the spec
    requires are not looked at.
    """
    arrows = {frozenset((p, name)) for name in graph.nodes for p in graph.parents(name)}
    if spec.graph.mode == "learn":
        pairs = (pair for table in tables for pair in combinations(table.columns, 2))
        return not arrows.isdisjoint(map(frozenset, pairs))
    return bool(arrows) and arrows <= {frozenset(pair) for pair in spec.privacy.pairs}


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
    if ordered and len(domain) * 2 * max(domain.sizes) ** 2 <= MAX_FEATURE_CELLS:
        features = [torch.from_numpy(level_features(c)).float() for c in domain.columns]
    return CausalVae(
        without_targets(whole, targets),
        generator=unseeded_generator(),
        features=features,
        groups=width_groups(domain.sizes, [i for i in range(len(domain)) if i not in targets]),
    )


def targets_of(spec: ReleaseSpec, domain: Domain, architecture: Architecture) -> tuple[int, ...]:
    """Positions of the spec's targets that have parents in the graph.

    A target without parents needs no stage: the network says as much of it.
    """
    positions = sorted(domain.index(name) for name in spec.synthesizer.targets)
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
    if cells[cut - 1] > min(MAX_PADDED_SHARE * cells[-1], cells[-1] - MIN_SAVED):
        return (tuple(sorted(order)),)
    return tuple(tuple(sorted(part)) for part in (order[:cut], order[cut:]) if part)


def unseeded_generator() -> torch.Generator:
    """A generator for starting weights and for draws from released content.

    It is not for the noise of a mechanism.
    """
    return torch.Generator().manual_seed(secrets.randbits(63))
