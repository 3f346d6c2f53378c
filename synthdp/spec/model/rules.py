"""Public rules for the model's settings that a spec leaves out.

They are functions of what is declared, and of nothing else.

They give what was found to do well on public tables of 1,000 to 49,000 rows and 10 to 948 columns,
those of `specs/`, most of which leave these settings out. Nothing is tuned on the rows of a
release: that would be one more use of them, and would have to be paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeGuard

from synthdp.spec.addresses import is_pattern, is_url
from synthdp.spec.model import Column, Compute, ParquetSource, Ranged, ReleaseSpec, Shares, Source
from synthdp.spec.model.columns import Datetime, Integer, Mapped, Number
from synthdp.spec.model.dataset import EngineName
from synthdp.spec.model.linked import LinkedShares, LinkedSpec

# Shares are in epsilon. Chosen on five public tables, of .2 to .5: one-way tables of fine bins
# alone say how a column is spread inside the groups of levels on which pairs are counted.
PREDICT_SHARES = Shares(measure=0.2, graph=0.8, train=0.0)
FINE_SHARES = Shares(measure=0.4, graph=0.6, train=0.0)


@dataclass(frozen=True)
class LeftOut:
    """What a spec without shares gives to `estimands` and to `moments`: parts of the budget.

    All else gets the rest: noises add in squares, so that moments make that of others 1% larger.
    They are measured where noise moves a mean by at most `moved` half ranges, at about twice its
    deviation. `heaps` are looked for where one of a part `heap` of the rows would be told; the
    part `told` of delta is for their threshold.
    """

    estimands: float = 0.15
    moments: float = 0.1
    moved: float = 0.2
    heaps: float = 0.1
    heap: float = 0.1
    told: float = 0.1


LEFT_OUT = LeftOut()


def fill_defaults(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec with the shares, bins and settings of its synthesizer that it leaves out."""
    spec = _with_bins(_with_heaps(_with_pairs(_with_shares(_with_maps(spec)))))
    synthesizer = spec.synthesizer
    rules = {
        "latent": latent(spec),
        "hidden": hidden(spec),
        "steps": steps(spec),
        "batch": batch(min(spec.dataset.rows.value, synthesizer.sample or math.inf)),
    }
    written = synthesizer.model_fields_set
    missing = {name: value for name, value in rules.items() if name not in written}
    return spec.model_copy(update={"synthesizer": synthesizer.model_copy(update=missing)})


def fill_linked(spec: LinkedSpec) -> LinkedSpec:
    """The spec with the shares that it leaves out, and with bins on a log scale of far-reaching
    ranges that leave theirs out.
    """
    if "shares" not in spec.privacy.model_fields_set and _linked_moments_tell(spec):
        own = {n: (1 - LEFT_OUT.moments) * p for n, p in spec.privacy.shares.model_dump().items()}
        shares = LinkedShares(**(own | {"moments": LEFT_OUT.moments}))
        privacy = spec.privacy.model_copy(update={"shares": shares})
        spec = spec.model_copy(update={"privacy": privacy})
    made = {
        table: {
            name: with_fine_bins(column, column.bins)
            if _without_bins(column) and far_reaching(column)
            else column
            for name, column in columns.items()
        }
        for table, columns in spec.columns.items()
    }
    return spec.model_copy(update={"columns": made})


def linked_numbers(spec: LinkedSpec) -> tuple[str, ...]:
    """The columns of both tables whose numbers are added up: all but the order and dates, and the
    age where there is a birth.
    """
    order = spec.dataset.visits_name, spec.dataset.visits.order
    found = tuple(
        f"{table}.{name}"
        for table, columns in spec.columns.items()
        for name, column in columns.items()
        if isinstance(column, Integer | Number) and (table, name) != order
    )
    return (*found, *([f"{spec.dataset.persons_name}.age"] if spec.birth else []))


def _linked_moments_tell(spec: LinkedSpec) -> bool:
    """Whether default sums would say something of the means of numbers: of visits, of which each
    person has half of the most, and which a person moves by all of them.
    """
    numbers, persons = len(linked_numbers(spec)), spec.dataset.persons
    if not numbers or linked_engine(spec) == "sql":
        return False
    noise = math.sqrt(3 * numbers) * _noise_of_share(spec, LEFT_OUT.moments)
    return 2 * 2 * noise <= LEFT_OUT.moved * persons.rows.value


def _with_maps(spec: ReleaseSpec) -> ReleaseSpec:
    """A column that names a map gets its texts; one that is unknown stays, for a check to tell."""
    columns = dict[str, Column](spec.columns)
    for name, column in columns.items():
        if isinstance(column, Mapped) and column.map in spec.maps and not column.values:
            own = {"values": spec.maps[column.map], "map": None}
            columns[name] = column.model_copy(update=own)
    left = any(isinstance(c, Mapped) and c.map is not None for c in columns.values())
    return spec.model_copy(update={"columns": columns, "maps": spec.maps if left else {}})


def _with_shares(spec: ReleaseSpec) -> ReleaseSpec:
    """Mode predict spends what other modes spend on training on pairs of columns."""
    if "shares" in spec.privacy.model_fields_set:
        return spec
    shares = spec.privacy.shares
    if spec.graph.mode == "predict":
        shares = FINE_SHARES if _left_out(spec) else PREDICT_SHARES
    own = {"estimands": LEFT_OUT.estimands} if spec.estimands else {}
    own |= {"moments": LEFT_OUT.moments} if _moments_tell(spec) else {}
    own |= {"heaps": LEFT_OUT.heaps} if _heaps_tell(spec) else {}
    if own:
        rest = {n: (1 - sum(own.values())) * part for n, part in shares.model_dump().items()}
        shares = Shares(**(rest | own))
    privacy = spec.privacy.model_copy(update={"shares": shares})
    return spec.model_copy(update={"privacy": privacy})


def _moments_tell(spec: ReleaseSpec) -> bool:
    """Whether default sums of all numbers would say something of their means."""
    numbers = len(summed_numbers(spec))
    if not numbers or counts_only(spec) or spec.graph.mode in ("validate", "learn"):
        return False  # these two must say what of the budget the graph gets
    noise = math.sqrt(2 * numbers) * _noise_of_share(spec, LEFT_OUT.moments)
    return 2 * noise <= LEFT_OUT.moved * spec.dataset.rows.value


def _heaps_tell(spec: ReleaseSpec) -> bool:
    """Whether a default look would tell numbers that `LEFT_OUT.heap` of the rows have, about five
    deviations of its noise. Only rows in memory can be looked at.
    """
    memory = engine_of(spec.dataset.source, spec.compute) == "memory"
    columns = heaped_numbers(spec, fine_bins(spec))
    if spec.graph.mode != "predict" or not memory or not (columns or spec.privacy.heaps):
        return False
    noise = math.sqrt(len(columns)) * _noise_of_share(spec, LEFT_OUT.heaps)
    return bool(spec.privacy.heaps) or 5 * noise <= LEFT_OUT.heap * spec.dataset.rows.value


def _noise_of_share(spec: ReleaseSpec | LinkedSpec, share: float) -> float:
    """The noise of a number that one row moves by one, by that of a Gaussian mechanism for a share
    of the budget [Dwork and Roth 2014, theorem A.1], which is above the plan's.
    """
    tails = math.sqrt(2 * math.log(1.25 / (share * spec.privacy.delta)))
    return spec.dataset.privacy_unit.max_rows * tails / (share * spec.privacy.epsilon)


def heaped_numbers(spec: ReleaseSpec, most: int | None = None) -> tuple[str, ...]:
    """Numbers without bins, edges and spikes of which a bin, of `most`, holds several.

    Its values are drawn evenly, whatever is common among them.
    """
    return tuple(
        name
        for name, column in spec.modelled.items()
        if isinstance(column, Integer | Number) and _without_bins(column)
        if "spikes" not in column.model_fields_set
        if far_reaching(column) or _width(column, most or column.bins) > _step(column)
    )


def _with_heaps(spec: ReleaseSpec) -> ReleaseSpec:
    """A share for heaps, and no column named, is for all that can have them."""
    privacy = spec.privacy
    if not privacy.shares.heaps or privacy.heaps:
        return spec
    changed = {"heaps": heaped_numbers(spec, fine_bins(spec) if tables_only(spec) else None)}
    return spec.model_copy(update={"privacy": privacy.model_copy(update=changed)})


def summed_numbers(spec: ReleaseSpec) -> tuple[str, ...]:
    """The columns whose numbers are added up for `privacy.shares.moments`: all but dates."""
    return tuple(
        name for name, column in spec.modelled.items() if isinstance(column, Integer | Number)
    )


def _with_pairs(spec: ReleaseSpec) -> ReleaseSpec:
    """A share for pairs, and no pair named, is for all of them, those with a target first.

    With all pairs measured, causal modes start from them, too: on Adult, with an expert's graph,
    that took TV of pairs from .023 to .018.
    """
    privacy = spec.privacy
    if spec.graph.mode == "predict" or not privacy.shares.pairs or privacy.pairs:
        return spec
    levels = {name: column.level_count for name, column in spec.modelled.items()}
    targets = {*spec.synthesizer.targets, *spec.evaluation.targets}
    small = [p for p in combinations(levels, 2) if levels[p[0]] * levels[p[1]] <= 1 << 16]
    chosen = sorted(small, key=lambda pair: targets.isdisjoint(pair))[:1000]
    changed = {"pairs": tuple(chosen)} if chosen else {}
    return spec.model_copy(update={"privacy": privacy.model_copy(update=changed)})


def _with_bins(spec: ReleaseSpec) -> ReleaseSpec:
    """Ranges whose bins are left out: fine ones where tables alone make the model.

    A one-way table of fine bins costs no more than one of wide bins, and pairs are counted on
    groups of them, by released counts. Elsewhere far-reaching ranges have a log scale.
    """
    left_out = _left_out(spec)
    if tables_only(spec):
        made = {name: with_fine_bins(c, fine_bins(spec)) for name, c in left_out.items()}
    else:
        made = {n: with_fine_bins(c, c.bins) for n, c in left_out.items() if far_reaching(c)}
    return spec.model_copy(update={"columns": {**spec.columns, **made}})


def fine_bins(spec: ReleaseSpec) -> int:
    """Most bins of a range whose bins are left out: a power of two, fewer where noise is larger.

    Noise goes by the root of the number of tables over epsilon. Generous bounds need many: on 5,200
    rows and 14 columns bounds ten times too wide took the TV of pairs at epsilon 1 from .137 to
    .286 with 128 bins at most, and to .134 with 512, which at the right bounds gave .142. There 128
    gave .190 at epsilon .3, and 64 gave .201.
    """
    rows, columns = spec.dataset.rows.value, max(1, len(spec.modelled))
    wanted = 1.5 * rows * spec.privacy.epsilon / columns
    power: int = 1 << round(math.log2(max(wanted, 1)))
    return min(max(power, 64), 512)


def _left_out(spec: ReleaseSpec) -> dict[str, Ranged]:
    """The modelled ranges whose bins the spec leaves out."""
    return {name: column for name, column in spec.modelled.items() if _without_bins(column)}


def _without_bins(column: Column) -> TypeGuard[Ranged]:
    return isinstance(column, Ranged) and not {"bins", "edges"} & column.model_fields_set


def tables_only(spec: ReleaseSpec) -> bool:
    """Whether noisy tables alone make the model, without a step of training."""
    return spec.graph.mode == "predict" and spec.privacy.shares.train == 0


def engine_of(source: Source, compute: Compute) -> EngineName:
    """The engine that counts the table: that of the spec, and never `auto`."""
    if compute.engine != "auto":
        return compute.engine
    away = isinstance(source, ParquetSource) and (is_url(source.path) or is_pattern(source.path))
    return "arrow" if away else "memory"


def linked_engine(spec: LinkedSpec) -> EngineName:
    """The engine that reads both tables: arrow where one of them needs it."""
    found = {engine_of(table.source, spec.compute) for table in spec.dataset.tables.values()}
    return found.pop() if len(found) == 1 else "arrow"


def counts_only(spec: ReleaseSpec) -> bool:
    """Whether the engine gives counts, and never a row."""
    return engine_of(spec.dataset.source, spec.compute) == "sql"


def batch(rows: float) -> int:
    """Of the rows that are trained on, of which a secret sample may be a part: a tenth of a small
    table, 512 rows of one with thousands, and a 48th, rounded, beyond.

    Large batches have less noise relative to the gradients, but cost time. A step that takes all
    rows would gain no privacy from nobody knowing which rows it took.
    """
    if rows < 5_120:
        return max(1, int(rows // 10))
    return min(4_096, max(512, round(rows / 48 / 64) * 64))


def steps(spec: ReleaseSpec) -> int:
    """800; 300 where there are few rows, 200 where there are very many columns."""
    if len(spec.modelled) > 400:
        return 200
    return 300 if spec.dataset.rows.value < 10_000 else 800


def hidden(spec: ReleaseSpec) -> int:
    """32 units a column, fewer of many; as many as a target has levels, up to 256."""
    if tables_only(spec):
        return 1
    columns = len(spec.modelled)
    named = [spec.columns[name] for name in spec.synthesizer.targets if name in spec.columns]
    least = 32 if columns <= 64 else 16 if columns <= 400 else 8
    return max([least, *(c.level_count for c in named if c.level_count <= 256)])


def latent(spec: ReleaseSpec) -> int:
    """What columns share that no arrow tells: more where no arrow is told at all."""
    if tables_only(spec):
        return 1
    return 4 if spec.graph.mode == "none" else 1 if len(spec.modelled) > 400 else 2


def with_fine_bins(column: Ranged, most: int) -> Ranged:
    """The column with about `most` bins at most.

    Where 0 is the lower bound and would share a bin with other values, it becomes a spike, unless
    the spec names spikes: nothing is as common in numbers as none of something.
    """
    edges = fine_edges(column, most)
    alone = "spikes" in column.model_fields_set or isinstance(column, Datetime) or column.lower != 0
    if alone or (not far_reaching(column) and _width(column, most) == _step(column)):
        return column.model_copy(update={"edges": edges})
    spiked = column.model_copy(update={"spikes": (column.lower,)})
    return spiked.model_copy(update={"edges": fine_edges(spiked, most)})


def fine_edges(column: Ranged, most: int) -> tuple[Any, ...]:
    """Left edges of about `most` bins at most, whose width is a round number of steps.

    Every bin holds the same number of the values that can be written, but for the ends. Where each
    whole number is a bin, a spike has none: the bin before reaches over it.

    >>> from synthdp.spec.model import Integer
    >>> fine_edges(Integer(type="integer", lower=3, upper=40), 10)
    (3, 5, 10, 15, 20, 25, 30, 35, 40)
    """
    if far_reaching(column):
        return _log_edges(column, most)
    lower, upper = (Fraction(column.number(end)) for end in (column.lower, column.upper))
    width = _width(column, most)
    last = math.ceil(upper / width) - 1 if column.continuous else math.floor(upper / width)
    inner = (float(k * width) for k in range(math.floor(lower / width) + 1, last + 1))
    single = width == 1 and not column.continuous
    spikes = set(map(column.number, column.spikes))
    # A spike at the lower end of whole numbers is not part of the bins beside it.
    first = float(lower) + (not column.continuous and float(lower) in spikes)
    rest = (edge for edge in inner if edge > first and not (single and edge in spikes))
    return tuple(map(column.value, (first, *rest)))


def far_reaching(column: Ranged) -> bool:
    """Whether numbers of the range differ in how many digits they have, as money does.

    Bins of one width hold all that is small in one, and noise alone elsewhere.

    >>> from synthdp.spec.model import Integer
    >>> [far_reaching(Integer(type="integer", lower=a, upper=2_000_000)) for a in (0, 1_000_000)]
    [True, False]
    """
    if isinstance(column, Datetime):
        return False
    near, far = sorted(map(abs, (column.lower, column.upper)))
    return far >= 10_000 and (column.lower <= 0 <= column.upper or far >= 100 * near)


def _log_edges(column: Ranged, most: int) -> tuple[Any, ...]:
    """Left edges from 1 on a log scale, on both sides of 0: as many a decade as `most` allows.

    So bins are as narrow as numbers are small, and generous bounds cost few bins. Their widths
    must rise evenly: a margin is smooth along them (`graph.margins`).

    >>> from synthdp.spec.model import Number
    >>> _log_edges(Number(type="number", lower=0, upper=20_000), 32)[:7]
    (0.0, 1.0, 1.58, 2.5, 4.0, 6.3, 10.0)
    """
    lower, upper = column.number(column.lower), column.number(column.upper)
    decades = range(math.ceil(math.log10(max(-lower, upper))))
    edges = set[float]()
    for each in (1, 2, 5, 10, 20, 40):  # 1 is 600 bins at most, of the widest range
        # Near round numbers, at which heaps are, and not far from where even steps are.
        parts = ((10 ** (i / each), 50 if 10 ** (i / each) < 2 else 20) for i in range(each))
        mantissas = [round(m * part) / part for m, part in parts]
        sizes = [m * 10.0**d for d in decades for m in mantissas]
        inner = {0.0, *sizes, *(-s for s in sizes)}
        if not column.continuous:
            inner = set(map(float, map(round, inner)))
        found = {e for e in inner if lower < e < upper}
        if edges and len(found) + 1 > most:
            break
        edges = found
    # A spike of whole numbers is not part of the bin beside it; a bin of it alone would be empty.
    alone = set() if column.continuous else set(map(column.number, column.spikes))
    first = lower + (lower in alone)
    rest = (e for e in sorted(edges) if e > first and not (e in alone and e + 1 in edges))
    return tuple(map(column.value, (first, *rest)))


def _step(column: Ranged) -> Fraction:
    """The difference of two neighbouring values, on the column's numeric scale."""
    return Fraction(1, 10 ** getattr(column, "decimals", 0))


def _width(column: Ranged, most: int) -> Fraction:
    """Width of `most` bins: the least of 1, 2, 5, 10, 20, ... steps that is not below theirs.

    Values that people round lie on multiples of 5 and 10: there a bin begins. In bins of 2 half of
    a heap at 65 would be drawn below it. Beyond 256 bins, where resolution is worth less than where
    a bin begins, 1 takes the place of 2, so that there are up to twice as many.
    """
    step, power = _step(column), 1
    span = Fraction(column.number(column.upper)) - Fraction(column.number(column.lower))
    steps = span / step / most
    while 10 * power < steps:
        power *= 10
    reach = {1: 2, 5: 5, 10: 10} if most > 256 else {1: 1, 2: 2, 5: 5, 10: 10}
    return next(power * m for m, most_steps in reach.items() if steps <= power * most_steps) * step
