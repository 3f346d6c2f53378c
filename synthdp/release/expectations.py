"""How good a release will be, as far as public facts and the planned noise say it.

No row is read: what a release would measure is derived from stand-in laws, with the noise that the
plan has and what the release's own smoothing and tests make of it. Numbers are taken to spread like
a bell, categories by 1 / rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from statistics import fmean, median, median_high
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import erf

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.ci_tests.chi_square import Query, mixture_of, weakest_effects
from synthdp.graph.ci_tests.trend import OrderedTests
from synthdp.graph.discovery.measuring import COLUMNS, MAX_CELLS, SCREEN
from synthdp.graph.implications import (
    MAX_TABLES,
    ClaimKind,
    Implication,
    implications,
    tables_of,
    tables_within,
)
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.level_groups import equal_groups, fine_columns, groups_by_noise
from synthdp.graph.margins import FEW_LEVELS, Floats, Probabilities, body_of, project_to_simplex
from synthdp.graph.predict import ALL, CHOSEN, possible_pairs
from synthdp.graph.tables import NoisyTables, Weakest
from synthdp.graph.validation import retested
from synthdp.inference.estimands import ESTIMAND_KINDS, clipped_text
from synthdp.model.estimands import estimand_name
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.mechanisms.pair_screen import MOVES, PairScreen
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Columns
from synthdp.spec.model import Gate, ReleaseSpec
from synthdp.spec.model.evaluation import DP_METRICS

# --- expected links ---
#
# Which links between columns the planned tests of a graph would see, and whose bins are too fine.
#
# No row is read. Tests are those that mode learn (`measured_pc`) and mode validate will make, at
# their levels and with the planned noise, on tables that hold the declared rows by stand-in laws.


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
    small = tuple(p for p in open_pairs if domain.cells(p) <= MAX_CELLS)
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


# --- expected quality ---


DRAWS = 10
"""Simulated tables of each column whose levels have no neighbours."""
SMOOTHED_FROM = -11
SMOOTHED = (
    0.00069, 0.0015, 0.0029, 0.0051, 0.0089, 0.016, 0.028, 0.053, 0.1, 0.17, 0.25, 0.36, 0.46, 0.53,
)  # fmt: skip
"""Mean total variation of smoothed margins of numbers, whose law is the stand-in one, where the
noise of all bins together is 2 to the power of `SMOOTHED_FROM`, or twice, four times as large, and
so on: of 24 simulated margins of 20 and of 33 bins each. 8 to 100 bins gave .6 to 1.4 times that.
"""
HIDDEN = 2.0
"""Standard deviations of noise below which a level's rows are hidden."""
SEEN = 3.0
"""A trend of so many standard deviations is seen in about 3 of 4 simulated pairs of numbers."""
MAX_ADVICE = 3
"""Most columns whose bins a plan gives advice on."""
POOR_TV1 = 0.05
"""Expected mean distance of one-way tables above which a plan gives advice."""


@dataclass(frozen=True)
class ColumnProspect:
    """What noise does to one column: `tv1` is the expected total variation of its one-way table,
    and a level with fewer than `hidden_rows` rows is hidden.

    `noisy_levels`: its levels, where noise exceeds rows / levels, else 0. `tables` are planned with
    it and other columns, on groups of levels where it has any; in `noisy_tables` of them noise
    exceeds rows / cells.
    """

    column: str
    levels: int
    tv1: float
    hidden_rows: float
    noisy_levels: int
    tables: int
    noisy_tables: int


@dataclass(frozen=True)
class ExpectedQuality:
    """What a plan says of quality.

    `tv1` is the mean over the columns. `tables` of more than one column are planned, of which
    `noisy_tables` have more noise than rows / cells. `weakest_correlation` is about the least that
    mode predict sees between two numbers, `links` what modes learn and validate see. `open_pairs`
    are those that mode learn decides, and `decidable_pairs` those in which it would see a medium
    effect (Cohen's w of .3) with a probability of .8.
    """

    columns: tuple[ColumnProspect, ...]
    tv1: float
    tables: int
    noisy_tables: int
    weakest_correlation: float | None
    links: tuple[LinkProspect, ...]
    open_pairs: int | None
    decidable_pairs: int | None
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for `plan --json`."""
        return asdict(self)


def expected_quality(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan) -> ExpectedQuality:
    """What public facts and the planned noise say of a release."""
    rows = expected_fit_rows(spec)
    tests = graph_tests(spec, domain, plan, rows)
    links = tests.prospects if tests else ()
    search = next((link for link in links if link.kind == "link"), None)
    coarse = tests.counted if tests and tests.counted else _coarse(domain, plan)
    planned = dict(_planned(coarse, plan, tests))
    noisy = {names: sigma > rows / coarse.cells(names) for names, sigma in planned.items()}
    noise = [_margin_noise(c, coarse, plan, planned) for c in domain.columns]
    columns = tuple(_columns(domain, noise, rows, noisy))
    return ExpectedQuality(
        columns=columns,
        tv1=fmean(c.tv1 for c in columns),
        tables=len(noisy),
        noisy_tables=sum(noisy.values()),
        weakest_correlation=_weakest_correlation(coarse, plan, rows),
        links=links,
        open_pairs=search.tests if search else None,
        decidable_pairs=search.medium if search else None,
        warnings=(*_warnings(columns, search), *_advice(tests, domain, rows)),
    )


def _coarse(domain: Domain, plan: ReleasePlan) -> Domain:
    """The domain on which tables of more than one column are counted.

    Mode predict groups fine bins where tables alone make the model.
    """
    if plan.in_graph(ALL, AdaptiveMarginals) is None or plan.train is not None:
        return domain
    return equal_groups(domain, [stand_in_law(c) for c in domain.columns]).coarse


def _planned(
    coarse: Domain, plan: ReleasePlan, tests: GraphTests | None
) -> Iterator[tuple[Columns, float]]:
    """The tables of more than one column that are planned before any is seen, with their noise."""
    if plan.pairs:
        yield from zip(plan.pairs.tables, plan.pairs.sigmas, strict=True)
    if tests:
        yield from ((names, tests.sigma) for names in tests.tables if len(names) > 1)
    if predicted := plan.in_graph(ALL, AdaptiveMarginals):
        pairs = possible_pairs(coarse, ())
        sigma = predicted.choose(pairs).sigma
        yield from ((pair, sigma) for pair in pairs)


def _margin_noise(
    column: ColumnDomain, coarse: Domain, plan: ReleasePlan, planned: Mapping[Columns, float]
) -> float:
    """Noise of a level of `column` that all planned tables with it leave, as `graph.margins` pools
    them; tables on groups of levels by their mean size.
    """
    at = coarse.index(column.name)
    own = plan.measure.sigmas[at] if plan.measure else math.inf
    levels = coarse.columns[at].levels
    others = math.fsum(
        levels / (sigma**2 * coarse.cells(names))
        for names, sigma in planned.items()
        if column.name in names
    )
    if levels == column.levels or not others or own == math.inf:
        return math.sqrt(1 / (own**-2 + others))
    size = column.levels / levels
    return own * math.sqrt(1 - own**2 / (size * own**2 + 1 / others))


def _columns(
    domain: Domain, noise: Sequence[float], rows: float, noisy: Mapping[Columns, bool]
) -> Iterator[ColumnProspect]:
    planned = Counter(name for names in noisy for name in names)
    too_noisy = Counter(name for names, is_noisy in noisy.items() if is_noisy for name in names)
    for column, sigma in zip(domain.columns, noise, strict=True):
        yield ColumnProspect(
            column.name,
            column.levels,
            _tv1(column, sigma / rows),
            HIDDEN * sigma,
            column.levels if sigma > rows / column.levels else 0,
            planned[column.name],
            too_noisy[column.name],
        )


def _tv1(column: ColumnDomain, noise: float) -> float:
    """Expected total variation of the column's one-way table, of which a share has this noise.

    Along ordered bins it goes by the noise of the whole, sqrt(bins) that of a bin, whatever their
    number is (`SMOOTHED`). Other levels are simulated.
    """
    law, body = stand_in_law(column), body_of(column)
    if not column.ordered or len(body) <= FEW_LEVELS:
        rng = np.random.default_rng(column.levels)
        found = (project_to_simplex(law + rng.normal(0, noise, len(law))) for _ in range(DRAWS))
        return fmean(float(np.abs(p - law).sum()) / 2 for p in found)
    mass, alone = float(law[body].sum()), column.levels - len(body)
    whole = noise * math.sqrt(len(body)) / mass
    smooth = np.interp(math.log2(whole), SMOOTHED_FROM + np.arange(len(SMOOTHED)), SMOOTHED)
    if math.log2(whole) < SMOOTHED_FROM:
        smooth = SMOOTHED[0] * whole / 2**SMOOTHED_FROM
    return min(1.0, mass * float(smooth) + alone * noise / math.sqrt(2 * math.pi))


def _weakest_correlation(coarse: Domain, plan: ReleasePlan, rows: float) -> float | None:
    """The least correlation of two numbers that both rounds of mode predict together show.

    None in other modes, and without numbers.

    In a table of C cells of equal mass a correlation r moves the trend, a contrast of norm 1, by r
    rows / sqrt(C), with the variance sigma^2 + rows / C [derived here].
    """
    sizes = [len(body_of(c)) for c in coarse.columns if c.ranged]
    rounds = [r for n in (ALL, CHOSEN) if (r := plan.in_graph(n, AdaptiveMarginals))]
    pairs = len(possible_pairs(coarse, ())) if rounds else 0
    if len(sizes) < 2 or not pairs:
        return None
    precision = math.fsum(1 / (r.noise_multiplier**2 * pairs) for r in rounds)
    count = median(sizes) ** 2
    return min(1.0, SEEN * math.sqrt(count * (1 / precision + rows / count)) / rows)


def _advice(tests: GraphTests | None, domain: Domain, rows: float) -> Iterator[str]:
    """On bins that are too fine for the tests of a graph; all other uses of tables smooth them."""
    advice = list(too_many_bins(tests, domain.columns, rows)) if tests else []
    yield from advice[:MAX_ADVICE]
    if len(advice) > MAX_ADVICE:
        yield f"{len(advice) - MAX_ADVICE} more columns have too many bins for the graph's tests"


def _warnings(columns: Sequence[ColumnProspect], search: LinkProspect | None) -> Iterator[str]:
    tv1 = fmean(c.tv1 for c in columns)
    if tv1 > POOR_TV1:
        worst = max(columns, key=lambda c: c.tv1)
        yield (
            f"noise is large for this table: single columns will be off by about {tv1:.2f} (total"
            f" variation), {worst.column!r} by {worst.tv1:.2f}; release fewer columns, merge rare"
            " categories, or spend more"
        )
    if search and search.medium < search.tests / 2:
        yield (
            f"graph mode learn can decide few pairs: of {search.tests} open pairs it would see a"
            f" medium dependence (Cohen's w {MEDIUM:g}) in about {search.medium}; widen bins, raise"
            " shares.graph, declare arrows and tiers, or use graph.mode predict"
        )


# --- expected screen ---
#
# What a screen of pairs is expected to keep: before anything is spent, from public facts alone.


EFFECTS = np.geomspace(0.002, 1, 100)
"""Effects (Cohen's w) that are tried."""
POWER = 0.8


def weakest_kept(
    pairs: Sequence[Pair], laws: Mapping[str, Floats], rows: float, screen: PairScreen, of: int
) -> Floats:
    """The weakest effect (Cohen's w) of each pair that is kept with probability .8, `[pairs]`.

    Infinite where there is none. `of` pairs are screened, and nearly all of them have no link:
    their k-th largest score is then about scale ln(of / k), by the tail of Gumbel noise.

    >>> from synthdp.data.column_domain import ColumnDomain
    >>> from synthdp.data.domain import Domain
    >>> yes_or_no = [ColumnDomain(name, "boolean", ("0", "1"), False) for name in "ab"]
    >>> screen = PairScreen(Domain(tuple(yes_or_no)), kept=700, noise=70.0)
    >>> even = {"a": np.array([0.5, 0.5]), "b": np.array([0.5, 0.5])}
    >>> weakest_kept([("a", "b")], even, 20_000, screen, 28_000).round(2).tolist()
    [0.05]
    """
    kept = min(screen.kept, of)
    needed = MOVES * screen.noise * (math.log(of / kept) - math.log(-math.log(1 - POWER)))
    found = np.full(len(pairs), math.inf)
    for i, (a, b) in enumerate(pairs):
        enough = _scores(laws[a], laws[b], rows) >= needed
        if enough.any():
            found[i] = EFFECTS[enough.argmax()]
    return found


def _scores(first: Floats, second: Floats, rows: float) -> Floats:
    """What a trend of each of `EFFECTS` adds to the score that chance alone gives, `[effects]`.

    A cell is off by the trend and by a normal error: its mean distance is that of a folded normal.
    """
    trend = np.outer(first * _scaled(first), second * _scaled(second))
    apart = rows * EFFECTS[:, None, None] * np.abs(trend)
    sigma = np.sqrt(rows * np.outer(first * (1 - first), second * (1 - second))) + 1e-9
    ratio = apart / sigma
    folded = sigma * math.sqrt(2 / math.pi) * (np.exp(-(ratio**2) / 2) - 1)
    added = folded + apart * erf(ratio / math.sqrt(2))
    return np.array(added.sum((1, 2)), dtype=np.float64)


def _scaled(law: Floats) -> Floats:
    """Levels in their order, of mean 0 and variance 1; zeros where there is one level."""
    places = np.arange(len(law)) - float(np.arange(len(law)) @ law)
    spread = math.sqrt(float(places**2 @ law))
    return np.array(places / (spread or 1.0), dtype=np.float64)


# --- expected estimands ---
#
# How far noise alone will move each estimand, from public facts.


def expected_estimands(spec: ReleaseSpec, plan: ReleasePlan) -> list[dict[str, Any]]:
    """For each estimand its `name`, `text` with its clip, `statistic`, and `noise`: one standard
    deviation.

    A contingency table has the noise of its cells, in rows. A regression has `terms`, the noise of
    each coefficient in the outcome's unit, and `noise` is the largest.
    """
    found = []
    for i, estimand in enumerate(spec.estimands):
        kind, name = ESTIMAND_KINDS[estimand.kind], estimand_name(i)
        told = {"name": name, "text": clipped_text(spec, estimand)}
        told["statistic"] = kind.statistic(spec, estimand)
        found.append(told | kind.forecast(spec, estimand, plan.estimands[name]))
    return found


# --- expected gates ---
#
# What a plan says of gates on published scores: those that are likely to fail, or fall by chance.
#
# The noise of a published score is known before any row is read, and so is about how far single
# columns will be off.


DEVIATIONS = 2.0
"""Standard deviations of noise for which a gate should have room."""
SMALL = 0.5
"""Part of a gate's room below which this noise is small."""


def gate_warnings(spec: ReleaseSpec, plan: ReleasePlan, tv1: float) -> Iterator[str]:
    """A warning for each gate that `tv1`, the expected distance of single columns, would fail, and
    for each on a published score whose noise decides it in part.
    """
    for gate in spec.gates:
        if gate.metric in ("tv1", "tv1_dp") and gate.at_most is not None and tv1 > gate.at_most:
            yield (
                f"the gate on {gate.metric}, at most {gate.at_most:g}, is likely to withhold the"
                f" bundle after the budget is spent: single columns are expected to be off by about"
                f" {tv1:.2g}; declare fewer bins or categories, or a larger epsilon"
            )
        elif gate.metric in DP_METRICS and plan.scores is not None:
            yield from _by_chance(gate, DEVIATIONS * score_noise(spec, plan, gate), tv1)


def score_noise(spec: ReleaseSpec, plan: ReleasePlan, gate: Gate) -> float:
    """Standard deviation that noise gives the published score of a gate, as a share of rows.

    A distance is a noisy count over the fitted rows. An accuracy a is right / (wrong + right), both
    with noise of sigma, over the rows held out: sigma sqrt(a^2 + (1 - a)^2) / rows to first order
    [derived here; as in `evaluate.dp_scores.accuracy`], taken at the gate's bound; the mean over
    targets has the root of their number less. Which rows are held out adds to it.
    """
    assert plan.scores is not None
    fitted = expected_fit_rows(spec)
    if gate.metric != "tstr_accuracy_dp":
        return plan.scores.sigma / fitted
    held_out = max(1.0, spec.dataset.rows.value - fitted)
    bound = min(1.0, max(0.0, _bound(gate)))
    targets = max(1, len(plan.scores.targets))
    return plan.scores.sigma * math.hypot(bound, 1 - bound) / held_out / math.sqrt(targets)


def _by_chance(gate: Gate, noise: float, tv1: float) -> Iterator[str]:
    """A warning where `noise`, either way, is not small beside the room that a gate leaves.

    A gate that asks for a score no better than something says nothing of room.
    """
    bound = _bound(gate)
    if gate.metric == "tv1_dp":
        room, since = bound - tv1, f"single columns are expected to be off by about {tv1:.2g}"
    elif gate.metric == "tv2_dp":
        room, since = bound, "a perfect table is off by 0"
    else:
        room, since = 1 - bound, "no accuracy is above 1"
    asked = gate.at_least if gate.metric == "tstr_accuracy_dp" else gate.at_most
    if noise <= SMALL * room or asked is None:
        return
    side = "at least" if gate.at_most is None else "at most"
    yield (
        f"the gate on {gate.metric}, {side} {bound:g}, may fall by chance after the budget is"
        f" spent: noise moves the score by about {noise:.2g} either way (two standard deviations),"
        f" and the bound leaves {max(0.0, room):.2g}, for {since}; choose another bound, or raise"
        " evaluation.disclosure_share"
    )


def _bound(gate: Gate) -> float:
    return gate.at_most if gate.at_most is not None else gate.at_least or 0.0


# --- stand in ---
#
# Stand-in laws: how the values of a column are taken to spread before any row is read.


BELL_CENTRE, BELL_WIDTH = 0.3, 0.15
"""Of the stand-in law of a number, as shares of its range: bounds are rarely tight."""
OTHER_LEVELS = 0.2
"""Share of a number's spikes and missing level in its stand-in law."""


def stand_in_law(column: ColumnDomain) -> Probabilities:
    """Probabilities `[levels]` of a column that nothing is known of.

    >>> stand_in_law(ColumnDomain("x", "categorical", ("a", "b"), False)).round(2).tolist()
    [0.67, 0.33]
    """
    law: Probabilities = 1 / np.arange(1.0, column.levels + 1)
    if column.ranged:
        body = body_of(column)
        place = (np.arange(len(body)) + 0.5) / len(body)
        bell = np.exp(-(((place - BELL_CENTRE) / BELL_WIDTH) ** 2) / 2)
        law = np.full(column.levels, OTHER_LEVELS / max(1, column.levels - len(body)))
        law[body] = bell / bell.sum() * (1 - OTHER_LEVELS)
    law /= law.sum()
    return law


def law_for_tests(column: ColumnDomain) -> Probabilities:
    """The stand-in law `[levels]` where columns are tested for dependence: few bins hold equally
    many rows, since whoever declares few of them seldom leaves one nearly empty.

    >>> few = ColumnDomain("x", "integer", tuple("abcd"), False, edges=(0, 1, 2, 3), stop=4)
    >>> law_for_tests(few).round(2).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    law, body = stand_in_law(column), body_of(column)
    if column.ranged and len(body) <= FEW_LEVELS:
        law[body] = law[body].mean()
    return law
