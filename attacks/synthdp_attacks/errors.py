"""The errors of `synthdp_attacks`, as one family.

Messages never contain values of rows.
"""

from __future__ import annotations


class AttackError(ValueError):
    """An attack cannot be run as asked. Says what was got, what is allowed and what to do next."""


class FleetError(AttackError):
    """A fleet of trainings cannot go on.

    The result folder is foreign, or workers die before any task starts.
    """
