"""Causal discovery from released values, one algorithm per file."""

from __future__ import annotations

from synthdp.graph.discovery.algorithm import Algorithm, Releaser
from synthdp.graph.discovery.measured_pc import Measure, MeasurePlan, measured_pc
from synthdp.graph.discovery.measuring import MEASURED_PC

ALGORITHMS: dict[str, Algorithm] = {
    "measured_pc": MEASURED_PC,
}
"""By the name that the spec's `graph.algorithm` gives."""

__all__ = ["ALGORITHMS", "Algorithm", "Measure", "MeasurePlan", "Releaser", "measured_pc"]
