"""The trusted kernel: the only code that opens rows, adds noise, or charges the ledger."""

from synthdp import door

__getattr__ = door(
    __name__,
    "dpsgd.batched events.base events.composition inspection linked mechanisms.anm "
    "mechanisms.contrasts mechanisms.frequent_texts mechanisms.interaction_screen "
    "mechanisms.mechanism mechanisms.private_search mechanisms.ranks mechanisms.views "
    "readers.checks readers.query",
)
