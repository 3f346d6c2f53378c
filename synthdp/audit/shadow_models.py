"""Many rehearsals of the pipeline side by side: the same measuring, training and sampling, with the
training of all in one program.

What a fleet of shadow models shares is public: plan, graph, architecture and features. Rows, noise,
starting weights and draws are each model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph
from synthdp.graph.stage import GraphResult
from synthdp.model.fit import Fitted, assemble, build_start, measure, training_of
from synthdp.model.sampling import sample
from synthdp.privacy.dpsgd.batched_rehearsals import train_side_by_side
from synthdp.privacy.dpsgd.training import PerExampleLoss, Training, Weights
from synthdp.privacy.plan import Plan
from synthdp.privacy.private import Released
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import ReleaseSpec


def shadows(
    rows: Sequence[Codes],
    spec: ReleaseSpec,
    domain: Domain,
    plan: Plan,
    graph: CausalGraph,
    *,
    rngs: Sequence[np.random.Generator],
) -> Iterator[Codes]:
    """The synthetic set of a shadow release on each of `rows`, levels `[rows, columns]`, one after
    the other as they are drawn.

    `rngs`: what feeds the sampling of each. All models are trained before the first is sampled.
    """
    for fitted, rng in zip(fitted_shadows(rows, spec, domain, plan, graph), rngs, strict=True):
        yield sample(fitted, spec, rng=rng, progress=_quiet).value


def fitted_shadows(
    rows: Sequence[Codes], spec: ReleaseSpec, domain: Domain, plan: Plan, graph: CausalGraph
) -> Iterator[Fitted]:
    """All that a shadow release on each of `rows` would publish but its sample."""
    torch.set_num_threads(1)
    found = GraphResult(graph)
    rehearsals = [Rehearsal(own, domain, plan) for own in rows]
    marginals = [measure(rehearsal) for rehearsal in rehearsals]
    drafts = [build_start(spec, domain, own, found) for own in marginals]
    regressions = [draft.regression for draft in drafts if draft.regression is not None]
    heads = (
        _together(rehearsals, regressions, plan, "targets") if regressions else [None] * len(drafts)
    )
    weights = _together(rehearsals, [draft.network for draft in drafts], plan, "train")
    for draft, own, trained, head in zip(drafts, marginals, weights, heads, strict=True):
        yield Fitted(own, found, assemble(draft, spec, trained, head))


def _together(
    rehearsals: Sequence[Rehearsal], modules: Sequence[PerExampleLoss], plan: Plan, purpose: str
) -> list[Released[Weights]]:
    """All `modules` trained by their planned spend `purpose`."""
    settings = training_of(plan, purpose)
    return train_side_by_side(
        rehearsals,
        [Training(settings, module, _quiet, None) for module in modules],
        purpose=purpose,
    )


def _quiet(done: int, total: int) -> None:
    """No progress inside a worker."""
