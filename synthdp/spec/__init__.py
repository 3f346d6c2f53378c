"""The YAML contract (`model`) and its loader (`load`)."""

from synthdp import door

__getattr__ = door(
    __name__,
    "addresses checks.chance checks.columns codebook expressions.expressions "
    "expressions.parsed expressions.query questions",
)
