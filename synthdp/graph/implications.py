"""What a graph claims and tables can test: its arrows, and independences of columns without a link.

A DAG implies that columns without a link are independent given some set of others. `implications`
lists one such claim per absent pair, and one dependence claim per arrow; `required_tables` lists
the tables that test them, and `untested` what is left out, and why. All use the graph and the
public domain alone, so they are fixed before any row is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph

ClaimKind = Literal["arrow", "independence"]


@dataclass(frozen=True)
class ValidationSettings:
    """Tuning of a validation.

    `max_cells`: of a table; `max_tables`: every pair of 100 columns and what separates them;
    `negligible`: effect (Cohen's w) below which a dependence counts as none, since a true arrow may
    be weak; `claims_per_retest`: one independence in so many is measured again, and `min_retests`
    at least.
    """

    max_cells: int = 4096
    max_tables: int = 10_000
    negligible: float = 0.01
    claims_per_retest: int = 24
    min_retests: int = 4


SETTINGS = ValidationSettings()


@dataclass(frozen=True)
class Implication:
    """One testable claim of a graph: x and y are (in)dependent given other columns.

    >>> str(Implication("rain", "wet", ("season",), "independence"))
    'rain independent of wet given season'
    """

    x: str
    y: str
    given: tuple[str, ...]
    kind: ClaimKind

    @property
    def tables(self) -> tuple[frozenset[str], ...]:
        """Columns of each table that the test needs.

        An arrow needs the whole family. An independence needs both ends, and each end with the
        given columns.
        """
        if self.kind == "arrow":
            return (frozenset((self.x, self.y, *self.given)),)
        ends = frozenset((self.x, self.y))
        if not self.given:
            return (ends,)
        return ends, frozenset((self.x, *self.given)), frozenset((self.y, *self.given))

    def __str__(self) -> str:
        joint = " -> " if self.kind == "arrow" else " independent of "
        claim = f"{self.x}{joint}{self.y}"
        return claim + (f" given {', '.join(self.given)}" if self.given else "")


@dataclass(frozen=True)
class Untested:
    """A claim that no test is made of, and why."""

    claim: Implication
    reason: str


def implications(
    graph: CausalGraph, domain: Domain, *, max_cells: float = SETTINGS.max_cells
) -> tuple[Implication, ...]:
    """Every claim whose tables have at most `max_cells` each.

    Arrows come first, then absent pairs, those with a common neighbour before the others. An absent
    pair is tested given a set that needs few and small tables. Pairs inside a group or with a
    latent common cause claim nothing.
    """
    silent = _silent_pairs(graph)
    shown = [arrow for arrow in _arrows(graph) if frozenset((arrow.x, arrow.y)) not in silent]
    claims = (*shown, *_independences(graph, domain))
    return tuple(claim for claim in claims if _fits(claim, domain, max_cells))


def untested(
    graph: CausalGraph,
    domain: Domain,
    tested: Collection[Implication],
    *,
    max_cells: float = SETTINGS.max_cells,
) -> tuple[Untested, ...]:
    """The arrows and independences of `graph` that are not among `tested`, arrows first.

    `max_cells` of a table as for `implications`.
    """
    inside = {frozenset(p) for names in graph.groups.values() for p in combinations(names, 2)}
    silent, known = _silent_pairs(graph), set(tested)
    found = []
    for claim in (*_arrows(graph), *_independences(graph, domain)):
        pair = frozenset((claim.x, claim.y))
        reason = f"more than {SETTINGS.max_tables:,} tables in all"
        if pair in silent:
            reason = "within a group" if pair in inside else "an unseen cause of both"
        elif not _fits(claim, domain, max_cells):
            reason = f"a table of more than {max_cells:,} cells"
        if claim not in known:
            found.append(Untested(claim, reason))
    return tuple(found)


def claimed(
    graph: CausalGraph, claim: Implication, domain: Domain, *, max_cells: float = SETTINGS.max_cells
) -> bool:
    """Whether the graph makes this claim, given any set that separates the two columns."""
    names = (claim.x, claim.y, *claim.given)
    known = len(set(names)) == len(names) and set(names) <= set(graph.nodes)
    silent = frozenset((claim.x, claim.y)) in _silent_pairs(graph)
    if not known or silent or not _fits(claim, domain, max_cells):
        return False
    if claim.kind == "independence":
        return graph.d_separated(claim.x, claim.y, claim.given)
    causes = set(graph.dag.predecessors(claim.y))
    return claim.x in causes and {claim.x, *claim.given} == causes


def required_tables(
    claims: Iterable[Implication], domain: Domain, *, max_tables: int = SETTINGS.max_tables
) -> tuple[tuple[str, ...], ...]:
    """Tables that test the claims, at most `max_tables`; columns in the domain's order.

    A claim that needs more is left out. The tables are public: they are computed from the graph and
    the domain before any row is read.
    """
    kept: dict[frozenset[str], None] = {}
    for claim in claims:
        more = kept | dict.fromkeys(claim.tables)
        kept = more if len(more) <= max_tables else kept
    return tuple(tuple(n for n in domain.names if n in columns) for columns in kept)


def _fits(claim: Implication, domain: Domain, max_cells: float) -> bool:
    return all(domain.cells(columns) <= max_cells for columns in claim.tables)


def _arrows(graph: CausalGraph) -> list[Implication]:
    causes = {effect: graph.parents(effect) for _, effect in graph.directed}
    return [
        Implication(a, b, tuple(p for p in causes[b] if p != a), "arrow") for a, b in graph.directed
    ]


def _independences(graph: CausalGraph, domain: Domain) -> list[Implication]:
    silent = _silent_pairs(graph) | set(map(frozenset, graph.dag.edges))
    skeleton = graph.dag.to_undirected()
    near = {n: set(skeleton[n]) for n in graph.nodes}
    neighbourly: list[Implication] = []
    others: list[Implication] = []
    for a, b in combinations(graph.order(), 2):
        if frozenset((a, b)) in silent:
            continue
        given = _separator(graph, domain, a, b, near[a] | near[b])
        if given is not None:
            claims = neighbourly if near[a] & near[b] else others
            claims.append(Implication(a, b, given, "independence"))
    return neighbourly + others


def _separator(
    graph: CausalGraph, domain: Domain, a: str, b: str, near: set[str]
) -> tuple[str, ...] | None:
    """A set that separates `a` from a later `b`: none, one of `near`, or few cells."""
    single = sorted(((n,) for n in near - {a, b}), key=lambda given: (domain.cells(given), given))
    for given in ((), *single):
        if graph.d_separated(a, b, given):
            return given
    sets = [s for s in (graph.parents(b), graph.separator(a, b)) if s is not None]
    valid = [s for s in sets if a not in s and graph.d_separated(a, b, s)]
    return min(valid, key=lambda given: domain.cells(given), default=None)


def _silent_pairs(graph: CausalGraph) -> set[frozenset[str]]:
    """Pairs inside a group or with a latent common cause: the graph claims nothing of them."""
    sets = (*graph.groups.values(), *graph.latent)
    return {frozenset(pair) for names in sets for pair in combinations(names, 2)}
