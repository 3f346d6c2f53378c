"""What a stranger's ledger and certificate may ask to be composed: events with a meaning, and
within what a spec can spend.

Composition takes time and memory that grow with the privacy loss, with the number of events and
with the width of discrete noise. Without these bounds a bundle of a few kilobytes could keep
`verify` busy for days.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synthdp.bundle.certificate.facts import GROUP_SIZES, Group
from synthdp.data.domain import Domain
from synthdp.graph.stage import rounds
from synthdp.graph.validation import MAX_TABLES
from synthdp.privacy.plan import expected_fit_rows
from synthdp.spec.model import IdUnit, ReleaseSpec

MAX_ENTRIES = 1000
MAX_PARTS, MAX_EVENTS = 200, 400  # of one purpose, and of a plan
MAX_SIGMA = 2e5  # of discrete noise, whose distribution is composed count by count
MIN_NOISE = 0.02  # of Gaussians, in units of what moves: an epsilon of 100 leaves .08
MAX_ROWS, MAX_MOVED = (
    64,
    10_000_000,
)  # of a unit: as in the spec; and of what one row moves an answer by
PURPOSES = (
    5  # that a plan may have beside those of the graph: measure, pairs, targets, train, scores
)
# Expected loss, from above, in multiples of the spec's epsilon, and what is allowed beyond. The
# mixture's grid is ten times as wide.
LOSSES, FREE_LOSS, MIXTURE_WEIGHT = 10.0, 10.0, 0.1


@dataclass(frozen=True)
class PlanLimits:
    """What the plan of a spec can hold at most: rows of a unit, purposes, steps of a training,
    tables, answers of a search, expected loss.
    """

    rows: int
    purposes: int
    steps: int
    tables: int
    answers: int
    loss: float

    @classmethod
    def of(cls, spec: ReleaseSpec) -> PlanLimits:
        """Those of a spec."""
        columns = len(spec.columns)
        named = rounds(spec.graph, Domain.from_spec(spec.columns), rows=expected_fit_rows(spec))
        return cls(
            rows=rows_of(spec),
            purposes=PURPOSES + len(named),
            steps=spec.synthesizer.steps,
            tables=columns + len(spec.privacy.pairs) + 2 * MAX_TABLES,
            answers=1000 + columns**2,
            loss=LOSSES * spec.privacy.epsilon + FREE_LOSS,
        )


def rows_of(spec: ReleaseSpec) -> int:
    """The most rows that a unit may have."""
    unit = spec.dataset.privacy_unit
    return unit.max_rows if isinstance(unit, IdUnit) else 1


def event_problems(events: Sequence[Mapping[str, Any]], limits: PlanLimits) -> Iterator[str]:
    """Why `events` are not composed; nothing if they can be."""
    if len(events) > limits.purposes:
        yield f"{len(events)} charges are more than this spec's plan can have, {limits.purposes}"
        return
    try:
        losses = [_loss(event, limits) for event in events]
        leaves = sum(map(_leaves, events))
    except (
        KeyError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        yield (
            f"a charge states an event that none makes ({type(error).__name__}: {str(error)[:100]})"
        )
        return
    if math.fsum(losses) > limits.loss:
        yield (
            "its charges spend far more than the spec allows (an expected loss of up to"
            f" {math.fsum(losses):.3g})"
        )
    if leaves > MAX_EVENTS:
        yield f"its charges are of {leaves} events, more than any release makes"


def group_problems(groups: Sequence[Group]) -> Iterator[str]:
    """Why `groups` are not bounded."""
    sizes = [g.size for g in groups]
    if len(set(sizes)) < len(sizes) or not set(sizes) <= {*GROUP_SIZES}:
        yield f"bounds for groups are computed once each, for {', '.join(map(str, GROUP_SIZES))}"


def _leaves(event: Mapping[str, Any]) -> int:
    match event:
        case {"of": list(parts)}:
            return sum(map(_leaves, parts))
        case {"of": dict(inner)}:
            return _leaves(inner)
    return 1


def _loss(event: Mapping[str, Any], limits: PlanLimits, times: int = 1) -> float:
    """An upper bound on the expected privacy loss of `event`, made `times` times, in nats, under
    add/remove.

    [Derived here.] Gaussians moved by d under noise s: d^2 / 2 s^2, of discrete ones at most that
    (`discrete_gaussian_rho`). Subsampled: Kullback-Leibler divergence is convex in the mixture, and
    below the Renyi divergence of order 2, which is log(1 + q^2 (exp(1 / s^2) - 1)) against no unit.
    Pure epsilon: at most epsilon, and of bounded range at most an eighth of its square
    (`bounded_range_pld`). It bounds work, not privacy.
    """
    match event:
        case {"event": "nothing"}:
            return 0.0
        case {"event": "repeated", "count": count, "of": inner}:
            return _loss(
                inner, limits, times * _whole(count, limits.steps + limits.tables + limits.answers)
            )
        case {"event": "all", "of": list(parts)} if len(parts) <= MAX_PARTS:
            return math.fsum(_loss(part, limits, times) for part in parts)
        case {"event": "discrete_gaussian", "sigma": sigma, "sensitivity": moved}:
            _whole(times, limits.tables)
            return times * (_whole(moved, MAX_ROWS) / _positive(sigma, MAX_SIGMA)) ** 2 / 2
        case {"event": "rounded_gaussian", "sigma": sigma, "sensitivity": moved}:
            return times * (_whole(moved, MAX_ROWS) / _positive(sigma)) ** 2 / 2
        case {"event": "gaussian", "noise_multiplier": noise}:
            return times * _noise(noise) ** -2 / 2
        case {
            "event": "poisson_sampled",
            "rate": rate,
            "of": {"event": "gaussian", "noise_multiplier": noise},
        }:
            _whole(times, limits.steps)
            chance, once = _positive(rate, 1), _noise(noise) ** -2
            return times * min(
                chance * once / 2,
                math.log1p(chance**2 * math.expm1(once)) if once < 500 else math.inf,
            )
        case {
            "event": "mixture_of_gaussians",
            "noise_multiplier": noise,
            "sensitivities": list(moves),
            "chances": list(probabilities),
        }:
            _whole(times, limits.steps)
            rows = limits.rows
            if (
                moves != list(range(rows + 1))
                or len(probabilities) != len(moves)
                or min(probabilities) < 0
                or abs(math.fsum(probabilities) - 1) > 1e-9
            ):
                raise ValueError(f"a mixture over other numbers of rows than 0 to {rows}")
            squared = math.fsum(p * move**2 for p, move in zip(probabilities, moves, strict=True))
            return times * squared * _noise(noise) ** -2 / 2 * MIXTURE_WEIGHT
        case {
            "event": "sparse_vector",
            "threshold_scale": threshold,
            "query_scale": query,
            "sensitivity": moved,
            "rate": rate,
            "rows": own,
        }:
            _positive(rate, 1), _whole(times, limits.answers)
            return (
                times
                * _whole(own, MAX_ROWS)
                * _whole(moved, MAX_MOVED)
                * (1 / _positive(threshold) + 2 / _positive(query))
            )
        case {"event": "gumbel_max", "scale": scale, "sensitivity": moved, "rows": own}:
            _whole(times, limits.answers)
            spread = 2 * _whole(own, MAX_ROWS) * _whole(moved, MAX_MOVED) / _positive(scale)
            return times * min(spread, spread**2 / 8)
    raise ValueError(f"unknown event {str(event)[:60]!r}")


def _noise(value: Any) -> float:
    """A noise multiplier of Gaussians."""
    if _positive(value) < MIN_NOISE:
        raise ValueError(f"a noise of {value:g} is next to none")
    return float(value)


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{str(value)[:20]} is not a whole number from 1 to {most}")
    return value


def _positive(value: Any, most: float = math.inf) -> float:
    if type(value) not in (int, float) or not 0 < value <= most or not math.isfinite(value):
        raise ValueError(f"{str(value)[:20]} is not a number above 0, at most {most:g}")
    return float(value)
