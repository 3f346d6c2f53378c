"""What a plan says of gates on published scores: those that are likely to fail, or fall by chance.

The noise of a published score is known before any row is read, and so is about how far single
columns will be off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from synthdp.privacy.calibration import expected_fit_rows
from synthdp.privacy.plan import ReleasePlan
from synthdp.spec.model import Gate, ReleaseSpec
from synthdp.spec.model.gates import DP_METRICS

DEVIATIONS = 2.0
"""Standard deviations of noise for which a gate should have room."""
SMALL = 0.5
"""Part of a gate's room below which this noise is small."""


def gate_warnings(spec: ReleaseSpec, plan: ReleasePlan, tv1: float) -> Iterator[str]:
    """A warning for each gate that `tv1`, the expected distance of single columns, would fail, and
    for each on a published score whose noise decides it in part.
    """
    for gate in spec.gates:
        if gate.metric in ("tv1", "tv1_dp") and gate.at_most is not None and tv1 > gate.at_most:
            yield (
                f"the gate on {gate.metric}, at most {gate.at_most:g}, is likely to withhold the"
                f" bundle after the budget is spent: single columns are expected to be off by about"
                f" {tv1:.2g}; declare fewer bins or categories, or a larger epsilon"
            )
        elif gate.metric in DP_METRICS and plan.scores is not None:
            yield from _by_chance(gate, DEVIATIONS * score_noise(spec, plan, gate), tv1)


def score_noise(spec: ReleaseSpec, plan: ReleasePlan, gate: Gate) -> float:
    """Standard deviation that noise gives the published score of a gate, as a share of rows.

    A distance is a noisy count over the fitted rows. An accuracy a is right / (wrong + right), both
    with noise of sigma, over the rows held out: sigma sqrt(a^2 + (1 - a)^2) / rows to first order
    [derived here; as in `evaluate.dp_scores.accuracy`], taken at the gate's bound; the mean over
    targets has the root of their number less. Which rows are held out adds to it.
    """
    assert plan.scores is not None
    fitted = expected_fit_rows(spec)
    if gate.metric != "tstr_accuracy_dp":
        return plan.scores.sigma / fitted
    held_out = max(1.0, spec.dataset.rows.value - fitted)
    bound = min(1.0, max(0.0, _bound(gate)))
    targets = max(1, len(plan.scores.targets))
    return plan.scores.sigma * math.hypot(bound, 1 - bound) / held_out / math.sqrt(targets)


def _by_chance(gate: Gate, noise: float, tv1: float) -> Iterator[str]:
    """A warning where `noise`, either way, is not small beside the room that a gate leaves.

    A gate that asks for a score no better than something says nothing of room.
    """
    bound = _bound(gate)
    if gate.metric == "tv1_dp":
        room, since = bound - tv1, f"single columns are expected to be off by about {tv1:.2g}"
    elif gate.metric == "tv2_dp":
        room, since = bound, "a perfect table is off by 0"
    else:
        room, since = 1 - bound, "no accuracy is above 1"
    asked = gate.at_least if gate.metric == "tstr_accuracy_dp" else gate.at_most
    if noise <= SMALL * room or asked is None:
        return
    side = "at least" if gate.at_most is None else "at most"
    yield (
        f"the gate on {gate.metric}, {side} {bound:g}, may fall by chance after the budget is"
        f" spent: noise moves the score by about {noise:.2g} either way (two standard deviations),"
        f" and the bound leaves {max(0.0, room):.2g}, for {since}; choose another bound, or raise"
        " evaluation.disclosure_share"
    )


def _bound(gate: Gate) -> float:
    return gate.at_most if gate.at_most is not None else gate.at_least or 0.0
