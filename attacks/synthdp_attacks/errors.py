"""The mistakes a user of `synthdp_attacks` can make or meet, as one family. Messages never hold
values of rows.
"""

from __future__ import annotations


class AttackError(ValueError):
    """An attack cannot be run as asked. Says what was got, what is allowed and what to do next."""


class FleetError(AttackError):
    """A fleet of trainings cannot go on: a foreign result folder, or workers that die before any
    task starts.
    """
