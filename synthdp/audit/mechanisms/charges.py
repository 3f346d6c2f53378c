"""The single charges of an event, as a replay holds the draws of a run against them (`verdict`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import dp_accounting

from synthdp.privacy.events.kernel import RoundedGaussianDpEvent
from synthdp.privacy.events.kinds import SecretSampleDpEvent
from synthdp.privacy.events.sums import GaussianSumsDpEvent


def charges_of(event: dp_accounting.DpEvent, units: int) -> Iterator[dp_accounting.DpEvent | float]:
    """Single charges in the order of their draws.

    Gaussians that follow each other come as one number: the move that they allow together, in units
    of their noise.
    """
    squares = 0.0  # of the moves that the last Gaussians allow
    for leaf in _leaves(event):
        match leaf:
            case dp_accounting.GaussianDpEvent(noise_multiplier=noise):
                squares += (units / noise) ** 2
                continue
            case GaussianSumsDpEvent():
                squares += leaf.moved("add_remove" if units == 1 else "replace_one") ** 2
                continue
            case RoundedGaussianDpEvent():
                squares += leaf.noise_multiplier(units) ** -2
                continue
        if squares:
            yield math.sqrt(squares)
            squares = 0.0
        yield leaf
    if squares:
        yield math.sqrt(squares)


def _leaves(event: dp_accounting.DpEvent) -> Iterator[dp_accounting.DpEvent]:
    """The events of a composition, in order; a secret sample, then those on it."""
    match event:
        case dp_accounting.NoOpDpEvent():
            return
        case dp_accounting.SelfComposedDpEvent(event=inner, count=count):
            for _ in range(count):
                yield from _leaves(inner)
        case dp_accounting.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _leaves(part)
        case SecretSampleDpEvent(event=inner):
            yield event
            yield from _leaves(inner)
        case _:
            yield event
