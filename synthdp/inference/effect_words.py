"""An effect in words: what it rests on, what it is of, and its figures as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.causal import CausalGraph
from synthdp.inference.adjustment import Adjustment, Reading
from synthdp.inference.cells import value_bounds
from synthdp.inference.effect_query import EffectQuery
from synthdp.inference.standardise import Contrast
from synthdp.inference.tables import Measured
from synthdp.inference.words import MAX_SHOWN, TIERS, counted, figures_text, listed, next_time
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.spec.model import ReleaseSpec


def about_graph(
    query: EffectQuery,
    spec: ReleaseSpec,
    graph: CausalGraph,
    adjustment: Adjustment,
    readings: Sequence[Reading],
) -> Iterator[str]:
    """What was adjusted for, and why that gives the effect."""
    t, y = query.treatment, query.outcome
    sets = [listed(names) or "nothing" for names in adjustment.sets]
    yield f"adjusted for {'; or '.join(sets)}"
    if not readings:
        yield (
            f"assumed, since the graph does not tell: these columns are all that confounds {t} and"
            f" {y}, and none of them follows from {t}"
        )
        return
    if not any(reading.causal for reading in readings):
        yield f"no arrows lead from {t} to {y}: by the graph there is no effect"
    pairs = "; ".join(f"{a} and {b}" for a, b in adjustment.open)
    if len(adjustment.sets) > 1 or adjustment.none:
        zero = ", and for none" if adjustment.none else ""
        yield (
            f"nothing shows which is the cause of {pairs}. The interval allows for the effect in"
            f" each reading{zero}"
        )
    elif pairs:
        yield f"nothing shows which is the cause of {pairs}; it makes no difference here"
    refuted = [f"{e.cause} -> {e.effect}" for e in graph.edges if e.provenance == "refuted"]
    if refuted:
        yield f"tables refute arrows of the graph: {', '.join(refuted)}"
    if spec.graph.mode == "learn":
        yield "the graph was learned from the same rows, and is taken to be true"
    else:
        yield "the graph is taken to be true: a cause that it lacks would change the effect"


def about_figures(
    query: EffectQuery,
    spec: ReleaseSpec,
    known: Sequence[Measured],
    contrasts: Sequence[Contrast],
    tables: Sequence[NoisyTable],
) -> Iterator[str]:
    """Whom the figures are of, and what the tables do not tell."""
    names = [[c.name for c in cells.columns] for cells in known]
    if all(cells.whole for cells in known):
        yield f"measured: a noisy table has {' and one has '.join(map(listed, names))}"
        yield (
            "the interval is of the population that the rows are a sample of: it has the sampling"
            " and the noise"
        )
    else:
        lacking = [columns for cells, columns in zip(known, names, strict=True) if not cells.whole]
        yield (
            f"no table has {' and none has '.join(map(listed, lacking))} together. The figure is"
            " that of the synthetic rows, which the model drew; nothing bounds its error"
        )
        several = sum(len(table.columns) > 1 for table in tables)
        yield from (next_time(columns, several) for columns in lacking)
    columns = {c.name: c for cells in known for c in cells.columns}
    yield from _missing(query, columns)
    yield from _levels(query, columns, measured=all(cells.whole for cells in known))
    yield from _contrasts(query, contrasts)
    yield from counted(spec, list(columns))


def _missing(query: EffectQuery, columns: dict[str, ColumnDomain]) -> Iterator[str]:
    t, y = query.treatment, query.outcome
    lacking = [name for name in (t, y) if columns[name].missing]
    if lacking:
        yield (f"rows that lack {listed(lacking)} are taken to be like the others of their stratum")
    others = [c.name for c in columns.values() if c.missing and c.name not in (t, y)]
    if others:
        yield f"lacking {listed(others)} is a level of its own"


def _levels(
    query: EffectQuery, columns: dict[str, ColumnDomain], *, measured: bool
) -> Iterator[str]:
    wide = [c.name for c in columns.values() if c.ranged and _spread(c) > 0]
    adjusted = [name for name in wide if name not in (query.treatment, query.outcome)]
    if adjusted:
        yield f"{listed(adjusted)} by levels: what differs inside a level is not adjusted for"
    if query.outcome in wide and measured:
        yield (
            f"numbers of {query.outcome} may lie anywhere in their level; the interval allows for"
            " it"
        )


def _spread(column: ColumnDomain) -> float:
    low, high = value_bounds(column)
    return float(np.nanmax(high - low))


def _contrasts(query: EffectQuery, contrasts: Sequence[Contrast]) -> Iterator[str]:
    """Intervals at the middles of levels, strata without rows, and unseen causes."""
    middles, kept, refused, e_values = list[str](), list[str](), list[str](), list[str]()
    for found in contrasts:
        name = f"{found.figure.group}: " if len(contrasts) > 1 else ""
        if found.middle is not None:
            middles.append(name + _interval(query, *found.middle))
        if found.left_out:
            strata = name + _few(found.left_out, ", or ")
            known = found.figure.estimate is not None
            (kept if known else refused).append(
                f"{strata} ({found.left_share:.1%} of rows at most)"
            )
        if found.e_values is not None:
            value, nearer = found.e_values
            e_values.append(f"{name}{value:.2f}, and {nearer:.2f} for the interval")
    if middles:
        yield f"if all numbers were the middles of their levels: {_few(middles)}"
    if kept:
        yield f"too few rows of one arm in {_few(kept)}: any effect there is allowed for"
    if refused:
        yield (
            f"too few rows of one arm in {_few(refused)}: fewer or coarser columns, or more budget,"
            " would help"
        )
    if e_values:
        yield (
            f"E-value, the least risk ratio to {query.treatment} and to {query.outcome} of an"
            f" unseen common cause that explains the effect away: {_few(e_values)}"
        )


def _few(texts: Sequence[str], between: str = "; ") -> str:
    """The first few; `--json` has all."""
    return between.join(texts[:MAX_SHOWN]) + (f"{between}..." if len(texts) > MAX_SHOWN else "")


def effect_text(
    query: EffectQuery, tier: str, contrasts: Sequence[Contrast], said: Sequence[str]
) -> str:
    """An effect as lines of text."""
    head = ["", "effect", *(() if tier == "C" else ("95% interval", "means"))]
    lines = [head, *(_line(query, found) for found in contrasts)]
    return figures_text(f"{query.text}   ({TIERS[tier]})", lines, said)


def _line(query: EffectQuery, found: Contrast) -> list[str]:
    figure = found.figure
    name = f"  {figure.group}"
    if figure.estimate is None:
        return [name, figure.refused or ""]
    line = [name, _signed(query, figure.estimate)]
    if figure.interval is not None:
        line.append(_interval(query, *figure.interval))
    if found.means is not None:
        shown = (f"{m:.1%}" if query.level is not None else f"{m:,.4g}" for m in found.means)
        line.append(" and ".join(shown))
    return line


def _interval(query: EffectQuery, low: float | str, high: float | str) -> str:
    return f"{_signed(query, low).removesuffix(' points')} to {_signed(query, high)}"


def _signed(query: EffectQuery, value: float | str) -> str:
    number = float(value)
    return f"{100 * number:+.1f} points" if query.level is not None else f"{number:+,.4g}"
