"""Checks between the parts of a spec."""
