"""What the spec's estimands are made of: a noisy table, sums by strata, or sums of products.

Everything here follows from the spec. Conditions are tried on a row's own values, so that they need
not end where bins do. A kind of estimand is its model in `synthdp.spec.model.evaluation`, its
`EstimandSums` here, and what is told of it: its `EstimandKind` in `synthdp.inference.estimands`.

How the one sum of an effect by strata is chosen follows from the sums by stratum that came before.
A row of stratum z, treated (t = 1) or not (0), weighs t - p_z, with p_z the share of treated rows
in its stratum. Then the sum of (t - p_z) (u - m_z) is that of n_1z n_0z / n_z times the effect in z
[Robinson 1988], and of what the noise of p_z and m_z leaves (`ContrastDesign.of`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product as combinations
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from synthdp.data.domain import Domain
from synthdp.errors import BudgetError
from synthdp.graph.causal import CausalGraph, adjustment
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms import PlannedMechanism
from synthdp.privacy.mechanisms import sums as noisy
from synthdp.privacy.mechanisms.marginals import NoisyMarginals
from synthdp.privacy.mechanisms.sums import (
    NUMBER,
    SQUARE,
    Arm,
    Bounded,
    Contrast,
    ContrastBudget,
    NoisySums,
    Product,
    StratumSums,
    SumMechanism,
)
from synthdp.privacy.plan import MechanismFactory, ReleasePlan, needed
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.parsed import Expression
from synthdp.spec.expressions.query import counted, parse_query
from synthdp.spec.model import (
    AskedEstimand,
    EffectEstimand,
    Estimand,
    RegressionEstimand,
    ReleaseSpec,
    TableEstimand,
)
from synthdp.spec.model.evaluation import number_bounds, term_columns

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ContrastSettings:
    """All but the last are deviations of a count's noise, but for `least`, the least share of an
    arm. `share`: rows by which a stratum's share of treated ones is drawn to that of all; `mean`:
    likewise its mean; `fewest`: what a stratum's rows are at least taken to be in a denominator.
    `ends`: how many ends of the centres are tried.
    """

    share: float = 1.0
    mean: float = 2.0
    least: float = 0.02
    fewest: float = 3.0
    ends: int = 21


CONTRASTS = ContrastSettings()


def contrast_budget(estimand: Estimand, strata: SumMechanism) -> ContrastBudget | None:
    """What an effect that is measured by `strata` pays for after them, at the same price; None
    where there is one stratum alone, and for other kinds.
    """
    if estimand.kind != "effect" or not isinstance(strata, StratumSums):
        return None
    if math.prod(strata.shape[1:]) == 1:
        return None
    return ContrastBudget(strata.scaled(1 / strata.noise_multiplier), strata.noise_multiplier)


def chosen_contrast(budget: ContrastBudget, sums: NoisySums) -> Contrast:
    """The contrast that the released sums by stratum ask for."""
    design = ContrastDesign.of(sums, budget.sigma)
    return budget.choose(design.weights, *design.centres)


def contrast_of_sums(contrast: Contrast, exact: NoisySums) -> Floats:
    """The three sums of the rows whose sums by stratum are these, `[3]`."""
    a, m, about = contrast.weights, contrast.centres, contrast.about
    n, total, squares = (part.reshape(2, -1) for part in (exact.counts, exact.sums, exact.squares))
    spread = a**2 * (squares - 2 * about * total + about**2 * n)
    found = np.array([(a * (total - m * n)).sum(), spread.sum(), (a**2 * n).sum()])
    return np.asarray(found * [1.0, SQUARE, SQUARE] / contrast.most)


@dataclass(frozen=True, eq=False)
class ContrastDesign:
    """`weights` `[2, strata]` and `centres`, of the sum and of its squares, with the `guess` of the
    effect in both. By the released counts and sums, without bias: the squared weights `squared`,
    what of them is `lost` to wrong shares, and what the sum has `beside` effects, of `variance`.
    """

    weights: Floats
    centres: tuple[Floats, Floats]
    guess: float
    squared: float
    lost: float
    beside: float
    variance: float

    @classmethod
    def of(cls, sums: NoisySums, noise: float) -> ContrastDesign:
        """The design by the sums of two arms, for a sum whose noise is so many times the most that
        a row adds: centres c_z, near means, are cut at the ends of least noise.

        With d_z = n_1z - p_z n_z the sum has d_z (mean_z - c_z), and that of squared weights
        d_z^2 / n_z, beside what it is for: products of small errors, as p_z and c_z are of the same
        noisy counts and sums. By Stein's lemma, E(e f(n + e)) = sigma^2 E(f'), [D_z T_z + sigma^2
        (c_z (1 - 2 p_z) (k_z + l_z - 1) + T_z p'_z + 2 D_z c'_z)] / n_z has the mean of the first,
        but for terms of sigma^4, and D_z^2 + sigma^2 ((1 - 2 k_z) q_z + 2 D_z p'_z) that of d_z^2
        [derived here]. D_z = n_1z - p_z n_z and T_z = S_z - c_z n_z are as released, p'_z the sum
        of p_z's derivatives by both counts, c'_z that of c_z by either, k_z = 1 - n_z p'_z / (1 - 2
        p_z) the part of a count's noise that p_z does not follow, 1 where it is cut, l_z that of
        c_z, and q_z = p_z^2 + (1 - p_z)^2. The error of the first has about the variance [D_z^2 v_z
        + T_z^2 w_z + ((1 - k_z - l_z)^2 - k_z^2 - l_z^2) v_z w_z] / n_z^2, with w_z = sigma^2 q_z,
        that of D_z, and v_z = 2 sigma^2 (1 + c_z^2), that of T_z.
        """
        n, total = sums.counts.reshape(2, -1), sums.sums.reshape(2, -1)
        sigma, ends = sums.sigma, (CONTRASTS.least, 1 - CONTRASTS.least)
        rows, size = max(float(n.sum()), 1.0), np.maximum(n.sum(0), 0.0)
        few, drawn = np.maximum(size, CONTRASTS.fewest * sigma), CONTRASTS.share * sigma
        overall = np.clip(n[0].sum() / rows, *ends)
        p = np.clip((n[0] + drawn * overall) / (size + drawn), *ends)
        kept = np.where((p == ends[0]) | (p == ends[1]), 1.0, drawn / (size + drawn))
        weights, odd = np.stack([1 - p, -p]), 1 - 2 * p
        uneven, off = (weights**2).sum(0), n[0] - p * n.sum(0)
        slope = odd * (1 - kept) / few  # of p, by both counts
        squared = (weights**2 * n).sum() + 2 * sigma**2 * (uneven @ ((1 - kept) / few))
        lost = off**2 + sigma**2 * ((1 - 2 * kept) * uneven + 2 * off * slope)
        h = 1 / np.maximum(n.sum(0), 4 * math.sqrt(2) * sigma)
        rough = h @ (n[1] * total[0] - n[0] * total[1]) / max(float(h @ (n[0] * n[1])), 1.0)
        guess, drawn = float(np.clip(rough, -1, 1)), CONTRASTS.mean * sigma
        overall = np.clip(total.sum() / rows, -1, 1)
        means = np.clip((total.sum(0) + drawn * overall) / (size + drawn), -1, 1)

        def beside(centre: Floats) -> tuple[float, float]:
            rest, cut = total.sum(0) - centre * n.sum(0), centre != means
            of_mean = np.where(cut, 1.0, drawn / (few + drawn))
            # Shares and centres have the noise of the same counts [Stein's lemma].
            shared = (kept + of_mean - 1) * centre * odd + rest * slope
            shared -= 2 * off * np.where(cut, 0.0, centre / (few + drawn))
            of_share, of_rest = sigma**2 * uneven, 2 * sigma**2 * (1 + centre**2)
            both = (1 - kept - of_mean) ** 2 - kept**2 - of_mean**2
            variance = off**2 * of_rest + rest**2 * of_share + both * of_share * of_rest
            found = (off * rest + sigma**2 * shared) @ (1 / few)
            return float(found), max(float(variance @ few**-2.0), 0.0)

        def tried(end: float) -> tuple[float, Floats, float, float]:
            centre = np.clip(means, -end, end)
            most = (np.abs(weights) * (1 + np.abs(centre + weights * guess))).max()
            bias, variance = beside(centre)
            return variance + (noise * float(most)) ** 2, centre, bias, variance

        every = map(tried, np.linspace(0, 1, CONTRASTS.ends))
        _, centre, bias, variance = min(every, key=lambda one: one[0])
        centres = centre + weights * guess, means + weights * guess
        lost_all = max(float(lost @ (1 / few)), 0.0)
        return cls(weights, centres, guess, float(squared), lost_all, bias, variance)


_E = TypeVar("_E")

INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class EstimandSettings:
    """What noise may not drown.

    `clear`: deviations of the noise that an average stratum must hold. Of a regression: `sure`,
    deviations by which what other terms leave of a term must lie above zero; `least`: an eigenvalue
    of the terms' moment matrix counts as seen from so many deviations of the noise on, times the
    root of the number of terms. `rounds`: steps to what steadies that matrix, always as many, so
    that no rounding decides.
    """

    clear: float = 4.0
    sure: float = 3.0
    least: float = 2.0
    rounds: int = 40


SETTINGS = EstimandSettings()


def estimand_name(position: int) -> str:
    """The name of the estimand at a position of the spec's list, from 0.

    >>> estimand_name(0)
    '1'
    """
    return str(position + 1)


def contrast_name(name: str) -> str:
    """The name of what an effect by strata measures after the sums of strata.

    >>> contrast_name("1")
    '1, contrast'
    """
    return f"{name}, contrast"


def estimand_rounds(spec: ReleaseSpec, domain: Domain) -> dict[str, MechanismFactory]:
    """How each estimand is measured, by its name, for equal parts of the share."""
    part, rounds = math.sqrt(max(1, len(spec.estimands))), dict[str, MechanismFactory]()

    def started(estimand: Estimand, steps: int, mu: float) -> PlannedMechanism:
        noise = part * math.sqrt(steps) / mu
        return ESTIMAND_SUMS[estimand.kind].mechanism(spec, domain, estimand, noise)

    def second(estimand: Estimand, mu: float) -> PlannedMechanism:
        strata = started(estimand, 2, mu)
        assert isinstance(strata, StratumSums)
        return needed(contrast_budget(estimand, strata), "contrast")

    for i, estimand in enumerate(spec.estimands):
        name, strata = estimand_name(i), started(estimand, 1, 1.0)
        twice = isinstance(strata, StratumSums) and contrast_budget(estimand, strata) is not None
        rounds[name] = partial(started, estimand, 2 if twice else 1)
        rounds |= {contrast_name(name): partial(second, estimand)} if twice else {}
    return rounds


def check_estimands(plan: ReleasePlan, spec: ReleaseSpec) -> None:
    """Refuse estimands that noise would drown, before anything is spent (`BudgetError`)."""
    for i, estimand in enumerate(spec.estimands):
        name = estimand_name(i)
        ESTIMAND_SUMS[estimand.kind].check(name, spec, estimand, plan.estimands[name])


def sums_of(
    spec: ReleaseSpec, domain: Domain, estimand: Estimand, *, noise: float = 1.0
) -> noisy.SumMechanism:
    """The sums of an estimand that adds up; `noise` is in multiples of what one row can move."""
    mechanism = ESTIMAND_SUMS[estimand.kind].mechanism(spec, domain, estimand, noise)
    assert isinstance(mechanism, noisy.SumMechanism)
    return mechanism


def tables_and_sums(
    planned: Mapping[str, PlannedMechanism],
) -> tuple[dict[str, NoisyMarginals], dict[str, noisy.SumMechanism]]:
    """The planned tables and the planned sums, by estimand."""
    tables = {n: m for n, m in planned.items() if isinstance(m, NoisyMarginals)}
    return tables, {n: m for n, m in planned.items() if isinstance(m, noisy.SumMechanism)}


class EstimandSums(ABC, Generic[_E]):
    """How one kind of estimand is measured. It has no state."""

    @abstractmethod
    def mechanism(
        self, spec: ReleaseSpec, domain: Domain, estimand: _E, noise: float
    ) -> PlannedMechanism:
        """What measures it, at a noise in multiples of what one row can move."""

    def check(self, name: str, spec: ReleaseSpec, estimand: _E, mechanism: Any) -> None:
        """Refuse a planned mechanism whose noise would drown it (`BudgetError`)."""
        return


class TableSums(EstimandSums[TableEstimand]):
    """A noisy table of the levels of its columns."""

    def mechanism(
        self, spec: ReleaseSpec, domain: Domain, estimand: TableEstimand, noise: float
    ) -> NoisyMarginals:
        return NoisyMarginals(domain, (estimand.columns,), noise)


class ByStratum(EstimandSums[_E]):
    """Sums by stratum. `instead`: what else could be asked where there are too many strata."""

    instead: ClassVar[str] = ""
    looks: ClassVar[int] = 1
    """Into how many looks the budget of more strata than one is parted, these sums the first."""

    @abstractmethod
    def mechanism(
        self, spec: ReleaseSpec, domain: Domain, estimand: _E, noise: float
    ) -> StratumSums: ...

    def levels(self, spec: ReleaseSpec, estimand: _E, sums: StratumSums) -> int:
        """How many levels of one column each stratum is counted in: more than 1 of a quantile."""
        return 1

    def check(self, name: str, spec: ReleaseSpec, estimand: _E, mechanism: StratumSums) -> None:
        """Refuse strata of which an average one has too few rows for its noise.

        Rows are taken to be spread evenly over strata, which no table exceeds for all of them.
        """
        rows, levels = expected_fit_rows(spec), self.levels(spec, estimand, mechanism)
        strata = math.prod(mechanism.shape[1:]) // levels
        noise = math.sqrt(levels) * mechanism.sigma
        least = SETTINGS.clear * noise / math.sqrt(self.looks)
        if strata * levels > 1 and rows / strata < least:
            fewer = "fewer bins of the quantile, or " if levels > 1 else ""
            raise BudgetError(
                f"estimand {name}: {rows:,.0f} rows in {strata} strata are {rows / strata:,.0f}"
                f" each, under noise of {noise:,.0f}; nothing was read or spent",
                hint=(
                    f"{least:,.0f} rows each would do: name {fewer}columns with at most"
                    f" {max(1, int(rows / least))} combinations of levels, or raise"
                    f" privacy.shares.estimands{self.instead}"
                ),
            )


class QuestionSums(ByStratum[AskedEstimand]):
    """The sums of a share, a count, a mean or a quantile."""

    def mechanism(
        self, spec: ReleaseSpec, domain: Domain, estimand: AskedEstimand, noise: float
    ) -> StratumSums:
        query = parse_query(estimand.ask, spec.columns)
        arms = [() if query.where is None else ((query.where, True),)]
        if query.condition is not None:  # of a share, rows for which it holds, and does not
            true = (True,) if query.statistic == "count" else (True, False)
            arms = [(*arms[0], (query.condition, side)) for side in true]
        number = None
        if query.statistic == "mean" and query.column is not None:
            number = _bounded(spec, query.column, estimand.clip)
        return StratumSums(domain, tuple(map(Arm, arms)), counted(query), number, noise)

    def levels(self, spec: ReleaseSpec, estimand: AskedEstimand, sums: StratumSums) -> int:
        quantile = parse_query(estimand.ask, spec.columns).statistic == "quantile"
        return sums.shape[-1] if quantile else 1


class EffectSums(ByStratum[EffectEstimand]):
    """The sums of the treated, and of those whom they are compared with."""

    instead = "; or ask for a regression with these columns as terms, which has no strata"
    looks = 2

    def mechanism(
        self, spec: ReleaseSpec, domain: Domain, estimand: EffectEstimand, noise: float
    ) -> StratumSums:
        treated = _parsed(spec, estimand.treated)
        others = (treated, False)
        if estimand.control is not None:
            others = (_parsed(spec, estimand.control), True)
        by, _ = effect_adjustment(spec, estimand)
        number = _bounded(spec, estimand.outcome, estimand.clip)
        arms, cuts = (Arm(((treated, True),)), Arm((others,))), tuple(estimand.edges.items())
        return StratumSums(domain, arms, by, number, noise, cuts)


def effect_adjustment(spec: ReleaseSpec, estimand: EffectEstimand) -> tuple[tuple[str, ...], str]:
    """The columns that an effect is adjusted for, by the spec alone, and a remark."""
    graph = CausalGraph.from_spec(spec.graph, tuple(spec.modelled))
    return adjustment(estimand, spec.columns, graph)


class RegressionSums(EstimandSums[RegressionEstimand]):
    """The sums of all products of a regression's terms and its outcome."""

    def mechanism(
        self, spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand, noise: float
    ) -> noisy.ProductSums:
        arm = Arm()
        if estimand.where is not None:
            arm = Arm(((_parsed(spec, estimand.where), True),))
        return design_of(spec, domain, estimand).mechanism(domain, arm, noise)

    def check(
        self,
        name: str,
        spec: ReleaseSpec,
        estimand: RegressionEstimand,
        mechanism: noisy.ProductSums,
    ) -> None:
        """Refuse terms of which none would be sure under this noise.

        Rows are taken to be spread evenly over categories, and numbers to lie at both ends of their
        bounds: hardly any table has a better moment matrix.
        """
        design, rows = design_of(spec, mechanism.domain, estimand), expected_fit_rows(spec)
        gram = design.moments(rows * design.expected(mechanism.domain, square=1.0))[:-1, :-1]
        terms = [
            (w, d)
            for f, (_, w, d) in zip(design.functions, design.directions(gram), strict=True)
            if f
        ]
        if not any(design.sure(w, d, mechanism.sigma) for w, d in terms):
            most = max(d for _, d in terms)
            raise BudgetError(
                f"estimand {name}: even if {rows:,.0f} rows were spread evenly over the terms, no"
                f" coefficient would rest on more than {most:,.0f} of them, and the noise of a sum"
                f" is {mechanism.sigma:,.0f}; nothing was read or spent",
                hint=(
                    "name fewer terms, or categories with fewer levels, or raise"
                    " privacy.shares.estimands"
                ),
            )


ESTIMAND_SUMS: dict[str, EstimandSums[Any]] = {
    "question": QuestionSums(),
    "table": TableSums(),
    "effect": EffectSums(),
    "regression": RegressionSums(),
}
"""How each kind is measured, by its name in a spec."""


def _parsed(spec: ReleaseSpec, text: str) -> Expression:
    expression, _ = parse(text, spec.columns, derived=False)
    if expression is None:
        raise ValueError(f"{text!r} cannot be read; check the spec first")
    return expression


def _bounded(spec: ReleaseSpec, column: str, clip: tuple[float, ...] | None) -> Bounded:
    return Bounded(column, *(clip or number_bounds(spec.columns[column])))


# --- regression ---
#
# Terms are scaled: a number to [-1, 1] by its bounds or its clip, a category to indicators of its
# levels but the first. Coefficients are told of numbers as they are; `Design.raw` leads from one
# to the other.


@dataclass(frozen=True)
class Design:
    """The scaled functions of a row, whose first is the constant, and the outcome's.

    `names` `[k]` are those of the coefficients, `functions` `[k]` what they are of.
    """

    names: tuple[str, ...]
    functions: tuple[Product, ...]
    outcome: Bounded
    numbers: tuple[Bounded, ...]
    two_valued: bool = False  # the outcome, of two categories

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The different products of two functions, or of one with the outcome, in order."""
        return tuple(sorted({p for row in self._pairs for p in row if p is not None}))

    @cached_property
    def places(self) -> npt.NDArray[np.intp]:
        """The place of each product of functions in `products`, the outcome's last; -1: zero."""
        at = {None: -1} | {product: i for i, product in enumerate(self.products)}
        return np.array([[at[p] for p in row] for row in self._pairs], dtype=np.intp)

    @cached_property
    def _pairs(self) -> list[list[Product | None]]:
        everything = (*self.functions, ((self.outcome.column, NUMBER),))
        return [[multiplied(a, b) for b in everything] for a in everything]

    @cached_property
    def raw(self) -> Floats:
        """The functions of numbers as they are, made of the scaled ones: `[k, k]`."""
        at = {function: i for i, function in enumerate(self.functions)}
        bounds = {number.column: number for number in self.numbers}
        matrix = np.zeros((len(at), len(at)))
        for row, function in enumerate(self.functions):
            numbers = [part for part in function if part[1] == NUMBER]
            for kept in combinations((False, True), repeat=len(numbers)):
                left = tuple(p for p, keep in zip(numbers, kept, strict=True) if not keep)
                size = math.prod(
                    bounds[p[0]].middle if p in left else bounds[p[0]].half for p in numbers
                )
                matrix[row, at[tuple(p for p in function if p not in left)]] += size
        return matrix

    def directions(self, gram: Floats) -> Iterator[tuple[Floats, Floats, float]]:
        """Of each coefficient c' theta what it is made of, the direction w that its estimate rests
        on, and d = w' `gram` w, what the other terms leave of it, in rows: `[k]`, `[k]`, a number.

        w = d gram^-1 c, so that w' gram theta = d c' theta; both are 0 where no row tells c' theta,
        as of a level that none has.
        """
        inverse = np.linalg.pinv(gram, hermitian=True)
        for c in np.linalg.inv(self.raw.T):
            direction = inverse @ c
            told = np.allclose(gram @ direction, c, atol=1e-6)
            d = 1.0 / float(c @ direction) if told else 0.0
            yield c, d * direction, d

    def steadied(self, gram: Floats, sigma: float) -> Floats:
        """A noisy `gram` plus what makes the inverse right on average: `[k, k]`.

        Noise E of the products makes small eigenvalues of G smaller, or negative. The mean of the
        inverse of G + E + A is about M = (G + A - S(M))^-1, with S(M) the mean of E M E [the matrix
        Dyson equation: L. Erdos, arXiv:1903.10060], and A = S(M) makes it G^-1.
        """
        if sigma < 1e-6:  # of sums that stay with the steward, whose matrix may be singular
            return gram
        (i, j, k, m), size = self._twice, len(gram)
        least = max(0.0, -float(np.linalg.eigvalsh(gram)[0]))
        added = (sigma * math.sqrt(size) + least) * np.eye(size)
        for _ in range(SETTINGS.rounds):
            inverse = np.linalg.inv(gram + added)
            mean = np.bincount(i * size + m, sigma**2 * inverse[j, k], size**2).reshape(gram.shape)
            added = (added + (mean + mean.T) / 2) / 2
        return gram + added

    @cached_property
    def _twice(self) -> npt.NDArray[np.intp]:
        """The places (i, j) and (k, m) of two products of functions that are one sum, `[4, n]`."""
        places, size = self.places[:-1, :-1], len(self.functions)
        at = [np.flatnonzero(places == p) for p in range(len(self.products))]
        a = np.concatenate([np.repeat(own, len(own)) for own in at])
        b = np.concatenate([np.tile(own, len(own)) for own in at])
        return np.array([*divmod(a, size), *divmod(b, size)])

    def by_product(self, w: Floats, beta: Floats) -> Floats:
        """How often each product is in w' M beta, M the moments, `[products]`."""
        places = self.places[:-1]
        there, pairs = places >= 0, np.outer(w, beta)
        summed = np.bincount(places[there], weights=pairs[there], minlength=len(self.products))
        return summed.astype(np.float64)

    def sure(self, w: Floats, d: float, sigma: float) -> bool:
        """Whether d is so far above zero, under noise `sigma` of the products, that a coefficient
        means something.
        """
        noise = sigma * float(np.linalg.norm(self.by_product(w, np.append(w, 0.0))))
        return d > SETTINGS.sure * noise

    def expected(self, domain: Domain, square: float) -> Floats:
        """What a row adds on average to each product, `[products]`, by public facts.

        Columns are taken to be independent, categories to be equally frequent, scaled numbers to
        have mean 0 and mean square `square`, and the scaled outcome to be 1.
        """

        def mean_of(product: Product) -> float:
            mean = 1.0
            for (name, level), times in Counter(product).items():
                if level != NUMBER:
                    mean /= domain[name].levels - domain[name].missing
                elif name != self.outcome.column:
                    mean *= 0.0 if times % 2 else square
            return mean

        return np.array(list(map(mean_of, self.products)))

    def moments(self, sums: Floats) -> Floats:
        """The symmetric matrix of the sums of all products `[k + 1, k + 1]`, the outcome last."""
        return np.where(self.places < 0, 0.0, sums[self.places])

    def mechanism(self, domain: Domain, arm: Arm, noise: float) -> noisy.ProductSums:
        return noisy.ProductSums(domain, arm, (*self.numbers, self.outcome), self.products, noise)


def multiplied(a: Product, b: Product) -> Product | None:
    """The product of two products; None where it is zero, since levels exclude each other.

    >>> multiplied((("sex", 1),), (("sex", 1),)), multiplied((("sex", 1),), (("sex", 2),))
    ((('sex', 1),), None)
    >>> multiplied((("age", NUMBER),), (("age", NUMBER),))
    (('age', -1), ('age', -1))
    """
    levels = {part for part in (*a, *b) if part[1] != NUMBER}
    if len({name for name, _ in levels}) < len(levels):
        return None
    return tuple(sorted([*levels, *(part for part in (*a, *b) if part[1] == NUMBER)]))


def design_of(spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand) -> Design:
    """The design of a checked estimand."""
    terms = [term_columns(term, spec.columns) for term in estimand.terms]
    functions: dict[Product, str] = {(): INTERCEPT}
    for names in terms:
        for chosen in combinations(*(_functions(domain, name) for name in names)):
            parts = tuple(sorted(part for part, _ in chosen))
            functions[parts] = ":".join(label for _, label in chosen)
    outcome, *numbers = (
        _bounded(spec, name, estimand.clips.get(name))
        for name in (
            estimand.outcome,
            *(n for n in dict.fromkeys(n for names in terms for n in names) if domain[n].ranged),
        )
    )
    two_valued = not domain[estimand.outcome].ranged and len(domain[estimand.outcome].labels) == 2
    return Design(tuple(functions.values()), tuple(functions), outcome, tuple(numbers), two_valued)


def _functions(domain: Domain, name: str) -> Iterator[tuple[noisy.Part, str]]:
    column = domain[name]
    if column.ranged:
        yield (name, NUMBER), name
        return
    for level in range(1, column.levels - column.missing):
        yield (name, level), f"{name}={column.labels[level]}"
