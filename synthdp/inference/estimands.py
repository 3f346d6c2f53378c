"""The results of a spec's estimands: figures with intervals, from sums that were paid for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from synthdp.bundle.noisy_values import ESTIMANDS, sums_from_json, sums_json
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.errors import VerifyError
from synthdp.files import check_sums, parse_json, read_text
from synthdp.inference.figures import (
    CERTAIN,
    FEWEST,
    NOTHING,
    Cuts,
    Figure,
    Interval,
    Quadratic,
    Rows,
    Value,
    Z,
    certain,
    count_figure,
    ordered_levels,
    quantile_estimate,
    quantile_interval,
    ratio_figure,
    ratio_interval,
    too_few,
    value_bounds,
)
from synthdp.inference.least_squares import Functionals
from synthdp.inference.words import counted, figure_lines, figures_text, listed, whom
from synthdp.model.estimands import (
    Design,
    design_of,
    effect_adjustment,
    estimand_name,
    strata_of,
    sums_of,
    weak,
)
from synthdp.privacy.mechanisms.sums import (
    NUMBER,
    SQUARE,
    Bounded,
    NoisyProducts,
    NoisySums,
    Part,
    Sums,
)
from synthdp.privacy.table import Table
from synthdp.spec.expressions.query import Query, parse_query
from synthdp.spec.load.loader import load_spec
from synthdp.spec.model import (
    AskedEstimand,
    EffectEstimand,
    Estimand,
    RegressionEstimand,
    ReleaseSpec,
    TableEstimand,
)
from synthdp.spec.model.evaluation import Clip, number_bounds

TABLE = "a noisy table of marginals.json: `synthdp answer` has its shares and means"


@dataclass(frozen=True)
class EstimandResult:
    """What an estimand was found to be.

    `text` says what it is. `figures` has one figure, or one for each group; a contingency table has
    none, since `marginals.json` has it. `about` says in words what the figures are of.
    """

    name: str
    kind: str
    text: str
    statistic: str
    figures: tuple[Figure, ...]
    about: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same in plain JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "text": self.text,
            "statistic": self.statistic,
            "level": 0.95,
            "figures": [figure.to_json() for figure in self.figures],
            "about": list(self.about),
        }

    def __str__(self) -> str:
        lines = figure_lines(self.statistic, self.figures, interval=True) if self.figures else []
        return figures_text(f"{self.text}   (paid for)", lines, self.about)


def estimand_results(
    spec: ReleaseSpec, domain: Domain, sums: Mapping[str, Sums], rows: Rows | None = None
) -> tuple[EstimandResult, ...]:
    """The results of all estimands of a spec, from the sums of each, in the order of the spec.

    The sums are over `rows`; by default, those that a release counts.

    Raises:
        KeyError: an estimand has no sums.
    """
    return tuple(_results(spec, domain, sums, rows or Rows.of_spec(spec)))


def _results(
    spec: ReleaseSpec, domain: Domain, sums: Mapping[str, Sums], rows: Rows
) -> Iterator[EstimandResult]:
    for i, estimand in enumerate(spec.estimands):
        name = estimand_name(i)
        statistic, figures, about = _result(spec, domain, estimand, sums.get(name), rows)
        said = tuple(dict.fromkeys(about))
        yield EstimandResult(name, estimand.kind, estimand_text(estimand), statistic, figures, said)


def _result(
    spec: ReleaseSpec,
    domain: Domain,
    estimand: Estimand,
    sums: Sums | None,
    rows: Rows,
) -> tuple[str, tuple[Figure, ...], Iterable[str]]:
    """What is asked for, its figures, and what they are of."""
    if isinstance(estimand, TableEstimand):
        return "table", (), [TABLE]
    if sums is None:
        raise KeyError("an estimand has no sums")
    if isinstance(estimand, RegressionEstimand):
        assert isinstance(sums, NoisyProducts)
        design = design_of(spec, domain, estimand)
        about = about_regression(spec, domain, estimand, design)
        return "coefficient", regression_figures(design, sums, rows), about
    assert not isinstance(sums, NoisyProducts)
    number = strata_of(spec, domain, estimand).number
    if isinstance(estimand, AskedEstimand):
        query = parse_query(estimand.ask, spec.columns)
        groups = _groups(query, domain)
        if query.statistic == "quantile":
            column = domain[query.column or ""]
            histograms = sums.counts.reshape(len(groups), -1)
            figures = quantile_figures(histograms, sums.sigma, query.p, column, rows, groups)
        else:
            figures = stratum_figures(query, sums, number, rows, groups)
        return query.statistic, figures, _about_question(spec, query, number)
    assert number is not None
    effect = effect_figure(sums, number, rows)
    return "effect", (effect,), _about_effect(spec, estimand, number)


def estimand_text(estimand: Estimand) -> str:
    """What an estimand is, in one line."""
    if isinstance(estimand, AskedEstimand):
        return estimand.ask
    if isinstance(estimand, TableEstimand):
        return f"table of {', '.join(estimand.columns)}"
    if isinstance(estimand, RegressionEstimand):
        where = f" where {estimand.where}" if estimand.where else ""
        return f"{estimand.outcome} ~ {' + '.join(estimand.terms)}{where}"
    against = estimand.control or "all other rows"
    return f"effect on {estimand.outcome}: {estimand.treated} against {against}"


def clipped_text(spec: ReleaseSpec, estimand: Estimand) -> str:
    """`estimand_text`, and where its numbers are clipped: it is then of other numbers than the
    rows'. A clip that is the column's bounds changes none, and is left out.
    """
    clips: Mapping[str, Clip | None] = {}
    if isinstance(estimand, RegressionEstimand):
        clips = estimand.clips
    elif not isinstance(estimand, TableEstimand):
        clips = {_outcome(spec, estimand) or "": estimand.clip}
    told = "; ".join(
        f"{name} clipped to {clip[0]:g} to {clip[1]:g}, of {bounds[0]:g} to {bounds[1]:g}"
        for name, clip in clips.items()
        if clip is not None and tuple(clip) != (bounds := number_bounds(spec.columns[name]))
    )
    return f"{estimand_text(estimand)} ({told})" if told else estimand_text(estimand)


def paid_about(spec: ReleaseSpec, name: str | None) -> Iterator[str]:
    """A sentence on the results about a column that a release paid for; none without any."""
    asked = [e for e in spec.estimands if name is not None and name == _outcome(spec, e)]
    if asked:
        texts = "; ".join(estimand_text(estimand) for estimand in asked)
        yield f"paid for, with intervals: {texts}. `synthdp answer BUNDLE` prints them"


def _outcome(spec: ReleaseSpec, estimand: Estimand) -> str | None:
    """The column that an estimand is about."""
    if isinstance(estimand, AskedEstimand):
        return parse_query(estimand.ask, spec.columns).column
    return None if isinstance(estimand, TableEstimand) else estimand.outcome


def _groups(query: Query, domain: Domain) -> Sequence[str | None]:
    if query.by is None:
        return [None]
    return domain[query.by].labels


def _about_question(spec: ReleaseSpec, query: Query, number: Bounded | None) -> Iterator[str]:
    yield "measured: sums that this release paid for; conditions were tried on the values"
    yield from whom(query, spec, measured=True)
    if query.statistic == "quantile":
        yield (
            f"read off the rows in each level of {query.column}: the interval ends where levels"
            " end; inside a level the estimate takes numbers to lie evenly"
        )
    if number is not None:
        yield _clipped(spec, number)


def _about_effect(spec: ReleaseSpec, estimand: EffectEstimand, number: Bounded) -> Iterator[str]:
    adjusted, note = effect_adjustment(spec, estimand)
    yield "measured: sums by stratum that this release paid for"
    how = f"adjusted for {', '.join(adjusted)}" if adjusted else "a difference of means"
    yield f"{how}; it is the treatment's effect if nothing else makes the two groups differ"
    if note and estimand.adjust is None:
        yield note
    if estimand.control is not None:
        yield "rows of which both conditions hold count as treated"
    if spec.columns[estimand.outcome].missing:
        yield f"rows that lack {estimand.outcome} are left out"
    yield (
        "averaged over the rows of both groups; the interval is of the population that the rows are"
        " a sample of: it has the sampling and the noise"
    )
    unit = spec.dataset.privacy_unit
    if unit.max_rows > 1:
        yield f"of {unit.meaning} at most {unit.max_rows} rows count; the interval allows for it"
    yield _clipped(spec, number)


def _clipped(spec: ReleaseSpec, number: Bounded) -> str:
    return (
        f"{number.column} of {number.lower:g} to {number.upper:g}: what lies beyond counts as the"
        " nearer end"
    )


def estimands_json(spec: ReleaseSpec, domain: Domain, sums: Mapping[str, Sums]) -> dict[str, Any]:
    """The content of `estimands.json`: the results, and the noisy sums that they follow from."""
    results = estimand_results(spec, domain, sums)
    return {"estimands": [result.to_json() for result in results], "sums": sums_json(sums)}


def exact_results(spec: ReleaseSpec, domain: Domain, table: Table) -> tuple[EstimandResult, ...]:
    """The results on all rows of a table, without noise. Confidential: for the steward alone."""
    unit = Rows.of_spec(spec).per_unit
    return estimand_results(spec, domain, exact_sums(spec, domain, table), Rows(per_unit=unit))


def exact_sums(spec: ReleaseSpec, domain: Domain, table: Table) -> dict[str, Sums]:
    """The sums of each estimand over all rows of a table, without noise. Confidential as well."""
    return {
        estimand_name(i): sums_of(spec, domain, estimand).without_noise(table)
        for i, estimand in enumerate(spec.estimands)
        if not isinstance(estimand, TableEstimand)
    }


def stated_sums(stated: Mapping[str, Any], spec: ReleaseSpec, domain: Domain) -> dict[str, Sums]:
    """The noisy sums in the content of `estimands.json`, with the noise that they state.

    Raises:
        ValueError, KeyError, TypeError: they are not those of the spec.
    """
    sums = {}
    for i, estimand in enumerate(spec.estimands):
        if isinstance(estimand, TableEstimand):
            continue
        name, mechanism = estimand_name(i), sums_of(spec, domain, estimand)
        found = stated["sums"][name]
        sigma = float(found["sigma"])
        if not sigma > 0:
            raise ValueError("noise that is not above 0")
        sums[name] = sums_from_json(found, mechanism.scaled(sigma / mechanism.sensitivity))
    if stated["sums"].keys() != sums.keys():
        raise ValueError("sums of other estimands")
    return sums


def bundle_estimands(bundle: Path) -> tuple[EstimandResult, ...]:
    """The results of the estimands of the bundle in a folder; none where it paid for none.

    Raises:
        VerifyError: a file was changed, or cannot be read.
    """
    check_sums(bundle, ("spec.yaml",))
    spec = load_spec(bundle / "spec.yaml")
    if not spec.estimands:
        return ()
    check_sums(bundle, (ESTIMANDS,))
    domain = Domain.from_spec(spec.columns)
    try:
        sums = stated_sums(parse_json(read_text(bundle / ESTIMANDS)), spec, domain)
        return estimand_results(spec, domain, sums)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerifyError(
            f"cannot read {ESTIMANDS} in {bundle}: {type(error).__name__}",
            hint=f"see `synthdp verify {bundle}`",
        ) from None


# --- strata ---
#
# Figures of noisy sums by stratum: shares, counts, means, and effects by the g-formula.
#
# The sums of a stratum are its rows n, the sum S of u = (number - middle) / half, and the sum Q of
# u^2, with independent noise of deviations sigma, sigma and sigma / `SQUARE`. [`docs/inference.md`
# has the derivations.]


Floats = npt.NDArray[np.float64]


def stratum_figures(
    query: Query,
    sums: NoisySums,
    number: Bounded | None,
    rows: Rows,
    groups: Sequence[str | None],
) -> tuple[Figure, ...]:
    """The figures of a question, one for each of `groups`, whose sums are the last axis."""
    counts = sums.counts.reshape(len(sums.counts), -1)
    figures = []
    for at, group in enumerate(groups):
        if query.statistic == "count":
            found = _functionals(counts[:1, at], np.ones((1, 1)), [sums.sigma])
            figures.append(count_figure(found, rows, group))
        elif query.statistic == "share":
            taken = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
            found = _functionals(counts[:, at], taken, [sums.sigma] * 2)
            figures.append(ratio_figure("share", found, (0.0, 1.0), rows, group))
        else:
            assert number is not None
            figures.append(_mean(sums, number, at, rows, group))
    return tuple(figures)


def _mean(sums: NoisySums, number: Bounded, at: int, rows: Rows, group: str | None) -> Figure:
    """The mean of one stratum: that of u, taken to the number's own unit."""
    seen = np.array([part.reshape(1, -1)[0, at] for part in (sums.counts, sums.sums, sums.squares)])
    taken = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    found = _functionals(seen, taken, [sums.sigma, sums.sigma, sums.sigma / SQUARE])
    scaled = ratio_figure("mean", found, (-1.0, 1.0), rows, group)
    if scaled.estimate is None:
        return scaled

    def unscaled(value: Value) -> float:
        return number.middle + number.half * float(value)

    def both(ends: tuple[Value, Value] | None) -> tuple[Value, Value] | None:
        return None if ends is None else (unscaled(ends[0]), unscaled(ends[1]))

    return replace(
        scaled,
        estimate=unscaled(scaled.estimate),
        interval=both(scaled.interval),
        of_rows=both(scaled.of_rows),
    )


def _functionals(seen: Floats, taken: Floats, sigmas: Sequence[float]) -> Functionals:
    """Numerator, denominator and squares `[3, k]` of noisy sums `[k]`, twice: low and high."""
    once = np.vstack([taken] * (6 // len(taken)))
    return Functionals(once @ seen, (once * np.square(sigmas)) @ once.T)


def effect_figure(sums: NoisySums, number: Bounded, rows: Rows) -> Figure:
    """The effect of the first arm against the second, averaged over the rows of both.

    psi = sum_z w_z (m_1z - m_0z), with w_z the share of stratum z among the rows of both arms. It
    is refused where a stratum of an arm has too few rows for a mean.
    """
    n, total, squares = (part.reshape(2, -1) for part in (sums.counts, sums.sums, sums.squares))
    about = max(0.0, float(n.sum())) / (1 - rows.holdout)
    least = max(FEWEST, CERTAIN * sums.sigma)
    thin = int((n < least).sum())
    if thin:
        return Figure(
            None,
            rows=about,
            refused=(
                f"{thin} of {n.size} strata have fewer than {least:,.0f} rows, which is what their"
                " noise asks for"
            ),
        )
    weights, everyone = n.sum(0) / n.sum(), float(n.sum())
    # A noisy denominator makes a weighted mean too long by sigma^2 / n^2, less what it adds to its
    # own weight: in many strata these biases would add up.
    means = total / n * (1 - n[::-1] / n.sum(0) * (sums.sigma / n) ** 2)
    difference = means[0] - means[1]
    effect = float(weights @ difference)
    sign = np.array([[1.0], [-1.0]])
    by_sum = sign * weights / n
    by_count = -by_sum * means + (difference - effect) / everyone
    noise = sums.sigma**2 * float((by_count**2 + by_sum**2).sum())
    within = np.maximum(squares / n - means**2, 0.0) / n
    sampling = float((weights**2 * within.sum(0)).sum())
    sampling += float(weights @ (difference - effect) ** 2) / everyone

    def ends(variance: float) -> tuple[float, float]:
        reach = Z * math.sqrt(variance)
        return number.half * (effect - reach), number.half * (effect + reach)

    return Figure(
        None,
        about,
        number.half * effect,
        ends(noise + rows.per_unit * sampling),
        ends(noise),
    )


# --- quantiles ---
#
# Quantiles of noisy histograms that were paid for: a column's levels, by strata.
#
# [`docs/inference.md` has the derivations.]


def quantile_figures(
    counts: Floats,
    sigma: float,
    p: float,
    column: ColumnDomain,
    rows: Rows,
    groups: Sequence[str | None],
) -> tuple[Figure, ...]:
    """The quantile of p of a number, one figure for each of `groups`.

    `counts` `[groups, levels]` has independent noise of deviation `sigma`.
    """
    return tuple(
        _quantile(levels, sigma, p, column, rows, group)
        for levels, group in zip(counts, groups, strict=True)
    )


def _quantile(
    counts: Floats, sigma: float, p: float, column: ColumnDomain, rows: Rows, group: str | None
) -> Figure:
    """With F_k the rows of the first k places, F_k - p d is a sum of counts times 1 - p or -p."""
    place, low, high = ordered_levels(*value_bounds(column))
    known = place < len(low)  # all levels but the missing one
    total = float(counts[known].sum())
    about, variance = total / (1 - rows.holdout), float(known.sum()) * sigma**2
    if not certain(total, variance):
        return too_few(group, about, variance, rows)
    up_to = place[known] <= np.arange(len(low))[:, None]
    weights = up_to - p
    at, noise = weights @ counts[known], (weights**2).sum(axis=1) * sigma**2
    sampling = rows.per_unit * p * (1 - p) * total

    def cuts(extra: float) -> Cuts:
        sd = np.sqrt(noise + extra)
        return Cuts(-p * total, at, sd, at, sd)

    found = cuts(sampling)
    ends = quantile_interval(found, low, high)
    if ends == (float(low[0]), float(high[-1])) and len(low) > 1:
        return Figure(group, about, refused=NOTHING)
    of_rows = quantile_interval(cuts(0.0), low, high)
    return Figure(group, about, quantile_estimate(found, low, high), ends, of_rows)


# --- regression ---
#
# Coefficients of a linear regression, from noisy sums of products.
#
# [`docs/inference.md` has the derivations.]


SPREAD = (
    "the sampling is right where the outcome spreads about the line by the same everywhere; where"
    " it spreads more in a rare group, the interval of that group's coefficient is too narrow"
)
TWO_VALUED = (
    "of two categories the spread is the most that their shares allow in each group: the interval"
    " is right if the line is, and may be wider than it need be"
)
CAUTION = 2.0
"""Deviations of the noise by which the shares of an outcome are taken to be less extreme."""


def regression_figures(design: Design, noisy: NoisyProducts, rows: Rows) -> tuple[Figure, ...]:
    """One figure for each coefficient; all are refused where noise leaves no sure inverse."""
    moments, size = design.moments(noisy.sums), len(design.names)
    gram, count = moments[:-1, :-1], float(moments[0, 0])
    about = max(0.0, count) / (1 - rows.holdout)
    if count < FEWEST + size or weak(gram, noisy.sigma):
        why = "too few rows, or terms that hardly differ from each other, for this noise"
        return tuple(Figure(name, about, refused=why) for name in design.names)
    theta = _solved(gram, moments[:-1, -1])
    residual = np.append(-theta, 1.0)
    squares = max(float(residual @ moments @ residual), 0.0) / (count - size)
    groups = shares_of(design, moments, noisy.sigma) if design.two_valued else None
    found = []
    rows_of_raw = zip(design.functions, design.names, np.linalg.inv(design.raw.T), strict=True)
    for function, name, c in rows_of_raw:
        direction = _solved(gram, c)
        d = 1.0 / float(c @ direction)
        w = d * direction
        sampling = squares * d if groups is None else min(d, two_valued(design, groups, w))
        ends = [
            _interval(design, noisy.sigma, w, d, theta, float(c @ theta), variance)
            for variance in (rows.per_unit * sampling, 0.0)
        ]
        shift = design.outcome.middle if function == () else 0.0
        found.append(_figure(name, about, float(c @ theta), ends, design.outcome.half, shift))
    return tuple(found)


def _figure(
    name: str,
    about: float,
    estimate: float,
    intervals: list[Interval | None],
    half: float,
    shift: float,
) -> Figure:
    """A coefficient in the outcome's own unit, with both its intervals."""
    both, of_rows = intervals
    if both is None or of_rows is None:
        return Figure(name, about, refused="the noise leaves no interval")

    def unscaled(ends: Interval) -> Interval:
        return half * ends[0] + shift, half * ends[1] + shift

    return Figure(name, about, half * estimate + shift, unscaled(both), unscaled(of_rows))


@dataclass(frozen=True)
class Group:
    """Rows with one level of a category (all rows: None), and the most that their outcome, of two
    values, spreads about its mean: the sum of its variances.
    """

    level: Part | None
    spread: float


def shares_of(design: Design, moments: Floats, sigma: float) -> list[list[Group]]:
    """All rows as one group, and for each category the groups of its levels.

    n rows whose outcome in {-1, 1} has the sum s have variances of n (1 - m^2) at most in sum, with
    m = s / n, whatever each row's probability is (Jensen). Of noisy n and s the least extreme
    within `CAUTION` deviations is taken.
    """

    def group(level: Part | None, n: float, s: float, sd: float) -> Group:
        most = max(n + CAUTION * sd, 0.0)
        least = max(abs(s) - CAUTION * sd, 0.0)
        return Group(level, most - least**2 / most if 0 < least < most else most)

    n, s = float(moments[0, 0]), float(moments[0, -1])
    found = [[group(None, n, s, sigma)]]
    alone = {f[0]: i for i, f in enumerate(design.functions) if len(f) == 1 and f[0][1] != NUMBER}
    for name in dict.fromkeys(name for name, _ in alone):
        places = {part: i for part, i in alone.items() if part[0] == name}
        rows, sums = moments[[*places.values()], 0], moments[[*places.values()], -1]
        wide = sigma * math.sqrt(1 + len(places))  # of the first level, which is what others leave
        first = group((name, 0), n - float(rows.sum()), s - float(sums.sum()), wide)
        others = zip(places, rows.tolist(), sums.tolist(), strict=True)
        found.append([first, *(group(part, k, t, sigma) for part, k, t in others)])
    return found


def two_valued(design: Design, groupings: list[list[Group]], w: Floats) -> float:
    """A bound of the sum of (w' x)^2 times the variance of an outcome of two values.

    In a group it is at most the square of the largest |w' x| there times the group's spread.
    """
    return min(
        sum(reach(design, w, group.level) ** 2 * group.spread for group in groups)
        for groups in groupings
    )


def reach(design: Design, w: Floats, given: Part | None) -> float:
    """A bound of |w' x| over all rows, or those with one level of a category.

    Of the functions of one term a row has one at most.
    """
    low, high = 0.0, 0.0
    terms: dict[frozenset[str], list[tuple[float, float]]] = {}
    for function, weight in zip(design.functions, w.tolist(), strict=True):
        levels = {part for part in function if part[1] != NUMBER}
        if given and any(name == given[0] for name, _ in levels) and given not in levels:
            continue
        if len(levels) < len(function):
            ends = (-abs(weight), abs(weight))
        elif levels <= {given}:  # each of these rows has it
            low, high = low + weight, high + weight
            continue
        else:
            ends = (weight, weight)
        terms.setdefault(frozenset(name for name, _ in function), []).append(ends)
    for ways in terms.values():
        low += min(0.0, *(least for least, _ in ways))
        high += max(0.0, *(most for _, most in ways))
    return max(abs(low), abs(high))


def _interval(
    design: Design,
    sigma: float,
    w: Floats,
    d: float,
    theta: Floats,
    t: float,
    sampling: float,
) -> Interval | None:
    """The interval of c' theta: all t with (w' (s - S theta_t))^2 <= z^2 variance(t).

    theta_t solves the equations but for the direction w, under c' theta_t = t. `sampling` is the
    part of the variance that is the sample's.
    """
    of_start = _by_product(design, w, np.append(t * w - theta, 1.0))
    of_t = _by_product(design, w, np.append(w, 0.0))
    nn, nd, dd = (sigma**2 * float(a @ b) for a, b in (
        (of_start, of_start), (of_start, of_t), (of_t, of_t)
    ))  # fmt: skip
    return ratio_interval(d * t, d, Quadratic(nn + sampling, nd, dd))


def _solved(gram: Floats, right: Floats) -> Floats:
    return np.linalg.solve(gram, right).astype(np.float64)


def _by_product(design: Design, w: Floats, beta: Floats) -> Floats:
    """How often each product is in w' M beta, M the moments: `[products]`."""
    places = design.places[:-1]
    there, pairs = places >= 0, np.outer(w, beta)
    summed = np.bincount(places[there], weights=pairs[there], minlength=len(design.products))
    return summed.astype(np.float64)


def about_regression(
    spec: ReleaseSpec, domain: Domain, estimand: RegressionEstimand, design: Design
) -> Iterator[str]:
    """What the coefficients are of, in sentences."""
    bounds = (*design.numbers, design.outcome)
    columns = dict.fromkeys(n for f in design.functions for n, _ in f)
    yield "measured: sums of products that this release paid for; least squares"
    for name in columns:
        if not domain[name].ranged:
            yield f"{name}: its levels are compared with {domain[name].labels[0]}"
    lacking = [n for n in (*columns, estimand.outcome) if spec.columns[n].missing]
    if lacking:
        yield f"rows that lack {listed(lacking)} are left out"
    yield (
        "the interval is of the population that the rows are a sample of: it has the sampling and"
        f" the noise; {TWO_VALUED if design.two_valued else SPREAD}"
    )
    yield from counted(spec, [n for n in columns if not domain[n].ranged])
    for number in bounds:
        yield (
            f"{number.column} of {number.lower:g} to {number.upper:g}: what lies beyond counts as"
            " the nearer end"
        )
