"""Evaluation of a synthetic table: fidelity, utility, causal effects, and DP scores."""

from synthdp import door

__getattr__ = door(
    __name__,
    "functional effects visits run learners",
)
