"""The public description of a table, and how values become levels and back. Nothing here is fitted
to rows.
"""
