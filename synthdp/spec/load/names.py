"""Names of columns, wherever a spec writes one, and the expressions over them.

They are read from the spec as it was written, not from its models: a wrong number beside a name, a
list that is too short or a column whose own entry is wrong hides no other name. A wrong column
keeps its name; of its values nothing is known (`Unread`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.names import listed_names
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.columns import Column, derived_of
from synthdp.spec.model.graph import sides
from synthdp.spec.syntax import Loc
from synthdp.spec.wording import nearest

MAX_TOLD = 101  # of one place: nobody reads more, and suggesting names for them costs time
MAX_LETTERS, MAX_EXPRESSION = (
    128,
    1000,
)  # what is longer has been refused as a name or an expression

# `*` is every item of a list, or every entry of a map.
_COLUMNS = (
    "privacy.pairs.*.*",
    "synthesizer.targets.*",
    "sampling.even.*",
    "evaluation.targets.*",
    "evaluation.subgroups.*",
    "evaluation.effects.*.outcome",
    "evaluation.effects.*.adjust.*",
    "estimands.*.columns.*",
    "estimands.*.outcome",
    "estimands.*.adjust.*",
)
_EXPRESSIONS = (
    "constraints.*",
    "estimands.*.where",
    *(
        f"{e}.*.{arm}"
        for e in ("evaluation.effects", "estimands")
        for arm in ("treated", "control")
    ),
)
_ARROWS, _NODES = ("graph.edges.*", "graph.forbidden.*"), ("graph.tiers.*.*", "graph.latent.*.*")


def written(spec: ReleaseSpec) -> dict[str, Any]:
    """The parts of a whole spec that name columns, as a YAML file would hold them."""
    sections = {
        name: getattr(spec, name).model_dump()
        for name in ("privacy", "graph", "synthesizer", "sampling", "evaluation")
    }
    estimands = [e.model_dump() for e in spec.estimands]
    return {**sections, "constraints": spec.constraints, "estimands": estimands}


def name_problems(data: object, columns: Mapping[str, Column]) -> Iterator[CrossProblem]:
    """Every unknown name in `data`, and every mistake in an expression.

    `data` is a spec as plain lists and maps. `columns` are the declared ones.
    """
    for pattern in _COLUMNS:
        yield from itertools.islice(_unknown(data, pattern, columns), MAX_TOLD)
    yield from node_problems(data, columns)
    yield from itertools.islice(
        _computed(
            data, {name for name, column in columns.items() if derived_of(column) is not None}
        ),
        MAX_TOLD,
    )
    for pattern in _EXPRESSIONS:
        texts = (
            (where, text)
            for where, text in _found(data, pattern)
            if isinstance(text, str) and 0 < len(text) <= MAX_EXPRESSION
        )
        mistakes = (
            (where, m)
            for where, text in texts
            for m in parse(text, columns, derived=pattern == "constraints.*")[1]
        )
        yield from (
            CrossProblem(where, f"character {m.at}: {m.message}", m.hint)
            for where, m in itertools.islice(mistakes, MAX_TOLD)
        )


def node_problems(data: object, columns: Collection[str]) -> Iterator[CrossProblem]:
    """Unknown names in the graph section.

    Nodes are the groups, and the columns that are in no group: everywhere but in `groups` itself a
    grouped column is named through its group. Where `groups` cannot be read at all, any unknown
    name may be one, and none is reported.
    """
    yield from itertools.islice(_unknown(data, "graph.groups.*.*", columns), MAX_TOLD)
    groups: object = next((value for _, value in _found(data, "graph.groups")), {})
    if not isinstance(groups, Mapping):
        return
    group_of = {name: where[-2] for where, value in _found(groups, "*.*") if (name := _name(value))}
    for pattern in _ARROWS:
        yield from itertools.islice(
            (
                replace(p, hint=_as_map(arrow, (*columns, *groups)) or p.hint)
                for where, arrow in _found(data, pattern)
                for end, name in _ends(where, arrow)
                for p in _no_node(end, name, columns, groups, group_of)
            ),
            MAX_TOLD,
        )
    for pattern in _NODES:
        names = ((where, name) for where, value in _found(data, pattern) if (name := _name(value)))
        yield from itertools.islice(
            (p for where, name in names for p in _no_node(where, name, columns, groups, group_of)),
            MAX_TOLD,
        )


def _computed(data: object, derived: Collection[str]) -> Iterator[CrossProblem]:
    """Derived columns in a place where a column is looked at in the source, or modelled."""
    places = [
        place
        for pattern in (*_COLUMNS, *_NODES, "graph.groups.*.*")
        for place in _found(data, pattern)
    ]
    ends = [
        end
        for pattern in _ARROWS
        for where, arrow in _found(data, pattern)
        for end in _ends(where, arrow)
    ]
    for where, value in [*places, *ends] if derived else ():
        if (name := _name(value)) in derived:
            message = (
                f"column {name!r} is computed from others when rows are written: it is not in the"
                " model, and its real values are not read"
            )
            yield CrossProblem(where, message, "name columns that it is computed from")


def _ends(where: Loc, arrow: object) -> Iterator[tuple[Loc, str]]:
    """Both sides of an arrow, which is a map or a text such as "a, b -> c"."""
    try:
        arrow = sides(arrow)
    except ValueError:
        return
    for side in ("causes", "effects"):
        yield from (
            ((*where, *at), name)
            for at, value in _found(arrow, f"{side}.*")
            if (name := _name(value))
        )


def _as_map(arrow: object, nodes: Collection[str]) -> str | None:
    """How to write an arrow whose names with commas fell apart; None where none did."""
    ends = list(_ends((), arrow))
    parts = [[name for at, name in ends if at[0] == side] for side in ("causes", "effects")]
    for comma in (", ", ","):
        sought = [listed_names(comma.join(names), nodes) for names in parts]
        if any("," in name for names in sought for name in names):
            causes, effects = (json.dumps(names, ensure_ascii=False) for names in sought)
            return f"a name with a comma needs a map: {{causes: {causes}, effects: {effects}}}"
    return None


def _no_node(
    where: Loc,
    name: str,
    columns: Collection[str],
    groups: Mapping[str, object],
    group_of: Mapping[str, str | int],
) -> Iterator[CrossProblem]:
    group = group_of.get(name)
    if name in groups or (name in columns and group is None):
        return
    if name in columns:
        yield CrossProblem(
            where,
            f"column {name!r} is in group {group!r} and has no place of its own in the graph",
            f"write {group!r} instead",
        )
        return
    nodes = (*(c for c in columns if c not in group_of), *groups)
    yield CrossProblem(
        where,
        f"unknown column {name!r}",
        nearest(name, nodes) or "name a column listed under columns, or a group",
    )


def _unknown(data: object, pattern: str, columns: Collection[str]) -> Iterator[CrossProblem]:
    for where, value in _found(data, pattern):
        name = _name(value)
        if name and name not in columns:
            yield CrossProblem(
                where,
                f"unknown column {name!r}",
                nearest(name, columns) or "name a column listed under columns",
            )


def _name(value: object) -> str | None:
    """A name as the models read it, or None where they refuse it.

    The models read codes such as 2019 as texts.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, str | int | float) else ""
    return text if 0 < len(text) <= MAX_LETTERS else None


def _found(data: object, pattern: str) -> Iterator[tuple[Loc, object]]:
    """The values at the places that a pattern such as `graph.tiers.*.*` names.

    Data of another shape has no such places.
    """
    step, _, rest = pattern.partition(".")
    inside: Any = ()
    if isinstance(data, Mapping):
        inside = data.items() if step == "*" else [(step, data[step])] if step in data else ()
    elif step == "*" and isinstance(data, list | tuple):
        inside = enumerate(data)
    for key, value in inside:
        yield from (
            (((key, *where), inner) for where, inner in _found(value, rest))
            if rest
            else [((key,), value)]
        )
