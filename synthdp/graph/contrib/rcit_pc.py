"""PC for numeric columns from one noisy moment matrix (a sound form of RCIT and of PCD).

Sources: Strobl et al., arXiv:1702.03877v2 (RCIT); Zhang et al. 2023 (PCD). There are two planned
releases. Noisy one-way tables of the ranged columns turn every column into ranks on [-1, 1],
whatever its units and tails. The moment matrix is that of a polynomial basis of those ranks. Its
degree is a public constant, chosen by the noise that the plan can afford: noise below a fixed share
of a column's variance. All tests of PC-stable, of any order, and all orientation are
post-processing of the matrix.

A pair once found dependent is separated only by a test that explains half of the effect away, or
that could have seen the effect again. Discrete columns of few categories take part through
contrasts of their indicators.

With `graph.orient_share`, links between numbers that PC leaves undirected are oriented by private
additive noise models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, norm

from synthdp.data.basis import Basis, Scale, rank_scale
from synthdp.data.domain import Domain
from synthdp.graph import chi_square
from synthdp.graph import discovery as pc
from synthdp.graph.causal import CausalGraph
from synthdp.graph.chi_square import Answer, Floats, Query, with_eigenvalues
from synthdp.graph.contrib.anm_direction import ORIENT, orient, turn
from synthdp.graph.discovery.orient import surest_colliders, tested_triples
from synthdp.graph.knowledge import Collider, Knowledge, Pair, Pdag, oriented
from synthdp.privacy.mechanisms.anm import OrientationBudget
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.moments import MomentMatrix, NoisyMoments
from synthdp.privacy.plan import MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

MARGINS, MOMENTS = "margins", "moments"  # names of what is planned
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class RcitSettings:
    """Tuning of the search.

    `margins_part`: share of its budget, in squared mu, for the one-way tables; `affordable`:
    largest noise of an entry, as a share of a uniform column's variance, with which a basis of this
    degree is worth it; `max_terms`: most functions of a basis of higher degree; `deviations`: the
    declared norm lies so many standard deviations above the mean of uniform columns, and rows
    beyond it are scaled down; `max_order`: largest conditioning set that separates without being
    sharp, `max_sets`: most sets of one larger size that a pair is tested given, and
    `collider_order`: largest set of the tests for v-structures; `margin`: effect below which a pair
    counts as independent.

    Of its tests: `tolerance`: residual correlation that each given column may leave where there is
    independence, since a regression of low degree may not remove all of the dependence, and
    `max_tolerance`: the largest, however many columns are given; `bent`: share of what is explained
    that is still left by a basis of degree 1 or 2, as a line explains 3 / pi of the variance of a
    normal's ranks; `many`: number of given columns
    from which powers of the tested columns are left out; `min_residual`: share of a function's
    variance that is never explained, as what is left may be noise alone; `ridge`: of the
    regressions, in multiples of the noise's spectral norm; `batch`: queries answered at once.
    """

    margins_part: float = 0.2
    affordable: tuple[tuple[int, float], ...] = ((2, 6e-3), (3, 5e-4))
    max_terms: int = 400
    deviations: float = 2.0
    max_order: int = 3
    max_sets: int = 500
    collider_order: int = 2
    margin: float = 0.1
    tolerance: float = 0.05
    max_tolerance: float = 0.15
    bent: float = 1 - 3 / math.pi
    many: int = 4
    min_residual: float = 0.01
    ridge: float = 1.0
    batch: int = 512


SETTINGS = RcitSettings()


def rcit_pc(
    moments: NoisyMoments, knowledge: Knowledge, *, level: float, max_parents: int
) -> CausalGraph:
    """The graph of a released moment matrix: links are `learned`, or `undecided` and outside it."""
    tests = MomentTests(moments)
    skeleton = pc.pc_skeleton(
        lambda order, queries: tests.answer(queries, level=level, margin=SETTINGS.margin),
        knowledge,
        max_order=len(knowledge.columns) - 2,
        separators=affordable_sets,
        separates=explains,
    )
    rank = {n: i for i, n in enumerate(knowledge.columns)}
    graph = oriented(
        knowledge,
        sorted(skeleton.linked, key=lambda p: (rank[p[0]], rank[p[1]])),
        lambda graph: _colliders(graph, skeleton, tests, level),
        shielded=knowledge.untested,
    )
    return pc.reading(
        graph,
        knowledge,
        unclear=skeleton.unclear(knowledge),
        strength=skeleton.effect,
        max_parents=max_parents,
    )


def explains(answer: Answer, evidence: Sequence[pc.Test]) -> bool:
    """Whether an answer separates its pair.

    It must be not dependent, and either half of the marginal effect is gone or the test was sharp
    enough to see that effect. Given more than `max_order` columns it must have been sharp.
    """
    if answer.verdict == "dependent":
        return False
    marginal = evidence[0][1]
    if answer is marginal or answer.detectable <= marginal.effect:
        return True
    few = any(len(given) <= SETTINGS.max_order for given, other in evidence if other is answer)
    return few and answer.effect <= marginal.effect / 2


def affordable_sets(
    adjacency: Mapping[str, set[str]], pair: Pair, order: int, evidence: pc.Evidence
) -> Iterable[tuple[str, ...]]:
    """The textbook's sets; none of more than `max_order` columns where they are too many."""
    near = [len(adjacency[end] - {*pair}) for end in pair]
    if order > SETTINGS.max_order and sum(math.comb(n, order) for n in near) > SETTINGS.max_sets:
        return ()
    return pc.neighbours_of_either(adjacency, pair, order, evidence)


def _colliders(
    graph: Pdag, skeleton: pc.Skeleton, tests: MomentTests, level: float
) -> list[Collider]:
    """V-structures with enough evidence, the most certain first: tests cost nothing more."""
    triples = tested_triples(graph, skeleton.evidence)
    found = set[Query]()
    for a, _, c in triples:
        first, second = (graph.around(end) - {a, c} for end in (a, c))
        names = graph.ordered(first | second)
        for order in range(SETTINGS.collider_order + 1):
            found |= {(a, c, given) for given in pc.subsets_of_either(names, first, second, order)}
    queries = sorted(found)
    answers = tests.answer(queries, level=level, margin=SETTINGS.margin)
    tried: dict[Pair, dict[tuple[str, ...], Answer]] = {}
    for (a, c, given), answer in zip(queries, answers, strict=True):
        tried.setdefault((a, c), {})[given] = answer
    return surest_colliders(triples, tried)


def planned_moments(domain: Domain, rows: float, mu: float) -> MomentMatrix:
    """The moment matrix that costs `mu`, of the highest degree that its noise allows."""

    def moments(degree: int) -> MomentMatrix:
        basis = Basis(domain, domain.names, degree=degree, interaction=degree)
        return MomentMatrix(basis, basis.norm(deviations=SETTINGS.deviations), 1 / mu)

    matrix = moments(1)
    for degree, limit in SETTINGS.affordable:
        # Products of all columns up to this degree, plus the constant.
        if math.comb(len(domain) + degree, degree) > SETTINGS.max_terms:
            break
        richer = moments(degree)
        if richer.sigma / (rows / 3) <= limit:
            matrix = richer
    return matrix


def _spends(settings: Graph, domain: Domain, rows: float) -> Mapping[str, MechanismFactory]:
    tables = tuple((c.name,) for c in domain.columns if c.ranged)
    parts = {
        MARGINS: SETTINGS.margins_part if tables else 0.0,
        ORIENT: settings.orient_share if len(tables) > 1 else 0.0,
    }
    rest = (1 - parts[MARGINS]) * (1 - parts[ORIENT])
    spends: dict[str, MechanismFactory] = {
        MOMENTS: lambda mu: planned_moments(domain, rows, mu * math.sqrt(rest))
    }
    if parts[MARGINS]:
        part = parts[MARGINS] * (1 - parts[ORIENT])
        spends = {
            MARGINS: lambda mu: NoisyMarginals(domain, tables, math.sqrt(len(tables) / part) / mu)
        } | spends
    if parts[ORIENT]:
        spends[ORIENT] = lambda mu: OrientationBudget(domain, 1 / (mu * math.sqrt(parts[ORIENT])))
    return spends


def _search(
    releaser: pc.Releaser, settings: Graph, domain: Domain, known: pc.KnownTables = None
) -> Released[CausalGraph] | CausalGraph:
    knowledge = Knowledge.from_spec(settings, domain.names)
    if not knowledge.undecided_pairs:
        return CausalGraph.from_knowledge(knowledge, provenance="required")
    learned = _measured(releaser, domain).map(
        lambda m: rcit_pc(m, knowledge, level=settings.level, max_parents=settings.max_parents)
    )
    pairs = [(a, b) for a, b in learned.value.undirected if domain[a].ranged and domain[b].ranged]
    if not pairs or ORIENT not in releaser.plan.graph:
        return learned
    readings = orient(releaser, pairs)
    return learned.zip(readings).map(
        lambda both: turn(both[0], list(chain.from_iterable(both[1])), knowledge)
    )


def _measured(releaser: pc.Releaser, domain: Domain) -> Released[NoisyMoments]:
    """The moment matrix, of ranks where there are one-way tables to rank by."""
    planned = needed(releaser.plan.in_graph(MOMENTS, MomentMatrix), graph_purpose(MOMENTS))
    margins = releaser.plan.in_graph(MARGINS, NoisyMarginals)
    if margins is None:
        return releaser.release(planned, purpose=graph_purpose(MOMENTS))
    tables = releaser.release(margins, purpose=graph_purpose(MARGINS))
    scales: tuple[tuple[str, Scale], ...] = tuple(
        (t.columns[0], rank_scale(domain[t.columns[0]], t.counts)) for t in tables.value
    )
    moments = releaser.release(planned.with_scales(scales), purpose=graph_purpose(MOMENTS))
    return tables.zip(moments).map(lambda both: both[1])


def foreseen(planned: MomentMatrix, rows: float) -> MomentTests:
    """What a plan's matrix would be without noise of uniform and independent columns."""
    squares = np.square(planned.basis.reference()).mean(0)
    sums = rows * np.diag(squares)
    return MomentTests(NoisyMoments(planned.basis, sums, planned.sigma), bent=SETTINGS.bent)


RCIT_PC = pc.Algorithm(
    _spends,
    _search,
    lambda releaser, domain: _measured(releaser, domain).map(
        partial(MomentTests, bent=SETTINGS.bent)
    ),
)


# Conditional independence of numeric columns from one noisy moment matrix.
#
# Strobl et al., "Approximate kernel-based conditional independence tests" (arXiv:1702.03877v2)
# test whether residuals of functions of X and of Y, regressed on functions of Z, are uncorrelated
# (RCIT). The test needs only second moments of the functions, so a released noisy moment matrix
# answers every query as post-processing.
#
# With a = (I, -beta_x) the combination of functions that leaves the residual of X, b that of Y,
# and M the moments per row, the residual covariance is R = a' M b. Its error has two parts, both
# known up to plug-in estimates:
#
#     sampling   S_x (x) S_y / n, with S the residual variances
#     noise      for symmetric E with independent N(0, s^2) on and above the diagonal,
#                cov(a_i'E b_j, a_k'E b_l) = s^2 [(a_i.a_k)(b_j.b_l) + (a_i.b_l)(b_j.a_k)
#                - sum_m a_im b_jm a_km b_lm]
#
# to which the second-order term of the noise of the regression is added [derived here]. With V the
# sum and S = S_x (x) S_y the statistic is r' V^-1 S V^-1 r: coordinates that are mostly noise get
# little weight, and without noise it is n times the squared canonical correlations. Its law, a
# weighted sum of chi-squares, is matched in three moments.
#
# A basis that does not contain the true regression leaves dependent residuals where there is
# independence. The null is therefore an interval: residual correlation up to `tolerance`, in the
# direction that shows most. Ranks bend what was a line: of a normal's ranks a line in it explains
# 3 / pi [the correlation of Phi(Z) and Z is sqrt(3 / pi)], so that a basis of degree below 3 may
# leave the share `bent` of what the given columns explain in both residuals.


class MomentTests:
    """Answers queries from one noisy moment matrix.

    `bent`: share of what the given columns explain that may be left in both residuals. A search
    goes without: it would find fewer links, and it takes none for refuted.
    """

    negligible = SETTINGS.margin

    def __init__(self, moments: NoisyMoments, *, bent: float = 0.0) -> None:
        self.moments = moments
        self._bent = bent if moments.basis.degree < 3 else 0.0
        self._within: dict[frozenset[str], list[int]] = {}

    def answer(self, queries: Sequence[Query], *, level: float, margin: float) -> list[Answer]:
        """One answer for each query, batched by shape."""
        by_shape: dict[tuple[int, ...], list[int]] = {}
        positions = [
            (self._of_column(a, z), self._of_column(b, z), self._functions(frozenset(z)))
            for a, b, z in queries
        ]
        for i, (query, parts) in enumerate(zip(queries, positions, strict=True)):
            by_shape.setdefault((len(query[2]), *map(len, parts)), []).append(i)
        answered: dict[int, Answer] = {}
        for (given, *_), members in by_shape.items():
            least = min(given * SETTINGS.tolerance, SETTINGS.max_tolerance)
            bent = self._bent if given else 0.0
            for start in range(0, len(members), SETTINGS.batch):
                batch = members[start : start + SETTINGS.batch]
                x, y, z = map(np.array, zip(*(positions[i] for i in batch), strict=True))
                # Residuals of a function of degree d vary with the given columns, the more the
                # higher d. Fourth moments, which would say how much, are not released. The degree
                # as factor keeps the level for d <= 3.
                inflation = float(self.moments.basis.degree) if given else 1.0
                sums, sigma = self.moments.sums, self.moments.sigma
                left = residuals(sums, sigma, x=x, y=y, given=z, inflation=inflation)
                tolerance = np.maximum(least, bent * left.odds)
                results = answers(left, level=level, margin=margin, tolerance=tolerance)
                answered.update(zip(batch, results, strict=True))
        return [answered[i] for i in range(len(queries))]

    def _of_column(self, name: str, given: tuple[str, ...]) -> list[int]:
        """Functions of one column.

        A power of it is correlated with powers of the given columns of a higher degree than the
        basis has. So given many columns only functions of degree one are tested.
        """
        functions = self._functions(frozenset({name}))[1:]
        if len(given) < SETTINGS.many or not self.moments.basis.domain[name].ranged:
            return functions
        terms = self.moments.basis.terms
        return [i for i in functions if terms[i].factors[0][1] <= 1]

    def _functions(self, columns: frozenset[str]) -> list[int]:
        """Positions of the functions that look at no other columns, the constant first."""
        if columns not in self._within:
            terms = enumerate(self.moments.basis.terms)
            self._within[columns] = [i for i, term in terms if term.columns <= columns]
        return self._within[columns]


@dataclass(frozen=True)
class Residuals:
    """Residuals of many queries of one shape.

    `covariance` `[queries, k]` holds residual covariances, `variance` their covariance V and
    `scale` the scale S, both `[queries, k, k]`. `odds` `[queries]`: explained variance over what
    is left, of the first function of either column, as a geometric mean.
    """

    covariance: Floats
    variance: Floats
    scale: Floats
    odds: Floats


def residuals(
    moments: Floats,
    sigma: float,
    *,
    x: Positions,
    y: Positions,
    given: Positions,
    inflation: float = 1.0,
) -> Residuals:
    """Regress functions `x` and `y` on `given`, all `[queries, functions]` of matrix positions.

    `moments`: noisy sums of products `[terms, terms]`, the constant first; `sigma`: noise of each
    entry; `inflation`: factor of the sampling variance.
    """
    rows = max(float(moments[0, 0]), 1.0)
    k, both, least = x.shape[1], x.shape[1] + y.shape[1], SETTINGS.min_residual
    index = np.concatenate([x, y, given], axis=1)
    block = moments[index[:, :, None], index[:, None, :]] / rows
    values, vectors = np.linalg.eigh(block[:, both:, both:])
    spectral = SETTINGS.ridge * (sigma / rows) * np.sqrt(given.shape[1])
    # Mostly noisy directions of the regressors get a ridge.
    raised = np.maximum(values, 0.0) + np.where(values < spectral, spectral, 0.0) + 1e-12
    inverse = vectors / raised[:, None, :] @ np.swapaxes(vectors, 1, 2)
    beta = inverse @ block[:, both:, :both]
    left = np.concatenate(
        [np.broadcast_to(np.eye(both), (len(x), both, both)), -np.swapaxes(beta, 1, 2)], axis=2
    )
    covariance = left @ block @ np.swapaxes(left, 1, 2)
    before = np.diagonal(block, axis1=1, axis2=2)
    s_x, s_y = (
        with_eigenvalues(
            covariance[:, ends, ends],
            partial(np.maximum, np.maximum(least * before[:, ends].min(1), 1e-9)[:, None]),
        )
        for ends in (slice(k), slice(k, both))
    )
    size = (len(x), k * y.shape[1], k * y.shape[1])
    scale = np.einsum("qik,qjl->qijkl", s_x, s_y).reshape(size)
    noise = _noise(left[:, :k], left[:, k:], inverse, sigma / rows).reshape(size)
    before = np.maximum(before, 1e-12)
    odds = [before[:, i] / s[:, 0, 0] - 1 for i, s in ((0, s_x), (k, s_y))]
    return Residuals(
        covariance[:, :k, k:].reshape(size[:2]),
        scale * (inflation / rows) + noise,
        scale,
        np.sqrt(np.maximum(odds[0], 0.0) * np.maximum(odds[1], 0.0)),
    )


def _noise(a: Floats, b: Floats, inverse: Floats, noise: float) -> Floats:
    """Covariance of a'Eb from the matrix's noise, to second order, `[queries, k, l, k, l]`."""
    along = np.einsum("qim,qkm,qjp,qlp->qijkl", a, a, b, b)
    first = (
        along
        + np.einsum("qim,qlm,qjp,qkp->qijkl", a, b, b, a)
        - np.einsum("qim,qjm,qkm,qlm->qijkl", a, b, a, b)
    )
    # Errors of both regressions multiply: E_x G^-1 E_y, of variance |a|^2 |b|^2 tr(G^-2) noise^4.
    second = along * (inverse**2).sum((1, 2))[:, None, None, None, None]
    return np.asarray(first * noise**2 + second * noise**4)


def answers(left: Residuals, *, level: float, margin: float, tolerance: Floats) -> list[Answer]:
    """Verdict of each query; see the module for the null, of `tolerance` `[queries]`."""
    root = with_eigenvalues(left.scale, lambda values: np.sqrt(np.maximum(values, 0.0)))
    inner = root @ np.linalg.solve(left.variance, root)
    lam = np.maximum(np.linalg.eigvalsh(inner), 0.0)
    whitened = np.linalg.solve(left.variance, left.covariance[..., None])
    statistic = np.einsum("qi,qij,qj->q", whitened[..., 0], left.scale, whitened[..., 0])
    first, top = lam.sum(1), lam[:, -1]
    critical, p = _null(lam, tolerance, statistic, level)
    gain = (lam**3).sum(1) / lam.sum(1)
    second = (lam**2).sum(1)
    effect = np.sqrt(np.maximum(statistic - first, 0.0) / gain)
    # Non-centrality as in chi-square tests, but no variance exceeds the largest weight.
    upper = np.sqrt(chi_square.shift(statistic - first, second, top, norm.isf(level)) / gain)
    detectable = np.sqrt(
        chi_square.shift(critical - first, second, top, norm.isf(1 - chi_square.POWER)) / gain
    )
    return chi_square.listed(p <= level, upper <= margin, (p, statistic, effect, upper, detectable))


def _null(lam: Floats, tolerance: Floats, statistic: Floats, level: float) -> tuple[Floats, Floats]:
    """Critical value and p-value of sum lam (g_i + shift_i)^2.

    The shift has size `tolerance` and the top direction. Moments are matched as in Liu, Tang and
    Zhang, "A new chi-square approximation to the distribution of non-negative definite quadratic
    forms in non-central normal variables" (2009), with a central chi-square.
    """
    top = lam[:, -1]
    shift = top * tolerance**2
    c1 = lam.sum(1) + top * shift
    c2 = 2 * (lam**2).sum(1) + 4 * top**2 * shift
    c3 = 8 * (lam**3).sum(1) + 24 * top**3 * shift
    nu = 8 * c2**3 / c3**2
    scale = np.sqrt(c2 / (2 * nu))
    return c1 + (chi2.isf(level, nu) - nu) * scale, chi2.sf(nu + (statistic - c1) / scale, nu)
