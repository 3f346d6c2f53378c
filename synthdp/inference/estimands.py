"""The results of a spec's estimands: figures with intervals, from sums that were paid for.

What is told of a kind of estimand stands at its `EstimandKind`. [`docs/inference.md` has the
derivations.]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from synthdp.bundle.noisy_values import ESTIMANDS, sums_from_json, sums_json
from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.errors import VerifyError
from synthdp.files import check_sums, parse_json, read_text
from synthdp.inference import figures as of_cells
from synthdp.inference.figures import Cuts, Figure, Rows, Z
from synthdp.inference.least_squares import SETTINGS, Functionals
from synthdp.inference.sums import (
    OVERLAP,
    MeasuredContrast,
    about_regression,
    contrast_figure,
    regression_figures,
)
from synthdp.inference.words import POPULATION, clamped, counted, figure_lines, figures_text, whom
from synthdp.model import estimands as sums_of_kind
from synthdp.model.estimands import (
    EffectSums,
    QuestionSums,
    chosen_contrast,
    contrast_budget,
    contrast_of_sums,
    design_of,
    estimand_name,
    sums_of,
)
from synthdp.model.planning import moment_sums
from synthdp.privacy.mechanisms import sums as noisy
from synthdp.privacy.mechanisms.sums import (
    Bounded,
    ContrastBudget,
    NoisyContrast,
    NoisyProducts,
    NoisySums,
    Sums,
)
from synthdp.privacy.plan import MOMENTS
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

Floats = npt.NDArray[np.float64]
_E = TypeVar("_E")


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
    found, rows = [], rows or Rows.of_spec(spec)
    for i, estimand in enumerate(spec.estimands):
        name, kind = estimand_name(i), ESTIMAND_KINDS[estimand.kind]
        own = None if estimand.table else sums[name]
        figures, about = kind.figures(spec, domain, estimand, own, rows)
        text, statistic = kind.text(estimand), kind.statistic(spec, estimand)
        said = tuple(dict.fromkeys(about))
        found.append(EstimandResult(name, estimand.kind, text, statistic, figures, said))
    return tuple(found)


def clipped_text(spec: ReleaseSpec, estimand: Estimand) -> str:
    """What an estimand is, and where its numbers are clipped: it is then of other numbers than the
    rows'. A clip that is the column's bounds changes none, and is left out.
    """
    kind = ESTIMAND_KINDS[estimand.kind]
    told = "; ".join(
        f"{name} clipped to {clip[0]:g} to {clip[1]:g}, of {bounds[0]:g} to {bounds[1]:g}"
        for name, clip in kind.clips(spec, estimand).items()
        if clip is not None and tuple(clip) != (bounds := number_bounds(spec.columns[name]))
    )
    return f"{kind.text(estimand)} ({told})" if told else kind.text(estimand)


def paid_about(spec: ReleaseSpec, name: str | None) -> Iterator[str]:
    """A sentence on the results about a column that a release paid for; none without any."""
    kinds = ((ESTIMAND_KINDS[e.kind], e) for e in spec.estimands if name is not None)
    texts = "; ".join(kind.text(e) for kind, e in kinds if kind.outcome(spec, e) == name)
    if texts:
        yield f"paid for, with intervals: {texts}. `synthdp answer BUNDLE` prints them"


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
    found: dict[str, Sums] = {
        name: mechanism.without_noise(table)
        for name, mechanism in measured_sums(spec, domain).items()
        if name != MOMENTS
    }
    for name, budget in measured_contrasts(spec, domain).items():
        sums, silent = found[name], budget.scaled(noisy.NO_NOISE)
        assert isinstance(sums, NoisySums)
        exact = contrast_of_sums(chosen_contrast(silent, sums), sums)
        found[name] = replace(sums, contrast=NoisyContrast(exact, silent.sigma))
    return found


def measured_sums(spec: ReleaseSpec, domain: Domain) -> dict[str, noisy.SumMechanism]:
    """What measures the sums of a release, by estimand, and its moments as `MOMENTS`."""
    found = {
        estimand_name(i): sums_of(spec, domain, estimand)
        for i, estimand in enumerate(spec.estimands)
        if not estimand.table
    }
    return found | ({MOMENTS: moment_sums(spec, domain)} if spec.privacy.shares.moments else {})


def measured_contrasts(spec: ReleaseSpec, domain: Domain) -> dict[str, ContrastBudget]:
    """What measures an effect by strata after the sums of a release, by estimand."""
    found = {
        estimand_name(i): contrast_budget(estimand, sums_of(spec, domain, estimand))
        for i, estimand in enumerate(spec.estimands)
        if not estimand.table
    }
    return {name: budget for name, budget in found.items() if budget is not None}


def stated_sums(stated: Mapping[str, Any], spec: ReleaseSpec, domain: Domain) -> dict[str, Sums]:
    """The noisy sums in the content of `estimands.json`, with the noise that they state.

    Raises:
        ValueError, KeyError, TypeError: they are not those of the spec.
    """
    sums, contrasts = {}, measured_contrasts(spec, domain)
    for name, mechanism in measured_sums(spec, domain).items():
        found = stated["sums"][name]
        sigma = float(found["sigma"])
        if not sigma > 0:
            raise ValueError("noise that is not above 0")
        mechanism = mechanism.scaled(sigma / mechanism.sensitivity)
        sums[name] = sums_from_json(found, mechanism, contrasts.get(name))
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
    domain = Domain.from_spec(spec.columns)
    return estimand_results(spec, domain, bundle_sums(bundle, spec, domain))


def bundle_sums(bundle: Path, spec: ReleaseSpec, domain: Domain) -> dict[str, Sums]:
    """The noisy sums of the bundle in a folder, which has the `spec`; it raises likewise."""
    if not spec.pays_for_sums:
        return {}
    check_sums(bundle, (ESTIMANDS,))
    try:
        return stated_sums(parse_json(read_text(bundle / ESTIMANDS)), spec, domain)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VerifyError(
            f"cannot read {ESTIMANDS} in {bundle}: {type(error).__name__}",
            hint=f"see `synthdp verify {bundle}`",
        ) from None


Told = tuple[tuple[Figure, ...], Iterable[str]]
"""Figures, and what they are of, in sentences."""


class EstimandKind(ABC, Generic[_E]):
    """What is told of one kind of estimand. It has no state."""

    figures_are: ClassVar[str] = ""

    @abstractmethod
    def text(self, asked: _E) -> str:
        """What an estimand is, in one line."""

    def statistic(self, spec: ReleaseSpec, asked: _E) -> str:
        """What its figures are."""
        return self.figures_are

    def outcome(self, spec: ReleaseSpec, asked: _E) -> str | None:
        """The column that it is about."""
        return None

    def clips(self, spec: ReleaseSpec, asked: _E) -> Mapping[str, Clip | None]:
        """Where it clips numbers, by column."""
        return {}

    @abstractmethod
    def figures(self, spec: ReleaseSpec, domain: Domain, asked: _E, sums: Any, rows: Rows) -> Told:
        """Its figures from its released sums over `rows`."""


class TableKind(EstimandKind[TableEstimand]):
    """A contingency table: its noise is that of a cell, in rows."""

    figures_are = "table"

    def text(self, asked: TableEstimand) -> str:
        return f"table of {', '.join(asked.columns)}"

    def figures(
        self, spec: ReleaseSpec, domain: Domain, asked: TableEstimand, sums: None, rows: Rows
    ) -> Told:
        return (), ["a noisy table of marginals.json: `synthdp answer` has its shares and means"]


class QuestionKind(EstimandKind[AskedEstimand]):
    """A share, a count, a mean or a quantile, perhaps by groups."""

    def text(self, asked: AskedEstimand) -> str:
        return asked.ask

    def statistic(self, spec: ReleaseSpec, asked: AskedEstimand) -> str:
        return parse_query(asked.ask, spec.columns).statistic

    def outcome(self, spec: ReleaseSpec, asked: AskedEstimand) -> str | None:
        return parse_query(asked.ask, spec.columns).column

    def clips(self, spec: ReleaseSpec, asked: AskedEstimand) -> Mapping[str, Clip | None]:
        return {self.outcome(spec, asked) or "": asked.clip}

    def figures(
        self, spec: ReleaseSpec, domain: Domain, asked: AskedEstimand, sums: NoisySums, rows: Rows
    ) -> Told:
        query = parse_query(asked.ask, spec.columns)
        levels = product(*(domain[name].labels for name in query.by))
        groups = [", ".join(labels) or None for labels in levels]
        about = [
            "measured: sums that this release paid for; conditions were tried on the values",
            *whom(query, spec, measured=True),
        ]
        if query.statistic == "quantile":
            about.append(
                f"read off the rows in each level of {query.column}: the interval ends where levels"
                " end; inside a level the estimate takes numbers to lie evenly"
            )
            column = domain[query.column or ""]
            counts = sums.counts.reshape(len(groups), -1)
            return quantile_figures(counts, sums.sigma, query.p, column, rows, groups), about
        number = QuestionSums().mechanism(spec, domain, asked, 1.0).number
        if number is not None:
            about.append(clamped(number))
        return stratum_figures(query, sums, number, rows, groups), about


class EffectKind(EstimandKind[EffectEstimand]):
    """An average effect, by the g-formula."""

    figures_are = "effect"

    def text(self, asked: EffectEstimand) -> str:
        against = asked.control or "all other rows"
        return f"effect on {asked.outcome}: {asked.treated} against {against}"

    def outcome(self, spec: ReleaseSpec, asked: EffectEstimand) -> str:
        return asked.outcome

    def clips(self, spec: ReleaseSpec, asked: EffectEstimand) -> Mapping[str, Clip | None]:
        return {asked.outcome: asked.clip}

    def figures(
        self, spec: ReleaseSpec, domain: Domain, asked: EffectEstimand, sums: NoisySums, rows: Rows
    ) -> Told:
        number = EffectSums().mechanism(spec, domain, asked, 1.0).number
        assert number is not None
        figures = [effect_figure(sums, number, rows)]
        if sums.counts[0].size > 1:
            figures.append(contrast_figure(sums, number, rows))
        return tuple(figures), self._about(spec, asked, number)

    def _about(self, spec: ReleaseSpec, asked: EffectEstimand, number: Bounded) -> Iterator[str]:
        adjusted, note = sums_of_kind.effect_adjustment(spec, asked)
        yield "measured: sums by stratum that this release paid for"
        ranges = {
            n: f"{n} in ranges from {', '.join(map('{:g}'.format, e))}"
            for n, e in asked.edges.items()
        }
        listed = ", ".join(ranges.get(name, name) for name in adjusted)
        how = f"adjusted for {listed}" if adjusted else "a difference of means"
        yield f"{how}; it is the treatment's effect if nothing else makes the two groups differ"
        if note and asked.adjust is None:
            yield note
        if asked.control is not None:
            yield "rows of which both conditions hold count as treated"
        if spec.columns[asked.outcome].missing:
            yield f"rows that lack {asked.outcome} are left out"
        yield f"averaged over the rows of both groups; {POPULATION}"
        if adjusted:
            yield (
                f"{OVERLAP}: each stratum of n1 treated and n0 others weighs n1 n0 / (n1 + n0), so"
                " that strata that have hardly any of one group hardly count; its rows are those of"
                " strata that are half treated and weigh as much; one sum over all rows tells it"
            )
        yield from counted(spec, ())
        yield clamped(number)


class RegressionKind(EstimandKind[RegressionEstimand]):
    """A linear regression."""

    figures_are = "coefficient"

    def text(self, asked: RegressionEstimand) -> str:
        where = f" where {asked.where}" if asked.where else ""
        return f"{asked.outcome} ~ {' + '.join(asked.terms)}{where}"

    def outcome(self, spec: ReleaseSpec, asked: RegressionEstimand) -> str:
        return asked.outcome

    def clips(self, spec: ReleaseSpec, asked: RegressionEstimand) -> Mapping[str, Clip | None]:
        return asked.clips

    def figures(
        self,
        spec: ReleaseSpec,
        domain: Domain,
        asked: RegressionEstimand,
        sums: NoisyProducts,
        rows: Rows,
    ) -> Told:
        design = design_of(spec, domain, asked)
        about = about_regression(spec, domain, asked, design)
        return regression_figures(design, sums, rows), about


ESTIMAND_KINDS: dict[str, EstimandKind[Any]] = {
    "question": QuestionKind(),
    "table": TableKind(),
    "effect": EffectKind(),
    "regression": RegressionKind(),
}
"""What is told of each kind, by its name in a spec."""


# --- strata ---
#
# Figures of noisy sums by stratum: shares, counts, means, and effects by the g-formula.
#
# The sums of a stratum are its rows n, the sum S of u = (number - middle) / half, and the sum Q of
# u^2, with independent noise of deviations sigma, sigma and sigma / `SQUARE`.


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
            figures.append(of_cells.count_figure(found, rows, group))
        elif query.statistic == "share":
            taken = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
            found = _functionals(counts[:, at], taken, [sums.sigma] * 2)
            figures.append(of_cells.ratio_figure("share", found, (0.0, 1.0), rows, group))
        else:
            assert number is not None  # the mean of u, taken to the number's own unit
            parts = (sums.counts, sums.sums, sums.squares)
            seen = np.array([part.reshape(1, -1)[0, at] for part in parts])
            taken = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
            found = _functionals(seen, taken, [sums.sigma, sums.sigma, sums.sigma / noisy.SQUARE])
            scaled = of_cells.ratio_figure("mean", found, (-1.0, 1.0), rows, group)
            figures.append(scaled.in_unit(number.half, number.middle))
    return tuple(figures)


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
    least = max(SETTINGS.fewest, SETTINGS.certain * sums.sigma)
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
    sign, part, extra = np.array([[1.0], [-1.0]]), np.zeros(n.shape[1]), 0.0
    by_count = (difference - effect) / everyone
    if (found := MeasuredContrast.of(sums)) is not None:
        # What the contrast measured is known better: as much of it as leaves the least noise.
        overlap = n[0] * n[1] / n.sum(0)
        apart = sums.sigma**2 * ((1 + means**2) / n**2).sum(0)
        times = float((weights * overlap) @ apart) / (float(overlap**2 @ apart) + found.noise.nn)
        part, rest = times * overlap, difference - found.guess
        effect += times * (found.rest - float(overlap @ rest))
        by_count = by_count - times * rest * (n[::-1] / n.sum(0)) ** 2
        extra = times**2 * found.noise.nn
    by_sum = sign * (weights - part) / n
    by_count = by_count - by_sum * means
    noise = sums.sigma**2 * float((by_count**2 + by_sum**2).sum()) + extra
    within = np.maximum(squares / n - means**2, 0.0) / n
    sampling = float((weights**2 * within.sum(0)).sum())
    sampling += float(weights @ (difference - effect) ** 2) / everyone

    both, of_rows = (
        (effect - Z * math.sqrt(variance), effect + Z * math.sqrt(variance))
        for variance in (noise + rows.per_unit * sampling, noise)
    )
    return Figure(None, about, effect, both, of_rows).in_unit(number.half, 0.0)


def quantile_figures(
    counts: Floats,
    sigma: float,
    p: float,
    column: ColumnDomain,
    rows: Rows,
    groups: Sequence[str | None],
) -> tuple[Figure, ...]:
    """The quantile of p for each of `groups`, by counts `[groups, levels]` of noise `sigma`.

    With F_k the rows of the first k places, F_k - p d is a sum of counts times 1 - p or -p.
    """
    place, low, high = of_cells.ordered_levels(*of_cells.value_bounds(column))
    known = place < len(low)  # all levels but the missing one
    weights = (place[known] <= np.arange(len(low))[:, None]) - p
    noise, variance = (weights**2).sum(axis=1) * sigma**2, float(known.sum()) * sigma**2

    def found(levels: Floats, group: str | None) -> Figure:
        total = float(levels.sum())
        about = total / (1 - rows.holdout)
        if not of_cells.certain(total, variance):
            return of_cells.too_few(group, about, variance, rows)
        at, sampling = weights @ levels, rows.per_unit * p * (1 - p) * total

        def cuts(extra: float) -> Cuts:
            sd = np.sqrt(noise + extra)
            return Cuts(-p * total, at, sd, at, sd)

        return of_cells.quantile_figure(group, about, cuts, sampling, low, high)

    return tuple(found(levels[known], group) for levels, group in zip(counts, groups, strict=True))
