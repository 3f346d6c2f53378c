"""Persons with visits, drawn in order from a model: post-processing.

Under an intervention columns are set as they are drawn, and what comes later follows by its own
laws: the sequential g-formula [Robins, "A new approach to causal inference in mortality studies"
(1986)]. It is the law of the world under the intervention where all causes of what is set, that
also act on what follows, are among the columns before it; the graph says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from synthdp.data.visits import (
    CUT,
    CUT_DIED,
    OUTER,
    PERSONS,
    STEPS,
    STOPS,
    Trajectories,
    levels_between,
    numbers_in,
)
from synthdp.model.log_linear import Levels, drawn_levels
from synthdp.model.visits.laws import Floats, Rows, VisitModel, bare, groups_of_views, sizes_of


@dataclass(frozen=True)
class Intervention:
    """Levels that are set: of persons, by their names in the views, and of visits, by column and
    number, 0 for every visit. With `nobody` lost, visits go on until the most that are kept, or the
    end of the study; else they end by their law under the intervention.
    """

    people: Mapping[str, int]
    visits: Mapping[tuple[str, int], int]
    nobody: bool

    def at(self, column: str, number: int) -> int | None:
        """What a column of a visit is set to."""
        return self.visits.get((column, number), self.visits.get((column, 0)))


AS_IT_IS = Intervention({}, {}, nobody=False)


@dataclass
class Generated:
    """Persons as they are drawn, visit after visit.

    `people` are levels of persons; of every visit `owner`, `when` and `visits`, levels by the
    columns' names; `steps` and `may_end` are what the laws of steps, and of ends, were asked about.
    `ends` is how each person's visits end, `ages` those at the first visit. `short` is the largest
    part of persons who should have gone on to some visit, and had no room before the study's end.
    """

    people: Rows
    ends: npt.NDArray[np.int64]
    ages: Floats | None
    owner: list[Levels] = field(default_factory=list)
    when: list[Floats] = field(default_factory=list)
    visits: list[Rows] = field(default_factory=list)
    asked_steps: list[Rows] = field(default_factory=list)
    asked_ends: list[Rows] = field(default_factory=list)
    shifts: Floats = field(default_factory=lambda: np.zeros(0))
    short: float = 0.0

    @property
    def steps(self) -> Rows:
        """Levels of all steps."""
        return _together(self.asked_steps)

    @property
    def may_end(self) -> Rows:
        """Levels of all visits after which there might have been another one."""
        return _together(self.asked_ends)


def _together(parts: list[Rows]) -> Rows:
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def generate(
    model: VisitModel,
    persons: int,
    *,
    rng: np.random.Generator,
    calibrate: bool = False,
    do: Intervention = AS_IT_IS,
) -> Generated:
    """`persons` persons with their visits. With `calibrate` the ends after each number of visits
    are shifted until there are as many as the model says; without it the model's shifts are used,
    also where something is set.
    """
    frame, drawn = model.frame, _Drawing(model, persons, rng, do)
    reached = 1 - np.concatenate([[0.0], np.cumsum(model.numbers)[:-1]])
    shifts = np.zeros(frame.most) if calibrate else model.shifts
    alive = np.flatnonzero(rng.random(persons) < reached[1])
    drawn.first(alive)
    for number in range(1, frame.most):
        wanted = reached[number + 1] * persons / max(1, len(alive)) if calibrate else None
        alive, shifts[number] = drawn.ends(alive, number, shifts[number], wanted)
        if not len(alive):
            break
        drawn.step(alive, number + 1)
    else:
        drawn.cut(alive)
    drawn.out.shifts = shifts
    return drawn.out


class _Drawing:
    """Persons on their way through their visits; the state is that of each one's last visit."""

    def __init__(
        self,
        model: VisitModel,
        persons: int,
        rng: np.random.Generator,
        do: Intervention = AS_IT_IS,
    ) -> None:
        self.model, self.frame, self.rng, self.persons = model, model.frame, rng, persons
        self.do = do
        self.groups = groups_of_views(model.frame, model.starts)
        self.sizes = sizes_of(self.groups)
        self.columns = [c.name for c in model.frame.of_visits.columns]
        frame, rows = self.frame, Rows()
        set_first = {frame.first(c): do.at(c, 1) for c in self.columns} | {**do.people}
        for child in model.first:
            law = model.laws[child]
            rows[child] = drawn_levels(law.probabilities(self.sizes, rows, persons), rng)
            if (level := set_first.get(child)) is not None:
                view = PERSONS if child in do.people else OUTER
                rows[child][:] = self.groups[view].group_of(child)[level]
        self.people = {name: rows[name] for name in frame.modelled.names}
        self.state = {name: rows[frame.first(name)] for name in self.columns}
        self.fine = {c: self._fine(OUTER, frame.first(c), self.state[c]) for c in self.columns}
        for c in self.columns:
            if (level := do.at(c, 1)) is not None:
                self.fine[c][:] = level
        self.gap = np.full(persons, sizes_of(self.groups)[frame.before("gap")] - 1)  # none
        begun = self._fine(
            OUTER, frame.first(frame.order.name), rows[frame.first(frame.order.name)]
        )
        self.when = np.minimum(numbers_in(frame.order, begun, rng), frame.until)
        fine = {n: self._fine(PERSONS, n, levels) for n, levels in self.people.items()}
        fine |= {name: np.full(persons, level) for name, level in do.people.items()}
        self.ages = None
        if frame.age is not None:
            self.ages = numbers_in(frame.age, fine[frame.person("age")], rng)
        self.begun = self.when.copy()
        stops = frame.ends.index(STOPS)
        self.out = Generated(fine, np.full(persons, stops), self.ages)

    def _fine(self, view: str, name: str, groups: Levels) -> Levels:
        """Levels inside groups, by the law of the column."""
        own = self.groups[view]
        if name not in own.starts:
            return groups
        law = self.model.inside[bare(self.frame, name)]
        return own.inside(name, groups, law[: own.domain[name].levels], self.rng)

    def _clocks(self, alive: Levels) -> Rows:
        frame, found = self.frame, Rows()
        found[frame.now("calendar")] = levels_between(frame.calendar, self.when[alive])
        if frame.age is not None and self.ages is not None:
            age = self.ages[alive] + self.when[alive] - self.begun[alive]
            levels = levels_between(frame.age, age)
            name = frame.now("age")
            found[name] = self.groups[STEPS].group_of(name)[levels]
        return found

    def _known(self, alive: Levels, number: int) -> Rows:
        rows = {name: levels[alive] for name, levels in self.people.items()}
        rows[self.frame.now("number")] = np.full(len(alive), number)
        return rows

    def _keep(self, alive: Levels) -> None:
        self.out.owner.append(alive)
        self.out.when.append(self.when[alive])
        self.out.visits.append({name: levels[alive] for name, levels in self.fine.items()})

    def first(self, alive: Levels) -> None:
        """The first visits."""
        self._keep(alive)

    def ends(
        self, alive: Levels, number: int, shift: float, wanted: float | None
    ) -> tuple[Levels, float]:
        """Who goes on after visit `number`, and the shift of the ends' logits that was used: that
        with which the part `wanted` goes on, if there is one.
        """
        frame, law = self.frame, self.model.laws[self.frame.now("end")]
        rows = self._known(alive, number) | self._clocks(alive)
        rows |= {frame.now(name): levels[alive] for name, levels in self.state.items()}
        self.out.asked_ends.append(rows)
        logits = law.logits(self.sizes, rows, len(alive))
        room = self.when[alive] + frame.step <= frame.until
        if wanted is not None:
            short = (wanted - float(room.mean())) * len(alive) / self.persons
            self.out.short = max(self.out.short, short)
            shift = end_shift(logits, room, min(max(wanted, 0.0), 1.0))
        logits[:, 1:] += shift
        if self.do.nobody:
            logits[:, 1:] = -np.inf
            logits[~room, 1] = 0.0  # stops, with the study
        logits[~room, 0] = -np.inf
        end = drawn_levels(softmax(logits, axis=1), self.rng)
        kinds = np.array([i for i, e in enumerate(frame.ends) if e not in (CUT, CUT_DIED)])
        self.out.ends[alive[end > 0]] = kinds[end[end > 0] - 1]
        return alive[end == 0], shift

    def step(self, alive: Levels, number: int) -> None:
        """The next visit: the gap first, then its columns."""
        frame, model, rng = self.frame, self.model, self.rng
        rows = self._known(alive, number)
        rows |= {frame.before(name): levels[alive] for name, levels in self.state.items()}
        rows[frame.before("gap")] = self.gap[alive]
        rows[frame.before("calendar")] = levels_between(frame.calendar, self.when[alive])
        gap = frame.now("gap")
        odds = model.laws[gap].probabilities(self.sizes, rows, len(alive))
        room = frame.until - self.when[alive]
        coarse = self.groups[STEPS].coarse[gap]
        odds = odds * (np.array(coarse.edges) <= room[:, None])
        rows[gap] = drawn_levels(odds, rng)
        wait = np.minimum(numbers_in(frame.gap, self._fine(STEPS, gap, rows[gap]), rng), room)
        self.when[alive] += wait
        rows |= self._clocks(alive)
        for child in model.steps:
            if child == gap:
                continue
            name = bare(frame, child)
            odds = model.laws[child].probabilities(self.sizes, rows, len(alive))
            if name in (*frame.rises, *frame.falls):
                odds = odds * self._allowed(name, self.state[name][alive])
            rows[child] = drawn_levels(odds, rng)
            level = self.do.at(name, number)
            if level is not None:
                rows[child][:] = self.groups[STEPS].group_of(child)[level]
            self._move(name, alive, rows[child], level)
        self.out.asked_steps.append(rows)
        self.gap[alive] = rows[gap]
        self._keep(alive)

    def _allowed(self, name: str, before: Levels) -> npt.NDArray[np.bool_]:
        """Which levels may follow, `[rows, levels]`; what is missing may, and after it all may."""
        column = self.groups[STEPS].coarse[self.frame.now(name)]
        levels = np.arange(column.levels)
        up = name in self.frame.rises
        allowed = levels >= before[:, None] if up else levels <= before[:, None]
        if column.missing:
            allowed[:, -1], allowed[before == column.levels - 1] = True, True
        return allowed

    def _move(self, name: str, alive: Levels, levels: Levels, fixed: int | None) -> None:
        """Go on to levels of the next visit, which may be `fixed`; inside one group a rule holds,
        too.
        """
        fine = self._fine(STEPS, self.frame.now(name), levels)
        same, before = levels == self.state[name][alive], self.fine[name][alive]
        if name in self.frame.rises:
            fine = np.where(same, np.maximum(fine, before), fine)
        elif name in self.frame.falls:
            fine = np.where(same, np.minimum(fine, before), fine)
        if fixed is not None:
            fine = np.full(len(alive), fixed)
        self.state[name][alive], self.fine[name][alive] = levels, fine

    def cut(self, alive: Levels) -> None:
        """Those who reached the most visits that are kept."""
        frame, died = self.frame, self.rng.random(len(alive)) < self.model.died_later
        died &= not self.do.nobody
        later = frame.ends.index(CUT_DIED) if CUT_DIED in frame.ends else 0
        self.out.ends[alive] = np.where(died, later, frame.ends.index(CUT))


def end_shift(logits: Floats, room: npt.NDArray[np.bool_], wanted: float) -> float:
    """What to add to the logits of ends so that the part `wanted` of the rows goes on."""
    high = max(40.0, 2 * float(np.abs(logits).max()))
    low = -high
    for _ in range(40):
        middle = (low + high) / 2
        odds = softmax(logits + np.r_[0.0, np.full(logits.shape[1] - 1, middle)], axis=1)[:, 0]
        low, high = (middle, high) if (odds * room).mean() > wanted else (low, middle)
    return (low + high) / 2


def trajectories(
    model: VisitModel, persons: int, *, rng: np.random.Generator, do: Intervention = AS_IT_IS
) -> Trajectories:
    """Drawn persons as levels and dates."""
    frame, drawn = model.frame, generate(model, persons, rng=rng, do=do)
    owner, when = np.concatenate(drawn.owner), np.concatenate(drawn.when)
    visits = np.column_stack(
        [np.concatenate([v[c.name] for v in drawn.visits]) for c in frame.of_visits.columns]
    )
    order = np.lexsort((when, owner))
    till = None
    if frame.till is not None and model.till is not None:
        till = np.full(persons, frame.till.levels - 1)
        for end, law in model.till.items():
            own = np.flatnonzero(drawn.ends == frame.ends.index(end))
            till[own] = rng.choice(len(law), len(own), p=law)
    people = np.column_stack([drawn.people[frame.person(c.name)] for c in frame.columns.columns])
    return Trajectories(
        people.astype(np.uint16),
        visits[order].astype(np.uint16),
        owner[order],
        when[order],
        drawn.ends,
        drawn.ages,
        till,
    )
