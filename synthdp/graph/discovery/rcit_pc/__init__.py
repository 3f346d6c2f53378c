"""RCIT and PCD (Zhang et al. 2023) for numbers, made sound. Prefer `measured_pc` for other columns.

RCIT is by Strobl et al. (2017). The tests need about 8,000 rows at epsilon .5 and 2,000 at epsilon
2 (docs/benchmarks/graphs.md).
"""
