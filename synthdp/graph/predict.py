"""Mode predict: arrows that predict, and that claim nothing about causes.

Every pair of columns is measured once, at low precision. Pairs that show a dependence are then
measured again, as many as make the expected error of all tables least, and for each column that is
often missing the pair that is likeliest missing together. The arrows are all pairs
that show a dependence in the end, from the earlier column to the later one. The order is that of
the tiers, then that of the spec, with targets last in their tier: a target is predicted, and
predicts nothing that could come before it.

Both rounds count tables that are chosen from public or released facts
(`privacy.mechanisms.marginals.AdaptiveMarginals`); all else is post-processing.

Noisy two-way tables without most of their noise: free post-processing.

A noisy table is a signal plus white noise of known size. The signal is taken to be a Gaussian
process: the ratio of the table to the product of its margins is 1 plus a function g of mean
zero, and g is alike at neighbouring levels where a column is ordered. The posterior mean is the
smoothed table [Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), Section
2.2]. How strong and how smooth the signal is, the table says itself: the marginal likelihood
chooses among a few kernels and strengths (empirical Bayes, Section 5.4 there). A table that
shows no dependence beyond its noise becomes the product of its margins.

With margins r and c, kernels K and L, strength s and noise v per cell, the signal's covariance
is s (RKR) x (CLC), with R = diag(r) and C = diag(c): a Kronecker product, so that two small
eigendecompositions solve all of it [Saatci, "Scalable Inference for Structured Gaussian Process
Models" (2011), Chapter 5].

In a first round all pairs of columns are counted, or those that a screen chooses. All pairs share
the noise of the first round. Where columns are many and rows are few, that buries each of them,
also that of a column and another which is nearly a function of it. So a part of the budget tells
which pairs look most dependent (`privacy.mechanisms.pair_screen`). These are counted, with all
pairs of targets: what predicts a target may be too weak for a screen. Near-functions are lost by
noise first and missed most, so a third round measures once more the strongest pairs, and those that
the screen told first. Whether there is a screen follows from public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.graph import margins as smoothing
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.discovery import Releaser
from synthdp.graph.discovery.measuring import COLUMNS, SCREEN, measure_round, screen_round, screened
from synthdp.graph.knowledge import Pair
from synthdp.graph.level_groups import LevelLaw, equal_groups, groups_of, on_groups
from synthdp.graph.margins import Floats, Probabilities
from synthdp.graph.missing_patterns import likely_partners, missing_as_one, missing_groups
from synthdp.graph.prior import PublicRows, paired, shrunk_to
from synthdp.graph.waves import Tables, with_earlier
from synthdp.privacy.calibration import adaptive_round
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyTable
from synthdp.privacy.mechanisms.pair_screen import MAX_LEVELS, PairScreen
from synthdp.privacy.plan import MechanismFactory, ReleasePlan, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.privacy.table import Columns
from synthdp.spec.model import Graph

ALL, SCREENED, CHOSEN = "all pairs", "screened pairs", "chosen pairs"
STRONGEST = "strongest pairs"
PREDICTED = (ALL, SCREENED, CHOSEN, STRONGEST)
"""Rounds of tables. The first has all pairs, or those of a screen; the third follows a screen."""
PREDICTION_SHARES: Mapping[str, float] = {ALL: 0.35, CHOSEN: 0.65}
"""Shares of the graph budget. On five public tables .15 and .85 gave 3% more TV2, 1 and 0 6%."""
SCREENED_SHARES: Mapping[str, float] = {
    COLUMNS: 0.1,
    SCREEN: 0.15,
    SCREENED: 0.25,
    CHOSEN: 0.3,
    STRONGEST: 0.2,
}
"""Shares where a screen comes first. Columns are counted alone, since few pairs count them."""


@dataclass(frozen=True)
class RoundSettings:
    """Which pairs are counted.

    `max_pairs`: most pairs of the first round without a screen, those of targets first, then those
    of columns side by side; `max_screened`: those that a screen looks at, likewise; `max_cells`: of
    a table.

    `clear`: rows over the noise of a cell, if all pairs shared the budget of the graph, below which
    a screen of `min_columns` or more keeps `kept_per_column` pairs besides those of targets. Of
    more than `max_pairs` pairs it keeps as many where rows are clear.
    """

    max_pairs: int = 2000
    max_screened: int = 500_000
    max_cells: int = 1 << 16
    clear: float = 50.0
    min_columns: int = 40
    kept_per_column: int = 2


ROUNDS = RoundSettings()


def prediction_rounds(
    domain: Domain, rows_over_noise: float, *, counts_only: bool = False
) -> Mapping[str, MechanismFactory]:
    """What mode predict may release, by name: public facts decide.

    `rows_over_noise` are the rows over the noise of a table that has the budget for itself. Of rows
    that are counted elsewhere, and never seen, there is no screen.
    """
    columns, pairs = len(domain), math.comb(len(domain), 2)
    thin = rows_over_noise < ROUNDS.clear * math.sqrt(pairs) and columns >= ROUNDS.min_columns
    if counts_only or not (thin or pairs > ROUNDS.max_pairs):
        return {n: adaptive_round(domain, part) for n, part in PREDICTION_SHARES.items()}
    kept = ROUNDS.kept_per_column * columns if thin else ROUNDS.max_pairs
    rounds = {n: adaptive_round(domain, part) for n, part in SCREENED_SHARES.items()}
    return rounds | {SCREEN: screen_round(domain, kept, SCREENED_SHARES[SCREEN])}


def possible_pairs(
    domain: Domain, targets: Collection[str], *, screened: bool = False
) -> list[Pair]:
    """The pairs that the first round counts, or a screen before it looks at, from public facts."""
    most, levels = ROUNDS.max_pairs, ROUNDS.max_cells
    if screened:
        most, levels = ROUNDS.max_screened, MAX_LEVELS
    names = [column.name for column in domain.columns if column.levels <= levels]
    small = [p for p in combinations(names, 2) if domain.cells(p) <= ROUNDS.max_cells]

    def rank(pair: Pair) -> tuple[bool, int]:
        return set(targets).isdisjoint(pair), domain.index(pair[1]) - domain.index(pair[0])

    return sorted(small, key=rank)[:most]


def planned_pairs(domain: Domain, plan: ReleasePlan, targets: Collection[str]) -> list[Pair]:
    """About the pairs that the first round of `plan` counts: which a screen keeps is not known
    before, and some stand for them.
    """
    screen = plan.in_graph(SCREEN, PairScreen)
    if screen is None:
        return possible_pairs(domain, targets)
    pairs = possible_pairs(domain, targets, screened=True)
    always = [pair for pair in pairs if not set(targets).isdisjoint(pair)]
    others = pairs[len(always) :]
    kept = min(screen.kept, len(others))
    return always + [others[i * len(others) // kept] for i in range(kept)]


def alone(tables: Sequence[NoisyTable], groups: LevelGroups) -> LevelLaw:
    """What tables of each column alone say: its margins do to choose pairs by."""
    own = [table for table in tables if len(table.columns) == 1 and not table.starts]
    return LevelLaw(groups, [smoothing.pooled(own, (name,)) for name in groups.domain.names])


def screened_pairs(
    releaser: Releaser, law: LevelLaw, targets: Collection[str]
) -> Released[tuple[Pair, ...]]:
    """The pairs that the first round counts: all of targets, and those that a screen tells, by the
    `law` of each column alone, which come last, the most dependent first.
    """
    pairs = possible_pairs(law.groups.coarse, targets, screened=True)
    always = tuple(pair for pair in pairs if not set(targets).isdisjoint(pair))
    told = screened(releaser, pairs[len(always) :], law)
    return told.map(lambda chosen: (*always, *chosen))


@dataclass(frozen=True)
class PredictSettings:
    """Tuning of the search and of the smoothing of pairs.

    `target_weight`: how much more the error of a pair counts that holds a target; `tried_counts`:
    most numbers of tables that are tried for the second round, each a share above the last;
    `strong`: nats from which a pair is of the third round; `first`: so many that a screen told are.

    `min_evidence`: gain in log likelihood below which two columns count as independent, in nats: of
    independent pairs, noise alone passes it with a probability of .03 (2 x 2 levels) to .17
    (20 x 20 ordered levels); 2 would be passed by .005 to .05. `cut`: share of rows that cutting
    a table at zero adds, above which the law of few cells is tried; `few_cells_evidence`: by how
    much that law must explain a table better. `strengths`: variances of g.
    `rough_range` and `rough_nugget`, `smooth_range` and `smooth_nugget`: of the two kernels of
    ordered columns, Ornstein-Uhlenbeck and squared distance. `min_rows`: a margin in a table of two
    columns is at least that of so many rows. `certain`: evidence of a pair that is missing
    together, in nats: it is dependent, whatever else is.
    """

    target_weight: float = 2.0
    tried_counts: int = 100
    strong: float = 0.5
    first: int = 12
    min_evidence: float = 1.0
    cut: float = 0.02
    few_cells_evidence: float = 10.0
    strengths: tuple[float, ...] = tuple(4.0**k for k in range(-6, 3))
    rough_range: float = 0.6
    rough_nugget: float = 0.02
    smooth_range: float = 0.35
    smooth_nugget: float = 1e-4
    min_rows: float = 2.0
    certain: float = 100.0


SETTINGS = PredictSettings()


def predict(
    releaser: Releaser,
    settings: Graph,
    domain: Domain,
    known: Released[tuple[NoisyTable, ...]],
    targets: Collection[str],
    prior: PublicRows | None = None,
    earlier: tuple[Tables, ...] = (),
) -> Released[CausalGraph]:
    """Measure pairs, and draw an arrow for each pair that shows a dependence.

    `known` are noisy tables that were paid for before, all one-way tables among them. Where the
    tables alone make the model, pairs are counted on groups of levels: training would see levels.
    What is measured does not depend on a `prior`; what then shows a dependence may. Waves of a
    series have the groups of the one before, and use the tables of all `earlier` ones.
    """
    law = alone(with_earlier(known.value, earlier), LevelGroups(domain, {}))
    if releaser.plan.train is None:
        before = groups_of(earlier[-1], domain) if earlier else LevelGroups(domain, {})
        own = equal_groups(domain, law.margins)
        law = replace(law, groups=before if before.starts.keys() == own.starts.keys() else own)
    groups = law.groups
    screens, everything = SCREEN in releaser.plan.graph, known
    pairs = possible_pairs(groups.coarse, targets)
    if pairs and screens:
        columns = measure_round(releaser, COLUMNS, [(name,) for name in domain.names])
        everything = known.zip(columns).map(lambda both: (*both[0], *both[1]))
        law = alone(everything.value, groups)
        told = screened_pairs(releaser, law, targets)
        pairs, everything = [*told.value], everything.zip(told).map(lambda both: both[0])
    if pairs:
        first = measure_round(releaser, SCREENED if screens else ALL, pairs, groups)
        everything = everything.zip(first).map(lambda both: (*both[0], *both[1]))
        planned = needed(releaser.plan.in_graph(CHOSEN, AdaptiveMarginals), graph_purpose(CHOSEN))
        seen = pair_tables(LevelLaw(groups, with_earlier(everything.value, earlier)), law)
        again = worth_measuring(seen, planned.noise_multiplier, targets)
        partners = likely_partners(everything.value, domain.columns)
        again += [pair for pair in partners if pair not in again]
        second = measure_round(releaser, CHOSEN, again or pairs, groups)
        everything = everything.zip(second).map(lambda both: (*both[0], *both[1]))
        if STRONGEST in releaser.plan.graph:
            seen = pair_tables(LevelLaw(groups, with_earlier(everything.value, earlier)), law)
            first_told = [p for p in pairs if not targets_in(p, targets)][: SETTINGS.first]
            third = measure_round(releaser, STRONGEST, strongest(seen, first_told), groups)
            everything = everything.zip(third).map(lambda both: (*both[0], *both[1]))
    order = prediction_order(settings, domain.names, targets)
    place = {name: i for i, name in enumerate(order)}

    def graph(tables: tuple[NoisyTable, ...]) -> CausalGraph:
        seen = pair_tables(LevelLaw.by_rows(with_earlier(tables, earlier), domain, prior))
        arrows = (sorted(p, key=place.__getitem__) for p in seen.dependent)
        edges = (GraphEdge(a, b, directed=True, provenance="predictive") for a, b in arrows)
        return CausalGraph(domain.names, tuple(edges))

    return everything.map(graph)


def targets_in(pair: Pair, targets: Collection[str]) -> int:
    return sum(name in targets for name in pair)


def worth_measuring(
    seen: PairTables, noise_multiplier: float, targets: Collection[str]
) -> list[Pair]:
    """The pairs that the second round measures: those that leave the least expected error.

    k tables share the round's budget, so each gets noise `noise_multiplier` sqrt(k) per cell, which
    is pooled with the noise of the first round. For each k the k pairs with the largest expected
    gain are taken; the best k wins. Of many k only `tried_counts` are tried. Pairs with a target
    are measured again whatever the first round says: what it does not show may still predict.
    """
    predicting = {p for p in seen.pairs if targets_in(p, targets)}
    sure = [p for p in seen.pairs if p in predicting and not seen.pairs[p].dependent]
    best, chosen = 0.0, list[Pair]()
    now = {p: seen.pairs[p].expected_error(seen.sigmas[p] / seen.rows) for p in seen.dependent}
    counts = np.geomspace(1, len(now), SETTINGS.tried_counts).round() if now else ()
    for count in map(int, np.unique(counts)):
        sigma = noise_multiplier * math.sqrt(count + len(sure))
        gains = dict[Pair, float]()
        for p, error in now.items():
            both = 1 / math.hypot(1 / sigma, 1 / seen.sigmas[p])
            weight = SETTINGS.target_weight if p in predicting else 1.0
            gains[p] = (error - seen.pairs[p].expected_error(both / seen.rows)) * weight
        largest = sorted(gains, key=lambda p: -gains[p])[:count]
        gain = math.fsum(gains[p] for p in largest)
        if gain > best:
            best, chosen = gain, largest
    return chosen + sure


def strongest(seen: PairTables, told: Sequence[Pair] = ()) -> list[Pair]:
    """The pairs that the third round measures, the strongest first: at least one, and at most as
    many as columns; then those that a screen `told` first, and that show a dependence.
    """
    information = {pair: table.mutual_information for pair, table in seen.pairs.items()}
    first = sorted(information, key=lambda pair: -information[pair])
    strong = sum(nats >= SETTINGS.strong for nats in information.values())
    chosen = first[: min(max(1, strong), len(seen.margins))]
    return chosen + [p for p in told if p not in chosen and seen.pairs[p].dependent]


def prediction_order(
    settings: Graph, names: Sequence[str], targets: Collection[str]
) -> tuple[str, ...]:
    """All columns in an order in which each is predicted from earlier ones.

    >>> settings = Graph(mode="predict", tiers=(("age",), ("income", "hours")))
    >>> prediction_order(settings, ["income", "hours", "age"], {"income"})
    ('age', 'hours', 'income')
    """
    tier = {name: i for i, members in enumerate(settings.tiers) for name in members}
    last = len(settings.tiers)
    return tuple(sorted(names, key=lambda n: (tier.get(n, last), n in targets, names.index(n))))


class Spectrum(NamedTuple):
    """Eigenvalues `[levels]` and eigenvectors `[levels, levels]` of RKR, for one kernel K."""

    values: Floats
    vectors: Floats


@dataclass(frozen=True)
class Axis:
    """One column of a two-way table: its margin `[levels]`, without a zero, and its kernels.

    The signal is g times this `power` of the margins: noise is white there.
    """

    column: ColumnDomain
    margin: Floats
    power: float = 1.0

    @cached_property
    def spectra(self) -> tuple[Spectrum, ...]:
        """One for each kernel that a column of this type may have."""
        found, scale = [], self.margin**self.power
        for kernel in _kernels(self.column):
            # g has mean zero under the margin: the kernel is centred before it is scaled.
            centre = np.eye(len(self.margin)) - self.margin
            scaled = scale[:, None] * (centre @ kernel @ centre.T) * scale
            values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
            found.append(Spectrum(np.maximum(values, 0), vectors))
        return tuple(found)


def axis(column: ColumnDomain, margin: Floats, rows: float) -> Axis:
    """The axis of a column with the `margin` `[levels]`, in a table of `rows` rows."""
    raised = np.maximum(margin, SETTINGS.min_rows / rows)
    return Axis(column, raised / raised.sum())


@dataclass(frozen=True)
class SmoothPair:
    """A two-way table after smoothing.

    `probabilities` is `[levels, levels]`; `evidence` the gain in log likelihood over independence,
    in nats; `strength`, `first` and `second` are the variance of g and the chosen kernels. Where
    most cells are empty, about `full` hold rows (`margins.few_cells`); else that is 0. So much of
    the table is the `prior`'s.
    """

    probabilities: Floats
    evidence: float
    strength: float
    first: Spectrum
    second: Spectrum
    full: float = 0.0
    prior: float = 0.0

    @property
    def dependent(self) -> bool:
        """Whether the table shows a dependence."""
        return self.evidence > SETTINGS.min_evidence

    @property
    def mutual_information(self) -> float:
        """Of the two columns, in nats."""
        table = np.maximum(self.probabilities, 1e-300)
        return float((table * np.log(table / np.outer(table.sum(1), table.sum(0)))).sum())

    def expected_error(self, sigma: float) -> float:
        """Expected total variation from the truth if it is measured with noise `sigma` per cell.

        `sigma` is in probabilities. The posterior's standard deviations give it: a normal error of
        standard deviation t has the mean size sqrt(2 / pi) t.
        """
        if not self.dependent:
            return 0.0
        if self.full:
            return math.sqrt(2 / math.pi) / 2 * self.full * sigma
        signal = self.strength * np.outer(self.first.values, self.second.values)
        left = signal * sigma**2 / (signal + sigma**2)
        variance = (self.first.vectors**2) @ left @ (self.second.vectors**2).T
        return float(math.sqrt(2 / math.pi) / 2 * np.sqrt(np.maximum(variance, 0)).sum())


def smoothed_pair(
    first: Axis, second: Axis, shares: Floats, sigma: float, around: Floats | None = None
) -> SmoothPair:
    """The noisy `shares` `[levels, levels]` of two columns, of deviation `sigma`, smoothed `around`
    a table with their margins: that of columns that are independent, if no other is given.
    """
    if around is None:
        around = np.outer(first.margin, second.margin)
    best = _signal(first, second, shares - around, sigma)
    table = np.maximum(around + best.probabilities, 0) if best.dependent else around
    if table.sum() > 1 + SETTINGS.cut:
        few = smoothing.few_cells(shares, first.margin, second.margin, sigma)
        evidence = few.likelihood - _likelihood(shares - around, sigma)
        if evidence > best.evidence + SETTINGS.few_cells_evidence:
            best, table = replace(best, evidence=evidence, full=few.full), few.means
    return replace(best, probabilities=table / table.sum())


def _likelihood(noise: Floats, sigma: float) -> float:
    """Log likelihood of white `noise`, less its constant."""
    return -0.5 * float((math.log(sigma**2) + noise**2 / sigma**2).sum())


def _signal(first: Axis, second: Axis, rest: Floats, sigma: float) -> SmoothPair:
    """The likeliest signal in `rest` `[levels, levels]`, which has white noise, as if shares."""
    nothing, best = _likelihood(rest, sigma), None
    for a, b in product(first.spectra, second.spectra):
        turned, spectrum = a.vectors.T @ rest @ b.vectors, np.outer(a.values, b.values)
        for strength in SETTINGS.strengths:
            likelihood, kept = smoothing.shrunk(turned, strength * spectrum, sigma**2)
            if best is None or likelihood - nothing > best.evidence:
                best = SmoothPair(kept, likelihood - nothing, strength, a, b)
    assert best is not None
    signal = best.first.vectors @ best.probabilities @ best.second.vectors.T
    return replace(best, probabilities=signal)


def smoothed_counts(first: Axis, second: Axis, shares: Floats, rows: float) -> SmoothPair:
    """The `shares` `[levels, levels]` of so many public `rows` without their chance, which is white
    once it is divided by the root of what independent columns have.
    """
    axes = Axis(first.column, shares.sum(1), 0.5), Axis(second.column, shares.sum(0), 0.5)
    apart = np.outer(axes[0].margin, axes[1].margin)
    best = _signal(*axes, (shares - apart) / np.sqrt(apart), rows**-0.5)
    signal = best.probabilities * np.sqrt(apart) * best.dependent
    table = np.maximum(apart + signal, 0)
    return replace(best, probabilities=table / table.sum())


def _with_prior(
    alone: SmoothPair, first: Axis, second: Axis, shares: Floats, sigma: float, public: Floats
) -> SmoothPair:
    """The mean over three explanations of noisy `shares`, by their likelihoods: the pair `alone`;
    one that is shrunk to the shares of `public` counts, and one that is smoothed around them
    (`graph.prior`).
    """
    apart, rows = np.outer(first.margin, second.margin), float(public.sum()) + 1
    counted = (public + apart) / rows
    known = smoothed_counts(first, second, counted, rows)
    prior, base = (
        fitted_to_margins(table, first.margin, second.margin)
        for table in (counted, known.probabilities)
    )
    base /= base.sum()
    found = shrunk_to(prior / prior.sum(), shares, sigma, rows)
    smooth = smoothed_pair(first, second, found.shares, found.sigma)
    near = smoothed_pair(first, second, shares, sigma, base)
    nothing = _likelihood(shares - apart, sigma)
    gain = _likelihood(shares - base, sigma) - nothing + near.evidence * near.dependent
    gains = [alone.evidence * alone.dependent, found.likelihood - nothing, gain]
    parts = softmax(gains)
    tables = np.tensordot(parts, [p.probabilities for p in (alone, smooth, near)], 1)
    evidence = parts @ [alone.evidence, smooth.evidence, max(gain, known.evidence)]
    used = parts[1] * found.used + parts[2] * np.minimum(base, near.probabilities).sum()
    return replace(smooth, probabilities=tables, evidence=float(evidence), prior=float(used))


def fitted_to_margins(table: Floats, rows: Floats, columns: Floats, *, rounds: int = 20) -> Floats:
    """`table` `[levels, levels]` with the margins `rows` and `columns`: proportional fitting."""
    fitted = table + 1e-9 * np.outer(rows, columns)
    for _ in range(rounds):
        fitted = fitted * (rows / np.maximum(fitted.sum(1), 1e-300))[:, None]
        fitted = fitted * (columns / np.maximum(fitted.sum(0), 1e-300))
    return fitted


def _kernels(column: ColumnDomain) -> Sequence[Floats]:
    """Covariances of g along a column `[levels, levels]`: levels alone, rough, smooth."""
    alone, found = np.eye(column.levels), []
    bodies = [smoothing.body_of(column)]
    if len(column.spikes) > 1:  # numbers that are common may go on where bins begin
        bodies.append(np.argsort(column.centres, kind="stable"))
    for body in bodies:
        if not column.ordered or len(body) < 2:
            continue
        distance, inner = smoothing.distances(len(body)), np.ix_(body, body)
        rough, smooth = alone.copy(), alone.copy()
        rough[inner] = np.exp(-distance / SETTINGS.rough_range)
        smooth[inner] = np.exp(-((distance / SETTINGS.smooth_range) ** 2) / 2)
        found += [rough + SETTINGS.rough_nugget * alone, smooth + SETTINGS.smooth_nugget * alone]
    return alone, *found


@dataclass(frozen=True)
class PairTables:
    """Margins and two-way tables after smoothing, by the names of their columns.

    All are over the levels of the coarse domain of the tables' groups. `margins` are probabilities
    `[levels]`; `pairs` has one entry for each pair that some table contains, in the order of the
    domain; `sigmas` is the noise of each pair's table, `rows` the noisy number of rows, and
    `patterns` has the columns that are missing together.
    """

    rows: float
    margins: Mapping[str, Probabilities]
    pairs: Mapping[Pair, SmoothPair]
    sigmas: Mapping[Pair, float]
    patterns: tuple[tuple[str, ...], ...] = ()

    @property
    def dependent(self) -> tuple[Pair, ...]:
        """Pairs whose tables show a dependence, in the order of the domain."""
        return tuple(pair for pair, table in self.pairs.items() if table.dependent)

    def has(self, first: str, second: str) -> bool:
        return (first, second) in self.pairs or (second, first) in self.pairs

    def table(self, first: str, second: str) -> Probabilities:
        """The table of two columns `[levels, levels]`, with their margins."""
        turned = (first, second) not in self.pairs
        a, b = (second, first) if turned else (first, second)
        fitted = fitted_to_margins(self.pairs[a, b].probabilities, self.margins[a], self.margins[b])
        return fitted.T if turned else fitted


def prior_used(law: LevelLaw) -> dict[Columns, float]:
    """How much of each table that a law follows is its prior's, 0 to 1, by columns."""
    rows, used = max(1.0, float(smoothing.pooled(law.tables, ()).counts)), dict[Columns, float]()
    for names, public in law.prior.counts.items() if law.prior else ():
        if len(names) > 1:
            used[names] = pair_tables(law).pairs[names[0], names[1]].prior
            continue
        noisy, column = smoothing.with_group_sums(law.tables, names[0]), law.groups.domain[names[0]]
        shares, sigma = noisy.counts / rows, noisy.sigma / rows
        used[names] = smoothing.margin_with_prior(column, shares, sigma, public)[1]
    return used


@lru_cache(maxsize=4)
def pair_tables(law: LevelLaw, margins_of: LevelLaw | None = None) -> PairTables:
    """The law's tables together, each margin from every table that contains it, or of another law,
    then smoothed.
    """
    tables, groups, domain = law.tables, law.groups, law.groups.domain
    rows = max(1.0, float(smoothing.pooled(tables, ()).counts))
    margins = dict(zip(domain.names, (margins_of or law).coarse_margins, strict=True))
    axes = {c.name: axis(c, margins[c.name], rows) for c in groups.coarse.columns}
    pairs: dict[Pair, SmoothPair] = {}
    sigmas: dict[Pair, float] = {}
    holding: dict[Pair, list[NoisyTable]] = {}
    for table in tables:
        for pair in combinations(sorted(table.columns, key=domain.index), 2):
            holding.setdefault(pair, []).append(table)
    for pair in paired(tables, domain.names):
        noisy = smoothing.pooled(
            [replace(on_groups(t, groups), starts={}) for t in holding[pair]], pair
        )
        first, second = (axes[name] for name in pair)
        shares, sigma = noisy.counts / rows, noisy.sigma / rows
        pairs[pair] = smoothed_pair(first, second, shares, sigma)
        if law.prior and (public := law.prior.counts.get(pair)) is not None:
            pairs[pair] = _with_prior(pairs[pair], first, second, shares, sigma, public)
        sigmas[pair] = noisy.sigma
    patterns = missing_groups(tables, domain.columns)
    for pair in (pair for pattern in patterns for pair in combinations(pattern, 2)):
        found = pairs[pair]
        as_one = missing_as_one(found.probabilities, float(margins[pair[0]][-1]))
        pairs[pair] = replace(
            found, probabilities=as_one, evidence=max(found.evidence, SETTINGS.certain)
        )
    return PairTables(rows, margins, pairs, sigmas, patterns)
