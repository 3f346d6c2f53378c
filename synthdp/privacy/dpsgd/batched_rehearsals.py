"""The door of rehearsals that train side by side: each is checked against its own plan, then all
are trained in one program.
"""

from __future__ import annotations

from collections.abc import Sequence

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd.batched import train_stacked
from synthdp.privacy.dpsgd.training import Training, Weights
from synthdp.privacy.private import _KERNEL_KEY, Released
from synthdp.privacy.session import REHEARSAL, Rehearsal


def train_side_by_side(
    rehearsals: Sequence[Rehearsal], trainings: Sequence[Training], *, purpose: str
) -> list[Released[Weights]]:
    """What `rehearsal.release(training, purpose=purpose)` gives for each of them, for a fraction of
    the time, on the CPU.

    Raises:
        BudgetError: a training is not what its rehearsal's plan says.
        BoundaryError: the trainings have different settings, or modules of different shapes.
    """
    settings = trainings[0].settings
    if any(training.settings != settings for training in trainings):
        raise BoundaryError("only trainings of one setting go side by side")
    admitted = [
        r.admit(t, purpose=purpose, key=_KERNEL_KEY)
        for r, t in zip(rehearsals, trainings, strict=True)
    ]
    trained = train_stacked(
        settings,
        [t.module for t in trainings],
        [table for table, _ in admitted],
        [streams for _, streams in admitted],
    )
    return [Released(weights, frozenset({REHEARSAL}), key=_KERNEL_KEY) for weights in trained]
