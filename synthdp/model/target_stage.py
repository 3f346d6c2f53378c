"""A training stage of its own for target columns, those that will be predicted.

What the clipped gradient of a whole row says of one column drowns in what it says of the others.
Here a target's conditional p(target | parents) is a multinomial logistic regression on the public
features of its parents' levels, trained by DP-SGD on a loss that holds targets alone. The network
then leaves them out of its loss, and `into_network` puts the
regression in its place there: tanh(s u) / s is u for small s, so that hidden units pass the logits
on. In the graph nothing
changes: a target depends on its parents, no longer on z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from synthdp.data.domain import ColumnDomain, Domain
from synthdp.model.common_strength import common_strength, scores
from synthdp.model.network import Architecture
from synthdp.model.raking import Probabilities
from synthdp.privacy.dpsgd.layers import MaskedLinear
from synthdp.privacy.dpsgd.training import PerExampleLoss
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import fresh_generator

SCALE = (
    2.0**-12
)  # of hidden units that pass a logit on: tanh(u SCALE) / SCALE is u up to 2e-6 for u below 10
DIFFERS, STEPS = (
    0.25,
    0.05,
    # prior variances of a level's chances, around all rows' and around its neighbour's, of the most
    # that they can be
)
ANCHOR = 0.02  # of that first prior is kept for a body, as a whole
CLEAR = 2.5  # standard deviations of its noise that the rows of a level must exceed
MIN_CHANCE = (
    1e-3  # that a level of a target keeps, whatever was counted, and the least spread of its levels
)


class TargetRegression(PerExampleLoss):
    """Logits of each target's levels, linear in the features of its parents' levels. All targets
    are trained together, by one clipped gradient.

    Features are centred by released margins: what all rows have in common would otherwise take most
    of a gradient's norm.
    """

    latent = 0

    def __init__(
        self,
        architecture: Architecture,
        targets: Sequence[int],
        features: Mapping[int, Tensor],
        margins: Sequence[Probabilities],
    ) -> None:
        """`targets` are column positions; `margins[c]` `[levels]`, which may have no zero, are of
        column c, and so are `features[c]` `[levels, features]`, which are needed for parents of
        targets.
        """
        super().__init__()
        sizes = architecture.sizes
        self.targets, self.parents, self.margins = (
            tuple(targets),
            {t: architecture.parents[t] for t in targets},
            list(margins),
        )
        self.inputs = tuple(sorted({p for own in self.parents.values() for p in own}))
        self.columns = _slices(self.inputs, [features[c].shape[1] for c in self.inputs])
        self.rows = _slices(self.targets, [sizes[t] for t in targets])
        for c in self.inputs:
            mean = torch.from_numpy(margins[c]).float() @ features[c]
            self.register_buffer(f"mean_{c}", mean.unsqueeze(0), persistent=False)
            self.register_buffer(f"features_{c}", features[c], persistent=False)
        mask = torch.zeros(
            sum(sizes[t] for t in targets), sum(features[c].shape[1] for c in self.inputs)
        )
        for t in targets:
            for p in self.parents[t]:
                mask[self.rows[t], self.columns[p]] = 1
        self.linear = MaskedLinear(mask)
        with torch.no_grad():
            self.linear.bias.copy_(
                torch.from_numpy(np.log(np.concatenate([margins[t] for t in targets])))
            )

    @torch.no_grad()
    def start_from(self, tables: Sequence[NoisyTable], domain: Domain) -> None:
        """Start from measured tables of a parent and a target, at the log of how much likelier
        levels of one make those of the other.

        Rare levels that decide a target, which gradients hardly show through their noise, are then
        known from the first step. Where enough arrows between columns with an order were measured,
        all such arrows start from their common strength instead.
        """
        strength, arrows = self._strength(tables, domain)
        shares = {
            t: self.linear.bias[rows].softmax(0).double().numpy() for t, rows in self.rows.items()
        }
        for table in tables:
            own = [domain.index(name) for name in table.columns]
            for parent, target in (own, own[::-1]) if len(own) == 2 else ():
                if (
                    target in self.rows
                    and parent in self.parents[target]
                    and not (strength and parent in arrows.get(target, ()))
                ):
                    rows, mean = self.rows[target], self.get_buffer(f"mean_{parent}").squeeze(0)
                    features = self.get_buffer(f"features_{parent}").double()
                    counts = table.counts if own[0] == parent else table.counts.T
                    likelier = _likelier(
                        counts, shares[target], domain.columns[parent], sigma=table.sigma
                    )
                    weight = (torch.linalg.pinv(features) @ torch.from_numpy(likelier)).float()
                    self.linear.weight[rows, self.columns[parent]] = weight.T
                    self.linear.bias[rows] += mean @ weight
        for target, causes in arrows.items() if strength else ():
            for cause in causes:
                push = strength * np.outer(
                    *(
                        score
                        for c in (cause, target)
                        if (score := scores(domain.columns[c])) is not None
                    )
                )
                features = self.get_buffer(f"features_{cause}").double()
                self.linear.weight[self.rows[target], self.columns[cause]] = (
                    (torch.linalg.pinv(features) @ torch.from_numpy(push)).float().T
                )

    def _strength(
        self, tables: Sequence[NoisyTable], domain: Domain
    ) -> tuple[float, dict[int, list[int]]]:
        """The common strength of the arrows to targets between columns with an order, and these
        arrows.
        """
        scored = {c for c, column in enumerate(domain.columns) if scores(column) is not None}
        order = nx.lexicographical_topological_sort(
            nx.DiGraph([(p, t) for t in self.targets for p in self.parents[t]])
        )
        arrows = {
            t: [p for p in self.parents[t] if p in scored]
            for t in order
            if t in self.rows and t in scored
        }
        return common_strength(
            tables, domain.columns, arrows, self.margins, rng=fresh_generator()
        ), arrows

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Surprise at the targets of each row of levels `[..., batch, columns]`, in nats, `[...,
        batch]`; `noise` is `[..., batch, 0]`.
        """
        centred = [
            self.get_buffer(f"features_{c}")[codes[..., c]] - self.get_buffer(f"mean_{c}")
            for c in self.inputs
        ]
        logits = self.linear(torch.cat(centred, -1))
        losses = [
            F.cross_entropy(
                logits[..., rows].flatten(0, -2), codes[..., t].flatten(), reduction="none"
            )
            for t, rows in self.rows.items()
        ]
        return torch.stack(losses).sum(0).view(codes.shape[:-1])

    @torch.no_grad()
    def tables(
        self, trained: Mapping[str, Tensor]
    ) -> tuple[dict[tuple[int, int], Tensor], dict[int, Tensor]]:
        """Logits by (target, parent), `[levels of the parent, levels of the target]`, and biases by
        target, of the `trained` weights.
        """
        weight, bias = trained["linear.weight"] * self.linear.mask.cpu(), trained["linear.bias"]
        logits = {
            (t, p): (self.get_buffer(f"features_{p}") - self.get_buffer(f"mean_{p}")).cpu()
            @ weight[rows, self.columns[p]].T
            for t, rows in self.rows.items()
            for p in self.parents[t]
        }
        return logits, {t: bias[rows] for t, rows in self.rows.items()}


def _slices(keys: Sequence[int], lengths: Sequence[int]) -> dict[int, slice]:
    """Where each key's part lies, one after the other."""
    ends = np.cumsum(lengths).tolist()
    return {
        key: slice(end - length, end) for key, end, length in zip(keys, ends, lengths, strict=True)
    }


def _likelier(
    table: Probabilities, share: Probabilities, column: ColumnDomain, *, sigma: float
) -> Probabilities:
    """Log of p(target | parent) / p(target), `[levels of the parent, levels of the target]`, from
    the noisy counts `table` of that shape.

    `share` `[levels of the target]` is p(target), `column` the parent's. What the counts say of
    levels whose rows are clear of the noise, with the variance of noise and sampling, is weighed
    against a prior: levels are near p(target), and those of a body in order walk at random, so that
    a level that few rows have, or none but noise, follows its neighbours on both sides.
    """
    seen = np.clip(table, 0, None)
    rows, spread = np.maximum(seen.sum(1), 1.0), max(float(1 - (share**2).sum()), MIN_CHANCE)
    clear = table.sum(1) > CLEAR * sigma * len(share) ** 0.5
    precision = clear / (sigma**2 / rows**2 + spread / rows)
    first, last = len(column.spikes), column.levels - column.missing
    body = range(first, last if column.ordered else first)
    prior = np.full(len(table), 1 / (DIFFERS * spread))
    prior[body.start : body.stop] *= ANCHOR / max(1, len(body))
    system = np.diag(precision + prior)
    for level in body[:-1]:
        system[level : level + 2, level : level + 2] += np.array([[1, -1], [-1, 1]]) / (
            STEPS * spread
        )
    probabilities = np.linalg.solve(
        system, precision[:, None] * seen / rows[:, None] + prior[:, None] * share
    )
    probabilities = np.maximum(probabilities, np.minimum(MIN_CHANCE, share))
    ratio: Probabilities = np.log(probabilities / probabilities.sum(1, keepdims=True) / share)
    return ratio


def without_targets(architecture: Architecture, targets: Sequence[int]) -> Architecture:
    """The network that is trained while targets are left out: nothing points at them."""
    return replace(
        architecture,
        parents=tuple(() if i in targets else own for i, own in enumerate(architecture.parents)),
    )


def into_network(
    architecture: Architecture,
    weights: Mapping[str, Tensor],
    regression: TargetRegression,
    trained: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Weights of the network of `architecture`: those of the one `without_targets`, and the
    regression where the targets are.
    """
    tables, biases = regression.tables(trained)
    out = {name: tensor.clone() for name, tensor in weights.items()}
    hidden = architecture.hidden
    for t, bias in biases.items():
        levels = torch.arange(len(bias))
        out["decode_latent.weight"][t * hidden : (t + 1) * hidden] = 0
        out["decode_latent.bias"][t * hidden : (t + 1) * hidden] = 0
        out["decode_levels.weight"][t] = 0
        out["decode_levels.weight"][t, levels, levels] = 1 / SCALE
        out["decode_levels.bias"][t, levels] = bias
    lookups = _lookups(without_targets(architecture, list(biases)))
    rest = iter(torch.split(weights["decode_parents.weight"], lookups) if lookups else ())
    rows = [
        F.pad(SCALE * tables[t, p], (0, hidden - architecture.sizes[t]))
        if t in biases
        else next(rest)
        for t, own in enumerate(architecture.parents)
        for p in own
    ]
    shared = out.get("decode_parents.bias", torch.zeros(len(architecture.sizes), hidden)).clone()
    shared[list(biases)] = 0
    return {**out, "decode_parents.weight": torch.cat(rows), "decode_parents.bias": shared}


def _lookups(architecture: Architecture) -> list[int]:
    """Rows of each (node, parent) of `decode_parents`, in its order."""
    return [architecture.sizes[p] for own in architecture.parents for p in own]
