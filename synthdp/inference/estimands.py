"""The results of a spec's estimands: figures with intervals, from sums that were paid for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthdp.bundle.noisy_sums import ESTIMANDS, sums_from_json, sums_json
from synthdp.data.domain import Domain
from synthdp.errors import VerifyError
from synthdp.files import check_sums, parse_json, read_text
from synthdp.inference.figures import Figure, Rows
from synthdp.inference.quantiles import quantile_figures
from synthdp.inference.regression import about_regression, regression_figures
from synthdp.inference.strata import effect_figure, stratum_figures
from synthdp.inference.words import figure_lines, figures_text, whom
from synthdp.model.estimands import effect_adjustment, estimand_name, strata_of, sums_of
from synthdp.model.regression import design_of
from synthdp.privacy.mechanisms.product_sums import NoisyProducts, Sums
from synthdp.privacy.mechanisms.stratum_sums import Bounded
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
from synthdp.spec.model.estimands import Clip, number_bounds

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
