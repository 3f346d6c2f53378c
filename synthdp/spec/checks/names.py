"""Names of columns, wherever a spec writes one, and the expressions over them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.parsed import listed_names
from synthdp.spec.load.wording import Loc, SpecMistake, nearest
from synthdp.spec.model import Edge, ReleaseSpec, derived_of

# `*` is every item of a list, or every entry of a map.
COLUMNS = (
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
EXPRESSIONS = (
    "constraints.*",
    "estimands.*.where",
    "evaluation.effects.*.treated",
    "evaluation.effects.*.control",
    "estimands.*.treated",
    "estimands.*.control",
)
ARROWS = ("graph.edges.*", "graph.forbidden.*")
NODES = ("graph.tiers.*.*", "graph.latent.*.*")


def columns(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Every column that is named outside the graph is declared."""
    for where, name in _all_found(spec, COLUMNS):
        if name not in spec.columns:
            yield _unknown(where, name, spec.columns, "name a column listed under columns")


def nodes(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Names in the graph are of groups, or of columns in none; in `groups` of any columns."""
    for where, name in _found(spec, "graph.groups.*.*"):
        if name not in spec.columns:
            yield _unknown(where, name, spec.columns, "name a column listed under columns")
    groups, group_of = spec.graph.groups, spec.graph.group_of
    known = dict.fromkeys((*(name for name in spec.columns if name not in group_of), *groups))

    def problems(where: Loc, name: str) -> Iterator[SpecMistake]:
        if name in spec.columns and name not in known:
            group = group_of[name]
            message = f"column {name!r} is in group {group!r} and has no place of its own in the"
            yield SpecMistake(where, f"{message} graph", f"write {group!r} instead")
        elif name not in known:
            yield _unknown(where, name, known, "name a column listed under columns, or a group")

    for where, edge in _all_found(spec, ARROWS):
        for end, name in _ends(where, edge):
            for p in problems(end, name):
                yield replace(p, hint=_as_map(edge, (*spec.columns, *groups)) or p.hint)
    for where, name in _all_found(spec, NODES):
        yield from problems(where, name)


def computed(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """No derived column is named where a column is looked at in the source, or modelled."""
    derived = {name for name, column in spec.columns.items() if derived_of(column) is not None}
    named = [*_all_found(spec, (*COLUMNS, *NODES, "graph.groups.*.*"))] if derived else []
    named += [end for place in _all_found(spec, ARROWS) for end in _ends(*place)] if derived else []
    for where, name in named:
        if name in derived:
            message = (
                f"column {name!r} is computed from others when rows are written: it is not in the"
                " model, and its real values are not read"
            )
            yield SpecMistake(where, message, "name columns that it is computed from")


def expressions(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Every expression can be read."""
    for pattern in EXPRESSIONS:
        for where, text in _found(spec, pattern):
            for m in parse(text, spec.columns, derived=pattern == "constraints.*")[1]:
                yield SpecMistake(where, f"character {m.at}: {m.message}", m.hint)


def _ends(where: Loc, edge: Edge) -> Iterator[tuple[Loc, str]]:
    """Both sides of an arrow."""
    for side in ("causes", "effects"):
        yield from (((*where, side, i), name) for i, name in enumerate(getattr(edge, side)))


def _as_map(edge: Edge, nodes: Collection[str]) -> str | None:
    """How to write an arrow whose names with commas fell apart; None where none did."""
    for comma in (", ", ","):
        sought = [listed_names(comma.join(names), nodes) for names in (edge.causes, edge.effects)]
        if any("," in name for names in sought for name in names):
            causes, effects = (json.dumps(names, ensure_ascii=False) for names in sought)
            return f"a name with a comma needs a map: {{causes: {causes}, effects: {effects}}}"
    return None


def _unknown(where: Loc, name: str, known: Collection[str], hint: str) -> SpecMistake:
    return SpecMistake(where, f"unknown column {name!r}", nearest(name, known) or hint)


def _all_found(spec: ReleaseSpec, patterns: Collection[str]) -> Iterator[tuple[Loc, Any]]:
    return (place for pattern in patterns for place in _found(spec, pattern))


def _found(value: Any, pattern: str) -> Iterator[tuple[Loc, Any]]:
    """The values at the places that a pattern such as `graph.tiers.*.*` names; without None."""
    step, _, rest = pattern.partition(".")
    inside: Any = enumerate(value) if isinstance(value, tuple) else ()
    if isinstance(value, BaseModel):
        inside = [(step, getattr(value, step, None))]
    elif isinstance(value, Mapping):
        inside = value.items()
    for key, inner in inside:
        if inner is not None:
            found = _found(inner, rest) if rest else [((), inner)]
            yield from (((key, *where), one) for where, one in found)
