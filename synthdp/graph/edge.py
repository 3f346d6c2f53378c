"""A link of a causal graph: its columns, its direction, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from synthdp.errors import SynthdpError
from synthdp.graph.knowledge import Pair

Provenance = Literal[
    "given", "required", "learned", "supported", "refuted", "undecided", "predictive"
]
"""Where a link comes from.

`given`: the spec states it, or it lies inside a group. `required`: the spec demands it of a learned
graph. `learned`: a search found it. `supported`, `refuted` and `undecided`: what a validation says
of a given arrow; an `undecided` link that is undirected is a pair on which a search has no answer.
`predictive`: two columns depend on each other; the arrow is an order, and claims no cause. In a
learned graph these are undecided pairs that noisy tables show to be dependent.
"""
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)


@dataclass(frozen=True, order=True)
class GraphEdge:
    """A link and its provenance: cause -> effect if `directed`, else a - b of unknown direction.

    `probability` is that of the link, whatever its direction; None where a search does not tell.
    """

    cause: str
    effect: str
    directed: bool = field(kw_only=True)
    provenance: Provenance = field(kw_only=True)
    probability: float | None = field(default=None, kw_only=True)

    @property
    def pair(self) -> Pair:
        """(cause, effect)."""
        return self.cause, self.effect

    @property
    def structural(self) -> bool:
        """Whether the link is part of the graph.

        An undirected undecided link is not: it marks a pair on which the data gave no answer.
        """
        return self.directed or self.provenance != "undecided"

    def to_json(self) -> dict[str, Any]:
        """Its form in graph.json.

        >>> edge = GraphEdge("dose", "pain", directed=True, provenance="given")
        >>> edge == GraphEdge.from_json(edge.to_json())
        True
        """
        told = {} if self.probability is None else {"probability": self.probability}
        return {
            "from": self.cause,
            "to": self.effect,
            "directed": self.directed,
            "provenance": self.provenance,
        } | told

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraphEdge:
        """Read the form of `to_json`.

        Raises:
            SynthdpError: a value is not allowed.
            KeyError: a key is missing.
        """
        if data["provenance"] not in PROVENANCES or not isinstance(data["directed"], bool):
            raise SynthdpError(
                f"not an edge of a graph in JSON: {dict(data)}; provenance is one of"
                f" {', '.join(PROVENANCES)}"
            )
        told = data.get("probability")
        if told is not None and not (isinstance(told, int | float) and 0 <= told <= 1):
            raise SynthdpError(f"not a probability of an edge of a graph in JSON: {told!r}")
        return cls(
            str(data["from"]),
            str(data["to"]),
            directed=data["directed"],
            provenance=data["provenance"],
            probability=told,
        )
