"""Checks that need two parts of a spec. All of them run, so that every mistake is told at once.

The loader runs them on incomplete specs too: then it names what is `lost` (a section,
`section.field`, or `section.field[]` for a list that lacks entries), and a check that reads a lost
part is left out. A wrong column is none: it keeps its name, and as `Unread` it has no values that
any check could object to. Names are looked up in `namechecks`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from synthdp.errors import SpecError, SpecProblem
from synthdp.spec.checks import budget as budgetchecks
from synthdp.spec.checks import derived as derivedchecks
from synthdp.spec.checks import evaluation as evaluationchecks
from synthdp.spec.checks import gates as gatechecks
from synthdp.spec.checks import graph as graphchecks
from synthdp.spec.checks.possible import impossible
from synthdp.spec.checks.problem import CrossProblem
from synthdp.spec.expressions.expressions import parse
from synthdp.spec.load.names import MAX_TOLD, name_problems, written
from synthdp.spec.model import (
    ADDRESS,
    CONTROL,
    CsvSource,
    IdUnit,
    ReleaseSpec,
    rules,
    starts_formula,
)
from synthdp.spec.model.fields import alike
from synthdp.spec.syntax import Loc

MAX_LEVELS = 65_536  # over all columns together: the width of the one-hot row that the model reads


def check(spec: ReleaseSpec) -> ReleaseSpec:
    """The spec itself, if its parts fit together; for specs that were built in Python rather than
    loaded.

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
    """Every mistake between the parts of `spec` but unknown names. Checks that read a part named in
    `lost` are left out.
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


def _batch(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    rows = spec.dataset.rows.value
    if spec.synthesizer.batch > rows:
        message = f"got {spec.synthesizer.batch}, more than the declared {rows} rows"
        yield CrossProblem(
            ("synthesizer", "batch"),
            message,
            f"leave it out, or set it to a part of the rows, e.g. {rules.batch(rows)}",
        )


def _attack_rows(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    attack, rows = spec.attacks.membership, spec.dataset.rows.value
    if attack.enabled and attack.rows > rows:
        hint = "set attacks.membership.rows lower, or enabled: false"
        yield CrossProblem(
            ("attacks", "membership", "rows"),
            f"got {attack.rows}, more than the declared {rows} rows",
            hint,
        )


def _unit(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    unit = spec.dataset.privacy_unit
    if isinstance(unit, IdUnit) and unit.max_rows > 1 and spec.privacy.adjacency == "replace_one":
        message = f"replace_one cannot be used where one unit has up to {unit.max_rows} rows"
        yield CrossProblem(("privacy", "adjacency"), message, "use add_remove")


def _unit_column(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    unit = spec.dataset.privacy_unit
    if isinstance(unit, IdUnit) and unit.column in spec.columns:
        message = (
            f"column {unit.column!r} is also listed under columns; an id is never modelled or"
            " released"
        )
        yield CrossProblem(
            ("dataset", "privacy_unit", "column"), message, f"delete {unit.column!r} from columns"
        )


def _even(spec: ReleaseSpec) -> Iterator[CrossProblem]:
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


def _even_unused(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    if spec.sampling.even and not (spec.sampling.rake and spec.sampling.balance):
        off = "rake" if not spec.sampling.rake else "balance"
        yield CrossProblem(
            ("sampling", "even"),
            f"columns are drawn again after rows were chosen, which {off}: false turns off",
            f"delete {off}",
        )


def _test_rows(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    evaluation = spec.evaluation
    if evaluation.targets and evaluation.enabled and evaluation.holdout == 0:
        yield CrossProblem(
            ("evaluation", "holdout"),
            "got 0; classifiers for the targets need test rows",
            "e.g. holdout: 0.2",
        )


def _column_names(spec: ReleaseSpec) -> Iterator[CrossProblem]:
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


def _group_names(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    for name in spec.graph.groups:
        yield from _plain_name(("graph", "groups", name), name, "rename the group")


def _plain_name(where: Loc, name: str, hint: str) -> Iterator[CrossProblem]:
    if CONTROL.search(name):
        yield CrossProblem(where, "the name holds a control character or a line break", hint)
    elif name != name.strip():
        yield CrossProblem(where, "the name begins or ends with a space", hint)


def _levels(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    total = sum(column.level_count for column in spec.modelled.values())
    if total > MAX_LEVELS:
        message = (
            f"all columns together have {total:,} levels; at most {MAX_LEVELS:,} fit into the model"
        )
        yield CrossProblem(("columns",), message, "use fewer bins, or merge rare categories")


def _columns(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    for name, column in spec.columns.items():
        for field, message, hint in column.mistakes():
            yield CrossProblem(("columns", name, field), message, hint)


def _missing_texts(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    source = spec.dataset.source
    missing = source.missing_values if isinstance(source, CsvSource) else ()
    for i, text in enumerate(missing):
        if "\n" in text or "\r" in text:
            yield CrossProblem(
                ("dataset", "source", "missing_values", i),
                "a line break cannot stand for a missing value: a row of a CSV file is one line",
                "delete it",
            )
    for name, column in spec.columns.items():
        for where, text in column.texts():
            if text in missing:
                hint = (
                    "delete the category and set missing: true, or take the text out of"
                    " missing_values"
                )
                yield CrossProblem(
                    ("columns", name, *where),
                    f"category {text!r} also stands for a missing value"
                    " (dataset.source.missing_values)",
                    hint,
                )
            elif text == "missing" and column.missing:
                hint = (
                    "rename the category, or list 'missing' in dataset.source.missing_values and"
                    " delete it here"
                )
                yield CrossProblem(
                    ("columns", name, *where),
                    "category 'missing' cannot be told from the state of missing values",
                    hint,
                )


def _source(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    path = getattr(spec.dataset.source, "path", None)
    where = ("dataset", "source")
    if path is not None and (not path or CONTROL.search(path)):
        yield CrossProblem(
            (*where, "path"),
            "a path cannot be empty or hold control characters",
            "give the file's path, relative to this spec's folder",
        )
    elif path is not None and ADDRESS.match(path):
        yield CrossProblem(
            (*where, "path"),
            "an address or a home folder is not read, only a local file",
            "copy the file here and give its path",
        )
    delimiter = getattr(spec.dataset.source, "delimiter", ",")
    if delimiter in '"\r\n':
        yield CrossProblem(
            (*where, "delimiter"),
            f"{delimiter!r} cannot part the fields of a CSV file",
            'use ",", ";", "|" or "\\t"',
        )


def _levels_only(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    """A table read as levels keeps no values, and no unit but a row can be followed through its
    batches.
    """
    if not getattr(spec.dataset.source, "levels_only", False):
        return
    message = "levels_only keeps no values"
    if spec.evaluation.enabled:
        yield CrossProblem(
            ("evaluation", "enabled"),
            f"{message}, and judging reads them",
            "set evaluation.enabled: false, or leave out levels_only",
        )
    if spec.graph.mode == "learn" and spec.graph.algorithm == "rcit_pc":
        yield CrossProblem(
            ("graph", "algorithm"),
            f"{message}, and rcit_pc reads them",
            "use measured_pc, or leave out levels_only",
        )
    if isinstance(spec.dataset.privacy_unit, IdUnit):
        hint = "leave out levels_only, or let every row be a unit"
        yield CrossProblem(
            ("dataset", "privacy_unit"),
            "levels_only reads rows in batches, and the rows of a unit may lie in many",
            hint,
        )


def _addresses(spec: ReleaseSpec) -> Iterator[CrossProblem]:
    for where, text in (
        (("privacy", "ledger"), spec.privacy.ledger),
        (("tracking", "uri"), spec.tracking.uri),
    ):
        if text is not None and (not text or CONTROL.search(text)):
            yield CrossProblem(
                where,
                "an address cannot be empty or hold control characters",
                "leave the key out for the default beside the spec",
            )


CHECKS = (
    _Check(("dataset.rows", "privacy.delta"), budgetchecks.delta),
    _Check(("privacy.epsilon", "privacy.cap"), budgetchecks.cap),
    _Check(("privacy.shares",), budgetchecks.shares),
    _Check(("privacy.shares", "graph.mode"), budgetchecks.graph_share),
    _Check(("privacy.shares", "privacy.pairs", "privacy.pairs[]"), budgetchecks.pairs),
    _Check(("privacy.pairs",), budgetchecks.pairs_twice),
    _Check(("privacy.pairs", "sampling.rake", "sampling.balance"), budgetchecks.pairs_unused),
    _Check(("privacy.pairs", "columns"), budgetchecks.pair_cells),
    _Check(
        ("privacy.shares", "synthesizer.targets", "synthesizer.targets[]"), budgetchecks.targets
    ),
    _Check(("synthesizer.targets", "synthesizer.hidden", "columns"), budgetchecks.target_levels),
    _Check(("dataset.rows", "synthesizer.batch"), _batch),
    _Check(("dataset.rows", "attacks.membership"), _attack_rows),
    _Check(("dataset.privacy_unit", "privacy.adjacency"), _unit),
    _Check(("dataset.privacy_unit", "columns"), _unit_column),
    _Check(("columns", "sampling.even"), _even),
    _Check(("sampling.even", "sampling.rake", "sampling.balance"), _even_unused),
    _Check(("evaluation.targets", "evaluation.holdout", "evaluation.enabled"), _test_rows),
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
    _Check(("columns",), derivedchecks.derived),
    _Check(("columns",), _column_names),
    _Check(("graph.groups",), _group_names),
    _Check(("columns",), _levels),
    _Check(("columns", "constraints"), impossible),
    _Check(("columns",), _columns),
    _Check(("dataset.source", "columns"), _missing_texts),
    _Check(("dataset.source",), _source),
    _Check(
        (
            "dataset.source",
            "dataset.privacy_unit",
            "evaluation.enabled",
            "graph.mode",
            "graph.algorithm",
        ),
        _levels_only,
    ),
    _Check(("privacy.ledger", "tracking.uri"), _addresses),
    _Check(("columns", "graph.groups"), graphchecks.groups),
    _Check(("graph.tiers", "graph.tiers[]"), graphchecks.tiers),
    _Check(("columns", "graph.mode", "graph.algorithm"), graphchecks.ordered_levels),
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
        graphchecks.mode_none,
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
