"""What a search shows though causes may be unseen: marks on its links (`graph.pag`).

The marks come from the tables that the search paid for. The spec's knowledge counts as follows:

    required a -> b   a is a cause of b
    tiers, forbidden  a is no cause of b where no chain of allowed arrows leads from a to b. An
                      arrow that is forbidden alone says less than here: a may act through others
    groups            nothing about columns of one group
    latent            the pair is linked, and neither end follows from that

Arrows of a chain may join linked pairs and undecided ones: a pair that a test found independent has
no arrow. Undecided pairs separate nothing, and say nothing about triples that they close.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.skeleton import Skeleton
from synthdp.graph.knowledge import Knowledge
from synthdp.graph.meek import Collider
from synthdp.graph.pag.marks import Pag
from synthdp.graph.pag.orient import Ask, orient


def with_marks(
    graph: CausalGraph,
    skeleton: Skeleton,
    knowledge: Knowledge,
    sure: Collection[Collider],
    ask: Ask,
) -> CausalGraph:
    """`graph` with its `pag`; without one where the spec decides every pair.

    `sure` are the v-structures with enough evidence; arrowheads meet in no other.
    """
    if not skeleton.evidence:
        return graph
    apart = {
        frozenset(pair): [
            g for g, answer in skeleton.separators(pair) if answer.verdict == "independent"
        ]
        for pair in skeleton.evidence
        if pair not in skeleton.linked and skeleton.absent(pair)
    }
    links = {*map(frozenset, skeleton.linked), *map(frozenset, knowledge.confounded)}
    pairs = [p for p in combinations(graph.nodes, 2) if frozenset(p) in links]
    pag = Pag(graph.nodes, pairs)
    _known(pag, skeleton, knowledge)
    clear = {(frozenset((a, c)), b) for a, b, c in sure}
    orient(pag, apart, ask, lambda a, b, c: (frozenset((a, c)), b) in clear)
    return replace(graph, pag=pag.links(apart))


def _known(pag: Pag, skeleton: Skeleton, knowledge: Knowledge) -> None:
    """Set the marks that follow from the spec."""
    for a, b in sorted(knowledge.required):
        pag.put("tail", at=a, other=b)
        pag.put("arrow", at=b, other=a)
    place = {name: i for i, name in enumerate(pag.nodes)}
    reach = _reached(pag.nodes, skeleton, knowledge)
    for a in pag.nodes:
        for b in sorted(pag.around[a]):
            if not reach[place[a]] >> place[b] & 1:
                pag.put("arrow", at=a, other=b)


def _reached(nodes: Sequence[str], skeleton: Skeleton, knowledge: Knowledge) -> list[int]:
    """The places of the columns that each column may be a cause of, as bits [Warshall 1962]."""
    inner = {*knowledge.inner, *((b, a) for a, b in knowledge.inner)}
    sure = knowledge.required | inner
    reach = [0] * len(nodes)
    for (i, a), (j, b) in combinations(enumerate(nodes), 2):
        tested = (a, b) in skeleton.evidence
        apart = tested and (a, b) not in skeleton.linked and skeleton.absent((a, b))
        for cause, effect, k, m in ((a, b, i, j), (b, a, j, i)):
            allowed = knowledge.allows(cause, effect) and (a, b) not in knowledge.confounded
            if (cause, effect) in sure or (allowed and not apart):
                reach[k] |= 1 << m
    for k in range(len(nodes)):
        for i in range(len(nodes)):
            if reach[i] >> k & 1:
                reach[i] |= reach[k]
    return reach
