"""Verification of a bundle by anyone, offline."""

from synthdp import door

__getattr__ = door(
    __name__,
    "at_hand content linked reader releases checks rows",
)
