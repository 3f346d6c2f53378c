"""`synthdp sample`: rows from a bundle, with columns given or set."""

from synthdp import door

__getattr__ = door(
    __name__,
    "conditions linked sampler warehouse",
)
