"""The trusted kernel: the only code that opens rows, adds noise, or charges the ledger."""

from synthdp import door

__getattr__ = door(
    __name__,
    "events mechanisms mechanisms.anm mechanisms.sums "
    "mechanisms.frequent_texts mechanisms.interaction_screen mechanisms.private_search "
    "mechanisms.ranks readers.checks readers.query inspection linked "
    "dpsgd.batched events.concentrated events.kernel",
)
