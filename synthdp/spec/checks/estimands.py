"""Checks of estimands: they are paid for, can be read, and are identified and small enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any

from synthdp.errors import QueryError
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.query import counted, parse_query
from synthdp.spec.load.wording import Loc, SpecMistake, claims, nearest, stated
from synthdp.spec.model import (
    DISCLOSURE_SHARE,
    MOST,
    AskedEstimand,
    Clip,
    Effect,
    EffectEstimand,
    RegressionEstimand,
    ReleaseSpec,
    TableEstimand,
    category_types,
    derived_of,
    number_bounds,
    term_columns,
)

CAUSAL = ("given", "validate")  # modes whose declared arrows say what to adjust for


def each(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    for i, estimand in enumerate(spec.estimands):
        if check := PROBLEMS.get(estimand.kind):
            yield from check(spec, ("estimands", i), estimand)


def _table(spec: ReleaseSpec, where: Loc, estimand: TableEstimand) -> Iterator[SpecMistake]:
    if (cells := spec.cells(estimand.columns)) > 100_000:
        message = f"a table of {cells:,} cells; at most 100,000 are measured"
        hint = "name fewer columns, or declare wider bins; a share, a mean or an effect needs no"
        yield SpecMistake((*where, "columns"), message, f"{hint} bins")


def _question(spec: ReleaseSpec, where: Loc, estimand: AskedEstimand) -> Iterator[SpecMistake]:
    ask, clip = (*where, "ask"), (*where, "clip")
    try:
        query = parse_query(estimand.ask, spec.columns)
    except QueryError as error:
        for wrong in error.problems:
            yield SpecMistake(ask, f"character {wrong.at}: {wrong.message}", wrong.hint)
        return
    statistic, column = query.statistic, query.column
    dated = column is not None and spec.columns[column].operand == "date"
    yield from claims(
        (dated, ask, f"{column!r} holds dates, whose quantiles are not paid for",
         "`synthdp answer` has them of the whole column; of groups, use kind: table"),
        (statistic in ("sum", "correlation"), ask, f"a {statistic} is not paid for by itself",
         f"`synthdp answer` has it: measure kind: table of {', '.join(query.columns)}"),
        (query.weight is not None, ask, f"a weighted {statistic} is not paid for by itself",
         f"`synthdp answer` has it: measure kind: table of {', '.join(query.columns)}"),
        (statistic == "quantile" and column in query.by, ask,
         "by its own column a quantile says nothing", "name another column"),
        (statistic != "mean" and estimand.clip is not None, clip,
         f"a {statistic} has no numbers to clip", None),
    )  # fmt: skip
    if column is not None and (statistic == "mean" or estimand.clip is None):
        yield from _clip(spec, clip, column, estimand.clip)
    yield from _strata(spec, ask, counted(query))


def _effect(spec: ReleaseSpec, where: Loc, estimand: EffectEstimand) -> Iterator[SpecMistake]:
    by_graph, outcome = estimand.adjust is None, estimand.outcome
    adjusted = declared_causes(spec, estimand) if by_graph else estimand.by
    found = list(effect_problems(spec, where, estimand))
    dated = outcome in spec.columns and spec.columns[outcome].operand == "date"
    found += claims(
        (dated, (*where, "outcome"), f"{outcome!r} holds dates, whose sums are not measured",
         "name a number or a category"),
        (estimand.control == estimand.treated, (*where, "control"),
         "is the treatment: nobody would be compared", "leave it out for all other rows"),
        (by_graph and spec.graph.mode not in CAUSAL, where,
         f"graph mode {spec.graph.mode} declares no causes to adjust for",
         "say it, e.g. adjust: [age]; adjust: [] where the treatment was drawn by lot"),
        (by_graph and outcome in adjusted, (*where, "outcome"),
         "the graph has it for a cause of the treatment: that is no effect",
         "turn the arrow, or say adjust"),
    )  # fmt: skip
    yield from found or [
        *_clip(spec, (*where, "clip"), outcome, estimand.clip),
        *_edges(spec, (*where, "adjust"), estimand),
        *_strata(spec, (*where, "adjust") if estimand.adjust else where, adjusted, estimand.edges),
        *_latent(spec, where, estimand),
    ]


def declared_causes(spec: ReleaseSpec, estimand: EffectEstimand) -> tuple[str, ...]:
    """The columns that the spec's arrows make causes of the treatment, in the spec's order."""
    groups, nodes = spec.graph.groups, _treatment(spec, estimand)
    causes = {c for edge in spec.graph.edges if nodes & set(edge.effects) for c in edge.causes}
    names = {name for cause in causes - nodes for name in groups.get(cause, (cause,))}
    return tuple(name for name in spec.columns if name in names)


def _treatment(spec: ReleaseSpec, estimand: EffectEstimand) -> set[str]:
    """The nodes of the graph that the treatment reads."""
    treated, _ = parse(estimand.treated, spec.columns, derived=False)
    return {spec.graph.group_of.get(n, n) for n in (treated.columns if treated else ())}


def figures(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """All estimands together have so many figures as a bundle can hold."""
    total = 0
    for estimand in spec.estimands:
        names = estimand.by
        if estimand.question is not None:
            try:
                names = counted(parse_query(estimand.question, spec.columns))
            except QueryError:
                return
        total += _count(spec, names, estimand.edges)
    if total > 10_000:  # what a bundle writes, and a page lists some of
        message = f"{total:,} strata in all; at most 10,000 are measured"
        hint = "name fewer estimands, or groups with fewer levels"
        yield SpecMistake(("estimands",), message, hint)


def _latent(spec: ReleaseSpec, where: Loc, estimand: EffectEstimand) -> Iterator[SpecMistake]:
    """An unseen common cause of treatment and outcome, which no column adjusts for."""
    treated = _treatment(spec, estimand)
    outcome = spec.graph.group_of.get(estimand.outcome, estimand.outcome)
    for names in spec.graph.latent if spec.graph.mode in CAUSAL else ():
        if outcome in names and treated & set(names):
            message = f"not identified: graph.latent says that {' and '.join(names)} have an unseen"
            hint = "ask for the difference of means as two questions, mean(...) where ..."
            yield SpecMistake(where, f"{message} common cause, and no column adjusts for it", hint)


def _edges(spec: ReleaseSpec, where: Loc, estimand: EffectEstimand) -> Iterator[SpecMistake]:
    """Left edges of ranges that an effect is adjusted for lie in the column, in order."""
    for name, edges in estimand.edges.items():
        column: Any = spec.columns.get(name)
        if column is None:
            continue
        rising = all(a < b for a, b in pairwise(edges))
        if column.operand != "number":
            message, hint = f"{name!r} is no number", f"write {name}: [], for its levels"
        elif edges[0] != column.lower or edges[-1] > column.upper or not rising:
            message = f"edges of {name!r} must rise, from {column.lower:g}, to below"
            message, hint = f"{message} {column.upper:g}", "left ends of ranges, the first is lower"
        else:
            continue
        yield SpecMistake((*where, name), message, hint)


def _count(spec: ReleaseSpec, names: Iterable[str], edges: Mapping[str, tuple[float, ...]]) -> int:
    """Strata of columns, some of which have edges of their own."""
    own = (len(ends) + spec.columns[n].missing for n, ends in edges.items() if n in spec.columns)
    return spec.cells(n for n in names if n not in edges) * math.prod(own)


def _strata(
    spec: ReleaseSpec,
    where: Loc,
    names: tuple[str, ...],
    edges: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Iterator[SpecMistake]:
    if (strata := _count(spec, names, edges)) > 1000:
        message = f"{', '.join(names)} make {strata:,} strata; at most 1,000 are measured"
        yield SpecMistake(where, message, "name fewer columns, or declare wider bins")


def regression_problems(
    spec: ReleaseSpec, where: Loc, estimand: RegressionEstimand
) -> Iterator[SpecMistake]:
    """What is wrong with a regression: its terms first, then what they make together."""
    terms = [(i, term_columns(term, spec.columns)) for i, term in enumerate(estimand.terms)]
    wrong = [p for i, names in terms for p in _term(spec, (*where, "terms", i), names)]
    wrong += list(_products(terms, where)) or list(_outcome(spec, where, estimand))
    yield from wrong
    read = {estimand.outcome, *(name for _, names in terms for name in names)}
    for name, clip in estimand.clips.items():
        place = (*where, "clips", name)
        if name not in read or name not in spec.columns or spec.columns[name].operand != "number":
            yield SpecMistake(place, f"{name!r} is no number of this regression")
        else:
            yield from _clip(spec, place, name, clip)
    if not wrong:
        yield from _size(spec, where, [names for _, names in terms])


def _term(spec: ReleaseSpec, where: Loc, names: tuple[str, ...]) -> Iterator[SpecMistake]:
    """Names of a term that are unknown, computed, or neither numbers nor categories."""
    for name in names:
        column = spec.columns.get(name)
        if column is None:
            hint = nearest(name, spec.columns) or "name a column listed under columns, or two: a:b"
            yield SpecMistake(where, f"unknown column {name!r}", hint)
        elif derived_of(column) is not None:
            yield SpecMistake(where, f"column {name!r} is computed from others, and is not read")
        elif column.operand == "date":
            message = f"{name!r} holds dates, which are no terms"
            yield SpecMistake(where, message, "name a number or a category")
        elif column.operand != "number" and len(column.labels) == 1:
            yield SpecMistake(where, f"{name!r} has one category: there is nothing to compare")


def _products(terms: list[tuple[int, tuple[str, ...]]], where: Loc) -> Iterator[SpecMistake]:
    """Products of other than two different terms, and products that are there twice."""
    alone = {names[0] for _, names in terms if len(names) == 1}
    seen = set[frozenset[str]]()
    for i, names in terms:
        place = (*where, "terms", i)
        if len(names) > 2 or len(set(names)) < len(names):
            yield SpecMistake(place, "a product is of two different columns", "e.g. age:sex")
        elif len(names) == 2 and not alone.issuperset(names):
            lacking = next(name for name in names if name not in alone)
            message = (
                f"{lacking!r} is not a term by itself, so that the coefficient would depend on how"
                " numbers are scaled"
            )
            yield SpecMistake(place, message, f"add {lacking} to the terms")
        elif frozenset(names) in seen:
            yield SpecMistake(place, "this product is there already", "leave it out")
        seen.add(frozenset(names))


def _outcome(spec: ReleaseSpec, where: Loc, estimand: RegressionEstimand) -> Iterator[SpecMistake]:
    name, place = estimand.outcome, (*where, "outcome")
    column = spec.columns.get(name)
    if name in estimand.terms:
        yield SpecMistake(place, f"{name!r} is a term", "name another column")
    elif column is not None and column.operand == "date":
        yield SpecMistake(place, f"{name!r} holds dates", "name a number or a category")
    elif column is not None and not column.ordered and len(column.labels) > 2:
        message = f"{name!r} has {len(column.labels)} categories in no order, of which there is no"
        yield SpecMistake(place, f"{message} mean", "name a number, or a column of two categories")


def _size(spec: ReleaseSpec, where: Loc, terms: list[tuple[str, ...]]) -> Iterator[SpecMistake]:
    """At most `MOST.coefficients`, the intercept among them, each with a name of its own."""

    def labels(name: str) -> list[str]:
        column = spec.columns[name]
        if column.operand == "number":
            return [name]
        return [f"{name}={label}" for label in column.labels[1:]]

    coefficients = 1 + sum(math.prod(len(labels(name)) for name in names) for names in terms)
    if coefficients <= MOST.coefficients:
        named = [":".join(c) for names in terms for c in product(*map(labels, names))]
        twice = [name for name, times in Counter(["(intercept)", *named]).items() if times > 1]
        for name in twice:
            hint = "give a column another name; dataset.source.rename does"
            yield SpecMistake((*where, "terms"), f"two coefficients would be named {name!r}", hint)
    else:
        message = f"{coefficients} coefficients; at most {MOST.coefficients} are measured"
        hint = "name fewer terms, or categories with fewer levels"
        yield SpecMistake((*where, "terms"), message, hint)


def _clip(spec: ReleaseSpec, where: Loc, name: str, clip: Clip | None) -> Iterator[SpecMistake]:
    """A clip lies inside the bounds of its column."""
    if name not in spec.columns:
        return
    lower, upper = number_bounds(spec.columns[name])
    ends = clip or (lower, upper)
    if not 0 < (ends[1] - ends[0]) / 2 < math.inf and ends[0] < ends[1]:
        text = f"{ends[0]:g} to {ends[1]:g} are too near to each other, or too far apart"
        yield SpecMistake(where, f"{name}: {text} for sums", "give bounds that doubles tell apart")
    elif clip is None:
        return
    elif clip[0] >= clip[1]:
        text = f"got {clip[1]:g} as the upper end, which is not above {clip[0]:g}"
        yield SpecMistake(where, text, "e.g. clip: [0, 30]")
    elif clip[0] < lower or clip[1] > upper:
        message = f"{clip[0]:g} to {clip[1]:g} is not inside {name}'s {lower:g} to {upper:g}"
        hint = "numbers beyond a column's bounds do not occur; clip inside them"
        yield SpecMistake(where, message, hint)


# --- evaluation ---


def evaluation(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Targets have test rows; scores that are published are computed, and they alone are paid."""
    evaluation, share = spec.evaluation, spec.evaluation.disclosure_share
    private, where = evaluation.disclosure == "private", ("evaluation", "disclosure_share")
    yield from claims(
        (evaluation.targets and evaluation.enabled and evaluation.holdout == 0,
         "evaluation.holdout",
         f"{stated(spec, 'evaluation', 'holdout')}; classifiers for the targets need test rows",
         "e.g. holdout: 0.2"),
        (private and not evaluation.enabled, "evaluation.disclosure",
         "private, and evaluation is not enabled: there would be no score to publish",
         "set evaluation.enabled: true, or disclosure: confidential"),
        (private and share == 0, where,
         "got 0; scores that are published need a share of the budget, above 0 and below 1",
         f"e.g. {DISCLOSURE_SHARE:g}, or disclosure: confidential"),
        (not private and share, where,
         f"got {share or 0:g}, and disclosure is confidential: it would buy nothing",
         "set disclosure: private, or delete this line"),
    )  # fmt: skip


def judged(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Groups are categories, and treatments expressions over one column."""
    for i, name in enumerate(spec.evaluation.subgroups):
        column, where = spec.columns.get(name), ("evaluation", "subgroups", i)
        if column is not None and column.ranged:
            message = f"{name!r} holds numbers or dates; groups are categories"
            yield SpecMistake(where, message, f"name a {category_types()} column")
        elif column is not None and len(column.labels) > 64:
            message = f"{name!r} has {len(column.labels)} categories; at most 64 can be judged"
            yield SpecMistake(where, message, "name another column")
    for i, effect in enumerate(spec.evaluation.effects):
        yield from effect_problems(spec, ("evaluation", "effects", i), effect)


def effect_problems(spec: ReleaseSpec, where: Loc, effect: Effect) -> Iterator[SpecMistake]:
    """An effect's columns: one treatment, an outcome that has a mean, no column twice."""
    texts = filter(None, (effect.treated, effect.control))
    parsed = filter(None, (parse(text, spec.columns)[0] for text in texts))
    read = {name for expression in parsed for name in expression.columns}
    shown = ", ".join(name for name in spec.columns if name in read)
    outcome = spec.columns.get(effect.outcome)
    labels = outcome.labels if outcome is not None and not outcome.ordered else ()
    yield from claims(
        (len(read) > 1, (*where, "treated"), f"reads {shown}; a treatment is one column",
         "compare values of one column"),
        (effect.outcome in read, (*where, "outcome"),
         f"{effect.outcome!r} is already the treatment or the outcome", "name another column"),
        *((name in (*read, effect.outcome), (*where, "adjust"),
           f"{name!r} is already the treatment or the outcome", "name another column")
          for name in effect.adjust or ()),
        (len(labels) > 2, (*where, "outcome"),
         f"{effect.outcome!r} has {len(labels)} categories in no order, of which there is no mean",
         "name a number, an ordinal column, or one of two categories"),
    )  # fmt: skip


PROBLEMS: dict[str, Callable[[ReleaseSpec, Loc, Any], Iterator[SpecMistake]]] = {
    "question": _question,
    "table": _table,
    "effect": _effect,
    "regression": regression_problems,
}
"""What finds the mistakes of each kind, by its name."""
