"""Checks of the evaluation: groups are categories, treatments are one column, scores are paid."""

from __future__ import annotations

from collections.abc import Iterator

from synthdp.spec.checks.problem import CrossProblem, stated
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.model import Effect, ReleaseSpec, category_types
from synthdp.spec.model.evaluation import DISCLOSURE_SHARE
from synthdp.spec.syntax import Loc

MAX_GROUPS = 64


def disclosure(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Scores that are to be published are computed, and have a share of the budget.

    A share of the budget is given only for published scores.
    """
    evaluation, share = spec.evaluation, spec.evaluation.disclosure_share
    if evaluation.disclosure == "private" and not evaluation.enabled:
        hint = "set evaluation.enabled: true, or disclosure: confidential"
        yield CrossProblem(
            ("evaluation", "disclosure"),
            "private, and evaluation is not enabled: there would be no score to publish",
            hint,
        )
    if evaluation.disclosure == "private" and share == 0:
        wrote = stated(spec, "evaluation", "disclosure_share")
        message = (
            f"{wrote}; scores that are published need a share of the budget, above 0 and below 1"
        )
        yield CrossProblem(
            ("evaluation", "disclosure_share"),
            message,
            f"e.g. {DISCLOSURE_SHARE:g}, or disclosure: confidential",
        )
    if evaluation.disclosure == "confidential" and share:
        message = f"got {share:g}, and disclosure is confidential: it would buy nothing"
        yield CrossProblem(
            ("evaluation", "disclosure_share"),
            message,
            "set disclosure: private, or delete this line",
        )


def test_rows(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Classifiers for the targets need test rows."""
    evaluation = spec.evaluation
    if evaluation.targets and evaluation.enabled and evaluation.holdout == 0:
        yield CrossProblem(
            ("evaluation", "holdout"),
            f"{stated(spec, 'evaluation', 'holdout')}; classifiers for the targets need test rows",
            "e.g. holdout: 0.2",
        )


def subgroups(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Groups are categories."""
    for i, name in enumerate(spec.evaluation.subgroups):
        column, where = spec.columns.get(name), ("evaluation", "subgroups", i)
        if column is None:
            continue
        if column.ranged:
            yield CrossProblem(
                where,
                f"{name!r} holds numbers or dates; groups are categories",
                f"name a {category_types()} column",
            )
        elif len(column.labels) > MAX_GROUPS:
            yield CrossProblem(
                where,
                f"{name!r} has {len(column.labels)} categories; at most {MAX_GROUPS} can be judged",
                "name another column",
            )


def effects(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Treatments are expressions over one column; outcomes and adjusted columns are others."""
    for i, effect in enumerate(spec.evaluation.effects):
        yield from effect_problems(spec, ("evaluation", "effects", i), effect)


def effect_problems(spec: ReleaseSpec, where: Loc, effect: Effect) -> Iterator[CrossProblem]:
    """An effect's columns: one treatment, an outcome that has a mean, no column twice."""
    read: set[str] = set()
    for text in (effect.treated, effect.control):
        parsed = parse(text, spec.columns)[0] if text is not None else None
        read |= set(parsed.columns) if parsed else set()
    if len(read) > 1:
        names = ", ".join(n for n in spec.columns if n in read)
        yield CrossProblem(
            (*where, "treated"),
            f"reads {names}; a treatment is one column",
            "compare values of one column",
        )
    for field, name in (("outcome", effect.outcome), *(("adjust", n) for n in effect.adjust or ())):
        if name in read or (field == "adjust" and name == effect.outcome):
            yield CrossProblem(
                (*where, field),
                f"{name!r} is already the treatment or the outcome",
                "name another column",
            )
    outcome = spec.columns.get(effect.outcome)
    if outcome is not None and not outcome.ordered and len(outcome.labels) > 2:
        message = (
            f"{effect.outcome!r} has {len(outcome.labels)} categories in no order, of which"
            " there is no mean"
        )
        yield CrossProblem(
            (*where, "outcome"),
            message,
            "name a number, an ordinal column, or one of two categories",
        )
