"""Estimands played before a release: what is likely to be refused, and how wide intervals will be.

No row is read. The sums that a release would add up are drawn from stand-in laws, the planned noise
is added, and the very functions that answer after a release (`inference.estimands`) look at them,
so that what refuses here is what would refuse there. The draws are public, and have a seed.

A row's columns are independent, but for the terms of regressions (`Forecast.common`). The law of a
column is that of its `known_shares`, or the stand-in one; numbers that are added up spread like a
bell between the ends of their clip. Where nothing is declared of how many rows an arm has, refusals
are those where `Forecast.treated` of them are treated, and no other arm has fewer; intervals are as
wide as where any shares are as likely as others, and numbers spread by a drawn factor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, count, islice
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes, decode
from synthdp.errors import BudgetError
from synthdp.graph.margins import Probabilities
from synthdp.inference.estimands import ESTIMAND_KINDS, clipped_text
from synthdp.inference.figures import Figure, Rows, Z
from synthdp.model.estimands import (
    INTERCEPT,
    chosen_contrast,
    contrast_budget,
    contrast_of_sums,
    estimand_name,
)
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.sums import (
    GRID,
    SQUARE,
    Arm,
    Bounded,
    NoisyContrast,
    NoisyProducts,
    NoisySums,
    ProductSums,
    StratumSums,
    SumMechanism,
    Sums,
)
from synthdp.privacy.plan import ReleasePlan
from synthdp.release.expectations import ASSUMED, law_for_tests
from synthdp.spec.model import Estimand, ReleaseSpec

Floats = npt.NDArray[np.float64]


def played_estimands(spec: ReleaseSpec, domain: Domain, plan: ReleasePlan) -> list[dict[str, Any]]:
    """What plays say of each estimand, in plain JSON: its `name`, `text` with its clip, `statistic`
    and `refused`, the probability that no figure of it is told, or few of a regression's
    coefficients, with `why`; `likely_refused` says whether a release would then not pay for it.

    `figures` has each one's `group`, `refused` and `why`, and of the plays that tell it
    `half_width`, the median of half of the 95% interval, with the sampling of rows, `between`, what
    nine of ten of them are from and to (None for a regression), and `noise`, the standard deviation
    of the noise alone. A contingency table has the noise of a cell, in rows, and is never refused.
    """
    found = []
    for i, estimand in enumerate(spec.estimands):
        name = estimand_name(i)
        told: dict[str, Any] = {"name": name, "text": clipped_text(spec, estimand)}
        told["statistic"] = ESTIMAND_KINDS[estimand.kind].statistic(spec, estimand)
        if estimand.table:
            noise = plan.estimands[name].sigma  # type: ignore[attr-defined]
            figures = [
                {
                    "group": None,
                    "refused": 0.0,
                    "why": None,
                    "half_width": None,
                    "between": None,
                    "noise": float(noise),
                }
            ]
            told |= {"refused": 0.0, "likely_refused": False, "why": None}
            found.append(told | {"figures": figures})
        else:
            mechanism: Any = plan.estimands[name]
            found.append(told | _told(spec, domain, estimand, mechanism, ASSUMED.plays))
    return found


def check_answered(played: Iterable[Mapping[str, Any]]) -> None:
    """Refuse to pay for an estimand that plays often refuse (`BudgetError`)."""
    for told in played:
        if told["likely_refused"]:
            raise BudgetError(
                f"estimand {told['name']}, {told['text']}: likely to be paid for and refused, in"
                f" {told['refused']:.0%} of plays on stand-in rows: {told['why']}; nothing was read"
                " or spent",
                hint=(
                    "see `synthdp plan`, with `--for` what would do; ask for less, raise"
                    " privacy.shares.estimands, or declare known_shares of columns, by which rows"
                    " are played; `--accept-refusals` releases in spite of it"
                ),
            )


def noise_for(
    spec: ReleaseSpec, domain: Domain, estimand: Estimand, planned: SumMechanism, half_width: float
) -> tuple[float | None, float | None]:
    """The most noise, as a multiple of the planned one, with which every figure but an intercept,
    or one of an effect's, is likely told and has half of its interval `half_width` wide at most;
    None where none is small enough. Then the least half width, that of rows without noise, None
    where that is refused.
    """

    def widest(factor: float) -> float:
        told = _told(spec, domain, estimand, planned.scaled(factor), ASSUMED.plays // 2)
        asked = [f for f in told["figures"] if f["group"] != INTERCEPT]
        likely = [f["half_width"] for f in asked if f["refused"] <= ASSUMED.likely]
        if estimand.kind == "effect":  # its figures tell one effect, by other weights
            return min(likely, default=math.inf)
        return max(likely) if len(likely) == len(asked) else math.inf

    low, high = -8.0, 6.0  # powers of two
    least = widest(2**low)
    if least > half_width:
        return None, least if math.isfinite(least) else None
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (middle, high) if widest(2**middle) <= half_width else (low, middle)
    return 2**low, least


def _told(
    spec: ReleaseSpec, domain: Domain, estimand: Estimand, mechanism: SumMechanism, most: int
) -> dict[str, Any]:
    """What at most `most` plays come to, and as many whose laws are drawn."""
    stand_in = StandIn(spec, domain, estimand)
    plays = _plays(stand_in, mechanism, most)
    if isinstance(mechanism, ProductSums):
        return told_of_plays(plays, most=True)
    return told_of_plays(plays, _plays(replace(stand_in, drawn=True), mechanism, most))


def _plays(stand_in: StandIn, mechanism: SumMechanism, most: int) -> list[tuple[Figure, ...]]:
    rng = np.random.default_rng(0)  # of stand-in rows and of noise that is added to them alone
    spec, estimand = stand_in.spec, stand_in.estimand
    kind, rows = ESTIMAND_KINDS[estimand.kind], Rows.of_spec(spec)

    def figures() -> Iterator[tuple[Figure, ...]]:
        for exact in stand_in.sums(mechanism, rng):
            sums = with_noise(exact, estimand, mechanism, rng)
            yield kind.figures(spec, mechanism.domain, estimand, sums, rows)[0]

    each = figures()
    first = next(each)
    plays = min(most, max(10, ASSUMED.played_figures // len(first)))
    return [first, *islice(each, plays - 1)]


def told_of_plays(
    plays: Sequence[tuple[Figure, ...]],
    drawn: Sequence[tuple[Figure, ...]] = (),
    *,
    most: bool = False,
) -> dict[str, Any]:
    """What plays come to, whose widths are those of `drawn` if there are any. One is refused where
    all of its figures are, or more than half of those but an intercept, if `most` would do.
    """
    figures = []
    for same, wide in zip(
        zip(*plays, strict=True), zip(*(drawn or plays), strict=True), strict=True
    ):
        answered = [figure for figure in wide if figure.interval is not None]
        half, noise = (
            [(e[1] - e[0]) / 2 for e in ends if e]
            for ends in ([f.interval for f in answered], [f.of_rows for f in answered])
        )
        figures.append(
            {
                "group": same[0].group,
                "refused": fmean(f.interval is None for f in same),
                "why": _commonest(f.refused for f in same),
                "half_width": median(half) if half else None,
                "between": np.quantile(half, ASSUMED.between).tolist() if drawn and half else None,
                "noise": median(noise) / Z if noise else None,
            }
        )
    enough = 0.5 if most else 1e-9
    refused = [
        fmean(f.interval is not None for f in figures if f.group != INTERCEPT) < enough
        for figures in plays
    ]
    why, share = _commonest(f.refused for f in chain(*plays)), sum(refused) / len(plays)
    told = {"refused": share, "likely_refused": share > ASSUMED.likely, "why": why}
    return told | {"figures": figures}


def _commonest(reasons: Iterable[str | None]) -> str | None:
    counted = Counter(filter(None, reasons)).most_common(1)
    return counted[0][0] if counted else None


def with_noise(
    sums: Sums, estimand: Estimand, mechanism: SumMechanism, rng: np.random.Generator
) -> Sums:
    """Exact sums of simulated rows with noise as it will be, but for its rounding."""
    sigma = mechanism.sigma
    if isinstance(sums, NoisyProducts):
        return NoisyProducts(sums.sums + rng.normal(0, sigma, sums.sums.shape), sigma)
    assert isinstance(mechanism, StratumSums)
    noisy = replace(
        sums,
        counts=sums.counts + rng.normal(0, sigma, sums.counts.shape),
        sums=sums.sums + rng.normal(0, sigma, sums.sums.shape),
        squares=sums.squares + rng.normal(0, sigma / SQUARE, sums.squares.shape),
        sigma=sigma,
    )
    if (budget := contrast_budget(estimand, mechanism)) is None:
        return noisy
    exact = contrast_of_sums(chosen_contrast(budget, noisy), sums)
    told = exact + rng.normal(0, budget.sigma, 3)
    return replace(noisy, contrast=NoisyContrast(told, budget.sigma))


# --- stand-in sums ---


def _redrawn(rng: np.random.Generator, p: Floats, axis: int) -> Floats:
    """Shares of rows `[arms, *levels]` with other ones along an axis, all as likely as others; what
    is missing to 1 is a share of the first axis too.
    """
    now = p.sum(tuple(i for i in range(p.ndim) if i != axis))
    rest = axis == 0 and now.sum() < 1 - 1e-9
    shares = rng.dirichlet(np.ones(len(now) + rest))[: len(now)]
    shares *= 1.0 if axis == 0 else now.sum()
    return np.moveaxis(np.moveaxis(p, axis, -1) * (shares / np.maximum(now, 1e-300)), -1, axis)


@dataclass(frozen=True)
class StandIn:
    """Stand-in rows, of which the sums of one estimand are taken. Where `drawn`, each table has
    another spread of numbers, and other shares of arms of which nothing is declared.
    """

    spec: ReleaseSpec
    domain: Domain
    estimand: Estimand
    drawn: bool = False

    def sums(self, mechanism: SumMechanism, rng: np.random.Generator) -> Iterator[Sums]:
        """Exact sums of one stand-in table after another, without end."""
        if isinstance(mechanism, StratumSums):
            return self._by_stratum(mechanism, rng)
        return self._products(mechanism, rng)

    def law(self, column: ColumnDomain) -> Probabilities:
        """Probabilities `[levels]`: levels without a known share are alike but in size."""
        law = law_for_tests(column)
        known: Mapping[str, float] = getattr(self.spec.columns[column.name], "known_shares", {})
        given = np.array([label in known for label in column.labels])
        law[given] = [known[label] for label in column.labels if label in known]
        if given.any() and not given.all():
            law[~given] *= max(0.0, 1 - law[given].sum()) / law[~given].sum()
        scaled: Probabilities = law / law.sum()
        return scaled

    def _products(self, mechanism: ProductSums, rng: np.random.Generator) -> Iterator[Sums]:
        """Tables of at most `pool` rows stand for all of them, and each for some plays."""
        own, all_rows = self._own(mechanism), expected_fit_rows(self.spec)
        rows = round(min(ASSUMED.pool, max(1.0, all_rows)))
        while True:
            shared, common = rng.normal(size=rows), rng.uniform(*ASSUMED.common)
            codes, normal = np.empty((rows, len(own.domain)), np.uint16), dict[str, Floats]()
            for i, column in enumerate(own.domain.columns):
                alone = math.sqrt(1 - common) * rng.normal(size=rows)
                normal[column.name] = math.sqrt(common) * shared + alone
                below = np.cumsum(self.law(column))[:-1]
                codes[:, i] = np.searchsorted(below, ndtr(normal[column.name]), side="right")
            frame = self._frame(own.domain, codes, own.numbers, normal, rng)
            sums = own.block(frame, codes) / GRID * (all_rows / rows)
            yield from (NoisyProducts(sums, 0.0) for _ in range(10))

    def _by_stratum(self, mechanism: StratumSums, rng: np.random.Generator) -> Iterator[Sums]:
        """Rows fall on strata as the law has them; inside a stratum numbers add up to normal sums
        with their mean and variance.
        """
        p, mean, variance = self._strata(mechanism, rng)
        rows, empty = round(expected_fit_rows(self.spec)), np.zeros((0, *p.shape[1:]))
        asked = [{c for arm in mechanism.arms for e, _ in arm.conditions for c in e.columns}]
        unknown = [not self._declared(c) for c in [*asked, *({name} for name in mechanism.by)]]
        drawn, usual = p, variance
        for i in count():
            if self.drawn:
                drawn = reduce(partial(_redrawn, rng), np.flatnonzero(unknown), p)
                wider = math.exp(2 * ASSUMED.spread * ndtri((0.5 + i * 0.618034) % 1))  # evenly
                variance = np.minimum(usual * wider, 1 - mean**2)  # of u from -1 to 1
            found = self._uneven(drawn, rng) if self.estimand.kind == "effect" else drawn
            each = np.append(found.ravel(), max(0.0, 1 - found.sum()))
            n = rng.multinomial(rows, each / each.sum())[:-1].reshape(p.shape).astype(np.float64)
            if mechanism.number is None:
                yield NoisySums(n, empty, empty, 0.0)
                continue
            total = np.clip(n * mean + np.sqrt(n * variance) * rng.normal(size=n.shape), -n, n)
            yield NoisySums(n, total, n * variance + total**2 / np.maximum(n, 1), 0.0)

    def _uneven(self, p: Floats, rng: np.random.Generator) -> Floats:
        """Strata as large as in `p`, whose log odds of treatment differ: adjusting would be idle
        otherwise. As many rows are treated, nearly.
        """
        odds, found = np.exp(rng.normal(0, ASSUMED.uneven, p.shape[1:])), p
        for _ in range(4):
            lifted = np.stack([p[0] * odds, p[1]])
            found = lifted * (p.sum(0) / np.maximum(lifted.sum(0), 1e-300))
            odds *= p[0].sum() / max(found[0].sum(), 1e-300)
        return found

    def _strata(
        self, mechanism: StratumSums, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """Of each stratum the share of rows, and the mean and variance of u, `[arms, *levels]`."""
        own, effect = self._own(mechanism), self.estimand.kind == "effect"
        laws = [self._stratum_law(own, name, rng) for name in own.by]
        codes, weights = self._pool(own, rng)
        numbers = () if own.number is None else (own.number,)
        normal = {number.column: rng.normal(size=len(codes)) for number in numbers}
        frame = self._frame(own.domain, codes, numbers, normal, rng)
        by_arm = replace(own, by=()) if effect else own  # strata are independent of the arms
        stratum, u = by_arm.strata(frame, codes), by_arm.numbers(frame, codes)
        inside = (stratum >= 0) & ~np.isnan(u)
        moments = [
            np.bincount(stratum[inside], (weights * v)[inside], math.prod(by_arm.shape))
            for v in (np.ones(len(u)), u, u**2)
        ]
        n, first, second = (m.reshape(by_arm.shape) / weights.sum() for m in moments)
        some, pooled = n > 0, u[~np.isnan(u)]
        mean = np.where(some, first / np.where(some, n, 1), pooled.mean())
        square = np.where(some, second / np.where(some, n, 1), (pooled**2).mean())
        variance = np.maximum(square - mean**2, 0.0)
        n = self._lifted(own, n, laws)
        if not effect:
            return n, mean, variance
        p = np.multiply.outer(n, reduce(np.multiply.outer, laws, np.ones(())))
        each = (-1, *(1,) * len(laws))
        return p, mean.reshape(each) + 0 * p, variance.reshape(each) + 0 * p

    def _stratum_law(self, own: StratumSums, name: str, rng: np.random.Generator) -> Floats:
        """The law of a column's levels, or of its ranges: values lie evenly inside levels."""
        law, one = self.law(own.domain[name]), replace(own, arms=(Arm(),), by=(name,))
        if name not in dict(own.cuts):
            return law
        codes = np.zeros((ASSUMED.pool, len(own.domain)), np.uint16)
        codes[:, own.domain.index(name)] = rng.choice(len(law), ASSUMED.pool, p=law)
        placed = one.strata(decode(own.domain, codes, rng=rng), codes)
        return np.bincount(placed, minlength=one.shape[1]) / ASSUMED.pool

    def _declared(self, names: Iterable[str]) -> bool:
        return all(getattr(self.spec.columns[name], "known_shares", {}) for name in names)

    def _lifted(self, own: StratumSums, n: Floats, laws: Sequence[Floats]) -> Floats:
        """Shares of strata where no arm has next to no rows, unless shares are declared."""
        if self._declared({c for arm in own.arms for e, _ in arm.conditions for c in e.columns}):
            return n
        arms = n.reshape(len(n), -1).sum(1)
        wanted = np.maximum(arms, ASSUMED.treated)
        if self.estimand.kind == "effect":
            rest = arms[1] / max(1 - arms[0], 1e-9) * (1 - ASSUMED.treated)
            wanted = np.array([ASSUMED.treated, max(rest, ASSUMED.treated)])
        by = reduce(np.multiply.outer, laws, np.ones(())) if n.ndim > 1 else np.ones(())
        return np.stack(
            [w * (part / a if a else by) for part, a, w in zip(n, arms, wanted, strict=True)]
        )

    def _pool(self, own: StratumSums, rng: np.random.Generator) -> tuple[Codes, Floats]:
        """Levels `[rows, columns]` and weights of rows; each level of `by` is in equally many."""
        codes = np.empty((ASSUMED.pool, len(own.domain)), np.uint16)
        weights = np.ones(ASSUMED.pool)
        for i, column in enumerate(own.domain.columns):
            law = self.law(column)
            if column.name in own.by:
                codes[:, i] = rng.integers(0, column.levels, ASSUMED.pool)
                weights *= law[codes[:, i]] * column.levels
            else:
                codes[:, i] = rng.choice(column.levels, ASSUMED.pool, p=law)
        return codes, weights

    def _frame(
        self,
        domain: Domain,
        codes: Codes,
        numbers: Sequence[Bounded],
        normal: Mapping[str, Floats],
        rng: np.random.Generator,
    ) -> Any:
        """Values of rows: those of `numbers` by `normal` draws `[rows]`, where not missing."""
        frame = decode(domain, codes, rng=rng)
        for number in numbers:
            column, low, high = domain[number.column], number.lower, number.upper
            if column.ranged:
                bell = ASSUMED.bell_centre + ASSUMED.bell_width * normal[number.column]
                values = low + (high - low) * np.clip(bell, 0, 1)
                values = values if column.continuous else np.rint(values)
                frame[number.column] = frame[number.column].where(
                    frame[number.column].isna(), values
                )
        return frame

    def _own(self, mechanism: Any) -> Any:
        """The mechanism on the columns that it reads alone."""
        read = tuple(c for c in self.domain.columns if c.name in mechanism.reads)
        return replace(mechanism, domain=Domain(read))
