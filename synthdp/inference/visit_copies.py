"""Copies of persons with visits: rows of one kind, whose pooled analyses have right intervals.

Noisy tables of linked tables count rows of a kind: persons, first and last visits, second visits,
all visits, or visits after the first, each with the columns of its person and of the visit before.
Copies are of one of these kinds, drawn as those of one table are (`inference.copies`): what the
tables of a kind leave open is drawn, with the sampling of persons. Rows of persons who have several
are not independent. For any analysis that is a mean over rows, the sampling variance is at most
that of independent rows times the most rows of a person [Cauchy, Schwarz; `inference.visits`], and
by this laws are drawn: intervals are at least as wide as they should be.

A whole course, visit after visit, is spanned by no tables: which persons have which steps one after
the other is the model's alone. So copies have no keys, and no row of one belongs to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.level_groups import LevelGroups
from synthdp.errors import OutputError
from synthdp.graph.level_groups import groups_of
from synthdp.inference.copies import (
    Copies,
    check_size,
    drawn_laws,
    posterior_of,
    rows_of_each,
    statement,
)
from synthdp.inference.least_squares import Measured, measured
from synthdp.inference.visits import Asked, VisitQuestions
from synthdp.model.visits.fit import level_laws
from synthdp.model.visits.laws import bare
from synthdp.model.visits.questions import names_of_rows, places, written
from synthdp.spec.load.wording import nearest

if TYPE_CHECKING:
    from synthdp.inference.copies import Floats


def copies_of_visits(
    asked: VisitQuestions,
    m: int,
    *,
    columns: Sequence[str] | None,
    rows: int | None,
    rng: np.random.Generator,
) -> Copies:
    """`m` copies of some columns of a bundle, as questions name them. `rows` are those of each.

    Raises:
        OutputError: the columns cannot be served: the message says why.
        VerifyError: a file was changed, or cannot be read, or the tables do not agree.
    """
    kind, named = _kind(asked, columns)
    known, domain = _known(kind, named), _domain(kind, named)
    posterior = posterior_of(known, asked.bundle, per_unit=kind.most)
    laws, refused = drawn_laws(posterior, m, rng)
    count = rows_of_each(posterior, rows)
    said: dict[str, Any] = {"copies": m, "rows": count, "draws_refused": refused, "law": kind.law}
    said |= statement(posterior, asked.stated.spec, [*named])
    said["about"] = [*_about(kind), *said["about"]]
    inside = _inside(asked, domain, named) if domain.starts else {}
    if inside:
        names = ", ".join(inside)
        said["about"].append(f"inside groups, {names} have the law of first and last visits")
    own = {shown: kind.columns[name] for shown, name in named.items()}
    return Copies(said, own, laws, count, domain, inside, rng)


def _kind(asked: VisitQuestions, columns: Sequence[str] | None) -> tuple[Asked, dict[str, str]]:
    """The kind of rows that has the columns, and their names in it by what they are called."""
    every = sorted({name for kind in asked.rows.values() for name in kind.columns})
    if not columns or len({*columns}) < len(columns):
        raise OutputError(
            "copies of linked tables are of the columns of one analysis, each named once",
            hint="name them with --columns, as questions do, such as " + ", ".join(every[:3]),
        )
    text, refused = ", ".join(columns), list[str]()
    best: tuple[int, Asked, dict[str, str]] | None = None
    frame = asked.stated.frame
    for name in names_of_rows(places(frame, text), asked.rows, frame):
        kind = asked.rows[name]
        named = {
            c.replace("`", ""): written(frame, c, kind.columns).strip("`").replace("``", "`")
            for c in columns
        }
        if unknown := [shown for shown, n in named.items() if n not in kind.columns]:
            refused = refused or unknown
            continue
        together = sum(len({*s} & {*named.values()}) > 1 for s in kind.joint())
        if best is None or together > best[0]:
            best = together, kind, named
    if best is None:
        raise OutputError(
            f"no rows that were counted have {refused[0]} with {text}",
            hint=nearest(refused[0], every) or f"of {', '.join(every)}",
        )
    _, kind, named = best
    return kind, named


def _known(kind: Asked, named: dict[str, str]) -> Measured:
    """What the tables of the rows say of the columns, by what these are called."""
    names = [*named.values()]
    groups = groups_of([*kind.tables, *kind.later], kind.domain)
    check_size(len(names), groups.coarse.cells(names))
    known = (
        kind.both(names)
        if kind.later
        else measured(kind.tables, kind.domain, names, grouped=True, groups=groups)
    )
    columns = (replace(c, name=n) for c, n in zip(known.columns, named, strict=True))
    return Measured(tuple(columns), known.margins)


def _domain(kind: Asked, named: dict[str, str]) -> LevelGroups:
    """The columns with the groups that their tables count, by what they are called."""
    starts = groups_of([*kind.tables, *kind.later], kind.domain).starts
    own = Domain(tuple(replace(kind.domain[n], name=shown) for shown, n in named.items()))
    return LevelGroups(own, {shown: starts[n] for shown, n in named.items() if n in starts})


def _inside(asked: VisitQuestions, domain: LevelGroups, named: dict[str, str]) -> dict[str, Floats]:
    """The law of the levels of each column that has groups."""
    frame, own = asked.stated.frame, domain.domain
    laws = level_laws(frame, asked.stated.measured)
    return {n: laws[bare(frame, named[n])][1][: own[n].levels] for n in domain.starts}


def _about(kind: Asked) -> list[str]:
    said = [
        f"rows are {kind.law}; they have no key: no row belongs to one of another file, or to"
        " another row, so that nothing is right that follows a person over several visits"
    ]
    if kind.most > 1:
        said.append(
            "persons are the sample, and visits of one may be alike: the intervals allow for"
            f" {kind.most} of one person that are the same, which is more than there is"
        )
    return said
