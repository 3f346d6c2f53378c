"""The checks that need two parts of a spec, and the traps of specs that are valid.

All checks run, so that all mistakes are told at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks import budget, columns, dataset, estimands, graph
from synthdp.spec.checks.possible import impossible
from synthdp.spec.checks.telling_names import unit_warning
from synthdp.spec.expressions.expressions import outside
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.load.wording import SpecMistake, same_but_for_case
from synthdp.spec.model import Integer, Number, ReleaseSpec
from synthdp.spec.model.rules import far_reaching


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
    budget.shares,
    budget.pairs,
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
