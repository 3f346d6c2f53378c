"""Causal discovery from released values, one algorithm per file or folder."""

from __future__ import annotations

from pkgutil import resolve_name

from synthdp.graph.discovery.skeleton import Algorithm, KnownTables, Releaser

ALGORITHMS = {
    "measured_pc": "synthdp.graph.discovery.measuring:MEASURED_PC",
    "rcit_pc": "synthdp.graph.contrib.rcit_pc:RCIT_PC",  # Strobl et al. 2017, Zhang et al. 2023
    "priv_pc": "synthdp.graph.contrib.rank_pc:PRIV_PC",  # Wang, Pang and Song 2020
    "svt_pc": "synthdp.graph.contrib.rank_pc:SVT_PC",  # the same paper's baseline
    "em_pc": "synthdp.graph.contrib.rank_pc:EM_PC",  # Xu, Yuan and Wu 2017
}
"""Where an algorithm is, by the name that the spec's `graph.algorithm` gives."""


def algorithm_named(name: str) -> Algorithm:
    found: Algorithm = resolve_name(ALGORITHMS[name])
    return found


__all__ = ["ALGORITHMS", "Algorithm", "KnownTables", "Releaser", "algorithm_named"]
