"""Mechanisms: each counts, adds noise and states its privacy event from the same fields."""
