"""Priv-PC (Wang, Pang and Song 2020), made sound. Prefer `measured_pc`, which finds more arrows.

On public networks `measured_pc` had the higher F1 wherever both ran (docs/benchmarks/graphs.md).
Use this one to reproduce the paper's method.
"""
