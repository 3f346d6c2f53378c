"""SVT-PC, the baseline of Priv-PC (Wang, Pang and Song 2020), made sound. Prefer `measured_pc`.

On public networks `measured_pc` had the higher F1 on all but one, mildew
(docs/benchmarks/graphs.md). Use this one to reproduce the paper's comparison.
"""
