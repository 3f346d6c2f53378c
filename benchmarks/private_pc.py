"""One private graph search on made-up rows, planned and charged as in a release: what the discovery
benchmark calls.
"""

from __future__ import annotations

from dataclasses import replace

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery import algorithm_named
from synthdp.privacy.calibration import make_search_plan
from synthdp.privacy.events import Adjacency
from synthdp.privacy.session import Rehearsal
from synthdp.spec.model import Graph


def run(
    algorithm: str,
    codes: Codes,
    domain: Domain,
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    level: float = 0.05,
) -> CausalGraph:
    """The graph that an algorithm of `graph.algorithm` finds in `codes` `[rows, columns]`, the
    whole budget spent on it.

    Levels count as ordered as listed, which is how the published code of Priv-PC and EM-PC reads
    the same files.
    """
    ordered = Domain(
        tuple(replace(c, type="ordinal") if c.type == "categorical" else c for c in domain.columns)
    )
    settings = Graph(mode="learn", algorithm=algorithm, level=level)
    own = algorithm_named(algorithm)
    plan = make_search_plan(
        own.spends(settings, ordered, len(codes)), epsilon=epsilon, delta=delta, adjacency=adjacency
    )
    found = own.search(Rehearsal(codes, ordered, plan), settings, ordered, None)
    return found if isinstance(found, CausalGraph) else found.value
