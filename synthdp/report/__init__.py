"""Two reports: one for the steward, with figures of real rows; one for everyone, made of published
files.
"""
