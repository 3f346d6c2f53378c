"""An answer in words: its figures as lines, and what they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from synthdp.data.column_domain import ColumnDomain
from synthdp.graph.causal import CausalGraph
from synthdp.inference.adjustment import Adjustment, Reading
from synthdp.inference.effect_query import Contrast, EffectQuery
from synthdp.inference.figures import CellRoles, Figure, Value, widest
from synthdp.inference.least_squares import SETTINGS, Measured
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.privacy.mechanisms.sums import Bounded
from synthdp.spec.expressions.expressions import outside
from synthdp.spec.expressions.query import Query
from synthdp.spec.load.wording import many
from synthdp.spec.model import Datetime, Integer, Number, ReleaseSpec
from synthdp.spec.writing import yaml_value

TIERS = {"A": "A, measured", "B": "B, spanned", "C": "C, model only: no interval"}
POPULATION = (
    "the interval is of the population that the rows are a sample of: it has the sampling and the"
    " noise"
)


def about(
    query: Query,
    spec: ReleaseSpec,
    tier: str,
    cells: CellRoles | None,
    unmeasured: Sequence[Sequence[str]],
    tables: Sequence[NoisyTable],
) -> tuple[str, ...]:
    """What the figures are of, in sentences."""
    said = [*_tier(query, tier, unmeasured, tables), *whom(query, spec, measured=tier != "C")]
    if cells is not None and tier != "C":
        said += _bounds(query, cells)
    return (*said, *outside_domain(query, spec))


def outside_domain(query: Query, spec: ReleaseSpec) -> Iterator[str]:
    """Which values of its conditions no row can have, and what the columns hold."""
    conditions = [e for e in (query.condition, query.where) if e is not None]
    found = (pair for e in conditions for pair in outside(e, spec.columns))
    for name, value in dict.fromkeys(found):
        allowed = _range(spec.columns[name])
        yield f"{value} lies outside the domain of {name}, {allowed}; no row of the tables has it"


def _range(column: Any) -> str:
    ends = (column.lower, column.upper)
    if column.operand == "date":
        return " to ".join(str(end).removesuffix(" 00:00:00") for end in ends)
    return " to ".join(f"{end:.15g}" for end in ends)


def _tier(
    query: Query, tier: str, unmeasured: Sequence[Sequence[str]], tables: Sequence[NoisyTable]
) -> Iterator[str]:
    names = listed(query.columns)
    if tier == "A":
        yield f"measured: a noisy table has {names}" if names else "measured: each table has it"
    elif tier == "B":
        yield f"spanned: no table has {names} together, and several determine the answer"
    else:
        together = " and none ".join(f"has {listed(columns)} together" for columns in unmeasured)
        yield (
            f"no table {together}. The figures are those of the synthetic rows, which the model"
            " drew; nothing bounds their error"
        )
        for columns in unmeasured:
            yield next_time(columns, sum(len(table.columns) > 1 for table in tables))


def next_time(columns: Sequence[str], several: int) -> str:
    """How to get an interval from the next release, and what it costs."""
    if len(columns) > 2:
        table = f"estimands: [{{kind: table, columns: {yaml_value(list(columns))}}}]"
        return f"next time, measure it: {table}, for a share of the budget"
    pair = f"next time, measure it: privacy.pairs {yaml_value(list(columns))}"
    if not several:
        return f"{pair}, for a share of the budget"
    growth = ((several + 1) / several) ** 0.5 - 1
    beside = f"beside {many(several, 'table')} of equal noise"
    return f"{pair}; {beside}, it makes their noise {growth:.1%} larger"


def whom(query: Query, spec: ReleaseSpec, *, measured: bool) -> Iterator[str]:
    """Which rows the figures are of; `measured` says that they have intervals."""
    holdout = spec.evaluation.held_out
    if query.statistic in ("count", "sum"):
        left = " that max_rows leaves" if spec.dataset.privacy_unit.whom else ""
        yield (
            f"rows of the whole table{left}"
            + (f"; the tables count the {1 - holdout:.0%} that coins left" if holdout else "")
        )
    elif measured:
        yield POPULATION
    if query.weight:
        yield f"a row counts as often as its {query.weight} says"
    read = [*query.numbers, *(query.condition.columns if query.condition else ())]
    missing = [name for name in dict.fromkeys(read) if spec.columns[name].missing]
    if missing and query.statistic != "count":
        yield f"rows that lack {listed(missing)} are left out"
    yield from counted(spec, query.columns)


def counted(spec: ReleaseSpec, names: Sequence[str]) -> Iterator[str]:
    """Which rows the tables count, and what of values outside the domain of these columns."""
    unit = spec.dataset.privacy_unit
    if unit.whom is not None:
        yield unit.whom + ("; the interval allows for it" if unit.max_rows > 1 else "")
    if spec.dataset.out_of_domain == "clamp":
        for name in names:
            column = spec.columns[name]
            if isinstance(column, Integer | Number | Datetime):
                yield f"{name} of {_range(column)}: what lies beyond counts as the nearer end"
            else:
                yield f"{name}: what is none of its categories counts as {column.labels[0]}"


def clamped(number: Bounded) -> str:
    """Where the numbers of a sum end."""
    return (
        f"{number.column} of {number.lower:g} to {number.upper:g}: what lies beyond counts as the"
        " nearer end"
    )


def _bounds(query: Query, cells: CellRoles) -> Iterator[str]:
    """What levels do not tell, and how much wider that makes the interval."""
    for column, labels in cells.cut_levels() if query.statistic != "correlation" else ():
        shown = _few(labels, ", ")
        yield (
            f"the tables count {column.name} by {shown}, which the condition cuts; the interval"
            " allows for every way to part it. Conditions at the ends of levels are exact"
        )
    if query.statistic == "quantile":
        return
    if wide := [n for n in query.numbers if widest(cells.columns[cells.axis(n)]) > 0]:
        yield anywhere(listed(wide))


def anywhere(name: str) -> str:
    return f"numbers of {name} may lie anywhere in their level; the interval allows for it"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + "".join(names[-1:])


def figure_lines(
    statistic: str, figures: Sequence[Figure], *, interval: bool, unit: str | None = None
) -> list[Sequence[str]]:
    """The cells of each figure, below those of a head."""
    beside = [
        (name, head)
        for name, head in (("by_levels", "by levels alone"), ("at_middles", "at middles of levels"))
        if any(getattr(figure, name) for figure in figures)
    ]
    head = ["95% interval", *(text for _, text in beside)] if interval else []
    lines: list[Sequence[str]] = [["", f"estimate{f' ({unit})' if unit else ''}", *head, "rows"]]
    for figure in figures:
        line = [figure.group or "", figure.refused or ""]
        if figure.refused is None:
            at = figure.estimate
            line[1] = "lost in noise" if at is None else shown(statistic, at)
            asked = [figure.interval, *(getattr(figure, name) for name, _ in beside)]
            for ends in asked[: len(head)]:
                line.append(" to ".join(shown(statistic, end) for end in ends or ()))
            line.append("" if figure.rows is None else f"{figure.rows:,.0f}")
        lines.append(line)
    return lines


def figures_text(title: str, lines: Sequence[Sequence[str]], said: Sequence[str]) -> str:
    """A title, aligned lines whose first is their head, and sentences."""
    widths = [max(map(len, cells)) for cells in zip_longest(*lines, fillvalue="")]
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    )
    return "\n".join([title, *padded, *(f"- {s}" for s in said)])


def shown(statistic: str, value: Value) -> str:
    """A value as people read it: shares in percent, counts whole."""
    if isinstance(value, str):
        return value
    if statistic == "share":
        return f"{value:.1%}"
    whole = statistic == "count" or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:,.4g}"


def as_texts(figure: Figure, column: ColumnDomain) -> Figure:
    """A figure of instants with dates in place of steps."""

    def text(value: Value) -> str:
        seconds = np.datetime64(int(np.floor(float(value))) * (column.step_seconds or 1), "s")
        return str(np.datetime_as_string(seconds, unit="D" if column.resolution == "day" else "s"))

    return figure.changed(lambda value: value if isinstance(value, str) else text(value))


# --- effects ---


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
        yield POPULATION
    else:
        lacking = [columns for cells, columns in zip(known, names, strict=True) if not cells.whole]
        yield (
            f"no table has {' and none has '.join(map(listed, lacking))} together. The figure is"
            " that of the synthetic rows, which the model drew; nothing bounds its error"
        )
        several = sum(len(table.columns) > 1 for table in tables)
        yield from (next_time(columns, several) for columns in lacking)
    columns = {c.name: c for cells in known for c in cells.columns}
    ends = (query.treatment, query.outcome)
    if absent := [name for name in ends if columns[name].missing]:
        yield f"rows that lack {listed(absent)} are taken to be like the others of their stratum"
    if others := [c.name for c in columns.values() if c.missing and c.name not in ends]:
        yield f"lacking {listed(others)} is a level of its own"
    wide = [c.name for c in columns.values() if c.ranged and widest(c) > 0]
    if adjusted := [name for name in wide if name not in ends]:
        yield f"{listed(adjusted)} by levels: what differs inside a level is not adjusted for"
    if query.outcome in wide and all(cells.whole for cells in known):
        yield anywhere(query.outcome)
    yield from _contrasts(query, contrasts)
    yield from counted(spec, list(columns))


def _contrasts(query: EffectQuery, contrasts: Sequence[Contrast]) -> Iterator[str]:
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
    most = SETTINGS.max_shown
    return between.join(texts[:most]) + (f"{between}..." if len(texts) > most else "")


def effect_text(
    query: EffectQuery,
    tier: str,
    contrasts: Sequence[Contrast],
    said: Sequence[str],
    unit: str | None,
) -> str:
    head = [
        "",
        f"effect{f' ({unit})' if unit else ''}",
        *(() if tier == "C" else ("95% interval", "means")),
    ]
    lines: list[Sequence[str]] = [head]
    for found in contrasts:
        figure = found.figure
        line = [f"  {figure.group}", figure.refused or ""]
        if figure.estimate is not None:
            line[1] = _signed(query, figure.estimate)
            if figure.interval is not None:
                line.append(_interval(query, *figure.interval))
            if found.means is not None:
                kind = "mean" if query.level is None else "share"
                line.append(" and ".join(shown(kind, mean) for mean in found.means))
        lines.append(line)
    return figures_text(f"{query.text}   ({TIERS[tier]})", lines, said)


def _interval(query: EffectQuery, low: float | str, high: float | str) -> str:
    return f"{_signed(query, low).removesuffix(' points')} to {_signed(query, high)}"


def _signed(query: EffectQuery, value: float | str) -> str:
    number = float(value)
    return f"{100 * number:+.1f} points" if query.level is not None else f"{number:+,.4g}"
