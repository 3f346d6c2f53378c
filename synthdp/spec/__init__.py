"""The YAML contract (`model`) and its loader (`load`)."""

from synthdp import door

__getattr__ = door(
    __name__,
    "addresses checks.budget checks.chance checks.columns codebook expressions.expressions "
    "expressions.parsed expressions.query questions checks.checks checks.linked draft edit "
    "load.loader load.wording load.yaml_tree model.columns model.linked model.rules writing",
)
