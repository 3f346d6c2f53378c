"""How good a release will be, as far as public facts and the planned noise say it.

No row is read: what a release would measure is derived from stand-in laws (numbers spread like a
bell, categories by 1 / rank), with the noise that the plan has and what the release's own smoothing
and tests make of it. What a whole release would find is `release.rehearse`'s to say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from statistics import fmean, median
from typing import Any, TypeVar

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.chi_square import mixture_of, weakest_effects
from synthdp.graph.discovery.measured_pc import MeasurePlan
from synthdp.graph.discovery.measuring import COLUMNS, SCREEN
from synthdp.graph.knowledge import Knowledge, Pair
from synthdp.graph.level_groups import equal_groups, fine_columns, groups_by_noise
from synthdp.graph.margins import Probabilities, SmoothingSettings, body_of, project_to_simplex
from synthdp.graph.predict import ALL, CHOSEN, SCREENED, planned_pairs
from synthdp.graph.tables import NoisyTables
from synthdp.graph.trend import OrderedTests
from synthdp.graph.validation import SETTINGS as VALIDATION
from synthdp.graph.validation import implications, required_tables
from synthdp.graph.validation import weakest_effects as weakest_effects_of
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.mechanisms.moments import MomentMatrix
from synthdp.privacy.mechanisms.pair_screen import MOVES, PairScreen
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Columns
from synthdp.report.prose import say_of_plan
from synthdp.spec.model import Gate, ReleaseSpec
from synthdp.spec.model.evaluation import DP_METRICS

T = TypeVar("T")


@dataclass(frozen=True)
class Forecast:
    """What a forecast assumes, and from when on it warns.

    Attributes:
        hidden: standard deviations of noise below which a level's rows are hidden.
        seen: a trend of so many is seen in about 3 of 4 simulated pairs of numbers.
        medium: a medium effect on Cohen's w scale.
        poor_tv1: expected mean distance of one-way tables above which a plan gives advice.
        advice: most columns whose bins a plan gives advice on.
        asked: most pairs whose tests are looked at; what they show stands for all.
        columns: most columns of a graph whose claims are listed: of 222 that takes ten seconds.
        draws: simulated tables of each column whose levels have no neighbours.
        bell_centre, bell_width: of the stand-in law of a number, as shares of its range: bounds are
            rarely tight.
        other_levels: share of a number's spikes and missing level in its stand-in law.
        room: part of a gate's room below which the noise of its score is small.
        plays: stand-in tables on which an estimand is played, fewer where it has many figures:
            `played_figures` together.
        pool: stand-in rows that laws of strata and of products are taken from.
        treated: share of rows of a rare arm, where nothing is declared of it.
        uneven: standard deviation of the log odds of treatment between strata.
        spread: standard deviation of the log of the factor by which a number's spread may differ
            from that of the bell.
        between: quantiles of the half widths that are told beside their median.
        common: least and largest share of the variance of a regression's terms that they have in
            common, as causes of one treatment do; where they have less, more coefficients are told.
        likely: probability of a refusal above which a release does not pay for an estimand.
    """

    hidden: float = 2.0
    seen: float = 3.0
    medium: float = 0.3
    poor_tv1: float = 0.05
    advice: int = 3
    asked: int = 300
    columns: int = 80
    draws: int = 10
    bell_centre: float = 0.3
    bell_width: float = 0.15
    other_levels: float = 0.2
    room: float = 0.5
    plays: int = 100
    played_figures: int = 3000
    pool: int = 8000
    treated: float = 0.1
    uneven: float = 0.6
    spread: float = 0.9
    between: tuple[float, float] = (0.05, 0.95)
    common: tuple[float, float] = (0.5, 0.95)
    likely: float = 0.2


ASSUMED = Forecast()
NONE_SEEN = 0.95
"""The weakest correlation that is seen, from which on it is as good as none."""
SMOOTHED_FROM = -11
SMOOTHED = (
    0.00069, 0.0015, 0.0029, 0.0051, 0.0089, 0.016, 0.028, 0.053, 0.1, 0.17, 0.25, 0.36, 0.46, 0.53,
)  # fmt: skip
"""Mean total variation of smoothed margins of numbers, whose law is the stand-in one, where the
noise of all bins together is 2 to the power of `SMOOTHED_FROM`, or twice, four times as large, and
so on: of 24 simulated margins of 20 and of 33 bins each. 8 to 100 bins gave .6 to 1.4 times that.
"""


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
    `noisy_tables` have more noise than rows / cells; `tests_on_levels` says that a graph is tested
    on them as they are. `weakest_correlation` is about the least that mode predict sees between two
    numbers. `open_pairs` are those that mode learn tests, and `decidable_pairs` those in which it
    would see a medium effect (Cohen's w of .3) with a probability of .8. `claims` are those that
    mode validate tests, each with the least effect that is seen so (None: not any).
    """

    columns: tuple[ColumnProspect, ...]
    tv1: float
    tables: int
    noisy_tables: int
    weakest_correlation: float | None
    tests_on_levels: bool
    open_pairs: int | None
    decidable_pairs: int | None
    claims: tuple[tuple[str, float | None], ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON for `plan --json`."""
        return asdict(self)


def expected_quality(
    spec: ReleaseSpec,
    domain: Domain,
    plan: ReleasePlan,
    counted: Callable[[ColumnProspect], object] | None = None,
) -> ExpectedQuality:
    """What public facts and the planned noise say of a release; `counted` hears of each column when
    it is known.
    """
    rows = expected_fit_rows(spec)
    tests = graph_tests(spec, domain, plan, rows)
    coarse = tests.counted if tests and tests.counted else counted_domain(domain, plan)
    pairs = planned_pairs(coarse, plan, spec.evaluation.targets) if _first_round(plan) else []
    planned = dict(_planned(pairs, plan, tests))
    noisy = {names: sigma > rows / coarse.cells(names) for names, sigma in planned.items()}
    noise = [_margin_noise(c, coarse, plan, planned) for c in domain.columns]
    columns = list[ColumnProspect]()
    for column in _columns(domain, noise, rows, noisy):
        columns.append(column)
        if counted:
            counted(column)
    return ExpectedQuality(
        columns=tuple(columns),
        tv1=fmean(c.tv1 for c in columns),
        tables=len(noisy),
        noisy_tables=sum(noisy.values()),
        weakest_correlation=_weakest_correlation(coarse, plan, rows, len(pairs)),
        tests_on_levels=tests is not None and tests.tables != () and tests.counted is None,
        open_pairs=tests.pairs if tests else None,
        decidable_pairs=tests.decidable if tests else None,
        claims=tuple((c, w if w < math.inf else None) for c, w in (tests.claims if tests else ())),
        warnings=tuple(_warnings(columns, domain, tests, rows)),
    )


def _first_round(plan: ReleasePlan) -> AdaptiveMarginals | None:
    """That of mode predict."""
    return plan.in_graph(ALL, AdaptiveMarginals) or plan.in_graph(SCREENED, AdaptiveMarginals)


def counted_domain(domain: Domain, plan: ReleasePlan) -> Domain:
    """The domain on which tables of more than one column are counted. Mode predict groups fine bins
    where tables alone make the model.
    """
    if _first_round(plan) is None or plan.train is not None:
        return domain
    return equal_groups(domain, [stand_in_law(c) for c in domain.columns]).coarse


def _planned(
    pairs: Sequence[Pair], plan: ReleasePlan, tests: GraphTests | None
) -> Iterator[tuple[Columns, float]]:
    """The tables of more than one column that are planned before any is seen, with their noise."""
    if plan.pairs:
        yield from zip(plan.pairs.tables, plan.pairs.sigmas, strict=True)
    if tests:
        yield from ((names, tests.sigma) for names in tests.tables if len(names) > 1)
    if pairs and (predicted := _first_round(plan)):
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
    if _first_round(plan) and (again := plan.in_graph(COLUMNS, AdaptiveMarginals)):
        own = 1 / math.hypot(1 / own, 1 / (again.noise_multiplier * math.sqrt(len(coarse))))
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
            ASSUMED.hidden * sigma,
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
    if not column.ordered or len(body) <= SmoothingSettings.few_levels:
        rng = np.random.default_rng(column.levels)
        noisy = (law + rng.normal(0, noise, len(law)) for _ in range(ASSUMED.draws))
        return fmean(float(np.abs(project_to_simplex(p) - law).sum()) / 2 for p in noisy)
    mass, alone = float(law[body].sum()), column.levels - len(body)
    whole = noise * math.sqrt(len(body)) / mass
    smooth = np.interp(math.log2(whole), SMOOTHED_FROM + np.arange(len(SMOOTHED)), SMOOTHED)
    if math.log2(whole) < SMOOTHED_FROM:
        smooth = SMOOTHED[0] * whole / 2**SMOOTHED_FROM
    return min(1.0, mass * float(smooth) + alone * noise / math.sqrt(2 * math.pi))


def _weakest_correlation(
    coarse: Domain, plan: ReleasePlan, rows: float, pairs: int
) -> float | None:
    """The least correlation of two numbers that the first two rounds of mode predict, of so many
    `pairs`, show together.

    None in other modes, and without numbers.

    In a table of C cells of equal mass a correlation r moves the trend, a contrast of norm 1, by r
    rows / sqrt(C), with the variance sigma^2 + rows / C [derived here]. Its score on a screen of
    scale s is 2 / pi r rows; of m independent pairs the k-th largest is about s log(m / k).
    """
    sizes = [len(body_of(c)) for c in coarse.columns if c.ranged]
    rounds = [r for n in (ALL, SCREENED, CHOSEN) if (r := plan.in_graph(n, AdaptiveMarginals))]
    if len(sizes) < 2 or not pairs:
        return None
    precision = math.fsum(1 / (r.noise_multiplier**2 * pairs) for r in rounds)
    count = median(sizes) ** 2
    weakest = ASSUMED.seen * math.sqrt(count * (1 / precision + rows / count)) / rows
    if screen := plan.in_graph(SCREEN, PairScreen):
        rarity = math.log(max(1.0, math.comb(len(coarse), 2) / screen.kept))
        weakest = max(weakest, math.pi / 2 * screen.noise * MOVES * rarity / rows)
    return min(1.0, weakest)


def _warnings(
    columns: Sequence[ColumnProspect], domain: Domain, tests: GraphTests | None, rows: float
) -> Iterator[str]:
    """On columns that noise drowns, and on bins that are too fine for the tests of a graph: all
    other uses of tables smooth them.
    """
    tv1 = fmean(c.tv1 for c in columns)
    if tv1 > ASSUMED.poor_tv1:
        worst = max(columns, key=lambda c: c.tv1)
        yield say_of_plan("noise_is_large", tv1=tv1, worst=worst)
    if tests is None:
        return
    if tests.pairs and tests.decidable < tests.pairs / 2:
        yield say_of_plan("few_pairs", tests=tests, medium=ASSUMED.medium)
    if tests.claims and median(w for _, w in tests.claims) > ASSUMED.medium:
        yield say_of_plan("few_claims", tests=tests, medium=ASSUMED.medium)
    advice = list(too_many_bins(tests, domain.columns, rows))
    yield from advice[: ASSUMED.advice]
    if len(advice) > ASSUMED.advice:
        more = len(advice) - ASSUMED.advice
        yield f"{more} more columns have too many bins for the graph's tests"


# --- the tests of a graph ---


@dataclass(frozen=True)
class GraphTests:
    """The tests that a plan has for a graph: `tables` of columns, their noise `sigma`, and the
    `level` of each test.

    Mode validate tests `claims`: each with the least effect that is seen with probability .8; with
    `less` of the noise half of them would see a medium one (None: not with a 32nd of it). Mode
    learn tests `pairs` of columns (those that its screen keeps, if it has one), and sees a medium
    effect in `decidable` of them with probability .8; else both are 0. `counted` has the groups of
    bins on which a search will count fine columns, as far as stand-in laws say; None
    where levels are counted. `whole`: one table has all columns.
    """

    tables: tuple[Columns, ...]
    sigma: float
    level: float
    pairs: int = 0
    decidable: int = 0
    counted: Domain | None = None
    whole: bool = False
    claims: tuple[tuple[str, float], ...] = ()
    less: float | None = None


def graph_tests(
    spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, rows: float
) -> GraphTests | None:
    """The tests of the spec's mode; None where tables test nothing, or the graph is too wide."""
    if spec.graph.mode == "learn":
        return _search(spec, domain, plan, rows)
    if spec.graph.mode != "validate" or len(domain) > ASSUMED.columns:
        return None
    graph = CausalGraph.from_spec(spec.graph, domain.names)
    by_moments, tables = plan.in_graph("moments", MomentMatrix), tuple[Columns, ...]()
    possible = implications(
        graph, domain, max_cells=math.inf if by_moments else VALIDATION.max_cells
    )
    planned = plan.in_graph("validate", AdaptiveMarginals)
    if planned:
        tables = required_tables(possible, domain)
        measured = set(map(frozenset, tables))
        possible = tuple(claim for claim in possible if measured.issuperset(claim.tables))
    if not possible or not (planned or by_moments):
        return None
    level = spec.graph.level / len(possible)
    asked = _some(possible, ASSUMED.asked)
    sigma = planned.choose(tables).sigma if planned else 0.0

    def weakest(part: float) -> Probabilities:
        if by_moments:
            from synthdp.graph.contrib.rcit_pc import foreseen

            queries = [(c.x, c.y, c.given) for c in asked]
            tests = foreseen(by_moments.scaled(part), rows)
            found = tests.answer(queries, level=level, margin=0.0)
            return np.array([answer.detectable for answer in found])
        seen = _stand_in_tables(domain, plan, tables, rows, part * sigma)
        return weakest_effects_of(seen, asked, level=level)

    now, less = weakest(1.0), None
    if np.median(now) > ASSUMED.medium:
        halves = (0.5**k for k in range(1, 6))
        less = next((p for p in halves if np.median(weakest(p)) <= ASSUMED.medium), None)
    claims = sorted(zip(map(str, asked), map(float, now), strict=True), key=lambda c: c[1])
    return GraphTests(tables, sigma, level, claims=tuple(claims), less=less)


def _stand_in_tables(
    domain: Domain, plan: ReleasePlan, tables: Sequence[Columns], rows: float, sigma: float
) -> NoisyTables:
    """`tables` of independent columns of stand-in laws, and the one-way tables of a release."""
    laws = {column.name: law_for_tests(column) for column in domain.columns}

    def table(names: Columns, noise: float) -> NoisyTable:
        law = reduce(np.multiply.outer, [laws[name] for name in names])
        return NoisyTable(names, rows * law, noise)

    known = zip(plan.measure.tables, plan.measure.sigmas, strict=True) if plan.measure else ()
    return NoisyTables(
        [table(names, sigma) for names in tables], [table(names, noise) for names, noise in known]
    )


def _search(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan, rows: float) -> GraphTests | None:
    open_pairs = Knowledge.from_spec(spec.graph, domain.names).undecided_pairs
    whole = plan.in_graph("joint", AdaptiveMarginals)
    planned = whole or plan.in_graph("pairs", AdaptiveMarginals)
    if planned is None:
        return None
    if screen := plan.in_graph(SCREEN, PairScreen):  # which ones it keeps is not known before
        open_pairs = _some(open_pairs, screen.kept)
    counted: Domain | None = None
    if fine_columns(domain) and plan.in_graph(COLUMNS, AdaptiveMarginals) is not None:
        laws = {column.name: law_for_tests(column) for column in fine_columns(domain)}
        margins = [NoisyTable((name,), rows * law, 0.0) for name, law in laws.items()]
        sigma = planned.choose(open_pairs).sigma
        domain = counted = groups_by_noise(domain, margins, sigma).coarse
    small = tuple(pair for pair in open_pairs if domain.cells(pair) <= MeasurePlan.max_cells)
    if not small:
        return None
    tables: tuple[Columns, ...] = (domain.names,) if whole else small
    sigma, level = planned.choose(tables).sigma, spec.graph.level / len(open_pairs)
    seen = _seen(domain, _some(small, ASSUMED.asked), rows, sigma, level, whole=whole is not None)
    decidable = round(len(small) * seen)
    return GraphTests(
        tables, sigma, level, len(open_pairs), decidable, counted, whole=whole is not None
    )


def _some(items: Sequence[T], most: int) -> tuple[T, ...]:
    most = min(most, len(items))
    return tuple(items[i * len(items) // most] for i in range(most))


def _seen(
    domain: Domain, pairs: Sequence[Pair], rows: float, sigma: float, level: float, *, whole: bool
) -> float:
    """Share of the pairs whose test sees a medium effect; ordered columns are tested for trends."""
    laws = {column.name: law_for_tests(column) for column in domain.columns}
    summed = domain.cells(domain.names) if whole else 1  # a pair's cell sums those of the table
    known = NoisyTables(
        NoisyTable(
            pair,
            rows * reduce(np.multiply.outer, [laws[name] for name in pair]),
            sigma * math.sqrt(summed / domain.cells(pair) if whole else 1.0),
        )
        for pair in pairs
    )
    queries = [(a, b, ()) for a, b in pairs]
    weakest = known.weakest(queries, level=level)
    trends = OrderedTests(domain, known, {})
    ordered = [i for i, query in enumerate(queries) if trends.applies(query) and not whole]
    if ordered:
        asked = [queries[i] for i in ordered]
        answers = trends.trend_answers(asked, level=level / 2, margin=0.0)
        weakest[ordered] = np.minimum(weakest[ordered], [a.detectable for a in answers])
    return float(np.mean(weakest <= ASSUMED.medium))


def too_many_bins(tests: GraphTests, columns: Sequence[ColumnDomain], rows: float) -> Iterator[str]:
    """Advice for each column whose bins hide a medium link from the tests, in words.

    The rule: the table of the column and another of as many levels, all of which hold as many rows,
    is not measured, or has more noise than rows in a cell, and its test does not see a medium
    effect with probability .8. The advice is the most bins with which it does. Where the whole
    table is measured at once, its noise is that of all its columns, and there is no advice, nor
    where fine columns are counted on groups.
    """
    if tests.counted or tests.whole or not tests.tables:
        return
    cells = MeasurePlan.max_cells
    most = math.isqrt(cells)  # levels of two columns with as many that are measured together
    for column in columns:
        bins, levels = len(body_of(column)), column.levels
        held = rows / levels**2
        measured = levels <= most
        if not column.ranged or bins < 3 or (measured and tests.sigma <= held):
            continue
        few = _most_levels(tests, min(levels, most), rows)
        left = few - (levels - bins)
        if few < levels and left >= 2:
            yield say_of_plan(
                "many_bins",
                column=column.name,
                levels=levels,
                bins=bins,
                held=held,
                sigma=tests.sigma,
                medium=ASSUMED.medium,
                most_cells=None if measured else cells,
                left=left,
                rows=rows / few**2,
            )


def _most_levels(tests: GraphTests, most: int, rows: float) -> int:
    """The most levels, up to `most`, of two columns between which a medium effect is seen."""

    def seen(levels: int) -> bool:
        table = np.full((1, 1, levels, levels), rows / levels**2)
        mixture = mixture_of(table, np.array([tests.sigma]))
        weakest = weakest_effects(mixture, level=tests.level, rng=np.random.default_rng(0))
        return bool(weakest[0] <= ASSUMED.medium)

    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seen(middle) else (low, middle)
    return low


# --- gates ---
#
# The noise of a published score is known before any row is read, and so is about how far single
# columns will be off.


def gate_warnings(spec: ReleaseSpec, plan: ReleasePlan, tv1: float) -> Iterator[str]:
    """A warning for each gate that `tv1`, the expected distance of single columns, would fail, and
    for each on a published score whose noise decides it in part.
    """
    for gate in spec.gates:
        if gate.metric in ("tv1", "tv1_dp") and gate.at_most is not None and tv1 > gate.at_most:
            yield say_of_plan("gate_fails", gate=gate, tv1=tv1)
        elif gate.metric in DP_METRICS and plan.scores is not None:
            yield from _by_chance(gate, 2 * score_noise(spec, plan, gate), tv1)


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
    """A warning where `noise`, either way, is not small beside the room that a gate leaves. A gate
    that asks for a score no better than something says nothing of room.
    """
    bound = _bound(gate)
    if gate.metric == "tv1_dp":
        room, since = bound - tv1, f"single columns are expected to be off by about {tv1:.2g}"
    elif gate.metric == "tv2_dp":
        room, since = bound, "a perfect table is off by 0"
    else:
        room, since = 1 - bound, "no accuracy is above 1"
    asked = gate.at_least if gate.metric == "tstr_accuracy_dp" else gate.at_most
    if noise <= ASSUMED.room * room or asked is None:
        return
    leaves = {"bound": bound, "room": max(0.0, room), "since": since}
    yield say_of_plan("gate_by_chance", gate=gate, noise=noise, **leaves)


def _bound(gate: Gate) -> float:
    return gate.at_most if gate.at_most is not None else gate.at_least or 0.0


# --- stand-in laws: how values are taken to spread before any row is read ---


def stand_in_law(column: ColumnDomain) -> Probabilities:
    """Probabilities `[levels]` of a column that nothing is known of.

    >>> stand_in_law(ColumnDomain("x", "categorical", ("a", "b"), False)).round(2).tolist()
    [0.67, 0.33]
    """
    law: Probabilities = 1 / np.arange(1.0, column.levels + 1)
    if column.ranged:
        body = body_of(column)
        place = (np.arange(len(body)) + 0.5) / len(body)
        bell = np.exp(-(((place - ASSUMED.bell_centre) / ASSUMED.bell_width) ** 2) / 2)
        law = np.full(column.levels, ASSUMED.other_levels / max(1, column.levels - len(body)))
        law[body] = bell / bell.sum() * (1 - ASSUMED.other_levels)
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
    if column.ranged and len(body) <= SmoothingSettings.few_levels:
        law[body] = law[body].mean()
    return law
