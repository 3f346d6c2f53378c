"""Effects of one step in a bundle of persons with visits: by the graph over time, from one table.

The table has treatment, outcome and what is adjusted for (`model.visits.effects`); it is one that
was counted anyway, or that of an estimand. Two figures: the average over all rows (the g-formula of
`effect_query`), and that where both arms overlap, which no stratum with a thin arm can spoil.

Rows of one person are no independent sample. An estimate's error is a sum over rows of what is left
of the outcome given treatment and stratum, times a weight of these, plus how the stratum's effect
differs from the average one. Where the graph says that the outcome, given both, hangs together with
no earlier visit (`effects.apart`), the first parts of a person's rows are martingale differences:
each has mean 0 given all before it, so that products of two have mean 0, and their variances add up
as those of different persons. The second parts do not: their sum of a person's m rows has a square
of at most m times the sum of squares [Cauchy, Schwarz], and both together have at most the square
of the sum of the two deviations. Elsewhere m is taken times both [derived here].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from synthdp.bundle.linked import as_one, checked_linked
from synthdp.bundle.noisy_values import MARGINALS
from synthdp.data.domain import Domain
from synthdp.data.visits import VisitFrame
from synthdp.errors import OutputError
from synthdp.inference.answer import Answer, check_agreement
from synthdp.inference.effect import EffectAnswer
from synthdp.inference.effect_query import (
    HIGH,
    LOW,
    MIDDLE,
    Contrast,
    EffectQuery,
    Strata,
    against,
    contrast,
)
from synthdp.inference.figures import (
    Figure,
    Floats,
    Interval,
    Quadratic,
    Rows,
    Z,
    certain,
    ratio_interval,
    too_few,
)
from synthdp.inference.least_squares import SETTINGS, LeastSquares, measured
from synthdp.inference.sums import OVERLAP
from synthdp.inference.visits import VisitQuestions, clipped, paid_question, renamed
from synthdp.inference.words import about_figures, listed
from synthdp.model.visits.effects import (
    EffectRows,
    MeasuredEffect,
    apart,
    checked_adjustment,
    effect_rows,
    plain_name,
    shown_valid,
    visit_adjustment,
)
from synthdp.model.visits.fit import Tables
from synthdp.model.visits.planning import Measured, measured_estimands
from synthdp.model.visits.questions import column_of
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.plan import ESTIMAND, estimand_purpose
from synthdp.spec.model import LinkedSpec, ReleaseSpec
from synthdp.spec.model.linked import LinkedEffect


@dataclass(frozen=True)
class VisitStrata(Strata):
    """Strata of rows of which a person has several; `apart` as of `effects.apart`."""

    apart: bool = False

    def variances(self, functionals: Floats, *, sampled: bool) -> Floats:
        """Variances `[k]` by the noise, and by the sampling of persons where it is asked for."""
        found: Floats = np.diag(self.noise(functionals))
        if not sampled:
            return found
        whole = (self.counts * functionals**2).sum(axis=(1, 2, 3)).clip(0)
        rows = self.counts.sum(axis=(0, 1)).clip(1)
        common = (self.counts * functionals).sum(axis=(1, 2)) / rows
        of_strata = np.minimum((rows * common**2).sum(axis=1), whole)
        found = found + self.drawn(whole - of_strata, of_strata)
        return found

    def drawn(self, own: Any, of_strata: Any) -> Any:
        """The variance by the sampling of persons, of sums of squares over independent rows: of
        what is left of the outcome, and of strata.
        """
        most = self.rows.per_unit
        if not self.apart:
            return most * (own + of_strata)
        return (np.sqrt(own) + np.sqrt(most * of_strata)) ** 2


def effect_of_visits(bundle: Path, query: EffectQuery) -> EffectAnswer:
    """The effect that the bundle in a folder shows; raises what `effect.effect_of_bundle` does."""
    stated, tables = checked_linked(bundle, (MARGINALS,)), VisitQuestions(bundle).by_purpose
    known = measured_estimands(stated.linked, stated.frame)
    asked = _Asked(stated.linked, stated.frame, {p: t for p, (_, t) in tables.items()}, known)
    views = {purpose: view for purpose, (view, _) in tables.items()}
    return asked.answer(query, views)


def estimands_json(spec: LinkedSpec, frame: VisitFrame, tables: Tables) -> dict[str, Any]:
    """The content of `estimands.json`: each effect and question that was paid for."""
    paid = paid_results(spec, frame, tables)
    named = ({"name": str(i + 1), "kind": e.kind} for i, e in enumerate(spec.estimands))
    return {"estimands": [name | e.to_json() for name, e in zip(named, paid, strict=True)]}


def paid_results(
    spec: LinkedSpec, frame: VisitFrame, tables: Tables, measured: Sequence[Measured] = ()
) -> tuple[Answer | EffectAnswer, ...]:
    """The results of the estimands of a spec, in its order, by the tables of each purpose; of many
    tables what each is `measured` by need be known once.
    """
    asked = _Asked(spec, frame, tables, measured or measured_estimands(spec, frame))
    return tuple(
        asked.paid(i)
        if isinstance(own, MeasuredEffect)
        else paid_question(spec, frame, i, own, tables)
        for i, own in enumerate(asked.measured)
    )


def check_queries(spec: LinkedSpec, frame: VisitFrame) -> None:
    """Refuse estimands of levels that are not there, before anything is spent.

    Raises:
        OutputError: with the first of them.
    """
    asked = _Asked(spec, frame, {}, ())
    for estimand in asked.effects.values():
        rows = effect_rows(frame, estimand.treatment, estimand.outcome)
        query = query_of(estimand).checked(asked.one(rows))
        query.levels(asked.domain(rows)[rows.treatment])


def query_of(estimand: LinkedEffect) -> EffectQuery:
    """What an estimand asks."""
    t, y = map(plain_name, (estimand.treatment, estimand.outcome))
    more = estimand.reference, estimand.level, estimand.clip, estimand.steps
    return EffectQuery(t, y, None, *more)


@dataclass(frozen=True)
class _Source:
    """A table, or several, that may have an effect, and what it is adjusted for by then."""

    tables: Sequence[NoisyTable]
    adjusted: tuple[str, ...]
    given: bool


@dataclass(frozen=True)
class _Asked:
    """What a spec and its released tables, by purpose, are asked."""

    spec: LinkedSpec
    frame: VisitFrame
    tables: Tables
    measured: Sequence[Measured]

    @cached_property
    def plain(self) -> ReleaseSpec:
        """What parts for one table ask."""
        return as_one(self.spec)

    def one(self, rows: EffectRows) -> ReleaseSpec:
        """The same with the columns of these rows."""
        columns = {n: column_of(self.spec, self.frame, view) for n, view in rows.names.items()}
        return self.plain.model_copy(update={"columns": columns})

    def domain(self, rows: EffectRows) -> Domain:
        """The columns of these rows, as they are asked for."""
        domain = self.frame.views[rows.view]
        return Domain(tuple(replace(domain[v], name=n) for n, v in rows.names.items()))

    @cached_property
    def effects(self) -> dict[int, LinkedEffect]:
        """The estimands that are effects, by their places."""
        every = enumerate(self.spec.estimands)
        return {i: e for i, e in every if isinstance(e, LinkedEffect)}

    def paid(self, i: int) -> EffectAnswer:
        """The result of an effect."""
        estimand = self.effects[i]
        source, rows = self._own(i)
        query = query_of(estimand).checked(self.one(rows))
        return self._of(query, rows, source)

    def _own(self, i: int) -> tuple[_Source, EffectRows]:
        asked = self.measured[i]
        assert isinstance(asked, MeasuredEffect)
        own = self.tables.get(estimand_purpose(str(i + 1)), ())
        shown = {view: name for name, view in asked.rows.names.items()}
        tables = [renamed(table, shown) for table in own]
        return _Source(tables, asked.adjusted, asked.given), asked.rows

    def answer(self, query: EffectQuery, views: Mapping[str, str]) -> EffectAnswer:
        """The answer of the first tables that have treatment, outcome and valid strata."""
        rows = effect_rows(self.frame, query.treatment, query.outcome)
        adjust = query.adjust
        query = replace(query, treatment=rows.treatment, outcome=rows.outcome, adjust=None)
        query = query.checked(self.one(rows))
        if adjust is not None:
            adjust = checked_adjustment(self.spec, self.frame, rows, adjust)
        for source in self._sources(rows, views, adjust):
            names = (rows.treatment, rows.outcome, *source.adjusted)
            if any({*names} <= {*t.columns} for t in source.tables):
                return self._of(query, rows, source)
        z = visit_adjustment(self.spec, self.frame, rows) if adjust is None else adjust
        lacking = listed((rows.treatment, rows.outcome, *z))
        held = f", adjust: [{', '.join(z)}]" if adjust is not None else ""
        raise OutputError(
            f"no noisy table of {rows.law} has {lacking} together, and several do not tell an"
            " effect",
            hint="next time, measure it for a share of the budget: estimands: [{kind: effect,"
            f" treatment: {rows.treatment}, outcome: {rows.outcome}{held}}}]",
        )

    def _sources(
        self, rows: EffectRows, views: Mapping[str, str], adjust: tuple[str, ...] | None
    ) -> Iterator[_Source]:
        """Tables of estimands, then all others of these rows."""
        for i in self.effects:
            source, own = self._own(i)
            if (own.view, own.names) != (rows.view, rows.names):
                continue
            same = (own.treatment, own.outcome) == (rows.treatment, rows.outcome)
            if adjust is not None:
                yield replace(source, adjusted=adjust, given=True)
            elif same:
                yield source
        shown = {view: name for name, view in rows.names.items()}
        others = [
            renamed(table, shown)
            for purpose, tables in self.tables.items()
            if views[purpose] == rows.view and not purpose.startswith(ESTIMAND)
            for table in tables
        ]
        if adjust is not None:
            yield _Source(others, adjust, True)
        elif shown_valid(self.spec, self.frame, rows, ()):
            yield _Source(others, (), False)

    def _of(self, query: EffectQuery, rows: EffectRows, source: _Source) -> EffectAnswer:
        """The figures of a source that has them."""
        names = (rows.treatment, rows.outcome, *source.adjusted)
        known = measured(source.tables, self.domain(rows), names, grouped=True)
        solver, spec = LeastSquares(known), self.one(rows)
        check_agreement(solver.agreement(), Path(MARGINALS), names)
        own_past = not source.given
        free = apart(self.spec, self.frame, rows, source.adjusted, own_past=own_past)
        numbers = query.numbers(known.columns[1])
        counted = Rows(self.plain.evaluation.held_out, rows.most)
        strata = VisitStrata(solver, numbers, counted, free)
        levels, reference = query.levels(known.columns[0])
        query = replace(query, reference=known.columns[0].labels[reference])
        if query.steps > 1:
            found = [regime(strata, level, reference, query.steps) for level in levels]
        else:
            found = [contrast(strata, level, reference) for level in levels]
        if query.steps == 1 and source.adjusted and len(known.margins) == 1:
            found += [Contrast(*overlap(strata, level, reference)) for level in levels]
        said = (
            f"law: {rows.law}",
            *self._about(rows, source, free, query.steps),
            *clipped(query.outcome, query.clip),
            *about_figures(query, spec, [known], found, source.tables),
        )
        unit = spec.columns[query.outcome].unit if query.level is None else None
        return EffectAnswer(query, "A", tuple(found), (source.adjusted,), said, unit)

    def _about(self, rows: EffectRows, source: _Source, free: bool, steps: int) -> Iterator[str]:
        yield f"adjusted for {listed(source.adjusted) or 'nothing'}"
        if self.spec.graph.mode != "given":
            yield (
                "assumed, since the graph does not tell: these columns are all that confounds"
                f" {rows.treatment} and {rows.outcome}, and none of them follows from it"
            )
        else:
            yield "the graph is taken to be true: a cause that it lacks would change the effect"
        if self.spec.graph.mode == "given" and source.given:
            yield "a column's own past is taken to be a cause of it only where an arrow says so"
        t, y = rows.slices
        if (y or 0) > (t or 0):
            yield "lost: nobody; the effect is that if nobody were lost between the two"
        if steps > 1:
            yield (
                f"{rows.treatment} is set at a visit and at the {steps - 1} after it, and the"
                f" outcome is {steps} visits later; each step has the law of one, as the graph says"
            )
        elif source.adjusted:
            yield (
                f"{OVERLAP}: a stratum of n1 and n0 rows of both arms weighs n1 n0 / (n1 + n0), so"
                " that strata that have hardly any of one arm hardly count"
            )
        if rows.most > 1 and free:
            yield (
                "persons are the sample; given what is adjusted for, outcomes of a person's visits"
                " hang together no further in this graph, which the interval goes by"
            )
        elif rows.most > 1:
            yield (
                "persons are the sample, and outcomes of one may be alike: the interval allows for"
                f" {rows.most} that are the same, which is more than there is"
            )


# --- several steps ---


def regime(strata: VisitStrata, treated: int, reference: int, steps: int) -> Contrast:
    """The effect of a treatment that is set at so many visits in a row, by the sequential g-formula
    of a chain whose steps the table has (`effects.state`): its strata are of the outcome before the
    step, and of columns of persons.

    With w the strata's parts of all rows, P_t the step's law and f the level's indicator, psi_t =
    w P_t^k f. Its gradient by the cells is that of w, and of P_t: sum_j o_j(z) d_j(z, y) / N(t, z),
    with d_j the value h_{k-j-1}(y) less h_{k-j}(z), o_j the law after j steps, h_j the mean after j
    more. What noise adds in the second order, half its variance times the trace of the Hessian, is
    taken off by differences of one deviation to both sides of each cell.
    """
    counts, name = strata.counts, against(strata.solver.measured.columns[0], treated, reference)
    levels, total = counts.shape[1], max(0.0, float(counts.sum())) / (1 - strata.rows.holdout)
    variance = float(next(iter(strata.solver.measured.margins.values())).variances.mean())
    cells = counts.reshape(len(counts), levels, levels, -1)  # [treatment, after, before, person]
    arms = cells[[treated, reference]].sum(axis=1)
    least = max(SETTINGS.fewest, SETTINGS.certain_arm * math.sqrt(levels * variance))
    if (arms < least).any():
        few = strata.names((arms < least).any(axis=0).ravel())
        why = "too few rows of one arm in a stratum, which several steps may all pass through"
        return Contrast(Figure(name, total, refused=why), left_out=few, left_share=1.0)
    numbers = strata.numbers[MIDDLE]
    one, two = (_chain(cells, arm, numbers, steps) for arm in (treated, reference))
    gradient = (one[1] - two[1]).reshape(1, *counts.shape)
    sd = [math.sqrt(float(strata.variances(gradient, sampled=s)[0])) for s in (True, False)]
    step, bias = math.sqrt(variance), np.zeros(2)
    for at in np.ndindex(cells.shape):
        for side in (step, -step):
            moved = cells.copy()
            moved[at] += side
            for i, arm in enumerate((treated, reference)):
                bias[i] += (_chain(moved, arm, numbers, steps)[0] - (one, two)[i][0]) / 2
    means = float(one[0] - bias[0]), float(two[0] - bias[1])
    effect = means[0] - means[1]
    both, noise = ((max(-1.0, effect - Z * s), min(1.0, effect + Z * s)) for s in sd)
    return Contrast(Figure(name, total, effect, both, noise), means)


def _chain(cells: Floats, arm: int, numbers: Floats, steps: int) -> tuple[float, Floats]:
    """The mean after some steps under one treatment, and its gradient by the cells."""
    rows, total = cells[arm].sum(axis=0), cells.sum()
    law = cells[arm] / rows  # [after, before, person]
    values = [np.broadcast_to(numbers[:, None], rows.shape)]
    for _ in range(steps):
        values.append(np.einsum("yxp,yp->xp", law, values[-1]))
    weights = cells.sum(axis=(0, 1)) / total
    psi = float((weights * values[-1]).sum())
    gradient = np.broadcast_to((values[-1] - psi) / total, cells.shape).copy()
    for left in range(steps, 0, -1):
        gradient[arm] += weights / rows * (values[left - 1][:, None] - values[left])
        weights = np.einsum("yxp,xp->yp", law, weights)
    return psi, gradient


# --- where both arms overlap ---


def overlap(strata: VisitStrata, treated: int, reference: int) -> tuple[Figure, Any, Any]:
    """The effect where both arms overlap; its means, which there are none of; its interval at
    middles of levels.

    psi = A / B with A = sum_z h_z (n_0 S_1 - n_1 S_0) and B = sum_z h_z n_1 n_0, n and S the rows
    and the sum of an arm in a stratum, and h_z = 1 / (n_1 + n_0), or that of the least sum that is
    clear of its noise. Products are of different arms, whose noise is independent: A and B are
    unbiased, up to h. Their gradients by the cells, which are noisy, have squares that hold the
    variance of products of two noises twice; once is taken off [derived here].
    """
    known, name = strata.known, against(strata.solver.measured.columns[0], treated, reference)
    group = f"{name}, {OVERLAP}"
    counts = strata.counts[[treated, reference]][:, known]
    variance = float(next(iter(strata.solver.measured.margins.values())).variances.mean())
    found = [
        _ratio(strata, counts, variance, strata.numbers[one, known], strata.numbers[two, known])
        for one, two in ((LOW, HIGH), (MIDDLE, MIDDLE), (HIGH, LOW))
    ]
    n = counts.sum(axis=1)
    b, of_b = found[MIDDLE].b, found[MIDDLE].noise.dd
    about = max(0.0, 4 * b) / (1 - strata.rows.holdout)
    if n.sum(0).mean() < SETTINGS.fewest:
        why = f"fewer than {SETTINGS.fewest:,.0f} rows in an average stratum"
        return Figure(group, about, refused=why), None, None
    if not certain(4 * b, 16 * of_b):
        return too_few(group, 4 * b, 16 * of_b, strata.rows), None, None
    both, of_rows = [f.interval(sampled=True) for f in found], [f.interval() for f in found]
    if any(ends is None for ends in (*both, *of_rows)):
        return too_few(group, 4 * b, 16 * of_b, strata.rows), None, None
    low, middle, high = both
    assert low and middle and high and of_rows[0] and of_rows[-1]
    ratios = [f.a / f.b for f in found]
    coarse = ratios[HIGH] - ratios[LOW] > 1e-9 * max(1.0, strata.span)

    def within(ends: Interval) -> Interval:
        one, two = np.clip(ends, -strata.span, strata.span)
        return float(one), float(two)

    figure = Figure(
        group,
        about,
        ratios[MIDDLE],
        within((low[0], high[1])),
        within((of_rows[0][0], of_rows[-1][1])),
        within((ratios[LOW], ratios[HIGH])) if coarse else None,
    )
    return figure, None, within(middle) if coarse else None


@dataclass(frozen=True)
class _Ratio:
    """A and B of the overlap, their noise, and the variance of A - psi B by the sampling."""

    a: float
    b: float
    noise: Quadratic
    sampling: float

    def interval(self, *, sampled: bool = False) -> Interval | None:
        """The interval by the noise, and by the sampling."""
        extra = Quadratic(self.sampling * sampled, 0.0, 0.0)
        return ratio_interval(self.a, self.b, self.noise.plus(extra))


def _ratio(
    strata: VisitStrata, counts: Floats, variance: float, one: Floats, two: Floats
) -> _Ratio:
    """By `counts` `[arm, levels, strata]` of noise `variance`, and the numbers of each arm."""
    v = np.stack([one, two])
    n, s = counts.sum(axis=1), np.einsum("al,alz->az", v, counts)
    levels, size = counts.shape[1], n.sum(0)
    least = SETTINGS.certain * math.sqrt(2 * levels * variance)
    h, clear = 1 / np.maximum(size, least), size > least
    differences, arms = n[1] * s[0] - n[0] * s[1], n[0] * n[1]
    by_size, squares, sums = h**2 * clear, (v**2).sum(axis=1), v.sum(axis=1)
    # What noise in a stratum's rows, by h, adds to both sums.
    with_size = sums[0] * n[1] - sums[1] * n[0] + levels * (s[0] - s[1]), levels * size
    a, b = (
        float(h @ of + by_size @ (variance * (shared - 2 * levels * h * of)))
        for of, shared in zip((differences, arms), with_size, strict=True)
    )
    of_a = np.stack(
        [
            h * (np.outer(v[0], n[1]) - s[1]) - by_size * differences,
            h * (s[0] - np.outer(v[1], n[0])) - by_size * differences,
        ]
    )
    of_b = np.stack([h * n[1] - by_size * arms, h * n[0] - by_size * arms])
    twice = variance**2 * float(h @ h)
    noise = Quadratic(
        max(
            variance * float((of_a**2).sum())
            - twice * (levels * squares.sum() - 2 * sums[0] * sums[1]),
            0.0,
        ),
        variance * float((of_a * of_b[:, None]).sum()) - twice * levels * float(sums[0] - sums[1]),
        max(variance * levels * float((of_b**2).sum()) - twice * levels**2, 0.0),
    )
    effect = a / b if b > 0 else 0.0
    return _Ratio(a, b, noise, _sampling(strata, counts, v, effect, variance, h))


def _sampling(
    strata: VisitStrata, counts: Floats, v: Floats, effect: float, variance: float, h: Floats
) -> float:
    """The variance of A - psi B by the sampling of persons.

    Of rows less their stratum's mean, the treated ones' less the effect, too; and how the effect
    differs between strata whose arms are clear of their noise, less what noise adds to that.
    """
    n, s = counts.sum(axis=1), np.einsum("al,alz->az", v, counts)
    levels, most = counts.shape[1], strata.rows.per_unit
    mean = (s.sum(0) - effect * n[0]) * h
    own = 0.0
    for arm, centre in enumerate((mean + effect, mean)):
        spread = np.einsum("lz,lz->z", counts[arm], (v[arm][:, None] - centre) ** 2)
        weight = np.maximum(n[1 - arm] ** 2 - levels * variance, 0.0) * h**2
        own += float(weight @ spread)
    own = max(own, 0.0)
    if most == 1 or not strata.apart:
        return float(strata.drawn(own, 0.0))
    kept = (n > SETTINGS.certain * math.sqrt(levels * variance)).all(axis=0)
    k, of = n[:, kept], s[:, kept] / n[:, kept]
    differs = of[0] - of[1] - effect
    spread = [((v[arm][:, None] - of[arm]) ** 2).sum(0) / k[arm] ** 2 for arm in (0, 1)]
    beyond = differs**2 - variance * (spread[0] + spread[1])
    weight = (k[0] * k[1] ** 4 + k[1] * k[0] ** 4) / k.sum(0) ** 4
    of_strata = min(max(float(weight @ beyond), 0.0), own)
    return float(strata.drawn(own - of_strata, of_strata))
