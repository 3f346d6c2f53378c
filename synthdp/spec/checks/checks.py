"""Checks that need two parts of a spec. All of them run, so that all mistakes are listed at once.

The loader also runs them on incomplete specs. It then names what is `lost`: a section,
`section.field`, or `section.field[]` for a list that lacks entries. A check that reads a lost part
is left out. A wrong column is not lost: it keeps its name, and as `Unread` it has no values that a
check could object to. `synthdp.spec.load.names` looks up the names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks import budget, dataset, estimands
from synthdp.spec.checks import graph as graphchecks
from synthdp.spec.checks.dataset import query_warnings
from synthdp.spec.checks.possible import impossible
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.checks.telling_names import unit_warning
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.expressions.operands import calculation, outside
from synthdp.spec.expressions.query import parse_query
from synthdp.spec.load.names import MAX_TOLD, name_problems, written
from synthdp.spec.load.wording import Loc, nearest, same_but_for_case
from synthdp.spec.model import (
    CONTROL,
    Column,
    CsvSource,
    ReleaseSpec,
    Unread,
    derived_of,
    starts_formula,
)
from synthdp.spec.model.columns.types import Mapped
from synthdp.spec.model.fields import alike

# --- columns ---
#
# Checks of the columns: plain names, levels that fit into the model, the rules of each type.


MAX_LEVELS = 65_536  # the width of the one-hot row that the model reads


def columns(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Each column states what its type allows."""
    for name, column in spec.columns.items():
        for field, message, hint in column.mistakes():
            yield CrossProblem(("columns", name, field), message, hint)


def value_maps(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Each text of the source becomes a category, and stands for nothing else."""
    source = spec.dataset.source
    missing = source.missing_values if isinstance(source, CsvSource) else ()
    for name, column in spec.columns.items():
        if not isinstance(column, Mapped) or isinstance(column, Unread):
            continue
        where = ("columns", name)
        own = column.values or spec.maps.get(column.map or "", {})
        if column.map is not None and column.values:
            hint = "delete one of them"
            yield CrossProblem((*where, "map"), "give either values or map, not both", hint)
        elif column.map is not None and column.map not in spec.maps:
            hint = (
                nearest(column.map, spec.maps) or "write it there, as text of the source: category"
            )
            yield CrossProblem((*where, "map"), f"`maps` has no {column.map!r}", hint)
        for text, category in own.items():
            at = (*where, "values", text)
            if category not in column.labels:
                hint = nearest(category, column.labels) or "list it among the column's categories"
                yield CrossProblem(at, f"{category!r} is no category of the column", hint)
            elif text in column.labels:
                message = f"{text!r} is a category itself, and would be published as another"
                yield CrossProblem(at, message, "rename the category, or take it out here")
            elif text in column.missing_codes or text in missing:
                message = f"{text!r} also stands for a missing value"
                yield CrossProblem(at, message, "take it out here, or there")


def column_names(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The names of columns are plain, and no two of them look alike."""
    for name in spec.columns:
        if starts_formula(name):
            yield CrossProblem(
                ("columns", name),
                "the name starts like a spreadsheet formula",
                "rename the column in the source; begin with a letter",
            )
        yield from _plain_name(("columns", name), name, "rename the column in the source")
    pair = alike(spec.columns)
    if pair is not None:
        yield CrossProblem(
            ("columns", pair[1]),
            f"{pair[0]!a} and {pair[1]!a} look the same and are not",
            "rename one of them in the source",
        )


def group_names(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """The names of groups of columns are plain."""
    for name in spec.graph.groups:
        yield from _plain_name(("graph", "groups", name), name, "rename the group")


def levels(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """All columns together have at most `MAX_LEVELS` levels."""
    total = sum(column.level_count for column in spec.modelled.values())
    if total > MAX_LEVELS:
        message = (
            f"all columns together have {total:,} levels; at most {MAX_LEVELS:,} fit into the model"
        )
        yield CrossProblem(("columns",), message, "use fewer bins, or merge rare categories")


def _plain_name(where: Loc, name: str, hint: str) -> Iterator[CrossProblem]:
    if CONTROL.search(name):
        yield CrossProblem(where, "the name holds a control character or a line break", hint)
    elif name != name.strip():
        yield CrossProblem(where, "the name begins or ends with a space", hint)


# --- derived ---
#
# Checks of derived columns: they are computed from modelled columns of their kind.
#
# No part of the spec that looks at rows of the source may name them.


def derived(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """What is wrong with a derived column."""
    for name, column in spec.columns.items():
        if (text := derived_of(column)) is not None:
            yield from _problems(name, column, text, spec)


def _problems(name: str, column: Column, text: str, spec: ReleaseSpec) -> Iterator[CrossProblem]:
    where = ("columns", name)
    computed, mistakes = calculation(text, spec.columns)
    yield from (
        CrossProblem((*where, "derived"), f"character {m.at}: {m.message}", m.hint)
        for m in mistakes
    )
    for field in {"bins", "edges", "spikes"} & column.model_fields_set:
        if getattr(column, field):
            yield CrossProblem(
                (*where, field),
                f"{field} say how a column is modelled, and {name!r} is computed",
                f"delete {field}",
            )
    if computed is None or any(isinstance(spec.columns[n], Unread) for n in computed.columns):
        return
    if computed.kind != column.operand:
        message = (
            f"computes a {computed.kind}, and a column of type {column.type} holds"
            f" {column.operand}s"
        )
        yield CrossProblem(
            (*where, "derived"),
            message,
            f"use type {'datetime' if computed.kind == 'date' else 'number'}",
        )
    absent = [n for n in computed.columns if spec.columns[n].missing]
    if not column.missing and (absent or computed.divides):
        why = f"{absent[0]!r} may be missing" if absent else "it divides by what may be 0"
        yield CrossProblem(
            (*where, "derived"),
            f"{why}, and {name!r} is then missing too",
            f"set columns.{name}.missing: true",
        )


# --- sampling ---
#
# Checks of the sampling section: columns that are drawn again after rows were chosen.


def even(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A column that is drawn again is read by no constraint."""
    read = {
        name
        for text in spec.constraints
        for e in [parse(text, spec.columns)[0]]
        if e
        for name in e.columns
    }
    for i, name in enumerate(spec.sampling.even):
        if name in read:
            yield CrossProblem(
                ("sampling", "even", i),
                f"a constraint reads column {name!r}, and rows are held to it as a whole",
                f"leave {name!r} out",
            )


def even_unused(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """Columns are drawn again only where rows were chosen."""
    if spec.sampling.even and not (spec.sampling.rake and spec.sampling.balance):
        off = "rake" if not spec.sampling.rake else "balance"
        yield CrossProblem(
            ("sampling", "even"),
            f"columns are drawn again after rows were chosen, which {off}: false turns off",
            f"delete {off}",
        )


# --- cross checks ---


def check(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec itself, if its parts fit together.

    It is for a spec that was built in Python rather than loaded.

    Raises:
        SpecError: with every mistake.
    """
    problems = cross_problems(spec)
    if problems:
        raise SpecError(
            [
                SpecProblem("spec", 0, 0, ".".join(map(str, p.loc)), p.message, p.hint)
                for p in problems
            ]
        )
    return spec


def cross_problems(spec: ReleaseSpec) -> list[CrossProblem]:
    """Every mistake between the parts of a whole spec."""
    return [*name_problems(written(spec), spec.columns), *part_problems(spec)]


def part_problems(spec: ReleaseSpec, *, lost: frozenset[str] = frozenset()) -> list[CrossProblem]:
    """Every mistake between the parts of `spec`, except unknown names.

    Checks that read a part named in `lost` are left out.
    """
    crowded = list(graphchecks.crowds(spec)) if "graph" not in lost else []
    lost = lost | {".".join(map(str, p.loc)) for p in crowded}
    able = [c for c in CHECKS if not any(_covers(gone, read) for gone in lost for read in c.reads)]
    return crowded + [p for c in able for p in itertools.islice(c.run(spec), MAX_TOLD)]


def _covers(gone: str, read: str) -> bool:
    return read == gone or read.startswith(gone + ".")


@dataclass(frozen=True)
class _Check:
    """A check, and the parts of the spec that it reads."""

    reads: tuple[str, ...]
    run: Callable[[ReleaseSpec], Iterable[CrossProblem]]


CHECKS = (
    _Check(("dataset.rows", "privacy.delta"), budget.delta),
    _Check(("privacy.epsilon", "privacy.cap"), budget.cap),
    _Check(("privacy.shares", "graph.mode"), budget.shares),
    _Check(("privacy.shares", "graph.mode"), budget.graph_share),
    _Check(("privacy.shares", "privacy.pairs", "privacy.pairs[]"), budget.pairs),
    _Check(("privacy.pairs",), budget.pairs_twice),
    _Check(("privacy.pairs", "sampling.rake", "sampling.balance"), budget.pairs_unused),
    _Check(("privacy.pairs", "columns"), budget.pair_cells),
    _Check(
        ("privacy.shares", "graph.mode", "synthesizer.targets", "synthesizer.targets[]"),
        budget.targets,
    ),
    _Check(
        ("graph.mode", "synthesizer.targets", "synthesizer.hidden", "columns"),
        budget.target_levels,
    ),
    _Check(("dataset.rows", "synthesizer.batch"), dataset.batch),
    _Check(("synthesizer.sample", "synthesizer.batch", "privacy.adjacency"), dataset.sample),
    _Check(("dataset.rows", "attacks.membership"), dataset.attack_rows),
    _Check(("dataset.privacy_unit", "privacy.adjacency"), dataset.unit),
    _Check(("dataset.privacy_unit", "columns"), dataset.unit_column),
    _Check(("columns", "sampling.even"), even),
    _Check(("sampling.even", "sampling.rake", "sampling.balance"), even_unused),
    _Check(
        ("evaluation.targets", "evaluation.holdout", "evaluation.enabled"),
        estimands.test_rows,
    ),
    _Check(("evaluation.holdout", "evaluation.enabled"), budget.judged),
    _Check(
        ("evaluation.targets", "evaluation.targets[]", "evaluation.holdout", "evaluation.enabled"),
        budget.classified,
    ),
    _Check(("attacks.membership",), budget.attacked),
    _Check(
        (
            "columns",
            "evaluation.enabled",
            "evaluation.disclosure",
            "evaluation.targets",
            "evaluation.targets[]",
        ),
        budget.dp_scores,
    ),
    _Check(
        ("gates", "gates[]", "attacks.membership", "privacy.epsilon", "privacy.delta"),
        budget.decidable,
    ),
    _Check(
        ("evaluation.enabled", "evaluation.disclosure", "evaluation.disclosure_share"),
        estimands.disclosure,
    ),
    _Check(("columns", "evaluation.subgroups"), estimands.subgroups),
    _Check(("columns", "evaluation.effects"), estimands.effects),
    _Check(("privacy.shares", "estimands", "estimands[]"), estimands.share),
    _Check(("columns", "estimands"), estimands.figures),
    _Check(("columns", "estimands", "graph.mode", "graph.edges", "graph.latent"), estimands.each),
    _Check(("estimands", "dataset.source"), estimands.values),
    _Check(("columns",), derived),
    _Check(("columns",), column_names),
    _Check(("graph.groups",), group_names),
    _Check(("columns",), levels),
    _Check(("columns", "constraints"), impossible),
    _Check(("columns",), columns),
    _Check(("columns", "maps", "dataset.source"), value_maps),
    _Check(("dataset.source", "columns"), dataset.missing_texts),
    _Check(("dataset.source",), dataset.source),
    _Check(("dataset.source",), dataset.row_by_row),
    _Check(("dataset.source", "dataset.privacy_unit", "columns"), dataset.chosen),
    _Check(
        (
            "dataset.source",
            "dataset.privacy_unit",
            "evaluation.enabled",
            "graph.mode",
            "graph.algorithm",
        ),
        dataset.levels_only,
    ),
    _Check(("dataset.source", "dataset.privacy_unit", "compute"), dataset.engine),
    _Check(
        (
            "dataset.source",
            "compute",
            "evaluation.enabled",
            "graph.mode",
            "graph.algorithm",
            "estimands",
            "privacy.shares",
            "attacks.membership",
            "synthesizer",
        ),
        dataset.values,
    ),
    _Check(("privacy.ledger", "tracking.uri"), dataset.addresses),
    _Check(("columns", "graph.groups"), graphchecks.groups),
    _Check(("graph.tiers", "graph.tiers[]"), graphchecks.tiers),
    _Check(("columns", "graph.mode", "graph.algorithm"), graphchecks.ordered_levels),
    _Check(("graph.mode", "graph.algorithm", "graph.unseen_causes"), graphchecks.unseen_causes),
    _Check(("graph.edges",), graphchecks.loops),
    _Check(("graph.edges",), graphchecks.cycles),
    _Check(("graph.edges",), graphchecks.repeats),
    _Check(("graph.edges", "graph.forbidden"), graphchecks.contradictions),
    _Check(("graph.edges", "graph.tiers", "graph.tiers[]"), graphchecks.backward),
    _Check(("graph.mode", "graph.edges", "graph.edges[]"), graphchecks.needs_edges),
    _Check(
        (
            "graph.mode",
            "graph.edges",
            "graph.forbidden",
            "graph.tiers",
            "graph.groups",
            "graph.latent",
        ),
        graphchecks.no_effect,
    ),
    _Check(("graph.mode", "graph.edges", "graph.max_parents"), graphchecks.parents),
    _Check(
        ("graph.mode", "graph.groups", "graph.latent", "synthesizer.targets"), graphchecks.targets
    ),
    _Check(
        (
            "columns",
            "graph.mode",
            "graph.edges",
            "graph.edges[]",
            "graph.groups",
            "graph.groups[]",
            "synthesizer.targets",
        ),
        graphchecks.target_causes,
    ),
)


# --- traps ---
#
# Traps: specs that are valid, and that seldom give what their author wants.


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
        *query_warnings(spec),
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
