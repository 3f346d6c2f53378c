"""The public description of a table: how values become levels, and levels values.

Nothing here is fitted to rows.
"""
