"""Whether a bundle's graph says what an intervention does.

Arrows of mode predict claim no cause. A learned graph may have predictive arrows, too, where the
search had no answer on a pair that its tables show to be dependent: an intervention that rests on
one is refused. Where the tables show no dependence, the pair is drawn as independent, and a warning
says so. A graph that allows for unseen causes has marks (`graph.pag`): an intervention whose
effects they do not settle is refused, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from synthdp.data.kinds.kind import some
from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.pag import causes, unsettled

NO_CAUSES = "nothing can be intervened on: the arrows of this graph predict, and are no causes"
UNSEEN_HINT = (
    "draw the arrows that are known to be without an unseen common cause, and release again with"
    " graph.mode given or validate; --given conditions without a claim of causes"
)


def check_interventions(graph: CausalGraph, columns: Sequence[str]) -> None:
    """Refuse an intervention on `columns` that rests on arrows that claim no cause.

    Raises:
        OutputError: it does.
    """
    if not columns:
        return
    if graph.predictive:
        hint = "condition with --given instead, or draw a causal graph and release with graph.mode"
        raise OutputError(NO_CAUSES, hint=f"{hint} given or validate")
    links = [e for e in graph.unanswered(columns) if e.structural]
    if links:
        raise OutputError(
            f"the search left open whether one causes the other: {_named(links)}; an intervention"
            f" on {', '.join(columns)} rests on that",
            hint="say what is known of these pairs in graph.edges or graph.forbidden, or give the"
            " search more budget or rows, and release again; --given conditions without a claim of"
            " causes",
        )
    if graph.pag is None:
        return
    for column in columns:
        if unclear := unsettled(graph.pag, column):
            named = some([*map(str, unclear)], ", ", 5)
            message = (
                f"an unseen common cause may explain what {column} has in common with others:"
                f" {named} (graph.unseen_causes); the search does not say what an intervention on"
                f" {column} does"
            )
            raise OutputError(message, hint=UNSEEN_HINT)
        if causes(graph.pag, column) != {*graph.parents(column)}:
            message = (
                f"the model draws {column} by other columns than its causes, where unseen causes"
                " are allowed for (graph.unseen_causes): its rows do not show what an intervention"
                " does"
            )
            raise OutputError(message, hint=UNSEEN_HINT)


def intervention_warning(graph: CausalGraph, columns: Sequence[str]) -> str | None:
    """What to know of rows under an intervention on `columns`; None if there is nothing.

    Nothing is said of one that is refused.

    >>> link = GraphEdge("dose", "pain", directed=False, provenance="undecided")
    >>> print(intervention_warning(CausalGraph(("dose", "pain"), (link,)), ["dose"]))
    the search had no answer on dose and pain: drawn as independent, which is no finding
    """
    links = graph.unanswered(columns)
    if not links or any(e.structural for e in links):
        return None
    return f"the search had no answer on {_named(links)}: drawn as independent, which is no finding"


def _named(links: Sequence[GraphEdge]) -> str:
    """Pairs of columns in words, the first few."""
    named = some([f"{e.cause} and {e.effect}" for e in links], ", ", 5)
    return f"{named} pairs" if len(links) > 5 else named
