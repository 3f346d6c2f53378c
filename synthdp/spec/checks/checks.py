"""The checks that need two parts of a spec, and the traps of specs that are valid.

All checks run, so that all mistakes are told at once.

Among them: does any row of the declared columns fulfil the constraints? Many rows are drawn to find
out. No row of the data is read.

Rows that violate a constraint are drawn again until enough are left, so what next to no row fulfils
would end a release after its budget was spent. A constraint is refused if none of many rows fulfils
it; several are, if many rows fulfil all but one of them and none that one. Many constraints that
are each likely, such as an order of ten dates, are not refused for being rare together.

An equation between columns of numbers or dates is another matter. The model knows levels, and draws
values inside of bins by themselves, so that an equation holds by chance alone, whatever the model
learnt. It is refused between real numbers, and between whole ones and dates where
fewer than a tenth of even rows fulfil it: drawing again is given up at a hundredth, and a model is
not even.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks import budget, columns, dataset, estimands, graph
from synthdp.spec.checks.columns import unit_warning
from synthdp.spec.expressions.expressions import calculation, outside, parse
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.load.wording import SpecMistake, same_but_for_case
from synthdp.spec.model import Column, Integer, Number, Ranged, ReleaseSpec, derived_of
from synthdp.spec.model.rules import far_reaching

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class DrawnRows:
    """How constraints are judged: by so many `rows` of the declared domain; a set of them fails
    where at least `convincing` rows fulfil all but one, and none that one: surely fewer than a
    hundredth do.
    """

    rows: int = 50_000
    convincing: int = 1000


DRAWN = DrawnRows()
COMPUTED = (
    "take one column out of the model and have it computed from the others, e.g. `after: {type:"
    ' number, derived: "before + change", ...}`'
)


def impossible(spec: ReleaseSpec) -> Iterator[SpecMistake]:
    """Constraints that no row fulfils, and sets of constraints that no row fulfils together.

    The problem of a set is reported at the last constraint of the set.
    """
    readable = {
        i: e for i, text in enumerate(spec.constraints) if (e := parse(text, spec.columns)[0])
    }
    if not readable:
        return
    import numpy as np  # a spec without constraints is checked without it

    rng = np.random.default_rng(0)
    read = [name for name in spec.columns if any(name in e.columns for e in readable.values())]
    values = {name: _drawn(column, rng) for name, column in spec.modelled.items() if name in read}
    with np.errstate(all="ignore"):
        values |= {name: _computed(name, values, spec) for name in read if name not in values}
        holds = {i: ~e.violated(values) for i, e in readable.items()}
        # Next to no drawn row fulfils these equations, whatever the model learnt.
        # 0.1: of even rows, for an equation between whole numbers
        by_chance = [
            i
            for i, e in readable.items()
            for equation in e.equations
            if any(spec.columns[name].continuous for name in equation.columns)
            or equation.truth(values)[0].mean() < 0.1
        ]
    for i in dict.fromkeys(by_chance):
        message = "is an equation between numbers, which drawn rows fulfil by chance alone"
        yield SpecMistake(("constraints", i), f"{readable[i].text!r}: {message}", COMPUTED)
        del holds[i]
    no_row = f"none of {DRAWN.rows:,} rows drawn uniformly from the declared domain fulfils it"
    for i in [i for i, rows in holds.items() if not rows.any()]:
        hint = (
            "rows that violate a constraint are drawn again until enough fulfil it: loosen it, or"
        )
        message = f"{readable[i].text!r}: {no_row}"
        yield SpecMistake(("constraints", i), message, f"{hint} change the columns' bounds")
        del holds[i]
    places = list(holds)
    for *others, last in _conflicts(np.array(list(holds.values()))) if holds else ():
        names = " and ".join(f"#{places[k] + 1} {readable[places[k]].text!r}" for k in others)
        message = f"{readable[places[last]].text!r}: {no_row} together with {names}"
        hint = "each can hold alone, and together they cannot: change or delete one of them"
        yield SpecMistake(("constraints", places[last]), message, hint)


def _computed(
    name: str, values: Mapping[str, npt.NDArray[np.float64]], spec: ReleaseSpec
) -> npt.NDArray[np.float64]:
    """Values of a derived column, within its bounds; NaN where its entry is wrong."""
    import numpy as np

    column = spec.columns[name]
    computed, _ = calculation(derived_of(column) or "", spec.columns)
    if computed is None or not isinstance(column, Ranged):
        return np.full(DRAWN.rows, np.nan)
    day = 1.0 if column.step_seconds is None else column.step_seconds / 86_400
    numbers = computed.value(values)
    ends = column.number(column.lower) * day, column.number(column.upper) * day
    return np.clip(np.where(np.isfinite(numbers), numbers, np.nan), *ends)


def _drawn(column: Column, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """`DRAWN.rows` values as constraints read them, uniform over levels and inside bins."""
    import numpy as np

    if not isinstance(column, Ranged):
        categories = len(column.labels)
        levels = rng.integers(categories + column.missing, size=DRAWN.rows).astype(np.float64)
        return np.where(levels == categories, np.nan, levels)
    lower, upper, *others = map(
        column.number, (column.lower, column.upper, *column.spikes, *(column.edges or ()))
    )
    spikes, edges = np.array(others[: len(column.spikes)]), np.array(others[len(column.spikes) :])
    stop = upper if column.continuous else upper + 1
    ends = np.append(edges, stop) if len(edges) else np.linspace(lower, stop, column.bins + 1)
    level = rng.integers(len(spikes) + len(ends) - 1 + column.missing, size=DRAWN.rows)
    inside = np.clip(level - len(spikes), 0, len(ends) - 2)
    drawn = ends[inside] + rng.random(DRAWN.rows) * np.diff(ends)[inside]
    if isinstance(column, Number):
        drawn = np.clip(np.round(drawn, column.decimals), lower, upper)
    else:
        drawn = np.floor(drawn)
    spike = np.append(spikes, 0.0)[np.minimum(level, len(spikes))]
    drawn = np.where(level < len(spikes), spike, drawn)
    drawn = np.where(level == len(spikes) + len(ends) - 1, np.nan, drawn)
    return drawn if column.step_seconds is None else drawn * column.step_seconds / 86_400


def _conflicts(holds: npt.NDArray[np.bool_]) -> Iterator[Sequence[int]]:
    """The smallest sets of constraints that no row fulfils together.

    Many rows fulfil all constraints of a set but one. `holds` is `[constraints, rows]`.
    """
    import numpy as np

    counts = holds.sum(1)
    both = holds.astype(np.float32) @ holds.T.astype(np.float32)
    left = list(range(len(holds)))
    for i, j in np.argwhere(np.triu(both == 0)):
        if max(counts[i], counts[j]) >= DRAWN.convincing:
            yield int(i), int(j)
            left = [k for k in left if k != j]
    while not holds[left].all(0).any():
        core = left
        for k in left:  # whatever is not needed to leave no row is left out
            core = (
                [c for c in core if c != k]
                if not holds[[c for c in core if c != k]].all(0).any()
                else core
            )
        if (
            max(int(holds[[c for c in core if c != k]].all(0).sum()) for k in core)
            < DRAWN.convincing
        ):
            return
        yield core
        left = [k for k in left if k != core[-1]]


def check(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec itself, if its parts fit together.

    It is for a spec that was built in Python rather than loaded.

    Raises:
        SpecError: with every mistake.
    """
    found = cross_problems(spec)
    if found:
        raise SpecError(
            [SpecProblem("spec", 0, 0, ".".join(map(str, p.loc)), p.message, p.hint) for p in found]
        )
    return spec


def cross_problems(spec: ReleaseSpec) -> list[SpecMistake]:
    """Every mistake between the parts; a graph with too many arrows is not gone through."""
    crowded = list(graph.crowds(spec))
    # Nobody reads more of one check, and suggesting names for them costs time.
    found = (itertools.islice(run(spec), 101) for run in (*CHECKS, *([] if crowded else GRAPHS)))
    return [*crowded, *itertools.chain.from_iterable(found)]


GRAPHS: tuple[Callable[[ReleaseSpec], Iterable[SpecMistake]], ...] = (
    columns.nodes,
    graph.groups,
    graph.tiers,
    graph.ordered_levels,
    graph.no_effect,
    graph.arrows,
    graph.needs_edges,
    graph.parents,
)
"""The checks of a graph over columns, which read nothing else."""
CHECKS: tuple[Callable[[ReleaseSpec], Iterable[SpecMistake]], ...] = (
    columns.named,
    columns.computed,
    columns.expressions,
    budget.amounts,
    budget.waves,
    budget.shares,
    budget.pairs,
    budget.heaps,
    budget.target_levels,
    budget.gates,
    dataset.rows,
    dataset.unit,
    dataset.missing_texts,
    dataset.source,
    dataset.row_by_row,
    dataset.chosen,
    dataset.levels_only,
    dataset.engine,
    dataset.values,
    dataset.addresses,
    columns.even,
    columns.derived,
    columns.names,
    columns.levels,
    columns.types,
    columns.value_maps,
    estimands.evaluation,
    estimands.judged,
    estimands.figures,
    estimands.each,
    impossible,
    graph.targets,
)
"""All others."""


def traps(spec: ReleaseSpec) -> list[str]:
    """A warning for each trap, in words. Nothing here comes from rows."""
    dropped, unit = getattr(spec.dataset.source, "drop", ()), spec.dataset.privacy_unit.kind
    warnings = [unit_warning(unit, dropped, list(spec.columns))]
    if twins := same_but_for_case(spec.columns):  # which many databases take for one name
        warnings.append(
            f"columns: {twins[0]!r} and {twins[1]!r} differ in upper and lower case alone; SQLite,"
            " MySQL, SQL Server and others hold one of them, so that `synthdp export` is refused"
            " there"
        )
    warnings += [
        f"columns.{name}.bins: of {column.bins} bins, each"
        f" {column.upper / column.bins - column.lower / column.bins:,.0f} wide, one may hold nearly"
        " all rows; leave bins out, and they are wider where numbers are larger, or give edges"
        for name, column in spec.modelled.items()
        if isinstance(column, Integer | Number) and "bins" in column.model_fields_set
        if far_reaching(column)
    ]
    warnings += _targets_alone(spec)
    sample, shares = spec.synthesizer.sample, spec.privacy.shares
    if sample is not None and not shares.train and not shares.targets:
        warnings.append(
            f"synthesizer.sample: {sample:,} does nothing, for nothing is trained: noisy tables,"
            " which are of all rows, make the model; leave it out, or give shares.train a part"
        )
    return [*filter(None, warnings), *dataset.query_warnings(spec), *_asked_of_nobody(spec)]


def _targets_alone(spec: ReleaseSpec) -> Iterator[str]:
    """Targets whose predictors are easily lost.

    A search without noisy tables predicts a target from the causes it finds, and nothing else;
    `measured_pc` keeps undecided pairs (`graph.stage.with_predictive_arrows`), and before it did,
    this cost .09 to .14 of the classifiers' AUC on two public tables. Mode none measures nothing of
    a label and another column, unless the spec names the pair: on one public table all pairs with
    the label took the AUC from .71 to .88.
    """
    graph, mode = spec.graph, spec.graph.mode
    known = {effect for edge in graph.edges for effect in edge.effects}
    for name in spec.synthesizer.targets if mode == "learn" else ():
        if graph.algorithm != "measured_pc" and not {name, graph.group_of.get(name, name)} & known:
            yield (
                f"synthesizer.targets: no arrow leads to {name!r}, and {graph.algorithm}"
                " predicts it from the causes that it finds alone, often few; declare what may"
                " cause it in graph.edges, or use graph.algorithm measured_pc"
            )
    measured = {name for pair in spec.privacy.pairs for name in pair}
    for name in spec.evaluation.targets if mode == "none" and spec.evaluation.enabled else ():
        if name not in measured:
            yield (
                f"evaluation.targets: mode none measures no pair with {name!r}, so that what"
                " predicts it is easily lost; name pairs with it in privacy.pairs, or use"
                " graph.mode predict"
            )


def _asked_of_nobody(spec: ReleaseSpec) -> Iterator[str]:
    """Conditions of paid questions on values that no row can have."""
    for i, estimand in enumerate(spec.estimands, start=1):
        asked = estimand.question and parse_query(estimand.question, spec.columns)
        for condition in (asked.condition, asked.where) if asked else ():
            for name, value in outside(condition, spec.columns) if condition else ():
                yield (
                    f"estimands #{i}: {value} lies outside the bounds of {name!r}, so that no row"
                    " has it; the question is paid for all the same"
                )
