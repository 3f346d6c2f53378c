"""The synthetic table of a fitted model. All of it is post-processing of released values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.level_groups import LevelLaw
from synthdp.graph.margins import Probabilities
from synthdp.graph.prior import Prior
from synthdp.model import raking
from synthdp.model.ancestral import Architecture
from synthdp.model.constraints import Constraints
from synthdp.model.fit import Fitted, Progress, targets_of
from synthdp.model.planning import noisy_total
from synthdp.model.raking import Floats, Strata, kd_tree_order, raked_probabilities, stratified_draw
from synthdp.model.row_selection import SETTINGS, MeasuredPair, balanced, pairs_to_follow
from synthdp.model.synthesizer import Synthesizer
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import Sums
from synthdp.privacy.private import Released
from synthdp.spec.model import ReleaseSpec


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
    constraints = Constraints.from_spec(spec, fitted.drawn_from(domain))
    table = _TableDraw(spec, domain, constraints, rng, progress, begin, fitted.prior)
    sums = fitted.tables.map(lambda _: dict[str, Sums]())
    for name, one in fitted.sums.items():
        sums = sums.zip(one).map(lambda both, name=name: both[0] | {name: both[1]})  # type: ignore[misc]
    released = fitted.synthesizer.zip(fitted.known).zip(sums)
    return released.map(lambda paid: table.draw(*paid[0], paid[1]))


def try_constraints(fitted: Fitted, spec: ReleaseSpec, *, rng: np.random.Generator) -> None:
    """Draw and decode 4096 rows, to check that the trained model can fulfil the constraints.

    It runs before any step that takes long.

    Raises:
        ConstraintsUnmet: too few rows fulfil the constraints.
    """
    domain = fitted.drawn_from(Domain.from_spec(spec.columns))
    constraints = Constraints.from_spec(spec, domain)
    if not constraints.expressions:
        return
    synthesizer, threads = fitted.synthesizer.value, spec.compute.threads
    law = LevelLaw.of_tables(fitted.known.value, constraints.domain, fitted.prior)

    def drawn(rows: int) -> Codes:
        return law.drawn(synthesizer.sample(rows, rng=rng, threads=threads), rng=rng)

    constraints.decode(constraints.draw(drawn, 4096, rng=rng), rng=rng)


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
        named = tuple(map(domain.index, spec.evaluation.targets))
    targets = set(named) - causes - read
    return sorted({*targets, *map(domain.index, spec.sampling.even)})


@dataclass(frozen=True)
class _TableDraw:
    spec: ReleaseSpec
    domain: Domain
    constraints: Constraints
    rng: np.random.Generator
    progress: Progress
    begin: Callable[[str], None]
    prior: Prior | None = None

    @property
    def rows(self) -> int:
        return self.spec.sampling.rows or self.spec.dataset.rows.value

    def draw(
        self, synthesizer: Synthesizer, tables: Sequence[NoisyTable], sums: Mapping[str, Sums]
    ) -> Codes:
        """The table, `[rows, columns]`, which follows the tables and the sums by stratum."""
        law = LevelLaw.of_tables(tables, self.domain, self.prior)
        pool = self.pool(synthesizer, law)
        if not self.spec.sampling.rake:
            return pool
        self.begin("raking")
        columns, groups, margins = range(len(self.domain)), law.groups, law.coarse_margins
        if not self.spec.sampling.balance:
            return raking.rake(pool, law.margins, columns=columns, rows=self.rows, rng=self.rng)
        coarse = groups.of(pool)
        strata = raking.strata_to_follow(self.spec, self.domain, sums, noisy_total(tables).rows)
        placed = [one.placed(pool, self.rng) for one in strata]
        weights = raking.followed_weights(coarse, margins, strata, placed)
        self.begin("choosing rows")
        smooth = synthesizer.architecture.direct
        measured = pairs_to_follow(law, smooth=smooth)
        read = {c.name for c in self.constraints.columns} | {n for s in strata for n in s.deciding}
        kept = [self.domain.index(name) for name in self.domain.names if name in read]
        inside = [p.strata[:, None].astype(np.uint16) for p in placed]
        sizes = (*synthesizer.architecture.sizes, *(one.size + 1 for one in strata))
        carrying = np.hstack([coarse, *inside, pool[:, kept]])
        chosen = balanced(carrying, weights, sizes, rows=self.rows, rng=self.rng, measured=measured)
        coarse, levels = chosen[:, : len(columns)].copy(), chosen[:, len(sizes) :]

        def fine(groups_of_rows: Codes, last: Collection[int]) -> Codes:
            codes = law.drawn(groups_of_rows.copy(), rng=self.rng)
            for place, own in zip(kept, levels.T, strict=True):
                if place not in last:  # its constraints hold for the level that was drawn
                    codes[:, place] = own
            return codes

        self.begin("drawing what comes last")
        redraw = _Redraw(self, synthesizer, groups.coarse, margins, measured, strata, fine)
        return fine(coarse, redraw.draw(coarse))

    def pool(self, synthesizer: Synthesizer, law: LevelLaw) -> Codes:
        """Rows that fulfil the constraints; more than the table has if it is raked."""
        sampling, threads = self.spec.sampling, self.spec.compute.threads

        def drawn(rows: int) -> Codes:
            codes = synthesizer.sample(rows, rng=self.rng, threads=threads, progress=self.progress)
            return law.drawn(codes, rng=self.rng)

        wanted = self.rows * (sampling.oversample if sampling.rake else 1)
        return self.constraints.draw(drawn, wanted, rng=self.rng)


@dataclass(frozen=True)
class _Redraw:
    """The columns that are drawn again after all others, stratified over similar rows.

    `domain` has the model's levels. `fine` gives the levels of rows' groups, drawn anew for the
    columns at some positions.
    """

    table: _TableDraw
    synthesizer: Synthesizer
    domain: Domain
    margins: Sequence[Probabilities]
    measured: Sequence[MeasuredPair]
    strata: Sequence[Strata]
    fine: Callable[[Codes, Collection[int]], Codes]

    def draw(self, codes: Codes) -> list[int]:
        """Draw the last columns of `codes` again, in place; returns their positions."""
        architecture, rng = self.synthesizer.architecture, self.table.rng
        last = drawn_last(self.table.spec, self.domain, architecture, self.table.constraints)
        if not last:
            return last
        first = [i for i in range(len(self.margins)) if i not in last]
        order = kd_tree_order(codes[:, first], [self.domain.columns[i] for i in first])
        conditionals = self.synthesizer.probabilities(codes, last, rng=rng)
        for target, probabilities in zip(last, conditionals, strict=True):
            margin, sizes = self.margins[target], architecture.sizes
            raked = raked_probabilities(probabilities, codes, target, margin, self.measured, sizes)
            raked = self.pulled(raked, codes, target, last)
            codes[:, target] = stratified_draw(raked, order, rng=rng)
        return last

    def pulled(
        self, probabilities: Floats, codes: Codes, target: int, last: Collection[int]
    ) -> Floats:
        """`probabilities` `[rows, levels]` that follow a target's strata and margin in turn."""
        asked = [s for s in self.strata if self.domain.names[target] in s.columns]
        if not asked:
            return probabilities
        at_levels = []
        for level in range(probabilities.shape[1]):
            codes[:, target] = level
            at_levels.append(self.fine(codes, last))
        pulls = [
            one.pull(probabilities, raking.joined(one.placed(c, self.table.rng) for c in at_levels))
            for one in asked
        ]
        wanted = self.margins[target] * len(codes)
        for _ in range(SETTINGS.strata_rounds):
            for pull in pulls:
                probabilities = pull.on(probabilities)
            probabilities = probabilities * (wanted / np.maximum(probabilities.sum(0), 1e-12))
            probabilities /= np.maximum(probabilities.sum(1, keepdims=True), 1e-12)
        return probabilities
