"""White-box worst-case audit of each mechanism of a plan: the real code, through the real streams,
many times.

D and D' differ in one unit, placed where it moves the mechanism the most: all its rows in one cell
of every table; for DP-SGD, every row's gradient of exactly the clipping norm along one direction.
The adversary knows both tables, sees the noisy tables or every noisy gradient, and scores by the
likelihood ratio of the fault looked for.

An audit that could not see a fault proves nothing. The claim of a unit of k rows rests on the same
noise for all k, so the audit takes the smallest unit, from the planned one upwards, for which it
would find half the noise.
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
from synthdp.privacy.event_base import Adjacency
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, NoisyMarginals
from synthdp.privacy.noise import Streams
from synthdp.privacy.plan import Plan, PlannedMechanism

RUNS = 5000
POWER = 0.95  # wanted probability to detect half the noise
SIMULATED_RUNS, REPEATS = 10_000, 200  # what that probability is estimated from
TABLES_CHOSEN = 3
MAX_TABLE_ROWS = 1 << 20
# of a unit: its accounting takes seconds, and so small a stage as Adult's targets at epsilon .1 is
# seen only there
MAX_GRADIENT_ROWS = 32


def audit_plan(
    plan: Plan,
    domain: Domain,
    *,
    runs: int = RUNS,
    progress: Progress = lambda done, total: None,
    fresh: Fresh = Streams.fresh,
) -> tuple[AuditResult, ...]:
    """Audit the mechanisms of `plan` (`unaudited` names those left out): noise and clipping, and
    for DP-SGD its batches too.

    `runs` are runs of each mechanism, half on D and half on D'; `progress` gets runs done and runs
    in all.
    No row is read: D and D' are made up on a narrow copy of `domain`.
    """
    games = [
        game
        for spend in plan.spends
        for game in games_of(
            spend.mechanism, domain, rows=plan.rows_per_unit, adjacency=plan.adjacency
        )
    ]
    done = 0

    def played(more: int) -> None:
        nonlocal done
        done += more
        progress(done, runs * len(games))

    return tuple(
        audit_game(
            game, delta=plan.delta, adjacency=plan.adjacency, runs=runs, fresh=fresh, played=played
        )
        for game in games
    )


def games_of(
    mechanism: PlannedMechanism, domain: Domain, *, rows: int, adjacency: Adjacency
) -> list[MechanismGame]:
    """The games that audit one mechanism for a unit of `rows` rows; none for a kind that has no
    game yet.
    """
    if isinstance(mechanism, DpSgd):
        gradients, batches = GradientGame(mechanism, rows, adjacency), BatchGame(mechanism)
        return [gradients, batches] if adjacency == "add_remove" else [gradients]
    if isinstance(mechanism, AdaptiveMarginals):
        tables = list(combinations(domain.names, min(2, len(domain))))[:TABLES_CHOSEN]
        return [TableGame.of(mechanism.choose(tables), rows, adjacency)]
    if isinstance(mechanism, NoisyMarginals):
        return [TableGame.of(mechanism, rows, adjacency)]
    return []


def unaudited(plan: Plan, domain: Domain) -> tuple[str, ...]:
    """Names of the plan's mechanisms that no game here audits; the replay covers those."""
    listed = (
        (
            s.mechanism,
            games_of(s.mechanism, domain, rows=plan.rows_per_unit, adjacency=plan.adjacency),
        )
        for s in plan.spends
    )
    return tuple(mechanism.name for mechanism, games in listed if not games)


def audit_game(
    game: MechanismGame,
    *,
    delta: float,
    adjacency: Adjacency,
    runs: int,
    fresh: Fresh = Streams.fresh,
    played: Callable[[int], None] = lambda more: None,
) -> AuditResult:
    """Grow the unit until the fault would be seen, play, and judge."""
    begun = time.monotonic()
    game, claim, chance = _powerful(game, delta=delta, adjacency=adjacency, runs=runs)
    verdict = judge(
        game.play(0, runs // 2, fresh, played), game.play(1, runs // 2, fresh, played), claim
    )
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
        detects_fault=chance,
        alarm=verdict.alarm,
        seconds=time.monotonic() - begun,
    )


def power(game: MechanismGame, claim: CurveClaim, *, runs: int, repeats: int = REPEATS) -> float:
    """Probability that an audit of `runs` runs raises the alarm on a mechanism with the fault that
    the game looks for.
    """
    out, inside = (game.simulate_fault(world, SIMULATED_RUNS) for world in (0, 1))
    return detection_rate(out, inside, claim, runs=runs, repeats=repeats)


def _powerful(
    game: MechanismGame, *, delta: float, adjacency: Adjacency, runs: int
) -> tuple[MechanismGame, CurveClaim, float]:
    """The game with the smallest unit that has the wanted power, or the one with the most power."""
    best: tuple[MechanismGame, CurveClaim, float] | None = None
    for sized in _growing(game, adjacency):
        claim = CurveClaim.of([sized.event()], delta=delta, adjacency=adjacency)
        chance = power(sized, claim, runs=runs)
        if best is None or chance > best[2]:
            best = sized, claim, chance
        if chance >= (1 + POWER) / 2:  # with room for the error of a simulation
            break
    if best is None:
        raise ValueError("no unit to audit")
    return best


def _growing(game: MechanismGame, adjacency: Adjacency) -> Iterator[MechanismGame]:
    """The game for its own unit, then for units of twice the rows, as far as there is sound
    accounting.
    """
    yield game
    rows = 2 * game.rows
    while isinstance(game, TableGame) and rows <= MAX_TABLE_ROWS:
        yield replace(game, rows=rows)
        rows *= 2
    while (
        isinstance(game, GradientGame) and adjacency == "add_remove" and rows <= MAX_GRADIENT_ROWS
    ):
        yield replace(game, rows=rows)
        rows *= 2
