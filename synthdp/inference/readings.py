"""The DAGs that a graph may stand for, where some links have no direction that anything shows.

A learned graph is published as one DAG. Its data show the equivalence class alone, and the spec may
direct more. Undecided pairs, and arrows that only predict, may point either way. That they may be
absent needs no reading of its own where both directions are tried: a set that is valid with an
arrow is valid without it [derived in docs/inference.md].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import networkx as nx

from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.meek import Pdag, colliders, cpdag_of, meek, orient_known
from synthdp.inference.adjustment import UNKNOWN_HINT, Reading

MAX_OPEN = 8
"""Most links without a direction that an effect may rest on: 256 readings."""


class TooOpen(OutputError):
    """Too many links have no direction for the graph to say what confounds."""


def readings(
    graph: CausalGraph,
    knowledge: Knowledge,
    treatment: str,
    outcome: str,
    adjust: Iterable[str] = (),
) -> list[Reading]:
    """The DAGs that the graph may stand for, among the columns that matter: possible causes.

    `adjust` are the columns that will be adjusted for, if that is known.

    Raises:
        TooOpen: too many links have no direction.
        OutputError: none of their directions is allowed.
    """
    pdag, unknown = _known(graph, knowledge)
    mixed = nx.DiGraph([*pdag.directed(), *_both(pdag.undirected()), *_both(unknown)])
    mixed.add_nodes_from(graph.nodes)
    near = {n for m in (treatment, outcome, *adjust) for n in (m, *nx.ancestors(mixed, m))}
    turns = [pair for pair in pdag.undirected() if near.issuperset(pair)]
    loose = [pair for pair in unknown if near.issuperset(pair)]
    if len(turns) + len(loose) > MAX_OPEN:
        named = ", ".join(f"{a} and {b}" for a, b in [*turns, *loose][:MAX_OPEN])
        raise TooOpen(
            f"the effect of {treatment} on {outcome} rests on {len(turns) + len(loose)} links"
            f" whose direction nothing shows, e.g. {named}",
            hint=UNKNOWN_HINT,
        )
    groups = [names for names in graph.groups.values() if outcome in names]
    apart = frozenset(n for names in groups for n in names) - {outcome}
    base = [pair for pair in pdag.directed() if near.issuperset(pair)]
    unseen = [
        (("unseen", i), name)
        for i, names in enumerate((*graph.latent, *graph.groups.values()))
        for name in names
        if name in near
    ]
    found = []
    for directed, chosen in _orientations(pdag, base, turns, loose, knowledge):
        dag = nx.DiGraph([*directed, *unseen])
        dag.add_nodes_from(near)
        found.append(Reading(dag, treatment, outcome, apart, chosen))
    if not found:
        raise OutputError(
            "no directions of the graph's links agree with its spec", hint="see `synthdp verify`"
        )
    return found


def _both(pairs: Iterable[Pair]) -> Iterator[Pair]:
    for a, b in pairs:
        yield from ((a, b), (b, a))


def _known(graph: CausalGraph, knowledge: Knowledge) -> tuple[Pdag, list[Pair]]:
    """The links with the directions that something shows, and the pairs without an answer."""
    unknown = [e.pair for e in graph.edges if not e.structural or e.provenance == "predictive"]
    silent = {frozenset(pair) for pair in unknown}
    arrows = [pair for pair in graph.dag.edges if frozenset(pair) not in silent]
    shielded = (*graph.confounded, *unknown, *knowledge.untested)
    pdag = Pdag(graph.nodes, directed=arrows, shielded=shielded)
    stated = [e.pair for e in graph.edges if e.directed and e.provenance != "learned"]
    if not set(arrows) <= set(stated):
        pdag = cpdag_of(pdag)
        for pair in stated:
            pdag.orient(*pair)
        orient_known(pdag, knowledge)
        meek(pdag, knowledge)
    return pdag, unknown


def _orientations(
    pdag: Pdag,
    base: Sequence[Pair],
    turns: Sequence[Pair],
    loose: Sequence[Pair],
    knowledge: Knowledge,
) -> Iterator[tuple[list[Pair], tuple[Pair, ...]]]:
    """All arrows, and those that were chosen: acyclic, and without a new v-structure of links."""
    shown = set(colliders(pdag))
    allowed = [[p for p in (pair, pair[::-1]) if knowledge.allows(*p)] for pair in (*turns, *loose)]
    options: list[list[Pair | None]] = [[*pairs] for pairs in allowed]
    for pairs in options[len(turns) :]:
        pairs += [None] * (len(pairs) == 1)
    for choice in product(*options):
        chosen = tuple(pair for pair in choice if pair is not None)
        directed = [*base, *chosen]
        if not nx.is_directed_acyclic_graph(nx.DiGraph(directed)):
            continue
        links = [*base, *chosen[: len(turns)]]
        if set(colliders(Pdag(pdag.nodes, directed=links, shielded=pdag.shielded))) <= shown:
            yield directed, chosen
