"""Checks that need two parts of a spec. All of them run, so that all mistakes are listed at once.

The loader also runs them on incomplete specs. It then names what is `lost`: a section,
`section.field`, or `section.field[]` for a list that lacks entries. A check that reads a lost part
is left out. A wrong column is not lost: it keeps its name, and as `Unread` it has no values that a
check could object to. `synthdp.spec.load.names` looks up the names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks import budget as budgetchecks
from synthdp.spec.checks import columns as columnchecks
from synthdp.spec.checks import dataset as datasetchecks
from synthdp.spec.checks import derived as derivedchecks
from synthdp.spec.checks import engine as enginechecks
from synthdp.spec.checks import estimands as estimandchecks
from synthdp.spec.checks import evaluation as evaluationchecks
from synthdp.spec.checks import gates as gatechecks
from synthdp.spec.checks import graph as graphchecks
from synthdp.spec.checks import sampling as samplingchecks
from synthdp.spec.checks import source_query as querychecks
from synthdp.spec.checks.possible import impossible
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.load.names import MAX_TOLD, name_problems, written
from synthdp.spec.model import ReleaseSpec


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
    _Check(("dataset.rows", "privacy.delta"), budgetchecks.delta),
    _Check(("privacy.epsilon", "privacy.cap"), budgetchecks.cap),
    _Check(("privacy.shares", "graph.mode"), budgetchecks.shares),
    _Check(("privacy.shares", "graph.mode"), budgetchecks.graph_share),
    _Check(("privacy.shares", "privacy.pairs", "privacy.pairs[]"), budgetchecks.pairs),
    _Check(("privacy.pairs",), budgetchecks.pairs_twice),
    _Check(("privacy.pairs", "sampling.rake", "sampling.balance"), budgetchecks.pairs_unused),
    _Check(("privacy.pairs", "columns"), budgetchecks.pair_cells),
    _Check(
        ("privacy.shares", "graph.mode", "synthesizer.targets", "synthesizer.targets[]"),
        budgetchecks.targets,
    ),
    _Check(
        ("graph.mode", "synthesizer.targets", "synthesizer.hidden", "columns"),
        budgetchecks.target_levels,
    ),
    _Check(("dataset.rows", "synthesizer.batch"), datasetchecks.batch),
    _Check(("synthesizer.sample", "synthesizer.batch", "privacy.adjacency"), datasetchecks.sample),
    _Check(("dataset.rows", "attacks.membership"), datasetchecks.attack_rows),
    _Check(("dataset.privacy_unit", "privacy.adjacency"), datasetchecks.unit),
    _Check(("dataset.privacy_unit", "columns"), datasetchecks.unit_column),
    _Check(("columns", "sampling.even"), samplingchecks.even),
    _Check(("sampling.even", "sampling.rake", "sampling.balance"), samplingchecks.even_unused),
    _Check(
        ("evaluation.targets", "evaluation.holdout", "evaluation.enabled"),
        evaluationchecks.test_rows,
    ),
    _Check(("evaluation.holdout", "evaluation.enabled"), gatechecks.judged),
    _Check(
        ("evaluation.targets", "evaluation.targets[]", "evaluation.holdout", "evaluation.enabled"),
        gatechecks.classified,
    ),
    _Check(("attacks.membership",), gatechecks.attacked),
    _Check(
        (
            "columns",
            "evaluation.enabled",
            "evaluation.disclosure",
            "evaluation.targets",
            "evaluation.targets[]",
        ),
        gatechecks.dp_scores,
    ),
    _Check(
        ("gates", "gates[]", "attacks.membership", "privacy.epsilon", "privacy.delta"),
        gatechecks.decidable,
    ),
    _Check(
        ("evaluation.enabled", "evaluation.disclosure", "evaluation.disclosure_share"),
        evaluationchecks.disclosure,
    ),
    _Check(("columns", "evaluation.subgroups"), evaluationchecks.subgroups),
    _Check(("columns", "evaluation.effects"), evaluationchecks.effects),
    _Check(("privacy.shares", "estimands", "estimands[]"), estimandchecks.share),
    _Check(("columns", "estimands"), estimandchecks.figures),
    _Check(
        ("columns", "estimands", "graph.mode", "graph.edges", "graph.latent"), estimandchecks.each
    ),
    _Check(("estimands", "dataset.source"), estimandchecks.values),
    _Check(("columns",), derivedchecks.derived),
    _Check(("columns",), columnchecks.column_names),
    _Check(("graph.groups",), columnchecks.group_names),
    _Check(("columns",), columnchecks.levels),
    _Check(("columns", "constraints"), impossible),
    _Check(("columns",), columnchecks.columns),
    _Check(("columns", "maps", "dataset.source"), columnchecks.value_maps),
    _Check(("dataset.source", "columns"), datasetchecks.missing_texts),
    _Check(("dataset.source",), datasetchecks.source),
    _Check(("dataset.source",), querychecks.row_by_row),
    _Check(("dataset.source", "dataset.privacy_unit", "columns"), datasetchecks.chosen),
    _Check(
        (
            "dataset.source",
            "dataset.privacy_unit",
            "evaluation.enabled",
            "graph.mode",
            "graph.algorithm",
        ),
        datasetchecks.levels_only,
    ),
    _Check(("dataset.source", "dataset.privacy_unit", "compute"), enginechecks.engine),
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
        enginechecks.values,
    ),
    _Check(("privacy.ledger", "tracking.uri"), datasetchecks.addresses),
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
