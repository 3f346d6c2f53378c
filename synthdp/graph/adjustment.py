"""The columns that an effect is adjusted for, by a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from synthdp.graph.causal import CausalGraph
from synthdp.graph.pag import unsettled
from synthdp.spec.expressions.expressions import parse

if TYPE_CHECKING:
    from synthdp.spec.model import Column, Effect


def adjustment(
    effect: Effect, columns: Mapping[str, Column], graph: CausalGraph
) -> tuple[tuple[str, ...], str]:
    """The adjustment set of `effect`, and a remark that qualifies it.

    It is the spec's choice, or else the treatment's parents in the graph. They block every
    back-door path (J. Pearl, "Causality", 2nd ed. 2009, theorem 3.2.2), where no common cause is
    latent. Columns of the treatment's group are not its parents: the group is one node. Where the
    outcome is a parent of the treatment, there is no effect to estimate and the set is empty. Where
    arrows of the treatment only predict, parents may be no causes: the remark says so.
    """
    if effect.adjust is not None:
        return effect.adjust, "adjusted as the spec says"
    parsed, _ = parse(effect.treated, columns)
    treatment = set(parsed.columns if parsed else ())
    treatment |= {n for group in graph.groups.values() if treatment & set(group) for n in group}
    causes = {p for t in treatment if t in graph.nodes for p in graph.parents(t)} - treatment
    if any(e.provenance == "predictive" and treatment & set(e.pair) for e in graph.edges):
        predictors = tuple(n for n in graph.nodes if n in causes - {effect.outcome})
        return predictors, "adjusted for what predicts the treatment: some arrows are no causes"
    if effect.outcome in causes:
        return (), "the graph holds the outcome for a cause of the treatment: this is no effect"
    adjusted = tuple(n for n in graph.nodes if n in causes)
    if any(unsettled(graph.pag or (), name) for name in treatment):
        return adjusted, "unseen causes may confound the treatment: the search does not exclude it"
    if any(treatment & set(names) and effect.outcome in names for names in graph.latent):
        return adjusted, "the graph has an unseen common cause of treatment and outcome"
    return adjusted, ""
