"""Constraints and derived columns: texts that are read as rules of a row."""
