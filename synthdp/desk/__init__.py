"""A local page on which a spec is written: what it does, commands do too."""

from synthdp import door

__getattr__ = door(__name__, "draft page serve decide")
