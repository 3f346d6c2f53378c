"""A separate training stage for target columns, those that will be predicted.

The clipped gradient of a whole row says little of one column beside all the others. Here a target's
conditional p(target | parents) is a multinomial logistic regression on the public features of its
parents' levels, trained by DP-SGD on a loss of the targets alone. The network then leaves them out
of its loss, and `into_network` writes the regression into the network: tanh(s u) / s is u for small
s, so that hidden units pass the logits on. The graph does not change: a target depends on its
parents, and no longer on z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.graph.margins import Probabilities
from synthdp.model.ancestral import DIRECT, Architecture
from synthdp.model.log_linear import common_strength, scores
from synthdp.privacy.dpsgd.layers import MaskedLinear
from synthdp.privacy.dpsgd.training import PerExampleLoss
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import fresh_generator


@dataclass(frozen=True)
class PriorSettings:
    """The prior against which noisy counts of a parent and a target are weighed."""

    level_variance: float = 0.25
    """Variance of a level's probabilities around p(target), relative to the largest possible."""
    step_variance: float = 0.05
    """Variance of the difference between neighbouring levels, likewise."""
    anchor: float = 0.02
    """Share of the prior around p(target) that the ordered levels keep together."""
    clear: float = 2.5
    """Standard deviations of its noise that the rows of a level must exceed."""
    min_probability: float = 1e-3
    """Smallest probability of a target's level, whatever was counted, and its smallest spread."""


PRIOR = PriorSettings()


class TargetRegression(PerExampleLoss):
    """Logits of each target's levels, linear in the features of its parents' levels.

    All targets are trained together, by one clipped gradient. Features are centred by released
    margins: otherwise the part that all rows have in common would take most of a gradient's norm.
    """

    latent = 0

    def __init__(
        self,
        architecture: Architecture,
        targets: Sequence[int],
        features: Mapping[int, Tensor],
        margins: Sequence[Probabilities],
    ) -> None:
        """`targets` are column positions.

        `margins[c]` `[levels]` are the probabilities of column c, without a zero. `features[c]`
        `[levels, features]` are needed for the parents of targets.
        """
        super().__init__()
        sizes = architecture.sizes
        self.targets, self.margins = tuple(targets), list(margins)
        self.parents = {t: architecture.parents[t] for t in targets}
        self.inputs = tuple(sorted(set(chain.from_iterable(self.parents.values()))))
        self.columns = _slices(self.inputs, [features[c].shape[1] for c in self.inputs])
        self.rows = _slices(self.targets, [sizes[t] for t in targets])
        for c in self.inputs:
            mean = torch.from_numpy(margins[c]).float() @ features[c]
            self.register_buffer(f"mean_{c}", mean.unsqueeze(0), persistent=False)
            self.register_buffer(f"features_{c}", features[c], persistent=False)
        width = sum(features[c].shape[1] for c in self.inputs)
        mask = torch.zeros(sum(sizes[t] for t in targets), width)
        for t in targets:
            for p in self.parents[t]:
                mask[self.rows[t], self.columns[p]] = 1
        self.linear = MaskedLinear(mask)
        with torch.no_grad():
            logs = np.log(np.concatenate([margins[t] for t in targets]))
            self.linear.bias.copy_(torch.from_numpy(logs))

    @torch.no_grad()
    def start_from(self, tables: Sequence[NoisyTable], domain: Domain) -> None:
        """Start at log(p(target | parent) / p(target)), where a table of both columns was measured.

        Rare levels that decide a target, which gradients hardly show through their noise, are then
        known from the first step. Where enough arrows between ordered columns were measured, all
        such arrows start from their common strength instead.
        """
        by_level = {c: scores(column) for c, column in enumerate(domain.columns)}
        scored = {c: values for c, values in by_level.items() if values is not None}
        graph = nx.DiGraph([(p, t) for t in self.targets for p in self.parents[t]])
        arrows = {  # of targets in causal order
            t: [p for p in self.parents[t] if p in scored]
            for t in nx.lexicographical_topological_sort(graph)
            if t in self.rows and t in scored
        }
        rng = fresh_generator()
        strength = common_strength(tables, domain.columns, arrows, self.margins, rng=rng)
        shared = {(p, t) for t, causes in arrows.items() for p in causes} if strength else set()
        biases = {t: self.linear.bias[rows].softmax(0) for t, rows in self.rows.items()}
        shares = {t: share.double().numpy() for t, share in biases.items()}
        for table in tables:
            if len(table.columns) != 2:
                continue
            first, second = map(domain.index, table.columns)
            both = ((first, second, table.counts), (second, first, table.counts.T))
            for parent, target, counts in both:
                if parent in self.parents.get(target, ()) and (parent, target) not in shared:
                    column, share = domain.columns[parent], shares[target]
                    ratio = shrunk_log_ratio(counts, share, column, sigma=table.sigma)
                    weight = self._set_logits(parent, target, ratio)
                    mean = self.get_buffer(f"mean_{parent}").squeeze(0)
                    self.linear.bias[self.rows[target]] += mean @ weight
        for parent, target in sorted(shared):
            self._set_logits(parent, target, strength * np.outer(scored[parent], scored[target]))

    def _set_logits(self, parent: int, target: int, logits: Probabilities) -> Tensor:
        """Set the weights of a parent to those whose logits are nearest, and return them.

        `logits` is `[levels of the parent, levels of the target]`, the weights `[features, levels
        of the target]`.
        """
        features = self.get_buffer(f"features_{parent}").double()
        weight: Tensor = (torch.linalg.pinv(features) @ torch.from_numpy(logits)).float()
        self.linear.weight[self.rows[target], self.columns[parent]] = weight.T
        return weight

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Negative log-likelihood of the targets of `[..., batch, columns]`, in nats."""
        centred = [
            self.get_buffer(f"features_{c}")[codes[..., c]] - self.get_buffer(f"mean_{c}")
            for c in self.inputs
        ]
        logits = self.linear(torch.cat(centred, -1))
        losses = []
        for t, rows in self.rows.items():
            of_target, levels = logits[..., rows].flatten(0, -2), codes[..., t].flatten()
            losses.append(F.cross_entropy(of_target, levels, reduction="none"))
        return torch.stack(losses).sum(0).view(codes.shape[:-1])

    @torch.no_grad()
    def tables(
        self, trained: Mapping[str, Tensor]
    ) -> tuple[dict[tuple[int, int], Tensor], dict[int, Tensor]]:
        """Logits by (target, parent), `[parent's levels, target's]`, and biases by target."""
        weight, bias = trained["linear.weight"] * self.linear.mask.cpu(), trained["linear.bias"]
        logits = {}
        for t, rows in self.rows.items():
            for p in self.parents[t]:
                centred = self.get_buffer(f"features_{p}") - self.get_buffer(f"mean_{p}")
                logits[t, p] = centred.cpu() @ weight[rows, self.columns[p]].T
        return logits, {t: bias[rows] for t, rows in self.rows.items()}


def _slices(keys: Sequence[int], lengths: Sequence[int]) -> dict[int, slice]:
    ends = np.cumsum(lengths).tolist()
    return {
        key: slice(end - length, end) for key, end, length in zip(keys, ends, lengths, strict=True)
    }


def shrunk_log_ratio(
    table: Probabilities, share: Probabilities, column: ColumnDomain, *, sigma: float
) -> Probabilities:
    """log p(target | parent) / p(target), from the noisy counts `table`.

    Counts and result are `[levels of the parent, levels of the target]`; `share`
    `[levels of the target]` is p(target), and `column` the parent's. The counts of levels whose
    rows are clear of the noise, with the variance of noise and sampling, are weighed against a
    prior: levels are near p(target), and ordered levels follow a random walk, so that a level with
    few rows, or with none but noise, follows its neighbours on both sides.
    """
    seen = np.clip(table, 0, None)
    rows = np.maximum(seen.sum(1), 1.0)
    spread = max(float(1 - (share**2).sum()), PRIOR.min_probability)
    clear = table.sum(1) > PRIOR.clear * sigma * len(share) ** 0.5
    precision = clear / (sigma**2 / rows**2 + spread / rows)
    first, last = len(column.spikes), column.levels - column.missing
    body = range(first, last if column.ordered else first)
    prior = np.full(len(table), 1 / (PRIOR.level_variance * spread))
    prior[body.start : body.stop] *= PRIOR.anchor / max(1, len(body))
    system = np.diag(precision + prior)
    for level in body[:-1]:
        step = np.array([[1, -1], [-1, 1]]) / (PRIOR.step_variance * spread)
        system[level : level + 2, level : level + 2] += step
    observed = precision[:, None] * seen / rows[:, None]
    probabilities = np.linalg.solve(system, observed + prior[:, None] * share)
    probabilities = np.maximum(probabilities, np.minimum(PRIOR.min_probability, share))
    ratio: Probabilities = np.log(probabilities / probabilities.sum(1, keepdims=True) / share)
    return ratio


def without_targets(architecture: Architecture, targets: Sequence[int]) -> Architecture:
    """The network that is trained while targets are left out: they have no parents."""
    parents = list(architecture.parents)
    for t in targets:
        parents[t] = ()
    return replace(architecture, parents=tuple(parents))


def into_network(
    architecture: Architecture,
    weights: Mapping[str, Tensor],
    regression: TargetRegression,
    trained: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The whole network's weights: `weights` without targets, and the regression for these."""
    tables, biases = regression.tables(trained)
    out = {name: tensor.clone() for name, tensor in weights.items()}
    # Hidden units pass logits on: tanh(u scale) / scale is u up to 2e-6 for u < 10.
    hidden, scale = architecture.hidden, 2.0**-12
    for t, bias in biases.items():
        levels = torch.arange(len(bias))
        out["decode_latent.weight"][t * hidden : (t + 1) * hidden] = 0
        out["decode_latent.bias"][t * hidden : (t + 1) * hidden] = 0
        out["decode_levels.weight"][t] = 0
        out["decode_levels.weight"][t, levels, levels] = 1 / scale
        out["decode_levels.bias"][t, levels] = bias
    left = without_targets(architecture, list(biases)).parents
    lookups = [architecture.sizes[p] for parents in left for p in parents]
    rest = iter(torch.split(weights["decode_parents.weight"], lookups) if lookups else ())
    rows: list[Tensor] = []
    for column, parents in enumerate(architecture.parents):
        for p in parents:
            if column in biases:
                padding = hidden - architecture.sizes[column]
                rows.append(F.pad(scale * tables[column, p], (0, padding)))
            else:
                rows.append(next(rest))
    shared = out.get("decode_parents.bias", torch.zeros(len(architecture.sizes), hidden)).clone()
    shared[list(biases)] = 0
    if architecture.direct:
        kept = [c for c in range(len(architecture.sizes)) if c not in biases]
        own = torch.zeros(architecture.shapes()[DIRECT])
        own[architecture.rows_of_all(kept)] = weights[DIRECT]
        out[DIRECT] = own
    return {**out, "decode_parents.weight": torch.cat(rows), "decode_parents.bias": shared}
