"""A helper's work: sums of clipped gradients of the examples that the first process deals it (see `processes`).

It sees rows, so it belongs to the kernel. It has no randomness, no ledger and no file, and ends when it is dismissed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from synthdp.errors import BoundaryError
from synthdp.privacy.dpsgd import Clipping, PerExampleLoss
from synthdp.privacy.mechanisms import Arrays
from synthdp.privacy.processes import DISMISS, TRAINING, Work


def help_training(work: Work, rebuilt: Callable[[Arrays], PerExampleLoss]) -> None:
    """Do what the first process orders, until it orders no more; `rebuilt` makes a module of its `described`.

    Raises:
        LostProcess: the first process has ended.
    """
    clipping: Clipping | None = None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")  # as in `dpsgd.Training.run`
        while (order := work.order()).kind != DISMISS:
            if order.kind == TRAINING:
                settings, device, described = work.training(order)
                clipping = Clipping(settings, rebuilt(described).to(device), device)
            elif clipping is None:
                raise BoundaryError("a step before its training")
            else:
                batch, latents = work.step(order, clipping.params, clipping.latent)
                work.give(clipping.params, clipping.clipped_sums(batch.to(device), latents.to(device)))
