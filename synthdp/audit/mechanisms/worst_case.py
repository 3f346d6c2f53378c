"""Worst-case audit of each mechanism of a plan: the real code with real noise, run many times.

D and D' differ in one unit, placed where it moves the mechanism the most: all its rows in one cell
of every table; for DP-SGD, every row's gradient of exactly the clipping norm along one direction.
The adversary knows both tables and sees the noisy tables or every noisy gradient. It scores by the
likelihood ratio of the fault that is looked for.

An audit without power proves nothing. The claim for a unit of k rows rests on the same noise for
all k. The audit therefore takes the smallest unit, from the planned one upwards, for which it would
detect half the noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from synthdp.audit.mechanisms.f_curve import (
    AuditResult,
    CurveClaim,
    detection_rate,
    judge,
    provable_epsilon,
)
from synthdp.audit.mechanisms.games import BatchGame, Fresh, GradientGame, MechanismGame, TableGame
from synthdp.data.domain import Domain
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.dpsgd.training import Progress
from synthdp.privacy.events.base import Adjacency
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.mechanisms.mechanism import PlannedMechanism
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import ReleasePlan

RUNS = 5000
POWER = 0.95  # wanted probability to detect half the noise
SIMULATED_RUNS, REPEATS = 10_000, 200  # what that probability is estimated from
TABLES_CHOSEN = 3
MAX_TABLE_ROWS = 1 << 20  # of a unit in a table
# Of a unit in DP-SGD. Its accounting takes seconds. A stage as small as Adult's targets at epsilon
# .1 has power only there.
MAX_GRADIENT_ROWS = 32


def audit_plan(
    plan: ReleasePlan,
    domain: Domain,
    *,
    runs: int = RUNS,
    progress: Progress = lambda done, total: None,
    fresh: Fresh = Streams.fresh,
) -> tuple[AuditResult, ...]:
    """Audit the mechanisms of `plan`: noise and clipping, and for DP-SGD its batches too.

    `unaudited` names the mechanisms that are left out. `runs` is the number of runs of each
    mechanism, half on D and half on D'. `progress` gets the number of runs done and of all runs. No
    row is read: D and D' are constructed on a narrow copy of `domain`.
    """
    rows, adjacency = plan.rows_per_unit, plan.adjacency
    games: list[MechanismGame] = []
    for spend in plan.spends:
        games += games_of(spend.mechanism, domain, rows=rows, adjacency=adjacency)
    done = 0

    def played(more: int) -> None:
        nonlocal done
        done += more
        progress(done, runs * len(games))

    return tuple(
        audit_game(
            game, delta=plan.delta, adjacency=adjacency, runs=runs, fresh=fresh, played=played
        )
        for game in games
    )


def games_of(
    mechanism: PlannedMechanism, domain: Domain, *, rows: int, adjacency: Adjacency
) -> list[MechanismGame]:
    """The games that audit one mechanism for a unit of `rows` rows; none where no game fits it."""
    if isinstance(mechanism, DpSgd):
        gradients, batches = GradientGame(mechanism, rows, adjacency), BatchGame(mechanism)
        return [gradients, batches] if adjacency == "add_remove" else [gradients]
    if isinstance(mechanism, AdaptiveMarginals):
        tables = list(combinations(domain.names, min(2, len(domain))))[:TABLES_CHOSEN]
        return [TableGame.of(mechanism.choose(tables), rows, adjacency)]
    if isinstance(mechanism, NoisyMarginals):
        return [TableGame.of(mechanism, rows, adjacency)]
    return []


def unaudited(plan: ReleasePlan, domain: Domain) -> tuple[str, ...]:
    """Names of the plan's mechanisms that no game audits; the replay covers those."""
    rows, adjacency = plan.rows_per_unit, plan.adjacency
    return tuple(
        spend.mechanism.name
        for spend in plan.spends
        if not games_of(spend.mechanism, domain, rows=rows, adjacency=adjacency)
    )


def audit_game(
    game: MechanismGame,
    *,
    delta: float,
    adjacency: Adjacency,
    runs: int,
    fresh: Fresh = Streams.fresh,
    played: Callable[[int], None] = lambda more: None,
) -> AuditResult:
    """Grow the unit until the fault would be detected, play, and judge."""
    begun = time.monotonic()
    game, claim, power_of_game = _powerful(game, delta=delta, adjacency=adjacency, runs=runs)
    out = game.play(0, runs // 2, fresh, played)
    inside = game.play(1, runs // 2, fresh, played)
    verdict = judge(out, inside, claim)
    return AuditResult(
        mechanism=game.mechanism,
        method=game.method,
        unit_rows=game.rows,
        runs=2 * (runs // 2),
        epsilon_claimed=claim.epsilon,
        delta=delta,
        epsilon_lower=verdict.epsilon_lower,
        epsilon_provable=provable_epsilon(runs, delta=delta),
        fault=game.fault,
        detects_fault=power_of_game,
        alarm=verdict.alarm,
        seconds=time.monotonic() - begun,
    )


def power(game: MechanismGame, claim: CurveClaim, *, runs: int, repeats: int = REPEATS) -> float:
    """Probability that an audit of `runs` runs raises the alarm on the game's fault."""
    out, inside = (game.simulate_fault(world, SIMULATED_RUNS) for world in (0, 1))
    return detection_rate(out, inside, claim, runs=runs, repeats=repeats)


def _powerful(
    game: MechanismGame, *, delta: float, adjacency: Adjacency, runs: int
) -> tuple[MechanismGame, CurveClaim, float]:
    """The game with the smallest unit that has the wanted power, or else with the most power."""
    best: tuple[MechanismGame, CurveClaim, float] | None = None
    for sized in _growing(game, adjacency):
        claim = CurveClaim.of([sized.event()], delta=delta, adjacency=adjacency)
        detected = power(sized, claim, runs=runs)
        if best is None or detected > best[2]:
            best = sized, claim, detected
        if detected >= (1 + POWER) / 2:  # higher than wanted, for the error of the simulation
            break
    if best is None:
        raise ValueError("no unit to audit")
    return best


def _growing(game: MechanismGame, adjacency: Adjacency) -> Iterator[MechanismGame]:
    """The game for its unit, then for units of twice the rows, as far as accounting is sound."""
    yield game
    if isinstance(game, TableGame):
        max_rows = MAX_TABLE_ROWS
    elif isinstance(game, GradientGame) and adjacency == "add_remove":
        max_rows = MAX_GRADIENT_ROWS
    else:
        return
    rows = 2 * game.rows
    while rows <= max_rows:
        yield replace(game, rows=rows)
        rows *= 2
