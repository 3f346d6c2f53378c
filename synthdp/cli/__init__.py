"""The command line: one file for each group of commands, and how results are printed."""

from synthdp import door

__getattr__ = door(
    __name__,
    "budget plan spec",
)
