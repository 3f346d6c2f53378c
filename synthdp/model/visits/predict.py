"""Mode predict for persons with visits: arrows that predict, and that claim nothing about causes.

What depends on what is asked where it is cheap: of persons, of first visits, and of second visits
with the one before, of each of which a person has one. Pairs that show a dependence become arrows:
from persons to visits, from the visit before to the visit, and from earlier to later columns, in
the spec's order with targets last. Those are then counted over all steps that leave the least
expected error; the others keep what first and second visits say of them. A column's own past is
always an arrow: noise alone must not hide that a person is the same as before.

Noisy tables are whole numbers, and what is computed of them is the same to many digits, but not to
the last, on any machine. So a bundle states what was chosen, and whoever derives it again goes by
that where it lies nearer to what decides than `NEAR`, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np

from synthdp.data.visits import VisitFrame
from synthdp.graph.predict import SETTINGS as PREDICT
from synthdp.graph.predict import PairTables, SmoothPair
from synthdp.model.visits.laws import SETTINGS
from synthdp.model.visits.planning import (
    PERSON_PAIRS,
    SECOND_PAIRS,
    VISIT_PAIRS,
    VisitArrows,
    arrows_of,
    estimand_looks,
)
from synthdp.privacy.table import Columns
from synthdp.spec.model.linked import LinkedSpec

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
