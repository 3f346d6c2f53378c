"""How good a release will be, as far as public facts and the planned noise say it.

No row is read: what a release would measure is derived from stand-in laws, with the noise that the
plan has and what the release's own smoothing and tests make of it. Numbers are taken to spread like
a bell, categories by 1 / rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.graph.margin_smoothing import FEW_LEVELS, body_of, project_to_simplex
from synthdp.graph.prediction.groups import equal_groups
from synthdp.graph.prediction.search import ALL, CHOSEN, possible_pairs
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, Columns
from synthdp.privacy.plan import ReleasePlan
from synthdp.release.expected_links import (
    MEDIUM,
    GraphTests,
    LinkProspect,
    graph_tests,
    too_many_bins,
)
from synthdp.release.stand_in import stand_in_law
from synthdp.spec.model import ReleaseSpec

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
        return 1 / math.sqrt(own**-2 + others)
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
