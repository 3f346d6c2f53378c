"""How strong the data card says that the links of a graph are."""

from dataclasses import replace

import numpy as np

from synthdp.bundle import MAX_ARROWS, arrow_strengths, arrows_text
from synthdp.data import Domain
from synthdp.graph import CausalGraph, GraphEdge
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import Categorical

DOMAIN = Domain.from_spec(
    {name: Categorical(type="categorical", categories=("x", "y", "z")) for name in "abcd"}
)
GRAPH = CausalGraph(
    tuple("abcd"),
    (
        GraphEdge("a", "d", directed=True, provenance="given"),
        GraphEdge("a", "b", directed=True, provenance="supported"),
        GraphEdge("b", "c", directed=False, provenance="learned"),
        GraphEdge("c", "d", directed=False, provenance="undecided"),
    ),
)


def drawn() -> np.ndarray:
    """`b` is `a`, `c` is often `b`, `d` is alone."""
    rng = np.random.default_rng(1)
    a = rng.integers(0, 3, 3000)
    c = np.where(rng.random(3000) < 0.3, a, rng.integers(0, 3, 3000))
    return np.column_stack([a, a, c, rng.integers(0, 3, 3000)]).astype(np.uint16)


def test_the_strongest_link_comes_first() -> None:
    tables = [NoisyTable(("b", "a"), np.ones((3, 3)), 1.0)]
    found = arrow_strengths(GRAPH, drawn(), DOMAIN, tables)
    assert [s.edge.pair for s in found] == [("a", "b"), ("b", "c"), ("a", "d")]
    assert found[0].v == 1.0 and 0.2 < found[1].v < 0.4 and found[2].v < 0.1
    assert [s.measured for s in found] == [True, False, False]


def test_the_card_lists_few_and_counts_the_weak() -> None:
    found = arrow_strengths(GRAPH, drawn(), DOMAIN, [])
    text = arrows_text(found)
    assert "1 of 3 are weak (below 0.1)" in text
    assert "| a → b | 1.00 | no | drawn by the publisher; noisy tables support it |" in text
    assert "| b - c | " in text and "more have" not in text
    many = [replace(found[0], v=0.5)] * MAX_ARROWS + [replace(found[0], v=0.25)] * 4
    text = arrows_text(many)
    assert "4 more have a V of 0.25 or less." in text and "0 of 19 are weak" in text
    assert arrows_text(()) == ""
