"""Which links between columns the planned tests of a graph would see, and whose bins are too fine.

No row is read. Tests are those that mode learn (`measured_pc`) and mode validate will make, at
their levels and with the planned noise, on tables that hold the declared rows by stand-in laws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import median_high
from typing import Literal, TypeVar

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.answer import Query
from synthdp.graph.ci_tests.chi_square import mixture_of
from synthdp.graph.ci_tests.mixture import weakest_effects
from synthdp.graph.discovery.coarsening import fine_columns, groups_by_noise
from synthdp.graph.discovery.measuring import MAX_CELLS
from synthdp.graph.discovery.screening import COLUMNS, SCREEN
from synthdp.graph.implications import (
    MAX_TABLES,
    ClaimKind,
    Implication,
    implications,
    tables_of,
    tables_within,
)
from synthdp.graph.knowledge import Knowledge
from synthdp.graph.margin_smoothing import body_of
from synthdp.graph.ordered_tests import OrderedTests
from synthdp.graph.tables import NoisyTables, Weakest, cells
from synthdp.graph.validation import retested
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, Columns, NoisyTable
from synthdp.privacy.mechanisms.pair_screen import PairScreen
from synthdp.privacy.plan import ReleasePlan
from synthdp.release.expected_screen import weakest_kept
from synthdp.release.stand_in import law_for_tests
from synthdp.spec.model import ReleaseSpec

T = TypeVar("T")
MEDIUM = 0.3
"""A medium effect on Cohen's w scale."""
NONE_SEEN = 0.95
"""The weakest correlation that is seen, from which on it is as good as none."""
LINKS = {
    ("link", "screen"): ("graph screen: a link", "left out", "open pairs"),
    ("link", "kept"): ("graph search: a link", "undecided", "pairs that the screen keeps"),
    ("link", "pairs"): ("graph search: a link", "undecided", "open pairs"),
    ("link", "joint"): ("graph search: a link", "undecided", "open pairs"),
    ("arrow", "validate"): ("graph test: an arrow", "undecided", "arrows"),
    ("independence", "validate"): ("graph test: a link that it lacks", "unseen", "absent links"),
    ("independence", "confirm"): ("once more: a link that it lacks", "unseen", "absent links"),
}
"""What the tests of a kind and a round ask, what a weak link stays, and what is asked about."""
MAX_ASKED = 300
"""Most tests of a kind that are looked at; what they show stands for all."""
MAX_LEVELS = math.isqrt(MAX_CELLS)
"""Of two columns with as many levels that are measured together."""
MAX_COLUMNS = 80
"""Most columns of a graph whose claims are listed: of 222 columns that takes ten seconds."""


@dataclass(frozen=True)
class LinkProspect:
    """What the tests of one `kind` are expected to see in one `round` of tables.

    Half of the `tests` see an effect (Cohen's w) of `typical` with probability .8, and the best of
    them one of `least`; None where they see none. `medium` of them see an effect of .3. `on_groups`
    says that fine columns are counted on groups of bins.
    """

    kind: ClaimKind | Literal["link"]
    round: str
    tests: int
    typical: float | None
    least: float | None
    medium: int
    on_groups: bool = False


@dataclass(frozen=True)
class GraphTests:
    """The tests that a plan has for a graph: `tables` of columns and their noise `sigma`, and what
    each kind is expected to see. `level` is of each test. `counted` has the groups of bins on which
    a search will count fine columns, as far as stand-in laws say; None where it counts levels.
    """

    tables: tuple[Columns, ...]
    sigma: float
    level: float
    prospects: tuple[LinkProspect, ...]
    counted: Domain | None = None


def graph_tests(
    spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, rows: float
) -> GraphTests | None:
    """The tests of the spec's mode; None where tables test nothing, or the graph is too wide."""
    if spec.graph.mode == "learn":
        return _search(spec, domain, plan, rows)
    if spec.graph.mode == "validate" and len(domain) <= MAX_COLUMNS:
        return _validation(spec, domain, plan, rows)
    return None


def too_many_bins(tests: GraphTests, columns: Sequence[ColumnDomain], rows: float) -> Iterator[str]:
    """Advice for each column whose bins hide a medium link from the tests, in words.

    The rule: the table of the column and another of as many levels, all of which hold as many rows,
    is not measured, or has more noise than rows in a cell, and its test does not see a medium
    effect with probability .8. The advice is the most bins with which it does. Where the whole
    table is measured at once, its noise is that of all its columns, and there is no advice, nor
    where fine columns are counted on groups.
    """
    if tests.counted or any(link.round == "joint" for link in tests.prospects):
        return
    for column in columns:
        bins, levels = len(body_of(column)), column.levels
        held = rows / levels**2
        measured = levels <= MAX_LEVELS
        if not column.ranged or bins < 3 or (measured and tests.sigma <= held):
            continue
        few = _most_levels(tests, min(levels, MAX_LEVELS), rows)
        left = few - (levels - bins)
        why = (
            f"leave {held:.3g} rows in a cell under noise {tests.sigma:.3g}, and a medium link"
            f" (Cohen's w {MEDIUM:g}) is likely to stay undecided"
            if measured
            else f"make more than {MAX_CELLS} cells, which the graph's tests do not measure"
        )
        if few < levels and left >= 2:
            yield (
                f"column {column.name!r}: with another of {levels} levels, its {bins} bins {why};"
                f" {left} bins would leave {rows / few**2:.3g} rows in a cell, and show it"
            )


def _most_levels(tests: GraphTests, most: int, rows: float) -> int:
    """The most levels, up to `most`, of two columns between which a medium effect is seen."""

    def seen(levels: int) -> bool:
        table = np.full((1, 1, levels, levels), rows / levels**2)
        mixture = mixture_of(table, np.array([tests.sigma]))
        weakest = weakest_effects(mixture, level=tests.level, rng=np.random.default_rng(0))
        return bool(weakest[0] <= MEDIUM)

    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seen(middle) else (low, middle)
    return low


def _search(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, rows: float) -> GraphTests | None:
    """The tests of pairs of mode learn: later rounds only take links away."""
    open_pairs = Knowledge.from_spec(spec.graph, domain.names).undecided_pairs()
    name = "joint" if plan.in_graph("joint", AdaptiveMarginals) else "pairs"
    planned = plan.in_graph(name, AdaptiveMarginals)
    if planned is None:
        return None
    screen = plan.in_graph(SCREEN, PairScreen)
    counted: Domain | None = None
    found: list[LinkProspect] = []
    measured = min(screen.kept, len(open_pairs)) if screen else len(open_pairs)
    if fine_columns(domain) and plan.in_graph(COLUMNS, AdaptiveMarginals) is not None:
        domain = counted = _on_groups(domain, rows, planned.choose(open_pairs[:measured]).sigma)
    small = tuple(p for p in open_pairs if cells(domain, p) <= MAX_CELLS)
    if not small:
        return None
    if screen:
        laws = {column.name: law_for_tests(column) for column in domain.columns}
        kept = weakest_kept(_some(small), laws, rows, screen, len(small))
        tests = len(open_pairs)
        found.append(_prospect("link", "screen", kept, measured=len(small), tests=tests))
        open_pairs = small = tuple(
            _some(small, measured)
        )  # which ones it keeps is not known before
    tables: tuple[Columns, ...] = (domain.names,) if name == "joint" else small
    sigma, level = planned.choose(tables).sigma, spec.graph.level / len(open_pairs)
    asked, whole = _some(small), domain.cells(domain.names)
    # A pair's cell sums those of the whole table.
    summed = {p: whole / domain.cells(p) if name == "joint" else 1.0 for p in asked}
    known = _expected(domain, rows, {p: sigma * math.sqrt(n) for p, n in summed.items()})
    weakest = _weakest(domain, known, [(a, b, ()) for a, b in asked], level, alone=name == "joint")
    told = "kept" if screen else name
    found.append(_prospect("link", told, weakest, measured=len(small), tests=len(open_pairs)))
    by_groups = [replace(link, on_groups=counted is not None) for link in found]
    return GraphTests(tables, sigma, level, tuple(by_groups), counted)


def _on_groups(domain: Domain, rows: float, sigma: float) -> Domain:
    """The domain of the groups that a search counts on, if columns are as the stand-in laws say."""
    laws = {column.name: law_for_tests(column) for column in fine_columns(domain)}
    margins = [NoisyTable((name,), rows * law, 0.0) for name, law in laws.items()]
    return groups_by_noise(domain, margins, sigma).coarse


def _weakest(
    domain: Domain, known: NoisyTables, queries: Sequence[Query], level: float, *, alone: bool
) -> Weakest:
    """The weakest effect of each query that its test sees: a trend, where a column is ordered."""
    trends = OrderedTests(domain, known, {})
    ordered = [i for i, query in enumerate(queries) if trends.applies(query) and not alone]
    weakest = known.weakest(queries, level=level)
    if ordered:
        asked = [queries[i] for i in ordered]
        answers = trends.trend_answers(asked, level=level / 2, margin=0.0)
        weakest[ordered] = np.minimum(weakest[ordered], [a.detectable for a in answers])
    return weakest


def _validation(
    spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, rows: float
) -> GraphTests | None:
    """The tests of mode validate: of arrows, of independences, and of these once more."""
    graph = CausalGraph.from_spec(spec.graph, domain.names)
    possible = implications(graph, domain, max_cells=MAX_CELLS)
    tables = tables_within(possible, domain, max_tables=MAX_TABLES)
    first, again = (plan.in_graph(name, AdaptiveMarginals) for name in ("validate", "confirm"))
    if not tables or first is None or again is None:
        return None
    measured = set(map(frozenset, tables))
    claims = [claim for claim in possible if measured.issuperset(claim.tables)]
    level, sigma = spec.graph.level / len(claims), first.choose(tables).sigma

    def prospect(
        name: str, listed: Sequence[Implication], noise: float, *, tests: int
    ) -> LinkProspect:
        asked, kind = _some(listed), listed[0].kind
        known = _expected(domain, rows, dict.fromkeys(tables_of(asked, domain), noise))
        queries = [(claim.x, claim.y, claim.given) for claim in asked]
        weakest = known.weakest(queries, level=level, partial=kind == "independence")
        return _prospect(kind, name, weakest, measured=tests, tests=tests)

    arrows = [claim for claim in claims if claim.kind == "arrow"]
    others = [claim for claim in claims if claim.kind == "independence"]
    found = [
        prospect("validate", listed, sigma, tests=len(listed))
        for listed in (arrows, others)
        if listed
    ]
    if others:  # which of them look worst is not known before
        count = retested(len(others))
        confirmed = again.choose(tables_of(_some(others, count), domain)).sigma
        found.append(prospect("confirm", others, confirmed, tests=min(count, len(others))))
    return GraphTests(tables, sigma, level, tuple(found))


def _some(listed: Sequence[T], most: int = MAX_ASKED) -> Sequence[T]:
    """At most so many of them, evenly spaced."""
    most = min(most, len(listed))
    return [listed[i * len(listed) // most] for i in range(most)]


def _expected(domain: Domain, rows: float, sigmas: Mapping[Columns, float]) -> NoisyTables:
    """Tables of independent columns, without their noise, which `sigmas` states."""
    laws = {column.name: law_for_tests(column) for column in domain.columns}
    return NoisyTables(
        NoisyTable(names, rows * reduce(np.multiply.outer, [laws[n] for n in names]), sigma)
        for names, sigma in sigmas.items()
    )


def _prospect(
    kind: ClaimKind | Literal["link"], name: str, weakest: Weakest, *, measured: int, tests: int
) -> LinkProspect:
    """In words of all `tests`, of which `measured` have tables: these look like `weakest`."""
    unmeasured = round(len(weakest) * (tests - measured) / measured)
    typical = median_high([*weakest.tolist(), *[math.inf] * unmeasured])
    least, seen = float(weakest.min()), float(np.mean(weakest <= MEDIUM))
    return LinkProspect(
        kind, name, tests, _or_none(typical), _or_none(least), round(measured * seen)
    )


def _or_none(effect: float) -> float | None:
    return effect if math.isfinite(effect) else None
