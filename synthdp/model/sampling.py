"""The synthetic table of a fitted model. All of it is post-processing of released values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities
from synthdp.graph.prediction.groups import LevelLaw
from synthdp.model.architecture import Architecture
from synthdp.model.build import targets_of
from synthdp.model.constraints import Constraints
from synthdp.model.fit import Fitted, Progress
from synthdp.model.raking import rake, raking_factors, raking_weights
from synthdp.model.row_selection import MeasuredPair, balanced, pairs_to_follow
from synthdp.model.stratified import kd_tree_order, raked_probabilities, stratified_draw
from synthdp.model.synthesizer import Synthesizer
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.private import Released
from synthdp.spec.model import ReleaseSpec

TRIED_ROWS = 4096
"""Rows that are drawn and decoded to try the constraints."""


def sample(
    fitted: Fitted,
    spec: ReleaseSpec,
    *,
    rng: np.random.Generator,
    progress: Progress,
    begin: Callable[[str], None] = lambda what: None,
) -> Released[Codes]:
    """The synthetic table as levels `[rows, columns]`, which fulfil the constraints.

    If the spec says so, the table is raked to the margins of the noisy tables. `progress` hears of
    drawn rows, `begin` of each later step by its name.
    """
    domain = Domain.from_spec(spec.columns)
    constraints = Constraints.from_spec(spec, domain)
    table = _TableDraw(spec, domain, constraints, rng, progress, begin)
    return fitted.synthesizer.zip(fitted.tables).map(lambda pair: table.draw(*pair))


def try_constraints(fitted: Fitted, spec: ReleaseSpec, *, rng: np.random.Generator) -> None:
    """Draw and decode some rows, to check that the trained model can fulfil the constraints.

    It runs before any step that takes long.

    Raises:
        ConstraintsUnmet: too few rows fulfil the constraints.
    """
    constraints = Constraints.from_spec(spec, Domain.from_spec(spec.columns))
    if not constraints.expressions:
        return
    synthesizer, threads = fitted.synthesizer.value, spec.compute.threads
    law = LevelLaw.of_tables(fitted.tables.value, constraints.domain)
    codes = constraints.draw(
        lambda n: law.drawn(synthesizer.sample(n, rng=rng, threads=threads), rng=rng),
        TRIED_ROWS,
        rng=rng,
    )
    constraints.decode(codes, rng=rng)


def drawn_last(
    spec: ReleaseSpec, domain: Domain, architecture: Architecture, constraints: Constraints
) -> list[int]:
    """Positions of the columns that are drawn again after all others, in increasing order.

    These are the columns that the spec names, and targets without children that no constraint
    reads.
    """
    causes = {p for parents in architecture.parents for p in parents}
    read = {domain.index(column.name) for column in constraints.columns}
    named = targets_of(spec, domain, architecture)
    if spec.graph.mode == "predict":
        named = tuple(domain.index(name) for name in spec.evaluation.targets)
    targets = set(named) - causes - read
    return sorted({*targets, *(domain.index(name) for name in spec.sampling.even)})


@dataclass(frozen=True)
class _TableDraw:
    """The steps of `sample`."""

    spec: ReleaseSpec
    domain: Domain
    constraints: Constraints
    rng: np.random.Generator
    progress: Progress
    begin: Callable[[str], None]

    @property
    def rows(self) -> int:
        """Rows of the synthetic table."""
        return self.spec.sampling.rows or self.spec.dataset.rows.value

    def draw(self, synthesizer: Synthesizer, tables: Sequence[NoisyTable]) -> Codes:
        """The table, `[rows, columns]`."""
        law = LevelLaw.of_tables(tables, self.domain)
        pool = self.pool(synthesizer, law)
        if not self.spec.sampling.rake:
            return pool
        self.begin("raking")
        columns, groups, margins = range(len(self.domain)), law.groups, law.coarse_margins
        if not self.spec.sampling.balance:
            return rake(pool, law.margins, columns=columns, rows=self.rows, rng=self.rng)
        coarse = groups.of(pool)
        factors = raking_factors(coarse, margins, columns=columns)
        weights = raking_weights(coarse, factors, columns=columns)
        self.begin("choosing rows")
        sizes = synthesizer.architecture.sizes
        smooth = synthesizer.architecture.direct
        measured = pairs_to_follow(tables, self.domain, smooth=smooth)
        kept = [self.domain.index(c.name) for c in self.constraints.columns]
        carrying = np.hstack([coarse, pool[:, kept]])
        chosen = balanced(carrying, weights, sizes, rows=self.rows, rng=self.rng, measured=measured)
        coarse, levels = chosen[:, : len(sizes)], chosen[:, len(sizes) :]
        self.begin("drawing what comes last")
        last = self.redraw(coarse, synthesizer, groups.coarse, margins, measured)
        codes = law.drawn(coarse, rng=self.rng)
        for place, own in zip(kept, levels.T, strict=True):
            if place not in last:  # its constraints hold for the level that was drawn
                codes[:, place] = own
        return codes

    def pool(self, synthesizer: Synthesizer, law: LevelLaw) -> Codes:
        """Rows that fulfil the constraints; more than the table has if it is raked."""
        sampling, threads = self.spec.sampling, self.spec.compute.threads

        def drawn(rows: int) -> Codes:
            codes = synthesizer.sample(rows, rng=self.rng, threads=threads, progress=self.progress)
            return law.drawn(codes, rng=self.rng)

        return self.constraints.draw(
            drawn,
            self.rows * sampling.oversample if sampling.rake else self.rows,
            rng=self.rng,
        )

    def redraw(
        self,
        codes: Codes,
        synthesizer: Synthesizer,
        domain: Domain,
        margins: Sequence[Probabilities],
        measured: Sequence[MeasuredPair],
    ) -> list[int]:
        """Draw the last columns of `codes` again, in place, stratified over similar rows.

        `domain` has the model's levels. Returns the positions of these columns.
        """
        architecture = synthesizer.architecture
        last = drawn_last(self.spec, domain, architecture, self.constraints)
        if not last:
            return last
        first = [i for i in range(len(margins)) if i not in last]
        order = kd_tree_order(codes[:, first], [domain.columns[i] for i in first])
        conditionals = synthesizer.probabilities(codes, last, rng=self.rng)
        for target, probabilities in zip(last, conditionals, strict=True):
            raked = raked_probabilities(
                probabilities, codes, target, margins[target], measured, architecture.sizes
            )
            codes[:, target] = stratified_draw(raked, order, rng=self.rng)
        return last
