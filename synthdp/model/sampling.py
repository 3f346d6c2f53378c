"""The synthetic table of a fitted model. All of it is post-processing of released values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.margins import Probabilities, one_way_probabilities
from synthdp.model.build import targets_of
from synthdp.model.constraints import Constraints
from synthdp.model.fit import Fitted, Progress
from synthdp.model.network import Architecture
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
    synthesizer = fitted.synthesizer.value
    codes = constraints.draw(
        lambda n: synthesizer.sample(n, rng=rng, threads=spec.compute.threads),
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
    if architecture.direct:
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
        pool = self.pool(synthesizer)
        if not self.spec.sampling.rake:
            return pool
        self.begin("raking")
        margins = one_way_probabilities(tables, self.domain.columns)
        columns = range(len(margins))
        if not self.spec.sampling.balance:
            return rake(pool, margins, columns=columns, rows=self.rows, rng=self.rng)
        factors = raking_factors(pool, margins, columns=columns)
        weights = raking_weights(pool, factors, columns=columns)
        self.begin("choosing rows")
        sizes = synthesizer.architecture.sizes
        smooth = synthesizer.architecture.direct
        measured = pairs_to_follow(tables, self.domain, smooth=smooth)
        chosen = balanced(pool, weights, sizes, rows=self.rows, rng=self.rng, measured=measured)
        self.begin("drawing what comes last")
        self.redraw(chosen, synthesizer, margins, measured)
        return chosen

    def pool(self, synthesizer: Synthesizer) -> Codes:
        """Rows that fulfil the constraints; more than the table has if it is raked."""
        sampling, threads = self.spec.sampling, self.spec.compute.threads
        return self.constraints.draw(
            lambda n: synthesizer.sample(n, rng=self.rng, threads=threads, progress=self.progress),
            self.rows * sampling.oversample if sampling.rake else self.rows,
            rng=self.rng,
        )

    def redraw(
        self,
        codes: Codes,
        synthesizer: Synthesizer,
        margins: Sequence[Probabilities],
        measured: Sequence[MeasuredPair],
    ) -> None:
        """Draw the last columns of `codes` again, in place, stratified over similar rows."""
        architecture = synthesizer.architecture
        last = drawn_last(self.spec, self.domain, architecture, self.constraints)
        if not last:
            return
        first = [i for i in range(len(margins)) if i not in last]
        order = kd_tree_order(codes[:, first], [self.domain.columns[i] for i in first])
        conditionals = synthesizer.probabilities(codes, last, rng=self.rng)
        for target, probabilities in zip(last, conditionals, strict=True):
            raked = raked_probabilities(
                probabilities, codes, target, margins[target], measured, architecture.sizes
            )
            codes[:, target] = stratified_draw(raked, order, rng=self.rng)
