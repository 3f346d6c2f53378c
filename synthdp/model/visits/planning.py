"""What a release of persons with visits looks at: its arrows, given or found, and planned looks.

This module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product

import networkx as nx
import numpy as np

from synthdp.data.visits import OUTER, PERSONS, SECOND, STEPS, VisitFrame
from synthdp.errors import BudgetError
from synthdp.graph.predict import SETTINGS as PREDICT
from synthdp.graph.predict import PairTables, SmoothPair
from synthdp.model.visits.effects import MeasuredEffect, measured_effect
from synthdp.model.visits.laws import SETTINGS
from synthdp.model.visits.questions import Look, MeasuredQuestion, measured_question
from synthdp.privacy.calibration import calibrated, mu_of, secret_holdout
from synthdp.privacy.linked import OnView
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.mechanisms.sums import NUMBER, Arm, Bounded, Product, ProductSums
from synthdp.privacy.plan import ReleasePlan, estimand_purpose
from synthdp.privacy.table import Columns
from synthdp.spec.expressions.parsed import Node
from synthdp.spec.model.linked import LinkedQuestion, LinkedSpec

Arrows = Mapping[str, tuple[str, ...]]
"""Parents of each child, by their names in the views."""

PERSON_LEVELS, PERSON_PAIRS = "persons: levels", "persons: pairs"
VISIT_LEVELS, VISIT_PAIRS = "visits: levels", "visits: pairs"
SECOND_PAIRS, LAST_PAIRS = "second visits: pairs", "last visits: pairs"
END_NUMBERS, END_PAIRS = "ends: numbers", "ends: pairs"
STEP_PAIRS = "steps: pairs"
"""Purposes, as ledgers and certificates name them."""
LEVELS_PART = 0.35
"""Of the squared share of persons, and of visits, that is for single columns."""
VISIT_PARTS = {"given": (0.35, 0.0, 0.3), "predict": (0.3, 0.2, 0.15)}
"""Of that of visits, for pairs of first, second and last visits."""
NUMBERS_PART = 0.7
"""Of that of ends, that is for how many visits there are, and how they end."""
SHARP = 0.25
"""Noise of how many visits there are, in that of other tables."""


@dataclass(frozen=True)
class VisitArrows:
    """What points to what: of persons, of first visits, of later ones, and at how visits end.

    Columns are in an order in which each comes after its parents. `dependent` are the pairs whose
    noisy tables show a dependence, where mode predict chose arrows by them.
    """

    persons: Arrows
    first: Arrows
    steps: Arrows
    end: tuple[str, ...]
    dependent: tuple[Columns, ...] = ()

    def tables(self, frame: VisitFrame) -> dict[str, list[Columns]]:
        """The pairs that are counted, by purpose."""
        people = set(frame.modelled.names)
        shown = {frame.now(c.name): c.name for c in frame.of_visits.columns}
        inside = [
            (parent, child)
            for child, parents in self.steps.items()
            for parent in parents
            if child in shown and (parent in shown or parent in people)
        ]

        def at(place: Callable[[str], str], name: str) -> str:
            return place(shown[name]) if name in shown else name

        first = [(at(frame.first, a), at(frame.first, b)) for a, b in inside]
        first += [(p, child) for child, parents in self.first.items() for p in parents]
        last = [(at(frame.last, a), at(frame.last, b)) for a, b in inside]
        ends = [(at_end(frame, p), frame.now("end")) for p in self.end if p != frame.now("number")]
        return {
            PERSON_PAIRS: [(p, child) for child, parents in self.persons.items() for p in parents],
            VISIT_PAIRS: [*dict.fromkeys(first)],
            LAST_PAIRS: [*dict.fromkeys(last)],
            END_PAIRS: [*dict.fromkeys(ends)],
            STEP_PAIRS: [(p, child) for child, parents in self.steps.items() for p in parents],
        }


def at_end(frame: VisitFrame, name: str) -> str:
    """The name, among last visits, of a column of a visit that may be one's last."""
    table, _, column = name.partition(".")
    return frame.last(column) if table == frame.events else name


def arrows_of(spec: LinkedSpec, frame: VisitFrame) -> VisitArrows:
    """The arrows of a spec, by names of the views. A column's own past is always a parent."""
    visits = [c.name for c in frame.of_visits.columns]
    persons = {name: tuple[str, ...]() for name in frame.modelled.names}
    first = {name: tuple[str, ...]() for name in (frame.order.name, *visits)}
    steps = {name: [frame.before(name)] for name in ("gap", *visits)}
    end: list[str] = []

    def of_step(node: Node) -> str:
        if node.table == frame.people:
            return frame.person(node.column)
        return frame.before(node.column) if node.lag else frame.now(node.column)

    def of_first(node: Node) -> str:
        """The clocks of a first visit are its date, and the person's age then."""
        if node.table == frame.people or node.column == "age":
            return frame.person(node.column)
        return frame.first(frame.order.name if node.column == "calendar" else node.column)

    for child, parents in spec.graph.arrows(spec).items():
        if child.table == frame.people:
            if child.column != spec.death:
                persons[frame.person(child.column)] = tuple(map(of_step, parents))
        elif child.number:
            first[child.column] = tuple(dict.fromkeys(map(of_first, parents)))
        elif child.column == "end":
            end += map(of_step, parents)
        else:
            steps[child.column] += map(of_step, parents)
    return VisitArrows(
        _sorted(persons),
        _sorted({frame.first(c): parents for c, parents in first.items()}),
        _sorted({frame.now(c): tuple(dict.fromkeys(parents)) for c, parents in steps.items()}),
        tuple(dict.fromkeys([*end, frame.now("number")])),
    )


def _sorted(parents: Mapping[str, tuple[str, ...]]) -> Arrows:
    """The same, each child after those of its parents that are children."""
    graph = nx.DiGraph((p, c) for c, own in parents.items() for p in own if p in parents)
    graph.add_nodes_from(parents)
    order = nx.lexicographical_topological_sort(graph, key=[*parents].index)
    return {child: parents[child] for child in order}


# --- plan ---


def plan_linked(spec: LinkedSpec, frame: VisitFrame) -> ReleasePlan:
    """The calibrated plan of everything that `fit` will release.

    Raises:
        BudgetError: the accountant cannot resolve it.
    """
    privacy, shares, views = spec.privacy, spec.privacy.shares, frame.views
    most = frame.most - 1

    def mu(share: float, part: float = 1.0) -> float:
        return mu_of(share * privacy.epsilon, share * privacy.delta) * math.sqrt(part)

    def levels(view: str, chosen: Sequence[Columns], mu: float) -> OnView[NoisyMarginals]:
        domain = views[view]
        sharp = [SHARP if table == numbers else 1.0 for table in chosen]
        wanted = [s * domain.cells(t) ** (-1 / 3) for s, t in zip(sharp, chosen, strict=True)]
        whole = math.sqrt(math.fsum(w**-2 for w in wanted))
        scales = tuple(w * whole for w in wanted)
        return OnView(NoisyMarginals(domain, tuple(chosen), 1 / mu, scales), view, 1)

    def pairs(view: str, mu: float, rows: int = 1) -> OnView[AdaptiveMarginals]:
        return OnView(AdaptiveMarginals(views[view], rows / mu), view, rows)

    numbers = (frame.now("number"),)
    columns = [frame.order.name, *(c.name for c in frame.of_visits.columns)]
    outer = [frame.first(c) for c in columns]
    outer += [frame.last(c) for c in [*columns[1:], "gap"]]
    # How many visits there are is one number a person, and moves every figure of visits: sharp.
    known: list[Columns] = [numbers, (frame.now("number"), frame.now("end"))]
    if frame.till is not None:
        known.append((frame.now("end"), frame.last("till")))
    mode = spec.graph.mode
    first, second, last = VISIT_PARTS.get(mode, VISIT_PARTS["given"])
    looks: dict[str, OnView[NoisyMarginals] | OnView[AdaptiveMarginals]] = {
        PERSON_LEVELS: levels(
            PERSONS, [(n,) for n in frame.modelled.names], mu(shares.persons, LEVELS_PART)
        ),
        PERSON_PAIRS: pairs(PERSONS, mu(shares.persons, 1 - LEVELS_PART)),
        VISIT_LEVELS: levels(OUTER, [(n,) for n in outer], mu(shares.first, LEVELS_PART)),
        VISIT_PAIRS: pairs(OUTER, mu(shares.first, first)),
        LAST_PAIRS: pairs(OUTER, mu(shares.first, last)),
        END_NUMBERS: levels(PERSONS, known, mu(shares.ends, NUMBERS_PART)),
        END_PAIRS: pairs(OUTER, mu(shares.ends, 1 - NUMBERS_PART)),
        STEP_PAIRS: pairs(STEPS, mu(shares.steps), most),
    }
    if mode == "predict":
        looks[SECOND_PAIRS] = pairs(SECOND, mu(shares.first, second))
        planned = looks
    else:
        tables = arrows_of(spec, frame).tables(frame)
        planned = {name: look for name, look in looks.items() if tables.get(name, True)}
    for purpose, _, look in estimand_looks(spec, frame):
        of = mu(shares.estimands, look.part / len(spec.estimands))
        planned[purpose] = pairs(look.view, of, look.rows)
    kind, held_out = spec.dataset.persons.source.kind, spec.evaluation.held_out
    secret = secret_holdout(held_out, privacy.adjacency, kind)
    rough = ReleasePlan(
        privacy.epsilon, privacy.delta, privacy.adjacency, 1, linked=planned, holdout=secret
    )
    if frame.summed:
        rough = replace(rough, moments=person_sums(frame, noise=1 / mu(shares.moments)))
    plan = calibrated(rough)
    check_estimands(plan, spec, frame)
    return plan


def person_sums(frame: VisitFrame, *, noise: float = 1.0) -> ProductSums:
    """The sums over persons of their numbers, and of what those of their visits add up to: with
    squares, and with how many visits it is of, as the variance of a mean over visits goes by
    persons (`privacy.linked.LinkedTable` has the sensitivity). `noise` is in multiples of what one
    person can move.
    """
    people, visits = frame.added
    ends = {frame.person(c.name): (c.lower, c.upper) for c in people}
    if frame.age is not None:
        ends[frame.person("age")] = frame.age.lower, frame.age.upper
    products: list[Product] = [((name, NUMBER),) * k for name in ends for k in (1, 2)]
    for c in visits:
        own, many = frame.now(c.name), frame.many(c.name if c.missing else "number")
        products += [((own, NUMBER),) * k for k in (1, 2)]
        products.append(((own, NUMBER), (many, NUMBER)))
        products += [((many, NUMBER),) * k for k in (1, 2) if c.missing]
    parts = [c.name for c in frame.sums.columns if c.name not in frame.views[PERSONS].names]
    ends |= dict.fromkeys(parts, (-1.0, 1.0))
    numbers = tuple(Bounded(name, *own) for name, own in ends.items())
    ordered = tuple(tuple(sorted(product)) for product in products)
    return ProductSums(frame.sums, Arm(), numbers, ordered, noise, apart=True)


Measured = MeasuredEffect | MeasuredQuestion
"""What an estimand is measured by."""


def measured_estimands(spec: LinkedSpec, frame: VisitFrame) -> tuple[Measured, ...]:
    """What each estimand is measured by.

    Raises:
        OutputError: the graph does not identify an effect, or a question cannot be read.
    """
    return tuple(
        measured_question(spec, frame, estimand)
        if isinstance(estimand, LinkedQuestion)
        else measured_effect(spec, frame, estimand)
        for estimand in spec.estimands
    )


def estimand_looks(spec: LinkedSpec, frame: VisitFrame) -> Iterator[tuple[str, Measured, Look]]:
    """The purpose of each look at rows for an estimand, what it is for, and what is counted."""
    for i, measured in enumerate(measured_estimands(spec, frame)):
        for look in measured.looks:
            yield estimand_purpose(f"{i + 1}{look.name}"), measured, look


def check_estimands(plan: ReleasePlan, spec: LinkedSpec, frame: VisitFrame) -> None:
    """Refuse what has too large a table, or would be drowned by noise (`BudgetError`)."""
    persons = spec.dataset.persons.rows.value * (1 - spec.evaluation.held_out)
    for purpose, asked, look in estimand_looks(spec, frame):
        planned = plan.linked[purpose]
        # As much noise as of one look for all of the estimand.
        sigma = planned.inner.noise_multiplier / math.sqrt(1 if look.name else look.part)
        if isinstance(asked, MeasuredQuestion):
            names, what = asked.query.columns, "a share of a group"
            cells, noise = asked.cells(names), asked.noise(persons, sigma)
        else:
            names, what = (asked.rows.treatment, asked.rows.outcome, *asked.adjusted), "the effect"
            cells, noise = math.prod(asked.sizes(frame)), asked.noise(frame, persons, sigma)
        if cells > SETTINGS.max_cells or noise > SETTINGS.hopeless:
            why = f"noise would move {what} by {noise:.0%} of its span even at best"
            if cells > SETTINGS.max_cells:
                why = f"at most {SETTINGS.max_cells:,} are measured"
            less = "ask of fewer columns, with conditions in place of numbers"
            if isinstance(asked, MeasuredEffect):
                less = "adjust for fewer columns, if the graph allows it"
            raise BudgetError(
                f"{purpose}: a table of {', '.join(names)} has {cells:,} cells, and {why}; nothing"
                " was read or spent",
                hint=f"{less}, declare fewer levels, ask of one visit by its number, or raise"
                " privacy.shares.estimands",
            )


# --- mode predict ---
#
# Mode predict for persons with visits: arrows that predict, and that claim nothing about causes.
#
# What depends on what is asked where it is cheap: of persons, of first visits, and of second visits
# with the one before, of each of which a person has one. Pairs that show a dependence become
# arrows: from persons to visits, from the visit before to the visit, and from earlier to later
# columns, in the spec's order with targets last. Those are then counted over all steps that leave
# the least expected error; the others keep what first and second visits say of them. A column's own
# past is always an arrow: noise alone must not hide that a person is the same as before.
#
# Noisy tables are whole numbers, and what is computed of them is the same to many digits, but not
# to the last, on any machine. So a bundle states what was chosen, and whoever derives it again goes
# by that where it lies nearer to what decides than `NEAR`, and nowhere else.


NEAR = 1e-6
"""Nats of evidence, and parts of a gain, that machines may differ by."""


def visits_in_order(spec: LinkedSpec, frame: VisitFrame) -> list[str]:
    """Columns of a visit, targets last."""
    targets = {t.split(".", 1)[1] for t in spec.evaluation.targets}
    return sorted((c.name for c in frame.of_visits.columns), key=lambda name: name in targets)


def asked(
    spec: LinkedSpec, frame: VisitFrame
) -> tuple[list[Columns], list[Columns], list[Columns]]:
    """The pairs that are counted first: of persons; of persons and first visits; of second visits
    and the ones before.
    """
    people, visits = frame.modelled.names, visits_in_order(spec, frame)
    first = [frame.first(name) for name in (frame.order.name, *visits)]
    before = [frame.before(name) for name in visits]
    now = [frame.now(name) for name in visits]
    gap = frame.now("gap")
    return (
        [*combinations(people, 2)],
        [*product(people, first), *combinations(first, 2)],
        [*product(before, now), *((name, gap) for name in (*people, *before))],
    )


def arrows_to_end(frame: VisitFrame) -> tuple[str, ...]:
    """What the end of visits is asked of."""
    visits = (frame.now(c.name) for c in frame.of_visits.columns)
    clocks = [frame.now("calendar"), frame.now("number")]
    return (*frame.modelled.names, *visits, *clocks)


def chosen_arrows(
    spec: LinkedSpec, frame: VisitFrame, persons: PairTables, first: PairTables, second: PairTables
) -> VisitArrows:
    """The arrows that the first pairs show."""
    people, visits = frame.modelled.names, visits_in_order(spec, frame)

    def causes(known: PairTables, child: str, candidates: Iterable[str]) -> tuple[str, ...]:
        return tuple(p for p in candidates if (pair := pair_of(known, p, child)) and pair.dependent)

    firsts, steps = {}, {}
    begun = [frame.order.name, *visits]
    for place, name in enumerate(begun):
        earlier = (*people, *map(frame.first, begun[:place]))
        firsts[frame.first(name)] = causes(first, frame.first(name), earlier)
    steps[frame.now("gap")] = (
        frame.before("gap"),
        *causes(second, frame.now("gap"), (*people, *map(frame.before, visits))),
    )
    targets = {t.split(".", 1)[1] for t in spec.evaluation.targets}
    for place, name in enumerate(visits):
        at_once = {frame.first(other): frame.now(other) for other in visits}
        shown = [p for p in firsts[frame.first(name)] if p != frame.first(frame.order.name)]
        past = [frame.before(other) for other in visits if other != name]
        if name in targets:  # what little a first look does not show may predict them
            shown = [*dict.fromkeys([*shown, *map(frame.first, visits[:place])])]
        elif len(visits) ** 2 > SETTINGS.all_lags:
            past = [*causes(second, frame.now(name), past)]
        now = [at_once.get(p, p) for p in shown]
        steps[frame.now(name)] = (frame.before(name), *past, *now)
    of_people = {name: causes(persons, name, people[:i]) for i, name in enumerate(people)}
    dependent = tuple(pair for known in (persons, first, second) for pair in known.dependent)
    return VisitArrows(of_people, firsts, steps, arrows_to_end(frame), dependent)


def settled(known: PairTables, stated: Collection[Columns]) -> PairTables:
    """The tables, where evidence that is near to what decides is on the side that is stated."""
    pairs, least = {**known.pairs}, PREDICT.min_evidence
    for pair, table in known.pairs.items():
        if abs(table.evidence - least) <= NEAR:
            pairs[pair] = replace(table, evidence=least + (NEAR if pair in stated else -NEAR))
    return replace(known, pairs=pairs)


def stand_in_pairs(spec: LinkedSpec, frame: VisitFrame) -> dict[str, list[Columns]]:
    """The tables of several columns of each look; of mode predict, which chooses later, some that
    stand for them: a column's own past, and persons.
    """
    paid = {purpose: [look.columns] for purpose, _, look in estimand_looks(spec, frame)}
    if spec.graph.mode != "predict":
        return arrows_of(spec, frame).tables(frame) | paid
    people = frame.modelled.names
    steps = {frame.now(c.name): (frame.before(c.name), *people) for c in frame.of_visits.columns}
    steps[frame.now("gap")] = (frame.before("gap"),)
    tables = VisitArrows({}, {}, steps, arrows_to_end(frame)).tables(frame)
    purposes = (PERSON_PAIRS, VISIT_PAIRS, SECOND_PAIRS)
    return tables | dict(zip(purposes, asked(spec, frame), strict=True)) | paid


def pair_of(known: PairTables, a: str, b: str) -> SmoothPair | None:
    """What is known of two columns."""
    return known.pairs.get((a, b)) or known.pairs.get((b, a))


def worth_counting(
    frame: VisitFrame,
    arrows: VisitArrows,
    first: PairTables,
    second: PairTables,
    *,
    noise: float,
    steps: float,
    stated: Sequence[Columns] | None = None,
) -> list[Columns]:
    """The arrows that are counted over all `steps`: those that leave the least expected error.

    k tables have noise `noise` sqrt(k). A column's own past is always counted. Of two choices that
    gain as much it is the one that is `stated`, if any is.
    """
    own, gains = [], dict[Columns, tuple[SmoothPair, float]]()
    visits = [c.name for c in frame.of_visits.columns]
    begun = {frame.now(name): frame.first(name) for name in visits}
    for child, parents in arrows.steps.items():
        for parent in parents:
            table = (parent, child)
            known, of = second, (parent, child)
            if child in begun and (parent in begun or parent in frame.modelled.names):
                known, of = first, (begun.get(parent, parent), begun[child])
            pair = pair_of(known, *of)
            if pair is None or not pair.dependent or parent == frame.before(child.split(".", 1)[1]):
                own.append(table)
                continue
            sigma = known.sigmas.get(of) or known.sigmas[of[1], of[0]]
            gains[table] = (pair, pair.expected_error(sigma / known.rows))
    best, chosen = 0.0, list[Columns]()
    counts = {*np.unique(np.geomspace(1, max(1, len(gains)), 40).round()).astype(int).tolist()}

    def left_by(count: int) -> dict[Columns, float]:
        sigma = noise * math.sqrt(len(own) + count) / steps
        return {t: error - pair.expected_error(sigma) for t, (pair, error) in gains.items()}

    for count in sorted(counts):
        left = left_by(count)
        largest = sorted(left, key=lambda t: -left[t])[:count]
        if (gain := math.fsum(left[t] for t in largest)) > best:
            best, chosen = gain, largest
    told = [*(stated or ())]
    more = told[len(own) :]
    possible = len({*more}) == len(more) in counts | {0} and gains.keys() >= {*more}
    if possible and told[: len(own)] == own:
        left = left_by(len(more))
        falls = all(left[a] >= left[b] - NEAR * best for a, b in pairwise(more))
        if falls and math.fsum(left[t] for t in more) >= (1 - NEAR) * best - NEAR**2:
            return told
    return own + chosen
