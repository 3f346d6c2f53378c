"""Checks of regressions that are paid for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product

from synthdp.spec.checks.clips import clip_problems
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.model import RegressionEstimand, ReleaseSpec, derived_of
from synthdp.spec.model.estimands import MAX_COEFFICIENTS, term_columns
from synthdp.spec.syntax import Loc
from synthdp.spec.wording import nearest


def regression_problems(
    spec: ReleaseSpec, where: Loc, estimand: RegressionEstimand
) -> Iterator[CrossProblem]:
    """What is wrong with a regression: its terms first, then what they make together."""
    terms = [(i, term_columns(term, spec.columns)) for i, term in enumerate(estimand.terms)]
    wrong = [p for i, names in terms for p in _term(spec, (*where, "terms", i), names)]
    wrong += list(_products(terms, where)) or list(_outcome(spec, where, estimand))
    yield from wrong
    read = {estimand.outcome, *(name for _, names in terms for name in names)}
    for name, clip in estimand.clips.items():
        place = (*where, "clips", name)
        if name not in read or name not in spec.columns or spec.columns[name].operand != "number":
            yield CrossProblem(place, f"{name!r} is no number of this regression")
        else:
            yield from clip_problems(spec, place, name, clip)
    if not wrong:
        yield from _size(spec, where, [names for _, names in terms])


def _term(spec: ReleaseSpec, where: Loc, names: tuple[str, ...]) -> Iterator[CrossProblem]:
    """Names of a term that are unknown, computed, or neither numbers nor categories."""
    for name in names:
        column = spec.columns.get(name)
        if column is None:
            hint = nearest(name, spec.columns) or "name a column listed under columns, or two: a:b"
            yield CrossProblem(where, f"unknown column {name!r}", hint)
        elif derived_of(column) is not None:
            yield CrossProblem(where, f"column {name!r} is computed from others, and is not read")
        elif column.operand == "date":
            yield CrossProblem(
                where, f"{name!r} holds dates, which are no terms", "name a number or a category"
            )
        elif column.operand != "number" and len(column.labels) == 1:
            yield CrossProblem(where, f"{name!r} has one category: there is nothing to compare")


def _products(terms: list[tuple[int, tuple[str, ...]]], where: Loc) -> Iterator[CrossProblem]:
    """Products of other than two different terms, and products that are there twice."""
    alone = {names[0] for _, names in terms if len(names) == 1}
    seen = set[frozenset[str]]()
    for i, names in terms:
        place = (*where, "terms", i)
        if len(names) > 2 or len(set(names)) < len(names):
            yield CrossProblem(place, "a product is of two different columns", "e.g. age:sex")
        elif len(names) == 2 and not alone.issuperset(names):
            lacking = next(name for name in names if name not in alone)
            yield CrossProblem(
                place,
                f"{lacking!r} is not a term by itself, so that the coefficient would depend on how"
                " numbers are scaled",
                f"add {lacking} to the terms",
            )
        elif frozenset(names) in seen:
            yield CrossProblem(place, "this product is there already", "leave it out")
        seen.add(frozenset(names))


def _outcome(spec: ReleaseSpec, where: Loc, estimand: RegressionEstimand) -> Iterator[CrossProblem]:
    name, place = estimand.outcome, (*where, "outcome")
    column = spec.columns.get(name)
    if name in estimand.terms:
        yield CrossProblem(place, f"{name!r} is a term", "name another column")
    elif column is not None and column.operand == "date":
        yield CrossProblem(place, f"{name!r} holds dates", "name a number or a category")
    elif column is not None and not column.ordered and len(column.labels) > 2:
        yield CrossProblem(
            place,
            f"{name!r} has {len(column.labels)} categories in no order, of which there is no mean",
            "name a number, or a column of two categories",
        )


def _size(spec: ReleaseSpec, where: Loc, terms: list[tuple[str, ...]]) -> Iterator[CrossProblem]:
    """At most `MAX_COEFFICIENTS`, the intercept among them, each with a name of its own."""

    def labels(name: str) -> list[str]:
        column = spec.columns[name]
        if column.operand == "number":
            return [name]
        return [f"{name}={label}" for label in column.labels[1:]]

    coefficients = 1 + sum(math.prod(len(labels(name)) for name in names) for names in terms)
    if coefficients <= MAX_COEFFICIENTS:
        named = [":".join(c) for names in terms for c in product(*map(labels, names))]
        twice = [name for name, times in Counter(["(intercept)", *named]).items() if times > 1]
        for name in twice:
            yield CrossProblem(
                (*where, "terms"),
                f"two coefficients would be named {name!r}",
                "give a column another name; dataset.source.rename does",
            )
    else:
        yield CrossProblem(
            (*where, "terms"),
            f"{coefficients} coefficients; at most {MAX_COEFFICIENTS} are measured",
            "name fewer terms, or categories with fewer levels",
        )
