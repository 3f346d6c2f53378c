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

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

import dp_accounting
import numpy as np
import numpy.typing as npt
import pandas as pd

from synthdp.audit.mechanisms.canaries import (
    HALF_NOISE,
    CurveClaim,
    DirectionLoss,
    Scores,
    log_likelihood,
    row_of,
    simulate,
    train,
)
from synthdp.bundle import Audit
from synthdp.data import Codes, ColumnDomain, Domain
from synthdp.privacy import PlannedMechanism
from synthdp.privacy.accounting import Adjacency
from synthdp.privacy.dpsgd import DpSgd
from synthdp.privacy.dpsgd.training import Progress
from synthdp.privacy.mechanisms.marginals import AdaptiveMarginals, ChosenMarginals, NoisyMarginals
from synthdp.privacy.noise import Randomness, Streams, fresh_generator
from synthdp.privacy.plan import ReleasePlan
from synthdp.privacy.table import Table
from tests.audit.statistical.f_curve import detection_rate, judge, provable_epsilon

RUNS = 5000
POWER = 0.95  # wanted probability to detect half the noise
SIMULATED_RUNS, REPEATS = 10_000, 200  # what that probability is estimated from
TABLES_CHOSEN = 3
MAX_TABLE_ROWS = 1 << 20  # of a unit in a table
MAX_GRADIENT_ROWS = 32  # of a unit in DP-SGD, where small stages at epsilon .1 first have power


def audit_plan(
    plan: ReleasePlan,
    domain: Domain,
    *,
    runs: int = RUNS,
    progress: Progress = lambda done, total: None,
    fresh: Fresh = Streams.fresh,
) -> tuple[Audit, ...]:
    """Audit noise and clipping of the plan's mechanisms, with `runs` runs of each, half on D'."""
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
) -> Audit:
    """Grow the unit until the fault would be detected, play, and judge."""
    sized = powerful(game, delta=delta, adjacency=adjacency, runs=runs)
    return audit_sized(sized, runs=runs, fresh=fresh, played=played)


def audit_sized(
    sized: Sized,
    *,
    runs: int,
    fresh: Fresh = Streams.fresh,
    played: Callable[[int], None] = lambda more: None,
) -> Audit:
    """Play and judge a game whose unit has been grown; many audits may share one."""
    game, claim, power_of_game = sized
    out = game.play(0, runs // 2, fresh, played)
    inside = game.play(1, runs // 2, fresh, played)
    verdict = judge(out, inside, claim)
    return Audit(
        mechanism=game.mechanism,
        method=game.method,
        unit_rows=game.rows,
        runs=2 * (runs // 2),
        epsilon=claim.epsilon if math.isfinite(claim.epsilon) else None,
        delta=claim.delta,
        epsilon_lower=verdict.epsilon_lower,
        epsilon_provable=provable_epsilon(runs, delta=claim.delta),
        fault=game.fault,
        power=power_of_game,
        refuted=verdict.alarm,
    )


def power(game: MechanismGame, claim: CurveClaim, *, runs: int, repeats: int = REPEATS) -> float:
    """Probability that an audit of `runs` runs raises the alarm on the game's fault."""
    out, inside = (game.simulate_fault(world, SIMULATED_RUNS) for world in (0, 1))
    return detection_rate(out, inside, claim, runs=runs, repeats=repeats)


def powerful(game: MechanismGame, *, delta: float, adjacency: Adjacency, runs: int) -> Sized:
    """The game with the smallest unit that has the wanted power, or else with the most power.

    Audits that are simulated together share their runs, which move them together: a power of .9 is
    seen as .975 in one of twenty simulations, and so it must be seen in three.
    """
    best: Sized | None = None
    enough = (1 + POWER) / 2  # higher than wanted, for the error of the simulation
    for sized in _growing(game, adjacency):
        claim = CurveClaim.of([sized.event()], delta=delta, adjacency=adjacency)
        detected = power(sized, claim, runs=runs)
        if detected >= enough:
            detected = min(detected, *(power(sized, claim, runs=runs) for _ in range(2)))
        if best is None or detected > best[2]:
            best = sized, claim, detected
        if detected >= enough:
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


# --- games ---

# One execution of the code hosts many runs of the audit at once, each with a cell or a direction
# that no other run uses: cells and directions have independent noise, and their rows coins.
Fresh = Callable[[], Randomness]

TABLE_CELLS = 32  # of one audited table; noise is drawn for each cell, so more only cost time
DIRECTIONS = 1000  # directions of one training: keeps a step at a few milliseconds
STEPS = 500  # one-step runs of one training
CROWD = 100  # other rows, with the opposite gradient


class MechanismGame(Protocol):
    """One mechanism, one pair of tables, one score."""

    @property
    def mechanism(self) -> str: ...  # as in the plan

    @property
    def method(self) -> str: ...  # what differs between D and D', and what the adversary sees

    @property
    def fault(self) -> str: ...  # that it looks for

    @property
    def rows(self) -> int: ...  # of the unit

    def event(self) -> dp_accounting.DpEvent: ...  # of one run

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Scores of `runs` real runs on D (world 0) or D' (world 1); `played` hears each more."""

    def simulate_fault(self, world: int, runs: int) -> Scores:
        """Scores of a mechanism with that fault, from its model and without its code."""


Sized = tuple[MechanismGame, CurveClaim, float]  # with its claim and the probability to detect


@dataclass(frozen=True)
class TableGame:
    """A unit in one cell of every table against no unit, or (replace-one) in another cell.

    The log likelihood ratio of Gaussian noise is, up to an offset, the sum of the noisy counts of
    the unit's cells, each over its noise squared.
    """

    audited: NoisyMarginals | ChosenMarginals
    rows: int
    adjacency: Adjacency
    levels: int
    method: str = "noisy tables, unit in one cell of each"
    fault: str = HALF_NOISE

    @classmethod
    def of(
        cls, mechanism: NoisyMarginals | ChosenMarginals, rows: int, adjacency: Adjacency
    ) -> TableGame:
        """The game on the mechanism's tables and noise, its columns cut to a few levels."""
        widest = max(len(table) for table in mechanism.tables)
        levels = max(2, math.floor(TABLE_CELLS ** (1 / widest) + 1e-9))
        labels = tuple(f"level {i}" for i in range(levels))
        names = sorted({c for table in mechanism.tables for c in table})
        narrow = Domain(tuple(ColumnDomain(n, "categorical", labels, False) for n in names))
        if isinstance(mechanism, NoisyMarginals):
            return cls(replace(mechanism, domain=narrow), rows, adjacency, levels)
        budget = replace(mechanism.budget, domain=narrow)
        return cls(replace(mechanism, budget=budget, starts={}), rows, adjacency, levels)

    @property
    def mechanism(self) -> str:
        return self.audited.name

    def event(self) -> dp_accounting.DpEvent:
        return self.audited.event(self.rows)

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Every level hosts a run; under replace-one, every pair of levels."""
        paired = self.adjacency == "replace_one"
        homes = np.arange(0, self.levels - paired, 1 + paired)
        scores = np.empty(0)
        while len(scores) < runs:
            homes = homes[: runs - len(scores)]
            units = homes + world if paired else homes[: len(homes) * world]
            sums = self._weighted_sums(units, fresh())
            seen = sums[homes + 1] - sums[homes] if paired else sums[homes]
            scores = np.concatenate([scores, seen])
            played(len(homes))
        return scores

    def _weighted_sums(self, units: npt.NDArray[np.integer], randomness: Randomness) -> Scores:
        """Noisy counts over squared noise, summed over tables, `[levels]`; `units` have rows."""
        audited = self.audited
        domain = audited.domain if isinstance(audited, NoisyMarginals) else audited.budget.domain
        codes = np.repeat(units, self.rows)[:, None].repeat(len(domain), axis=1)
        total = np.zeros(self.levels)
        for table in audited.run(_table(codes.astype(np.uint16)), randomness):
            diagonal = tuple([np.arange(self.levels)] * table.counts.ndim)
            total += table.counts[diagonal] / table.sigma**2
        return total

    def simulate_fault(self, world: int, runs: int) -> Scores:
        return self.simulate(world, runs, noise_factor=0.5)

    def simulate(self, world: int, runs: int, *, noise_factor: float) -> Scores:
        precision = math.fsum(sigma**-2 for sigma in self.audited.sigmas)
        cells, sign = (2, 2 * world - 1) if self.adjacency == "replace_one" else (1, world)
        scale = noise_factor * math.sqrt(precision * cells)
        noise = fresh_generator().normal(0, scale, runs)
        return np.asarray(self.rows * precision * sign + noise)


@dataclass(frozen=True)
class GradientGame:
    """Gradients of the clipping norm along one direction, against none or the opposite ones."""

    settings: DpSgd
    rows: int
    adjacency: Adjacency
    method: str = "noisy gradients, unit along one direction"
    fault: str = HALF_NOISE

    @property
    def mechanism(self) -> str:
        return self.settings.name

    def event(self) -> dp_accounting.DpEvent:
        return self.settings.event(self.rows)

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Every direction of a training hosts a run."""
        scores: list[Scores] = []
        for begin in range(0, runs, DIRECTIONS):
            scores.append(self._train(world, min(DIRECTIONS, runs - begin), fresh()))
            played(len(scores[-1]))
        return np.concatenate(scores)

    def _train(self, world: int, runs: int, randomness: Randomness) -> Scores:
        there = world == 1 or self.adjacency == "replace_one"
        direction = np.repeat(np.arange(runs if there else 0), self.rows)
        codes = row_of(direction, sign=1 if world else -1)[:, None]
        total = np.zeros(runs)

        def observe(seen: Scores) -> None:
            nonlocal total
            total = total + self._ratio(seen)

        module = DirectionLoss(runs, clip=self.settings.clip)
        train(self.settings, codes, module, randomness, observe, units=direction)
        return total

    def _ratio(self, seen: Scores) -> Scores:
        ratio = log_likelihood(seen, settings=self.settings, rows=self.rows)
        if self.adjacency == "replace_one":
            ratio = ratio - log_likelihood(seen, settings=self.settings, rows=self.rows, sign=-1)
        return ratio

    def simulate_fault(self, world: int, runs: int) -> Scores:
        return self.simulate(world, runs, noise_factor=0.5)

    def simulate(self, world: int, runs: int, *, noise_factor: float) -> Scores:
        rows = self.rows if world or self.adjacency == "replace_one" else 0
        return simulate(
            self.settings,
            rows=rows,
            sign=1 if world else -1,
            runs=runs,
            noise_factor=noise_factor,
            rng=fresh_generator(),
            ratio=self._ratio,
        )


@dataclass(frozen=True)
class BatchGame:
    """Test of Poisson sampling: one row against a crowd with the opposite gradient.

    A Poisson batch has the row on top of the others, which moves the sum by clip; in one of fixed
    size it takes another's place, which moves it by twice that. Rate 1/2 and noise multiplier 1,
    where a step tells most; losses are linear, so each step of a training is a one-step run.
    """

    planned: DpSgd
    rows: int = 1
    method: str = "Poisson batches, a row against a crowd, one step at rate 1/2"
    fault: str = "batches of fixed size"

    @property
    def mechanism(self) -> str:
        return self.planned.name

    def _settings(self, steps: int) -> DpSgd:
        return replace(
            self.planned,
            rate=0.5,
            noise_multiplier=1.0,
            expected_batch=CROWD / 2,
            steps=steps,
            sample=1.0,
        )

    def event(self) -> dp_accounting.DpEvent:
        return self._settings(1).event(self.rows)

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Every step of a training is a run; the score is the noisy sum."""
        codes = row_of(np.zeros(CROWD + world), sign=-1)[:, None]
        codes[CROWD:] = row_of(0)
        scores: list[Scores] = []
        for begin in range(0, runs, STEPS):
            settings = self._settings(min(STEPS, runs - begin))
            module = DirectionLoss(1, clip=settings.clip)
            train(settings, codes, module, fresh(), scores.append)
            played(settings.steps)
        return np.concatenate(scores)

    def simulate_fault(self, world: int, runs: int) -> Scores:
        """Always CROWD / 2 rows in a batch: the crowd's, or the target's and one fewer."""
        rng = fresh_generator()
        joined = world * rng.binomial(1, 0.5, runs)
        return np.asarray(2 * joined - CROWD / 2 + rng.standard_normal(runs))


def _table(codes: Codes) -> Table:
    """A table of levels `[rows, columns]` without values."""
    return Table(codes, pd.DataFrame(), np.zeros(len(codes), dtype=bool), {})
