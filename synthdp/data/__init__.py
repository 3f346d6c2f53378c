"""How values become levels, and levels values: the public description of a table."""
