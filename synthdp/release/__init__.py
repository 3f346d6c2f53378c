"""`synthdp release`: the run from a spec to a bundle, its folder, its gates, and the internal
report.
"""
