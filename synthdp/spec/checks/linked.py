"""Checks of a spec of linked tables: what one table must fulfil, and what joins the two."""

from __future__ import annotations

import graphlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from synthdp.spec.addresses import is_pattern, is_url
from synthdp.spec.checks import budget, columns, dataset
from synthdp.spec.checks.checks import traps
from synthdp.spec.checks.columns import is_id
from synthdp.spec.expressions.parsed import ALLOWED_RULES, Node, parse_arrow, parse_node, parse_rule
from synthdp.spec.load.wording import Loc, SpecMistake, claims, nearest, stated
from synthdp.spec.model import (
    CLOCKS,
    MOST,
    NOT_COVERED,
    ONE_STEP,
    PERSON,
    STEPS,
    Boolean,
    Dataset,
    Datetime,
    IdUnit,
    Integer,
    LinkedQuestion,
    LinkedSpec,
    Number,
    Ordinal,
    Privacy,
    ReleaseSpec,
    derived_of,
)
from synthdp.spec.model.rules import linked_engine, linked_numbers

ONE_TABLE = (
    dataset.unit,
    dataset.missing_texts,
    dataset.source,
    dataset.row_by_row,
    dataset.chosen,
    columns.names,
    columns.levels,
    columns.types,
    columns.value_maps,
)
"""What holds for the columns and the source of each table."""
READ_BY = {
    "arrow": (
        "parquet",
        "reads both tables from Parquet",
        "save both as Parquet, or give local files and leave compute.engine out",
    ),
    "sql": (
        "sql",
        "reads both tables by a query of a database",
        "give both as kind: sql, or leave compute.engine out",
    ),
}
"""Of an engine: the kind of its sources, in words, and what to do about another."""


def linked_problems(spec: LinkedSpec) -> list[SpecMistake]:
    """Every mistake between the parts."""
    found = [m for check in (_each_table, _keys, _budget) for m in _first(check(spec))]
    for check in (_order, _ends, _rules, _clocks, _graph, _targets, _estimands):
        if own := _first(check(spec)):  # those behind it would tell it again
            return [*found, *own]
    return found


def _first(found: Iterable[SpecMistake]) -> list[SpecMistake]:
    return list(itertools.islice(found, 101))


def linked_traps(spec: LinkedSpec) -> list[str]:
    """A warning for each trap, in words. Nothing here comes from rows."""
    found = list[str]()
    for name in spec.dataset.tables:
        told = traps(one_table(spec, name))
        source, moved = f"dataset.tables.{name}.source", f"columns.{name}"
        found += [
            warning.replace("columns", moved, 1).replace("dataset.source", source)
            for warning in told
        ]
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
                hint = hint and hint.partition("; Parquet is read from")[0]  # of one table alone
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
    """Visits are of the persons, and the engine reads both tables."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    of, engine = spec.dataset.visits.of, linked_engine(spec)
    yield from claims(
        (of != persons, ("dataset", "tables", visits, "of"),
         f"{of!r} is no table of persons; {NOT_COVERED}", f"write {persons}"),
    )  # fmt: skip
    for name, table in spec.dataset.tables.items():
        at, path = ("dataset", "tables", name, "source"), getattr(table.source, "path", "")
        kind, asks, hint = READ_BY.get(engine, (table.source.kind, "", ""))
        yield from claims(
            (getattr(table.source, "levels_only", False), (*at, "levels_only"),
             "levels_only keeps no values, and visits are put in order by them", "leave it out"),
            (table.source.kind != kind, (*at, "kind"),
             f"engine {engine} {asks}, and this is {table.source.kind}", hint),
            (engine == "memory" and (is_url(path) or is_pattern(path)), (*at, "path"),
             "in memory linked tables are read from one local file each, or a folder of Parquet",
             "copy it here and give its path, or leave compute.engine out"),
        )  # fmt: skip
    yield from claims(
        (spec.compute.engine == "dask", "compute.engine", "linked tables are not counted by dask",
         "use arrow, which reads the same Parquet files part by part, or sql, or leave it out"),
    )  # fmt: skip


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
    until: Any = table.until
    steps, how, kind = "numbers", "write a whole number without a unit", "whole number"
    if isinstance(order, Datetime):
        steps, kind = f"{order.resolution}s", "date"
        how = f"write a number of {steps}"
    other = until is not None and isinstance(until, int) == isinstance(order, Datetime)
    got, *ends = (str(x).removesuffix(" 00:00:00") for x in (until, order.lower, order.upper))
    yield from claims(
        (order.missing, (*at, "missing"),
         "a visit without a place in the order is not read, so that none is missing",
         "set missing: false"),
        (len(declared) == 1, ("columns", name),
         f"{name} have no column beside {table.order!r}, and nothing to be modelled",
         "declare what a visit holds"),
        (table.step(order) is None, (*where, "resolution"),
         f"got {table.resolution!r}, and {table.order!r} is in whole {steps}", how),
        (other, (*where, "until"), f"got {got}, and {table.order!r} is a {kind}",
         f"write a {kind}"),
        (until is not None and not other and not order.lower < until <= order.upper,
         (*where, "until"),
         f"got {got}; it must be above {ends[0]} and at most {ends[1]}, the bounds of"
         f" {table.order!r}", f"change it, or columns.{name}.{table.order}"),
    )  # fmt: skip


def _date_of_persons(
    spec: LinkedSpec, where: Loc, node: Node, *, missing: bool = False
) -> Iterator[SpecMistake]:
    """What is wrong with a node that must be a date of persons, where visits have dates."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits
    column = spec.columns[persons].get(node.column)
    found = claims(
        (node != Node(persons, node.column), where, f"got {node}", f"name a column of {persons}"),
        (column is None, where, *_unknown(node, spec.columns[persons])),
        (not isinstance(column, Datetime), where,
         f"{node} is {getattr(column, 'type', '')}, and must be a date", "declare it datetime"),
        (missing and not getattr(column, "missing", False), where,
         f"{node} is missing for those who live",
         f"set columns.{persons}.{node.column}.missing: true"),
        (isinstance(spec.order_column, Integer), where,
         f"{node} is a date, and {visits.order!r}, the order of visits, a whole number",
         "order visits by a date, or delete it"),
    )  # fmt: skip
    yield from itertools.islice(found, 1)


def _ends(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Death is a date of persons that may be missing."""
    name, ends = spec.dataset.visits_name, spec.dataset.visits.ends
    if ends is not None:
        where = ("dataset", "tables", name, "ends", "death")
        yield from _date_of_persons(spec, where, parse_node(ends.death), missing=True)


def _clocks_of(spec: LinkedSpec) -> tuple[str, ...]:
    return tuple(name for name in CLOCKS if name != "age" or spec.birth)


def _clocks(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """No column has the name of a clock or a step."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    taken = {visits: (*_clocks_of(spec), *STEPS), persons: ("age",) if spec.birth else ()}
    yield from claims(
        *((name in spec.columns[table], ("columns", table, name),
           f"{table}.{name} is what arrows call something that visits themselves tell",
           "give the column another name, with rename in the source")
          for table, names in taken.items() for name in names),
    )  # fmt: skip


def _budget(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """The budget fits the persons, and every law has a share of it."""
    one = one_table(spec, spec.dataset.persons_name)
    yield from itertools.chain(budget.amounts(one), dataset.addresses(one))
    own, at = spec.privacy.shares, ("privacy", "shares")
    share, moments = own.estimands, own.moments
    yield from claims(
        *((getattr(own, name) == 0, (*at, name),
           f"{stated(spec, *at, name)}; every law needs a share", "e.g. 0.1, taken from the others")
          for name in ("persons", "first", "steps", "ends")),
        (share and not spec.estimands, (*at, "estimands"),
         f"got {share:g}, and there are no estimands", "set it to 0"),
        (spec.estimands and not share, (*at, "estimands"),
         f"{stated(spec, *at, 'estimands')}; estimands need a share",
         "e.g. 0.1, taken from the others"),
        (moments and not 0 < len(linked_numbers(spec)) <= 600, (*at, "moments"),
         f"got {moments:g}, and no column is a number, or more than 600 are", "set it to 0"),
        (moments and linked_engine(spec) == "sql", (*at, "moments"),
         f"got {moments:g}, and engine sql counts and adds up nothing",
         "set it to 0, or use another engine"),
    )  # fmt: skip


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
            yield from found or _possible(spec, where, nodes[not before], before=before)
        rule = (kind == "<=" and before, kind != "<=" and nodes[0])
        if rule in seen:
            yield SpecMistake(where, "there is such a rule above", "keep one of the two")
        seen.add(rule)


def _possible(spec: LinkedSpec, where: Loc, node: Node, *, before: bool) -> Iterator[SpecMistake]:
    """What keeps a date of persons from being before all visits, or after all of them."""
    date: Any = spec.columns[node.table][node.column]
    order: Any = spec.order_column
    yield from claims(
        (date.lower > order.upper if before else date.upper < order.lower, where,
         f"the bounds of {node} leave no person for it", "change the bounds, or delete the rule"),
        (not before and node.column != spec.death, where, f"{node} does not end visits",
         f"set dataset.tables.{spec.dataset.visits_name}.ends: {{death: {node}}}"),
    )  # fmt: skip


def _steady(spec: LinkedSpec, where: Loc, kind: str, node: Node) -> Iterator[SpecMistake]:
    """What is wrong with a column whose levels shall not fall, not rise or stay once reached."""
    visits = spec.dataset.visits_name
    column, other = spec.columns[visits].get(node.column), Node(visits, spec.dataset.visits.order)
    found = claims(
        (node.table != visits or node == other, where,
         f"{kind} is of a column of {visits} beside their order, got {node}", ALLOWED_RULES),
        (column is None, where, *_unknown(node, spec.columns[visits])),
        (not isinstance(column, Ordinal | Boolean | Integer), where,
         f"{node} is {getattr(column, 'type', '')}, whose levels have no order",
         "declare it ordinal, boolean or integer"),
        (getattr(column, "missing", False), where,
         f"{node} may be missing, and a missing value has no place in an order",
         "set missing: false, or delete the rule"),
        (kind == "once" and len(getattr(column, "labels", ())) != 2, where,
         f"once is of a column of two levels, the second of which stays; {node} has"
         f" {getattr(column, 'level_count', 0)}", "use nondecreasing, or declare it boolean"),
    )  # fmt: skip
    yield from itertools.islice(found, 1)


def _unknown(node: Node, known: Collection[str]) -> tuple[str, str]:
    hint = nearest(node.column, known) or f"columns that can stand here: {', '.join(known)}"
    return f"unknown column {node.column!r} of {node.table}", hint


# --- graph ---


def _graph(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Arrows are between what is modelled, forward in time, and without a cycle at a visit."""
    mode, edges = spec.graph.mode, list(map(parse_arrow, spec.graph.edges))
    total = sum(len(a) * len(b) for a, b in edges)
    yield from claims(
        (mode == "given" and not edges, "graph.edges",
         "missing or empty; mode given needs at least one arrow",
         "give arrows such as visits[-1].x -> visits.x, or use mode predict or none"),
        (mode != "given" and edges, "graph.edges", f"has no effect: graph mode is {mode}",
         "use mode given, or delete it"),
        (total > MOST.arrows, "graph.edges",
         f"{total:,} arrows; there may be at most {MOST.arrows:,}",
         "give fewer, or use mode predict"),
    )  # fmt: skip
    if total > MOST.arrows:
        return
    places, first = _Places(spec), dict[tuple[Node, Node], int]()
    wrong = False
    for e, (causes, effects) in enumerate(edges):
        checks = [*map(places.cause, causes), *map(places.effect, effects)]
        found = list(itertools.islice(filter(None, checks), 101))
        for arrow in itertools.product(causes, effects) if not found else ():
            told = places.arrow(*arrow)
            if first.setdefault(arrow, e) != e:
                told = "is written twice", "delete one"
            if told:
                found.append((f"arrow {arrow[0]} -> {arrow[1]} {told[0]}", told[1]))
        for message, advice in found:
            yield SpecMistake(("graph", "edges", e), message, advice)
        wrong |= bool(found)
    if not wrong:
        yield from _cycles(spec, first)


Told = tuple[str, str | None]
"""A message and a hint."""


def _told(*wrong: tuple[Any, str, str | None]) -> Told | None:
    """The first that holds."""
    return next(((message, hint) for holds, message, hint in wrong if holds), None)


class _Places:
    """Where nodes may stand in the arrows of a spec."""

    def __init__(self, spec: LinkedSpec) -> None:
        self.spec, self.birth = spec, spec.birth
        self.persons, self.visits = spec.dataset.persons_name, spec.dataset.visits_name
        self.died, self.gap = Node(self.persons, spec.death or ""), Node(self.visits, "gap")
        nodes = [node for node in spec.nodes() if not node.number]
        self.effects = {t: [n.column for n in nodes if n.table == t] for t in spec.columns}
        self.clocks = _clocks_of(spec)
        of_visits = [*self.effects[self.visits], *self.clocks]
        self.causes = {**self.effects, self.visits: of_visits}

    def cause(self, node: Node) -> Told | None:
        """What is wrong with a cause by itself."""
        wrong = [
            (node.lag < 0, "an arrow does not go back in time; [+1] is of evaluation.targets"),
            (node.lag > 1, "arrows reach back to the visit before, [-1], and no further yet"),
            ((node.number or 1) > 1, "by its number only the first visit has a law of its own"),
            (node.column == "end", "who has a visit did not stop before it"),
            (node == self.gap,
             f"the gap before a visit is no cause of it yet; write {self.visits}[-1].gap"),
        ]  # fmt: skip
        if node.table != self.visits:
            wrong = [(node == self.died, "death comes after all visits, and is an effect alone")]
        found = _told(*((holds, f"{node}: {message}", None) for holds, message in wrong))
        return found or self._known(node, self.causes)

    def effect(self, node: Node) -> Told | None:
        """What is wrong with an effect by itself."""
        any_visit = Node(self.visits, node.column)
        first = replace(any_visit, number=1)
        found = _told(
            (node not in (any_visit, first), f"{node}: an effect is at any visit, or at the first",
             f"write {any_visit}, or of the first visit {first}"),
            (node == first and node.column in STEPS, f"{node}: one law holds for all visits",
             f"write {any_visit}"),
            (node.column in self.clocks,
             f"{node}: it follows from the order of visits, and is a cause alone", None),
        ) if node.table == self.visits else None  # fmt: skip
        return found or self._known(node, self.effects)

    def arrow(self, cause: Node, effect: Node) -> Told | None:
        """What is wrong with an arrow between two nodes that may be."""
        same = Node(self.visits, cause.column)
        before, write = f"write {replace(same, lag=1)}", f"write {same}"
        if cause.table != self.visits:
            return _told((cause == effect, "leads to itself", "delete it"))
        back = effect.table == self.persons
        return _told(
            (cause == effect, "leads to itself", before),
            (back and effect != self.died, "goes from a visit back to the person",
             f"turn it round: {effect} -> {cause}"),
            (back and cause != same, "is of another visit than the last, which death follows",
             write),
            (effect.number and cause.lag, "has no visit before the first to come from", write),
            (cause.number and not effect.number,
             "skips the visits between; the first is no cause of later ones yet", before),
            (effect == self.gap and not cause.lag and cause.column != "number",
             "goes back in time: the gap comes before the visit", before),
        )  # fmt: skip

    def _known(self, node: Node, known: Mapping[str, Collection[str]]) -> Told | None:
        """What is wrong with the names of a node."""
        if node.table not in known:
            hint = nearest(node.table, known) or f"tables are {' and '.join(known)}"
            return f"unknown table {node.table!r} in {node}", hint
        order = Node(self.visits, self.spec.dataset.visits.order)
        at_visit, unknown = node.table == self.visits, node.column not in known[node.table]
        found = _told(
            (not at_visit and node != Node(node.table, node.column),
             f"{node}: a person has one row of {self.persons}",
             f"write {Node(self.persons, node.column)}"),
            (node == Node(self.persons, self.birth or ""),
             f"{node} is modelled by the age at the first visit", f"write {self.persons}.age"),
            (at_visit and node.column == order.column,
             f"{node}: the order of visits is modelled by the gaps between them",
             f"as a cause write {self.visits}.calendar or {self.visits}.number, as an effect"
             f" {self.visits}.gap"),
            (unknown and node.column == "age", f"{node} needs a date of birth",
             f"write a constraint such as {self.persons}.birth <= {order}"),
        )  # fmt: skip
        return found or (_unknown(node, known[node.table]) if unknown else None)


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


def _targets(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Targets are columns of the next visit."""
    visits = spec.dataset.visits_name
    known = [name for name in spec.columns[visits] if name != spec.dataset.visits.order]
    for i, node in enumerate(map(parse_node, spec.evaluation.targets)):
        where = ("evaluation", "targets", i)
        if node.table != visits or node.lag != -1:
            hint = f"write {visits}[+1].column: a column of the next visit"
            yield SpecMistake(where, f"got {node}", hint)
        elif node.column not in known:
            yield SpecMistake(where, *_unknown(node, known))


def _estimands(spec: LinkedSpec) -> Iterator[SpecMistake]:
    """Treatment and outcome are one step apart, and their columns and levels are declared."""
    persons, visits = spec.dataset.persons_name, spec.dataset.visits_name
    people = [n.column for n in spec.nodes() if n.table == persons and n.column != spec.death]
    known = {persons: people, visits: [n.column for n in spec.nodes() if n.number]}
    for i, estimand in enumerate(spec.estimands):
        where = ("estimands", i)
        if isinstance(estimand, LinkedQuestion):  # read where the rows that it is of are known
            if estimand.clip and not re.match(r"\s*mean\b", estimand.ask):
                yield SpecMistake((*where, "clip"), "only a mean is clipped", "delete it")
            yield from _ends_of(where, estimand.clip)
            continue
        named = [("treatment", estimand.treatment, estimand.reference)]
        named += [("outcome", estimand.outcome, estimand.level)]
        found = list[SpecMistake]()
        for key, text, level in named:
            node = parse_node(text)
            columns = known.get(node.table, [])
            if node.column not in columns:
                message, hint = _unknown(node, columns)
                if node.table not in known:
                    message, hint = f"unknown table {node.table!r}", f"{persons} or {visits}"
                found.append(SpecMistake((*where, key), message, hint))
                continue
            column = spec.columns[node.table].get(node.column)
            labels = None if column is None else [*column.labels]
            if level is not None and level not in (labels or ()):
                hint = nearest(level, labels or ()) or f"one of {', '.join(labels or ['none'])}"
                at = (*where, "reference" if key == "treatment" else "level")
                found.append(SpecMistake(at, f"{node} has no level {level!r}", hint))
        ends = [parse_node(text) for _, text, _ in named]
        places = tuple(f"{PERSON * (n.table != visits)}{n.place}" for n in ends)
        if not found and places not in ONE_STEP:
            message = f"the effect of {named[0][1]} on {named[1][1]} is not one of a single step"
            hint = f"{visits}.x on {visits}.y or {visits}[+1].y; {visits}[1].x on {visits}[2].y"
            found.append(SpecMistake((*where, "outcome"), f"{message} forward", hint))
        if not found and estimand.clip is not None:
            column = spec.columns[ends[1].table].get(ends[1].column)
            if not isinstance(column, Integer | Number):
                message = f"{estimand.outcome} holds no numbers that could end"
                found.append(SpecMistake((*where, "clip"), message, "delete it"))
            found += _ends_of(where, estimand.clip)
        most = spec.dataset.visits.at_most - 1
        if not found and estimand.steps > 1 and (places != ("", "[+1]") or estimand.steps > most):
            message = f"several steps are of {visits}.x on {visits}[+1].y, {most} at most"
            found.append(SpecMistake((*where, "steps"), message, "ask of one step"))
        if spec.graph.mode != "given" and estimand.adjust is None:
            message = f"graph mode {spec.graph.mode} declares no causes to adjust for"
            found.append(SpecMistake(where, message, f"say it, e.g. adjust: [{visits}.x]"))
        yield from found


def _ends_of(where: Loc, clip: Collection[float] | None) -> Iterator[SpecMistake]:
    low, high = clip or (0.0, 1.0)
    return claims(
        (not low < high, (*where, "clip"),
         f"got {low:g} to {high:g}; the first end lies below the second", "turn them round"),
    )  # fmt: skip
