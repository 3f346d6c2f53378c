"""The checks that need two parts of a spec, and the traps of specs that are valid.

All checks run, so that all mistakes are told at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks import budget, columns, dataset, estimands, graph, names
from synthdp.spec.checks.possible import impossible
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.checks.telling_names import unit_warning
from synthdp.spec.expressions.operands import outside
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.load.wording import same_but_for_case
from synthdp.spec.model import ReleaseSpec

MAX_TOLD = 101  # of one check: nobody reads more, and suggesting names for them costs time


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


def cross_problems(spec: ReleaseSpec) -> list[CrossProblem]:
    """Every mistake between the parts of a spec.

    A graph with too many arrows is not gone through.
    """
    crowded = list(graph.crowds(spec))
    able = [run for run, sections in CHECKS.items() if not crowded or "graph" not in sections]
    return crowded + [p for run in able for p in itertools.islice(run(spec), MAX_TOLD)]


CHECKS: dict[Callable[[ReleaseSpec], Iterable[CrossProblem]], tuple[str, ...]] = {
    names.columns: ("columns", "privacy", "synthesizer", "sampling", "evaluation", "estimands"),
    names.nodes: ("columns", "graph"),
    names.computed: (
        "columns",
        "graph",
        "privacy",
        "synthesizer",
        "sampling",
        "evaluation",
        "estimands",
    ),
    names.expressions: ("columns", "constraints", "evaluation", "estimands"),
    budget.delta: ("dataset", "privacy"),
    budget.cap: ("privacy",),
    budget.shares: ("privacy", "graph"),
    budget.graph_share: ("privacy", "graph"),
    budget.pairs: ("privacy",),
    budget.pairs_twice: ("privacy",),
    budget.pairs_unused: ("privacy", "sampling"),
    budget.pair_cells: ("privacy", "columns"),
    budget.targets: ("privacy", "graph", "synthesizer"),
    budget.target_levels: ("graph", "synthesizer", "columns"),
    dataset.batch: ("dataset", "synthesizer"),
    dataset.sample: ("synthesizer", "privacy"),
    dataset.attack_rows: ("dataset", "attacks"),
    dataset.unit: ("dataset", "privacy"),
    dataset.unit_column: ("dataset", "columns"),
    columns.even: ("columns", "sampling"),
    columns.even_unused: ("sampling",),
    estimands.test_rows: ("evaluation",),
    budget.judged: ("evaluation",),
    budget.classified: ("evaluation",),
    budget.attacked: ("attacks",),
    budget.dp_scores: ("columns", "evaluation"),
    budget.decidable: ("gates", "attacks", "privacy"),
    estimands.disclosure: ("evaluation",),
    estimands.subgroups: ("columns", "evaluation"),
    estimands.effects: ("columns", "evaluation"),
    estimands.share: ("privacy", "estimands"),
    estimands.figures: ("columns", "estimands"),
    estimands.each: ("columns", "estimands", "graph"),
    estimands.values: ("estimands", "dataset"),
    columns.derived: ("columns",),
    columns.names: ("columns",),
    columns.group_names: ("graph",),
    columns.levels: ("columns",),
    impossible: ("columns", "constraints"),
    columns.types: ("columns",),
    columns.value_maps: ("columns", "maps", "dataset"),
    dataset.missing_texts: ("dataset", "columns"),
    dataset.source: ("dataset",),
    dataset.row_by_row: ("dataset",),
    dataset.chosen: ("dataset", "columns"),
    dataset.levels_only: ("dataset", "evaluation", "graph"),
    dataset.engine: ("dataset", "compute"),
    dataset.values: (
        "dataset",
        "compute",
        "evaluation",
        "graph",
        "estimands",
        "privacy",
        "attacks",
        "synthesizer",
    ),
    dataset.addresses: ("privacy", "tracking"),
    graph.groups: ("columns", "graph"),
    graph.tiers: ("graph",),
    graph.ordered_levels: ("columns", "graph"),
    graph.unseen_causes: ("graph",),
    graph.loops: ("graph",),
    graph.cycles: ("graph",),
    graph.repeats: ("graph",),
    graph.contradictions: ("graph",),
    graph.backward: ("graph",),
    graph.needs_edges: ("graph",),
    graph.no_effect: ("graph",),
    graph.parents: ("graph",),
    graph.targets: ("graph", "synthesizer"),
    graph.target_causes: ("columns", "graph", "synthesizer"),
}
"""Each check, and the sections that it reads."""


def traps(spec: ReleaseSpec) -> list[str]:
    """A warning for each trap, in words. Nothing here comes from rows."""
    dropped, unit = getattr(spec.dataset.source, "drop", ()), spec.dataset.privacy_unit.kind
    several = unit_warning(unit, dropped, list(spec.columns))
    return [
        *([several] if several else []),
        *_twins(spec),
        *_targets_without_causes(spec),
        *_labels_without_graph(spec),
        *_sample_without_training(spec),
        *dataset.query_warnings(spec),
        *_asked_of_nobody(spec),
    ]


def _twins(spec: ReleaseSpec) -> Iterator[str]:
    """Names that differ in case alone: many databases and programs take one for the other."""
    if twins := same_but_for_case(spec.columns):
        yield (
            f"columns: {twins[0]!r} and {twins[1]!r} differ in upper and lower case alone; SQLite,"
            " MySQL, SQL Server and others hold one of them, so that `synthdp export` is refused"
            " there"
        )


def _targets_without_causes(spec: ReleaseSpec) -> Iterator[str]:
    """A search without noisy tables predicts a target from the causes it finds, and nothing else.

    `measured_pc` keeps undecided pairs (`graph.undecided`). Before it did, this cost .09 to .14 of
    the classifiers' AUC on two public tables.
    """
    if spec.graph.mode != "learn" or spec.graph.algorithm == "measured_pc":
        return
    group_of = {name: g for g, members in spec.graph.groups.items() for name in members}
    known = {effect for edge in spec.graph.edges for effect in edge.effects}
    for name in spec.synthesizer.targets:
        if not {name, group_of.get(name, name)} & known:
            yield (
                f"synthesizer.targets: no arrow leads to {name!r}, and {spec.graph.algorithm}"
                " predicts it from the causes that it finds alone, often few; declare what may"
                " cause it in graph.edges, or use graph.algorithm measured_pc"
            )


def _labels_without_graph(spec: ReleaseSpec) -> Iterator[str]:
    """Mode none measures nothing of a label and another column, unless the spec names the pair.

    On one public table all pairs with the label took the AUC from .71 to .88.
    """
    measured = {name for pair in spec.privacy.pairs for name in pair}
    if spec.graph.mode != "none" or not spec.evaluation.enabled:
        return
    for name in spec.evaluation.targets:
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


def _sample_without_training(spec: ReleaseSpec) -> Iterator[str]:
    """Only training is on the secret sample: where nothing is trained, none is drawn."""
    sample, shares = spec.synthesizer.sample, spec.privacy.shares
    if sample is not None and not shares.train and not shares.targets:
        yield (
            f"synthesizer.sample: {sample:,} does nothing, for nothing is trained: noisy tables,"
            " which are of all rows, make the model; leave it out, or give shares.train a part"
        )
