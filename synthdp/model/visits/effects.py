"""Effects of one step: which rows show them, and what the graph over time asks to adjust for.

A treatment at a visit acts on an outcome at the same visit or at the next one. The arrows hold at
every visit, so that two slices of the unrolled graph tell what confounds them: the first slice and
the persons' columns hang together in any way (`PAST`, a common cause of all of them, stands for
the visits before and for who is still there), and the second follows by the arrows. Visits that are
pooled are then alike given what is adjusted for, whatever their number: of T and Y, Z parts one
from what was before. If that is Y, given T, E(Y | t, z) is the same at every visit; if T, visits of
every number are mixed alike in both arms.

`Z` is valid for T and Y [Pearl 2009, ch. 3 and 11; Bareinboim, Tian, Pearl, AAAI 2014] if

1. no column of it follows from T on the way to Y;
2. it d-separates T and Y without the first arrows of causal paths, among persons who are there:
   the end of visits before T is conditioned on;
3. and with T it d-separates Y from whether there is a next visit, where Y is at that one. Then
   those who went on tell what Y would be if nobody were lost in between.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from synthdp.data.level_groups import Starts
from synthdp.data.visits import OUTER, PERSONS, SECOND, STEPS, VisitFrame
from synthdp.errors import OutputError
from synthdp.graph.causal import NO_CAUSES
from synthdp.model.visits.laws import SETTINGS
from synthdp.model.visits.questions import Look, clipped_groups
from synthdp.spec.expressions.parsed import Node, parse_node
from synthdp.spec.load.wording import nearest
from synthdp.spec.model.linked import PERSON, LinkedEffect, LinkedSpec

Place = tuple[str, int | None]
"""A column's name, and its slice; None of persons."""
PAST: Place = ("past", None)
CASES: Mapping[tuple[str, str], tuple[str, int | None, int | None, bool, Mapping[str, str]]] = {
    ("", ""): (STEPS, 1, 1, False, {"": "", "[-1]": "[-1]"}),
    ("", "[+1]"): (STEPS, 0, 1, False, {"": "[-1]", "[+1]": ""}),
    ("[1]", "[1]"): (OUTER, 0, 0, True, {"[1]": "[1]"}),
    ("[1]", "[2]"): (SECOND, 0, 1, True, {"[1]": "[-1]", "[2]": ""}),
    ("[2]", "[2]"): (SECOND, 1, 1, True, {"[1]": "[-1]", "[2]": ""}),
    (PERSON, PERSON): (PERSONS, None, None, True, {}),
    (PERSON, "[1]"): (OUTER, None, 0, True, {"[1]": "[1]"}),
    (PERSON, "[2]"): (SECOND, None, 1, True, {"[2]": ""}),
    (PERSON, ""): (STEPS, None, 1, True, {"": ""}),
}
"""By where treatment and outcome are: the view, their slices, whether slice 0 is the first visit,
and where the view has the columns of a place."""
ONE_STEP = (
    "one step is answered: the same visit ({v}.x on {v}.y) or the next one ({v}.x on {v}[+1].y); by"
    " number, {v}[1].x on {v}[1].y or {v}[2].y; and a column of persons on any of them"
)


@dataclass(frozen=True)
class EffectRows:
    """The rows that show an effect: a view, the most of a person in it, and what a row is.

    `names` has the names in the view by those that an effect is asked for by, and `at` their places
    in the graph. `slices` are those of treatment and outcome, None of persons. `first` says that
    slice 0 is the first visit.
    """

    treatment: str
    outcome: str
    view: str
    most: int
    law: str
    names: Mapping[str, str]
    at: Mapping[str, Place]
    slices: tuple[int | None, int | None]
    first: bool


def effect_rows(frame: VisitFrame, treatment: str, outcome: str) -> EffectRows:
    """The rows that show the effect of one column, as arrows name it, on another.

    Raises:
        OutputError: it is not of one step, or names no column of the tables.
    """
    t_name, y_name = map(plain_name, (treatment, outcome))
    nodes = parse_node(treatment), parse_node(outcome)
    places = [n.place if n.table == frame.events else f"{PERSON}{n.place}" for n in nodes]
    if (places[0], places[1]) not in CASES:
        raise OutputError(
            f"the effect of {treatment} on {outcome} is not one of a single step forward",
            hint=ONE_STEP.format(v=frame.events),
        )
    view, t, y, first, shown = CASES[places[0], places[1]]
    names = {name: name for name in frame.modelled.names}
    at: dict[str, Place] = {name: (name, None) for name in names}
    slices = {"": 0 if "[+1]" in shown else 1, "[+1]": 1, "[-1]": 0, "[1]": 0, "[2]": 1}
    for place, seen in shown.items():
        for column in frame.of_visits.columns:
            name = f"{frame.events}{place}.{column.name}"
            names[name] = f"{frame.events}{seen}.{column.name}"
            at[name] = (column.name, slices[place])
    for name in (t_name, y_name):
        if name not in names:
            hint = nearest(name, names) or f"of {', '.join(names)}"
            raise OutputError(f"no effect of or on {name} can be asked here", hint=hint)
    if t_name == y_name:
        raise OutputError("treatment and outcome are one column", hint="name two")
    most = frame.most - 1 if view == STEPS else 1
    laws = {
        PERSONS: "persons",
        OUTER: "first visits",
        SECOND: "second visits, one of each person who has two",
        STEPS: f"visits after the first, {most} of a person at most",
    }
    if "[+1]" in shown:
        laws[STEPS] = f"visits that another one follows, {most} of a person at most"
    return EffectRows(t_name, y_name, view, most, laws[view], names, at, (t, y), first)


def plain_name(text: str) -> str:
    """How `EffectRows.names` has what an arrow may call it: without backticks.

    Raises:
        OutputError: the text names no column of a table.
    """
    try:
        node = parse_node(text)
    except ValueError as error:
        raise OutputError(str(error)) from None
    return f"{node.table}{node.place}.{node.column}"


# --- the unrolled graph ---


def unrolled(
    spec: LinkedSpec, frame: VisitFrame, last: int, *, first: bool, own_past: bool
) -> nx.DiGraph:
    """The graph of persons and of slices 0 to `last`; each has a node `stays`, whether a visit
    follows. Without `first`, slice 0 is any visit. `own_past`: each column's own past is a cause of
    it, whether or not the spec has the arrow.
    """
    dag, events = nx.DiGraph(), frame.events
    visits = [c.name for c in frame.of_visits.columns]
    people = [(name, None) for name in frame.modelled.names]
    for name in people if not first else ():
        dag.add_edge(PAST, name)
    dag.add_nodes_from(people)
    for s in range(last + 1):
        started = [*visits, "gap", "calendar", "age"]
        if s == 0 and not first:
            dag.add_edges_from((PAST, (name, 0)) for name in started)
        elif s:
            lasting = started if own_past else ("calendar", "age")
            dag.add_edges_from(((name, s - 1), (name, s)) for name in lasting)
            dag.add_edges_from((("gap", s), (clock, s)) for clock in ("calendar", "age"))
            dag.add_edge(("gap", s), ("stays", s - 1))
        elif frame.age is not None:
            dag.add_edge((frame.person("age"), None), ("age", 0))
        dag.add_edges_from([(("end", s), ("stays", s)), (("calendar", s), ("stays", s))])
    for effect, causes in spec.graph.arrows(spec).items():
        for s in range(last + 1):
            at_first = s == 0 and first
            if effect.table == events and (effect.number == 1) != (
                at_first and effect.column not in ("end", "gap")
            ):
                continue
            child = (effect.column, s) if effect.table == events else (str(effect), None)
            if effect.table != events and (s or (frame.death and effect.column == spec.death)):
                continue
            if child == ("gap", 0):
                continue
            for cause in causes:
                parent = _cause(frame, cause, s, first=first)
                if parent is not None:
                    dag.add_edge(parent, child)
    return dag


def _cause(frame: VisitFrame, cause: Node, s: int, *, first: bool) -> Place | None:
    """The node of a cause of something in slice `s`; None of what is a constant there, or not."""
    if cause.table == frame.people:
        return (frame.person(cause.column), None)
    if cause.column == "number":
        return None if first else PAST
    if s - cause.lag < 0:
        return PAST if not first else None
    return (cause.column, s - cause.lag)


@dataclass(frozen=True)
class Window:
    """Treatment and outcome in an unrolled graph. `gone` are the ends of visits before the
    treatment, and `lost` those between it and the outcome.
    """

    dag: nx.DiGraph
    t: Place
    y: Place
    gone: frozenset[Place]
    lost: frozenset[Place]

    @cached_property
    def forbidden(self) -> frozenset[Place]:
        """What follows from the treatment on its way to the outcome, and both."""
        after = {n for name in self.causal for n in nx.descendants(self.dag, name)}
        return frozenset(self.causal | after | {self.t, self.y})

    @cached_property
    def causal(self) -> frozenset[Place]:
        """The outcome and what lies between; empty without a causal path."""
        before = nx.ancestors(self.dag, self.y) | {self.y}
        return frozenset(nx.descendants(self.dag, self.t) & before)

    @cached_property
    def backdoor(self) -> nx.DiGraph:
        """The graph without the first arrows of causal paths."""
        graph = self.dag.copy()
        graph.remove_edges_from([(self.t, name) for name in self.causal])
        return graph

    def valid(self, z: Collection[Place]) -> bool:
        """Whether adjusting for `z` gives the effect."""
        known = {*z} | self.gone
        if known & self.forbidden:
            return False
        if not nx.is_d_separator(self.backdoor, {self.t}, {self.y}, known):
            return False
        return not self.lost or bool(
            nx.is_d_separator(self.dag, {self.y}, set(self.lost), known | {self.t})
        )

    def apart(self, z: Collection[Place]) -> bool:
        """Whether the outcome, given treatment and `z`, hangs together with no earlier visit."""
        known = {*z, self.t} | self.gone | self.lost
        at = self.y[1] or 0
        earlier = {n for n in self.dag if n[1] is None or n[1] < at} - known - {self.y}
        return not earlier or bool(nx.is_d_separator(self.dag, {self.y}, earlier, known))


def windows(
    spec: LinkedSpec, frame: VisitFrame, rows: EffectRows, *, own_past: bool = True
) -> list[Window]:
    """The graphs in which an effect must be identified: one, or those of several visits, of a
    treatment of persons that acts at any of them.
    """
    (t, y), found = rows.slices, []
    several = t is None and rows.view == STEPS
    for at in range(1, min(frame.most, 3 + len(frame.of_visits))) if several else [y]:
        dag = unrolled(spec, frame, at or 0, first=rows.first, own_past=own_past)
        ends = {("stays", s) for s in range(at or 0)}
        gone = {e for e in ends if t is not None and e[1] < t}
        outcome = (rows.at[rows.outcome][0], at)
        sides = frozenset[Place](gone), frozenset[Place](ends - gone)
        found.append(Window(dag, rows.at[rows.treatment], outcome, *sides))
    return found


def refuse_none(rows: EffectRows, every: Collection[Window]) -> None:
    """Refuse an effect where no arrows lead from the treatment to the outcome.

    Raises:
        OutputError: there are none.
    """
    if not any(w.causal for w in every):
        raise OutputError(
            f"{rows.treatment} has no effect on {rows.outcome} in this graph: no arrows lead there",
            hint=f"`synthdp answer` says how {rows.outcome} differs by {rows.treatment}",
        )


def visit_adjustment(spec: LinkedSpec, frame: VisitFrame, rows: EffectRows) -> tuple[str, ...]:
    """Columns whose adjustment gives the effect by the graph, with few strata.

    Raises:
        OutputError: the graph has no effect, or it is not identified.
    """
    if spec.graph.mode != "given":
        raise OutputError(NO_CAUSES, hint="say by adjust which columns are all that confounds them")
    every, domain = windows(spec, frame, rows), frame.views[rows.view]
    refuse_none(rows, every)
    free = [n for n in rows.names if not any(rows.at[n] in w.forbidden for w in every)]
    levels = {n: domain[rows.names[n]].levels for n in free}
    last, offers = every[-1], list[tuple[str, ...]]()
    near = nx.ancestors(last.dag, last.y), {*last.dag.predecessors(last.t)}
    for start in (free, *([n for n in free if rows.at[n] in some] for some in near)):
        kept = tuple(start)
        if not _valid(rows, every, kept):
            continue
        for name in sorted(free, key=lambda n: -levels[n]):
            less = tuple(n for n in kept if n != name)
            kept = less if _valid(rows, every, less) else kept
        offers.append(kept)
    if not offers:
        raise OutputError(
            f"the effect of {rows.treatment} on {rows.outcome} is not identified among {rows.law}:"
            f" adjusting for {', '.join(free) or 'nothing'} leaves it confounded, or leaves who is"
            " lost before the outcome to depend on it",
            hint="a column's own past counts as a cause; where adjust is given, only declared"
            " arrows do",
        )
    return min(offers, key=lambda names: math.prod(levels[n] for n in names))


def shown_valid(
    spec: LinkedSpec, frame: VisitFrame, rows: EffectRows, names: Collection[str]
) -> bool:
    """Whether the graph shows that adjusting for these columns gives the effect."""
    if spec.graph.mode != "given":
        return False
    every = windows(spec, frame, rows)
    return any(w.causal for w in every) and _valid(rows, every, names)


def _valid(rows: EffectRows, every: Collection[Window], names: Collection[str]) -> bool:
    z = {rows.at[n] for n in names}
    return all(w.valid(z) for w in every)


def checked_adjustment(
    spec: LinkedSpec, frame: VisitFrame, rows: EffectRows, names: Collection[str]
) -> tuple[str, ...]:
    """Columns that somebody says are all that confounds, if the declared arrows allow it.

    Raises:
        OutputError: a name is unknown, or adjusting for them is known not to give the effect.
    """
    given = list(map(plain_name, names))
    strange = [n for n in given if n not in rows.names or n in (rows.treatment, rows.outcome)]
    if strange or len({*given}) < len(given):
        known = ", ".join(n for n in rows.names if n not in (rows.treatment, rows.outcome))
        what = f"{strange[0]} is no column to adjust for here" if strange else "one is named twice"
        raise OutputError(what, hint=f"columns of the same rows are {known}")
    if spec.graph.mode == "given":
        every = windows(spec, frame, rows, own_past=False)
        refuse_none(rows, every)
        if not _valid(rows, every, given):
            raise OutputError(
                f"adjusting for {', '.join(given) or 'nothing'} does not give the effect of"
                f" {rows.treatment} on {rows.outcome} in this graph",
                hint="leave adjust out, and columns are chosen that do, if there are any",
            )
    return tuple(given)


def apart(
    spec: LinkedSpec,
    frame: VisitFrame,
    rows: EffectRows,
    names: Collection[str],
    *,
    own_past: bool,
) -> bool:
    """Whether the outcomes of one person's rows, given treatments and `names`, hang together only
    by these: then their errors add up as those of different persons.
    """
    if rows.most == 1:
        return True
    z = {rows.at[n] for n in names}
    every = windows(spec, frame, rows, own_past=own_past) if spec.graph.mode == "given" else []
    return bool(every) and all(w.apart(z) for w in every)


# --- what an estimand measures ---


@dataclass(frozen=True)
class MeasuredEffect:
    """What an effect is measured by: a table of treatment, outcome and what is adjusted for.

    `adjusted` are names as they are asked for, and `given` says that the spec names them. `starts`
    are the groups of an outcome that is clipped, by its name in the view.
    """

    rows: EffectRows
    adjusted: tuple[str, ...]
    given: bool
    starts: Mapping[str, Starts]
    steps: int

    @property
    def looks(self) -> tuple[Look, ...]:
        """The table that is counted, the only one."""
        own = (self.rows.treatment, self.rows.outcome, *self.adjusted)
        columns = tuple(self.rows.names[n] for n in own)
        most = (SETTINGS.groups, SETTINGS.groups, *[SETTINGS.strata] * len(self.adjusted))
        groups = {n: m for n, m in zip(columns, most, strict=True) if n not in self.starts}
        view, rows = self.rows.view, self.rows.most
        return (Look(view, rows, columns, starts=self.starts, groups=groups),)

    def sizes(self, frame: VisitFrame) -> list[int]:
        """About how many levels of each column are counted: those of groups, of a fine one."""
        domain, found, look = frame.views[self.rows.view], [], self.looks[0]
        for name in look.columns:
            column, groups = domain[name], look.groups.get(name, 0)
            extra = column.levels - len(column.edges)
            most = len(look.starts.get(name, ())) or groups + extra
            found.append(min(column.levels, most) if column.ranged else column.levels)
        return found

    def noise(self, frame: VisitFrame, persons: float, sigma: float) -> float:
        """The least deviation of the noise in the effect on a share that can be hoped for: where
        each person has the most visits, and arms and strata are even [derived in the docs]. Of a
        mean, in spans of its numbers.
        """
        arms, outcome, *strata = self.sizes(frame)
        levels = 1.0 if outcome <= 2 else outcome / 6
        rows = persons * self.rows.most * 2 / arms
        return 2 * sigma * math.sqrt(math.prod(strata) * levels) / rows


def measured_effect(spec: LinkedSpec, frame: VisitFrame, estimand: LinkedEffect) -> MeasuredEffect:
    """What an estimand is measured by.

    Raises:
        OutputError: the graph does not identify it.
    """
    rows, given = effect_rows(frame, estimand.treatment, estimand.outcome), estimand.adjust
    starts = dict[str, Starts]()
    if estimand.clip is not None:
        own = rows.names[rows.outcome]
        starts[own] = clipped_groups(frame.views[rows.view][own], estimand.clip)
    if estimand.steps > 1:
        z = state(spec, frame, rows, given)
    elif given is None:
        z = visit_adjustment(spec, frame, rows)
    else:
        z = checked_adjustment(spec, frame, rows, given)
    return MeasuredEffect(rows, z, given is not None, starts, estimand.steps)


def state(
    spec: LinkedSpec, frame: VisitFrame, rows: EffectRows, given: Collection[str] | None
) -> tuple[str, ...]:
    """What a regime over several visits is stratified by: the outcome at the visit where a step
    begins, and persons' columns.

    Of arrows that hold at every visit, [derived here]: let the graph part the outcome Y of the next
    visit, given treatment T and state Z = (Y of this visit, V of the person), from all that was
    before, and from whether there is a next visit; and let T of a visit not act on Y of the same.
    To set T at visits to come changes no law of Y given all before it. So under any regime Y is a
    Markov chain given V, whose steps have the law of Y given T and Z that one step shows
    (sequential g-formula [Robins 1986]).

    Raises:
        OutputError: the graph does not say so, or `given` columns are not such.
    """
    events, column = frame.events, rows.at[rows.outcome][0]
    if (domain := frame.of_visits[column]).ranged or domain.missing:
        raise OutputError(
            f"several steps are of categories that are never missing, and {events}.{column} may be"
            f" {'any number' if domain.ranged else 'missing'}",
            hint="ask of one step, or declare levels of it",
        )
    own, people = f"{events}.{column}", [n for n in rows.names if rows.at[n][1] is None]
    if spec.graph.mode != "given":
        raise OutputError(NO_CAUSES, hint="several steps follow from declared arrows alone")
    every = windows(spec, frame, rows, own_past=given is None)
    refuse_none(rows, every)

    def follows(z: Collection[str]) -> bool:
        of = {rows.at[n] for n in z}
        return all(
            w.valid(of) and w.apart(of) and not nx.has_path(w.dag, (w.t[0], w.y[1]), w.y)
            for w in every
        )

    named = None if given is None else {*map(plain_name, given)}
    kept = [own, *people] if named is None else [own, *(n for n in people if n in named)]
    if not follows(kept) or (named is not None and named != {*kept}):
        raise OutputError(
            f"several steps are not told by one: {rows.outcome} does not follow from {own},"
            f" {rows.treatment} and columns of {frame.people} alone in this graph",
            hint=f"ask of one step; of several where all other arrows to {own}, and to what lies"
            f" between, come from these, and {rows.treatment} has none to {own}",
        )
    for name in people if named is None else ():
        less = [n for n in kept if n != name]
        kept = less if follows(less) else kept
    return tuple(kept)
