"""Which columns to adjust for, so that a contrast of groups is an effect.

A set Z is valid for the effect of T on Y in a DAG with unseen causes if and only if

1. no column of Z lies on a causal path from T to Y, or descends from one that does, and
2. Z d-separates T and Y once the first arrows of all causal paths are taken out

[Perkovic, Textor, Kalisch, Maathuis, JMLR 18(220), 2018, definition 4 and theorem 5; for unseen
causes Shpitser, VanderWeele, Robins, UAI 2010]. An unseen common cause is a node of its own, that
no set may have.

Where the graph stands for several DAGs (each is a `Reading`), a set is used if it is valid in each.
Where no set is, each of them has its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise, product

import networkx as nx

from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph
from synthdp.graph.knowledge import Knowledge, Pair, Pdag, colliders, cpdag_of, meek, orient_known
from synthdp.inference.least_squares import SETTINGS

Names = tuple[str, ...]
UNKNOWN_HINT = (
    "say what is known of these pairs in graph.edges, graph.tiers or graph.forbidden, and release"
    " again; or give --adjust, if you know what confounds"
)


@dataclass(frozen=True)
class Reading:
    """One DAG that the graph may stand for, as far as causes of some columns go.

    Unseen causes are nodes that are no texts. `turned` are the links whose direction was chosen.
    """

    dag: nx.DiGraph
    treatment: str
    outcome: str
    apart: frozenset[str] = frozenset()
    turned: tuple[Pair, ...] = ()

    @cached_property
    def causal(self) -> frozenset[str]:
        """The outcome and what lies between it and the treatment; empty without a causal path."""
        after = nx.descendants(self.dag, self.treatment)
        before = nx.ancestors(self.dag, self.outcome) | {self.outcome}
        return frozenset(after & before)

    @cached_property
    def forbidden(self) -> frozenset[str]:
        """What no adjustment set may have: `causal`, its descendants, and columns kept `apart`."""
        after = {n for name in self.causal for n in nx.descendants(self.dag, name)}
        return self.causal | after | {self.treatment, self.outcome} | self.apart

    @cached_property
    def backdoor(self) -> nx.DiGraph:
        """The DAG without the first arrows of causal paths."""
        graph = self.dag.copy()
        graph.remove_edges_from([(self.treatment, name) for name in self.causal])
        return graph

    def valid(self, columns: Iterable[str]) -> bool:
        """Whether adjusting for `columns` gives the effect."""
        z = set(columns)
        return not z & self.forbidden and bool(
            nx.is_d_separator(self.backdoor, {self.treatment}, {self.outcome}, z)
        )

    def separator(self, among: Iterable[str]) -> frozenset[str] | None:
        """A valid set of columns `among` these, none of which can be left out; None without one."""
        seen = {n for n in among if n in self.dag} - self.forbidden
        found = nx.find_minimal_d_separator(
            self.backdoor, self.treatment, self.outcome, restricted=seen
        )
        return None if found is None else frozenset(found)

    def fault(self, columns: Iterable[str]) -> str:
        """Why these columns are not valid, with the path that shows it."""
        z = set(columns)
        for name in sorted(z & self.forbidden):
            if name in self.apart:
                return f"{name} is of one node with {self.outcome}"
            way = next(c for c in self.causal if c == name or nx.has_path(self.dag, c, name))
            path = nx.shortest_path(self.dag, self.treatment, way)
            path += nx.shortest_path(self.dag, way, name)[1:]
            drawn = self.drawn(path)
            return f"{name} follows from {self.treatment}, and is part of its effect: {drawn}"
        path = self.open_path(z)
        return f"this path stays open: {self.drawn(path)}" if path else "some path stays open"

    def open_path(self, columns: Collection[str]) -> list[str]:
        """A shortest path, not a causal one, that `columns` leave open."""
        z = set(columns)
        ends = {self.treatment, self.outcome, *z}
        near = ends.union(*(nx.ancestors(self.backdoor, m) for m in ends))
        graph = self.backdoor.subgraph(near)
        opened = {n for m in z for n in nx.ancestors(graph, m)} | z
        try:
            paths = nx.shortest_simple_paths(graph.to_undirected(), self.treatment, self.outcome)
            for path in islice(paths, 10_000):
                triples = zip(path, path[1:], path[2:], strict=False)
                if all(
                    b in opened if graph.has_edge(a, b) and graph.has_edge(c, b) else b not in z
                    for a, b, c in triples
                ):
                    return list(path)
        except nx.NetworkXNoPath:
            pass
        return []

    def drawn(self, path: Sequence[str]) -> str:
        """A path in letters, e.g. a <- b -> c; an unseen cause is <->."""
        text = path[0]
        for a, b in pairwise(path):
            if isinstance(b, str):
                arrow = "->" if self.dag.has_edge(a, b) else "<-"
                text += f" {arrow} {b}" if isinstance(a, str) else f" <-> {b}"
        return text

    @property
    def supposed(self) -> str:
        """The directions that were chosen, in words; empty where there were none to choose."""
        return f" if {' and '.join(f'{a} -> {b}' for a, b in self.turned)}" if self.turned else ""


@dataclass(frozen=True)
class Adjustment:
    """The columns to adjust for: one set that every reading allows, or one for each.

    `none` says that in some reading the treatment does not act on the outcome, where no set shows
    it. `readings` is their number, `open` are the links that they differ in.
    """

    sets: tuple[Names, ...]
    none: bool = False
    readings: int = 1
    open: tuple[Pair, ...] = ()


def choose(
    found: Sequence[Reading], tables: Iterable[Collection[str]], sizes: Mapping[str, int]
) -> Adjustment:
    """The best valid set: one that a table has together with both columns, with few strata.

    `sizes` are the levels of the columns that may be adjusted for.

    Raises:
        OutputError: the effect is not identified by adjustment, or rests on too many sets.
    """
    first = found[0]
    ends = {first.treatment, first.outcome}
    covers = [set(t) & sizes.keys() for t in tables if ends <= set(t)]

    def cost(z: frozenset[str]) -> tuple[bool, int, list[str]]:
        strata = math.prod(sizes[name] for name in z)
        return not any(z <= cover for cover in covers), strata, sorted(z)

    offers = [
        [z for among in (*covers, sizes) if (z := reading.separator(among)) is not None]
        for reading in found
    ]
    every = {z for offer in offers for z in offer}
    every |= {frozenset().union(*every)} if len(found) > 1 else set()
    turned = (min(pair, pair[::-1]) for reading in found for pair in reading.turned)
    open_pairs = tuple(dict.fromkeys(turned))

    def ordered(z: frozenset[str]) -> Names:
        return tuple(name for name in sizes if name in z)

    common = [z for z in every if all(reading.valid(z) for reading in found)]
    if common:
        best = ordered(min(common, key=cost))
        return Adjustment((best,), readings=len(found), open=open_pairs)
    chosen, none = dict[Names, None](), False
    for reading, offer in zip(found, offers, strict=True):
        if offer:
            chosen[ordered(min(offer, key=cost))] = None
        elif reading.causal:
            _refuse(reading, sizes)
        else:
            none = True
    if not chosen:
        refuse_none(found)
    if len(chosen) > SETTINGS.max_sets:
        raise OutputError(
            f"links without a direction allow {len(chosen)} adjustment sets for the effect of"
            f" {first.treatment} on {first.outcome}",
            hint=UNKNOWN_HINT,
        )
    return Adjustment(tuple(chosen), none, len(found), open_pairs)


def refuse_none(found: Sequence[Reading]) -> None:
    """Refuse an effect where arrows lead from the treatment to the outcome in no reading.

    Raises:
        OutputError: there are none.
    """
    t, y = found[0].treatment, found[0].outcome
    if not any(reading.causal for reading in found):
        raise OutputError(
            f"{t} has no effect on {y} in this graph: no arrows lead from {t} to {y}",
            hint=f"`synthdp answer` says how {y} differs by {t}",
        )


def _refuse(reading: Reading, sizes: Iterable[str]) -> None:
    t, y = reading.treatment, reading.outcome
    causes = nx.ancestors(reading.dag, t) | nx.ancestors(reading.dag, y)
    path = reading.open_path((causes & set(sizes)) - reading.forbidden)
    raise OutputError(
        f"the effect of {t} on {y} is not identified by adjustment{reading.supposed}: no columns"
        f" of the table block {reading.drawn(path) if path else 'all other paths'}",
        hint=(
            "<-> is an unseen common cause that graph.latent states; a table that has it, or a"
            " trial, would identify the effect"
        ),
    )


# --- readings ---
#
# The data of a learned graph show its equivalence class alone, and the spec may direct more.
# Undecided pairs, and arrows that only predict, may point either way. That they
# may be absent needs no reading of its own where both directions are tried: a set Z that is valid
# in G', which is G and one more arrow, is valid in G. Proof. G has no more causal paths and
# descendants, so Z holds nothing forbidden. Suppose that a path from T to Y, not causal, is open in
# G. If it begins with an arrow T -> w that G' takes out, w is on a causal path of G'. The path has
# a collider, the first of which descends from w, and no descendant of w is in Z: it is blocked.
# Otherwise the path is there in G', and so is what opens its colliders: a way down through an arrow
# that G' takes out would make a column of Z forbidden. So it is open in G', against the assumption.


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
    either = [*pdag.undirected(), *unknown]
    mixed = nx.DiGraph([*pdag.directed(), *either, *(pair[::-1] for pair in either)])
    mixed.add_nodes_from(graph.nodes)
    near = {n for m in (treatment, outcome, *adjust) for n in (m, *nx.ancestors(mixed, m))}
    turns = [pair for pair in pdag.undirected() if near.issuperset(pair)]
    loose = [pair for pair in unknown if near.issuperset(pair)]
    most = SETTINGS.max_open
    if len(turns) + len(loose) > most:
        named = ", ".join(f"{a} and {b}" for a, b in [*turns, *loose][:most])
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


def _known(graph: CausalGraph, knowledge: Knowledge) -> tuple[Pdag, list[Pair]]:
    """The links with the directions that something shows, and the pairs without an answer."""
    unknown = [e.pair for e in graph.edges if not e.structural or e.provenance == "predictive"]
    silent = set(map(frozenset, unknown))
    arrows = [pair for pair in graph.directed if frozenset(pair) not in silent]
    shielded = (*graph.confounded, *unknown, *knowledge.untested)
    pdag = Pdag(graph.nodes, directed=arrows, undirected=graph.undirected, shielded=shielded)
    stated = [e.pair for e in graph.edges if e.directed and e.provenance != "learned"]
    if graph.undirected or not set(arrows) <= set(stated):
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
