"""Causal discovery from released values, one algorithm per file or folder."""

from __future__ import annotations

from synthdp.graph.discovery.measured_pc import Measure, MeasurePlan, measured_pc
from synthdp.graph.discovery.measuring import MEASURED_PC
from synthdp.graph.discovery.rank_pc import EM_PC, PRIV_PC, SVT_PC
from synthdp.graph.discovery.rcit_pc import RCIT_PC
from synthdp.graph.discovery.skeleton import Algorithm, Releaser

ALGORITHMS: dict[str, Algorithm] = {
    "measured_pc": MEASURED_PC,
    "rcit_pc": RCIT_PC,
    "priv_pc": PRIV_PC,
    "svt_pc": SVT_PC,
    "em_pc": EM_PC,
}
"""Algorithms by the name that the spec's `graph.algorithm` gives."""

__all__ = ["ALGORITHMS", "Algorithm", "Measure", "MeasurePlan", "Releaser", "measured_pc"]
