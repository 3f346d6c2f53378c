"""What a stranger's ledger and certificate may ask to be composed: events with a meaning, and within what a spec can spend.

Composition takes time and memory that grow with the privacy loss, with the number of events and with the width
of discrete noise. Without these bounds a bundle of a few kilobytes could keep `verify` busy for days.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from synthdp.bundle.certificate import Group

MOST_ENTRIES, MOST_PARTS, MOST_STEPS = 1000, 200, 10_000_000
MOST_SIGMA = 2e5  # of discrete noise, whose distribution is composed count by count
MOST_ROWS = 64  # of a unit: as in the spec
MOST_GROUPS, LARGEST_GROUP = 10, 100
# Nats of expected loss, from above: a spec allows an epsilon of 100. The mixture's grid is ten times as wide.
MOST_LOSS, MOST_MIXTURE_LOSS = 1000.0, 10_000.0


def event_problems(events: Sequence[Mapping[str, Any]], *, rows: int) -> Iterator[str]:
    """Why `events` are not composed, for units of at most `rows` rows; nothing if they can be."""
    if len(events) > MOST_PARTS:
        yield f"{len(events)} charges are more than any release makes"
        return
    try:
        losses = [_loss(event, rows) for event in events]
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        yield f"a charge states an event that none makes ({type(error).__name__}: {str(error)[:100]})"
        return
    if math.fsum(losses) > MOST_LOSS:
        yield f"its charges spend far more than any spec allows (an expected loss of up to {math.fsum(losses):.3g})"


def group_problems(groups: Sequence[Group]) -> Iterator[str]:
    """Why `groups` are not bounded."""
    if len(groups) > MOST_GROUPS or any(g.size > LARGEST_GROUP for g in groups):
        yield f"bounds for more than {MOST_GROUPS} groups, or for groups of more than {LARGEST_GROUP}, are not computed"


def _loss(event: Mapping[str, Any], rows: int) -> float:
    """An upper bound on the expected privacy loss of `event`, in nats, under add/remove.

    [Derived here.] Gaussians moved by d under noise s: d^2 / 2 s^2, of discrete ones at most that
    (`discrete_gaussian_rho`). Subsampled: Kullback-Leibler divergence is convex in the mixture, and below the Renyi
    divergence of order 2, which is log(1 + q^2 (exp(1 / s^2) - 1)) against no unit. Pure epsilon: at most epsilon, and of
    bounded range at most an eighth of its square (`bounded_range_pld`).
    It bounds work, not privacy.
    """
    match event:
        case {"event": "nothing"}:
            return 0.0
        case {"event": "repeated", "count": count, "of": inner}:
            return _whole(count, MOST_STEPS) * _loss(inner, rows)
        case {"event": "all", "of": list(parts)} if len(parts) <= MOST_PARTS:
            return math.fsum(_loss(part, rows) for part in parts)
        case {"event": "discrete_gaussian", "sigma": sigma, "sensitivity": moved}:
            return (_whole(moved, MOST_ROWS) / _positive(sigma, MOST_SIGMA)) ** 2 / 2
        case {"event": "rounded_gaussian", "sigma": sigma, "sensitivity": moved}:
            return (_whole(moved, MOST_ROWS) / _positive(sigma)) ** 2 / 2
        case {"event": "gaussian", "noise_multiplier": noise}:
            return _positive(noise) ** -2 / 2
        case {"event": "poisson_sampled", "rate": rate, "of": {"event": "gaussian", "noise_multiplier": noise}}:
            chance, once = _positive(rate, 1), _positive(noise) ** -2
            return min(chance * once / 2, math.log1p(chance**2 * math.expm1(once)) if once < 500 else math.inf)
        case {"event": "mixture_of_gaussians", "noise_multiplier": noise, "sensitivities": list(moves), "chances": list(chances)}:
            if moves != list(range(rows + 1)) or len(chances) != len(moves) or min(chances) < 0 or abs(math.fsum(chances) - 1) > 1e-9:
                raise ValueError(f"a mixture over other numbers of rows than 0 to {rows}")
            squared = math.fsum(p * move**2 for p, move in zip(chances, moves, strict=True))
            return squared * _positive(noise) ** -2 / 2 * MOST_LOSS / MOST_MIXTURE_LOSS
        case {"event": "sparse_vector", "threshold_scale": threshold, "query_scale": query, "sensitivity": moved, "rate": rate, "rows": own}:
            _positive(rate, 1)
            return _whole(own, MOST_ROWS) * _whole(moved, MOST_STEPS) * (1 / _positive(threshold) + 2 / _positive(query))
        case {"event": "gumbel_max", "scale": scale, "sensitivity": moved, "rows": own}:
            spread = 2 * _whole(own, MOST_ROWS) * _whole(moved, MOST_STEPS) / _positive(scale)
            return min(spread, spread**2 / 8)
    raise ValueError(f"unknown event {str(event)[:60]!r}")


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{str(value)[:20]} is not a whole number from 1 to {most}")
    return value


def _positive(value: Any, most: float = math.inf) -> float:
    if type(value) not in (int, float) or not 0 < value <= most or not math.isfinite(value):
        raise ValueError(f"{str(value)[:20]} is not a number above 0, at most {most:g}")
    return float(value)
