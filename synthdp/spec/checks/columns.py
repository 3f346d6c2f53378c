"""Checks of columns: their names, wherever a spec writes one, levels, values and expressions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from synthdp.spec.expressions.expressions import calculation, parse
from synthdp.spec.expressions.parsed import listed_names
from synthdp.spec.load.wording import Loc, SpecMistake, claims, nearest
from synthdp.spec.model import CONTROL, CsvSource, Edge, ReleaseSpec, derived_of, starts_formula
from synthdp.spec.model.columns import Mapped
from synthdp.spec.model.fields import alike

MAX_LEVELS = 65_536  # the width of the one-hot row that the model reads


def types(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Each column states what its type allows."""
    for name, column in spec.columns.items():
        for field, message, hint in column.mistakes():
            yield SpecMistake(("columns", name, field), message, hint)


def value_maps(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Each text of the source becomes a category, and stands for nothing else."""
    source = spec.dataset.source
    missing = source.missing_values if isinstance(source, CsvSource) else ()
    for name, column in spec.columns.items():
        if not isinstance(column, Mapped):
            continue
        where = ("columns", name)
        own = column.values or spec.maps.get(column.map or "", {})
        if column.map is not None and column.values:
            hint = "delete one of them"
            yield SpecMistake((*where, "map"), "give either values or map, not both", hint)
        elif column.map is not None and column.map not in spec.maps:
            hint = (
                nearest(column.map, spec.maps) or "write it there, as text of the source: category"
            )
            yield SpecMistake((*where, "map"), f"`maps` has no {column.map!r}", hint)
        for text, category in own.items():
            at = (*where, "values", text)
            if category not in column.labels:
                hint = nearest(category, column.labels) or "list it among the column's categories"
                yield SpecMistake(at, f"{category!r} is no category of the column", hint)
            elif text in column.labels:
                message = f"{text!r} is a category itself, and would be published as another"
                yield SpecMistake(at, message, "rename the category, or take it out here")
            elif text in column.missing_codes or text in missing:
                message = f"{text!r} also stands for a missing value"
                yield SpecMistake(at, message, "take it out here, or there")


def names(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """The names of columns are plain, and no two of them look alike."""
    for name in spec.columns:
        if starts_formula(name):
            message = "the name starts like a spreadsheet formula"
            hint = "rename the column in the source; begin with a letter"
            yield SpecMistake(("columns", name), message, hint)
        yield from plain_name(("columns", name), name, "rename the column in the source")
    pair = alike(spec.columns)
    if pair is not None:
        message = f"{pair[0]!a} and {pair[1]!a} look the same and are not"
        yield SpecMistake(("columns", pair[1]), message, "rename one of them in the source")


def levels(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """All columns together have at most `MAX_LEVELS` levels."""
    total = sum(column.level_count for column in spec.modelled.values())
    if total > MAX_LEVELS:
        message = (
            f"all columns together have {total:,} levels; at most {MAX_LEVELS:,} fit into the model"
        )
        yield SpecMistake(("columns",), message, "use fewer bins, or merge rare categories")


def plain_name(where: Loc, name: str, hint: str) -> Iterator[SpecMistake]:
    """A name without control characters, and without spaces around it."""
    if CONTROL.search(name):
        yield SpecMistake(where, "the name holds a control character or a line break", hint)
    elif name != name.strip():
        yield SpecMistake(where, "the name begins or ends with a space", hint)


def derived(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    for name, column in spec.columns.items():
        if (text := derived_of(column)) is None:
            continue
        where, place = ("columns", name), ("columns", name, "derived")
        computed, mistakes = calculation(text, spec.columns)
        yield from (SpecMistake(place, f"character {m.at}: {m.message}", m.hint) for m in mistakes)
        yield from claims(
            *((getattr(column, field), (*where, field),
               f"{field} say how a column is modelled, and {name!r} is computed", f"delete {field}")
              for field in {"bins", "edges", "spikes"} & column.model_fields_set),
        )  # fmt: skip
        if computed is None:
            continue
        absent = [n for n in computed.columns if spec.columns[n].missing]
        why = f"{absent[0]!r} may be missing" if absent else "it divides by what may be 0"
        yield from claims(
            (computed.kind != column.operand, place,
             f"computes a {computed.kind}, and a column of type {column.type} holds"
             f" {column.operand}s",
             f"use type {'datetime' if computed.kind == 'date' else 'number'}"),
            (not column.missing and (absent or computed.divides), place,
             f"{why}, and {name!r} is then missing too", f"set columns.{name}.missing: true"),
        )  # fmt: skip


def even(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Columns are drawn again only where rows were chosen, and are read by no constraint."""
    parsed = (parse(text, spec.columns)[0] for text in spec.constraints)
    read = {name for expression in parsed if expression for name in expression.columns}
    for i, name in enumerate(spec.sampling.even):
        if name in read:
            message = f"a constraint reads column {name!r}, and rows are held to it as a whole"
            yield SpecMistake(("sampling", "even", i), message, f"leave {name!r} out")
    off = next((name for name in ("rake", "balance") if not getattr(spec.sampling, name)), None)
    if spec.sampling.even and off:
        message = f"columns are drawn again after rows were chosen, which {off}: false turns off"
        yield SpecMistake(("sampling", "even"), message, f"delete {off}")


# --- names of columns elsewhere ---

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
NODES = ("graph.tiers.*.*", "graph.latent.*.*", "graph.undirected.*.*")


def named(spec: ReleaseSpec) -> Iterator[SpecMistake]:
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
    found = (place for pattern in patterns for place in _found(spec, pattern))
    # A map of columns has them as its keys.
    return ((where, where[-1] if isinstance(one, tuple) else one) for where, one in found)


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
