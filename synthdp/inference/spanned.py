"""`spanned.json`: for which analyses the intervals of copies are right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.inference.blocks import Blocks
from synthdp.inference.cells import value_bounds
from synthdp.inference.posterior import Posterior
from synthdp.inference.tables import Axes
from synthdp.spec.model import ReleaseSpec

RULE = (
    "estimate: the mean of the copies' estimates; T = (1 + 1/m) b - u, at least u, with b the"
    " variance of the estimates and u the mean of their squared standard errors; interval: t with"
    " (m - 1) (1 - 1/r)^2 degrees of freedom, r = (1 + 1/m) b / u, at least 2"
)


def statement(posterior: Posterior, spec: ReleaseSpec) -> dict[str, Any]:
    """What the drawn laws of a posterior are right for, as plain JSON.

    `sets` are the sets of columns whose shares are spanned; `together` has those levels of a column
    that a set does not tell apart, since some of their cells are too rare. `groups` has the levels
    of columns that are counted on groups of levels.
    """
    columns = posterior.known.columns
    names = [column.name for column in columns]
    inside = [c.name for c in columns if _wide(c)]
    told = [
        {"columns": _names(axes, names), "together": _together(blocks, columns)}
        for axes, blocks in posterior.blocks.items()
    ]
    alone = (frozenset(axes) for size in (1, 2) for axes in combinations(range(len(names)), size))
    return {
        "columns": names,
        "counted_rows": round(posterior.rows),
        "rule": RULE,
        "sets": told,
        "not_spanned": [
            {
                "columns": _names(axes, names),
                "why": "too rare" if axes in posterior.sets else "no table",
            }
            for axes in alone
            if axes not in posterior.blocks
        ],
        "inside_levels": inside,
        "groups": {c.name: list(c.labels) for c in columns if c.grouped},
        "regressions": [
            _regressions(posterior, names.index(target))
            for target in spec.evaluation.targets
            if target in names
        ],
        "about": list(_about(spec, names, inside)),
    }


def _regressions(posterior: Posterior, target: int) -> dict[str, Any]:
    """Columns that a target may be regressed on, with levels taken as one that stand together.

    Linear main effects need the pairs of all columns; logistic ones the pairs with the target, and
    one table of all others. Levels of the target are told apart. Rows that lack a value are left
    out, which is told by a table of all columns alone: so columns that may be missing are regressed
    on one at a time, where missing ones are told apart.
    """
    columns = posterior.known.columns
    names, told = [column.name for column in columns], posterior.blocks

    def with_target(i: int) -> bool:
        pair = told.get(frozenset((i, target)))
        if pair is None:
            return False
        alone = not columns[i].missing or (pair.groups[i] == pair.groups[i][-1]).sum() == 1
        return bool(alone) and pair.sizes[target] == columns[target].levels

    def whole(*axes: int) -> bool:
        return frozenset(axes) in told and not any(columns[i].missing for i in (*axes, target))

    one = [i for i in range(len(names)) if i != target and with_target(i)]
    pairs = list(combinations(one, 2))
    more = [
        tuple(sorted(axes))
        for axes in told
        if len(axes) > 2 and axes <= {*one} and whole(*sorted(axes))
    ]
    together = [*((i,) for i in one), *(pair for pair in pairs if whole(*pair)), *more]
    return {
        "target": names[target],
        "linear": [names[i] for i in one],
        "not_both": [[names[i], names[j]] for i, j in pairs if not whole(i, j)],
        "logistic": [[names[i] for i in axes] for axes in together],
    }


def _together(blocks: Blocks, columns: tuple[ColumnDomain, ...]) -> dict[str, list[list[str]]]:
    """The levels of each column that a set does not tell apart, group by group."""
    found = {}
    for axis, labels in blocks.groups.items():
        groups = [np.flatnonzero(labels == group) for group in range(blocks.sizes[axis])]
        several = [
            [columns[axis].labels[i] for i in levels] for levels in groups if len(levels) > 1
        ]
        if several:
            found[columns[axis].name] = several
    return found


def _about(spec: ReleaseSpec, names: list[str], inside: list[str]) -> Iterator[str]:
    yield (
        "run one analysis on each copy, and combine the results by the rule; a copy alone tells"
        " nothing of the noise"
    )
    yield (
        "the intervals are right for shares, and for means by group, of the columns of one set,"
        " with levels that stand `together` taken as one; for all else they are not"
    )
    yield (
        "linear main effects of a target are right on any columns of `linear` of which no two are"
        " `not_both`; logistic ones on the columns of one list of `logistic`; levels that stand"
        " `together` in any set of these columns are taken as one"
    )
    yield "sums and counts of rows say nothing: the number of rows was chosen"
    if inside:
        yield (
            f"numbers of {', '.join(inside)} are drawn inside their level, whatever the other"
            " columns are: what is said holds for levels, and for means up to that"
        )
    unit = spec.dataset.privacy_unit
    if unit.max_rows > 1:
        yield f"of {unit.meaning} up to {unit.max_rows} rows counted; the copies allow for it"
    if spec.dataset.out_of_domain == "clamp":
        yield "what lay outside of a column's range or categories counts as declared in spec.yaml"
    if spec.constraints:
        yield "the spec's constraints are not enforced: that would change the counts"


def _names(axes: Axes, names: list[str]) -> list[str]:
    return [names[i] for i in sorted(axes)]


def _wide(column: ColumnDomain) -> bool:
    """Whether a level stands for several numbers."""
    if not column.ranged:
        return False
    low, high = value_bounds(column)
    return bool(np.nanmax(high - low) > 0)
