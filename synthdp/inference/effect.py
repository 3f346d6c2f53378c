"""The effect of one column on another: identified in the graph, estimated from noisy tables.

The graph says which columns to adjust for (`adjustment.py`), the tables say what the effect is
then (`effect_query.py`). An effect is measured (tier A) where one table has all the columns, and
else of the model alone (tier C): several tables never determine it [derived in docs/inference.md].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from synthdp.bundle.noisy_values import MARGINALS, level_law
from synthdp.data.domain import Domain
from synthdp.errors import OutputError
from synthdp.files import check_sums, read_text
from synthdp.graph.causal import NO_CAUSES, CausalGraph
from synthdp.graph.formats import read_graph
from synthdp.graph.knowledge import Knowledge
from synthdp.graph.pag import PagLink, causes, unsettled
from synthdp.inference.adjustment import Adjustment, Reading, TooOpen, choose, readings, refuse_none
from synthdp.inference.answer import check_agreement
from synthdp.inference.effect_query import Contrast, EffectQuery, Strata, contrast
from synthdp.inference.estimands import paid_about
from synthdp.inference.figures import Figure, Interval, Rows
from synthdp.inference.least_squares import LeastSquares, Measured, measured
from synthdp.inference.model_only import TABLE, model_effects
from synthdp.inference.words import about_figures, about_graph, effect_text
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.load.loader import linked_in, load_spec
from synthdp.spec.model import ReleaseSpec

ASSUME_HINT = (
    "give --adjust with all columns that confound the two, or --adjust none: the answer then rests"
    " on that; or draw a causal graph and release with graph.mode given or validate"
)


@dataclass(frozen=True)
class EffectAnswer:
    """The effect of each level of the treatment against the reference.

    `tier` is A (measured) or C (model only, without intervals). `adjusted` has the sets of columns
    that were adjusted for: one, or one for each way to read the graph. `about` says what was
    assumed. `unit` is that of a mean, where the spec declares one.
    """

    query: EffectQuery
    tier: Literal["A", "C"]
    contrasts: tuple[Contrast, ...]
    adjusted: tuple[tuple[str, ...], ...]
    about: tuple[str, ...]
    unit: str | None = None

    @property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(found.figure for found in self.contrasts)

    def to_json(self) -> dict[str, Any]:
        query = self.query
        return {
            "query": query.text,
            "treatment": query.treatment,
            "outcome": query.outcome,
            "outcome_level": query.level,
            "reference": query.reference,
            "tier": self.tier,
            "level": 0.95,
            "unit": self.unit,
            "adjusted": list(map(list, self.adjusted)),
            "contrasts": [found.to_json() for found in self.contrasts],
            "about": list(self.about),
        }

    def __str__(self) -> str:
        return effect_text(self.query, self.tier, self.contrasts, self.about, self.unit)


def effect_of_bundle(bundle: Path, query: EffectQuery) -> EffectAnswer:
    """The effect that the bundle in a folder shows.

    Raises:
        OutputError: a name or level is unknown, the graph claims no causes or does not identify the
            effect, or the columns to adjust for do not in this graph.
        VerifyError: a file was changed, or cannot be read, or the tables do not agree.
    """
    check_sums(bundle, ("spec.yaml", MARGINALS, "graph.json"))
    if linked_in(read_text(bundle / "spec.yaml"), path="spec.yaml") is not None:
        from synthdp.inference.visit_effects import effect_of_visits

        return effect_of_visits(bundle, query)
    spec = load_spec(bundle / "spec.yaml")
    query, domain, graph = query.checked(spec), Domain.from_spec(spec.columns), read_graph(bundle)
    tables = level_law(bundle, domain, margins=False).tables
    adjustment, found = adjustment_for(query, spec, graph, domain, tables)
    sets = [(query.treatment, query.outcome, *names) for names in adjustment.sets]
    grouped = not all(any(table.has(names) for table in tables) for names in sets)
    known = [measured(tables, domain, names, grouped=grouped) for names in sets]
    whole = all(cells.whole for cells in known)
    if not whole:
        check_sums(bundle, (TABLE,))
    for cells in known if whole else ():
        check_agreement(LeastSquares(cells).agreement(), bundle, [c.name for c in cells.columns])
    each = [_contrasts(query, cells, None if whole else bundle, spec) for cells in known]
    joined = tuple(_joined(of, adjustment.none) for of in zip(*each, strict=True))
    labels = known[0].columns[0].labels
    query = replace(query, reference=labels[query.levels(known[0].columns[0])[1]])
    said = (
        *about_graph(query, spec, graph, adjustment, found),
        *about_figures(query, spec, known, joined, tables),
        *paid_about(spec, query.outcome),
    )
    unit = spec.columns[query.outcome].unit if query.level is None else None
    return EffectAnswer(query, "A" if whole else "C", joined, adjustment.sets, said, unit)


def _contrasts(
    query: EffectQuery, cells: Measured, bundle: Path | None, spec: ReleaseSpec
) -> list[Contrast]:
    """Each level against the reference, by tables, or by a `bundle`'s rows without intervals."""
    levels, reference = query.levels(cells.columns[0])
    if bundle is None:
        numbers = query.numbers(cells.columns[1])
        strata = Strata(LeastSquares(cells), numbers, Rows.of_spec(spec))
        return [contrast(strata, level, reference) for level in levels]
    outcome = cells.columns[1].labels.index(query.level) if query.level is not None else None
    pairs = [(level, reference) for level in levels]
    return list(map(Contrast, model_effects(bundle, cells.columns, outcome, pairs)))


def adjustment_for(
    query: EffectQuery,
    spec: ReleaseSpec,
    graph: CausalGraph,
    domain: Domain,
    tables: Sequence[NoisyTable],
) -> tuple[Adjustment, list[Reading]]:
    """What to adjust for, and the readings of the graph: none where it claims no causes.

    Raises:
        OutputError: the effect is not identified, or the stated columns do not identify it.
    """
    t, y = query.treatment, query.outcome
    if spec.graph.mode in ("none", "predict") or graph.predictive:
        if query.adjust is None:
            raise OutputError(NO_CAUSES, hint="; ".join([ASSUME_HINT, *paid_about(spec, y)]))
        return Adjustment((query.adjust,)), []
    for names in graph.groups.values():
        if t in names:
            raise OutputError(
                f"{t} shares a node of the graph with {', '.join(n for n in names if n != t)}: what"
                f" {t} does alone is not said",
                hint="take it out of graph.groups, draw its arrows, and release again",
            )
    if graph.pag is not None:
        return adjustment_unseen(query, graph.pag), []
    knowledge = Knowledge.from_spec(spec.graph, domain.names)
    try:
        found = readings(graph, knowledge, t, y, query.adjust or ())
    except TooOpen:
        if query.adjust is None:
            raise
        return Adjustment((query.adjust,)), []
    refuse_none(found)
    if query.adjust is None:
        sizes = {c.name: c.levels for c in domain.columns if c.name not in (t, y)}
        return choose(found, [table.columns for table in tables], sizes), found
    for reading in found:
        if not reading.valid(query.adjust):
            raise OutputError(
                f"adjusting for {', '.join(query.adjust) or 'nothing'} does not give the effect of"
                f" {t} on {y} in this graph{reading.supposed}: {reading.fault(query.adjust)}",
                hint="leave --adjust out, and columns are chosen that do, if there are any",
            )
    return Adjustment((query.adjust,), readings=len(found)), found


def adjustment_unseen(query: EffectQuery, links: Sequence[PagLink]) -> Adjustment:
    """What to adjust for where causes may be unseen: the treatment's, if that is settled."""
    t, y = query.treatment, query.outcome
    if query.adjust is not None:
        return Adjustment((query.adjust,))
    unclear, known = unsettled(links, t), causes(links, t)
    if unclear or y in known:
        shown = ", ".join(map(str, unclear)) or f"{y} is a cause of {t}"
        raise OutputError(
            f"the effect of {t} on {y} is not identified where causes may be unseen: {shown}",
            hint="say by --adjust which columns are all that confounds them, if that is known",
        )
    return Adjustment((tuple(sorted(known)),))


def _joined(found: Sequence[Contrast], none: bool) -> Contrast:
    """One contrast that allows for each adjustment set, and for no effect where that may be."""
    refused = [c for c in found if c.figure.estimate is None]
    if refused or (len(found) == 1 and not none):
        return (refused or found)[0]
    zero = [0.0] if none else []
    estimates = [float(c.figure.estimate or 0) for c in found] + zero

    def span(name: str, more: list[float]) -> Interval | None:
        ends = [float(v) for c in found for v in getattr(c.figure, name) or ()]
        return (min(ends + more), max(ends + more)) if ends or name == "bounds" else None

    figure = replace(
        found[0].figure,
        estimate=(min(estimates) + max(estimates)) / 2,
        interval=span("interval", zero),
        of_rows=span("of_rows", zero),
        bounds=span("bounds", estimates),
    )
    left = max(found, key=lambda c: c.left_share)
    return Contrast(figure, left_out=left.left_out, left_share=left.left_share)
