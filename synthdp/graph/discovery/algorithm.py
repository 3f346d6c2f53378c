"""The interface of a discovery algorithm: planned spends, and a search that they alone pay for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.privacy.mechanisms.mechanism import Mechanism
from synthdp.privacy.plan import MechanismFactory, ReleasePlan
from synthdp.privacy.private import Released
from synthdp.spec.model import Graph

T = TypeVar("T")


class Releaser(Protocol):
    """The source of paid-for values: `privacy.session.Session` or a rehearsal."""

    @property
    def plan(self) -> ReleasePlan: ...
    def release(self, mechanism: Mechanism[T], *, purpose: str) -> Released[T]: ...


@dataclass(frozen=True)
class Algorithm:
    """One way to learn a graph.

    `spends(settings, domain, rows)` names what the search may release and how each part is planned;
    `rows` is the declared number of rows that a fit is expected to see.
    `search(releaser, settings, domain)` releases some of it under the purposes "graph: <name>". It
    returns the graph, released unless it cost nothing. Whatever the rows are, it releases nothing
    else.
    """

    spends: Callable[[Graph, Domain, float], Mapping[str, MechanismFactory]]
    search: Callable[[Releaser, Graph, Domain], Released[CausalGraph] | CausalGraph]
