"""Every file of a bundle that came out of rows carries the receipts of all that it shows."""

from dataclasses import replace
from typing import Any

from synthdp.bundle import CSV_NAME, PARQUET_NAME, REPORT, receipts_of
from synthdp.privacy.private import _KERNEL_KEY, Receipt, Released
from synthdp.spec.model import AskedEstimand


def test_a_graph_that_was_learned_is_paid_for_wherever_it_is_shown(release: Any) -> None:
    graph = release.content.graph
    learned = replace(graph, edges=tuple(replace(e, provenance="learned") for e in graph.edges))
    paid = Receipt(release.content.run, "graph")
    given, found = (
        receipts_of(replace(release.content, graph=own))
        for own in (graph, Released(learned, frozenset({paid}), key=_KERNEL_KEY))
    )
    assert learned.edges and {name for name, receipts in found.items() if paid in receipts} == {
        "DATACARD.md",
        "graph.json",
        "graph.svg",
        REPORT,
    }
    assert {name: receipts - {paid} for name, receipts in found.items() if name in given} == given
    assert given[REPORT] >= given[CSV_NAME] == given[PARQUET_NAME]
    assert given[REPORT] >= given["marginals.json"]


def test_figures_of_estimands_are_paid_for_wherever_they_are_shown(release: Any) -> None:
    asked = AskedEstimand(kind="question", ask="share(smoker)")
    spec = release.content.spec.model_copy(update={"estimands": (asked,)})
    paid = Receipt(release.content.run, "estimand")
    figures = Released({"estimands": [], "sums": {}}, frozenset({paid}), key=_KERNEL_KEY)
    given = receipts_of(release.content)
    found = receipts_of(replace(release.content, spec=spec, estimands=figures))
    assert found["estimands.json"] == {paid}
    assert found[REPORT] == given[REPORT] | {paid}
    assert {name: own for name, own in found.items() if paid not in own} == {
        name: own for name, own in given.items() if name != REPORT
    }
