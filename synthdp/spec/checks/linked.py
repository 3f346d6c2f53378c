"""Checks of a spec of linked tables: what one table must fulfil, and what joins the two."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from synthdp.spec.checks import budget, columns, dataset
from synthdp.spec.checks.checks import traps
from synthdp.spec.checks.telling_names import is_id
from synthdp.spec.expressions.nodes import ALLOWED_RULES, Node, parse_arrow, parse_node, parse_rule
from synthdp.spec.load.wording import Loc, SpecMistake, nearest, stated
from synthdp.spec.model import Boolean, Dataset, IdUnit, Integer, Ordinal, Privacy, ReleaseSpec
from synthdp.spec.model.columns import Datetime, derived_of
from synthdp.spec.model.linked import CLOCKS, MAX_LAG, NOT_COVERED, STEPS, LinkedSpec
from synthdp.spec.model.rules import engine_of

ONE_TABLE = (
    dataset.unit,
    dataset.missing_texts,
    dataset.source,
    dataset.chosen,
    columns.names,
    columns.levels,
    columns.types,
    columns.value_maps,
)
"""What holds for the columns and the source of each table."""
LAWS = ("persons", "first", "steps", "ends")


def linked_problems(spec: LinkedSpec) -> list[SpecMistake]:
    """Every mistake between the parts."""
    checks = (_each_table, _keys, _order, _ends, _clocks, _budget, _rules, _graph, _rest)
    return [m for check in checks for m in itertools.islice(check(spec), 101)]


def linked_traps(spec: LinkedSpec) -> list[str]:
    """A warning for each trap, in words. Nothing here comes from rows."""
    found = list[str]()
    for name in spec.dataset.tables:
        told = traps(one_table(spec, name))
        found += [warning.replace("columns", f"columns.{name}", 1) for warning in told]
        found += [
            f"columns.{name}: {column!r} sounds like an id; an id is never released"
            for column in spec.columns[name]
            if is_id(column)
        ]
    return found


def one_table(spec: LinkedSpec, name: str) -> ReleaseSpec:
    """One of the tables as a spec of its own, for checks that look at one."""
    table, visits = spec.dataset.tables[name], spec.dataset.visits
    rows = visits.at_most if name == spec.dataset.visits_name else 1
    unit = IdUnit(kind="id", column=table.key, max_rows=rows, meaning="one person")
    told = spec.privacy.model_dump(include={"epsilon", "delta", "adjacency", "cap", "ledger"})
    return ReleaseSpec(
        synthdp=1,
        dataset=Dataset(
            id=spec.dataset.id,
            source=table.source,
            privacy_unit=unit,
            rows=spec.dataset.persons.rows,
        ),
        columns=spec.columns[name],
        privacy=Privacy(**told),
        tracking=spec.tracking,
        compute=spec.compute,
    )


def _each_table(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Each table by itself; what is told at the place of one table is told at that of this one."""
    for name in spec.dataset.tables:
        source, one = f"dataset.tables.{name}.source", one_table(spec, name)
        for check in ONE_TABLE:
            for m in check(one):
                message, hint = (
                    text and text.replace("dataset.source", source) for text in (m.message, m.hint)
                )
                yield replace(m, loc=_moved(m.loc, name), message=message or "", hint=hint)
        for column, declared in spec.columns[name].items():
            if derived_of(declared) is not None:
                message = "columns of linked tables are not computed from others yet"
                hint = "declare it as it is read, or drop it in the source"
                yield SpecMistake(("columns", name, column, "derived"), message, hint)


def _moved(loc: Loc, table: str) -> Loc:
    if loc[:1] == ("columns",):
        return ("columns", table, *loc[1:])
    if loc[:2] == ("dataset", "privacy_unit"):
        return ("dataset", "tables", table, "key")
    return ("dataset", "tables", table, *loc[1:]) if loc[:1] == ("dataset",) else loc


def _keys(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Visits are of the persons, and rows are read in memory."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    where = ("dataset", "tables", visits)
    if (of := spec.dataset.visits.of) != persons:
        message = f"{of!r} is no table of persons; {NOT_COVERED}"
        yield SpecMistake((*where, "of"), message, f"write {persons}")
    for name, table in spec.dataset.tables.items():
        if getattr(table.source, "levels_only", False):
            message = "levels_only keeps no values, and visits are put in order by them"
            at = ("dataset", "tables", name, "source", "levels_only")
            yield SpecMistake(at, message, "leave it out")
        if engine_of(table.source, spec.compute) != "memory":
            at = ("dataset", "tables", name, "source", "path")
            message = "linked tables are read from local files, in memory"
            yield SpecMistake(at, message, "copy the file here, and leave out compute.engine")


def _order(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Visits are in order of a date or a whole number, up to an end inside its bounds."""
    name, table = spec.dataset.visits_name, spec.dataset.visits
    declared, where = spec.columns[name], ("dataset", "tables", name)
    order = declared.get(table.order)
    if order is None:
        hint = nearest(table.order, declared) or f"declare it under columns.{name}"
        yield SpecMistake((*where, "order"), f"unknown column {table.order!r} of {name}", hint)
        return
    at = ("columns", name, table.order)
    if not isinstance(order, Datetime | Integer):
        message = f"visits are in order of a date or a whole number, and this is {order.type}"
        yield SpecMistake((*at, "type"), message, "declare it datetime or integer")
        return
    if order.missing:
        message = "a visit without a place in the order is not read, so that none is missing"
        yield SpecMistake((*at, "missing"), message, "set missing: false")
    if len(declared) == 1:
        message = f"{name} have no column beside {table.order!r}, and nothing to be modelled"
        yield SpecMistake(("columns", name), message, "declare what a visit holds")
    kind = "date" if isinstance(order, Datetime) else "whole number"
    if table.step(order) is None:
        message = f"got {table.resolution!r}, and {table.order!r} is in whole"
        steps = f"{order.resolution}s" if isinstance(order, Datetime) else "numbers"
        yield SpecMistake((*where, "resolution"), f"{message} {steps}", f"write it in {steps}")
    until, lower, upper = table.until, order.lower, order.upper
    if until is None:
        return
    if isinstance(until, int) != isinstance(order, Integer):
        message = f"got {until}, and {table.order!r} is a {kind}"
        yield SpecMistake((*where, "until"), message, f"write a {kind}")
    elif not lower < until <= upper:  # type: ignore[operator]
        message = f"got {until}; it must be above {lower} and at most {upper}, the bounds of"
        hint = f"change it, or columns.{name}.{table.order}"
        yield SpecMistake((*where, "until"), f"{message} {table.order!r}", hint)


def _date_of_persons(
    spec: LinkedSpec, where: Loc, node: Node, *, missing: bool | None = None
) -> Iterator[SpecMistake]:
    """What is wrong with a node that must be a date of persons, where visits have dates."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits
    column = spec.columns[persons].get(node.column)
    order = spec.columns[spec.dataset.visits_name].get(visits.order)
    if node.table != persons or node.lag or node.number:
        yield SpecMistake(where, f"got {node}", f"name a column of {persons}")
    elif column is None:
        hint = nearest(node.column, spec.columns[persons])
        message = f"unknown column {node.column!r} of {persons}"
        yield SpecMistake(where, message, hint or f"declare it under columns.{persons}")
    elif not isinstance(column, Datetime):
        message = f"{node} is {column.type}, and must be a date"
        yield SpecMistake(where, message, "declare it datetime")
    elif missing is not None and column.missing != missing:
        message = f"{node} is missing for those who live"
        hint = f"set columns.{persons}.{node.column}.missing: true"
        yield SpecMistake(where, message, hint)
    elif isinstance(order, Integer):
        message = f"{node} is a date, and {visits.order!r}, the order of visits, a whole number"
        yield SpecMistake(where, message, "order visits by a date, or delete it")


def _ends(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Death is a date of persons that may be missing."""
    name, ends = spec.dataset.visits_name, spec.dataset.visits.ends
    if ends is not None:
        where = ("dataset", "tables", name, "ends", "death")
        yield from _date_of_persons(spec, where, parse_node(ends.death), missing=True)


def _clocks(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """No column has the name of a clock or a step."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    taken = {visits: (*CLOCKS, *STEPS), persons: ("age",) if spec.birth else ()}
    for table, names in taken.items():
        for name in names:
            if name in spec.columns[table]:
                what = "follows from birth and order" if name == "age" else "follows from the order"
                message = f"{table}.{name} {what} of visits, and arrows name it so"
                hint = "give the column another name, with rename in the source"
                yield SpecMistake(("columns", table, name), message, hint)


def _budget(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """The budget fits the persons, and every law has a share of it."""
    one = one_table(spec, spec.dataset.persons_name)
    yield from itertools.chain(budget.delta(one), budget.cap(one), dataset.addresses(one))
    for name in LAWS:
        where = ("privacy", "shares", name)
        if getattr(spec.privacy.shares, name) == 0:
            message = f"{stated(spec, *where)}; every law needs a share"
            yield SpecMistake(where, message, "e.g. 0.1, taken from the others")
    if spec.privacy.shares.estimands:
        message = f"got {spec.privacy.shares.estimands:g}, and there are no estimands"
        yield SpecMistake(("privacy", "shares", "estimands"), message, "set it to 0")


def _rules(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Rules are between a person's date and the order of visits, or on levels with an order."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    order, seen = Node(visits, spec.dataset.visits.order), set[Any]()
    for i, (kind, nodes) in enumerate(map(parse_rule, spec.constraints)):
        where = ("constraints", i)
        before = nodes[0].table == persons
        if kind != "<=":
            yield from _steady(spec, where, kind, nodes[0])
        elif nodes[before] != order or nodes[not before].table != persons:
            yield SpecMistake(where, f"got {nodes[0]} <= {nodes[1]}", ALLOWED_RULES)
        else:
            found = list(_date_of_persons(spec, where, nodes[not before]))
            yield from found
            if not (found or before) and nodes[0 if before else 1].column != spec.death:
                hint = f"set dataset.tables.{visits}.ends: {{death: {nodes[1]}}}"
                yield SpecMistake(where, f"{nodes[1]} does not end visits", hint)
        rule = (kind == "<=" and before, kind != "<=" and nodes[0])
        if rule in seen:
            yield SpecMistake(where, "there is such a rule above", "keep one of the two")
        seen.add(rule)


def _steady(spec: LinkedSpec, where: Loc, kind: str, node: Node) -> Iterator[SpecMistake]:
    """What is wrong with a column whose levels shall not fall, not rise or stay once reached."""
    visits = spec.dataset.visits_name
    column = spec.columns[visits].get(node.column) if node.table == visits else None
    if node.table != visits or node.column == spec.dataset.visits.order:
        message = f"{kind} is of a column of {visits} beside their order, got {node}"
        yield SpecMistake(where, message, ALLOWED_RULES)
    elif column is None:
        yield _unknown(where, node, spec.columns[visits])
    elif not isinstance(column, Ordinal | Boolean | Integer):
        message = f"{node} is {column.type}, whose levels have no order"
        yield SpecMistake(where, message, "declare it ordinal, boolean or integer")
    elif column.missing:
        message = f"{node} may be missing, and a missing value has no place in an order"
        yield SpecMistake(where, message, "set missing: false, or delete the rule")
    elif kind == "once" and len(column.labels) != 2:
        message = f"once is of a column of two levels, the second of which stays; {node} has"
        hint = "use nondecreasing, or declare it boolean"
        yield SpecMistake(where, f"{message} {column.level_count}", hint)


def _unknown(where: Loc, node: Node, known: Collection[str]) -> SpecMistake:
    hint = nearest(node.column, known) or f"columns that can stand here: {', '.join(known)}"
    return SpecMistake(where, f"unknown column {node.column!r} of {node.table}", hint)


# --- graph ---


def _graph(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Arrows are between what is modelled, forward in time, and without a cycle at a visit."""
    graph = spec.graph
    if graph.mode == "given" and not graph.edges:
        message = "missing or empty; mode given needs at least one arrow"
        hint = "give arrows such as visits[-1].x -> visits.x, or use mode predict or none"
        yield SpecMistake(("graph", "edges"), message, hint)
    if graph.mode != "given" and graph.edges:
        message = f"has no effect: graph mode is {graph.mode}"
        yield SpecMistake(("graph", "edges"), message, "use mode given, or delete it")
    first = dict[tuple[Node, Node], int]()
    wrong = False
    for e, (causes, effects) in enumerate(map(parse_arrow, graph.edges)):
        where = ("graph", "edges", e)
        found = [m for node in causes for m in _cause(spec, where, node)]
        found += [m for node in effects for m in _effect(spec, where, node)]
        if not found:
            found = [m for b in effects for a in causes for m in _backwards(spec, where, a, b)]
        for arrow in itertools.product(causes, effects):
            if first.setdefault(arrow, e) != e:
                message = f"arrow {arrow[0]} -> {arrow[1]} is written twice"
                found.append(SpecMistake(where, message, "delete one"))
        wrong |= bool(found)
        yield from found
    if not wrong:
        yield from _cycles(spec, first)


def _known(spec: LinkedSpec, where: Loc, node: Node, more: Iterable[str]) -> Iterator[SpecMistake]:
    """What is wrong with the name of a node, beside its place in time."""
    tables, visits = spec.dataset.tables, spec.dataset.visits_name
    of_visits = node.table == visits
    if node.table not in tables:
        hint = nearest(node.table, tables) or f"tables are {' and '.join(tables)}"
        yield SpecMistake(where, f"unknown table {node.table!r} in {node}", hint)
    elif not of_visits and (node.lag or node.number):
        message = f"{node}: a person has one row of {node.table}, and no visits before it"
        yield SpecMistake(where, message, f"write {Node(node.table, node.column)}")
    elif of_visits and node.column == spec.dataset.visits.order:
        message = f"{node}: the order of visits is modelled by the gaps between them"
        hint = f"as a cause write {visits}.calendar or {visits}.number, as an effect {visits}.gap"
        yield SpecMistake(where, message, hint)
    elif not of_visits and node.column == spec.birth:
        message = f"{node} is modelled by the age at the first visit"
        yield SpecMistake(where, message, f"write {Node(node.table, 'age')}")
    else:
        modelled = [n.column for n in spec.nodes() if n.table == node.table and not n.number]
        known = dict.fromkeys(n for n in (*modelled, *more) if of_visits or n in modelled)
        if node.column == "age" and node.column not in known:
            hint = f"a constraint such as {spec.dataset.persons_name}.birth <= {visits}.date"
            yield SpecMistake(where, f"{node} needs a date of birth", f"write {hint}")
        elif node.column not in known:
            yield _unknown(where, node, known)


def _cause(spec: LinkedSpec, where: Loc, node: Node) -> Iterator[SpecMistake]:
    """What is wrong with a cause by itself."""
    clocks = [name for name in CLOCKS if spec.birth or name != "age"]
    visits, told = spec.dataset.visits_name, ""
    if node.table == visits and node.lag < 0:
        told = "an arrow does not go back in time; [+1] is of evaluation.targets"
    elif node.lag > MAX_LAG:
        told = f"at most {MAX_LAG} visits before"
    elif node.lag > 1:
        told = "two visits before is not covered yet, only [-1], the visit before"
    elif node.table == visits and (node.number or 1) > 1:
        told = "of visits by number only the first has a law of its own"
    elif node == Node(visits, "end") or (node.column, node.lag) == ("end", 1):
        told = "who has a visit did not stop before it"
    elif node == Node(visits, "gap"):
        told = f"the gap before a visit is no cause of it yet; write {visits}[-1].gap"
    elif node == Node(spec.dataset.persons_name, spec.death or ""):
        told = "death comes after all visits, and is an effect alone"
    if told:
        yield SpecMistake(where, f"{node}: {told}", None)
    else:
        yield from _known(spec, where, node, clocks)


def _effect(spec: LinkedSpec, where: Loc, node: Node) -> Iterator[SpecMistake]:
    """What is wrong with an effect by itself."""
    visits, told, hint = spec.dataset.visits_name, "", None
    if node.table == visits and (node.lag or (node.number or 1) > 1):
        told = "an effect is at any visit, or at the first"
        hint = f"write {Node(visits, node.column)} or {Node(visits, node.column, number=1)}"
    elif node.table == visits and node.number and node.column in STEPS:
        told, hint = "one law holds for all visits", f"write {Node(visits, node.column)}"
    elif node.table == visits and node.column in CLOCKS:
        told = "follows from the dates of visits, and is a cause alone"
    if told:
        yield SpecMistake(where, f"{node}: {told}", hint)
    else:
        yield from _known(spec, where, node, ())


def _backwards(spec: LinkedSpec, where: Loc, cause: Node, effect: Node) -> Iterator[SpecMistake]:
    """What is wrong with an arrow between two nodes that may be."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    told, hint = "", f"turn it round: {effect} -> {cause}"
    if cause.table == visits and effect.table == persons and effect.column != spec.death:
        told = "what is at a visit is no cause of what a person has before all visits"
    elif cause.table == visits and effect.table == persons and (cause.lag or cause.number):
        told, hint = "death follows the last visit", f"write {Node(visits, cause.column)}"
    elif cause.table == visits and effect.number and cause.lag:
        told, hint = "there is no visit before the first", f"write {visits}.{cause.column}"
    elif cause.table == visits and cause.number and not effect.number:
        told = "the first visit is no cause of later ones but through those between"
        hint = f"write {visits}[-1].{cause.column}"
    elif effect == Node(visits, "gap") and cause.table == visits and not cause.lag:
        if cause.column != "number":
            told = "the gap comes before the visit"
            hint = f"write {Node(visits, cause.column, lag=1)}"
    elif cause == effect:
        told = "an arrow to itself"
        hint = f"write {Node(visits, cause.column, lag=1)}" if cause.table == visits else "delete"
    if told:
        yield SpecMistake(where, f"{cause} -> {effect}: {told}", hint)


def _cycles(spec: LinkedSpec, written: dict[tuple[Node, Node], int]) -> Iterator[SpecMistake]:
    """A cycle of arrows at any visit, at the first one, or between columns of persons."""
    drawn = spec.graph.arrows(spec)
    for number in (None, 1):
        causes = {
            replace(node, number=None): [replace(c, number=None) for c in parents if not c.lag]
            for node, parents in drawn.items()
            if node.number == number or (number and node.table != spec.dataset.visits_name)
        }
        try:
            graphlib.TopologicalSorter(causes).prepare()
        except graphlib.CycleError as error:  # each is a cause of the next, the last of the first
            ring: list[Node] = list(error.args[1])
            last = max(
                e
                for (a, b), e in written.items()
                if (replace(a, number=None), replace(b, number=None)) in itertools.pairwise(ring)
            )
            at = " at the first visit" if number else ""
            message = f"the graph has a cycle{at}: {' -> '.join(map(str, ring))}"
            hint = "turn round or delete one of these arrows, or take the visit before, [-1]"
            yield SpecMistake(("graph", "edges", last), message, hint)
            return


def _rest(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Targets are columns of the next visit."""
    visits = spec.dataset.visits_name
    known = [name for name in spec.columns[visits] if name != spec.dataset.visits.order]
    for i, node in enumerate(map(parse_node, spec.evaluation.targets)):
        where = ("evaluation", "targets", i)
        if node.table != visits or node.lag != -1:
            hint = f"write {visits}[+1].column: a column of the next visit"
            yield SpecMistake(where, f"got {node}", hint)
        elif node.column not in known:
            yield _unknown(where, node, known)
