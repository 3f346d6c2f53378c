"""Checks of the graph section: no contradictions between arrows, and no cycles."""

from __future__ import annotations

import graphlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from synthdp.spec.checks.columns import plain_name
from synthdp.spec.load.wording import SpecMistake, claims, stated
from synthdp.spec.model import MOST, Edge, ReleaseSpec

Arrow = tuple[str, str]

RANKED = ("priv_pc", "svt_pc", "em_pc")
UNUSED = {
    "none": ("edges", "undirected", "forbidden", "tiers", "groups", "latent"),
    "predict": ("edges", "undirected", "forbidden", "groups", "latent"),
    "learn": ("undirected",),
}  # fields without effect, by mode
USES = {
    "algorithm": ("learn", "validate"),
    "orient_share": ("learn",),
    "level": ("learn", "validate"),
    "max_parents": ("learn",),
    "on_refuted": ("validate",),
}  # modes that use an option; others take its default


def crowds(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """No list of arrows is so long that the other checks could not go through it."""
    for section, edges in (("edges", spec.graph.edges), ("forbidden", spec.graph.forbidden)):
        total = sum(len(edge.causes) * len(edge.effects) for edge in edges)
        if total > MOST.arrows:
            message = f"{total:,} arrows; there may be at most {MOST.arrows:,}"
            hint = "write tiers instead of listing every pair"
            yield SpecMistake(("graph", section), message, hint)


def groups(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A column is in one group, and no group is named like a column."""
    seen: dict[str, str] = {}
    for group, members in spec.graph.groups.items():
        if group in spec.columns:
            message = f"group {group!r} is named like a column"
            hint = "give the group a name of its own"
            yield SpecMistake(("graph", "groups", group), message, hint)
        yield from plain_name(("graph", "groups", group), group, "rename the group")
        for i, name in enumerate(members):
            where = ("graph", "groups", group, i)
            if name in seen:
                message = f"column {name!r} is already in group {seen[name]!r}"
                yield SpecMistake(where, message, "a column is in one group at most")
            seen.setdefault(name, group)


def tiers(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A name is in one tier."""
    seen: dict[str, int] = {}
    for t, tier in enumerate(spec.graph.tiers):
        for i, name in enumerate(tier):
            if name in seen:
                message = f"{name!r} is already in tier {seen[name] + 1}"
                hint = "a name is in one tier at most"
                yield SpecMistake(("graph", "tiers", t, i), message, hint)
            seen.setdefault(name, t)


def arrows(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """No arrow leads to itself, is there twice, is forbidden or goes back; no cycles."""
    edges, first = list(enumerate(spec.graph.edges)), dict[Arrow, int]()
    for e, edge in edges:
        for arrow in _product(edge):
            first.setdefault(arrow, e)
    yield from claims(
        *((name in edge.effects, ("graph", "edges", e), f"arrow from {name!r} to itself",
           "take the name off one side") for e, edge in edges for name in edge.causes),
    )  # fmt: skip
    yield from _cycles(spec, first)
    tier = {n: t for t, names in reversed(list(enumerate(spec.graph.tiers))) for n in names}
    for e, edge in edges:
        found = list(_product(edge))
        back = [(a, b) for a, b in found if tier.get(a, -1) > tier.get(b, len(tier))]
        yield from claims(
            *((True, ("graph", "edges", e), f"arrow {a} -> {b} is written twice", "delete one")
              for a, b in found if first[a, b] != e),
            *((True, ("graph", "edges", e),
               f"arrow {a} -> {b} goes back from tier {tier[a] + 1} to tier {tier[b] + 1}",
               "turn the arrow round, or change the tiers") for a, b in back),
        )  # fmt: skip
    joined = set(map(frozenset, first))
    for i, pair in enumerate(spec.graph.undirected):
        where, names = ("graph", "undirected", i), frozenset(pair)
        if len(names) == 1:
            yield SpecMistake(where, f"link from {pair[0]!r} to itself", "name two columns")
        elif names in joined:
            hint = "delete the link, or the arrow or link before it"
            yield SpecMistake(where, f"{pair[0]} and {pair[1]} are joined already", hint)
        joined.add(names)
    for f, edge in enumerate(spec.graph.forbidden):
        for a, b in filter(first.__contains__, _product(edge)):
            message, hint = f"arrow {a} -> {b} is also given under edges", "delete it in one of"
            yield SpecMistake(("graph", "forbidden", f), message, f"{hint} the two")


def _cycles(spec: ReleaseSpec, written: Mapping[Arrow, int]) -> Iterator[SpecMistake]:
    """Cycles of arrows, `written` at which entry; they share no name: each is corrected alone."""
    order = {name: i for i, name in enumerate(spec.columns)}
    arrows = [a for a in written if a[0] != a[1]]
    for _ in range(20):
        causes: dict[str, list[str]] = {}
        for cause, effect in arrows:
            causes.setdefault(effect, []).append(cause)
        try:
            graphlib.TopologicalSorter(causes).prepare()
            return
        except graphlib.CycleError as error:  # each is a cause of the next, the last of the first
            cycle: list[str] = list(error.args[1][:-1])
        start = min(range(len(cycle)), key=lambda i: (order.get(cycle[i], len(order)), cycle[i]))
        ring = [*cycle[start:], *cycle[:start], cycle[start]]
        last = max(written[a] for a in itertools.pairwise(ring))
        message = f"the graph has a cycle: {' -> '.join(ring)}"
        hint = "turn round or delete one of these arrows; if the two drive each other, put them in"
        yield SpecMistake(("graph", "edges", last), message, f"{hint} one group")
        arrows = [(a, b) for a, b in arrows if a not in cycle and b not in cycle]


def needs_edges(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Modes given and validate are about given arrows."""
    graph = spec.graph
    if graph.mode in ("given", "validate") and not (graph.edges or graph.undirected):
        hint = 'give arrows such as "age -> income", or use mode predict, learn or none'
        message = f"missing or empty; mode {graph.mode} needs at least one arrow"
        yield SpecMistake(("graph", "edges"), message, hint)


def no_effect(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Modes none and predict have no causal graph, so nothing may be said about one.

    Mode predict has an order: tiers may be given. Mode learn finds directions. Only a search that
    tells its separating sets can say what unseen causes leave open. Options of tests and searches
    are for modes that test or search.
    """
    graph, mode, algorithm = spec.graph, spec.graph.mode, spec.graph.algorithm
    none, usual = f"has no effect: graph mode is {mode}", type(graph).model_fields
    for name in UNUSED.get(mode, ()):
        use = "given or validate" if name == "undirected" else "given, validate or learn"
        row = (getattr(graph, name), ("graph", name), none, f"use mode {use}, or delete it")
        yield from claims(row)
    of = f"algorithm is {algorithm}" if mode == "learn" else f"mode is {mode}"
    yield from claims(
        *((getattr(graph, name) != usual[name].default and mode not in modes, ("graph", name), none,
           f"use mode {' or '.join(modes)}, or delete it") for name, modes in USES.items()),
        (mode == "learn" and graph.orient_share and algorithm != "rcit_pc", "graph.orient_share",
         f"has no effect: graph algorithm is {algorithm}", "use rcit_pc, or delete it"),
        (mode == "validate" and algorithm in RANKED, "graph.algorithm",
         f"{algorithm} chooses what it asks as it searches, and tests no given graph",
         "use measured_pc, which counts tables, or rcit_pc for numbers; or use mode learn"),
        (graph.unseen_causes and (mode, algorithm) != ("learn", "measured_pc"),
         "graph.unseen_causes", f"has no effect: graph {of}",
         "use mode learn with algorithm measured_pc, or delete it; columns that are known to share"
         " an unseen cause go in graph.latent"),
    )  # fmt: skip


def parents(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Mode learn must be able to keep the arrows that it is given."""
    graph = spec.graph
    given = dict.fromkeys(arrow for edge in graph.edges for arrow in _product(edge))
    for name, causes in Counter(effect for _, effect in given).items():
        if graph.mode == "learn" and causes > graph.max_parents:
            message = (
                f"{stated(spec, 'graph', 'max_parents')}, but the given arrows already lead"
                f" {causes} causes to {name!r}"
            )
            hint = f"set it to {causes} or more"
            if causes > MOST.parents:
                hint = (
                    f"it can be {MOST.parents} at most: declare fewer causes of {name!r}, or use"
                    " graph.mode given or predict, which have no limit"
                )
            yield SpecMistake(("graph", "max_parents"), message, hint)


def targets(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """A target of the model needs a graph, and depends on its causes there and on nothing else.

    An arrow leads to it, unless arrows are still to be learned. Mode predict has no stage for
    targets: noisy tables make all of its model.
    """
    graph = spec.graph
    inner = {name for members in graph.groups.values() for name in members[1:]}
    effects = {name for edge in graph.edges for name in edge.effects}
    for i, name in enumerate(spec.synthesizer.targets):
        where, node = ("synthesizer", "targets", i), graph.group_of.get(name, name)
        # A group's members lead to those after them.
        caused = node in effects or name in inner or name not in spec.columns
        yield from claims(
            (graph.mode == "none", where,
             "has no effect: graph mode is none, and a target is learned from its causes",
             "delete it, or draw a graph"),
            (graph.mode == "predict", where,
             "has no effect: graph mode is predict, which has no stage for targets",
             "name it in evaluation.targets alone: these are predicted last, and their pairs count"
             " double"),
            (any(node in names for names in graph.latent), where,
             f"{node!r} shares an unseen cause with others (graph.latent); a target depends on its"
             " parents alone", "leave it out of the targets, or out of graph.latent"),
            (graph.mode in ("given", "validate") and not caused, where,
             f"no arrow leads to {name!r}, and a target is learned from its causes",
             "draw one, or leave the target out"),
        )  # fmt: skip


def ordered_levels(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Algorithms that rank values need columns with an order, or with two values."""
    if spec.graph.mode != "learn" or spec.graph.algorithm not in RANKED:
        return
    for name, column in spec.modelled.items():
        if not column.ordered and len(column.labels) > 2:
            message = (
                f"{spec.graph.algorithm} ranks values, and no order is declared for the"
                f" {len(column.labels)} categories of {name!r}"
            )
            hint = "declare it ordinal, with categories from lowest to highest, or use measured_pc"
            yield SpecMistake(("graph", "algorithm"), message, hint)


def _product(edge: Edge) -> Iterator[Arrow]:
    return ((cause, effect) for effect in edge.effects for cause in edge.causes)
