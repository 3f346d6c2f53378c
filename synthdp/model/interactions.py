"""What acts on a target together: which targets and products of signs are screened, and what is
found.

A model of pairs holds nothing that shows in no pair: the parity of two columns, or the product of
two numbers. Where a target may have such causes, a small share of the budget looks for them
(`privacy.mechanisms.interaction_screen`). Which columns may act on it, and how their levels are
split, follows from the spec and from released tables; what is expected of a product, from rows that
the model of pairs draws. What is found becomes arrows of the graph and units of the model
(`model.log_linear`).

This module does not import torch: plans use it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from synthdp.data.column_domain import ColumnDomain
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.data.level_groups import LevelGroups
from synthdp.graph.causal import ActsTogether, CausalGraph, GraphEdge
from synthdp.graph.discovery import Releaser
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.margins import Floats, Probabilities, body_of, pooled
from synthdp.graph.predict import prediction_order
from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.events import UNITS
from synthdp.privacy.mechanisms.interaction_screen import (
    AnySign,
    Family,
    InteractionScreen,
    PackedSigns,
    SameLevel,
    Sign,
    ToldSum,
    noise_for,
)
from synthdp.privacy.plan import INTERACTIONS, MechanismFactory, graph_purpose, needed
from synthdp.privacy.private import Released
from synthdp.spec.model import ReleaseSpec
from synthdp.spec.model.columns import Ranged
from synthdp.spec.model.rules import engine_of, tables_only

Split = npt.NDArray[np.bool_]
"""Which levels of a column have the sign -1, `[levels]`."""


@dataclass(frozen=True)
class InteractionSettings:
    """Tuning of the screen.

    `share`: of the budget of the graph stage; `kept`: most interactions that are told; `min_rows`:
    rows times epsilon below which noise would hide them. `orders`: how many columns act together;
    `max_products`: most products of all orders and targets; `max_splits`: of a column; `max_same`:
    levels of two columns that may be the same; `max_classes`: of a target that is no number;
    `min_class`: share of rows of its classes, and `min_side` of the sides of any split.
    `min_apart`: of all rows by which a sum must differ from what is expected; `chance`: to find
    what is none; `max_said`: of what is unknown of a target, by one column; `most`: of a mean
    product, which no noise takes beyond.
    """

    share: float = 0.08
    kept: int = 10
    min_rows: float = 6000.0
    orders: tuple[int, ...] = (2, 3, 4)
    max_products: int = 60_000
    max_splits: int = 3
    max_same: int = 64
    max_classes: int = 6
    min_class: float = 0.15
    min_side: float = 0.05
    min_apart: float = 0.03
    chance: float = 1e-3
    max_said: float = 0.8
    most: float = 0.995


SETTINGS = InteractionSettings()


# --- the rule, of public facts alone ---


def screened_targets(spec: ReleaseSpec) -> tuple[str, ...]:
    """The targets for which a release looks for interactions; none where it has no such look.

    Noisy tables alone must make the model, and rows lie in memory: an engine has no signs to pack.
    """
    unit, targets = spec.dataset.privacy_unit.max_rows, spec.evaluation.targets
    moved = unit * UNITS[spec.privacy.adjacency]
    if not tables_only(spec) or spec.synthesizer.targets or not targets:
        return ()
    if engine_of(spec.dataset.source, spec.compute) != "memory":
        return ()
    if expected_fit_rows(spec) * spec.privacy.epsilon / moved < SETTINGS.min_rows:
        return ()
    order = prediction_order(spec.graph, tuple(spec.modelled), targets)
    late = [name for name in order[min(SETTINGS.orders) :] if name in targets]
    columns, most = spec.modelled, SETTINGS.max_classes
    split = (n for n in late if isinstance(columns[n], Ranged) or columns[n].level_count <= most)
    return tuple(split)


def with_screen(
    rounds: Mapping[str, MechanismFactory], spec: ReleaseSpec, domain: Domain
) -> Mapping[str, MechanismFactory]:
    """`rounds` of the graph stage, and the screen, where the spec has one, for its share."""
    if not screened_targets(spec):
        return rounds
    screen, rest = (math.sqrt(part) for part in (SETTINGS.share, 1 - SETTINGS.share))

    def less(start: MechanismFactory) -> MechanismFactory:
        return lambda mu: start(mu * rest)

    kept = SETTINGS.kept
    return {name: less(start) for name, start in rounds.items()} | {
        INTERACTIONS: lambda mu: InteractionScreen(domain, kept, noise_for(mu * screen, kept))
    }


# --- splits of levels, and their products ---


def splits(column: ColumnDomain, margin: Probabilities) -> list[Split]:
    """Ways to split the levels of a column in two, by its `margin`; the most even first.

    Of two levels there is one, of three each is held against the others. Of more there are those
    of Walsh functions: halves, the middle against the ends, and every other level, or every other
    quarter where levels are many. A missing value is on the side of +1.
    """
    body = np.arange(column.levels - column.missing)
    mass = margin[body] / max(float(margin[body].sum()), 1e-300)
    middle = np.cumsum(mass) - mass / 2
    if len(body) < 4:
        patterns = [body == level for level in body[1:]] + [body == 0]
    else:
        quarter = np.minimum((4 * middle).astype(int), 3)
        other = body % 2 if len(body) <= 16 else quarter % 2
        patterns = [middle > 0.5, (quarter == 1) | (quarter == 2), other == 1]
    found = dict[bytes, tuple[float, Split]]()
    for pattern in patterns:
        side = float(mass[pattern].sum())
        if SETTINGS.min_side <= side <= 1 - SETTINGS.min_side:
            minus = np.zeros(column.levels, dtype=bool)
            minus[body] = pattern
            found.setdefault((pattern ^ pattern[0]).tobytes(), (abs(1 - 2 * side), minus))
    even = sorted(found.values(), key=lambda one: round(one[0], 1))
    return [minus for _, minus in even[: SETTINGS.max_splits]]


def target_splits(column: ColumnDomain, margin: Probabilities) -> list[Split]:
    """The median of a number; each class against the others that has enough rows, as they have."""
    if column.ranged:
        return splits(column, margin)[:1] if len(body_of(column)) else []
    classes = column.levels - column.missing
    each = [np.arange(column.levels) == level for level in range(1 if classes == 2 else 0, classes)]
    least = SETTINGS.min_class
    return [one for one in each if least <= float(margin[one].sum()) <= 1 - least]


@dataclass(frozen=True)
class Screened:
    """What is screened: signs of the model's levels, and products of them."""

    signs: tuple[AnySign, ...]
    families: tuple[Family, ...]

    def of_levels(self, groups: LevelGroups) -> list[AnySign]:
        """The signs, of the levels that `groups` are of."""
        found = list[AnySign]()
        for sign in self.signs:
            if isinstance(sign, Sign):
                minus = np.array(sign.minus)[groups.group_of(sign.column)]
                sign = Sign(sign.column, tuple(minus.tolist()))
            found.append(sign)
        return found


def screened(
    spec: ReleaseSpec,
    domain: Domain,
    margins: Sequence[Probabilities],
    drawn: Codes | None = None,
) -> Screened:
    """What is screened of the columns of `domain`, by their `margins` `[levels]`, and by rows of
    the model of pairs that were `drawn`, if any.

    A target is multiplied with columns that come before it. All products of two columns come first,
    then of three, then of four. Of these orders some have only the most even split of each column,
    and then only the columns that split most evenly, so that a share of `max_products` holds them.
    Two columns of the same categories may also have the same one. A target that one column nearly
    says has no products: joint effects of other columns on that one would be taken for its own.
    """
    shares = dict(zip(domain.names, margins, strict=True))
    every = {name: splits(domain[name], shares[name]) for name in domain.names}
    evenness = {n: abs(1 - 2 * float(shares[n][every[n][0]].sum())) for n in every if every[n]}
    order = prediction_order(spec.graph, domain.names, spec.evaluation.targets)
    ways = {name: target_splits(domain[name], shares[name]) for name in screened_targets(spec)}
    if drawn is not None:
        ways = {
            name: [way for way in own if not _said(drawn, domain, name, way, order)]
            for name, own in ways.items()
        }
    room = SETTINGS.max_products // max(1, len(SETTINGS.orders) * sum(map(len, ways.values())))
    signs, families = list[AnySign](), list[Family]()
    for target, own in ways.items():
        first = len(signs)
        signs += [_sign(target, way) for way in own]
        before = order[: order.index(target)]
        columns = sorted((n for n in before if every[n]), key=lambda n: round(evenness[n], 1))
        blocks = list[_Block]()
        for rank in range(SETTINGS.max_splits):
            held = [i for i, name in enumerate(columns) if len(every[name]) > rank]
            blocks.append(_Block(len(signs), held))
            signs += [_sign(columns[i], every[columns[i]][rank]) for i in held]
        same = [SameLevel(*pair) for pair in combinations(before, 2) if _alike(domain, pair)][:room]
        for sign in range(first, first + len(own)):
            for size in SETTINGS.orders:
                families += _families(sign, size, blocks, len(columns), room)
            families += [Family((sign,), len(signs), len(signs) + len(same))] if same else []
        signs += same
    return Screened(tuple(signs), tuple(families))


def _said(drawn: Codes, domain: Domain, target: str, minus: Split, order: Sequence[str]) -> bool:
    """Whether one of the columns before a target nearly says on which side it is."""
    side = np.where(minus, -1.0, 1.0)[drawn[:, domain.index(target)]]
    alone = abs(side.mean())
    for name in order[: order.index(target)]:
        known = np.abs(np.bincount(drawn[:, domain.index(name)], weights=side)).sum() / len(drawn)
        if known - alone > SETTINGS.max_said * (1 - alone):
            return True
    return False


def _sign(name: str, minus: Split) -> Sign:
    return Sign(name, tuple(minus.tolist()))


def _alike(domain: Domain, pair: tuple[str, str]) -> bool:
    """Whether two columns have the same categories, so many that splits do not say it all."""
    first, second = (domain[name] for name in pair)
    same = first.labels == second.labels and not (first.ranged or second.ranged)
    return same and 2 < first.levels <= SETTINGS.max_same


class _Block(NamedTuple):
    """Splits of one rank: where they begin among all, and the columns that have them, in order."""

    start: int
    held: list[int]


def _families(
    sign: int, order: int, blocks: Sequence[_Block], columns: int, room: int
) -> Iterator[Family]:
    """Products of a target's sign and those of `order` columns, about `room` of them."""
    ranks = range(len(blocks), 0, -1)
    used = next((r for r in ranks if math.comb(columns, order) * r**order <= room), 1)
    while math.comb(columns, order) > room:
        columns -= 1
    places = [
        [start + held.index(i) for start, held in blocks[:used] if i in held]
        for i in range(columns)
    ]
    for shared in combinations(range(columns), order - 1):
        for factors in product(*(places[i] for i in shared)):
            for start, held in blocks[:used]:
                first, stop = bisect_left(held, shared[-1] + 1), bisect_left(held, columns)
                if first < stop:
                    yield Family((sign, *factors), start + first, start + stop)


# --- what is found ---


@dataclass(frozen=True, eq=False)
class Together:
    """Columns that act together on a target.

    `signs` has 1 or -1 for each level of each of `columns`, `along` for each of the target's; the
    mean product of all over rows is `mean`. Without `signs` the sign of two columns is -1 where
    they have the same level.
    """

    target: str
    columns: tuple[str, ...]
    signs: tuple[Floats, ...]
    along: Floats
    mean: float

    def unit(self, levels: npt.NDArray[np.integer], domain: Domain) -> Floats:
        """The product of the columns' signs in rows of levels `[rows, columns]`, `[rows]`."""
        product = np.ones(len(levels))
        if not self.signs:
            first, second = (levels[:, domain.index(name)] for name in self.columns)
            return np.where(first == second, -1.0, 1.0)
        for name, sign in zip(self.columns, self.signs, strict=True):
            product *= sign[levels[:, domain.index(name)]]
        return product


def find_interactions(
    releaser: Releaser, spec: ReleaseSpec, law: LevelLaw, drawn: Codes
) -> Released[tuple[Together, ...]]:
    """What acts on targets together beyond what the model of pairs explains, which has `drawn` rows
    of the groups of levels of `law`. Nothing does where no target or column can be split.
    """
    groups, purpose = law.groups, graph_purpose(INTERACTIONS)
    planned = needed(releaser.plan.in_graph(INTERACTIONS, InteractionScreen), purpose)
    asked = screened(spec, groups.coarse, law.coarse_margins, drawn)
    rows = max(1.0, float(pooled(law.tables, ()).counts))
    floor = floor_of(rows, len(drawn), sum(f.size for f in asked.families), planned.noise)
    packed = PackedSigns.of(drawn, groups.coarse, asked.signs)
    mechanism = planned.choose(
        asked.of_levels(groups), asked.families, packed, rows=rows, floor=floor
    )

    def found(told: Sequence[ToldSum]) -> tuple[Together, ...]:
        beyond = (one for one in told if abs(one.apart) >= floor)
        return tuple(_together(groups, one, rows) for one in beyond)

    return releaser.release(mechanism, purpose=purpose).map(found)


def floor_of(rows: float, drawn: int, products: int, noise: float) -> float:
    """How far a sum of `rows` rows must be from what `drawn` rows of a model say, to be no chance.

    By chance a sum is off by a deviation of the root of its rows, more for few rows drawn, and by
    its `noise`. So many `products` pass the floor with a probability of `chance` at most, however
    little noise there is. And no model of pairs is quite right: where rows are many, a share of
    them is the floor.

    >>> [round(floor_of(16_000, 32_000, 60_000, noise)) for noise in (1e-9, 64.0)]
    [874, 946]
    """
    deviation = math.sqrt(rows + rows**2 / drawn + noise**2)
    away = -float(ndtri(SETTINGS.chance / 2 / max(1, products)))
    return max(SETTINGS.min_apart * rows, away * deviation)


def _together(groups: LevelGroups, told: ToldSum, rows: float) -> Together:
    target, *others = told.factors
    assert isinstance(target, Sign)
    columns, signs = list[str](), list[Floats]()
    for sign in others:
        if isinstance(sign, Sign):
            columns.append(sign.column)
            signs.append(_of_groups(groups, sign))
        else:
            columns += [sign.first, sign.second]
    mean = min(max(told.noisy / rows, -SETTINGS.most), SETTINGS.most)
    return Together(target.column, tuple(columns), tuple(signs), _of_groups(groups, target), mean)


def _of_groups(groups: LevelGroups, sign: Sign) -> Floats:
    """1 or -1 for each group of levels, which have one sign."""
    firsts = groups.starts.get(sign.column, range(len(sign.minus)))
    return np.where(np.array(sign.minus)[list(firsts)], -1.0, 1.0)


def with_arrows(graph: CausalGraph, found: Sequence[Together]) -> CausalGraph:
    """`graph` with what was `found`, and an arrow from each column to what it acts on."""
    arrows = dict.fromkeys((name, one.target) for one in found for name in one.columns)
    new = [pair for pair in arrows if pair not in graph.directed]
    edges = (GraphEdge(*pair, directed=True, provenance="predictive") for pair in new)
    counts = Counter(
        (tuple(sorted(one.columns, key=graph.nodes.index)), one.target) for one in found
    )
    together = tuple(ActsTogether(*acting, ways=count) for acting, count in counts.items())
    return replace(graph, edges=(*graph.edges, *edges), together=together)
