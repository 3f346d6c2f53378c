"""Pictures as SVG."""

from synthdp import door

__getattr__ = door(__name__, "graph")
