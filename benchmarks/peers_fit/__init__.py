"""One small script for each peer, run by the peer's own Python in the peer's own environment:
nothing of synthdp is imported.
"""
