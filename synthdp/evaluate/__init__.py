"""Evaluation of a synthetic table: fidelity, utility, causal effects, and DP scores."""
