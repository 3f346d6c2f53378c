"""Checks of estimands: they are paid for, can be read, and are identified and small enough."""

from __future__ import annotations

import math
from collections.abc import Iterator

from synthdp.errors import QueryError
from synthdp.spec.checks.clips import clip_problems
from synthdp.spec.checks.evaluation import effect_problems
from synthdp.spec.checks.problem import CrossProblem, stated
from synthdp.spec.checks.regression import regression_problems
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.query import counted, parse_query
from synthdp.spec.model import (
    AskedEstimand,
    EffectEstimand,
    RegressionEstimand,
    ReleaseSpec,
    TableEstimand,
)
from synthdp.spec.syntax import Loc

MAX_CELLS = 100_000  # of a contingency table
MAX_STRATA = 1000  # of an arm
MAX_FIGURES = 10_000  # strata of all estimands: what a bundle writes, and a page lists some of
CAUSAL = ("given", "validate")  # modes whose declared arrows say what to adjust for


def share(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Estimands have a share, and a share has estimands."""
    part, where = spec.privacy.shares.estimands, ("privacy", "shares", "estimands")
    # Where shares are left out, the rules give estimands theirs.
    if spec.estimands and part == 0 and "shares" in spec.privacy.model_fields_set:
        yield CrossProblem(
            where,
            f"{stated(spec, *where)}; estimands need a share of the budget",
            "e.g. 0.15, taken from the others; or delete estimands",
        )
    if part > 0 and not spec.estimands:
        yield CrossProblem(
            where, f"got {part:g}, and there are no estimands", "name some, or set it to 0"
        )


def values(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Conditions and sums read values, which `levels_only` does not keep."""
    if not getattr(spec.dataset.source, "levels_only", False):
        return
    for i, estimand in enumerate(spec.estimands):
        if not isinstance(estimand, TableEstimand):
            yield CrossProblem(
                ("estimands", i, "kind"),
                "levels_only keeps no values, and this estimand reads them",
                "use kind: table, or leave out levels_only",
            )


def each(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """What is wrong with single estimands."""
    for i, estimand in enumerate(spec.estimands):
        where: Loc = ("estimands", i)
        if isinstance(estimand, TableEstimand):
            yield from _table(spec, where, estimand)
        elif isinstance(estimand, AskedEstimand):
            yield from _question(spec, where, estimand)
        elif isinstance(estimand, RegressionEstimand):
            yield from regression_problems(spec, where, estimand)
        else:
            yield from _effect(spec, where, estimand)


def _table(spec: ReleaseSpec, where: Loc, estimand: TableEstimand) -> Iterator[CrossProblem]:
    known = [spec.columns[name] for name in estimand.columns if name in spec.columns]
    cells = math.prod(column.level_count for column in known)
    if cells > MAX_CELLS:
        yield CrossProblem(
            (*where, "columns"),
            f"a table of {cells:,} cells; at most {MAX_CELLS:,} are measured",
            "name fewer columns, or declare wider bins; a share, a mean or an effect needs no bins",
        )


def _question(spec: ReleaseSpec, where: Loc, estimand: AskedEstimand) -> Iterator[CrossProblem]:
    try:
        query = parse_query(estimand.ask, spec.columns)
    except QueryError as error:
        for mistake in error.problems:
            text = f"character {mistake.at}: {mistake.message}"
            yield CrossProblem((*where, "ask"), text, mistake.hint)
        return
    if query.column is not None and spec.columns[query.column].operand == "date":
        yield CrossProblem(
            (*where, "ask"),
            f"{query.column!r} holds dates, whose quantiles are not paid for",
            "`synthdp answer` has them of the whole column; of groups, use kind: table",
        )
    if query.statistic == "quantile" and query.by == query.column:
        yield CrossProblem(
            (*where, "ask"), "by its own column a quantile says nothing", "name another column"
        )
    if query.statistic != "mean" and estimand.clip is not None:
        yield CrossProblem((*where, "clip"), f"a {query.statistic} has no numbers to clip")
    elif query.column is not None:
        yield from clip_problems(spec, (*where, "clip"), query.column, estimand.clip)
    yield from _strata(spec, (*where, "ask"), counted(query))


def _effect(spec: ReleaseSpec, where: Loc, estimand: EffectEstimand) -> Iterator[CrossProblem]:
    found = list(effect_problems(spec, where, estimand))
    outcome = spec.columns.get(estimand.outcome)
    if outcome is not None and outcome.operand == "date":
        text = f"{estimand.outcome!r} holds dates, whose sums are not measured"
        found.append(CrossProblem((*where, "outcome"), text, "name a number or a category"))
    if estimand.control == estimand.treated:
        text = "is the treatment: nobody would be compared"
        found.append(CrossProblem((*where, "control"), text, "leave it out for all other rows"))
    if estimand.adjust is None and spec.graph.mode not in CAUSAL:
        found.append(
            CrossProblem(
                where,
                f"graph mode {spec.graph.mode} declares no causes to adjust for",
                "say it, e.g. adjust: [age]; adjust: [] where the treatment was drawn by lot",
            )
        )
    adjusted = declared_causes(spec, estimand) if estimand.adjust is None else estimand.adjust
    if estimand.adjust is None and estimand.outcome in adjusted:
        text = "the graph has it for a cause of the treatment: that is no effect"
        found.append(CrossProblem((*where, "outcome"), text, "turn the arrow, or say adjust"))
    yield from found or [
        *clip_problems(spec, (*where, "clip"), estimand.outcome, estimand.clip),
        *_strata(spec, (*where, "adjust") if estimand.adjust else where, adjusted),
        *_latent(spec, where, estimand),
    ]


def declared_causes(spec: ReleaseSpec, estimand: EffectEstimand) -> tuple[str, ...]:
    """The columns that the spec's arrows make causes of the treatment, in the spec's order."""
    groups = spec.graph.groups
    group_of = {name: group for group, names in groups.items() for name in names}
    treated, _ = parse(estimand.treated, spec.columns, derived=False)
    nodes = {group_of.get(name, name) for name in (treated.columns if treated else ())}
    causes = {c for edge in spec.graph.edges if nodes & set(edge.effects) for c in edge.causes}
    names = {name for cause in causes - nodes for name in groups.get(cause, (cause,))}
    return tuple(name for name in spec.columns if name in names)


def figures(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """All estimands together have so many figures as a bundle can hold."""
    total = 0
    for estimand in spec.estimands:
        names: tuple[str, ...] = ()
        if isinstance(estimand, AskedEstimand):
            try:
                names = counted(parse_query(estimand.ask, spec.columns))
            except QueryError:
                return
        elif isinstance(estimand, EffectEstimand):
            names = estimand.adjust or ()
        total += math.prod(spec.columns[n].level_count for n in names if n in spec.columns)
    if total > MAX_FIGURES:
        yield CrossProblem(
            ("estimands",),
            f"{total:,} strata in all; at most {MAX_FIGURES:,} are measured",
            "name fewer estimands, or groups with fewer levels",
        )


def _latent(spec: ReleaseSpec, where: Loc, estimand: EffectEstimand) -> Iterator[CrossProblem]:
    """An unseen common cause of treatment and outcome, which no column adjusts for."""
    treated, _ = parse(estimand.treated, spec.columns, derived=False)
    group_of = {name: group for group, names in spec.graph.groups.items() for name in names}
    sides = [
        {group_of.get(name, name) for name in names}
        for names in (treated.columns if treated else (), (estimand.outcome,))
    ]
    for names in spec.graph.latent:
        if all(side & set(names) for side in sides) and spec.graph.mode in CAUSAL:
            yield CrossProblem(
                where,
                f"not identified: graph.latent says that {' and '.join(names)} have an unseen"
                " common cause, and no column adjusts for it",
                "ask for the difference of means as two questions, mean(...) where ...",
            )


def _strata(spec: ReleaseSpec, where: Loc, names: tuple[str, ...]) -> Iterator[CrossProblem]:
    known = [spec.columns[name] for name in names if name in spec.columns]
    strata = math.prod(column.level_count for column in known)
    if strata > MAX_STRATA:
        yield CrossProblem(
            where,
            f"{', '.join(names)} make {strata:,} strata; at most {MAX_STRATA:,} are measured",
            "name fewer columns, or declare wider bins",
        )
