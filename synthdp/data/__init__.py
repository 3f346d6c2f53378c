"""How values become levels, and levels values: the public description of a table."""

from synthdp import door

__getattr__ = door(
    __name__,
    "basis kinds builtin cells column_domain domain encoding level_groups visits kinds.ranges",
)
