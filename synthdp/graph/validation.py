"""Validation of a given graph: is each implied independence, and each arrow, borne out by noisy
tables?

A DAG implies that columns without a link are independent given some set of others. `implications`
lists one such claim per absent pair, and one dependence claim per arrow; `required_tables` lists
the tables that test them. Both use the graph and the public domain alone, so they are fixed before
any row is read. `validate` then only reads released tables, which makes its answers, and a failed
gate, public.

    claim         supported                              refuted
    independence  effect shown to be below `negligible`  dependence found
    arrow         dependence found                       effect shown to be below `negligible`

and undecided otherwise. All findings of dependence hold together at the family-wise level, and so
do all findings that an effect is negligible (Bonferroni over all claims [derived here: the list of
claims is public, each is tested at its part of the level, and the chance of any error is at most
the sum of all]).

Twice: every claim from one round of tables, then the independences that look worst from tables of
their own, which are few and so have little noise (`doubtful`, `rejudge`). An effect must stand
out in the first round only enough to be picked.

Independences are tested for average partial association: dependence that turns from stratum to
stratum, so that it cancels, does not refute one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, get_args

from synthdp.data.domain import Domain
from synthdp.errors import GateError
from synthdp.graph.causal import CausalGraph, Provenance
from synthdp.graph.ci_tests.answer import Answer, Query
from synthdp.graph.knowledge import Pair
from synthdp.graph.tables import NoisyTables, cells
from synthdp.privacy.mechanisms.marginals import NoisyTable

Status = Literal["supported", "refuted", "undecided"]
STATUSES: tuple[Status, ...] = get_args(Status)

VALIDATION_SHARES: Mapping[str, float] = {"validate": 0.7, "confirm": 0.3}
"""Parts of the graph budget: for all claims, and again for those that look worst."""
DOUBTFUL, FEWEST = 24, 4
MAX_TABLES = 10_000
"""Most tables of a validation: every pair of 100 columns and what separates them."""
NEGLIGIBLE = 0.01
"""Effect (Cohen's w) below which a dependence counts as none: an arrow may be weak, and rightly
there.
"""


@dataclass(frozen=True)
class Implication:
    """One testable claim of a graph: x and y are (in)dependent given other columns."""

    x: str
    y: str
    given: tuple[str, ...]
    kind: Literal["arrow", "independence"]

    @property
    def tables(self) -> tuple[frozenset[str], ...]:
        """What its test needs: an arrow the whole family, an independence each pair of ends and
        each end with what is given.
        """
        if self.kind == "arrow":
            return (frozenset((self.x, self.y, *self.given)),)
        ends = (frozenset((self.x, self.y)),)
        return (
            (*ends, frozenset((self.x, *self.given)), frozenset((self.y, *self.given)))
            if self.given
            else ends
        )

    def __str__(self) -> str:
        claim = (
            f"{self.x} -> {self.y}" if self.kind == "arrow" else f"{self.x} independent of {self.y}"
        )
        return claim + (f" given {', '.join(self.given)}" if self.given else "")


@dataclass(frozen=True)
class ClaimEvidence:
    """What the tables say of a claim."""

    claim: Implication
    status: Status
    answer: Answer

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        claim = {
            "x": self.claim.x,
            "y": self.claim.y,
            "given": list(self.claim.given),
            "kind": self.claim.kind,
        }
        return (
            claim
            | {"status": self.status}
            | {k: v for k, v in self.answer.to_json().items() if k != "verdict"}
        )


class GraphRefuted(GateError):
    """The tables contradict the given graph, and the spec says that this withholds the bundle.
    `report` says what they found.
    """

    def __init__(self, report: ValidationReport) -> None:
        self.report = report
        super().__init__(
            "the given graph is refuted by the noisy tables:"
            f" {'; '.join(str(f.claim) for f in report.refuted)}",
            hint=(
                "correct graph.edges, or say graph.on_refuted: flag to release with the refuted"
                " claims marked"
            ),
        )


@dataclass(frozen=True)
class ValidationReport:
    """Findings on every claim that was planned for, at family-wise `level`."""

    graph: CausalGraph
    level: float
    negligible: float
    findings: tuple[ClaimEvidence, ...]

    @property
    def refuted(self) -> tuple[ClaimEvidence, ...]:
        """Claims that the tables contradict, clearest first."""
        return tuple(
            sorted(
                (f for f in self.findings if f.status == "refuted"), key=lambda f: f.answer.p_value
            )
        )

    def arrow_status(self) -> dict[Pair, Status]:
        """Status of each arrow that was tested."""
        return {(f.claim.x, f.claim.y): f.status for f in self.findings if f.claim.kind == "arrow"}

    def apply(self, on_refuted: Literal["flag", "drop", "fail"]) -> CausalGraph:
        """The graph with what was found as provenance: refuted arrows flagged, or dropped.

        `fail` raises `GraphRefuted` if any claim is refuted. Arrows inside groups keep their
        provenance.
        """
        if on_refuted == "fail" and self.refuted:
            raise GraphRefuted(self)
        status: dict[Pair, Provenance] = dict(self.arrow_status().items())
        marked = self.graph.with_provenance(status)
        if on_refuted != "drop":
            return marked
        return replace(marked, edges=tuple(e for e in marked.edges if e.provenance != "refuted"))

    def counts(self) -> dict[str, dict[Status, int]]:
        """How many claims of each kind, arrow or independence, have each status."""
        return {
            kind: {
                s: sum((f.claim.kind, f.status) == (kind, s) for f in self.findings)
                for s in STATUSES
            }
            for kind in ("arrow", "independence")
        }

    def to_json(self) -> dict[str, Any]:
        """JSON object for the bundle and the report."""
        return {
            "level": self.level,
            "negligible_effect": self.negligible,
            "counts": self.counts(),
            "findings": [f.to_json() for f in self.findings],
        }


def implications(graph: CausalGraph, domain: Domain, *, max_cells: int) -> tuple[Implication, ...]:
    """Every claim whose tables have at most `max_cells` each: arrows first, then absent pairs,
    nearest pairs first.

    An absent pair is tested given a set that needs few and small tables. Pairs inside a group or
    with a latent common cause claim nothing.
    """
    claims = (*_arrows(graph), *_independences(graph, domain))
    return tuple(
        claim
        for claim in claims
        if all(cells(domain, columns) <= max_cells for columns in claim.tables)
    )


def claimed(graph: CausalGraph, claim: Implication, domain: Domain, *, max_cells: int) -> bool:
    """Whether the graph makes this claim, by any set that separates the two: one look, where
    `implications` looks for all of them.
    """
    names = (claim.x, claim.y, *claim.given)
    if (
        len(set(names)) != len(names)
        or not set(names) <= set(graph.nodes)
        or frozenset((claim.x, claim.y)) in _silent_pairs(graph)
    ):
        return False
    if any(cells(domain, columns) > max_cells for columns in claim.tables):
        return False
    if claim.kind == "arrow":
        return graph.dag.has_edge(claim.x, claim.y) and {claim.x, *claim.given} == set(
            graph.dag.predecessors(claim.y)
        )
    return graph.d_separated(claim.x, claim.y, claim.given)


def _arrows(graph: CausalGraph) -> Iterator[Implication]:
    silent = _silent_pairs(graph)
    for a, b in graph.directed:
        if frozenset((a, b)) not in silent:
            yield Implication(a, b, tuple(p for p in graph.parents(b) if p != a), "arrow")


def _independences(graph: CausalGraph, domain: Domain) -> list[Implication]:
    silent = _silent_pairs(graph) | {frozenset(e) for e in graph.dag.edges}
    skeleton = graph.dag.to_undirected()
    near = {n: set(skeleton[n]) for n in graph.nodes}
    found = [
        (not near[a] & near[b], Implication(a, b, given, "independence"))
        for a, b in combinations(graph.order(), 2)
        if frozenset((a, b)) not in silent
        and (given := _separator(graph, domain, a, b, near[a] | near[b])) is not None
    ]
    return [claim for _, claim in sorted(found, key=lambda f: f[0])]


def _separator(
    graph: CausalGraph, domain: Domain, a: str, b: str, near: set[str]
) -> tuple[str, ...] | None:
    """A separating set of two columns, `a` before `b`: none or one of their neighbours where that
    does, else one with few cells.
    """
    single = sorted(((n,) for n in near - {a, b}), key=lambda given: (cells(domain, given), given))
    small = next((s for s in ((), *single) if graph.d_separated(a, b, s)), None)
    if small is not None:
        return small
    sets = [s for s in (graph.parents(b), graph.separator(a, b)) if s is not None]
    valid = [s for s in sets if a not in s and graph.d_separated(a, b, s)]
    return min(valid, key=lambda given: cells(domain, given), default=None)


def _silent_pairs(graph: CausalGraph) -> set[frozenset[str]]:
    return {
        frozenset(pair)
        for names in (*graph.groups.values(), *graph.latent)
        for pair in combinations(names, 2)
    }


def required_tables(
    graph: CausalGraph, domain: Domain, *, max_cells: int, max_tables: int
) -> tuple[tuple[str, ...], ...]:
    """Tables that test the claims, at most `max_tables`; columns in the domain's order. A claim
    that needs more is left out.

    Fixed and public: computed from the graph and the domain before any row is read.
    """
    kept: dict[frozenset[str], None] = {}
    for claim in implications(graph, domain, max_cells=max_cells):
        more = kept | dict.fromkeys(claim.tables)
        kept = more if len(more) <= max_tables else kept
    return tuple(tuple(n for n in domain.names if n in columns) for columns in kept)


def doubtful(report: ValidationReport) -> tuple[Implication, ...]:
    """The independences that look worst, one in `DOUBTFUL` and at least `FEWEST`: what to measure
    again.
    """
    independences = [f for f in report.findings if f.claim.kind == "independence"]
    worst = sorted(independences, key=lambda f: f.answer.p_value)[
        : max(FEWEST, len(independences) // DOUBTFUL)
    ]
    return tuple(f.claim for f in worst)


def tables_of(claims: Iterable[Implication], domain: Domain) -> tuple[tuple[str, ...], ...]:
    """What the tests of `claims` need; columns in the domain's order."""
    kept = dict.fromkeys(columns for claim in claims for columns in claim.tables)
    return tuple(tuple(n for n in domain.names if n in columns) for columns in kept)


def rejudge(
    report: ValidationReport, claims: Collection[Implication], tables: Iterable[NoisyTable]
) -> ValidationReport:
    """`report` with `claims` judged by fresh `tables` alone, at the level of one claim among all.

    Family-wise, whatever picked them [derived here]: their noise is fresh and their rows are those
    of a true graph, so that each claim, were it picked, would be refuted with at most its part of
    the level; the chance that some claim both is picked and refuted is at most the sum of these
    over all claims. (What was not picked keeps its first answer; it can be refuted only where even
    more was found against all that were picked.)
    """
    each = report.level / max(len(report.findings), 1)
    answers = dict(
        _answers(NoisyTables(tables), list(claims), level=each, margin=report.negligible)
    )
    second = {
        claim: ClaimEvidence(claim, _status(claim, answer), answer)
        for claim, answer in answers.items()
    }
    return replace(report, findings=tuple(second.get(f.claim, f) for f in report.findings))


def validate(
    graph: CausalGraph,
    tables: Iterable[NoisyTable],
    *,
    domain: Domain,
    level: float,
    max_cells: int,
    negligible: float = NEGLIGIBLE,
) -> ValidationReport:
    """Judge every claim of `graph` that `tables` can speak on; `max_cells` as for
    `required_tables`.
    """
    held = NoisyTables(tables)
    measured = {frozenset(table.columns) for table in held.tables}
    claims = [
        c for c in implications(graph, domain, max_cells=max_cells) if measured.issuperset(c.tables)
    ]
    each = level / max(len(claims), 1)
    answers = dict(
        _answers(held, [c for c in claims if c.kind == "arrow"], level=each, margin=negligible)
    )
    answers |= dict(
        _answers(
            held, [c for c in claims if c.kind == "independence"], level=each, margin=negligible
        )
    )
    return ValidationReport(
        graph,
        level,
        negligible,
        tuple(ClaimEvidence(c, _status(c, answers[c]), answers[c]) for c in claims),
    )


def _answers(
    held: NoisyTables, claims: Sequence[Implication], *, level: float, margin: float
) -> Iterable[tuple[Implication, Answer]]:
    """Arrows are tested on whole tables, for only these show every dependence that an arrow may
    stand for; independences by the sharper test of average partial association, since any
    dependence refutes them.
    """
    queries: list[Query] = [(c.x, c.y, c.given) for c in claims]
    test = held.average_partial if claims and claims[0].kind == "independence" else held.answer
    return zip(claims, test(queries, level=level, margin=margin), strict=True)


def _status(claim: Implication, answer: Answer) -> Status:
    confirming = "dependent" if claim.kind == "arrow" else "independent"
    return (
        "undecided"
        if answer.verdict == "undecided"
        else "supported"
        if answer.verdict == confirming
        else "refuted"
    )
