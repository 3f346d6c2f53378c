"""A command under torchrun: the first process runs it, the others help its training (see `privacy.processes`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from synthdp.model.causal_vae import CausalVae
from synthdp.privacy.helping import help_training
from synthdp.privacy.processes import Helpers, Work, joined

T = TypeVar("T")


def together(command: Callable[[Helpers | None], T]) -> T | None:
    """What `command` gives in the first process, or the only one. Any other process helps until it is dismissed, and gives None."""
    with joined() as group:
        if isinstance(group, Work):
            help_training(group, CausalVae.from_description)
            return None
        return command(group)
