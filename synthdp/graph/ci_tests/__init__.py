"""Conditional independence tests, one per file. Each answers with an `Answer`."""
