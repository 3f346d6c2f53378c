"""Whether a bundle's graph says what an intervention does.

Arrows of mode predict claim no cause. A learned graph may have predictive arrows, too, where the
search had no answer on a pair that its tables show to be dependent, and any graph may have links of
unknown direction: an intervention that rests on one is refused. Where the tables show no
dependence, the pair is drawn as independent, and a warning says so. A graph that allows for unseen
causes has marks (`graph.pag`): an intervention whose effects they do not settle is refused, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from synthdp.errors import OutputError
from synthdp.graph.causal import CausalGraph, GraphEdge
from synthdp.graph.pag import PagLink, causes, unsettled

NO_CAUSES = "nothing can be intervened on: the arrows of this graph predict, and are no causes"
NO_CAUSES_HINT = (
    "condition with --given instead, or draw a causal graph and release with graph.mode given or"
    " validate"
)
UNANSWERED_HINT = (
    "say what is known of these pairs in graph.edges or graph.forbidden, or give the search more"
    " budget or rows, and release again; --given conditions without a claim of causes"
)
UNDIRECTED_HINT = (
    "`synthdp effect` tells the effects in both directions; or say what is known of these pairs in"
    " graph.edges, graph.tiers or graph.forbidden, and release again; --given conditions without a"
    " claim of causes"
)
UNSEEN_HINT = (
    "draw the arrows that are known to be without an unseen common cause, and release again with"
    " graph.mode given or validate; --given conditions without a claim of causes"
)
MAX_PAIRS = 5
"""Pairs of columns that a message names."""


def check_interventions(graph: CausalGraph, columns: Sequence[str]) -> None:
    """Refuse an intervention on `columns` that rests on links that claim no cause.

    Raises:
        OutputError: it does.
    """
    if not columns:
        return
    if graph.predictive:
        raise OutputError(NO_CAUSES, hint=NO_CAUSES_HINT)
    links = [e for e in graph.unanswered(columns) if e.structural]
    loose = [e for e in links if not e.directed]
    if loose:
        raise OutputError(
            f"nothing shows which is the cause of {_named(loose)}; an intervention on"
            f" {', '.join(columns)} rests on that",
            hint=UNDIRECTED_HINT,
        )
    if links:
        raise OutputError(
            f"the search left open whether one causes the other: {_named(links)}; an intervention"
            f" on {', '.join(columns)} rests on that",
            hint=UNANSWERED_HINT,
        )
    if graph.pag is not None:
        for column in columns:
            _refuse_unseen(graph, graph.pag, column)


def _refuse_unseen(graph: CausalGraph, links: Sequence[PagLink], column: str) -> None:
    """Refuse an intervention whose effects an unseen common cause may make up."""
    unclear = unsettled(links, column)
    if unclear:
        named = ", ".join(map(str, unclear[:MAX_PAIRS]))
        more = f" and {len(unclear) - MAX_PAIRS} more" if len(unclear) > MAX_PAIRS else ""
        raise OutputError(
            f"an unseen common cause may explain what {column} has in common with others:"
            f" {named}{more} (graph.unseen_causes); the search does not say what an intervention on"
            f" {column} does",
            hint=UNSEEN_HINT,
        )
    if causes(links, column) != {*graph.parents(column)}:
        raise OutputError(
            f"the model draws {column} by other columns than its causes, where unseen causes are"
            " allowed for (graph.unseen_causes): its rows do not show what an intervention does",
            hint=UNSEEN_HINT,
        )


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
    named = ", ".join(f"{e.cause} and {e.effect}" for e in links[:MAX_PAIRS])
    more = len(links) - MAX_PAIRS
    return f"{named} and {more} more pairs" if more > 0 else named
