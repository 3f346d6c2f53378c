"""Answers with intervals from what a bundle publishes: post-processing of its noisy tables."""

from synthdp import door

__getattr__ = door(
    __name__,
    "adjustment answer sums copies effect_query figures visits words effect least_squares",
)
