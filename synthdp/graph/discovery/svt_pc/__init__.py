"""SVT-PC, the baseline of Priv-PC (Wang, Pang and Song 2020), made sound. Prefer `measured_pc`.

On the public networks of docs/benchmarks.md, `measured_pc` had the higher F1 on each. Use this one
to reproduce the paper's comparison.
"""
