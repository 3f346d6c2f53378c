"""How strong each link of the graph is in the synthetic rows: post-processing of what is published.

Strength is Cramér's V, with Bergsma's correction (`synthdp.evaluate.association`), on the levels or
groups of levels that pairs were counted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from synthdp.bundle.wording import plain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.evaluate.association import cramers_v
from synthdp.graph.causal import CausalGraph
from synthdp.graph.edge import GraphEdge
from synthdp.graph.prediction.groups import groups_of
from synthdp.privacy.mechanisms.marginals import NoisyTable

MAX_ARROWS = 15  # links that are listed
WEAK = 0.1  # Cramér's V of a small effect between columns of two levels [Cohen 1988]
BEHIND = {
    "given": "drawn by the publisher, not tested",
    "required": "required by the publisher, not tested",
    "learned": "found on noisy tables",
    "supported": "drawn by the publisher; noisy tables support it",
    "refuted": "drawn by the publisher; noisy tables speak against it",
    "undecided": "drawn by the publisher; noisy tables do not decide",
    "predictive": "noisy tables show a dependence; no cause",
}


@dataclass(frozen=True)
class Strength:
    """A link, Cramér's V of its columns, and whether some noisy table has both."""

    edge: GraphEdge
    v: float
    measured: bool


def arrow_strengths(
    graph: CausalGraph, codes: Codes, domain: Domain, tables: Sequence[NoisyTable]
) -> tuple[Strength, ...]:
    """Of all links of a graph, the strongest first; `codes` are levels `[rows, columns]`."""
    groups = groups_of(tables, domain)
    coarse = groups.of(codes)
    together = [set(table.columns) for table in tables]

    def strength(edge: GraphEdge) -> Strength:
        a, b = (domain.index(name) for name in edge.pair)
        width = groups.coarse.columns[b].levels
        cells = coarse[:, a].astype(np.int64) * width + coarse[:, b]
        size = groups.coarse.columns[a].levels * width
        counts = np.bincount(cells, minlength=size).reshape(-1, width)
        v = round(float(cramers_v(counts, np.zeros(1, dtype=np.int64))[0]), 2)
        return Strength(edge, v, any(set(edge.pair) <= columns for columns in together))

    found = [strength(edge) for edge in graph.edges if edge.structural]
    return tuple(sorted(found, key=lambda s: (-s.v, s.edge)))


def arrows_text(strengths: Sequence[Strength]) -> Iterator[str]:
    """The links as a table of Markdown; nothing where there are none."""
    if not strengths:
        return
    weak = sum(s.v < WEAK for s in strengths)
    yield (
        "How strong each link is in the synthetic rows, by Cramér's V: 0 is none, 1 means that one"
        " column tells the other. It is the model's figure, after noise and without an interval."
        f" {weak} of {len(strengths)} are weak (below {WEAK:g})."
    )
    yield ""
    yield from ("| link | V | in one noisy table | what stands behind it |", "|---|---|---|---|")
    for s in strengths[:MAX_ARROWS]:
        link = (" → " if s.edge.directed else " - ").join(map(plain, s.edge.pair))
        measured = "yes" if s.measured else "no"
        yield f"| {link} | {s.v:.2f} | {measured} | {BEHIND[s.edge.provenance]} |"
    if len(strengths) > MAX_ARROWS:
        rest = strengths[MAX_ARROWS:]
        yield ""
        yield f"{len(rest)} more have a V of {rest[0].v:.2f} or less."
