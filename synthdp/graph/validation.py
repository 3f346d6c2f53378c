"""Validation of a given graph: do noisy tables support its independences and its arrows?

A DAG implies that columns without a link are independent given some set of others. `implications`
lists one such claim per absent pair, and one dependence claim per arrow; `required_tables` lists
the tables that test them, and `untested` what is left out, and why. All use the graph and the
public domain alone, so they are fixed before any row is read. `validate` only reads released
tables, which makes its answers, and a failed gate, public.

    claim         supported                              refuted
    independence  effect shown to be below `negligible`  dependence found
    arrow         dependence found                       effect shown to be below `negligible`

and undecided otherwise. All findings of dependence hold together at the family-wise level, and so
do all findings that an effect is negligible (Bonferroni over all claims [derived here: the list of
claims is public, each is tested at its part of the level, and the probability of any error is at
most the sum of all]).

Tables test claims in two rounds. The first measures tables for every claim. The second measures the
independences that look worst again (`doubtful`, `rejudge`): they are few, so their tables have
little noise. In the first round an effect must stand out only enough to be selected.

Independences are tested for average partial association. Dependence whose direction changes from
stratum to stratum, so that it cancels, does not refute one.

Where `graph.algorithm` searches by one released value that answers any query (`judged`), every
claim is tested on it, given however many columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from statistics import median
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.errors import GateError
from synthdp.graph.causal import CausalGraph, Provenance
from synthdp.graph.chi_square import Answer, Query
from synthdp.graph.discovery import QueryTests
from synthdp.graph.knowledge import Pair
from synthdp.graph.tables import NoisyTables
from synthdp.privacy.mechanisms.marginals import NoisyTable

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


# --- what tables say of the claims ---

Status = Literal["supported", "refuted", "undecided"]
STATUSES: tuple[Status, ...] = get_args(Status)

VALIDATION_SHARES: Mapping[str, float] = {"validate": 0.7, "confirm": 0.3}
"""Shares of the graph budget: for all claims, and again for those that look worst."""


@dataclass(frozen=True)
class ClaimEvidence:
    claim: Implication
    status: Status
    answer: Answer

    def to_json(self) -> dict[str, Any]:
        answer = self.answer.to_json()
        del answer["verdict"]
        return {**_plain(self.claim), "status": self.status, **answer}


class GraphRefuted(GateError):
    """The tables contradict the given graph (`report`), and the spec withholds the bundle then."""

    def __init__(self, report: ValidationReport) -> None:
        self.report = report
        super().__init__(
            "the given graph is refuted by noisy data:"
            f" {'; '.join(str(f.claim) for f in report.refuted)}",
            hint=(
                "correct graph.edges, or say graph.on_refuted: flag to release with the refuted"
                " claims marked"
            ),
        )


@dataclass(frozen=True)
class ValidationReport:
    """Findings on every tested claim, at the family-wise `level`, and the claims that are not."""

    graph: CausalGraph
    level: float
    negligible: float
    findings: tuple[ClaimEvidence, ...]
    untested: tuple[Untested, ...] = ()

    @property
    def refuted(self) -> tuple[ClaimEvidence, ...]:
        """Claims that the tables contradict, smallest p-value first."""
        refuted = (f for f in self.findings if f.status == "refuted")
        return tuple(sorted(refuted, key=lambda f: f.answer.p_value))

    def apply(self, on_refuted: Literal["flag", "drop", "fail"]) -> CausalGraph:
        """The graph with the status of each tested arrow as provenance.

        Refuted arrows are marked with `flag` and removed with `drop`. Arrows inside groups keep
        their provenance.

        Raises:
            GraphRefuted: `on_refuted` is `fail`, and some claim is refuted.
        """
        if on_refuted == "fail" and self.refuted:
            raise GraphRefuted(self)
        tested = (f for f in self.findings if f.claim.kind == "arrow")
        status: dict[Pair, Provenance] = {(f.claim.x, f.claim.y): f.status for f in tested}
        marked = [replace(e, provenance=status.get(e.pair, e.provenance)) for e in self.graph.edges]
        if on_refuted == "drop":
            marked = [e for e in marked if e.provenance != "refuted"]
        return replace(self.graph, edges=tuple(marked))

    def counts(self) -> dict[str, dict[Status, int]]:
        counts = Counter((f.claim.kind, f.status) for f in self.findings)
        kinds: tuple[ClaimKind, ...] = get_args(ClaimKind)
        return {kind: {status: counts[kind, status] for status in STATUSES} for kind in kinds}

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "negligible_effect": self.negligible,
            "counts": self.counts(),
            "findings": [f.to_json() for f in self.findings],
            "untested": [_plain(u.claim) | {"reason": u.reason} for u in self.untested],
        }


def _plain(claim: Implication) -> dict[str, Any]:
    return asdict(claim) | {"given": list(claim.given)}


def doubtful(report: ValidationReport) -> tuple[Implication, ...]:
    """The independences with the smallest p-values: what to measure again."""
    independences = [f for f in report.findings if f.claim.kind == "independence"]
    most = max(SETTINGS.min_retests, len(independences) // SETTINGS.claims_per_retest)
    worst = sorted(independences, key=lambda f: f.answer.p_value)[:most]
    return tuple(f.claim for f in worst)


def rejudge(
    report: ValidationReport, claims: Collection[Implication], tables: Iterable[NoisyTable]
) -> ValidationReport:
    """`report` with `claims` judged by fresh `tables` alone, each at its share of the level.

    Family-wise, however they were selected [derived here]: their noise is fresh and their rows are
    those of a true graph, so that each claim, if selected, is refuted with at most its share of the
    level; the probability that some claim is both selected and refuted is at most the sum of these
    over all claims. (A claim that was not selected keeps its first answer. It can be refuted only
    if all that were selected had even more evidence against them.)
    """
    each = report.level / max(len(report.findings), 1)
    second = _test(NoisyTables(tables), claims, level=each, margin=report.negligible)
    return replace(report, findings=tuple(second.get(f.claim, f) for f in report.findings))


def validate(
    graph: CausalGraph,
    tables: Iterable[NoisyTable],
    *,
    domain: Domain,
    level: float,
    known: Iterable[NoisyTable] = (),
    max_cells: int = SETTINGS.max_cells,
    negligible: float = SETTINGS.negligible,
) -> ValidationReport:
    """Judge every claim of `graph` that `tables` can test; `max_cells` as for `required_tables`.

    `known` are more tables of the same rows, whose margins make the tests sharper.
    """
    released = NoisyTables(tables, known)
    measured = {frozenset(table.columns) for table in released.tables}
    possible = implications(graph, domain, max_cells=max_cells)
    claims = [claim for claim in possible if measured.issuperset(claim.tables)]
    findings = _test(released, claims, level=level / max(len(claims), 1), margin=negligible)
    left = untested(graph, domain, claims, max_cells=max_cells)
    return ValidationReport(graph, level, negligible, tuple(findings[c] for c in claims), left)


def judged(
    graph: CausalGraph, tests: QueryTests, *, domain: Domain, level: float
) -> ValidationReport:
    """Judge every claim of `graph` by `tests`, which need no table."""
    claims = implications(graph, domain, max_cells=math.inf)
    answers = tests.answer(
        [(c.x, c.y, c.given) for c in claims],
        level=level / max(len(claims), 1),
        margin=tests.negligible,
    )
    left = untested(graph, domain, claims, max_cells=math.inf)
    found = tuple(map(_evidence, claims, answers))
    return ValidationReport(graph, level, tests.negligible, found, left)


def weakest_effects(
    tables: NoisyTables, claims: Sequence[Implication], *, level: float
) -> npt.NDArray[np.float64]:
    """The effect (Cohen's w) that the test of each claim sees with probability .8, `[claims]`."""
    found = np.full(len(claims), np.inf)
    for kind in get_args(ClaimKind):
        at = [i for i, claim in enumerate(claims) if claim.kind == kind]
        asked = [(claims[i].x, claims[i].y, claims[i].given) for i in at]
        found[at] = tables.weakest(asked, level=level, partial=kind == "independence")
    return found


def _test(
    tables: NoisyTables, claims: Collection[Implication], *, level: float, margin: float
) -> dict[Implication, ClaimEvidence]:
    """The evidence on each claim.

    Arrows are tested on whole tables, because only these show every dependence that an arrow may
    stand for. Independences are tested for average partial association: the test is sharper, and
    any dependence refutes them.
    """
    arrows = [claim for claim in claims if claim.kind == "arrow"]
    others = [claim for claim in claims if claim.kind == "independence"]
    queries: dict[Implication, Query] = {claim: (claim.x, claim.y, claim.given) for claim in claims}
    answers = tables.answer([queries[c] for c in arrows], level=level, margin=margin)
    asked = [queries[c] for c in others]
    answers += tables.average_partial(asked, level=level, margin=margin)
    return dict(zip(arrows + others, map(_evidence, arrows + others, answers), strict=True))


def _evidence(claim: Implication, answer: Answer) -> ClaimEvidence:
    agrees = (claim.kind == "arrow") == (answer.verdict == "dependent")
    status: Status = "supported" if agrees else "refuted"
    return ClaimEvidence(claim, "undecided" if answer.verdict == "undecided" else status, answer)


ADVICE = "more rows, fewer levels or a larger shares.graph exclude more"


def validation_sentences(validation: Mapping[str, Any]) -> list[str]:
    """What a reader can act on, of `ValidationReport.to_json()`.

    >>> found = {"kind": "arrow", "x": "a", "y": "b", "given": [], "status": "supported"}
    >>> validation_sentences({"findings": [found], "untested": []})
    ['no claim was refuted']
    """
    findings: Sequence[Mapping[str, Any]] = validation["findings"]
    refuted = [f for f in findings if f["status"] == "refuted"]
    independences = [f for f in findings if f["kind"] == "independence"]
    sentences = ["no claim was refuted"]
    if refuted:
        missing = any(f["kind"] == "independence" for f in refuted)
        advice = ": each independence wants an arrow or a common cause more" if missing else ""
        worst = sorted(refuted, key=lambda f: f["p_value"])
        sentences = [f"refuted: {_first(worst)}{advice}"]
    untested: Sequence[Mapping[str, Any]] = validation["untested"]
    for kind, reason in dict.fromkeys((u["kind"], u["reason"]) for u in untested):
        left = [u for u in untested if (u["kind"], u["reason"]) == (kind, reason)]
        of = sum(f["kind"] == kind for f in (*findings, *untested))
        were = "was" if len(left) == 1 else "were"
        sentences.append(
            f"{len(left)} of {of} {kind}s {were} not tested ({reason}): {_first(left)}"
        )
    undecided = [f for f in independences if f["status"] == "undecided"]
    if undecided:
        sentences.append(_undecided(undecided, len(independences)))
    return sentences


def _first(claims: Sequence[Mapping[str, Any]], most: int = 3) -> str:
    more = f", and {len(claims) - most} more" if len(claims) > most else ""
    return "; ".join(map(claim_text, claims[:most])) + more


def claim_text(finding: Mapping[str, Any]) -> str:
    """An arrow or an independence, as a line of a table."""
    verb = "->" if finding["kind"] == "arrow" else "independent of"
    given = f" given {', '.join(finding['given'])}" if finding["given"] else ""
    return f"{finding['x']} {verb} {finding['y']}{given}"


def _undecided(undecided: Sequence[Mapping[str, Any]], independences: int) -> str:
    bounds = [f["effect_upper"] for f in undecided]
    known = sorted(bound for bound in bounds if bound is not None)
    head = f"{len(undecided)} of {independences} independences"
    head += " is undecided" if len(undecided) == 1 else " are undecided"
    if not known:
        return f"{head}, and noise excludes no effect in any; {ADVICE}"
    above = f"w = {median(known):.2g} (Cohen's w"
    if len(known) > 1:
        above += f", the median; {known[0]:.2g} in the best, {known[-1]:.2g} in the worst"
    size, bound = "large", 0.5  # of Cohen's w
    if known[0] <= 0.3:
        size, bound = ("small", 0.1) if known[0] <= 0.1 else ("medium", 0.3)
    small = sum(value <= bound for value in known)
    return (
        f"{head}: an effect above {above}) is excluded where it is spread over all levels, a {size}"
        f" one ({bound:g}) in {small} of {len(undecided)}; one among rare levels may be larger;"
        f" {ADVICE}"
    )
