"""Causal discovery from released values, one algorithm per file or folder."""

from __future__ import annotations

from synthdp.graph.discovery.algorithm import Algorithm, Releaser
from synthdp.graph.discovery.em_pc.search import EM_PC
from synthdp.graph.discovery.measure_plan import MeasurePlan
from synthdp.graph.discovery.measured_pc import Measure, measured_pc
from synthdp.graph.discovery.measuring import MEASURED_PC
from synthdp.graph.discovery.priv_pc.search import PRIV_PC
from synthdp.graph.discovery.rcit_pc.search import RCIT_PC
from synthdp.graph.discovery.svt_pc.search import SVT_PC

ALGORITHMS: dict[str, Algorithm] = {
    "measured_pc": MEASURED_PC,
    "rcit_pc": RCIT_PC,
    "priv_pc": PRIV_PC,
    "svt_pc": SVT_PC,
    "em_pc": EM_PC,
}
"""Algorithms by the name that the spec's `graph.algorithm` gives."""

__all__ = ["ALGORITHMS", "Algorithm", "Measure", "MeasurePlan", "Releaser", "measured_pc"]
