"""Two reports: a confidential one with figures of real rows, a public one of published files."""
