"""Causal discovery from noisy tables, one algorithm per file."""

from __future__ import annotations

from collections.abc import Callable

from synthdp.data.domain import Domain
from synthdp.graph.causal import CausalGraph
from synthdp.graph.discovery.measured_pc import Measure, MeasurePlan, measured_pc
from synthdp.graph.knowledge import Knowledge

Algorithm = Callable[[Measure, MeasurePlan, Domain, Knowledge], CausalGraph]

ALGORITHMS: dict[str, Algorithm] = {
    "measured_pc": measured_pc,
}
"""By the name that the spec's `graph.algorithm` gives."""

__all__ = ["ALGORITHMS", "Algorithm", "Measure", "MeasurePlan", "measured_pc"]
