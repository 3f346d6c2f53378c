"""The games of the worst-case audit: a mechanism, two tables that differ in one unit, and a score.

One execution of the code hosts many runs of the audit at once: each has a cell or a direction of
its own, and cells and directions have noise of their own and rows their own coins, so these runs
are as independent as the mechanism claims. (A mechanism that shared its noise between cells would
be judged on fewer runs than it seems.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import dp_accounting
import numpy as np
import pandas as pd

from synthdp.audit.mechanisms import directions
from synthdp.audit.mechanisms.f_curve import Scores
from synthdp.data.domain import ColumnDomain, Domain
from synthdp.data.encoding import Codes
from synthdp.privacy.dpsgd.settings import DpSgd
from synthdp.privacy.event_base import Adjacency
from synthdp.privacy.mechanisms.marginals import ChosenMarginals, NoisyMarginals
from synthdp.privacy.noise import Randomness, fresh_generator
from synthdp.privacy.table import Table

Fresh = Callable[[], Randomness]

TABLE_CELLS = (
    32  # cells of one audited table; noise is drawn cell by cell, so more would only cost time
)
DIRECTIONS = 1000  # directions of one training: keeps a step at a few milliseconds
STEPS = 500  # one-step runs of one training
CROWD = 100  # other rows that pull against the target
HALF_NOISE = "half the noise"


class MechanismGame(Protocol):
    """One mechanism, one pair of tables, one score."""

    @property
    def mechanism(self) -> str:
        """Name of the mechanism, as in the plan."""
        ...

    @property
    def method(self) -> str:
        """What differs between D and D', and what the adversary sees."""
        ...

    @property
    def fault(self) -> str:
        """The fault that this game is made to find."""
        ...

    @property
    def rows(self) -> int:
        """Rows of the unit."""
        ...

    def event(self) -> dp_accounting.DpEvent:
        """What is claimed of one run."""
        ...

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Scores of `runs` real runs on D (world 0) or D' (world 1); `played` is told how many each
        execution adds.
        """
        ...

    def simulate_fault(self, world: int, runs: int) -> Scores:
        """Scores of a mechanism with that fault, from its model and without its code."""
        ...


@dataclass(frozen=True)
class TableGame:
    """A unit in one cell of every table, against no unit; under replace-one, against the same unit
    in another cell.

    The noise of all tables is Gaussian, so the sum of the noisy counts of the unit's cells, each
    over its noise squared, is the likelihood ratio's logarithm, up to an offset. `levels` is the
    number of levels of each column.
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
        """The game on the mechanism's own tables and noise, its columns cut to a few levels."""
        levels = max(
            2, math.floor(TABLE_CELLS ** (1 / max(len(t) for t in mechanism.tables)) + 1e-9)
        )
        names = sorted({c for table in mechanism.tables for c in table})
        narrow = Domain(
            tuple(
                ColumnDomain(n, "categorical", tuple(f"level {i}" for i in range(levels)), False)
                for n in names
            )
        )
        if isinstance(mechanism, NoisyMarginals):
            return cls(replace(mechanism, domain=narrow), rows, adjacency, levels)
        return cls(
            replace(mechanism, budget=replace(mechanism.budget, domain=narrow)),
            rows,
            adjacency,
            levels,
        )

    @property
    def mechanism(self) -> str:
        """As in the plan."""
        return self.audited.name

    def event(self) -> dp_accounting.DpEvent:
        """As in the plan, for this unit."""
        return self.audited.event(self.rows)

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Every level, or pair of levels under replace-one, hosts a run."""
        paired = self.adjacency == "replace_one"
        homes = np.arange(0, self.levels - paired, 1 + paired)
        columns = len(
            self.audited.domain
            if isinstance(self.audited, NoisyMarginals)
            else self.audited.budget.domain
        )
        scores: list[Scores] = []
        while sum(map(len, scores)) < runs:
            homes = homes[: runs - sum(map(len, scores))]
            units = homes + world if paired else homes[: len(homes) * world]
            table = _table(
                np.repeat(units, self.rows)[:, None].repeat(columns, axis=1).astype(np.uint16)
            )
            released = self.audited.run(table, fresh())
            counts = np.sum(
                [
                    t.counts[tuple([np.arange(self.levels)] * t.counts.ndim)] / t.sigma**2
                    for t in released
                ],
                axis=0,
            )
            scores.append(counts[homes + 1] - counts[homes] if paired else counts[homes])
            played(len(homes))
        return np.concatenate(scores)

    def simulate_fault(self, world: int, runs: int) -> Scores:
        """Half the noise."""
        return self.simulate(world, runs, noise_factor=0.5)

    def simulate(self, world: int, runs: int, *, noise_factor: float) -> Scores:
        """Scores as the accountant models them, with the noise multiplied by `noise_factor`: a sum
        of Gaussians.
        """
        precision, sides = (
            math.fsum(sigma**-2 for sigma in self.audited.sigmas),
            2 if self.adjacency == "replace_one" else 1,
        )
        move = self.rows * precision * (2 * world - 1 if sides == 2 else world)
        return np.asarray(
            move + fresh_generator().normal(0, noise_factor * math.sqrt(precision * sides), runs)
        )


@dataclass(frozen=True)
class GradientGame:
    """A unit whose gradients are clipped to exactly the clipping norm along one direction, against
    no unit.

    Under replace-one D has a unit that pulls the other way. Rate, steps, clip and noise are the
    plan's.
    """

    settings: DpSgd
    rows: int
    adjacency: Adjacency
    method: str = "noisy gradients, unit along one direction"
    fault: str = HALF_NOISE

    @property
    def mechanism(self) -> str:
        """As in the plan."""
        return self.settings.name

    def event(self) -> dp_accounting.DpEvent:
        """As in the plan, for this unit."""
        return self.settings.event(self.rows)

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Every direction of a training hosts a run."""
        scores: list[Scores] = []
        for begin in range(0, runs, DIRECTIONS):
            scores.append(self._train(world, min(DIRECTIONS, runs - begin), fresh()))
            played(len(scores[-1]))
        return np.concatenate(scores)

    def _train(self, world: int, runs: int, randomness: Randomness) -> Scores:
        codes = np.empty((0, 1), dtype=np.uint16)
        if world == 1 or self.adjacency == "replace_one":
            codes = directions.row_of(
                np.repeat(np.arange(runs), self.rows), sign=1 if world else -1
            )[:, None]
        total = np.zeros(runs)

        def observe(seen: Scores) -> None:
            nonlocal total
            total = total + self._ratio(seen)

        module = directions.DirectionLoss(runs, clip=self.settings.clip)
        directions.train(self.settings, codes, module, randomness, observe)
        return total

    def _ratio(self, seen: Scores) -> Scores:
        """Log likelihood ratio of one step, D' against D."""
        ratio = directions.log_likelihood(seen, settings=self.settings, rows=self.rows)
        if self.adjacency == "replace_one":
            ratio = ratio - directions.log_likelihood(
                seen, settings=self.settings, rows=self.rows, sign=-1
            )
        return ratio

    def simulate_fault(self, world: int, runs: int) -> Scores:
        """Half the noise."""
        return self.simulate(world, runs, noise_factor=0.5)

    def simulate(self, world: int, runs: int, *, noise_factor: float) -> Scores:
        """Scores as the accountant models them, with the noise multiplied by `noise_factor`."""
        rows = self.rows if world or self.adjacency == "replace_one" else 0
        return directions.simulate(
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
    """Whether batches are Poisson: one row pulls against a crowd that pulls the other way along the
    same direction.

    In a Poisson batch the row comes on top of the others: it moves the sum by clip. Where batches
    have a fixed size it takes another's place and moves the sum by twice that. The sampler alone is
    on trial, so its settings are not the plan's: rate 1/2 and noise multiplier 1, where a step says
    the most. Losses are linear, so each step of a training is a one-step run.
    """

    planned: DpSgd
    rows: int = 1
    method: str = "Poisson batches, a row against a crowd, one step at rate 1/2"
    fault: str = "batches of fixed size"

    @property
    def mechanism(self) -> str:
        """As in the plan."""
        return self.planned.name

    def _settings(self, steps: int) -> DpSgd:
        return replace(
            self.planned, rate=0.5, noise_multiplier=1.0, expected_batch=CROWD / 2, steps=steps
        )

    def event(self) -> dp_accounting.DpEvent:
        """One step of a row."""
        return self._settings(1).event(self.rows)

    def play(self, world: int, runs: int, fresh: Fresh, played: Callable[[int], None]) -> Scores:
        """Every step of a training is a run; the score is the noisy sum itself."""
        codes = directions.row_of(np.zeros(CROWD + world), sign=-1)[:, None]
        codes[CROWD:] = directions.row_of(0)
        scores: list[Scores] = []
        for begin in range(0, runs, STEPS):
            settings = self._settings(min(STEPS, runs - begin))
            directions.train(
                settings,
                codes,
                directions.DirectionLoss(1, clip=settings.clip),
                fresh(),
                scores.append,
            )
            played(settings.steps)
        return np.concatenate(scores)

    def simulate_fault(self, world: int, runs: int) -> Scores:
        """Always CROWD / 2 rows in a batch: the crowd's alone, or the target's row and one less of
        the crowd's.
        """
        rng = fresh_generator()
        joined = world * rng.binomial(1, 0.5, runs)
        return np.asarray(2 * joined - CROWD / 2 + rng.standard_normal(runs))


def _table(codes: Codes) -> Table:
    return Table(codes, pd.DataFrame(), np.zeros(len(codes), dtype=bool), {})
