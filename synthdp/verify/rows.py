"""The check that the table comes from the model.

Its pairs of columns are compared with rows drawn from the released weights.

What it shows: rows that did not come out of this model, where two columns go together otherwise
than there. What it cannot show: a forger whose table agrees with the model in all pairs, as a table
does that a good model was trained on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synthdp.bundle.metadata.datapackage import CSV_NAME
from synthdp.bundle.noisy_sums import ESTIMANDS
from synthdp.bundle.noisy_tables import read_tables
from synthdp.data.domain import Domain
from synthdp.data.encoding import Codes
from synthdp.graph.prediction.groups import LevelLaw
from synthdp.inference.estimands import stated_sums
from synthdp.model.constraints import Constraints
from synthdp.model.row_selection import (
    MeasuredPair,
    blended,
    pairs_to_follow,
    with_margins,
)
from synthdp.model.strata_raking import Strata, followed_weights, strata_to_follow
from synthdp.model.stratified import DOUBT
from synthdp.model.synthesizer import Synthesizer
from synthdp.model.total import noisy_total
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.noise import fresh_generator
from synthdp.verify.noise import FALSE_ALARMS
from synthdp.verify.reader import Check, Reader

MAX_DRAWN = 50_000  # rows of the model
MAX_CELLS = 20_000_000  # values of what is drawn
MAX_PAIRS = 300
CHOSEN, PULLED = (
    2.0,
    0.02,
)  # for rows that were raked and chosen: times the limit, and total variation beyond it

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Drawn:
    """Rows of the model with weights, whose sum is one."""

    codes: Codes
    weights: Floats

    @property
    def worth(self) -> float:
        """So many independent rows of equal weight are as exact (Kish)."""
        return float(1 / (self.weights**2).sum())


def _check_rows(reader: Reader) -> Iterator[str]:
    """Every pair of columns is distributed in the table as in the model, up to chance and noise."""
    spec = reader.spec
    domain = Domain.from_spec(spec.columns)
    if len(domain) < 2 or not reader.rows:
        return
    tables, rng = read_tables(reader.folder), fresh_generator()
    law = LevelLaw.of_tables(tables, domain)
    table, domain = law.groups.of(np.concatenate(reader.rows)), law.groups.coarse
    rows = len(table)
    measured, drawn = _drawn(reader, tables, law, rows, rng)
    worth = (
        rows
        if not spec.sampling.rake
        else min(
            rows,
            spec.sampling.oversample * (spec.sampling.rows or 0) * drawn.worth / len(drawn.codes),
        )
    )
    pairs = list(itertools.combinations(range(len(domain)), 2))
    if len(pairs) > MAX_PAIRS:
        pairs = [pairs[i] for i in rng.choice(len(pairs), MAX_PAIRS, replace=False)]
    for first, second in pairs:
        own, model = (
            _shares(c, w, (first, second), domain.sizes)
            for c, w in ((table, np.full(len(table), 1 / len(table))), (drawn.codes, drawn.weights))
        )
        apart, allowed = (
            _apart(own, model, measured.get((first, second))),
            _allowed(own, model, worth, drawn.worth, pairs=len(pairs)),
        )
        if spec.sampling.rake:
            allowed = CHOSEN * allowed + PULLED
        if apart > allowed:
            names = f"{domain.names[first]!r} and {domain.names[second]!r}"
            far = f"{apart:.3f} (total variation), of which chance explains {allowed:.3f}"
            yield f"{CSV_NAME}: its rows are not of the model: {names} differ from it by {far}"


def _drawn(
    reader: Reader,
    tables: Sequence[NoisyTable],
    law: LevelLaw,
    rows: int,
    rng: np.random.Generator,
) -> tuple[dict[tuple[int, int], MeasuredPair], _Drawn]:
    """Rows of the distribution that the release drew from, and the measured pairs it used.

    They fulfil the constraints and are weighted to the noisy margins, and to the counts and sums by
    stratum. Levels are groups.
    """
    spec, domain = reader.spec, law.groups.domain
    synthesizer = Synthesizer.load(reader.folder)
    constraints = Constraints.from_spec(spec, domain)
    count = max(1000, min(MAX_DRAWN, 4 * rows, MAX_CELLS // len(domain)))
    codes = constraints.draw(
        lambda n: law.drawn(synthesizer.sample(n, rng=rng, threads=1), rng=rng), count, rng=rng
    )
    strata = _strata(reader, tables, domain)
    placed = [one.placed(codes, rng) for one in strata]
    codes = law.groups.of(codes)
    if not spec.sampling.rake:
        return {}, _Drawn(codes, np.full(len(codes), 1 / len(codes)))
    weights = followed_weights(codes, law.coarse_margins, strata, placed)
    smooth = synthesizer.architecture.direct
    heard = pairs_to_follow(tables, domain, smooth=smooth) if spec.sampling.balance else []
    return {(min(m.columns), max(m.columns)): m for m in heard}, _Drawn(
        codes, weights / weights.sum()
    )


def _strata(reader: Reader, tables: Sequence[NoisyTable], domain: Domain) -> list[Strata]:
    """The strata that the chosen rows of a release follow."""
    spec = reader.spec
    if not (spec.sampling.rake and spec.sampling.balance and reader.holds(ESTIMANDS)):
        return []
    sums = stated_sums(reader.json(ESTIMANDS), spec, domain)
    return strata_to_follow(spec, domain, sums, noisy_total(tables).rows)


def _shares(codes: Codes, weights: Floats, pair: tuple[int, int], sizes: Sequence[int]) -> Floats:
    """Shares of the cells of two columns, `[levels, levels]`."""
    first, second = pair
    cells = codes[:, first].astype(np.int64) * sizes[second] + codes[:, second]
    shares: Floats = np.asarray(
        np.bincount(cells, weights=weights, minlength=sizes[first] * sizes[second]),
        dtype=np.float64,
    )
    return shares.reshape(sizes[first], sizes[second])


def _apart(own: Floats, model: Floats, measured: MeasuredPair | None) -> float:
    """Total variation of a table from the model's.

    For a measured pair: from the range, in each cell, of model, measurement and their blends.
    """
    allowed = [model]
    if measured is not None and measured.counts.sum() > 0:
        noisy = np.maximum(measured.counts, 0)
        allowed += [
            noisy / noisy.sum()
            if measured.columns[0] < measured.columns[1]
            else noisy.T / noisy.sum()
        ]
        followed = blended(model, measured)
        allowed += [followed, with_margins(followed, model)]
        allowed += [blended(model, measured, doubt=(DOUBT[0], 0.0))]
    low, high = np.minimum.reduce(allowed), np.maximum.reduce(allowed)
    return float((np.maximum(low - own, 0) + np.maximum(own - high, 0)).sum() / 2)


def _allowed(own: Floats, model: Floats, rows: float, drawn: float, *, pairs: int) -> float:
    """Total variation that `rows` rows and `drawn` rows of one distribution do not exceed.

    The probability that one of `pairs` tables exceeds it is at most `FALSE_ALARMS`.

    [Derived here.] Of n + m rows of one law, independent, which n are the table's is a random
    choice. Given all rows, a cell's share q of them has shares whose difference has variance (1/n +
    1/m) q (1 - q) (n + m) / (n + m - 1): half the sum of its roots bounds the expected distance
    (Jensen). An exchange of two rows moves it by at most 1/n + 1/m; so it exceeds its expectation
    by t with a chance of at most exp(-2 t^2 (n + m - 1/2) / (n m (1/n + 1/m)^2) (1 - 1 / (2 max(n,
    m)))) [El-Yaniv and Pechyony, "Transductive Rademacher Complexity and its Applications", JAIR 35
    (2009), Lemma 2]. All tables together: the union bound.

    That proves the limit for independent rows (`sampling.rake: false`). Rows that were raked and
    chosen are dependent, and are taken for as many independent ones as the weights are worth; and
    what pulls them towards the measured pairs pulls pairs that share a column with these along. So
    twice the limit and `PULLED` are let pass, which is measured, not proved: of the published specs
    RAND HIE came to the limit itself (`tests/bundle/test_every_spec.py`), all others to half of it.
    """
    each, total = 1 / rows + 1 / drawn, rows + drawn
    share = (rows * own + drawn * model) / total
    expected = (
        float(np.sqrt(np.maximum(share * (1 - share), 0)).sum())
        / 2
        * math.sqrt(each * total / max(total - 1, 1))
    )
    exponent = 2 * (total - 0.5) / (rows * drawn * each**2) * (1 - 1 / (2 * max(rows, drawn)))
    return expected + math.sqrt(math.log(pairs / FALSE_ALARMS) / exponent)


ROWS_CHECKS: dict[str, tuple[str, Check]] = {"rows of the model": (CSV_NAME, _check_rows)}
