"""The ledger of every charge: a hash chain in a database, and what is left to spend."""

from synthdp import door

__getattr__ = door(
    __name__,
    "connect entries composition ledger",
)
